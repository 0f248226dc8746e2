package kernel_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
)

// params are the parameters of all kernels here.
type params struct {
	In, Out uint64
	N       uint64
}

const prologue = `
#include "warpmap.cuh"
#include "layout.h"
using kernel_test::params;
`

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func program(name, text string) *device.Program {
	return &device.Program{Name: name, Files: []device.File{{Name: name + ".cu", Text: prologue + text}}, Layouts: []any{params{}}}
}

// onDevices runs a test on the CPU device, and on a GPU where there is one.
func onDevices(t *testing.T, test func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			t.Cleanup(func() { must(t, d.Close()) })
			test(t, d)
		})
	}
}

func openCPU(t *testing.T, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func load(t testing.TB, d *device.Device, p *device.Program, name string) device.Kernel[params] {
	t.Helper()
	m, err := d.Compile(p)
	must(t, err)
	k, err := device.KernelOf[params](m, name)
	must(t, err)
	return k
}

// call runs a kernel over a grid, and returns n elements of output, which are 0 before.
func call[In, Out any](t testing.TB, d *device.Device, k device.Kernel[params], grid device.Grid, in []In, n int) []Out {
	t.Helper()
	din, err := device.From(d, in)
	must(t, err)
	defer din.Free()
	out, err := device.From(d, make([]Out, n))
	must(t, err)
	defer out.Free()
	must(t, k.Launch(nil, grid, &params{In: din.Addr(), Out: out.Addr(), N: uint64(len(in))}))
	got, err := out.Host(nil)
	must(t, err)
	return got
}

var hashes = program("hashes", `
WARPMAP_KERNEL(hashes, params) {
    u64 i = grid_thread();
    if (i >= p.n) return;
    u64 x = at<u64>(p.in)[i], seed = fmix64(x);
    u64* out = at<u64>(p.out) + i * 9;
    out[0] = fmix32((u32)x);
    out[1] = fmix64(x);
    out[2] = mueller32((u32)x);
    out[3] = seeded64(x, seed);
    out[4] = hash64<0>(x, seed);
    out[5] = hash64<1>(x, seed);
    out[6] = hash64<2>(x, seed);
    out[7] = hash64<3>(x, seed);
    out[8] = reduce(x, seed);
}`)

func TestHashTwins(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		rng := rand.New(rand.NewPCG(1, 2))
		in := []uint64{0, 1, ^uint64(0), 1 << 63, 1<<32 - 1, 1 << 32}
		for len(in) < 1000 {
			in = append(in, rng.Uint64()>>rng.UintN(64))
		}
		var want []uint64
		for _, x := range in {
			seed := kernel.Fmix64(x)
			want = append(want, uint64(kernel.Fmix32(uint32(x))), kernel.Fmix64(x), uint64(kernel.Mueller32(uint32(x))), kernel.Seeded64(x, seed))
			for _, hash := range []int{kernel.HashMurmur, kernel.HashMueller, kernel.HashIdentity, kernel.HashConstant} {
				want = append(want, kernel.Hash64(hash, x, seed))
			}
			want = append(want, kernel.Reduce(x, seed))
		}
		got := call[uint64, uint64](t, d, load(t, d, hashes, "hashes"), device.GridFor(1000, 64), in, len(want))
		if !slices.Equal(want, got) {
			t.Errorf("(-Go +kernel):\n%s", cmp.Diff(want, got))
		}
	})
}

// tileResult is what one lane gets of each operation of its tile.
type tileResult struct {
	Rank, Ballot, Any, All, AnyOfOne, Min uint32
	Shuffle32                             uint32
	Shuffle64, Shuffle128                 uint64
	Sum, Scan, ScanAll                    uint64
}

