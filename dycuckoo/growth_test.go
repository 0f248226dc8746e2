package dycuckoo

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// bounds tells whether the filled factor is between the bounds, and the memory as doc.go says.
func bounds(m *core) error {
	s, err := (&handle{m}).Stats()
	if err != nil {
		return err
	}
	if s.LoadFactor > m.opts.LoadFactor || s.LoadFactor < m.opts.Low && m.step > m.floor && !m.isStuck(int64(s.Len)) {
		return fmt.Errorf("%d of %d slots are filled (want %v to %v)", s.Len, s.Capacity, m.opts.Low, m.opts.LoadFactor)
	}
	if want := m.bytes(m.step); s.Bytes != want || int64(s.Capacity*m.cfg.pairBytes()) > want {
		return fmt.Errorf("%d bytes for %d slots (want %d)", s.Bytes, s.Capacity, want)
	}
	return nil
}

// TestHistories grows and shrinks tables at random, beside a Go map.
func TestHistories(t *testing.T) {
	d := open(t, "cpu")
	for seed := range uint64(testenv.Seeds(1000)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := Options{Options: table.Options{Seed: seed + 1}, Subtables: 4}
		if seed%4 == 1 {
			o.Low, o.LoadFactor = 0.5, 0.7
		}
		if seed%4 == 2 { // subtables of two sizes, to begin with
			o.Capacity = 1 + rng.IntN(1000)
		}
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		if seed%2 == 1 {
			m.core.rangedFrom = 1 << 10 // subtables double in place
		}
		model := map[uint32]uint32{}
		for op := range 12 {
			n := 1 + rng.IntN(1<<rng.IntN(11))
			keys, values := make([]uint32, n), make([]uint32, n)
			for i := range keys {
				keys[i], values[i] = rng.Uint32N(1500), uint32(op<<16+i)
			}
			if op%2 == 0 {
				must(t, m.Insert(keys, values))
				values, found := make([]uint32, n), make([]bool, n)
				must(t, m.Find(keys, values, found))
				for i, k := range keys { // one of the batch's values
					if !found[i] || values[i]>>16 != uint32(op) || keys[values[i]&0xffff] != k {
						t.Fatalf("seed %d: key %d has %#x, %t after its insert", seed, k, values[i], found[i])
					}
					model[k] = values[i]
				}
			} else {
				_, err := m.Delete(keys, nil)
				must(t, err)
				for _, k := range keys {
					delete(model, k)
				}
			}
			if err := errors.Join(m.Check(), bounds(m.core)); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, op, err)
			}
		}
		keys, values, err := m.All()
		must(t, err)
		for i, k := range keys {
			if v, ok := model[k]; !ok || v != values[i] {
				t.Fatalf("seed %d: key %d has value %#x (want %#x, %t)", seed, k, values[i], v, ok)
			}
		}
		if len(keys) != len(model) {
			t.Fatalf("seed %d: %d pairs (want %d)", seed, len(keys), len(model))
		}
		_, err = m.Delete(keys, nil)
		must(t, err)
		must(t, m.Shrink())
		if s, err := m.Stats(); err != nil || s.Bytes != m.core.bytes(0) {
			t.Fatalf("seed %d: an empty table keeps %d bytes, %v", seed, s.Bytes, err)
		}
		must(t, m.Close())
	}
}

// fillUp inserts new keys until some are refused, and tells how full the table is then; older pairs must be unharmed.
func fillUp(t *testing.T, d *device.Device, o Options) float64 {
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	defer m.Close()
	var all []uint32
	for next := uint32(1); ; {
		batch := make([]uint32, 500)
		for i := range batch {
			batch[i] = kernel.Fmix32(next)
			next++
		}
		err := m.Insert(batch, batch)
		full := (*table.FullError)(nil)
		if err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
		refused := map[int]bool{}
		if full != nil {
			for _, i := range full.Positions {
				refused[i] = true
			}
		}
		for i, k := range batch {
			if !refused[i] {
				all = append(all, k)
			}
		}
		if full == nil {
			continue
		}
		values, found := make([]uint32, len(all)), make([]bool, len(all))
		must(t, errors.Join(m.Find(all, values, found), m.Check()))
		for i, k := range all {
			if !found[i] || values[i] != k {
				t.Fatalf("%v: key %#x has %#x, %t", o, k, values[i], found[i])
			}
		}
		found = make([]bool, len(batch))
		must(t, m.Contains(batch, found))
		for i := range batch {
			if found[i] == refused[i] {
				t.Fatalf("%v: position %d is in: %t, and refused: %t", o, i, found[i], refused[i])
			}
		}
		s, err := m.Stats()
		must(t, err)
		if s.Len != len(all) {
			t.Fatalf("%v: %d pairs (want %d)", o, s.Len, len(all))
		}
		return s.LoadFactor
	}
}

