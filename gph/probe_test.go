package gph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// twinParams are the parameters of the kernel below. No table stands behind Table, so it may be of any size.
type twinParams struct {
	Table Table
	Keys  uint64
	Codes uint64
	Out   uint64 // u64, four a key: stored, cell, bits, bucket
	N     uint64
}

const twinKernel = `
#include "config.h"
#include "gph.cuh"
#include "layout.h"
WARPMAP_KERNEL(twin, gph::twinParams) {
    u64 i = grid_thread();
    if (i >= p.n) return;
    gph::Home<config> h(p.table, (config::key)at<u64>(p.keys)[i]);
    u64* out = at<u64>(p.out) + 4 * i;
    out[0] = h.stored;
    out[1] = h.cell(p.table);
    out[2] = h.bits;
    out[3] = gph::bucket_of<config>(p.table, h, at<u32>(p.codes)[i]);
}`

// Go knows where a key belongs as the kernels do, in tables of any size.
func TestTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, cfg := range []config{
			{keyBytes: 2, valueBytes: 2, bucket: 16, virtual: 2, cellBytes: 1, packed: true},
			{keyBytes: 4, valueBytes: 4, bucket: 8, virtual: 32, cellBytes: 1, packed: true, hash: kernel.HashMueller},
			{keyBytes: 8, valueBytes: 16, bucket: 4, virtual: 8, cellBytes: 2, hash: kernel.HashIdentity},
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, cfg), func(t *testing.T) {
				d := open(t, name)
				c := &core{cfg: cfg, opts: Options{InsertGroup: 1, FindGroup: 1}}
				p := c.program("twin", twinKernel)
				p.Layouts = append(p.Layouts, twinParams{})
				m, err := d.Compile(p)
				must(t, err)
				k, err := device.KernelOf[twinParams](m, "twin")
				must(t, err)

				mask := cfg.mask()
				keys := []uint64{0, 1, mask, mask - 1, mask - 2, mask - 3, mask - 4, mask - 5}
				for len(keys) < 3000 {
					keys = append(keys, rng.Uint64()>>rng.UintN(64)&mask)
				}
				codes := make([]uint32, len(keys))
				for i := range codes {
					codes[i] = rng.Uint32N(1 << (8 * cfg.cellBytes))
					if i%5 == 0 { // the last mapping, which is the reserve
						codes[i] |= uint32(cfg.mappings()-1) * uint32(cfg.virtual)
					}
				}
				in, err := device.From(d, keys)
				must(t, err)
				with, err := device.From(d, codes)
				must(t, err)
				out, err := device.Make[uint64](d, 4*len(keys))
				must(t, err)
				for _, size := range []Table{
					{Stretches: 1, StretchBuckets: 32, StretchCells: 1},
					{Stretches: 1, StretchBuckets: 33, StretchCells: 7},
					{Stretches: 8, StretchBuckets: 125, StretchCells: 6, Reserve: 64},
					{Stretches: 5 << 20, StretchBuckets: 1 << 10, StretchCells: 819, Reserve: 5 << 24},
				} {
					size.Seed = rng.Uint64()
					size.Main = uint64(size.Stretches) * uint64(size.StretchBuckets)
					size.CellCount = uint64(size.Stretches) * uint64(size.StretchCells)
					must(t, k.Launch(nil, device.GridFor(int64(len(keys)), 32), &twinParams{
						Table: size, Keys: in.Addr(), Codes: with.Addr(), Out: out.Addr(), N: uint64(len(keys)),
					}))
					got, err := out.Host(nil)
					must(t, err)
					var want []uint64
					for i, key := range keys {
						h := cfg.home(&size, key)
						b := cfg.bucketOf(&size, h, codes[i])
						if reserve := codes[i]>>log2(cfg.virtual) == uint32(cfg.mappings()-1) && size.Reserve > 0; !h.side && reserve != (b >= size.Main) || b > size.Main+size.Reserve {
							t.Fatalf("%+v: key %#x with code %#x is in bucket %d", size, key, codes[i], b)
						}
						want = append(want, h.stored, h.cell, uint64(h.bits), b)
					}
					if !slices.Equal(want, got) {
						t.Fatalf("%+v (-Go +kernel):\n%s", size, cmp.Diff(want, got))
					}
				}
			})
		}
	}
}

func log2(n int) (log int) {
	for ; n > 1; n /= 2 {
		log++
	}
	return log
}

// logParams are the parameters of the kernels below, which run in one block of one worker.
type logParams struct {
	Table Table
	Log   uint64 // u64: the addresses that were read, from word 1 on; word 0 counts them
	Keys  uint64 // u64
	N     uint64
	Ends  uint64 // u64: the length of the log after each key
	Found uint64 // u8
}

