// The bulk operations of a MultiBucket: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "config.h" // struct config: what this table holds
#include "bulk.cuh"
#include "findall.cuh"
#include "grouped.cuh"
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
    __device__ __forceinline__ void ahead(const Item& x) const { prefetch_line(Probe<C>(p.table, x.k).first_address()); }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i) || (p.reserved && !C::marks(x.k))) return false;
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

// Rows in the order of small parts of the table. Those of a key are brought together in shared memory. If they are very many, all tiles first fill windows
// with them; the rest of each key's go in as one. Those with reserved keys are only counted; or only they are inserted.
struct GroupedRows : Grouped<C, WARPCORE_GROUPED_ROWS> {
    static constexpr u32 MANY = WARPCORE_LONG_WINDOWS * C::WINDOW * C::BUCKET;
    u16 row[ROWS];                         // of each value: where it came from
    buckets::Many many[ROWS / MANY + 1];   // longs of them
};

// put_windows is a function of its own: the registers that it wants are others'. It gives how many slots this lane filled, above that how many of them were
// tombstones; and how many values it put in.
__device__ WARPMAP_NOINLINE u128 put_windows(Table t, GroupedRows& shared, u32 groups) {
    for (u32 group = thread_index(); group < groups; group += WARPMAP_MAX_THREADS) {
        u32 i = shared.first[group] & 0xffff, m = shared.first[group] >> 16;
        if (m >= GroupedRows::MANY) shared.many[add(&shared.longs, 1u)] = buckets::Many{group, shared.count[i] + m, m};
    }
    block_sync();
    u32 longs = shared.longs;
    if (longs == 0) return u128{0, 0};
    FindTile g;
    buckets::PutWindows<C, FindTile> s;
    s.inserted = s.reused = s.added = 0;
    auto write = [&](u64 slot, u32 first, u32 from, u32 n) {
        for (u32 j = 0; j < n; j++) store_relaxed(values_at<C>(slot) + first + j, shared.v[from + j]);
    };
    bool busy = false;
    for (u32 seen = 0, at = thread_index() / FindTile::LANES % longs;;) { // all lanes of a warp stay in the loop: they vote together
        bool asks = !busy && seen < longs;
        u32 i = shared.first[shared.many[at].group] & 0xffff;
        bool begins = s.begin(t, g, asks, shared.k[i], &shared.many[at], &shared.count[i]);
        if (asks && !begins) { // no values are left, or no windows
            seen++;
            at = at + 1 < longs ? at + 1 : 0;
        }
        busy = begins || busy;
        if (!g.any_of_all(busy || seen < longs)) break;
        busy = s.round(t, g, busy, write);
    }
    block_sync();
    for (u32 j = thread_index(); j < longs; j += WARPMAP_MAX_THREADS) { // what is left
        const buckets::Many& many = shared.many[j];
        u32 i = shared.first[many.group] & 0xffff;
        shared.first[many.group] = i | (many.end - shared.count[i]) << 16;
    }
    block_sync();
    return u128{(u64)s.reused << 32 | s.inserted, s.added};
}

// All values of one key in shared memory, and the batch that they are of, from row `first` on.
struct PutGroupJob {
    struct Item {
        u32 row, from; // above the key's first row, how many values; which of all is the first
    };
    const groupParams& p;
    GroupedRows& shared;
    u64 first;
    buckets::Put<C, true> s;
    u32 next;
    u64 inserted, reused, added;

