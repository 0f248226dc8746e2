package warpcore

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Options are what New and NewMulti understand beside table.Options. The zero value is good.
type Options struct {
	table.Options
	Layout Layout
	// Window is the number of slots that are probed together, 1 to 32: fixed for the table. Zero means 64 bytes' worth.
	Window int
	// InsertGroup and FindGroup are the lanes that work on one key, 1 to 32. Zero means what is fastest on the device: on a
	// GPU, as many as read a window with one 16-byte load each for look-ups and with two for inserts; on the CPU, one. Any
	// group can use any table.
	InsertGroup, FindGroup int
}

const (
	defaultLoadFactor = 0.8
	windowBytes       = 64
	threads           = 256 // a block
	// tightProbes bounds the windows that an insert reads when the table is nearly full and may not grow: then what does
	// not fit is told soon.
	tightProbes = 256
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow.
	firstBatch = 1 << 16
	// largestBatch bounds the list of positions that an insert may need, at 8 bytes each.
	largestBatch = 1 << 24
	// smallBatch is tried as it is, however little memory there is for that list.
	smallBatch = 1 << 12
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed warpcore.cuh
	warpcoreCUH string
)

// core is the table under Map and MultiMap: it owns the memory, and works in addresses and bits.
type core struct {
	d      *device.Device
	cfg    config
	opts   Options
	multi  bool
	kernel struct {
		insert, insertNew, insertMulti           device.Kernel[InsertParams]
		find, erase, eraseMulti                  device.Kernel[FindParams]
		rehash, export, probes, distinct         device.Kernel[SlotsParams]
		countAll, sumChunks, scanTotals, fillAll device.Kernel[FindAllParams]
		partition                                table.Partitioner[PartitionParams]
	}
	partitions partitioning
	order      table.Order // also guards what follows
	stage      table.Stage

	memory
	closed  bool
	scratch device.Slice[byte]
	// ordered is where batches are brought in order; kept for the next. retired were too small for one: they may be in
	// use until the table is looked at.
	ordered device.Slice[byte]
	retired []device.Slice[byte]
	foreach map[string]*foreachProgram
}

