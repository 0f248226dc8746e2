// Sketching of windows, and verdicts on reads. doc.go says what features, locations and entries are.
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
static constexpr u32 AT_ONCE = 256, WANTED = S + S / 2 + 8, LIKELY = S <= 24 ? 64 : 128;
static_assert(WANTED + 16 <= LIKELY, "a sketch is chosen from those that are likely, of which there may be some more than wanted");

// Sixteen hashes, or letters, in vectors of the machine.
typedef u32 Hashes __attribute__((vector_size(64)));
typedef u8 Letters __attribute__((vector_size(16)));
template <class V, class T> inline V load(const T* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class V, class T> inline void store(T* p, V v) { memcpy(p, &v, sizeof v); }

inline bool sketch_at_once(const u8* text, u32 letters, u32* out) {
    if (letters < K || letters > AT_ONCE) return false;
    alignas(64) u8 t[AT_ONCE + 32];
    alignas(64) u32 a[AT_ONCE + 32], b[AT_ONCE + 32];
    memcpy(t, text, letters);
    memset(t + letters, 'A', 32);
    u32 n = letters - K + 1;
    Hashes others = {};
    for (u32 j = 0; j < letters + 16; j += 16) {
        Hashes x = __builtin_convertvector(load<Letters>(t + j), Hashes), upper = x & 0xdf;
        others |= (Hashes)((upper != 'A') & (upper != 'C') & (upper != 'G') & (upper != 'T') & (upper != 'U'));
        store(a + j, (x >> 1 ^ x >> 2) & 3);
    }
    u64 other[8];
    memcpy(other, &others, sizeof other);
    if (other[0] | other[1] | other[2] | other[3] | other[4] | other[5] | other[6] | other[7]) return false;
    // the 2, 4, 8, then 16 letters from each
    auto twice = [letters](const u32* from, u32* to, u32 apart) {
        for (u32 j = 0; j < letters; j += 16) store(to + j, load<Hashes>(from + j) << 2 * apart | load<Hashes>(from + j + apart));
        store(to + (letters + 15) / 16 * 16, Hashes{});
    };
    twice(a, b, 1);
    twice(b, a, 2);
    twice(a, b, 4);
    for (u32 j = 0; j < n; j += 16) {
        Hashes forward = (load<Hashes>(b + j) << 16 | load<Hashes>(b + j + 8)) >> (32 - 2 * K), x = ~forward;
        x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
        x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
        x = (x >> 8 & 0x00ff00ffu) | (x & 0x00ff00ffu) << 8;
        Hashes reverse = (x >> 16 | x << 16) >> (32 - 2 * K);
        store(a + j, hash_of(forward < reverse ? forward : reverse));
    }
    // of n hashes that differ, so many are likely to have the S smallest among them
    u32 bound = WANTED < n ? (u32)(((u64)WANTED << 32) / n) : NO_FEATURE, m = 0;
    for (u32 j = 0; j < n; j++) {
        b[m] = a[j];
        m += a[j] < bound;
    }
    if (m > LIKELY) return false;
    for (u32 j = m; j < LIKELY; j++) b[j] = NO_FEATURE;
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
    if (got < S && bound != NO_FEATURE) return false;
    for (; got < S; got++) out[got] = NO_FEATURE;
    return true;
}
#endif

WARPMAP_KERNEL(sketch, sketchParams) {
    FOR_EACH_ITEM_BY(Alone, i, p.n) {
        if (i >= p.n) continue;
        window w = at<window>(p.windows)[i];
        const u8* text = at<u8>(p.text) + w.start;
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
        if (sketch_at_once(text, w.letters, at<u32>(p.features) + i * S)) continue;
#endif
        Sketch s;
        u32 forward = 0, reverse = 0, run = 0;
        for (u32 j = 0; j < w.letters; j++) {
            u32 letter = text[j], code = code_of(letter);
            run = is_base(letter) ? run + 1 : 0;
            forward = (forward << 2 | code) & (~0u >> (32 - 2 * K));
            reverse = reverse >> 2 | (3 - code) << (2 * K - 2);
            u32 h = hash_of(forward < reverse ? forward : reverse);
            if (run >= K && h < s.least[S - 1]) s.put(h);
        }
        u32* out = at<u32>(p.features) + i * S;
#pragma unroll
        for (int j = 0; j < S; j++) out[j] = s.least[j];
    }
}

WARPMAP_KERNEL(pairs, pairParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        const u32* features = at<u32>(p.features) + i * S;
        u64 place = at<u64>(p.places)[i], n = 0;
        while (n < S && features[n] != NO_FEATURE) n++;
        u64 first = add(at<u64>(p.next), n);
        for (u64 j = 0; j < n; j++) {
            at<u32>(p.keys)[first + j] = features[j];
            at<u64>(p.values)[first + j] = place;
        }
    }
}

