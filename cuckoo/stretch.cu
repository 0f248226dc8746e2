// Large batches, window by window: a block takes a window into shared memory, puts those keys in, or takes them out,
// whose window it is, and writes it back. So memory sees streams alone. Lanes go by the same steps as in memory.
#include "config.h" // struct config: what this filter holds
#include "cuckoo.cuh"
#include "items.cuh"
#include "layout.h"

using namespace cuckoo;

typedef config C;
typedef config::key key;

// What a block has in shared memory beside its window, and the window's version: rows whose first bucket was full, by
// their numbers in the stretch; and how many of them have found the second full, too.
struct Waiting {
    u32 n, moves, row[CUCKOO_WAITING];
};
static_assert(sizeof(Waiting) <= CUCKOO_BESIDE, "as the host expects");

// A block's window and its rows.
struct Job {
    const stretchParams& p;
    u64 first; // row
    u32 rows, words; // words of 16 bytes
    Window<C> w; // the copy

    __device__ __forceinline__ Job(const stretchParams& p) : p(p) {
        const u64* starts = at<u64>(p.rows.starts) + block_index();
        first = load_readonly(starts);
        rows = (u32)(load_readonly(starts + 1) - first);
        words = p.table.buckets * C::WORDS / 2;
        u128* copy = dynamic_shared();
        w = Window<C>{(u64*)copy, (u32*)(copy + words), p.table.buckets};
    }
    __device__ __forceinline__ u128* memory() const { return at<u128>(p.table.words) + block_index() * words; }
    __device__ __forceinline__ key key_of(u32 row) const { return input_key<C>(p.rows.keys, first + row); }

    __device__ __forceinline__ u32 position(u32 row) const { return load_readonly(at<u32>(p.rows.positions) + first + row); }

    __device__ __forceinline__ void load() const {
        for (u32 i = thread_index(); i < words; i += block_threads()) dynamic_shared()[i] = load_readonly(memory() + i);
        if (thread_index() == 0) *w.version = 0;
        block_sync();
    }
    __device__ __forceinline__ void store() const {
        for (u32 i = thread_index(); i < words; i += block_threads()) memory()[i] = dynamic_shared()[i];
    }

    // for_each_row calls each(row, on, place) for every row, and now and then for one that is none, which is not on: all
    // lanes of a warp reach it together. A thread asks for several rows at a time, and all threads call then() behind those.
    static constexpr u32 IN_FLIGHT = 4;
    template <class Each, class Then> __device__ __forceinline__ void for_each_row(Each each, Then then) const {
        tile<32, true> warp;
        for (u32 i = 0; i < rows; i += IN_FLIGHT * block_threads()) {
            u32 mine = i + thread_index();
            key k[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++)
                k[j] = mine + j * block_threads() < rows ? key_of(mine + j * block_threads()) : key{};
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = mine + j * block_threads();
                each(row, row < rows, Place<C>(p.table, k[j]));
                warp.sync();
            }
            then();
        }
    }

    // insert_waiting puts those in that wait, if they are so many, and refuses those for which there is no room. All
    // threads call it.
    __device__ __forceinline__ void insert_waiting(Waiting& waiting, u32 least) const {
        block_sync();
        u32 n = waiting.n;
        block_sync(); // before others wait
        if (n < least) return;
        // Those whose second bucket has room are the most. The others are brought together in the front of the list.
        for (u32 first = 0; first < n; first += block_threads()) {
            u32 i = first + thread_index(), row = i < n ? waiting.row[i] : 0;
            Place<C> x(p.table, key_of(row));
            bool moves = i < n && !insert_second<C>(w, x.bucket, x.tag);
            block_sync(); // before others write where a row was read
            u32 to = append(&waiting.moves, moves);
            if (moves) waiting.row[to] = row;
        }
        block_sync();
        n = waiting.moves;
        for (u32 i = thread_index(); i < n; i += block_threads()) {
            u32 row = waiting.row[i];
            Place<C> x(p.table, key_of(row));
            if (insert_moving<C>(w, x.bucket, x.tag)) continue;
            u32 position = this->position(row);
            or_of_memory(at<u32>(p.refused) + position / 32, 1u << position % 32);
            add_to_memory(at<u64>(p.failed), (u64)1);
        }
        block_sync();
        if (thread_index() == 0) waiting.n = waiting.moves = 0;
        block_sync();
    }
};

// Most keys go into their first bucket. Those that find it full wait until there is one for each thread: they take many
// times as long, and the other lanes of a warp would wait for each.
WARPMAP_KERNEL_RESIDENT(insert_stretch, stretchParams, 3) {
    __shared__ Waiting waiting;
    Job job(p);
    if (!job.rows) return;
    if (thread_index() == 0) waiting.n = waiting.moves = 0;
    job.load();
    job.for_each_row([&](u32 row, bool on, const Place<C>& x) {
        u64* home = job.w.at(x.bucket);
        bool waits = on && !put_in<C>(home, load_bucket<C>(home), x.tag);
        u32 to = append(&waiting.n, waits);
        if (waits) waiting.row[to] = row;
    }, [&] { job.insert_waiting(waiting, CUCKOO_WAITING - Job::IN_FLIGHT * block_threads() + 1); });
    job.insert_waiting(waiting, 0);
    job.store();
}

// Keys that are not in are told by bytes of memory at random, for most are in: before, tell_all has said so of all.
WARPMAP_KERNEL(erase_stretch, stretchParams) {
    Job job(p);
    if (!job.rows) return;
    job.load();
    job.for_each_row([&job](u32 row, bool on, const Place<C>& x) {
        if (!on) return;
        u64 *home = job.w.at(x.bucket), *away = job.w.at(job.w.other(x.bucket, x.tag));
        Bucket<C> b = load_bucket<C>(home);
        if (take_from<C>(home, b, x.tag) || (b.marked(x.tag) && take_from<C>(away, load_bucket<C>(away), x.tag))) return;
        if (job.p.told) at<u8>(job.p.told)[job.position(row)] = 0;
    }, [] {});
    block_sync();
    job.store();
}

WARPMAP_KERNEL(tell_all, stretchParams) {
    for (u64 i = grid_thread(); i < p.rows.n; i += grid_threads()) at<u8>(p.told)[i] = 1;
}
