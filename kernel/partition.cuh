// A partition brings rows in the order of their parts: all rows of part 0, then those of part 1, and so on, in any
// order within a part. A row is a key, and as asked a value and the row's position in the input.
//
// Three kernels, entry points of a family's program that WARPMAP_PARTITION makes (launched by Partitioner in internal/frame/partition.go):
//
//   partition_count    adds up how many rows each part has
//   partition_scan     turns that into where each part begins
//   partition_scatter  takes rows tile by tile, brings a tile in order in shared memory, and writes it out
//
// A tile reserves room in a part with one atomic operation, and the rows that it has of a part are neighbours in the
// output: so the memory sees streams, one for each part, and not single rows.
//
// A tile has so many rows of a part that the streams are written in whole sectors, and several blocks are on a multiprocessor, one of which brings its
// tile in order while others read and write. On an H100, with 148 parts, two blocks of 512 threads and 4,096 rows took 0.87 ms for 100 M pairs, and
// one of 1,024 and 8,192 took 1.0. On an H200 the two passes take 0.65 and 0.70 ms as pairs, 0.81 each as columns. Three blocks, which leave a thread
// 40 registers, spill: all of warpcore's insert then does 21.6 G/s, not 28.9.
//
// Three more, partition_within_count, partition_within_scatter and partition_sum, of WARPMAP_PARTITION_WITHIN, make many parts of rows that come in the
// order of fewer. Where a block's shared memory holds a counter for each of the many, partition_count counts these at once, and partition_sum adds
// up the fewer: then nothing is counted twice.
// After them partition_group, of WARPMAP_PARTITION_GROUP, brings rows with equal keys beside one another.
//
// Where not all rows fit memory in order, partition_scatter_some, of WARPMAP_PARTITION_SOME, takes those of a range of parts out of all rows: part_of gives
// a part less r.from, and rows for which that is r.parts or more are left out.
//
// Rows is frame::Partition. part_of(key) gives 0 … parts-1; the families know what it is.
#pragma once
#include "pairs.cuh"
#include "warpmap.cuh"

// WARPMAP_PARTITION_TILE_BYTES is the most shared memory of one column of a tile. A block of 512 threads needs 2.5 times
// that and 12 KiB for the widest tile, that of two columns of 8 bytes: 92, 52 or 32 KiB.
#if !defined(WARPMAP_PARTITION_TILE_BYTES)
#if WARPMAP_SHARED_BYTES >= 96 << 10
#define WARPMAP_PARTITION_TILE_BYTES (1 << 15)
#elif WARPMAP_SHARED_BYTES >= 64 << 10
#define WARPMAP_PARTITION_TILE_BYTES (1 << 14)
#else
#define WARPMAP_PARTITION_TILE_BYTES (1 << 13)
#endif
#endif

// Threads of a block: on a GPU, all that a multiprocessor gives 64 registers each.
#if defined(WARPMAP_HOST) || !defined(WARPMAP_PARTITION_THREADS)
static constexpr u32 PARTITION_THREADS = WARPMAP_MAX_THREADS;
#else
static constexpr u32 PARTITION_THREADS = WARPMAP_PARTITION_THREADS;
#endif

// Of Rows::paired: the rows that come are pairs, at keys; and those that go, at out_keys.
static constexpr u64 PAIRED_IN = 1, PAIRED_OUT = 2;

// Threads of a block that counts: one alone may be on a multiprocessor, if it has very many counters.
#if defined(WARPMAP_HOST) || !defined(WARPMAP_PARTITION_COUNT_THREADS)
static constexpr u32 PARTITION_COUNT_THREADS = PARTITION_THREADS;
#else
static constexpr u32 PARTITION_COUNT_THREADS = WARPMAP_PARTITION_COUNT_THREADS;
#endif

// Threads of a block that counts rows of few parts.
#if defined(WARPMAP_HOST) || !defined(WARPMAP_PARTITION_PAIR_THREADS)
static constexpr u32 PARTITION_PAIR_THREADS = WARPMAP_MAX_THREADS;
#else
static constexpr u32 PARTITION_PAIR_THREADS = WARPMAP_PARTITION_PAIR_THREADS;
#endif

