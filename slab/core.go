package slab

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Options are what New, NewSet and NewMultiMap understand beside table.Options. The zero value is good.
//
// LoadFactor is the paper's β, the average slab count: pairs over the slots of the base slabs. Zero means 0.7, at which one
// bucket in fourteen has a second slab. A table with MaxBytes that cannot grow any more lets chains get longer, to
// a dozen slabs, until all its memory is in use.
type Options struct {
	table.Options
	// Group is the number of lanes that read a slab together, 1 to 32. Zero means what is fastest on the device: on a GPU
	// 8, with a 16-byte load each; on the CPU, one. 32 is the paper's warp-cooperative work sharing (§IV-A). Any group can
	// use any table.
	Group int
	// Light takes all slabs from one array (SlabAlloc-light, §V): a slab is found by one addition, and the table can only
	// grow by being copied.
	Light bool
	// NoPolicy leaves flushing to the caller's Flush and Grow. Otherwise a table whose chains hold many deleted pairs
	// is flushed at the end of an insert or a mixed batch.
	NoPolicy bool

	unpacked bool // for tests: keys and values apart, as on a device that cannot swap the pair whole
}

const (
	defaultLoadFactor = 0.7
	threads           = 256 // a block
	// largestBatch bounds the bitmap of refused positions, at a bit each.
	largestBatch = 1 << 30
	// leastPart is how many positions there is always a bitmap for: so every position of a batch is tried.
	leastPart = 1 << 15
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
)

// core is the table under Map, Set and MultiMap: it owns the memory, and works in addresses and bits.
type core struct {
	d      *device.Device
	cfg    config
	opts   Options
	kernel struct {
		insert, insertNew              device.Kernel[InsertParams]
		mixed                          device.Kernel[MixedParams]
		find, erase, eraseAll          device.Kernel[FindParams]
		flush, rehash, export, lengths device.Kernel[SlabsParams]
		all                            struct {
			count, sum, scan, offsets, fill device.Kernel[FindAllParams]
		}
		partition table.Partitioner[PartitionParams]
	}
	order table.Order // also guards what follows
	stage table.Stage

	memory
	closed     bool
	scratch    device.Slice[byte]
	partitions partitioning
	seen       device.Host[Counters] // where a look puts them
	refused    device.Slice[uint32]  // see reserveRefused
	ordered    device.Slice[byte]    // where batches are brought in order; kept for the next
}

