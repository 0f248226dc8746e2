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

// Threads of a block that counts: one alone may be on a multiprocessor, if it has very many counters.
#if defined(WARPMAP_HOST) || !defined(WARPMAP_PARTITION_COUNT_THREADS)
static constexpr u32 PARTITION_COUNT_THREADS = PARTITION_THREADS;
#else
static constexpr u32 PARTITION_COUNT_THREADS = WARPMAP_PARTITION_COUNT_THREADS;
#endif

// The rows of one tile. A thread takes GROUP rows in a row at once, as many keys as a 16-byte load brings. The last tile
// may lack rows: they are of a part of their own behind all others, so they come last in the tile, and are not
// written. So nothing but loads and writes asks whether a row is there.
template <int KEY, int WIDEST, u32 BLOCK = PARTITION_THREADS> struct PartitionTile {
    static constexpr u32 THREADS = BLOCK;
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
        if (tile.rows == Tile::ROWS) {
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++) add(&count[part_of(k[i])], 1u);
        } else {
#pragma unroll
            for (int i = 0; i < Tile::EACH; i++)
                if (Tile::row(i) < tile.rows) add(&count[part_of(k[i])], 1u);
        }
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

// The parts of a thread in a scan over all: per of them, PER at most.
struct PartitionScan {
    static constexpr u32 PER = (WARPMAP_MAX_PARTS + PARTITION_THREADS - 1) / PARTITION_THREADS;
    u32 parts, per;
    __device__ __forceinline__ PartitionScan(u32 parts) : parts(parts), per((parts + PARTITION_THREADS - 1) / PARTITION_THREADS) {}
    __device__ __forceinline__ u32 part(u32 j) const { return thread_index() * per + j; }
    __device__ __forceinline__ bool has(u32 j) const { return j < per && part(j) < parts; }
};

// What a block keeps in shared memory while it brings a tile in order.
template <class Tile, int KEY, int VALUE> struct PartitionShared {
    u128 keys[(Tile::ROWS * KEY + 15) / 16], values[(Tile::ROWS * VALUE + 15) / 16]; // of the tile, in order
    u32 to[Tile::ROWS];               // where each of these rows goes in the output
    u32 count[WARPMAP_MAX_PARTS + 1]; // the tile's rows of a part; then where they begin in it
    u32 base[WARPMAP_MAX_PARTS + 1];  // where the tile's rows of a part go in the output, less where they are in the tile
    u32 sums[32];                     // of warps

    template <class T> static __device__ __forceinline__ void put(u128* column, const T (&x)[Tile::EACH], const u32 (&place)[Tile::EACH]) {
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) ((T*)column)[place[i]] = x[i];
    }
    // before gives the sum of x over the threads before this one, and over all. Between two calls the block meets once more.
    __device__ __forceinline__ u32 before(u32 x, u32& all) {
        tile<32> warp;
        u32 of_warp, own = warp.scan(x, of_warp), first = thread_index() / 32;
        if (warp.rank() == 31) sums[first] = of_warp;
        block_sync();
        u32 sum = warp.scan((u32)warp.rank() < Tile::THREADS / 32 ? sums[warp.rank()] : 0u, all);
        return own + warp.shuffle(sum, (int)first);
    }
};

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
};
// A thread writes rows of the tile out, in order, that are THREADS apart. ALL: each of them is there. Positions take the place of the values.
template <bool ALL, class K, class V, class I, class Tile, class Shared, class Rows>
__device__ __forceinline__ void partition_write(Shared& shared, const Rows& r, const Tile& tile, u32 rows, const u32 (&place)[Tile::EACH]) {
    u32 to[Tile::EACH];
    PartitionOut<Tile, ALL>::targets(shared.to, rows, to);
    PartitionOut<Tile, ALL>::write(shared.keys, rows, to, at<K>(r.out_keys));
    if (r.values) PartitionOut<Tile, ALL>::write(shared.values, rows, to, at<V>(r.out_values));
    if (!r.out_positions) return;
    I position[Tile::EACH];
    if (r.positions) tile.load(r.positions, position);
    else
#pragma unroll
        for (int i = 0; i < Tile::EACH; i++) position[i] = (I)(r.first + tile.first + Tile::row(i));
    block_sync();
    shared.put(shared.values, position, place);
    block_sync();
    PartitionOut<Tile, ALL>::write(shared.values, rows, to, at<I>(r.out_positions));
}

