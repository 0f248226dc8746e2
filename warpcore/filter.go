package warpcore

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// FilterOptions are the options of NewFilter: those of table.FilterOptions, and some of its own. With Capacity, and
// perhaps a rate of false positives, the filter takes the least memory that keeps the rate. With Capacity and Bytes, it
// has the lowest rate that this memory allows. With Bytes alone, it is made for as many keys as give one false positive
// in a hundred.
type FilterOptions struct {
	table.FilterOptions
	// Block is the size in bytes of the block that holds the bits of a key: 8, 16, 32 or 64. Zero means 32, a sector of
	// a GPU's memory. With blocks of 8, an insert changes one word instead of two, but the filter takes a sixth more
	// memory at one false positive in a hundred, and two fifths more at one in a thousand. Blocks of 64 save memory at
	// lower rates than that: a tenth at one in a million.
	Block int
	// Hashes is the number of bits of a key, 1 to 16. Zero means the number that gives the fewest false positives.
	Hashes int
}

const (
	defaultBlock = 32
	defaultRate  = 0.01
	// leastRate is the lowest that filterConfig.rate tells: below, its sums are of rounding.
	leastRate = 1e-9
)

var (
	//go:embed filter.cu
	filterCU string
	//go:embed filter.cuh
	filterCUH string
)

// Filter is WarpCore's BloomFilter (paper, §IV), blocked: the bits of a key lie in two words of one small block. So a
// look-up reads one sector of memory, and an insert is two atomic operations. K has 4, 8 or 16 bytes. Every pattern of
// K can be a key.
//
// Filter implements table.Filter, whose comments are the contract of the methods. All methods are safe for use by
// several goroutines.
type Filter[K any] struct{ filterHandle }

func _[K any](f *Filter[K]) table.Filter[K] { return f }

// filter is what works in addresses and bits under Filter.
type filter struct {
	frame  frame.Frame
	cfg    filterConfig
	opts   FilterOptions
	kernel struct {
		insert, contains device.Kernel[filterParams]
		stats            device.Kernel[filterStatsParams]
		union            device.Kernel[filterUnionParams]
		partition        frame.Partitioner
	}
	regions frame.Regions
	stretch filterStretches

	// Guarded by the frame's lock.
	mem     device.Slice[byte]
	t       FilterTable
	rows    float64 // no more keys than these went in: a count that never overflows
	foreign bool    // a kernel of the user's may have put in others
}

// filterHandle is what users hold of a filter. It names filter instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type filterHandle struct{ filter *filter }

// made is the filter, or one whose operations are errors, if NewFilter has not made it.
func (h *filterHandle) made() *filter { return frame.Or(h.filter, unmadeFilter) }

var unmadeFilter = frame.Unmade(func(f *filter) *frame.Frame { return &f.frame }, family,
	"a Filter that NewFilter has not made")

// NewFilter makes an empty filter on the device, for Capacity keys or with Bytes of memory: see FilterOptions.
//
// Errors: K of another width, or with pointers or padding; options out of range, or a rate below 1e-9;
// *device.OutOfMemoryError. If kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU),
// if there is nothing to compile them with. A compiler's own words, in a *device.CompileError, come from the method that
// needs the kernel. Cost: filling the memory. The first call of a method on a machine compiles its kernels.
func NewFilter[K any](d *device.Device, o FilterOptions) (*Filter[K], error) {
	width, err := frame.WidthOf[K]("key of a filter", 4, 8, 16)
	if err != nil {
		return nil, err
	}
	f := &filter{cfg: filterConfig{keyBytes: width}, opts: o}
	return frame.Made(&Filter[K]{filterHandle{f}}, f.frame.Open(family, d, f.begin, f.free))
}

// program is the filter's kernels with the given translation unit.
func (c filterConfig) program(name, main string) *device.Program {
	return &device.Program{
		Name:    name,
		Files:   []device.File{{Name: name + ".cu", Text: main}, {Name: "filter.cuh", Text: filterCUH}, {Name: "config.h", Text: c.header()}},
		Defines: filterDefines(),
		Layouts: filterLayouts(),
	}
}

