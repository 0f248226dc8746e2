// A cuckoo filter's bulk operations: a key to a lane.
#include "config.h" // struct config: what this filter holds
#include "cuckoo.cuh"
#include "drive.cuh"
#include "layout.h"
#include "partition.cuh"
#include "refused.cuh"

using namespace cuckoo;

typedef config C;
typedef config::key key;
typedef Shape<C> S;

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// On the CPU device lanes work alone (in stress mode they do what a GPU's do), and the buckets of later keys are asked
// for before they are needed.
template <bool WRITES, class Each> struct KeyJob {
    typedef key Item;
    const batchParams& p;
    Each each;
    Place<C> place;
    KeyJob(const batchParams& p, Each each) : p(p), each(each) {}
    Item load(u64 i) const { return input_key<C>(p.rows.keys, i); }
    void ahead(const Item& k) const {
        u64 bucket = (u64)Place<C>(p.table, k).first();
        if (WRITES) prefetch_to_write(bucket);
        else prefetch_line(bucket);
    }
    bool begin(u64, const Item& k) {
        place = Place<C>(p.table, k);
        return true;
    }
    bool round(tile<1>, bool) const { return false; }
    void done(u64 i) { each(i, place); }
};
#endif

// for_each_key calls each(row, place) for every row. With a span, a block takes so many rows in a row.
template <bool WRITES, class Each> __device__ __forceinline__ void for_each_key(const batchParams& p, Each each) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    KeyJob<WRITES, Each> job(p, each);
    drive_held<tile<1>, u64>(p.rows.n, job);
#else
    for (Stretch s(p.rows.n, p.rows.span); s.start < s.n; s.start += s.stride)
        each(s.start, Place<C>(p.table, input_key<C>(p.rows.keys, s.start)));
#endif
}

WARPMAP_KERNEL(insert, batchParams) {
    for_each_key<true>(p, [&p](u64 i, const Place<C>& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return;
        bool in = insert_tag<C>(x.window, x.bucket, x.tag);
        u64 position = p.rows.positions ? at<u32>(p.rows.positions)[i] : i;
        settle(p.rows.refused, p.rows.attempt, position, !in, at<u64>(p.failed));
    });
}

// Nothing but deletions runs beside this kernel, so no tag moves.
WARPMAP_KERNEL(erase, batchParams) {
    for_each_key<true>(p, [&p](u64 i, const Place<C>& x) {
        bool out = erase_at<C>(x);
        if (p.rows.added) at<u8>(p.rows.added)[i] = out;
    });
}

