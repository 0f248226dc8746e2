package cache

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

const family table.Family = "cache"

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed cache.cuh
	cacheCUH string
	//go:embed cover.cu
	coverCU string
)

const (
	// waves is how many times over a grid fills a GPU whose multiprocessors hold 8 blocks.
	waves = 16
	// mostClock is where the clock of an LRU cache is set back by half, and with it all scores. So it never goes past
	// 2³²-1, whatever several goroutines do between a look at it and a batch.
	mostClock = math.MaxUint32 - 1<<20
	// ticksPerSecond is how finely the end of a pair is told. 2³² ticks are 8 years.
	ticksPerSecond = 16
	// agePeriod: the counts of an Aged cache are halved each time that so many keys a slot were looked up or put.
	agePeriod = 10
	// mostPairs is how many pairs a cache is asked for at most, so that no number of bytes overflows.
	mostPairs = 1 << 46
	// coverThreads is how many threads look through a tile of rows.
	coverThreads = 512
	// mostOut is how many rows InsertOut brings at once.
	mostOut = 1 << 20
)

// core is the cache under Cache: it owns the memory, and works in addresses and bits.
type core struct {
	frame   frame.Frame
	updates frame.Operations[device.Kernel[putParams]]
	cfg     config
	opts    Options
	kernel  struct {
		find, erase, touchMarked device.Kernel[findParams]
		put                      device.Kernel[putParams]
		mixed                    device.Kernel[mixedParams]
		export, measure, lowered device.Kernel[slotsParams]
		sweep                    device.Kernel[slotsParams]
		cover                    device.Kernel[coverParams]
	}
	covering frame.Late
	order    ordering

	// Guarded by the frame's lock.
	t        Table
	mem      device.Slice[byte]
	values   device.Host[byte] // with Options.HostValues; else they are in mem, or in the buckets
	counters frame.Counters[Counters]
	clock    uint32 // of batches; the score of what an LRU cache uses next is one more
	made     time.Time
	since    func() time.Duration // how long ago that was
	used     uint64               // keys since the counts were last halved
}

// handle is what users hold of a cache. It names core instead of embedding it: each instance of a generic type is
// compiled with every method that it embeds.
type handle struct{ core *core }

// made is the cache, or one whose operations are errors, if New has not made it.
func (h *handle) made() *core { return frame.Or(h.core, unmade) }

var unmade = func() *core {
	c := frame.Unmade(func(c *core) *frame.Frame { return &c.frame }, family, "a Cache that New has not made")
	c.since = func() time.Duration { return 0 }
	return c
}()

func newCore(d *device.Device, cfg config, o Options) (*core, error) {
	c := &core{cfg: cfg, opts: o}
	return frame.Made(c, c.frame.Open(family, d, c.begin, c.free))
}