// memory is what a rebuild replaces.
type memory struct {
	t        Table
	mem      device.Slice[byte]
	counters device.Slice[Counters]
	filled   int64 // no more than this many slots hold a pair or a tombstone
	live     int64 // pairs, at the last look at the counters
	// foreign: since then a kernel of the user's may have inserted, and more than it said: filled is not to be relied on.
	foreign bool
}

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	return &device.Program{
		Name:  name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "warpcore.cuh", Text: warpcoreCUH}, {Name: "config.h", Text: c.cfg.header("config")}}, more...),
		Defines: append(defines(), device.Define{Name: "WARPCORE_INSERT_GROUP", Value: c.opts.InsertGroup},
			device.Define{Name: "WARPCORE_FIND_GROUP", Value: c.opts.FindGroup}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := o.Options.Check(); err != nil {
		return err
	}
	if o.Layout < Auto || o.Layout > SoA {
		return fmt.Errorf("warpcore: layout %d (want Auto, Packed, AoS or SoA)", int(o.Layout))
	}
	cfg.layout, cfg.hash = o.Layout, o.Hash
	if cfg.layout == Auto {
		cfg.layout = Packed
		if cfg.valueBytes > 8 || cfg.slotBytes() > 8 && !info.CAS128 {
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
	if o.LoadFactor == 0 {
		o.LoadFactor = defaultLoadFactor
	}
	return nil
}

func newCore(d *device.Device, keyBytes, valueBytes int, o Options, multi bool) (*core, error) {
	if d == nil {
		return nil, errors.New("warpcore: no device (see device.Open)")
	}
	c := &core{d: d, cfg: config{keyBytes: keyBytes, valueBytes: valueBytes}, multi: multi}
	if err := o.complete(d.Info(), &c.cfg); err != nil {
		return nil, err
	}
	c.opts = o
	c.partitions = partitions
	if !d.Info().CUDA() {
		c.partitions.minRows = math.MaxInt64 // where fibers cost more than memory
	}
	c.order.Init(d)
	c.stage.Init(d)
	if err := c.compile(); err != nil {
		return nil, err
	}
	windows := c.windowsForPairs(int64(o.Capacity))
	side := windowsFor(sideSlots, c.cfg.window)
	if o.MaxBytes > 0 && c.bytes(windows, side) > o.MaxBytes {
		if windows = c.maxWindows(side); windows == 0 {
			return nil, fmt.Errorf("warpcore: MaxBytes of %s leaves no room for a window of %d slots", device.Bytes(o.MaxBytes), c.cfg.window)
		}
	}
	if err := c.allocate(windows, side); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *core) compile() error {
	m, err := c.d.Compile(c.program("warpcore", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	k.partition, err = table.NewPartitioner[PartitionParams](c.d, m)
	return errors.Join(err,
		find(m, "insert", &k.insert), find(m, "insert_new", &k.insertNew), find(m, "insert_multi", &k.insertMulti),
		find(m, "find", &k.find), find(m, "erase", &k.erase), find(m, "erase_multi", &k.eraseMulti),
		find(m, "rehash", &k.rehash), find(m, "export_pairs", &k.export), find(m, "probe_lengths", &k.probes), find(m, "distinct", &k.distinct),
		find(m, "count_all", &k.countAll), find(m, "sum_chunks", &k.sumChunks), find(m, "scan_totals", &k.scanTotals), find(m, "fill_all", &k.fillAll))
}

func find[P any](m *device.Module, name string, k *device.Kernel[P]) (err error) {
	*k, err = device.KernelOf[P](m, name)
	return err
}

// Sizes. A table has windows of cfg.window slots, and a side region beside.

func (c *core) windowsForPairs(pairs int64) int64 {
	slots := int64(min(math.Ceil(float64(pairs)/c.opts.LoadFactor), 1<<50)) // more than any memory, less than overflows
	return windowsFor(max(slots, 2*int64(c.cfg.window)), c.cfg.window)
}

func (c *core) capacity() int64 { return int64(c.t.Main.Windows) * int64(c.cfg.window) }

// limit is how many slots may be filled before the table grows.
func (c *core) limit() int64 { return int64(float64(c.capacity()) * c.opts.LoadFactor) }

func align(n int64) int64 { return (n + 255) &^ 255 }

// place lays out a table from an address on, and says where it ends.
func (c *core) place(base, windows, side int64) (t Table, end int64) {
	w := int64(c.cfg.window)
	take := func(bytes int64) uint64 {
		at := base
		base += align(bytes)
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
		r.Overflow = take(overflowBytes(int64(r.Windows)))
	}
	t.Seed = c.opts.Seed
	return t, base
}

func (c *core) bytes(windows, side int64) int64 {
	_, end := c.place(0, windows, side)
	return end
}

// maxWindows is the largest prime number of windows that MaxBytes allows; 0 if none.
func (c *core) maxWindows(side int64) int64 {
	w := (c.opts.MaxBytes - c.bytes(0, side)) / int64(c.cfg.window*c.cfg.pairBytes())
	for ; w > 1; w-- {
		if windowsFor(w*int64(c.cfg.window), c.cfg.window) == w && c.bytes(w, side) <= c.opts.MaxBytes {
			return w
		}
	}
	if c.bytes(1, side) <= c.opts.MaxBytes {
		return 1
	}
	return 0
}

// allocate makes an empty table of the given size: all bytes 0xff, the counters 0.
func (c *core) allocate(windows, side int64) error {
	mem, err := device.Make[byte](c.d, int(c.bytes(windows, side)))
	if err != nil {
		return err
	}
	counters, err := device.Make[Counters](c.d, 1)
	if err != nil {
		mem.Free()
		return err
	}
	c.t, _ = c.place(int64(mem.Addr()), windows, side)
	c.t.Counters = counters.Addr()
	c.mem, c.counters, c.filled, c.live, c.foreign = mem, counters, 0, 0, false
	st := c.d.Stream()
	if err := errors.Join(mem.Fill(st, 0xff), counters.Fill(st, 0), st.Sync()); err != nil {
		mem.Free()
		counters.Free()
		return err
	}
	return nil
}

// locked runs f with the table's lock held, unless the table is closed.
func (c *core) locked(f func() error) error {
	c.order.Lock()
	defer c.order.Unlock()
	if c.closed {
		return fmt.Errorf("warpcore: %w", table.ErrClosed)
	}
	return f()
}

// look waits for the stream and reads the counters.
func (c *core) look(st *device.Stream) (Counters, error) {
	var k [1]Counters
	if err := c.counters.Read(st, k[:]); err != nil {
		return k[0], err
	}
	c.live = int64(k[0].Inserted - k[0].Erased)
	c.filled = int64(k[0].Inserted - k[0].Reused)
	c.foreign = false
	for _, s := range c.retired {
		s.Free() // all that used it is done
	}
	c.retired = nil
	return k[0], nil
}

// grid covers n items. A GPU gets no more blocks than it can hold a few times over, and its threads go on in strides;
// on the CPU each lane has one item, so that lanes in a row touch memory in a row.
func (c *core) grid(n int64) device.Grid {
	g := device.GridFor(n, threads)
	if info := c.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, int64(info.Multiprocessors)*8*waves)
	}
	return g
}

// spanned covers n items by blocks of span items in a row.
func spanned(n, span int64) device.Grid {
	return device.Grid{Blocks: max(1, (n+span-1)/span), Threads: threads}
}

// waves is how many times over a grid fills the GPU.
const waves = 16

// reserve gives scratch memory that lasts until the next reserve. The caller holds the lock, and waits for its work
// before it lets go.
func (c *core) reserve(bytes int64) (uint64, error) {
	if int64(c.scratch.Len()) < bytes {
		if c.scratch.Len() > 0 {
			c.scratch.Free()
			c.scratch = device.Slice[byte]{}
		}
		s, err := device.Make[byte](c.d, int(bytes))
		if err != nil {
			return 0, err
		}
		c.scratch = s
	}
	return c.scratch.Addr(), nil
}

// insert inserts n pairs at device addresses, growing as it must. It returns at once where the table is known to have
// room. The positions that do not fit come back with the reason. The caller holds the lock.
//
// The positions from untried on were not tried, for want of memory, and are not among the failed ones.
func (c *core) insert(st *device.Stream, k device.Kernel[InsertParams], keys, values, added uint64, n int64) (failed []int, untried int, why error, err error) {
	untried = int(n)
	if n == 0 {
		return nil, 0, nil, nil
	}
	err = c.order.Write(st, func() error {
		p := InsertParams{Table: c.t, Keys: keys, Values: values, Added: added, N: uint64(n), Limit: ^uint64(0)}
		if !c.multi && !c.foreign && c.filled+n <= c.limit() {
			c.filled += n
			return c.launchInsert(st, k, p)
		}
		failed, untried, why, err = c.insertGrowing(st, k, p)
		return err
	})
	return failed, untried, why, err
}

// launchInsert queues an insert. Where that is faster, it first brings the batch in the order of the table's regions,
// piece by piece; not where positions are asked for, which then would be others.
func (c *core) launchInsert(st *device.Stream, k device.Kernel[InsertParams], p InsertParams) error {
	n := int64(p.N)
	regions := c.partitions.regions(n, int64(c.mem.Len()))
	if regions == 0 || p.Added != 0 || p.Failed != 0 || p.Positions != 0 {
		return k.Launch(st, c.grid(n), &p)
	}
	piece, counters, keys, values := c.reserveOrdered(n, regions)
	if piece == 0 {
		return k.Launch(st, c.grid(n), &p)
	}
	for first := int64(0); first < n; first += piece {
		m := min(piece, n-first)
		q := PartitionParams{Table: p.Table, Rows: table.Partition{
			Keys: p.Keys + uint64(first)*uint64(c.cfg.keyBytes), Values: p.Values + uint64(first)*uint64(c.cfg.valueBytes), N: uint64(m),
			OutKeys: keys, OutValues: values, Parts: uint64(regions),
		}}
		if err := c.kernel.partition.Run(st, counters, &q.Rows, &q); err != nil {
			return err
		}
		r := p
		r.Keys, r.Values, r.N, r.Span = keys, values, uint64(m), uint64(c.partitions.span)
		if err := k.Launch(st, spanned(m, c.partitions.span), &r); err != nil {
			return err
		}
	}
	return nil
}

// reserveOrdered gives memory for the pairs of a piece of a batch of n, in order, and for counters; piece is 0 where there
// is too little. The caller holds the lock, and is in order.Write: so the operations that use the memory are one behind
// the other, on whatever streams they are. It does not wait.
func (c *core) reserveOrdered(n, regions int64) (piece int64, counters device.Slice[uint64], keys, values uint64) {
	rule := &c.partitions
	words := table.PartitionWords(int(regions))
	head := align(8 * int64(words))
	place := func(piece int64) (values, end int64) {
		values = head + align(piece*int64(c.cfg.keyBytes))
		return values, values + align(piece*int64(c.cfg.valueBytes))
	}
	equal := func(most int64) int64 { // pieces of a batch, of no more than most rows
		pieces := (n + most - 1) / most
		return (n + pieces - 1) / pieces
	}
	piece = equal(rule.pieceRows)
	if _, need := place(piece); int64(c.ordered.Len()) < need {
		free, _, err := c.d.Memory()
		if err != nil {
			return 0, counters, 0, 0
		}
		free = max(free/rule.memoryShare, int64(c.ordered.Len()))
		fit := (free - head - 512) / int64(c.cfg.keyBytes+c.cfg.valueBytes) // less what aligning may add
		if fit < rule.regionRows*regions {
			return 0, counters, 0, 0
		}
		piece = equal(min(fit, rule.pieceRows))
		_, need = place(piece)
		if int64(c.ordered.Len()) < need {
			// Twice what there was, so that batches that grow little by little leave few behind.
			s, err := device.Make[byte](c.d, int(max(need, min(2*int64(c.ordered.Len()), free))))
			if err != nil {
				return 0, counters, 0, 0
			}
			if c.ordered.Len() > 0 {
				c.retired = append(c.retired, c.ordered)
			}
			c.ordered = s
		}
	}
	at, _ := place(piece)
	base := c.ordered.Addr()
	return piece, device.View[uint64](c.ordered, 0, words), base + uint64(head), base + uint64(at)
}

// freeOrdered gives back what reserveOrdered has made, and waits for what uses it.
func (c *core) freeOrdered() {
	for _, s := range append(c.retired, c.ordered) {
		if s.Len() > 0 {
			s.Free()
		}
	}
	c.retired, c.ordered = nil, device.Slice[byte]{}
}

// insertGrowing is insert for a table that may have too little room. It goes through the batch in parts: each fits for
// sure, or is small enough to learn from it how many keys are new. After each the table grows if it is filled above its
// load factor, and what found no slot is tried again. It waits for the stream. Positions from untried on were not tried, for
// want of memory.
func (c *core) insertGrowing(st *device.Stream, k device.Kernel[InsertParams], p InsertParams) (failed []int, untried int, why error, err error) {
	keyBytes, valueBytes := uint64(c.cfg.keyBytes), uint64(c.cfg.valueBytes)
	try := uint64(firstBatch)
	for first, n := uint64(0), p.N; first < n; {
		before, err := c.look(st)
		if err != nil {
			return nil, 0, nil, err
		}
		q := p
		q.N = min(n-first, largestBatch)
		switch room := uint64(max(0, c.limit()-c.filled)); {
		case why != nil: // no more than surely fits, then all the rest
			q.Limit = tightProbes
			if fits := uint64(max(0, c.fillable()-c.filled)); fits > 0 {
				q.N, q.Limit = min(q.N, fits), ^uint64(0)
			}
		case q.N > room:
			q.N = min(q.N, max(room, try))
		}
		q.Table = c.t
		if sure := !c.multi && why == nil && c.filled+int64(q.N) <= min(c.limit(), c.fillable()); !sure {
			list, err := c.reserve(int64(8 * q.N))
			for oom(err) && q.N > smallBatch {
				q.N /= 8
				list, err = c.reserve(int64(8 * q.N))
			}
			if oom(err) {
				return failed, int(first), err, nil
			} else if err != nil {
				return nil, 0, nil, err
			}
			q.Failed = list
		}
		q.Keys, q.Values = p.Keys+first*keyBytes, p.Values+first*valueBytes
		if p.Added != 0 {
			q.Added = p.Added + first
		}
		if c.filled+int64(q.N) > c.fillable() {
			q.Limit = tightProbes // some may not fit: to know soon is better than to search on
		}
		lost, after, err := c.insertOnce(st, k, q)
		if err != nil {
			return nil, 0, nil, err
		}
		fresh := after.Inserted - before.Inserted
		for why == nil && (len(lost) > 0 || c.filled > c.limit()) {
			// Room for what did not fit, and for as many new keys among the rest as among these; but no guess goes
			// further than four times what there is.
			need := c.live + int64(len(lost)) + 1
			guess := c.live + int64(len(lost)) + int64(float64(n-first-q.N)*float64(fresh)/float64(max(1, q.N-uint64(len(lost)))))
			if why, err = c.grow(st, max(need, min(guess, 4*c.limit())), after.SideFailed > 0); oom(why) {
				why, err = c.grow(st, need, after.SideFailed > 0)
			}
			if err != nil {
				return nil, 0, nil, err
			}
			if len(lost) > 0 {
				q.Table = c.t
				if lost, after, err = c.insertAgain(st, k, q, lost); oom(err) {
					why, err = err, nil
				}
				if err != nil {
					return nil, 0, nil, err
				}
			} else if _, err := c.look(st); err != nil {
				return nil, 0, nil, err
			}
		}
		for _, i := range lost {
			failed = append(failed, int(first)+i)
		}
		first += q.N
		if fresh < q.N/8 {
			try = min(4*try, largestBatch)
		}
	}
	return failed, int(p.N), why, nil
}

// fillable is how many slots an insert may search for without a bound: near the end of a large table, searches get long.
func (c *core) fillable() int64 {
	if int64(c.t.Main.Windows) <= tightProbes {
		return c.capacity()
	}
	return c.capacity() / 100 * 98
}

func oom(err error) bool {
	var e *device.OutOfMemoryError
	return errors.As(err, &e)
}

// insertOnce launches one insert, waits, and reads which positions failed.
func (c *core) insertOnce(st *device.Stream, k device.Kernel[InsertParams], p InsertParams) (lost []int, after Counters, err error) {
	if err = c.launchInsert(st, k, p); err != nil {
		return nil, after, err
	}
	if after, err = c.look(st); err != nil {
		return nil, after, err
	}
	if after.Failed == 0 {
		return nil, after, nil
	}
	raw := make([]uint64, after.Failed)
	list := device.View[uint64](c.scratch, int(p.Failed-c.scratch.Addr()), len(raw))
	if err := list.Read(st, raw); err != nil {
		return nil, after, err
	}
	lost = make([]int, len(raw))
	for i, x := range raw {
		lost[i] = int(x)
	}
	// The list is read: it begins anew.
	return lost, after, c.clearFailed(st)
}

func (c *core) clearFailed(st *device.Stream) error {
	k, err := c.look(st)
	if err != nil {
		return err
	}
	k.Failed, k.SideFailed = 0, 0
	return c.counters.Write(st, []Counters{k})
}

// insertAgain inserts the given positions of a batch. Those that still find no slot come back, all of them with an error.
func (c *core) insertAgain(st *device.Stream, k device.Kernel[InsertParams], p InsertParams, positions []int) ([]int, Counters, error) {
	n := uint64(len(positions))
	addr, err := c.reserve(int64(16 * n))
	if err != nil {
		return positions, Counters{}, err
	}
	raw := make([]uint64, n)
	for i, x := range positions {
		raw[i] = uint64(x)
	}
	if err := device.View[uint64](c.scratch, 0, int(n)).Write(st, raw); err != nil {
		return positions, Counters{}, err
	}
	p.Limit = ^uint64(0)
	if c.filled+int64(n) > c.fillable() {
		p.Limit = tightProbes
	}
	p.Table, p.N, p.Positions, p.Failed = c.t, n, addr, addr+8*n
	return c.insertOnce(st, k, p)
}

// grow makes room for pairs in all, and doubles the side region if told. why says what forbids it: then the table is as
// it was.
func (c *core) grow(st *device.Stream, pairs int64, side bool) (why, err error) {
	windows := int64(c.t.Main.Windows)
	sideWindows := int64(c.t.Side.Windows)
	if side {
		sideWindows = windowsFor(2*sideWindows*int64(c.cfg.window), c.cfg.window)
	}
	tombstones := c.filled - c.live
	if pairs > c.limit() || tombstones < c.capacity()/4 {
		want := c.windowsForPairs(pairs)
		if !side || want > windows {
			want = max(want, windowsFor(2*windows*int64(c.cfg.window), c.cfg.window))
		}
		windows = max(windows, want)
	}
	if limit := c.opts.MaxBytes; limit > 0 && c.bytes(windows, sideWindows) > limit {
		windows = c.maxWindows(sideWindows)
		if windows < int64(c.t.Main.Windows) || windows == int64(c.t.Main.Windows) && !side && tombstones == 0 {
			return fmt.Errorf("%w (%s)", table.ErrMaxBytes, device.Bytes(limit)), nil
		}
	}
	if err = c.rebuild(st, windows, sideWindows); oom(err) {
		return err, nil
	}
	return nil, err
}

// rebuild moves all pairs to a new table of the given size; on an error the old one stands. It waits for the stream.
func (c *core) rebuild(st *device.Stream, windows, side int64) error {
	c.freeOrdered() // the new table may need the memory more
	old := c.memory
	if err := c.allocate(windows, side); err != nil {
		c.memory = old
		return err
	}
	slots := int64(old.t.Main.Windows+old.t.Side.Windows) * int64(c.cfg.window)
	span := int64(threads) // on the CPU each lane has one item, as in grid
	if c.d.Info().CUDA() {
		span = c.partitions.span
	}
	p := SlotsParams{Table: old.t, Target: c.t, Span: uint64(span)}
	err := c.kernel.rehash.Launch(st, spanned(slots, span), &p)
	var k Counters
	if err == nil {
		k, err = c.look(st)
	}
	if err == nil && k.Failed > 0 {
		err = fmt.Errorf("warpcore: %d pairs found no slot in a larger table: this is a defect of warpmap", k.Failed)
	}
	if err != nil {
		c.mem.Free()
		c.counters.Free()
		c.memory = old
		return err
	}
	return errors.Join(old.mem.Free(), old.counters.Free())
}

// growTo is Grow of Map and MultiMap.
func (c *core) growTo(n int) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("warpcore: grow to %d pairs (want 0 to 2⁴⁶)", n)
	}
	return c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() error {
			if _, err := c.look(st); err != nil {
				return err
			}
			windows := max(int64(c.t.Main.Windows), c.windowsForPairs(int64(n)))
			if windows == int64(c.t.Main.Windows) && c.filled == c.live {
				return nil
			}
			if limit := c.opts.MaxBytes; limit > 0 && c.bytes(windows, int64(c.t.Side.Windows)) > limit {
				return fmt.Errorf("warpcore: room for %d pairs takes %s: %w (%s)", n, device.Bytes(c.bytes(windows, int64(c.t.Side.Windows))), table.ErrMaxBytes, device.Bytes(limit))
			}
			return c.rebuild(st, windows, int64(c.t.Side.Windows))
		})
	})
}

