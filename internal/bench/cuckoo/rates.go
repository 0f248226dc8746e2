package cuckoo

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
	"github.com/warpmap/warpmap/workload"
)

// rates measures filters for o.N keys, which come in one batch into an empty filter, and go in one batch.
func rates(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: fmt.Sprintf("Filters of %d keys", o.N),
		Columns: []string{"filter", "tag bits", "key bytes", "bits a key", "load", "insert G/s", "hits G/s",
			"misses G/s",
			"delete G/s", "delete told G/s", "false positives %", "estimate %", "table MiB", "wrong"},
		Notes: []string{"inserts are of all keys in one batch into an empty filter, and deletions from a full one",
			"a Bloom filter has the memory of the cuckoo filter before it, and the number of bits a key that errs least"},
		Plots: []bench.Plot{{Title: "Look-ups that miss", X: "bits a key", Y: "misses G/s", Series: "filter"}},
	}
	works, err := bench.NewWork[uint32, uint32](d, options(o, 4))
	if err != nil {
		return nil, err
	}
	defer works.Free()
	for _, tag := range []int{16, 12, 8} {
		if err := both(fig, works, o, 4, tag); err != nil {
			return nil, err
		}
	}
	works.Free()
	wide, err := bench.NewWork[uint64, uint32](d, options(o, 8))
	if err != nil {
		return nil, err
	}
	defer wide.Free()
	return fig, both(fig, wide, o, 8, 16)
}

func options(o bench.FigOptions, keyBytes int) bench.TableOptions {
	return bench.TableOptions{Keys: "rand", KeyBytes: keyBytes, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 1, Seed: 1}
}

// both measures a cuckoo filter, and a Bloom filter of as much memory.
func both[K workload.Word](fig *bench.Fig, w *bench.Work[K, uint32], o bench.FigOptions, keyBytes, tag int) error {
	o.Step(fmt.Sprintf("keys of %d bytes, tags of %d bits", keyBytes, tag))
	c, err := cuckoo.New[K](w.Device,
		cuckoo.Options{FilterOptions: table.FilterOptions{Capacity: o.N, Seed: 1}, TagBits: tag})
	if err != nil {
		return err
	}
	row, err := measure(w, c)
	if err != nil {
		return err
	}
	fig.Add(cells("cuckoo", tag, keyBytes, row)...)
	o.Step(fmt.Sprintf("keys of %d bytes, a Bloom filter of %d", keyBytes, row.Bytes))
	b, err := warpcore.NewFilter[K](w.Device, warpcore.FilterOptions{
		FilterOptions: table.FilterOptions{Capacity: o.N, Bytes: row.Bytes, Seed: 1}})
	if err != nil {
		return err
	}
	if row, err = measure(w, b); err != nil {
		return err
	}
	fig.Add(cells("Bloom", nil, keyBytes, row)...)
	return nil
}

// measure closes the filter.
func measure[K workload.Word](w *bench.Work[K, uint32], f table.Filter[K]) (row bench.Row, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := bench.Filter(w, f)
	if err != nil {
		return row, err
	}
	return w.Measure(s)
}

func cells(name string, tag any, keyBytes int, row bench.Row) []any {
	x := row.Filter
	out := []any{name, tag, keyBytes, bench.Round(x.BitsPerKey), bench.Round(row.Filled), bench.Round(row.Insert),
		bench.Round(row.Find), bench.Round(x.Absent), nil, nil, bench.Round(100 * x.FalsePositives),
		bench.Round(100 * x.Estimate), bench.Round(float64(row.Bytes) / (1 << 20)), row.Wrong}
	if x.Delete > 0 {
		out[8], out[9] = bench.Round(x.Delete), bench.Round(x.DeleteTold)
	}
	return out
}
