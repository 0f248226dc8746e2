package stadium

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

const (
	sliceOps = 100_000 // inserts and look-ups, about (§IV-A)
	rowOps   = 32      // of one kind
	// fewSlices are made where there are few pairs.
	fewSlices = 8
)

// interleaved are inserts and look-ups, slice after slice. A slice looks up keys that were inserted in the slice before, the first none;
// and one more than there are to insert has look-ups alone.
type interleaved struct {
	d       *device.Device
	pairs   int
	slices  []slice
	ops     device.Slice[table.Op]
	keys    device.Slice[uint32]
	values  device.Slice[uint32]
	results device.Slice[uint32]
	status  device.Slice[table.Status]

	// The same by kinds.
	insertKeys, insertValues, findKeys device.Slice[uint32]
	found                              device.Slice[bool]

	finds  []int32 // where the look-ups are, in order
	expect []uint32
	hit    []bool
}

// slice is a stretch of the operations, and of the inserts, and of the look-ups.
type slice struct{ ops, inserts, finds [2]int }

func newInterleaved(d *device.Device, pairs int, hits float64) (x *interleaved, err error) {
	if pairs < rowOps || pairs > 1<<30 {
		return nil, fmt.Errorf("slices of %d pairs: want %d to 2³⁰", pairs, rowOps)
	}
	pairs -= pairs % rowOps
	half := min(sliceOps/2, max(rowOps, pairs/fewSlices)) / rowOps * rowOps
	kinds, err := workload.NewKeys("rand", 4, seed)
	if err != nil {
		return nil, err
	}
	x = &interleaved{d: d, pairs: pairs, finds: make([]int32, 0, pairs), expect: make([]uint32, pairs), hit: make([]bool, pairs)}
	insertKeys, insertValues, findKeys := make([]uint32, pairs), make([]uint32, pairs), make([]uint32, pairs)
	workload.Pairs(kinds, insertKeys, insertValues)
	limit := uint64(hits * (1 << 53))
	for i := range findKeys {
		first := i / half * half // of the slice before
		n := min(half, pairs-first)
		at := kinds.Span()/2 + uint64(i)
		if x.hit[i] = kernel.Seeded64(uint64(i), seed+2)>>11 < limit; x.hit[i] {
			at = uint64(first) + kernel.Reduce(kernel.Seeded64(uint64(i), seed+3), uint64(n))
			x.expect[i] = insertValues[at]
		}
		findKeys[i] = uint32(kinds.At(at))
	}
	ops, keys, values := make([]table.Op, 0, 2*pairs), make([]uint32, 0, 2*pairs), make([]uint32, 0, 2*pairs)
	for first := 0; first < pairs+half; first += half {
		s := slice{inserts: [2]int{min(first, pairs), min(first+half, pairs)}, finds: [2]int{max(0, first-half), min(first, pairs)}}
		s.ops[0] = len(ops)
		for in, look := s.inserts[0], s.finds[0]; in < s.inserts[1] || look < s.finds[1]; {
			for end := min(in+rowOps, s.inserts[1]); in < end; in++ {
				ops, keys, values = append(ops, table.OpInsert), append(keys, insertKeys[in]), append(values, insertValues[in])
			}
			for end := min(look+rowOps, s.finds[1]); look < end; look++ {
				x.finds = append(x.finds, int32(len(ops)))
				ops, keys, values = append(ops, table.OpFind), append(keys, findKeys[look]), append(values, 0)
			}
		}
		s.ops[1] = len(ops)
		x.slices = append(x.slices, s)
	}
	var errs [9]error
	x.ops, errs[0] = device.From(d, ops)
	x.keys, errs[1] = device.From(d, keys)
	x.values, errs[2] = device.From(d, values)
	x.results, errs[3] = device.Make[uint32](d, len(ops))
	x.status, errs[4] = device.Make[table.Status](d, len(ops))
	x.insertKeys, errs[5] = device.From(d, insertKeys)
	x.insertValues, errs[6] = device.From(d, insertValues)
	x.findKeys, errs[7] = device.From(d, findKeys)
	x.found, errs[8] = device.Make[bool](d, pairs)
	if err = errors.Join(errs[:]...); err != nil {
		x.free()
		return nil, err
	}
	return x, nil
}

