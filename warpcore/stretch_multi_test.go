package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// multiHistory inserts batches with equal keys, beside one another and apart, and reserved ones, and deletes, beside a Go map.
func multiHistory[K uint32 | uint64](d *device.Device, o table.Options, bytes int, rng *rand.Rand, rows, rounds int) error {
	m, err := NewMultiMap[K, K](d, Options{Options: o, Layout: Packed})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, bytes)
	model, pairs := map[K][]K{}, 0
	for round := range rounds {
		keys := make([]K, rows+rng.IntN(100))
		values := make([]K, len(keys))
		for i := range keys {
			keys[i], values[i] = K(rng.Uint64N(uint64(4*rows))), K(round<<20+i)
			switch {
			case i%1000 < 3:
				keys[i] = ^K(0) - K(i%5)
			case i%200 < 40 && i%20 > 0: // neighbours with one key, more than fit a window
				keys[i] = keys[i-1]
			}
		}
		if err := multiRound(d, m, keys, values, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		pairs += len(keys)
		var gone []K
		want := 0
		for k := range model {
			if rng.IntN(3) == 0 {
				gone = append(gone, k)
				want += len(model[k])
				delete(model, k)
			}
		}
		pairs -= want
		if n, err := m.Delete(gone, nil); err != nil || n != want {
			return fmt.Errorf("round %d: %d of %d deleted, %v", round, n, want, err)
		}
		if n, err := m.Len(); err != nil || n != pairs {
			return fmt.Errorf("round %d: %d pairs (want %d), %v", round, n, pairs, err)
		}
	}
	if !m.core.stretch.late.Loaded() {
		return fmt.Errorf("nothing went in stretch by stretch: %d windows", m.core.t.Main.Windows)
	}
	return nil
}

// multiRound inserts a batch, and compares the table with the model, which it brings up to date.
func multiRound[K uint32 | uint64](d *device.Device, m *MultiMap[K, K], keys, values []K, model map[K][]K) error {
	k, e1 := device.From(d, keys)
	v, e2 := device.From(d, values)
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	defer k.Free()
	defer v.Free()
	if err := m.InsertOn(nil, k, v); err != nil {
		return err
	}
	for i, k := range keys {
		model[k] = append(model[k], values[i])
	}
	var all []K
	for k := range model {
		all = append(all, k)
	}
	if err := m.Check(); err != nil {
		return err
	}
	offsets, got, err := m.FindAll(all)
	if err != nil {
		return err
	}
	for i, k := range all {
		if its := got[offsets[i]:offsets[i+1]]; !slices.Equal(sorted(its), sorted(model[k])) {
			return fmt.Errorf("key %#x has %d values, %v, and should have %d, %v", k, len(its), sorted(its), len(model[k]), sorted(model[k]))
		}
	}
	return nil
}

// Batches that go into a multimap stretch by stretch leave what others leave.
func TestMultiStretches(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {Capacity: 9000}, {Capacity: 9000, LoadFactor: 1, Seed: 3}, {Capacity: 3000, Hash: kernel.HashIdentity}} {
			if o.Hash != 0 && !testenv.Long() {
				continue // another compilation
			}
			must(t, multiHistory[uint32](d, o, 2<<10, rand.New(rand.NewPCG(1, uint64(i))), 3000, 6))
		}
		must(t, multiHistory[uint64](d, table.Options{Capacity: 20000, LoadFactor: 0.95}, 4<<10, rand.New(rand.NewPCG(1, 2)), 8000, 6))
		if d.Info().CUDA() { // stretches as large as elsewhere
			must(t, multiHistory[uint32](d, table.Options{Capacity: 1 << 20}, stretchBytes, rand.New(rand.NewPCG(1, 4)), 400000, 4))
			must(t, multiHistory[uint64](d, table.Options{Capacity: 1 << 20}, stretchBytes, rand.New(rand.NewPCG(1, 5)), 400000, 4))
		}
	})
}

// At its bound, a multimap refuses the same number of positions as it would otherwise, and names them: what it has is what the others are.
func TestMultiStretchesAtMaxBytes(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		s := newMultiSubject[uint32, uint32](t, d, Options{Options: table.Options{Capacity: 6000, MaxBytes: 64 << 10, LoadFactor: 0.9}}, 1)
		inStretches(s.m.core, 2<<10)
		refused := 0
		for range 6 {
			if full := s.insert(s.keys(2000, 4000)); full != nil {
				refused += len(full.Positions)
			}
			s.verify()
			s.find(s.keys(300, 4000))
		}
		if refused == 0 || !s.m.core.stretch.late.Loaded() {
			t.Errorf("%d refused; went in by stretches: %t", refused, s.m.core.stretch.late.Loaded())
		}
	})
}

func TestMultiStretchesUnderStress(t *testing.T) {
	stress := func(seed uint64) error {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := openFor(t, "cpu", device.WithStress(seed))
		return multiHistory[uint32](d, table.Options{Capacity: 2500, LoadFactor: 0.9}, 2<<10, rng, 1000, 4)
	}
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(testenv.Seeds(40)) {
			if err := stress(seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
	text, left := stretchMultiCU, multileftCUH
	defer func() { stretchMultiCU, multileftCUH = text, left }()
	for name, c := range map[string]struct {
		of       *string
		old, now string
	}{
		"two rows take one slot":                  {&stretchMultiCU, "if (or_of(mark, 1u << slot) >> slot & 1) return true;", "if (load_relaxed(mark) >> slot & 1) return true; or_of(mark, 1u << slot);"},
		"rows that are left over are forgotten":   {&stretchMultiCU, "for (u32 i = thread_index(); i < n; i += block_threads()) leave(", "for (u32 i = thread_index() + 1; i < n; i += block_threads()) leave("},
		"those beyond the list go over others":    {&stretchMultiCU, "if (n >= LISTED) return leave(add_in_memory(at<u32>(p.left), 1u), k, v);", "n %= 4;"},
		"full windows are not marked":             {&stretchMultiCU, "            pass(mark, h);\n", ""},
		"a run takes slots further on":            {&stretchMultiCU, "popcount(free) <= n) return C::WINDOW;", "popcount(free) <= n) return C::WINDOW; n = (u32)popcount(free) - 1;"},
		"tombstones are not counted":              {&stretchMultiCU, "if (!p.empty) reused +=", "if (false) reused +="},
		"what stands in the table is not seen":    {&stretchMultiCU, "marks[i] = Mark::taken(w) | past", "marks[i] = past"},
		"a run's lanes see different marks":       {&stretchMultiCU, "warp.shuffle(on ? load_relaxed(marks + window) : 0, (int)head);", "on ? load_relaxed(marks + window) : 0;"},
		"reserved keys are not counted":           {&stretchMultiCU, "            reserved++;\n", ""},
		"rows that are left over begin anew":      {&multileftCUH, "if (active) s.go_on();", "if (active) { s.go_on(); s.p.advance(); }"},
		"the last row that is left over is twice": {&multileftCUH, "FOR_EACH_ITEM(i, n) {", "if (n) n++; FOR_EACH_ITEM(i, n) {"},
	} {
		t.Run(name, func(t *testing.T) {
			before := *c.of
			defer func() { *c.of = before }()
			if n := strings.Count(before, c.old); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c.old)
			}
			*c.of = strings.Replace(before, c.old, c.now, 1)
			for seed := range uint64(40) {
				if err := stress(seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("no seed finds the defect")
		})
	}
}
