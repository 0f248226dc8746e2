// The bulk operations of a BucketList: one entry point each. An insert is four kernels, in none of which a lane waits for another:
//
//   find_slots    finds or puts each row's key
//   take_places   gives each row the number of its value in the key's list; where the last bucket has room, writes it
//   link_buckets  the row whose number is the first without room links one bucket for all of them
//   write_values  the other rows write their values, or are refused
//
// Large batches are brought in the order of small parts of the table first, and insert_groups does all four for the rows of a part, in one block.
#include "config.h" // struct config: what this table holds
#include "bring.cuh"
#include "bucketlist.cuh"
#include "drive.cuh"
#include "findall.cuh"
#include "layout.h"
#include "partition.cuh"
#include "refused.cuh"
#include "runs.cuh"

using namespace warpcore;

typedef config C;
typedef KeySlots<C> K;
typedef config::key key;
typedef config::value value;
typedef tile<WARPCORE_INSERT_GROUP, true> InsertTile;
typedef tile<WARPCORE_FIND_GROUP, true> FindTile;
typedef tile<32, true> Warp;

// What stands in p.where beside a slot's address: the row links a bucket; or, alone, the row's key is that of the row before, which is in the same
// row of 32.
static constexpr u64 LINKS = 1ull << LIST_LINKS_BIT, SAME = 2;

__device__ __forceinline__ u64 position_of(const listInsertParams& p, u64 i) { return p.rows.positions ? at<u32>(p.rows.positions)[i] : p.first + i; }
__device__ __forceinline__ void refuse(const listInsertParams& p, u64 i) { settle_bit(p.rows.refused, p.rows.attempt, position_of(p, i), true); }
__device__ __forceinline__ void accept(const listInsertParams& p, u64 i) { settle_bit(p.rows.refused, p.rows.attempt, position_of(p, i), false); }

// Of parts with more rows than a block takes insert_groups leaves all. Such an insert of the others may have nothing to do.
__device__ __forceinline__ bool idle(const listInsertParams& p) { return p.starts && !list::counters(p.lists)->left; }
__device__ __forceinline__ bool left_out(const listInsertParams& p, key k) {
    const u64* start = at<u64>(p.starts) + ((Probe<C>(p.lists.keys, k).hash >> 32) * (u32)p.parts >> 32);
    return start[1] - start[0] > LIST_ROWS;
}

// RUNS: rows with one key are beside one another, and the first of a run looks for all.
template <bool RUNS> struct SlotJob {
    static constexpr bool GATHERS = RUNS;
    struct Item {
        key k;
        u32 run; // with RUNS: bits of the row of 32; 0 but for the first
    };
    const listInsertParams& p;
    Insert<K, Look, true, false> s;
    key k;
    u32 run;
    u64 inserted, reused, failed;

    __device__ __forceinline__ SlotJob(const listInsertParams& p) : p(p), k(0), run(0), inserted(0), reused(0), failed(0) {}
    // All rows of a batch in runs are wanted.
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), RUNS}; }
    template <class W> __device__ __forceinline__ Item shuffled(W warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), RUNS ? warp.shuffle(x.run, from) : 0};
    }
    template <class W> __device__ __forceinline__ void gather(W warp, Item& x) {
        u32 lane = (u32)warp.rank();
        Runs runs(warp, x.k, x.run);
        x.run = runs.heads >> lane & 1 ? runs.of(lane) : 0;
    }
    __device__ __forceinline__ void ahead(const Item& x) const { prefetch_line(Probe<K>(p.lists.keys, x.k).first_address()); }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (RUNS && !x.run) {
            at<u64>(p.where)[i] = SAME;
            return false;
        }
        if (!wanted(p.rows.refused, p.rows.attempt, i) || (p.starts && !left_out(p, x.k))) {
            at<u64>(p.where)[i] = 0;
            return false;
        }
        run = x.run;
        k = x.k;
        s.begin(p.lists.keys, k, 0, p.limit);
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) { return s.round(p.lists.keys, g, active); }
    __device__ __forceinline__ void done(u64 i) {
        inserted += s.outcome == ADDED;
        reused += s.outcome == ADDED && s.reused;
        at<u64>(p.where)[i] = s.outcome == FULL ? 0 : s.p.slots + s.place * C::SLOT_BYTES;
        if (s.outcome != FULL) return;
        u32 rows = 1;
        if (RUNS)
            for (rows = (u32)popcount(run); --rows;) refuse(p, i + rows);
        refuse(p, i);
        failed += RUNS ? popcount(run) : 1;
        if (C::marks(k)) add(&counters(p.lists.keys)->side_failed, (u64)1);
    }
};
template <bool RUNS> __device__ __forceinline__ void find_slots_of(const listInsertParams& p) {
    if (idle(p)) return;
    SlotJob<RUNS> job(p);
    drive_held<InsertTile, u64>(p.rows.n, job, p.rows.span);
    count_into(&counters(p.lists.keys)->inserted, job.inserted);
    count_into(&counters(p.lists.keys)->reused, job.reused);
    count_into(&list::counters(p.lists)->failed, job.failed);
    count_into(&list::counters(p.lists)->keys_failed, job.failed);
}
WARPMAP_KERNEL_RESIDENT(find_slots, listInsertParams, 3) { find_slots_of<false>(p); }
WARPMAP_KERNEL_RESIDENT(find_slots_of_runs, listInsertParams, 3) { find_slots_of<true>(p); }

