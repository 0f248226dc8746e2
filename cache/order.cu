// Brings the rows of a batch in the order of the regions that their buckets lie in: both are of the hash's high bits, so
// regions are stretches of buckets.
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

__device__ __forceinline__ auto region_of(const orderParams& p) {
    return [&p](key k) { return (u32)((hash64<C::HASH>(k, p.table.seed) >> 32) * (u32)p.rows.parts >> 32); };
}
WARPMAP_PARTITION(orderParams, key, carried, u32, region_of)
