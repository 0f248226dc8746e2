package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func openCPU(t testing.TB, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// onEach runs a test on the CPU device, and on a GPU where there is one.
func onEach(t *testing.T, f func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			t.Cleanup(func() { must(t, d.Close()) })
			f(t, d)
		})
	}
}

// A variant of a Map that the conformance suite, which takes the defaults of a device, does not reach.
func variant[K, V any](t *testing.T, o Options, stress bool) {
	var k K
	var v V
	t.Run(fmt.Sprintf("%T,%T,groups of %d,light %t,unpacked %t", k, v, o.Group, o.Light, o.unpacked), func(t *testing.T) {
		testenv.Turn(t)
		t.Parallel()
		newMap := func(d *device.Device, to table.Options) (table.Map[K, V], error) {
			o := o
			o.Options = to
			return New[K, V](d, o)
		}
		onEach(t, func(t *testing.T, d *device.Device) {
			for i, to := range []table.Options{{}, {MaxBytes: 8 << 10, LoadFactor: 1}, {LoadFactor: 0.3, Seed: 5}} {
				tabletest.Map(newMap).Churn(t, d, to, uint64(i), 15, 600)
			}
		})
		if stress {
			open := func(seed uint64) *device.Device { return openCPU(t, device.WithStress(seed)) }
			tabletest.MixedStress(t, open, newMap, table.Options{Capacity: 1, LoadFactor: 1}, 6)
		}
	})
}

// Each group, layout and allocator, with the widths by turns. Those under stress are kernels that historians compile too.
func TestVariants(t *testing.T) {
	variant[uint32, uint32](t, Options{Group: 8}, true)
	variant[uint32, uint64](t, Options{Group: 4, unpacked: true}, true)
	variant[uint64, uint32](t, Options{Group: 2, unpacked: true}, false)
	variant[uint64, uint64](t, Options{Group: 32}, false)
	variant[uint32, [2]uint64](t, Options{Group: 16, Light: true, NoPolicy: true}, false)
	if testenv.Long() {
		variant[uint32, uint32](t, Options{Group: 8, Light: true}, true)
		variant[uint32, uint32](t, Options{Group: 1, unpacked: true}, false)
		variant[uint64, uint32](t, Options{Group: 4, unpacked: true}, true)
		variant[uint32, uint64](t, Options{Group: 32, unpacked: true}, false)
		variant[uint64, uint64](t, Options{Group: 32}, true)
		variant[uint64, [2]uint64](t, Options{Group: 8}, false)
	}
}

// Every layout fills its slab, and no more.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		cfg   config
		slots int
	}{
		{config{keyBytes: 4, valueBytes: 4, packed: true}, 15},
		{config{keyBytes: 8, valueBytes: 4, packed: true}, 7},
		{config{keyBytes: 8, valueBytes: 8, packed: true}, 7},
		{config{keyBytes: 4, valueBytes: 4}, 15},
		{config{keyBytes: 4, valueBytes: 8}, 10},
		{config{keyBytes: 8, valueBytes: 4}, 10},
		{config{keyBytes: 8, valueBytes: 8}, 7},
		{config{keyBytes: 4, valueBytes: 16}, 6},
		{config{keyBytes: 8, valueBytes: 16}, 5},
		{config{keyBytes: 4, packed: true}, 31},
		{config{keyBytes: 8, packed: true}, 15},
	} {
		n := c.cfg.slots()
		end := c.cfg.linkOffset() + 4
		if c.cfg.valueBytes > 0 && !c.cfg.packed {
			if c.cfg.valuesAt(n) < end || c.cfg.valuesAt(n)%c.cfg.valueBytes != 0 {
				t.Errorf("%+v: values begin at %d, the link ends at %d", c.cfg, c.cfg.valuesAt(n), end)
			}
			end = c.cfg.valuesAt(n) + n*c.cfg.valueBytes
		}
		if n != c.slots || end > slabBytes {
			t.Errorf("%+v: %d slots, want %d; the slab ends at %d", c.cfg, n, c.slots, end)
		}
	}
}

// Go's home of a key is the kernels'.
func TestHomeTwin(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint64, uint64](d, Options{Options: table.Options{Capacity: 5000, Seed: 7, Hash: kernel.HashMueller}})
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	var keys []uint64
	for range 3000 {
		keys = append(keys, rng.Uint64()>>rng.UintN(64))
	}
	keys = append(keys, ^uint64(0), ^uint64(0)-1, ^uint64(0)-2, ^uint64(0)-3)
	must(t, m.Insert(keys, keys))
	must(t, m.Check()) // it compares each key's bucket with Go's
}

