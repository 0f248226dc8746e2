package cache

import (
	"container/list"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// Ten requests for each key are made, and those of the second half count.
const requestsPerKey = 10

// trace is requests for keys. Those from o.N on come once.
type trace struct {
	name string
	make func(keys uint64) ([]uint64, error)
}

// traces are those of the figure: what is popular stays so; so it does, but a fifth of the requests go through cold
// keys; other keys become popular ten times.
var traces = []trace{
	{"zipf:0.99", zipf},
	{"with scans", func(n uint64) ([]uint64, error) {
		t, err := zipf(n)
		for i := range t {
			if i%5 == 4 {
				t[i] = n + uint64(i/5)
			}
		}
		return t, err
	}},
	{"that shifts", func(n uint64) ([]uint64, error) {
		t, err := zipf(n)
		for i := range t {
			t[i] = (t[i] + uint64(i*10/len(t))*(n/10)) % n
		}
		return t, err
	}},
}

func zipf(n uint64) ([]uint64, error) {
	kinds, err := workload.NewKeys("zipf:0.99", 8, 1)
	t := make([]uint64, n*requestsPerKey)
	if err == nil {
		workload.Pick(kinds, n, 1, 0, len(t), func(i int, index uint64) { t[i] = index })
	}
	return t, err
}

// hits has caches of 1% and 10% of o.N keys.
func hits(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title: fmt.Sprintf("Hit rates, %d keys, %d requests", o.N, requestsPerKey*o.N),
		Columns: []string{"requests", "cache %", "pairs", "batch", "LRU %", "exact LRU %", "LFU %", "exact LFU %",
			"Aged %"},
		Notes: []string{"a request finds its key or inserts it; requests of a batch are made at once. Those of the second half count",
			"exact: all pairs in one order, one request after the other; of pairs that were used as often, the one that was not used for longest goes",
			"scans: each fifth request is for a key that comes once. Shifts: ten times, a tenth of all keys further on are the popular ones"},
		Plots: []bench.Plot{{Title: "Hit rates of LRU", X: "cache %", Y: "LRU %", Series: "requests"}},
	}
	for _, t := range traces {
		requests, err := t.make(uint64(o.N))
		if err != nil {
			return nil, err
		}
		for _, percent := range []int{1, 10} {
			pairs := max(1, o.N*percent/100)
			o.Step(fmt.Sprintf("%s, %d pairs", t.name, pairs))
			batch := min(max(pairs/8, 16), 1<<16)
			row := []any{t.name, percent, pairs, batch}
			for _, p := range []struct {
				policy cache.Policy
				exact  func(requests []uint64, pairs int) float64
			}{{cache.LRU, exactLRU}, {cache.LFU, exactLFU}, {cache.Aged, nil}} {
				rate, err := hitRate(d, requests, pairs, batch, p.policy)
				if err != nil {
					return nil, err
				}
				if row = append(row, bench.Round(rate)); p.exact != nil {
					row = append(row, bench.Round(p.exact(requests, pairs)))
				}
			}
			fig.Add(row...)
		}
	}
	return fig, nil
}

// hitRate is that of a cache, in percent.
func hitRate(d *device.Device, requests []uint64, pairs, batch int, p cache.Policy) (rate float64, err error) {
	m, err := cache.New[uint64, uint64](d, cache.Options{Capacity: pairs, Policy: p, Seed: 1})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	half, missed := len(requests)/2, 0
	values := make([]uint64, batch)
	for first := 0; first < len(requests); {
		end := min(first+batch, len(requests))
		if first < half {
			end = min(end, half)
		}
		keys := requests[first:end]
		added, err := m.FindOrInsert(keys, keys, values[:len(keys)], nil)
		if err != nil {
			return 0, err
		}
		for i, k := range keys {
			if values[i] != k {
				return 0, fmt.Errorf("key %d has the value %d", k, values[i])
			}
		}
		if first >= half {
			missed += added
		}
		first = end
	}
	return 100 - 100*float64(missed)/float64(len(requests)-half), nil
}

// exactLRU and exactLFU are the hit rates of one order of all pairs, in percent.
func exactLRU(requests []uint64, pairs int) float64 {
	order, in, hits := list.New(), map[uint64]*list.Element{}, 0
	for i, k := range requests {
		if e, ok := in[k]; ok {
			order.MoveToFront(e)
			if i >= len(requests)/2 {
				hits++
			}
			continue
		}
		if order.Len() == pairs {
			delete(in, order.Remove(order.Back()).(uint64))
		}
		in[k] = order.PushFront(k)
	}
	return 100 * float64(hits) / float64(len(requests)-len(requests)/2)
}

func exactLFU(requests []uint64, pairs int) float64 {
	type pair struct {
		key  uint64
		uses int
	}
	in, hits, least := map[uint64]*list.Element{}, 0, 1
	byUses := map[int]*list.List{}
	push := func(p pair) {
		if byUses[p.uses] == nil {
			byUses[p.uses] = list.New()
		}
		in[p.key] = byUses[p.uses].PushFront(p)
	}
	for i, k := range requests {
		if e, ok := in[k]; ok {
			p := e.Value.(pair)
			byUses[p.uses].Remove(e)
			if byUses[p.uses].Len() == 0 && p.uses == least {
				least++
			}
			p.uses++
			push(p)
			if i >= len(requests)/2 {
				hits++
			}
			continue
		}
		if len(in) == pairs {
			delete(in, byUses[least].Remove(byUses[least].Back()).(pair).key)
		}
		push(pair{k, 1})
		least = 1
	}
	return 100 * float64(hits) / float64(len(requests)-len(requests)/2)
}