// Lanes with one list share an atomic operation. They are sought one list after the other, as long as lists have several lanes.
__device__ __forceinline__ u32 take(Warp warp, u64 slot) {
    u32 lane = (u32)warp.rank(), peers = slot ? 1u << lane : 0, waiting;
    bool pending = slot;
    for (u32 alone = 0; alone < LIST_ALONE && (waiting = warp.ballot(pending)) != 0;) {
        u64 theirs = warp.shuffle(slot, lowest_bit(waiting));
        u32 same = warp.ballot(pending && slot == theirs);
        if (pending && slot == theirs) {
            peers = same;
            pending = false;
        }
        alone += popcount(same) == 1;
    }
    int leader = lowest_bit(peers | 1u << 31);
    u32 first = 0;
    if (slot && (int)lane == leader) first = ~add(list::left_at<C>(slot), 0u - (u32)popcount(peers));
    return warp.shuffle(first, leader) + (u32)popcount(peers & (1u << lane) - 1);
}

#if defined(WARPMAP_HOST)
// On the CPU device lanes do the same alone, but in stress mode what a GPU does: each(i, where) for rows that have a list. Its slot is asked for first, then what the slot leads to.
template <class Each> struct RowJob {
    typedef u64 Item;
    const listInsertParams& p;
    Each each;
    RowJob(const listInsertParams& p, Each each) : p(p), each(each) {}
    Item load(u64 i) const { return at<u64>(p.where)[i]; }
    void ahead(Item where) const {
        if (where) prefetch_to_write(where & ~LINKS);
    }
    void ahead_again(Item where) const {
        if (!where) return;
        u64 slot = where & ~LINKS, last = load_relaxed(list::last_at<C>(slot));
        if (!list::some(last)) return;
        u64 bucket = list::place_address<C>(p.lists, list::place_of(last));
        // Of a bucket behind others the header says where a value goes.
        prefetch_to_write(list::more(last) ? bucket : bucket + list::count_at<C>(slot) * sizeof(value));
    }
    bool begin(u64 i, Item where) {
        if (where) each(i, where);
        return false;
    }
    bool round(tile<1>, bool) const { return false; }
    void done(u64) const {}
};
template <class Each> inline void for_each_row(const listInsertParams& p, Each each) {
    RowJob<Each> job(p, each);
    drive_held<tile<1>, u64>(p.rows.n, job);
}
#endif

WARPMAP_KERNEL(take_places, listInsertParams) {
    if (idle(p)) return;
#if defined(WARPMAP_HOST)
    if constexpr (ONE_BY_ONE<InsertTile>) {
        u64 added = 0;
        for_each_row(p, [&](u64 i, u64 slot) {
            u32 number = ~add(list::left_at<C>(slot), ~0u);
            list::Tail<C> tail(p.lists, load_relaxed(list::last_at<C>(slot)));
            if (number < tail.room) {
                tail.write(p.lists, number, input_value<C>(p.rows.values, i));
                at<u64>(p.where)[i] = 0;
                accept(p, i);
                added++;
            } else {
                at<u32>(p.ordinals)[i] = number;
                at<u64>(p.where)[i] = number == tail.room ? slot | LINKS : slot;
            }
        });
        count_into(&list::counters(p.lists)->added, added);
        return;
    }
#endif
    Warp warp;
    u64 added = 0;
    FOR_EACH_ITEM_IN_ORDER(i, p.rows.n, p.span) {
        u64 slot = i < p.rows.n ? at<u64>(p.where)[i] : 0;
        bool same = slot == SAME;
        u32 own = warp.ballot(!same);
        if (warp.any(same)) {
            slot = warp.shuffle(slot, highest_bit(own & (2u << warp.rank()) - 1));
            if (same && !slot) at<u64>(p.where)[i] = 0;
        }
        u32 number = take(warp, slot);
        if (slot) {
            list::Tail<C> tail(p.lists, load_relaxed(list::last_at<C>(slot)));
            if (number < tail.room) {
                tail.write(p.lists, number, input_value<C>(p.rows.values, i));
                at<u64>(p.where)[i] = 0;
                accept(p, i);
                added++;
            } else {
                at<u32>(p.ordinals)[i] = number;
                at<u64>(p.where)[i] = slot | (number == tail.room ? LINKS : 0);
            }
        }
    }
    count_into(&list::counters(p.lists)->added, added);
}

// What a list wants: a bucket of the size of that code.
struct Want {
    u32 code;
    u64 places; // with the header
};
__device__ __forceinline__ Want want_of(const listInsertParams& p, u64 slot) {
    list::Tail<C> tail(p.lists, load_relaxed(list::last_at<C>(slot)));
    u32 count = list::count_at<C>(slot);
    if (count > LIST_MOST) count = LIST_MOST;
    if (count <= tail.room) return Want{0, 0};
    u64 rows = count - tail.room, size = p.mode == LIST_GROW ? tail.next(p.lists, count) : rows;
    if (p.most && size > rows * p.most) size = rows * p.most;
    u32 code = list::code_of((u32)size, true);
    return Want{code, (u64)list::decoded(code) + tail.header()};
}

