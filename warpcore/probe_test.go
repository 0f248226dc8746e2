package warpcore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
)

// probeTestParams are the parameters of the kernel below: it writes Steps probeSteps for each key. No table stands
// behind Table, so its regions may be of any size.
type probeTestParams struct {
	Table Table
	Keys  uint64 // two words each
	Out   uint64
	N     uint64
	Steps uint64
}

type probeStep struct {
	Stored, StoredHigh, First, Window, WindowAddress, SlotIndex, WordAddress, OverflowBit uint64
}

const probeKernel = `
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
using namespace warpcore;
__device__ u32 key_of(u64 lo, u64, u32) { return (u32)lo; }
__device__ u64 key_of(u64 lo, u64, u64) { return lo; }
__device__ u128 key_of(u64 lo, u64 hi, u128) { return u128{lo, hi}; }
__device__ u64 high_of(u64) { return 0; }
__device__ u64 high_of(u128 k) { return k.hi; }
__device__ u64 low_of(u64 k) { return k; }
__device__ u64 low_of(u128 k) { return k.lo; }
WARPMAP_KERNEL(probe, warpcore::probeTestParams) {
    u64 i = grid_thread();
    if (i >= p.n) return;
    Probe<config> q(p.table, key_of(at<u64>(p.keys)[2 * i], at<u64>(p.keys)[2 * i + 1], config::key()));
    for (u64 s = 0; s < p.steps; s++) {
        u64 index = q.slot_index(config::WINDOW - 1);
        at<warpcore::probeStep>(p.out)[i * p.steps + s] = warpcore::probeStep{low_of(q.stored), high_of(q.stored), q.first_slot(), q.window, q.window_address(), index,
            (u64)Access<config>::word_at(q.slots, index), q.overflow_bit()};
        q.advance(s + 1);
    }
}`

// Go's probe sequence is the kernels', and neither loses bits where a table has more than 2³² windows.
func TestProbeTwin(t *testing.T) {
	t.Parallel()
	const steps = 2*multiTurn + 4
	rng := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, cfg := range []config{
			{keyBytes: 4, valueBytes: 4, layout: Packed, window: 8},
			{keyBytes: 8, valueBytes: 16, layout: AoS, window: 1, hash: kernel.HashMueller},
			{keyBytes: 8, valueBytes: 8, layout: SoA, window: 32, hash: kernel.HashIdentity},
			{keyBytes: 16, layout: Packed, window: 4},
			{keyBytes: 4, valueBytes: 4, layout: SoA, window: 4, far: true},
			config{keyBytes: 4, valueBytes: 4, layout: Packed, window: 8}.ofMultimap(),
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, cfg), func(t *testing.T) {
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				defer d.Close()
				c := &core{cfg: cfg, opts: Options{InsertGroup: 1, FindGroup: 1}}
				p := c.program("probe", probeKernel)
				p.Layouts = append(p.Layouts, probeTestParams{}, probeStep{})
				m, err := d.Compile(p)
				must(t, err)
				k, err := device.KernelOf[probeTestParams](m, "probe")
				must(t, err)

				keys := []uint64{0, 1, ^uint64(0), ^uint64(1), ^uint64(2), ^uint64(3), 1<<32 - 1, 1<<32 - 2, 1<<32 - 3, 1<<32 - 4}
				for len(keys) < 300 {
					keys = append(keys, rng.Uint64()>>(rng.UintN(64)))
				}
				var words []keyBits
				for i, k := range keys {
					words = append(words, keyBits{lo: k})
					if cfg.keyBytes == 16 {
						words[i].hi = []uint64{0, ^uint64(0), rng.Uint64()}[i%3]
					}
				}
				in, err := device.From(d, words)
				must(t, err)
				out, err := device.Make[probeStep](d, steps*len(keys))
				must(t, err)
				for _, windows := range []uint64{1, 2, 3, 7919, 4294967311, 1099511627791, 16 * 3, 512 * 5, 512 * 2147483659} {
					table := Table{Main: Region{Slots: 1 << 40, Windows: windows}, Side: Region{Slots: 1 << 20, Windows: 2}, Seed: rng.Uint64()}
					must(t, k.Launch(nil, device.GridFor(int64(len(keys)), 32), &probeTestParams{
						Table: table, Keys: in.Addr(), Out: out.Addr(), N: uint64(len(keys)), Steps: steps,
					}))
					got, err := out.Host(nil)
					must(t, err)
					var want []probeStep
					for _, key := range words {
						q := cfg.probe(&table, key)
						region := table.Main
						if q.side {
							region = table.Side
						}
						for range steps {
							index := q.window*uint64(cfg.window) + uint64(cfg.window-1)
							want = append(want, probeStep{
								Stored: q.stored.lo, StoredHigh: q.stored.hi, First: q.first, Window: q.window, SlotIndex: index,
								WindowAddress: region.Slots + q.window*uint64(cfg.window*cfg.slotBytes()),
								WordAddress:   region.Slots + index*uint64(cfg.slotBytes()),
								OverflowBit:   q.window*cfg.overflowBits() + q.overflow,
							})
							q.advance()
						}
					}
					if !slices.Equal(want, got) {
						t.Fatalf("%d windows (-Go +kernel):\n%s", windows, cmp.Diff(want, got))
					}
				}
			})
		}
	}
}

