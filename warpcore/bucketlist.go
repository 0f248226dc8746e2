package warpcore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// BucketList is WarpCore's BucketListHashTable (paper, §IV-C). Each key is in the table once, with a list of buckets. A
// bucket holds some of the key's values beside one another. Use it for keys with many values, or where memory is short.
// A MultiMap looks up faster if keys have one or two values.
//
// K has 4 or 8 bytes, V 4, 8 or 16. A key has up to 4,026,531,840 values (a MultiMap's keys may have more): Insert
// refuses what is more with *table.FullError, whatever memory there is. BucketList implements table.OuterFinder, whose
// comments are the contract of the methods. All methods are safe for use by several goroutines.
type BucketList[K, V any] struct{ listHandle }

func _[K, V any](b *BucketList[K, V]) table.OuterFinder[K, V] { return b }

// ListOptions are the options of NewBucketList: those of table.Options, whose Capacity counts pairs, and some of its
// own. The zero value is good.
type ListOptions struct {
	table.Options
	// Keys is how many distinct keys the Capacity pairs have. Zero means that each pair has its own key.
	Keys int
	// InitialBucket is the paper's s₀: how many values the first bucket of a list takes, 1 to 2²⁰. Zero means 1. If a
	// batch brings more values for a key at once, they get one bucket.
	InitialBucket int
	// Growth is the paper's λ, 1 to 1024: each bucket is that many times as large as the one before. A bucket is never
	// smaller than 1/64 of its list, and λ alone never makes one larger than 2²⁰ values. Zero means 2.
	Growth float64
	// InsertGroup and FindGroup are how many lanes look for one key: see Options.
	InsertGroup, FindGroup int
}

const (
	defaultGrowth, mostGrowth = 2, 1024
	// leastRows is for how many rows of an insert there is always memory.
	leastRows = 1 << 12
	rowBytes  = 8 + 4
	// poolShare: a pool that is used up is laid anew where one place in so many is of lists that were removed; at the table's bound, where one in
	// boundShare has no value.
	poolShare, boundShare = 4, 16
	leastPool             = 16 // places
)

var (
	//go:embed bucketlist.cu
	bucketlistCU string
	//go:embed bucketlist.cuh
	bucketlistCUH string
	//go:embed bucketlist_foreach.cu
	bucketlistForEachCU string
)

// lists is the table under a BucketList: keys, whose slots hold lists, and the pool that buckets are made of.
type lists struct {
	keys   core // its frame is the table's
	cfg    listConfig
	opts   ListOptions
	kernel struct {
		slots, slotsOfRuns  device.Kernel[listInsertParams]
		take, link, write   device.Kernel[listInsertParams]
		groups              device.Kernel[listGroupParams]
		refuse, release     device.Kernel[listInsertParams]
		block               device.Kernel[listFindParams]
		stretch             listStretches
		find, erase, absent device.Kernel[listFindParams]
		all                 frame.Finder
		fillLong            device.Kernel[listAllParams]
		pack, packLong      device.Kernel[listSlotsParams]
		export, probes      device.Kernel[listSlotsParams]
		exportPairs         device.Kernel[listSlotsParams]
		partition           frame.Partitioner
		group               frame.Grouper
	}

	// Guarded by the frame's lock:
	pool     device.Slice[byte]
	counters frame.Counters[ListCounters]
	least    device.Slice[byte] // scratch memory for leastRows
	cleaned  bool               // the keys were laid anew for tombstones, since the last part
	foreign  bool               // a kernel of the user's may have run since the last reset
	full     bool               // and has found lists full, which they stay for such kernels until they are laid anew
}

// listHandle is what users hold of a list. It names lists instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type listHandle struct{ lists *lists }

// made is the table, or one whose operations are errors, if NewBucketList has not made it.
func (h *listHandle) made() *lists { return frame.Or(h.lists, unmadeLists) }

var unmadeLists = frame.Unmade((*lists).frame, family, "a BucketList that NewBucketList has not made")

// NewBucketList makes an empty table on the device.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError; those
// of kernels that must be compiled, as in New. Cost: as in New.
func NewBucketList[K, V any](d *device.Device, o ListOptions) (*BucketList[K, V], error) {
	l, err := newLists(d, frame.WidthsOf[K, V](), o)
	return frame.Made(&BucketList[K, V]{listHandle{l}}, err)
}

func newLists(d *device.Device, w frame.Width, o ListOptions) (*lists, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	l := &lists{opts: o, cfg: listConfig{w.Value}}
	l.keys.cfg = keyConfig(w.Key, 0)
	l.frame().Why = o.Why
	return frame.Made(l, l.frame().Open(family, d, l.begin, l.free))
}

func (l *lists) frame() *frame.Frame { return &l.keys.frame }

// complete checks the options and fills in the defaults.
func (l *lists) complete(info device.Info) error {
	o := &l.opts
	switch {
	case o.Keys < 0 || o.Keys > 1<<46:
		return fmt.Errorf("warpcore: %d keys (want 0 to 2⁴⁶)", o.Keys)
	case o.InitialBucket < 0 || o.InitialBucket > largestBucket:
		return fmt.Errorf("warpcore: a first bucket of %d values (want 1 to %d; 0 for the default)", o.InitialBucket, largestBucket)
	case o.Growth != 0 && !(o.Growth >= 1 && o.Growth <= mostGrowth):
		return fmt.Errorf("warpcore: buckets that grow by %v (want 1 to %d; 0 for the default)", o.Growth, mostGrowth)
	}
	keys := Options{Options: o.Options, Layout: AoS, Window: l.keys.cfg.window, InsertGroup: o.InsertGroup, FindGroup: o.FindGroup}
	if keys.InsertGroup == 0 {
		keys.InsertGroup = 1
	}
	if keys.FindGroup == 0 && info.CUDA() {
		keys.FindGroup = l.keys.cfg.window // a lane a slot
	}
	if err := keys.complete(info, &l.keys.cfg); err != nil {
		return err
	}
	if o.InitialBucket == 0 {
		o.InitialBucket = 1
	}
	if o.Growth == 0 {
		o.Growth = defaultGrowth
	}
	o.Options, l.keys.opts = keys.Options, keys
	return nil
}

