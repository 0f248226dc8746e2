package gph

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New: those of table.Options, and some of its own. The zero value is good.
type Options struct {
	table.Options
	// Bucket is the paper's M, the number of slots of a bucket: 4, 8, 16 or 32. Zero means as many as fill 64 bytes, at
	// least 4, and 8 if pairs have 16 bytes and the load factor is over 0.6.
	Bucket int
	// VirtualBuckets is the paper's R, the number of virtual buckets of a cell: 2, 4, 8, 16 or 32. Zero means 32.
	VirtualBuckets int
	// CellBytes is the size of a cell in bytes, 1 or 2. Zero means 1.
	CellBytes int
	// KeysPerCell is how many keys a cell has on average once the table is filled to its load factor. With fewer keys
	// it is easier to find them a place, but the index is larger. Zero means a number that lets inserts reach the load
	// factor.
	KeysPerCell float64
	// InsertGroup and FindGroup are how many lanes work on one key, 1 to 32: the paper's |h| and |g|. Zero means what
	// is fastest on the device. A group that moves a cell also has InsertGroup lanes, but at least 8 on a GPU.
	InsertGroup, FindGroup int
	// Index says where look-ups read the cells.
	Index Index
	// NoProfile makes New ignore what `warpmap tune gph` found for this device. It matters only in a program that has
	// called UseProfiles.
	NoProfile bool

	cellLoad     float64 // the load that the cells are for
	stretchBytes int64   // of tests; else as the constant
}

const (
	defaultLoadFactor = 0.8
	boundLoad         = 0.95
	bucketBytes       = 64
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow.
	firstBatch = 1 << 16
	// largestBatch bounds the list between the phases of an insert, at 4 bytes an item, and leastBatch is how many there is always
	// a list for.
	largestBatch = 1 << 24
	leastBatch   = 1 << 10
	// waves is how many times over a grid fills a GPU whose multiprocessors hold 8 blocks.
	waves = 16
	// constructFrom is the batch that is worth a bulk construction where the table is empty.
	constructFrom = 1 << 16
	// mostlyNew: a table grows to all rows of its first batch if no more than about one in so many has another's key.
	mostlyNew = 16
	// rebuilds bounds the attempts to find a table that takes all pairs.
	rebuilds = 8
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed gph.cuh
	gphCUH string
)

// insertKernels are the two phases of an insert.
type insertKernels struct{ fill, refine device.Kernel[insertParams] }

// core is the table under Map: it owns the memory, and works in addresses and bits.
type core struct {
	frame  frame.Frame
	cfg    config
	opts   Options
	kernel struct {
		replace, fresh, old insertKernels
		find, erase         device.Kernel[findParams]
		export              device.Kernel[slotsParams]
	}

	memory                   // guarded by the frame's lock
	least         listMemory // for leastBatch
	shared        sharedIndex
	stretch       stretches
	constructFrom int64
	build         *builder // of the present hash function; nil until needed
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
	t        Table
	mem      device.Slice[byte]
	counters frame.Counters[Counters]
	laidAnew int64 // so many pairs were to find a place when this table was last laid anew in its size; 0: never
}

func (m *memory) live() int64 { return m.counters.Seen.live() }

func (m *memory) free(f *frame.Frame) error { return f.Free(&m.counters, m.mem) }

