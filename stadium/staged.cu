// Large inserts, region by region: a block has the tickets of a region in its shared memory, and nobody else has to do
// with its slots meanwhile. Memory then sees tickets in streams. The rows are those that stretches of the region have
// left over (stretch.cu), whose slots are few; or all, whose slots memory then sees at random: where slots are in host
// memory, or a batch is small beside the table. The program is compiled with WARPMAP_SHARED: atomic operations and
// fences are a block's own.
#include "config.h"
#include "stadium.cuh"

using namespace stadium;

typedef config C;

// What a region needs beside its tickets and access bits, which are dynamic shared memory.
struct Stage {
    Table table; // of this region alone, the tickets here
    Counters sums;
    u32 added, left; // rows
};

static_assert(sizeof(Stage) + 1024 <= STADIUM_STAGED_FIXED, "beside what block-wide functions have");

template <bool REPLACE> struct StagedJob {
    const stagedParams& p;
    Stage& stage;
    u64 keys, values;
    u32 first; // row
    Operation<C> x;
    Value<C> v;
    u32 added, left;

    __device__ __forceinline__ StagedJob(const stagedParams& p, Stage& stage, u32 first)
        : p(p), stage(stage), keys(p.rows.keys + (u64)first * C::KEY_BYTES), values(p.rows.values + (u64)first * C::VALUE_BYTES), first(first), added(0), left(0) {}
    __device__ __forceinline__ Key<C> load(u32 i) const { return Key<C>::of_batch(keys, i); }
    __device__ __forceinline__ Value<C> load_value(u32 i) const { return Value<C>::of_row(values + (u64)i * C::VALUE_BYTES); }
    __device__ __forceinline__ void begin(const Key<C>& k, const Value<C>& value) {
        v = value;
        x.begin(stage.table, k, ~0ull);
    }
    __device__ __forceinline__ bool round() {
        return x.round(stage.table, REPLACE ? Operation<C>::INSERT : Operation<C>::INSERT_NEW, [&](u64 slot, bool free) {
            if (free) put_pair<C>(slot, x.k, v);
            else v.put(slot);
        });
    }
    __device__ __forceinline__ void done(u32 i) {
        added += x.outcome == ADDED;
        if (x.outcome != FULL) return;
        left++;
        or_of_memory(at<u32>(p.left) + (first + i) / 32, 1u << (first + i & 31));
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_staged(const stagedParams& p) {
    __shared__ Stage stage;
    u64 region = p.first + block_index(), first = load_readonly(at<u64>(p.starts) + (region << p.per));
    u32 n = p.listed ? load_readonly(at<u32>(p.listed) + region) : (u32)(load_readonly(at<u64>(p.starts) + (region + 1 << p.per)) - first);
    u32 buckets = 1u << p.table.shift, units = buckets * C::TICKET_BYTES / STADIUM_STAGED_UNIT;
    if (!n) return;
    u64 told = load_readonly(&counters(p.table)->max_probes);
    u128* tickets = (u128*)dynamic_shared();
    u128* board = at<u128>(p.table.board) + region * units;
    if (thread_index() == 0) {
        stage.table = p.table;
        stage.table.board = (u64)tickets;
        stage.table.access = (u64)(tickets + units);
        stage.table.near = slot_in<C>(p.table, region << p.table.shift, 0);
        stage.table.regions = stage.table.within = 1;
        stage.table.counters = (u64)&stage.sums;
        stage.sums = Counters{};
        stage.sums.max_probes = told;
        stage.added = stage.left = 0;
    }
    for (u32 i = thread_index(); i < units; i += block_threads()) tickets[i] = load_readonly(board + i);
    for (u32 i = thread_index(); i < (buckets + 31) / 32; i += block_threads()) ((u32*)(tickets + units))[i] = 0;
    block_sync();
    StagedJob<REPLACE> job(p, stage, (u32)first);
    // A lane's next pair is loaded ahead. (Feeding lanes one after the other, as other kernels do, takes more instructions than it saves here.)
    u32 i = thread_index(), step = block_threads();
    Key<C> k = job.load(i < n ? i : 0);
    Value<C> v = job.load_value(i < n ? i : 0);
    for (; i < n; i += step) {
        job.begin(k, v);
        u32 next = i + step < n ? i + step : i;
        k = job.load(next);
        v = job.load_value(next);
        while (job.round()) {}
        job.done(i);
    }
    if (job.added) add(&stage.added, job.added);
    if (job.left) add(&stage.left, job.left);
    block_sync();
    for (u32 i = thread_index(); i < units; i += block_threads()) board[i] = tickets[i];
    if (thread_index() != 0) return;
    Counters* all = counters(p.table);
    if (stage.added) add_to_memory(&all->pairs, (u64)stage.added);
    if (stage.left) add_to_memory(&all->failed, (u64)stage.left);
    if (stage.sums.max_probes > told) max_of_memory(&all->max_probes, stage.sums.max_probes);
}

WARPMAP_KERNEL(insert_staged, stagedParams) { insert_staged<true>(p); }
WARPMAP_KERNEL(insert_staged_new, stagedParams) { insert_staged<false>(p); }
