// The slab list and the slab hash on the device (paper, §III and IV). A kernel of your own includes this file, takes a
// slab::Table by value, and calls insert, insert_new, find and erase with a tile of any size; see doc.go for the layout, the
// invariants and the rules that let them run beside one another.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program. k and v are the bits of a key and a value.
#pragma once
#include "alloc.cuh"
#include "layout.h"
#include "slots.cuh"
#include "warpmap.cuh"

namespace slab {

// The first four are those of table.Op. ANY: each lane says which.
enum Kind : u32 { FIND, INSERT, INSERT_NEW, ERASE, INSERT_MULTI, ERASE_ONE, ANY };
// What became of an operation: those of table.Status.
enum Outcome : u32 { ABSENT, PRESENT, ADDED, FULL };

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// Slots says how lanes read and write a slot. Where a slab has keys alone, a slot is a key.
template <class C, bool KEYS_ONLY = C::VALUE_BYTES == 0> struct Slots : Access<C> {};
template <class C> struct Slots<C, true> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef key word;

    static __device__ __forceinline__ key key_of(word w) { return w; }
    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots) + index; }
    static __device__ __forceinline__ value load_value(u64, u64, u64, word) { return value{}; }
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, value) {
        key free = tombstone ? C::TOMBSTONE : C::EMPTY;
        return cas(word_at(slots, index), free, k) == free;
    }
    static __device__ __forceinline__ void replace(u64, u64, u64, word, key, value) {}
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word, key k) {
        return cas(word_at(slots, index), k, C::TOMBSTONE) == k;
    }
    static __device__ __forceinline__ void clear(u64 slots, u64 index) { store_relaxed(word_at(slots, index), C::EMPTY); }
};

__device__ __forceinline__ u32 low_bits(u32 w) { return w; }
__device__ __forceinline__ u32 low_bits(u64 w) { return (u32)w; }
__device__ __forceinline__ u32 low_bits(u128 w) { return (u32)w.lo; }

// The values of a slab, where they are apart from the keys.
template <class C> __device__ __forceinline__ u64 values_of(u64 slab) { return slab + C::VALUES_OFFSET; }
// The name of the next slab stands behind the slots.
template <class C> __device__ __forceinline__ u32* link_of(u64 slab) { return at<u32>(slab + C::LINK_OFFSET); }

// Home is where a key belongs: its bucket, whose first slab is in the base array. Reserved keys live in a bucket of their
// own, behind the last, under an alias.
template <class C> struct Home {
    typename C::key stored;
    u64 slab;

    __device__ __forceinline__ Home(const Table& t, typename C::key k) {
        bool side = k > (typename C::key)(C::EMPTY - C::RESERVED);
        stored = side ? (typename C::key)(k - C::RESERVED) : k;
        u64 bucket = side ? t.buckets : reduce(hash64<C::HASH>(stored, t.seed), t.buckets);
        slab = t.base + bucket * SLAB_BYTES;
    }
};

