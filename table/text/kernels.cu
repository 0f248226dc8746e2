// The bulk operations of a text.Map: see doc.go for the records. A lane has a key; the bytes of a long one are hashed, compared and copied by all lanes of
// its warp together. So all lanes of a warp stay until the last item, and go through every loop together; on the CPU device each goes alone.
#include "layout.h"
#include "items.cuh"

using namespace text;

constexpr bool TOGETHER = TEXT_TOGETHER;
constexpr u64 UNIT = TEXT_UNIT, HEAD = TEXT_HEAD, BLOCK = TEXT_BLOCK;
constexpr u32 FREE = ~0u, OLD = ~0u; // of a slot; of rep: the key is in already
typedef bits_of<TEXT_VALUE_BYTES>::type value;
typedef tile<32, true> Warp;
typedef tile<TOGETHER ? 32 : 1, true> Lanes; // those that take an item each: lanes that work alone take a stretch of the batch each

// any tells whether to go through a loop once more.
__device__ __forceinline__ bool any(bool x) {
    if constexpr (TOGETHER) return Warp().any(x);
    else return x;
}

struct Key {
    u64 at, len;
};
__device__ __forceinline__ Key key_of(const params& p, u64 i) {
    if (p.wide) {
        const u64* o = at<u64>(p.offsets) + i;
        return Key{p.bytes + load_readonly(o), load_readonly(o + 1) - load_readonly(o)};
    }
    const u32* o = at<u32>(p.offsets) + i;
    return Key{p.bytes + load_readonly(o), load_readonly(o + 1) - load_readonly(o)};
}

#if defined(WARPMAP_HOST)
template <class T> inline T unaligned(u64 address) {
    T x;
    __builtin_memcpy(&x, (const void*)address, sizeof x);
    return x;
}
// tail_of is the last len % 8 bytes of a key, without a jump for each of them.
inline u64 tail_of(u64 address, u64 len) {
    if (len >= 8) return len & 7 ? unaligned<u64>(address + len - 8) >> (64 - 8 * (len & 7)) : 0;
    if (len >= 4) return unaligned<u32>(address) | (u64)unaligned<u32>(address + len - 4) << 8 * (len - 4);
    return len ? unaligned<u8>(address) | (u64)unaligned<u8>(address + len / 2) << 8 * (len / 2) | (u64)unaligned<u8>(address + len - 1) << 8 * (len - 1) : 0;
}
#endif

// word_at is 8 bytes from any address on, of which `left` are the key's, 1 or more; those behind are 0. It reads whole words that have a byte of the key.
__device__ __forceinline__ u64 word_at(u64 address, u64 left) {
#if defined(WARPMAP_HOST) // reads words wherever they lie
    if (left >= 8) return unaligned<u64>(address);
#endif
    u64 over = address & 7, w = load_readonly(at<u64>(address - over)) >> (8 * over);
    if (over && left > 8 - over) w |= load_readonly(at<u64>(address - over + 8)) << (64 - 8 * over);
    return left < 8 ? w & ((1ull << 8 * left) - 1) : w;
}

// SipHash-1-3 (Aumasson, Bernstein 2012): who does not know the seed cannot choose keys that collide.
// W is a word of a key, or the words of several keys.
template <class W> struct SipOf {
    W a, b, c, d;
    __device__ __forceinline__ SipOf(u64 k0, u64 k1)
        : a(W{} + (k0 ^ 0x736f6d6570736575ull)), b(W{} + (k1 ^ 0x646f72616e646f6dull)), c(W{} + (k0 ^ 0x6c7967656e657261ull)),
          d(W{} + (k1 ^ 0x7465646279746573ull)) {}
    static __device__ __forceinline__ W turn(W x, int by) { return x << by | x >> (64 - by); }
    __device__ __forceinline__ void round() {
        a += b;
        b = turn(b, 13) ^ a;
        a = turn(a, 32);
        c += d;
        d = turn(d, 16) ^ c;
        a += d;
        d = turn(d, 21) ^ a;
        c += b;
        b = turn(b, 17) ^ c;
        c = turn(c, 32);
    }
    __device__ __forceinline__ void word(W m) {
        d ^= m;
        round();
        a ^= m;
    }
    __device__ __forceinline__ W end() {
        c ^= 0xffull;
        round();
        round();
        round();
        return a ^ b ^ c ^ d;
    }
};
struct Sip : SipOf<u64> {
    __device__ __forceinline__ Sip(u64 k0, u64 k1) : SipOf<u64>(k0, k1) {}
    // The bytes, and their number in the last word.
    __device__ __forceinline__ u64 of(u64 address, u64 len) {
        u64 o = 0;
        for (; o + 8 <= len; o += 8) word(word_at(address + o, len - o));
#if defined(WARPMAP_HOST)
        word(tail_of(address, len) | len << 56);
#else
        word((o < len ? word_at(address + o, len - o) : 0) | len << 56);
#endif
        return end();
    }
};

