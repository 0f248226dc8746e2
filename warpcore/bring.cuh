// Rows of a batch in shared memory, those of a key beside one another.
#pragma once
#include "together.cuh"
#include "warpcore.cuh"

namespace warpcore {

template <class C, u32 MOST> struct Grouped : Together<typename C::key, MOST> {
    typedef typename C::key key;
    typename C::value v[MOST]; // those of a key beside one another
    u32 count[MOST];           // of a first row: its key's values; then where those begin that nobody has taken
    // first, when all rows are with others: the first rows, those of each thread beside one another, and above them how many values their keys have;
    // from ROWS on, of keys with long chains, where their values end
    u32 longs; // how many these are
    static_assert(MOST < 1 << 16, "a row's number, and where the values of its key end, are a word");

    // bring brings n rows together: load gives a row's key, value_of its value; a row without key is left out. It calls placed(place, row, first) for each, with
    // the first row of its key, and gives how many keys there are. All threads of a block call it, and have met when it returns.
    template <class Load, class Value, class Placed> __device__ __forceinline__ u32 bring(const Table& t, u32 n, Load load, Value value_of, Placed placed) {
        constexpr u32 EACH = (MOST + WARPMAP_MAX_THREADS - 1) / WARPMAP_MAX_THREADS;
        u32 with[EACH], firsts = 0;
        this->clear();
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            u32 i = j * WARPMAP_MAX_THREADS + thread_index();
            with[j] = ~0u;
            if (i < n && load(i, this->k[i])) with[j] = 0;
            if (i < n) count[i] = 0;
        }
        block_sync();
        if (thread_index() == 0) longs = 0;
#pragma unroll
        for (u32 j = 0; j < EACH; j++) { // a row's first row, and above it the row's number among its key's
            u32 i = j * WARPMAP_MAX_THREADS + thread_index();
            if (with[j] == ~0u) continue;
            u32 own = this->first_of(i, (u32)Probe<C>(t, this->k[i]).hash);
            with[j] = own | add(&count[own], 1u) << 16;
            firsts |= (u32)(own == i) << j;
        }
        block_sync();
        u32 values = 0;
#pragma unroll
        for (u32 j = 0; j < EACH; j++)
            if (firsts >> j & 1) values += count[j * WARPMAP_MAX_THREADS + thread_index()];
        u64 all, before = block_scan((u64)values << 32 | (u32)popcount(firsts), all);
        u32 begin = (u32)(before >> 32), place = (u32)before;
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            if (!(firsts >> j & 1)) continue;
            u32 i = j * WARPMAP_MAX_THREADS + thread_index(), m = count[i];
            count[i] = begin;
            this->first[place++] = i | m << 16;
            begin += m;
        }
        block_sync();
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            if (with[j] == ~0u) continue;
            u32 i = j * WARPMAP_MAX_THREADS + thread_index(), to = count[with[j] & 0xffff] + (with[j] >> 16);
            v[to] = value_of(i);
            placed(to, i, with[j] & 0xffff);
        }
        block_sync();
        return (u32)all;
    }
};

} // namespace warpcore
