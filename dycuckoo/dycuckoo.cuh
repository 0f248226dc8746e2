// DyCuckoo's two-layer cuckoo hashing on the device. A kernel of your own includes this file, takes a dycuckoo::Table by value, and
// calls insert, find and erase; see doc.go for the layout, the invariants and an example.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program. k and v are the bits of a key and a value.
#pragma once
#include "layout.h"
#include "outcome.cuh"
#include "slots.cuh"
#include "warpmap.cuh"

namespace dycuckoo {

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// The hash of a key, word by word from the last.
template <class C> __device__ __forceinline__ u64 hash_word(const Table& t, u64 word) {
    if constexpr (C::HASH != 0)
        if (!t.rehashed) return hash64<C::HASH>(word, t.seed);
    return hash64<0>(word, t.seed);
}
template <class C> __device__ __forceinline__ u64 hash_key(const Table& t, u64 k) { return hash_word<C>(t, k); }
template <class C> __device__ __forceinline__ u64 hash_key(const Table& t, u32 k) { return hash_word<C>(t, k); }
template <class C> __device__ __forceinline__ u64 hash_key(const Table& t, u128 k) { return hash_word<C>(t, k.lo ^ hash_word<C>(t, k.hi)); }
template <class C> __device__ __forceinline__ u64 hash_key(const Table& t, u256 k) {
    return hash_word<C>(t, k.lo.lo ^ hash_word<C>(t, k.lo.hi ^ hash_key<C>(t, k.hi)));
}

// HashOf is hash_key of many keys: what they have in common is worked out once.
template <class C> struct HashOf {
    const Table& t;
    u64 plus;
    __device__ __forceinline__ HashOf(const Table& t) : t(t), plus(worked_out(seeded64_plus(t.seed))) {}
    __device__ __forceinline__ u64 of_word(u64 word) const {
        if constexpr (C::HASH == 0) return fmix64(word + plus);
        else return hash_word<C>(t, word);
    }
    __device__ __forceinline__ u64 operator()(u64 k) const { return of_word(k); }
    __device__ __forceinline__ u64 operator()(u32 k) const { return of_word(k); }
    __device__ __forceinline__ u64 operator()(u128 k) const { return of_word(k.lo ^ of_word(k.hi)); }
    __device__ __forceinline__ u64 operator()(u256 k) const { return of_word(k.lo.lo ^ of_word(k.lo.hi ^ (*this)(k.hi))); }
};

// A bucket: its addresses, and its number in its subtable.
struct Bucket {
    u64 slots, values, number;
    u32 sub;
};

// values_of is the address of a bucket's values. Those of a region that lies in shared memory stay where they are: its second stretch of a subtable
// is as far behind the first as there are regions.
template <class C> __device__ __forceinline__ u64 values_of(const Table& t, u32 sub, u64 number) {
    constexpr u64 BYTES = C::SLOTS * C::VALUE_BYTES;
    u64 apart = C::STAGED ? (number >> DYCUCKOO_LOCAL_BITS) * (((u64)1 << t.shift) - 1) << DYCUCKOO_LOCAL_BITS : 0;
    return t.sub[sub].values + (number + apart) * BYTES;
}

// Where a key belongs: its first layer names two subtables, home and other; its second a bucket in each.
template <class C> struct Home {
    typedef typename C::key key;
    key stored;  // k, or for a reserved key its alias on the side
    u32 lo, hi;  // the hash: each subtable has its own function of lo; hi names the subtables, the stretch, and the filter's bit
    u32 reserved; // 1 + the number of a reserved key; 0 for others
    u32 home, other;
    u32 shift; // of the stretch: see Table.Shift

    __device__ __forceinline__ Home() {}
    __device__ __forceinline__ Home(const Table& t, key k) : Home(t, k, [&t](key k) { return hash_key<C>(t, k); }) {}
    template <class Hash> __device__ __forceinline__ Home(const Table& t, key k, Hash hash) {
        bool side = C::marks(k);
        stored = C::alias(k, side);
        reserved = 0;
        if constexpr (C::PACKED) reserved = side ? 1 + (u32)(key)(C::EMPTY - k) : 0;
        u64 h = hash(stored);
        lo = (u32)h;
        hi = (u32)(h >> 32);
        u64 dice = (u64)hi * C::D;
        home = (u32)(dice >> 32);
        dice = (dice & 0xffffffff) * (C::D - 1);
        other = (u32)(dice >> 32);
        other += other >= home;
        if (home >= t.tilt.larger && other < t.tilt.larger && (u32)dice < t.tilt.turned) {
            u32 was = home;
            home = other;
            other = was;
        }
        shift = C::STAGED ? (u32)t.shift : 0;
    }
    // away is the subtable of the two that is not sub.
    __device__ __forceinline__ u32 away(u32 sub) const { return sub == home ? other : home; }

    __device__ __forceinline__ u32 number(u32 sub, u64 buckets) const {
        u32 f = fmix32(lo ^ (sub + 1) * 0x9e3779b9u), s = (hi & ((1u << DYCUCKOO_STRETCH_BITS) - 1)) >> shift;
        u32 x = (f & ((1u << DYCUCKOO_LOCAL_BITS) - 1)) | s << DYCUCKOO_LOCAL_BITS |
                f >> DYCUCKOO_LOCAL_BITS << (DYCUCKOO_LOCAL_BITS + DYCUCKOO_STRETCH_BITS);
        return x & ((u32)buckets - 1);
    }
    __device__ __forceinline__ u64 address(const Table& t, u32 sub) const {
        if (C::PACKED && reserved) return t.side + (reserved - 1) * C::BUCKET_BYTES;
        return t.sub[sub].slots + (u64)number(sub, t.sub[sub].buckets) * C::BUCKET_BYTES;
    }
    __device__ __forceinline__ Bucket bucket(const Table& t, u32 sub) const {
        Bucket b;
        b.sub = sub;
        b.number = C::PACKED && reserved ? reserved - 1 : number(sub, t.sub[sub].buckets);
        b.slots = address(t, sub);
        b.values = C::PACKED ? 0 : values_of<C>(t, sub, b.number);
        return b;
    }
    // The key's bit in the filter of its bucket at home: set once a key with this bit was put away from there.
    __device__ __forceinline__ u64 filter_bit(const Table& t) const {
        return (u64)number(home, t.sub[home].buckets) * DYCUCKOO_FILTER_BITS + (hi >> DYCUCKOO_STRETCH_BITS & (DYCUCKOO_FILTER_BITS - 1));
    }
    __device__ __forceinline__ bool may_be_away(const Table& t) const {
        u64 bit = filter_bit(t);
        return load_kept(at<u32>(t.sub[home].filter) + bit / 32) >> (bit & 31) & 1;
    }
    // begins_away tells whether Theorem 1 has an insert try the other subtable first.
    __device__ __forceinline__ bool begins_away(const Table& t) const {
        if constexpr (C::THEOREM1) {
            float mine = t.weight[home], there = t.weight[other];
            return !reserved && (float)fmix32(lo ^ hi) * (mine + there) > mine * 4294967296.0f;
        } else return false;
    }
    // goes_away marks the filter before the key is put away from its home.
    __device__ __forceinline__ void goes_away(const Table& t) const {
        u64 bit = filter_bit(t);
        or_of(at<u32>(t.sub[home].filter) + bit / 32, 1u << (bit & 31)); // nobody waits for it, as one would for a look at whether it is set
    }
};

// How many pairs a lane has added to each subtable, 16 bits each: no lane takes more items than mostOfLane of
// internal/frame/frame.go, which is a quarter of that.
template <class C> struct Tally {
    static constexpr int WORDS = (C::D + 3) / 4;
    u64 x[WORDS];
    __device__ __forceinline__ Tally() {
#pragma unroll
        for (int i = 0; i < WORDS; i++) x[i] = 0;
    }
    __device__ __forceinline__ void count(u32 sub, u32 n = 1) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) x[i] += (u64)(sub / 4 == (u32)i ? n : 0) << 16 * (sub & 3);
    }
    // into adds up a block's lanes, all of which must reach it; with MINUS, it takes away.
    template <bool MINUS = false> __device__ __forceinline__ void into(u64* pairs) const {
        u64* to[C::D];
        u32 n[C::D];
#pragma unroll
        for (int i = 0; i < C::D; i++) {
            to[i] = pairs + i;
            n[i] = (u32)(x[i / 4] >> 16 * (i & 3) & 0xffff);
        }
        block_count<C::D, MINUS>(to, n);
    }
};

