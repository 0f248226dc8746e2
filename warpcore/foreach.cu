// ForEach and ForAll: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "layout.h"
#include "warpcore.cuh"
#if WARPCORE_BUCKETS
#include "multibucket.cuh"
#endif

using namespace warpcore;

typedef config C;
#if WARPCORE_BUCKETS
typedef BucketSlots<C> S; // what a slot is
#else
typedef C S;
#endif

#include "callback.h" // callback(p, key bits, value bits, index)

struct Call {
    static constexpr bool VISITS = true, PLACES = true, HIT = false, WRITES = false;
    const forEachParams& p;
    u64 index; // of this lane's key
    u64 turns; // of the key whose turn it is
    template <class Tile> __device__ __forceinline__ void turn(Tile g, int rank) { turns = g.shuffle(index, rank); }
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64 values, u64 at_slot, W w, u32) {
        typename C::key k = C::real(Access<S>::key_of(w), slots == p.table.side.slots);
        Held<S>::each(slots, values, at_slot, w, [&](typename C::value v) { callback(p, k, v, turns); });
    }
};

// For every pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    tile<WARPCORE_FIND_GROUP, true> g;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        typename C::key k = i < p.n ? load_readonly(at<typename C::key>(p.keys) + i) : 0;
        Call call{p, i, i};
        search_each<S, true>(p.table, g, i < p.n, k, call);
    }
}

// For every pair of the table.
WARPMAP_KERNEL(for_all, forEachParams) {
    for (u64 i = grid_thread(); i < slot_count<S>(p.table); i += grid_threads()) {
        Slot<S> s = slot_at<S>(p.table, i);
        if (s.live) Held<S>::each(s.slots, s.values, s.index, s.word, [&](typename C::value v) { callback(p, s.k, v, i); });
    }
}
