package library

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

const (
	mostCalls = 2000        // of a run
	mostAsked = 2 * million // keys that are looked up in a run, but for larger batches; in small tables, 100 for each pair
	shortRun  = 10_000      // rows of a run at least, or it is repeated
	apiece    = 10          // rows that have one key, of those that are added up
)

// beside is what the rows of library/gomap of one size share.
type beside struct {
	d          *device.Device
	fig        *bench.Fig
	n          int // pairs
	goroutines int
	w          *data[uint32, uint32]
	asked      int      // keys that are looked up in a run
	rows       []uint32 // to be added up
	ones       []uint32
	came       []uint32 // how often each of the distinct keys, the first of w, comes in the first so many rows
	counted    int
}

// goMaps measures tables of warpcore beside Go maps, by the number of pairs and the rows of a batch.
func goMaps(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	goroutines := runtime.GOMAXPROCS(0) // on the CPU device, as many as it has workers
	fig := &bench.Fig{
		Title:   fmt.Sprintf("beside Go maps, by the wall clock: up to %s pairs of 4+4 bytes in Go slices", comma(o.N)),
		Columns: []string{"operation", "pairs", "batch", "subject", "M keys/s", "wrong"},
		Notes: []string{
			fmt.Sprintf("all subjects in turn, the median of 5 rounds after one to warm up, or where a round takes more than 2 s, of 3; all look-ups are by %d "+
				"goroutines, and so are writes to maps that have locks; Go map and swiss.Map are written to by one; warpmap is called by one", goroutines),
			"find: half hits; insert: into a table, or a map, with room for all, which is empty before; count: m[k] += v of 10 rows for each key on average, by " +
				"Update (Add), and for warpmap's Counter by Add",
			fmt.Sprintf("a run has at most %s calls, and so fewer rows than pairs where batches are small", comma(mostCalls)),
		},
	}
	if o.N > heavy {
		fig.Notes = append(fig.Notes, fmt.Sprintf("sync.Map and xsync.Map have at most %s pairs: more would take over 10 GB", comma(heavy)))
	}
	var sizes []int
	for n := min(1000, o.N); n < o.N; n *= 10 {
		sizes = append(sizes, n)
	}
	for _, n := range append(sizes, o.N) {
		s, err := newBeside(d, fig, n, goroutines)
		if err != nil {
			return nil, err
		}
		for _, x := range []struct {
			what string
			do   func() error
		}{{"insert", s.insert}, {"count", s.count}, {"find", s.find}} {
			o.Step(fmt.Sprintf("%s, %s pairs", x.what, comma(n)))
			if err := x.do(); err != nil {
				return nil, fmt.Errorf("%s, %d pairs: %w", x.what, n, err)
			}
			if err := o.Done(fig); err != nil {
				return nil, err
			}
		}
		fig.Plots = append(fig.Plots, bench.Plot{Name: fmt.Sprint(n), Title: fmt.Sprintf("Beside Go maps of %s pairs", comma(n)), X: "batch", Y: "M keys/s",
			Series: "subject", Facet: "operation", Only: map[string]any{"pairs": n}, LogX: true, LogY: true})
	}
	for _, operation := range []string{"insert", "count", "find"} {
		fig.Notes = append(fig.Notes, ahead(fig, operation))
	}
	return fig, nil
}

func newBeside(d *device.Device, fig *bench.Fig, n, goroutines int) (s *beside, err error) {
	s = &beside{d: d, fig: fig, n: n, goroutines: goroutines, rows: make([]uint32, n), ones: make([]uint32, n)}
	s.asked = min(100*n, mostAsked)
	if s.w, err = newData[uint32, uint32](4, n, max(n, s.asked)); err != nil {
		return nil, err
	}
	s.came = make([]uint32, max(1, n/apiece))
	inParts(goroutines, n, func(from, to int) {
		for i := from; i < to; i++ {
			s.rows[i], s.ones[i] = s.w.keys[s.drawn(i)], 1
		}
	})
	return s, nil
}

// drawn is the number of the key of a row.
func (s *beside) drawn(i int) uint64 {
	return kernel.Reduce(kernel.Seeded64(uint64(i), 5), uint64(len(s.came)))
}