// Tiles whose number is odd go another way than the others, and each lane asks for as many rounds as its tile says.
var tiles = &device.Program{
	Name: "tiles",
	Files: []device.File{{Name: "tiles.cu", Text: prologue + `
template <int N, bool TOGETHER> __device__ void tiles(const params& p) {
    tile<N, TOGETHER> g;
    u64 i = grid_thread();
    u32 x = at<u32>(p.in)[i];
    kernel_test::tileResult r{};
    bool odd = i / N & 1;
    u32 other = (g.rank() + 1) * 7 % N;
    for (u32 round = 0; round < (TOGETHER ? 2 : 1 + i / N % 3); round++) {
        r.rank = g.rank();
        if (TOGETHER || odd) {
            r.ballot = g.ballot(x & 1);
            r.any = g.any(x % 8 == 0);
            r.all = g.all(x % 8 != 0);
            r.any_of_one = g.any(g.rank() == N - 1 && x & 1);
            r.min = g.min_of(x);
        }
        g.sync();
        if (TOGETHER || !odd) {
            r.shuffle32 = g.shuffle(x, other);
            r.shuffle64 = g.shuffle((u64)x << 32, other);
            u128 y = g.shuffle(u128{x, ~(u64)x}, other);
            r.shuffle128 = y.lo == (u64)~y.hi ? y.lo : ~0ull;
        }
        r.sum = g.sum(x);
        r.scan = g.scan(x, r.scan_all);
    }
    at<kernel_test::tileResult>(p.out)[i] = r;
}
#define TILE(N) \
    WARPMAP_KERNEL(tile_##N, params) { tiles<N, false>(p); } \
    WARPMAP_KERNEL(together_##N, params) { tiles<N, true>(p); }
TILE(1) TILE(2) TILE(4) TILE(8) TILE(16) TILE(32)
`}},
	Layouts: []any{params{}, tileResult{}},
}

func TestTiles(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		const threads = 3 * 96
		rng := rand.New(rand.NewPCG(3, 4))
		in := make([]uint32, threads)
		for i := range in {
			in[i] = rng.Uint32() >> rng.UintN(32)
		}
		for _, n := range []int{1, 2, 4, 8, 16, 32} {
			for _, together := range []bool{false, true} {
				var want []tileResult
				for i := range in {
					rank, base := i%n, i/n*n
					tile := in[base : base+n]
					r := tileResult{Rank: uint32(rank), Min: ^uint32(0), All: 1}
					for j, x := range tile {
						r.Ballot |= x & 1 << j
						if x%8 == 0 {
							r.Any, r.All = 1, 0
						}
						r.Min = min(r.Min, x)
						r.Sum += uint64(x)
						if j < rank {
							r.Scan += uint64(x)
						}
					}
					r.AnyOfOne, r.ScanAll = tile[n-1]&1, r.Sum
					from := tile[(rank+1)*7%n]
					r.Shuffle32, r.Shuffle64, r.Shuffle128 = from, uint64(from)<<32, uint64(from)
					switch odd := i/n%2 == 1; {
					case together:
					case odd:
						r.Shuffle32, r.Shuffle64, r.Shuffle128 = 0, 0, 0
					default:
						r.Ballot, r.Any, r.All, r.AnyOfOne, r.Min = 0, 0, 0, 0, 0
					}
					want = append(want, r)
				}
				name := fmt.Sprintf("tile_%d", n)
				if together {
					name = fmt.Sprintf("together_%d", n)
				}
				got := call[uint32, tileResult](t, d, load(t, d, tiles, name), device.Grid{Blocks: 3, Threads: 96}, in, threads)
				if !slices.Equal(want, got) {
					t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}
		}
	})
}

var blocks = program("blocks", `
WARPMAP_KERNEL(scan, params) {
    u64 all, i = grid_thread();
    at<u64>(p.out)[i] = block_scan(at<u64>(p.in)[i], all);
    at<u64>(p.out)[grid_threads() + i] = all;
}
WARPMAP_KERNEL(shape, params) {
    u64 i = grid_thread();
    add(at<u64>(p.out), (u64)1);
    if (i == 0) {
        at<u64>(p.out)[1] = grid_threads();
        at<u64>(p.out)[2] = grid_blocks();
        at<u64>(p.out)[3] = block_threads();
    }
    max_of(at<u64>(p.out) + 4, i);
    max_of(at<u64>(p.out) + 5, block_index());
    add(at<u64>(p.out) + 6, (u64)thread_index());
    count_into(at<u64>(p.out) + 7, i);
}
WARPMAP_KERNEL(barriers, params) { // each round, one warp writes and all read
    __shared__ u32 word;
    u64 wrong = 0;
    for (u32 round = 0; round < 20; round++) {
        if (thread_index() == round % block_threads()) word = round;
        block_sync();
        wrong += word != round;
        block_sync();
    }
    count_into(at<u64>(p.out), wrong);
}`)

