// Bulk operations of a table: an item to a lane, the pairs that need a move to a group.
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "gph.cuh"
#include "layout.h"
#include "refused.cuh"

using namespace gph;

typedef config C;
typedef config::key key;
typedef config::value value;
// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<GPH_INSERT_GROUP, true> InsertTile;
typedef tile<GPH_FIND_GROUP, true> FindTile;
typedef tile<GPH_MOVE_GROUP> MoveTile;

// look_up reads the bucket of each key of the batch, and calls done(position, home, hit). The next row's keys and cells
// are on their way while a row's buckets are read. Every key takes one bucket, so no lane waits for another, and there is
// nothing for drive (kernel/drive.cuh) to even out.
#if defined(WARPMAP_HOST)
// On the CPU device, but in stress mode, it is a job for drive after all: cells are asked for first, then the buckets that they name.
template <bool PLACE, class Done> struct LookUpJob {
    struct Item {
        key k;
    };
    const Table& t;
    u64 keys;
    Done end;
    Home<C> h;
    Hit<C> hit;
    LookUpJob(const Table& t, u64 keys, Done end) : t(t), keys(keys), end(end) {}
    Item load(u64 i) const { return Item{input_key<C>(keys, i)}; }
    void ahead(const Item& x) const { ask_cell<C>(t, x.k); }
    void ahead_again(const Item& x) const { ask_bucket<C>(t, x.k); }
    bool begin(u64, const Item& x) {
        h = Home<C>(t, x.k);
        return true;
    }
    bool round(FindTile g, bool) {
        read_bucket<C, PLACE || !C::PACKED, false>(t, g, true, bucket_of<C>(t, h, load_kept(cell_at<C>(t, h.cell(t)))), h.stored, hit);
        return false;
    }
    void done(u64 i) { end(i, h, hit); }
};
#endif
template <bool PLACE, class Done> __device__ __forceinline__ void look_up(const Table& t, u64 keys, u64 n, Done done) {
#if defined(WARPMAP_HOST)
    if constexpr (ONE_BY_ONE<FindTile>) {
        LookUpJob<PLACE, Done> job(t, keys, done);
        return drive_held<FindTile, u64>(n, job);
    }
#endif
    FindTile g;
    u64 i = grid_thread(), stride = grid_threads();
    key k = i < n ? input_key<C>(keys, i) : 0, next = i + stride < n ? input_key<C>(keys, i + stride) : 0;
    Home<C> h(t, k);
    u32 code = load_kept(cell_at<C>(t, h.cell(t)));
        for (; (i & ~31ull) < n; i += stride) {
        key after = i + 2 * stride < n ? input_key<C>(keys, i + 2 * stride) : 0;
        Home<C> h1(t, next);
        u32 code1 = load_kept(cell_at<C>(t, h1.cell(t)));
        Hit<C> hit;
        read_bucket<C, PLACE || !C::PACKED, false>(t, g, i < n, bucket_of<C>(t, h, code), h.stored, hit);
        if (i < n) done(i, h, hit);
        h = h1;
        code = code1;
        next = after;
    }
}

WARPMAP_KERNEL(find, findParams) {
    look_up<false>(p.table, p.keys, p.n, [&](u64 i, const Home<C>&, const Hit<C>& hit) {
        if (p.values) at<value>(p.values)[i] = hit.found ? value_of<C>(p.table, hit) : value{};
        if (p.found) at<u8>(p.found)[i] = hit.found;
    });
}

WARPMAP_KERNEL(erase, findParams) {
    u64 erased = 0;
    look_up<true>(p.table, p.keys, p.n, [&](u64 i, const Home<C>& h, const Hit<C>& hit) {
        bool removed = hit.found && Access<C>::remove(p.table.buckets, hit.place, hit.word, h.stored, false);
        erased += removed;
        if (p.found) at<u8>(p.found)[i] = removed;
    });
    count_into(&counters(p.table)->erased, erased);
}

