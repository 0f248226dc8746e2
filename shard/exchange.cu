// How the rows of a batch go to the devices that own their keys, and how what is found there comes back. The picture is in doc.go.
//
// A source takes its rows tile by tile. A tile is brought in the order of owners in shared memory, so that the rows it has for one owner are written as a
// stream: straight into the owner's memory, over whatever joins the two. The source keeps each row's place in its tile, 2 bytes, and for each tile and
// owner where the rows went. With these the results are fetched as streams, too, and put in the batch's order in shared memory.
#include "layout.h"
#include "warpmap.cuh"
#include "partition.cuh"
#include "findall.cuh"
#include "owners.cuh"

typedef bits_of<SHARD_VALUE_BYTES>::type value;
typedef PartitionTile<SHARD_KEY_BYTES, (SHARD_KEY_BYTES > SHARD_VALUE_BYTES ? SHARD_KEY_BYTES : SHARD_VALUE_BYTES)> Tile;

// How many rows of each chunk each owner gets. A block takes tiles in a row.
WARPMAP_KERNEL(shard_count, countRows) {
    typedef PartitionTile<SHARD_KEY_BYTES, SHARD_KEY_BYTES> Keys;
    __shared__ u32 count[WARPMAP_MAX_PARTS + 1];
    u32 owners = (u32)p.owners;
    u64 tiles = (p.n + Keys::ROWS - 1) / Keys::ROWS, each = (tiles + grid_blocks() - 1) / grid_blocks();
    u64 from = block_index() * each, end = from + each < tiles ? from + each : tiles;
    if (thread_index() <= owners) count[thread_index()] = 0;
    for (u64 t = from; t < end; t++) {
        block_sync();
        Keys tile(t * Keys::ROWS, p.n);
        key k[Keys::EACH];
        tile.load(p.keys, k);
#pragma unroll
        for (int i = 0; i < Keys::EACH; i++) add(&count[Keys::row(i) < tile.rows && goes(p.when, tile.first + Keys::row(i)) ? owner_of(k[i], p.seed, owners) : owners], 1u);
        u64 chunk = t * Keys::ROWS / p.chunk;
        if (t + 1 < end && (t + 1) * Keys::ROWS / p.chunk == chunk) continue;
        block_sync();
        if (thread_index() < owners) {
            if (count[thread_index()]) add(at<u64>(p.counts) + chunk * owners + thread_index(), (u64)count[thread_index()]);
            count[thread_index()] = 0;
        }
    }
}

struct SplitShared {
    u128 column[Tile::BYTES / 16]; // of the tile, in the order of owners
    u64 keys[WARPMAP_MAX_PARTS], values[WARPMAP_MAX_PARTS], marks[WARPMAP_MAX_PARTS]; // where each owner's segment is
    u64 skip[WARPMAP_MAX_PARTS]; // where the tile's rows of an owner go in the segment, less where they are in the tile
    u32 count[WARPMAP_MAX_PARTS + 1]; // the tile's rows of an owner; then where they begin in it
    u8 owner[Tile::ROWS]; // of each row of the tile, in order

    template <class T> __device__ __forceinline__ void send(const T (&x)[Tile::EACH], const u32 (&place)[Tile::EACH], u32 rows, const u64* to) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) ((T*)column)[place[i]] = x[i];
        block_sync();
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < rows) at<T>(to[owner[j]])[skip[owner[j]] + j] = ((const T*)column)[j];
        }
    }
};

// add_system adds to memory of this device or of another, whose kernels may add to it at the same time.
#if defined(WARPMAP_HOST)
__device__ __forceinline__ u64 add_system(u64* p, u64 x) { return add(p, x); }
#else
__device__ __forceinline__ u64 add_system(u64* p, u64 x) { return atomicAdd_system(p, x); }
#endif