// TestFillsWithoutGrowth fills tables that may not grow.
func TestFillsWithoutGrowth(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			sizes := [][2]int{{32, 2}, {64, 4}}
			if testenv.Long() {
				sizes = append(sizes, [][2]int{{32, 3}, {32, 4}, {64, 2}, {64, 3}, {128, 2}, {128, 3}, {128, 4}}...)
			}
			for _, x := range sizes {
				got := fillUp(t, d, Options{Options: table.Options{MaxBytes: 64 << 10}, Bucket: x[0], Subtables: x[1]})
				t.Logf("d = %d, buckets of %d bytes: filled to %.3f", x[1], x[0], got)
				if want := map[int]float64{32: 0.90, 64: 0.96, 128: 0.98}[x[0]]; got < want {
					t.Errorf("d = %d, buckets of %d bytes: filled to %.3f (want %v)", x[1], x[0], got, want)
				}
			}
		})
	}
}

// What doc.go says of how far tables fill is so, by its own table: they fill as far, and not much further.
func TestFillsAsDocSays(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the sources are not here")
	}
	must(t, err)
	d := open(t, "cpu")
	seeds := 2
	if testenv.Long() {
		seeds = 4
	}
	type filling struct {
		what string
		fill func(bytes int64, seed uint64) float64
	}
	for _, c := range testenv.Some([]filling{
		{"4+4 bytes, 8 slots a bucket", func(n int64, seed uint64) float64 {
			return firstRefusal(t, d, n, seed, Options{}, func(i uint64) uint32 { return uint32(i) * 0x9e3779b9 }, func(i uint64) uint32 { return uint32(i) })
		}},
		{"8+8 bytes, 4 slots", func(n int64, seed uint64) float64 {
			return firstRefusal(t, d, n, seed, Options{}, func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 }, func(i uint64) uint64 { return i })
		}},
		{"8+8 bytes, Bucket 128: 8 slots", func(n int64, seed uint64) float64 {
			return firstRefusal(t, d, n, seed, Options{Bucket: 128}, func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 }, func(i uint64) uint64 { return i })
		}},
		{"16+8 bytes, layout Wide: 7 slots", func(n int64, seed uint64) float64 {
			return firstRefusal(t, d, n, seed, Options{}, func(i uint64) [2]uint64 { return [2]uint64{i, i} }, func(i uint64) uint64 { return i })
		}},
		{"32+8 bytes, layout Wide: 3 slots", func(n int64, seed uint64) float64 {
			return firstRefusal(t, d, n, seed, Options{}, func(i uint64) [4]uint64 { return [4]uint64{i, i, i, i} }, func(i uint64) uint64 { return i })
		}},
	}, 2) {
		row := regexp.MustCompile(`//\t` + regexp.QuoteMeta(c.what) + ` +(\d+)% +(\d+)% +(\d+)%\n`).FindSubmatch(text)
		if row == nil {
			t.Errorf("doc.go has no row of %q", c.what)
			continue
		}
		for i, bytes := range []int64{64 << 10, 1 << 20, 16 << 20} {
			if bytes > 1<<20 && !testenv.Long() {
				continue
			}
			want, err := strconv.Atoi(string(row[i+1]))
			must(t, err)
			least := 1.0
			for seed := range uint64(seeds) {
				least = min(least, c.fill(bytes, seed+1))
			}
			if got := 100 * least; got < float64(want) || got > float64(want)+3.5 {
				t.Errorf("%s, at most %d bytes: filled to %.1f%%, doc.go says %d%%", c.what, bytes, got, want)
			}
		}
	}
}

// firstRefusal inserts new keys into a table that may not grow until one is refused, and tells how full it is then.
func firstRefusal[K comparable, V any](t *testing.T, d *device.Device, bytes int64, seed uint64, o Options, key func(i uint64) K, value func(i uint64) V) float64 {
	o.MaxBytes, o.Capacity, o.Seed = bytes, 1<<30, seed
	m, err := New[K, V](d, o)
	must(t, err)
	defer m.Close()
	for next := uint64(1); ; {
		keys := make([]K, max(64, m.core.capacity()/400))
		values := make([]V, len(keys))
		for i := range keys {
			keys[i], values[i] = key(next), value(next)
			next++
		}
		if err := m.Insert(keys, values); err != nil {
			var full *table.FullError
			if !errors.As(err, &full) {
				t.Fatal(err)
			}
			s, err := m.Stats()
			must(t, err)
			return s.LoadFactor
		}
	}
}

// countedParams are the parameters of the kernel below: Reads is the address of the sum of the buckets that look-ups of N keys read, and
// of the most that one did.
type countedParams struct {
	Table          Table
	Keys, N, Reads uint64
}

const countedCU = `
#include "config.h"
#include "dycuckoo.cuh"
using namespace dycuckoo;
WARPMAP_KERNEL(counted, countedParams) {
    tile<1, true> g;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        Search<config, false> s;
        s.begin(p.table, at<u32>(p.keys)[i]);
        u64 reads = 1; // a round reads one bucket
        while (s.round(p.table, g, true)) reads++;
        add(at<u64>(p.reads), reads);
        max_of(at<u64>(p.reads) + 1, reads);
    }
}
`

