// ForEach and ForAll: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "dycuckoo.cuh"
#include "layout.h"

using namespace dycuckoo;

typedef config C;

#include "callback.h" // callback(p, key bits, value bits, index)

// For the pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    tile<1, true> g;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        typename C::key k = load_readonly(at<typename C::key>(p.keys) + i);
        Search<C, false> s;
        s.begin(p.table, k);
        while (s.round(p.table, g, true)) {}
        if (s.found) callback(p, k, s.value(), i);
    }
}

// For every pair of the table.
WARPMAP_KERNEL(for_all, forEachParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        Slot<C> s = slot_at<C>(p.table, i);
        if (s.live) callback(p, s.k, s.load(), i);
    }
}
