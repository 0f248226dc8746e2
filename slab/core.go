package slab

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New, NewSet and NewMultiMap: those of table.Options, and some of their own. The zero value
// is good.
//
// LoadFactor is the paper's β, the average slab count: the number of pairs divided by the number of slots of the base
// slabs. Zero means 0.7. At this load factor, one bucket in fourteen has a second slab. A table with MaxBytes that can
// no longer grow lets its chains get longer, up to a dozen slabs, until all its memory is in use.
type Options struct {
	table.Options
	// Group is the number of lanes that read a slab together, 1 to 32. Zero means what is fastest on the device. On a
	// GPU that is 8 lanes, each with a 16-byte load; on the CPU it is one. 32 lanes are the paper's warp-cooperative
	// work sharing (§IV-A). Any group can use any table.
	Group int
	// Light takes all slabs from one array (SlabAlloc-light, §V). One addition then finds a slab, but the table can
	// only grow by being copied.
	Light bool
	// NoPolicy leaves it to the caller to flush, by Flush and Grow. Without it, a table whose chains hold many deleted
	// pairs is flushed at the end of an insert or a mixed batch.
	NoPolicy bool

	unpacked bool // for tests: keys and values apart, as on a device that cannot swap the pair whole
}

const (
	defaultLoadFactor = 0.7
	// largestBatch is as many keys as one launch numbers with 32 bits, and some to spare.
	largestBatch = 1 << 30
	// firstBatch is the least number of pairs that are tried before a small table decides how far to grow.
	firstBatch = 1 << 8
	// furthestGuess bounds, in multiples of the table's limit, how far it grows for pairs that are only expected.
	furthestGuess = 16
	// longChains: a table that may take no more memory halves its buckets, so that more slabs are for those that need
	// them, until one slab in so many is a base slab.
	longChains = 16
	// crowdedChanges is how many changes of resident blocks one part of a batch may make, beyond one for each slab, before
	// the table gets a new super block.
	crowdedChanges = 1 << 12
	// flushShare: the policy flushes when one slot in so many of the slabs in use holds a deleted pair.
	flushShare = 8
	// fewTombstones are not worth a flush, nor that inserts look for them.
	fewTombstones = 32
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed slab.cuh
	slabCUH string
	//go:embed alloc.cuh
	allocCUH string
	//go:embed jobs.cuh
	jobsCUH string
)

// core is the table under Map, Set and MultiMap: it owns the memory, and works in addresses and bits.
type core struct {
	frame  frame.Frame
	cfg    config
	opts   Options
	kernel struct {
		insert, insertNew              device.Kernel[insertParams]
		left, leftNew                  device.Kernel[insertParams]
		mixed                          device.Kernel[mixedParams]
		find, erase, eraseAll          device.Kernel[findParams]
		flush, rehash, export, lengths device.Kernel[slabsParams]
		all                            frame.Finder
		partition                      frame.Partitioner
		within                         frame.Within
	}
	stretch stretches
	regions frame.Regions
	updates frame.Operations[device.Kernel[insertParams]]
	choosing

	forecast frame.Forecast
	memory   // guarded by the frame's lock
}

// handle is what users hold of a table. It names core instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type handle struct{ core *core }

// made is the table, or one whose operations are errors, if no constructor has made it.
func (h *handle) made() *core { return frame.Or(h.core, unmade) }

var unmade = frame.Unmade(func(c *core) *frame.Frame { return &c.frame }, family,
	"a table that New, NewSet or NewMultiMap has not made")

// memory is what a rebuild replaces.
type memory struct {
	t        Table // but for Alloc, which is pool.Memory()
	base     device.Slice[byte]
	counters frame.Counters[Counters] // as last seen; since then pairs may have been deleted
	pool     *frame.Slabs
	// bound: the table has come to MaxBytes, and no longer grows by its number of pairs, but only for lack of slabs.
	bound bool
	// foreign: a kernel of the user's may have inserted since the last look.
	foreign bool
}

