// A packed k-mer and its mix: see the comment at the head of kmers.cu.
#pragma once
#include "letters.cuh"

// A packed k-mer, or its mix: a word, or two with the high one first.
#if KMERS_WORDS == 1
typedef u64 kmer;
__device__ __forceinline__ u64 high(kmer x) { return x; }
__device__ __forceinline__ kmer mixed(kmer x) { return fmix64(x); }
#else
struct kmer {
    u64 hi, lo;
};
__device__ __forceinline__ bool operator<(const kmer& a, const kmer& b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }
__device__ __forceinline__ bool operator==(const kmer& a, const kmer& b) { return a.hi == b.hi && a.lo == b.lo; }
__device__ __forceinline__ u64 high(const kmer& x) { return x.hi; }
// Each step can be undone, and after the three of them all bits depend on all.
__device__ __forceinline__ kmer mixed(kmer x) {
    x.hi ^= fmix64(x.lo);
    x.lo ^= fmix64(x.hi);
    x.hi ^= fmix64(x.lo);
    return x;
}
#endif

// The k-mers of some text, letter by letter.
struct Rolling {
    kmer forward, reverse;
    u64 mask; // of the high word
    u32 k, top, length;
    bool canonical;

    __device__ __forceinline__ Rolling(u64 k, u64 canonical)
        : forward{}, reverse{}, mask(~0ull >> (64 * KMERS_WORDS - 2 * k)), k((u32)k), top((u32)(2 * k - 2 - 64 * (KMERS_WORDS - 1))), length(0),
          canonical(canonical != 0) {}
    // take takes the next letter, and tells whether it ends a k-mer.
    __device__ __forceinline__ bool take(u32 code) {
        u64 letter = code & 3, other = (u64)(3 - letter) << top;
#if KMERS_WORDS == 1
        forward = (forward << 2 | letter) & mask;
        reverse = reverse >> 2 | other;
#else
        forward = kmer{(forward.hi << 2 | forward.lo >> 62) & mask, forward.lo << 2 | letter};
        reverse = kmer{reverse.hi >> 2 | other, reverse.lo >> 2 | reverse.hi << 62};
#endif
        length = code > 3 ? 0 : length + 1;
        return length >= k;
    }
    __device__ __forceinline__ kmer least() const { return canonical && reverse < forward ? reverse : forward; }
    __device__ __forceinline__ kmer mix() const { return mixed(least()); }
};

__device__ __forceinline__ u64 part_of(const kmer& mix) { return high(mix) >> (64 - KMERS_PART_BITS); }

// The letters of a word in the other order, each as its complement.
__device__ __forceinline__ u64 complement(u64 x) {
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0full) | (x & 0x0f0f0f0f0f0f0f0full) << 4;
    x = (x >> 8 & 0x00ff00ff00ff00ffull) | (x & 0x00ff00ff00ff00ffull) << 8;
    x = (x >> 16 & 0x0000ffff0000ffffull) | (x & 0x0000ffff0000ffffull) << 16;
    return ~(x >> 32 | x << 32);
}