// link gives the list a bucket at `first`; where that does not fit, what there is, or the list stays as it is: then it adds to
// `missing`. It tells whether the list has values; otherwise its key goes, too.
__device__ __forceinline__ bool link(const listInsertParams& p, u64 slot, Want want, u64 first, u64& missing) {
    const Lists& t = p.lists;
    u64 last = load_relaxed(list::last_at<C>(slot));
    list::Tail<C> tail(t, last);
    u32 code = want.code, room = tail.room;
    if (!code) add(&list::counters(t)->overfull, (u64)1);
    else if (p.mode == LIST_FIT && first < t.room && first + want.places > t.room) {
        u64 has = t.room - first;
        code = has > tail.header() ? list::code_of((u32)(has - tail.header()), false) : 0;
        u64 rest = has - (code ? list::decoded(code) + tail.header() : 0);
        if (rest) max_of(&list::counters(t)->unused, rest);
        missing += want.places;
    } else if (!list::fits(t, first, want.places)) {
        missing += want.places;
        code = 0;
    }
    if (code) {
        if (tail.header()) list::write_header<C>(t, first, list::with_state(last, LIST_READY), room);
        room += list::decoded(code);
        store_relaxed(list::last_at<C>(slot), list::bucket(first, code, tail.header()));
    }
    if (list::count_at<C>(slot) > room) store_relaxed(list::left_at<C>(slot), ~room);
    if (room) return true;
    store_relaxed(list::last_at<C>(slot), ~0ull);
    store_relaxed(at<key>(slot), C::TOMBSTONE);
    return false;
}

WARPMAP_KERNEL(link_buckets, listInsertParams) {
    if (idle(p)) return;
#if defined(WARPMAP_HOST)
    if constexpr (ONE_BY_ONE<InsertTile>) {
        u64 mine = 0, gone = 0, missing = 0, first = 0;
        for_each_row(p, [&](u64, u64 where) { mine += where & LINKS ? want_of(p, where & ~LINKS).places : 0; });
        if (mine) first = add(&list::counters(p.lists)->used, mine);
        for_each_row(p, [&](u64, u64 where) {
            if (!(where & LINKS)) return;
            Want want = want_of(p, where & ~LINKS);
            gone += !link(p, where & ~LINKS, want, first, missing);
            first += want.places;
        });
        count_into(&counters(p.lists.keys)->erased, gone);
        count_into(&list::counters(p.lists)->short_, missing);
        return;
    }
#endif
    constexpr int ROWS = LIST_LINK_ROWS;
    __shared__ u64 base;
    u64 slot[ROWS], mine = 0, all, gone = 0, missing = 0;
    Want want[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        u64 i = (block_index() * ROWS + j) * block_threads() + thread_index();
        u64 where = i < p.rows.n ? at<u64>(p.where)[i] : 0;
        slot[j] = where & LINKS ? where & ~LINKS : 0;
        want[j] = slot[j] ? want_of(p, slot[j]) : Want{0, 0};
        mine += want[j].places;
    }
    u64 before = block_scan(mine, all);
    if (thread_index() == 0) base = all ? add(&list::counters(p.lists)->used, all) : 0;
    block_sync();
    u64 first = base + before;
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        if (slot[j]) gone += !link(p, slot[j], want[j], first, missing);
        first += want[j].places;
    }
    count_into(&counters(p.lists.keys)->erased, gone);
    count_into(&list::counters(p.lists)->short_, missing);
}

WARPMAP_KERNEL(write_values, listInsertParams) {
    if (idle(p)) return;
    u64 added = 0, failed = 0;
#if defined(WARPMAP_HOST)
    if constexpr (ONE_BY_ONE<InsertTile>) {
        for_each_row(p, [&](u64 i, u64 where) {
            u32 number = at<u32>(p.ordinals)[i];
            list::Tail<C> tail(p.lists, load_relaxed(list::last_at<C>(where & ~LINKS)));
            if (number < tail.room) {
                tail.write(p.lists, number, input_value<C>(p.rows.values, i));
                accept(p, i);
                added++;
            } else {
                refuse(p, i);
                failed++;
            }
        });
        count_into(&list::counters(p.lists)->added, added);
        count_into(&list::counters(p.lists)->failed, failed);
        return;
    }
#endif
    FOR_EACH_ITEM_IN_ORDER(i, p.rows.n, p.span) {
        u64 slot = i < p.rows.n ? at<u64>(p.where)[i] & ~LINKS : 0;
        if (slot) {
            u32 number = at<u32>(p.ordinals)[i];
            list::Tail<C> tail(p.lists, load_relaxed(list::last_at<C>(slot)));
            if (number < tail.room) {
                tail.write(p.lists, number, input_value<C>(p.rows.values, i));
                accept(p, i);
                added++;
            } else {
                refuse(p, i);
                failed++;
            }
        }
    }
    count_into(&list::counters(p.lists)->added, added);
    count_into(&list::counters(p.lists)->failed, failed);
}

#include "regions.cuh"

__device__ __forceinline__ auto place_of(const partitionParams& p) {
    return [&p](key k, u64 parts) { return (Probe<C>(p.table, k).hash >> 32) * parts >> 32; };
}
WARPMAP_PARTITION_GROUP(partitionParams, key, value, place_of)

