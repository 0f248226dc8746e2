// The items of a batch: columns that kernels read and write, and the order in which a grid goes through them.
//
// C is the config of a table: its types key and value, and VALUE_BYTES, which is 0 for a set.
#pragma once
#include "warpmap.cuh"

template <class C> __device__ __forceinline__ typename C::key input_key(u64 keys, u64 i) {
    return load_readonly(at<typename C::key>(keys) + i);
}
template <class C> __device__ __forceinline__ typename C::value input_value(u64 values, u64 i) {
    if constexpr (C::VALUE_BYTES == 0) return typename C::value{};
    else return load_readonly(at<typename C::value>(values) + i);
}
// A column that is not wanted has the address 0.
template <class C> __device__ __forceinline__ void output_value(u64 values, u64 i, typename C::value v) {
    if constexpr (C::VALUE_BYTES > 0)
        if (values) at<typename C::value>(values)[i] = v;
}

// A warp's lanes take the items first … first+31; all lanes stay until the last item.
#define FOR_EACH_ITEM(i, n) \
    for (u64 i = grid_thread(); (i & ~31ull) < (n); i += grid_threads())

// The same, but a block takes span items in a row. Blocks begin in their order, so at any time the GPU works on one
// stretch of the items, of as many as its resident blocks take.
#define FOR_EACH_ITEM_IN_ORDER(i, n, span)                                                                                 \
    for (u64 i = block_index() * (span) + thread_index(), end_ = span_end(span, n); (i & ~31ull) < end_; i += block_threads())
__device__ __forceinline__ u64 span_end(u64 span, u64 n) {
    u64 end = (block_index() + 1) * span;
    return end < n ? end : n;
}

// Whether lanes work alone, one item each: on the CPU device, where a warp's lanes cost time to bring together.
#if defined(WARPMAP_HOST)
template <class Tile> constexpr bool ALONE = Tile::LANES == 1;
// How many items ahead of the one that it works on a lane asks for memory.
const u64 AHEAD = 32;
#else
template <class Tile> constexpr bool ALONE = false;
#endif