// complete checks the options, and tells how many buckets they ask for. There are no marks where they would take more
// than mostMarks bytes.
func (o *Options) complete(cfg *config, mostMarks int64) (buckets int64, err error) {
	cfg.expires, cfg.inHost = o.Lives || o.TimeToLive > 0, o.HostValues
	cfg.marks = cfg.marks && o.Policy == LRU // counts of uses are added up one by one
	bounded := o.Bytes != 0 || o.HostBytes != 0
	switch {
	case o.Policy < LRU || o.Policy > Scored:
		return 0, fmt.Errorf("cache: %v is no policy (want LRU, LFU, Aged or Scored)", o.Policy)
	case o.Score != "" && o.Policy != Scored:
		return 0, fmt.Errorf("cache: a Score for a cache with the policy %v (want Scored)", o.Policy)
	case o.TimeToLive < 0:
		return 0, fmt.Errorf("cache: a time to live of %v (want 0 or more)", o.TimeToLive)
	case o.Hash < 0 || o.Hash > 3:
		return 0, fmt.Errorf("cache: hash function %d (see package kernel)", o.Hash)
	case o.Capacity < 0 || o.Capacity > mostPairs || o.Bytes < 0 || o.HostBytes < 0:
		return 0, fmt.Errorf("cache: a capacity of %d pairs, %d bytes, and %d bytes of host memory (want 0 to 2⁴⁶ pairs, "+
			"and no negative bytes)", o.Capacity, o.Bytes, o.HostBytes)
	case o.HostValues && cfg.paired():
		return 0, fmt.Errorf("cache: HostValues for values of %d bytes, which lie beside their keys (want 12 bytes or more)",
			cfg.valueBytes)
	case o.HostBytes > 0 && !o.HostValues:
		return 0, fmt.Errorf("cache: HostBytes, of %s, without HostValues", device.Bytes(o.HostBytes))
	case (o.Capacity != 0) == bounded:
		return 0, fmt.Errorf("cache: a capacity of %d pairs, %d bytes, and %d bytes of host memory (want one of them, or "+
			"both bounds: a cache never grows)", o.Capacity, o.Bytes, o.HostBytes)
	case o.HostBytes > 0 && o.HostBytes < cfg.hostBytes(1):
		return 0, fmt.Errorf("cache: %s of host memory have no room for the values of a bucket of %d pairs, which take %s",
			device.Bytes(o.HostBytes), ways, device.Bytes(cfg.hostBytes(1)))
	case o.Bytes > 0 && o.Bytes < cfg.bytes(1):
		return 0, fmt.Errorf("cache: %s have no room for a bucket of %d pairs, which takes %s", device.Bytes(o.Bytes),
			ways, device.Bytes(cfg.bytes(1)))
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	cfg.policy, cfg.hash = o.Policy, o.Hash
	if o.Policy == Scored { // of its rows with one key, each may have a score of its own, and may be refused
		cfg.tile = 0
	}
	if buckets = o.buckets(cfg); cfg.marksBytes(buckets) > mostMarks {
		cfg.marks = false
		buckets = o.buckets(cfg)
	}
	return buckets, nil
}

// buckets is how many the options ask for, which are sound: with a bound, as many as fit.
func (o *Options) buckets(cfg *config) int64 {
	if o.Capacity != 0 {
		return (int64(o.Capacity) + ways - 1) / ways
	}
	buckets := int64(mostPairs / ways)
	if o.HostBytes > 0 {
		buckets = min(buckets, o.HostBytes/cfg.hostBytes(1))
	}
	if o.Bytes > 0 { // weights and marks take some, and values that lie apart begin at a round address
		most := min(buckets, o.Bytes/(cfg.bucketBytes()+cfg.apartBytes()-cfg.hostBytes(1)))
		buckets = int64(sort.Search(int(most), func(n int) bool { return cfg.bytes(int64(n)+1) > o.Bytes }))
	}
	return buckets
}

// begin makes an empty cache as the options say.
func (c *core) begin() error {
	c.made = time.Now()
	c.since = func() time.Duration { return time.Since(c.made) }
	if c.cfg.tile = c.opts.tile; c.cfg.tile == 0 && c.frame.Device.Info().CUDA() {
		c.cfg.tile = tileRows
	}
	c.cfg.marks = c.opts.early || c.frame.Device.Info().CUDA()
	mostMarks := c.frame.Device.Info().L2 / marksCache
	if c.opts.early {
		mostMarks = math.MaxInt64
	}
	buckets, err := c.opts.complete(&c.cfg, mostMarks)
	if err != nil {
		return err
	}
	if c.opts.group == 0 {
		c.opts.group = c.group(c.frame.Device.Info().CUDA())
	}
	if err := errors.Join(c.compile(), c.compileScore()); err != nil {
		return err
	}
	inBuckets := frame.Align(buckets * c.cfg.bucketBytes())
	if c.mem, err = frame.Make[byte](&c.frame, c.cfg.bytes(buckets)); err != nil {
		return err
	}
	st := c.frame.Device.Stream()
	if err := c.counters.Make(&c.frame, st); err != nil {
		return err
	}
	c.t = Table{Buckets: c.mem.Addr(), Count: uint64(buckets), Seed: c.opts.Seed, Counters: c.counters.Addr()}
	c.t.Values = c.t.Buckets + uint64(inBuckets)
	if c.cfg.inHost {
		if c.values, err = device.MakeMapped[byte](c.frame.Device, int(c.cfg.hostBytes(buckets))); err != nil {
			return err
		}
		c.t.Values = c.values.Mapped().Addr()
	}
	c.beginOrder()
	frame.AheadOfLate(c.frame.Device, func() bool { return c.cfg.tile == 0 || c.loadCover() }) // also if batches are larger
	_, marks := c.cfg.besideAt(buckets)
	return errors.Join(c.mem.Slice(int(marks), c.mem.Len()).Fill(st, 0), c.empty(st), st.SyncOf(c.frame.Device))
}

// group is how many lanes copy a value that lies apart: on a GPU each lane a piece of it, as far as a warp goes.
func (c *core) group(cuda bool) int {
	group := 1
	for cuda && !c.cfg.paired() && group < 32 && group*c.cfg.pieceBytes() < c.cfg.valueBytes {
		group *= 2
	}
	return group
}

// program is the cache's kernels with the given translation unit.
func (c *core) program(name, main string) *device.Program {
	return &device.Program{
		Name: name,
		Files: []device.File{{Name: name + ".cu", Text: main}, {Name: "cache.cuh", Text: cacheCUH},
			{Name: "counts.cuh", Text: countsCUH}, {Name: "config.h", Text: c.cfg.header()}},
		Defines: append(defines(), device.Define{Name: "CACHE_GROUP", Value: c.opts.group}),
		Layouts: layouts(),
	}
}

func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.program("cache", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	err = errors.Join(device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase), device.Bind(m, "put",
		&k.put), device.Bind(m, "mixed", &k.mixed),
		device.Bind(m, "export_pairs", &k.export), device.Bind(m, "measure", &k.measure), device.Bind(m, "lower",
			&k.lowered), device.Bind(m, "sweep", &k.sweep), device.Bind(m, "touch_marked", &k.touchMarked))
	return errors.Join(err, device.Ahead(k.find, k.put))
}