// begin makes an empty table as the options say.
func (l *lists) begin() error {
	info := l.frame().Device.Info()
	if err := l.complete(info); err != nil {
		return err
	}
	l.frame().MaxBytes = l.opts.MaxBytes
	l.keys.regions = frame.RegionsFor(info, regionsFrom, regionRows)
	l.keys.regions.Span /= 2 // as with inserts by lanes alone: see core.begin
	l.stretchRules(info)
	if err := l.compile(); err != nil {
		return err
	}
	if l.keys.cfg.listStretchWindows(l.keys.stretch.bytes) > 0 {
		frame.AheadOfLate(l.frame().Device, l.loadStretches)
	}
	pairs := int64(l.opts.Capacity)
	side := windowsFor(sideSlots, l.keys.cfg.window)
	plan := func(pairs int64) (windows, places, bytes int64) {
		keys := pairs
		if l.opts.Keys > 0 {
			keys = min(keys, int64(l.opts.Keys))
		}
		windows = l.keys.windowsForPairs(keys)
		places = max(leastPool, rounded(pairs), keys*int64(l.opts.InitialBucket))
		if pairs >= l.keys.stretch.rule.MinRows { // for what stretches leave over: see insertLeft
			places += places / 64
		}
		return windows, places, l.keys.bytes(windows, side) + places*int64(l.cfg.valueBytes)
	}
	if limit := l.opts.MaxBytes; limit > 0 {
		if _, _, least := plan(0); least > limit {
			return fmt.Errorf("warpcore: MaxBytes of %s leaves no room for a table of %s", device.Bytes(limit), device.Bytes(least))
		}
		from, to := int64(0), pairs+1 // from fits; to does not, or is not asked for
		for from+1 < to {
			mid := from + (to-from)/2
			if _, _, bytes := plan(mid); bytes <= limit {
				from = mid
			} else {
				to = mid
			}
		}
		pairs = from
	}
	windows, places, _ := plan(pairs)
	st := l.frame().Device.Stream()
	if err := l.keys.allocate(st, windows, side); err != nil {
		return err
	}
	var err error
	if l.least, err = frame.Make[byte](l.frame(), leastRows*rowBytes); err == nil {
		if err = l.counters.Make(l.frame(), st); err == nil {
			l.pool, err = l.makePool(places)
		}
	}
	return err
}

func (l *lists) free() error {
	return errors.Join(l.keys.free(), l.frame().Free(&l.counters, l.pool, l.least))
}

// program is the table's kernels with the given translation unit.
func (l *lists) program(name, main string, more ...device.File) *device.Program {
	c := &l.keys
	return &device.Program{
		Name: name,
		Files: append([]device.File{{Name: name + ".cu", Text: main}, {Name: "warpcore.cuh", Text: warpcoreCUH}, {Name: "regions.cuh", Text: regionsCUH}, {Name: "bring.cuh", Text: bringCUH}, {Name: "bucketlist.cuh", Text: bucketlistCUH},
			{Name: "config.h", Text: c.cfg.listHeader("config", l.cfg)}}, more...),
		Defines: append(listDefines(), device.Define{Name: "WARPCORE_INSERT_GROUP", Value: c.opts.InsertGroup},
			device.Define{Name: "WARPCORE_FIND_GROUP", Value: c.opts.FindGroup}, device.Define{Name: "LIST_ROWS", Value: c.cfg.listRows(l.cfg)}),
		Layouts: listLayouts(),
	}
}

func (l *lists) compile() error {
	d := l.frame().Device
	m, err := d.CompileApart(l.program("warpcore-bucketlist", bucketlistCU))
	if err != nil {
		return err
	}
	k := &l.kernel
	var wrong error
	k.partition, err = frame.NewPartitioner[partitionParams](d, m)
	k.all, wrong = frame.NewFinder[listAllParams](m, true)
	err = errors.Join(err, wrong)
	k.group, wrong = frame.NewGrouper[partitionParams](m)
	l.keys.kernel.partition, l.keys.kernel.within = k.partition, k.group.Within
	err = errors.Join(err, wrong,
		device.Bind(m, "find_slots", &k.slots), device.Bind(m, "find_slots_of_runs", &k.slotsOfRuns), device.Bind(m, "take_places", &k.take), device.Bind(m, "link_buckets", &k.link), device.Bind(m, "write_values", &k.write),
		device.Bind(m, "insert_groups", &k.groups), device.Bind(m, "refuse_rows", &k.refuse), device.Bind(m, "release_lists", &k.release),
		device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase), device.Bind(m, "count_absent", &k.absent), device.Bind(m, "block_lists", &k.block), device.Bind(m, "fill_long", &k.fillLong),
		device.Bind(m, "pack", &k.pack), device.Bind(m, "pack_long", &k.packLong), device.Bind(m, "export_keys", &k.export), device.Bind(m, "export_pairs", &k.exportPairs), device.Bind(m, "probe_lengths", &k.probes),
		device.Bind(m, "rehash", &l.keys.kernel.rehash))
	return errors.Join(err, device.Ahead(k.slots, k.take, k.link, k.write))
}

// table is the table as kernels take it.
func (l *lists) table() Lists {
	return Lists{Keys: l.keys.t, Pool: l.pool.Addr(), Room: uint64(l.room()), Counters: l.counters.Addr(),
		First: uint64(l.opts.InitialBucket), Growth: uint64(l.opts.Growth * growthOne)}
}

// Sizes, in places of the pool, each as large as a value.

func (l *lists) room() int64    { return int64(l.pool.Len() / l.cfg.valueBytes) }
func (l *lists) used() int64    { return l.counters.Seen.used(l.room()) }
func (l *lists) garbage() int64 { return int64(l.counters.Seen.Garbage) }
func (l *lists) bytes() int64   { return int64(l.keys.mem.Len() + l.pool.Len()) }

// bound is how many places MaxBytes allows the pool beside the keys that there are.
func (l *lists) bound() int64 {
	if l.opts.MaxBytes == 0 {
		return math.MaxInt64
	}
	return (l.opts.MaxBytes - int64(l.keys.mem.Len())) / int64(l.cfg.valueBytes)
}

// makePool allocates a pool to take the place of the one that there is.
func (l *lists) makePool(places int64) (pool device.Slice[byte], err error) {
	bytes := places * int64(l.cfg.valueBytes)
	if err = l.frame().Budget(int64(l.keys.mem.Len()) + bytes); err == nil {
		pool, err = frame.Make[byte](l.frame(), bytes)
	}
	return pool, err
}

// rebuildKeys lays the keys anew beside the pool that there is.
func (l *lists) rebuildKeys(st *device.Stream, windows, side int64) error {
	if err := l.frame().Budget(l.keys.bytes(windows, side) + int64(l.pool.Len())); err != nil {
		return err
	}
	return l.keys.rebuild(st, windows, side)
}

