// Slots that hold a pair or a key each, and how lanes read and write them: what tables share.
//
// C says what a slot is: types key and value; VALUE_BYTES, 0 where slots hold keys alone; SLOT_BYTES, the distance of slots; VALUE_OFFSET;
// PACKED, a slot is one word of up to 16 bytes; SOA, the values are an array of their own; and the keys EMPTY, TOMBSTONE and BUSY, which
// mark slots.
#pragma once
#include "warpmap.cuh"

// How a layout reads and writes a slot. word is what a look-up reads of it: the whole pair, or the key.
enum Holds { APART, WHOLE_PAIRS, KEYS_ALONE };
template <class C, int HOLDS = C::VALUE_BYTES == 0 ? KEYS_ALONE : C::PACKED ? WHOLE_PAIRS : APART> struct Access;

template <class C> struct Access<C, WHOLE_PAIRS> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef typename bits_of<C::SLOT_BYTES>::type word;

    static __device__ __forceinline__ u32 make(u32, key k, value v) { return (u32)k | (u32)v << 16; }
    static __device__ __forceinline__ u64 make(u64, key k, value v) { return (u64)k | (u64)v << 32; }
    static __device__ __forceinline__ u128 make(u128, key k, value v) { return u128{k, v}; }
    static __device__ __forceinline__ key key_of(u32 w) { return (key)w; }
    static __device__ __forceinline__ key key_of(u64 w) { return (key)w; }
    static __device__ __forceinline__ key key_of(u128 w) { return (key)w.lo; }
    static __device__ __forceinline__ value value_in(u32 w) { return (value)(w >> 16); }
    static __device__ __forceinline__ value value_in(u64 w) { return (value)(w >> 32); }
    static __device__ __forceinline__ value value_in(u128 w) { return (value)w.hi; }
    static __device__ __forceinline__ word pack(key k, value v) { return make(word(), k, v); }
    // Free slots are all ones but for the lowest bit of a tombstone, so that clearing a table is filling it with 0xff.
    static __device__ __forceinline__ u32 free_word(u32, bool tombstone) { return ~(u32)tombstone; }
    static __device__ __forceinline__ u64 free_word(u64, bool tombstone) { return ~(u64)tombstone; }
    static __device__ __forceinline__ u128 free_word(u128, bool tombstone) { return u128{~(u64)tombstone, ~0ull}; }

    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots) + index; }
    static __device__ __forceinline__ value load_value(u64, u64, u64, word seen) { return value_in(seen); }
    // value_at is where the value stands, for those who change nothing else, beside whom nothing is erased.
    static __device__ __forceinline__ value* value_at(u64 slots, u64, u64 index) { return at<value>(slots + index * C::SLOT_BYTES + C::VALUE_OFFSET); }

    // claim writes the pair into a free slot, if it is still that.
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, value v) {
        word free = free_word(word(), tombstone);
        return cas(word_at(slots, index), free, pack(k, v)) == free;
    }
    // replace changes the value of a pair that was seen. One try is enough: if the word has changed since, another
    // replace or an erase came between, and this one counts as having come just before it. It tells whether the slot still held the key.
    static __device__ __forceinline__ bool replace(u64 slots, u64, u64 index, word seen, key k, value v) {
        word now = pack(k, v);
        return now == seen || key_of(cas(word_at(slots, index), seen, now)) == k;
    }
    // merge makes of the value and v what now(value, v) says, and tells whether the slot still held the key.
    template <class Now> static __device__ __forceinline__ bool merge(u64 slots, u64, u64 index, word seen, key k, value v, Now now) {
        for (;;) {
            word was = cas(word_at(slots, index), seen, pack(k, now(value_in(seen), v)));
            if (was == seen) return true;
            if (key_of(was) != k) return false;
            seen = was;
        }
    }
    // remove makes the slot a tombstone, or empty, and tells whether it still held the key.
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word seen, key k, bool tombstone = true) {
        for (;;) {
            word was = cas(word_at(slots, index), seen, free_word(word(), tombstone));
            if (was == seen) return true;
            if (key_of(was) != k) return false;
            seen = was; // its value was replaced
        }
    }
    // clear empties a slot that nobody else writes to; put fills one.
    static __device__ __forceinline__ void clear(u64 slots, u64 index) { store_relaxed(word_at(slots, index), free_word(word(), false)); }
    static __device__ __forceinline__ void put(u64 slots, u64 index, key k, value v) { store_relaxed(word_at(slots, index), pack(k, v)); }
};

