package dycuckoo

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// balance sets the paper's choice of the first subtable (§4.3, Theorem 1) beside a home for each key, in tables of
// which none to three of four subtables have twice the slots of the others.
func balance(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: "DyCuckoo, section 4.3: which of a key's subtables comes first, RAND, pairs of 4+4 bytes",
		Notes: append(scaleNotes(o.N), "home: the key's own, and a larger subtable is the home of more; theorem1: with probabilities in proportion to n / C(m, 2)",
			"insert: batches of an eighth of all pairs into an empty table of the right size; larger: how many of four subtables have twice the slots of the others; their filled factors are measured after all inserts"),
		Columns: []string{"layout", "larger", "filled to", "balance", "pairs", "insert G/s", "find G/s, no hits", "find G/s, all hits", "buckets a hit", "larger filled", "smaller filled", "wrong", "note"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "DyCuckoo, Theorem 1: insert, filled to 0.85", X: "larger", Y: "insert G/s", Series: "balance", Facet: "layout", Only: map[string]any{"filled to": high}},
			{Name: "find", Title: "DyCuckoo, Theorem 1: look-ups, all hits, filled to 0.85", X: "larger", Y: "find G/s, all hits", Series: "balance", Facet: "layout", Only: map[string]any{"filled to": high}},
		},
	}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	rand := sets[len(sets)-1]
	for _, layout := range []dycuckoo.Layout{dycuckoo.Packed, dycuckoo.PackedLocked, dycuckoo.Wide} {
		for larger := range subtables {
			for _, factor := range []float64{0.7, high} {
				slots, err := slotsWith(d, layout, rand.Distinct, larger)
				if err != nil {
					return nil, err
				}
				set := rand.Sized(max(1, int(factor*float64(slots))))
				w, err := fill(d, set, min(set.Pairs, mostQueries))
				if err != nil {
					return nil, err
				}
				for _, b := range []dycuckoo.Balance{dycuckoo.HomeFirst, dycuckoo.Theorem1} {
					o.Step(fmt.Sprintf("%v, %d larger, filled to %v, %v", layout, larger, factor, b))
					row, err := balanceRow(w, set, slots, dycuckoo.Options{Layout: layout, Balance: b})
					if err != nil {
						note, refused := bench.Refusal(err)
						if refused != nil {
							w.Free()
							return nil, refused
						}
						row = []any{set.Pairs, nil, nil, nil, nil, nil, nil, nil, note}
					}
					fig.Add(append([]any{layout.String(), larger, factor, b.String()}, row...)...)
				}
				w.Free()
			}
		}
	}
	return fig, nil
}

// slotsWith is the number of slots of the largest table with so many larger subtables that as many pairs as there are
// fill to 0.85.
func slotsWith(d *device.Device, layout dycuckoo.Layout, pairs, larger int) (slots int, err error) {
	for n := pairs; n > 0 && err == nil; n -= (n + 15) / 16 {
		m, err := newChoice(d, settings{n, 0, high, subtables}, dycuckoo.Options{Layout: layout})
		if err != nil {
			return 0, err
		}
		list, err := m.Subtables()
		if err := errors.Join(err, m.Close()); err != nil {
			return 0, err
		}
		slots, twice := 0, 0
		for _, s := range list {
			slots += s.Slots
			if s.Slots > list[subtables-1].Slots {
				twice++
			}
		}
		if twice == larger && int(high*float64(slots)) <= pairs {
			return slots, nil
		}
	}
	return 0, fmt.Errorf("%d pairs fill no table of layout %v with %d larger subtables: take more", pairs, layout, larger)
}

// balanceRow measures a table of so many slots.
func balanceRow(w *bench.Work[uint32, uint32], set workload.DataSet, slots int, o dycuckoo.Options) (row []any, err error) {
	st := w.Device.Stream()
	m, err := newChoice(w.Device, settings{int(high * float64(slots)), 0, high, subtables}, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	insert, err := bench.Timed(w.Device, st, bench.Runs, m.Clear, func() error {
		for i := range 8 {
			first, end := set.Pairs*i/8, set.Pairs*(i+1)/8
			if err := m.InsertOn(st, w.Keys.Slice(first, end), w.Values.Slice(first, end)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err != nil {
		return nil, err
	}
	list, err := m.Subtables()
	if err != nil {
		return nil, err
	}
	row, wrong := []any{set.Pairs, bench.Round(bench.Rate(set.Pairs, insert))}, max(stats.Len-set.Distinct, set.Distinct-stats.Len)
	for _, hits := range []float64{0, 1} {
		if err := w.Ask(hits, 0); err != nil {
			return nil, err
		}
		find, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error { return m.FindOn(st, w.Queries, w.Results, w.Found) })
		if err != nil {
			return nil, err
		}
		bad, err := w.Count()
		if err != nil {
			return nil, err
		}
		row, wrong = append(row, bench.Round(bench.Rate(w.Options.Queries, find))), wrong+bad
	}
	// The filled factors of the larger subtables and of the others, of which there is one at least.
	var len, room [2]float64
	for _, s := range list {
		i := 1
		if s.Slots > list[subtables-1].Slots {
			i = 0
		}
		len[i], room[i] = len[i]+float64(s.Len), room[i]+float64(s.Slots)
	}
	filled := [2]any{nil, bench.Round(len[1] / room[1])}
	if room[0] > 0 {
		filled[0] = bench.Round(len[0] / room[0])
	}
	return append(row, bench.Round(stats.MeanProbes), filled[0], filled[1], wrong, ""), nil
}
