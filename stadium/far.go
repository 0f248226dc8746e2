package stadium

import (
	_ "embed"
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed panes.cu
var panesCU string

// far serves the panes that are in host memory. A batch's rows are listed by panes; then pane after pane is served where it lies, or in a window:
// in a copy in device memory, beside which the next pane's is made.
type far struct {
	loaded bool
	find   farSearch
	erase  farSearch
	home   device.Kernel[listParams]
	count  device.Kernel[listParams]
	order  device.Kernel[listParams]
	insert struct{ replacing, adding device.Kernel[rowsParams] }
	spread device.Kernel[spreadParams]

	views   device.Slice[uint64] // addresses of panes, with one in a window: a table of them for each pane that is served so
	in, out *device.Stream
	windows [3]window
	// reused is asked before a window is written to again: whoever has read it has passed the event. A test leaves it out.
	reused func(in *device.Stream, free *device.Event) error

	served     int     // panes, in windows
	listedFrom int64   // rows of a batch
	rowBytes   float64 // that cross the bus in the time of a row that is served in place
}

// farSearch is a look-up: of what the board and device memory can answer, with a list of the other rows; and of those.
type farSearch struct {
	list device.Kernel[listParams]
	rows device.Kernel[rowsParams]
}

type window struct {
	mem               device.Slice[byte]
	here, done, again *device.Event // the copy is there; it was worked on; the window may be used again
	used              bool
}

const (
	// From so many rows on they are listed: fewer are served as they come. Not measured.
	listedFrom = 1 << 14
	// How many rows a second are served in a pane that lies in host memory, with no more than so many bytes, and how many bytes come across the bus in
	// a copy, on an H200: a pane that more rows want than it could be copied for is copied.
	rowsInPlace  = 700e6
	bytesInPlace = 45e9
	busRate      = 55e9
	// Panes are taken together up to so many rows: 11,000 in six launches took 0.58 ms on an H200. More were not tried.
	rowsTogether = 1 << 14
	// listBlocks of a multiprocessor count the rows of a list, and bring them in order.
	listBlocks = 8
)

// compile compiles the kernels.
func (x *far) compile(c *core) error {
	m, err := c.frame.Device.CompileApart(c.program("stadium-panes", panesCU))
	if err != nil {
		return err
	}
	return errors.Join(device.Bind(m, "list_find", &x.find.list), device.Bind(m, "find_rows", &x.find.rows), device.Bind(m, "list_erase", &x.erase.list),
		device.Bind(m, "erase_rows", &x.erase.rows), device.Bind(m, "list_home", &x.home), device.Bind(m, "count_rows", &x.count), device.Bind(m, "order_rows", &x.order),
		device.Bind(m, "insert_rows", &x.insert.replacing), device.Bind(m, "insert_rows_new", &x.insert.adding), device.Bind(m, "spread", &x.spread))
}

// load compiles the kernels, and makes streams and events.
func (x *far) load(c *core) error {
	if x.loaded {
		return nil
	}
	err := x.compile(c)
	if err != nil {
		return err
	}
	for _, st := range []**device.Stream{&x.in, &x.out} {
		if *st == nil {
			if *st, err = c.frame.Device.NewStream(); err != nil {
				return err
			}
		}
	}
	for i := range x.windows {
		for _, e := range x.windows[i].events() {
			if *e == nil {
				if *e, err = c.frame.Device.NewEvent(); err != nil {
					return err
				}
			}
		}
	}
	if x.listedFrom == 0 {
		x.listedFrom, x.rowBytes = listedFrom, busRate*max(1/rowsInPlace, float64(c.cfg.slotBytes())/bytesInPlace)
	}
	if x.reused == nil {
		x.reused = func(in *device.Stream, free *device.Event) error { return in.Wait(free) }
	}
	x.loaded = true
	return nil
}

func (w *window) events() []**device.Event { return []**device.Event{&w.here, &w.done, &w.again} }

// close frees all; nothing is at work.
func (x *far) close(c *core) (err error) {
	for i := range x.windows {
		w := &x.windows[i]
		err = errors.Join(err, c.frame.Free(w.mem))
		w.mem = device.Slice[byte]{}
		for _, e := range w.events() {
			if *e != nil {
				err = errors.Join(err, (*e).Close())
			}
		}
	}
	err = errors.Join(err, c.frame.Free(x.views))
	for _, st := range []*device.Stream{x.in, x.out} {
		if st != nil {
			err = errors.Join(err, st.Close())
		}
	}
	*x = far{served: x.served}
	return err
}

// bytes is the device memory of windows and views.
func (x *far) bytes() (n int64) {
	for i := range x.windows {
		n += int64(x.windows[i].mem.Len())
	}
	return n + x.views.Bytes()
}

// orders tells whether a batch of n rows is served pane by pane.
func (x *far) orders(c *core, n int64) bool {
	return n >= x.listedFrom && len(c.panes) > 0 && c.hosts() > 0
}

// makeWindows sees to n windows of so many bytes, and tells whether they are there.
func (x *far) makeWindows(c *core, n int, bytes int64) (ok bool, err error) {
	for i := range n {
		w := &x.windows[i]
		if int64(w.mem.Len()) >= bytes {
			continue
		}
		if err = c.frame.Free(w.mem); err != nil {
			return false, err
		}
		w.mem = device.Slice[byte]{}
		// Not by frame.Make: without windows panes are served where they lie, for which nobody need give memory back.
		w.mem, err = device.MakePooled[byte](c.frame.Device, int(bytes))
		if device.IsOutOfMemory(err) {
			w.mem = device.Slice[byte]{}
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// visits serves panes in windows, one after the other: work is called with a table in which that pane is at hand, and queues kernels on st. With
// back, the kernels change the pane, and it is copied back. Where there is no memory for windows, panes are served where they lie. between queues
// what is to be done for a stretch of the other panes, beside copies.
func (c *core) visits(st *device.Stream, panes []int, back bool, between func(first, last int) error, work func(t Table, pane int) error) (err error) {
	x, n := &c.far, len(c.panes)
	ok, turn := len(panes) > 0, min(len(panes), len(x.windows)) // so many windows in turn
	if ok {
		ok, err = x.makeWindows(c, turn, c.paneBytes(c.shape, c.paneShift, 0))
	}
	if err == nil && ok && x.views.Len() < n*len(panes) {
		if err = c.frame.Free(x.views); err == nil {
			x.views, err = device.MakePooled[uint64](c.frame.Device, n*len(panes))
		}
		if ok = !device.IsOutOfMemory(err); !ok {
			x.views, err = device.Slice[uint64]{}, nil
		}
	}
	if err != nil {
		return err
	}
	if !ok {
		for k, i := range panes {
			if err = frame.InTurn(
				func() error { return between(behind(panes, k), i) },
				func() error { return work(c.table(), i) },
			); err != nil {
				return err
			}
			c.panes[i].fresh = c.panes[i].fresh && !back
		}
		return between(behind(panes, len(panes)), n)
	}
	defer func() {
		if err != nil { // nobody knows what is queued
			x.in.Sync()
			x.out.Sync()
		}
	}()
	var views []uint64
	for k, i := range panes {
		view := addressesOf(c.panes)
		view[i] = x.windows[k%turn].mem.Addr()
		views = append(views, view...)
	}
	if err = x.views.Write(st, views); err != nil {
		return err
	}
	// The copies come behind all that is queued.
	begin := x.windows[0].again
	if err = frame.InTurn(
		func() error { return begin.Record(st) },
		func() error { return x.in.Wait(begin) },
		func() error { return x.out.Wait(begin) },
	); err != nil {
		return err
	}
	for i := range x.windows {
		x.windows[i].used = false
	}
	for k, i := range panes {
		w, p := &x.windows[k%turn], &c.panes[i]
		bytes := p.host.Len()
		if w.used {
			if err = x.reused(x.in, w.again); err != nil {
				return err
			}
		}
		w.used = true
		x.served++
		t := c.table()
		t.Panes = x.views.Addr() + uint64(8*n*k)
		if err = frame.InTurn(
			func() error {
				if p.fresh {
					return nil
				}
				return w.mem.WriteAsync(x.in, p.host, bytes)
			},
			func() error { return w.here.Record(x.in) },
			func() error { return between(behind(panes, k), i) },
			func() error { return st.Wait(w.here) },
			func() error { return work(t, i) },
		); err != nil {
			return err
		}
		if !back {
			if err = w.again.Record(st); err != nil {
				return err
			}
			continue
		}
		p.fresh = false
		if err = frame.InTurn(
			func() error { return w.done.Record(st) },
			func() error { return x.out.Wait(w.done) },
			func() error { return w.mem.ReadAsync(x.out, p.host, bytes) },
			func() error { return w.again.Record(x.out) },
		); err != nil {
			return err
		}
	}
	if err = between(behind(panes, len(panes)), n); err != nil {
		return err
	}
	if back {
		last := x.windows[(len(panes)-1)%turn].again
		err = st.Wait(last)
	}
	return err
}

// behind is the pane behind the k-1st of a list.
func behind(panes []int, k int) int {
	if k == 0 {
		return 0
	}
	return panes[k-1] + 1
}

// listing are the rows of a batch in the order of their panes.
type listing struct {
	rows   uint64  // address of u32
	starts []int64 // where each pane's begin, and their number
}

func (l *listing) of(pane int) (rows uint64, n int64) {
	return l.rows + 4*uint64(l.starts[pane]), l.starts[pane+1] - l.starts[pane]
}

// listBytes is the scratch memory of a listing of n rows.
func (c *core) listBytes(n int64) int64 {
	return frame.Align(8+8*int64(len(c.panes))) + frame.Align(8*n) + frame.Align(4*n)
}

// list makes a listing in scratch memory. It waits for the stream.
func (c *core) list(st *device.Stream, mem device.Slice[byte], k device.Kernel[listParams], p listParams) (l listing, err error) {
	if err := device.Ahead(k, c.far.count, c.far.order); err != nil {
		return l, err
	}
	n, panes := int64(p.Find.N), len(c.panes)
	counts := device.View[uint64](mem, 0, 1+panes)
	p.Listed, p.Counts, p.Panes = counts.Addr(), counts.Addr()+8, uint64(panes)
	p.List = mem.Addr() + uint64(frame.Align(counts.Bytes()))
	p.Rows = p.List + uint64(frame.Align(8*n))
	some := c.frame.Grid(n, listBlocks)
	err = frame.InTurn(
		func() error { return counts.Fill(st, 0) },
		func() error { return k.Launch(st, device.GridFor(n, frame.Threads), &p) },
		func() error { return c.far.count.Launch(st, some, &p) },
	)
	if err != nil {
		return l, err
	}
	had, err := counts.Host(st)
	if err != nil {
		return l, err
	}
	l = listing{rows: p.Rows, starts: make([]int64, panes+1)}
	begin := make([]uint64, panes)
	for i := range panes {
		begin[i] = uint64(l.starts[i])
		l.starts[i+1] = l.starts[i] + int64(had[1+i])
	}
	if had[0] == 0 {
		return l, nil
	}
	return l, frame.InTurn(
		func() error { return counts.Slice(1, 1+panes).Write(st, begin) },
		func() error { return c.far.order.Launch(st, c.frame.Grid(int64(had[0]), listBlocks), &p) },
	)
}

// split tells which panes that so many rows want are served in windows; the others are served where they lie.
func (c *core) split(rows func(pane int) int64) (windows []int) {
	for i := range c.panes {
		p := &c.panes[i]
		if !p.inHost() || rows(i) == 0 {
			continue
		}
		if float64(rows(i))*c.far.rowBytes > float64(p.len()) {
			windows = append(windows, i)
		}
	}
	return windows
}

// inPlace calls do for the rows of each pane of a stretch: more at once would be at random over more memory than the bus is fast in. Panes that few
// rows want are taken together, where another launch would cost more.
func (l *listing) inPlace(first, last int, do func(rows uint64, n int64) error) error {
	for first < last {
		next := first + 1
		for next < last && l.starts[next+1]-l.starts[first] <= rowsTogether {
			next++
		}
		if n := l.starts[next] - l.starts[first]; n > 0 {
			if err := do(l.rows+4*uint64(l.starts[first]), n); err != nil {
				return err
			}
		}
		first = next
	}
	return nil
}

// listed calls do for pieces of a batch that there is scratch memory to list, with so many bytes more for each 8 rows; taken is how many rows.
func (c *core) listed(n, more int64, do func(mem device.Slice[byte], first, n int64) error) (taken int64, err error) {
	var mem frame.Lease
	piece := min(n, mostRows)
	for {
		mem, err = c.frame.Scratch(c.listBytes(piece) + frame.Align((piece+31)/32*4*more))
		if !device.IsOutOfMemory(err) {
			break
		}
		if piece = piece / 2 &^ 31; piece < c.far.listedFrom {
			return 0, nil
		}
	}
	defer mem.Done()
	for ; err == nil && taken < n; taken += min(piece, n-taken) {
		err = do(mem.Mem, taken, min(piece, n-taken))
	}
	return min(taken, n), err
}

// searchFar looks a large batch up, and waits for it: other readers must not use the same windows. Where there is no memory for a list, k does.
func (c *core) searchFar(st *device.Stream, k device.Kernel[findParams], x *farSearch, p findParams) error {
	c.frame.ReadingAlone(st)
	part := func(first, n int64) findParams {
		b := frame.Rows{Keys: p.Keys, Values: p.Values, Flags: p.Found}.Part(frame.Part{First: uint64(first), N: uint64(n)}, c.cfg.keyBytes, c.cfg.valueBytes)
		return findParams{Table: p.Table, Keys: b.Keys, Values: b.Values, Found: b.Flags, N: uint64(n)}
	}
	taken, err := c.listed(int64(p.N), 0, func(mem device.Slice[byte], first, n int64) error {
		q := part(first, n)
		l, err := c.list(st, mem, x.list, listParams{Find: q})
		if err != nil || l.starts[len(c.panes)] == 0 {
			return err
		}
		serve := func(t Table, rows uint64, n int64) error {
			r := rowsParams{Find: q, Rows: rows, N: uint64(n)}
			r.Find.Table = t
			return x.rows.Launch(st, device.GridFor(n, frame.Threads), &r)
		}
		windows := c.split(func(i int) int64 { _, n := l.of(i); return n })
		return c.visits(st, windows, false, func(first, last int) error {
			return l.inPlace(first, last, func(rows uint64, n int64) error { return serve(c.table(), rows, n) })
		}, func(t Table, i int) error {
			rows, n := l.of(i)
			return serve(t, rows, n)
		})
	})
	if err == nil && taken < int64(p.N) {
		q := part(taken, int64(p.N)-taken)
		err = k.Launch(st, device.GridFor(int64(q.N), frame.Threads), &q)
	}
	return errors.Join(err, st.SyncOf(c.frame.Device))
}

// insertFar puts the rows of a large batch in, from `first` on, pane by pane; taken is as many as are in then, or refused. What finds no room in its
// key's region goes in behind all others.
func (c *core) insertFar(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows, first int64) (taken int64, err error) {
	if !c.far.orders(c, b.N-first) || p.Rows.Attempt != 0 {
		return first, nil
	}
	rowsOf := c.far.insert.replacing
	if k == &c.kernel.adding {
		rowsOf = c.far.insert.adding
	}
	taken, err = c.listed(b.N-first, 1, func(mem device.Slice[byte], begin, n int64) error {
		x := b.Part(frame.Part{First: uint64(first + begin), N: uint64(n)}, c.cfg.keyBytes, c.cfg.valueBytes)
		l, err := c.list(st, mem, c.far.home, listParams{Find: findParams{Table: c.table(), Keys: x.Keys, N: uint64(n)}})
		if err != nil {
			return err
		}
		q := p
		q.Rows = p.Rows.Of(frame.Ordered{Rows: x})
		if p.Rows.Refused != 0 {
			q.Rows.Refused += uint64((first + begin) / 8)
		} else {
			left := mem.Slice(int(c.listBytes(n)), int(c.listBytes(n)+(n+31)/32*4))
			if err = left.Fill(st, 0); err != nil {
				return err
			}
			q.Rows.Refused = left.Addr()
		}
		serve := func(t Table, rows uint64, n int64) error {
			r := rowsParams{Insert: q, Rows: rows, N: uint64(n)}
			t.Within = 1
			r.Insert.Table = t
			return rowsOf.Launch(st, device.GridFor(n, frame.Threads), &r)
		}
		windows := c.split(func(i int) int64 { _, n := l.of(i); return n })
		for i := range c.panes {
			if _, n := l.of(i); n > 0 && !slices.Contains(windows, i) {
				c.panes[i].fresh = false
			}
		}
		err = c.visits(st, windows, true, func(first, last int) error {
			return l.inPlace(first, last, func(rows uint64, n int64) error { return serve(c.table(), rows, n) })
		}, func(t Table, i int) error {
			rows, n := l.of(i)
			return serve(t, rows, n)
		})
		if err != nil {
			return err
		}
		q.Table, q.Rows.Attempt, q.Rows.N = c.table(), 1, uint64(n)
		c.stale() // what is left may go anywhere
		return k.left.Launch(st, c.grid(n), &q)
	})
	return first + taken, err
}

// stageFar puts rows that are in the order of regions in, pane by pane.
func (c *core) stageFar(st *device.Stream, insert device.Kernel[stagedParams], grid device.Grid, q stagedParams, starts device.Slice[uint64]) error {
	all, err := starts.Host(st)
	if err != nil {
		return err
	}
	each := int64(1) << (c.paneShift - c.shape.shift)
	regions := func(pane int) (first, n int64) {
		first = int64(pane) * each
		return first, min(each, c.shape.regions-first)
	}
	rows := func(pane int) int64 {
		first, n := regions(pane)
		return int64(all[first+n] - all[first])
	}
	serve := func(t Table, pane int) error {
		p, g := q, grid
		first, n := regions(pane)
		p.Table, p.First, g.Blocks = t, uint64(first), n
		return insert.Launch(st, g, &p)
	}
	windows := c.split(rows)
	return c.visits(st, windows, true, func(first, last int) (err error) {
		for i := first; i < last && err == nil; i++ {
			if rows(i) > 0 {
				c.panes[i].fresh = false
				err = serve(c.table(), i)
			}
		}
		return err
	}, serve)
}