// View is what one lane of a tile holds of a slab's slots and link: vectors of up to 16 bytes, dealt to the lanes in turn. A
// tile of 8 lanes reads a slab with one load each; in larger tiles a lane's part is smaller.
template <class C, int G> struct View {
    typedef Slots<C> A;
    typedef typename A::word word;
    typedef typename C::key key;
    static constexpr int SIZE = sizeof(word);
    static constexpr int SHARE = SLAB_BYTES / G < 16 ? SLAB_BYTES / G : 16;
    static constexpr int VECTOR = SHARE > SIZE ? SHARE / SIZE : 1;            // words of a load
    static constexpr int LANES = (C::SLOTS + 1 + VECTOR - 1) / VECTOR;        // loads of a slab
    static constexpr int STEPS = (LANES + G - 1) / G;                         // of a lane
    static constexpr int WORDS = STEPS * VECTOR;
    static constexpr int LINK_RANK = C::SLOTS / VECTOR % G;                   // who holds the link,
    static constexpr int LINK_WORD = C::SLOTS / VECTOR / G * VECTOR + C::SLOTS % VECTOR; // and in which word
    word w[WORDS];

    static __device__ __forceinline__ u32 slot(int i, int rank) { return (u32)((i / VECTOR * G + rank) * VECTOR + i % VECTOR); }

    __device__ __forceinline__ void load(bool on, u64 slab, int rank) {
        constexpr bool EVEN = LANES % G == 0; // each lane has a part in every step
        if (!EVEN || !on) {
#pragma unroll
            for (int i = 0; i < WORDS; i++) w[i] = word{};
        }
        if (!on) return;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (!EVEN && s * G + rank >= LANES) break;
            const word* p = A::word_at(slab, slot(s * VECTOR, rank));
            if constexpr (VECTOR == 1) w[s] = load_relaxed(p);
            else {
                word v[VECTOR];
                load_vector(p, v);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) w[s * VECTOR + i] = v[i];
            }
        }
    }
    // The slots whose key is k, as bits of i. What is no slot does not count.
    __device__ __forceinline__ u32 matches(key k, int rank) const {
        u32 m = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) m |= (u32)(A::key_of(w[i]) == k && slot(i, rank) < C::SLOTS) << i;
        return m;
    }
    // The free slots: the empty ones, and maybe tombstones, which are the two highest keys.
    __device__ __forceinline__ u32 free(bool tombstones, int rank) const {
        u32 m = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            m |= (u32)(A::key_of(w[i]) >= (key)(C::EMPTY - tombstones) && slot(i, rank) < C::SLOTS) << i;
        return m;
    }
    __device__ __forceinline__ word pick(u32 i) const {
        word x = w[0];
#pragma unroll
        for (int j = 1; j < WORDS; j++)
            if (i == j) x = w[j];
        return x;
    }
    // first_of gives the lowest of a lane's bits; where there are none, any number of a word.
    static __device__ __forceinline__ u32 first_of(u32 bits) {
        if constexpr (WORDS == 1) return 0;
        else if constexpr (WORDS == 2) return ~bits & 1;
        else return (u32)lowest_bit(bits | 1u << (WORDS - 1));
    }
    __device__ __forceinline__ word first_word(u32 bits) const { return pick(first_of(bits)); }
    static __device__ __forceinline__ u32 first_slot(u32 bits, int rank) { return slot(first_of(bits), rank); }
};

// Votes are the lanes that hold a slot of some kind for this lane's own key: the first such slot of the slab is the first of
// the first such lane. In tiles whose lanes read a slab in steps, slots go from lane to lane, and then to the next step.
template <class V, int G> struct Votes {
    u32 lanes;
    __device__ __forceinline__ Votes() : lanes(0) {}
    // collect is called for one lane's key after the other, by all; mine tells whether the key is this lane's.
    template <class Tile> __device__ __forceinline__ void collect(Tile g, u32 bits, bool mine) {
#pragma unroll
        for (int step = 0; step < (G == 1 ? 1 : V::STEPS); step++) {
            u32 here = G == 1 || V::STEPS == 1 ? bits : bits >> step * V::VECTOR & (1u << V::VECTOR) - 1;
            u32 who = g.ballot(here != 0);
            if (mine && (step == 0 || !lanes)) lanes = who;
        }
    }
    __device__ __forceinline__ bool any() const { return lanes != 0; }
    __device__ __forceinline__ int holder() const { return G == 1 ? 0 : lowest_bit(lanes | 1u << 31) & (G - 1); }
};

