// Large batches, stretch by stretch: a block takes one stretch of every subtable into shared memory, inserts the pairs that belong there,
// and writes the stretches back. A pair's two buckets, and those that pairs move on to from there, all lie in them.
//
// So memory sees streams alone, and what the inserts do at random (reading buckets, compare-and-swaps, locks, moving pairs on) is done in shared
// memory, by the same code as elsewhere: the block has a Table of its own, whose addresses are those of its copies.
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

// What a block has in shared memory beside its copies of stretches, which are one behind the other, and their filters behind all.
struct Stage {
    Table table;    // of the stretches
    Counters sums;  // what is to be added to the table's
    u64 slots[2 * C::D], filters[2 * C::D]; // where each stretch comes from
    u32 stretches;
    u32 owned; // reserved keys that belong to the region: their buckets of the side are copied too
    u128 side[C::RESERVED * C::BUCKET_BYTES / 16];
    u32 locks[LOCKS / 32];
    u32 listed, list[LISTED]; // items whose two buckets are full

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
        listed = 0;
    }
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

template <bool REPLACE> struct StagedJob {
    struct Item {
        key k;
        value v;
    };
    const stagedParams& p;
    Stage& stage;
    u64 first;
    Insert<C, REPLACE, false> s;
    Tally<C> added;

    __device__ __forceinline__ StagedJob(const stagedParams& p, Stage& stage, u64 first) : p(p), stage(stage), first(first) {}
    __device__ __forceinline__ Item load(u64 i) const {
        return Item{input_key<C>(p.rows.keys, first + i), input_value<C>(p.rows.values, first + i)};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        s.begin(stage.table, x.k, x.v, p.choose);
        return true;
    }
    __device__ __forceinline__ bool round(StagedTile g, bool active) { return s.round(stage.table, g, active); }
    __device__ __forceinline__ void done(u64 i) {
        if (s.outcome == ADDED) added.count(s.sub);
        if (s.outcome != FULL) return;
        u32 place = add(&stage.listed, 1u);
        if (place < LISTED) stage.list[place] = (u32)i;
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
    drive_held<StagedTile, u32>(Stretch::of_block(n), job);
    block_sync();

    // Those whose buckets are full, or all once more if they are too many to list: pairs are moved on for them.
    PathTile g;
    u32 failed = 0;
    bool all = stage.listed > LISTED;
    for (u32 i = thread_index() / PathTile::LANES; i < (all ? n : stage.listed); i += block_threads() / PathTile::LANES) {
        u64 row = first + (all ? i : stage.list[i]);
        LockedInsert<C, REPLACE> s;
        s.begin(stage.table, input_key<C>(p.rows.keys, row), input_value<C>(p.rows.values, row));
        while (s.round(stage.table, g)) {}
        if (g.rank() != 0) continue;
        if (s.outcome == ADDED) job.added.count(s.sub);
        failed += s.outcome == FULL;
    }
    job.added.into(stage.sums.pairs);
    u64* to[1] = {&stage.sums.failed};
    u32 counts[1] = {failed};
    block_count(to, counts);
    block_sync();
    stage.each(p.table.side, [&](u128* copy, const u128* to, bool) { *(u128*)to = *copy; });
    u64 *mine = (u64*)&stage.sums, *table = at<u64>(p.table.counters);
    for (u32 i = thread_index(); i < sizeof(Counters) / 8; i += block_threads())
        if (mine[i]) add_to_memory(table + i, mine[i]);
}

WARPMAP_KERNEL(insert_staged, stagedParams) { insert_staged<true>(p); }
WARPMAP_KERNEL(insert_staged_new, stagedParams) { insert_staged<false>(p); }