func (c *core) free() error { return errors.Join(c.frame.Free(&c.counters, c.mem), c.values.Free()) }

// empty makes all of a bucket 0: no tag, and a version that is not locked. Values that lie apart stay as they are.
func (c *core) empty(st *device.Stream) error {
	c.clock, c.used = 0, 0
	buckets := int(int64(c.t.Count) * c.cfg.bucketBytes())
	return errors.Join(c.mem.Slice(0, buckets).Fill(st, 0), c.counters.Clear(st))
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	err := c.counters.Look(st)
	return c.counters.Seen.live(), err
}

func (c *core) slots() int64 { return int64(c.t.Count) * ways }

// grid covers n items.
func (c *core) grid(n int64) device.Grid { return c.frame.Grid(n, 8*waves) }

// tick gives the time of a batch of n keys. Where scores come near their end, or have to age, lower comes first.
func (c *core) tick(n int64) uint64 {
	c.clock++
	c.used += uint64(n)
	return uint64(c.clock)
}

// time is the present one, in ticks. It ends before the largest number, which stands for never.
func (c *core) time() uint64 {
	return uint64(min(c.since()/(time.Second/ticksPerSecond), math.MaxUint32-1))
}

// now is the present time by the clock on the wall.
func (c *core) now() time.Time { return c.made.Add(c.since()).Round(0) }

// ticksOf is a life in ticks, rounded up, and one more, because a tick may have begun already. 0 means for ever.
func ticksOf(life time.Duration) uint32 {
	if life == 0 {
		return math.MaxUint32
	}
	return uint32(min((life-1)/(time.Second/ticksPerSecond)+2, math.MaxUint32))
}

// ticksOf checks the lives of a batch of n pairs.
func (c *core) ticksOf(n int, lives []time.Duration) ([]uint32, error) {
	if !c.opts.Lives {
		return nil, errors.New("cache: lives for a cache without them (want Options.Lives)")
	}
	if err := c.frame.Family.CheckNamed("lives", n, len(lives)); err != nil {
		return nil, err
	}
	ticks := make([]uint32, n)
	for i, life := range lives {
		if life < 0 {
			return nil, fmt.Errorf("cache: pair %d is to live for %v (want 0 or more)", i, life)
		}
		if life > 0 {
			ticks[i] = ticksOf(life)
		}
	}
	return ticks, nil
}

