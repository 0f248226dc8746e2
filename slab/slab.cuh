// The slab list and the slab hash on the device (paper, §III and IV). A kernel of your own includes this file, takes a
// slab::Table by value, and calls insert, insert_new, find and erase with a tile of any size; see doc.go for the layout, the
// invariants and the rules that let them run beside one another.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program. k and v are the bits of a key and a value.
#pragma once
#include "alloc.cuh"
#include "layout.h"
#include "outcome.cuh"
#include "slots.cuh"
#include "warpmap.cuh"

namespace slab {

// The first four are those of table.Op. ANY: each lane says which.
enum Kind : u32 { FIND, INSERT, INSERT_NEW, ERASE, INSERT_MULTI, ERASE_ONE, ANY };

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

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
        bool side = C::marks(k);
        stored = C::alias(k, side);
        u64 bucket = side ? t.buckets : reduce(hash64<C::HASH>(stored, t.seed), t.buckets);
        slab = t.base + bucket * SLAB_BYTES;
    }
};

template <bool WRITES> __device__ __forceinline__ void ask_slab(u64 slab) {
    for (u64 at = 0; at < SLAB_BYTES; at += 64) WRITES ? prefetch_to_write(slab + at) : prefetch_line(slab + at);
}
template <class C, bool WRITES> __device__ __forceinline__ void ask_home(const Table& t, typename C::key k) { ask_slab<WRITES>(Home<C>(t, k).slab); }

// Whether one lane, on the CPU device, loads and compares the words of a slab together.
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
template <class C, int G, int SIZE = sizeof(typename Access<C>::word)>
constexpr bool READS_AT_ONCE = G == 1 && SIZE == C::SLOT_BYTES && (SIZE == 4 || SIZE == 8) && C::SLOTS < 32;
#else
template <class C, int G> constexpr bool READS_AT_ONCE = false;
#endif

// View is what one lane of a tile holds of a slab's slots and link: vectors of up to 16 bytes, dealt to the lanes in turn. A
// tile of 8 lanes reads a slab with one load each; in larger tiles a lane's part is smaller.
template <class C, int G, bool = READS_AT_ONCE<C, G>> struct View {
    typedef Access<C> A;
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
    // first_of gives the lowest of a lane's bits; where there are none, any number of a word.
    static __device__ __forceinline__ u32 first_of(u32 bits) {
        if constexpr (WORDS == 1) return 0;
        else if constexpr (WORDS == 2) return ~bits & 1;
        else return (u32)lowest_bit(bits | 1u << (WORDS - 1));
    }
    // The value of the first, where words hold values.
    __device__ __forceinline__ typename C::value first_value(u32 bits, typename C::value otherwise) const {
        typename C::value x = otherwise;
#pragma unroll
        for (int i = WORDS - 1; i >= 0; i--) x = bits >> i & 1 ? A::value_in(w[i]) : x;
        return x;
    }
    static __device__ __forceinline__ u32 first_slot(u32 bits, int rank) { return slot(first_of(bits), rank); }
};

#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
// The same in vectors of the processor's.
template <class C> struct View<C, 1, true> {
    typedef Access<C> A;
    typedef typename A::word word;
    typedef typename C::key key;
    typedef Words<word, WARPMAP_VECTOR> Vector;
    static constexpr int VECTOR = Vector::N, STEPS = (C::SLOTS + VECTOR) / VECTOR, WORDS = STEPS * VECTOR;
    static constexpr int LINK_RANK = 0, LINK_WORD = C::SLOTS;
    static constexpr word KEY_BITS = sizeof(key) >= sizeof(word) ? ~(word)0 : (word)(((u64)1 << 8 * (sizeof(key) & 7)) - 1); // the key is the lower part
    static_assert(WORDS * sizeof(word) <= SLAB_BYTES, "vectors are of one slab");
    union {
        typename Vector::vector v[STEPS];
        word w[WORDS];
    };
    View() {}
    static u32 slot(int i, int) { return (u32)i; }
    void load(bool on, u64 slab, int) {
        for (int j = 0; j < STEPS; j++) v[j] = on ? load_words<Vector>(slab + j * WARPMAP_VECTOR) : typename Vector::vector{};
    }
    u32 matches(key k, int) const {
        u32 all = 0;
        for (int j = 0; j < STEPS; j++) all |= Vector::equal(v[j], KEY_BITS, (word)k) << j * VECTOR;
        return all & ((1u << C::SLOTS) - 1);
    }
    static u32 first_of(u32 bits) { return (u32)lowest_bit(bits | 1u << (WORDS - 1)); }
    typename C::value first_value(u32 bits, typename C::value otherwise) const {
        typename C::value x = A::value_in(w[first_of(bits)]);
        return bits ? x : otherwise;
    }
    static u32 first_slot(u32 bits, int) { return first_of(bits); }
};
#endif