// forGPU tells whether programs are for a GPU, as they are without a device.
func (c *core) forGPU() bool { return c.frame.Device == nil || c.frame.Device.Info().CUDA() }

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	move := c.opts.InsertGroup
	if move > 1 || c.forGPU() { // a GPU's shared memory holds no workspace for every lane
		move = max(move, 8)
	}
	return &device.Program{
		Name:  name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "gph.cuh", Text: gphCUH}, {Name: "config.h", Text: c.cfg.header("config")}}, more...),
		Defines: append(defines(), device.Define{Name: "GPH_INSERT_GROUP", Value: c.opts.InsertGroup},
			device.Define{Name: "GPH_FIND_GROUP", Value: c.opts.FindGroup}, device.Define{Name: "GPH_MOVE_GROUP", Value: move}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := errors.Join(o.Options.Complete(defaultLoadFactor), o.Index.check()); err != nil {
		return err
	}
	o.consult(info, cfg)
	cfg.hash = o.Hash
	cfg.packed = cfg.valueBytes <= 8 && (cfg.slotBytes() <= 8 || info.CAS128)
	or := func(x *int, y int) int {
		if *x == 0 {
			*x = y
		}
		return *x
	}
	bucket := max(4, bucketBytes/cfg.slotBytes())
	if bucket == 4 && o.LoadFactor > 0.6 && cfg.slotBytes() == 16 { // four slots are full too often
		bucket = 8
	}
	cfg.bucket = or(&o.Bucket, bucket)
	cfg.virtual = or(&o.VirtualBuckets, 32)
	cfg.cellBytes = or(&o.CellBytes, 1)
	if err := cfg.check(); err != nil {
		return err
	}
	insert, find := 1, 1
	if info.CUDA() {
		find = min(int(cfg.bucketBytes()/16), 32)
		insert = max(1, find/2)
	}
	or(&o.InsertGroup, insert)
	or(&o.FindGroup, find)
	for _, g := range []int{o.InsertGroup, o.FindGroup} {
		if g < 1 || g > 32 || g&(g-1) != 0 {
			return fmt.Errorf("gph: a group of %d lanes (want 1, 2, 4, 8, 16 or 32)", g)
		}
	}
	o.cellLoad = o.LoadFactor
	if o.KeysPerCell == 0 {
		if o.MaxBytes > 0 { // where the table goes on beyond its load factor
			o.cellLoad = max(o.LoadFactor, boundLoad)
		}
		o.KeysPerCell = cfg.keysPerCell(o.cellLoad)
	}
	if most := cfg.mostKeys(); !(o.KeysPerCell >= 0.25 && o.KeysPerCell <= most) {
		return fmt.Errorf("gph: %v keys a cell (want 0.25 to %v, half of what %d buckets of %d slots and a move take)", o.KeysPerCell, most, cfg.virtual, cfg.bucket)
	}
	return nil
}

// mostKeys is how many keys a cell may have on average: half of what its ring holds, and of what a move can handle.
func (c config) mostKeys() float64 { return float64(min(c.virtual*c.bucket, cellPairs)) / 2 }

// keysPerCell is how many keys a cell may have so that inserts one by one reach the load factor: by simulation, with a
// margin, for 32 virtual buckets.
func (c config) keysPerCell(load float64) float64 {
	loads := []float64{0.6, 0.7, 0.8, 0.9}
	keys := map[int][]float64{4: {8, 5, 3.5, 3}, 8: {24, 12, 8, 6.5}, 16: {40, 24, 16, 10}, 32: {50, 32, 20, 12}}[c.bucket]
	k := keys[len(keys)-1]
	for i := range loads {
		if load > loads[i] {
			continue
		}
		if k = keys[i]; i > 0 {
			k += (keys[i-1] - k) * (loads[i] - load) / (loads[i] - loads[i-1])
		}
		break
	}
	if c.cellBytes == 2 {
		k *= 1.5
	}
	return min(k, c.mostKeys()/2)
}

func newCore(d *device.Device, w frame.Width, o Options) (*core, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	c := &core{cfg: config{keyBytes: w.Key, valueBytes: w.Value}, opts: o}
	c.frame.Why = o.Why
	return frame.Made(c, c.frame.Open(family, d, c.begin, c.free))
}

