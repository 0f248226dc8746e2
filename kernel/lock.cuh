// Locks that a tile takes together. A lock is a u32 of device memory: 0 while it is free.
#pragma once
#include "warpmap.cuh"

// try_lock takes the lock for the tile, if it is free and wanted, and tells every lane whether. Then every lane sees what was
// written under the lock before: lane 0, which took it, has acquired that, and hands it on where the lanes meet. (A shuffle
// alone orders no memory.) Whoever waits for a lock calls pause() between its tries, and holds none meanwhile.
template <class Tile> __device__ __forceinline__ bool try_lock(Tile g, u32* lock, bool wanted = true) {
    u32 got = 0;
    if (g.rank() == 0) {
        got = wanted && cas(lock, 0u, 1u) == 0;
        if (got) fence();
    }
    got = g.shuffle(got, 0);
    g.sync();
    return got;
}

// unlock gives the lock back: whoever takes it next sees what any lane of the tile has written.
template <class Tile> __device__ __forceinline__ void unlock(Tile g, u32* lock) {
    g.sync();
    if (g.rank() == 0) store_release(lock, 0u);
}
