// Stadium hashing on the device. A kernel of your own includes this file, takes a stadium::Table by value, and calls insert, find and erase; see
// doc.go for the layout, the invariants and an example.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program.
#pragma once
#include "layout.h"
#include "outcome.cuh"
#include "warpmap.cuh"

namespace stadium {

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// A key or a value of a width that no integer has, where it lies.
template <int BYTES> struct Words {
    u32 w[BYTES / 4];
};
template <> struct Words<0> {};

// Where slots are: in memory, or, in a program with WARPMAP_SHARED, in what a block has of them.
struct InMemory {
    template <class T> static __device__ __forceinline__ T load(const T* p) { return load_memory(p); }
    template <class T> static __device__ __forceinline__ void store(T* p, T v) { store_memory(p, v); }
};
struct InBlock {
    template <class T> static __device__ __forceinline__ T load(const T* p) { return load_relaxed(p); }
    template <class T> static __device__ __forceinline__ void store(T* p, T v) { store_relaxed(p, v); }
};

// A key or a value of any size is moved unit by unit.
template <int BYTES, int UNIT, class To = InMemory> __device__ __forceinline__ void copy(u64 to, u64 from) {
    typedef typename bits_of<UNIT>::type unit;
#pragma unroll 4
    for (int i = 0; i < BYTES / UNIT; i++) To::store(at<unit>(to) + i, load_memory(at<unit>(from) + i));
}
template <int BYTES, int UNIT> __device__ __forceinline__ void zero(u64 to) {
    typedef typename bits_of<UNIT>::type unit;
#pragma unroll 4
    for (int i = 0; i < BYTES / UNIT; i++) store_memory(at<unit>(to) + i, unit{});
}

// The unit that stands at an offset of a word of 4 to 32 bytes.
__device__ __forceinline__ u64 half(u32 w, int) { return w; }
__device__ __forceinline__ u64 half(u64 w, int) { return w; }
__device__ __forceinline__ u64 half(u128 w, int i) { return i & 1 ? w.hi : w.lo; }
__device__ __forceinline__ u64 half(u256 w, int i) { return half(i & 2 ? w.hi : w.lo, i); }
template <class U, class W> __device__ __forceinline__ U unit_of(W w, int offset) {
    if constexpr (sizeof(U) == 16) return U{half(w, offset / 8), half(w, offset / 8 + 1)};
    else return (U)(half(w, offset / 8) >> offset % 8 * 8);
}

// A key that a lane brings. Short ones are held in registers; of long ones the address is, and their bytes must not change meanwhile.
template <class C, bool HELD = C::KEY_BYTES <= 32> struct Key;

template <class C> struct Key<C, true> {
    typedef typename bits_of<C::KEY_UNIT>::type unit;
    static constexpr int UNITS = C::KEY_BYTES / C::KEY_UNIT;
    unit u[UNITS];
    __device__ __forceinline__ static Key of(u64 address) {
        Key k;
#pragma unroll
        for (int i = 0; i < UNITS; i++) k.u[i] = load_memory(at<unit>(address) + i);
        return k;
    }
    // of_batch is key i of a batch; from, one by its bits; shuffled, that of another lane, which is key i of a batch.
    __device__ __forceinline__ static Key of_batch(u64 keys, u64 i) {
        Key k;
#pragma unroll
        for (int j = 0; j < UNITS; j++) k.u[j] = load_readonly(at<unit>(keys + i * C::KEY_BYTES) + j);
        return k;
    }
    template <class W> __device__ __forceinline__ static Key from(W bits) {
        Key k;
#pragma unroll
        for (int i = 0; i < UNITS; i++) k.u[i] = unit_of<unit>(bits, i * C::KEY_UNIT);
        return k;
    }
    template <class Warp> __device__ __forceinline__ Key shuffled(Warp warp, int from, u64, u64) const {
        Key k;
#pragma unroll
        for (int i = 0; i < UNITS; i++) k.u[i] = warp.shuffle(u[i], from);
        return k;
    }
    // is_of tells whether it is that of another lane: all of them come.
    template <class Warp> __device__ __forceinline__ bool is_of(Warp warp, int from) const {
        bool equal = true;
#pragma unroll
        for (int i = 0; i < UNITS; i++) equal &= warp.shuffle(u[i], from) == u[i];
        return equal;
    }
    __device__ __forceinline__ unit get(int i) const { return u[i]; }
};
template <class C> struct Key<C, false> {
    typedef typename bits_of<C::KEY_UNIT>::type unit;
    static constexpr int UNITS = C::KEY_BYTES / C::KEY_UNIT;
    u64 address;
    __device__ __forceinline__ static Key of(u64 address) { return Key{address}; }
    __device__ __forceinline__ static Key of_batch(u64 keys, u64 i) { return Key{keys + i * C::KEY_BYTES}; }
    template <class Warp> __device__ __forceinline__ Key shuffled(Warp, int, u64 keys, u64 i) const { return of_batch(keys, i); }
    template <class Warp> __device__ __forceinline__ bool is_of(Warp warp, int from) const {
        Key other{warp.shuffle(address, from)};
        bool equal = address && other.address; // a lane may have none
        for (int i = 0; i < UNITS && equal; i++) equal = other.get(i) == get(i);
        return equal;
    }
    __device__ __forceinline__ unit get(int i) const { return load_memory(at<unit>(address) + i); }
};

// same tells whether the slot at an address holds the key.
template <class C, class Slots = InMemory> __device__ __forceinline__ bool same(const Key<C>& k, u64 slot) {
    typedef typename Key<C>::unit unit;
    bool equal = true;
    if constexpr (C::KEY_BYTES <= 32) {
#pragma unroll
        for (int i = 0; i < Key<C>::UNITS; i++) equal &= Slots::load(at<unit>(slot) + i) == k.get(i);
    } else
        for (int i = 0; i < Key<C>::UNITS && equal; i++) equal = Slots::load(at<unit>(slot) + i) == k.get(i);
    return equal;
}
// A slot of 8 or 16 bytes is read whole, with the key; of others the value is read when it is wanted.
template <class C, bool WHOLE = C::SLOT_BYTES == 8 || C::SLOT_BYTES == 16> struct Read {
    typedef typename bits_of<C::SLOT_BYTES>::type word;
    static constexpr bool BRIEF = true;
    word w;
    __device__ __forceinline__ bool holds(const Key<C>& k, u64 slot) {
        typedef typename Key<C>::unit unit;
        w = load_memory(at<word>(slot));
        bool equal = true;
#pragma unroll
        for (int i = 0; i < Key<C>::UNITS; i++) equal &= unit_of<unit>(w, i * C::KEY_UNIT) == k.get(i);
        return equal;
    }
    __device__ __forceinline__ void value_to(u64 row, u64) const {
        typedef typename bits_of<C::VALUE_UNIT>::type unit;
#pragma unroll
        for (int i = 0; i < C::VALUE_BYTES / C::VALUE_UNIT; i++) at<unit>(row)[i] = unit_of<unit>(w, C::VALUE_OFFSET + i * C::VALUE_UNIT);
    }
#if defined(WARPMAP_HOST)
    // The value, or zeros, without a branch.
    void value_or_zero_to(u64 row, bool found) const {
        typedef typename bits_of<C::VALUE_UNIT>::type unit;
        for (int i = 0; i < C::VALUE_BYTES / C::VALUE_UNIT; i++) {
            unit v = unit_of<unit>(w, C::VALUE_OFFSET + i * C::VALUE_UNIT);
            if constexpr (sizeof(unit) <= 8) at<unit>(row)[i] = v & (unit)(0 - (unit)found);
            else at<unit>(row)[i] = found ? v : unit{};
        }
    }
#endif
};
template <class C> struct Read<C, false> {
    static constexpr bool BRIEF = false;
    __device__ __forceinline__ bool holds(const Key<C>& k, u64 slot) {
        if (C::VALUE_BYTES > 16) prefetch(slot + C::VALUE_OFFSET); // it most likely is the key's
        return same<C>(k, slot);
    }
    __device__ __forceinline__ void value_to(u64 row, u64 slot) const { copy<C::VALUE_BYTES, C::VALUE_UNIT>(row, slot + C::VALUE_OFFSET); }
};
template <class C, class Slots = InMemory> __device__ __forceinline__ void put_key(const Key<C>& k, u64 slot) {
    typedef typename Key<C>::unit unit;
#pragma unroll
    for (int i = 0; i < Key<C>::UNITS; i++) Slots::store(at<unit>(slot) + i, k.get(i));
}

// A value that a lane brings: short ones are held in registers, of long ones the address of the row is.
template <class C, bool HELD = C::VALUE_BYTES <= 16> struct Value;

template <class C> struct Value<C, true> {
    typedef typename bits_of<C::VALUE_UNIT>::type unit;
    static constexpr int UNITS = C::VALUE_BYTES / C::VALUE_UNIT;
    unit u[UNITS ? UNITS : 1];
    __device__ __forceinline__ static Value of_row(u64 row) {
        Value v;
#pragma unroll
        for (int i = 0; i < UNITS; i++) v.u[i] = load_readonly(at<unit>(row) + i);
        return v;
    }
    template <class Slots = InMemory> __device__ __forceinline__ void put(u64 slot) const {
#pragma unroll
        for (int i = 0; i < UNITS; i++) Slots::store(at<unit>(slot + C::VALUE_OFFSET) + i, u[i]);
    }
    __device__ __forceinline__ void give(u64 row) const {
#pragma unroll
        for (int i = 0; i < UNITS; i++) store_memory(at<unit>(row) + i, u[i]);
    }
};
template <class C> struct Value<C, false> {
    u64 row;
    __device__ __forceinline__ static Value of_row(u64 row) { return Value{row}; }
    template <class Slots = InMemory> __device__ __forceinline__ void put(u64 slot) const {
        copy<C::VALUE_BYTES, C::VALUE_UNIT, Slots>(slot + C::VALUE_OFFSET, row);
    }
};

// put_pair writes a slot; one of 8 or 16 bytes whole.
template <class C, class Slots = InMemory> __device__ __forceinline__ void put_pair(u64 slot, const Key<C>& k, const Value<C>& v) {
    if constexpr (C::SLOT_BYTES == 8 || C::SLOT_BYTES == 16) {
        typedef typename bits_of<C::SLOT_BYTES>::type word;
        typedef typename Key<C>::unit key_unit;
        typedef typename Value<C>::unit value_unit;
        union {
            word w;
            key_unit k[C::SLOT_BYTES / sizeof(key_unit)];
            value_unit v[C::SLOT_BYTES / sizeof(value_unit)];
        } x;
        x.w = word{};
#pragma unroll
        for (int i = 0; i < Key<C>::UNITS; i++) x.k[i] = k.get(i);
#pragma unroll
        for (int i = 0; i < Value<C>::UNITS; i++) x.v[C::VALUE_OFFSET / sizeof(value_unit) + i] = v.u[i];
        Slots::store(at<word>(slot), x.w);
    } else {
        put_key<C, Slots>(k, slot);
        v.template put<Slots>(slot);
    }
}

// The hash of a key, word by word from the last; the last word may be of 4 bytes.
template <class C> __device__ __forceinline__ u64 hash_key(const Table& t, const Key<C>& k) {
    constexpr int WORDS = (C::KEY_BYTES + 7) / 8;
    u64 h = 0;
#pragma unroll
    for (int i = WORDS - 1; i >= 0; i--) {
        u64 word;
        if constexpr (C::KEY_UNIT == 16) {
            u128 u = k.get(i / 2);
            word = i & 1 ? u.hi : u.lo;
        } else if constexpr (C::KEY_UNIT == 8) word = k.get(i);
        else {
            word = k.get(2 * i);
            if (2 * i + 1 < Key<C>::UNITS) word |= (u64)k.get(2 * i + 1 < Key<C>::UNITS ? 2 * i + 1 : 0) << 32;
        }
        h = hash64<C::HASH>(h ^ word, t.seed);
    }
    return h;
}

// Where a key belongs: the buckets that it may be in, one after the other. Those of its region come first, each once,
// then those of the next region. A step within a neighbourhood is an odd number of buckets. After C::NEAR buckets the
// key goes on to another neighbourhood, an odd number of them further; and twice as far where it has been in all places
// of a neighbourhood, which otherwise would come again.
template <class C> struct Place {
    static constexpr u32 INFO = (1u << (C::TICKET_BITS - 1)) - 1;
    u32 region, local, step, turn;
    u32 first; // slot of a bucket that comes first
    u32 info, beyond;

    __device__ __forceinline__ Place() {}
    __device__ __forceinline__ Place(const Table& t, const Key<C>& k) : Place(t, hash_key<C>(t, k)) {}
    __device__ __forceinline__ Place(const Table& t, u64 h) {
        region = (u32)reduce(h, t.regions);
        local = (u32)h & ((1u << t.shift) - 1);
        step = fmix32((u32)h) | 1;
        turn = 0;
        first = ((u32)(h >> STADIUM_FIRST_SHIFT) & ((1u << STADIUM_FIRST_BITS) - 1)) * C::SLOTS >> STADIUM_FIRST_BITS;
        info = (u32)(h >> STADIUM_INFO_SHIFT) & INFO;
        beyond = (u32)(h >> STADIUM_BEYOND_SHIFT) % STADIUM_BEYOND_BITS;
    }
    __device__ __forceinline__ u64 bucket(const Table& t) const { return (u64)region << t.shift | local; }
    __device__ __forceinline__ void advance(const Table& t) {
        constexpr u32 PLACES = C::NEIGHBOURHOOD - 1;
        u32 mask = (1u << t.shift) - 1, to = local + step, far = (step & ~PLACES) | C::NEIGHBOURHOOD;
        turn++;
        if (!(turn & (C::NEAR - 1))) local += far;
        if (!(turn & PLACES)) local += far;
        local = ((local & ~PLACES) | (to & PLACES)) & mask;
        if (turn <= mask) return;
        turn = 0;
        if (++region == (u32)t.regions) region = 0;
    }
};

// The tickets of a bucket, and in the highest bits its filter. Bit 0 of a ticket is its availability bit; the others are info bits of the key
// whose slot it is. A ticket that never was taken is all ones; one that was given back has no info bit set. (A ticket of one bit does not tell
// the two apart.)
template <class C> struct Tickets {
    static constexpr int T = C::TICKET_BITS, BYTES = C::TICKET_BYTES, WORDS = BYTES <= 8 ? 1 : BYTES / 8, LANES = 8 * BYTES / WORDS / T; // of a word
    static constexpr u64 ALL = LANES * T == 64 ? ~0ull : (1ull << LANES * T % 64) - 1, LOW = ALL / ((1ull << T) - 1), HIGH = LOW << (T - 1);
    static constexpr u32 EVERY = (1u << C::SLOTS) - 1;
#if defined(WARPMAP_HOST) && defined(__AVX__) && !defined(WARPMAP_STRESS)
    // The CPU device compares tickets of 8 or 16 bits by vectors, which processors with AVX load whole.
    typedef char bytes __attribute__((vector_size(16), may_alias));
    typedef short pairs __attribute__((vector_size(16), may_alias));
    static constexpr bool AT_ONCE = T >= 8;
    union {
        u64 w[WORDS];
        pairs v[WORDS > 1 ? WORDS / 2 : 1];
    };
    // marked tells of which tickets x(vector of tickets) has the highest bit set.
    template <class X> __attribute__((always_inline)) inline u32 marked(X x) const {
        if constexpr (T == 8) return (u32)__builtin_ia32_pmovmskb128((bytes)x(v[0])) & EVERY;
        else return (u32)__builtin_ia32_pmovmskb128((bytes)__builtin_ia32_packsswb128(x(v[0]), x(v[WORDS / 2 - 1]))) & EVERY;
    }
    __attribute__((always_inline)) inline u32 equal(u32 ticket) const {
        return marked([ticket](pairs y) {
            if constexpr (T == 8) return (pairs)((bytes)y == (bytes){} + (char)ticket);
            else return (pairs)(y == (pairs){} + (short)ticket);
        });
    }
#else
    static constexpr bool AT_ONCE = false;
    u64 w[WORDS];
    __device__ __forceinline__ u32 equal(u32) const { return 0; }
#endif

    __device__ __forceinline__ void load(u64 address) {
#if defined(WARPMAP_HOST) && defined(__AVX__) && !defined(WARPMAP_STRESS)
        if constexpr (AT_ONCE) {
            for (int i = 0; i < WORDS / 2; i++) v[i] = *(const volatile pairs*)(address + 16 * i);
            return;
        }
#endif
        if constexpr (T == 16) {
            u256 x = load_relaxed(at<u256>(address));
            w[0] = x.lo.lo, w[1] = x.lo.hi, w[2] = x.hi.lo, w[3] = x.hi.hi;
        } else if constexpr (T == 8) {
            u128 x = load_relaxed(at<u128>(address));
            w[0] = x.lo, w[1] = x.hi;
        } else w[0] = load_relaxed(at<typename bits_of<BYTES>::type>(address));
    }

    // gather brings the lowest bits of a word's tickets side by side.
    static __device__ __forceinline__ u32 gather(u64 x) {
        if constexpr (T == 1) return (u32)x;
        else if constexpr (T == 2) {
            u32 y = (u32)x;
            y = (y | y >> 1) & 0x33333333u;
            y = (y | y >> 2) & 0x0f0f0f0fu;
            y = (y | y >> 4) & 0x00ff00ffu;
            return (y | y >> 8) & 0xffffu;
        } else if constexpr (T == 4) {
            x = (x | x >> 3) & 0x0303030303030303ull;
            x = (x | x >> 6) & 0x000f000f000f000full;
            x = (x | x >> 12) & 0x000000ff000000ffull;
            return (u32)(x | x >> 24) & 0xffffu;
        } else if constexpr (T == 8) return (u32)(x * 0x0102040810204080ull >> 56);
        else return (u32)(x | x >> 15 | x >> 30 | x >> 45) & 15u;
    }
    // zeros tells which tickets of a word are 0.
    static __device__ __forceinline__ u32 zeros(u64 x) {
        if constexpr (T == 1) return (u32)~x;
        else return gather((~(((x & (ALL & ~HIGH)) + (ALL & ~HIGH)) | x) & HIGH) >> (T - 1));
    }
    template <class Of> __device__ __forceinline__ u32 each(Of of) const {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) bits |= of(w[i]) << (i * LANES);
        return bits & EVERY;
    }
    // went_on tells whether a key like this one went on from here, so that the search must: its bit is clear.
    __device__ __forceinline__ bool went_on(u32 bit) const { return !(w[WORDS - 1] >> (8 * BYTES / WORDS - STADIUM_BEYOND_BITS) >> bit & 1); }
    // The slots, as bits, whose tickets are available; those that never were taken; those that are taken, with such info bits.
    __device__ __forceinline__ u32 available() const {
#if defined(WARPMAP_HOST) && defined(__AVX__) && !defined(WARPMAP_STRESS)
        if constexpr (AT_ONCE) return marked([](pairs y) { return y << (T - 1); });
#endif
        return each([](u64 x) { return gather(x & LOW); });
    }
    __device__ __forceinline__ u32 never() const {
        if constexpr (T == 1) return 0;
        else if constexpr (AT_ONCE) return equal((1u << T) - 1);
        else return each([](u64 x) { return zeros(x ^ ALL); });
    }
    __device__ __forceinline__ u32 taken(u32 info) const {
        if constexpr (AT_ONCE) return equal(info << 1);
        u64 all = LOW * info << 1;
        return each([&](u64 x) { return zeros(x ^ all); });
    }
    // Where the ticket of a slot stands: its word of 32 bits, and its lowest bit there.
    static __device__ __forceinline__ u32* word_at(u64 address, u32 slot) { return at<u32>(address) + slot * T / 32; }
    static __device__ __forceinline__ u32 shift_of(u32 slot) { return slot * T % 32; }
    // change gives the ticket of a slot another value, beside others who change its neighbours, and tells whether it was available.
    static __device__ __forceinline__ bool change(u64 address, u32 slot, u32 ticket) {
        u32 *word = word_at(address, slot), shift = shift_of(slot), mask = ((1u << T) - 1) << shift;
        for (u32 was = load_relaxed(word);;) {
            u32 seen = cas(word, was, (was & ~mask) | ticket << shift);
            if (seen == was) return was >> shift & 1;
            was = seen;
        }
    }
    // set is change for whoever holds the access bit.
    static __device__ __forceinline__ void set(u64 address, u32 slot, u32 ticket) {
        typedef typename bits_of<T / 8 ? T / 8 : 1>::type whole;
        if constexpr (T >= 8) store_relaxed(at<whole>(address) + slot, (whole)ticket);
        else change(address, slot, ticket);
    }
};

