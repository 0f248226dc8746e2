package warpcore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
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

// What is not the default: that has the suite of all families.
func TestBucketList(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			openFor(t, name)
			for _, c := range []struct {
				name  string
				part  tabletest.Part
				suite *tabletest.Suite
			}{
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

// The same with lanes switched at random, at every access.
func TestBucketListUnderStress(t *testing.T) {
	t.Parallel()
	open := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	seeds := testenv.Seeds(20)
	bucketLists[uint32, uint32](ListOptions{Growth: 1}).Stress(t, open, table.Options{MaxBytes: 4 << 10, LoadFactor: 1}, seeds)
	bucketLists[uint64, [2]uint64](ListOptions{InitialBucket: 3, Growth: 1.1}).Stress(t, open, table.Options{}, seeds)
}

// The kernels compile for GPUs, on machines that have none, with a kernel of a user's and a callback.
func TestBucketListCompilesForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, c := range []struct{ key, value, insert, find int }{{4, 4, 1, 4}, {8, 16, 1, 2}, {4, 16, 4, 4}, {8, 4, 2, 32}} {
		if i > 0 && !testenv.Long() {
			break
		}
		arch := []string{"sm_90", "sm_75"}[i%2]
		l := &lists{cfg: listConfig{c.value}}
		l.keys.cfg = keyConfig(c.key, 0)
		l.keys.opts.InsertGroup, l.keys.opts.FindGroup = c.insert, c.find
		call := l.program("bucketlist-foreach", bucketlistForEachCU, device.File{Name: "callback.h",
			Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64 i) { add(at<u64>(p.args[0]), i); }"})
		call.Layouts = append(call.Layouts, listCallbackParams{})
		for _, p := range testenv.Some([]*device.Program{l.stretchProgram(), call, l.program("bucketlist", bucketlistCU), appending(l)}, 2) {
			t.Run(fmt.Sprintf("%s %+v %s", p.Name, c, arch), func(t *testing.T) {
				testenv.Turn(t)
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
	threads := pairs / each * m.lists.keys.opts.InsertGroup
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
	if seed%5 == 4 && (seed%3 == 1 || testenv.Long()) { // a width for each group is a compilation
		return appendStory(d, o, 256, 3, 4*room, func(v [2]uint64) uint32 { return uint32(v[0]) })
	}
	return appendStory(d, o, 256, 1+int(seed%7), 4*room, func(v uint32) uint32 { return v })
}

// Inserts from the device beside one another, lanes of one warp among them, of lists that are blocked, grow and are full.
func TestBucketListFromTheDevice(t *testing.T) {
	t.Parallel()
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

// bulkStory inserts batches into a table of so many values a key, some keys in them again and again, and says what is wrong with it then.
func bulkStory(m table.MultiMap[uint32, uint32], seed uint64) error {
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

func bulkListStory(d *device.Device, seed uint64) error {
	defer d.Close()
	o := ListOptions{Options: table.Options{Seed: seed + 1}, Growth: 1 + float64(seed%3)/2}
	if seed%2 == 1 { // there is too little room at first
		o.Capacity = 16
	}
	m, err := NewBucketList[uint32, uint32](d, o)
	if err != nil {
		return err
	}
	if seed%4 > 1 {
		m.lists.keys.regions.MinRows, m.lists.keys.regions.MinBytes, m.lists.keys.regions.RegionBytes, m.lists.keys.regions.RegionRows = 1, 0, 64, 1
	}
	return bulkStory(m, seed)
}

// Defects that are planted in a copy must be found.
func TestBucketListFindsDefects(t *testing.T) {
	testenv.ByTurns(t)
	bulk := func(seed uint64) error { return bulkListStory(openBy(t)(device.WithStress(seed)), seed) }
	put := func(seed uint64) error { return appendStories(seed, openBy(t)) }
	findDefects(t, 300, []defect{
		{"a bucket is linked twice", true, &bucketlistCU, "slot | (number == tail.room ? LINKS : 0)", "slot | (number == tail.room || number == tail.room + 1 ? LINKS : 0)", bulk},
		{"an ordinal is given twice", false, &bucketlistCU, "0u - (u32)popcount(peers));", "0u - 1u);", bulk},
		{"a key that got no value stays", false, &bucketlistCU, "    store_relaxed(at<key>(slot), C::TOMBSTONE);\n    return false;", "    return false;", bulk},
		{"a header tells of no values before", true, &bucketlistCU, "list::write_header<C>(t, first, list::with_state(last, LIST_READY), room);", "list::write_header<C>(t, first, list::with_state(last, LIST_READY), room - 1);", bulk},
		{"values begin where a bucket does, though some have room before", true, &bucketlistCU, " - (u64)take * sizeof(value);", ";", bulk},
		{"rows are in and refused", false, &bucketlistCU, "if (has && list::state_of(load_relaxed(list::last_at<C>(slot))) != LIST_BLOCKED) return;", "", bulk},
		{"a list is ready before its bucket is", false, &bucketlistCUH, "            if (tail.header()) write_header<C>(t, first, with_state(last, LIST_READY), tail.room);\n            store_release(last_at<C>(slot), bucket(first, code, tail.header()));",
			"            store_release(last_at<C>(slot), bucket(first, code, tail.header()));\n            if (tail.header()) write_header<C>(t, first, with_state(last, LIST_READY), tail.room);", put},
		{"two lanes block a list", true, &bucketlistCUH, "cas(last_at<C>(slot), last, with_state(last, LIST_BLOCKED)) == last)", "(store_relaxed(last_at<C>(slot), with_state(last, LIST_BLOCKED)), true))", put},
		{"a number is taken without compare-and-swap", false, &bucketlistCUH, "if (cas(left_at<C>(slot), ~count, ~(count + 1)) == ~count) {", "if (store_relaxed(left_at<C>(slot), ~(count + 1)), true) {", put},
	})
	for seed := range uint64(testenv.Seeds(40)) {
		if err := bulk(seed); err != nil {
			t.Fatalf("without a defect, seed %d: %v", seed, err)
		}
	}
}

// onDevices runs a test on the CPU and, where there is one, on a GPU.
func onDevices(t *testing.T, run func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { run(t, openFor(t, name)) })
	}
}

// listModel is a BucketList beside a Go map.
type listModel struct {
	testing.TB
	m     *BucketList[uint32, uint32]
	rng   *rand.Rand
	model map[uint32][]uint32
}

func newListModel(t testing.TB, d *device.Device, o ListOptions) *listModel {
	t.Helper()
	m, err := NewBucketList[uint32, uint32](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &listModel{t, m, rand.New(rand.NewPCG(1, 7)), map[uint32][]uint32{}}
}

// batch is n pairs, of so many keys.
func (x *listModel) batch(n, keys int) (k, v []uint32) {
	k, v = make([]uint32, n), make([]uint32, n)
	for i := range k {
		k[i], v[i] = ^uint32(x.rng.IntN(keys)), x.rng.Uint32()
	}
	return k, v
}

// put notes what an insert has put in, but for the positions of a FullError.
func (x *listModel) put(k, v []uint32, err error) *table.FullError {
	x.Helper()
	var full *table.FullError
	if !errors.As(err, &full) {
		must(x, err)
		full = &table.FullError{}
	}
	lost := map[int]bool{}
	for _, p := range full.Positions {
		lost[p] = true
	}
	for i := range k {
		if !lost[i] {
			x.model[k[i]] = append(x.model[k[i]], v[i])
		}
	}
	return full
}

func (x *listModel) verify() {
	x.Helper()
	must(x, x.m.Check())
	keys := slices.Collect(maps.Keys(x.model))
	offsets, values, err := x.m.FindAll(keys)
	must(x, err)
	for i, k := range keys {
		if !slices.Equal(sorted(values[offsets[i]:offsets[i+1]]), sorted(x.model[k])) {
			x.Fatalf("key %#x has other values than were put in: %d, want %d", k, offsets[i+1]-offsets[i], len(x.model[k]))
		}
	}
	only, err := x.m.Keys()
	must(x, err)
	if !slices.Equal(sorted(only), sorted(keys)) {
		x.Fatalf("%d keys, want %d", len(only), len(keys))
	}
}

// Lists of many buckets, and so long that many warps copy them, beside short ones; laid anew, and laid anew again when half are gone.
func TestBucketListLongLists(t *testing.T) {
	t.Parallel()
	onDevices(t, testLongLists)
}

func testLongLists(t *testing.T, d *device.Device) {
	for _, growth := range []float64{1, 2} {
		x := newListModel(t, d, ListOptions{Growth: growth})
		for range 6 {
			k, v := x.batch(15_000, 3)
			x.put(k, v, x.m.Insert(k, v))
			k, v = x.batch(500, 400)
			x.put(k, v, x.m.Insert(k, v))
			k, v = x.batch(7, 2)
			x.put(k, v, x.m.Insert(k, v))
		}
		x.verify()
		before, err := x.m.Density()
		must(t, err)
		must(t, x.m.Shrink())
		x.verify()
		after, err := x.m.Density()
		must(t, err)
		if after < before || after < 0.85 {
			t.Errorf("density %v became %v", before, after)
		}
		gone := []uint32{^uint32(0), ^uint32(7)}
		_, err = x.m.Delete(gone, nil)
		must(t, err)
		delete(x.model, gone[0])
		delete(x.model, gone[1])
		x.verify()
		k := slices.Repeat([]uint32{5}, 100_000) // longer than pack copies by one warp
		x.put(k, k, x.m.Insert(k, k))
		x.verify()
		must(t, x.m.Shrink())
		must(t, x.m.Grow(300_000))
		x.verify()
	}
}

// Build leaves each key's values in one bucket of their number; a table with pairs is refused, and later inserts go on from there.
func TestBucketListBuild(t *testing.T) { onDevices(t, testBuild) }

func testBuild(t *testing.T, d *device.Device) {
	for _, o := range []ListOptions{{InitialBucket: 9}, {Options: table.Options{MaxBytes: 32 << 10}}, {Options: table.Options{Capacity: 30_000}, Keys: 300}} {
		x := newListModel(t, d, o)
		k, v := x.batch(20_000, 300)
		full := x.put(k, v, x.m.Build(k, v))
		if (o.MaxBytes > 0) != (len(full.Positions) > 0) {
			t.Fatalf("%d pairs are not in", len(full.Positions))
		}
		x.verify()
		if o.MaxBytes == 0 && x.m.lists.used() != 20_000 {
			t.Errorf("%d places for 20,000 values", x.m.lists.used())
		}
		if err := x.m.Build(k, v); err == nil || !strings.Contains(err.Error(), "must be empty") {
			t.Errorf("Build of a table with pairs: %v", err)
		}
		k, v = x.batch(100, 400)
		x.put(k, v, x.m.Insert(k, v))
		x.verify()
	}
	x := newListModel(t, d, ListOptions{})
	must(t, x.m.Build(nil, nil))
	if x.m.Build([]uint32{1}, nil) == nil {
		t.Error("a key without a value")
	}
	x.verify()
}

// Large batches are brought in the order of regions, piece by piece, and tell what does not fit by its position in the batch.
func TestBucketListPartitioned(t *testing.T) {
	t.Parallel()
	onDevices(t, testPartitioned)
}

func testPartitioned(t *testing.T, d *device.Device) {
	for i, o := range []ListOptions{{}, {Options: table.Options{Capacity: 20_000}, InitialBucket: 5, Growth: 1.5}, {Options: table.Options{MaxBytes: 128 << 10}}} {
		x := newListModel(t, d, o)
		rule := tinyRegions
		rule.RegionBytes, rule.PieceRows = 4<<10, 3000
		x.m.lists.keys.regions = rule
		for round := range 4 {
			k, v := x.batch(10_000, []int{9000, 300, 40}[round%3])
			full := x.put(k, v, x.m.Insert(k, v))
			if i < 2 && len(full.Positions) > 0 {
				t.Fatal(full)
			}
			x.verify()
		}
	}
	// Buckets whose sizes are no longer exact have all places that were given out.
	large := newListModel(t, d, ListOptions{Options: table.Options{Capacity: 1000}, Keys: 20, InitialBucket: 1 << 17})
	large.m.lists.keys.regions = tinyRegions
	large.m.lists.keys.regions.RegionBytes = 1 << 20
	k, v := large.batch(1000, 20)
	large.put(k, v, large.m.Insert(k, v))
	large.verify()
	// Some keys have more rows than a block takes, too few to tell.
	x := newListModel(t, d, ListOptions{})
	x.m.lists.keys.regions = tinyRegions
	x.m.lists.keys.regions.PieceRows = 1 << 20
	for range 2 {
		k, v := x.batch(150_000, 140_000)
		for i := range 6_000 {
			k[i*20] = uint32(i % 4)
		}
		x.put(k, v, x.m.Insert(k, v))
		x.verify()
	}
}

// A batch of few keys and many new ones makes the table no larger than it must be.
func TestBucketListGrowthGuess(t *testing.T) { onDevices(t, testGrowthGuess) }

func testGrowthGuess(t *testing.T, d *device.Device) {
	x := newListModel(t, d, ListOptions{})
	rows := 300_000
	if !testenv.Long() && !d.Info().CUDA() {
		rows = 2 * firstBatch
	}
	k, v := x.batch(rows, 25)
	for range 3 {
		x.put(k, v, x.m.Insert(k, v))
	}
	x.verify()
	if c := x.m.lists.keys.capacity(); c > 1000 {
		t.Errorf("%d slots for 25 keys", c)
	}
	k, v = x.batch(rows, 90_000)
	x.put(k, v, x.m.Insert(k, v))
	x.put(k, v, x.m.Insert(k, v))
	x.verify()
	if c := x.m.lists.keys.capacity(); c > 4*90_000 {
		t.Errorf("%d slots for 90,000 keys", c)
	}
	if s, err := x.m.Stats(); err != nil || x.m.lists.keys.live() > x.m.lists.keys.limit() {
		t.Errorf("%+v, %v", s, err)
	}
}

// On a device with little memory a batch goes in as far as there is room, and says exactly what is not in; nothing is lost.
func TestBucketListShortOfMemory(t *testing.T) {
	for i, memory := range []int64{160 << 10, 160 << 10, 400 << 10, 400 << 10, 800 << 10, 800 << 10, 1200 << 10, 1200 << 10} {
		if i%2 != i/2%2 && !testenv.Long() {
			continue
		}
		d := openFor(t, "cpu", device.WithMemory(memory))
		x := newListModel(t, d, ListOptions{})
		if i%2 == 1 { // what batches in order lie in takes memory, too
			x.m.lists.keys.regions = tinyRegions
			x.m.lists.keys.regions.PieceRows, x.m.lists.keys.regions.MemoryShare = 20_000, 2
		}
		for _, keys := range []int{100, 50_000, 10} {
			k, v := x.batch(30_000, keys)
			x.put(k, v, x.m.Insert(k, v))
		}
		must(t, x.m.Check())
		counts, keys := make([]uint32, 1000), make([]uint32, 1000)
		for i := range keys {
			keys[i] = ^uint32(i)
		}
		must(t, x.m.Count(keys, counts))
		for i, k := range keys {
			if int(counts[i]) != len(x.model[k]) {
				t.Fatalf("%d bytes: key %#x has %d values, want %d", memory, k, counts[i], len(x.model[k]))
			}
		}
	}
}

func TestBucketListForEach(t *testing.T) { onDevices(t, testForEach) }

func testForEach(t *testing.T, d *device.Device) {
	x := newListModel(t, d, ListOptions{Growth: 1})
	for range 3 {
		k, v := x.batch(500, 40)
		x.put(k, v, x.m.Insert(k, v))
	}
	asked := []uint32{^uint32(0), 5, ^uint32(3), ^uint32(30), ^uint32(0)}
	want, all := make([]uint64, len(asked)), uint64(0)
	for i, k := range asked {
		for _, v := range x.model[k] {
			want[i] += uint64(v) ^ uint64(k)
		}
	}
	for k, values := range x.model {
		for _, v := range values {
			all += uint64(v) ^ uint64(k)
		}
	}
	keys, err := device.From(d, asked)
	must(t, err)
	sums, err := device.From(d, make([]uint64, len(asked)+1))
	must(t, err)
	must(t, x.m.ForEach(nil, keys, "add(&sums[index], (u64)value ^ key);", Args{"sums": sums}))
	must(t, x.m.ForAll(nil, "add(&sums[5], (u64)value ^ key);", Args{"sums": sums}))
	got, err := sums.Host(nil)
	must(t, err)
	if !slices.Equal(got, append(want, all)) {
		t.Errorf("%v, want %v, %v", got, want, all)
	}
}

func TestBucketListOptionsAreChecked(t *testing.T) {
	d := openFor(t, "cpu")
	for _, o := range []ListOptions{
		{Growth: 0.9}, {Growth: 2000}, {Growth: math.NaN()}, {InitialBucket: -1}, {InitialBucket: 1 << 21}, {Keys: -1}, {FindGroup: 3}, {InsertGroup: 64},
		{Options: table.Options{MaxBytes: 100}}, {Options: table.Options{LoadFactor: 2}},
	} {
		if m, err := NewBucketList[uint32, uint32](d, o); err == nil {
			m.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}

// The Go twin of code_of and size_of keeps sizes: exact below 2¹⁶, and within a 32,768th above.
func TestBucketSizes(t *testing.T) {
	for n := uint64(1); n <= listMost; n += 1 + n/1000 {
		for _, up := range []bool{true, false} {
			b := bucket(5<<listPlaceShift | sizeCode(uint32(n), up)<<listSizeShift)
			got, err := b.size(), float64(b.size())-float64(n)
			if b.place() != 5 || n < 1<<listMantissa && got != n || up && err < 0 || !up && err > 0 || math.Abs(err) > float64(n)/(1<<(listMantissa-1)) {
				t.Fatalf("size %d, up %t, is %d at %d", n, up, got, b.place())
			}
		}
	}
}

// Each invariant of doc.go's list, broken in a table's memory, is what Check reports.
func TestBucketListCheckFindsDamage(t *testing.T) {
	d := openFor(t, "cpu")
	m, err := NewBucketList[uint32, uint32](d, ListOptions{Growth: 1})
	must(t, err)
	defer m.Close()
	for range 3 {
		k := make([]uint32, 60)
		for i := range k {
			k[i] = uint32(i) % 9
		}
		must(t, m.Insert(k, k))
	}
	_, err = m.Delete([]uint32{8}, nil)
	must(t, err)
	must(t, m.Check())
	keys, err := m.lists.keys.mem.Host(nil)
	must(t, err)
	pool, err := m.lists.pool.Host(nil)
	must(t, err)
	im := &image{m.lists.keys.cfg, m.lists.keys.t, m.lists.keys.mem.Addr(), keys}
	var slots, free []uint64 // offsets in the keys' memory
	for slot := range m.lists.keys.t.Main.Windows * uint64(m.lists.keys.cfg.window) {
		at := m.lists.keys.t.Main.Slots - im.base + slot*uint64(m.lists.keys.cfg.slotBytes())
		if im.cfg.mark(im.key(false, slot)) != none {
			free = append(free, at)
		} else {
			slots = append(slots, at)
		}
	}
	last := func(mem []byte, at uint64) []byte { return mem[at+8 : at+16] }
	word := func(mem []byte, at uint64) bucket { return bucket(binary.LittleEndian.Uint64(last(mem, at))) }
	for _, c := range []struct {
		name   string
		damage func(keys, pool []byte, k *ListCounters)
		want   string
	}{
		{"a value too many", func(keys, _ []byte, _ *ListCounters) { keys[slots[0]+4] -= 1 }, "its last bucket is for values"},
		{"a value too few", func(keys, _ []byte, _ *ListCounters) { keys[slots[0]+4] += 1 }, "the counters say"},
		{"a list that is blocked", func(keys, _ []byte, _ *ListCounters) { keys[slots[0]+8] |= listBlocked }, "is blocked"},
		{"a list of nothing", func(keys, _ []byte, _ *ListCounters) { copy(last(keys, slots[0]), bytes.Repeat([]byte{255}, 8)) }, "it has no bucket"},
		{"a bucket in two lists", func(keys, _ []byte, _ *ListCounters) {
			copy(keys[slots[0]+4:slots[0]+16], keys[slots[1]+4:slots[1]+16])
		}, "overlap"},
		{"a bucket beyond the pool", func(keys, _ []byte, _ *ListCounters) { keys[slots[0]+14] = 1 }, "a bucket of"},
		{"a free slot with a list", func(keys, _ []byte, _ *ListCounters) { keys[free[0]+8] = 0 }, "which a new key would get"},
		{"a bucket that is counted as free, too", func(_, _ []byte, k *ListCounters) { k.Garbage += 3000 }, "lists that were removed had"},
		{"a miscounted value", func(_, _ []byte, k *ListCounters) { k.Added++ }, "the counters say"},
		{"untold failures", func(_, _ []byte, k *ListCounters) { k.Failed++ }, "were not told"},
		{"a header of another list", func(keys, pool []byte, _ *ListCounters) { pool[4*word(keys, slots[0]).place()+8] ^= 1 }, "key 0x"},
		{"a link to nothing", func(keys, pool []byte, _ *ListCounters) {
			copy(pool[4*word(keys, slots[0]).place():], bytes.Repeat([]byte{255}, 8))
		}, "links to"},
	} {
		k, p, seen := slices.Clone(keys), slices.Clone(pool), m.lists.counters.Seen
		c.damage(k, p, &m.lists.counters.Seen)
		must(t, errors.Join(m.lists.keys.mem.Write(nil, k), m.lists.pool.Write(nil, p), m.lists.counters.Set(nil)))
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Check says %v, want %q", c.name, err, c.want)
		}
		m.lists.counters.Seen = seen
		must(t, errors.Join(m.lists.keys.mem.Write(nil, keys), m.lists.pool.Write(nil, pool), m.lists.counters.Set(nil)))
		must(t, m.Check())
	}
}

// All lists go, and others come, over and over, in the same memory.
func TestBucketListChurnInPlace(t *testing.T) {
	d := openFor(t, "cpu")
	for _, o := range []ListOptions{{}, {Options: table.Options{MaxBytes: 64 << 10}}} {
		x := newListModel(t, d, o)
		for round := range 30 {
			k, v := x.batch(2000, 300)
			for i := range k {
				k[i] -= uint32(1000 * round)
			}
			if full := x.put(k, v, x.m.Insert(k, v)); len(full.Positions) > 0 {
				t.Fatalf("round %d: %v", round, full)
			}
			n, err := x.m.Delete(slices.Collect(maps.Keys(x.model)), nil)
			if err != nil || n != 2000 {
				t.Fatalf("%d deleted, %v", n, err)
			}
			clear(x.model)
			if round%3 == 0 {
				must(t, x.m.Grow(1000))
			}
			x.verify()
		}
		if s, err := x.m.Stats(); err != nil || s.Bytes > 100<<10 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// Of a GPU's 100 million pairs, or a million on the CPU: insert, build and look up, in pairs a second.
func BenchmarkBucketList(b *testing.B) {
	for _, name := range []string{"cpu", "cuda:0"} {
		d, err := device.Open(name)
		if err != nil {
			continue
		}
		n := 1_000_000
		if d.Info().CUDA() {
			n *= 100
		}
		for _, distinct := range []int{n, n / 8, n / 64, 25} {
			keys, values, asked := make([]uint32, n), make([]uint32, n), make([]uint32, distinct)
			rng := rand.New(rand.NewPCG(1, 1))
			for i := range keys {
				keys[i], values[i] = kernel.Fmix32(uint32(i%distinct)), uint32(i)
			}
			rng.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for i := range asked {
				asked[i] = kernel.Fmix32(uint32(i))
			}
			rng.Shuffle(distinct, func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
			k, e1 := device.From(d, keys)
			v, e2 := device.From(d, values)
			q, e3 := device.From(d, asked)
			offsets, e4 := device.Make[uint64](d, distinct+1)
			out, e5 := device.Make[uint32](d, n)
			must(b, errors.Join(e1, e2, e3, e4, e5))
			m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{Capacity: n}, Keys: distinct})
			must(b, err)
			for what, run := range map[string]func() error{
				"insert": func() error { return errors.Join(m.Clear(), m.InsertOn(nil, k, v)) },
				"build":  func() error { return errors.Join(m.Clear(), m.BuildOn(nil, k, v)) },
				"find": func() error {
					_, err := m.FindAllInto(nil, q, offsets, func(int) (device.Slice[uint32], error) { return out, nil })
					return err
				},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", name, distinct, what), func(b *testing.B) {
					if what == "find" {
						must(b, errors.Join(m.Clear(), m.InsertOn(nil, k, v)))
					}
					must(b, run())
					for b.Loop() {
						must(b, run())
					}
					b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "G/s")
				})
			}
			rho, err := m.Density()
			b.Logf("%s, %d keys: density %.2f", name, distinct, rho)
			must(b, errors.Join(err, m.Close(), k.Free(), v.Free(), q.Free(), offsets.Free(), out.Free()))
		}
		must(b, d.Close())
	}
}

// sizeCode is a bucket's size as its word has it: the twin of code_of.
func sizeCode(n uint32, up bool) uint64 {
	h := max(0, bits.Len32(n)-listMantissa)
	m := uint64(n) >> h
	if up && m<<h != uint64(n) {
		m++
	}
	if m == 1<<listMantissa {
		m, h = m>>1, h+1
	}
	return uint64(h)<<listMantissa | m
}
