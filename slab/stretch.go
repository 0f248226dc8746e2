package slab

import (
	_ "embed"
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch.cu
var stretchCU string

// stretches are the inserts of stretch.cu, and when they are used.
type stretches struct {
	rule frame.Stretches
	// leftMost: if more than one row in so many is expected to find its base slab full, the batch goes in as it is.
	leftMost          int64
	bytes, larger     int // of shared memory, of a stretch
	late              frame.Late
	replacing, adding device.Kernel[stretchParams]
}

// stretchesFor has bounds by a model of the bytes that are moved, where a row that is left over costs twice what it
// costs otherwise.
func stretchesFor(info device.Info) stretches {
	return stretches{rule: frame.StretchesFor(info, 1, 2), leftMost: 4, bytes: stretchBytes, larger: stretchLarger}
}

// bucketRows is how many rows a batch has at least for each bucket: all base slabs are read and written.
const bucketRows = 2

// leftShare: on average, one row in so many at most is left over, so the grid for these is as for so many.
const leftShare = 8

// stretches tells whether tables of these keys and values have kernels for stretches.
func (c config) stretches() bool { return !c.multi && c.valueBytes <= 8 }

// worth tells whether a batch is to go in stretch by stretch.
func (s *stretches) worth(c *core, b frame.Rows) bool {
	if b.N < s.rule.MinRows || int64(c.base.Len()) < c.regions.MinBytes {
		return false
	}
	return c.cfg.spilled(c.live()+b.N, c.buckets())-c.cfg.spilled(c.live(), c.buckets()) <= b.N/s.leftMost
}

// cut is how a table is cut into stretches: so many buckets each, in an order that frame.Stretches gives.
type cut struct {
	buckets, stretches int64
	fine               frame.Fine
	ok                 bool
}

func (s *stretches) cutBy(c *core, bytes int, rows int64) (x cut) {
	x.buckets = max(8, int64(bytes/stretchBucketBytes&^7))
	x.stretches = (c.buckets() + x.buckets - 1) / x.buckets
	x.fine, x.ok = s.rule.Fine(c.regions, rows, bucketRows*c.buckets(), x.stretches, math.MaxInt64)
	x.ok = x.ok && x.shared()+stretchBeside <= int(c.frame.Device.Info().Shared)
	return x
}

// shared returns the shared memory for the buckets of a stretch.
func (x *cut) shared() int { return int(x.buckets) * stretchBucketBytes }

// cut makes stretches larger if they fit shared memory, and a block of the partition then has room for a counter of each.
func (s *stretches) cut(c *core, rows int64) cut {
	counted := func(x cut) bool { return x.fine.Large*x.fine.Within < c.frame.Device.Info().Shared/4 }
	x := s.cutBy(c, s.bytes, rows)
	if larger := s.cutBy(c, s.larger, rows); larger.ok && !counted(x) && counted(larger) {
		return larger
	}
	return x
}

// insertStretches puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that
// would be slower, a multiple of 32, or all. None, too, if some found no slab: then the whole batch is to go in once
// more, which does no harm, and tells which they are.
func (c *core) insertStretches(st *device.Stream, k device.Kernel[insertParams], p insertParams, b frame.Rows) (
	taken int64, err error) {
	s := &c.stretch
	insert, left := &s.replacing, c.kernel.left
	switch {
	case !c.cfg.stretches() || p.Rows.Attempt != 0 || p.NoSlabs != 0 || b.Flags != 0 || b.Out != 0 || b.When != 0:
		return 0, nil
	case k == c.kernel.insertNew:
		insert, left = &s.adding, c.kernel.leftNew
	case k != c.kernel.insert:
		return 0, nil
	}
	if !s.worth(c, b) {
		return 0, nil
	}
	x := s.cut(c, b.N)
	grid := device.Grid{Blocks: x.stretches, Threads: stretchThreads}
	if !c.frame.Device.Info().CUDA() {
		grid.Threads = frame.Threads
	}
	grid.Shared = x.shared()
	if !x.ok || !c.loadStretches() {
		return 0, nil
	}
	lease, err := c.frame.Scratch(8)
	if err != nil {
		if device.IsOutOfMemory(err) { // the batch goes in as it is
			err = nil
		}
		return 0, err
	}
	defer lease.Done()
	counts := lease.Mem
	q := stretchParams{Table: p.Table, Buckets: uint64(x.buckets), Left: counts.Addr()}
	if c.counters.Seen.Inserted == 0 { // all slabs are clear: whatever inserts is seen before another does
		q.Empty = 1
	}
	piece := func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		q.Rows = frame.Partition{Keys: o.Rows.Keys, Values: o.Rows.Values, N: uint64(o.Rows.N), Starts: starts.Addr(), Paired: o.Paired}
		q.LeftKeys, q.LeftValues = spare.Keys, spare.Values
		rest := insertParams{Table: p.Table, Left: q.Left}
		rest.Rows = frame.Placing{Keys: spare.Keys, Values: spare.Values, N: uint64(o.Rows.N)}
		err := frame.InTurn(
			func() error { return counts.Fill(st, 0) },
			func() error { return insert.Launch(st, grid, &q) },
			func() error { return left.Launch(st, c.frame.Grid(max(1, o.Rows.N/leftShare), insertBlocks), &rest) },
		)
		q.Empty = 0
		return err
	}
	order := c.inStretches(p.Table, x)
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, order, b, x.fine.Large, x.fine.Within, piece)
	if taken == 0 || err != nil {
		return taken, err
	}
	if _, err := c.look(st); err != nil || c.counters.Seen.Failed == 0 {
		return taken, err
	}
	return 0, c.reset(st)
}

// inStretches says how a batch is brought in the order of stretches.
func (c *core) inStretches(t Table, x cut) frame.Placement {
	return frame.Placement{
		Pairs:   true,
		Regions: &x.fine.Regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes,
		Params: func(rows frame.Partition) any {
			n := uint64(x.buckets)
			if rows.Within == 0 {
				n *= uint64(x.fine.Within)
			}
			return &partitionParams{Table: t, Rows: rows, Inverse: math.MaxUint64/n + 1}
		},
	}
}

func (c *core) stretchProgram() *device.Program {
	p := c.program("slab-stretch", stretchCU)
	p.Threads = stretchThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (c *core) loadStretches() bool {
	return c.stretch.late.Load(c.frame.Device, c.stretchProgram, func(m *device.Module) error {
		err := device.Bind(m, "insert_stretch_new", &c.stretch.adding)
		if c.cfg.valueBytes > 0 {
			err = errors.Join(err, device.Bind(m, "insert_stretch", &c.stretch.replacing))
		}
		return err
	})
}
