// The keys that mark slots. A table takes the highest patterns of its key type for empty, tombstone and busy slots. Real keys of
// these patterns live apart, on the table's side, each under an alias: the pattern lower by RESERVED. No other key is there. So
// every pattern can be a key. The Go twin is keys.go.
#pragma once
#include "types.cuh"

// A table's config is a Marks: BYTES is the width of its keys, COUNT how many patterns are taken.
template <int BYTES, int COUNT> struct Marks {
    typedef typename bits_of<BYTES>::type key;
    static constexpr key RESERVED = COUNT, EMPTY = (key)~(key)0, TOMBSTONE = EMPTY - 1, BUSY = EMPTY - 2;

    // marks tells whether a pattern says something of a slot, and is no key that stands there; and of a user's key, whether its
    // place is on the side.
    static __device__ __forceinline__ bool marks(key k) { return k > (key)(EMPTY - RESERVED); }
    // alias is how a user's key stands in its slot, and real the key of a slot as users know it.
    static __device__ __forceinline__ key alias(key k, bool side) { return side ? (key)(k - RESERVED) : k; }
    static __device__ __forceinline__ key real(key stored, bool side) { return side ? (key)(stored + RESERVED) : stored; }
};

// Of keys of 16 bytes the lower word tells, where the higher is all ones.
template <int COUNT> struct Marks<16, COUNT> {
    typedef u128 key;
    static constexpr u64 RESERVED = COUNT;
    static constexpr key EMPTY{~0ull, ~0ull}, TOMBSTONE{~0ull - 1, ~0ull}, BUSY{~0ull - 2, ~0ull};

    static __device__ __forceinline__ bool marks(key k) { return k.hi == ~0ull && k.lo > ~0ull - RESERVED; }
    static __device__ __forceinline__ key alias(key k, bool side) { return side ? key{k.lo - RESERVED, k.hi} : k; }
    static __device__ __forceinline__ key real(key stored, bool side) { return side ? key{stored.lo + RESERVED, stored.hi} : stored; }
};

// The config of a table that marks slots apart from keys is a NoMarks.
template <int BYTES> struct NoMarks {
    typedef typename bits_of<BYTES>::type key;
    static constexpr int RESERVED = 0;
    static __device__ __forceinline__ bool marks(key) { return false; }
    static __device__ __forceinline__ key alias(key k, bool) { return k; }
    static __device__ __forceinline__ key real(key stored, bool) { return stored; }
};
