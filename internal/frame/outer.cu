// The outer form of FindAll (outer.go): what is done beside a family's own kernels.
#include "layout.h"
#include "warpmap.cuh"

using namespace frame;

// Which keys have values, and one of these, to lend what it put aside.
WARPMAP_KERNEL(outer_found, outerParams) {
    const auto& r = p.rows;
    for (u64 i = grid_thread(); i < r.n; i += grid_threads()) {
        bool has = at<u32>(r.counts)[i] != 0;
        at<u8>(r.found)[i] = has;
        if (has && !load_relaxed(at<u64>(p.lends))) store_relaxed(at<u64>(p.lends), i + 1);
    }
}

// The others get one value, and borrow.
WARPMAP_KERNEL(outer_counts, outerParams) {
    const auto& r = p.rows;
    u64 lender = *at<u64>(p.lends);
    for (u64 i = grid_thread(); i < r.n; i += grid_threads()) {
        if (at<u8>(r.found)[i]) continue;
        at<u32>(r.counts)[i] = 1;
        if (!r.stash || !lender) continue;
        for (u64 w = 0; w < p.stash; w++) at<u32>(r.stash)[i * p.stash + w] = at<u32>(r.stash)[(lender - 1) * p.stash + w];
    }
}

template <class V> __device__ __forceinline__ void outer_values(const outerParams& p, V none) {
    const auto& r = p.rows;
    bool empty = !*at<u64>(p.lends);
    for (u64 i = grid_thread(); i < r.n; i += grid_threads()) {
        if (empty) at<u64>(r.offsets)[i] = i;
        if (!at<u8>(r.found)[i]) at<V>(r.values)[empty ? i : at<u64>(r.offsets)[i]] = none;
    }
}
WARPMAP_KERNEL(outer_values, outerParams) {
    if (p.rows.outer == 4) outer_values<u32>(p, (u32)p.rows.none[0]);
    else if (p.rows.outer == 8) outer_values<u64>(p, p.rows.none[0]);
    else outer_values<u128>(p, u128{p.rows.none[0], p.rows.none[1]});
}
