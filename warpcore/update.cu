// Update, counting and FindOrInsert: inserts that do something else with a key that is there. A program for each operation.
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "layout.h"
#include "refused.cuh"
#include "warpcore.cuh"

using namespace warpcore;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef tile<WARPCORE_INSERT_GROUP, true> InsertTile;

// What the jobs below share: an insertion that looks, its counts, and what becomes of its row.
struct LookingJob {
    const insertParams& p;
    Insert<C, Look, true, false> s;
    key k;
    u64 inserted, reused;

    __device__ __forceinline__ LookingJob(const insertParams& p) : p(p), k{}, inserted(0), reused(0) {}
    __device__ __forceinline__ bool round(InsertTile g, bool active) { return s.round(p.table, g, active); }
    struct Held {
        Insert<C, Look, true, false> s;
        key k;
    };
    __device__ __forceinline__ void hold(Held& h) const {
        h.s = s;
        h.k = k;
        prefetch_to_write(s.p.window_address());
    }
    __device__ __forceinline__ void resume(const Held& h) {
        s = h.s;
        k = h.k;
    }
    template <class Item> __device__ __forceinline__ void look_ahead(const Item& x) const { prefetch_to_write(Probe<C>(p.table, x.k).first_address()); }
    __device__ __forceinline__ void start(key x, value v) {
        k = x;
        s.begin(p.table, x, v, p.limit);
    }
    __device__ __forceinline__ void settle_row(u64 i, bool full) {
        if (p.rows.refused) settle(p.rows.refused, p.rows.attempt, p.rows.positions ? at<u32>(p.rows.positions)[i] : i, full, &counters(p.table)->failed);
    }
    __device__ __forceinline__ void count() {
        inserted += s.outcome == ADDED;
        reused += s.reused;
        if (s.outcome == FULL && C::marks(k)) add(&counters(p.table)->side_failed, (u64)1);
    }
    __device__ __forceinline__ void end() {
        count_into(&counters(p.table)->inserted, inserted);
        count_into(&counters(p.table)->reused, reused);
    }
};

#if WARPCORE_COMBINES
#include "combine.cuh"
#include "partition.cuh"

// Keys that come often among a block's rows. The place of the value is known once the key is in; what comes from then on is brought together here,
// and goes there when the block ends. A key gets an entry when nothing else of that entry's keys came between two of its rows, so that keys
// which come seldom get none; it keeps the entry. What others may write meanwhile is read by atomic operations. A key is read once its state is OPEN,
// and does not change from then on.
struct Often {
    static constexpr u32 ENTRIES = WARPCORE_OFTEN;
    enum : u32 { FREE, TAKEN, OPEN };
    key k[ENTRIES];
    u64 place[ENTRIES];
    number_bits sum[ENTRIES];
    u32 state[ENTRIES];
    u32 last[ENTRIES]; // bits of the key that came last

    __device__ __forceinline__ void clear() {
        for (u32 e = thread_index(); e < ENTRIES; e += block_threads()) state[e] = FREE, last[e] = 0;
        block_sync();
    }
    static __device__ __forceinline__ u32 entry_of(key k) { return (u32)((u64)k * 0x9e3779b97f4a7c15ull >> 40) % ENTRIES; }
    __device__ __forceinline__ bool has(u32 e, key x) { return cas(&state[e], (u32)OPEN, (u32)OPEN) == OPEN && cas(&k[e], x, x) == x; }
    // note tells that a key came whose value is at a place, and was combined with v.
    __device__ __forceinline__ void note(u32 e, key x, number_bits* at, number_bits v) {
        u32 tag = (u32)x ^ (u32)((u64)x >> 32) ^ 0x5bd1e995u;
        if (exchange(&last[e], tag) != tag || cas(&state[e], (u32)FREE, (u32)TAKEN) != FREE) return;
        exchange(&k[e], x);
        exchange(&sum[e], TWICE_AS_ONCE ? v : number_bits{});
        place[e] = (u64)at;
        fence();
        exchange(&state[e], (u32)OPEN);
    }
    __device__ __forceinline__ void bring(u32 e, number_bits v) {
        if constexpr (WARPMAP_COMBINE == BY_COUNT) add(&sum[e], v);
        else merge_into(&sum[e], cas(&sum[e], v, v), v);
    }
};

