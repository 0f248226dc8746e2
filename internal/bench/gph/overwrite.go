package gph

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// overwrite measures inserts of keys that are all in the table: with Insert, which gives each another value, and with
// InsertNew, which leaves them alone.
func overwrite(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("Inserts of %d keys that are there, pairs of 4+4 bytes", o.N),
		Columns: []string{"load", "table", "insert G/s", "overwrite G/s", "insert-new G/s", "wrong", "note"},
		Notes:   []string{"insert: into an empty table, for comparison"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "Inserts that only overwrite", X: "load", Y: "overwrite G/s", Series: "table"},
			{Name: "new", Title: "InsertNew of keys that are there", X: "load", Y: "insert-new G/s", Series: "table"},
		},
	}
	o.Step(fmt.Sprintf("making %d pairs", o.N))
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 1, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	values, err := w.Values.Host(d.Stream())
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
			o.Step(fmt.Sprintf("load factor %v: %s", load, family))
			row, err := overwrites(w, family, load, others, added)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{nil, nil, nil, nil, note}
			}
			fig.Add(append([]any{load, string(family)}, row...)...)
		}
	}
	return fig, nil
}

func overwrites(w *bench.Work[uint32, uint32], family table.Family, load float64, others device.Slice[uint32], added device.Slice[bool]) (row []any, err error) {
	st, n := w.Device.Stream(), w.Options.N
	m, err := bench.NewMap(w.Device, family, table.Options{Capacity: n, LoadFactor: load})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	insert, err := bench.Timed(w.Device, st, bench.Runs, m.Clear, func() error { return m.InsertOn(st, w.Keys, w.Values) })
	if err != nil {
		return nil, err
	}
	// In turns, so that each run changes every value.
	turn := 0
	overwrite, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error {
		turn++
		if turn%2 == 1 {
			return m.InsertOn(st, w.Keys, others)
		}
		return m.InsertOn(st, w.Keys, w.Values)
	})
	if err != nil {
		return nil, err
	}
	wrong := 0
	check := func() error {
		if err := m.FindOn(st, w.Queries, w.Results, w.Found); err != nil {
			return err
		}
		bad, err := w.Count()
		wrong += bad
		return err
	}
	if err := m.InsertOn(st, w.Keys, others); err != nil {
		return nil, err
	}
	if err := check(); err != nil {
		return nil, err
	}
	wrong = w.Options.Queries - wrong // every answer has the other value
	if err := m.InsertOn(st, w.Keys, w.Values); err != nil {
		return nil, err
	}
	fresh, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error { return m.InsertNewOn(st, w.Keys, others, added) })
	if err != nil {
		return nil, err
	}
	was, err := added.Host(st)
	if err != nil {
		return nil, err
	}
	wrong += frame.Count(was)
	if err := check(); err != nil {
		return nil, err
	}
	return []any{bench.Round(bench.Rate(n, insert)), bench.Round(bench.Rate(n, overwrite)), bench.Round(bench.Rate(n, fresh)), wrong, ""}, nil
}
