package warpcore

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New and NewMultiMap: those of table.Options, and some of their own. The zero value is
// good.
type Options struct {
	table.Options
	// Layout says how keys and values lie in memory: Auto, which is the zero value, Packed, AoS or SoA. Sets have no
	// layouts: leave it at zero for them.
	Layout Layout
	// Window is the number of slots that are probed together, 1 to 32. It stays the same for the life of the table.
	// Zero means as many slots as fill 64 bytes.
	Window int
	// InsertGroup and FindGroup are how many lanes work on one key, 1 to 32. Zero means what is fastest on the device.
	// On the CPU that is one lane. On a GPU, a look-up takes as many lanes as read a window with one 16-byte load each,
	// or with two if a pair has 16 bytes. An insert on a GPU takes one lane, or above a load factor of 0.85 as many as
	// read the window with two loads each. Any group can use any table.
	InsertGroup, FindGroup int
}

const (
	defaultLoadFactor = 0.8
	windowBytes       = 64
	// tightProbes bounds the windows that an insert reads when the table is nearly full and may not grow: then what does
	// not fit is told soon.
	tightProbes = 256
	// fewProbes is what a batch of few pairs may read instead, of all its pairs together: keys that were deleted and come again, in another order, may have
	// taken one another's slots, and a small table is searched to its end.
	fewProbes = 1 << 12
	// farther is how many times as many windows rows that were refused may read at the next attempt, where the table has room: a chain is as long as its
	// key has values.
	farther = 16
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow.
	firstBatch = 1 << 16
	// aloneLoad: up to this load factor, a lane that inserts alone, sector by sector, is faster than lanes that read a window
	// together.
	aloneLoad = 0.85
	// lastShare: at its bound, a MultiBucket takes what is left of a batch in one part once one slot in so many is free, at most.
	lastShare = 32
	// cleanShare: at its bound, a table is laid anew only for as many tombstones as one slot in so many.
	cleanShare = 16
	// waves is how many times over a grid fills a GPU whose multiprocessors hold 8 blocks.
	waves = 16
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed warpcore.cuh
	warpcoreCUH string
	//go:embed regions.cuh
	regionsCUH string
	//go:embed bring.cuh
	bringCUH string
	//go:embed grouped.cuh
	groupedCUH string
	//go:embed bulk.cuh
	bulkCUH string
	//go:embed multileft.cuh
	multileftCUH string
)

// core is the table under Map, MultiMap, MultiBucket and Set: it owns the memory, and works in addresses and bits.
type core struct {
	frame  frame.Frame
	cfg    config
	opts   Options
	kind   table.Kind
	kernel struct {
		insert, insertNew, insertMulti   inserts
		find, erase, eraseMulti          device.Kernel[findParams]
		rehash, export, probes, distinct device.Kernel[slotsParams]
		rehashGroups                     device.Kernel[slotsParams] // of a multimap with long chains
		long                             longKernels
		absent                           device.Kernel[selectParams]
		refuse                           device.Kernel[insertParams]
		all                              frame.Finder
		partition                        frame.Partitioner
		within                           frame.Within
		chunks                           frame.ChunkSorter
	}
	regions frame.Regions
	stretch stretches
	sorted  sortedKernels

	// Guarded by the frame's lock.
	updates  frame.Operations[inserts]
	over     bool // counts that are too large were seen: a rebuild and a reset forget them
	forecast frame.Forecast
	combining
	sources combining // of the batches of which Sums returns the sums
	choosing
	memory
}

// handle is what users hold of a table. It names core instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type handle struct {
	core   *core
	sorted *frame.Sorted // of a view: how the rows of its next batch come
}

// made is the table, or one whose operations are errors, if no constructor has made it.
func (h *handle) made() *core { return frame.Or(h.core, unmade) }

var unmade = frame.Unmade(func(c *core) *frame.Frame { return &c.frame }, family,
	"a table that New, NewSet, NewCounter, NewMultiMap or NewMultiBucket has not made")

// combining is what is known of the keys of batches whose values are combined: see repeats.
type combining struct {
	repeated       bool
	trusted        int64 // rows that may come until they are looked at again
	distinct, seen int64 // how many keys so many rows had that were looked at
	shared         int64 // bytes of shared memory that a block has that combines rows
	onePass        int64 // so many parts or fewer are made in one pass
}

// keys is how many keys n rows have, as far as is known: more rows than were seen have so many times as many at most.
func (k *combining) keys(n int64) int64 {
	if k.seen == 0 {
		return (n + manyValues - 1) / manyValues
	}
	return min(n, int64(math.Ceil(float64(k.distinct)*max(1, float64(n)/float64(k.seen)))))
}

// memory is what a rebuild replaces.
type memory struct {
	t        Table
	mem      device.Slice[byte]
	counters frame.Counters[Counters]
	filled   int64 // no more than this many slots hold a pair or a tombstone
	unseen   bool  // rows were inserted since the last look
	touched  bool  // something may have been inserted since it was all empty
	long     device.Slice[byte]
	foreign  bool // a kernel of the user's may have inserted since the last look: filled is what it said it would at most
}

func (m *memory) live() int64 { return m.counters.Seen.live() }

func (m *memory) tombstones() int64 { return m.filled - m.live() }

func (m *memory) free(f *frame.Frame) error { return f.Free(&m.counters, m.mem, m.long) }

