package dycuckoo

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New: those of table.Options, and some of its own. The zero value is good.
//
// The table does not shrink below Capacity. LoadFactor is the paper's β: the table grows when its filled factor is
// above it. Zero means 0.85.
type Options struct {
	table.Options
	// Low is the paper's α: the table shrinks when its filled factor is below it. Zero means 0.30, or 0.35 · LoadFactor
	// if that is less. Here, filters and locks count as slots, so that a large table takes no more memory than its
	// pairs divided by Low. Low must be less than LoadFactor · d / (d+1), which is what is left after one of d equal
	// subtables has doubled.
	Low float64
	// Subtables is the paper's d, 2 to 8. Zero means 4.
	Subtables int
	// Bucket is the size of a bucket in bytes: 32, 64 or 128. Zero means 64, or 128 for keys of 16 and 32 bytes.
	Bucket int
	Layout Layout
	// Balance tells which of its key's two subtables an insert tries first.
	Balance Balance
	// Coordination tells how the lanes of a warp share inserts that hold locks. It matters in layouts PackedLocked and
	// Wide alone.
	Coordination Coordination
	// InsertGroup and FindGroup are how many lanes work on one key, 1 to 32. Zero means what is fastest on the device.
	// On the CPU that is one lane. On a GPU, as many lanes as read a bucket with two 16-byte loads each, but look-ups
	// of pairs of 16 bytes take as many as read it with one. In layouts with locks, lanes work alone.
	InsertGroup, FindGroup int
}

const (
	defaultHigh, defaultLow, lowShare = 0.85, 0.30, 0.35
	defaultSubtables                  = 4
	defaultBucket, wideBucket         = 64, 128
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow.
	firstBatch = 1 << 16
	// brim is the filled factor up to which a batch is tried at once; the table grows behind it.
	brim = 0.93
	// poor: if an insert finds no room while less than this share of what it should hold is in, more room will not help: its hash function
	// is replaced.
	poor         = 0.4
	mostRehashes = 8
	// mostRows of a batch are in one launch: kernels number them with 32 bits.
	mostRows = 1 << 30
	// stale: filters are set anew once as many of their bits say nothing any more as one pair in so many.
	stale = 8
	// blocks of a multiprocessor, for kernels that go over a batch; insertBlocks, for inserts, whose blocks have lists to begin and to end, unless
	// their lanes had more rows than they can list; listBlocks, for kernels that go over a list of some of a batch.
	blocks, insertBlocks, listBlocks = 8 * 16, 8, 8
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed dycuckoo.cuh
	dycuckooCUH string
	//go:embed jobs.cuh
	jobsCUH string
)

// core is the table under Map: it owns the memory, and works in addresses and bits.
type core struct {
	frame  frame.Frame
	cfg    config
	opts   Options
	kernel struct {
		replacing, adding                   insertKernels
		find, erase                         device.Kernel[findParams]
		mixed                               device.Kernel[mixedParams]
		export, probes, refresh             device.Kernel[slotsParams]
		split, mergeFilters, halve, unhalve device.Kernel[slotsParams]
		partition                           frame.Partitioner
		within                              frame.Within
		refuseAbsent                        device.Kernel[insertParams]
		closeBuckets                        device.Kernel[slotsParams]
	}
	regions    frame.Regions
	staged     staged
	rangedFrom int64 // see the constant
	mostListed int64 // by a batch: bounded in tests alone
	mostRows   int64 // see the constant
	lastStep   step  // the largest: less in tests alone
	updates    frame.Operations[device.Kernel[insertParams]]
	choosing

	memory // guarded by the frame's lock
}

// handle is what users hold of a table. It names core instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type handle struct{ core *core }

// made is the table, or one whose operations are errors, if no constructor has made it.
func (h *handle) made() *core { return frame.Or(h.core, unmade) }

var unmade = frame.Unmade(func(c *core) *frame.Frame { return &c.frame }, family,
	"a Map that New has not made")

// memory is what a rebuild replaces.
type memory struct {
	step     step
	floor    step // the table does not shrink below
	subs     [maxSubtables]subtable
	side     device.Slice[byte]
	locks    device.Slice[uint32]
	counters frame.Counters[Counters]
	least    int64 // no fewer pairs are in
	rehashed bool
	rehashes int
	foreign  bool // a kernel of the user's may have inserted since
	refines  bool // the last insert left rows to refine
	unseen   bool // operations have changed the number of pairs since the last look
	tilt     Tilt
	forecast frame.Forecast
	stuck    int64 // with so many pairs, residuals found no room: no halving before there are fewer by a tenth
}

func (m *memory) live() int64 { return m.counters.Seen.live() }

