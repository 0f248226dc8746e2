// Update: an insert that combines values where the key is there. A program for each operation.
#include "gather.cuh"
#include "jobs.cuh"
#include "refused.cuh"

// A row of the batch, or several of a row of 32 with one key: its group, which is in or refused together. Nothing is erased beside it, so a pair
// stays where it was seen, and its value is combined by an operation on the value's own word, also where another one holds the pair whole.
struct UpdateJob : InsertJob<INSERT_NEW> {
    static constexpr bool GATHERS = true;
    struct Item {
        key k;
        value v;
        u32 group;
    };
    key k;
    u32 group, rows; // rows: those of the group whose values are to be combined with the one that is there

    __device__ __forceinline__ UpdateJob(const insertParams& p) : InsertJob(p), k{}, group(0), rows(0) {}
    __device__ __forceinline__ Item load(u64 i) const {
        return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i), wanted(p.rows.refused, p.rows.attempt, i) ? own_row(i) : 0};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from), warp.shuffle(x.group, from)};
    }
    template <class Warp> __device__ __forceinline__ void gather(Warp warp, Item& x) const {
        gather_rows(warp, x.v, x.group, [&](int from) { return warp.shuffle(x.k, from) == x.k; });
    }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    struct Held {
        Op<C, INSERT_NEW, true> op;
        key k;
        u32 group, rows;
    };
    __device__ __forceinline__ void hold(Held& h) const {
        hold_op<true>(h.op, op);
        h.k = k;
        h.group = group;
        h.rows = rows;
    }
    __device__ __forceinline__ void resume(const Held& h) {
        op = h.op;
        k = h.k;
        group = h.group;
        rows = h.rows;
    }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        k = x.k;
        group = rows = x.group;
        if (group) op.begin(p.table, INSERT_NEW, k, x.v);
        return group;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) {
        bool more = InsertJob::round(g, active);
        if (!MERGES && active && !more && op.outcome == ADDED && (rows & rows - 1)) { // the first value is in as it is; then come the others
            tally.note(op);
            rows &= rows - 1;
            op.begin(p.table, INSERT_NEW, k, op.v);
            return true;
        }
        return more;
    }
    __device__ __forceinline__ void done(u64 i) {
        tally.note(op);
        if (op.outcome == PRESENT) {
            value* place = Access<C>::value_at(op.slab, values_of<C>(op.slab), op.slot);
            combine_rows(place, op.found_value(true), op.v, p.rows.values, i, rows);
        }
        bool full = op.outcome == FULL;
        for (u32 g = full || p.rows.attempt ? group : 0; g; g &= g - 1) {
            u64 row = (i & ~31ull) + lowest_bit(g);
            settle(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[row] : row, full, &counters(p.table)->failed);
        }
    }
};
WARPMAP_KERNEL(update, insertParams) {
    UpdateJob job(p);
    drive_held<Tile, u32>(p.rows.n, job, p.rows.span);
    job.tally.end(p.table, job.r);
}
