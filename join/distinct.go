package join

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/unique"
	"github.com/warpmap/warpmap/sketch"
)

// DistinctSummary is what Distinct found.
type DistinctSummary struct {
	Rows     int64 `json:"rows"`
	Nulls    int64 `json:"nulls"`    // of the rows; they count as no value
	Distinct int64 `json:"distinct"` // values
	// StandardError is that of an estimate, as a share of Distinct; 0 where that is exact.
	StandardError float64 `json:"standard_error,omitempty"`
	Type          string  `json:"type"`             // of the column
	Device        string  `json:"device,omitempty"` // of an estimate
	Total         float64 `json:"total_seconds"`
}

// TooManyError says that the distinct values take more memory than they may.
type TooManyError struct {
	Values int64 // so many are there, at least
	Memory int64 // bytes

	instead string // of allowing more memory
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%d distinct values and more take over %d bytes: %s, or allow more memory (--memory)", e.Values,
		e.Memory, cmp.Or(e.instead, "estimate how many there are (--approx)"))
}

// Distinct counts the distinct values of a column, as SQL's count(distinct column) does: nulls are none, all NaNs are
// one, and so are 0.0 and -0.0. Texts are equal if their bytes are, and need not be UTF-8; nor need other columns.
//
// Without a device (nil) it is exact: cores do the work, and each distinct value takes some 13 to 26 bytes of memory, a
// text twice that and its length. With a device it is a HyperLogLog's estimate, which takes 16 KiB for any number of
// them (package sketch).
//
// Errors: an *OptionError of a column that is not there, or of options that fit no input; an *InputError of a file that
// cannot be read, or of a column of another type, such as a list; *TooManyError; the device's; the context's.
func Distinct(ctx context.Context, d *device.Device, o ColumnOptions) (s DistinctSummary, err error) {
	start := time.Now()
	count := counter(&exact{most: o.Memory})
	if d != nil {
		count = &estimated{d: d}
	}
	defer func() {
		if e := count.close(); err == nil {
			err = e
		}
	}()
	c, err := o.scan(ctx, count.begin, count.take)
	if err == nil {
		err = count.end(&s)
	}
	if err != nil {
		return DistinctSummary{}, err
	}
	s.Rows, s.Nulls, s.Type = c.rows.Load(), c.nulls.Load(), c.field.Type.String()
	s.Total = time.Since(start).Seconds()
	return s, nil
}

// counter counts distinct values. begin may come again: then all begins anew.
type counter interface {
	begin(c *columnScan) error
	take(x *values) error
	end(s *DistinctSummary) error
	close() error
}

// exact keeps the distinct values.
type exact struct {
	most int64
	keys *unique.Keys
}

func (e *exact) begin(c *columnScan) error {
	e.most = cmp.Or(e.most, int64(min(machine(), 1<<62))/2)
	e.keys = unique.New(c.texts, false)
	return nil
}

func (e *exact) take(x *values) error {
	e.keys.Add(x.words, x.at, x.times)
	if e.keys.Bytes() > e.most {
		return &TooManyError{Values: e.keys.Len(), Memory: e.most}
	}
	return nil
}

func (e *exact) end(s *DistinctSummary) error {
	s.Distinct = e.keys.Len()
	return nil
}

func (e *exact) close() error { return nil }

// estimated keeps a sketch, of the values or, where they are texts, of their hashes.
type estimated struct {
	d      *device.Device
	sketch *sketch.HyperLogLog[uint64]

	lock sync.Mutex
	next []uint64 // that wait until there are many
}

// manyWords is how many words go to the sketch at once, so that a device has all of its cores work on them.
const manyWords = 1 << 20

func (e *estimated) begin(*columnScan) (err error) {
	e.next = e.next[:0]
	if e.sketch != nil {
		return e.sketch.Clear()
	}
	e.sketch, err = sketch.NewHyperLogLog[uint64](e.d, sketch.HyperLogLogOptions{})
	return err
}

func (e *estimated) take(x *values) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.next = append(e.next, x.words...); len(e.next) < manyWords {
		return nil
	}
	return e.flush()
}

func (e *estimated) flush() error {
	err := e.sketch.Add(e.next)
	e.next = e.next[:0]
	return err
}

func (e *estimated) end(s *DistinctSummary) error {
	if err := e.flush(); err != nil {
		return err
	}
	about, err := e.sketch.Stats()
	s.Distinct, s.StandardError, s.Device = int64(math.Round(about.Estimate)), about.StandardError, e.d.Info().Name
	return err
}

func (e *estimated) close() error {
	if e.sketch == nil {
		return nil
	}
	return e.sketch.Close()
}
