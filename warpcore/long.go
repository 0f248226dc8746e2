package warpcore

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A look-up that wants all values of a key goes through its whole chain, which for a key with millions of them is millions of windows, one after the
// other. But where each of them is can be computed, and the key's hint tells how many there are for sure. So a look-up that has gone far asks for the
// hint; if that tells of a long chain, the row is left to kernels behind, in which all warps deal the chains out among them. What a key has is
// counted once, however many rows ask for it. See long.cuh.

var (
	//go:embed long.cuh
	longCUH string
	//go:embed long_kernels.cuh
	longKernelsCUH string
)

// longKernels are those behind look-ups.
type longKernels struct {
	count, settle, fill device.Kernel[findAllParams]
	erase, forget       device.Kernel[findParams]
}

func (k *longKernels) bind(m *device.Module) error {
	return errors.Join(device.Bind(m, "count_long", &k.count), device.Bind(m, "settle_long", &k.settle), device.Bind(m, "fill_long", &k.fill),
		device.Bind(m, "erase_long", &k.erase), device.Bind(m, "forget_long", &k.forget))
}

// longs are what look-ups through long chains need, if there are any: else, or where there is no memory for it, all 0. It may wait for the stream. The
// caller is in Writing, or ReadingAlone.
func (c *core) longs(st *device.Stream) (p longParams, err error) {
	if c.t.Hints == 0 {
		return p, nil
	}
	if c.unseen || c.foreign {
		if _, err := c.look(st); err != nil {
			return p, err
		}
	}
	if c.counters.Seen.MaxProbes < longChain {
		return p, nil
	}
	place := func(base int64) (p longParams, end int64) {
		hints := int64(c.t.HintMask + 1 + sideHints)
		p.Keys, p.Lengths = uint64(base), uint64(base+24*hints) // both are cleared at once
		p.Rows = p.Lengths + 24
		p.Parts = p.Rows + 16*longRows
		p.Room = c.t.Main.Windows/longParts + uint64(hints)
		p.List = p.Parts + 8*p.Room
		return p, int64(p.List) + 4*hints
	}
	if c.long.Len() == 0 {
		_, bytes := place(0)
		if c.long, err = frame.Make[byte](&c.frame, bytes); device.IsOutOfMemory(err) {
			return longParams{}, nil
		} else if err != nil {
			return p, err
		}
	}
	p, _ = place(int64(c.long.Addr()))
	return p, nil
}

// ask is before the look-ups that may leave rows.
func (c *core) ask(st *device.Stream, p *longParams) error {
	return c.long.Slice(0, int(p.Rows-p.Keys)).Fill(st, 0)
}

// longGrid is for the kernels that deal chains out.
func (c *core) longGrid() device.Grid {
	return c.frame.Grid(int64(c.t.Main.Windows)*int64(c.opts.FindGroup), 8)
}

// count is Count of a multimap. The caller is in Reading.
func (c *core) count(st *device.Stream, b frame.Rows) error {
	p := findAllParams{Table: c.t, Rows: frame.FindAll{Keys: b.Keys, Counts: b.Flags, N: uint64(b.N)}}
	if captured, err := st.Capturing(); err != nil {
		return err
	} else if captured { // a graph has no memory of its own for what long chains leave
		return c.kernel.all.Count(st, c.grid, &p.Rows, &p)
	}
	c.frame.ReadingAlone(st)
	all, err := c.finder(st, &p)
	if err != nil {
		return err
	}
	if err := all.Count(st, c.grid, &p.Rows, &p); err != nil || p.Longs.Keys == 0 {
		return err
	}
	return st.SyncOf(c.frame.Device)
}

// findAll is what frame.FindValues and the like run.
func (c *core) findAll(st *device.Stream, rows frame.FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
	p := findAllParams{Table: c.t, Rows: rows}
	all, err := c.finder(st, &p)
	if err != nil {
		return 0, err
	}
	return all.Run(&c.frame, st, c.grid, &p.Rows, &p, c.cfg.stashBytes(), offsets, values)
}

// finder is the kernels of a FindAll with p, and those behind.
func (c *core) finder(st *device.Stream, p *findAllParams) (all frame.Finder, err error) {
	all = c.kernel.all
	if p.Longs, err = c.longs(st); err != nil || p.Longs.Keys == 0 {
		return all, err
	}
	k := &c.kernel.long
	all.Counting = func() error { return c.ask(st, &p.Longs) }
	all.Counted = func() error {
		return frame.InTurn(
			func() error { return k.count.Launch(st, c.longGrid(), p) },
			func() error { return k.settle.Launch(st, c.grid(int64(p.Rows.N)), p) },
		)
	}
	all.Filled = func() error { return k.fill.Launch(st, c.longGrid(), p) }
	return all, nil
}

// eraseMulti queues a deletion of all values of keys.
func (c *core) eraseMulti(st *device.Stream, b frame.Rows) error {
	p := findParams{Table: c.t, Keys: b.Keys, Found: b.Flags, N: uint64(b.N)}
	var err error
	if p.Longs, err = c.longs(st); err != nil {
		return err
	}
	if p.Longs.Keys == 0 {
		return c.kernel.eraseMulti.Launch(st, c.grid(b.N), &p)
	}
	k := &c.kernel.long
	return frame.InTurn(
		func() error { return c.ask(st, &p.Longs) },
		func() error { return c.kernel.eraseMulti.Launch(st, c.grid(b.N), &p) },
		func() error { return k.erase.Launch(st, c.longGrid(), &p) },
		func() error { return k.forget.Launch(st, c.frame.Grid(int64(c.t.HintMask), 1), &p) },
	)
}
