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

// Where a key's bits are: in SPREAD words of a block.
template <class C> struct FilterProbe {
    typedef typename bits_of<WARPCORE_FILTER_WORD>::type word;
    static constexpr int SPREAD = C::SPREAD;
    static_assert(SPREAD <= 3, "no fourth word is chosen");
    word* at_word[SPREAD];
    word bits[SPREAD];

    __device__ __forceinline__ FilterProbe() {}
    __device__ __forceinline__ FilterProbe(const FilterTable& f, typename C::key k) {
        // The block is of the hash's high bits, so that regions are stretches of blocks. The other choices are of a product, in which
        // the low bits, by which the keys of a block differ, come high, too.
        u64 h = filter_hash<C>(k, f.seed), random = h * 0x9e3779b97f4a7c15ull, rest = random;
        word* block = at<word>(f.words) + reduce(h, f.blocks) * C::WORDS;
        // Different words, by the ^ of their numbers: the second's is one of 1 … WORDS-1, the third's one of those that are left.
        u32 first = (u32)rest & C::WORDS - 1, second = 0;
        rest >>= WARPCORE_FILTER_WORD_INDEX;
        at_word[0] = block + first;
        if constexpr (SPREAD > 1) {
            second = 1 + choice(rest, C::WORDS - 1);
            at_word[1] = block + (first ^ second);
        }
        if constexpr (SPREAD > 2) {
            u32 third = 1 + choice(rest, C::WORDS - 2);
            third += third >= second;
            at_word[2] = block + (first ^ third);
        }
        int left = WARPCORE_FILTER_FIRST;
#pragma unroll
        for (int j = 0; j < SPREAD; j++) bits[j] = 0;
#pragma unroll
        for (int i = 0; i < C::HASHES; i++) {
            if (left == 0) {
                random = (random ^ random >> 32) * 0xff51afd7ed558ccdull;
                rest = random;
                left = WARPCORE_FILTER_NEXT;
            }
            bits[i % SPREAD] |= (word)1 << (rest & WARPCORE_FILTER_BITS - 1);
            rest >>= WARPCORE_FILTER_BIT_INDEX;
            left--;
        }
    }

    // choice takes a number below n.
    static __device__ __forceinline__ u32 choice(u64& rest, u32 n) {
        u32 x = (u32)rest & (1u << WARPCORE_FILTER_WORD_CHOICE) - 1;
        rest >>= WARPCORE_FILTER_WORD_CHOICE;
        return x * n >> WARPCORE_FILTER_WORD_CHOICE;
    }

    // set sets the bits: nobody waits for what was there.
    __device__ __forceinline__ void set() const {
#pragma unroll
        for (int j = 0; j < SPREAD; j++) or_of(at_word[j], bits[j]);
    }
    // all tells of the words whether they have all bits.
    __device__ __forceinline__ bool all(const word (&w)[SPREAD]) const {
        word missing = 0;
#pragma unroll
        for (int j = 0; j < SPREAD; j++) missing |= bits[j] & ~w[j];
        return !missing;
    }
};

// insert puts a key in; contains tells whether it may be in. Both may run beside one another in a kernel, by lanes on their own: a
// key that an insert has put in before is found, one that is going in may be.
template <class C> __device__ __forceinline__ void insert(const FilterTable& f, typename C::key k) { FilterProbe<C>(f, k).set(); }
template <class C> __device__ __forceinline__ bool contains(const FilterTable& f, typename C::key k) {
    FilterProbe<C> p(f, k);
    typename FilterProbe<C>::word w[C::SPREAD];
#pragma unroll
    for (int j = 0; j < C::SPREAD; j++) w[j] = load_relaxed(p.at_word[j]);
    return p.all(w);
}

} // namespace warpcore
