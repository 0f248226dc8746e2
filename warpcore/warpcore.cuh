// WarpCore's open addressing on the device. A kernel of your own includes this file, takes a warpcore::Table by value,
// and calls insert, find and erase with a tile of any size; see doc.go for the layout, the invariants and an example.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program. k and v are the bits of a key and a value.
#pragma once
#include "items.cuh"
#include "layout.h"
#include "outcome.cuh"
#include "slots.cuh"
#include "warpmap.cuh"

namespace warpcore {

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// The probe sequence of a key: windows by double hashing; in a window, slots by their distance from the key's first slot,
// distance being ^, so that the slots of its 16 bytes, its sector, its window come in this order.
template <class C> struct Probe {
    typedef typename C::key key;
    u64 slots, values, overflow; // addresses
    u64 window, windows;
    u64 hash, seed;
    key stored; // k, or for a reserved key its alias in the side region

    __device__ __forceinline__ Probe() {}
    __device__ __forceinline__ Probe(const Table& t, key k) {
        bool side = C::marks(k);
        stored = C::alias(k, side);
        slots = side ? t.side.slots : t.main.slots;
        values = side ? t.side.values : t.main.values;
        overflow = side ? t.side.overflow : t.main.overflow;
        windows = side ? t.side.windows : t.main.windows;
        seed = t.seed;
        hash = hash64<C::HASH>(stored, seed);
        window = reduce(hash, windows);
    }
    // longest is how many windows a chain has at most. Those of its neighbourhood may come twice.
    __device__ __forceinline__ u64 longest() const { return windows + C::NEAR - 1; }
    // advance goes on from a window, the first of which has the number 1. The first C::NEAR are in one neighbourhood.
    __device__ __forceinline__ void advance(u64 number) {
        if (C::NEAR > 1 && number < C::NEAR) return advance_near();
        if (C::AROUND > 1) {
            u32 in = (u32)window & around() - 1;
            if (!(number & turn() - 1)) return onward(number - 1, 1, 0, 0);
            window = window - in + (in + hop() & around() - 1);
            return;
        }
        if (windows == 1) return;
        window += 1 + reduce(seeded64(hash, seed), windows - 1);
        if (window >= windows) window -= windows;
    }
    // The windows of a whole neighbourhood are a power of two, and the distance is odd: so all that come are different.
    __device__ __forceinline__ void advance_near() {
        u64 begin = window & ~(u64)(WARPCORE_NEIGHBOURHOOD - 1);
        u32 to = (u32)(window - begin) + (((u32)(hash >> WARPCORE_NEAR_SHIFT) & WARPCORE_NEIGHBOURHOOD - 1) | 1);
        if (windows - begin >= WARPCORE_NEIGHBOURHOOD) to &= WARPCORE_NEIGHBOURHOOD - 1;
        else to %= (u32)(windows - begin);
        window = begin + to;
    }
    __device__ __forceinline__ u64 on(u64 window, u64 more) const { return window + more < windows ? window + more : window + more - windows; }
    // stride is how far on n advances are, where the chain has left its neighbourhood; with C::AROUND, n turns.
    __device__ __forceinline__ u64 stride(u64 n) const {
        u64 hoods = windows / around();
        if (hoods == 1) return 0;
        u64 step = around() * (1 + reduce(seeded64(hash, seed), hoods - 1)), by = 0;
        for (int b = n ? 63 - (int)leading_zeros(n) : -1; b >= 0; b--) {
            by = on(by, by);
            if (n >> b & 1) by = on(by, step);
        }
        return by;
    }
    // Chains that go round among neighbourhoods: see layout.go. around is how many windows one has, and turn how many of them the chain takes before it
    // goes on to the next; hop is how far on the next of them is, less multiples of around, which is a power of two.
    __device__ __forceinline__ u32 around() const {
        if (C::AROUND == 1) return 1;
        u64 low = windows & (0 - windows);
        return low < C::AROUND ? (u32)low : C::AROUND;
    }
    __device__ __forceinline__ u32 turn() const { return around() < C::TURN ? around() : C::TURN; }
    __device__ __forceinline__ u32 hop() const { return (u32)(hash >> WARPCORE_NEAR_SHIFT) | 1; }
    // onward goes from the window with `before` others before it n windows on, which are so many turns `whole`, or one more; by is stride(whole).
    __device__ __forceinline__ void onward(u64 before, u32 n, u32 whole, u64 by) {
        u32 in = (u32)window & around() - 1, turns = (((u32)before & turn() - 1) + n) / turn();
        u64 from = on(window - in, by);
        if (turns > whole) from = on(from, stride(1));
        in += hop() * (n - turns * turn());
        if (turns) { // those that have been in all neighbourhoods are few
            u64 hoods = windows / around(), was = before / turn();
            if (was + turns >= hoods) in += hop() * turn() * (u32)((was + turns) / hoods - was / hoods);
        }
        window = from + (in & around() - 1);
    }
    // go_to goes to the window that has so many before it.
    __device__ __forceinline__ void go_to(u64 before) {
        u64 first = reduce(hash, windows), turns = before / turn();
        u32 in = (u32)first & around() - 1, rounds = (u32)(turns / (windows / around()));
        u64 from = on(first - in, stride(turns));
        window = from + (in + hop() * (rounds * turn() + (u32)(before & turn() - 1)) & around() - 1);
    }
    // number_of gives how many come before a window.
    __device__ __forceinline__ u64 number_of(u64 other) const {
        u64 first = reduce(hash, windows), hoods = windows / around(), from = first / around(), to = other / around();
        u64 turns = hoods > 1 ? quotient(to >= from ? to - from : to + hoods - from, stride(1) / around(), hoods) : 0;
        u32 inverse = hop(); // modulo 8; each step doubles its bits
        for (int i = 0; i < 4; i++) inverse *= 2 - hop() * inverse;
        u32 i = ((u32)other - (u32)first) * inverse & around() - 1;
        return (i / turn() * hoods + turns) * turn() + i % turn();
    }
    // quotient gives a / b modulo a prime number.
    static __device__ __forceinline__ u64 quotient(u64 a, u64 b, u64 prime) {
        long long inverse = 0, next = 1;
        for (u64 r = prime, n = b; n;) { // Euclid
            u64 q = r / n, rest = r % n;
            long long before = inverse - (long long)q * next;
            inverse = next;
            next = before;
            r = n;
            n = rest;
        }
        u64 product = 0, factor = inverse < 0 ? (u64)(inverse + (long long)prime) : (u64)inverse;
        for (int b = a ? 63 - (int)leading_zeros(a) : -1; b >= 0; b--) {
            product = product + product < prime ? product + product : product + product - prime;
            if (a >> b & 1) product = product + factor < prime ? product + factor : product + factor - prime;
        }
        return product;
    }
    // advances_to gives how many lead to another window, where the chain has left its neighbourhood: (other - window) / step, of which there is one,
    // modulo the prime number of windows.
    __device__ __forceinline__ u64 advances_to(u64 other) const {
        return quotient(other >= window ? other - window : other + windows - window, stride(1), windows);
    }
    __device__ __forceinline__ u32 first_slot() const { return (u32)hash & (C::WINDOW - 1); }
    __device__ __forceinline__ u64 window_address() const { return slots + window * (C::WINDOW * C::SLOT_BYTES); }
    // first_address is where a lane on its own reads first.
    __device__ __forceinline__ u64 first_address() const { return slots + (window * C::WINDOW + first_slot()) * C::SLOT_BYTES; }
    __device__ __forceinline__ u64 slot_index(u32 slot) const { return window * C::WINDOW + slot; }

    // The key's bit in the window's overflow filter; 0 once a key with this bit has gone past the window.
    __device__ __forceinline__ u64 overflow_bit() const {
        return window * C::OVERFLOW_BITS + ((u32)hash >> WARPCORE_OVERFLOW_SHIFT & (C::OVERFLOW_BITS - 1));
    }
    __device__ __forceinline__ bool overflowed() const {
        u64 bit = overflow_bit();
        return !(load_kept(at<u32>(overflow) + bit / 32) >> (bit & 31) & 1);
    }
    // pass_by marks the window before the key is put in a later one. Beside look-ups the order counts.
    __device__ __forceinline__ void pass_by(bool ordered) const {
        if (overflowed()) return;
        overflow_now();
        if (ordered) fence();
    }
    __device__ __forceinline__ void overflow_now() const {
        u64 bit = overflow_bit();
        and_of(at<u32>(overflow) + bit / 32, ~(1u << (bit & 31)));
    }
};

// A chain that is longer than WARPCORE_PROBES_UNTOLD is told to look-ups before it is made.
__device__ __forceinline__ void tell_probes(const Table& t, u64 probes) {
    if (probes > WARPCORE_PROBES_UNTOLD && load_relaxed(&counters(t)->max_probes) < probes) max_of(&counters(t)->max_probes, probes);
}
__device__ __forceinline__ u64 probes_bound(const Table& t, u64 windows) { // windows: of the longest chain
    u64 told = load_relaxed(&counters(t)->max_probes);
    if (told < WARPCORE_PROBES_UNTOLD) told = WARPCORE_PROBES_UNTOLD;
    return told < windows ? told : windows;
}

// A hint is what is noted of a key with a long chain: how many windows at its beginning are full, or will be when the kernel ends, because a tile that
// has values enough reserved them. Inserts begin behind them, so that a key with very many values does not cost the square of that.
//
// hint_of gives the address of a key's, 0 without; with MAKE it makes one of no windows, if there is a place for it.
template <bool MAKE, class C> __device__ __forceinline__ u64 hint_of(const Table& t, const Probe<C>& p) {
    if (!t.hints) return 0;
    u64 first = t.hints, mask = t.hint_mask;
    if (p.slots == t.side.slots) { // the side region's are behind the others
        first += (mask + 1) * sizeof(hint);
        mask = WARPCORE_SIDE_HINTS - 1;
    }
    for (u32 i = 0; i < WARPCORE_HINT_PLACES; i++) {
        hint* h = at<hint>(first) + ((p.hash >> 32) + i & mask);
        u64 seen = load_relaxed(&h->key), own = (u64)p.stored;
        if (seen == ~0ull) {
            if (!MAKE) return 0;
            seen = cas(&h->key, ~0ull, own);
            if (seen == ~0ull) seen = own;
        }
        if (seen == own) return (u64)h;
    }
    return 0;
}
// Those windows are counted down from all ones, as a clear table has.
__device__ __forceinline__ u64 hinted(u64 h) { return ~load_relaxed(&at<hint>(h)->left); }
__device__ __forceinline__ void hint_full(u64 h, u64 windows) {
    u64 left = load_relaxed(&at<hint>(h)->left);
    if (~left < windows) cas(&at<hint>(h)->left, left, ~windows); // if another came between, it knows as much
}
__device__ __forceinline__ u64 hint_reserve(u64 h, u64 windows) { return ~add(&at<hint>(h)->left, 0 - windows); }
// hint_reserve_within reserves no windows from number `end` on: it gives how many, from window number `to` on. What is too many goes back, by additions
// alone: thousands of tiles that swapped one word would wait for one another.
__device__ __forceinline__ u64 hint_reserve_within(u64 h, u64 windows, u64 end, u64& to) {
    to = hinted(h);
    if (to >= end) return 0;
    to = hint_reserve(h, windows);
    u64 got = to >= end ? 0 : windows < end - to ? windows : end - to;
    if (got < windows) add(&at<hint>(h)->left, windows - got);
    return got;
}

// Skip is the use that the insertion of one row makes of its key's hint.
template <class C> struct Skip {
    u64 address; // of the hint, if there is one
    u64 skipped; // windows

    __device__ __forceinline__ void begin() { address = skipped = 0; }
    // ask comes before each round of an insertion s, which skips full windows once it has gone so far that there may be a hint; and again from time to
    // time, for others may fill windows faster than it goes through them. The limit is of windows that are read: what is skipped does not count.
    template <class S> __device__ __forceinline__ void ask(const Table& t, S& s) {
        if (s.probes % WARPCORE_HINT_AGAIN != WARPCORE_HINT_ASK || s.part) return;
        address = hint_of<false>(t, s.p);
        u64 n = address ? hinted(address) : 0;
        if (n < s.probes) return;
        s.limit += n - (s.probes - 1);
        if (s.limit > s.p.windows) s.limit = s.p.windows;
        skipped = n < s.limit ? n : s.limit - 1;
        s.p.go_to(skipped);
        s.probes = skipped + 1;
    }
    // leave notes that the first windows of the chain of p are full.
    template <class P> __device__ __forceinline__ void leave(const Table& t, const P& p, u64 full) {
        if (full < WARPCORE_HINT_FROM || full < skipped + WARPCORE_HINT_STEP) return;
        if (!address) address = hint_of<true>(t, p);
        if (address) hint_full(address, full);
        skipped = full;
    }
};

// A lane on its own that reads windows whole.
struct WholeTile : tile<1> {};
template <class Tile> struct Reads { static constexpr bool WHOLE = Tile::LANES > 1; };
template <> struct Reads<WholeTile> { static constexpr bool WHOLE = true; };

// What a tile reads at once: the whole window; another lane on its own, the sector around its key's first slot, then the
// next. PARTS of them are a window, in the order of part ^ first_part.
template <class C, int G, bool WHOLE = (G > 1)> struct Part {
#if defined(WARPMAP_HOST)
    static constexpr int BYTES = 64; // a line
#else
    static constexpr int BYTES = WARPCORE_SECTOR_BYTES;
#endif
    static constexpr int SECTOR = C::SLOT_BYTES < BYTES ? BYTES / C::SLOT_BYTES : 1;
    static constexpr int SLOTS = WHOLE || C::WINDOW < SECTOR ? C::WINDOW : SECTOR;
    static constexpr u32 PARTS = C::WINDOW / SLOTS;
    typedef View<C, G, SLOTS> View_;
};

// What an insertion does where its key is there already. LOOKS: it needs the slot's word. meet is called by the lane that inserts, with the
// slot's index and the word.
struct Keep {
    static constexpr bool LOOKS = false;
    template <class S, class W> static __device__ __forceinline__ void meet(S&, u64, W) {}
};
struct Replace {
    static constexpr bool LOOKS = true;
    template <class S, class W> static __device__ __forceinline__ void meet(S& s, u64 index, W seen) {
        S::A::replace(s.p.slots, s.p.values, index, seen, s.p.stored, s.v);
    }
};

// Look leaves it to the caller, who finds the slot in the insertion.
struct Look {
    static constexpr bool LOOKS = true;
    template <class S, class W> static __device__ __forceinline__ void meet(S&, u64, W) {}
};

// Insert is the insertion of one key: what its lane knows between two reads.
//
//   MEETS    what it does where the key is there
//   REUSE    tombstones are taken. Only for a kernel beside which nothing is erased: see doc.go
//   MULTI    equal keys are not looked for
//
// A free slot is taken only after the whole chain, up to an empty slot, a window without overflow, or `limit` windows, was
// searched for the key.
template <class C, class MEETS, bool REUSE, bool MULTI> struct Insert {
    typedef Access<C> A;
    Probe<C> p;
    typename C::value v;
    u64 probes, limit;
    u32 part;
    u32 free;   // the first free slot of the chain: its distance from the first slot, as in View::first_free; ~0: none yet
    u64 candidate, candidate_probes;
    Outcome outcome;
    bool reused; // added where a tombstone was
    u64 place;   // ADDED or PRESENT: the slot's index
    typename A::word was; // PRESENT, and MEETS looks: its word

    // The value where the key was PRESENT. It was written before the key.
    __device__ __forceinline__ typename C::value value_there() const {
        if constexpr (!C::PACKED) load_acquire(A::word_at(p.slots, place));
        return A::load_value(p.slots, p.values, place, was);
    }

    __device__ __forceinline__ void begin(const Table& t, typename C::key k, typename C::value value, u64 windows) {
        p = Probe<C>(t, k);
        v = value;
        probes = 1;
        limit = p.longest();
        if (windows < limit) { // however short the limit, the key may be as far as any chain goes; but who does not look for it need not go there
            limit = MULTI ? 0 : probes_bound(t, limit);
            if (limit < windows) limit = windows;
        }
        part = 0;
        outcome = FULL;
        reused = false;
        free = ~0u;
    }

#if defined(WARPMAP_HOST)
    // at_once tells whether the key is in the part that is read first, as where it is PRESENT. It costs less than a round.
    inline bool at_once() {
        typedef typename Part<C, 1>::View_ V;
        u32 from = p.first_slot() / Part<C, 1>::SLOTS * Part<C, 1>::SLOTS;
        V first;
        first.load(true, p.slots + p.slot_index(from) * C::SLOT_BYTES, 0);
        u32 match = first.matches(p.stored);
        if (!match) return false;
        u32 i = (u32)lowest_bit(match);
        place = p.slot_index(from + V::slot((int)i, 0));
        was = load_relaxed(A::word_at(p.slots, place)); // from memory: it is there sooner than out of the vectors
        outcome = PRESENT;
        return true;
    }
#endif

    // round reads one part for every active lane's key, with the tile, and acts. It tells whether this lane's insertion
    // is still to be done.
    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4;
        typedef Part<C, G, Reads<Tile>::WHOLE> Parts;
        typedef typename Parts::View_ V;
        enum { NOTHING, FOUND, TAKE } act = NOTHING;
        u32 pending = g.ballot(active);
        u32 from = Parts::PARTS > 1 ? (part ^ p.first_slot() / Parts::SLOTS) * Parts::SLOTS : 0;
        u64 address = p.slots + p.slot_index(from) * C::SLOT_BYTES;
        u64 found = 0;
        typename A::word seen{};
#pragma unroll
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load(pending >> (first + j) & 1, g.shuffle(address, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = (pending >> (first + j) & 1) && V::holds(g.rank());
                u32 who = 0, slot = 0;
                typename A::word word{};
                if constexpr (!MULTI) {
                    u32 match = s[j].matches(g.shuffle(p.stored, first + j));
                    bool somewhere;
                    who = g.ballot(on && match, somewhere);
                    if (MEETS::LOOKS && somewhere) {
                        int i = lowest_bit(match | 1u << 31), holder = lowest_bit(who | 1u << 31) & G - 1;
                        slot = g.shuffle(V::slot(i, g.rank()), holder);
                        word = g.shuffle(s[j].pick(i), holder);
                    }
                }
                // A key that is being written may be ours: then look again.
                bool wait = !MULTI && !C::PACKED && g.any(on && s[j].matches(C::BUSY));
                bool end = g.any(on && s[j].matches(C::EMPTY));
                // A lane on its own does not look for room where the key is.
                u32 order = ONE_BY_ONE<Tile> && who ? ~0u : s[j].first_free(g.shuffle(p.first_slot() ^ from, first + j), REUSE, g.rank());
                u32 here = g.min_of(on ? order : ~0u);
                if (g.rank() != first + j || !active) continue;
                if (who) {
                    act = FOUND;
                    found = p.slot_index(from + slot);
                    seen = word;
                } else if (!wait) {
                    if (free == ~0u && here != ~0u) {
                        free = here;
                        candidate = p.window;
                        candidate_probes = probes;
                    }
                    if (end || (MULTI && free != ~0u)) act = TAKE;
                    else if (++part == Parts::PARTS) {
                        part = 0;
                        if (probes == limit || (free != ~0u && !p.overflowed())) act = TAKE;
                        else {
                            if (free == ~0u) p.pass_by(!REUSE);
                            p.advance(probes);
                            probes++;
                        }
                    }
                } else pause();
            }
        }
        if (act == FOUND) {
            place = found;
            was = seen;
            MEETS::meet(*this, found, seen);
            outcome = PRESENT;
            return false;
        }
        if (act == NOTHING) return active;
        if (free == ~0u) return false; // FULL
        tell_probes(t, candidate_probes);
        u64 index = candidate * C::WINDOW + (free >> 1 ^ p.first_slot());
        if (A::claim(p.slots, p.values, index, free & 1, p.stored, v)) {
            outcome = ADDED;
            place = index;
            reused = free & 1;
            return false;
        }
        again(); // another took the slot: it may hold our key now
        return true;
    }