func (m *memory) free(f *frame.Frame) error {
	err := f.Free(&m.counters, m.side, m.locks)
	for i := range m.subs {
		err = errors.Join(err, m.subs[i].free(f))
	}
	*m = memory{}
	return err
}

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	return &device.Program{
		Name: name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "dycuckoo.cuh", Text: dycuckooCUH}, {Name: "config.h", Text: c.cfg.header("config", false)},
			{Name: "jobs.cuh", Text: jobsCUH}}, more...),
		Defines: append(defines(), device.Define{Name: "DYCUCKOO_KEEPS", Value: false}, device.Define{Name: "DYCUCKOO_INSERT_GROUP", Value: c.opts.InsertGroup},
			device.Define{Name: "DYCUCKOO_FIND_GROUP", Value: c.opts.FindGroup}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := o.Options.Complete(defaultHigh); err != nil {
		return err
	}
	if o.Layout < Auto || o.Layout > Wide {
		return fmt.Errorf("dycuckoo: layout %d (want Auto, Packed, PackedLocked or Wide)", int(o.Layout))
	}
	if o.Balance < HomeFirst || o.Balance > Theorem1 {
		return fmt.Errorf("dycuckoo: balance %d (want HomeFirst or Theorem1)", int(o.Balance))
	}
	if o.Coordination < LaneByLane || o.Coordination > Voter {
		return fmt.Errorf("dycuckoo: coordination %d (want LaneByLane or Voter)", int(o.Coordination))
	}
	cfg.layout, cfg.hash, cfg.balance, cfg.coordination, cfg.subtables, cfg.bucketBytes = o.Layout, o.Hash, o.Balance, o.Coordination, o.Subtables, o.Bucket
	if cfg.layout == Auto {
		cfg.layout = Packed
		if cfg.keyBytes > 8 || cfg.valueBytes > 8 || cfg.slotBytes() > 8 && !info.CAS128 {
			cfg.layout = Wide
		}
	}
	if cfg.subtables == 0 {
		cfg.subtables = defaultSubtables
	}
	if cfg.bucketBytes == 0 {
		cfg.bucketBytes = defaultBucket
		if cfg.keyBytes > 8 {
			cfg.bucketBytes = wideBucket
		}
	}
	if err := cfg.check(info.CAS128); err != nil {
		return err
	}
	d := float64(cfg.subtables)
	if o.Low == 0 {
		o.Low = min(defaultLow, lowShare*o.LoadFactor)
	}
	if !(o.Low > 0 && o.Low < o.LoadFactor*d/(d+1)) {
		return fmt.Errorf("dycuckoo: a lower bound of %v for the filled factor (want less than %.3f: doubling one of %d subtables at the upper bound, %v, leaves that)",
			o.Low, o.LoadFactor*d/(d+1), cfg.subtables, o.LoadFactor)
	}
	insert, find := 1, 1
	if info.CUDA() && cfg.packed() {
		insert, find = max(1, cfg.bucketBytes/32), cfg.bucketBytes/32*cfg.slotBytes()/8
	}
	if o.InsertGroup == 0 {
		o.InsertGroup = insert
	}
	if o.FindGroup == 0 {
		o.FindGroup = find
	}
	for _, g := range []int{o.InsertGroup, o.FindGroup} {
		if g < 1 || g > 32 || g&(g-1) != 0 {
			return fmt.Errorf("dycuckoo: a group of %d lanes (want 1, 2, 4, 8, 16 or 32)", g)
		}
	}
	if !cfg.packed() {
		o.FindGroup = 1
	}
	if cfg.locked() {
		o.InsertGroup = 1
	}
	return nil
}

// begin makes an empty table as the options say.
func (c *core) begin() error {
	if err := c.opts.complete(c.frame.Device.Info(), &c.cfg); err != nil {
		return err
	}
	c.frame.MaxBytes = c.opts.MaxBytes
	c.regions = frame.RegionsFor(c.frame.Device.Info(), regionsFrom, regionRows)
	c.regions.PowerOfTwo, c.regions.Span = true, listed*frame.Threads
	info := c.frame.Device.Info()
	c.staged.rule, c.staged.mostListed = frame.StretchesFor(info, 8, int64(info.Multiprocessors/2)), stagedMost
	c.mostRows, c.rangedFrom, c.mostListed = mostRows, rangedFrom, math.MaxInt64
	c.lastStep = lastStep(c.d())
	if err := c.compile(); err != nil {
		return err
	}
	if c.cfg.staged() {
		frame.AheadOfLate(c.frame.Device, c.loadStaged)
	}
	s := c.stepFor(int64(c.opts.Capacity))
	if err := c.fits(s, int64(c.opts.Capacity)); err != nil && c.opts.MaxBytes == 0 {
		return err
	}
	if c.opts.MaxBytes > 0 {
		if c.bytes(0) > c.opts.MaxBytes {
			return fmt.Errorf("dycuckoo: MaxBytes of %s leaves no room for %d subtables of %d buckets", device.Bytes(c.opts.MaxBytes), c.cfg.subtables, leastBuckets)
		}
		s = min(s, c.mostSteps())
	}
	m, err := c.allocate(s)
	if err == nil {
		c.memory = m
		c.floor = s
	}
	return err
}

func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.program("dycuckoo", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	k.partition, err = frame.NewPartitioner[partitionParams](c.frame.Device, m)
	if err == nil {
		k.within, err = frame.NewWithin[partitionParams](m)
	}
	err = errors.Join(err, device.Bind(m, "refuse_absent", &k.refuseAbsent), device.Bind(m, "close_buckets", &k.closeBuckets),
		k.replacing.bind(m, ""), k.adding.bind(m, "_new"),
		device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase), device.Bind(m, "mixed", &k.mixed),
		device.Bind(m, "export_pairs", &k.export), device.Bind(m, "probe_lengths", &k.probes), device.Bind(m, "refresh_filters", &k.refresh),
		device.Bind(m, "split", &k.split), device.Bind(m, "merge_filters", &k.mergeFilters), device.Bind(m, "halve", &k.halve), device.Bind(m, "unhalve", &k.unhalve))
	return errors.Join(err, frame.AheadOfFinds(c.opts.Work, k.find))
}