func (c *core) multi() bool { return c.kind == table.KindMultiMap }

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	files := []device.File{{Name: name + ".cu", Text: main}, {Name: "warpcore.cuh", Text: warpcoreCUH}, {Name: "bulk.cuh", Text: bulkCUH},
		{Name: "regions.cuh", Text: regionsCUH}, {Name: "bring.cuh", Text: bringCUH}, {Name: "grouped.cuh", Text: groupedCUH}, {Name: "long.cuh", Text: longCUH}, {Name: "long_kernels.cuh", Text: longKernelsCUH}, {Name: "multileft.cuh", Text: multileftCUH},
		{Name: "config.h", Text: c.cfg.header("config")}}
	if c.cfg.bucket > 0 {
		files = append(files, device.File{Name: "multibucket.cuh", Text: multibucketCUH})
	}
	return &device.Program{
		Name:  name,
		Files: append(files, more...),
		Defines: append(defines(c.cfg.set()), device.Define{Name: "WARPCORE_INSERT_GROUP", Value: c.opts.InsertGroup},
			device.Define{Name: "WARPCORE_FIND_GROUP", Value: c.opts.FindGroup}, device.Define{Name: "WARPCORE_BUCKETS", Value: c.cfg.bucket > 0},
			device.Define{Name: "WARPCORE_GROUPED_ROWS", Value: c.cfg.groupedRows()},
			device.Define{Name: "WARPCORE_MOVED_ROWS", Value: c.cfg.movedRows()}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := o.Options.Complete(defaultLoadFactor); err != nil {
		return err
	}
	if o.Layout < Auto || o.Layout > SoA {
		return fmt.Errorf("warpcore: layout %d (want Auto, Packed, AoS or SoA)", int(o.Layout))
	}
	cfg.layout, cfg.hash = o.Layout, o.Hash
	if cfg.layout == Auto {
		cfg.layout = Packed
		if !cfg.set() && (cfg.valueBytes > 8 || cfg.slotBytes() > 8 && !info.CAS128) {
			cfg.layout = SoA
		}
	}
	cfg.window = o.Window
	if o.Window == 0 {
		cfg.window = windowBytes / cfg.slotBytes()
	}
	if err := cfg.check(info.CAS128); err != nil {
		return err
	}
	insert, find := 1, 1
	if info.CUDA() {
		find = max(1, cfg.window*cfg.slotBytes()/16)
		insert = max(1, find/2)
		if cfg.layout == Packed && o.Window == 0 && o.LoadFactor <= aloneLoad {
			insert = 1
		}
		if cfg.bucket > 0 { // a lane a slot
			insert, find = 1, cfg.window
		}
	}
	if o.InsertGroup == 0 {
		o.InsertGroup = min(insert, 32)
	}
	if o.FindGroup == 0 {
		o.FindGroup = min(find, 32)
	}
	for _, g := range []int{o.InsertGroup, o.FindGroup} {
		if g < 1 || g > 32 || g&(g-1) != 0 {
			return fmt.Errorf("warpcore: a group of %d lanes (want 1, 2, 4, 8, 16 or 32)", g)
		}
	}
	return nil
}

func newCore(d *device.Device, w frame.Width, o Options, kind table.Kind) (*core, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	c := &core{cfg: config{keyBytes: w.Key, valueBytes: w.Value}, opts: o, kind: kind}
	if c.multi() {
		c.cfg = c.cfg.ofMultimap()
	}
	c.frame.Why = o.Why
	return frame.Made(c, c.frame.Open(family, d, c.begin, c.free))
}

// begin makes an empty table as the options say.
func (c *core) begin() (err error) {
	chosen := c.opts.FindGroup
	if err := c.opts.complete(c.frame.Device.Info(), &c.cfg); err != nil {
		return err
	}
	c.sorted.apart = chosen == 0 && c.opts.FindGroup > 1 && !c.multi()
	c.frame.MaxBytes = c.opts.MaxBytes
	c.regions = frame.RegionsFor(c.frame.Device.Info(), regionsFrom, regionRows)
	c.stretch = stretchesFor(c.frame.Device.Info(), c.cfg)
	c.combining.shared, c.combining.onePass = c.frame.Device.Info().Shared, frame.MaxParts
	c.sources = c.combining
	if c.multi() {
		c.stretch.bytes = multiBytes
	}
	if c.opts.InsertGroup == 1 { // so many lanes are at work at once: blocks that take fewer rows each keep to one region better
		c.regions.Span /= 2
	}
	if err := c.compile(); err != nil {
		return err
	}
	if c.cfg.stretchWindows(1, c.stretch.bytes, false) > 0 {
		frame.AheadOfLate(c.frame.Device, c.loadStretches)
	}
	windows := c.windowsForPairs(int64(c.opts.Capacity))
	side := windowsFor(sideSlots, c.cfg.window)
	if c.opts.MaxBytes > 0 && c.bytes(windows, side) > c.opts.MaxBytes {
		if windows = c.maxWindows(side); windows == 0 {
			return fmt.Errorf("warpcore: MaxBytes of %s leaves no room for a window of %d slots", device.Bytes(c.opts.MaxBytes), c.cfg.window)
		}
	}
	if err := c.allocate(c.frame.Device.Stream(), windows, side); err != nil {
		return err
	}
	return nil
}

// bulkProgram has the kernels of the table's kind: maps, sets, multimaps or MultiBuckets.
func (c *core) bulkProgram() *device.Program {
	switch {
	case c.cfg.bucket > 0:
		return c.program("warpcore-multibucket", multibucketCU)
	case c.multi():
		return defining("WARPCORE_MULTI", true, defining("WARPCORE_MAP", false, c.program("warpcore", kernelsCU)))
	}
	return c.program("warpcore", kernelsCU)
}

// compile gets the kernels. Those that a table of its kind will hardly do without are compiled in the background.
func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.bulkProgram())
	if err != nil {
		return err
	}
	k := &c.kernel
	k.partition, err = frame.NewPartitioner[partitionParams](c.frame.Device, m)
	err = errors.Join(err, device.Bind(m, "find", &k.find), device.Bind(m, "rehash", &k.rehash), device.Bind(m, "export_pairs", &k.export),
		device.Bind(m, "probe_lengths", &k.probes))
	if err != nil {
		return err
	}
	if k.within, err = frame.NewWithin[partitionParams](m); err != nil {
		return err
	}
	if k.chunks, err = frame.NewChunkSorter[partitionParams](m); err != nil {
		return err
	}
	k.insert.stretch, k.insertNew.stretch = &c.stretch.replacing, &c.stretch.adding
	if c.kind == table.KindMap || c.kind == table.KindSet {
		if err := frame.AheadOfFinds(c.opts.Work, k.find); err != nil {
			return err
		}
	}
	switch {
	case c.multi():
		return c.bindMulti(m)
	case c.cfg.set():
		return errors.Join(device.Bind(m, "insert_new", &k.insertNew.rows), device.Bind(m, "erase", &k.erase), device.Bind(m, "absent", &k.absent),
			device.Bind(m, "insert_left_new", &k.insertNew.left),
			device.Bind(m, "refuse_absent", &k.refuse))
	}
	return errors.Join(device.Bind(m, "insert", &k.insert.rows), device.Bind(m, "insert_new", &k.insertNew.rows), device.Bind(m, "erase", &k.erase),
		device.Bind(m, "insert_left", &k.insert.left), device.Bind(m, "insert_left_new", &k.insertNew.left), device.Bind(m, "refuse_absent", &k.refuse))
}

// bindMulti finds what only multimaps have.
func (c *core) bindMulti(m *device.Module) (err error) {
	k := &c.kernel
	k.all, err = frame.NewFinder[findAllParams](m, true)
	err = errors.Join(err, device.Bind(m, "insert_groups", &k.insertMulti.groups), device.Bind(m, "rehash_groups", &k.rehashGroups))
	if k.insertMulti.longs = k.insertMulti.groups; c.cfg.bucket == 0 {
		err = errors.Join(err, k.all.Aside(m), device.Bind(m, "insert_long_groups", &k.insertMulti.longs),
			device.Bind(m, "insert_left_multi", &k.insertMulti.left))
		k.insertMulti.stretch = &c.stretch.multi
	}
	err = errors.Join(err, k.long.bind(m), device.Bind(m, "insert_multi", &k.insertMulti.rows), device.Bind(m, "erase_multi", &k.eraseMulti),
		device.Bind(m, "distinct", &k.distinct))
	return errors.Join(err, k.insertMulti.rows.Ahead())
}

