// A filter's bulk operations.
#include "config.h" // struct config: what this filter holds
#include "drive.cuh"
#include "filter.cuh"
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

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// On the CPU device lanes work alone (in stress mode they do what a GPU's do), and each(position, probe) comes for one key after the other: their blocks are asked for first.
template <bool WRITES, class Each> struct KeyJob {
    typedef key Item;
    const filterParams& p;
    Each each;
    Probe probe;
    KeyJob(const filterParams& p, Each each) : p(p), each(each) {}
    Item load(u64 i) const { return input_key<C>(p.keys, i); }
    void ahead(const Item& k) const {
        u64 block = p.filter.words + reduce(filter_hash<C>(k, p.filter.seed), p.filter.blocks) * C::WORDS * sizeof(Probe::word);
        if (WRITES) prefetch_to_write(block);
        else prefetch_line(block);
    }
    bool begin(u64, const Item& k) {
        probe = Probe(p.filter, k);
        return true;
    }
    bool round(tile<1>, bool) const { return false; }
    void done(u64 i) { each(i, probe); }
};
template <bool WRITES, class Each> inline void for_each_key(const filterParams& p, Each each) {
    KeyJob<WRITES, Each> job(p, each);
    drive_held<tile<1>, u64>(p.n, job);
}
#endif

WARPMAP_KERNEL(filter_insert, filterParams) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return for_each_key<true>(p, [](u64, const Probe& x) { x.set(); });
#endif
    for_each_tile(p, [](const Keys& x) {
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++)
            if (x.on[j]) x.probe[j].set();
    });
}

// Nothing is inserted beside this kernel, so a word may come from any cache: those of a key are mostly of one sector, which is
// then asked for once. A lane without a key reads words, too.
WARPMAP_KERNEL(filter_contains, filterParams) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return for_each_key<false>(p, [&p](u64 i, const Probe& x) {
        Probe::word w[Probe::SPREAD];
        for (int s = 0; s < Probe::SPREAD; s++) w[s] = load_relaxed(x.at_word[s]);
        at<u8>(p.found)[i] = x.all(w);
    });
#endif
    for_each_tile(p, [&p](const Keys& x) {
        Probe::word w[Keys::EACH][Probe::SPREAD];
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++)
#pragma unroll
            for (int s = 0; s < Probe::SPREAD; s++) w[j][s] = load_readonly(x.probe[j].at_word[s]);
#pragma unroll
        for (int j = 0; j < Keys::EACH; j++)
            if (x.on[j]) at<u8>(p.found)[x.i[j]] = x.probe[j].all(w[j]);
    });
}

// Brings keys in the order of the regions that their blocks lie in: stretches of blocks, as both are of the hash's high bits.
__device__ __forceinline__ auto region_of(const filterPartitionParams& p) {
    return [&p](key k) { return (u32)((filter_hash<C>(k, p.filter.seed) >> 32) * (u32)p.rows.parts >> 32); };
}
WARPMAP_PARTITION(filterPartitionParams, key, u32, u32, region_of)
WARPMAP_PARTITION_WITHIN(filterPartitionParams, key, u32, region_of)

// Counts the bits, and sums what rate of false positives each block has: the mean, over all choices of words that a key may have, of the
// product of the words' shares of set bits, each to the number of the key's bits there.
WARPMAP_KERNEL(filter_stats, filterStatsParams) {
    constexpr int SPREAD = Probe::SPREAD, SETS = 1 << SPREAD;
    u64 bits = 0;
    double rates = 0;
    for (u64 i = grid_thread(); i < p.filter.blocks; i += grid_threads()) {
        // Of the key's words some, by their bits in x, are among the words so far: the sum over all ways.
        double ways[SETS] = {1};
#pragma unroll
        for (u32 w = 0; w < C::WORDS; w++) {
            u64 word = load_relaxed(at<Probe::word>(p.filter.words) + i * C::WORDS + w);
            u32 set = (u32)popcount((u32)word) + (u32)popcount((u32)(word >> 32));
            bits += set;
            double share[SPREAD];
#pragma unroll
            for (int j = 0; j < SPREAD; j++) share[j] = 1;
#pragma unroll
            for (int h = 0; h < C::HASHES; h++) share[h % SPREAD] *= set * (1.0 / WARPCORE_FILTER_BITS);
#pragma unroll
            for (int x = SETS - 1; x > 0; x--)
#pragma unroll
                for (int j = 0; j < SPREAD; j++)
                    if (x >> j & 1) ways[x] += ways[x ^ 1 << j] * share[j];
        }
        double rate = ways[SETS - 1];
#pragma unroll
        for (int j = 0; j < SPREAD; j++) rate /= C::WORDS - j;
        rates += rate;
    }
    filterSums* sums = at<filterSums>(p.sums);
    count_into(&sums->bits, bits);
    count_into(&sums->rate, (u64)(rates * (double)(1ull << p.shift)));
}

// Sets the bits of another filter, too. Nothing else changes this one.
WARPMAP_KERNEL(filter_union, filterUnionParams) {
    auto *to = at<Probe::word>(p.filter.words), *from = at<Probe::word>(p.other.words);
    for (u64 i = grid_thread(); i < p.filter.blocks * C::WORDS; i += grid_threads())
        store_relaxed(to + i, load_relaxed(to + i) | load_relaxed(from + i));
}
