// Sketches of windows, and what is known of a read: for the kernels of classify.cu and of reads.cu. doc.go says what features, locations and entries are.
#pragma once
#include "items.cuh"
#include "layout.h"
#include "warpmap.cuh"

using namespace classify;

static constexpr int S = CLASSIFY_SKETCH, K = CLASSIFY_K;
static constexpr u32 NO_FEATURE = ~0u;

// A, C, G, T or U, in either case: 0 to 3 are bits 1 and 2 of the letter, mixed.
__device__ __forceinline__ u32 code_of(u32 letter) { return (letter >> 1 ^ letter >> 2) & 3; }
__device__ __forceinline__ bool is_base(u32 letter) {
    u32 place = (letter & 0xdf) - 'A';
    return place < 32 && ((1u << 0 | 1u << 2 | 1u << 6 | 1u << 19 | 1u << 20) >> place & 1);
}
template <class T> __device__ __forceinline__ T hash_of(T x) {
    x = (x >> 16 ^ x) * 0x45d9f3bu;
    x = (x >> 16 ^ x) * 0x45d9f3bu;
    return x >> 16 ^ x;
}

// The smallest hashes, in their order. A hash that goes in moves those above it by one, all at once: there is nothing to branch for, and on
// a GPU all stay in registers.
struct Sketch {
    u32 least[S];
    __device__ __forceinline__ Sketch() {
#pragma unroll
        for (int j = 0; j < S; j++) least[j] = NO_FEATURE;
    }
    __device__ __forceinline__ void put(u32 h) {
        u32 same = 0;
#pragma unroll
        for (int j = 0; j < S; j++) same |= least[j] == h;
        if (same) return;
        u32 next[S];
        next[0] = least[0] < h ? least[0] : h;
#pragma unroll
        for (int j = 1; j < S; j++) {
            u32 low = least[j] < h ? least[j] : h;
            next[j] = least[j - 1] > low ? least[j - 1] : low;
        }
#pragma unroll
        for (int j = 0; j < S; j++) least[j] = next[j];
    }
};

typedef tile<1, true> Alone;

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// A CPU makes all hashes of a window side by side, and brings in order only those that are likely to be among the smallest. sketch_at_once gives false
// where this tells nothing: for a window that is long, has letters that are no bases, or few different k-mers.
static constexpr u32 SHORT = 256, WANTED = S + S / 2 + 2, LIKELY = S <= 24 ? 64 : 128;
static_assert(WANTED + 16 <= LIKELY, "a sketch is chosen from those that are likely, of which there may be some more than wanted");