// A probe sequence visits every window, and its first windows are in one neighbourhood. Of a multimap, whose chains leave it
// at once, each comes once before one comes again.
func TestProbeVisitsAll(t *testing.T) {
	for _, slots := range []int64{1, 5, 9, 100, 3000} {
		for _, cfg := range []config{{keyBytes: 8, valueBytes: 8, window: 4}, {keyBytes: 8, valueBytes: 8, window: 4, far: true},
			{keyBytes: 8, valueBytes: 8, window: 4, far: true, around: 64, least: 5}} {
			windows := uint64(cfg.windowsFor(slots))
			if int64(windows)*4 < slots {
				t.Fatalf("%d windows for %d slots", windows, slots)
			}
			for key := range uint64(50) {
				q := cfg.probe(&Table{Main: Region{Windows: windows}}, keyBits{lo: key})
				seen, home := map[uint64]bool{}, q.window/neighbourhood
				whole := (home+1)*neighbourhood <= windows
				for number := range cfg.longest(windows) {
					near := number < uint64(cfg.near())
					switch {
					case q.window >= windows, near && q.window/neighbourhood != home:
						t.Fatalf("%d windows, key %d: window %d", windows, key, q.window)
					case seen[q.window] && (cfg.far || near && whole):
						t.Fatalf("%d windows, key %d: window %d comes twice", windows, key, q.window)
					}
					seen[q.window] = true
					q.advance()
				}
				if len(seen) != int(windows) {
					t.Fatalf("%d windows, key %d: %d are visited", windows, key, len(seen))
				}
			}
		}
	}
}

const roundsKernel = `
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
using namespace warpcore;
WARPMAP_KERNEL(rounds, warpcore::probeTestParams) {
    u64 i = grid_thread();
    if (i >= p.n) return;
    u32 wrong = 0;
    Probe<config> q(p.table, (config::key)at<u64>(p.keys)[i]), to = q;
    for (u64 n = 0; n < q.windows + p.steps; n++, q.advance(n)) {
        to.go_to(n);
        wrong += to.window != q.window;
        wrong += q.number_of(q.window) != n % q.windows;
        const u32 on[] = {1, 4, 8, 32};
        for (int j = 0; j < 4; j++) {
            Probe<config> further = q;
            further.onward(n, on[j], on[j] / q.turn(), q.stride(on[j] / q.turn()));
            to.go_to(n + on[j]);
            wrong += to.window != further.window;
        }
    }
    at<u64>(p.out)[i] = wrong;
}`

// Where a window stands in a chain that goes round among neighbourhoods is computed both ways, as the chain goes.
func TestChainsGoRound(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		c := &core{cfg: config{keyBytes: 4, valueBytes: 4, layout: Packed, window: 8}.ofMultimap(), opts: Options{InsertGroup: 1, FindGroup: 1}}
		p := c.program("rounds", roundsKernel)
		p.Layouts = append(p.Layouts, probeTestParams{})
		m, err := d.Compile(p)
		must(t, err)
		k, err := device.KernelOf[probeTestParams](m, "rounds")
		must(t, err)
		keys := make([]uint64, 40)
		for i := range keys {
			keys[i] = uint64(i)
		}
		in, err := device.From(d, keys)
		must(t, err)
		for _, windows := range []uint64{1, 2, 3, 7919, 2 * 3, 16 * 5, 32 * 7, 64 * 7, 512 * 3, 512 * 11} {
			out, err := device.Make[uint64](d, len(keys))
			must(t, err)
			must(t, k.Launch(nil, device.GridFor(int64(len(keys)), 32), &probeTestParams{Table: Table{Main: Region{Windows: windows}, Side: Region{Windows: 1}, Seed: windows},
				Keys: in.Addr(), Out: out.Addr(), N: uint64(len(keys)), Steps: 70}))
			wrong, err := out.Host(nil)
			must(t, err)
			for i, n := range wrong {
				if n > 0 {
					t.Errorf("%d windows, key %d: %d wrong", windows, i, n)
				}
			}
		}
	})
}

// The histogram of Stats against a count in Go over the table's memory.
func TestStatsCountProbes(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, uint32](d, Options{Options: tableOptions(3000, 1), Window: 1, InsertGroup: 1, FindGroup: 32})
	must(t, err)
	keys := make([]uint32, 3000)
	for i := range keys {
		keys[i] = uint32(i) - 5
	}
	must(t, m.Insert(keys, keys))
	if _, err := m.Delete(keys[:100], nil); err != nil {
		t.Fatal(err)
	}
	s, err := m.Stats()
	must(t, err)
	im := imageOf(t, m.core)
	var want [16]int
	sum, live, most := 0, 0, 0
	im.each(func(side bool, slot, key uint64) {
		p := im.cfg.probe(&im.t, keyBits{lo: key})
		n := 1
		for ; p.window != slot/uint64(im.cfg.window); n++ {
			p.advance()
		}
		want[min(n, 16)-1]++
		sum += n
		live++
		most = max(most, n)
	})
	if diff := cmp.Diff(want, s.Probes); diff != "" {
		t.Errorf("probe lengths (-want +got):\n%s", diff)
	}
	if live != 2900 || s.MeanProbes != float64(sum)/float64(live) || s.MaxProbes < most || s.Tombstones != 100 {
		t.Errorf("%d pairs take %d probes, %d at most: %+v", live, sum, most, s)
	}
}
