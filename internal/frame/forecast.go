package frame

import (
	"bytes"

	"github.com/warpmap/warpmap/device"
)

// furthestForecast bounds how far a table grows for pairs that are only expected, in multiples of what it holds.
const furthestForecast = 4

// Forecast tells how many pairs a table will have after a batch, if as large a share of its rows is new as in the batch
// that was learned last. A table that grows before its batch comes takes it whole, and by stretches where it is large;
// otherwise it would be filled beyond what it should have first, row by row, and then grow in the middle of the batch.
type Forecast struct{ fresh float64 }

// asked is how many rows of a batch are looked up before a table grows for the others, and the least batch that is
// learned from.
const asked = 1 << 12

// Pairs is how many pairs a table with `live` will have after a batch; 0 if its limit is enough for that, or if they are
// too many to be believed. find, which may be nil, looks keys up: so a batch of keys that are in makes nothing grow,
// whatever came before. It waits for the stream then.
func (x *Forecast) Pairs(f *Frame, st *device.Stream, b Rows, live, limit int64, find func(st *device.Stream, b Rows) error) (int64, error) {
	pairs := func(fresh float64) int64 {
		n := live + int64(fresh*float64(b.N))
		if n <= limit || float64(n) >= furthestForecast*float64(live) {
			return 0
		}
		return n
	}
	if find == nil || pairs(x.fresh) == 0 {
		return pairs(x.fresh), nil
	}
	n := min(b.N, asked)
	lease, err := f.Scratch(n)
	defer lease.Done()
	if device.IsOutOfMemory(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	found := lease.Mem.Slice(0, int(n))
	if err := find(st, Rows{Keys: b.Keys, Flags: found.Addr(), N: n}); err != nil {
		return 0, err
	}
	in, err := found.Host(st)
	if err != nil {
		return 0, err
	}
	absent := float64(bytes.Count(in, []byte{0})) / float64(n)
	return pairs(min(x.fresh, absent)), nil
}

// First grows a table for a batch that will have more pairs than its limit, if it can, and gives what is to be called
// behind the batch.
func (x *Forecast) First(f *Frame, st *device.Stream, b Rows, live func() int64, limit int64,
	find func(st *device.Stream, b Rows) error, grow func(pairs int64) (why, err error)) (learn func(), err error) {
	pairs, err := x.Pairs(f, st, b, live(), limit, find)
	if err == nil && pairs > 0 {
		_, err = grow(pairs)
	}
	had := live()
	return func() { x.Learn(b.N, had, live()) }, err
}

// Learn takes it that n rows brought a table from `before` pairs to `after`. Of few rows it learns nothing.
func (x *Forecast) Learn(n, before, after int64) {
	if n >= asked {
		x.fresh = min(1, max(0, float64(after-before)/float64(n)))
	}
}