// The pairs that an insert takes: a batch, or what another table holds, an item to a slot.
struct Item {
    bool there;
    key k;
    value v;
};
struct Batch {
    const insertParams& p;
    __device__ __forceinline__ Item load(u64 i) const {
        if (i >= p.n || !wanted(p.refused, p.attempt, i)) return Item{false, 0, value{}};
        return Item{true, input_key<C>(p.keys, i), input_value<C>(p.values, i)};
    }
    __device__ __forceinline__ void told(u64 i, Outcome o) const {
        if (p.added) at<u8>(p.added)[i] = o == ADDED;
        settle(p.refused, p.attempt, i, o == FULL, &counters(p.table)->refused);
    }
};
// A slot of a table, and the key as users know it; the side bucket's slots come last.
struct Slot {
    bool live;
    key k;
    u64 index;
    typename Access<C>::word word;
    __device__ __forceinline__ value load(const Table& t) const { return Access<C>::load_value(t.buckets, 0, index, word); }
};
__device__ __forceinline__ u64 slot_count(const Table& t) { return (t.main + t.reserve + 1) * C::BUCKET; }
__device__ __forceinline__ Slot slot_at(const Table& t, u64 i) {
    Slot s{false, 0, i, {}};
    if (i >= slot_count(t)) return s;
    s.word = load_relaxed(Access<C>::word_at(t.buckets, i));
    s.k = Access<C>::key_of(s.word);
    s.live = !C::marks(s.k);
    s.k = C::real(s.k, i >= slot_count(t) - C::BUCKET);
    return s;
}
struct OldTable {
    const insertParams& p;
    __device__ __forceinline__ Item load(u64 item) const {
        if (item >= p.n) return Item{false, 0, value{}};
        Slot s = slot_at(p.source, p.first + item);
        return Item{s.live, s.k, s.live ? s.load(p.source) : value{}};
    }
    __device__ __forceinline__ void told(u64, Outcome o) const { settle(0, 0, 0, o == FULL, &counters(p.table)->refused); }
};

// Saturation Fill (§6.1, §6.3): pairs whose bucket has room go in, without locks; the others are listed for Refinement. The
// first empty slot of a bucket is swapped for the pair. Slots only fill up while this runs, so two inserts of one key come
// to the same slot, or one sees the other's key.
#if defined(WARPMAP_HOST)
template <bool REPLACE, class Source> struct FillJob {
    typedef ::Item Item;
    typedef Access<C> A;
    const insertParams& p;
    Source source;
    u64 inserted;
    Home<C> h;
    value v;
    u64 bucket, item;
    bool full;
    FillJob(const insertParams& p, Source source) : p(p), source(source), inserted(0) {}
    Item load(u64 i) const { return source.load(i); }
    void ahead(const Item& x) const { ask_cell<C>(p.table, x.k); }
    void ahead_again(const Item& x) const { ask_bucket<C>(p.table, x.k); }
    bool begin(u64 i, const Item& x) {
        h = Home<C>(p.table, x.k);
        v = x.v;
        item = i;
        full = false;
        if (x.there) bucket = bucket_of<C>(p.table, h, load_kept(cell_at<C>(p.table, h.cell(p.table))));
        return x.there;
    }
    bool round(InsertTile g, bool) {
        Hit<C> hit;
        read_bucket<C, REPLACE || !C::PACKED, true>(p.table, g, true, bucket, h.stored, hit);
        if (hit.found) {
            if (REPLACE) A::replace(p.table.buckets, 0, hit.place, hit.word, h.stored, v);
            source.told(item, PRESENT);
            return false;
        }
        if (hit.wait) pause();
        else if (hit.free == ~0u) {
            full = true;
            return false;
        } else if (A::claim(p.table.buckets, 0, bucket * C::BUCKET + hit.free, false, h.stored, v)) {
            source.told(item, ADDED);
            inserted++;
            return false;
        }
        return true;
    }
    void done(u64 i) {
        if (!full) return;
        if (p.alone) source.told(i, FULL);
        else at<u32>(p.list)[1 + append(at<u32>(p.list), true)] = (u32)i;
    }
};
#endif
template <bool REPLACE, class Source> __device__ __forceinline__ void fill(const insertParams& p, Source source) {
    typedef Access<C> A;
#if defined(WARPMAP_HOST)
    if constexpr (ONE_BY_ONE<InsertTile>) {
        FillJob<REPLACE, Source> job(p, source);
        drive_held<InsertTile, u64>(p.n, job);
        count_into(&counters(p.table)->inserted, job.inserted);
        return;
    }
#endif
    InsertTile g;
    const Table& t = p.table;
    u64 inserted = 0;
    u64 i = grid_thread(), stride = grid_threads();
    Item x = source.load(i), next = source.load(i + stride);
    Home<C> h(t, x.k);
    u32 code = load_kept(cell_at<C>(t, h.cell(t)));
    for (; (i & ~31ull) < p.n; i += stride) {
        Item after = source.load(i + 2 * stride);
        Home<C> h1(t, next.k);
        u32 code1 = load_kept(cell_at<C>(t, h1.cell(t)));
        u64 bucket = bucket_of<C>(t, h, code);
        bool busy = x.there, full = false;
        while (g.any_of_all(busy)) {
            Hit<C> hit;
            read_bucket<C, REPLACE || !C::PACKED, true>(t, g, busy, bucket, h.stored, hit);
            if (!busy) continue;
            if (hit.found) {
                if (REPLACE) A::replace(t.buckets, 0, hit.place, hit.word, h.stored, x.v);
                source.told(i, PRESENT);
                busy = false;
            } else if (hit.wait) pause();
            else if (hit.free == ~0u) {
                full = true;
                busy = false;
            } else if (A::claim(t.buckets, 0, bucket * C::BUCKET + hit.free, false, h.stored, x.v)) {
                source.told(i, ADDED);
                inserted++;
                busy = false;
            }
        }
        if (p.alone) {
            if (full) source.told(i, FULL);
        } else {
            u32 to = append(at<u32>(p.list), full);
            if (full) at<u32>(p.list)[1 + to] = (u32)i;
        }
        x = next;
        h = h1;
        code = code1;
        next = after;
    }
    count_into(&counters(t)->inserted, inserted);
}

