// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane. A program has those of one kind of
// tables: maps (WARPCORE_MAP), multimaps (WARPCORE_MULTI) or sets (WARPCORE_SET).
#include "config.h" // struct config: what this table holds
#include "bulk.cuh"
#include "findall.cuh"
#include "layout.h"
#include "refused.cuh"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef tile<32, true> Warp;

template <class MEETS, bool MULTI> struct InsertJob {
    // One pair of the batch.
    struct Item {
        key k;
        value v;
        bool on;
    };
    const insertParams& p;
    Insert<C, MEETS, true, MULTI> s;
    Skip<C> skip; // MULTI: a key has one slot otherwise
    key k;
    u64 inserted, reused;

    __device__ __forceinline__ InsertJob(const insertParams& p) : p(p), k{}, inserted(0), reused(0) {}
    // A later attempt is at those that were refused, all of them chosen: it does not ask again, for their flags may stand where the condition did.
    __device__ __forceinline__ Item load(u64 i) {
        return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i), p.rows.attempt || chosen(p.when, i)};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        bool on = chosen_of(warp, x.on, from);
        if constexpr (C::VALUE_BYTES == 0) return Item{warp.shuffle(x.k, from), value{}, on};
        else return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from), on};
    }
    __device__ __forceinline__ void ahead(const Item& x) const { prefetch_to_write(Probe<C>(p.table, x.k).first_address()); }
    struct Held {
        Insert<C, MEETS, true, MULTI> s;
        Skip<C> skip;
        key k;
    };
    __device__ __forceinline__ void hold(Held& h) const {
        h.s = s;
        h.skip = skip;
        h.k = k;
        prefetch_to_write(s.p.window_address());
    }
    __device__ __forceinline__ void resume(const Held& h) {
        s = h.s;
        skip = h.skip;
        k = h.k;
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (WARPCORE_CHOOSES && !x.on) {
            if (p.rows.added) at<u8>(p.rows.added)[i] = 0;
            return false;
        }
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        if (MULTI && p.reserved && !C::marks(x.k)) return false;
        k = x.k;
        s.begin(p.table, x.k, x.v, p.limit);
        if constexpr (MULTI) skip.begin();
        return true;
    }
    __device__ __forceinline__ bool round(InsertTile g, bool active) {
        if constexpr (MULTI)
            if (active) skip.ask(p.table, s);
        return s.round(p.table, g, active);
    }
    __device__ __forceinline__ void done(u64 i) {
        Outcome o = s.outcome;
        if constexpr (MULTI)
            if (o == ADDED) skip.leave(p.table, s.p, s.candidate_probes - 1);
        inserted += o == ADDED;
        reused += s.reused;
        if (p.rows.added) at<u8>(p.rows.added)[i] = o == ADDED;
        if (p.rows.refused) settle(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, o == FULL, &counters(p.table)->failed);
        if (o == FULL && C::marks(k)) add(&counters(p.table)->side_failed, (u64)1);
    }
};
template <class MEETS, bool MULTI> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    InsertJob<MEETS, MULTI> job(p);
    drive_held<InsertTile, u64>(p.rows.n, job, p.rows.span);
    count_into(&counters(p.table)->inserted, job.inserted);
    count_into(&counters(p.table)->reused, job.reused);
}

// Rows that stretches left over: see stretch.cu. A lane has a row, and reads windows whole. The chains of most are short, so the lanes of a warp wait for
// its slowest: to give them rows one by one costs more.
template <class MEETS> __device__ __forceinline__ void insert_left(const insertParams& p) {
    WholeTile g;
    tile<32, true> warp;
    u64 n = at<u32>(p.left)[0], inserted = 0, reused = 0, failed = 0;
    if (n > p.rows.n) n = p.rows.n; // a growth has no room for more
    FOR_EACH_ITEM(i, n) {
        bool active = i < n;
        Insert<C, MEETS, true, false> s;
        s.begin(p.table, active ? input_key<C>(p.rows.keys, i) : key{}, active ? input_value<C>(p.rows.values, i) : value{}, p.limit);
        for (bool own = active; warp.any(own);)
            if (own) own = s.round(p.table, g, true);
        inserted += active && s.outcome == ADDED;
        reused += active && s.reused;
        failed += active && s.outcome == FULL;
        if (p.told && active && s.outcome == ADDED) {
            u32 position = at<u32>(p.rows.positions)[i];
            or_of_memory(at<u32>(p.told) + position / 32, 1u << position % 32);
        }
    }
    count_into(&counters(p.table)->inserted, inserted);
    count_into(&counters(p.table)->reused, reused);
    count_into(&counters(p.table)->failed, failed);
}