    // again goes on from where the last free slot was, which is taken.
    __device__ __forceinline__ void again() {
        p.window = candidate;
        probes = candidate_probes;
        part = 0;
        free = ~0u;
    }
};

// InsertGroup is the insertion of many values of one key into a multimap: a tile goes along its chain, and takes the free slots of each window. The
// values lie in shared memory, where their order changes.
//
// LONG is for keys with long chains, in a table that has a slot for every value that is inserted: the tile reserves windows, no more than its values
// fill for sure, and fills them whole. Others do so beside it, each in its own windows. The last values, fewer than a window's, go where they find
// room, from the first window on that nobody has reserved.
template <class C, class Tile, bool LONG> struct InsertGroup {
    typedef Access<C> A;
    typedef View<C, Tile::LANES> V;
    Probe<C> p;
    V s; // the window of p
    u64 probes;
    u32 next, end; // values
    u32 added, reused; // by this lane
    u64 address;  // LONG: of the hint
    u32 reserved; // windows, that of p and those behind it

    __device__ __forceinline__ void begin(const Table& t, Tile g, bool on, typename C::key k, u32 first, u32 n) {
        if (on) {
            p = Probe<C>(t, k);
            probes = 1;
            next = first;
            end = first + n;
            if constexpr (LONG) {
                address = hint_of<true>(t, p);
                reserved = 0;
            } else s.load(true, p.window_address(), g.rank());
        }
        if constexpr (LONG) arrive(t, g, on, on && address, 0, n);
    }
    // arrive goes on to the next window, of which a tile that asks the hint learns which that is. `full` windows of the chain are, and `left`
    // values are to be inserted.
    __device__ __forceinline__ void arrive(const Table& t, Tile g, bool on, bool asks, u64 full, u32 left) {
        if constexpr (LONG) {
            if (g.any_of_all(asks)) {
                u64 to = 0;
                u32 whole = left / C::WINDOW;
                if (asks && g.rank() == 0) {
                    if (full) hint_full(address, full);
                    to = whole ? hint_reserve(address, whole) : hinted(address);
                }
                to = g.shuffle(to, 0);
                if (asks) {
                    p.go_to(to);
                    probes = to + 1;
                    reserved = whole;
                }
            }
            // Whoever fills a window whole that others have reserved windows behind cuts no chain.
            if (on && reserved && g.rank() == 0) p.pass_by(false);
        }
        if (on) s.load(true, p.window_address(), g.rank());
    }
    // round fills a window, and tells whether there are more values. What is left of them when the chain ends is next … end-1.
    __device__ __forceinline__ bool round(const Table& t, Tile g, bool busy, typename C::value* values) {
        Probe<C> here = p;
        bool on = busy && V::holds(g.rank());
        u32 mine = 0, tombstones = 0, first = p.first_slot(); // slots in the order of the chain
#pragma unroll
        for (int i = 0; i < V::WORDS; i++) {
            typename C::key k = A::key_of(s.w[i]);
            u32 bit = 1u << (V::slot(i, g.rank()) ^ first);
            if (on && (k == C::EMPTY || k == C::TOMBSTONE)) mine |= bit;
            if (k == C::TOMBSTONE) tombstones |= bit;
        }
        u32 free = mine, left = end - next, lost = 0;
#pragma unroll
        for (int d = 1; d < Tile::LANES; d *= 2) free |= g.shuffle(free, g.rank() ^ d);
        u32 n = (u32)popcount(free);
        bool stays = left < n, goes = busy && left > n && (LONG || probes < p.windows);
        if (stays) n = left;
        if constexpr (!LONG) {
            if (goes) { // the next window comes while this is filled
                if (g.rank() == 0) p.overflow_now();
                p.advance(probes);
                probes++;
                s.load(true, p.window_address(), g.rank());
            }
        } else leave(t, g, goes, left - n);
#pragma unroll
        for (int i = 0; i < V::WORDS; i++) {
            u32 order = V::slot(i, g.rank()) ^ first, number = (u32)popcount(free & (1u << order) - 1);
            if (!(mine >> order & 1) || number >= left) continue;
            if (A::claim(here.slots, here.values, here.slot_index(V::slot(i, g.rank())), tombstones >> order & 1, here.stored, values[next + number])) {
                added++;
                reused += tombstones >> order & 1;
            } else lost |= 1u << order;
        }
        if (g.any_of_all(lost != 0)) { // others took slots: their values come again, behind those that are in
#pragma unroll
            for (int d = 1; d < Tile::LANES; d *= 2) lost |= g.shuffle(lost, g.rank() ^ d);
            typename C::value v[V::WORDS];
            u32 again = (u32)popcount(lost);
#pragma unroll
            for (int i = 0; i < V::WORDS; i++) {
                u32 order = V::slot(i, g.rank()) ^ first;
                if (on && lost >> order & 1) v[i] = values[next + popcount(free & (1u << order) - 1)];
            }
            g.sync();
#pragma unroll
            for (int i = 0; i < V::WORDS; i++) {
                u32 order = V::slot(i, g.rank()) ^ first;
                if (on && lost >> order & 1) values[next + n - again + popcount(lost & (1u << order) - 1)] = v[i];
            }
            g.sync();
            n -= again;
        }
        if (busy) next += n;
        if constexpr (LONG) {
            bool more = busy && !goes && next < end; // some of its last values were lost
            if (more && stays) s.load(true, p.window_address(), g.rank());
            leave(t, g, more && !stays, end - next);
        }
        if (!busy) return false;
        if (next == end) {
            if (g.rank() == 0) tell_probes(t, probes);
            return false;
        }
        if constexpr (LONG) return probes <= p.windows;
        if (goes) return true;
        if (!stays) { // some of its last values were lost
            if (probes == p.windows) return false;
            if (g.rank() == 0) p.pass_by(false);
            p.advance(probes);
            probes++;
        }
        s.load(true, p.window_address(), g.rank());
        return true;
    }
    // leave goes on from a window that is full now.
    __device__ __forceinline__ void leave(const Table& t, Tile g, bool goes, u32 left) {
        if constexpr (LONG) {
            u64 full = probes;
            if (goes) {
                if (reserved) reserved--;
                else if (g.rank() == 0) p.pass_by(false);
                if (reserved || !address) {
                    p.advance(probes);
                    probes++;
                }
            }
            arrive(t, g, goes, goes && !reserved && address, full, left);
        }
    }
};

