package warpcore

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch_list.cu
var stretchListCU string

// listStretches are the kernels of stretch_list.cu.
type listStretches struct {
	late                    frame.Late
	insert, inEmpty, gather device.Kernel[listStretchParams] // inEmpty: insert, into a table that never had a key
	wanted                  int64                            // a table that would have fewer stretches has smaller ones
}

// stretchRules says when a bucket list uses them. A table has stretches for all multiprocessors, because one may have many rows.
func (l *lists) stretchRules(info device.Info) {
	waves := int64(listWaves * info.Multiprocessors)
	l.keys.stretch = stretches{rule: frame.StretchesFor(info, 8, waves), minMoved: math.MaxInt64, bytes: listStretchBytes}
	l.kernel.stretch.wanted = waves * listResident
}

// insertStretches puts the front of a batch into the table stretch by stretch, and tells how many rows: none where that would be slower, a
// multiple of 32, or all. It waits. guess may be of other rows.
func (l *lists) insertStretches(st *device.Stream, p listInsertParams, b frame.Rows, guess estimate) (taken int64, err error) {
	c := &l.keys
	switch {
	case b.N < c.stretch.rule.MinRows || p.Rows.Attempt != 0 || p.Mode == bucketsFit:
		return 0, nil
	case l.counters.Seen.live()+b.N > listMost: // a list might get more values than can be
		return 0, nil
	case guess.n == b.N && guess.crowd > listCrowd:
		return 0, nil
	}
	grid, windows, ok := l.stretchGrid()
	if !ok {
		return 0, nil
	}
	fine, ok := c.stretch.rule.Fine(c.regions, b.N, c.capacity(), grid.Blocks, math.MaxInt64)
	if !ok {
		return 0, nil
	}
	q := listStretchParams{Windows: uint64(windows), Mode: p.Mode}
	insert := l.kernel.stretch.insert
	if c.filled == 0 {
		insert = l.kernel.stretch.inEmpty
	}
	x := frame.Placement{KeyBytes: c.cfg.keyBytes, ValueBytes: l.cfg.valueBytes, Pairs: true}
	first := uint64(0)
	return c.inStretchOrder(st, b, windows, fine, x, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
		n := uint64(o.Rows.N)
		q.Rows = frame.Partition{Keys: o.Rows.Keys, Values: o.Rows.Values, N: n, Starts: starts.Addr(), Paired: o.Paired}
		q.Lists, q.Where, q.LeftRows = l.table(), spare.Keys, spare.Values
		if err := insert.Launch(st, grid, &q); err != nil {
			return err
		}
		insert = l.kernel.stretch.insert
		rows := p
		rows.Lists = q.Lists
		rows.Rows = p.Rows.Of(frame.Ordered{Rows: b.Part(frame.Part{First: first, N: n}, c.cfg.keyBytes, l.cfg.valueBytes)})
		rows.Rows.Refused += first / 8 // a piece is whole words of it
		err := l.insertLeft(st, q, rows)
		first += n
		return err
	})
}

