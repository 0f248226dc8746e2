// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "dycuckoo.cuh"
#include "layout.h"
#include "partition.cuh"
#include "refused.cuh"

using namespace dycuckoo;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef bits_of<DYCUCKOO_FILTER_BITS / 8>::type filter; // of a bucket
// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<DYCUCKOO_INSERT_GROUP, true> InsertTile;
typedef tile<DYCUCKOO_FIND_GROUP, true> FindTile;
typedef tile<1, true> Alone;
constexpr u32 LIST_HEAD = DYCUCKOO_LIST_HEAD;

// One pair of a batch.
struct Pair {
    key k;
    value v;
};

// A block's list of the items that found both buckets full, which it adds to p.list in the end, at once.
struct Listed {
    static constexpr u32 MOST = DYCUCKOO_BLOCK_LIST;
    static __device__ __forceinline__ void to_all(const insertParams& p, u32 i) {
        u32 place = add(at<u32>(p.list), 1u);
        if (place < p.limit) at<u32>(p.list)[LIST_HEAD + place] = i;
        else or_of(at<u32>(p.list) + 2, 1u); // too many: see refine
    }
#if defined(WARPMAP_HOST)
    __device__ __forceinline__ void begin() {}
    __device__ __forceinline__ void put(const insertParams& p, u32 i) { to_all(p, i); }
    __device__ __forceinline__ void flush(const insertParams&) {}
#else
    u32 *count, *items;
    __device__ __forceinline__ void begin() {
        __shared__ u32 memory[1 + MOST];
        count = memory;
        items = memory + 1;
        if (thread_index() == 0) *count = 0;
        block_sync();
    }
    __device__ __forceinline__ void put(const insertParams& p, u32 i) {
        u32 place = add(count, 1u);
        if (place < MOST) items[place] = i;
        else to_all(p, i);
    }
    __device__ __forceinline__ void flush(const insertParams& p) {
        __shared__ u32 first;
        block_sync();
        u32 n = *count < MOST ? *count : MOST;
        if (thread_index() == 0 && n) {
            first = add(at<u32>(p.list), n);
            if (first + n > p.limit) or_of(at<u32>(p.list) + 2, 1u);
        }
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads())
            if (first + i < p.limit) at<u32>(p.list)[LIST_HEAD + first + i] = items[i];
    }
#endif
};

// Insertion by compare-and-swaps. Items whose buckets are both full are listed.
template <bool REPLACE> struct InsertJob {
    typedef Pair Item;
    const insertParams& p;
    Insert<C, REPLACE> s;
    Tally<C> added;
    Listed listed;
    u32 failed;

    __device__ __forceinline__ InsertJob(const insertParams& p) : p(p), failed(0) { listed.begin(); }
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i)}; }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        s.begin(p.table, x.k, x.v, p.choose);
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) { return s.round(p.table, g, active); }
    __device__ __forceinline__ void done(u64 i) {
        if (s.outcome == ADDED) added.count(s.sub);
        if (p.rows.added) at<u8>(p.rows.added)[i] = s.outcome == ADDED;
        bool full = s.outcome == FULL;
        if (full) listed.put(p, (u32)i);
        failed += full;
        if (full || p.rows.attempt) settle_bit(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, full);
    }
    __device__ __forceinline__ void end() {
        listed.flush(p);
        added.into(counters(p.table)->pairs);
        u64* to[1] = {&counters(p.table)->failed};
        u32 n[1] = {failed};
        block_count(to, n);
    }
};

