// A cuckoo filter on the device: insert, contains and erase of a key. Layout, invariants and the order in which lanes
// write are in doc.go, the layout's numbers in layout.go (they reach this file through layout.h). C is a filter's
// config.
#pragma once
#include "layout.h"
#include "warpmap.cuh"

namespace cuckoo {

__device__ __forceinline__ u32 lowest_bit_of(u64 x) { // x is not 0
    return (u32)x ? (u32)lowest_bit((u32)x) : 32 + (u32)lowest_bit((u32)(x >> 32));
}

// The shape of a bucket: words of 64 bits, each of which has tags from its lowest bit on. Marks are the highest bits,
// of the last word, or with tags of 12 bits of each.
template <class C> struct Shape {
    static constexpr int TAG = C::TAG, WORDS = C::WORDS, MARKS = TAG == 16 ? 16 : 8;
    static constexpr u32 TAGS = (1u << TAG) - 1; // 1 … TAGS, and the mask of a tag
    static constexpr int MARKS_OF_WORD = TAG == 12 ? MARKS / WORDS : MARKS;

    static constexpr __device__ __host__ int marks_in(int word) {
        return TAG == 12 || word == WORDS - 1 ? MARKS_OF_WORD : 0;
    }
    static constexpr __device__ __host__ int slots_in(int word) { return (64 - marks_in(word)) / TAG; }
    // ones has the lowest bit of each slot of a word.
    static constexpr __device__ __host__ u64 ones(int word) {
        u64 x = 0;
        for (int s = 0; s < slots_in(word); s++) x |= 1ull << s * TAG;
        return x;
    }

    // The mark of a tag: a bit of one of the words.
    static __device__ __forceinline__ u32 mark_of(u32 tag) { return tag & (MARKS - 1); }
    static __device__ __forceinline__ int mark_word(u32 tag) {
        return TAG == 12 ? (int)(mark_of(tag) / MARKS_OF_WORD) : WORDS - 1;
    }
    static __device__ __forceinline__ u64 mark_bit(u32 tag) {
        return 1ull << (64 - MARKS_OF_WORD + mark_of(tag) % MARKS_OF_WORD);
    }
};

// Slot is a slot of a bucket, and its word as it was seen.
struct Slot {
    int word;
    u32 shift;
    u64 seen;
};

// Bucket is a copy of a bucket, whose words may be of several moments.
template <class C> struct Bucket {
    typedef Shape<C> S;
    u64 w[S::WORDS];

    // matches is not 0 where a slot of a word holds the tag, and its lowest bit is the highest of the first such slot.
    // (Bits above that one may be of slots that hold others.)
    static __device__ __forceinline__ u64 matches(int i, u64 word, u32 tag) {
        const u64 one = S::ones(i);
        u64 x = word ^ one * tag;
        return (x - one) & ~x & one << (S::TAG - 1);
    }
    // slot gives how far the first slot of a word that holds the tag is from its lowest bit; 64: none does.
    static __device__ __forceinline__ u32 slot(int i, u64 word, u32 tag) {
        u64 x = matches(i, word, tag);
        return x ? lowest_bit_of(x) - (S::TAG - 1) : 64;
    }
    __device__ __forceinline__ bool has(u32 tag) const {
        u64 any = 0;
#pragma unroll
        for (int i = 0; i < S::WORDS; i++) any |= matches(i, w[i], tag);
        return any != 0;
    }
    __device__ __forceinline__ bool has_room() const { return has(0); }
    // find gives the first slot that holds the tag.
    __device__ __forceinline__ bool find(u32 tag, Slot& x) const {
        u64 hit = 0;
#pragma unroll
        for (int i = S::WORDS - 1; i >= 0; i--) {
            u64 m = matches(i, w[i], tag);
            if (m) {
                hit = m;
                x.word = i;
                x.seen = w[i];
            }
        }
        if (hit) x.shift = lowest_bit_of(hit) - (S::TAG - 1);
        return hit != 0;
    }
    __device__ __forceinline__ void set(int word, u64 seen) {
#pragma unroll
        for (int i = 0; i < S::WORDS; i++)
            if (i == word) w[i] = seen;
    }
    __device__ __forceinline__ bool marked(u32 tag) const {
        u64 of = 0;
#pragma unroll
        for (int i = 0; i < S::WORDS; i++)
            if (i == S::mark_word(tag)) of = w[i];
        return (of & S::mark_bit(tag)) != 0;
    }
};

template <class C> __device__ __forceinline__ Bucket<C> load_bucket(const u64* at) {
    Bucket<C> b;
    if constexpr (C::WORDS == 1) b.w[0] = load_relaxed(at);
    else {
#pragma unroll
        for (int i = 0; i < C::WORDS; i += 2) {
            u128 x = load_relaxed((const u128*)(at + i));
            b.w[i] = x.lo;
            b.w[i + 1] = x.hi;
        }
    }
    return b;
}
// load_bucket_readonly is for kernels beside which nothing is changed.
template <class C> __device__ __forceinline__ Bucket<C> load_bucket_readonly(const u64* at) {
    Bucket<C> b;
    if constexpr (C::WORDS == 1) b.w[0] = load_readonly(at);
    else {
#pragma unroll
        for (int i = 0; i < C::WORDS; i += 2) {
            u128 x = load_readonly((const u128*)(at + i));
            b.w[i] = x.lo;
            b.w[i + 1] = x.hi;
        }
    }
    return b;
}

// load_bucket_readonly_if does where `on` says so, and leaves the bucket as it is elsewhere.
template <class C> __device__ __forceinline__ void load_bucket_readonly_if(bool on, const u64* at, Bucket<C>& b) {
    if constexpr (C::WORDS == 1) load_readonly_if(on, at, b.w[0]);
    else {
#pragma unroll
        for (int i = 0; i < C::WORDS; i += 2) {
            u128 x{b.w[i], b.w[i + 1]};
            load_readonly_if(on, (const u128*)(at + i), x);
            b.w[i] = x.lo;
            b.w[i + 1] = x.hi;
        }
    }
}

// put_in puts a tag into an empty slot of a bucket, last seen as `was`. A try fails only where another lane's has
// changed the word. All words are compared before one is swapped, so that lanes of a warp that swap different words do
// so at once.
template <class C> __device__ __forceinline__ bool put_in(u64* at, Bucket<C> was, u32 tag) {
    for (Slot x; was.find(0, x);) {
        u64 seen = cas(at + x.word, x.seen, x.seen | (u64)tag << x.shift);
        if (seen == x.seen) return true;
        was.set(x.word, seen);
    }
    return false;
}
// take_from takes one slot with the tag.
template <class C> __device__ __forceinline__ bool take_from(u64* at, Bucket<C> was, u32 tag) {
    for (Slot x; was.find(tag, x);) {
        u64 seen = cas(at + x.word, x.seen, x.seen ^ (u64)tag << x.shift);
        if (seen == x.seen) return true;
        was.set(x.word, seen);
    }
    return false;
}
// mark notes that the tag may stand in the other bucket. Nobody takes a mark back.
template <class C> __device__ __forceinline__ void mark(u64* at, u32 tag) {
    u64 *word = at + Shape<C>::mark_word(tag), bit = Shape<C>::mark_bit(tag);
    if (!(load_relaxed(word) & bit)) or_of(word, bit);
}

// Window is the window of a key: both its buckets are there.
template <class C> struct Window {
    u64* words;
    u32* version;
    u32 buckets; // an even number

    __device__ __forceinline__ u64* at(u32 bucket) const { return words + (u64)bucket * C::WORDS; }
    // other gives the second bucket of a tag that has this one, and of that one this. One is even, and one is odd.
    __device__ __forceinline__ u32 other(u32 bucket, u32 tag) const {
        u32 sum = 2 * (u32)((u64)fmix32(tag) * (buckets / 2) >> 32) + 1;
        return sum - bucket + (sum < bucket ? buckets : 0);
    }
};
template <class C> __device__ __forceinline__ Window<C> window_at(const Table& t, u64 number) {
    return {at<u64>(t.words) + number * t.buckets * C::WORDS, at<u32>(t.versions) + number, t.buckets};
}
// window_of gives the number of the window for a tag: so many high bits of the tag as the filter spends are its low
// bits.
template <class C> __device__ __forceinline__ u64 window_of(const Table& t, u64 base, u32 tag) {
    return base << t.spent | (u64)(tag >> (C::TAG - t.spent));
}

// Of a key's hash the high bits name the window, so that regions are stretches of windows. The rest is of products, in
// which the low bits, by which the keys of a window differ, come high.
__device__ __forceinline__ u64 first_product(u64 h) { return h * 0x9e3779b97f4a7c15ull; }
template <class C> __device__ __forceinline__ u32 tag_of(u64 h) {
    u64 random = first_product(h);
    random = (random ^ random >> 32) * 0xff51afd7ed558ccdull;
    return 1 + (u32)((random >> 32) * Shape<C>::TAGS >> 32);
}

// Place is where a key's tag goes.
template <class C> struct Place {
    Window<C> window;
    u32 bucket, tag;

    __device__ __forceinline__ Place() {}
    __device__ __forceinline__ Place(const Table& t, typename C::key k) {
        u64 h = hash64<C::HASH>(k, t.seed);
        bucket = (u32)((first_product(h) >> 32) * t.buckets >> 32);
        tag = tag_of<C>(h);
        window = window_at<C>(t, window_of<C>(t, reduce(h, t.windows), tag));
    }
    __device__ __forceinline__ u64* first() const { return window.at(bucket); }
    __device__ __forceinline__ u64* second() const { return window.at(window.other(bucket, tag)); }
};

// Step is a tag that is to move to its other bucket.
struct Step {
    u32 bucket, word, shift, tag;
};

// leave takes the tag of a step, of which there is a copy in its other bucket `to` already, out of its slot, by the
// swap that puts `now` there. false: another lane took it out before, and the copy was one too many, and is taken out.
template <class C> __device__ __forceinline__ bool leave(const Window<C>& w, const Step& s, u32 to, u32 now) {
    fence_acq_rel(); // the mark and the copy come before the version
    add(w.version, 1u);
    fence_acq_rel(); // and the version before the tag is gone
    u64 *word = w.at(s.bucket) + s.word, was = load_relaxed(word);
    while (((u32)(was >> s.shift) & Shape<C>::TAGS) == s.tag) {
        u64 seen = cas(word, was, was ^ (u64)(s.tag ^ now) << s.shift);
        if (seen == was) return true;
        was = seen;
    }
    // The copy may be on its way back meanwhile. It is in one of the two buckets at any time.
#pragma unroll 1
    for (int i = 0; i < CUCKOO_SEARCHES; i++) {
        u64 *there = w.at(to), *here = w.at(s.bucket);
        if (take_from<C>(there, load_bucket<C>(there), s.tag) || take_from<C>(here, load_bucket<C>(here), s.tag)) break;
        fence_acq_rel();
        pause();
    }
    return false;
}

enum Moved { MADE_WAY, TRY_AGAIN, IN_THE_WAY };

// run moves the tags of a chain of steps, the last first, into the last one's other bucket `to`, last seen as `room`,
// and puts the tag in the first one's slot.
template <class C, int N>
__device__ __forceinline__ Moved run(const Window<C>& w, const Step (&chain)[N], int steps, u32 to,
                                     const Bucket<C>& room, u32 tag) {
#pragma unroll 1
    for (int i = 0; i < steps; i++) mark<C>(w.at(chain[i].bucket), chain[i].tag);
    if (!put_in<C>(w.at(to), room, chain[steps - 1].tag)) return TRY_AGAIN;
#pragma unroll 1
    for (int i = steps - 1; i >= 0; i--) {
        if (!leave<C>(w, chain[i], to, i ? chain[i - 1].tag : tag)) return TRY_AGAIN;
        to = chain[i].bucket;
    }
    return MADE_WAY;
}

// move_one moves one tag of two full buckets to its other bucket, and puts the tag in its slot.
template <class C> __device__ __forceinline__ Moved move_one(const Window<C>& w, u32 first, u32 second, u32 tag) {
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        u32 bucket = side ? second : first;
#pragma unroll 1
        for (int i = 0; i < C::WORDS; i++) {
            u64 word = load_relaxed(w.at(bucket) + i);
#pragma unroll 1
            for (int s = 0; s < Shape<C>::slots_in(i); s++) {
                Step x[1] = {{bucket, (u32)i, (u32)(s * C::TAG), (u32)(word >> s * C::TAG) & Shape<C>::TAGS}};
                if (!x[0].tag) return TRY_AGAIN; // there is room now
                u32 to = w.other(bucket, x[0].tag);
                Bucket<C> there = load_bucket<C>(w.at(to));
                if (there.has_room()) return run<C>(w, x, 1, to, there, tag);
            }
        }
    }
    return IN_THE_WAY;
}

