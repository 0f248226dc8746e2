package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// figure5 is Figure 5 of the WarpCore paper: n unique keys inserted, and all of them looked up, by the density
// and the lanes that work on a key.
func figure5(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	n := o.N
	fig := &bench.Fig{
		Title:   fmt.Sprintf("WarpCore, Figure 5: %d unique pairs of 4+4 bytes, all look-ups hit", n),
		Columns: []string{"density", "layout", "window", "group", "insert G/s", "retrieve G/s", "wrong"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "WarpCore, Figure 5: inserts", X: "density", Y: "insert G/s", Series: "group"},
			{Name: "retrieve", Title: "WarpCore, Figure 5: look-ups", X: "density", Y: "retrieve G/s", Series: "group"},
		},
	}
	groups := []int{1, 2, 4, 8, 16, 32}
	if !d.Info().CUDA() {
		groups = []int{1, 4}
	}
	t := bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: n, Queries: n, Hits: 1, Seed: 1}
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, density := range []float64{0.5, 0.6, 0.7, 0.8, 0.9, 0.95} {
		for _, g := range groups {
			m, err := warpcore.New[uint32, uint32](d, warpcore.Options{
				Options: table.Options{Capacity: n, LoadFactor: density}, InsertGroup: g, FindGroup: g})
			if err != nil {
				return nil, err
			}
			row, err := w.Measure(w.Map(m))
			m.Close()
			if err != nil {
				return nil, err
			}
			fig.Rows = append(fig.Rows, []any{density, "packed", 8, g, bench.Round(row.Insert), bench.Round(row.Find), row.Wrong})
		}
	}
	return fig, nil
}
