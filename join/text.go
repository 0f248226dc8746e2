package join

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/internal/crash"
)

// Text is read and written by blocks of whole records, on all cores: one goroutine reads and cuts, as many as there are
// cores take the blocks apart, and what comes of them keeps their order.

// textBlock is how much of a file a block has, about. Tests make it small.
var textBlock = 2 << 20

// maxRecord bounds one record, in bytes: what a missing quote would else make of a file.
const maxRecord = 256 << 20

// tooLong is the error of a longer record.
var tooLong = &lineError{line: 1, err: fmt.Errorf("a record of more than %d MiB: is a quote missing?", maxRecord>>20)}

// textSource is the bytes of an input, which can be read from the start any number of times.
type textSource func() (io.ReadCloser, error)

// unread is what inOrder says of a panic where text is read.
const unread = "the text could not be read"

// inOrder brings what produce sends to work, on as many goroutines as cores, and gives the results in order, then
// io.EOF. stop ends the work and waits for it; it may be called at any time, and more than once. what is said of a
// panic.
func inOrder[T, R any](what string, produce func(send func(T) bool) error,
	work func(T) (R, error)) (next func() (R, error), stop func()) {
	return inOrderBy(runtime.GOMAXPROCS(0), what, produce, work)
}

// inOrderBy is inOrder on so many goroutines.
func inOrderBy[T, R any](cores int, what string, produce func(send func(T) bool) error,
	work func(T) (R, error)) (next func() (R, error), stop func()) {
	type result struct {
		r   R
		err error
	}
	type task struct {
		t  T
		to chan result
	}
	tasks, results, done := make(chan task), make(chan chan result, 2*cores), make(chan struct{})
	var once sync.Once
	var all crash.WaitGroup
	stop = func() {
		once.Do(func() { close(done) })
		all.Wait()
	}
	all.Go(func() {
		defer close(results)
		defer close(tasks)
		err := catch(what, func() error {
			return produce(func(t T) bool {
				x := task{t, make(chan result, 1)}
				select {
				case <-done:
					return false
				case results <- x.to:
				}
				select {
				case <-done:
					return false
				case tasks <- x:
				}
				return true
			})
		})
		if err != nil {
			end := make(chan result, 1)
			end <- result{err: err}
			select {
			case <-done:
			case results <- end:
			}
		}
	})
	for range cores {
		all.Go(func() {
			for x := range tasks {
				var r result
				r.err = catch(what, func() (err error) { r.r, err = work(x.t); return err })
				x.to <- r
			}
		})
	}
	var last error
	return func() (R, error) {
		var none R
		if last != nil {
			return none, last
		}
		to, more := <-results
		if !more {
			last = io.EOF
			return none, last
		}
		select {
		case r := <-to:
			last = r.err
			return r.r, r.err
		case <-done:
			last = io.EOF
			return none, last
		}
	}, stop
}

// plainText is text that is not packed, and can be read at several places at a time.
type plainText struct{ *io.SectionReader }

func (plainText) Close() error { return nil }

// textPart is a part of a text: whole records. Room is memory that nobody needs once nobody needs them, to be spared.
type textPart struct{ records, room []byte }

// blocks cuts what it reads into stretches of whole records, and sends them. end gives the end of the last record in b
// that is known to be whole, 0 for none.
func blocks(in io.Reader, end func(b []byte) int, send func(textPart) bool) error {
	if p, ok := in.(plainText); ok {
		return plainBlocks(p, end, send)
	}
	var rest []byte
	for size := textBlock; ; {
		b := append(make([]byte, 0, max(size, len(rest)+size/2)), rest...)
		n, err := readTo(in, b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			if len(b) > 0 {
				send(textPart{b, nil})
			}
			return nil
		}
		if err != nil {
			return err
		}
		at := end(b)
		if at == 0 {
			if len(b) >= maxRecord {
				return tooLong
			}
			rest, size = b, 2*len(b)
			continue
		}
		rest, size = b[at:], textBlock
		if !send(textPart{b[:at:at], nil}) { // the next begins with what is behind it
			return nil
		}
	}
}

const (
	readersOf  = 4       // one core of so many reads
	roomBefore = 1 << 12 // before what is read, for the record that the part before it has begun
)

