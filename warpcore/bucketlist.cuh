// WarpCore's bucket list on the device (paper, §IV-C). A kernel of your own includes this file, takes a warpcore::Lists by value, and
// calls list::insert, list::count and list::for_values with a tile of any size; see doc.go for the layout and the invariants.
//
// C is the struct that says what the table holds, `config` in a program of BucketList.Program. k and v are the bits of a key and a value.
#pragma once
#include "warpcore.cuh"

namespace warpcore {
// KeySlots is the config of the keys: only the key of a slot is written by compare-and-swap. What stands behind it is valid in an empty
// slot, too, so a key needs no busy mark while it is put.
template <class C> struct KeySlots : C {
    static constexpr bool PACKED = true;
    typedef u32 value; // none
};
} // namespace warpcore

template <class C> struct Access<warpcore::KeySlots<C>, WHOLE_PAIRS> {
    typedef typename C::key key;
    typedef u32 value;
    typedef key word;
    static __device__ __forceinline__ key key_of(word w) { return w; }
    static __device__ __forceinline__ word free_word(bool tombstone) { return tombstone ? C::TOMBSTONE : C::EMPTY; }
    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots + index * C::SLOT_BYTES); }
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, value) {
        return cas(word_at(slots, index), free_word(tombstone), k) == free_word(tombstone);
    }
};

namespace warpcore {
// WholeSlots is the config of slots of 16 bytes that are read whole, where nothing is written: the key, how many values the list can still get, and above
// them the word of its last bucket.
template <class C> struct WholeSlots : C {
    static constexpr bool PACKED = true;
    typedef u64 value;
};
} // namespace warpcore

template <class C> struct Access<warpcore::WholeSlots<C>, WHOLE_PAIRS> {
    typedef typename C::key key;
    typedef u64 value;
    typedef u128 word;
    static __device__ __forceinline__ key key_of(word w) { return (key)w.lo; }
    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots + index * C::SLOT_BYTES); }
};

