package warpcore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// place is where a key's bits are, by words of the whole filter: the Go twin of warpcore::FilterProbe.
func (c filterConfig) place(t *FilterTable, lo, hi uint64) (word, bits []uint64) {
	h := kernel.Hash64(c.hash, lo, t.Seed)
	if c.keyBytes == 16 {
		h = kernel.Hash64(c.hash, h^hi, t.Seed)
	}
	words := uint64(c.words())
	block := kernel.Reduce(h, t.Blocks) * words
	random := h * 0x9e3779b97f4a7c15
	rest := random
	take := func(n int) uint64 { x := rest & (1<<n - 1); rest >>= n; return x }
	steps := []uint64{0}
	first := take(filterWordIndex) % words
	for j := 1; j < c.spread(); j++ {
		step := 1 + take(filterWordChoice)*(words-uint64(j))>>filterWordChoice
		if j == 2 && step >= steps[1] {
			step++
		}
		steps = append(steps, step)
	}
	for _, s := range steps {
		word = append(word, block+(first^s))
	}
	bits = make([]uint64, len(word))
	left := filterFirst
	for i := range c.hashes {
		if left == 0 {
			random = (random ^ random>>32) * 0xff51afd7ed558ccd
			rest, left = random, filterNext
		}
		bits[i%len(bits)] |= 1 << take(filterBitIndex)
		left--
	}
	return word, bits
}

// halves gives the bits of the keys that tabletest.KeysOf makes of x.
func halves(keyBytes int, x uint64) (lo, hi uint64) {
	switch keyBytes {
	case 4:
		return x & math.MaxUint32, 0
	case 8:
		return x, 0
	}
	return x & math.MaxUint32, x >> 32 << 32
}

// expect is an error where a filter's memory is not that of exactly these keys.
func (f *filter) expect(keys []uint64) error {
	want := make([]uint64, f.mem.Len()/filterWord)
	for _, k := range keys {
		lo, hi := halves(f.cfg.keyBytes, k)
		word, bits := f.cfg.place(&f.t, lo, hi)
		for j := range word {
			want[word[j]] |= bits[j]
		}
	}
	mem, err := f.mem.Host(nil)
	if err != nil {
		return err
	}
	for i, w := range want {
		if got := kernel.Pattern(mem[i*filterWord:], filterWord); got != w {
			return fmt.Errorf("word %d of %d is %#x, want %#x", i, len(want), got, w)
		}
	}
	return (&filterHandle{f}).Check()
}

func randomKeys(seed uint64, n int) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 11))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = rng.Uint64()
	}
	return keys
}

// filterGeometries meet every block with few and many bits, and each width of keys.
var filterGeometries = []struct{ keyBytes, block, hashes int }{{4, 8, 5}, {8, 16, 16}, {16, 32, 5}, {4, 64, 9}, {4, 32, 1}, {16, 64, 2}, {8, 8, 16}}

// Bits are where the twin says, for every geometry; keys that are in are found; and the rate of false positives is that of the formula
// and of Stats.
func TestFilterGeometries(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for i, g := range filterGeometries {
			if i > 3 && name == "cpu" && !testenv.Long() {
				break
			}
			t.Run(fmt.Sprintf("%s/%d bytes in blocks of %d, %d hashes", name, g.keyBytes, g.block, g.hashes), func(t *testing.T) {
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				defer d.Close()
				o := FilterOptions{Block: g.block, Hashes: g.hashes}
				switch g.keyBytes {
				case 4:
					filterGeometry[uint32](t, d, o)
				case 8:
					filterGeometry[uint64](t, d, o)
				default:
					filterGeometry[[2]uint64](t, d, o)
				}
			})
		}
	}
}

