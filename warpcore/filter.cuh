// WarpCore's filter on the device: insert and contains of a key. Layout and invariants are in doc.go, the layout's numbers in
// layout.go (they reach this file through layout.h). C is a filter's config.
#pragma once
#include "layout.h"
#include "warpmap.cuh"

namespace warpcore {

template <class C> __device__ __forceinline__ u64 filter_hash(typename C::key k, u64 seed) {
    if constexpr (C::KEY_BYTES == 16) return hash64<C::HASH>(hash64<C::HASH>(k.lo, seed) ^ k.hi, seed);
    else return hash64<C::HASH>(k, seed);
}

// Where a key's bits are: two words of a block, or with blocks of one word one.
template <class C> struct FilterProbe {
    static constexpr u32 WORDS = C::BLOCK_BYTES / WARPCORE_FILTER_WORD;
    static constexpr bool TWO = C::SECOND_BITS > 0;
    u64 *first, *second;
    u64 first_bits, second_bits;

    __device__ __forceinline__ FilterProbe() {}
    __device__ __forceinline__ FilterProbe(const FilterTable& f, typename C::key k) {
        u64 h = filter_hash<C>(k, f.seed);
        u64* block = at<u64>(f.words) + reduce(h, f.blocks) * WORDS;
        // The block is of the hash's high bits, so that regions are stretches of blocks. The other choices are of a product, in which
        // the low bits, by which the keys of a block differ, come high, too.
        u64 random = h * 0x9e3779b97f4a7c15ull, rest = random;
        u32 w = (u32)rest & WORDS - 1;
        first = block + w;
        second = first;
        if constexpr (TWO) {
            u32 choice = (u32)rest >> WARPCORE_FILTER_WORD_INDEX & (1u << WARPCORE_FILTER_WORD_CHOICE) - 1;
            second = block + (w ^ 1 + (choice * (WORDS - 1) >> WARPCORE_FILTER_WORD_CHOICE));
        }
        rest >>= WARPCORE_FILTER_WORD_INDEX + WARPCORE_FILTER_WORD_CHOICE;
        first_bits = second_bits = 0;
        int left = WARPCORE_FILTER_FIRST_BITS;
#pragma unroll
        for (int i = 0; i < C::FIRST_BITS + C::SECOND_BITS; i++) {
            if (left == 0) {
                random = (random ^ random >> 32) * 0xff51afd7ed558ccdull;
                rest = random;
                left = WARPCORE_FILTER_NEXT_BITS;
            }
            u64 bit = 1ull << (rest & WARPCORE_FILTER_BITS - 1);
            if (i < C::FIRST_BITS) first_bits |= bit;
            else second_bits |= bit;
            rest >>= WARPCORE_FILTER_BIT_INDEX;
            left--;
        }
    }

    // set sets the bits: nobody waits for what was there.
    __device__ __forceinline__ void set() const {
        or_of(first, first_bits);
        if constexpr (TWO) or_of(second, second_bits);
    }
    // all tells of the two words whether they have all bits.
    __device__ __forceinline__ bool all(u64 one, u64 two) const {
        return !(first_bits & ~one) && (!TWO || !(second_bits & ~two));
    }
};

// insert puts a key in; contains tells whether it may be in. Both may run beside one another in a kernel, by lanes on their own: a
// key that an insert has put in before is found, one that is going in may be.
template <class C> __device__ __forceinline__ void insert(const FilterTable& f, typename C::key k) { FilterProbe<C>(f, k).set(); }
template <class C> __device__ __forceinline__ bool contains(const FilterTable& f, typename C::key k) {
    FilterProbe<C> p(f, k);
    u64 one = load_relaxed(p.first);
    return p.all(one, p.TWO ? load_relaxed(p.second) : one);
}

} // namespace warpcore