#if defined(WARPMAP_HOST)
// A lane that works alone has sums of its own for keys that come often, so that no other core takes a line from it, and no atomic operation holds up the
// look-ups that follow. A key gets an entry when it came twice and none of the entry's others came between, and keeps it until that happens to another.
// Where few rows find their key here, the lane looks here for none of the next.
struct Own {
    static constexpr u32 ENTRIES = 4096, ASKED = 4096, UNASKED = 8 * ASKED, FEW = ASKED / 16;
    struct Entry {
        number_bits* place; // where the value is; null: there is no key
        key k;
        number_bits sum;
    };
    Entry entry[ENTRIES];
    u32 last[ENTRIES]; // bits of the key that came last
    u32 hits, left;
    bool asks;

    void clear() {
        memset(entry, 0, sizeof entry);
        memset(last, 0, sizeof last);
        hits = 0;
        left = ASKED;
        asks = true;
    }
    static u32 entry_of(key k) { return (u32)((u64)k * 0x9e3779b97f4a7c15ull >> 40) % ENTRIES; }
    static u32 tag_of(key k) { return (u32)k ^ (u32)((u64)k >> 32) ^ 0x5bd1e995u; }
    // look_here tells whether the next row's key may be here.
    __attribute__((always_inline)) inline bool look_here() {
        if (left-- == 0) {
            asks = !asks || hits >= FEW;
            left = asks ? ASKED : UNASKED;
            hits = 0;
        }
        return asks;
    }
    __attribute__((always_inline)) inline bool bring(u32 e, key k, number_bits v) {
        Entry& x = entry[e];
        if (!x.place || x.k != k) return false;
        hits++;
        last[e] = 0;
        if constexpr (WARPMAP_COMBINE == BY_COUNT) x.sum += v;
        else x.sum = merged(x.sum, v);
        return true;
    }
    // note tells that a key came whose value is at a place, and was combined with v. It gives what was brought together of the key that it takes the
    // entry from.
    __attribute__((always_inline)) inline Entry note(u32 e, key k, number_bits* place, number_bits v) {
        u32 tag = tag_of(k);
        Entry before{};
        if (last[e] == tag) {
            before = entry[e];
            entry[e] = Entry{place, k, TWICE_AS_ONCE ? v : number_bits{}};
        }
        last[e] = tag;
        return before;
    }
};
#endif

