package warpcore

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func sequence(from, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = uint32(from + i)
	}
	return s
}

// Batches of any size leave the table no fuller than its load factor.
func TestLoadFactorIsKept(t *testing.T) {
	d := openCPU(t)
	for _, batch := range []int{100, 1000, 10_000} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{LoadFactor: 0.8}})
		must(t, err)
		mm, err := NewMultiMap[uint32, uint32](d, Options{Options: table.Options{LoadFactor: 0.8}})
		must(t, err)
		for at := 0; at < 40*batch; at += batch {
			keys := sequence(at, batch)
			must(t, m.Insert(keys, keys))
			must(t, mm.Insert(keys, keys))
			for _, stats := range []func() (table.Stats, error){m.Stats, mm.Stats} {
				if s, err := stats(); err != nil || s.LoadFactor > 0.8 || s.Len != at+batch {
					t.Fatalf("batches of %d, after %d pairs: %+v, %v", batch, at+batch, s, err)
				}
			}
		}
		must(t, m.Close())
		must(t, mm.Close())
	}
}

// A batch that begins with new keys and goes on with the same does not make a table for as many keys as it has positions.
func TestGrowthGuess(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{})
	must(t, err)
	defer m.Close()
	keys := make([]uint32, 2_000_000)
	for i := range keys {
		keys[i] = uint32(min(i, firstBatch))
	}
	must(t, m.Insert(keys, keys))
	must(t, m.Check())
	s, err := m.Stats()
	must(t, err)
	if s.Len != firstBatch+1 || s.Capacity > 16*s.Len {
		t.Errorf("%d slots for %d pairs", s.Capacity, s.Len)
	}
}

// Keys of one probe sequence fill the table as others do, as long as there is room.
func TestConstantHashWithMaxBytes(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{Hash: kernel.HashConstant, MaxBytes: 1 << 20}})
	must(t, err)
	defer m.Close()
	keys := sequence(0, 4000)
	must(t, m.Insert(keys, keys))
	if n, err := m.Len(); n != 4000 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// A multimap that may not grow refuses what does not fit, soon, and exactly.
func TestMultiMapRefusesSoon(t *testing.T) {
	m, err := NewMultiMap[uint32, uint32](openCPU(t), Options{Options: table.Options{MaxBytes: 512 << 10}})
	must(t, err)
	defer m.Close()
	keys := sequence(0, 90_000)
	start := time.Now()
	err = m.Insert(keys, keys)
	var full *table.FullError
	if !errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes) {
		t.Fatal(err)
	}
	n, err := m.Len()
	must(t, err)
	if n+len(full.Positions) != len(keys) || float64(n) < 0.95*float64(full.Capacity) {
		t.Errorf("%d pairs are in, %d are not, of %d; %d slots", n, len(full.Positions), len(keys), full.Capacity)
	}
	counts := make([]uint32, len(keys))
	must(t, m.Count(keys, counts))
	for _, i := range full.Positions {
		if counts[i]++; counts[i] != 1 {
			t.Fatalf("position %d is in, and told as not in", i)
		}
	}
	for i, c := range counts {
		if c != 1 {
			t.Fatalf("position %d has %d values", i, c)
		}
	}
	must(t, m.Check())
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

// The largest table within a bound is found at once, and is the largest.
func TestBoundIsFoundAtOnce(t *testing.T) {
	for _, limit := range []int64{1 << 10, 1<<20 + 12345, 8 << 30, 1 << 50} {
		near := config{keyBytes: 4, valueBytes: 4, layout: Packed, window: 8}
		for _, cfg := range []config{near, near.ofMultimap()} {
			c := &core{cfg: cfg, opts: Options{Options: table.Options{MaxBytes: limit}}}
			start := time.Now()
			w := c.maxWindows(1)
			if took := time.Since(start); took > 20*time.Second { // microseconds, or the age of the world
				t.Errorf("%d bytes: took %v", limit, took)
			}
			next := cfg.windowsFor((w + 1) * 8)
			if w < 1 || w != cfg.windowsFor(w*8) || c.bytes(w, 1) > limit || c.bytes(next, 1) <= limit {
				t.Errorf("%d bytes: %d windows take %d, and the next %d take %d", limit, w, c.bytes(w, 1), next, c.bytes(next, 1))
			}
		}
	}
}

