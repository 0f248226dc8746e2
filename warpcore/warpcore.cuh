// WarpCore's open addressing on the device. A kernel of your own includes this file, takes a warpcore::Table by value,
// and calls insert, find and erase with a tile of any size; see doc.go for the layout, the invariants and an example.
//
// C is the struct that says what the table holds: see Map.Header. k and v are the bits of a key and a value.
#pragma once
#include "layout.h"
#include "warpmap.cuh"

namespace warpcore {

enum Outcome : u32 { FULL, PRESENT, INSERTED, REUSED }; // REUSED: inserted where a tombstone was

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// The probe sequence of a key: windows by double hashing, and in a window the slots from a place of the key's own.
template <class C> struct Probe {
    typedef typename C::key key;
    u64 slots, values; // addresses
    u64 window, windows;
    u64 hash, seed;
    key stored; // k, or for a reserved key its alias in the side region

    __device__ __forceinline__ Probe() {}
    __device__ __forceinline__ Probe(const Table& t, key k) {
        bool side = k > (key)(C::EMPTY - C::RESERVED);
        stored = side ? (key)(k - C::RESERVED) : k;
        slots = side ? t.side.slots : t.main.slots;
        values = side ? t.side.values : t.main.values;
        windows = side ? t.side.windows : t.main.windows;
        seed = t.seed;
        hash = hash64<C::HASH>(stored, seed);
        window = reduce(hash, windows);
    }
    __device__ __forceinline__ void advance() {
        if (windows == 1) return;
        window += 1 + reduce(seeded64(hash, seed), windows - 1);
        if (window >= windows) window -= windows;
    }
    __device__ __forceinline__ u32 first_slot() const { return (u32)hash & (C::WINDOW - 1); }
    __device__ __forceinline__ u64 window_address() const { return slots + window * (C::WINDOW * C::SLOT_BYTES); }
    __device__ __forceinline__ u64 slot_index(u32 slot) const { return window * C::WINDOW + slot; }
};

// How a layout reads and writes a slot. word is what a look-up reads of it: the whole pair, or the key.
template <class C, bool PACKED = C::PACKED> struct Access;

template <class C> struct Access<C, true> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef typename bits_of<C::SLOT_BYTES>::type word;

    static __device__ __forceinline__ u64 make(u64, key k, value v) { return (u64)k | (u64)v << 32; }
    static __device__ __forceinline__ u128 make(u128, key k, value v) { return u128{k, v}; }
    static __device__ __forceinline__ key key_of(u64 w) { return (key)w; }
    static __device__ __forceinline__ key key_of(u128 w) { return (key)w.lo; }
    static __device__ __forceinline__ value value_in(u64 w) { return (value)(w >> 32); }
    static __device__ __forceinline__ value value_in(u128 w) { return (value)w.hi; }
    static __device__ __forceinline__ word pack(key k, value v) { return make(word(), k, v); }
    // Free slots are all ones but for the lowest bit of a tombstone, so that clearing a table is filling it with 0xff.
    static __device__ __forceinline__ u64 free_word(u64, bool tombstone) { return ~(u64)tombstone; }
    static __device__ __forceinline__ u128 free_word(u128, bool tombstone) { return u128{~(u64)tombstone, ~0ull}; }

    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots) + index; }
    static __device__ __forceinline__ value load_value(u64, u64, u64, word seen) { return value_in(seen); }

    // claim writes the pair into a free slot, if it is still that.
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, value v) {
        word free = free_word(word(), tombstone);
        return cas(word_at(slots, index), free, pack(k, v)) == free;
    }
    // replace changes the value of a pair that was seen. One try is enough: if the word has changed since, another
    // replace or an erase came between, and this one counts as having come just before it.
    static __device__ __forceinline__ void replace(u64 slots, u64, u64 index, word seen, key k, value v) {
        word now = pack(k, v);
        if (now != seen) cas(word_at(slots, index), seen, now);
    }
    // remove makes the slot a tombstone, and tells whether it still held the key.
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word seen, key k) {
        for (;;) {
            word was = cas(word_at(slots, index), seen, free_word(word(), true));
            if (was == seen) return true;
            if (key_of(was) != k) return false;
            seen = was; // its value was replaced
        }
    }
};