// Sizes. A table has windows of cfg.window slots, and a side region beside.

func (c *core) windowsForPairs(pairs int64) int64 {
	slots := int64(min(math.Ceil(float64(pairs)/c.opts.LoadFactor), 1<<50)) // more than any memory, less than overflows
	return c.cfg.windowsFor(max(slots, 2*int64(c.cfg.window)))
}

// capacity, and filled and live, count slots.
func (c *core) capacity() int64 { return int64(c.t.Main.Windows) * int64(c.cfg.window) }

// limit is how many slots may be filled before the table grows.
func (c *core) limit() int64 { return int64(float64(c.capacity()) * c.opts.LoadFactor) }

// pairs is how many pairs are in, a slot each but in a MultiBucket, and pairCapacity how many there could be, if the others had a slot each.
func (c *core) pairs() int64 {
	if c.cfg.bucket > 0 {
		return int64(c.counters.Seen.Added - c.counters.Seen.Removed)
	}
	return c.live()
}

func (c *core) pairCapacity() int64 { return c.capacity() - c.live() + c.pairs() }

// place lays out a table from an address on, and says where it ends.
func (c *core) place(base, windows, side int64) (t Table, end int64) {
	w := int64(c.cfg.window)
	take := func(bytes int64) uint64 {
		at := base
		base += frame.Align(bytes)
		return uint64(at)
	}
	t.Main.Windows, t.Side.Windows = uint64(windows), uint64(side)
	for _, r := range []*Region{&t.Main, &t.Side} {
		r.Slots = take(int64(r.Windows) * w * int64(c.cfg.slotBytes()))
	}
	for _, r := range []*Region{&t.Main, &t.Side} {
		if c.cfg.layout == SoA {
			r.Values = take(int64(r.Windows) * w * int64(c.cfg.valueBytes))
		}
	}
	for _, r := range []*Region{&t.Main, &t.Side} {
		r.Overflow = take(c.cfg.overflowBytes(int64(r.Windows)))
	}
	if n := hints(windows); n > 0 && c.multi() {
		t.Hints, t.HintMask = take((n+sideHints)*hintBytes), uint64(n-1)
	}
	t.Seed = c.opts.Seed
	return t, base
}

func (c *core) bytes(windows, side int64) int64 {
	_, end := c.place(0, windows, side)
	return end
}

// maxWindows is the largest number of windows that MaxBytes allows; 0 if none.
func (c *core) maxWindows(side int64) int64 {
	fits := func(w int64) bool { return c.bytes(w, side) <= c.opts.MaxBytes }
	from, to := int64(0), c.opts.MaxBytes/int64(c.cfg.window*c.cfg.pairBytes())+1 // from fits, to does not
	for from+1 < to {
		if mid := (from + to) / 2; fits(mid) {
			from = mid
		} else {
			to = mid
		}
	}
	return c.cfg.windowsUpTo(from)
}

// allocate makes an empty table of the given size: all bytes 0xff, the counters 0. It waits for the stream.
func (c *core) allocate(st *device.Stream, windows, side int64) (err error) {
	old := c.memory
	if err = c.reserve(st, windows, side); err != nil {
		return err
	}
	if err = errors.Join(c.mem.Fill(st, 0xff), st.SyncOf(c.frame.Device)); err != nil {
		c.memory.free(&c.frame)
		c.memory = old
	}
	return err
}

// reserve is allocate for a table that is not yet filled. It does not wait.
func (c *core) reserve(st *device.Stream, windows, side int64) (err error) {
	var m memory
	defer func() {
		if err != nil {
			m.free(&c.frame)
		}
	}()
	if err = c.frame.Budget(c.bytes(windows, side)); err != nil {
		return err
	}
	if m.mem, err = frame.Make[byte](&c.frame, c.bytes(windows, side)); err != nil {
		return err
	}
	if err = m.counters.Make(&c.frame, st); err != nil {
		return err
	}
	m.t, _ = c.place(int64(m.mem.Addr()), windows, side)
	m.t.Counters = m.counters.Addr()
	c.memory = m
	return nil
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	if err := c.counters.Look(st); err != nil {
		return 0, err
	}
	c.filled, c.foreign, c.unseen = c.counters.Seen.filled(), false, false
	c.over = c.over || c.counters.Seen.Over > 0
	return c.pairs(), nil
}

// reset sets the counters that are not sums.
func (c *core) reset(st *device.Stream) error {
	k := &c.counters.Seen
	k.Failed, k.SideFailed, k.Exported, k.Over = 0, 0, 0, 0
	return c.counters.Set(st)
}

// grid covers n items.
func (c *core) grid(n int64) device.Grid { return c.frame.FedGrid(n, 8*waves) }

// insertion takes batches in with the kernel.
func (c *core) insertion(k inserts) frame.Insertion {
	x := frame.Insertion{
		Put:  func(st *device.Stream, b frame.Rows) ([]int, error, error) { return c.insert(st, k, b) },
		Find: c.find,
		Size: func() (int64, int64) { return c.pairCapacity(), c.pairs() },
	}
	if c.multi() {
		x.Find = nil
	}
	return x
}

// insert inserts pairs, growing as it must. It returns at once where the table is known to have room. The positions that do not
// fit come back with the reason.
func (c *core) insert(st *device.Stream, k inserts, b frame.Rows) (refused []int, why, err error) {
	return c.insertAs(st, k, b, nil)
}

// exactly makes an insert, or several of one operation, say exactly which positions had no effect. Others are content where the key is in: it has
// one of the values then.
type exactly struct {
	bounded bool // searches are, once the table may not grow: so that a key that found no room finds none later
}

