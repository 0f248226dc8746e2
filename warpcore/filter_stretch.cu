// Large batches into a large filter, stretch by stretch: a block sets the bits of those keys whose blocks lie in its stretch of the filter in shared
// memory, and then in the filter. So memory sees streams alone. Stretches are of the hash's high bits, as blocks are, so a block may lie in two
// stretches: at the ends of a stretch words are changed by atomic operations.
#include "config.h" // struct config: what this filter holds
#include "filter.cuh"
#include "items.cuh"
#include "layout.h"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef FilterProbe<C> Probe;

// A stretch's blocks: those that hashes from part/parts on name, up to the next part's.
struct FilterStretch {
    u64 first, blocks;
    __device__ __forceinline__ FilterStretch(const FilterTable& f, u64 part, u64 parts) {
        first = reduce(begin(part, parts), f.blocks);
        blocks = reduce(part + 1 == parts ? ~0ull : begin(part + 1, parts) - 1, f.blocks) + 1 - first;
    }
    // begin is the least hash of a part: of its higher half the least whose product with parts comes to the part.
    static __device__ __forceinline__ u64 begin(u64 part, u64 parts) { return ((part << 32) + parts - 1) / parts << 32; }
};

WARPMAP_KERNEL(filter_insert_stretch, filterPartitionParams) {
    FilterStretch s(p.filter, block_index(), p.rows.parts);
    u32 *copy = (u32*)dynamic_shared(), words = (u32)s.blocks * C::WORDS;
    u64* to = at<u64>(p.filter.words) + s.first * C::WORDS;
    u64 from = at<u64>(p.rows.starts)[block_index()], end = at<u64>(p.rows.starts)[block_index() + 1];
    if (from == end) return;
    for (u32 i = thread_index(); i < 2 * words; i += block_threads()) store_relaxed(copy + i, 0u);
    block_sync();
    for (u64 i = from + thread_index(); i < end; i += block_threads()) {
        Probe x(p.filter, input_key<C>(p.rows.keys, i));
#pragma unroll
        for (int j = 0; j < Probe::SPREAD; j++) {
            u32* word = copy + 2 * (x.at_word[j] - to);
            u32 low = (u32)x.bits[j], high = (u32)(x.bits[j] >> 32);
            // Of keys that come again and again only the first change a word: who only reads is in nobody's way.
            if (low & ~load_relaxed(word)) or_of(word, low);
            if (high & ~load_relaxed(word + 1)) or_of(word + 1, high);
        }
    }
    block_sync();
    const u64* bits = (const u64*)dynamic_shared();
    for (u32 i = thread_index(); i < words; i += block_threads()) {
        u64 more = load_relaxed(bits + i);
        if (!more) continue;
        if (i < C::WORDS || i >= words - C::WORDS) {
            or_of_memory((u32*)(to + i), (u32)more);
            or_of_memory((u32*)(to + i) + 1, (u32)(more >> 32));
        } else store_memory(to + i, load_memory(to + i) | more);
    }
}
