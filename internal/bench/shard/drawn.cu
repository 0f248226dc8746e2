// The batches of the studies, made where they are used: a host takes longer to make and to check a thousand million pairs than GPUs to insert them.
#include "layout.h"
#include "warpmap.cuh"

using namespace shard;

// Each index has a key of its own, and no two the same.
__device__ __forceinline__ u32 key_of(u64 index) { return fmix32((u32)index); }
__device__ __forceinline__ u32 value_of(u32 key) { return key * 3 + 1; }

// What a look-up asks for: an index below total, or one that is never inserted.
__device__ __forceinline__ u64 asked(const drawParams& p, u64 i, bool& hits) {
    u64 draw = fmix64(p.first + i + (1ull << 40)), index = reduce(draw << 24, p.total); // both at random: whether it hits, and what
    hits = draw >> 40 < p.hits;
    return hits ? index : p.total + index % p.misses;
}

WARPMAP_KERNEL(draw_pairs, drawParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = key_of(p.first + i);
        at<u32>(p.keys)[i] = key;
        at<u32>(p.values)[i] = value_of(key);
    }
}
WARPMAP_KERNEL(draw_look_ups, drawParams) {
    bool hits;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.keys)[i] = key_of(asked(p, i, hits));
}
WARPMAP_KERNEL(count_wrong, drawParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        bool hits, found = at<u8>(p.found)[i];
        u32 key = key_of(asked(p, i, hits)), value = at<u32>(p.values)[i];
        if (at<u32>(p.keys)[i] != key || found != hits || value != (hits ? value_of(key) : 0)) add(at<u64>(p.wrong), (u64)1);
    }
}