#if WARPCORE_SET || WARPCORE_MAP && !WARPCORE_CHOOSES
WARPMAP_KERNEL(insert_left_new, insertParams) { insert_left<Keep>(p); }
WARPMAP_KERNEL_RESIDENT(insert_new, insertParams, 3) { insert_batch<Keep, false>(p); }
#endif
#if WARPCORE_MAP
WARPMAP_KERNEL(insert_left, insertParams) { insert_left<Replace>(p); }
WARPMAP_KERNEL_RESIDENT(insert, insertParams, 3) { insert_batch<Replace, false>(p); }
#endif
#if WARPCORE_MULTI
WARPMAP_KERNEL_RESIDENT(insert_multi, insertParams, 3) { insert_batch<Keep, true>(p); }
#include "multileft.cuh"
#endif

#if !WARPCORE_CHOOSES
// Brings pairs in the order of the regions that their first windows lie in. The region is of the hash's high bits, as the
// window is, so regions are stretches of windows. Pairs of the side region, which are few, are of any.
#include "regions.cuh"
#endif

#if WARPCORE_MULTI
#include "grouped.cuh"
typedef Grouped<C, WARPCORE_GROUPED_ROWS> GroupedRows;

// Rows in the order of small parts of the table. Those with reserved keys, for which the side region may have no room, are only counted; or only
// they are inserted.
template <bool LONG> __device__ __forceinline__ void insert_groups(const groupParams& p, GroupedRows& shared) {
    const auto& r = p.rows;
    auto part_of = region_of(p);
    u32 added = 0, reused = 0;
    u64 failed = 0;
    for (u64 row = block_index() * GroupedRows::ROWS; row < r.n; row += grid_blocks() * GroupedRows::ROWS) {
        u64 end = piece_begins(r, row + GroupedRows::ROWS, GroupedRows::ROWS, part_of, key{});
        for (u64 from = piece_begins(r, row, GroupedRows::ROWS, part_of, key{}), to; from < end; from = to) {
            to = piece_ends(r, from, end, GroupedRows::ROWS, part_of, key{});
            const key* keys = at<key>(r.keys) + from;
            const value* values = at<value>(r.values) + from;
            auto load = [&](u32 i, key& k) {
                k = keys[i];
                if (p.reserved) return C::marks(k);
                failed += C::marks(k);
                return !C::marks(k);
            };
            insert_together<C, LONG>(p.table, shared, (u32)(to - from), added, reused, load, [&](u32 i) { return values[i]; });
        }
    }
    count_into(&counters(p.table)->inserted, (u64)added);
    count_into(&counters(p.table)->reused, (u64)reused);
    count_into(&counters(p.table)->side_failed, failed);
}
WARPMAP_KERNEL_RESIDENT(insert_groups, groupParams, 4) {
    __shared__ GroupedRows shared;
    insert_groups<false>(p, shared);
}
WARPMAP_KERNEL_RESIDENT(insert_long_groups, groupParams, 4) {
    __shared__ GroupedRows shared;
    insert_groups<true>(p, shared);
}

// Copies every pair of a multimap into another, larger table.
WARPMAP_KERNEL_RESIDENT(rehash_groups, slotsParams, 4) {
    __shared__ GroupedRows shared;
    u64 live = 0;
    u32 added = move_together<C, C>(p, shared, [&](const Slot<C>& s) {
        live += s.live;
        return s.live;
    }, [](const Slot<C>& s) { return s.load(); });
    count_into(&counters(p.target)->inserted, (u64)added);
    count_into(&counters(p.target)->failed, live - added);
}
#endif

WARPMAP_KERNEL(find, findParams) {
    look_up<C, false, false>(p.table, p.keys, p.n, [&](u64 i, const Hit<C>& hit) {
        output_value<C>(p.values, i, hit.found ? hit.value() : value{});
        if (p.found) at<u8>(p.found)[i] = hit.found;
    }, p.when, NoVisit{}, nullptr, 1, p.span);
}

