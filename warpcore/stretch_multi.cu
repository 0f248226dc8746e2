// Large batches of a multimap, stretch by stretch: see stretch.cu. A row of a multimap looks for no key, so it takes the first free slot of its chain
// with one atomic operation on the window's mark, and nothing is settled in the end. A stretch is whole neighbourhoods, in which the row goes on as far
// as the first turn of its chain does. If there is no room, it is left over: it goes on a list, for insert_left_multi.
//
// The rows of one key want the same slots. Where they are neighbours in the batch they are in neighbouring lanes, so the lanes of a warp go on
// step by step together, and each in a run of lanes with one key takes the slot that is as far on in the key's order as its lane is in the run. All
// these bits are set in the end, by the run or by others, so no slot before a pair stays empty.
//
// insert_stretch_runs is for batches whose keys have several rows each, which are not neighbours. It brings the rows of a stretch in the order of their
// windows first, and in a window mostly by keys. So the rows of a key are in few windows, as a look-up of them all wants, and few lanes want one slot.
// Then eight lanes put the rows of one key that they have at once, into the next eight windows of its chain: each lane reads the mark of one of these.
// insert_stretch_long_runs does so with a whole warp, for keys that have as many rows.
#include "config.h" // struct config: what this table holds
#include "layout.h"
#include "warpcore.cuh"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef Access<C> A;
typedef View<C, 1, C::WINDOW> Window;

constexpr u32 LISTED = WARPCORE_MULTI_LISTED, WINDOW_BYTES = C::WINDOW * C::SLOT_BYTES;

// A window's mark: the slots that are taken, and above them the bits of the overflow filter by which keys have gone past the window.
struct Mark {
    static constexpr u32 ALL = (1u << C::WINDOW) - 1, PAST = 16, PASTS = (1u << C::OVERFLOW_BITS) - 1;
    static constexpr u32 PER_WORD = 32 / C::OVERFLOW_BITS; // windows whose filters are a word of memory
    static_assert(C::WINDOW <= 16 && C::OVERFLOW_BITS <= 16, "both in a word");

    static __device__ __forceinline__ u32 taken(const Window& w) {
        u32 m = 0;
#pragma unroll
        for (u32 i = 0; i < C::WINDOW; i++) m |= (u32)!C::marks(A::key_of(w.w[i])) << i;
        return m;
    }
    // in_order gives some slots in the order of a key: bit i goes to i ^ first, and back.
    static __device__ __forceinline__ u32 in_order(u32 slots, u32 first) {
        const u32 low[] = {0x5555, 0x3333, 0x0f0f, 0x00ff};
#pragma unroll
        for (u32 b = 0; b < 4 && 1u << b < C::WINDOW; b++) {
            u32 swapped = (slots << (1 << b) & ~low[b]) | (slots >> (1 << b) & low[b]);
            if (first >> b & 1) slots = swapped;
        }
        return slots;
    }
    // nth gives the free slot of a mark that is number n in the order of a key; C::WINDOW without.
    static __device__ __forceinline__ u32 nth(u32 mark, u32 first, u32 n) {
        u32 free = ~mark & ALL;
        if ((u32)popcount(free) <= n) return C::WINDOW;
        free = in_order(free, first);
#pragma unroll 1
        for (; n; n--) free &= free - 1;
        return (u32)lowest_bit(free) ^ first;
    }
};

// What a block has in shared memory beside its copy of the stretch, behind which are the marks.
struct Stage {
    u32 left; // rows that found no room, the first of which are listed
    key k[LISTED];
    value v[LISTED];
    u32 base; // where these go in memory
    u32 added, reused, reserved, longest;
};
static_assert(sizeof(Stage) <= LISTED * (C::KEY_BYTES + C::VALUE_BYTES) + WARPCORE_MULTI_BESIDE, "what the host has room for");

