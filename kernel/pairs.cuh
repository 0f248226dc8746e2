// A pair is a row of a batch as one word, its key and its value side by side: so a partition writes rows where both have 4 or both have 8 bytes. Memory
// then sees one stream a part, of rows twice as long, where columns make two.
#pragma once
#include "warpmap.cuh"

template <class K, class V> struct Pair {
    static constexpr bool IS = sizeof(K) == sizeof(V) && (sizeof(K) == 4 || sizeof(K) == 8);
    typedef typename bits_of<IS ? 2 * (int)sizeof(K) : 4>::type word;
    static __device__ __forceinline__ word of(K k, V v) {
        if constexpr (sizeof(word) == 16) return word{(u64)k, (u64)v};
        else if constexpr (IS) return (word)v << 32 | (u32)k;
        else return word();
    }
    static __device__ __forceinline__ K key(word w) {
        if constexpr (sizeof(word) == 16) return (K)w.lo;
        else if constexpr (IS) return (K)w;
        else return K();
    }
    static __device__ __forceinline__ V value(word w) {
        if constexpr (sizeof(word) == 16) return (V)w.hi;
        else if constexpr (IS) return (V)(w >> 32);
        else return V();
    }
};