// TestTwoReadsAtMost counts the buckets that look-ups read, of keys that are in and of others.
func TestTwoReadsAtMost(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for balance, mean := range map[Balance]float64{HomeFirst: 1.35, Theorem1: 2} {
				m, err := New[uint32, uint32](d, Options{Balance: balance})
				must(t, err)
				defer m.Close()
				program := m.Program("counted", countedCU)
				program.Layouts = append(program.Layouts, countedParams{})
				module, err := d.Compile(program)
				must(t, err)
				k, err := device.KernelOf[countedParams](module, "counted")
				must(t, err)
				const n = 20000
				keys := make([]uint32, 2*n)
				for i := range keys {
					keys[i] = kernel.Fmix32(uint32(i) + 1)
				}
				must(t, m.Insert(keys[:n], keys[:n]))
				in, err := device.From(d, keys)
				must(t, err)
				defer in.Free()
				reads, err := device.From(d, []uint64{0, 0})
				must(t, err)
				defer reads.Free()
				for half := range 2 {
					must(t, reads.Fill(nil, 0))
					must(t, m.Use(nil, 0, func(table Table) error {
						return k.Launch(nil, m.core.grid(n), &countedParams{table, in.Addr() + uint64(4*n*half), n, reads.Addr()})
					}))
					got, err := reads.Host(nil)
					must(t, err)
					if got[1] > 2 || got[0] < n || float64(got[0]) > mean*n {
						t.Errorf("%v, half %d: %d look-ups read %d buckets, one of them %d (want %v on average, 2 at most)", balance, half, n, got[0], got[1], mean)
					}
				}
			}
		})
	}
}

// Theorem1 puts pairs into subtables with the paper's probabilities, whatever the layout, and whether Insert or Mixed
// brings them: in batch after batch, each subtable gets as many as nᵢ / C(mᵢ, 2) says. Those of one size are filled
// alike.
func TestTheorem1(t *testing.T) {
	d := open(t, "cpu")
	for _, layout := range []Layout{Packed, PackedLocked, Wide} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Seed: 3, Capacity: 20_000}, Layout: layout, Balance: Theorem1})
		must(t, err)
		defer m.Close()
		next := uint32(0)
		for batch := range 3 {
			before, err := m.Subtables()
			must(t, err)
			n, slots := 0, 0
			for _, s := range before {
				n, slots = n+s.Len, slots+s.Slots
			}
			keys := make([]uint32, slots*12/100)
			for i := range keys {
				next++
				keys[i] = kernel.Fmix32(next)
			}
			if batch%2 == 1 {
				ops := make([]table.Op, len(keys))
				for i := range ops {
					ops[i] = table.OpInsert
				}
				must(t, m.Mixed(ops, keys, keys, make([]uint32, len(keys)), make([]table.Status, len(keys))))
			} else {
				must(t, m.Insert(keys, keys))
			}
			after, err := m.Subtables()
			must(t, err)
			must(t, m.Check())
			weight := func(s SubtableStats) float64 {
				return float64(s.Slots) / (max(2, float64(s.Len)) * (max(2, float64(s.Len)) - 1))
			}
			for i := range before {
				share := 0.0
				for j := range before {
					if j != i {
						share += weight(before[i]) / (weight(before[i]) + weight(before[j])) / 6 // of the pairs of subtables
					}
				}
				got, want := float64(after[i].Len-before[i].Len), share*float64(len(keys))
				if math.Abs(got-want) > 4*math.Sqrt(want)+0.01*want { // a few find their bucket full
					t.Errorf("%v, batch %d: %v pairs of %d went into subtable %d, which had %d in %d slots (want %.0f)", layout, batch, got, len(keys), i, before[i].Len, before[i].Slots, want)
				}
				for j := range i {
					if a, b := after[i], after[j]; a.Slots == b.Slots && math.Abs(a.FilledFactor-b.FilledFactor) > 0.03 {
						t.Errorf("%v, batch %d: subtables of one size are filled to %.3f and %.3f", layout, batch, a.FilledFactor, b.FilledFactor)
					}
				}
			}
		}
	}
}

// At high loads the locked layouts fill subtables as the one without locks does: none is full long before the others.
func TestTheorem1AtHighLoad(t *testing.T) {
	testenv.ByTurns(t)
	d := open(t, "cpu")
	fill := map[Layout][]SubtableStats{}
	for _, layout := range []Layout{Packed, PackedLocked, Wide} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Seed: 3, Capacity: 20_000}, Layout: layout, Balance: Theorem1})
		must(t, err)
		defer m.Close()
		keys := make([]uint32, 20_000)
		for i := range keys {
			keys[i] = kernel.Fmix32(uint32(i))
		}
		must(t, m.Insert(keys, keys))
		fill[layout], err = m.Subtables()
		must(t, err)
		allIn(t, m, keys)
	}
	for i, locked := range fill[PackedLocked] {
		if free := fill[Packed][i]; math.Abs(locked.FilledFactor-free.FilledFactor) > 0.02 {
			t.Errorf("subtable %d is filled to %.3f under locks, and to %.3f without", i, locked.FilledFactor, free.FilledFactor)
		}
	}
	for i, s := range fill[Wide] {
		if s.FilledFactor > 0.9 { // the whole is filled to 0.74
			t.Errorf("wide: subtable %d is filled to %.3f", i, s.FilledFactor)
		}
	}
}

