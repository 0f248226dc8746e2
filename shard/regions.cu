// Rows are split by owner and by the region of the owner's table at once, so that the owner need not bring them in the order of regions again.
//
// It is what exchange.cu does, with a part for each owner and region, and tiles that are longer, so that a tile has a few rows of each part beside one
// another. Where the parts begin is counted before, by chunks: what all sources have for a region stands together at its owner. What comes back is sought
// where the split noted that a tile's rows of each part went.
#include "partition.cuh"
#include "owners.cuh"

typedef bits_of<SHARD_VALUE_BYTES>::type value;
typedef PartitionTile<SHARD_KEY_BYTES, (SHARD_KEY_BYTES > SHARD_VALUE_BYTES ? SHARD_KEY_BYTES : SHARD_VALUE_BYTES)> Tile;

// The part of a key, and above it its owner: a part has SHARD_PART_BITS, for there is one more than WARPMAP_MAX_PARTS.
__device__ __forceinline__ u32 part_of(key k, u64 seed, u64 owners, u64 regions, u64 order) {
    u32 owner = owner_of(k, seed, owners), region = (u32)((hash64<0>((u64)k, order) >> 32) * (u32)regions >> 32);
    return owner * (u32)regions + region | owner << SHARD_PART_BITS;
}
constexpr u32 PART = (1 << SHARD_PART_BITS) - 1;

struct RegionsShared {
    u128 column[Tile::BYTES / 16]; // of the tile, in the order of parts
    u64 skip[WARPMAP_MAX_PARTS]; // where the tile's rows of a part go in the owner's memory, less where they are in the tile
    u64 keys[SHARD_MAX_DEVICES], values[SHARD_MAX_DEVICES]; // each owner's memory
    u32 count[WARPMAP_MAX_PARTS + 1]; // the tile's rows of a part; then where they begin in it
    u16 part[Tile::ROWS]; // of each row of the tile, in order, with its owner

    template <class T> __device__ __forceinline__ void put(const T (&x)[Tile::EACH], const u32 (&place)[Tile::EACH]) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) ((T*)column)[place[i]] = x[i];
    }
    template <class T> __device__ __forceinline__ void send(u32 rows, const u64* to) {
#pragma unroll 4
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < rows) at<T>(to[part[j] >> SHARD_PART_BITS])[skip[part[j] & PART] + j] = ((const T*)column)[j];
        }
    }
};

// The parts of a thread in a scan over all: per of them, PER at most.
struct PartitionScan {
    static constexpr u32 PER = (WARPMAP_MAX_PARTS + PARTITION_THREADS - 1) / PARTITION_THREADS;
    u32 parts, per;
    __device__ __forceinline__ PartitionScan(u32 parts) : parts(parts), per((parts + PARTITION_THREADS - 1) / PARTITION_THREADS) {}
    __device__ __forceinline__ u32 part(u32 j) const { return thread_index() * per + j; }
    __device__ __forceinline__ bool has(u32 j) const { return j < per && part(j) < parts; }
};