// Chains are as long as expected.
func TestOverflow(t *testing.T) {
	d := openCPU(t)
	for _, load := range []float64{0.3, 0.7, 1} {
		const n = 200_000
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: load}})
		must(t, err)
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = uint32(i)
		}
		must(t, m.Insert(keys, keys))
		s, err := m.SlabStats()
		must(t, err)
		got, want := s.Slabs-s.Buckets, int(m.core.cfg.overflow(n, int64(s.Buckets)))
		if float64(got) > 1.1*float64(want)+20 || float64(got) < 0.9*float64(want)-20 {
			t.Errorf("load factor %v: %d slabs beyond %d buckets, expected %d", load, got, s.Buckets, want)
		}
		if s.SuperBlocks != 1 {
			t.Errorf("load factor %v: %d super blocks, and there was to be room from the beginning: %+v", load, s.SuperBlocks, s)
		}
		must(t, m.Close())
	}
}

// Chains of keys that share their low halves, or their high halves, are as long as those of others, whatever the hash
// function.
func TestChainsOfKeysThatShareHalves(t *testing.T) {
	testenv.ByTurns(t)
	d := openCPU(t)
	for _, hash := range []int{kernel.HashMurmur, kernel.HashMueller} {
		chains(t, d, hash, map[string]func(i uint32) uint32{
			"4 bytes, equal low halves": func(i uint32) uint32 { return i << 16 }, "4 bytes, equal high halves": func(i uint32) uint32 { return 0xabcd<<16 | i },
		})
		chains(t, d, hash, map[string]func(i uint32) uint64{
			"8 bytes, equal low halves": func(i uint32) uint64 { return uint64(i) << 32 }, "8 bytes, equal high halves": func(i uint32) uint64 { return 0xabcd<<32 | uint64(i) },
		})
	}
}

func chains[K comparable](t *testing.T, d *device.Device, hash int, kinds map[string]func(i uint32) K) {
	const n = 10_000
	m, err := New[K, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: 0.7, Hash: hash, Seed: 7}})
	must(t, err)
	defer m.Close()
	for what, key := range kinds {
		must(t, m.Clear())
		keys, values := make([]K, n), make([]uint32, n)
		for i := range keys {
			keys[i] = key(uint32(i))
		}
		must(t, m.Insert(keys, values))
		s, err := m.Stats()
		must(t, err)
		if s.Len != n || s.MaxProbes > 6 || s.MeanProbes > 1.6 {
			t.Errorf("hash %d, %s: %d pairs, a look-up reads %.2f slabs, and %d at most", hash, what, s.Len, s.MeanProbes, s.MaxProbes)
		}
	}
}

// Flush leaves each bucket the fewest slabs that hold its pairs.
func TestFlush(t *testing.T) { onEach(t, testFlush) }

func testFlush(t *testing.T, d *device.Device) {
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 1000}, NoPolicy: true})
	must(t, err)
	const n = 20_000
	m.core.bound = true // chains get long instead of the table large
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	must(t, m.Insert(keys, keys))
	if _, err := m.Delete(keys[:n*9/10], nil); err != nil {
		t.Fatal(err)
	}
	before, err := m.SlabStats()
	must(t, err)
	must(t, m.Check())
	must(t, m.Flush())
	must(t, m.Check())
	after, err := m.SlabStats()
	must(t, err)
	if after.Tombstones != 0 || after.Len != n/10 || after.Utilization < 4*before.Utilization || after.Slabs > before.Slabs/3 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	found := make([]bool, n)
	must(t, m.Contains(keys, found))
	for i, f := range found {
		if f != (i >= n*9/10) {
			t.Fatalf("key %d is found %t", i, f)
		}
	}
}

// Mixed batches at a steady number of keys: neither memory nor chains grow, because the policy flushes.
func TestChurnKeepsItsShape(t *testing.T) { onEach(t, testChurnKeepsItsShape) }

