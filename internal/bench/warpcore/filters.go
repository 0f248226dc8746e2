package warpcore

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// filterShape is one filter of figureFilter: so many bytes of it, in blocks, for so many keys, of each of which it has so many bits.
type filterShape struct {
	vary   string // what the sweep varies
	keys   int
	bytes  int64
	block  int
	hashes int // 0: the best
}

// The sweeps of figureFilter.
const (
	byBits   = "bits a key"
	byHashes = "hashes"
	byBytes  = "bytes"
)

// FilterShapes are the sweeps for n keys: by the filter's bits a key and the size of its blocks, with the best number of hash functions; by that
// number; and by the filter's size, from what the L2 cache holds to many times as much, with as many keys as bytes, but no more than n.
func FilterShapes(n int) (out []filterShape) {
	for _, bits := range []int{4, 6, 8, 12, 16, 24} {
		for _, block := range []int{8, 16, 32, 64} {
			out = append(out, filterShape{byBits, n, int64(n) * int64(bits) / 8, block, 0})
		}
	}
	for _, bits := range []int{8, 16} {
		for _, hashes := range []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 16} {
			out = append(out, filterShape{byHashes, n, int64(n) * int64(bits) / 8, 32, hashes})
		}
	}
	for _, share := range []float64{1. / 64, 1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2, 4, 10.7374} { // of 100 million keys, the last is 1 GiB
		bytes := max(64, int64(share*float64(n)))
		out = append(out, filterShape{byBytes, min(n, int(bytes)), bytes, 32, 5})
	}
	return out
}

// figureFilter is warpcore's Filter: how often it errs, beside the formula that it is made by and a Bloom filter without blocks, and how fast it is.
func figureFilter(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: fmt.Sprintf("WarpCore, Bloom filters: %d keys of 4 bytes, each looked up once, and as many that are absent", o.N),
		Columns: []string{"sweep", "keys", "bytes", "bits a key", "block (bytes)", "hashes", "false positives", "formula", "estimate", "ideal", "insert G/s",
			"contains G/s", "absent G/s", "wrong", "note"},
		Notes: []string{"false positives: share of the absent keys that are told to be in; formula: what is expected of the filter's make; estimate: of the bits that " +
			"are set; ideal: of a Bloom filter of as many bits that is not blocked, with the best number of hash functions; wrong: keys that are in and are not found"},
		Plots: []bench.Plot{
			{Name: "rate", Title: "Filters: false positives (dashed: by the formula)", X: "bits a key", Y: "false positives", Series: "block (bytes)", Bound: "formula",
				Only: map[string]any{"sweep": byBits}, LogY: true},
			{Name: "contains", Title: "Filters: look-ups", X: "bits a key", Y: "contains G/s", Series: "block (bytes)", Only: map[string]any{"sweep": byBits}},
			{Name: "insert", Title: "Filters: inserts", X: "bits a key", Y: "insert G/s", Series: "block (bytes)", Only: map[string]any{"sweep": byBits}},
			{Name: "rate-hashes", Title: "Filters: false positives (dashed: by the formula)", X: "hashes", Y: "false positives", Series: "bits a key", Bound: "formula",
				Only: map[string]any{"sweep": byHashes}, LogY: true},
			{Name: "contains-hashes", Title: "Filters: look-ups", X: "hashes", Y: "contains G/s", Series: "bits a key", Only: map[string]any{"sweep": byHashes}},
			{Name: "insert-hashes", Title: "Filters: inserts", X: "hashes", Y: "insert G/s", Series: "bits a key", Only: map[string]any{"sweep": byHashes}},
			{Name: "contains-bytes", Title: "Filters: look-ups by size", X: "bytes", Y: "contains G/s", Only: map[string]any{"sweep": byBytes}, LogX: true},
			{Name: "insert-bytes", Title: "Filters: inserts by size", X: "bytes", Y: "insert G/s", Only: map[string]any{"sweep": byBytes}, LogX: true},
		},
	}
	works := map[int]*work{} // by the number of keys
	defer func() {
		for _, w := range works {
			w.Free()
		}
	}()
	for _, s := range FilterShapes(o.N) {
		o.Step(fmt.Sprintf("%s: %d keys, %d bytes in blocks of %d, %d hashes", s.vary, s.keys, s.bytes, s.block, s.hashes))
		w := works[s.keys]
		if w == nil {
			var err error
			if w, err = bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: s.keys, Queries: s.keys, Hits: 1, Seed: 1}); err != nil {
				return nil, err
			}
			works[s.keys] = w
		}
		row, f, err := measureFilter(w, s)
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return nil, err
			}
			fig.Add(s.vary, s.keys, int(s.bytes), nil, s.block, nil, nil, nil, nil, nil, nil, nil, nil, nil, note)
			continue
		}
		x := row.Filter
		fig.Add(s.vary, s.keys, int(row.Bytes), bench.Round(x.BitsPerKey), s.block, f.hashes, x.FalsePositives, f.expected, x.Estimate, x.Ideal, bench.Round(row.Insert),
			bench.Round(row.Find), bench.Round(x.Absent), row.Wrong, "")
	}
	return fig, nil
}

// filterMake is what a filter says of itself.
type filterMake struct {
	hashes   int
	expected float64
}

func measureFilter(w *work, s filterShape) (row bench.Row, of filterMake, err error) {
	f, err := warpcore.NewFilter[uint32](w.Device, warpcore.FilterOptions{
		FilterOptions: table.FilterOptions{Capacity: s.keys, Bytes: s.bytes, Seed: 1}, Block: s.block, Hashes: s.hashes})
	if err != nil {
		return row, of, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	subject, err := bench.Filter(w, f)
	if err != nil {
		return row, of, err
	}
	row, err = w.Measure(subject)
	return row, filterMake{f.Hashes(), f.Expected(s.keys)}, err
}