// insert_each inserts a pair that each active lane brings of its own.
template <class C, class MEETS, bool REUSE, bool MULTI, class Tile>
__device__ __forceinline__ Outcome insert_each(const Table& t, Tile g, bool active, typename C::key k, typename C::value v, u64 limit) {
    Insert<C, MEETS, REUSE, MULTI> s;
    s.begin(t, k, v, limit);
    while (g.any_of_all(active)) active = s.round(t, g, active);
    return s.outcome;
}

// Held is what a slot with a key holds: one pair. (Those of a MultiBucket hold several.)
template <class C> struct Held {
    typedef typename Access<C>::word word;
    static constexpr bool SEVERAL = false;
    static __device__ __forceinline__ u32 count(word) { return 1; }
    // tally gives how many pairs there are in the slots with `match`, of one for each lane of a tile, and before this lane's.
    template <class Tile> static __device__ __forceinline__ u32 tally(Tile g, bool match, word, u32& before) {
        u32 holders = g.ballot(match);
        before = (u32)popcount(holders & (1u << g.rank()) - 1);
        return (u32)popcount(holders);
    }
    // each calls visit(value) for every pair.
    template <class Visit> static __device__ __forceinline__ void each(u64 slots, u64 values, u64 index, word w, Visit visit) {
        visit(Access<C>::load_value(slots, values, index, w));
    }
};

