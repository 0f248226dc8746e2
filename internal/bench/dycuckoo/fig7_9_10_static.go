package dycuckoo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/workload"
)

var staticColumns = []string{"table", "pairs", "keys", "filled", "insert G/s", "find G/s, no hits", "find G/s, half hits", "find G/s, all hits", "bytes a key", "wrong", "note"}

// mostQueries bounds the look-ups of a batch: more take longer to make, and are no faster.
const mostQueries = 20_000_000

func staticNotes(n int) []string {
	return append(scaleNotes(n), "insert: all pairs of the set, of which some have a key that came before, into an empty table of the right size; look-ups: as many as pairs, 20 million at most",
		"each set is cut to as many keys as fill DyCuckoo's table to the factor exactly; filled: as measured, after all inserts", subjectsNote, megakvNote)
}

// plotsOf are insert and look-ups by x.
func plotsOf(title, x, series, facet string) []bench.Plot {
	return []bench.Plot{
		{Name: "insert", Title: title + ": insert", X: x, Y: "insert G/s", Series: series, Facet: facet},
		{Name: "find", Title: title + ": look-ups, all hits", X: x, Y: "find G/s, all hits", Series: series, Facet: facet},
		{Name: "none", Title: title + ": look-ups, no hits", X: x, Y: "find G/s, no hits", Series: series, Facet: facet},
	}
}

// figure7 varies the number of subtables.
func figure7(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return varySubtables(d, o, []int{2, 3, 4, 5, 6, 7, 8})
}

func varySubtables(d *device.Device, o bench.FigOptions, counts []int) (*bench.Fig, error) {
	fig := &bench.Fig{Title: "DyCuckoo, Figure 7: by the number of subtables, pairs of 4+4 bytes", Notes: staticNotes(o.N), Columns: append([]string{"data", "subtables"}, staticColumns...),
		Plots: plotsOf("DyCuckoo, Figure 7", "subtables", "data", "")}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, n := range counts {
			o.Step(fmt.Sprintf("%s, %d subtables", set.Name, n))
			if _, err := static(d, fig, set, high, n, []subject{own}, set.Name, n); err != nil {
				return nil, err
			}
		}
	}
	return fig, nil
}

// figure9 is inserts and look-ups over all data sets.
func figure9(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{Title: "DyCuckoo, Figure 9: static tables, filled to 0.85, pairs of 4+4 bytes", Notes: append(staticNotes(o.N), baseline.CuckooNote+"; it gets each key once", goNote),
		Columns: append([]string{"data"}, staticColumns...), Plots: plotsOf("DyCuckoo, Figure 9", "data", "table", "")}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		o.Step(set.Name)
		cut, err := static(d, fig, set, high, subtables, append(subjects(), cudpp), set.Name)
		if err != nil {
			return nil, err
		}
		row, err := measureGo(cut)
		if err != nil {
			return nil, err
		}
		fig.Add(append([]any{set.Name}, row...)...)
	}
	return fig, nil
}

// figure10 varies the filled factor.
func figure10(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{Title: "DyCuckoo, Figure 10: static tables by the filled factor, RAND, pairs of 4+4 bytes", Notes: append(staticNotes(o.N), baseline.CuckooNote),
		Columns: append([]string{"filled factor"}, staticColumns...), Plots: plotsOf("DyCuckoo, Figure 10", "filled factor", "table", "")}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	for _, factor := range []float64{0.70, 0.75, 0.80, 0.85, 0.90} {
		o.Step(fmt.Sprintf("filled to %v", factor))
		if _, err := static(d, fig, sets[len(sets)-1], factor, subtables, append(subjects(), cudpp), factor); err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// static adds a row for each table. It gives the data set as it was cut.
func static(d *device.Device, fig *bench.Fig, set workload.DataSet, factor float64, subtables int, tables []subject, head ...any) (cut workload.DataSet, err error) {
	if set, err = filling(d, set, factor, subtables); err != nil {
		return set, err
	}
	w, err := fill(d, set, min(set.Pairs, mostQueries))
	if err != nil {
		return set, err
	}
	defer w.Free()
	for _, x := range tables {
		row, err := staticRow(w, set, x, settings{set.Distinct, 0, factor, subtables})
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return set, err
			}
			row = []any{set.Pairs, set.Distinct, nil, nil, nil, nil, nil, nil, nil, note}
		}
		fig.Add(slices.Concat(head, []any{x.name}, row)...)
	}
	return set, nil
}

// staticRow measures a table.
func staticRow(w *bench.Work[uint32, uint32], set workload.DataSet, x subject, s settings) (row []any, err error) {
	st := w.Device.Stream()
	t, err := x.make(w.Device, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	keys, values, n := w.Keys, w.Values, set.Pairs
	if x.name == cudpp.name && n > set.Distinct {
		once, err := fill(w.Device, workload.DataSet{Pairs: set.Distinct, Distinct: set.Distinct, Keys: set.Keys}, 1)
		if err != nil {
			return nil, err
		}
		defer once.Free()
		keys, values, n = once.Keys, once.Values, set.Distinct
	}
	insert, err := bench.Timed(w.Device, st, bench.Runs, t.Clear, func() error { return t.InsertOn(st, keys, values) })
	if err != nil {
		return nil, err
	}
	stats, err := t.Stats()
	if err != nil {
		return nil, err
	}
	row, wrong := []any{n, set.Distinct, bench.Round(stats.LoadFactor), bench.Round(bench.Rate(n, insert))}, max(stats.Len-set.Distinct, set.Distinct-stats.Len)
	for _, hits := range []float64{0, 0.5, 1} {
		if err := w.Ask(hits, 0); err != nil {
			return nil, err
		}
		find, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error { return t.FindOn(st, w.Queries, w.Results, w.Found) })
		if err != nil {
			return nil, err
		}
		bad, err := w.Count()
		if err != nil {
			return nil, err
		}
		row, wrong = append(row, bench.Round(bench.Rate(w.Options.Queries, find))), wrong+bad
	}
	return append(row, bench.Round(float64(stats.Bytes)/float64(set.Distinct)), wrong, ""), nil
}
