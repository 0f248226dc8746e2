// Look-ups in the ways that Figure 13 of the GPH paper sets beside GPH's own: the bucket request of DyCuckoo, in a GPH table
// and in a table where a key may stand in either of two buckets.
#include "config.h"
#include "gph.cuh"
#include "layout.h"

using gph::lookupParams;

typedef config C;
typedef tile<BENCH_GROUP, true> Group;

// A pair is one word, and a bucket of either table C::BUCKET of them. Empty slots are all ones.
constexpr u64 EMPTY = ~0ull;

// seek looks for a key in a bucket as DyCuckoo does: a slot to a lane, and the next slots only once these have been looked
// at. All lanes of the warp come; those of a tile that is not on load nothing.
__device__ __forceinline__ bool seek(Group g, bool on, u64 bucket, u32 key, u64& pair) {
    bool found = false;
#pragma unroll 1
    for (u32 first = 0; first < C::BUCKET; first += Group::LANES) {
        u32 slot = first + g.rank();
        u64 w = EMPTY;
        if (on && !found && slot < C::BUCKET) w = load_relaxed(at<u64>(bucket) + slot);
        u32 who = g.ballot(w != EMPTY && (u32)w == key);
        w = g.shuffle(w, lowest_bit(who | 1u << 31) & Group::LANES - 1);
        if (who) {
            found = true;
            pair = w;
        }
    }
    return found;
}

// look_up takes the keys of the tile one after the other; probe finds the one that all its lanes bring.
template <class Prepare, class Probe> __device__ __forceinline__ void look_up(const lookupParams& p, Prepare prepare, Probe probe) {
    Group g;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        u32 key = i < p.n ? load_readonly(at<u32>(p.keys) + i) : 0;
        u64 bucket = 0;
        prepare(key, bucket);
#pragma unroll 1
        for (int j = 0; j < Group::LANES; j++) {
            u64 pair = 0;
            bool on = g.shuffle((u32)(i < p.n), j);
            bool found = probe(g, on, g.shuffle(bucket, j), g.shuffle(key, j), pair);
            if (g.rank() != j || i >= p.n) continue;
            at<u32>(p.values)[i] = found ? (u32)(pair >> 32) : 0;
            at<u8>(p.found)[i] = found;
        }
    }
}

// The cell says which bucket, as ever; only the bucket is read in another way.
WARPMAP_KERNEL(find_perfect, lookupParams) {
    look_up(p,
        [&](u32& key, u64& bucket) {
            gph::Home<C> h(p.table, key);
            key = h.stored;
            bucket = p.table.buckets + gph::bucket_of<C>(p.table, h, load_readonly(gph::cell_at<C>(p.table, h.cell(p.table)))) * (C::BUCKET * 8);
        },
        [&](Group g, bool on, u64 bucket, u32 key, u64& pair) { return seek(g, on, bucket, key, pair); });
}

// The two buckets of a key.
__device__ __forceinline__ u64 choice(const lookupParams& p, u32 key, int which) {
    return p.slots + reduce(seeded64(key, 0x2545f491 + which), p.buckets) * (C::BUCKET * 8);
}

WARPMAP_KERNEL(find_two, lookupParams) {
    look_up(p, [&](u32& key, u64& bucket) { bucket = choice(p, key, 0); },
        [&](Group g, bool on, u64 bucket, u32 key, u64& pair) {
            bool found = seek(g, on, bucket, key, pair);
            if (!g.any_of_all(on && !found)) return found;
            return seek(g, on && !found, choice(p, key, 1), key, pair) || found;
        });
}

// put writes the pair into an empty slot of the bucket, if there is one.
__device__ __forceinline__ bool put(u64 bucket, u64 pair) {
    for (u32 i = 0; i < C::BUCKET; i++) {
        u64* slot = at<u64>(bucket) + i;
        if (load_relaxed(slot) == EMPTY && cas(slot, EMPTY, pair) == EMPTY) return true;
    }
    return false;
}

// Distinct keys go to their first bucket while it has room, which favours look-ups here, then to the second; else one puts
// another pair out, which goes to that one's other bucket.
WARPMAP_KERNEL(insert_two, lookupParams) {
    constexpr int TURNS = 1000;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u64 pair = (u64)load_readonly(at<u32>(p.keys) + i) | (u64)load_readonly(at<u32>(p.values) + i) << 32;
        u64 bucket = choice(p, (u32)pair, 0);
        bool in = pair != EMPTY && put(bucket, pair);
        if (!in) bucket = choice(p, (u32)pair, 1);
        for (int turn = 0; !in && pair != EMPTY && turn < TURNS; turn++) {
            in = put(bucket, pair);
            if (in) break;
            pair = exchange(at<u64>(bucket) + (fmix32((u32)pair + turn) & (C::BUCKET - 1)), pair);
            u64 first = choice(p, (u32)pair, 0);
            bucket = bucket == first ? choice(p, (u32)pair, 1) : first;
        }
        if (!in) add(at<u64>(p.failed), (u64)1);
    }
}