// A longer key is the sum of its blocks' hashes, each with its number, and its length.
__device__ __forceinline__ u64 block_hash(const params& p, Key k, u64 block) {
    Sip s(~p.seed[0], p.seed[1]);
    s.word(block);
    u64 first = block * BLOCK;
    return s.of(k.at + first, k.len - first < BLOCK ? k.len - first : BLOCK);
}
__device__ __forceinline__ u64 long_hash(const params& p, u64 sum, u64 len) {
    Sip s(p.seed[0], ~p.seed[1]);
    s.word(sum);
    s.word(len);
    return s.end();
}

__device__ __forceinline__ u64 hash_of(const params& p, Key k) {
    u64 h = 0, blocks = (k.len + BLOCK - 1) / BLOCK;
    if (blocks <= 1) h = Sip(p.seed[0], p.seed[1]).of(k.at, k.len);
    if constexpr (!TOGETHER) {
        if (blocks > 1) {
            u64 sum = 0;
            for (u64 b = 0; b < blocks; b++) sum += block_hash(p, k, b);
            h = long_hash(p, sum, k.len);
        }
    } else {
        Warp warp;
        for (u32 longs = warp.ballot(blocks > 1); longs; longs &= longs - 1) {
            int from = lowest_bit(longs);
            Key one{warp.shuffle(k.at, from), warp.shuffle(k.len, from)};
            u64 sum = 0;
            for (u64 b = (u64)warp.rank(); b < (one.len + BLOCK - 1) / BLOCK; b += 32) sum += block_hash(p, one, b);
            sum = warp.sum(sum);
            if (warp.rank() == from) h = long_hash(p, sum, one.len);
        }
    }
    return h & p.mask;
}

#if defined(WARPMAP_HOST)
inline bool same_alone(u64 a, u64 b, u64 len) {
    if (len > 32) return __builtin_memcmp((const void*)a, (const void*)b, len) == 0;
    u64 differ = tail_of(a, len) ^ tail_of(b, len);
    for (u64 o = 0; o + 8 <= len; o += 8) differ |= unaligned<u64>(a + o) ^ unaligned<u64>(b + o);
    return !differ;
}
#endif

// same_bytes tells of each lane that asks whether len bytes at two addresses are equal.
__device__ __forceinline__ bool same_bytes(bool ask, u64 a, u64 b, u64 len) {
    bool same = ask, is_long = TOGETHER && ask && len > BLOCK;
#if defined(WARPMAP_HOST)
    if (ask && !is_long) same = same_alone(a, b, len);
#else
    if (ask && !is_long)
        for (u64 o = 0; o < len && same; o += 8) same = word_at(a + o, len - o) == word_at(b + o, len - o);
#endif
    if constexpr (TOGETHER) {
        Warp warp;
        for (u32 longs = warp.ballot(is_long); longs; longs &= longs - 1) {
            int from = lowest_bit(longs);
            u64 x = warp.shuffle(a, from), y = warp.shuffle(b, from), n = warp.shuffle(len, from);
            bool differ = false;
            for (u64 first = 0; first < n && !warp.any(differ); first += 32 * 64) // 8 words of each lane
                for (u64 o = first + 8 * (u64)warp.rank(); o < n && o < first + 32 * 64; o += 32 * 8)
                    differ = differ || word_at(x + o, n - o) != word_at(y + o, n - o);
            bool equal = !warp.any(differ);
            if (warp.rank() == from) same = equal;
        }
    }
    return same;
}

