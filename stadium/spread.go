package stadium

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A table in panes grows pane by pane. Buckets lie by the highest bits of hashes, in the larger table as in the smaller: so the last panes of the
// new table take their pairs from the last of the old one, which then are free, and become panes further down. There never is more than a
// pane or two beside the new table.

// stretch is a pane of the old table, or as much of one that lies in one piece.
type stretch struct{ first, last int64 } // regions

func units(s shape, shift int) (out []stretch) {
	each := int64(1) << (shift - s.shift)
	for first := int64(0); first < s.regions; first += each {
		out = append(out, stretch{first, min(first+each, s.regions)})
	}
	return out
}

// sources gives the units of the old table, first to last, that have the pairs of a new one's, if these stand in their keys' regions.
func sources(old, now shape, from []stretch, to stretch) (first, last int) {
	low, high := to.first*old.regions/now.regions, (to.last*old.regions-1)/now.regions
	each := from[0].last - from[0].first
	return int(low / each), int(high / each)
}

// plan takes panes for the new table from the last to the first, each when those of the old one that nobody needs any more are free. visit gets
// a pane of the new table and the one of the old that it may have; -1: none.
func plan(old, now shape, from, to []stretch, fungible func(old, now int) bool, visit func(now, reused int)) {
	var free []int
	freed := len(from)
	for q := len(to) - 1; q >= 0; q-- {
		_, last := sources(old, now, from, to[q])
		for freed > last+1 {
			freed--
			free = append(free, freed)
		}
		reused := -1
		if n := len(free); n > 0 && fungible(free[n-1], q) {
			reused, free = free[n-1], free[:n-1]
		}
		visit(q, reused)
	}
}

