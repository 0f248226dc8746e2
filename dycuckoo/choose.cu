// Batches with a condition; FindOrInsert; and the inserts that it and Update make. See update.go and choose.go.
#include "jobs.cuh"

WARPMAP_KERNEL_RESIDENT(insert_new, insertParams, 4) { insert_batch<false>(p); }
WARPMAP_KERNEL(refine_new, insertParams) { refine_batch<false>(p); }

// Gives the values of keys that are there. Rows whose key is absent are set bits of the bitmap, and stay such.
struct Nothing {};
struct TellJob : LookUpJob<false, Nothing> {
    const insertParams& p;
    u64 absent;
    __device__ __forceinline__ TellJob(const insertParams& p) : LookUpJob(p.table, p.rows.keys, Nothing{}), p(p), absent(0) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& x) { return wanted(p.rows.refused, p.rows.attempt, i) && LookUpJob::begin(i, x); }
    __device__ __forceinline__ void done(u64 i) {
        if (s.found) {
            at<value>(p.rows.out)[i] = s.value();
            if (p.rows.added) at<u8>(p.rows.added)[i] = 0;
        }
        absent += !s.found;
        settle_bit(p.rows.refused, p.rows.attempt, i, !s.found);
    }
};
WARPMAP_KERNEL(tell_values, insertParams) {
    TellJob job(p);
    drive_held<FindTile, u32>(p.rows.n, job);
    count_into(&counters(p.table)->failed, job.absent);
}

// The rows that are chosen, as if they had been refused.
WARPMAP_KERNEL(mark_chosen, insertParams) {
    tile<32> warp;
    u32 lane = (u32)warp.rank();
    for (u64 i = grid_thread() - lane; i < p.rows.n; i += grid_threads()) {
        u32 bits = warp.ballot(i + lane < p.rows.n && at<u8>(p.when)[i + lane < p.rows.n ? i + lane : i]);
        if (lane == 0) at<u32>(p.rows.refused)[i / 32] = bits;
    }
}

struct FindIfJob : LookUpJob<false, Answer> {
    const findParams& p;
    __device__ __forceinline__ FindIfJob(const findParams& p) : LookUpJob(p.table, p.keys, Answer{p}), p(p) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        LookUpJob::begin(i, x);
        if (at<u8>(p.when)[i]) return true;
        end(i, s); // as an absent key
        return false;
    }
};
WARPMAP_KERNEL(find_if, findParams) {
    FindIfJob job(p);
    drive_held<FindTile, u32>(p.n, job);
}
