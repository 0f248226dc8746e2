// Batches with a condition, and FindOrInsert.
#include "jobs.cuh"

// An attempt at what was refused does not ask again: it is of chosen rows alone.
struct InsertIfJob : InsertJob<true> {
    __device__ __forceinline__ InsertIfJob(const insertParams& p) : InsertJob(p) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& k) { return (p.rows.attempt || at<u8>(p.when)[i]) && InsertJob::begin(i, k); }
};
WARPMAP_KERNEL(insert_if, insertParams) {
    InsertIfJob job(p);
    drive_held<Lane, u32>(p.rows.n, job);
    job.end();
}

// Gives the value that is there, or puts the one that comes. What is refused gets none: out may be the input, for another attempt.
struct FindOrInsertJob : InsertJob<true> {
    u64 row;
    __device__ __forceinline__ FindOrInsertJob(const insertParams& p) : InsertJob(p), row(0) {}
    __device__ __forceinline__ bool begin(u64 i, const Item& k) {
        row = i;
        return InsertJob::begin(i, k);
    }
    __device__ __forceinline__ bool round(Lane, bool active) {
        return active && x.round(p.table, Operation<C>::INSERT, [&](u64 slot, bool free) {
            if (free) put_pair<C>(slot, x.k, v);
            give_value(row_value(p.rows.out, row), slot);
        });
    }
};
WARPMAP_KERNEL(find_or_insert, insertParams) {
    FindOrInsertJob job(p);
    drive_held<Lane, u32>(p.rows.n, job);
    job.end();
}

#if defined(WARPMAP_HOST)
// On the CPU device rows that are not chosen ask for nothing.
template <class Base> struct ChosenJob : Base {
    typedef typename Base::Item Item;
    using Base::Base;
    bool chosen(u64 i) const { return at<u8>(this->p.when)[i]; }
#if !defined(WARPMAP_STRESS)
    void ahead(const Item& x) {
        if (chosen(x.i)) Base::ahead(x);
    }
    void ahead_again(const Item& x) {
        if (chosen(x.i)) Base::ahead_again(x);
    }
#endif
    bool begin(u64 i, const Item& x) {
        if (chosen(x.i)) return Base::begin(i, x);
        Search<C> none;
        none.found = false;
        this->end(x.i, none);
        return false;
    }
};
#endif
WARPMAP_KERNEL(find_if, findParams) {
#if defined(WARPMAP_HOST)
    auto row_of = [](u64 i) { return i; };
    auto end = [&p](u64 i, const Search<C>& s) { answer(p, true, i, s); };
    ChosenJob<LookUpJob<findParams, decltype(row_of), decltype(end)>> job(p, p.keys, row_of, end);
    return drive_held<Lane, u64>(p.n, job);
#endif
    u32 lane = thread_index() & 31;
    for (u64 j = grid_thread() & ~31ull; j < p.n; j += grid_threads()) {
        bool on = j + lane < p.n;
        u64 i = on ? j + lane : p.n - 1;
        Search<C> s;
        s.begin(p.table, Key<C>::of_batch(p.keys, i));
        if (on && at<u8>(p.when)[i])
            while (s.round(p.table)) {}
        answer(p, on, i, s);
    }
}
