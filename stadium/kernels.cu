// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "layout.h"
#include "partition.cuh"
#include "refused.cuh"
#include "stadium.cuh"

using namespace stadium;

typedef config C;
typedef tile<1, true> Lane;
typedef Tickets<C> Board;

__device__ __forceinline__ u64 row_key(u64 keys, u64 i) { return keys + i * C::KEY_BYTES; }
__device__ __forceinline__ u64 row_value(u64 values, u64 i) { return values + i * C::VALUE_BYTES; }
__device__ __forceinline__ void take_value(u64 slot, u64 row) { copy<C::VALUE_BYTES, C::VALUE_UNIT>(slot + C::VALUE_OFFSET, row); }
__device__ __forceinline__ void give_value(u64 row, u64 slot) { copy<C::VALUE_BYTES, C::VALUE_UNIT>(row, slot + C::VALUE_OFFSET); }

// A job's items are keys of a batch, loaded ahead where they are short.
struct Job {
    typedef Key<C> Item;
    u64 keys;
    __device__ __forceinline__ Job(u64 keys) : keys(keys) {}
    __device__ __forceinline__ Item load(u64 i) const { return Item::of_batch(keys, i); }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64 i) const { return x.shuffled(warp, from, keys, i); }
};

// Of the rows that staged inserts LEFT, which `failed` counts, those that find room are taken from it.
template <bool REPLACE, bool LEFT = false> struct InsertJob : Job {
    const insertParams& p;
    Operation<C> x;
    Value<C> v;
    u32 added, failed;

    __device__ __forceinline__ InsertJob(const insertParams& p) : Job(p.rows.keys), p(p), added(0), failed(0) {}
    __device__ __forceinline__ u64 position(u64 i) const { return p.rows.positions ? at<u32>(p.rows.positions)[i] : i; }
    __device__ __forceinline__ bool begin(u64 i, const Item& k) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        v = Value<C>::of_row(row_value(p.rows.values, p.by_position ? position(i) : i));
        x.begin(p.table, k, p.limit);
        if (p.exact && load_relaxed(&counters(p.table)->pairs) >= slot_count<C>(p.table)) x.limit = 0;
        return true;
    }
    __device__ __forceinline__ bool round(Lane, bool active) {
        return active && x.round(p.table, REPLACE ? Operation<C>::INSERT : Operation<C>::INSERT_NEW, [&](u64 slot, bool free) {
            if (free) put_pair<C>(slot, x.k, v);
            else v.put(slot);
        });
    }
    __device__ __forceinline__ void done(u64 i) {
        if (x.outcome == ADDED) {
            if (p.exact) add(&counters(p.table)->pairs, (u64)1);
            else added++;
        }
        if (p.rows.added) at<u8>(p.rows.added)[i] = x.outcome == ADDED;
        failed += (x.outcome == FULL) != LEFT;
        if (x.outcome == FULL || p.rows.attempt) settle_bit(p.rows.refused, p.rows.attempt, position(i), x.outcome == FULL);
    }
    __device__ __forceinline__ void end() {
        u64* pairs[1] = {&counters(p.table)->pairs};
        u64* others[1] = {&counters(p.table)->failed};
        u32 n[1] = {added}, m[1] = {failed};
        block_count(pairs, n);
        block_count<1, LEFT>(others, m);
    }
};
template <bool REPLACE> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    InsertJob<REPLACE> job(p);
    drive_held<Lane, u32>(p.rows.n, job, p.rows.span);
    job.end();
}
WARPMAP_KERNEL(insert, insertParams) { insert_batch<true>(p); }
WARPMAP_KERNEL(insert_new, insertParams) { insert_batch<false>(p); }

#if STADIUM_ORDERED
// Brings pairs in the order of the table's regions, or of so many in a row.
__device__ __forceinline__ auto part_of(const partitionParams& p) {
    return [&p](C::key k) { return (u32)reduce(hash_key<C>(p.table, Key<C>::from(k)), p.table.regions) / (u32)p.each; };
}
typedef bits_of<STADIUM_VALUE_CARRIED>::type carried;
WARPMAP_KERNEL(partition_count, partitionParams) { partition_count<C::key>(p.rows, part_of(p)); }
WARPMAP_KERNEL(partition_scan, partitionParams) { partition_scan(p.rows); }
WARPMAP_KERNEL_RESIDENT(partition_scatter, partitionParams, 4) { partition_scatter<C::key, carried, u32>(p.rows, part_of(p)); }
WARPMAP_KERNEL(partition_within_count, partitionParams) { partition_within_count<C::key>(p.rows, part_of(p)); }
WARPMAP_KERNEL_RESIDENT(partition_within_scatter, partitionParams, 4) { partition_within_scatter<C::key, carried>(p.rows, part_of(p)); }
#endif