// Sizes.

func (c *core) d() int { return c.cfg.subtables }

func (c *core) slotsAt(s step) int64 { return s.total(c.d()) * int64(c.cfg.slots()) }

func (c *core) capacity() int64 { return c.slotsAt(c.step) }

// tiltAt is the tilt that suits a step. A table has that of the step at which it was empty, or its filters were last set anew: its pairs
// would have to be looked at to change it.
func (c *core) tiltAt(s step) Tilt {
	if c.opts.Balance == Theorem1 {
		return Tilt{} // chooses between a key's subtables itself
	}
	return tilt(c.d(), int(int64(s)%int64(c.d())))
}

// limitAt is how many pairs a table may have before it grows, leastAt how few before it shrinks.
func (c *core) limitAt(s step) int64 { return int64(float64(c.slotsAt(s)) * c.opts.LoadFactor) }

// leastAt counts filters, locks and what else a bucket has as slots, so that large tables take no more memory than their pairs over Options.Low.
// But it stays below what the next smaller table takes, so that none doubles and halves by turns.
func (c *core) leastAt(s step) int64 {
	bytes := s.total(c.d())*(int64(c.cfg.bucketBytes)+filterBits/8) + c.lockCount(s)/8
	if !c.cfg.packed() {
		bytes += c.valuesBytes(s.total(c.d()))
	}
	least := int64(c.opts.Low * float64(bytes) / float64(c.cfg.pairBytes()))
	if s > 0 {
		least = min(least, max(int64(c.opts.Low*float64(c.slotsAt(s))), c.limitAt(s-1)*19/20))
	}
	return least
}

// fits is an error if so many pairs are too many for a step, the largest then.
func (c *core) fits(s step, pairs int64) error {
	if most := c.limitAt(s); most < pairs {
		return fmt.Errorf("dycuckoo: room for %d pairs: %d subtables hold %d at most, for the numbers of buckets have 32 bits", pairs, c.d(), most)
	}
	return nil
}

var errLargest = errors.New("the numbers of buckets have 32 bits")

// largest is why a table of the last step does not grow.
func (c *core) largest() error {
	return fmt.Errorf("dycuckoo: a table has no more than %d subtables of %d buckets, for %w; "+
		"more Subtables or a larger Bucket hold more",
		c.d(), c.lastStep.buckets(c.d(), 0), errLargest)
}

// stepFor is the least step with room for so many pairs.
func (c *core) stepFor(pairs int64) (s step) {
	for s < c.lastStep && c.limitAt(s) < pairs {
		s++
	}
	return s
}

func (c *core) sideBytes() int64 { return int64(kernel.Reserved * c.cfg.bucketBytes) }

// lockCount is the number of locks, a power of two: one for each bucket, up to a bound.
func (c *core) lockCount(s step) int64 { return min(maxLocks, s.buckets(c.d(), 0)*maxSubtables) }

// bytes is the memory of a table.
func (c *core) bytes(s step) int64 {
	sum := frame.Align(c.sideBytes()+4*(1+leastList)) + frame.Align(c.lockCount(s)/8)
	for i := range c.d() {
		sum += c.subtableBytes(s.buckets(c.d(), i))
	}
	return sum
}

// held is the memory that the table has: bytes, but that for want of memory there may be fewer or more locks than it should have.
func (c *core) held() int64 {
	sum := frame.Align(int64(c.side.Len())) + frame.Align(c.locks.Bytes())
	for i := range c.d() {
		sum += c.subs[i].bytes()
	}
	return sum
}

// mostSteps is the largest step that MaxBytes allows.
func (c *core) mostSteps() (s step) {
	for s < c.lastStep && c.bytes(s+1) <= c.opts.MaxBytes {
		s++
	}
	return s
}

// blank is the byte that empty buckets are filled with.
func (c *core) blank() byte {
	if c.cfg.packed() {
		return 0xff
	}
	return 0
}

// allocate makes an empty table.
func (c *core) allocate(s step) (m memory, err error) {
	defer func() {
		if err != nil {
			c.frame.Device.Stream().Sync() // it fills what is freed in the order of another
			m.free(&c.frame)
		}
	}()
	if err = c.frame.Budget(c.bytes(s)); err != nil {
		return m, err
	}
	st := c.frame.Device.Stream()
	m.step, m.tilt = s, c.tiltAt(s)
	for i := range c.d() {
		if m.subs[i], err = c.makeSubtable(s.buckets(c.d(), i)); err != nil {
			return m, err
		}
		if err = c.wipe(st, &m.subs[i]); err != nil {
			return m, err
		}
	}
	if m.side, err = frame.Make[byte](&c.frame, c.sideBytes()+4*(1+leastList)); err != nil {
		return m, err
	}
	if m.locks, err = frame.Make[uint32](&c.frame, c.lockCount(s)/32); err != nil {
		return m, err
	}
	if err = m.counters.Make(&c.frame, st); err != nil {
		return m, err
	}
	return m, errors.Join(m.side.Fill(st, 0xff), m.locks.Fill(st, 0), st.Sync())
}

