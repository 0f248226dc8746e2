package dycuckoo

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
	few := map[string]bool{"double, wide": true, "i32, one chain": true} // those of short runs on the CPU: each operation is compiled
	for what, suite := range map[string]*tabletest.Updates{
		"double, wide":                  updates[float64](Options{Layout: Wide, Subtables: 2}),
		"i32, one chain":                updates[int32](Options{Options: table.Options{Hash: kernel.HashConstant}}),
		"float by 4 lanes, theorem 1":   updates[float32](Options{FindGroup: 4, InsertGroup: 2, Balance: Theorem1, Subtables: 3}),
		"i64 under locks":               updates[int64](Options{Layout: PackedLocked, Subtables: 2}),
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
	o := []Options{{FindGroup: 1, InsertGroup: 1}, {FindGroup: 4, InsertGroup: 4, Balance: Theorem1}, {Layout: PackedLocked, Subtables: 2}, {Layout: Wide, Subtables: 3}}[seed%4]
	o.Options = table.Options{LoadFactor: 1, MaxBytes: 4 << 10, Seed: seed + 1}
	d := open(t, "cpu", device.WithStress(seed))
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	defer m.Close()
	for _, with := range []table.Combine{table.Add, "value + old"} {
		header, err := with.Header(reflect.TypeFor[uint32]())
		must(t, err)
		must(t, m.frame.Locked(func() error {
			_, err := m.updates.Of(d, header, func(header device.File) *device.Program { return edit(m.updateProgram(header)) }, table.Named[insertParams]("combine"))
			return err
		}))
	}
	choose, err := d.Compile(edit(m.chooseProgram()))
	must(t, err)
	must(t, m.loadChoosing())
	must(t, errors.Join(m.keeping.bind(choose, "_new"), device.Bind(choose, "tell_values", &m.tell)))
	rng, model := rand.New(rand.NewPCG(seed, 1)), map[uint32]uint32{}
	for round := range 6 {
		keys, values := make([]uint32, 300), make([]uint32, 300)
		for i := range keys {
			keys[i], values[i] = uint32(rng.IntN(120+100*round)), uint32(1+rng.IntN(9))
			if rng.IntN(3) == 0 {
				keys[i] = uint32(round * 100)
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
				return fmt.Errorf("round %d: key %d is added again", round, k)
			case news[i]:
				model[k] = values[i]
			}
		}
		for i, k := range keys {
			if v, there := model[k]; there == refused[i] || round%3 == 2 && out[i] != v {
				return fmt.Errorf("round %d, position %d, key %d: there %t, refused %t, told %d, want %d", round, i, k, there, refused[i], out[i], v)
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
				return fmt.Errorf("round %d: key %d has %d, want %d", round, k[i], v[i], model[k[i]])
			}
		}
	}
	if m.counters.Seen.Moved == 0 && m.cfg.locked() {
		t.Errorf("seed %d: no pair was moved", seed)
	}
	return nil
}

func TestUpdatesUnderStress(t *testing.T) {
	for seed := range uint64(testenv.Seeds(24)) {
		if err := added(t, seed, func(p *device.Program) *device.Program { return p }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Defects that are planted in a copy must be found.
func TestStressFindsLostUpdates(t *testing.T) {
	combine := ""
	for _, f := range kernel.Files() {
		if f.Name == "combine.cuh" {
			combine = f.Text
		}
	}
	for _, c := range []struct{ name, file, old, now string }{
		{"a sum by a load and a store", "gather.cuh", "add((number_atomic*)p, (number_atomic)number_of(value));", "store_relaxed(p, merged(load_relaxed(p), value));"},
		{"a swap that failed is not tried again", "gather.cuh", "if (was == seen) return;\n        seen = was;", "return;"},
		{"rows whose key is put meanwhile are forgotten", "jobs.cuh", "return o == FULL || (KEEPS && o == PRESENT);", "return o == FULL;"},
		{"rows whose key is moved in meanwhile are forgotten", "jobs.cuh", "if (p.rows.refused && !(KEEPS && !added))", "if (p.rows.refused)"},
		{"rows of a group stay marked", "update.cu", "if (s.found && p.rows.attempt) and_of(refused, ~group);", "if (s.found && p.rows.attempt) and_of(refused, ~own_row(i));"},
		{"a value that went in is not told", "jobs.cuh", "if (p.rows.out) at<value>(p.rows.out)[i] = v;", "if (p.rows.out) at<value>(p.rows.out)[i] = v + 1;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			edited := false
			edit := func(p *device.Program) *device.Program {
				for i := range p.Files {
					f := &p.Files[i]
					if f.Name == "gather.cuh" {
						f.Text = strings.Replace(f.Text, "#include \"combine.cuh\"\n", combine, 1)
					}
					if f.Name == c.file && strings.Contains(f.Text, c.old) {
						f.Text, edited = strings.Replace(f.Text, c.old, c.now, 1), true
					}
				}
				return p
			}
			const seeds = 60
			for seed := range uint64(seeds) {
				err := added(t, seed, edit)
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
			for _, erases := range []uint64{0, 1} {
				must(t, m.Clear())
				must(t, m.Use(nil, 2*n, func(tb Table) error {
					return k.Launch(nil, device.Grid{Blocks: 2, Threads: 64}, &findParams{Table: tb, N: n, When: erases})
				}))
				must(t, m.Check())
				if left := m.counters.Seen.Left; left > 0 {
					t.Errorf("%d operations went wrong", left)
				}
				keys, v, err := m.All()
				must(t, err)
				sum := uint32(0)
				for i, x := range v {
					if keys[i] < 1000 {
						sum += x
					} else if x%37 != keys[i]-1000 {
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

// A key that one piece of a batch is refused for is refused in those behind, though another path may be found: else its value would be there without
// what was refused.
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
