// The vocabulary of warpmap's kernels: one header for both devices.
//
//   types.cuh   u8 … u128
//   cuda.cuh    how a GPU does each primitive (PTX); host.cuh, how the CPU device does it (fibers)
//   warp.cuh    tile<1> … tile<32>: ballot, any, shuffle, rank
//   memory.cuh  vector loads, block-wide sums
//   hash.cuh    hash functions; their Go twins are in hash.go

// and, included by those that use them:
//
//   items.cuh      the columns of a batch, and the order in which a grid goes through them
//   drive.cuh      lanes that are done with an item get the next
//   slots.cuh      slots that hold a pair
//   keys.cuh       keys that mark slots, and the aliases of those that are keys too
//   outcome.cuh    what became of an operation
//   refused.cuh    the positions of a batch that found no room
//   combine.cuh    what Update makes of a value that is there
//   lock.cuh       locks that a tile takes
//   slaballoc.cuh  slabs of memory that lanes take and give back
//   findall.cuh    where the values of each key of a batch go
//   partition.cuh  rows brought in the order of their parts
//
// A kernel is written
//
//   WARPMAP_KERNEL(name, Params) { … p.field … }
//
// where Params is a struct that layout.h declares; it reaches the kernel by value as p. Where kernels are compiled apart, its text may be that of a
// template that nothing uses (wanted.cuh).
//
// A block's dynamic shared memory, of the size that the launch names, is at dynamic_shared(); dynamic_shared_once() is the same place, for pointers that
// are kept. WARPMAP_KERNEL_WIDE(name, Params, threads, Type) is for blocks of so many threads, each with a Type there.
//
// Memory operations (global memory only; T is u32, u64 or u128; addresses are aligned to sizeof(T)), none of which tears;
// u8 and u16 are loaded and stored only:
//
//   load_relaxed  load_acquire  store_relaxed  store_release  load_readonly (never beside a writer)
//   load_kept (relaxed, of what should stay in the L2 cache: up to u32)  load_both (relaxed, u128)
//   cas (returns what was there)  exchange  add  max_of  and_of  or_of  or_acquire  fence  fence_system  pause
//   (with u128 only cas and exchange, and only where WARPMAP_CAS128; add of floats and doubles, too)
//   prefetch_line  prefetch_to_write (a line of 64 bytes, on the CPU device alone: see the jobs of drive.cuh)
//   load_racing  load_volatile  store_racing (plain, where what may be old or written twice does no harm)
//   load_memory  store_memory  prefetch  add_to_memory  or_of_memory  and_of_memory  max_of_memory (global memory in every program: see WARPMAP_SHARED in cuda.cuh)
#pragma once
#include "types.cuh"
#if defined(WARPMAP_HOST)
#include "host.cuh"
#else
#include "cuda.cuh"
#endif
#include "warp.cuh"
#include "memory.cuh"
#include "hash.cuh"