func (m *memory) live() int64       { return m.counters.Seen.live() }
func (m *memory) tombstones() int64 { return m.counters.Seen.tombstones() }
func (m *memory) slabs() int64      { return m.counters.Seen.slabs() }
func (m *memory) flushed() uint64   { return m.counters.Seen.Flushed }

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	multi := 0
	if c.cfg.multi {
		multi = 1
	}
	return &device.Program{
		Name: name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "slab.cuh", Text: slabCUH}, {Name: "alloc.cuh", Text: allocCUH},
			{Name: "jobs.cuh", Text: jobsCUH}, {Name: "config.h", Text: c.cfg.header("config")}}, more...),
		Defines: append(defines(), device.Define{Name: "SLAB_GROUP", Value: c.opts.Group}, device.Define{Name: "SLAB_MULTI", Value: multi}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := o.Options.Complete(defaultLoadFactor); err != nil {
		return err
	}
	cfg.hash, cfg.light = o.Hash, o.Light
	cfg.packed = cfg.canPack(info.CAS128) && !o.unpacked
	if o.Group == 0 {
		o.Group = 1
		if info.CUDA() {
			o.Group = 8
		}
	}
	if g := o.Group; g < 1 || g > 32 || g&(g-1) != 0 {
		return fmt.Errorf("slab: a group of %d lanes (want 1, 2, 4, 8, 16 or 32)", g)
	}
	return nil
}

func newCore(d *device.Device, w frame.Width, o Options, multi bool) (*core, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	c := &core{cfg: config{keyBytes: w.Key, valueBytes: w.Value, multi: multi}, opts: o}
	c.frame.Why = o.Why
	return frame.Made(c, c.frame.Open(family, d, c.begin, c.free))
}

// begin makes an empty table as the options say.
func (c *core) begin() (err error) {
	if err := c.opts.complete(c.frame.Device.Info(), &c.cfg); err != nil {
		return err
	}
	if err := c.compile(); err != nil {
		return err
	}
	c.frame.MaxBytes = c.opts.MaxBytes
	c.regions = frame.RegionsFor(c.frame.Device.Info(), regionsFrom, regionRows)
	c.stretch = stretchesFor(c.frame.Device.Info())
	if c.cfg.stretches() {
		frame.AheadOfLate(c.frame.Device, c.loadStretches)
	}
	buckets, units := c.sizes(int64(c.opts.Capacity))
	if c.tooLarge(buckets, units) {
		if buckets, units = c.largest(); buckets == 0 {
			return fmt.Errorf("slab: MaxBytes of %s leaves no room for a slab", device.Bytes(c.opts.MaxBytes))
		}
		c.bound = true
	}
	if err := c.allocate(c.frame.Device.Stream(), buckets, units); err != nil {
		return err
	}
	return nil
}

func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.program("slab", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	err = errors.Join(device.Bind(m, "insert", &k.insert), device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase), device.Bind(m, "flush_buckets", &k.flush),
		device.Bind(m, "rehash", &k.rehash), device.Bind(m, "export_pairs", &k.export), device.Bind(m, "chain_lengths", &k.lengths))
	var wrong error
	k.partition, wrong = frame.NewPartitioner[partitionParams](c.frame.Device, m)
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	if err = frame.AheadOfFinds(c.opts.Work, k.find); err != nil {
		return err
	}
	if c.cfg.multi {
		k.all, wrong = frame.NewFinder[findAllParams](m, false)
		return errors.Join(err, wrong, device.Bind(m, "erase_all", &k.eraseAll))
	}
	k.within, wrong = frame.NewWithin[partitionParams](m)
	return errors.Join(err, wrong, device.Bind(m, "insert_new", &k.insertNew), device.Bind(m, "mixed", &k.mixed),
		device.Bind(m, "insert_left", &k.left), device.Bind(m, "insert_left_new", &k.leftNew))
}

// Sizes. A table has buckets, each with a base slab; one base slab for reserved keys; and the units of its pool.