// find launches find, erase or erase_multi.
func (c *core) find(st *device.Stream, k device.Kernel[FindParams], keys, values, found uint64, n int64) error {
	if n == 0 {
		return nil
	}
	p := FindParams{Table: c.t, Keys: keys, Values: values, Found: found, N: uint64(n)}
	return k.Launch(st, c.grid(n), &p)
}

func (c *core) length() (n int, err error) {
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Read(st, func() error {
			_, err := c.look(st)
			n = int(c.live)
			return err
		})
	})
	return n, err
}

func (c *core) clear() error {
	return c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() error {
			if err := errors.Join(c.mem.Fill(st, 0xff), c.counters.Fill(st, 0)); err != nil {
				return err
			}
			c.filled, c.live, c.foreign = 0, 0, false
			return nil
		})
	})
}

// slots is how many slots both regions have.
func (c *core) slots() int64 {
	return int64(c.t.Main.Windows+c.t.Side.Windows) * int64(c.cfg.window)
}

// exporting runs a kernel that counts what it writes in Counters.Exported, and returns that count. It waits.
func (c *core) exporting(st *device.Stream, k device.Kernel[SlotsParams], p SlotsParams) (n int64, err error) {
	p.Table = c.t
	counters, err := c.look(st)
	if err != nil {
		return 0, err
	}
	counters.Exported = 0
	if err := c.counters.Write(st, []Counters{counters}); err != nil {
		return 0, err
	}
	if err := k.Launch(st, c.grid(c.slots()), &p); err != nil {
		return 0, err
	}
	counters, err = c.look(st)
	return int64(counters.Exported), err
}