// memory is what a rebuild replaces.
type memory struct {
	t        Table // but for Alloc, which is pool.a
	base     device.Slice[byte]
	counters device.Slice[Counters]
	pool     *pool
	k        Counters // at the last look; since then pairs may have been deleted
	// bound: the table has come to MaxBytes, and no longer grows by its number of pairs, but only for lack of slabs.
	bound bool
	// foreign: a kernel of the user's may have inserted since the last look.
	foreign bool
}

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	multi := 0
	if c.cfg.multi {
		multi = 1
	}
	return &device.Program{
		Name: name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "slab.cuh", Text: slabCUH}, {Name: "alloc.cuh", Text: allocCUH},
			{Name: "config.h", Text: c.cfg.header("config")}}, more...),
		Defines: append(defines(), device.Define{Name: "SLAB_GROUP", Value: c.opts.Group}, device.Define{Name: "SLAB_MULTI", Value: multi}),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(info device.Info, cfg *config) error {
	if err := o.Options.Check(); err != nil {
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
	if o.LoadFactor == 0 {
		o.LoadFactor = defaultLoadFactor
	}
	return nil
}

func newCore(d *device.Device, keyBytes, valueBytes int, o Options, multi bool) (*core, error) {
	if d == nil {
		return nil, errors.New("slab: no device (see device.Open)")
	}
	c := &core{d: d, cfg: config{keyBytes: keyBytes, valueBytes: valueBytes, multi: multi}}
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
	buckets, units := c.sizes(int64(o.Capacity))
	if c.tooLarge(buckets, units) {
		if buckets, units = c.largest(); buckets == 0 {
			return nil, fmt.Errorf("slab: MaxBytes of %s leaves no room for a slab", device.Bytes(o.MaxBytes))
		}
		c.bound = true
	}
	var err error
	if c.seen, err = device.MakeHost[Counters](d, 1); err != nil {
		return nil, err
	}
	if c.refused, err = device.Make[uint32](d, leastPart/32); err == nil {
		err = c.refused.Fill(d.Stream(), 0)
	}
	if err == nil {
		err = c.allocate(d.Stream(), buckets, units)
	}
	if err != nil {
		c.freeBuffers()
		return nil, err
	}
	return c, nil
}

func (c *core) compile() error {
	m, err := c.d.Compile(c.program("slab", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	err = errors.Join(find(m, "insert", &k.insert), find(m, "find", &k.find), find(m, "erase", &k.erase), find(m, "flush_buckets", &k.flush),
		find(m, "rehash", &k.rehash), find(m, "export_pairs", &k.export), find(m, "chain_lengths", &k.lengths))
	var wrong error
	k.partition, wrong = table.NewPartitioner[PartitionParams](c.d, m)
	err = errors.Join(err, wrong)
	if c.cfg.multi {
		return errors.Join(err, find(m, "erase_all", &k.eraseAll), find(m, "count_all", &k.all.count), find(m, "sum_chunks", &k.all.sum),
			find(m, "scan_totals", &k.all.scan), find(m, "write_offsets", &k.all.offsets), find(m, "fill_all", &k.all.fill))
	}
	return errors.Join(err, find(m, "insert_new", &k.insertNew), find(m, "mixed", &k.mixed))
}

func find[P any](m *device.Module, name string, k *device.Kernel[P]) (err error) {
	*k, err = device.KernelOf[P](m, name)
	return err
}

// Sizes. A table has buckets, each with a base slab; one base slab for reserved keys; and the units of its pool.

func align(n int64) int64 { return (n + 255) &^ 255 }

func baseBytes(buckets int64) int64 { return align((buckets + 1) * slabBytes) }

func tableBytes(buckets, units int64) int64 { return baseBytes(buckets) + superBytes(units) }

// bucketsFor is how many buckets so many pairs want.
func (c *core) bucketsFor(pairs int64) int64 {
	return max(1, int64(min(math.Ceil(float64(pairs)/(c.opts.LoadFactor*float64(c.cfg.slots()))), 1<<50)))
}

// unitsFor is how many slabs beyond the base slabs so many pairs take, for all but the unluckiest hashes.
func (c *core) unitsFor(pairs, buckets int64) int64 {
	n := c.cfg.overflow(pairs, buckets)
	return (n + n/4 + 16 + unitStep - 1) / unitStep * unitStep
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
func (c *core) rest(buckets int64) int64 { return unitsIn(c.opts.MaxBytes - baseBytes(buckets)) }

func (c *core) buckets() int64 { return int64(c.t.Buckets) }

// capacity counts the slots of base slabs and units; those of the reserved keys' slab do not count.
func (c *core) capacity() int64 { return (c.buckets() + c.pool.units()) * int64(c.cfg.slots()) }

// limit is how many pairs may be in before the table grows.
func (c *core) limit() int64 { return c.limitOf(c.buckets()) }

func (c *core) limitOf(buckets int64) int64 {
	return int64(math.Ceil(float64(buckets) * float64(c.cfg.slots()) * c.opts.LoadFactor))
}

func (c *core) bytes() int64 { return int64(c.base.Len()) + c.pool.bytes() }

// allocate makes an empty table: all bytes of slabs 0xff, the counters and bitmaps 0.
func (c *core) allocate(st *device.Stream, buckets, units int64) (err error) {
	if baseBytes(buckets) < 0 || baseBytes(buckets) > 1<<56 {
		return fmt.Errorf("slab: %d buckets: too many for any memory", buckets)
	}
	m := memory{bound: c.bound}
	defer func() {
		if err != nil {
			m.free()
		}
	}()
	if m.base, err = device.Make[byte](c.d, int(baseBytes(buckets))); err != nil {
		return err
	}
	if m.counters, err = device.Make[Counters](c.d, 1); err != nil {
		return err
	}
	if m.pool, err = newPool(c.d, c.opts.Light); err != nil {
		return err
	}
	if err = m.pool.add(st, units); err != nil {
		return err
	}
	if err = errors.Join(m.base.Fill(st, 0xff), m.counters.Fill(st, 0), st.SyncOf(c.d)); err != nil {
		return err
	}
	m.t = Table{Base: m.base.Addr(), Buckets: uint64(buckets), Seed: c.opts.Seed, Counters: m.counters.Addr()}
	c.memory = m
	return nil
}

func (m *memory) free() (err error) {
	if m.base.Len() > 0 {
		err = m.base.Free()
	}
	if m.counters.Len() > 0 {
		err = errors.Join(err, m.counters.Free())
	}
	if m.pool != nil {
		err = errors.Join(err, m.pool.free())
	}
	return err
}

// table is what kernels take.
func (m *memory) table() Table {
	t := m.t
	t.Alloc = m.pool.a
	if m.k.tombstones() > fewTombstones {
		t.Tombstones = 1
	}
	return t
}

// locked runs f with the table's lock held, unless the table is closed.
func (c *core) locked(f func() error) error {
	c.order.Lock()
	defer c.order.Unlock()
	if c.closed {
		return fmt.Errorf("slab: %w", table.ErrClosed)
	}
	return f()
}

// look waits for the stream and reads the counters.
func (c *core) look(st *device.Stream) error {
	err := errors.Join(c.counters.ReadAsync(st, c.seen, 1), st.SyncOf(c.d))
	if err == nil {
		c.k, c.foreign = c.seen.Slice()[0], false
	}
	return err
}

// reset sets the counters that are not sums.
func (c *core) reset(st *device.Stream) error {
	c.k.Failed, c.k.Exported = 0, 0
	return errors.Join(c.counters.Write(st, []Counters{c.k}), c.pool.dry.Fill(st, 0))
}

// grid covers n items. A GPU gets no more blocks than so many for each multiprocessor, and its threads go on in strides: a
// lane that is done with its item takes another. On the CPU each lane has one item, so that lanes in a row touch memory in a row.
func (c *core) grid(n, blocks int64) device.Grid {
	g := device.GridFor(n, threads)
	if info := c.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, int64(info.Multiprocessors)*blocks)
	}
	return g
}

// Blocks for each multiprocessor, by trial on an H200: a few times what is resident at once.
const (
	findBlocks   = 12
	insertBlocks = 12
	mixedBlocks  = 8
	walkBlocks   = 5 // of the kernels that go over all slabs
)

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

func oom(err error) bool {
	var e *device.OutOfMemoryError
	return errors.As(err, &e)
}

// attempt launches a kernel for part of a batch: the positions first … first+n-1, of which refused is the bitmap. See
// InsertParams.Attempt.
type attempt func(first, n, number, refused uint64) error

// settle runs a batch of n operations that may want room: in parts, so that a table that is too small grows on the way
// (by how many keys were new so far), and each again and again for the positions that the device refused, with more room each
// time. Those that find none come back with the reason. One operation in `inserts` is expected to add a pair. It waits for
// the stream. The caller holds the lock.
func (c *core) settle(st *device.Stream, n, inserts int64, launch attempt) (failed []int, why, err error) {
	boost := inserts
	if c.foreign {
		if err := c.look(st); err != nil {
			return nil, nil, err
		}
	}
	for first := int64(0); first < n; {
		count := min(n-first, largestBatch)
		if room := c.limit() - c.k.live(); !c.bound && count/inserts > room {
			if err := c.look(st); err != nil { // pairs may have been deleted since
				return nil, nil, err
			}
			room = c.limit() - c.k.live()
			count = min(count, max(inserts*room, boost*max(c.limit()/4, firstBatch)))
		}
		count, err := c.reserveRefused(st, count)
		if err != nil {
			return nil, nil, err
		}
		if err := c.prepare(st, count/inserts); err != nil {
			return nil, nil, err
		}
		before := c.k
		lost, w, err := c.settlePart(st, uint64(first), uint64(count), why, launch)
		if err != nil {
			return nil, nil, err
		}
		why = w
		for _, i := range lost {
			failed = append(failed, int(first)+i)
		}
		first += count
		if crowded := int64(c.k.Changes - before.Changes); c.k.Linked > before.Linked && crowded > crowdedChanges+int64(c.k.Linked-before.Linked) && !c.bound {
			// Allocations went from block to block: more blocks, before there are none (paper, §V).
			if _, err := c.extend(st, 0); err != nil {
				return nil, nil, err
			}
		}
		fresh := max(0, c.k.live()-before.live())
		if fresh < count/8 {
			boost *= 4
		}
		if err := c.follow(st, n-first, float64(fresh)/float64(count)); err != nil {
			return nil, nil, err
		}
	}
	return failed, why, nil
}

// reserveRefused makes the bitmap of refused positions large enough for n, or for as many as there is memory for, and tells
// for how many. All its bits are clear, but while a part of a batch is settled.
func (c *core) reserveRefused(st *device.Stream, n int64) (int64, error) {
	for words := (n + 31) / 32; words > int64(c.refused.Len()); words /= 2 {
		s, err := device.Make[uint32](c.d, int(words))
		if oom(err) {
			continue
		} else if err != nil {
			return 0, err
		}
		c.refused.Free()
		c.refused = s
		if err := s.Fill(st, 0); err != nil {
			return 0, err
		}
	}
	return min(n, 32*int64(c.refused.Len())), nil
}

func (c *core) freeBuffers() {
	c.seen.Free()
	if c.refused.Len() > 0 {
		c.refused.Free()
	}
}

// settlePart is settle for one part. why, if not nil, is what forbids more room.
func (c *core) settlePart(st *device.Stream, first, n uint64, why error, launch attempt) (lost []int, _ error, err error) {
	refused := c.refused.Addr()
	defer func() {
		if err != nil {
			c.refused.Fill(st, 0)
		}
	}()
	if err := errors.Join(launch(first, n, 0, refused), c.look(st)); err != nil {
		return nil, nil, err
	}
	for number := uint64(1); c.k.Failed > 0; {
		left := c.k.Failed
		freed := false
		if why == nil {
			if why, err = c.makeRoom(st, int64(left)); err != nil {
				return nil, nil, err
			}
		} else if c.k.tombstones() > 0 { // of this part, or of others that were queued before
			before := c.k.Flushed
			if err = c.flush(st); err != nil {
				return nil, nil, err
			}
			freed = c.k.Flushed > before
		}
		// Without more room, only slabs that others gave back are left; and at last none are taken, so that of equal keys
		// all are refused or none.
		if err := errors.Join(c.reset(st), launch(first, n, number, refused), c.look(st)); err != nil {
			return nil, nil, err
		}
		if number == lastAttempt {
			break
		}
		if why != nil && !freed {
			number++
			if c.k.Failed == left {
				number = lastAttempt
			}
		}
	}
	if c.k.Failed == 0 {
		return nil, why, nil
	}
	bitmap := c.refused.Slice(0, int((n+31)/32))
	raw, err := bitmap.Host(st)
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		if raw[i/32]>>(i%32)&1 == 1 {
			lost = append(lost, int(i))
		}
	}
	return lost, why, errors.Join(bitmap.Fill(st, 0), c.reset(st))
}

// prepare adds slabs for so many more pairs, before they come, as many as they are expected to take.
func (c *core) prepare(st *device.Stream, more int64) error {
	if c.bound {
		if buckets, units := c.largest(); buckets > 2*c.buckets() && c.k.live()+more < c.limitOf(buckets)/2 {
			_, err := c.rebuild(st, buckets, units) // chains need not be long any more
			return err
		}
		return nil
	}
	pairs := min(c.k.live()+more, c.limit()+c.limit()/2+firstBatch)
	if lack := c.unitsFor(pairs, c.buckets()) - c.pool.units(); lack > 0 {
		_, err := c.extend(st, lack)
		return err
	}
	return nil
}

// extend adds at least so many units, as far as MaxBytes allows. why says what forbids it.
func (c *core) extend(st *device.Stream, units int64) (why, err error) {
	have := c.pool.units()
	units = max(units, have/2, 64)
	if limit := c.opts.MaxBytes; limit > 0 {
		most := unitsIn(limit - c.bytes())
		if c.opts.Light {
			most = c.rest(c.buckets()) - have
		}
		if most == 0 {
			return fmt.Errorf("%w (%s)", table.ErrMaxBytes, device.Bytes(limit)), nil
		}
		if units > most/2 {
			units = most
		}
	}
	if c.opts.Light && have > 0 || len(c.pool.supers) == maxSupers {
		return c.rebuild(st, c.buckets(), have+units)
	}
	if err = c.pool.add(st, units); oom(err) || errors.Is(err, errSupers) {
		return err, nil
	}
	return nil, err
}

// makeRoom is called when so many operations found no slab. why says what forbids that it makes any.
func (c *core) makeRoom(st *device.Stream, lost int64) (why, err error) {
	if c.k.tombstones() > 0 {
		before := c.k.Flushed
		if err := c.flush(st); err != nil || c.k.Flushed > before {
			return nil, err
		}
	}
	if pairs := c.k.live() + lost; !c.bound && pairs > c.limit() {
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

// follow looks, after part of a batch, whether the table should grow or be flushed; more operations are to come, of
// which that share is expected to insert.
func (c *core) follow(st *device.Stream, more int64, share float64) error {
	if live := c.k.live(); !c.bound && live > c.limit() {
		guess := live + int64(float64(more)*share)
		why, err := c.grow(st, max(live, min(guess, furthestGuess*c.limit())))
		if oom(why) {
			_, err = c.grow(st, live)
		}
		return err // what is in is in: without room to grow, chains are longer
	}
	if !c.opts.NoPolicy && c.worthFlushing() {
		return c.flush(st)
	}
	return nil
}

// worthFlushing is the policy: deleted pairs take one slot in flushShare, or chains are far longer than the pairs want. The
// kernel of flushes has it too.
func (c *core) worthFlushing() bool {
	used := c.buckets() + c.k.slabs()
	return c.k.tombstones() > fewTombstones && (c.k.tombstones() > used*int64(c.cfg.slots())/flushShare || c.k.slabs() > c.longest())
}

// longest is how many slabs of the pool its pairs should use at most.
func (c *core) longest() int64 { return 2 * c.unitsFor(c.k.live(), c.buckets()) }

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
		if c.cfg.overflow(c.k.live(), buckets) > units {
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
	c.freeOrdered() // the new table may need the memory more
	old := c.memory
	for {
		if err = c.allocate(st, buckets, units); err != nil {
			c.memory = old
			if oom(err) || errors.Is(err, errSupers) {
				return err, nil
			}
			return nil, err
		}
		p := SlabsParams{Table: old.table(), Target: c.table()}
		if err = c.kernel.rehash.Launch(st, c.grid(buckets0(&old), walkBlocks), &p); err == nil {
			err = c.look(st)
		}
		if err == nil && c.k.Failed == 0 {
			return nil, old.free()
		}
		failed := int64(c.k.Failed)
		err = errors.Join(err, c.memory.free())
		c.memory = old
		if err != nil {
			return nil, err
		}
		// The hashes are worse than expected: so many more slabs surely do for what failed.
		units = (units + units/2 + failed + unitStep - 1) / unitStep * unitStep
		if c.tooLarge(buckets, units) {
			return fmt.Errorf("%w (%s)", table.ErrMaxBytes, device.Bytes(c.opts.MaxBytes)), nil
		}
	}
}

// buckets0 counts the chains of a table, that of the reserved keys too.
func buckets0(m *memory) int64 { return int64(m.t.Buckets) + 1 }

// flush compacts all chains (paper, §IV-C4). It waits for the stream.
func (c *core) flush(st *device.Stream) error { return errors.Join(c.queueFlush(st, 0), c.look(st)) }

// queueFlush queues a flush, with a share for the case that one slot in so many holds a deleted pair by then.
func (c *core) queueFlush(st *device.Stream, share uint64) error {
	p := SlabsParams{Table: c.table(), Share: share, Most: uint64(c.longest()), Flushed: c.k.Flushed, Freed: c.k.Freed}
	return c.kernel.flush.Launch(st, c.grid(buckets0(&c.memory)*int64(c.opts.Group), walkBlocks), &p)
}

// writing runs f as a writer of the table, with the lock held.
func (c *core) writing(st *device.Stream, f func(st *device.Stream) error) error {
	return c.locked(func() error {
		return c.order.Write(st, func() error { return f(st) })
	})
}

// growTo is Grow of Map, Set and MultiMap.
func (c *core) growTo(n int) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("slab: grow to %d pairs (want 0 to 2⁴⁶)", n)
	}
	return c.writing(c.d.Stream(), func(st *device.Stream) error {
		if err := c.look(st); err != nil {
			return err
		}
		buckets, units := c.sizes(int64(n))
		switch {
		case buckets <= c.buckets(): // in its place
			if c.k.tombstones() > 0 {
				if err := c.flush(st); err != nil {
					return err
				}
			}
			lack := c.unitsFor(int64(n), c.buckets()) - c.pool.units()
			if lack <= 0 || c.k.live() >= int64(n) {
				return nil
			}
			why, err := c.extend(st, lack)
			return errors.Join(why, err)
		case c.tooLarge(buckets, units):
			return fmt.Errorf("slab: room for %d pairs takes %s: %w (%s)", n, device.Bytes(tableBytes(buckets, units)), table.ErrMaxBytes, device.Bytes(c.opts.MaxBytes))
		}
		why, err := c.rebuild(st, buckets, units)
		return errors.Join(why, err)
	})
}

func (c *core) length() (n int, err error) {
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Read(st, func() error {
			err := c.look(st)
			n = int(c.k.live())
			return err
		})
	})
	return n, err
}