// The rows of one tile. A thread takes GROUP rows in a row at once, as many keys as a 16-byte load brings. The last tile
// may lack rows: they are of a part of their own behind all others, so they come last in the tile, and are not
// written. So nothing but loads and writes asks whether a row is there.
template <int KEY, int WIDEST, u32 BLOCK = PARTITION_THREADS> struct PartitionTile {
    static constexpr u32 THREADS = BLOCK;
    static constexpr int FIT = WARPMAP_PARTITION_TILE_BYTES / (int)THREADS / WIDEST;
    static constexpr int EACH = FIT < 1 ? 1 : FIT < WARPMAP_PARTITION_EACH ? FIT : WARPMAP_PARTITION_EACH; // of a thread
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
    // count adds the tile's rows to the counts of their parts.
    template <class K, class Part>
    __device__ __forceinline__ void count(const K (&k)[EACH], Part& part_of, u32* counts) const {
        if (rows == ROWS) {
#pragma unroll
            for (int i = 0; i < EACH; i++) add(&counts[part_of(k[i])], 1u);
        } else {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (row(i) < rows) add(&counts[part_of(k[i])], 1u);
        }
    }
    // load_if reads those rows alone for which wanted(i); the others are 0.
    template <class T, class Wanted> __device__ __forceinline__ void load_if(u64 column, T (&x)[EACH], Wanted wanted) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] = wanted(i) ? at<T>(column)[first + row(i)] : T{};
    }
};

// partition_rows reads a tile's keys, of a column, or of pairs with their values.
template <class K, class V, class Rows, class Tile>
__device__ __forceinline__ void partition_rows(const Rows& r, const Tile& tile, K (&k)[Tile::EACH], V (&v)[Tile::EACH]) {
    typedef PairedRow<K, V> P;
    if constexpr (P::IS)
        if (r.paired & PAIRED_IN) {
            typename P::word w[Tile::EACH];
            tile.load(r.keys, w);
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) {
                k[i] = P::key(w[i]);
                v[i] = P::value(w[i]);
            }
            return;
        }
    tile.load(r.keys, k);
}
template <class K, class V, class Rows> __device__ __forceinline__ K partition_key(const Rows& r, u64 row) {
    typedef PairedRow<K, V> P;
    if constexpr (P::IS)
        if (r.paired & PAIRED_IN) return P::key(at<typename P::word>(r.keys)[row]);
    return at<K>(r.keys)[row];
}

// What a block keeps in shared memory while it counts.
struct PartitionCounts {
    u32 count[WARPMAP_MAX_PARTS + 1];
};

// The keys of the next tile are asked for before those of this one are counted.
template <class K, class Rows, class Part> __device__ __forceinline__ void partition_count(const Rows& r, Part part_of) {
    typedef PartitionTile<sizeof(K), sizeof(K), PARTITION_COUNT_THREADS> Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    u32 parts = (u32)r.parts;
    u64 first = block_index() * Tile::ROWS, stride = grid_blocks() * Tile::ROWS;
    K k[Tile::EACH];
    if (first < r.n) Tile(first, r.n).load(r.keys, k);
    for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
    block_sync();
    while (first < r.n) {
        Tile tile(first, r.n);
        K next[Tile::EACH];
        first += stride;
        if (first < r.n) Tile(first, r.n).load(r.keys, next);
        tile.count(k, part_of, count);
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) k[i] = next[i];
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

// What a block keeps in shared memory while it brings a tile in order.
template <class Tile, int KEY, int VALUE> struct PartitionShared {
    u128 keys[(Tile::ROWS * KEY + 15) / 16], values[(Tile::ROWS * VALUE + 15) / 16]; // of the tile, in order
    u32 to[Tile::ROWS];               // where each of these rows goes in the output
    u32 count[WARPMAP_MAX_PARTS + 1]; // the tile's rows of a part; 0 between two tiles
    u32 start[WARPMAP_MAX_PARTS + 1]; // where they begin in the tile
    u32 base[WARPMAP_MAX_PARTS + 1];  // where they go in the output, less where they are in the tile

    // begin is for all threads, once.
    __device__ __forceinline__ void begin() {
        for (u32 i = thread_index(); i <= WARPMAP_MAX_PARTS; i += Tile::THREADS) count[i] = 0;
        block_sync();
    }
    static constexpr bool PAIRS = KEY == VALUE && (KEY == 4 || KEY == 8); // may lie in both columns' memory
    // SOME: rows that have no place are left out.
    static constexpr u32 NO_PLACE = ~0u;
    template <bool SOME, class T> static __device__ __forceinline__ void put(u128* column, const T (&x)[Tile::EACH], const u32 (&place)[Tile::EACH]) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++)
            if (!SOME || place[i] != NO_PLACE) ((T*)column)[place[i]] = x[i];
    }
    // place says where the tile's rows of each part begin, in the tile and in the output, in which room for them is taken with one atomic operation. A
    // thread has a part, or several; each warp adds up the parts before its own by itself.
    __device__ __forceinline__ void place(u32 parts, u64 first, u64* cursors) {
        tile<32> warp;
        for (u32 from = thread_index() / 32 * 32; from < parts; from += Tile::THREADS) {
            u32 part = from + (u32)warp.rank(), n = part < parts ? count[part] : 0, before = 0, all;
            u64 room;
            if (cursors && n) room = add(cursors + part, (u64)n); // there when it is asked for
            for (u32 i = (u32)warp.rank(); i < from; i += 32) before += count[i];
            if (from) {
                warp.scan(before, all);
                before = all;
            }
            before += warp.scan(n, all);
            if (part >= parts) continue;
            start[part] = before;
            if (part + 1 == parts) start[parts] = before + n; // all rows that are of a part
            if (!cursors) base[part] = (u32)first;
            else if (n) base[part] = (u32)room - before;
        }
    }
};

