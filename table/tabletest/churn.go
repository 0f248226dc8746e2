package tabletest

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// lengths of batches: few are multiples of a warp.
var lengths = []int{0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 600}

// batch makes keys: of a universe of the given size, so that some come again and again; of the patterns that layouts
// like to reserve; and at times one of them many times over.
func (s *subject[K, V]) batch(universe int) []uint64 {
	mask := keyMask[K]()
	n := lengths[s.rng.IntN(len(lengths))]
	n = min(n, universe)
	keys := make([]uint64, n)
	same := s.rng.IntN(6) == 0
	for i := range keys {
		switch {
		case same && s.coin() && i > 0:
			keys[i] = keys[0]
		case s.rng.IntN(12) == 0:
			keys[i] = (^uint64(0) - uint64(s.rng.IntN(9))) & mask
		default:
			keys[i] = uint64(s.rng.IntN(universe))
			if keys[i]%3 == 0 { // spread over the whole width
				keys[i] *= 0x9e3779b97f4a7c15
			}
			keys[i] &= mask
		}
	}
	return keys
}

func (s *subject[K, V]) numbers(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = s.rng.Uint32() & numberMask[V]()
	}
	return out
}

// churn runs random operations, and checks the table after each.
func churn[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64, steps, universe int) {
	s := newSubject(t, d, newMap, o, seed)
	step, what := 0, ""
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, %+v: step %d, %s", seed, o, step, what)
		}
	}()
	for step = range steps {
		keys := s.batch(universe)
		what = fmt.Sprintf("%d keys", len(keys))
		switch r := s.rng.IntN(20); {
		case r < 6:
			what += " inserted"
			s.insert(keys, s.numbers(len(keys)))
		case r < 9:
			what += " inserted if new"
			s.insertNew(keys, s.numbers(len(keys)))
		case r < 14:
			what += " deleted"
			s.delete(keys)
		case r < 18:
			what += " looked up"
			s.find(keys)
		case r < 19:
			what = "grown"
			s.grow(s.rng.IntN(2 * universe))
		default:
			what = "cleared"
			s.clear()
		}
		s.verify()
	}
	what = "the end"
	var all []uint64
	for k := range s.model {
		all = append(all, k)
	}
	s.find(all)
}

func churnTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for i, o := range []table.Options{
		{},
		{Capacity: 1, LoadFactor: 1},
		{Capacity: 500, LoadFactor: 1, Seed: 3},
		{Capacity: 2000, LoadFactor: 0.3, Seed: ^uint64(0)},
		{MaxBytes: 8 << 10},
		{MaxBytes: 8 << 10, LoadFactor: 1, Seed: 5},
	} {
		universe := 2500
		if i == 1 {
			universe = 40
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) { churn(t, d, newMap, o, uint64(100+i), 40, universe) })
	}
}

// growthTest fills a table from nothing, in batches that it has to divide.
func growthTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	s := newSubject(t, d, newMap, table.Options{}, 1)
	next := uint64(0)
	for _, n := range []int{1, 7, 33, 500, 10_000, 50_000} {
		keys := fresh[K](&next, n)
		must(t, s.insert(keys, s.numbers(n)))
		s.verify()
		s.find(keys)
	}
	// The same keys again must not make it grow.
	before, err := s.m.Stats()
	must(t, err)
	keys := fresh[K](new(uint64), 50_000)
	must(t, s.insert(keys, s.numbers(len(keys))))
	must(t, s.insertNew(keys, s.numbers(len(keys))))
	s.verify()
	after, err := s.m.Stats()
	must(t, err)
	if after.Capacity > 2*before.Capacity {
		t.Errorf("capacity %d became %d, and no key was new", before.Capacity, after.Capacity)
	}
	// Room once made is there.
	s.clear()
	s.grow(150_000)
	before, err = s.m.Stats()
	must(t, err)
	must(t, s.insert(fresh[K](&next, 150_000), s.numbers(150_000)))
	after, err = s.m.Stats()
	must(t, err)
	if after.Capacity != before.Capacity {
		t.Errorf("room for 150,000 pairs was made, and capacity %d became %d", before.Capacity, after.Capacity)
	}
}

// fresh are n distinct keys after *next.
func fresh[K any](next *uint64, n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		*next++
		keys[i] = *next * 0x9e3779b97f4a7c15 & keyMask[K]() // odd: a bijection of every width
	}
	return keys
}