// Few values are brought in order one by one: they mostly are in order. Many become a heap, whose largest goes to its end again and again.
__device__ inline void sink(u64* a, u64 from, u64 n) {
    u64 x = a[from];
    for (u64 child; (child = 2 * from + 1) < n; from = child) {
        if (child + 1 < n && a[child + 1] > a[child]) child++;
        if (a[child] <= x) break;
        a[from] = a[child];
    }
    a[from] = x;
}
__device__ inline void sort(u64* a, u64 n) {
    if (n > 48) {
        for (u64 i = n / 2; i-- > 0;) sink(a, i, n);
        for (u64 end = n; --end > 0;) {
            u64 x = a[0];
            a[0] = a[end];
            a[end] = x;
            sink(a, 0, end);
        }
        return;
    }
    for (u64 i = 1; i < n; i++) {
        u64 x = a[i], j = i;
        for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

WARPMAP_KERNEL(sort_lists, sortParams) {
    const u64* offsets = at<u64>(p.offsets);
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        if (offsets[i + 1] > offsets[i] + 1) sort(at<u64>(p.values) + offsets[i], offsets[i + 1] - offsets[i]);
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

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// A CPU ranks 32 marks by comparing them with each, side by side. Marks are less than LAST.
static constexpr i64 LAST = (i64)(~0ull >> 1);
typedef i64 Marks __attribute__((vector_size(64)));
inline void rank_row(u64* a, u64 n) {
    alignas(64) i64 x[32], ranks[32], y[33];
    memcpy(x, a, n * 8);
    for (u64 j = n; j < 32; j++) x[j] = LAST;
    for (u32 j = 0; j < 33; j++) y[j] = LAST;
    for (u32 j = 0; j < n; j += 16) {
        Marks p = load<Marks>(x + j), q = load<Marks>(x + j + 8), before_p = {}, before_q = {};
        for (u64 k = 0; k < n; k++) {
            before_p -= x[k] < p;
            before_q -= x[k] < q;
        }
        store(ranks + j, before_p);
        store(ranks + j + 8, before_q);
    }
    for (u64 j = 0; j < n; j++) y[ranks[j]] = x[j];
    i64 last = y[0]; // a mark that comes twice left the place behind it empty
    for (u64 i = 0; i < n; i++) {
        last = y[i] == LAST ? last : y[i];
        a[i] = (u64)last;
    }
}
inline void merge(const u64* a, u64 n, const u64* b, u64 m, u64* to) {
    const u64 *a_end = a + n, *b_end = b + m;
    while (a != a_end && b != b_end) {
        u64 x = *a, y = *b;
        bool second = y < x;
        *to++ = second ? y : x;
        a += !second;
        b += second;
    }
    memcpy(to, a, (size_t)(a_end - a) * 8);
    memcpy(to + (a_end - a), b, (size_t)(b_end - b) * 8);
}
// in_order brings n marks in order. They are in a, or in b, which has as much room.
inline u64* in_order(u64* a, u64* b, u64 n) {
    for (u64 i = 0; i < n; i += 32) rank_row(a + i, n - i < 32 ? n - i : 32);
    for (u64 span = 32; span < n; span *= 2) {
        for (u64 i = 0; i < n; i += 2 * span) {
            u64 left = n - i, first = left < span ? left : span, second = left - first < span ? left - first : span;
            merge(a + i, first, a + i + first, second, b + i);
        }
        u64* other = a;
        a = b;
        b = other;
    }
    return a;
}
#endif

// A warp has a read: a bitonic sort whose comparisons all go the same way, so that what lies beyond n is as if it were larger than all.
template <class G> __device__ inline void sort_together(G g, u64* a, u64 n) {
    auto each_pair = [&](u64 apart, bool mirrored) {
        u64 rest = n & (2 * apart - 1), pairs = (n & ~(2 * apart - 1)) / 2 + (rest < apart ? rest : apart);
        for (u64 t = (u32)g.rank(); t < pairs; t += G::LANES) {
            u64 off = t & (apart - 1), low = 2 * (t - off) + off, high = mirrored ? 2 * (t - off) + 2 * apart - 1 - off : low + apart;
            if (high >= n) continue;
            u64 x = a[low], y = a[high];
            if (y < x) a[low] = y, a[high] = x;
        }
        g.sync();
    };
    for (u64 span = 1; span < n; span *= 2) {
        each_pair(span, true);
        for (u64 apart = span / 2; apart > 0; apart /= 2) each_pair(apart, false);
    }
}

// The best range of windows of each target, of locations in order.
inline __device__ void rank_targets(const u64* a, u64 n, u32 range, Best& best) {
    candidate now{target_of(a[0]), 0, 0};
    u32 hits = 0, second = 0;
    for (u64 i = 0, from = 0; i < n; i++) {
        u32 target = target_of(a[i]);
        if (target != now.target) {
            best.offer(now);
            now = candidate{target, 0, 0};
            hits = second = 0;
            from = i;
        }
        hits++;
        second += (u32)a[i] & 1;
        for (; window_of(a[i]) - window_of(a[from]) >= range; from++) {
            hits--;
            second -= (u32)a[from] & 1;
        }
        if (hits > now.hits) now.hits = hits, now.second = second;
    }
    best.offer(now);
}

// The same by a warp: each lane has a location, and looks for the first in the range that ends with it.
template <class G> __device__ inline void rank_targets_together(G g, const u64* a, u64 n, u32 range, Best& best) {
    u32 lane = (u32)g.rank();
    u32 open = 0, open_hits = 0; // the target that may go on in the next row, and its best range
    u64 open_end = 0;
    for (u64 row = 0; row < n; row += G::LANES) {
        u64 i = row + lane < n ? row + lane : n - 1, end = i;
        u64 mark = a[i];
        u32 target = target_of(mark), window = window_of(mark);
        u64 least = marked((u64)target << 32 | (window < range ? 0 : window - range + 1), 0);
        u64 low = 0, high = i;
        while (low < high) {
            u64 middle = (low + high) / 2;
            if (a[middle] < least) low = middle + 1;
            else high = middle;
        }
        u32 hits = (u32)(i - low + 1);
        // of ranges with as many hits the first counts
        for (u32 d = 1; d < (u32)G::LANES; d *= 2) {
            u32 from = lane >= d ? lane - d : lane;
            u32 its = g.shuffle(target, (int)from), more = g.shuffle(hits, (int)from);
            u64 where = g.shuffle(end, (int)from);
            if (lane >= d && its == target && more >= hits) hits = more, end = where;
        }
        if (row > 0 && target == open && open_hits >= hits) hits = open_hits, end = open_end;
        bool last = row + lane < n && (i + 1 == n || target_of(a[i + 1]) != target);
        for (u32 votes = g.ballot(last); votes; votes &= votes - 1) {
            int of = lowest_bit(votes);
            candidate c{g.shuffle(target, of), g.shuffle(hits, of), 0};
            best.offer(c, g.shuffle(end, of));
        }
        open = g.shuffle(target, G::LANES - 1);
        open_hits = g.shuffle(hits, G::LANES - 1);
        open_end = g.shuffle(end, G::LANES - 1);
    }
    for (u32 k = 0; k < best.n; k++) {
        u64 second = 0;
        for (u64 i = best.ends[k] + 1 - best.top[k].hits + lane; i <= best.ends[k]; i += G::LANES) second += a[i] & 1;
        best.top[k].second = (u32)g.sum(second);
    }
}

// The locations of a read's features, one after the other; what of them is wanted is up to the kernels below.
struct Read {
    const decideParams& p;
    u64 begin, mate, end; // its features
    u32 range;

    __device__ __forceinline__ Read(const decideParams& p, u64 i) : p(p) {
        query q = at<query>(p.queries)[i];
        begin = (u64)q.first * S, mate = (u64)q.mate * S, end = (u64)at<query>(p.queries)[i + 1].first * S;
        range = q.range;
    }
    __device__ __forceinline__ u64 entry(u64 f) const { return at<u64>(p.entries)[f]; }
    // The location of number k of a feature.
    __device__ __forceinline__ u64 mark(u64 f, u64 entry, u64 k) const {
        u64 location = many(entry) ? at<u64>(p.locations)[(entry & PLACE) + k] : entry & ONE;
        return marked(location, f >= mate);
    }
    __device__ inline void tell(u64 i, const Best& best) const {
        verdict& out = at<verdict>(p.verdicts)[i];
        out.taxon = best.decide();
        out.best[0] = best.top[0], out.best[1] = best.top[1];
    }
};

// room gives the first of n places of scratch memory, or p.room where there are too few: the host sees it, and comes again with more.
__device__ __forceinline__ u64 room(const decideParams& p, u64 n) {
    u64 first = add(at<u64>(p.next), n);
    return first + n > p.room ? p.room : first;
}

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// Resident is a database in the CPU's memory, some of whose chunks may not be there.
struct Resident {
    const lookUpParams& p;

    // The last chunk whose first feature is not above a feature; or none, p.chunks.
    u64 chunk_of(u32 feature) const {
        const u32 *firsts = at<u32>(p.firsts), *starts = at<u32>(p.starts) + (feature >> 16);
        u64 from = starts[0], to = starts[1];
        while (from < to) {
            u64 middle = from + (to - from) / 2;
            bool behind = firsts[middle] <= feature;
            from = behind ? middle + 1 : from;
            to = behind ? to : middle;
        }
        return from ? from - 1 : p.chunks;
    }
    bool there(u64 chunk) const {
        if (__atomic_load_n(at<u32>(p.loaded) + chunk, __ATOMIC_ACQUIRE)) return true;
        __atomic_store_n(at<u32>(p.wanted) + chunk, 1u, __ATOMIC_RELAXED);
        return false;
    }
    // The range of a chunk that a feature is in. Its ranges are as many as there is room for, or half of these.
    u64 slot(u64 chunk, u32 feature) const {
        const u32* firsts = at<u32>(p.firsts) + chunk;
        u32 span = firsts[1] - firsts[0], shift = 0;
        if (span > CLASSIFY_CHUNK_SLOTS) shift = 32 - CLASSIFY_CHUNK_SLOT_BITS - (u32)__builtin_clz(span - 1);
        return chunk * (CLASSIFY_CHUNK_SLOTS + 1) + ((feature - firsts[0]) >> shift);
    }
    u64 entry(u32 feature, u64 from, u64 to) const {
        const record* r = at<record>(p.records);
        while (to - from > 16) {
            u64 middle = from + (to - from) / 2;
            if (r[middle].feature <= feature) from = middle;
            else to = middle;
        }
        while (from < to && r[from].feature < feature) from++;
        if (from == to || r[from].feature != feature) return 0;
        return (u64)r[from].high << 32 | r[from].low;
    }
};

// Memory is asked for some features ahead.
WARPMAP_KERNEL(look_up, lookUpParams) {
    static constexpr u32 TOGETHER = 32;
    Stretch s = Stretch::alone(p.n);
    Resident r{p};
    const u16* index = at<u16>(p.index);
    u64 missing = 0;
    for (u64 i = s.start; i < s.n; i += TOGETHER) {
        const u32* features = at<u32>(p.features) + i;
        u32 n = (u32)(s.n - i < TOGETHER ? s.n - i : TOGETHER);
        u64 slots[TOGETHER], begins[TOGETHER], ends[TOGETHER];
        for (u32 j = 0; j < n; j++) {
            u64 chunk = features[j] == NO_FEATURE ? p.chunks : r.chunk_of(features[j]);
            begins[j] = ends[j] = 0;
            if (chunk == p.chunks) continue;
            if (!r.there(chunk)) {
                missing++;
                continue;
            }
            slots[j] = r.slot(chunk, features[j]);
            begins[j] = ends[j] = chunk * CLASSIFY_CHUNK + 1;
            prefetch_line(p.index + slots[j] * sizeof *index);
        }
        for (u32 j = 0; j < n; j++) {
            if (!begins[j]) continue;
            u64 chunk = begins[j] - 1;
            begins[j] = chunk + index[slots[j]], ends[j] = chunk + index[slots[j] + 1];
            prefetch_line(p.records + begins[j] * sizeof(record));
        }
        for (u32 j = 0; j < n; j++) at<u64>(p.entries)[i + j] = r.entry(features[j], begins[j], ends[j]);
    }
    if (missing) add(at<u64>(p.missing), missing);
}

WARPMAP_KERNEL(decide, decideParams) {
    FOR_EACH_ITEM_BY(Alone, i, p.n) {
        at<verdict>(p.verdicts)[i] = verdict{};
        Read r(p, i);
        u64 n = 0;
        for (u64 f = r.begin; f < r.end; f++) {
            u64 entry = r.entry(f);
            n += locations_of(entry);
            if (many(entry)) prefetch_line(p.locations + (entry & PLACE) * 8);
        }
        if (n == 0) continue;
        u64 first = room(p, 2 * n);
        if (first == p.room) continue;
        u64* a = at<u64>(p.scratch) + first;
        u64 to = 0;
        for (u64 f = r.begin; f < r.end; f++) {
            u64 entry = r.entry(f);
            for (u32 k = 0, m = locations_of(entry); k < m; k++) a[to++] = r.mark(f, entry, k);
        }
        Best best(p);
        rank_targets(in_order(a, a + n, n), n, r.range, best);
        r.tell(i, best);
    }
}
#else
static constexpr int LANES = CLASSIFY_READ_LANES;
static constexpr u32 NEAR = 256; // locations of a read that lie in shared memory
typedef tile<LANES> Together;

WARPMAP_KERNEL(decide, decideParams) {
    __shared__ u64 near[WARPMAP_MAX_THREADS / LANES][NEAR];
    Together g;
    u32 lane = (u32)g.rank();
    for (u64 i = grid_thread() / LANES; i < p.n; i += grid_threads() / LANES) {
        if (lane == 0) at<verdict>(p.verdicts)[i] = verdict{};
        Read r(p, i);
        u64 n = 0;
        for (u64 f = r.begin + lane; f < r.end; f += LANES) n += locations_of(r.entry(f));
        n = g.sum(n);
        if (n == 0) continue;
        u64* a = near[thread_index() / LANES];
        if (n > NEAR) {
            u64 first = lane == 0 ? room(p, n) : 0;
            first = g.shuffle(first, 0);
            if (first == p.room) continue;
            a = at<u64>(p.scratch) + first;
        }
        u64 to = 0;
        for (u64 row = r.begin; row < r.end; row += LANES) {
            u64 f = row + lane, entry = f < r.end ? r.entry(f) : 0, all, before = g.scan(locations_of(entry), all);
            for (u64 some = 0; some < all; some += LANES) { // each lane takes a location, whose feature is the last that begins before it
                u64 k = some + lane;
                int of = 0;
#pragma unroll
                for (int step = LANES / 2; step > 0; step /= 2) {
                    u64 begins = g.shuffle(before, of + step);
                    if (begins <= k) of += step;
                }
                u64 its = g.shuffle(entry, of), begins = g.shuffle(before, of);
                if (k < all) a[to + k] = r.mark(row + (u32)of, its, k - begins);
            }
            to += all;
        }
        g.sync();
        sort_together(g, a, n);
        Best best(p);
        rank_targets_together(g, a, n, r.range, best);
        if (lane == 0) r.tell(i, best);
        g.sync(); // the next read's locations take the place of these
    }
}
#endif
