package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func updates[V uint32 | int32 | float32 | uint64 | int64 | float64](o Options) *tabletest.Updates {
	return tabletest.UpdatesOf(func(d *device.Device, base table.Options) (table.Map[uint32, V], error) {
		o := o
		hash := o.Hash
		o.Options = base
		o.Hash = hash
		m, err := New[uint32, V](d, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	})
}

func TestUpdates(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for what, suite := range map[string]*tabletest.Updates{
			"u32":                       updates[uint32](Options{}),
			"float by 4 lanes":          updates[float32](Options{InsertGroup: 4}),
			"double in soa, by 2 lanes": updates[float64](Options{Layout: SoA, InsertGroup: 2}),
			"i64 in aos":                updates[int64](Options{Layout: AoS}),
			"i32, one long chain":       updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}, Window: 1, InsertGroup: 1}),
			"i32, one chain by 8 lanes": updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}, InsertGroup: 8}),
		} {
			// Short runs have one: the tests under stress have SoA, and one chain by 8 lanes takes minutes.
			if name == "cpu" && !testenv.Long() && what != "float by 4 lanes" {
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				t.Cleanup(func() { must(t, d.Close()) })
				switch what {
				case "u32", "float by 4 lanes":
					suite.Run(t, tabletest.Whole, d)
				case "i64 in aos", "i32, one long chain", "i32, one chain by 8 lanes": // each operation is a compilation
					suite.Degenerate(t, d)
				default:
					suite.Run(t, tabletest.Types, d)
				}
			})
		}
	}
}

func TestUpdatesUnderStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.SeedsOf(16, 2)) {
		group := seed / 2 % 2
		if !testenv.Long() {
			group = seed % 2
		}
		o := Options{Layout: []Layout{Packed, SoA}[seed%2], InsertGroup: []int{1, 4}[group]}
		d := openCPU(t, device.WithStress(seed))
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		keys := make([]uint32, 600)
		for i := range keys {
			keys[i] = uint32(i * i % (5 + int(seed)*3))
		}
		if err := tabletest.OnesUnderStress(m, keys); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		must(t, m.Close())
	}
}

func TestUpdateRefusesTypes(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, [2]uint64](d, Options{Layout: AoS, Window: 16, InsertGroup: 4, FindGroup: 8})
	must(t, err)
	defer m.Close()
	if err := m.Update([]uint32{1}, make([][2]uint64, 1), table.Add); err == nil {
		t.Error("values of 16 bytes: no error")
	}
	out, added := make([][2]uint64, 2), make([]bool, 2)
	if n, err := m.FindOrInsert([]uint32{1, 1}, [][2]uint64{{1, 2}, {3, 4}}, out, added); n != 1 || err != nil || out[0] != out[1] {
		t.Errorf("%d added, values %v: %v", n, out, err)
	}
	s, err := New[uint64, struct{ A, B uint32 }](d, Options{Layout: SoA, Window: 32, InsertGroup: 8, FindGroup: 4})
	must(t, err)
	defer s.Close()
	if err := s.Update([]uint64{1}, make([]struct{ A, B uint32 }, 1), table.Max); err == nil {
		t.Error("values that are structs: no error")
	}
}

// addOnes adds with the device-side update, and puts what is absent.
const addOnes = `
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
using namespace warpcore;
WARPMAP_KERNEL(add_ones, warpcore::probeTestParams) {
    tile<4> g;
    for (u64 i = grid_thread() / 4; i < p.n; i += grid_threads() / 4) {
        if (p.steps && i % 16 == 0) erase<config>(p.table, g, (config::key)(i % 37));
        update<config>(p.table, g, (config::key)(i % 37), (config::value)1, [](config::value a, config::value b) { return a + b; });
        config::value v = (config::value)i;
        Outcome o = find_or_insert<config>(p.table, g, (config::key)(i % 37 + 1000), v);
        if (g.rank() == 0 && (o == FULL || v % 37 != i % 37 || (o == ADDED && v != i))) add(&counters(p.table)->failed, (u64)1);
    }
}`