func TestBlockScan(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		rng := rand.New(rand.NewPCG(5, 6))
		for _, threads := range []int{32, 64, 160, 256} {
			in := make([]uint64, 4*threads)
			before, all := make([]uint64, len(in)), make([]uint64, len(in))
			for i := range in {
				in[i] = rng.Uint64() >> rng.UintN(64)
			}
			for first := 0; first < len(in); first += threads {
				sum := uint64(0)
				for i := range threads {
					before[first+i] = sum
					sum += in[first+i]
				}
				for i := range threads {
					all[first+i] = sum
				}
			}
			got := call[uint64, uint64](t, d, load(t, d, blocks, "scan"), device.Grid{Blocks: 4, Threads: threads}, in, 2*len(in))
			if !slices.Equal(got, append(before, all...)) {
				t.Errorf("%d threads: wrong", threads)
			}
		}
	})
}

var shared = program("shared", `
WARPMAP_KERNEL(reverse, params) { // each block its own stretch
    u32* mine = (u32*)dynamic_shared();
    u64 each = p.n / grid_blocks(), first = block_index() * each;
    for (u64 i = thread_index(); i < each; i += block_threads()) mine[i] = at<u32>(p.in)[first + i];
    block_sync();
    for (u64 i = thread_index(); i < each; i += block_threads()) at<u32>(p.out)[first + i] = mine[each - 1 - i];
}`)

// Blocks have as much dynamic shared memory as the device says, each its own.
func TestDynamicSharedMemory(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		k := load(t, d, shared, "reverse")
		for _, bytes := range []int{256, int(d.Info().Shared), 1024} {
			const blocks = 300
			each := bytes / 4
			in, want := make([]uint32, blocks*each), make([]uint32, blocks*each)
			for i := range in {
				in[i] = uint32(i)
				want[i/each*each+each-1-i%each] = uint32(i)
			}
			got := call[uint32, uint32](t, d, k, device.Grid{Blocks: blocks, Threads: 256, Shared: bytes}, in, len(in))
			if !slices.Equal(got, want) {
				t.Errorf("%d bytes: wrong", bytes)
			}
		}
	})
}

func TestGridShapes(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		shape, barriers := load(t, d, blocks, "shape"), load(t, d, blocks, "barriers")
		for _, g := range []device.Grid{{Blocks: 1, Threads: 32}, {Blocks: 1, Threads: 256}, {Blocks: 7, Threads: 96}, {Blocks: 1000, Threads: 64}} {
			n := uint64(g.Blocks) * uint64(g.Threads)
			want := []uint64{n, n, uint64(g.Blocks), uint64(g.Threads), n - 1, uint64(g.Blocks) - 1,
				uint64(g.Blocks) * uint64(g.Threads) * uint64(g.Threads-1) / 2, n * (n - 1) / 2}
			got := call[uint64, uint64](t, d, shape, g, []uint64{0}, 8)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", g, got, want)
			}
			if wrong := call[uint64, uint64](t, d, barriers, g, []uint64{0}, 1)[0]; wrong != 0 {
				t.Errorf("%+v: %d reads before or after their barrier", g, wrong)
			}
		}
		for _, g := range []device.Grid{{}, {Blocks: 1}, {Blocks: 0, Threads: 32}, {Blocks: -1, Threads: 32}, {Blocks: 1, Threads: 31},
			{Blocks: 1, Threads: 33}, {Blocks: 1, Threads: 288}, {Blocks: 1 << 31, Threads: 32}} {
			if err := shape.Launch(nil, g, &params{}); err == nil {
				t.Errorf("%+v: no error", g)
			}
		}
	})
}