#if defined(WARPMAP_HOST)
template <class T> inline void copy_unaligned(u64 to, u64 from) { __builtin_memcpy((void*)to, (const void*)from, sizeof(T)); }
// The ends are copied first and last, and overlap.
inline void copy_alone(u64 to, u64 from, u64 len) {
    if (len > 64) __builtin_memcpy((void*)to, (const void*)from, len);
    else if (len >= 8) {
        for (u64 o = 0; o + 8 <= len; o += 8) copy_unaligned<u64>(to + o, from + o);
        copy_unaligned<u64>(to + len - 8, from + len - 8);
    } else if (len >= 4) {
        copy_unaligned<u32>(to, from);
        copy_unaligned<u32>(to + len - 4, from + len - 4);
    } else
        for (u64 o = 0; o < len; o++) copy_unaligned<u8>(to + o, from + o);
}
#endif

// copy_bytes copies len bytes for each lane that wants it. Lanes that work together do so to an address that is a multiple of 8, and write 0 up to the next.
__device__ __forceinline__ void copy_bytes(bool want, u64 to, u64 from, u64 len) {
#if defined(WARPMAP_HOST)
    if constexpr (!TOGETHER) {
        if (want) copy_alone(to, from, len);
        return;
    }
#endif
    bool is_long = TOGETHER && want && len > BLOCK;
    if (want && !is_long)
        for (u64 o = 0; o < len; o += 8) *at<u64>(to + o) = word_at(from + o, len - o);
    if constexpr (TOGETHER) {
        Warp warp;
        for (u32 longs = warp.ballot(is_long); longs; longs &= longs - 1) {
            int lane = lowest_bit(longs);
            u64 x = warp.shuffle(to, lane), y = warp.shuffle(from, lane), n = warp.shuffle(len, lane);
            for (u64 o = 8 * (u64)warp.rank(); o < n; o += 32 * 8) *at<u64>(x + o) = word_at(y + o, n - o);
        }
        warp.sync();
    }
}

// A record's head: the place of the next with the same hash, or 0; and the key's length.
struct Record {
    u64 next, len;
};
__device__ __forceinline__ Record* record_at(u64 arena, u64 place) { return at<Record>(arena + place); }
__device__ __forceinline__ value* value_at(u64 arena, u64 place) { return at<value>(arena + place + sizeof(Record)); }
__device__ __forceinline__ u64 record_bytes(u64 len) { return (HEAD + len + UNIT - 1) / UNIT * UNIT; }
__device__ __forceinline__ u32* start_word(u64 starts, u64 place) { return at<u32>(starts) + place / UNIT / 32; }
__device__ __forceinline__ u32 start_bit(u64 place) { return 1u << (place / UNIT & 31); }

// place_of is the place of a lane's key, or 0, by the place where the records of its hash begin, or 0.
__device__ __forceinline__ u64 place_of(const params& p, u64 head, Key k) {
    u64 place = head;
    for (bool found = false; any(place && !found);) {
        bool looks = place && !found;
        u128 r{};
        if (looks) r = load_readonly(at<u128>(p.arena + place));
        bool same = same_bytes(looks && r.hi == k.len, k.at, p.arena + place + HEAD, k.len);
        if (same) found = true;
        else if (looks) place = r.lo;
    }
    return place;
}

// head_of is where the records of position i's hash begin. Lanes that work alone ask for the records of items to come.
__device__ __forceinline__ u64 head_of(const params& p, u64 i) {
    if (i >= p.n) return 0;
#if defined(WARPMAP_HOST)
    if (u64 j = i + AHEAD; j < p.n)
        if (u64 later = at<u64>(p.heads)[j]; later) {
            prefetch_line(p.arena + later);
            prefetch_line(p.arena + later + HEAD - 1 + key_of(p, j).len);
        }
#endif
    return load_readonly(at<u64>(p.heads) + i);
}

__device__ __forceinline__ counts* counters(const params& p) { return at<counts>(p.counters); }
__device__ __forceinline__ Key input(const params& p, u64 i) { return i < p.n ? key_of(p, i) : Key{0, 0}; }

// Counts offsets that do not ascend, or lead beyond the bytes.
WARPMAP_KERNEL(check, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n) {
        Key k = input(p, i);
        bool bad = i < p.n && (k.at - p.bytes > p.limit || k.len > p.limit - (k.at - p.bytes));
        count_into(&counters(p)->bad, bad);
    }
}

__device__ __forceinline__ void hash_one(const params& p, u64 i) {
    u64 h = hash_of(p, input(p, i));
    if (i < p.n) at<u64>(p.hashes)[i] = h;
}