// Nothing is changed beside this kernel, so a bucket may come from any cache. A lane has several keys under way.
WARPMAP_KERNEL(contains, batchParams) {
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
    for_each_key<false>(p, [&p](u64 i, const Place<C>& x) {
        Bucket<C> home = load_bucket<C>(x.first());
        at<u8>(p.rows.added)[i] = home.has(x.tag) || (home.marked(x.tag) && load_bucket<C>(x.second()).has(x.tag));
    });
#else
    constexpr int EACH = CUCKOO_EACH;
    const u64 stride = (u64)EACH * block_threads();
    for (u64 first = block_index() * stride; first < p.rows.n; first += stride * grid_blocks()) {
        u64 row[EACH];
        bool on[EACH], found[EACH], away[EACH];
        key k[EACH];
        Place<C> x[EACH];
        Bucket<C> b[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            row[j] = first + (u64)j * block_threads() + thread_index();
            on[j] = row[j] < p.rows.n;
            k[j] = on[j] ? input_key<C>(p.rows.keys, row[j]) : key{};
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            x[j] = Place<C>(p.table, k[j]);
            b[j] = load_bucket_readonly<C>(x[j].first());
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            found[j] = b[j].has(x[j].tag);
            away[j] = !found[j] && b[j].marked(x[j].tag);
            load_bucket_readonly_if<C>(away[j], x[j].second(), b[j]);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (on[j]) at<u8>(p.rows.added)[row[j]] = found[j] || (away[j] && b[j].has(x[j].tag));
    }
#endif
}

// Brings keys in the order of the regions that their windows lie in: stretches of windows, as both are of the hash's
// high bits. Or in that of their windows, in two passes.
__device__ __forceinline__ auto region_of(const partitionParams& p) {
    return [&p](key k) {
        u64 h = hash64<C::HASH>(k, p.table.seed);
        if (!p.by_window) return (u32)((h >> 32) * (u32)p.rows.parts >> 32);
        u32 window = (u32)window_of<C>(p.table, reduce(h, p.table.windows), tag_of<C>(h));
        return p.rows.within ? window : window / (u32)p.rows.parts;
    };
}
WARPMAP_PARTITION(partitionParams, key, u32, u32, region_of)
WARPMAP_PARTITION_WITHIN(partitionParams, key, u32, region_of)

// tag_in gives the tag in a slot of a bucket's word.
__device__ __forceinline__ u32 tag_in(u64 word, int s) { return (u32)(word >> s * S::TAG) & S::TAGS; }

// Counts tags, and the pairs of a bucket and a tag that a look-up finds: in the bucket, or by its mark in the other.
// Each tag that stands somewhere makes one pair with its bucket, and perhaps one with its other bucket; of equal tags
// in a bucket the first counts.
WARPMAP_KERNEL(stats, statsParams) {
    u64 tags = 0, pairs = 0, marks = 0, all = (p.table.windows << p.table.spent) * p.table.buckets;
    for (u64 i = grid_thread(); i < all; i += grid_threads()) {
        u64 number = i / p.table.buckets;
        Window<C> w = window_at<C>(p.table, number);
        u32 bucket = (u32)(i - number * p.table.buckets);
        Bucket<C> b = load_bucket<C>(w.at(bucket));
#pragma unroll
        for (int word = 0; word < S::WORDS; word++) {
            u64 set = b.w[word] & ~(~0ull >> S::marks_in(word));
            marks += (u32)popcount((u32)(set >> 32));
#pragma unroll 1
            for (int s = 0; s < S::slots_in(word); s++) {
                u32 tag = tag_in(b.w[word], s);
                if (!tag) continue;
                tags++;
                bool before = Bucket<C>::slot(word, b.w[word], tag) < (u32)(s * S::TAG);
#pragma unroll
                for (int j = 0; j < word; j++) before |= Bucket<C>::slot(j, b.w[j], tag) < 64;
                if (before) continue;
                Bucket<C> o = load_bucket<C>(w.at(w.other(bucket, tag)));
                pairs += 1 + (!o.has(tag) && o.marked(tag));
            }
        }
    }
    Sums* sums = at<Sums>(p.sums);
    count_into(&sums->tags, tags);
    count_into(&sums->marks, marks);
    count_into(&sums->pairs, pairs);
}

// Puts the tags of another filter in, each into the bucket of the same number, or its other one. The other filter's
// windows are each one of this filter's, or as many as it spends more bits of the tag. Marks go to all of them.
WARPMAP_KERNEL(merge, mergeParams) {
    u64 all = (p.from.windows << p.from.spent) * p.from.buckets, refused = 0;
    u32 more = p.to.spent - p.from.spent;
    for (u64 i = grid_thread(); i < all; i += grid_threads()) {
        u64 number = i / p.from.buckets, base = number >> p.from.spent;
        u32 bucket = (u32)(i - number * p.from.buckets);
        Bucket<C> b = load_bucket<C>(window_at<C>(p.from, number).at(bucket));
        for (u64 j = 0; j < 1ull << more; j++) {
            u64* to = window_at<C>(p.to, number << more | j).at(bucket);
#pragma unroll
            for (int word = 0; word < S::WORDS; word++) {
                u64 set = b.w[word] & ~(~0ull >> S::marks_in(word));
                if (set) or_of(to + word, set);
            }
        }
#pragma unroll 1
        for (int word = 0; word < S::WORDS; word++) {
            u64 of = load_relaxed(window_at<C>(p.from, number).at(bucket) + word);
#pragma unroll 1
            for (int s = 0; s < S::slots_in(word); s++) {
                u32 tag = tag_in(of, s);
                if (tag) refused += !insert_tag<C>(window_at<C>(p.to, window_of<C>(p.to, base, tag)), bucket, tag);
            }
        }
    }
    count_into(at<u64>(p.failed), refused);
}
