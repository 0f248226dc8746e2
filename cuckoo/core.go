package cuckoo

import (
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

const family table.Family = "cuckoo"

// errFull is why a filter refuses keys.
var errFull = errors.New("a filter does not grow: make one for more keys, or merge this one into one that Larger makes")

// filter is what works in addresses and tags under Filter.
type filter struct {
	frame    frame.Frame
	cfg      config
	geometry geometry
	opts     Options
	kernel   struct {
		insert, erase, contains device.Kernel[batchParams]
		stats                   device.Kernel[statsParams]
		merge                   device.Kernel[mergeParams]
		partition               frame.Partitioner
	}
	regions  frame.Regions
	stretch  stretches
	counters frame.Counters[counters]

	// Guarded by the frame's lock.
	mem device.Slice[byte]
	t   Table
}

// counters are what an insert or a merge counts.
type counters struct{ Failed uint64 }

// complete checks the options, and finds the width of tags where it is not given, and the geometry.
func (o *Options) complete(c *config) (geometry, error) {
	none := geometry{}
	if err := o.FilterOptions.Complete(); err != nil {
		return none, err
	}
	c.hash, c.tag = o.Hash, o.TagBits
	if c.tag != 0 && c.words() == 0 {
		return none, fmt.Errorf("cuckoo: tags of %d bits (want 8, 12 or 16; 0 for those that the other options ask "+
			"for)", c.tag)
	}
	if o.Bytes > 0 {
		return o.within(c)
	}
	wanted := o.FalsePositives
	if wanted == 0 && c.tag == 0 {
		wanted = defaultRate
	}
	for _, c.tag = range tagWidths {
		if (o.TagBits == 0 || c.tag == o.TagBits) && (wanted == 0 || c.worstRate(0) <= wanted) {
			return c.geometryOf(c.bucketsFor(o.Capacity), false), nil
		}
	}
	least := c.worstRate(0)
	if o.TagBits != 0 {
		c.tag = o.TagBits
		least = c.worstRate(0)
	}
	return none, fmt.Errorf("cuckoo: a filter with false positives at a rate of %v (want %.2g or more with tags of %d "+
		"bits; a filter of warpcore has fewer, but its keys cannot be taken out)", wanted, least, c.tag)
}

// defaultRate is FilterOptions.FalsePositives where neither it nor TagBits is set.
const defaultRate = 0.01

// bucketsFor is how many buckets so many keys need.
func (c config) bucketsFor(keys int) int64 {
	return int64(math.Ceil(float64(keys)/(load*float64(c.slots())))) + spare
}

// within is complete for a filter of so many bytes: with the widest tags with which it has room for Capacity keys.
func (o *Options) within(c *config) (geometry, error) {
	for i := len(tagWidths) - 1; i >= 0; i-- {
		c.tag = tagWidths[i]
		if o.TagBits != 0 && c.tag != o.TagBits {
			continue
		}
		g := c.geometryOf((o.Bytes-versionBytes*(1+o.Bytes/windowBytes))/int64(wordBytes*c.words()), true)
		if c.bytesOf(g) <= o.Bytes && g.all()*g.buckets >= c.bucketsFor(o.Capacity) {
			return g, nil
		}
	}
	return geometry{}, fmt.Errorf("cuckoo: a filter of %d bytes has no room for %d keys with tags of %d bits", o.Bytes,
		o.Capacity, c.tag)
}

// open makes a filter of that geometry; options and config are complete.
func open[K any](d *device.Device, o Options, c config, g geometry) (*Filter[K], error) {
	f := &filter{cfg: c, geometry: g, opts: o}
	return frame.Made(&Filter[K]{handle{f}}, f.frame.Open(family, d, f.begin, f.free))
}

func (f *filter) begin() error {
	d := f.frame.Device
	f.regions = frame.RegionsFor(d.Info(), regionsFrom, regionRows)
	f.stretch = stretchesFor(d.Info())
	m, err := d.CompileApart(f.cfg.program("cuckoo", kernelsCU))
	if err != nil {
		return err
	}
	k := &f.kernel
	k.partition, err = frame.NewPartitioner[partitionParams](d, m)
	var wrong error
	f.stretch.within, wrong = frame.NewWithin[partitionParams](m)
	if err = errors.Join(err, wrong, device.Bind(m, "insert", &k.insert), device.Bind(m, "erase", &k.erase),
		device.Bind(m, "contains", &k.contains), device.Bind(m, "stats", &k.stats),
		device.Bind(m, "merge", &k.merge)); err != nil {
		return err
	}
	if err := device.Ahead(k.insert, k.contains); err != nil {
		return err
	}
	if f.mem, err = frame.Make[byte](&f.frame, f.cfg.bytesOf(f.geometry)); err != nil {
		return err
	}
	frame.AheadOfLate(d, f.loadStretches)
	g := f.geometry
	f.t = Table{Words: f.mem.Addr(), Versions: f.mem.Addr() + uint64(wordBytes*f.cfg.wordsOf(g)), Seed: f.opts.Seed,
		Windows: uint64(g.windows), Buckets: uint32(g.buckets), Spent: uint32(g.spent)}
	return errors.Join(f.mem.Fill(nil, 0), f.counters.Make(&f.frame, d.Stream()), d.Stream().Sync())
}

func (f *filter) free() error { return f.frame.Free(f.mem, &f.counters) }

// grid covers n items, by lanes that go on in strides, and tiles n keys by lanes that have several under way.
func (f *filter) grid(n int64) device.Grid  { return f.frame.Grid(n, 8*waves) }
func (f *filter) tiles(n int64) device.Grid { return f.grid((n + each - 1) / each) }

// launch queues a kernel that takes keys, window by window or in the order of regions where that pays.
func (f *filter) launch(st *device.Stream, k device.Kernel[batchParams], positions bool, p frame.Placing,
	b frame.Rows) error {
	if p.Attempt == 0 {
		if done, err := f.byStretches(st, b, p.Refused); done || err != nil {
			return err
		}
	}
	return f.kernel.partition.Place(&f.frame, st, frame.Placement{
		Regions: &f.regions, Bytes: int64(f.mem.Len()), KeyBytes: f.cfg.keyBytes, Positions: positions, Grid: f.grid,
		Params: func(rows frame.Partition) any { return &partitionParams{Table: f.t, Rows: rows} },
		Launch: func(g device.Grid, rows frame.Placing) error {
			return k.Launch(st, g, &batchParams{Table: f.t, Rows: rows, Failed: f.counters.Addr()})
		},
	}, p, b)
}

// insertion is how a batch goes in. Each row stands for itself, so no key is looked up that found no room.
func (f *filter) insertion() frame.Insertion {
	live := int64(-1)
	count := func(st *device.Stream) error {
		sums, err := f.sum(st)
		if live = int64(sums.Tags); device.IsOutOfMemory(err) {
			live, err = f.slots(), nil // nearly
		}
		return err
	}
	return frame.Insertion{
		Put: func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
			if refused, why, err = f.insert(st, b); len(refused) > 0 && err == nil {
				err = count(st)
			}
			return refused, why, err
		},
		Size: func() (int64, int64) {
			if live < 0 { // no row came so far as to be refused, for want of memory
				if st := f.frame.Device.Stream(); count(st) != nil {
					live = 0
				}
			}
			return f.slots(), live
		},
	}
}

