package dycuckoo

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// figure12 is filled factor and memory after each batch.
func figure12(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   "DyCuckoo, Figure 12: filled factor and memory after each batch, pairs of 4+4 bytes",
		Columns: []string{"data", "table", "batch", "pairs", "filled", "bytes a pair", "wrong", "note"},
		Notes: append(dynamicNotes(o.N), fmt.Sprintf("r = %v, α = %v, β = %v; bytes a pair: the memory of the table itself over its pairs; wrong: pairs too many or too few, and look-ups in the last row",
			ratio, low, high)),
		Plots: []bench.Plot{
			{Name: "filled", Title: "DyCuckoo, Figure 12: filled factor", X: "batch", Y: "filled", Series: "table", Facet: "data"},
			{Name: "memory", Title: "DyCuckoo, Figure 12: memory", X: "batch", Y: "bytes a pair", Series: "table", Facet: "data"},
		},
	}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	all := map[string]*summary{}
	for _, set := range sets {
		x, err := newDynamic(d, set, batchOf(d, o, 1), ratio)
		if err != nil {
			return nil, err
		}
		for _, t := range subjects() {
			o.Step(fmt.Sprintf("%s: %s", set.Name, t.name))
			if all[t.name] == nil {
				all[t.name] = &summary{least: 1}
			}
			if err := x.follow(fig, t, all[t.name]); err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					x.free()
					return nil, err
				}
				fig.Add(set.Name, t.name, nil, nil, nil, nil, nil, note)
			}
		}
		x.free()
	}
	for _, t := range subjects() {
		if s := all[t.name]; s.rows > 0 {
			fig.Notes = append(fig.Notes, fmt.Sprintf("%s over all batches of all sets: %.3g bytes a pair on average, %.3g at most; filled %.3g at least, %.3g at most",
				t.name, s.bytes/float64(s.rows), s.worst, s.least, s.most))
		}
	}
	return fig, nil
}

// summary is of a table's rows.
type summary struct {
	rows         int
	bytes, worst float64 // bytes a pair: their sum, the most
	least, most  float64 // filled factor
}

// follow runs all batches once, and adds a row for each.
func (x *dynamic) follow(fig *bench.Fig, sub subject, sum *summary) (err error) {
	t, err := sub.make(x.w.Device, normal().s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for i, s := range x.Steps {
		if err := x.step(t, s); err != nil {
			return err
		}
		stats, err := t.Stats()
		if err != nil {
			return err
		}
		wrong := max(stats.Len-s.Live, s.Live-stats.Len)
		if i == len(x.Steps)-1 {
			bad, err := x.w.Count()
			if err != nil {
				return err
			}
			wrong += bad
		}
		var bytes any
		if s.Live > 0 {
			b := float64(stats.Bytes) / float64(s.Live)
			sum.rows, sum.bytes, sum.worst = sum.rows+1, sum.bytes+b, max(sum.worst, b)
			sum.least, sum.most = min(sum.least, stats.LoadFactor), max(sum.most, stats.LoadFactor)
			bytes = bench.Round(b)
		}
		fig.Add(x.Set.Name, sub.name, i+1, stats.Len, bench.Round(stats.LoadFactor), bytes, wrong, "")
	}
	return nil
}
