package frame_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
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
    return [&p](key k) { return (u32)(((u64)k * p.factor >> 32) %% p.total / p.each) - (u32)p.rows.from; };
}
WARPMAP_PARTITION(P, key, key, u32, part_of)
WARPMAP_PARTITION_WITHIN(P, key, key, part_of)
WARPMAP_PARTITION_SOME(P, key, key, part_of)
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
	skew, seen := rng.IntN(4), make([]bool, n)
	for i := range keys {
		keys[i], values[i] = K(rng.Uint64()), K(i)
		switch {
		case skew == 0: // all in one part
			keys[i] = 9
		case skew == 1: // few parts, of which most larger ones have none
			keys[i] %= 7
		}
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
			i := uint64(gotValues[j])
			if i >= uint64(n) || seen[i] || keys[i] != got[j] {
				t.Fatalf("row %d of the output, key %d with value %d, is not of the input, or once too often", j, got[j], i)
			}
			seen[i] = true
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
					n *= 40
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

// inRanges brings n rows in the order of regions·within parts, about pieceRows at a time, and compares them with the input. It gives the number of ranges;
// 0 if there was none, because the parts are uneven, or memory is short.
func inRanges[K uint32 | uint64](t *testing.T, d *device.Device, m *device.Module, rng *rand.Rand, n, regions, within, pieceRows int64, same, values bool) (ranges int64) {
	t.Helper()
	k, err := frame.NewPartitioner[withinParams](d, m)
	must(t, err)
	w, err := frame.NewRanges[withinParams](m)
	must(t, err)
	var f frame.Frame
	must(t, f.Open("ranges", d, func() error { return nil }, f.Spare))
	defer f.Close()
	columns, seen, left := [2][]K{make([]K, n), make([]K, n)}, make([]bool, n), map[K]int{}
	for i := range n {
		if columns[0][i] = K(rng.Uint64()); same {
			columns[0][i] = 9
		}
		if values {
			columns[1][i] = K(i)
		} else {
			left[columns[0][i]]++
		}
	}
	keys, err := device.From(d, columns[0])
	must(t, err)
	defer keys.Free()
	in := frame.Rows{Keys: keys.Addr(), N: n}
	if values {
		v, err := device.From(d, columns[1])
		must(t, err)
		defer v.Free()
		in.Values = v.Addr()
	}
	parts := regions * within
	p := withinParams{Factor: rng.Uint64() | 1, Total: uint64(parts)}
	bytes := len(fmt.Sprintf("%b", ^K(0))) / 8
	x := frame.Placement{Regions: &frame.Regions{MinRows: 4 * n, PieceRows: pieceRows, MemoryShare: 1}, KeyBytes: bytes, ValueBytes: bytes, Params: func(rows frame.Partition) any {
		if p.Rows, p.Each = rows, 1; rows.Within == 0 {
			p.Each = uint64(within)
		}
		return &p
	}}
	if same {
		x.Regions.MinRows = 1
	}
	next, rows := int64(0), int64(0)
	host := func(addr uint64, n int64) []K {
		s, err := device.Wrap[K](d, addr, int(n))
		must(t, err)
		defer s.Free()
		x, err := s.Host(nil)
		must(t, err)
		return x
	}
	var spare []K // what is written there stays
	must(t, f.Writing(nil, func(st *device.Stream) error {
		done, err := k.InRanges(&f, st, w, x, in, regions, within, func(r frame.PartRange) error {
			got, gotValues := host(r.Rows.Keys, r.Rows.N), make([]K, r.Rows.N)
			if values {
				gotValues = host(r.Rows.Values, r.Rows.N)
			}
			starts, err := r.Starts.Host(st)
			must(t, err)
			if r.First != next || r.Parts%within != 0 || int64(len(starts)) != r.Parts+1 || starts[0] != 0 || int64(starts[r.Parts]) != r.Rows.N || r.Last != (r.First+r.Parts == parts) {
				t.Fatalf("%d parts from %d on, not from %d, last: %t; %d rows, of parts that begin at %d", r.Parts, r.First, next, r.Last, r.Rows.N, starts)
			}
			for q := range r.Parts {
				for j := starts[q]; j < starts[q+1]; j++ {
					if want := part(uint64(got[j]), p.Factor, uint64(parts)); want != uint64(r.First+q) {
						t.Fatalf("row %d of the output is of part %d, its key %d of %d", j, r.First+q, got[j], want)
					}
					i, fits := uint64(gotValues[j]), false
					if values {
						fits = i < uint64(n) && !seen[i] && columns[0][i] == got[j]
						seen[min(i, uint64(n-1))] = true
					} else {
						left[got[j]]--
						fits = left[got[j]] >= 0
					}
					if !fits {
						t.Fatalf("row %d of the output, key %d with value %d, is not of the input, or once too often", j, got[j], i)
					}
				}
			}
			for _, addr := range []uint64{r.Spare.Keys, r.Spare.Values} {
				if x := host(addr, r.Spare.N); ranges > 0 && !slices.Equal(x, spare) {
					t.Fatalf("range %d wrote to spare columns", ranges)
				}
				if spare == nil {
					spare = make([]K, r.Spare.N)
					for i := range spare {
						spare[i] = K(i + 1)
					}
				}
				s, err := device.Wrap[K](d, addr, len(spare))
				must(t, err)
				must(t, errors.Join(s.Write(st, spare), s.Free()))
			}
			next, rows, ranges = r.First+r.Parts, rows+r.Rows.N, ranges+1
			return nil
		})
		if done != (ranges > 0) || done && (next != parts || rows != n) {
			t.Errorf("done: %t, %d ranges with %d parts of %d, %d rows of %d", done, ranges, next, parts, rows, n)
		}
		return err
	}))
	return ranges
}

// Range by range, all rows come once, in the order of their parts.
func TestInRanges(t *testing.T) {
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
			n := int64(30_000)
			if d.Info().CUDA() && !testenv.Small() {
				n *= 20 // many blocks; Go maps of more rows take minutes
			}
			for i, x := range [][3]int64{{1, 16, 4}, {5, 3, n}, {100, 64, n / 2}, {100, 64, n / 7}, {frame.MaxParts, 1, n / 40}, {37, 2, 1}} {
				ranges := inRanges[uint32](t, d, m4, rng, n, x[0], x[1], x[2], false, i > 0)
				if want := min(x[0], (n-1)/x[2]+1); ranges == 0 || ranges > want || ranges < want-want/4 {
					t.Errorf("%d parts of %d, %d rows of %d at once: %d ranges, want about %d", x[0], x[1], x[2], n, ranges, want)
				}
				inRanges[uint64](t, d, m8, rng, n+1, x[0], x[1], x[2], false, i < 5)
			}
			if ranges := inRanges[uint32](t, d, m4, rng, n, 100, 64, n/2, true, true); ranges > 0 {
				t.Errorf("all rows are of one part, and came in %d ranges", ranges)
			}
		})
	}
	d, err := device.Open("cpu", device.WithStress(1))
	must(t, err)
	defer d.Close()
	m, err := d.Compile(withinProgram(32))
	must(t, err)
	for seed := range uint64(4) {
		inRanges[uint32](t, d, m, rand.New(rand.NewPCG(seed, 2)), 5000, 32, 16, 700, false, true)
	}
}