// What one lane does with a bucket on its own: slots are numbers, and a set of slots is bits.
template <class C, bool PACKED = C::PACKED> struct Cells;

template <class C> struct Cells<C, true> {
    typedef Access<C> A;
    typedef typename C::key key;
    typedef typename C::value value;
    static constexpr u32 ALL = (1u << C::SLOTS) - 1;

    // look gives the slots that are taken, and those that hold k.
    static __device__ __forceinline__ u32 look(const Bucket& b, key k, u32& same) {
        View<C, 1, C::SLOTS> v;
        v.load(true, b.slots, 0);
        same = v.matches(k);
        return ALL & ~(v.matches(C::EMPTY) | v.matches(C::TOMBSTONE));
    }
    static __device__ __forceinline__ bool taken(const Bucket& b, u32 s, key& k) {
        k = A::key_of(load_relaxed(A::word_at(b.slots, s)));
        return !C::marks(k);
    }
    static __device__ __forceinline__ value* value_place(const Bucket& b, u32 s) { return A::value_at(b.slots, 0, s); }
    static __device__ __forceinline__ value value_at(const Bucket& b, u32 s) { return A::value_in(load_relaxed(A::word_at(b.slots, s))); }
    static __device__ __forceinline__ void put(const Bucket& b, u32 s, key k, value v) { A::put(b.slots, s, k, v); }
    static __device__ __forceinline__ void replace(const Bucket& b, u32 s, key k, value v) { A::put(b.slots, s, k, v); }
    static __device__ __forceinline__ void clear(const Bucket& b, u32 s) { set_free(b, s, true); }
    // set_free writes a free slot: one that was taken once its bucket was full, or one that never was.
    static __device__ __forceinline__ void set_free(const Bucket& b, u32 s, bool freed) {
        store_relaxed(A::word_at(b.slots, s), A::free_word(typename A::word{}, freed));
    }
    // remove frees a slot where no pair is moved, without a lock, and tells whether it still held the key.
    static __device__ __forceinline__ bool remove(const Bucket& b, u32 s, key k, bool freed = true) {
        typename A::word w = load_relaxed(A::word_at(b.slots, s));
        return A::key_of(w) == k && A::remove(b.slots, s, w, k, freed);
    }
};

// A bucket of layout Wide begins with a word that has a bit for each slot that is taken.
template <class C> struct Cells<C, false> {
    typedef typename C::key key;
    typedef typename C::value value;
    static constexpr u32 ALL = (1u << C::SLOTS) - 1;

    static __device__ __forceinline__ u32* mask(const Bucket& b) { return at<u32>(b.slots); }
    static __device__ __forceinline__ key* key_at(const Bucket& b, u32 s) { return at<key>(b.slots) + 1 + s; }
    static __device__ __forceinline__ value* value_place(const Bucket& b, u32 s) { return at<value>(b.values) + s; }
    static __device__ __forceinline__ u32 look(const Bucket& b, key k, u32& same) {
        u32 full = load_relaxed(mask(b));
        same = 0;
#pragma unroll
        for (u32 s = 0; s < C::SLOTS; s++)
            if (full >> s & 1) same |= (u32)(load_relaxed(key_at(b, s)) == k) << s;
        return full;
    }
    static __device__ __forceinline__ bool taken(const Bucket& b, u32 s, key& k) {
        k = load_relaxed(key_at(b, s));
        return load_relaxed(mask(b)) >> s & 1;
    }
    // Where stretches are in shared memory, their values are not.
    static __device__ __forceinline__ value value_at(const Bucket& b, u32 s) {
        if constexpr (C::STAGED) return load_memory(value_place(b, s));
        else return load_relaxed(value_place(b, s));
    }
    static __device__ __forceinline__ void put(const Bucket& b, u32 s, key k, value v) {
        store_relaxed(key_at(b, s), k);
        replace(b, s, k, v);
        or_of(mask(b), 1u << s);
    }
    static __device__ __forceinline__ void replace(const Bucket& b, u32 s, key, value v) {
        if constexpr (C::STAGED) store_memory(value_place(b, s), v);
        else store_relaxed(value_place(b, s), v);
    }
    static __device__ __forceinline__ void clear(const Bucket& b, u32 s) { and_of(mask(b), ~(1u << s)); }
    static __device__ __forceinline__ void set_free(const Bucket&, u32, bool) {}
    static __device__ __forceinline__ bool remove(const Bucket& b, u32 s, key, bool = true) { return and_of(mask(b), ~(1u << s)) >> s & 1; }
};

