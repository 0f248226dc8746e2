// Large batches, stretch by stretch: a block takes a stretch of windows, which are whole neighbourhoods, into shared memory, puts those pairs there whose
// first windows lie in it, and writes it back. So memory sees streams alone. A pair for which the first windows of its chain, which are in one
// neighbourhood, have no room is left over: it goes on a list, for a kernel of kernels.cu.
//
// Windows are shared words here that lanes change one at a time: Mark says which slots of a window are taken. A row looks for its key among
// those that were there before, takes the first free slot of its order with one atomic operation, and writes its pair. So rows of one key
// may stand beside one another, until all rows have come: then each window is looked at once, and one pair of a key stays.
//
// Rows that find their window full are listed, and go on together, a window in a round. In each round they see what was settled by the one before: so
// rows of one key go on from the same windows in the same rounds, and none is put into a later window than another.
//
// A row may look at a window while others write into it. It may see their pairs or not: what it asks is whether its key is there from before, and
// if it misses its key among those that come with it, both stand, until the window is settled.
#include "config.h" // struct config: what this table holds
#include "layout.h"
#include "warpcore.cuh"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef Access<C> A;
typedef View<C, 1, C::WINDOW> Window;

constexpr u32 LISTED = WARPCORE_STRETCH_LISTED, WINDOW_BYTES = C::WINDOW * C::SLOT_BYTES;

// A window's mark: the slots that are taken, and above them those that were when it was settled last, or before the batch. Tombstones are free only
// where the window has an empty slot: else the key of a row may stand behind the window.
struct Mark {
    static constexpr u32 ALL = (1u << C::WINDOW) - 1, WAS = 16;
    static_assert(C::WINDOW <= 16, "two in a word");

    static __device__ __forceinline__ u32 begin(const Window& w) {
        u32 keys = 0, empty = 0;
#pragma unroll
        for (u32 i = 0; i < C::WINDOW; i++) {
            key k = A::key_of(w.w[i]);
            empty |= (u32)(k == C::EMPTY) << i;
            keys |= (u32)(k != C::EMPTY && k != C::TOMBSTONE) << i;
        }
        if (!empty) keys = ALL;
        return keys | keys << WAS;
    }
    // nearest gives the first of some slots in the order of a key: the least by their ^ with its first slot.
    static __device__ __forceinline__ u32 nearest(u32 slots, u32 first) {
        const u32 low[] = {0x5555, 0x3333, 0x0f0f, 0x00ff};
#pragma unroll
        for (u32 b = 0; b < 4 && 1u << b < C::WINDOW; b++) {
            u32 swapped = (slots << (1 << b) & ~low[b]) | (slots >> (1 << b) & low[b]);
            if (first >> b & 1) slots = swapped;
        }
        return (u32)lowest_bit(slots) ^ first;
    }
    // take gives a free slot, which is the row's from then on; C::WINDOW without.
    static __device__ __forceinline__ u32 take(u32* mark, u32 first) {
        for (u32 seen = load_relaxed(mark);;) {
            u32 free = ~seen & ALL;
            if (!free) return C::WINDOW;
            u32 slot = nearest(free, first);
            seen = or_of(mark, 1u << slot);
            if (!(seen >> slot & 1)) return slot;
        }
    }
};

