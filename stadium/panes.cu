// Tables in host memory. A kernel over the whole table would read it at random, which the bus is slow at: so the rows of a batch are listed by
// the panes that they need (list_…, count_rows, order_rows), and then served pane by pane (…_rows), in place or in a copy of the
// pane. Which is the host's to choose: the addresses of a table's panes say where each is just now.
#include "jobs.cuh"

using namespace stadium;

// A list's entry, for a row that is `on` it. All lanes of a warp come.
__device__ __forceinline__ void put_on_list(const listParams& p, bool on, u64 row, u64 pane) {
    u64 place = append(at<u64>(p.listed), on);
    if (on) at<u64>(p.list)[place] = pane << STADIUM_ROW_BITS | row;
}

// Each warp's rows, 32 at once, with all lanes there: row(i, there).
template <class Row> __device__ __forceinline__ void rows_of_warps(u64 n, Row row) {
    u32 lane = thread_index() & 31;
    for (u64 i = grid_thread() & ~31ull; i < n; i += grid_threads()) row(i + lane, i + lane < n);
}

// Answers what the board and slots in device memory can answer, and lists the other rows.
template <class End> __device__ __forceinline__ void list_far(const listParams& p, End end) {
    const findParams& f = p.find;
    rows_of_warps(f.n, [&](u64 i, bool there) {
        Search<C> s;
        s.begin(f.table, Key<C>::of_batch(f.keys, there ? i : f.n - 1));
        while (s.template round<true>(f.table)) {}
        end(there && !s.far, i, s);
        put_on_list(p, there && s.far, i, pane_of(f.table, s.p.bucket(f.table)));
    });
}
WARPMAP_KERNEL(list_find, listParams) {
    list_far(p, [&](bool on, u64 i, const Search<C>& s) { answer(p.find, on, i, s); });
}
WARPMAP_KERNEL(list_erase, listParams) {
    u32 erased = 0;
    list_far(p, [&](bool on, u64 i, const Search<C>& s) { erased += on && give_back(p.find, i, s); });
    count_erased(p.find.table, erased);
}
// Lists all rows, by their keys' panes.
WARPMAP_KERNEL(list_home, listParams) {
    const findParams& f = p.find;
    rows_of_warps(f.n, [&](u64 i, bool there) {
        Place<C> x(f.table, Key<C>::of_batch(f.keys, there ? i : f.n - 1));
        put_on_list(p, there, i, pane_of(f.table, x.bucket(f.table)));
    });
}

// The panes of a block's rows are counted in shared memory.
constexpr u32 PANES = STADIUM_MAX_PANES, EACH = 8;
WARPMAP_KERNEL(count_rows, listParams) {
    __shared__ u32 count[PANES];
    u32 panes = (u32)p.panes;
    for (u32 i = thread_index(); i < panes; i += block_threads()) count[i] = 0;
    block_sync();
    u64 n = load_relaxed(at<u64>(p.listed));
    for (u64 i = grid_thread(); i < n; i += grid_threads()) add(&count[load_readonly(at<u64>(p.list) + i) >> STADIUM_ROW_BITS], 1u);
    block_sync();
    for (u32 i = thread_index(); i < panes; i += block_threads())
        if (count[i]) add(at<u64>(p.counts) + i, (u64)count[i]);
}
WARPMAP_KERNEL(order_rows, listParams) {
    __shared__ u32 count[PANES];
    __shared__ u64 base[PANES];
    u32 panes = (u32)p.panes;
    u64 n = load_relaxed(at<u64>(p.listed)), tile = (u64)block_threads() * EACH;
    for (u64 first = block_index() * tile; first < n; first += grid_blocks() * tile) {
        for (u32 i = thread_index(); i < panes; i += block_threads()) count[i] = 0;
        block_sync();
        u64 x[EACH];
        u32 rank[EACH];
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            u64 i = first + j * block_threads() + thread_index();
            x[j] = i < n ? load_readonly(at<u64>(p.list) + i) : ~0ull;
            if (i < n) rank[j] = add(&count[x[j] >> STADIUM_ROW_BITS], 1u);
        }
        block_sync();
        for (u32 i = thread_index(); i < panes; i += block_threads())
            if (count[i]) base[i] = add(at<u64>(p.counts) + i, (u64)count[i]);
        block_sync();
#pragma unroll
        for (u32 j = 0; j < EACH; j++)
            if (first + j * block_threads() + thread_index() < n) at<u32>(p.rows)[base[x[j] >> STADIUM_ROW_BITS] + rank[j]] = (u32)x[j];
        block_sync();
    }
}

