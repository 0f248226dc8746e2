// Rows of a multimap that has a slot for each. Those of a key are brought together in shared memory, as many rows at a time as fit there, and inserted
// by a tile; if they are many, or the key's chain is long, by all tiles that have nothing else to do.
#pragma once
#include "bring.cuh"
#include "bulk.cuh"
#include "layout.h"

namespace warpcore {

// insert_long inserts the values of the keys that are left to all tiles, and gives how many slots this lane filled, and above that how many of them were
// tombstones. It and make_hint are functions of their own, which take copies, because the registers that they want are others'.
template <class C, class Shared> __device__ WARPMAP_NOINLINE u64 insert_long(Table t, Shared& shared) {
    constexpr u32 PIECE = WARPCORE_PIECE_WINDOWS * C::WINDOW;
    typedef typename C::key key;
    FindTile g;
    InsertGroup<C, FindTile, true> s;
    s.added = s.reused = 0;
    u32 longs = shared.longs;
    bool busy = false;
    for (u32 seen = 0, at = thread_index() / FindTile::LANES % longs;;) { // all lanes of a warp stay in the loop: they vote together
        bool asks = !busy && seen < longs;
        u32 key_row = asks ? shared.first[Shared::ROWS + at] : 0, i = key_row & 0xffff, end = key_row >> 16, from = 0;
        if (asks && g.rank() == 0) from = add(&shared.count[i], PIECE);
        from = g.shuffle(from, 0);
        bool begins = asks && from < end;
        if (asks && !begins) { // others have taken all of them
            seen++;
            at = at + 1 < longs ? at + 1 : 0;
        }
        s.begin(t, g, begins, begins ? shared.k[i] : key{}, from, begins && end - from > PIECE ? PIECE : end - from);
        busy = busy || begins;
        if (!g.any_of_all(busy || seen < longs)) break;
        busy = s.round(t, g, busy, shared.v);
    }
    block_sync();
    return (u64)s.reused << 32 | s.added;
}
template <class C> __device__ WARPMAP_NOINLINE u64 make_hint(Table t, typename C::key k) { return hint_of<true>(t, Probe<C>(t, k)); }

// insert_together inserts n rows: see Grouped::bring. Only with LONG keys are left to all tiles: that makes it slower for others.
template <class C, bool LONG, class Shared, class Load, class Value>
__device__ __forceinline__ void insert_together(const Table& t, Shared& shared, u32 n, u32& added, u32& reused, Load load, Value value_of) {
    constexpr u32 TILES = WARPMAP_MAX_THREADS / FindTile::LANES, MANY = WARPCORE_LONG_WINDOWS * C::WINDOW;
    typedef typename C::key key;
    FindTile g;
    u32 groups = shared.bring(t, n, load, value_of, [](u32, u32, u32) {});
    InsertGroup<C, FindTile, false> s;
    s.added = s.reused = 0;
    auto longer = [&](u32 i, u32 from, u32 end) { // leaves a key that has a hint to all tiles
        if (!make_hint<C>(t, shared.k[i])) return false;
        if (g.rank() == 0) {
            if (shared.count[i] != from) shared.count[i] = from; // others of the tile may just read it
            shared.first[Shared::ROWS + add(&shared.longs, 1u)] = i | end << 16;
        }
        return true;
    };
    bool busy = false;
    for (u32 group = thread_index() / FindTile::LANES;;) {
        bool begins = !busy && group < groups;
        u32 i = 0, from = 0, m = 0;
        if (begins) {
            i = shared.first[group] & 0xffff;
            m = shared.first[group] >> 16;
            from = shared.count[i];
            group += TILES;
            if (LONG && m >= MANY && longer(i, from, from + m)) begins = false;
        }
        s.begin(t, g, begins, begins ? shared.k[i] : key{}, from, m);
        busy = busy || begins;
        if (!g.any_of_all(busy || group < groups)) break;
        busy = s.round(t, g, busy, shared.v);
        if (LONG && busy && s.probes == WARPCORE_LONG_WINDOWS && longer(shared.first[group - TILES] & 0xffff, s.next, s.end)) busy = false;
    }
    block_sync();
    added += s.added;
    reused += s.reused;

    if (LONG && shared.longs) {
        u64 both = insert_long<C>(t, shared);
        added += (u32)both;
        reused += (u32)(both >> 32);
    }
}

// move_together copies slots of one table into another, larger one, a stretch at a time: those that moves(slot) tells, of which value_of(slot) is what
// To has in a slot. It gives how many this lane copied. Those of a key with very many lie everywhere.
template <class From, class To, class Shared, class Moves, class Value>
__device__ __forceinline__ u32 move_together(const slotsParams& p, Shared& shared, Moves moves, Value value_of) {
    u32 added = 0, reused = 0;
    for (u64 first = block_index() * Shared::ROWS, slots = slot_count<From>(p.table); first < slots; first += grid_blocks() * Shared::ROWS) {
        u32 n = (u32)(slots - first < Shared::ROWS ? slots - first : Shared::ROWS);
        auto load = [&](u32 i, typename From::key& k) {
            Slot<From> s = slot_at<From>(p.table, first + i);
            k = s.k;
            return moves(s);
        };
        insert_together<To, true>(p.target, shared, n, added, reused, load, [&](u32 i) { return value_of(slot_at<From>(p.table, first + i)); });
    }
    return added;
}

} // namespace warpcore
