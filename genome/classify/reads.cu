// Verdicts on reads by a CPU. It goes over the windows of some reads at a time, three times: it sketches them, looks their features up, and decides on the
// reads. So the cache has what one step leaves to the next, and memory that many look-ups touch is asked for together.
#include "classify.cuh"

static constexpr u32 SOME = 32; // windows
static constexpr u64 LATER = ~0ull; // an entry that is not known yet

// Resident is a database in the CPU's memory, some of whose chunks may not be there.
struct Resident {
    const residentParams& p;

    // may_be tells whether a database may have any feature with the same highest bits. Of the features of short windows, which are large, it has few.
    inline u32 may_be(u32 feature) const {
        u32 bit = feature >> (32 - CLASSIFY_FILTER_BITS);
        return at<u32>(p.filter)[bit / 32] >> bit % 32 & (u32)(feature != NO_FEATURE);
    }
    // The last chunk whose first feature is not above a feature.
    inline u32 chunk_of(u32 feature) const {
        const chunkHead* heads = at<chunkHead>(p.heads);
        const u32* starts = at<u32>(p.starts) + (feature >> 16);
        u32 from = starts[0], to = starts[1];
        while (to - from > 1) {
            u32 middle = from + (to - from) / 2;
            bool behind = heads[middle].first <= feature;
            from = behind ? middle + 1 : from;
            to = behind ? to : middle;
        }
        return from + (u32)(heads[from].first <= feature) - 1;
    }
    static inline u32 hash_in_chunk(u32 feature) { return feature * (u32)CLASSIFY_BUCKET_FACTOR; }
    // home gives the bucket that a feature may be in, and asks for its memory; false where the chunk is not there, which is wanted then.
    inline bool home(u32 feature, u32& to) const {
        u32 chunk = chunk_of(feature);
        if (__builtin_expect(__atomic_load_n(&at<chunkHead>(p.heads)[chunk].there, __ATOMIC_ACQUIRE) == 0, 0)) {
            __atomic_store_n(at<u32>(p.wanted) + chunk, 1u, __ATOMIC_RELAXED);
            return false;
        }
        to = chunk * CLASSIFY_BUCKETS + (u32)((u64)hash_in_chunk(feature) * CLASSIFY_BUCKETS >> 32);
        ask(to);
        return true;
    }
    inline void ask(u32 i) const { prefetch_line(p.buckets + (u64)i * sizeof(bucket)); }
    static inline u32 next(u32 i) {
        return ++i % CLASSIFY_BUCKETS ? i : i - CLASSIFY_BUCKETS;
    }
    // entry gives a feature's entry, 0 where there is none, or LATER where one of the next buckets may have it.
    inline u64 entry(u32 feature, u32 i) const {
        const bucket& b = at<bucket>(p.buckets)[i];
        u32 which = 0, same = 0;
        for (u32 j = 0; j < CLASSIFY_BUCKET_ITEMS; j++) {
            u32 hit = b.features[j] == feature + 1;
            same |= hit;
            which |= j & (0 - hit);
        }
        if (same) return b.entries[which];
        if (!(b.passed >> hash_in_chunk(feature) % 32 & 1)) return 0;
        ask(next(i));
        return LATER;
    }
    inline u64 entry_farther_on(u32 feature, u32 i) const {
        u64 found;
        while ((found = entry(feature, i = next(i))) == LATER) {}
        return found;
    }
};

// Where the entries of a read end, and where those of its second mate begin.
struct Ends {
    u64 mate, all;
};

// Lookups has the entries of some reads, those of each in a row.
struct Lookups {
    const readsParams& p;
    const query* queries; // of the reads
    u64* entries;
    u64 n, missing; // missing: features whose chunks are not there
    u32 read, reads; // the one whose windows come next
    Ends ends[SOME];

