// The kernels that bring rows in the order of the regions that their keys' first windows lie in. The region is of the hash's high bits, as the
// window is, so regions are stretches of windows; with p.inverse, of so many exactly. Rows of the side region, which are few, are of any. A
// program's own key and value are meant.
#pragma once
#include "partition.cuh"

template <class P> __device__ __forceinline__ auto region_of(const P& p) {
    return [&p](key k) { return (u32)((Probe<C>(p.table, k).hash >> 32) * (u32)p.rows.parts >> 32); };
}
__device__ __forceinline__ auto stretch_of(const partitionParams& p) {
    return [&p](key k) {
        Probe<C> h(p.table, k);
        return p.inverse ? (u32)multiply_high(h.window, p.inverse) : (u32)((h.hash >> 32) * (u32)p.rows.parts >> 32);
    };
}
WARPMAP_PARTITION(partitionParams, key, value, u32, stretch_of)
WARPMAP_PARTITION_WITHIN(partitionParams, key, value, stretch_of)