var memory = program("memory", `
// One thread: each operation on each width, on words that lie side by side.
template <class T> __device__ T number(u64 x);
template <> __device__ u32 number(u64 x) { return (u32)x; }
template <> __device__ u64 number(u64 x) { return x << 32 | x; }
template <> __device__ u128 number(u64 x) { return u128{x, ~x}; }

template <class T> __device__ u64 plain(T* a) { // a[0] … a[3] are number(10 …), and come back changed; wrong results are counted
    u64 wrong = 0;
    wrong += load_relaxed(a) != number<T>(10);
    wrong += load_acquire(a + 1) != number<T>(11);
    wrong += load_readonly(a + 2) != number<T>(12);
    store_relaxed(a, number<T>(20));
    store_release(a + 1, number<T>(21));
    wrong += load_relaxed(a) != number<T>(20) || load_relaxed(a + 1) != number<T>(21) || load_relaxed(a + 2) != number<T>(12);
    return wrong;
}
template <class T> __device__ u64 swaps(T* a) {
    u64 wrong = 0;
    wrong += cas(a, number<T>(20), number<T>(30)) != number<T>(20) || load_relaxed(a) != number<T>(30);
    wrong += cas(a, number<T>(20), number<T>(40)) != number<T>(30) || load_relaxed(a) != number<T>(30);
    return wrong;
}
template <class T> __device__ u64 arithmetic(T* a) {
    u64 wrong = 0;
    wrong += exchange(a, (T)50) != number<T>(30) || load_relaxed(a) != 50;
    wrong += add(a, (T)7) != 50 || load_relaxed(a) != 57;
    wrong += add(a, ~(T)0) != 57 || load_relaxed(a) != 56;
    wrong += max_of(a, (T)3) != 56 || load_relaxed(a) != 56;
    wrong += max_of(a, (T)60) != 56 || load_relaxed(a) != 60;
    wrong += max_of(a, ~(T)0) != 60 || load_relaxed(a) != ~(T)0;
    return wrong;
}
template <class T> __device__ void prepare(T* a) {
    for (int i = 0; i < 4; i++) a[i] = number<T>(10 + i);
}
WARPMAP_KERNEL(one_prepare, params) {
    if (grid_thread() != 0) return;
    prepare(at<u32>(p.out + 64));
    prepare(at<u64>(p.out + 128));
    prepare(at<u128>(p.out + 256));
}
WARPMAP_KERNEL(one, params) {
    if (grid_thread() != 0) return;
    u64* wrong = at<u64>(p.out);
    wrong[0] += plain(at<u32>(p.out + 64)) + swaps(at<u32>(p.out + 64)) + arithmetic(at<u32>(p.out + 64));
    wrong[1] += plain(at<u64>(p.out + 128)) + swaps(at<u64>(p.out + 128)) + arithmetic(at<u64>(p.out + 128));
    wrong[2] += plain(at<u128>(p.out + 256));
#if WARPMAP_CAS128
    wrong[2] += swaps(at<u128>(p.out + 256)); // which leaves number(30)
    wrong[2] += exchange(at<u128>(p.out + 256), number<u128>(50)) != number<u128>(30) || load_relaxed(at<u128>(p.out + 256)) != number<u128>(50);
#endif
    u64 v[2];
    u32 w[4], x[2];
    load_vector(at<u64>(p.out + 144), v);
    load_vector(at<u32>(p.out + 64), w);
    load_vector(at<u32>(p.out + 72), x);
    wrong[3] += v[0] != number<u64>(12) || v[1] != number<u64>(13);
    wrong[3] += w[0] != ~0u || w[1] != 21 || w[2] != 12 || w[3] != 13 || x[0] != 12 || x[1] != 13;
}

// Many threads: nothing is lost.
WARPMAP_KERNEL(many, params) {
    u64* out = at<u64>(p.out);
    u32* out32 = at<u32>(p.out + 128);
    add(out, (u64)1);
    add(out32, (u32)1);
    max_of(out + 1, grid_thread());
    max_of(out32 + 1, (u32)grid_thread());
    for (u64 old = load_relaxed(out + 2);;) {
        u64 was = cas(out + 2, old, old + 1);
        if (was == old) break;
        old = was;
    }
    add(out + 3, exchange(out + 4, (u64)1)); // all but the first find a 1
#if WARPMAP_CAS128
    for (u128 old = load_relaxed(at<u128>(p.out + 64));;) {
        u128 was = cas(at<u128>(p.out + 64), old, u128{old.lo + 1, old.hi - 1});
        if (was == old) break;
        old = was;
    }
#else
    add(out + 8, (u64)1);
    add(out + 9, ~0ull);
#endif
#if WARPMAP_CAS128
    add(out + 22, exchange(at<u128>(p.out + 160), u128{grid_thread() + 1, 0}).lo); // each number but the last comes out
#else
    add(out + 22, grid_thread() + 1);
#endif
}

// Writers write values whose halves agree; readers count those whose do not. Word 0 counts, the values begin at 64.
WARPMAP_KERNEL(tear, params) {
    u128* values = at<u128>(p.out + 64);
    u64 torn = 0;
    for (u64 i = 0; i < 400; i++) {
        u128* a = values + (i + thread_index()) % 3;
        u64 x = fmix64(grid_thread() * 400 + i);
        switch (grid_thread() % 6) {
        case 0: store_relaxed(a, u128{x, ~x}); break;
        case 1: store_release(a, u128{x, ~x}); break;
#if WARPMAP_CAS128
        case 2: {
            u128 old = load_relaxed(a), was = cas(a, old, u128{x, ~x});
            torn += old.lo != ~old.hi || was.lo != ~was.hi;
            break;
        }
#endif
        case 3: {
            u128 v = load_relaxed(a);
            torn += v.lo != ~v.hi;
            break;
        }
#if WARPMAP_CAS128
        case 4: {
            u128 was = exchange(a, u128{x, ~x});
            torn += was.lo != ~was.hi;
            break;
        }
#endif
        default: {
            u128 v = load_acquire(a);
            torn += v.lo != ~v.hi;
        }
        }
        if (i % 50 == 0) pause();
    }
    if (torn) add(at<u64>(p.out), torn);
}`)

