// Which device a row is for.
#pragma once
#include "layout.h"
#include "warpmap.cuh"

using namespace shard;

typedef bits_of<SHARD_KEY_BYTES>::type key;

// owner_of is Go's ownerOf. Its hash is none that tables use, so an owner's keys are spread over all of its table.
__device__ __forceinline__ u32 owner_of(key k, u64 seed, u64 owners) {
    if constexpr (SHARD_KEY_BYTES == 4) return (u32)((u64)fmix32(k ^ (u32)seed) * owners >> 32);
    else return (u32)reduce(fmix64(k ^ seed), owners);
}

// goes tells whether a row goes to an owner: those that are not chosen stay behind.
__device__ __forceinline__ bool goes(u64 when, u64 row) { return !when || at<u8>(when)[row]; }