    __device__ __forceinline__ PutGroupJob(const groupParams& p, GroupedRows& shared) : p(p), shared(shared), first(0), next(0), inserted(0), reused(0), added(0) {}
    __device__ __forceinline__ Item load(u32 i) { return Item{shared.first[i], shared.count[shared.first[i] & 0xffff]}; }
    template <class W> __device__ __forceinline__ Item shuffled(W warp, const Item& x, int from, u32) const {
        return Item{warp.shuffle(x.row, from), warp.shuffle(x.from, from)};
    }
    __device__ __forceinline__ bool begin(u32, const Item& x) {
        next = x.from;
        s.begin(p.table, shared.k[x.row & 0xffff], x.row >> 16, p.limit);
        return x.row >> 16 != 0;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) {
        bool on = s.round(p.table, g, active);
        inserted += s.claimed;
        reused += s.reused;
        added += s.got;
        for (u32 j = 0; j < s.got; j++) store_relaxed(values_at<C>(s.slot) + s.first + j, shared.v[next + j]);
        next += s.got;
        return on;
    }
    __device__ __forceinline__ void done(u32) {
        for (u32 end = next + s.want; next < end; next++) {
            u64 i = first + shared.row[next];
            settle(p.refused, 0, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, true, &counters(p.table)->failed);
        }
    }
};
WARPMAP_KERNEL_RESIDENT(insert_groups, groupParams, 4) {
    __shared__ GroupedRows shared;
    const auto& r = p.rows;
    auto part_of = region_of(p);
    u64 reserved = 0;
    PutGroupJob job(p, shared);
    for (u64 row = block_index() * GroupedRows::ROWS; row < r.n; row += grid_blocks() * GroupedRows::ROWS) {
        u64 end = piece_begins(r, row + GroupedRows::ROWS, GroupedRows::ROWS, part_of, key{});
        for (u64 from = piece_begins(r, row, GroupedRows::ROWS, part_of, key{}), to; from < end; from = to) {
            to = piece_ends(r, from, end, GroupedRows::ROWS, part_of, key{});
            const key* keys = at<key>(r.keys) + from;
            auto load = [&](u32 i, key& k) {
                k = keys[i];
                if (p.reserved) return C::marks(k);
                reserved += C::marks(k);
                return !C::marks(k);
            };
            u32 groups = shared.bring(p.table, (u32)(to - from), load, [&](u32 i) { return input_value<C>(r.values, from + i); },
                                      [&](u32 place, u32 i, u32) { shared.row[place] = (u16)i; });
            if (p.longs) {
                u128 all = put_windows(p.table, shared, groups);
                job.inserted += (u32)all.lo;
                job.reused += all.lo >> 32;
                job.added += all.hi;
            }
            job.first = from;
            drive_held<InsertTile, u32>(Stretch::of_block(groups), job);
            block_sync();
        }
    }
    count_into(&counters(p.table)->inserted, job.inserted);
    count_into(&counters(p.table)->reused, job.reused);
    count_into(&counters(p.table)->added, job.added);
    count_into(&counters(p.table)->side_failed, reserved);
}

WARPMAP_KERNEL(find, findParams) {
    look_up<S, false, false>(p.table, p.keys, p.n, [&](u64 i, const Hit<S>& hit) {
        if (p.found) at<u8>(p.found)[i] = hit.found;
    });
}

WARPMAP_KERNEL(erase_multi, findParams) { erase_all<S>(p); }

// Copies every slot into another table, or those alone that have room. Windows that are neighbours here are neighbours there: see kernels.cu.
WARPMAP_KERNEL(rehash, slotsParams) {
    InsertTile g;
    u64 inserted = 0, added = 0, failed = 0;
    FOR_EACH_ITEM_IN_ORDER_BY(InsertTile, i, slot_count<S>(p.table), p.span) {
        Slot<S> x = slot_at<S>(p.table, i);
        u32 n = x.live ? Held<S>::count(x.word) : 0;
        bool moves = x.live && !(p.room && n == C::BUCKET);
        Insert<S, Keep, false, true> s;
        s.begin(p.target, x.k, n, ~0ull);
        Skip<S> skip;
        skip.begin();
        for (bool active = moves; g.any_of_all(active);) {
            if (active) skip.ask(p.target, s);
            active = s.round(p.target, g, active);
        }
        if (moves && s.outcome == ADDED) {
            skip.leave(p.target, s.p, s.candidate_probes - 1);
            copy_slot<C>(x.slots + x.index * C::SLOT_BYTES, s.p.slots + s.place * C::SLOT_BYTES);
            inserted++;
            added += n;
        } else failed += moves;
    }
    count_into(&counters(p.target)->inserted, inserted);
    count_into(&counters(p.target)->added, added);
    count_into(&counters(p.target)->failed, failed);
}