// A ticket of a slot that is taken; one that was given back.
template <class C> __device__ __forceinline__ constexpr u32 taken_ticket(u32 info) { return C::TICKET_BITS == 1 ? 0 : info << 1; }
constexpr u32 GIVEN_BACK = 1;

template <class C> __device__ __forceinline__ u64 tickets_at(const Table& t, u64 bucket) { return t.board + bucket * C::TICKET_BYTES; }

// The slots lie in one piece, or in panes. A pane's address has IN_HOST set where it is in host memory.
constexpr u64 IN_HOST = STADIUM_IN_HOST;
__device__ __forceinline__ u64 pane_of(const Table& t, u64 bucket) { return bucket >> t.pane_shift; }
__device__ __forceinline__ u64 pane_at(const Table& t, u64 pane) { return load_readonly(at<u64>(t.panes) + pane); }
// The address of a slot of a bucket; of a slot by its number.
template <class C> __device__ __forceinline__ u64 slot_in(const Table& t, u64 bucket, u32 slot) {
    if (t.near) return t.near + (bucket * C::SLOTS + slot) * C::SLOT_BYTES;
    return (pane_at(t, pane_of(t, bucket)) & ~IN_HOST) + ((bucket & ((1ull << t.pane_shift) - 1)) * C::SLOTS + slot) * C::SLOT_BYTES;
}
template <class C> __device__ __forceinline__ u64 slot_at(const Table& t, u64 slot) {
    if (t.near) return t.near + slot * C::SLOT_BYTES;
    return slot_in<C>(t, slot / C::SLOTS, (u32)(slot % C::SLOTS));
}
// in_host tells whether a bucket's slots are to be read across the bus.
__device__ __forceinline__ bool in_host(const Table& t, u64 bucket) { return !t.near && pane_at(t, pane_of(t, bucket)) & IN_HOST; }