// partition_tile brings those rows of a tile in order whose part is below `parts`, and writes them out; part_of gives `parts` for
// others, of which there are none but with OTHERS. Without cursors they stay where the tile is. I is the type of positions, u32 or u64.
// ahead(k) is called when the keys are no longer needed, so that others can be asked for.
template <bool OTHERS, class I, class V, class K, class Shared, class Rows, class Tile, class Part, class Ahead>
__device__ __forceinline__ void partition_tile(Shared& shared, const Rows& r, const Tile& tile, K (&k)[Tile::EACH], u32 parts, u64* cursors,
                                               Part part_of, Ahead ahead) {
    constexpr int EACH = Tile::EACH, PER = PartitionScan::PER;
    PartitionScan s(parts);
    for (u32 i = thread_index(); i <= parts; i += Tile::THREADS) shared.count[i] = 0;
    block_sync();

    u32 place[EACH]; // the part, and above it the rank among the tile's rows of that part; then the place in the tile
    if (tile.rows == Tile::ROWS) {
#pragma unroll
        for (int i = 0; i < EACH; i++) place[i] = part_of(k[i]);
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++) place[i] = Tile::row(i) < tile.rows ? part_of(k[i]) : parts;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) place[i] |= add(&shared.count[place[i]], 1u) << 16;
    V v[EACH];
    if (r.values) tile.load(r.values, v);
    block_sync();

    // Room in the parts is asked for before it is known where they begin in the tile.
    u32 x[PER], mine = 0, all;
    u64 cursor[PER];
#pragma unroll
    for (u32 j = 0; j < PER; j++) {
        mine += x[j] = s.has(j) ? shared.count[s.part(j)] : 0;
        cursor[j] = x[j] && cursors ? add(cursors + s.part(j), (u64)x[j]) : tile.first;
    }
    u32 start = shared.before(mine, all), rows = OTHERS ? all : tile.rows;
#pragma unroll
    for (u32 j = 0; j < PER; j++) {
        if (!s.has(j)) continue;
        shared.count[s.part(j)] = start;
        shared.base[s.part(j)] = cursors ? (u32)cursor[j] - start : (u32)tile.first;
        start += x[j];
    }
    if (thread_index() == 0) shared.count[parts] = rows;
    block_sync();

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 part = place[i] & 0xffff;
        place[i] = shared.count[part] + (place[i] >> 16);
        shared.to[place[i]] = shared.base[part] + place[i]; // of others it is not asked for
    }
    shared.put(shared.keys, k, place);
    if (r.values) shared.put(shared.values, v, place);
    ahead(k);
    block_sync();

    if (rows == Tile::ROWS) partition_write<true, K, V, I>(shared, r, tile, rows, place);
    else partition_write<false, K, V, I>(shared, r, tile, rows, place);
    // The next tile meets at block_sync before it changes what is still read here.
}

// The tiles that columns of these widths are brought in order by.
template <class K, class V, class I = u32> struct PartitionColumns {
    static constexpr int VI = sizeof(V) > sizeof(I) ? sizeof(V) : sizeof(I), WIDEST = (int)sizeof(K) > VI ? (int)sizeof(K) : VI;
#if defined(WARPMAP_HOST)
    typedef PartitionTile<sizeof(K), 2 * WIDEST> Tile; // a block has less shared memory
#else
    typedef PartitionTile<sizeof(K), WIDEST> Tile;
#endif
    typedef PartitionShared<Tile, sizeof(K), VI> Shared;
};

