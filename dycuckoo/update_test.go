package dycuckoo

import (
	"errors"
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
	// That of short runs on the CPU: each operation is compiled, and the suite of all families has u32.
	few := map[string]bool{"i32, one chain": true}
	for what, suite := range map[string]*tabletest.Updates{
		"i64, wide":                     updates[int64](Options{Layout: Wide, Subtables: 2}),
		"i32, one chain":                updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}}),
		"float by 4 lanes, theorem 1":   updates[float32](Options{FindGroup: 4, InsertGroup: 2, Balance: Theorem1, Subtables: 3}),
		"i32, by votes":                 updates[int32](Options{Layout: Wide, Subtables: 2, Coordination: Voter}),
		"double under locks":            updates[float64](Options{Layout: PackedLocked, Subtables: 2}),
		"u32 by 16 lanes, large bucket": updates[uint32](Options{FindGroup: 16, Bucket: 128, Subtables: 2}),
	} {
		for _, name := range devices {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := open(t, name)
				switch {
				case !few[what] && name == "cpu" && !testenv.Long():
				case strings.Contains(what, "one chain"):
					suite.Degenerate(t, d)
				default:
					suite.Run(t, tabletest.Types, d)
				}
			})
		}
	}
}

// added puts batches of old and new keys, some of which come again and again, into a table that is full to the brim, so that pairs are moved on for the
// new ones; the programs are as edit leaves them. It tells what went wrong.
func added(t testing.TB, seed uint64, edit func(*device.Program) *device.Program) error {
	o := []Options{{FindGroup: 1, InsertGroup: 1}, {FindGroup: 4, InsertGroup: 4, Balance: Theorem1}, {Layout: PackedLocked, Subtables: 2}, {Layout: Wide, Subtables: 3},
		{Layout: PackedLocked, Coordination: Voter}, {Layout: Wide, Subtables: 3, Coordination: Voter}}[seed%6]
	o.Options = table.Options{LoadFactor: 1, MaxBytes: 4 << 10, Seed: seed + 1}
	d := open(t, "cpu", device.WithStress(seed))
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	defer m.Close()
	for _, with := range []table.Combine{table.Add, "value + old"} {
		header, err := frame.CombineHeader(with, reflect.TypeFor[uint32]())
		must(t, err)
		must(t, m.core.frame.Locked(func() error {
			_, err := m.core.updates.Of(d, header, func(header device.File) *device.Program { return edit(m.core.updateProgram(header)) }, frame.Named[insertParams]("combine"))
			return err
		}))
	}
	choose, err := d.Compile(edit(m.core.chooseProgram()))
	must(t, err)
	must(t, m.core.loadChoosing())
	must(t, errors.Join(m.core.keeping.bind(choose, "_new"), device.Bind(choose, "tell_values", &m.core.tell)))
	if err := tabletest.AddedUnderStress(m, seed, 100, func(i int) uint32 { return uint32(i) }, func(n int) uint32 { return uint32(n) }); err != nil {
		return err
	}
	if m.core.counters.Seen.Moved == 0 && m.core.cfg.locked() {
		t.Errorf("seed %d: no pair was moved", seed)
	}
	return nil
}

func TestUpdatesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(24)) {
		if err := added(t, seed, func(p *device.Program) *device.Program { return p }); err != nil {
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
		{Name: "rows whose key is put meanwhile are forgotten", File: "jobs.cuh", Old: "return o == FULL || (KEEPS && o == PRESENT);",
			New: "return o == FULL;"},
		{Name: "rows whose key is moved in meanwhile are forgotten", File: "jobs.cuh", Old: "if (p.rows.refused && !(KEEPS && !added))",
			New: "if (p.rows.refused)"},
		{Name: "rows of a group stay marked", File: "update.cu", Old: "if (s.found && p.rows.attempt) and_of(refused, ~group);",
			New: "if (s.found && p.rows.attempt) and_of(refused, ~own_row(i));"},
		{Name: "a value that went in is not told", File: "jobs.cuh", Old: "if (p.rows.out) at<value>(p.rows.out)[i] = v;",
			New: "if (p.rows.out) at<value>(p.rows.out)[i] = v + 1;"},
	}, 60, func(t *testing.T, seed uint64, edit func(*device.Program) *device.Program) error {
		return added(t, seed, edit)
	})
}

// addOnes adds with the device-side update, and puts what is absent.
const addOnes = `
#include "config.h"
#include "dycuckoo.cuh"
#include "layout.h"
using namespace dycuckoo;
WARPMAP_KERNEL(add_ones, dycuckoo::findParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        config::key k = (config::key)(i % 37);
        if (p.when && i % 16 == 0) erase<config>(p.table, k);
        Outcome o = update<config>(p.table, k, (config::value)1, [](config::value a, config::value b) { return a + b; });
        config::value v = (config::value)i;
        Outcome o2 = find_or_insert<config>(p.table, k + 1000, v);
        if (o == FULL || o2 == FULL || v % 37 != k || (o2 == ADDED && v != i)) add(&counters(p.table)->left, (u64)1);
    }
}`

// A kernel of the user's adds with the device-side update, beside erasing lanes; and puts what is absent, of which one lane's value stands.
func TestDeviceSideUpdate(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := open(t, "cpu", device.WithStress(seed))
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}, Layout: []Layout{Packed, Wide}[seed%2]})
			must(t, err)
			defer m.Close()
			mod, err := d.Compile(m.Program("add_ones", addOnes))
			must(t, err)
			k, err := device.KernelOf[findParams](mod, "add_ones")
			must(t, err)
			const n = 400
			tabletest.DeviceSideUpdate(t, m, n, func(erases uint64) error {
				return m.Use(nil, 2*n, func(tb Table) error {
					return k.Launch(nil, device.Grid{Blocks: 2, Threads: 64}, &findParams{Table: tb, N: n, When: erases})
				})
			}, func() uint64 { return m.core.counters.Seen.Left })
		})
	}
}

// A key that one piece of a batch is refused for is refused in those behind, though another path may be found: else its value would be there without
// what was refused.
func TestRefusedKeysStayOut(t *testing.T) {
	add, err := frame.CombineHeader(table.Add, reflect.TypeFor[uint32]())
	must(t, err)
	for _, insertion := range []func(m *Map[uint32, uint32]) frame.Insertion{
		func(m *Map[uint32, uint32]) frame.Insertion { return m.core.updating(add) },
		func(m *Map[uint32, uint32]) frame.Insertion { return m.core.findingOrInserting() },
	} {
		m, err := New[uint32, uint32](open(t, "cpu"), Options{Options: table.Options{MaxBytes: 8 << 10}})
		must(t, err)
		tabletest.RefusedStayOut(t, &m.core.frame, insertion(m), 2000, func() { m.core.opts.MaxBytes, m.core.frame.MaxBytes = 0, 0 })
		must(t, m.Check())
		must(t, m.Close())
	}
}

func TestChoices(t *testing.T) {
	for _, o := range []Options{{FindGroup: 4, InsertGroup: 2}, {Layout: Wide}} {
		for _, name := range devices {
			t.Run(fmt.Sprintf("%v/%s", o.Layout, name), func(t *testing.T) {
				t.Parallel()
				tabletest.ChoicesOf(func(d *device.Device, base table.Options) (table.Map[uint32, uint32], error) {
					o := o
					o.Options = base
					return New[uint32, uint32](d, o)
				}).Run(t, tabletest.Types, open(t, name))
			})
		}
	}
}