// look_together is Cells::look of two buckets by the lanes of a warp: a lane inspects a slot of one of them or, where a
// warp has lanes for both, of either.
template <class C, class Warp>
__device__ __forceinline__ void look_together(Warp g, const Bucket (&b)[2], typename C::key k, u32 (&full)[2], u32 (&same)[2]) {
    constexpr u32 EACH = C::SLOTS <= 16 ? 16 : 32;
#pragma unroll
    for (u32 first = 0; first < 2 * EACH; first += 32) {
        u32 i = first + g.rank(), s = i % EACH;
        typename C::key there;
        bool taken = s < C::SLOTS && Cells<C>::taken(i < EACH ? b[0] : b[1], s, there);
        u32 all = g.ballot(taken), equal = g.ballot(taken && there == k);
        full[first / EACH] = all & Cells<C>::ALL;
        same[first / EACH] = equal & Cells<C>::ALL;
        if constexpr (EACH == 16) {
            full[1] = all >> EACH;
            same[1] = equal >> EACH;
        }
    }
}

template <bool WRITES> __device__ __forceinline__ void ask_bucket(u64 address, u64 bytes) {
    for (u64 at = 0; at < bytes; at += 64) WRITES ? prefetch_to_write(address + at) : prefetch_line(address + at);
}
template <class C> constexpr u64 SLOTS_BYTES = C::PACKED ? C::SLOTS * sizeof(typename Access<C>::word) : 64;
template <class C, bool WRITES> __device__ __forceinline__ void ask_home(const Table& t, typename C::key k) {
    Home<C> h(t, k);
    ask_bucket<WRITES>(h.address(t, h.home), SLOTS_BYTES<C>);
}

// Search is the look-up of one key: what its lane knows between two reads. A tile reads a bucket whole, for several keys at once.
template <class C, bool PLACE, bool PACKED = C::PACKED> struct Search;

template <class C, bool PLACE> struct Search<C, PLACE, true> {
    typedef Access<C> A;
    Home<C> h;
    u64 address;
    bool away, found;
    bool room; // the bucket's last slot never was taken: it never was full, for slots are taken in their order
    u32 slot;
    typename A::word word;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k) {
        h = Home<C>(t, k);
        address = h.address(t, h.home);
        away = found = room = false;
        slot = 0;
        word = typename A::word{};
    }
    __device__ __forceinline__ typename C::value value() const { return A::value_in(word); }
    __device__ __forceinline__ Bucket bucket(const Table& t) const { return h.bucket(t, away ? h.other : h.home); }

    // round reads one bucket for every active lane's key, with the tile: up to IN_FLIGHT loads are under way before the first is
    // looked at. It tells whether this lane's key is still to be looked for.
    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4;
        typedef View<C, G, C::SLOTS> V;
        u32 pending = g.ballot(active);
#pragma unroll
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load_if(pending >> (first + j) & 1, g.shuffle(address, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = (pending >> (first + j) & 1) && V::holds(g.rank()), mine = g.rank() == first + j;
                typename C::key k = g.shuffle(h.stored, first + j);
                typename A::word w;
                u32 who = g.ballot(on & s[j].of(k, w));
                bool end = g.any(on & V::last(g.rank()) & A::key_of(s[j].w[V::WORDS - 1]) == C::EMPTY);
                int holder = highest_bit(who) & G - 1;
                u32 at_slot = 0;
                if constexpr (PLACE) at_slot = g.shuffle(V::slot(lowest_bit(s[j].matches(k) | 1u << 31), g.rank()), holder);
                w = g.shuffle(w, holder);
                if (mine) room = end;
                if (mine && who) {
                    found = true;
                    word = w;
                    slot = at_slot;
                    active = false;
                }
            }
        }
        if (!active || away || h.reserved || (!C::THEOREM1 && room) || !h.may_be_away(t)) return false;
        away = true;
        address = h.address(t, h.other);
        return true;
    }
};

// In layout Wide each lane looks on its own.
template <class C, bool PLACE> struct Search<C, PLACE, false> {
    static constexpr bool room = false;
    const Table* table;
    Home<C> h;
    bool away, found;
    u32 slot;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k) {
        table = &t;
        h = Home<C>(t, k);
        away = found = false;
        slot = 0;
    }
    __device__ __forceinline__ Bucket bucket(const Table& t) const { return h.bucket(t, away ? h.other : h.home); }
    __device__ __forceinline__ typename C::value value() const { return Cells<C>::value_at(bucket(*table), slot); }

    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile, bool active) {
        static_assert(Tile::LANES == 1, "lanes look on their own");
        if (!active) return false;
        u32 same;
        Cells<C>::look(bucket(t), h.stored, same);
        if (same) {
            found = true;
            slot = lowest_bit(same);
        }
        if (found || away || !h.may_be_away(t)) return false;
        away = true;
        return true;
    }
};