func (f *filter) begin() error {
	blocks, err := f.opts.complete(&f.cfg)
	if err != nil {
		return err
	}
	d := f.frame.Device
	f.regions = frame.RegionsFor(d.Info(), regionsFrom, regionRows)
	f.stretch = filterStretchesFor(d.Info())
	m, err := d.CompileApart(f.cfg.program("warpcore_filter", filterCU))
	if err != nil {
		return err
	}
	k := &f.kernel
	k.partition, err = frame.NewPartitioner[filterPartitionParams](d, m)
	var wrong error
	f.stretch.within, wrong = frame.NewWithin[filterPartitionParams](m)
	if err = errors.Join(err, wrong, device.Bind(m, "filter_insert", &k.insert), device.Bind(m, "filter_contains", &k.contains),
		device.Bind(m, "filter_stats", &k.stats), device.Bind(m, "filter_union", &k.union)); err != nil {
		return err
	}
	if err := device.Ahead(k.insert, k.contains); err != nil {
		return err
	}
	frame.AheadOfLate(d, f.loadStretches)
	if f.mem, err = frame.Make[byte](&f.frame, blocks*int64(f.cfg.block)); err != nil {
		return err
	}
	f.t = FilterTable{Words: f.mem.Addr(), Blocks: uint64(blocks), Seed: f.opts.Seed}
	return errors.Join(f.mem.Fill(nil, 0), d.Stream().Sync())
}

func (f *filter) free() error { return f.frame.Free(f.mem) }

