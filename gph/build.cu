// Build: the bulk construction of a table from a set of pairs.
//
//   partition_*  pairs in the order of stretches of cells, so that what follows works in the L2 cache
//   rank_pairs   counts the pairs of each cell, and numbers them
//   start_cells  where each cell's pairs begin
//   sort_pairs   pairs in the order of their cells
//   plan_cells   gives each cell a code under which its pairs fit, large cells first; counts what is in each bucket
//   write_pairs  puts the pairs into their buckets
//
// Pairs that this cannot place go to a list, and from there through the insert kernels.
#include "config.h" // struct config: what this table holds
#include "gph.cuh"
#include "items.cuh"
#include "layout.h"
#include "partition.cuh"

using namespace gph;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef tile<GPH_BUILD_GROUP> Group;

__device__ __forceinline__ auto stretch_of(const buildParams& p) {
    return [&](key k) {
        u64 h = hash64<C::HASH>(C::alias(k, C::marks(k)), p.table.seed);
        return ((u32)((h >> 32) * p.stretches >> 32) >> p.shift) - (u32)p.rows.from;
    };
}
WARPMAP_PARTITION(buildParams, key, value, u32, stretch_of)
WARPMAP_PARTITION_WITHIN(buildParams, key, value, stretch_of)
WARPMAP_PARTITION_SOME(buildParams, key, value, stretch_of)

// leave puts pairs on the list of those that are inserted afterwards. All lanes of the warp come.
__device__ __forceinline__ void leave(const buildParams& p, bool wanted, key k, value v) {
    u64 to = append(&counters(p.table)->refused, wanted);
    if (!wanted || to >= p.left_limit) return; // the host sees that there were too many
    at<key>(p.left_keys)[to] = k;
    at<value>(p.left_values)[to] = v;
}

WARPMAP_KERNEL(rank_pairs, buildParams) {
    FOR_EACH_ITEM_IN_ORDER(i, p.n, p.span) {
        bool on = i < end_;
        key k = on ? input_key<C>(p.keys, i) : 0;
        Home<C> h(p.table, k);
        u32 rank = on && !h.side ? add(at<u32>(p.counts) + h.cell(p.table), 1u) : 0;
        bool out = on && (h.side || rank >= C::CELL_PAIRS);
        if (on) at<u8>(p.ranks)[i] = out ? GPH_NO_RANK : (u8)rank;
        leave(p, out, k, out ? input_value<C>(p.values, i) : value{});
    }
}

WARPMAP_KERNEL(start_cells, buildParams) {
    constexpr int EACH = GPH_START_EACH;
    u64 first = (block_index() * block_threads() + thread_index()) * EACH;
    u32 n[EACH];
    u64 mine = 0, all;
    for (int j = 0; j < EACH; j++) {
        n[j] = first + j < p.table.cell_count ? at<u32>(p.counts)[first + j] : 0;
        if (n[j] > C::CELL_PAIRS) n[j] = C::CELL_PAIRS;
        mine += n[j];
    }
    u64 before = block_scan(mine, all);
    __shared__ u64 base;
    if (thread_index() == 0) base = add(&counters(p.table)->exported, all);
    block_sync();
    before += base;
    for (int j = 0; j < EACH; j++) {
        if (first + j >= p.table.cell_count) break;
        at<u32>(p.counts)[first + j] = n[j];
        at<u32>(p.starts)[first + j] = (u32)before;
        before += n[j];
    }
}

WARPMAP_KERNEL(sort_pairs, buildParams) {
    FOR_EACH_ITEM_IN_ORDER(i, p.n, p.span) {
        if (i >= end_) continue;
        u32 rank = at<u8>(p.ranks)[i];
        if (rank == GPH_NO_RANK) continue;
        key k = input_key<C>(p.keys, i);
        u64 to = (u64)load_readonly(at<u32>(p.starts) + Home<C>(p.table, k).cell(p.table)) + rank;
        Access<C>::put(p.sorted, to, k, input_value<C>(p.values, i));
    }
}

// What a group notes of the cell that it plans.
struct Plan {
    u32 bits[C::CELL_PAIRS];
    u32 marks[GPH_MARKS / 32]; // a bit for each pair, by its hash: equal keys meet there
    Fit<C> fit;
};

__device__ __forceinline__ key sorted_key(const buildParams& p, u64 i) { return Access<C>::key_of(load_relaxed(Access<C>::word_at(p.sorted, i))); }
__device__ __forceinline__ value sorted_value(const buildParams& p, u64 i) {
    return Access<C>::load_value(p.sorted, 0, i, load_relaxed(Access<C>::word_at(p.sorted, i)));
}