// Where a key was found: its first pair, and with ALL how many pairs it has.
template <class C> struct Hit {
    bool found;
    u32 count;
    u64 slots, values, index;
    typename C::key stored; // the key as it stands in the slot
    typename Access<C>::word word;

    __device__ __forceinline__ typename C::value value() const { return Access<C>::load_value(slots, values, index, word); }
    // value beside a kernel's own inserts: the value was written before the key.
    __device__ __forceinline__ typename C::value value_acquired() const {
        if constexpr (!C::PACKED) load_acquire(Access<C>::word_at(slots, index));
        return value();
    }
};

// HIT: more is asked of the hit than how many pairs there are. WRITES: a visit writes the values, packed, one behind the other; then visit.goes(count) says
// for the key of this lane whether so many are still asked for, and visit.to(count) where the next of them goes.
struct NoVisit {
    static constexpr bool VISITS = false, PLACES = false, HIT = true, WRITES = false;
    __device__ __forceinline__ void begin(u64) {}
    template <class Tile> __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ void operator()(u64, u64, u64, W, u32) {}
};

// Whether a visit keeps the first value of a key, with the key's lane: then first(value) comes to that lane, alone or where lanes of a tile tally.
template <class Visit, class = void> constexpr bool KEEPS_FIRST = false;
template <class Visit> constexpr bool KEEPS_FIRST<Visit, decltype((void)Visit::FIRST)> = Visit::FIRST;
// Whether a tile of G lanes adds up at once what it has of several keys' windows: see tally.
template <class C, int G> constexpr bool TALLIES = C::PACKED && !Held<C>::SEVERAL && G > 1 && G <= 4 && C::WINDOW <= 8;

