// Build, stretch by stretch: a block takes the pairs of one stretch of the buckets, plans the stretch's cells, and writes its buckets and
// cells. Rows come in the order of stretches, so memory sees streams alone; what goes at random goes in shared memory.
//
//   count    how many pairs each cell has
//   list     the hashes of the pairs, in the order of cells
//   plan     a code for each cell, large cells first; buckets count how many empty slots they have left
//   write    the pairs, each to the next slot of its bucket; then of equal keys all but one are taken out again
//
// The lists are where the buckets come to lie later. A cell that fits nowhere in the stretch goes into the reserve, which all blocks share:
// it lies in memory, with two counters for each of its buckets. Pairs of a cell that does not fit there either, pairs with reserved keys,
// and those of cells with too many, are left over, and are inserted by the kernels of kernels.cu.
#include "config.h" // struct config: what this table holds
#include "gph.cuh"
#include "items.cuh"
#include "layout.h"

using namespace gph;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef Access<C> A;
typedef tile<32> Warp;
typedef bits_of<2 * sizeof(C::cell)>::type wide; // a cell's code, or NOWHERE

constexpr wide NOWHERE = (wide)~(wide)0;
constexpr u32 OUT = 1u << 31; // of a cell's mark: its pairs are not listed
constexpr u32 SIZES = 128; // of cells, 0 … CELL_PAIRS pairs
constexpr u32 TRIED = C::MAPPINGS < GPH_TRIED ? C::MAPPINGS : GPH_TRIED;

// A ring by numbers within its stretch, or the reserve.
struct Near {
    u32 first, count;
    __device__ __forceinline__ Near(const Ring& r) : first((u32)(r.first - (r.end - r.count))), count((u32)r.count) {}
    __device__ __forceinline__ u32 bucket(u32 v) const {
        u32 b = first + v;
        return b >= count ? b - count : b;
    }
};

// What a block has beside its dynamic shared memory.
struct Stage {
    Fit<C> fit[WARPMAP_MAX_THREADS / 32];
    u32 sizes[SIZES]; // how many cells have so many pairs; then where those begin in the order of sizes
    u32 cells, next; // in that order: how many there are, and which is planned next
    u32 added;
};
static_assert(C::CELL_PAIRS < SIZES, "one for each");

struct Job {
    const stretchParams& p;
    Stage& stage;
    Warp g;
    u32 stretch, n;           // n: the stretch's pairs
    u64 first;                // of all rows, the stretch's first
    u32 cells, buckets, most; // of the stretch; most: as many pairs are listed
    u64 copy;                 // of the stretch's buckets; while cells are planned, their place is that of
    u32* bits;                // the hashes, of
    u32* mark;                // the cells, each with where its pairs end, and
    u32* order;               // the cells by size: where a cell's pairs begin; and behind each, the cell, and how many they are
    u32* free;                // the empty slots of each bucket
    wide* codes;
    static constexpr u32 IN_FLIGHT = 4;

    __device__ __forceinline__ Job(const stretchParams& p, Stage& stage) : p(p), stage(stage), stretch((u32)(p.first + block_index())) {
        const u64* starts = at<u64>(p.starts) + block_index();
        first = load_readonly(starts);
        n = (u32)(load_readonly(starts + 1) - first);
        cells = p.table.stretch_cells;
        buckets = p.table.stretch_buckets;
        most = buckets * C::BUCKET;
        copy = (u64)dynamic_shared();
        bits = (u32*)dynamic_shared();
        mark = bits + most;
        order = mark + cells;
        free = (u32*)((u8*)dynamic_shared() + p.copy_bytes);
        codes = (wide*)(free + buckets);
    }