// complete checks the options, and finds the geometry: the number of hash functions where it is not given, and that of blocks.
func (o *FilterOptions) complete(c *filterConfig) (blocks int64, err error) {
	if err := o.FilterOptions.Complete(); err != nil {
		return 0, err
	}
	c.hash, c.block, c.hashes = o.Hash, o.Block, o.Hashes
	if c.block == 0 {
		c.block = defaultBlock
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	wanted := o.FalsePositives
	switch {
	case wanted == 0:
		wanted = defaultRate
	case wanted < leastRate:
		return 0, fmt.Errorf("warpcore: a filter with false positives at a rate of %v (want %v or more; set Bytes for fewer)", wanted, leastRate)
	}
	if o.Bytes > 0 {
		if blocks = o.Bytes / int64(c.block); blocks == 0 {
			return 0, fmt.Errorf("warpcore: a filter of %d bytes has no room for a block of %d", o.Bytes, c.block)
		}
	}
	// Of the numbers of hash functions that may be, that with the most keys a block at the rate; or with the fewest false positives.
	best, most := 0, 0.0
	for k := 1; k <= mostHashes; k++ {
		if c.hashes != 0 && c.hashes != k {
			continue
		}
		r := filterConfig{block: c.block, hashes: k}.rate()
		worth := r.keysAt(wanted)
		if blocks > 0 && o.Capacity > 0 {
			worth = 1 / max(r.of(float64(o.Capacity)/float64(blocks)), leastRate)
		}
		if worth > most {
			best, most = k, worth
		}
	}
	c.hashes = best
	if blocks == 0 {
		blocks = int64(min(max(1, math.Ceil(float64(o.Capacity)/most)), 1<<50)) // more than any memory, less than overflows
	}
	return blocks, nil
}

// rate is the share of false positives among absent keys, when a block has so many keys on average: the sum of weight·exp(-keys·share)
// over its terms.
type rate []struct{ share, weight float64 }

func (r rate) of(keys float64) (sum float64) {
	for _, x := range r {
		sum += x.weight * math.Exp(-keys*x.share)
	}
	return min(max(sum, 0), 1)
}

// keysAt is how many keys a block may have on average for a rate.
func (r rate) keysAt(most float64) float64 {
	keys := 1e-12
	for factor := 1e8; factor > 1+1e-12; factor = math.Sqrt(factor) { // up to 1e4, more than a block has bits
		if r.of(keys*factor) <= most {
			keys *= factor
		}
	}
	return keys
}

// rate is by inclusion and exclusion: a term for each number of bits in each word that an absent key asks for, all of them not set, which is so
// when no key of the block, of which there are as many as Poisson says, has set one.
func (c filterConfig) rate() (r rate) {
	n := c.spread()
	unset := make([]int, n)
	var each func(j int, weight float64)
	each = func(j int, weight float64) {
		if j == n {
			r = append(r, struct{ share, weight float64 }{1 - c.misses(unset, make([]bool, n), 0, 0), weight})
			return
		}
		for i := range c.share(j) + 1 {
			unset[j] = i
			sets := 0.0 // how many sets of i bits there are among those that the key asks for, which may be one bit twice
			for distinct, p := range distinctBits(c.share(j)) {
				sets += p * binomial(distinct, i)
			}
			each(j+1, weight*sets*float64(1-2*(i&1)))
		}
	}
	each(0, 1)
	return r
}

// misses is the probability that a key, whose words before the j-th are chosen, sets none of unset[w] bits of each of some words: of
// these it has taken some, and of the other words of the block so many.
func (c filterConfig) misses(unset []int, taken []bool, others, j int) (sum float64) {
	if j == len(unset) {
		return 1
	}
	for w, i := range unset {
		if !taken[w] {
			taken[w] = true
			sum += math.Pow(1-float64(i)/filterBits, float64(c.share(j))) * c.misses(unset, taken, others, j+1)
			taken[w] = false
		}
	}
	if free := c.words() - len(unset) - others; free > 0 {
		sum += float64(free) * c.misses(unset, taken, others+1, j+1)
	}
	return sum / float64(c.words()-j)
}

// distinctBits gives the probabilities that n choices of a bit of a word are of 0, 1, …, n different bits.
func distinctBits(n int) []float64 {
	p := make([]float64, n+1)
	p[0] = 1
	for range n {
		for j := n; j >= 0; j-- {
			p[j] *= float64(j) / filterBits
			if j > 0 {
				p[j] += p[j-1] * float64(filterBits-j+1) / filterBits
			}
		}
	}
	return p
}

// keysOf estimates how many different keys have set so many bits of so many blocks, and the standard error of that. A bit
// is not set if all keys miss it, so the number of keys follows from the share of bits that are not, as S. Swamidass and P.
// Baldi have it (2007) for Bloom filters without blocks. Blocks change nothing but the error, because bits of a block are
// set, or not, together.
func (c filterConfig) keysOf(blocks, set float64) (keys, wrong float64) {
	bits := blocks * float64(c.words()*filterBits)
	hit, same, other := c.hits()
	unset := max(bits-set, 0.5) // if all are set, there were so many keys at least
	each := math.Log1p(-hit / blocks)
	keys = math.Log(unset/bits) / each
	share := unset / bits
	both := func(p float64) float64 { return math.Exp(keys * math.Log1p(-p/blocks)) }
	// Pairs of a bit with itself, with those of its word, of its block and of other blocks. The last are fewer than chance
	// has them, for a key is in one block alone.
	variance := share + (filterBits-1)*both(same) + float64(c.words()-1)*filterBits*both(other) -
		bits/blocks*share*share
	if blocks > 1 {
		variance += bits * (blocks - 1) / blocks * share * share * math.Expm1(keys*(math.Log1p(-2*hit/blocks)-2*each))
	}
	return keys, math.Sqrt(max(variance*bits, 0)) / (bits * share * -each)
}

// hits are the probabilities that a key, which names a block, sets one given bit of it, or at least one of two given bits of
// one word, or of two words.
func (c filterConfig) hits() (one, same, other float64) {
	words, spread := float64(c.words()), c.spread()
	misses := func(j, bits int) float64 { return math.Pow(1-float64(bits)/filterBits, float64(c.share(j))) }
	neither := (words - float64(spread)) * (words - float64(spread) - 1) // of two words; of words·(words-1) choices
	for j := range spread {
		one += (1 - misses(j, 1)) / words
		same += (1 - misses(j, 2)) / words
		neither += 2 * (words - float64(spread)) * misses(j, 1)
		for k := range spread {
			if k != j {
				neither += misses(j, 1) * misses(k, 1)
			}
		}
	}
	return one, same, 1 - neither/max(1, words*(words-1))
}

func binomial(n, k int) float64 {
	x := 1.0
	for i := range k {
		x = x * float64(n-i) / float64(i+1)
	}
	return x
}

// Insert puts keys in: see table.Filter. For each key it does two atomic operations on one sector of 32 bytes. If
// millions of keys go into a filter much larger than the L2 cache, they are first brought in the order of its stretches,
// or of its regions: see "Filter" in the package's comment.
func (f *Filter[K]) Insert(keys []K) error {
	return f.made().frame.Batch(len(keys), []frame.Column{frame.In(keys)}, func(st *device.Stream, _, n int, addr []uint64) error {
		return f.made().frame.Writing(st, func(st *device.Stream) error { return f.made().insert(st, frame.Rows{Keys: addr[0], N: int64(n)}) })
	})
}

// InsertOn does what Insert does, with slices on the device. It queues its work and returns.
func (f *Filter[K]) InsertOn(st *device.Stream, keys device.Slice[K]) error {
	if err := f.made().frame.CheckOn("", st, keys); err != nil {
		return err
	}
	return f.made().frame.Writing(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		return f.made().insert(st, frame.Rows{Keys: keys.Addr(), N: int64(keys.Len())})
	})
}

