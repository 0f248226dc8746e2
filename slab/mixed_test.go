package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// historian runs mixed batches on one kind of table, with a logical clock, and lanes switched at random.
type historian struct {
	keyBytes, valueBytes, group int
	unpacked, light             bool
	files                       map[string]string // instead of the package's own: broken copies
	tile                        int               // instead of the package's kernel, userKernel with tiles of so many lanes
	together                    bool
}

func (h historian) String() string {
	return fmt.Sprintf("%d+%d bytes, groups of %d, unpacked %t, light %t", h.keyBytes, h.valueBytes, h.group, h.unpacked, h.light)
}

var historians = []historian{
	{keyBytes: 4, valueBytes: 4, group: 1},
	{keyBytes: 4, valueBytes: 4, group: 8},
	{keyBytes: 4, valueBytes: 4, group: 32, light: true},
	{keyBytes: 8, valueBytes: 8, group: 1, light: true},
	{keyBytes: 4, valueBytes: 8, group: 4, unpacked: true},
	{keyBytes: 8, valueBytes: 16, group: 1},
}

const historyThreads = 64

// history runs one seed. It returns what happened, what was there before, and what Check says of the table.
func (h historian) history(t testing.TB, seed uint64) (events []tabletest.Event, before map[uint64]uint64, check error) {
	t.Helper()
	d, err := device.Open("cpu", device.WithStress(seed))
	must(t, err)
	defer func() { must(t, d.Close()) }()
	o := Options{Options: table.Options{Capacity: 1, LoadFactor: 1, Seed: seed}, Group: h.group, Light: h.light, unpacked: h.unpacked}
	c, err := newCore(d, frame.Width{Key: h.keyBytes, Value: h.valueBytes}, o, false)
	must(t, err)
	k := c.kernel.mixed
	if h.tile > 0 {
		p := c.program("user", userKernel)
		p.Defines = append(p.Defines, device.Define{Name: "USER_TILE", Value: h.tile}, device.Define{Name: "USER_TOGETHER", Value: h.together})
		m, err := d.Compile(p)
		must(t, err)
		k, err = device.KernelOf[mixedParams](m, "user_mixed")
		must(t, err)
	}
	if h.files != nil {
		p := c.program("broken", kernelsCU)
		for i := range p.Files {
			if text, ok := h.files[p.Files[i].Name]; ok {
				p.Files[i].Text = text
			}
			p.Files[i].Text, _, _ = strings.Cut(p.Files[i].Text, "// The kernels below go over the buckets") // not used here
		}
		m, err := d.Compile(p)
		must(t, err)
		k, err = device.KernelOf[mixedParams](m, "mixed")
		must(t, err)
	}

	rng := rand.New(rand.NewPCG(seed, uint64(h.group)))
	const n = 2 * historyThreads
	mask := ^uint64(0) >> (64 - 8*h.keyBytes)
	keyOf := func(i uint64) uint64 {
		if i == 1 {
			return mask - 1 // one that the layout reserves
		}
		return i
	}
	universe := 18 + rng.Uint64N(12)
	number := func(x uint64) []byte { // every 4 bytes say it, so that a torn value shows
		b := make([]byte, h.valueBytes)
		for j := 0; j < len(b); j += 4 {
			b[j], b[j+1] = byte(x), byte(x>>8)
		}
		return b
	}
	column := func(width int) ([]byte, func(int) []byte) {
		b := make([]byte, n*width)
		return b, func(i int) []byte { return b[i*width : (i+1)*width] }
	}
	put := func(b []byte, x uint64) {
		for j := range b {
			b[j] = byte(x >> (8 * j))
		}
	}
	keys, keyAt := column(h.keyBytes)
	values, valueAt := column(h.valueBytes)
	// At times most of the keys are there, so that chains have their length.
	before = map[uint64]uint64{}
	if seed%2 == 1 {
		for i := uint64(0); i < universe; i += 1 + rng.Uint64N(3) {
			j := len(before)
			put(keyAt(j), keyOf(i))
			copy(valueAt(j), number(uint64(1000+j)))
			before[keyOf(i)] = uint64(1000 + j)
		}
		dk, err := device.From(d, keys)
		must(t, err)
		dv, err := device.From(d, values)
		must(t, err)
		must(t, c.frame.Writing(nil, func(st *device.Stream) error {
			_, why, err := c.insertion(c.kernel.insert).Put(st, frame.Rows{Keys: dk.Addr(), Values: dv.Addr(), N: int64(len(before))})
			return errors.Join(why, err)
		}))
	}
	ops := make([]byte, n)
	for i := range n {
		e := tabletest.Event{Op: table.Op(rng.IntN(4)), Key: keyOf(rng.Uint64N(universe)), Put: uint64(i + 1)}
		if h.together && i%(32/h.tile) > 0 {
			e.Op = events[i-1].Op // the tiles of a warp go the same way
		}
		ops[i] = byte(e.Op)
		put(keyAt(i), e.Key)
		copy(valueAt(i), number(e.Put))
		events = append(events, e)
	}
	memory := func(b []byte) device.Slice[byte] {
		s, err := device.From(d, b)
		must(t, err)
		return s
	}
	results, status, refused := memory(make([]byte, len(values))), memory(make([]byte, n)), memory(make([]byte, n/8))
	clock, err := device.From(d, make([]uint64, 1+2*n))
	must(t, err)
	look := c.table()
	look.Tombstones = 1 // for the copy that takes them
	grid := device.Grid{Blocks: 1, Threads: historyThreads}
	if h.tile > 1 {
		grid.Threads = 256 // more warps, as each has fewer operations under way
	}
	must(t, k.Launch(nil, grid, &mixedParams{
		Table: look, Ops: memory(ops).Addr(), Keys: memory(keys).Addr(), Values: memory(values).Addr(), Results: results.Addr(),
		Status: status.Addr(), Refused: refused.Addr(), N: n, Clock: clock.Addr(), Calls: clock.Addr() + 8, Returns: clock.Addr() + 8*(1+n),
	}))
	times, err := clock.Host(nil)
	must(t, err)
	got, err := results.Host(nil)
	must(t, err)
	states, err := status.Host(nil)
	must(t, err)
	for i := range events {
		e := &events[i]
		e.Call, e.Return, e.Status = times[1+i], times[1+n+i], table.Status(states[i])
		v := got[i*h.valueBytes : (i+1)*h.valueBytes]
		e.Got = uint64(v[0]) | uint64(v[1])<<8
		if string(v) != string(number(e.Got)) {
			return events, before, fmt.Errorf("operation %d read a torn value: % x", i, v)
		}
	}
	_, err = c.look(nil)
	must(t, err)
	must(t, c.reset(nil)) // what was refused is told by its status
	return events, before, (&handle{c}).Check()
}