// An empty table makes room for a large batch at once, without doubling; and not for copies of keys.
func TestGrowsAtOnce(t *testing.T) {
	d := open(t, "cpu")
	for _, distinct := range []int{209_000, 1000} { // 209,000 are far from what any size ends at
		m, err := New[uint32, uint32](d, Options{})
		must(t, err)
		defer m.Close()
		if distinct > 1000 {
			m.core.kernel.split = device.Kernel[slotsParams]{} // a doubling is an error
		}
		keys := make([]uint32, 209_000)
		for i := range keys {
			keys[i] = kernel.Fmix32(uint32(i % distinct))
		}
		must(t, m.Insert(keys, keys))
		if fits := m.core.stepFor(int64(distinct)); distinct > 1000 && m.core.step != fits {
			t.Errorf("%d keys: step %d (want %d)", distinct, m.core.step, fits)
		}
		must(t, bounds(m.core))
		allIn(t, m, keys[:distinct])
	}
}

// TestTilt: each subtable is the home of as many keys as its share of the slots, and a table that has grown since may be tilted anew.
func TestTilt(t *testing.T) {
	d := open(t, "cpu")
	for n := 2; n <= maxSubtables; n += 2 {
		for larger := range n {
			c := config{keyBytes: 4, valueBytes: 4, layout: Packed, bucketBytes: 64, subtables: n}
			homes, pairs, sample := make([]int, n), map[[2]int]int{}, 200000
			for i := range sample {
				h := c.home(&Table{Seed: 1, Tilt: tilt(n, larger)}, bytesOf(uint64(i), 4))
				homes[h.home]++
				pairs[[2]int{min(h.home, h.other), max(h.home, h.other)}]++
			}
			for i, got := range homes {
				size := 1
				if i < larger {
					size = 2
				}
				if want := float64(sample*size) / float64(n+larger); float64(got) < 0.97*want || float64(got) > 1.03*want {
					t.Errorf("subtable %d of %d, %d of which are larger, is the home of %d keys (want %.0f)", i, n, larger, got, want)
				}
			}
			for p, got := range pairs {
				if want := float64(sample) / float64(n*(n-1)/2); float64(got) < 0.9*want || float64(got) > 1.1*want {
					t.Errorf("of %d subtables, %v have %d keys (want %.0f)", n, p, got, want)
				}
			}
		}
	}
	for _, o := range []Options{{}, {Subtables: 2, Bucket: 32}} { // compiled for other tests, too
		for grown := range 4 {
			o.Capacity = 3000
			m, err := New[uint32, uint32](d, o)
			must(t, err)
			keys := make([]uint32, 3000)
			for i := range keys {
				keys[i] = kernel.Fmix32(uint32(i))
			}
			must(t, m.Insert(keys, keys))
			was := m.core.tilt
			must(t, m.Grow(int(m.core.limitAt(m.core.step+step(grown)))))
			must(t, m.core.frame.Writing(nil, m.core.refreshFilters))
			if grown%m.core.d() > 0 && m.core.tilt == was {
				t.Fatalf("the tilt is %v, and was before %d steps", m.core.tilt, grown)
			}
			found := make([]bool, len(keys))
			must(t, errors.Join(m.Check(), m.Contains(keys, found)))
			for i, ok := range found {
				if !ok {
					t.Fatalf("%v, %d steps: key %#x is not found", o, grown, keys[i])
				}
			}
			must(t, m.Close())
		}
	}
}