// capacity is how many pairs there are, and how many of new keys there is room for beside.
func (l *lists) capacity() int64 {
	keys := max(0, l.keys.limit()-l.keys.live())
	values := (l.room() - l.used() + l.garbage()) / int64(l.opts.InitialBucket)
	return max(1, l.counters.Seen.live()+min(keys, values))
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (l *lists) look(st *device.Stream) (int64, error) {
	if _, err := l.keys.look(st); err != nil {
		return 0, err
	}
	err := l.counters.Look(st)
	return l.counters.Seen.live(), err
}

// reset sets the counters that are not sums, where they are not 0. It comes behind a look.
func (l *lists) reset(st *device.Stream) (err error) {
	k := &l.counters.Seen
	l.full = l.full || l.foreign && k.Short+k.Overfull > 0
	l.foreign = false
	sums := ListCounters{Added: k.Added, Removed: k.Removed, Used: uint64(l.used()), Garbage: k.Garbage}
	if *k != sums {
		*k = sums
		err = l.counters.Set(st)
	}
	if l.keys.counters.Seen.SideFailed > 0 || l.keys.counters.Seen.Failed > 0 {
		err = errors.Join(err, l.keys.reset(st))
	}
	return err
}

// insertion takes batches in.
func (l *lists) insertion(exact bool) frame.Insertion {
	return frame.Insertion{
		Put:  func(st *device.Stream, b frame.Rows) ([]int, error, error) { return l.insert(st, exact, b) },
		Size: func() (int64, int64) { return l.capacity(), l.counters.Seen.live() },
	}
}

// errOverfull is why a list does not grow.
var errOverfull = fmt.Errorf("warpcore: a key has %d values, as many as can be", int64(listMost))

// insert inserts pairs, growing as it must. The positions that do not fit come back with the reason.
func (l *lists) insert(st *device.Stream, exact bool, b frame.Rows) (refused []int, why, err error) {
	if _, err := l.look(st); err != nil {
		return nil, nil, err
	}
	sure, guess, err := l.ahead(st, exact, b)
	if err != nil {
		return nil, nil, err
	}
	// An estimate may be too low. Then rows for which there is no slot must not go through the whole table.
	certain := sure && l.keys.filled+min(b.N, guess.distinct+guess.distinct/(estimateShare/2)) <= l.keys.capacity()
	mode, settled, far, short := uint64(bucketsGrow), false, false, shortage{}
	if exact {
		mode = bucketsExact
	}
	return frame.Inserter{
		Try: l.keys.frame.Tries(firstBatch),
		Launch: func(p frame.Part) error {
			if err := l.reset(st); err != nil {
				return err
			}
			q := listInsertParams{Lists: l.table(), Rows: frame.Placing{Refused: p.Refused, Attempt: p.Attempt}, Limit: ^uint64(0), Mode: mode}
			if !certain && !far && l.keys.filled+int64(p.N) > l.keys.fillable() {
				q.Limit = tightProbes
			}
			return l.launchInsert(st, q, b.Part(p, l.keys.cfg.keyBytes, l.cfg.valueBytes), guess)
		},
		Look: func() (refused, live int64, err error) {
			live, err = l.look(st)
			short = shortage{l.counters.Seen, l.keys.counters.Seen.SideFailed > 0}
			return int64(short.Failed), live, err
		},
		Room: func(want int64, bound bool) (int64, error) {
			switch room := l.keys.limit() - l.keys.filled; {
			case sure && want > 0:
				return want, nil
			case bound:
				return l.keys.fillable() - l.keys.filled, nil
			default:
				return room, nil
			}
		},
		After: func() error {
			settled, far, l.cleaned = false, false, false
			return l.reset(st)
		},
		Grow: func(refused, _, _ int64) (why, err error) { return l.grow(st, refused, short) },
		Settle: func(int64) (uint64, error) {
			if settled {
				return 0, nil
			}
			mode, settled = bucketsFit, true
			far = l.keys.filled < l.keys.fillable() // a chain may be long in a table that has room
			return 1, nil
		},
	}.Run(l.frame(), st, b.N, l.counters.Seen.live())
}

// launchInsert queues an insert of rows, as many at once as there is scratch memory for. That is seen to before they are brought in order, for
// where memory is short, it is taken from what batches in order lie in. guess may be of all rows, of which these are a part.
func (l *lists) launchInsert(st *device.Stream, p listInsertParams, b frame.Rows, guess estimate) error {
	if taken, err := l.insertStretches(st, p, b, guess); taken == b.N || err != nil {
		return err
	} else if taken > 0 { // the others, as they are
		p.Lists = l.table()
		p.Rows.Refused += uint64(taken / 8)
		b = b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, l.keys.cfg.keyBytes, l.cfg.valueBytes)
	}
	ordered, few := p.Rows.Attempt == 0 && l.keys.regions.Count(b.N, int64(l.keys.mem.Len()+l.pool.Len())) > 0, int64(0)
	if ordered {
		var err error
		if guess.n != b.N {
			if guess, err = l.estimate(st, b); err != nil && !device.IsOutOfMemory(err) {
				return err
			}
		}
		few = l.rowsOfPart(guess)
	}
	piece, scratch, lease, err := l.scratchFor(b.N)
	if err != nil {
		return err
	}
	defer lease.Done()
	place := func(positions bool, slots device.Kernel[listInsertParams]) frame.Placement {
		return frame.Placement{
			Regions: &l.keys.regions, Bytes: int64(l.keys.mem.Len()), KeyBytes: l.keys.cfg.keyBytes, ValueBytes: l.cfg.valueBytes, Positions: positions,
			Params: func(rows frame.Partition) any { return &partitionParams{Table: l.keys.t, Rows: rows} },
			Launch: func(_ device.Grid, rows frame.Placing) error {
				return l.launchPieces(st, slots, p, rows, piece, scratch)
			}, Grid: l.keys.grid,
		}
	}
	if ordered {
		var done bool
		var err error
		if few > 0 {
			done, err = l.insertGroups(st, place(false, l.kernel.slots), p, b, few, piece, scratch)
		} else {
			done, err = l.kernel.partition.Grouped(l.frame(), st, l.kernel.group, place(true, l.kernel.slotsOfRuns), p.Rows, b)
		}
		if done || err != nil {
			return err
		}
	}
	return l.kernel.partition.Place(l.frame(), st, place(true, l.kernel.slots), p.Rows, b)
}

// rounded is the most places that so many values take in buckets of just their sizes, which are rounded up. Where values are left over, it is also what
// tells for sure that all have room.
func rounded(values int64) int64 { return values + values>>(listMantissa-1) + 1 }

// scratchFor gives scratch memory for as many rows of n as there is memory for, which is leased, but for l.least.
func (l *lists) scratchFor(n int64) (piece int64, scratch device.Slice[byte], lease frame.Lease, err error) {
	for piece = min((n+31)&^31, listRows); piece > leastRows; piece = piece / 2 &^ 31 {
		lease, err = l.frame().Scratch(frame.Align(8*piece) + 4*piece)
		if err == nil {
			return piece, lease.Mem, lease, nil
		} else if !device.IsOutOfMemory(err) {
			return 0, scratch, lease, err
		}
	}
	return leastRows, l.least, frame.Lease{}, nil
}

// estimateShare: an estimate of distinct keys is mostly within one in so many.
const estimateShare = 32

// manyRows is from how many rows a key, of those that a block takes, parts differ too much in size.
const manyRows = 16

// estimate is what table.Distinct tells of so many rows; n is 0 where it was not asked.
type estimate struct{ n, distinct, crowd int64 }

func (l *lists) estimate(st *device.Stream, b frame.Rows) (e estimate, err error) {
	e.n = b.N
	e.distinct, e.crowd, err = l.frame().Distinct(st, b.Keys, l.keys.cfg.keyBytes, b.N)
	return e, err
}

