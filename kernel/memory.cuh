// What kernels build on the primitives, the same on both devices.
#pragma once
#include "types.cuh"
#include "warp.cuh"

// What is wider than a word goes by halves: nobody writes it meanwhile.
__device__ __forceinline__ u256 load_readonly(const u256* p) { return u256{load_readonly(&p->lo), load_readonly(&p->hi)}; }
__device__ __forceinline__ u256 load_relaxed(const u256* p) { return u256{load_relaxed(&p->lo), load_relaxed(&p->hi)}; }
__device__ __forceinline__ void store_relaxed(u256* p, u256 v) {
    store_relaxed(&p->lo, v.lo);
    store_relaxed(&p->hi, v.hi);
}
#if defined(WARPMAP_SHARED) && !defined(WARPMAP_HOST)
__device__ __forceinline__ u256 load_memory(const u256* p) { return u256{load_memory(&p->lo), load_memory(&p->hi)}; }
__device__ __forceinline__ void store_memory(u256* p, u256 v) {
    store_memory(&p->lo, v.lo);
    store_memory(&p->hi, v.hi);
}
#endif
__device__ __forceinline__ u256 warp_shuffle(u32 mask, u256 x, u32 from) {
    return u256{warp_shuffle(mask, x.lo, from), warp_shuffle(mask, x.hi, from)};
}

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

// block_count adds x[i] of every thread of a block to the global counter at `to[i]`, with one atomic operation a block, where
// many warps that end at once would get into each other's way. Every thread of the block must reach it.
// With MINUS it takes them away. The first barrier is for memory that others have read before: ptxas of CUDA 13 gives two
// functions' shared variables one place where no thread needs both, though another thread may still read the first.
template <int N, bool MINUS = false> __device__ __forceinline__ void block_count(u64* const (&to)[N], const u32 (&x)[N]) {
#if defined(WARPMAP_HOST)
    for (int i = 0; i < N; i++) count_into(to[i], MINUS ? 0 - (u64)x[i] : (u64)x[i]);
#else
    __shared__ u32 sums[N];
    block_sync();
    if (thread_index() < N) sums[thread_index()] = 0;
    block_sync();
#pragma unroll
    for (int i = 0; i < N; i++) {
        u32 all = warp_sum(x[i]);
        if (all && (thread_index() & 31) == 0) add(&sums[i], all);
    }
    block_sync();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (thread_index() == (u32)i && sums[i]) add(to[i], MINUS ? 0 - (u64)sums[i] : (u64)sums[i]);
#endif
}

// append gives each lane that wants one the next place of a list whose length is *counter, with one atomic operation a
// warp. All lanes of the warp must reach it.
template <class T> __device__ __forceinline__ T append(T* counter, bool wanted) {
#if defined(WARPMAP_HOST)
    return wanted ? add(counter, (T)1) : 0;
#else
    u32 all = warp_ballot(~0u, wanted), lane = thread_index() & 31;
    if (!all) return 0;
    T first = 0;
    if (lane == 0) first = add(counter, (T)popcount(all));
    return warp_shuffle(~0u, first, 0) + (T)popcount(all & (1u << lane) - 1);
#endif
}

// append_row gives each lane the first of n next places in a row, as append does.
__device__ __forceinline__ u64 append_row(u64* counter, u32 n) {
#if defined(WARPMAP_HOST)
    return n ? add(counter, (u64)n) : 0;
#else
    tile<32> warp;
    u64 all, before = warp.scan(n, all), first = 0;
    if (warp.rank() == 0 && all) first = add(counter, all);
    return warp.shuffle(first, 0) + before;
#endif
}

template <class T> __device__ __forceinline__ T* at(u64 address) { return reinterpret_cast<T*>(address); }

// block_scan gives the sum of x over the threads of the block before this one, and the sum over all. Every thread of
// the block must reach it; a block has 1024 threads or less.
__device__ __forceinline__ u64 block_scan(u64 x, u64& all) {
    __shared__ u64 sums[1024 / 32];
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

// Feed hands a batch of n items to the lanes of a warp, one at a time: a lane that is done with its item gets the next,
// so that items of different length leave no lane idle. Items come in rows of 32. The warp keeps the data of two rows,
// each lane that of one item of each, loaded ahead of its use. I numbers the items; it must not overflow two
// rows beyond them.
template <class I> struct Feed {
    I row, stride, n; // the row that is given out, items row … row+31; the next begins at row + stride
    u32 given;        // of the row

    __device__ __forceinline__ Feed(I n) : row((I)grid_thread() & ~(I)31), stride((I)grid_threads()), n(n), given(0) {}

    // The item whose data this lane holds of the row, and of the next.
    __device__ __forceinline__ I item() const { return row + (thread_index() & 31); }
    __device__ __forceinline__ I ahead() const { return item() + stride; }

    // give gives each idle lane an item while there are some. Its data is with lane `from`, of the row, or with `later`
    // of the next. With turned, the same for all lanes, the row was used up: the next is the row now, and the lanes load
    // the one ahead; only then may an item be of the next row. All lanes must come.
    __device__ __forceinline__ bool give(bool idle, I& item, int& from, bool& later, bool& turned) {
        u32 wanting = warp_ballot(~0u, idle), before = (1u << (thread_index() & 31)) - 1;
        u32 place = given + (u32)popcount(wanting & before);
        from = place & 31;
        later = place > 31;
        I it = row + (later ? stride : 0) + from;
        bool got = idle && it < n;
        if (got) item = it;
        given += (u32)popcount(wanting);
        turned = given > 31;
        if (turned) {
            given -= 32;
            row += stride;
        }
        return got;
    }
    __device__ __forceinline__ bool more() const { return row < n; }
};