func baseBytes(buckets int64) int64 { return frame.Align((buckets + 1) * slabBytes) }

func tableBytes(buckets, units int64) int64 { return baseBytes(buckets) + frame.SlabsMemory(units) }

// bucketsFor is how many buckets so many pairs want.
func (c *core) bucketsFor(pairs int64) int64 {
	return max(1, int64(min(math.Ceil(float64(pairs)/(c.opts.LoadFactor*float64(c.cfg.slots()))), 1<<50)))
}

// unitsFor is how many slabs beyond the base slabs so many pairs take, for all but the unluckiest hashes.
func (c *core) unitsFor(pairs, buckets int64) int64 {
	n := c.cfg.overflow(pairs, buckets)
	return (n + n/4 + 16 + frame.SlabStep - 1) / frame.SlabStep * frame.SlabStep
}

// sizes are those of a table for so many pairs.
func (c *core) sizes(pairs int64) (buckets, units int64) {
	buckets = c.bucketsFor(pairs)
	return buckets, c.unitsFor(max(pairs, c.limitOf(buckets)), buckets)
}

func (c *core) tooLarge(buckets, units int64) bool {
	return c.opts.MaxBytes > 0 && tableBytes(buckets, units) > c.opts.MaxBytes
}

// largest are the sizes of a table that takes all of MaxBytes: two slabs in three are base slabs. No buckets: too little.
func (c *core) largest() (buckets, units int64) {
	n := c.opts.MaxBytes/slabBytes - 1
	if baseBytes(1) > c.opts.MaxBytes {
		return 0, 0
	}
	buckets = max(1, n*2/3)
	return buckets, c.rest(buckets)
}

// rest is how many units fit beside so many buckets.
func (c *core) rest(buckets int64) int64 { return frame.SlabsIn(c.opts.MaxBytes - baseBytes(buckets)) }

func (c *core) buckets() int64 { return int64(c.t.Buckets) }

// capacity counts the slots of base slabs and units; those of the reserved keys' slab do not count.
func (c *core) capacity() int64 { return (c.buckets() + c.pool.Units()) * int64(c.cfg.slots()) }

// limit is how many pairs may be in before the table grows.
func (c *core) limit() int64 { return c.limitOf(c.buckets()) }

func (c *core) limitOf(buckets int64) int64 {
	return int64(math.Ceil(float64(buckets) * float64(c.cfg.slots()) * c.opts.LoadFactor))
}

func (c *core) bytes() int64 { return int64(c.base.Len()) + c.pool.Bytes() }

// allocate makes an empty table: all bytes of slabs 0xff, the counters and bitmaps 0.
func (c *core) allocate(st *device.Stream, buckets, units int64) (err error) {
	if baseBytes(buckets) < 0 || baseBytes(buckets) > 1<<56 {
		return fmt.Errorf("slab: %d buckets: too many for any memory", buckets)
	}
	m := memory{bound: c.bound}
	defer func() {
		if err != nil {
			m.free(&c.frame)
		}
	}()
	if err = c.frame.Budget(tableBytes(buckets, units)); err != nil {
		return err
	}
	if m.base, err = frame.Make[byte](&c.frame, baseBytes(buckets)); err != nil {
		return err
	}
	if err = m.counters.Make(&c.frame, st); err != nil {
		return err
	}
	if m.pool, err = frame.NewSlabs(c.frame.Device, c.opts.Light); err != nil {
		return err
	}
	if err = m.pool.Add(st, units); err != nil {
		return err
	}
	if err = errors.Join(m.base.Fill(st, 0xff), st.SyncOf(c.frame.Device)); err != nil {
		return err
	}
	m.t = Table{Base: m.base.Addr(), Buckets: uint64(buckets), Seed: c.opts.Seed, Counters: m.counters.Addr()}
	c.memory = m
	return nil
}

func (m *memory) free(f *frame.Frame) error {
	err := f.Free(m.base, &m.counters)
	if m.pool != nil {
		err = errors.Join(err, f.Free(m.pool))
	}
	return err
}