// A row of the batch, or several of a row of 32 with one key: its group, a bit for each, is in or refused together. No bit: nothing to do.
// SUMS: rows of one key were combined before.
template <bool SUMS> struct UpdateJob : LookingJob {
    static constexpr bool GATHERS = !SUMS;
    static constexpr int LEAST = WARPCORE_LEAST_TOGETHER, KEYS = WARPCORE_KEYS_TOGETHER;
    struct Item {
        key k;
        value v;
        u32 group;
    };
    Often* often;
    bool brings; // sums of rows that are not near may be made
#if defined(WARPMAP_HOST)
    Own* own_sums = nullptr; // null: they may not, or the lane is not alone
    bool here = false;
#endif
    u32 group, entry;
    u64 over; // counts that would have been larger than there are

    __device__ __forceinline__ UpdateJob(const insertParams& p, Often* often)
        : LookingJob(p), often(often), brings(!ONE_BY_ONE<InsertTile> && may_bring()), group(0), entry(0), over(0) {}
    __device__ __forceinline__ bool may_bring() const { return !SUMS && MERGES && (WARPMAP_COMBINE != BY_COUNT || !p.rows.values); }
    __device__ __forceinline__ value value_of(u64 i) const {
        if (WARPMAP_COMBINE == BY_COUNT && !p.rows.values) return 1;
        return load_readonly(at<value>(p.rows.values) + i);
    }
    __device__ __forceinline__ Item load(u64 i) const {
        return Item{input_key<C>(p.rows.keys, i), value_of(i), wanted(p.rows.refused, p.rows.attempt, i) ? 1u << (i & 31) : 0};
    }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from), warp.shuffle(x.group, from)};
    }
    template <class Warp> __device__ __forceinline__ void gather(Warp warp, Item& x) {
        u32 left = warp.ballot(x.group);
        for (int i = 0; i < KEYS && left; i++) {
            int first = lowest_bit(left);
            key other = warp.shuffle(x.k, first);
            u32 same = warp.ballot(x.k == other) & left;
            left &= ~same;
            if (popcount(same) < LEAST) break; // most likely there are no such keys
            bool mine = same >> warp.rank() & 1;
            if constexpr (MERGES) {
                value one = warp.shuffle(x.v, first), v = mine ? x.v : TWICE_AS_ONCE ? one : value{};
                bool more = false;
#pragma unroll
                for (int d = 16; d > 0; d /= 2) v = both(v, warp.shuffle(v, warp.rank() ^ d), more);
                // A count that is too large is told once its key is in, so these go one by one. Ones make none.
                if (WARPMAP_COMBINE == BY_COUNT && p.rows.values && warp.any(more)) continue;
                if (mine) x.v = v;
            }
            if (mine) x.group = warp.rank() == first ? same : 0;
        }
    }
    struct Held : LookingJob::Held {
        u32 group, entry;
    };
    __device__ __forceinline__ void hold(Held& h) const {
        LookingJob::hold(h);
        h.group = group;
        h.entry = entry;
    }
    __device__ __forceinline__ void resume(const Held& h) {
        LookingJob::resume(h);
        group = h.group;
        entry = h.entry;
    }
    __device__ __forceinline__ void ahead(const Item& x) const { look_ahead(x); }
    static __device__ __forceinline__ value both(value a, value b, bool& more) {
        if constexpr (WARPMAP_COMBINE == BY_COUNT) return counted_with(a, b, more);
        else return merged(a, b);
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        group = x.group;
        if (!group) return false;
        if (brings) {
            entry = Often::entry_of(x.k);
            if (often->has(entry, x.k)) {
                often->bring(entry, x.v);
                if (p.rows.attempt) settle_group(i, false);
                return false;
            }
        }
#if defined(WARPMAP_HOST)
        if (ONE_BY_ONE<InsertTile> && own_sums) {
            here = own_sums->look_here();
            if (here && own_sums->bring(Own::entry_of(x.k), x.k, x.v)) {
                if (p.rows.attempt) settle_group(i, false);
                return false;
            }
        }
#endif
        // The user's operation is not between values that come: the first goes in as it is, and done brings the others.
        start(x.k, x.v);
#if defined(WARPMAP_HOST)
        if (ONE_BY_ONE<InsertTile> && s.at_once()) {
            done(i);
            return false;
        }
#endif
        return true;
    }
    __device__ __forceinline__ void done(u64 i) {
        count();
        if (SUMS && s.outcome == FULL) add(&counters(p.table)->failed, (u64)1);
        if (!SUMS && (s.outcome == FULL || p.rows.attempt)) settle_group(i, s.outcome == FULL);
        if (brings && s.outcome != FULL) often->note(entry, k, place(), s.v);
#if defined(WARPMAP_HOST)
        if (ONE_BY_ONE<InsertTile> && own_sums && here && s.outcome != FULL) give(own_sums->note(Own::entry_of(k), k, place(), s.v));
#endif
        if (s.outcome == PRESENT) combine(i, s.value_there(), group);
        else if (!MERGES && s.outcome == ADDED && group != own(i)) combine(i, s.v, group & ~own(i));
    }
    __device__ __forceinline__ void settle_group(u64 i, bool full) {
        for (u32 g = group; g; g &= g - 1) settle_row((i & ~31ull) + lowest_bit(g), full);
    }
#if defined(WARPMAP_HOST)
    void give(const Own::Entry& x) {
        if (!x.place || (!TWICE_AS_ONCE && x.sum == number_bits{})) return;
        if constexpr (WARPMAP_COMBINE == BY_COUNT) over += count_into_place(x.place, load_relaxed(x.place), x.sum, true);
        else merge_into(x.place, load_relaxed(x.place), x.sum);
    }
    void give_all() {
        for (u32 e = 0; e < Own::ENTRIES; e++) {
            if (e + AHEAD < Own::ENTRIES && own_sums->entry[e + AHEAD].place) prefetch_to_write((u64)own_sums->entry[e + AHEAD].place);
            give(own_sums->entry[e]);
        }
    }