#if defined(WARPMAP_HOST) && WARPMAP_VECTOR >= 32
// hash_some hashes as many keys as a vector has words, if they have about the same length.
constexpr u64 SOME = WARPMAP_VECTOR / 8;
inline bool hash_some(const params& p, u64 i) {
    typedef u64 words __attribute__((vector_size(WARPMAP_VECTOR)));
    Key k[SOME];
    u64 differ = 0;
    for (u64 j = 0; j < SOME; j++) {
        k[j] = key_of(p, i + j);
        differ |= k[j].len ^ k[0].len;
    }
    u64 len = k[0].len;
    if (differ / 8 || len >= BLOCK) return false;
    SipOf<words> s(p.seed[0], p.seed[1]);
    words m{};
    for (u64 o = 0; o + 8 <= len; o += 8) {
        for (u64 j = 0; j < SOME; j++) m[j] = unaligned<u64>(k[j].at + o);
        s.word(m);
    }
    for (u64 j = 0; j < SOME; j++) m[j] = tail_of(k[j].at, k[j].len) | k[j].len << 56;
    s.word(m);
    m = s.end() & p.mask;
    __builtin_memcpy(at<u64>(p.hashes) + i, &m, sizeof m);
    return true;
}
#endif

WARPMAP_KERNEL(hash, params) {
#if defined(WARPMAP_HOST) && WARPMAP_VECTOR >= 32
    if constexpr (!TOGETHER) {
        for (Stretch s = items_by<Lanes>(p.n); s.start < s.n;) {
            u64 some = s.stride == 1 && s.n - s.start >= SOME ? SOME : 1;
            if (some == 1 || !hash_some(p, s.start))
                for (u64 j = 0; j < some; j++) hash_one(p, s.start + j);
            s.start += some * s.stride;
        }
        return;
    }
#endif
    FOR_EACH_ITEM_BY(Lanes, i, p.n) hash_one(p, i);
}

WARPMAP_KERNEL(find, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n) {
        bool in = i < p.n;
        u64 place = place_of(p, head_of(p, i), input(p, i));
        if (!in) continue;
        if (p.flags) at<u8>(p.flags)[i] = place != 0;
        if (p.values) at<value>(p.values)[i] = place ? load_readonly(value_at(p.arena, place)) : value{};
    }
}

// The keys of a batch that are in get their values; of the others one position for each distinct key is listed. reps says of each which: OLD for those that
// are in. They are told apart by slots, of which there are twice as many as keys.
WARPMAP_KERNEL(match, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n) {
        bool in = i < p.n;
        Key k = input(p, i);
        u64 h = in ? load_readonly(at<u64>(p.hashes) + i) : 0, place = place_of(p, head_of(p, i), k);
        if (place && p.replace) store_relaxed(value_at(p.arena, place), load_readonly(at<value>(p.values) + i));
        bool busy = in && !place, listed = false;
        u32 rep = OLD;
        for (u64 slot = fmix64(h) & p.slot_mask; any(busy); slot = (slot + 1) & p.slot_mask) {
            Key other{0, 0};
            bool ask = false;
            if (busy) {
                u32* s = at<u32>(p.slots) + slot;
                rep = load_relaxed(s);
                if (rep == FREE && (rep = cas(s, FREE, (u32)i)) == FREE) {
                    rep = (u32)i;
                    listed = true;
                    busy = false;
                } else if (ask = load_readonly(at<u64>(p.hashes) + rep) == h; ask) {
                    other = key_of(p, rep);
                    ask = other.len == k.len;
                }
            }
            if (same_bytes(ask, k.at, other.at, k.len)) busy = false;
        }
        u64 to = append(&counters(p)->fresh, listed);
        if (listed) at<u32>(p.list)[to] = (u32)i;
        count_into(&counters(p)->bytes, listed ? record_bytes(k.len) : 0);
        if (!in) continue;
        at<u32>(p.reps)[i] = rep;
        at<u8>(p.fates)[i] = 0;
        if (p.flags) at<u8>(p.flags)[i] = 0;
    }
}

// claim takes room in an arena; 0 where there is none. With sure there is.
__device__ __forceinline__ u64 claim(const params& p, u64* used, bool want, u64 size) {
    if (p.sure) {
        if constexpr (TOGETHER) {
            Warp warp;
            u64 all, before = warp.scan(want ? size : 0, all), first = 0;
            if (warp.rank() == 0 && all) first = add(used, all);
            return warp.shuffle(first, 0) + before;
        }
        return want ? add(used, size) : 0;
    }
    if (want)
        for (u64 u = load_relaxed(used), was; u + size <= p.capacity; u = was) {
            was = cas(used, u, u + size);
            if (was == u) return u;
        }
    return 0;
}

