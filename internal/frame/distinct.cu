// HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007), with a hash of 64 bits: about how many distinct keys a column has.
#include "layout.h"
#include "warpmap.cuh"

typedef bits_of<DISTINCT_KEY_BYTES>::type key;

__device__ __forceinline__ u64 hash(u64 seed, u64 k) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 hash(u64 seed, u32 k) { return hash64<0>(k, seed); }
__device__ __forceinline__ u64 hash(u64 seed, u128 k) { return hash(seed, k.lo ^ hash(seed, k.hi)); }
__device__ __forceinline__ u64 hash(u64 seed, u256 k) { return hash(seed, u128{k.lo.lo, k.lo.hi ^ hash(seed, k.hi)}); }

// One row in DISTINCT_ASKED is compared with another: the register behind the others counts those that have the same key.
//
// A block's registers are in shared memory: the most leading zeros, and one, of the hashes that name the register.
WARPMAP_KERNEL(distinct, frame::distinctParams) {
    __shared__ u32 registers[1 << DISTINCT_BITS];
    for (u32 i = thread_index(); i < 1u << DISTINCT_BITS; i += block_threads()) registers[i] = 0;
    block_sync();
    auto count = [&](u64 i, key k) {
        u64 h = hash(p.seed, k);
        u32 turn = (u32)(i / 32 + p.seed) * 0x9e3779b1u; // rows of 32 that are asked lie evenly over the batch and over warps
        if (turn <= ~0u / DISTINCT_ASKED) {
            u64 other = reduce(hash(p.seed, i), p.n); // any: equal keys may lie together
            if (other != i && load_readonly(at<key>(p.keys) + other) == k) add(at<u32>(p.registers) + (1 << DISTINCT_BITS), 1u);
        }
        u32* to = registers + (h >> (64 - DISTINCT_BITS));
        u32 rank = leading_zeros(h << DISTINCT_BITS | 1ull << (DISTINCT_BITS - 1)) + 1;
        if (load_racing(to) < rank) max_of(to, rank); // an old rank is a lower one
    };
    constexpr u32 EACH = sizeof(key) < 16 ? 16 / sizeof(key) : 1; // of a load
    typedef bits_of<EACH * sizeof(key)>::type word;
    bool aligned = p.keys % sizeof(word) == 0;
    for (u64 j = grid_thread() * EACH; j < (p.n + p.share - 1) / p.share; j += grid_threads() * EACH) {
        u64 i = j;
        if (p.share > 1) { // of so many chunks, any one
            u64 chunk = j / DISTINCT_CHUNK;
            i = (chunk * p.share + reduce(hash(p.seed, chunk), p.share)) * DISTINCT_CHUNK + j % DISTINCT_CHUNK;
            if (i >= p.n) continue;
        }
        union {
            word bits;
            key k[EACH];
        } x;
        if (aligned && i + EACH <= p.n) {
            x.bits = load_readonly((const word*)(at<key>(p.keys) + i));
#pragma unroll
            for (u32 j = 0; j < EACH; j++) count(i + j, x.k[j]);
        } else {
            for (u64 j = i; j < i + EACH && j < p.n; j++) count(j, load_readonly(at<key>(p.keys) + j));
        }
    }
    block_sync();
    // Blocks end at about the same time: each begins elsewhere, and leaves alone what another has made as large.
    for (u32 x = thread_index(); x < 1u << DISTINCT_BITS; x += block_threads()) {
        u32 i = (x + (u32)block_index() * (block_threads() * 5)) & ((1u << DISTINCT_BITS) - 1), *to = at<u32>(p.registers) + i;
        if (registers[i] && load_relaxed(to) < registers[i]) max_of(to, registers[i]);
    }
}
