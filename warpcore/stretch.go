package warpcore

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
	minRows           int64 // of a batch
	rowShare          int64 // of a batch for the table's slots: the whole table is read and written
	bytes             int   // of shared memory, of a stretch
	late              frame.Late
	replacing, adding device.Kernel[stretchParams]
}

// stretchesFor has bounds by a model of the bytes that are moved.
func stretchesFor(info device.Info) stretches {
	s := stretches{minRows: 1 << 22, rowShare: 8, bytes: stretchBytes}
	if !info.CUDA() {
		s.minRows = math.MaxInt64
	}
	return s
}

// mostPiece is how many rows go in at once, at most: kernels number what is left over of them with 32 bits.
const mostPiece = 1 << 31

// leftShare: on average, one row in so many at most is left over, so the grid for these is as for so many.
const leftShare = 8

// insertStretches puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that would be slower, a
// multiple of 32, or all. empty tells that no pair ever was in.
func (c *core) insertStretches(st *device.Stream, k inserts, p insertParams, b frame.Rows, empty bool) (taken int64, err error) {
	s, windows, all := &c.stretch, c.cfg.stretchWindows(c.stretch.bytes), int64(c.t.Main.Windows)
	if windows == 0 || b.N < s.minRows || int64(c.mem.Len()) < c.regions.MinBytes {
		return 0, nil
	}
	parts := (all + windows - 1) / windows
	within := int64(math.Ceil(math.Sqrt(float64(parts))))
	large := (parts + within - 1) / within
	least := c.capacity() / s.rowShare // each piece reads and writes the whole table
	if b.N < least || least > mostPiece || within > frame.MaxParts || large < 2 {
		return 0, nil
	}
	grid := device.Grid{Blocks: parts, Threads: stretchThreads, Shared: int(windows) * (c.cfg.window*c.cfg.slotBytes() + 4)}
	if !c.frame.Device.Info().CUDA() {
		grid.Threads = frame.Threads
	}
	if grid.Shared+c.cfg.stretchFixed() > int(c.frame.Device.Info().Shared) || !c.loadStretches() {
		return 0, nil
	}
	regions := c.regions
	regions.RegionRows, regions.PieceRows = max(1, least/(large*within)), min(max(regions.PieceRows, least), mostPiece)
	lease, err := c.frame.Scratch(8)
	if device.IsOutOfMemory(err) { // the batch goes in as it is
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer lease.Done()
	left := lease.Mem
	q := stretchParams{Table: c.t, Windows: uint64(windows), Left: left.Addr()}
	if empty {
		q.Empty = 1
	}
	x := c.placement(false, nil)
	x.Regions = &regions
	x.Params = func(rows frame.Partition) any {
		n := uint64(windows)
		if rows.Within == 0 {
			n *= uint64(within)
		}
		return &partitionParams{Table: c.t, Rows: rows, Inverse: math.MaxUint64/n + 1}
	}
	taken, err = c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, x, b, large, within, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		q.Rows = frame.Partition{Keys: o.Rows.Keys, Values: o.Rows.Values, N: uint64(o.Rows.N), Starts: starts.Addr()}
		q.LeftKeys, q.LeftValues = spare.Keys, spare.Values
		rest := insertParams{Table: c.t, Limit: p.Limit, Left: q.Left, Rows: frame.Placing{Keys: spare.Keys, Values: spare.Values, N: uint64(o.Rows.N)}}
		err := errors.Join(left.Fill(st, 0), k.stretch.Launch(st, grid, &q), k.left.Launch(st, c.grid(max(1, o.Rows.N/leftShare)), &rest))
		q.Empty = 0
		return err
	})
	if taken == 0 || err != nil || p.Rows.Refused == 0 {
		return taken, err
	}
	if _, err := c.look(st); err != nil || c.counters.Seen.Failed == 0 {
		return taken, err
	}
	if err := c.reset(st); err != nil {
		return taken, err
	}
	p.Rows = p.Rows.Of(frame.Ordered{Rows: b})
	p.Rows.N = uint64(taken)
	return taken, c.kernel.refuse.Launch(st, c.grid(taken), &p)
}

func (c *core) stretchProgram() *device.Program {
	p := c.program("warpcore-stretch", stretchCU)
	p.Threads = stretchThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (c *core) loadStretches() bool {
	return c.stretch.late.Load(c.frame.Device, c.stretchProgram, func(m *device.Module) error {
		err := device.Bind(m, "insert_stretch_new", &c.stretch.adding)
		if !c.cfg.set() {
			err = errors.Join(err, device.Bind(m, "insert_stretch", &c.stretch.replacing))
		}
		return err
	})
}
