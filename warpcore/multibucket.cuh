// WarpCore's multi-bucket table on the device. A kernel of your own includes this file, takes a warpcore::Table by value, and calls
// buckets::insert, buckets::count and buckets::for_values with a tile of any size; see doc.go for the layout and the invariants.
//
// C is the struct that says what the table holds, `config` in a program of MultiBucket.Program. k and v are the bits of a key and a value.
#pragma once
#include "warpcore.cuh"

namespace warpcore {
// BucketSlots is the config of the slots as look-ups see them: a word of the key and how many values its slot can still get, which counts down
// from all ones. With ROOM it is as inserts see them: a slot without room has no key.
template <class C, bool ROOM = false> struct BucketSlots : C {
    static constexpr bool PACKED = true;
    typedef u32 value; // how many values are to be put
};
} // namespace warpcore

template <class C, bool ROOM> struct Access<warpcore::BucketSlots<C, ROOM>, WHOLE_PAIRS> {
    typedef typename C::key key;
    typedef u32 value;
    typedef typename bits_of<2 * C::KEY_BYTES>::type word;
    // Words of 8 bytes are claimed whole, with the first values; of 16, which not every GPU can swap, the key alone.
    static constexpr bool WHOLE = sizeof(word) == 8;

    static __device__ __forceinline__ u32 left_of(u64 w) { return (u32)(w >> 32); }
    static __device__ __forceinline__ u32 left_of(u128 w) { return (u32)w.hi; }
    static __device__ __forceinline__ key bits_of_key(u64 w) { return (key)w; }
    static __device__ __forceinline__ key bits_of_key(u128 w) { return (key)w.lo; }
    static __device__ __forceinline__ u32 count(word w) { return ~left_of(w); }
    static __device__ __forceinline__ key key_of(word w) { return ROOM && count(w) >= C::BUCKET ? C::BUSY : bits_of_key(w); }

    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots + index * C::SLOT_BYTES); }
    static __device__ __forceinline__ u32* left_at(u64 slot) { return at<u32>(slot + C::KEY_BYTES); }
    // A word of a key and a number.
    static __device__ __forceinline__ u64 make(key k, u32 left, u64) { return (u64)left << 32 | k; }
    static __device__ __forceinline__ u128 make(key k, u32 left, u128) { return u128{k, left}; }
    static __device__ __forceinline__ u64 whole(key k, u32 n) { return make(k, ~n, word()); }
    static __device__ __forceinline__ key free_key(bool tombstone) { return tombstone ? C::TOMBSTONE : C::EMPTY; }

    // claim takes a free slot for the key, where words are claimed whole with places for n values, or as many as there are.
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, u32 n) {
        key free = free_key(tombstone);
        if constexpr (WHOLE) {
            u64 now = whole(k, n < C::BUCKET ? n : C::BUCKET);
            return cas(word_at(slots, index), whole(free, 0), now) == whole(free, 0);
        } else return cas(at<key>(slots + index * C::SLOT_BYTES), free, k) == free;
    }
    // remove makes of a slot a tombstone, and tells whether it still held the key. Nothing is inserted beside.
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word seen, key k) {
        if constexpr (WHOLE) return cas(word_at(slots, index), seen, whole(C::TOMBSTONE, 0)) == seen;
        else {
            u64 slot = slots + index * C::SLOT_BYTES;
            if (cas(at<key>(slot), k, C::TOMBSTONE) != k) return false;
            store_relaxed(left_at(slot), ~0u);
            return true;
        }
    }
    // take takes places for n values, or as many as there are, of a slot that had so many; first is the number of the first. At most C::BUCKET
    // others can come between.
    static __device__ __forceinline__ u32 take(u64 slot, u32 has, u32 n, u32& first) {
        for (;;) {
            u32 room = C::BUCKET - has, got = n < room ? n : room;
            if (got == 0) return 0;
            u32 was = ~cas(left_at(slot), ~has, ~(has + got));
            if (was == has) {
                first = has;
                return got;
            }
            has = was;
        }
    }
};

