package warpcore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// multiBuckets is the suite of the multi-bucket tables with those options.
func multiBuckets[K, V any](o MultiBucketOptions) *tabletest.Suite {
	return tabletest.MultiMap(func(d *device.Device, base table.Options) (table.MultiMap[K, V], error) {
		o := o
		o.Options = base
		m, err := NewMultiBucket[K, V](d, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	})
}

// What is not the default: that has the suite of all families.
func TestMultiBucket(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			openFor(t, name)
			for _, c := range []struct {
				name  string
				part  tabletest.Part
				suite *tabletest.Suite
			}{
				{"8+16", tabletest.Widths, multiBuckets[uint64, [2]uint64](MultiBucketOptions{Bucket: 2, Window: 1})},
				{"4+8", tabletest.Types, multiBuckets[uint32, uint64](MultiBucketOptions{Bucket: 1, FindGroup: 4, InsertGroup: 4})},
				{"8+4", tabletest.Types, multiBuckets[uint64, float32](MultiBucketOptions{Bucket: 14, FindGroup: 2, InsertGroup: 1})},
				{"8+8", tabletest.Types, multiBuckets[uint64, uint64](MultiBucketOptions{Window: 8, FindGroup: 1, InsertGroup: 2})},
			} {
				if name == "cpu" && !testenv.Long() && (c.name == "4+8" || c.name == "8+8") {
					continue // the others' widths, with other groups
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.suite.Run(t, c.part, openFor(t, name), openFor(t, "cpu"))
				})
			}
		})
	}
}

// The same with lanes switched at random, at every access.
func TestMultiBucketUnderStress(t *testing.T) {
	t.Parallel()
	open := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	seeds := testenv.Seeds(20)
	multiBuckets[uint32, uint32](MultiBucketOptions{Bucket: 2, Window: 1}).Stress(t, open, table.Options{MaxBytes: 4 << 10, LoadFactor: 1}, seeds)
	multiBuckets[uint64, [2]uint64](MultiBucketOptions{InsertGroup: 2, FindGroup: 4}).Stress(t, open, table.Options{}, seeds)
}

