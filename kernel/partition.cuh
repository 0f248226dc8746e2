// A partition brings rows in the order of their parts: all rows of part 0, then those of part 1, and so on, in any
// order within a part. A row is a key, and as asked a value and the row's position in the input.
//
// Three kernels, entry points of a family's program that WARPMAP_PARTITION makes (launched by Partitioner in table/partition.go):
//
//   partition_count    adds up how many rows each part has
//   partition_scan     turns that into where each part begins
//   partition_scatter  takes rows tile by tile, brings a tile in order in shared memory, and writes it out
//
// A tile reserves room in a part with one atomic operation, and the rows that it has of a part are neighbours in the
// output: so the memory sees streams, one for each part, and not single rows.
//
// A tile has so many rows of a part that the streams are written in whole sectors, and several blocks are on a multiprocessor, one of which brings its
// tile in order while others read and write. On an H100, with 148 parts, two blocks of 512 threads and 4,096 rows take 0.87 ms for 100 M pairs, and
// one of 1,024 and 8,192 takes 1.0.
//
// Three more, partition_within_count, partition_within_scatter and partition_sum, of WARPMAP_PARTITION_WITHIN, make many parts of rows that come in the
// order of fewer. Where a block's shared memory holds a counter for each of the many, partition_count counts these at once, and partition_sum adds
// up the fewer: then nothing is counted twice.
// After them partition_group, of WARPMAP_PARTITION_GROUP, brings rows with equal keys beside one another.
//
// Rows is frame::Partition. part_of(key) gives 0 … parts-1; the families know what it is.
#pragma once
#include "warpmap.cuh"

// Threads of a block: on a GPU, all that a multiprocessor gives 64 registers each.
#if defined(WARPMAP_HOST) || !defined(WARPMAP_PARTITION_THREADS)
static constexpr u32 PARTITION_THREADS = WARPMAP_MAX_THREADS;
#else
static constexpr u32 PARTITION_THREADS = WARPMAP_PARTITION_THREADS;
#endif

// The rows of one tile. A thread takes GROUP rows in a row at once, as many keys as a 16-byte load brings. The last tile
// may lack rows: they are of a part of their own behind all others, so they come last in the tile, and are not
// written. So nothing but loads and writes asks whether a row is there.
template <int KEY, int WIDEST> struct PartitionTile {
    static constexpr u32 THREADS = PARTITION_THREADS;
    static constexpr int FIT = WARPMAP_PARTITION_TILE_BYTES / (int)THREADS / WIDEST;
    static constexpr int EACH = FIT < WARPMAP_PARTITION_EACH ? FIT : WARPMAP_PARTITION_EACH; // of a thread
    static constexpr int GROUP = KEY > 16 ? 1 : 16 / KEY < EACH ? 16 / KEY : EACH;
    static constexpr u32 ROWS = EACH * THREADS, BYTES = ROWS * WIDEST;

    u64 first; // row of the batch
    u32 rows;  // of the tile

    __device__ __forceinline__ PartitionTile(u64 first, u64 n) : first(first), rows(n - first < ROWS ? (u32)(n - first) : ROWS) {}

    // The row of the tile that is a thread's i-th.
    static __device__ __forceinline__ u32 row(int i) {
        return ((u32)(i / GROUP) * THREADS + thread_index()) * GROUP + (u32)(i % GROUP);
    }

    // load reads a thread's rows of a column; those that are not there are 0.
    template <class T> __device__ __forceinline__ void load(u64 column, T (&x)[EACH]) const {
        constexpr int TOGETHER = GROUP * (int)sizeof(T), LOAD = TOGETHER < 16 ? TOGETHER : 16, LOADS = TOGETHER / LOAD;
        typedef typename bits_of<LOAD>::type word;
        const T* from = at<T>(column) + first;
        if (rows == ROWS && (u64)from % LOAD == 0) {
            union {
                word w[EACH / GROUP * LOADS];
                T x[EACH];
            } u;
#pragma unroll
            for (int i = 0; i < EACH / GROUP * LOADS; i++)
                u.w[i] = load_readonly((const word*)(from + row(i / LOADS * GROUP)) + i % LOADS);
#pragma unroll
            for (int i = 0; i < EACH; i++) x[i] = u.x[i];
        } else {
#pragma unroll
            for (int i = 0; i < EACH; i++) x[i] = row(i) < rows ? from[row(i)] : T{};
        }
    }
};

// What a block keeps in shared memory while it counts.
struct PartitionCounts {
    u32 count[WARPMAP_MAX_PARTS + 1];
};

