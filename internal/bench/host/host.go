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
	n := o.N
	fig := &bench.Fig{
		Title:   fmt.Sprintf("From Go, by the wall clock: %d pairs of 4+4 bytes", n),
		Columns: []string{"what", "figure", "unit", "of the copy rate"},
		Plots:   []bench.Plot{{Title: "From Go, by the wall clock", X: "what", Y: "figure", Facet: "unit"}},
	}
	add := func(what string, x float64, unit, share string) {
		fig.Rows = append(fig.Rows, []any{what, bench.Round(x), unit, share})
	}
	st := d.Stream()
	pinned, err := device.MakeHost[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer pinned.Free()
	on, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer on.Free()
	copyIn, err := bench.Clocked(st, func() error { return on.WriteAsync(st, pinned, n) })
	if err != nil {
		return nil, err
	}
	copyRate := 4 * bench.Rate(n, copyIn)
	add("pinned copy to the device", copyRate, "GB/s", "")

	m, err := warpcore.New[uint32, uint32](d, warpcore.Options{Options: table.Options{Capacity: n}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	kinds, err := workload.NewKeys("rand", 4, 1)
	if err != nil {
		return nil, err
	}
	for _, memory := range []string{"ordinary", "pinned"} {
		keys, values, found := make([]uint32, n), make([]uint32, n), make([]bool, n)
		if memory == "pinned" {
			k, err := device.MakeHost[uint32](d, n)
			if err != nil {
				return nil, err
			}
			defer k.Free()
			f, err := device.MakeHost[bool](d, n)
			if err != nil {
				return nil, err
			}
			defer f.Free()
			keys, values, found = k.Slice(), pinned.Slice(), f.Slice()
		}
		workload.Pairs(kinds, keys, values)
		insert, err := bench.Clocked(st, func() error {
			if err := m.Clear(); err != nil {
				return err
			}
			return m.Insert(keys, values)
		})
		if err != nil {
			return nil, err
		}
		in := 8 * bench.Rate(n, insert)
		add("Clear, Insert of "+memory+" Go slices, 8 bytes a pair in", in, "GB/s", share(in/copyRate))
		find, err := bench.Clocked(st, func() error { return m.Find(keys, values, nil) })
		if err != nil {
			return nil, err
		}
		both := 4 * bench.Rate(n, find)
		add("Find of "+memory+" Go slices, 4 bytes a key in and 4 out, each way", both, "GB/s", share(both/copyRate))
		find, err = bench.Clocked(st, func() error { return m.Find(keys, values, found) })
		if err != nil {
			return nil, err
		}
		add("the same with found, 5 bytes a key out; "+memory, 5*bench.Rate(n, find), "GB/s", share(5*bench.Rate(n, find)/copyRate))
	}

	const small = 1000
	calls, capacity := 1000, 1<<24
	if !d.Info().CUDA() {
		calls, capacity = 50, 1<<18
	}
	keys, values := make([]uint32, small), make([]uint32, small)
	workload.Pairs(kinds, keys, values)
	small1, err := device.From(d, keys)
	if err != nil {
		return nil, err
	}
	defer small1.Free()
	small2, err := device.From(d, values)
	if err != nil {
		return nil, err
	}
	defer small2.Free()
	one, err := warpcore.New[uint32, uint32](d, warpcore.Options{Options: table.Options{Capacity: capacity}})
	if err != nil {
		return nil, err
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
			for range calls {
				if err := x.f(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		add(x.what, float64(t.Nanoseconds())/float64(calls)/1000, "µs a call", "")
	}
	return fig, nil
}

func share(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }
