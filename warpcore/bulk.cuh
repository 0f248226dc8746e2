// What the bulk operations of several programs do alike: see kernels.cu and multibucket.cu. C says what a slot is, and key and value what the
// columns of a batch hold.
#pragma once
#include "drive.cuh"
#include "findall.cuh"
#include "layout.h"
#include "long.cuh"
#include "warpcore.cuh"

namespace warpcore {

// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<WARPCORE_INSERT_GROUP, true> InsertTile;
typedef tile<WARPCORE_FIND_GROUP, true> FindTile;

// In the program of batches with a condition (WARPCORE_CHOOSES) an item says whether it is to be done; in the other that is known.
__device__ __forceinline__ bool chosen(u64 when, u64 i) { return !WARPCORE_CHOOSES || at<u8>(when)[i]; }
template <class Warp> __device__ __forceinline__ bool chosen_of(Warp warp, bool on, int from) { return !WARPCORE_CHOOSES || warp.shuffle((u32)on, from); }

// Looks up a batch of keys, and calls end(position, hit) for each, that is not chosen too. PLACE: end needs to know the pair's slot. With ALL, keys
// that have more than `least` values, and long chains, get counts for settle_long.
template <class C, bool ALL, bool PLACE, class End, class Visit> struct LookUpJob {
    typedef typename C::key key;
    struct Item {
        key k;
        bool on;
    };
    static constexpr u32 PATIENCE = ALL ? 8 : 1; // chains are long
    const Table& t;
    u64 keys, when;
    End end;
    Visit visit;
    const longParams* longs;
    u64 least;
    u64 most; // windows that a chain has: nothing is inserted beside this kernel
    Search<C, ALL, PLACE || !C::PACKED> s;

    __device__ __forceinline__ LookUpJob(const Table& t, u64 keys, u64 when, End end, Visit visit, const longParams* longs, u64 least)
        : t(t), keys(keys), when(when), end(end), visit(visit), longs(longs), least(least), most(probes_bound(t, ~0ull)) {}
    __device__ __forceinline__ Item load(u64 i) const { return Item{input_key<C>(keys, i), chosen(when, i)}; }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), chosen_of(warp, x.on, from)};
    }
    __device__ __forceinline__ void ahead(const Item& x) const { prefetch_line(Probe<C>(t, x.k).first_address()); }
    struct Held {
        Search<C, ALL, PLACE || !C::PACKED> s;
        Visit visit;
    };
    __device__ __forceinline__ void hold(Held& h) const {
        h.s = s;
        h.visit = visit;
        prefetch_line(s.p.window_address());
    }
    __device__ __forceinline__ void resume(const Held& h) {
        s = h.s;
        visit = h.visit;
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        s.begin(t, x.k, most);
        visit.begin(i);
        if (WARPCORE_CHOOSES && !x.on) end(i, s.hit);
        return !WARPCORE_CHOOSES || x.on;
    }
    __device__ __forceinline__ bool round(FindTile g, bool active) {
        u32 before = s.hit.count;
        bool on = s.round(t, g, active, visit);
        if constexpr (ALL) {
            s.hit.count = count_on(before, s.hit.count);
            if (on && far(s) && longs->keys && s.hit.count > least) {
                u64 number = LongChains{t, *longs}.ask(s.p, 0);
                if (number != ~0ull) {
                    s.hit.count = LongChains::mark(number);
                    return false;
                }
            }
        }
        return on;
    }
    __device__ __forceinline__ void done(u64 i) {
        end(i, s.hit);
        if constexpr (KEEPS_FIRST<Visit>) visit.end(i);
    }
};
template <class C, bool ALL, bool PLACE, class End, class Visit = NoVisit>
__device__ __forceinline__ void look_up(const Table& t, u64 keys, u64 n, End end, u64 when = 0, Visit visit = Visit{}, const longParams* longs = nullptr, u64 least = 1, u64 span = 0) {
    LookUpJob<C, ALL, PLACE, End, Visit> job(t, keys, when, end, visit, longs, least);
    drive_held<FindTile, u64>(n, job, span);
}