// Op is one operation of one key: what its lane knows between two reads.
//
//   KIND   what it does; with ANY each lane's own `kind` says so
//   REUSE  an insert takes tombstones. Only for a kernel beside which nothing is erased: see doc.go
template <class C, u32 KIND, bool REUSE> struct Op {
    typedef Slots<C> A;
    typedef typename C::key key;
    typedef typename C::value value;
    typedef SlabAlloc<C::LIGHT> Memory;
    static constexpr bool INSERTS = KIND == INSERT || KIND == INSERT_NEW || KIND == INSERT_MULTI || KIND == ANY;
    static constexpr bool MATCHES = KIND != INSERT_MULTI;
    static constexpr bool PLACE = KIND != FIND || !C::PACKED;      // where a pair stands is wanted
    static constexpr bool VALUE = C::PACKED && C::VALUE_BYTES > 0; // and its value is in the word

    key stored;
    value v;
    u64 slab;      // the one to read next
    u64 candidate; // the slab of the first free slot of the chain; 0: none yet
    u32 free;      // that slot, times two, plus one for a tombstone
    u32 kind;
    u32 slot; // of a pair that was found, in slab
    value got; // its value, if that is in the word
    Outcome outcome;
    bool reused, linked;

    // rest names a slab for the lane to read while it has no operation, and others of its tile have.
    __device__ __forceinline__ void rest(const Table& t) {
        slab = t.base;
        stored = 0;
    }
    __device__ __forceinline__ void begin(const Table& t, u32 what, key k, value value_) {
        Home<C> h(t, k);
        stored = h.stored;
        slab = h.slab;
        v = value_;
        kind = KIND == ANY ? what : KIND;
        candidate = 0;
        free = slot = 0;
        got = value{};
        outcome = ABSENT;
        reused = linked = false;
    }
    __device__ __forceinline__ bool is(u32 k) const { return KIND == ANY ? kind == k : KIND == k; }

    // The word of a pair as it was seen.
    __device__ __forceinline__ typename A::word seen() const {
        if constexpr (VALUE) return A::pack(stored, got);
        else return stored;
    }
    // The value of a pair that was found; acquired, beside a kernel's own inserts: the value was written before the key.
    __device__ __forceinline__ value found_value(bool acquired) const {
        if (outcome != PRESENT) return value{};
        if constexpr (!C::PACKED)
            if (acquired) load_acquire(A::word_at(slab, slot));
        return A::load_value(slab, values_of<C>(slab), slot, seen());
    }

    // round reads one slab for every active lane's key, with the tile: up to IN_FLIGHT loads are under way before the first
    // is looked at. Then each lane acts for its own key. It tells whether this lane's operation is still to be done.
    //
    // In a warp whose tiles vote together nearly all lanes are active; so the others read too, and nobody looks at it.
    template <class Tile>
    __device__ __forceinline__ bool round(const Table& t, Tile g, bool active, Resident& r, bool may_allocate = true) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4, UNROLL = G <= 8 ? 2 : 1;
        constexpr bool ALL = Tile::together;
        typedef View<C, G> V;
        u32 pending = ALL ? ~0u : g.ballot(active), next = NONE, here = NONE;
        bool found = false, wait = false;
#pragma unroll UNROLL
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!ALL && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
            u32 match[IN_FLIGHT], open[IN_FLIGHT];
            Votes<V, G> hit, room; // for this lane's key
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load(ALL || (pending >> (first + j) & 1), g.shuffle(slab, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = ALL || (pending >> (first + j) & 1), mine = g.rank() == first + j;
                if constexpr (MATCHES) {
                    match[j] = s[j].matches(g.shuffle(stored, first + j), g.rank());
                    hit.collect(g, on ? match[j] : 0, mine);
                }
                if constexpr (INSERTS) {
                    open[j] = s[j].free(REUSE, g.rank());
                    room.collect(g, on ? open[j] : 0, mine);
                    // A key that is being written may be ours: then look again.
                    if constexpr (!C::PACKED) {
                        bool busy = g.any(on && s[j].matches(C::BUSY, g.rank()));
                        if (mine) wait = busy;
                    }
                }
                u32 link = g.shuffle(low_bits(s[j].w[V::LINK_WORD]), V::LINK_RANK);
                if (mine) next = link;
            }
            found |= hit.any();
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool mine = g.rank() == first + j;
                if constexpr (MATCHES && VALUE) {
                    value x = g.shuffle(A::value_in(s[j].first_word(match[j])), hit.holder());
                    if (mine) got = x;
                }
                if constexpr (MATCHES && PLACE) {
                    u32 x = g.shuffle(V::first_slot(match[j], g.rank()), hit.holder());
                    if (mine) slot = x;
                }
                if constexpr (INSERTS) {
                    u32 x = V::first_slot(open[j], g.rank()) * 2;
                    if constexpr (REUSE) x += ~low_bits(s[j].first_word(open[j])) & 1; // a tombstone is even
                    x = g.shuffle(x, room.holder());
                    if (mine && room.any()) here = x;
                }
            }
        }
        if (!active) return false;
        if (found) return act(t);
        if (INSERTS && (is(INSERT) || is(INSERT_NEW) || is(INSERT_MULTI))) {
            if (!C::PACKED && !is(INSERT_MULTI) && wait) {
                pause();
                return true;
            }
            if (here != NONE && !candidate) {
                candidate = slab;
                free = here;
            }
            // Empty slots are the last of a chain, so behind one there is nothing.
            bool end = next == NONE || (here != NONE && !(here & 1));
            if (end || (is(INSERT_MULTI) && candidate)) return candidate ? claim(t) : extend(t, r, may_allocate);
        }
        if (next == NONE) return false; // ABSENT
        slab = Memory::address(t.alloc, next);
        return true;
    }

  private:
    // act does what is to be done with a pair that was found.
    __device__ __forceinline__ bool act(const Table&) {
        outcome = PRESENT;
        if (is(INSERT)) A::replace(slab, values_of<C>(slab), slot, seen(), stored, v);
        if (is(ERASE) && !A::remove(slab, slot, seen(), stored)) outcome = ABSENT; // another did, just now
        if (is(ERASE_ONE) && !A::remove(slab, slot, seen(), stored)) {
            outcome = ABSENT;
            return true; // another took this pair: the key may have more
        }
        return false;
    }
    // claim takes the first free slot of the chain. If another was faster, it may hold our key now: look again from there.
    __device__ __forceinline__ bool claim(const Table&) {
        if (A::claim(candidate, values_of<C>(candidate), free >> 1, free & 1, stored, v)) {
            outcome = ADDED;
            reused = free & 1;
            return false;
        }
        slab = candidate;
        candidate = 0;
        return true;
    }
    // extend links a new slab behind the last, which is full, with the pair in its first slot.
    __device__ __forceinline__ bool extend(const Table& t, Resident& r, bool may_allocate) {
        u32 name = may_allocate ? Memory::allocate(t.alloc, r) : NONE;
        u32 was = NONE;
        if (name != NONE) {
            u64 fresh = Memory::address(t.alloc, name);
            A::claim(fresh, values_of<C>(fresh), 0, false, stored, v);
            fence();
            was = cas(link_of<C>(slab), NONE, name);
            if (was == NONE) {
                outcome = ADDED;
                linked = true;
                return false;
            }
            A::clear(fresh, 0);
            Memory::release(t.alloc, name);
        } else was = load_relaxed(link_of<C>(slab));
        if (was == NONE) {
            outcome = FULL;
            return false;
        }
        slab = Memory::address(t.alloc, was); // another linked one
        return true;
    }
};

