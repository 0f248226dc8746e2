// The positions of a batch that found no room: set bits of a bitmap (see table.Part). The first attempt tries every position, and
// sets bits; a later one tries those whose bit is set, and clears the bits of those that got in.
#pragma once
#include "warpmap.cuh"

// wanted tells whether an attempt tries position i.
__device__ __forceinline__ bool wanted(u64 bitmap, u64 attempt, u64 i) {
    return !attempt || (load_relaxed(at<u32>(bitmap) + i / 32) >> (i & 31) & 1);
}
// settle_bit notes what became of a position that was tried. Without a bitmap, at address 0, it does nothing.
__device__ __forceinline__ void settle_bit(u64 bitmap, u64 attempt, u64 i, bool refused) {
    if (refused && !attempt && bitmap) or_of(at<u32>(bitmap) + i / 32, 1u << (i & 31));
    if (!refused && attempt) and_of(at<u32>(bitmap) + i / 32, ~(1u << (i & 31)));
}
// settle counts it in `failed`, too, if it is refused.
__device__ __forceinline__ void settle(u64 bitmap, u64 attempt, u64 i, bool refused, u64* failed) {
    settle_bit(bitmap, attempt, i, refused);
    if (refused) add(failed, (u64)1);
}