// Search is the look-up of one key: what its lane knows between two reads.
//
// With ALL it goes to the end of the chain and counts the key's pairs. It calls visit.turn(tile, rank) when it comes to the
// key of the lane with that rank, in all lanes; then the lanes that hold slots of it call visit(slots, values, index,
// word, number of the slot's first pair); those that do not say PLACES get slots, values and index as 0. With PLACE the hit says where the pair
// stands; without, only what it is.
template <class C, bool ALL, bool PLACE> struct Search {
    static_assert(PLACE || C::PACKED, "the value of a pair that is not packed is found by its place");
    static constexpr bool ONE = !ALL || C::NEAR > 1; // a key whose chain may come to a window twice has one pair
    Probe<C> p;
    u64 probes, bound;
    u32 part;
    Hit<C> hit;

    // begin: no chain has more windows than `most`, where the caller knows (probes_bound).
    __device__ __forceinline__ void begin(const Table& t, typename C::key k, u64 most = ~0ull) {
        p = Probe<C>(t, k);
        probes = 1;
        bound = most;
        part = 0;
        hit.found = false;
        hit.count = 0;
        hit.slots = p.slots;
        hit.values = p.values;
        hit.index = 0;
        hit.stored = p.stored;
        hit.word = typename Access<C>::word{};
    }

    // round reads one part for every active lane's key, with the tile: up to IN_FLIGHT loads are under way before the
    // first is looked at. It tells whether this lane's key is still to be looked for.
    template <class Tile, class Visit> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active, Visit& visit) {
        constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4;
        typedef Part<C, G> Parts;
        typedef typename Parts::View_ V;
        u32 pending = g.ballot(active);
        if constexpr (!ONE && !Visit::HIT && TALLIES<C, G>) {
            u32 before = hit.count;
            active = tally(g, active, pending, visit);
            // The chain of a key that has many pairs, and some of them in this window, mostly goes on: to ask the filter costs as much as the window
            // that it might spare.
            return on_from(t, active, before > 2 * C::WINDOW && hit.count > before + 1);
        }
        u32 from = Parts::PARTS > 1 ? (part ^ p.first_slot() / Parts::SLOTS) * Parts::SLOTS : 0;
        u64 address = p.slots + p.slot_index(from) * C::SLOT_BYTES;
#pragma unroll
        for (int first = 0; first < G; first += IN_FLIGHT) {
            if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
            V s[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) s[j].load(pending >> (first + j) & 1, g.shuffle(address, first + j), g.rank());
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                bool on = (pending >> (first + j) & 1) && V::holds(g.rank()), mine = g.rank() == first + j;
                u32 match = s[j].matches(g.shuffle(p.stored, first + j));
                if (!on) match = 0;
                u32 who = g.ballot(match != 0);
                bool end = g.any(on && s[j].matches(C::EMPTY));
                int i = lowest_bit(match | 1u << 31), holder = lowest_bit(who | 1u << 31) & G - 1;
                u32 slot = 0;
                typename V::word word = s[j].w[0];
                if constexpr (PLACE) slot = g.shuffle(V::slot(i, g.rank()), holder);
                if constexpr (C::PACKED && C::VALUE_BYTES > 0) word = g.shuffle(s[j].pick(i), holder);
                if constexpr (ALL) {
                    u32 n = Visit::VISITS ? g.shuffle(hit.count, first + j) : hit.count;
                    u64 slots = 0, values = 0, index = 0;
                    if constexpr (Visit::PLACES) {
                        slots = g.shuffle(p.slots, first + j);
                        values = g.shuffle(p.values, first + j);
                        index = g.shuffle(p.slot_index(from), first + j);
                    }
                    if constexpr (Visit::VISITS) visit.turn(g, first + j);
#pragma unroll
                    for (int i = 0; i < V::WORDS; i++) {
                        u32 before, all = Held<C>::tally(g, match >> i & 1, s[j].w[i], before);
                        if (Visit::VISITS && (match >> i & 1)) visit(slots, values, index + V::slot(i, g.rank()), s[j].w[i], n + before);
                        n += all;
                    }
                    if (mine) hit.count = n;
                }
                if (mine && (who || (G == 1 && !ALL)) && !hit.found) { // a lane on its own need not know whether there is a word
                    hit.found = who != 0;
                    hit.index = p.slot_index(from + slot);
                    hit.word = word;
                }
                if (mine && ((ONE && who) || end)) active = false;
            }
        }
        if (!active || ++part < Parts::PARTS) return active;
        part = 0;
        return on_from(t, true);
    }
    // on_from goes on from a window that was read whole, if the chain does; with sure, the filter is not asked. To read the next window beside the filter's word was tried: on an H200 it
    // makes look-ups 2% faster if all hit, and a fifth slower if none do, because they are bound by memory's transactions, not by their latency.
    __device__ __forceinline__ bool on_from(const Table& t, bool active, bool sure = false) {
        if (!active || !(sure || p.overflowed())) return false;
        if (bound == ~0ull && probes == WARPCORE_PROBES_UNTOLD) bound = probes_bound(t, ~0ull);
        if (probes >= bound || probes >= p.longest()) return false;
        p.advance(probes);
        probes++;
        return true;
    }
    // tally reads the windows of all keys of a small tile, and adds up what its lanes have of them at once: a byte for each key, of which the lower half
    // is how many pairs, and the upper how many lanes have an empty slot. It tells whether this lane's key has none.
    template <class Tile, class Visit> __device__ __forceinline__ bool tally(Tile g, bool active, u32 pending, Visit& visit) {
        constexpr int G = Tile::LANES;
        typedef typename Part<C, G>::View_ V;
        V s[G];
        u32 match[G], own = 0;
        u64 address = p.window_address();
#pragma unroll
        for (int j = 0; j < G; j++) s[j].load(pending >> j & 1, g.shuffle(address, j), g.rank());
#pragma unroll
        for (int j = 0; j < G; j++) {
            bool on = (pending >> j & 1) && V::holds(g.rank());
            match[j] = s[j].matches(g.shuffle(p.stored, j));
            if (!on) match[j] = 0;
            u32 end = on && s[j].matches(C::EMPTY);
            own |= ((u32)popcount(match[j]) | end << 4) << 8 * j;
        }
        u32 sum = own;
#pragma unroll
        for (int d = 1; d < G; d *= 2) {
            u32 before = g.shuffle(sum, g.rank() >= d ? g.rank() - d : 0);
            if (g.rank() >= d) sum += before;
        }
        u32 its = g.shuffle(sum, G - 1) >> 8 * g.rank() & 0xff;
        if constexpr (KEEPS_FIRST<Visit>) {
            typename C::value v[G];
#pragma unroll
            for (int j = 0; j < G; j++)
                v[j] = match[j] && !(sum - own >> 8 * j & 15) ? Access<C>::value_in(s[j].pick(lowest_bit(match[j] | 1u << 31))) : typename C::value{};
            // One lane has a value for each key, the others 0: each lane sends on those of the keys on the other side, until it has its own alone.
#pragma unroll
            for (int d = G / 2; d > 0; d /= 2)
#pragma unroll
                for (int j = 0; j < d; j++) {
                    bool up = g.rank() & d;
                    v[j] = (up ? v[j + d] : v[j]) | g.shuffle(up ? v[j] : v[j + d], g.rank() ^ d);
                }
            if (active && !hit.count && (its & 15)) visit.first(v[0]);
        } else if constexpr (Visit::WRITES) {
            typedef typename C::value value;
            u64 to = visit.to(hit.count);
            u32 goes = g.ballot(active && visit.goes(hit.count + (its & 15)));
#pragma unroll
            for (int j = 0; j < G; j++) {
                value* at_once = at<value>(g.shuffle(to, j)) + (sum - own >> 8 * j & 15);
                if (!(goes >> j & 1)) continue;
#pragma unroll
                for (int i = 0; i < V::WORDS; i++)
                    if (match[j] >> i & 1) *at_once++ = Access<C>::value_in(s[j].w[i]);
            }
        } else if constexpr (Visit::VISITS) {
#pragma unroll
            for (int j = 0; j < G; j++) {
                u64 slots = 0, values = 0, index = 0;
                if constexpr (Visit::PLACES) {
                    slots = g.shuffle(p.slots, j);
                    values = g.shuffle(p.values, j);
                    index = g.shuffle(p.slot_index(0), j);
                }
                u32 n = g.shuffle(hit.count, j) + (sum - own >> 8 * j & 15);
                visit.turn(g, j);
#pragma unroll
                for (int i = 0; i < V::WORDS; i++)
                    if (match[j] >> i & 1) visit(slots, values, index + V::slot(i, g.rank()), s[j].w[i], n++);
            }
        }
        if (active) hit.count += its & 15;
        hit.found = hit.count != 0;
        return active && !(its >> 4);
    }
};

