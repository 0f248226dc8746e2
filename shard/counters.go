package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Counter is a counter over several devices. The comments of table.Counter are the contract of its methods; Map says
// what is different over members of a job. If a count is too large, all members are told. In the independent mode, the
// counts of a key that is on several devices are added up. If their sum would be too large, the result is the largest
// count that there is.
type Counter[K any, C uint32 | uint64] struct {
	handle
	tables counterTables[K, C]
}

var _ table.Counter[uint32, uint32] = (*Counter[uint32, uint32])(nil)

// NewCounter makes an empty counter over devices, or over the members of a job: see NewMap.
func NewCounter[K any, C uint32 | uint64, O Over](over O, o Options,
	newTable func(d *device.Device, o table.Options) (table.Counter[K, C], error)) (*Counter[K, C], error) {
	h, tables, err := spread(over, frame.WidthsOf[K, C](), o, newTable)
	return frame.Made(&Counter[K, C]{h, tables}, err)
}

// counterTables are the tables of a counter that are in this process, one a device, and the operations on them as jobs.
type counterTables[K any, C uint32 | uint64] []table.Counter[K, C]

// finding gives counts; with sum those of all tables are added up.
func (t counterTables[K, C]) finding(counts, sum bool) job {
	j := job{asks: true, flags: true, sum: sum, run: func(i int, st *device.Stream, r received) error {
		return t[i].FindOn(st, device.View[K](r.keys, 0, r.n), outOf[C](r), flagsOf(r))
	}}
	if counts {
		j.values = back
	}
	return j
}

// adding begins an Add. Each key comes with its count, or counts once. The putting reports in over whether counts were
// too large.
func (t counterTables[K, C]) adding(counts, sum bool, over *atomic.Bool) putting {
	refused := newRest[K, C](counts)
	noteOver := func(err error) error { // counts that are too large end nothing
		if !errors.Is(err, table.ErrOverflow) {
			return err
		}
		over.Store(true)
		if isFull(err) {
			return err
		}
		return nil
	}
	p := putting{absence: t.finding(false, sum), undone: refused, over: over}
	p.insert = func(why *error) job {
		j := job{full: refused.noting(why), run: func(i int, st *device.Stream, r received) error {
			keys := device.View[K](r.keys, 0, r.n)
			if counts {
				return noteOver(t[i].AddCountsOn(st, keys, valuesOf[C](r)))
			}
			return noteOver(t[i].AddOn(st, keys))
		}}
		if counts {
			j.values = sent
		}
		return j
	}
	p.sums = func(i int, s source) (frame.Sums, error) { return sumsOf(t[i], s, counts, table.Add) }
	p.ofSums = func() putting { return t.adding(true, sum, over) }
	p.again = func() (int, error) {
		return refused.again(
			func(i int, keys []byte, in []bool) error { return t[i].Find(fromBytes[K](keys), nil, in) },
			func(i int, keys, times []byte) error {
				if counts {
					return noteOver(t[i].AddCounts(fromBytes[K](keys), fromBytes[C](times)))
				}
				return noteOver(t[i].Add(fromBytes[K](keys)))
			})
	}
	return p
}

// add counts a batch. Its error includes counts that were too large.
func (c *Counter[K, C]) add(b batch, counts bool) error {
	p := c.tables.adding(counts, c.over().independent(), &atomic.Bool{})
	err := c.over().put(b, p)
	switch {
	case !p.over.Load():
		return err
	case err == nil:
		return table.ErrOverflow
	}
	return frame.OneLine(errors.Join(err, table.ErrOverflow))
}

// Add counts each key once more: see table.Counter.
func (c *Counter[K, C]) Add(keys []K) error {
	return c.add(hostRows[K, C]{keys: keys}.batch("Add"), false)
}

// AddOn does what Add does, on the device of the slices: see table.Counter.
func (c *Counter[K, C]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	return c.add(deviceRows[K, C]{st: st, keys: keys}.batch("Add"), false)
}

// AddEach does what AddOn does, with a batch that is on several devices. FullError counts positions from the first part
// on.
func (c *Counter[K, C]) AddEach(parts []Part[K, C]) error {
	return c.add(partsOf("Add", parts, false, false), false)
}

// AddCounts counts each key as often as counts says: see table.Counter.
func (c *Counter[K, C]) AddCounts(keys []K, counts []C) error {
	return c.add(hostRows[K, C]{keys: keys, values: counts}.batch("AddCounts", len(counts)), true)
}

