package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// These tests run insert, insert_new, find and erase of warpcore.cuh side by side in one kernel, with lanes switched at
// random, and check that the history is linearizable.

// mixedParams are the parameters of the kernels below. Each tile has Ops operations of its own, one after the other.
type mixedParams struct {
	Table Table
	Clock uint64 // address of a counter that stamps begin and end of every operation
	Ops   uint64 // address of mixedOp, Each for a tile
	Each  uint64
}

const (
	opInsert = iota
	opInsertNew
	opFind
	opErase
)

// mixedOp is one operation and its result.
type mixedOp struct {
	Kind    uint32
	Result  uint32 // Outcome of the inserts; found; erased
	Key     uint64
	Number  uint64 // of the value that goes in or comes out; every lane of 8 bytes holds it
	Torn    uint64 // the value's other lane, or Number
	Call    uint64
	Returns uint64
}

const mixedKernels = `
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
using namespace warpcore;
typedef config C;

__device__ u32 value_of(u64 n, u32) { return (u32)n; }
__device__ u64 value_of(u64 n, u64) { return n << 32 | n; }
__device__ u128 value_of(u64 n, u128) { return u128{n, n}; }
__device__ void number_of(u32 v, mixedOp& o) { o.number = o.torn = v; }
__device__ void number_of(u64 v, mixedOp& o) { o.number = v >> 32, o.torn = (u32)v; }
__device__ void number_of(u128 v, mixedOp& o) { o.number = v.lo, o.torn = v.hi; }

template <int G> __device__ void mixed(const mixedParams& p) {
    tile<G> g;
    mixedOp* ops = at<mixedOp>(p.ops) + grid_thread() / G * p.each;
    for (u64 i = 0; i < p.each; i++) {
        mixedOp o = ops[i];
        C::key k = (C::key)o.key;
        C::value v = value_of(o.number, C::value{});
        g.sync();
        if (g.rank() == 0) o.call = add(at<u64>(p.clock), (u64)1);
        g.sync();
        if (o.kind == 0) o.result = insert<C>(p.table, g, k, v);
        else if (o.kind == 1) o.result = insert_new<C>(p.table, g, k, v);
        else if (o.kind == 2) {
            o.result = find<C>(p.table, g, k, v);
            number_of(v, o);
        } else o.result = erase<C>(p.table, g, k);
        g.sync();
        if (g.rank() != 0) continue;
        o.returns = add(at<u64>(p.clock), (u64)1);
        ops[i] = o;
    }
}

WARPMAP_KERNEL(mixed_ops, mixedParams) { mixed<MIXED_TILE>(p); }
`

// mixed is the program above for tiles of one size.
func (c *core) mixed(tile int) *device.Program {
	p := c.program("mixed", mixedKernels)
	p.Layouts = append(p.Layouts, mixedOp{}, mixedParams{})
	p.Defines = append(p.Defines, device.Define{Name: "MIXED_TILE", Value: tile})
	return p
}

// mixer runs the kernels above on one kind of table.
type mixer struct {
	v     variant
	tiles []int
	cuh   string // warpcore.cuh, or a broken copy
}

var mixers = []mixer{
	{v: variant{4, 4, Packed, 8, 1, 1}, tiles: []int{1, 4, 32}, cuh: warpcoreCUH},
	{v: variant{8, 8, Packed, 2, 1, 1}, tiles: []int{4}, cuh: warpcoreCUH},
	{v: variant{4, 8, AoS, 4, 1, 1}, tiles: []int{32}, cuh: warpcoreCUH},
	{v: variant{8, 16, SoA, 4, 1, 1}, tiles: []int{1, 4}, cuh: warpcoreCUH},
}

const mixedThreads = 64