// Spot finds the first slot of some kind in a slab, for this lane's own key: the lanes vote on each key of the tile in turn, and
// the lane whose key it is keeps the votes. Where a lane holds one word or two, a vote for each word tells the slot;
// otherwise the lane that holds it is asked.
template <class V, class Tile> struct Spot {
    static constexpr int G = Tile::LANES;
    static constexpr bool SPLIT = G > 1 && V::STEPS == 1 && V::WORDS <= 2;
    static constexpr int VOTES = SPLIT ? V::WORDS : 1;
    u32 votes[VOTES], place; // the votes are those of the warp

    __device__ __forceinline__ Spot() : place(0) {
#pragma unroll
        for (int i = 0; i < VOTES; i++) votes[i] = 0;
    }
    // collect is called for one lane's key after the other, by all; mine tells whether the key is this lane's. bits are
    // the words that are of the kind.
    __device__ __forceinline__ void collect(Tile g, u32 bits, bool mine) {
        if constexpr (SPLIT) {
#pragma unroll
            for (int i = 0; i < VOTES; i++) {
                u32 who = g.votes(bits >> i & 1);
                if (mine) votes[i] = who;
            }
        } else {
            // In tiles whose lanes read a slab in steps, slots go from lane to lane, and then to the next step.
#pragma unroll
            for (int step = 0; step < (G == 1 ? 1 : V::STEPS); step++) {
                u32 here = G == 1 || V::STEPS == 1 ? bits : bits >> step * V::VECTOR & (1u << V::VECTOR) - 1;
                u32 who = g.votes(here != 0);
                if (mine && (step == 0 || !g.of_tile(votes[0]))) votes[0] = who;
            }
        }
    }
    // locate follows the collects, likewise.
    __device__ __forceinline__ void locate(Tile g, u32 bits, bool mine) {
        if constexpr (!SPLIT) {
            u32 x = g.shuffle(V::first_slot(bits, g.rank()), holder(g));
            if (mine) place = x;
        }
    }
    __device__ __forceinline__ u32 lanes(Tile g) const {
        u32 all = votes[0];
#pragma unroll
        for (int i = 1; i < VOTES; i++) all |= votes[i];
        return g.of_tile(all);
    }
    __device__ __forceinline__ bool any(Tile g) const { return lanes(g) != 0; }
    // The lane that holds it, or otherwise another.
    __device__ __forceinline__ int holder(Tile g, int otherwise = 0) const {
        u32 who = lanes(g);
        return G == 1 ? 0 : who ? lowest_bit(who) : otherwise;
    }
    __device__ __forceinline__ u32 slot(Tile g) const {
        if constexpr (!SPLIT) return place;
        else if constexpr (V::WORDS == 1) return (u32)holder(g);
        else return (u32)holder(g) * 2 + !(g.of_tile(votes[0]) >> holder(g) & 1);
    }
};

// Asked is which slab each lane of a tile asks for, and for which key. The others get it from shared memory, in one load where
// shuffles would be three. The tile meets behind its making, and again before the next.
template <int G> struct Asked {
    u128* tile;
    __device__ __forceinline__ Asked(u64 slab, u64 key) {
        __shared__ u128 all[WARPMAP_MAX_THREADS];
        all[thread_index()] = u128{slab, key};
        tile = all + (thread_index() & ~(G - 1));
    }
    __device__ __forceinline__ u128 of(int rank) const { return tile[rank]; }
};
template <> struct Asked<1> {
    u128 own;
    __device__ __forceinline__ Asked(u64 slab, u64 key) : own{slab, key} {}
    __device__ __forceinline__ u128 of(int) const { return own; }
};