// counted is kernels.cu and a look-up key by key, in which every read is noted.
const counted = `
#include "warpmap.cuh"
static u64* read_log;
static void note(const void* p) {
    if (read_log) read_log[++read_log[0]] = (u64)p;
}
#define load_relaxed(...) (note(__VA_ARGS__), load_relaxed(__VA_ARGS__))
#define load_readonly(...) (note(__VA_ARGS__), load_readonly(__VA_ARGS__))
#define load_kept(...) (note(__VA_ARGS__), load_kept(__VA_ARGS__))
#define load_vector(p, v) (note(p), load_vector(p, v))
template <class W> static auto noted(u64 address) {
    for (u64 part = 0; part < sizeof(typename W::vector); part += 16) note((const void*)(address + part));
    return load_words<W>(address);
}
#define load_words noted
` + "%s" + `
WARPMAP_KERNEL(log_from_now, logParams) {
    if (grid_thread() == 0) read_log = at<u64>(p.log);
}
WARPMAP_KERNEL(find_one_by_one, logParams) {
    tile<GPH_FIND_GROUP> g;
    if (grid_thread() >= GPH_FIND_GROUP) return;
    for (u64 i = 0; i < p.n; i++) {
        value v;
        bool found = gph::find<C>(p.table, g, (key)at<u64>(p.keys)[i], v);
        g.sync();
        if (g.rank() == 0) {
            at<u64>(p.ends)[i] = read_log[0];
            at<u8>(p.found)[i] = found;
        }
        g.sync();
    }
}
`

// A look-up, hit or miss, reads its key's cell, and each part of one bucket once, and nothing else.
func TestExactlyOneProbe(t *testing.T) {
	for _, group := range []int{1, 4} {
		t.Run(fmt.Sprintf("group %d", group), func(t *testing.T) {
			t.Parallel()
			d := open(t, "cpu", device.WithWorkers(1))
			const n = 2000
			o := Options{Options: table.Options{Capacity: n, LoadFactor: 0.9}, FindGroup: group, NoProfile: true}
			m, err := New[uint32, uint32](d, o)
			must(t, err)
			keys, asked := make([]uint32, n), make([]uint64, 2*n)
			for i := range keys {
				keys[i] = -uint32(i) // reserved patterns among them
			}
			for i := range asked {
				asked[i] = uint64(-uint32(i))
			}
			must(t, m.Insert(keys, keys))
			s, err := m.IndexStats()
			must(t, err)
			if s.Moves < 20 {
				t.Errorf("only %d moves: the cells are hardly used", s.Moves)
			}
			c := m.core
			p := c.program("counted", fmt.Sprintf(counted, kernelsCU))
			p.Layouts = append(p.Layouts, logParams{})
			module, err := d.Compile(p)
			must(t, err)
			logNow, err := device.KernelOf[logParams](module, "log_from_now")
			must(t, err)
			oneByOne, err := device.KernelOf[logParams](module, "find_one_by_one")
			must(t, err)
			bulk, err := device.KernelOf[findParams](module, "find")
			must(t, err)

			ask, err := device.From(d, asked)
			must(t, err)
			log, err := device.Make[uint64](d, 64*len(asked))
			must(t, err)
			ends, err := device.Make[uint64](d, len(asked))
			must(t, err)
			found, err := device.Make[bool](d, len(asked))
			must(t, err)
			must(t, log.Fill(nil, 0))
			lp := logParams{Table: c.t, Log: log.Addr(), Keys: ask.Addr(), N: uint64(len(asked)), Ends: ends.Addr(), Found: found.Addr()}
			one := device.Grid{Blocks: 1, Threads: 32}
			must(t, logNow.Launch(nil, one, &lp))
			must(t, oneByOne.Launch(nil, one, &lp))

			codes, err := c.mem.Slice(int(c.t.Cells-c.t.Buckets), c.mem.Len()).Host(nil)
			must(t, err)
			reads, err := log.Host(nil)
			must(t, err)
			end, err := ends.Host(nil)
			must(t, err)
			hits, err := found.Host(nil)
			must(t, err)
			first := uint64(0)
			for i, key := range asked {
				if hits[i] != (i < n) {
					t.Fatalf("key %#x: found %t", key, hits[i])
				}
				h := c.cfg.home(&c.t, key)
				want := map[uint64]int{c.t.Cells + h.cell: group} // each lane reads it, at the same moment
				bucket := c.t.Buckets + c.cfg.bucketOf(&c.t, h, uint32(codes[h.cell]))*uint64(c.cfg.bucketBytes())
				for part := uint64(0); part < uint64(c.cfg.bucketBytes()); part += 16 {
					want[bucket+part] = 1
				}
				got := map[uint64]int{}
				for _, a := range reads[1+first : 1+end[i]] {
					got[a]++
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("key %#x, there %t, reads (-want +got):\n%s", key, hits[i], diff)
				}
				first = end[i]
			}

			// The bulk kernel reads as many parts of buckets.
			narrow := make([]uint32, len(asked))
			for i, key := range asked {
				narrow[i] = uint32(key)
			}
			in, err := device.From(d, narrow)
			must(t, err)
			must(t, log.Fill(nil, 0))
			must(t, bulk.Launch(nil, device.GridFor(int64(len(asked)), 32), &findParams{Table: c.t, Keys: in.Addr(), Found: found.Addr(), N: uint64(len(asked))}))
			reads, err = log.Host(nil)
			must(t, err)
			parts := 0
			for _, a := range reads[1 : 1+reads[0]] {
				if a >= c.t.Buckets && a < c.t.Cells {
					parts++
				}
			}
			if want := len(asked) * int(c.cfg.bucketBytes()/16); parts != want {
				t.Errorf("%d look-ups read %d parts of buckets, want %d", len(asked), parts, want)
			}
		})
	}
}
