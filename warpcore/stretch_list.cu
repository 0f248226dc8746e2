// Large batches of a bucket list, stretch by stretch: see stretch.cu. Of a stretch of the keys' table a block has the keys in shared memory, and
// beside each how many rows of the batch have it. It goes through its rows twice:
//
//   count         finds or puts each row's key, and notes the key's slot and the row's number among the rows of that key
//   take_places   goes through the slots: takes places for all values by one atomic operation, links buckets, and writes the slots back
//   write_values  goes through the rows again: slot and number say where a value goes
//
// A key has its slot by compare-and-swap, and no slot becomes free meanwhile. So all rows of a key come to one slot, or none finds one: then its
// chain goes on behind the windows that the block has, and all of its rows are left over. They go on a list, by their numbers, which gather_left
// turns into rows for the kernels of bucketlist.cu. If the pool has no room for the block's values, the block writes nothing, and leaves all its
// rows over.
#include "config.h" // struct config: what this table holds
#include "bucketlist.cuh"
#include "layout.h"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef tile<32, true> Warp;

// What is noted of a row: its slot, and above that its number; or LEFT, if it is left over.
constexpr u32 SLOT_BITS = LIST_SLOT_BITS, SLOT = (1u << SLOT_BITS) - 1, ROWS = 1u << (32 - SLOT_BITS), LEFT = ~0u;
static_assert(C::WINDOW * C::KEY_BYTES == 16, "one load reads the keys of a window");
static_assert(C::VALUE_OFFSET * 2 == C::SLOT_BYTES && (C::SLOT_BYTES == 16 || C::SLOT_BYTES == 32), "a slot is one word of 16 bytes, or two");

// What a block has in shared memory beside the stretch.
struct Stage {
    u64 base; // the first place that the block takes
    u32 places, fits;
    u32 added, reused, left, longest; // added: keys; longest: chain, if it must be told
};
static_assert(sizeof(Stage) + 256 <= LIST_BESIDE, "beside what block_scan has");

