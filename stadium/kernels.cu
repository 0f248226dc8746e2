// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "jobs.cuh"
#include "partition.cuh"

using namespace stadium;

template <bool REPLACE, bool LEFT = false> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    if constexpr (TOGETHER) insert_together<REPLACE, LEFT>(p, p.rows.n, [](u64 i) { return i; });
    else {
        InsertJob<REPLACE, LEFT> job(p);
        drive_held<Lane, u32>(p.rows.n, job, p.rows.span);
        job.end();
    }
}
WARPMAP_KERNEL(insert, insertParams) { insert_batch<true>(p); }
WARPMAP_KERNEL(insert_new, insertParams) { insert_batch<false>(p); }

#if STADIUM_SORTED
// Brings pairs in the order of stretches of the table: of some buckets, or of some regions.
__device__ __forceinline__ auto part_of(const partitionParams& p) {
    return [&p](C::key k) {
        u64 h = hash_key<C>(p.table, Key<C>::from(k)), region = reduce(h, p.table.regions);
        if (p.each) return (u32)region / (u32)p.each;
        return (u32)((region << p.table.shift | (h & (1u << p.table.shift) - 1)) >> p.cut);
    };
}
typedef bits_of<STADIUM_VALUE_CARRIED>::type carried;
WARPMAP_PARTITION(partitionParams, C::key, carried, u32, part_of)
WARPMAP_PARTITION_WITHIN(partitionParams, C::key, carried, part_of)
#endif

// The rows that staged inserts have left, if there are any.
template <bool REPLACE> __device__ __forceinline__ void insert_left(const insertParams& p) {
    // Other blocks take from the count what they place: the lanes of a block, which meet in the end, must go one way.
    __shared__ u32 any;
    if (thread_index() == 0) any = load_relaxed(&counters(p.table)->failed) != 0;
    block_sync();
    if (!any) return;
    insert_batch<REPLACE, true>(p);
}
WARPMAP_KERNEL(insert_left, insertParams) { insert_left<true>(p); }
WARPMAP_KERNEL(insert_left_new, insertParams) { insert_left<false>(p); }

// The rows that stretches have left over, which carry no values.
#if STADIUM_STRETCHES
template <bool REPLACE> __device__ __forceinline__ void insert_listed(const insertParams& p) {
    insertParams q = p;
    q.rows.n = load_readonly(at<u32>(p.listed));
    insert_batch<REPLACE>(q);
}
WARPMAP_KERNEL(insert_listed, insertParams) { insert_listed<true>(p); }
WARPMAP_KERNEL(insert_listed_new, insertParams) { insert_listed<false>(p); }
#endif

WARPMAP_KERNEL(find, findParams) {
    answer_all(p, p.n, [](u64 i) { return i; });
}

// Refuses the positions whose keys are not in the table, if inserts before have counted any that found no room.
WARPMAP_KERNEL(refuse_absent, insertParams) {
    if (!load_relaxed(&counters(p.table)->failed)) return;
    look_up_all(p, p.rows.keys, p.rows.n, [](u64 i) { return i; }, [&p](u64 i, const Search<C>& s) {
        if (!s.found) or_of(at<u32>(p.rows.refused) + i / 32, 1u << (i & 31));
    });
}

WARPMAP_KERNEL(erase, findParams) {
    u32 erased = 0;
    look_up_all(p, p.keys, p.n, [](u64 i) { return i; }, [&](u64 i, const Search<C>& s) { erased += give_back(p, i, s); });
    count_erased(p.table, erased);
}

// Operations of all kinds beside one another, each under the access bits of its key's buckets.
WARPMAP_KERNEL(mixed, mixedParams) {
    u32 added = 0, erased = 0, failed = 0;
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
        added += o == ADDED;
        erased += kind == X::ERASE && o == PRESENT;
        failed += o == FULL;
        if (p.clock && o != FULL) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
        // Results may take the place of values, which a refused insert still needs.
        if (p.results && !shown && (o != FULL || p.attempt >= STADIUM_LAST_ATTEMPT)) zero<C::VALUE_BYTES, C::VALUE_UNIT>(row_value(p.results, i));
        if (p.status) at<u8>(p.status)[i] = (u8)o;
        settle_bit(p.refused, p.attempt, i, o == FULL);
    }
    u64 *more[2] = {&counters(p.table)->pairs, &counters(p.table)->failed}, *less[1] = {&counters(p.table)->pairs};
    u32 n[2] = {added, failed}, m[1] = {erased};
    block_count(more, n);
    block_count<1, true>(less, m);
}

// Copies every pair into another table, which has room for all. Keys are distinct.
WARPMAP_KERNEL(rehash, slotsParams) {
    u64 moved = 0, strayed = 0, failed = 0;
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) {
        if (!is_taken<C>(p.table, i)) continue;
        u64 from = slot_at<C>(p.table, i), probes = 0;
        Key<C> k = Key<C>::of(from);
        Place<C> to(p.target, k);
        u32 home = to.region;
        bool in;
        while (!(in = settle_new(p.target, to, k, from, probes)) && probes < p.target.regions << p.target.shift) to.advance(p.target);
        moved += in;
        failed += !in;
        strayed += in && to.region != home;
    }
    count_into(&counters(p.target)->pairs, moved);
    count_into(&counters(p.target)->strays, strayed);
    count_into(&counters(p.target)->failed, failed);
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    for (u64 n = grid_thread(); n < p.slots; n += grid_threads()) {
        u64 i = p.first + n;
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