// begin makes an empty table as the options say.
func (c *core) begin() (err error) {
	if err := c.opts.complete(c.frame.Device.Info(), &c.cfg); err != nil {
		return err
	}
	c.frame.MaxBytes = c.opts.MaxBytes
	c.shared.order.Init(c.frame.Device)
	c.stretch.rule = stretchesFor(c.frame.Device.Info())
	c.constructFrom = min(constructFrom, c.stretch.rule.MinRows)
	if c.opts.stretchBytes == 0 {
		if c.opts.stretchBytes = stretchBytes; quick.Bulk(c.frame.Device.Info().Name) {
			c.opts.stretchBytes /= 8 // the CPU device has less shared memory than a GPU
		}
	}
	if err := c.compile(); err != nil {
		return err
	}
	if c.least.mem, err = frame.Make[uint32](&c.frame, 1+leastBatch); err != nil {
		return err
	}
	buckets := c.bucketsFor(int64(c.opts.Capacity))
	if c.opts.MaxBytes > 0 {
		most := c.maxBuckets()
		if most < int64(c.cfg.virtual) {
			return fmt.Errorf("gph: MaxBytes of %s leaves no room for %d buckets of %d slots: a table takes %s at least; fewer VirtualBuckets take less",
				device.Bytes(c.opts.MaxBytes), c.cfg.virtual, c.cfg.bucket, device.Bytes(c.bytes(int64(c.cfg.virtual))))
		}
		buckets = min(buckets, most)
	}
	if err := c.allocate(c.frame.Device.Stream(), buckets, c.opts.Seed); err != nil {
		return err
	}
	return nil
}

func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.program("gph", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	c.build, c.stretch.late = nil, frame.Late{}
	err = errors.Join(
		device.Bind(m, "fill_replace", &k.replace.fill), device.Bind(m, "refine_replace", &k.replace.refine),
		device.Bind(m, "fill_new", &k.fresh.fill), device.Bind(m, "refine_new", &k.fresh.refine),
		device.Bind(m, "fill_old", &k.old.fill), device.Bind(m, "refine_old", &k.old.refine),
		device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase), device.Bind(m, "export_pairs", &k.export),
		c.compileShared())
	frame.AheadOfLate(c.frame.Device, c.loadStretches)
	return errors.Join(err, frame.AheadOfFinds(c.opts.Work, k.find))
}

// Sizes. A table has buckets, of which some are its reserve, a side bucket, and cells.

// bucketsFor is how many buckets hold the pairs at the load factor.
func (c *core) bucketsFor(pairs int64) int64 {
	slots := min(math.Ceil(float64(pairs)/c.opts.LoadFactor), 1<<50) // more than any memory, less than overflows
	return max(int64(math.Ceil(slots/float64(c.cfg.bucket))), int64(c.cfg.virtual))
}

// split divides so many buckets into stretches, all of one size, and the reserve, which takes what is left; a small table is
// one stretch without a reserve.
func (c *core) split(buckets int64) (stretches, each, reserve int64) {
	reserve = buckets / reserveShare
	if reserve < int64(2*c.cfg.virtual) {
		return 1, buckets, 0
	}
	most := max(c.opts.stretchBytes/c.cfg.bucketBytes(), int64(leastRings*c.cfg.virtual))
	stretches = max(1, (buckets-reserve)/most)
	each = (buckets - reserve) / stretches
	return stretches, each, buckets - stretches*each
}

// cells is a multiple of the number of stretches.
func (c *core) cells(buckets int64) int64 {
	keys := c.opts.KeysPerCell
	stretches, _, reserve := c.split(buckets)
	if reserve == 0 {
		keys /= 2
	}
	each := math.Ceil(float64(buckets*int64(c.cfg.bucket)) * c.opts.cellLoad / keys / float64(stretches))
	return stretches * max(1, int64(each))
}

// locks is a power of two.
func (c *core) locks(buckets int64) int64 {
	n := int64(1)
	for cells := c.cells(buckets) / 4; n < cells && n < maxLocks; {
		n *= 2
	}
	return n
}

// place lays out a table from an address on, and says where it ends.
func (c *core) place(base, buckets int64, seed uint64) (t Table, end int64) {
	take := func(bytes int64) uint64 {
		at := base
		base += frame.Align(bytes)
		return uint64(at)
	}
	cells, locks := c.cells(buckets), c.locks(buckets)
	stretches, each, reserve := c.split(buckets)
	t.Main, t.Reserve, t.CellCount, t.LockMask = uint64(buckets-reserve), uint64(reserve), uint64(cells), uint32(locks-1)
	t.Stretches, t.StretchBuckets, t.StretchCells = uint32(stretches), uint32(each), uint32(cells/stretches)
	t.Seed = seed
	t.Buckets = take((buckets + 1) * c.cfg.bucketBytes())
	t.Cells = take(cells * int64(c.cfg.cellBytes))
	t.Locks = take(4 * locks)
	return t, base
}