// table is what kernels take.
func (m *memory) table() Table {
	t := m.t
	t.Alloc = m.pool.Memory()
	if m.tombstones() > fewTombstones {
		t.Tombstones = 1
	}
	return t
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	if err := c.counters.Look(st); err != nil {
		return 0, err
	}
	c.foreign = false
	return c.live(), nil
}

// reset sets the counters that are not sums.
func (c *core) reset(st *device.Stream) error {
	c.counters.Seen.Failed, c.counters.Seen.Exported = 0, 0
	return errors.Join(c.counters.Set(st), c.pool.NoLongerDry(st))
}

// Blocks for each multiprocessor, by trial on an H200: a few times what is resident at once.
const (
	findBlocks   = 12
	insertBlocks = 12
	mixedBlocks  = 8
	walkBlocks   = 5 // of the kernels that go over all slabs
)

// insertion takes batches in with the kernel.
func (c *core) insertion(k device.Kernel[insertParams]) frame.Insertion {
	x := frame.Insertion{Size: c.size, Find: c.find, Put: func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		return c.insertAs(st, k, b, nil)
	}}
	if c.cfg.multi {
		x.Find = nil
	}
	return x
}

// insertAs inserts rows with a kernel.
func (c *core) insertAs(st *device.Stream, k device.Kernel[insertParams], b frame.Rows, exact *frame.Exactly) (refused []int, why, err error) {
	keys := b.Keys
	if b.When != 0 {
		keys = 0 // some rows are not chosen
	}
	return c.take(st, b.N, 1, keys, exact, func(part frame.Part) error {
		p := insertParams{Table: c.table(), Rows: frame.Placing{Refused: part.Refused, Attempt: part.Attempt}}
		if part.Attempt >= lastAttempt || exact.Over() {
			p.NoSlabs = 1
		}
		return c.launchInsert(st, k, p, b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes))
	})
}

func (c *core) size() (capacity, live int64) { return c.capacity(), c.live() }

