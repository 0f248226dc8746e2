// Top: see doc.go for the layout.
#include "counting.cuh"

using namespace sketch;

// Where a key of the table stands. Wide keys come first, so that nothing is between.
enum Tag : u32 { FREE, BUSY, TAKEN };
template <bool WIDE> struct SlotOf {
    u64 count;
    key k;
    u32 tag;
};
template <> struct SlotOf<true> {
    key k;
    u64 count;
    u32 tag;
};
typedef SlotOf<(sizeof(key) > 8)> Slot;
static_assert(sizeof(Slot) == SKETCH_SLOT_BYTES, "the host makes room for them");

__device__ __forceinline__ topHead* head_of(const topTable& t) { return at<topHead>(t.head); }
__device__ __forceinline__ Slot* slots_of(const topTable& t) { return at<Slot>(t.slots); }

// enter adds n to the count of a key, and tells whether it is new. Whoever finds a free slot makes it busy, writes the
// key and hands it on with the tag. The table has free slots: the host sees to it.
__device__ __forceinline__ bool enter(const topTable& t, u64 hash, const key& k, u64 n) {
    u64 i = reduce(hash, t.count);
    for (u64 probes = 0; probes < t.count; probes++) {
        Slot& s = slots_of(t)[i];
        u32 tag = load_acquire(&s.tag);
        if (tag == FREE) {
            if (cas(&s.tag, (u32)FREE, (u32)BUSY) == FREE) {
                s.k = k;
                store_release(&s.tag, (u32)TAKEN);
                add(&s.count, n);
                return true;
            }
            tag = load_acquire(&s.tag);
        }
        while (tag == BUSY) {
            pause();
            tag = load_acquire(&s.tag);
        }
        if (s.k == k) {
            add(&s.count, n);
            return false;
        }
        i = i + 1 < t.count ? i + 1 : 0;
    }
    add(&head_of(t)->lost, n);
    return false;
}

constexpr u32 BINS = SKETCH_BINS;

// bin_of finds the bin of an item, by its rank from 0, the items of the last bin being first: bins(i) is how many there
// are of bin i. It tells how many are above that bin; false where there are not so many items. All threads of a block
// call it.
template <class Bins> __device__ __forceinline__ bool bin_of(u64 rank, Bins bins, u32& bin, u64& above) {
    __shared__ u64 found[3];
    u32 each = BINS / block_threads(), last = BINS - 1 - thread_index() * each;
    u64 own = 0, all;
    for (u32 j = 0; j < each; j++) own += bins(last - j);
    block_sync();
    if (thread_index() == 0) found[2] = 0;
    u64 before = block_scan(own, all);
    if (before <= rank && rank < before + own) {
        u32 j = 0;
        for (u64 more = bins(last); before + more <= rank; more = bins(last - j)) {
            before += more;
            j++;
        }
        found[0] = last - j;
        found[1] = before;
        found[2] = 1;
    }
    block_sync();
    bin = (u32)found[0];
    above = found[1];
    return found[2] != 0;
}

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// On the CPU device one lane of a block does the work of all, for keys in a row.
__device__ __forceinline__ void add_alone(const topAddParams& p) {
    if (thread_index() != 0) return;
    Kept kept;
    u64 begin = block_index() * p.share, end = begin + p.share < p.n ? begin + p.share : p.n, fresh = 0;
    auto out = [&](u64 hash, const key& k, u64 n) { fresh += enter(p.table, hash, k, n); };
    auto ask = [&](u64 hash) { prefetch_to_write((u64)(slots_of(p.table) + reduce(hash, p.table.count))); };
    for (u64 i = begin; i < end; i++) {
        key k = at<key>(p.keys)[i];
        kept.add(k, 1, key_hash(k, p.table.seed), ask, out);
    }
    kept.flush(out);
    add(&head_of(p.table)->used, fresh);
}
#endif

// What a block counts in shared memory: rows, of which the first are those that it keeps.
struct Summary {
    static constexpr u32 ROWS = (SKETCH_TOP_BYTES - BINS * 4 - 64) / (sizeof(key) + 12), THREADS = WARPMAP_MAX_THREADS;
    static constexpr u32 EACH = (ROWS + THREADS - 1) / THREADS, KEEP = ROWS / SKETCH_KEEP;
    Together<key, ROWS> t;
    u32 came[ROWS]; // how often the key of a row came; 0 of a row whose key has an earlier row
    u32 bins[BINS];
    static_assert(ROWS > 0, "it has room");

