// Look-ups through shared memory: see shared.go.
#include "config.h"
#include "gph.cuh"
#include "layout.h"
#include "partition.cuh"

using namespace gph;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef tile<GPH_FIND_GROUP, true> FindTile;

// Routing: the rows go to the part that holds their cell.
__device__ __forceinline__ auto part_of(const sharedParams& p) {
    return [&p](key k) { return Home<C>(p.table, k).cell(p.table) / p.part_cells; };
}
WARPMAP_PARTITION(sharedParams, key, u32, u32, part_of)

// The part of a row: the last that begins at it or before.
__device__ __forceinline__ u32 part_with(const u64* starts, u32 parts, u64 row) {
    u32 from = 0, to = parts; // starts[from] <= row < starts[to]
    while (to - from > 1) {
        u32 middle = (from + to) / 2;
        if (load_readonly(starts + middle) <= row) from = middle;
        else to = middle;
    }
    return from;
}

// The cells are read 16 bytes at a time; what is read past the last is of the table's memory too.
__device__ __forceinline__ void load_cells(const sharedParams& p, u64 first) {
    u64 left = p.table.cell_count - first, cells = left < p.part_cells ? left : p.part_cells;
    u32 words = (u32)(cells * sizeof(C::cell) + 15) / 16;
    const u128* from = at<u128>(p.table.cells + first * sizeof(C::cell));
    u128* to = dynamic_shared();
#pragma unroll 4
    for (u32 i = thread_index(); i < words; i += block_threads()) to[i] = load_readonly(from + i);
}

// look_up answers the rows row … end-1, which are of the part that begins with cell `first`. The next rows' keys and
// positions are on their way while a row's buckets are read.
__device__ __forceinline__ void look_up(const sharedParams& p, u64 first, u64 row, u64 end) {
    FindTile g;
    const C::cell* cells = (const C::cell*)dynamic_shared();
    const key* keys = at<key>(p.rows.out_keys);
    const u32* positions = at<u32>(p.rows.out_positions);
    u64 i = row + thread_index(), lane = thread_index() & 31, stride = block_threads();
    key k = i < end ? load_readonly(keys + i) : 0;
    u32 position = i < end ? load_readonly(positions + i) : 0;
    for (; i - lane < end; i += stride) { // all lanes of a warp stay until its last row
        bool on = i < end, more = i + stride < end;
        key next = more ? load_readonly(keys + i + stride) : 0;
        u32 next_position = more ? load_readonly(positions + i + stride) : 0;
        Home<C> h(p.table, k);
        u32 code = on ? cells[h.cell(p.table) - first] : 0;
        Hit<C> hit;
        read_bucket<C, !C::PACKED, false>(p.table, g, on, bucket_of<C>(p.table, h, code), h.stored, hit);
        if (on) {
            if (p.values) at<value>(p.values)[position] = hit.found ? value_of<C>(p.table, hit) : value{};
            if (p.found) at<u8>(p.found)[position] = hit.found;
        }
        k = next;
        position = next_position;
    }
}

// A block has as many rows as any other, neighbours in the order of parts: so it loads few parts, and a part with many rows
// is that of many blocks.
WARPMAP_KERNEL_RESIDENT(find_shared, sharedParams, GPH_SHARED_BLOCKS) {
    const u64* starts = at<u64>(p.rows.starts);
    u64 each = ((p.rows.n + grid_blocks() - 1) / grid_blocks() + 31) & ~31ull;
    u64 row = block_index() * each, end = row + each < p.rows.n ? row + each : p.rows.n;
    if (row >= end) return;
    for (u32 part = part_with(starts, (u32)p.rows.parts, row); row < end; part++) {
        u64 until = load_readonly(starts + part + 1), first = (u64)part * p.part_cells;
        if (until > end) until = end;
        if (until == row) continue; // a part without rows
        block_sync(); // nobody looks at the part before any more
        load_cells(p, first);
        block_sync();
        look_up(p, first, row, until);
        row = until;
    }
}
