package gph

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Options are what New understands beside table.Options. The zero value is good.
type Options struct {
	table.Options
	// Bucket is M, the slots of a bucket: 4, 8, 16 or 32. Zero means 64 bytes' worth, 4 at least, and 8 of 16 bytes for load
	// factors over 0.6.
	Bucket int
	// VirtualBuckets is R, the virtual buckets of a cell: 2, 4, 8, 16 or 32. Zero means 32.
	VirtualBuckets int
	// CellBytes is the size of a cell, 1 or 2. Zero means 1.
	CellBytes int
	// KeysPerCell is how many keys a cell has on average once the table is filled to its load factor. Fewer keys make it
	// easier to find them a place, and the index larger. Zero means what lets inserts reach the load factor.
	KeysPerCell float64
	// InsertGroup and FindGroup are the lanes that work on one key, 1 to 32: |h| and |g| of the paper. Zero means what is
	// fastest on the device. A group that moves a cell has InsertGroup lanes too, but 8 at least on a GPU.
	InsertGroup, FindGroup int
	// Index says where look-ups read the cells.
	Index Index
	// NoProfile leaves aside what `warpmap tune gph` found for this device, in a program that has called UseProfiles.
	NoProfile bool
}

const (
	defaultLoadFactor = 0.8
	bucketBytes       = 64
	threads           = 256 // a block
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow.
	firstBatch = 1 << 16
	// largestBatch bounds the lists that an insert needs, at 8 bytes an item.
	largestBatch = 1 << 24
	// smallBatch is tried as it is, however little memory there is for its lists.
	smallBatch = 1 << 12
	// constructFrom is the batch that is worth a bulk construction where the table is empty.
	constructFrom = 1 << 16
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
type insertKernels struct{ fill, refine device.Kernel[InsertParams] }

// core is the table under Map: it owns the memory, and works in addresses and bits.
type core struct {
	d      *device.Device
	cfg    config
	opts   Options
	kernel struct {
		replace, fresh, old insertKernels
		find, erase         device.Kernel[FindParams]
		export              device.Kernel[SlotsParams]
	}
	order table.Order // also guards what follows
	stage table.Stage

	memory
	closed  bool
	scratch device.Slice[byte]
	shared  sharedIndex
	foreach map[string]*foreachProgram // by the callback and the table's type
	build   *builder                   // of the present hash function; nil until needed
}

// memory is what a rebuild replaces.
type memory struct {
	t        Table
	mem      device.Slice[byte]
	counters device.Slice[Counters]
	live     int64 // pairs, at the last look at the counters
	k        Counters
	laidAnew int64 // so many pairs were to find a place when this table was last laid anew in its size; 0: never
}

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	move := c.opts.InsertGroup
	if move > 1 || c.d == nil || c.d.Info().CUDA() { // a GPU's shared memory holds no workspace for every lane
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
	if err := errors.Join(o.Options.Check(), o.Index.check()); err != nil {
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
	if o.LoadFactor == 0 {
		o.LoadFactor = defaultLoadFactor
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
	if o.KeysPerCell == 0 {
		o.KeysPerCell = cfg.keysPerCell(o.LoadFactor)
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

func newCore(d *device.Device, keyBytes, valueBytes int, o Options) (*core, error) {
	if d == nil {
		return nil, errors.New("gph: no device (see device.Open)")
	}
	c := &core{d: d, cfg: config{keyBytes: keyBytes, valueBytes: valueBytes}}
	if err := o.complete(d.Info(), &c.cfg); err != nil {
		return nil, err
	}
	c.opts = o
	c.order.Init(d)
	c.stage.Init(d)
	if err := c.compile(); err != nil {
		return nil, err
	}
	buckets := c.bucketsFor(int64(o.Capacity))
	if o.MaxBytes > 0 {
		most := c.maxBuckets()
		if most < int64(c.cfg.virtual) {
			return nil, fmt.Errorf("gph: MaxBytes of %s leaves no room for %d buckets of %d slots: a table takes %s at least; fewer VirtualBuckets take less",
				device.Bytes(o.MaxBytes), c.cfg.virtual, c.cfg.bucket, device.Bytes(c.bytes(int64(c.cfg.virtual))))
		}
		buckets = min(buckets, most)
	}
	if err := c.allocate(buckets, o.Seed); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *core) compile() error {
	m, err := c.d.Compile(c.program("gph", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	c.build = nil
	return errors.Join(
		find(m, "fill_replace", &k.replace.fill), find(m, "refine_replace", &k.replace.refine),
		find(m, "fill_new", &k.fresh.fill), find(m, "refine_new", &k.fresh.refine),
		find(m, "fill_old", &k.old.fill), find(m, "refine_old", &k.old.refine),
		find(m, "find", &k.find), find(m, "erase", &k.erase), find(m, "export_pairs", &k.export),
		c.compileShared())
}

func find[P any](m *device.Module, name string, k *device.Kernel[P]) (err error) {
	*k, err = device.KernelOf[P](m, name)
	return err
}

// Sizes. A table has buckets, of which some are its reserve, a side bucket, and cells.

// bucketsFor is how many buckets hold the pairs at the load factor.
func (c *core) bucketsFor(pairs int64) int64 {
	slots := min(math.Ceil(float64(pairs)/c.opts.LoadFactor), 1<<50) // more than any memory, less than overflows
	return max(int64(math.Ceil(slots/float64(c.cfg.bucket))), int64(c.cfg.virtual))
}

// reserve is how many of so many buckets belong to the reserve.
func (c *core) reserve(buckets int64) int64 {
	if r := buckets / reserveShare; r >= int64(2*c.cfg.virtual) {
		return r
	}
	return 0
}

func (c *core) cells(buckets int64) int64 {
	keys := c.opts.KeysPerCell
	if c.reserve(buckets) == 0 {
		keys /= 2
	}
	return max(1, int64(math.Ceil(float64(buckets*int64(c.cfg.bucket))*c.opts.LoadFactor/keys)))
}

// locks is a power of two.
func (c *core) locks(buckets int64) int64 {
	n := int64(1)
	for cells := c.cells(buckets) / 4; n < cells && n < maxLocks; {
		n *= 2
	}
	return n
}

func align(n int64) int64 { return (n + 127) &^ 127 }

// place lays out a table from an address on, and says where it ends.
func (c *core) place(base, buckets int64, seed uint64) (t Table, end int64) {
	take := func(bytes int64) uint64 {
		at := base
		base += align(bytes)
		return uint64(at)
	}
	reserve, cells, locks := c.reserve(buckets), c.cells(buckets), c.locks(buckets)
	t.Main, t.Reserve, t.CellCount, t.LockMask = uint64(buckets-reserve), uint64(reserve), uint64(cells), uint32(locks-1)
	t.BucketsPerCell = bucketsPerCell(t.Main, cells)
	t.Span = uint32(min(t.Main, spanBuckets))
	t.Seed = seed
	t.Buckets = take((buckets + 1) * c.cfg.bucketBytes())
	t.Cells = take(cells * int64(c.cfg.cellBytes))
	t.Locks = take(4 * locks)
	return t, base
}

func bucketsPerCell(main uint64, cells int64) uint32 {
	return uint32(min(float64(main)/float64(cells)*(1<<ratioShift), math.MaxUint32))
}

// setCells lets an empty table use fewer cells than it has memory for.
func (c *core) setCells(n int64) {
	n = min(n, c.cells(int64(c.t.Main+c.t.Reserve)))
	c.t.CellCount, c.t.BucketsPerCell = uint64(n), bucketsPerCell(c.t.Main, n)
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

// allocate makes an empty table: slots all ones, cells and locks 0.
func (c *core) allocate(buckets int64, seed uint64) error {
	if cells := c.cells(buckets); cells > math.MaxUint32 {
		return fmt.Errorf("gph: a table of %d buckets takes %d cells (want up to 2³²-1); more KeysPerCell make them fewer", buckets, cells)
	}
	mem, err := device.Make[byte](c.d, int(c.bytes(buckets)))
	if err != nil {
		return err
	}
	counters, err := device.Make[Counters](c.d, 1)
	if err != nil {
		mem.Free()
		return err
	}
	old := c.memory
	c.t, _ = c.place(int64(mem.Addr()), buckets, seed)
	c.t.Counters = counters.Addr()
	c.mem, c.counters, c.live, c.k = mem, counters, 0, Counters{}
	st := c.d.Stream()
	if err := errors.Join(c.empty(st), st.Sync()); err != nil {
		mem.Free()
		counters.Free()
		c.memory = old
		return err
	}
	return nil
}

// empty fills the memory as an empty table has it.
func (c *core) empty(st *device.Stream) error {
	slots := int(c.t.Cells - c.t.Buckets)
	return errors.Join(c.mem.Slice(0, slots).Fill(st, 0xff), c.mem.Slice(slots, c.mem.Len()).Fill(st, 0), c.counters.Fill(st, 0))
}

// locked runs f with the table's lock held, unless the table is closed.
func (c *core) locked(f func() error) error {
	c.order.Lock()
	defer c.order.Unlock()
	if c.closed {
		return fmt.Errorf("gph: %w", table.ErrClosed)
	}
	return f()
}

// look waits for the stream and reads the counters.
func (c *core) look(st *device.Stream) error {
	var k [1]Counters
	if err := c.counters.Read(st, k[:]); err != nil {
		return err
	}
	c.k = k[0]
	c.live = int64(k[0].Inserted - k[0].Erased)
	return nil
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

// waves is how many times over a grid fills the GPU.
const waves = 16

// memoryFor gives scratch memory that lasts until the next call. The caller holds the lock, and waits for its work before
// it lets go.
func (c *core) memoryFor(bytes int64) (uint64, error) {
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

// insert inserts n pairs at device addresses, growing as it must. The positions that do not fit come back with the reason.
// It waits for the stream: only the end of a batch tells whether every pair found its place. The caller holds the lock.
//
// The positions from untried on were not tried, for want of memory, and are not among the failed ones.
func (c *core) insert(st *device.Stream, k *insertKernels, keys, values, added uint64, n int64) (failed []int, untried int, why error, err error) {
	if n == 0 {
		return nil, 0, nil, nil
	}
	err = c.order.Write(st, func() error {
		if err := c.look(st); err != nil {
			return err
		}
		if c.live == 0 {
			c.setCells(math.MaxInt64) // Build may have left few: any code will do for a cell without pairs
		}
		if c.live == 0 && added == 0 && n >= constructFrom && n <= c.limit() {
			untried = int(n)
			failed, why, err = c.constructOr(st, pairs{keys, values, n}, false)
			return err
		}
		var from uint64
		failed, from, why, err = c.insertParts(st, k, InsertParams{Keys: keys, Values: values, Added: added, N: uint64(n)})
		untried = int(from)
		return err
	})
	return failed, untried, why, err
}

// insertParts goes through a batch in parts: each fits for sure, or is small enough to learn from it how many keys are new.
// Positions from untried on were not tried, for want of memory.
func (c *core) insertParts(st *device.Stream, k *insertKernels, p InsertParams) (failed []int, untried uint64, why error, err error) {
	keyBytes, valueBytes := uint64(c.cfg.keyBytes), uint64(c.cfg.valueBytes)
	try := uint64(firstBatch)
	if err := c.look(st); err != nil {
		return nil, 0, nil, err
	}
	n := p.N
	for first := uint64(0); first < n; {
		before := c.k.Inserted
		q := p
		q.N = min(n-first, largestBatch)
		with := k
		if room := uint64(max(0, c.limit()-c.live)); why == nil && q.N > room {
			q.N = min(q.N, max(room, try))
			if q.N > room { // some may have no room at all: nothing is moved for them before the table has grown
				with = &insertKernels{fill: k.fill}
			}
		}
		q.Keys, q.Values = p.Keys+first*keyBytes, p.Values+first*valueBytes
		if p.Added != 0 {
			q.Added = p.Added + first
		}
		lost, err := c.insertOnce(st, with, q)
		for oom(err) && q.N > smallBatch { // the lists have no room
			q.N /= 8
			lost, err = c.insertOnce(st, with, q)
		}
		if oom(err) { // nothing was tried of what is left
			return failed, first, err, nil
		} else if err != nil {
			return nil, n, nil, err
		}
		if with != k && len(lost) > 0 && c.live+int64(len(lost)) <= c.limit() {
			with = k
			if lost, err = c.insertAgain(st, k, q, lost); oom(err) {
				why, err = err, nil
			}
			if err != nil {
				return nil, n, nil, err
			}
		}
		fresh := c.k.Inserted - before
		for attempt := 0; why == nil && (len(lost) > 0 || c.live > c.limit()); attempt++ {
			// Room for what did not fit, and for as many new keys among the rest as among these; but no guess goes
			// further than four times what there is.
			need := c.live + int64(len(lost))
			guess := c.live + int64(len(lost)) + int64(float64(n-first-q.N)*float64(fresh)/float64(max(1, q.N-uint64(len(lost)))))
			if why, err = c.makeRoom(st, max(need, min(guess, 4*c.limit())), attempt); oom(why) {
				why, err = c.makeRoom(st, need, attempt)
			}
			if err != nil {
				return nil, n, nil, err
			}
			if len(lost) > 0 && (why == nil || with != k) { // in a larger table, or now with moves
				with = k
				if lost, err = c.insertAgain(st, k, q, lost); oom(err) {
					why, err = err, nil
				}
				if err != nil {
					return nil, n, nil, err
				}
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
	if len(failed) > 0 {
		if failed, err = c.stillOut(st, k, p, failed); oom(err) {
			why, err = err, nil
		}
	}
	return failed, n, why, err
}

// stillOut tries the refused positions of a whole batch again, without moves: an equal key of the batch may have come in
// after one was refused, and room in a bucket. Without moves a bucket that is full stays full, so in the end equal keys are
// in or out together.
func (c *core) stillOut(st *device.Stream, k *insertKernels, p InsertParams, failed []int) (out []int, err error) {
	for first := 0; first < len(failed); first += largestBatch {
		part := failed[first:min(first+largestBatch, len(failed))]
		lost, err := c.insertAgain(st, &insertKernels{fill: k.fill}, p, part)
		if err != nil {
			return append(out, failed[first:]...), err
		}
		out = append(out, lost...)
	}
	return out, nil
}

func oom(err error) bool {
	var e *device.OutOfMemoryError
	return errors.As(err, &e)
}

// insertOnce runs the two phases, or the first alone, on up to largestBatch pairs, waits, and reads which items found no
// place.
func (c *core) insertOnce(st *device.Stream, k *insertKernels, p InsertParams) (lost []int, err error) {
	list, err := c.memoryFor(8 * int64(p.N))
	if err != nil {
		return nil, err
	}
	p.Table, p.List, p.Refused = c.t, list, list+4*p.N
	if err := k.fill.Launch(st, c.grid(int64(p.N)), &p); err != nil {
		return nil, err
	}
	moves := k.refine != device.Kernel[InsertParams]{}
	if moves {
		if err := k.refine.Launch(st, c.refineGrid(int64(p.N)), &p); err != nil {
			return nil, err
		}
	}
	if err := c.look(st); err != nil {
		return nil, err
	}
	n, at := int(c.k.Refused), 4*p.N
	if !moves {
		n, at = int(c.k.Overflowed), 0
	}
	if n > 0 {
		raw := make([]uint32, n)
		if err := device.View[uint32](c.scratch, int(at), n).Read(st, raw); err != nil {
			return nil, err
		}
		for _, x := range raw {
			lost = append(lost, int(x))
		}
	}
	if c.k.Overflowed == 0 {
		return lost, nil
	}
	// The lists are read: they begin anew.
	c.k.Overflowed, c.k.Refused = 0, 0
	return lost, c.counters.Write(st, []Counters{c.k})
}

// refineGrid has as many groups as a GPU can hold; each takes pairs from the list until it ends.
func (c *core) refineGrid(n int64) device.Grid {
	g := device.GridFor(n, threads)
	if info := c.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, int64(info.Multiprocessors)*8)
	} else {
		g.Blocks = min(g.Blocks, 8)
	}
	return g
}

// insertAgain inserts the given positions of a batch. Those that still find no place come back, all of them with an error.
func (c *core) insertAgain(st *device.Stream, k *insertKernels, p InsertParams, positions []int) ([]int, error) {
	n := len(positions)
	raw := make([]uint64, n)
	for i, x := range positions {
		raw[i] = uint64(x)
	}
	list, err := device.From(c.d, raw)
	if err != nil {
		return positions, err
	}
	defer list.Free()
	p.N, p.Positions = uint64(n), list.Addr()
	lost, err := c.insertOnce(st, k, p)
	if err != nil {
		return positions, err
	}
	for i, x := range lost {
		lost[i] = positions[x]
	}
	return lost, nil
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
	if oom(err) {
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
	return fmt.Errorf("%w (%s)", table.ErrMaxBytes, device.Bytes(c.opts.MaxBytes))
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
	return errors.Join(old.mem.Free(), old.counters.Free())
}

func (c *core) rebuildOnce(st *device.Stream, old memory, buckets int64, seed uint64) error {
	if err := c.allocate(buckets, seed); err != nil {
		return err
	}
	err := c.refill(st, old)
	if err == nil && c.live != old.live {
		err = fmt.Errorf("gph: %d pairs of %d came to a new table: this is a defect of warpmap", c.live, old.live)
	}
	if err != nil {
		c.mem.Free()
		c.counters.Free()
		c.memory = old
	}
	return err
}

// refill puts the old table's pairs into the new one, which is empty: by bulk construction, or, where there is too little
// memory for the pairs in between, slot by slot. errNoPlace: some found no place.
func (c *core) refill(st *device.Stream, old memory) error {
	if old.live >= constructFrom {
		kb, vb := int64(c.cfg.keyBytes), int64(c.cfg.valueBytes)
		mem, err := device.Make[byte](c.d, int(align(old.live*kb)+old.live*vb))
		if err == nil {
			defer mem.Free()
			in := pairs{mem.Addr(), mem.Addr() + uint64(align(old.live*kb)), old.live}
			if err := old.export(st, c, in.keys, in.values); err != nil {
				return err
			}
			return c.construct(st, in, false, func(x pairs) error {
				for first := int64(0); first < x.n; first += largestBatch {
					n := min(x.n-first, largestBatch)
					p := InsertParams{Keys: x.keys + uint64(first*kb), Values: x.values + uint64(first*vb), N: uint64(n)}
					if lost, err := c.insertOnce(st, &c.kernel.fresh, p); err != nil {
						return err
					} else if len(lost) > 0 {
						return errNoPlace
					}
				}
				return nil
			})
		}
		if !oom(err) {
			return err
		}
	}
	slots := (old.t.Main + old.t.Reserve + 1) * uint64(c.cfg.bucket)
	for first := uint64(0); first < slots; first += largestBatch {
		p := InsertParams{Source: old.t, First: first, N: min(slots-first, largestBatch)}
		if lost, err := c.insertOnce(st, &c.kernel.old, p); err != nil {
			return err
		} else if len(lost) > 0 {
			return errNoPlace
		}
	}
	return nil
}

// growTo is Map.Grow.
func (c *core) growTo(n int) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("gph: grow to %d pairs (want 0 to 2⁴⁶)", n)
	}
	return c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() error {
			if err := c.look(st); err != nil {
				return err
			}
			want := c.bucketsFor(int64(n))
			if want <= int64(c.t.Main+c.t.Reserve) {
				return nil
			}
			if limit := c.opts.MaxBytes; limit > 0 && c.bytes(want) > limit {
				return fmt.Errorf("gph: room for %d pairs takes %s: %w (%s)", n, device.Bytes(c.bytes(want)), table.ErrMaxBytes, device.Bytes(limit))
			}
			return c.rebuild(st, want, 0)
		})
	})
}

// find launches find or erase.
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
			err := c.look(st)
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
			c.live, c.k, c.laidAnew = 0, Counters{}, 0
			c.setCells(math.MaxInt64)
			return c.empty(st)
		})
	})
}

// export copies every pair to memory for m.live of them.
func (m *memory) export(st *device.Stream, c *core, keys, values uint64) error {
	var k [1]Counters
	if err := m.counters.Read(st, k[:]); err != nil {
		return err
	}
	k[0].Exported = 0
	if err := m.counters.Write(st, k[:]); err != nil {
		return err
	}
	p := SlotsParams{Table: m.t, Keys: keys, Values: values, Limit: uint64(m.live)}
	if err := c.kernel.export.Launch(st, c.grid(int64(m.t.Main+m.t.Reserve+1)*int64(c.cfg.bucket)), &p); err != nil {
		return err
	}
	if err := m.counters.Read(st, k[:]); err != nil {
		return err
	}
	if int64(k[0].Exported) != m.live {
		return fmt.Errorf("gph: %d pairs exported of %d: this is a defect of warpmap", k[0].Exported, m.live)
	}
	return nil
}

// Stats are table.Stats and what the paper measures of the cell index.
type Stats struct {
	table.Stats
	Cells       int     `json:"cells"`
	IndexBytes  int64   `json:"index_bytes"` // of the cells
	KeysPerCell float64 `json:"keys_per_cell"`
	Reserve     int     `json:"reserve"` // buckets of the reserve, counted in Capacity
	Moves       int     `json:"moves"`   // inserts that took an extended move, since the table was last rebuilt
	Moved       int     `json:"moved"`   // pairs that these moved
	Rings       int     `json:"rings"`   // sets of R buckets that were examined for it
}

func (c *core) stats() (s Stats, err error) {
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Read(st, func() error {
			if err := c.look(st); err != nil {
				return err
			}
			s = Stats{
				Stats: table.Stats{Len: int(c.live), Capacity: int(c.slots()), LoadFactor: float64(c.live) / float64(c.slots()),
					Bytes: int64(c.mem.Len()), MaxProbes: 1},
				Cells: int(c.t.CellCount), IndexBytes: int64(c.t.CellCount) * int64(c.cfg.cellBytes), Reserve: int(c.t.Reserve),
				KeysPerCell: float64(c.live) / float64(c.t.CellCount), Moves: int(c.k.Moves), Moved: int(c.k.Moved), Rings: int(c.k.Tried),
			}
			s.Probes[0] = s.Len // every look-up reads one bucket
			if s.Len > 0 {
				s.MeanProbes = 1
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
	c.shared.free()
	c.counters.Free()
	if e := c.mem.Free(); err == nil && !errors.Is(e, device.ErrClosed) {
		err = e
	}
	return err
}
