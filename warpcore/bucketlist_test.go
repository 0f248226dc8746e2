package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
)

// openFor opens a device that a test may do without, and closes it.
func openFor(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" {
		must(t, err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// bucketLists is the suite of the bucket lists with those options.
func bucketLists[K, V any](o ListOptions) *tabletest.Suite {
	return tabletest.MultiMap(func(d *device.Device, base table.Options) (table.MultiMap[K, V], error) {
		o := o
		o.Options = base
		m, err := NewBucketList[K, V](d, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	})
}

func TestBucketList(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			openFor(t, name)
			for _, c := range []struct {
				name  string
				part  tabletest.Part
				suite *tabletest.Suite
			}{
				{"4+4", tabletest.Whole, bucketLists[uint32, uint32](ListOptions{})},
				{"8+16", tabletest.Widths, bucketLists[uint64, [2]uint64](ListOptions{InitialBucket: 3, Growth: 1.1})},
				{"4+8", tabletest.Types, bucketLists[uint32, uint64](ListOptions{Growth: 1, FindGroup: 4, InsertGroup: 4})},
				{"8+4", tabletest.Types, bucketLists[uint64, float32](ListOptions{InitialBucket: 5})},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.suite.Run(t, c.part, openFor(t, name), openFor(t, "cpu"))
				})
			}
		})
	}
}

func TestBucketListDegenerateHashes(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { bucketLists[uint32, uint32](ListOptions{}).Degenerate(t, openFor(t, name)) })
	}
}

// The same with lanes switched at random, at every access.
func TestBucketListUnderStress(t *testing.T) {
	open := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	seeds := testenv.Seeds(20)
	bucketLists[uint32, uint32](ListOptions{}).Stress(t, open, table.Options{}, seeds)
	bucketLists[uint32, uint32](ListOptions{Growth: 1}).Stress(t, open, table.Options{MaxBytes: 4 << 10, LoadFactor: 1}, seeds)
	bucketLists[uint64, [2]uint64](ListOptions{InitialBucket: 3, Growth: 1.1}).Stress(t, open, table.Options{}, seeds)
}

