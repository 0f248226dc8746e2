// The kernels that bring rows in the order of the regions that their keys' first windows lie in. The region is of the hash's high bits, as the
// window is, so regions are stretches of windows; with p.inverse, of so many exactly. Rows of the side region, which are few, are of any. A
// program's own key and value are meant.
#pragma once
#include "partition.cuh"

template <class P> __device__ __forceinline__ auto region_of(const P& p) {
    return [&p](key k) { return (u32)((Probe<C>(p.table, k).hash >> 32) * (u32)p.rows.parts >> 32); };
}
// StretchOf is of a key's window, or hash: as if all were of the main region, and what all keys have in common is worked out once.
struct StretchOf {
    u64 seed, inverse;
    u32 windows, parts;
    __device__ __forceinline__ StretchOf(const partitionParams& p)
        : seed(p.table.seed), inverse(p.inverse), windows((u32)p.table.main.windows), parts((u32)p.rows.parts) {}
    __device__ __forceinline__ u32 operator()(key k) const {
        return of(hash64<C::HASH>(C::alias(k, C::marks(k)), seed));
    }
    __device__ __forceinline__ u32 of(u64 hash) const {
        if (!inverse) return (u32)((hash >> 32) * parts >> 32);
        u32 window = (u32)(((hash >> 32) * windows + ((hash & 0xffffffff) * windows >> 32)) >> 32);
        return (u32)(window / WARPCORE_NEIGHBOURHOOD * inverse >> WARPCORE_INVERSE_BITS);
    }
};
__device__ __forceinline__ StretchOf stretch_of(const partitionParams& p) { return StretchOf(p); }
WARPMAP_PARTITION(partitionParams, key, value, u32, stretch_of)
WARPMAP_PARTITION_WITHIN(partitionParams, key, value, stretch_of)
WARPMAP_PARTITION_CHUNKS(partitionParams, key, value, stretch_of)
