// drive and drive_held keep the lanes of a warp at work on a batch whose items take different time: a lane that is done with its
// item gets the next at once.
//
// They run a job's items 0 … items-1, numbered by I. The job's load(i) gives an item; begin(i, item) starts it, false if there is
// nothing to do; round(tile, active) goes on; done(i) ends it. With a span, a block takes so many items in a row; blocks begin in
// their order, so at any time a GPU works on one stretch of them.
//
// On the CPU device a lane on its own takes items in a row (Stretch::alone), 16 at a time. Before it begins with these, a job's ahead asks for the memory
// that the next 16 will touch; what takes another round waits until all 16 have had theirs. So the cache misses of 16 items overlap, as those of a
// GPU's warps do.
//
// The two differ in where a warp keeps the items that it has loaded ahead. One loop for both was tried, and is not as good for
// either: the compiler then gives more registers to some kernels, and fewer of their blocks are resident.
#pragma once
#include "items.cuh"

#if defined(WARPMAP_HOST)
// Whether a job has ahead(item): it asks for the memory that the item's begin and first round will touch. Only the CPU device calls it: a GPU has other
// warps to run meanwhile.
template <class Job, class = void> constexpr bool LOOKS_AHEAD = false;
template <class Job> constexpr bool LOOKS_AHEAD<Job, decltype((void)&Job::ahead)> = true;
// Whether it has ahead_again(item), which comes when what ahead asked for is there, and asks for what that leads to.
template <class Job, class = void> constexpr bool LOOKS_AGAIN = false;
template <class Job> constexpr bool LOOKS_AGAIN<Job, decltype((void)&Job::ahead_again)> = true;
// Whether a job has a type Held, which is all that it knows of the item that it works on: hold(held) keeps it and asks for the memory that the next round
// will touch, and resume(held) goes on with it.
template <class Job, class = void> constexpr bool HOLDS_ITEMS = false;
template <class Job> constexpr bool HOLDS_ITEMS<Job, decltype((void)sizeof(typename Job::Held))> = true;

// drive_some works on items of which what they touch first was asked for.
template <class Tile, class Job> inline void drive_some(u64 i, u64 end, u64 stride, Job& job) {
    Tile g;
    if constexpr (HOLDS_ITEMS<Job>) {
        // What takes more than one round goes on when the others have had one, and what it needs is there.
        typename Job::Held held[AHEAD];
        u64 item[AHEAD];
        u32 n = 0;
        for (; i < end; i += stride) {
            if (!job.begin(i, job.load(i))) continue;
            if (job.round(g, true)) {
                job.hold(held[n]);
                item[n++] = i;
            } else job.done(i);
        }
        while (n) {
            u32 left = 0;
            for (u32 j = 0; j < n; j++) {
                job.resume(held[j]);
                if (job.round(g, true)) {
                    job.hold(held[left]);
                    item[left++] = item[j];
                } else job.done(item[j]);
            }
            n = left;
        }
    } else {
        for (; i < end; i += stride) {
            if (!job.begin(i, job.load(i))) continue;
            while (job.round(g, true)) {}
            job.done(i);
        }
    }
}
#endif

// Lanes that work alone take one item after the other. What some of them touch first is asked for while those before them are worked on.
template <class Tile, class Job> __device__ __forceinline__ void drive_alone(const Stretch& s, Job& job) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    if constexpr (LOOKS_AHEAD<Job>) {
        const u64 some = AHEAD * s.stride;
        auto ask = [&](u64 from, u64 to) {
            for (u64 j = from; j < to; j += s.stride) job.ahead(job.load(j));
        };
        auto next = [&](u64 from) { return from < s.n && s.n - from > some ? from + some : s.n; };
        auto ask_again = [&](u64 from, u64 to) {
            if constexpr (LOOKS_AGAIN<Job>)
                for (u64 j = from; j < to; j += s.stride) job.ahead_again(job.load(j));
        };
        u64 to = next(s.start), after = LOOKS_AGAIN<Job> ? next(to) : to;
        ask(s.start, after);
        ask_again(s.start, to);
        for (u64 i = s.start; i < s.n;) {
            u64 last = next(after);
            ask(after, last);
            ask_again(to, after);
            drive_some<Tile>(i, to, s.stride, job);
            i = to;
            to = LOOKS_AGAIN<Job> ? after : last;
            after = last;
        }
        return;
    }
#endif
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
    if constexpr (ALONE<Tile>) drive_alone<Tile>(Stretch::alone(items), job);
    else {
        Stretch s(items, span);
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
                    warp.sync(); // the row can be read: the votes of a round order no memory
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

// How many lanes a job lets wait before they get items, if it has PATIENCE: to give items takes a warp some time, however many get one.
template <class Job, class = void> constexpr u32 PATIENCE_OF = 1;
template <class Job> constexpr u32 PATIENCE_OF<Job, decltype((void)Job::PATIENCE)> = Job::PATIENCE;

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
        if (!feed.n) return;
        // Beyond the end comes the last item again: behind a branch, the compiler would wait for each row at once. Items that are gathered come once.
        auto load = [&](I i) {
            if constexpr (Gathers<Job>::yes) return i < feed.n ? job.load(i) : Item{};
            else return job.load(i < feed.n ? i : feed.n - 1);
        };
        Item now = load(feed.item()), next = load(feed.ahead());
        if constexpr (Gathers<Job>::yes) job.gather(warp, now);
        I item = 0; // this lane's: give changes it only with a new one
        bool busy = false;
        for (;;) {
            if (feed.more() && (PATIENCE_OF<Job> == 1 || (u32)popcount(warp.ballot(!busy)) >= PATIENCE_OF<Job>)) {
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
                    // Each lane shuffles to itself. The compiler would do a plain copy only behind the load, into whose register it goes, and so wait for it.
                    now = job.shuffled(warp, next, warp.rank(), item);
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
    if constexpr (ALONE<Tile>) drive_alone<Tile>(Stretch::alone(items), job);
    else drive_held<Tile, I>(Stretch(items, span), job);
}