func filterGeometry[K any](t *testing.T, d *device.Device, o FilterOptions) {
	const n, asked = 40_000, 200_000
	o.FilterOptions = table.FilterOptions{Bytes: 50_000, Seed: 7}
	f, err := NewFilter[K](d, o)
	must(t, err)
	defer f.Close()
	keys := randomKeys(1, n)
	must(t, f.Insert(tabletest.KeysOf[K](keys)))
	must(t, f.filter.expect(keys))
	found := make([]bool, asked)
	must(t, f.Contains(tabletest.KeysOf[K](keys), found[:n]))
	if frame.Count(found[:n]) != n {
		t.Fatalf("%d of %d keys are in", frame.Count(found[:n]), n)
	}
	must(t, f.Contains(tabletest.KeysOf[K](randomKeys(2, asked)), found))
	rate := float64(frame.Count(found)) / asked
	theory := f.filter.cfg.rate().of(float64(n) / float64(f.filter.t.Blocks))
	s, err := f.Stats()
	must(t, err)
	noise := 5 * math.Sqrt(theory/asked)
	if math.Abs(rate-theory) > 0.05*theory+noise || math.Abs(s.Rate-theory) > 0.05*theory {
		t.Errorf("false positives: %v, the formula says %v, Stats %v", rate, theory, s.Rate)
	}
	must(t, f.Clear())
	must(t, f.filter.expect(nil))
}

// The formula of the rate, against simulations, and the geometry that follows from it.
func TestFilterRates(t *testing.T) {
	for _, c := range []struct {
		block, hashes int
		want          float64 // by simulation with 8 bits a key, 1.6 M keys and 3 M queries
	}{{32, 4, 2.665}, {32, 5, 2.534}, {32, 6, 2.627}, {64, 5, 2.441}, {8, 4, 3.357}, {8, 5, 3.404}, {16, 5, 2.832}} {
		x := filterConfig{block: c.block, hashes: c.hashes}
		if got := 100 * x.rate().of(float64(c.block)); math.Abs(got-c.want) > 0.06 {
			t.Errorf("blocks of %d bytes, %d hash functions: %.3f%% (want %v%%)", c.block, c.hashes, got, c.want)
		}
	}
	for _, c := range []struct {
		o      FilterOptions
		block  int
		hashes int
		most   float64 // rate once Capacity keys are in
		bits   [2]float64
	}{
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20, Bytes: 1 << 20}}, 32, 5, 0.026, [2]float64{8, 8}},
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20}}, 32, 0, 0.01, [2]float64{10, 11.5}},
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20, FalsePositives: 0.001}}, 32, 0, 0.001, [2]float64{16, 19}},
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20}, Block: 8}, 8, 0, 0.01, [2]float64{11, 14}},
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20, FalsePositives: leastRate}}, 32, 0, 2 * leastRate, [2]float64{40, 210}},
		{FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1 << 20}, Hashes: 2}, 32, 2, 0.01, [2]float64{15, 25}},
	} {
		var cfg filterConfig
		blocks, err := c.o.complete(&cfg)
		must(t, err)
		perKey := float64(blocks) * 8 * float64(cfg.block) / float64(c.o.Capacity)
		rate := cfg.rate().of(float64(c.o.Capacity) / float64(blocks))
		t.Logf("%+v: %d hash functions, %.2f bits a key, rate %.3g", c.o.FilterOptions, cfg.hashes, perKey, rate)
		if cfg.block != c.block || c.hashes != 0 && cfg.hashes != c.hashes || rate > c.most*1.001 || perKey < c.bits[0]*0.999 || perKey > c.bits[1] {
			t.Errorf("%+v: %+v, %.2f bits a key, a rate of %v", c.o, cfg, perKey, rate)
		}
	}
}