#endif
    // end brings what was put together to where it belongs.
    __device__ __forceinline__ void end() {
#if defined(WARPMAP_HOST)
        if (own_sums) give_all();
#endif
        if constexpr (!SUMS && !ONE_BY_ONE<InsertTile>) block_sync();
        for (u32 e = thread_index(); brings && e < Often::ENTRIES; e += block_threads()) {
            if (often->state[e] != Often::OPEN) continue;
            number_bits* to = at<number_bits>(often->place[e]);
            if constexpr (WARPMAP_COMBINE == BY_COUNT) over += count_into_place(to, load_relaxed(to), often->sum[e], true);
            else merge_into(to, load_relaxed(to), often->sum[e]);
        }
        LookingJob::end();
        if constexpr (WARPMAP_COMBINE == BY_COUNT) count_into(&counters(p.table)->over, over);
    }
    static __device__ __forceinline__ u32 own(u64 i) { return 1u << (i & 31); }
    __device__ __forceinline__ number_bits* place() const { return Access<C>::value_at(s.p.slots, s.p.values, s.place); }
    __device__ __forceinline__ void combine(u64 i, number_bits seen, u32 rows) {
        if constexpr (WARPMAP_COMBINE == BY_COUNT) over += count_into_place(place(), seen, s.v, SUMS ? p.ones : !p.rows.values);
        else if constexpr (MERGES) merge_into(place(), seen, s.v);
        else merge_by_swaps(place(), seen, [&](number_bits x) {
            for (u32 g = rows; g; g &= g - 1) x = merged(x, load_readonly(at<value>(p.rows.values) + (i & ~31ull) + lowest_bit(g)));
            return x;
        });
    }
};

WARPMAP_KERNEL(update, insertParams) {
    __shared__ Often often;
    if constexpr (!ONE_BY_ONE<InsertTile>) often.clear();
    UpdateJob<false> job(p, &often);
#if defined(WARPMAP_HOST)
    static thread_local Own own_sums;
    if (ONE_BY_ONE<InsertTile> && thread_index() == 0 && job.may_bring() && p.rows.n >= 2 * Own::ASKED) {
        job.own_sums = &own_sums;
        own_sums.clear();
    }
#endif
    drive_held<InsertTile, u64>(p.rows.n, job, p.rows.span);
    job.end();
}
WARPMAP_KERNEL(update_sums, insertParams) {
    UpdateJob<true> job(p, nullptr);
    drive_held<InsertTile, u64>(load_relaxed(&counters(p.table)->exported), job, p.rows.span);
    job.end();
}

// Rows of a batch that lie in the order of parts of the table, so that those of one key are in one, are combined in shared memory. A block has keys there
// and their sums as long as it reads rows of one part. So a part may have any number of rows; it has so few keys that most find an entry. A row that
// finds none goes out as it is, and so does one whose count would be too large: update_sums takes several rows of a key.
__device__ __forceinline__ auto region_of(const combineParams& p) {
    return [&p](key k) { return (Probe<C>(p.table, k).hash >> 32) * (u32)p.rows.parts >> 32; };
}
#if defined(WARPMAP_HOST)
constexpr u32 COMBINE_THREADS = WARPMAP_MAX_THREADS;
#else
constexpr u32 COMBINE_THREADS = WARPCORE_COMBINE_THREADS;
#endif

// NO_SUM is what stands for a sum before the first value comes: merged with a value it is that value. Floats of which the least or the largest is
// wanted have no such number, because nothing is less than a NaN. A NaN of which nobody makes use stands there, and a row that has it goes out as it
// is.
constexpr bool FLOATS = (number)0.5f != number{}, SIGNED = (number)-1 < number{};
constexpr bool ORDERS = WARPMAP_COMBINE == BY_MIN || WARPMAP_COMBINE == BY_MAX, STANDS_IN = FLOATS && ORDERS;
constexpr number_bits HIGHEST_BIT = (number_bits)1 << (8 * sizeof(number) - 1), ALL_BITS = (number_bits)~(number_bits)0;
constexpr number_bits NO_SUM = STANDS_IN                   ? ALL_BITS - 0xabcd
                               : WARPMAP_COMBINE == BY_AND ? ALL_BITS
                               : WARPMAP_COMBINE == BY_MIN ? (SIGNED ? HIGHEST_BIT - 1 : ALL_BITS)
                               : WARPMAP_COMBINE == BY_MAX ? (SIGNED ? HIGHEST_BIT : 0)
                                                           : 0;
__device__ __forceinline__ number_bits sum_with(number_bits sum, number_bits v) {
    if (STANDS_IN && sum == NO_SUM) return v;
    if (STANDS_IN && v == NO_SUM) return sum;
    return merged(sum, v);
}

