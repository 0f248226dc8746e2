package slabhash

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// figure7a is Figure 7a: o.N pairs to begin with, and batches of as many operations.
func figure7a(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 7a: mixed batches of %d operations on as many pairs of 4+4 bytes", o.N),
		Columns: []string{"Γ", "utilization", "β", "slabs a bucket", "mixed G/s", "utilization after", "wrong", "note"},
		Notes: []string{gammaNote,
			"utilization: before the first batch; wrong: operations with another status or value than must come of them, and pairs too many or too few in the end",
			"maps neither grow nor shrink; flushes of deleted pairs, which the default policy makes at the end of a batch, are part of the time"},
		Plots: []bench.Plot{{Title: "SlabHash, Figure 7a: mixed batches", X: "utilization", Y: "mixed G/s", Series: "Γ"}},
	}
	batches := make([]*mixing, bench.Runs+1)
	for i := range batches {
		x, err := newMixing(d, o.N)
		if err != nil {
			return nil, err
		}
		defer x.free()
		batches[i] = x
	}
	for _, g := range gammas {
		for _, u := range []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9} {
			o.Step(fmt.Sprintf("%s at a utilization of %v", g.name, u))
			row, err := measureMixed(d, batches, betaFor(u), g.shares)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{u, nil, nil, nil, nil, nil, note}
			}
			fig.Add(append([]any{g.name}, row...)...)
		}
	}
	return fig, nil
}

// measureMixed fills a map, makes batches, and runs them in it one after the other: the first to warm up, and of the others
// the median counts.
func measureMixed(d *device.Device, batches []*mixing, beta float64, shares [4]float64) (row []any, err error) {
	m, err := fixedSlab(d, batches[0].n, beta)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st, x := d.Stream(), batches[0]
	workload.Pairs(x.kinds, x.host.keys, x.host.values)
	present := append(x.host.present[:0], x.host.keys...)
	if err := errors.Join(x.keys.Write(st, x.host.keys), x.values.Write(st, x.host.values), m.InsertOn(st, x.keys, x.values)); err != nil {
		return nil, err
	}
	before, err := m.SlabStats()
	if err != nil {
		return nil, err
	}
	rng, fresh := rand.New(rand.NewPCG(1, uint64(x.n))), x.n
	for _, x := range batches {
		h := &x.host
		h.present = present
		fresh += h.next(x.kinds, rng, shares, fresh)
		present = h.present
		if err := errors.Join(x.ops.Write(st, h.ops), x.keys.Write(st, h.keys), x.values.Write(st, h.values)); err != nil {
			return nil, err
		}
	}
	run := 0
	t, err := bench.Timed(d, st, len(batches)-1, nil, func() error {
		x := batches[run]
		run++
		return m.MixedOn(st, x.ops, x.keys, x.values, x.results, x.status)
	})
	if err != nil {
		return nil, err
	}
	after, err := m.SlabStats()
	if err != nil {
		return nil, err
	}
	wrong := max(after.Len-len(present), len(present)-after.Len)
	for _, x := range batches {
		bad, err := x.wrong(st)
		if err != nil {
			return nil, err
		}
		wrong += bad
	}
	return []any{bench.Round(before.Utilization), bench.Round(before.AverageSlabCount), bench.Round(before.SlabsPerBucket), bench.Round(bench.Rate(x.n, t)),
		bench.Round(after.Utilization), wrong, ""}, nil
}