// EMPTY: no key was ever in the table, so no list has a bucket.
template <bool EMPTY> struct ListJob {
    const listStretchParams& p;
    Stage& stage;
    u64 from, first; // the stretch's first window, and its first row
    u32 windows, n;
    u64 seed;
    // Of the slots: their keys, how many rows come to them, and where values go that need a new bucket: so many places behind the block's first.
    key* keys;
    u32 *counts, *to;
    u32* overflow; // of the windows, as in memory; bits are cleared here of what this batch clears
    u32 added, reused, left;
    static constexpr u32 IN_FLIGHT = 4;

    __device__ __forceinline__ ListJob(const listStretchParams& p, Stage& stage, u64 first, u32 n)
        : p(p), stage(stage), from(block_index() * p.windows), first(first), n(n), seed(p.lists.keys.seed), added(0), reused(0), left(0) {
        u64 all = p.lists.keys.main.windows;
        windows = (u32)(all - from < p.windows ? all - from : p.windows);
        u32 most = (u32)p.windows * C::WINDOW;
        keys = (key*)dynamic_shared();
        counts = (u32*)(keys + most);
        to = counts + most;
        overflow = to + most;
    }
    __device__ __forceinline__ u32 slots() const { return windows * C::WINDOW; }
    __device__ __forceinline__ u64 address(u32 slot) const { return p.lists.keys.main.slots + (from * C::WINDOW + slot) * C::SLOT_BYTES; }
    __device__ __forceinline__ u32 overflow_words() const { return (windows * C::OVERFLOW_BITS + 31) / 32; }

    // load brings the keys. A tombstone in a window without an empty slot becomes busy here: the key of a row may stand behind it, so the slot is
    // nobody's.
    __device__ __forceinline__ void load() {
        for (u32 i = thread_index(); i < slots(); i += block_threads()) {
            keys[i] = EMPTY ? C::EMPTY : load_memory(at<key>(address(i)));
            counts[i] = 0;
        }
        for (u32 i = thread_index(); i < overflow_words(); i += block_threads()) overflow[i] = ~0u;
        if (thread_index() == 0) stage.added = stage.reused = stage.left = stage.longest = 0;
        block_sync();
        if (EMPTY) return;
        for (u32 i = thread_index(); i < windows; i += block_threads()) {
            key* k = keys + i * C::WINDOW;
            bool empty = false;
#pragma unroll
            for (u32 j = 0; j < C::WINDOW; j++) empty |= k[j] == C::EMPTY;
#pragma unroll
            for (u32 j = 0; j < C::WINDOW; j++)
                if (!empty && k[j] == C::TOMBSTONE) k[j] = C::BUSY;
        }
        block_sync();
    }

    // The window of a hash, less the stretch's first. The table has fewer windows than 2³².
    __device__ __forceinline__ u32 window_of(u64 hash) const {
        u32 all = (u32)p.lists.keys.main.windows;
        return (u32)(((hash >> 32) * all + ((hash & 0xffffffff) * all >> 32)) >> 32) - (u32)from;
    }
    // further is the next window of a chain: Probe::advance_near, for windows of the stretch.
    __device__ __forceinline__ u32 further(u32 window, u64 hash) const {
        u32 begin = window & ~(u32)(WARPCORE_NEIGHBOURHOOD - 1), hop = ((u32)(hash >> WARPCORE_NEAR_SHIFT) & WARPCORE_NEIGHBOURHOOD - 1) | 1;
        u32 to = window - begin + hop;
        if (windows - begin >= WARPCORE_NEIGHBOURHOOD) to &= WARPCORE_NEIGHBOURHOOD - 1;
        else to %= windows - begin;
        return begin + to;
    }
    // slot_of finds or puts a key, and gives its slot; LEFT if the windows that the block has of its chain are full.
    __device__ __forceinline__ u32 slot_of(key k) {
        if (C::marks(k)) return LEFT;
        u64 hash = hash64<C::HASH>(k, seed);
        u32 window = window_of(hash), first_slot = (u32)hash & C::WINDOW - 1;
        for (u32 number = 1;;) {
            u32 match = 0, free = 0, busy = 0;
            key there[C::WINDOW];
            load_vector(keys + window * C::WINDOW, there);
#pragma unroll
            for (u32 i = 0; i < C::WINDOW; i++) {
                match |= (u32)(there[i] == k) << i;
                free |= (u32)(there[i] == C::EMPTY || (!EMPTY && there[i] == C::TOMBSTONE)) << i;
                busy |= (u32)(!EMPTY && there[i] == C::BUSY);
            }
            if (match) return window * C::WINDOW + (u32)lowest_bit(match);
            if (free) {
                u32 slot = window * C::WINDOW + nearest(free, first_slot);
                key was = cas(keys + slot, C::EMPTY, k);
                bool reuses = !EMPTY && was == C::TOMBSTONE;
                if (reuses) was = cas(keys + slot, C::TOMBSTONE, k);
                if (was == (reuses ? C::TOMBSTONE : C::EMPTY)) {
                    added++;
                    reused += reuses;
                    if (number > WARPCORE_PROBES_UNTOLD) max_of(&stage.longest, number);
                    return slot;
                }
                if (was == k) return slot;
                continue;
            }
            if (busy || number++ == C::NEAR) return LEFT;
            pass_by(window, hash);
            window = further(window, hash);
        }
    }
    // nearest gives the first of some slots in the order of a key: the least by their ^ with its first slot.
    static __device__ __forceinline__ u32 nearest(u32 slots, u32 first) {
        if (first & 1) slots = (slots << 1 & 0xa) | (slots >> 1 & 0x5);
        if (first & 2) slots = (slots << 2 & 0xc) | (slots >> 2 & 0x3);
        return (u32)lowest_bit(slots) ^ first;
    }
    static_assert(C::WINDOW <= 4, "four bits");
    // pass_by marks a full window for a key that goes on behind it. Most are marked, by others.
    __device__ __forceinline__ void pass_by(u32 window, u64 hash) const {
        u32 bit = window * C::OVERFLOW_BITS + ((u32)hash >> WARPCORE_OVERFLOW_SHIFT & C::OVERFLOW_BITS - 1), mask = 1u << bit % 32;
        if (load_relaxed(overflow + bit / 32) & mask) and_of(overflow + bit / 32, ~mask);
    }

    __device__ __forceinline__ u32* noted(u32 row) const { return at<u32>(p.where) + first + row; }
    // leave lists rows, of those lanes that leave one over, with one atomic operation a warp. All lanes call it.
    __device__ __forceinline__ void leave(bool leaves, u64 row) const {
        Warp warp;
        u32 all = warp.ballot(leaves);
        if (!all) return;
        u64 base = 0;
        if (warp.rank() == 0) base = add_in_memory(&list::counters(p.lists)->left, (u64)popcount(all));
        base = warp.shuffle(base, 0);
        if (leaves) at<u32>(p.left_rows)[base + (u32)popcount(all & (1u << warp.rank()) - 1)] = (u32)row;
    }
    // leave_all leaves over all rows, or with NOTED those that are not yet.
    template <bool NOTED> __device__ __forceinline__ void leave_all(u64 rows) const {
        for (u64 i = 0; i < rows; i += block_threads()) {
            u64 row = i + thread_index();
            leave(row < rows && !(NOTED && *noted((u32)row) == LEFT), first + row);
        }
    }

    // The lanes of a warp meet behind each row, as in stretch.cu.
    __device__ __forceinline__ void count() {
        Warp warp;
        for (u32 i = thread_index(); (i & ~31u) < n; i += IN_FLIGHT * block_threads()) {
            key k[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads();
                k[j] = row < n ? ordered_key<C>(p.rows, first + row) : key{};
            }
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads(), note = 0;
                if (row < n) note = slot_of(k[j]);
                warp.sync();
                bool leaves = row < n && note == LEFT;
                if (row < n && !leaves) note |= add(counts + note, 1u) << SLOT_BITS;
                if (row < n) *noted(row) = note;
                leave(leaves, first + row);
                left += leaves;
            }
        }
    }

    // A list as it is in memory. A slot that was free has none: its bytes behind the key are ones.
    struct Old {
        u32 count;
        list::Tail<C> tail;
    };
    __device__ __forceinline__ Old old_of(u32 slot) const {
        u64 word = ~0ull;
        u32 count = 0, start = 0;
        if (!EMPTY) {
            count = ~load_memory(list::left_at<C>(address(slot)));
            word = load_memory(list::last_at<C>(address(slot)));
            if (list::some(word) && list::more(word)) start = load_memory(header_of(word) + 2);
        }
        return Old{count, list::Tail<C>(word, start)};
    }
    __device__ __forceinline__ u32* header_of(u64 word) const { return at<u32>(list::place_address<C>(p.lists, list::place_of(word))); }
    // want is the code of the size of the bucket that a list wants for so many more values; 0 if the last has room for them.
    __device__ __forceinline__ u32 want(const Old& old, u32 more) const {
        u32 count = old.count + more;
        if (count <= old.tail.room) return 0;
        return list::code_of(p.mode == LIST_GROW ? old.tail.next(p.lists, count) : count - old.tail.room, true);
    }
    // take_places tells whether the pool had room. A warp goes through slots that are beside one another, so it writes streams.
    __device__ __forceinline__ bool take_places() {
        Warp warp;
        u32 each = (slots() + block_threads() - 1) / block_threads(), begin = thread_index() / 32 * each * 32 + (u32)warp.rank();
        u64 mine = 0, all;
        for (u32 i = 0, slot = begin; i < each; i++, slot += 32) {
            u32 m = slot < slots() ? counts[slot] : 0;
            if (!m) continue;
            Old old = old_of(slot);
            if (u32 code = want(old, m)) mine += (u64)list::decoded(code) + old.tail.header();
        }
        u64 before = block_scan(mine, all);
        if (thread_index() == 0) take(all);
        block_sync();
        if (!stage.fits) return false;
        u32 next = warp.shuffle((u32)before, 0);
        for (u32 i = 0, slot = begin; i < each; i++, slot += 32) {
            u32 m = slot < slots() ? counts[slot] : 0, code = 0, sum;
            Old old = m ? old_of(slot) : Old{0, list::Tail<C>(~0ull, 0)};
            if (m) code = want(old, m);
            u32 place = next + warp.scan(code ? list::decoded(code) + old.tail.header() : 0, sum);
            next += sum;
            if (m) link(slot, old, m, code, place);
            else if (EMPTY && slot < slots()) write(slot, C::EMPTY, ~0u, ~0ull);
        }
        return true;
    }
    // take takes so many places of the pool, for one thread. If these are too many, the host sees by `used` how many the blocks wanted.
    __device__ __forceinline__ void take(u64 all) {
        const Lists& t = p.lists;
        stage.places = (u32)all;
        stage.fits = all == (u32)all;
        if (!all || !stage.fits) return;
        stage.base = add_in_memory(&list::counters(t)->used, all);
        stage.fits = stage.base + all <= t.room;
        if (!stage.fits && stage.base < t.room) max_of_memory(&list::counters(t)->unused, t.room - stage.base);
    }
    // link gives a list m more values, with a bucket at a place of the block if it wants one, and notes where they go: the first to the places that
    // its last bucket had, of which counts then says how many there were, and the others from `to` on, which is LEFT without a new bucket.
    __device__ __forceinline__ void link(u32 slot, const Old& old, u32 m, u32 code, u32 place) {
        u64 last = old.tail.word;
        if (!EMPTY) counts[slot] = old.tail.room - old.count;
        if (!code) to[slot] = LEFT;
        if (code) {
            u32 header = old.tail.header();
            last = list::bucket(stage.base + place, code, header);
            if (header) {
                u64 before = list::with_state(old.tail.word, LIST_READY);
                u32* h = header_of(last);
                store_memory(h, (u32)before);
                store_memory(h + 1, (u32)(before >> 32));
                store_memory(h + 2, old.tail.room);
            }
            to[slot] = place + header;
        }
        write(slot, keys[slot], ~(old.count + m), last);
    }
    __device__ __forceinline__ void write(u32 slot, key k, u32 left, u64 last) const {
        u128* words = at<u128>(address(slot));
        if constexpr (C::SLOT_BYTES == 16) store_memory(words, u128{(u64)left << 32 | (u32)k, last});
        else {
            store_memory(words, u128{k, ~0ull << 32 | left});
            store_memory(words + 1, u128{last, ~0ull});
        }
    }

    // place_in_old is where a value goes that is one of the last `before` places of what was the list's last bucket.
    __device__ __forceinline__ u64 place_in_old(u32 slot, u32 before) const {
        u64 b;
        if (to[slot] == LEFT) b = load_memory(list::last_at<C>(address(slot)));
        else {
            const u32* h = at<u32>(list::place_address<C>(p.lists, stage.base + to[slot] - C::HEADER));
            b = (u64)load_memory(h + 1) << 32 | load_memory(h);
        }
        return list::place_of(b) + (list::more(b) ? C::HEADER : 0) + list::size_of(b) - before;
    }
    // In an empty table all values go to new buckets. If these fit the memory of the keys, which are no longer needed, they are written as a stream.
    __device__ __forceinline__ bool staged() const { return EMPTY && (u64)stage.places * sizeof(value) <= p.windows * (C::WINDOW * C::KEY_BYTES); }
    __device__ __forceinline__ void write_values() const {
        bool together = staged();
        value* values = (value*)dynamic_shared();
        for (u32 i = thread_index(); i < n; i += IN_FLIGHT * block_threads()) {
            u32 note[IN_FLIGHT];
            value v[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads();
                note[j] = row < n ? *noted(row) : LEFT;
                v[j] = row < n ? ordered_value<C>(p.rows, first + row) : value{};
            }
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                if (note[j] == LEFT) continue;
                u32 slot = note[j] & SLOT, number = note[j] >> SLOT_BITS, had = EMPTY ? 0 : counts[slot];
                if (together) values[to[slot] + number] = v[j];
                else {
                    u64 place = number < had ? place_in_old(slot, had - number) : stage.base + to[slot] + (number - had);
                    store_memory(at<value>(list::place_address<C>(p.lists, place)), v[j]);
                }
            }
        }
        if (!together) return;
        block_sync();
        value* out = at<value>(list::place_address<C>(p.lists, stage.base));
        for (u32 i = thread_index(); i < stage.places; i += block_threads()) store_memory(out + i, values[i]);
    }

    // end writes what is left to write of the windows, and adds to the table's counters.
    __device__ __forceinline__ void end() {
        u32* words = at<u32>(p.lists.keys.main.overflow) + from * C::OVERFLOW_BITS / 32;
        for (u32 i = thread_index(); i < overflow_words(); i += block_threads())
            if (overflow[i] != ~0u) and_of_memory(words + i, overflow[i]);
        if (added) add(&stage.added, added);
        if (reused) add(&stage.reused, reused);
        if (left) add(&stage.left, left);
        block_sync();
        if (thread_index() != 0) return;
        Counters* c = counters_of();
        if (stage.added) add_to_memory(&c->inserted, (u64)stage.added);
        if (stage.reused) add_to_memory(&c->reused, (u64)stage.reused);
        if (stage.longest) max_of_memory(&c->max_probes, (u64)stage.longest);
        if (n > stage.left) add_to_memory(&list::counters(p.lists)->added, (u64)(n - stage.left));
    }
    __device__ __forceinline__ Counters* counters_of() const { return warpcore::counters(p.lists.keys); }
};