// What a thread writes out of a tile in order: rows that are THREADS apart. ALL: the tile is full, so that nothing asks whether a row is there, and all
// are read before one is written.
template <class Tile, bool ALL> struct PartitionOut {
    static __device__ __forceinline__ u32 row(int i) { return (u32)i * Tile::THREADS + thread_index(); }
    static __device__ __forceinline__ void targets(const u32* of, u32 rows, u32 (&to)[Tile::EACH]) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) to[i] = ALL || row(i) < rows ? of[row(i)] : 0;
    }
    template <class T> static __device__ __forceinline__ void write(const u128* column, u32 rows, const u32 (&to)[Tile::EACH], T* out) {
        T x[Tile::EACH];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) x[i] = ((const T*)column)[row(i)];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++)
            if (ALL || row(i) < rows) out[to[i]] = x[i];
    }
    // split writes pairs to two columns.
    template <class P, class K, class V> static __device__ __forceinline__ void split(const u128* pairs, u32 rows, const u32 (&to)[Tile::EACH], K* keys, V* values) {
        typename P::word x[Tile::EACH];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) x[i] = ((const typename P::word*)pairs)[row(i)];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            if (!ALL && row(i) >= rows) continue;
            keys[to[i]] = P::key(x[i]);
            values[to[i]] = P::value(x[i]);
        }
    }
};

// Others are rows of a tile that are of none of the parts in hand. A few have their place behind all others. Many have none: of them the key alone is read,
// and the tile has two columns, and neither pairs nor positions.
enum PartitionOthers { NO_OTHERS, FEW_OTHERS, MANY_OTHERS };

// A thread writes rows of the tile out, in order, that are THREADS apart. ALL: each of them is there. Positions take the place of the values.
template <bool ALL, class K, class V, class I, class Tile, class Shared, class Rows>
__device__ __forceinline__ void partition_write(Shared& shared, const Rows& r, const Tile& tile, u32 rows, const u32 (&place)[Tile::EACH]) {
    u32 to[Tile::EACH];
    PartitionOut<Tile, ALL>::targets(shared.to, rows, to);
    if (Shared::PAIRS && PairedRow<K, V>::IS && r.values) {
        typedef typename PairedRow<K, V>::word word;
        if (r.paired & PAIRED_OUT) PartitionOut<Tile, ALL>::write(shared.keys, rows, to, at<word>(r.out_keys));
        else PartitionOut<Tile, ALL>::template split<PairedRow<K, V>>(shared.keys, rows, to, at<K>(r.out_keys), at<V>(r.out_values));
    } else {
        PartitionOut<Tile, ALL>::write(shared.keys, rows, to, at<K>(r.out_keys));
        if (r.values) PartitionOut<Tile, ALL>::write(shared.values, rows, to, at<V>(r.out_values));
    }
    if (!r.out_positions) return;
    I position[Tile::EACH];
    if (r.positions) tile.load(r.positions, position);
    else
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) position[i] = (I)(r.first + tile.first + Tile::row(i));
    block_sync();
    shared.template put<false>(shared.values, position, place);
    block_sync();
    PartitionOut<Tile, ALL>::write(shared.values, rows, to, at<I>(r.out_positions));
}