// The locks of one or two buckets, a bit each. Whoever holds the locks of both buckets of a key knows whether it is in: LockedInsert
// moves pairs under the locks of their two buckets, too. Nobody waits for a lock while it holds one.
struct Locks {
    u64 a, b;
    u32* words;
    __device__ __forceinline__ Locks(const Table& t, const Bucket& x, const Bucket& y)
        : a(x.number * DYCUCKOO_SUBTABLES + x.sub & t.lock_mask), b(y.number * DYCUCKOO_SUBTABLES + y.sub & t.lock_mask), words(at<u32>(t.locks)) {
        // In one order: lanes of a warp that took them crosswise would give them back and take them again, in step, for ever.
        if (a > b) {
            u64 first = b;
            b = a;
            a = first;
        }
    }
    // Whoever has waited does not ask for a lock that is seen taken: atomic operations would hold up the one that releases it.
    __device__ __forceinline__ bool take_one(u64 i, bool waited) {
        if (waited && load_relaxed(words + i / 32) >> (i & 31) & 1) return false;
        return !(or_of(words + i / 32, 1u << (i & 31)) >> (i & 31) & 1);
    }
    __device__ __forceinline__ void release_one(u64 i) { and_of(words + i / 32, ~(1u << (i & 31))); }
    __device__ __forceinline__ bool take(bool waited) {
        if (!take_one(a, waited)) return false;
        if (b != a && !take_one(b, waited)) {
            release_one(a);
            return false;
        }
        fence_acq_rel();
        return true;
    }
    __device__ __forceinline__ void release() {
        fence_acq_rel();
        if (b != a) release_one(b);
        release_one(a);
    }
};

// with_locks calls act under the locks. It is called in the loop that waits, so that a lane that has its locks does not wait, at the loop's
// end, for lanes of its warp that want them.
template <class Act> __device__ __forceinline__ void with_locks(Locks locks, Act act) {
    for (bool done = false, waited = false; !done;) {
        if (locks.take(waited)) {
            act();
            locks.release();
            done = true;
        } else {
            pause();
            waited = true;
        }
    }
}

// The first free slot that a view has: its number, plus FREED if it was taken before; NONE without.
static constexpr u32 NONE = ~0u, FREED = 32;
template <class C, class V> __device__ __forceinline__ u32 first_free(const V& s, int rank) {
    u32 best = NONE;
#pragma unroll
    for (int i = 0; i < V::WORDS; i++) {
        typename C::key k = Access<C>::key_of(s.w[i]);
        u32 order = V::slot(i, rank) + (k == C::TOMBSTONE ? FREED : 0);
        if ((k == C::EMPTY || k == C::TOMBSTONE) && order < best) best = order;
    }
    return best;
}

// Insert is the insertion of one key by compare-and-swaps: what its lane knows between two reads. It tries the key's home, then its other
// bucket. FULL: both are; see Displace. With REPLACE an equal key's value is replaced; otherwise the key is left as it is.
//
// Beside it pairs are added, replaced, and moved on by Displace, but none is erased. So a bucket that was seen full stays full, and a pair is moved on
// once at most: it leaves a full bucket. Free slots are taken in one order: two inserts of one key come to the same slot, or one sees the other's
// key. So does an insert whose key is being moved on: its pair is put in its other bucket before it gives up its slot. Whoever has missed it in both has
// seen the slot free that it has now, and fails to claim that.
template <class C, bool REPLACE> struct Insert {
    typedef Access<C> A;
    enum Stage : u32 { HOME, OTHER };
    Home<C> h;
    typename C::value v;
    u64 address; // of the bucket that is read next
    u32 stage;
    bool away_first;
    u32 room;   // a free slot at home, while the other bucket is read
    u32 sub;    // the subtable that has a pair more
    Outcome outcome;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k, typename C::value value) {
        h = Home<C>(t, k);
        v = value;
        outcome = FULL;
        away_first = h.begins_away(t);
        start(t);
    }
    __device__ __forceinline__ void start(const Table& t) {
        stage = HOME;
        address = h.address(t, h.home);
    }

    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4;
        typedef View<C, G, C::SLOTS> V;
        u32 pending = g.ballot(active), here = NONE, slot = 0;
        bool found = false;
        typename A::word seen{};
#pragma unroll
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load_if(pending >> (first + j) & 1, g.shuffle(address, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = (pending >> (first + j) & 1) && V::holds(g.rank());
                typename C::key k = g.shuffle(h.stored, first + j);
                u32 at_slot = 0;
                typename A::word word;
                bool somewhere, mine = s[j].of(k, word);
                u32 who = g.ballot(on & mine, somewhere);
                if (REPLACE && somewhere) {
                    int holder = highest_bit(who) & G - 1;
                    at_slot = g.shuffle(V::slot(lowest_bit(s[j].matches(k) | 1u << 31), g.rank()), holder);
                    word = g.shuffle(word, holder);
                }
                u32 order = g.min_of(on ? first_free<C>(s[j], g.rank()) : NONE);
                if (g.rank() != first + j || !active) continue;
                found = who;
                slot = at_slot;
                seen = word;
                here = order;
            }
        }
        if (!active) return false;
        if (found) {
            outcome = PRESENT;
            if (!REPLACE || A::replace(address, 0, slot, seen, h.stored, v)) return false;
            outcome = FULL;
            start(t); // it was moved on
            return true;
        }
        bool to_other = stage == OTHER && here != NONE && (away_first || room == NONE);
        if (stage == HOME) {
            room = here;
            // A slot that never was taken: no key has gone away from here.
            bool sure = !C::THEOREM1 && here < FREED;
            if (!h.reserved && (here == NONE || away_first || (!sure && h.may_be_away(t)))) {
                stage = OTHER;
                address = h.address(t, h.other);
                return true;
            }
        } else if (to_other) h.goes_away(t);
        else here = room;
        if (here == NONE) return false;
        return !claim(t, here, to_other); // at one place, so that the lanes of a warp do it at once
    }

    // claim takes the slot; where another has it now, the insertion begins again.
    __device__ __forceinline__ bool claim(const Table& t, u32 slot, bool to_other) {
        sub = h.reserved ? 0 : to_other ? h.other : h.home;
        if (A::claim(to_other == (stage == OTHER) ? address : h.address(t, sub), 0, slot % FREED, slot >= FREED, h.stored, v)) {
            outcome = ADDED;
            return true;
        }
        start(t);
        return false;
    }
};

