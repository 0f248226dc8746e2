package shard

import (
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
)

// way is how a table over several devices works.
type way struct {
	name string
	o    shard.Options
}

var ways = []way{
	{"step by step, copies", shard.Options{Apart: true, Copies: true}},
	{"step by step, remote writes", shard.Options{Apart: true}},
	{"overlapped, copies", shard.Options{Copies: true}},
	{"overlapped, remote writes", shard.Options{}},
	{"independent", shard.Options{Mode: shard.Independent}},
}

// devicesOf are those of the options; else d, or four CPU devices in place of one.
func devicesOf(d *device.Device, o bench.FigOptions) (devices []*device.Device, closeAll func() error, err error) {
	if len(o.Devices) > 0 {
		return o.Devices, func() error { return nil }, nil
	}
	if d.Info().CUDA() {
		return []*device.Device{d}, func() error { return nil }, nil
	}
	devices, err = device.OpenAll("cpu:0,cpu:1,cpu:2,cpu:3")
	return devices, func() (err error) {
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
		return err
	}, err
}

// counts are 1, 2, 4, … devices, and all.
func counts(all int) (out []int) {
	for n := 1; n < all; n *= 2 {
		out = append(out, n)
	}
	return append(out, all)
}

// figure6 is Figure 6 of the WarpCore paper, weak scaling of insertion with the shares of its steps, and beyond it: overlapped, look-ups, strong scaling, and
// the independent mode. Efficiency is against one device without any splitting.
func figure6(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	const load, hits = 0.8, 0.5
	fig = &bench.Fig{
		Title: fmt.Sprintf("WarpCore, Figure 6: %d pairs of 4+4 bytes on each device (weak) or %d on all (strong), load factor %v, half of the look-ups hit", o.N, 4*o.N, load),
		Columns: []string{"scaling", "way", "devices", "pairs a device", "insert G/s", "insert efficiency", "find G/s", "find efficiency",
			"count ms", "split ms", "send ms", "insert ms", "find: count ms", "find: split ms", "find: send ms", "find: look up ms", "find: fetch ms", "filled", "wrong", "note"},
		Notes: []string{"rates are of all devices together, by the wall clock; efficiency is against one device without splitting, of as many pairs (weak) or all (strong)",
			"steps are apart and clocked only where the way says so; with remote writes splitting sends"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "Scaling of insertion", X: "devices", Y: "insert efficiency", Series: "way", Facet: "scaling"},
			{Name: "find", Title: "Scaling of look-ups", X: "devices", Y: "find efficiency", Series: "way", Facet: "scaling"},
		},
	}
	devices, closeAll, err := devicesOf(d, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, scaling := range []string{"weak", "strong"} {
		size := func(n int) int {
			if scaling == "weak" {
				return o.N
			}
			return max(1, 4*o.N/n)
		}
		var one Row
		for _, n := range counts(len(devices)) {
			for _, w := range ways {
				if n == 1 && w.name != ways[len(ways)-2].name {
					continue // alike
				}
				o.Step(fmt.Sprintf("%s scaling, %d devices, %s", scaling, n, w.name))
				row, err := Measure(devices[:n], Options{N: size(n), Load: load, Hits: hits, Shard: w.o})
				if err != nil {
					note, err := bench.Refusal(err)
					if err != nil {
						return nil, err
					}
					fig.Add(append([]any{scaling, w.name, n, size(n)}, append(make([]any, 15), note)...)...)
					continue
				}
				name := w.name
				if n == 1 {
					one, name = row, "one device"
				}
				fig.Add(append(append([]any{scaling, name, n, size(n), bench.Round(row.Insert), efficiency(row.Insert, one.Insert, n),
					bench.Round(row.Find), efficiency(row.Find, one.Find, n)}, stepCells(row)...), bench.Round(row.Filled), row.Wrong, "")...)
			}
		}
	}
	return fig, nil
}

func efficiency(rate, one float64, n int) any {
	if one == 0 {
		return nil
	}
	return bench.Round(rate / one / float64(n))
}

// stepCells are the milliseconds of the steps; nil where they were not apart.
func stepCells(row Row) (cells []any) {
	i, f := row.InsertSteps, row.FindSteps
	for _, t := range []time.Duration{i.Count, i.Split, i.Send, i.Work, f.Count, f.Split, f.Send, f.Work, f.Fetch} {
		if i.Work == 0 {
			cells = append(cells, nil)
			continue
		}
		cells = append(cells, bench.Round(float64(t)/1e6))
	}
	return cells
}