func (c *core) insertAs(st *device.Stream, k inserts, b frame.Rows, exact *exactly) (refused []int, why, err error) {
	// A pair more than a kernel of the user's said would be lost; of a multimap, the side region may be full.
	bounded := exact != nil && exact.bounded
	if !c.foreign && !c.multi() && !bounded && c.filled+b.N <= c.limit() {
		c.filled += b.N
		if err = c.launchInsert(st, k, insertParams{Table: c.t, Limit: ^uint64(0)}, b); errors.Is(err, frame.ErrPairs) {
			c.filled -= b.N
		}
		return nil, nil, err
	}
	if b.Sorted.IsPaired() {
		return nil, nil, frame.ErrPairs
	}
	if !c.multi() && !bounded {
		if err := device.Ahead(k.rows, c.kernel.rehash); err != nil {
			return nil, nil, err
		}
	}
	if err := b.Sorted.Wait(st); err != nil {
		return nil, nil, err
	}
	if _, err := c.look(st); err != nil {
		return nil, nil, err
	}
	if exact != nil && !bounded && c.sumsFit(k, b) {
		taken, err := c.insertSums(st, k, b)
		if err != nil || taken == b.N {
			return nil, nil, err
		}
		if taken > 0 {
			rest := b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, c.cfg.keyBytes, c.cfg.valueBytes)
			refused, why, err = c.insertAs(st, k, rest, exact)
			for i := range refused {
				refused[i] += int(taken)
			}
			return refused, why, err
		}
	}
	sure, tight := false, uint64(tightProbes)
	if exact == nil { // whose searches have the same bound in all batches of an operation
		tight = max(tight, uint64(fewProbes/max(b.N, 1)))
	}
	switch {
	case c.cfg.bucket > 0:
		sure, tight, err = c.ahead(st, b)
	case exact != nil && b.N > firstBatch && c.filled+b.N > c.limit():
		sure, err = c.aheadOfKeys(st, b, k.combine != device.Kernel[combineParams]{})
	case exact == nil:
		err = c.growFirst(st, b)
	}
	if err != nil {
		return nil, nil, err
	}
	keys := b.Keys
	if exact != nil || c.multi() || b.When != 0 || !c.frame.Device.Info().CUDA() || !frame.CanCount(c.cfg.keyBytes) {
		keys = 0 // not counted: rows that are not chosen would be, and cores do not gain by it
	}
	if before := c.live(); c.cfg.bucket == 0 {
		defer func() { c.forecast.Learn(b.N, before, c.live()) }()
	}
	var left, aside int64 // rows that the last attempt refused, and those of them that have reserved keys
	limit := tight
	goFarther := func() bool {
		far := exact == nil && limit < c.cfg.longest(max(c.t.Main.Windows, c.t.Side.Windows))
		if far {
			limit *= farther
		}
		return far
	}
	settle := func(int64) (attempt uint64, err error) {
		room := left > aside && c.filled < c.fillable()
		if !room && aside > 0 && limit < c.cfg.longest(c.t.Side.Windows) {
			taken, slots, err := c.sideSlots(st, 0)
			if err != nil {
				return 0, err
			}
			room = taken < slots
		}
		if room && goFarther() {
			attempt = 1
		}
		return attempt, nil
	}
	if exact != nil { // keys that got in meanwhile have room for all their rows
		last := int64(-1)
		settle = func(left int64) (attempt uint64, err error) {
			if left != last {
				last, attempt = left, 1
			}
			return attempt, nil
		}
	}
	return frame.Inserter{
		Try: c.frame.Tries(firstBatch), Keys: keys, KeyBytes: c.cfg.keyBytes,
		Launch: func(p frame.Part) error {
			q := insertParams{Table: c.t, Rows: frame.Placing{Refused: p.Refused, Attempt: p.Attempt}, Limit: ^uint64(0)}
			rows := int64(p.N)
			if p.Attempt == 0 {
				limit = tight
			} else {
				rows = left
			}
			if c.filled+rows > c.fillable() && (!sure || exact != nil) || exact != nil && exact.bounded {
				q.Limit = limit // some may not fit: to know soon is better than to search on
				if exact != nil {
					q.Limit = max(q.Limit, c.counters.Seen.MaxProbes)
				}
			}
			if p.Attempt > 0 {
				if err := c.reset(st); err != nil {
					return err
				}
			}
			return c.launchInsert(st, k, q, b.Part(p, c.cfg.keyBytes, c.cfg.valueBytes))
		},
		Look: func() (refused, live int64, err error) {
			_, err = c.look(st)
			left = int64(c.counters.Seen.Failed)
			aside = min(left, int64(c.counters.Seen.SideFailed))
			return left, c.live(), err
		},
		Room: func(want int64, bound bool) (int64, error) {
			room := c.limit() - c.filled
			if bound {
				room = c.fillable() - c.filled
			}
			switch {
			case sure && want > 0:
				return want, nil
			case bound && c.cfg.bucket > 0 && room < c.capacity()/lastShare: // a part leaves more room than it has rows less: not forever
				return 0, nil
			}
			return room, nil
		},
		After: func() error {
			if c.counters.Seen.Failed == 0 {
				return nil
			}
			return c.reset(st)
		},
		Grow: func(refused, _, pairs int64) (why, err error) {
			side := int64(c.t.Side.Windows)
			if refused > 0 && aside > 0 {
				need, slots, err := c.sideSlots(st, aside)
				if err != nil {
					return nil, err
				}
				if need > slots {
					side = windowsFor(2*need, c.cfg.window)
				}
			}
			if refused > 0 && side == int64(c.t.Side.Windows) && c.filled+refused <= c.limit() && goFarther() {
				return nil, nil // all have room
			}
			why, err = c.grow(st, pairs+1, side)
			if exact != nil && why != nil {
				exact.bounded = true
			}
			return why, err
		},
		Settle: settle,
	}.Run(&c.frame, st, b.N, c.live())
}

// growFirst makes room for the pairs that a batch is expected to bring: all rows of a multimap are pairs. If that cannot
// be, the parts of the batch do with less.
func (c *core) growFirst(st *device.Stream, b frame.Rows) (err error) {
	var pairs int64
	switch {
	case !c.multi():
		pairs, err = c.forecast.Pairs(&c.frame, st, b, c.live(), c.limit(), c.find)
	case b.When == 0 && c.filled+b.N > c.limit():
		pairs = c.live() + b.N
	}
	if err == nil && pairs > 0 {
		_, err = c.grow(st, pairs, 0)
	}
	return err
}