// What a block has in shared memory beside its copy of the stretch, behind which are the marks, and with TELLS the position of each slot's row.
template <bool TELLS> struct Stage {
    u32 full; // rows that found their window full, the first of which are listed
    key k[LISTED];
    value v[C::VALUE_BYTES ? LISTED : 1];
    u32 position[TELLS ? LISTED : 1];
    u32 goes_on[C::NEAR]; // whether any row does behind a round
    u32 left, base;       // rows that leave, and where they go
    u32 added, reused, longest; // longest: chain, if it must be told
    __device__ __forceinline__ void begin() { // for all threads
        if (thread_index() < C::NEAR) goes_on[thread_index()] = 0;
        if (thread_index() == 0) full = left = added = reused = longest = 0;
    }
    // end adds to the table's counters. It is for one thread.
    __device__ __forceinline__ void end(const Table& t) const {
        if (added) add_to_memory(&counters(t)->inserted, (u64)added);
        if (reused) add_to_memory(&counters(t)->reused, (u64)reused);
        if (longest) max_of_memory(&counters(t)->max_probes, (u64)longest);
    }
    __device__ __forceinline__ void list(u32 i, key row, value of, u32 from) {
        k[i] = row;
        if constexpr (C::VALUE_BYTES > 0) v[i] = of;
        if constexpr (TELLS) position[i] = from;
    }
    __device__ __forceinline__ u32 listed() const { return full < LISTED ? full : LISTED; }
    __device__ __forceinline__ u32 position_of(u32 i) const { return TELLS ? position[i] : 0; }
    __device__ __forceinline__ value value_of(u32 i) const {
        if constexpr (C::VALUE_BYTES == 0) return value{};
        else return v[i];
    }
    // reserve has room in memory for those that leave, behind others; `to` is the address of how many these are. All threads call it.
    __device__ __forceinline__ void reserve(u64 to) {
        block_sync();
        if (thread_index() == 0 && left) base = add_in_memory(at<u32>(to), left);
        block_sync();
    }
};
static_assert(sizeof(Stage<true>) + 1024 <= LISTED * (C::KEY_BYTES + C::VALUE_BYTES) + WARPCORE_STRETCH_BESIDE,
              "beside what block-wide functions have");

