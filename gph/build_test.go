package gph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// TestBuild builds dense tables of distinct keys: nothing is left to the insert kernels but a few pairs, and the table
// keeps its size.
func TestBuild(t *testing.T) {
	const n = 100_000
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for _, load := range []float64{0.533, 0.95, 0.8, 0.9}[:2*testenv.Seeds(2)] {
				buildDistinct[uint32, uint32](t, d, load, n)
				buildDistinct[uint64, uint64](t, d, load, n)
			}
		})
	}
}

func buildDistinct[K, V workload.Word](t *testing.T, d *device.Device, load float64, n int) {
	t.Helper()
	var key K
	keys, err := workload.NewKeys("rand", len(fmt.Appendf(nil, "%b", ^key))/8, 1)
	must(t, err)
	k, v := make([]K, n), make([]V, n)
	workload.Pairs(keys, k, v)
	m, err := New[K, V](d, Options{Options: table.Options{Capacity: n, LoadFactor: load}})
	must(t, err)
	before, err := m.Stats()
	must(t, err)
	must(t, m.Build(k, v))
	must(t, m.Check())
	s, err := m.IndexStats()
	must(t, err)
	if s.Len != n || s.Capacity != before.Capacity || s.Moves > n/1000 {
		t.Errorf("%d pairs at load factor %v, in %d slots: %+v", n, load, before.Capacity, s)
	}
	got, found := make([]V, n), make([]bool, n)
	must(t, m.Find(k, got, found))
	for i := range got {
		if !found[i] || got[i] != v[i] {
			t.Fatalf("key %#x: %#x, %t", k[i], got[i], found[i])
		}
	}
	must(t, m.Close())
}

// TestBuildOfAnything builds from keys that come several times, one of them very often, and from reserved patterns, in
// stress mode too; then the table goes on as any other.
func TestBuildOfAnything(t *testing.T) {
	for seed := range uint64(6 * testenv.Seeds(2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var opts []device.Option
			n := 30_000
			if seed%2 == 1 {
				opts, n = append(opts, device.WithStress(seed)), 3_000
			}
			d := open(t, "cpu", opts...)
			rng := rand.New(rand.NewPCG(seed, 7))
			m, err := New[uint32, uint64](d, Options{Options: table.Options{Capacity: []int{0, n, 3 * n}[seed%3], Seed: seed, LoadFactor: 0.9}})
			must(t, err)
			keys, values := make([]uint32, n), make([]uint64, n)
			may := map[uint32]map[uint64]bool{}
			for i := range keys {
				switch keys[i] = rng.Uint32(); rng.IntN(8) {
				case 0:
					keys[i] = 12345
				case 1:
					keys[i] = ^rng.Uint32N(6)
				case 2:
					keys[i] = keys[rng.IntN(i+1)]
				}
				values[i] = rng.Uint64()
				if may[keys[i]] == nil {
					may[keys[i]] = map[uint64]bool{}
				}
				may[keys[i]][values[i]] = true
			}
			must(t, m.Build(keys, values))
			must(t, m.Check())
			if got, err := m.Len(); err != nil || got != len(may) {
				t.Fatalf("%d pairs, want %d, %v", got, len(may), err)
			}
			got, found := make([]uint64, n), make([]bool, n)
			must(t, m.Find(keys, got, found))
			for i := range got {
				if !found[i] || !may[keys[i]][got[i]] {
					t.Fatalf("key %#x: %#x, %t", keys[i], got[i], found[i])
				}
			}
			if err := m.Build(keys, values); err == nil {
				t.Error("Build put pairs into a table that had some")
			}
			must(t, m.Insert(keys[:n/2], values[:n/2]))
			_, err = m.Delete(keys[:n/3], nil)
			must(t, err)
			must(t, m.Check())
			must(t, m.Clear())
			must(t, m.Build(keys[:n/2], values[:n/2]))
			must(t, m.Check())
			must(t, m.Close())
		})
	}
}

// A set that does not fit leaves exactly the keys out that the error names.
func TestBuildFull(t *testing.T) {
	d := open(t, "cpu")
	for _, n := range []int{2_100, 1_900, 2_040} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 17 << 10, LoadFactor: 1}})
		must(t, err)
		keys, values := make([]uint32, n), make([]uint32, n)
		for i := range keys {
			keys[i], values[i] = uint32(i)*2654435761, uint32(i)
		}
		var full *table.FullError
		err = m.Build(keys, values)
		if !errors.As(err, &full) && err != nil || err == nil && n > 2_080 {
			t.Fatalf("%d pairs: %v", n, err)
		}
		found := make([]bool, n)
		must(t, m.Contains(keys, found))
		out := 0
		for i, in := range found {
			if in {
				continue
			}
			if full == nil || out >= len(full.Positions) || full.Positions[out] != i {
				t.Fatalf("position %d of %d is not in, and the error says %v", i, n, err)
			}
			out++
		}
		if full != nil && out != len(full.Positions) {
			t.Errorf("%d positions are named, %d are not in", len(full.Positions), out)
		}
		must(t, m.Check())
		must(t, m.Close())
	}
}

// Bulk construction counts in counters that an export has used before.
func TestBuildAfterAll(t *testing.T) {
	d := open(t, "cpu")
	const n = 100_000
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 2 * n}})
	must(t, err)
	k := make([]uint32, n)
	for i := range k {
		k[i] = uint32(i)
	}
	for range 3 {
		must(t, m.Insert(k, k))
		keys, _, err := m.All()
		must(t, err)
		if len(keys) != n {
			t.Fatalf("%d keys", len(keys))
		}
		_, err = m.Delete(k, nil)
		must(t, err)
		must(t, m.Check())
	}
	must(t, m.Close())
}

// Pairs that come several times leave nothing over in a dense table, though their cells shrink while they are planned.
func TestBuildOfDuplicates(t *testing.T) {
	d := open(t, "cpu")
	const n = 100_000
	for _, each := range []int{20, 5} { // one row in so many is an earlier one's key
		k := make([]uint32, n)
		for i := range k {
			if k[i] = uint32(i) * 2654435761; i%each == 0 {
				k[i] = k[i/2]
			}
		}
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: 0.95}})
		must(t, err)
		must(t, m.Build(k, k))
		must(t, m.Check())
		s, err := m.IndexStats()
		must(t, err)
		if s.Moves > n/1000 {
			t.Errorf("one row in %d comes again: %d moves, %+v", each, s.Moves, s)
		}
		must(t, m.Close())
	}
}

// Build of few pairs leaves a table that can be filled.
func TestBuildOfFew(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 100_000}})
	must(t, err)
	before, err := m.IndexStats()
	must(t, err)
	must(t, m.Build([]uint32{1}, []uint32{2}))
	after, err := m.IndexStats()
	must(t, err)
	if after.Cells != before.Cells {
		t.Errorf("%d cells became %d", before.Cells, after.Cells)
	}
	must(t, m.Close())
}