// Key and value on their own. An insert marks the slot busy, writes the value, then the key: nobody reads a value that
// is not there yet, and no later value is overwritten by an earlier one.
template <class C> struct Access<C, false> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef key word;

    static __device__ __forceinline__ key key_of(word w) { return w; }
    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots + index * C::SLOT_BYTES); }
    static __device__ __forceinline__ value* value_at(u64 slots, u64 values, u64 index) {
        if constexpr (C::SOA) return at<value>(values) + index;
        else return at<value>(slots + index * C::SLOT_BYTES + C::VALUE_OFFSET);
    }
    static __device__ __forceinline__ value load_value(u64 slots, u64 values, u64 index, word) {
        return load_relaxed(value_at(slots, values, index));
    }
    static __device__ __forceinline__ bool claim(u64 slots, u64 values, u64 index, bool tombstone, key k, value v) {
        key free = tombstone ? C::TOMBSTONE : C::EMPTY;
        if (cas(word_at(slots, index), free, C::BUSY) != free) return false;
        store_relaxed(value_at(slots, values, index), v);
        store_release(word_at(slots, index), k);
        return true;
    }
    static __device__ __forceinline__ void replace(u64 slots, u64 values, u64 index, word, key, value v) {
        store_relaxed(value_at(slots, values, index), v);
    }
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word, key k) {
        return cas(word_at(slots, index), k, C::TOMBSTONE) == k;
    }
};

// What one lane of a tile holds of a window: vectors of 16 bytes, dealt to the lanes in turn.
template <class C, int G> struct View {
    typedef Access<C> A;
    typedef typename A::word word;
    typedef typename C::key key;
    // Words that one load takes; in layout AoS with wide slots the keys are apart, and each is a load.
    static constexpr int TOGETHER = sizeof(word) == C::SLOT_BYTES && sizeof(word) < 16 ? 16 / (int)sizeof(word) : 1;
    static constexpr int VECTOR = TOGETHER < C::WINDOW ? TOGETHER : C::WINDOW;
    static constexpr int LANES = C::WINDOW / VECTOR; // that a window keeps busy
    static constexpr int STEPS = LANES > G ? LANES / G : 1;
    static constexpr int WORDS = STEPS * VECTOR;
    word w[WORDS];
    bool busy; // this lane holds a part

    static __device__ __forceinline__ u32 slot(int i, int rank) { return (u32)((i / VECTOR * G + rank) * VECTOR + i % VECTOR); }

    __device__ __forceinline__ void load(u64 window_address, int rank) {
        busy = G <= LANES || rank < LANES;
        if (!busy) return;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const word* p = A::word_at(window_address, slot(s * VECTOR, rank));
            if constexpr (VECTOR == 1) w[s] = load_relaxed(p);
            else {
                word v[VECTOR];
                load_vector(p, v);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) w[s * VECTOR + i] = v[i];
            }
        }
    }
    // The slots whose key is k, as bits of i.
    __device__ __forceinline__ u32 matches(key k) const {
        u32 m = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) m |= (u32)(A::key_of(w[i]) == k) << i;
        return G <= LANES || busy ? m : 0;
    }
    // The free slot that comes first from `first` on: its distance, times two, plus one for a tombstone; ~0 without.
    __device__ __forceinline__ u32 first_free(u32 first, bool tombstones, int rank) const {
        u32 best = ~0u;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            key k = A::key_of(w[i]);
            u32 order = (slot(i, rank) - first & (C::WINDOW - 1)) * 2 + (k == C::TOMBSTONE);
            if ((k == C::EMPTY || (tombstones && k == C::TOMBSTONE)) && order < best) best = order;
        }
        return G <= LANES || busy ? best : ~0u;
    }
    __device__ __forceinline__ word pick(u32 i) const {
        word x = w[0];
#pragma unroll
        for (int j = 1; j < WORDS; j++)
            if (i == j) x = w[j];
        return x;
    }
};