// Rotated so that the slot which comes first is bit 0; and back.
template <class C> __device__ __forceinline__ u32 from_first(u32 slots, u32 first) { return (slots >> first | slots << (C::SLOTS - first)) & Tickets<C>::EVERY; }
template <class C> __device__ __forceinline__ u32 slot_of(u32 turned, u32 first) {
    u32 s = (u32)lowest_bit(turned) + first;
    return s < C::SLOTS ? s : s - C::SLOTS;
}

// The slots of a bucket that may hold a key: those whose info bits are the key's, up to the first that never was taken, in their order.
template <class C> __device__ __forceinline__ u32 candidates(const Tickets<C>& x, const Place<C>& p, bool& ended) {
    u32 never = from_first<C>(x.never(), p.first), maybe = from_first<C>(x.taken(p.info), p.first);
    ended = never;
    return maybe & (never ? (never & 0 - never) - 1 : ~0u);
}

// goes_on marks a bucket before a key is put into another behind it.
template <class C> __device__ __forceinline__ void goes_on(const Table& t, u64 bucket, const Place<C>& p) {
    u32 *word = at<u32>(tickets_at<C>(t, bucket) + C::TICKET_BYTES) - 1, bit = 1u << (32 - STADIUM_BEYOND_BITS + p.beyond);
    if (load_relaxed(word) & bit) and_of(word, ~bit);
}