WARPMAP_KERNEL_WIDE(shard_split_regions, splitRegions, PARTITION_THREADS, RegionsShared) {
    auto& shared = *(RegionsShared*)dynamic_shared();
    u32 parts = (u32)(p.owners * p.regions), t = thread_index();
    if (t < p.owners) {
        shared.keys[t] = p.out_keys[t];
        shared.values[t] = p.out_values[t];
    }
    PartitionScan s(parts);
    key k[Tile::EACH]; // of the next tile, too, which are asked for before this one's are sent
    if (block_index() * Tile::ROWS < p.n) Tile(block_index() * Tile::ROWS, p.n).load(p.keys, k);
    for (u64 number = block_index(); number * Tile::ROWS < p.n; number += grid_blocks()) {
        Tile tile(number * Tile::ROWS, p.n);
        for (u32 i = t; i <= parts; i += Tile::THREADS) shared.count[i] = 0;
        block_sync();
        u32 place[Tile::EACH]; // the part and its owner, and above them the rank among the tile's rows of that part; then the place in the tile
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 part = Tile::row(i) < tile.rows ? part_of(k[i], p.seed, p.owners, p.regions, p.order) : parts;
            place[i] = part | add(&shared.count[part & PART], 1u) << 16;
        }
        block_sync();
        u32 x[PartitionScan::PER], mine = 0;
#pragma unroll
        for (u32 j = 0; j < PartitionScan::PER; j++) mine += x[j] = s.has(j) ? shared.count[s.part(j)] : 0;
        u64 all;
        u32 start = (u32)block_scan(mine, all);
#pragma unroll
        for (u32 j = 0; j < PartitionScan::PER; j++) {
            if (!s.has(j)) continue;
            shared.count[s.part(j)] = start;
            if (x[j]) shared.skip[s.part(j)] = add(at<u64>(p.cursors) + s.part(j), (u64)x[j]) - start;
            if (p.skips) at<u32>(p.skips)[number * parts + s.part(j)] = (u32)shared.skip[s.part(j)];
            start += x[j];
        }
        if (t == 0) shared.count[parts] = tile.rows;
        block_sync();
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 part = place[i] & 0xffff;
            place[i] = shared.count[part & PART] + (place[i] >> 16);
            shared.part[place[i]] = (u16)part;
            if (p.places && Tile::row(i) < tile.rows) at<u32>(p.places)[tile.first + Tile::row(i)] = part << 16 | place[i];
        }
        shared.put(k, place);
        value v[Tile::EACH];
        if (p.values) tile.load(p.values, v);
        u64 next = (number + grid_blocks()) * Tile::ROWS;
        if (next < p.n) Tile(next, p.n).load(p.keys, k);
        block_sync();
        shared.send<key>(tile.rows, shared.keys);
        if (p.values) {
            block_sync();
            shared.put(v, place);
            block_sync();
            shared.send<value>(tile.rows, shared.values);
        }
        block_sync();
    }
}

struct FetchShared {
    u128 column[Tile::BYTES / 16]; // of the tile, in the order of parts
    u64 values[SHARD_MAX_DEVICES], flags[SHARD_MAX_DEVICES]; // each owner's results
    u32 skip[WARPMAP_MAX_PARTS]; // the split's
    u16 part[Tile::ROWS];

    // fetch reads a tile's rows of one column from their owners, and writes them in the batch's order.
    template <class T> __device__ __forceinline__ void fetch(const Tile& tile, const u32 (&place)[Tile::EACH], const u64* from, u64 out) {
        T x[Tile::EACH];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < tile.rows) x[i] = at<T>(from[part[j] >> SHARD_PART_BITS])[skip[part[j] & PART] + j];
        }
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < tile.rows) ((T*)column)[j] = x[i];
        }
        block_sync();
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < tile.rows) at<T>(out)[tile.first + j] = ((const T*)column)[place[i] & 0xffff];
        }
        block_sync();
    }
};

// The results come back.
WARPMAP_KERNEL_WIDE(shard_gather_regions, gatherRegions, PARTITION_THREADS, FetchShared) {
    auto& shared = *(FetchShared*)dynamic_shared();
    u32 parts = (u32)(p.owners * p.regions), t = thread_index();
    if (t < p.owners) {
        shared.values[t] = p.values[t];
        shared.flags[t] = p.flags[t];
    }
    for (u64 number = block_index(); number * Tile::ROWS < p.n; number += grid_blocks()) {
        Tile tile(number * Tile::ROWS, p.n);
        u32 place[Tile::EACH]; // and above it the part
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + t;
            place[i] = j < tile.rows ? at<u32>(p.places)[tile.first + j] : 0;
        }
        for (u32 i = t; i < parts; i += Tile::THREADS) shared.skip[i] = at<u32>(p.skips)[number * parts + i];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++)
            if ((u32)i * Tile::THREADS + t < tile.rows) shared.part[place[i] & 0xffff] = (u16)(place[i] >> 16);
        block_sync();
        if (p.out_values) shared.fetch<value>(tile, place, shared.values, p.out_values);
        if (p.out_flags) shared.fetch<u8>(tile, place, shared.flags, p.out_flags);
    }
}
