// CountMin: see doc.go for the layout.
#include "counting.cuh"

using namespace sketch;

// multiplier is that of a row: odd, and as if drawn at random. Hashes are drawn at random by the sketch's seed, so rows
// need no seeds of their own.
__device__ __forceinline__ constexpr u64 multiplier(u32 row) {
    u64 x = (row + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x >> 31 ^ x | 1;
}

// place is which counter of a row, of `width`, a hash names.
__device__ __forceinline__ u32 place(u64 hash, u32 row, u32 width) {
    return (u32)((hash * multiplier(row) >> 32) * width >> 32);
}

__device__ __forceinline__ u64* counters(u64 words) { return at<u64>(words) + SKETCH_SUMS; }

// raise is the conservative update: it makes no counter of a key larger than its least and n need. Of equal keys one has
// the lock at a time, for two that saw the same least would count as one. Different keys need no order: each counter
// holds what its keys have had at any time, and only becomes larger.
__device__ __forceinline__ void raise(const countMinParams& p, u64 hash, u64 n) {
    u64* all = counters(p.words);
    u32 width = (u32)p.width, *lock = at<u32>(p.locks) + hash % SKETCH_LOCKS;
    for (bool done = false; !done;) {
        if (cas(lock, 0u, 1u) != 0) {
            pause();
            continue;
        }
        fence();
        u64 least = ~0ull;
#pragma unroll
        for (u32 row = 0; row < SKETCH_ROWS; row++) {
            u64 x = load_relaxed(all + (u64)row * width + place(hash, row, width));
            least = x < least ? x : least;
        }
#pragma unroll
        for (u32 row = 0; row < SKETCH_ROWS; row++)
            max_of(all + (u64)row * width + place(hash, row, width), least + n);
        fence();
        store_release(lock, 0u);
        done = true;
    }
}

// put counts a key that came n times.
__device__ __forceinline__ void put(const countMinParams& p, u64 hash, u64 n) {
    if (p.locks) return raise(p, hash, n);
    u32 width = (u32)p.width;
#pragma unroll
    for (u32 row = 0; row < SKETCH_ROWS; row++)
        add(counters(p.words) + (u64)row * width + place(hash, row, width), n);
}

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// On the CPU device one lane of a block does the work of all, for keys in a row.
struct Alone {
    u64 begin, end;
    __device__ __forceinline__ Alone(u64 n) {
        u64 share = (n + grid_blocks() - 1) / grid_blocks();
        begin = block_index() * share < n ? block_index() * share : n;
        end = begin + share < n ? begin + share : n;
    }
};

// own_alone counts in counters of the block's own, which nobody else writes to.
__device__ __forceinline__ void own_alone(const countMinParams& p) {
    if (thread_index() != 0) return;
    u64 width = p.width, all = SKETCH_ROWS * width, seed = p.seed;
    u32* own = at<u32>(p.own) + block_index() * all;
    for (u64 c = 0; c < all; c++) own[c] = 0;
    auto count = [&](u64 hash) {
        for (u32 row = 0; row < SKETCH_ROWS; row++) own[row * width + place(hash, row, (u32)width)]++;
    };
    Alone s(p.n);
    const key* keys = at<key>(p.keys);
    u64 i = s.begin;
#if SKETCH_KEY_BYTES <= 8 // the processor's vectors hash several keys at once
    constexpr u64 N = WARPMAP_VECTOR / 8;
    typedef u64 hashes __attribute__((vector_size(8 * N)));
    typedef key keys_row __attribute__((vector_size(sizeof(key) * N), aligned(sizeof(key)), may_alias));
    for (; i + N <= s.end; i += N) {
        hashes h = seeded64_each(__builtin_convertvector(*(const keys_row*)(keys + i), hashes), seed);
        for (u64 j = 0; j < N; j++) count(h[j]);
    }
#endif
    for (; i < s.end; i++) count(key_hash(keys[i], seed));
    for (u64 c = 0; c < all; c++)
        if (own[c]) add(counters(p.words) + c, (u64)own[c]);
}

__device__ __forceinline__ void add_alone(const countMinParams& p) {
    if (thread_index() != 0) return;
    Kept kept;
    u64 sum = 0, width = p.width;
    auto out = [&](u64 hash, const key&, u64 n) { put(p, hash, n); };
    auto ask = [&](u64 hash) {
        for (u32 row = 0; row < SKETCH_ROWS; row++)
            prefetch_to_write((u64)(counters(p.words) + row * width + place(hash, row, (u32)width)));
    };
    Alone s(p.n);
    for (u64 i = s.begin; i < s.end; i++) {
        key k = at<key>(p.keys)[i];
        u64 n = p.counts ? at<u64>(p.counts)[i] : 1;
        sum += n;
        if (n) kept.add(k, n, key_hash(k, p.seed), ask, out);
    }
    kept.flush(out);
    if (p.counts) add(at<u64>(p.words), sum);
}
#endif

// add_sum counts the keys of a batch where each came once.
__device__ __forceinline__ void add_sum(const countMinParams& p) {
    if (grid_thread() == 0) add(at<u64>(p.words), p.n);
}

// Each block has counters of its own, of 32 bits: the host gives it fewer keys than these can count.
WARPMAP_KERNEL(count_min_own, countMinParams) {
    add_sum(p);
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return own_alone(p);
#endif
    u32 width = (u32)p.width, all = SKETCH_ROWS * width;
    u32* own = (u32*)dynamic_shared();
    for (u32 c = thread_index(); c < all; c += block_threads()) own[c] = 0;
    block_sync();
    each_run(p.keys, p.n, [&](key k, u32 n) {
        u64 hash = key_hash(k, p.seed);
#pragma unroll
        for (u32 row = 0; row < SKETCH_ROWS; row++) add(own + row * width + place(hash, row, width), n);
    });
    block_sync();
    // Blocks end at about the same time: each begins elsewhere.
    u32 begin = (u32)(block_index() * (block_threads() * 5) % all);
    for (u32 i = thread_index(); i < all; i += block_threads()) {
        u32 c = i + begin < all ? i + begin : i + begin - all;
        if (own[c]) add(counters(p.words) + c, (u64)own[c]);
    }
}

// A tile of keys in shared memory, where equal ones are brought together: N is what counts them.
template <class N> struct Tile {
    static constexpr u32 ROWS = SKETCH_TILE_BYTES / (sizeof(key) + 8 + sizeof(N));
    Together<key, ROWS> keys;
    N came[ROWS]; // of a first row: how often its key came
};

template <class N> __device__ __forceinline__ void add_tiles(const countMinParams& p) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return add_alone(p);
#endif
    constexpr u32 ROWS = Tile<N>::ROWS;
    Tile<N>& t = *(Tile<N>*)dynamic_shared();
    u64 sum = 0;
    for (u64 first = block_index() * ROWS; first < p.n; first += grid_blocks() * ROWS) {
        u32 n = (u32)(p.n - first < ROWS ? p.n - first : ROWS);
        t.keys.clear();
        t.keys.load(at<key>(p.keys) + first, n);
        for (u32 i = thread_index(); i < n; i += block_threads()) t.came[i] = 0;
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            u64 times = p.counts ? load_readonly(at<u64>(p.counts) + first + i) : 1;
            u32 own = SKETCH_TOGETHER ? t.keys.first_of(i, (u32)(key_hash(t.keys.k[i], p.seed) >> 32)) : i;
            add(&t.came[own], (N)times);
            sum += times;
        }
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads())
            if (t.came[i]) put(p, key_hash(t.keys.k[i], p.seed), t.came[i]);
        block_sync();
    }
    if (p.counts) count_into(at<u64>(p.words), sum);
}

WARPMAP_KERNEL_WIDE(count_min_tiles, countMinParams, WARPMAP_MAX_THREADS, Tile<u32>) {
    add_sum(p);
    add_tiles<u32>(p);
}
WARPMAP_KERNEL_WIDE(count_min_counted, countMinParams, WARPMAP_MAX_THREADS, Tile<u64>) { add_tiles<u64>(p); }

WARPMAP_KERNEL(count_min_estimate, estimateParams) {
    u32 width = (u32)p.width;
    FOR_EACH_ITEM_BY(tile<1>, i, p.n) {
        if (i >= p.n) break;
        u64 hash = key_hash(at<key>(p.keys)[i], p.seed), least = ~0ull;
#pragma unroll
        for (u32 row = 0; row < SKETCH_ROWS; row++) {
            u64 x = load_readonly(counters(p.words) + (u64)row * width + place(hash, row, width));
            least = x < least ? x : least;
        }
        at<u64>(p.out)[i] = least;
    }
}

WARPMAP_KERNEL(count_min_merge, mergeParams) {
    FOR_EACH_ITEM_BY(tile<1>, w, p.words) {
        if (w < p.words) at<u64>(p.to)[w] += at<u64>(p.from)[w];
    }
}