// move_chain looks for a bucket with room along chains of tags, each in the other bucket of the one before, and moves
// those of the first chain that ends in one.
template <class C> __device__ __forceinline__ Moved move_chain(const Window<C>& w, u32 first, u32 second, u32 tag) {
    u32 random = fmix32(tag << 16 ^ first);
    Step chain[CUCKOO_CHAIN];
#pragma unroll 1
    for (int look = 0; look < CUCKOO_LOOKS;) {
        u32 bucket = random & 1 ? second : first;
#pragma unroll 1
        for (int n = 0; n < CUCKOO_CHAIN; n++, look++) {
            random = random * 1664525 + 1013904223;
            u32 i = C::WORDS == 1 ? 0 : (random >> 30) % C::WORDS;
            u32 s = (random >> 14 & 0xffff) * (u32)Shape<C>::slots_in((int)i) >> 16;
            u32 moving = (u32)(load_relaxed(w.at(bucket) + i) >> s * C::TAG) & Shape<C>::TAGS;
            if (!moving) return TRY_AGAIN;
            chain[n] = Step{bucket, i, s * C::TAG, moving};
            bucket = w.other(bucket, moving);
            Bucket<C> there = load_bucket<C>(w.at(bucket));
            if (there.has_room()) return run<C>(w, chain, n + 1, bucket, there, tag);
        }
        random = fmix32(random);
    }
    return IN_THE_WAY;
}