#if !WARPCORE_CHOOSES
#if WARPCORE_MAP || WARPCORE_SET
// Refuses the rows whose keys are not in.
WARPMAP_KERNEL(refuse_absent, insertParams) {
    look_up<C, false, false>(p.table, p.rows.keys, p.rows.n, [&](u64 i, const Hit<C>& hit) {
        if (!hit.found) settle(p.rows.refused, 0, i, true, &counters(p.table)->failed);
    });
}
#endif

#if WARPCORE_MULTI
WARPMAP_KERNEL(erase_multi, findParams) { erase_all<C>(p); }
#endif

#if WARPCORE_MAP || WARPCORE_SET
WARPMAP_KERNEL(erase, findParams) {
    u64 erased = 0;
    look_up<C, false, true>(p.table, p.keys, p.n, [&](u64 i, const Hit<C>& hit) {
        // Nothing is inserted beside this kernel, so a key that another lane erased is gone.
        bool removed = hit.found && Access<C>::remove(hit.slots, hit.index, hit.word, hit.stored);
        erased += removed;
        if (p.found) at<u8>(p.found)[i] = removed;
    }, 0, NoVisit{}, nullptr, 1, p.span);
    count_into(&counters(p.table)->erased, erased);
}
#endif

// Copies every pair, or those from slot p.first on, into another, larger table whose keys are known to differ. Windows that are neighbours here are
// neighbours there, so in order both tables are gone through once, by stretches that stay in the L2 cache.
WARPMAP_KERNEL(rehash, slotsParams) {
    InsertTile g;
    u64 inserted = 0, failed = 0;
    FOR_EACH_ITEM_IN_ORDER_BY(InsertTile, i, slot_count<C>(p.table) - p.first, p.span) {
        Slot<C> s = slot_at<C>(p.table, p.first + i);
        value v = s.live ? s.load() : value{};
        Outcome o = insert_each<C, Keep, false, true>(p.target, g, s.live, s.k, v, ~0ull);
        inserted += s.live && o == ADDED;
        failed += s.live && o == FULL;
    }
    count_into(&counters(p.target)->inserted, inserted);
    count_into(&counters(p.target)->failed, failed);
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    FOR_EACH_ITEM_BY(tile<1>, i, p.slots) {
        Slot<C> s = slot_at<C>(p.table, p.first + i);
        if (i >= p.slots || !s.live) continue;
        u64 to = add(&counters(p.table)->exported, (u64)1);
        if (to >= p.limit) continue;
        at<key>(p.keys)[to] = s.k;
        output_value<C>(p.values, to, s.load());
    }
}

WARPMAP_KERNEL(probe_lengths, slotsParams) { probe_lengths<C>(p); }

#if WARPCORE_MULTI
WARPMAP_KERNEL(distinct, slotsParams) { distinct_keys<C>(p); }

// FindAll (kernel/findall.cuh): to count the values puts the first of each key aside, or its first r.each; to fill writes offsets and values, and
// reads the table again only for keys that have more. A warp takes a chunk of keys.
struct PutAside {
    static constexpr bool VISITS = true, PLACES = !C::PACKED, HIT = false, WRITES = C::PACKED;
    u64 stash, each;
    u64 item, of;
    __device__ __forceinline__ void begin(u64 i) { item = stash + i * each * sizeof(value); }
    __device__ __forceinline__ bool goes(u32 count) const { return count <= each; } // who has more is looked up again
    __device__ __forceinline__ u64 to(u32 count) const { return item + count * sizeof(value); }
    template <class Tile> __device__ __forceinline__ void turn(Tile g, int rank) { of = g.shuffle(item, rank); }
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64 from, u64 index, W w, u32 number) {
        if (number < each) at<value>(of)[number] = Access<C>::load_value(slots, from, index, w);
    }
};
// PutFirst puts the first value aside with a key's lane, which writes it when it has counted all: neighbouring keys' at once, mostly.
struct PutFirst {
    static constexpr bool VISITS = true, PLACES = false, HIT = false, WRITES = false, FIRST = TALLIES<C, FindTile::LANES> || FindTile::LANES == 1;
    u64 stash;
    value kept;
    __device__ __forceinline__ void begin(u64) { kept = value{}; }
    __device__ __forceinline__ void first(value v) { kept = v; }
    __device__ __forceinline__ void end(u64 i) const {
        if (stash) at<value>(stash)[i] = kept;
    }
    template <class Tile> __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64 from, u64 index, W w, u32 number) {
        if (!number) first(Access<C>::load_value(slots, from, index, w));
    }
};
WARPMAP_KERNEL_RESIDENT(count_all, findAllParams, 4) {
    const auto& r = p.rows;
    auto end = [&](u64 i, const Hit<C>& hit) {
        at<u32>(r.counts)[i] = hit.count;
        if (!C::PACKED && r.stash && hit.found) at<value>(r.stash)[i] = hit.value();
    };
    if constexpr (C::PACKED && PutFirst::FIRST) look_up<C, true, false>(p.table, r.keys, r.n, end, 0, PutFirst{r.stash, value{}}, &p.longs);
    else if constexpr (C::PACKED) look_up<C, true, false>(p.table, r.keys, r.n, end, 0, PutAside{r.stash, (u64)(r.stash != 0), 0, 0}, &p.longs);
    else look_up<C, true, false>(p.table, r.keys, r.n, end, 0, NoVisit{}, &p.longs);
}