func TestMemory(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		one := device.Grid{Blocks: 1, Threads: 32}
		out, err := device.From(d, make([]uint64, 64))
		must(t, err)
		p := &params{Out: out.Addr()}
		must(t, load(t, d, memory, "one_prepare").Launch(nil, one, p))
		must(t, load(t, d, memory, "one").Launch(nil, one, p))
		got, err := out.Host(nil)
		must(t, err)
		if !slices.Equal(got[:4], make([]uint64, 4)) {
			t.Errorf("wrong results with u32, u64, u128, vectors: %v", got[:4])
		}

		const n = 200 * 256
		got = call[uint64, uint64](t, d, load(t, d, memory, "many"), device.Grid{Blocks: 200, Threads: 256}, []uint64{0}, 32)
		want := make([]uint64, 32)
		want[0], want[1], want[2], want[3], want[4] = n, n-1, n, n-1, 1
		want[8], want[9] = n, ^uint64(n-1)
		want[16] = n | (n-1)<<32
		want[22] = n * (n + 1) / 2
		got[22] += got[20]
		got[20] = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestSixteenBytesNeverTear(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		k := load(t, d, memory, "tear")
		for range 5 {
			values := make([]uint64, 64)
			for i := 8; i < 64; i += 2 {
				values[i+1] = ^values[i]
			}
			out, err := device.From(d, values)
			must(t, err)
			must(t, k.Launch(nil, device.Grid{Blocks: 64, Threads: 64}, &params{Out: out.Addr()}))
			must(t, out.Read(nil, values))
			if values[0] != 0 {
				t.Fatalf("%d torn values", values[0])
			}
		}
	})
}

