package cuckoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/warpmap/warpmap/table/snapshot"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openCPU(t testing.TB, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	testenv.Require(t, "cpu", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// newFilter makes a filter that the test's end closes.
func newFilter[K any](t testing.TB, d *device.Device, o Options) *Filter[K] {
	t.Helper()
	f, err := New[K](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func randomKeys(seed uint64, n int) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 11))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = rng.Uint64()
	}
	return keys
}

// place is where a key's tag goes: the Go twin of Place in cuckoo.cuh. The key is that which tabletest.KeysOf makes of
// x.
func (f *filter) place(x uint64) (window int64, bucket, tag uint32) {
	var h uint64
	switch f.cfg.keyBytes {
	case 4:
		h = kernel.Hash64(f.cfg.hash, x&(1<<32-1), f.t.Seed)
	case 8:
		h = kernel.Hash64(f.cfg.hash, x, f.t.Seed)
	default:
		h = kernel.Hash64(f.cfg.hash, x>>32<<32, f.t.Seed)
		h = kernel.Hash64(f.cfg.hash, h^x&(1<<32-1), f.t.Seed)
	}
	random := h * 0x9e3779b97f4a7c15
	bucket = uint32(random >> 32 * uint64(f.t.Buckets) >> 32)
	random = (random ^ random>>32) * 0xff51afd7ed558ccd
	tag = 1 + uint32(random>>32*uint64(f.cfg.tags())>>32)
	base := kernel.Reduce(h, f.t.Windows)
	return int64(base<<f.t.Spent | uint64(tag)>>(f.cfg.tag-int(f.t.Spent))), bucket, tag
}

// pair is what two keys have in common that a filter cannot tell apart, but for their first buckets.
type pair struct {
	window      int64
	bucket, tag uint32 // the lower of its two buckets
}

func (f *filter) pair(x uint64) pair {
	w, b, tag := f.place(x)
	return pair{w, min(b, f.geometry.other(b, tag)), tag}
}

// expect is an error where the filter does not hold exactly a tag for each of these keys, with every mark by which a
// key is found, or where Check finds something.
func (f *filter) expect(keys []uint64) error {
	mem, err := f.mem.Host(nil)
	if err != nil {
		return err
	}
	m := &image{f.cfg, f.geometry, mem}
	count := map[pair]int{}
	for w := range m.all() {
		for b := range uint32(m.buckets) {
			for _, tag := range m.bucket(w, b) {
				if tag != 0 {
					count[pair{w, min(b, m.other(b, tag)), tag}]++
				}
			}
		}
	}
	for i, x := range keys {
		p := f.pair(x)
		if count[p]--; count[p] < 0 {
			return fmt.Errorf("key %#x, number %d: a tag is missing of %+v", x, i, p)
		}
		has := func(b, tag uint32) bool {
			for _, t := range m.bucket(p.window, b) {
				if t == tag {
					return true
				}
			}
			return false
		}
		if w, b, tag := f.place(x); !has(b, tag) && !(m.marked(w, b, tag) && has(m.other(b, tag), tag)) {
			return fmt.Errorf("key %#x, number %d: no mark leads from bucket %d of window %d to tag %#x", x, i, b, w, tag)
		}
	}
	for p, n := range count {
		if n != 0 {
			return fmt.Errorf("%d tags too many of %+v", n, p)
		}
	}
	return (&handle{f}).Check()
}

// refusals gives the positions that an insert names.
func refusals(t testing.TB, err error) []int {
	t.Helper()
	var full *table.FullError
	if !errors.As(err, &full) {
		must(t, err)
		return nil
	}
	return full.Positions
}