// setCells lets an empty table use fewer cells than it has memory for: n, or as many more as make all stretches have as many.
func (c *core) setCells(n int64) {
	stretches := int64(c.t.Stretches)
	each := min((max(n, 1)-1)/stretches+1, c.cells(int64(c.t.Main+c.t.Reserve))/stretches)
	c.t.CellCount, c.t.StretchCells = uint64(each*stretches), uint32(each)
}

func (c *core) bytes(buckets int64) int64 {
	_, end := c.place(0, buckets, 0)
	return end
}

// maxBuckets is the largest number of buckets that MaxBytes allows.
func (c *core) maxBuckets() int64 {
	from, to := int64(0), c.opts.MaxBytes/c.cfg.bucketBytes()+1 // bytes(from) fits, bytes(to) does not
	for from+1 < to {
		if mid := (from + to) / 2; c.bytes(mid) <= c.opts.MaxBytes {
			from = mid
		} else {
			to = mid
		}
	}
	return from
}

func (c *core) slots() int64 { return int64(c.t.Main+c.t.Reserve) * int64(c.cfg.bucket) }

// limit is how many pairs the table takes before it grows.
func (c *core) limit() int64 { return int64(float64(c.slots()) * c.opts.LoadFactor) }

// allocate makes an empty table: slots all ones, cells and locks 0. It waits for the stream.
func (c *core) allocate(st *device.Stream, buckets int64, seed uint64) (err error) {
	if cells := c.cells(buckets); cells > math.MaxUint32 {
		return fmt.Errorf("gph: a table of %d buckets takes %d cells (want up to 2³²-1); more KeysPerCell make them fewer", buckets, cells)
	}
	m := memory{}
	defer func() {
		if err != nil {
			m.free(&c.frame)
		}
	}()
	if err = c.frame.Budget(c.bytes(buckets)); err != nil {
		return err
	}
	if m.mem, err = frame.Make[byte](&c.frame, c.bytes(buckets)); err != nil {
		return err
	}
	if err = m.counters.Make(&c.frame, st); err != nil {
		return err
	}
	m.t, _ = c.place(int64(m.mem.Addr()), buckets, seed)
	m.t.Counters = m.counters.Addr()
	if err = errors.Join(m.empty(st), st.SyncOf(c.frame.Device)); err == nil {
		c.memory = m
	}
	return err
}

// empty fills the memory as an empty table has it.
func (m *memory) empty(st *device.Stream) error {
	slots := int(m.t.Cells - m.t.Buckets)
	return errors.Join(m.mem.Slice(0, slots).Fill(st, 0xff), m.mem.Slice(slots, m.mem.Len()).Fill(st, 0), m.counters.Clear(st))
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	if err := c.counters.Look(st); err != nil {
		return 0, err
	}
	return c.live(), nil
}

// reset sets the counters that are not sums.
func (c *core) reset(st *device.Stream) error {
	c.counters.Seen.Refused, c.counters.Seen.Exported = 0, 0
	return c.counters.Set(st)
}

// grid covers n items.
func (c *core) grid(n int64) device.Grid { return c.frame.Grid(n, 8*waves) }

// insertion takes batches in with the kernels.
func (c *core) insertion(k *insertKernels) frame.Insertion {
	return frame.Insertion{
		Put:  func(st *device.Stream, b frame.Rows) ([]int, error, error) { return c.insert(st, k, b) },
		Find: func(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.find, b) },
		Size: func() (int64, int64) { return c.slots(), c.live() },
	}
}