// rowsOfPart is how many rows a part should have on average, so that hardly one has more than a block takes; 0 if keys have too many rows for that. A
// part's rows vary as those of its keys do, which are about as many as on average.
func (l *lists) rowsOfPart(e estimate) int64 {
	most := int64(l.keys.cfg.listRows(l.cfg))
	if e.distinct == 0 {
		return 0
	}
	each := e.n/e.distinct + 1
	if each > most/manyRows || e.crowd > most/manyRows {
		return 0
	}
	const deviations = 7 // for the rows of one part that is too large all rows are read again
	root := (math.Sqrt(deviations*deviations*float64(each)+4*float64(most)) - deviations*math.Sqrt(float64(each))) / 2
	return int64(root * root) // root² + deviations·√each·root = most
}

// insertGroups queues an insert of rows in the order of small parts, all rows of a key at once. What it leaves, rows of parts that are too large, goes
// in row by row; and where keys found no room, all rows are asked once more which those are. Both end at once where there are none.
func (l *lists) insertGroups(st *device.Stream, x frame.Placement, p listInsertParams, b frame.Rows, partRows, piece int64, scratch device.Slice[byte]) (done bool, err error) {
	k := &l.kernel
	return k.partition.InSmallParts(l.frame(), st, k.group.Within, x, b, 0, frame.PartsOf(partRows), func(r frame.Partition) error {
		rows := b.Part(frame.Part{First: r.First, N: r.N}, l.keys.cfg.keyBytes, l.cfg.valueBytes)
		q := p
		q.Rows, q.First, q.Starts, q.Parts = p.Rows.Of(frame.Ordered{Rows: rows}), r.First, r.Starts, r.Parts
		if err := frame.InTurn(
			func() error {
				return k.groups.Launch(st, l.frame().BlockGrid(rows.N, 8), &listGroupParams{Lists: p.Lists, Rows: r, Limit: p.Limit, Mode: p.Mode})
			},
			func() error { return k.refuse.Launch(st, l.keys.grid(rows.N), &q) },
			func() error { return k.release.Launch(st, l.keys.grid(rows.N), &q) },
		); err != nil {
			return err
		}
		return l.launchPieces(st, k.slots, q, q.Rows, piece, scratch)
	})
}

// launchPieces queues the kernels of an insert, for piece rows at a time.
func (l *lists) launchPieces(st *device.Stream, find device.Kernel[listInsertParams], p listInsertParams, rows frame.Placing, piece int64, scratch device.Slice[byte]) error {
	p.Where = scratch.Addr()
	p.Ordinals = p.Where + uint64(8*piece)
	cuda := l.frame().Device.Info().CUDA()
	if cuda {
		p.Span = uint64(l.keys.regions.Span)
	}
	for first := int64(0); first < int64(rows.N); first += piece {
		q, n := p, min(piece, int64(rows.N)-first)
		q.Rows = rows
		q.Rows.N = uint64(n)
		q.Rows.Keys += uint64(first) * uint64(l.keys.cfg.keyBytes)
		q.Rows.Values += uint64(first) * uint64(l.cfg.valueBytes)
		if rows.Positions != 0 {
			q.Rows.Positions += 4 * uint64(first)
		} else if rows.Refused != 0 {
			q.Rows.Refused += uint64(first / 8) // a piece is whole words of it
		}
		slots := l.keys.grid(n)
		if rows.Span != 0 {
			slots = frame.Spanned(n, int64(rows.Span))
		}
		ordered := l.keys.grid(n)
		if cuda {
			ordered = frame.Spanned(n, int64(p.Span))
		}
		if err := frame.InTurn(
			func() error { return find.Launch(st, slots, &q) },
			func() error { return l.kernel.take.Launch(st, ordered, &q) },
			func() error { return l.kernel.link.Launch(st, frame.Spanned(n, linkRows*frame.Threads), &q) },
			func() error { return l.kernel.write.Launch(st, ordered, &q) },
		); err != nil {
			return err
		}
	}
	return nil
}

// ahead makes room for a large batch, by how many distinct keys it has and how many of its rows have keys that are not there. sure: there is
// a slot for each of them. guess is of the batch, if it was asked for. It does nothing where MaxBytes may not allow that: then the batch goes in by parts.
func (l *lists) ahead(st *device.Stream, exact bool, b frame.Rows) (sure bool, guess estimate, err error) {
	keys := l.keys.filled
	sure = keys+b.N <= l.keys.limit()
	if b.N <= firstBatch && !exact {
		return sure, guess, nil
	}
	distinct, most := b.N, int64(l.opts.InitialBucket) // places of a row
	if l.keys.live() > 0 {
		most += int64(l.cfg.header()) // which first buckets have not
	}
	if !sure || l.used()+b.N*most > l.room() {
		guess, err = l.estimate(st, b)
		if device.IsOutOfMemory(err) {
			return sure, estimate{}, nil
		} else if err != nil {
			return false, guess, err
		}
		if guess.distinct == 0 {
			return sure, guess, nil
		}
		slack := guess.distinct/estimateShare + 8
		distinct = min(b.N, guess.distinct+slack)
		// A table that was made for these keys stays as it is, however the estimate errs.
		sure = sure || keys+guess.distinct-slack <= l.keys.limit() && keys+distinct <= l.keys.fillable()
	}
	if fresh := distinct; !sure && keys+fresh > l.keys.limit() {
		if l.keys.live() > 0 {
			p := listFindParams{Lists: l.table(), Keys: b.Keys, N: uint64(b.N)}
			if err := l.kernel.absent.Launch(st, l.keys.grid(b.N), &p); err != nil {
				return false, guess, err
			}
			if _, err := l.look(st); err != nil {
				return false, guess, err
			}
			fresh = min(fresh, int64(l.counters.Seen.Absent))
		}
		if keys+fresh > l.keys.limit() {
			want, why := l.keys.live()+fresh, error(nil)
			if twice := 2 * l.keys.limit(); !exact && l.keys.live() > 0 && want < twice { // others may come as this one did
				if why, err = l.growKeys(st, twice, false, true); err != nil {
					return false, guess, err
				}
			}
			if l.keys.filled+fresh > l.keys.limit() {
				why, err = l.growKeys(st, want, false, true)
			}
			if why != nil || err != nil {
				return false, guess, err
			}
		}
	}
	sure = true
	need := rounded(b.N)
	switch s0 := int64(l.opts.InitialBucket); {
	case exact:
	case l.keys.live() == 0:
		if need = need + distinct*(s0-1); s0 > 1 { // then a bucket is rounded up to no more than so many for each of its values
			need = min(need, b.N*s0)
		}
	default:
		need += distinct * (s0 - 1 + int64(l.cfg.header()))
	}
	sizes := []int64{l.used() + need}
	if more := l.room() + l.room()/2; !exact && l.keys.live() > 0 && sizes[0] < more {
		sizes = []int64{more, sizes[0]}
	}
	for _, places := range sizes {
		if sizes[len(sizes)-1] <= l.room() || places > l.bound() {
			continue
		}
		if err := l.movePool(st, places); err == nil {
			break
		} else if !device.IsOutOfMemory(err) {
			return false, guess, err
		}
	}
	return sure, guess, nil
}