WARPMAP_KERNEL(shard_split, splitRows) {
    __shared__ SplitShared shared;
    __shared__ u64 ended; // blocks that have ended, with this one
    u32 owners = (u32)p.owners, t = thread_index();
    u64 sent = 0; // rows of the block that owner t gets
    if (t < owners) {
        shared.keys[t] = p.out_keys[t];
        shared.values[t] = p.out_values[t];
        shared.marks[t] = p.out_marks[t];
    }
    for (u64 number = block_index(); number * Tile::ROWS < p.n; number += grid_blocks()) {
        Tile tile(number * Tile::ROWS, p.n);
        key k[Tile::EACH];
        tile.load(p.keys, k);
        if (t <= owners) shared.count[t] = 0;
        block_sync();
        u32 place[Tile::EACH]; // the owner, and above it the rank among the tile's rows of that owner; then the place in the tile
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 o = Tile::row(i) < tile.rows && goes(p.when, tile.first + Tile::row(i)) ? owner_of(k[i], p.seed, owners) : owners;
            place[i] = o | add(&shared.count[o], 1u) << 16;
        }
        block_sync();
        u32 mine = t < owners ? shared.count[t] : 0;
        u64 all; // rows that go; the places behind are of the others
        u32 start = (u32)block_scan(mine, all);
        if (t < owners) {
            u64 at_segment = mine ? add_system(at<u64>(p.cursors[t]), (u64)mine) - p.begins[t] : 0;
            sent += mine;
            shared.skip[t] = at_segment - start;
            shared.count[t] = start;
            if (p.bases) at<u64>(p.bases)[number * owners + t] = at_segment << 16 | mine;
        }
        if (t == owners) shared.count[t] = (u32)all;
        block_sync();
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 o = place[i] & 0xffff;
            place[i] = shared.count[o] + (place[i] >> 16);
            shared.owner[place[i]] = (u8)o;
            if (p.places && Tile::row(i) < tile.rows) at<u16>(p.places)[tile.first + Tile::row(i)] = (u16)place[i];
        }
        value v[Tile::EACH]; // asked for before the keys are written, used after
        if (p.values) tile.load(p.values, v);
        shared.send(k, place, (u32)all, shared.keys);
        if (p.values) {
            block_sync();
            shared.send(v, place, (u32)all, shared.values);
        }
        if (p.marks) {
            u8 mark[Tile::EACH];
            tile.load(p.marks, mark);
            block_sync();
            shared.send(mark, place, (u32)all, shared.marks);
        }
        block_sync();
    }
    if (!p.sums) return;
    // The last block to end reports the sums of all blocks, and leaves zeros for the next launch.
    if (t < owners && sent) add(at<u64>(p.sums) + t, sent);
    fence();
    block_sync();
    if (t == 0) ended = add(at<u64>(p.sums) + owners, (u64)1) + 1;
    block_sync();
    if (ended < grid_blocks()) return;
    fence();
    if (t <= owners) {
        u64 sum = exchange(at<u64>(p.sums) + t, (u64)0);
        if (t < owners) at<u64>(p.totals)[t] = sum;
    }
}

struct GatherShared {
    u128 column[Tile::BYTES / 16];
    u64 skip[WARPMAP_MAX_PARTS];
    u32 start[WARPMAP_MAX_PARTS];
    u32 rows; // of the tile that owners have; the others were not chosen, and get zeros
};

// fetch reads a tile's rows of one column from their owners, and writes them in the batch's order.
template <class T>
__device__ __forceinline__ void fetch(GatherShared& shared, const Tile& tile, u32 owners, const u16 (&place)[Tile::EACH], const u64* from, u64 out) {
    T x[Tile::EACH];
#pragma unroll
    for (int i = 0; i < Tile::EACH; i++) {
        u32 j = (u32)i * Tile::THREADS + thread_index(), o = 0;
        if (j >= shared.rows) continue;
        for (u32 next = 1; next < owners; next++) o = j >= shared.start[next] ? next : o;
        x[i] = at<T>(from[o])[shared.skip[o] + j];
    }
#pragma unroll
    for (int i = 0; i < Tile::EACH; i++) {
        u32 j = (u32)i * Tile::THREADS + thread_index();
        if (j < shared.rows) ((T*)shared.column)[j] = x[i];
    }
    block_sync();
#pragma unroll
    for (int i = 0; i < Tile::EACH; i++) {
        u32 j = (u32)i * Tile::THREADS + thread_index();
        if (j < tile.rows) at<T>(out)[tile.first + j] = place[i] < shared.rows ? ((const T*)shared.column)[place[i]] : T{};
    }
    block_sync();
}