// Removes all pairs of each key.
template <class C> struct Erase {
    static constexpr bool VISITS = true, PLACES = true, HIT = false, WRITES = false;
    const Table& t;
    u32 erased; // by this lane, for the keys of its tile: a bit each
    u64 slots, pairs;
    int owner;
    __device__ __forceinline__ Erase(const Table& t) : t(t), erased(0), slots(0), pairs(0), owner(0) {}
    __device__ __forceinline__ void begin() { erased = 0; }
    template <class Tile> __device__ __forceinline__ void turn(Tile, int rank) { owner = rank; }
    template <class W> __device__ __forceinline__ void operator()(u64 in, u64, u64 index, W w, u32) {
        bool removed = Access<C>::remove(in, index, w, Access<C>::key_of(w));
        erased |= (u32)removed << owner;
        slots += removed;
        pairs += removed ? Held<C>::count(w) : 0;
    }
    __device__ __forceinline__ void count() const {
        count_into(&counters(t)->erased, slots);
        if constexpr (Held<C>::SEVERAL) count_into(&counters(t)->removed, pairs);
    }
};
template <class C> __device__ __forceinline__ void erase_all(const findParams& p) {
    FindTile g;
    LongChains longs{p.table, p.longs};
    Erase<C> e(p.table);
    FOR_EACH_ITEM_BY(FindTile, i, p.n) {
        bool own = i < p.n, left = false;
        Search<C, true, true> s;
        s.begin(p.table, own ? input_key<C>(p.keys, i) : 0);
        e.begin();
        for (bool active = own; g.any_of_all(active);) {
            active = s.round(p.table, g, active, e);
            if (active && far(s) && longs.ask(s.p, i) != ~0ull) {
                left = true;
                active = false;
            }
        }
        if (own && !left && s.probes >= WARPCORE_HINT_FROM) { // the chain begins anew
            u64 h = hint_of<false>(p.table, s.p);
            if (h) store_relaxed(&at<hint>(h)->left, ~0ull);
        }
        u32 mine = 0;
        for (int j = 0; j < FindTile::LANES; j++) {
            bool removed = g.any(e.erased >> j & 1);
            if (g.rank() == j) mine = removed;
        }
        if (p.found && own) at<u8>(p.found)[i] = mine;
    }
    e.count();
}

// How many windows a look-up reads to come to the slot; with FIRST_ONLY, 0 if the slot's key stands before it.
template <bool FIRST_ONLY, class C> __device__ __forceinline__ u64 probes_to(const Table& t, const Slot<C>& s) {
    static_assert(C::NEAR <= WARPCORE_LONG_WINDOWS, "then chains have left their neighbourhood");
    Probe<C> q(t, s.k);
    for (u64 probes = 1; probes <= q.longest(); probes++) {
        if (!FIRST_ONLY && probes > WARPCORE_LONG_WINDOWS) {
            if constexpr (C::NEAR == 1) return 1 + q.number_of(s.index / C::WINDOW);
            else return probes + q.advances_to(s.index / C::WINDOW);
        }
        for (u32 slot = 0; slot < C::WINDOW; slot++) {
            u64 index = q.slot_index(slot);
            if (index == s.index) return probes;
            if (FIRST_ONLY && Access<C>::key_of(load_relaxed(Access<C>::word_at(q.slots, index))) == q.stored) return 0;
        }
        q.advance(probes);
    }
    return 0;
}

template <class C> __device__ __forceinline__ void probe_lengths(const slotsParams& p) {
    FOR_EACH_ITEM_BY(tile<1>, i, slot_count<C>(p.table)) {
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        u64 n = probes_to<false>(p.table, s), pairs = Held<C>::count(s.word);
        if (n == 0) continue; // no look-up comes to it: see Check
        add(at<u64>(p.histogram) + (n < WARPCORE_HISTOGRAM_BINS ? n - 1 : WARPCORE_HISTOGRAM_BINS - 1), pairs);
        add(at<u64>(p.histogram) + WARPCORE_HISTOGRAM_BINS, n * pairs);
    }
}

// Each key once.
template <class C> __device__ __forceinline__ void distinct_keys(const slotsParams& p) {
    FOR_EACH_ITEM_BY(tile<1>, i, slot_count<C>(p.table)) {
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        if (!probes_to<true>(p.table, s)) continue;
        u64 to = add(&counters(p.table)->exported, (u64)1);
        if (to < p.limit) at<typename C::key>(p.keys)[to] = s.k;
    }
}

} // namespace warpcore