struct Combined {
    // Entries are in buckets of 16 bytes of keys, which are read at once: lanes of a warp wait for the one that reads most.
    static constexpr u32 BUCKET = 16 / sizeof(key), TRIES = 8, STEPS = WARPCORE_LEAST_ENTRIES / 4 - 1, NONE = ~0u;
    static constexpr u32 IN_FLIGHT = 4, LEAST = WARPCORE_LEAST_TOGETHER;
    typedef PairedRow<key, value> Pair;
    const combineParams& p;
    const u32 entries; // whole buckets
    key* const keys;   // of these, and of one entry behind, for the key that marks a free one
    number_bits* const sums;
    const bool ones;   // there are no values: rows are counted
    tile<32, true> warp;
    key often;         // came several times at once among the rows of this warp
    key k[IN_FLIGHT];  // rows of this thread
    number_bits v[IN_FLIGHT];

    __device__ __forceinline__ Combined(const combineParams& p)
        : p(p), entries((u32)p.entries), keys((key*)dynamic_shared_once()), sums((number_bits*)(keys + entries + 2)), ones(!p.rows.values), often{} {}

    __device__ __forceinline__ void clear() {
        for (u32 e = thread_index(); e <= entries; e += block_threads()) {
            keys[e] = C::EMPTY;
            sums[e] = NO_SUM;
        }
    }
    // entry_of gives the entry of a key, which is the first free one that it comes to if it has none yet; NONE if that is too far. What a bucket had
    // when it was read may be old: a swap tells who has a free entry.
    __device__ __forceinline__ u32 entry_of(key x) const {
        if (x == C::EMPTY) {
            store_racing(&keys[entries], (key)(C::EMPTY - 1)); // whoever does writes the same
            return entries;
        }
        u64 hash = Probe<C>(p.table, x).hash;
        u32 buckets = entries / BUCKET, bucket = (u32)((u64)((u32)hash * 0x9e3779b1u) * buckets >> 32), step = ((u32)hash & STEPS) | 1;
#pragma unroll 1
        for (u32 tries = 0; tries < TRIES; tries++) {
            u32 e = bucket * BUCKET, its = BUCKET, free = 0;
            union {
                u128 all;
                key k[BUCKET];
            } b;
            b.all = load_racing((const u128*)(keys + e)); // each key is whole
#pragma unroll
            for (u32 j = 0; j < BUCKET; j++)
                if (b.k[j] == x) its = j;
            if (its < BUCKET) return e + its;
#pragma unroll
            for (u32 j = 0; j < BUCKET; j++) free |= (u32)(b.k[j] == C::EMPTY) << j;
#pragma unroll 1
            for (; free; free &= free - 1) {
                u32 j = e + (u32)lowest_bit(free);
                key there = cas(&keys[j], (key)C::EMPTY, x);
                if (there == C::EMPTY || there == x) return j;
            }
            bucket += step;
            if (bucket >= buckets) bucket -= buckets;
        }
        return NONE;
    }
    // bring tells whether a row is in a sum now.
    __device__ __forceinline__ bool bring(key x, number_bits value) {
        if (STANDS_IN && value == NO_SUM) return false;
        u32 e = entry_of(x);
        if (e == NONE) return false;
        number_bits* to = &sums[e];
        if constexpr (WARPMAP_COMBINE == BY_COUNT) return count_if_it_fits(to, ones ? 0 : load_volatile(to), value, ones);
        else if constexpr (ORDERS) merge_by_swaps(to, load_volatile(to), [&](number_bits old) { return sum_with(old, value); });
        else merge_into(to, TWICE_AS_ONCE ? load_volatile(to) : 0, value);
        return true;
    }
    // gather makes one row of those that some lanes of the warp have of one key, and tells whether this lane still has one.
    __device__ __forceinline__ bool gather(u32 same, bool on, number_bits& value) {
        int lane = warp.rank(), first = lowest_bit(same);
        bool mine = same >> lane & 1, more = false;
        number_bits sum = mine ? value : NO_SUM;
        if (WARPMAP_COMBINE == BY_COUNT && ones) sum = (number_bits)popcount(same);
        else
#pragma unroll
            for (int d = 16; d > 0; d /= 2) {
                number_bits other = warp.shuffle(sum, lane ^ d);
                if constexpr (WARPMAP_COMBINE == BY_COUNT) sum = counted_with(sum, other, more);
                else sum = sum_with(sum, other);
            }
        if (WARPMAP_COMBINE == BY_COUNT && warp.any(more)) return on; // too large together: so they go one by one
        if (mine) value = sum;
        return on && (!mine || lane == first);
    }
    // put brings a row of each lane that is on to its sum, or gives it out. All lanes of a warp call it.
    __device__ __forceinline__ void put(bool on, key x, number_bits value) {
        u32 same = warp.ballot(on && x == often && !(STANDS_IN && value == NO_SUM));
        if ((u32)popcount(same) >= LEAST) on = gather(same, on, value);
        bool out = on && !bring(x, value);
        if (!warp.any(out)) return;
        u64 to = append(&counters(p.table)->exported, out);
        if (out) give(to, x, value);
    }
    __device__ __forceinline__ void give(u64 to, key x, number_bits value) const {
        at<key>(p.rows.out_keys)[to] = x;
        at<number_bits>(p.rows.out_values)[to] = value;
    }
    // ask asks for the rows that a thread puts at a time, of n from row `first` on: i is the block's first of them.
    __device__ __forceinline__ void ask(u64 first, u32 i, u32 n) {
        i += thread_index();
        if constexpr (Pair::IS)
            if (p.rows.paired) {
                const typename Pair::word* pairs = at<typename Pair::word>(p.rows.keys) + first;
#pragma unroll
                for (u32 j = 0; j < IN_FLIGHT; j++, i += block_threads()) {
                    typename Pair::word w{};
                    if (i < n) w = load_readonly(pairs + i);
                    k[j] = Pair::key(w);
                    v[j] = (number_bits)Pair::value(w);
                }
                return;
            }
        const key* from = at<key>(p.rows.keys) + first;
        const number_bits* of = at<number_bits>(p.rows.values) + first;
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++, i += block_threads()) {
            k[j] = i < n ? load_readonly(from + i) : key{};
            v[j] = 1;
            if (!ones && i < n) v[j] = load_readonly(of + i);
        }
    }
    // put_all puts n rows, the first of which were asked for. The next come while these are put.
    __device__ __forceinline__ void put_all(u64 first, u32 n) {
        const u32 step = IN_FLIGHT * block_threads();
        for (u32 i = 0; i < n; i += step) {
            key k_of[IN_FLIGHT];
            number_bits v_of[IN_FLIGHT];
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                k_of[j] = k[j];
                v_of[j] = v[j];
            }
            if (step < n - i) ask(first, i + step, n);
            key other = warp.shuffle(k_of[0], 0); // mostly one that comes often, if there is one
            if ((u32)popcount(warp.ballot(k_of[0] == other)) >= LEAST) often = other;
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) put(i + j * block_threads() + thread_index() < n, k_of[j], v_of[j]);
        }
    }
    // give_all gives out the sums: each warp has some entries in a row, and finds its room with one atomic operation of the block.
    __device__ __forceinline__ bool taken(u32 e) const { return e <= entries && keys[e] != C::EMPTY; }
    __device__ __forceinline__ void give_all(u64& base) {
        u32 warps = block_threads() / 32, each = (entries / 32 / warps + 1) * 32, first = thread_index() / 32 * each + (u32)warp.rank(), n = 0;
        for (u32 e = first; e < first + each; e += 32) n += (u32)popcount(warp.ballot(taken(e)));
        u64 all, to = block_scan(warp.rank() == 0 ? n : 0, all);
        if (thread_index() == 0) base = add(&counters(p.table)->exported, all);
        block_sync();
        to = base + warp.shuffle(to, 0);
        for (u32 e = first; e < first + each; e += 32) {
            bool on = taken(e);
            u32 ons = warp.ballot(on);
            if (on) give(to + (u32)popcount(ons & (1u << warp.rank()) - 1), e == entries ? (key)C::EMPTY : keys[e], sums[e]);
            to += (u32)popcount(ons);
        }
    }
};