// Filters take keys beyond the load that they are made for: an insert looks far for room. With a quarter of the looks,
// 9 to 15 of these keys find none with tags of 8 bits. As it is, one did once: which it is depends on the order in which
// lanes come.
func TestLoadHasSlack(t *testing.T) {
	d := openCPU(t)
	for _, tag := range []int{8, 12, 16} {
		const n = 2_000_000
		f := newFilter[uint64](t, d, Options{FilterOptions: table.FilterOptions{Capacity: n, Seed: 7}, TagBits: tag})
		keys := randomKeys(1, int(f.filter.slots()*975/1000))
		if refused := refusals(t, f.Insert(keys)); len(refused) > 3 {
			t.Errorf("tags of %d bits: %d of %d keys found no room in %d slots", tag, len(refused), len(keys),
				f.filter.slots())
		}
	}
}

// Filters of all widths take keys up to the load that they are made for, in windows of which none is fuller than it can
// be; keys that are in are found, and others as often as Stats says, which is no more than the options allow.
func TestLoad(t *testing.T) {
	const asked = 200_000
	for _, c := range []struct {
		tag          int
		rate, expect float64 // by the simulation that doc.go tells of
	}{{8, 0.06, 0.0345}, {12, 0.005, 0.0031}, {16, 0.0005, 0.000264}} {
		for _, n := range testenv.Some([]int{30_000, 500_000}, 1) {
			t.Run(fmt.Sprintf("%d bits, %d keys", c.tag, n), func(t *testing.T) {
				d := openCPU(t)
				o := Options{FilterOptions: table.FilterOptions{Capacity: n, FalsePositives: c.rate, Seed: 7}}
				f := newFilter[uint64](t, d, o)
				if f.TagBits() != c.tag || f.Capacity() < n || float64(f.Capacity()) > 1.02*float64(n) {
					t.Fatalf("%v for %d keys, made for %d", f, f.Capacity(), n)
				}
				keys := randomKeys(1, n)
				must(t, f.Insert(keys[:n/2]))
				must(t, f.Insert(keys[n/2:]))
				must(t, f.filter.expect(keys))
				found := make([]bool, max(n, asked))
				must(t, f.Contains(keys, found[:n]))
				if frame.Count(found[:n]) != n {
					t.Fatalf("%d of %d keys are in", frame.Count(found[:n]), n)
				}
				must(t, f.Contains(randomKeys(2, asked), found[:asked]))
				rate := float64(frame.Count(found[:asked])) / asked
				s, err := f.Stats()
				must(t, err)
				if noise := 5 * math.Sqrt(s.Rate/asked); math.Abs(rate-s.Rate) > noise || s.Rate > c.rate ||
					math.Abs(s.Rate-c.expect) > 0.03*c.expect {
					t.Errorf("false positives: %v, Stats says %v, the simulation %v", rate, s.Rate, c.expect)
				}
				if load := float64(s.BitsSet) / float64(s.Bits); load < 0.93 || s.Keys != float64(n) {
					t.Errorf("a load of %v: %+v", load, s)
				}
				// Half of the keys are taken out: the others stay, and as many find room again.
				n, err := f.Delete(keys[:n/2], nil)
				if err != nil || n != len(keys)/2 {
					t.Fatal(n, err)
				}
				must(t, f.filter.expect(keys[n:]))
				more := randomKeys(3, n)
				must(t, f.Insert(more))
				must(t, f.filter.expect(append(more, keys[n:]...)))
			})
		}
	}
}

// The formula of the highest rate: with all marks set, look-ups read both buckets of each key.
func TestWorstRate(t *testing.T) {
	const n, asked = 30_000, 200_000
	for _, tag := range tagWidths {
		d := openCPU(t)
		f := newFilter[uint32](t, d, Options{FilterOptions: table.FilterOptions{Capacity: n, Seed: 3}, TagBits: tag})
		var all []uint64
		must(t, f.Words(context.Background(), func(words []uint64) error {
			for i := range words {
				slot := i % f.filter.cfg.words()
				all = append(all, ^(^uint64(0) >> f.filter.cfg.marksIn(slot)))
			}
			return nil
		}))
		must(t, f.SetWords(0, all))
		must(t, f.Insert(tabletest.KeysOf[uint32](randomKeys(1, n))))
		found := make([]bool, asked)
		must(t, f.Contains(tabletest.KeysOf[uint32](randomKeys(2, asked)), found))
		s, err := f.Stats()
		must(t, err)
		rate, want := float64(frame.Count(found))/asked, f.filter.cfg.worstRate(0)
		if noise := 5 * math.Sqrt(want/asked); rate > want+noise || s.Rate > want || s.Rate < 0.95*want || math.Abs(rate-s.Rate) > noise {
			t.Errorf("tags of %d bits: %v are told to be in, Stats says %v, at most %v may be", tag, rate, s.Rate, want)
		}
	}
}