// Op is one operation of one key: what its lane knows between two reads.
//
//   KIND   what it does; with ANY each lane's own `kind` says so
//   REUSE  an insert takes tombstones, if the table says that there may be some. Only for a kernel beside which nothing is
//          erased: see doc.go
template <class C, u32 KIND, bool REUSE> struct Op {
    typedef Access<C> A;
    typedef typename A::word word;
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
    u64 tomb_slab; // the slab of the first tombstone of the chain, and which slot it is; 0: none yet. Only with REUSE
    u32 tomb_slot;
    u32 kind;
    u32 slot; // of a pair that was found, in slab
    value got; // its value, if that is in the word
    Outcome outcome;
    u32 linked; // slabs
    bool reused;

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
        tomb_slab = 0;
        tomb_slot = slot = linked = 0;
        got = value{};
        outcome = ABSENT;
        reused = false;
    }
    // go_on begins behind the first slab of the chain, which is full, and has neither the key nor a tombstone to take. false: no slab could be had.
    __device__ __forceinline__ bool go_on(const Table& t, Resident& r) {
        u32 next = load_relaxed(link_of<C>(slab));
        if (next == NONE) return extend(t, r, true) == AGAIN;
        slab = Memory::address(t.alloc, next);
        return true;
    }
    __device__ __forceinline__ bool is(u32 k) const { return KIND == ANY ? kind == k : KIND == k; }
    __device__ __forceinline__ bool inserts() const { return INSERTS && (is(INSERT) || is(INSERT_NEW) || is(INSERT_MULTI)); }

    // The word of a pair as it was seen.
    __device__ __forceinline__ word seen() const {
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
    // is looked at (in a loop that is wholly unrolled the compiler would look earlier). Then each lane acts for its own key.
    // It tells whether this lane's operation is still to be done.
    //
    // In a warp whose tiles vote together nearly all lanes are active; so the others read too. What a lane got is gone then:
    // found_value is for when the lane's own operation has just ended.
    template <class Tile>
    __device__ __forceinline__ bool round(const Table& t, Tile g, bool active, Resident& r, bool may_allocate = true) {
        constexpr int G = Tile::LANES, MOST = INSERTS ? 4 : 2, IN_FLIGHT = G < MOST ? G : MOST, UNROLL = G <= 8 && !INSERTS ? 2 : 1;
        constexpr bool ALL = Tile::together;
        typedef View<C, G> V;
        Asked<G> asked(slab, stored);
        g.sync(); // lanes come here from ways of their own
        u32 pending = ALL ? ~0u : g.ballot(active), next = NONE;
        Spot<V, Tile> hit, room, tomb; // for this lane's key: its pair, an empty slot, a tombstone
        bool wait = false;
#pragma unroll UNROLL
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!ALL && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
            u128 from[IN_FLIGHT];
            u32 all = 0, match[IN_FLIGHT], empty[IN_FLIGHT], dead[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                from[j] = asked.of(first + j);
                all |= (u32)(from[j].lo >> 32);
            }
            // Addresses have no highest bit, so this adds nothing. But it makes the first load hang on all addresses: otherwise
            // the compiler has the later loads wait for the first.
            int rank = g.rank() + (int)(all >> 31);
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load(ALL || (pending >> (first + j) & 1), from[j].lo, rank);
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = ALL || (pending >> (first + j) & 1), mine = g.rank() == first + j;
                if constexpr (MATCHES) {
                    match[j] = s[j].matches((key)from[j].hi, g.rank());
                    if (!on) match[j] = 0;
                    hit.collect(g, match[j], mine);
                }
                if constexpr (INSERTS) {
                    empty[j] = on ? s[j].matches(C::EMPTY, g.rank()) : 0;
                    room.collect(g, empty[j], mine);
                    // A key that is being written may be ours: then look again.
                    if constexpr (!C::PACKED) {
                        bool busy = g.any(on && s[j].matches(C::BUSY, g.rank()));
                        if (mine) wait = busy;
                    }
                }
            }
            if (REUSE && t.tombstones) {
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; j++) {
                    dead[j] = ALL || (pending >> (first + j) & 1) ? s[j].matches(C::TOMBSTONE, g.rank()) : 0;
                    tomb.collect(g, dead[j], g.rank() == first + j);
                }
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; j++) tomb.locate(g, dead[j], g.rank() == first + j);
            }
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool mine = g.rank() == first + j;
                if constexpr (MATCHES && PLACE) hit.locate(g, match[j], mine);
                if constexpr (INSERTS) room.locate(g, empty[j], mine);
                if constexpr (MATCHES && VALUE) {
                    value x = s[j].first_value(match[j], (value)low_bits(s[j].w[V::LINK_WORD]));
                    x = g.shuffle(x, hit.holder(g, V::LINK_RANK));
                    if (mine) got = x;
                } else {
                    u32 link = g.shuffle(low_bits(s[j].w[V::LINK_WORD]), V::LINK_RANK);
                    if (mine) next = link;
                }
            }
        }
        if constexpr (MATCHES && VALUE) next = (u32)got;
        Swap x{};
        Step step = active ? decide(t, g, hit, room, tomb, next, wait, x) : DONE;
        g.sync(); // so that all lanes of a warp swap at once
        word was{};
        if constexpr (C::PACKED && KIND != FIND)
            if (step == SWAP) was = cas(A::word_at(x.slab, x.slot), x.expected, x.wanted);
        if constexpr (INSERTS)
            if (step == EXTEND) step = extend(t, r, may_allocate); // while the others wait for their words
        if constexpr (KIND != FIND)
            if (step == SWAP) {
                if constexpr (!C::PACKED) was = act(x);
                step = swapped(x, was);
            }
        g.sync();
        return step == AGAIN;
    }

  private:
    enum Step : u32 { DONE, AGAIN, SWAP, EXTEND };
    // Swap is the change of a word that was seen, for all kinds of operation.
    struct Swap {
        u64 slab;
        u32 slot;
        word expected, wanted;
        bool adds, tombstone; // a pair; in a tombstone's place
    };

    // decide says what is to be done for this lane's key, now that its slab has been read.
    template <class Tile, class Where>
    __device__ __forceinline__ Step decide(const Table& t, Tile g, const Where& hit, const Where& room, const Where& tomb, u32 next, bool wait, Swap& x) {
        if (hit.any(g)) {
            slot = hit.slot(g);
            x = Swap{slab, slot, seen(), is(INSERT) ? A::pack(stored, v) : A::free_word(word(), true), false, false};
            bool change = (is(INSERT) || is(ERASE) || is(ERASE_ONE)) && (!C::PACKED || !(x.expected == x.wanted));
            if (!change) outcome = PRESENT;
            return change ? SWAP : DONE;
        }
        if (!C::PACKED && wait && inserts() && !is(INSERT_MULTI)) {
            pause();
            return AGAIN;
        }
        if (REUSE && !tomb_slab && tomb.any(g)) {
            tomb_slab = slab;
            tomb_slot = tomb.slot(g);
        }
        // Empty slots are the last of a chain, so behind one there is nothing.
        if (next != NONE && !(inserts() && room.any(g))) {
            slab = Memory::address(t.alloc, next);
            return AGAIN;
        }
        if (!inserts()) return DONE; // ABSENT
        bool tombstone = REUSE && tomb_slab;
        if (!tombstone && !room.any(g)) return EXTEND;
        x = Swap{tombstone ? tomb_slab : slab, tombstone ? tomb_slot : room.slot(g), A::free_word(word(), tombstone), A::pack(stored, v), true, tombstone};
        tomb_slab = 0;
        return SWAP;
    }
    // swapped tells what became of a swap. Where another was faster, the slab is read again, beside those of the other lanes.
    __device__ __forceinline__ Step swapped(const Swap& x, word was) {
        if (was == x.expected) {
            outcome = x.adds ? ADDED : PRESENT;
            reused = x.tombstone;
            return DONE;
        }
        slab = x.slab;
        if (x.adds || is(ERASE_ONE)) return AGAIN;
        if (is(INSERT)) { // as if this had come just before the other change
            outcome = PRESENT;
            return DONE;
        }
        return A::key_of(was) == stored ? AGAIN : DONE; // otherwise another erased it, just now
    }
    // act is cas where no word holds a whole pair: it tells x.expected if it did it, and otherwise another word.
    __device__ __forceinline__ word act(const Swap& x) {
        u64 values = values_of<C>(x.slab);
        bool done = true;
        if (x.adds) done = A::claim(x.slab, values, x.slot, x.tombstone, stored, v);
        else if (is(INSERT)) A::replace(x.slab, values, x.slot, stored, stored, v);
        else done = A::remove(x.slab, x.slot, stored, stored);
        return done ? x.expected : (word)~x.expected;
    }
    // extend links a new slab behind the last, which is full: all empty, as it was got, so that its slots are claimed like
    // all others.
    __device__ __forceinline__ Step extend(const Table& t, Resident& r, bool may_allocate) {
        u32 name = may_allocate ? Memory::allocate(t.alloc, r) : NONE;
        u32 was = name == NONE ? load_relaxed(link_of<C>(slab)) : cas(link_of<C>(slab), NONE, name);
        if (was == NONE && name == NONE) {
            outcome = FULL;
            return DONE;
        }
        if (was != NONE && name != NONE) Memory::release(t.alloc, name); // another linked one
        linked += was == NONE;
        slab = Memory::address(t.alloc, was == NONE ? name : was);
        return AGAIN;
    }
};