template <class K, class Rows, class Part> __device__ __forceinline__ void partition_count(const Rows& r, Part part_of) {
    typedef PartitionTile<sizeof(K), sizeof(K)> Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    u32 parts = (u32)r.parts;
    for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
    block_sync();
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        tile.load(r.keys, k);
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) add(&count[Tile::row(i) < tile.rows ? part_of(k[i]) : parts], 1u);
    }
    block_sync();
    for (u32 i = thread_index(); i < parts; i += Tile::THREADS)
        if (count[i]) add(at<u64>(r.cursors) + i, (u64)count[i]);
}

// Without Larger one block goes over all parts; with it, each block over those of one larger part.
template <class Rows> __device__ __forceinline__ void partition_scan(const Rows& r) {
    u64 *cursors = at<u64>(r.cursors), *starts = at<u64>(r.starts);
    u64 parts = r.larger ? r.within : r.parts, from = block_index() * parts, before = r.larger ? at<u64>(r.larger)[block_index()] : 0;
    for (u64 first = 0; first < parts; first += block_threads()) {
        u64 i = first + thread_index(), all, rows = i < parts ? cursors[from + i] : 0, start = before + block_scan(rows, all);
        if (i < parts) cursors[from + i] = starts[from + i] = start;
        before += all;
    }
    if (thread_index() == 0 && from + parts == r.parts) starts[r.parts] = before;
}

// A block adds up the rows of the parts within one larger part: Cursors of r.within parts each, into Starts, which are the larger parts' here.
template <class Rows> __device__ __forceinline__ void partition_sum(const Rows& r) {
    const u64* of = at<u64>(r.cursors) + block_index() * r.within;
    u64 rows = 0, all = 0;
    for (u64 i = thread_index(); i < r.within; i += block_threads()) rows += of[i];
    block_scan(rows, all);
    if (thread_index() == 0) at<u64>(r.starts)[block_index()] = all;
}

// The parts of a thread in a scan over all: per of them, PER at most.
struct PartitionScan {
    static constexpr u32 PER = (WARPMAP_MAX_PARTS + PARTITION_THREADS - 1) / PARTITION_THREADS;
    u32 parts, per;
    __device__ __forceinline__ PartitionScan(u32 parts) : parts(parts), per((parts + PARTITION_THREADS - 1) / PARTITION_THREADS) {}
    __device__ __forceinline__ u32 part(u32 j) const { return thread_index() * per + j; }
    __device__ __forceinline__ bool has(u32 j) const { return j < per && part(j) < parts; }
};

// What a block keeps in shared memory while it brings a tile in order.
template <class Tile> struct PartitionShared {
    u128 column[Tile::BYTES / 16]; // of the tile, in order
    u64 base[WARPMAP_MAX_PARTS]; // where the tile's rows of a part go in the output, less where they are in the tile
    u32 count[WARPMAP_MAX_PARTS + 1]; // the tile's rows of a part; then where they begin in it
    u16 part[Tile::ROWS]; // of each row of the tile, in order

    // put brings one column in order, each row at its place; write writes it out.
    template <class T> __device__ __forceinline__ void put(const T (&x)[Tile::EACH], const u32 (&place)[Tile::EACH]) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) ((T*)column)[place[i]] = x[i];
    }
    template <class T> __device__ __forceinline__ void write(u32 rows, T* out) {
#pragma unroll 4
        for (int i = 0; i < Tile::EACH; i++) {
            u32 j = (u32)i * Tile::THREADS + thread_index();
            if (j < rows) out[base[part[j]] + j] = ((const T*)column)[j];
        }
    }
};

// partition_tile brings those rows of a tile in order whose part is below `parts`, and writes them out; part_of gives `parts` for
// others, of which there are none but with OTHERS. Without cursors they stay where the tile is. I is the type of positions, u32 or u64.
template <bool OTHERS, class I, class V, class K, class Rows, class Tile, class Part>
__device__ __forceinline__ void partition_tile(PartitionShared<Tile>& shared, const Rows& r, const Tile& tile, const K (&k)[Tile::EACH], u32 parts,
                                               u64* cursors, Part part_of) {
    constexpr int EACH = Tile::EACH;
    PartitionScan s(parts);
    for (u32 i = thread_index(); i <= parts; i += Tile::THREADS) shared.count[i] = 0;
    block_sync();

    u32 place[EACH]; // the part, and above it the rank among the tile's rows of that part; then the place in the tile
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 part = Tile::row(i) < tile.rows ? part_of(k[i]) : parts;
        place[i] = part | add(&shared.count[part], 1u) << 16;
    }
    block_sync();

    u32 x[PartitionScan::PER], mine = 0;
