// The runs of a warp's rows: neighbouring rows with one key, as partition_group leaves them. A row is a lane's.
#pragma once
#include "warp.cuh"

struct Runs {
    u32 heads; // a bit for each row that has another key than the row before
    u32 ends;  // and for each behind which a run ends: heads, and rows that are left out
    u32 rows;  // that are in a run

    // on: the row is in a run. All lanes must come.
    template <class Warp, class K> __device__ __forceinline__ Runs(Warp warp, K k, bool on) {
        u32 lane = (u32)warp.rank();
        rows = warp.ballot(on);
        K before = warp.shuffle(k, lane ? lane - 1 : 0);
        bool goes_on = lane > 0 && (rows >> (lane - 1) & 1) && before == k;
        heads = warp.ballot(on && !goes_on);
        ends = heads | ~rows;
    }
    // The lane that heads a lane's run, and the bits of the run of a lane that heads one.
    __device__ __forceinline__ int head(u32 lane) const { return highest_bit(heads & (2u << lane) - 1); }
    __device__ __forceinline__ u32 of(u32 head) const {
        u32 behind = ends & ~((2u << head) - 1);
        return (behind ? (behind & 0u - behind) - 1 : ~0u) & ~((1u << head) - 1);
    }
};
