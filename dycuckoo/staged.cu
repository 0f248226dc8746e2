// Large batches, stretch by stretch: a block takes one stretch of every subtable into shared memory, inserts the pairs that belong there,
// and writes the stretches back. Values that are apart from their keys stay in memory. A pair's two buckets, and those that pairs move on to from there, all lie in them.
//
// So memory sees streams alone, and what is done at random is done in shared memory, in turns of all threads:
//
//   put    a pair takes the next slot of its home, if no key can have gone away from there. Whether its key is there, too, is looked at once for
//          the whole bucket, when all have come. Rows whose home has no slot are listed
//   away   these take a slot of their other bucket, in the same way
//   alone  what neither is for, as reserved keys: rows go in by the same code as elsewhere. The block has a Table of its own, whose
//          addresses are those of its copies
//   lift   rows whose two buckets are full, one a lane: a pair is moved on for them, by one step
//
// How many pairs are more is seen in the end, as the stretches are written back.
#include "config.h" // struct config: what this table holds
#include "dycuckoo.cuh"
#include "items.cuh"
#include "layout.h"

using namespace dycuckoo;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef bits_of<DYCUCKOO_FILTER_BITS / 8>::type filter; // of a bucket
constexpr u32 STRETCH = 1u << DYCUCKOO_LOCAL_BITS; // buckets
constexpr u32 LOCKS = 2 * STRETCH * DYCUCKOO_SUBTABLES;
constexpr u32 VALUES = C::PACKED ? 0 : C::SLOTS * C::VALUE_BYTES; // bytes of a bucket, apart from its keys
constexpr u32 SIDE_WORDS = C::RESERVED * C::BUCKET_BYTES / 16;
constexpr u32 GONE = DYCUCKOO_STAGED_MOST; // in a list: a row that is in; and in place of a slot: none
// A slot of the block: the number of its bucket, and its own.
constexpr u32 SLOT_BITS = 4, SLOT = (1u << SLOT_BITS) - 1;
static_assert(C::SLOTS <= SLOT + 1 && (2 * C::D - 1) * STRETCH << SLOT_BITS <= GONE, "16 bits");

// copied is a place in the block's dynamic shared memory. It is not an integer on its way: then the compiler knows what memory it is.
template <class T> __device__ __forceinline__ T* copied(u32 at) { return (T*)((u8*)dynamic_shared() + at); }

// A list of a block's rows. Where it is too short for all, `count` says so, and each row is an entry.
struct List {
    u32* count;
    u16* item;
    u32 most;
    // Few lanes of a warp put a row at a time: the compiler, if it knew that each adds one, would have them add together, by many instructions.
    __device__ __forceinline__ void put(u32 i) const {
        u32 place = add(count, 1 + (i >> 31));
        if (place < most) item[place] = (u16)i;
    }
    __device__ __forceinline__ bool all() const { return *count > most; }
};

// What a block has in shared memory beside its copies of stretches, which are one behind the other, their filters behind all, behind
// these the Fill of each bucket, and the lists.
struct Stage {
    Table table;   // of the stretches
    Counters sums; // what is to be added to the table's
    u64 slots[2 * C::D], values[2 * C::D], filters[2 * C::D]; // where each stretch comes from
    u32 owned;     // reserved keys that belong to the region: their buckets of the side are copied too
    u32 open, full, rest, left; // of the lists: see StagedJob
    u32 again[2];  // of a lift: whether rows are left
    u32 base, listed;
    u32 before[C::D], now[C::D]; // pairs of each subtable
    u128 side[SIDE_WORDS ? SIDE_WORDS : 1];
    u32 locks[LOCKS / 32];
};
static_assert(__builtin_offsetof(Counters, pairs) == 0, "store counts on it");
static_assert(sizeof(Stage) + 1024 <= DYCUCKOO_STAGED_FIXED, "beside what block-wide functions have");

// The Fill of a bucket says which slots are taken, and which were when equal keys were last seen to, or before the batch.
template <class C, bool PACKED = C::PACKED> struct Fill;

