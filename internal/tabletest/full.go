package tabletest

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// fill puts new keys in until the table is full, and returns the error.
func fill(x subject, next *uint64, batch int) *table.FullError {
	r := x.base()
	r.Helper()
	for range 1000 {
		var full *table.FullError
		if errors.As(x.put(r.fresh(next, batch)), &full) {
			return full
		}
	}
	r.Fatal("a table with MaxBytes never is full")
	return nil
}

func (s *Suite) full(t testing.TB, d *device.Device) {
	large := int64(80 << 10)
	if !testenv.Long() {
		large = 24 << 10
	}
	all := []table.Options{{MaxBytes: 16 << 10}, {MaxBytes: 16 << 10, LoadFactor: 1}, {MaxBytes: large, Capacity: 1 << 30}}
	switch {
	case s.light:
		all = all[:1]
	case !testenv.Long():
		all = all[1:] // of which one grows to its bound, as the first does, and one is of the same load factor
	}
	for _, o := range all {
		x := s.open(t, d, o, 1)
		r := x.base()
		next := uint64(0)
		full := fill(x, &next, 333)
		x.verify()
		st, err := r.t.Stats()
		must(t, err)
		if full.Capacity != st.Capacity || st.LoadFactor < 0.75 {
			t.Errorf("full (%v) at %+v", full, st)
		}
		// A full table still takes keys that are in, finds, deletes; the room of what is deleted can be used.
		old := r.keys()
		n := len(old) / 10
		if s.unique {
			must(t, x.put(old[:2*n]))
		}
		x.drop(old[:3*n])
		x.verify()
		if len(r.model) < len(old) { // the kind has deletions
			must(t, x.put(r.fresh(&next, n)))
			x.verify()
		}
		if err := x.put(append(r.fresh(&next, 8*n), old[5*n:]...)); !errors.As(err, &full) {
			t.Errorf("far more pairs than fit: %v", err)
		}
		x.verify()
		x.ask(old)
		if err := r.t.Grow(1 << 40); !errors.Is(err, table.ErrMaxBytes) {
			t.Errorf("growing past MaxBytes: %v", err)
		}
		x.verify()
		r.clear()
		must(t, x.put(r.fresh(&next, 100)))
		x.verify()
	}
}

// fullDuplicates overfills a table by a batch in which every key is several times: where keys are unique, they are in or out
// together.
func (s *Suite) fullDuplicates(t testing.TB, d *device.Device) {
	seeds := 2 * testenv.Seeds(3)
	if s.light {
		seeds = 1
	}
	for seed := range uint64(seeds) {
		x := s.open(t, d, table.Options{MaxBytes: 8 << 10, LoadFactor: []float64{0, 1}[seed%2]}, seed)
		r := x.base()
		next := uint64(0)
		x.put(r.fresh(&next, 150))
		keys := r.fresh(&next, 2500) // more than a set has room for
		for range 3 {
			keys = append(keys, keys[:500]...)
		}
		keys = append(keys, r.keys()[:50]...)
		r.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if err := x.put(keys); !errors.As(err, new(*table.FullError)) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		x.verify()
		x.ask(keys)
	}
}

// patterns puts in and out the bit patterns that a layout could want for itself, each alone and all at once.
func (s *Suite) patterns(t testing.TB, d *device.Device) {
	for i, o := range []table.Options{{}, {MaxBytes: 8 << 10}} {
		if s.light && i > 0 {
			break
		}
		x := s.open(t, d, o, 2)
		r := x.base()
		mask := r.keyBits
		var special []uint64
		for i := range uint64(10) {
			special = append(special, i, ^i&mask, mask>>1+i&mask, mask>>1-i)
		}
		special = distinct(special)
		for range 2 {
			for _, k := range special {
				must(t, x.put([]uint64{k}))
				x.ask(special)
			}
			x.verify()
			must(t, x.put(special))
			for i, k := range special {
				x.drop([]uint64{k, k})
				x.ask(special)
				if i%8 == 0 && testenv.Long() || i%16 == 0 {
					x.verify()
				}
			}
		}
		must(t, x.put(append(special, special...)))
		r.grow(1000)
		x.ask(special)
		x.verify()
	}
}
