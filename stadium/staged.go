package stadium

import (
	_ "embed"
	"errors"

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

// partitionParams gives the parameters of a partition into stretches of so many regions, or where that is 0 of as many as there must be;
// in the second pass into regions.
func (c *core) partitionParams(t Table, each int64) func(rows frame.Partition) any {
	return func(rows frame.Partition) any {
		p := &partitionParams{Table: t, Rows: rows, Each: uint64(each)}
		if rows.Within > 0 {
			p.Each = 1
		} else if each == 0 {
			p.Each = (t.Regions + rows.Parts - 1) / rows.Parts
		}
		return p
	}
}

// stage puts the front of a batch into the table region by region, and tells how many rows: none where that would be slower, a multiple of 32,
// or all.
func (c *core) stage(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) (taken int64, err error) {
	s := &c.staged
	if !c.cfg.staged() || b.Flags != 0 || p.Rows.Attempt != 0 {
		return 0, nil
	}
	board := c.cfg.ticketBytes() << c.shape.shift // of a region
	if board%stagedUnit != 0 {
		return 0, nil
	}
	rule, far := c.regions, c.far.orders(c, b.N)
	if far { // each piece has the table cross the bus
		rule.PieceRows, rule.MemoryShare = mostRows, 2
	} else {
		c.stale()
	}
	fine, ok := s.rule.Fine(rule, b.N, c.capacity(), c.shape.regions, 0)
	if !ok {
		return 0, nil
	}
	grid := device.Grid{Blocks: c.shape.regions, Threads: stagedThreads, Shared: board + int(frame.Align(accessBytes(1<<c.shape.shift)))}
	if !c.frame.Device.Info().CUDA() {
		grid.Threads = frame.Threads
	}
	if grid.Shared+stagedFixed > int(c.frame.Device.Info().Shared) || !c.loadStaged() {
		return 0, nil
	}
	lease, err := c.frame.Scratch(frame.Align((min(b.N, fine.Regions.PieceRows) + 31) / 32 * 4))
	if device.IsOutOfMemory(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer lease.Done()
	left := lease.Mem
	q := stagedParams{Table: c.table(), Left: left.Addr()}
	rest := insertParams{Table: q.Table, Limit: p.Limit}
	insert := s.replacing
	if k == &c.kernel.adding {
		insert = s.adding
	}
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, frame.Placement{
		Regions: &fine.Regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Params: c.partitionParams(q.Table, fine.Within),
	}, b, fine.Large, fine.Within, func(o frame.Ordered, starts device.Slice[uint64], _ frame.Rows) error {
		q.Rows, q.Starts = p.Rows.Of(o), starts.Addr()
		rest.Rows = q.Rows
		rest.Rows.Refused, rest.Rows.Attempt = q.Left, 1
		launch := insert.Launch
		if far {
			launch = func(st *device.Stream, g device.Grid, q *stagedParams) error {
				return c.stageFar(st, insert, g, *q, starts)
			}
		}
		err := errors.Join(left.Fill(st, 0), launch(st, grid, &q), k.left.Launch(st, c.grid(o.Rows.N), &rest))
		c.stale() // what is left may go anywhere
		return err
	})
	if taken == 0 || err != nil || p.Rows.Refused == 0 {
		return taken, err
	}
	p.Table, p.Rows = q.Table, p.Rows.Of(frame.Ordered{Rows: b})
	p.Rows.N = uint64(taken)
	return taken, c.kernel.refuseAbsent.Launch(st, device.GridFor(taken, frame.Threads), &p)
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