// A partition in two passes launches nothing after a call that failed: the second pass would scatter rows by counts of
// other keys, past the end of its columns.
func TestTwoPassesEndAtTheFirstError(t *testing.T) {
	d := openCPU(t)
	m, err := d.Compile(withinProgram(32))
	must(t, err)
	k, err := frame.NewPartitioner[withinParams](d, m)
	must(t, err)
	w, err := frame.NewWithin[withinParams](m)
	must(t, err)
	const n, regions, within = 3000, 8, 4
	keys, err := device.From(d, oddNumbers(n))
	must(t, err)
	defer keys.Free()
	p := withinParams{Factor: 0x9e3779b1, Total: regions * within}
	x := frame.Placement{Regions: &frame.Regions{MinRows: 1 << 30, PieceRows: n, MemoryShare: 8}, KeyBytes: 4, Params: func(rows frame.Partition) any {
		if p.Rows, p.Each = rows, 1; rows.Within == 0 {
			p.Each = within
		}
		return &p
	}}
	for _, site := range []faults.Site{faults.Alloc, faults.Load, faults.Launch, faults.CopyWithin, faults.CopyOut, faults.Sync} {
		for at := int64(1); ; at++ {
			var f frame.Frame
			must(t, f.Open("two passes", d, func() error { return nil }, f.Spare))
			calls := faults.Counter{Site: site, N: at, Outcome: faults.Fails}
			faults.Set(d, calls.Order)
			err := f.Writing(nil, func(st *device.Stream) error {
				_, err := k.InFineOrder(&f, st, w, x, frame.Rows{Keys: keys.Addr(), N: n}, regions, within,
					func(frame.Ordered, device.Slice[uint64], frame.Rows) error { return nil })
				return err
			})
			faults.Set(d, nil)
			must(t, f.Close())
			if !calls.Met() {
				must(t, err)
				if at == 1 {
					t.Errorf("no call of %v is made", site)
				}
				break
			}
			if site != faults.Alloc && !errors.As(err, new(*faults.Error)) {
				t.Errorf("%v %d fails, and the error is %v", site, at, err)
			}
			if n := calls.Later(); n > 0 {
				t.Errorf("%v %d fails, and %d launches follow", site, at, n)
			}
		}
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
		_, err := device.CompileFor([]string{"sm_75", "sm_90"}[i%2], p)
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}