    // each_row calls act(key, value, whether there is one) for all rows; all lanes of a warp call it together.
    template <bool VALUES, class Act> __device__ __forceinline__ void each_row(Act act) const {
        for (u32 i = thread_index(); (i & ~31u) < n; i += IN_FLIGHT * block_threads()) {
            key k[IN_FLIGHT];
            value v[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads();
                k[j] = row < n ? input_key<C>(p.keys, first + row) : key{};
                v[j] = VALUES && row < n ? input_value<C>(p.values, first + row) : value{};
            }
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) act(k[j], v[j], i + j * block_threads() < n);
        }
    }
    __device__ __forceinline__ u32 cell_in_stretch(const Home<C>& h) const { return h.cell(p.table) - stretch * cells; }

    __device__ __forceinline__ void count() {
        for (u32 i = thread_index(); i < cells; i += block_threads()) mark[i] = 0;
        for (u32 i = thread_index(); i < buckets; i += block_threads()) free[i] = C::BUCKET;
        for (u32 i = thread_index(); i < SIZES; i += block_threads()) stage.sizes[i] = 0;
        if (thread_index() == 0) stage.next = stage.added = 0;
        block_sync();
        each_row<false>([&](key k, value, bool on) {
            Home<C> h(p.table, k);
            if (on && !h.side) add(&mark[cell_in_stretch(h)], 1u);
        });
        block_sync();
        u32 before = 0;
        for (u32 from = 0; from < cells; from += block_threads()) {
            u32 c = from + thread_index(), own = c < cells ? mark[c] : 0;
            bool out = own > C::CELL_PAIRS;
            if (out) own = 0;
            u64 all;
            u32 begin = before + (u32)block_scan(own, all);
            out |= begin + own > most;
            if (c < cells) {
                mark[c] = out ? begin | OUT : begin;
                codes[c] = out ? NOWHERE : 0;
                if (!out && own) add(&stage.sizes[C::CELL_PAIRS - own], 1u);
            }
            before += (u32)all;
        }
        block_sync();
    }

    __device__ __forceinline__ void list() {
        each_row<false>([&](key k, value, bool on) {
            Home<C> h(p.table, k);
            if (!on || h.side) return;
            u32* m = &mark[cell_in_stretch(h)];
            if (!(load_relaxed(m) & OUT)) bits[add(m, 1u)] = h.bits;
        });
        if (thread_index() < 32) { // the sizes add up
            u32 before = 0;
            for (u32 i = thread_index(); i < SIZES; i += 32) {
                u64 all;
                u32 own = stage.sizes[i], begin = before + (u32)g.scan(own, all);
                stage.sizes[i] = begin;
                before += (u32)all;
            }
            if (thread_index() == 0) stage.cells = before;
        }
        block_sync();
        for (u32 c = thread_index(); c < cells; c += block_threads()) {
            u32 begin = c ? mark[c - 1] & ~OUT : 0, own = mark[c] & OUT ? 0 : mark[c] - begin; // all are listed: a cell's pairs end where the next one's begin
            if (!own) continue;
            u32 place = add(&stage.sizes[C::CELL_PAIRS - own], 1u);
            order[2 * place] = begin;
            order[2 * place + 1] = c * SIZES + own;
        }
        block_sync();
    }

    __device__ __forceinline__ void plan() {
        Fit<C>& fit = stage.fit[thread_index() / 32];
        for (;;) {
            u32 i = g.rank() == 0 ? add(&stage.next, 1u) : 0;
            i = g.shuffle(i, 0);
            if (i >= stage.cells) break;
            u32 from = order[2 * i], c = order[2 * i + 1] / SIZES, own = order[2 * i + 1] % SIZES;
            u32 code = plan_cell(fit, c, bits + from, own);
            if (g.rank() == 0) codes[c] = (wide)code;
        }
        block_sync();
    }

    // judge gives the score and offset under which pairs fit best into a ring whose empty slots free_in(v) tells; ~0 if under none.
    template <class Free> __device__ __forceinline__ u32 judge(Fit<C>& fit, u32 mapping, const u32* pairs, u32 own, Free free_in) const {
        g.sync(); // what is there is no longer read
        fit.clear_need(g);
        u32 v = g.rank();
        if (v < C::VIRTUAL) fit.set_free(v, free_in(v));
        g.sync();
#pragma unroll 1
        for (u32 i = g.rank(); i < own; i += 32) fit.add_need(g, virtual_bucket<C>(pairs[i], mapping));
        g.sync();
        return fit.best(g);
    }
    // take calls take_at(v, need) for each bucket v of a ring that pairs go to: it tells whether the bucket had as many slots, and has them
    // then. If any had not, give_back(v, need) is called for those that had.
    template <class Take, class Back> __device__ __forceinline__ bool take(const Fit<C>& fit, u32 offset, Take take_at, Back give_back) const {
        u32 v = g.rank(), need = v < C::VIRTUAL ? fit.need_of((v - offset) & (C::VIRTUAL - 1)) : 0;
        bool missed = need && !take_at(v, need);
        if (!g.any(missed)) return true;
        if (need && !missed) give_back(v, need);
        return false;
    }

    // plan_cell gives a code under which the cell's pairs have their slots; NOWHERE without. The first mapping under which they fit is
    // taken: to compare two costs half as much again, and leaves as many cells over.
    __device__ __forceinline__ u32 plan_cell(Fit<C>& fit, u32 c, const u32* pairs, u32 own) const {
        const Table& t = p.table;
        u32 cell = stretch * cells + c;
#pragma unroll 1
        for (u32 m = 0; m < TRIED; m++) {
            Near r(ring_of<C>(t, cell, stretch, m));
            if (in_reserve<C>(t, m)) break;
            for (u32 attempt = 0; attempt < GPH_PLAN_ATTEMPTS; attempt++) { // others may be faster at a bucket
                u32 x = judge(fit, m, pairs, own, [&](u32 v) {
                    u32 f = load_relaxed(&free[r.bucket(v)]);
                    return (i32)f < 0 ? 0 : f; // another warp took too many, and gives them back
                });
                if (x == ~0u) break;
                u32 offset = x & (C::VIRTUAL - 1);
                if (take(fit, offset,
                         [&](u32 v, u32 need) {
                             u32* f = &free[r.bucket(v)];
                             if ((i32)add(f, 0u - need) >= (i32)need) return true;
                             add(f, need);
                             return false;
                         },
                         [&](u32 v, u32 need) { add(&free[r.bucket(v)], need); }))
                    return m << C::LOG_VIRTUAL | offset;
            }
        }
        return t.reserve ? plan_in_reserve(fit, cell, pairs, own) : (u32)NOWHERE;
    }

    // Equal keys do not go into the reserve: there nobody would take them out again.
    __device__ __forceinline__ bool twice(const u32* pairs, u32 own) const {
        bool met = false;
#pragma unroll 1
        for (u32 a = 0; a + 1 < own; a++)
            for (u32 b = g.rank(); b < own; b += 32) met |= b > a && pairs[a] == pairs[b];
        return g.any(met);
    }
    __device__ __forceinline__ u32 plan_in_reserve(Fit<C>& fit, u32 cell, const u32* pairs, u32 own) const {
        constexpr u32 LAST = C::MAPPINGS - 1;
        if (twice(pairs, own)) return NOWHERE;
        Near r(ring_of<C>(p.table, cell, stretch, LAST));
        u32* used = at<u32>(p.reserve_used);
        for (u32 attempt = 0; attempt < GPH_PLAN_ATTEMPTS; attempt++) {
            u32 x = judge(fit, LAST, pairs, own, [&](u32 v) {
                u32 u = add_in_memory(used + r.bucket(v), 0u); // a load might see what is long past
                return u < C::BUCKET ? C::BUCKET - u : 0;
            });
            if (x == ~0u) break;
            u32 offset = x & (C::VIRTUAL - 1);
            if (take(fit, offset,
                     [&](u32 v, u32 need) {
                         if (add_in_memory(used + r.bucket(v), need) + need <= C::BUCKET) return true;
                         add_in_memory(used + r.bucket(v), 0u - need);
                         return false;
                     },
                     [&](u32 v, u32 need) { add_in_memory(used + r.bucket(v), 0u - need); }))
                return LAST << C::LOG_VIRTUAL | offset;
        }
        return NOWHERE;
    }

    // leave gives a pair to the kernels that come behind. All lanes of the warp call it.
    __device__ __forceinline__ void leave(bool wanted, key k, value v) const {
        u32 all = g.ballot(wanted);
        if (!all) return;
        u32 to = g.rank() == 0 ? add_in_memory(at<u32>(p.left), (u32)popcount(all)) : 0;
        to = g.shuffle(to, 0) + (u32)popcount(all & (1u << g.rank()) - 1);
        if (!wanted || to >= p.left_limit) return; // the host sees that there were too many
        at<key>(p.left_keys)[to] = k;
        output_value<C>(p.left_values, to, v);
    }
    __device__ __forceinline__ void write() {
        u128* to = dynamic_shared();
        for (u32 i = thread_index(); i < buckets * (C::BUCKET * C::SLOT_BYTES / 16); i += block_threads()) to[i] = u128{~0ull, ~0ull};
        block_sync();
        u32 added = 0;
        each_row<true>([&](key k, value v, bool on) {
            Home<C> h(p.table, k);
            u32 code = on && !h.side ? codes[cell_in_stretch(h)] : NOWHERE;
            leave(on && code == NOWHERE, k, v);
            if (code == NOWHERE) return;
            u32 mapping = code >> C::LOG_VIRTUAL;
            Near r(ring_of<C>(p.table, h.cell(p.table), stretch, mapping));
            u32 b = r.bucket((virtual_bucket<C>(h.bits, mapping) + code) & (C::VIRTUAL - 1));
            if (in_reserve<C>(p.table, mapping)) {
                u64 slot = (p.table.main + b) * C::BUCKET + add_in_memory(at<u32>(p.reserve_used) + r.count + b, 1u);
                put_in_memory(slot, k, v);
                added++;
                return;
            }
            A::put(copy, b * C::BUCKET + C::BUCKET - 1 - add(&free[b], 1u), k, v); // those that are left empty come last
        });
        block_sync();
        for (u32 b = thread_index(); b < buckets; b += block_threads()) added += settle(b);
        if (added) add(&stage.added, added);
        block_sync();
    }
    __device__ __forceinline__ void put_in_memory(u64 slot, key k, value v) const {
        if constexpr (!C::PACKED) *A::value_at(p.table.buckets, 0, slot) = v;
        *A::word_at(p.table.buckets, slot) = A::pack(k, v);
    }

    // settle takes equal keys out of a bucket, but for one, and tells how many pairs are left.
    __device__ __forceinline__ u32 settle(u32 b) const {
        View<C, 1, C::BUCKET> w;
        w.load(true, copy + b * (C::BUCKET * C::SLOT_BYTES), 0);
        u32 pairs = 0;
        for (u32 i = 0; i < C::BUCKET; i++) pairs += A::key_of(w.w[i]) != C::EMPTY;
        bool met = false;
#pragma unroll
        for (u32 j = 1; j < C::BUCKET; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) met |= (A::key_of(w.w[i]) == A::key_of(w.w[j])) & (A::key_of(w.w[j]) != C::EMPTY);
        if (!met) return pairs;
        for (u32 j = 1; j < pairs;) {
            u64 slots = copy + b * (C::BUCKET * C::SLOT_BYTES);
            key k = A::key_of(load_relaxed(A::word_at(slots, j)));
            u32 i = 0;
            while (i < j && A::key_of(load_relaxed(A::word_at(slots, i))) != k) i++;
            if (i == j) {
                j++;
                continue;
            }
            pairs--;
            if (j < pairs) {
                typename A::word last = load_relaxed(A::word_at(slots, pairs));
                A::put(slots, j, A::key_of(last), A::load_value(slots, 0, pairs, last));
            }
            A::clear(slots, pairs);
        }
        return pairs;
    }

    __device__ __forceinline__ void store() const {
        const u128* from = dynamic_shared();
        constexpr u32 BYTES = C::BUCKET * C::SLOT_BYTES;
        u128* to = at<u128>(p.table.buckets + (u64)stretch * buckets * BYTES);
        for (u32 i = thread_index(); i < buckets * (BYTES / 16); i += block_threads()) to[i] = from[i];
        C::cell* to_cells = at<C::cell>(p.table.cells) + stretch * cells;
        for (u32 i = thread_index(); i < cells; i += block_threads()) to_cells[i] = codes[i] == NOWHERE ? 0 : (C::cell)codes[i];
        if (thread_index() == 0 && stage.added) add_to_memory(&counters(p.table)->inserted, (u64)stage.added);
    }
};
static_assert(sizeof(Stage) + 1024 <= GPH_STRETCH_FIXED, "beside what block-wide functions have");

WARPMAP_KERNEL_RESIDENT(build_stretch, stretchParams, GPH_STRETCH_BLOCKS) {
    __shared__ Stage stage;
    Job job(p, stage);
    if (!job.n) return;
    job.count();
    job.list();
    job.plan();
    job.write();
    job.store();
}
