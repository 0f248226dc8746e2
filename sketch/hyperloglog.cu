// HyperLogLog: see doc.go for the layout.
#include "layout.h"
#include "warpmap.cuh"

using namespace sketch;

typedef bits_of<SKETCH_KEY_BYTES>::type key;

__device__ __forceinline__ u64 key_hash(u64 k, u64 seed) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 key_hash(u128 k, u64 seed) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 key_hash(u256 k, u64 seed) {
    return key_hash(u128{k.lo.lo, k.lo.hi ^ key_hash(k.hi, seed)}, seed);
}

// larger_of gives the larger of each two of four registers, which are below 128.
__device__ __forceinline__ u32 larger_of(u32 a, u32 b) {
    u32 not_less = ((a | 0x80808080u) - b) & 0x80808080u, mask = (not_less >> 7) * 255;
    return (a & mask) | (b & ~mask);
}

// raise makes each of a word's four registers at least as large as that of `by`. A try fails where another lane has
// raised one of them, so there are few.
__device__ __forceinline__ void raise(u32* word, u32 by) {
    for (u32 was = load_racing(word);;) { // what may be old is less, and costs a try
        u32 now = larger_of(was, by);
        if (now == was) return;
        u32 seen = cas(word, was, now);
        if (seen == was) return;
        was = seen;
    }
}

// The register that a hash names, and its rank.
struct Place {
    u32 index, rank;
    __device__ __forceinline__ Place(u64 h, u32 precision) {
        index = (u32)(h >> (64 - precision));
        rank = leading_zeros(h << precision | 1ull << (precision - 1)) + 1;
    }
};

// each_key calls add with every key of the batch that is this thread's. A load has 16 bytes, and several are under way.
template <class Add> __device__ __forceinline__ void each_key(const addParams& p, Add add) {
    constexpr u32 EACH = sizeof(key) < 16 ? 16 / sizeof(key) : 1, LOADS = sizeof(key) < 16 ? 4 : 2;
    typedef bits_of<EACH * sizeof(key)>::type word;
    const key* keys = at<key>(p.keys);
    u64 head = (0 - p.keys) % sizeof(word) / sizeof(key); // keys before the first whole word
    if (head > p.n) head = p.n;
    const word* words = (const word*)(keys + head);
    u64 whole = (p.n - head) / EACH, tail = head + whole * EACH, threads = grid_threads();
    for (u64 first = grid_thread(); first < whole; first += threads * LOADS) {
        union {
            word bits;
            key k[EACH];
        } x[LOADS];
#pragma unroll
        for (u32 j = 0; j < LOADS; j++)
            if (first + j * threads < whole) x[j].bits = load_readonly(words + first + j * threads);
#pragma unroll
        for (u32 j = 0; j < LOADS; j++)
            if (first + j * threads < whole) {
#pragma unroll
                for (u32 i = 0; i < EACH; i++) add(x[j].k[i]);
            }
    }
    for (u64 i = grid_thread(); i < head; i += threads) add(load_readonly(keys + i));
    for (u64 i = tail + grid_thread(); i < p.n; i += threads) add(load_readonly(keys + i));
}

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// On the CPU device one lane of a block does the work of all, for keys in a row. The block's own registers are those of
// its thread.
__device__ __forceinline__ void add_alone(const addParams& p) {
    if (thread_index() != 0) return;
    u64 share = (p.n + grid_blocks() - 1) / grid_blocks(), i = block_index() * share;
    u64 end = i + share < p.n ? i + share : p.n;
    const key* keys = at<key>(p.keys);
    u32 precision = (u32)p.precision;
    if (!p.own) {
        for (; i < end; i++) {
            Place x(key_hash(keys[i], p.seed), precision);
            raise(at<u32>(p.registers) + x.index / 4, x.rank << x.index % 4 * 8);
        }
        return;
    }
    u8* own = (u8*)dynamic_shared();
    asm("" : "+r"(own)); // else the compiler asks for the thread's memory at every key
    for (u32 w = 0; w < 1u << precision >> 2; w++) ((u32*)own)[w] = load_relaxed(at<u32>(p.registers) + w);
    auto put = [&](u64 hash) {
        Place x(hash, precision);
        if (own[x.index] < x.rank) own[x.index] = (u8)x.rank;
    };
#if SKETCH_KEY_BYTES <= 8 // the processor's vectors hash several keys at once
    constexpr u64 N = WARPMAP_VECTOR / 8;
    typedef u64 hashes __attribute__((vector_size(8 * N)));
    typedef key row __attribute__((vector_size(sizeof(key) * N), aligned(sizeof(key)), may_alias));
    for (; i + N <= end; i += N) {
        hashes h = seeded64_each(__builtin_convertvector(*(const row*)(keys + i), hashes), p.seed);
        for (u64 j = 0; j < N; j++) put(h[j]);
    }
#endif
    for (; i < end; i++) put(key_hash(keys[i], p.seed));
    for (u32 w = 0; w < 1u << precision >> 2; w++) raise(at<u32>(p.registers) + w, ((u32*)own)[w]);
}
#endif

WARPMAP_KERNEL(hyperloglog_add, addParams) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return add_alone(p);
#endif
    u32 precision = (u32)p.precision, words = 1u << precision >> 2;
    u32* all = at<u32>(p.registers);
    u32* to = p.own ? (u32*)dynamic_shared() : all;
    if (p.own) { // they begin as the others are, so that fewer of them change
        for (u32 w = thread_index(); w < words; w += block_threads()) to[w] = load_relaxed(all + w);
        block_sync();
    }
    each_key(p, [&](key k) {
        Place x(key_hash(k, p.seed), precision);
        raise(to + x.index / 4, x.rank << x.index % 4 * 8);
    });
    if (!p.own) return;
    block_sync();
    // Blocks end at about the same time: each begins elsewhere.
    u32 begin = (u32)block_index() * (block_threads() * 5);
    for (u32 w = thread_index(); w < words; w += block_threads()) {
        u32 i = (w + begin) & (words - 1);
        raise(all + i, to[i]);
    }
}

WARPMAP_KERNEL(hyperloglog_merge, mergeParams) {
    for (u64 w = grid_thread(); w < p.words; w += grid_threads())
        raise(at<u32>(p.to) + w, load_relaxed(at<u32>(p.from) + w));
}