// The kernels compile for GPUs, on machines that have none, with a kernel of a user's and a callback.
func TestMultiBucketCompilesForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, c := range []struct{ key, value, bucket, window, insert, find int }{
		{4, 4, 0, 2, 1, 2}, {8, 16, 0, 2, 1, 1}, {4, 16, 1, 4, 4, 4}, {8, 4, 14, 2, 2, 32}, {4, 8, 30, 1, 32, 1}, {8, 8, 0, 8, 8, 4}, {8, 4, 1, 32, 1, 8},
	} {
		if i > 0 && !testenv.Long() {
			break
		}
		arch := []string{"sm_90", "sm_75"}[i%2]
		m := &core{cfg: bucketConfig(c.key, c.value, c.bucket)}
		m.cfg.window, m.opts.InsertGroup, m.opts.FindGroup = c.window, c.insert, c.find
		call := m.program("foreach", foreachCU, device.File{Name: "callback.h",
			Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64 i) { add(at<u64>(p.args[0]), i); }"})
		call.Layouts = append(call.Layouts, forEachParams{})
		for _, p := range testenv.Some([]*device.Program{call, m.program("multibucket", multibucketCU), putting(m)}, 1) {
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

// putParams are the parameters of appendKernels for a MultiBucket.
type putParams struct {
	Table   Table
	Outcome uint64 // u32 a pair
	Sums    uint64 // u64: what buckets::count and buckets::for_values give
	Each    uint64 // pairs of a tile
	Keys    uint64
}

// putting is the program of a bucket list's kernels, as they are for a MultiBucket.
func putting(c *core) *device.Program {
	renamed := strings.NewReplacer("bucketlist.cuh", "multibucket.cuh", "list::", "buckets::", "p.lists", "p.table", "appendParams", "putParams")
	p := c.program("multibucket-put", renamed.Replace(appendKernels))
	p.Layouts = append(p.Layouts, putParams{})
	p.Defines = append(p.Defines, device.Define{Name: "APPEND_TILE", Value: c.opts.InsertGroup})
	return p
}

// putStory inserts from the device, with all lanes at once, and says what is wrong with the table then. The table makes room for as many pairs
// as room says.
func putStory[K, V any](d *device.Device, o MultiBucketOptions, pairs, keys, room int, number func(V) uint32) error {
	m, err := NewMultiBucket[K, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	mod, err := d.Compile(putting(m.core))
	if err != nil {
		return err
	}
	put, e1 := device.KernelOf[putParams](mod, "append_pairs")
	sum, e2 := device.KernelOf[putParams](mod, "sum_values")
	outcome, e3 := device.Make[uint32](d, pairs)
	sums, e4 := device.Make[uint64](d, 2*keys)
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return err
	}
	defer outcome.Free()
	defer sums.Free()
	const each = 4
	threads := int64(pairs / each * m.core.opts.InsertGroup)
	err = m.Use(nil, room, func(t Table) error {
		p := putParams{t, outcome.Addr(), sums.Addr(), each, uint64(keys)}
		return errors.Join(put.Launch(nil, device.Grid{Blocks: threads / 64, Threads: 64}, &p), sum.Launch(nil, device.Grid{Blocks: 1, Threads: 64}, &p))
	})
	if err != nil {
		return err
	}
	became, e1 := outcome.Host(nil)
	told, e2 := sums.Host(nil)
	if err := errors.Join(e1, e2, m.Check()); err != nil {
		return err
	}
	model, asked := make([][]uint32, keys), make([]uint64, keys)
	for i, o := range became {
		switch table.Status(o) {
		case table.Added:
			model[i%keys] = append(model[i%keys], uint32(i))
		case table.NoRoom:
			if room >= pairs && i%keys > 2 { // the highest keys have the side region, which a kernel cannot make larger
				return fmt.Errorf("pair %d found no room, of %d", i, room)
			}
		default:
			return fmt.Errorf("pair %d has outcome %d", i, o)
		}
	}
	for k := range asked {
		asked[k] = ^uint64(k)
	}
	query := tabletest.KeysOf[K](asked)
	compare := func() error {
		offsets, values, err := m.FindAll(query)
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
	values := make([]V, keys) // the next go in beside those
	for k := range model {
		model[k] = append(model[k], number(values[k]))
		told[2*k]++
	}
	return errors.Join(m.Insert(query, values), m.Check(), compare())
}

func putStories(seed uint64, open func(...device.Option) *device.Device) error {
	d := open(device.WithStress(seed))
	defer d.Close()
	o := MultiBucketOptions{Options: table.Options{Seed: seed + 1}, InsertGroup: []int{1, 4, 32}[seed%3], Bucket: []int{0, 1, 3}[seed%3]}
	room, keys := []int{256, 5}[seed/2%2], 1+int(seed%7)
	if seed%5 == 4 && (seed%3 == 1 || testenv.Long()) { // a width for each group is a compilation
		return putStory[uint64](d, o, 256, keys, room, func(v [2]uint64) uint32 { return uint32(v[0]) })
	}
	return putStory[uint32](d, o, 256, keys, room, func(v uint32) uint32 { return v })
}

func bulkBucketStory(d *device.Device, seed uint64) error {
	defer d.Close()
	o := MultiBucketOptions{Options: table.Options{Seed: seed + 1}, Bucket: []int{0, 1, 2}[seed%3]}
	if seed%3 == 1 { // chains so long, in a table so large, that there are hints
		o.Capacity, o.Window = 3000, 1
	}
	m, err := NewMultiBucket[uint32, uint32](d, o)
	if err != nil {
		return err
	}
	return bulkStory(m, seed)
}

// openBy opens a CPU device, that the caller closes.
func openBy(t *testing.T) func(...device.Option) *device.Device {
	return func(o ...device.Option) *device.Device {
		d, err := device.Open("cpu", o...)
		must(t, err)
		return d
	}
}

// Inserts from the device beside one another, lanes of one warp among them, into slots that get full, and into a table that does.
func TestMultiBucketFromTheDevice(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	for seed := range uint64(testenv.Seeds(120)) {
		if err := putStories(seed, openBy(t)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Run("cuda:0", func(t *testing.T) {
		o := MultiBucketOptions{InsertGroup: 4}
		must(t, putStory[uint32](openFor(t, "cuda:0"), o, 1<<16, 1000, 1<<20, func(v uint32) uint32 { return v }))
		must(t, putStory[uint64](openFor(t, "cuda:0"), o, 1<<16, 1000, 1<<20, func(v [2]uint64) uint32 { return uint32(v[0]) }))
	})
}

// Defects that are planted in a copy must be found.
func TestMultiBucketFindsDefects(t *testing.T) {
	testenv.ByTurns(t)
	bulk := func(seed uint64) error { return bulkBucketStory(openBy(t)(device.WithStress(seed)), seed) }
	put := func(seed uint64) error { return putStories(seed, openBy(t)) }
	findDefects(t, 300, []defect{
		{"a place is taken without compare-and-swap", false, &multibucketCUH, "u32 was = ~cas(left_at(slot), ~has, ~(has + got));",
			"u32 was = has;\n            store_relaxed(left_at(slot), ~(has + got));", bulk},
		{"a slot is claimed without compare-and-swap", true, &multibucketCUH, "return cas(word_at(slots, index), whole(free, 0), now) == whole(free, 0);",
			"return store_relaxed(word_at(slots, index), now), true;", bulk},
		{"a slot that is full is taken for one with room", false, &multibucketCUH, "u32 room = C::BUCKET - has,", "u32 room = C::BUCKET + 1 - has,", bulk},
		{"a value is written to the next place", false, &multibucketCU, "store_relaxed(values_at<C>(s.slot) + s.first, v);",
			"store_relaxed(values_at<C>(s.slot) + (s.first ^ 1), v);", bulk},
		{"a search ends at a slot that others have filled", false, &multibucketCUH, "if (want == 0) return false;", "if (want == 0 || got == 0) return false;", from(4, put)},
		{"look-ups see a full slot as nobody's", true, &multibucketCUH, "return ROOM && count(w) >= C::BUCKET ?", "return count(w) >= C::BUCKET ?", bulk},
		{"a hint tells of a window too many", false, &multibucketCUH, "(claimed ? s.candidate_probes : s.probes) - 1);",
			"(claimed ? s.candidate_probes : s.probes));", from(1, bulk)},
		{"values in other slots are not copied", true, &multibucketCU, "slot |= MORE;", ";", bulk},
	})
	for seed := range uint64(testenv.Seeds(40)) {
		if err := errors.Join(bulk(seed), put(seed)); err != nil {
			t.Fatalf("without a defect, seed %d: %v", seed, err)
		}
	}
}

// bucketSubject is a MultiBucket beside a Go map.
func bucketSubject(t testing.TB, d *device.Device, o MultiBucketOptions) (*multiSubject[uint32, uint32], *MultiBucket[uint32, uint32]) {
	t.Helper()
	m, err := NewMultiBucket[uint32, uint32](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &multiSubject[uint32, uint32]{t, d, &m.MultiMap, rand.New(rand.NewPCG(1, 9)), map[uint64][]uint32{}}, m
}

// batch is n keys of so many, down from the highest: three are of the side region.
func (s *multiSubject[K, V]) batch(n, keys int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = (^uint64(0) - uint64(s.rng.IntN(keys))) & keyMask[K]()
	}
	return out
}

// all are the keys that are in.
func (s *multiSubject[K, V]) all() []uint64 { return slices.Collect(maps.Keys(s.model)) }

// Keys with thousands of values, reserved ones among them, take as many slots as they must, and Grow and Delete leave them whole.
func TestMultiBucketManyValues(t *testing.T) { onDevices(t, testManyValues) }

func testManyValues(t *testing.T, d *device.Device) {
	options := []MultiBucketOptions{{}, {Bucket: 14, Window: 4}}
	if testenv.Long() || d.Info().CUDA() { // else the suite of all families has it
		options = append(options, MultiBucketOptions{Options: table.Options{Hash: kernel.HashConstant}})
	}
	for _, o := range options {
		s, m := bucketSubject(t, d, o)
		for range 4 {
			s.insert(s.batch(2000, 9)) // all those of the side among them
			s.insert(s.batch(300, 200))
		}
		s.verify()
		s.find(append(s.all(), 5))
		slots := int64(0)
		for _, v := range s.model {
			slots += int64((len(v) + m.core.cfg.bucket - 1) / m.core.cfg.bucket)
		}
		if m.core.live() != slots {
			t.Errorf("%d slots, want %d", m.core.live(), slots)
		}
		must(t, m.Grow(30_000))
		s.verify()
		s.delete(s.batch(6, 9))
		s.find(s.batch(20, 12))
		must(t, m.Grow(0)) // rids it of tombstones
		if m.core.tombstones() != 0 || m.core.live() != m.core.counters.Seen.live() {
			t.Errorf("%d tombstones", m.core.tombstones())
		}
		s.insert(s.batch(1000, 9))
		s.verify()
	}
}

// Keys with very many values have hints of where their chains have room, which go when that may change.
func TestMultiBucketHints(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		testHints[uint32](t, d)
		testHints[uint64](t, d)
	})
}

func testHints[K any](t *testing.T, d *device.Device) {
	m, err := NewMultiBucket[K, uint32](d, MultiBucketOptions{Options: table.Options{Capacity: 8000}, Bucket: 3})
	must(t, err)
	defer m.Close()
	s := &multiSubject[K, uint32]{t, d, &m.MultiMap, rand.New(rand.NewPCG(1, 5)), map[uint64][]uint32{}}
	hints := func() int { return hintsOf(t, m.core) }
	for range 3 {
		s.insert(s.batch(2500, 9))
		s.insert(s.batch(200, 2000))
	}
	s.verify()
	if n := hints(); n < 3 {
		t.Errorf("%d hints for 9 keys", n)
	}
	s.delete(s.all())
	if n := hints(); n != 0 {
		t.Errorf("%d hints of no keys", n)
	}
	s.insert(s.batch(2500, 9))
	s.verify()
	s.find(s.all())
	must(t, m.Grow(40_000))
	s.insert(s.batch(2500, 9))
	s.verify()
	must(t, m.Clear())
	clear(s.model)
	if n := hints(); n != 0 {
		t.Errorf("%d hints in an empty table", n)
	}
	s.insert(s.batch(100, 9))
	s.verify()
}

// At MaxBytes a batch goes in as far as there is room, whatever its keys, in few steps, and says exactly what is not in. What was deleted leaves its
// room to others.
func TestMultiBucketFull(t *testing.T) { onDevices(t, testBucketFull) }

func testBucketFull(t *testing.T, d *device.Device) {
	bytes, rows := int64(128<<10), 40_000
	if !testenv.Long() && !d.Info().CUDA() {
		bytes, rows = 64<<10, 20_000
	}
	for _, keys := range []int{3, 300, 100_000} {
		s, m := bucketSubject(t, d, MultiBucketOptions{Options: table.Options{MaxBytes: bytes}})
		batch := func(n int) []uint64 { // none of the side
			k := s.batch(n, keys)
			for i := range k {
				k[i] -= 10
			}
			return k
		}
		full := s.insert(batch(rows))
		if full == nil {
			t.Fatalf("%d keys: %d values fit", keys, rows)
		}
		s.verify()
		s.find(s.all())
		if load := float64(m.core.live()) / float64(m.core.capacity()); load < 0.97 {
			t.Errorf("%d keys: full at a load of %v", keys, load)
		}
		s.delete(s.all()[:len(s.model)/3])
		before := m.core.pairs()
		s.insert(batch(rows))
		if m.core.pairs() < before+before/10 {
			t.Errorf("%d keys: %d pairs, and after deletions %d", keys, before, m.core.pairs())
		}
		s.verify()
		must(t, m.Clear())
		clear(s.model)
		if s.insert(batch(500)) != nil {
			t.Error("500 values do not fit")
		}
		s.verify()
	}
}

// Large batches are brought in the order of regions, piece by piece, and tell what does not fit by its position in the batch.
func TestMultiBucketPartitioned(t *testing.T) { onDevices(t, testBucketPartitioned) }

func testBucketPartitioned(t *testing.T, d *device.Device) {
	for i, o := range []MultiBucketOptions{{}, {Options: table.Options{Capacity: 20_000}}, {Options: table.Options{MaxBytes: 256 << 10}}} {
		s, m := bucketSubject(t, d, o)
		m.core.regions = tinyRegions
		m.core.regions.PieceRows = 3000
		for round := range 4 {
			if full := s.insert(s.batch(10_000, []int{9000, 300}[round%2])); i < 2 && full != nil {
				t.Fatal(full)
			}
			s.verify()
		}
	}
}

// A batch makes the table no larger than its keys want, though they come again and again; and Keys says how many there will be.
func TestMultiBucketGrowth(t *testing.T) {
	t.Parallel()
	onDevices(t, testBucketGrowth)
}

func testBucketGrowth(t *testing.T, d *device.Device) {
	s, m := bucketSubject(t, d, MultiBucketOptions{})
	for range 3 {
		s.insert(s.batch(20_000, 25))
	}
	s.verify()
	if c := m.core.capacity(); c > 4*60_000/6 {
		t.Errorf("%d slots for 25 keys of 2,400 values", c)
	}
	s, m = bucketSubject(t, d, MultiBucketOptions{})
	s.insert(s.batch(200_000, 90_000))
	s.insert(s.batch(200_000, 90_000))
	s.verify()
	if c := m.core.capacity(); c > 4*130_000 {
		t.Errorf("%d slots for 90,000 keys", c)
	}
	if n := m.core.live(); n > m.core.limit() {
		t.Errorf("%d of %d slots", n, m.core.capacity())
	}
	_, whole := bucketSubject(t, d, MultiBucketOptions{Options: table.Options{Capacity: 60_000}})
	_, few := bucketSubject(t, d, MultiBucketOptions{Options: table.Options{Capacity: 60_000}, Keys: 1000})
	if a, b := whole.core.limit(), few.core.limit(); a < 60_000 || b < 1000+59_000/6 || b > a/4 {
		t.Errorf("room for %d slots, and with 1000 keys for %d", a, b)
	}
}

// On a device with little memory a batch goes in as far as there is room, and says exactly what is not in; nothing is lost.
func TestMultiBucketShortOfMemory(t *testing.T) {
	testenv.ByTurns(t)
	for i, memory := range []int64{200 << 10, 200 << 10, 500 << 10, 500 << 10, 1200 << 10, 1200 << 10} {
		if i%2 != i/2%2 && !testenv.Long() {
			continue
		}
		d := openFor(t, "cpu", device.WithMemory(memory))
		m, err := NewMultiBucket[uint32, uint32](d, MultiBucketOptions{})
		must(t, err)
		if i%2 == 1 { // what batches in order lie in takes memory, too
			m.core.regions = tinyRegions
			m.core.regions.PieceRows, m.core.regions.MemoryShare = 20_000, 2
		}
		rng, want := rand.New(rand.NewPCG(3, uint64(memory))), map[uint32]uint32{}
		for _, distinct := range []int{100, 50_000, 10} {
			k := make([]uint32, 30_000)
			for i := range k {
				k[i] = ^uint32(rng.IntN(distinct))
				want[k[i]]++
			}
			var full *table.FullError
			if err := m.Insert(k, k); errors.As(err, &full) {
				for _, p := range full.Positions {
					want[k[p]]--
				}
			} else {
				must(t, err)
			}
		}
		must(t, m.Check())
		counts, keys := make([]uint32, 1000), make([]uint32, 1000)
		for i := range keys {
			keys[i] = ^uint32(i)
		}
		must(t, m.Count(keys, counts))
		for i, k := range keys {
			if counts[i] != want[k] {
				t.Fatalf("%d bytes: key %#x has %d values, want %d", memory, k, counts[i], want[k])
			}
		}
		must(t, m.Close())
	}
}

func TestMultiBucketForEach(t *testing.T) {
	t.Parallel()
	onDevices(t, testBucketForEach)
}

func testBucketForEach(t *testing.T, d *device.Device) {
	s, m := bucketSubject(t, d, MultiBucketOptions{FindGroup: 2})
	for range 3 {
		s.insert(s.batch(500, 40))
	}
	asked := []uint32{^uint32(0), 5, ^uint32(3), ^uint32(30), ^uint32(0)}
	want, all := make([]uint64, len(asked)), uint64(0)
	for i, k := range asked {
		for _, v := range s.model[uint64(k)] {
			want[i] += uint64(v ^ k)
		}
	}
	for k, values := range s.model {
		for _, v := range values {
			all += uint64(v ^ uint32(k))
		}
	}
	keys, err := device.From(d, asked)
	must(t, err)
	sums, err := device.From(d, make([]uint64, len(asked)+1))
	must(t, err)
	must(t, m.ForEach(nil, keys, "add(&sums[index], (u64)(value ^ key));", Args{"sums": sums}))
	must(t, m.ForAll(nil, "add(&sums[5], (u64)(value ^ key));", Args{"sums": sums}))
	got, err := sums.Host(nil)
	must(t, err)
	if !slices.Equal(got, append(want, all)) {
		t.Errorf("%v, want %v, %v", got, want, all)
	}
	must(t, errors.Join(keys.Free(), sums.Free()))
	density, err := m.Density()
	must(t, err)
	if want := float64(4*len(s.model)+4*1500) / float64(m.core.mem.Len()); density != want {
		t.Errorf("density %v, want %v", density, want)
	}
}

func TestMultiBucketOptionsAreChecked(t *testing.T) {
	d := openFor(t, "cpu")
	for _, o := range []MultiBucketOptions{
		{Bucket: -1}, {Bucket: 257}, {Keys: -1}, {Window: 3}, {Window: -1}, {Window: 64}, {FindGroup: 3}, {InsertGroup: 64},
		{Options: table.Options{MaxBytes: 100}}, {Options: table.Options{LoadFactor: 2}}, {Options: table.Options{Capacity: -1}},
	} {
		if m, err := NewMultiBucket[uint32, uint32](d, o); err == nil {
			m.Close()
			t.Errorf("%+v: no error", o)
		}
	}
	for _, c := range []struct{ key, value, bucket, slot, values, window int }{
		{4, 4, 0, 32, 6, 2}, {4, 8, 0, 32, 3, 2}, {4, 16, 0, 64, 3, 2}, {8, 4, 0, 32, 5, 2}, {8, 8, 0, 32, 2, 2}, {8, 16, 0, 64, 3, 2},
		{4, 4, 14, 64, 14, 2}, {4, 4, 1, 16, 1, 4}, {8, 4, 1, 16, 1, 4}, {4, 4, 3, 24, 3, 2},
	} {
		var m core
		must(t, m.bucketOptions(frame.Width{Key: c.key, Value: c.value}, MultiBucketOptions{Bucket: c.bucket}))
		if m.cfg.slotBytes() != c.slot || m.cfg.bucket != c.values || m.opts.Window != c.window {
			t.Errorf("%+v: slots of %d bytes for %d values, %d in a window", c, m.cfg.slotBytes(), m.cfg.bucket, m.opts.Window)
		}
	}
}

// Each invariant of doc.go's list, broken in a table's memory, is what Check reports.
func TestMultiBucketCheckFindsDamage(t *testing.T) {
	d := openFor(t, "cpu")
	o := MultiBucketOptions{Options: table.Options{Capacity: 100, LoadFactor: 1, Seed: 3}}
	s, m := bucketSubject(t, d, o)
	s.insert(s.batch(300, 60))
	s.delete(s.batch(3, 60))
	must(t, m.Check())
	im := imageOf(t, m.core)
	at := func(slot uint64) uint64 {
		return m.core.t.Main.Slots - im.base + slot*uint64(m.core.cfg.slotBytes())
	}
	count := func(slot uint64) int { return int(^binary.LittleEndian.Uint32(im.mem[at(slot)+4:])) }
	find := func(mem []byte, what func(slot, key uint64) bool) uint64 {
		for slot := range m.core.t.Main.Windows * uint64(m.core.cfg.window) {
			if what(slot, uint64(binary.LittleEndian.Uint32(mem[at(slot):]))) {
				return slot
			}
		}
		t.Fatal("no slot to damage")
		return 0
	}
	live := func(slot, key uint64) bool { return m.core.cfg.mark(keyBits{lo: key}) == none }
	free := func(slot, key uint64) bool { return !live(slot, key) }
	several := func(slot, key uint64) bool { return live(slot, key) && len(s.model[key]) > m.core.cfg.bucket }
	for _, c := range []struct {
		name   string
		damage func(mem []byte, k *Counters)
		want   string
	}{
		{"a value too many", func(mem []byte, _ *Counters) {
			slot := find(mem, func(slot, key uint64) bool { return live(slot, key) && count(slot) < 5 })
			binary.LittleEndian.PutUint32(mem[at(slot)+4:], ^uint32(count(slot)+1))
		}, "the counters say"},
		{"a count that is too high", func(mem []byte, _ *Counters) {
			binary.LittleEndian.PutUint32(mem[at(find(mem, live))+4:], ^uint32(7))
		}, "has 7 values"},
		{"a slot without values", func(mem []byte, _ *Counters) {
			binary.LittleEndian.PutUint32(mem[at(find(mem, live))+4:], ^uint32(0))
		}, "has 0 values"},
		{"a value lost", func(mem []byte, _ *Counters) {
			slot := find(mem, func(slot, key uint64) bool { return live(slot, key) && 1 < count(slot) && count(slot) < 6 })
			binary.LittleEndian.PutUint32(mem[at(slot)+4:], ^uint32(count(slot)-1))
		}, "the counters say"},
		{"a free slot with values", func(mem []byte, _ *Counters) { mem[at(find(mem, free))+4] = 0xfe }, "which a new key would get"},
		{"a slot of another key", func(mem []byte, k *Counters) {
			slot := find(mem, free)
			other := find(mem, func(other, key uint64) bool {
				return live(other, key) && other/2 == m.core.cfg.probe(&m.core.t, keyBits{lo: key}).window && other/2 != slot/2
			})
			copy(mem[at(slot):at(slot)+32], mem[at(other):at(other)+32])
			k.Inserted++
		}, "check:"},
		{"two slots with room", func(mem []byte, k *Counters) {
			slot := find(mem, func(slot, key uint64) bool { return several(slot, key) && count(slot) == 6 })
			binary.LittleEndian.PutUint32(mem[at(slot)+4:], ^uint32(5))
		}, "has two slots with room"},
		{"a key behind an empty slot", func(mem []byte, k *Counters) {
			find(mem, func(slot, key uint64) bool {
				if !live(slot, key) || m.core.cfg.probe(&m.core.t, keyBits{lo: key}).window == slot/2 {
					return false
				}
				for i := range uint64(32) {
					mem[at(m.core.cfg.probe(&m.core.t, keyBits{lo: key}).window*2)+i] = 0xff
				}
				return true
			})
		}, "cannot be found"},
		{"a slot lost", func(mem []byte, _ *Counters) {
			slot := find(mem, live)
			binary.LittleEndian.PutUint32(mem[at(slot):], ^uint32(1))
			binary.LittleEndian.PutUint32(mem[at(slot)+4:], ^uint32(0))
		}, "the counters say"},
		{"a miscounted value", func(_ []byte, k *Counters) { k.Removed++ }, "the counters say"},
		{"untold failures", func(_ []byte, k *Counters) { k.Failed++ }, "were not told"},
	} {
		mem, seen := slices.Clone(im.mem), m.core.counters.Seen
		c.damage(mem, &m.core.counters.Seen)
		must(t, errors.Join(m.core.mem.Write(nil, mem), m.core.counters.Set(nil)))
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Check says %v, want %q", c.name, err, c.want)
		}
		m.core.counters.Seen = seen
		must(t, errors.Join(m.core.mem.Write(nil, im.mem), m.core.counters.Set(nil)))
		must(t, m.Check())
	}
}

// All keys go, and others come, over and over, in the same memory.
func TestMultiBucketChurnInPlace(t *testing.T) {
	d := openFor(t, "cpu")
	for _, o := range []MultiBucketOptions{{}, {Options: table.Options{MaxBytes: 64 << 10}}} {
		s, m := bucketSubject(t, d, o)
		for round := range 30 {
			k := s.batch(2000, 300)
			for i := range k {
				k[i] -= uint64(1000 * round)
			}
			if full := s.insert(k); full != nil {
				t.Fatalf("round %d: %v", round, full)
			}
			s.delete(s.all())
			if round%3 == 0 {
				must(t, m.Grow(1000))
			}
			s.verify()
		}
		if st, err := m.Stats(); err != nil || st.Bytes > 200<<10 {
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// Of a GPU's 100 million pairs, or a million on the CPU: insert and look up, in pairs a second, with slots and windows of several sizes.
func BenchmarkMultiBucket(b *testing.B) {
	for _, name := range []string{"cpu", "cuda:0"} {
		d, err := device.Open(name)
		if err != nil {
			continue
		}
		n := 1_000_000
		if d.Info().CUDA() {
			n *= 100
		}
		for _, distinct := range []int{n, n / 8, n / 64} {
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
			for _, o := range []MultiBucketOptions{
				{}, {FindGroup: 1}, {Window: 4}, {Window: 4, FindGroup: 1}, {Bucket: 14}, {Bucket: 14, FindGroup: 1}, {Bucket: 1},
			} {
				o.Capacity, o.Keys = n, distinct
				m, err := NewMultiBucket[uint32, uint32](d, o)
				must(b, err)
				for what, run := range map[string]func() error{
					"insert": func() error { return errors.Join(m.Clear(), m.InsertOn(nil, k, v)) },
					"find": func() error {
						_, err := m.FindAllInto(nil, q, offsets, func(int) (device.Slice[uint32], error) { return out, nil })
						return err
					},
				} {
					which := fmt.Sprintf("bucket=%d,window=%d,group=%d", m.core.cfg.bucket, m.core.cfg.window, m.core.opts.FindGroup)
					b.Run(fmt.Sprintf("%s/%d/%s/%s", name, distinct, which, what), func(b *testing.B) {
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
				b.Logf("%s, %d keys, slots of %d: density %.2f, load %.2f", name, distinct, m.core.cfg.bucket, rho, float64(m.core.live())/float64(m.core.capacity()))
				must(b, errors.Join(err, m.Close()))
			}
			must(b, errors.Join(k.Free(), v.Free(), q.Free(), offsets.Free(), out.Free()))
		}
		must(b, d.Close())
	}
}

// Keys with long chains take slots of keys that were deleted, also at the beginning of a chain that a hint tells of: such a slot has room, and the next
// values find it.
func TestMultiBucketHintsBesideDeletes(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	const keys = 26
	d := openCPU(t)
	for seed := range uint64(testenv.SeedsOf(24, 3)) {
		rng := rand.New(rand.NewPCG(seed, 10))
		m, err := NewMultiBucket[uint32, uint32](d, MultiBucketOptions{Options: table.Options{Seed: seed + 1}})
		must(t, err)
		in := make([]uint32, keys)
		put := func(n int) {
			k := make([]uint32, n)
			for i := range k {
				k[i] = uint32(rng.IntN(keys))
				in[k[i]]++
			}
			must(t, m.Insert(k, sequence(0, n)))
		}
		put(40_000)
		for range 8 {
			gone := uint32(rng.IntN(keys))
			n, err := m.Delete([]uint32{gone}, nil)
			if err != nil || n != int(in[gone]) {
				t.Fatalf("seed %d: %d values of a key are deleted (%v), want %d", seed, n, err, in[gone])
			}
			in[gone] = 0
			for _, n := range []int{100, rng.IntN(3000)} {
				put(n)
				if err := m.Check(); err != nil {
					t.Fatalf("seed %d, after %d pairs more: %v", seed, n, err)
				}
			}
			counts := make([]uint32, keys)
			if must(t, m.Count(sequence(0, keys), counts)); !slices.Equal(counts, in) {
				t.Fatalf("seed %d: keys have %v values, want %v", seed, counts, in)
			}
		}
		must(t, m.Close())
	}
}