// longer tells whether a look-up that has read so many buckets must read more: no pair is farther than MaxProbes.
__device__ __forceinline__ bool longer(const Table& t, u64 probes) {
    return probes < STADIUM_PROBES_UNTOLD || probes < load_relaxed(&counters(t)->max_probes);
}

// ask_tickets asks for the tickets of a key's first bucket, and ask_slot, later, for the slot that they lead to: where the key may be, or else would go.
template <class C> __device__ __forceinline__ void ask_tickets(const Table& t, const Key<C>& k) { prefetch_line(tickets_at<C>(t, Place<C>(t, k).bucket(t))); }
template <class C> __device__ __forceinline__ void ask_slot(const Table& t, const Key<C>& k, bool puts) {
    Place<C> p(t, k);
    Tickets<C> x;
    x.load(tickets_at<C>(t, p.bucket(t)));
    bool ended;
    u32 slots = candidates<C>(x, p, ended);
    if (!slots && puts) slots = from_first<C>(x.available(), p.first);
    if (slots) prefetch_line(slot_in<C>(t, p.bucket(t), slot_of<C>(slots, p.first)));
}

// Search is the look-up of one key: what its lane knows between two reads. Nobody changes the table meanwhile but deletions of a batch, of which
// this may be one.
template <class C> struct Search {
    Key<C> k;
    Place<C> p;
    u32 maybe; // slots of the bucket that are still to be looked at
    bool ended, found, far;
    u64 slot; // its number
    u32 probes;
    Read<C> read;

    __device__ __forceinline__ void begin(const Table& t, const Key<C>& key) {
        k = key;
        p = Place<C>(t, k);
        maybe = 0;
        probes = 0;
        found = ended = far = false;
    }
    __device__ __forceinline__ u64 address(const Table& t) const { return slot_at<C>(t, slot); }
    // round reads a bucket's tickets, or a slot, or both. It tells whether the key is still to be looked for. With NEAR it ends before the first
    // slot that is in host memory, and `far` says so.
    template <bool NEAR = false> __device__ __forceinline__ bool round(const Table& t) {
        u64 bucket = p.bucket(t);
        if (!maybe) {
            Tickets<C> x;
            x.load(tickets_at<C>(t, bucket));
            maybe = candidates<C>(x, p, ended);
            ended |= !x.went_on(p.beyond);
            probes++;
        }
        if (maybe) {
            if (NEAR && in_host(t, bucket)) {
                far = true;
                return false;
            }
            u32 s = slot_of<C>(maybe, p.first);
            slot = bucket * C::SLOTS + s;
            maybe &= maybe - 1;
            found = read.holds(k, slot_in<C>(t, bucket, s));
            if (found) return false;
            if (maybe) return true;
        }
        if (ended || !longer(t, probes) || probes >= t.regions << t.shift) return false;
        p.advance(t);
        return true;
    }
#if defined(WARPMAP_HOST)
    // The parts of a round, on the CPU device: the tickets, and the way to the next bucket. (With these in it, round makes other code for a GPU.)
    void look(const Table& t, u64 bucket) {
        Tickets<C> x;
        x.load(tickets_at<C>(t, bucket));
        maybe = candidates<C>(x, p, ended);
        ended |= !x.went_on(p.beyond);
        probes++;
    }
    bool go_on(const Table& t) {
        if (ended || !longer(t, probes) || probes >= t.regions << t.shift) return false;
        p.advance(t);
        return true;
    }
    // round_after is a round after look. No branch depends on whether there is a slot to be read, or holds the key: of half hits, every other would be
    // mispredicted. A search without such a slot reads an empty one.
    bool round_after(const Table& t) {
        alignas(16) static const u64 nothing[2] = {};
        if constexpr (!Read<C>::BRIEF) {
            return maybe ? round(t) : go_on(t);
        } else {
            u64 bucket = p.bucket(t), some = 0 - (u64)(maybe != 0);
            u32 s = slot_of<C>(maybe | ~(u32)some, p.first);
            slot = bucket * C::SLOTS + s;
            u64 address = (slot_in<C>(t, bucket, s) & some) | ((u64)nothing & ~some);
            maybe &= maybe - 1;
            found = read.holds(k, address) & (u32)some;
            if (found | ((maybe == 0) & ended)) return false; // most end here
            return maybe || go_on(t);
        }
    }
#endif
};