// The rows that staged inserts have left, if there are any.
template <bool REPLACE> __device__ __forceinline__ void insert_left(const insertParams& p) {
    // Other blocks take from the count what they place: the lanes of a block, which meet in the end, must go one way.
    __shared__ u32 any;
    if (thread_index() == 0) any = load_relaxed(&counters(p.table)->failed) != 0;
    block_sync();
    if (!any) return;
    InsertJob<REPLACE, true> job(p);
    drive_held<Lane, u32>(p.rows.n, job, 0);
    job.end();
}
WARPMAP_KERNEL(insert_left, insertParams) { insert_left<true>(p); }
WARPMAP_KERNEL(insert_left_new, insertParams) { insert_left<false>(p); }

// Looks up a batch of keys, and calls end(position, search) for each. Each lane has one key: as many blocks as it takes keep more reads under
// way than a grid that goes on in strides, or lanes that are fed.
template <class End> __device__ __forceinline__ void look_up(const Table& t, u64 keys, u64 n, End end) {
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        Search<C> s;
        s.begin(t, Key<C>::of_batch(keys, i));
        while (s.round(t)) {}
        end(i, s);
    }
}

WARPMAP_KERNEL(find, findParams) {
#if !defined(WARPMAP_HOST)
    // The lanes of a warp write wide values together, unit by unit, as the rows lie in memory.
    if constexpr (C::VALUE_BYTES > 16) {
        typedef bits_of<C::VALUE_UNIT>::type unit;
        constexpr u32 UNITS = C::VALUE_BYTES / C::VALUE_UNIT;
        tile<32> warp;
        for (u64 row = grid_thread() & ~31ull; row < p.n; row += grid_threads()) {
            u64 i = row + warp.rank();
            Search<C> s;
            s.found = false;
            if (i < p.n) {
                s.begin(p.table, Key<C>::of_batch(p.keys, i));
                while (s.round(p.table)) {}
                if (p.found) at<u8>(p.found)[i] = s.found;
            }
            if (!p.values) continue;
            u64 from = s.found ? s.address(p.table) + C::VALUE_OFFSET : 0;
            u32 all = (u32)(p.n - row < 32 ? p.n - row : 32) * UNITS;
            warp.sync();
#pragma unroll 4
            for (u32 j = 0; j < UNITS; j++) {
                u32 x = j * 32 + warp.rank();
                u64 value = warp.shuffle(from, (int)(x / UNITS));
                if (x < all) at<unit>(p.values + row * C::VALUE_BYTES)[x] = value ? load_memory(at<unit>(value) + x % UNITS) : unit{};
            }
        }
        return;
    }
#endif
    look_up(p.table, p.keys, p.n, [&](u64 i, const Search<C>& s) {
        if (p.values && s.found) s.read.value_to(row_value(p.values, i), s.address(p.table));
        else if (p.values) zero<C::VALUE_BYTES, C::VALUE_UNIT>(row_value(p.values, i));
        if (p.found) at<u8>(p.found)[i] = s.found;
    });
}

// Refuses the positions whose keys are not in the table, if inserts before have counted any that found no room.
WARPMAP_KERNEL(refuse_absent, insertParams) {
    if (!load_relaxed(&counters(p.table)->failed)) return;
    look_up(p.table, p.rows.keys, p.rows.n, [&](u64 i, const Search<C>& s) {
        if (!s.found) or_of(at<u32>(p.rows.refused) + i / 32, 1u << (i & 31));
    });
}

WARPMAP_KERNEL(erase, findParams) {
    u32 erased = 0;
    look_up(p.table, p.keys, p.n, [&](u64 i, const Search<C>& s) {
        bool removed = s.found && !Board::change(tickets_at<C>(p.table, s.slot / C::SLOTS), (u32)(s.slot % C::SLOTS), GIVEN_BACK);
        erased += removed;
        if (p.found) at<u8>(p.found)[i] = removed;
    });
    u64* to[1] = {&counters(p.table)->pairs};
    u32 n[1] = {erased};
    block_count<1, true>(to, n);
}