// batches are those of a size: the powers of ten to 10 million, and of smaller tables to their pairs.
func (s *beside) batches() (sizes []int) {
	for b := 1; b <= min(s.n, 10*million); b *= 10 {
		sizes = append(sizes, b)
	}
	return sizes
}

// subject is a side with its name, what its batches are, how many rows a run has, and what is wrong after it.
type subject struct {
	name  string
	batch any
	rows  int
	wrong *int
	bench.Side
}

// measure adds the rows of an operation.
func (s *beside) measure(operation string, subjects []subject) error {
	sides := make([]bench.Side, len(subjects))
	for i, x := range subjects {
		sides[i] = x.Side
	}
	took, err := bench.Turns(s.d, sides...)
	if err != nil {
		return err
	}
	for i, x := range subjects {
		s.fig.Add(operation, s.n, x.batch, x.name, bench.Round(1e3*bench.Rate(x.rows, took[i])), *x.wrong)
	}
	return nil
}

// writes are the subjects that bring rows in, in batches, to what reset has emptied; check is behind each run.
func (s *beside) writes(name string, reset func() error, put func(from, to int) error, check func(rows int) (int, error)) (out []subject) {
	for _, b := range s.batches() {
		rows, wrong := min(s.n, mostCalls*b), new(int)
		out = append(out, subject{name, b, rows, wrong, bench.Side{
			Warm:    func() error { return put(0, b) },
			Before:  reset,
			Do:      func() error { return inBatches(rows, b, put) },
			Repeats: shortRun / rows,
			After: func() error {
				some, err := check(rows)
				*wrong += some
				return err
			},
		}})
	}
	return out
}

// goWrites are the same of the peers, each with all rows.
func (s *beside) goWrites(room int, put func(m goStore, from, to int), check func(rows int, find findFunc) (int, error)) (out []subject) {
	for _, p := range goPeers {
		if p.most > 0 && s.n > p.most {
			continue
		}
		goroutines, wrong := 1, new(int)
		if p.shared {
			goroutines = s.goroutines
		}
		var m goStore
		out = append(out, subject{p.name, nil, s.n, wrong, bench.Side{
			Before: func() error {
				m = nil
				if s.n > shortRun {
					runtime.GC() // not while the time runs
				}
				m = p.make(room)
				return nil
			},
			Do:      func() error { inParts(goroutines, s.n, func(from, to int) { put(m, from, to) }); return nil },
			Repeats: shortRun / s.n,
			After: func() error {
				some, err := check(s.n, s.finder(m))
				*wrong += some
				m = nil
				return err
			},
		}})
	}
	return out
}

type findFunc func(keys, values []uint32, found []bool) error

// finder looks keys up in a peer, by all goroutines.
func (s *beside) finder(m goStore) findFunc {
	return func(keys, values []uint32, found []bool) error {
		inParts(s.goroutines, len(keys), func(from, to int) { m.find(keys[from:to], values[from:to], found[from:to]) })
		return nil
	}
}

// missing counts those of the first so many pairs that find does not find.
func (s *beside) missing(rows int, find findFunc) (wrong int, err error) {
	values, found := make([]uint32, rows), make([]bool, rows)
	err = find(s.w.keys[:rows], values, found)
	for i, v := range values {
		if !found[i] || v != s.w.values[i] {
			wrong++
		}
	}
	return wrong, err
}

// miscounted counts the keys that do not have the sum of the first so many rows.
func (s *beside) miscounted(rows int, find findFunc) (wrong int, err error) {
	if s.counted != rows {
		clear(s.came)
		for i := range rows {
			s.came[s.drawn(i)]++
		}
		s.counted = rows
	}
	values, found := make([]uint32, len(s.came)), make([]bool, len(s.came))
	err = find(s.w.keys[:len(s.came)], values, found)
	for i, v := range values {
		if v != s.came[i] || found[i] != (v > 0) {
			wrong++
		}
	}
	return wrong, err
}

func (s *beside) insert() error {
	return using(s.d, warpmap.WarpCore, table.Options{Capacity: s.n}, func(m table.Map[uint32, uint32]) error {
		put := func(from, to int) error { return m.Insert(s.w.keys[from:to], s.w.values[from:to]) }
		subjects := s.writes("warpmap", m.Clear, put, func(rows int) (int, error) { return s.missing(rows, m.Find) })
		return s.measure("insert", append(subjects,
			s.goWrites(s.n, func(m goStore, from, to int) { m.insert(s.w.keys[from:to], s.w.values[from:to]) }, s.missing)...))
	})
}

