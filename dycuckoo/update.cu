// Update: combines the values of keys that are there. A program for each operation. Nothing is put, moved on or erased beside it: see update.go.
#include "gather.cuh"
#include "jobs.cuh"

// A row of the batch, or several of a row of 32 with one key: its group. Rows whose key is absent are set bits of the bitmap, and stay such.
struct CombineJob {
    static constexpr bool GATHERS = true;
    struct Item {
        key k;
        value v;
        u32 group;
    };
    const insertParams& p;
    Search<C, true> s;
    value v;
    u32 group;
    u64 absent;

    __device__ __forceinline__ CombineJob(const insertParams& p) : p(p), v{}, group(0), absent(0) {}
    __device__ __forceinline__ Item load(u64 i) const {
        return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i), wanted(p.rows.refused, p.rows.attempt, i) ? own_row(i) : 0};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from), warp.shuffle(x.group, from)};
    }
    template <class Warp> __device__ __forceinline__ void gather(Warp warp, Item& x) const {
        gather_rows(warp, x.v, x.group, [&](int from) { return warp.shuffle(x.k, from) == x.k; });
    }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        v = x.v;
        group = x.group;
        if (group) s.begin(p.table, x.k);
        return group;
    }
    __device__ __forceinline__ bool round(FindTile g, bool active) { return s.round(p.table, g, active); }
    __device__ __forceinline__ void done(u64 i) {
        u32* refused = at<u32>(p.rows.refused) + i / 32;
        if (s.found) combine_rows(Cells<C>::value_place(s.bucket(p.table), s.slot), s.value(), v, p.rows.values, i, group);
        else absent += popcount(group);
        if (s.found && p.rows.attempt) and_of(refused, ~group);
        if (!s.found && !p.rows.attempt) or_of(refused, group);
    }
};
WARPMAP_KERNEL(combine, insertParams) {
    CombineJob job(p);
    drive_held<FindTile, u32>(p.rows.n, job);
    count_into(&counters(p.table)->failed, job.absent);
}