// One key many times, and few keys many times: as many are in as two buckets have slots, each position that is not is
// named, and no other key is harmed.
func TestEqualKeys(t *testing.T) {
	for _, tag := range tagWidths {
		d := openCPU(t)
		f := newFilter[uint64](t, d, Options{FilterOptions: table.FilterOptions{Capacity: 3000, Seed: 5}, TagBits: tag})
		others, slots := randomKeys(1, 1000), f.filter.cfg.slots()
		must(t, f.Insert(others))
		same := make([]uint64, 200)
		for i := range same {
			same[i] = 77
		}
		refused := refusals(t, f.Insert(same))
		if in := len(same) - len(refused); in > 2*slots || in < 2*slots-slots/2 || !slices.IsSorted(refused) {
			t.Fatalf("one key is in %d times: two buckets have %d slots", in, 2*slots)
		}
		in := slices.Concat(others, same[len(refused):])
		must(t, f.filter.expect(in))
		n, err := f.Delete(same, nil)
		if err != nil || n != len(same)-len(refused) {
			t.Errorf("%d of %d are taken out, %v", n, len(same)-len(refused), err)
		}
		must(t, f.filter.expect(others))
		few := make([]uint64, 1000)
		for i := range few {
			few[i] = uint64(i % 5)
		}
		refused = refusals(t, f.Insert(few))
		kept := slices.Clone(others)
		for i, k := range few {
			if _, is := slices.BinarySearch(refused, i); !is {
				kept = append(kept, k)
			}
		}
		must(t, f.filter.expect(kept))
	}
}

// Far more keys than there is room for: a filter is full to the last slots, and says what is in.
func TestFull(t *testing.T) {
	for _, capacity := range []int{1, 20, 1000} {
		for _, tag := range tagWidths {
			d := openCPU(t)
			f := newFilter[uint32](t, d, Options{FilterOptions: table.FilterOptions{Capacity: capacity, Seed: 5}, TagBits: tag})
			keys := randomKeys(1, 4*int(f.filter.slots()))
			for i := range keys {
				keys[i] &= math.MaxUint32
			}
			err := f.Insert(tabletest.KeysOf[uint32](keys))
			var full *table.FullError
			if !errors.As(err, &full) || full.Capacity != int(f.filter.slots()) || full.Len != len(keys)-len(full.Positions) ||
				!errors.Is(err, errFull) || float64(full.Len) < 0.97*float64(full.Capacity) {
				t.Fatalf("%d keys, %d bits: %v", capacity, tag, err)
			}
			var in []uint64
			for i, k := range keys {
				if _, is := slices.BinarySearch(full.Positions, i); !is {
					in = append(in, k)
				}
			}
			must(t, f.filter.expect(in))
			must(t, f.Clear())
			must(t, f.filter.expect(nil))
			must(t, f.Insert(tabletest.KeysOf[uint32](keys[:capacity])))
			must(t, f.filter.expect(keys[:capacity]))
		}
	}
}