// constructs tells whether so many pairs go into an empty table by bulk construction. On the CPU device, whose lanes take turns wherever a block works
// together, that takes three times as long as the two phases. In stress mode what matters is that all of it runs.
func (c *core) constructs(n int64) bool {
	info := c.frame.Device.Info()
	return n >= c.constructFrom && (info.CUDA() || info.Stress || quick.Bulk(info.Name))
}

// insert inserts pairs, growing as it must. The positions that do not fit come back with the reason. It waits for the stream: only
// the end of a batch tells whether every pair found its place.
func (c *core) insert(st *device.Stream, k *insertKernels, b frame.Rows) (refused []int, why, err error) {
	live, err := c.look(st)
	if err != nil {
		return nil, nil, err
	}
	if live == 0 {
		c.setCells(math.MaxInt64) // Build may have left few: any code will do for a cell without pairs
	}
	if live == 0 && b.Flags == 0 && c.constructs(b.N) {
		if err := c.growFirst(st, b); err != nil {
			return nil, nil, err
		}
		if b.N <= c.limit() {
			return c.constructOr(st, b, false)
		}
	}
	return c.insertParts(st, k, b)
}

// growFirst brings an empty table to the size of a batch, if its keys are mostly different ones: so that it is made at once.
func (c *core) growFirst(st *device.Stream, b frame.Rows) error {
	if b.N <= c.limit() || !c.frame.Device.Info().CUDA() || !frame.CanCount(c.cfg.keyBytes) {
		return nil
	}
	distinct, _, err := c.frame.Distinct(st, b.Keys, c.cfg.keyBytes, b.N)
	if device.IsOutOfMemory(err) || err == nil && distinct < b.N-b.N/mostlyNew {
		return nil
	}
	if err == nil {
		_, err = c.makeRoom(st, b.N, 0)
	}
	return err
}

// insertParts inserts by the two phases. In a part that may be more than the table takes, nothing is moved before the table has
// grown.
func (c *core) insertParts(st *device.Stream, k *insertKernels, b frame.Rows) (refused []int, why, err error) {
	bound, moves, grown := false, false, 0
	return frame.Inserter{
		Try: c.frame.Tries(firstBatch),
		Room: func(_ int64, bound bool) (int64, error) {
			if bound {
				return math.MaxInt64, nil
			}
			return c.limit() - c.live(), nil
		},
		Launch: func(p frame.Part) error {
			if p.Attempt == 0 {
				grown = 0
			} else if err := c.reset(st); err != nil {
				return err
			}
			moves = p.Attempt > 0 || bound || c.live()+int64(p.N) <= c.limit()
			return c.launchInsert(st, k, insertParams{Attempt: p.Attempt, Refused: p.Refused}, b.Part(p, c.cfg.keyBytes, c.cfg.valueBytes), moves)
		},
		Look: func() (refused, live int64, err error) {
			live, err = c.look(st)
			return int64(c.counters.Seen.Refused), live, err
		},
		Grow: func(refused, need, pairs int64) (why, err error) {
			if !moves && need <= c.limit() {
				return nil, nil
			}
			why, err = c.makeRoom(st, pairs, grown)
			grown++
			bound = why != nil
			return why, err
		},
		After: func() error {
			if c.counters.Seen.Refused == 0 {
				return nil
			}
			return c.reset(st)
		},
		Settle: func(int64) (attempt uint64, err error) {
			if moves {
				return 0, nil
			}
			return 1, nil
		},
	}.Run(&c.frame, st, b.N, c.live())
}

// listMemory holds the list of items between the phases of an insert, behind their number.
type listMemory struct{ mem device.Slice[uint32] }

// list gives a list for n items, or for as many as there is memory for, until the lease is done.
func (c *core) list(n int64) (list listMemory, most int64, lease frame.Lease) {
	for n = min(n, largestBatch); n > leastBatch; n /= 2 {
		if lease, err := c.frame.Scratch(4 * (n + 1)); err == nil {
			return listMemory{device.View[uint32](lease.Mem, 0, int(n+1))}, n &^ 31, lease // positions of one word of the bitmap go together
		}
	}
	return c.least, leastBatch, lease
}

