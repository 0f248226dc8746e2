// ForEach and ForAll: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "stadium.cuh"

using namespace stadium;

typedef config C;

#include "callback.h" // callback(p, key bits, value bits, index)

__device__ __forceinline__ void call(const forEachParams& p, u64 slot, u64 index) {
    callback(p, KeySeen<C>::load(slot), ValueSeen<C>::load(slot + C::VALUE_OFFSET), index);
}

// For the pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        Search<C> s;
        s.begin(p.table, Key<C>::of(p.keys + i * C::KEY_BYTES));
        while (s.round(p.table)) {}
        if (s.found) call(p, s.address(p.table), i);
    }
}

// For every pair of the table.
WARPMAP_KERNEL(for_all, forEachParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        if (is_taken<C>(p.table, i)) call(p, slot_at<C>(p.table, i), i);
}
