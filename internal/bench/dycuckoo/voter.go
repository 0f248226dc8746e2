package dycuckoo

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// choice is DyCuckoo's table with some of its options.
func choice(name string, o dycuckoo.Options) subject {
	return subject{name, true, func(d *device.Device, s settings) (store, error) { return opened(newChoice(d, s, o)) }}
}

func newChoice(d *device.Device, s settings, o dycuckoo.Options) (*dycuckoo.Map[uint32, uint32], error) {
	o.Options, o.Low, o.Subtables = table.Options{Capacity: s.pairs, LoadFactor: s.high, Seed: seed}, s.low, s.subtables
	return dycuckoo.New[uint32, uint32](d, o)
}

// hot is a set in which keys come again as those of the paper's celebrities do: 64 pairs a key, of which the keys that
// came first have most.
func hot(n int) workload.DataSet {
	return workload.DataSet{Name: "HOT", Pairs: n, Distinct: max(1, n/64), Keys: workload.Keys{Kind: "rand", Bytes: 4, Seed: seed + 9}, Skewed: true}
}

// voterCoordination sets the paper's voter coordination (§5.2, Algorithm 1) beside lanes that each insert a pair of
// their own, under the same locks.
func voterCoordination(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: "DyCuckoo, section 5.2: voter coordination, pairs of 4+4 bytes",
		Notes: append(staticNotes(o.N), "lanes: each inserts the pair that it brings, under the locks of its two buckets; voters: a warp inserts the pair of a leader it votes for; packed: without locks, for comparison",
			"HOT: 64 pairs a key, of which the keys that came first have most; wide has 7 slots a bucket, and so is filled less"),
		Columns: append([]string{"data", "filled to"}, staticColumns...),
		Plots: []bench.Plot{
			{Name: "insert", Title: "DyCuckoo, voter coordination: insert, filled to 0.85", X: "data", Y: "insert G/s", Series: "table", Only: map[string]any{"filled to": high}},
		},
	}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	tables := []subject{choice("packed", dycuckoo.Options{})}
	for _, layout := range []dycuckoo.Layout{dycuckoo.PackedLocked, dycuckoo.Wide} {
		tables = append(tables, choice(layout.String()+", lanes", dycuckoo.Options{Layout: layout}), choice(layout.String()+", voters", dycuckoo.Options{Layout: layout, Coordination: dycuckoo.Voter}))
	}
	for _, set := range append(sets, hot(o.N)) {
		for _, factor := range []float64{0.5, high} {
			if factor != high && set.Name != "RAND" || set.Name == "RE" || set.Name == "LINE" { // are as TW
				continue
			}
			o.Step(fmt.Sprintf("%s, filled to %v", set.Name, factor))
			if _, err := static(d, fig, set, factor, subtables, tables, set.Name, factor); err != nil {
				return nil, err
			}
		}
	}
	return fig, nil
}