// The used slots of each bucket, a byte each, four in a word.
__device__ __forceinline__ u32* used_word(const buildParams& p, u64 bucket) { return at<u32>(p.used) + bucket / 4; }
__device__ __forceinline__ u32 used_shift(u64 bucket) { return (u32)(bucket & 3) * 8; }

// take adds n used slots to a bucket, if it has them.
__device__ __forceinline__ bool take(const buildParams& p, u64 bucket, u32 n) {
    u32 *word = used_word(p, bucket), shift = used_shift(bucket), was = load_relaxed(word);
    for (;;) {
        if ((was >> shift & 0xff) + n > C::BUCKET) return false;
        u32 now = cas(word, was, was + (n << shift));
        if (now == was) return true;
        was = now;
    }
}

// drop_again takes pairs out of a cell whose key it has twice, and gives how many are left.
__device__ __forceinline__ u32 drop_again(const buildParams& p, Group g, Plan& w, u32 cell, u32 start, u32 n) {
    constexpr int H = Group::LANES;
    u32 kept = 0; // of the pairs before this row of H, and moved up
    for (u32 row = 0; row < n; row += H) {
        u32 i = row + g.rank();
        bool again = i >= n;
        key k = 0;
        value v{};
        u32 bits = 0;
        if (!again) {
            k = sorted_key(p, start + i);
            v = sorted_value(p, start + i);
            bits = w.bits[i];
            for (u32 a = 0; a < i && !again; a++) {
                if (a == kept) a = row; // what lies between was moved or dropped
                if (a < i && w.bits[a] == bits) again = sorted_key(p, start + a) == k;
            }
        }
        u32 stay = g.ballot(!again), to = kept + popcount(stay & (1u << g.rank()) - 1);
        g.sync();
        if (!again && to < i) {
            w.bits[to] = bits;
            Access<C>::put(p.sorted, start + to, k, v);
        }
        kept += popcount(stay);
        g.sync();
    }
    if (g.rank() == 0) at<u32>(p.counts)[cell] = kept | GPH_PLANNED;
    return kept;
}

// count_need counts the cell's pairs in each virtual bucket.
__device__ __forceinline__ void count_need(Group g, Plan& w, u32 mapping, u32 n) {
    g.sync(); // the last count is no longer read
    w.fit.clear_need(g);
    g.sync();
    for (u32 i = g.rank(); i < n; i += Group::LANES) w.fit.add_need(g, virtual_bucket<C>(w.bits[i], mapping));
    g.sync();
}