func (c *core) stats() (s table.Stats, err error) {
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() error { // the histogram is scratch memory
			k, err := c.look(st)
			if err != nil {
				return err
			}
			addr, err := c.reserve(8 * int64(histogramBins+1))
			if err != nil {
				return err
			}
			histogram := device.View[uint64](c.scratch, 0, histogramBins+1)
			if err := histogram.Fill(st, 0); err != nil {
				return err
			}
			p := SlotsParams{Table: c.t, Histogram: addr}
			if err := c.kernel.probes.Launch(st, c.grid(c.slots()), &p); err != nil {
				return err
			}
			h, err := histogram.Host(st)
			if err != nil {
				return err
			}
			s = table.Stats{
				Len: int(c.live), Capacity: int(c.capacity()), Tombstones: int(c.filled - c.live),
				LoadFactor: float64(c.live) / float64(c.capacity()), Bytes: int64(c.mem.Len()),
			}
			s.MaxProbes = int(min(max(k.MaxProbes, probesUntold), c.t.Main.Windows))
			for i := range s.Probes {
				s.Probes[i] = int(h[i])
			}
			if c.live > 0 {
				s.MeanProbes = float64(h[histogramBins]) / float64(c.live)
			}
			return nil
		})
	})
	return s, err
}

func (c *core) close() error {
	defer c.stage.Close() // without the lock, which a batch that holds the stage may wait for
	c.order.Lock()
	defer c.order.Unlock()
	if c.closed {
		return nil
	}
	err := c.order.Idle()
	if errors.Is(err, device.ErrClosed) {
		err = nil // the device freed all
	}
	c.closed = true
	c.order.Close()
	if c.scratch.Len() > 0 {
		c.scratch.Free()
	}
	c.freeOrdered()
	c.counters.Free()
	if e := c.mem.Free(); err == nil && !errors.Is(e, device.ErrClosed) {
		err = e
	}
	return err
}

// check downloads the table and walks its invariants; the list of them is in doc.go.
func (c *core) check() error {
	return c.locked(func() error {
		st := c.d.Stream()
		return c.order.Read(st, func() error {
			counters, err := c.look(st)
			if err != nil {
				return err
			}
			mem, err := c.mem.Host(st)
			if err != nil {
				return err
			}
			return c.checkImage(mem, counters)
		})
	})
}
