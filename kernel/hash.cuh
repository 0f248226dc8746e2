// Hash functions. Each has a Go twin in hash.go; a test holds the two equal on both devices.
#pragma once
#include "types.cuh"

// MurmurHash3's finalizers (A. Appleby): bijections of 32 and 64 bits.
__device__ __host__ __forceinline__ u32 fmix32(u32 h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ h >> 16;
}
__device__ __host__ __forceinline__ u64 fmix64(u64 h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 33;
}

// Mueller's 32-bit mixer, the other hash of WarpCore's programs: a bijection.
__device__ __host__ __forceinline__ u32 mueller32(u32 h) {
    h = (h >> 16 ^ h) * 0x45d9f3bu;
    h = (h >> 16 ^ h) * 0x45d9f3bu;
    return h >> 16 ^ h;
}

// A seedable family, of 64 bits: seeds give functions that behave as if chosen independently.
// seeded64_plus is what all keys of a seed have in common.
__device__ __host__ __forceinline__ u64 seeded64_plus(u64 seed) { return 0x9e3779b97f4a7c15ull * (seed + 1); }
__device__ __host__ __forceinline__ u64 seeded64(u64 key, u64 seed) { return fmix64(key + seeded64_plus(seed)); }

#if defined(WARPMAP_HOST)
// seeded64_each is seeded64 of each word of a vector.
template <class V> inline V seeded64_each(V h, u64 seed) {
    h += seeded64_plus(seed);
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdull;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 33;
}
#endif

// hash64 is the function of a table: HASH is one of the constants of hash.go.
template <int HASH> __device__ __forceinline__ u64 hash64(u64 key, u64 seed) {
    if constexpr (HASH == 0) return seeded64(key, seed);
    else if constexpr (HASH == 1) {
        u32 lo = mueller32((u32)key + (u32)seed), hi = mueller32((u32)(key >> 32) ^ lo ^ (u32)(seed >> 32));
        return (u64)hi << 32 | (lo ^ mueller32(hi + 0x9e3779b9u)); // a bijection: each half depends on the whole key
    } else if constexpr (HASH == 2) return key;
    else return 0;
}

// A key of two words is hashed from the higher on.
template <int HASH> __device__ __forceinline__ u64 hash64(u128 key, u64 seed) { return hash64<HASH>(hash64<HASH>(key.hi, seed) ^ key.lo, seed); }

// reduce maps a hash to 0 … n-1 by its high bits (Lemire): a multiplication instead of a division.
__device__ __forceinline__ u64 reduce(u64 hash, u64 n) { return multiply_high(hash, n); }