// Access bits: whoever holds a bucket's may change its tickets and slots. An operation holds that of its key's first bucket from beginning to
// end: so nobody else has to do with this key meanwhile. It looks at other buckets without, and holds one more while it changes something there.
// Nobody waits for one while holding another.
//
// Where slots lie in panes, what was changed is there for the host, too, before the bits are given back.
struct Access {
    u64 home, here;
    static __device__ __forceinline__ bool take(const Table& t, u64 bucket) {
        return !(or_acquire(at<u32>(t.access) + bucket / 32, 1u << (bucket & 31)) >> (bucket & 31) & 1);
    }
    static __device__ __forceinline__ void give(const Table& t, u64 bucket) { and_of(at<u32>(t.access) + bucket / 32, ~(1u << (bucket & 31))); }

    // Whoever has waited does not ask for a bit that is seen set: atomic operations would hold up the one that clears it.
    __device__ __forceinline__ bool begin(const Table& t, u64 bucket, bool waited) {
        home = here = bucket;
        if (waited && load_relaxed(at<u32>(t.access) + bucket / 32) >> (bucket & 31) & 1) return false;
        return take(t, bucket);
    }
    // go holds another bucket's, too. If it cannot, nothing is held.
    __device__ __forceinline__ bool go(const Table& t, u64 bucket) {
        if (bucket == home) return true;
        if (!take(t, bucket)) {
            give(t, home);
            return false;
        }
        here = bucket;
        return true;
    }
    __device__ __forceinline__ void end(const Table& t) {
        if (t.near) fence_acq_rel();
        else fence_system();
        if (here != home) give(t, here);
        give(t, home);
    }
};

