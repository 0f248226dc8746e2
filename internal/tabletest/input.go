package tabletest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

func (s *Suite) options(t testing.TB, d *device.Device) {
	for _, o := range []table.Options{
		{Capacity: -1},
		{Capacity: math.MaxInt},
		{Capacity: 1 << 46}, // more memory than there is
		{Capacity: 1, LoadFactor: 1e-300},
		{Capacity: 1 << 46, LoadFactor: 1e-5},
		{LoadFactor: -0.5},
		{LoadFactor: 1.01},
		{LoadFactor: math.NaN()},
		{LoadFactor: math.Inf(1)},
		{MaxBytes: -1},
		{MaxBytes: 1},
		{Hash: -1},
		{Hash: 1000},
	} {
		if s.try(d, o) == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if s.try(nil, table.Options{}) == nil {
		t.Error("a table on no device: no error")
	}
}

// column is one argument of a batch: a Go slice, and one on the device. Their elements are seen as bytes, so that most of the suite is
// compiled once for all types; hostOf and deviceOf give them back.
type column struct {
	size               int // bytes of an element
	host               []byte
	on, foreign, freed device.Slice[byte]
}

// newColumn makes a column. other may be nil.
func newColumn[T any](t testing.TB, d, other *device.Device, x []T) column {
	t.Helper()
	return columnOf(t, d, other, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T)))), int(unsafe.Sizeof(*new(T))))
}

func columnOf(t testing.TB, d, other *device.Device, x []byte, size int) (c column) {
	t.Helper()
	c.size, c.host, c.on = size, x, onDevice(t, d, x)
	if other != nil {
		c.foreign, c.freed = onDevice(t, other, x), onDevice(t, d, x)
		free(t, c.freed)
	}
	return c
}

// hostOf is the column's Go slice.
func hostOf[T any](c *column) []T {
	if c.host == nil {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(c.host))), len(c.host)/int(unsafe.Sizeof(*new(T))))
}

// deviceOf is the column's device slice.
func deviceOf[T any](c *column) device.Slice[T] {
	return device.View[T](c.on, 0, c.on.Len()/int(unsafe.Sizeof(*new(T))))
}

// wrong is what can be wrong with an argument.
type wrong int

const (
	tooShort wrong = iota
	empty
	missing
	foreign // from here on, only device slices can be
	freed
	wrongs
)

func (w wrong) String() string {
	return [...]string{"too short", "empty, not nil", "missing", "of another device", "freed"}[w]
}

func (c column) spoiled(w wrong) column {
	switch w {
	case tooShort:
		c.host, c.on = c.host[c.size:], c.on.Slice(c.size, c.on.Len())
	case empty:
		c.host, c.on = c.host[:0], c.on.Slice(0, 0)
	case missing:
		c.host, c.on = nil, device.Slice[byte]{}
	case foreign:
		c.on = c.foreign
	case freed:
		c.on = c.freed
	}
	return c
}

// columns are a set of a batch's arguments.
type columns uint

const (
	keysIn columns = 1 << iota
	valuesIn
	flagsOut
	countsOut
	allColumns
)

func (c columns) String() string {
	return map[columns]string{keysIn: "keys", valuesIn: "values", flagsOut: "flags", countsOut: "counts"}[c]
}

// batch are arguments for all operations of a kind; each takes what it has.
type batch struct {
	keys   column
	values column // of finds, the outputs
	flags  column
	counts column
	st     *device.Stream
}

// maker makes a batch of n keys. other may be nil.
type maker = func(t testing.TB, d, other *device.Device, n int) *batch

func newBatch[K, V any](t testing.TB, d, other *device.Device, n int) *batch {
	t.Helper()
	numbers := make([]uint32, n)
	return &batch{
		keys:   newColumn(t, d, other, KeysOf[K](fresh(new(uint64), n, keyMask[K]()))),
		values: newColumn(t, d, other, ValuesOf[V](numbers)),
		flags:  newColumn(t, d, other, make([]bool, n)),
		counts: newColumn(t, d, other, numbers),
	}
}

func (b batch) spoiled(c columns, w wrong) *batch {
	switch c {
	case keysIn:
		b.keys = b.keys.spoiled(w)
	case valuesIn:
		b.values = b.values.spoiled(w)
	case flagsOut:
		b.flags = b.flags.spoiled(w)
	case countsOut:
		b.counts = b.counts.spoiled(w)
	}
	return &b
}

// call is an operation of a table. needs are the columns that it must have, all of one length; those in may can be left out. on is
// the operation on the device; nil if there is none.
type call struct {
	name       string
	needs, may columns
	run, on    func(*batch) error
}

// fails tells whether the call must refuse a batch in which one column is wrong.
func (c *call) fails(col columns, w wrong) bool {
	all := c.needs | c.may
	alone := all == col // then any length is right, but on the device there must be a slice
	switch w {
	case tooShort, empty:
		return all&col != 0 && !alone
	case missing:
		return c.needs&col != 0 && !alone
	}
	return all&col != 0
}

// inputTest gives bad arguments: each is an error, and the table is as it was.
func inputTest(t testing.TB, d, other *device.Device, x subject, newBatch maker, calls []call) {
	r := x.base()
	apart := other.Info().Name != d.Info().Name // devices of one name are one
	good := newBatch(t, d, other, 40)
	must(t, x.put(r.fresh(new(uint64), 40)))
	gone, err := d.NewStream()
	must(t, err)
	must(t, gone.Close())
	refused := func(name, what string, err, is error) {
		if err == nil || is != nil && !errors.Is(err, is) {
			t.Errorf("%s with %s: %v", name, what, err)
		}
	}
	for _, c := range calls {
		if c.needs == 0 {
			continue
		}
		for w := range wrongs {
			for col := keysIn; col < allColumns; col *= 2 {
				if !c.fails(col, w) || w == foreign && !apart {
					continue
				}
				what := fmt.Sprintf("%v %v", col, w)
				if w < foreign {
					refused(c.name, what, c.run(good.spoiled(col, w)), nil)
				}
				if c.on != nil {
					refused(c.name+"On", what, c.on(good.spoiled(col, w)), map[wrong]error{freed: device.ErrFreed}[w])
				}
			}
		}
		if c.on != nil {
			b := *good
			if b.st = other.Stream(); apart {
				refused(c.name+"On", "a stream of another device", c.on(&b), nil)
			}
			b.st = gone
			refused(c.name+"On", "a closed stream", c.on(&b), device.ErrClosed)
		}
		x.verify()
	}
	for _, n := range []int{-1, math.MaxInt} {
		if err := r.t.Grow(n); err == nil {
			t.Errorf("Grow(%d): no error", n)
		}
	}
	x.verify()
}

// closedTest uses a table after Close.
func closedTest(t testing.TB, d *device.Device, it table.Table, newBatch maker, calls []call) {
	good := newBatch(t, d, nil, 2)
	must(t, calls[0].run(good))
	must(t, it.Close())
	must(t, it.Close())
	refused := func(name string, err error) {
		if !errors.Is(err, table.ErrClosed) {
			t.Errorf("%s of a closed table: %v", name, err)
		}
	}
	for _, b := range []*batch{good, {}} {
		for _, c := range calls {
			refused(c.name, c.run(b))
			if c.on != nil {
				refused(c.name+"On", c.on(b))
			}
		}
	}
	_, err := it.Len()
	refused("Len", err)
	_, err = it.Stats()
	refused("Stats", err)
	refused("Clear", it.Clear())
	refused("Check", it.Check())
	refused("Grow", it.Grow(10))
}
