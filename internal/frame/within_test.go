package frame_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
)

// withinParams are the parameters of the kernels here. The part of a key is (key·Factor) / 2³² mod Total, over Each.
type withinParams struct {
	Rows                frame.Partition
	Factor, Total, Each uint64
}

func withinProgram(bits int) *device.Program {
	return &device.Program{
		Name: "within",
		Files: []device.File{{Name: "within.cu", Text: fmt.Sprintf(`
#include "layout.h"
#include "partition.cuh"
typedef frame_test::withinParams P;
typedef u%d key;
__device__ __forceinline__ auto part_of(const P& p) {
    return [&p](key k) { return (u32)(((u64)k * p.factor >> 32) %% p.total / p.each); };
}
WARPMAP_PARTITION(P, key, key, u32, part_of)
WARPMAP_PARTITION_WITHIN(P, key, key, part_of)
`, bits)}},
		Defines: frame.PartitionDefines(),
		Layouts: []any{withinParams{}},
	}
}

// inTwoPasses brings n rows in the order of regions·within parts, and compares them with the input.
func inTwoPasses[K uint32 | uint64](t *testing.T, d *device.Device, m *device.Module, rng *rand.Rand, n, regions, within int) {
	t.Helper()
	k, err := frame.NewPartitioner[withinParams](d, m)
	must(t, err)
	w, err := frame.NewWithin[withinParams](m)
	must(t, err)
	keys, values := make([]K, n), make([]K, n)
	skew, left := rng.IntN(4), map[[2]K]int{}
	for i := range keys {
		keys[i], values[i] = K(rng.Uint64()), K(i)
		switch {
		case skew == 0: // all in one part
			keys[i] = 9
		case skew == 1: // few parts, of which most larger ones have none
			keys[i] %= 7
		}
		left[[2]K{keys[i], values[i]}]++
	}
	var columns [6]device.Slice[K]
	for i, x := range [][]K{keys, values, make([]K, n), make([]K, n), make([]K, n), make([]K, n)} {
		columns[i], err = device.From(d, x)
		must(t, err)
		defer columns[i].Free()
	}
	parts := regions * within
	counters, err := device.Make[uint64](d, frame.PartitionWords(regions)+frame.PartitionWords(parts))
	must(t, err)
	defer counters.Free()
	p := withinParams{Factor: rng.Uint64() | 1, Total: uint64(parts), Each: uint64(within)}
	params := func(rows frame.Partition) any {
		p.Rows = rows
		return &p
	}
	rows := frame.Partition{Keys: columns[0].Addr(), Values: columns[1].Addr(), N: uint64(n), OutKeys: columns[2].Addr(), OutValues: columns[3].Addr(), Parts: uint64(regions)}
	// Half of the times rows go from the first pass to the second as pairs, and half of those come out as pairs.
	pairs, err := device.Make[K](d, 4*n)
	must(t, err)
	defer pairs.Free()
	how := rng.IntN(4)
	if how < 2 {
		rows.OutKeys, rows.Paired = pairs.Addr(), frame.PairedOut
	}
	must(t, k.Run(nil, counters, rows, params))
	p.Each = 1
	rows = frame.Partition{Keys: columns[2].Addr(), Values: columns[3].Addr(), N: uint64(n), OutKeys: columns[4].Addr(), OutValues: columns[5].Addr(), Parts: uint64(parts), Within: uint64(within), Larger: counters.Addr() + uint64(8*regions)}
	small := counters.Slice(frame.PartitionWords(regions), counters.Len())
	out := pairs.Slice(2*n, 4*n)
	if how < 2 {
		rows.Keys, rows.Paired = pairs.Addr(), frame.PairedIn
	}
	if how == 0 {
		rows.OutKeys, rows.Paired = out.Addr(), frame.PairedIn|frame.PairedOut
	}
	must(t, k.RunWithin(nil, w, small, rows, params))
	got, err := columns[4].Host(nil)
	must(t, err)
	gotValues, err := columns[5].Host(nil)
	must(t, err)
	if how == 0 {
		both, err := out.Host(nil)
		must(t, err)
		for i := range n {
			got[i], gotValues[i] = both[2*i], both[2*i+1]
		}
	}
	words, err := small.Host(nil)
	must(t, err)
	starts := words[parts:]
	if starts[0] != 0 || starts[parts] != uint64(n) {
		t.Fatalf("%d rows, of parts that begin at %d and end at %d", n, starts[0], starts[parts])
	}
	for q := range parts {
		for j := starts[q]; j < starts[q+1]; j++ {
			if want := part(uint64(got[j]), p.Factor, uint64(parts)); want != uint64(q) {
				t.Fatalf("row %d of the output is of part %d, its key %d of %d", j, q, got[j], want)
			}
			pair := [2]K{got[j], gotValues[j]}
			if left[pair]--; left[pair] < 0 {
				t.Fatalf("row %d of the output, %d, is not of the input, or once too often", j, pair)
			}
		}
	}
}