// The kernels of these tests compile for GPUs.
func TestCompilesForGPUs(t *testing.T) {
	for _, arch := range testenv.Some([]string{"sm_90", "sm_70", "sm_80"}, 1) {
		for _, p := range []*device.Program{hashes, tiles, blocks, shared, memory} {
			t.Run(arch+"/"+p.Name, func(t *testing.T) {
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

// What an old NVRTC is given for accesses of 16 bytes becomes the same instructions as what a newer one is given: none tears.
func TestSixteenBytesAreOneAccessForOldNVRTCToo(t *testing.T) {
	info, err := device.InfoFor("sm_90")
	testenv.Require(t, "nvrtc", err)
	if !info.CAS128 {
		t.Skipf("%s is an old one", info.Compiler)
	}
	for _, arch := range []string{"sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"} {
		var code [2]map[string][]byte
		for b128 := range code {
			p := program("sixteen", `
WARPMAP_KERNEL(relaxed, params) { store_relaxed(at<u128>(p.out) + grid_thread(), load_relaxed(at<u128>(p.in) + grid_thread())); }
WARPMAP_KERNEL(ordered, params) { store_release(at<u128>(p.out) + grid_thread(), load_acquire(at<u128>(p.in) + grid_thread())); }`)
			p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_B128", Value: b128})
			cubin, err := device.CompileFor(arch, p)
			if errors.Is(err, device.ErrNoNVRTC) {
				testenv.RequireNVRTC(t, err)
			}
			must(t, err)
			code[b128] = instructions(t, cubin)
		}
		if len(code[0]) != 2 || !maps.EqualFunc(code[0], code[1], bytes.Equal) {
			t.Errorf("%s: %d and %d kernels are not the same", arch, len(code[0]), len(code[1]))
		}
	}
}

// instructions gives the machine code of a cubin's kernels.
func instructions(t *testing.T, cubin []byte) map[string][]byte {
	t.Helper()
	binary.LittleEndian.PutUint32(cubin[20:], uint32(elf.EV_CURRENT)) // NVIDIA has its own version there
	f, err := elf.NewFile(bytes.NewReader(cubin))
	must(t, err)
	code := map[string][]byte{}
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".text.") {
			code[s.Name], err = s.Data()
			must(t, err)
		}
	}
	return code
}

// faults are kernels that break, each in its way. In.N picks lanes.
var faults = program("faults", `
__device__ __attribute__((noinline)) u64 deep(u64 n) {
    volatile u64 frame[64];
    frame[n % 64] = n;
    return n == 0 ? 0 : deep(n - 1) + frame[n % 64];
}
WARPMAP_KERNEL(good, params) { add(at<u64>(p.out), (u64)1); }
WARPMAP_KERNEL(bad_store, params) { if (grid_thread() == 37) *(volatile u32*)p.in = 1; }
WARPMAP_KERNEL(bad_load, params) { if (grid_thread() == 37) add(at<u64>(p.out), (u64)*(volatile u32*)p.in); }
WARPMAP_KERNEL(overflow, params) { if (grid_thread() == 37) add(at<u64>(p.out), deep(1000000000 + p.n)); }
// Lane 37's neighbours wait, each on a stack of its own. It runs 8 KiB into one of them and back, far from any guard.
__device__ __attribute__((noinline)) void sprawl(u64 n) {
    volatile u8 frame[72 << 10];
    for (u64 i = 0; i < sizeof frame; i++) frame[i] = (u8)n;
}
WARPMAP_KERNEL(overrun, params) {
    warp_sync(~0u);
    if (grid_thread() == 37) sprawl(p.n);
}
WARPMAP_KERNEL(overrun_wait, params) {
    warp_sync(~0u);
    if (grid_thread() == 37) sprawl(p.n);
    warp_sync(~0u);
    add(at<u64>(p.out), (u64)1);
}
WARPMAP_KERNEL(divide, params) { volatile u32 x = 1, y = (u32)p.n; if (grid_thread() == 37) x = x / y; }
WARPMAP_KERNEL(half_ballot, params) { if (thread_index() % 2) add(at<u64>(p.out), (u64)warp_ballot(~0u, true)); }
WARPMAP_KERNEL(two_ways, params) {
    if (thread_index() % 32 < 4) tile<8>().ballot(true);
    else if (thread_index() % 32 < 8) tile<8>().shuffle(1u, 0);
}
WARPMAP_KERNEL(half_sync, params) { if (thread_index() < 8) block_sync(); else warp_sync(~0u); }
`)

// A kernel that breaks is an error that names it and what went wrong; the device is lost, the process lives on.
func TestFaults(t *testing.T) {
	for _, opts := range [][]device.Option{nil, {device.WithStress(1)}} {
		for _, c := range []struct {
			kernel string
			want   []string
		}{
			{"bad_store", []string{"bad memory access", "0x10"}},
			{"bad_load", []string{"bad memory access"}},
			{"overflow", []string{"stack overflow"}},
			{"overrun", []string{"stack overflow", "thread 37"}},
			{"overrun_wait", []string{"stack overflow", "thread 37"}},
			{"divide", []string{"arithmetic fault"}},
			{"half_ballot", []string{"divergent warp operation", "ballot", "aaaaaaaa", "55555555 have ended"}},
			{"two_ways", []string{"divergent warp operation", "ballot", "0000000f", "shuffle", "000000f0", "000000ff"}},
			{"half_sync", []string{"divergent warp operation", "block_sync", "lanes 000000ff", "sync"}},
		} {
			t.Run(fmt.Sprintf("%s/stress %t", c.kernel, opts != nil), func(t *testing.T) {
				if c.kernel == "divide" && runtime.GOARCH != "amd64" {
					t.Skip("only amd64 has a fault of a division by 0")
				}
				d := openCPU(t, opts...)
				k, good := load(t, d, faults, c.kernel), load(t, d, faults, "good")
				out, err := device.From(d, []uint64{0})
				must(t, err)
				p := &params{In: 16, Out: out.Addr()}
				err = k.Launch(nil, device.Grid{Blocks: 8, Threads: 64}, p)
				var fault *device.FaultError
				if !errors.As(err, &fault) {
					t.Fatal(err)
				}
				for _, want := range append(c.want, c.kernel, "lost") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				if later := good.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, p); later != err {
					t.Errorf("a later launch says %v", later)
				}
				if _, later := device.Make[byte](d, 1); later != err {
					t.Errorf("a later allocation says %v", later)
				}
				recovers(t)

				d = openCPU(t, opts...) // in the same process, with the same stacks
				k = load(t, d, faults, "good")
				if n := call[uint64, uint64](t, d, k, device.Grid{Blocks: 8, Threads: 64}, []uint64{0}, 1)[0]; n != 512 {
					t.Errorf("after the fault, %d of 512 lanes ran", n)
				}
			})
		}
	}
}

// recovers checks that Go's own faults are still Go's.
func recovers(t *testing.T) {
	t.Helper()
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "nil pointer") {
			t.Errorf("a nil pointer gives %v", r)
		}
	}()
	var p *params
	p.N++
}