    inline Lookups(const readsParams& p, const query* queries, u32 reads, u64* entries) : p(p), queries(queries), entries(entries), n(0), missing(0), read(0), reads(reads) { begin(); }
    inline void begin() { if (read < reads) ends[read].mate = LATER; }
    inline void end() {
        if (ends[read].mate > n) ends[read].mate = n;
        ends[read++].all = n;
        begin();
    }
    // add looks up the features of up to SOME windows.
    inline void add(u64 first, u32 windows) {
        Resident resident{p.resident};
        u32 features[SOME * S], homes[SOME * S], behind[SOME], later[SOME * S], m = 0, late = 0;
        u64 found[SOME * S];
        for (u32 i = 0; i < windows; i++) {
            window w = at<window>(p.windows)[first + i];
            u32 sketch[S], n = 0;
            sketch_window(at<u8>(p.text) + w.start, w.letters, sketch);
            for (int j = 0; j < S; j++) {
                sketch[n] = sketch[j];
                n += resident.may_be(sketch[j]);
            }
            for (u32 j = 0; j < n; j++) {
                features[m] = sketch[j];
                if (resident.home(sketch[j], homes[m])) m++;
                else missing++;
            }
            behind[i] = m;
        }
        for (u32 j = 0; j < m; j++) {
            found[j] = resident.entry(features[j], homes[j]);
            later[late] = j;
            late += found[j] == LATER;
        }
        for (u32 j = 0; j < late; j++) found[later[j]] = resident.entry_farther_on(features[later[j]], homes[later[j]]);
        for (u32 i = 0, j = 0; i < windows; i++) {
            while (first + i == queries[read + 1].first) end();
            if (first + i == queries[read].mate) ends[read].mate = n;
            for (; j < behind[i]; j++) {
                u64 entry = found[j];
                if (many(entry)) ask(entry);
                entries[n] = entry;
                n += entry != 0;
            }
        }
    }
    // ask asks for the first lines of a list. The processor itself asks for those behind them.
    inline void ask(u64 entry) const {
        u64 list = p.decide.locations + (entry & PLACE) * 8;
        prefetch_line(list);
        prefetch_line(list + (locations_of(entry) < 8 ? locations_of(entry) - 1 : 8) * 8);
    }
};

