// What kernels build on the primitives, the same on both devices.
#pragma once
#include "types.cuh"
#include "warp.cuh"

// A grid's threads in a row.
__device__ __forceinline__ u64 grid_thread() { return block_index() * block_threads() + thread_index(); }
__device__ __forceinline__ u64 grid_threads() { return grid_blocks() * block_threads(); }

// count_into adds x of every lane to a global counter, with one atomic operation a warp. On the CPU device lanes of a
// warp meet only for this, so there each adds its own.
__device__ __forceinline__ void count_into(u64* counter, u64 x) {
#if defined(WARPMAP_HOST)
    if (x) add(counter, x);
#else
    x = tile<32>().sum(x);
    if (x && (thread_index() & 31) == 0) add(counter, x);
#endif
}

template <class T> __device__ __forceinline__ T* at(u64 address) { return reinterpret_cast<T*>(address); }

// block_scan gives the sum of x over the threads of the block before this one, and the sum over all. Every thread of
// the block must reach it; a block has 256 threads or less.
__device__ __forceinline__ u64 block_scan(u64 x, u64& all) {
    __shared__ u64 sums[8];
    tile<32> warp;
    u64 warp_all, before = warp.scan(x, warp_all);
    if (warp.rank() == 31) sums[thread_index() / 32] = warp_all;
    block_sync();
    all = 0;
    for (u32 w = 0; w < block_threads() / 32; w++) {
        if (w < thread_index() / 32) before += sums[w];
        all += sums[w];
    }
    block_sync();
    return before;
}
