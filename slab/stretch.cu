// Large batches, stretch by stretch: a block takes the base slabs of a stretch of buckets into shared memory, puts those pairs there for
// which their base slabs have room, and writes them back. So memory sees streams alone. A pair whose base slab is full is left over: it
// goes on a list, for a kernel of kernels.cu, which goes on along the chain.
//
// Empty slots are the last of a slab, so a bucket has a counter: an addition gives a row the next slot, which is the row's from then on.
// Before that, the row looks for its key among the pairs from before. Rows of one key may stand beside one another until all rows have
// come. Then each slab is looked at once, and one pair of a key stays.
#include "config.h" // struct config: what this table holds
#include "items.cuh"
#include "layout.h"
#include "slab.cuh"

using namespace slab;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef Access<C> A;
typedef A::word word;

constexpr u32 LISTED = SLAB_STRETCH_LISTED;
constexpr bool TWO_WORDS = C::VALUE_BYTES > 0 && !C::PACKED; // a pair
static_assert(C::VALUE_BYTES <= 8, "rows of one key may write its value at once");

// A bucket's mark: how many slots of its base slab are taken, or asked for; and above, how many were before the batch.
constexpr u32 WAS = 27, TAKEN = (1u << WAS) - 1;
static_assert(C::SLOTS < 1u << (32 - WAS), "they fit");

// What a block has in shared memory beside its copy of the stretch, behind which are the marks.
struct Stage {
    u32 full;        // rows that found their base slab full,
    u32 row[LISTED]; // the first of which are listed, by their numbers in the stretch
    u32 on, begin, base[2]; // of these, those that go on behind the base slab, and that begin anew; and where both go
    u32 added, flushed;
};
static_assert(sizeof(Stage) <= SLAB_STRETCH_BESIDE, "as the host expects");

// The copy of base slabs. The 16-byte parts of each slab are in an order of its own, so that lanes that are at one slot of different slabs
// use different banks.
struct Copy {
    static constexpr u32 PARTS = SLAB_BYTES / 16, WORDS = 16 / C::SLOT_BYTES; // of a slab, and of a part
    u64 slabs;

    __device__ __forceinline__ u64 address(u32 bucket, u32 offset) const { return slabs + bucket * SLAB_BYTES + (offset ^ bucket % PARTS * 16); }
    __device__ __forceinline__ word* word_at(u32 bucket, u32 slot) const { return at<word>(address(bucket, slot * C::SLOT_BYTES)); }
    __device__ __forceinline__ value* value_at(u32 bucket, u32 slot) const {
        return at<value>(address(bucket, C::VALUES_OFFSET + slot * (u32)sizeof(value)));
    }
    __device__ __forceinline__ u32 link(u32 bucket) const { return load_relaxed(at<u32>(address(bucket, C::LINK_OFFSET))); }
    __device__ __forceinline__ key key_at(u32 bucket, u32 slot) const { return A::key_of(load_relaxed(word_at(bucket, slot))); }
    __device__ __forceinline__ void put(u32 bucket, u32 slot, key k, value v) const {
        if constexpr (TWO_WORDS) store_relaxed(value_at(bucket, slot), v);
        store_relaxed(word_at(bucket, slot), A::pack(k, v));
    }
    __device__ __forceinline__ void read(u32 bucket, u32 part, word (&w)[WORDS]) const {
        read_words<WORDS>(at<word>(address(bucket, part * 16)), w);
    }
    template <u32 N> static __device__ __forceinline__ void read_words(const word* from, word (&w)[N]) {
        if constexpr (N == 1) w[0] = load_relaxed(from);
        else load_vector(from, w);
    }
    // read_keys reads the keys of all slots.
    __device__ __forceinline__ void read_keys(u32 bucket, key (&k)[C::SLOTS]) const {
#pragma unroll
        for (u32 part = 0; part * WORDS < C::SLOTS; part++) {
            word w[WORDS];
            read(bucket, part, w);
#pragma unroll
            for (u32 i = 0; i < WORDS; i++)
                if (part * WORDS + i < C::SLOTS) k[part * WORDS + i] = A::key_of(w[i]);
        }
    }
    // keep moves those pairs together whose bits are set, of the first n, in their order. It gives their number; the slots behind become empty.
    __device__ __forceinline__ u32 keep(u32 bucket, u32 n, u32 which) const {
        u32 kept = 0;
#pragma unroll 1
        for (u32 slot = 0; slot < n; slot++) {
            if (!(which >> slot & 1)) continue;
            if (kept != slot) {
                if constexpr (TWO_WORDS) store_relaxed(value_at(bucket, kept), load_relaxed(value_at(bucket, slot)));
                store_relaxed(word_at(bucket, kept), load_relaxed(word_at(bucket, slot)));
            }
            kept++;
        }
#pragma unroll 1
        for (u32 slot = kept; slot < n; slot++) store_relaxed(word_at(bucket, slot), A::free_word(word(), false));
        return kept;
    }
};