// Key and value on their own. An insert marks the slot busy, writes the value, then the key: nobody reads a value that
// is not there yet, and no later value is overwritten by an earlier one.
template <class C> struct Access<C, APART> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef key word;

    static __device__ __forceinline__ key key_of(word w) { return w; }
    static __device__ __forceinline__ word pack(key k, value) { return k; }
    static __device__ __forceinline__ word free_word(word, bool tombstone) { return tombstone ? C::TOMBSTONE : C::EMPTY; }
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
    // replace acquires the key, so that its value comes after that of the insert that wrote the key, not before.
    static __device__ __forceinline__ void replace(u64 slots, u64 values, u64 index, word, key, value v) {
        load_acquire(word_at(slots, index));
        store_relaxed(value_at(slots, values, index), v);
    }
    // A merge into a slot that is erased meanwhile counts as having come before.
    template <class Now> static __device__ __forceinline__ bool merge(u64 slots, u64 values, u64 index, word, key k, value v, Now now) {
        if (load_acquire(word_at(slots, index)) != k) return false;
        value* at = value_at(slots, values, index);
        for (value seen = load_relaxed(at);;) {
            value was = cas(at, seen, now(seen, v));
            if (was == seen) return true;
            seen = was;
        }
    }
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word, key k, bool tombstone = true) {
        return cas(word_at(slots, index), k, tombstone ? C::TOMBSTONE : C::EMPTY) == k;
    }
    // clear empties a slot that nobody else writes to; put fills one.
    static __device__ __forceinline__ void clear(u64 slots, u64 index) { store_relaxed(word_at(slots, index), C::EMPTY); }
    static __device__ __forceinline__ void put(u64 slots, u64 index, key k, value v) {
        store_relaxed(value_at(slots, 0, index), v);
        store_relaxed(word_at(slots, index), k);
    }
};

// A set's slot is its key. It has no value: what stands for one is never read.
template <class C> struct Access<C, KEYS_ALONE> {
    typedef typename C::key key;
    typedef typename C::value value;
    typedef key word;

    static __device__ __forceinline__ key key_of(word w) { return w; }
    static __device__ __forceinline__ word pack(key k, value) { return k; }
    static __device__ __forceinline__ word free_word(word, bool tombstone) { return tombstone ? C::TOMBSTONE : C::EMPTY; }
    static __device__ __forceinline__ word* word_at(u64 slots, u64 index) { return at<word>(slots) + index; }
    static __device__ __forceinline__ value load_value(u64, u64, u64, word) { return value{}; }
    static __device__ __forceinline__ bool claim(u64 slots, u64, u64 index, bool tombstone, key k, value) {
        word free = free_word(word(), tombstone);
        return cas(word_at(slots, index), free, k) == free;
    }
    static __device__ __forceinline__ void replace(u64, u64, u64, word, key, value) {}
    static __device__ __forceinline__ void put(u64 slots, u64 index, key k, value) { store_relaxed(word_at(slots, index), k); }
    static __device__ __forceinline__ bool remove(u64 slots, u64 index, word, key k, bool tombstone = true) {
        return cas(word_at(slots, index), k, free_word(word(), tombstone)) == k;
    }
};

// Whether the CPU device compares the words of the slots together: they are beside one another, and one lane has them. Words of 16 bytes are not,
// because no level promises that a vector of several is read without cutting one.
#if defined(WARPMAP_HOST) && !defined(WARPMAP_STRESS)
template <class C, int G, int SLOTS, int SIZE = sizeof(typename Access<C>::word)>
constexpr bool AT_ONCE = G == 1 && SIZE == C::SLOT_BYTES && (SIZE == 4 || SIZE == 8) && SLOTS * SIZE >= 16 && SLOTS <= 32;
#else
template <class C, int G, int SLOTS> constexpr bool AT_ONCE = false;
#endif

