// Update in batches in which keys come again and again: rows that are near one another and have one key go in together. A program of Update has this
// file beside combine.h (see Gathering in combine.go).
#pragma once
#include "combine.cuh"

// gather_rows makes one of those of a warp's 32 rows that have the same key: the first gets them all as its group, a bit for each, and the others
// get none; a row without a bit is not to be done. v of the first is then what all their values make, but where the operation is the user's: see
// combine_rows. same(from) tells whether this lane's key is lane from's.
constexpr int ROWS_LEAST = 4, ROWS_KEYS = 4; // fewer rows are no trouble to one another; so many keys are looked for among the 32
template <class Warp, class Same> __device__ __forceinline__ void gather_rows(Warp warp, number_bits& v, u32& group, Same same) {
    u32 left = warp.ballot(group);
    for (int i = 0; i < ROWS_KEYS && left; i++) {
        int first = lowest_bit(left);
        bool mine = same(first);
        u32 rows = warp.ballot(mine && group) & left;
        left &= ~rows;
        if (popcount(rows) < ROWS_LEAST) break; // most likely there are no such keys
        mine = rows >> warp.rank() & 1;
        if constexpr (MERGES) {
            number_bits one = warp.shuffle(v, first), all = mine ? v : TWICE_AS_ONCE ? one : number_bits{};
#pragma unroll
            for (int d = 16; d > 0; d /= 2) all = merged(all, warp.shuffle(all, warp.rank() ^ d));
            if (mine) v = all;
        }
        if (mine) group = warp.rank() == first ? rows : 0;
    }
}

// own_row is the bit of row i in its group.
__device__ __forceinline__ u32 own_row(u64 i) { return 1u << (i & 31); }

// merged_rows is `old` with the values of a group of rows, one of which is i: v is what gather_rows has made of them.
__device__ __forceinline__ number_bits merged_rows(number_bits old, number_bits v, u64 values, u64 i, u32 rows) {
    if constexpr (MERGES) return merged(old, v);
    for (; rows; rows &= rows - 1) old = merged(old, load_readonly(at<number_bits>(values) + (i & ~31ull) + lowest_bit(rows)));
    return old;
}
// combine_rows combines them with the value at a place, last seen as `seen`, beside others that do the same.
__device__ __forceinline__ void combine_rows(number_bits* place, number_bits seen, number_bits v, u64 values, u64 i, u32 rows) {
    if constexpr (MERGES) merge_into(place, seen, v);
    else merge_by_swaps(place, seen, [&](number_bits old) { return merged_rows(old, v, values, i, rows); });
}
