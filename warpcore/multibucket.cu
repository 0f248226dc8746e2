// The bulk operations of a MultiBucket: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "config.h" // struct config: what this table holds
#include "bulk.cuh"
#include "findall.cuh"
#include "layout.h"
#include "multibucket.cuh"
#include "refused.cuh"

using namespace warpcore;

typedef config C;
typedef BucketSlots<C> S;
typedef config::key key;
typedef config::value value;
typedef tile<32, true> Warp;

// One pair of the batch: it asks for the place of one value.
struct PutJob {
    struct Item {
        key k;
        value v;
    };
    const insertParams& p;
    buckets::Put<C, true> s;
    key k;
    value v;
    u64 inserted, reused, added;

    __device__ __forceinline__ PutJob(const insertParams& p) : p(p), k(0), v{}, inserted(0), reused(0), added(0) {}
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i)}; }
    template <class W> __device__ __forceinline__ Item shuffled(W warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        k = x.k;
        v = x.v;
        s.begin(p.table, k, 1, p.limit);
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) {
        bool on = s.round(p.table, g, active);
        inserted += s.claimed;
        reused += s.reused;
        added += s.got;
        if (s.got) store_relaxed(values_at<C>(s.slot) + s.first, v);
        return on;
    }
    __device__ __forceinline__ void done(u64 i) {
        bool full = s.want > 0;
        u64 position = p.rows.positions ? at<u32>(p.rows.positions)[i] : i;
        if (p.rows.refused) settle(p.rows.refused, p.rows.attempt, position, full, &counters(p.table)->failed);
        if (full && C::marks(k)) add(&counters(p.table)->side_failed, (u64)1);
    }
};
WARPMAP_KERNEL_RESIDENT(insert_multi, insertParams, 3) {
    PutJob job(p);
    drive_held<InsertTile, u64>(p.rows.n, job, p.rows.span);
    count_into(&counters(p.table)->inserted, job.inserted);
    count_into(&counters(p.table)->reused, job.reused);
    count_into(&counters(p.table)->added, job.added);
}

#include "regions.cuh"

WARPMAP_KERNEL(find, findParams) {
    look_up<S, false, false>(p.table, p.keys, p.n, [&](u64 i, const Hit<S>& hit) {
        if (p.found) at<u8>(p.found)[i] = hit.found;
    });
}

WARPMAP_KERNEL(erase_multi, findParams) { erase_all<S>(p); }

// Copies every slot into another table. Windows that are neighbours here are neighbours there: see kernels.cu. The hints that it leaves must go
// behind it: they do not ask whether a key has room.
WARPMAP_KERNEL(rehash, slotsParams) {
    constexpr int WORD = 2 * C::KEY_BYTES;
    InsertTile g;
    u64 inserted = 0, added = 0, failed = 0;
    FOR_EACH_ITEM_IN_ORDER(i, slot_count<S>(p.table), p.span) {
        Slot<S> x = slot_at<S>(p.table, i);
        u32 n = x.live ? Held<S>::count(x.word) : 0;
        Insert<S, Keep, false, true> s;
        s.begin(p.target, x.k, n, ~0ull);
        Skip<S> skip;
        skip.begin();
        for (bool active = x.live; g.any_of_all(active);) {
            if (active) skip.ask(p.target, s);
            active = s.round(p.target, g, active);
        }
        if (x.live && s.outcome == ADDED) {
            skip.leave(p.target, s.p, s.candidate_probes - 1);
            u64 from = x.slots + x.index * C::SLOT_BYTES, to = s.p.slots + s.place * C::SLOT_BYTES;
            for (int b = C::KEY_BYTES; b < WORD; b += 4) store_relaxed(at<u32>(to + b), load_relaxed(at<u32>(from + b)));
            for (int b = WORD; b < C::SLOT_BYTES; b += 8) store_relaxed(at<u64>(to + b), load_relaxed(at<u64>(from + b)));
            inserted++;
            added += n;
        } else failed += x.live;
    }
    count_into(&counters(p.target)->inserted, inserted);
    count_into(&counters(p.target)->added, added);
    count_into(&counters(p.target)->failed, failed);
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    Warp warp;
    FOR_EACH_ITEM(i, p.slots) {
        Slot<S> s = slot_at<S>(p.table, p.first + i);
        u32 n = i < p.slots && s.live ? Held<S>::count(s.word) : 0;
        u64 all, before = warp.scan((u64)n, all), first = 0, slot = s.live ? s.slots + s.index * C::SLOT_BYTES : 0;
        if (all && warp.rank() == 0) first = add(&counters(p.table)->exported, all);
        first = warp.shuffle(first, 0) + before;
        deal(warp, n, [&](bool on, int owner, u32 number) {
            key k = warp.shuffle(s.k, owner);
            u64 to = warp.shuffle(first, owner) + number, from = warp.shuffle(slot, owner);
            if (!on || to >= p.limit) return;
            at<key>(p.keys)[to] = k;
            output_value<C>(p.values, to, load_relaxed(values_at<C>(from) + number));
        });
    }
}