WARPMAP_KERNEL_RESIDENT(count_all_aside, findAllParams, 4) {
    const auto& r = p.rows;
    auto end = [&](u64 i, const Hit<C>& hit) { at<u32>(r.counts)[i] = hit.count; };
    look_up<C, true, false>(p.table, r.keys, r.n, end, 0, PutAside{r.stash, r.each, 0, 0}, &p.longs, r.each);
}

WARPMAP_KERNEL(sum_chunks, findAllParams) { sum_chunks(p.rows); }
WARPMAP_KERNEL(scan_totals, findAllParams) { scan_totals(p.rows); }

struct Fill {
    static constexpr bool VISITS = true, PLACES = !C::PACKED, HIT = false, WRITES = C::PACKED;
    u64 values, offset; // of this lane's key
    u64 of;             // of the key whose turn it is
    __device__ __forceinline__ bool goes(u32) const { return true; }
    __device__ __forceinline__ u64 to(u32 count) const { return values + (offset + count) * sizeof(value); }
    template <class Tile> __device__ __forceinline__ void turn(Tile g, int rank) { of = g.shuffle(offset, rank); }
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64 from, u64 index, W w, u32 number) {
        at<value>(values)[of + number] = Access<C>::load_value(slots, from, index, w);
    }
};
#if defined(WARPMAP_HOST)
// The values of keys that have more than `most`, by lanes alone.
inline void fill_more(const findAllParams& p, u64 most, u64 i, u32 n, u64 offset) {
    if (n <= most) return;
    key k = input_key<C>(p.rows.keys, i);
    if (n >= WARPCORE_LONG_VALUES && LongChains{p.table, p.longs}.fill(Probe<C>(p.table, k), offset)) return;
    Fill fill{p.rows.values, offset, 0};
    search_each<C, true>(p.table, FindTile(), true, k, fill);
}
inline void ask_more(const findAllParams& p, u64 most, u64 i, u32 n) {
    if (n > most) prefetch_line(Probe<C>(p.table, input_key<C>(p.rows.keys, i)).first_address());
}
#endif

// Where several values of each key were put aside: offsets, and the values of keys that have no more, by all lanes of a warp in turn; then the others'.
WARPMAP_KERNEL(fill_aside, findAllParams) {
    const auto& rows = p.rows;
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE)
        return alone_by_chunks(rows, true, [](u64, u32) {}, [&](u64 i, u32 n, u64 offset) {
            if (n > rows.each) return;
            for (u32 number = 0; number < n; number++) at<value>(rows.values)[offset + number] = at<value>(rows.stash)[i * rows.each + number];
        });