// take runs a batch of n operations that may want room. One in `share` is expected to add a pair; keys are those of a
// batch of inserts, else 0. Those that find no room come back with the reason. Where exact is over, no chain gets longer, and nothing in it is freed: so a key that was refused finds no room. It waits for the stream.
func (c *core) take(st *device.Stream, n, share int64, keys uint64, exact *frame.Exactly, launch func(frame.Part) error) (refused []int, why, err error) {
	if c.foreign {
		if _, err := c.look(st); err != nil {
			return nil, nil, err
		}
	}
	if keys != 0 && !c.bound && !exact.Over() {
		find := c.find
		if c.cfg.multi {
			find = nil // all rows are new
		}
		rows := frame.Rows{Keys: keys, N: n}
		grow := func(pairs int64) (why, err error) {
			if c.tooLarge(c.sizes(max(pairs, 2*c.limit()))) {
				return nil, nil
			}
			return c.grow(st, pairs)
		}
		learn, err := c.forecast.First(&c.frame, st, rows, c.live, c.limit(), find, grow)
		if err != nil {
			return nil, nil, err
		}
		defer learn()
	}
	var before Counters // the part
	settled, left := uint64(0), int64(-1)
	if !c.frame.Device.Info().CUDA() || !frame.CanCount(c.cfg.keyBytes) {
		keys = 0 // cores gain nothing by a count of them
	}
	return frame.Inserter{
		Try: max(share, 1) * max(c.limit()/4, firstBatch), Share: share, Furthest: furthestGuess, Keys: keys, KeyBytes: c.cfg.keyBytes,
		Room: func(want int64, _ bool) (int64, error) {
			if c.bound || exact.Over() {
				return math.MaxInt64, nil
			}
			if want > c.limit()-c.live() { // pairs may have been deleted since
				if _, err := c.look(st); err != nil {
					return 0, err
				}
			}
			return c.limit() - c.live(), nil
		},
		Launch: func(p frame.Part) error {
			if p.Attempt > 0 {
				return frame.InTurn(
					func() error { return c.reset(st) },
					func() error { return launch(p) },
				)
			}
			if !exact.Over() {
				if err := c.prepare(st, int64(p.N)/max(share, 1)); err != nil {
					return err
				}
			}
			before = c.counters.Seen
			settled, left = 0, -1
			return launch(p)
		},
		Look: func() (refused, live int64, err error) {
			live, err = c.look(st)
			return int64(c.counters.Seen.Failed), live, err
		},
		Grow: func(refused, need, pairs int64) (why, err error) {
			if refused > 0 {
				return exact.Grow(func() (why, err error) { return c.makeRoom(st, refused) })
			}
			if why, err = c.grow(st, pairs); device.IsOutOfMemory(why) && pairs > need {
				return why, err
			}
			return nil, err // what is in is in: without room to grow, chains are longer
		},
		// Without more room, only slabs that others gave back are left; and at last none are taken, so that of equal keys all
		// are refused or none.
		Settle: func(refused int64) (attempt uint64, err error) {
			if settled == lastAttempt || exact.Over() {
				return 0, nil
			}
			freed := false
			if settled > 0 && c.tombstones() > 0 { // of this part, or of others that were queued before
				flushed := c.flushed()
				if err := c.flush(st); err != nil {
					return 0, err
				}
				freed = c.flushed() > flushed
			}
			if !freed {
				if settled++; refused == left {
					settled = lastAttempt
				}
			}
			left = refused
			return settled, nil
		},
		After: func() error {
			if c.counters.Seen.Failed > 0 {
				exact.Refused(true)
				if err := c.reset(st); err != nil {
					return err
				}
			}
			if exact.Over() {
				return nil
			}
			linked := int64(c.counters.Seen.Linked - before.Linked)
			if crowded := int64(c.counters.Seen.Changes - before.Changes); linked > 0 && crowded > crowdedChanges+linked && !c.bound {
				// Allocations went from block to block: more blocks, before there are none (paper, §V).
				if _, err := c.extend(st, 0); err != nil {
					return err
				}
			}
			if !c.opts.NoPolicy && c.worthFlushing() {
				return c.flush(st)
			}
			return nil
		},
	}.Run(&c.frame, st, n, c.live())
}

// launchInsert queues an insert of rows.
func (c *core) launchInsert(st *device.Stream, k device.Kernel[insertParams], p insertParams, b frame.Rows) error {
	p.When = b.When
	if taken, err := c.insertStretches(st, k, p, b); taken == b.N || err != nil {
		return err
	} else if taken > 0 { // the others, as they are
		b = b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, c.cfg.keyBytes, c.cfg.valueBytes)
		p.Rows.Refused += uint64(taken / 8)
	}
	return c.kernel.partition.Place(&c.frame, st, frame.Placement{
		Regions: &c.regions, Bytes: int64(c.base.Len()), KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Positions: true,
		Params: func(rows frame.Partition) any { return &partitionParams{Table: p.Table, Rows: rows} },
		Launch: func(g device.Grid, rows frame.Placing) error {
			p.Rows = rows
			return k.Launch(st, g, &p)
		},
		Grid: func(n int64) device.Grid { return c.frame.Grid(n, insertBlocks) },
	}, p.Rows, b)
}

// prepare adds slabs for so many more pairs, before they come, as many as they are expected to take.
func (c *core) prepare(st *device.Stream, more int64) error {
	if c.bound {
		if buckets, units := c.largest(); buckets > 2*c.buckets() && c.live()+more < c.limitOf(buckets)/2 {
			_, err := c.rebuild(st, buckets, units) // chains need not be long any more
			return err
		}
		return nil
	}
	pairs := min(c.live()+more, c.limit()+c.limit()/2+firstBatch)
	if lack := c.unitsFor(pairs, c.buckets()) - c.pool.Units(); lack > 0 {
		_, err := c.extend(st, lack)
		return err
	}
	return nil
}