// Insertion under locks.
template <bool REPLACE> struct LockedJob {
    typedef Pair Item;
    const insertParams& p;
    LockedInsert<C, REPLACE> s;
    Shifts<C> count;

    __device__ __forceinline__ LockedJob(const insertParams& p) : p(p) {}
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i)}; }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        s.begin(p.table, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(Alone g, bool active) { return active && s.round(p.table, g, count); }
    __device__ __forceinline__ void done(u64 i) {
        if (s.outcome == ADDED) count.added(p.table, s.sub);
        if (p.rows.added) at<u8>(p.rows.added)[i] = s.outcome == ADDED;
        settle(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, s.outcome == FULL, &counters(p.table)->failed);
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    if constexpr (C::LOCKED) {
        LockedJob<REPLACE> job(p);
        drive_held<Alone, u32>(p.rows.n, job, p.rows.span);
        job.count.into(counters(p.table));
    } else {
        InsertJob<REPLACE> job(p);
        drive_held<InsertTile, u32>(p.rows.n, job, p.rows.span);
        job.end();
    }
}

WARPMAP_KERNEL_RESIDENT(insert, insertParams, 4) { insert_batch<true>(p); }
WARPMAP_KERNEL_RESIDENT(insert_new, insertParams, 4) { insert_batch<false>(p); }

// in marks a row that has found room since it was refused.
__device__ __forceinline__ void in(const insertParams& p, u64 row, u64 position, bool added) {
    if (p.rows.refused) and_of(at<u32>(p.rows.refused) + position / 32, ~(1u << (position & 31)));
    if (p.rows.added) at<u8>(p.rows.added)[row] = added;
}

// The items that were listed: pairs are moved on for them, by one step. A tile takes an item. The positions of those that find no room so are
// listed for refine.
template <bool REPLACE> __device__ __forceinline__ void move_batch(const insertParams& p) {
    if constexpr (!C::LOCKED) {
        typedef MoveTile Tile;
        Tile g;
        u32 n = load_relaxed(at<u32>(p.list)), placed = 0;
        if (n > p.limit) n = (u32)p.limit;
        if (block_index() * (u64)(block_threads() / Tile::LANES) >= n) return; // most lists are shorter than the grid
        Tally<C> added;
        for (u64 i = grid_thread() / Tile::LANES; i < n; i += grid_threads() / Tile::LANES) {
            u32 row = load_readonly(at<u32>(p.list) + LIST_HEAD + i);
            u64 position = p.rows.positions ? at<u32>(p.rows.positions)[row] : row;
            Displace<C, REPLACE> s;
            s.begin(p.table, input_key<C>(p.rows.keys, row), input_value<C>(p.rows.values, row));
            bool is_in;
            while (s.round(p.table, g, is_in)) {}
            if (s.outcome == ADDED) added.count(s.sub);
            if (s.outcome != FULL) {
                in(p, row, position, s.outcome == ADDED);
                placed++;
            }
            if (is_in || g.rank() != 0) continue;
            u32 place = add(at<u32>(p.list) + 1, 1u);
            if (place < p.limit) at<u32>(p.list)[LIST_HEAD + p.limit + place] = (u32)position;
            else or_of(at<u32>(p.list) + 2, 1u);
        }
        count_into(&counters(p.table)->failed, 0 - (u64)placed);
        added.into(counters(p.table)->pairs);
    }
}
WARPMAP_KERNEL_RESIDENT(move, insertParams, 4) { move_batch<true>(p); }
WARPMAP_KERNEL_RESIDENT(move_new, insertParams, 4) { move_batch<false>(p); }

// The positions that are still refused: pairs are moved on along longer paths. A tile takes a position. If there were too many for the
// lists, it takes a word of the bitmap.
template <bool REPLACE> __device__ __forceinline__ void refine_batch(const insertParams& p) {
    typedef PathTile<C> Tile;
    Tile g;
    u64 n = load_relaxed(at<u32>(p.list) + 1);
    bool all = load_relaxed(at<u32>(p.list) + 2);
    if (!all && block_index() * (u64)(block_threads() / Tile::LANES) >= n) return; // most lists are shorter than the grid
    Shifts<C> count;
    u64 placed = 0;
    auto place = [&](u64 i) {
        LockedInsert<C, REPLACE> s;
        s.begin(p.table, input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i));
        while (s.round(p.table, g, count)) {}
        if (g.rank() != 0 || s.outcome == FULL) return;
        in(p, i, i, s.outcome == ADDED);
        placed++;
        if (s.outcome == ADDED) count.added(p.table, s.sub);
    };
    u64 full = 0, tile = grid_thread() / Tile::LANES, tiles = grid_threads() / Tile::LANES;
    for (int i = 0; i < C::D; i++) full += load_relaxed(&counters(p.table)->pairs[i]);
    full += load_relaxed(&counters(p.table)->failed); // last: blocks that end take from it what they add to the pairs
#if !defined(WARPMAP_HOST)
    full = warp_shuffle(~0u, full, 0); // the lanes of a warp must go one way
#endif
    if (n > p.limit) n = p.limit;
    if (p.capacity && full > p.capacity) {}
    else if (!all)
        for (; tile < n; tile += tiles) place(at<u32>(p.list)[LIST_HEAD + p.limit + tile]);
    else
        for (; tile < (p.rows.n + 31) / 32; tile += tiles)
            for (u32 left = g.shuffle(load_relaxed(at<u32>(p.rows.refused) + tile), 0); left; left &= left - 1) place(tile * 32 + lowest_bit(left));
    count.into(counters(p.table));
    count_into(&counters(p.table)->failed, 0 - placed);
}
WARPMAP_KERNEL(refine, insertParams) { refine_batch<true>(p); }
WARPMAP_KERNEL(refine_new, insertParams) { refine_batch<false>(p); }