// Sweep goes through the whole chain of one key, for all of its pairs, the least recent first. It calls visit.turn(tile, rank)
// when it comes to the key of the lane with that rank, in all lanes; then the lanes that hold pairs of it call
// visit(slab, slot, word, number of the pair), which tells whether the pair counts. With Visit::NUMBERED all do.
template <class C> struct Sweep {
    typedef Access<C> A;
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
        g.sync(); // as in Op::round
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

// found(op) is called in the first lane where the key is there, and tells whether that will do; otherwise the operation begins again.
template <class C, u32 KIND, class Tile, class Found>
__device__ __forceinline__ Outcome run_one(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v, Found found) {
    Op<C, KIND, false> o;
    o.begin(t, KIND, k, v);
    u32 linked = 0;
    bool active = g.rank() == 0;
    while (g.any_of_all(active)) {
        bool was = active;
        active = o.round(t, g, active, r);
        if (!was || active) continue;
        linked += o.linked;
        if (o.outcome != PRESENT || found(o)) continue;
        o.begin(t, KIND, k, v);
        active = true;
    }
    if (g.rank() == 0) {
        if (o.outcome == ADDED) add(&counters(t)->inserted, (u64)1);
        if (linked) add(&counters(t)->linked, (u64)linked);
        if ((KIND == ERASE || KIND == ERASE_ONE) && o.outcome == PRESENT) add(&counters(t)->erased, (u64)1);
    }
    return (Outcome)g.shuffle((u32)o.outcome, 0);
}
struct Anything {
    template <class O> __device__ __forceinline__ bool operator()(const O&) const { return true; }
};
// insert puts or replaces. FULL: no slab could be had.
template <class C, class Tile> __device__ Outcome insert(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v) {
    return run_one<C, INSERT>(t, g, r, k, v, Anything());
}
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C, class Tile> __device__ Outcome insert_new(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v) {
    return run_one<C, INSERT_NEW>(t, g, r, k, v, Anything());
}
// find_or_insert puts the pair, or where the key is PRESENT gives every lane the value that is there.
template <class C, class Tile> __device__ Outcome find_or_insert(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value& v) {
    typename C::value there = v;
    Outcome o = run_one<C, INSERT_NEW>(t, g, r, k, v, [&](const Op<C, INSERT_NEW, false>& op) {
        there = op.found_value(true);
        return true;
    });
    v = g.shuffle(there, 0);
    return o;
}
// update puts the pair, or where the key is PRESENT makes of its value and v what now(value, v) says: all of them bits.
template <class C, class Tile, class Now>
__device__ Outcome update(const Table& t, Tile g, Resident& r, typename C::key k, typename C::value v, Now now) {
    return run_one<C, INSERT_NEW>(t, g, r, k, v, [&](const Op<C, INSERT_NEW, false>& op) {
        return Access<C>::merge(op.slab, values_of<C>(op.slab), op.slot, op.seen(), op.stored, v, now); // otherwise it has been erased
    });
}
// find gives every lane whether the key is there, and its value.
template <class C, class Tile> __device__ bool find(const Table& t, Tile g, typename C::key k, typename C::value& v) {
    Resident none;
    typename C::value there{};
    Outcome o = run_one<C, FIND>(t, g, none, k, v, [&](const Op<C, FIND, false>& op) {
        there = op.found_value(true);
        return true;
    });
    v = g.shuffle(there, 0);
    return o == PRESENT;
}
// erase removes a key, and tells every lane whether this call did.
template <class C, class Tile> __device__ bool erase(const Table& t, Tile g, typename C::key k) {
    Resident none;
    return run_one<C, ERASE>(t, g, none, k, typename C::value{}, Anything()) == PRESENT;
}

// fill writes a pair into a slot that nobody else looks at.
template <class C> __device__ __forceinline__ void fill(u64 slab, u32 slot, typename Access<C>::word w, typename C::value v) {
    if constexpr (!C::PACKED) store_relaxed(Access<C>::value_at(slab, values_of<C>(slab), slot), v);
    store_relaxed(Access<C>::word_at(slab, slot), w);
}

// Walk goes through one chain in order, on its own, where nothing changes it beside.
template <class C> struct Walk {
    typedef Access<C> A;
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

// flush compacts the chain of a bucket (§IV-C4): its pairs move together, in their order; the slabs that are left over are
// released. Nothing else may use the bucket meanwhile. Each tile of a warp brings a bucket of its own, whose base slab it has
// read, or is not on. It adds to the number of tombstones that are gone, and of slabs, as this lane saw to them.
template <class C, class Tile>
__device__ __forceinline__ void flush(const Table& t, Tile g, bool on, u64 base, View<C, Tile::LANES> s, u32& flushed, u32& freed) {
    constexpr int G = Tile::LANES;
    typedef Access<C> A;
    typedef View<C, G> V;
    typedef SlabAlloc<C::LIGHT> Memory;
    u64 from = base, to = base;
    u32 filled = 0;    // slots of `to`; those of the slabs before it are all filled
    u32 behind = NONE; // the slab that follows it
    while (g.any_of_all(on)) {
        u32 empty = s.matches(C::EMPTY, g.rank()), dead = s.matches(C::TOMBSTONE, g.rank()), live[V::WORDS], n = 0;
        // Each pair's number in the slab: slots go from lane to lane, and then to the next step.
#pragma unroll
        for (int step = 0; step < V::STEPS; step++) {
            u32 before = 0, all = 0;
#pragma unroll
            for (int i = step * V::VECTOR; i < (step + 1) * V::VECTOR; i++) {
                bool pair = on && V::slot(i, g.rank()) < C::SLOTS && !((empty | dead) >> i & 1);
                u32 who = g.ballot(pair);
                before += popcount(who & (1u << g.rank()) - 1);
                all += popcount(who);
                live[i] = pair ? 0 : NONE;
            }
#pragma unroll
            for (int i = step * V::VECTOR; i < (step + 1) * V::VECTOR; i++)
                if (!live[i]) live[i] = n + before++;
            n += all;
        }
        typename C::value values[V::WORDS];
#pragma unroll
        for (int i = 0; i < V::WORDS; i++)
            if (live[i] != NONE) values[i] = A::load_value(from, values_of<C>(from), V::slot(i, g.rank()), s.w[i]);
        u32 next = g.shuffle(low_bits(s.w[V::LINK_WORD]), V::LINK_RANK);
        bool last = g.any(empty != 0) || next == NONE;
        if (on && from == to) behind = next;
        u64 then = on && filled + n > C::SLOTS ? Memory::address(t.alloc, behind) : 0;
        u32 here = from == to ? filled + n : from == then ? filled + n - C::SLOTS : 0; // slots of this slab that stay filled
        g.sync(); // all has been read
#pragma unroll
        for (int i = 0; i < V::WORDS; i++) {
            u32 slot = V::slot(i, g.rank());
            if (!on || slot >= C::SLOTS) continue;
            if (live[i] != NONE) {
                u32 place = filled + live[i];
                u64 slab = place < C::SLOTS ? to : then;
                place -= place < C::SLOTS ? 0 : C::SLOTS;
                if (slab != from || place != slot) fill<C>(slab, place, s.w[i], values[i]);
            }
            if (slot >= here && !(empty >> i & 1)) store_relaxed(A::word_at(from, slot), A::free_word(typename A::word(), false));
            flushed += dead >> i & 1;
        }
        g.sync(); // before another lane writes to the slots that were cleared
        filled += n;
        if (on && filled > C::SLOTS) {
            filled -= C::SLOTS;
            to = then;
            behind = to == from ? next : load_relaxed(link_of<C>(to));
        }
        on = on && !last;
        if (on) from = Memory::address(t.alloc, next);
        s.load(on, from, g.rank());
    }
    // Behind the last pair all slabs are empty.
    if (g.rank() != 0 || behind == NONE) return;
    store_relaxed(link_of<C>(to), NONE);
    while (behind != NONE) {
        u64 slab = Memory::address(t.alloc, behind);
        u32 next = slab == from ? NONE : load_relaxed(link_of<C>(slab)); // the last that was read is the last
        if (slab != from) store_relaxed(link_of<C>(slab), NONE);
        Memory::release_for_later(t.alloc, behind);
        freed++;
        behind = next;
    }
}

} // namespace slab