// extend adds at least so many units, as far as MaxBytes allows. why says what forbids it.
func (c *core) extend(st *device.Stream, units int64) (why, err error) {
	have := c.pool.Units()
	units = max(units, have/2, 64)
	if limit := c.opts.MaxBytes; limit > 0 {
		most := frame.SlabsIn(limit - c.bytes())
		if c.opts.Light {
			most = c.rest(c.buckets()) - have
		}
		if most == 0 {
			return frame.AtMaxBytes(limit), nil
		}
		if units > most/2 {
			units = most
		}
	}
	if c.opts.Light && have > 0 || c.pool.Supers() == frame.MaxSupers {
		return c.rebuild(st, c.buckets(), have+units)
	}
	if err = c.frame.Budget(c.bytes() + frame.SlabsMemory(units)); err != nil {
		return nil, err
	}
	if err = c.pool.Add(st, units); device.IsOutOfMemory(err) || errors.Is(err, frame.ErrSupers) {
		return err, nil
	}
	return nil, err
}

// makeRoom is called when so many operations found no slab. why says what forbids that it makes any.
func (c *core) makeRoom(st *device.Stream, lost int64) (why, err error) {
	if c.tombstones() > 0 {
		before := c.flushed()
		if err := c.flush(st); err != nil || c.flushed() > before {
			return nil, err
		}
	}
	if pairs := c.live() + lost; !c.bound && pairs > c.limit() {
		before := c.buckets()
		if _, err := c.grow(st, pairs); err != nil || c.buckets() > before {
			return nil, err
		}
	}
	if why, err = c.extend(st, 2*(lost/int64(c.cfg.slots())+1)); why == nil || err != nil {
		return why, err
	}
	if !errors.Is(why, table.ErrMaxBytes) {
		return why, nil
	}
	c.bound = true
	if half := c.buckets() / 2; half >= 1 && half*longChains >= c.opts.MaxBytes/slabBytes {
		return c.rebuild(st, half, c.rest(half))
	}
	return why, nil
}

// worthFlushing is the policy: deleted pairs take one slot in flushShare, or chains are far longer than the pairs want. The
// kernel of flushes has it too.
func (c *core) worthFlushing() bool {
	used := c.buckets() + c.slabs()
	return c.tombstones() > fewTombstones && (c.tombstones() > used*int64(c.cfg.slots())/flushShare || c.slabs() > c.longest())
}

// longest is how many slabs of the pool its pairs should use at most.
func (c *core) longest() int64 { return 2 * c.unitsFor(c.live(), c.buckets()) }

// grow makes buckets for so many pairs, and at least twice as many as there are. why says what forbids it. At MaxBytes it
// makes as many as fit, and sets bound.
func (c *core) grow(st *device.Stream, pairs int64) (why, err error) {
	buckets, units := c.sizes(max(pairs, 2*c.limit()))
	if !c.tooLarge(buckets, units) {
		return c.rebuild(st, buckets, units)
	}
	c.bound = true
	buckets, units = c.largest()
	for ; buckets > c.buckets(); buckets, units = buckets/2, c.rest(buckets/2) {
		if c.cfg.overflow(c.live(), buckets) > units {
			continue
		}
		if why, err := c.rebuild(st, buckets, units); why == nil || err != nil {
			return why, err
		}
	}
	return nil, nil
}

