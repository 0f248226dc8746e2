// drive and drive_held keep the lanes of a warp at work on a batch whose items take different time: a lane that is done with its
// item gets the next at once.
//
// They run a job's items 0 … items-1, numbered by I. The job's load(i) gives an item; begin(i, item) starts it, false if there is
// nothing to do; round(tile, active) goes on; done(i) ends it. With a span, a block takes so many items in a row; blocks begin in
// their order, so at any time a GPU works on one stretch of them.
//
// The two differ in where a warp keeps the items that it has loaded ahead. One loop for both was tried, and is not as good for
// either: the compiler then gives more registers to some kernels, and fewer of their blocks are resident.
#pragma once
#include "items.cuh"

// Where a thread's items begin and end, and how far apart they are.
struct Stretch {
    u64 start, stride, n;
    // A block's own items.
    static __device__ __forceinline__ Stretch of_block(u64 items) { return Stretch{thread_index(), block_threads(), items}; }
    __device__ __forceinline__ Stretch(u64 start, u64 stride, u64 n) : start(start), stride(stride), n(n) {}
    __device__ __forceinline__ Stretch(u64 items, u64 span) : start(grid_thread()), stride(grid_threads()), n(items) {
        if (!span) return;
        start = block_index() * span + thread_index();
        stride = block_threads();
        if (n > (block_index() + 1) * span) n = (block_index() + 1) * span;
    }
};

// Lanes that work alone take one item after the other.
template <class Tile, class Job> __device__ __forceinline__ void drive_alone(const Stretch& s, Job& job) {
    Tile g;
    for (u64 i = s.start; i < s.n; i += s.stride) {
        if (!job.begin(i, job.load(i))) continue;
        while (job.round(g, true)) {}
        job.done(i);
    }
}

// drive keeps two rows of items in shared memory, where each lane finds its own; the third is on its way.
template <class Tile, class I, class Job> __device__ __forceinline__ void drive(u64 items, Job& job, u64 span = 0) {
    typedef typename Job::Item Item;
    Stretch s(items, span);
    if constexpr (ALONE<Tile>) drive_alone<Tile>(s, job);
    else {
        Tile g;
        tile<32, true> warp;
        Feed<I> feed((I)s.n);
        feed.row = (I)s.start & ~(I)31;
        feed.stride = (I)s.stride;
        __shared__ Item rows[WARPMAP_MAX_THREADS / 32][64];
        Item* ring = rows[thread_index() / 32];
        u32 lane = (u32)warp.rank(), now = 0; // where the row begins that is given out
        auto load = [&](I i) { return job.load(i < feed.n ? i : feed.n - 1); };
        ring[lane] = load(feed.item());
        ring[lane + 32] = load(feed.ahead());
        Item coming = load(feed.ahead() + feed.stride);
        warp.sync();
        I item = 0, mine = 0;
        bool busy = false;
        for (;;) {
            if (feed.more()) {
                int from;
                bool later, turned;
                bool got = feed.give(!busy, item, from, later, turned);
                if (got) {
                    mine = item;
                    busy = job.begin(mine, ring[(now + (u32)from + (later ? 32 : 0)) & 63]);
                }
                if (turned) {
                    warp.sync(); // the row has been read
                    ring[now + lane] = coming;
                    now ^= 32;
                    coming = load(feed.ahead() + feed.stride);
                    if constexpr (Tile::LANES == 1) warp.sync(); // larger tiles meet in their round
                }
            } else if (!warp.any(busy)) break;
            bool was = busy;
            busy = job.round(g, busy);
            if (was && !busy) job.done(mine);
        }
    }
}

// Whether a job has gather, and GATHERS.
template <class Job, class = void> struct Gathers { static constexpr bool yes = false; };
template <class Job> struct Gathers<Job, decltype((void)Job::GATHERS)> { static constexpr bool yes = Job::GATHERS; };

// drive_held keeps two rows in registers, and gives items by shuffles: for items of few registers, and jobs that shuffle for their
// tiles anyway, and use no shared memory. The job's shuffled(warp, x, from, i) is lane from's x, which is item i. A job with GATHERS sees
// each row before its items are given out: gather(warp, x) changes the 32 items of a row together.
template <class Tile, class I, class Job> __device__ __forceinline__ void drive_held(Stretch s, Job& job) {
    typedef typename Job::Item Item;
    if constexpr (ALONE<Tile>) drive_alone<Tile>(s, job);
    else {
        Tile g;
        tile<32, true> warp;
        Feed<I> feed((I)s.n);
        feed.row = (I)s.start & ~(I)31;
        feed.stride = (I)s.stride;
        auto load = [&](I i) { return i < feed.n ? job.load(i) : Item{}; };
        Item now = load(feed.item()), next = load(feed.ahead());
        if constexpr (Gathers<Job>::yes) job.gather(warp, now);
        I item = 0; // this lane's: give changes it only with a new one
        bool busy = false;
        for (;;) {
            if (feed.more()) {
                int from;
                bool later, turned;
                bool got = feed.give(!busy, item, from, later, turned);
                Item x = job.shuffled(warp, now, from, item);
                if (turned) {
                    if constexpr (Gathers<Job>::yes) job.gather(warp, next);
                    Item y = job.shuffled(warp, next, from, item);
                    if (later) x = y; // by value: a choice between two places would have both in memory
                }
                if (got) busy = job.begin(item, x);
                if (turned) {
                    now = next;
                    next = load(feed.ahead());
                }
            } else if (!warp.any(busy)) break;
            bool was = busy;
            busy = job.round(g, busy);
            if (was && !busy) job.done(item);
        }
    }
}
template <class Tile, class I, class Job> __device__ __forceinline__ void drive_held(u64 items, Job& job, u64 span = 0) {
    drive_held<Tile, I>(Stretch(items, span), job);
}