    // together brings n rows together.
    __device__ __forceinline__ void together(u32 n, u64 seed) {
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            u32 own = t.first_of(i, (u32)(key_hash(t.k[i], seed) >> 32));
            if (own == i) continue;
            add(&came[own], came[i]);
            came[i] = 0;
        }
    }

    // cut is the count of the row with that rank, from 0, the largest counts first; 0 where there are not so many rows.
    // Most counts that are asked for are small: only a larger one is found digit by digit.
    __device__ __forceinline__ u32 cut(u32 n, u32 rank) {
        u32 digit;
        u64 above;
        auto in_bin = [&](u32 i) { return bins[i]; };
        count_bins(n, [&](u32 c, u32& b) { return b = c < BINS ? c : BINS - 1, true; });
        if (!bin_of(rank, in_bin, digit, above)) return 0;
        if (digit < BINS - 1) return digit;
        u64 prefix = 0, left = rank;
        for (u32 shift = 32 / SKETCH_BIN_BITS * SKETCH_BIN_BITS;; shift -= SKETCH_BIN_BITS) {
            count_bins(n, [&](u32 c, u32& b) {
                b = c >> shift & (BINS - 1);
                return (u64)c >> shift >> SKETCH_BIN_BITS == prefix;
            });
            bin_of(left, in_bin, digit, above);
            prefix = prefix << SKETCH_BIN_BITS | digit;
            left -= above;
            if (shift == 0) return (u32)prefix;
        }
    }
    template <class Bin> __device__ __forceinline__ void count_bins(u32 n, Bin bin) {
        block_sync();
        for (u32 i = thread_index(); i < BINS; i += block_threads()) bins[i] = 0;
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            u32 b;
            if (came[i] && bin(came[i], b)) add(&bins[b], 1u);
        }
        block_sync();
    }

    // keep takes `less` away from the counts of n rows, brings those that stay to the front, and gives how many these
    // are.
    __device__ __forceinline__ u32 keep(u32 n, u32 less) {
        key k[EACH];
        u32 c[EACH], stay = 0;
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            u32 i = j * block_threads() + thread_index();
            c[j] = i < n ? came[i] : 0;
            if (c[j] > less) k[j] = t.k[i], stay++;
        }
        u64 all, to = block_scan(stay, all);
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            if (c[j] <= less) continue;
            t.k[to] = k[j];
            came[to++] = c[j] - less;
        }
        block_sync();
        return (u32)all;
    }
};

// A block counts the keys of its share exactly as long as they have room. Else it keeps those that came most often, and
// takes from all counts that of the first key that it does not keep. At the end, its keys go to the table.
WARPMAP_KERNEL_WIDE(top_add, topAddParams, WARPMAP_MAX_THREADS, Summary) {
    if (grid_thread() == 0) add(&head_of(p.table)->added, p.n);
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    return add_alone(p);
#endif
    Summary& s = *(Summary*)dynamic_shared();
    u64 begin = block_index() * p.share, end = begin + p.share < p.n ? begin + p.share : p.n, less = 0;
    u32 kept = 0, fresh = 0;
    while (begin < end) {
        u32 n = (u32)(end - begin < Summary::ROWS - kept ? end - begin : Summary::ROWS - kept);
        s.t.clear();
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            s.t.k[kept + i] = load_readonly(at<key>(p.keys) + begin + i);
            s.came[kept + i] = 1;
        }
        begin += n;
        n += kept;
        block_sync();
        s.together(n, p.table.seed);
        block_sync();
        kept = s.keep(n, 0);
        u32 most = p.all ? Summary::ROWS : begin < end ? Summary::ROWS / 2 : (u32)p.most;
        if (kept > most) {
            u32 c = s.cut(kept, begin < end ? Summary::KEEP : (u32)p.most);
            kept = s.keep(kept, c);
            less += c;
        }
        if (begin < end && !p.all) continue;
        for (u32 i = thread_index(); i < kept; i += block_threads()) fresh += enter(p.table, key_hash(s.t.k[i], p.table.seed), s.t.k[i], s.came[i]);
        kept = 0;
        block_sync();
    }
    if (thread_index() == 0 && less) add(&head_of(p.table)->less, less);
    count_into(&head_of(p.table)->used, fresh);
}

