package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Counter is a counter over several devices: see table.Counter, whose comments are the contract of the methods, and Map. In the independent mode
// counts of a key on several devices are added up, and one that would be too large is the largest there is.
type Counter[K any, C uint32 | uint64] struct {
	handle
	tables counterTables[K, C]
}

var _ table.Counter[uint32, uint32] = (*Counter[uint32, uint32])(nil)

// NewCounter makes an empty counter over the devices: see NewMap.
func NewCounter[K any, C uint32 | uint64](devices []*device.Device, o Options, newTable func(d *device.Device, o table.Options) (table.Counter[K, C], error)) (*Counter[K, C], error) {
	c := &Counter[K, C]{tables: make(counterTables[K, C], len(devices))}
	var err error
	c.cluster, err = newCluster(devices, table.WidthsOf[K, C](), o, func(i int, d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		c.tables[i] = t
		return t, err
	})
	return table.Made(c, err)
}

// counterTables are the tables of a counter, one a device, and the operations on them as jobs.
type counterTables[K any, C uint32 | uint64] []table.Counter[K, C]

// adds is how an Add of a counter goes.
type adds[K any, C uint32 | uint64] struct {
	tables counterTables[K, C]
	counts bool        // they come with the keys
	over   atomic.Bool // counts were too large
	rest   rest[K, C]
}

func (a *adds[K, C]) job(_ bool, why *error) job {
	j := job{full: a.rest.noting(why), run: func(j int, st *device.Stream, r received) error {
		keys := device.View[K](r.keys, 0, r.n)
		if a.counts {
			return a.within(a.tables[j].AddCountsOn(st, keys, valuesOf[C](r)))
		}
		return a.within(a.tables[j].AddOn(st, keys))
	}}
	if a.counts {
		j.values = sent
	}
	return j
}

// within notes that counts were too large, which ends nothing.
func (a *adds[K, C]) within(err error) error {
	if errors.Is(err, table.ErrOverflow) {
		a.over.Store(true)
		if !errors.As(err, new(*table.FullError)) {
			return nil
		}
	}
	return err
}

// again counts rows that were refused, of keys that are in after all.
func (a *adds[K, C]) again() (int, error) {
	return a.rest.again(func(owner int, keys []K, in []bool) error { return a.tables[owner].Find(keys, nil, in) }, func(owner int, keys []K, counts []C) error {
		if a.counts {
			return a.within(a.tables[owner].AddCounts(keys, counts))
		}
		return a.within(a.tables[owner].Add(keys))
	})
}

// finding gives counts; with sum those of all tables are added up.
func (t counterTables[K, C]) finding(counts, found, sum bool) job {
	j := job{asks: true, flags: found, sum: sum, run: func(j int, st *device.Stream, r received) error {
		return t[j].FindOn(st, device.View[K](r.keys, 0, r.n), outOf[C](r), flagsOf(r))
	}}
	if counts {
		j.values = back
	}
	return j
}

func (c *Counter[K, C]) finding(counts, found bool) job {
	return c.tables.finding(counts, found, c.cluster.opts.Mode == Independent)
}

// keyed is how a counter takes batches in.
func (c *Counter[K, C]) keyed(a *adds[K, C]) keyed[K] {
	return keyed[K]{insert: a.job, absence: func() job { return c.finding(false, true) }, contains: func(keys []K, in []bool) error { return c.Find(keys, nil, in) },
		again: a.again, undone: a.rest.rows, paired: a.counts}
}

// told adds to an error that counts were too large.
func (a *adds[K, C]) told(err error) error {
	switch {
	case !a.over.Load():
		return err
	case err == nil:
		return table.ErrOverflow
	}
	return table.OneLine(errors.Join(err, table.ErrOverflow))
}

// Add counts each key once more: see table.Counter.
func (c *Counter[K, C]) Add(keys []K) error {
	a := &adds[K, C]{tables: c.tables}
	return a.told(insertKeyed(c.cluster, hostBatch[K, C]{keys: keys}, c.keyed(a)))
}

// AddOn is Add on the device of the slices: see table.Counter.
func (c *Counter[K, C]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	return c.AddEach([]Part[K, C]{{Stream: st, Keys: keys}})
}