var schedule = program("schedule", `
WARPMAP_KERNEL(order, params) { // which lane does each of the first n steps
    for (int i = 0; i < 8; i++) {
        u64 at_step = add(at<u64>(p.out), (u64)1) + 1;
        store_relaxed(at<u64>(p.out) + at_step, grid_thread());
    }
}`)

// The seed of the stress mode, and nothing else, is the schedule.
func TestStressSchedule(t *testing.T) {
	run := func(seed uint64) [2]string {
		d := openCPU(t, device.WithStress(seed))
		k := load(t, d, schedule, "order")
		var runs [2]string
		for i := range runs {
			runs[i] = fmt.Sprint(call[uint64, uint64](t, d, k, device.Grid{Blocks: 1, Threads: 32}, []uint64{0}, 1+32*8))
		}
		return runs
	}
	seen := map[string]uint64{}
	for seed := range uint64(64) {
		runs := run(seed)
		if again := run(seed); again != runs {
			t.Fatalf("seed %d gives two schedules", seed)
		}
		for i, r := range runs {
			if other, ok := seen[r]; ok {
				t.Fatalf("seeds %d and %d have a schedule in common (launch %d)", other, seed, i)
			}
			seen[r] = seed
		}
	}
}

func TestMixersAreBijections(t *testing.T) {
	for name, mix := range map[string]func(uint64) uint64{
		"fmix32":    func(x uint64) uint64 { return uint64(kernel.Fmix32(uint32(x))) },
		"mueller32": func(x uint64) uint64 { return uint64(kernel.Mueller32(uint32(x))) },
		"fmix64":    kernel.Fmix64,
		"seeded64":  func(x uint64) uint64 { return kernel.Seeded64(x, 7) },
		"mueller64": func(x uint64) uint64 { return kernel.Hash64(kernel.HashMueller, x, 7) },
		"mueller64, of the high half, which is 64": func(x uint64) uint64 { return kernel.Hash64(kernel.HashMueller, x<<32|5, 7) },
	} {
		seen := map[uint64]bool{}
		flips := 0
		const n = 10_000
		for x := range uint64(n) {
			seen[mix(x)] = true
			flips += bits.OnesCount64(mix(x) ^ mix(x^1))
		}
		width := map[bool]int{true: 64, false: 32}[strings.HasSuffix(name, "64")]
		if mean := float64(flips) / n; len(seen) != n || mean < 0.4*float64(width) || mean > 0.6*float64(width) {
			t.Errorf("%s: %d values of %d keys; one bit of input flips %.1f of output", name, len(seen), n, mean)
		}
	}
}