// Keys that come and go for long: a filter at its load goes on taking as many as it gave back.
func TestKeysComeAndGo(t *testing.T) {
	rounds := 40
	if testenv.Long() {
		rounds = 1000
	}
	for _, tag := range tagWidths {
		const n = 4000
		d := openCPU(t)
		f := newFilter[uint64](t, d, Options{FilterOptions: table.FilterOptions{Capacity: n, Seed: 9}, TagBits: tag})
		in := randomKeys(1, n)
		must(t, f.Insert(in))
		for round := range rounds {
			first := round * 1000 % n
			if gone, err := f.Delete(in[first:first+1000], nil); gone != 1000 || err != nil {
				t.Fatal(gone, err)
			}
			copy(in[first:], randomKeys(uint64(round)+2, 1000))
			must(t, f.Insert(in[first:first+1000]))
		}
		must(t, f.filter.expect(in))
		if s, err := f.Stats(); err != nil || s.Rate > f.filter.cfg.worstRate(0) {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// Keys that are brought in order first leave what others leave, and what is refused is told.
func TestPartitioned(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			defer d.Close()
			partitioned(t, d, func(f *filter) {
				f.regions = frame.Regions{RegionBytes: 16 << 10, MinRows: 1, RegionRows: 1, PieceRows: 10_000,
					MemoryShare: 2, Span: 2 * frame.Threads}
			}, 16, 1)
		})
	}
}

// The same window by window, in shared memory; a larger filter has windows by tags, too.
func TestStretches(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for i, tag := range []int{16, 8, 12} {
			if i > 1 && !testenv.Long() {
				break
			}
			t.Run(fmt.Sprintf("%s/%d bits", name, tag), func(t *testing.T) {
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				defer d.Close()
				partitioned(t, d, func(f *filter) {
					byStretches(f)
					t.Cleanup(func() {
						if !f.stretch.late.Loaded() {
							t.Error("no batch went in by stretches")
						}
					})
				}, tag, 1<<i)
			})
		}
	}
}

// byStretches has a filter take all batches window by window.
func byStretches(f *filter) {
	f.regions = frame.Regions{MinRows: math.MaxInt64, PieceRows: 20_000, MemoryShare: 2, Span: frame.Threads}
	f.stretch.minRows, f.stretch.keyBytes = 1, 1<<40
}

func partitioned(t *testing.T, d *device.Device, rule func(*filter), tag, times int) {
	n := 30_000
	if testenv.Long() {
		n = 100_000
	}
	f, err := New[uint32](d, Options{FilterOptions: table.FilterOptions{Capacity: n / times, Seed: 3}, TagBits: tag})
	must(t, err)
	defer func() { f.Close() }()
	if times > 1 {
		large, err := f.Larger(times)
		must(t, errors.Join(err, f.Close()))
		f = large
	}
	rule(f.filter)
	keys := randomKeys(5, n+1)
	for i := range keys {
		keys[i] &= math.MaxUint32
	}
	must(t, f.Insert(tabletest.KeysOf[uint32](keys)))
	must(t, f.filter.expect(keys))
	if s, err := f.Stats(); err != nil || s.ScratchBytes < 8000*4 {
		t.Errorf("no batch was brought in order: %+v, %v", s, err)
	}
	more := randomKeys(6, n/2)
	for i := range more {
		more[i] &= math.MaxUint32
	}
	refused := refusals(t, f.Insert(tabletest.KeysOf[uint32](more)))
	if len(refused) < n/3 {
		t.Errorf("%d of %d keys are refused", len(refused), len(more))
	}
	in := slices.Clone(keys[n/2:])
	for i, k := range more {
		if _, is := slices.BinarySearch(refused, i); !is {
			in = append(in, k)
		}
	}
	out, err := device.From(d, tabletest.KeysOf[uint32](keys[:n/2]))
	must(t, err)
	defer out.Free()
	must(t, f.DeleteOn(nil, out, device.Slice[bool]{}))
	must(t, f.filter.expect(in))

	// What is taken out is told, row by row. A key that the filter does not contain cannot be taken out later, either.
	absent := tabletest.KeysOf[uint32](randomKeys(7, 2*len(in)))
	found := make([]bool, len(absent))
	must(t, f.Contains(absent, found))
	var both []uint32
	var is []bool
	for i, k := range absent {
		if !found[i] && len(both) < 2*len(in) {
			both, is = append(both, k, uint32(in[len(both)/2])), append(is, false, true)
		}
	}
	mixed, err := device.From(d, both)
	must(t, err)
	defer mixed.Free()
	told, err := device.From(d, make([]bool, len(both)))
	must(t, err)
	defer told.Free()
	must(t, f.DeleteOn(nil, mixed, told))
	got, err := told.Host(nil)
	must(t, err)
	if len(both) != 2*len(in) || !slices.Equal(got, is) {
		t.Errorf("of %d keys that are in, and as many others, %d are told to be deleted", len(both)/2, frame.Count(got))
	}
	must(t, f.filter.expect(nil))
}

