// Large batches, window by window: a block takes a window into shared memory, puts those keys in, or takes them out,
// whose window it is, and writes it back. So memory sees streams alone. Lanes go by the same steps as in memory.
#include "config.h" // struct config: what this filter holds
#include "cuckoo.cuh"
#include "items.cuh"
#include "layout.h"

using namespace cuckoo;

typedef config C;
typedef config::key key;

// for_each_of_window calls each(window, row, place) for every row of the block's window, which has a copy in shared
// memory, and behind that a version.
template <class Each> __device__ __forceinline__ void for_each_of_window(const stretchParams& p, Each each) {
    u64 from = at<u64>(p.rows.starts)[block_index()], end = at<u64>(p.rows.starts)[block_index() + 1];
    if (from == end) return;
    u128* copy = dynamic_shared();
    u32 words = p.table.buckets * C::WORDS / 2; // of 16 bytes
    u128* memory = at<u128>(p.table.words) + block_index() * words;
    Window<C> w{(u64*)copy, (u32*)(copy + words), p.table.buckets};
    for (u32 i = thread_index(); i < words; i += block_threads()) copy[i] = load_readonly(memory + i);
    if (thread_index() == 0) *w.version = 0;
    block_sync();
    for (u64 i = from + thread_index(); i < end; i += block_threads())
        each(w, i, Place<C>(p.table, input_key<C>(p.rows.keys, i)));
    block_sync();
    for (u32 i = thread_index(); i < words; i += block_threads()) memory[i] = copy[i];
}

WARPMAP_KERNEL(insert_stretch, stretchParams) {
    for_each_of_window(p, [&p](const Window<C>& w, u64 i, const Place<C>& x) {
        if (insert_tag<C>(w, x.bucket, x.tag)) return;
        u32 position = at<u32>(p.rows.positions)[i];
        or_of_memory(at<u32>(p.refused) + position / 32, 1u << position % 32);
        add_to_memory(at<u64>(p.failed), (u64)1);
    });
}

WARPMAP_KERNEL(erase_stretch, stretchParams) {
    for_each_of_window(p, [](const Window<C>& w, u64, const Place<C>& x) {
        u64 *home = w.at(x.bucket), *away = w.at(w.other(x.bucket, x.tag));
        Bucket<C> b = load_bucket<C>(home);
        if (!take_from<C>(home, b, x.tag) && b.marked(x.tag)) take_from<C>(away, load_bucket<C>(away), x.tag);
    });
}