// Displace is the insertion of one key whose two buckets are full, which all lanes of a tile bring: a pair of its home, or else of its other
// bucket, is moved on to that pair's other bucket, if that has room, and gives its slot to the key's. Of a few pairs that are looked at together
// it takes one whose other subtable helps the balance. FULL: none can be moved on; see LockedInsert.
//
// Beside it run insertions of its like, and Insert. So a bucket that was seen full stays full, and the key's pair, once it is in, stays where it is: both
// of its buckets are full. So whoever holds the lock of its home knows whether it is in. The lock of the bucket that a pair is moved on from is
// held, too: nobody else moves its pairs, but Insert may replace their values.
template <class C, bool REPLACE> struct Displace {
    typedef Access<C> A;
    enum { NO, ROOM, BALANCE };
    enum { AGAIN, DONE };
    Home<C> h;
    typename C::value v;
    Outcome outcome; // of the lane that brought the pair in; FULL for the others
    u32 sub;         // the subtable that has a pair more
    bool waited;     // for a lock

    // A pair that may be moved on.
    struct Victim {
        typename C::key key;
        u32 slot, to_sub, room; // where there is room for it
        u64 to;
    };

    __device__ __forceinline__ void begin(const Table& t, typename C::key k, typename C::value value) {
        h = Home<C>(t, k);
        v = value;
        outcome = FULL;
        waited = false;
    }
    // round tells whether to try again; `in`, whether the key is in the table then.
    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile g, bool& in) {
        in = false;
        if (h.reserved) return false;
        Victim x{};
        u32 lanes = 0;
        Bucket from;
        for (u32 i = 0; i < 2 && !lanes; i++) {
            from = h.bucket(t, i ? h.other : h.home);
            lanes = choose(t, g, from, x);
        }
        if (!lanes) return false;
        int chosen = lowest_bit(lanes);
        u32 what = AGAIN;
        if (g.rank() == chosen) what = move(t, from, x);
        in = g.shuffle(what, chosen) == DONE;
        return !in;
    }
    // choose gives the lanes whose victim has room elsewhere.
    template <class Tile> __device__ __forceinline__ u32 choose(const Table& t, Tile g, const Bucket& from, Victim& x) const {
        constexpr u32 EACH = Tile::LANES < 4 ? 4 / Tile::LANES : 1; // pairs that a lane looks after at a time
        u32 lanes = 0;
        for (u32 first = 0; first < C::SLOTS && !lanes; first += EACH * Tile::LANES) {
            u32 best = NO;
            for (u32 i = first + g.rank(); i < C::SLOTS && i < first + EACH * Tile::LANES && best < BALANCE; i += Tile::LANES) {
                Victim y;
                y.slot = (i + h.lo) % C::SLOTS;
                y.key = A::key_of(load_relaxed(A::word_at(from.slots, y.slot)));
                Home<C> its(t, y.key);
                y.to_sub = its.away(from.sub);
                y.to = its.address(t, y.to_sub);
                View<C, 1, C::SLOTS> view;
                view.load(true, y.to, 0);
                y.room = first_free<C>(view, 0);
                u32 what = y.room == NONE ? NO : t.prefer >> y.to_sub & 1 ? BALANCE : ROOM;
                if (what <= best) continue;
                best = what;
                x = y;
            }
            lanes = g.ballot(best == BALANCE);
            if (!lanes) lanes = g.ballot(best == ROOM);
        }
        return lanes;
    }
    __device__ __forceinline__ u32 move(const Table& t, const Bucket& from, const Victim& x) {
        Bucket home = h.bucket(t, h.home), other = h.bucket(t, h.other);
        Locks lock(t, home, from);
        u32 same, there;
        if (!lock.take(waited)) {
            pause();
            waited = true;
            // Where many bring one key, it need be seen but once: it was not in before this batch, and one of the batch's values may stand.
            Cells<C>::look(home, h.stored, same);
            Cells<C>::look(other, h.stored, there);
            if (same | there) outcome = PRESENT;
            return same | there ? DONE : AGAIN;
        }
        waited = false;
        typename A::word w = load_relaxed(A::word_at(from.slots, x.slot));
        u32 what = AGAIN;
        Cells<C>::look(home, h.stored, same);
        Cells<C>::look(other, h.stored, there);
        if (same | there) {
            const Bucket& b = same ? home : other;
            u32 slot = lowest_bit(same ? same : there);
            if (REPLACE) A::replace(b.slots, 0, slot, load_relaxed(A::word_at(b.slots, slot)), h.stored, v);
            outcome = PRESENT;
            what = DONE;
        } else if (A::key_of(w) == x.key) { // else another insert was here first
            Home<C> its(t, x.key);
            if (x.to_sub == its.other) its.goes_away(t);
            if (from.sub == h.other) h.goes_away(t);
            typename A::word free = A::free_word(w, x.room >= FREED);
            if (cas(A::word_at(x.to, x.room % FREED), free, w) == free) {
                // Whole, for those who look at it without the lock. A value that has been replaced meanwhile follows the pair.
                for (typename A::word was; (was = cas(A::word_at(from.slots, x.slot), w, A::pack(h.stored, v))) != w; w = was)
                    cas(A::word_at(x.to, x.room % FREED), w, was);
                outcome = ADDED;
                sub = x.to_sub;
                what = DONE;
            }
        }
        lock.release();
        return what;
    }
};