// A filter that is several times larger takes the keys of filters, and errs as many times more often.
func TestLargerAndMerge(t *testing.T) {
	const n, asked = 20_000, 100_000
	for i, c := range []struct{ tag, times int }{{16, 2}, {12, 4}, {8, 2}, {16, 16}} {
		if i > 2 && !testenv.Long() {
			break
		}
		t.Run(fmt.Sprintf("%d bits, %d times", c.tag, c.times), func(t *testing.T) {
			d := openCPU(t)
			o := Options{FilterOptions: table.FilterOptions{Capacity: n, Seed: 4}, TagBits: c.tag}
			a, b := newFilter[uint64](t, d, o), newFilter[uint64](t, d, o)
			keys := randomKeys(1, c.times*n)
			must(t, a.Insert(keys[:n]))
			must(t, b.Insert(keys[n:2*n]))
			err := a.Merge(b)
			if !errors.Is(err, errFull) {
				t.Fatalf("twice as many keys as there is room for: %v", err)
			}
			must(t, a.filter.expect(keys[:n]))
			large, err := a.Larger(c.times)
			must(t, err)
			defer large.Close()
			must(t, large.Merge(a))
			must(t, large.Merge(b))
			must(t, large.filter.expect(keys[:2*n]))
			must(t, a.filter.expect(keys[:n]))
			must(t, b.filter.expect(keys[n:2*n]))
			must(t, large.Insert(keys[2*n:]))
			must(t, large.filter.expect(keys))
			s, err := large.Stats()
			must(t, err)
			found := make([]bool, asked)
			must(t, large.Contains(randomKeys(2, asked), found))
			rate := float64(frame.Count(found)) / asked
			if want := large.filter.cfg.worstRate(large.filter.geometry.spent); s.Rate > want || s.Rate < 0.4*want ||
				math.Abs(rate-s.Rate) > 5*math.Sqrt(s.Rate/asked) {
				t.Errorf("false positives: %v, Stats says %v, at most %v", rate, s.Rate, want)
			}
			if gone, err := large.Delete(keys[:n+n/2], nil); gone != n+n/2 || err != nil {
				t.Fatal(gone, err)
			}
			must(t, large.filter.expect(keys[n+n/2:]))
			// A larger one of the larger one has the tags of both.
			if c.times > 2 {
				return
			}
			again, err := large.Larger(2)
			must(t, err)
			defer again.Close()
			must(t, again.Merge(large))
			must(t, again.Merge(a))
			must(t, again.filter.expect(slices.Concat(keys[n+n/2:], keys[:n])))
			if a.Merge(large) == nil || large.Merge(again) == nil {
				t.Error("a larger filter is merged into a smaller one")
			}
		})
	}
}

