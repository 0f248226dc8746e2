// What the kernels over batches share: the program's table type, its rows, and what becomes of each.
#pragma once
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "dycuckoo.cuh"
#include "layout.h"
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
// Those that insert under locks: see Options.Coordination.
using LockTile = tile<C::VOTER ? 32 : 1, true>;
constexpr u32 LIST_HEAD = DYCUCKOO_LIST_HEAD;

// One pair of a batch.
struct Pair {
    key k;
    value v;
};

// In the program of updates (DYCUCKOO_KEEPS) rows whose key is there stay among the refused: see update.go. FindOrInsert wants the value that went in.
constexpr bool KEEPS = DYCUCKOO_KEEPS;
__device__ __forceinline__ bool stays(Outcome o) { return o == FULL || (KEEPS && o == PRESENT); }
__device__ __forceinline__ void tell(const insertParams& p, u64 i, value v) {
    if (p.rows.out) at<value>(p.rows.out)[i] = v;
}

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
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    typedef Insert<C, REPLACE> Held;
    __device__ __forceinline__ void hold(Held& h) const {
        h = s;
        ask_bucket<true>(s.address, SLOTS_BYTES<C>);
    }
    __device__ __forceinline__ void resume(const Held& h) { s = h; }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        s.begin(p.table, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) { return s.round(p.table, g, active); }
    __device__ __forceinline__ void done(u64 i) {
        if (s.outcome == ADDED) added.count(s.sub);
        if (p.rows.added) at<u8>(p.rows.added)[i] = s.outcome == ADDED;
        if (KEEPS && s.outcome == ADDED) tell(p, i, s.v);
        bool full = s.outcome == FULL;
        if (full) listed.put(p, (u32)i);
        failed += full;
        if (full || p.rows.attempt) settle_bit(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, stays(s.outcome));
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
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        s.begin(p.table, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(LockTile g, bool active) {
        if constexpr (C::VOTER) return s.vote(p.table, g, active, count);
        else return active && s.round(p.table, g, count);
    }
    __device__ __forceinline__ void done(u64 i) {
        if (s.outcome == ADDED) count.added(p.table, s.sub);
        if (p.rows.added) at<u8>(p.rows.added)[i] = s.outcome == ADDED;
        if (KEEPS && s.outcome == ADDED) tell(p, i, s.v);
        settle(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, stays(s.outcome), &counters(p.table)->failed);
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    if constexpr (C::LOCKED) {
        LockedJob<REPLACE> job(p);
        drive_held<LockTile, u32>(p.rows.n, job, p.rows.span);
        job.count.into(counters(p.table));
    } else {
        InsertJob<REPLACE> job(p);
        drive_held<InsertTile, u32>(p.rows.n, job, p.rows.span);
        job.end();
    }
}

// in marks a row that has found room since it was refused.
__device__ __forceinline__ void in(const insertParams& p, u64 row, u64 position, bool added) {
    if (p.rows.refused && !(KEEPS && !added)) and_of(at<u32>(p.rows.refused) + position / 32, ~(1u << (position & 31)));
    if (p.rows.added) at<u8>(p.rows.added)[row] = added;
    if (KEEPS && added) tell(p, row, input_value<C>(p.rows.values, row));
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
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, PLACE>(t, x.k); }
    typedef Search<C, PLACE> Held;
    __device__ __forceinline__ void hold(Held& h) const {
        h = s;
        ask_bucket<PLACE>(s.bucket(t).slots, SLOTS_BYTES<C>);
    }
    __device__ __forceinline__ void resume(const Held& h) { s = h; }
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

// What a look-up tells.
struct Answer {
    const findParams& p;
    __device__ __forceinline__ void operator()(u64 i, const Search<C, false>& s) const {
        if (p.values) at<value>(p.values)[i] = s.found ? s.value() : value{};
        if (p.found) at<u8>(p.found)[i] = s.found;
    }
};