// Copies every full slot. Those with room come behind, so that none is in a window that a hint tells of.
WARPMAP_KERNEL_RESIDENT(rehash_groups, slotsParams, 4) {
    __shared__ Grouped<MovedSlots<C>, WARPCORE_MOVED_ROWS> shared;
    u64 full = 0;
    u32 inserted = move_together<S, MovedSlots<C>>(p, shared, [&](const Slot<S>& s) {
        bool moves = s.live && Held<S>::count(s.word) == C::BUCKET;
        full += moves;
        return moves;
    }, [](const Slot<S>& s) { return s.slots + s.index * C::SLOT_BYTES; });
    count_into(&counters(p.target)->inserted, (u64)inserted);
    count_into(&counters(p.target)->added, (u64)inserted * C::BUCKET);
    count_into(&counters(p.target)->failed, full - inserted);
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    Warp warp;
    FOR_EACH_ITEM(i, p.slots) {
        Slot<S> s = slot_at<S>(p.table, p.first + i);
        u32 n = i < p.slots && s.live ? Held<S>::count(s.word) : 0;
        u64 all, before = warp.scan((u64)n, all), first = 0, slot = s.live ? s.slots + s.index * C::SLOT_BYTES : 0;
        if (all && warp.rank() == 0) first = add(&counters(p.table)->exported, all);
        first = warp.shuffle(first, 0) + before;
        deal<value, 2>(warp, n, [&](bool on, int owner, u32 number) {
            u64 from = warp.shuffle(slot, owner);
            return on ? load_relaxed(values_at<C>(from) + number) : value{};
        }, [&](bool on, int owner, u32 number, value v) {
            key k = warp.shuffle(s.k, owner);
            u64 to = warp.shuffle(first, owner) + number;
            if (!on || to >= p.limit) return;
            at<key>(p.keys)[to] = k;
            output_value<C>(p.values, to, v);
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
    static constexpr bool VISITS = true, PLACES = true, HIT = false, WRITES = false;
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
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE && ALONE<FindTile>) {
        auto stash_at = [&](u64 i) { return at<Stash>(rows.stash)[i]; };
        return alone_by_chunks(rows, true, [&](u64 i, u32 n) { if (n > 1) prefetch_line(address_in(stash_at(i)) & ~MORE); },
            [&](u64 i, u32 n, u64 offset) {
                u64 slot = address_in(stash_at(i));
                if (n == 1) at<value>(rows.values)[offset] = (value)stash_at(i);
                else if (!(slot & MORE))
                    for (u32 number = 0; number < n; number++) at<value>(rows.values)[offset + number] = load_relaxed(values_at<C>(slot) + number);
                else {
                    key k = input_key<C>(rows.keys, i);
                    if (n >= WARPCORE_LONG_VALUES && LongChains{p.table, p.longs}.fill(Probe<S>(p.table, k), offset)) return;
                    Fill fill{rows.values, offset, 0};
                    search_each<S, true>(p.table, g, true, k, fill);
                }
            });
    }
#endif
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
                deal<value, 2>(warp, n[j] == 1 || more ? 0 : n[j], [&](bool on, int owner, u32 number) {
                    u64 from = warp.shuffle(slot, owner);
                    return on ? load_relaxed(values_at<C>(from) + number) : value{};
                }, [&](bool on, int owner, u32 number, value v) {
                    u64 to = warp.shuffle(offset, owner) + number;
                    if (on) at<value>(rows.values)[to] = v;
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