// A chain that is longer than WARPCORE_PROBES_UNTOLD is told to look-ups before it is made.
__device__ __forceinline__ void tell_probes(const Table& t, u64 probes) {
    if (probes > WARPCORE_PROBES_UNTOLD && load_relaxed(&counters(t)->max_probes) < probes) max_of(&counters(t)->max_probes, probes);
}
__device__ __forceinline__ u64 probes_bound(const Table& t, u64 windows) {
    u64 told = load_relaxed(&counters(t)->max_probes);
    if (told < WARPCORE_PROBES_UNTOLD) told = WARPCORE_PROBES_UNTOLD;
    return told < windows ? told : windows;
}

// insert_at inserts a pair that all lanes of the tile bring, from window p on.
//
//   REPLACE  an equal key's value is replaced; otherwise the key is left as it is
//   REUSE    tombstones are taken. Only for a kernel beside which nothing is erased: see doc.go
//   MULTI    equal keys are not looked for
//
// A free slot is taken only after the whole chain, up to an empty slot or `limit` windows, was searched for the key.
template <class C, int G, bool REPLACE, bool REUSE, bool MULTI>
__device__ Outcome insert_at(const Table& t, tile<G> g, Probe<C> p, typename C::value v, u64 limit) {
    typedef Access<C> A;
    Probe<C> candidate; // the first free slot of the chain
    u32 free = ~0u;
    u64 candidate_probes = 0;
    if (limit > p.windows) limit = p.windows;
    for (u64 probes = 1;;) {
        View<C, G> s;
        s.load(p.window_address(), g.rank());
        if constexpr (!MULTI) {
            u32 m = s.matches(p.stored);
            if (u32 who = g.ballot(m != 0)) {
                if (REPLACE && g.rank() == lowest_bit(who)) {
                    int i = lowest_bit(m);
                    A::replace(p.slots, p.values, p.slot_index(s.slot(i, g.rank())), s.pick(i), p.stored, v);
                }
                return PRESENT;
            }
            if constexpr (!C::PACKED) // a key that is being written may be ours
                if (g.any(s.matches(C::BUSY) != 0)) {
                    pause();
                    continue;
                }
        }
        u32 here = g.min_of(s.first_free(p.first_slot(), REUSE, g.rank()));
        if (free == ~0u && here != ~0u) {
            free = here;
            candidate = p;
            candidate_probes = probes;
        }
        bool end = MULTI ? free != ~0u : g.any(s.matches(C::EMPTY) != 0);
        if (!end) {
            if (probes < limit) {
                probes++;
                p.advance();
                continue;
            }
            if (free == ~0u) return FULL;
        }
        bool won = false;
        if (g.rank() == 0) {
            tell_probes(t, candidate_probes);
            u32 slot = (free >> 1) + candidate.first_slot() & (C::WINDOW - 1);
            won = A::claim(candidate.slots, candidate.values, candidate.slot_index(slot), free & 1, candidate.stored, v);
        }
        if (g.shuffle((u32)won, 0)) return free & 1 ? REUSED : INSERTED;
        p = candidate; // another took the slot: it may hold our key now
        probes = candidate_probes;
        free = ~0u;
    }
}

