package warpcore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// hintsOf counts the hints that tell of windows.
func hintsOf(t *testing.T, c *core) (n int) {
	im := imageOf(t, c)
	for i := range c.t.HintMask + 1 + sideHints {
		if kernel.Pattern(im.mem[c.t.Hints-im.base+i*hintBytes+8:], 8) != ^uint64(0) {
			n++
		}
	}
	return n
}

// probes compares the probe lengths that Stats computes with those that Check's walks give.
func (s *multiSubject[K, V]) probes() {
	s.Helper()
	stats, err := s.m.Stats()
	must(s, err)
	im := imageOf(s, s.m.core)
	sum, n, chains := uint64(0), 0, map[keyBits]chain{}
	for _, side := range []bool{false, true} {
		for slot := range im.region(side).Windows * uint64(im.cfg.window) {
			key := im.key(side, slot)
			if im.cfg.mark(key) != none {
				continue
			}
			key = im.cfg.real(key, side)
			its, ok := chains[key]
			if !ok {
				its = im.chain(key, side)
				chains[key] = its
			}
			sum += its.number[slot/uint64(im.cfg.window)]
			n++
		}
	}
	if want := float64(sum) / float64(n); math.Abs(stats.MeanProbes-want) > 1e-9*want {
		s.Errorf("a look-up reads %g windows, want %g", stats.MeanProbes, want)
	}
}

// longChains inserts, finds and deletes keys with so many values that their chains are most of the table's windows.
func longChains[K, V any](t *testing.T, d *device.Device, o Options, keys, rows int, reserved bool) {
	m, err := NewMultiMap[K, V](d, o)
	must(t, err)
	defer m.Close()
	rng := rand.New(rand.NewPCG(3, uint64(keys)))
	s := &multiSubject[K, V]{t, d, m, rng, map[uint64][]uint32{}}
	batch := func(n int) []uint64 {
		out := s.keys(n, keys)
		if reserved {
			for i := range out {
				out[i] = (^uint64(0) - uint64(i%3)) & keyMask[K]()
			}
		}
		return out
	}
	for range 2 {
		s.insert(batch(rows / 8)) // row by row at first, for nobody knows of long chains
		s.insert(batch(rows))
		s.insert(s.keys(rows/16, rows)) // others between
		s.verify()
	}
	if n := hintsOf(t, m.core); n == 0 {
		t.Errorf("no hints of %d keys with %d values", keys, 2*rows)
	}
	s.find(s.all())
	if long := m.counters.Seen.MaxProbes >= longChain; long != (m.long.Len() > 0) {
		t.Errorf("the longest chain has %d windows, and long ones have %d bytes of their own", m.counters.Seen.MaxProbes, m.long.Len())
	}
	s.probes()
	must(t, m.Grow(8*rows))
	s.verify()
	s.insert(batch(rows))
	s.verify()
	s.delete(batch(1))
	s.verify()
	if s.delete(s.all()); hintsOf(t, m.core) != 0 {
		t.Errorf("%d hints of no keys", hintsOf(t, m.core))
	}
	s.insert(batch(rows))
	s.verify()
	s.find(s.all())
	must(t, m.Clear())
	clear(s.model)
	s.insert(batch(rows))
	s.verify()
}

// Keys with very many values: a slot of a chain is found by nobody if one before it is left empty.
func TestManyValues(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		rows := 10_000
		if d.Info().CUDA() {
			rows = 300_000
		}
		for _, keys := range []int{1, 5, 60} {
			for _, o := range []Options{{Options: table.Options{Capacity: 2 * rows}}, {Options: table.Options{Capacity: 2 * rows, LoadFactor: 0.97}, Window: 4}} {
				t.Run(fmt.Sprintf("%d keys, window %d", keys, o.Window), func(t *testing.T) { longChains[uint32, uint32](t, d, o, keys, rows, false) })
			}
		}
		t.Run("reserved keys", func(t *testing.T) {
			longChains[uint32, uint32](t, d, Options{Options: table.Options{Capacity: 2 * rows}}, 1, rows, true)
		})
		t.Run("16-byte values", func(t *testing.T) {
			longChains[uint64, [2]uint64](t, d, Options{Options: table.Options{Capacity: 2 * rows}}, 3, rows, false)
		})
	})
}

// A batch in which one key has half of all rows goes in by keys, though most keys have one value.
func TestCrowdedKey(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		rows := contended
		s := newMultiSubject[uint32, uint32](t, d, Options{Options: table.Options{Capacity: 2 * rows}}, 4)
		keys := s.keys(rows, 1<<30)
		for i := range keys {
			if i%2 == 0 {
				keys[i] = 7
			}
		}
		s.insert(keys)
		if most := s.m.counters.Seen.MaxProbes; most < longChain {
			t.Fatalf("chains of %d windows", most)
		}
		if hintsOf(t, s.m.core) == 0 {
			t.Error("the rows were not brought together")
		}
		s.find([]uint64{7, 8})
		s.verify()
	})
}