// Contains tells for each key whether it may be in: see table.Filter. For each key it reads one sector of 32 bytes, or
// with blocks of 64 mostly two sectors that are neighbours.
func (f *Filter[K]) Contains(keys []K, found []bool) error {
	return frame.Find[K, byte](&f.made().frame, keys, nil, found, f.made().contains)
}

// ContainsOn does what Contains does, with slices on the device. It queues its work and returns.
func (f *Filter[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&f.made().frame, st, keys, device.Slice[byte]{}, found, f.made().contains)
}

// Union puts in all keys of another filter, which stays as it is. Both filters must have been made with the same Seed
// and Hash, and must have the same geometry. Filters with the same options have the same geometry. Union queues its
// work and returns. It reads both filters and writes this one, once. Errors: filters that differ, or that lie on two
// devices.
func (f *Filter[K]) Union(other *Filter[K]) error {
	x := f.made()
	if err := x.frame.Usable(); err != nil {
		return err
	}
	if other == nil || other.filter == nil {
		return errors.New("warpcore: Union with no filter")
	}
	o := other.filter
	if x == o {
		return nil
	}
	if x.cfg != o.cfg || x.t.Blocks != o.t.Blocks {
		return fmt.Errorf("warpcore: Union of filters of different make: %v, and %v (make both with the same options)", f, other)
	}
	if x.t.Seed != o.t.Seed {
		return errors.New("warpcore: Union of filters with different seeds (make both with one Seed, which by default is random)")
	}
	if err := o.frame.Locked(func() error { return o.mem.On(x.frame.Device) }); err != nil {
		return fmt.Errorf("warpcore: Union: %w", err)
	}
	return x.frame.WritingFrom(&o.frame, func(st *device.Stream) error {
		x.rows, x.foreign = x.rows+o.rows, x.foreign || o.foreign
		return x.kernel.union.Launch(st, x.grid(int64(x.mem.Len())/filterWord), &filterUnionParams{Filter: x.t, Other: o.t})
	})
}

// Hashes returns the number of bits of a key.
func (h *filterHandle) Hashes() int { return h.made().cfg.hashes }

// Expected returns the share of absent keys for which Contains will be true once the filter holds that many distinct
// keys. It uses the formula that NewFilter used: see the package's comment. Stats measures the rate of the filter as it
// is.
func (h *filterHandle) Expected(keys int) float64 {
	f := h.made()
	return f.cfg.rate().of(float64(keys) / float64(f.t.Blocks))
}

func (h *filterHandle) String() string {
	f := h.made()
	return fmt.Sprintf("%d blocks of %d bytes with %d bits a key, hash function %d", f.t.Blocks, f.cfg.block, f.cfg.hashes, f.cfg.hash)
}

// Program returns a program with a kernel of your own that works on this filter. Its source is main, which includes
// "config.h" and "filter.cuh", and names the filter's type `config`. Add your parameter struct, which holds a
// FilterTable, to the program's Layouts.
//
//	#include "config.h"
//	#include "filter.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    …warpcore::contains<config>(p.filter, key)…
//	}
func (f *Filter[K]) Program(name, main string) *device.Program {
	return f.made().cfg.program(name, main)
}

// Use runs a kernel of yours, which may insert, in order with the filter's own operations. It calls queue with the
// filter as kernels take it, and queue puts work on the stream. queue must not call the filter's methods, because they
// wait for queue.
func (f *Filter[K]) Use(st *device.Stream, queue func(FilterTable) error) error {
	return f.made().frame.Using(st, 0, nil, func(*device.Stream) error {
		f.made().foreign = true
		return queue(f.made().t)
	})
}

// grid covers n items, by lanes that go on in strides.
func (f *filter) grid(n int64) device.Grid { return f.frame.Grid(n, 8*waves) }

// tiles covers n keys by lanes that have several under way.
func (f *filter) tiles(n int64) device.Grid { return f.grid((n + filterEach - 1) / filterEach) }