// Rows of a part in shared memory.
struct ListRows : Grouped<C, LIST_ROWS> {
    u64 slot[LIST_ROWS]; // of a first row: its list's slot, with FRESH if the list is new, 0 without; then where its key's values would begin that go to one bucket
    u16 own[LIST_ROWS];  // of a value: its key's first row
    u64 base;
    // first, from ROWS on, of a first row: how many of its key's values have room in the list's last bucket, and above TAKE_BITS the code of another's size
};
static constexpr u64 FRESH = 1;
static constexpr u32 TAKE_BITS = 32 - (LIST_PLACE_SHIFT - LIST_SIZE_SHIFT), TAKE = (1u << TAKE_BITS) - 1;
static_assert(LIST_ROWS <= TAKE, "the values of a block have room beside a code");

// Finds or puts each key.
struct GroupJob {
    struct Item {
        u32 row;
    };
    const listGroupParams& p;
    ListRows& shared;
    Insert<K, Look, true, false> s;
    u32 row, inserted, reused, failed;

    __device__ __forceinline__ GroupJob(const listGroupParams& p, ListRows& shared) : p(p), shared(shared), row(0), inserted(0), reused(0), failed(0) {}
    __device__ __forceinline__ Item load(u32 i) { return Item{shared.first[i]}; }
    template <class W> __device__ __forceinline__ Item shuffled(W warp, const Item& x, int from, u32) const { return Item{warp.shuffle(x.row, from)}; }
    __device__ __forceinline__ bool begin(u32, const Item& x) {
        row = x.row;
        s.begin(p.lists.keys, shared.k[row & 0xffff], 0, p.limit);
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) { return s.round(p.lists.keys, g, active); }
    __device__ __forceinline__ void done(u32) {
        bool fresh = s.outcome == ADDED;
        inserted += fresh;
        reused += fresh && s.reused;
        shared.slot[row & 0xffff] = s.outcome == FULL ? 0 : s.p.slots + s.place * C::SLOT_BYTES + (fresh ? FRESH : 0);
        if (s.outcome != FULL) return;
        failed += row >> 16;
        if (C::marks(shared.k[row & 0xffff])) add(&counters(p.lists.keys)->side_failed, (u64)1);
    }
};

// A list that a block has to itself.
struct OwnList {
    u64 slot;
    list::Tail<C> tail;
    u32 count;
    __device__ __forceinline__ OwnList(const Lists& t, u64 x)
        : slot(x & ~FRESH), tail(t, x & FRESH ? ~0ull : load_relaxed(list::last_at<C>(slot))), count(x & FRESH ? 0 : list::count_at<C>(slot)) {}
    __device__ __forceinline__ u32 room(u32 m) const { return tail.room - count < m ? tail.room - count : m; }
};

// group_wants notes what m more values want: those for which the last bucket has no room get one more; a list that would have more than can be gets none.
// It gives how many places that has, with the header.
__device__ __forceinline__ u32 group_wants(const listGroupParams& p, ListRows& shared, u32 row, u32 m) {
    OwnList l(p.lists, shared.slot[row]);
    u32 take = l.room(m), code = 0;
    if (take < m && (u64)l.count + m <= LIST_MOST) code = list::code_of(p.mode == LIST_GROW ? l.tail.next(p.lists, l.count + m) : l.count + m - l.tail.room, true);
    shared.first[ListRows::ROWS + row] = take | code << TAKE_BITS;
    return code ? list::decoded(code) + l.tail.header() : 0;
}

// group_link gives a list its values, with the bucket that it wants at `first`, which then is where the next begins. Those that have room in the last
// bucket are written here. It tells whether there was room for all; if not, the list gets none, and is blocked if it has others.
__device__ __forceinline__ bool group_link(const listGroupParams& p, ListRows& shared, u32 row, u32 m, u64& first, u64& missing) {
    const Lists& t = p.lists;
    OwnList l(t, shared.slot[row]);
    u32 take = shared.first[ListRows::ROWS + row] & TAKE, code = shared.first[ListRows::ROWS + row] >> TAKE_BITS, header = l.tail.header();
    u64 place = first;
    if (take < m) {
        u32 places = code ? list::decoded(code) + header : 0;
        first += places;
        if (!code || !list::fits(t, place, places)) {
            if (code) missing += places;
            else add(&list::counters(t)->overfull, (u64)1);
            if (list::some(l.tail.word)) store_relaxed(list::last_at<C>(l.slot), list::with_state(l.tail.word, LIST_BLOCKED));
            shared.slot[row] = 0;
            return false;
        }
        if (header) list::write_header<C>(t, place, list::with_state(l.tail.word, LIST_READY), l.tail.room);
        store_relaxed(list::last_at<C>(l.slot), list::bucket(place, code, header));
    }
    for (u32 i = 0; i < take; i++) l.tail.write(t, l.count + i, shared.v[shared.count[row] + i]);
    store_relaxed(list::left_at<C>(l.slot), ~(l.count + m));
    shared.slot[row] = list::place_address<C>(t, place + header) - (u64)take * sizeof(value);
    return true;
}