// A CPU ranks 32 marks by comparing them with each, side by side. Marks are less than LAST.
static constexpr i64 LAST = (i64)(~0ull >> 1);
typedef i64 Eight __attribute__((vector_size(64)));
inline void rank_row(u64* a, u64 n) {
    alignas(64) i64 x[32], ranks[32], y[33];
    memcpy(x, a, n * 8);
    for (u64 j = n; j < 32; j++) x[j] = LAST;
    for (u32 j = 0; j < 33; j++) y[j] = LAST;
    for (u32 j = 0; j < n; j += 16) {
        Eight p = load<Eight>(x + j), q = load<Eight>(x + j + 8), before_p = {}, before_q = {};
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

// merge puts two lists of marks in order together, and gives how many there are then: of marks that both have, one stays, with the hits of both.
struct Marked {
    u64* marks;
    u32* hits;
};
__attribute__((noinline)) inline u64 merge(Marked a, u64 n, Marked b, u64 m, Marked to) {
    const u64 *x = a.marks, *y = b.marks, *x_end = x + n, *y_end = y + m;
    const u32 *x_hits = a.hits, *y_hits = b.hits;
    u64* out = to.marks;
    u32* out_hits = to.hits;
    while (x != x_end && y != y_end) {
        u64 p = *x, q = *y;
        u64 first = p <= q, second = q <= p;
        *out++ = first ? p : q;
        *out_hits++ = (*x_hits & (u32)(0 - first)) + (*y_hits & (u32)(0 - second));
        x += first;
        x_hits += first;
        y += second;
        y_hits += second;
    }
    n = (u64)(x_end - x);
    m = (u64)(y_end - y);
    memcpy(out, x, n * 8);
    memcpy(out_hits, x_hits, n * 4);
    memcpy(out + n, y, m * 8);
    memcpy(out_hits + n, y_hits, m * 4);
    return (u64)(out - to.marks) + n + m;
}

// The best range of windows of each target, of n marks in order. Mark i stands for each(i) hits.
template <class Each> inline __device__ void rank_targets(const u64* a, u64 n, u32 range, Best& best, Each each) {
    candidate now{target_of(a[0]), 0, 0};
    u32 hits = 0, second = 0;
    for (u64 i = 0, from = 0; i < n; i++) {
        u32 target = target_of(a[i]), its = each(i);
        if (target != now.target) {
            best.offer(now);
            now = candidate{target, 0, 0};
            hits = second = 0;
            from = i;
        }
        hits += its;
        second += a[i] & 1 ? its : 0;
        for (; window_of(a[i]) - window_of(a[from]) >= range; from++) {
            its = each(from);
            hits -= its;
            second -= a[from] & 1 ? its : 0;
        }
        if (hits > now.hits) now.hits = hits, now.second = second;
    }
    best.offer(now);
}

// The marks of a read's locations.
struct Locations {
    const decideParams& p;
    const u64* entries;
    u64 n, mate; // entries, and of the first mate

    // list writes the marks of one entry, and gives how many.
    inline u64 list(u64 i, u64* to) const {
        u64 entry = entries[i], second = i >= mate;
        if (!many(entry)) {
            *to = marked(entry & ONE, second);
            return 1;
        }
        const u64* from = at<u64>(p.locations) + (entry & PLACE);
        u32 count = locations_of(entry), k = 0;
        for (; k + 8 <= count; k += 8) store(to + k, load<Eight>(from + k) << 1 | (i64)second);
        for (; k < count; k++) to[k] = marked(from[k], second);
        return count;
    }
};

static constexpr u64 FEW = 32;  // marks that are ranked at once
static constexpr u64 LONG = 12; // a list of so many is not ranked: it is in order

// Few marks are ranked. room is for FEW.
inline void decide_on_few(const Locations& l, u64* a, u32 range, Best& best) {
    u64 n = 0;
    for (u64 i = 0; i < l.n; i++) n += l.list(i, a + n);
    rank_row(a, n);
    rank_targets(a, n, range, best, [](u64) { return 1u; });
}

// Of many marks, those of short lists are ranked in rows; then lists are merged, two at a time, until there is one. Room has 4n places.
inline void decide_on_many(const Locations& l, u64 n, u64* room, u32 range, Best& best) {
    Marked a{room, (u32*)(room + 2 * n)}, b{room + n, a.hits + n};
    u64* ends = room + 3 * n; // of the lists
    u64 m = 0, lists = 0;
    for (u64 i = 0; i < l.n; i++)
        if (locations_of(l.entries[i]) < LONG) m += l.list(i, a.marks + m);
    for (u64 i = 0; i < m; i += FEW) {
        u64 row = m - i < FEW ? m - i : FEW;
        rank_row(a.marks + i, row);
        ends[lists++] = i + row;
    }
    for (u64 i = 0; i < l.n; i++)
        if (locations_of(l.entries[i]) >= LONG) {
            m += l.list(i, a.marks + m);
            ends[lists++] = m;
        }
    for (u64 i = 0; i < m; i += 16) store(a.hits + i, Hashes{} + 1); // more than there are: what lies behind is not in use yet
    while (lists > 1) {
        u64 from = 0, to = 0, left = 0;
        for (u64 i = 0; i < lists; i += 2) {
            u64 middle = ends[i], end = i + 1 < lists ? ends[i + 1] : middle;
            to += merge({a.marks + from, a.hits + from}, middle - from, {a.marks + middle, a.hits + middle}, end - middle, {b.marks + to, b.hits + to});
            ends[left++] = to;
            from = end;
        }
        lists = left;
        m = to;
        Marked other = a;
        a = b;
        b = other;
    }
    rank_targets(a.marks, m, range, best, [a](u64 i) { return a.hits[i]; });
}

// Each block has scratch memory of its own, of p.decide.room places. What a read wants beyond it the host sees in p.decide.next, and comes again.
WARPMAP_KERNEL(reads, readsParams) {
    const decideParams& d = p.decide;
    const query* queries = at<query>(d.queries);
    Stretch s = Stretch::alone(d.n);
    if (s.start >= s.n) return;
    u64* entries = at<u64>(d.entries) + (u64)queries[s.start].first * S;
    u64* scratch = at<u64>(d.scratch) + block_index() * d.room;
    u64 missing = 0;
    for (u64 i = s.start, end; i < s.n; i = end) {
        u64 first = queries[i].first;
        for (end = i + 1; end < s.n && queries[end + 1].first - first <= SOME && end - i < SOME; end++) {}
        Lookups found(p, queries + i, (u32)(end - i), entries);
        for (u64 w = first, last = queries[end].first; w < last; w += SOME) found.add(w, last - w < SOME ? (u32)(last - w) : SOME);
        while (found.read < found.reads) found.end();
        missing += found.missing;
        if (missing) continue; // the host comes again when all chunks are there
        for (u64 r = i, from = 0; r < end; r++) {
            Ends ends = found.ends[r - i];
            Locations l{d, entries + from, ends.all - from, ends.mate - from};
            from = ends.all;
            u64 n = 0;
            for (u64 k = 0; k < l.n; k++) n += locations_of(l.entries[k]);
            at<verdict>(d.verdicts)[r] = verdict{};
            if (n == 0) continue;
            if (4 * n > d.room) {
                max_of(at<u64>(d.next), 4 * n);
                continue;
            }
            Best best(d);
            if (n <= FEW) decide_on_few(l, scratch, queries[r].range, best);
            else decide_on_many(l, n, scratch, queries[r].range, best);
            tell(d, r, best);
        }
    }
    if (missing) add(at<u64>(p.missing), missing);
}
