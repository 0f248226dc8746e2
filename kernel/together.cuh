// Together finds, among rows in shared memory, those with one key: the first of them that comes is the one that the others name. Many rows with few
// keys are as fast as others; keys that were chosen to collide are as slow as the hash allows, which should have a secret seed.
#pragma once
#include "warpmap.cuh"

template <class K, u32 MOST> struct Together {
    static constexpr u32 ROWS = MOST, SLOTS = 2 * MOST;
    K k[ROWS];
    u32 first[SLOTS]; // number of a key's first row, plus one; 0: free

    // clear and load are called by all threads of a block, which meet at block_sync before they call first_of.
    __device__ __forceinline__ void clear() {
        for (u32 i = thread_index(); i < SLOTS; i += block_threads()) first[i] = 0;
    }
    __device__ __forceinline__ void load(const K* keys, u32 n) {
        for (u32 i = thread_index(); i < n; i += block_threads()) k[i] = keys[i];
    }
    // first_of gives the first row with the key of row i; each row asks once.
    __device__ __forceinline__ u32 first_of(u32 i, u32 hash) {
        for (u32 slot = hash % SLOTS;; slot = slot + 1 < SLOTS ? slot + 1 : 0) {
            u32 was = load_volatile(&first[slot]); // mostly another's, where keys come often: many lanes read at once, and swap one after the other
            if (was == 0) was = cas(&first[slot], 0u, i + 1);
            if (was == 0) return i;
            if (k[was - 1] == k[i]) return was - 1;
        }
    }
};
