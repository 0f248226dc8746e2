// What the lanes of a kernel count of a batch.
#pragma once
#include "cache.cuh"

namespace cache {

// count_in_memory is count_into for programs of all kinds.
__device__ __forceinline__ void count_in_memory(u64* counter, u64 x) {
#if defined(WARPMAP_HOST)
    if (x) add_to_memory(counter, x);
#else
    x = tile<32>().sum(x);
    if (x && (thread_index() & 31) == 0) add_to_memory(counter, x);
#endif
}

// Counts are what lanes count of a batch.
struct Counts {
    u64 hits, misses, added, updated, renewed, evicted, refused, erased;
    __device__ __forceinline__ Counts() : hits(0), misses(0), added(0), updated(0), renewed(0), evicted(0),
        refused(0), erased(0) {}
    // An insert-new looks up, too.
    __device__ __forceinline__ void count(u32 op, Fate x) {
        if (op == CACHE_FIND || op == CACHE_INSERT_NEW) {
            hits += x == UPDATES;
            misses += x != UPDATES;
        }
        updated += op == CACHE_INSERT && x == UPDATES;
        erased += op == CACHE_DELETE && x == UPDATES;
        added += x == ADDS;
        renewed += x == RENEWS;
        evicted += x == EVICTS;
        refused += x == IS_REFUSED;
    }
    __device__ __forceinline__ void end(Counters* c) const {
        count_in_memory(&c->hits, hits);
        count_in_memory(&c->misses, misses);
        count_in_memory(&c->added, added);
        count_in_memory(&c->updated, updated);
        count_in_memory(&c->renewed, renewed);
        count_in_memory(&c->evicted, evicted);
        count_in_memory(&c->refused, refused);
        count_in_memory(&c->erased, erased);
    }
};

} // namespace cache