WARPMAP_KERNEL(probe_lengths, slotsParams) { probe_lengths<S>(p); }
WARPMAP_KERNEL(distinct, slotsParams) { distinct_keys<S>(p); }

// FindAll (kernel/findall.cuh): to count the values puts aside a key's only value; or of several the address of its first slot, and whether there
// are others in other slots: only then is the table searched again to fill. A warp takes a chunk of keys.
typedef bits_of<C::STASH_BYTES>::type Stash;
static constexpr u64 MORE = 1; // no bit of an address of a slot

__device__ __forceinline__ u64 stash_of(u64 address, u64) { return address; }
__device__ __forceinline__ u128 stash_of(u64 address, u128) { return u128{address, 0}; }
__device__ __forceinline__ u64 address_in(u64 stash) { return stash; }
__device__ __forceinline__ u64 address_in(u128 stash) { return stash.lo; }

WARPMAP_KERNEL(count_all, findAllParams) {
    const auto& r = p.rows;
    auto end = [&](u64 i, const Hit<S>& hit) {
        at<u32>(r.counts)[i] = hit.count;
        if (!r.stash || !hit.found) return;
        u64 slot = hit.slots + hit.index * C::SLOT_BYTES;
        if (hit.count > Held<S>::count(hit.word)) slot |= MORE;
        at<Stash>(r.stash)[i] = hit.count == 1 ? (Stash)load_relaxed(values_at<C>(slot)) : stash_of(slot, Stash());
    };
    look_up<S, true, true>(p.table, r.keys, r.n, end, 0, NoVisit{}, &p.longs);
}

WARPMAP_KERNEL(sum_chunks, findAllParams) { sum_chunks(p.rows); }
WARPMAP_KERNEL(scan_totals, findAllParams) { scan_totals(p.rows); }

struct Fill {
    static constexpr bool VISITS = true, PLACES = true;
    u64 values, offset; // of this lane's key
    u64 to;             // of the key whose turn it is
    template <class Tile> __device__ __forceinline__ void turn(Tile g, int rank) { to = g.shuffle(offset, rank); }
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64, u64 index, W w, u32 number) {
        value* out = at<value>(values) + to + number;
        Held<S>::each(slots, 0, index, w, [&](value v) { *out++ = v; });
    }
};
WARPMAP_KERNEL(fill_all, findAllParams) {
    const auto& rows = p.rows;
    constexpr int ROWS = 4; // loaded at once
    FindTile g;
    Warp warp;
    FOR_EACH_CHUNK(c, rows.chunks) {
        u64 before = at<u64>(rows.totals)[c];
        for (u64 r = c * rows.chunk + warp.rank(), end = (c + 1) * rows.chunk; r < end; r += 32 * ROWS) {
            u32 n[ROWS];
            Stash stash[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                u64 i = r + 32 * j;
                bool on = i < rows.n && i < end;
                n[j] = on ? at<u32>(rows.counts)[i] : 0;
                stash[j] = on ? at<Stash>(rows.stash)[i] : Stash{};
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                u64 i = r + 32 * j, all, offset = before + warp.scan((u64)n[j], all);
                before += all;
                if (i < rows.n && i < end) at<u64>(rows.offsets)[i] = offset;
                if (n[j] == 1) at<value>(rows.values)[offset] = (value)stash[j];
                if (!warp.any(n[j] > 1)) continue;
                u64 slot = address_in(stash[j]);
                bool more = n[j] > 1 && (slot & MORE);
                deal(warp, n[j] == 1 || more ? 0 : n[j], [&](bool on, int owner, u32 number) {
                    u64 to = warp.shuffle(offset, owner) + number, from = warp.shuffle(slot, owner);
                    if (on) at<value>(rows.values)[to] = load_relaxed(values_at<C>(from) + number);
                });
                if (!warp.any(more)) continue;
                key k = more ? input_key<C>(rows.keys, i) : 0;
                if (more && n[j] >= WARPCORE_LONG_VALUES && LongChains{p.table, p.longs}.fill(Probe<S>(p.table, k), offset)) more = false;
                Fill fill{rows.values, offset, 0};
                search_each<S, true>(p.table, g, more, k, fill);
            }
        }
    }
}

typedef S Slots;
#include "long_kernels.cuh"