// Sweep goes through the whole chain of one key, for all of its pairs, the least recent first. It calls visit.turn(tile, rank)
// when it comes to the key of the lane with that rank, in all lanes; then the lanes that hold pairs of it call
// visit(slab, slot, word, number of the pair), which tells whether the pair counts. With Visit::NUMBERED all do.
template <class C> struct Sweep {
    typedef Slots<C> A;
    typename C::key stored;
    u64 slab;
    u32 count;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k) {
        Home<C> h(t, k);
        stored = h.stored;
        slab = h.slab;
        count = 0;
    }
    // round reads one slab for every active lane's key, as Op::round does.
    template <class Tile, class Visit> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active, Visit& visit) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4, UNROLL = G <= 8 ? 2 : 1;
        typedef View<C, G> V;
        u32 pending = g.ballot(active), next = NONE, lower = (1u << g.rank()) - 1;
#pragma unroll UNROLL
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
            u64 from[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                from[j] = g.shuffle(slab, first + j);
                s[j].load(pending >> (first + j) & 1, from[j], g.rank());
            }
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                u32 match = s[j].matches(g.shuffle(stored, first + j), g.rank()), n = g.shuffle(count, first + j);
                if (!(pending >> (first + j) & 1)) match = 0;
                visit.turn(g, first + j);
#pragma unroll
                for (int step = 0; step < V::STEPS; step++) { // slots go from lane to lane, and then to the next step
                    u32 before = 0, all = 0;
#pragma unroll
                    for (int i = 0; i < V::VECTOR; i++) {
                        u32 who = g.ballot(match >> (step * V::VECTOR + i) & 1);
                        before += popcount(who & lower);
                        all += popcount(who);
                    }
                    u32 counted = 0;
#pragma unroll
                    for (int i = 0; i < V::VECTOR; i++) {
                        int word = step * V::VECTOR + i;
                        bool holds = match >> word & 1, counts = false;
                        if (holds) counts = visit(from[j], V::slot(word, g.rank()), s[j].w[word], n + before);
                        before += holds;
                        if constexpr (!Visit::NUMBERED) counted += popcount(g.ballot(counts));
                    }
                    n += Visit::NUMBERED ? all : counted;
                }
                u32 link = g.shuffle(low_bits(s[j].w[V::LINK_WORD]), V::LINK_RANK);
                if (active && g.rank() == first + j) {
                    count = n;
                    next = link;
                }
            }
        }
        if (!active || next == NONE) return false;
        slab = SlabAlloc<C::LIGHT>::address(t.alloc, next);
        return true;
    }
};

// The operations below are for one key that all lanes of the tile bring, and may run beside one another in a kernel, in
// any mixture. They keep the table's counts.