// plan_cell looks for a code under which the cell's pairs fit what is left of the buckets, and takes the slots.
__device__ __forceinline__ void plan_cell(const buildParams& p, Group g, Plan& w, u32 cell, u32 start, u32 n) {
    constexpr int H = Group::LANES;
    const Table& t = p.table;
    g.sync();
    for (u32 i = g.rank(); i < GPH_MARKS / 32; i += H) w.marks[i] = 0;
    g.sync();
    bool met = false;
    for (u32 i = g.rank(); i < n; i += H) {
        u32 bits = Home<C>(t, sorted_key(p, start + i)).bits, mark = bits % GPH_MARKS;
        w.bits[i] = bits;
        u32* word = &w.marks[mark / 32];
        u32 one = 1u << mark % 32, was;
        if constexpr (H == 1) {
            was = *word;
            *word |= one;
        } else was = or_of(word, one);
        met |= (was & one) != 0;
    }
    g.sync();
    if (g.any(met)) { // by chance, mostly
        met = false;
        for (u32 a = 0; a + 1 < n; a++)
            for (u32 b = g.rank(); b < n; b += H) met |= b > a && w.bits[a] == w.bits[b];
        if (g.any(met)) n = drop_again(p, g, w, cell, start, n);
    }
    for (u32 attempt = 0; attempt < GPH_PLAN_ATTEMPTS; attempt++) {
        u32 best = ~0u, code = ~0u;
        for (u32 m = 0; m < C::MAPPINGS && (code == ~0u || m < p.mappings && m + 1 < C::MAPPINGS); m++) {
            Ring r = ring_of<C>(t, cell, cell / t.stretch_cells, m);
            g.sync();
            for (u32 v = g.rank(); v < C::VIRTUAL; v += H) {
                u64 b = r.bucket(v);
                w.fit.set_free(v, C::BUCKET - (load_relaxed(used_word(p, b)) >> used_shift(b) & 0xff));
            }
            count_need(g, w, m, n);
            u32 x = w.fit.best(g);
            if (x >= best || x >> C::LOG_VIRTUAL >= best >> C::LOG_VIRTUAL) continue;
            best = x;
            code = m << C::LOG_VIRTUAL | (x & (C::VIRTUAL - 1));
        }
        if (code == ~0u) break;
        // The slots are taken bucket by bucket; if another group was faster at one, all are given back.
        u32 m = code >> C::LOG_VIRTUAL, offset = code & (C::VIRTUAL - 1);
        Ring r = ring_of<C>(t, cell, cell / t.stretch_cells, m);
        if (p.mappings > 1) count_need(g, w, m, n);
        u32 missed = ~0u; // the first virtual bucket of this lane that had no room
        for (u32 v = g.rank(); v < C::VIRTUAL && missed == ~0u; v += H)
            if (w.fit.need_of(v) && !take(p, r.bucket((v + offset) & (C::VIRTUAL - 1)), w.fit.need_of(v))) missed = v;
        if (!g.any(missed != ~0u)) {
            if (g.rank() == 0) store_relaxed(cell_at<C>(t, cell), (typename C::cell)code);
            return;
        }
        for (u32 v = g.rank(); v < C::VIRTUAL && v < missed; v += H) {
            u64 b = r.bucket((v + offset) & (C::VIRTUAL - 1));
            if (w.fit.need_of(v)) add(used_word(p, b), 0u - (w.fit.need_of(v) << used_shift(b)));
        }
    }
    if (g.rank() == 0) at<u32>(p.counts)[cell] = n | GPH_UNPLACED;
}

// plan takes the cells that have p.least … p.most-1 pairs.
WARPMAP_KERNEL(plan_cells, buildParams) {
    constexpr int H = Group::LANES;
#if defined(WARPMAP_HOST)
    Plan w;
#else
    __shared__ Plan shared[WARPMAP_MAX_THREADS / H];
    Plan& w = shared[thread_index() / H];
#endif
    Group g;
    u64 cells = p.table.cell_count;
    for (u64 first = grid_thread() / H * H; first < cells; first += grid_threads()) {
        u64 c = first + g.rank();
        u32 n = c < cells ? load_relaxed(at<u32>(p.counts) + c) : 0, start = c < cells ? load_readonly(at<u32>(p.starts) + c) : 0;
        for (u32 todo = g.ballot(n >= p.least && n < p.most); todo; todo &= todo - 1) {
            int j = lowest_bit(todo);
            plan_cell(p, g, w, (u32)first + j, g.shuffle(start, j), g.shuffle(n, j));
        }
    }
}

// write is given to groups as plan is; a pair takes the last of its bucket's slots that are still to be filled.
WARPMAP_KERNEL(write_pairs, buildParams) {
    constexpr int H = Group::LANES;
    const Table& t = p.table;
    Group g;
    u64 cells = t.cell_count, written = 0;
    for (u64 first = grid_thread() / H * H; (first & ~31ull) < cells; first += grid_threads()) {
        u64 c = first + g.rank();
        u32 count = c < cells ? at<u32>(p.counts)[c] : 0, start = c < cells ? at<u32>(p.starts)[c] : 0;
        u32 code = count ? (u32)load_relaxed(cell_at<C>(t, (u32)c)) : 0;
        for (int j = 0; j < H; j++) {
            u32 n = g.shuffle(count, j), from = g.shuffle(start, j), cell_code = g.shuffle(code, j);
            bool unplaced = n & GPH_UNPLACED;
            n &= ~(GPH_UNPLACED | GPH_PLANNED);
            for (u32 i = g.rank(); (i & ~31u) < n; i += H) {
                bool on = i < n;
                key k = on ? sorted_key(p, from + i) : 0;
                value v = on ? sorted_value(p, from + i) : value{};
                leave(p, on && unplaced, k, v);
                if (!on || unplaced) continue;
                u64 b = bucket_of<C>(t, Home<C>(t, k), cell_code);
                u32 slot = (add(used_word(p, b), 0u - (1u << used_shift(b))) >> used_shift(b) & 0xff) - 1;
                Access<C>::put(t.buckets, b * C::BUCKET + slot, k, v);
                written++;
            }
        }
    }
    count_into(&counters(t)->inserted, written);
}
