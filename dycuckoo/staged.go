package dycuckoo

import (
	_ "embed"
	"errors"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed staged.cu
var stagedCU string

// staged are the inserts of staged.cu, and when they are used. A stretch of each subtable fits the shared memory of a block.
type staged struct {
	rule              frame.Stretches
	late              frame.Late
	mostListed        int // rows of a block: bounded in tests alone
	replacing, adding device.Kernel[stagedParams]
}

// stretchesOf is the binary logarithm of how many stretches the smallest subtable has; negative if it is not one.
func (c *core) stretchesOf() int {
	return bits.Len64(uint64(c.step.buckets(c.d(), c.d()-1))) - 1 - localBits
}

// partitionParams gives the parameters of a partition into regions of the table.
func (c *core) partitionParams(t Table) func(rows frame.Partition) any {
	return func(rows frame.Partition) any {
		p := &partitionParams{Table: t, Rows: rows}
		parts := bits.Len64(rows.Parts) - 1
		stretches := max(parts, min(stretchBits, c.stretchesOf()))
		p.Mask, p.Shift = 1<<stretches-1, uint64(stretches-parts)
		return p
	}
}

// stage puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that would be slower, a multiple
// of 32, or all. empty tells that no pairs are in.
func (c *core) stage(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows, empty bool) (taken int64, err error) {
	s := &c.staged
	shift := c.stretchesOf()
	if !c.cfg.staged() || b.Flags != 0 || p.Rows.Attempt != 0 || shift < 1 || shift >= stretchBits {
		return 0, nil
	}
	fine, ok := s.rule.Fine(c.regions, b.N, c.capacity(), 1<<shift, 0)
	if !ok {
		return 0, nil
	}
	grid, listed := c.stagedGrid(shift, empty)
	if grid.Shared == 0 {
		return 0, nil
	}
	if !c.loadStaged() {
		return 0, nil
	}
	list, limit, lease, err := c.list(b.N/stagedShare + leastListed)
	if err != nil {
		return 0, err
	}
	defer lease.Done()
	q := stagedParams{Shift: uint64(shift), Larger: uint64(int64(c.step) % int64(c.d())), Listed: uint64(listed)}
	if empty {
		q.Empty = 1
	}
	if now := c.tiltAt(c.step); now != c.tilt {
		c.tilt, q.Refresh = now, 1
	}
	q.Table = c.table()
	q.Table.Shift = q.Shift
	q.List, q.Limit = list.Addr(), limit
	rest := insertParams{Table: q.Table, List: q.List, Limit: q.Limit, Capacity: uint64(c.capacity())}
	insert := s.replacing
	if k == &c.kernel.adding {
		insert = s.adding
	}
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, frame.Placement{
		Regions: &fine.Regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Params: c.partitionParams(q.Table),
	}, b, fine.Large, fine.Within, func(o frame.Ordered, starts device.Slice[uint64], _ frame.Rows) error {
		q.Rows, q.Starts = p.Rows.Of(o), starts.Addr()
		err := list.Slice(0, 4).Fill(st, 0)
		if err == nil {
			err = insert.Launch(st, grid, &q)
		}
		if err != nil {
			return err
		}
		q.Empty, q.Refresh = 0, 0
		rest.Rows = q.Rows
		rest.Rows.Refused = 0
		return k.refine.Launch(st, c.listGrid(int64(limit)*refineGroup), &rest)
	})
	if q.Refresh == 1 { // no piece was taken
		c.tilt = p.Table.Tilt
	}
	if taken == 0 || err != nil || p.Rows.Refused == 0 {
		return taken, err
	}
	p.Table, p.Rows = q.Table, p.Rows.Of(frame.Ordered{Rows: b})
	p.Rows.N = uint64(taken)
	return taken, c.kernel.refuseAbsent.Launch(st, c.grid(taken), &p)
}

// stagedGrid has a block for each of 2^shift regions, with lists for so many rows: as many blocks of a multiprocessor as
// have room, so that some work while others wait. Shared is 0 where there is none for one.
func (c *core) stagedGrid(shift int, empty bool) (grid device.Grid, listed int) {
	info := c.frame.Device.Info()
	share := int(c.step.total(c.d()) >> shift) // buckets of a region
	copies, blocks := share*c.cfg.stagedBytes(), stagedBlocks
	if !info.CUDA() {
		blocks = 1
	}
	for ; blocks > 0; blocks-- {
		room := (int(info.Shared)+blockReserve)/blocks - blockReserve - stagedFixed - copies
		listed, ok := c.cfg.stagedLists(room, share*c.cfg.slots(), empty)
		listed = min(listed, c.staged.mostListed)
		if ok || blocks == 1 && listed > 0 {
			grid = device.Grid{Blocks: 1 << shift, Threads: stagedThreads / blocks &^ 63, Shared: copies + 4*listed}
			if !info.CUDA() {
				grid.Threads = frame.Threads
			}
			return grid, listed
		}
	}
	return grid, 0
}

func (c *core) stagedProgram() *device.Program {
	p := c.program("dycuckoo-staged", stagedCU)
	p.Threads = stagedThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	p.Files[2].Text = c.cfg.header("config", true)
	return p
}

// loadStaged tells whether the kernels are there.
func (c *core) loadStaged() bool {
	return c.staged.late.Load(c.frame.Device, c.stagedProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_staged", &c.staged.replacing), device.Bind(m, "insert_staged_new", &c.staged.adding))
	})
}
