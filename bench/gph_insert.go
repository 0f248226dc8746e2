package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// GPH's inserts, sections 6.2 and 7.4 of the paper.

// gphTunedLoad is the load factor that the number of cells is meant for, where a table is filled beyond any.
const gphTunedLoad = 0.8

// fixedGPH makes a table of about that many slots (a little less) that never grows nor is rebuilt, so that what it takes and
// counts is its inserts' alone: its load factor, beyond which it wants to grow, is low, and MaxBytes forbids that.
func fixedGPH(d *device.Device, slots int, s gph.Setting) (*gph.Map[uint32, uint32], error) {
	const low = 0.25
	s, err := s.Complete(d.Info(), 4, 4, gphTunedLoad)
	if err != nil {
		return nil, err
	}
	s.KeysPerCell *= low / gphTunedLoad // as many cells
	o := s.Options(table.Options{Capacity: max(1, int(low*float64(slots-64))), LoadFactor: low})
	m, err := gph.New[uint32, uint32](d, o)
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err = errors.Join(err, m.Close()); err != nil {
		return nil, err
	}
	o.MaxBytes, o.Capacity = stats.Bytes, 2*slots // as many buckets as fit: not one is left to grow by
	return gph.New[uint32, uint32](d, o)
}

// refused are the positions that a batch left out. Any other error remains one.
func refused(err error) ([]int, error) {
	var full *table.FullError
	if errors.As(err, &full) {
		return full.Positions, nil
	}
	return nil, err
}

// gphReach is Figure 15(a): the load factor at which a table that cannot grow refuses a pair for the first time.
func gphReach(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{
		Title:   fmt.Sprintf("GPH, Figure 15(a): load factor at the first refusal, %d slots filled in small batches", o.N),
		Columns: []string{"M", "R", "slots a cell", "load", "refused", "moves", "rings a move", "wrong", "note"},
		Notes:   []string{"refused: pairs of the batch that was the first to be refused any; wrong: answers, of look-ups of every pair offered, and of as many not offered as are left"},
		Plots:   []Plot{{Title: "Load factor at the first refusal", X: "R", Y: "load", Series: "M", LogX: true}},
	}
	t := TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 1, Seed: 1}
	w, err := newWork[uint32, uint32](d, t)
	if err != nil {
		return nil, err
	}
	defer w.free()
	if err := w.queries.CopyFrom(d.Stream(), w.keys); err != nil {
		return nil, err
	}
	for _, bucket := range []int{4, 8, 16} {
		for _, r := range []int{2, 4, 8, 16, 32} {
			o.Step(fmt.Sprintf("M = %d, R = %d", bucket, r))
			row, err := reach(w, gph.Setting{Bucket: bucket, VirtualBuckets: r})
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{nil, nil, nil, nil, nil, nil, note}
			}
			fig.add(append([]any{bucket, r}, row...)...)
		}
	}
	return fig, nil
}

