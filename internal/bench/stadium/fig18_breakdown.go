package stadium

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

const (
	breakdownLoad = 0.85
	farPairs      = 320_000_000
	nearPairs     = 160_000_000
)

// figure18a is what the board and the lanes that work together are good for, in host memory.
func figure18a(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return breakdown(d, o, "18a", true, farPairs, all)
}

// figure18b is the same in device memory.
func figure18b(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return breakdown(d, o, "18b", false, nearPairs, all)
}

func breakdown(d *device.Device, o bench.FigOptions, number string, host bool, paper int, t tickets) (*bench.Fig, error) {
	title := "Stadium hashing, Figure " + number
	where := "in device memory"
	if host {
		where = "in pinned host memory"
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s: %d pairs of 8+8 bytes %s, load factor %v", title, o.N, where, breakdownLoad),
		Columns: append([]string{"table", "ticket"}, rateColumns...),
		Notes: append(scaled(o.N, paper), "as many look-ups as pairs; no board: look-ups compare keys, and end at a bucket whose key is all ones; the board has tickets of 1 bit for its inserts",
			namesNote, hybridNote, timesNote),
	}
	for _, p := range ratePlots(title, bench.Plot{X: "table"})[:3] {
		p.Series = ""
		fig.Plots = append(fig.Plots, p)
	}
	b, err := newBatches[uint64, uint64](d, o.N)
	if err != nil {
		return nil, err
	}
	defer b.free()
	for _, sub := range append([]subject[uint64, uint64]{boardless[uint64, uint64]()}, with[uint64, uint64](t, plain, hybrid)...) {
		o.Step(sub.name)
		r, err := b.measure(sub, setting{o.N, breakdownLoad, host, false}, inserts|finds)
		if err != nil {
			return nil, err
		}
		fig.Add(append([]any{sub.name, sub.ticket}, r.cells()...)...)
	}
	return right(fig)
}