func (s *beside) count() error {
	distinct := len(s.came)
	return using(s.d, warpmap.WarpCore, table.Options{Capacity: distinct}, func(made table.Map[uint32, uint32]) error {
		m := made.(table.Updater[uint32, uint32])
		c, err := warpmap.NewCounter[uint32, uint32](s.d, warpmap.WarpCore, table.CounterOptions{Options: table.Options{Capacity: distinct}})
		if err != nil {
			return err
		}
		update := func(from, to int) error { return m.Update(s.rows[from:to], s.ones[from:to], table.Add) }
		count := func(from, to int) error { return c.Add(s.rows[from:to]) }
		subjects := append(s.writes("warpmap", m.Clear, update, func(rows int) (int, error) { return s.miscounted(rows, m.Find) }),
			s.writes("warpmap's Counter", c.Clear, count, func(rows int) (int, error) { return s.miscounted(rows, c.Find) })...)
		err = s.measure("count", append(subjects,
			s.goWrites(distinct, func(m goStore, from, to int) { m.add(s.rows[from:to], s.ones[from:to]) }, s.miscounted)...))
		return errors.Join(err, c.Close())
	})
}

func (s *beside) find() error {
	return using(s.d, warpmap.WarpCore, table.Options{Capacity: s.n}, func(m table.Map[uint32, uint32]) error {
		if err := m.Insert(s.w.keys, s.w.values); err != nil {
			return err
		}
		w := s.w
		var subjects []subject
		add := func(name string, batch any, rows int, do func() error) {
			wrong := new(int)
			subjects = append(subjects, subject{name, batch, rows, wrong, bench.Side{Do: do, After: func() error { *wrong += w.wrong(rows); return nil }}})
		}
		for _, b := range s.batches() {
			rows := max(b, min(mostCalls*b, s.asked))
			add("warpmap", b, rows, func() error {
				return inBatches(rows, b, func(from, to int) error { return m.Find(w.queries[from:to], w.out[from:to], w.found[from:to]) })
			})
		}
		for _, p := range goPeers {
			if p.most > 0 && s.n > p.most {
				continue
			}
			in := p.make(s.n)
			in.insert(w.keys, w.values)
			find := s.finder(in)
			add(p.name, nil, s.asked, func() error { return find(w.queries[:s.asked], w.out[:s.asked], w.found[:s.asked]) })
		}
		return s.measure("find", subjects)
	})
}

// ahead says from which batch on warpmap is ahead of a Go map, and of the best map that has locks.
func ahead(fig *bench.Fig, operation string) string {
	operations, pairs, batch, name, rate := fig.Column("operation"), fig.Column("pairs"), fig.Column("batch"), fig.Column("subject"), fig.Column("M keys/s")
	var sizes []int
	ours, plain, locked := map[int][][]any{}, map[int]float64{}, map[int]float64{}
	for _, r := range fig.Rows {
		if r[operations] != operation {
			continue
		}
		n, x := r[pairs].(int), r[rate].(float64)
		if r[name] == "warpmap" {
			if ours[n] == nil {
				sizes = append(sizes, n)
			}
			ours[n] = append(ours[n], r)
		} else if r[name] == "Go map" {
			plain[n] = x
		}
		for _, p := range goPeers {
			if p.shared && p.name == r[name] {
				locked[n] = max(locked[n], x)
			}
		}
	}
	since := func(n int, other float64) (from int) { // 0: never
		for _, r := range ours[n] {
			if r[rate].(float64) <= other {
				from = 0
			} else {
				from = cmp.Or(from, r[batch].(int))
			}
		}
		return from
	}
	list := func(other map[int]float64) string {
		var parts []string
		for _, n := range sizes {
			text := "in none"
			if b := since(n, other[n]); b > 0 {
				text = "from " + comma(b) + " on"
			}
			parts = append(parts, fmt.Sprintf("%s at %s pairs", text, comma(n)))
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s: the batches in which warpmap is ahead of the Go map: %s; and of the best map with locks: %s", operation, list(plain), list(locked))
}