// shortage is why rows were refused, as the counters tell after an attempt.
type shortage struct {
	ListCounters
	side bool // keys of the side region were
}

// grow makes room for the rows that were refused. why says what forbids it: then the table is as it was.
func (l *lists) grow(st *device.Stream, refused int64, k shortage) (why, err error) {
	full := l.keys.filled > l.keys.limit()
	if k.Overfull > 0 && k.KeysFailed == 0 && k.Short == 0 {
		return errOverfull, nil
	}
	grown := false
	if k.KeysFailed > 0 || full {
		var w error
		live := l.keys.live()
		if w, err = l.growKeys(st, live+min(int64(k.KeysFailed), 4*(live+firstBatch)), k.side, false); err != nil {
			return nil, err
		}
		grown, why = w == nil, w
	}
	if k.Short > 0 {
		w, err := l.growPool(st, int64(k.Short))
		if err != nil {
			return nil, err
		}
		grown = grown || w == nil
		if why == nil {
			why = w
		}
	}
	switch {
	case grown:
		return nil, nil
	case why == nil && refused > 0:
		return nil, fmt.Errorf("warpcore: %d pairs found no room, though nothing is full: this is a defect of warpmap", refused)
	}
	return why, nil
}

// growKeys makes room for keys in all; only whole, or not at all. Where MaxBytes bounds the table, keys leave the pool its share.
func (l *lists) growKeys(st *device.Stream, keys int64, side, whole bool) (why, err error) {
	c := &l.keys
	windows, sideWindows := int64(c.t.Main.Windows), int64(c.t.Side.Windows)
	if side {
		sideWindows = windowsFor(2*sideWindows*int64(c.cfg.window), c.cfg.window)
	}
	if keys > c.limit() || c.tombstones() < c.capacity()/4 || l.cleaned {
		want := c.windowsForPairs(keys)
		if !whole && (!side || want > windows) {
			want = max(want, windowsFor(2*windows*int64(c.cfg.window), c.cfg.window))
		}
		windows = max(windows, want)
	}
	if limit := l.opts.MaxBytes; limit > 0 && c.bytes(windows, sideWindows) > l.keysShare(sideWindows) {
		c.opts.MaxBytes = l.keysShare(sideWindows)
		most := c.maxWindows(sideWindows)
		c.opts.MaxBytes = limit
		now := int64(c.t.Main.Windows)
		gains := most >= now+now/boundShare+1 || most >= now && side
		if !gains && most >= now && !l.cleaned && c.tombstones() > c.capacity()/cleanShare {
			gains = true
		}
		if whole && most < windows || !gains {
			return frame.AtMaxBytes(limit), nil
		}
		windows = most
	}
	if windows == int64(c.t.Main.Windows) && !side {
		l.cleaned = true // once: the tombstones that this part leaves are taken again
	}
	for now := int64(c.t.Main.Windows); ; {
		if err = l.rebuildKeys(st, windows, sideWindows); !device.IsOutOfMemory(err) {
			return nil, err
		}
		windows = primeUpTo(now + (windows-now)/2) // less, where memory is short
		if whole || windows <= now+now/boundShare {
			return err, nil
		}
	}
}

// keysShare is how many of MaxBytes the keys may take: as many as leave room for lists as long as those that there are, or half of what is left.
func (l *lists) keysShare(sideWindows int64) int64 {
	c := &l.keys
	has, free := int64(c.mem.Len()), l.opts.MaxBytes-int64(l.pool.Len())
	places := float64(l.opts.InitialBucket)
	if live := c.live(); live > 0 {
		places = max(places, float64(l.used()-l.garbage())/float64(live))
	}
	least := c.bytes(1, sideWindows)
	key := float64(c.cfg.pairBytes()) / c.opts.LoadFactor
	share := least + int64(float64(max(0, l.opts.MaxBytes-least))*key/(key+places*float64(l.cfg.valueBytes)))
	return min(free, max(share, has+(free-has)/2))
}

// growPool makes room for so many more places.
func (l *lists) growPool(st *device.Stream, more int64) (why, err error) {
	room, used, packed := l.room(), l.used(), l.packedPlaces()
	need := used + more
	want, bound := max(need+need/8, room+room/2), l.bound()
	if l.opts.MaxBytes > 0 {
		want = need + need/8
	}
	if l.garbage() > used/poolShare || want > bound && packed < used-used/boundShare {
		if done, err := l.pack(st, min(bound, max(room, packed+more))); err == nil && done || err != nil && !device.IsOutOfMemory(err) {
			return nil, err
		}
	}
	if want = min(want, bound); want < need && want <= room+room/boundShare {
		return frame.AtMaxBytes(l.opts.MaxBytes), nil
	}
	for {
		if err = l.movePool(st, want); !device.IsOutOfMemory(err) {
			return nil, err
		}
		if want = room + (want-room)/2; want <= room+room/boundShare {
			return err, nil
		}
	}
}

// movePool makes the pool larger. Buckets keep their places.
func (l *lists) movePool(st *device.Stream, places int64) error {
	if err := l.frame().Spare(); err != nil { // the new pool may need the memory more
		return err
	}
	if err := l.reset(st); err != nil { // places beyond the old room were not given
		return err
	}
	pool, err := l.makePool(places)
	if err != nil {
		return err
	}
	used := int(l.used()) * l.cfg.valueBytes
	if used > 0 {
		if err := pool.Slice(0, used).CopyFrom(st, l.pool.Slice(0, used)); err != nil {
			return errors.Join(err, l.frame().Free(pool))
		}
	}
	old := l.pool
	l.pool = pool
	return l.frame().Free(old)
}

// packedPlaces is how many places all lists take at most, each in one bucket of its size.
func (l *lists) packedPlaces() int64 {
	live := l.counters.Seen.live()
	return rounded(live)
}

// pack lays all lists anew in a pool of so many places. Where these are fewer than packedPlaces, it first counts what lists take; done is false if that is more:
// then they stay as they are. An error leaves them so, too, unless the device is lost.
func (l *lists) pack(st *device.Stream, places int64) (done bool, err error) {
	if err := l.frame().Spare(); err != nil {
		return false, err
	}
	if _, err := l.look(st); err != nil {
		return false, err
	}
	if err := l.reset(st); err != nil {
		return false, err
	}
	places = max(leastPool, places)
	if places < l.packedPlaces() {
		if err := l.kernel.pack.Launch(st, l.keys.grid(l.keys.slots()), &listSlotsParams{Lists: l.table()}); err != nil {
			return false, err
		}
		if _, err := l.look(st); err != nil {
			return false, err
		}
		need := int64(l.counters.Seen.Packed)
		if err := l.reset(st); err != nil || need > places {
			return false, err
		}
	}
	return true, l.packInto(st, places)
}