// Operation is one of any kind on a key, beside others of all kinds.
template <class C> struct Operation {
    enum { DONE, HELD, WAIT, CROSSED }; // HELD: the slot is the lane's until it finishes; WAIT: for the first bucket; CROSSED: for another
    static constexpr u32 NONE = ~0u;
    enum Kind : u32 { FIND, INSERT, INSERT_NEW, ERASE };
    typedef Tickets<C> Board;
    Key<C> k;
    Place<C> start;
    u32 tries;   // since it crossed another's way
    bool waited; // for the first bucket
    u64 limit; // buckets that an insertion may read
    Outcome outcome;
    u64 slot; // the address of the key's, when it was found or is to be put there
    u32 at_slot; // of its bucket
    Access access;

    __device__ __forceinline__ void begin(const Table& t, const Key<C>& key, u64 most) {
        k = key;
        start = Place<C>(t, k);
        tries = 0;
        waited = false;
        limit = most;
        outcome = ABSENT;
        slot = 0;
    }
    // round tells whether to try again. act(slot, free) is called with the access bit held: of a pair that was found, before one is erased; and
    // of a free slot, which it fills. Lanes of a warp that want each other's buckets must not try again in step.
    template <class Act> __device__ __forceinline__ bool round(const Table& t, Kind kind, Act act) {
        return yields() || again(attempt<true>(t, kind, act));
    }
    // The parts of a round: whether it is another's turn; the way to the slot; what makes it so, once the slot is filled; and whether to try again.
    __device__ __forceinline__ bool yields() {
        if (!tries || !(fmix32(tries++ ^ (u32)grid_thread() * 0x9e3779b9u) & 3)) return false;
        pause();
        return true;
    }
    __device__ __forceinline__ void finish(const Table& t, Kind kind) {
        if (outcome == ADDED) Board::set(tickets_at<C>(t, access.here), at_slot, taken_ticket<C>(start.info));
        else if (kind == ERASE) Board::set(tickets_at<C>(t, access.here), at_slot, GIVEN_BACK);
        access.end(t);
    }
    __device__ __forceinline__ bool again(u32 became) {
        waited = became == WAIT;
        if (became <= HELD) return false;
        if (became == CROSSED) tries |= 1;
        pause();
        return true;
    }
    __device__ __forceinline__ u32 attempt(const Table& t, Kind kind) {
        return attempt<false>(t, kind, [](u64, bool) {});
    }
    // With NOW the slot is filled, and the operation finished, where the way to it ends: that makes the shorter code.
    template <bool NOW, class Act> __device__ __forceinline__ u32 attempt(const Table& t, Kind kind, Act act) {
        Place<C> p = start;
        if (!access.begin(t, p.bucket(t), waited)) return WAIT;
        // Where there is room: the bucket, how many come before it, and the slot.
        u64 room = 0, before = 0;
        u32 room_slot = NONE;
        bool absent = false; // for sure
        for (u64 probes = 0;;) {
            u64 bucket = p.bucket(t);
            Board x;
            x.load(tickets_at<C>(t, bucket));
            probes++;
            if (!absent) {
                bool ended;
                for (u32 maybe = candidates<C>(x, p, ended); maybe; maybe &= maybe - 1) {
                    u32 s = slot_of<C>(maybe, p.first);
                    u64 address = slot_in<C>(t, bucket, s);
                    if (!same<C>(k, address)) continue;
                    if (bucket != access.home) {
                        // It may have been half of one key and half of another that was being put there.
                        if (!access.go(t, bucket)) return CROSSED;
                        x.load(tickets_at<C>(t, bucket));
                        if (!(x.taken(p.info) >> s & 1) || !same<C>(k, address)) {
                            access.end(t);
                            return WAIT;
                        }
                    }
                    slot = address;
                    at_slot = s;
                    outcome = PRESENT;
                    if (!NOW) return HELD;
                    if (kind != INSERT_NEW) act(address, false);
                    finish(t, kind);
                    return DONE;
                }
                absent = ended || !x.went_on(p.beyond) || !longer(t, probes);
            }
            if (u32 free = from_first<C>(x.available(), p.first); free && room_slot == NONE) {
                room = bucket;
                before = probes - 1;
                room_slot = slot_of<C>(free, p.first);
            }
            if (probes >= (t.within ? 1ull << t.shift : t.regions << t.shift)) {
                absent |= !t.within; // the key may be in another region
                break;
            }
            if (absent && (kind == FIND || kind == ERASE || room_slot != NONE || probes >= limit)) break;
            p.advance(t);
        }
        if (kind == FIND || kind == ERASE) {
            outcome = ABSENT;
            access.end(t);
            return DONE;
        }
        if (room_slot == NONE || !absent) {
            outcome = FULL;
            access.end(t);
            return DONE;
        }
        if (room != access.home) {
            if (!access.go(t, room)) return CROSSED;
            Board x;
            x.load(tickets_at<C>(t, room));
            if (!(x.available() >> room_slot & 1)) { // another has taken it since
                access.end(t);
                return WAIT;
            }
        }
        p = start;
        for (u64 i = 0; i < before; i++, p.advance(t)) goes_on<C>(t, p.bucket(t), p);
        if (before >= STADIUM_PROBES_UNTOLD) max_of(&counters(t)->max_probes, before + 1);
        if (room >> t.shift != start.region) add(&counters(t)->strays, (u64)1);
        slot = slot_in<C>(t, room, room_slot);
        at_slot = room_slot;
        outcome = ADDED;
        if (!NOW) return HELD;
        act(slot, true);
        finish(t, kind);
        return DONE;
    }
};