// Blocks take pieces as they are done with others: of all parts up to p.most rows, and what longer parts have beyond that, which have keys that come very
// often. A row beyond is in a stretch of p.most rows from a multiple of that on, whose first row is of the same part. Large pieces go first, so that all
// blocks end at about one time: those of parts that are large, then those beyond, and then those of other parts.
WARPMAP_KERNEL_WIDE(combine_rows, combineParams, COMBINE_THREADS, u128) {
    __shared__ u64 begun, base;
    const auto& r = p.rows;
    const u64 *starts = at<u64>(r.starts), beyond = (r.n + p.most - 1) / p.most;
    auto part_of = region_of(p);
    Combined combined(p);
    for (;;) {
        if (thread_index() == 0) begun = add(&counters(p.table)->begun, (u64)1);
        block_sync();
        u64 piece = begun, from, to;
        block_sync();
        if (piece >= beyond + 2 * r.parts) return;
        bool large = piece < r.parts;
        if (!large && piece < r.parts + beyond) {
            u64 row = (piece - r.parts) * p.most, part = part_of(partition_key<key, value>(r, row));
            from = starts[part] + p.most;
            if (from < row) from = row;
            to = starts[part + 1];
            if (to > row + p.most) to = row + p.most;
        } else {
            u64 part = large ? piece : piece - r.parts - beyond;
            from = starts[part];
            to = starts[part + 1];
            if ((to - from > p.most / 8 * 5) != large) continue;
            if (to > from + p.most) to = from + p.most;
        }
        if (from >= to) continue;
        u32 n = (u32)(to - from);
        combined.ask(from, 0, n);
        combined.clear();
        block_sync();
        combined.put_all(from, n);
        block_sync();
        combined.give_all(base);
    }
}