// The records of the listed keys are written; nobody sees them yet.
WARPMAP_KERNEL(place, params) {
    FOR_EACH_ITEM_BY(Lanes, w, p.listed) {
        bool in = w < p.listed;
        u32 i = in ? load_readonly(at<u32>(p.list) + w) : 0;
        Key k = in ? key_of(p, i) : Key{0, 0};
        u64 place = claim(p, &counters(p)->used, in, record_bytes(k.len));
        bool placed = in && place;
        if (placed) {
            if constexpr (!TOGETHER) *at<u128>(p.arena + place + record_bytes(k.len) - UNIT) = u128{0, 0}; // of which the key leaves some
            *at<u128>(p.arena + place) = u128{0, k.len};
            *value_at(p.arena, place) = load_readonly(at<value>(p.values) + i);
            or_of(start_word(p.starts, place), start_bit(place));
        }
        copy_bytes(placed, p.arena + place + HEAD, k.at, k.len);
        u64 to = append(&counters(p)->placed, placed);
        if (placed) {
            at<u64>(p.new_hashes)[to] = load_readonly(at<u64>(p.hashes) + i);
            at<u64>(p.new_places)[to] = place;
            at<u32>(p.origins)[to] = i;
        }
        bool refused = in && !place;
        if (refused) at<u8>(p.fates)[i] = 1;
        count_into(&counters(p)->refused, refused);
    }
}

__device__ __forceinline__ void settle_in(const params& p, u64 w, bool in) {
    if (in && p.flags) at<u8>(p.flags)[load_readonly(at<u32>(p.origins) + w)] = 1;
    count_into(&counters(p)->live, in);
    count_into(&counters(p)->linked, in);
}

// Counts the records that the index has taken.
WARPMAP_KERNEL(tally, params) {
    FOR_EACH_ITEM_BY(Lanes, w, p.placed) settle_in(p, w, w < p.placed && load_readonly(at<u8>(p.added) + w));
}

// The records that the index has not taken go behind the first of their hash; where there is none, for the index is full, they are dropped.
WARPMAP_KERNEL(chain, params) {
    FOR_EACH_ITEM_BY(Lanes, w, p.placed) {
        bool in = w < p.placed && !load_readonly(at<u8>(p.added) + w);
        u64 head = in ? load_readonly(at<u64>(p.heads) + w) : 0, place = in ? load_readonly(at<u64>(p.new_places) + w) : 0;
        if (head) {
            u64* first = &record_at(p.arena, head)->next;
            for (u64 next = load_relaxed(first), was;; next = was) {
                record_at(p.arena, place)->next = next;
                fence();
                was = cas(first, next, place);
                if (was == next) break;
            }
        }
        bool lost = in && !head;
        if (lost) {
            and_of(start_word(p.starts, place), ~start_bit(place));
            at<u8>(p.fates)[load_readonly(at<u32>(p.origins) + w)] = 1;
        }
        count_into(&counters(p)->garbage, lost ? record_bytes(record_at(p.arena, place)->len) : 0);
        count_into(&counters(p)->refused, lost);
        settle_in(p, w, in && !lost);
    }
}

// Lists the positions whose keys found no room.
WARPMAP_KERNEL(refuse, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n) {
        u32 rep = i < p.n ? load_readonly(at<u32>(p.reps) + i) : OLD;
        bool refused = rep != OLD && load_readonly(at<u8>(p.fates) + rep);
        u64 to = append(&counters(p)->named, refused);
        if (refused) at<u32>(p.list)[to] = (u32)i;
    }
}

WARPMAP_KERNEL(unflag, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n)
        if (i < p.n) at<u8>(p.flags)[i] = 0;
}

// Takes keys out: of equal ones the position whose lane clears the bit. The records stay in their chains until unchain.
WARPMAP_KERNEL(strike, params) {
    FOR_EACH_ITEM_BY(Lanes, i, p.n) {
        bool in = i < p.n;
        Key k = input(p, i);
        u64 head = head_of(p, i), place = place_of(p, head, k);
        bool mine = place && (and_of(start_word(p.starts, place), ~start_bit(place)) & start_bit(place));
        u64 to = append(&counters(p)->placed, mine);
        if (mine) {
            at<u64>(p.new_hashes)[to] = load_readonly(at<u64>(p.hashes) + i);
            at<u64>(p.new_places)[to] = place;
            at<u32>(p.list)[to] = (u32)i;
        }
        count_into(&counters(p)->chained, mine && (head != place || record_at(p.arena, place)->next));
        count_into(&counters(p)->garbage, mine ? record_bytes(k.len) : 0);
        if (in && p.flags) at<u8>(p.flags)[i] = mine;
    }
}