// aheadOfKeys makes room for a large batch in which keys may come again and again, by an estimate of how many distinct keys it has, and tells whether all
// of them have room. combines says that it will be asked whether the batch repeats keys, too: then repeats need not look again.
func (c *core) aheadOfKeys(st *device.Stream, b frame.Rows, combines bool) (sure bool, err error) {
	distinct, crowd, err := c.frame.Distinct(st, b.Keys, c.cfg.keyBytes, b.N)
	if device.IsOutOfMemory(err) || distinct == 0 {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if combines && c.trusted <= 0 && b.N >= c.regions.MinRows && b.N <= c.regions.PieceRows {
		c.learn(distinct, crowd, b.N)
	}
	slack := distinct/32 + 8
	if distinct-slack > c.limit() {
		if _, err := c.grow(st, min(b.N, distinct), 0); err != nil {
			return false, err
		}
	}
	return c.filled+min(b.N, distinct+slack) <= c.fillable(), nil
}

// inserts are the kernels of an operation that takes batches in. Some have rows alone.
type inserts struct {
	rows   device.Kernel[insertParams]
	groups device.Kernel[groupParams] // of a multimap, which has a slot for each: all rows of a key at once
	longs  device.Kernel[groupParams] // the same where some keys have very many

	combine device.Kernel[combineParams] // rows of a key become one, which sums takes
	sums    device.Kernel[insertParams]

	stretch *device.Kernel[stretchParams] // the same rows, stretch by stretch: see stretch.go, and stretch_multi.go
	left    device.Kernel[insertParams]   // of these, what is left over
}

// launchInsert queues an insert of rows.
func (c *core) launchInsert(st *device.Stream, k inserts, p insertParams, b frame.Rows) error {
	empty := !c.touched
	p.When, c.unseen, c.touched = b.When, true, true
	if err := c.aheadOf(k, b.N); err != nil {
		return err
	}
	if p.Rows.Attempt == 0 && b.Out == 0 && b.When == 0 {
		var done bool
		var taken int64 // rows, from the first on
		var err error
		switch {
		case b.Flags != 0 && k.stretch != &c.stretch.adding: // only these tell rows
		case k.combine != device.Kernel[combineParams]{} && c.ordered(b):
			if err = b.Sorted.Wait(st); err == nil {
				done, err = c.repeats(st, b)
			}
			if done && err == nil {
				done, err = c.insertCombined(st, k, p, b)
			}
		case k.groups != device.Kernel[groupParams]{} && (c.cfg.bucket > 0 || p.Limit == ^uint64(0) && c.filled+b.N <= c.limit()):
			if err = b.Sorted.Wait(st); err == nil {
				taken, err = c.insertGroups(st, k, p, b, empty)
			}
		case k.stretch != nil && !c.multi():
			taken, err = c.insertStretches(st, k, p, b, empty)
		}
		if done = done || taken == b.N; taken > 0 && !done { // the others, as they are
			b = b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, c.cfg.keyBytes, c.cfg.valueBytes)
			p.Table = c.t // which may be another: see insertReserved
			if p.Rows.Refused != 0 {
				p.Rows.Refused += uint64(taken / 8)
			}
		}
		if done || err != nil {
			return err
		}
	}
	if b.Sorted.IsPaired() {
		return frame.ErrPairs
	}
	if err := b.Sorted.Wait(st); err != nil {
		return err
	}
	return c.kernel.partition.Place(&c.frame, st, c.placement(p.Rows.Refused != 0, func(g device.Grid, rows frame.Placing) error {
		p.Rows = rows
		if rows.Span == 0 && k.combine != (device.Kernel[combineParams]{}) && !c.frame.Device.Info().CUDA() {
			g = c.frame.LongGrid(int64(rows.N), 8*waves)
		}
		return k.rows.Launch(st, g, &p)
	}), p.Rows, b)
}

// aheadOf begins to compile what a batch of n rows takes, all at once, before one waits for the other.
func (c *core) aheadOf(k inserts, n int64) (err error) {
	if k.groups == (device.Kernel[groupParams]{}) {
		err = k.rows.Ahead()
	}
	if !c.frame.Device.Info().CUDA() || c.regions.Count(n, int64(c.mem.Len())) == 0 {
		return err
	}
	if k.combine != (device.Kernel[combineParams]{}) {
		c.frame.AheadOfDistinct(c.cfg.keyBytes)
	}
	return errors.Join(err, c.kernel.partition.Ahead())
}

// ordered tells whether a batch is so large that it is brought in the order of the table.
func (c *core) ordered(b frame.Rows) bool { return c.regions.Count(b.N, int64(c.mem.Len())) > 0 }

// repeats tells whether keys come so often in a batch that to combine their rows first is worth it: manyValues times in a piece that is brought in order at
// once, or one key in many rows. It waits, so what it saw holds for the batches that come next, too, until they have enough rows.
func (c *core) repeats(st *device.Stream, b frame.Rows) (bool, error) {
	if c.trusted > 0 {
		c.trusted -= b.N
		return c.repeated, nil
	}
	piece := min(b.N, c.regions.PieceRows)
	distinct, crowd, err := c.frame.Distinct(st, b.Keys, c.cfg.keyBytes, piece)
	if device.IsOutOfMemory(err) {
		return false, nil
	}
	if err == nil {
		c.learn(distinct, crowd, piece)
		c.trusted -= b.N
	}
	return c.repeated, err
}

// learn takes it that batches have as many keys as so many rows that were looked at.
func (c *core) learn(distinct, crowd, rows int64) {
	c.repeated = distinct > 0 && (distinct < rows/manyValues || crowd > rows/crowdedShare)
	c.distinct, c.seen = distinct, rows
	c.trusted = repeatsTrusted * rows
}

const (
	// manyValues is from how many rows a key on, on average, a multimap's are brought together; or if most rows have a key that has very many. Values are
	// combined first from as many on: on an H200 that is 8.9 G rows/s where all keys are distinct, and 12.0 as they come; with 16 rows a key 20 and 18.
	manyValues = 3
	// mostInStretches is how many rows a key of a multimap has at most, on average, if they go in stretch by stretch. Of those of keys with 96 rows each, 1 in
	// 40 finds no room in its neighbourhood at a load factor of 0.8, and reads 10 windows in shared memory.
	mostInStretches = 96
	// inStretchesAsked: one row in so many is asked at first whether keys have more. In all rows, they have no more than so many times as many as in these.
	inStretchesAsked = 8
	// Rows of a stretch are sorted from haveRuns rows a key on, on average. If one row in inStretchesAsked is asked and these have askedHaveRuns rows a
	// key, all rows have about 3. From haveLongRuns on, a warp puts those of a key, where otherwise 8 lanes do: on an H200 rows of keys with 64 each go in
	// at 16.8 G/s so, and at 11.9; of keys with 8 each at 16.2 and 21.6.
	haveRuns, askedHaveRuns, haveLongRuns = 2, 1.15, 24
	// A piece of a batch is looked at for that, in 0.2 to 0.7 ms, once in so many times its rows; crowdedShare is what share of rows a row's key has, then.
	repeatsTrusted, crowdedShare = 64, 64
	// Smaller batches than unasked are not asked for that, and those of less than contended rows only if chains are long: fewer rows of a key are not
	// in one another's way.
	unasked, contended = 1 << 12, 1 << 17
)