func (f *filter) insert(st *device.Stream, b frame.Rows) error {
	f.rows += float64(b.N)
	if done, err := f.insertStretches(st, b); done || err != nil {
		return err
	}
	return f.kernel.partition.Place(&f.frame, st, frame.Placement{
		Regions: &f.regions, Bytes: int64(f.mem.Len()), KeyBytes: f.cfg.keyBytes, Grid: f.tiles,
		Params: func(rows frame.Partition) any {
			return &filterPartitionParams{Filter: f.t, Rows: rows}
		},
		Launch: func(g device.Grid, rows frame.Placing) error {
			return f.kernel.insert.Launch(st, g, &filterParams{Filter: f.t, Keys: rows.Keys, N: rows.N, Span: rows.Span})
		},
	}, frame.Placing{}, b)
}

func (f *filter) contains(st *device.Stream, b frame.Rows) error {
	if b.Flags == 0 {
		return nil
	}
	return f.kernel.contains.Launch(st, f.tiles(b.N), &filterParams{Filter: f.t, Keys: b.Keys, Found: b.Flags, N: uint64(b.N)})
}

// Family returns the family's name.
func (*filterHandle) Family() table.Family { return family }

// filterForm is FilterForm.Make of a filter.
type filterForm struct {
	KeyBytes int    `json:"key_bytes"`
	Block    int    `json:"block"`
	Hashes   int    `json:"hashes"`
	Hash     int    `json:"hash"`
	Seed     uint64 `json:"seed"`
	// Mueller is muellerForm where Hash is HashMueller, and is left out where it is not.
	Mueller int `json:"mueller,omitempty"`
}

// muellerForm numbers the functions that HashMueller has named: words of the first, which the forms of earlier versions
// do not number, mean nothing to the second.
const muellerForm = 2

func (c filterConfig) muellerForm() int {
	if c.hash == kernel.HashMueller {
		return muellerForm
	}
	return 0
}

// Form says which bits a key sets: see table.Filter.
func (h *filterHandle) Form() table.FilterForm {
	f := h.made()
	text, err := json.Marshal(filterForm{f.cfg.keyBytes, f.cfg.block, f.cfg.hashes, f.cfg.hash, f.t.Seed, f.cfg.muellerForm()})
	if err != nil {
		panic(err) // numbers
	}
	return table.FilterForm{Words: int64(f.t.Blocks) * int64(f.cfg.words()), Make: string(text)}
}

// NewFilterOf makes an empty filter with the Form of another filter. Errors: a Form that no filter of such keys has;
// those of NewFilter.
func NewFilterOf[K any](d *device.Device, form table.FilterForm) (*Filter[K], error) {
	var m filterForm
	text := json.NewDecoder(strings.NewReader(form.Make))
	text.DisallowUnknownFields()
	if err := text.Decode(&m); err != nil {
		return nil, fmt.Errorf("warpcore: a filter of form %q: %w", form.Make, err)
	}
	if form.Words <= 0 || form.Words > 1<<43 || m.Block == 0 || m.Hashes == 0 || m.Seed == 0 {
		return nil, fmt.Errorf("warpcore: a filter of %d words and form %q (want what Form gives)", form.Words, form.Make)
	}
	if m.Hash == kernel.HashMueller && m.Mueller != muellerForm {
		return nil, fmt.Errorf("warpcore: a filter of form %q has the HashMueller of another version of warpmap, whose words mean nothing to this one: put its keys into a new filter", form.Make)
	}
	f, err := NewFilter[K](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: filterWord * form.Words, Hash: m.Hash, Seed: m.Seed}, Block: m.Block, Hashes: m.Hashes})
	if err == nil && f.Form() != form {
		err = errors.Join(fmt.Errorf("warpcore: a filter of form %v has form %v", form, f.Form()), f.Close())
		f = nil
	}
	return f, err
}

// words is the filter's memory.
func (f *filter) words() device.Slice[uint64] {
	return device.View[uint64](f.mem, 0, f.mem.Len()/filterWord)
}

// Words calls do with all words of the filter, in chunks: see table.Filter.
func (h *filterHandle) Words(ctx context.Context, do func(words []uint64) error) error {
	f := h.made()
	return frame.Words(ctx, &f.frame, f.words(), do)
}

// SetWords copies words of another filter into this one: see table.Filter. It waits until that is done.
func (h *filterHandle) SetWords(first int64, words []uint64) error {
	f := h.made()
	return f.frame.Writing(nil, func(st *device.Stream) error {
		all := f.words()
		if first < 0 || first > int64(all.Len()) || int64(len(words)) > int64(all.Len())-first {
			return fmt.Errorf("warpcore: words %d to %d of a filter that has %d", first, first+int64(len(words)), all.Len())
		}
		f.foreign = true
		return frame.Upload(st, all.Slice(int(first), int(first)+len(words)), words)
	})
}

