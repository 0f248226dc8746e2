// Rows of a batch that have one key take turns with the lock of one bucket, and a key that many ask for is in every
// batch. So one row of each tile of the batch comes for all rows of the tile with its key. The program is compiled with
// WARPMAP_SHARED: atomic operations are a block's own.
#include "config.h" // struct config: what this cache holds
#include "items.cuh"
#include "layout.h"
#include "together.cuh"

using namespace cache;

typedef config C;
typedef config::key key;

// The weight of a row is the number of rows that it comes for, itself among them; 0 says that another row comes for it.
WARPMAP_KERNEL(cover, coverParams) {
    __shared__ Together<key, CACHE_TILE> rows;
    __shared__ u32 count[CACHE_TILE];
    for (u64 first = block_index() * CACHE_TILE; first < p.n; first += grid_blocks() * CACHE_TILE) {
        u32 n = p.n - first < CACHE_TILE ? (u32)(p.n - first) : CACHE_TILE;
        block_sync(); // the last tile's counts have been read
        rows.clear();
        rows.load(at<key>(p.keys) + first, n);
        for (u32 i = thread_index(); i < n; i += block_threads()) count[i] = 0;
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads())
            add(&count[rows.first_of(i, (u32)hash64<C::HASH>(rows.k[i], p.seed))], 1u);
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads()) at<u16>(p.weights)[first + i] = (u16)count[i];
    }
}