func (x *interleaved) free() {
	bench.Free(x.ops, x.keys, x.values, x.results, x.status, x.insertKeys, x.insertValues, x.findKeys, x.found)
}

// soil writes over what an earlier run has answered.
func (x *interleaved) soil() error {
	st := x.d.Stream()
	return errors.Join(x.results.Fill(st, 0xee), x.status.Fill(st, 0xee), x.found.Fill(st, 0))
}

// run queues all slices.
func (x *interleaved) run(t store[uint32, uint32]) error {
	st := x.d.Stream()
	for _, s := range x.slices {
		from, to := s.ops[0], s.ops[1]
		ops, keys, values, results, status := x.ops.Slice(from, to), x.keys.Slice(from, to), x.values.Slice(from, to), x.results.Slice(from, to), x.status.Slice(from, to)
		var err error
		switch t := t.(type) {
		case *stash[uint32, uint32]:
			err = t.MixedOn(st, s.inserts[1]-s.inserts[0], ops, keys, values, results, status)
		case *stadium.Map[uint32, uint32]:
			err = t.MixedOn(st, ops, keys, values, results, status)
		case *cuckoo:
			err = t.MixedOn(st, ops, keys, values, results, status)
		default:
			err = errors.ErrUnsupported
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inserts queues those of all slices, without the look-ups, and finds the look-ups. At once, they are one batch.
func (x *interleaved) inserts(t store[uint32, uint32], atOnce bool) error {
	if atOnce {
		return t.InsertOn(x.d.Stream(), x.insertKeys, x.insertValues)
	}
	for _, s := range x.slices {
		if from, to := s.inserts[0], s.inserts[1]; from < to {
			if err := t.InsertOn(x.d.Stream(), x.insertKeys.Slice(from, to), x.insertValues.Slice(from, to)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *interleaved) lookUps(t store[uint32, uint32], atOnce bool) error {
	if atOnce {
		return t.FindOn(x.d.Stream(), x.findKeys, x.results.Slice(0, x.pairs), x.found)
	}
	for _, s := range x.slices {
		if from, to := s.finds[0], s.finds[1]; from < to {
			if err := t.FindOn(x.d.Stream(), x.findKeys.Slice(from, to), x.results.Slice(from, to), x.found.Slice(from, to)); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrong counts the wrong answers of run, and of pairs that are not there.
func (x *interleaved) wrong(t store[uint32, uint32]) (wrong int, err error) {
	status, err := x.status.Host(x.d.Stream())
	if err != nil {
		return 0, err
	}
	results, err := x.results.Host(x.d.Stream())
	if err != nil {
		return 0, err
	}
	for i, at := range x.finds {
		want := table.Absent
		if x.hit[i] {
			want = table.Present
		}
		if status[at] != want || results[at] != x.expect[i] {
			wrong++
		}
	}
	return wrong, nil
}

// wrongApart counts those of lookUps.
func (x *interleaved) wrongApart() (wrong int, err error) {
	found, err := x.found.Host(x.d.Stream())
	if err != nil {
		return 0, err
	}
	results, err := x.results.Slice(0, x.pairs).Host(x.d.Stream())
	for i := range found {
		if found[i] != x.hit[i] || results[i] != x.expect[i] {
			wrong++
		}
	}
	return wrong, err
}

// measure times all slices, one after the other, on a table that is empty at first.
func (x *interleaved) measure(t store[uint32, uint32], s setting) (ms float64, wrong int, err error) {
	took, err := bench.Timed(x.d, x.d.Stream(), s.runs(), func() error { return errors.Join(t.Clear(), x.soil()) }, func() error { return x.run(t) })
	if err != nil {
		return 0, 0, err
	}
	wrong, err = x.wrong(t)
	if err != nil {
		return 0, 0, err
	}
	stats, err := t.Stats()
	if _, counts := t.(*cuckoo); !counts {
		wrong += max(stats.Len-x.pairs, x.pairs-stats.Len)
	}
	return float64(took) / 1e6, wrong, err
}