// Filters estimate how many different keys they have, and how far the estimate may be off, whatever their geometry and however
// full they are: over many seeds the estimates lie around what is so, as far off as they say.
func TestFilterKeysAreEstimated(t *testing.T) {
	seeds := 60
	if testenv.Long() {
		seeds = 1000
	}
	d := openCPU(t)
	for i, g := range filterGeometries {
		if i > 2 && !testenv.Long() {
			break
		}
		for _, n := range []int{20, 2000, 8000} {
			sum, squares := 0.0, 0.0
			for seed := range uint64(seeds) {
				o := FilterOptions{FilterOptions: table.FilterOptions{Bytes: 4096, Seed: seed + 1}, Block: g.block, Hashes: g.hashes}
				f, err := NewFilter[uint64](d, o)
				must(t, err)
				keys := randomKeys(seed, n)
				must(t, f.Insert(keys))
				must(t, f.Insert(keys[:n/2])) // which changes nothing
				s, err := f.Stats()
				must(t, err)
				must(t, f.Close())
				off := (s.Keys - float64(n)) / max(s.KeysError, 1e-9)
				if s.KeysError == 0 {
					t.Fatalf("%+v, %d keys: %+v", g, n, s)
				}
				sum += off
				squares += off * off
			}
			mean, deviation := sum/float64(seeds), math.Sqrt(squares/float64(seeds))
			t.Logf("blocks of %d, %d hashes, %d keys: off by %.3f standard errors in the mean, %.3f by deviation", g.block, g.hashes, n, mean, deviation)
			if bound := 4 / math.Sqrt(float64(seeds)); math.Abs(mean) > bound+0.1 || math.Abs(deviation-1) > bound+0.05 {
				t.Errorf("blocks of %d, %d hashes, %d keys: off by %v standard errors in the mean, %v by deviation", g.block, g.hashes, n, mean, deviation)
			}
		}
	}
	f, err := NewFilter[uint64](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: 32, Seed: 1}})
	must(t, err)
	defer f.Close()
	if s, err := f.Stats(); err != nil || s.Keys != 0 || s.KeysError != 0 {
		t.Errorf("an empty filter: %+v, %v", s, err)
	}
	must(t, f.Insert(randomKeys(1, 10_000)))
	if s, err := f.Stats(); err != nil || s.BitsSet != s.Bits || s.Keys < 200 || math.IsInf(s.Keys, 0) || math.IsNaN(s.KeysError) {
		t.Errorf("a filter with all bits set: %+v, %v", s, err)
	}
}