// packInto is pack where the lists surely fit. The kernel leaves out those that do not, and then this is an error.
func (l *lists) packInto(st *device.Stream, places int64) (err error) {
	entries := l.counters.Seen.live()/packLong + 1
	head := frame.Align(8) // the number of entries stands before them
	long, err := l.frame().Scratch(head + entries*int64(unsafe.Sizeof(longEntry{})))
	if err != nil {
		return err
	}
	defer long.Done()
	pool, err := l.makePool(places)
	if err != nil {
		return err
	}
	p := listSlotsParams{Lists: l.table(), Pool: pool.Addr(), Limit: uint64(places), LongCount: long.Mem.Addr(), Long: long.Mem.Addr() + uint64(head)}
	if err = long.Mem.Slice(0, 8).Fill(st, 0); err == nil {
		err = l.kernel.pack.Launch(st, l.keys.grid(l.keys.slots()), &p)
	}
	if err == nil && l.counters.Seen.live() > packLong {
		err = l.kernel.packLong.Launch(st, l.keys.grid(32*entries), &p)
	}
	if err != nil {
		return errors.Join(err, l.frame().Free(pool))
	}
	old, live := l.pool, l.counters.Seen.live()
	l.pool = pool
	if _, err = l.look(st); err == nil {
		n := &l.counters.Seen
		*n = ListCounters{Added: n.Added, Removed: n.Removed, Used: n.Packed, Unused: n.Unused}
		err = l.counters.Set(st)
		if lost := live - n.live(); lost > 0 {
			err = errors.Join(err, fmt.Errorf("warpcore: %d values have no place in a pool of %d, which should hold all, and are lost: this is a defect of warpmap", lost, places))
		}
	}
	l.full = false
	return errors.Join(err, l.frame().Free(old))
}

// Grow makes room for at least n pairs in all, and counts each pair that is not there yet as one with a new key. It
// also rids the table of what deletions left. It needs memory for the old and the new table at once.
func (h *listHandle) Grow(n int) error {
	l := h.made()
	return l.frame().GrowTo(n, l.look, func(st *device.Stream, live int64) (err error) {
		c := &l.keys
		more := max(0, int64(n)-live)
		windows, side := int64(c.t.Main.Windows), int64(c.t.Side.Windows)
		if more > 0 {
			windows = max(windows, c.windowsForPairs(c.live()+more))
		}
		used := l.used()
		if l.garbage() > 0 {
			used = min(used, l.packedPlaces())
		}
		places := max(l.room(), used+more*int64(l.opts.InitialBucket))
		if limit, bytes := l.opts.MaxBytes, c.bytes(windows, side)+places*int64(l.cfg.valueBytes); limit > 0 && bytes > limit {
			return l.frame().NoRoomFor(n, bytes, limit)
		}
		packed := false
		if l.garbage() > 0 {
			packed, err = l.pack(st, places)
		}
		if err == nil && !packed && places > l.room() {
			err = l.movePool(st, places)
		}
		if err == nil && (windows > int64(c.t.Main.Windows) || c.tombstones() > 0) {
			err = l.rebuildKeys(st, windows, side)
		}
		return err
	})
}

// Shrink lays the table anew with room for no more than it holds. The values of each key then lie beside one another in
// one bucket of just their number, as after Build. Later inserts link further buckets. The table never becomes larger.
// Shrink needs memory for the old and the new table at once.
func (h *listHandle) Shrink() error {
	l := h.made()
	return l.frame().Writing(nil, func(st *device.Stream) error {
		if _, err := l.look(st); err != nil {
			return err
		}
		if _, err := l.pack(st, min(l.packedPlaces(), l.room())); err != nil {
			return err
		}
		c := &l.keys
		return l.rebuildKeys(st, min(c.windowsForPairs(c.live()), int64(c.t.Main.Windows)), int64(c.t.Side.Windows))
	})
}

// Density is the paper's storage density ρ (§IV-C): the bytes of all keys, each counted once, and of all values,
// divided by the bytes of the table.
func (h *listHandle) Density() (density float64, err error) {
	l := h.made()
	err = l.frame().Reading(nil, func(st *device.Stream) error {
		live, err := l.look(st)
		density = float64(l.keys.live()*int64(l.keys.cfg.keyBytes)+live*int64(l.cfg.valueBytes)) / float64(l.bytes())
		return err
	})
	return density, err
}

// PoolStats tells how the pool that holds the buckets of a BucketList is used, in bytes.
type PoolStats struct {
	Bytes   int64 `json:"bytes"`   // of the whole pool
	Buckets int64 `json:"buckets"` // of these, in buckets of lists, with their headers; values fill them, or will
	Values  int64 `json:"values"`  // of these, values
	Garbage int64 `json:"garbage"` // in buckets of lists that were removed, until the pool is laid anew
}

// Pool tells how the pool is used. The difference between Buckets and Values is what s₀ and λ cost. Pool waits for what
// is queued.
func (h *listHandle) Pool() (s PoolStats, err error) {
	l := h.made()
	err = l.frame().Reading(nil, func(st *device.Stream) error {
		live, err := l.look(st)
		value := int64(l.cfg.valueBytes)
		s = PoolStats{Bytes: l.room() * value, Buckets: (l.used() - l.garbage()) * value, Values: live * value, Garbage: l.garbage() * value}
		return err
	})
	return s, err
}

// Family returns the family's name.
func (*listHandle) Family() table.Family { return family }

// Len counts the pairs.
func (h *listHandle) Len() (int, error) { return h.made().frame().Count(h.made().look) }

// Clear removes all pairs and keeps the capacity. It queues its work and returns.
func (h *listHandle) Clear() error {
	l := h.made()
	return l.frame().Writing(nil, func(st *device.Stream) error {
		l.keys.filled, l.foreign, l.full = 0, false, false
		return errors.Join(l.keys.mem.Fill(st, 0xff), l.keys.counters.Clear(st), l.counters.Clear(st))
	})
}

// Stats measures the table. Capacity is the number of pairs in the table plus the number of pairs with new keys that
// there is room for. Probes are those that lead to the key of each pair.
func (h *listHandle) Stats() (table.Stats, error) {
	l := h.made()
	s, err := l.frame().Measure(l.look, func(st *device.Stream, histogram uint64) error {
		return l.kernel.probes.Launch(st, l.keys.grid(l.keys.slots()), &listSlotsParams{Lists: l.table(), Histogram: histogram})
	}, func(live int64) table.Stats {
		c := &l.keys
		return table.Stats{Len: int(live), Capacity: int(l.capacity()), Tombstones: int(c.tombstones()), Bytes: l.bytes(),
			MaxProbes: int(min(max(c.counters.Seen.MaxProbes, probesUntold), c.t.Main.Windows))}
	})
	s.ScratchBytes += leastRows * rowBytes
	return s, err
}

