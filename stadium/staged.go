package stadium

import (
	_ "embed"
	"errors"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed staged.cu
var stagedCU string

// staged says when a large batch goes in through shared memory, region by region, and with which kernels.
type staged struct {
	rule              frame.Stretches
	late              frame.Late
	replacing, adding device.Kernel[stagedParams]
}

func (s *staged) of(c *core, k *insertKernels) device.Kernel[stagedParams] {
	if k == &c.kernel.adding {
		return s.adding
	}
	return s.replacing
}

// regionParams gives the parameters of a partition into parts of some regions in a row.
func (c *core) regionParams(t Table) func(rows frame.Partition) any {
	return func(rows frame.Partition) any {
		return &partitionParams{Table: t, Rows: rows, Each: (t.Regions + rows.Parts - 1) / rows.Parts}
	}
}

// stretchParams gives the parameters of a partition into stretches of 2^cut buckets, whose first pass makes parts of
// `within` of them, a power of two.
func (c *core) stretchParams(t Table, cut int, within int64) func(rows frame.Partition) any {
	return func(rows frame.Partition) any {
		p := &partitionParams{Table: t, Rows: rows, Cut: uint64(cut)}
		if rows.Within == 0 {
			p.Cut += uint64(bits.Len64(uint64(within)) - 1)
		}
		return p
	}
}

// fine says how a batch of n rows is brought in the order of so many stretches.
func (c *core) fine(s frame.Stretches, rule frame.Regions, n, stretches, most int64) (frame.Fine, bool) {
	rule.PowerOfTwo = true
	return s.Fine(rule, n, c.capacity(), stretches, most)
}

// stage puts the front of a batch into the table region by region, and tells how many rows: none where that would be slower, a multiple of 32,
// or all.
func (c *core) stage(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) (taken int64, err error) {
	if b.Flags != 0 || p.Rows.Attempt != 0 {
		return 0, nil
	}
	rule, far := c.regions, c.far.orders(c, b.N)
	if far { // each piece has the table cross the bus
		rule.PieceRows, rule.MemoryShare = mostRows, 2
	} else {
		c.stale()
		if taken, err = c.insertStretches(st, k, p, b); taken > 0 || err != nil {
			return taken, err
		}
	}
	grid, ok := c.regionGrid()
	if !ok {
		return 0, nil
	}
	fine, ok := c.fine(c.staged.rule, rule, b.N, c.shape.regions, 0)
	if !ok || !c.loadStaged() {
		return 0, nil
	}
	lease, err := c.frame.Scratch(leftBytes(min(b.N, fine.Regions.PieceRows)))
	if device.IsOutOfMemory(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer lease.Done()
	q := stagedParams{Table: c.table()}
	insert := c.staged.of(c, k)
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, frame.Placement{
		Regions: &fine.Regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Params: c.stretchParams(q.Table, c.shape.shift, fine.Within),
	}, b, fine.Large, fine.Within, func(o frame.Ordered, starts device.Slice[uint64], _ frame.Rows) error {
		q.Rows, q.Starts = p.Rows.Of(o), starts.Addr()
		return c.stageRegions(st, k, p, q, o.Rows.N, lease.Mem, func(q *stagedParams) error {
			if far {
				return c.stageFar(st, insert, grid, *q, starts)
			}
			return insert.Launch(st, grid, q)
		})
	})
	return taken, errors.Join(err, c.refuseTaken(st, p, b, taken, err))
}

// leftBytes is the memory of a bitmap of n rows.
func leftBytes(n int64) int64 { return frame.Align((n + 31) / 32 * 4) }

// stageRegions launches what puts rows of q into their regions, and behind it what brings those of up to n rows that
// find no room there to others. left is memory for a bitmap of the n rows.
func (c *core) stageRegions(st *device.Stream, k *insertKernels, p insertParams, q stagedParams, n int64, left device.Slice[byte],
	launch func(q *stagedParams) error) error {
	left = left.Slice(0, int(leftBytes(n)))
	q.Left = left.Addr()
	rest := insertParams{Table: q.Table, Limit: p.Limit, Rows: q.Rows}
	rest.Rows.Refused, rest.Rows.Attempt, rest.Rows.N = q.Left, 1, uint64(n)
	err := frame.InTurn(
		func() error { return left.Fill(st, 0) },
		func() error { return launch(&q) },
		func() error { return k.left.Launch(st, c.grid(n), &rest) },
	)
	c.stale() // what is left may go anywhere
	return err
}

// refuseTaken refuses those of the first rows of a batch that found no room, if positions are refused.
func (c *core) refuseTaken(st *device.Stream, p insertParams, b frame.Rows, taken int64, err error) error {
	if taken == 0 || err != nil || p.Rows.Refused == 0 {
		return nil
	}
	p.Table, p.Rows = c.table(), p.Rows.Of(frame.Ordered{Rows: b})
	p.Rows.N = uint64(taken)
	return c.kernel.refuseAbsent.Launch(st, device.GridFor(taken, frame.Threads), &p)
}

// regionGrid has a block for each region of the table; false where its tickets do not fit.
func (c *core) regionGrid() (grid device.Grid, ok bool) {
	board := c.cfg.ticketBytes() << c.shape.shift
	grid = device.Grid{Blocks: c.shape.regions, Threads: stagedThreads, Shared: board + int(frame.Align(accessBytes(1<<c.shape.shift)))}
	if !c.frame.Device.Info().CUDA() {
		grid.Threads = frame.Threads
	}
	return grid, c.cfg.staged() && board%stagedUnit == 0 && grid.Shared+stagedFixed <= int(c.frame.Device.Info().Shared)
}

func (c *core) stagedProgram() *device.Program {
	p := c.program("stadium-staged", stagedCU)
	p.Threads = stagedThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStaged tells whether the kernels are there.
func (c *core) loadStaged() bool {
	return c.staged.late.Load(c.frame.Device, c.stagedProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_staged", &c.staged.replacing), device.Bind(m, "insert_staged_new", &c.staged.adding))
	})
}