// table is the table as kernels take it.
func (c *core) table() (t Table) {
	for i := range c.d() {
		t.Sub[i] = c.subs[i].Subtable
	}
	t.Side, t.Locks, t.LockMask, t.Seed, t.Counters = c.side.Addr(), c.locks.Addr(), uint64(32*c.locks.Len()-1), c.opts.Seed, c.counters.Addr()
	t.Tilt = c.tilt
	if c.rehashed {
		t.Rehashed = 1
	}
	// A pair is rather moved to a subtable that is filled less than all are.
	k := &c.counters.Seen
	for i := range c.d() {
		if float64(k.Pairs[i])*float64(c.capacity()) <= float64(c.live())*float64(c.subs[i].Buckets)*float64(c.cfg.slots()) {
			t.Prefer |= 1 << i
		}
		m := max(2, float64(k.Pairs[i]))
		t.Weight[i] = float32(2 * float64(c.subs[i].Buckets) * float64(c.cfg.slots()) / (m * (m - 1)))
	}
	return t
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	if err := c.counters.Look(st); err != nil {
		return 0, err
	}
	c.least, c.unseen, c.foreign = c.live(), false, false
	return c.live(), nil
}

// reset sets the counters that are not sums.
func (c *core) reset(st *device.Stream) error {
	k := &c.counters.Seen
	k.Failed, k.GivenUp, k.Left, k.Exported = 0, 0, 0, 0
	return c.counters.ClearFrom(st, unsafe.Offsetof(k.Failed)) // the others may have changed since they were seen
}

func (c *core) grid(n int64) device.Grid { return c.frame.FedGrid(n, blocks) }

// listGrid covers n lanes of a kernel that goes over a list, which is mostly much shorter.
func (c *core) listGrid(n int64) device.Grid {
	g, locked := c.frame.Grid(n, listBlocks), c.lockedGrid(n)
	g.Blocks = min(g.Blocks, locked.Blocks)
	return g
}

// lockedGrid covers n items of a kernel that takes locks: many more lanes than buckets would only wait for one another.
func (c *core) lockedGrid(n int64) device.Grid {
	g := c.grid(n)
	if c.frame.Device.Info().CUDA() {
		g.Blocks = min(g.Blocks, max(1, 4*c.step.total(c.d())/frame.Threads))
	}
	return g
}

// insertGrid covers n rows of an insert without locks. Where lanes list rows, each has so many at most.
func (c *core) insertGrid(n int64) device.Grid {
	g := c.frame.Grid(n, insertBlocks)
	if c.frame.Device.Info().CUDA() || c.opts.InsertGroup > 1 {
		g.Blocks = max(g.Blocks, (n+listed*int64(g.Threads)-1)/(listed*int64(g.Threads)))
	}
	return g
}

func (c *core) size() (capacity, live int64) { return c.capacity(), c.live() }

// insertKernels are those of Insert or of InsertNew.
type insertKernels struct{ insert, refine device.Kernel[insertParams] }

func (k *insertKernels) bind(m *device.Module, which string) error {
	return errors.Join(device.Bind(m, "insert"+which, &k.insert), device.Bind(m, "refine"+which, &k.refine))
}

// aheadOf begins to compile what an insert launches.
func (c *core) aheadOf(k *insertKernels) error {
	if c.cfg.locked() {
		return k.insert.Ahead()
	}
	return device.Ahead(k.insert, k.refine)
}

// insertion takes batches in with the kernels.
func (c *core) insertion(k *insertKernels) frame.Insertion {
	return frame.Insertion{Size: c.size, Find: c.find, Put: func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		part := func(p frame.Part) frame.Rows { return b.Part(p, c.cfg.keyBytes, c.cfg.valueBytes) }
		return c.take(st, b.N, 1, b.Keys, nil,
			func(p frame.Part) error { return c.launchInsert(st, k, c.insertParams(p), part(p)) },
			func(p frame.Part) error { return c.refine(st, k, c.insertParams(p), part(p)) })
	}}
}

func (c *core) insertParams(part frame.Part) insertParams {
	return insertParams{Table: c.table(), Rows: frame.Placing{Refused: part.Refused, Attempt: part.Attempt}}
}

// list is memory for a list for refine of so many rows, until the lease is done. Where memory is short, it is as long as the table's own few words allow.
func (c *core) list(limit int64) (list device.Slice[byte], rows uint64, lease frame.Lease, err error) {
	limit = min(limit, c.mostListed)
	lease, err = c.frame.Scratch(4 * (1 + limit))
	if device.IsOutOfMemory(err) {
		return c.side.Slice(int(c.sideBytes()), c.side.Len()), leastList, lease, nil
	}
	return lease.Mem, uint64(limit), lease, err
}

// launchInsert queues an insert of rows: by compare-and-swaps, and with pairs moved on by one step for those whose buckets are full. What is refused
// then is left to refine. The front of a large batch may go in staged.
func (c *core) launchInsert(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) error {
	empty := c.isEmpty()
	c.unseen = true // whatever becomes of it, the counters are to be looked at
	taken, err := c.stage(st, k, p, b, empty)
	if err != nil || taken == b.N {
		return err
	}
	if taken > 0 {
		p.Table = c.table()
		p.Rows.Refused += uint64(taken / 8)
		b = b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, c.cfg.keyBytes, c.cfg.valueBytes)
	}
	if err := c.aheadOf(k); err != nil {
		return err
	}
	return c.kernel.partition.Place(&c.frame, st, frame.Placement{
		Regions: &c.regions, Bytes: c.step.total(c.d()) * int64(c.cfg.bucketBytes), KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Positions: true,
		Params: c.partitionParams(p.Table),
		Launch: func(g device.Grid, rows frame.Placing) error {
			q := p
			q.Rows = rows
			if c.cfg.locked() && g.Blocks > 1 && rows.Span == 0 {
				g = c.lockedGrid(int64(rows.N))
			}
			return k.insert.Launch(st, g, &q)
		},
		Grid: c.insertGrid,
	}, p.Rows, b)
}