// RUN is how many lanes put the rows of a key together, which are sorted first; 0: none, and rows go in as they come.
template <u32 RUN> struct MultiJob {
    static constexpr bool RUNS = RUN > 0;
    const stretchParams& p;
    Stage& stage;
    u64 from, first; // the stretch's first window, and its first row
    u32 windows;
    u64 copy; // of its slots
    u32* marks;
    u16* order; // RUNS: of the first rows, so many as `sorted`
    u32 sorted;
    u32 added, reused, reserved, longest; // by this thread; reserved are rows of the side region, which are only counted; longest is of chains
    u32 around, turn;                     // see Probe
    static constexpr u32 IN_FLIGHT = RUNS ? 2 : 4, PART_SHIFT = 20; // PART_SHIFT: of bits of a hash that no window's order goes by
    key k[IN_FLIGHT]; // rows of this thread
    value v[IN_FLIGHT];

    __device__ __forceinline__ MultiJob(const stretchParams& p, Stage& stage, u64 first)
        : p(p), stage(stage), from(block_index() * p.windows), first(first), copy((u64)dynamic_shared()), added(0), reused(0), reserved(0), longest(0) {
        windows = (u32)(p.table.main.windows - from < p.windows ? p.table.main.windows - from : p.windows);
        marks = (u32*)(copy + p.windows * WINDOW_BYTES);
        order = (u16*)(marks + p.windows);
        sorted = 0;
        Probe<C> any;
        any.windows = p.table.main.windows;
        around = any.around();
        turn = any.turn();
    }
    __device__ __forceinline__ u128* memory() const { return at<u128>(p.table.main.slots + from * WINDOW_BYTES); }
    __device__ __forceinline__ u32 words() const { return windows * (WINDOW_BYTES / 16); }
    // The overflow filters of Mark::PER_WORD windows. A stretch begins with a word, so words are the block's alone.
    __device__ __forceinline__ u32* overflow(u32 window) const {
        return at<u32>(p.table.main.overflow) + (from + window) / Mark::PER_WORD;
    }

    __device__ __forceinline__ void load() {
        u128* to = dynamic_shared();
        const u128* words_of = memory();
        for (u32 i = thread_index(); i < words(); i += block_threads()) to[i] = p.empty ? u128{~0ull, ~0ull} : load_readonly(words_of + i);
        for (u32 i = thread_index(); p.empty && i < windows; i += block_threads()) marks[i] = 0;
        block_sync();
        if (p.empty) return;
        for (u32 i = thread_index(); i < windows; i += block_threads()) {
            Window w;
            w.load(true, copy + i * WINDOW_BYTES, 0);
            u32 past = ~load_readonly(overflow(i)) >> i % Mark::PER_WORD * C::OVERFLOW_BITS & Mark::PASTS;
            marks[i] = Mark::taken(w) | past << Mark::PAST;
        }
        block_sync();
    }
    // store writes the stretch back, and the filters of windows that a key has gone past.
    __device__ __forceinline__ void store() const {
        const u128* words_of = dynamic_shared();
        u128* to = memory();
        for (u32 i = thread_index(); i < words(); i += block_threads()) to[i] = words_of[i];
        for (u32 i = thread_index() * Mark::PER_WORD; i < windows; i += block_threads() * Mark::PER_WORD) {
            u32 past = 0;
            for (u32 j = 0; j < Mark::PER_WORD && i + j < windows; j++)
                past |= (marks[i + j] >> Mark::PAST & Mark::PASTS) << j * C::OVERFLOW_BITS;
            if (past) and_of_memory(overflow(i), ~past);
        }
    }

    // ask asks for the rows that a thread puts at a time: i is the block's first of them.
    __device__ __forceinline__ void ask(u32 i, u32 n) {
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            u32 row = i + j * block_threads() + thread_index();
            k[j] = key{};
            v[j] = value{};
            if (row >= n) continue;
            if (RUNS && row < sorted) row = order[row];
            ordered_row<C>(p.rows, first + row, k[j], v[j]);
        }
    }
    // sort brings the numbers of the first rows in the order of their windows, and in a window by some bits of their keys' hashes, so that those of a
    // key are neighbours, mostly. It counts in the memory of the stretch, which is not there yet.
    __device__ __forceinline__ void sort(u32 n) {
        constexpr u32 EACH = 4; // parts of a window
        static_assert(EACH * sizeof(u32) <= WINDOW_BYTES, "the counters are in the place of the windows");
        u32* counts = (u32*)dynamic_shared();
        const u32 parts = windows * EACH, own = (parts + block_threads() - 1) / block_threads(), from_part = own * thread_index();
        sorted = n < windows * C::WINDOW ? n : windows * C::WINDOW;
        for (u32 i = thread_index(); i < parts; i += block_threads()) counts[i] = 0;
        block_sync();
        auto part_of = [&](u32 row) {
            key k;
            value v;
            ordered_row<C>(p.rows, first + row, k, v);
            if (C::marks(k)) return 0u;
            Probe<C> h(p.table, k);
            return (u32)(h.window - from) * EACH + ((u32)h.hash >> PART_SHIFT) % EACH;
        };
        for (u32 i = thread_index(); i < sorted; i += block_threads()) add(counts + part_of(i), 1u);
        block_sync();
        u64 its = 0, all;
        for (u32 i = from_part; i < from_part + own && i < parts; i++) its += counts[i];
        u32 start = (u32)block_scan(its, all);
        for (u32 i = from_part; i < from_part + own && i < parts; i++) {
            u32 rows = counts[i];
            counts[i] = start;
            start += rows;
        }
        block_sync();
        for (u32 i = thread_index(); i < sorted; i += block_threads()) order[add(counts + part_of(i), 1u)] = (u16)i;
        block_sync();
    }
    // put_all puts all rows, the first of which were asked for.
    __device__ __forceinline__ void put_all(u32 n) {
        for (u32 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            key k_of[IN_FLIGHT];
            value v_of[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                k_of[j] = k[j];
                v_of[j] = v[j];
            }
            if (i + IN_FLIGHT * block_threads() < n) ask(i + IN_FLIGHT * block_threads(), n); // the next come while these are put
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                bool on = i + j * block_threads() + thread_index() < n;
                if constexpr (RUNS) put_runs(on, k_of[j], v_of[j]);
                else put(on, k_of[j], v_of[j]);
            }
        }
    }
    // A row on its way along its chain: `window` of the stretch is number `number` there, from 0 on.
    struct Row {
        u32 window, number, hop, past; // past: the bit of a mark that says that the key has gone past the window
    };
    // pass goes past a window that is full, or will be when those of the run before have their slots; false: the turn ends.
    __device__ __forceinline__ bool pass(Row& row, u32 seen) const {
        if (!(seen & row.past)) or_of(marks + row.window, row.past);
        return further(row);
    }
    __device__ __forceinline__ bool further(Row& row) const {
        row.window = (row.window & ~(around - 1)) | (row.window + row.hop & around - 1);
        return ++row.number < turn;
    }
    // room goes on to a window with room, and gives its mark; Mark::ALL: the turn has none.
    __device__ __forceinline__ u32 room(Row& row) const {
        const u32 passed = Mark::ALL | row.past; // most are, by others with this bit
        for (;;) {
            u32 seen;
            while (((seen = load_relaxed(marks + row.window)) & passed) == passed)
                if (!further(row)) return Mark::ALL;
            if ((seen & Mark::ALL) != Mark::ALL) return seen;
            if (!pass(row, seen)) return Mark::ALL;
        }
    }
    // ordinary counts a row with a reserved key, which does not go in here.
    __device__ __forceinline__ bool ordinary(bool on, key k) {
        bool is = on && C::marks(k);
        reserved += is;
        return on && !is;
    }
    // put puts a row of each lane that is on, or lists it. All lanes of a warp call it, and go on step by step.
    __device__ __forceinline__ void put(bool on, key k, value v) {
        tile<32, true> warp;
        on = ordinary(on, k);
        Probe<C> h(p.table, k);
        Row row{(u32)(h.window - from), 0, h.hop(), 1u << (Mark::PAST + (u32)h.overflow_bit() % C::OVERFLOW_BITS)};
        u32 lane = (u32)warp.rank();
        key before = warp.shuffle(k, lane ? lane - 1 : 0);
        bool same = lane && on && before == k, runs = warp.any(same);
        while (warp.any(on)) {
            u32 seen = on ? room(row) : 0, number = 0;
            if (on && seen == Mark::ALL) {
                list(k, v);
                on = false;
            }
            warp.sync();
            if (runs) { // lanes with one key in one window go by what the first of them sees of the mark; others are runs of their own
                u32 ons = warp.ballot(on), its = warp.shuffle(row.window, lane ? lane - 1 : 0);
                u32 heads = warp.ballot(!(same && on && (ons >> (lane - 1) & 1) && its == row.window));
                u32 head = (u32)highest_bit(heads & (2u << lane) - 1);
                seen = warp.shuffle(seen, (int)head);
                number = lane - head;
            }
            if (on) on = step(row, seen, h.first_slot(), number, k, v);
            warp.sync();
        }
    }
    // step tells whether the row is still to be put: its window has fewer slots than its run, or others took the slot that is its number in the window's order.
    __device__ __forceinline__ bool step(Row& row, u32 seen, u32 first, u32 number, key k, value v) {
        u32 slot = Mark::nth(seen, first, number);
        if (slot == C::WINDOW) {
            if (pass(row, seen)) return true;
            list(k, v);
            return false;
        }
        return !take(row.window, row.number, slot, k, v);
    }
    // take puts a row into a slot, if nobody else took that.
    __device__ __forceinline__ bool take(u32 window, u32 number, u32 slot, key k, value v) {
        if (or_of(marks + window, 1u << slot) >> slot & 1) return false;
        u64 index = (u64)window * C::WINDOW + slot;
        if (!p.empty) reused += A::key_of(load_relaxed(A::word_at(copy, index))) == C::TOMBSTONE;
        A::put(copy, index, k, v);
        added++;
        if (number >= longest) longest = number + 1;
        return true;
    }
    // put_runs is put, by RUN lanes together. The rows of a key that come to the same window are put at once: the first of them into the free slots of that
    // window, the others into those of the next.
    __device__ __forceinline__ void put_runs(bool on, key k, value v) {
        tile<RUN, true> g;
        on = ordinary(on, k);
        Probe<C> h(p.table, k);
        Row row{(u32)(h.window - from), 0, h.hop(), 1u << (Mark::PAST + (u32)h.overflow_bit() % C::OVERFLOW_BITS)};
        u32 rank = (u32)g.rank(), own_order = h.first_slot();
        while (g.any_of_all(on)) {
            u32 pending = g.ballot(on);
            int leader = lowest_bit(pending | 1u << (RUN - 1));
            u32 number = g.shuffle(row.number, leader), past = g.shuffle(row.past, leader), order = g.shuffle(own_order, leader);
            key of = g.shuffle(k, leader);
            bool member = on && k == of && row.number == number;
            u32 members = g.ballot(member), n = (u32)popcount(members), nth = (u32)popcount(members & (1u << rank) - 1);
            // This lane's window of the chain, and how many slots are free up to its end.
            u32 window = g.shuffle(row.window, leader);
            window = (window & ~(around - 1)) | (window + g.shuffle(row.hop, leader) * rank & around - 1);
            u32 mark = pending && number + rank < turn ? load_relaxed(marks + window) : Mark::ALL, free = (u32)popcount(~mark & Mark::ALL), upto = free;
#pragma unroll
            for (u32 d = 1; d < RUN; d *= 2) {
                u32 before = g.shuffle(upto, rank >= d ? rank - d : 0);
                if (rank >= d) upto += before;
            }
            if (n > upto && number + rank < turn && !(mark & past)) or_of(marks + window, past);
            u32 its = 0; // which of the windows is this row's: the first with more slots than rows come before
#pragma unroll
            for (u32 d = RUN / 2; d; d /= 2)
                if (g.shuffle(upto, its + d - 1) <= nth) its += d;
            u32 all = g.shuffle(upto, RUN - 1), its_window = g.shuffle(window, its), its_mark = g.shuffle(mark, its), before = g.shuffle(upto - free, its);
            if (member && nth < all) {
                if (take(its_window, number + its, Mark::nth(its_mark, order, nth - before), k, v)) on = false;
            } else if (member) {
                row.number += RUN;
                row.window = (row.window & ~(around - 1)) | (row.window + row.hop * RUN & around - 1);
                if (row.number >= turn) {
                    list(k, v);
                    on = false;
                }
            }
            g.sync();
        }
    }
    __device__ __forceinline__ void list(key k, value v) {
        u32 n = add(&stage.left, 1u);
        if (n >= LISTED) return leave(add_in_memory(at<u32>(p.left), 1u), k, v);
        stage.k[n] = k;
        stage.v[n] = v;
    }
    // leave gives a row to the kernel that comes behind.
    __device__ __forceinline__ void leave(u32 number, key k, value v) const {
        at<key>(p.left_keys)[number] = k;
        output_value<C>(p.left_values, number, v);
    }
    // leave_listed is for all threads.
    __device__ __forceinline__ void leave_listed() {
        u32 n = stage.left < LISTED ? stage.left : LISTED;
        if (thread_index() == 0 && n) stage.base = add_in_memory(at<u32>(p.left), n);
        block_sync();
        for (u32 i = thread_index(); i < n; i += block_threads()) leave(stage.base + i, stage.k[i], stage.v[i]);
    }
};