// Inserts rows that come in the order of small parts of the table, so that all rows of a key are one block's: no other looks at its list. A key that
// finds no room gets none of its values: it is not put, or has an empty list, or a blocked one, and refuse_rows tells which rows those are. Rows of
// parts that are too large are left.
WARPMAP_KERNEL_RESIDENT(insert_groups, listGroupParams, 4) {
    __shared__ ListRows shared;
    const auto& r = p.rows;
    const partitionParams by{p.lists.keys, r};
    auto part_of = region_of(by);
    const key* keys = at<key>(r.keys);
    const value* values = at<value>(r.values);
    const u64* starts = at<u64>(r.starts);
    u64 missing = 0;
    u32 added = 0, failed = 0, left = 0, inserted = 0, reused = 0, absent = 0;
    for (u64 row = block_index() * LIST_ROWS; row < r.n; row += grid_blocks() * LIST_ROWS) {
        u64 end = piece_begins(r, row + LIST_ROWS, LIST_ROWS, part_of, key{});
        for (u64 from = piece_begins(r, row, LIST_ROWS, part_of, key{}), to; from < end; from = to) {
            to = piece_ends(r, from, end, LIST_ROWS, part_of, key{});
            // A part that is too large has no more than the first rows of these, or the last.
            u64 low = from, high = to;
            u32 one = part_of(keys[from]), other = part_of(keys[to - 1]);
            if (starts[one + 1] - starts[one] > LIST_ROWS) low = starts[one + 1] < to ? starts[one + 1] : to;
            if (starts[other + 1] - starts[other] > LIST_ROWS) high = starts[other] > low ? starts[other] : low;
            if (thread_index() == 0) left += (u32)(to - from - (high - low));
            if (low == high) continue;

            u32 n = (u32)(high - low);
            u32 groups = shared.bring(p.lists.keys, n, [&](u32 i, key& k) {
                k = keys[low + i];
                return true;
            }, [&](u32 i) { return values[low + i]; }, [&](u32 place, u32, u32 first) { shared.own[place] = (u16)first; });
            {
                GroupJob job(p, shared);
                drive_held<InsertTile, u32>(Stretch::of_block(groups), job);
                inserted += job.inserted;
                reused += job.reused;
                absent += job.failed;
            }
            block_sync();

            u32 each = (groups + WARPMAP_MAX_THREADS - 1) / WARPMAP_MAX_THREADS, first = thread_index() * each, last = first + each < groups ? first + each : groups;
            u64 mine = 0, all;
            for (u32 g = first; g < last; g++) {
                u32 x = shared.first[g];
                if (shared.slot[x & 0xffff]) mine += group_wants(p, shared, x & 0xffff, x >> 16);
            }
            u64 place = block_scan(mine, all);
            if (thread_index() == 0) shared.base = all ? add(&list::counters(p.lists)->used, all) : 0;
            block_sync();
            place += shared.base;
            for (u32 g = first; g < last; g++) {
                u32 x = shared.first[g];
                if (!shared.slot[x & 0xffff]) continue;
                bool in = group_link(p, shared, x & 0xffff, x >> 16, place, missing);
                (in ? added : failed) += x >> 16;
            }
            block_sync();
            for (u32 i = thread_index(); i < n; i += WARPMAP_MAX_THREADS) { // new buckets are beside one another
                u32 row = shared.own[i], number = i - shared.count[row];
                u64 to_first = shared.slot[row];
                if (to_first && number >= (shared.first[ListRows::ROWS + row] & TAKE)) store_relaxed(at<value>(to_first) + number, shared.v[i]);
            }
            block_sync();
        }
    }
    count_into(&counters(p.lists.keys)->inserted, (u64)inserted);
    count_into(&counters(p.lists.keys)->reused, (u64)reused);
    count_into(&list::counters(p.lists)->added, (u64)added);
    count_into(&list::counters(p.lists)->failed, (u64)failed + absent);
    count_into(&list::counters(p.lists)->keys_failed, (u64)absent);
    count_into(&list::counters(p.lists)->short_, missing);
    count_into(&list::counters(p.lists)->left, (u64)left);
}

