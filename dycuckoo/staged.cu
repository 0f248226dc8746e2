// Large batches, stretch by stretch: a block takes one stretch of every subtable into shared memory, inserts the pairs that belong there,
// and writes the stretches back. A pair's two buckets, and those that pairs move on to from there, all lie in them.
//
// So memory sees streams alone, and what is done at random is done in shared memory. A pair takes the next slot of its home, if that never was
// full: whether its key is there, too, is looked at once for the whole bucket, when all have come. So do, in their other buckets, the pairs whose
// home is full. The others are inserted by the same code as elsewhere: the block has a Table of its own, whose addresses are those of
// its copies.
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "dycuckoo.cuh"
#include "layout.h"

using namespace dycuckoo;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef bits_of<DYCUCKOO_FILTER_BITS / 8>::type filter; // of a bucket
typedef tile<DYCUCKOO_STAGED_GROUP, true> StagedTile;
constexpr u32 STRETCH = 1u << DYCUCKOO_LOCAL_BITS; // buckets
constexpr u32 LOCKS = 2 * STRETCH * DYCUCKOO_SUBTABLES, LISTED = DYCUCKOO_STAGED_LIST;

// A list of a block's items. Where it is too short for all, `count` says so, and each item is an entry.
struct Items {
    u32 count, item[LISTED];
    __device__ __forceinline__ void put(u32 i) {
        u32 place = add(&count, 1u);
        if (place < LISTED) item[place] = i;
    }
    __device__ __forceinline__ bool all() const { return count > LISTED; }
    // of is the number of entries, of n items; at is one of them.
    __device__ __forceinline__ u32 of(u32 n) const { return all() ? n : count; }
    __device__ __forceinline__ u32 at(u32 i) const { return all() ? i : item[i]; }
};

// What a block has in shared memory beside its copies of stretches, which are one behind the other, their filters behind all, and behind these
// the Fill of each bucket.
struct Stage {
    Table table;    // of the stretches
    Counters sums;  // what is to be added to the table's
    u64 slots[2 * C::D], filters[2 * C::D]; // where each stretch comes from
    u32 sub[2 * C::D];                      // its subtable
    u32* fills;
    u32 stretches;
    u32 owned; // reserved keys that belong to the region: their buckets of the side are copied too
    u128 side[C::RESERVED * C::BUCKET_BYTES / 16];
    u32 locks[LOCKS / 32];
    Items open, full; // those that are not at home by their Fill, and those whose two buckets are full

