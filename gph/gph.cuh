// GPH's perfect hashing on the device: where a key belongs, and the one bucket that a look-up reads. A kernel of your own
// includes this file, takes a gph::Table by value, and calls find with a tile of any size; see doc.go.
//
// C is the struct that says what the table holds, `config` in a program of Map.Program. k and v are the bits of a key and a value.
#pragma once
#include "layout.h"
#include "lock.cuh"
#include "outcome.cuh"
#include "slots.cuh"
#include "warpmap.cuh"

namespace gph {

__device__ __forceinline__ Counters* counters(const Table& t) { return at<Counters>(t.counters); }

// Home is what a key's hash says: the half that names its cell (the paper's H_c) and its stretch, and that which chooses among the cell's
// virtual buckets.
template <class C> struct Home {
    typedef typename C::key key;
    key stored; // the key, or for a reserved one its alias in the side bucket
    bool side;
    u32 high, bits;

    __device__ __forceinline__ Home() {}
    __device__ __forceinline__ Home(const Table& t, key k) {
        side = C::marks(k);
        stored = C::alias(k, side);
        u64 h = hash64<C::HASH>(stored, t.seed);
        high = (u32)(h >> 32);
        bits = (u32)h;
    }
    // Functions, because a kernel that looks ahead keeps many of these, and has few registers. The stretch is that of the cell.
    __device__ __forceinline__ u32 cell(const Table& t) const { return (u32)((u64)high * t.cell_count >> 32); }
    __device__ __forceinline__ u32 stretch(const Table& t) const { return (u32)((u64)high * t.stretches >> 32); }
};

// virtual_bucket is the paper's H_v: the virtual bucket, 0 … R-1, of a key under a mapping.
template <class C> __device__ __forceinline__ u32 virtual_bucket(u32 bits, u32 mapping) {
    return (bits ^ mapping * GPH_MIX_MAPPING) * GPH_MIX_BITS >> (32 - C::LOG_VIRTUAL);
}

// Ring is the R neighbouring buckets that a cell's virtual buckets fall into under a mapping; the last bucket of a stretch
// is followed by its first, and so is the reserve's.
struct Ring {
    u64 first, end, count; // count: of the stretch's buckets, or the reserve's, of which `end` is behind the last
    __device__ __forceinline__ u64 bucket(u32 v) const {
        u64 b = first + v;
        return b >= end ? b - count : b;
    }
};
// in_reserve tells whether a mapping names the reserve: the last does.
template <class C> __device__ __forceinline__ bool in_reserve(const Table& t, u32 mapping) { return mapping == C::MAPPINGS - 1 && t.reserve; }

// ring_of is, with Ring::bucket, the paper's H_b. The rings of a cell lie in the cell's stretch, so that cells in a row use
// memory in a row; that of the last mapping lies in the reserve.
template <class C> __device__ __forceinline__ Ring ring_of(const Table& t, u32 cell, u32 stretch, u32 mapping) {
    u32 h = fmix32(cell ^ mapping * GPH_MIX_RING ^ (u32)t.seed);
    bool reserve = in_reserve<C>(t, mapping);
    u64 base = reserve ? t.main : (u64)stretch * t.stretch_buckets;
    Ring r;
    r.count = reserve ? t.reserve : t.stretch_buckets;
    r.end = base + r.count;
    r.first = base + ((u64)h * (u32)r.count >> 32);
    return r;
}

template <class C> __device__ __forceinline__ typename C::cell* cell_at(const Table& t, u32 cell) { return at<typename C::cell>(t.cells) + cell; }

// A cell's code is mapping · R + offset.
template <class C> __device__ __forceinline__ u64 bucket_of(const Table& t, const Home<C>& h, u32 code) {
    u32 mapping = code >> C::LOG_VIRTUAL, offset = code & (C::VIRTUAL - 1);
    Ring r = ring_of<C>(t, h.cell(t), h.stretch(t), mapping);
    u64 b = r.bucket((virtual_bucket<C>(h.bits, mapping) + offset) & (C::VIRTUAL - 1));
    return h.side ? t.main + t.reserve : b;
}

// ask_cell asks for a key's cell, and ask_bucket, later, for the bucket that it names.
template <class C> __device__ __forceinline__ void ask_cell(const Table& t, typename C::key k) { prefetch_line((u64)cell_at<C>(t, Home<C>(t, k).cell(t))); }
template <class C> __device__ __forceinline__ void ask_bucket(const Table& t, typename C::key k) {
    constexpr u64 BYTES = C::BUCKET * C::SLOT_BYTES;
    Home<C> h(t, k);
    u64 address = t.buckets + bucket_of<C>(t, h, load_kept(cell_at<C>(t, h.cell(t)))) * BYTES;
    for (u64 at = 0; at < BYTES; at += 64) prefetch_line(address + at);
}

// What a look-up finds. place is the pair's index among all slots; with VALUE_SEEN word holds the value.
template <class C> struct Hit {
    bool found;
    u64 place;
    u32 free; // the first empty slot of the bucket; ~0: none
    bool wait; // the key is not there, but a slot is being written: it may become ours
    typename Access<C>::word word;
};

// read_bucket reads the bucket that each active lane names, with the tile, and looks for the lane's key: up to four loads
// of the tile are under way before the first is looked at (the paper's Bucket Requester, §5.2). PLACE: where the pair
// stands is wanted; FREE: so is the first empty slot.
template <class C, bool PLACE, bool FREE, class Tile>
__device__ __forceinline__ void read_bucket(const Table& t, Tile g, bool active, u64 bucket, typename C::key stored, Hit<C>& hit) {
    typedef Access<C> A;
    constexpr int G = Tile::LANES, IN_FLIGHT = G < 4 ? G : 4;
    typedef View<C, G, C::BUCKET> V;
    u64 address = t.buckets + bucket * (C::BUCKET * C::SLOT_BYTES);
    hit.found = false;
    hit.free = ~0u;
    hit.wait = false;
    hit.place = 0;
    hit.word = typename A::word{};
    u32 pending = g.ballot(active);
#pragma unroll
    for (int first = 0; first < G; first += IN_FLIGHT) {
        if (!Tile::together && !(pending >> first & (1u << IN_FLIGHT) - 1)) continue;
        V s[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) s[j].load(pending >> (first + j) & 1, g.shuffle(address, first + j), g.rank());
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            bool on = (pending >> (first + j) & 1) && V::holds(g.rank()), mine = g.rank() == first + j;
            u32 match = s[j].matches(g.shuffle(stored, first + j));
            if (!on) match = 0;
            u32 who = g.ballot(match != 0);
            int i = lowest_bit(match | 1u << 31), holder = lowest_bit(who | 1u << 31) & G - 1;
            u32 slot = 0, free = ~0u;
            typename A::word word{};
            if constexpr (PLACE) slot = g.shuffle(V::slot(i, g.rank()), holder);
            if constexpr (C::PACKED) word = g.shuffle(s[j].pick(i), holder);
            bool wait = false;
            if constexpr (FREE) {
                free = g.min_of(on ? s[j].first_free(0, false, g.rank()) : ~0u);
                if constexpr (!C::PACKED) wait = g.any(on && s[j].matches(C::BUSY));
            }
            if (mine && active) {
                hit.found = who != 0;
                hit.place = bucket * C::BUCKET + (who ? slot : 0);
                hit.free = free == ~0u ? free : free >> 1;
                hit.word = word;
                hit.wait = wait && !who;
            }
        }
    }
}

