// A table after MegaKV (VLDB 2015), as the DyCuckoo paper's study has it: a key has two buckets of 8 pairs, each anywhere in the
// table. A tile reads a bucket; each of its lanes brings a key.
#include "layout.h"
#include "lock.cuh"
#include "warpmap.cuh"

using namespace dycuckoo;

// A slot is a pair, the key below; all ones while nothing is in it. Only the pair of these very bits is reserved.
constexpr u64 EMPTY = ~0ull;
constexpr int LANES = MEGAKV_LANES, SLOTS = MEGAKV_SLOTS, LOADS = SLOTS / 2 / LANES;
typedef tile<LANES, true> Tile;

__device__ __forceinline__ u64* bucket_of(const megakvParams& p, int function, u32 key) {
    return at<u64>(p.slots) + reduce(seeded64(key, p.seed + function), p.buckets) * SLOTS;
}
__device__ __forceinline__ megakvCounters* counters(const megakvParams& p) { return at<megakvCounters>(p.counters); }

// A bit of a look's answers is a slot: the lanes' first pairs come first.
__device__ __forceinline__ int slot_of(u32 bits) {
    int bit = lowest_bit(bits);
    return (bit / LANES / 2 * LANES + bit % LANES) * 2 + bit / LANES % 2;
}

// look tells every lane that wants it which slots of its bucket have its key, and which are free.
__device__ __forceinline__ void look(Tile g, const u64* bucket, u32 key, bool wanted, u32& same, u32& room) {
    same = room = 0;
    u64 v[LANES][LOADS][2];
#pragma unroll
    for (int j = 0; j < LANES; j++) {
        u64 from = g.shuffle(wanted ? (u64)bucket : 0, j);
#pragma unroll
        for (int s = 0; s < LOADS; s++)
            if (from) load_vector(at<u64>(from) + (s * LANES + g.rank()) * 2, v[j][s]);
    }
#pragma unroll
    for (int j = 0; j < LANES; j++) {
        u32 k = g.shuffle(key, j);
        bool on = g.shuffle((u32)wanted, j);
#pragma unroll
        for (int s = 0; s < LOADS; s++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                bool free = on && v[j][s][e] == EMPTY;
                u32 are = g.ballot(on && !free && (u32)v[j][s][e] == k), may = g.ballot(free);
                if (g.rank() == j) same |= are << (s * 2 + e) * LANES, room |= may << (s * 2 + e) * LANES;
            }
    }
}

// find, and with ERASE the removal of what is found.
template <bool ERASE> __device__ __forceinline__ void search(const megakvParams& p) {
    Tile g;
    u64 erased = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        bool in = i < p.n;
        u32 key = in ? load_readonly(at<u32>(p.keys) + i) : 0, same, room;
        u64* bucket = bucket_of(p, 0, key);
        look(g, bucket, key, in, same, room);
        bool second = in && !same;
        if (g.any_of_all(second)) {
            u64* other = bucket_of(p, 1, key);
            u32 there;
            look(g, other, key, second, there, room);
            if (second) same = there, bucket = other;
        }
        if (!in) continue;
        bool found = same != 0;
        u64 pair = found ? load_relaxed(bucket + slot_of(same)) : 0;
        if constexpr (ERASE) {
            found = found && (u32)pair == key && pair != EMPTY && cas(bucket + slot_of(same), pair, EMPTY) == pair;
            erased += found;
        } else if (p.values) at<u32>(p.values)[i] = (u32)(pair >> 32);
        if (p.found) at<u8>(p.found)[i] = found;
    }
    if (ERASE) count_into(&counters(p)->live, 0 - erased);
}
WARPMAP_KERNEL(megakv_find, megakvParams) { search<false>(p); }
WARPMAP_KERNEL(megakv_erase, megakvParams) { search<true>(p); }