// The results come back. Counts are values of 4 bytes.
WARPMAP_KERNEL(shard_gather, gatherRows) {
    __shared__ GatherShared shared;
    __shared__ u64 values[WARPMAP_MAX_PARTS], flags[WARPMAP_MAX_PARTS];
    u32 owners = (u32)p.owners, t = thread_index();
    if (t < owners) {
        values[t] = p.values[t];
        flags[t] = p.flags[t];
    }
    for (u64 number = block_index(); number * Tile::ROWS < p.n; number += grid_blocks()) {
        Tile tile(number * Tile::ROWS, p.n);
        u64 base = t < owners ? at<u64>(p.bases)[number * owners + t] : 0, all;
        u32 start = (u32)block_scan(base & 0xffff, all);
        if (t < owners) {
            shared.start[t] = start;
            shared.skip[t] = (base >> 16) - start;
        }
        if (t == 0) shared.rows = (u32)all;
        u16 place[Tile::EACH];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + t;
            place[i] = j < tile.rows ? at<u16>(p.places)[tile.first + j] : 0;
        }
        block_sync();
        if (p.out_values) {
            if (p.counts) fetch<u32>(shared, tile, owners, place, values, p.out_values);
            else fetch<value>(shared, tile, owners, place, values, p.out_values);
        }
        if (p.out_flags) fetch<u8>(shared, tile, owners, place, flags, p.out_flags);
    }
}

// What is asked of all owners: every owner gets all rows of a source, in their order.
WARPMAP_KERNEL(shard_spread, spreadRows) {
    u32 owners = (u32)p.owners;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        key k = at<key>(p.keys)[i];
        for (u32 o = 0; o < owners; o++) at<key>(p.out_keys[o])[i] = k;
    }
}

// merged adds up the values that owners have of a row, up to the largest there is, or gives the first that was found.
template <class T> __device__ __forceinline__ T merged(const gatherRows& p, u64 i, u32 found) {
    if (!p.sum) return found < p.owners ? at<T>(p.values[found])[i] : T{};
    if constexpr (sizeof(T) > 8) return T{};
    else {
        T sum = 0;
        for (u32 o = 0; o < (u32)p.owners; o++) {
            T x = at<T>(p.values[o])[i];
            sum = sum + x < x ? ~(T)0 : sum + x;
        }
        return sum;
    }
}

// The results of all owners come back, and become one.
WARPMAP_KERNEL(shard_merge, gatherRows) {
    u32 owners = (u32)p.owners;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 found = owners;
        if (!goes(p.when, i)) {
            if (p.out_values) at<value>(p.out_values)[i] = value{};
            if (p.out_flags) at<u8>(p.out_flags)[i] = 0;
            continue;
        }
        if (!p.sum || p.out_flags)
            for (u32 o = owners; o-- > 0;) found = at<u8>(p.flags[o])[i] ? o : found;
        if (p.out_values) {
            if (p.counts) at<u32>(p.out_values)[i] = merged<u32>(p, i, found);
            else at<value>(p.out_values)[i] = merged<value>(p, i, found);
        }
        if (p.out_flags) at<u8>(p.out_flags)[i] = found < owners;
    }
}

// Where the values of each key of a multimap's batch begin, from how many it has.
WARPMAP_KERNEL(shard_sum, listRows) { sum_chunks(p); }
WARPMAP_KERNEL(shard_scan, listRows) { scan_totals(p); }
WARPMAP_KERNEL(shard_offsets, listRows) { write_offsets(p); }

__device__ __forceinline__ void copy_list(const listRows& p, u64& to, u32 owner, u64 row, u32 lane) {
    const u64* offsets = at<u64>(p.lists[owner]) + row;
    u64 from = offsets[0], n = offsets[1] - from;
    for (u64 k = lane; k < n; k += SHARD_LIST_LANES) at<value>(p.out_values)[to + k] = at<value>(p.values[owner])[from + k];
    to += n;
}

// The values of each key come from its owner, or from all that have some, one after the other. A few lanes take a row.
WARPMAP_KERNEL(shard_lists, listRows) {
    u32 owners = (u32)p.owners, lane = thread_index() % SHARD_LIST_LANES;
    for (u64 i = grid_thread() / SHARD_LIST_LANES; i < p.n; i += grid_threads() / SHARD_LIST_LANES) {
        u64 to = at<u64>(p.offsets)[i];
        if (!p.bases) {
            for (u32 o = 0; o < owners; o++) copy_list(p, to, o, i, lane);
            continue;
        }
        const u64* bases = at<u64>(p.bases) + i / Tile::ROWS * owners;
        u32 place = at<u16>(p.places)[i], o = 0, start = 0;
        while (place >= start + (u32)(bases[o] & 0xffff)) start += (u32)(bases[o++] & 0xffff);
        copy_list(p, to, o, (bases[o] >> 16) + place - start, lane);
    }
}
