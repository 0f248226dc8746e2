package stadium

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch.cu
var stretchCU string

// stretches says when a large batch goes in stretch by stretch, and with which kernels.
type stretches struct {
	rule              frame.Stretches
	bytes, larger     int // of shared memory, of a stretch
	listed            int // rows, with stretches that are not larger
	late              frame.Late
	replacing, adding device.Kernel[stretchParams]
}

// leftShare: on average, one row in so many at most is left over, so the grid for these is as for so many.
const leftShare = 32

// cut is how a table is cut into stretches of 2^bits buckets each.
type cut struct {
	bits, listed int
	grid         device.Grid
	fine         frame.Fine
}

// cutBy makes stretches of so many bytes for n rows; false where that would be slower.
func (s *stretches) cutBy(c *core, bytes int, n int64) (x cut, ok bool) {
	if x.bits = c.cfg.cut(bytes, c.shape.shift); x.bits < 0 {
		return x, false
	}
	if x.listed = s.listed; bytes > stretchBytes {
		x.listed = stretchListedLarger
	}
	x.grid = device.Grid{Blocks: c.shape.buckets() >> x.bits, Threads: stretchThreads, Shared: c.cfg.stretchBucket()<<x.bits + 4*x.listed}
	switch info := c.frame.Device.Info(); {
	case x.grid.Shared+stretchFixed > int(info.Shared):
		return x, false
	case !info.CUDA():
		x.grid.Threads = frame.Threads
	case bytes > stretchBytes:
		x.grid.Threads = stretchThreadsLarger
	}
	x.fine, ok = c.fine(s.rule, c.regions, n, x.grid.Blocks, mostRows)
	return x, ok
}

// cut makes stretches larger if a block of the partition then has room for a counter of each.
func (s *stretches) cut(c *core, n int64) (cut, bool) {
	x, ok := s.cutBy(c, s.bytes, n)
	counted := func(x cut) bool { return x.fine.Large*x.fine.Within < c.frame.Device.Info().Shared/4 }
	if ok && counted(x) {
		return x, true
	}
	if larger, fits := s.cutBy(c, s.larger, n); fits && (!ok || counted(larger)) {
		return larger, true
	}
	return x, ok
}

// insertStretches puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that
// would be slower, a multiple of 32, or all.
func (c *core) insertStretches(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) (taken int64, err error) {
	s := &c.stretch
	if !c.cfg.stretches() || b.N < s.rule.MinRows || c.bytes(c.shape) < c.regions.MinBytes {
		return 0, nil
	}
	carried := int64(c.cfg.carried())
	x, ok := s.cut(c, b.N)
	if !ok || !c.loadStretches() {
		return 0, nil
	}
	lease, err := c.frame.Scratch(4)
	if device.IsOutOfMemory(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer lease.Done()
	left := lease.Mem.Slice(0, 4) // how many rows are left over
	t, values, rows := c.table(), b.Values, b
	if carried == 0 {
		rows.Values = 0
	}
	insert := s.replacing
	if k == &c.kernel.adding {
		insert = s.adding
	}
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, frame.Placement{
		Regions: &x.fine.Regions, KeyBytes: c.cfg.keyBytes, ValueBytes: int(carried), Positions: carried == 0, Params: c.stretchParams(t, x.bits, x.fine.Within),
	}, rows, x.fine.Large, x.fine.Within, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		q := stretchParams{Table: t, Cut: uint64(x.bits), Listed: uint64(x.listed), Rows: p.Rows.Of(o), Starts: starts.Addr(),
			LeftKeys: spare.Keys, LeftValues: spare.Values, LeftPositions: o.Spare, Left: left.Addr()}
		rest := frame.Ordered{Rows: spare, Positions: o.Spare}
		if carried == 0 {
			q.Rows.Values, rest.Rows.Values = values, values
			values += uint64(o.Rows.N) * uint64(c.cfg.valueBytes)
		}
		if err := frame.InTurn(
			func() error { return left.Fill(st, 0) },
			func() error { return insert.Launch(st, x.grid, &q) },
		); err != nil {
			return err
		}
		y := insertParams{Table: t, Rows: p.Rows.Of(rest), Limit: p.Limit, Listed: left.Addr()}
		if y.Rows.Refused = 0; carried == 0 {
			y.ByPosition = 1
		}
		return k.listed.Launch(st, c.grid(max(1, o.Rows.N/leftShare)), &y)
	})
	return taken, errors.Join(err, c.refuseTaken(st, p, b, taken, err))
}

func (c *core) stretchProgram() *device.Program {
	p := c.program("stadium-stretch", stretchCU)
	p.Threads = stretchThreadsLarger
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (c *core) loadStretches() bool {
	return c.stretch.late.Load(c.frame.Device, c.stretchProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_stretch", &c.stretch.replacing), device.Bind(m, "insert_stretch_new", &c.stretch.adding))
	})
}
