// All values of each key of a batch, in one array: where those of a key begin, from how many each key has. Five kernels, one entry
// point each in a family's program (launched by Finder in table/findall.go):
//
//   count_all      the family's: writes how many values each key has
//   sum_chunks     a warp adds up a chunk of these counts
//   scan_totals    one block turns the sums into where the values of each chunk begin
//   write_offsets  where the values of each key begin
//   fill_all       the family's: writes the values. It may do the work of write_offsets too, a chunk to a warp
//
// Rows is frame::FindAll.
#pragma once
#include "warpmap.cuh"

// FINDALL_MANY is the count of a key that has so many values or more: a count goes no further. FINDALL_REFUSED, in the
// place of how many values all keys have, tells the host that there is such a key: FindAll has no offsets for it.
constexpr u32 FINDALL_MANY = ~0u;
constexpr u64 FINDALL_REFUSED = ~0ull, FINDALL_MARK = 1ull << 63; // of a chunk's total

// count_on is a count of 32 bits, one batch of values after a count of `before`: it stays at FINDALL_MANY once it would wrap.
__device__ __forceinline__ u32 count_on(u32 before, u32 count) { return count < before ? FINDALL_MANY : count; }

#if defined(WARPMAP_HOST)
#include "items.cuh"

// On the CPU device the first lane of a block does what a GPU's warps do together. alone_by_chunks calls row(i, n, offset) for each key that has n > 0
// values, and writes where these begin if so told; soon(i, n) comes before, for it to ask for memory. Not in stress mode, where it is false.
#if defined(WARPMAP_STRESS)
constexpr bool BY_CHUNKS_ALONE = false;
#else
constexpr bool BY_CHUNKS_ALONE = true;
#endif
template <class Rows, class Soon, class Row> inline void alone_by_chunks(const Rows& r, bool write, Soon soon, Row row) {
    if (thread_index() != 0) return;
    const u32* counts = at<u32>(r.counts);
    for (u64 c = block_index(); c < r.chunks; c += grid_blocks()) {
        u64 first = c * r.chunk, end = first + r.chunk < r.n ? first + r.chunk : r.n, offset = write ? at<u64>(r.totals)[c] : 0, asked = first;
        for (u64 i = first; i < end; i++) {
            for (u64 to = i + AHEAD < end ? i + AHEAD : end; asked < to; asked++)
                if (u32 n = counts[asked]) soon(asked, n);
            u32 n = counts[i];
            if (write) at<u64>(r.offsets)[i] = offset;
            if (n) row(i, n, offset);
            offset += n;
        }
    }
}
#endif

#define FOR_EACH_CHUNK(c, chunks) for (u64 c = grid_thread() / 32; c < (chunks); c += grid_threads() / 32)

template <class Rows> __device__ __forceinline__ void sum_chunks(const Rows& r) {
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE) {
        if (thread_index() != 0) return;
        for (u64 c = block_index(); c < r.chunks; c += grid_blocks()) {
            u64 total = 0;
            bool many = false;
            for (u64 i = c * r.chunk; i < r.n && i < (c + 1) * r.chunk; i++) {
                u32 n = at<u32>(r.counts)[i];
                total += n;
                many |= n == FINDALL_MANY;
            }
            at<u64>(r.totals)[c] = many ? total | FINDALL_MARK : total;
        }
        return;
    }
#endif
    tile<32, true> warp;
    FOR_EACH_CHUNK(c, r.chunks) {
        u64 total = 0;
        bool many = false;
        for (u64 j = 0; j < r.chunk; j += 32) {
            u64 i = c * r.chunk + j + warp.rank();
            u32 n = i < r.n ? at<u32>(r.counts)[i] : 0;
            total += n;
            many |= n == FINDALL_MANY;
        }
        total = warp.sum(total);
        if (warp.any(many)) total |= FINDALL_MARK;
        if (warp.rank() == 0) at<u64>(r.totals)[c] = total;
    }
}

// scan_totals leaves the sum of all behind the last offset, or FINDALL_REFUSED.
template <class Rows> __device__ __forceinline__ void scan_totals(const Rows& r) {
    const int EACH = 16;
    u64* totals = at<u64>(r.totals);
    u64 before = 0;
    bool many = false;
    for (u64 first = 0; first < r.chunks; first += (u64)EACH * block_threads()) {
        u64 x[EACH], mine = 0;
        for (int j = 0; j < EACH; j++) {
            u64 i = first + (u64)thread_index() * EACH + j;
            x[j] = i < r.chunks ? totals[i] : 0;
            many |= x[j] >> 63;
            x[j] &= ~FINDALL_MARK;
            mine += x[j];
        }
        u64 all, start = before + block_scan(mine, all);
        for (int j = 0; j < EACH; j++) {
            u64 i = first + (u64)thread_index() * EACH + j;
            if (i < r.chunks) totals[i] = start;
            start += x[j];
        }
        before += all;
    }
    if (thread_index() == 0) at<u64>(r.offsets)[r.n] = before;
    block_sync();
    if (many) at<u64>(r.offsets)[r.n] = FINDALL_REFUSED;
}

template <class Rows> __device__ __forceinline__ void write_offsets(const Rows& r) {
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE) return alone_by_chunks(r, true, [](u64, u32) {}, [](u64, u32, u64) {});
#endif
    tile<32, true> warp;
    FOR_EACH_CHUNK(c, r.chunks) {
        u64 before = at<u64>(r.totals)[c];
        for (u64 j = 0; j < r.chunk; j += 32) {
            u64 i = c * r.chunk + j + warp.rank(), all;
            u64 offset = before + warp.scan(i < r.n ? (u64)at<u32>(r.counts)[i] : 0, all);
            before += all;
            if (i < r.n) at<u64>(r.offsets)[i] = offset;
        }
    }
}