// rebuild moves all pairs to a new table of the given size; on an error, and with a reason why not, the old one stands. It
// waits for the stream.
func (c *core) rebuild(st *device.Stream, buckets, units int64) (why, err error) {
	if err := c.frame.Spare(); err != nil { // the new table may need the memory more
		return nil, err
	}
	old := c.memory
	for {
		if err = c.allocate(st, buckets, units); err != nil {
			if device.IsOutOfMemory(err) || errors.Is(err, frame.ErrSupers) {
				return err, nil
			}
			return nil, err
		}
		p := slabsParams{Table: old.table(), Target: c.table()}
		if err = c.kernel.rehash.Launch(st, c.frame.Grid(buckets0(&old), walkBlocks), &p); err == nil {
			_, err = c.look(st)
		}
		if err == nil && c.counters.Seen.Failed == 0 {
			return nil, old.free(&c.frame)
		}
		failed := int64(c.counters.Seen.Failed)
		err = errors.Join(err, c.memory.free(&c.frame))
		c.memory = old
		if err != nil {
			return nil, err
		}
		// The hashes are worse than expected: so many more slabs surely do for what failed.
		units = (units + units/2 + failed + frame.SlabStep - 1) / frame.SlabStep * frame.SlabStep
		if c.tooLarge(buckets, units) {
			return frame.AtMaxBytes(c.opts.MaxBytes), nil
		}
	}
}

// buckets0 counts the chains of a table, that of the reserved keys too.
func buckets0(m *memory) int64 { return int64(m.t.Buckets) + 1 }

// flush compacts all chains (paper, §IV-C4). It waits for the stream.
func (c *core) flush(st *device.Stream) error {
	if err := c.queueFlush(st, 0); err != nil {
		return err
	}
	_, err := c.look(st)
	return err
}

// queueFlush queues a flush, with a share for the case that one slot in so many holds a deleted pair by then.
func (c *core) queueFlush(st *device.Stream, share uint64) error {
	p := slabsParams{Table: c.table(), Share: share, Most: uint64(c.longest()), Flushed: c.flushed(), Freed: c.counters.Seen.Freed}
	return c.kernel.flush.Launch(st, c.frame.Grid(buckets0(&c.memory)*int64(c.opts.Group), walkBlocks), &p)
}

// find queues a look-up.
func (c *core) find(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.find, b) }

// erase queues a deletion.
func (c *core) erase(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.erase, b) }

func (c *core) search(st *device.Stream, k device.Kernel[findParams], b frame.Rows) error {
	for first := int64(0); first < b.N; first += largestBatch {
		n := min(b.N-first, largestBatch)
		part := b.Part(frame.Part{First: uint64(first), N: uint64(n)}, c.cfg.keyBytes, c.cfg.valueBytes)
		p := findParams{Table: c.table(), Keys: part.Keys, Values: part.Values, Found: part.Flags, N: uint64(n), When: part.When}
		if err := k.Launch(st, c.frame.Grid(n, findBlocks), &p); err != nil {
			return err
		}
	}
	return nil
}

// Grow makes room for at least n pairs in all, and rids the table of tombstones. More buckets need memory for the old
// and the new table at once. Errors: table.ErrMaxBytes; *device.OutOfMemoryError. After an error the table is
// unchanged.
func (h *handle) Grow(n int) error {
	c := h.made()
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, live int64) error {
		buckets, units := c.sizes(int64(n))
		switch {
		case buckets <= c.buckets(): // in its place
			if c.tombstones() > 0 {
				if err := c.flush(st); err != nil {
					return err
				}
			}
			lack := c.unitsFor(int64(n), c.buckets()) - c.pool.Units()
			if lack <= 0 || live >= int64(n) {
				return nil
			}
			why, err := c.extend(st, lack)
			return errors.Join(why, err)
		case c.tooLarge(buckets, units):
			return c.frame.NoRoomFor(n, tableBytes(buckets, units), c.opts.MaxBytes)
		}
		why, err := c.rebuild(st, buckets, units)
		return errors.Join(why, err)
	})
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// Len counts the pairs.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear removes all pairs and keeps the capacity. It queues its work and returns.
func (h *handle) Clear() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		return errors.Join(c.base.Fill(st, 0xff), c.counters.Clear(st), c.pool.Reset(st))
	})
}

// Flush compacts the slabs of every bucket into as few as hold its pairs, and gives the others back (paper, §IV-C4). It
// reads all slabs, writes those with deleted pairs, and waits until that is done. The pairs of a key in a MultiMap keep
// their order.
func (h *handle) Flush() error { return h.made().frame.Writing(nil, h.made().flush) }