// launchInsert queues the two phases of an insert of rows, or the first alone, in pieces that the list between them holds.
func (c *core) launchInsert(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows, moves bool) error {
	if !moves {
		p.Alone = 1
	}
	if err := k.fill.Ahead(); err != nil {
		return err
	}
	if moves {
		if err := k.refine.Ahead(); err != nil {
			return err
		}
	}
	list, most, lease := c.list(b.N)
	defer lease.Done()
	p.Table, p.List = c.t, list.mem.Addr()
	bitmap, source := p.Refused, p.First
	for first := int64(0); first < b.N; first += most {
		n := min(most, b.N-first)
		part := b.Part(frame.Part{First: uint64(first), N: uint64(n)}, c.cfg.keyBytes, c.cfg.valueBytes)
		p.Keys, p.Values, p.Added, p.N, p.First = part.Keys, part.Values, part.Flags, uint64(n), source+uint64(first)
		if bitmap != 0 {
			p.Refused = bitmap + uint64(first/8)
		}
		if err := frame.InTurn(
			func() error { return list.mem.Slice(0, 1).Fill(st, 0) },
			func() error { return k.fill.Launch(st, c.grid(n), &p) },
		); err != nil {
			return err
		}
		if !moves {
			continue
		}
		if err := k.refine.Launch(st, c.refineGrid(n), &p); err != nil {
			return err
		}
	}
	return nil
}

// refineGrid has as many groups as a GPU can hold; each takes pairs from the list until it ends.
func (c *core) refineGrid(n int64) device.Grid {
	g := c.frame.Grid(n, 8)
	if !c.frame.Device.Info().CUDA() {
		g.Blocks = min(g.Blocks, 64)
	}
	return g
}

// makeRoom makes a table that takes more: a larger one, or, where pairs found no place though there are empty slots
// enough, first one with another seed. why says what forbids it: then the table is as it was.
func (c *core) makeRoom(st *device.Stream, pairs int64, attempt int) (why, err error) {
	buckets := int64(c.t.Main + c.t.Reserve)
	want := buckets
	// To lay a full table anew for every batch would cost much, and help little.
	recently := c.laidAnew > 0 && pairs >= c.laidAnew-c.laidAnew/32
	switch {
	case pairs > c.limit():
		want = max(c.bucketsFor(pairs), 2*buckets)
	case c.cfg.hash == kernel.HashMurmur && (attempt > 0 || recently):
		want = buckets + buckets/2
	}
	if attempt > rebuilds && pairs < c.limit()/8 {
		return fmt.Errorf("gph: %d pairs find no place in %d slots under any of %d seeds", pairs, c.slots(), attempt), nil
	}
	if limit := c.opts.MaxBytes; limit > 0 && c.bytes(want) > limit {
		want = max(buckets, c.maxBuckets())
	}
	if want == buckets && c.cfg.hash == kernel.HashMurmur {
		if pairs > c.limit() || recently {
			return c.noRoom(), nil
		}
		c.laidAnew = pairs
	}
	laid := c.laidAnew
	err = c.rebuild(st, want, attempt)
	if want == buckets {
		c.laidAnew = laid
	}
	if device.IsOutOfMemory(err) {
		return err, nil
	}
	if errors.Is(err, errNoPlace) {
		return c.noRoom(), nil
	}
	return nil, err
}

// noRoom is why a table does not grow.
func (c *core) noRoom() error {
	if c.opts.MaxBytes == 0 {
		return errNoPlace
	}
	return frame.AtMaxBytes(c.opts.MaxBytes)
}

var errNoPlace = errors.New("gph: pairs find no place in the table")