// refine queues another attempt for the rows that launchInsert has refused: pairs are moved on along paths. A table that may grow, and has too few slots
// for all, does not look for any. Inserts under locks have looked for them at once.
func (c *core) refine(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) error {
	if c.cfg.locked() {
		return nil
	}
	c.unseen = true
	p.Table, p.Rows = c.table(), p.Rows.Of(frame.Ordered{Rows: b}) // the tilt may be another since
	if p.Rows.Attempt < lastAttempt {
		p.Capacity = uint64(c.capacity())
	}
	return k.refine.Launch(st, c.listGrid((b.N+31)/32*refineGroup), &p)
}

// take brings in n rows by launches, growing and shrinking as it must. One row in `share` is expected to add a pair. Positions that
// are refused when no more room is to be had get a last attempt, unless exact is over. keys are those of a batch of inserts, else 0. refine, which may be
// nil, is for what a launch has refused. Most refuse nothing, and those that do come one after the other, while the table is rather full: so it is launched
// at once behind one that did, and elsewhere once the counters ask for it. The caller is in Writing.
func (c *core) take(st *device.Stream, n, share int64, keys uint64, exact *frame.Exactly, launch, refine func(part frame.Part) error) (refused []int, why, err error) {
	if c.refreshIsDue() {
		if err := c.refreshFilters(st); err != nil {
			return nil, nil, err
		}
	}
	if c.foreign || c.unseen && c.live()+n/share > c.limitAt(c.step) {
		if _, err := c.look(st); err != nil {
			return nil, nil, err
		}
	}
	// If as large a share of a batch of inserts is new as in the last one, make room before they come: a table that is
	// filled beyond its bound takes them slowly. A mixed batch may be of look-ups alone.
	if share == 1 && !exact.Over() {
		find := c.find
		if keys == 0 {
			find = nil // nobody knows which rows are inserted
		}
		rows := frame.Rows{Keys: keys, N: n}
		grow := func(pairs int64) (why, err error) { return c.grow(st, false, pairs) }
		learn, err := c.forecast.First(&c.frame, st, rows, c.live, c.limitAt(c.step), find, grow)
		if err != nil {
			return nil, nil, err
		}
		defer learn()
	}
	var tried frame.Part
	refused, why, err = frame.Inserter{
		Try: c.frame.Tries(firstBatch), Share: share, Keys: keys, KeyBytes: c.cfg.keyBytes,
		Settle: func(int64) (uint64, error) {
			if tried.Attempt == lastAttempt || exact.Over() {
				return 0, nil
			}
			return lastAttempt, nil
		},
		Launch: func(p frame.Part) error {
			tried = p
			if c.counters.Seen.Failed > 0 || c.counters.Seen.GivenUp > 0 {
				if err := c.reset(st); err != nil {
					return err
				}
			}
			err := launch(p)
			if err == nil && c.refines && refine != nil {
				err = refine(p)
			}
			return err
		},
		Look: func() (int64, int64, error) {
			moved := c.counters.Seen.Moved
			live, err := c.look(st)
			if refine != nil && err == nil {
				late := c.counters.Seen.Failed > 0 && !c.refines && !c.cfg.locked()
				if late {
					if err = refine(tried); err == nil {
						live, err = c.look(st)
					}
				}
				c.refines = late || c.counters.Seen.Failed > 0 || c.counters.Seen.Moved != moved
			}
			return int64(c.counters.Seen.Failed), live, err
		},
		Room: func(want int64, bound bool) (int64, error) {
			if bound {
				return int64(float64(c.capacity())*brim) - c.live(), nil
			}
			if want == 0 {
				return c.limitAt(c.step) - c.live(), nil
			}
			return int64(float64(c.capacity())*max(brim, c.opts.LoadFactor)) - c.live(), nil
		},
		Grow: func(refused, need, pairs int64) (why, err error) {
			return exact.Grow(func() (why, err error) { return c.grow(st, refused > 0, pairs) })
		},
		After: func() error {
			exact.Refused(c.counters.Seen.Failed > 0)
			return nil
		},
	}.Run(&c.frame, st, n, c.live())
	if err == nil {
		err = c.afterInserts(st)
	}
	return refused, why, err
}

// afterInserts leaves the counters as they are between batches, and shrinks a table that has many fewer pairs than room: a mixed
// batch may have deleted them.
func (c *core) afterInserts(st *device.Stream) error {
	if c.counters.Seen.Failed > 0 || c.counters.Seen.GivenUp > 0 {
		if err := c.reset(st); err != nil {
			return err
		}
	}
	return c.shrinkTo(st, c.floor, c.leastAt)
}