// AddEach is AddOn of a batch that is on several devices. FullError counts positions from the first part on.
func (c *Counter[K, C]) AddEach(parts []Part[K, C]) error {
	a := &adds[K, C]{tables: c.tables}
	return a.told(insertParts(c.cluster, parts, false, false, c.keyed(a)))
}

// AddCounts is Add of keys that came so many times: see table.Counter.
func (c *Counter[K, C]) AddCounts(keys []K, counts []C) error {
	if err := family.CheckLens(len(keys), len(counts)); err != nil {
		return err
	}
	a := &adds[K, C]{tables: c.tables, counts: true}
	return a.told(insertKeyed(c.cluster, hostBatch[K, C]{keys: keys, values: counts}, c.keyed(a)))
}

// AddCountsOn is AddCounts on the device of the slices: see table.Counter.
func (c *Counter[K, C]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error {
	a := &adds[K, C]{tables: c.tables, counts: true}
	return a.told(insertParts(c.cluster, []Part[K, C]{{Stream: st, Keys: keys, Values: counts}}, false, true, c.keyed(a)))
}

// Find writes how often each key came, and whether it is in: see table.Counter.
func (c *Counter[K, C]) Find(keys []K, counts []C, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(counts), table.OptionalLen(found)); err != nil {
		return err
	}
	return look(c.cluster, hostBatch[K, C]{keys: keys, out: counts, flags: found}, c.finding(counts != nil, found != nil))
}

// FindOn is Find on the device of the slices: see table.Counter.
func (c *Counter[K, C]) FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error {
	return c.FindEach([]Part[K, C]{{Stream: st, Keys: keys, Values: counts, Flags: found}})
}

// FindEach is FindOn of a batch that is on several devices.
func (c *Counter[K, C]) FindEach(parts []Part[K, C]) error {
	counts, found := wanted(parts)
	return lookParts(c.cluster, parts, false, c.finding(counts, found))
}

// Top gives the n keys that came most often: see table.Counter. Cost in the independent mode: every key is exported, for none alone need be frequent anywhere.
func (c *Counter[K, C]) Top(n int) (keys []K, counts []C, err error) {
	if n < 0 {
		return nil, nil, errTop(n)
	}
	export := func(i int) ([]K, []C, error) { return c.tables[i].Top(n) }
	if c.cluster.opts.Mode == Independent {
		export = func(i int) ([]K, []C, error) { return c.tables[i].All() }
	}
	err = c.cluster.locked(func() (err error) {
		keys, counts, err = allPairs(c.cluster, export)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if c.cluster.opts.Mode == Independent {
		keys, counts = addedUp(keys, counts)
	}
	keys, counts = mostOf(keys, counts, n)
	return keys, counts, nil
}

func errTop(n int) error {
	return fmt.Errorf("%s: the %d most frequent keys (want 0 or more)", family, n)
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

// All exports every key and its count, in no order. In the independent mode a key that is on several devices is there several times, with a count each.
func (c *Counter[K, C]) All() (keys []K, counts []C, err error) {
	err = c.cluster.locked(func() (err error) {
		keys, counts, err = allPairs(c.cluster, func(i int) ([]K, []C, error) { return c.tables[i].All() })
		return err
	})
	return keys, counts, err
}

// Chunks gives every key and its count to do, in chunks, one device's after the other's: see table.Map. In the independent mode a key may come once for each device.
func (c *Counter[K, C]) Chunks(ctx context.Context, do func(keys []K, counts []C) error) error {
	return c.cluster.chunks(func(i int, unchanged func() error) error {
		return c.tables[i].Chunks(ctx, func(keys []K, counts []C) error {
			if err := unchanged(); err != nil {
				return err
			}
			return do(keys, counts)
		})
	})
}

// Check walks the invariants of every device's counter, and in the distributed mode sees that each key is where it belongs. Slow.
func (c *Counter[K, C]) Check() error {
	return c.cluster.check(func(i int) ([]uint64, error) {
		keys, _, err := c.tables[i].All()
		return patterns(keys), err
	})
}
