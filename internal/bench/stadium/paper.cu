// The table of the Stadium paper as its sections III-A to III-C have it: Figures 5 to 10 and 12.
//
// STASH_KEY and STASH_VALUE are bytes, STASH_TICKET bits. With STASH_ACCESS, a ticket's second bit is its access bit.
#include "layout.h"
#include "warpmap.cuh"

using namespace stadium;

typedef bits_of<STASH_KEY>::type Key;
typedef bits_of<STASH_VALUE>::type Value;

// Figure 5. Wide keys, for which the paper has no function, go through it word by word.
template <u32 MULTIPLIER, class T> __device__ __forceinline__ u32 hash(T key) {
    T x = key;
#pragma unroll
    for (u32 j = sizeof(T); j > 0; j--) x = ((x >> 8) ^ x) * MULTIPLIER + j;
    return (u32)x;
}
template <u32 MULTIPLIER> __device__ __forceinline__ u32 hash(u128 key) { return hash<MULTIPLIER>(key.hi ^ hash<MULTIPLIER>(key.lo)); }
template <u32 MULTIPLIER> __device__ __forceinline__ u32 hash(u256 key) {
    return hash<MULTIPLIER>(u128{key.hi.lo ^ hash<MULTIPLIER>(key.lo), key.hi.hi});
}
__device__ __forceinline__ u32 high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
__device__ __forceinline__ u32 first_bucket(Key key, u32 size) { return high(hash<0xE9D58A6Bu>(key), size); }
__device__ __forceinline__ u32 next_bucket(u32 bucket, Key key, u32 size) {
    u32 next = bucket + 1 + high(hash<0x6E5B9D8Au>(key), size - 1);
    return next >= size ? next - size : next;
}

// The ticket board. A ticket's bits, from the lowest on: available, with STASH_ACCESS not yet complete, info.
constexpr u32 AVAILABLE = 1, UNDONE = 2, FLAGS = 1 + STASH_ACCESS, INFO_BITS = STASH_TICKET - FLAGS;
constexpr u32 TICKET = (u32)((1ull << STASH_TICKET) - 1), PER_WORD = 32 / STASH_TICKET;

__device__ __forceinline__ u32* word_of(const stashParams& p, u32 bucket) { return at<u32>(p.board) + bucket / PER_WORD; }
__device__ __forceinline__ u32 shift_of(u32 bucket) { return bucket % PER_WORD * STASH_TICKET; }
__device__ __forceinline__ u32 info_of(Key key) { return hash<0xD59B6A8Eu>(key) & (1u << INFO_BITS) - 1; }

// Figure 7.
__device__ __forceinline__ bool book(const stashParams& p, u32 bucket) {
    u32 permit = AVAILABLE << shift_of(bucket);
    return and_of(word_of(p, bucket), ~permit) & permit;
}
// Figure 8. With STASH_ACCESS it also tells that the pair is there.
__device__ __forceinline__ void inform(const stashParams& p, u32 bucket, u32 info) {
    if (FLAGS + INFO_BITS > 1) and_of(word_of(p, bucket), ~((TICKET & ~AVAILABLE & ~(info << FLAGS)) << shift_of(bucket)));
}

template <class K, class V> struct PairOf {
    K key;
    V value;
};
typedef PairOf<Key, Value> Pair;
static_assert(sizeof(Pair) == STASH_PAIR, "the host knows a pair's size");

// Up to 16 bytes are one access, of which most cross the bus.
template <class K, class V> __device__ __forceinline__ void put(PairOf<K, V>* to, K key, V value) {
    if constexpr (sizeof(*to) == 8) store_relaxed((u64*)to, (u64)key | (u64)value << 32);
    else if constexpr (sizeof(*to) == 16) *(u128*)to = u128{(u64)key, (u64)value};
    else to->key = key, to->value = value;
}
// The key that is there; and the value, if it is the key that is wanted.
template <class K, class V> __device__ __forceinline__ K get(PairOf<K, V>* from, K wanted, V& value) {
    if constexpr (sizeof(*from) == 8) {
        u64 pair = load_relaxed((u64*)from);
        value = (V)(pair >> 32);
        return (K)pair;
    } else if constexpr (sizeof(*from) == 16) {
        u64 pair[2];
        load_vector((u64*)from, pair);
        value = (V)pair[1];
        return (K)pair[0];
    } else {
        K key = load_relaxed(&from->key);
        if (key == wanted) value = load_relaxed(&from->value);
        return key;
    }
}

struct Job {
    Key key;
    Value value;
    u32 bucket, tries;
};

__device__ __forceinline__ Job job_at(const stashParams& p, u64 i) {
    Key key = load_readonly(at<Key>(p.keys) + i);
    return Job{key, load_readonly(at<Value>(p.values) + i), first_bucket(key, (u32)p.size), 0};
}
// Tries one bucket: whether the lane is rid of the job. After as many as there are, it is given up.
__device__ __forceinline__ bool try_bucket(const stashParams& p, Job& job) {
    if (book(p, job.bucket)) {
#if STASH_ACCESS
        put(at<Pair>(p.table) + job.bucket, job.key, job.value);
        if (p.far) fence_system();
        else fence();
        inform(p, job.bucket, info_of(job.key));
#else
        inform(p, job.bucket, info_of(job.key));
        put(at<Pair>(p.table) + job.bucket, job.key, job.value);
#endif
        return true;
    }
    if (++job.tries < p.size) return false;
    add(&at<stashCounters>(p.counters)->homeless, (u64)1);
    return true;
}
__device__ __forceinline__ bool try_next(const stashParams& p, Job& job) {
    job.bucket = next_bucket(job.bucket, job.key, (u32)p.size);
    return try_bucket(p, job);
}
// Figure 6.
__device__ __forceinline__ void insert(const stashParams& p, Job job) {
    for (bool done = try_bucket(p, job); !done;) done = try_next(p, job);
}