// The kernels compile for GPUs, on machines that have none, with a kernel of a user's and a callback.
func TestBucketListCompilesForGPUs(t *testing.T) {
	for i, c := range []struct{ key, value, insert, find int }{{4, 4, 1, 4}, {8, 16, 1, 2}, {4, 16, 4, 4}, {8, 4, 2, 32}} {
		if i > 1 && !testenv.Long() {
			break
		}
		arch := []string{"sm_90", "sm_70"}[i%2]
		l := &lists{cfg: listConfig{c.value}}
		l.keys.cfg = keyConfig(c.key, 0)
		l.keys.opts.InsertGroup, l.keys.opts.FindGroup = c.insert, c.find
		call := l.program("bucketlist-foreach", bucketlistForEachCU, device.File{Name: "callback.h",
			Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64 i) { add(at<u64>(p.args[0]), i); }"})
		call.Layouts = append(call.Layouts, listCallbackParams{})
		for _, p := range []*device.Program{l.program("bucketlist", bucketlistCU), appending(l), call} {
			t.Run(fmt.Sprintf("%s %+v %s", p.Name, c, arch), func(t *testing.T) {
				t.Parallel()
				_, err := device.CompileFor(arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			})
		}
	}
}

// appendParams are the parameters of a kernel whose tiles insert pairs, each of some keys in turn.
type appendParams struct {
	Lists   Lists
	Outcome uint64 // u32 a pair
	Sums    uint64 // u64: what list::count and list::for_values give
	Each    uint64 // pairs of a tile
	Keys    uint64
}

const appendKernels = `
#include "config.h"
#include "bucketlist.cuh"
#include "layout.h"
using namespace warpcore;
typedef config C;
__device__ u32 value_of(u64 n, u32) { return (u32)n; }
__device__ u64 value_of(u64 n, u64) { return n; }
__device__ u128 value_of(u64 n, u128) { return u128{n, ~n}; }
__device__ u64 number_of(u32 v) { return v; }
__device__ u64 number_of(u64 v) { return v; }
__device__ u64 number_of(u128 v) { return v.lo; }

WARPMAP_KERNEL(append_pairs, appendParams) {
    tile<APPEND_TILE> g;
    u64 first = grid_thread() / APPEND_TILE * p.each;
    for (u64 i = first; i < first + p.each; i++) {
        Outcome o = list::insert<C>(p.lists, g, (C::key)(~(C::key)0 - i % p.keys), value_of(i, C::value{}));
        if (g.rank() == 0) at<u32>(p.outcome)[i] = o;
    }
}
WARPMAP_KERNEL(sum_values, appendParams) {
    tile<APPEND_TILE> g;
    for (u64 k = grid_thread() / APPEND_TILE; k < p.keys; k += grid_threads() / APPEND_TILE) {
        u64 sum = 0;
        list::for_values<C>(p.lists, g, (C::key)(~(C::key)0 - k), [&](C::value v) { sum += number_of(v); });
        sum = g.sum(sum);
        u32 n = list::count<C>(p.lists, g, (C::key)(~(C::key)0 - k));
        if (g.rank() == 0) {
            at<u64>(p.sums)[2 * k] = n;
            at<u64>(p.sums)[2 * k + 1] = sum;
        }
    }
}
`

// appending is the program of these kernels, with tiles as large as the groups that insert.
func appending(l *lists) *device.Program {
	p := l.program("bucketlist-append", appendKernels)
	p.Layouts = append(p.Layouts, appendParams{})
	p.Defines = append(p.Defines, device.Define{Name: "APPEND_TILE", Value: l.keys.opts.InsertGroup})
	return p
}

// appendStory inserts from the device, with all lanes at once, and says what is wrong with the table then. room is how many pairs the table is
// asked to make room for.
func appendStory[V any](d *device.Device, o ListOptions, pairs, keys, room int, number func(V) uint32) error {
	m, err := NewBucketList[uint32, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	mod, err := d.Compile(appending(m.lists))
	if err != nil {
		return err
	}
	put, e1 := device.KernelOf[appendParams](mod, "append_pairs")
	sum, e2 := device.KernelOf[appendParams](mod, "sum_values")
	outcome, e3 := device.Make[uint32](d, pairs)
	sums, e4 := device.Make[uint64](d, 2*keys)
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return err
	}
	defer outcome.Free()
	defer sums.Free()
	const each = 4
	threads := pairs / each * m.keys.opts.InsertGroup
	err = m.Use(nil, room, func(l Lists) error {
		p := appendParams{l, outcome.Addr(), sums.Addr(), each, uint64(keys)}
		return errors.Join(put.Launch(nil, device.Grid{Blocks: int64(threads / 64), Threads: 64}, &p), sum.Launch(nil, device.Grid{Blocks: 1, Threads: 64}, &p))
	})
	if err != nil {
		return err
	}
	became, e1 := outcome.Host(nil)
	told, e2 := sums.Host(nil)
	if err := errors.Join(e1, e2, m.Check()); err != nil {
		return err
	}
	model, asked := make([][]uint32, keys), make([]uint32, keys)
	for i, o := range became {
		switch table.Status(o) {
		case table.Added:
			model[i%keys] = append(model[i%keys], uint32(i))
		case table.NoRoom:
			if room >= pairs {
				return fmt.Errorf("pair %d found no room, of %d", i, room)
			}
		default:
			return fmt.Errorf("pair %d has outcome %d", i, o)
		}
	}
	for k := range asked {
		asked[k] = ^uint32(k)
	}
	compare := func() error {
		offsets, values, err := m.FindAll(asked)
		if err != nil {
			return err
		}
		for k := range asked {
			var got []uint32
			sum := uint64(0)
			for _, v := range values[offsets[k]:offsets[k+1]] {
				got = append(got, number(v))
				sum += uint64(number(v))
			}
			if !slices.Equal(sorted(got), sorted(model[k])) {
				return fmt.Errorf("key %d has %d values, want %d", k, len(got), len(model[k]))
			}
			if told[2*k] != uint64(len(got)) || told[2*k+1] != sum {
				return fmt.Errorf("key %d: the device counts %d values, with sum %d, want %d, %d", k, told[2*k], told[2*k+1], len(got), sum)
			}
		}
		return nil
	}
	if err := compare(); err != nil {
		return err
	}
	// Lists that were found full take more now.
	values := make([]V, keys)
	for k := range model {
		model[k] = append(model[k], number(values[k]))
		told[2*k]++
	}
	if err := errors.Join(m.Insert(asked, values), m.Check(), compare()); err != nil {
		return err
	}
	return m.Use(nil, pairs, func(l Lists) error { return nil })
}

func appendStories(seed uint64, open func(...device.Option) *device.Device) error {
	d := open(device.WithStress(seed))
	defer d.Close()
	o := ListOptions{Options: table.Options{Seed: seed + 1}, InsertGroup: []int{1, 4, 32}[seed%3], Growth: []float64{1, 2}[seed%2]}
	room := []int{256, 20}[seed/2%2]
	if seed%5 == 4 {
		return appendStory(d, o, 256, 3, 4*room, func(v [2]uint64) uint32 { return uint32(v[0]) })
	}
	return appendStory(d, o, 256, 1+int(seed%7), 4*room, func(v uint32) uint32 { return v })
}

// Inserts from the device beside one another, lanes of one warp among them, of lists that are blocked, grow and are full.
func TestBucketListFromTheDevice(t *testing.T) {
	open := func(o ...device.Option) *device.Device {
		d, err := device.Open("cpu", o...)
		must(t, err)
		return d
	}
	for seed := range uint64(testenv.Seeds(120)) {
		if err := appendStories(seed, open); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Run("cuda:0", func(t *testing.T) {
		must(t, appendStory(openFor(t, "cuda:0"), ListOptions{InsertGroup: 4}, 1<<16, 100, 1<<20, func(v uint32) uint32 { return v }))
	})
}

// bulkStory inserts batches, some keys in them again and again, and says what is wrong with the table then.
func bulkStory(d *device.Device, seed uint64) error {
	defer d.Close()
	m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{Seed: seed + 1}, Growth: 1 + float64(seed%3)/2})
	if err != nil {
		return err
	}
	defer m.Close()
	rng := rand.New(rand.NewPCG(seed, 3))
	model := map[uint32][]uint32{}
	for range 4 {
		keys, values := make([]uint32, 100), make([]uint32, 100)
		for i := range keys {
			keys[i], values[i] = uint32(rng.IntN(1+int(seed)%20)), rng.Uint32()
			model[keys[i]] = append(model[keys[i]], values[i])
		}
		if err := errors.Join(m.Insert(keys, values), m.Check()); err != nil {
			return err
		}
	}
	for k, want := range model {
		_, got, err := m.FindAll([]uint32{k})
		if err != nil {
			return err
		}
		if !slices.Equal(sorted(got), sorted(want)) {
			return fmt.Errorf("key %d has other values than were put in", k)
		}
	}
	return nil
}

// Defects that are planted in a copy must be found.
func TestBucketListFindsDefects(t *testing.T) {
	bulk, header := bucketlistCU, bucketlistCUH
	defer func() { bucketlistCU, bucketlistCUH = bulk, header }()
	open := func(o ...device.Option) *device.Device {
		d, err := device.Open("cpu", o...)
		must(t, err)
		return d
	}
	for _, c := range []struct {
		name     string
		text     *string
		old, now string
	}{
		{"a bucket is linked twice", &bucketlistCU, "if (number == tail.room) at<u64>", "if (number == tail.room || number == tail.room + 1) at<u64>"},
		{"an ordinal is given twice", &bucketlistCU, "0u - (u32)popcount(peers));", "0u - 1u);"},
		{"a key that got no value stays", &bucketlistCU, "    store_relaxed(at<key>(slot), C::TOMBSTONE);\n    return false;", "    return false;"},
		{"a header tells of no values before", &bucketlistCU, "list::write_header<C>(t, first, list::with_state(last, LIST_READY), room);", "list::write_header<C>(t, first, list::with_state(last, LIST_READY), room - 1);"},
		{"a list is ready before its bucket is", &bucketlistCUH, "            if (tail.header()) write_header<C>(t, first, with_state(last, LIST_READY), tail.room);\n            store_release(last_at<C>(slot), bucket(first, code, tail.header()));",
			"            store_release(last_at<C>(slot), bucket(first, code, tail.header()));\n            if (tail.header()) write_header<C>(t, first, with_state(last, LIST_READY), tail.room);"},
		{"two lanes block a list", &bucketlistCUH, "cas(last_at<C>(slot), last, with_state(last, LIST_BLOCKED)) == last)", "(store_relaxed(last_at<C>(slot), with_state(last, LIST_BLOCKED)), true))"},
		{"a number is taken without compare-and-swap", &bucketlistCUH, "if (cas(left_at<C>(slot), ~count, ~(count + 1)) == ~count) {", "if (store_relaxed(left_at<C>(slot), ~(count + 1)), true) {"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucketlistCU, bucketlistCUH = bulk, header
			if n := strings.Count(*c.text, c.old); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c.old)
			}
			*c.text = strings.Replace(*c.text, c.old, c.now, 1)
			for seed := range uint64(300) {
				var err error
				if c.text == &bucketlistCU {
					err = bulkStory(open(device.WithStress(seed)), seed)
				} else {
					err = appendStories(seed, open)
				}
				if err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 300 seeds finds the defect")
		})
	}
	bucketlistCU, bucketlistCUH = bulk, header
	for seed := range uint64(testenv.Seeds(40)) {
		if err := bulkStory(open(device.WithStress(seed)), seed); err != nil {
			t.Fatalf("without a defect, seed %d: %v", seed, err)
		}
	}
}