    // lay says where everything is: for one thread.
    __device__ __forceinline__ void lay(const stagedParams& p, u64 region) {
        stretches = 0;
        for (u32 i = 0; i < C::D; i++) stretches += (u32)(p.table.sub[i].buckets >> (DYCUCKOO_LOCAL_BITS + p.shift));
        table = p.table;
        u64 to = (u64)dynamic_shared(), filter_to = to + stretches * STRETCH * C::BUCKET_BYTES;
        u32 n = 0;
        for (u32 i = 0; i < C::D; i++) {
            const Subtable& s = p.table.sub[i];
            u32 mine = (u32)(s.buckets >> (DYCUCKOO_LOCAL_BITS + p.shift));
            table.sub[i].slots = to + n * STRETCH * C::BUCKET_BYTES;
            table.sub[i].filter = filter_to + n * STRETCH * sizeof(filter);
            table.sub[i].buckets = mine * STRETCH;
            for (u32 j = 0; j < mine; j++, n++) {
                u64 first = (region | (u64)j << p.shift) * STRETCH;
                sub[n] = i;
                slots[n] = s.slots + first * C::BUCKET_BYTES;
                filters[n] = s.filter + first * sizeof(filter);
            }
        }
        table.shift = p.shift;
        owned = 0;
        for (u32 i = 0; i < C::RESERVED; i++)
            if ((Home<C>(p.table, (key)(C::EMPTY - i)).hi & ((1u << p.shift) - 1)) == region) owned |= 1u << i;
        table.side = (u64)side;
        table.locks = (u64)locks;
        table.lock_mask = LOCKS - 1;
        table.counters = (u64)&sums;
        fills = at<u32>(filter_to + stretches * STRETCH * sizeof(filter));
        open.count = full.count = 0;
    }
    __device__ __forceinline__ u32 buckets() const { return stretches * STRETCH; }
    __device__ __forceinline__ u64 bucket(u32 i) const { return (u64)dynamic_shared() + i * C::BUCKET_BYTES; }
    // each calls act(word in shared memory, word in memory, false) for all words of the copies, and with true for those of their filters.
    template <class Act> __device__ __forceinline__ void each(u64 side_in_memory, Act act) {
        constexpr u32 WORDS = STRETCH * C::BUCKET_BYTES / 16, FILTER_WORDS = STRETCH * sizeof(filter) / 16, SIDE_WORDS = C::BUCKET_BYTES / 16;
        u128* copy = dynamic_shared();
#pragma unroll 4
        for (u32 i = thread_index(); i < stretches * WORDS; i += block_threads()) act(copy + i, at<u128>(slots[i / WORDS]) + i % WORDS, false);
        copy += stretches * WORDS;
        for (u32 i = thread_index(); i < stretches * FILTER_WORDS; i += block_threads())
            act(copy + i, at<u128>(filters[i / FILTER_WORDS]) + i % FILTER_WORDS, true);
        for (u32 i = thread_index(); owned && i < C::RESERVED * SIDE_WORDS; i += block_threads())
            if (owned >> i / SIDE_WORDS & 1) act(side + i, at<u128>(side_in_memory) + i, false);
    }
    __device__ __forceinline__ u64 slot_count() const { return stretches * STRETCH * C::SLOTS; }
    __device__ __forceinline__ Slot<C> slot(u32 i) const {
        u32 sub = 0;
        for (u32 n; i >= (n = (u32)table.sub[sub].buckets * C::SLOTS); sub++) i -= n;
        return slot_of<C>(table.sub[sub], sub, i);
    }
    // refresh sets the filters of stretches that were laid out for another Tilt.
    __device__ __forceinline__ void refresh() {
        for (u32 i = thread_index(); i < slot_count(); i += block_threads()) {
            Slot<C> s = slot(i);
            if (!s.live) continue;
            Home<C> h(table, s.k);
            if (h.home != s.b.sub) h.goes_away(table);
        }
        block_sync();
        for (u32 i = thread_index(); i < slot_count(); i += block_threads()) {
            Slot<C> s = slot(i);
            if (!s.live && at<filter>(table.sub[s.b.sub].filter)[s.b.number]) Cells<C>::set_free(s.b, s.slot, true);
        }
        block_sync();
    }
};

static_assert(sizeof(Stage) + 1024 <= DYCUCKOO_STAGED_FIXED, "beside what block-wide functions have");
static_assert(sizeof(*Stage::fills) == DYCUCKOO_FILL_BYTES, "behind the filters");

// The fill of a bucket: the slots from its number on are free and never were taken, so no key has gone away from it if there are any.
// Behind it, what it was before the batch.
struct Fill {
    typedef Access<C> A;
    static constexpr u32 WAS = DYCUCKOO_FILL_WAS, NOW = (1u << WAS) - 1;
    typedef View<C, 1, C::SLOTS> Whole;

    // begin tells a bucket's.
    static __device__ __forceinline__ u32 begin(u64 bucket) {
        Whole v;
        v.load(true, bucket, 0);
        u32 n = 0;
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++)
            if (A::key_of(v.w[i]) != C::EMPTY) n = i + 1;
        return n | n << WAS;
    }
    // was is the fill when equal keys were last seen to.
    static __device__ __forceinline__ u32 was(const u32* fill) { return load_relaxed(fill) >> WAS; }
    // take puts a pair into the next slot; false if there is none. A lane that sees none does not ask for one, so that NOW is enough.
    static __device__ __forceinline__ bool take(u32* fill, u64 bucket, key k, value v) {
        if ((load_relaxed(fill) & NOW) >= C::SLOTS) return false;
        u32 slot = add(fill, 1u) & NOW;
        if (slot >= C::SLOTS) return false;
        A::put(bucket, slot, k, v);
        return true;
    }
    // settle leaves one pair of each key, and tells how many have come. Of those that have, any may stand, and its value with
    // REPLACE; a pair that was there before stays.
    template <bool REPLACE> static __device__ __forceinline__ u32 settle(u32* fill, u64 bucket) {
        u32 was = *fill >> WAS, now = *fill & NOW;
        if (now > C::SLOTS) now = C::SLOTS;
        if (now > was) now = keep<REPLACE>(bucket, was, now);
        *fill = now | now << WAS;
        return now - was;
    }
    template <bool REPLACE> static __device__ __forceinline__ u32 keep(u64 bucket, u32 was, u32 now) {
        Whole v;
        v.load(true, bucket, 0);
        bool twice = false;
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++)
#pragma unroll
            for (u32 j = i + 1; j < C::SLOTS; j++) twice |= (A::key_of(v.w[i]) == A::key_of(v.w[j])) & (A::key_of(v.w[j]) != C::EMPTY);
        if (!twice) return now;
        for (u32 j = was; j < now;) {
            typename A::word w = load_relaxed(A::word_at(bucket, j));
            u32 i = 0;
            while (i < j && A::key_of(load_relaxed(A::word_at(bucket, i))) != A::key_of(w)) i++;
            if (i == j) {
                j++;
                continue;
            }
            if (REPLACE && i < was) store_relaxed(A::word_at(bucket, i), w);
            if (j < --now) store_relaxed(A::word_at(bucket, j), load_relaxed(A::word_at(bucket, now)));
            A::clear(bucket, now);
        }
        return now;
    }
};