// Looks up a batch of keys, and calls end(position, slot) for each: slot is 0 where the key is not there.
template <class S, class End> struct LookUpJob {
    struct Item {
        key k;
    };
    const Lists& t;
    u64 keys;
    End end;
    NoVisit none;
    u64 most; // windows that a chain has: no key is inserted beside this kernel
    S s;

    __device__ __forceinline__ LookUpJob(const Lists& t, u64 keys, End end) : t(t), keys(keys), end(end), most(probes_bound(t.keys, ~0ull)) {}
    __device__ __forceinline__ Item load(u64 i) const { return Item{input_key<C>(keys, i)}; }
    template <class W> __device__ __forceinline__ Item shuffled(W warp, const Item& x, int from, u64) const { return Item{warp.shuffle(x.k, from)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { prefetch_line(Probe<K>(t.keys, x.k).first_address()); }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        s.begin(t.keys, x.k, most);
        return true;
    }
    __device__ __forceinline__ bool round(FindTile g, bool active) { return s.round(t.keys, g, active, none); }
    __device__ __forceinline__ void done(u64 i) { end(i, s.hit); }
};
template <class End> __device__ __forceinline__ void look_up(const Lists& t, u64 keys, u64 n, End end) {
    auto slot_of = [&](u64 i, const Hit<K>& hit) { end(i, hit.found ? hit.slots + hit.index * C::SLOT_BYTES : 0, hit.stored); };
    LookUpJob<Search<K, false, true>, decltype(slot_of)> job(t, keys, slot_of);
    drive_held<FindTile, u64>(n, job);
}
// look_up_lists calls end(position, how many values, the word of the last bucket): 0 values where the key is not there. Lanes of a tile that hold a slot
// each have all of it.
template <class End> __device__ __forceinline__ void look_up_lists(const Lists& t, u64 keys, u64 n, End end) {
    if constexpr (C::SLOT_BYTES == 16 && FindTile::LANES > 1) {
        typedef WholeSlots<C> W;
        auto list_of = [&](u64 i, const Hit<W>& hit) { end(i, hit.found ? ~(u32)(hit.word.lo >> 32) : 0, hit.word.hi); };
        LookUpJob<Search<W, false, false>, decltype(list_of)> job(t, keys, list_of);
        drive_held<FindTile, u64>(n, job);
    } else look_up(t, keys, n, [&](u64 i, u64 slot, key) {
        u32 count = slot ? list::count_at<C>(slot) : 0;
        end(i, count, count ? load_relaxed(list::last_at<C>(slot)) : 0);
    });
}

// Behind insert_groups, or block_lists, refuse_rows refuses the rows whose keys found no room, and release_lists makes as they were before the lists that those keys have.
template <class End> __device__ __forceinline__ void of_failed(const listInsertParams& p, End end) {
    if (!list::counters(p.lists)->failed) return;
    look_up(p.lists, p.rows.keys, p.rows.n, [&](u64 i, u64 slot, key stored) {
        bool has = slot && list::count_at<C>(slot) > 0;
        if (has && list::state_of(load_relaxed(list::last_at<C>(slot))) != LIST_BLOCKED) return;
        if (!p.starts || !left_out(p, at<key>(p.rows.keys)[i])) end(i, slot, has, stored);
    });
}
WARPMAP_KERNEL(refuse_rows, listInsertParams) {
    of_failed(p, [&](u64 i, u64, bool, key) { refuse(p, i); });
}
WARPMAP_KERNEL(release_lists, listInsertParams) {
    u64 gone = 0;
    of_failed(p, [&](u64, u64 slot, bool has, key stored) {
        if (has) store_relaxed(list::last_at<C>(slot), list::with_state(load_relaxed(list::last_at<C>(slot)), LIST_READY));
        else if (slot) {
            store_relaxed(list::last_at<C>(slot), ~0ull); // a user's kernel may have found it full
            gone += cas(at<key>(slot), stored, C::TOMBSTONE) == stored;
        }
    });
    count_into(&counters(p.lists.keys)->erased, gone);
}

// Blocks the lists of keys, so that refuse_rows refuses all rows that have them: those that insert_stretch_list left over, for which there may be no room.
WARPMAP_KERNEL(block_lists, listFindParams) {
    look_up(p.lists, p.keys, p.n, [&](u64, u64 slot, key) {
        if (slot && list::count_at<C>(slot) > 0) store_relaxed(list::last_at<C>(slot), list::with_state(load_relaxed(list::last_at<C>(slot)), LIST_BLOCKED));
    });
}

WARPMAP_KERNEL(find, listFindParams) {
    look_up(p.lists, p.keys, p.n, [&](u64 i, u64 slot, key) {
        if (p.found) at<u8>(p.found)[i] = slot && list::count_at<C>(slot) > 0;
    });
}

WARPMAP_KERNEL(count_absent, listFindParams) {
    u64 absent = 0;
    look_up(p.lists, p.keys, p.n, [&](u64, u64 slot, key) { absent += !slot; });
    count_into(&list::counters(p.lists)->absent, absent);
}

// Removes keys, each by one lane, which counts what the list's buckets were.
WARPMAP_KERNEL(erase, listFindParams) {
    u64 keys = 0, values = 0, places = 0;
    look_up(p.lists, p.keys, p.n, [&](u64 i, u64 slot, key stored) {
        u32 count = 0;
        if (slot && cas(at<key>(slot), stored, C::TOMBSTONE) == stored) {
            count = list::count_at<C>(slot);
            u64 b = load_relaxed(list::last_at<C>(slot));
            while (list::some(b)) {
                places += list::size_of(b) + (list::more(b) ? C::HEADER : 0);
                b = list::more(b) ? list::previous<C>(p.lists, b) : ~0ull;
            }
            store_relaxed(list::left_at<C>(slot), ~0u);
            store_relaxed(list::last_at<C>(slot), ~0ull);
            keys++;
        }
        values += count;
        if (p.found) at<u8>(p.found)[i] = count > 0;
    });
    count_into(&counters(p.lists.keys)->erased, keys);
    count_into(&list::counters(p.lists)->removed, values);
    count_into(&list::counters(p.lists)->garbage, places);
}

// FindAll (kernel/findall.cuh): to count the values puts aside each list's last bucket, so that to fill reads no slot again. A warp
// takes a chunk of keys; the values of long lists are copied by fill_long.
WARPMAP_KERNEL(count_all, listAllParams) {
    const auto& r = p.rows;
    bool any_long = false;
    look_up_lists(p.lists, r.keys, r.n, [&](u64 i, u32 n, u64 last) {
        at<u32>(r.counts)[i] = n;
        if (!r.stash) return;
        at<u64>(r.stash)[i] = n ? last : 0;
        any_long |= n > LIST_LONG;
    });
    if (any_long) store_relaxed(&list::counters(p.lists)->long_, (u64)1);
}

WARPMAP_KERNEL(sum_chunks, listAllParams) { sum_chunks(p.rows); }
WARPMAP_KERNEL(scan_totals, listAllParams) { scan_totals(p.rows); }

WARPMAP_KERNEL(fill_all, listAllParams) {
    const auto& rows = p.rows;
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE) {
        auto last_of = [&](u64 i) { return at<u64>(rows.stash)[i]; };
        return alone_by_chunks(rows, true, [&](u64 i, u32) { prefetch_line(list::place_address<C>(p.lists, list::place_of(last_of(i)))); },
            [&](u64 i, u32 n, u64 offset) {
                if (n > LIST_LONG) return;
                list::Cursor<C> c(last_of(i), list::start_of<C>(p.lists, last_of(i)));
                for (u32 number = n; number--;) at<value>(rows.values)[offset + number] = load_relaxed(c.value_at(p.lists, number));
            });
    }
#endif
    constexpr int ROWS = 4; // of a lane, whose only values are asked for at once, where none of 32 rows has several
    Warp warp;
    FOR_EACH_CHUNK(c, rows.chunks) {
        u64 before = at<u64>(rows.totals)[c];
        for (u64 r = 0; r < rows.chunk; r += 32 * ROWS) {
            u32 n[ROWS];
            u64 last[ROWS];
            value only[ROWS];
            bool alone[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                u64 i = c * rows.chunk + r + 32 * j + warp.rank();
                bool on = i < rows.n && r + 32 * j < rows.chunk;
                n[j] = on ? at<u32>(rows.counts)[i] : 0;
                last[j] = on ? at<u64>(rows.stash)[i] : 0;
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                alone[j] = !warp.any(n[j] > 1 || (n[j] && list::more(last[j])));
                only[j] = alone[j] && n[j] ? load_relaxed(at<value>(list::place_address<C>(p.lists, list::place_of(last[j])))) : value{};
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (r + 32 * j >= rows.chunk) break;
                u64 i = c * rows.chunk + r + 32 * j + warp.rank();
                u64 all, offset = before + warp.scan((u64)n[j], all);
                before += all;
                if (i < rows.n) at<u64>(rows.offsets)[i] = offset;
                if (alone[j]) {
                    if (n[j]) at<value>(rows.values)[offset] = only[j];
                    continue;
                }
                list::each_value<C>(p.lists, warp, last[j], n[j] > LIST_LONG ? 0 : n[j], [&](bool on, int owner, u32 number, value v) {
                    u64 to = warp.shuffle(offset, owner) + number;
                    if (on) at<value>(rows.values)[to] = v;
                });
            }
        }
    }
}

