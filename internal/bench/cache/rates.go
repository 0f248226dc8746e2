package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// wideShare: a cache with values of 256 bytes has one in so many pairs, because the study's batches, which are 7 times the
// cache, lie in the device's memory.
const wideShare = 16

// rates measures caches of o.N pairs; of those with values of 64 bytes, a quarter, and of those with values of 256 bytes
// in host memory, one in wideShare.
func rates(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: fmt.Sprintf("Full caches of %d pairs", o.N),
		Columns: []string{"pairs", "policy", "filled", "find G/s, all hits", "find quiet G/s", "find G/s, no hits",
			"insert G/s", "told G/s",
			"overwrite G/s", "find Zipf G/s", "overwrite Zipf G/s", "table GB", "wrong"},
		Notes: []string{"inserts are of new keys, in batches of a quarter of the cache: each sends a pair out. Told: what goes out is written, too",
			"look-ups are of keys that are in, in random order; quiet ones leave the scores as they are. Overwrites are of the same keys; those of Zipf with an exponent of 0.99",
			"values of 64 bytes: a quarter of the pairs",
			fmt.Sprintf("values of 256 bytes: one in %d of the pairs, with the values in host memory, across the bus", wideShare)},
		Plots: []bench.Plot{{Title: "Look-ups that hit", X: "pairs", Y: "find G/s, all hits", Series: "policy"}},
	}
	for _, p := range []cache.Policy{cache.LRU, cache.LFU} {
		for _, measure := range []func() ([]any, error){
			func() ([]any, error) { return ratesOf[uint32, uint32](d, o, o.N, p, false) },
			func() ([]any, error) { return ratesOf[uint64, uint64](d, o, o.N, p, false) },
			func() ([]any, error) { return ratesOf[uint64, [8]uint64](d, o, max(1, o.N/4), p, false) },
			func() ([]any, error) { return ratesOf[uint64, [32]uint64](d, o, max(1, o.N/wideShare), p, true) },
		} {
			row, err := measure()
			if err != nil {
				return nil, err
			}
			fig.Add(row...)
		}
	}
	return fig, nil
}

// fillers are how many batches of a quarter of the cache fill it: no bucket is left with an empty slot, or hardly any.
const fillers = 16

func ratesOf[K workload.Word, V workload.Wide](d *device.Device, o bench.FigOptions, pairs int, p cache.Policy,
	inHost bool) (row []any, err error) {
	keyBytes, valueBytes := int(device.Slice[K]{}.Elem().Size()), int(device.Slice[V]{}.Elem().Size())
	name := fmt.Sprintf("%d+%d", keyBytes, valueBytes)
	if inHost {
		name += " in host"
	}
	o.Step(fmt.Sprintf("%s bytes, %v", name, p))
	m, err := cache.New[K, V](d, cache.Options{Capacity: pairs, Policy: p, Seed: 1, HostValues: inHost})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	kinds, err := workload.NewKeys("rand", keyBytes, 1)
	if err != nil {
		return nil, err
	}
	batch := max(1, pairs/4)
	hostKeys, hostValues := make([]K, batch*(fillers+2*(bench.Runs+1))), make([]V, batch*(fillers+2*(bench.Runs+1)))
	workload.Pairs(kinds, hostKeys, hostValues)
	st := d.Stream()
	keys, e1 := device.From(d, hostKeys)
	values, e2 := device.From(d, hostValues)
	out, e3 := outOf[K, V](d, batch)
	defer bench.Free(keys, values, out.Keys, out.Values, out.Scores, out.Count)
	if err := errors.Join(e1, e2, e3); err != nil {
		return nil, err
	}
	next := 0
	insert := func(out cache.Out[K, V]) func() error {
		return func() error {
			first := next
			next += batch
			return m.InsertOutOn(st, keys.Slice(first, next), values.Slice(first, next), device.Slice[uint32]{}, out)
		}
	}
	for range fillers {
		if err := insert(cache.Out[K, V]{})(); err != nil {
			return nil, err
		}
	}
	wrong := 0
	evicting := func(queue func() error) (float64, error) {
		before, err := m.Stats()
		if err != nil {
			return 0, err
		}
		t, err := bench.Timed(d, st, bench.Runs, nil, queue)
		if err != nil {
			return 0, err
		}
		after, err := m.Stats()
		went := after.Evictions - before.Evictions + after.Added - before.Added
		wrong += int((bench.Runs+1)*batch) - int(went)
		return bench.Rate(batch, t), err
	}
	plain, err := evicting(insert(cache.Out[K, V]{}))
	if err != nil {
		return nil, err
	}
	told, err := evicting(insert(out))
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err != nil {
		return nil, err
	}
	x, err := lookUps(d, m, kinds)
	if err != nil {
		return nil, err
	}
	return []any{name, p.String(), bench.Round(stats.LoadFactor), bench.Round(x.hits), bench.Round(x.quiet),
		bench.Round(x.misses), bench.Round(plain),
		bench.Round(told), bench.Round(x.overwrite), bench.Round(x.hot), bench.Round(x.hotPuts), bench.Round(float64(stats.Bytes) / 1e9), wrong + x.wrong}, nil
}

