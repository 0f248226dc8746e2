package slab

import (
	"fmt"
	"reflect"
	"strings"
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
		base.Hash = o.Hash
		o := o
		o.Options = base
		return New[uint32, V](d, o)
	})
}

func TestUpdates(t *testing.T) {
	constant := table.Options{Hash: kernel.HashConstant}
	// That of short runs on the CPU: each operation is compiled, and the suite of all families has u32.
	few := map[string]bool{"i32, one chain": true}
	for what, suite := range map[string]*tabletest.Updates{
		"float by 4 lanes":           updates[float32](Options{Group: 4}),
		"i64 apart, by 2 lanes":      updates[int64](Options{Group: 2, unpacked: true}),
		"double, light":              updates[float64](Options{Light: true}),
		"i32, one chain":             updates[int32](Options{Options: constant}),
		"i32, one chain by 8 lanes":  updates[int32](Options{Options: constant, Group: 8}),
		"u32 apart, by a whole warp": updates[uint32](Options{Group: 32, unpacked: true}),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, d *device.Device) {
				switch {
				case !few[what] && !d.Info().CUDA() && !testenv.Long():
				case strings.Contains(what, "one chain"):
					suite.Degenerate(t, d)
				default:
					suite.Run(t, tabletest.Types, d)
				}
			})
		})
	}
}

// Batches that go in in the order of regions, by positions of their own, tell the same.
func TestUpdatesInOrder(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		suite := tabletest.UpdatesOf(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			m, err := New[uint32, uint32](d, Options{Options: o, Group: 8})
			if err == nil {
				m.core.regions = earlyRegions
			}
			return m, err
		})
		suite.Degenerate(t, d)
	})
}

// sums adds ones for keys that come again and again, at times for one key alone, by a program that is as edit leaves it. It tells what went wrong.
func sums(t testing.TB, seed uint64, o Options, edit func(*device.Program) *device.Program) error {
	d := openCPU(t, device.WithStress(seed))
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	defer m.Close()
	for _, with := range []table.Combine{table.Add, "value + old"} {
		header, err := frame.CombineHeader(with, reflect.TypeFor[uint32]())
		must(t, err)
		must(t, m.core.frame.Locked(func() error {
			_, err := m.core.updates.Of(d, header, func(header device.File) *device.Program { return edit(m.core.updateProgram(header)) }, frame.Named[insertParams]("update"))
			return err
		}))
	}
	keys := make([]uint32, 600)
	for i := range keys {
		if keys[i] = uint32(i * i % (5 + int(seed)*3)); seed%4 == 3 {
			keys[i] = 7
		}
	}
	return tabletest.OnesUnderStress(m, keys)
}

func stressed(seed uint64) Options {
	return Options{Options: table.Options{Capacity: 1, LoadFactor: 1}, Group: []int{1, 4, 8}[seed%3], unpacked: seed/2%2 == 1}
}

func TestUpdatesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(24)) {
		if err := sums(t, seed, stressed(seed), func(p *device.Program) *device.Program { return p }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Defects that are planted in a copy must be found.
func TestStressFindsLostUpdates(t *testing.T) {
	testenv.ByTurns(t)
	tabletest.FindsDefects(t, []tabletest.Defect{
		{Name: "a sum by a load and a store", File: "gather.cuh", Old: "add((number_atomic*)p, (number_atomic)number_of(value));",
			New: "store_relaxed(p, merged(load_relaxed(p), value));"},
		{Name: "a swap that failed is not tried again", File: "gather.cuh", Old: "if (was == seen) return;\n        seen = was;",
			New: "return;"},
		{Name: "rows of a group are forgotten", File: "gather.cuh", Old: "& 1;\n        if constexpr (MERGES) {",
			New: "& 1;\n        if constexpr (false) {"},
		{Name: "the others of a new key are forgotten", File: "update.cu", Old: "(rows & rows - 1)",
			New: "false"},
	}, 48, func(t *testing.T, seed uint64, edit func(*device.Program) *device.Program) error {
		return sums(t, seed, stressed(seed), edit)
	})
}

func TestUpdateRefusesTypes(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, [2]uint64](d, Options{})
	must(t, err)
	defer m.Close()
	if err := m.Update([]uint32{1}, make([][2]uint64, 1), table.Add); err == nil {
		t.Error("values of 16 bytes: no error")
	}
	out, added := make([][2]uint64, 2), make([]bool, 2)
	if n, err := m.FindOrInsert([]uint32{1, 1}, [][2]uint64{{1, 2}, {3, 4}}, out, added); n != 1 || err != nil || out[0] != out[1] {
		t.Errorf("%d added, values %v: %v", n, out, err)
	}
}

// addOnes adds with the device-side update, and puts what is absent.
const addOnes = `
#include "config.h"
#include "layout.h"
#include "slab.cuh"
using namespace slab;
WARPMAP_KERNEL(add_ones, slab::insertParams) {
    tile<4> g;
    Resident r;
    for (u64 i = grid_thread() / 4; i < p.rows.n; i += grid_threads() / 4) {
        config::key k = (config::key)(i % 37);
        if (p.when && i % 16 == 0) erase<config>(p.table, g, k);
        Outcome o = update<config>(p.table, g, r, k, (config::value)1, [](config::value a, config::value b) { return a + b; });
        config::value v = (config::value)i;
        Outcome o2 = find_or_insert<config>(p.table, g, r, k + 1000, v);
        if (g.rank() == 0 && (o == FULL || o2 == FULL || v % 37 != k || (o2 == ADDED && v != i))) add(&counters(p.table)->failed, (u64)1);
    }
}`

// A kernel of the user's adds with the device-side update, beside erasing lanes; and puts what is absent, of which one lane's value stands.
func TestDeviceSideUpdate(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := openCPU(t, device.WithStress(seed))
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}, unpacked: seed%2 == 1})
			must(t, err)
			defer m.Close()
			mod, err := d.Compile(m.Program("add_ones", addOnes))
			must(t, err)
			k, err := device.KernelOf[insertParams](mod, "add_ones")
			must(t, err)
			const n = 400
			tabletest.DeviceSideUpdate(t, m, n, func(erases uint64) error {
				return m.Use(nil, 2*n, func(tb Table) error {
					return k.Launch(nil, device.Grid{Blocks: 2, Threads: 64}, &insertParams{Table: tb, Rows: frame.Placing{N: n}, When: erases})
				})
			}, func() uint64 { return m.core.counters.Seen.Failed })
		})
	}
}

// A key that one piece of a batch is refused for is refused in those behind, though a slab may have become free: else its value would be there
// without what was refused.
func TestRefusedKeysStayOut(t *testing.T) {
	add, err := frame.CombineHeader(table.Add, reflect.TypeFor[uint32]())
	must(t, err)
	for _, insertion := range []func(m *Map[uint32, uint32]) frame.Insertion{
		func(m *Map[uint32, uint32]) frame.Insertion { return m.core.updating(add) },
		func(m *Map[uint32, uint32]) frame.Insertion { return m.core.findingOrInserting() },
	} {
		m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{Hash: kernel.HashConstant, MaxBytes: 8 << 10}})
		must(t, err)
		tabletest.RefusedStayOut(t, &m.core.frame, insertion(m), 2000, func() { m.core.opts.MaxBytes, m.core.frame.MaxBytes = 0, 0 })
		must(t, m.Check())
		must(t, m.Close())
	}
}

func TestChoicesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.SeedsOf(9, 3)) {
		m, err := New[uint32, uint32](openCPU(t, device.WithStress(seed)), stressed(seed))
		must(t, err)
		keys, when, want := make([]uint32, 400), make([]bool, 400), map[uint32]bool{}
		for i := range keys {
			keys[i], when[i] = uint32(i*i%151), i%3 == int(seed%3)
			want[keys[i]] = want[keys[i]] || when[i]
		}
		must(t, m.InsertIf(keys, keys, when))
		must(t, m.Check())
		values, found := make([]uint32, 400), make([]bool, 400)
		must(t, m.FindIf(keys, when, values, found))
		for i, k := range keys {
			if found[i] != when[i] || when[i] && values[i] != k || !when[i] && values[i] != 0 {
				t.Fatalf("seed %d, position %d: found %t, value %d, to be done %t", seed, i, found[i], values[i], when[i])
			}
		}
		must(t, m.Contains(keys, found))
		for i, k := range keys {
			if found[i] != want[k] {
				t.Fatalf("seed %d, key %d: in %t, want %t", seed, k, found[i], want[k])
			}
		}
		must(t, m.Close())
	}
}
