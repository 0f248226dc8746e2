package stadium

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
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
	few := map[string]bool{"u32 in host memory": true, "i32, one chain": true} // those of short runs on the CPU: each operation is compiled
	for what, suite := range map[string]*tabletest.Updates{
		"u32 in host memory":      updates[uint32](places["host"]),
		"i32, one chain":          updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}}),
		"float, tickets of a bit": updates[float32](Options{Ticket: 1}),
		"i64 in both memories":    updates[int64](places["split"]),
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
					m.regions = earlyRegions(m.core)
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
		header, err := with.Header(reflect.TypeFor[uint64]())
		must(t, err)
		must(t, m.frame.Locked(func() error {
			_, err := m.updates.Of(d, header, func(header device.File) *device.Program { return edit(m.updateProgram(header)) }, table.Named[insertParams]("update"))
			return err
		}))
	}
	choose, err := d.Compile(edit(m.chooseProgram()))
	must(t, err)
	must(t, m.choose())
	must(t, device.Bind(choose, "find_or_insert", &m.findOrInsert))
	rng, model := rand.New(rand.NewPCG(seed, 1)), map[K]uint64{}
	for round := range 6 {
		keys, values := make([]K, 300), make([]uint64, 300)
		for i := range keys {
			keys[i], values[i] = keyOf(rng.IntN(120+60*round)), uint64(1+rng.IntN(9))<<32|1
			if rng.IntN(3) == 0 {
				keys[i] = keyOf(round * 50)
			}
		}
		out, news := slices.Clone(values), make([]bool, len(keys))
		switch round % 3 {
		case 0:
			err = m.Update(keys, values, table.Add)
		case 1:
			err = m.Update(keys, values, "value + old")
		case 2:
			_, err = m.FindOrInsert(keys, values, out, news)
		}
		var full *table.FullError
		if err != nil && !errors.As(err, &full) {
			return err
		}
		refused := map[int]bool{}
		if full != nil {
			for _, i := range full.Positions {
				refused[i] = true
			}
		}
		for i, k := range keys {
			_, there := model[k]
			switch {
			case refused[i]:
			case round%3 != 2:
				model[k] += values[i]
			case news[i] && there:
				return fmt.Errorf("round %d: key %v is added again", round, k)
			case news[i]:
				model[k] = values[i]
			}
		}
		for i, k := range keys {
			if v, there := model[k]; there == refused[i] || round%3 == 2 && out[i] != v {
				return fmt.Errorf("round %d, position %d, key %v: there %t, refused %t, told %#x, want %#x", round, i, k, there, refused[i], out[i], v)
			}
		}
		if err := m.Check(); err != nil {
			return err
		}
		k, v, err := m.All()
		must(t, err)
		if len(k) != len(model) {
			return fmt.Errorf("round %d: %d keys, want %d", round, len(k), len(model))
		}
		for i := range k {
			if v[i] != model[k[i]] {
				return fmt.Errorf("round %d: key %v has %#x, want %#x", round, k[i], v[i], model[k[i]])
			}
		}
	}
	return nil
}

func asItIs(p *device.Program) *device.Program { return p }

func number(i int) uint32 { return uint32(i) }

var stressed = []Options{{}, {Ticket: 2}, places["host"], places["split"]}

func TestUpdatesUnderStress(t *testing.T) {
	for seed := range uint64(testenv.Seeds(24)) {
		if err := added(t, open(t, "cpu", device.WithStress(seed)), seed, stressed[seed%4], number, asItIs); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Keys that are held in registers, and such as are not.
func TestUpdatesOfLongKeys(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for seed := range uint64(4) {
				must(t, added(t, d, seed, stressed[seed], func(i int) [5]uint32 { return [5]uint32{0, 7, uint32(i % 3), 0, uint32(i)} }, asItIs))
				must(t, added(t, d, seed, stressed[seed], func(i int) [64]uint32 { return [64]uint32{1: uint32(i % 5), 63: uint32(i)} }, asItIs))
			}
		})
	}
}