namespace warpcore {
// MovedSlots is the config of slots into which those of another table are copied whole: a value is the address of one of these.
template <class C> struct MovedSlots : BucketSlots<C> { typedef u64 value; };

// copy_slot copies what a slot holds behind its key.
template <class C> __device__ __forceinline__ void copy_slot(u64 from, u64 to) {
    constexpr int WORD = 2 * C::KEY_BYTES;
    for (int b = C::KEY_BYTES; b < WORD; b += 4) store_relaxed(at<u32>(to + b), load_relaxed(at<u32>(from + b)));
    for (int b = WORD; b < C::SLOT_BYTES; b += 8) store_relaxed(at<u64>(to + b), load_relaxed(at<u64>(from + b)));
}
} // namespace warpcore

template <class C> struct Access<warpcore::MovedSlots<C>, WHOLE_PAIRS> : Access<warpcore::BucketSlots<C>> {
    typedef Access<warpcore::BucketSlots<C>> Slots;
    typedef u64 value;
    static __device__ __forceinline__ bool claim(u64 slots, u64 values, u64 index, bool tombstone, typename C::key k, u64 from) {
        if (!Slots::claim(slots, values, index, tombstone, k, Slots::count(load_relaxed(at<typename Slots::word>(from))))) return false;
        warpcore::copy_slot<C>(from, slots + index * C::SLOT_BYTES);
        return true;
    }
};

