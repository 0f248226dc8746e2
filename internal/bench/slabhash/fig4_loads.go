package slabhash

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// figure4 is Figure 4.
func figure4(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	slabs := map[string]any{"table": "slab"}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 4: %d pairs of 4+4 bytes by the average slab count", o.N),
		Columns: []string{"table", "β", "buckets", "slabs a bucket", "utilization", "insert G/s", "find G/s, all hits", "find G/s, no hits", "wrong", "note"},
		Notes: []string{"β: pairs over the slots of the base slabs, as measured; beyond 1 the table has come to MaxBytes, and neither grows nor shrinks",
			baseline.CuckooNote + ". Its utilization is its load factor: that of each of slab's rows, and 0.9"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "SlabHash, Figure 4a: inserts into an empty table", X: "utilization", Y: "insert G/s", Series: "table"},
			{Name: "hits", Title: "SlabHash, Figure 4b: look-ups, all hits", X: "utilization", Y: "find G/s, all hits", Series: "table"},
			{Name: "none", Title: "SlabHash, Figure 4b: look-ups, no hits", X: "utilization", Y: "find G/s, no hits", Series: "table"},
			{Name: "utilization", Title: "SlabHash, Figure 4c: memory utilization", X: "β", Y: "utilization", Only: slabs},
		},
	}
	w, err := newWork(d, o.N)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	cuckoo := func(load float64) (r slabRow, err error) {
		o.Step(fmt.Sprintf("cuckoo at a load factor of %v", load))
		r, note, err := measureCuckoo(w, load)
		if err != nil {
			note, err := bench.Refusal(err)
			fig.Add("cuckoo", nil, nil, nil, load, nil, nil, nil, nil, note)
			return slabRow{}, err
		}
		fig.Add("cuckoo", nil, nil, nil, load, bench.Round(r.build), bench.Round(r.hits), bench.Round(r.none), r.wrong, note)
		return r, nil
	}
	var faster against
	for _, beta := range []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3} {
		o.Step(fmt.Sprintf("β = %v", beta))
		r, err := slabAt(w, beta)
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return nil, err
			}
			fig.Add("slab", beta, nil, nil, nil, nil, nil, nil, nil, note)
			continue
		}
		u := bench.Round(r.stats.Utilization)
		fig.Add("slab", bench.Round(r.stats.AverageSlabCount), r.stats.Buckets, bench.Round(r.stats.SlabsPerBucket), u,
			bench.Round(r.build), bench.Round(r.hits), bench.Round(r.none), r.wrong, "")
		other, err := cuckoo(u)
		if err != nil {
			return nil, err
		}
		if other.build > 0 {
			faster.add(other, r)
		}
	}
	if _, err := cuckoo(0.9); err != nil {
		return nil, err
	}
	fig.Notes = append(fig.Notes, faster.String())
	return fig, nil
}