// grow makes room for so many pairs in all, or for more than there is, at least if some were refused. why says what forbids any.
func (c *core) grow(st *device.Stream, refused bool, pairs int64) (why, err error) {
	to := c.stepFor(pairs)
	if to <= c.step && refused {
		if float64(c.live()) < poor*c.opts.LoadFactor*float64(c.capacity()) && c.capacity() > int64(4*c.d()*leastBuckets*c.cfg.slots()) {
			return c.rehash(st)
		}
		to = c.step + 1
	}
	if to > c.step+1 && !refused && c.isEmpty() {
		anew := to
		if c.opts.MaxBytes > 0 {
			anew = min(to, c.mostSteps())
		}
		if anew > c.step {
			if err := c.replace(anew, c.floor); !device.IsOutOfMemory(err) {
				return nil, err
			}
		}
	}
	for was := c.step; c.step < to; {
		if limit := c.opts.MaxBytes; limit > 0 && c.bytes(c.step+1) > limit {
			why = frame.AtMaxBytes(limit)
		} else if err := c.double(st); device.IsOutOfMemory(err) || errors.Is(err, errLargest) {
			why = err
		} else if err != nil {
			return nil, err
		}
		if why != nil && c.step > was {
			return nil, nil // what was refused may fit now
		} else if why != nil {
			return why, nil
		}
	}
	return nil, nil
}

// isEmpty tells whether there are no pairs for sure.
func (c *core) isEmpty() bool { return c.live() == 0 && !c.unseen && !c.foreign }

// replace makes an empty table anew, of another size.
func (c *core) replace(to, floor step) error {
	m, err := c.allocate(to)
	if err != nil {
		return err
	}
	m.floor, m.rehashed, m.rehashes, m.forecast = floor, c.rehashed, c.rehashes, c.forecast
	old := c.memory
	c.memory = m
	return old.free(&c.frame)
}

// double doubles the smallest subtable (§4.2, 4.4).
func (c *core) double(st *device.Stream) error {
	if c.step >= c.lastStep {
		return c.largest()
	}
	if err := c.frame.Budget(c.bytes(c.step + 1)); err != nil {
		return err
	}
	i := int(int64(c.step) % int64(c.d()))
	old := c.subs[i]
	to, drop, err := c.doubled(&old)
	if err != nil {
		return err
	}
	items := int64(old.Buckets)
	if c.cfg.packed() {
		items *= int64(c.cfg.slots())
	}
	p := slotsParams{Table: c.table(), From: old.Subtable, To: to.Subtable, Number: uint64(i)}
	if err := c.kernel.split.Launch(st, c.grid(items), &p); err != nil {
		drop(true)
		return err
	}
	c.subs[i] = to
	c.step++
	c.stuck = 0
	return errors.Join(drop(false), c.fitLocks(st))
}

// fitLocks has as many locks as the table should. Without memory for more, those there are will do.
func (c *core) fitLocks(st *device.Stream) error {
	n := c.lockCount(c.step) / 32
	if int64(c.locks.Len()) == n {
		return nil
	}
	if err := c.frame.Budget(c.held() - frame.Align(c.locks.Bytes()) + frame.Align(4*n)); err != nil {
		return err
	}
	locks, err := frame.Make[uint32](&c.frame, n)
	if device.IsOutOfMemory(err) {
		return nil
	} else if err != nil {
		return err
	}
	if err := locks.Fill(st, 0); err != nil {
		return errors.Join(err, c.frame.Free(locks))
	}
	old := c.locks
	c.locks = locks
	return c.frame.Free(old)
}

// shrinkTo halves the largest subtable, again and again, while it has fewer pairs than the least for its step and the table is larger than at
// a step. The counters are as last seen; it waits for the stream if it halves.
func (c *core) shrinkTo(st *device.Stream, floor step, least func(step) int64) error {
	for c.step > floor && !c.isStuck(c.live()) && c.live() < least(c.step) && c.live() <= c.limitAt(c.step-1) {
		if done, err := c.halve(st); err != nil || !done {
			return err
		}
	}
	return nil
}

func (c *core) isStuck(pairs int64) bool { return c.stuck > 0 && pairs > c.stuck/10*9 }