template <bool EMPTY> __device__ __forceinline__ void insert_stretch(const listStretchParams& p, Stage& stage) {
    const u64* starts = at<u64>(p.rows.starts) + block_index();
    u64 first = load_readonly(starts), rows = load_readonly(starts + 1) - first;
    if (!rows) return;
    ListJob<EMPTY> job(p, stage, first, (u32)rows);
    if (rows >= ROWS) return job.template leave_all<false>(rows);
    job.load();
    job.count();
    block_sync();
    bool fits = job.take_places();
    if (!fits) return job.template leave_all<true>(rows);
    block_sync();
    job.write_values();
    job.end();
}
WARPMAP_KERNEL_RESIDENT(insert_stretch_list, listStretchParams, 6) {
    __shared__ Stage stage;
    insert_stretch<false>(p, stage);
}
WARPMAP_KERNEL_RESIDENT(insert_stretch_empty_list, listStretchParams, 6) {
    __shared__ Stage stage;
    insert_stretch<true>(p, stage);
}

// Turns the numbers of rows that are left over into rows.
WARPMAP_KERNEL(gather_left, listStretchParams) {
    for (u64 i = grid_thread(); i < p.left; i += grid_threads()) {
        u64 row = at<u32>(p.left_rows)[i];
        at<key>(p.left_keys)[i] = ordered_key<C>(p.rows, row);
        if (p.left_values) at<value>(p.left_values)[i] = ordered_value<C>(p.rows, row);
    }
}