// Keys with counts in a range: how many there are, and which, some of them.
__device__ __forceinline__ bool in_range(const countsParams& p, const Slot<C>& s) { return s.live && s.load() >= p.least && s.load() <= p.most; }
WARPMAP_KERNEL(number_of_counts, countsParams) {
    u64 n = 0;
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) n += in_range(p, slot_at<C>(p.table, i));
    count_into(&counters(p.table)->exported, n);
}
WARPMAP_KERNEL(export_counts, countsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table)) {
        Slot<C> s = slot_at<C>(p.table, i);
        bool on = in_range(p, s);
        u64 to = append(&counters(p.table)->exported, on);
        if (!on || to >= p.limit) continue;
        at<key>(p.keys)[to] = s.k;
        at<value>(p.values)[to] = s.load();
    }
}

// How many keys have each count; the last bin is of all that have more.
WARPMAP_KERNEL(histogram_of_counts, countsParams) {
    __shared__ u32 low[WARPCORE_SHARED_BINS];
    for (u32 i = thread_index(); i < WARPCORE_SHARED_BINS; i += block_threads()) low[i] = 0;
    block_sync();
    for (u64 i = grid_thread(); i < slot_count<C>(p.table); i += grid_threads()) {
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        u64 bin = s.load();
        if (bin >= p.bins) bin = p.bins - 1;
        if (bin < WARPCORE_SHARED_BINS) add(&low[bin], 1u);
        else add(at<u64>(p.histogram) + bin, (u64)1);
    }
    block_sync();
    for (u32 i = thread_index(); i < WARPCORE_SHARED_BINS && i < p.bins; i += block_threads())
        if (low[i]) add(at<u64>(p.histogram) + i, (u64)low[i]);
}
#else

// Gives the value that is there, or puts the one that comes.
struct FindOrInsertJob : LookingJob {
    struct Item {
        key k;
        value v;
    };
    __device__ __forceinline__ FindOrInsertJob(const insertParams& p) : LookingJob(p) {}
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.rows.keys, i), input_value<C>(p.rows.values, i)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { look_ahead(x); }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64) const {
        return Item{warp.shuffle(x.k, from), warp.shuffle(x.v, from)};
    }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        start(x.k, x.v);
        return true;
    }
    __device__ __forceinline__ void done(u64 i) {
        count();
        settle_row(i, s.outcome == FULL);
        if (s.outcome != FULL) at<value>(p.rows.out)[i] = s.outcome == PRESENT ? s.value_there() : s.v; // FULL: it may be the input, for another attempt
        if (p.rows.added) at<u8>(p.rows.added)[i] = s.outcome == ADDED;
    }
};
WARPMAP_KERNEL(find_or_insert, insertParams) {
    FindOrInsertJob job(p);
    drive_held<InsertTile, u64>(p.rows.n, job, p.rows.span);
    job.end();
}
#endif
