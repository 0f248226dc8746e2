package dycuckoo

import (
	"runtime"
	"sync"
	"time"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/workload"
)

const goNote = "Go map: Go's own, in 1,024 shards with a lock each, on all of the host's cores, by the wall clock, one run"

// goMap is a map for many goroutines.
type goMap [1024]struct {
	sync.RWMutex
	m map[uint32]uint32
}

func newGoMap(pairs int) *goMap {
	t := new(goMap)
	for i := range t {
		t[i].m = make(map[uint32]uint32, pairs/len(t))
	}
	return t
}

func shardOf(key uint32) uint32 { return kernel.Fmix32(key) % uint32(len(goMap{})) }

func (t *goMap) insert(keys, values []uint32) {
	eachPart(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			s := &t[shardOf(keys[i])]
			s.Lock()
			s.m[keys[i]] = values[i]
			s.Unlock()
		}
	})
}

func (t *goMap) find(keys, values []uint32, found []bool) {
	eachPart(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			s := &t[shardOf(keys[i])]
			s.RLock()
			values[i], found[i] = s.m[keys[i]]
			s.RUnlock()
		}
	})
}

// eachPart runs f over 0 … n-1 in pieces, on every core.
func eachPart(n int, f func(from, to int)) {
	var wg crash.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() { f(n*w/workers, n*(w+1)/workers) })
	}
	wg.Wait()
}

// measureGo is staticRow for the Go map: what has no figure is nil.
func measureGo(set workload.DataSet) ([]any, error) {
	keys, values := make([]uint32, set.Pairs), make([]uint32, set.Pairs)
	set.Fill(0, keys, values)
	m := newGoMap(set.Distinct)
	begin := time.Now()
	m.insert(keys, values)
	row, wrong := []any{"Go map", set.Pairs, set.Distinct, nil, bench.Round(bench.Rate(set.Pairs, time.Since(begin)))}, 0
	n := min(set.Pairs, mostQueries)
	queries, expect, results, found := make([]uint32, n), make([]byte, n), make([]uint32, n), make([]bool, n)
	for _, hits := range []float64{0, 0.5, 1} {
		workload.Queries(set.Keys, uint64(set.Distinct), hits, queries, expect)
		begin := time.Now()
		m.find(queries, results, found)
		row = append(row, bench.Round(bench.Rate(n, time.Since(begin))))
		for i, k := range queries {
			if want := expect[i] == workload.Hit; found[i] != want || want && results[i] != uint32(workload.Value(uint64(k))) {
				wrong++
			}
		}
	}
	return append(row, nil, wrong, ""), nil
}