// insertLeft inserts the rows that insert_stretch_list left over. p has all rows of the piece, in the batch's order. The pool may be another then.
func (l *lists) insertLeft(st *device.Stream, q listStretchParams, p listInsertParams) error {
	if _, err := l.look(st); err != nil {
		return err
	}
	k := &l.counters.Seen
	n, failed := int64(k.Left), k.Failed
	if n == 0 {
		return nil
	}
	wanted, used := int64(k.Used), l.used()
	k.Used, k.Unused, k.Left = uint64(used), 0, 0
	q.Left, q.LeftKeys = uint64(n), q.Where // which is not asked for any more
	if wanted > l.room() && failed == 0 {   // whole blocks found no room; where it is said already what failed, nothing is forgotten
		if _, err := l.growPool(st, wanted-used); err != nil {
			return err
		}
		q.Lists, p.Lists = l.table(), l.table()
	}
	// There is room for all of them, surely, if each finds a slot, and a bucket for itself. A pool that is a little larger costs less than to ask all rows.
	most := l.placesEach(n)
	sure := most > 0 && l.keys.filled+n <= l.keys.fillable()
	if want := l.used() + n*int64(l.cfg.header()+1)/16*17 + leastPool; most <= 0 && l.keys.filled+n <= l.keys.fillable() && failed == 0 && want <= l.bound() {
		err := l.movePool(st, want)
		if err != nil && !device.IsOutOfMemory(err) {
			return err
		}
		q.Lists, p.Lists = l.table(), l.table()
		most = l.placesEach(n)
		sure = most > 0
	}
	rows := n
	if !sure {
		rows = int64(p.Rows.N)
	}
	piece, scratch, lease, err := l.scratchFor(rows)
	if err != nil {
		return err
	}
	defer lease.Done()
	if sure {
		values, err := l.frame().Scratch(n * int64(l.cfg.valueBytes))
		if err == nil {
			defer values.Done()
			q.LeftValues = values.Mem.Addr()
			return l.insertSurely(st, q, p, uint64(most), piece, scratch)
		} else if !device.IsOutOfMemory(err) {
			return err
		}
	}
	// Otherwise all rows are asked whether their keys were left over. Those are as good as refused, and are tried once more by their positions.
	k.Failed = failed + uint64(n)
	if err := l.counters.Set(st); err != nil {
		return err
	}
	err = frame.InTurn(
		func() error { return l.kernel.stretch.gather.Launch(st, l.keys.grid(n), &q) },
		func() error {
			return l.kernel.block.Launch(st, l.keys.grid(n), &listFindParams{Lists: q.Lists, Keys: q.LeftKeys, N: q.Left})
		},
		func() error { return l.kernel.refuse.Launch(st, l.keys.grid(int64(p.Rows.N)), &p) },
		func() error { return l.kernel.release.Launch(st, l.keys.grid(int64(p.Rows.N)), &p) },
	)
	if err != nil {
		return err
	}
	k.Failed = failed
	if err := l.counters.Set(st); err != nil {
		return err
	}
	p.Rows.Attempt = 1
	return l.launchPieces(st, l.kernel.slots, p, p.Rows, piece, scratch)
}

// placesEach is how many places n rows may each take at least, in a bucket of its own.
func (l *lists) placesEach(n int64) int64 {
	free := l.room() - l.used()
	return (free-free>>(listMantissa-2))/n - int64(l.cfg.header()) // sizes are rounded
}

// insertSurely inserts rows that are left over, for all of which there is room, in buckets of so many places a row at most.
func (l *lists) insertSurely(st *device.Stream, q listStretchParams, p listInsertParams, most uint64, piece int64, scratch device.Slice[byte]) error {
	failed := l.counters.Seen.Failed
	rest := listInsertParams{Lists: q.Lists, Limit: math.MaxUint64, Mode: p.Mode, Most: most}
	rest.Rows = frame.Placing{Keys: q.LeftKeys, Values: q.LeftValues, N: q.Left}
	if err := frame.InTurn(
		func() error { return l.counters.Set(st) },
		func() error { return l.kernel.stretch.gather.Launch(st, l.keys.grid(int64(q.Left)), &q) },
		func() error { return l.launchPieces(st, l.kernel.slots, rest, rest.Rows, piece, scratch) },
	); err != nil {
		return err
	}
	if _, err := l.look(st); err != nil {
		return err
	}
	if lost := l.counters.Seen.Failed - failed; lost > 0 {
		return fmt.Errorf("warpcore: %d of %d pairs found no room, though there is some for each: this is a defect of warpmap", lost, q.Left)
	}
	return nil
}

// stretchGrid has a block for each stretch of the keys' table, of so many windows; false where the table is small, or the kernels are not there.
func (l *lists) stretchGrid() (grid device.Grid, windows int64, ok bool) {
	c, info := &l.keys, l.frame().Device.Info()
	windows = c.cfg.listStretchWindows(c.stretch.bytes)
	if windows == 0 || int64(c.mem.Len()+l.pool.Len()) < c.regions.MinBytes {
		return grid, 0, false
	}
	all := int64(c.t.Main.Windows)
	if few := all / l.kernel.stretch.wanted; few < windows {
		windows = max(few&^(neighbourhood-1), neighbourhood)
	}
	grid.Blocks, grid.Threads = (all+windows-1)/windows, stretchThreads
	grid.Shared = int(c.cfg.listStretchShared(windows))
	if !info.CUDA() {
		grid.Threads = frame.Threads
	}
	return grid, windows, grid.Shared+listBeside <= int(info.Shared) && l.loadStretches()
}

func (l *lists) stretchProgram() *device.Program {
	p := l.program("warpcore-stretch-list", stretchListCU)
	p.Threads = stretchThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (l *lists) loadStretches() bool {
	k := &l.kernel.stretch
	return k.late.Load(l.frame().Device, l.stretchProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_stretch_list", &k.insert), device.Bind(m, "insert_stretch_empty_list", &k.inEmpty),
			device.Bind(m, "gather_left", &k.gather))
	})
}
