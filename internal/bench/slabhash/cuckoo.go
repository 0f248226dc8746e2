package slabhash

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// measureCuckoo is measureSlab for this table. The note says how often builds failed, if any did.
func measureCuckoo(w *bench.Work[uint32, uint32], load float64) (r slabRow, note string, err error) {
	c, err := baseline.NewCuckoo(w.Device, w.Options.N, load)
	if err != nil {
		return r, "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	st := w.Device.Stream()
	t, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error { return c.InsertOn(st, w.Keys, w.Values) })
	if err != nil {
		return r, "", err
	}
	r.build = bench.Rate(w.Options.N, t)
	if c.Builds > bench.Runs+1 {
		note = fmt.Sprintf("%d builds for %d tables", c.Builds, bench.Runs+1)
	}
	for hits, gs := range []*float64{&r.none, &r.hits} {
		if err := w.Ask(float64(hits), 0); err != nil {
			return r, note, err
		}
		t, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error { return c.FindOn(st, w.Queries, w.Results, w.Found) })
		if err != nil {
			return r, note, err
		}
		*gs = bench.Rate(w.Options.Queries, t)
		wrong, err := w.Count()
		r.wrong += wrong
		if err != nil {
			return r, note, err
		}
	}
	return r, note, nil
}

// against is by how much one table is faster than another, as a geometric mean over a figure.
type against struct{ build, hits, none bench.Mean }

func (a *against) add(one, other slabRow) {
	a.build.Add(one.build / other.build)
	a.hits.Add(one.hits / other.hits)
	a.none.Add(one.none / other.none)
}

func (a *against) String() string {
	return fmt.Sprintf("rates of cuckoo over those of slab, geometric means: inserts %.3g, look-ups with all hits %.3g, with no hits %.3g",
		a.build.Of(), a.hits.Of(), a.none.Of())
}