// The keys of a block's next tile are asked for before this one is written out.
template <class K, class V, class I, class Rows, class Part>
__device__ __forceinline__ void partition_scatter(const Rows& r, Part part_of) {
    typedef PartitionColumns<K, V, I> Columns;
    typedef typename Columns::Tile Tile;
    auto& shared = *(typename Columns::Shared*)dynamic_shared();
    u64 first = block_index() * Tile::ROWS, next;
    K k[Tile::EACH];
    if (first < r.n) Tile(first, r.n).load(r.keys, k);
    for (; first < r.n; first = next) {
        next = first + grid_blocks() * Tile::ROWS;
        partition_tile<false, I, V>(shared, r, Tile(first, r.n), k, (u32)r.parts, at<u64>(r.cursors), part_of, [&](K(&k)[Tile::EACH]) {
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

template <class K, class Rows, class Part> __device__ __forceinline__ void partition_within_count(const Rows& r, Part part_of) {
    typedef PartitionTile<sizeof(K), sizeof(K), PARTITION_COUNT_THREADS> Tile;
    u32* count = ((PartitionCounts*)dynamic_shared())->count;
    for (u64 first = block_index() * Tile::ROWS; first < r.n; first += grid_blocks() * Tile::ROWS) {
        Tile tile(first, r.n);
        K k[Tile::EACH];
        tile.load(r.keys, k);
        const K* keys = at<K>(r.keys) + first;
        for (PartitionWithin w(r, keys[0], keys[tile.rows - 1], part_of); w.base < w.end;) {
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
    typedef typename Columns::Tile Tile;
    auto& shared = *(typename Columns::Shared*)dynamic_shared();
    u64 first = block_index() * Tile::ROWS, next;
    K k[Tile::EACH], ends[2]; // ends: the first key of a tile, and its last
    auto ask = [&](u64 first) {
        if (first >= r.n) return;
        Tile tile(first, r.n);
        tile.load(r.keys, k);
        ends[0] = at<K>(r.keys)[first];
        ends[1] = at<K>(r.keys)[first + tile.rows - 1];
    };
    ask(first);
    for (; first < r.n; first = next) {
        next = first + grid_blocks() * Tile::ROWS;
        PartitionWithin w(r, ends[0], ends[1], part_of);
        while (w.base < w.end) {
            u32 parts = w.parts(), base = w.base;
            w.base += parts;
            partition_tile<true, u32, V>(shared, r, Tile(first, r.n), k, parts, at<u64>(r.cursors) + base, [&](K key) {
                u32 part = part_of(key) - base;
                return part < parts ? part : parts;
            }, [&](K(&)[Tile::EACH]) {
                if (w.base == w.end) ask(next);
            });
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
            }, [](K(&)[Tile::EACH]) {});
            block_sync();
        }
    }
}

// The entry points of a partition of rows, whose parts part_of(p) tells; P has them as p.rows. I is the type of positions.
#define WARPMAP_PARTITION(P, K, V, I, part_of)                                                                                              \
    WARPMAP_KERNEL_WIDE(partition_count, P, PARTITION_COUNT_THREADS, PartitionCounts) { partition_count<K>(p.rows, part_of(p)); }           \
    WARPMAP_KERNEL(partition_scan, P) { partition_scan(p.rows); }                                                                           \
    WARPMAP_KERNEL_WIDE(partition_scatter, P, PARTITION_THREADS, PartitionColumns<K, V, I>::Shared) { partition_scatter<K, V, I>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_WITHIN(P, K, V, part_of)                                                                                               \
    WARPMAP_KERNEL(partition_sum, P) { partition_sum(p.rows); }                                                                                  \
    WARPMAP_KERNEL_WIDE(partition_within_count, P, PARTITION_COUNT_THREADS, PartitionCounts) { partition_within_count<K>(p.rows, part_of(p)); }  \
    WARPMAP_KERNEL_WIDE(partition_within_scatter, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_within_scatter<K, V>(p.rows, part_of(p)); }

#define WARPMAP_PARTITION_GROUP(P, K, V, place_of) \
    WARPMAP_KERNEL_WIDE(partition_group, P, PARTITION_THREADS, PartitionColumns<K, V>::Shared) { partition_group<K, V>(p.rows, place_of(p)); }