template <class C, u32 KIND, class Tile>
__device__ __forceinline__ Outcome run_one(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v, typename C::value* out) {
    Op<C, KIND, false> o;
    o.begin(t, KIND, k, v);
    bool active = g.rank() == 0;
    while (g.any_of_all(active)) active = o.round(t, g, active, r);
    if (g.rank() == 0) {
        if (o.outcome == ADDED) add(&counters(t)->inserted, (u64)1);
        if (o.linked) add(&counters(t)->linked, (u64)1);
        if ((KIND == ERASE || KIND == ERASE_ONE) && o.outcome == PRESENT) add(&counters(t)->erased, (u64)1);
    }
    if (out) *out = g.shuffle(g.rank() == 0 ? o.found_value(true) : typename C::value{}, 0);
    return (Outcome)g.shuffle((u32)o.outcome, 0);
}
// insert puts or replaces. FULL: no slab could be had.
template <class C, class Tile> __device__ Outcome insert(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v) {
    return run_one<C, INSERT>(t, g, r, k, v, nullptr);
}
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C, class Tile> __device__ Outcome insert_new(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v) {
    return run_one<C, INSERT_NEW>(t, g, r, k, v, nullptr);
}
// find gives every lane whether the key is there, and its value.
template <class C, class Tile> __device__ bool find(const Table& t, Tile g, typename C::key k, typename C::value& v) {
    Resident none;
    return run_one<C, FIND>(t, g, none, k, v, &v) == PRESENT;
}
// erase removes a key, and tells every lane whether this call did.
template <class C, class Tile> __device__ bool erase(const Table& t, Tile g, typename C::key k) {
    Resident none;
    return run_one<C, ERASE>(t, g, none, k, typename C::value{}, nullptr) == PRESENT;
}

// Walk goes through one chain in order, on its own, where nothing changes it beside.
template <class C> struct Walk {
    typedef Slots<C> A;
    u64 slab;
    u32 slot, depth; // the pair at hand; slabs from the first, 1 for the base slab
    typename A::word word;

    __device__ __forceinline__ Walk(const Table& t, u64 bucket) : slab(t.base + bucket * SLAB_BYTES), slot(~0u), depth(1) {}
    // next goes to the next pair; false: there is none.
    __device__ __forceinline__ bool next(const Table& t) {
        for (;;) {
            if (++slot == C::SLOTS) {
                u32 name = load_relaxed(link_of<C>(slab));
                if (name == NONE) return false;
                slab = SlabAlloc<C::LIGHT>::address(t.alloc, name);
                slot = 0;
                depth++;
            }
            word = load_relaxed(A::word_at(slab, slot));
            typename C::key k = A::key_of(word);
            if (k == C::EMPTY) return false;
            if (k != C::TOMBSTONE) return true;
        }
    }
    __device__ __forceinline__ typename C::key stored() const { return A::key_of(word); }
    __device__ __forceinline__ typename C::value value() const { return A::load_value(slab, values_of<C>(slab), slot, word); }
};

// flush compacts a chain (§IV-C4): its pairs move together, in their order; the slabs that are left over are released.
// Nothing else may use the bucket meanwhile. It adds to the number of tombstones that are gone, and of slabs.
template <class C> __device__ __forceinline__ void flush(const Table& t, u64 bucket, u64& flushed, u64& freed) {
    typedef Slots<C> A;
    typedef SlabAlloc<C::LIGHT> Memory;
    u64 from = t.base + bucket * SLAB_BYTES, to = from;
    u32 to_slot = 0;
    View<C, 1> whole; // most buckets are as they should be: that is seen with all loads under way at once
    whole.load(true, from, 0);
    if (!whole.matches(C::TOMBSTONE, 0) && low_bits(whole.w[View<C, 1>::LINK_WORD]) == NONE) return;
    for (;;) {
        bool end = false;
        for (u32 i = 0; i < C::SLOTS; i++) {
            typename A::word w = load_relaxed(A::word_at(from, i));
            typename C::key k = A::key_of(w);
            end = k == C::EMPTY;
            if (end) break;
            if (k != C::TOMBSTONE) {
                if (to_slot == C::SLOTS) {
                    to = Memory::address(t.alloc, load_relaxed(link_of<C>(to)));
                    to_slot = 0;
                }
                bool stays = to == from && to_slot == i;
                if (!stays) A::claim(to, values_of<C>(to), to_slot, false, k, A::load_value(from, values_of<C>(from), i, w));
                to_slot++;
                if (stays) continue;
            } else flushed++;
            A::clear(from, i);
        }
        u32 next = load_relaxed(link_of<C>(from));
        if (end || next == NONE) break;
        from = Memory::address(t.alloc, next);
    }
    // Behind the last pair all slabs are empty.
    u32 name = load_relaxed(link_of<C>(to));
    if (name != NONE) store_relaxed(link_of<C>(to), NONE);
    while (name != NONE) {
        u64 slab = Memory::address(t.alloc, name);
        u32 next = load_relaxed(link_of<C>(slab));
        store_relaxed(link_of<C>(slab), NONE);
        Memory::release(t.alloc, name);
        freed++;
        name = next;
    }
}

} // namespace slab