// plainBlocks is blocks for a text that several goroutines read, a part each at a time. This one only looks where the
// last record of each ends.
func plainBlocks(in plainText, end func(b []byte) int, send func(textPart) bool) error {
	from, err := in.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	size := int64(textBlock)
	next, stop := inOrderBy(max(1, runtime.GOMAXPROCS(0)/readersOf), unread, func(send func(int64) bool) error {
		for at := from; at < in.Size() && send(at); at += size {
		}
		return nil
	}, func(at int64) ([]byte, error) {
		room := grab[byte](roomBefore + int(min(size, in.Size()-at)))
		n, err := in.ReadAt(room[roomBefore:], at)
		if err == io.EOF {
			if err = nil; n < len(room)-roomBefore {
				err = errors.New("the file became shorter while it was read")
			}
		}
		return room[:roomBefore+n], err
	})
	defer stop()
	var rest []byte
	for tried := 0; ; {
		long := len(rest) > roomBefore
		room, err := next()
		if err == io.EOF {
			if len(rest) > 0 {
				send(textPart{rest, nil})
			}
			return nil
		}
		if err != nil {
			return err
		}
		var b []byte
		if !long {
			b = room[roomBefore-len(rest):]
			copy(b, rest)
		} else {
			b = append(widen(rest, len(room)), room[roomBefore:]...)
			spare(room)
			room, rest = b, nil
		}
		at := 0
		if len(b) >= tried+tried/2 { // a long record is not looked through for each part of it
			at, tried = end(b), len(b)
		}
		if at == 0 {
			if len(b) >= maxRecord && tried < len(b) {
				at, tried = end(b), len(b)
			}
		}
		if at == 0 {
			if len(b) >= maxRecord {
				return tooLong
			}
			if long {
				rest = b
			} else {
				rest = append(rest[:0], b...)
				spare(room)
			}
			continue
		}
		rest, tried = append(rest[:0], b[at:]...), 0
		if !send(textPart{b[:at:at], room}) {
			return nil
		}
	}
}

// textBatch is what came of a block.
type textBatch struct {
	names     []string // of JSON: the columns, as they came
	rows      int
	lines     int64
	sightings []sighting // in the block's order for each column
	columns   []arrow.Array
}

// records makes record batches of blocks that have rows; so many lines were before the first.
func records(schema *arrow.Schema, lines int64, block func() (*textBatch, error)) func() (arrow.RecordBatch, error) {
	return func() (arrow.RecordBatch, error) {
		for {
			b, err := block()
			if err != nil {
				return nil, after(err, lines)
			}
			if lines += b.lines; b.rows > 0 {
				return array.NewRecordBatch(schema, b.columns, int64(b.rows)), nil
			}
		}
	}
}

// readTo reads until b is full, or gives io.EOF where the input ends before. io.ReadFull's error for that is also what
// a decompressor says of an input that was cut.
func readTo(in io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = in.Read(b[n:])
		n += m
	}
	if n == len(b) {
		err = nil
	}
	return n, err
}

// lastLine is the end of the last line in b that is known to be whole. Lines end in a line feed, a carriage return, or
// both.
func lastLine(b []byte) int {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	if len(b) == 0 {
		return 0
	}
	return bytes.LastIndexByte(b[:len(b)-1], '\r') + 1
}

// countLines tells how many lines end in b.
func countLines(b []byte) int64 {
	n := bytes.Count(b, []byte{'\n'})
	if cr := bytes.Count(b, []byte{'\r'}); cr > 0 {
		n += cr - bytes.Count(b, []byte("\r\n"))
	}
	return int64(n)
}

// lineError is an error at a place in a block, until it is known how many lines were before that.
type lineError struct {
	line   int64  // from 1, in the block
	column string // where it is of one
	err    error
	row    int // in the block, where it is of a field
}

func (e *lineError) Error() string {
	if e.column != "" {
		return fmt.Sprintf("line %d, column %q: %v", e.line, e.column, e.err)
	}
	return fmt.Sprintf("line %d: %v", e.line, e.err)
}
func (e *lineError) Unwrap() error { return e.err }

// at makes an error of one at a place in a block.
func at(b []byte, place int, err error) error {
	return &lineError{line: 1 + countLines(b[:place]), err: err}
}

// after moves an error down by the lines before its block.
func after(err error, lines int64) error {
	if e, ok := err.(*lineError); ok {
		return &lineError{line: e.line + lines, column: e.column, err: e.err}
	}
	return err
}