func TestMergeRefusesOthers(t *testing.T) {
	d := openCPU(t)
	o := Options{FilterOptions: table.FilterOptions{Capacity: 1000, Seed: 4}}
	a := newFilter[uint32](t, d, o)
	for what, change := range map[string]func(*Options){
		"seeds":     func(o *Options) { o.Seed = 5 },
		"make":      func(o *Options) { o.Capacity = 1200 },
		"make: tag": func(o *Options) { o.TagBits = 16 },
		"make: one": func(o *Options) { o.Hash = kernel.HashMueller },
	} {
		other := o
		change(&other)
		what, _, _ = strings.Cut(what, ":")
		if err := a.Merge(newFilter[uint32](t, d, other)); err == nil || !strings.Contains(err.Error(), "different "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a.Merge(nil) == nil || a.Merge(&Filter[uint32]{}) == nil || a.Merge(a) == nil {
		t.Error("Merge with nothing, or with itself")
	}
	elsewhere, err := device.Open("cpu:1")
	must(t, err)
	defer elsewhere.Close()
	other, err := New[uint32](elsewhere, o)
	must(t, err)
	defer other.Close()
	if a.Merge(other) == nil {
		t.Error("a filter of another device is merged")
	}
	for _, times := range []int{0, 1, 3, -2, 1 << 20, math.MaxInt} {
		if f, err := a.Larger(times); err == nil {
			f.Close()
			t.Errorf("%d times larger: no error", times)
		}
	}
	closed, err := New[uint32](d, o)
	must(t, err)
	must(t, closed.Close())
	_, e1 := closed.Larger(2)
	if e2, e3 := a.Merge(closed), closed.Merge(a); !errors.Is(e1, table.ErrClosed) || !errors.Is(e2, table.ErrClosed) || !errors.Is(e3, table.ErrClosed) {
		t.Errorf("closed filters: %v, %v, %v", e1, e2, e3)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	d := openCPU(t)
	for _, o := range []Options{
		{TagBits: 4}, {TagBits: 32}, {TagBits: -8}, {FilterOptions: table.FilterOptions{FalsePositives: 1e-4}},
		{FilterOptions: table.FilterOptions{FalsePositives: 0.01}, TagBits: 8},
		{FilterOptions: table.FilterOptions{Bytes: 15}},
		{FilterOptions: table.FilterOptions{Bytes: 100, Capacity: 1000}},
	} {
		if o.Bytes == 0 {
			o.Capacity = 100
		}
		if f, err := New[uint32](d, o); err == nil {
			f.Close()
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := New[string](d, Options{}); err == nil {
		t.Error("a filter of strings")
	}
	for _, c := range []struct {
		o    table.FilterOptions
		bits int
	}{
		{table.FilterOptions{Capacity: 1000}, 12}, {table.FilterOptions{Capacity: 1000, FalsePositives: 0.1}, 8},
		{table.FilterOptions{Bytes: 1 << 20}, 16}, {table.FilterOptions{Bytes: 2000, Capacity: 1000}, 12},
		{table.FilterOptions{Bytes: 3000, Capacity: 1000}, 16}, {table.FilterOptions{Bytes: 1400, Capacity: 1000}, 8},
	} {
		f := newFilter[uint32](t, d, Options{FilterOptions: c.o})
		s, err := f.Stats()
		must(t, err)
		if f.TagBits() != c.bits || c.o.Bytes > 0 && (s.Bytes > c.o.Bytes || s.Bytes < c.o.Bytes*9/10) || f.Capacity() < c.o.Capacity {
			t.Errorf("%+v: %v of %d bytes, made for %d", c.o, f, s.Bytes, f.Capacity())
		}
	}
}

// Windows beyond 4 GiB, and buckets in them, are where the twin says.
func TestBeyond4GiB(t *testing.T) {
	d := openCPU(t)
	c := config{keyBytes: 8, tag: 16}
	program := c.program("places", `
		#include "config.h"
		#include "cuckoo.cuh"
		WARPMAP_KERNEL(places, cuckoo::batchParams) {
			u64 i = grid_thread();
			if (i >= p.rows.n) return;
			cuckoo::Place<config> x(p.table, at<u64>(p.rows.keys)[i]);
			u64* to = at<u64>(p.rows.added) + 4 * i;
			to[0] = (u64)x.first() - p.table.words;
			to[1] = (u64)x.second() - p.table.words;
			to[2] = x.tag;
			to[3] = (u64)x.window.version - p.table.versions;
		}`)
	m, err := d.Compile(program)
	must(t, err)
	k, err := device.KernelOf[batchParams](m, "places")
	must(t, err)
	keys := randomKeys(3, 1000)
	in, err := device.From(d, keys)
	must(t, err)
	defer in.Free()
	out, err := device.Make[uint64](d, 4*len(keys))
	must(t, err)
	defer out.Free()
	for _, g := range []geometry{{1, 2, 0}, {3, 2048, 0}, {1 << 20, 2046, 4}, {1<<33 + 7, 1998, 1}} {
		f := filter{cfg: c, geometry: g, t: Table{Words: 1 << 20, Versions: 1 << 10, Seed: 5, Windows: uint64(g.windows),
			Buckets: uint32(g.buckets), Spent: uint32(g.spent)}}
		p := batchParams{Table: f.t, Rows: frame.Placing{Keys: in.Addr(), Added: out.Addr(), N: uint64(len(keys))}}
		must(t, k.Launch(nil, device.GridFor(int64(len(keys)), frame.Threads), &p))
		got, err := out.Host(nil)
		must(t, err)
		most := uint64(0)
		for i, key := range keys {
			w, b, tag := f.place(key)
			at := func(b uint32) uint64 { return 32 * (uint64(w)*uint64(g.buckets) + uint64(b)) }
			want := []uint64{at(b), at(g.other(b, tag)), uint64(tag), versionBytes * uint64(w)}
			if !slices.Equal(got[4*i:4*i+4], want) || want[0] == want[1] || g.other(g.other(b, tag), tag) != b {
				t.Fatalf("key %#x in %+v: %#x, want %#x", key, g, got[4*i:4*i+4], want)
			}
			most = max(most, uint64(w))
		}
		if most >= uint64(g.all()) || most < uint64(g.all())/2 {
			t.Errorf("of %d windows, the highest in use is %d", g.all(), most)
		}
	}
}

// What is saved is loaded, with its tags, and a file that is damaged is refused.
func TestSavedAndLoaded(t *testing.T) {
	d := openCPU(t)
	f := newFilter[uint64](t, d, Options{FilterOptions: table.FilterOptions{Capacity: 2000, Seed: 4}})
	keys := randomKeys(1, 2000)
	must(t, f.Insert(keys))
	large, err := f.Larger(2)
	must(t, err)
	defer large.Close()
	must(t, large.Merge(f))
	for _, f := range []*Filter[uint64]{f, large} {
		var file bytes.Buffer
		must(t, snapshot.Filter[uint64](f).Save(context.Background(), &file))
		load := func(b []byte) (*Filter[uint64], error) {
			r, err := snapshot.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, err
			}
			g, err := NewOf[uint64](d, *r.Header.Form)
			if err != nil {
				return nil, err
			}
			if err := r.Load(context.Background(), snapshot.Filter[uint64](g)); err != nil {
				return nil, errors.Join(err, g.Close())
			}
			return g, nil
		}
		g, err := load(file.Bytes())
		must(t, err)
		must(t, g.filter.expect(keys))
		if n, err := g.Delete(keys[:1000], nil); n != 1000 || err != nil {
			t.Error(n, err)
		}
		must(t, g.Close())
		for at := 0; at < file.Len(); at += 97 {
			bad := slices.Clone(file.Bytes())
			bad[at] ^= 1
			if g, err := load(bad); err == nil {
				t.Errorf("byte %d of %d is damaged: no error", at, len(bad))
				g.Close()
			}
		}
		if g, err := load(file.Bytes()[:file.Len()/2]); err == nil {
			t.Error("a file that is cut off: no error")
			g.Close()
		}
	}
}
