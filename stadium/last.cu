// The last slots of a large table. Rows that have found no room near the bucket of their key go through the whole board,
// a lane to a row, which reads several buckets at once. The kernels of kernels.cu would have fewer lanes for that.
#include "jobs.cuh"

template <bool REPLACE> __device__ __forceinline__ void insert_last(const insertParams& p) {
    InsertJob<REPLACE, false, true> job(p);
    drive_held<Lane, u32>(p.rows.n, job, p.rows.span);
    job.end();
}
WARPMAP_KERNEL(insert_last, insertParams) { insert_last<true>(p); }
WARPMAP_KERNEL(insert_last_new, insertParams) { insert_last<false>(p); }