func TestFilterOptionsAreChecked(t *testing.T) {
	d := openCPU(t)
	for _, o := range []FilterOptions{
		{Block: 4}, {Block: 48}, {Block: 128}, {Block: -8}, {Hashes: -1}, {Hashes: 17},
		{FilterOptions: table.FilterOptions{FalsePositives: 1e-12}}, {FilterOptions: table.FilterOptions{Bytes: 31}},
	} {
		if o.Bytes == 0 {
			o.Capacity = 100
		}
		if f, err := NewFilter[uint32](d, o); err == nil {
			f.Close()
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := NewFilter[string](d, FilterOptions{}); err == nil {
		t.Error("a filter of strings")
	}
	if _, err := NewFilter[[3]uint32](d, FilterOptions{}); err == nil {
		t.Error("a filter of keys of 12 bytes")
	}
}

// Blocks beyond 2³² are where the twin says.
func TestFilterBeyond4GiB(t *testing.T) {
	d := openCPU(t)
	cfg := filterConfig{keyBytes: 8, block: 32, hashes: 5}
	program := cfg.program("places", `
		#include "config.h"
		#include "filter.cuh"
		WARPMAP_KERNEL(places, warpcore::filterParams) {
			u64 i = grid_thread();
			if (i >= p.n) return;
			warpcore::FilterProbe<config> x(p.filter, at<u64>(p.keys)[i]);
			for (int j = 0; j < config::SPREAD; j++) {
				at<u64>(p.found)[(i * config::SPREAD + j) * 2] = (u64)x.at_word[j] - p.filter.words;
				at<u64>(p.found)[(i * config::SPREAD + j) * 2 + 1] = x.bits[j];
			}
		}`)
	m, err := d.Compile(program)
	must(t, err)
	k, err := device.KernelOf[filterParams](m, "places")
	must(t, err)
	keys := randomKeys(3, 1000)
	in, err := device.From(d, keys)
	must(t, err)
	defer in.Free()
	out, err := device.Make[uint64](d, 2*cfg.spread()*len(keys))
	must(t, err)
	defer out.Free()
	for _, blocks := range []uint64{3, 1<<27 + 1, 1<<32 + 15, 1 << 40} {
		p := filterParams{Filter: FilterTable{Words: 1 << 20, Blocks: blocks, Seed: 5}, Keys: in.Addr(), Found: out.Addr(), N: uint64(len(keys))}
		must(t, k.Launch(nil, device.GridFor(int64(len(keys)), frame.Threads), &p))
		got, err := out.Host(nil)
		must(t, err)
		most := uint64(0)
		for i, key := range keys {
			word, bits := cfg.place(&p.Filter, key, 0)
			for j := range word {
				if g := got[2*(i*len(word)+j):]; g[0] != filterWord*word[j] || g[1] != bits[j] {
					t.Fatalf("key %#x among %d blocks: %#x, want word %#x with %#x", key, blocks, g[:2], word[j], bits[j])
				}
			}
			most = max(most, word[0]/uint64(cfg.words()))
		}
		if most >= blocks || most < blocks/2 {
			t.Errorf("of %d blocks, the highest in use is %d", blocks, most)
		}
	}
}

// Keys that are brought in order first leave what others leave.
func TestPartitionedFilter(t *testing.T) {
	rule := tinyRegions
	rule.RegionBytes = 512
	make := func(d *device.Device, o table.FilterOptions) (*Filter[uint32], error) {
		f, err := NewFilter[uint32](d, FilterOptions{FilterOptions: o})
		if err == nil {
			f.filter.regions = rule
		}
		return f, err
	}
	suite := tabletest.Filter(func(d *device.Device, o table.FilterOptions) (table.Filter[uint32], error) {
		f, err := make(d, o)
		return f, err
	})
	suite.Churn(t, openCPU(t), table.Options{Capacity: 3000}, 1, 20, 2500)
	suite.Stress(t, func(seed uint64) *device.Device { return openCPU(t, device.WithStress(seed)) }, table.Options{Capacity: 1000}, 5)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			defer d.Close()
			rule.RegionBytes, rule.PieceRows = 16<<10, 30_000
			f, err := make(d, table.FilterOptions{Capacity: 200_000, Seed: 3})
			must(t, err)
			defer f.Close()
			keys := randomKeys(5, 200_001)
			must(t, f.Insert(tabletest.KeysOf[uint32](keys)))
			must(t, f.filter.expect(keys))
			if s, err := f.Stats(); err != nil || s.ScratchBytes < 25_000*4 {
				t.Errorf("no batch was brought in order: %+v, %v", s, err)
			}
		})
	}
}

// Keys that share their low halves, or their high halves, have no more false positives than others, whatever their
// width and the hash function.
func TestFilterRateOfKeysThatShareHalves(t *testing.T) {
	for _, hash := range []int{kernel.HashMurmur, kernel.HashMueller} {
		t.Run(fmt.Sprintf("hash %d, 4 bytes", hash), func(t *testing.T) {
			rateOfHalves(t, hash, []func(i uint32) uint32{func(i uint32) uint32 { return i << 16 }, func(i uint32) uint32 { return 0xabcd<<16 | i }}, 1<<16)
		})
		t.Run(fmt.Sprintf("hash %d, 8 bytes", hash), func(t *testing.T) {
			rateOfHalves(t, hash, []func(i uint32) uint64{func(i uint32) uint64 { return uint64(i) << 32 }, func(i uint32) uint64 { return 0xabcd<<32 | uint64(i) }}, 1<<18)
		})
		t.Run(fmt.Sprintf("hash %d, 16 bytes", hash), func(t *testing.T) {
			rateOfHalves(t, hash, []func(i uint32) [2]uint64{
				func(i uint32) [2]uint64 { return [2]uint64{3, uint64(i)} }, func(i uint32) [2]uint64 { return [2]uint64{uint64(i), 3} },
				func(i uint32) [2]uint64 { return [2]uint64{3, uint64(i) << 32} }, func(i uint32) [2]uint64 { return [2]uint64{uint64(i) << 32, 3} },
			}, 1<<18)
		})
	}
}