// Shifts counts the pairs that a lane has added, or moved from one subtable to another: AtOnce tells the table at once.
template <class C> struct Shifts {
    Tally<C> to, from;
    u32 moved;
    __device__ __forceinline__ Shifts() : moved(0) {}
    __device__ __forceinline__ void added(const Table&, u32 sub) { to.count(sub); }
    __device__ __forceinline__ void shift(const Table& t, u32 was, u32 is);
    // into is for all lanes of a block, which tell of so many that failed.
    __device__ __forceinline__ void into(Counters* sums, u32 failed = 0) const {
        to.into(sums->pairs);
        from.template into<true>(sums->pairs);
        u64* all[2] = {&sums->moved, &sums->failed};
        u32 n[2] = {moved, failed};
        block_count(all, n);
    }
};
struct AtOnce {
    static __device__ __forceinline__ void added(const Table& t, u32 sub) { add(&counters(t)->pairs[sub], (u64)1); }
    static __device__ __forceinline__ void shift(const Table& t, u32 was, u32 is) {
        add(&counters(t)->pairs[was], ~(u64)0);
        add(&counters(t)->pairs[is], (u64)1);
        add(&counters(t)->moved, (u64)1);
    }
};
template <class C> __device__ __forceinline__ void Shifts<C>::shift(const Table& t, u32 was, u32 is) {
    if (moved == 1u << 15) return AtOnce::shift(t, was, is); // a tally has 16 bits
    moved++;
    from.count(was);
    to.count(is);
}

// move_on moves the pair in a slot to its other bucket, if there is room; false if anything is not as the path said.
template <class C, class Count> __device__ __forceinline__ bool move_on(const Table& t, const Bucket& from, u32 slot, u32 barred, Count& count) {
    typename C::key k;
    if (!Cells<C>::taken(from, slot, k)) return true; // there is room now
    Home<C> h(t, k);
    if (h.home != from.sub && h.other != from.sub) return false; // half of another key
    Bucket to = h.bucket(t, h.away(from.sub));
    if (to.sub == barred) return false;
    bool moves = false;
    with_locks(Locks(t, from, to), [&] {
        typename C::key now;
        u32 same, room = ~Cells<C>::look(to, k, same) & Cells<C>::ALL;
        moves = room && Cells<C>::taken(from, slot, now) && now == k;
        if (!moves) return;
        if (to.sub == h.other) h.goes_away(t);
        Cells<C>::put(to, lowest_bit(room), k, Cells<C>::value_at(from, slot));
        fence_acq_rel(); // whoever misses the pair here sees the filter's bit
        Cells<C>::clear(from, slot);
    });
    if (moves) count.shift(t, from.sub, to.sub);
    return moves;
}

// make_room looks for a path of pairs, from a bucket on, that can each be moved to its other bucket, the last to a free slot; and moves them
// from the path's end on. So no pair is ever out of the table, and where no path is found nothing has changed. It tells whether to
// try again. Of the pairs that lead to a free slot, it takes one whose other subtable helps the balance. Nothing goes to the
// subtable `barred`. The lanes of a tile look at a bucket's pairs together.
template <class C, class Tile, class Count>
__device__ __forceinline__ bool make_room(const Table& t, Tile g, Bucket b, u32 dice, u32 longest, u32 barred, Count& count) {
    enum { NO, ONWARD, ROOM, BALANCE, FREE };
    u64 path[DYCUCKOO_MAX_PATH]; // the number of a bucket, its subtable, and the slot whose pair goes on
    u32 length = 0;
    for (u32 best = NO; best < ROOM;) {
        u32 slot = 0;
        best = NO;
        for (u32 from = 0; from < C::SLOTS && best < BALANCE; from += Tile::LANES) {
            u32 i = from + g.rank(), s = (i + dice) % C::SLOTS, what = NO, same;
            typename C::key k;
            if (i < C::SLOTS && !Cells<C>::taken(b, s, k)) what = FREE;
            else if (i < C::SLOTS) {
                Home<C> x(t, k);
                Bucket to = x.bucket(t, x.away(b.sub));
                if (to.sub != barred) what = Cells<C>::look(to, k, same) == Cells<C>::ALL ? ONWARD : t.prefer >> to.sub & 1 ? BALANCE : ROOM;
            }
            for (u32 w = FREE; w > best; w--) {
                u32 lanes = g.ballot(what == w);
                if (!lanes) continue;
                best = w;
                slot = g.shuffle(s, lowest_bit(lanes));
            }
        }
        if (best == NO) return false;
        path[length++] = b.number | (u64)b.sub << 48 | (u64)slot << 56;
        if (best >= ROOM) break;
        if (length == longest) return false;
        typename C::key k = typename C::key{};
        bool still = false;
        if (g.rank() == 0) still = Cells<C>::taken(b, slot, k);
        k = g.shuffle(k, 0);
        if (!g.shuffle((u32)still, 0)) break;
        Home<C> x(t, k);
        b = x.bucket(t, x.away(b.sub));
        dice = fmix32(dice + length);
    }
    while (g.rank() == 0 && length--) {
        Bucket from;
        from.number = path[length] & 0xffffffffffff;
        from.sub = (u32)(path[length] >> 48) & 0xff;
        from.slots = t.sub[from.sub].slots + from.number * C::BUCKET_BYTES;
        from.values = C::PACKED ? 0 : values_of<C>(t, from.sub, from.number);
        if (!move_on<C>(t, from, (u32)(path[length] >> 56), barred, count)) break;
    }
    g.sync();
    return true;
}

// PathTile looks for a path in bulk inserts, in buckets of few slots with half the lanes; MoveTile displaces.
#if defined(WARPMAP_HOST)
template <class C> using PathTile = tile<1>;
typedef tile<1> MoveTile;
#else
template <class C> using PathTile = tile<(2 * C::SLOTS <= DYCUCKOO_REFINE_GROUP ? DYCUCKOO_REFINE_GROUP / 2 : DYCUCKOO_REFINE_GROUP)>;
typedef tile<DYCUCKOO_MOVE_GROUP> MoveTile;
#endif