// What users see of keys and values: an integer, or where it lies.
template <class T, int UNIT> struct Seen {
    typedef T bare;
    typedef typename bits_of<UNIT>::type unit;
    static constexpr int UNITS = sizeof(T) / UNIT;
    static __device__ __forceinline__ T load(u64 address) {
        union {
            unit u[UNITS];
            T x;
        } v;
#pragma unroll
        for (int i = 0; i < UNITS; i++) v.u[i] = load_memory(at<unit>(address) + i);
        return v.x;
    }
    static __device__ __forceinline__ void store(u64 address, T x) {
#pragma unroll
        for (int i = 0; i < UNITS; i++) store_memory(at<unit>(address) + i, unit_of<unit>(x, i * UNIT));
    }
    template <class C> static __device__ __forceinline__ Key<C> key(T x) { return Key<C>::from(x); }
};
template <int BYTES, int UNIT> struct Seen<const Words<BYTES>&, UNIT> {
    typedef Words<BYTES> bare;
    static __device__ __forceinline__ const bare& load(u64 address) { return *at<bare>(address); }
    static __device__ __forceinline__ void store(u64 address, const bare& x) { copy<BYTES, UNIT>(address, (u64)&x); }
    template <class C> static __device__ __forceinline__ Key<C> key(const bare& x) { return Key<C>::of((u64)&x); }
};
template <class C> using KeySeen = Seen<typename C::key, C::KEY_UNIT>;
template <class C> using ValueSeen = Seen<typename C::value, C::VALUE_UNIT>;

