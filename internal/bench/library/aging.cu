// The batches of tables that age, made and checked where they are used.
#include "layout.h"
#include "warpmap.cuh"

using namespace library;

// Each index has a key of its own, and no two of 2³² the same.
__device__ __forceinline__ u32 key_of(u64 index) { return fmix32((u32)index); }
__device__ __forceinline__ u32 value_of(u32 key, u32 number) { return key * 3 + 1 + number; }

// What a look-up asks for: in half of them a key of the window, else one that has yet to come, or that has gone. in is
// how many values it has.
__device__ __forceinline__ u64 asked(const agingParams& p, u64 i, u32& in) {
    u64 draw = fmix64(p.draw + i), where = reduce(fmix64(draw), p.end - p.first);
    in = 0;
    if (draw & 2) return draw & 1 ? p.end + where : p.first - 1 - where;
    in = load_relaxed(at<u8>(p.in) + (p.first + where) % p.ring);
    return p.first + where;
}
__device__ __forceinline__ void count_if(const agingParams& p, bool wrong) {
    if (wrong) add(at<u64>(p.wrong), (u64)1);
}

// Rows of the keys from First on. The rows of one key are far from one another, and their values count up.
WARPMAP_KERNEL(age_pairs, agingParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = key_of(p.first + i % p.distinct);
        at<u32>(p.keys)[i] = key;
        if (p.values) at<u32>(p.values)[i] = value_of(key, (u32)(i / p.distinct));
    }
}
WARPMAP_KERNEL(age_look_ups, agingParams) {
    u32 in;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.keys)[i] = key_of(asked(p, i, in));
}
// Found of deletions, or of inserts into a set.
WARPMAP_KERNEL(age_wrong_changes, agingParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        count_if(p, (at<u8>(p.found)[i] != 0) != (load_relaxed(at<u8>(p.in) + (p.first + i) % p.ring) != 0));
}
// Found, and where there are any, the values of keys that have one.
WARPMAP_KERNEL(age_wrong_finds, agingParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 in;
        u32 key = key_of(asked(p, i, in));
        bool found = at<u8>(p.found)[i];
        count_if(p, found != (in > 0) || (p.values && at<u32>(p.values)[i] != (in ? value_of(key, 0) : 0)));
    }
}
// How many values keys have, in Values.
WARPMAP_KERNEL(age_wrong_counts, agingParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 in;
        asked(p, i, in);
        count_if(p, at<u32>(p.values)[i] != in);
    }
}