// Sixteen hashes, or letters, and 64 letters, in vectors of the machine.
typedef u32 Hashes __attribute__((vector_size(64)));
typedef u8 Letters __attribute__((vector_size(16)));
typedef u8 Row __attribute__((vector_size(64)));
template <class V, class T> inline V load(const T* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class V, class T> inline void store(T* p, V v) { memcpy(p, &v, sizeof v); }

static const Hashes PLACES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Operations for which g++ knows no instruction of its own accord: sixteen bytes as numbers; those hashes in a row that are below a bound, of which
// put_below gives how many there are (what lies behind them is written, too); and a sort.
#if defined(__AVX512F__) && !defined(__clang__)
typedef int Ints __attribute__((vector_size(64)));
inline Hashes widen(const u8* p) {
    typedef char Bytes __attribute__((vector_size(16)));
    return (Hashes)__builtin_ia32_pmovzxbd512_mask(load<Bytes>(p), Ints{}, (unsigned short)-1);
}
inline u32 put_below(Hashes x, u32 bound, u32* to) {
    unsigned short below = (unsigned short)__builtin_ia32_ucmpd512_mask((Ints)x, (Ints)(Hashes{} + bound), 1, (unsigned short)-1);
    store(to, __builtin_ia32_compresssi512_mask((Ints)x, Ints{}, below));
    return (u32)popcount(below);
}

// A step of a bitonic sort of sixteen, in stretches of SPAN that go up and down by turns: those so far apart are brought in order.
template <u32 APART, u32 SPAN> inline Hashes sort_step(Hashes x) {
    Hashes y = __builtin_shuffle(x, PLACES ^ APART), small = x < y ? x : y, large = x < y ? y : x;
    return ((PLACES & APART) == 0) == ((PLACES & SPAN) == 0) ? small : large;
}
inline Hashes sort_turned(Hashes x) { return sort_step<1, 16>(sort_step<2, 16>(sort_step<4, 16>(sort_step<8, 16>(x)))); }
inline Hashes sort_sixteen(Hashes x) {
    x = sort_step<1, 4>(sort_step<2, 4>(sort_step<1, 2>(x)));
    return sort_turned(sort_step<1, 8>(sort_step<2, 8>(sort_step<4, 8>(x))));
}
// put_least writes the least S of 16 to 32 hashes, behind which others are NO_FEATURE; false where some of the least 16 come twice.
inline bool put_least(const u32* b, u32* out) {
    Hashes x = sort_sixteen(load<Hashes>(b)), y = __builtin_shuffle(sort_sixteen(load<Hashes>(b + 16)), 15 - PLACES);
    x = sort_turned(x < y ? x : y);
    if (__builtin_ia32_ucmpd512_mask((Ints)x, (Ints)__builtin_shuffle(x, (PLACES + 15) & 15), 0, (unsigned short)-1)) return false;
    memcpy(out, &x, S < 16 ? S * 4 : 64);
    return true;
}
#else
inline bool put_least(const u32*, u32*) { return false; }
inline Hashes widen(const u8* p) { return __builtin_convertvector(load<Letters>(p), Hashes); }
inline u32 put_below(Hashes x, u32 bound, u32* to) {
    u32 n = 0;
    for (u32 j = 0; j < 16; j++) {
        to[n] = x[j];
        n += x[j] < bound;
    }
    return n;
}
#endif

// The letters' codes, in rows of 64; false where some letter is no base. t has room for a row more.
inline bool codes_of(const u8* text, u32 letters, u8* t) {
    u32 whole = letters / 16 * 16;
    for (u32 j = 0; j < whole; j += 16) store(t + j, load<Letters>(text + j));
    for (u32 j = whole; j < letters; j++) t[j] = text[j];
    store(t + letters, Row{} + (u8)'A');
    Row others = {};
    for (u32 j = 0; j < letters; j += 64) {
        Row x = load<Row>(t + j), upper = x & 0xdf;
        others |= (Row)((upper != 'A') & (upper != 'C') & (upper != 'G') & (upper != 'T') & (upper != 'U'));
        store(t + j, (x >> 1 ^ x >> 2) & 3);
    }
    store(t + letters, Row{});
    u64 other[8];
    store(other, others);
    return !(other[0] | other[1] | other[2] | other[3] | other[4] | other[5] | other[6] | other[7]);
}

// hashes_below gives how many hashes are below a bound, and writes them, of the k-mers that begin with n letters. t has, from each letter on, the codes of 4.
inline u32 hashes_below(const u8* t, u32 n, u32 bound, u32* to) {
    u32 m = 0;
    for (u32 j = 0; j < n; j += 16) {
        Hashes forward = (widen(t + j) << 24 | widen(t + j + 4) << 16 | widen(t + j + 8) << 8 | widen(t + j + 12)) >> (32 - 2 * K), x = ~forward;
        x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
        x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
        x = (x >> 8 & 0x00ff00ffu) | (x & 0x00ff00ffu) << 8;
        Hashes reverse = (x >> 16 | x << 16) >> (32 - 2 * K);
        x = hash_of(forward < reverse ? forward : reverse);
        if (n - j < 16) x |= (Hashes)(PLACES >= n - j);
        m += put_below(x, bound, to + m);
    }
    return m;
}

// put_ranked writes the least S of up to LIKELY hashes, and gives how many there were.
inline u32 put_ranked(const u32* b, u32 m, u32* out) {
    alignas(64) u32 ranked[LIKELY + 1], ranks[LIKELY];
    for (u32 j = 0; j <= LIKELY; j++) ranked[j] = NO_FEATURE;
    for (u32 j = 0; j < m; j += 32) { // 32 of them, beside each of all
        Hashes x = load<Hashes>(b + j), y = load<Hashes>(b + j + 16), before_x = {}, before_y = {};
        for (u32 k = 0; k < m; k++) {
            before_x -= (Hashes)(b[k] < x);
            before_y -= (Hashes)(b[k] < y);
        }
        store(ranks + j, before_x);
        store(ranks + j + 16, before_y);
    }
    for (u32 j = 0; j < m; j++) ranked[ranks[j]] = b[j];
    u32 got = 0; // a hash that comes twice left the place behind it empty
    for (u32 j = 0; j < m && got < S; j++) {
        out[got] = ranked[j];
        got += ranked[j] != NO_FEATURE;
    }
    return got;
}

inline bool sketch_at_once(const u8* text, u32 letters, u32* out) {
    if (letters < K || letters > SHORT) return false;
    alignas(64) u8 t[SHORT + 128];
    if (!codes_of(text, letters, t)) return false;
    for (u32 j = 0; j < letters; j += 64) store(t + j, load<Row>(t + j) << 2 | load<Row>(t + j + 1)); // of 2
    for (u32 j = 0; j < letters; j += 64) store(t + j, load<Row>(t + j) << 4 | load<Row>(t + j + 2)); // of 4
    alignas(64) u32 b[SHORT + 32];
    u32 n = letters - K + 1;
    for (u32 wanted = WANTED;; wanted *= 2) {
        // of n hashes that differ, so many are likely to be below the bound
        u32 bound = wanted < n ? (u32)(((u64)wanted << 32) / n) : NO_FEATURE, m = hashes_below(t, n, bound, b);
        if (m > LIKELY) return false;
        store(b + m, Hashes{} + NO_FEATURE);
        store(b + m + 16, Hashes{} + NO_FEATURE);
        if (S <= 16 && m >= 16 && m <= 32 && put_least(b, out)) return true;
        u32 got = put_ranked(b, m, out);
        if (got < S && bound != NO_FEATURE) continue;
        for (; got < S; got++) out[got] = NO_FEATURE;
        return true;
    }
}
#endif

// The features of a window, in order, and NO_FEATURE in the places that are left over.
__device__ inline void sketch_window(const u8* text, u32 letters, u32* out) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    if (sketch_at_once(text, letters, out)) return;
#endif
    Sketch s;
    u32 forward = 0, reverse = 0, run = 0;
    for (u32 j = 0; j < letters; j++) {
        u32 letter = text[j], code = code_of(letter);
        run = is_base(letter) ? run + 1 : 0;
        forward = (forward << 2 | code) & (~0u >> (32 - 2 * K));
        reverse = reverse >> 2 | (3 - code) << (2 * K - 2);
        u32 h = hash_of(forward < reverse ? forward : reverse);
        if (run >= K && h < s.least[S - 1]) s.put(h);
    }
#pragma unroll
    for (int j = 0; j < S; j++) out[j] = s.least[j];
}