// crowd inserts over stress, by batches in which most new keys have to move pairs on and all keys that are in get other values meanwhile, and shrinks:
// pairs and the model must agree.
func crowd(d *device.Device, o Options) (err error) {
	o.MaxBytes = 4 << 10
	m, err := New[uint32, uint32](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	model := map[uint32]uint32{}
	put := func(keys, values []uint32) error {
		err := m.Insert(keys, values)
		full := (*table.FullError)(nil)
		if err != nil && !errors.As(err, &full) {
			return err
		}
		for i, k := range keys {
			model[k] = values[i]
		}
		if full != nil {
			for _, i := range full.Positions {
				delete(model, keys[i])
			}
		}
		return nil
	}
	next := uint32(0)
	batch := func(round uint32, fresh int) (keys, values []uint32) {
		old := slices.Sorted(maps.Keys(model))
		for i := range max(fresh, len(old)) {
			if i < fresh {
				next++
				keys = append(keys, next*0x9e3779b1, next*0x9e3779b1)
			}
			if i < len(old) {
				keys = append(keys, old[i])
			}
		}
		for _, k := range keys {
			values = append(values, k^round)
		}
		return keys, values
	}
	check := func() error {
		if err := m.Check(); err != nil {
			return err
		}
		keys, values, err := m.All()
		if err == nil && len(keys) != len(model) {
			err = fmt.Errorf("%d pairs (want %d)", len(keys), len(model))
		}
		for i, k := range keys {
			if want, in := model[k]; err == nil && (!in || values[i] != want) {
				err = fmt.Errorf("key %#x is in, with %#x (want %#x, %v)", k, values[i], want, in)
			}
		}
		return err
	}
	remove := func(of int) error {
		gone := slices.Sorted(maps.Keys(model))
		gone = gone[:len(gone)/of]
		for _, k := range gone {
			delete(model, k)
		}
		_, err := m.Delete(gone, nil)
		return err
	}
	for round := range uint32(6) {
		if err := errors.Join(put(batch(round, 96)), check(), remove(4)); err != nil {
			return err
		}
	}
	if err := remove(2); err != nil {
		return err
	}
	return errors.Join(m.Shrink(), check())
}

// TestUnderStress evicts under stress; and finds every defect that is planted.
func TestUnderStress(t *testing.T) {
	layouts := []Options{{}, {InsertGroup: 4}, {Layout: PackedLocked, Subtables: 2}, {InsertGroup: 2, Balance: Theorem1}, {Layout: Wide, Subtables: 3}}
	t.Run("sound", func(t *testing.T) {
		seeds := 100
		if !testenv.Long() {
			seeds = len(layouts)
		}
		for seed := range uint64(seeds) {
			each, mode := uint64(len(layouts)), device.WithStress
			if seed/each%2 == 1 {
				mode = device.WithMemoryModel
			}
			if err := crowd(open(t, "cpu", mode(seed)), layouts[seed%each]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
	kernels, header := kernelsCU, dycuckooCUH
	defer func() { kernelsCU, dycuckooCUH = kernels, header }()
	defects := []struct {
		name     string
		text     *string
		o        Options
		first    uint64 // of its seeds: those before are known to find nothing
		old, now string
	}{
		{"a dropped victim", &dycuckooCUH, Options{}, 0, "            if (cas(A::word_at(x.to, x.room % FREED), free, w) == free) {", "            if (cas(A::word_at(x.to, x.room % FREED), free, w), true) {"},
		{"a victim that is chosen without the lock", &dycuckooCUH, Options{}, 32, "        if (!lock.take(waited)) {\n            pause();\n            waited = true;\n            // Where", "        if (false) {\n            // Where"},
		{"a value that does not follow its pair", &dycuckooCUH, Options{}, 0, "                    cas(A::word_at(x.to, x.room % FREED), w, was);", "                    {}"},
		{"a value for a pair that has left", &dycuckooCUH, Options{Bucket: 32}, 0, "            if (!REPLACE || A::replace(address, 0, slot, seen, h.stored, v)) return false;", "            if (REPLACE) A::replace(address, 0, slot, seen, h.stored, v);\n            return false;"},
		{"a residual inserted twice", &kernelsCU, Options{}, 0, "                if (filled < C::SLOTS) {\n                    Cells<C>::put(to, filled++, k, v);\n                    continue;\n                }", "                if (filled < C::SLOTS) {\n                    Cells<C>::put(to, filled++, k, v);\n                    if (filled < C::SLOTS) continue;\n                }"},
		{"a bucket read before the lock is taken", &dycuckooCUH, Options{Layout: PackedLocked}, 0, "        bool done = act(t, mine, other);", "        locks.release();\n        bool done = act(t, mine, other);"},
		{"no mark of a pair that goes away", &dycuckooCUH, Options{}, 0, "        or_of(at<u32>(t.sub[home].filter) + bit / 32, 1u << (bit & 31));", ""},
	}
	for _, c := range defects { // those that short runs do not plant, too
		if n := strings.Count(*c.text, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
	for _, c := range testenv.Some(defects, 1) {
		t.Run(c.name, func(t *testing.T) {
			kernelsCU, dycuckooCUH = kernels, header
			*c.text = strings.Replace(*c.text, c.old, c.now, 1)
			const seeds = 300
			for seed := c.first; seed < c.first+seeds; seed++ {
				if err := crowd(open(t, "cpu", device.WithStress(seed)), c.o); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	d := open(t, "cpu")
	for _, o := range []Options{
		{Subtables: 1}, {Subtables: 9}, {Bucket: 48}, {Layout: 7}, {Balance: -1}, {FindGroup: 3}, {Low: 0.7}, {Low: -1}, {InsertGroup: 64},
		{Options: table.Options{MaxBytes: 100}}, {Options: table.Options{LoadFactor: 0.3}, Low: 0.25},
	} {
		if m, err := New[uint32, uint32](d, o); err == nil {
			m.Close()
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := New[[16]byte, uint32](d, Options{Layout: Packed}); err == nil {
		t.Error("packed keys of 16 bytes: no error")
	}
	if _, err := New[[12]byte, uint32](d, Options{}); err == nil {
		t.Error("keys of 12 bytes: no error")
	}
}

// Options that do not exist have names, too.
func TestNamesOfOptions(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"auto": Auto, "wide": Wide, "Layout(-1)": Layout(-1), "Layout(4)": Wide + 1,
		"home": HomeFirst, "theorem1": Theorem1, "Balance(-1)": Balance(-1), "Balance(2)": Theorem1 + 1,
		"lane-by-lane": LaneByLane, "voter": Voter, "Coordination(-1)": Coordination(-1), "Coordination(2)": Voter + 1,
	} {
		if got.String() != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A halving that is taken back leaves the counts of all subtables right.
func TestHalvingIsTakenBack(t *testing.T) {
	d := open(t, "cpu")
	back, kinds := 0, 3
	if !testenv.Long() {
		kinds = 2 // each is other kernels
	}
	for seed := range uint64(12) {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{LoadFactor: 1, Seed: seed + 1}, Bucket: 32, Subtables: 2 + int(seed)%kinds})
		must(t, err)
		must(t, m.Grow(700))
		keys := make([]uint32, m.core.limitAt(m.core.step-1))
		for i := range keys {
			keys[i] = kernel.Fmix32(uint32(i) + 1)
		}
		must(t, errors.Join(m.Insert(keys, keys), m.Shrink(), m.Check()))
		if m.core.stuck > 0 {
			back++
		}
		found := make([]bool, len(keys))
		must(t, m.Contains(keys, found))
		for i, f := range found {
			if !f {
				t.Fatalf("seed %d: key %d is lost", seed, i)
			}
		}
		_, err = m.Delete(keys, nil)
		must(t, errors.Join(err, m.Check()))
		if s, err := m.Stats(); err != nil || s.Bytes != m.core.bytes(0) {
			t.Errorf("seed %d: an empty table keeps %d bytes, %v", seed, s.Bytes, err)
		}
		must(t, m.Close())
	}
	if back == 0 {
		t.Error("no halving was taken back: this tests nothing")
	}
}

// Tables of few subtables with small buckets halve, too: there the other bucket of a residual is often full of pairs that cannot be moved on.
func TestHalvesAsItMust(t *testing.T) {
	d := open(t, "cpu")
	keys := make([]uint32, 100_000)
	if !testenv.Long() {
		keys = keys[:25_000]
	}
	for i := range keys {
		keys[i] = kernel.Fmix32(uint32(i) + 1)
	}
	for _, subtables := range []int{2, 3} {
		m, err := New[uint32, uint32](d, Options{Bucket: 32, Subtables: subtables})
		must(t, err)
		must(t, m.Insert(keys, keys))
		for left := keys; len(left) > 1000; {
			n := len(left) / 20
			_, err := m.Delete(left[:n], nil)
			must(t, err)
			left = left[n:]
			if int64(len(left)) < m.core.leastAt(m.core.step) {
				t.Fatalf("%d subtables, %d pairs: no halving below %d pairs", subtables, len(left), m.core.leastAt(m.core.step))
			}
			found := make([]bool, len(left))
			must(t, errors.Join(m.Check(), m.Contains(left, found)))
			if i := slices.Index(found, false); i >= 0 {
				t.Fatalf("%d subtables: key %d is lost", subtables, i)
			}
		}
		must(t, m.Close())
	}
}

// Counts that are reset keep what operations have changed since they were seen.
func TestResetKeepsCounts(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}})
	must(t, err)
	defer m.Close()
	keys := make([]uint32, 2000)
	for i := range keys {
		keys[i] = uint32(i)
	}
	must(t, m.Insert(keys, keys))
	_, err = m.Delete(keys[:500], nil)
	must(t, err)
	must(t, m.core.frame.Writing(nil, m.core.reset))
	if n, err := m.Len(); err != nil || n != 1500 {
		t.Errorf("%d pairs (want 1500), %v", n, err)
	}
	must(t, m.Check())
}

// Of a mixed batch of several parts, every insert that is refused for good gets the zero result.
func TestRefusedInsertsOfAllParts(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 16 << 10}})
	must(t, err)
	defer m.Close()
	next := uint32(0)
	fresh := func() uint32 { next++; return kernel.Fmix32(next) }
	for full := false; !full; {
		keys := make([]uint32, 500)
		for i := range keys {
			keys[i] = fresh()
		}
		full = errors.As(m.Insert(keys, keys), new(*table.FullError))
	}
	in, _, err := m.All()
	must(t, err)
	n := firstBatch + 4000
	ops, keys, values, results := make([]table.Op, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
	for i := range ops {
		ops[i], keys[i], values[i], results[i] = table.OpFind, fresh(), 7, 9
		switch {
		case i < 100 || i >= firstBatch+400:
			ops[i] = table.OpInsert
		case i < 600:
			ops[i], keys[i] = table.OpDelete, in[i]
		}
	}
	full := (*table.FullError)(nil)
	if err := m.Mixed(ops, keys, values, results, nil); !errors.As(err, &full) {
		t.Fatalf("%v: want a full table", err)
	}
	for _, i := range full.Positions {
		if results[i] != 0 {
			t.Fatalf("position %d of %d that were refused has the result %d", i, len(full.Positions), results[i])
		}
	}
	must(t, m.Check())
}

// inPlace fills a table by batches until its subtables have doubled often, most in place, and looks for all pairs.
func inPlace[K uint32 | uint64, V any](t *testing.T, d *device.Device, o Options, value func(K) V, equal func(a, b V) bool) {
	t.Helper()
	m, err := New[K, V](d, o)
	must(t, err)
	defer m.Close()
	m.core.rangedFrom = 4 << 10
	if d.Info().CUDA() {
		m.core.rangedFrom = 2 << 20
	}
	var keys []K
	stayed := 0
	for range 10 {
		var fresh []K
		var values []V
		for range max(3000, int(m.core.rangedFrom)/8) {
			k := K(uint64(len(keys)+len(fresh)) * 0x9e3779b97f4a7c15)
			fresh, values = append(fresh, k), append(values, value(k))
		}
		was := m.core.subs
		must(t, m.Insert(fresh, values))
		keys = append(keys, fresh...)
		for i := range m.core.d() {
			if m.core.subs[i].Buckets > was[i].Buckets && m.core.subs[i].Slots == was[i].Slots {
				stayed++
				if m.core.subs[i].Values != was[i].Values {
					t.Errorf("subtable %d: its values moved", i)
				}
			}
		}
	}
	if stayed == 0 {
		t.Errorf("%v: no subtable doubled in place", o)
	}
	must(t, m.Check())
	values, found := make([]V, len(keys)), make([]bool, len(keys))
	must(t, m.Find(keys, values, found))
	for i, k := range keys {
		if !found[i] || !equal(values[i], value(k)) {
			t.Fatalf("key %x: %v, %v", k, values[i], found[i])
		}
	}
	n, err := m.Delete(keys[100:], nil)
	if err != nil || n != len(keys)-100 {
		t.Errorf("%d deleted, %v", n, err)
	}
	must(t, errors.Join(m.Shrink(), m.Check()))
	if list, err := m.Subtables(); err != nil || list[0].Bytes > 64<<10 {
		t.Errorf("after Shrink: %+v, %v", list, err)
	}
}

func TestDoublesInPlace(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			inPlace(t, d, Options{}, func(k uint32) uint32 { return ^k }, func(a, b uint32) bool { return a == b })
			inPlace(t, d, Options{Subtables: 2, Layout: Wide}, func(k uint64) [2]uint64 { return [2]uint64{k, ^k} }, func(a, b [2]uint64) bool { return a == b })
			if live := d.Live(); len(live) > 0 {
				t.Errorf("still there: %v", live)
			}
		})
	}
}

// A Low that is nearly too high for LoadFactor does not make a table grow and shrink by turns.
func TestHighLow(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Subtables: 2, Bucket: 32, Low: 0.565})
	must(t, err)
	defer m.Close()
	keys := make([]uint32, 20000)
	for i := range keys {
		keys[i] = kernel.Fmix32(uint32(i))
	}
	n := int(m.core.limitAt(18)) - 5
	must(t, m.Insert(keys[:n], keys[:n]))
	must(t, m.Shrink())
	was, changes := m.core.step, 0
	seen := func() {
		if m.core.step != was {
			was = m.core.step
			changes++
		}
	}
	for range 10 {
		must(t, m.Insert(keys[n:n+20], keys[n:n+20]))
		seen()
		_, err := m.Delete(keys[n:n+20], nil)
		must(t, err)
		seen()
	}
	if changes > 1 {
		t.Errorf("the table changed its size %d times for the same 20 keys", changes)
	}
}

// Use says what keeps the table from making the room that is asked for, and gives back what it took for that.
func TestUseWithoutRoom(t *testing.T) {
	d := open(t, "cpu", device.WithMemory(32<<20))
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	defer m.Close()
	must(t, m.Insert([]uint32{1, 2}, []uint32{3, 4}))
	before, err := m.Stats()
	must(t, err)
	for room, memory := range map[int]bool{8 << 20: true, 1 << 45: false, math.MaxInt: false} {
		err := m.Use(nil, room, func(Table) error { t.Errorf("room for %d pairs", room); return nil })
		if err == nil || device.IsOutOfMemory(err) != memory {
			t.Errorf("room for %d pairs: %v", room, err)
		}
		if after, err := m.Stats(); err != nil || after.Bytes > before.Bytes {
			t.Errorf("room for %d pairs: %d bytes, want %d as before; %v", room, after.Bytes, before.Bytes, err)
		}
	}
	must(t, m.Check())
}

// A table that is as large as numbers of buckets allow says so, and not that memory is short. It fills what it has, and
// is not laid anew in a larger size.
func TestLargestTable(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Seed: 1}})
	must(t, err)
	defer m.Close()
	m.core.lastStep = 20 // as if numbers had fewer bits
	keys := make([]uint32, 2*m.core.slotsAt(20))
	for i := range keys {
		keys[i] = kernel.Fmix32(uint32(i))
	}
	err = m.Insert(keys, keys)
	full := (*table.FullError)(nil)
	if !errors.As(err, &full) || !errors.Is(err, errLargest) || device.IsOutOfMemory(err) {
		t.Fatalf("%.300v, want %v", err, errLargest)
	}
	const want = "a table has no more than 4 subtables of 128 buckets, for the numbers of buckets have 32 bits"
	if text := err.Error(); !strings.Contains(text, want) {
		t.Errorf("%.300s, want %s", text, want)
	}
	n, err := m.Len()
	if named := len(full.Positions); err != nil || n != len(keys)-named || n < int(m.core.capacity()*9/10) {
		t.Errorf("%d pairs are in, %d of %d are named: %v", n, named, len(keys), err)
	}
	if m.core.step != 20 {
		t.Errorf("step %d", m.core.step)
	}
	must(t, m.Check())
	if err := m.Grow(len(keys)); err == nil || device.IsOutOfMemory(err) || !strings.Contains(err.Error(), "32 bits") {
		t.Errorf("Grow: %v", err)
	}
	m.core.lastStep = 19 // so that a rebuild finds no step
	must(t, m.core.frame.Writing(nil, func(st *device.Stream) error {
		if why, err := m.core.rehash(st); err != nil || !errors.Is(why, errLargest) {
			t.Errorf("rehash: %v, %v", why, err)
		}
		return nil
	}))
	must(t, m.Check())
}

