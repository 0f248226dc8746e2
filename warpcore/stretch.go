package warpcore

import (
	_ "embed"
	"errors"
	"math"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch.cu
var stretchCU string

// stretches are the kernels of stretch.cu, and when they are used.
type stretches struct {
	rule                  frame.Stretches
	minMoved              int64 // pairs of a table that grows
	leastLeft             int64 // rows that a growth may leave over, beside its share
	bytes                 int   // of shared memory, of a stretch
	late                  frame.Late
	replacing, adding     device.Kernel[stretchParams]
	growing               device.Kernel[stretchParams]
	telling, flags        device.Kernel[stretchParams] // adding, with flags; and what writes these in the end
	multi, runs, longRuns device.Kernel[stretchParams] // of a multimap: see stretch_multi.go
}

func stretchesFor(info device.Info, c config) stretches {
	s := stretches{rule: frame.StretchesFor(info, 8, 2), leastLeft: 1 << 12, bytes: stretchBytes}
	s.minMoved = min(1<<22, s.rule.MinRows)
	if c.slotBytes() > 8 {
		s.minMoved = math.MaxInt64 // an H200 moves 100 M pairs of 8+8 at 11.1 G/s by stretches, and in order at 13.5; of 4+4 at 50.8, and at 22.1
	}
	return s
}

// leftShare: on average, one row in so many at most is left over, so the grid for these is as for so many.
const leftShare = 32

// leftRoom: a growth has a list for one pair in so many. Few are left over: up to 1 in 30 of a table that was full, when it is laid anew in its size. With
// a list for all pairs, memory for it took the driver of an H200 1.0 ms for 80 M pairs, which move in 1.5.
const leftRoom = 8

// insertStretches puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that would be slower, a
// multiple of 32, or all. empty tells that no pair ever was in.
func (c *core) insertStretches(st *device.Stream, k inserts, p insertParams, b frame.Rows, empty bool) (taken int64, err error) {
	tells := b.Flags != 0
	if b.N < c.stretch.rule.MinRows {
		return 0, nil
	}
	grid, windows, ok := c.stretchGrid(tells)
	if !ok {
		return 0, nil
	}
	fine, ok := c.stretch.rule.Fine(c.regions, b.N, c.capacity(), grid.Blocks, math.MaxInt64)
	if !ok {
		return 0, nil
	}
	rows := min(b.N, fine.Regions.PieceRows)
	if b.Sorted != nil { // in one piece
		rows = b.N
	}
	kernel, bytes := *k.stretch, int64(4)
	if tells {
		kernel, bytes = c.stretch.telling, bytes+rows/32*4+4
	}
	lease, err := c.frame.Scratch(bytes)
	defer lease.Done()
	switch {
	case device.IsOutOfMemory(err): // the batch goes in as it is
		return 0, nil
	case err != nil:
		return 0, err
	}
	left := lease.Mem.Slice(0, int(bytes))
	q := stretchParams{Table: c.t, Windows: uint64(windows), Left: left.Addr()}
	if tells {
		q.Told = q.Left + 4
	}
	if empty {
		q.Empty = 1
	}
	x := c.placement(tells, nil)
	x.Pairs = true
	taken, err = c.inStretchOrder(st, b, windows, fine, x, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		q.Rows = frame.Partition{Keys: o.Rows.Keys, Values: o.Rows.Values, Positions: o.Positions, N: uint64(o.Rows.N)}
		q.Rows.Starts, q.Rows.Paired = starts.Addr(), o.Paired
		q.LeftKeys, q.LeftValues, q.LeftPositions, q.Flags = spare.Keys, spare.Values, o.Spare, o.Rows.Flags
		rest := insertParams{Table: c.t, Limit: p.Limit, Left: q.Left, Told: q.Told}
		rest.Rows = frame.Placing{Keys: spare.Keys, Values: spare.Values, Positions: o.Spare, N: uint64(o.Rows.N)}
		err := frame.InTurn(
			func() error { return left.Fill(st, 0) },
			func() error { return kernel.Launch(st, grid, &q) },
			func() error { return k.left.Launch(st, c.grid(max(1, o.Rows.N/leftShare)), &rest) },
		)
		if tells && err == nil {
			err = c.stretch.flags.Launch(st, c.grid(o.Rows.N), &q)
		}
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

// inStretchOrder brings the front of a batch in the order of stretches of so many windows: see frame.Partitioner.InFineOrder.
func (c *core) inStretchOrder(st *device.Stream, b frame.Rows, windows int64, fine frame.Fine, x frame.Placement,
	insert func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error) (taken int64, err error) {
	x.Regions = &fine.Regions
	x.Params = func(rows frame.Partition) any {
		n := uint64(windows / neighbourhood)
		if rows.Within == 0 && rows.Regions == 0 {
			n *= uint64(fine.Within)
		}
		return &partitionParams{Table: c.t, Rows: rows, Inverse: (1<<inverseBits-1)/n + 1}
	}
	if b.Sorted != nil {
		done, err := c.kernel.partition.ByChunks(&c.frame, st, c.kernel.chunks, x, b, fine.Large*fine.Within, insert)
		if done {
			taken = b.N
		}
		return taken, err
	}
	return c.kernel.partition.InFineOrder(&c.frame, st, c.kernel.within, x, b, fine.Large, fine.Within, insert)
}

// stretchGrid has a block for each stretch of the table, of so many windows; false where the table is small, or the
// kernels are not for it, or not there.
func (c *core) stretchGrid(tells bool) (grid device.Grid, windows int64, ok bool) {
	bytes := c.stretch.bytes
	if tells && bytes == stretchBytes {
		bytes = stretchTold
	}
	windows = c.cfg.stretchWindows(int64(c.t.Main.Windows), bytes, tells)
	if windows == 0 || int64(c.mem.Len()) < c.regions.MinBytes {
		return grid, 0, false
	}
	info := c.frame.Device.Info()
	grid.Blocks, grid.Threads = (int64(c.t.Main.Windows)+windows-1)/windows, stretchThreads
	grid.Shared = int(windows) * (c.cfg.window*c.cfg.slotBytes() + c.cfg.stretchMarks(tells))
	if !info.CUDA() {
		grid.Threads = frame.Threads
	}
	return grid, windows, grid.Shared+c.cfg.stretchFixed() <= int(info.Shared) && c.loadStretches()
}

// moveStretches moves the pairs of an old table into the table, which is reserved and not yet filled, stretch by
// stretch, and looks at the counters. done is false where that would be slower, or there is no memory for the list of pairs that are left over, or
// too little: then the table is as if nothing had been moved, but not filled.
func (c *core) moveStretches(st *device.Stream, old *memory) (done bool, err error) {
	live := old.live()
	over, product := bits.Mul64(old.t.Main.Windows, c.t.Main.Windows)
	if c.multi() || live < c.stretch.minMoved || live > math.MaxUint32 || over > 0 || product > math.MaxInt64 {
		return false, nil
	}
	grid, windows, ok := c.stretchGrid(false)
	if !ok {
		return false, nil
	}
	room := min(live, live/leftRoom+c.stretch.leastLeft)
	values := frame.Align(room * int64(c.cfg.keyBytes))
	counts := values + frame.Align(room*int64(c.cfg.valueBytes))
	lease, err := c.frame.LargeScratch(counts + 4)
	if err != nil {
		return false, nil
	}
	defer lease.Done()
	mem := lease.Mem
	left := mem.Slice(int(counts), int(counts)+4)
	q := stretchParams{Table: c.t, Old: old.t.Main, Windows: uint64(windows), Empty: 1, Left: left.Addr()}
	q.Rows.N, q.LeftKeys, q.LeftValues = uint64(room), mem.Addr(), mem.Addr()+uint64(values)
	rest := insertParams{Table: c.t, Limit: math.MaxUint64, Left: q.Left}
	rest.Rows = frame.Placing{Keys: q.LeftKeys, Values: q.LeftValues, N: q.Rows.N}
	main := int64(old.t.Main.Windows) * int64(c.cfg.window)
	side := int64(old.t.Side.Windows) * int64(c.cfg.window)
	reserved := slotsParams{Table: old.t, Target: c.t, First: uint64(main), Span: frame.Threads}
	behind := c.mem.Slice(int(c.capacity())*c.cfg.slotBytes(), c.mem.Len()) // the kernel writes all slots before
	if err := frame.InTurn(
		func() error { return left.Fill(st, 0) },
		func() error { return behind.Fill(st, 0xff) },
		func() error { return c.stretch.growing.Launch(st, grid, &q) },
		func() error { return c.kernel.insertNew.left.Launch(st, c.grid(max(1, live/leftShare)), &rest) },
		func() error { return c.kernel.rehash.Launch(st, frame.Spanned(side, frame.Threads), &reserved) },
	); err != nil {
		return true, err
	}
	if _, err := c.look(st); err != nil || c.live() >= live {
		return true, err
	}
	var number [1]uint32
	if err := device.View[uint32](left, 0, 1).Read(st, number[:]); err != nil || int64(number[0]) <= room {
		return true, err // whatever is missing, it was not for want of room
	}
	return false, c.counters.Clear(st)
}

func (c *core) stretchProgram() *device.Program {
	return c.sharedProgram("warpcore-stretch", stretchCU)
}

// sharedProgram is a program for stretches in shared memory.
func (c *core) sharedProgram(name, main string) *device.Program {
	p := c.program(name, main)
	p.Threads = stretchThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (c *core) loadStretches() bool {
	if c.multi() {
		return c.stretch.late.Load(c.frame.Device, c.stretchMultiProgram, func(m *device.Module) error {
			return errors.Join(device.Bind(m, "insert_stretch_multi", &c.stretch.multi), device.Bind(m, "insert_stretch_runs", &c.stretch.runs),
				device.Bind(m, "insert_stretch_long_runs", &c.stretch.longRuns))
		})
	}
	return c.stretch.late.Load(c.frame.Device, c.stretchProgram, func(m *device.Module) error {
		err := errors.Join(device.Bind(m, "insert_stretch_new", &c.stretch.adding),
			device.Bind(m, "grow_stretch", &c.stretch.growing), device.Bind(m, "tell_rows", &c.stretch.flags),
			device.Bind(m, "insert_stretch_told", &c.stretch.telling))
		if !c.cfg.set() {
			err = errors.Join(err, device.Bind(m, "insert_stretch", &c.stretch.replacing))
		}
		return err
	})
}