// In scratch memory a location has the number of the mate below its window, so that hits of each are counted.
__device__ __forceinline__ u64 marked(u64 location, u64 mate) {
    u32 window = (u32)location;
    return location >> 32 << 33 | (u64)window << 1 | mate;
}
__device__ __forceinline__ u32 target_of(u64 mark) { return (u32)(mark >> 33); }
__device__ __forceinline__ u32 window_of(u64 mark) { return (u32)(mark >> 1); }

__device__ __forceinline__ bool many(u64 entry) { return entry >> CLASSIFY_MANY_BIT; }
__device__ __forceinline__ u32 locations_of(u64 entry) { return many(entry) ? (u32)(entry >> CLASSIFY_COUNT_SHIFT & CLASSIFY_MOST_LOCATIONS) : (u32)(entry != 0); }
static constexpr u64 PLACE = (1ull << CLASSIFY_COUNT_SHIFT) - 1, ONE = (1ull << CLASSIFY_ONE_BIT) - 1;

// What is known of a read: its best two targets, or the best of its best two taxa.
struct Best {
    const decideParams& p;
    candidate top[2];
    u64 ends[2]; // the last location of the range of each, where locations lie in order
    u32 taxa[2]; // index+1
    u32 n;

    __device__ __forceinline__ Best(const decideParams& p) : p(p), top{}, ends{}, taxa{}, n(0) {}
    __device__ __forceinline__ const u32* lineage(u32 target) const { return at<u32>(p.lineages) + (u64)at<u32>(p.taxa)[target] * CLASSIFY_RANKS; }

    __device__ inline void offer(const candidate& c, u64 end = 0) {
        if (n == 2 && c.hits <= top[1].hits) return;
        u32 taxon = c.target + 1;
        if (p.lowest > 0) {
            const u32* l = lineage(c.target);
            u32 r = p.lowest;
            while (r < CLASSIFY_RANKS && l[r] == 0) r++;
            if (r == CLASSIFY_RANKS) return;
            taxon = l[r];
        }
        if (n > 0 && taxa[0] == taxon) {
            if (c.hits > top[0].hits) top[0] = c, ends[0] = end;
        } else if (n == 0 || c.hits > top[0].hits) {
            top[1] = top[0], ends[1] = ends[0], taxa[1] = taxa[0];
            top[0] = c, ends[0] = end, taxa[0] = taxon;
            n = n < 2 ? n + 1 : 2;
        } else if (n == 1 || c.hits > top[1].hits) {
            top[1] = c, ends[1] = end, taxa[1] = taxon;
            n = 2;
        }
    }
    // The verdict: index+1 of a taxon, or 0.
    __device__ inline u32 decide() const {
        if (n == 0 || top[0].hits < p.hit_min) return 0;
        bool both = n == 2 && (float)top[1].hits > (float)(top[0].hits - p.hit_min) * p.hit_diff;
        const u32 *a = lineage(top[0].target), *b = both ? lineage(top[1].target) : a;
        if (p.lowest == 0 && !both) return at<u32>(p.indices)[at<u32>(p.taxa)[top[0].target]] + 1;
        for (u32 r = p.lowest > 0 ? p.lowest : 1; r <= p.highest && r < CLASSIFY_RANKS; r++)
            if (a[r] && a[r] == b[r]) return a[r];
        return 0;
    }
};

// tell writes the verdict on read i.
__device__ inline void tell(const decideParams& p, u64 i, const Best& best) {
    verdict& out = at<verdict>(p.verdicts)[i];
    out.taxon = best.decide();
    out.best[0] = best.top[0], out.best[1] = best.top[1];
}