template <class C> __device__ __forceinline__ typename C::value value_of(const Table& t, const Hit<C>& hit) {
    return Access<C>::load_value(t.buckets, 0, hit.place, hit.word);
}

// find gives every lane of the tile whether the key that they all bring is there, and its value. It reads one cell and one
// bucket. It may run beside other look-ups, and not beside inserts or deletions.
template <class C, class Tile> __device__ bool find(const Table& t, Tile g, typename C::key k, typename C::value& v) {
    Home<C> h(t, k);
    Hit<C> hit;
    read_bucket<C, !C::PACKED, false>(t, g, g.rank() == 0, bucket_of<C>(t, h, load_kept(cell_at<C>(t, h.cell(t)))), h.stored, hit);
    typename C::value mine{};
    if (hit.found) mine = value_of<C>(t, hit);
    v = g.shuffle(mine, 0);
    return g.shuffle((u32)hit.found, 0);
}

// Fit is what is compared to choose an offset: of each virtual bucket the pairs that belong there, of each bucket of the ring
// the empty slots; a byte each, so that four are compared at once. The empty slots go round: those of the first buckets come again
// behind the last.
template <class C> struct alignas(16) Fit {
    static constexpr u32 WORDS = (C::VIRTUAL + 3) / 4, ROUND = 4 * WORDS + C::VIRTUAL;
    u32 need[WORDS];
    u32 free[(ROUND + 3) / 4];

    __device__ __forceinline__ u32 need_of(u32 v) const { return need[v / 4] >> v % 4 * 8 & 0xff; }
    __device__ __forceinline__ u32 free_of(u32 b) const { return ((const u8*)free)[b]; }
    __device__ __forceinline__ void set_free(u32 b, u32 n) {
#pragma unroll
        for (u32 i = 0; i < ROUND; i += C::VIRTUAL)
            if (i + C::VIRTUAL <= ROUND || b + i < ROUND) ((u8*)free)[b + i] = (u8)n;
    }

    template <class Tile> __device__ __forceinline__ void clear_need(Tile g) {
        for (u32 i = g.rank(); i < WORDS; i += Tile::LANES) need[i] = 0;
    }
    template <class Tile> __device__ __forceinline__ void add_need(Tile, u32 v) {
        u32 one = 1u << v % 4 * 8;
        if constexpr (Tile::LANES == 1) need[v / 4] += one;
        else add(&need[v / 4], one);
    }

    // best compares the R offsets: each lane judges offsets of its own. It gives score · R + offset of the best, the one that
    // leaves the buckets most even; ~0 if the pairs fit under none.
    template <class Tile> __device__ __forceinline__ u32 best(Tile g) const {
        constexpr u32 TOP = 0x80808080u;
        u32 best = ~0u;
#pragma unroll 1
        for (u32 turn = 0; turn < C::VIRTUAL; turn += Tile::LANES) {
            u32 offset = turn + g.rank();
            if (Tile::LANES > C::VIRTUAL && offset >= C::VIRTUAL) break;
            u32 score = 2 * C::BUCKET * (C::CELL_PAIRS + 1), fits = 0, over = 0, low = free[offset / 4];
#pragma unroll
            for (u32 i = 0; i < WORDS; i++) {
                u32 high = free[offset / 4 + i + 1], n = need[i];
                u32 f = (u32)(((u64)high << 32 | low) >> offset % 4 * 8);
                low = high;
                over |= ~((f | TOP) - n) & TOP; // the bytes of n that are larger than those of f
                score = dot4(n, n, score);
                fits = dot4(n, f, fits);
            }
            u32 x = (score - 2 * fits) << C::LOG_VIRTUAL | offset;
            if (!over && x < best) best = x;
        }
        return g.min_of(best);
    }
    // least_missing gives missing slots · R + offset of the offset under which the fewest slots are missing.
    template <class Tile> __device__ __forceinline__ u32 least_missing(Tile g) const {
        u32 least = ~0u;
        for (u32 offset = g.rank(); offset < C::VIRTUAL; offset += Tile::LANES) {
            u32 missing = 0;
            for (u32 v = 0; v < C::VIRTUAL; v++) {
                u32 n = need_of(v), f = free_of(v + offset);
                missing += n > f ? n - f : 0;
            }
            u32 x = missing << C::LOG_VIRTUAL | offset;
            if (x < least) least = x;
        }
        return g.min_of(least);
    }
};