// rateOfHalves puts one key in four of n in, and asks for the others.
func rateOfHalves[K comparable](t *testing.T, hash int, kinds []func(i uint32) K, n int) {
	f, err := NewFilter[K](openCPU(t), FilterOptions{FilterOptions: table.FilterOptions{Capacity: n / 4, FalsePositives: 0.01, Hash: hash, Seed: 7}})
	must(t, err)
	defer f.Close()
	for i, key := range kinds {
		must(t, f.Clear())
		keys := make([]K, n)
		for j := range keys {
			keys[j] = key(uint32(j))
		}
		must(t, f.Insert(keys[:n/4]))
		found := make([]bool, n)
		must(t, f.Contains(keys, found))
		wrong := 0
		for j, x := range found {
			if j < n/4 && !x {
				t.Fatalf("key %v is lost", keys[j])
			} else if j >= n/4 && x {
				wrong++
			}
		}
		if rate := float64(wrong) / float64(3*n/4); rate > 0.013 {
			t.Errorf("keys of kind %d: %.4f false positives (want 0.01)", i, rate)
		}
	}
}

// Words that were saved with the first HashMueller are refused, for another function asks for other bits; with the
// present one they are taken.
func TestFilterOfAnotherMuellerIsRefused(t *testing.T) {
	d := openCPU(t)
	f, err := NewFilter[uint64](d, FilterOptions{FilterOptions: table.FilterOptions{Capacity: 1000, Hash: kernel.HashMueller, Seed: 7}})
	must(t, err)
	form := f.Form()
	must(t, f.Close())
	f, err = NewFilterOf[uint64](d, form)
	must(t, err)
	must(t, f.Close())
	form.Make = strings.Replace(form.Make, `,"mueller":2`, "", 1)
	if _, err := NewFilterOf[uint64](d, form); err == nil || !strings.Contains(err.Error(), "put its keys into a new filter") {
		t.Errorf("form %v: %v", form, err)
	}
}

