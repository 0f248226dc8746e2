package tabletest

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// fill inserts until the table is full, and returns the error.
func (s *subject[K, V]) fill(next *uint64, batch int) *table.FullError {
	s.Helper()
	for range 1000 {
		err := s.insert(fresh[K](next, batch), s.numbers(batch))
		var full *table.FullError
		if errors.As(err, &full) {
			return full
		}
	}
	s.Fatal("a table with MaxBytes never is full")
	return nil
}

func fullTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for _, o := range []table.Options{{MaxBytes: 16 << 10}, {MaxBytes: 16 << 10, LoadFactor: 1}, {MaxBytes: 200 << 10, Capacity: 1 << 30}} {
		s := newSubject(t, d, newMap, o, 1)
		next := uint64(0)
		full := s.fill(&next, 333)
		s.verify()
		st, err := s.m.Stats()
		must(t, err)
		if full.Capacity != st.Capacity || st.LoadFactor < 0.75 {
			t.Errorf("full (%v) at %+v", full, st)
		}
		// A full table still replaces, finds, deletes; the room of what is deleted can be used.
		old := keysIn(s)
		n := len(old) / 10
		must(t, s.insert(old[:2*n], s.numbers(2*n)))
		must(t, s.insertNew(old[n:4*n], s.numbers(3*n)))
		s.delete(old[:3*n])
		s.verify()
		must(t, s.insert(fresh[K](&next, n), s.numbers(n)))
		s.verify()
		if err := s.insertNew(append(fresh[K](&next, 8*n), old[5*n:]...), s.numbers(8*n+len(old)-5*n)); !errors.As(err, &full) {
			t.Errorf("far more pairs than fit: %v", err)
		}
		s.verify()
		s.find(old)
		if err := s.m.Grow(1 << 40); !errors.Is(err, table.ErrMaxBytes) {
			t.Errorf("growing past MaxBytes: %v", err)
		}
		s.verify()
		s.clear()
		must(t, s.insert(fresh[K](&next, 100), s.numbers(100)))
		s.verify()
	}
}

func keysIn[K, V any](s *subject[K, V]) (keys []uint64) {
	for k := range s.model {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// fullDuplicatesTest overfills a table by a batch in which every key is several times: they are in or out together.
func fullDuplicatesTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for seed := range uint64(6) {
		s := newSubject(t, d, newMap, table.Options{MaxBytes: 8 << 10, LoadFactor: []float64{0, 1}[seed%2]}, seed)
		next := uint64(0)
		s.insert(fresh[K](&next, 150), s.numbers(150))
		keys := fresh[K](&next, 1500)
		for range 3 {
			keys = append(keys, keys[:500]...)
		}
		keys = append(keys, keysIn(s)[:50]...)
		s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		var err error
		if seed < 3 {
			err = s.insert(keys, s.numbers(len(keys)))
		} else {
			err = s.insertNew(keys, s.numbers(len(keys)))
		}
		if !errors.As(err, new(*table.FullError)) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s.verify()
		s.find(keys)
	}
}

// patternsTest puts in and out the bit patterns that a layout could want for itself, each alone and all at once.
func patternsTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for _, o := range []table.Options{{}, {MaxBytes: 8 << 10}} {
		s := newSubject(t, d, newMap, o, 2)
		mask := keyMask[K]()
		var special []uint64
		for i := range uint64(10) {
			special = append(special, i, ^i&mask, mask>>1+i&mask, mask>>1-i)
		}
		special = distinct(special)
		for range 2 {
			for _, k := range special {
				must(t, s.insertNew([]uint64{k}, s.numbers(1)))
				s.find(special)
			}
			s.verify()
			s.insert(special, s.numbers(len(special)))
			for i, k := range special {
				s.delete([]uint64{k, k})
				s.find(special)
				if i%8 == 0 {
					s.verify()
				}
			}
		}
		s.insert(append(special, special...), s.numbers(2*len(special)))
		s.grow(1000)
		s.find(special)
		s.verify()
	}
}
