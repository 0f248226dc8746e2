package join

import (
	"bytes"
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
	type result struct {
		r   R
		err error
	}
	type task struct {
		t  T
		to chan result
	}
	cores := runtime.GOMAXPROCS(0)
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

// blocks cuts what it reads into stretches of whole records, and sends them. end gives the end of the last record in b
// that is known to be whole, 0 for none.
func blocks(in io.Reader, end func(b []byte) int, send func(b []byte) bool) error {
	var rest []byte
	for size := textBlock; ; {
		b := append(make([]byte, 0, max(size, len(rest)+size/2)), rest...)
		n, err := readTo(in, b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			if len(b) > 0 {
				send(b)
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
		if !send(b[:at:at]) {
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