// insert puts or replaces a pair that all lanes of the tile bring. It may run beside find, insert and erase.
// FULL: no window of the chain has room.
template <class C, int G> __device__ Outcome insert(const Table& t, tile<G> g, typename C::key k, typename C::value v) {
    return insert_at<C, G, true, false, false>(t, g, Probe<C>(t, k), v, ~0ull);
}
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C, int G> __device__ Outcome insert_new(const Table& t, tile<G> g, typename C::key k, typename C::value v) {
    return insert_at<C, G, false, false, false>(t, g, Probe<C>(t, k), v, ~0ull);
}
// insert_multi adds a pair whether or not its key is there: for a MultiMap.
template <class C, int G> __device__ Outcome insert_multi(const Table& t, tile<G> g, typename C::key k, typename C::value v) {
    return insert_at<C, G, false, false, true>(t, g, Probe<C>(t, k), v, ~0ull);
}

// insert_each inserts a pair that each lane brings of its own. The lanes try their keys' first slots all at once: where
// that is empty, the key is nowhere else, and nothing was read. The others' keys are then inserted by the tile together.
template <class C, int G, bool REPLACE, bool REUSE, bool MULTI>
__device__ Outcome insert_each(const Table& t, tile<G> g, bool active, typename C::key k, typename C::value v, u64 limit) {
    Probe<C> p(t, k);
    Outcome mine = FULL;
    bool todo = active;
    if (active && Access<C>::claim(p.slots, p.values, p.slot_index(p.first_slot()), false, p.stored, v)) {
        mine = INSERTED;
        todo = false;
    }
    for (u32 pending = g.ballot(todo); pending; pending &= pending - 1) {
        int owner = lowest_bit(pending);
        Probe<C> q = Probe<C>(t, g.shuffle(k, owner));
        Outcome o = insert_at<C, G, REPLACE, REUSE, MULTI>(t, g, q, g.shuffle(v, owner), limit);
        if (g.rank() == owner) mine = o;
    }
    return mine;
}

// Where a key was found: its first pair, and with ALL how many pairs it has.
template <class C> struct Hit {
    bool found;
    u32 count;
    u64 slots, values, index;
    typename Access<C>::word word;

    __device__ __forceinline__ typename C::value value() const { return Access<C>::load_value(slots, values, index, word); }
};