__device__ __forceinline__ bool is_live(const params& p, u64 place) { return load_relaxed(start_word(p.starts, place)) & start_bit(place); }

// Of each chain with records that are struck out, the first of these is the owner. Chains are short: only equal hashes make them.
WARPMAP_KERNEL(own, params) {
    FOR_EACH_ITEM_BY(Lanes, w, p.placed) {
        if (w >= p.placed) continue;
        u64 place = at<u64>(p.heads)[at<u32>(p.list)[w]];
        while (is_live(p, place)) place = record_at(p.arena, place)->next;
        at<u8>(p.added)[w] = place == at<u64>(p.new_places)[w];
    }
}

// The owner makes a chain of the records that are left. The index is then to drop the hash, or to have another first.
WARPMAP_KERNEL(unchain, params) {
    FOR_EACH_ITEM_BY(Lanes, w, p.placed) {
        bool owner = w < p.placed && at<u8>(p.added)[w];
        u64 head = owner ? at<u64>(p.heads)[at<u32>(p.list)[w]] : 0, first = 0, last = 0;
        for (u64 place = head; place; place = record_at(p.arena, place)->next) {
            if (!is_live(p, place)) continue;
            if (!first) first = place;
            if (last) record_at(p.arena, last)->next = place;
            last = place;
        }
        if (last) record_at(p.arena, last)->next = 0;
        u64 h = owner ? at<u64>(p.new_hashes)[w] : 0;
        u64 gone = append(&counters(p)->gone, owner && !first), moved = append(&counters(p)->moved, owner && first && first != head);
        if (owner && !first) at<u64>(p.gone_hashes)[gone] = h;
        if (owner && first && first != head) {
            at<u64>(p.moved_hashes)[moved] = h;
            at<u64>(p.moved_places)[moved] = first;
        }
    }
}

// The records that a word of the bitmap names, from word `first` on, one after the other: all lanes of a warp come along.
template <class Do> __device__ __forceinline__ void each_record(u64 starts, u64 first, u64 words, Do act) {
    FOR_EACH_ITEM_BY(Lanes, w, words) {
        u32 bits = w < words ? load_relaxed(at<u32>(starts) + first + w) : 0;
        while (any(bits)) {
            act(bits != 0, bits ? ((first + w) * 32 + (u64)lowest_bit(bits)) * UNIT : 0);
            bits &= bits - 1;
        }
    }
}

// Moves all records to another arena. What is left of one in the old is where it went, in the place of its length.
WARPMAP_KERNEL(move, params) {
    each_record(p.starts, 0, p.words, [&](bool in, u64 from) {
        u64 size = in ? record_bytes(record_at(p.arena, from)->len) : 0, to = claim(p, &counters(p)->used, in, size);
        copy_bytes(in, p.other + to, p.arena + from, size);
        if (!in) return;
        or_of(start_word(p.other_starts, to), start_bit(to));
        record_at(p.arena, from)->len = to;
    });
}

// Chains lead on in the other arena. In the old bitmap those records are left that are first in their chains.
WARPMAP_KERNEL(relink, params) {
    each_record(p.other_starts, 0, p.words, [&](bool in, u64 place) {
        u64 next = in ? record_at(p.other, place)->next : 0;
        if (!next) return;
        and_of(start_word(p.starts, next), ~start_bit(next));
        record_at(p.other, place)->next = record_at(p.arena, next)->len;
    });
}

// Lists the hashes and the new places of these.
WARPMAP_KERNEL(gather, params) {
    each_record(p.starts, p.first, p.words, [&](bool in, u64 from) {
        u64 place = in ? record_at(p.arena, from)->len : 0;
        u64 h = hash_of(p, in ? Key{p.other + place + HEAD, record_at(p.other, place)->len} : Key{0, 0});
        u64 to = append(&counters(p)->placed, in);
        if (!in) return;
        at<u64>(p.new_hashes)[to] = h;
        at<u64>(p.new_places)[to] = place;
    });
}
