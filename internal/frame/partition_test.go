package frame_test

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// partitionParams are the parameters of the kernels here. The part of a key is (key·Factor) / 2³² mod Parts.
type partitionParams struct {
	Rows   frame.Partition
	Factor uint64
}

func part(key, factor, parts uint64) uint64 { return key * factor >> 32 % parts }

// partitionProgram brings columns of the given widths, in bytes, in order.
func partitionProgram(key, value, position int) *device.Program {
	types := map[int]string{2: "u16", 4: "u32", 8: "u64", 16: "u128"}
	return &device.Program{
		Name: "partition",
		Files: []device.File{{Name: "partition.cu", Text: fmt.Sprintf(`
#include "layout.h"
#include "partition.cuh"
typedef frame_test::partitionParams P;
typedef %s key;
__device__ __forceinline__ auto part_of(const P& p) {
    return [&p](key k) { return (u32)(((u64)k * p.factor >> 32) %% p.rows.parts); };
}
WARPMAP_PARTITION(P, key, %s, %s, part_of)
`, types[key], types[value], types[position])}},
		Defines: frame.PartitionDefines(),
		Layouts: []any{partitionParams{}},
	}
}

// number is the bits of a value that is made of one number, whatever its width.
type number interface {
	uint16 | uint32 | uint64 | [2]uint64
}

func numbered[T number](n uint64) (x T) {
	switch p := any(&x).(type) {
	case *uint16:
		*p = uint16(n)
	case *uint32:
		*p = uint32(n)
	case *uint64:
		*p = n<<32 | n&0xffffffff
	case *[2]uint64:
		*p = [2]uint64{n, ^n}
	}
	return x
}

// partitioned runs one partition of n rows, and compares it with the input. skip leaves so many elements of the
// columns out, so that they begin at another alignment.
func with(p *partitionParams) func(rows frame.Partition) any {
	return func(rows frame.Partition) any {
		p.Rows = rows
		return p
	}
}

func partitioned[K uint16 | uint32 | uint64, V number, I uint32 | uint64](t *testing.T, d *device.Device, k frame.Partitioner, rng *rand.Rand, n, parts, skip int) {
	t.Helper()
	keys, values := make([]K, n+skip), make([]V, n+skip)
	skew := rng.IntN(5)
	for i := range keys {
		switch x := rng.Uint64(); {
		case skew == 0: // all in one part
			keys[i] = 7
		case skew == 1 && i > 0 && rng.IntN(8) > 0: // runs
			keys[i] = keys[i-1]
		case skew == 2: // most in a few parts
			keys[i] = K(x >> (x & 31))
		default:
			keys[i] = K(x)
		}
		values[i] = numbered[V](uint64(i))
	}
	p := partitionParams{Factor: rng.Uint64() | 1}
	first := uint64(rng.IntN(2)) * (1<<32 - 5)
	dk, err := device.From(d, keys)
	must(t, err)
	dv, err := device.From(d, values)
	must(t, err)
	ok, err := device.From(d, make([]K, n+2))
	must(t, err)
	ov, err := device.From(d, make([]V, n+2))
	must(t, err)
	oi, err := device.From(d, make([]I, n+2))
	must(t, err)
	counters, err := device.Make[uint64](d, frame.PartitionWords(parts))
	must(t, err)
	defer func() {
		must(t, errors.Join(dk.Free(), dv.Free(), ok.Free(), ov.Free(), oi.Free(), counters.Free()))
	}()
	p.Rows = frame.Partition{
		Keys: dk.Slice(skip, n+skip).Addr(), N: uint64(n), First: first, Parts: uint64(parts),
		OutKeys: ok.Slice(1, n+1).Addr(),
	}
	withValues, withPositions := rng.IntN(3) > 0, rng.IntN(2) > 0
	if withValues {
		p.Rows.Values, p.Rows.OutValues = dv.Slice(skip, n+skip).Addr(), ov.Slice(1, n+1).Addr()
	}
	if withPositions {
		p.Rows.OutPositions = oi.Slice(1, n+1).Addr()
	}
	must(t, k.Run(nil, counters, p.Rows, with(&p)))

	keys, values = keys[skip:], values[skip:]
	gotKeys, err := ok.Host(nil)
	must(t, err)
	gotValues, err := ov.Host(nil)
	must(t, err)
	gotPositions, err := oi.Host(nil)
	must(t, err)
	all, err := counters.Host(nil)
	must(t, err)
	var zeroV V
	for _, i := range []int{0, n + 1} {
		if gotKeys[i] != 0 || gotValues[i] != zeroV || gotPositions[i] != 0 {
			t.Fatalf("row %d, which is not of the output, was written", i-1)
		}
	}
	gotKeys, gotValues, gotPositions = gotKeys[1:n+1], gotValues[1:n+1], gotPositions[1:n+1]

	count := make([]uint64, parts)
	for _, key := range keys {
		count[part(uint64(key), p.Factor, uint64(parts))]++
	}
	starts := []uint64{0}
	for _, c := range count {
		starts = append(starts, starts[len(starts)-1]+c)
	}
	if got := all[parts:]; !slices.Equal(got, starts) {
		t.Fatalf("parts start at %v, want %v", got, starts)
	}
	if got := all[:parts]; !slices.Equal(got, starts[1:]) {
		t.Fatalf("parts end at %v, want %v", got, starts[1:])
	}
	seen := make([]bool, n)
	for q := range parts {
		for j := starts[q]; j < starts[q+1]; j++ {
			key := gotKeys[j]
			if part(uint64(key), p.Factor, uint64(parts)) != uint64(q) {
				t.Fatalf("row %d of the output is of part %d, its key %d is of another", j, q, key)
			}
			if !withPositions {
				continue
			}
			i := uint64(gotPositions[j]-I(first)) & uint64(^I(0))
			if i >= uint64(n) || seen[i] || keys[i] != key || withValues && gotValues[j] != values[i] {
				t.Fatalf("row %d of the output, key %d, value %v, says it was at %d", j, key, gotValues[j], i)
			}
			seen[i] = true
		}
	}
	if withPositions {
		return
	}
	// Without positions: the same rows, in any order, if the sums of their hashes are equal. A Go map of 10 million rows takes
	// several seconds, and there are fifty of these tests.
	type row struct {
		k K
		v V
	}
	seed, left := maphash.MakeSeed(), uint64(0)
	for i, key := range keys {
		r := row{k: key}
		if withValues {
			r.v = values[i]
		}
		left += maphash.Comparable(seed, r) - maphash.Comparable(seed, row{gotKeys[i], gotValues[i]})
	}
	if left != 0 {
		t.Fatalf("the rows of the output are not those of the input")
	}
}