template <bool REPLACE> struct StagedJob {
    struct Item {
        u32 i;
        key k;
        value v;
    };
    const stagedParams& p;
    Stage& stage;
    u64 first;
    bool filled; // the items of stage.open alone are to come, without those that are GONE
    Insert<C, REPLACE> s;
    Shifts<C> count;
    u32 item;
    static constexpr u32 GONE = ~0u;

    __device__ __forceinline__ StagedJob(const stagedParams& p, Stage& stage, u64 first) : p(p), stage(stage), first(first), filled(false) {}
    __device__ __forceinline__ key key_at(u32 i) const { return input_key<C>(p.rows.keys, first + i); }
    __device__ __forceinline__ value value_at(u32 i) const { return input_value<C>(p.rows.values, first + i); }
    __device__ __forceinline__ Item load(u64 n) const {
        u32 i = filled ? stage.open.at((u32)n) : (u32)n;
        return i == GONE ? Item{i, key{}, value{}} : Item{i, key_at(i), value_at(i)};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.i, from), warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        item = x.i;
        if (item == GONE) return false;
        s.begin(stage.table, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(StagedTile g, bool active) { return s.round(stage.table, g, active); }
    __device__ __forceinline__ void done(u64) {
        if (s.outcome == ADDED) count.added(stage.table, s.sub);
        if (s.outcome == FULL) stage.full.put(item);
    }

    __device__ __forceinline__ u32* fill_of(u64 bucket) const { return stage.fills + (u32)(bucket - stage.bucket(0)) / C::BUCKET_BYTES; }
    // settle is for all lanes of the block, which have put pairs where Fill says.
    __device__ __forceinline__ void settle() {
        block_sync();
        for (u32 i = thread_index(); i < stage.buckets(); i += block_threads())
            count.to.count(stage.sub[i / STRETCH], Fill::settle<REPLACE>(stage.fills + i, stage.bucket(i)));
        block_sync();
    }
    // fill puts pairs at home while that never was full, then those that are left over in their other buckets. The others stay in
    // stage.open, or are in stage.full.
    __device__ __forceinline__ void fill(u32 n) {
        constexpr u32 IN_FLIGHT = 4;
        for (u32 i = thread_index(); i < stage.buckets(); i += block_threads()) stage.fills[i] = p.empty ? 0 : Fill::begin(stage.bucket(i));
        block_sync();
        for (u32 from = thread_index(); from < n; from += IN_FLIGHT * block_threads()) {
            key k[IN_FLIGHT];
            value v[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 i = from + j * block_threads();
                k[j] = i < n ? key_at(i) : key{};
                v[j] = i < n ? value_at(i) : value{};
            }
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 i = from + j * block_threads();
                if (i >= n) break;
                Home<C> h(stage.table, k[j]);
                u64 home = h.address(stage.table, h.home);
                if (h.reserved || !Fill::take(fill_of(home), home, h.stored, v[j])) stage.open.put(i);
            }
        }
        settle();
        filled = true;
        if (stage.open.all()) return;
        for (u32 n = thread_index(); n < stage.open.count; n += block_threads()) {
            u32 i = stage.open.item[n];
            if (fill_other(i, key_at(i), value_at(i))) stage.open.item[n] = GONE;
        }
        settle();
    }
    // fill_other tells whether the item is done with, or in stage.full: not where it is for the ways of all. A bucket that was full when
    // this began stays full; one that others fill beside it may have a slot again, once of equal keys one is left.
    __device__ __forceinline__ bool fill_other(u32 i, key k, value v) {
        Home<C> h(stage.table, k);
        if (h.reserved) return false;
        Bucket home = h.bucket(stage.table, h.home), other = h.bucket(stage.table, h.other);
        if (Fill::was(fill_of(home.slots)) < C::SLOTS) return Fill::take(fill_of(home.slots), home.slots, h.stored, v);
        u32 same, there;
        if (Cells<C>::look(home, h.stored, same) != Cells<C>::ALL) return false; // it has slots that were taken before
        if (same) {
            if (REPLACE) Cells<C>::replace(home, lowest_bit(same), h.stored, v);
            return true;
        }
        if (Fill::was(fill_of(other.slots)) < C::SLOTS) {
            h.goes_away(stage.table);
            return Fill::take(fill_of(other.slots), other.slots, h.stored, v);
        }
        if (Cells<C>::look(other, h.stored, there) != Cells<C>::ALL) return false;
        if (!there) stage.full.put(i);
        else if (REPLACE) Cells<C>::replace(other, lowest_bit(there), h.stored, v);
        return true;
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_staged(const stagedParams& p) {
    __shared__ Stage stage;
    u64 region = block_index(), first = load_readonly(at<u64>(p.starts) + region);
    u32 n = (u32)(load_readonly(at<u64>(p.starts) + region + 1) - first);
    if (!n && !p.refresh) return;
    if (thread_index() == 0) stage.lay(p, region);
    for (u32 i = thread_index(); i < LOCKS / 32; i += block_threads()) stage.locks[i] = 0;
    for (u32 i = thread_index(); i < sizeof(Counters) / 8; i += block_threads()) ((u64*)&stage.sums)[i] = 0;
    block_sync();
    stage.each(p.table.side, [&](u128* copy, const u128* from, bool filter) {
        if (p.empty || (filter && p.refresh)) *copy = filter ? u128{0, 0} : u128{~0ull, ~0ull};
        else *copy = load_readonly(from);
    });
    block_sync();
    if (p.refresh && !p.empty) stage.refresh();

    StagedJob<REPLACE> job(p, stage, first);
    if (!C::THEOREM1) job.fill(n); // which chooses between a key's subtables itself
    drive_held<StagedTile, u32>(Stretch::of_block(job.filled ? stage.open.of(n) : n), job);
    block_sync();

    // Those whose buckets are full: pairs are moved on for them, by one step. If they are too many to list, paths are looked for, for all.
    u32 failed = 0;
    Items& left = stage.open;
    if (thread_index() == 0) left.count = 0;
    block_sync();
    bool all = stage.full.all();
    MoveTile mover;
    for (u32 i = thread_index() / MoveTile::LANES; !all && i < stage.full.count; i += block_threads() / MoveTile::LANES) {
        u32 item = stage.full.item[i];
        Displace<C, REPLACE> s;
        s.begin(stage.table, job.key_at(item), job.value_at(item));
        bool in;
        while (s.round(stage.table, mover, in)) {}
        if (s.outcome == ADDED) job.count.added(stage.table, s.sub);
        if (!in && mover.rank() == 0) left.put(item);
    }
    block_sync();

    // The few that are left need longer paths. They are listed for refine: here, a block would wait for the last of its own.
    __shared__ u32 base, listed;
    if (thread_index() == 0) {
        base = all || !left.count ? 0 : add_in_memory(at<u32>(p.list) + 1, left.count);
        listed = all || base > p.limit ? 0 : p.limit - base < left.count ? (u32)p.limit - base : left.count;
        failed = listed;
    }
    block_sync();
    for (u32 i = thread_index(); i < listed; i += block_threads()) at<u32>(p.list)[DYCUCKOO_LIST_HEAD + p.limit + base + i] = (u32)first + left.item[i];
    typedef PathTile<C> Path;
    Path g;
    for (u32 i = listed + thread_index() / Path::LANES; i < (all ? n : left.count); i += block_threads() / Path::LANES) {
        u32 item = all ? i : left.at(i);
        LockedInsert<C, REPLACE> s;
        s.begin(stage.table, job.key_at(item), job.value_at(item));
        while (s.round(stage.table, g, job.count)) {}
        if (g.rank() != 0) continue;
        if (s.outcome == ADDED) job.count.added(stage.table, s.sub);
        failed += s.outcome == FULL;
    }
    job.count.into(&stage.sums, failed);
    block_sync();
    stage.each(p.table.side, [&](u128* copy, const u128* to, bool) { *(u128*)to = *copy; });
    u64 *mine = (u64*)&stage.sums, *table = at<u64>(p.table.counters);
    for (u32 i = thread_index(); i < sizeof(Counters) / 8; i += block_threads())
        if (mine[i]) add_to_memory(table + i, mine[i]);
}

WARPMAP_KERNEL(insert_staged, stagedParams) { insert_staged<true>(p); }
WARPMAP_KERNEL(insert_staged_new, stagedParams) { insert_staged<false>(p); }