// Brings pairs in the order of the stretches that their buckets lie in: regions are so many stretches in a row, or one.
__device__ __forceinline__ auto region_of(const partitionParams& p) {
    return [&p](key k) { return (Home<C>(p.table, k).hi & (u32)p.mask) >> (u32)p.shift; };
}
WARPMAP_KERNEL(partition_count, partitionParams) { partition_count<key>(p.rows, region_of(p)); }
WARPMAP_KERNEL(partition_scan, partitionParams) { partition_scan(p.rows); }
WARPMAP_KERNEL_RESIDENT(partition_scatter, partitionParams, 4) { partition_scatter<key, value, u32>(p.rows, region_of(p)); }
WARPMAP_KERNEL(partition_within_count, partitionParams) { partition_within_count<key>(p.rows, region_of(p)); }
WARPMAP_KERNEL_RESIDENT(partition_within_scatter, partitionParams, 4) { partition_within_scatter<key, value>(p.rows, region_of(p)); }

// Looks up a batch of keys, and calls end(position, search) for each. PLACE: end needs to know the pair's slot.
template <bool PLACE, class End> struct LookUpJob {
    struct Item {
        key k;
    };
    const Table& t;
    u64 keys;
    End end;
    Search<C, PLACE> s;

    __device__ __forceinline__ LookUpJob(const Table& t, u64 keys, End end) : t(t), keys(keys), end(end) {}
    __device__ __forceinline__ Item load(u64 i) const { return Item{input_key<C>(keys, i)}; }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from)};
    }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        s.begin(t, x.k);
        return true;
    }
    __device__ __forceinline__ bool round(FindTile g, bool active) { return s.round(t, g, active); }
    __device__ __forceinline__ void done(u64 i) { end(i, s); }
};
template <bool PLACE, class End> __device__ __forceinline__ void look_up(const Table& t, u64 keys, u64 n, End end) {
    LookUpJob<PLACE, End> job(t, keys, end);
    drive_held<FindTile, u32>(n, job);
}

WARPMAP_KERNEL(find, findParams) {
    look_up<false>(p.table, p.keys, p.n, [&](u64 i, const Search<C, false>& s) {
        if (p.values) at<value>(p.values)[i] = s.found ? s.value() : value{};
        if (p.found) at<u8>(p.found)[i] = s.found;
    });
}

// Refuses the positions whose keys are not in the table, if the inserts before it have counted any that found no room.
WARPMAP_KERNEL(refuse_absent, insertParams) {
    if (!load_relaxed(&counters(p.table)->failed)) return;
    look_up<false>(p.table, p.rows.keys, p.rows.n, [&](u64 i, const Search<C, false>& s) {
        if (!s.found) or_of(at<u32>(p.rows.refused) + i / 32, 1u << (i & 31));
    });
}

WARPMAP_KERNEL(erase, findParams) {
    Tally<C> erased;
    u32 away = 0;
    look_up<true>(p.table, p.keys, p.n, [&](u64 i, const Search<C, true>& s) {
        bool removed = false;
        if (s.found) {
            Bucket b = s.bucket(p.table);
            removed = Cells<C>::remove(b, s.slot, s.h.stored, !s.room);
            if (removed) erased.count(s.h.reserved ? 0 : b.sub);
            away += removed && s.away;
        }
        if (p.found) at<u8>(p.found)[i] = removed;
    });
    erased.into<true>(counters(p.table)->pairs);
    u64* to[1] = {&counters(p.table)->away};
    u32 n[1] = {away};
    block_count(to, n);
}

// Operations of all kinds beside one another, each under the locks of its key's buckets.
WARPMAP_KERNEL(mixed, mixedParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        if (!wanted(p.refused, p.attempt, i)) continue;
        if (p.clock && !p.attempt) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        key k = input_key<C>(p.keys, i);
        value result{};
        Outcome o = FULL;
        u8 op = load_readonly(at<u8>(p.ops) + i);
        if (op == DYCUCKOO_FIND) o = find<C>(p.table, k, result) ? PRESENT : ABSENT;
        else if (op == DYCUCKOO_INSERT) o = insert<C>(p.table, k, input_value<C>(p.values, i));
        else if (op == DYCUCKOO_INSERT_NEW) o = insert_new<C>(p.table, k, input_value<C>(p.values, i));
        else if (op == DYCUCKOO_DELETE) o = erase<C>(p.table, k) ? PRESENT : ABSENT;
        else o = ABSENT; // the host has refused it
        if (p.clock && o != FULL) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
        if (p.results && (o != FULL || p.attempt >= DYCUCKOO_LAST_ATTEMPT)) at<value>(p.results)[i] = result;
        if (p.status) at<u8>(p.status)[i] = (u8)o;
        settle(p.refused, p.attempt, i, o == FULL, &counters(p.table)->failed);
    }
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table)) {
        if (i >= slot_count<C>(p.table)) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        u64 to = add(&counters(p.table)->exported, (u64)1);
        if (to >= p.limit) continue;
        at<key>(p.keys)[to] = s.k;
        if (p.values) at<value>(p.values)[to] = s.load();
    }
}