template <class C, bool ALL, class Tile, class Visit>
__device__ __forceinline__ Hit<C> search_each(const Table& t, Tile g, bool active, typename C::key k, Visit& visit) {
    Search<C, ALL, true> s;
    s.begin(t, k);
    while (g.any_of_all(active)) active = s.round(t, g, active, visit);
    return s.hit;
}

// find_each looks up a key that each active lane brings of its own.
template <class C, class Tile> __device__ __forceinline__ Hit<C> find_each(const Table& t, Tile g, bool active, typename C::key k) {
    NoVisit none;
    return search_each<C, false>(t, g, active, k, none);
}
// count_each counts its pairs too, in a MultiMap.
template <class C, class Tile> __device__ __forceinline__ Hit<C> count_each(const Table& t, Tile g, bool active, typename C::key k) {
    NoVisit none;
    return search_each<C, true>(t, g, active, k, none);
}

// The operations below are for one key that all lanes of the tile bring, and may run beside one another in a kernel, in
// any mixture, on a Map. They keep the table's counts. Where all lanes of a warp have keys of their own, insert_each and
// find_each with tile<N, true> are faster; their caller adds what insert_each put in to counters(t)->inserted.

template <class C, class MEETS, bool MULTI, class Tile>
__device__ __forceinline__ Outcome insert_one(const Table& t, Tile g, typename C::key k, typename C::value v) {
    Outcome o = insert_each<C, MEETS, false, MULTI>(t, g, g.rank() == 0, k, v, ~0ull);
    if (g.rank() == 0 && o == ADDED) add(&counters(t)->inserted, (u64)1);
    return (Outcome)g.shuffle((u32)o, 0);
}
// insert puts or replaces. FULL: no window of the chain has room.
template <class C, class Tile> __device__ Outcome insert(const Table& t, Tile g, typename C::key k, typename C::value v) {
    return insert_one<C, Replace, false>(t, g, k, v);
}
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C, class Tile> __device__ Outcome insert_new(const Table& t, Tile g, typename C::key k, typename C::value v) {
    return insert_one<C, Keep, false>(t, g, k, v);
}
// put is insert_new of a set.
template <class C, class Tile> __device__ Outcome put(const Table& t, Tile g, typename C::key k) {
    return insert_one<C, Keep, false>(t, g, k, typename C::value{});
}
// update puts the pair, or where the key is PRESENT makes of its value and v what now(value, v) says: all of them bits.
template <class C, class Tile, class Now> __device__ Outcome update(const Table& t, Tile g, typename C::key k, typename C::value v, Now now) {
    bool first = g.rank() == 0, again;
    u32 o = FULL;
    do {
        Insert<C, Look, false, false> s;
        s.begin(t, k, v, ~0ull);
        for (bool active = first; g.any_of_all(active);) active = s.round(t, g, active);
        o = s.outcome;
        if (first && o == ADDED) add(&counters(t)->inserted, (u64)1);
        again = first && o == PRESENT && !Access<C>::merge(s.p.slots, s.p.values, s.place, s.was, s.p.stored, v, now);
    } while (g.any_of_all(again)); // the key was erased
    return (Outcome)g.shuffle(o, 0);
}
// find_or_insert puts the pair, or where the key is PRESENT gives every lane the value that is there.
template <class C, class Tile> __device__ Outcome find_or_insert(const Table& t, Tile g, typename C::key k, typename C::value& v) {
    Insert<C, Look, false, false> s;
    s.begin(t, k, v, ~0ull);
    for (bool active = g.rank() == 0; g.any_of_all(active);) active = s.round(t, g, active);
    if (g.rank() == 0 && s.outcome == ADDED) add(&counters(t)->inserted, (u64)1);
    if (g.rank() == 0 && s.outcome == PRESENT) v = s.value_there();
    v = g.shuffle(v, 0);
    return (Outcome)g.shuffle((u32)s.outcome, 0);
}
// insert_multi adds a pair whether or not its key is there: for a MultiMap.
template <class C, class Tile> __device__ Outcome insert_multi(const Table& t, Tile g, typename C::key k, typename C::value v) {
    return insert_one<C, Keep, true>(t, g, k, v);
}
// find gives every lane whether the key is there, and its value.
template <class C, class Tile> __device__ bool find(const Table& t, Tile g, typename C::key k, typename C::value& v) {
    Hit<C> hit = find_each<C>(t, g, g.rank() == 0, k);
    typename C::value mine{};
    g.sync(); // another lane has seen the key: this one then sees it, too, and what it acquires
    if (hit.found) mine = hit.value_acquired();
    v = g.shuffle(mine, 0);
    return g.shuffle((u32)hit.found, 0);
}
// contains tells every lane whether the key is there.
template <class C, class Tile> __device__ bool contains(const Table& t, Tile g, typename C::key k) {
    return g.shuffle((u32)find_each<C>(t, g, g.rank() == 0, k).found, 0);
}
// erase removes a key, and tells every lane whether this call did.
template <class C, class Tile> __device__ bool erase(const Table& t, Tile g, typename C::key k) {
    Hit<C> hit = find_each<C>(t, g, g.rank() == 0, k);
    u32 removed = hit.found && Access<C>::remove(hit.slots, hit.index, hit.word, hit.stored);
    if (removed) add(&counters(t)->erased, (u64)1);
    return g.shuffle(removed, 0);
}