// With TELLS, rows whose keys are new are told so: one of a key, that which stays.
template <bool REPLACE, bool TELLS> struct StretchJob {
    const stretchParams& p;
    Stage<TELLS>& stage;
    u64 from, first; // the stretch's first window, and its first row
    u32 windows;
    u64 copy; // of its slots
    u32 *marks, *rows; // rows: of slots, their positions
    u32 added, reused;
    static constexpr u32 IN_FLIGHT = 4, SLOT_SHIFT = 16; // above a window's number in the stretch
    key k[IN_FLIGHT]; // rows of this thread
    value v[IN_FLIGHT];
    u32 position[IN_FLIGHT];

    __device__ __forceinline__ StretchJob(const stretchParams& p, Stage<TELLS>& stage, u64 first)
        : p(p), stage(stage), from(block_index() * p.windows), first(first), copy((u64)dynamic_shared()), added(0), reused(0) {
        windows = (u32)(p.table.main.windows - from < p.windows ? p.table.main.windows - from : p.windows);
        marks = (u32*)(copy + p.windows * WINDOW_BYTES);
        rows = marks + p.windows;
    }
    __device__ __forceinline__ u128* memory() const { return at<u128>(p.table.main.slots + from * WINDOW_BYTES); }
    __device__ __forceinline__ u32 words() const { return windows * (WINDOW_BYTES / 16); }

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
            marks[i] = Mark::begin(w);
        }
        block_sync();
    }
    __device__ __forceinline__ void store() const {
        const u128* copied = dynamic_shared();
        u128* to = memory();
        for (u32 i = thread_index(); i < words(); i += block_threads()) to[i] = copied[i];
    }

    // there tells whether the key is in the window; then it has the value.
    __device__ __forceinline__ bool there(const Window& w, u32 window, key k, value v) const {
        u32 match = w.matches(k);
        if (match && REPLACE) A::put(copy + window * WINDOW_BYTES, Window::slot(lowest_bit(match), 0), k, v);
        return match != 0;
    }
    __device__ __forceinline__ bool there(u32 window, key k, value v) const {
        Window w;
        w.load(true, copy + window * WINDOW_BYTES, 0);
        return there(w, window, k, v);
    }
    // put puts a row's pair into its first window, and tells whether it is in.
    __device__ __forceinline__ bool put(key k, value v, u32 position) {
        if (C::marks(k)) return false;
        Probe<C> h(p.table, k);
        u32 window = (u32)(h.window - from);
        if (!p.empty && load_relaxed(marks + window) >> Mark::WAS && there(window, k, v)) return true;
        return take(window, h.first_slot(), k, v, position) < C::WINDOW;
    }
    // take puts a pair into a free slot of a window, and gives it; C::WINDOW if there is none.
    __device__ __forceinline__ u32 take(u32 window, u32 first_slot, key k, value v, u32 position) {
        u32 slot = Mark::take(marks + window, first_slot);
        if (slot == C::WINDOW) return slot;
        u64 index = (u64)window * C::WINDOW + slot;
        if (!p.empty) reused += A::key_of(load_relaxed(A::word_at(copy, index))) == C::TOMBSTONE;
        A::put(copy, index, k, v);
        if constexpr (TELLS) rows[index] = position;
        return slot;
    }
    // tell tells the row at a position, or those of some slots of a window, that their keys are new.
    __device__ __forceinline__ void tell(u32 position) const { or_of_memory(at<u32>(p.told) + position / 32, 1u << position % 32); }
    __device__ __forceinline__ void tell(u32 window, u32 slots) const {
        if constexpr (TELLS)
            for (; slots; slots &= slots - 1) tell(rows[window * C::WINDOW + (u32)lowest_bit(slots)]);
    }

    // Rows that find their window full are listed. Those that are too many for the list have a key of which there are many, or belong to a
    // table that is nearly full.
    __device__ __forceinline__ void list(key k, value v, u32 position) {
        u32 n = add(&stage.full, 1u);
        if (n < LISTED) stage.list(n, k, v, position);
        else if (C::marks(k) || !there((u32)(Probe<C>(p.table, k).window - from), k, v)) leave(add_in_memory(at<u32>(p.left), 1u), k, v, position);
    }
    // leave gives a row to the kernel that comes behind, if the list has room for it.
    __device__ __forceinline__ void leave(u32 to, key k, value v, u32 position = 0) const {
        if (to >= p.rows.n) return; // in a growth: the host sees by their number that some are missing
        at<key>(p.left_keys)[to] = k;
        output_value<C>(p.left_values, to, v);
        if constexpr (TELLS) at<u32>(p.left_positions)[to] = position;
    }
    // mark notes that a key goes past a window.
    static __device__ __forceinline__ void mark(const Probe<C>& h) {
        u64 bit = h.overflow_bit();
        and_of_memory(at<u32>(h.overflow) + bit / 32, ~(1u << (bit & 31)));
    }
    // step is a listed row's part in a round: `at` is its window, and number that of its chain. One that has room is taken only where it had when it
    // was settled last, or where the row came to it in this round. TAKES: it has a slot, of which is settled behind the round whether it keeps it.
    // WAITS: for the next round.
    enum Step { IN, TAKES, WAITS, LEAVES };
    __device__ __forceinline__ Step step(u32& at, u32& number, key k, value v, u32 position) {
        Window w;
        w.load(true, copy + at * WINDOW_BYTES, 0);
        if (there(w, at, k, v)) return IN;
        Probe<C> h(p.table, k);
        if (load_relaxed(marks + at) >> Mark::WAS == Mark::ALL) {
            if (!p.empty && w.matches(C::TOMBSTONE)) return LEAVES; // which may be the key's, if it is nowhere behind
            if (number == C::NEAR) return LEAVES;
            h.window = from + at;
            mark(h);
            h.advance(number++);
            at = (u32)(h.window - from);
            if (!p.empty && there(at, k, v)) return IN;
        }
        u32 slot = take(at, h.first_slot(), k, v, position);
        if (slot == C::WINDOW) return WAITS;
        if (number > WARPCORE_PROBES_UNTOLD) max_of(&stage.longest, number);
        at |= slot << SLOT_SHIFT;
        return TAKES;
    }
    // go_on takes the listed rows on along their chains, and gives away those that are not in. It is for all threads.
    __device__ __forceinline__ void go_on() {
        constexpr u32 OWN = LISTED / WARPCORE_STRETCH_THREADS;
        static_assert(LISTED % WARPCORE_STRETCH_THREADS == 0, "each thread has as many");
        u32 n = stage.listed(), at[OWN], number[OWN];
        Step is[OWN];
        if (!n) return;
#pragma unroll
        for (u32 j = 0; j < OWN; j++) {
            u32 i = j * WARPCORE_STRETCH_THREADS + thread_index();
            is[j] = i >= n ? IN : C::marks(stage.k[i]) ? LEAVES : WAITS;
            at[j] = is[j] == WAITS ? (u32)(Probe<C>(p.table, stage.k[i]).window - from) : 0;
            number[j] = 1;
        }
        for (u32 round = 0; round < C::NEAR; round++) {
            bool waits = false;
#pragma unroll
            for (u32 j = 0; j < OWN; j++) {
                u32 i = j * WARPCORE_STRETCH_THREADS + thread_index();
                if (is[j] == WAITS) is[j] = step(at[j], number[j], stage.k[i], stage.value_of(i), stage.position_of(i));
                waits |= is[j] == WAITS;
            }
            if (waits) store_relaxed(&stage.goes_on[round], 1u);
            block_sync();
#pragma unroll
            for (u32 j = 0; j < OWN; j++) {
                if (is[j] != TAKES) continue;
                is[j] = IN;
                settle_of(at[j] & (1u << SLOT_SHIFT) - 1, at[j] >> SLOT_SHIFT);
            }
            block_sync();
            if (!stage.goes_on[round]) break;
        }
        u32 to[OWN];
#pragma unroll
        for (u32 j = 0; j < OWN; j++)
            if (is[j] != IN) to[j] = add(&stage.left, 1u);
        stage.reserve(p.left);
#pragma unroll
        for (u32 j = 0; j < OWN; j++) {
            u32 i = j * WARPCORE_STRETCH_THREADS + thread_index();
            if (is[j] != IN) leave(stage.base + to[j], stage.k[i], stage.value_of(i), stage.position_of(i));
        }
    }

    // ask asks for the rows that a thread puts at a time: i is the block's first of them.
    __device__ __forceinline__ void ask(u32 i, u32 n) {
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            u32 row = i + j * block_threads() + thread_index();
            k[j] = key{};
            v[j] = value{};
            if (row < n) ordered_row<C>(p.rows, first + row, k[j], v[j]);
            if constexpr (TELLS) position[j] = row < n ? load_readonly(at<u32>(p.rows.positions) + first + row) : 0;
            else position[j] = 0;
        }
    }
    // put_all puts all rows, the first of which were asked for. The lanes of a warp meet behind each row of theirs: lanes that go different ways, as those
    // do that find a window full, would not come together again by themselves, and take twice the time.
    __device__ __forceinline__ void put_all(u32 n) {
        tile<32, true> warp;
        for (u32 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            if (i) ask(i, n);
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                bool full = i + j * block_threads() + thread_index() < n && !put(k[j], v[j], position[j]);
                warp.sync();
                if (full) list(k[j], v[j], position[j]);
                warp.sync();
            }
        }
    }

    // settle leaves one pair of each key in every window.
    __device__ __forceinline__ void settle() {
        for (u32 i = thread_index(); i < windows; i += block_threads()) {
            u32 mark = load_relaxed(marks + i), fresh = mark & ~(mark >> Mark::WAS) & Mark::ALL;
            if (fresh) settle_one(i, mark >> Mark::WAS, fresh);
        }
    }
    // settle_of does so in one window, for the row that has the first of its fresh slots. Once it has, none is fresh.
    __device__ __forceinline__ void settle_of(u32 window, u32 slot) {
        u32 mark = load_relaxed(marks + window), fresh = mark & ~(mark >> Mark::WAS) & Mark::ALL;
        if (fresh && (u32)lowest_bit(fresh) == slot) settle_one(window, mark >> Mark::WAS, fresh);
    }
    __device__ __forceinline__ void settle_one(u32 i, u32 was, u32 fresh) {
        if (fresh & fresh - 1) fresh = settle(i, was, fresh);
        else tell(i, fresh);
        store_relaxed(marks + i, was | fresh | (was | fresh) << Mark::WAS);
        added += (u32)popcount(fresh);
    }
    // other_than_empty gives each empty slot a key of its own.
    static __device__ __forceinline__ u128 other_than_empty(u128 k, u32 i) { return u128{k.lo - 1 - i, k.hi}; }
    template <class T> static __device__ __forceinline__ T other_than_empty(T k, u32 i) { return (T)(k - 1 - i); }

    // perhaps_twice tells whether a key may stand in a window twice; most windows are done with by that.
    static __device__ __forceinline__ bool perhaps_twice(const Window& w) {
        key k[C::WINDOW];
#pragma unroll
        for (u32 i = 0; i < C::WINDOW; i++) {
            k[i] = A::key_of(w.w[i]);
            if (k[i] == C::EMPTY) k[i] = other_than_empty(k[i], i);
        }
        bool twice = false;
#pragma unroll
        for (u32 j = 1; j < C::WINDOW; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) twice |= k[i] == k[j];
        return twice;
    }
    __device__ __forceinline__ u32 settle(u32 window, u32 was, u32 fresh) {
        Window w;
        w.load(true, copy + window * WINDOW_BYTES, 0);
        u32 twice = 0;
        if (perhaps_twice(w)) twice = fresh & again(w, fresh);
        tell(window, fresh & ~twice);
        return twice ? lay(window, was, fresh, fresh & ~twice) : fresh;
    }
    // again gives the slots whose key is in a fresh one before them.
    static __device__ __forceinline__ u32 again(const Window& w, u32 fresh) {
        u32 twice = 0;
#pragma unroll
        for (u32 j = 1; j < C::WINDOW; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) twice |= (u32)(A::key_of(w.w[i]) == A::key_of(w.w[j])) << j & (fresh >> i & 1) << j;
        return twice;
    }
    // lay puts those of the fresh pairs anew that stay: what stands behind a slot that becomes empty might not be found. It gives their slots.
    __device__ __forceinline__ u32 lay(u32 window, u32 was, u32 fresh, u32 stay) {
        u64 slots = copy + window * WINDOW_BYTES;
        Window w;
        w.load(true, slots, 0);
        for (u32 left = fresh; left; left &= left - 1) {
            u32 slot = (u32)lowest_bit(left);
            typename A::word free = A::free_word(typename A::word(), false);
            if (!p.empty) free = load_memory(A::word_at(p.table.main.slots, (from + window) * C::WINDOW + slot));
            reused -= A::key_of(free) == C::TOMBSTONE;
            store_relaxed(A::word_at(slots, slot), free);
        }
        u32 taken = was;
        for (u32 left = stay; left; left &= left - 1) {
            typename A::word pair = w.pick((u32)lowest_bit(left));
            u32 slot = Mark::nearest(~taken & Mark::ALL, Probe<C>(p.table, A::key_of(pair)).first_slot());
            reused += A::key_of(load_relaxed(A::word_at(slots, slot))) == C::TOMBSTONE;
            store_relaxed(A::word_at(slots, slot), pair);
            taken |= 1u << slot;
        }
        return taken & ~was;
    }
};