// Slots are taken in their order: those from a number on are free and never were taken, so no key has gone away from the bucket if there are any.
template <class C> struct Fill<C, true> {
    typedef Access<C> A;
    typedef typename C::key key;
    typedef typename C::value value;
    static constexpr u32 WAS = DYCUCKOO_FILL_WAS, NOW = (1u << WAS) - 1;
    typedef View<C, 1, C::SLOTS> Whole;

    // begin tells a bucket's.
    static __device__ __forceinline__ u32 begin(const Bucket& b) {
        Whole v;
        v.load(true, b.slots, 0);
        u32 n = 0;
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++)
            if (A::key_of(v.w[i]) != C::EMPTY) n = i + 1;
        return n | n << WAS;
    }
    static __device__ __forceinline__ bool was_full(const u32* fill) { return load_relaxed(fill) >> WAS >= C::SLOTS; }
    // take puts a pair into the next slot, and gives it; GONE if there is none. A lane that sees none does not ask for one, so that NOW is enough.
    static __device__ __forceinline__ u32 take(u32* fill, const Bucket& b, key k, value v) {
        if ((load_relaxed(fill) & NOW) >= C::SLOTS) return GONE;
        u32 slot = add(fill, 1u) & NOW;
        if (slot >= C::SLOTS) return GONE;
        store_relaxed(copied<typename A::word>((u32)b.number * C::BUCKET_BYTES) + slot, A::pack(k, v));
        return slot;
    }
    // first tells whether a slot is the first that was taken since.
    static __device__ __forceinline__ bool first(u32 fill, const Bucket&, u32 slot) { return fill >> WAS == slot; }
    // settle leaves one pair of each key. Of those that have come, any may stand, and its value with REPLACE; a pair that was there before stays.
    template <bool REPLACE> static __device__ __forceinline__ void settle(u32* fill, const Bucket& b) {
        u32 was = *fill >> WAS, now = *fill & NOW;
        if (now > C::SLOTS) now = C::SLOTS;
        if (now > was && perhaps_twice(b)) now = keep<REPLACE>(b.slots, was, now);
        *fill = now | now << WAS;
    }
    // perhaps_twice tells whether a key may stand in a bucket twice. Each empty slot counts as a key of its own.
    static __device__ __forceinline__ bool perhaps_twice(const Bucket& b) {
        Whole v;
        v.load(true, b.slots, 0);
        key k[C::SLOTS];
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++) {
            k[i] = A::key_of(v.w[i]);
            if (k[i] == C::EMPTY) k[i] = (key)i;
        }
        bool twice = false;
#pragma unroll
        for (u32 j = 1; j < C::SLOTS; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) twice |= k[i] == k[j];
        return twice;
    }
    template <bool REPLACE> static __device__ __forceinline__ u32 keep(u64 bucket, u32 was, u32 now) {
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
    // bring writes a pair of another bucket into a free slot, if there is one. Beside it slots are taken in this way alone.
    static __device__ __forceinline__ bool bring(const Bucket& to, const Bucket& from, u32 slot) {
        Whole v;
        v.load(true, to.slots, 0);
        u32 room = first_free<C>(v, 0);
        if (room == NONE) return false;
        typename A::word w = load_relaxed(A::word_at(from.slots, slot)), free = A::free_word(w, room >= FREED);
        return cas(A::word_at(to.slots, room % FREED), free, w) == free;
    }
    // owned are the reserved keys that belong to a region.
    static __device__ __forceinline__ u32 owned(const Table& t, u32 shift, u64 region) {
        u32 all = 0;
        for (u32 i = 0; i < C::RESERVED; i++)
            if ((Home<C>(t, (key)(C::EMPTY - i)).hi & ((1u << shift) - 1)) == region) all |= 1u << i;
        return all;
    }
    static __device__ __forceinline__ u32 live(u64 w) { return !C::marks(A::key_of(w)); }
    static __device__ __forceinline__ u32 live(u128 w) { return !C::marks(A::key_of(w)); }
    // live_in is how many pairs a word of a stretch has, the i-th.
    static __device__ __forceinline__ u32 live_in(u128 w, u32) {
        if constexpr (C::SLOT_BYTES == 16) return live(w);
        else return live(w.lo) + live(w.hi);
    }
};