// rebuild moves all pairs to a new table of that many buckets, or, if they find no place there, of more or with another
// seed; salt changes the seed from the beginning. A hash function other than murmur, meant to be poor, gives way to it. On an error the old table stands. It waits
// for the stream.
func (c *core) rebuild(st *device.Stream, buckets int64, salt int) error {
	old, hash := c.memory, c.cfg.hash
	err := errNoPlace
	for attempt := 0; attempt < rebuilds && errors.Is(err, errNoPlace); attempt++ {
		if attempt > 0 {
			more := buckets + buckets/4 + 1
			if c.opts.MaxBytes > 0 {
				more = max(buckets, min(more, c.maxBuckets()))
			}
			if more == buckets && attempt > 1 {
				break // another seed may help once, hardly twice
			}
			buckets = more
		}
		if c.cfg.hash != kernel.HashMurmur && (attempt > 0 || buckets <= int64(old.t.Main+old.t.Reserve)) {
			c.cfg.hash = kernel.HashMurmur
			if e := c.compile(); e != nil {
				c.cfg.hash = hash
				return errors.Join(e, c.compile())
			}
		}
		seed := old.t.Seed + uint64(attempt+salt)
		if buckets <= int64(old.t.Main+old.t.Reserve) {
			seed++ // or the same pairs would want the same places
		}
		err = c.rebuildOnce(st, old, buckets, seed)
	}
	if err != nil {
		if c.cfg.hash != hash {
			c.cfg.hash = hash
			err = errors.Join(err, c.compile())
		}
		return err
	}
	return old.free(&c.frame)
}

func (c *core) rebuildOnce(st *device.Stream, old memory, buckets int64, seed uint64) error {
	if err := c.frame.Spare(); err != nil { // the new table may need the memory more
		return err
	}
	if err := c.allocate(st, buckets, seed); err != nil {
		return err
	}
	err := c.refill(st, old)
	if err == nil && c.live() != old.live() {
		err = fmt.Errorf("gph: %d pairs of %d came to a new table: this is a defect of warpmap", c.live(), old.live())
	}
	if err != nil {
		err = errors.Join(err, c.memory.free(&c.frame))
		c.memory = old
	}
	return err
}

// refill puts the old table's pairs into the new one, which is empty: by bulk construction, or, where there is too little
// memory for the pairs in between, slot by slot. errNoPlace: some found no place.
func (c *core) refill(st *device.Stream, old memory) error {
	if n := old.live(); c.constructs(n) {
		keyBytes := frame.Align(n * int64(c.cfg.keyBytes))
		mem, err := device.MakePooled[byte](c.frame.Device, int(keyBytes+n*int64(c.cfg.valueBytes)))
		if err == nil {
			defer c.frame.Free(mem)
			in := frame.Rows{Keys: mem.Addr(), Values: mem.Addr() + uint64(keyBytes), N: n}
			if err := old.exporter(c).All(family, st, in.Keys, in.Values); err != nil {
				return err
			}
			return c.construct(st, in, false, func(x frame.Rows) error { return c.placeAll(st, &c.kernel.fresh, insertParams{}, x) })
		}
		if !device.IsOutOfMemory(err) {
			return err
		}
	}
	slots := int64(old.t.Main+old.t.Reserve+1) * int64(c.cfg.bucket)
	return c.placeAll(st, &c.kernel.old, insertParams{Source: old.t}, frame.Rows{N: slots})
}

// placeAll inserts rows that must all find their place: errNoPlace if they do not. It waits for the stream.
func (c *core) placeAll(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) error {
	if err := c.launchInsert(st, k, p, b, true); err != nil {
		return err
	}
	if _, err := c.look(st); err != nil {
		return err
	}
	if c.counters.Seen.Refused > 0 {
		return errNoPlace
	}
	return nil
}

// Grow makes room for at least n pairs in all. It needs memory for the old and the new table at once. Errors:
// table.ErrMaxBytes; *device.OutOfMemoryError. After an error the table is unchanged.
func (h *handle) Grow(n int) error {
	c := h.made()
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, _ int64) error {
		want := c.bucketsFor(int64(n))
		if want <= int64(c.t.Main+c.t.Reserve) {
			return nil
		}
		if limit := c.opts.MaxBytes; limit > 0 && c.bytes(want) > limit {
			return c.frame.NoRoomFor(n, c.bytes(want), limit)
		}
		return c.rebuild(st, want, 0)
	})
}