// The rows of a pane, or of some in a row.
WARPMAP_KERNEL(find_rows, rowsParams) {
    const findParams& f = p.find;
    answer_all(f, p.n, [&](u64 j) { return (u64)load_readonly(at<u32>(p.rows) + j); });
}
WARPMAP_KERNEL(erase_rows, rowsParams) {
    const findParams& f = p.find;
    u32 erased = 0;
    for (u64 j = grid_thread(); j < p.n; j += grid_threads()) {
        u64 i = load_readonly(at<u32>(p.rows) + j);
        erased += give_back(f, i, look_up(f.table, f.keys, i));
    }
    count_erased(f.table, erased);
}
// Each lane has one row: lanes that wait for the bus need no feeding.
template <bool REPLACE> __device__ __forceinline__ void insert_rows(const rowsParams& p) {
    auto row_of = [&](u64 j) { return (u64)load_readonly(at<u32>(p.rows) + j); };
    if constexpr (TOGETHER) insert_together<REPLACE, false>(p.insert, p.n, row_of);
    else {
        InsertJob<REPLACE> job(p.insert);
        for (u64 j = grid_thread(); j < p.n; j += grid_threads()) {
            u64 i = row_of(j);
            if (!job.begin(i, job.load(i))) continue;
            while (job.round(Lane(), true)) {}
            job.done(i);
        }
        job.end();
    }
}
WARPMAP_KERNEL(insert_rows, rowsParams) { insert_rows<true>(p); }
WARPMAP_KERNEL(insert_rows_new, rowsParams) { insert_rows<false>(p); }

// Brings those pairs of some slots into a larger table that belong into one pane there. Panes are filled from the last to the first: so where a
// pair goes on to the next pane, that has all its pairs.
WARPMAP_KERNEL(spread, spreadParams) {
    u64 moved = 0, strayed = 0, failed = 0;
    for (u64 i = p.first + grid_thread(); i < p.last; i += grid_threads()) {
        if (!is_taken<C>(p.table, i)) continue;
        u64 from = slot_at<C>(p.table, i);
        Key<C> k = Key<C>::of(from);
        Place<C> to(p.target, k);
        bool stray = Place<C>(p.table, k).region != i / C::SLOTS >> p.table.shift;
        if (stray ? !p.strays : pane_of(p.target, to.bucket(p.target)) != p.pane) continue;
        if (!stray) {
            u32 home = to.region;
            u64 probes = 0;
            bool in;
            while (!(in = settle_new(p.target, to, k, from, probes)) && probes < p.target.regions << p.target.shift) {
                to.advance(p.target);
                if (to.region < home) break;
            }
            moved += in;
            strayed += in && to.region != home;
            stray = !in;
        }
        if (!stray) continue;
        u64 row = add(&counters(p.target)->exported, (u64)1);
        failed += row >= p.limit;
        if (row >= p.limit) continue;
        copy<C::KEY_BYTES, C::KEY_UNIT>(row_key(p.keys, row), from);
        give_value(row_value(p.values, row), from);
    }
    count_into(&counters(p.target)->pairs, moved);
    count_into(&counters(p.target)->strays, strayed);
    count_into(&counters(p.target)->failed, failed);
}