// In layout Wide the bucket's own mask says what is taken; the Fill has those that were.
template <class C> struct Fill<C, false> {
    typedef Cells<C> Slots;
    typedef typename C::key key;
    typedef typename C::value value;
    static __device__ __forceinline__ u32 begin(const Bucket& b) { return load_relaxed(Slots::mask(b)); }
    static __device__ __forceinline__ bool was_full(const u32* fill) { return load_relaxed(fill) == Slots::ALL; }
    static __device__ __forceinline__ u32 reserve(const Bucket& b) {
        for (u32 seen = load_relaxed(Slots::mask(b));;) {
            u32 free = ~seen & Slots::ALL;
            if (!free) return GONE;
            u32 slot = (u32)lowest_bit(free);
            seen = or_of(Slots::mask(b), 1u << slot);
            if (!(seen >> slot & 1)) return slot;
        }
    }
    static __device__ __forceinline__ u32 take(u32*, const Bucket& b, key k, value v) {
        u32 slot = reserve(b);
        if (slot == GONE) return slot;
        store_relaxed(Slots::key_at(b, slot), k);
        Slots::replace(b, slot, k, v);
        return slot;
    }
    static __device__ __forceinline__ bool first(u32 fill, const Bucket& b, u32 slot) {
        return (load_relaxed(Slots::mask(b)) & ~fill) == ((load_relaxed(Slots::mask(b)) & ~fill) >> slot << slot);
    }
    template <bool REPLACE> static __device__ __forceinline__ void settle(u32* fill, const Bucket& b) {
        u32 now = load_relaxed(Slots::mask(b));
        if (now != *fill && perhaps_twice(b, now)) now = keep<REPLACE>(b, *fill, now);
        *fill = now;
    }
    // perhaps_twice goes by a part of each key. Lanes begin with different slots, for buckets are as far apart as shared memory's banks repeat.
    static __device__ __forceinline__ bool perhaps_twice(const Bucket& b, u32 now) {
        u32 part[C::SLOTS], slot = thread_index() % C::SLOTS;
#pragma unroll
        for (u32 i = 0; i < C::SLOTS; i++) {
            part[i] = now >> slot & 1 ? load_relaxed((const u32*)Slots::key_at(b, slot)) : i;
            slot = slot + 1 < C::SLOTS ? slot + 1 : 0;
        }
        bool twice = false;
#pragma unroll
        for (u32 j = 1; j < C::SLOTS; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) twice |= part[i] == part[j];
        return twice;
    }
    template <bool REPLACE> static __device__ __forceinline__ u32 keep(const Bucket& b, u32 was, u32 now) {
        u32 stay = was;
        for (u32 fresh = now & ~was; fresh; fresh &= fresh - 1) {
            u32 j = (u32)lowest_bit(fresh), same = 0;
            key k = load_relaxed(Slots::key_at(b, j));
            for (u32 left = stay; left && !same; left &= left - 1)
                if (load_relaxed(Slots::key_at(b, (u32)lowest_bit(left))) == k) same = left & ~(left - 1);
            if (!same) stay |= 1u << j;
            else if (REPLACE && same & was) Slots::replace(b, (u32)lowest_bit(same), k, Slots::value_at(b, j));
        }
        store_relaxed(Slots::mask(b), stay);
        return stay;
    }
    static __device__ __forceinline__ bool bring(const Bucket& to, const Bucket& from, u32 slot) {
        return take(nullptr, to, load_relaxed(Slots::key_at(from, slot)), Slots::value_at(from, slot)) != GONE;
    }
    static __device__ __forceinline__ u32 owned(const Table&, u32, u64) { return 0; }
    static __device__ __forceinline__ u32 live_in(u128 w, u32 i) { return i % (C::BUCKET_BYTES / 16) ? 0 : (u32)popcount((u32)w.lo); }
};

// Paths counts what paths have moved.
struct Paths {
    u32 moved;
    __device__ __forceinline__ void shift(const Table&, u32, u32) { moved++; }
};

