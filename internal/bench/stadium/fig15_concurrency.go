package stadium

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// figure15 is what it costs to do inserts and look-ups beside one another.
func figure15(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return concurrency(d, o, all, sizes(o.N))
}

func concurrency(d *device.Device, o bench.FigOptions, t tickets, pairs []int) (*bench.Fig, error) {
	const title = "Stadium hashing, Figure 15: efficiency of inserts beside look-ups"
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s, up to %d pairs of 4+4 bytes in device memory, load factor %v", title, o.N, speedLoad),
		Columns: []string{"pairs", "table", "ticket", "insert ms", "find ms", "mixed ms", "efficiency", "insert at once ms", "find at once ms", "efficiency, at once", "wrong", "note"},
		Notes: append(scaled(o.N, paperPairs), "efficiency: time of the inserts of all slices, and then of the look-ups of all slices, over that of inserts beside look-ups; at once: where the inserts are one batch, and the look-ups another",
			slicesNote, accessNote, "all look-ups hit", namesNote, hybridNote, baseline.CuckooNote+". Here slices are added to it, and never built anew"),
		Plots: []bench.Plot{
			{Title: title, X: "pairs", Y: "efficiency", Series: "table", LogX: true},
			{Name: "once", Title: title + ", over whole batches", X: "pairs", Y: "efficiency, at once", Series: "table", LogX: true},
		},
	}
	var bySlices, byBatches meansOf
	for _, n := range pairs {
		x, err := newInterleaved(d, n, hitShares[0])
		if err != nil {
			return nil, err
		}
		for _, sub := range append([]subject[uint32, uint32]{cudpp()}, with[uint32, uint32](t, hybrid)...) {
			o.Step(fmt.Sprintf("%d pairs: %s", n, sub.name))
			p, err := x.apart(sub, setting{x.pairs, speedLoad, false, true})
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					x.free()
					return nil, err
				}
				fig.Add(n, sub.name, sub.ticket, nil, nil, nil, nil, nil, nil, nil, nil, note)
				continue
			}
			efficiency, atOnce := (p.inserts[0]+p.finds[0])/p.mixed, (p.inserts[1]+p.finds[1])/p.mixed
			bySlices.add(sub.name, efficiency)
			byBatches.add(sub.name, atOnce)
			fig.Add(n, sub.name, sub.ticket, bench.Round(p.inserts[0]), bench.Round(p.finds[0]), bench.Round(p.mixed), bench.Round(efficiency),
				bench.Round(p.inserts[1]), bench.Round(p.finds[1]), bench.Round(atOnce), p.wrong, "")
		}
		x.free()
	}
	fig.Notes = append(fig.Notes, "efficiency, geometric means: "+bySlices.String(), "efficiency, at once, geometric means: "+byBatches.String())
	return right(fig)
}

// apartness is what a table takes, in milliseconds: for inserts and look-ups by themselves, in slices and at once, and beside one another.
type apartness struct {
	inserts, finds [2]float64
	mixed          float64
	wrong          int
}

func (x *interleaved) apart(sub subject[uint32, uint32], s setting) (p apartness, err error) {
	t, err := sub.make(x.d, s)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for i, atOnce := range []bool{false, true} {
		took, err := bench.Timed(x.d, x.d.Stream(), s.runs(), t.Clear, func() error { return x.inserts(t, atOnce) })
		if err != nil {
			return p, err
		}
		if _, err := t.Stats(); err != nil { // of cuckoo, pairs without a place
			return p, err
		}
		p.inserts[i] = float64(took) / 1e6
		if took, err = bench.Timed(x.d, x.d.Stream(), s.runs(), x.soil, func() error { return x.lookUps(t, atOnce) }); err != nil {
			return p, err
		}
		p.finds[i] = float64(took) / 1e6
		wrong, err := x.wrongApart()
		if err != nil {
			return p, err
		}
		p.wrong += wrong
	}
	var wrong int
	p.mixed, wrong, err = x.measure(t, s)
	p.wrong += wrong
	return p, err
}
