// Sketching of windows, and verdicts on reads. doc.go says what features, locations and entries are.
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
__device__ __forceinline__ u32 hash_of(u32 x) {
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

WARPMAP_KERNEL(sketch, sketchParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        window w = at<window>(p.windows)[i];
        const u8* text = at<u8>(p.text) + w.start;
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
    u32 taxa[2]; // index+1
    u32 n;

    __device__ __forceinline__ Best(const decideParams& p) : p(p), top{}, taxa{}, n(0) {}
    __device__ __forceinline__ const u32* lineage(u32 target) const { return at<u32>(p.lineages) + (u64)at<u32>(p.taxa)[target] * CLASSIFY_RANKS; }

    __device__ inline void offer(const candidate& c) {
        u32 taxon = c.target + 1;
        if (p.lowest > 0) {
            const u32* l = lineage(c.target);
            u32 r = p.lowest;
            while (r < CLASSIFY_RANKS && l[r] == 0) r++;
            if (r == CLASSIFY_RANKS) return;
            taxon = l[r];
        }
        if (n > 0 && taxa[0] == taxon) {
            if (c.hits > top[0].hits) top[0] = c;
        } else if (n == 0 || c.hits > top[0].hits) {
            top[1] = top[0], taxa[1] = taxa[0];
            top[0] = c, taxa[0] = taxon;
            n = n < 2 ? n + 1 : 2;
        } else if (n == 1 || c.hits > top[1].hits) {
            top[1] = c, taxa[1] = taxon;
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

// The best range of windows of each target, of locations in order.
__device__ inline void rank_targets(const u64* a, u64 n, u32 range, Best& best) {
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

WARPMAP_KERNEL(decide, decideParams) {
    const u64* entries = at<u64>(p.entries);
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        query q = at<query>(p.queries)[i];
        u64 begin = (u64)q.first * S, mate = (u64)q.mate * S, end = (u64)at<query>(p.queries)[i + 1].first * S, n = 0;
        for (u64 f = begin; f < end; f++) n += locations_of(entries[f]);
        verdict& out = at<verdict>(p.verdicts)[i];
        out = verdict{};
        if (n == 0) continue;
        u64 first = add(at<u64>(p.next), n);
        if (first + n > p.room) continue; // the host sees it, and comes again with more
        u64* a = at<u64>(p.scratch) + first;
        u64 to = 0;
        for (u64 f = begin; f < end; f++) {
            u64 entry = entries[f], second = f >= mate;
            u32 m = locations_of(entry);
            if (!many(entry)) {
                if (m) a[to++] = marked(entry & ONE, second);
                continue;
            }
            const u64* list = at<u64>(p.locations) + (entry & PLACE);
            for (u32 j = 0; j < m; j++) a[to++] = marked(list[j], second);
        }
        sort(a, n);
        Best best(p);
        rank_targets(a, n, q.range, best);
        out.taxon = best.decide();
        out.best[0] = best.top[0], out.best[1] = best.top[1];
    }
}
