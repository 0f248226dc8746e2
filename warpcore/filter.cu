// A filter's bulk operations.
#include "config.h" // struct config: what this filter holds
#include "filter.cuh"
#include "items.cuh"
#include "layout.h"
#include "partition.cuh"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef FilterProbe<C> Probe;

// What a lane has under way of a batch: EACH keys. The lanes of a warp have neighbours of each.
struct Keys {
    static constexpr int EACH = WARPCORE_FILTER_EACH;
    bool on[EACH];
    u64 i[EACH]; // position
    Probe probe[EACH];
};

// A block takes a tile of the batch at once, with all loads of its keys under way before the first is used, and calls each(keys) in every
// lane. With a span it takes so many rows, else it goes on in strides.
template <class Each> __device__ __forceinline__ void for_each_tile(const filterParams& p, Each each) {
    constexpr int EACH = Keys::EACH;
    u64 tile = (u64)EACH * block_threads();
    u64 end = p.span ? span_end(p.span, p.n) : p.n, stride = p.span ? tile : tile * grid_blocks();
    for (u64 first = block_index() * (p.span ? p.span : tile); first < end; first += stride) {
        Keys x;
        key k[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            x.i[j] = first + (u64)j * block_threads() + thread_index();
            x.on[j] = x.i[j] < end;
            k[j] = x.on[j] ? input_key<C>(p.keys, x.i[j]) : key{};
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) x.probe[j] = Probe(p.filter, k[j]);
        each(x);
    }
}

WARPMAP_KERNEL(filter_insert, filterParams) {
    for_each_tile(p, [](const Keys& x) {
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++)
            if (x.on[j]) x.probe[j].set();
    });
}

// Nothing is inserted beside this kernel, so a word may come from any cache: the two of a key are mostly of one sector, which is
// then asked for once. A lane without a key reads words, too.
WARPMAP_KERNEL(filter_contains, filterParams) {
    for_each_tile(p, [&p](const Keys& x) {
        u64 one[Keys::EACH], two[Keys::EACH];
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++) {
            one[j] = load_readonly(x.probe[j].first);
            two[j] = Probe::TWO ? load_readonly(x.probe[j].second) : 0;
        }
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++)
            if (x.on[j]) at<u8>(p.found)[x.i[j]] = x.probe[j].all(one[j], two[j]);
    });
}

// Brings keys in the order of the regions that their blocks lie in: stretches of blocks, as both are of the hash's high bits.
__device__ __forceinline__ auto region_of(const filterPartitionParams& p) {
    return [&p](key k) { return (u32)((filter_hash<C>(k, p.filter.seed) >> 32) * (u32)p.rows.parts >> 32); };
}
WARPMAP_KERNEL(partition_count, filterPartitionParams) { partition_count<key>(p.rows, region_of(p)); }
WARPMAP_KERNEL(partition_scan, filterPartitionParams) { partition_scan(p.rows); }
WARPMAP_KERNEL_RESIDENT(partition_scatter, filterPartitionParams, 4) { partition_scatter<key, u32, u32>(p.rows, region_of(p)); }

// The share of a word's bits that are set, to the N.
template <int N> __device__ __forceinline__ double power(double x) {
    double y = 1;
#pragma unroll
    for (int i = 0; i < N; i++) y *= x;
    return y;
}

// Counts the bits, and sums what rate of false positives each block has: the mean over all pairs of its words that a key may have
// of the shares of set bits, each to the number of the key's bits there.
WARPMAP_KERNEL(filter_stats, filterStatsParams) {
    u64 bits = 0;
    double rates = 0;
    for (u64 i = grid_thread(); i < p.filter.blocks; i += grid_threads()) {
        double first = 0, second = 0, both = 0;
#pragma unroll
        for (u32 w = 0; w < Probe::WORDS; w++) {
            u64 word = load_relaxed(at<u64>(p.filter.words) + i * Probe::WORDS + w);
            u32 set = (u32)popcount((u32)word) + (u32)popcount((u32)(word >> 32));
            double share = set * (1.0 / WARPCORE_FILTER_BITS);
            bits += set;
            first += power<C::FIRST_BITS>(share);
            second += power<C::SECOND_BITS>(share);
            both += power<C::FIRST_BITS + C::SECOND_BITS>(share);
        }
        double rate = Probe::TWO ? (first * second - both) / (Probe::WORDS * (Probe::WORDS - 1.0)) : first / Probe::WORDS;
        if (rate > 0) rates += rate; // less by what was rounded off
    }
    filterSums* sums = at<filterSums>(p.sums);
    count_into(&sums->bits, bits);
    count_into(&sums->rate, (u64)(rates * (double)(1ull << p.shift)));
}

// Sets the bits of another filter, too. Nothing else changes this one.
WARPMAP_KERNEL(filter_union, filterUnionParams) {
    u64 *to = at<u64>(p.filter.words), *from = at<u64>(p.other.words);
    for (u64 i = grid_thread(); i < p.filter.blocks * Probe::WORDS; i += grid_threads()) store_relaxed(to + i, load_relaxed(to + i) | load_relaxed(from + i));
}
