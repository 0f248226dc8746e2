package library

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
	"github.com/warpmap/warpmap/workload"
)

const (
	million = 1_000_000
	growing = 100_000 // pairs of a batch into a table that grows
	atLoad  = 0.7     // of the families beside one another
)

// cpuRows is what the rows of library/cpu share.
type cpuRows struct {
	d     *device.Device // of all workers
	alone *device.Device // of one
	all   int            // workers of d
	n     int
	fig   *bench.Fig
}

// cpu measures what the CPU device is for, beside Go maps.
func cpu(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	if d.Info().CUDA() {
		return nil, fmt.Errorf("library/cpu measures the CPU device beside Go maps: want --device cpu, not %s", d.Info().Name)
	}
	alone, err := device.Open(d.Info().Name, device.WithWorkers(1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, alone.Close()) }()
	r := &cpuRows{d: d, alone: alone, all: runtime.GOMAXPROCS(0), n: o.N, fig: &bench.Fig{
		Title: fmt.Sprintf("the CPU device beside Go maps, by the wall clock: %s keys", comma(o.N)),
		Columns: []string{"work", "threads", "warpmap M/s", "Go M/s", "times", "warpmap µs a call", "Go µs a call", "allocations a call", "of warpcore",
			"wrong"},
		Notes: []string{
			"data in Go slices, in batches of a million keys where nothing else is said; device and Go map in turn, the median of 5 rounds after one to warm " +
				"up, or where a round takes more than 2 s, of 3; compiling is not in it",
			"a Go map is read by as many goroutines as the device has threads, and written to by one; times is how many times as fast as the Go map warpmap is",
			"the machine's limit is random reads of 64 bytes, the next 16 of which are asked for ahead, over as much memory as the table of 4+4 bytes has",
		},
		Plots: []bench.Plot{
			{Name: "rates", Title: "The CPU device beside a Go map", X: "work", Y: "times", Series: "threads"},
		},
	}}
	for _, part := range []struct {
		what string
		do   func() error
	}{
		{"pairs of 4+4 bytes", r.pairs},
		{"a table that grows", r.grows},
		{"sums and counts", r.sums},
		{"pairs of 8+8 bytes", r.wide},
		{"the other families", r.families},
		{"small calls", r.calls},
		{"ids without their doubles", r.dedup},
		{"strings", r.strings},
	} {
		o.Step(part.what)
		if err := part.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
		if err := o.Done(r.fig); err != nil {
			return nil, err
		}
	}
	return r.fig, nil
}

// add adds a row of n rows of work, for which warpmap and a Go map took so long.
func (r *cpuRows) add(work string, threads, n int, took []time.Duration, wrong int) {
	rate := func(t time.Duration) float64 { return 1e3 * bench.Rate(n, t) }
	r.fig.Add(work, threads, bench.Round(rate(took[0])), bench.Round(rate(took[1])), times(took), nil, nil, nil, nil, wrong)
}

// comma is a number for people.
func comma(n int) string { return humanize.Comma(int64(n)) }

func times(took []time.Duration) float64 {
	return bench.Round(float64(took[1]) / max(1, float64(took[0])))
}

// devices calls f for the device of one worker and, where there are more, for that of all.
func (r *cpuRows) devices(f func(d *device.Device, threads int) error) error {
	if err := f(r.alone, 1); err != nil || r.all == 1 {
		return err
	}
	return f(r.d, r.all)
}

// using makes a map, and closes it behind f.
func using[K, V any](d *device.Device, family table.Family, o table.Options, f func(m table.Map[K, V]) error) error {
	m, err := warpmap.New[K, V](d, family, o)
	if err != nil {
		return err
	}
	return errors.Join(f(m), m.Close())
}