// Clear takes all keys out. It queues its work and returns.
func (h *filterHandle) Clear() error {
	f := h.made()
	return f.frame.Writing(nil, func(st *device.Stream) error {
		f.rows, f.foreign = 0, false
		return f.mem.Fill(st, 0)
	})
}

// Close frees the filter's memory. A second call does nothing.
func (h *filterHandle) Close() error { return h.made().frame.Close() }

// Stats measures the filter: it reads all of it. The rate is the mean of the rates of the blocks. It is exact for keys
// that were chosen without regard to what is in the filter. Keys is an estimate from the number of bits that are set, with
// its standard error: see the package's comment.
func (h *filterHandle) Stats() (s table.FilterStats, err error) {
	f := h.made()
	err = f.frame.Alone(nil, func(st *device.Stream) error {
		s, err = f.measure(st)
		return err
	})
	return s, err
}

// measure is Stats. It waits for the stream; the caller is in Writing.
func (f *filter) measure(st *device.Stream) (table.FilterStats, error) {
	shift := 63 - bits.Len64(f.t.Blocks)
	sums, err := f.frame.Histogram(st, 2, func(addr uint64) error {
		return f.kernel.stats.Launch(st, f.grid(int64(f.t.Blocks)), &filterStatsParams{Filter: f.t, Sums: addr, Shift: uint64(shift)})
	})
	if err != nil {
		return table.FilterStats{}, err
	}
	memory := table.Stats{Capacity: 1}
	f.frame.Tell(&memory, nil)
	keys, wrong := f.cfg.keysOf(float64(f.t.Blocks), float64(sums[0]))
	return table.FilterStats{
		Bits: 8 * int64(f.mem.Len()), BitsSet: int64(sums[0]), Bytes: int64(f.mem.Len()),
		Rate: math.Ldexp(float64(sums[1]), -shift) / float64(f.t.Blocks), Keys: keys, KeysError: wrong,
		StagingBytes: memory.StagingBytes, ScratchBytes: memory.ScratchBytes,
	}, nil
}

// Check downloads the filter and tests its invariants, which the package's comment lists. It is slow: use it in tests,
// or if you suspect a fault.
func (h *filterHandle) Check() error {
	f := h.made()
	return f.frame.Alone(nil, func(st *device.Stream) error { // so that what is measured is what is downloaded
		s, err := f.measure(st)
		if err != nil {
			return err
		}
		image, err := frame.Host(st, f.mem)
		if err != nil {
			return err
		}
		return f.checkImage(image, s)
	})
}

func (f *filter) checkImage(mem []byte, s table.FilterStats) error {
	var set int64
	rate, spread := 0.0, f.cfg.spread()
	for at := 0; at < len(mem); at += f.cfg.block {
		ways := make([]float64, 1<<spread) // as in filter_stats
		ways[0] = 1
		for i := range f.cfg.words() {
			n := bits.OnesCount64(kernel.Pattern(mem[at+i*filterWord:], filterWord))
			set += int64(n)
			for x := len(ways) - 1; x > 0; x-- {
				for j := range spread {
					if x>>j&1 == 1 {
						ways[x] += ways[x^1<<j] * math.Pow(float64(n)/filterBits, float64(f.cfg.share(j)))
					}
				}
			}
		}
		all := ways[len(ways)-1]
		for j := range spread {
			all /= float64(f.cfg.words() - j)
		}
		rate += all
	}
	rate *= float64(f.cfg.block) / float64(len(mem))
	switch most := f.rows * float64(f.cfg.hashes); {
	case set != s.BitsSet || math.Abs(rate-s.Rate) > 1e-6:
		return fmt.Errorf("warpcore: check: %d bits are set, for a rate of %v; the filter's own kernel says %d and %v", set, rate, s.BitsSet, s.Rate)
	case f.foreign:
		return nil
	case float64(set) > most:
		return fmt.Errorf("warpcore: check: %d bits are set, more than the %v that %v keys can set", set, most, f.rows)
	case f.rows > 0 && set == 0:
		return fmt.Errorf("warpcore: check: no bit is set by %v keys", f.rows)
	}
	return nil
}