// part_at returns the part of a thread's i-th row, which has key k. part_of takes a key or, if it keeps the parts of
// the thread's rows, a key and i.
template <class Part, class K>
__device__ __forceinline__ auto part_at(Part& part_of, K k, int i, int) -> decltype(part_of(k, i)) {
    return part_of(k, i);
}
template <class Part, class K> __device__ __forceinline__ u32 part_at(Part& part_of, K k, int, long) {
    return part_of(k);
}

// partition_tile brings those rows of a tile in order whose part is below `parts`, and writes them out; part_of gives `parts`, or of many others
// more, for others. Without cursors they stay where the tile is. I is the type of positions, u32 or u64.
// The rows' values come with their keys where they are pairs. ahead() is called when k and v are no longer needed, so that others can be asked for.
template <PartitionOthers OTHERS, class I, class V, class K, class Shared, class Rows, class Tile, class Part, class Ahead>
__device__ __forceinline__ void partition_tile(Shared& shared, const Rows& r, const Tile& tile, K (&k)[Tile::EACH], V (&v)[Tile::EACH], u32 parts,
                                               u64* cursors, Part part_of, Ahead ahead) {
    constexpr int EACH = Tile::EACH;
    constexpr bool SOME = OTHERS == MANY_OTHERS;
    u32 place[EACH]; // the part, and above it the rank among the tile's rows of that part; then the place in the tile
    if (tile.rows == Tile::ROWS) {
#pragma unroll
        for (int i = 0; i < EACH; i++) place[i] = part_at(part_of, k[i], i, 0);
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++) place[i] = Tile::row(i) < tile.rows ? part_at(part_of, k[i], i, 0) : parts;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (SOME && place[i] >= parts) place[i] = Shared::NO_PLACE;
        else place[i] |= add(&shared.count[place[i]], 1u) << 16;
    }
    if constexpr (SOME) {
        if (r.values) tile.load_if(r.values, v, [&](int i) { return place[i] != Shared::NO_PLACE; });
    } else if (r.values && !(PairedRow<K, V>::IS && r.paired & PAIRED_IN)) tile.load(r.values, v);
    block_sync();

    shared.place(parts, tile.first, cursors);
    block_sync();
    u32 rows = OTHERS == NO_OTHERS ? tile.rows : shared.start[parts];

    for (u32 i = thread_index(); i <= parts; i += Tile::THREADS) shared.count[i] = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (SOME && place[i] == Shared::NO_PLACE) continue;
        u32 part = place[i] & 0xffff;
        place[i] = shared.start[part] + (place[i] >> 16);
        shared.to[place[i]] = shared.base[part] + place[i]; // of others it is not asked for
    }
    if (!SOME && Shared::PAIRS && PairedRow<K, V>::IS && r.values) {
#pragma unroll
        for (int i = 0; i < EACH; i++) ((typename PairedRow<K, V>::word*)shared.keys)[place[i]] = PairedRow<K, V>::of(k[i], v[i]);
    } else {
        shared.template put<SOME>(shared.keys, k, place);
        if (r.values) shared.template put<SOME>(shared.values, v, place);
    }
    ahead();
    block_sync();

    if constexpr (SOME) {
        for (u32 i = thread_index(); i < rows; i += Tile::THREADS) {
            at<K>(r.out_keys)[shared.to[i]] = ((const K*)shared.keys)[i];
            if (r.values) at<V>(r.out_values)[shared.to[i]] = ((const V*)shared.values)[i];
        }
    } else if (rows == Tile::ROWS) partition_write<true, K, V, I>(shared, r, tile, rows, place);
    else partition_write<false, K, V, I>(shared, r, tile, rows, place);
    // The next tile meets at block_sync before it changes what is still read here.
}

// The tiles that columns of these widths are brought in order by.
template <class K, class V, class I = u32> struct PartitionColumns {
    static constexpr int VI = sizeof(V) > sizeof(I) ? sizeof(V) : sizeof(I), WIDEST = (int)sizeof(K) > VI ? (int)sizeof(K) : VI;
    typedef PartitionTile<sizeof(K), WIDEST> Tile;
    typedef PartitionShared<Tile, sizeof(K), VI> Shared;
    // The same for rows that may come as pairs: a thread takes as many in a row as 16 bytes have of these.
    typedef PartitionTile<(PairedRow<K, V>::IS ? 2 : 1) * (int)sizeof(K), WIDEST> PairTile;
    typedef PartitionShared<PairTile, sizeof(K), VI> PairShared;
};