// inserts are the batches of all pairs, into a map that is empty before; short counts what it lacks then.
func (w *data[K, V]) inserts(m table.Map[K, V], batch int, short *int) bench.Side {
	first := min(len(w.keys), batch)
	return bench.Side{
		Warm:   func() error { return m.Insert(w.keys[:first], w.values[:first]) },
		Before: m.Clear,
		Do: func() error {
			return inBatches(len(w.keys), batch, func(from, to int) error { return m.Insert(w.keys[from:to], w.values[from:to]) })
		},
		After: func() error { return lacks(m, len(w.keys), short) },
	}
}

// finds are the batches of all look-ups.
func (w *data[K, V]) finds(m table.Map[K, V], batch int, wrong *int) bench.Side {
	return bench.Side{
		Do: func() error {
			return inBatches(len(w.queries), batch, func(from, to int) error { return m.Find(w.queries[from:to], w.out[from:to], w.found[from:to]) })
		},
		After: func() error { *wrong += w.wrong(len(w.queries)); return nil },
	}
}

// goFinds are the same of a Go map.
func (w *data[K, V]) goFinds(m map[K]V, goroutines int, wrong *int) bench.Side {
	return bench.Side{
		Do:    func() error { w.goFind(m, goroutines); return nil },
		After: func() error { *wrong += w.wrong(len(w.queries)); return nil },
	}
}

// goInserts bring all pairs into a Go map with room for so many.
func (w *data[K, V]) goInserts(room int, short *int) bench.Side {
	var m map[K]V
	return bench.Side{
		Before: fresh(&m, room),
		Do: func() error {
			for i, k := range w.keys {
				m[k] = w.values[i]
			}
			return nil
		},
		After: func() error { *short += len(w.keys) - len(m); return nil },
	}
}

// lacks adds to short by how many a table's length is not n.
func lacks(m interface{ Len() (int, error) }, n int, short *int) error {
	have, err := m.Len()
	*short += max(have, n) - min(have, n)
	return err
}

func (r *cpuRows) pairs() error {
	w, err := newData[uint32, uint32](4, r.n, r.n)
	if err != nil {
		return err
	}
	inGo := w.goMap()
	return r.devices(func(d *device.Device, threads int) error {
		return using(d, warpmap.WarpCore, table.Options{Capacity: r.n}, func(m table.Map[uint32, uint32]) error {
			wrong := 0
			took, err := bench.Turns(d, w.inserts(m, million, &wrong), w.goInserts(r.n, &wrong))
			if err != nil {
				return err
			}
			r.add("insert, with room for all", threads, r.n, took, wrong)
			wrong = 0
			if took, err = bench.Turns(d, w.finds(m, million, &wrong), w.goFinds(inGo, threads, &wrong)); err != nil {
				return err
			}
			r.add("find, half hits", threads, r.n, took, wrong)
			s, err := m.Stats()
			if err != nil {
				return err
			}
			limits, err := bench.MeasureLimits(d, max(s.Bytes, 1<<20), r.n)
			r.fig.Add("the machine's limit: lines read at random", threads, bench.Round(1e3*limits.Lookup64), nil, nil, nil, nil, nil, nil, 0)
			return err
		})
	})
}

func (r *cpuRows) grows() error {
	w, err := newData[uint32, uint32](4, r.n, r.n)
	if err != nil {
		return err
	}
	var m table.Map[uint32, uint32]
	wrong := 0
	grow := bench.Side{
		Before: func() (err error) {
			m, err = warpmap.New[uint32, uint32](r.d, warpmap.WarpCore, table.Options{})
			return err
		},
		Do: func() error {
			return inBatches(r.n, growing, func(from, to int) error { return m.Insert(w.keys[from:to], w.values[from:to]) })
		},
		After: func() error { return errors.Join(lacks(m, r.n, &wrong), m.Close()) },
	}
	took, err := bench.Turns(r.d, grow, w.goInserts(0, &wrong))
	if err == nil {
		r.add("insert from nothing, in batches of 100,000", r.all, r.n, took, wrong)
	}
	return err
}