// What one lane of a tile holds of SLOTS slots in a row: vectors of 16 bytes, dealt to the lanes in turn.
template <class C, int G, int SLOTS = C::WINDOW, bool = AT_ONCE<C, G, SLOTS>> struct View {
    typedef Access<C> A;
    typedef typename A::word word;
    typedef typename C::key key;
    // Words that one load takes; in layout AoS with wide slots the keys are apart, and each is a load.
    static constexpr int TOGETHER = sizeof(word) == C::SLOT_BYTES && sizeof(word) < 16 ? 16 / (int)sizeof(word) : 1;
    static constexpr int VECTOR = TOGETHER < SLOTS ? TOGETHER : SLOTS;
    static constexpr int LANES = SLOTS / VECTOR; // that have a part
    static constexpr int STEPS = LANES > G ? LANES / G : 1;
    static constexpr int WORDS = STEPS * VECTOR;
    word w[WORDS];

    static __device__ __forceinline__ u32 slot(int i, int rank) { return (u32)((i / VECTOR * G + rank) * VECTOR + i % VECTOR); }

    // holds tells whether a lane has a part: in a tile larger than the window, some have none.
    static __device__ __forceinline__ bool holds(int rank) { return G <= LANES || rank < LANES; }

    // load reads the lane's part; a lane that holds none, or is not on, gets words that are neither free nor busy, so
    // that they mean nothing unless the key is 0: the caller masks matches by holds and on.
    __device__ __forceinline__ void load(bool on, u64 address, int rank) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) w[i] = word{};
        if (!on || !holds(rank)) return;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const word* p = A::word_at(address, slot(s * VECTOR, rank));
            if constexpr (VECTOR == 1) w[s] = load_relaxed(p);
            else {
                word v[VECTOR];
                load_vector(p, v);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) w[s * VECTOR + i] = v[i];
            }
        }
    }
    // load_if is load, but a lane that holds none, or is not on, gets words that may be any: every use of them is masked by holds and on.
    __device__ __forceinline__ void load_if(bool on, u64 address, int rank) {
        on = on && holds(rank);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const word* p = A::word_at(address, slot(s * VECTOR, rank));
            if constexpr (VECTOR == 1) w[s] = load_relaxed_if(on, p);
            else {
                word v[VECTOR];
                load_vector_if(on, p, v);
#pragma unroll
                for (int i = 0; i < VECTOR; i++) w[s * VECTOR + i] = v[i];
            }
        }
    }
    // of finds the word whose key is k, one at most: false without.
    __device__ __forceinline__ bool of(key k, word& x) const {
        bool found = false;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            if (i == 0 || A::key_of(w[i]) == k) x = w[i];
            found |= A::key_of(w[i]) == k;
        }
        return found;
    }
    // last tells whether the last slot of all is the lane's, which is then w[WORDS - 1].
    static __device__ __forceinline__ bool last(int rank) { return rank == (G < LANES ? G : LANES) - 1; }
    // The slots whose key is k, as bits of i.
    __device__ __forceinline__ u32 matches(key k) const {
        u32 m = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) m |= (u32)(A::key_of(w[i]) == k) << i;
        return m;
    }
    // The free slot nearest to `first`: its distance, times two, plus one for a tombstone; ~0 without.
    __device__ __forceinline__ u32 first_free(u32 first, bool tombstones, int rank) const {
        u32 best = ~0u;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            key k = A::key_of(w[i]);
            u32 order = (slot(i, rank) ^ first) * 2 + (k == C::TOMBSTONE);
            if ((k == C::EMPTY || (tombstones && k == C::TOMBSTONE)) && order < best) best = order;
        }
        return best;
    }
    __device__ __forceinline__ word pick(u32 i) const {
        word x = w[0];
#pragma unroll
        for (int j = 1; j < WORDS; j++)
            if (i == j) x = w[j];
        return x;
    }
};

#if defined(WARPMAP_HOST)
// The same where a lane has all slots, in vectors of the processor's.
template <class C, int SLOTS> struct View<C, 1, SLOTS, true> {
    typedef Access<C> A;
    typedef typename A::word word;
    typedef typename C::key key;
    static constexpr int BYTES = SLOTS * sizeof(word), VECTOR_BYTES = BYTES < WARPMAP_VECTOR ? BYTES : WARPMAP_VECTOR, VECTORS = BYTES / VECTOR_BYTES;
    static constexpr int WORDS = SLOTS, LANES = 1;
    static constexpr int EACH = SLOTS / VECTORS;
    static constexpr word KEY_BITS = sizeof(key) >= sizeof(word) ? ~(word)0 : (word)(((u64)1 << 8 * (sizeof(key) & 7)) - 1); // the key is the lower part
    typedef Words<word, VECTOR_BYTES> Vector;
    union {
        typename Vector::vector v[VECTORS];
        word w[WORDS];
    };

    __device__ __forceinline__ View() {}
    static __device__ __forceinline__ u32 slot(int i, int) { return (u32)i; }
    static __device__ __forceinline__ bool holds(int) { return true; }
    static __device__ __forceinline__ bool last(int) { return true; }
    __device__ __forceinline__ void load(bool on, u64 address, int) {
        for (int j = 0; j < VECTORS; j++) v[j] = on ? load_words<Vector>(address + j * VECTOR_BYTES) : typename Vector::vector{};
    }
    __device__ __forceinline__ void load_if(bool on, u64 address, int rank) { load(on, address, rank); }
    __device__ __forceinline__ u32 matches(key k) const {
        u32 all = 0;
        for (int j = 0; j < VECTORS; j++) all |= Vector::equal(v[j], KEY_BITS, (word)k) << j * EACH;
        return all;
    }
    __device__ __forceinline__ bool of(key k, word& x) const {
        u32 m = matches(k);
        x = w[m ? lowest_bit(m) : 0];
        return m != 0;
    }
    __device__ __forceinline__ u32 first_free(u32 first, bool tombstones, int) const {
        u32 dead = tombstones ? matches(C::TOMBSTONE) : 0, m = matches(C::EMPTY) | dead, order = m;
        // Bit i goes to i ^ first, without a branch that nobody could foretell.
        const u32 LOW[] = {0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};
        for (int b = 0; b < 5 && 1 << b < SLOTS; b++) {
            u32 swapped = (order & LOW[b]) << (1 << b) | (order >> (1 << b) & LOW[b]);
            order ^= (order ^ swapped) & (0 - (first >> b & 1));
        }
        // What lies above a slot's bits in `first`, the number of a part, goes into the distance as it is.
        u32 near = (u32)lowest_bit(order | 1u << 31), distance = near | (first & ~(u32)(SLOTS - 1));
        return m ? (distance << 1) + (dead >> ((near ^ first) & (SLOTS - 1)) & 1) : ~0u;
    }
    __device__ __forceinline__ word pick(u32 i) const { return w[i & (SLOTS - 1)]; }
};
#endif
