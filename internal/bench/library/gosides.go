package library

import (
	"runtime"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/workload"
)

// inParts runs f over 0 … n-1, a part by each of so many goroutines.
func inParts(goroutines, n int, f func(from, to int)) {
	if goroutines == 1 {
		f(0, n)
		return
	}
	var all crash.WaitGroup
	for g := range goroutines {
		all.Go(func() { f(n*g/goroutines, n*(g+1)/goroutines) })
	}
	all.Wait()
}

// inBatches calls f for one batch of 0 … n-1 after the other.
func inBatches(n, batch int, f func(from, to int) error) error {
	for from := 0; from < n; from += batch {
		if err := f(from, min(n, from+batch)); err != nil {
			return err
		}
	}
	return nil
}

// data are pairs, and look-ups with what must come of them, half of them hits.
type data[K, V workload.Word] struct {
	kinds   workload.Keys
	keys    []K
	values  []V
	queries []K
	expect  []byte
	out     []V
	found   []bool
}

func newData[K, V workload.Word](bytes, n, queries int) (*data[K, V], error) {
	kinds, err := workload.NewKeys("rand", bytes, 1)
	if err != nil {
		return nil, err
	}
	w := &data[K, V]{kinds, make([]K, n), make([]V, n), make([]K, queries), make([]byte, queries), make([]V, queries),
		make([]bool, queries)}
	workload.Pairs(kinds, w.keys, w.values)
	workload.Queries(kinds, uint64(n), 0.5, w.queries, w.expect)
	return w, nil
}

// wrong counts the answers to the first n look-ups that are not as they must be, and forgets them.
func (w *data[K, V]) wrong(n int) (wrong int) {
	for i, k := range w.queries[:n] {
		var want V
		hit := w.expect[i] == workload.Hit
		if hit {
			want = V(workload.Value(uint64(k)))
		}
		if w.found[i] != hit || w.out[i] != want {
			wrong++
		}
	}
	clear(w.out[:n])
	clear(w.found[:n])
	return wrong
}

// goMap makes a Go map of the pairs.
func (w *data[K, V]) goMap() map[K]V {
	m := make(map[K]V, len(w.keys))
	for i, k := range w.keys {
		m[k] = w.values[i]
	}
	return m
}

// goFind looks all look-ups up in a Go map, by so many goroutines.
func (w *data[K, V]) goFind(m map[K]V, goroutines int) {
	inParts(goroutines, len(w.queries), func(from, to int) {
		for i := from; i < to; i++ {
			w.out[i], w.found[i] = m[w.queries[i]]
		}
	})
}

// fresh makes a map that replaces another, whose memory is collected before the time runs.
func fresh[K comparable, V any](m *map[K]V, room int) func() error {
	return func() error {
		*m = nil
		runtime.GC()
		*m = make(map[K]V, room)
		return nil
	}
}