// Refinement: a group takes one listed pair after the other. A group that does not get its cell's lock tries again after
// the other groups of its warp had their turn, for one of them may hold it.
template <bool REPLACE, class Source> __device__ __forceinline__ void refine(const insertParams& p, Source source) {
    constexpr int H = MoveTile::LANES;
#if defined(WARPMAP_HOST)
    Workspace<C> own, *space = &own;
    __shared__ Workspace<C> shared[H == 1 ? 1 : WARPMAP_MAX_THREADS / H];
    if (H > 1) space = &shared[thread_index() / H];
#else
    __shared__ Workspace<C> shared[WARPMAP_MAX_THREADS / H];
    Workspace<C>* space = &shared[thread_index() / H];
#endif
    MoveTile g;
    const Table& t = p.table;
    Move<C, MoveTile> move(t, g, *space);
    u64 inserted = 0, moves = 0;
    u64 n = load_relaxed(at<u32>(p.list));
    u64 item = grid_thread() / H;
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    // Lanes alone take a block's share in a row, and ask for the cells of pairs to come, then for the rings that these name.
    constexpr bool LOOKS_ON = H == 1;
    u64 step = grid_threads() / H;
    if constexpr (LOOKS_ON) {
        Stretch own = Stretch::alone(n);
        item = own.start, n = own.n, step = 1;
    }
    auto later = [&](u64 by) { return Home<C>(t, source.load(load_readonly(at<u32>(p.list) + 1 + (item + by < n ? item + by : n - 1))).k); };
#endif
    while (item < n) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
        if constexpr (LOOKS_ON) {
            prefetch_line((u64)cell_at<C>(t, later(8).cell(t)));
            Home<C> next = later(2);
            Ring r = ring_of<C>(t, next.cell(t), next.stretch(t), load_relaxed(cell_at<C>(t, next.cell(t))) >> C::LOG_VIRTUAL);
            for (u32 b = 0; b < C::VIRTUAL; b++) prefetch_to_write(t.buckets + r.bucket(b) * (C::BUCKET * C::SLOT_BYTES));
        }
#endif
        u64 i = load_readonly(at<u32>(p.list) + 1 + item);
        Item x = source.load(i);
        u32* lock = lock_of(t, Home<C>(t, x.k).cell(t));
        if (!try_lock(g, lock)) {
            pause();
            continue;
        }
        u64 before = move.tried;
        // Where many find no place, the table is full, and cells are not displaced in vain for each.
        bool patient = load_relaxed(&counters(t)->refused) < GPH_PATIENCE;
        Outcome o = move.template run<REPLACE>(x.k, x.v, g.shuffle((u32)patient, 0) ? GPH_DISPLACEMENTS : 0);
        unlock(g, lock);
        if (g.rank() == 0) {
            inserted += o == ADDED;
            moves += o == ADDED && move.tried > before;
            source.told(i, o);
        }
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
        item += step;
#else
        item += grid_threads() / H;
#endif
    }
    count_into(&counters(t)->inserted, inserted);
    count_into(&counters(t)->moves, moves);
    count_into(&counters(t)->tried, move.tried);
    count_into(&counters(t)->moved, move.moved);
}

WARPMAP_KERNEL(fill_replace, insertParams) { fill<true>(p, Batch{p}); }
WARPMAP_KERNEL(fill_new, insertParams) { fill<false>(p, Batch{p}); }
WARPMAP_KERNEL(fill_old, insertParams) { fill<false>(p, OldTable{p}); }
WARPMAP_KERNEL(refine_replace, insertParams) { refine<true>(p, Batch{p}); }
WARPMAP_KERNEL(refine_new, insertParams) { refine<false>(p, Batch{p}); }
WARPMAP_KERNEL(refine_old, insertParams) { refine<false>(p, OldTable{p}); }

WARPMAP_KERNEL(export_pairs, slotsParams) {
    FOR_EACH_ITEM(i, p.slots) {
        Slot s = slot_at(p.table, p.first + i);
        bool on = s.live && i < p.slots;
        u64 to = append(&counters(p.table)->exported, on);
        if (!on || to >= p.limit) continue;
        at<key>(p.keys)[to] = s.k;
        if (p.values) at<value>(p.values)[to] = s.load(p.table);
    }
}
