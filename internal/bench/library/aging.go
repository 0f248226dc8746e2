package library

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// Ageing by McCoy and Pandey, "WarpSpeed: A High-Performance Library for Concurrent GPU Hash Tables" (2025): a table is
// filled to a load, and then slices replace its oldest keys by new ones.
const (
	agingLoad  = 0.85
	agingSlice = 100 // a slice replaces one of so many keys,
	churnBatch = 20  // and a batch at MaxBytes one of so many
	agingRows  = 10  // beside the first
	eachKey    = 2   // values of a key of a multimap
)

// AgingSeed is of all tables that age, and of their look-ups.
var AgingSeed uint64 = 1

// agingKinds are those whose keys can be deleted.
var agingKinds = []table.Kind{table.KindMap, table.KindSet, table.KindMultiMap, table.KindBucketList,
	table.KindMultiBucket}

// Aged is a table, and what is done to it.
type Aged struct {
	Table  table.Table
	each   int // rows of a key
	insert func(st *device.Stream, keys, values device.Slice[uint32], added device.Slice[bool]) error
	remove func(st *device.Stream, keys device.Slice[uint32], deleted device.Slice[bool]) error
	find   func(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error
	wrong  string // the kernel that checks what find gives
	values bool   // find gives values
	added  bool   // insert says what it added
}

// NewAged makes a table of 4-byte keys, and values.
func NewAged(d *device.Device, kind table.Kind, family table.Family, o table.Options) (*Aged, error) {
	switch kind {
	case table.KindMap:
		m, err := bench.NewMap(d, family, o)
		if err != nil {
			return nil, err
		}
		return &Aged{m, 1, func(st *device.Stream, keys, values device.Slice[uint32], _ device.Slice[bool]) error {
			return m.InsertOn(st, keys, values)
		}, m.DeleteOn, m.FindOn, "age_wrong_finds", true, false}, nil
	case table.KindSet:
		s, err := warpmap.NewSet[uint32](d, family, o)
		if err != nil {
			return nil, err
		}
		return &Aged{s, 1, func(st *device.Stream, keys, _ device.Slice[uint32], added device.Slice[bool]) error {
			return s.InsertOn(st, keys, added)
		}, s.DeleteOn, func(st *device.Stream, keys, _ device.Slice[uint32], found device.Slice[bool]) error {
			return s.ContainsOn(st, keys, found)
		}, "age_wrong_finds", false, true}, nil
	}
	with := table.MultiMapOptions{Options: o, Keys: o.Capacity / eachKey}
	m, err := warpmap.NewMultiMapOf[uint32, uint32](d, kind, family, with)
	if err != nil {
		return nil, err
	}
	return &Aged{m, eachKey, func(st *device.Stream, keys, values device.Slice[uint32], _ device.Slice[bool]) error {
		return m.InsertOn(st, keys, values)
	}, m.DeleteOn, func(st *device.Stream, keys, counts device.Slice[uint32], _ device.Slice[bool]) error {
		return m.CountOn(st, keys, counts)
	}, "age_wrong_counts", true, false}, nil
}

// Life is a table that ages: keys of a window of indices are in, but for what was refused.
type Life struct {
	*Aged
	d              *device.Device
	module         *device.Module
	batch          int // keys that a slice replaces
	first, end     uint64
	rows           int    // that are in
	in             []byte // how many values the key of an index has, at the index modulo the length
	mirror         device.Slice[byte]
	keys, values   device.Slice[uint32]
	queries, gives device.Slice[uint32]
	found          device.Slice[bool]
	Counter        device.Slice[uint64] // of wrong answers
	events         [4]*device.Event

	// Since the last row.
	slices, refused, wrong int
	took                   [3]time.Duration // of deletions, inserts and look-ups
	slowest                time.Duration
}

// NewLife has room for a window of so many keys at most.
func NewLife(d *device.Device, a *Aged, window, batch int) (l *Life, err error) {
	l = &Life{Aged: a, d: d, batch: batch, in: make([]byte, window+2*batch)}
	defer func() {
		if err != nil {
			l.Free()
		}
	}()
	if l.module, err = d.Compile(AgingProgram()); err != nil {
		return l, err
	}
	var errs [11]error
	l.mirror, errs[0] = device.Make[byte](d, len(l.in))
	l.keys, errs[1] = device.Make[uint32](d, batch*a.each)
	l.values, errs[2] = device.Make[uint32](d, batch*a.each)
	l.queries, errs[3] = device.Make[uint32](d, 2*batch)
	l.gives, errs[4] = device.Make[uint32](d, 2*batch)
	l.found, errs[5] = device.Make[bool](d, 2*batch)
	l.Counter, errs[6] = device.Make[uint64](d, 1)
	for i := range l.events {
		l.events[i], errs[7+i] = d.NewEvent()
	}
	return l, errors.Join(append(errs[:], l.mirror.Fill(d.Stream(), 0), l.Counter.Fill(d.Stream(), 0))...)
}

// Free frees what NewLife took, and closes the table.
func (l *Life) Free() {
	bench.Free(l.mirror, l.keys, l.values, l.queries, l.gives, l.found, l.Counter)
	for _, e := range l.events {
		if e != nil {
			e.Close()
		}
	}
	l.Table.Close()
}

// launch runs one of the kernels over n rows.
func (l *Life) launch(kernel string, p agingParams, n int) error {
	k, err := device.KernelOf[agingParams](l.module, kernel)
	if err != nil || n == 0 {
		return err
	}
	p.In, p.Wrong, p.Ring, p.N = l.mirror.Addr(), l.Counter.Addr(), uint64(len(l.in)), uint64(n)
	return k.Launch(l.d.Stream(), device.GridFor(int64(n), 256), &p)
}

// mark copies what is in of n keys from an index on to the device.
func (l *Life) mark(from uint64, n int) error {
	at := int(from % uint64(len(l.in)))
	head := min(n, len(l.in)-at)
	st := l.d.Stream()
	return errors.Join(l.mirror.Slice(at, at+head).Write(st, l.in[at:at+head]),
		l.mirror.Slice(0, n-head).Write(st, l.in[:n-head]))
}

// Put inserts the next n keys.
func (l *Life) Put(n int) error {
	st, rows := l.d.Stream(), n*l.each
	keys, values, added := l.keys.Slice(0, rows), l.values.Slice(0, rows), l.found.Slice(0, n)
	err := l.launch("age_pairs", agingParams{Keys: keys.Addr(), Values: values.Addr(), First: l.end, Distinct: uint64(n)}, rows)
	if err != nil {
		return err
	}
	if err := l.events[1].Record(st); err != nil {
		return err
	}
	err = l.insert(st, keys, values, added)
	if e := l.events[2].Record(st); e != nil {
		return e
	}
	var refused *table.FullError
	full := errors.As(err, &refused)
	if err != nil && !full {
		return err
	}
	for i := range uint64(n) {
		l.in[(l.end+i)%uint64(len(l.in))] = byte(l.each)
	}
	l.rows += rows
	if full {
		for _, p := range refused.Positions {
			l.in[(l.end+uint64(p%n))%uint64(len(l.in))]--
		}
		l.rows -= len(refused.Positions)
		l.refused += len(refused.Positions)
	}
	if err := l.mark(l.end, n); err != nil {
		return err
	}
	if l.added {
		if err := l.launch("age_wrong_changes", agingParams{Found: added.Addr(), First: l.end}, n); err != nil {
			return err
		}
	}
	l.end += uint64(n)
	return nil
}

// Take deletes the oldest n keys.
func (l *Life) Take(n int) error {
	st := l.d.Stream()
	keys, deleted := l.keys.Slice(0, n), l.found.Slice(0, n)
	err := l.launch("age_pairs", agingParams{Keys: keys.Addr(), First: l.first, Distinct: uint64(n)}, n)
	if err := errors.Join(err, l.events[0].Record(st)); err != nil {
		return err
	}
	if err := l.remove(st, keys, deleted); err != nil {
		return err
	}
	if err := l.events[3].Record(st); err != nil {
		return err
	}
	if err := l.launch("age_wrong_changes", agingParams{Found: deleted.Addr(), First: l.first}, n); err != nil {
		return err
	}
	for i := range uint64(n) {
		at := (l.first + i) % uint64(len(l.in))
		l.rows -= int(l.in[at])
		l.in[at] = 0
	}
	err = l.mark(l.first, n)
	l.first += uint64(n)
	return err
}

// Look looks twice as many keys up as a slice replaces, half of which are of the window.
func (l *Life) Look() error {
	st := l.d.Stream()
	p := agingParams{Keys: l.queries.Addr(), First: l.first, End: l.end, Draw: (AgingSeed + l.end) << 20}
	err := l.launch("age_look_ups", p, l.queries.Len())
	if err := errors.Join(err, l.events[0].Record(st)); err != nil {
		return err
	}
	if err := l.find(st, l.queries, l.gives, l.found); err != nil {
		return err
	}
	if err := l.events[1].Record(st); err != nil {
		return err
	}
	p.Found = l.found.Addr()
	if l.Aged.values {
		p.Values = l.gives.Addr()
	}
	return l.launch(l.Aged.wrong, p, l.queries.Len())
}

// since is the time from one event to another.
func (l *Life) since(from, to int) (time.Duration, error) {
	if err := l.events[to].Sync(); err != nil {
		return 0, err
	}
	return l.events[to].Since(l.events[from])
}

// Slice is one: deletions, inserts, look-ups.
func (l *Life) Slice() error {
	var all time.Duration
	for i, step := range []struct {
		do       func() error
		from, to int
	}{
		{func() error { return l.Take(l.batch) }, 0, 3},
		{func() error { return l.Put(l.batch) }, 1, 2},
		{l.Look, 0, 1},
	} {
		if err := step.do(); err != nil {
			return err
		}
		t, err := l.since(step.from, step.to)
		if err != nil {
			return err
		}
		l.took[i] += t
		all += t
	}
	l.slices++
	l.slowest = max(l.slowest, all)
	return nil
}

// agingColumns are those of both studies. The last seven stand in the last row of a table, and are it over its second row.
var agingColumns = []string{"table", "slices", "pairs", "load", "delete G/s", "insert G/s", "find G/s", "slowest ms", "MB",
	"mean probes", "max probes", "tombstones", "refused", "wrong", "note",
	"pairs ×", "delete ×", "insert ×", "find ×", "MB ×", "mean probes ×", "max probes ×"}

// agingRow is what the last row is compared by: pairs, rates of deletions, inserts and look-ups, MB, mean and max probes.
type agingRow [7]float64

// row adds what the slices since the last one came to, beside base if this is the last.
func (l *Life) row(fig *bench.Fig, name string, many int, base *agingRow) (r *agingRow, err error) {
	st := l.d.Stream()
	wrong, err := l.Counter.Host(st)
	if err == nil {
		err = l.Counter.Fill(st, 0)
	}
	if err != nil {
		return nil, err
	}
	s, err := l.Table.Stats()
	if err != nil {
		return nil, err
	}
	l.wrong += int(wrong[0]) + max(s.Len-l.rows, l.rows-s.Len)
	rates := [3]float64{}
	for i, n := range []int{l.batch, l.batch * l.each, 2 * l.batch} {
		rates[i] = bench.Rate(l.slices*n, l.took[i])
	}
	r = &agingRow{float64(s.Len), rates[0], rates[1], rates[2], float64(s.Bytes) / 1e6, s.MeanProbes, float64(s.MaxProbes)}
	cells := []any{name, many, s.Len, bench.Round(s.LoadFactor), bench.Round(rates[0]), bench.Round(rates[1]),
		bench.Round(rates[2]), bench.Round(l.slowest.Seconds() * 1e3), bench.Round(r[4]), bench.Round(r[5]), s.MaxProbes,
		s.Tombstones, l.refused, l.wrong, ""}
	for i := range r {
		if base == nil {
			cells = append(cells, nil)
		} else {
			cells = append(cells, bench.Round(r[i]/max(base[i], 1e-9)))
		}
	}
	fig.Add(cells...)
	l.wrong = 0
	l.restart()
	return r, nil
}

// run makes so many slices, behind one to warm up, with a row behind the first hundredth, and ten more.
func (l *Life) run(o bench.FigOptions, fig *bench.Fig, name string, many int) error {
	if err := l.Slice(); err != nil {
		return err
	}
	l.restart()
	done := 0
	var base *agingRow
	for i := range agingRows + 1 {
		to := i * many / agingRows
		if i == 0 {
			to = max(1, many/100)
		}
		if to <= done {
			continue
		}
		for ; done < to; done++ {
			if err := l.Slice(); err != nil {
				return err
			}
		}
		beside := base
		if done < many {
			beside = nil
		}
		r, err := l.row(fig, name, done, beside)
		if err != nil {
			return err
		}
		if i <= 1 { // by then most keys have been replaced: those that a table was filled with have the best places
			base = r
		}
	}
	return o.Done(fig)
}

// restart begins to sum up anew. What was wrong until then stays.
func (l *Life) restart() {
	l.slices, l.refused, l.took, l.slowest = 0, 0, [3]time.Duration{}, 0
}

// mostAged is how many keys a study has at most: behind them, and before the first, are those that are asked for in vain.
const mostAged = 1 << 31

// eachAged makes the tables of all kinds and families, and measures them.
func eachAged(d *device.Device, o bench.FigOptions, fig *bench.Fig,
	measure func(name string, kind table.Kind, family table.Family) error) (*bench.Fig, error) {
	for _, kind := range agingKinds {
		for _, family := range warpmap.Families(kind) {
			name := fmt.Sprintf("%s %s", family, kind)
			o.Step(name)
			if err := measure(name, kind, family); err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				cells := make([]any, len(fig.Columns))
				cells[0], cells[fig.Column("wrong")], cells[fig.Column("note")] = name, 0, note
				fig.Add(cells...)
			}
		}
	}
	return fig, nil
}

