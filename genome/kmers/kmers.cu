// k-mers of text, packed: the first letter highest, A, C, G, T = 0, 1, 2, 3. What is no letter of these, U aside, breaks k-mers.
//
// A k-mer is held as its mix, a bijection of the packed letters, which is undone when it is written for people: so parts by the highest bits are of
// equal size, whatever the letters are.
#include "layout.h"
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
    __device__ __forceinline__ kmer mix() const { return mixed(canonical && reverse < forward ? reverse : forward); }
};

__device__ __forceinline__ u64 part_of(const kmer& mix) { return high(mix) >> (64 - KMERS_PART_BITS); }

// for_each_kmer calls f for the mix of each k-mer that ends in letters from … to-1 of the text.
template <class F> __device__ __forceinline__ void for_each_kmer(const kmers::textParams& p, const u8* codes, u64 from, u64 to, F f) {
    Rolling r(p.k, p.canonical);
    const u8* text = at<u8>(p.text);
    for (u64 i = from < p.k - 1 ? 0 : from - (p.k - 1); i < from; i++) r.take(codes[text[i]]);
    for (u64 i = from; i < to; i++)
        if (r.take(codes[text[i]])) f(r.mix());
}

// Each block's first lane takes one segment of the text alone: on the CPU device, where lanes of a warp follow one another. segment_counts says how many
// k-mers it has of each part, and segment_scatter brings them where the part's are.
struct Segment {
    u64 from, to;
    u64* cursors;
    u8 codes[256];
    __device__ __forceinline__ Segment(const kmers::textParams& p)
        : from(block_index() * p.segment), to(from + p.segment < p.n ? from + p.segment : p.n), cursors(at<u64>(p.cursors) + block_index() * KMERS_PARTS) {
        for (u32 i = 0; i < 256; i++) codes[i] = (u8)code_of((u8)i);
    }
};
WARPMAP_KERNEL(segment_counts, kmers::textParams) {
    if (thread_index()) return;
    Segment s(p);
    for (u32 i = 0; i < KMERS_PARTS; i++) s.cursors[i] = 0;
    for_each_kmer(p, s.codes, s.from, s.to, [&](const kmer& mix) { s.cursors[part_of(mix)]++; });
    for (u64 i = 0; i < KMERS_PARTS; i++)
        if (i < p.first || i >= p.end) s.cursors[i] = 0;
}
WARPMAP_KERNEL(segment_scatter, kmers::textParams) {
    if (thread_index()) return;
    Segment s(p);
    kmer* out = at<kmer>(p.mixes);
    if (p.end - p.first == KMERS_PARTS) {
        for_each_kmer(p, s.codes, s.from, s.to, [&](const kmer& mix) { out[s.cursors[part_of(mix)]++] = mix; });
        return;
    }
    for_each_kmer(p, s.codes, s.from, s.to, [&](const kmer& mix) {
        u64 part = part_of(mix);
        if (part >= p.first && part < p.end) out[s.cursors[part]++] = mix;
    });
}

// sift brings x down to its place in a heap of n, whose place i is free.
__device__ __forceinline__ void sift(kmer* a, u32 i, u32 n, kmer x) {
    for (u32 child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && a[child] < a[child + 1]) child++;
        if (!(x < a[child])) break;
        a[i] = a[child];
    }
    a[i] = x;
}
__device__ __forceinline__ void sort_few(kmer* a, u32 n) {
    if (n > KMERS_FEW) {
        for (u32 i = n / 2; i-- > 0;) sift(a, i, n, a[i]);
        for (u32 i = n - 1; i > 0; i--) {
            kmer x = a[i];
            a[i] = a[0];
            sift(a, 0, i, x);
        }
        return;
    }
    for (u32 i = 1; i < n; i++) {
        kmer x = a[i];
        u32 j = i;
        for (; j > 0 && x < a[j - 1]; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

template <class F> __device__ __forceinline__ void for_each_of_part(const kmers::sortParams& p, u64 part, F f) {
    const kmers::run* runs = at<kmers::run>(p.runs);
    for (u64 r = 0; r < p.n; r++) {
        const kmer* mixes = at<kmer>(runs[r].mixes);
        for (u64 i = at<u64>(runs[r].starts)[part], end = at<u64>(runs[r].starts)[part + 1]; i < end; i++) f(mixes[i]);
    }
}

// sort_parts takes the k-mers of a part from all runs, a block's first lane one part: in the order of their mixes, each once, with how often it came. They
// are dealt out by the bits behind the part's first, and so few each are sorted in place.
WARPMAP_KERNEL(sort_parts, kmers::sortParams) {
    if (thread_index()) return;
    __shared__ u32 shared[KMERS_BUCKETS];
    u32* ends = shared;
#if defined(WARPMAP_HOST)
    asm("" : "+r"(ends)); // else g++ asks for a thread's address of it each time
#endif
    u64 part = p.first + block_index(), begin = at<u64>(p.offsets)[block_index()];
    kmer* out = at<kmer>(p.mixes) + begin;
    u32* counts = at<u32>(p.counts) + begin;
    auto bucket = [](const kmer& mix) { return (u32)(high(mix) << KMERS_PART_BITS >> (64 - KMERS_BUCKET_BITS)); };
    for (u32 i = 0; i < KMERS_BUCKETS; i++) ends[i] = 0;
    for_each_of_part(p, part, [&](const kmer& mix) { ends[bucket(mix)]++; });
    u32 all = 0;
    for (u32 i = 0; i < KMERS_BUCKETS; i++) {
        u32 n = ends[i];
        ends[i] = all;
        all += n;
    }
    for_each_of_part(p, part, [&](const kmer& mix) { out[ends[bucket(mix)]++] = mix; });
    u32 to = 0;
    for (u32 b = 0, from = 0; b < KMERS_BUCKETS; from = ends[b++]) {
        sort_few(out + from, ends[b] - from);
        for (u32 i = from, next; i < ends[b]; i = next) {
            kmer mix = out[i];
            for (next = i + 1; next < ends[b] && out[next] == mix; next++) {}
            out[to] = mix;
            counts[to++] = next - i;
        }
    }
    at<u64>(p.numbers)[block_index()] = to;
}

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
// The letters of a word in the other order, each as its complement.
__device__ __forceinline__ u64 complement(u64 x) {
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0full) | (x & 0x0f0f0f0f0f0f0f0full) << 4;
    x = (x >> 8 & 0x00ff00ff00ff00ffull) | (x & 0x00ff00ff00ff00ffull) << 8;
    x = (x >> 16 & 0x0000ffff0000ffffull) | (x & 0x0000ffff0000ffffull) << 16;
    return ~(x >> 32 | x << 32);
}

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
