// Sketches of windows, pairs and lists for a database, and verdicts on reads by a GPU: those by the CPU are in reads.cu.
#include "classify.cuh"

WARPMAP_KERNEL(sketch, sketchParams) {
    FOR_EACH_ITEM_BY(Alone, i, p.n) {
        if (i >= p.n) continue;
        window w = at<window>(p.windows)[i];
        sketch_window(at<u8>(p.text) + w.start, w.letters, at<u32>(p.features) + i * S);
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

#if !defined(WARPMAP_HOST) || defined(WARPMAP_STRESS)
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
};

// room gives the first of n places of scratch memory, or p.room where there are too few: the host sees it, and comes again with more.
__device__ __forceinline__ u64 room(const decideParams& p, u64 n) {
    u64 first = add(at<u64>(p.next), n);
    return first + n > p.room ? p.room : first;
}

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
        if (lane == 0) tell(p, i, best);
        g.sync(); // the next read's locations take the place of these
    }
}
#endif