template <u32 RUN> __device__ __forceinline__ void insert_rows(const stretchParams& p, Stage& stage) {
    const u64* starts = at<u64>(p.rows.starts) + block_index();
    u64 first = load_readonly(starts);
    u32 n = (u32)(load_readonly(starts + 1) - first);
    if (!n) return;
    if (thread_index() == 0) stage.left = stage.added = stage.reused = stage.reserved = stage.longest = 0;
    MultiJob<RUN> job(p, stage, first);
    if constexpr (RUN > 0) job.sort(n);
    job.ask(0, n);
    job.load();
    job.put_all(n);
    if (job.added) add(&stage.added, job.added);
    if (job.reused) add(&stage.reused, job.reused);
    if (job.reserved) add(&stage.reserved, job.reserved);
    if (job.longest > WARPCORE_PROBES_UNTOLD) max_of(&stage.longest, job.longest);
    block_sync();
    job.leave_listed();
    job.store();
    if (thread_index() != 0) return;
    if (stage.longest) max_of_memory(&counters(p.table)->max_probes, (u64)stage.longest);
    if (stage.added) add_to_memory(&counters(p.table)->inserted, (u64)stage.added);
    if (stage.reused) add_to_memory(&counters(p.table)->reused, (u64)stage.reused);
    if (stage.reserved) add_to_memory(&counters(p.table)->side_failed, (u64)stage.reserved);
}

WARPMAP_KERNEL_RESIDENT(insert_stretch_multi, stretchParams, C::SLOT_BYTES > 8 ? 5 : 6) {
    __shared__ Stage stage;
    insert_rows<0>(p, stage);
}
WARPMAP_KERNEL_RESIDENT(insert_stretch_runs, stretchParams, 5) {
    __shared__ Stage stage;
    insert_rows<8>(p, stage);
}
WARPMAP_KERNEL_RESIDENT(insert_stretch_long_runs, stretchParams, 5) {
    __shared__ Stage stage;
    insert_rows<32>(p, stage);
}
