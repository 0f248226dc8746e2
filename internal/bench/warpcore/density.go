package warpcore

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// arrival is how the pairs of figureDensity come.
type arrival struct {
	name    string
	keys    string // see workload.NewKeys
	batches int
	skewed  bool // a few keys have most of the values: too many for tables whose pairs stand in slots of their own
}

var arrivals = []arrival{
	{"at once", "rand", 1, false},
	{"in 64 batches", "rand", 64, false},
	{"in 64 batches, by Zipf's law", "zipf:1", 64, true},
}

// figureDensity is the storage density of the paper's §IV-C: the bytes of all keys, each once, and of all values, to those of the table, by the values a
// key has. How bucket lists grow, s₀ and λ, matters where the values of a key come in many batches: what one batch brings for a key goes into
// one bucket. A table has room for the pairs and their keys from the beginning, and the key store has load factor 0.8.
func figureDensity(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	const load = 0.8
	fig := &bench.Fig{
		Title: fmt.Sprintf("WarpCore, storage density (§IV-C, §V-B): %d pairs of 4+4 bytes, load factor %v", o.N, load),
		Columns: []string{"values a key", "pairs come", "table", "density", "density of buckets", "density after Shrink", "bytes a pair", "insert G/s", "keys",
			"wrong", "note"},
		Notes: []string{"density: bytes of the keys, each once, and of the values, to bytes of the table; of buckets: without the part of a bucket list's pool that no " +
			"bucket has yet, so that of s₀ and λ alone; after Shrink: each list in one bucket of its size; r: the values a key"},
		Plots: []bench.Plot{
			{Name: "all", Title: "WarpCore: storage density", X: "values a key", Y: "density", Series: "table", Facet: "pairs come", LogX: true},
			{Name: "buckets", Title: "WarpCore: storage density of growth strategies", X: "values a key", Y: "density of buckets", Series: "table", Facet: "pairs come", LogX: true},
		},
	}
	for _, r := range []int{1, 2, 4, 8, 16, 32, 64, 256} {
		for _, a := range arrivals {
			if r > o.N {
				break
			}
			if err := densities(d, o, fig, r, a, load); err != nil {
				return nil, err
			}
		}
	}
	return fig, nil
}

// growing is a multimap whose density is measured.
type growing struct {
	name    string
	make    func(o table.MultiMapOptions) (multiMap, error)
	inSlots bool // each pair stands in a slot of its own
}

// growth are bucket lists by s₀ and λ, the paper's two strategies among them, where r is the values a key has, and the other multimaps as they are.
func growth(d *device.Device, r int) (out []growing) {
	lists := func(name string, first int, growth float64) {
		out = append(out, growing{name: name, make: func(base table.MultiMapOptions) (multiMap, error) {
			return warpcore.NewBucketList[uint32, uint32](d, warpcore.ListOptions{Options: base.Options, Keys: base.Keys, InitialBucket: first, Growth: growth})
		}})
	}
	for _, s := range []struct {
		first  int
		growth float64
	}{{1, 1}, {1, 1.1}, {1, 1.5}, {1, 2}, {4, 2}} {
		lists(fmt.Sprintf("lists, s₀ = %d, λ = %v", s.first, s.growth), s.first, s.growth)
	}
	if r > 1 {
		lists("lists, s₀ = r, λ = 1", r, 1)
	}
	for _, kind := range table.MultiMapKinds() {
		if kind == table.KindBucketList {
			continue
		}
		for _, f := range warpmap.Families(kind) {
			out = append(out, growing{fmt.Sprintf("%s %v", f, kind), func(base table.MultiMapOptions) (multiMap, error) {
				return warpmap.NewMultiMapOf[uint32, uint32](d, kind, f, base)
			}, true})
		}
	}
	return out
}

// densities adds the rows with r values a key.
func densities(d *device.Device, o bench.FigOptions, fig *bench.Fig, r int, a arrival, load float64) error {
	t := bench.TableOptions{Keys: a.keys, KeyBytes: 4, ValueBytes: 4, N: o.N, Seed: uint64(r), Batch: (o.N + a.batches - 1) / a.batches}
	if r > 1 || a.skewed {
		t.Distinct = max(1, o.N/r)
	}
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.Free()
	for _, x := range growth(d, r) {
		if x.inSlots && a.skewed {
			continue
		}
		o.Step(fmt.Sprintf("%d values a key, %s: %s", r, a.name, x.name))
		row, err := density(w, x, load)
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return err
			}
			fig.Add(r, a.name, x.name, nil, nil, nil, nil, nil, w.Different(), nil, note)
			continue
		}
		held := func(bytes int64) any {
			if bytes == 0 {
				return nil
			}
			return bench.Round(float64(4*w.Different()+4*o.N) / float64(bytes))
		}
		fig.Add(r, a.name, x.name, held(row.Bytes), held(row.inBuckets), held(row.shrunk), bench.Round(float64(row.Bytes)/float64(o.N)), bench.Round(row.Insert),
			w.Different(), row.Wrong, "")
	}
	return nil
}

// densityRow is a Row with the bytes of a bucket list without what no bucket has of its pool, and after Shrink; of other tables 0.
type densityRow struct {
	bench.Row
	inBuckets, shrunk int64
}

// density measures a multimap, and that it has all its values before and after Shrink.
func density(w *work, x growing, load float64) (row densityRow, err error) {
	m, err := x.make(table.MultiMapOptions{Options: table.Options{Capacity: w.Options.N, LoadFactor: load}, Keys: w.Different()})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := bench.InsertedMultiMap(w, m)
	if row.Row, err = w.Measure(s); err != nil {
		return row, err
	}
	list, ok := m.(*warpcore.BucketList[uint32, uint32])
	if !ok {
		return row, nil
	}
	pool, err := list.Pool()
	if err != nil {
		return row, err
	}
	row.inBuckets = row.Bytes - pool.Bytes + pool.Buckets
	if pool.Values != int64(4*w.Options.N) || pool.Buckets < pool.Values || pool.Buckets+pool.Garbage > pool.Bytes {
		row.Wrong++
	}
	if err := errors.Join(list.Shrink(), s.Find()); err != nil {
		return row, err
	}
	wrong, err := s.Wrong()
	if err != nil {
		return row, err
	}
	row.Wrong += wrong
	stats, err := list.Stats()
	row.shrunk = stats.Bytes
	return row, err
}