// run runs partitions of many sizes.
func run[K uint16 | uint32 | uint64, V number, I uint32 | uint64](t *testing.T, d *device.Device, seed uint64, most int) {
	t.Helper()
	var k K
	var v V
	var i I
	size := func(x any) int {
		switch x.(type) {
		case uint16:
			return 2
		case uint32:
			return 4
		case uint64:
			return 8
		}
		return 16
	}
	m, err := d.Compile(partitionProgram(size(k), size(v), size(i)))
	must(t, err)
	kernels, err := frame.NewPartitioner[partitionParams](d, m)
	must(t, err)
	rng := rand.New(rand.NewPCG(seed, 1))
	lengths := []int{0, 1, 31, 33, 256, 1023, 1024, 4096, 4097, most}
	counts := []int{1, 2, 3, 32, 255, 256, 257, 1000, frame.MaxParts}
	for range 12 {
		n := lengths[rng.IntN(len(lengths))]
		if rng.IntN(2) == 0 {
			n = rng.IntN(most + 1)
		}
		n, parts, skip := min(n, most), counts[rng.IntN(len(counts))], rng.IntN(3)
		if !t.Run(fmt.Sprintf("seed=%d/rows=%d/parts=%d/skip=%d", seed, n, parts, skip), func(t *testing.T) {
			partitioned[K, V, I](t, d, kernels, rng, n, parts, skip)
		}) {
			return
		}
	}
}

func TestPartition(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			defer d.Close()
			most := 50_000
			if !testenv.Long() {
				most = 15_000
			}
			if d.Info().CUDA() && !testenv.Small() {
				most = 4_000_000 // several tiles for each block that is resident
			}
			seed := rand.Uint64()
			run[uint32, uint32, uint32](t, d, seed, most)
			run[uint32, uint64, uint32](t, d, seed, most)
			run[uint32, [2]uint64, uint64](t, d, seed, most)
			run[uint64, uint32, uint64](t, d, seed, most)
			run[uint64, uint64, uint32](t, d, seed, most)
			run[uint64, [2]uint64, uint64](t, d, seed, most)
			run[uint16, uint16, uint32](t, d, seed, most)
			run[uint16, [2]uint64, uint64](t, d, seed, most)
			run[uint64, uint16, uint32](t, d, seed, most)
		})
	}
}

// Tiles are smaller where a block has less shared memory.
func TestPartitionInLittleShared(t *testing.T) {
	testenv.LittleShared(t, 48<<10)
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	seed := rand.Uint64()
	run[uint64, uint64, uint32](t, d, seed, 9000)
	run[uint64, [2]uint64, uint64](t, d, seed, 5000)
}

func TestPartitionUnderStress(t *testing.T) {
	for seed := range uint64(4) {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		run[uint32, uint32, uint32](t, d, seed, 9000)
		run[uint64, [2]uint64, uint64](t, d, seed, 3000)
		must(t, d.Close())
	}
}

// A partition into no parts, or more than counters were given for, is refused.
func TestPartitionRefuses(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	m, err := d.Compile(partitionProgram(4, 4, 4))
	must(t, err)
	k, err := frame.NewPartitioner[partitionParams](d, m)
	must(t, err)
	counters, err := device.Make[uint64](d, frame.PartitionWords(frame.MaxParts))
	must(t, err)
	for _, parts := range []int{0, frame.MaxParts + 1} {
		p := partitionParams{Rows: frame.Partition{Parts: uint64(parts)}}
		if k.Run(nil, counters, p.Rows, with(&p)) == nil {
			t.Errorf("%d parts: no error", parts)
		}
	}
	p := partitionParams{Rows: frame.Partition{Parts: 8}}
	if k.Run(nil, counters.Slice(0, frame.PartitionWords(8)-1), p.Rows, with(&p)) == nil {
		t.Error("too few counters: no error")
	}
}

func TestPartitionCompilesForGPUs(t *testing.T) {
	for i, w := range testenv.Some([][3]int{{8, 8, 8}, {4, 4, 4}, {2, 2, 4}, {8, 16, 8}, {4, 16, 4}, {8, 2, 4}}, 1) {
		arch := []string{"sm_75", "sm_70", "sm_80", "sm_90"}[i%4]
		t.Run(fmt.Sprint(arch, w), func(t *testing.T) {
			_, err := device.CompileFor(arch, partitionProgram(w[0], w[1], w[2]))
			if errors.Is(err, device.ErrNoNVRTC) {
				testenv.RequireNVRTC(t, err)
			}
			must(t, err)
		})
	}
}
