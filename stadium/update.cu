// Update: an insert that combines values where the key is there. A program for each operation. An insert holds the access bit of its key's first bucket
// from beginning to end, so it may read, combine and write a value of any alignment, and in host memory, too.
#include "gather.cuh"
#include "jobs.cuh"

__device__ __forceinline__ number_bits number_at(u64 address) { return ValueSeen<C>::load(address); }

// A row of the batch, or several of a row of 32 with one key: its group, which is in or refused together.
struct UpdateJob : InsertJob<true> {
    static constexpr bool GATHERS = true;
    struct Item {
        Key<C> k;
        number_bits v;
        u32 group;
    };
    number_bits number;
    u32 group;
    u64 row;

    __device__ __forceinline__ UpdateJob(const insertParams& p) : InsertJob(p), number(0), group(0), row(0) {}
    __device__ __forceinline__ Item load(u64 i) const {
        return Item{Key<C>::of_batch(keys, i), load_readonly(at<number_bits>(value_at(i))), wanted(p.rows.refused, p.rows.attempt, i) ? own_row(i) : 0};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& y, int from, u64 i) const {
        return Item{y.k.shuffled(warp, from, keys, i), warp.shuffle(y.v, from), warp.shuffle(y.group, from)};
    }
    template <class Warp> __device__ __forceinline__ void gather(Warp warp, Item& y) const {
        gather_rows(warp, y.v, y.group, [&](int from) { return y.k.is_of(warp, from); });
    }
    __device__ __forceinline__ void ahead(const Item& y) const { InsertJob::ahead(y.k); }
    __device__ __forceinline__ void ahead_again(const Item& y) const { InsertJob::ahead_again(y.k); }
    __device__ __forceinline__ bool begin(u64 i, const Item& y) {
        group = y.group;
        if (!group) return false;
        row = i;
        number = y.v;
        find_place(y.k);
        return true;
    }
    __device__ __forceinline__ bool round(Lane, bool active) {
        return active && x.round(p.table, Operation<C>::INSERT, [&](u64 slot, bool free) {
            u64 to = slot + C::VALUE_OFFSET;
            number_bits now = number;
            if (!free) now = merged_rows(number_at(to), number, p.rows.values, row, group);
            else if (!MERGES) now = merged_rows(number, number, p.rows.values, row, group & group - 1); // the first as it is
            if (free) put_key<C>(x.k, slot);
            ValueSeen<C>::store(to, now);
        });
    }
    __device__ __forceinline__ void done(u64 i) {
        bool full = x.outcome == FULL;
        count_added();
        failed += full ? popcount(group) : 0;
        for (u32 g = full || p.rows.attempt ? group : 0; g; g &= g - 1)
            settle_bit(p.rows.refused, p.rows.attempt, position((i & ~31ull) + lowest_bit(g)), full);
    }
};
WARPMAP_KERNEL(update, insertParams) {
    UpdateJob job(p);
    drive_held<Lane, u32>(p.rows.n, job, p.rows.span);
    job.end();
}
