package warpcore

import (
	_ "embed"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch_multi.cu
var stretchMultiCU string

// stretched tells whether a batch of n rows of a multimap may go in stretch by stretch, by the number of its rows.
func (c *core) stretched(k inserts, n int64) bool {
	return k.stretch == &c.stretch.multi && n >= c.stretch.rule.MinRows
}

// insertMultiStretches puts the front of a batch into a multimap, which has a slot for each row, stretch by stretch, and
// tells how many rows: none where that would be slower, a multiple of 32, or all. It waits. each is how many rows a key
// has on average, 1 where they are not worth sorting. See stretch_multi.cu.
func (c *core) insertMultiStretches(st *device.Stream, k inserts, p insertParams, b frame.Rows, empty bool, each int64) (taken int64, err error) {
	grid, windows, ok := c.stretchGrid(false)
	if !ok {
		return 0, nil
	}
	kernel := *k.stretch
	if order := c.cfg.multiOrder(windows); each > 1 && grid.Shared+order+c.cfg.stretchFixed() <= int(c.frame.Device.Info().Shared) {
		if kernel = c.stretch.runs; each >= haveLongRuns {
			kernel = c.stretch.longRuns
		}
		grid.Shared += order
	}
	fine, ok := c.stretch.rule.Fine(c.regions, b.N, c.capacity(), grid.Blocks, math.MaxInt64)
	if !ok {
		return 0, nil
	}
	before, err := c.look(st)
	if err != nil {
		return 0, err
	}
	lease, err := c.frame.Scratch(8)
	defer lease.Done()
	switch {
	case device.IsOutOfMemory(err): // the batch goes in as it is
		return 0, nil
	case err != nil:
		return 0, err
	}
	left := lease.Mem.Slice(0, 8)
	q := stretchParams{Table: c.t, Windows: uint64(windows), Left: left.Addr()}
	if empty {
		q.Empty = 1
	}
	x := c.placement(false, nil)
	x.Pairs = true
	taken, err = c.inStretchOrder(st, b, windows, fine, x, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		q.Rows = frame.Partition{Keys: o.Rows.Keys, Values: o.Rows.Values, N: uint64(o.Rows.N), Starts: starts.Addr(), Paired: o.Paired}
		q.LeftKeys, q.LeftValues = spare.Keys, spare.Values
		rest := insertParams{Table: c.t, Limit: p.Limit, Left: q.Left}
		rest.Rows = frame.Placing{Keys: spare.Keys, Values: spare.Values, N: uint64(o.Rows.N)}
		err := frame.InTurn(
			func() error { return left.Fill(st, 0) },
			func() error { return kernel.Launch(st, grid, &q) },
			func() error { return k.left.Launch(st, c.grid(max(1, o.Rows.N/leftShare)), &rest) },
		)
		q.Empty = 0
		return err
	})
	if taken == 0 || err != nil {
		return taken, err
	}
	b.N = taken
	return taken, c.insertedMulti(st, k, p, b, before)
}

func (c *core) stretchMultiProgram() *device.Program {
	return c.sharedProgram("warpcore-stretch-multi", stretchMultiCU)
}