namespace warpcore {
namespace list {

__device__ __forceinline__ ListCounters* counters(const Lists& t) { return at<ListCounters>(t.counters); }

// The word of a bucket: state, whether it has a header, size, place. A list has that of its last bucket.
__device__ __forceinline__ u32 state_of(u64 b) { return (u32)b & 3; }
__device__ __forceinline__ bool some(u64 b) { return (b | 3) != ~0ull; }
__device__ __forceinline__ bool more(u64 b) { return b >> LIST_MORE_BIT & 1; }
__device__ __forceinline__ u64 place_of(u64 b) { return b >> LIST_PLACE_SHIFT; }
__device__ __forceinline__ u32 decoded(u32 code) { return (code & (1u << LIST_MANTISSA) - 1) << (code >> LIST_MANTISSA); }
__device__ __forceinline__ u32 size_of(u64 b) {
    return decoded((u32)(b >> LIST_SIZE_SHIFT) & (1u << (LIST_PLACE_SHIFT - LIST_SIZE_SHIFT)) - 1);
}
__device__ __forceinline__ u32 code_of(u32 n, bool up) {
    int h = highest_bit(n) - (LIST_MANTISSA - 1);
    if (h <= 0) return n;
    u32 m = n >> h;
    if (up && m << h != n) m++;
    if (m == 1u << LIST_MANTISSA) {
        m >>= 1;
        h++;
    }
    return (u32)h << LIST_MANTISSA | m;
}
__device__ __forceinline__ u64 bucket(u64 place, u32 size_code, bool has_header) {
    return place << LIST_PLACE_SHIFT | (u64)size_code << LIST_SIZE_SHIFT | (u64)has_header << LIST_MORE_BIT | LIST_READY;
}
__device__ __forceinline__ u64 with_state(u64 b, u32 state) { return (b & ~3ull) | state; }

// What stands in a key's slot: how many values the list can still get, which counts down from all ones, so that a table is cleared by
// filling it with 0xff; and the word of the last bucket.
template <class C> __device__ __forceinline__ u32* left_at(u64 slot) { return at<u32>(slot + C::KEY_BYTES); }
template <class C> __device__ __forceinline__ u64* last_at(u64 slot) { return at<u64>(slot + C::VALUE_OFFSET); }
template <class C> __device__ __forceinline__ u32 count_at(u64 slot) { return ~load_relaxed(left_at<C>(slot)); }

template <class C> __device__ __forceinline__ u64 place_address(const Lists& t, u64 place) { return t.pool + place * sizeof(typename C::value); }

// The header of a bucket, for lists with more than one: the word of the bucket before, and how many values are in all before.
template <class C> __device__ __forceinline__ u64 previous(const Lists& t, u64 b) {
    const u32* h = at<u32>(place_address<C>(t, place_of(b)));
    return (u64)load_relaxed(h + 1) << 32 | load_relaxed(h);
}
template <class C> __device__ __forceinline__ u32 start_of(const Lists& t, u64 b) {
    return more(b) ? load_relaxed(at<u32>(place_address<C>(t, place_of(b))) + 2) : 0;
}
template <class C> __device__ __forceinline__ void write_header(const Lists& t, u64 place, u64 before, u32 start) {
    u32* h = at<u32>(place_address<C>(t, place));
    store_relaxed(h, (u32)before);
    store_relaxed(h + 1, (u32)(before >> 32));
    store_relaxed(h + 2, start);
}

// Cursor is a place in a list, which it goes through from the end.
template <class C> struct Cursor {
    u64 word;
    u32 start; // the number of the bucket's first value
    __device__ __forceinline__ Cursor(u64 word, u32 start) : word(word), start(start) {}
    // value_at gives the address of a value that is no later than those before.
    __device__ __forceinline__ typename C::value* value_at(const Lists& t, u32 ordinal) {
        while (ordinal < start) {
            word = previous<C>(t, word);
            start = start_of<C>(t, word);
        }
        return at<typename C::value>(place_address<C>(t, place_of(word) + (more(word) ? C::HEADER : 0))) + (ordinal - start);
    }
};

// The last bucket of a list, and how many values all its buckets have room for.
template <class C> struct Tail {
    u64 word;
    u32 start, room;
    __device__ __forceinline__ Tail(const Lists& t, u64 word) : word(word) {
        start = some(word) ? start_of<C>(t, word) : 0;
        room = some(word) ? start + size_of(word) : 0;
    }
    __device__ __forceinline__ Tail(u64 word, u32 start) : word(word), start(start), room(some(word) ? start + size_of(word) : 0) {}
    __device__ __forceinline__ void write(const Lists& t, u32 ordinal, typename C::value v) const {
        store_value(Cursor<C>(word, start).value_at(t, ordinal), v);
    }
    template <class V> static __device__ __forceinline__ void store_value(V* p, V v) { store_relaxed(p, v); }

    // The size of the next bucket, by s₀ and λ, for a list that is to have so many values.
    __device__ __forceinline__ u32 next(const Lists& t, u32 count) const {
        u64 size = some(word) ? ((u64)size_of(word) * t.growth + LIST_GROWTH_ONE - 1) / LIST_GROWTH_ONE : t.first;
        if (some(word) && size > LIST_LARGEST) size = LIST_LARGEST;
        if (size < count / LIST_LEAST_SHARE) size = count / LIST_LEAST_SHARE;
        if (size < count - room) size = count - room;
        if (size > LIST_MOST - room) size = LIST_MOST - room;
        return (u32)size;
    }
    __device__ __forceinline__ u32 header() const { return some(word) ? C::HEADER : 0; }
};

// What became of places asked for: those from `first` on, or the pool has no more.
__device__ __forceinline__ bool fits(const Lists& t, u64 first, u64 places) {
    if (first + places <= t.room) return true;
    if (first < t.room) max_of(&counters(t)->unused, t.room - first);
    return false;
}

// claim takes so many places in a row from `first` on, if the pool has them. Whoever finds too few takes none from
// others who need fewer.
__device__ __forceinline__ bool claim(const Lists& t, u64 places, u64& first) {
    u64* used = &counters(t)->used;
    for (first = load_relaxed(used); first + places <= t.room;) {
        u64 was = cas(used, first, first + places);
        if (was == first) return true;
        first = was;
    }
    return false;
}

// append adds a value to the list in a slot, by the paper's protocol: a number below the room of the last bucket is taken by
// compare-and-swap; whoever finds no room blocks the list, links a bucket, and makes the list ready, or full. Others wait, each round
// longer, with nothing held. What stands in a bucket is written after its place was taken: no look-up may run beside.
template <class C> __device__ Outcome append(const Lists& t, u64 slot, typename C::value v) {
    u32 wait = 1;
    for (u32 tries = 0; tries < LIST_WAITS;) {
        u64 last = load_acquire(last_at<C>(slot));
        u32 count = ~load_relaxed(left_at<C>(slot));
        Tail<C> tail(t, last);
        if (count < tail.room) { // even if the list got another bucket meanwhile: this one's places are still the next
            if (cas(left_at<C>(slot), ~count, ~(count + 1)) == ~count) {
                tail.write(t, count, v);
                add(&counters(t)->added, (u64)1);
                return ADDED;
            }
            continue; // another got in
        }
        if (state_of(last) == LIST_FULL) return FULL;
        if (state_of(last) != LIST_BLOCKED && cas(last_at<C>(slot), last, with_state(last, LIST_BLOCKED)) == last) {
            u32 code = count < LIST_MOST ? code_of(tail.next(t, count + 1), true) : 0;
            u64 first, places = decoded(code) + tail.header();
            bool found = code && claim(t, places, first);
            for (u32 n = decoded(code) / 2; !found && n; n /= 2) // a smaller bucket than s₀ and λ want, before the list is full
                found = claim(t, decoded(code = code_of(n, false)) + tail.header(), first);
            if (!found) {
                add(code ? &counters(t)->short_ : &counters(t)->overfull, code ? places : 1);
                store_release(last_at<C>(slot), with_state(last, LIST_FULL));
                return FULL;
            }
            if (tail.header()) write_header<C>(t, first, with_state(last, LIST_READY), tail.room);
            store_release(last_at<C>(slot), bucket(first, code, tail.header()));
            continue;
        }
        for (u32 i = 0; i < wait; i++) pause();
        if (wait < LIST_LONGEST_WAIT) wait *= 2;
        tries++;
    }
    return FULL;
}

// insert adds a pair that all lanes of the tile bring: ADDED, or FULL where the pool or the keys have no room. Inserts may run beside one
// another in a kernel; look-ups may not run beside them.
template <class C, class Tile> __device__ Outcome insert(const Lists& t, Tile g, typename C::key k, typename C::value v) {
    Insert<KeySlots<C>, Look, false, false> s;
    s.begin(t.keys, k, 0, ~0ull);
    bool active = g.rank() == 0;
    while (g.any_of_all(active)) active = s.round(t.keys, g, active);
    u32 o = FULL;
    if (g.rank() == 0 && s.outcome != FULL) {
        if (s.outcome == ADDED) add(&warpcore::counters(t.keys)->inserted, (u64)1);
        o = append<C>(t, s.p.slots + s.place * C::SLOT_BYTES, v);
    }
    return (Outcome)g.shuffle(o, 0);
}

// The slot of a key that all lanes bring; 0 if it is not there.
template <class C, class Tile> __device__ __forceinline__ u64 slot_of(const Lists& t, Tile g, typename C::key k) {
    NoVisit none;
    Hit<KeySlots<C>> hit = search_each<KeySlots<C>, false>(t.keys, g, g.rank() == 0, k, none);
    return g.shuffle(hit.found ? hit.slots + hit.index * C::SLOT_BYTES : 0, 0);
}

// count gives every lane how many values the key has.
template <class C, class Tile> __device__ u32 count(const Lists& t, Tile g, typename C::key k) {
    u64 slot = slot_of<C>(t, g, k);
    return slot ? count_at<C>(slot) : 0;
}

// for_values calls visit(value) for each value of the key, the lanes of the tile each for some; it gives their number.
template <class C, class Tile, class Visit> __device__ u32 for_values(const Lists& t, Tile g, typename C::key k, Visit visit) {
    u64 slot = slot_of<C>(t, g, k);
    u32 n = slot ? count_at<C>(slot) : 0;
    if (n == 0) return 0;
    u64 last = load_relaxed(last_at<C>(slot));
    Cursor<C> at_end(last, start_of<C>(t, last));
    for (u64 i = g.rank(); i < n; i += Tile::LANES) visit(load_relaxed(at_end.value_at(t, (u32)(n - 1 - i))));
    return n;
}

#if defined(WARPMAP_HOST)
constexpr int IN_FLIGHT = 1;
#else
constexpr int IN_FLIGHT = 4; // values of a lane that are asked for at once
#endif

// each_value goes over the values of the lists that the lanes of a warp bring, n each: all lanes read neighbouring values, and call
// emit(on, owner, number, value), where `on` says whether there is one, of the list of lane `owner`. All lanes must come.
template <class C, class Warp, class Emit> __device__ __forceinline__ void each_value(const Lists& t, Warp warp, u64 last, u32 n, Emit emit) {
    typedef typename C::value value;
    u32 start = n ? start_of<C>(t, last) : 0;
    deal<value, IN_FLIGHT>(warp, n, [&](bool on, int owner, u32 number) {
        Cursor<C> c(warp.shuffle(last, owner), warp.shuffle(start, owner));
        return on ? load_relaxed(c.value_at(t, number)) : value{};
    }, emit);
}

// copy copies the values from … to-1 of a list, with all lanes of a warp.
template <class C, class Warp> __device__ __forceinline__ void copy(const Lists& t, Warp warp, u64 last, u64 from, u64 to, typename C::value* out) {
    Cursor<C> c(last, start_of<C>(t, last));
    for (u64 i = to - from; i > (u64)warp.rank(); i = i > 32 ? i - 32 : 0) {
        u64 x = i - 1 - warp.rank();
        out[x] = load_relaxed(c.value_at(t, (u32)(from + x)));
    }
}

} // namespace list
} // namespace warpcore