#endif
    Warp warp;
    FOR_EACH_CHUNK(c, rows.chunks) {
        u64 before = at<u64>(rows.totals)[c];
        for (u64 r = 0; r < rows.chunk; r += 32) {
            u64 i = c * rows.chunk + r + warp.rank(), all, base = i - warp.rank();
            u32 n = i < rows.n ? at<u32>(rows.counts)[i] : 0;
            u64 offset = before + warp.scan((u64)n, all);
            before += all;
            if (i < rows.n) at<u64>(rows.offsets)[i] = offset;
            if (n > rows.each) n = 0;
            u64 sum;
            u32 begin = (u32)warp.scan((u64)n, sum); // each is no more than FindAll.Each, which is small
            for (u32 first = 0; first < (u32)sum; first += 32) {
                u32 x = first + warp.rank();
                int owner = 0; // the last lane before whose values there are no more than x
#pragma unroll
                for (int d = 16; d > 0; d /= 2)
                    if (warp.shuffle(begin, owner + d) <= x) owner += d;
                u32 number = x - warp.shuffle(begin, owner);
                u64 to = warp.shuffle(offset, owner) + number;
                if (x < (u32)sum) at<value>(rows.values)[to] = at<value>(rows.stash)[(base + owner) * rows.each + number];
            }
        }
    }
}
WARPMAP_KERNEL(fill_rest, findAllParams) {
    const auto& rows = p.rows;
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE && ALONE<FindTile>)
        return alone_by_chunks(rows, false, [&](u64 i, u32 n) { ask_more(p, rows.each, i, n); },
            [&](u64 i, u32 n, u64) { fill_more(p, rows.each, i, n, at<u64>(rows.offsets)[i]); });
#endif
    FindTile g;
    Warp warp;
    FOR_EACH_ITEM(i, rows.n) {
        u32 n = i < rows.n ? at<u32>(rows.counts)[i] : 0;
        bool on = n > rows.each;
        if (!warp.any(on)) continue;
        u64 offset = on ? at<u64>(rows.offsets)[i] : 0;
        key k = on ? input_key<C>(rows.keys, i) : 0;
        if (on && n >= WARPCORE_LONG_VALUES && LongChains{p.table, p.longs}.fill(Probe<C>(p.table, k), offset)) on = false;
        Fill fill{rows.values, offset, 0};
        search_each<C, true>(p.table, g, on, k, fill);
    }
}
WARPMAP_KERNEL(fill_all, findAllParams) {
    const auto& rows = p.rows;
#if defined(WARPMAP_HOST)
    if constexpr (BY_CHUNKS_ALONE && ALONE<FindTile>)
        return alone_by_chunks(rows, true, [&](u64 i, u32 n) { ask_more(p, 1, i, n); }, [&](u64 i, u32 n, u64 offset) {
            if (n == 1) at<value>(rows.values)[offset] = at<value>(rows.stash)[i];
            else fill_more(p, 1, i, n, offset);
        });
#endif
    constexpr int ROWS = 4; // loaded at once
    FindTile g;
    Warp warp;
    FOR_EACH_CHUNK(c, rows.chunks) {
        u64 before = at<u64>(rows.totals)[c];
        for (u64 r = 0; r < rows.chunk; r += 32 * ROWS) {
            u32 n[ROWS];
            value first[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                u64 i = c * rows.chunk + r + 32 * j + warp.rank();
                n[j] = i < rows.n && r + 32 * j < rows.chunk ? at<u32>(rows.counts)[i] : 0;
                first[j] = i < rows.n && r + 32 * j < rows.chunk ? at<value>(rows.stash)[i] : value{};
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (r + 32 * j >= rows.chunk) break;
                u64 i = c * rows.chunk + r + 32 * j + warp.rank();
                u64 all, offset = before + warp.scan((u64)n[j], all);
                before += all;
                if (i < rows.n) at<u64>(rows.offsets)[i] = offset;
                if (n[j] == 1) at<value>(rows.values)[offset] = first[j];
                bool on = n[j] > 1;
                if (!warp.any(on)) continue;
                key k = on ? input_key<C>(rows.keys, i) : 0;
                if (n[j] >= WARPCORE_LONG_VALUES && LongChains{p.table, p.longs}.fill(Probe<C>(p.table, k), offset)) on = false;
                Fill fill{rows.values, offset, 0};
                search_each<C, true>(p.table, g, on, k, fill);
            }
        }
    }
}

typedef C Slots;
#include "long_kernels.cuh"
#endif

#if WARPCORE_SET
WARPMAP_KERNEL(absent, selectParams) {
    FOR_EACH_ITEM(i, p.n) {
        bool there = i < p.n && !load_relaxed(at<u8>(p.found) + i);
        u64 to = append(&counters(p.table)->exported, there);
        if (there) at<key>(p.out)[to] = load_readonly(at<key>(p.keys) + i);
    }
}
#endif
#endif