// run runs one seed. It returns the operations with their results, and what Check says of the table.
func (x mixer) run(t testing.TB, name string, group int, seed uint64) (ops []mixedOp, check error) {
	t.Helper()
	d, err := device.Open(name, device.WithStress(seed))
	must(t, err)
	defer func() { must(t, d.Close()) }()
	o := x.v.options(table.Options{Capacity: 200, LoadFactor: 1, Seed: seed})
	c, err := newCore(d, frame.Width{Key: x.v.keyBytes, Value: x.v.valueBytes}, o, table.KindMap)
	must(t, err)
	p := c.mixed(group)
	for i := range p.Files {
		if p.Files[i].Name == "warpcore.cuh" {
			p.Files[i].Text = x.cuh
		}
	}
	m, err := d.Compile(p)
	must(t, err)
	k, err := device.KernelOf[mixedParams](m, "mixed_ops")
	must(t, err)

	rng := rand.New(rand.NewPCG(seed, uint64(group)))
	each := 2 * max(1, group/2)
	keys := uint64(mixedThreads/group)/6 + 2 + rng.Uint64N(4) // so many that few operations on one key overlap
	for i := range mixedThreads / group * each {
		key := rng.Uint64N(keys)
		if key == 1 {
			key = ^uint64(0) >> (64 - 8*x.v.keyBytes) // one that the layout reserves
		}
		ops = append(ops, mixedOp{Kind: rng.Uint32N(4), Key: key, Number: uint64(i + 1)})
	}
	if seed%2 == 1 {
		crowd(t, c, int(c.capacity())-len(ops))
	}
	onDevice, err := device.From(d, ops)
	must(t, err)
	clock, err := device.From(d, []uint64{0})
	must(t, err)
	must(t, k.Launch(nil, device.Grid{Blocks: 1, Threads: mixedThreads}, &mixedParams{Table: c.t, Clock: clock.Addr(), Ops: onDevice.Addr(), Each: uint64(each)}))
	must(t, onDevice.Read(nil, ops))
	return ops, (&handle{core: c}).Check()
}

// crowd puts n other keys into the table, so that chains are long.
func crowd(t testing.TB, c *core, n int) {
	t.Helper()
	raw := make([]byte, n*c.cfg.keyBytes)
	for i := range n {
		raw[i*c.cfg.keyBytes], raw[i*c.cfg.keyBytes+1] = byte(i), 1
	}
	keys, err := device.From(c.frame.Device, raw)
	must(t, err)
	values, err := device.Make[byte](c.frame.Device, n*c.cfg.valueBytes)
	must(t, err)
	must(t, c.frame.Writing(nil, func(st *device.Stream) error {
		_, why, err := c.insert(st, c.kernel.insert, frame.Rows{Keys: keys.Addr(), Values: values.Addr(), N: int64(n)})
		return errors.Join(why, err)
	}))
}

// One key of a Map, as porcupine sees it: 0 where it is absent, else the number of its value.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[uint64][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(mixedOp).Key
			byKey[k] = append(byKey[k], o)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, out, now := input.(mixedOp), output.(mixedOp), state.(uint64)
		present := now != 0
		switch in.Kind {
		case opInsert, opInsertNew:
			switch status := table.Status(out.Result); {
			case status == table.NoRoom:
				return !present, now
			case status == table.Added && !present, status == table.Present && present && in.Kind == opInsert:
				return true, in.Number
			default:
				return status == table.Present && present, now
			}
		case opFind:
			return present == (out.Result != 0) && out.Number == now, now
		}
		return present == (out.Result != 0), uint64(0)
	},
}

// judge says what is wrong with a run.
func judge(ops []mixedOp, check error, group int) error {
	if check != nil {
		return check
	}
	var history []porcupine.Operation
	for i, o := range ops {
		if o.Kind == opFind && o.Number != o.Torn {
			return fmt.Errorf("operation %d read a torn value: %x and %x", i, o.Number, o.Torn)
		}
		if o.Kind <= opInsertNew && o.Result == uint32(table.NoRoom) && o.Key < 1<<31 {
			return fmt.Errorf("operation %d found the table full", i) // the side region may be: nothing reuses its slots
		}
		each := len(ops) / (mixedThreads / group)
		in := o
		if o.Kind == opFind {
			in.Number = 0
		}
		if testenv.Model() {
			o.Call, o.Returns = 0, 1
		}
		history = append(history, porcupine.Operation{ClientId: i / each, Input: in, Call: int64(o.Call), Output: o, Return: int64(o.Returns)})
	}
	limit := 20 * time.Second
	if testenv.Model() {
		limit = time.Second // for all orders, which may be too many
	}
	r := porcupine.CheckOperationsTimeout(keyModel, history, limit)
	if r != porcupine.Ok && !(r == porcupine.Unknown && testenv.Model()) {
		return fmt.Errorf("the history is not linearizable (%v)", r)
	}
	return nil
}