// Every slot of the table.
template <class C> __device__ __forceinline__ u64 slot_count(const Table& t) { return (t.regions << t.shift) * C::SLOTS; }
template <class C> __device__ __forceinline__ bool is_taken(const Table& t, u64 slot) {
    u64 tickets = tickets_at<C>(t, slot / C::SLOTS);
    u32 s = (u32)(slot % C::SLOTS);
    return !(load_relaxed(Tickets<C>::word_at(tickets, s)) >> Tickets<C>::shift_of(s) & 1);
}

// The operations below are for one key that a lane brings, and may run beside one another in a kernel, in any mixture. They keep the table's
// counts. Keys and values that are Words lie in device memory.

template <class C, class Act> __device__ __forceinline__ Outcome operate(const Table& t, typename Operation<C>::Kind kind, typename C::key k, Act act) {
    Operation<C> x;
    x.begin(t, KeySeen<C>::template key<C>(k), ~0ull);
    while (x.round(t, kind, act)) {}
    if (x.outcome == ADDED) add(&counters(t)->pairs, (u64)1);
    if (kind == Operation<C>::ERASE && x.outcome == PRESENT) add(&counters(t)->pairs, ~(u64)0);
    return x.outcome;
}
// insert puts or replaces. FULL: no slot is free.
template <class C> __device__ Outcome insert(const Table& t, typename C::key k, typename C::value v) {
    return operate<C>(t, Operation<C>::INSERT, k, [&](u64 slot, bool free) {
        if (free) put_key<C>(KeySeen<C>::template key<C>(k), slot);
        ValueSeen<C>::store(slot + C::VALUE_OFFSET, v);
    });
}
// insert_new is insert, but leaves the value of a key that is PRESENT.
template <class C> __device__ Outcome insert_new(const Table& t, typename C::key k, typename C::value v) {
    return operate<C>(t, Operation<C>::INSERT_NEW, k, [&](u64 slot, bool free) {
        if (free) put_key<C>(KeySeen<C>::template key<C>(k), slot);
        ValueSeen<C>::store(slot + C::VALUE_OFFSET, v);
    });
}
// find_or_insert puts the pair, or where the key is PRESENT gives the value that is there.
template <class C> __device__ Outcome find_or_insert(const Table& t, typename C::key k, typename ValueSeen<C>::bare& v) {
    return operate<C>(t, Operation<C>::INSERT, k, [&](u64 slot, bool free) {
        if (!free) v = ValueSeen<C>::load(slot + C::VALUE_OFFSET);
        else {
            put_key<C>(KeySeen<C>::template key<C>(k), slot);
            ValueSeen<C>::store(slot + C::VALUE_OFFSET, v);
        }
    });
}
// update puts the pair, or where the key is PRESENT makes of its value and v what now(value, v) says: all of them bits.
template <class C, class Now> __device__ Outcome update(const Table& t, typename C::key k, typename C::value v, Now now) {
    return operate<C>(t, Operation<C>::INSERT, k, [&](u64 slot, bool free) {
        if (free) put_key<C>(KeySeen<C>::template key<C>(k), slot);
        ValueSeen<C>::store(slot + C::VALUE_OFFSET, free ? v : now(ValueSeen<C>::load(slot + C::VALUE_OFFSET), v));
    });
}
// find tells whether the key is there, and its value.
template <class C> __device__ bool find(const Table& t, typename C::key k, typename ValueSeen<C>::bare& v) {
    return operate<C>(t, Operation<C>::FIND, k, [&](u64 slot, bool) { v = ValueSeen<C>::load(slot + C::VALUE_OFFSET); }) == PRESENT;
}
// erase removes a key, and tells whether this call did.
template <class C> __device__ bool erase(const Table& t, typename C::key k) {
    return operate<C>(t, Operation<C>::ERASE, k, [](u64, bool) {}) == PRESENT;
}

} // namespace stadium