// Defects that are planted in a copy must be found.
func TestStressFindsLostUpdates(t *testing.T) {
	for _, c := range []struct{ name, file, old, now string }{
		{"a value is written when the access bit is given back", "stadium-update.cu", "            if (free) put_key<C>(x.k, slot);\n            ValueSeen<C>::store(to, now);\n        });",
			"            if (free) put_key<C>(x.k, slot);\n            number_to = to, number_now = now;\n        }) ? true : (active && number_to ? (ValueSeen<C>::store(number_to, number_now), false) : false);"},
		{"the access bit is not asked for", "stadium.cuh", "        return !(or_acquire(at<u32>(t.access) + bucket / 32, 1u << (bucket & 31)) >> (bucket & 31) & 1);",
			"        or_acquire(at<u32>(t.access) + bucket / 32, 1u << (bucket & 31));\n        return true;"},
		{"the value of a new key is told before it is put", "stadium-choose.cu", "            if (free) put_pair<C>(slot, x.k, v);\n            give_value(row_value(p.rows.out, row), slot);",
			"            give_value(row_value(p.rows.out, row), slot);\n            if (free) put_pair<C>(slot, x.k, v);"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			edited := false
			edit := func(p *device.Program) *device.Program {
				for i := range p.Files {
					f := &p.Files[i]
					if f.Name == c.file && strings.Contains(f.Text, c.old) {
						f.Text, edited = strings.Replace(f.Text, c.old, c.now, 1), true
						f.Text = strings.Replace(f.Text, "    number_bits number;\n", "    number_bits number, number_now = 0;\n    u64 number_to = 0;\n", 1)
					}
				}
				return p
			}
			const seeds = 60
			for seed := range uint64(seeds) {
				err := added(t, open(t, "cpu", device.WithStress(seed)), seed, stressed[seed%4], number, edit)
				if !edited {
					t.Fatalf("%s has not\n%s", c.file, c.old)
				}
				if err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
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
			for _, erases := range []uint64{0, 1} {
				must(t, m.Clear())
				must(t, m.Use(nil, 2*n, func(tb Table) error {
					return k.Launch(nil, device.Grid{Blocks: 2, Threads: 64}, &findParams{Table: tb, N: n, When: erases})
				}))
				must(t, m.Check())
				if failed := m.counters.Seen.Failed; failed > 0 {
					t.Errorf("%d operations went wrong", failed)
				}
				keys, v, err := m.All()
				must(t, err)
				sum := uint64(0)
				for i, x := range v {
					if keys[i] < 1000 {
						sum += x
					} else if x%37 != uint64(keys[i]-1000) {
						t.Errorf("key %d has %d", keys[i], x)
					}
				}
				if erases == 0 && (sum != n || len(v) != 2*37) || sum > n {
					t.Fatalf("%d keys, %d in all", len(v), sum)
				}
			}
		})
	}
}

// A key that one piece of a batch is refused for is refused in those behind, though the table might grow: else its value would be there without what
// was refused.
func TestRefusedKeysStayOut(t *testing.T) {
	add, err := table.Add.Header(reflect.TypeFor[uint32]())
	must(t, err)
	for what, insertion := range map[string]func(m *Map[uint32, uint32]) table.Insertion{
		"update":         func(m *Map[uint32, uint32]) table.Insertion { return m.updating(add) },
		"find or insert": func(m *Map[uint32, uint32]) table.Insertion { return m.findingOrInserting() },
	} {
		m, err := New[uint32, uint32](open(t, "cpu"), Options{Options: table.Options{MaxBytes: 8 << 10}})
		must(t, err)
		x := insertion(m)
		put := func(keys []uint32) (refused []int) {
			k, err := device.From(m.frame.Device, keys)
			must(t, err)
			must(t, m.frame.Writing(nil, func(st *device.Stream) (err error) {
				refused, _, err = x.Put(st, table.Rows{Keys: k.Addr(), Values: k.Addr(), Out: k.Addr(), N: int64(len(keys))})
				return err
			}))
			must(t, k.Free())
			return refused
		}
		keys := make([]uint32, 2000)
		for i := range keys {
			keys[i] = uint32(i)
		}
		refused := put(keys)
		if len(refused) == 0 {
			t.Fatal("a table of 8 KiB takes 2,000 keys")
		}
		m.opts.MaxBytes = 0 // so that there is room
		if again := put([]uint32{keys[refused[0]], keys[refused[1]]}); len(again) != 2 {
			t.Errorf("%s: keys that were refused are in, later in the batch: positions %v are refused", what, again)
		}
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
						m.far.listedFrom, m.far.rowBytes = 1, 100 // for batches without a condition
					}
					return m, err
				}).Run(t, tabletest.Types, open(t, name))
			})
		}
	}
}

// Wide values are put and told by lanes of their own; and what has no values is chosen all the same.
func TestChoicesOfWidths(t *testing.T) {
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