// The keys of a block's next tile are asked for before this one is written out.
template <PartitionOthers OTHERS, class K, class V, class I, class Rows, class Part>
__device__ __forceinline__ void partition_scatter(const Rows& r, Part part_of) {
    typedef PartitionColumns<K, V, I> Columns;
    typedef typename Columns::Tile Tile;
    auto& shared = *(typename Columns::Shared*)dynamic_shared();
    u64 first = block_index() * Tile::ROWS, next;
    K k[Tile::EACH];
    V v[Tile::EACH];
    shared.begin();
    if (first < r.n) Tile(first, r.n).load(r.keys, k);
    for (; first < r.n; first = next) {
        next = first + grid_blocks() * Tile::ROWS;
        partition_tile<OTHERS, I>(shared, r, Tile(first, r.n), k, v, (u32)r.parts, at<u64>(r.cursors), part_of, [&] {
            if (next < r.n) Tile(next, r.n).load(r.keys, k);
        });
    }
}

// Many parts take two passes, for a tile that has few rows of each part would not write streams. Rows that come in the order of larger
// parts, of r.within parts each, are brought in the order of the parts within: a tile has few of the larger parts, mostly one
// or two. It takes as many at once as have no more than WARPMAP_MAX_PARTS parts.
struct PartitionWithin {
    u32 base, end, within; // parts
    template <class K, class Rows, class Part> __device__ __forceinline__ PartitionWithin(const Rows& r, K first, K last, Part part_of) {
        within = (u32)r.within;
        base = part_of(first) / within * within;
        end = part_of(last) / within * within + within;
    }
    __device__ __forceinline__ u32 parts() const {
        u32 most = WARPMAP_MAX_PARTS / within * within;
        return end - base < most ? end - base : most;
    }
};

// PartitionPairs has the tile for counting rows that may be pairs. A thread has four rows, so it needs few registers,
// and many blocks are resident. With eight rows a thread and 1,024 threads a block, only one block was resident, and an
// H200 took 1.0 ms to count 250 M pairs.
template <class K, class V> struct PartitionPairs {
    static constexpr int ROW = (PairedRow<K, V>::IS ? 2 : 1) * (int)sizeof(K);
    static constexpr int EACH_BYTES = WARPMAP_PARTITION_TILE_BYTES / (int)PARTITION_PAIR_THREADS / 4;
    typedef PartitionTile<ROW, EACH_BYTES, PARTITION_PAIR_THREADS> Tile;
};