func TestFilterUnion(t *testing.T) {
	d := openCPU(t)
	o := FilterOptions{FilterOptions: table.FilterOptions{Capacity: 10_000, Seed: 9}}
	newFilter := func(d *device.Device, o FilterOptions) *Filter[uint64] {
		f, err := NewFilter[uint64](d, o)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b, keys := newFilter(d, o), newFilter(d, o), randomKeys(4, 10_000)
	must(t, a.Insert(keys[:6000]))
	must(t, b.Insert(keys[4000:]))
	must(t, a.Union(b))
	must(t, a.Union(a))
	must(t, a.filter.expect(keys))
	must(t, b.filter.expect(keys[4000:]))

	for what, other := range map[string]FilterOptions{
		"a larger filter":      {FilterOptions: table.FilterOptions{Capacity: 20_000, Seed: 9}},
		"another seed":         {FilterOptions: table.FilterOptions{Capacity: 10_000, Seed: 10}},
		"another hash":         {FilterOptions: table.FilterOptions{Capacity: 10_000, Seed: 9, Hash: kernel.HashMueller}},
		"other blocks":         {FilterOptions: table.FilterOptions{Capacity: 10_000, Seed: 9}, Block: 64},
		"other hash functions": {FilterOptions: table.FilterOptions{Bytes: int64(a.filter.mem.Len()), Seed: 9}, Hashes: 3},
	} {
		err := a.Union(newFilter(d, other))
		if err == nil || !strings.Contains(err.Error(), "make both with") || what != "another seed" && strings.Count(err.Error(), " blocks of ") != 2 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a.Union(nil) == nil || a.Union(&Filter[uint64]{}) == nil {
		t.Error("a union with nothing")
	}
	again, err := device.Open("cpu") // the same device, opened twice
	must(t, err)
	defer again.Close()
	more := newFilter(again, o)
	must(t, more.Insert(keys[:10]))
	must(t, more.Union(b))
	must(t, more.filter.expect(append(keys[4000:], keys[:10]...)))
	if gpu, err := device.Open("cuda:0"); err == nil {
		defer gpu.Close()
		if err := a.Union(newFilter(gpu, o)); err == nil {
			t.Error("a union with a filter on another device")
		}
	}

	// Two that are united with one another from two sides, while keys go in.
	var workers sync.WaitGroup
	c, e := newFilter(d, o), newFilter(d, o)
	for i, pair := range [][2]*Filter[uint64]{{c, e}, {e, c}} {
		workers.Go(func() {
			for r := range 20 {
				at := 5000*i + 250*r
				if err := errors.Join(pair[0].Insert(keys[at:at+250]), pair[0].Union(pair[1])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	must(t, c.Union(e))
	must(t, c.filter.expect(keys))

	must(t, b.Close())
	if err := a.Union(b); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a union with a closed filter: %v", err)
	}
	if err := b.Union(a); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a union into a closed filter: %v", err)
	}
	must(t, a.filter.expect(keys))
}

// besideKernel puts keys in beside other lanes, and asks for each at once.
const besideKernel = `
	#include "config.h"
	#include "filter.cuh"
	WARPMAP_KERNEL(beside, warpcore::filterParams) {
		for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
			config::key k = at<config::key>(p.keys)[i];
			warpcore::insert<config>(p.filter, k);
			at<u8>(p.found)[i] = warpcore::contains<config>(p.filter, k);
		}
	}`

// crowdFilter puts keys into two blocks, half of them by the batch's kernel and half by one that asks at once, with lanes switched at random, and
// compares all bits.
func crowdFilter(d *device.Device, seed uint64) (err error) {
	defer func() { err = errors.Join(err, d.Close()) }()
	f, err := NewFilter[uint32](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: 64, Seed: seed + 1}, Hashes: 4})
	if err != nil {
		return err
	}
	defer f.Close()
	keys := randomKeys(seed, 60)
	if err := f.Insert(tabletest.KeysOf[uint32](keys[:30])); err != nil {
		return err
	}
	m, err := d.Compile(f.Program("beside", besideKernel))
	if err != nil {
		return err
	}
	k, err := device.KernelOf[filterParams](m, "beside")
	if err != nil {
		return err
	}
	in, err := device.From(d, tabletest.KeysOf[uint32](keys[30:]))
	if err != nil {
		return err
	}
	flags, err := device.Make[bool](d, 30)
	if err != nil {
		return err
	}
	err = f.Use(nil, func(t FilterTable) error {
		return k.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &filterParams{Filter: t, Keys: in.Addr(), Found: flags.Addr(), N: 30})
	})
	if err != nil {
		return err
	}
	if found, err := flags.Host(nil); err != nil || frame.Count(found) != 30 {
		return fmt.Errorf("of 30 keys that just went in, %d are in: %w", frame.Count(found), err)
	}
	found := make([]bool, len(keys))
	if err := f.Contains(tabletest.KeysOf[uint32](keys), found); err != nil {
		return err
	}
	if n := frame.Count(found); n < len(keys) {
		return fmt.Errorf("of %d keys, %d are in", len(keys), n)
	}
	return f.filter.expect(keys)
}

// A filter is sound under stress; and defects that are planted are found.
func TestFilterUnderStress(t *testing.T) {
	story := func(seed uint64) error { return crowdFilter(openBy(t)(device.WithStress(seed)), seed) }
	t.Run("sound", func(t *testing.T) {
		for seed := range uint64(testenv.Seeds(100)) {
			if err := story(seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
	findDefects(t, 300, []defect{
		{"a word that tears", false, &filterCUH, "or_of(at_word[j], bits[j]);", "store_relaxed(at_word[j], load_relaxed(at_word[j]) | bits[j]);", story},
		{"a bit that leaves the block", false, &filterCUH, "block + (first ^ second)", "block + (first + second)", story},
		{"a word that is not set", false, &filterCUH, "for (int j = 0; j < SPREAD; j++) or_of", "for (int j = 1; j < SPREAD; j++) or_of", story},
		{"another block", false, &filterCUH, "reduce(h, f.blocks) *", "(reduce(h, f.blocks) + (h & 1)) % f.blocks *", story},
	})
}

// What Check finds.
func TestCheckOfFilterFindsDamage(t *testing.T) {
	f, err := NewFilter[uint32](openCPU(t), FilterOptions{FilterOptions: table.FilterOptions{Capacity: 100}})
	must(t, err)
	defer f.Close()
	wrong := func(what, want string) {
		t.Helper()
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Check says %v, want %q", what, err, want)
		}
	}
	must(t, f.filter.mem.Slice(0, 1).Fill(nil, 1))
	wrong("a bit of no key", "more than")
	must(t, f.Clear())
	must(t, f.Insert([]uint32{1, 2, 3}))
	must(t, f.Check())
	must(t, f.filter.mem.Fill(nil, 0))
	wrong("keys without bits", "no bit is set")
	must(t, f.filter.mem.Fill(nil, 0xff))
	wrong("all bits", "more than")
	if err := f.filter.checkImage(make([]byte, f.filter.mem.Len()), table.FilterStats{BitsSet: 1}); err == nil {
		t.Error("a bit too many is counted, and nobody sees it")
	}
}

// All kernels of filters compile for GPUs, on machines that have none: a few geometries, in long runs all.
func TestFilterKernelsCompileForGPUs(t *testing.T) {
	archs := []string{"sm_90", "sm_75", "sm_80"}
	for i, g := range testenv.Some(filterGeometries, 1) {
		arch := archs[i%len(archs)]
		t.Run(fmt.Sprintf("%+v %s", g, arch), func(t *testing.T) {
			testenv.Turn(t)
			t.Parallel()
			cfg := filterConfig{keyBytes: g.keyBytes, block: g.block, hashes: g.hashes}
			for _, p := range []*device.Program{cfg.program("warpcore_filter", filterCU), cfg.program("beside", besideKernel)} {
				_, err := device.CompileFor(arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			}
		})
	}
}

// BenchmarkFilter measures kernels on a GPU, by events, in billions of keys a second: inserts, by stretches, in the order of regions and as they come, and
// look-ups of keys of which half are in. The filters have the sizes of a cache or two, and of memory.
func BenchmarkFilter(b *testing.B) {
	d, err := device.Open("cuda:0")
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	for _, c := range []struct {
		bytes  int64
		n      int
		block  int
		hashes int
	}{{100e6, 100e6, 32, 5}, {100e6, 100e6, 64, 5}, {100e6, 100e6, 8, 4}, {1 << 30, 100e6, 32, 5}, {1 << 30, 100e6, 8, 5}, {1 << 30, 1 << 28, 32, 5}, {1 << 30, 1 << 28, 64, 5}} {
		in, asked := make([]uint32, c.n), make([]uint32, c.n)
		for i := range in { // different keys
			in[i], asked[i] = uint32(i)*2654435761, uint32(i+c.n/2)*2654435761
		}
		keys, err := device.From(d, in)
		must(b, err)
		queries, err := device.From(d, asked)
		must(b, err)
		found, err := device.Make[bool](d, c.n)
		must(b, err)
		f, err := NewFilter[uint32](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: c.bytes, Seed: 1}, Block: c.block, Hashes: c.hashes})
		must(b, err)
		measure := func(what string, before, queue func() error) {
			b.Run(fmt.Sprintf("%d keys, %d bytes in blocks of %d/%s", c.n, c.bytes, c.block, what), func(b *testing.B) {
				from, err := d.NewEvent()
				must(b, err)
				defer from.Close()
				to, err := d.NewEvent()
				must(b, err)
				defer to.Close()
				best := time.Duration(math.MaxInt64)
				for range max(b.N, 3) {
					must(b, errors.Join(before(), d.Stream().Sync(), from.Record(d.Stream()), queue(), to.Record(d.Stream()), to.Sync()))
					took, err := to.Since(from)
					must(b, err)
					best = min(best, took)
				}
				b.ReportMetric(float64(c.n)/float64(best), "Gkeys/s")
			})
		}
		insert := func() error { return f.InsertOn(nil, keys) }
		regions, stretches := f.filter.regions, f.filter.stretch.minRows
		f.filter.regions.MinRows, f.filter.stretch.minRows = math.MaxInt64, math.MaxInt64
		measure("insert as they come", f.Clear, insert)
		f.filter.regions = regions
		measure("insert by regions", f.Clear, insert)
		f.filter.stretch.minRows = stretches
		measure("insert", f.Clear, insert)
		measure("contains", func() error { return nil }, func() error { return f.ContainsOn(nil, queries, found) })
		flags, err := found.Host(nil)
		must(b, err)
		s, err := f.Stats()
		must(b, err)
		n := frame.Count(flags[:c.n/2])
		rate := float64(frame.Count(flags[c.n/2:])) / float64(c.n-c.n/2)
		b.Logf("%d of %d keys are in; false positives: %.3f%%, Stats says %.3f%%", n, c.n/2, 100*rate, 100*s.Rate)
		if n != c.n/2 {
			b.Error("keys that are in are not found")
		}
		must(b, errors.Join(f.Close(), keys.Free(), queries.Free(), found.Free()))
	}
}

// Keys that go in stretch by stretch leave what others leave, also where stretches share blocks.
func TestFilterStretches(t *testing.T) {
	for i, g := range filterGeometries {
		if i > 2 && !testenv.Long() {
			break
		}
		for _, name := range []string{"cpu", "cuda:0"} {
			t.Run(fmt.Sprintf("%s/%d bytes in blocks of %d, %d hashes", name, g.keyBytes, g.block, g.hashes), func(t *testing.T) {
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				defer d.Close()
				switch g.keyBytes {
				case 4:
					filterStretchesOf[uint32](t, d, 30_000, g.block, g.hashes)
				case 8:
					filterStretchesOf[uint64](t, d, 30_000, g.block, g.hashes)
				default:
					filterStretchesOf[[2]uint64](t, d, 30_000, g.block, g.hashes)
				}
			})
		}
	}
}

// The same with lanes switched at random, at every access.
func TestFilterStretchesUnderStress(t *testing.T) {
	seeds := testenv.Seeds(32)
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		seed += testenv.FirstSeed()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			filterStretchesOf[uint32](t, openCPU(t, device.WithStress(seed)), 900, []int{8, 32}[seed%2], 5)
		})
	}
}

func filterStretchesOf[K any](t *testing.T, d *device.Device, n, block, hashes int) {
	f, err := NewFilter[K](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: 50_000, Seed: 7}, Block: block, Hashes: hashes})
	must(t, err)
	defer f.Close()
	f.filter.regions = frame.Regions{MinBytes: 1, MinRows: math.MaxInt64, PieceRows: int64(n) / 2, MemoryShare: 2, Span: frame.Threads}
	f.filter.stretch.minRows, f.filter.stretch.keyBytes, f.filter.stretch.bytes = 1, 1<<20, 3000
	keys := randomKeys(1, n)
	same := slices.Repeat(keys[:1], n/3)
	for _, k := range [][]uint64{keys[:n/2], keys[n/2:], same, keys} {
		must(t, f.Insert(tabletest.KeysOf[K](k)))
	}
	if !f.filter.stretch.late.Loaded() {
		t.Fatal("no batch went in by stretches")
	}
	must(t, f.filter.expect(keys))
}
