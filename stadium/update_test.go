package stadium

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
	// That of short runs on the CPU: each operation is compiled, and the suite of all families has u32.
	few := map[string]bool{"i64 in host memory": true}
	for what, suite := range map[string]*tabletest.Updates{
		"i64 in host memory":      updates[int64](places["host"]),
		"i32, one chain":          updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}}),
		"float, tickets of a bit": updates[float32](Options{Ticket: 1}),
		"u32 in both memories":    updates[uint32](places["split"]),
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

// Batches that go in in the order of regions, by positions of their own, tell the same.
func TestUpdatesInOrder(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			suite := tabletest.UpdatesOf(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
				m, err := New[uint32, uint32](d, Options{Options: o})
				if err == nil {
					m.core.regions = earlyRegions(m.core)
				}
				return m, err
			})
			suite.Degenerate(t, open(t, name))
		})
	}
}

// added puts batches of old and new keys, some of which come again and again, into a table that gets full; the programs are as edit leaves them. It tells
// what went wrong.
func added[K comparable](t *testing.T, d *device.Device, seed uint64, o Options, keyOf func(i int) K, edit func(*device.Program) *device.Program) error {
	o.Options = table.Options{LoadFactor: 1, MaxBytes: 4 << 10 * max(1, int64(reflect.TypeFor[K]().Size())/16), Seed: seed + 1}
	m, err := New[K, uint64](d, o)
	must(t, err)
	defer m.Close()
	for _, with := range []table.Combine{table.Add, "value + old"} {
		header, err := frame.CombineHeader(with, reflect.TypeFor[uint64]())
		must(t, err)
		must(t, m.core.frame.Locked(func() error {
			_, err := m.core.updates.Of(d, header, func(header device.File) *device.Program { return edit(m.core.updateProgram(header)) }, frame.Named[insertParams]("update"))
			return err
		}))
	}
	choose, err := d.Compile(edit(m.core.chooseProgram()))
	must(t, err)
	must(t, m.core.choose())
	must(t, device.Bind(choose, "find_or_insert", &m.core.findOrInsert))
	return tabletest.AddedUnderStress(m, seed, 60, keyOf, func(n int) uint64 { return uint64(n)<<32 | 1 })
}

func asItIs(p *device.Program) *device.Program { return p }

func number(i int) uint32 { return uint32(i) }

var stressed = []Options{{}, {Ticket: 2}, places["host"], places["split"]}

func TestUpdatesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(24)) {
		if err := added(t, open(t, "cpu", device.WithStress(seed)), seed, stressed[seed%4], number, asItIs); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Keys that are held in registers, and such as are not.
func TestUpdatesOfLongKeys(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			all := d.Info().CUDA() || testenv.Long()
			for seed := range uint64(4) { // in short runs the first option with the one, and the last with the other
				if all || seed == 0 {
					must(t, added(t, d, seed, stressed[seed], func(i int) [5]uint32 { return [5]uint32{0, 7, uint32(i % 3), 0, uint32(i)} }, asItIs))
				}
				if all || seed == 3 {
					must(t, added(t, d, seed, stressed[seed], func(i int) [64]uint32 { return [64]uint32{1: uint32(i % 5), 63: uint32(i)} }, asItIs))
				}
			}
		})
	}
}

// Defects that are planted in a copy must be found.
func TestStressFindsLostUpdates(t *testing.T) {
	testenv.ByTurns(t)
	tabletest.FindsDefects(t, []tabletest.Defect{
		{Name: "a value is written when the access bit is given back", File: "stadium-update.cu", Old: "            if (free) put_key<C>(x.k, slot);\n            ValueSeen<C>::store(to, now);\n        });",
			New: "            if (free) put_key<C>(x.k, slot);\n            number_to = to, number_now = now;\n        }) ? true : (active && number_to ? (ValueSeen<C>::store(number_to, number_now), false) : false);"},
		{Name: "the access bit is not asked for", File: "stadium.cuh", Old: "        return !(or_acquire(at<u32>(t.access) + bucket / 32, 1u << (bucket & 31)) >> (bucket & 31) & 1);",
			New: "        or_acquire(at<u32>(t.access) + bucket / 32, 1u << (bucket & 31));\n        return true;"},
		{Name: "the value of a new key is told before it is put", File: "stadium-choose.cu", Old: "            if (free) put_pair<C>(slot, x.k, v);\n            give_value(row_value(p.rows.out, row), slot);",
			New: "            give_value(row_value(p.rows.out, row), slot);\n            if (free) put_pair<C>(slot, x.k, v);"},
	}, 60, func(t *testing.T, seed uint64, edit func(*device.Program) *device.Program) error {
		return added(t, open(t, "cpu", device.WithStress(seed)), seed, stressed[seed%4], number, func(p *device.Program) *device.Program {
			for i := range p.Files { // variables for the first
				f := &p.Files[i]
				f.Text = strings.Replace(f.Text, "    number_bits number;\n", "    number_bits number, number_now = 0;\n    u64 number_to = 0;\n", 1)
			}
			return edit(p)
		})
	})
}