// Every slot of both regions, those of the side region last, with the key as users know it.
template <class C> struct Slot {
    bool live;
    typename C::key k;
    u64 slots, values, index;
    typename Access<C>::word word;
    __device__ __forceinline__ typename C::value load() const { return Access<C>::load_value(slots, values, index, word); }
};
template <class C> __device__ __forceinline__ u64 slot_count(const Table& t) { return (t.main.windows + t.side.windows) * C::WINDOW; }
template <class C> __device__ __forceinline__ Slot<C> slot_at(const Table& t, u64 i) {
    Slot<C> s;
    u64 main = t.main.windows * C::WINDOW;
    s.live = false;
    s.k = typename C::key{};
    if (i >= slot_count<C>(t)) return s;
    const Region& r = i < main ? t.main : t.side;
    s.slots = r.slots;
    s.values = r.values;
    s.index = i < main ? i : i - main;
    s.word = load_relaxed(Access<C>::word_at(s.slots, s.index));
    s.k = Access<C>::key_of(s.word);
    s.live = !C::marks(s.k);
    s.k = C::real(s.k, i >= main);
    return s;
}

// Dealer deals out items that the lanes of a warp bring, n each, to neighbouring lanes, 32 a turn: one lane's after the other's; or where they have
// many, those of one lane alone, whom nobody has to look for.
template <class Warp> struct Dealer {
    u64 all, next; // items, and those before the turn
    u32 before;    // items before this lane's, unless they are dealt out alone
    u32 n, its;    // how many this lane has, and the owner
    int owner;
    bool alone;
    __device__ __forceinline__ Dealer(Warp warp, u32 n) : next(0), n(n), owner(0) {
        before = (u32)warp.scan((u64)n, all);
        alone = all >= 32 * WARPCORE_DEAL_ALONE;
        its = alone ? warp.shuffle(n, 0) : 0;
        pass_empty(warp);
    }
    __device__ __forceinline__ void pass_empty(Warp warp) {
        if (!alone) return;
        while (next >= its && owner < 31) {
            its = warp.shuffle(n, ++owner);
            next = 0;
        }
    }
    __device__ __forceinline__ bool more() const { return next < (alone ? its : all); }
    // turn tells whether this lane has an item now, and whose it is, and its number among the owner's.
    __device__ __forceinline__ bool turn(Warp warp, int& whose, u32& number) {
        number = (u32)next + warp.rank();
        bool on = next + warp.rank() < (alone ? its : all);
        next += 32;
        if (alone) {
            whose = owner;
            pass_empty(warp);
            return on;
        }
        whose = 0; // the last lane before whose items there are no more than this one's number
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
            if (warp.shuffle(before, whose + d) <= number) whose += d;
        number -= warp.shuffle(before, whose);
        return on;
    }
};

// deal goes over items that the lanes of a warp bring, n each: neighbouring lanes take neighbouring items. load(on, owner, number) gives one, where `on`
// says whether there is one, of lane `owner`; then comes emit(on, owner, number, item). EACH are loaded before the first is emitted. All lanes must
// come, and do so to both.
template <class Item, int EACH, class Warp, class Load, class Emit> __device__ __forceinline__ void deal(Warp warp, u32 n, Load load, Emit emit) {
    Dealer<Warp> dealer(warp, n);
    while (dealer.more()) {
        Item item[EACH];
        int owner[EACH], turns = 0;
        u32 number[EACH], on = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (!dealer.more()) break;
            bool there = dealer.turn(warp, owner[j], number[j]);
            item[j] = load(there, owner[j], number[j]);
            on |= (u32)there << j;
            turns++;
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (j >= turns) break;
            emit(on >> j & 1, owner[j], number[j], item[j]);
        }
    }
}

} // namespace warpcore
