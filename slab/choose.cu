// Batches with a condition, and FindOrInsert.
#include "jobs.cuh"

constexpr u32 PUT = C::VALUE_BYTES > 0 ? INSERT : INSERT_NEW;

// An attempt at what was refused does not ask again: it is of chosen rows alone.
struct InsertIfJob : InsertJob<PUT> {
    __device__ __forceinline__ InsertIfJob(const insertParams& p) : InsertJob(p) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (p.rows.attempt || at<u8>(p.when)[i]) return InsertJob::begin(i, x);
        if (p.rows.added) at<u8>(p.rows.added)[i] = 0;
        return false;
    }
};
WARPMAP_KERNEL(insert_if, insertParams) {
    InsertIfJob job(p);
    drive<Tile, u32>(p.rows.n, job);
    job.tally.end(p.table, job.r);
}

struct FindIfJob : FindJob {
    __device__ __forceinline__ FindIfJob(const findParams& p) : FindJob(p) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (at<u8>(p.when)[i]) return FindJob::begin(i, x);
        output_value<C>(p.values, i, value{});
        if (p.found) at<u8>(p.found)[i] = 0;
        return false;
    }
};
WARPMAP_KERNEL(find_if, findParams) {
    FindIfJob job(p);
    drive<Tile, u32>(p.n, job);
}

// Gives the value that is there, or puts the one that comes. What is refused gets none: out may be the input, for another attempt.
struct FindOrInsertJob : InsertJob<INSERT_NEW> {
    __device__ __forceinline__ FindOrInsertJob(const insertParams& p) : InsertJob(p) {}
    __device__ __forceinline__ void done(u64 i) {
        InsertJob::done(i);
        if (op.outcome != FULL) output_value<C>(p.rows.out, i, op.outcome == PRESENT ? op.found_value(true) : op.v);
    }
};
WARPMAP_KERNEL(find_or_insert, insertParams) {
    FindOrInsertJob job(p);
    drive<Tile, u32>(p.rows.n, job);
    job.tally.end(p.table, job.r);
}