// At its bound, a table is not laid anew for a few tombstones: a pair deleted and another inserted costs as much as elsewhere.
func TestNoRebuildForATombstone(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{MaxBytes: 256 << 10, Capacity: 1 << 20}})
	must(t, err)
	defer m.Close()
	keys := sequence(0, int(m.core.capacity())*9/10)
	must(t, m.Insert(keys, keys))
	before := m.core.mem.Addr()
	for i := range 200 {
		if n, err := m.Delete(keys[i:i+1], nil); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		next := []uint32{uint32(1<<20 + i)}
		must(t, m.Insert(next, next))
		if m.core.mem.Addr() != before {
			t.Fatalf("the table was laid anew after %d deletions", i+1)
		}
	}
	must(t, m.Check())
}

// Use does not run a kernel that may find too little room.
func TestUseWithoutRoom(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{MaxBytes: 64 << 10}})
	must(t, err)
	defer m.Close()
	called := false
	err = m.Use(nil, 1_000_000, func(Table) error { called = true; return nil })
	if !errors.Is(err, table.ErrMaxBytes) || called {
		t.Errorf("%v, called: %v", err, called)
	}
	must(t, m.Use(nil, 1000, func(Table) error { called = true; return nil }))
	if !called {
		t.Error("not called")
	}
}

// beyondParams are the parameters of the kernel below: it inserts the keys 0 … N-1.
type beyondParams struct {
	Table Table
	N     uint64
}

const beyondKernel = `
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
WARPMAP_KERNEL(beyond, warpcore::beyondParams) {
    tile<1> g;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) warpcore::insert<config>(p.table, g, (u32)i, (u32)i);
}`

// A kernel that inserts more than it said leaves the table full, and the next Insert grows it.
func TestUseBeyondRoom(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 500}})
	must(t, err)
	defer m.Close()
	program := m.Program("beyond", beyondKernel)
	program.Layouts = append(program.Layouts, beyondParams{})
	module, err := d.Compile(program)
	must(t, err)
	k, err := device.KernelOf[beyondParams](module, "beyond")
	must(t, err)
	slots := int(m.core.capacity())
	must(t, m.Use(nil, 1, func(t Table) error {
		return k.Launch(nil, device.GridFor(int64(2*slots), frame.Threads), &beyondParams{t, uint64(2 * slots)})
	}))
	keys := sequence(1<<20, 300)
	must(t, m.Insert(keys, keys))
	must(t, m.Check())
	found := make([]bool, len(keys))
	must(t, m.Contains(keys, found))
	if n, err := m.Len(); n != slots+len(keys) || err != nil || slices.Contains(found, false) {
		t.Errorf("%d pairs, %v, want %d, and all new keys found", n, err, slots+len(keys))
	}
}

// Delete counts what it removed, whatever is inserted beside it.
func TestMultiMapDeleteCount(t *testing.T) {
	m, err := NewMultiMap[uint32, uint32](openCPU(t), Options{})
	must(t, err)
	defer m.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 50 {
			keys := sequence(1000*i, 1000)
			if err := m.Insert(keys, keys); err != nil {
				t.Error(err)
			}
		}
	})
	absent := sequence(1<<20, 100)
	for range 50 {
		if n, err := m.Delete(absent, nil); n != 0 || err != nil {
			t.Errorf("%d pairs of absent keys deleted, %v", n, err)
		}
	}
	wg.Wait()
	keys := sequence(0, 50_000)
	if n, err := m.Delete(keys, nil); n != len(keys) || err != nil {
		t.Errorf("%d of %d deleted, %v", n, len(keys), err)
	}
}

// Slices of pinned memory go to the device and back without staging, and ordinary ones in several chunks.
func TestPinnedSlices(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, name[:min(4, len(name))], err)
			defer d.Close()
			n := 100_003
			if d.Info().CUDA() {
				n = 10_000_003 // more than two chunks
			}
			m, err := New[uint32, uint32](d, Options{})
			must(t, err)
			pinnedKeys, err := device.MakeHost[uint32](d, n)
			must(t, err)
			pinnedValues, err := device.MakeHost[uint32](d, n+1)
			must(t, err)
			keys, values := pinnedKeys.Slice(), pinnedValues.Slice()[1:] // not at the start
			for i := range keys {
				keys[i], values[i] = uint32(i), ^uint32(i)
			}
			must(t, m.Insert(keys, values))
			clear(values)
			ordinary, found := make([]uint32, n), make([]bool, n)
			must(t, m.Find(keys, values, found))
			must(t, m.Find(keys, ordinary, nil))
			for i := range keys {
				if !found[i] || values[i] != ^uint32(i) || ordinary[i] != ^uint32(i) {
					t.Fatalf("key %d: found %v, value %#x in pinned memory, %#x in ordinary", i, found[i], values[i], ordinary[i])
				}
			}
			must(t, m.Close())
		})
	}
}