// How many buckets a look-up reads to come to each pair.
WARPMAP_KERNEL(probe_lengths, slotsParams) {
    u64 home = 0, away = 0;
    FOR_EACH_ITEM(i, slot_count<C>(p.table)) {
        if (i >= slot_count<C>(p.table)) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        bool there = !s.side && Home<C>(p.table, s.k).home != s.b.sub;
        away += there;
        home += !there;
    }
    count_into(at<u64>(p.histogram), home);
    count_into(at<u64>(p.histogram) + 1, away);
    count_into(at<u64>(p.histogram) + DYCUCKOO_HISTOGRAM_BINS, home + 2 * away);
}

// Sets the filters anew, which begin clear.
WARPMAP_KERNEL(refresh_filters, slotsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table) - side_slots<C>()) {
        if (i >= slot_count<C>(p.table) - side_slots<C>()) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        Home<C> h(p.table, s.k);
        if (h.home != s.b.sub) h.goes_away(p.table);
    }
}

// After refresh_filters for another Tilt: the buckets that keys have gone away from have no slots that never were taken.
WARPMAP_KERNEL(close_buckets, slotsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table) - side_slots<C>()) {
        if (i >= slot_count<C>(p.table) - side_slots<C>()) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live && load_relaxed(at<filter>(p.table.sub[s.b.sub].filter) + s.b.number)) Cells<C>::set_free(s.b, s.slot, true);
    }
}

// Upsizing (§4.4): a pair of bucket b goes to bucket b, or to b + the old number of buckets, of the new array, to the slot of the same
// number. No two buckets meet, so there are no locks. An item is a slot, or in layout Wide a bucket. The new array may begin where the old
// one does.
template <class C> __device__ __forceinline__ void split_items(const slotsParams& p) {
    typedef typename C::key key;
    u64 n = p.from.buckets;
    u32 sub = (u32)p.number;
    constexpr u64 ITEMS = C::PACKED ? C::SLOTS : 1;
    for (u64 i = grid_thread(); i < n * ITEMS; i += grid_threads()) {
        u64 words = n * DYCUCKOO_FILTER_BITS / 32;
        if (i < words) {
            u32 bits = load_readonly(at<u32>(p.from.filter) + i);
            at<u32>(p.to.filter)[i] = bits;
            at<u32>(p.to.filter)[i + words] = bits;
        }
        if constexpr (C::PACKED) {
            typedef Access<C> A;
            // Where no key has gone away, free slots are as good as never taken.
            bool freed = load_readonly(at<filter>(p.from.filter) + i / C::SLOTS);
            typename A::word w = load_relaxed(A::word_at(p.from.slots, i)), free = A::free_word(w, freed);
            key k = A::key_of(w);
            bool taken = !C::marks(k), up = taken && Home<C>(p.table, k).number(sub, 2 * n) >= n;
            typename A::word low = taken && !up ? w : free;
            if (p.to.slots != p.from.slots || low != w) store_relaxed(A::word_at(p.to.slots, i), low);
            store_relaxed(A::word_at(p.to.slots, i + n * C::SLOTS), up ? w : free);
        } else {
            Slot<C> s = slot_of<C>(p.from, sub, i * C::SLOTS);
            u32 full = load_relaxed(Cells<C>::mask(s.b)), low = 0;
            Bucket to[2] = {slot_of<C>(p.to, sub, i * C::SLOTS).b, slot_of<C>(p.to, sub, (i + n) * C::SLOTS).b};
            for (u32 j = 0; j < C::SLOTS; j++) {
                if (!(full >> j & 1)) continue;
                key k = load_relaxed(Cells<C>::key_at(s.b, j));
                bool up = Home<C>(p.table, k).number(sub, 2 * n) >= n;
                low |= (u32)!up << j;
                store_relaxed(Cells<C>::key_at(to[up], j), k);
                store_relaxed(Cells<C>::value_place(to[up], j), Cells<C>::value_at(s.b, j));
            }
            store_relaxed(Cells<C>::mask(to[0]), low);
            store_relaxed(Cells<C>::mask(to[1]), full & ~low);
        }
    }
}
WARPMAP_KERNEL(split, slotsParams) { split_items<C>(p); }