func (c *core) clear() error {
	return c.writing(c.d.Stream(), func(st *device.Stream) error {
		c.k = Counters{}
		return errors.Join(c.base.Fill(st, 0xff), c.counters.Fill(st, 0), c.pool.reset(st))
	})
}

// export writes all pairs; values may be 0.
func (c *core) export(st *device.Stream, keys, values uint64) error {
	live := c.k.live()
	if err := c.reset(st); err != nil {
		return err
	}
	p := SlabsParams{Table: c.table(), Keys: keys, Values: values, Limit: uint64(live)}
	if err := c.kernel.export.Launch(st, c.grid(buckets0(&c.memory), walkBlocks), &p); err != nil {
		return err
	}
	if err := c.look(st); err != nil {
		return err
	}
	if int64(c.k.Exported) != live {
		return fmt.Errorf("slab: %d pairs exported of %d: this is a defect of warpmap", c.k.Exported, live)
	}
	return nil
}

// Stats is what a table of this family measures of itself.
type Stats struct {
	table.Stats
	Buckets int `json:"buckets"`
	Slabs   int `json:"slabs"` // in chains, the base slabs among them
	// Utilization is the memory that holds pairs over the memory of all slabs in chains (paper, §III-C).
	Utilization float64 `json:"utilization"`
	// SlabsPerBucket is the average length of a chain, and AverageSlabCount the paper's β: pairs over the slots of the
	// base slabs.
	SlabsPerBucket   float64 `json:"slabs_per_bucket"`
	AverageSlabCount float64 `json:"average_slab_count"`
	Units            int     `json:"units"` // slabs of the pool, taken or not
	SuperBlocks      int     `json:"super_blocks"`
	ResidentChanges  int     `json:"resident_changes"`
}

