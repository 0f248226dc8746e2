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

// A warp's list of the items that found both buckets full. It has room for all of a warp's items: see listed of layout.go.
struct Listed {
    static constexpr u32 MOST = 32 * DYCUCKOO_LISTED;
    u32 *count, *items;
    __device__ __forceinline__ void begin() {
        __shared__ u32 memory[WARPMAP_MAX_THREADS / 32][1 + MOST];
        tile<32, true> warp;
        count = memory[thread_index() / 32];
        items = count + 1;
        if (warp.rank() == 0) *count = 0;
        warp.sync();
    }
    __device__ __forceinline__ void put(u32 i) { items[add(count, 1u)] = i; }
};

// settled tells what has become of an item.
__device__ __forceinline__ void settled(const insertParams& p, u64 i, Outcome o, value v) {
    if (p.rows.added) at<u8>(p.rows.added)[i] = o == ADDED;
    if (KEEPS && o == ADDED) tell(p, i, v);
    if (o == FULL || p.rows.attempt) settle_bit(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, stays(o));
}

// Moves brings items whose buckets are both full: pairs are moved on for them by one step, see Displace. It counts for a lane.
struct Moves {
    Tally<C> added;
    u32 failed;
    __device__ __forceinline__ Moves() : failed(0) {}
    // one brings an item; all lanes of a tile bring the same.
    template <bool REPLACE> __device__ __forceinline__ void one(const insertParams& p, u32 i) {
        MoveTile g;
        Displace<C, REPLACE> d;
        d.begin(p.table, input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i));
        bool in;
        while (d.round(p.table, g, in)) {}
        if (d.outcome == ADDED) added.count(d.sub);
        // The lane that has brought the pair in tells of it; of one that is not in, the first.
        if (d.outcome == FULL && (in || g.rank() != 0)) return;
        failed += d.outcome == FULL;
        settled(p, i, d.outcome, d.v);
    }
    // all brings those that a warp has listed, all of whose lanes must reach it.
    template <bool REPLACE> __device__ __forceinline__ void all(const insertParams& p, const Listed& listed) {
        tile<32, true> warp;
        warp.sync();
        u32 n = *listed.count;
        for (u32 i = (u32)warp.rank() / MoveTile::LANES; i < n; i += 32 / MoveTile::LANES) one<REPLACE>(p, listed.items[i]);
    }
};

// Insertion by compare-and-swaps. Where both buckets are full, see Moves.
template <bool REPLACE> struct InsertJob {
    typedef Pair Item;
    static constexpr bool LISTS = !ALONE<InsertTile>;
    const insertParams& p;
    Insert<C, REPLACE> s;
    Moves sum;
    Listed listed;

    __device__ __forceinline__ InsertJob(const insertParams& p) : p(p) {
        if constexpr (LISTS) listed.begin();
    }
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
        if (s.outcome != FULL) {
            if (s.outcome == ADDED) sum.added.count(s.sub);
            settled(p, i, s.outcome, s.v);
        } else if constexpr (LISTS) listed.put((u32)i);
        else sum.template one<REPLACE>(p, (u32)i);
    }
    // Pairs are moved on in the end: the loop that inserts needs all registers.
    __device__ __forceinline__ void end() {
        if constexpr (LISTS) sum.template all<REPLACE>(p, listed);
        sum.added.into(counters(p.table)->pairs);
        u64* to[1] = {&counters(p.table)->failed};
        u32 n[1] = {sum.failed};
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

// is_there tells that a key was seen. Where pairs are moved on, one may be missed.
__device__ __forceinline__ bool is_there(const Table& t, key k) {
    Home<C> h(t, k);
    u32 same, there = 0;
    Cells<C>::look(h.bucket(t, h.home), h.stored, same);
    if (!same && !h.reserved) Cells<C>::look(h.bucket(t, h.other), h.stored, there);
    return same | there;
}

// The positions that are still refused: pairs are moved on along longer paths. A tile takes a position of the list. Without one, it takes a word of the
// bitmap.
template <bool REPLACE> __device__ __forceinline__ void refine_batch(const insertParams& p) {
    typedef PathTile<C> Tile;
    Tile g;
    u64 n = p.list ? load_relaxed(at<u32>(p.list)) : (p.rows.n + 31) / 32;
    if (p.list && n > p.limit) n = p.limit;
    if (block_index() * (u64)(block_threads() / Tile::LANES) >= n) return; // most lists are shorter than the grid
    Shifts<C> count;
    u64 placed = 0;
    auto place = [&](u64 i) {
        // Rows whose key is there are among those that are refused, perhaps many of one key: they need no locks.
        if constexpr (KEEPS)
            if (g.shuffle((u32)is_there(p.table, input_key<C>(p.rows.keys, i)), 0)) return;
        LockedInsert<C, REPLACE> s;
        s.begin(p.table, input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i));
        while (s.round(p.table, g, count)) {}
        if (g.rank() != 0 || s.outcome == FULL) return;
        in(p, i, i, s.outcome == ADDED);
        placed += !KEEPS || s.outcome == ADDED; // there, rows whose key is there are not counted
        if (s.outcome == ADDED) count.added(p.table, s.sub);
    };
    u64 full = 0, tile = grid_thread() / Tile::LANES, tiles = grid_threads() / Tile::LANES;
    for (int i = 0; i < C::D; i++) full += load_relaxed(&counters(p.table)->pairs[i]);
    u64 failed = load_relaxed(&counters(p.table)->failed); // last: blocks that end take from it what they add to the pairs
    full += failed;
#if !defined(WARPMAP_HOST)
    full = warp_shuffle(~0u, full, 0); // the lanes of a warp must go one way
    failed = warp_shuffle(~0u, failed, 0);
#endif
    if (!p.list && !failed || p.capacity && full > p.capacity) {} // but all threads of the block meet below
    else if (p.list)
        for (; tile < n; tile += tiles) place(at<u32>(p.list)[1 + tile]);
    else
        for (; tile < n; tile += tiles)
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
