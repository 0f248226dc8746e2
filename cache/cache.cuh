// A cache on the device: what is done in a bucket. Layout and invariants are in doc.go, the layout's numbers in
// layout.go (they reach this file through layout.h). C is a cache's config.
#pragma once
#include "items.cuh"
#include "layout.h"
#include "warpmap.cuh"

namespace cache {

constexpr u32 WAYS = CACHE_WAYS;

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// Home is where a key belongs.
template <class C> struct Home {
    u64 number, bucket; // of the bucket, and its address
    u8 tag;             // never 0, which is an empty slot's
    __device__ __forceinline__ Home(const Table& t, typename C::key k) {
        u64 h = hash64<C::HASH>(k, t.seed);
        number = reduce(h, t.count);
        bucket = t.buckets + number * C::BUCKET_BYTES;
        tag = (u8)(1 + (((u32)h & 0xffff) * 255 >> 16));
    }
};

__device__ __forceinline__ u32* version_at(u64 bucket) { return at<u32>(bucket); }
__device__ __forceinline__ u8* tag_at(u64 bucket, u32 i) { return at<u8>(bucket) + CACHE_TAGS + i; }
__device__ __forceinline__ u32* score_at(u64 bucket, u32 i) { return at<u32>(bucket + CACHE_SCORES) + i; }
template <class C> __device__ __forceinline__ typename C::word* word_at(u64 bucket, u32 i) {
    return at<typename C::word>(bucket + CACHE_HEAD) + i;
}
template <class C> __device__ __forceinline__ u64 value_at(const Table& t, u64 number, u32 i) {
    return t.values + (number * WAYS + i) * C::VALUE_BYTES;
}

// A word holds a key, and a value behind it where that lies in the bucket.
template <class C> __device__ __forceinline__ typename C::key key_of(const typename C::word& w) {
    if constexpr (C::SLOT_BYTES == 16) return (typename C::key)w.lo;
    else return (typename C::key)w;
}
template <class C> __device__ __forceinline__ typename C::value value_of(const typename C::word& w) {
    if constexpr (!C::PAIRED || C::VALUE_BYTES == 0) return typename C::value{};
    else if constexpr (C::SLOT_BYTES == 16) return (typename C::value)w.hi;
    else return (typename C::value)(w >> 8 * C::KEY_BYTES);
}
template <class C> __device__ __forceinline__ typename C::word word_of(typename C::key k, typename C::value v) {
    if constexpr (!C::PAIRED || C::VALUE_BYTES == 0) return k;
    else if constexpr (C::SLOT_BYTES == 16) return u128{k, v};
    else return (typename C::word)v << 8 * C::KEY_BYTES | k;
}

// A head's first 16 bytes are the version and the tags.
__device__ __forceinline__ u128 load_head(u64 bucket) { return load_both(at<u128>(bucket)); }
// ask_head has a head brought to the L2 cache.
__device__ __forceinline__ void ask_head(u64 bucket) {
    prefetch(bucket);
    prefetch(bucket + CACHE_HEAD / 2);
}
// A bit for each byte of x that is equal to that of y. The product brings the bits of four bytes together.
__device__ __forceinline__ u32 equal_bytes(u32 x, u32 y) {
    x ^= y;
    u32 unequal = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7;
    return ((~unequal & 0x01010101u) * 0x01020408u) >> 24;
}
// A bit for each slot with the tag.
__device__ __forceinline__ u32 matches(u128 head, u8 tag) {
    u32 four = tag * 0x01010101u;
    return equal_bytes((u32)(head.lo >> 32), four) | equal_bytes((u32)head.hi, four) << 4 |
           equal_bytes((u32)(head.hi >> 32), four) << 8;
}

// Whether the pair in a slot has ended; in a cache without times none has.
template <class C> __device__ __forceinline__ u32* expiry_at(u64 bucket,
    u32 i) { return at<u32>(bucket + C::EXPIRY) + i; }
template <class C> __device__ __forceinline__ bool ended(u64 bucket, u32 i, u64 time) {
    if constexpr (C::EXPIRES) return load_relaxed(expiry_at<C>(bucket, i)) <= time;
    else return false;
}
// expiry_of is when pair i of a batch ends: the largest number, which no time comes to, if never.
template <class C> __device__ __forceinline__ u32 expiry_of(u64 time, u64 life, u64 lives, u64 i) {
    if constexpr (!C::EXPIRES) return 0;
    u32 own = lives ? load_readonly(at<u32>(lives) + i) : 0;
    u64 end = time + (own ? own : life);
    return end < ~0u ? (u32)end : ~0u;
}

// slot_of gives the key's slot and its word, or WAYS. With READERS, whoever sees a new end sees the new word.
template <class C, bool READERS>
__device__ __forceinline__ u32 slot_of(const Home<C>& h, u128 head, typename C::key k, typename C::word& w, u64 time,
    bool& over) {
    for (u32 m = matches(head, h.tag); m; m &= m - 1) {
        u32 i = (u32)lowest_bit(m);
        over = ended<C>(h.bucket, i, time);
        if (C::EXPIRES && READERS) fence_acq_rel();
        w = load_relaxed(word_at<C>(h.bucket, i));
        if (key_of<C>(w) == k) return i;
    }
    return WAYS;
}

// touch notes that a pair was used. A score that is right already is not written: a pair that a whole batch asks for
// has its line written once. Counts end before they overflow.
template <class C> __device__ __forceinline__ void touch(u32* score, u32 now, u32 times = 1) {
    if constexpr (C::POLICY == CACHE_SCORED) return;
    u32 s = load_relaxed(score);
    if constexpr (C::POLICY == CACHE_LRU) {
        if (s != now) store_relaxed(score, now);
    } else if (s < CACHE_MOST_COUNT) add(score, times);
}
// mark notes that a pair was used where all marks are together: see touch_marked.
__device__ __forceinline__ void mark(u64 marks, u64 number, u32 slot) {
    u32 *word = at<u32>(marks) + number / 2, bit = 1u << ((u32)number % 2 * 16 + slot);
    if (!(load_relaxed(word) & bit)) or_of(word, bit);
}
// new_score is that of a pair that comes in, as often as weight says. Pairs that come back from a file have scores
// whatever the policy.
template <class C> __device__ __forceinline__ u32 new_score(u32 now, u64 scores, u64 i, u32 weight) {
    if (scores) return load_readonly(at<u32>(scores) + i);
    return C::POLICY == CACHE_LRU ? now : C::POLICY == CACHE_SCORED ? 0 : weight;
}

// What becomes of a pair that is put.
enum Fate : u32 { NONE, UPDATES, ADDS, RENEWS, EVICTS, IS_REFUSED };
template <class C> struct Place {
    Fate fate;
    u32 slot, score;      // score is that of the pair in the slot
    typename C::word old; // in the slot
};

// any_busy is the condition of a loop in which lanes take turns with locks. On a GPU all lanes of a warp go around until
// the last of them is done, those that work alone, too: append wants all of them.
template <class Tile> __device__ __forceinline__ bool any_busy(Tile g, bool busy) {
#if defined(WARPMAP_HOST)
    return g.any_of_all(busy);
#else
    return warp_ballot(~0u, busy) != 0;
#endif
}

// lock takes a bucket, once: it does not wait. Whoever has it makes the version odd until unlock. Who comes again looks
// first: many that try to change the version would hold up the one who wants to give it back. With READERS, those who
// look up without the lock see the odd version before they see a change.
template <bool READERS> __device__ __forceinline__ bool lock(u64 bucket, u32& version, bool again) {
    if (again && load_relaxed(version_at(bucket)) & 1) return false;
    version = or_acquire(version_at(bucket), 1u);
    bool got = !(version & 1);
    if (READERS && got) fence_acq_rel();
    return got;
}
__device__ __forceinline__ void unlock(u64 bucket, u32 version) { store_release(version_at(bucket), version + 2); }

// choose finds the place of a pair in its bucket, which is locked: the slot of its key, else an empty one, else that
// of a pair that has ended, else that of the least score, whose word it reads if the caller tells it. Of equal scores that is the next from a slot on that moves
// with each change, so that they go in turn.
template <class C> __device__ __forceinline__ Place<C> choose(const Home<C>& h, u32 version, typename C::key k,
    u32 score, bool scored, u64 time, bool tells) {
    Place<C> x;
    u128 head = load_head(h.bucket);
    bool over = false;
    x.slot = slot_of<C, false>(h, head, k, x.old, time, over);
    x.score = 0;
    x.fate = over ? RENEWS : UPDATES;
    if (x.slot < WAYS) return x;
    u32 empty = matches(head, 0);
    x.fate = ADDS;
    x.slot = (u32)lowest_bit(empty);
    if (empty) return x;
    if constexpr (C::EXPIRES)
        for (x.slot = 0, x.fate = RENEWS; x.slot < WAYS; x.slot++)
            if (ended<C>(h.bucket, x.slot, time)) return x;
    u32 first = (version >> 1) % WAYS, least = ~0u, turn = WAYS;
    u128 four[WAYS / 4];
#pragma unroll
    for (u32 j = 0; j < WAYS / 4; j++) four[j] = load_relaxed(at<u128>(h.bucket + CACHE_SCORES) + j);
#pragma unroll
    for (u32 j = 0; j < WAYS / 4; j++) {
#pragma unroll
        for (u32 n = 0; n < 4; n++) {
            u32 s = (u32)((n < 2 ? four[j].lo : four[j].hi) >> n % 2 * 32), i = 4 * j + n;
            u32 after = i >= first ? i - first : i + WAYS - first;
            if (s < least || (s == least && after < turn)) {
                least = s;
                turn = after;
                x.slot = i;
            }
        }
    }
    x.score = least;
    x.fate = (C::POLICY == CACHE_SCORED || scored) && score < least ? IS_REFUSED : EVICTS;
    if (tells && x.fate == EVICTS) x.old = load_relaxed(word_at<C>(h.bucket, x.slot));
    return x;
}

// choose_to_erase finds the slot of a key in its bucket, which is locked: it updates if the key is there.
template <class C> __device__ __forceinline__ Place<C> choose_to_erase(const Home<C>& h, typename C::key k, u64 time) {
    Place<C> x;
    bool over = false;
    x.slot = slot_of<C, false>(h, load_head(h.bucket), k, x.old, time, over);
    x.score = 0;
    x.fate = x.slot < WAYS && !over ? UPDATES : NONE;
    return x;
}

// settle writes the pair's word, its tag and its score to its place. A pair that is there and gets no new score keeps
// its own. With READERS, whoever sees the tag sees the word.
template <class C, bool READERS>
__device__ __forceinline__ void settle(const Home<C>& h, const Place<C>& x, typename C::key k, typename C::value v,
    u32 score, bool scored, u32 now, u32 expiry, u32 weight) {
    if (x.fate == IS_REFUSED) return;
    store_relaxed(word_at<C>(h.bucket, x.slot), word_of<C>(k, v));
    if constexpr (C::EXPIRES) {
        if (READERS) fence_acq_rel();
        store_relaxed(expiry_at<C>(h.bucket, x.slot), expiry);
    }
    if (x.fate == UPDATES && !scored) return touch<C>(score_at(h.bucket, x.slot), now, weight);
    store_relaxed(score_at(h.bucket, x.slot), score);
    if (READERS) fence_acq_rel();
    if (x.fate != UPDATES) store_relaxed(tag_at(h.bucket, x.slot), h.tag);
}

// What a batch's columns have of values that lie in buckets; a column that is left out has the address 0.
template <class C> __device__ __forceinline__ typename C::value paired_input(u64 values, u64 i) {
    if constexpr (C::PAIRED && C::VALUE_BYTES > 0) return load_readonly(at<typename C::value>(values) + i);
    else return typename C::value{};
}
template <class C> __device__ __forceinline__ void paired_output(u64 values, u64 i, typename C::value v) {
    if constexpr (C::PAIRED && C::VALUE_BYTES > 0)
        if (values) at<typename C::value>(values)[i] = v;
}
// And where they have one that lies apart, or 0.
template <class C> __device__ __forceinline__ u64 row_at(u64 column,
    u64 i) { return column ? column + i * C::VALUE_BYTES : 0; }

// Values that lie apart are copied by all lanes of a tile, one value after the other. All lanes must come. A piece is
// always copied by the same lane, so that what it reads it may write next.
template <class C, class Tile, class Copy, class Piece = typename C::piece>
__device__ __forceinline__ void copy_each(Tile g, u64 from, u64 to, Copy copy, Piece = Piece{}) {
    constexpr u32 PIECES = C::VALUE_BYTES / sizeof(Piece);
#pragma unroll 1
    for (int j = 0; j < Tile::LANES; j++) {
        u64 a = g.shuffle(from, j), b = g.shuffle(to, j);
        if (!a || !b) continue;
        for (u32 n = (u32)g.rank(); n < PIECES; n += Tile::LANES) copy(at<Piece>(a) + n, at<Piece>(b) + n);
    }
}
// copy_in copies from a column of a batch to the cache, copy_out to a column from the cache, and copy_over from column
// to column. Where an address is 0, nothing is copied.
template <class C, class Tile> __device__ __forceinline__ void copy_in(Tile g, u64 from, u64 to) {
    typedef typename C::piece piece;
    copy_each<C>(g, from, to, [](const piece* a, piece* b) { store_relaxed(b, load_readonly(a)); });
}
template <class C, class Tile> __device__ __forceinline__ void copy_out(Tile g, u64 from, u64 to) {
    typedef typename C::piece piece;
    copy_each<C>(g, from, to, [](const piece* a, piece* b) { *b = load_relaxed(a); });
}
template <class C, class Tile> __device__ __forceinline__ void copy_over(Tile g, u64 from, u64 to) {
    typedef typename C::piece piece;
    copy_each<C>(g, from, to, [](const piece* a, piece* b) { *b = load_readonly(a); });
}
// copy_to_record does what copy_out does, to where a row need not be aligned to a piece.
template <class C, class Tile> __device__ __forceinline__ void copy_to_record(Tile g, u64 from, u64 to) {
    copy_each<C>(g, from, to, [](const u32* a, u32* b) { *b = load_relaxed(a); }, (u32)0);
}
// copy_zero makes a row of a column all zeros.
template <class C, class Tile> __device__ __forceinline__ void copy_zero(Tile g, u64 to) {
    typedef typename C::piece piece;
    copy_each<C>(g, to, to, [](const piece*, piece* b) { *b = piece{}; });
}

} // namespace cache