// insertGroups inserts rows of a multimap, which has a slot for each, those of a key at once, if keys have very many; or stretch by stretch:
// taken tells how many rows went in. It waits. A MultiBucket, whose room is an estimate, says which rows found none.
func (c *core) insertGroups(st *device.Stream, k inserts, p insertParams, b frame.Rows, empty bool) (taken int64, err error) {
	if !c.ordered(b) && !c.stretched(k, b.N) && (b.N < unasked || b.N < contended && c.counters.Seen.MaxProbes <= longWindows) {
		return 0, nil
	}
	if c.stretched(k, b.N) {
		distinct, crowd, read, err := c.frame.DistinctOf(st, b.Keys, c.cfg.keyBytes, b.N, inStretchesAsked)
		if err != nil && !device.IsOutOfMemory(err) {
			return 0, err
		}
		if distinct > 0 && crowd == 0 && b.N/distinct <= mostInStretches {
			each := int64(1)
			if float64(distinct)*askedHaveRuns < float64(read) {
				each = b.N / distinct
			}
			return c.insertMultiStretches(st, k, p, b, empty, each)
		}
	}
	distinct, crowd, err := c.frame.Distinct(st, b.Keys, c.cfg.keyBytes, b.N)
	if err != nil && !device.IsOutOfMemory(err) {
		return 0, err
	}
	crowded := crowd >= int64(longWindows*c.cfg.window)
	if distinct > 0 && !crowded && b.N/distinct <= mostInStretches && c.stretched(k, b.N) {
		return c.insertMultiStretches(st, k, p, b, empty, b.N/distinct)
	}
	if distinct == 0 || distinct > b.N/manyValues && !crowded {
		return 0, nil
	}
	live, err := c.look(st)
	if err != nil {
		return 0, err
	}
	kernel, q := k.groups, groupParams{Table: c.t, Refused: p.Rows.Refused, Limit: p.Limit}
	if crowded || c.counters.Seen.MaxProbes > longWindows || b.N/distinct >= int64(longWindows*c.cfg.window) {
		kernel, q.Longs = k.longs, 1
	}
	insert := func(r frame.Partition) error {
		q.Rows = r
		return kernel.Launch(st, c.frame.BlockGrid(int64(r.N), 8), &q)
	}
	done := false
	if c.ordered(b) {
		x := c.placement(c.cfg.bucket > 0, nil)
		done, err = c.kernel.partition.InSmallParts(&c.frame, st, c.kernel.within, x, b, 0, frame.PartsOf(int64(togetherShare*float64(c.cfg.groupedRows()))), insert)
	}
	if !done && err == nil {
		err = c.frame.InOnePart(st, b, insert)
	}
	if err != nil {
		return b.N, err
	}
	return b.N, c.insertedMulti(st, k, p, b, live)
}

// insertedMulti is behind kernels that inserted rows of a multimap, which had so many slots filled before. It inserts those rows that these only
// counted, because they have reserved keys. It waits.
func (c *core) insertedMulti(st *device.Stream, k inserts, p insertParams, b frame.Rows, before int64) error {
	now, err := c.look(st)
	if err != nil {
		return err
	}
	reserved := int64(c.counters.Seen.SideFailed)
	if missing := b.N - (now - before) - reserved; missing != 0 && (c.cfg.bucket == 0 || missing != int64(c.counters.Seen.Failed)) {
		return fmt.Errorf("warpcore: %d of %d pairs found no slot where all have one: this is a defect of warpmap", missing, b.N)
	}
	if reserved == 0 {
		return nil
	}
	return c.insertReserved(st, k, p, b, reserved)
}

// insertReserved inserts those rows that have reserved keys, so many.
func (c *core) insertReserved(st *device.Stream, k inserts, p insertParams, b frame.Rows, rows int64) error {
	refused := c.counters.Seen.Failed > 0 // rows that are counted
	if !refused {
		if err := c.reset(st); err != nil {
			return err
		}
	}
	if rows >= unasked && !refused {
		need, slots, err := c.sideSlots(st, rows)
		if err != nil {
			return err
		}
		if need > slots {
			if _, err := c.growTo(st, c.live()+rows, int64(c.t.Main.Windows), windowsFor(2*need, c.cfg.window)); err != nil {
				return err
			}
			p.Table = c.t
			slots = c.sideLimit()
		}
		if need <= slots {
			return c.frame.InOnePart(st, b, func(r frame.Partition) error {
				return k.longs.Launch(st, c.frame.BlockGrid(b.N, 8), &groupParams{Table: c.t, Rows: r, Reserved: 1, Refused: p.Rows.Refused, Limit: ^uint64(0), Longs: 1})
			})
		}
	}
	p.Rows, p.Reserved = p.Rows.Of(frame.Ordered{Rows: b}), 1
	return k.rows.Launch(st, c.grid(b.N), &p)
}

// sideLimit is up to how many of its slots the side region takes rows that are sure to find one: half of them at least, for it grows to twice what is needed.
func (c *core) sideLimit() int64 {
	return int64(float64(int64(c.t.Side.Windows)*int64(c.cfg.window)) * max(c.opts.LoadFactor, 0.5))
}

// sideSlots tells how many slots of the side region the pairs with reserved keys take at most once there are so many more, and how many may be taken.
// It waits.
func (c *core) sideSlots(st *device.Stream, more int64) (need, slots int64, err error) {
	main, side := int64(c.t.Main.Windows)*int64(c.cfg.window), int64(c.t.Side.Windows)*int64(c.cfg.window)
	live, err := c.exporting(st, c.kernel.export, slotsParams{First: uint64(main), Slots: uint64(side)})
	if need = live + more; c.cfg.bucket > 0 {
		need = c.slotsFor(need, min(need, sideSlots))
	}
	return need, c.sideLimit(), err
}

// insertCombined inserts rows that are combined with those of the same key first: done tells whether it did. It waits only where positions may be
// refused: these are then those whose keys are not in, for a key that found no room within a limit that stays finds none later.
func (c *core) insertCombined(st *device.Stream, k inserts, p insertParams, b frame.Rows) (done bool, err error) {
	done, err = c.combine(st, k, b, nil, func(_ int64, sums insertParams) error {
		sums.Limit = p.Limit
		return k.sums.Launch(st, frame.Spanned(int64(sums.Rows.N), c.regions.Span), &sums)
	})
	if !done || err != nil || p.Rows.Refused == 0 {
		return done, err
	}
	if _, err := c.look(st); err != nil || c.counters.Seen.Failed == 0 {
		return true, err
	}
	if err := c.reset(st); err != nil {
		return true, err
	}
	p.Rows = p.Rows.Of(frame.Ordered{Rows: b})
	return true, c.kernel.refuse.Launch(st, c.grid(b.N), &p)
}

// sumsFit tells whether a batch is one of those of which insertSums will put in all rows, as far as is known of the batches before.
func (c *core) sumsFit(k inserts, b frame.Rows) bool {
	return k.combine != device.Kernel[combineParams]{} && c.repeated && c.trusted > 0 && c.seen > 0 && b.Out == 0 && b.When == 0 && c.ordered(b) &&
		c.filled+c.keys(b.N) <= c.fillable()
}

