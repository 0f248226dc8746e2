// Package host measures what a Go program sees, with its data in Go slices.
package host

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
	"github.com/warpmap/warpmap/workload"
)

// Studies are the figures.
var Studies = []bench.Study{
	{Name: "host", About: "what a Go program sees, by the wall clock", Run: batches, CUDA: 1 << 28, CPU: 1 << 18},
	{Name: "library/strings", About: "keys that are strings, by their length, over every family", Run: stringRates, CUDA: 1 << 24, CPU: 1 << 16},
}

// batches measures what a Go program sees, by the clock on the wall: operations on Go slices beside the bus's copy
// rate, and the time that one call with a small batch takes.
func batches(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("From Go, by the wall clock: %d pairs", o.N),
		Columns: []string{"what", "figure", "unit", "of the copy rate", "of that both ways at once", "seconds"},
		Plots:   []bench.Plot{{Title: "From Go, by the wall clock", X: "what", Y: "figure", Facet: "unit"}},
	}
	x := &carried{d: d, n: o.N, fig: fig, step: o.Step}
	if err := x.copies(); err != nil {
		return nil, err
	}
	if err := slicesOf[uint32](x, 4); err != nil {
		return nil, err
	}
	if err := slicesOf[uint64](x, 8); err != nil {
		return nil, err
	}
	return fig, calls(d, fig)
}

// calls measures calls with small batches.
func calls(d *device.Device, fig *bench.Fig) error {
	st := d.Stream()
	kinds, err := workload.NewKeys("rand", 4, 1)
	if err != nil {
		return err
	}
	const small = 1000
	most, capacity := 1000, 1<<24
	if !d.Info().CUDA() {
		most, capacity = 50, 1<<18
	}
	keys, values := make([]uint32, small), make([]uint32, small)
	workload.Pairs(kinds, keys, values)
	small1, err := device.From(d, keys)
	if err != nil {
		return err
	}
	defer small1.Free()
	small2, err := device.From(d, values)
	if err != nil {
		return err
	}
	defer small2.Free()
	one, err := warpcore.New[uint32, uint32](d, warpcore.Options{Options: table.Options{Capacity: capacity}})
	if err != nil {
		return err
	}
	defer one.Close()
	for _, x := range []struct {
		what string
		f    func() error
	}{
		{"InsertOn of 1,000 pairs, queued", func() error { return one.InsertOn(st, small1, small2) }},
		{"InsertOn of 1,000 pairs, and Sync", func() error {
			if err := one.InsertOn(st, small1, small2); err != nil {
				return err
			}
			return st.Sync()
		}},
		{"FindOn of 1,000 keys, and Sync", func() error {
			if err := one.FindOn(st, small1, small2, device.Slice[bool]{}); err != nil {
				return err
			}
			return st.Sync()
		}},
		{"Insert of 1,000 pairs from Go slices", func() error { return one.Insert(keys, values) }},
	} {
		t, err := bench.Clocked(st, func() error {
			for range most {
				if err := x.f(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		fig.Add(x.what, bench.Round(float64(t.Nanoseconds())/float64(most)/1000), "µs a call", "", "", "")
	}
	return nil
}

func share(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }
