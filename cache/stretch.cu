// Large batches, stretch by stretch: a block takes the buckets of a stretch into shared memory, puts the rows in whose
// buckets they are, and writes the buckets back. So memory sees streams alone, and who takes turns with a lock waits for
// no memory. The program is compiled with WARPMAP_SHARED: atomic operations are a block's own.
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "layout.h"
#include "counts.cuh"
#include "together.cuh"

using namespace cache;

typedef config C;
typedef config::key key;
typedef config::value value;

// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<CACHE_GROUP, true> Tile;

static_assert(C::PAIRED, "values that lie apart stay where they are");

// What a block has in shared memory beside its buckets: a tile of rows, of which one comes for all that have its key,
// and how many rows that is.
struct Stage {
    Together<key, CACHE_STRETCH_TILE> rows;
    u32 count[CACHE_STRETCH_TILE];
};
static_assert(sizeof(Stage) <= CACHE_STRETCH_BESIDE, "as the host expects");

// append_out gives each lane that wants one the next row for a pair that goes out. All lanes of the warp must reach it.
__device__ __forceinline__ u64 append_out(u64* counter, bool wanted) {
#if defined(WARPMAP_HOST)
    return wanted ? add_in_memory(counter, (u64)1) : 0;
#else
    tile<32> warp;
    u32 all = warp.ballot(wanted), before = (1u << warp.rank()) - 1;
    if (!all) return 0;
    u64 first = 0;
    if (warp.rank() == 0) first = add_in_memory(counter, (u64)popcount(all));
    return warp.shuffle(first, 0) + (u64)popcount(all & before);
#endif
}

WARPMAP_KERNEL(put_stretch, stretchParams) {
    __shared__ Stage stage;
    Tile g;
    const putParams& q = p.put;
    const u64* starts = at<u64>(p.rows.starts) + block_index();
    u64 first = load_readonly(starts), end = load_readonly(starts + 1);
    if (first == end) return;
    u64 from = block_index() << p.shift, left = q.table.count - from;
    u32 buckets = left < 1ull << p.shift ? (u32)left : 1u << p.shift, words = buckets * (C::BUCKET_BYTES / 16);
    u128 *copy = dynamic_shared(), *memory = at<u128>(q.table.buckets + from * C::BUCKET_BYTES);
    for (u32 i = thread_index(); i < words; i += block_threads()) copy[i] = load_readonly(memory + i);
    Counts counts;
    for (; first < end; first += CACHE_STRETCH_TILE) {
        u32 n = end - first < CACHE_STRETCH_TILE ? (u32)(end - first) : CACHE_STRETCH_TILE;
        block_sync(); // all are done with the tile before
        stage.rows.clear();
        stage.rows.load(at<key>(p.rows.keys) + first, n);
        for (u32 i = thread_index(); i < n; i += block_threads()) stage.count[i] = 0;
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            u32 one = p.each ? i : stage.rows.first_of(i, (u32)hash64<C::HASH>(stage.rows.k[i], q.table.seed));
            add(&stage.count[one], 1u);
        }
        block_sync();
        for (u32 i = thread_index(); (i & ~31u) < n; i += block_threads()) {
            u32 weight = i < n ? stage.count[i] : 0;
            bool busy = weight > 0;
            key k = busy ? stage.rows.k[i] : 0;
            value v = busy ? paired_input<C>(p.rows.values, first + i) : value{};
            u32 score = new_score<C>((u32)q.now, 0, 0, weight);
            Home<C> h(q.table, k);
            h.bucket = (u64)copy + (busy ? h.number - from : 0) * C::BUCKET_BYTES;
            while (any_busy(g, busy)) {
                u32 version = 0;
                Place<C> x{};
                bool got = busy && lock<false>(h.bucket, version, false);
                if (got) x = choose<C>(h, version, k, score, false, q.time, q.out_count != 0);
                bool out = got && q.out_count && (x.fate == EVICTS || x.fate == IS_REFUSED);
                u64 to = append_out(at<u64>(q.out_count), out);
                if (out) {
                    bool old = x.fate == EVICTS;
                    at<key>(q.out_keys)[to] = old ? key_of<C>(x.old) : k;
                    if (q.out_scores) at<u32>(q.out_scores)[to] = old ? x.score : score;
                    paired_output<C>(q.out_values, to, old ? value_of<C>(x.old) : v);
                }
                if (!got) continue;
                settle<C, false>(h, x, k, v, score, false, (u32)q.now, expiry_of<C>(q.time, q.life, 0, 0), weight);
                unlock(h.bucket, version);
                counts.count(CACHE_INSERT, x.fate);
                counts.updated += weight - 1;
                busy = false;
            }
        }
    }
    block_sync();
    for (u32 i = thread_index(); i < words; i += block_threads()) memory[i] = copy[i];
    counts.end(counters(q.table));
}