func TestMixedOperationsUnderStress(t *testing.T) {
	for _, x := range mixers {
		for _, group := range testenv.Some(x.tiles, 1) {
			t.Run(fmt.Sprintf("%v/tile %d", x.v, group), func(t *testing.T) {
				t.Parallel()
				testenv.Tried(t, testenv.Seeds(200), "histories")
				for seed := range uint64(testenv.Seeds(200)) {
					seed += testenv.FirstSeed()
					ops, check := x.run(t, "cpu", group, seed)
					if err := judge(ops, check, group); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
}

// On a GPU nothing stamps the true order, but the table must be whole and no value torn.
func TestMixedOperationsOnGPU(t *testing.T) {
	d, err := device.Open("cuda")
	testenv.Require(t, "cuda", err)
	must(t, d.Close())
	for _, x := range mixers {
		for _, group := range x.tiles {
			for seed := range uint64(testenv.Seeds(20)) {
				ops, check := x.run(t, "cuda", group, seed)
				must(t, check)
				for i, o := range ops {
					if o.Kind == opFind && o.Number != o.Torn {
						t.Fatalf("%v, seed %d, operation %d: torn value", x.v, seed, i)
					}
				}
			}
		}
	}
}

// The stress mode and the checks above must find races that are put into a copy of the code on purpose.
func TestStressFindsRaces(t *testing.T) {
	testenv.ByTurns(t)
	const seeds = 200
	text := warpcoreCUH // with the slots' own code in place of its include, so that it can be broken too
	for _, f := range kernel.Files() {
		if f.Name == "slots.cuh" {
			text = strings.Replace(text, "#include \"slots.cuh\"\n", f.Text, 1)
		}
	}
	for _, c := range []struct {
		name     string
		mixer    mixer
		group    int
		old, now string
	}{
		{
			"a pair is claimed by a load and a store", mixers[0], 1,
			"return cas(word_at(slots, index), free, pack(k, v)) == free;",
			"if (load_relaxed(word_at(slots, index)) != free) return false; store_relaxed(word_at(slots, index), pack(k, v)); return true;",
		},
		{
			"a slot is marked busy by a load and a store", mixers[3], 1,
			"if (cas(word_at(slots, index), free, C::BUSY) != free) return false;",
			"if (load_relaxed(word_at(slots, index)) != free) return false; store_relaxed(word_at(slots, index), C::BUSY);",
		},
		{
			"an insert beside an erase takes a tombstone", mixers[0], 4,
			"insert_each<C, MEETS, false, MULTI>(t, g, g.rank() == 0", "insert_each<C, MEETS, true, MULTI>(t, g, g.rank() == 0",
		},
		{
			"the key is there before its value", mixers[3], 1,
			"store_relaxed(value_at(slots, values, index), v);\n        store_release(word_at(slots, index), k);",
			"store_release(word_at(slots, index), k);\n        store_relaxed(value_at(slots, values, index), v);",
		},
		{
			"an insert does not wait for a busy slot", mixers[2], 1,
			"bool wait = !MULTI && !C::PACKED && ", "bool wait = false && ",
		},
		{
			"an erase by a load and a store", mixers[3], 4,
			"return cas(word_at(slots, index), k, tombstone ? C::TOMBSTONE : C::EMPTY) == k;",
			"if (load_relaxed(word_at(slots, index)) != k) return false; store_relaxed(word_at(slots, index), C::TOMBSTONE); return true;",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(text, c.old); n != 1 {
				t.Fatalf("warpcore.cuh and slots.cuh have %d times\n%s", n, c.old)
			}
			x := c.mixer
			x.cuh = strings.Replace(text, c.old, c.now, 1)
			for seed := range uint64(seeds) {
				ops, check := x.run(t, "cpu", c.group, seed)
				if err := judge(ops, check, c.group); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the race", seeds)
		})
	}
}