// The filter of a subtable that is to be halved.
WARPMAP_KERNEL(merge_filters, slotsParams) {
    u64 words = p.to.buckets * DYCUCKOO_FILTER_BITS / 32;
    for (u64 i = grid_thread(); i < words; i += grid_threads())
        at<u32>(p.to.filter)[i] = load_readonly(at<u32>(p.from.filter) + i) | load_readonly(at<u32>(p.from.filter) + i + words);
}

// send_away puts a residual into the one of its subtables that is not sub, moving pairs on where it must, but none to sub.
__device__ __forceinline__ bool send_away(const Table& t, const Home<C>& h, u32 sub, value v, Shifts<C>& count) {
    Bucket there = h.bucket(t, h.away(sub));
    bool waited = false;
    for (u32 tries = 0; tries < DYCUCKOO_MAX_TRIES;) {
        Locks lock(t, there, there);
        if (!lock.take(waited)) {
            pause();
            waited = true;
            continue;
        }
        u32 same, room = ~Cells<C>::look(there, h.stored, same) & Cells<C>::ALL;
        if (room) {
            if (there.sub == h.other) h.goes_away(t);
            Cells<C>::put(there, lowest_bit(room), h.stored, v);
        }
        lock.release();
        if (room) {
            count.added(t, there.sub);
            return true;
        }
        if (!make_room<C>(t, tile<1>(), there, fmix32(h.lo + ++tries), DYCUCKOO_MAX_PATH, sub, count)) return false;
    }
    return false;
}

// send_another sends one of the pairs of a full bucket away instead, and puts k in its slot. Where that is one of few subtables, all pairs of
// a residual's other bucket may well have come from here, and none can be moved on.
__device__ __forceinline__ bool send_another(const Table& t, const Bucket& b, key k, value v, Shifts<C>& count) {
    for (u32 s = 0; s < C::SLOTS; s++) {
        key x;
        Cells<C>::taken(b, s, x);
        if (!send_away(t, Home<C>(t, x), b.sub, Cells<C>::value_at(b, s), count)) continue;
        Cells<C>::put(b, s, k, v);
        return true;
    }
    return false;
}

// Downsizing: the pairs of buckets b and b + the new number of buckets go to bucket b. Those that it has no room for, the residuals,
// go to their other subtables. What finds no room there is counted. The table has the new array.
WARPMAP_KERNEL(halve, slotsParams) {
    u64 n = p.to.buckets, residuals = 0, gone = 0;
    u32 sub = (u32)p.number;
    Shifts<C> count;
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        Bucket to = slot_of<C>(p.to, sub, i * C::SLOTS).b;
        u32 filled = 0;
        for (u32 half = 0; half < 2; half++) {
            Bucket from = slot_of<C>(p.from, sub, (i + half * n) * C::SLOTS).b;
            for (u32 j = 0; j < C::SLOTS; j++) {
                key k;
                if (!Cells<C>::taken(from, j, k)) continue;
                value v = Cells<C>::value_at(from, j);
                if (filled < C::SLOTS) {
                    Cells<C>::put(to, filled++, k, v);
                    continue;
                }
                residuals++;
                if (send_away(p.table, Home<C>(p.table, k), sub, v, count) || send_another(p.table, to, k, v, count)) gone++;
                else add(&counters(p.table)->left, (u64)1);
            }
        }
        if (load_relaxed(at<filter>(p.to.filter) + i))
            while (filled < C::SLOTS) Cells<C>::set_free(to, filled++, true);
    }
    count.into(counters(p.table));
    count_into(&counters(p.table)->residual, residuals);
    count_into(&counters(p.table)->pairs[sub], 0 - gone);
}

// Takes back what halve has put into other subtables: the array that was halved stays.
WARPMAP_KERNEL(unhalve, slotsParams) {
    u64 n = p.from.buckets * C::SLOTS;
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        Slot<C> s = slot_of<C>(p.from, (u32)p.number, i);
        if (!s.live) continue;
        Home<C> h(p.table, s.k);
        Bucket there = h.bucket(p.table, h.away((u32)p.number));
        u32 same;
        Cells<C>::look(there, s.k, same);
        if (!same || !Cells<C>::remove(there, lowest_bit(same), s.k)) continue;
        add(&counters(p.table)->pairs[there.sub], ~(u64)0);
        add(&counters(p.table)->pairs[p.number], (u64)1);
    }
}