// Close frees the table's memory. A second call does nothing.
func (h *listHandle) Close() error { return h.made().frame().Close() }

// Insert adds n pairs, even if the table or the batch holds equal ones. The table grows if it must. If it may not,
// *table.FullError names exactly the positions that are not in. For each pair, Insert reads the window of its key and
// writes its value.
func (m *BucketList[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(m.made().frame(), keys, values, m.made().insertion(false))
}

// InsertOn does what Insert does, with slices on the device. It waits for the stream, to know that every pair found its
// place.
func (m *BucketList[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(m.made().frame(), st, keys, values, device.Slice[bool]{}, m.made().insertion(false))
}

// Build inserts pairs into an empty table, which then holds the values of each key in one bucket of just their number.
// The device must have memory for the batch beside the table. Errors: those of Insert; a table that is not empty.
func (m *BucketList[K, V]) Build(keys []K, values []V) error {
	return frame.Whole(m.made().frame(), keys, values, m.BuildOn)
}

// BuildOn does what Build does, with slices on the device. It waits for the stream.
func (m *BucketList[K, V]) BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	x := m.made().insertion(true)
	put := x.Put
	x.Put = func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
		if live, err := m.made().look(st); err != nil {
			return nil, nil, err
		} else if live > 0 {
			return nil, nil, fmt.Errorf("warpcore: Build of a table with %d pairs: it must be empty", live)
		}
		used := m.made().used()
		if refused, why, err = put(st, b); err != nil {
			return refused, why, err
		}
		if _, err := m.made().look(st); err != nil {
			return refused, why, err
		}
		if m.made().used() > used+m.made().packedPlaces() && why == nil { // it went in by pieces
			if _, err = m.made().pack(st, m.made().packedPlaces()); device.IsOutOfMemory(err) {
				err = nil // it is as good as any
			}
		}
		return refused, why, err
	}
	return frame.InsertOn(m.made().frame(), st, keys, values, device.Slice[bool]{}, x)
}

func (l *lists) search(st *device.Stream, k device.Kernel[listFindParams], b frame.Rows) error {
	p := listFindParams{Lists: l.table(), Keys: b.Keys, Found: b.Flags, N: uint64(b.N)}
	return k.Launch(st, l.keys.grid(b.N), &p)
}

func (l *lists) find(st *device.Stream, b frame.Rows) error { return l.search(st, l.kernel.find, b) }

func (l *lists) erase(st *device.Stream, b frame.Rows) error { return l.search(st, l.kernel.erase, b) }

func (l *lists) count(st *device.Stream, b frame.Rows) error {
	p := listAllParams{Lists: l.table(), Rows: frame.FindAll{Keys: b.Keys, Counts: b.Flags, N: uint64(b.N)}}
	return l.kernel.all.Count(st, l.keys.grid, &p.Rows, &p)
}

// findAll is what frame.FindValues and the like run.
func (l *lists) findAll(st *device.Stream, rows frame.FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
	if _, err := l.look(st); err != nil {
		return 0, err
	}
	if err := l.reset(st); err != nil {
		return 0, err
	}
	p, total := listAllParams{Lists: l.table(), Rows: rows}, int64(0)
	all := l.kernel.all
	all.Filled = func() error {
		if _, err := l.look(st); err != nil || l.counters.Seen.Long == 0 {
			return err
		}
		return l.kernel.fillLong.Launch(st, l.keys.grid(32*((total+longList-1)/longList)), &p)
	}
	return all.Run(l.frame(), st, l.keys.grid, &p.Rows, &p, 8, offsets, func(n int) (uint64, error) {
		total = int64(n)
		return values(n)
	})
}

// Contains tells for each key whether it has a value.
func (m *BucketList[K, V]) Contains(keys []K, found []bool) error {
	return frame.Find[K, V](m.made().frame(), keys, nil, found, m.made().find)
}