// A kernel of the user's adds with the device-side update, beside erasing lanes; and puts what is absent, of which one lane's value stands.
func TestDeviceSideUpdate(t *testing.T) {
	for seed := range uint64(6) {
		for _, layout := range []Layout{Packed, SoA} {
			t.Run(fmt.Sprintf("%v/%d", layout, seed), func(t *testing.T) {
				d := openCPU(t, device.WithStress(seed))
				m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}, Layout: layout})
				must(t, err)
				defer m.Close()
				p := m.Program("add_ones", addOnes)
				p.Layouts = append(p.Layouts, probeTestParams{})
				mod, err := d.Compile(p)
				must(t, err)
				k, err := device.KernelOf[probeTestParams](mod, "add_ones")
				must(t, err)
				const n = 400
				tabletest.DeviceSideUpdate(t, m, n, func(erases uint64) error {
					return m.Use(nil, 2*n, func(tb Table) error {
						return k.Launch(nil, device.Grid{Blocks: 2, Threads: 64}, &probeTestParams{Table: tb, N: n, Steps: erases})
					})
				}, func() uint64 { return m.core.counters.Seen.Failed })
			})
		}
	}
}

// A key that one piece of a batch is refused for is refused in those behind, though their own number of rows would fit: else its value would be
// there without what was refused.
func TestRefusedKeysStayOut(t *testing.T) {
	add, err := frame.CombineHeader(table.Add, reflect.TypeFor[uint32]())
	must(t, err)
	for _, header := range []device.File{add, {}} {
		m, err := New[uint32, uint32](openCPU(t), Options{Window: 2, Options: table.Options{Hash: kernel.HashConstant, MaxBytes: 24 << 10}})
		must(t, err)
		tabletest.RefusedStayOut(t, &m.core.frame, m.core.updating(header), 4000, func() {})
		must(t, m.Check())
		must(t, m.Close())
	}
}

// On the CPU device a lane has sums of its own for keys that come often. Keys come often, seldom, often again, and take entries from one another;
// a table at its bound refuses some of them.
func TestSumsOfALane(t *testing.T) {
	t.Parallel()
	const rows = 300_000
	r := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(r, 1.1, 1, 1<<20)
	keys, values := make([]uint32, rows), make([]uint32, rows)
	for i := range keys {
		switch i / (rows / 6) {
		case 0, 3:
			keys[i] = uint32(r.IntN(50)) - 2 // among them the reserved keys
		case 1, 4:
			keys[i] = r.Uint32() % (1 << 18)
		default:
			keys[i] = uint32(zipf.Uint64())
		}
		values[i] = r.Uint32()
	}
	for _, bound := range []int64{0, 64 << 10} {
		for with, op := range map[table.Combine]func(a, b uint32) uint32{
			table.Add: func(a, b uint32) uint32 { return a + b },
			table.Min: func(a, b uint32) uint32 { return min(a, b) },
			table.Or:  func(a, b uint32) uint32 { return a | b },
		} {
			if bound > 0 && with != table.Add && !testenv.Long() {
				continue // what is refused is the same for all
			}
			m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{MaxBytes: bound}})
			must(t, err)
			refused := map[int]bool{}
			if err = m.Update(keys, values, with); err != nil {
				full := (*table.FullError)(nil)
				if bound == 0 || !errors.As(err, &full) {
					t.Fatal(err)
				}
				for _, i := range full.Positions {
					refused[i] = true
				}
			}
			want := map[uint32]uint32{}
			for i, k := range keys {
				if refused[i] {
					continue
				}
				if old, ok := want[k]; ok {
					want[k] = op(old, values[i])
				} else {
					want[k] = values[i]
				}
			}
			if bound != 0 && (len(refused) == 0 || len(want) < 1000) {
				t.Fatalf("%s: %d rows refused, %d keys in", with, len(refused), len(want))
			}
			same(t, m, want)
			must(t, m.Check())
			must(t, m.Close())
		}
	}
	c, err := NewCounter[uint32, uint32](openCPU(t), CounterOptions{})
	must(t, err)
	defer c.Close()
	must(t, c.Add(keys))
	want := map[uint32]uint32{}
	for _, k := range keys {
		want[k]++
	}
	same(t, c, want)
}

// same fails if the table has other pairs than these.
func same(t *testing.T, m interface {
	All() ([]uint32, []uint32, error)
}, want map[uint32]uint32) {
	t.Helper()
	keys, values, err := m.All()
	must(t, err)
	if len(keys) != len(want) {
		t.Fatalf("%d keys are in, want %d", len(keys), len(want))
	}
	for i, k := range keys {
		if v, ok := want[k]; !ok || v != values[i] {
			t.Fatalf("key %d has %d, want %d (%v)", k, values[i], v, ok)
		}
	}
}
