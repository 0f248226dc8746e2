// Text is cut into stretches, as long as can be, of k-mers with one minimizer: the word of some letters in the k-mer that has the smallest hash, a word and its
// reverse complement being one. So equal k-mers, and those that are each other's reverse complement, go to one bin, and k-mers that overlap mostly go
// together: a stretch of n k-mers is a byte n and k - 1 + n letters, four to a byte, the first highest.
#include "layout.h"
#include "letters.cuh"

// bin_of spreads minimizers over bins. They are small hashes: their order says nothing of their bins.
__device__ __forceinline__ u32 bin_of(u32 minimizer) { return fmix32(minimizer ^ 0x9e3779b9u) % KMERS_BINS; }

__device__ __forceinline__ u64 stretch_bytes(u64 k, u64 n) { return 1 + (k - 1 + n + 3) / 4; }

// for_each_stretch calls f(first letter, k-mers, minimizer) for the stretches of k-mers that end in letters from … to-1 of the text.
template <class F> __device__ __forceinline__ void for_each_stretch(const kmers::binParams& p, u64 from, u64 to, F f) {
    const u8* text = at<u8>(p.text);
    u32 k = (u32)p.k, m = (u32)p.minimizer, window = k - m + 1; // words of a k-mer
    u32 hashes[KMERS_LONGEST];                                  // of the last words, in a ring
    u32 forward = 0, reverse = 0, mask = ~0u >> (32 - 2 * m), length = 0, least = 0, n = 0, place = 0;
    u64 least_at = 0;
    for (u64 i = from < k - 1 ? 0 : from - (k - 1); i < to; i++) {
        u32 code = code_of(load_readonly(text + i));
        if (code > 3) {
            if (n) f(i - n - k + 1, n, least);
            length = n = 0;
            continue;
        }
        forward = (forward << 2 | code) & mask;
        reverse = reverse >> 2 | (3 - code) << (2 * m - 2);
        if (++length < m) continue;
        u32 hash = fmix32(forward < reverse ? forward : reverse), before = least;
        hashes[place = place + 1 < window ? place + 1 : 0] = hash;
        if (length == m || hash <= least) {
            least = hash, least_at = i;
        } else if (i - least_at >= window) { // it was the first of the k-mer before: look at all again, the oldest first
            least = ~0u;
            for (u32 j = 0, at = place; j < window; j++) {
                at = at + 1 < window ? at + 1 : 0;
                if (hashes[at] <= least) least = hashes[at], least_at = i - (window - 1) + j;
            }
        }
        if (length < k || i < from) continue;
        if (n && (least != before || n == KMERS_MOST)) {
            f(i - n - k + 1, n, before);
            n = 0;
        }
        n++;
    }
    if (n) f(to - n - k + 1, n, least);
}

template <class F> __device__ __forceinline__ void for_each_share(const kmers::binParams& p, F f) {
    for (u64 from = grid_thread() * KMERS_STRETCH; from < p.n; from += grid_threads() * KMERS_STRETCH)
        for_each_stretch(p, from, from + KMERS_STRETCH < p.n ? from + KMERS_STRETCH : p.n, f);
}

// bin_sizes says how many bytes and k-mers each bin gets of the text.
WARPMAP_KERNEL(bin_sizes, kmers::binParams) {
    for_each_share(p, [&](u64, u32 n, u32 minimizer) {
        u32 bin = bin_of(minimizer);
        add(at<u64>(p.bytes) + bin, stretch_bytes(p.k, n));
        add(at<u64>(p.kmers) + bin, (u64)n);
    });
}

// bin_stretches packs them, each where its bin's cursor is.
WARPMAP_KERNEL(bin_stretches, kmers::binParams) {
    const u8* text = at<u8>(p.text);
    for_each_share(p, [&](u64 first, u32 n, u32 minimizer) {
        u8* out = at<u8>(p.out) + add(at<u64>(p.bytes) + bin_of(minimizer), stretch_bytes(p.k, n));
        *out++ = (u8)n;
        u32 letters = (u32)p.k - 1 + n;
        for (u32 j = 0; j < letters; j += 4) {
            u32 four = 0;
            for (u32 l = 0; l < 4; l++) four = four << 2 | (j + l < letters ? code_of(load_readonly(text + first + j + l)) & 3 : 0);
            *out++ = (u8)four;
        }
    });
}