func (f *filter) insert(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
	again := true
	return frame.Inserter{
		Try: 1,
		Launch: func(p frame.Part) error {
			return frame.InTurn(
				func() error { return f.counters.Clear(st) },
				func() error {
					return f.launch(st, f.kernel.insert, true, frame.Placing{Refused: p.Refused, Attempt: p.Attempt},
						b.Part(p, f.cfg.keyBytes, 0))
				},
			)
		},
		Look: func() (refused, live int64, err error) {
			err = f.counters.Look(st)
			return int64(f.counters.Seen.Failed), 0, err
		},
		Room: func(want int64, _ bool) (int64, error) { return want, nil },
		Grow: func(int64, int64, int64) (why, err error) { return errFull, nil },
		// Rows that were in one another's way are tried once more.
		Settle: func(int64) (attempt uint64, err error) {
			if again {
				attempt, again = 1, false
			}
			return attempt, nil
		},
	}.Run(&f.frame, st, b.N, 0)
}

func (f *filter) erase(st *device.Stream, b frame.Rows) error {
	return f.launch(st, f.kernel.erase, false, frame.Placing{}, b)
}

func (f *filter) contains(st *device.Stream, b frame.Rows) error {
	if b.Flags == 0 {
		return nil
	}
	return f.kernel.contains.Launch(st, f.tiles(b.N),
		&batchParams{Table: f.t, Rows: frame.Placing{Keys: b.Keys, Added: b.Flags, N: uint64(b.N)}})
}

// slots is how many tags the filter has room for.
func (f *filter) slots() int64 { return f.geometry.all() * f.geometry.buckets * int64(f.cfg.slots()) }

// sum reads all buckets. It waits for the stream; the caller is in Writing, or holds the lock.
func (f *filter) sum(st *device.Stream) (s Sums, err error) {
	sums, err := f.frame.Histogram(st, 3, func(addr uint64) error {
		return f.kernel.stats.Launch(st, f.grid(f.geometry.all()*f.geometry.buckets),
			&statsParams{Table: f.t, Sums: addr})
	})
	if err != nil {
		return s, err
	}
	return Sums{sums[0], sums[1], sums[2]}, nil
}

// words is the memory of the buckets.
func (f *filter) words() device.Slice[uint64] {
	return device.View[uint64](f.mem, 0, int(f.cfg.wordsOf(f.geometry)))
}
