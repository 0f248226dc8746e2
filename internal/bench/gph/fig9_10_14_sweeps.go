package gph

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// figure9 is look-ups by the table's size.
func figure9(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{Title: "GPH, Figure 9: look-ups by the table's size, half of them hits, pairs of 4+4 bytes", Plots: []bench.Plot{
		{Title: "Look-ups, 50% hits", X: "table GB", Y: "find G/s", Series: "table", Facet: "data"}}}
	return fig, sweep(d, o, fig, bySize, false)
}

// figure10 is look-ups by the share of hits.
func figure10(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	gb := sized(byHits[0].GB, o.N)
	fig := &bench.Fig{Title: fmt.Sprintf("GPH, Figure 10: look-ups by the share of hits, in %g GB, pairs of 4+4 bytes", gb), Plots: []bench.Plot{
		{Title: fmt.Sprintf("Look-ups in %g GB", gb), X: "hits %", Y: "find G/s", Series: "table", Facet: "data"}}}
	return fig, sweep(d, o, fig, byHits, false)
}

// figure14 is inserts by the table's size.
func figure14(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{Title: "GPH, Figure 14: inserts into an empty table by its size, pairs of 4+4 bytes", Plots: []bench.Plot{
		{Title: "Inserts into an empty table", X: "table GB", Y: "insert G/s", Series: "table", Facet: "data"}}}
	return fig, sweep(d, o, fig, bySize, true)
}

// sweep measures all kinds on all data sets: look-ups or, with inserts, inserts, whose pairs one batch of look-ups
// then verifies. A table that cannot hold the pairs has empty cells, and a note that says why.
func sweep(d *device.Device, o bench.FigOptions, fig *bench.Fig, settings []setting, inserts bool) error {
	rates := "find G/s"
	if inserts {
		rates = "insert G/s"
	}
	fig.Columns = []string{"data", "pairs", "table GB", "load", "hits %", "table", rates, "MiB", "wrong", "note"}
	fig.Notes = append(scaleNote(o.N), "keys of Lineitem are hashes to 4 bytes: among 100 million rows, 1.2% have another's, and one pair of these stays")
	tables, err := subjects(d, true)
	if err != nil {
		return err
	}
	for _, set := range dataSets {
		t := bench.TableOptions{Keys: set.keys, KeyBytes: 4, ValueBytes: 4, N: scaled(set.pairs, o.N), Queries: 2 * o.N, Hits: settings[0].Hits, Seed: 1}
		o.Step(fmt.Sprintf("%s: making %d pairs and %d look-ups", set.name, t.N, t.Queries))
		err := eachSetting(d, t, settings, func(w *bench.Work[uint32, uint32], s setting) error {
			load := loadOf(set.pairs, s.GB)
			for _, x := range tables {
				o.Step(fmt.Sprintf("%s, %v GB, %v%% hits: %s", set.name, s.GB, 100*s.Hits, x))
				r, err := try(w, x, load, inserts)
				note := r.note
				if err != nil {
					if note, err = bench.Refusal(err); err != nil {
						return err
					}
				}
				fig.Add(set.name, t.N, sized(s.GB, o.N), bench.Round(load), 100*s.Hits, x.String(), r.rate, r.mib, r.wrong, note)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", set.name, err)
		}
	}
	return nil
}

// eachSetting makes a data set once and calls each for every setting, with its look-ups.
func eachSetting(d *device.Device, t bench.TableOptions, settings []setting, each func(*bench.Work[uint32, uint32], setting) error) error {
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.Free()
	for _, s := range settings {
		if s.Hits != w.Options.Hits {
			if err := w.Ask(s.Hits, 0); err != nil {
				return err
			}
		}
		if err := each(w, s); err != nil {
			return err
		}
	}
	return nil
}
