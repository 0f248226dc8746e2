// Scores by an expression of the user's, which score.h has: score_by(key, value, old, time, hit).
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "layout.h"
#include "score.h"

using namespace cache;

typedef config C;

__device__ __forceinline__ u32 scored(C::key k, const C::value& v, u32 old, u64 now, bool hit) {
    double x = score_by(k, v, old, (u32)now, hit);
    return !(x > 0) ? 0 : x >= 4294967295.0 ? ~0u : (u32)x;
}

// Where p.scores is not 0, it gets the score of each pair that is about to be put. Else the keys were looked up, and what
// is in gets its new score: each look-up has the score that the one before left. No pair moves or goes meanwhile.
WARPMAP_KERNEL(score, scoreParams) {
    FOR_EACH_ITEM_BY(tile<1>, i, p.n) {
        if (i >= p.n) break;
        C::key k = input_key<C>(p.keys, i);
        Home<C> h(p.table, k);
        C::word w{};
        bool over = false;
        u32 slot = slot_of<C, false>(h, load_head(h.bucket), k, w, p.time, over);
        bool hit = slot < WAYS && !over;
        u32 old = hit ? load_relaxed(score_at(h.bucket, slot)) : 0;
        if (p.scores) {
            at<u32>(p.scores)[i] = scored(k, paired_input<C>(p.values, i), old, p.now, hit);
            continue;
        }
        while (hit) {
            u32 now = scored(k, value_of<C>(w), old, p.now, true);
            if (now == old) break;
            u32 was = cas(score_at(h.bucket, slot), old, now);
            if (was == old) break;
            old = was;
        }
    }
}
