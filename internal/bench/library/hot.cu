// Streams of keys of which some come often, made and counted where they are used.
#include "layout.h"
#include "warpmap.cuh"

using namespace library;

// Each rank has a key of its own, of which the host knows the rank, too.
template <class K> __device__ __forceinline__ K key_of(u64 rank) { return (K)rank * (K)HOT_FACTOR; }
template <class K> __device__ __forceinline__ u64 rank_of(K key) { return (K)(key * (K)HOT_INVERSE); }

// Keys are drawn: a segment of ranks by its share of all, and one of its ranks, which come equally often.
template <class K> __device__ __forceinline__ void draw(const hotParams& p) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u64 u = fmix64(p.seed + i), low = 0, high = p.segments; // at<u64>(p.shares)[low] <= u
        while (high - low > 1) {
            u64 mid = (low + high) / 2;
            if (load_readonly(at<u64>(p.shares) + mid) <= u) low = mid;
            else high = mid;
        }
        u64 first = load_readonly(at<u64>(p.firsts) + low), next = load_readonly(at<u64>(p.firsts) + low + 1);
        u64 rank = first + reduce(fmix64(u + p.seed), next - first);
        at<K>(p.keys)[i] = key_of<K>(rank);
        add(at<u32>(p.came) + rank, 1u);
    }
}
WARPMAP_KERNEL(hot_draw4, hotParams) { draw<u32>(p); }
WARPMAP_KERNEL(hot_draw8, hotParams) { draw<u64>(p); }

// The keys of ranks p.first … p.first + p.n - 1.
WARPMAP_KERNEL(hot_keys4, hotParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.keys)[i] = key_of<u32>(p.first + i);
}
WARPMAP_KERNEL(hot_keys8, hotParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u64>(p.keys)[i] = key_of<u64>(p.first + i);
}

// What is said of keys: each came least times at least (0 if p.least is), and most times at most. It counts what is
// wrong, what came p.bound times less than most, or more than that less, and what came more often than p.often.
template <class K> __device__ __forceinline__ void check(const hotParams& p) {
    u64 wrong = 0, far = 0, often = 0;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u64 came = at<u32>(p.came)[rank_of(at<K>(p.keys)[i])], most = at<u64>(p.most)[i];
        wrong += came > most || (p.least && came < at<u64>(p.least)[i]);
        far += came <= most && most - came > p.bound;
        often += came > p.often;
    }
    count_into(at<u64>(p.told), wrong);
    count_into(at<u64>(p.told) + 1, far);
    count_into(at<u64>(p.told) + 2, often);
}
WARPMAP_KERNEL(hot_check4, hotParams) { check<u32>(p); }
WARPMAP_KERNEL(hot_check8, hotParams) { check<u64>(p); }

// How many ranks came more often than p.often.
WARPMAP_KERNEL(hot_often, hotParams) {
    u64 often = 0;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) often += at<u32>(p.came)[i] > p.often;
    count_into(at<u64>(p.told) + 2, often);
}