// Puts pairs into the first free slot of the first bucket, or of the second. As slots do not get free meanwhile, equal keys meet in one
// slot. What finds both buckets full goes to the list. FRESH: no key is in the table, nor comes twice.
template <bool FRESH, class Pair> __device__ __forceinline__ void put(const megakvParams& p, Pair pair_at) {
    Tile g;
    u64 added = 0, reads = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        u64 pair = i < p.n ? pair_at(i) : EMPTY;
        u32 key = (u32)pair;
        u64 *first = bucket_of(p, 0, key), *other = bucket_of(p, 1, key);
        bool on = pair != EMPTY, refused = false;
        while (g.any_of_all(on)) {
            u32 same, room, same2 = 0, room2 = 0;
            look(g, first, key, on, same, room);
            bool second = on && (FRESH ? !room : !same);
            reads += on + second;
            if (g.any_of_all(second)) look(g, other, key, second, same2, room2);
            if (!on) continue;
            if (!FRESH && (same | same2)) {
                store_relaxed((u32*)(same ? first + slot_of(same) : other + slot_of(same2)) + 1, (u32)(pair >> 32));
                on = false;
            } else if (room | room2) {
                if (cas(room ? first + slot_of(room) : other + slot_of(room2), EMPTY, pair) != EMPTY) continue;
                on = false;
                added++;
            } else {
                refused = true;
                on = false;
            }
        }
        u64 to = append(&counters(p)->refused, refused);
        if (refused) at<u64>(p.refused)[to] = pair;
    }
    count_into(&counters(p)->live, added);
    count_into(&counters(p)->reads, reads);
}
WARPMAP_KERNEL(megakv_insert, megakvParams) {
    put<false>(p, [&](u64 i) { return (u64)load_readonly(at<u32>(p.keys) + i) | (u64)load_readonly(at<u32>(p.values) + i) << 32; });
}
WARPMAP_KERNEL(megakv_insert_pairs, megakvParams) {
    put<false>(p, [&](u64 i) { return load_readonly(at<u64>(p.pairs) + i); });
}
// Free slots of the old table are no pairs.
WARPMAP_KERNEL(megakv_rehash, megakvParams) {
    put<true>(p, [&](u64 i) { return load_readonly(at<u64>(p.pairs) + i); });
}

// Brings the pairs of the list in by putting others out, which then go on. A pair that is put out is in no bucket, so an equal one may
// come in meanwhile: whoever brings a pair holds its key's lock while it looks, and one that was put out gives way. After so
// many turns a pair goes to the list of the homeless.
WARPMAP_KERNEL(megakv_evict, megakvParams) {
    tile<1> alone;
    u64 added = 0, reads = 0;
    for (u64 i = grid_thread(); i < load_relaxed(&counters(p)->refused); i += grid_threads()) {
        u64 pair = at<u64>(p.refused)[i];
        bool fresh = true; // not counted yet
        for (u32 turn = 0; pair != EMPTY;) {
            u32 key = (u32)pair;
            u64* bucket[2] = {bucket_of(p, 0, key), bucket_of(p, 1, key)};
            u32* lock = at<u32>(p.locks) + (fmix32(key) & MEGAKV_LOCKS - 1);
            if (!try_lock(alone, lock)) {
                pause();
                continue;
            }
            u64 *free = 0, *same = 0, was = 0;
            for (int s = 2 * SLOTS - 1; s >= 0; s--) {
                u64 *slot = bucket[s / SLOTS] + s % SLOTS, v = load_relaxed(slot);
                if (v == EMPTY) free = slot;
                else if ((u32)v == key) same = slot, was = v;
            }
            reads += 2;
            if (same) {
                if (!fresh || cas(same, was, pair) == was) {
                    added -= !fresh;
                    pair = EMPTY;
                }
            } else if (free) {
                if (cas(free, EMPTY, pair) == EMPTY) {
                    added += fresh;
                    pair = EMPTY;
                }
            } else if (turn < (load_relaxed(&counters(p)->homeless) < MEGAKV_GIVEN_UP ? MEGAKV_EVICTIONS : 0)) {
                u32 pick = fmix32(key + ++turn * 0x9e3779b9u) % (2 * SLOTS);
                u64 *slot = bucket[pick / SLOTS] + pick % SLOTS, out = load_relaxed(slot);
                if (out != EMPTY && (u32)out != key && cas(slot, out, pair) == out) {
                    added += fresh;
                    fresh = false;
                    pair = out;
                }
            } else {
                at<u64>(p.homeless)[add(&counters(p)->homeless, (u64)1)] = pair;
                added -= !fresh;
                pair = EMPTY;
            }
            unlock(alone, lock);
        }
    }
    count_into(&counters(p)->live, added);
    count_into(&counters(p)->reads, reads);
}