func testChurnKeepsItsShape(t *testing.T, d *device.Device) {
	const live, batch = 20_000, 5_000
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: live}})
	must(t, err)
	rng := rand.New(rand.NewPCG(2, 2))
	first, next := uint32(0), uint32(live)
	keys := make([]uint32, live)
	for i := range keys {
		keys[i] = uint32(i)
	}
	must(t, m.Insert(keys, keys))
	ops, batchKeys, status := make([]table.Op, batch), make([]uint32, batch), make([]table.Status, batch)
	var shape []Stats
	for range 60 {
		for i := range ops {
			switch i % 4 {
			case 0:
				ops[i], batchKeys[i] = table.OpInsertNew, next
				next++
			case 1:
				ops[i], batchKeys[i] = table.OpDelete, first
				first++
			default:
				ops[i], batchKeys[i] = table.OpFind, first+batch/4+rng.Uint32N(live-batch/4)
			}
		}
		must(t, m.Mixed(ops, batchKeys, batchKeys, nil, status))
		for i, s := range status {
			want := table.Present
			if ops[i] == table.OpInsertNew {
				want = table.Added
			}
			if s != want && ops[i] != table.OpFind {
				t.Fatalf("%v of key %d: %v", ops[i], batchKeys[i], s)
			}
		}
		s, err := m.SlabStats()
		must(t, err)
		shape = append(shape, s)
	}
	must(t, m.Check())
	begin, end := shape[5], shape[len(shape)-1]
	if end.Len != live || end.Bytes > begin.Bytes || end.Buckets != begin.Buckets {
		t.Errorf("the table changed: from %+v\nto %+v", begin, end)
	}
	for _, s := range shape {
		if s.Utilization < 0.8*shape[0].Utilization || s.Tombstones > s.Slabs*m.core.cfg.slots()/flushShare {
			t.Errorf("%+v", s)
			break
		}
	}
}

// A map that may take no more memory says so soon, and fills what it has.
func TestExhaustion(t *testing.T) { onEach(t, testExhaustion) }

func testExhaustion(t *testing.T, d *device.Device) {
	all := []Options{{}, {Light: true}, {Options: table.Options{Hash: kernel.HashConstant}}}
	if d.Info().CUDA() {
		all = append(all, Options{Options: table.Options{Seed: 1}})
	}
	for _, o := range all {
		o.MaxBytes = 1 << 20
		if o.Seed == 1 {
			o.MaxBytes = 1 << 28
		}
		if o.Hash == kernel.HashConstant {
			o.MaxBytes = 1 << 14 // one chain of all slabs
		}
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		n := int(o.MaxBytes) / 4
		if o.Seed == 1 {
			n /= 2
		}
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = uint32(i)
		}
		once, err := New[uint32, uint32](d, Options{Light: o.Light, Group: o.Group, NoPolicy: o.NoPolicy, unpacked: o.unpacked, Options: table.Options{Hash: o.Hash}})
		must(t, err)
		must(t, once.Insert(keys[:1], keys[:1])) // which compiles the kernel
		must(t, once.Close())
		begin := time.Now()
		var full *table.FullError
		if err := m.Insert(keys, keys); !errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes) {
			t.Fatalf("%+v: %v", o, err)
		}
		if took := time.Since(begin); took > 20*time.Second { // a tenth of one, or more than one where others take the cores
			t.Errorf("%+v: it took %v", o, took)
		}
		must(t, m.Check())
		found, lost := make([]bool, n), map[int]bool{}
		must(t, m.Contains(keys, found))
		for _, p := range full.Positions {
			lost[p] = true
		}
		for i, f := range found {
			if f == lost[i] {
				t.Fatalf("%+v: position %d is in %t, and told to be lost %t", o, i, f, lost[i])
			}
		}
		s, err := m.SlabStats()
		must(t, err)
		if s.Bytes > o.MaxBytes || o.Hash == 0 && s.LoadFactor < 0.85 {
			t.Errorf("full at %+v", s)
		}
		// Mixed batches say the same.
		ops, status := make([]table.Op, n), make([]table.Status, n)
		for i := range ops {
			ops[i] = table.Op(i % 4)
		}
		must(t, m.Flush())
		err = m.Mixed(ops, keys, keys, nil, status)
		full = nil
		if err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
		none := 0
		for _, s := range status {
			if s == table.NoRoom {
				none++
			}
		}
		if full == nil && none > 0 || full != nil && none != len(full.Positions) {
			t.Errorf("%d operations found no room: %v", none, err)
		}
		must(t, m.Check())
		must(t, m.Close())
	}
}

// A table that runs out of memory in the middle of a batch of several chunks names what is not in, and tries every position.
func TestShortOfMemory(t *testing.T) {
	for _, more := range []int64{1 << 10, 20 << 10} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			open := func(bytes int64) *device.Device { return openCPU(t, device.WithMemory(bytes)) }
			tabletest.ShortOfMemory(t, open, func(d *device.Device, o table.Options) (table.Map[uint32, [2]uint64], error) {
				m, err := New[uint32, [2]uint64](d, Options{Options: o})
				if err == nil {
					m.core.frame.Stage.Chunk = 55_000
				}
				return m, err
			}, more)
		})
	}
}
