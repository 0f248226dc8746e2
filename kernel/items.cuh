// The items of a batch: columns that kernels read and write, and the order in which a grid goes through them.
//
// C is the config of a table: its types key and value, and VALUE_BYTES, which is 0 for a set.
#pragma once
#include "pairs.cuh"
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

// ordered_row reads a row that a partition brought in order: of two columns, or a pair. ordered_key and ordered_value read one half of it.
template <class C, class Rows> __device__ __forceinline__ void ordered_row(const Rows& r, u64 i, typename C::key& k, typename C::value& v) {
    typedef PairedRow<typename C::key, typename C::value> P;
    if constexpr (P::IS && C::VALUE_BYTES > 0)
        if (r.paired) {
            typename P::word w = load_readonly(at<typename P::word>(r.keys) + i);
            k = P::key(w);
            v = P::value(w);
            return;
        }
    k = input_key<C>(r.keys, i);
    v = input_value<C>(r.values, i);
}

template <class C, class Rows> __device__ __forceinline__ typename C::key ordered_key(const Rows& r, u64 i) {
    typedef PairedRow<typename C::key, typename C::value> P;
    if constexpr (P::IS && C::VALUE_BYTES > 0)
        if (r.paired) return P::key(load_readonly(at<typename P::word>(r.keys) + i));
    return input_key<C>(r.keys, i);
}
template <class C, class Rows> __device__ __forceinline__ typename C::value ordered_value(const Rows& r, u64 i) {
    typedef PairedRow<typename C::key, typename C::value> P;
    if constexpr (P::IS && C::VALUE_BYTES > 0)
        if (r.paired) return P::value(load_readonly(at<typename P::word>(r.keys) + i));
    return input_value<C>(r.values, i);
}

// A warp's lanes take the items first … first+31; all lanes stay until the last item.
#define FOR_EACH_ITEM(i, n) \
    for (u64 i = grid_thread(); (i & ~31ull) < (n); i += grid_threads())

// The same, but a block takes span items in a row. Blocks begin in their order, so at any time the GPU works on one
// stretch of the items, of as many as its resident blocks take.
// On the CPU device a launch may name no span: then it is FOR_EACH_ITEM.
#if defined(WARPMAP_HOST)
#define FOR_EACH_ITEM_IN_ORDER(i, n, span)                                                                                  \
    for (u64 span_ = (span), i = span_ ? block_index() * span_ + thread_index() : grid_thread(),                           \
             end_ = span_ ? span_end(span_, n) : (n), step_ = span_ ? block_threads() : grid_threads(); (i & ~31ull) < end_; \
         i += step_)
#else
#define FOR_EACH_ITEM_IN_ORDER(i, n, span)                                                                                 \
    for (u64 i = block_index() * (span) + thread_index(), end_ = span_end(span, n); (i & ~31ull) < end_; i += block_threads())
#endif
__device__ __forceinline__ u64 span_end(u64 span, u64 n) {
    u64 end = (block_index() + 1) * span;
    return end < n ? end : n;
}

// Whether lanes work alone, one item each: on the CPU device, where a warp's lanes cost time to bring together.
#if defined(WARPMAP_HOST)
template <class Tile> constexpr bool ALONE = Tile::LANES == 1;
// Whether one lane of a block does the work of all: then nobody else is in its way, and what lanes do together costs more than it saves.
#if defined(WARPMAP_STRESS)
template <class Tile> constexpr bool ONE_BY_ONE = false;
#else
template <class Tile> constexpr bool ONE_BY_ONE = ALONE<Tile>;
#endif
// How many items ahead of the one that it works on a lane asks for memory.
const u64 AHEAD = 16;
#else
template <class Tile> constexpr bool ALONE = false;
template <class Tile> constexpr bool ONE_BY_ONE = false;
#endif

// Where a thread's items begin and end, and how far apart they are.
struct Stretch {
    u64 start, stride, n;
    // A block's own items.
    static __device__ __forceinline__ Stretch of_block(u64 items) { return Stretch{thread_index(), block_threads(), items}; }
    // alone is for lanes that work alone, on the CPU device: the first lane of a block takes as many in a row as are a block's share. In stress mode each
    // lane has some.
    static __device__ __forceinline__ Stretch alone(u64 items) {
#if !defined(WARPMAP_HOST)
        return Stretch(items, 0);
#else
#if defined(WARPMAP_STRESS)
        if (!host::contiguous()) return Stretch(grid_thread(), grid_threads(), items);
        u64 mine = grid_thread(), all = grid_threads();
#else
        if (thread_index() != 0) return Stretch(0, 1, 0);
        u64 mine = block_index(), all = grid_blocks();
#endif
        u64 share = (items + all - 1) / all, first = mine * share, end = first + share;
        return Stretch(first, 1, end < items ? end : items);
#endif
    }
    __device__ __forceinline__ Stretch(u64 start, u64 stride, u64 n) : start(start), stride(stride), n(n) {}
    __device__ __forceinline__ Stretch(u64 items, u64 span) : start(grid_thread()), stride(grid_threads()), n(items) {
        if (!span) return;
        start = block_index() * span + thread_index();
        stride = block_threads();
        if (n > (block_index() + 1) * span) n = (block_index() + 1) * span;
    }
};

// Items that the lanes of a Tile take. Lanes that work alone take a block's items in a row: FOR_EACH_ITEM_BY is FOR_EACH_ITEM for them.
#if defined(WARPMAP_HOST)
template <class Tile> inline Stretch items_by(u64 n) {
    if constexpr (ALONE<Tile>) return Stretch::alone(n);
    else return Stretch(grid_thread(), grid_threads(), (n + 31) & ~31ull);
}
#define FOR_EACH_ITEM_BY(TILE, I, ITEMS)                                                                  \
    for (Stretch items_ = items_by<TILE>(ITEMS); items_.start < items_.n; items_.start += items_.stride) \
        if (const u64 I = items_.start; true)
#define FOR_EACH_ITEM_IN_ORDER_BY(Tile, i, n, span) FOR_EACH_ITEM_BY(Tile, i, n)
#else
#define FOR_EACH_ITEM_BY(Tile, i, n) FOR_EACH_ITEM(i, n)
#define FOR_EACH_ITEM_IN_ORDER_BY(Tile, i, n, span) FOR_EACH_ITEM_IN_ORDER(i, n, span)
#endif