// insertSums inserts the front of a batch as insertCombined does, but each piece only once it is known that all that is left of it has room: so nothing
// is refused, and nobody need estimate how many keys the batch has. taken tells how many rows went in. It waits once a piece.
func (c *core) insertSums(st *device.Stream, k inserts, b frame.Rows) (taken int64, err error) {
	c.unseen, c.touched = true, true
	c.trusted -= b.N
	_, err = c.combine(st, k, b, nil, func(rows int64, sums insertParams) error {
		if _, err := c.look(st); err != nil {
			return err
		}
		left := int64(c.counters.Seen.Exported)
		c.distinct, c.seen = left, rows
		if c.filled+left > c.fillable() {
			return errNoRoom
		}
		c.filled += left // or less
		c.unseen = true
		taken += rows
		sums.Rows.N, sums.Limit = uint64(left), ^uint64(0)
		return k.sums.Launch(st, frame.Spanned(left, c.regions.Span), &sums)
	})
	if errors.Is(err, errNoRoom) {
		err = nil
	}
	if err != nil || c.filled <= c.limit() {
		return taken, err
	}
	if _, err := c.look(st); err != nil || c.filled <= c.limit() {
		return taken, err
	}
	_, err = c.grow(st, c.live()+1, 0) // as far as it may: all rows are in
	return taken, err
}

var errNoRoom = errors.New("what is left of a piece may find no room")

// combine sorts a batch by parts of the table, piece by piece, and combines rows of one key. It calls insert with the
// number of rows of a piece and with what is left of them, at most as many rows. Counters.Exported counts these. If
// place is not nil, it chooses the memory where they are written. done is false if there is too little memory.
func (c *core) combine(st *device.Stream, k inserts, b frame.Rows, place func(r *frame.Partition) error,
	insert func(rows int64, sums insertParams) error) (done bool, err error) {
	x := c.placement(false, nil)
	x.Pairs, x.OnePass = true, c.combining.onePass
	if b.Values == 0 {
		x.ValueBytes = 0
	}
	ahead := []interface{ Ahead() error }{k.combine, k.sums}
	if c.combinedParts(min(b.N, c.regions.PieceRows)) > x.OnePass {
		ahead = append(ahead, c.kernel.within)
	}
	if err := device.Ahead(ahead...); err != nil {
		return false, err
	}
	return c.kernel.partition.InSmallParts(&c.frame, st, c.kernel.within, x, b, int64(c.cfg.valueBytes), c.combinedParts, func(r frame.Partition) error {
		if place != nil {
			if err := place(&r); err != nil {
				return err
			}
		}
		mean := (int64(r.N) + int64(r.Parts) - 1) / int64(r.Parts)
		keys := (c.combining.keys(int64(r.N)) + int64(r.Parts) - 1) / int64(r.Parts) // of a part; there may be more than is known
		entries := min(c.cfg.combinedEntries(c.combining.shared), max(leastEntries, min(2*mean, combineSlack*keys)&^3))
		q := combineParams{Table: c.t, Rows: r, Entries: uint64(entries), Most: uint64(combineMost * mean)}
		grid := device.Grid{Blocks: min(int64(r.Parts), int64(c.frame.Device.Info().Multiprocessors)), Threads: combineThreads, Shared: c.cfg.combinedBytes(entries)}
		if !c.frame.Device.Info().CUDA() {
			grid.Threads = frame.Threads
		}
		if err := frame.InTurn(
			func() error { return c.counters.ClearFrom(st, unsafe.Offsetof(Counters{}.Exported)) },
			func() error { return k.combine.Launch(st, grid, &q) },
		); err != nil {
			return err
		}
		sums := insertParams{Table: c.t, Rows: frame.Placing{Keys: r.OutKeys, Values: r.OutValues, N: r.N, Span: uint64(c.regions.Span)}}
		if b.Values == 0 {
			sums.Ones = 1
		}
		return insert(int64(r.N), sums)
	})
}

// combinedParts is how many parts so many rows are brought into that are combined: so many that the keys of a part have room in the shared memory of a
// block, and that all multiprocessors have something to do until the end.
func (c *core) combinedParts(rows int64) int64 {
	blocks := int64(c.frame.Device.Info().Multiprocessors)
	fill := int64(combineFill * float64(c.cfg.combinedEntries(c.combining.shared)))
	parts := max((c.combining.keys(rows)+fill-1)/fill, min(combineWaves*blocks, rows/combineRows), 1)
	if even := (parts + blocks - 1) / blocks * blocks; parts > blocks && even <= c.combining.onePass {
		return even
	}
	return parts
}

func (c *core) placement(positions bool, launch func(g device.Grid, rows frame.Placing) error) frame.Placement {
	return frame.Placement{
		Regions: &c.regions, Bytes: int64(c.mem.Len()), KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Positions: positions,
		Params: func(rows frame.Partition) any { return &partitionParams{Table: c.t, Rows: rows} },
		Launch: launch, Grid: c.grid,
	}
}

// fillable is how many slots an insert may search for without a bound: near the end of a large table, searches get long.
func (c *core) fillable() int64 {
	if int64(c.t.Main.Windows) <= tightProbes {
		return c.capacity()
	}
	return c.capacity() / 100 * 98
}

// grow makes room for pairs in all, and for a side region of so many windows, if it has fewer. why says what forbids it: then the table is as it was.
func (c *core) grow(st *device.Stream, pairs, side int64) (why, err error) {
	windows := int64(c.t.Main.Windows)
	if pairs > c.limit() || c.tombstones() < c.capacity()/4 {
		want := c.windowsForPairs(pairs)
		if side <= int64(c.t.Side.Windows) || want > windows {
			want = max(want, c.cfg.windowsFor(2*windows*int64(c.cfg.window)))
		}
		windows = max(windows, want)
	}
	return c.growTo(st, pairs, windows, max(side, int64(c.t.Side.Windows)))
}

// growTo is grow to so many windows, or as many as there may be: fewer, too, where the side region wants the memory and the pairs have room.
func (c *core) growTo(st *device.Stream, pairs, windows, side int64) (why, err error) {
	if limit := c.opts.MaxBytes; limit > 0 && c.bytes(windows, side) > limit {
		windows = c.maxWindows(side)
		more := side > int64(c.t.Side.Windows)
		gains := windows > int64(c.t.Main.Windows) || more || c.tombstones() > c.capacity()/cleanShare
		fewer := windows < int64(c.t.Main.Windows) && (!more || windows < c.windowsForPairs(pairs))
		if fewer || !gains {
			return frame.AtMaxBytes(limit), nil
		}
	}
	if err = c.rebuild(st, windows, side); device.IsOutOfMemory(err) {
		return err, nil
	}
	return nil, err
}