// halve halves the largest subtable (§4.4). It needs memory for the smaller array: without that, or where residuals find no room in other
// subtables, done is false, and the table is as it was. It waits for the stream.
func (c *core) halve(st *device.Stream) (done bool, err error) {
	if err := c.frame.Budget(c.bytes(c.step - 1)); err != nil {
		return false, err
	}
	i := int(int64(c.step-1) % int64(c.d()))
	old, was := c.subs[i], c.step
	to, err := c.makeSubtable(int64(old.Buckets) / 2)
	if device.IsOutOfMemory(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	c.subs[i] = to
	c.step--
	p := slotsParams{Table: c.table(), From: old.Subtable, To: to.Subtable, Number: uint64(i)}
	n := int64(to.Buckets)
	err = frame.InTurn(
		func() error { return device.Ahead(c.kernel.mergeFilters, c.kernel.halve) },
		func() error { return c.wipe(st, &to) },
		func() error { return c.kernel.mergeFilters.Launch(st, c.grid(n/4), &p) },
		func() error { return c.kernel.halve.Launch(st, c.grid(n), &p) },
	)
	if err == nil {
		_, err = c.look(st)
	}
	if err == nil && c.counters.Seen.Left == 0 {
		return true, errors.Join(old.free(&c.frame), c.fitLocks(st))
	}
	c.subs[i], c.step = old, was
	if err == nil { // after an error the table is broken, or no kernel was launched
		c.stuck = max(1, c.live())
		p.Table = c.table()
		err = frame.InTurn(
			func() error { return c.kernel.unhalve.Launch(st, c.grid(int64(old.Buckets)*int64(c.cfg.slots())), &p) },
			func() error { return c.reset(st) },
			func() error { _, err := c.look(st); return err },
		)
	}
	return false, errors.Join(err, to.free(&c.frame))
}

// rehash lays the table anew with another hash function: that of the options was poor, or somebody chose keys for it.
func (c *core) rehash(st *device.Stream) (why, err error) {
	err = c.rebuild(st, c.step, true)
	if noRoom(err) {
		return err, nil
	}
	return nil, err
}

// noRoom reports whether an error says that a table cannot be larger. The table goes on as it was.
func noRoom(err error) bool {
	return device.IsOutOfMemory(err) || errors.Is(err, table.ErrMaxBytes) || errors.Is(err, errLargest)
}

// rebuild inserts all pairs into a new table, of a step or, where they do not fit, of the next that will do; on an error the old one
// stands. It waits for the stream, and needs memory for both, and for the pairs once more.
func (c *core) rebuild(st *device.Stream, s step, otherHash bool) error {
	if err := c.frame.Spare(); err != nil {
		return err
	}
	live := c.live()
	if otherHash && c.rehashes == mostRehashes {
		return fmt.Errorf("dycuckoo: %d pairs do not fit %d slots by %d hash functions: this is a defect of warpmap", live, c.capacity(), c.rehashes)
	}
	keys, values := frame.Align(live*int64(c.cfg.keyBytes)), frame.Align(live*int64(c.cfg.valueBytes))
	rows, err := device.MakePooled[byte](c.frame.Device, int(keys+values+frame.Align(live/8+4)))
	if err != nil {
		return err
	}
	defer c.frame.Free(rows)
	b := frame.Rows{Keys: rows.Addr(), Values: rows.Addr() + uint64(keys), N: live}
	if err := c.exporter().All(family, st, b.Keys, b.Values); err != nil {
		return err
	}
	bitmap := rows.Slice(int(keys+values), rows.Len())
	old, seed := c.memory, c.opts.Seed
	if otherHash {
		c.opts.Seed = rand.Uint64()
	}
	for ; ; s++ {
		if s > c.lastStep {
			c.memory, c.opts.Seed = old, seed
			return c.largest()
		}
		if limit := c.opts.MaxBytes; limit > 0 && s > old.step && c.bytes(s) > limit {
			c.memory, c.opts.Seed = old, seed
			return frame.AtMaxBytes(limit)
		}
		m, err := c.allocate(s)
		if err == nil {
			m.floor, m.rehashes, m.rehashed = old.floor, old.rehashes, old.rehashed
			if otherHash {
				m.rehashes, m.rehashed = m.rehashes+1, true
			}
			c.memory = m
			err = bitmap.Fill(st, 0)
			for first := int64(0); first < live && err == nil; first += c.mostRows {
				piece := b.Part(frame.Part{First: uint64(first), N: uint64(min(live-first, c.mostRows))}, c.cfg.keyBytes, c.cfg.valueBytes)
				p := insertParams{Table: c.table(), Rows: frame.Placing{Refused: bitmap.Addr() + uint64(first/8)}}
				if err = c.launchInsert(st, &c.kernel.adding, p, piece); err == nil {
					err = c.refine(st, &c.kernel.adding, p, piece)
				}
			}
			if err == nil {
				_, err = c.look(st)
			}
			if err == nil && c.counters.Seen.Failed == 0 {
				return errors.Join(c.reset(st), old.free(&c.frame))
			}
			c.memory.free(&c.frame)
		}
		if err != nil {
			c.memory, c.opts.Seed = old, seed
			return err
		}
	}
}

// Grow makes room for at least n pairs in all. The table does not shrink below that before Shrink. Errors:
// table.ErrMaxBytes; *device.OutOfMemoryError. Each doubling of a subtable reads it once and writes it twice. An empty
// table is made anew.
func (h *handle) Grow(n int) error {
	c := h.made()
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, _ int64) error {
		err := c.makeRoom(st, int64(n))
		if err == nil {
			c.floor = max(c.floor, c.stepFor(int64(n)))
		}
		return err
	})
}

// makeRoom makes room for n pairs in all, or leaves the table as it is.
func (c *core) makeRoom(st *device.Stream, n int64) error {
	to, was := c.stepFor(n), c.step
	if limit := c.opts.MaxBytes; limit > 0 && to > c.step && c.bytes(to) > limit {
		return c.frame.NoRoomFor(int(n), c.bytes(to), limit)
	}
	if err := c.fits(to, n); err != nil {
		return err
	}
	if to > c.step && c.isEmpty() {
		if err := c.replace(to, c.floor); !device.IsOutOfMemory(err) {
			return err
		}
	}
	for c.step < to {
		err := c.double(st)
		if err == nil {
			continue
		}
		if !noRoom(err) { // the table is broken
			return err
		}
		for done := true; c.step > was && done; {
			var e error
			if done, e = c.halve(st); e != nil {
				return errors.Join(err, e)
			}
		}
		return err
	}
	return nil
}

// Shrink gives back the memory that the table can spare. It halves subtables while all pairs fit what is left, up to
// LoadFactor. It goes below Capacity and below what Grow has asked for, too.
func (h *handle) Shrink() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		if _, err := c.look(st); err != nil {
			return err
		}
		c.floor, c.stuck = 0, 0
		return c.shrinkTo(st, 0, c.slotsAt)
	})
}

