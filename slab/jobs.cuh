// What the kernels over batches share: the program's table type, its items, and what becomes of each.
#pragma once
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "layout.h"
#include "slab.cuh"

using namespace slab;

typedef config C;
typedef config::key key;
typedef config::value value;
// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<SLAB_GROUP, true> Tile;

// What a job takes of the batch for one item.
struct KeyItem {
    key k;
};
struct PairItem {
    key k;
    value v;
};

// hold_op keeps an operation for later, and asks for the slab that it reads next.
template <bool WRITES, class O> __device__ __forceinline__ void hold_op(O& held, const O& op) {
    held = op;
    ask_slab<WRITES>(op.slab);
}

struct FindJob {
    typedef KeyItem Item;
    const findParams& p;
    Op<C, FIND, false> op;
    Resident none;
    __device__ __forceinline__ FindJob(const findParams& p) : p(p) { op.rest(p.table); }
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.keys, i)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, false>(p.table, x.k); }
    typedef Op<C, FIND, false> Held;
    __device__ __forceinline__ void hold(Held& h) const { hold_op<false>(h, op); }
    __device__ __forceinline__ void resume(const Held& h) { op = h; }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        op.begin(p.table, FIND, x.k, value{});
        return true;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) { return op.round(p.table, g, active, none); }
    __device__ __forceinline__ void done(u64 i) {
        output_value<C>(p.values, i, op.found_value(false));
        if (p.found) at<u8>(p.found)[i] = op.outcome == PRESENT;
    }
};

// The positions of a batch that found no room are set bits of a bitmap. A second attempt does those alone.
__device__ __forceinline__ bool refused(u64 bitmap, u64 i) { return load_relaxed(at<u32>(bitmap) + i / 32) >> (i & 31) & 1; }
__device__ __forceinline__ void set_refused(const Table& t, u64 bitmap, u64 i) {
    or_of(at<u32>(bitmap) + i / 32, 1u << (i & 31));
    add(&counters(t)->failed, (u64)1);
}
__device__ __forceinline__ void clear_refused(u64 bitmap, u64 i) { and_of(at<u32>(bitmap) + i / 32, ~(1u << (i & 31))); }

// What a lane adds to the counters at its end.
struct Tally {
    u32 inserted, reused, linked, erased;
    __device__ __forceinline__ Tally() : inserted(0), reused(0), linked(0), erased(0) {}
    template <class O> __device__ __forceinline__ void note(const O& op) {
        inserted += op.outcome == ADDED;
        reused += op.reused;
        linked += op.linked;
    }
    __device__ __forceinline__ void end(const Table& t, const Resident& r) {
        Counters* c = counters(t);
        block_count<5>({&c->inserted, &c->reused, &c->linked, &c->erased, &c->changes}, {inserted, reused, linked, erased, r.changes > 1 ? r.changes - 1 : 0});
    }
};

template <u32 KIND> struct InsertJob {
    typedef PairItem Item;
    const insertParams& p;
    Op<C, KIND, KIND != INSERT_MULTI> op;
    Resident r;
    Tally tally;
    __device__ __forceinline__ InsertJob(const insertParams& p) : p(p) { op.rest(p.table); }
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    typedef Op<C, KIND, KIND != INSERT_MULTI> Held;
    __device__ __forceinline__ void hold(Held& h) const { hold_op<true>(h, op); }
    __device__ __forceinline__ void resume(const Held& h) { op = h; }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (p.rows.attempt && !refused(p.rows.refused, i)) return false;
        op.begin(p.table, KIND, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) { return op.round(p.table, g, active, r, !p.no_slabs); }
    __device__ __forceinline__ void done(u64 i) {
        tally.note(op);
        if (p.rows.added) at<u8>(p.rows.added)[i] = op.outcome == ADDED;
        if (op.outcome == FULL) {
            if (!p.rows.attempt) set_refused(p.table, p.rows.refused, p.rows.positions ? at<u32>(p.rows.positions)[i] : i);
            else add(&counters(p.table)->failed, (u64)1);
        } else if (p.rows.attempt) clear_refused(p.rows.refused, i);
    }
};