// sweep queues that pairs whose time has ended at that tick leave their slots.
func (c *core) sweep(st *device.Stream, tick uint64) error {
	if !c.cfg.expires {
		return nil
	}
	return c.kernel.sweep.Launch(st, c.grid(c.slots()), &slotsParams{Table: c.t, N: c.t.Count, Time: tick})
}

// sweepNow removes the pairs whose time has ended when when says, and tells how many.
func (c *core) sweepNow(when func() uint64) (n int, err error) {
	err = c.frame.Writing(nil, func(st *device.Stream) error {
		if _, err := c.look(st); err != nil {
			return err
		}
		before := c.counters.Seen.Swept
		if err := c.sweep(st, when()); err != nil {
			return err
		}
		_, err := c.look(st)
		n = int(c.counters.Seen.Swept - before)
		return err
	})
	return n, err
}

// due says whether it is time for all scores to be lowered, and how.
func (c *core) due() (p slotsParams, due bool) {
	switch {
	case c.cfg.policy == LRU && c.clock >= mostClock:
		return slotsParams{Less: mostClock / 2}, true
	case c.cfg.policy == Aged && c.used >= agePeriod*uint64(c.slots()):
		return slotsParams{Shift: 1}, true
	}
	return p, false
}

// lower lowers all scores before a batch, where it is time for that. The batch is alone with the cache.
func (c *core) lower(st *device.Stream) error {
	p, due := c.due()
	if !due {
		return nil
	}
	p.Table, p.N = c.t, c.t.Count
	if err := c.kernel.lowered.Launch(st, c.grid(c.slots()), &p); err != nil {
		return err
	}
	c.clock -= uint32(p.Less)
	c.used = 0
	return nil
}

// keep does what lower does before look-ups, which are not alone with the cache. wrong is what is wrong with their
// slices: then nothing is changed.
func (c *core) keep(wrong error) error {
	some := false
	if err := c.frame.Locked(func() error { _, some = c.due(); return nil }); err != nil || wrong != nil || !some {
		return cmp.Or(err, wrong)
	}
	return c.frame.Writing(nil, c.lower)
}

// uncaptured refuses look-ups that would go into a CUDA graph and be wrong there: each run of the graph would have the
// time and the number of the batch that were when it was captured. So pairs would not end, and what was used now would
// count as used long ago.
func (c *core) uncaptured(st *device.Stream, quiet uint64) error {
	if !c.cfg.expires && (quiet != 0 || c.cfg.policy != LRU && c.opts.Score == "") {
		return nil
	}
	if captured, err := st.Capturing(); err != nil || !captured {
		return err
	}
	if c.cfg.expires {
		return fmt.Errorf("cache: %w: a look-up of a cache whose pairs end has the time in it", device.ErrCapturing)
	}
	return fmt.Errorf("cache: %w: a look-up that touches has the number of its batch in it (want FindQuietOn)",
		device.ErrCapturing)
}

// finding queues look-ups.
func (c *core) finding(quiet uint64) func(*device.Stream, frame.Rows) error {
	return func(st *device.Stream, b frame.Rows) error {
		if err := c.uncaptured(st, quiet); err != nil {
			return err
		}
		p := findParams{Table: c.t, Keys: b.Keys, Values: b.Values, Found: b.Flags, N: uint64(b.N), Quiet: quiet,
			Time: c.time()}
		if quiet == 0 {
			p.Now = c.tick(b.N)
			if b.N >= c.order.marksFrom {
				_, marks := c.cfg.besideAt(int64(c.t.Count))
				p.Marks = c.t.Buckets + uint64(marks)
			}
		}
		if err := frame.InTurn(
			func() error { return c.kernel.find.Launch(st, c.frame.FedGrid(b.N, 8*waves), &p) },
			func() error { return c.touchMarked(st, &p) },
		); err != nil {
			return err
		}
		return c.rescore(st, &p)
	}
}

func (c *core) erase(st *device.Stream, b frame.Rows) error {
	return c.kernel.erase.Launch(st, c.grid(b.N), &findParams{Table: c.t, Keys: b.Keys, Found: b.Flags,
		N: uint64(b.N), Time: c.time()})
}