// LockedInsert is the insertion of one key under the locks of its two buckets. FULL: no path was found.
//
// By round, all lanes of a tile bring one key; those that fail to get the locks let the others of their warp go on, and
// try again. The outcome is the first lane's. By vote, each lane of a warp brings a key of its own, and the warp
// inserts one after the other.
template <class C, bool REPLACE> struct LockedInsert {
    enum { DONE, WAIT, SEEK };
    Home<C> h;
    typename C::value v;
    u32 tries, sub;
    bool waited; // for a lock
    Outcome outcome;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k, typename C::value value) {
        h = Home<C>(t, k);
        v = value;
        tries = 0;
        waited = false;
        sub = 0;
        outcome = FULL;
    }
    template <class Tile, class Count> __device__ __forceinline__ bool round(const Table& t, Tile g, Count& count) {
        Bucket mine = h.bucket(t, h.home), other = h.reserved ? mine : h.bucket(t, h.other);
        u32 next = DONE, longest = 0;
        if (g.rank() == 0) {
            longest = load_relaxed(&counters(t)->given_up) < DYCUCKOO_GIVEN_UP ? DYCUCKOO_MAX_PATH : DYCUCKOO_SHORT_PATH;
            next = attempt(t, mine, other, longest == DYCUCKOO_SHORT_PATH);
        }
        next = g.shuffle(next, 0);
        waited = next == WAIT;
        if (waited) pause();
        if (next != SEEK) return next == WAIT;
        longest = g.shuffle(longest, 0);
        u32 dice = fmix32(h.lo + ++tries * 0x9e3779b9u);
        if (h.reserved || tries > DYCUCKOO_MAX_TRIES || !make_room<C>(t, g, dice >> 31 ? mine : other, dice, longest, ~0u, count)) {
            if (g.rank() == 0) add(&counters(t)->given_up, (u64)1);
            return false;
        }
        return true;
    }
    // vote is the paper's voter coordination (§5.2, Algorithm 1). The warp votes for one of the lanes that have a pair
    // to insert: that leader tries to get its locks, once. If it does, the warp inspects both buckets, a lane a slot,
    // and the leader puts its pair or, where both are full, the warp makes room for it. If it does not, the warp votes
    // for another. So nobody waits for a lock, and no lane comes to lead again before the others have led. It tells
    // whether this lane's pair is still to be inserted. All lanes of the warp must reach it, those without a pair, too.
    template <class Warp, class Count> __device__ __forceinline__ bool vote(const Table& t, Warp g, bool active, Count& count) {
        static_assert(Warp::LANES == 32, "a warp votes");
        bool idle = true;
        for (u32 voters = g.ballot(active); voters; voters &= voters - 1) {
            int leader = lowest_bit(voters);
            bool leads = g.rank() == leader;
            Home<C> x(t, g.shuffle(C::real(h.stored, h.reserved), leader));
            Bucket mine = x.bucket(t, x.home), b[2] = {mine, x.reserved ? mine : x.bucket(t, x.other)};
            Locks locks(t, b[0], b[1]);
            bool locked = leads && locks.take(waited);
            if (leads) waited = !locked;
            if (!g.shuffle((u32)locked, leader)) continue;
            g.sync(); // the leader has acquired what was written under the locks, and hands it on: a shuffle orders no memory
            idle = false;
            u32 full[2], same[2], next = DONE;
            look_together<C>(g, b, x.stored, full, same);
            if (leads) {
                bool done = put(t, b[0], b[1], full[0], same[0], full[1], same[1]);
                locks.release();
                if (!done && load_relaxed(&counters(t)->given_up) < DYCUCKOO_GIVEN_UP) next = SEEK;
                tries++;
            }
            bool room = false;
            if (g.shuffle(next, leader) == SEEK) {
                u32 n = g.shuffle(tries, leader), dice = fmix32(x.lo + n * 0x9e3779b9u);
                room = !x.reserved && n <= DYCUCKOO_MAX_TRIES && make_room<C>(t, g, dice >> 31 ? b[0] : b[1], dice, DYCUCKOO_MAX_PATH, ~0u, count);
                if (!room && leads) add(&counters(t)->given_up, (u64)1);
            }
            if (leads) active = room; // and takes it when it leads again
        }
        if (idle) pause();
        return active;
    }
    __device__ __forceinline__ u32 attempt(const Table& t, const Bucket& mine, const Bucket& other, bool hopeless) {
        Locks locks(t, mine, other);
        if (!locks.take(waited)) return WAIT;
        bool done = act(t, mine, other);
        locks.release();
        return done || hopeless ? DONE : SEEK; // hopeless: so many found no path that the table is full
    }
    __device__ __forceinline__ bool act(const Table& t, const Bucket& mine, const Bucket& other) {
        u32 same, there, full = Cells<C>::look(mine, h.stored, same), full_there = Cells<C>::look(other, h.stored, there);
        return put(t, mine, other, full, same, full_there, there);
    }
    // put takes the slots that are taken, and those that hold the key, of both buckets: `other` of a reserved key is
    // its only one.
    __device__ __forceinline__ bool put(const Table& t, const Bucket& mine, const Bucket& other, u32 full, u32 same, u32 full_there, u32 there) {
        u32 room = ~full & Cells<C>::ALL, room_there = ~full_there & Cells<C>::ALL;
        if (h.reserved) there = room_there = 0;
        if (same | there) {
            if constexpr (REPLACE) Cells<C>::replace(same ? mine : other, lowest_bit(same ? same : there), h.stored, v);
            outcome = PRESENT;
            return true;
        }
        if (!(room | room_there)) return false;
        bool away = room_there && (!room || h.begins_away(t));
        if (away) h.goes_away(t);
        Cells<C>::put(away ? other : mine, lowest_bit(away ? room_there : room), h.stored, v);
        sub = h.reserved ? 0 : away ? h.other : h.home;
        outcome = ADDED;
        return true;
    }
};