// addOnes adds with the device-side update, and puts what is absent.
const addOnes = `
#include "config.h"
#include "layout.h"
#include "stadium.cuh"
using namespace stadium;
WARPMAP_KERNEL(add_ones, stadium::findParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        config::key k = (config::key)(i % 37);
        if (p.when && i % 16 == 0) erase<config>(p.table, k);
        Outcome o = update<config>(p.table, k, (config::value)1, [](config::value a, config::value b) { return a + b; });
        config::value v = (config::value)i;
        Outcome o2 = find_or_insert<config>(p.table, k + 1000, v);
        if (o == FULL || o2 == FULL || v % 37 != k || (o2 == ADDED && v != i)) add(&counters(p.table)->failed, (u64)1);
    }
}`

// A kernel of the user's adds with the device-side update, beside erasing lanes; and puts what is absent, of which one lane's value stands.
func TestDeviceSideUpdate(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := open(t, "cpu", device.WithStress(seed))
			o := stressed[seed%4]
			o.Capacity = 4000
			m, err := New[uint32, uint64](d, o)
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
			}, func() uint64 { return m.core.counters.Seen.Failed })
		})
	}
}

// A key that one piece of a batch is refused for is refused in those behind, though the table might grow: else its value would be there without what
// was refused.
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
	for what, o := range places {
		for _, name := range devices {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				tabletest.ChoicesOf(func(d *device.Device, base table.Options) (table.Map[uint32, uint32], error) {
					o := o
					o.Options = base
					m, err := New[uint32, uint32](d, o)
					if err == nil {
						m.core.far.listedFrom, m.core.far.rowBytes = 1, 100 // for batches without a condition
					}
					return m, err
				}).Run(t, tabletest.Types, open(t, name))
			})
		}
	}
}

// Wide values are put and told by lanes of their own; and what has no values is chosen all the same.
func TestChoicesOfWidths(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			choicesOfWidth[record](t, d, func(i int) (r record) { r.ID, r.Name[91] = uint32(i), byte(i); return r })
			choicesOfWidth[[3]uint32](t, d, func(i int) [3]uint32 { return [3]uint32{uint32(i), 5, uint32(i)} })
			choicesOfWidth[struct{}](t, d, func(int) struct{} { return struct{}{} })
		})
	}
}

func choicesOfWidth[V comparable](t *testing.T, d *device.Device, valueOf func(i int) V) {
	m, err := New[uint64, V](d, Options{})
	must(t, err)
	defer m.Close()
	const n = 1000
	keys, values, when := make([]uint64, n), make([]V, n), make([]bool, n)
	for i := range keys {
		keys[i], values[i], when[i] = uint64(i), valueOf(i), i%3 == 0
	}
	must(t, m.InsertIf(keys, values, when))
	must(t, m.Check())
	got, found := make([]V, n), make([]bool, n)
	must(t, m.FindIf(keys, when, got, found))
	var none V
	for i := range keys {
		want := none
		if when[i] {
			want = values[i]
		}
		if found[i] != when[i] || got[i] != want {
			t.Fatalf("key %d: found %t with %v, want %t with %v", i, found[i], got[i], when[i], want)
		}
	}
	other := make([]V, n)
	for i := range other {
		other[i] = valueOf(i + 1)
	}
	count, err := m.FindOrInsert(keys, other, got, found)
	must(t, err)
	if count != n-(n+2)/3 {
		t.Errorf("%d are new, want %d", count, n-(n+2)/3)
	}
	for i := range keys {
		want := other[i]
		if when[i] {
			want = values[i]
		}
		if found[i] == when[i] || got[i] != want {
			t.Fatalf("key %d: new %t, with %v, want %v", i, found[i], got[i], want)
		}
	}
}

// An operation of which a position was refused for good makes a table no larger, however new its batches were: a key
// that was refused would find room.
func TestOverGrowsNothing(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	keys := make([]uint32, 100_000)
	for i := range keys {
		keys[i] = uint32(i)
	}
	must(t, m.Insert(keys[:50_000], keys[:50_000]))
	rows, err := device.From(d, keys[50_000:])
	must(t, err)
	was := m.core.capacity()
	must(t, m.core.frame.Writing(nil, func(st *device.Stream) error {
		m.core.forecast.Learn(100, 0, 100)
		exact := &frame.Exactly{}
		exact.Refused(true)
		_, _, err := m.core.take(st, int64(rows.Len()), 1, rows.Addr(), exact, func(frame.Part) error { return nil })
		return err
	}))
	if now := m.core.capacity(); now != was {
		t.Errorf("%d slots are %d now", was, now)
	}
	must(t, rows.Free())
	must(t, m.Close())
}