// AddCountsOn does what AddCounts does, on the device of the slices: see table.Counter.
func (c *Counter[K, C]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error {
	return c.add(deviceRows[K, C]{st: st, keys: keys, values: counts}.batch("AddCounts", counts), true)
}

// Find writes how often each key came, and whether the counter has it. Either of counts and found may be nil: see
// table.Counter.
func (c *Counter[K, C]) Find(keys []K, counts []C, found []bool) error {
	b := hostRows[K, C]{keys: keys, out: counts, flags: found}.batch("Find", frame.OptionalLen(counts),
		frame.OptionalLen(found))
	return c.over().ask(b, c.tables.finding(true, c.over().independent()))
}

// FindOn does what Find does, on the device of the slices. Either of counts and found may be the zero Slice: see
// table.Counter.
func (c *Counter[K, C]) FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C],
	found device.Slice[bool]) error {
	b := deviceRows[K, C]{st: st, keys: keys, out: counts, flags: found}.batch("Find", frame.Optional(counts),
		frame.Optional(found))
	return c.over().ask(b, c.tables.finding(true, c.over().independent()))
}

// FindEach does what FindOn does, with a batch that is on several devices.
func (c *Counter[K, C]) FindEach(parts []Part[K, C]) error {
	return c.over().ask(partsOf("Find", parts, false, false), c.tables.finding(true, c.over().independent()))
}

// Top gives the n keys that came most often: see table.Counter. Over members it is collective, and each member gets the
// top keys of all. Cost in the independent mode: every key is exported, because a frequent key need not be frequent on
// any one device; over members, each one's keys are looked up with all.
func (c *Counter[K, C]) Top(n int) (keys []K, counts []C, err error) {
	independent := c.over().independent()
	own := func(i int) ([]byte, []byte, error) {
		top := func() ([]K, []C, error) { return c.tables[i].Top(n) }
		switch {
		case n < 0:
			return nil, nil, fmt.Errorf("%s: the %d most frequent keys (want 0 or more)", family, n)
		case independent:
			top = c.tables[i].All
		}
		k, v, err := top()
		return bytesOf(k), bytesOf(v), err
	}
	best := func(k, v []byte) ([]byte, []byte) {
		keys, counts := mostOf(fromBytes[K](k), fromBytes[C](v), n)
		return bytesOf(keys), bytesOf(counts)
	}
	sum := func(k, v []byte) ([]byte, []byte) {
		keys, counts := addedUp(fromBytes[K](k), fromBytes[C](v))
		return bytesOf(keys), bytesOf(counts)
	}
	k, v, err := c.over().top(topping{own: own, best: best, sum: sum, find: c.tables.finding(true, independent)})
	if err != nil {
		return nil, nil, err
	}
	keys, counts = fromBytes[K](k), fromBytes[C](v)
	if independent {
		keys, counts = once(keys, counts)
	}
	keys, counts = mostOf(keys, counts, n)
	return keys, counts, nil
}

// mostOf are the n keys with the largest counts, the largest first.
func mostOf[K any, C uint32 | uint64](keys []K, counts []C, n int) ([]K, []C) {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	order = order[:min(n, len(order))]
	top, often := make([]K, len(order)), make([]C, len(order))
	for i, at := range order {
		top[i], often[i] = keys[at], counts[at]
	}
	return top, often
}

// addedUp are the keys, each once, and the sums of their counts.
func addedUp[K any, C uint32 | uint64](keys []K, counts []C) (once []K, sums []C) {
	at := map[uint64]int{}
	for i, p := range patterns(keys) {
		k, there := at[p]
		if !there {
			k = len(once)
			at[p] = k
			once, sums = append(once, keys[i]), append(sums, 0)
		}
		if sums[k] += counts[i]; sums[k] < counts[i] {
			sums[k] = ^C(0)
		}
	}
	return once, sums
}

// once leaves of keys that are there several times, each with the same count, one.
func once[K any, C uint32 | uint64](keys []K, counts []C) (k []K, c []C) {
	seen := map[uint64]bool{}
	for i, p := range patterns(keys) {
		if !seen[p] {
			k, c = append(k, keys[i]), append(c, counts[i])
		}
		seen[p] = true
	}
	return k, c
}

// All exports every key and its count, in no order. A member gets the keys of its own part; the call is not collective.
// In the independent mode, a key that is on several devices comes several times, with one count each.
func (c *Counter[K, C]) All() (keys []K, counts []C, err error) {
	return exportPairs(c.handle, len(c.tables), func(i int) ([]K, []C, error) { return c.tables[i].All() })
}

// Chunks calls do with every key and its count, in chunks, one device after the other: see Map. A member gets the keys
// of its own part. In the independent mode, a key may come once for each device.
func (c *Counter[K, C]) Chunks(ctx context.Context, do func(keys []K, counts []C) error) error {
	return chunkPairs(c.handle, func(i int, do func([]K, []C) error) error { return c.tables[i].Chunks(ctx, do) }, do)
}

// Check walks the invariants of every device's counter. In the distributed mode it also checks that each key is where
// it belongs. Check is slow. Over members it is collective.
func (c *Counter[K, C]) Check() error {
	return checkKeys(c.handle, func(i int) ([]K, error) { keys, _, err := c.tables[i].All(); return keys, err })
}
