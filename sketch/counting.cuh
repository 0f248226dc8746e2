// What the kernels of sketches that count keys have in common.
#pragma once
#include "items.cuh"
#include "layout.h"
#include "together.cuh"
#include "warpmap.cuh"

typedef bits_of<SKETCH_KEY_BYTES>::type key;

__device__ __forceinline__ u64 key_hash(u64 k, u64 seed) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 key_hash(u128 k, u64 seed) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 key_hash(u256 k, u64 seed) {
    return key_hash(u128{k.lo.lo, k.lo.hi ^ key_hash(k.hi, seed)}, seed);
}

// each_run calls add(key, n) for every key of the batch that is this thread's; keys of one load that are equal and in a
// row come together, n of them. A load has 16 bytes, and several are under way.
template <class Add> __device__ __forceinline__ void each_run(u64 keys_at, u64 n, Add add) {
    constexpr u32 EACH = sizeof(key) < 16 ? 16 / sizeof(key) : 1, LOADS = sizeof(key) < 16 ? 4 : 2;
    typedef bits_of<EACH * sizeof(key)>::type word;
    const key* keys = at<key>(keys_at);
    u64 head = (0 - keys_at) % sizeof(word) / sizeof(key); // keys before the first whole word
    if (head > n) head = n;
    const word* words = (const word*)(keys + head);
    u64 whole = (n - head) / EACH, tail = head + whole * EACH, threads = grid_threads();
    for (u64 first = grid_thread(); first < whole; first += threads * LOADS) {
        union {
            word bits;
            key k[EACH];
        } x[LOADS];
#pragma unroll
        for (u32 j = 0; j < LOADS; j++)
            if (first + j * threads < whole) x[j].bits = load_readonly(words + first + j * threads);
#pragma unroll
        for (u32 j = 0; j < LOADS; j++) {
            if (first + j * threads >= whole) break;
            u32 run = 1;
#pragma unroll
            for (u32 i = 0; i < EACH; i++) {
                bool more = i + 1 < EACH && x[j].k[i] == x[j].k[i + 1 < EACH ? i + 1 : i];
                if (!more) add(x[j].k[i], run);
                run = more ? run + 1 : 1;
            }
        }
    }
    for (u64 i = grid_thread(); i < head; i += threads) add(load_readonly(keys + i), 1u);
    for (u64 i = tail + grid_thread(); i < n; i += threads) add(load_readonly(keys + i), 1u);
}

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// Kept is what one lane of the CPU device that does the work of a block's has of keys that came last, so that one that
// comes often seldom goes to memory, for which other threads wait. What must go out goes some keys later: ask is called
// for its hash before, and out with the hash, the key and how often it came.
struct Kept {
    static constexpr u32 SLOTS = sizeof(key) <= 8 ? 1024 : 512;
    struct Entry {
        key k;
        u64 n, hash;
    };
    struct Room {
        Entry kept[SLOTS], late[AHEAD];
    };
    static_assert(sizeof(Room) <= WARPMAP_SHARED_BYTES, "it is in the thread's shared memory");
    Room& r = *(Room*)dynamic_shared();
    u64 next = 0;

    Kept() {
        for (u32 i = 0; i < SLOTS; i++) r.kept[i].n = 0;
        for (u32 i = 0; i < AHEAD; i++) r.late[i].n = 0;
    }
    template <class Ask, class Out> void add(const key& k, u64 n, u64 hash, Ask ask, Out out) {
        Entry& x = r.kept[hash % SLOTS];
        if (x.n && !(x.k == k)) {
            Entry& old = r.late[next++ % AHEAD];
            if (old.n) out(old.hash, old.k, old.n);
            old = x;
            ask(x.hash);
            x.n = 0;
        }
        x.k = k;
        x.hash = hash;
        x.n += n;
    }
    template <class Out> void flush(Out out) {
        for (Entry& x : r.late)
            if (x.n) out(x.hash, x.k, x.n);
        for (Entry& x : r.kept)
            if (x.n) out(x.hash, x.k, x.n);
    }
};
#endif
