package gph

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
)

// theorem sets section 6.2 beside what is measured: tables that cannot grow are filled in steps of their slots.
//
// The theorem's relocations are tries to find all pairs of a cell a place in other R buckets, which here are the rings that
// are examined; displacing other cells, which the paper has not, counts them too. Its proof has buckets of one slot, which
// GPH does not, and bounds those of more.
func theorem(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return relocations(d, o, []gph.Setting{{Bucket: 4, VirtualBuckets: 2}, {Bucket: 4, VirtualBuckets: 4}, {Bucket: 4, VirtualBuckets: 8},
		{Bucket: 4, VirtualBuckets: 16}, {Bucket: 4, VirtualBuckets: 32},
		{Bucket: 16, VirtualBuckets: 8}, // the paper's own setting, and its example of section 6.2
	})
}

func relocations(d *device.Device, o bench.FigOptions, settings []gph.Setting) (*bench.Fig, error) {
	const most = 1e6 // of the bound, to be worth a cell
	fig := &bench.Fig{
		Title: fmt.Sprintf("GPH, section 6.2: relocations of an insert, and refused inserts, %d slots", o.N),
		Columns: []string{"M", "R", "load", "inserts", "moves", "rings", "rings a move", "bound (1/(1-α))^R", "pairs moved a move", "refused",
			"refused %", "failure % of 6.2"},
		Notes: []string{
			"the bound takes it that there is a place; a cell that has none moves others out of its way, up to 32 times, and examines its rings anew each time",
			"load: before the step; rings: of refused inserts too, so that there is no mean of these steps; failure % of 6.2: that more than R · M of the pairs come to a cell's R buckets, if each goes anywhere",
		},
		Plots: []bench.Plot{
			{Name: "relocations", Title: "Rings examined for a move, M = 4; dashed: (1/(1-α))^R", X: "load", Y: "rings a move", Series: "R",
				Only: map[string]any{"M": 4}, Bound: "bound (1/(1-α))^R", LogY: true},
			{Name: "failures", Title: "Refused inserts, M = 4; dashed: section 6.2", X: "load", Y: "refused %", Series: "R",
				Only: map[string]any{"M": 4}, Bound: "failure % of 6.2"},
		},
	}
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 2 * o.N, Queries: 1, Hits: 1, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, s := range settings {
		o.Step(fmt.Sprintf("M = %d, R = %d", s.Bucket, s.VirtualBuckets))
		err := fillInSteps(w, o.N, s, func(x step) {
			bound := any(nil)
			if b := math.Pow(1/(1-x.load), float64(s.VirtualBuckets)); b <= most {
				bound = bench.Round(b)
			}
			rings := per(x.rings, x.moves)
			if x.refused > 0 {
				rings = nil
			}
			fig.Add(s.Bucket, s.VirtualBuckets, bench.Round(x.load), x.inserts, x.moves, x.rings, rings, bound, per(x.moved, x.moves),
				x.refused, bench.Round(100*float64(x.refused)/float64(x.inserts)), bench.Round(100*failure(x.pairs, x.slots, s.Bucket, s.VirtualBuckets)))
		})
		if err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// step is what one step of fillInSteps counted.
type step struct {
	load         float64 // before
	pairs, slots int     // before
	inserts      int     // of new keys
	moves, moved int
	rings        int
	refused      int
}

// fillInSteps fills a table of about that many slots until it refuses half of a step's pairs, or is full.
func fillInSteps(w *bench.Work[uint32, uint32], slots int, s gph.Setting, done func(step)) (err error) {
	m, err := fixed(w.Device, slots, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.Device.Stream()
	before, err := m.IndexStats()
	if err != nil {
		return err
	}
	batch := max(16, before.Capacity/50)
	for first, out := 0, 0; first+batch <= w.Options.N && 2*out < batch && before.Len < before.Capacity; first += batch {
		lost, err := refused(m.InsertOn(st, w.Keys.Slice(first, first+batch), w.Values.Slice(first, first+batch)))
		if err != nil {
			return err
		}
		x, err := m.IndexStats()
		if err != nil {
			return err
		}
		if x.Capacity != before.Capacity || x.Rings < before.Rings {
			return fmt.Errorf("bench: a table that must not grow was rebuilt, from %d slots to %d", before.Capacity, x.Capacity)
		}
		out = len(lost)
		if x.Moves < before.Moves { // the table was laid anew, and counts from there
			before.Moves, before.Moved, before.Rings = 0, 0, 0
		}
		done(step{before.LoadFactor, before.Len, before.Capacity, batch, x.Moves - before.Moves, x.Moved - before.Moved, x.Rings - before.Rings, out})
		before = x
	}
	return nil
}

// failure is section 6.2's probability that more than R · M of so many pairs come to the R buckets of a cell, if each pair
// goes to any bucket: the tail of a binomial distribution.
func failure(pairs, slots, bucket, virtual int) float64 {
	room := bucket * virtual
	if pairs <= room || slots < room {
		return 0
	}
	return mathext.RegIncBeta(float64(room+1), float64(pairs-room), min(1, float64(room)/float64(slots)))
}
