package stadium

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// speedLoad is the load factor of Figures 14 to 17.
const speedLoad = 0.8

// figure14 is inserts beside look-ups in device memory.
func figure14(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return inSlices(d, o, "14", false, all, sizes(o.N))
}

// figure16 is the same in host memory.
func figure16(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return inSlices(d, o, "16", true, all, sizes(o.N))
}

const (
	slicesNote = "slices of 100,000 operations, or an eighth of all, in each as many inserts as look-ups, of keys that the slice before inserted, in rows of 32 of one kind. A slice is a kernel; of cuckoo it is two, " +
		"of which one passes over the look-ups, and the other over the inserts. stadium's MixedOn goes to host memory in no order"
	accessNote = "a ticket of the paper's tables has an access bit for one of its info bits; tickets of 1 bit have 2"
)

var ways = [2]string{"all", "half"} // by hitShares

// inSlices measures slices of inserts and look-ups.
func inSlices(d *device.Device, o bench.FigOptions, number string, host bool, t tickets, pairs []int) (*bench.Fig, error) {
	title := fmt.Sprintf("Stadium hashing, Figure %s", number)
	where := "in device memory"
	if host {
		where = "in pinned host memory"
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s: inserts beside look-ups, up to %d pairs of 4+4 bytes %s, load factor %v", title, o.N, where, speedLoad),
		Columns: []string{"hits", "pairs", "table", "ticket", "G/s", "times as fast as cuckoo", "wrong", "note"},
		Notes:   append(scaled(o.N, paperPairs), slicesNote, accessNote, namesNote, hybridNote, baseline.CuckooNote+". Here slices are added to it, and never built anew", timesNote),
	}
	for i, way := range ways {
		only := map[string]any{"hits": way}
		part := title + string(rune('a'+i))
		fig.Plots = append(fig.Plots,
			bench.Plot{Name: string(rune('a' + i)), Title: part + ": " + where + ", " + way + " of the look-ups hit", X: "pairs", Y: "times as fast as cuckoo", Series: "table", LogX: true, Only: only},
			bench.Plot{Name: string(rune('a'+i)) + "-rate", Title: part + ": " + where + ", " + way + " of the look-ups hit", X: "pairs", Y: "G/s", Series: "table", LogX: true, Only: only})
	}
	tables := append([]subject[uint32, uint32]{cudpp()}, with[uint32, uint32](t, hybrid)...)
	for i, way := range ways {
		var v versus
		for _, n := range pairs {
			x, err := newInterleaved(d, n, hitShares[i])
			if err != nil {
				return nil, err
			}
			var first any // cuckoo's rate
			for _, sub := range tables {
				o.Step(fmt.Sprintf("%s of the look-ups hit, %d pairs: %s", way, n, sub.name))
				rate, wrong, note, err := x.rate(sub, setting{x.pairs, speedLoad, host, true})
				if err != nil {
					x.free()
					return nil, err
				}
				if sub.ticket == nil {
					first = rate
				}
				fig.Add(way, n, sub.name, sub.ticket, rate, v.add(sub.name, rate, first), wrong, note)
			}
			x.free()
		}
		fig.Notes = append(fig.Notes, v.note(way+" hits"))
	}
	return right(fig)
}

// rate is all operations over all their time.
func (x *interleaved) rate(sub subject[uint32, uint32], s setting) (rate, wrong any, note string, err error) {
	ms, bad, err := x.on(sub, s)
	if err != nil {
		note, err = bench.Refusal(err)
		return nil, nil, note, err
	}
	return bench.Round(float64(2*x.pairs) / ms / 1e6), bad, "", nil
}

func (x *interleaved) on(sub subject[uint32, uint32], s setting) (ms float64, wrong int, err error) {
	t, err := sub.make(x.d, s)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return x.measure(t, s)
}
