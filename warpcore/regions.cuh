// The kernels that bring rows in the order of the regions that their keys' first windows lie in. The region is of the hash's high bits, as the
// window is, so regions are stretches of windows. Rows of the side region, which are few, are of any. A program's own key and value are meant.
#pragma once
#include "partition.cuh"

__device__ __forceinline__ auto place_of(const partitionParams& p) {
    return [&p](key k, u64 parts) { return (Probe<C>(p.table, k).hash >> 32) * parts >> 32; };
}
template <class P> __device__ __forceinline__ auto region_of(const P& p) {
    return [&p](key k) { return (u32)((Probe<C>(p.table, k).hash >> 32) * (u32)p.rows.parts >> 32); };
}
WARPMAP_KERNEL(partition_count, partitionParams) { partition_count<key>(p.rows, region_of(p)); }
WARPMAP_KERNEL(partition_scan, partitionParams) { partition_scan(p.rows); }
WARPMAP_KERNEL_RESIDENT(partition_scatter, partitionParams, 4) { partition_scatter<key, value, u32>(p.rows, region_of(p)); }

#if !WARPCORE_SET
WARPMAP_KERNEL(partition_within_count, partitionParams) { partition_within_count<key>(p.rows, region_of(p)); }
WARPMAP_KERNEL_RESIDENT(partition_within_scatter, partitionParams, 4) { partition_within_scatter<key, value>(p.rows, region_of(p)); }
WARPMAP_KERNEL_RESIDENT(partition_group, partitionParams, 4) { partition_group<key, value>(p.rows, place_of(p)); }
#endif
