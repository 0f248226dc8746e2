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

// trace is requests for n keys, made for a cache of so many pairs. Those from n on are keys of their own.
type trace struct {
	name string
	make func(n, pairs uint64) ([]uint64, error)
}

// traces are those of the figure. Two have keys that stay as popular as they are: by Zipf's law, and as the look-ups of
// the GPH paper (section 7.1), of which a fifth of the keys gets 82.14%. In the others requests by Zipf's law meet what
// caches suffer from: cold keys that come once, a loop that does not fit, and keys that become popular.
var traces = []trace{
	{"zipf:0.99", func(n, _ uint64) ([]uint64, error) { return drawn("zipf:0.99", n) }},
	{"tao", func(n, _ uint64) ([]uint64, error) { return drawn("tao", n) }},
	{"with scans", func(n, _ uint64) ([]uint64, error) {
		return mixed(n, func(t []uint64, i int) {
			if i%5 == 4 {
				t[i] = n + uint64(i/5)
			}
		})
	}},
	{"with a loop", func(n, pairs uint64) ([]uint64, error) {
		return mixed(n, func(t []uint64, i int) {
			if i%5 == 4 {
				t[i] = n + uint64(i/5)%(2*pairs)
			}
		})
	}},
	{"that shifts", func(n, _ uint64) ([]uint64, error) {
		return mixed(n, func(t []uint64, i int) { t[i] = (t[i] + uint64(i*10/len(t))*(n/10)) % n })
	}},
}

// drawn are requests for n keys of a kind, as package workload has them.
func drawn(kind string, n uint64) ([]uint64, error) {
	kinds, err := workload.NewKeys(kind, 8, 1)
	t := make([]uint64, n*requestsPerKey)
	if err == nil {
		workload.Pick(kinds, n, 1, 0, len(t), func(i int, index uint64) { t[i] = index })
	}
	return t, err
}

// mixed are requests by Zipf's law that change makes others of, one by one.
func mixed(n uint64, change func(t []uint64, i int)) ([]uint64, error) {
	t, err := drawn("zipf:0.99", n)
	for i := range t {
		change(t, i)
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
			"scans: each fifth request is for a key that comes once. Loop: each fifth request is for the next of so many keys as two caches hold, over and over",
			"shifts: ten times, a tenth of all keys further on are the popular ones. LFU that forgets no count suffers then: so ours, whose pairs begin anew when they come back, has more",
			"tao: a fifth of the keys gets 82.14% of the requests (GPH, section 7.1)"},
		Plots: []bench.Plot{{Title: "Hit rates of LRU", X: "cache %", Y: "LRU %", Series: "requests"}},
	}
	for _, t := range traces {
		for _, percent := range []int{1, 10} {
			pairs := max(1, o.N*percent/100)
			requests, err := t.make(uint64(o.N), uint64(pairs))
			if err != nil {
				return nil, err
			}
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