template <class K, class V, class Rows, class Part> __device__ __forceinline__ void partition_within_count(const Rows& r, Part part_of) {
    typedef typename PartitionPairs<K, V>::Tile Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        V v[Tile::EACH]; // of pairs, and of no use here
        partition_rows(r, tile, k, v);
        for (PartitionWithin w(r, partition_key<K, V>(r, first), partition_key<K, V>(r, first + tile.rows - 1), part_of); w.base < w.end;) {
            u32 parts = w.parts();
            for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
            block_sync();
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) {
                u32 part = Tile::row(i) < tile.rows ? part_of(k[i]) - w.base : parts;
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
    typedef PartitionColumns<K, V> Columns;
    typedef typename Columns::PairTile Tile;
    auto& shared = *(typename Columns::PairShared*)dynamic_shared();
    u64 first = block_index() * Tile::ROWS, next;
    K k[Tile::EACH], ends[2]; // ends: the first key of a tile, and its last
    V v[Tile::EACH];
    auto ask = [&](u64 first) {
        if (first >= r.n) return;
        Tile tile(first, r.n);
        partition_rows(r, tile, k, v);
        ends[0] = partition_key<K, V>(r, first);
        ends[1] = partition_key<K, V>(r, first + tile.rows - 1);
    };
    shared.begin();
    ask(first);
    for (; first < r.n; first = next) {
        next = first + grid_blocks() * Tile::ROWS;
        PartitionWithin w(r, ends[0], ends[1], part_of);
        while (w.base < w.end) {
            u32 parts = w.parts(), base = w.base;
            w.base += parts;
            partition_tile<FEW_OTHERS, u32>(shared, r, Tile(first, r.n), k, v, parts, at<u64>(r.cursors) + base, [&](K key) {
                u32 part = part_of(key) - base;
                return part < parts ? part : parts;
            }, [&] {
                if (w.base == w.end) ask(next);
            });
        }
    }
}

// Rows can come in chunks. Each chunk has the rows of a range of regions, by which their source has sorted them. The
// rows of a chunk may be in any order; one run in the order of regions is fastest, or a few runs. The kernels sort one
// chunk after the other by small parts, and write the rows of each chunk after those of the chunk before. So the work
// on a chunk begins when its rows are there, and at the end all rows are in the order of parts. A part at the border of
// two chunks has rows of both.
//
// part_of(key) returns the part of a key, and part_of.of(hash) that of a hash; it does not fall as the hash rises. Keys
// that mark slots are in the region of another hash: they go to the nearest part of their chunk.
static constexpr u32 PARTITION_WINDOW = WARPMAP_MAX_PARTS; // parts that a block has counters for at once
struct PartitionChunk {
    u32 first, last; // parts
    template <class Rows, class Part> __device__ __forceinline__ PartitionChunk(const Rows& r, const Part& part_of) {
        first = part_of.of(begin(r.from_region, r.regions));
        last = part_of.of(begin(r.to_region, r.regions) - 1);
    }
    // begin returns the least hash of a region; that of the number of regions is 2^64, which is 0.
    static __device__ __forceinline__ u64 begin(u64 region, u64 regions) {
        return ((region << 32) + regions - 1) / regions << 32;
    }
    __device__ __forceinline__ u32 of(u32 part) const { return part < first ? first : part > last ? last : part; }
};

// PartitionBounds finds the least and the largest part of the rows of a block, turn after turn. A word is reset in the
// turn after it was read, and is written again in the turn after that. Each turn has a block_sync, so no thread still
// reads a word that is reset, and none has written it yet.
struct PartitionBounds {
    u32 least[3], most[3]; // least: its complement
    static constexpr u32 NONE = ~0u;
    __device__ __forceinline__ void begin() { // for all threads, before a block_sync
        if (thread_index() < 3) least[thread_index()] = most[thread_index()] = 0;
    }
    // of replaces low and high, the bounds of a thread's parts, by the bounds of all threads' parts. All threads call
    // it. A thread without parts passes NONE and 0. If no thread has parts, all get these. turn is the number of the
    // call, modulo 3.
    __device__ __forceinline__ void of(u32& low, u32& high, u32& turn) {
        tile<32, true> warp;
        low = warp.min_of(low);
        high = ~warp.min_of(~high);
        if (warp.rank() == 0 && low != NONE) {
            max_of(&least[turn], ~low);
            max_of(&most[turn], high);
        }
        block_sync();
        low = ~least[turn];
        high = most[turn];
        if (thread_index() == 0) least[turn ? turn - 1 : 2] = most[turn ? turn - 1 : 2] = 0;
        turn = turn == 2 ? 0 : turn + 1;
    }
};

// partition_chunk_count counts the rows of a chunk's parts. A block takes consecutive tiles. Most of their rows are in
// a few consecutive parts, the window, which the block counts in shared memory. If the last row of a tile is outside of
// the window, the window moves: on, or back to the beginning of another run of sorted rows. Rows in neither window are
// counted in global memory.
template <class K, class V, class Rows, class Part>
__device__ __forceinline__ void partition_chunk_count(const Rows& r, Part part_of) {
    typedef typename PartitionPairs<K, V>::Tile Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    PartitionChunk chunk(r, part_of);
    u64 tiles = (r.n + Tile::ROWS - 1) / Tile::ROWS, each = (tiles + grid_blocks() - 1) / grid_blocks();
    u64 first = block_index() * each * Tile::ROWS, end = first + each * Tile::ROWS;
    if (end > r.n) end = r.n;
    if (first >= end) return;
    u32 base = 0, parts = 0; // the window
    auto flush = [&] {
        block_sync();
        for (u32 i = thread_index(); i < parts; i += Tile::THREADS)
            if (count[i]) add(at<u64>(r.counts) + base + i, (u64)count[i]);
    };
    auto move = [&](u32 to) {
        flush();
        base = to;
        parts = chunk.last - base < PARTITION_WINDOW ? chunk.last - base + 1 : PARTITION_WINDOW;
        block_sync();
        for (u32 i = thread_index(); i < parts; i += Tile::THREADS) count[i] = 0;
        block_sync();
    };
    auto last_of = [&](u64 first) {
        return partition_key<K, V>(r, first + Tile::ROWS < r.n ? first + Tile::ROWS - 1 : r.n - 1);
    };
    K k[Tile::EACH], next[Tile::EACH], last = last_of(first), last_next{};
    V v[Tile::EACH]; // of pairs, and of no use here
    partition_rows(r, Tile(first, r.n), k, v);
    move(chunk.of(part_of(partition_key<K, V>(r, first))));
    for (; first < end; first += Tile::ROWS) {
        Tile tile(first, r.n);
        if (first + Tile::ROWS < end) {
            partition_rows(r, Tile(first + Tile::ROWS, r.n), next, v);
            last_next = last_of(first + Tile::ROWS);
        }
        u32 others = 0; // rows outside of the window
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) {
            u32 part = part_of(k[i]) - base;
            if (tile.rows < Tile::ROWS && Tile::row(i) >= tile.rows) continue;
            if (part < parts) add(&count[part], 1u);
            else others |= 1u << i;
        }
        u32 to = chunk.of(part_of(last));
        if (to - base >= parts) { // as all threads see
            constexpr u32 MARGIN = PARTITION_WINDOW / 4; // for rows of the tile that come before its last one
            move(to - base - parts < parts ? base + parts : to - chunk.first < MARGIN ? chunk.first : to - MARGIN);
        }
        if (others)
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) {
                if (!(others >> i & 1)) continue;
                u32 part = chunk.of(part_of(k[i]));
                if (part - base < parts) add(&count[part - base], 1u);
                else add(at<u64>(r.counts) + part, (u64)1);
            }
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) k[i] = next[i];
        last = last_next;
    }
    flush();
}

