package slab

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// allocateParams are the parameters of the kernels below.
type allocateParams struct {
	Alloc Alloc
	Names uint64 // u32, one for each of N
	N     uint64
	Turns uint64 // of churn
}

const allocateKernels = `
#include "alloc.cuh"
using namespace slab;
typedef SlabAlloc<SLAB_LIGHT> Memory;

// One slab for each item.
WARPMAP_KERNEL(allocate_all, slab::allocateParams) {
    Resident r;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.names)[i] = Memory::allocate(p.alloc, r);
}
WARPMAP_KERNEL(release_all, slab::allocateParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        if (at<u32>(p.names)[i] != NONE) Memory::release(p.alloc, at<u32>(p.names)[i]);
}
// Slabs are taken, written, compared and given back; in the end each item has one, that holds its number.
WARPMAP_KERNEL(churn, slab::allocateParams) {
    Resident r;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 kept = NONE;
        for (u64 turn = 0; turn < p.turns; turn++) {
            u32 name = Memory::allocate(p.alloc, r);
            if (name == NONE) continue;
            u64* word = at<u64>(Memory::address(p.alloc, name)) + i % 16;
            if (exchange(word, i) != ~0ull || load_relaxed(word) != i) at<u32>(p.names)[p.n] = 1; // not ours alone
            if (turn + 1 < p.turns) {
                store_relaxed(word, ~0ull);
                Memory::release(p.alloc, name);
            } else kept = name;
        }
        at<u32>(p.names)[i] = kept;
    }
}
`

func allocateKernel(t testing.TB, d *device.Device, a *Allocator, name string) device.Kernel[allocateParams] {
	t.Helper()
	m, err := d.Compile(a.Program("allocate", allocateKernels, allocateParams{}))
	must(t, err)
	k, err := device.KernelOf[allocateParams](m, name)
	must(t, err)
	return k
}

func names(t testing.TB, s device.Slice[uint32]) (got []uint32, refused int) {
	t.Helper()
	all, err := s.Host(nil)
	must(t, err)
	for _, name := range all {
		if name == frame.NoSlab {
			refused++
		} else {
			got = append(got, name)
		}
	}
	return got, refused
}

// Every slab is given once; when there are none, every lane is told; what is given back can be had again.
func TestAllocator(t *testing.T) { onEach(t, testAllocator) }

func testAllocator(t *testing.T, d *device.Device) {
	for _, light := range []bool{false, true} {
		for _, slabs := range []int{0, 8, 1000, 1024, 5000, 80_000} {
			t.Run(fmt.Sprintf("%d slabs, light %t", slabs, light), func(t *testing.T) {
				a, err := NewAllocator(d, AllocatorOptions{Slabs: slabs, Light: light})
				must(t, err)
				must(t, a.Check(nil))
				n := slabs + 100
				list, err := device.Make[uint32](d, n)
				must(t, err)
				p := allocateParams{Alloc: a.Use(), Names: list.Addr(), N: uint64(n)}
				grid := device.GridFor(int64(n), 128)
				allocate, release := allocateKernel(t, d, a, "allocate_all"), allocateKernel(t, d, a, "release_all")
				must(t, allocate.Launch(nil, grid, &p))
				got, refused := names(t, list)
				must(t, a.Check(got))
				// Where blocks are many, a few slabs are not found.
				if len(got) < slabs*99/100 || refused != n-len(got) {
					t.Errorf("%d slabs given of %d", len(got), slabs)
				}
				if slabs <= frame.SearchedSlabs && len(got) != slabs {
					t.Errorf("%d slabs given of %d", len(got), slabs)
				}
				must(t, release.Launch(nil, grid, &p))
				must(t, a.Check(nil))
				err = a.Add(500)
				if light && slabs > 0 {
					if err == nil {
						t.Error("a light allocator grew")
					}
					must(t, a.Close())
					return
				}
				must(t, err)
				p.Alloc, p.N = a.Use(), uint64(slabs)
				must(t, list.Fill(nil, 0xff))
				must(t, allocate.Launch(nil, grid, &p))
				if got, refused = names(t, list); len(got) != slabs || refused != 100 {
					t.Errorf("%d slabs given of %d", len(got), slabs)
				}
				must(t, a.Check(got))
				must(t, a.Reset())
				must(t, a.Check(nil))
				must(t, a.Close())
				must(t, a.Close())
				if err := a.Add(1); err == nil {
					t.Error("a closed allocator grew")
				}
			})
		}
	}
	if _, err := NewAllocator(d, AllocatorOptions{Slabs: -1}); err == nil {
		t.Error("no error for -1 slabs")
	}
	if _, err := NewAllocator(nil, AllocatorOptions{}); err == nil {
		t.Error("no error without a device")
	}
}

// Slabs go from lane to lane, and none is two lanes' at a time.
func TestAllocatorUnderStress(t *testing.T) {
	for seed := range uint64(30) {
		d := openCPU(t, device.WithStress(seed))
		a, err := NewAllocator(d, AllocatorOptions{Slabs: 40})
		must(t, err)
		must(t, a.Add(40))
		const n = 64
		list, err := device.From(d, make([]uint32, n+1))
		must(t, err)
		p := allocateParams{Alloc: a.Use(), Names: list.Addr(), N: n, Turns: 6}
		must(t, allocateKernel(t, d, a, "churn").Launch(nil, device.Grid{Blocks: 1, Threads: n}, &p))
		all, err := list.Host(nil)
		must(t, err)
		if all[n] != 0 {
			t.Fatalf("seed %d: a slab was two lanes'", seed)
		}
		got, refused := names(t, list.Slice(0, n))
		if refused > 0 {
			t.Fatalf("seed %d: %d of %d lanes found no slab of 80", seed, refused, n)
		}
		must(t, a.Check(got))
	}
}