// rebuild moves all pairs to a new table of the given size; on an error the old one stands. It waits for the stream. What the frame keeps for the next
// batch, which made the table grow, it gives back only where memory is short: see frame.Make.
func (c *core) rebuild(st *device.Stream, windows, side int64) error {
	if _, err := c.look(st); err != nil {
		return err
	}
	old := c.memory
	if err := c.reserve(st, windows, side); err != nil {
		return err
	}
	c.touched = true
	moved, err := c.moveStretches(st, &old)
	if err == nil && !moved {
		err = frame.InTurn(
			func() error { return c.mem.Fill(st, 0xff) },
			func() error { return c.moveSlots(st, &old) },
			func() error { _, err := c.look(st); return err },
		)
	}
	if failed := c.counters.Seen.Failed; err == nil && failed > 0 {
		err = fmt.Errorf("warpcore: %d pairs found no slot in a larger table: this is a defect of warpmap", failed)
	}
	if err == nil && moved && c.live() != old.live() {
		err = fmt.Errorf("warpcore: %d of %d pairs are in the new table: this is a defect of warpmap", c.live(),
			old.live())
	}
	if err != nil {
		err = errors.Join(err, c.memory.free(&c.frame))
		c.memory = old
		return err
	}
	return old.free(&c.frame)
}

// moveSlots queues the move of all pairs of an old table into the table, slot by slot.
func (c *core) moveSlots(st *device.Stream, old *memory) (err error) {
	slots := int64(old.t.Main.Windows+old.t.Side.Windows) * int64(c.cfg.window)
	grid, span := c.grid(slots), int64(0)
	if c.frame.Device.Info().CUDA() {
		span = c.regions.Span
		grid = frame.Spanned(slots, span)
	}
	p := slotsParams{Table: old.t, Target: c.t, Span: uint64(span)}
	rest := true
	if long := old.counters.Seen.MaxProbes > longWindows; long && c.multi() {
		err = c.kernel.rehashGroups.Launch(st, c.frame.BlockGrid(slots, 8), &p)
		p.Room, rest = 1, c.cfg.bucket > 0
	}
	if err == nil && rest {
		err = c.kernel.rehash.Launch(st, grid, &p)
	}
	if err == nil && c.cfg.bucket > 0 && p.Room == 0 { // that kernel does not ask whether a slot has room
		err = c.forgetHints(st)
	}
	return err
}

// Grow makes room for at least n pairs or keys in all, and rids the table of tombstones. It needs memory for the old
// and the new table at once. Errors: table.ErrMaxBytes; *device.OutOfMemoryError. After an error the table is
// unchanged.
func (h *handle) Grow(n int) error {
	c := h.made()
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, _ int64) error {
		slots := int64(n) - c.pairs() + c.live()
		windows, side := max(int64(c.t.Main.Windows), c.windowsForPairs(slots)), int64(c.t.Side.Windows)
		if windows == int64(c.t.Main.Windows) && c.tombstones() == 0 {
			return nil
		}
		if limit := c.opts.MaxBytes; limit > 0 && c.bytes(windows, side) > limit {
			return c.frame.NoRoomFor(n, c.bytes(windows, side), limit)
		}
		return errors.Join(c.rebuild(st, windows, side), c.frame.Spare()) // the next batch may be long in coming
	})
}

// find queues a look-up.
func (c *core) find(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.find, b) }

// forgetHints clears all hints.
func (c *core) forgetHints(st *device.Stream) error {
	if c.t.Hints == 0 {
		return nil
	}
	from := int(c.t.Hints - c.mem.Addr())
	return c.mem.Slice(from, from+int(c.t.HintMask+1+sideHints)*hintBytes).Fill(st, 0xff)
}

// erase queues a deletion.
func (c *core) erase(st *device.Stream, b frame.Rows) error {
	if c.multi() {
		return c.eraseMulti(st, b)
	}
	return c.search(st, c.kernel.erase, b)
}

func (c *core) search(st *device.Stream, k device.Kernel[findParams], b frame.Rows) error {
	p := findParams{Table: c.t, Keys: b.Keys, Values: b.Values, Found: b.Flags, N: uint64(b.N), When: b.When}
	grid := c.grid(b.N)
	if b.Sorted != nil { // blocks go through the regions in order
		k = c.sorted.of(c, k)
		p.Span = uint64(c.regions.Span)
		grid = frame.Spanned(b.N, c.regions.Span)
	}
	return k.Launch(st, grid, &p)
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// Len counts the pairs, or the keys of a Set or a Counter. It waits for what is queued.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear removes all pairs or keys, and keeps the capacity. It queues its work and returns.
func (h *handle) Clear() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		c.filled, c.foreign, c.touched = 0, false, false
		return errors.Join(c.mem.Fill(st, 0xff), c.counters.Clear(st))
	})
}

// slots is how many slots both regions have.
func (c *core) slots() int64 {
	return int64(c.t.Main.Windows+c.t.Side.Windows) * int64(c.cfg.window)
}

// exporting runs a kernel that counts what it writes in Counters.Exported, and returns that count. It waits.
func (c *core) exporting(st *device.Stream, k device.Kernel[slotsParams], p slotsParams) (n int64, err error) {
	p.Table = c.t
	slots := c.slots()
	if p.Slots > 0 {
		slots = int64(p.Slots)
	}
	if err := frame.InTurn(
		func() error { return c.reset(st) },
		func() error { return k.Launch(st, c.grid(slots), &p) },
	); err != nil {
		return 0, err
	}
	_, err = c.look(st)
	return int64(c.counters.Seen.Exported), err
}

// exporter is how the pairs are given out.
func (c *core) exporter(st *device.Stream) (frame.Exporter, error) {
	_, err := c.look(st)
	return frame.Exporter{Slots: c.slots(), Live: c.pairs(), Export: func(st *device.Stream, r frame.Range) (int64, error) {
		return c.exporting(st, c.kernel.export, slotsParams{Keys: r.Keys, Values: r.Values, Limit: uint64(r.Limit), First: uint64(r.First), Slots: uint64(r.Slots)})
	}}, err
}

// Stats measures the table, of whatever kind. It walks from the first window of every key to its slot.
func (h *handle) Stats() (table.Stats, error) {
	c := h.made()
	var longs int64
	s, err := c.frame.Measure(c.look, func(st *device.Stream, histogram uint64) error {
		return c.kernel.probes.Launch(st, c.grid(c.slots()), &slotsParams{Table: c.t, Histogram: histogram})
	}, func(live int64) table.Stats {
		longs = int64(c.long.Len())
		return table.Stats{Len: int(live), Capacity: int(c.pairCapacity()), Tombstones: int(c.tombstones()), Bytes: int64(c.mem.Len()),
			MaxProbes: int(min(max(c.counters.Seen.MaxProbes, probesUntold), c.cfg.longest(c.t.Main.Windows)))}
	})
	s.ScratchBytes += longs
	return s, err
}

// Close frees the table's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

func (c *core) free() error { return c.memory.free(&c.frame) }

// Check downloads the table and tests its invariants. It is slow: use it in tests, or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.Inspect(c.look, func() device.Slice[byte] { return c.mem }, func(mem []byte) error {
		err := errors.Join(c.frame.Budget(int64(len(mem))), c.checkImage(mem, c.counters.Seen))
		if err == nil && c.cfg.bucket > 0 {
			err = c.checkBuckets(mem, c.counters.Seen)
		}
		return err
	})
}