// Pairs of keys and counts go to the table: those of a batch, of another sketch, or those that an export has listed.
WARPMAP_KERNEL(top_put, topPutParams) {
    topHead* h = head_of(p.table);
    if (p.listed && !h->state) return;
    u64 n = p.listed ? h->listed : p.n, sum = 0;
    u32 fresh = 0;
    FOR_EACH_ITEM_BY(tile<1>, i, n) {
        if (i >= n) break;
        key k = at<key>(p.keys)[i];
        u64 c = at<u64>(p.counts)[i];
        sum += c;
        if (c) fresh += enter(p.table, key_hash(k, p.table.seed), k, c);
    }
    count_into(&h->used, fresh);
    if (p.sum) count_into(&h->added, sum);
    if (grid_thread() != 0) return;
    if (p.added) add(&h->added, p.added);
    if (p.less) add(&h->less, p.less);
}

// The export of a table finds a count by its rank first, digit by digit, from the highest on. It does nothing where the
// table has no more keys than p.when.
WARPMAP_KERNEL(top_begin, topExportParams) {
    topHead* h = head_of(p.table);
    for (u32 i = thread_index(); i < BINS; i += block_threads()) at<u64>(p.bins)[i] = 0;
    if (thread_index() != 0) return;
    h->state = h->used > p.when;
    h->rank = p.rank;
    h->cut = h->listed = h->ties = 0;
}

WARPMAP_KERNEL(top_count, topExportParams) {
    __shared__ u32 bins[BINS];
    const topHead* h = head_of(p.table);
    if (h->state != SKETCH_SELECTING) return;
    for (u32 i = thread_index(); i < BINS; i += block_threads()) bins[i] = 0;
    block_sync();
    FOR_EACH_ITEM_BY(tile<1>, i, p.table.count) {
        if (i >= p.table.count) break;
        const Slot& s = slots_of(p.table)[i];
        if (s.tag == TAKEN && s.count >> p.shift >> SKETCH_BIN_BITS == h->cut)
            add(&bins[s.count >> p.shift & (BINS - 1)], 1u);
    }
    block_sync();
    for (u32 i = thread_index(); i < BINS; i += block_threads())
        if (bins[i]) add(at<u64>(p.bins) + i, (u64)bins[i]);
}

// One block: the next digit of the count.
WARPMAP_KERNEL(top_pick, topExportParams) {
    topHead* h = head_of(p.table);
    u32 bin;
    u64 above, rank = h->rank;
    if (h->state != SKETCH_SELECTING) return;
    bool found = bin_of(rank, [&](u32 i) { return at<u64>(p.bins)[i]; }, bin, above);
    for (u32 i = thread_index(); i < BINS; i += block_threads()) at<u64>(p.bins)[i] = 0;
    if (thread_index() != 0) return;
    if (found) {
        h->cut = h->cut << SKETCH_BIN_BITS | bin;
        h->rank = rank - above;
    } else h->state = SKETCH_FOUND; // there are not so many keys: all count more than 0
}

// Keys that count more than the count that was found are listed, with what they count more; or, with p.whole, with all
// that they count. With p.ties those are listed that count the same, behind the others, as far as there is room.
WARPMAP_KERNEL(top_list, topExportParams) {
    topHead* h = head_of(p.table);
    if (!h->state) return;
    u64 before = p.ties ? h->listed : 0;
    FOR_EACH_ITEM_BY(tile<1>, i, p.table.count) {
        const Slot* s = slots_of(p.table) + i;
        bool on = i < p.table.count && s->tag == TAKEN && (p.ties ? s->count == h->cut && h->cut : s->count > h->cut);
        u64 to = before + append(p.ties ? &h->ties : &h->listed, on);
        if (!on || to >= p.limit) continue;
        at<key>(p.keys)[to] = s->k;
        at<u64>(p.counts)[to] = p.whole ? s->count : s->count - h->cut;
    }
}

// The table is empty then, and its list is what comes into it.
WARPMAP_KERNEL(top_clear, topExportParams) {
    topHead* h = head_of(p.table);
    if (!h->state) return;
    FOR_EACH_ITEM_BY(tile<1>, i, p.table.count) {
        if (i >= p.table.count) break;
        slots_of(p.table)[i].count = 0;
        slots_of(p.table)[i].tag = FREE;
    }
    if (grid_thread() != 0) return;
    h->used = 0;
    h->less += h->cut;
}
