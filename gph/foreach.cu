// ForEach and ForAll: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "gph.cuh"
#include "layout.h"

using namespace gph;

typedef config C;

#include "callback.h" // callback(p, key bits, value bits, index)

// For the pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    tile<GPH_FIND_GROUP, true> g;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        C::key k = i < p.n ? load_readonly(at<C::key>(p.keys) + i) : 0;
        Home<C> h(p.table, k);
        u64 bucket = bucket_of<C>(p.table, h, load_readonly(cell_at<C>(p.table, h.cell(p.table))));
        Hit<C> hit;
        read_bucket<C, !C::PACKED, false>(p.table, g, i < p.n, bucket, h.stored, hit);
        if (hit.found) callback(p, k, value_of<C>(p.table, hit), i);
    }
}

// For every pair of the table.
WARPMAP_KERNEL(for_all, forEachParams) {
    u64 side = (p.table.main + p.table.reserve) * C::BUCKET;
    for (u64 i = grid_thread(); i < side + C::BUCKET; i += grid_threads()) {
        Access<C>::word w = load_relaxed(Access<C>::word_at(p.table.buckets, i));
        C::key k = Access<C>::key_of(w);
        if (C::marks(k)) continue;
        callback(p, C::real(k, i >= side), Access<C>::load_value(p.table.buckets, 0, i, w), i);
    }
}