// find queues a look-up.
func (c *core) find(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.find, b) }

// erase queues a deletion. It waits where the table may have to shrink.
func (c *core) erase(st *device.Stream, b frame.Rows) error {
	if err := c.search(st, c.kernel.erase, b); err != nil {
		return err
	}
	c.least -= b.N
	c.unseen = true
	if c.step <= c.floor || c.isStuck(c.least) || c.least >= c.leastAt(c.step) {
		return nil
	}
	if _, err := c.look(st); err != nil {
		return err
	}
	return c.shrinkTo(st, c.floor, c.leastAt)
}

func (c *core) search(st *device.Stream, k device.Kernel[findParams], b frame.Rows) error {
	return b.InPieces(c.mostRows, c.cfg.keyBytes, c.cfg.valueBytes, func(x frame.Rows) error {
		return k.Launch(st, c.grid(x.N), &findParams{Table: c.table(), Keys: x.Keys, Values: x.Values, Found: x.Flags, N: uint64(x.N), When: x.When})
	})
}

// refreshFilters sets the filters anew, where deletions have left many bits that say nothing.
func (c *core) refreshFilters(st *device.Stream) error {
	if _, err := c.look(st); err != nil {
		return err
	}
	for i := range c.d() {
		if err := c.subs[i].filter().Fill(st, 0); err != nil {
			return err
		}
	}
	c.counters.Seen.Away = 0
	p := slotsParams{Table: c.table()}
	p.Table.Tilt = c.tiltAt(c.step)
	err := frame.InTurn(
		func() error { return c.counters.Set(st) },
		func() error { return c.kernel.refresh.Launch(st, c.grid(c.capacity()), &p) },
	)
	if err == nil && c.cfg.packed() && c.tilt != p.Table.Tilt {
		err = c.kernel.closeBuckets.Launch(st, c.grid(c.capacity()), &p)
	}
	if err == nil {
		c.tilt = p.Table.Tilt
	}
	return err
}

func (c *core) refreshIsDue() bool {
	away := int64(c.counters.Seen.Away)
	return away > firstBatch && away > c.live()/stale
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// Len counts the pairs.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear removes all pairs. It keeps the capacity until the next insert or deletion. It queues its work and returns.
func (h *handle) Clear() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		for i := range c.d() {
			if err := c.wipe(st, &c.subs[i]); err != nil {
				return err
			}
		}
		c.least, c.unseen, c.foreign, c.stuck, c.tilt = 0, false, false, 0, c.tiltAt(c.step)
		return errors.Join(c.side.Fill(st, 0xff), c.counters.Clear(st))
	})
}

// slots is how many slots there are, those of the side too.
func (c *core) slots() int64 {
	n := c.capacity()
	if c.cfg.packed() {
		n += int64(kernel.Reserved * c.cfg.slots())
	}
	return n
}

// exporter is how the pairs are given out. The counters are as last seen.
func (c *core) exporter() frame.Exporter {
	return frame.Exporter{Slots: c.slots(), Live: c.live(), Export: func(st *device.Stream, r frame.Range) (int64, error) {
		p := slotsParams{Table: c.table(), First: uint64(r.First), Slots: uint64(r.Slots), Keys: r.Keys, Values: r.Values, Limit: uint64(r.Limit)}
		export := func() error { return c.kernel.export.Launch(st, c.grid(r.Slots), &p) }
		queued := frame.InTurn(func() error { return c.reset(st) }, export)
		return frame.Exported(queued, func() (uint64, error) { _, err := c.look(st); return c.counters.Seen.Exported, err })
	}}
}

func (c *core) exporting(st *device.Stream) (frame.Exporter, error) {
	_, err := c.look(st)
	return c.exporter(), err
}

// Stats measures the table. It reads all slots.
func (h *handle) Stats() (table.Stats, error) {
	c := h.made()
	return c.frame.Measure(c.look, func(st *device.Stream, histogram uint64) error {
		return c.kernel.probes.Launch(st, c.grid(c.slots()), &slotsParams{Table: c.table(), Histogram: histogram})
	}, func(live int64) table.Stats {
		return table.Stats{Len: int(live), Capacity: int(c.capacity()), Bytes: c.held(), MaxProbes: 2}
	})
}

// SubtableStats describes one subtable.
type SubtableStats struct {
	Buckets      int     `json:"buckets"`
	Slots        int     `json:"slots"`
	Len          int     `json:"len"`           // pairs
	FilledFactor float64 `json:"filled_factor"` // Len / Slots, the paper's θᵢ
	Bytes        int64   `json:"bytes"`
}

// Subtables describes each subtable. Pairs with reserved keys count as pairs of the first.
func (h *handle) Subtables() (list []SubtableStats, err error) {
	c := h.made()
	err = c.frame.ReadingSeen(c.look, func(st *device.Stream) error {
		for i := range c.d() {
			s := SubtableStats{Buckets: int(c.subs[i].Buckets), Len: int(c.counters.Seen.Pairs[i]), Bytes: c.subs[i].bytes()}
			s.Slots = s.Buckets * c.cfg.slots()
			s.FilledFactor = float64(s.Len) / float64(s.Slots)
			list = append(list, s)
		}
		return nil
	})
	return list, err
}

// Close frees the table's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

func (c *core) free() error { return c.memory.free(&c.frame) }
