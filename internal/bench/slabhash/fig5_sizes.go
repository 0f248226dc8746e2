package slabhash

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// figure5 is Figure 5: o.N is the largest of the sizes.
func figure5(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	load := slabUtilization(slabBeta)
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 5: up to %d pairs of 4+4 bytes, β = %v", o.N, slabBeta),
		Columns: []string{"pairs", "table", "utilization", "insert G/s", "find G/s, all hits", "find G/s, no hits", "wrong", "note"},
		Notes:   []string{baseline.CuckooNote},
		Plots: []bench.Plot{
			{Name: "insert", Title: "SlabHash, Figure 5a: inserts into an empty table", X: "pairs", Y: "insert G/s", Series: "table", LogX: true},
			{Name: "hits", Title: "SlabHash, Figure 5b: look-ups, all hits", X: "pairs", Y: "find G/s, all hits", Series: "table", LogX: true},
			{Name: "none", Title: "SlabHash, Figure 5b: look-ups, no hits", X: "pairs", Y: "find G/s, no hits", Series: "table", LogX: true},
		},
	}
	var faster against
	for half := 11; half >= 0; half-- { // 2^16 to 2^27
		n := o.N >> half
		if n == 0 {
			continue
		}
		o.Step(fmt.Sprintf("%d pairs", n))
		var both [2]slabRow
		err := slabOf(d, n, func(i int, r slabRow, note string, err error) error {
			kind := []string{"slab", "cuckoo"}[i]
			if err != nil {
				note, err := bench.Refusal(err)
				fig.Add(n, kind, nil, nil, nil, nil, nil, note)
				return err
			}
			u := r.stats.Utilization
			if kind == "cuckoo" {
				u = load
			}
			both[i] = r
			fig.Add(n, kind, bench.Round(u), bench.Round(r.build), bench.Round(r.hits), bench.Round(r.none), r.wrong, note)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if both[0].build > 0 && both[1].build > 0 {
			faster.add(both[1], both[0])
		}
	}
	fig.Notes = append(fig.Notes, faster.String())
	return fig, nil
}

// slabOf measures slab and cuckoo with n pairs, and hands both to done.
func slabOf(d *device.Device, n int, done func(i int, r slabRow, note string, err error) error) error {
	w, err := newWork(d, n)
	if err != nil {
		return errors.Join(done(0, slabRow{}, "", err), done(1, slabRow{}, "", err))
	}
	defer w.Free()
	r, err := slabAt(w, slabBeta)
	if err := done(0, r, "", err); err != nil {
		return err
	}
	r, note, err := measureCuckoo(w, slabUtilization(slabBeta))
	return done(1, r, note, err)
}