// A cell is moved by the group that holds its lock; locks are shared by cells of equal low bits. Nobody waits for a lock
// while it holds one, so there is no deadlock.
__device__ __forceinline__ u32* lock_of(const Table& t, u32 cell) { return at<u32>(t.locks) + (cell & t.lock_mask); }

// Workspace is what a group notes, in shared memory, of a cell and of the ring under examination. A slot is noted as
// bucket of the ring · M + slot of the bucket.
template <class C> struct Workspace {
    static constexpr u16 NONE = 0xffff;
    u32 bits[C::CELL_PAIRS + 1];  // of the hash of each pair of the cell; the new pair's comes last
    u16 from[C::CELL_PAIRS + 1];  // its slot now, in the present ring
    u16 to[C::CELL_PAIRS + 1];    // and the slot that was claimed for it, in the new one
    Fit<C> fit;
    u32 pairs;
};

// Move is the insertion of a pair whose bucket was full: the paper's Refinement with Extended Move (§6.1, §6.3).
//
// Where the paper locks the R buckets of every ring it examines, by wait-die, a claim here is a compare-and-swap of an
// empty slot: a pair is moved by copying all pairs of its cell to claimed slots, setting the cell, and then emptying the
// old slots. A slot with a pair of the cell is written by none but the holder of the cell's lock; an empty slot belongs to
// whoever swaps it. A claim that fails is undone, and the next mapping is tried.
template <class C, class Tile> struct Move {
    typedef Access<C> A;
    typedef typename C::key key;
    typedef typename C::value value;
    typedef View<C, 1, C::BUCKET> V;
    static constexpr int H = Tile::LANES;
    // Mappings that a move examines, and those among which a displacement chooses: of the many that cells of two bytes have, some.
    static constexpr u32 TRIED = C::MAPPINGS < GPH_TRIED ? C::MAPPINGS : GPH_TRIED, DISPLACED = TRIED < 16 ? TRIED : 16;
    const Table& t;
    Tile g;
    Workspace<C>& w;
    key k; // as stored
    value v;
    Home<C> h;
    Ring old; // of the cell, before the move
    u32 pairs, total; // of the cell in hand, and with the new one
    bool hopeless;    // more pairs than a bucket holds have the new one's cell and bits, so that no mapping parts them
    u64 tried, moved;

    __device__ __forceinline__ Move(const Table& t, Tile g, Workspace<C>& w) : t(t), g(g), w(w), tried(0), moved(0) {}

    // count adds one to a counter of the workspace.
    static __device__ __forceinline__ u32 count(u32* p) {
        if constexpr (H == 1) return (*p)++;
        else return add(p, 1u);
    }

    static __device__ __forceinline__ u64 place(const Ring& r, u16 slot) { return r.bucket(slot / C::BUCKET) * C::BUCKET + slot % C::BUCKET; }

    // run inserts the pair, and displaces up to so many other cells for it. The group holds the lock of the pair's cell.
    template <bool REPLACE> __device__ __forceinline__ Outcome run(key k0, value v0, u32 displacements) {
        h = Home<C>(t, k0);
        k = h.stored;
        v = v0;
        hopeless = false;
        u32 code = load_relaxed(cell_at<C>(t, h.cell(t)));
        for (;;) { // the bucket itself first: the key may have come in, or room
            Hit<C> hit;
            read_bucket<C, true, true>(t, g, g.rank() == 0, bucket_of<C>(t, h, code), k, hit);
            u32 state = hit.found ? 2 : hit.free != ~0u ? 1 : 0;
            if (g.rank() == 0 && state == 2 && REPLACE) A::replace(t.buckets, 0, hit.place, hit.word, k, v);
            if (g.rank() == 0 && state == 1 && A::claim(t.buckets, 0, hit.place + hit.free, false, k, v)) state = 3;
            state = g.shuffle(state, 0);
            if (state == 2) return PRESENT;
            if (state == 3) return ADDED;
            if (state == 0) break;
        }
        if (h.side) return FULL; // cannot be: the side bucket has room for each reserved key
        for (u32 n = 0; n < displacements; n++) {
            if (relocate(h, 1)) return ADDED;
            if (hopeless) return FULL;
            displace(n);
        }
        return relocate(h, 1) ? ADDED : FULL;
    }

    // relocate looks for a mapping and offset under which all pairs of the cell, and the new one if more is 1, fit: offsets
    // first. The group holds the cell's lock.
    __device__ bool relocate(const Home<C>& of, u32 more) {
        u32 cell = of.cell(t);
        u32 mapping = load_relaxed(cell_at<C>(t, cell)) >> C::LOG_VIRTUAL;
        if (!gather(of, mapping, more)) return false;
        for (u32 n = 0; n < TRIED; n++) {
            u32 m = mapping_number(mapping, n);
            Ring r = ring_of<C>(t, cell, of.stretch(t), m);
            if (n > 0) count_free(r); // gather counted those of the present ring
            u32 offset = choose(m, false);
            if (offset == ~0u) continue;
            if (claim(r, m, offset)) {
                publish(cell, (m << C::LOG_VIRTUAL) + offset);
                return true;
            }
        }
        return false;
    }

    // displace moves another cell out of the way of this one, which fits nowhere: it takes the mapping and offset under which
    // the fewest slots are missing, and one of the pairs in a bucket that misses some. Its cell's lock is taken only if it
    // is free, so that nobody waits for a lock while holding one.
    __device__ void displace(u32 turn) {
        u32 present = load_relaxed(cell_at<C>(t, h.cell(t))) >> C::LOG_VIRTUAL;
        if (!gather(h, present, 1)) return;
        u32 least = ~0u, mapping = 0;
        for (u32 n = 0; n < DISPLACED; n++) {
            u32 m = mapping_number(present, n);
            count_free(ring_of<C>(t, h.cell(t), h.stretch(t), m));
            u32 x = choose(m, true);
            if (x >= least) continue;
            least = x;
            mapping = m;
        }
        u32 offset = least & (C::VIRTUAL - 1);
        Ring r = ring_of<C>(t, h.cell(t), h.stretch(t), mapping);
        count_free(r);
        choose(mapping, true); // fills need again
        g.sync();
        u32 b = 0;
        while (b < C::VIRTUAL && w.fit.need_of(b) <= w.fit.free_of(b + offset)) b++;
        if (b == C::VIRTUAL) return;
        u64 slot = r.bucket((b + offset) & (C::VIRTUAL - 1)) * C::BUCKET + (turn * 5 + h.bits) % C::BUCKET;
        key x = A::key_of(load_relaxed(A::word_at(t.buckets, slot)));
        if (g.any(C::marks(x))) return; // lanes may have read it at different moments
        Home<C> other(t, g.shuffle(x, 0));
        u32* lock = lock_of(t, other.cell(t));
        if (!try_lock(g, lock, lock != lock_of(t, h.cell(t)))) return;
        relocate(other, 0);
        unlock(g, lock);
    }

    // The order of mappings: the present one, the others, the reserve.
    __device__ __forceinline__ u32 mapping_number(u32 present, u32 n) const {
        constexpr u32 LAST = C::MAPPINGS - 1;
        if (n == 0) return present;
        if (present == LAST) return n - 1;
        if (n == TRIED - 1) return LAST;
        u32 m = present + n;
        return m >= LAST ? m - LAST : m;
    }

#if defined(WARPMAP_HOST)
    // of_cell tells which slots of a bucket have keys of the cell, or are free: the processor hashes several at once.
    static constexpr bool HASHES_AT_ONCE = AT_ONCE<C, 1, C::BUCKET> && sizeof(typename A::word) == 8 && C::HASH == 0;
    u32 of_cell(const V& s, u32 cell) const {
        u32 all = 0;
        if constexpr (HASHES_AT_ONCE)
            for (int j = 0; j < V::VECTORS; j++) {
                auto at = (seeded64_each(s.v[j] & V::KEY_BITS, t.seed) >> 32) * (u64)t.cell_count >> 32;
                all |= V::Vector::equal(at, ~(u64)0, cell) << j * V::EACH;
            }
        return all;
    }
#endif

    // gather lists the cell's pairs and counts the empty slots of its ring. It tells whether the list had room.
    __device__ __forceinline__ bool gather(const Home<C>& of, u32 mapping, u32 more) {
        u32 cell = of.cell(t);
        if (g.rank() == 0) w.pairs = 0;
        g.sync();
        old = ring_of<C>(t, cell, of.stretch(t), mapping);
        bool same = false;
        for (u32 b = g.rank(); b < C::VIRTUAL; b += H) {
            V s;
            s.load(true, t.buckets + old.bucket(b) * (C::BUCKET * C::SLOT_BYTES), 0);
            u32 free = 0, alike = 0;
#if defined(WARPMAP_HOST)
            u32 empty = s.matches(C::EMPTY), looks = ~empty;
            free = popcount(empty);
            if constexpr (HASHES_AT_ONCE) looks &= of_cell(s, cell);
#endif
#pragma unroll
            for (int i = 0; i < C::BUCKET; i++) {
#if defined(WARPMAP_HOST)
                if (!(looks >> i)) break;
                i += lowest_bit(looks >> i);
                if (i >= (int)C::BUCKET) break;
                key x = A::key_of(s.w[i]);
#else
                key x = A::key_of(s.w[i]);
                if (x == C::EMPTY) free++;
#endif
                if (C::marks(x)) continue; // or being written by another cell's group
                Home<C> o(t, x);
                if (o.cell(t) != cell) continue;
                alike += o.bits == h.bits;
                u32 n = count(&w.pairs);
                if (n >= C::CELL_PAIRS) continue;
                w.bits[n] = o.bits;
                w.from[n] = (u16)(b * C::BUCKET + i);
            }
            w.fit.set_free(b, free);
            same |= alike == C::BUCKET; // pairs of one cell and equal bits are in one bucket, always
        }
        hopeless = more && g.any(same);
        g.sync();
        pairs = w.pairs;
        g.sync(); // before the next count begins, or the new pair is noted
        if (hopeless || pairs > C::CELL_PAIRS) return false;
        if (g.rank() == 0 && more) w.bits[pairs] = h.bits;
        total = pairs + more;
        g.sync();
        return true;
    }

    __device__ __forceinline__ void count_free(const Ring& r) {
        g.sync();
        for (u32 b = g.rank(); b < C::VIRTUAL; b += H) {
            V s;
            s.load(true, t.buckets + r.bucket(b) * (C::BUCKET * C::SLOT_BYTES), 0);
            w.fit.set_free(b, popcount(s.matches(C::EMPTY)));
        }
    }

    // choose gives the offset that fits best under the mapping, or ~0. As the paper prunes offsets that must overflow, nothing
    // is moved for them. With missing, see Fit::least_missing.
    __device__ __forceinline__ u32 choose(u32 mapping, bool missing) {
        g.sync();
        w.fit.clear_need(g);
        g.sync();
        for (u32 n = g.rank(); n < total; n += H) w.fit.add_need(g, virtual_bucket<C>(w.bits[n], mapping));
        g.sync();
        tried += g.rank() == 0;
        if (missing) return w.fit.least_missing(g);
        u32 best = w.fit.best(g);
        return best == ~0u ? best : best & (C::VIRTUAL - 1);
    }

    // claim takes a slot for every pair, and writes it there; or none.
    __device__ __forceinline__ bool claim(const Ring& r, u32 mapping, u32 offset) {
        bool missed = false;
        for (u32 n = g.rank(); n < total; n += H) {
            u32 b = (virtual_bucket<C>(w.bits[n], mapping) + offset) & (C::VIRTUAL - 1);
            w.to[n] = Workspace<C>::NONE;
            if (missed) continue;
            key x = k;
            value y = v;
            if (n < pairs) {
                u64 from = place(old, w.from[n]);
                typename A::word word = load_relaxed(A::word_at(t.buckets, from));
                x = A::key_of(word);
                y = A::load_value(t.buckets, 0, from, word);
            }
            missed = true;
            for (u32 i = 0; i < C::BUCKET && missed; i++) {
                u16 to = (u16)(b * C::BUCKET + i);
                u64 slot = place(r, to);
                if (A::key_of(load_relaxed(A::word_at(t.buckets, slot))) != C::EMPTY || !A::claim(t.buckets, 0, slot, false, x, y)) continue;
                w.to[n] = to;
                missed = false;
            }
        }
        missed = g.any(missed);
        if (missed)
            for (u32 n = g.rank(); n < total; n += H)
                if (w.to[n] != Workspace<C>::NONE) A::clear(t.buckets, place(r, w.to[n]));
        return !missed;
    }

    // publish sets the cell and empties the old slots.
    __device__ __forceinline__ void publish(u32 cell, u32 code) {
        fence();
        g.sync();
        if (g.rank() == 0) store_relaxed(cell_at<C>(t, cell), (typename C::cell)code);
        for (u32 n = g.rank(); n < pairs; n += H) {
            A::clear(t.buckets, place(old, w.from[n]));
            moved++;
        }
        fence();
        g.sync();
    }
};

} // namespace gph