func TestRoomForMoreThanThereCanBe(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 1 << 45, MaxBytes: 1 << 20}})
	if err != nil {
		t.Fatalf("as far as MaxBytes allows: %v", err)
	}
	defer m.Close()
	if err := m.Grow(1 << 45); err == nil {
		t.Error("it grew for 2^45 pairs")
	}
	if _, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 1 << 45}}); err == nil || device.IsOutOfMemory(err) {
		t.Errorf("2^45 pairs: %v", err)
	}
}

// Batches that bring no pair make nothing grow, whatever came before.
func TestNothingNewGrowsNothing(t *testing.T) {
	m, err := New[uint32, uint32](open(t, "cpu"), Options{})
	must(t, err)
	defer m.Close()
	sequence := func(from, n int) []uint32 {
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = uint32(from + i)
		}
		return keys
	}
	size := func() int64 { return m.core.capacity() }
	for at, n := 0, 1000; n < 100_000; at, n = at+n, 2*n {
		fresh := sequence(at, n)
		must(t, m.Insert(fresh, fresh))
		was, known := size(), sequence(0, at+n)
		must(t, m.Insert(known, known))
		if size() != was {
			t.Errorf("%d keys that are in brought %d slots to %d", len(known), was, size())
		}
		fresh = sequence(at+n, 1)
		must(t, m.Insert(fresh, fresh))
		was = size()
		status := make([]table.Status, len(known))
		must(t, m.Mixed(make([]table.Op, len(known)), known, known, make([]uint32, len(known)), status))
		if size() != was {
			t.Errorf("%d look-ups brought %d slots to %d", len(known), was, size())
		}
	}
}