// judge says what is wrong with a run.
func (h historian) judge(t testing.TB, seed uint64) error {
	t.Helper()
	events, before, check := h.history(t, seed)
	if check != nil {
		return check
	}
	return tabletest.Linearizable(events, before)
}

func TestMixedHistoriesUnderStress(t *testing.T) {
	for _, h := range historians {
		t.Run(h.String(), func(t *testing.T) {
			t.Parallel()
			testenv.Tried(t, testenv.Seeds(200), "histories")
			for seed := range uint64(testenv.Seeds(200)) {
				seed += testenv.FirstSeed()
				if err := h.judge(t, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// The stress mode and the checks above must find races that are put into a copy of the code on purpose.
func TestStressFindsRaces(t *testing.T) {
	testenv.ByTurns(t)
	sources := map[string]string{"slab.cuh": slabCUH, "broken.cu": kernelsCU}
	for _, f := range kernel.Files() {
		if f.Name == "slaballoc.cuh" {
			sources["alloc.cuh"] = strings.Replace(allocCUH, `#include "slaballoc.cuh"`, f.Text, 1)
		}
	}
	for _, c := range []struct {
		name     string
		h        historian
		file     string
		old, now string
	}{
		{"an insert beside a delete takes a tombstone", historians[0], "broken.cu", "Op<C, ANY, false> op;", "Op<C, ANY, true> op;"},
		{
			"a slab is linked by a load and a store", historians[1], "slab.cuh",
			"u32 was = name == NONE ? load_relaxed(link_of<C>(slab)) : cas(link_of<C>(slab), NONE, name);",
			"u32 was = load_relaxed(link_of<C>(slab)); if (was == NONE && name != NONE) store_relaxed(link_of<C>(slab), name);",
		},
		{"a slab that was not needed is not given back", historians[0], "slab.cuh", "if (was != NONE && name != NONE) Memory::release(t.alloc, name);", ""},
		{
			"an insert goes on behind a slot that its own key may have taken", historians[0], "slab.cuh",
			"if (step == SWAP) was = cas(A::word_at(x.slab, x.slot), x.expected, x.wanted);",
			"if (step == SWAP) was = cas(A::word_at(x.slab, x.slot), x.expected, x.wanted);\n" +
				"if (step == SWAP && was != x.expected && x.adds && x.slot + 1 < C::SLOTS) was = cas(A::word_at(x.slab, ++x.slot), x.expected, x.wanted);",
		},
		{
			"an erase gives up where the value was replaced", historians[0], "slab.cuh",
			"return A::key_of(was) == stored ? AGAIN : DONE;", "return DONE;",
		},
		{"an insert does not wait for a busy slot", historians[5], "slab.cuh", "if (mine) wait = busy;", "if (mine) wait = busy && false;"},
		{
			"an allocation by a load and a store", historians[1], "alloc.cuh",
			"u32 was = or_of(word, 1u << bit);",
			"u32 was = load_relaxed(word); store_relaxed(word, was | 1u << bit);",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(sources[c.file], c.old); n != 1 {
				t.Fatalf("%s has %d times\n%s", c.file, n, c.old)
			}
			h := c.h
			h.files = map[string]string{c.file: strings.Replace(sources[c.file], c.old, c.now, 1)}
			for seed := range uint64(200) {
				if err := h.judge(t, seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 200 seeds finds the race")
		})
	}
}

// userKernel is a kernel as users write them: each tile takes an operation.
const userKernel = `
#include "config.h"
#include "layout.h"
#include "slab.cuh"
using namespace slab;
typedef tile<USER_TILE, USER_TOGETHER> T;

WARPMAP_KERNEL(user_mixed, slab::mixedParams) {
    T g;
    Resident r;
    for (u64 i = grid_thread() / USER_TILE; i < p.n; i += grid_threads() / USER_TILE) {
        config::key k = at<config::key>(p.keys)[i];
        config::value v = at<config::value>(p.values)[i], got = config::value{};
        u32 op = at<u8>(p.ops)[i], became = ABSENT;
        bool first = g.rank() == 0;
        if (first) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        if (op == FIND) became = find<config>(p.table, g, k, got) ? PRESENT : ABSENT;
        if (op == INSERT) became = insert<config>(p.table, g, r, k, v);
        if (op == INSERT_NEW) became = insert_new<config>(p.table, g, r, k, v);
        if (op == ERASE) became = erase<config>(p.table, g, k) ? PRESENT : ABSENT;
        if (!first) continue;
        at<config::value>(p.results)[i] = got;
        at<u8>(p.status)[i] = (u8)became;
        at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
    }
}`

// Users' kernels, with tiles of all sizes, those that go their own ways and those that go together; in short runs a sixth of them,
// each size with one table. The tables' own kernels are some of historians.
func TestUserKernelsUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for i, h := range []historian{historians[0], historians[3], historians[4]} {
		for j := range 6 {
			for _, together := range []bool{false, true} {
				if !testenv.Long() && (j%3 != i || together != (j%2 == 1)) {
					continue
				}
				h.tile, h.together = 1<<j, together
				t.Run(fmt.Sprintf("%v, tile %d, together %t", h, h.tile, together), func(t *testing.T) {
					t.Parallel()
					for seed := range uint64(testenv.Seeds(40)) {
						if err := h.judge(t, seed); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
					}
				})
			}
		}
	}
}

// What is no operation does nothing, and is told to have found nothing.
func TestMixedOnOfOddOperations(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		m, err := New[uint32, uint32](d, Options{})
		must(t, err)
		defer m.Close()
		keys := []uint32{1, 2, 3}
		must(t, m.Insert(keys, keys))
		for op := table.OpDelete + 1; op != 0; op++ {
			ops := deviceSlice(t, d, []table.Op{op, op})
			asked, status := deviceSlice(t, d, []uint32{2, 4}), deviceSlice(t, d, []table.Status{table.Added, table.Added})
			must(t, m.MixedOn(nil, ops, asked, asked, device.Slice[uint32]{}, status))
			became, err := status.Host(nil)
			must(t, err)
			if became[0] != table.Absent || became[1] != table.Absent {
				t.Errorf("operation %d: %v", op, became)
			}
		}
		if n, err := m.Len(); err != nil || n != 3 {
			t.Errorf("%d pairs, %v", n, err)
		}
		must(t, m.Check())
	})
}

func deviceSlice[T any](t *testing.T, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	t.Cleanup(func() { s.Free() })
	return s
}

// Results may go where the values come from, also while the table grows.
func TestMixedResultsInPlaceOfValues(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		const n = 12_000 // the chains are long, so that time is the square of it
		for seed := range uint64(2) {
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Seed: seed}})
			must(t, err)
			m.core.bound = true // so that slabs are missing in the middle
			ops, keys, values := make([]table.Op, n), make([]uint32, n), make([]uint32, n)
			for i := range keys {
				ops[i], keys[i], values[i] = table.OpInsert, uint32(i), uint32(i)+1
			}
			on := deviceSlice(t, d, values)
			must(t, m.MixedOn(nil, deviceSlice(t, d, ops), deviceSlice(t, d, keys), on, on, device.Slice[table.Status]{}))
			must(t, m.Find(keys, values, nil))
			for i, v := range values {
				if v != uint32(i)+1 {
					t.Fatalf("seed %d: key %d has value %d", seed, i, v)
				}
			}
			must(t, m.Close())
		}
	})
}