func (c *core) stats() (s Stats, err error) {
	err = c.writing(c.d.Stream(), func(st *device.Stream) error { // the histogram is scratch memory
		if err := c.look(st); err != nil {
			return err
		}
		addr, err := c.reserve(8 * int64(histogramBins+2))
		if err != nil {
			return err
		}
		histogram := device.View[uint64](c.scratch, 0, histogramBins+2)
		if err := histogram.Fill(st, 0); err != nil {
			return err
		}
		p := SlabsParams{Table: c.table(), Histogram: addr}
		if err := c.kernel.lengths.Launch(st, c.grid(buckets0(&c.memory), walkBlocks), &p); err != nil {
			return err
		}
		h, err := histogram.Host(st)
		if err != nil {
			return err
		}
		live, slots := c.k.live(), int64(c.cfg.slots())
		slabs := c.buckets() + c.k.slabs()
		s.Stats = table.Stats{
			Len: int(live), Capacity: int(c.capacity()), Tombstones: int(c.k.tombstones()),
			LoadFactor: float64(live) / float64(c.capacity()), Bytes: c.bytes(), MaxProbes: int(h[histogramBins+1]),
		}
		for i := range s.Probes {
			s.Probes[i] = int(h[i])
		}
		if live > 0 {
			s.MeanProbes = float64(h[histogramBins]) / float64(live)
		}
		s.Buckets, s.Slabs, s.Units = int(c.buckets()), int(slabs), int(c.pool.units())
		s.Utilization = float64(live*int64(c.cfg.keyBytes+c.cfg.valueBytes)) / float64(slabs*slabBytes)
		s.SlabsPerBucket = float64(slabs) / float64(c.buckets())
		s.AverageSlabCount = float64(live) / float64(c.buckets()*slots)
		s.SuperBlocks, s.ResidentChanges = len(c.pool.supers), int(c.k.Changes)
		return nil
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
	c.freeBuffers()
	if e := c.memory.free(); err == nil && !errors.Is(e, device.ErrClosed) {
		err = e
	}
	return err
}

// check downloads the table and walks its invariants; the list of them is in doc.go.
func (c *core) check() error {
	return c.locked(func() error {
		st := c.d.Stream()
		return c.order.Read(st, func() error {
			if err := c.look(st); err != nil {
				return err
			}
			base, err := c.base.Host(st)
			if err != nil {
				return err
			}
			pool, err := c.pool.download(st)
			if err != nil {
				return err
			}
			return (&image{c.cfg, c.table(), base, pool}).check(c.k)
		})
	})
}
