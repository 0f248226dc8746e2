// The positions of a batch that found no room: set bits of a bitmap (see table.Part). The first attempt tries every position, and
// sets bits; a later one tries those whose bit is set, and clears the bits of those that got in.
#pragma once
#include "warpmap.cuh"

// wanted tells whether an attempt tries position i.
__device__ __forceinline__ bool wanted(u64 bitmap, u64 attempt, u64 i) {
    return !attempt || (load_relaxed(at<u32>(bitmap) + i / 32) >> (i & 31) & 1);
}
// settle notes what became of a position that was tried, and counts it in `failed` if it is refused. Without a bitmap, at
// address 0, that is all.
__device__ __forceinline__ void settle(u64 bitmap, u64 attempt, u64 i, bool refused, u64* failed) {
    if (refused) {
        if (bitmap && !attempt) or_of(at<u32>(bitmap) + i / 32, 1u << (i & 31));
        add(failed, (u64)1);
    } else if (attempt) and_of(at<u32>(bitmap) + i / 32, ~(1u << (i & 31)));
}
