package gph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// smallStretch fits the shared memory of the CPU device's blocks.
const smallStretch = 8 << 10

// inStretches makes a table build whatever it can stretch by stretch.
func inStretches(c *core) { c.stretch.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40} }

// buildHistory builds a table of n pairs, of which some are equal, and some have reserved keys, beside a Go map; then it goes on
// as any other.
func buildHistory[K, V uint32 | uint64](d *device.Device, o Options, seed uint64, n int) error {
	rng := rand.New(rand.NewPCG(seed, 5))
	o.stretchBytes = smallStretch
	m, err := New[K, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core)
	keys, values := make([]K, n), make([]V, n)
	may := map[K]map[V]bool{}
	equal := []int{64, 4, 1 << 30}[seed%3] // one row in so many has a key from before
	for i := range keys {
		keys[i], values[i] = K(rng.Uint64()), V(rng.Uint64())
		switch {
		case i%1000 < 5:
			keys[i] = ^K(0) - K(rng.IntN(6))
		case i%1000 < 10:
			keys[i] = K(rng.IntN(3))
		case rng.IntN(equal) == 0:
			keys[i] = keys[rng.IntN(i+1)]
		}
		if may[keys[i]] == nil {
			may[keys[i]] = map[V]bool{}
		}
		may[keys[i]][values[i]] = true
	}
	verify := func() error {
		if err := m.Check(); err != nil {
			return err
		}
		if got, err := m.Len(); err != nil || got != len(may) {
			return fmt.Errorf("%d pairs, want %d, %v", got, len(may), err)
		}
		got, found := make([]V, n), make([]bool, n)
		if err := m.Find(keys, got, found); err != nil {
			return err
		}
		for i, k := range keys {
			if found[i] != (may[k] != nil) || found[i] && !may[k][got[i]] {
				return fmt.Errorf("key %#x: %#x, %t", k, got[i], found[i])
			}
		}
		return nil
	}
	if err := m.Build(keys, values); err != nil {
		return err
	}
	if m.core.stretch.built == 0 {
		return errors.New("nothing was built stretch by stretch")
	}
	if err := verify(); err != nil {
		return fmt.Errorf("built: %w", err)
	}
	for _, k := range keys[:n/4] {
		delete(may, k)
	}
	if _, err := m.Delete(keys[:n/4], nil); err != nil {
		return err
	}
	for i := range keys[:n/4] {
		k := keys[i] ^ K(i%2)<<7
		if keys[i] = k; may[k] == nil {
			may[k] = map[V]bool{}
		}
		may[k][values[i]] = true
	}
	if err := m.Insert(keys[:n/4], values[:n/4]); err != nil {
		return err
	}
	if err := verify(); err != nil {
		return fmt.Errorf("inserted: %w", err)
	}
	if err := m.Grow(3 * n); err != nil {
		return err
	}
	if err := verify(); err != nil {
		return fmt.Errorf("grown: %w", err)
	}
	return nil
}

func sized(n int, load float64, hash int) Options {
	return Options{Options: table.Options{Capacity: n, LoadFactor: load, Hash: hash}}
}

func TestStretches(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			const n = 40_000
			must(t, buildHistory[uint32, uint32](d, sized(n, 0.8, 0), 0, n))
			must(t, buildHistory[uint32, uint32](d, sized(n, 0.95, 0), 1, n))
			must(t, buildHistory[uint64, uint64](d, sized(n, 0.8, 0), 2, n))
			must(t, buildHistory[uint32, uint64](d, sized(0, 0, 0), 3, n))
			if testenv.Long() {
				must(t, buildHistory[uint64, uint64](d, sized(n, 0.95, 0), 4, n))
				must(t, buildHistory[uint64, uint32](d, sized(n, 0.95, kernel.HashMueller), 5, n))
			}
		})
	}
}

// stressed builds under stress: with fewer virtual buckets, smaller tables have stretches.
func stressed(t *testing.T, seed uint64) error {
	o := sized(8000, 0.9, 0)
	o.VirtualBuckets = 8
	if seed%4 == 3 {
		o = sized(33_000, 0.95, 0)
	}
	return buildHistory[uint32, uint32](open(t, "cpu", device.WithStress(seed)), o, seed, o.Capacity)
}

func TestStretchesUnderStress(t *testing.T) {
	for seed := range uint64(testenv.Seeds(20)) {
		if err := stressed(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Dense tables of distinct keys leave few pairs over.
func TestStretchesLeaveFew(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for _, load := range []float64{0.533, 0.8, 0.95} {
				const n = 200_000
				keys, err := workload.NewKeys("rand", 4, 1)
				must(t, err)
				k, v := make([]uint32, n), make([]uint32, n)
				workload.Pairs(keys, k, v)
				o := sized(n, load, 0)
				o.stretchBytes, o.Seed = 32<<10, 7
				m, err := New[uint32, uint32](d, o)
				must(t, err)
				inStretches(m.core)
				must(t, m.Build(k, v))
				must(t, m.Check())
				s, err := m.IndexStats()
				must(t, err)
				t.Logf("load %v: %d left over; %+v", load, m.core.stretch.left, s)
				if s.Len != n || s.Moves > n/1000 || m.core.stretch.built != 1 {
					t.Errorf("load factor %v: %+v", load, s)
				}
				must(t, m.Close())
			}
		})
	}
}