// ContainsOn does what Contains does, with slices on the device.
func (m *BucketList[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(m.made().frame(), st, keys, device.Slice[V]{}, found, m.made().find)
}

// Count writes how many values each key has. At low load, it reads one window for each key.
func (m *BucketList[K, V]) Count(keys []K, counts []uint32) error {
	return frame.CountValues(m.made().frame(), keys, counts, m.made().count)
}

// CountOn does what Count does, with slices on the device.
func (m *BucketList[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return frame.CountValuesOn(m.made().frame(), st, keys, counts, m.made().count)
}

// FindAll returns all values of each key. Those of keys[i] are values[offsets[i]:offsets[i+1]], in the order of the
// batches that brought them.
func (m *BucketList[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	return frame.FindValues[K, V](m.made().frame(), keys, m.made().findAll)
}

// FindAllOn does what FindAll does, with slices on the device. It makes the slices that it returns, and the caller
// frees them. It waits for the stream.
func (m *BucketList[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindValuesOn[K, V](m.made().frame(), st, keys, m.made().findAll)
}

// FindAllInto does what FindAllOn does, but writes to memory that the caller provides: see MultiMap.FindAllInto.
func (m *BucketList[K, V]) FindAllInto(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64],
	values func(n int) (device.Slice[V], error)) (int, error) {
	return frame.FindValuesInto(m.made().frame(), st, keys, offsets, values, m.made().findAll)
}

// FindAllIn does what FindAllInto does, but with a slice for the values that the caller has made before: see
// MultiMap.FindAllIn.
func (m *BucketList[K, V]) FindAllIn(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values device.Slice[V]) (int, error) {
	return frame.FindValuesIn(m.made().frame(), st, keys, offsets, values, m.made().findAll)
}

// FindPages does what FindAllOn does, for results larger than memory: see MultiMap.FindPages.
func (m *BucketList[K, V]) FindPages(st *device.Stream, keys device.Slice[K], most int,
	page func(first int, offsets device.Slice[uint64], values device.Slice[V]) error) error {
	return frame.FindPages(m.made().frame(), st, keys, most, page, m.made().findAll)
}

// FindAllOuter does what FindAll does, but gives a key without values one value, none, as an outer join wants. found[i]
// tells whether key i has values; found may be nil. See table.OuterFinder. It costs as much as FindAll, and three
// passes over the keys' counts. The first call compiles kernels.
func (m *BucketList[K, V]) FindAllOuter(keys []K, none V, found []bool) (offsets []uint64, values []V, err error) {
	return frame.FindOuter(m.made().frame(), keys, none, found, m.made().findAll)
}

// FindAllOuterOn does what FindAllOuter does, with slices on the device. It makes the slices that it returns, and the
// caller frees them. It waits for the stream.
func (m *BucketList[K, V]) FindAllOuterOn(st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindOuterOn(m.made().frame(), st, keys, none, found, m.made().findAll)
}

// Delete removes all values of each key. deleted[i] tells whether position i removed any; deleted may be nil. Delete
// returns how many pairs it removed. The places of their buckets are used again when the pool is laid anew.
func (m *BucketList[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.DeletePairs(m.made().frame(), keys, deleted, m.made().erase, func(st *device.Stream) (uint64, error) {
		_, err := m.made().look(st)
		return m.made().counters.Seen.Removed, err
	})
}

// DeleteOn does what Delete does, with slices on the device.
func (m *BucketList[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(m.made().frame(), st, keys, deleted, m.made().erase)
}

// exportKeys writes each key once to new device memory. The caller is in Writing.
func exportKeys[K any](l *lists, st *device.Stream) (keys device.Slice[K], err error) {
	if _, err := l.look(st); err != nil {
		return keys, err
	}
	if err := l.reset(st); err != nil {
		return keys, err
	}
	if keys, err = frame.Make[K](l.frame(), l.keys.live()); err != nil {
		return keys, err
	}
	p := listSlotsParams{Lists: l.table(), Keys: keys.Addr(), Limit: uint64(keys.Len())}
	if err = l.kernel.export.Launch(st, l.keys.grid(l.keys.slots()), &p); err == nil {
		_, err = l.look(st)
	}
	n := int64(l.counters.Seen.Exported)
	if err == nil && n > int64(keys.Len()) {
		err = family.Exported(n, int64(keys.Len()))
	}
	if err != nil {
		return device.Slice[K]{}, errors.Join(err, l.frame().Free(keys))
	}
	return keys.Slice(0, int(n)), nil
}

// Keys exports each key once, in no order.
func (m *BucketList[K, V]) Keys() (keys []K, err error) {
	err = m.made().frame().Alone(nil, func(st *device.Stream) error {
		k, err := exportKeys[K](m.made(), st)
		if err != nil {
			return err
		}
		defer m.made().frame().Free(k)
		keys, err = frame.Host(st, k)
		return err
	})
	return keys, err
}

// All exports every pair, in no order. It needs memory for all keys and values on the device, beside the table.
func (m *BucketList[K, V]) All() (keys []K, values []V, err error) {
	l := m.made()
	err = l.frame().Alone(nil, func(st *device.Stream) error {
		k, err := exportKeys[K](l, st)
		if err != nil {
			return err
		}
		defer func() { l.frame().Free(k) }()
		o, err := frame.Make[uint64](l.frame(), int64(k.Len())+1)
		if err != nil {
			return err
		}
		defer func() { l.frame().Free(o) }()
		var v device.Slice[V]
		n, err := l.findAll(st, frame.FindAll{Keys: k.Addr(), N: uint64(k.Len())}, o, func(n int) (uint64, error) {
			var err error
			v, err = frame.Make[V](l.frame(), int64(n))
			return v.Addr(), err
		})
		defer func() { l.frame().Free(v) }()
		if err == nil {
			err = family.Exported(int64(n), l.counters.Seen.live())
		}
		if err != nil {
			return err
		}
		distinct, e1 := frame.Host(st, k)
		offsets, e2 := frame.Host(st, o)
		if values, err = frame.Host(st, v); errors.Join(err, e1, e2) != nil {
			return errors.Join(err, e1, e2)
		}
		keys = make([]K, len(values))
		for i, key := range distinct {
			for j := offsets[i]; j < offsets[i+1]; j++ {
				keys[j] = key
			}
		}
		return nil
	})
	return keys, values, err
}

// exporter is how the pairs are given out, slot by slot.
func (l *lists) exporter(st *device.Stream) (frame.Exporter, error) {
	live, err := l.look(st)
	return frame.Exporter{Slots: l.keys.slots(), Live: live, Export: func(st *device.Stream, r frame.Range) (int64, error) {
		p := listSlotsParams{Lists: l.table(), Keys: r.Keys, Values: r.Values, First: uint64(r.First), Slots: uint64(r.Slots), Limit: uint64(r.Limit)}
		queued := frame.InTurn(
			func() error { return l.reset(st) },
			func() error { return l.kernel.exportPairs.Launch(st, l.keys.grid(r.Slots), &p) },
		)
		return frame.Exported(queued, func() (uint64, error) { _, err := l.look(st); return l.counters.Seen.Exported, err })
	}}, err
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *BucketList[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, m.made().frame(), m.made().exporter, do)
}

// ForEach calls body for every pair whose key is one of the given keys: see Map.ForEach.
func (m *BucketList[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](m.made().frame(), st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see Map.ForEach. In body, index is the slot of the key.
func (m *BucketList[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](m.made().frame(), st, body, args, m.made().caller())
}

func (l *lists) caller() frame.Caller {
	return frame.Caller{
		Program: func(header device.File) *device.Program {
			return l.program("bucketlist-foreach", bucketlistForEachCU, header)
		},
		Params: func(keys, n uint64, words [frame.MaxArgs]uint64) any {
			return &listCallbackParams{l.table(), keys, n, words}
		},
		Grid: l.keys.grid, Slots: l.keys.slots,
	}
}

// Program returns a program with a kernel of your own that works on this table. Its source, main, includes "config.h"
// and "bucketlist.cuh". The kernel's parameters hold a Lists. See Map.Program.
func (m *BucketList[K, V]) Program(name, main string) *device.Program {
	m.made().frame().MustBeMade()
	return m.made().program(name, main)
}

// Use runs a kernel of yours in order with the table's own operations: see Map.Use. room is how many pairs the kernel
// inserts at most. The table makes room for that many pairs, each with a key and a bucket of its own. If a key has many
// values, λ may want more places than that.
func (m *BucketList[K, V]) Use(st *device.Stream, room int, queue func(Lists) error) error {
	l := m.made()
	return l.frame().Using(st, room, l.look, func(st *device.Stream) error {
		if err := l.makeRoom(st, int64(room)); err != nil {
			return err
		}
		l.foreign = true
		return queue(l.table())
	})
}

// makeRoom grows the table, if it must, for so many more pairs.
func (l *lists) makeRoom(st *device.Stream, pairs int64) error {
	if err := l.reset(st); err != nil || pairs == 0 {
		return err
	}
	if l.full {
		done, err := l.pack(st, max(l.room(), min(l.packedPlaces(), l.bound())))
		if err != nil {
			return err
		}
		if !done {
			return fmt.Errorf("warpcore: no room to lay the lists anew: %w", frame.AtMaxBytes(l.opts.MaxBytes))
		}
	}
	var why, err error
	if l.keys.filled+pairs > l.keys.limit() {
		why, err = l.growKeys(st, l.keys.live()+pairs, false, true)
	}
	if places := pairs * int64(l.opts.InitialBucket+l.cfg.header()); err == nil && why == nil && l.used()+places > l.room() {
		if why, err = l.growPool(st, places); err == nil && why == nil && l.used()+places > l.room() {
			why = frame.AtMaxBytes(l.opts.MaxBytes)
		}
	}
	if err == nil && why != nil {
		err = fmt.Errorf("warpcore: no room for %d more pairs: %w", pairs, why)
	}
	return err
}