// Every slot of the table, subtable by subtable, those of the side last. Gives the key as users know it.
template <class C> struct Slot {
    bool live, side;
    typename C::key k;
    Bucket b;
    u32 slot;
    __device__ __forceinline__ typename C::value load() const { return Cells<C>::value_at(b, slot); }
};
template <class C> __device__ __forceinline__ constexpr u64 side_slots() { return (u64)C::RESERVED * C::SLOTS; }
template <class C> __device__ __forceinline__ u64 slot_count(const Table& t) {
    u64 n = side_slots<C>();
    for (int i = 0; i < C::D; i++) n += t.sub[i].buckets * C::SLOTS;
    return n;
}
template <class C> __device__ __forceinline__ Slot<C> slot_of(const Subtable& r, u32 sub, u64 i) {
    Slot<C> s;
    s.side = false;
    s.b.sub = sub;
    s.b.number = i / C::SLOTS;
    s.slot = (u32)(i % C::SLOTS);
    s.b.slots = r.slots + s.b.number * C::BUCKET_BYTES;
    s.b.values = C::PACKED ? 0 : r.values + s.b.number * (C::SLOTS * C::VALUE_BYTES);
    s.live = Cells<C>::taken(s.b, s.slot, s.k);
    return s;
}
template <class C> __device__ __forceinline__ Slot<C> slot_at(const Table& t, u64 i) {
    for (u32 sub = 0; sub < C::D; sub++) {
        u64 n = t.sub[sub].buckets * C::SLOTS;
        if (i < n) return slot_of<C>(t.sub[sub], sub, i);
        i -= n;
    }
    Slot<C> s = slot_of<C>(Subtable{t.side, 0, 0, 0}, 0, i);
    s.side = true;
    s.k = C::real(s.k, s.live);
    return s;
}

// The operations below are for one key that a lane brings, and may run beside one another in a kernel, in any mixture: each holds the
// locks of both buckets of its key. They keep the table's counts.

template <class C, bool REPLACE> __device__ __forceinline__ Outcome insert_one(const Table& t, typename C::key k, typename C::value v) {
    LockedInsert<C, REPLACE> s;
    s.begin(t, k, v);
    AtOnce count;
    while (s.round(t, tile<1>(), count)) {}
    if (s.outcome == ADDED) count.added(t, s.sub);
    return s.outcome;
}
// insert puts or replaces. FULL: the key's buckets are full, and no pairs can be moved on.
template <class C> __device__ Outcome insert(const Table& t, typename C::key k, typename C::value v) { return insert_one<C, true>(t, k, v); }
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C> __device__ Outcome insert_new(const Table& t, typename C::key k, typename C::value v) { return insert_one<C, false>(t, k, v); }

// insert_voted is insert, or with REPLACE false insert_new, by the votes of a warp, all of whose lanes must reach it:
// those without a pair are not wanted.
template <class C, bool REPLACE> __device__ Outcome insert_voted(const Table& t, bool wanted, typename C::key k, typename C::value v) {
    LockedInsert<C, REPLACE> s;
    s.begin(t, k, v);
    AtOnce count;
    tile<32, true> g;
    for (bool active = wanted; g.any(active);) active = s.vote(t, g, active, count);
    if (wanted && s.outcome == ADDED) count.added(t, s.sub);
    return s.outcome;
}

// at_key calls act(bucket, slot) under the locks of the key's buckets, if it is there, and tells whether it was.
template <class C, class Act> __device__ __forceinline__ bool at_key(const Table& t, const Home<C>& h, Act act) {
    Bucket mine = h.bucket(t, h.home), other = h.reserved ? mine : h.bucket(t, h.other);
    u32 same = 0, there = 0;
    with_locks(Locks(t, mine, other), [&] {
        Cells<C>::look(mine, h.stored, same);
        if (!same && !h.reserved) Cells<C>::look(other, h.stored, there);
        if (same | there) act(same ? mine : other, (u32)lowest_bit(same ? same : there));
    });
    return same | there;
}

// find tells whether the key is there, and its value.
template <class C> __device__ bool find(const Table& t, typename C::key k, typename C::value& v) {
    Home<C> h(t, k);
    v = typename C::value{};
    if constexpr (C::PACKED) { // a pair is read whole: where it is seen it is
        u32 same;
        View<C, 1, C::SLOTS> view;
        view.load(true, h.address(t, h.home), 0);
        same = view.matches(h.stored);
        if (same) v = Access<C>::value_in(view.pick(lowest_bit(same)));
        if (same || h.reserved) return same;
        fence_acq_rel();
        if (!h.may_be_away(t)) return false;
    }
    return at_key(t, h, [&](const Bucket& b, u32 slot) { v = Cells<C>::value_at(b, slot); });
}

// find_or_insert puts the pair, or where the key is PRESENT gives the value that is there.
template <class C> __device__ Outcome find_or_insert(const Table& t, typename C::key k, typename C::value& v) {
    for (typename C::value there;;) { // again if the key has been put, or erased, in between
        Outcome o = PRESENT;
        if (find<C>(t, k, there)) v = there;
        else if ((o = insert_new<C>(t, k, v)) == PRESENT) continue;
        return o;
    }
}
// update puts the pair, or where the key is PRESENT makes of its value and v what now(value, v) says: all of them bits.
template <class C, class Now> __device__ Outcome update(const Table& t, typename C::key k, typename C::value v, Now now) {
    Home<C> h(t, k);
    for (;;) {
        if (at_key(t, h, [&](const Bucket& b, u32 slot) { Cells<C>::replace(b, slot, h.stored, now(Cells<C>::value_at(b, slot), v)); })) return PRESENT;
        Outcome o = insert_new<C>(t, k, v);
        if (o != PRESENT) return o;
    }
}

// erase removes a key, and tells whether this call did.
template <class C> __device__ bool erase(const Table& t, typename C::key k) {
    Home<C> h(t, k);
    return at_key(t, h, [&](const Bucket& b, u32 slot) {
        Cells<C>::clear(b, slot);
        add(&counters(t)->pairs[h.reserved ? 0 : b.sub], ~(u64)0);
        if (!h.reserved && b.sub != h.home) add(&counters(t)->away, (u64)1);
    });
}

} // namespace dycuckoo
