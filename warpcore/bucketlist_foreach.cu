// ForEach and ForAll of a BucketList: callback.h, made of the user's text, is called for pairs of the table.
#include "config.h"
#include "bucketlist.cuh"
#include "layout.h"

using namespace warpcore;

typedef config C;
typedef listCallbackParams forEachParams;

#include "callback.h" // callback(p, key bits, value bits, index)

// The values of a list that each lane brings, 32 lists at a time.
template <class Warp> __device__ __forceinline__ void call(const forEachParams& p, Warp warp, u64 slot, typename C::key k, u64 index) {
    u32 n = slot ? list::count_at<C>(slot) : 0;
    u64 last = n ? load_relaxed(list::last_at<C>(slot)) : 0;
    list::each_value<C>(p.lists, warp, last, n, [&](bool on, int owner, u32, typename C::value v) {
        typename C::key its = warp.shuffle(k, owner);
        u64 i = warp.shuffle(index, owner);
        if (on) callback(p, its, v, i);
    });
}

// For every pair of every given key that the table has.
WARPMAP_KERNEL(for_each, forEachParams) {
    tile<WARPCORE_FIND_GROUP, true> g;
    tile<32, true> warp;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        typename C::key k = i < p.n ? load_readonly(at<typename C::key>(p.keys) + i) : 0;
        Hit<KeySlots<C>> hit = find_each<KeySlots<C>>(p.lists.keys, g, i < p.n, k);
        call(p, warp, i < p.n && hit.found ? hit.slots + hit.index * C::SLOT_BYTES : 0, k, i);
    }
}

// For every pair of the table.
WARPMAP_KERNEL(for_all, forEachParams) {
    tile<32, true> warp;
    const Table& t = p.lists.keys;
    u64 main = t.main.windows * C::WINDOW, all = main + t.side.windows * C::WINDOW;
    for (u64 i = grid_thread(); (i & ~31ull) < all; i += grid_threads()) {
        u64 slot = i < main ? t.main.slots + i * C::SLOT_BYTES : t.side.slots + (i - main) * C::SLOT_BYTES;
        typename C::key k = i < all ? load_relaxed(at<typename C::key>(slot)) : C::EMPTY;
        call(p, warp, C::marks(k) ? 0 : slot, C::real(k, i >= main), i);
    }
}