template <bool REPLACE, bool TELLS> __device__ __forceinline__ void insert_stretch(const stretchParams& p, Stage<TELLS>& stage) {
    const u64* starts = at<u64>(p.rows.starts) + block_index();
    u64 first = load_readonly(starts);
    u32 n = (u32)(load_readonly(starts + 1) - first);
    if (!n) return;
    stage.begin();
    StretchJob<REPLACE, TELLS> job(p, stage, first);
    job.ask(0, n);
    job.load();
    job.put_all(n);
    block_sync();
    job.settle();
    block_sync();
    job.go_on();
    if (job.added) add(&stage.added, job.added);
    if (job.reused) add(&stage.reused, job.reused);
    block_sync();
    job.store();
    if (thread_index() == 0) stage.end(p.table);
}

// Growth: a block builds a stretch of a new table from those windows of the old one in which keys stand whose first windows lie in it. Both
// numbers are of the hash's high bits, so these are windows in a row, and the neighbourhoods that they lie in. Keys differ, so nothing is settled. A
// pair that stands beyond its neighbourhood in the old table is left over, too, by the block that has the window as its own.
struct GrowJob : StretchJob<false, false> {
    u64 begin, own, end; // old windows: from own on, they may be another block's, which leaves over what is

    // With n old windows and m new ones, a hash of h·2⁶⁴ is of windows h·n and h·m, rounded down. So one of the new windows a … b-1 is of the
    // old ones from a·n/m to b·n/m, rounded down and up. The host sees to it that products are below 2⁶³.
    __device__ __forceinline__ GrowJob(const stretchParams& p, Stage<false>& stage) : StretchJob<false, false>(p, stage, 0) {
        u64 n = p.old.windows, m = p.table.main.windows, to = from + windows;
        begin = home(from * n / m);
        own = to == m ? n : home(to * n / m);
        end = home((to * n + m - 1) / m + WARPCORE_NEIGHBOURHOOD - 1);
        if (end > n) end = n;
    }
    static __device__ __forceinline__ u64 home(u64 window) { return window & ~(u64)(WARPCORE_NEIGHBOURHOOD - 1); }
    // move puts the pair of an old window's slot, if there is one and its new first window is the block's. It tells whether the pair is left over.
    __device__ __forceinline__ bool move(u64 window, A::word pair) {
        key k = A::key_of(pair);
        if (C::marks(k)) return false;
        Probe<C> h(p.table, k);
        if (home(reduce(h.hash, p.old.windows)) != home(window)) return window < own;
        if (h.window - from >= windows) return false; // another block's
        for (u32 number = 1;; number++) {
            u32 slot = Mark::take(marks + (h.window - from), h.first_slot());
            if (slot < C::WINDOW) {
                store_relaxed(A::word_at(copy, (h.window - from) * C::WINDOW + slot), pair);
                added++;
                if (number > WARPCORE_PROBES_UNTOLD) max_of(&stage.longest, number);
                return false;
            }
            if (number == C::NEAR) return true;
            mark(h);
            h.advance(number);
        }
    }
    // leave_over lists a pair, if there is room.
    __device__ __forceinline__ void leave_over(A::word pair) {
        key k = A::key_of(pair);
        value v = A::load_value(0, 0, 0, pair);
        u32 n = add(&stage.full, 1u);
        if (n < LISTED) stage.list(n, k, v, 0);
        else leave(add_in_memory(at<u32>(p.left), 1u), k, v);
    }
    // move_all goes over the old windows. The lanes of a warp meet as in put_all, and leave pairs over together, which they read again.
    __device__ __forceinline__ void move_all() {
        constexpr u32 SLOTS = 16 / C::SLOT_BYTES, WORDS = WINDOW_BYTES / 16;
        static_assert(IN_FLIGHT * SLOTS <= 32, "bits of a word");
        union {
            u128 all;
            A::word slot[SLOTS];
        } w[IN_FLIGHT];
        tile<32, true> warp;
        const u128* old = at<u128>(p.old.slots + begin * WINDOW_BYTES);
        u64 n = (end - begin) * WORDS;
        for (u64 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            u64 first = i + thread_index();
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u64 x = first + j * block_threads();
                w[j].all = x < n ? load_readonly(old + x) : u128{~0ull, ~0ull};
            }
            u32 over = 0;
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++)
#pragma unroll
                for (u32 s = 0; s < SLOTS; s++) {
                    over |= (u32)move(begin + (first + j * block_threads()) / WORDS, w[j].slot[s]) << (j * SLOTS + s);
                    warp.sync();
                }
            for (; warp.any(over != 0); over &= over - 1) {
                if (!over) continue;
                u32 x = (u32)lowest_bit(over);
                leave_over(load_readonly(at<A::word>((u64)old) + (first + x / SLOTS * block_threads()) * SLOTS + x % SLOTS));
            }
        }
    }
    // leave_listed is for all threads, once all have moved what they have.
    __device__ __forceinline__ void leave_listed() {
        if (thread_index() == 0) stage.left = stage.listed();
        stage.reserve(p.left);
        for (u32 i = thread_index(); i < stage.left; i += block_threads()) leave(stage.base + i, stage.k[i], stage.value_of(i));
    }
};