// find queues a look-up.
func (c *core) find(st *device.Stream, b frame.Rows) error {
	if c.opts.Index == Shared {
		if captured, err := st.Capturing(); err != nil {
			return err
		} else if !captured { // a graph takes no turns at scratch memory
			return c.findShared(st, b)
		}
	}
	return c.search(st, c.kernel.find, b)
}

// erase queues a deletion.
func (c *core) erase(st *device.Stream, b frame.Rows) error { return c.search(st, c.kernel.erase, b) }

func (c *core) search(st *device.Stream, k device.Kernel[findParams], b frame.Rows) error {
	p := findParams{Table: c.t, Keys: b.Keys, Values: b.Values, Found: b.Flags, N: uint64(b.N)}
	return k.Launch(st, c.grid(b.N), &p)
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// Len counts the pairs.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear removes all pairs and keeps the capacity. It queues its work and returns.
func (h *handle) Clear() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		c.laidAnew = 0
		c.setCells(math.MaxInt64)
		return c.empty(st)
	})
}

// slots is how many slots there are in all.
func (m *memory) slots(c *core) int64 { return int64(m.t.Main+m.t.Reserve+1) * int64(c.cfg.bucket) }

// exporter is how the pairs are given out.
func (m *memory) exporter(c *core) frame.Exporter {
	return frame.Exporter{Slots: m.slots(c), Live: m.live(), Export: func(st *device.Stream, r frame.Range) (int64, error) {
		m.counters.Seen.Exported = 0
		p := slotsParams{Table: m.t, First: uint64(r.First), Slots: uint64(r.Slots), Keys: r.Keys, Values: r.Values, Limit: uint64(r.Limit)}
		err := frame.InTurn(
			func() error { return m.counters.Set(st) },
			func() error { return c.kernel.export.Launch(st, c.grid(r.Slots), &p) },
		)
		if err == nil {
			err = m.counters.Look(st)
		}
		return int64(m.counters.Seen.Exported), err
	}}
}

func (c *core) exporting(st *device.Stream) (frame.Exporter, error) {
	_, err := c.look(st)
	return c.memory.exporter(c), err
}

// Stats is what IndexStats measures: table.Stats, and what the paper measures of the cell index.
type Stats struct {
	table.Stats
	Cells       int     `json:"cells"`
	IndexBytes  int64   `json:"index_bytes"` // of the cells
	KeysPerCell float64 `json:"keys_per_cell"`
	Reserve     int     `json:"reserve"` // buckets of the reserve, counted in Capacity
	Moves       int     `json:"moves"`   // inserts that took an extended move, since the table was last rebuilt
	Moved       int     `json:"moved"`   // pairs that these moved
	Rings       int     `json:"rings"`   // sets of R buckets that were examined for these moves
}

// IndexStats measures the table, as Stats does, and its cell index.
func (h *handle) IndexStats() (s Stats, err error) {
	c := h.made()
	err = c.frame.Reading(nil, func(st *device.Stream) error {
		live, err := c.look(st)
		if err != nil {
			return err
		}
		k := &c.counters.Seen
		s = Stats{
			Stats: table.Stats{Len: int(live), Capacity: int(c.slots()), Bytes: int64(c.mem.Len()), MaxProbes: 1},
			Cells: int(c.t.CellCount), IndexBytes: int64(c.t.CellCount) * int64(c.cfg.cellBytes), Reserve: int(c.t.Reserve),
			KeysPerCell: float64(live) / float64(c.t.CellCount), Moves: int(k.Moves), Moved: int(k.Moved), Rings: int(k.Tried),
		}
		c.frame.Tell(&s.Stats, nil) // every look-up reads one bucket
		return nil
	})
	return s, err
}

// Stats measures the table.
func (h *handle) Stats() (table.Stats, error) {
	s, err := h.IndexStats()
	return s.Stats, err
}

// Close frees the table's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

func (c *core) free() error {
	err := errors.Join(c.memory.free(&c.frame), c.shared.free(), c.frame.Free(c.least.mem))
	c.shared.order.Close()
	return err
}