template <bool REPLACE> struct StagedJob {
    const stagedParams& p;
    Stage& stage;
    HashOf<C> hash;
    u64 first, keys, values_from; // the block's first row, and its columns
    u32 n, fills_at;
    static constexpr u32 IN_FLIGHT = 4;
    key k[IN_FLIGHT]; // rows of this thread
    value v[IN_FLIGHT];

    __device__ __forceinline__ StagedJob(const stagedParams& p, Stage& stage, u64 first, u32 n) : p(p), stage(stage), hash(p.table), first(first),
          keys(worked_out(p.rows.keys + first * sizeof(key))), values_from(worked_out(p.rows.values + first * sizeof(value))), n(n),
          fills_at(worked_out(buckets() * (C::BUCKET_BYTES + (u32)sizeof(filter)))) {}
    __device__ __forceinline__ key key_at(u32 i) const { return input_key<C>(keys, i); }
    __device__ __forceinline__ value value_at(u32 i) const { return input_value<C>(values_from, i); }

    // Where everything is. The first `larger` subtables have two stretches in the region.
    __device__ __forceinline__ u32 larger() const { return (u32)p.larger; }
    __device__ __forceinline__ u32 stretches() const { return C::D + larger(); }
    __device__ __forceinline__ u32 buckets() const { return stretches() * STRETCH; }
    __device__ __forceinline__ u32 filters() const { return buckets() * C::BUCKET_BYTES; }
    __device__ __forceinline__ u32* fills() const { return copied<u32>(fills_at); }
    // Rows whose home had no slot; those whose two buckets are full; and those for `alone`. Rows have numbers of 16 bits there.
    __device__ __forceinline__ List list(u32* count, u32 before, u32 most) const {
        return List{count, copied<u16>(fills_at + buckets() * DYCUCKOO_FILL_BYTES) + before, n < GONE ? most : 0};
    }
    __device__ __forceinline__ List open() const { return list(&stage.open, 0, (u32)p.listed); }
    __device__ __forceinline__ List full() const { return list(&stage.full, (u32)p.listed, (u32)p.listed / 2); }
    __device__ __forceinline__ List rest() const { return list(&stage.rest, (u32)p.listed / 2 * 3, (u32)p.listed / 2); }
    // first_of is a subtable's first bucket of the block.
    __device__ __forceinline__ u32 first_of(u32 sub) const { return (sub + (sub < larger() ? sub : larger())) * STRETCH; }
    __device__ __forceinline__ u32 buckets_of(u32 sub) const { return sub < larger() ? 2 * STRETCH : STRETCH; }
    __device__ __forceinline__ u32 sub_of(u32 stretch) const { return stretch < 2 * larger() ? stretch / 2 : stretch - larger(); }
    __device__ __forceinline__ u32 number(const Home<C>& h, u32 sub) const { return first_of(sub) + h.number(sub, buckets_of(sub)); }
    // bucket is one of the block's, which has its number there.
    __device__ __forceinline__ Bucket bucket(u32 number, u32 sub = 0) const {
        Bucket b;
        b.slots = (u64)dynamic_shared() + number * C::BUCKET_BYTES;
        b.values = C::PACKED ? 0 : stage.values[number / STRETCH] + number % STRETCH * VALUES;
        b.number = number;
        b.sub = sub;
        return b;
    }
    __device__ __forceinline__ Bucket bucket(const Home<C>& h, u32 sub) const { return bucket(number(h, sub), sub); }

    // lay says where everything is, for Home and for paths.
    __device__ __forceinline__ void lay(u64 region) {
        u32 t = thread_index();
        if (t < stretches()) {
            const Subtable& s = p.table.sub[sub_of(t)];
            u64 from = (region | (u64)(t < 2 * larger() ? t & 1 : 0) << p.shift) * STRETCH;
            stage.slots[t] = s.slots + from * C::BUCKET_BYTES;
            stage.values[t] = s.values + from * VALUES;
            stage.filters[t] = s.filter + from * sizeof(filter);
        }
        if (t < C::D) {
            u32 from = first_of(t);
            stage.table.sub[t] = Subtable{(u64)copied<u8>(from * C::BUCKET_BYTES), p.table.sub[t].values + region * STRETCH * VALUES,
                                            (u64)copied<u8>(filters() + from * (u32)sizeof(filter)), buckets_of(t)};
        }
        if (t == 0) {
            Table& own = stage.table;
            own.seed = p.table.seed;
            own.rehashed = p.table.rehashed;
            own.tilt = p.table.tilt;
            own.shift = p.table.shift;
            own.prefer = p.table.prefer;
            for (u32 i = 0; C::THEOREM1 && i < C::D; i++) own.weight[i] = p.table.weight[i];
            own.side = (u64)stage.side;
            own.locks = (u64)stage.locks;
            own.lock_mask = LOCKS - 1;
            own.counters = (u64)&stage.sums;
            stage.owned = Fill<C>::owned(p.table, (u32)p.shift, region);
            for (u32 i = 0; i < C::D; i++) stage.before[i] = stage.now[i] = 0;
            stage.open = stage.full = stage.rest = stage.left = stage.again[0] = stage.again[1] = 0;
        }
        for (u32 i = t; i < LOCKS / 32; i += block_threads()) stage.locks[i] = 0;
        for (u32 i = t; i < sizeof(Counters) / 8; i += block_threads()) ((u64*)&stage.sums)[i] = 0;
    }
    // each calls act(word in shared memory, word in memory, what it is, its number) for all words of the copies, and adds what act gives to *of,
    // of the words' subtable.
    enum Word { SLOTS_WORD, FILTER_WORD };
    template <class Act> __device__ __forceinline__ void each(u32* of, Act act) {
        constexpr u32 WORDS = STRETCH * C::BUCKET_BYTES / 16, FILTER_WORDS = STRETCH * sizeof(filter) / 16;
        constexpr u32 EACH = C::BUCKET_BYTES / 16;
        for (u32 s = 0; s < stretches(); s++) {
            u128 *copy = copied<u128>(0) + s * WORDS, *memory = at<u128>(stage.slots[s]);
            u32 sum = 0;
#pragma unroll 4
            for (u32 i = thread_index(); i < WORDS; i += block_threads()) sum += act(copy + i, memory + i, SLOTS_WORD, i);
            if (s == 0)
                for (u32 i = thread_index(); stage.owned && i < SIDE_WORDS; i += block_threads())
                    if (stage.owned >> i / EACH & 1) sum += act(stage.side + i, at<u128>(p.table.side) + i, SLOTS_WORD, i);
            sum_into(of + sub_of(s), sum);
        }
        for (u32 i = thread_index(); i < stretches() * FILTER_WORDS; i += block_threads())
            act(copied<u128>(filters()) + i, at<u128>(stage.filters[i / FILTER_WORDS]) + i % FILTER_WORDS, FILTER_WORD, i);
    }
    // sum_into is for all threads of a warp.
    static __device__ __forceinline__ void sum_into(u32* to, u32 x) {
#if !defined(WARPMAP_HOST)
        x = warp_sum(x);
        if ((thread_index() & 31) != 0) return;
#endif
        if (x) add(to, x);
    }
    __device__ __forceinline__ void load() {
        if (p.empty) {
            each(stage.before, [&](u128* copy, const u128*, Word what, u32) {
                *copy = what == SLOTS_WORD && C::PACKED ? u128{~0ull, ~0ull} : u128{0, 0};
                return 0u;
            });
            return;
        }
        each(stage.before, [&](u128* copy, const u128* from, Word what, u32 i) {
            if (what == FILTER_WORD && p.refresh) {
                *copy = u128{0, 0};
                return 0u;
            }
            u128 w = load_readonly(from);
            *copy = w;
            return what == SLOTS_WORD ? Fill<C>::live_in(w, i) : 0;
        });
    }
    // store writes all back, and adds to the table's counters.
    __device__ __forceinline__ void store() {
        each(stage.now, [&](u128* copy, u128* to, Word what, u32 i) {
            u128 w = *copy;
            *to = w;
            return what == SLOTS_WORD ? Fill<C>::live_in(w, i) : 0;
        });
        block_sync();
        u64 *mine = (u64*)&stage.sums, *table = at<u64>(p.table.counters);
        for (u32 i = thread_index(); i < sizeof(Counters) / 8; i += block_threads()) {
            u64 more = mine[i];
            if (i < C::D) more += (u64)stage.now[i] - stage.before[i]; // pairs stand first
            if (more) add_to_memory(table + i, more);
        }
    }
    __device__ __forceinline__ u32 slot_count() const { return buckets() * C::SLOTS; }
    __device__ __forceinline__ Slot<C> slot(u32 i) const {
        u32 sub = 0;
        for (u32 n; i >= (n = buckets_of(sub) * C::SLOTS); sub++) i -= n;
        return slot_of<C>(stage.table.sub[sub], sub, i);
    }
    // refresh sets the filters of stretches that were laid out for another Tilt.
    __device__ __forceinline__ void refresh() {
        for (u32 i = thread_index(); i < slot_count(); i += block_threads()) {
            Slot<C> s = slot(i);
            if (!s.live) continue;
            Home<C> h(stage.table, s.k);
            if (h.home != s.b.sub) h.goes_away(stage.table);
        }
        block_sync();
        for (u32 i = thread_index(); i < slot_count(); i += block_threads()) {
            Slot<C> s = slot(i);
            if (!s.live && at<filter>(stage.table.sub[s.b.sub].filter)[s.b.number]) Cells<C>::set_free(s.b, s.slot, true);
        }
        block_sync();
    }

    // ask asks for the rows that a thread puts at a time: i is the block's first of them.
    __device__ __forceinline__ void ask(u32 i) {
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            u32 row = i + j * block_threads() + thread_index();
            k[j] = row < n ? key_at(row) : key{};
            v[j] = row < n ? value_at(row) : value{};
        }
    }
    // put tells whether a row's pair is in, at home.
    __device__ __forceinline__ bool put(key k, value v) {
        Home<C> h(p.table, k, hash);
        if (h.reserved) return false;
        u32 home = number(h, h.home);
        if constexpr (!C::PACKED)
            if (!p.empty && is_away(h, v)) return true;
        return Fill<C>::take(fills() + home, bucket(home), h.stored, v) != GONE;
    }
    // is_away looks, where the filter asks for it, for a key of layout Wide among the pairs that its other bucket had before.
    __device__ __forceinline__ bool is_away(const Home<C>& h, value v) {
        if (!h.may_be_away(stage.table)) return false;
        Bucket b = bucket(h, h.other);
        for (u32 left = load_relaxed(fills() + b.number); left; left &= left - 1) {
            u32 slot = (u32)lowest_bit(left);
            key there;
            Cells<C>::taken(b, slot, there);
            if (!(there == h.stored)) continue;
            if (REPLACE) Cells<C>::replace(b, slot, there, v);
            return true;
        }
        return false;
    }
    // put_all puts all rows, the first of which were asked for. The lanes of a warp meet behind each row of theirs: lanes that go different ways, as those
    // do that find a bucket full, would not come together again by themselves.
    __device__ __forceinline__ void put_all() {
        List open = this->open();
        u32* fill = fills();
        for (u32 i = thread_index(); i < buckets(); i += block_threads()) fill[i] = p.empty ? 0 : Fill<C>::begin(bucket(i));
        block_sync();
        tile<32, true> warp;
        for (u32 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            if (i) ask(i);
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads() + thread_index();
                bool left = row < n && !put(k[j], v[j]);
                warp.sync();
                if (left) open.put(row);
                warp.sync();
            }
        }
        block_sync();
        for (u32 i = thread_index(); i < buckets(); i += block_threads()) Fill<C>::settle<REPLACE>(fill + i, bucket(i));
        block_sync();
    }

    // away puts the rows that are listed as open. A bucket is seen to by the row that has the first of the slots that were taken.
    __device__ __forceinline__ void away() {
        List open = this->open();
        u32* fill = fills();
        for (u32 i = thread_index(); i < stage.open; i += block_threads()) open.item[i] = (u16)away(open.item[i]);
        block_sync();
        for (u32 i = thread_index(); i < stage.open; i += block_threads()) {
            u32 slot = open.item[i], b = slot >> SLOT_BITS;
            if (slot != GONE && !Fill<C>::first(fill[b], bucket(b), slot & SLOT)) open.item[i] = (u16)GONE;
        }
        block_sync();
        for (u32 i = thread_index(); i < stage.open; i += block_threads()) {
            u32 slot = open.item[i], b = slot >> SLOT_BITS;
            if (slot != GONE) Fill<C>::settle<REPLACE>(fill + b, bucket(b));
        }
        block_sync();
    }
    // It gives the slot that a row has taken. GONE: it is done with, or on another list. A bucket that was full when this began stays full; one
    // that others fill beside it may have a slot again, once of equal keys one is left.
    __device__ __forceinline__ u32 away(u32 i) {
        key k = key_at(i);
        value v = value_at(i);
        Home<C> h(p.table, k, hash);
        u32 same = 0, slot = GONE;
        if (!h.reserved) {
            Bucket home = bucket(h, h.home), other = bucket(h, h.other);
            if (!Fill<C>::was_full(fills() + home.number)) {
                slot = Fill<C>::take(fills() + home.number, home, h.stored, v);
                if (slot != GONE) return home.number << SLOT_BITS | slot;
            } else if (Cells<C>::look(home, h.stored, same) == Cells<C>::ALL) { // else it has slots that were taken before
                if (same) {
                    if (REPLACE) Cells<C>::replace(home, lowest_bit(same), h.stored, v);
                    return GONE;
                }
                if (!Fill<C>::was_full(fills() + other.number)) {
                    h.goes_away(stage.table);
                    slot = Fill<C>::take(fills() + other.number, other, h.stored, v);
                    if (slot != GONE) return other.number << SLOT_BITS | slot;
                    full().put(i); // or its key has come to be there: lift looks
                    return GONE;
                }
                if (Cells<C>::look(other, h.stored, same) == Cells<C>::ALL) {
                    if (!same) full().put(i);
                    else if (REPLACE) Cells<C>::replace(other, lowest_bit(same), h.stored, v);
                    return GONE;
                }
            }
        }
        rest().put(i);
        return GONE;
    }

    // alone inserts rows as elsewhere: those that are listed for it, or all.
    __device__ __forceinline__ void alone(bool all) {
        u32 rows = all ? n : stage.rest;
        for (u32 i = thread_index(); i < rows; i += block_threads()) {
            u32 row = all ? i : rest().item[i];
            if (!alone(key_at(row), value_at(row))) full().put(row);
        }
        block_sync();
    }
    __device__ __forceinline__ bool alone(key k, value v) {
        if constexpr (C::PACKED) {
            Insert<C, REPLACE> s;
            s.begin(stage.table, k, v);
            while (s.round(stage.table, tile<1, true>(), true)) {}
            return s.outcome != FULL;
        } else {
            LockedInsert<C, REPLACE> s;
            s.begin(stage.table, k, v);
            Bucket home = s.h.bucket(stage.table, s.h.home), other = s.h.bucket(stage.table, s.h.other);
            while (s.attempt(stage.table, home, other, true) == s.WAIT) {
                s.waited = true;
                pause();
            }
            return s.outcome != FULL;
        }
    }

    // lift moves pairs to make room for the rows that are listed as full: first pairs of the rows' homes, and for rows that
    // are left pairs of their other buckets. No thread waits: it claims the slot of a pair that it moves, by a bit of the
    // bucket's Fill, which counts slots no more. Several rows of one key may get slots of one bucket; one of them stays.
    __device__ __forceinline__ void lift() {
        u32* claims = fills();
        u16 *row = full().item, *slot = open().item;
        for (u32 i = thread_index(); i < buckets(); i += block_threads()) claims[i] = 0;
        block_sync();
        for (u32 side = 0; side < 2; side++) {
            for (u32 i = thread_index(); i < stage.full; i += block_threads())
                if (row[i] != GONE && there(row[i])) row[i] = (u16)GONE;
            // In layout Wide a slot's bit is set before its key is written. So no thread moves a pair on from a slot that is
            // free now: another thread may be filling it. Homes of side 0 are full, and none of their slots was freed.
            if constexpr (!C::PACKED)
                for (u32 i = thread_index(); side && i < buckets(); i += block_threads())
                    claims[i] |= ~Fill<C>::begin(bucket(i)) & Cells<C>::ALL;
            block_sync();
            for (u32 i = thread_index(); i < stage.full; i += block_threads()) {
                u32 to = GONE;
                if (row[i] != GONE) {
                    if (lift(row[i], side, to)) row[i] = (u16)GONE;
                    else store_relaxed(&stage.again[side], 1u);
                }
                slot[i] = (u16)to;
            }
            block_sync();
            for (u32 i = thread_index(); i < stage.full; i += block_threads())
                if (slot[i] != GONE) once(slot[i]);
            block_sync();
            if (!stage.again[side]) return;
        }
        u16* left = rest().item;
        for (u32 i = thread_index(); i < stage.full; i += block_threads())
            if (row[i] != GONE) left[add(&stage.left, 1u)] = row[i];
        block_sync();
    }
    // there looks for the key of a row, while no pair is moved: other rows with it may be in by now, and one of the batch's values may stand.
    __device__ __forceinline__ bool there(u32 i) {
        Home<C> h(p.table, key_at(i), hash);
        if (h.reserved) return false;
        Bucket home = bucket(h, h.home), other = bucket(h, h.other);
        u32 same, away;
        Cells<C>::look(home, h.stored, same);
        Cells<C>::look(other, h.stored, away);
        if (REPLACE && (same | away)) Cells<C>::replace(same ? home : other, lowest_bit(same ? same : away), h.stored, value_at(i));
        return same | away;
    }
    // It tells whether the row is in, and gives the slot that it has got.
    __device__ __forceinline__ bool lift(u32 i, u32 side, u32& to) {
        constexpr u32 PREFER = C::SLOTS < 4 ? C::SLOTS : 4; // pairs that are looked at for one that helps the balance
        key k = key_at(i);
        value v = value_at(i);
        Home<C> h(p.table, k, hash);
        if (h.reserved) return false;
        Bucket from = bucket(h, side ? h.other : h.home);
        u32 same;
        if (side && Cells<C>::look(from, h.stored, same) != Cells<C>::ALL) return false; // of equal keys, some went again: nobody may go away from there
        u32* claim = fills() + from.number;
        for (u32 tries = 0; tries < PREFER + C::SLOTS; tries++) {
            u32 slot = (h.lo + tries) % C::SLOTS;
            if (or_of(claim, 1u << slot) >> slot & 1) continue;
            if (move(from, slot, tries >= PREFER)) {
                if (side) h.goes_away(stage.table);
                Cells<C>::put(from, slot, h.stored, v);
                to = from.number << SLOT_BITS | slot;
                return true;
            }
            and_of(claim, ~(1u << slot));
        }
        return false;
    }
    // move takes a pair to its other bucket, if that has room; without `any`, only if that helps the balance.
    __device__ __forceinline__ bool move(const Bucket& from, u32 slot, bool any) {
        key x;
        if (!Cells<C>::taken(from, slot, x)) return false;
        Home<C> h(p.table, x, hash);
        u32 sub = h.away(from.sub);
        if (!any && !(p.table.prefer >> sub & 1)) return false;
        if (!Fill<C>::bring(bucket(h, sub), from, slot)) return false;
        if (sub == h.other) h.goes_away(stage.table);
        return true;
    }
    // once takes a pair out again whose key has got a lower slot of its bucket, too.
    __device__ __forceinline__ void once(u32 at) {
        u32 number = at >> SLOT_BITS, slot = at & SLOT;
        Bucket b = bucket(number);
        key mine, x;
        u32 lower = fills()[number] & (1u << slot) - 1;
        if (lower) Cells<C>::taken(b, slot, mine);
        for (; lower; lower &= lower - 1) {
            if (!Cells<C>::taken(b, lowest_bit(lower), x) || !(x == mine)) continue;
            Cells<C>::clear(b, slot);
            return;
        }
    }

    // end sees to the few that are left, which need longer paths. They are listed for refine: here, a block would wait for the last of its own. If
    // rows were too many to list, paths are looked for, for all.
    __device__ __forceinline__ void end(bool all) {
        if (!all && !stage.left) return;
        u32 left = all ? n : stage.left, failed = 0;
        u16* row = rest().item;
        if (thread_index() == 0) {
            u32 base = all ? 0 : add_in_memory(at<u32>(p.list), left);
            stage.base = base;
            stage.listed = failed = all || base > p.limit ? 0 : p.limit - base < left ? (u32)p.limit - base : left;
        }
        block_sync();
        u32 listed = stage.listed;
        for (u32 i = thread_index(); i < listed; i += block_threads()) at<u32>(p.list)[1 + stage.base + i] = (u32)first + row[i];
        Paths count{0};
        typedef PathTile<C> Path;
        Path g;
        for (u32 i = listed + thread_index() / Path::LANES; i < left; i += block_threads() / Path::LANES) {
            u32 item = all ? i : row[i];
            LockedInsert<C, REPLACE> s;
            s.begin(stage.table, key_at(item), value_at(item));
            while (s.round(stage.table, g, count)) {}
            if (g.rank() == 0) failed += s.outcome == FULL;
        }
        u64* sums[2] = {&stage.sums.moved, &stage.sums.failed};
        u32 mine[2] = {count.moved, failed};
        block_count(sums, mine);
        block_sync();
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_staged(const stagedParams& p) {
    __shared__ Stage stage;
    u64 region = block_index(), first = load_readonly(at<u64>(p.starts) + region);
    u32 n = (u32)(load_readonly(at<u64>(p.starts) + region + 1) - first);
    if (!n && !p.refresh) return;
    StagedJob<REPLACE> job(p, stage, first, n);
    if (!C::THEOREM1) job.ask(0);
    job.lay(region);
    block_sync();
    job.load();
    block_sync();
    if (p.refresh && !p.empty) job.refresh();
    bool all = C::THEOREM1; // which chooses between a key's subtables itself
    if (!C::THEOREM1) {
        job.put_all();
        all = job.open().all();
        if (!all && stage.open) {
            job.away();
            all = job.rest().all();
            block_sync();
            if (all && thread_index() == 0) stage.full = 0;
            block_sync();
        }
    }
    if (all || stage.rest) job.alone(all);
    all = job.full().all();
    if (!all && stage.full) job.lift();
    job.end(all);
    job.store();
}

WARPMAP_KERNEL(insert_staged, stagedParams) { insert_staged<true>(p); }
WARPMAP_KERNEL(insert_staged_new, stagedParams) { insert_staged<false>(p); }