// put queues inserts. The parameters come with what the batch is.
func (c *core) put(st *device.Stream, p putParams) error {
	if p.N == 0 {
		return nil
	}
	if err := c.lower(st); err != nil {
		return err
	}
	p.Table, p.Now, p.Time, p.Life = c.t, c.tick(int64(p.N)), c.time(), uint64(ticksOf(c.opts.TimeToLive))
	done, err := c.scored(st, &p)
	if err != nil {
		return err
	}
	defer done()
	if done, err := c.putStretches(st, p); done || err != nil {
		return err
	}
	return c.putRows(st, p)
}

// putRows queues inserts of rows in the order in which they are.
func (c *core) putRows(st *device.Stream, p putParams) error {
	covered := uint64(c.cfg.covered(int64(c.t.Count)))
	if covered == 0 || p.N < uint64(c.cfg.tile) || !c.loadCover() {
		return c.kernel.put.Launch(st, c.grid(int64(p.N)), &p)
	}
	weights, _ := c.cfg.besideAt(int64(c.t.Count))
	p.Weights = c.t.Buckets + uint64(weights)
	for n := p.N; n > 0; n -= p.N {
		p.N = min(n, covered)
		tiles := device.Grid{Blocks: int64((p.N + uint64(c.cfg.tile) - 1) / uint64(c.cfg.tile)), Threads: c.kernel.cover.Threads()}
		cover := coverParams{Keys: p.Keys, Weights: p.Weights, N: p.N, Seed: c.t.Seed}
		if err := c.kernel.cover.Launch(st, tiles, &cover); err != nil {
			return err
		}
		if err := c.kernel.put.Launch(st, c.grid(int64(p.N)), &p); err != nil {
			return err
		}
		p.Keys = after(p.Keys, p.N, c.cfg.keyBytes)
		p.Values = after(p.Values, p.N, c.cfg.valueBytes)
		p.Scores = after(p.Scores, p.N, 4)
		p.Lives = after(p.Lives, p.N, 4)
	}
	return nil
}

// after is the address of a column behind n rows; 0 stays 0, for no column.
func after(column, n uint64, width int) uint64 {
	if column == 0 {
		return 0
	}
	return column + n*uint64(width)
}

// coverProgram has the rows of a batch looked through for those that have one key.
func (c *core) coverProgram() *device.Program {
	p := c.program("cache-cover", coverCU)
	p.Threads = coverThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1},
		device.Define{Name: "CACHE_TILE", Value: c.cfg.tile})
	return p
}

// loadCover tells whether the kernel is there.
func (c *core) loadCover() bool {
	return c.covering.Load(c.frame.Device, c.coverProgram, func(m *device.Module) error {
		return device.Bind(m, "cover", &c.kernel.cover)
	})
}

// checkScores says whether scores fit the policy.
func (c *core) checkScores(given bool) error {
	if given && c.opts.Score != "" {
		return errors.New("cache: scores for a cache with Options.Score, which gives them (want none)")
	}
	if given && c.cfg.policy != Scored {
		return fmt.Errorf("cache: scores for a cache with the policy %v (want Scored, or no scores)", c.cfg.policy)
	}
	return nil
}

// each launches a kernel over all slots of a range of buckets, and gives the pairs that it counted.
func (c *core) each(st *device.Stream, k device.Kernel[slotsParams], p slotsParams) (uint64, error) {
	p.Table = c.t
	err := frame.InTurn(
		func() error { return c.counters.ClearFrom(st, unsafe.Offsetof(Counters{}.Exported)) },
		func() error { return k.Launch(st, c.grid(int64(p.N)*ways), &p) },
		func() error { return c.counters.Look(st) },
	)
	return c.counters.Seen.Exported, err
}

// exporting is how pairs are given out: by ranges of buckets.
func (c *core) exporting(st *device.Stream) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: int64(c.t.Count), Live: live, Export: func(st *device.Stream, r frame.Range) (int64,
		error) {
		n, err := c.each(st, c.kernel.export, slotsParams{First: uint64(r.First), N: uint64(r.Slots), Keys: r.Keys,
			Values: r.Values, Limit: uint64(r.Limit)})
		return int64(n), err
	}}, err
}