template <bool REPLACE> struct StretchJob {
    const stretchParams& p;
    Stage& stage;
    u64 from, first; // the stretch's first bucket, and its first row
    u32 buckets;
    Copy copy;
    u32* marks;
    u32 added, flushed;
    static constexpr u32 IN_FLIGHT = 4;
    key k[IN_FLIGHT]; // rows of this thread
    value v[IN_FLIGHT];

    __device__ __forceinline__ StretchJob(const stretchParams& p, Stage& stage, u64 first)
        : p(p), stage(stage), from(block_index() * p.buckets), first(first), copy{(u64)dynamic_shared()}, added(0), flushed(0) {
        buckets = (u32)(p.table.buckets - from < p.buckets ? p.table.buckets - from : p.buckets);
        marks = (u32*)(copy.slabs + p.buckets * SLAB_BYTES);
    }
    __device__ __forceinline__ u128* memory() const { return at<u128>(p.table.base + from * SLAB_BYTES); }
    // in_copy is where a part of a slab of the stretch is in the copy.
    static __device__ __forceinline__ u32 in_copy(u32 part) { return part ^ part / Copy::PARTS % Copy::PARTS; }
    __device__ __forceinline__ u32 bucket_of(key k) const { return (u32)((Home<C>(p.table, k).slab - p.table.base) / SLAB_BYTES - from); }

    __device__ __forceinline__ void load() {
        u128* to = dynamic_shared();
        const u128* parts = memory();
        for (u32 i = thread_index(); i < buckets * Copy::PARTS; i += block_threads())
            to[in_copy(i)] = p.empty ? u128{~0ull, ~0ull} : load_readonly(parts + i);
        for (u32 i = thread_index(); p.empty && i < buckets; i += block_threads()) marks[i] = 0;
        block_sync();
        if (p.empty) return;
        for (u32 i = thread_index(); i < buckets; i += block_threads()) marks[i] = begin(i);
        block_sync();
    }
    __device__ __forceinline__ void store() const {
        const u128* copied = dynamic_shared();
        u128* to = memory();
        for (u32 i = thread_index(); i < buckets * Copy::PARTS; i += block_threads()) to[i] = copied[in_copy(i)];
    }
    // begin gives the mark of a bucket that has pairs. A chain of one slab is flushed: in longer chains, empty slots are in the last slab.
    __device__ __forceinline__ u32 begin(u32 bucket) {
        key k[C::SLOTS];
        copy.read_keys(bucket, k);
        u32 used = 0, dead = 0;
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++) {
            used += k[i] != C::EMPTY;
            dead |= (u32)(k[i] == C::TOMBSTONE) << i;
        }
        if (dead && copy.link(bucket) == NONE) {
            used = copy.keep(bucket, used, ~dead);
            flushed += (u32)popcount(dead);
        }
        return used | used << WAS;
    }

    // there tells whether the key is in the first n slots; then it has the value.
    __device__ __forceinline__ bool there(u32 bucket, u32 n, key k, value v) const {
#pragma unroll 1
        for (u32 part = 0; part * Copy::WORDS < n; part++) {
            word w[Copy::WORDS];
            copy.read(bucket, part, w);
#pragma unroll
            for (u32 i = 0; i < Copy::WORDS; i++) {
                u32 slot = part * Copy::WORDS + i;
                if (slot >= n || A::key_of(w[i]) != k) continue;
                if (REPLACE) copy.put(bucket, slot, k, v);
                return true;
            }
        }
        return false;
    }
    // put puts a row's pair into its base slab, and tells whether it is in.
    __device__ __forceinline__ bool put(key k, value v) {
        if (C::marks(k)) return false;
        u32 bucket = bucket_of(k);
        if (!p.empty) {
            u32 was = load_relaxed(marks + bucket) >> WAS;
            if (there(bucket, was, k, v)) return true;
            if (was == C::SLOTS) return false;
        }
        u32 slot = add(marks + bucket, 1u) & TAKEN;
        if (slot >= C::SLOTS) return false;
        copy.put(bucket, slot, k, v);
        return true;
    }

    // Rows that find their base slab full are listed, and looked at again when all rows have come. Those that are too many for the list
    // have a key of which there are many, or belong to a table whose chains are long.
    __device__ __forceinline__ void list(u32 row) {
        u32 n = add(&stage.full, 1u);
        if (n < LISTED) {
            stage.row[n] = row;
            return;
        }
        key k;
        value v;
        ordered_row<C>(p.rows, first + row, k, v);
        if (C::marks(k) || !there(bucket_of(k), C::SLOTS, k, v)) leave(false, add_in_memory(at<u32>(p.left) + 1, 1u), k, v);
    }
    // leave gives a row to the kernel that comes behind.
    __device__ __forceinline__ void leave(bool on, u32 number, key k, value v) const {
        u64 to = on ? number : p.rows.n - 1 - number;
        at<key>(p.left_keys)[to] = k;
        output_value<C>(p.left_values, to, v);
    }
    // look tells what becomes of a listed row once all slabs are settled: it is in, or goes on behind its base slab, or begins anew,
    // because that has room again or a tombstone.
    enum Left { IN, ON, BEGINS };
    __device__ __forceinline__ Left look(key k, value v) const {
        if (C::marks(k)) return BEGINS;
        u32 bucket = bucket_of(k), n = load_relaxed(marks + bucket) & TAKEN;
        if (there(bucket, n, k, v)) return IN;
        if (n < C::SLOTS) return BEGINS;
        bool dead = false;
#pragma unroll 1
        for (u32 i = 0; !p.empty && p.table.tombstones && i < n; i++) dead |= copy.key_at(bucket, i) == C::TOMBSTONE;
        return dead ? BEGINS : ON;
    }
    // leave_listed is for all threads.
    __device__ __forceinline__ void leave_listed() {
        u32 n = stage.full < LISTED ? stage.full : LISTED;
        for (u32 turn = 0; turn < n; turn += block_threads()) {
            if (thread_index() == 0) stage.on = stage.begin = 0;
            block_sync();
            u32 i = turn + thread_index(), to = 0;
            u64 row = first + (i < n ? stage.row[i] : 0);
            key k;
            value v;
            ordered_row<C>(p.rows, row, k, v);
            Left l = i < n ? look(k, v) : IN;
            if (l != IN) to = add(l == ON ? &stage.on : &stage.begin, 1u);
            block_sync();
            if (thread_index() < 2) {
                u32 rows = thread_index() ? stage.begin : stage.on;
                if (rows) stage.base[thread_index()] = add_in_memory(at<u32>(p.left) + thread_index(), rows);
            }
            block_sync();
            if (l != IN) leave(l == ON, stage.base[l != ON] + to, k, v);
        }
    }

    // ask asks for the rows that a thread puts at a time: i is the block's first of them.
    __device__ __forceinline__ void ask(u32 i, u32 n) {
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            u32 row = i + j * block_threads() + thread_index();
            k[j] = key{};
            v[j] = value{};
            if (row < n) ordered_row<C>(p.rows, first + row, k[j], v[j]);
        }
    }
    // put_all puts all rows, the first of which were asked for. The lanes of a warp meet behind each row of theirs: lanes that go
    // different ways would not come together again by themselves. Rows that are to be listed, which are few, are read again, so that the
    // code for them stands once.
    __device__ __forceinline__ void put_all(u32 n) {
        tile<32, true> warp;
        for (u32 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            if (i) ask(i, n);
            u32 full = 0;
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                if (i + j * block_threads() + thread_index() < n && !put(k[j], v[j])) full |= 1u << j;
                warp.sync();
            }
            for (; full; full &= full - 1) list(i + (u32)lowest_bit(full) * block_threads() + thread_index());
            warp.sync();
        }
    }

    // settle leaves one pair of each key in every base slab.
    __device__ __forceinline__ void settle() {
        for (u32 i = thread_index(); i < buckets; i += block_threads()) {
            u32 mark = load_relaxed(marks + i), was = mark >> WAS, n = (mark & TAKEN) < C::SLOTS ? mark & TAKEN : C::SLOTS;
            if (n - was > 1 && perhaps_twice(i)) n = copy.keep(i, n, ~twice(i, was, n));
            store_relaxed(marks + i, was << WAS | n);
            added += n - was;
        }
    }
    // perhaps_twice tells whether a key may stand in a slab twice; most slabs are done with by that.
    __device__ __forceinline__ bool perhaps_twice(u32 bucket) const {
        key k[C::SLOTS];
        copy.read_keys(bucket, k);
        bool same = false;
#pragma unroll
        for (u32 j = 0; j < C::SLOTS; j++) {
            if (k[j] == C::EMPTY) k[j] = (key)(C::EMPTY - j);
#pragma unroll
            for (u32 i = 0; i < j; i++) same |= k[i] == k[j];
        }
        return same;
    }
    // twice gives those slots of the new ones whose key stands in one before them.
    __device__ __forceinline__ u32 twice(u32 bucket, u32 was, u32 n) const {
        u32 slots = 0;
#pragma unroll 1
        for (u32 j = was + 1; j < n; j++) {
            key k = copy.key_at(bucket, j);
#pragma unroll 1
            for (u32 i = was; i < j; i++) slots |= (u32)(copy.key_at(bucket, i) == k) << j;
        }
        return slots;
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_stretch(const stretchParams& p) {
    __shared__ Stage stage;
    const u64* starts = at<u64>(p.rows.starts) + block_index();
    u64 first = load_readonly(starts);
    u32 n = (u32)(load_readonly(starts + 1) - first);
    if (!n) return;
    if (thread_index() == 0) stage.full = stage.added = stage.flushed = 0;
    StretchJob<REPLACE> job(p, stage, first);
    job.ask(0, n);
    job.load();
    job.put_all(n);
    block_sync();
    job.settle();
    if (job.added) add(&stage.added, job.added);
    if (job.flushed) add(&stage.flushed, job.flushed);
    block_sync();
    job.leave_listed();
    block_sync();
    job.store();
    if (thread_index() != 0) return;
    if (stage.added) add_to_memory(&counters(p.table)->inserted, (u64)stage.added);
    if (stage.flushed) add_to_memory(&counters(p.table)->flushed, (u64)stage.flushed);
}

WARPMAP_KERNEL(insert_stretch, stretchParams) { insert_stretch<true>(p); }
WARPMAP_KERNEL(insert_stretch_new, stretchParams) { insert_stretch<false>(p); }