// insert_second puts a tag into its second bucket, if that has room: the first, which its key names, was full.
template <class C> __device__ __forceinline__ bool insert_second(const Window<C>& w, u32 first, u32 tag) {
    u64* away = w.at(w.other(first, tag));
    mark<C>(w.at(first), tag);
    return put_in<C>(away, load_bucket<C>(away), tag);
}

// insert_moving puts a tag into one of its two buckets, which were full, and moves others for that.
template <class C> __device__ __forceinline__ bool insert_moving(const Window<C>& w, u32 first, u32 tag) {
    u32 second = w.other(first, tag);
    u64 *home = w.at(first), *away = w.at(second);
#pragma unroll 1
    for (int i = 0; i < CUCKOO_TRIES; i++) {
        Moved x = move_one<C>(w, first, second, tag);
        if (x == IN_THE_WAY) x = move_chain<C>(w, first, second, tag);
        if (x != TRY_AGAIN) return x == MADE_WAY;
        if (put_in<C>(home, load_bucket<C>(home), tag) || put_in<C>(away, load_bucket<C>(away), tag)) return true;
        pause();
    }
    return false;
}

// insert_tag puts a tag into one of its two buckets, of which `first` is the one that its key names; false if there is
// no room. No other tag is lost, whatever comes of it.
template <class C> __device__ __forceinline__ bool insert_tag(const Window<C>& w, u32 first, u32 tag) {
    u64* home = w.at(first);
    return put_in<C>(home, load_bucket<C>(home), tag) || insert_second<C>(w, first, tag) ||
           insert_moving<C>(w, first, tag);
}

