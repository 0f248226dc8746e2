package slab

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// The pool of a table whose keys are replaced for long comes to an end of its growth: chains are flushed once they have
// twice the slabs that the pairs want (core.longest), so a pool with half as many again is never nearly full. A pool
// grows by a half where allocations go from block to block: twice at most, from 1.25 times what the pairs want.
func TestPoolPlateaus(t *testing.T) {
	if !testenv.Long() {
		t.Skip("takes a minute: WARPMAP_LONG=1 has it run")
	}
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			t.Run("4+4", func(t *testing.T) { plateaus(t, d, func(i uint64) uint32 { return uint32(i) }) })
			t.Run("8+8", func(t *testing.T) { plateaus(t, d, func(i uint64) uint64 { return i }) })
		})
	}
}

// plateaus replaces the keys of a table slice by slice: key names that of a number, and no number comes again.
func plateaus[T uint32 | uint64](t *testing.T, d *device.Device, key func(uint64) T) {
	const (
		pairs, batch  = 1 << 20, 1 << 20 / 100
		slices, every = 6000, 500
	)
	m, err := New[T, T](d, Options{Options: table.Options{Capacity: pairs, LoadFactor: 0.85, Seed: 1}})
	must(t, err)
	defer m.Close()
	first, end := uint64(0), uint64(0)
	keys, values, found := make([]T, batch), make([]T, batch), make([]bool, batch)
	of := func(from uint64) []T {
		for i := range keys {
			keys[i] = key(from + uint64(i))
			values[i] = ^keys[i]
		}
		return keys
	}
	for ; end+batch <= pairs; end += batch {
		must(t, m.Insert(of(end), values))
	}
	var told []Stats
	tell := func(slice int) Stats {
		s, err := m.SlabStats()
		must(t, err)
		t.Logf("%4d slices: %.1f MB, %d slabs of the pool in %d super blocks, %d of them in chains of %.3f slabs on average "+
			"and %d at most, %d tombstones, %d changes of resident blocks", slice, float64(s.Bytes)/1e6, s.Units, s.SuperBlocks,
			s.Slabs-s.Buckets, s.SlabsPerBucket, s.MaxProbes, s.Tombstones, s.ResidentChanges)
		if s.Len != int(end-first) {
			t.Fatalf("%d pairs are in, want %d", s.Len, end-first)
		}
		told = append(told, s)
		return s
	}
	made := tell(0)
	for slice := 1; slice <= slices; slice++ {
		if n, err := m.Delete(of(first), nil); err != nil || n != batch {
			t.Fatalf("slice %d: %d of %d keys are deleted: %v", slice, n, batch, err)
		}
		first += batch
		must(t, m.Insert(of(end), values))
		end += batch
		if slice%every == 0 {
			tell(slice)
		}
	}
	for _, from := range []uint64{first, end - batch, end} {
		must(t, m.Find(of(from), values, found))
		for i := range keys {
			if found[i] != (from < end) || found[i] && values[i] != ^keys[i] {
				t.Fatalf("key %d: %t with %d", keys[i], found[i], values[i])
			}
		}
	}
	if half, last := told[len(told)/2], told[len(told)-1]; last.Bytes > half.Bytes || last.Units > half.Units {
		t.Errorf("%d bytes and %d slabs after %d slices, and %d and %d half-way: the pool goes on growing", last.Bytes, last.Units,
			slices, half.Bytes, half.Units)
	}
	for _, s := range told {
		if s.Units > made.Units*9/4+made.Units/50+64 {
			t.Errorf("the pool has %d slabs, and began with %d, want 9/4 of that at most", s.Units, made.Units)
		}
		if s.Slabs-s.Buckets > 2*made.Units+made.Units/50 {
			t.Errorf("%d slabs are in chains, want twice the %d at most that the pairs want", s.Slabs-s.Buckets, made.Units)
		}
		if s.MaxProbes > 8 {
			t.Errorf("a chain has %d slabs", s.MaxProbes)
		}
	}
	must(t, m.Check())
}