// Every bit of a hash depends on both halves of a key, for the tables take their choices from its high bits, its low
// bits, and both. Keys that share a half, or differ in few bits, fill bins as evenly as chance would.
func TestHashesSpread(t *testing.T) {
	const n, bins = 1 << 16, 1 << 10
	for hash, name := range map[int]string{kernel.HashMurmur: "murmur", kernel.HashMueller: "mueller"} {
		one := func(x uint64) uint64 { return kernel.Hash64(hash, x, 7) }
		two := func(lo, hi uint64) uint64 { return one(one(hi) ^ lo) } // as keys of 16 bytes and more are hashed
		for what, key := range map[string]func(i uint64) uint64{
			"4 bytes, equal low halves":                          func(i uint64) uint64 { return one(i << 16) },
			"4 bytes, equal high halves":                         func(i uint64) uint64 { return one(0xabcd<<16 | i) },
			"8 bytes, equal low halves":                          func(i uint64) uint64 { return one(i<<32 | 0x1234) },
			"8 bytes, equal low halves, multiples of a power":    func(i uint64) uint64 { return one(i << 48) },
			"8 bytes, equal high halves":                         func(i uint64) uint64 { return one(0x1234<<32 | i) },
			"8 bytes, equal high halves, multiples of a power":   func(i uint64) uint64 { return one(i << 16) },
			"8 bytes, halves that are equal to one another":      func(i uint64) uint64 { return one(i<<32 | i) },
			"16 bytes, equal low words":                          func(i uint64) uint64 { return two(5, i) },
			"16 bytes, equal low words and low halves of high":   func(i uint64) uint64 { return two(5, i<<32) },
			"16 bytes, equal high words":                         func(i uint64) uint64 { return two(i, 5) },
			"16 bytes, equal high words and low halves of low":   func(i uint64) uint64 { return two(i<<32, 5) },
			"16 bytes, words that are equal to one another":      func(i uint64) uint64 { return two(i, i) },
			"24 bytes, of which the middle word alone is varied": func(i uint64) uint64 { return one(two(i<<32, 5) ^ 9) },
		} {
			for part, of := range map[string]func(h uint64) uint64{
				"high bits": func(h uint64) uint64 { return h >> 54 }, "low bits": func(h uint64) uint64 { return h % bins },
				"low bits of the high half": func(h uint64) uint64 { return h >> 32 % bins }, "high bits of the low half": func(h uint64) uint64 { return h >> 22 % bins },
				"high and low bits": func(h uint64) uint64 { return h>>59<<5 | h%32 },
			} {
				var filled [bins]float64
				for i := range uint64(n) {
					filled[of(key(i))]++
				}
				chi := 0.0
				for _, x := range filled {
					chi += (x - n/bins) * (x - n/bins) / (n / bins)
				}
				// Its mean is bins, and its deviation √(2·bins), 45. A bijection of few bits may well be more even than chance.
				if chi > bins+8*45 {
					t.Errorf("%s, keys of %s: χ² of the %s is %.0f for %d bins", name, what, part, chi, bins)
				}
			}
		}
	}
}
