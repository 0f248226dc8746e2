// Kernels that make the batches of the studies on the devices and check the answers there. A host would need more time
// for this than the GPUs need for the measured operations.
#include "layout.h"
#include "warpmap.cuh"

using namespace shard;

// key_of returns the key of an index. Different indices have different keys.
#if KEY_BYTES == 8
typedef u64 word;
__device__ __forceinline__ word key_of(u64 index) { return fmix64(index); }
#else
typedef u32 word;
__device__ __forceinline__ word key_of(u64 index) { return fmix32((u32)index); }
#endif
__device__ __forceinline__ word value_of(word key) { return key * 3 + 1; }

// inserted returns the index of the key of a row. All are different, or drawn from fewer than there are rows.
__device__ __forceinline__ u64 inserted(const drawParams& p, u64 row) {
    return p.distinct < p.total ? reduce(fmix64(row + (2ull << 40)), p.distinct) : row;
}

// index_of returns the index of the key of row i of this part, of an insert or of a look-up. The index of a look-up is
// below distinct, or is never inserted.
__device__ __forceinline__ u64 index_of(const drawParams& p, u64 i, bool& hits) {
    hits = true;
    if (!p.asks) return inserted(p, p.first + i);
    u64 draw = fmix64(p.first + i + (1ull << 40)), index = reduce(draw << 24, p.distinct);
    hits = draw >> 40 < p.hits;
    return hits ? index : p.distinct + index;
}

// times_of returns the number of rows that were inserted with the key of an index.
__device__ __forceinline__ u32 times_of(const drawParams& p, u64 index, bool hits) {
    return !hits ? 0 : p.counts ? at<u32>(p.counts)[index] : 1;
}

WARPMAP_KERNEL(draw, drawParams) {
    bool hits;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        word key = key_of(index_of(p, i, hits));
        at<word>(p.keys)[i] = key;
        if (p.values) at<word>(p.values)[i] = value_of(key);
    }
}

// count_rows counts the rows of each key, of all parts, and the keys that have rows.
WARPMAP_KERNEL(count_rows, drawParams) {
    for (u64 row = grid_thread(); row < p.total; row += grid_threads()) {
        if (add(at<u32>(p.counts) + inserted(p, row), 1u) == 0) add(at<u64>(p.wrong), (u64)1);
    }
}

// count_wrong counts the wrong answers. The value of a key is its number of rows, or the sum of their values.
WARPMAP_KERNEL(count_wrong, drawParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        bool hits, found = at<u8>(p.found)[i];
        u64 index = index_of(p, i, hits);
        word key = key_of(index), times = times_of(p, index, hits), value = p.counted ? times : times * value_of(key);
        if (at<word>(p.keys)[i] != key || found != (times > 0) || (p.values && at<word>(p.values)[i] != value))
            add(at<u64>(p.wrong), (u64)1);
    }
}

// count_wrong_lists counts the keys whose list of values has another length, or another value, than was inserted.
WARPMAP_KERNEL(count_wrong_lists, drawParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        bool hits;
        u64 index = index_of(p, i, hits), from = at<u64>(p.offsets)[i], to = at<u64>(p.offsets)[i + 1];
        word key = key_of(index);
        bool wrong = at<word>(p.keys)[i] != key || to - from != times_of(p, index, hits);
        for (u64 j = from; j < to && !wrong; j++) wrong = at<word>(p.values)[j] != value_of(key);
        if (wrong) add(at<u64>(p.wrong), (u64)1);
    }
}