// Operations of all kinds beside one another, each under the access bits of its key's buckets.
WARPMAP_KERNEL(mixed, mixedParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        if (!wanted(p.refused, p.attempt, i)) continue;
        if (p.clock && !p.attempt) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        u8 op = load_relaxed(at<u8>(p.ops) + i);
        typedef Operation<C> X;
        X x;
        x.begin(p.table, Key<C>::of(row_key(p.keys, i)), p.limit);
        bool known = op == STADIUM_FIND || op == STADIUM_INSERT || op == STADIUM_INSERT_NEW || op == STADIUM_DELETE; // else the host has refused it
        auto kind = op == STADIUM_FIND ? X::FIND : op == STADIUM_INSERT ? X::INSERT : op == STADIUM_INSERT_NEW ? X::INSERT_NEW : X::ERASE;
        bool shown = false; // the result is written
        Value<C> v{};
        if (op == STADIUM_INSERT || op == STADIUM_INSERT_NEW) v = Value<C>::of_row(row_value(p.values, i));
        auto act = [&](u64 slot, bool free) {
            if (free) put_pair<C>(slot, x.k, v);
            else if (kind == X::INSERT) v.put(slot);
            else if (kind == X::FIND && p.results) {
                give_value(row_value(p.results, i), slot);
                shown = true;
            }
        };
        while (known && x.round(p.table, kind, act)) {}
        Outcome o = x.outcome;
        if (o == ADDED) add(&counters(p.table)->pairs, (u64)1);
        if (kind == X::ERASE && o == PRESENT) add(&counters(p.table)->pairs, ~(u64)0);
        if (p.clock && o != FULL) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
        // Results may take the place of values, which a refused insert still needs.
        if (p.results && !shown && (o != FULL || p.attempt >= STADIUM_LAST_ATTEMPT)) zero<C::VALUE_BYTES, C::VALUE_UNIT>(row_value(p.results, i));
        if (p.status) at<u8>(p.status)[i] = (u8)o;
        settle(p.refused, p.attempt, i, o == FULL, &counters(p.table)->failed);
    }
}

// reserve takes a ticket that never was given back, as the paper does (§III-B, Figures 7 and 8): the availability bit first, then the info bits.
__device__ __forceinline__ bool reserve(u64 tickets, u32 slot, u32 info) {
    u32 *word = Board::word_at(tickets, slot), shift = Board::shift_of(slot);
    if (!(and_of(word, ~(1u << shift)) >> shift & 1)) return false;
    if (C::TICKET_BITS > 1) and_of(word, ~((Place<C>::INFO ^ info) << 1 << shift));
    return true;
}

// Copies every pair into another table, which has room for all. Keys are distinct, so nobody looks for them.
WARPMAP_KERNEL(rehash, slotsParams) {
    u64 moved = 0, failed = 0;
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) {
        if (!is_taken<C>(p.table, i)) continue;
        u64 from = slot_at<C>(p.table, i), probes = 0, buckets = p.target.regions << p.target.shift;
        Key<C> k = Key<C>::of(from);
        for (Place<C> to(p.target, k);;) {
            u64 bucket = to.bucket(p.target);
            Board x;
            x.load(tickets_at<C>(p.target, bucket));
            u32 free = from_first<C>(x.available(), to.first);
            if (free) {
                u32 s = slot_of<C>(free, to.first);
                if (!reserve(tickets_at<C>(p.target, bucket), s, to.info)) continue;
                u64 slot = bucket * C::SLOTS + s;
                put_key<C>(k, slot_at<C>(p.target, slot));
                take_value(slot_at<C>(p.target, slot), from + C::VALUE_OFFSET);
                if (probes >= STADIUM_PROBES_UNTOLD) max_of(&counters(p.target)->max_probes, probes + 1);
                moved++;
                break;
            }
            if (++probes >= buckets) {
                failed++;
                break;
            }
            goes_on<C>(p.target, bucket, to);
            to.advance(p.target);
        }
    }
    count_into(&counters(p.target)->pairs, moved);
    count_into(&counters(p.target)->failed, failed);
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) {
        if (!is_taken<C>(p.table, i)) continue;
        u64 to = add(&counters(p.table)->exported, (u64)1);
        if (to >= p.limit) continue;
        u64 slot = slot_at<C>(p.table, i);
        copy<C::KEY_BYTES, C::KEY_UNIT>(row_key(p.keys, to), slot);
        if (p.values) give_value(row_value(p.values, to), slot);
    }
}

// How many buckets a look-up reads to come to each pair.
WARPMAP_KERNEL(probe_lengths, slotsParams) {
    u64 sum = 0;
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) {
        if (!is_taken<C>(p.table, i)) continue;
        Place<C> x(p.table, Key<C>::of(slot_at<C>(p.table, i)));
        u64 probes = 1;
        for (; x.bucket(p.table) != i / C::SLOTS && probes < p.table.regions << p.table.shift; probes++) x.advance(p.table);
        add(at<u64>(p.histogram) + (probes < STADIUM_HISTOGRAM_BINS ? probes - 1 : STADIUM_HISTOGRAM_BINS - 1), (u64)1);
        sum += probes;
    }
    count_into(at<u64>(p.histogram) + STADIUM_HISTOGRAM_BINS, sum);
}
