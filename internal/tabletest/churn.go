package tabletest

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// lengths of batches: few are multiples of a warp.
var lengths = []int{0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 600}

// batch makes keys: of a universe of the given size, so that some come again and again; of the patterns that layouts
// like to reserve; and at times one of them many times over.
func (r *rig) batch(universe int) []uint64 {
	n := min(lengths[r.rng.IntN(len(lengths))], universe)
	keys := make([]uint64, n)
	same := r.rng.IntN(6) == 0
	for i := range keys {
		switch {
		case same && r.coin() && i > 0:
			keys[i] = keys[0]
		case r.rng.IntN(12) == 0:
			keys[i] = (^uint64(0) - uint64(r.rng.IntN(9))) & r.keyBits
		default:
			keys[i] = uint64(r.rng.IntN(universe))
			if keys[i]%3 == 0 { // spread over the whole width
				keys[i] *= 0x9e3779b97f4a7c15
			}
			keys[i] &= r.keyBits
		}
	}
	return keys
}

// Churn runs random operations on one table, of keys from a universe of that size, and checks it after each.
func (s *Suite) Churn(t testing.TB, d *device.Device, o table.Options, seed uint64, steps, universe int) {
	t.Helper()
	x := s.open(t, d, o, seed)
	r := x.base()
	step, what := 0, ""
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, %+v: step %d, %s", seed, o, step, what)
		}
	}()
	for step = range steps {
		keys := r.batch(universe)
		what = fmt.Sprintf("%d keys", len(keys))
		switch n := r.rng.IntN(20); {
		case n < 9:
			what += " put"
			x.put(keys)
		case n < 14:
			what += " dropped"
			x.drop(keys)
		case n < 18:
			what += " looked up"
			x.ask(keys)
		case n < 19:
			what = "grown"
			r.grow(r.rng.IntN(2 * universe))
		default:
			what = "cleared"
			r.clear()
		}
		x.verify()
	}
	what = "the end"
	x.ask(r.keys())
}

func (s *Suite) churn(t *testing.T, d *device.Device) {
	for i, o := range []table.Options{
		{},
		{Capacity: 1, LoadFactor: 1},
		{Capacity: 500, LoadFactor: 1, Seed: 3},
		{Capacity: 2000, LoadFactor: 0.3, Seed: ^uint64(0)},
		{MaxBytes: 8 << 10},
		{MaxBytes: 8 << 10, LoadFactor: 1, Seed: 5},
	} {
		steps, universe := 40, 2500
		if i == 1 {
			universe = 40
		} else if !testenv.Long() {
			steps, universe = 15, 1000
		}
		if !testenv.Long() && i == 3 {
			continue // a low load factor takes more memory, and no other way
		}
		if s.light && i%3 != 2 { // those left have load factor 1, and one of them MaxBytes
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) { s.Churn(t, d, o, uint64(100+i), steps, universe) })
	}
}

// growth fills a table from nothing, in batches that it has to divide.
func (s *Suite) growth(t testing.TB, d *device.Device) {
	x := s.open(t, d, table.Options{}, 1)
	r := x.base()
	next := uint64(0)
	most, room := 30_000, 80_000 // more than families try at once
	if s.light {
		most, room = 6000, 24_000
	} else if !testenv.Long() {
		room = 40_000
	}
	for _, n := range []int{1, 7, 33, 500, 5000, most} {
		keys := r.fresh(&next, n)
		must(t, x.put(keys))
		x.verify()
		x.ask(keys)
	}
	// Where keys are unique, the same again must not make it grow.
	before, err := r.t.Stats()
	must(t, err)
	must(t, x.put(r.fresh(new(uint64), most)))
	x.verify()
	after, err := r.t.Stats()
	must(t, err)
	if after.Len == before.Len && after.Capacity > 2*before.Capacity {
		t.Errorf("capacity %d became %d, and no key was new", before.Capacity, after.Capacity)
	}
	// Room once made is there.
	r.clear()
	r.grow(room)
	before, err = r.t.Stats()
	must(t, err)
	must(t, x.put(r.fresh(&next, room)))
	after, err = r.t.Stats()
	must(t, err)
	// A map of strings reckons its capacity from how long keys are: once it has seen longer ones it tells of fewer.
	if after.Capacity > before.Capacity || after.Capacity < after.Len {
		t.Errorf("room for %d pairs was made, and capacity %d became %d, with %d pairs", room, before.Capacity, after.Capacity, after.Len)
	}
}

// fresh are n distinct keys after *next.
func (r *rig) fresh(next *uint64, n int) []uint64 { return fresh(next, n, r.keyBits) }

func fresh(next *uint64, n int, mask uint64) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		*next++
		keys[i] = *next * 0x9e3779b97f4a7c15 & mask // odd: a bijection of every width
	}
	return keys
}