#pragma unroll
    for (u32 j = 0; j < PartitionScan::PER; j++) mine += x[j] = s.has(j) ? shared.count[s.part(j)] : 0;
    u64 all;
    u32 start = (u32)block_scan(mine, all), rows = OTHERS ? (u32)all : tile.rows;
#pragma unroll
    for (u32 j = 0; j < PartitionScan::PER; j++) {
        if (!s.has(j)) continue;
        shared.count[s.part(j)] = start;
        if (x[j]) shared.base[s.part(j)] = cursors ? add(cursors + s.part(j), (u64)x[j]) - start : tile.first;
        start += x[j];
    }
    if (thread_index() == 0) shared.count[parts] = rows;
    block_sync();

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 part = place[i] & 0xffff;
        place[i] = shared.count[part] + (place[i] >> 16);
        shared.part[place[i]] = (u16)part;
    }
    shared.put(k, place);
    V v[EACH]; // asked for before the keys are written out, used after
    if (r.values) tile.load(r.values, v);
    block_sync();
    shared.write(rows, at<K>(r.out_keys));
    if (r.values) {
        block_sync();
        shared.put(v, place);
        block_sync();
        shared.write(rows, at<V>(r.out_values));
    }
    if (r.out_positions) {
        I position[EACH];
        if (r.positions) tile.load(r.positions, position);
        else
#pragma unroll
            for (int i = 0; i < EACH; i++) position[i] = (I)(r.first + tile.first + Tile::row(i));
        block_sync();
        shared.put(position, place);
        block_sync();
        shared.write(rows, at<I>(r.out_positions));
    }
    // The next tile meets at block_sync before it changes what is still read here.
}

// The tiles that columns of these widths are brought in order by.
template <class K, class V, class I = u32> struct PartitionColumns {
    static constexpr int VI = sizeof(V) > sizeof(I) ? sizeof(V) : sizeof(I), WIDEST = (int)sizeof(K) > VI ? (int)sizeof(K) : VI;
    typedef PartitionTile<sizeof(K), WIDEST> Tile;
    typedef PartitionShared<Tile> Shared;
};

template <class K, class V, class I, class Rows, class Part>
__device__ __forceinline__ void partition_scatter(const Rows& r, Part part_of) {
    typedef typename PartitionColumns<K, V, I>::Tile Tile;
    auto& shared = *(PartitionShared<Tile>*)dynamic_shared();
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        tile.load(r.keys, k);
        partition_tile<false, I, V>(shared, r, tile, k, (u32)r.parts, at<u64>(r.cursors), part_of);
    }
}

// Many parts take two passes, for a tile that has few rows of each part would not write streams. Rows that come in the order of larger
// parts, of r.within parts each, are brought in the order of the parts within: a tile has few of the larger parts, mostly one
// or two. It takes as many at once as have no more than WARPMAP_MAX_PARTS parts.
struct PartitionWithin {
    u64 base, end; // parts
    template <class K, class Rows, class Part> __device__ __forceinline__ PartitionWithin(const Rows& r, u64 first, u32 rows, Part part_of, K) {
        const K* keys = at<K>(r.keys) + first;
        base = part_of(keys[0]) / r.within * r.within;
        end = part_of(keys[rows - 1]) / r.within * r.within + r.within;
    }
    template <class Rows> __device__ __forceinline__ u32 parts(const Rows& r) const {
        u64 most = WARPMAP_MAX_PARTS / r.within * r.within;
        return (u32)(end - base < most ? end - base : most);
    }
};

template <class K, class Rows, class Part> __device__ __forceinline__ void partition_within_count(const Rows& r, Part part_of) {
    typedef PartitionTile<sizeof(K), sizeof(K)> Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        tile.load(r.keys, k);
        for (PartitionWithin w(r, first, tile.rows, part_of, K{}); w.base < w.end;) {
            u32 parts = w.parts(r);
            for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
            block_sync();
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) {
                u64 part = Tile::row(i) < tile.rows ? part_of(k[i]) - w.base : parts;
                if (part < parts) add(&count[part], 1u);
            }
            block_sync();
            for (u32 i = thread_index(); i < parts; i += Tile::THREADS)
                if (count[i]) add(at<u64>(r.cursors) + w.base + i, (u64)count[i]);
            w.base += parts;
        }
    }
}