// aging fills tables to a load of 0.85, and replaces a hundredth of their keys in each of o.Batches slices.
func aging(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	many, batch := o.Batches, max(1, o.N/agingSlice)
	if many == 0 {
		many = 1000
	}
	if keys := 2*float64(o.N) + float64(many)*float64(batch); keys > mostAged {
		return nil, fmt.Errorf("%d slices of %d pairs want more keys than 2³¹", many, o.N)
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("tables of %d pairs that age: %d slices, each replaces %d keys", o.N, many, batch),
		Columns: slices.Clone(agingColumns),
		Notes: []string{fmt.Sprintf("made for so many pairs at a load of %v; a slice deletes its oldest keys, inserts as many "+
			"new ones, and looks up twice as many, half of them keys that are in; the keys of multimaps have %d values",
			agingLoad, eachKey),
			"rates: of the device's time since the row before; slowest ms: of these slices; ×: the last row over the second, " +
				"by when all keys have been replaced"},
		Plots: []bench.Plot{{Name: "insert", Title: "Inserts into tables that age", X: "slices", Y: "insert G/s",
			Series: "table"}},
	}
	return eachAged(d, o, fig, func(name string, kind table.Kind, family table.Family) error {
		a, err := NewAged(d, kind, family, table.Options{Capacity: o.N, LoadFactor: agingLoad, Seed: AgingSeed})
		if err != nil {
			return err
		}
		return fillAndRun(d, o, fig, a, name, batch, many, func(l *Life) (int, error) { return (o.N - l.rows) / l.each, nil })
	})
}

// fillAndRun inserts batches while room tells of more keys that are to be in, and then ages the table.
func fillAndRun(d *device.Device, o bench.FigOptions, fig *bench.Fig, a *Aged, name string, batch, many int,
	room func(l *Life) (int, error)) error {
	batch = max(1, batch/a.each)
	l, err := NewLife(d, a, 4*o.N/a.each+batch, batch)
	if err != nil {
		return err
	}
	defer l.Free()
	for {
		n, err := room(l)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := l.Put(min(batch, n)); err != nil {
			return err
		}
	}
	return l.run(o, fig, name, many)
}
