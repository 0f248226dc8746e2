package join

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/crash"
)

// rowWriter writes rows as text.
type rowWriter interface {
	head(b []byte, schema *arrow.Schema) ([]byte, error)  // what stands before the first row
	rows(b []byte, rec arrow.RecordBatch) ([]byte, error) // all of a batch
}

// textEncoder writes rows as text, on all cores: pieces of batches are encoded, and compressed, beside one another, and
// go to the file in their order.
type textEncoder struct {
	pieces chan arrow.RecordBatch
	ended  chan struct{} // when all is in the file, or nothing will be
	err    error         // after that
	given  sync.Once
	rows   int64 // in the file, after ended

	stopped atomic.Bool
}

// What a piece of a batch has at most, so that a few on each core take little memory.
const (
	textRows  = 1 << 14
	textBytes = 4 << 20
)

func newTextEncoder(w io.Writer, schema *arrow.Schema, by rowWriter, packing string) (*textEncoder, error) {
	pack, err := packer(packing)
	if err != nil {
		return nil, err
	}
	e := &textEncoder{pieces: make(chan arrow.RecordBatch), ended: make(chan struct{})}
	type piece struct {
		text []byte
		rows int64
	}
	next, stop := inOrder("cannot be written", func(send func(arrow.RecordBatch) bool) error {
		p, more := <-e.pieces
		if !more && e.stopped.Load() {
			return nil
		}
		send(nil) // the head, which is not there where a device that cannot be opened ends all
		for ; more; p, more = <-e.pieces {
			if !send(p) {
				p.Release()
				return nil
			}
		}
		return nil
	}, func(p arrow.RecordBatch) (out piece, err error) {
		if p == nil {
			out.text, err = by.head(nil, schema)
		} else {
			out.text, err = by.rows(grab[byte](textBytes / 2)[:0], p)
			out.rows = p.NumRows()
			p.Release()
		}
		if err == nil {
			out.text, err = pack(out.text)
		}
		return out, err
	})
	go func() {
		defer close(e.ended)
		e.err = catch("cannot be written", func() error {
			for {
				p, err := next()
				if err == nil {
					_, err = w.Write(p.text)
					spare(p.text)
					e.rows += p.rows
				}
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
		crash.Go(func() { // lets the producer end
			for p := range e.pieces {
				p.Release()
			}
		})
		if err := crash.Catch(func() error { stop(); return nil }); e.err == nil {
			e.err = err
		}
	}()
	return e, nil
}

func (e *textEncoder) write(rec arrow.RecordBatch) error {
	size := uint64(1)
	for _, c := range rec.Columns() {
		size += c.Data().SizeInBytes()
	}
	rows := rec.NumRows()
	step := max(1, min(textRows, int64(float64(textBytes)/float64(size)*float64(rows))))
	for from := int64(0); from < rows; from += step {
		p := rec.NewSlice(from, min(rows, from+step))
		select {
		case e.pieces <- p:
		case <-e.ended:
			p.Release()
			return e.err
		}
	}
	return nil
}

func (e *textEncoder) finish() error {
	e.given.Do(func() { close(e.pieces) })
	<-e.ended
	return e.err
}

func (e *textEncoder) written() int64 { return e.rows }

// stop ends what is under way.
func (e *textEncoder) stop() {
	e.stopped.Store(true)
	e.finish()
}

// packer compresses pieces of a file, each as a part that stands alone: their sequence is a whole file in both formats.
func packer(packing string) (func(b []byte) ([]byte, error), error) {
	switch packing {
	case "", "none":
		return func(b []byte) ([]byte, error) { return b, nil }, nil
	case "gzip":
		return func(b []byte) ([]byte, error) {
			var out bytes.Buffer
			z := gzip.NewWriter(&out)
			if _, err := z.Write(b); err != nil {
				return nil, err
			}
			err := z.Close()
			return out.Bytes(), err
		}, nil
	case "zstd":
		z, err := zstd.NewWriter(nil)
		if err != nil {
			return nil, err
		}
		return func(b []byte) ([]byte, error) { return z.EncodeAll(b, nil), nil }, nil
	}
	return nil, fmt.Errorf("text compressed with %s: want gzip, zstd or none", packing)
}
