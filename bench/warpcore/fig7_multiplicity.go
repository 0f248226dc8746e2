package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
	"github.com/warpmap/warpmap/workload"
)

// figure7 is Figure 7: n keys drawn from 1 … n/r, so that each has r values on average; inserted at load
// factor 0.8; then all of 1 … n looked up, which gives n values whatever r is.
func figure7(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	n := o.N
	fig := &bench.Fig{
		Title:   fmt.Sprintf("WarpCore, Figure 7: %d pairs of 4+4 bytes at load factor 0.8, by values per key", n),
		Columns: []string{"values a key", "group", "insert G/s", "retrieve G/s", "single-value find G/s", "values"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "WarpCore, Figure 7: inserts", X: "values a key", Y: "insert G/s", Series: "group", LogX: true},
			{Name: "retrieve", Title: "WarpCore, Figure 7: values found", X: "values a key", Y: "retrieve G/s", Series: "group", LogX: true},
		},
	}
	groups := []int{4, 8, 16}
	if !d.Info().CUDA() {
		groups = []int{1}
	}
	st := d.Stream()
	keys, values := make([]uint32, n), make([]uint32, n)
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i + 1)
		values[i] = uint32(i)
	}
	queries, err := device.From(d, all)
	if err != nil {
		return nil, err
	}
	defer queries.Free()
	vals, err := device.From(d, values)
	if err != nil {
		return nil, err
	}
	defer vals.Free()
	offsets, err := device.Make[uint64](d, n+1)
	if err != nil {
		return nil, err
	}
	defer offsets.Free()
	out, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer out.Free()
	found, err := device.Make[bool](d, n)
	if err != nil {
		return nil, err
	}
	defer found.Free()
	in, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer in.Free()
	for _, r := range []int{1, 2, 4, 8, 16, 32, 64} {
		if r == 1 {
			copy(keys, all) // unique, as the single-value table has it
		} else {
			workload.Draw(keys, uint64(n/r), uint64(r))
		}
		if err := in.Write(st, keys); err != nil {
			return nil, err
		}
		for _, g := range groups {
			opts := warpcore.Options{Options: table.Options{Capacity: n, LoadFactor: 0.8}, InsertGroup: g, FindGroup: min(g, 4)}
			m, err := warpcore.NewMultiMap[uint32, uint32](d, opts)
			if err != nil {
				return nil, err
			}
			insert, err := bench.Timed(d, st, bench.Runs, m.Clear, func() error { return m.InsertOn(st, in, vals) })
			if err != nil {
				return nil, err
			}
			got := 0
			retrieve, err := bench.Timed(d, st, bench.Runs, nil, func() error {
				got, err = m.FindAllInto(st, queries, offsets, func(k int) (device.Slice[uint32], error) { return out.Slice(0, k), nil })
				return err
			})
			m.Close()
			if err != nil {
				return nil, err
			}
			single := 0.0
			if r == 1 {
				s, err := warpcore.New[uint32, uint32](d, opts)
				if err != nil {
					return nil, err
				}
				if err := s.InsertOn(st, in, vals); err != nil {
					return nil, err
				}
				t, err := bench.Timed(d, st, bench.Runs, nil, func() error { return s.FindOn(st, queries, out, found) })
				s.Close()
				if err != nil {
					return nil, err
				}
				single = bench.Rate(n, t)
			}
			if got != n {
				return nil, fmt.Errorf("%d values found of %d", got, n)
			}
			fig.Rows = append(fig.Rows, []any{r, g, bench.Round(bench.Rate(n, insert)), bench.Round(bench.Rate(n, retrieve)), bench.Round(single), got})
		}
	}
	return fig, nil
}