// exporting is how the pairs are given out, bucket by bucket.
func (c *core) exporting(st *device.Stream) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: buckets0(&c.memory), Live: live, Export: func(st *device.Stream, r frame.Range) (int64, error) {
		p := slabsParams{Table: c.table(), First: uint64(r.First), Buckets: uint64(r.Slots), Keys: r.Keys, Values: r.Values, Limit: uint64(r.Limit)}
		queued := frame.InTurn(
			func() error { return c.reset(st) },
			func() error { return c.kernel.export.Launch(st, c.frame.Grid(r.Slots, walkBlocks), &p) },
		)
		return frame.Exported(queued, func() (uint64, error) { _, err := c.look(st); return c.counters.Seen.Exported, err })
	}}, err
}

// Stats is what SlabStats measures: table.Stats, and what is particular to this family.
type Stats struct {
	table.Stats
	Buckets int `json:"buckets"`
	Slabs   int `json:"slabs"` // in chains, the base slabs among them
	// Utilization is the memory that holds pairs, divided by the memory of all slabs in chains (paper, §III-C).
	Utilization float64 `json:"utilization"`
	// SlabsPerBucket is the average length of a chain. AverageSlabCount is the paper's β: the number of pairs divided
	// by the number of slots of the base slabs.
	SlabsPerBucket   float64 `json:"slabs_per_bucket"`
	AverageSlabCount float64 `json:"average_slab_count"`
	Units            int     `json:"units"` // slabs of the pool, taken or not
	SuperBlocks      int     `json:"super_blocks"`
	ResidentChanges  int     `json:"resident_changes"`
}

// SlabStats measures the table, as Stats does, and what is particular to this family: memory utilization and slabs a
// bucket (paper, §III-C).
func (h *handle) SlabStats() (s Stats, err error) {
	c := h.made()
	err = c.frame.Alone(nil, func(st *device.Stream) error { // the histogram is scratch memory
		live, err := c.look(st)
		if err != nil {
			return err
		}
		h, err := c.frame.Histogram(st, histogramBins+2, func(addr uint64) error {
			return c.kernel.lengths.Launch(st, c.frame.Grid(buckets0(&c.memory), walkBlocks), &slabsParams{Table: c.table(), Histogram: addr})
		})
		if err != nil {
			return err
		}
		slabs := c.buckets() + c.slabs()
		s.Stats = table.Stats{Len: int(live), Capacity: int(c.capacity()), Tombstones: int(c.tombstones()), Bytes: c.bytes(), MaxProbes: int(h[histogramBins+1])}
		c.frame.Tell(&s.Stats, h)
		s.Buckets, s.Slabs, s.Units = int(c.buckets()), int(slabs), int(c.pool.Units())
		s.Utilization = float64(live*int64(c.cfg.keyBytes+c.cfg.valueBytes)) / float64(slabs*slabBytes)
		s.SlabsPerBucket = float64(slabs) / float64(c.buckets())
		s.AverageSlabCount = float64(live) / float64(c.buckets()*int64(c.cfg.slots()))
		s.SuperBlocks, s.ResidentChanges = c.pool.Supers(), int(c.counters.Seen.Changes)
		return nil
	})
	return s, err
}

// Stats measures the table. It walks through all chains.
func (h *handle) Stats() (table.Stats, error) {
	s, err := h.SlabStats()
	return s.Stats, err
}

// Close frees the table's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

func (c *core) free() error { return c.memory.free(&c.frame) }

// Check downloads the table and tests its invariants. It is slow: use it in tests, or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.ReadingSeen(c.look, func(st *device.Stream) error {
		base, err := frame.Host(st, c.base)
		if err != nil {
			return err
		}
		pool, err := c.pool.Download(st)
		if err != nil {
			return err
		}
		return errors.Join(c.frame.Budget(c.bytes()), (&image{c.cfg, c.table(), base, pool}).check(c.counters.Seen))
	})
}
