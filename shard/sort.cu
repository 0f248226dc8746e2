// Kernels that sort a source's rows by owner and by region of the owner's table, if no results come back: see
// regions.go. Rows of the source's own table go to its inbox, and others to the memory after it. The cursors say where
// each part begins.
#include "partition.cuh"
#include "owners.cuh"

typedef bits_of<SHARD_VALUE_BYTES>::type value;

struct OwnerAndRegion {
    u64 seed, order;
    u32 owners, regions;
    template <class P> __device__ __forceinline__ OwnerAndRegion(const P& p)
        : seed(p.seed), order(p.order), owners((u32)p.owners), regions((u32)p.regions) {}
    __device__ __forceinline__ u32 operator()(key k) const {
        return owner_of(k, seed, owners) * regions + (u32)((hash64<0>((u64)k, order) >> 32) * regions >> 32);
    }
};

// shard_count_regions counts the rows of each part in each chunk. A block takes consecutive tiles, and loads the keys
// of the next tile before it counts those of this one.
WARPMAP_KERNEL_WIDE(shard_count_regions, countRegions, PARTITION_COUNT_THREADS, PartitionCounts) {
    typedef PartitionTile<SHARD_KEY_BYTES, SHARD_KEY_BYTES, PARTITION_COUNT_THREADS> Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    OwnerAndRegion part_of(p);
    u32 parts = part_of.owners * part_of.regions;
    u64 tiles = (p.n + Tile::ROWS - 1) / Tile::ROWS, each = (tiles + grid_blocks() - 1) / grid_blocks();
    u64 t = block_index() * each, end = t + each < tiles ? t + each : tiles;
    u64 tiles_of_chunk = p.chunk / Tile::ROWS, chunk = t / tiles_of_chunk, chunk_end = (chunk + 1) * tiles_of_chunk;
    key k[Tile::EACH], next[Tile::EACH];
    if (t < end) Tile(t * Tile::ROWS, p.n).load(p.keys, k);
    for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
    block_sync();
    for (; t < end; t++) {
        Tile tile(t * Tile::ROWS, p.n);
        if (t + 1 < end) Tile((t + 1) * Tile::ROWS, p.n).load(p.keys, next);
        tile.count(k, part_of, count);
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) k[i] = next[i];
        if (t + 1 < end && t + 1 < chunk_end) continue;
        block_sync();
        for (u32 i = thread_index(); i < parts; i += Tile::THREADS) {
            if (count[i]) add(at<u64>(p.counts) + chunk * parts + i, (u64)count[i]);
            count[i] = 0;
        }
        chunk++;
        chunk_end += tiles_of_chunk;
        block_sync();
    }
}

WARPMAP_KERNEL_WIDE(shard_sort, sortRows, PARTITION_THREADS, PartitionColumns<key, value, u32>::Shared) {
    partition_scatter<NO_OTHERS, key, value, u32>(p.rows, OwnerAndRegion(p));
}

// shard_unpair writes pairs as columns.
WARPMAP_KERNEL(shard_unpair, sortRows) {
    typedef PairedRow<key, value> P;
    if constexpr (P::IS)
        for (u64 i = grid_thread(); i < p.rows.n; i += grid_threads()) {
            typename P::word w = at<typename P::word>(p.rows.keys)[i];
            at<key>(p.rows.out_keys)[i] = P::key(w);
            at<value>(p.rows.out_values)[i] = P::value(w);
        }
}