// find_each looks up a key that each lane brings of its own. The tile reads the windows of several keys at once: up to
// IN_FLIGHT loads are under way before the first is looked at. With ALL it counts the key's pairs, to the chain's end.
template <class C, int G, bool ALL = false>
__device__ __forceinline__ Hit<C> find_each(const Table& t, tile<G> g, bool active, typename C::key k) {
    typedef View<C, G> V;
    constexpr int IN_FLIGHT = G < 4 ? G : 4;
    Probe<C> p(t, k);
    Hit<C> hit;
    hit.found = false;
    hit.count = 0;
    hit.slots = p.slots;
    hit.values = p.values;
    u64 bound = ~0ull;
    u64 probes = 1;
    while (u32 pending = g.ballot(active)) {
        u64 address = p.window_address();
#pragma unroll
        for (int first = 0; first < G; first += IN_FLIGHT) {
            V s[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++)
                if (pending >> (first + j) & 1) s[j].load(g.shuffle(address, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++)
                if (pending >> (first + j) & 1) {
                    bool mine = g.rank() == first + j;
                    u32 m = s[j].matches(g.shuffle(p.stored, first + j));
                    u32 who = g.ballot(m != 0);
                    if (who) {
                        int i = lowest_bit(m);
                        u32 slot = g.shuffle(s[j].slot(i, g.rank()), lowest_bit(who));
                        typename V::word w = s[j].w[0];
                        if constexpr (C::PACKED) w = g.shuffle(s[j].pick(i), lowest_bit(who));
                        if (mine && !hit.found) {
                            hit.found = true;
                            hit.index = p.slot_index(slot);
                            hit.word = w;
                        }
                        if constexpr (ALL) {
                            u32 n = 0;
                            for (int i = 0; i < V::WORDS; i++) n += popcount(g.ballot(m >> i & 1));
                            if (mine) hit.count += n;
                        }
                    }
                    if ((!ALL && who) || g.any(s[j].matches(C::EMPTY) != 0)) active = active && !mine;
                }
        }
        if (active) {
            if (probes == WARPCORE_PROBES_UNTOLD || probes == p.windows) bound = probes_bound(t, p.windows);
            if (probes >= bound) active = false;
            p.advance();
        }
        probes++;
    }
    return hit;
}

// each_match calls visit(probe, slot index, word, number of the match) for every pair of a key that all lanes of the
// tile bring, each from the lane that holds it, and returns how many there are.
template <class C, int G, class Visit> __device__ u64 each_match(const Table& t, tile<G> g, typename C::key k, Visit visit) {
    Probe<C> p(t, k);
    u64 seen = 0, bound = ~0ull;
    for (u64 probes = 1;; probes++) {
        View<C, G> s;
        s.load(p.window_address(), g.rank());
        u32 m = s.matches(p.stored);
#pragma unroll
        for (int i = 0; i < View<C, G>::WORDS; i++) {
            u32 who = g.ballot(m >> i & 1);
            if (m >> i & 1)
                visit(p, p.slot_index(s.slot(i, g.rank())), s.w[i], seen + popcount(who & ((1u << g.rank()) - 1)));
            seen += popcount(who);
        }
        if (g.any(s.matches(C::EMPTY) != 0)) return seen;
        if (probes == WARPCORE_PROBES_UNTOLD || probes == p.windows) bound = probes_bound(t, p.windows);
        if (probes >= bound) return seen;
        p.advance();
    }
}

// find looks up a key that all lanes of the tile bring, and gives every lane the value. It may run beside insert and
// erase.
template <class C, int G> __device__ bool find(const Table& t, tile<G> g, typename C::key k, typename C::value& v) {
    typedef Access<C> A;
    Probe<C> p(t, k);
    u64 bound = ~0ull;
    for (u64 probes = 1;; probes++) {
        View<C, G> s;
        s.load(p.window_address(), g.rank());
        u32 m = s.matches(p.stored);
        if (u32 who = g.ballot(m != 0)) {
            int i = lowest_bit(m);
            typename C::value x{};
            if (m) {
                u64 index = p.slot_index(s.slot(i, g.rank()));
                if constexpr (!C::PACKED) load_acquire(A::word_at(p.slots, index)); // the value came before the key
                x = A::load_value(p.slots, p.values, index, s.pick(i));
            }
            v = g.shuffle(x, lowest_bit(who));
            return true;
        }
        if (g.any(s.matches(C::EMPTY) != 0)) return false;
        if (probes == WARPCORE_PROBES_UNTOLD || probes == p.windows) bound = probes_bound(t, p.windows);
        if (probes >= bound) return false;
        p.advance();
    }
}

// erase removes a key that all lanes of the tile bring, and tells whether this call did. It may run beside find, insert
// and erase.
template <class C, int G> __device__ bool erase(const Table& t, tile<G> g, typename C::key k) {
    Probe<C> p(t, k);
    u64 bound = ~0ull;
    for (u64 probes = 1;; probes++) {
        View<C, G> s;
        s.load(p.window_address(), g.rank());
        u32 m = s.matches(p.stored);
        if (u32 who = g.ballot(m != 0)) {
            u32 removed = 0;
            int i = lowest_bit(m);
            if (g.rank() == lowest_bit(who)) removed = Access<C>::remove(p.slots, p.slot_index(s.slot(i, g.rank())), s.pick(i), p.stored);
            if (g.shuffle(removed, lowest_bit(who))) return true;
            return false; // erased by another, just before
        }
        if (g.any(s.matches(C::EMPTY) != 0)) return false;
        if (probes == WARPCORE_PROBES_UNTOLD || probes == p.windows) bound = probes_bound(t, p.windows);
        if (probes >= bound) return false;
        p.advance();
    }
}

} // namespace warpcore
