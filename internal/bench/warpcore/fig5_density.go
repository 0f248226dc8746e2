package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// figure5 is Figure 5 of the WarpCore paper: n unique keys inserted, and each of them looked up once, by the density; of warpcore, by the
// lanes that work on a key, too, and of the other families as they are.
func figure5(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("WarpCore, Figure 5: %d unique pairs of 4+4 bytes, each looked up once", o.N),
		Columns: []string{"density", "table", "filled", "insert G/s", "retrieve G/s", "wrong", "note"},
		Notes:   []string{"density is the LoadFactor; filled, what came of it: some tables come in few sizes", baseline.CuckooNote},
		Plots: []bench.Plot{
			{Name: "insert", Title: "WarpCore, Figure 5a: inserts", X: "density", Y: "insert G/s", Series: "table"},
			{Name: "retrieve", Title: "WarpCore, Figure 5b: look-ups", X: "density", Y: "retrieve G/s", Series: "table"},
		},
	}
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, density := range []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95} {
		for _, x := range maps(groupsOn(d, []int{1, 2, 4, 8, 16, 32}, []int{1, 4})) {
			o.Step(fmt.Sprintf("density %v: %s", density, x.name))
			row, err := measured(w, x.make, density)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				fig.Add(density, x.name, nil, nil, nil, nil, note)
				continue
			}
			fig.Add(density, x.name, bench.Round(row.Filled), bench.Round(row.Insert), bench.Round(row.Find), row.Wrong, "")
		}
	}
	return fig, nil
}