template <class K, class V, class Rows, class Part> __device__ __forceinline__ void partition_within_scatter(const Rows& r, Part part_of) {
    typedef typename PartitionColumns<K, V>::Tile Tile;
    auto& shared = *(PartitionShared<Tile>*)dynamic_shared();
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        tile.load(r.keys, k);
        for (PartitionWithin w(r, first, tile.rows, part_of, K{}); w.base < w.end;) {
            u32 parts = w.parts(r);
            u64 base = w.base;
            partition_tile<true, u32, V>(shared, r, tile, k, parts, at<u64>(r.cursors) + base, [&](K key) {
                u64 part = (u64)part_of(key) - base;
                return part < parts ? (u32)part : parts;
            });
            w.base += parts;
        }
    }
}

// Rows in the order of small parts are dealt out so that blocks have about as many each, and those of a part are together if no more than `most`:
// piece_begins gives where a block's rows begin that are from `row` on, and piece_ends where so many rows end that are from there.
template <class K, class Rows, class Part> __device__ __forceinline__ u64 piece_begins(const Rows& r, u64 row, u64 most, Part part_of, K) {
    if (row >= r.n) return r.n;
    const u64* starts = at<u64>(r.starts) + part_of(at<K>(r.keys)[row]);
    u64 start = starts[0], end = starts[1];
    return start == row || end - start > most ? row : end;
}
template <class K, class Rows, class Part> __device__ __forceinline__ u64 piece_ends(const Rows& r, u64 from, u64 end, u64 most, Part part_of, K) {
    u64 to = from + most;
    if (to >= end) return end;
    u64 start = at<u64>(r.starts)[part_of(at<K>(r.keys)[to])];
    return start > from ? start : to;
}

// partition_group takes rows in the order of small parts, and brings those of a few parts in the order of yet smaller ones, a tile at a time: then of
// rows with one key most are beside one another. place_of(key, n) gives the place of a key among n in the order of parts, however many these are.
template <class K, class V, class Rows, class Place> __device__ __forceinline__ void partition_group(const Rows& r, Place place_of) {
    typedef typename PartitionColumns<K, V>::Tile Tile;
    auto& shared = *(PartitionShared<Tile>*)dynamic_shared();
    auto part_of = [&](K key) { return place_of(key, r.parts); };
    for (u64 row = block_index() * Tile::ROWS; row < r.n; row += grid_blocks() * Tile::ROWS) {
        u64 end = piece_begins(r, row + Tile::ROWS, Tile::ROWS, part_of, K{});
        for (u64 first = piece_begins(r, row, Tile::ROWS, part_of, K{}), to; first < end; first = to) {
            to = piece_ends(r, first, end, Tile::ROWS, part_of, K{});
            Tile tile(first, to);
            K k[Tile::EACH];
            tile.load(r.keys, k);
            u64 base = part_of(at<K>(r.keys)[first]), parts = part_of(at<K>(r.keys)[to - 1]) - base + 1, each = WARPMAP_MAX_PARTS / parts;
            partition_tile<false, u32, V>(shared, r, tile, k, WARPMAP_MAX_PARTS, (u64*)nullptr, [&](K key) {
                return (u32)(each ? place_of(key, r.parts * each) - base * each : (part_of(key) - base) * WARPMAP_MAX_PARTS / parts);
            });
            block_sync();
        }
    }
}

// The entry points of a partition of rows, whose parts part_of(p) tells; P has them as p.rows. I is the type of positions.
#define WARPMAP_PARTITION(P, K, V, I, part_of)                                                                                              \
    WARPMAP_KERNEL_WIDE(partition_count, P, PARTITION_THREADS, PartitionCounts) { partition_count<K>(p.rows, part_of(p)); }                 \
    WARPMAP_KERNEL(partition_scan, P) { partition_scan(p.rows); }                                                                           \
    WARPMAP_KERNEL_WIDE(partition_scatter, P, PARTITION_THREADS, PartitionColumns<K, V, I>::Shared) { partition_scatter<K, V, I>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_WITHIN(P, K, V, part_of)                                                                                               \
    WARPMAP_KERNEL(partition_sum, P) { partition_sum(p.rows); }                                                                                  \
    WARPMAP_KERNEL_WIDE(partition_within_count, P, PARTITION_THREADS, PartitionCounts) { partition_within_count<K>(p.rows, part_of(p)); }        \
    WARPMAP_KERNEL_WIDE(partition_within_scatter, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_within_scatter<K, V>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_GROUP(P, K, V, place_of) \
    WARPMAP_KERNEL_WIDE(partition_group, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_group<K, V>(p.rows, place_of(p)); }