// The key whose values have that place in the output.
__device__ __forceinline__ u64 owner_of(const listAllParams& p, u64 place) {
    const u64* offsets = at<u64>(p.rows.offsets);
    u64 low = 0, high = p.rows.n; // offsets[low] <= place < offsets[high]
    while (low + 1 < high) {
        u64 mid = low + (high - low) / 2;
        if (offsets[mid] <= place) low = mid;
        else high = mid;
    }
    return low;
}
// A warp takes a stretch of the output. A long list that has a part in it has its first place, or its last.
WARPMAP_KERNEL(fill_long, listAllParams) {
    const auto& rows = p.rows;
    Warp warp;
    const u64* offsets = at<u64>(rows.offsets);
    u64 total = offsets[rows.n];
    FOR_EACH_CHUNK(c, (total + LIST_LONG - 1) / LIST_LONG) {
        u64 from = c * LIST_LONG, to = from + LIST_LONG < total ? from + LIST_LONG : total;
        u64 first = owner_of(p, from), last = owner_of(p, to - 1);
        for (u64 i = first;; i = last) {
            u64 begin = offsets[i], low = begin > from ? begin : from, high = offsets[i + 1] < to ? offsets[i + 1] : to;
            if (at<u32>(rows.counts)[i] > LIST_LONG)
                list::copy<C>(p.lists, warp, at<u64>(rows.stash)[i], low - begin, high - begin, at<value>(rows.values) + low);
            if (i == last) break;
        }
    }
}

// Every slot of both regions: an item is a slot, those of the side region last. Gives its address, 0 without a list, and the key as
// users know it.
struct Place {
    u64 slot, index;
    u32 count;
    key k;
};
__device__ __forceinline__ u64 slot_count(const Table& t) { return (t.main.windows + t.side.windows) * C::WINDOW; }
__device__ __forceinline__ Place place_at(const Table& t, u64 i) {
    Place s{0, 0, 0, 0};
    u64 main = t.main.windows * C::WINDOW;
    if (i >= slot_count(t)) return s;
    s.index = i < main ? i : i - main;
    u64 slot = (i < main ? t.main.slots : t.side.slots) + s.index * C::SLOT_BYTES;
    key k = load_relaxed(at<key>(slot));
    if (C::marks(k)) return s;
    s.count = list::count_at<C>(slot);
    if (!s.count) return s; // a key whose first value found no room
    s.slot = slot;
    s.k = C::real(k, i >= main);
    return s;
}

// Copies every key with its list into another, larger table.
WARPMAP_KERNEL(rehash, slotsParams) {
    InsertTile g;
    u64 inserted = 0, failed = 0;
    FOR_EACH_ITEM_IN_ORDER(i, slot_count(p.table), p.span) {
        Place x = place_at(p.table, i);
        Insert<K, Keep, false, true> s;
        s.begin(p.target, x.k, 0, ~0ull);
        bool active = x.slot;
        while (g.any_of_all(active)) active = s.round(p.target, g, active);
        if (x.slot && s.outcome == ADDED) {
            u64 to = s.p.slots + s.place * C::SLOT_BYTES;
            store_relaxed(list::left_at<C>(to), ~x.count);
            store_relaxed(list::last_at<C>(to), load_relaxed(list::last_at<C>(x.slot)));
            inserted++;
        } else failed += x.slot != 0;
    }
    count_into(&counters(p.target)->inserted, inserted);
    count_into(&counters(p.target)->failed, failed);
}