// reach fills one table until it refuses, and checks what is in it then: the pairs that it did not refuse, and no others.
func reach(w *work[uint32, uint32], s gph.Setting) (row []any, err error) {
	m, err := fixedGPH(w.d, w.o.N, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.d.Stream()
	expect := make([]byte, w.o.N)
	var out []int
	batch, first := max(16, w.o.N/256), 0
	for first < w.o.N && len(out) == 0 {
		n := min(batch, w.o.N-first)
		if out, err = refused(m.InsertOn(st, w.keys.Slice(first, first+n), w.values.Slice(first, first+n))); err != nil {
			return nil, err
		}
		for i := range n {
			expect[first+i] = workload.Hit
		}
		for _, i := range out {
			expect[first+i] = workload.Miss
		}
		first += n
	}
	note := ""
	if len(out) == 0 {
		note = "refused none"
	}
	if err := w.expect.Write(st, expect); err != nil {
		return nil, err
	}
	if err := m.FindOn(st, w.queries, w.results, w.found); err != nil {
		return nil, err
	}
	wrong, err := w.count(st)
	if err != nil {
		return nil, err
	}
	x, err := m.IndexStats()
	return []any{round(float64(x.Capacity) / float64(x.Cells)), round(x.LoadFactor), len(out), x.Moves, per(x.Rings, x.Moves), wrong, note}, err
}

// per is a mean; nil of nothing.
func per(sum, n int) any {
	if n <= 0 {
		return nil
	}
	return round(float64(sum) / float64(n))
}

// gphTheorem sets section 6.2 beside what is measured: tables that cannot grow are filled in steps of their slots.
//
// The theorem's relocations are tries to find all pairs of a cell a place in other R buckets, which here are the rings that
// are examined; displacing other cells, which the paper has not, counts them too. Its proof has buckets of one slot, which
// GPH does not, and bounds those of more.
func gphTheorem(d *device.Device, o FigOptions) (*Fig, error) {
	const most = 1e6 // of the bound, to be worth a cell
	fig := &Fig{
		Title: fmt.Sprintf("GPH, section 6.2: relocations of an insert, and refused inserts, %d slots", o.N),
		Columns: []string{"M", "R", "load", "inserts", "moves", "rings", "rings a move", "bound (1/(1-α))^R", "pairs moved a move", "refused",
			"refused %", "failure % of 6.2"},
		Notes: []string{
			"the bound takes it that there is a place; a cell that has none moves others out of its way, up to 32 times, and examines its rings anew each time",
			"load: before the step; rings: of refused inserts too, so that there is no mean of these steps; failure % of 6.2: that more than R · M of the pairs come to a cell's R buckets, if each goes anywhere",
		},
		Plots: []Plot{
			{Name: "relocations", Title: "Rings examined for a move, M = 4; dashed: (1/(1-α))^R", X: "load", Y: "rings a move", Series: "R",
				Only: map[string]any{"M": 4}, Bound: "bound (1/(1-α))^R", LogY: true},
			{Name: "failures", Title: "Refused inserts, M = 4; dashed: section 6.2", X: "load", Y: "refused %", Series: "R",
				Only: map[string]any{"M": 4}, Bound: "failure % of 6.2"},
		},
	}
	w, err := newWork[uint32, uint32](d, TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 2 * o.N, Queries: 1, Hits: 1, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.free()
	// The last is the paper's own setting, and its example of section 6.2.
	for _, s := range []gph.Setting{{Bucket: 4, VirtualBuckets: 2}, {Bucket: 4, VirtualBuckets: 4}, {Bucket: 4, VirtualBuckets: 8},
		{Bucket: 4, VirtualBuckets: 16}, {Bucket: 4, VirtualBuckets: 32}, {Bucket: 16, VirtualBuckets: 8}} {
		o.Step(fmt.Sprintf("M = %d, R = %d", s.Bucket, s.VirtualBuckets))
		err := fillInSteps(w, o.N, s, func(x step) {
			bound := any(nil)
			if b := math.Pow(1/(1-x.load), float64(s.VirtualBuckets)); b <= most {
				bound = round(b)
			}
			rings := per(x.rings, x.moves)
			if x.refused > 0 {
				rings = nil
			}
			fig.add(s.Bucket, s.VirtualBuckets, round(x.load), x.inserts, x.moves, x.rings, rings, bound, per(x.moved, x.moves),
				x.refused, round(100*float64(x.refused)/float64(x.inserts)), round(100*failure(x.pairs, x.slots, s.Bucket, s.VirtualBuckets)))
		})
		if err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// step is what one step of fillInSteps counted.
type step struct {
	load         float64 // before
	pairs, slots int     // before
	inserts      int     // of new keys
	moves, moved int
	rings        int
	refused      int
}

// fillInSteps fills a table of about that many slots until it refuses half of a step's pairs, or is full.
func fillInSteps(w *work[uint32, uint32], slots int, s gph.Setting, done func(step)) (err error) {
	m, err := fixedGPH(w.d, slots, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.d.Stream()
	before, err := m.IndexStats()
	if err != nil {
		return err
	}
	batch := max(16, before.Capacity/50)
	for first, out := 0, 0; first+batch <= w.o.N && 2*out < batch && before.Len < before.Capacity; first += batch {
		lost, err := refused(m.InsertOn(st, w.keys.Slice(first, first+batch), w.values.Slice(first, first+batch)))
		if err != nil {
			return err
		}
		x, err := m.IndexStats()
		if err != nil {
			return err
		}
		if x.Capacity != before.Capacity || x.Rings < before.Rings {
			return fmt.Errorf("bench: a table that must not grow was rebuilt, from %d slots to %d", before.Capacity, x.Capacity)
		}
		out = len(lost)
		if x.Moves < before.Moves { // the table was laid anew, and counts from there
			before.Moves, before.Moved, before.Rings = 0, 0, 0
		}
		done(step{before.LoadFactor, before.Len, before.Capacity, batch, x.Moves - before.Moves, x.Moved - before.Moved, x.Rings - before.Rings, out})
		before = x
	}
	return nil
}

// failure is section 6.2's probability that more than R · M of so many pairs come to the R buckets of a cell, if each pair
// goes to any bucket: the tail of a binomial distribution.
func failure(pairs, slots, bucket, virtual int) float64 {
	room := bucket * virtual
	if pairs <= room || slots < room {
		return 0
	}
	return mathext.RegIncBeta(float64(room+1), float64(pairs-room), min(1, float64(room)/float64(slots)))
}

// gphPairs is Figure 15(b): inserts by the bytes of a pair, over tables of the sizes of Figure 14. Of keys of 2 bytes there
// are few: pairs of 4 bytes are compared in small tables.
func gphPairs(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{
		Title:   "GPH, Figure 15(b): inserts into an empty table by the bytes of a pair",
		Columns: []string{"pair bytes", "pairs"},
		Notes: []string{"loads are those of 1.25 to 2 GB for 100 million pairs of 8 bytes; there are 65,536 keys of 2 bytes, so all sizes are measured on few pairs too, " +
			"where launches take most of the time"},
		Plots: []Plot{{Title: "Inserts by the bytes of a pair, mean over four load factors", X: "pair bytes", Y: "mean G/s", Series: "pairs", LogX: true}},
	}
	var loads []float64
	for _, s := range gphBySize {
		loads = append(loads, gphLoad(gphRandom, s.GB))
		fig.Columns = append(fig.Columns, fmt.Sprintf("G/s at %.3f", loads[len(loads)-1]))
	}
	fig.Columns = append(fig.Columns, "mean G/s", "against 8 bytes %", "wrong", "note")
	few := min(o.N, 3<<14)
	for _, n := range slices.Compact([]int{few, o.N}) {
		eight := 0.0
		for _, x := range []struct {
			bytes int
			run   func(*device.Device, int, []float64) ([]float64, int, error)
		}{{8, insertRates[uint32, uint32]}, {4, insertRates[uint16, uint16]}, {16, insertRates[uint64, uint64]}} {
			if x.bytes == 4 && n > few {
				continue
			}
			o.Step(fmt.Sprintf("%d pairs of %d bytes", n, x.bytes))
			row := []any{x.bytes, n}
			rates, wrong, err := x.run(d, n, loads)
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				fig.add(append(row, slices.Concat(make([]any, len(loads)+3), []any{note})...)...)
				continue
			}
			mean := 0.0
			for _, r := range rates {
				row = append(row, round(r))
				mean += r / float64(len(rates))
			}
			if x.bytes == 8 {
				eight = mean
			}
			fig.add(append(row, round(mean), round(100*(mean/eight-1)), wrong, "")...)
		}
	}
	return fig, nil
}

// insertRates measures inserts of n distinct keys for each load factor. Every pair is looked up at the end.
func insertRates[K, V ~uint16 | ~uint32 | ~uint64](d *device.Device, n int, loads []float64) (rates []float64, wrong int, err error) {
	hostKeys, hostValues := make([]K, n), make([]V, n)
	for i := range hostKeys {
		hostKeys[i], hostValues[i] = K(uint64(i)*0x9e3779b97f4a7c15), V(i) // an odd factor makes different keys of any width
	}
	keys, err := device.From(d, hostKeys)
	if err != nil {
		return nil, 0, err
	}
	defer keys.Free()
	values, err := device.From(d, hostValues)
	if err != nil {
		return nil, 0, err
	}
	defer values.Free()
	results, err := device.Make[V](d, n)
	if err != nil {
		return nil, 0, err
	}
	defer results.Free()
	found, err := device.Make[bool](d, n)
	if err != nil {
		return nil, 0, err
	}
	defer found.Free()
	for _, load := range loads {
		speed, _, bad, err := insertRate(d, load, keys, values, results, found, func(i int, v V) bool { return v == hostValues[i] })
		if err != nil {
			return nil, 0, err
		}
		rates, wrong = append(rates, speed), wrong+bad
	}
	return rates, wrong, nil
}

// insertRate measures inserts of a batch into one empty table, looks all its keys up, and counts those that are not there or
// whose value is not right. distinct is the number of pairs then.
func insertRate[K, V any](d *device.Device, load float64, keys device.Slice[K], values, results device.Slice[V], found device.Slice[bool],
	right func(i int, v V) bool) (speed float64, distinct, wrong int, err error) {
	st := d.Stream()
	m, err := gph.New[K, V](d, gph.Options{Options: table.Options{Capacity: keys.Len(), LoadFactor: load}})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t, err := timed(d, st, Runs, m.Clear, func() error { return m.InsertOn(st, keys, values) })
	if err != nil {
		return 0, 0, 0, err
	}
	if err := m.FindOn(st, keys, results, found); err != nil {
		return 0, 0, 0, err
	}
	v, err := results.Host(st)
	if err != nil {
		return 0, 0, 0, err
	}
	there, err := found.Host(st)
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range v {
		if !there[i] || !right(i, v[i]) {
			wrong++
		}
	}
	distinct, err = m.Len()
	return rate(keys.Len(), t), distinct, wrong, err
}

// gphSkewRecords is the number of records of Figure 15(c).
const gphSkewRecords = 50_000_000

// gphSkew is Figure 15(c): inserts of records whose keys are drawn from as many by Zipf's law. Records of one key overwrite
// one another, each with a value of its own.
func gphSkew(d *device.Device, o FigOptions) (*Fig, error) {
	n := scaled(gphSkewRecords, o.N)
	fig := &Fig{
		Title:   fmt.Sprintf("GPH, Figure 15(c): inserts of %d records of 4+4 bytes, keys by Zipf's law", n),
		Columns: []string{"s", "records", "distinct", "insert G/s", "wrong", "note"},
		Plots:   []Plot{{Title: "Inserts by skew", X: "s", Y: "insert G/s"}},
	}
	st := d.Stream()
	keys, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer keys.Free()
	host, values, expect := make([]uint32, n), make([]uint32, n), make([]byte, n)
	for i := range values {
		values[i] = uint32(i)
	}
	ordinals, err := device.From(d, values)
	if err != nil {
		return nil, err
	}
	defer ordinals.Free()
	results, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer results.Free()
	found, err := device.Make[bool](d, n)
	if err != nil {
		return nil, err
	}
	defer found.Free()
	for _, s := range []float64{0, 0.5, 0.8, 1, 1.5, 2, 3, 4} {
		o.Step(fmt.Sprintf("s = %v", s))
		kind := "rand" // drawn uniformly
		if s > 0 {
			kind = fmt.Sprintf("zipf:%v", s)
		}
		k, err := workload.NewKeys(kind, 4, 1)
		if err != nil {
			return nil, err
		}
		workload.Queries(k, uint64(n), 1, host, expect)
		if err := keys.Write(st, host); err != nil {
			return nil, err
		}
		// The value is the number of a record with this key.
		speed, distinct, wrong, err := insertRate(d, gphTunedLoad, keys, ordinals, results, found, func(i int, v uint32) bool { return int(v) < n && host[v] == host[i] })
		if err != nil {
			note, err := refusal(err)
			if err != nil {
				return nil, err
			}
			fig.add(s, n, nil, nil, nil, note)
			continue
		}
		fig.add(s, n, distinct, round(speed), wrong, "")
	}
	return fig, nil
}

// gphOverwrite measures inserts of keys that are all in the table: with Insert, which gives each another value, and with
// InsertNew, which leaves them alone.
func gphOverwrite(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{
		Title:   fmt.Sprintf("Inserts of %d keys that are there, pairs of 4+4 bytes", o.N),
		Columns: []string{"load", "table", "insert G/s", "overwrite G/s", "insert-new G/s", "wrong", "note"},
		Notes:   []string{"insert: into an empty table, for comparison"},
		Plots: []Plot{
			{Name: "insert", Title: "Inserts that only overwrite", X: "load", Y: "overwrite G/s", Series: "table"},
			{Name: "new", Title: "InsertNew of keys that are there", X: "load", Y: "insert-new G/s", Series: "table"},
		},
	}
	o.Step(fmt.Sprintf("making %d pairs", o.N))
	w, err := newWork[uint32, uint32](d, TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 1, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.free()
	values, err := w.values.Host(d.Stream())
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] = ^values[i]
	}
	others, err := device.From(d, values)
	if err != nil {
		return nil, err
	}
	defer others.Free()
	added, err := device.Make[bool](d, o.N)
	if err != nil {
		return nil, err
	}
	defer added.Free()
	for _, load := range []float64{0.5, 0.6, 0.7, 0.8, 0.9} {
		for _, family := range warpmap.Families(table.KindMap) {
			kind := string(family)
			o.Step(fmt.Sprintf("load factor %v: %s", load, kind))
			row, err := overwrites(w, kind, load, others, added)
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{nil, nil, nil, nil, note}
			}
			fig.add(append([]any{load, kind}, row...)...)
		}
	}
	return fig, nil
}

func overwrites(w *work[uint32, uint32], kind string, load float64, others device.Slice[uint32], added device.Slice[bool]) (row []any, err error) {
	st, n := w.d.Stream(), w.o.N
	m, err := warpmap.New[uint32, uint32](w.d, table.Family(kind), table.Options{Capacity: n, LoadFactor: load})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	insert, err := timed(w.d, st, Runs, m.Clear, func() error { return m.InsertOn(st, w.keys, w.values) })
	if err != nil {
		return nil, err
	}
	// In turns, so that each run changes every value.
	turn := 0
	overwrite, err := timed(w.d, st, Runs, nil, func() error {
		turn++
		if turn%2 == 1 {
			return m.InsertOn(st, w.keys, others)
		}
		return m.InsertOn(st, w.keys, w.values)
	})
	if err != nil {
		return nil, err
	}
	wrong := 0
	check := func() error {
		if err := m.FindOn(st, w.queries, w.results, w.found); err != nil {
			return err
		}
		bad, err := w.count(st)
		wrong += bad
		return err
	}
	if err := m.InsertOn(st, w.keys, others); err != nil {
		return nil, err
	}
	if err := check(); err != nil {
		return nil, err
	}
	wrong = w.o.Queries - wrong // every answer has the other value
	if err := m.InsertOn(st, w.keys, w.values); err != nil {
		return nil, err
	}
	fresh, err := timed(w.d, st, Runs, nil, func() error { return m.InsertNewOn(st, w.keys, others, added) })
	if err != nil {
		return nil, err
	}
	was, err := added.Host(st)
	if err != nil {
		return nil, err
	}
	wrong += table.Count(was)
	if err := check(); err != nil {
		return nil, err
	}
	return []any{round(rate(n, insert)), round(rate(n, overwrite)), round(rate(n, fresh)), wrong, ""}, nil
}