// partition_chunk_scan finds the beginnings of a chunk's parts from their counts; r.first rows come before the chunk.
// Each block takes some of the parts, and adds up the rows of all parts before them. A part that the chunk before has,
// too, began there.
template <class Rows, class Part> __device__ __forceinline__ void partition_chunk_scan(const Rows& r, Part part_of) {
    u64 *counts = at<u64>(r.counts), *cursors = at<u64>(r.cursors), *starts = at<u64>(r.starts);
    PartitionChunk chunk(r, part_of);
    bool begun = r.from_region && part_of.of(PartitionChunk::begin(r.from_region, r.regions) - 1) == chunk.first;
    u64 first = chunk.first + block_index() * block_threads(), i = first + thread_index(), rows = 0, before, all;
    if (first <= chunk.last) {
        for (u64 j = (u64)chunk.first + thread_index(); j < first; j += block_threads()) rows += counts[j];
        block_scan(rows, before);
        rows = i <= chunk.last ? counts[i] : 0;
        u64 start = r.first + before + block_scan(rows, all);
        if (i <= chunk.last) {
            cursors[i] = start;
            if (i != chunk.first || !begun) starts[i] = start;
        }
    }
    if (r.to_region == r.regions && block_index() == 0)
        for (u64 j = (u64)chunk.last + 1 + thread_index(); j <= r.parts; j += block_threads())
            starts[j] = r.first + r.n;
}

template <class Shared> struct PartitionChunkShared {
    Shared tile;
    PartitionBounds bounds;
};