// Two passes make many parts, whatever the keys.
func TestPartitionWithin(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			m4, err := d.Compile(withinProgram(32))
			must(t, err)
			m8, err := d.Compile(withinProgram(64))
			must(t, err)
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for _, n := range []int{1, 700, 2048, 2049, 30_000} {
				if d.Info().CUDA() && !testenv.Small() {
					n *= 300
				} else if !testenv.Long() {
					n = min(n, 10_000)
				}
				for _, x := range [][2]int{{1, 1}, {3, 5}, {128, 128}, {2, frame.MaxParts}, {frame.MaxParts, 2}, {frame.MaxParts, 1}, {7, frame.MaxParts/2 + 1}} {
					inTwoPasses[uint32](t, d, m4, rng, n, x[0], x[1])
					if n > 2048 {
						inTwoPasses[uint64](t, d, m8, rng, n, x[0], x[1])
					}
				}
			}
		})
	}
	d, err := device.Open("cpu", device.WithStress(1))
	must(t, err)
	defer d.Close()
	m, err := d.Compile(withinProgram(32))
	must(t, err)
	for seed := range uint64(4) {
		inTwoPasses[uint32](t, d, m, rand.New(rand.NewPCG(seed, 2)), 5000, 32, 16)
	}
}

// Rows that are brought in the order of parts within others need to say how many, and tell no positions.
func TestPartitionWithinRefuses(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	m, err := d.Compile(withinProgram(32))
	must(t, err)
	k, err := frame.NewPartitioner[withinParams](d, m)
	must(t, err)
	w, err := frame.NewWithin[withinParams](m)
	must(t, err)
	counters, err := device.Make[uint64](d, frame.PartitionWords(12))
	must(t, err)
	defer counters.Free()
	for _, rows := range []frame.Partition{
		{Parts: 12, Larger: 8}, {Parts: 12, Within: 5, Larger: 8}, {Parts: 2 * (frame.MaxParts + 1), Within: frame.MaxParts + 1, Larger: 8}, {Parts: 24, Within: 2, Larger: 8},
		{Parts: 12, Within: 2, Larger: 8, OutPositions: 4}, {Within: 2, Larger: 8}, {Parts: 12, Within: 2},
	} {
		if k.RunWithin(nil, w, counters, rows, func(frame.Partition) any { return &withinParams{} }) == nil {
			t.Errorf("%+v: no error", rows)
		}
	}
}

// What table compiles itself compiles for GPUs.
func TestOwnProgramsCompileForGPUs(t *testing.T) {
	for i, p := range testenv.Some([]*device.Program{withinProgram(32), frame.DistinctProgram(32), frame.OuterProgram(), withinProgram(64),
		frame.DistinctProgram(4), frame.OuterProgram()}, 3) {
		_, err := device.CompileFor([]string{"sm_70", "sm_90"}[i%2], p)
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}