// insert puts a key in; false if there is no room. contains tells whether it may be in. erase takes it out once; false
// if it is not in. Lanes may insert beside others that insert, and erase beside others that erase, and contains may run
// beside either. Inserts and erases may not run beside one another.
template <class C> __device__ __forceinline__ bool insert(const Table& t, typename C::key k) {
    Place<C> p(t, k);
    return insert_tag<C>(p.window, p.bucket, p.tag);
}
template <class C> __device__ __forceinline__ bool contains(const Table& t, typename C::key k) {
    Place<C> p(t, k);
#pragma unroll 1
    for (int i = 0; i < CUCKOO_SEARCHES; i++) {
        u32 version = load_acquire(p.window.version);
        if (load_bucket<C>(p.first()).has(p.tag)) return true;
        fence_acq_rel(); // whoever took the tag out marked the bucket before, and copied the tag
        if (!(load_relaxed(p.first() + Shape<C>::mark_word(p.tag)) & Shape<C>::mark_bit(p.tag))) return false;
        if (load_bucket<C>(p.second()).has(p.tag)) return true;
        fence_acq_rel(); // whoever brought the tag back counted the version up before
        if (load_relaxed(p.window.version) == version) return false;
        pause();
    }
    return true; // which a filter may say
}
template <class C> __device__ __forceinline__ bool erase_at(const Place<C>& p) {
    Bucket<C> home = load_bucket<C>(p.first());
    if (take_from<C>(p.first(), home, p.tag)) return true;
    return home.marked(p.tag) && take_from<C>(p.second(), load_bucket<C>(p.second()), p.tag);
}
template <class C> __device__ __forceinline__ bool erase(const Table& t, typename C::key k) {
    return erase_at<C>(Place<C>(t, k));
}

} // namespace cuckoo
