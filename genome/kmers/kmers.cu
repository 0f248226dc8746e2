// k-mers of text, packed: the first letter highest, A, C, G, T = 0, 1, 2, 3. What is no letter of these, U aside, breaks k-mers.
//
// A k-mer is held as its mix, a bijection of the packed letters, which is undone when it is written for people: so parts by the highest bits are of
// equal size, whatever the letters are.
#include "layout.h"
#include "kmer.cuh"

// Sixteen letters in a row of a text of n, from a multiple of sixteen on: one load instead of one for each. Behind the end there are none.
static_assert(KMERS_EACH % 16 == 0, "a lane's letters are loaded sixteen at a time");
struct Letters {
    u32 codes, others; // two bits a letter, the first lowest, and which are none
    Letters() = default;
    __device__ __forceinline__ Letters(const u8* text, u64 i, u64 n) : codes(0), others(0) {
        union {
            u128 all;
            u8 letters[16];
        } x;
        if (i + 16 <= n) x.all = load_readonly((const u128*)(text + i));
        else
            for (u32 j = 0; j < 16; j++) x.letters[j] = i + j < n ? load_readonly(text + i + j) : 0;
#pragma unroll
        for (u32 j = 0; j < 16; j++) {
            u32 code = code_of(x.letters[j]);
            codes |= (code & 3) << 2 * j;
            others |= code >> 2 << j;
        }
    }
    __device__ __forceinline__ u32 code(u32 j) const { return (codes >> 2 * j & 3) | (others >> j & 1) << 2; }
};

// A lane's letters, from which the first leave as others come. They all move on, for by a number that grows they would be asked for in memory; and the
// loops over them are short, for the compiler takes a second for all 64 letters in a row.
struct Own {
    static constexpr u32 MANY = KMERS_EACH / 16;
    Letters x[MANY];
    __device__ __forceinline__ Letters next(const Letters& last) {
        Letters first = x[0];
#pragma unroll
        for (u32 i = 1; i < MANY; i++) x[i - 1] = x[i];
        x[MANY - 1] = last;
        return first;
    }
};

// all_kmers appends the mixes of the text's k-mers to a list, for a table that counts them. The text begins at a multiple of 16. A lane takes KMERS_EACH letters in a row, twice:
// first to tell how many k-mers end there, so that a warp asks for their places once, and not for each letter, when all warps would wait for one counter.
WARPMAP_KERNEL(all_kmers, kmers::textParams) {
    const u8* text = at<u8>(p.text);
    bool every = p.end - p.first == KMERS_PARTS;
    auto wanted = [&](const kmer& mix) { return every || (part_of(mix) >= p.first && part_of(mix) < p.end); };
    for (u64 first = grid_thread() & ~31ull; first * KMERS_EACH < p.n; first += grid_threads()) {
        u64 from = (first + (thread_index() & 31)) * KMERS_EACH, back = (p.k + 14) / 16 * 16; // k-1 letters or some more
        Rolling before(p.k, p.canonical);
        for (u64 i = from < back ? 0 : from - back; i < from; i += 16) {
            Letters x(text, i, p.n);
            for (u32 j = 0; j < 16; j++) before.take(x.code(j));
        }
        Own own;
        u32 n = 0;
        Rolling r = before;
#pragma unroll 1
        for (u32 c = 0; c < Own::MANY; c++) {
            Letters x(text, from + 16 * c, p.n);
            own.next(x);
            for (u32 j = 0; j < 16; j++)
                if (r.take(x.code(j)) && wanted(r.mix())) n++;
        }
        kmer* out = at<kmer>(p.mixes) + append_row(at<u64>(p.cursors), n);
        r = before;
#pragma unroll 1
        for (u32 c = 0; c < Own::MANY; c++) {
            Letters x = own.next(Letters());
            for (u32 j = 0; j < 16; j++)
                if (r.take(x.code(j)) && wanted(r.mix())) *out++ = r.mix();
        }
    }
}

#if KMERS_WORDS == 1
// packed_kmers makes the mixes of k-mers of packed letters, each where its number says: a k-mer is cut out of two words.
WARPMAP_KERNEL(packed_kmers, kmers::packedParams) {
    const u64* words = at<u64>(p.letters);
    u32 unused = 64 - 2 * (u32)p.k;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u64 letter = p.first + i, word = letter / 32;
        u32 shift = (u32)(letter % 32) * 2;
        u64 x = load_readonly(words + word) << shift;
        if (shift > unused) x |= load_readonly(words + word + 1) >> (64 - shift);
        u64 kmer = x >> unused, reverse = complement(x) & (~0ull >> unused);
        at<u64>(p.mixes)[i] = mixed(p.canonical && reverse < kmer ? reverse : kmer);
    }
}
#endif