namespace warpcore {

template <class C> __device__ __forceinline__ typename C::value* values_at(u64 slot) { return at<typename C::value>(slot + C::VALUE_OFFSET); }

template <class C, bool ROOM> struct Held<BucketSlots<C, ROOM>> {
    typedef BucketSlots<C, ROOM> S;
    typedef typename Access<S>::word word;
    static constexpr bool SEVERAL = true;
    static __device__ __forceinline__ u32 count(word w) { return Access<S>::count(w); }
    template <class Tile> static __device__ __forceinline__ u32 tally(Tile g, bool match, word w, u32& before) {
        u64 all, first = g.scan((u64)(match ? count(w) : 0), all);
        before = (u32)first;
        return (u32)all;
    }
    template <class Visit> static __device__ __forceinline__ void each(u64 slots, u64, u64 index, word w, Visit visit) {
        const typename C::value* v = values_at<C>(slots + index * C::SLOT_BYTES);
        for (u32 i = 0, n = count(w); i < n; i++) visit(load_relaxed(v + i));
    }
};

namespace buckets {

// Put is the insertion of several values of one key: what its lane knows between two reads. It goes from one slot of the key with room to the
// next, and takes all the places of each that it can use. A slot's values are written by the caller, after their places were taken: no look-up
// may run beside.
//
// At any time one slot of a key has room, at most: inserts of one key that find none come to the same free slot, for while they run free slots
// only become fewer, and whoever loses it finds the slot of the other.
//
// Only where tombstones are taken, too, does it leave a hint: the windows before have no free slot.
template <class C, bool REUSE> struct Put {
    typedef BucketSlots<C, true> S;
    typedef Access<S> A;
    Insert<S, Look, REUSE, false> s;
    u32 want;  // values that have no place yet
    u32 got;   // places that the last round took:
    u32 first; // those from this number on,
    u64 slot;  // of the slot at this address,
    bool claimed, reused; // which was free before, or a tombstone
    Skip<S> skip;

    __device__ __forceinline__ void begin(const Table& t, typename C::key k, u32 n, u64 windows) {
        want = n;
        s.begin(t, k, n, windows);
        skip.begin();
    }

    // round is one of the insertion's, and tells whether this lane's is still to be done. It is done without all its places where no slot that
    // may be read has room.
    template <class Tile> __device__ __forceinline__ bool round(const Table& t, Tile g, bool active) {
        if (active) skip.ask(t, s);
        bool on = s.round(t, g, active);
        got = 0;
        claimed = reused = false;
        if (!active || on || s.outcome == FULL) return on;
        slot = s.p.slots + s.place * C::SLOT_BYTES;
        claimed = s.outcome == ADDED;
        reused = claimed && s.reused;
        first = 0;
        if (claimed && A::WHOLE) got = want < C::BUCKET ? want : C::BUCKET;
        else got = A::take(slot, claimed ? 0 : A::count(s.was), want, first);
        want -= got;
        if (REUSE && (claimed || s.free == ~0u)) skip.leave(t, s.p, (claimed ? s.candidate_probes : s.probes) - 1);
        if (want == 0) return false;
        s.v = want;
        s.outcome = FULL;
        if (claimed) s.again();
        return true;
    }
};

// Many is what the tiles of a block know of a key with very many values, in shared memory.
struct Many {
    u32 group;   // its number
    u32 end;     // its values end there
    u32 credit;  // of those that are left, how many no tile has reserved windows for
};

// PutWindows is the insertion of very many values of one key: a tile reserves windows of the chain (see hint_of), no more than the values that are left fill
// for sure, and fills every slot there that is free, or has room for the key. Other tiles and blocks do so beside it, each in their own windows. It is
// over when fewer values are left than a window's, or the whole chain is reserved: no limit holds, for a window is read for a key once, and not again.
template <class C, class Tile> struct PutWindows {
    typedef BucketSlots<C, true> S;
    typedef Access<S> A;
    typedef View<S, Tile::LANES> V;
    static constexpr u32 WHOLE = C::WINDOW * C::BUCKET; // values of an empty window
    Probe<S> p;
    Many* many;
    u32* cursor;  // the first value that is left, which all tiles share
    u64 probes;
    u64 address;  // of the hint
    u32 reserved; // windows, that of p and those behind it
    u32 filled;   // values that this tile put into the window of p
    u32 inserted, reused, added; // by this lane

    // begin begins with a key, and tells whether there is a window for its values.
    __device__ __forceinline__ bool begin(const Table& t, Tile g, bool on, typename C::key k, Many* its, u32* next) {
        if (on) {
            p = Probe<S>(t, k);
            many = its;
            cursor = next;
            probes = 1;
            address = hint_of<true>(t, p);
        }
        bool asks = on && address;
        return arrive(g, asks, asks);
    }
    // reserve gives how many windows it has reserved, from window number `to` on.
    __device__ __forceinline__ u32 reserve(u64& to) const {
        u32 credit = cas(&many->credit, 0u, 0u), n; // as it is: a plain load may be of a register
        for (;;) {
            n = credit / WHOLE < WARPCORE_PIECE_WINDOWS ? credit / WHOLE : WARPCORE_PIECE_WINDOWS;
            if (n == 0) return 0;
            u32 was = cas(&many->credit, credit, credit - n * WHOLE);
            if (was == credit) break;
            credit = was;
        }
        u32 got = (u32)hint_reserve_within(address, n, p.windows, to);
        if (got < n) add(&many->credit, (n - got) * WHOLE);
        return got;
    }
    // arrive goes on to windows that it reserves, if it asks for some.
    __device__ __forceinline__ bool arrive(Tile g, bool on, bool asks) {
        if (!g.any_of_all(asks)) return on;
        u64 to = 0;
        u32 n = 0;
        if (asks && g.rank() == 0) n = reserve(to);
        to = g.shuffle(to, 0);
        n = g.shuffle(n, 0);
        if (!asks) return on;
        reserved = n;
        filled = 0;
        if (n == 0) return false;
        p.go_to(to);
        probes = to + 1;
        return true;
    }
    // round fills what is free of a window, and tells whether there is more to do. write(slot, first, from, n) is called by each lane for n values from
    // `from` on, which go to a slot's places from first on.
    template <class Write> __device__ __forceinline__ bool round(const Table& t, Tile g, bool busy, Write write) {
        V s;
        s.load(busy, p.window_address(), g.rank());
        u32 got[V::WORDS], first[V::WORDS], mine = 0;
        bool lost = false, on = busy && V::holds(g.rank());
#pragma unroll
        for (int i = 0; i < V::WORDS; i++) {
            typename C::key k = A::key_of(s.w[i]);
            u64 index = p.slot_index(V::slot(i, g.rank())), slot = p.slots + index * C::SLOT_BYTES;
            bool tombstone = k == C::TOMBSTONE;
            got[i] = first[i] = 0;
            if (on && (k == C::EMPTY || tombstone)) {
                if (A::claim(p.slots, 0, index, tombstone, p.stored, C::BUCKET)) {
                    inserted++;
                    reused += tombstone;
                    got[i] = A::WHOLE ? C::BUCKET : A::take(slot, 0, C::BUCKET, first[i]);
                } else lost = true;
            } else if (on && k == p.stored) got[i] = A::take(slot, A::count(s.w[i]), C::BUCKET, first[i]);
            mine += got[i];
        }
        u64 all, from = g.scan((u64)mine, all);
        u32 begin = 0;
        if (all && g.rank() == 0) begin = add(cursor, (u32)all);
        from += g.shuffle(begin, 0);
#pragma unroll
        for (int i = 0; i < V::WORDS; i++) {
            if (got[i]) write(p.slots + p.slot_index(V::slot(i, g.rank())) * C::SLOT_BYTES, first[i], (u32)from, got[i]);
            from += got[i];
        }
        added += mine;
        bool leaves = !g.any(lost) && busy; // who lost a slot looks at it again: it may hold the key
        if (busy) filled += (u32)all;
        bool asks = leaves && reserved == 1;
        if (leaves) {
            if (g.rank() == 0) {
                p.pass_by(false);
                if (filled < WHOLE) add(&many->credit, WHOLE - filled);
                if (asks) tell_probes(t, probes);
            }
            reserved--;
            filled = 0;
        }
        if (leaves && !asks) {
            p.advance(probes);
            probes++;
        }
        return arrive(g, busy, asks);
    }
};

// insert adds a pair that all lanes of the tile bring: ADDED, or FULL where no window of the chain has room. Inserts may run beside one another
// in a kernel; look-ups may not run beside them.
template <class C, class Tile> __device__ Outcome insert(const Table& t, Tile g, typename C::key k, typename C::value v) {
    Put<C, false> s;
    s.begin(t, k, 1, ~0ull);
    for (bool active = g.rank() == 0; g.any_of_all(active);) {
        bool on = s.round(t, g, active);
        if (active && s.claimed) add(&counters(t)->inserted, (u64)1);
        if (active && s.got) {
            store_relaxed(values_at<C>(s.slot) + s.first, v);
            add(&counters(t)->added, (u64)1);
        }
        active = on;
    }
    return (Outcome)g.shuffle((u32)(s.want ? FULL : ADDED), 0);
}

// count gives every lane how many values the key has.
template <class C, class Tile> __device__ u32 count(const Table& t, Tile g, typename C::key k) {
    return g.shuffle(count_each<BucketSlots<C>>(t, g, g.rank() == 0, k).count, 0);
}

// Visits calls visit(value) for the values of slots, each lane for those of the slots that it has read.
template <class C, class Visit> struct Visits {
    static constexpr bool VISITS = true, PLACES = true, HIT = false, WRITES = false;
    Visit& visit;
    template <class Tile> __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64, u64 index, W w, u32) {
        Held<BucketSlots<C>>::each(slots, 0, index, w, visit);
    }
};
// for_values calls visit(value) for each value of the key, the lanes of the tile each for some; it gives their number.
template <class C, class Tile, class Visit> __device__ u32 for_values(const Table& t, Tile g, typename C::key k, Visit visit) {
    Visits<C, Visit> v{visit};
    return g.shuffle(search_each<BucketSlots<C>, true>(t, g, g.rank() == 0, k, v).count, 0);
}

} // namespace buckets
} // namespace warpcore