func (r *cpuRows) sums() error {
	rows := make([]uint32, 10*r.n)
	ones := make([]uint32, min(million, len(rows)))
	for i := range ones {
		ones[i] = 1
	}
	for _, kind := range []string{"rand", "zipf:1"} {
		for _, distinct := range []int{max(1, r.n/10), r.n} {
			kinds, err := workload.NewKeys(kind, 4, 1)
			if err != nil {
				return err
			}
			workload.Pick(kinds, uint64(distinct), 1, 0, len(rows), func(i int, index uint64) { rows[i] = uint32(kinds.At(index)) })
			if err := r.sum(map[string]string{"rand": "uniform", "zipf:1": "Zipf 1"}[kind], distinct, rows, ones); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum adds the rows' keys up, in a map and in a counter.
func (r *cpuRows) sum(how string, distinct int, rows, ones []uint32) (err error) {
	made, err := warpmap.New[uint32, uint32](r.d, warpmap.WarpCore, table.Options{Capacity: distinct})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	m := made.(table.Updater[uint32, uint32])
	c, err := warpmap.NewCounter[uint32, uint32](r.d, warpmap.WarpCore, table.CounterOptions{Options: table.Options{Capacity: distinct}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var inGo map[uint32]uint32
	update := func(from, to int) error { return m.Update(rows[from:to], ones[:to-from], table.Add) }
	count := func(from, to int) error { return c.Add(rows[from:to]) }
	took, err := bench.Turns(r.d,
		bench.Side{Warm: func() error { return update(0, len(ones)) }, Before: m.Clear, Do: func() error { return inBatches(len(rows), len(ones), update) }},
		bench.Side{Warm: func() error { return count(0, len(ones)) }, Before: c.Clear, Do: func() error { return inBatches(len(rows), len(ones), count) }},
		bench.Side{Before: fresh(&inGo, distinct), Do: func() error {
			return inBatches(len(rows), len(ones), func(from, to int) error {
				for i, k := range rows[from:to] {
					inGo[k] += ones[i]
				}
				return nil
			})
		}})
	if err != nil {
		return err
	}
	of := fmt.Sprintf("%s rows of %s keys, %s", comma(len(rows)), comma(distinct), how)
	for i, x := range []struct {
		what string
		find func(keys, values []uint32, found []bool) error
		in   interface{ Len() (int, error) }
	}{{"Update (Add), ", m.Find, m}, {"Counter, ", c.Find, c}} {
		wrong, err := sumsWrong(x.find, inGo)
		if err := errors.Join(err, lacks(x.in, len(inGo), &wrong)); err != nil {
			return err
		}
		r.add(x.what+of, r.all, len(rows), []time.Duration{took[i], took[2]}, wrong)
	}
	return nil
}

// sumsWrong counts what a table does not have as a Go map has it.
func sumsWrong(find func(keys, values []uint32, found []bool) error, inGo map[uint32]uint32) (wrong int, err error) {
	keys, want := make([]uint32, 0, len(inGo)), make([]uint32, 0, len(inGo))
	for k, v := range inGo {
		keys, want = append(keys, k), append(want, v)
	}
	got := make([]uint32, len(keys))
	err = find(keys, got, nil)
	for i := range got {
		if got[i] != want[i] {
			wrong++
		}
	}
	return wrong, err
}

func (r *cpuRows) wide() error {
	w, err := newData[uint64, uint64](8, r.n, r.n)
	if err != nil {
		return err
	}
	inGo := w.goMap()
	return r.devices(func(d *device.Device, threads int) error {
		return using(d, warpmap.WarpCore, table.Options{Capacity: r.n}, func(m table.Map[uint64, uint64]) error {
			wrong := 0
			if err := w.inserts(m, million, &wrong).Do(); err != nil {
				return err
			}
			took, err := bench.Turns(d, w.finds(m, million, &wrong), w.goFinds(inGo, threads, &wrong))
			if err == nil {
				r.add("find, half hits, 8+8 bytes", threads, r.n, took, wrong)
			}
			return err
		})
	})
}

// families measures all of them in turn, at one load factor.
func (r *cpuRows) families() (err error) {
	w, err := newData[uint32, uint32](4, r.n, r.n)
	if err != nil {
		return err
	}
	names := warpmap.Families(table.KindMap)
	var inserts, finds []bench.Side
	short, wrong := make([]int, len(names)), make([]int, len(names))
	for i, family := range names {
		m, err := warpmap.New[uint32, uint32](r.d, family, table.Options{Capacity: r.n, LoadFactor: atLoad})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		inserts = append(inserts, w.inserts(m, million, &short[i]))
		finds = append(finds, w.finds(m, million, &wrong[i]))
	}
	for _, x := range []struct {
		what  string
		sides []bench.Side
		wrong []int
	}{{"insert", inserts, short}, {"find, half hits", finds, wrong}} {
		took, err := bench.Turns(r.d, x.sides...)
		if err != nil {
			return err
		}
		var warpcore time.Duration
		for i, family := range names {
			if family == warpmap.WarpCore {
				warpcore = took[i]
			}
		}
		for i, family := range names {
			r.fig.Add(fmt.Sprintf("%s, %s at load %v", family, x.what, atLoad), r.all, bench.Round(1e3*bench.Rate(r.n, took[i])), nil, nil, nil, nil, nil,
				bench.Round(float64(warpcore)/max(1, float64(took[i]))), x.wrong[i])
		}
	}
	return nil
}

func (r *cpuRows) calls() error {
	n := min(r.n, million)
	w, err := newData[uint32, uint32](4, n, n)
	if err != nil {
		return err
	}
	inGo := w.goMap()
	return using(r.d, warpmap.WarpCore, table.Options{Capacity: n}, func(m table.Map[uint32, uint32]) error {
		if err := m.Insert(w.keys, w.values); err != nil {
			return err
		}
		for keys := 1; keys <= 10_000; keys *= 10 {
			if err := r.callsOf(w, m, inGo, min(keys, n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// callsOf measures look-ups of so many keys a call, by one goroutine.
func (r *cpuRows) callsOf(w *data[uint32, uint32], m table.Map[uint32, uint32], inGo map[uint32]uint32, keys int) error {
	calls := max(1, min(len(w.keys), max(10_000, 100*keys))/keys)
	wrong := 0
	var allocations uint64
	look := w.finds(m, keys, &wrong)
	look.Do = func() error {
		return inBatches(calls*keys, keys, func(from, to int) error { return m.Find(w.queries[from:to], w.out[from:to], w.found[from:to]) })
	}
	look.After = func() error { wrong += w.wrong(calls * keys); return nil }
	look.Warm = func() error {
		if err := look.Do(); err != nil {
			return err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := look.Do()
		runtime.ReadMemStats(&after)
		allocations = after.Mallocs - before.Mallocs
		return err
	}
	took, err := bench.Turns(r.d, look, bench.Side{Do: func() error {
		for i, k := range w.queries[:calls*keys] {
			w.out[i], w.found[i] = inGo[k]
		}
		return nil
	}, After: look.After})
	if err != nil {
		return err
	}
	rate := func(t time.Duration) float64 { return bench.Round(1e3 * bench.Rate(calls*keys, t)) }
	call := func(t time.Duration) float64 { return bench.Round(float64(t.Nanoseconds()) / 1e3 / float64(calls)) }
	r.fig.Add(fmt.Sprintf("find in a table of %s, keys a call: %s (Go: one goroutine)", comma(len(w.keys)), comma(keys)), r.all, rate(took[0]), rate(took[1]), times(took),
		call(took[0]), call(took[1]), bench.Round(float64(allocations)/float64(calls)), nil, wrong)
	return nil
}

// dedup finds out which of five times as many ids as there are different ones are new.
func (r *cpuRows) dedup() (err error) {
	ids := make([]uint32, 5*r.n)
	workload.Draw(ids, uint64(r.n), 1)
	added, batch := make([]bool, min(million, len(ids))), min(million, len(ids))
	s, err := warpmap.NewSet[uint32](r.d, warpmap.WarpCore, table.Options{Capacity: r.n})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var news, inGo []int // of each batch
	put := func(from, to int) error {
		n, err := s.Insert(ids[from:to], added[:to-from])
		news = append(news, n)
		return err
	}
	var m map[uint32]struct{}
	sized := fresh(&m, r.n)
	took, err := bench.Turns(r.d,
		bench.Side{Warm: func() error { return put(0, batch) }, Before: func() error { news = nil; return s.Clear() },
			Do: func() error { return inBatches(len(ids), batch, put) }},
		bench.Side{Before: func() error { inGo = nil; return sized() }, Do: func() error {
			return inBatches(len(ids), batch, func(from, to int) error {
				before := len(m)
				for i, k := range ids[from:to] {
					have := len(m)
					m[k] = struct{}{}
					added[i] = len(m) > have
				}
				inGo = append(inGo, len(m)-before)
				return nil
			})
		}})
	if err != nil {
		return err
	}
	wrong := 0
	for i, n := range inGo {
		wrong += max(n, news[i]) - min(n, news[i])
	}
	r.add(fmt.Sprintf("%s ids of %s: which are new", comma(len(ids)), comma(r.n)), r.all, len(ids), took, wrong)
	return nil
}

// letters are n keys of 12 bytes, one for each number.
func letters(n int, number func(i int) int) text.Keys {
	const digits, length = "0123456789abcdef", 12
	k := text.Keys{Bytes: make([]byte, n*length), Offsets: make([]int64, n+1)}
	for i := range n {
		x := uint64(number(i)) * 0x9e3779b97f4a7c15 // of which the low 48 bits differ, too
		for j := range length {
			k.Bytes[i*length+j] = digits[x>>(4*j)&15]
		}
		k.Offsets[i+1] = int64((i + 1) * length)
	}
	return k
}

// part are some of keys of equal length.
func part(k text.Keys, from, to int) text.Keys {
	return text.Keys{Bytes: k.Bytes[k.Offsets[from]:k.Offsets[to]], Offsets: k.Offsets[:to-from+1]}
}

// strings looks up as many keys as are in, about half of which are there.
func (r *cpuRows) strings() (err error) {
	number := func(i int) int { return int(kernel.Reduce(kernel.Seeded64(uint64(i), 1), 2*uint64(r.n))) } // of the key that is asked for
	in, asked := letters(r.n, func(i int) int { return i }), letters(r.n, number)
	values, out, found := make([]uint32, r.n), make([]uint32, r.n), make([]bool, r.n)
	m, err := warpmap.NewStrings[uint32](r.d, warpmap.WarpCore, text.Options{Options: table.Options{Capacity: r.n}, KeyBytes: 12})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	inGo := make(map[string]uint32, r.n)
	for i := range values {
		values[i] = uint32(i) + 1
		inGo[string(in.At(i))] = values[i]
	}
	insert := func(from, to int) error { return m.Insert(part(in, from, to), values[from:to]) }
	if err := inBatches(r.n, million, insert); err != nil {
		return err
	}
	all, wrong := strings.Clone(string(asked.Bytes)), 0
	look := make([]string, r.n) // as a program has them
	for i := range look {
		look[i] = all[asked.Offsets[i]:asked.Offsets[i+1]]
	}
	check := func() error {
		for i := range out {
			want := uint32(0)
			if number(i) < r.n {
				want = uint32(number(i)) + 1
			}
			if out[i] != want || found[i] != (want > 0) {
				wrong++
			}
		}
		clear(out)
		clear(found)
		return nil
	}
	took, err := bench.Turns(r.d, bench.Side{Do: func() error {
		return inBatches(r.n, million, func(from, to int) error { return m.Find(part(asked, from, to), out[from:to], found[from:to]) })
	}, After: check}, bench.Side{Do: func() error {
		inParts(r.all, r.n, func(from, to int) {
			for i := from; i < to; i++ {
				out[i], found[i] = inGo[look[i]]
			}
		})
		return nil
	}, After: check})
	if err == nil {
		r.add("strings of 12 bytes: find, half hits", r.all, r.n, took, wrong)
	}
	return err
}