// partition_chunk_scatter writes the rows of a chunk to their parts. A block has cursors for a window of parts; a tile
// whose rows have more parts than that is written in several turns.
template <class K, class V, class Rows, class Part>
__device__ __forceinline__ void partition_chunk_scatter(const Rows& r, Part part_of) {
    typedef PartitionColumns<K, V> Columns;
    typedef typename Columns::PairTile Tile;
    auto& shared = *(PartitionChunkShared<typename Columns::PairShared>*)dynamic_shared();
    PartitionChunk chunk(r, part_of);
    u64 first = block_index() * Tile::ROWS, next;
    u32 turn = 0;
    K k[Tile::EACH];
    V v[Tile::EACH];
    shared.bounds.begin();
    shared.tile.begin();
    if (first < r.n) partition_rows(r, Tile(first, r.n), k, v);
    for (; first < r.n; first = next) {
        next = first + grid_blocks() * Tile::ROWS;
        Tile tile(first, r.n);
        u32 part[Tile::EACH];
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++)
            part[i] = Tile::row(i) < tile.rows ? chunk.of(part_of(k[i])) : PartitionBounds::NONE;
        for (u32 begun = 0, last = 0; begun <= last;) { // parts before begun are done
            u32 base = PartitionBounds::NONE;
            last = 0;
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) {
                if (part[i] == PartitionBounds::NONE || part[i] < begun) continue;
                if (part[i] < base) base = part[i];
                if (part[i] > last) last = part[i];
            }
            shared.bounds.of(base, last, turn);
            u32 parts = last - base < PARTITION_WINDOW ? last - base + 1 : PARTITION_WINDOW;
            begun = base + parts;
            auto in_window = [&](K, int i) {
                u32 of = part[i] - base;
                return of < parts ? of : parts;
            };
            auto ahead = [&] {
                if (begun > last && next < r.n) partition_rows(r, Tile(next, r.n), k, v);
            };
            u64* cursors = at<u64>(r.cursors) + base;
            partition_tile<FEW_OTHERS, u32>(shared.tile, r, tile, k, v, parts, cursors, in_window, ahead);
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
    typedef PartitionColumns<K, V> Columns;
    typedef typename Columns::Tile Tile;
    auto& shared = *(typename Columns::Shared*)dynamic_shared();
    auto part_of = [&](K key) { return place_of(key, r.parts); };
    shared.begin();
    for (u64 row = block_index() * Tile::ROWS; row < r.n; row += grid_blocks() * Tile::ROWS) {
        u64 end = piece_begins(r, row + Tile::ROWS, Tile::ROWS, part_of, K{});
        for (u64 first = piece_begins(r, row, Tile::ROWS, part_of, K{}), to; first < end; first = to) {
            to = piece_ends(r, first, end, Tile::ROWS, part_of, K{});
            Tile tile(first, to);
            K k[Tile::EACH];
            V v[Tile::EACH];
            tile.load(r.keys, k);
            u64 base = part_of(at<K>(r.keys)[first]), parts = part_of(at<K>(r.keys)[to - 1]) - base + 1, each = WARPMAP_MAX_PARTS / parts;
            partition_tile<NO_OTHERS, u32>(shared, r, tile, k, v, WARPMAP_MAX_PARTS, (u64*)nullptr, [&](K key) {
                return (u32)(each ? place_of(key, r.parts * each) - base * each : (part_of(key) - base) * WARPMAP_MAX_PARTS / parts);
            }, [] {});
            block_sync();
        }
    }
}

// The entry points of a partition of rows, whose parts part_of(p) tells; P has them as p.rows. I is the type of positions.
#define WARPMAP_PARTITION(P, K, V, I, part_of)                                                                                              \
    WARPMAP_KERNEL_WIDE(partition_count, P, PARTITION_COUNT_THREADS, PartitionCounts) { partition_count<K>(p.rows, part_of(p)); }           \
    WARPMAP_KERNEL(partition_scan, P) { partition_scan(p.rows); }                                                                           \
    WARPMAP_KERNEL_WIDE(partition_scatter, P, PARTITION_THREADS, PartitionColumns<K, V, I>::Shared) { partition_scatter<NO_OTHERS, K, V, I>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_SOME(P, K, V, part_of)                                                                                                  \
    WARPMAP_KERNEL_WIDE(partition_scatter_some, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_scatter<MANY_OTHERS, K, V, u32>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_WITHIN(P, K, V, part_of)                                                                                               \
    WARPMAP_KERNEL(partition_sum, P) { partition_sum(p.rows); }                                                                                  \
    WARPMAP_KERNEL_WIDE(partition_within_count, P, PARTITION_PAIR_THREADS, PartitionCounts) {                 \
        partition_within_count<K, V>(p.rows, part_of(p));                                                     \
    }                                                                                                         \
    WARPMAP_KERNEL_WIDE(partition_within_scatter, P, PARTITION_THREADS, PartitionColumns<K, V>::PairShared) { partition_within_scatter<K, V>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_CHUNKS(P, K, V, part_of)                                                            \
    WARPMAP_KERNEL_WIDE(partition_chunk_count, P, PARTITION_PAIR_THREADS, PartitionCounts) {                  \
        partition_chunk_count<K, V>(p.rows, part_of(p));                                                      \
    }                                                                                                         \
    WARPMAP_KERNEL_WIDE(partition_chunk_scan, P, PARTITION_COUNT_THREADS, u128) {                             \
        partition_chunk_scan(p.rows, part_of(p));                                                             \
    }                                                                                                         \
    WARPMAP_KERNEL_WIDE(partition_chunk_scatter, P, PARTITION_THREADS,                                        \
                        PartitionChunkShared<PartitionColumns<K, V>::PairShared>) {                           \
        partition_chunk_scatter<K, V>(p.rows, part_of(p));                                                    \
    }

#define WARPMAP_PARTITION_GROUP(P, K, V, place_of) \
    WARPMAP_KERNEL_WIDE(partition_group, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_group<K, V>(p.rows, place_of(p)); }