WARPMAP_KERNEL_RESIDENT(grow_stretch, stretchParams, 6) {
    __shared__ Stage<false> stage;
    stage.begin();
    GrowJob job(p, stage);
    job.load();
    job.move_all();
    if (job.added) add(&stage.added, job.added);
    block_sync();
    job.leave_listed();
    job.store();
    if (thread_index() == 0) stage.end(p.table);
}

#if WARPCORE_MAP
WARPMAP_KERNEL(insert_stretch, stretchParams) {
    __shared__ Stage<false> stage;
    insert_stretch<true>(p, stage);
}
#endif
WARPMAP_KERNEL(insert_stretch_new, stretchParams) {
    __shared__ Stage<false> stage;
    insert_stretch<false>(p, stage);
}
WARPMAP_KERNEL(insert_stretch_told, stretchParams) {
    __shared__ Stage<true> stage;
    insert_stretch<false>(p, stage);
}
// Turns the bits of what was told into flags: bits are few enough for the L2 cache, where each is set at random.
WARPMAP_KERNEL(tell_rows, stretchParams) {
    for (u64 i = grid_thread(); i < p.rows.n; i += grid_threads()) at<u8>(p.flags)[i] = load_memory(at<u32>(p.told) + i / 32) >> i % 32 & 1;
}