// Where all rows find room by one step, an insert is one launch; where some do not, pairs are moved on along paths as well, behind a launch that left
// rows at once.
func TestRefinesWhatIsRefused(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{LoadFactor: 1, MaxBytes: 64 << 10}})
	must(t, err)
	defer m.Close()
	must(t, m.Grow(int(m.core.slotsAt(m.core.mostSteps()))))
	refined := 0
	for i, refused := uint32(0), false; !refused; i++ {
		keys := make([]uint32, 200)
		for j := range keys {
			keys[j] = kernel.Fmix32(200*i + uint32(j))
		}
		was, moved, atOnce := d.Launches(), m.core.counters.Seen.Moved, m.core.refines
		err := m.Insert(keys, keys)
		if refused = errors.As(err, new(*table.FullError)); !refused {
			must(t, err)
		} else {
			continue
		}
		want := uint64(1)
		if atOnce || m.core.refines {
			want = 2
		}
		if n := d.Launches() - was; n != want {
			t.Fatalf("batch %d: %d launches (want %d)", i, n, want)
		}
		if m.core.counters.Seen.Moved > moved {
			refined++
			if !m.core.refines {
				t.Errorf("batch %d: a table that has moved pairs along paths does not look for the next at once", i)
			}
		} else if m.core.refines && m.core.live() < m.core.capacity()/2 {
			t.Errorf("batch %d: %d of %d slots are taken, and rows are refused", i, m.core.live(), m.core.capacity())
		}
	}
	if refined == 0 {
		t.Error("no batch had paths to look for")
	}
	must(t, m.Check())
}
