// ForEach and ForAll: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "items.cuh"
#include "layout.h"
#include "slab.cuh"

using namespace slab;

typedef config C;
typedef tile<SLAB_GROUP, true> Tile;

#include "callback.h" // callback(p, key bits, value bits, index)

__device__ __forceinline__ C::value value_of(u64 slab, u32 slot, Access<C>::word w) {
    if constexpr (C::VALUE_BYTES == 0) return C::value{};
    else return Access<C>::load_value(slab, values_of<C>(slab), slot, w);
}

struct Call {
    static constexpr bool NUMBERED = true;
    const forEachParams& p;
    C::key k; // of this lane, as the user knows it
    u64 index;
    C::key turns_key; // of the lane whose turn it is
    u64 turns;
    __device__ __forceinline__ void turn(Tile g, int rank) {
        turns_key = g.shuffle(k, rank);
        turns = g.shuffle(index, rank);
    }
    template <class W> __device__ __forceinline__ bool operator()(u64 slab, u32 slot, W w, u32) {
        callback(p, turns_key, value_of(slab, slot, w), turns);
        return true;
    }
};

// For every pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    Tile g;
    FOR_EACH_ITEM(i, p.n) {
        bool active = i < p.n;
        Call call{p, active ? load_readonly(at<C::key>(p.keys) + i) : 0, i, 0, 0};
        Sweep<C> s;
        for (s.begin(p.table, call.k); g.any_of_all(active);) active = s.round(p.table, g, active, call);
    }
}

// For every pair of the table: each lane walks the chain of a bucket.
WARPMAP_KERNEL(for_all, forEachParams) {
    for (u64 b = grid_thread(); b < p.n; b += grid_threads())
        for (Walk<C> w(p.table, b); w.next(p.table);) callback(p, C::real(w.stored(), b == p.table.buckets), value_of(w.slab, w.slot, w.word), b);
}