// Lays all lists anew, in another pool, each in one bucket of its size; but the values of the longest are copied by pack_long. Lists that the pool does not
// hold lose their values, which count as removed: the host sees to it that there are none. Without a pool it counts the places alone.
WARPMAP_KERNEL(pack, listSlotsParams) {
    Warp warp;
    Lists to = p.lists;
    to.pool = p.pool;
    to.room = p.limit;
    FOR_EACH_ITEM(i, slot_count(p.lists.keys)) {
        Place x = place_at(p.lists.keys, i);
        u64 last = x.slot ? load_relaxed(list::last_at<C>(x.slot)) : ~0ull, all, first = 0;
        u32 code = list::code_of(x.count, true);
        u64 before = warp.scan((u64)list::decoded(code), all);
        if (all && warp.rank() == 0) first = add(&list::counters(p.lists)->packed, all);
        if (!p.pool) continue;
        first = warp.shuffle(first, 0);
        u32 lost = 0;
        if (all && warp.rank() == 0) lost = !list::fits(to, first, all);
        if (warp.shuffle(lost, 0)) {
            if (x.slot) {
                store_relaxed(list::left_at<C>(x.slot), ~0u);
                store_relaxed(list::last_at<C>(x.slot), ~0ull);
                add(&list::counters(p.lists)->removed, (u64)x.count);
            }
            continue;
        }
        first += before;
        bool longer = x.count > LIST_PACK_LONG;
        if (longer) at<longEntry>(p.long_)[add(at<u64>(p.long_count), (u64)1)] = longEntry{last, first, x.count};
        if (x.slot) store_relaxed(list::last_at<C>(x.slot), list::bucket(first, code, false));
        list::each_value<C>(p.lists, warp, last, longer ? 0 : x.count, [&](bool on, int owner, u32 number, value v) {
            u64 place = warp.shuffle(first, owner) + number;
            if (on) store_relaxed(at<value>(list::place_address<C>(to, place)), v);
        });
    }
}
WARPMAP_KERNEL(pack_long, listSlotsParams) {
    Warp warp;
    Lists to = p.lists;
    to.pool = p.pool;
    for (u64 e = 0; e < *at<u64>(p.long_count); e++) {
        longEntry x = at<longEntry>(p.long_)[e];
        FOR_EACH_CHUNK(c, (x.count + LIST_PACK_LONG - 1) / LIST_PACK_LONG) {
            u64 from = c * LIST_PACK_LONG, end = from + LIST_PACK_LONG < x.count ? from + LIST_PACK_LONG : x.count;
            list::copy<C>(p.lists, warp, x.last, from, end, at<value>(list::place_address<C>(to, x.place + from)));
        }
    }
}

WARPMAP_KERNEL(export_keys, listSlotsParams) {
    FOR_EACH_ITEM(i, slot_count(p.lists.keys)) {
        Place x = place_at(p.lists.keys, i);
        u64 to = append(&list::counters(p.lists)->exported, x.slot != 0);
        if (x.slot && to < p.limit) at<key>(p.keys)[to] = x.k;
    }
}

// The pairs of some slots. A warp copies the values of its lanes' lists, one list after the other.
WARPMAP_KERNEL(export_pairs, listSlotsParams) {
    Warp warp;
    FOR_EACH_ITEM(i, p.slots) {
        Place x = place_at(p.lists.keys, p.first + i);
        u32 n = i < p.slots ? x.count : 0;
        u64 last = n ? load_relaxed(list::last_at<C>(x.slot)) : ~0ull, all, before = warp.scan((u64)n, all), first = 0;
        if (all && warp.rank() == 0) first = add(&list::counters(p.lists)->exported, all);
        first = warp.shuffle(first, 0) + before;
        list::each_value<C>(p.lists, warp, last, n, [&](bool on, int owner, u32 number, value v) {
            key k = warp.shuffle(x.k, owner);
            u64 to = warp.shuffle(first, owner) + number;
            if (!on || to >= p.limit) return;
            at<key>(p.keys)[to] = k;
            at<value>(p.values)[to] = v;
        });
    }
}

// How many windows a look-up reads to come to a key, counted for each of its values.
WARPMAP_KERNEL(probe_lengths, listSlotsParams) {
    FOR_EACH_ITEM(i, slot_count(p.lists.keys)) {
        Place x = place_at(p.lists.keys, i);
        if (!x.slot) continue;
        Probe<C> q(p.lists.keys, x.k);
        u64 n = 1;
        for (; n < q.windows && q.window != x.index / C::WINDOW; n++) q.advance(n);
        add(at<u64>(p.histogram) + (n < WARPCORE_HISTOGRAM_BINS ? n - 1 : WARPCORE_HISTOGRAM_BINS - 1), (u64)x.count);
        add(at<u64>(p.histogram) + WARPCORE_HISTOGRAM_BINS, n * x.count);
    }
}