// spread moves all pairs to the table that m begins, which has a board, and gets panes here. The counters are as last seen. On an error before
// the first pair moves, all is as it was. It waits for the stream.
func (c *core) spread(st *device.Stream, m memory) (err error) {
	old, from := c.memory, c.table()
	moving := false
	var spare []pane
	var spill [2]device.Slice[byte]
	defer func() {
		err = errors.Join(err, c.frame.Free(spill[0], spill[1]))
		if err != nil && !moving {
			st.SyncOf(c.frame.Device)
			err = errors.Join(err, c.freePanes(spare...), c.freeMemory(&m))
		}
	}()
	if err = c.far.load(c); err != nil {
		return err
	}
	m.paneShift = c.paneShiftFor(m.shape)
	oldShift := old.paneShift
	if len(old.panes) == 0 {
		oldShift = m.paneShift
		for oldShift < old.shape.shift {
			oldShift++
		}
	}
	src, dst := units(old.shape, oldShift), units(m.shape, m.paneShift)
	// All memory is there before the first pair moves.
	fungible := func(o, q int) bool {
		return len(old.panes) > 0 && old.panes[o].len() == c.paneBytes(m.shape, m.paneShift, int64(q))
	}
	wanted := int64(0)
	plan(old.shape, m.shape, src, dst, fungible, func(q, reused int) {
		if reused < 0 {
			wanted += c.paneBytes(m.shape, m.paneShift, int64(q))
		}
	})
	if err = c.hasRoom(wanted); err != nil {
		return err
	}
	plan(old.shape, m.shape, src, dst, fungible, func(q, reused int) {
		if reused < 0 && err == nil {
			var p pane
			if p, err = c.newPane(c.paneBytes(m.shape, m.paneShift, int64(q))); err == nil {
				spare = append(spare, p)
			}
		}
	})
	if err != nil {
		return err
	}
	limit := min(int64(old.counters.Seen.Strays), old.live()) + int64(c.cfg.slots())<<max(old.shape.shift, m.shape.shift)
	for i, bytes := range []int{c.cfg.keyBytes, c.cfg.valueBytes} {
		if spill[i], err = frame.Make[byte](&c.frame, max(1, limit*int64(bytes))); err != nil {
			return err
		}
	}
	if m.addresses, err = frame.Make[uint64](&c.frame, int64(len(dst))); err != nil {
		return err
	}
	windowed, err := c.far.makeWindows(c, 2, max(c.paneBytes(m.shape, m.paneShift, 0), c.paneBytes(old.shape, oldShift, 0)))
	if err != nil {
		return err
	}
	if err = errors.Join(c.wipe(st, &m), st.SyncOf(c.frame.Device)); err != nil {
		return err
	}

	moving = true
	x := &c.far
	m.panes = make([]pane, len(dst))
	given := make([]bool, len(src)) // to the new table
	seen, at := len(src), -1        // units that were worked on; the one in the window
	plan(old.shape, m.shape, src, dst, fungible, func(q, reused int) {
		if err != nil {
			return
		}
		if reused >= 0 {
			m.panes[q], given[reused] = old.panes[reused], true
		} else {
			m.panes[q], spare = spare[0], spare[1:]
		}
		p := &m.panes[q]
		p.fresh = false
		view := make([]uint64, len(dst))
		for i := q; i < len(dst); i++ {
			view[i] = m.panes[i].address()
		}
		into := windowed && p.inHost()
		if into {
			view[q] = x.windows[1].mem.Addr()
		}
		err = m.addresses.Write(st, view)
		first, last := sources(old.shape, m.shape, src, dst[q])
		for u := last; u >= first && err == nil; u-- {
			t := from
			if windowed && len(old.panes) > 0 && old.panes[u].inHost() {
				if at != u {
					err, at = x.windows[0].mem.WriteAsync(st, old.panes[u].host, old.panes[u].host.Len()), u
				}
				view := addressesOf(old.panes)
				view[u] = x.windows[0].mem.Addr()
				if err == nil {
					err = old.addresses.Write(st, view)
				}
			}
			slots := int64(c.cfg.slots()) << old.shape.shift
			s := spreadParams{Table: t, Target: c.tableOf(&m), First: uint64(src[u].first * slots), Last: uint64(src[u].last * slots), Pane: uint64(q),
				Keys: spill[0].Addr(), Values: spill[1].Addr(), Limit: uint64(limit)}
			if u < seen {
				s.Strays, seen = 1, u
			}
			err = frame.InTurn(
				func() error { return err },
				func() error { return x.spread.Launch(st, c.grid(int64(s.Last-s.First)), &s) },
			)
		}
		if into && err == nil {
			err = x.windows[1].mem.ReadAsync(st, p.host, p.host.Len())
		}
	})
	err = errors.Join(err, m.addresses.Write(st, addressesOf(m.panes)), st.SyncOf(c.frame.Device))
	c.memory = m
	rest := old
	rest.panes = spare
	for i := range old.panes {
		if !given[i] {
			rest.panes = append(rest.panes, old.panes[i])
		}
	}
	if err == nil {
		_, err = c.look(st)
	}
	if spilled := c.counters.Seen.Exported; err == nil && spilled > 0 {
		q := insertParams{Table: c.table(), Limit: 1 << 62, Rows: frame.Placing{Keys: spill[0].Addr(), Values: spill[1].Addr(), N: min(spilled, uint64(limit))}}
		if err = frame.InTurn(
			func() error { return c.reset(st) },
			func() error { return c.kernel.replacing.insert.Launch(st, c.grid(int64(q.Rows.N)), &q) },
		); err == nil {
			_, err = c.look(st)
		}
	}
	if live := old.live(); err == nil && c.live() != live {
		err = fmt.Errorf("stadium: %d pairs of %d are in the larger table: this is a defect of warpmap", c.live(), live)
	}
	if err = errors.Join(err, c.freeMemory(&rest)); err != nil {
		return err
	}
	return c.promote(st)
}

// promote moves panes from host memory to the device's, while there may be more.
func (c *core) promote(st *device.Stream) (err error) {
	moved := false
	for i := range c.panes {
		p := &c.panes[i]
		if !p.inHost() {
			continue
		}
		if !c.deviceHas(p.len()) {
			break
		}
		near, wrong := device.MakePooled[byte](c.frame.Device, int(p.len()))
		if device.IsOutOfMemory(wrong) {
			break
		} else if err = wrong; err != nil {
			break
		}
		if err = errors.Join(near.WriteAsync(st, p.host, p.host.Len()), st.SyncOf(c.frame.Device)); err != nil {
			err = errors.Join(err, c.frame.Free(near))
			break
		}
		was := *p
		*p, moved = pane{near: near, fresh: was.fresh}, true
		c.room.inDevice += p.len()
		if err = c.freePanes(was); err != nil {
			break
		}
	}
	if moved {
		err = errors.Join(err, c.tellPanes(st, &c.memory))
	}
	return err
}