// Figure 12: lanes that are rid of their jobs take fresh ones, as long as there is room for what the others have left to do; then they take that.
// fresh gives the warp's lanes the jobs of a row, or none.
template <class Fresh> __device__ __forceinline__ void insert_together(const stashParams& p, Fresh fresh) {
    __shared__ Job stash[WARPMAP_MAX_THREADS / 32][32];
    Job* kept = stash[thread_index() / 32];
    u32 lane = thread_index() & 31, up_to_me = ~0u >> (31 - lane), n = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        Job job;
        bool done = !fresh(i, job) || try_bucket(p, job);
        u32 left = warp_ballot(~0u, !done);
        while ((u32)popcount(left) + n > 32) {
            if (done) job = kept[n - popcount(~left & up_to_me)];
            warp_sync(~0u);
            n -= 32 - popcount(left);
            done = try_next(p, job);
            left = warp_ballot(~0u, !done);
        }
        if (!done) kept[n + popcount(left & up_to_me) - 1] = job; // the paper prints a minus
        n += popcount(left);
        warp_sync(~0u);
    }
    if (lane >= n) return;
    Job job = kept[lane];
    while (!try_next(p, job)) {}
}

// Figures 9 and 10: the bucket that has the key, or none. With THROUGH, an available ticket does not end the search: a deletion may have left it.
constexpr u32 NONE = ~0u;
__device__ __forceinline__ u32 search(const stashParams& p, Key key, Value& value, bool through) {
    u32 bucket = first_bucket(key, (u32)p.size), info = info_of(key);
    for (u64 tries = 0; tries < p.size; tries++) {
#if STASH_ACCESS
        u32 ticket = load_acquire(word_of(p, bucket)) >> shift_of(bucket);
        bool done = !(ticket & UNDONE);
#else
        u32 ticket = load_relaxed(word_of(p, bucket)) >> shift_of(bucket);
        bool done = true;
#endif
        if (ticket & AVAILABLE) {
            if (!through) return NONE;
        } else if (done && ((ticket & TICKET) >> FLAGS) == info && get(at<Pair>(p.table) + bucket, key, value) == key) return bucket;
        bucket = next_bucket(bucket, key, (u32)p.size);
    }
    return NONE;
}
__device__ __forceinline__ void find(const stashParams& p, u64 i) {
    Value value;
    bool found = search(p, load_readonly(at<Key>(p.keys) + i), value, p.through) != NONE;
    at<Value>(p.results)[i] = found ? value : Value{};
    at<u8>(p.found)[i] = found;
}

#define EACH(i) for (u64 i = grid_thread(); i < p.n; i += grid_threads())

WARPMAP_KERNEL(stash_insert, stashParams) { EACH(i) insert(p, job_at(p, i)); }
WARPMAP_KERNEL(stash_insert_together, stashParams) {
    insert_together(p, [&](u64 i, Job& job) {
        if (i < p.n) job = job_at(p, i);
        return i < p.n;
    });
}
WARPMAP_KERNEL(stash_find, stashParams) { EACH(i) find(p, i); }
// Its own way back is as long as the table where keys are absent.
WARPMAP_KERNEL(stash_erase, stashParams) {
    u64 erased = 0;
    EACH(i) {
        Value value;
        u32 bucket = search(p, load_readonly(at<Key>(p.keys) + i), value, true);
        bool mine = bucket != NONE && !(or_of(word_of(p, bucket), TICKET << shift_of(bucket)) >> shift_of(bucket) & AVAILABLE);
        erased += mine;
        if (p.found) at<u8>(p.found)[i] = mine;
    }
    count_into(&at<stashCounters>(p.counters)->erased, erased);
}

#if STASH_ACCESS
// A slice: each of its rows of 32 operations is of one kind.
WARPMAP_KERNEL(stash_slice, stashParams) {
    EACH(i) {
        if (load_readonly(at<u8>(p.ops) + i) == STASH_FIND) find(p, i);
        else insert(p, job_at(p, i));
    }
}
WARPMAP_KERNEL(stash_slice_together, stashParams) {
    insert_together(p, [&](u64 i, Job& job) {
        if (i >= p.n) return false;
        bool finds = load_readonly(at<u8>(p.ops) + i) == STASH_FIND;
        if (finds) find(p, i);
        else job = job_at(p, i);
        return !finds;
    });
}
#else
// Section IV-B's look-up without the board: buckets are compared until one is empty, whose key is all ones.
WARPMAP_KERNEL(stash_find_without, stashParams) {
    Key empty;
    for (u64 w = 0; w < sizeof(Key) / 4; w++) ((u32*)&empty)[w] = ~0u;
    EACH(i) {
        Key key = load_readonly(at<Key>(p.keys) + i), there = empty;
        u32 bucket = first_bucket(key, (u32)p.size);
        Value value{};
        for (u64 tries = 0; tries < p.size; tries++) {
            there = get(at<Pair>(p.table) + bucket, key, value);
            if (there == key || there == empty) break;
            bucket = next_bucket(bucket, key, (u32)p.size);
        }
        bool found = there == key;
        at<Value>(p.results)[i] = found ? value : Value{};
        at<u8>(p.found)[i] = found;
    }
}
#endif