func outOf[K, V any](d *device.Device, n int) (out cache.Out[K, V], err error) {
	var errs [4]error
	out.Keys, errs[0] = device.Make[K](d, n)
	out.Values, errs[1] = device.Make[V](d, n)
	out.Scores, errs[2] = device.Make[uint32](d, n)
	out.Count, errs[3] = device.Make[uint64](d, 1)
	return out, errors.Join(errs[:]...)
}

// asked is what comes of look-ups.
type asked struct {
	hits, quiet, misses, overwrite, hot, hotPuts float64
	wrong                                        int
}

// lookUps asks for all keys that are in, in random order, and for as many that are not.
func lookUps[K workload.Word, V workload.Wide](d *device.Device, m *cache.Cache[K, V], kinds workload.Keys) (x asked,
	err error) {
	st := d.Stream()
	in, _, err := m.All()
	if err != nil {
		return x, err
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	want, absent := make([]V, len(in)), make([]K, len(in))
	for i, k := range in {
		want[i] = workload.Widen[V](workload.Value(uint64(k)))
		absent[i] = K(kinds.At(kinds.Span() - 1 - uint64(i))) // the last of all, which nobody put
	}
	keys, e1 := device.From(d, in)
	none, e2 := device.From(d, absent)
	values, e3 := device.From(d, want)
	hot, hotWant := make([]K, len(in)), make([]V, len(in))
	zipf, e4 := workload.NewKeys("zipf:0.99", kinds.Bytes, kinds.Seed)
	workload.Pick(zipf, uint64(len(in)), 1, 0, len(in), func(i int, index uint64) {
		hot[i], hotWant[i] = in[index], want[index]
	})
	hotKeys, e5 := device.From(d, hot)
	hotValues, e6 := device.From(d, hotWant)
	results, e7 := device.Make[V](d, len(in))
	found, e8 := device.Make[bool](d, len(in))
	defer bench.Free(keys, none, values, hotKeys, hotValues, results, found)
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7, e8); err != nil {
		return x, err
	}
	check := func(hit bool, want []V) error {
		got, e1 := results.Host(st)
		is, e2 := found.Host(st)
		for i := range got {
			var v V
			if hit {
				v = want[i]
			}
			if is[i] != hit || got[i] != v {
				x.wrong++
			}
		}
		return errors.Join(e1, e2)
	}
	for _, op := range []struct {
		to    *float64
		queue func() error
		after func() error
	}{
		{&x.quiet, func() error { return m.FindQuietOn(st, keys, results, found) },
			func() error { return check(true, want) }},
		{&x.hits, func() error { return m.FindOn(st, keys, results, found) },
			func() error { return check(true, want) }},
		{&x.misses, func() error { return m.FindOn(st, none, results, found) },
			func() error { return check(false, nil) }},
		{&x.hot, func() error { return m.FindOn(st, hotKeys, results, found) },
			func() error { return check(true, hotWant) }},
		{&x.hotPuts, func() error { return m.InsertOn(st, hotKeys, hotValues) }, m.Check},
		{&x.overwrite, func() error { return m.InsertOn(st, keys, values) }, m.Check},
	} {
		t, err := bench.Timed(d, st, bench.Runs, nil, op.queue)
		if err != nil {
			return x, err
		}
		*op.to = bench.Rate(len(in), t)
		if err := op.after(); err != nil {
			return x, err
		}
	}
	return x, nil
}
