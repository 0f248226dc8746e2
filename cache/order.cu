// Brings the rows of a batch in the order of stretches of buckets, of 2^p.shift each, in two passes.
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "layout.h"
#include "partition.cuh"

using namespace cache;

typedef config C;
typedef config::key key;

// Rows of keys alone have no values to carry.
template <bool VALUES> struct Carried { typedef u32 type; };
template <> struct Carried<true> { typedef config::value type; };
typedef Carried<(C::PAIRED && C::VALUE_BYTES > 0)>::type carried;

__device__ __forceinline__ auto stretch_of(const stretchParams& p) {
    return [&p](key k) {
        u32 stretch = (u32)(reduce(hash64<C::HASH>(k, p.put.table.seed), p.put.table.count) >> p.shift);
        return p.rows.within ? stretch : stretch / (u32)p.rows.parts;
    };
}
WARPMAP_PARTITION(stretchParams, key, carried, u32, stretch_of)
WARPMAP_PARTITION_WITHIN(stretchParams, key, carried, stretch_of)
