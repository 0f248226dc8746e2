// What the kernels over batches share: the program's table type, its rows, and what becomes of each.
#pragma once
#include "config.h" // struct config: what this table holds
#include "drive.cuh"
#include "layout.h"
#include "refused.cuh"
#include "stadium.cuh"

using namespace stadium;

typedef config C;
typedef tile<1, true> Lane;
typedef Tickets<C> Board;

__device__ __forceinline__ u64 row_key(u64 keys, u64 i) { return keys + i * C::KEY_BYTES; }
__device__ __forceinline__ u64 row_value(u64 values, u64 i) { return values + i * C::VALUE_BYTES; }
__device__ __forceinline__ void take_value(u64 slot, u64 row) { copy<C::VALUE_BYTES, C::VALUE_UNIT>(slot + C::VALUE_OFFSET, row); }
__device__ __forceinline__ void give_value(u64 row, u64 slot) { copy<C::VALUE_BYTES, C::VALUE_UNIT>(row, slot + C::VALUE_OFFSET); }

// A job's items are keys of a batch, loaded ahead where they are short.
struct Job {
    typedef Key<C> Item;
    u64 keys;
    __device__ __forceinline__ Job(u64 keys) : keys(keys) {}
    __device__ __forceinline__ Item load(u64 i) const { return Item::of_batch(keys, i); }
    template <class Warp> __device__ __forceinline__ Item shuffled(Warp warp, const Item& x, int from, u64 i) const { return x.shuffled(warp, from, keys, i); }
};

#if defined(WARPMAP_HOST)
// A job that looks keys up, of row_of(i), and calls end(i, search) for each. What ahead and ahead_again find out stays until begin, which comes when
// they have seen three times as many keys as they see at once.
template <class P, class Row, class End> struct LookUpJob {
    struct Item {
        u64 j, i;
        Key<C> k;
    };
    struct Known {
        u64 hash;
        u32 maybe;
        bool ended;
    };
    static constexpr u64 KNOWN = 4 * AHEAD;
    const P& p;
    u64 keys;
    Row row_of;
    End end;
    u64 row;
    bool looked; // for the key's first bucket
    Search<C> s;
    Known known[KNOWN];
    LookUpJob(const P& p, u64 keys, Row row_of, End end) : p(p), keys(keys), row_of(row_of), end(end), row(0), looked(false) {}
    Item load(u64 j) const {
        u64 row = row_of(j);
        return Item{j, row, Key<C>::of_batch(keys, row)};
    }
#if !defined(WARPMAP_STRESS)
    void ahead(const Item& x) {
        u64 h = known[x.j % KNOWN].hash = hash_key<C>(p.table, x.k);
        prefetch_line(tickets_at<C>(p.table, Place<C>(p.table, h).bucket(p.table)));
    }
    void ahead_again(const Item& x) {
        Known& of = known[x.j % KNOWN];
        Search<C> y;
        y.p = Place<C>(p.table, of.hash);
        y.probes = 0;
        u64 bucket = y.p.bucket(p.table), tickets = tickets_at<C>(p.table, bucket);
        y.look(p.table, bucket);
        of.maybe = y.maybe;
        of.ended = y.ended;
        // Where no slot is to be read, the line of the tickets is asked for, which is there: that costs less than a branch.
        u64 some = 0 - (u64)(y.maybe != 0);
        prefetch_line((slot_in<C>(p.table, bucket, slot_of<C>(y.maybe | ~(u32)some, y.p.first)) & some) | (tickets & ~some));
    }
#endif
    struct Held {
        u64 row;
        Search<C> s;
    };
    void hold(Held& h) const {
        h.row = row;
        h.s = s;
        prefetch_line(tickets_at<C>(p.table, s.p.bucket(p.table)));
    }
    void resume(const Held& h) {
        row = h.row;
        s = h.s;
        looked = false;
    }
    bool begin(u64, const Item& x) {
        row = x.i;
#if defined(WARPMAP_STRESS)
        s.begin(p.table, x.k);
#else
        const Known& of = known[x.j % KNOWN];
        s.k = x.k;
        s.p = Place<C>(p.table, of.hash);
        s.maybe = of.maybe;
        s.ended = of.ended;
        s.found = s.far = false;
        s.probes = 1;
        looked = true;
#endif
        return true;
    }
    bool round(Lane, bool) { return looked ? s.round_after(p.table) : s.round(p.table); }
    void done(u64) { end(row, s); }
};
#endif
// look_up_all calls end(row, search) for rows row_of(0) … row_of(n-1).
template <class P, class Row, class End> __device__ __forceinline__ void look_up_all(const P& p, u64 keys, u64 n, Row row_of, End end) {
#if defined(WARPMAP_HOST)
    LookUpJob<P, Row, End> job(p, keys, row_of, end);
    drive_held<Lane, u64>(n, job);
#else
    for (u64 j = grid_thread(); j < n; j += grid_threads()) {
        u64 i = row_of(j);
        Search<C> s;
        s.begin(p.table, Key<C>::of_batch(keys, i));
        while (s.round(p.table)) {}
        end(i, s);
    }
#endif
}

// Of the rows that staged inserts LEFT, which `failed` counts, those that find room are taken from it.
template <bool REPLACE, bool LEFT = false> struct InsertJob : Job {
    const insertParams& p;
    Operation<C> x;
    Value<C> v;
    u32 added, failed;

    __device__ __forceinline__ InsertJob(const insertParams& p) : Job(p.rows.keys), p(p), added(0), failed(0) {}
    __device__ __forceinline__ u64 position(u64 i) const { return p.rows.positions ? at<u32>(p.rows.positions)[i] : i; }
    __device__ __forceinline__ u64 value_at(u64 i) const { return row_value(p.rows.values, p.by_position ? position(i) : i); }
    __device__ __forceinline__ void ahead(const Item& k) const { ask_tickets<C>(p.table, k); }
    __device__ __forceinline__ void ahead_again(const Item& k) const { ask_slot<C>(p.table, k, true); }
    __device__ __forceinline__ bool begin(u64 i, const Item& k) {
        if (!wanted(p.rows.refused, p.rows.attempt, i)) return false;
        v = Value<C>::of_row(value_at(i));
        find_place(k);
        return true;
    }
    __device__ __forceinline__ void find_place(const Key<C>& k) {
        x.begin(p.table, k, p.limit);
        if (p.exact && load_relaxed(&counters(p.table)->pairs) >= slot_count<C>(p.table)) x.limit = 0;
    }
    __device__ __forceinline__ bool round(Lane, bool active) {
        return active && x.round(p.table, REPLACE ? Operation<C>::INSERT : Operation<C>::INSERT_NEW, [&](u64 slot, bool free) {
            if (free) put_pair<C>(slot, x.k, v);
            else v.put(slot);
        });
    }
    __device__ __forceinline__ void done(u64 i) {
        count_added();
        if (p.rows.added) at<u8>(p.rows.added)[i] = x.outcome == ADDED;
        failed += (x.outcome == FULL) != LEFT;
        if (x.outcome == FULL || p.rows.attempt) settle_bit(p.rows.refused, p.rows.attempt, position(i), x.outcome == FULL);
    }
    __device__ __forceinline__ void count_added() {
        if (x.outcome != ADDED) return;
        if (p.exact) add(&counters(p.table)->pairs, (u64)1);
        else added++;
    }
    __device__ __forceinline__ void end() {
        u64 *pairs = &counters(p.table)->pairs, *others = &counters(p.table)->failed;
        if constexpr (LEFT) {
            u64 *more[1] = {pairs}, *less[1] = {others};
            u32 n[1] = {added}, m[1] = {failed};
            block_count(more, n);
            block_count<1, true>(less, m);
        } else {
            u64* to[2] = {pairs, others};
            u32 n[2] = {added, failed};
            block_count(to, n);
        }
    }
};

// The lanes of a GPU's warp move wide values together, unit by unit, as the rows lie in memory.
#if defined(WARPMAP_HOST)
constexpr bool TOGETHER = false;
#else
constexpr bool TOGETHER = C::VALUE_BYTES > 16;
#endif

// Puts rows row_of(0) … row_of(n-1) in. The lanes of a warp hold their slots while all of them fill them: nobody waits who holds one.
template <bool REPLACE, bool LEFT, class Row> __device__ __forceinline__ void insert_together(const insertParams& p, u64 n, Row row_of) {
    typedef bits_of<C::VALUE_UNIT>::type unit;
    typedef Operation<C> X;
    constexpr u32 UNITS = C::VALUE_BYTES / C::VALUE_UNIT, KEPT = UNITS <= 4 ? UNITS : 0; // values that are asked for before the slots
    constexpr auto KIND = REPLACE ? X::INSERT : X::INSERT_NEW;
    InsertJob<REPLACE, LEFT> job(p);
    tile<32> warp;
    u32 lane = (u32)warp.rank();
    for (u64 j = grid_thread() & ~31ull; j < n; j += grid_threads()) {
        u64 i = row_of(j + lane < n ? j + lane : n - 1), from = job.value_at(i);
        bool busy = j + lane < n && job.begin(i, job.load(i)), was = busy;
        unit kept[KEPT ? KEPT : 1];
#pragma unroll
        for (u32 u = 0; u < KEPT; u++) {
            u32 x = u * 32 + lane;
            kept[u] = load_readonly(at<unit>(warp.shuffle(from, (int)(x / UNITS))) + x % UNITS);
        }
        while (warp.any(busy)) {
            u32 became = busy && !job.x.yields() ? job.x.attempt(p.table, KIND) : (u32)X::WAIT;
            bool held = became == X::HELD, fill = held && (REPLACE || job.x.outcome == ADDED);
            if (fill && job.x.outcome == ADDED) put_key<C>(job.x.k, job.x.slot);
            u64 to = fill ? job.x.slot + C::VALUE_OFFSET : 0;
            if constexpr (KEPT > 0) {
#pragma unroll
                for (u32 u = 0; u < KEPT; u++) {
                    u32 x = u * 32 + lane;
                    u64 slot = warp.shuffle(to, (int)(x / UNITS));
                    if (slot) store_memory(at<unit>(slot) + x % UNITS, kept[u]);
                }
            } else {
                u32 all = warp.ballot(fill);
#pragma unroll 2
                for (u32 u = 0; u < UNITS; u++) {
                    u32 x = u * 32 + lane;
                    u64 slot = warp.shuffle(to, (int)(x / UNITS)), value = warp.shuffle(from, (int)(x / UNITS));
                    if (all && slot) store_memory(at<unit>(slot) + x % UNITS, load_readonly(at<unit>(value) + x % UNITS));
                }
            }
            warp.sync(); // what others have written to a lane's slot comes before its ticket
            if (held) job.x.finish(p.table, KIND);
            if (busy) busy = job.x.again(became);
        }
        if (was) job.done(i);
    }
    job.end();
}

#if defined(WARPMAP_HOST)
// The value that a look-up found, or zeros.
template <class S> inline void give_found(const findParams& p, u64 i, const S& s) {
    u64 row = row_value(p.values, i);
    if constexpr (Read<C>::BRIEF) s.read.value_or_zero_to(row, s.found);
    else if (s.found) s.read.value_to(row, s.address(p.table));
    else zero<C::VALUE_BYTES, C::VALUE_UNIT>(row);
}
#endif
// What look-ups of a warp's lanes found, of those that are `on`; all lanes come.
__device__ __forceinline__ void answer(const findParams& p, bool on, u64 i, const Search<C>& s) {
    if (on && p.found) at<u8>(p.found)[i] = s.found;
    if (!p.values) return;
    if constexpr (TOGETHER) {
        typedef bits_of<C::VALUE_UNIT>::type unit;
        constexpr u32 UNITS = C::VALUE_BYTES / C::VALUE_UNIT;
        tile<32> warp;
        u64 to = on ? row_value(p.values, i) : 0, from = on && s.found ? s.address(p.table) + C::VALUE_OFFSET : 0;
#pragma unroll 4
        for (u32 j = 0; j < UNITS; j++) {
            u32 x = j * 32 + warp.rank();
            u64 row = warp.shuffle(to, (int)(x / UNITS)), value = warp.shuffle(from, (int)(x / UNITS));
            if (row) at<unit>(row)[x % UNITS] = value ? load_memory(at<unit>(value) + x % UNITS) : unit{};
        }
    }
#if defined(WARPMAP_HOST)
    else if (on) give_found(p, i, s);
#else
    else if (on && s.found) s.read.value_to(row_value(p.values, i), s.address(p.table));
    else if (on) zero<C::VALUE_BYTES, C::VALUE_UNIT>(row_value(p.values, i));
#endif
}

// Looks up key i of a batch.
__device__ __forceinline__ Search<C> look_up(const Table& t, u64 keys, u64 i) {
    Search<C> s;
    s.begin(t, Key<C>::of_batch(keys, i));
    while (s.round(t)) {}
    return s;
}

// Answers row_of(0) … row_of(n-1). Each lane has one key: as many blocks as it takes keep more reads under way than a grid that goes on in
// strides, or lanes that are fed.
template <class Row> __device__ __forceinline__ void answer_all(const findParams& p, u64 n, Row row_of) {
    if constexpr (TOGETHER) {
        u32 lane = thread_index() & 31;
        for (u64 j = grid_thread() & ~31ull; j < n; j += grid_threads()) {
            bool on = j + lane < n;
            u64 i = row_of(on ? j + lane : n - 1);
            answer(p, on, i, look_up(p.table, p.keys, i));
        }
    } else
        look_up_all(p, p.keys, n, row_of, [&p](u64 i, const Search<C>& s) { answer(p, true, i, s); });
}

// Gives the ticket of a key back that was found, and tells whether this lane did.
__device__ __forceinline__ bool give_back(const findParams& p, u64 i, const Search<C>& s) {
    bool removed = s.found && !Board::change(tickets_at<C>(p.table, s.slot / C::SLOTS), (u32)(s.slot % C::SLOTS), GIVEN_BACK);
    if (p.found) at<u8>(p.found)[i] = removed;
    return removed;
}
__device__ __forceinline__ void count_erased(const Table& t, u32 erased) {
    u64* to[1] = {&counters(t)->pairs};
    u32 n[1] = {erased};
    block_count<1, true>(to, n);
}

// reserve takes a ticket that never was given back, as the paper does (§III-B, Figures 7 and 8): the availability bit first, then the info bits.
__device__ __forceinline__ bool reserve(u64 tickets, u32 slot, u32 info) {
    u32 *word = Board::word_at(tickets, slot), shift = Board::shift_of(slot);
    if (!(and_of(word, ~(1u << shift)) >> shift & 1)) return false;
    if (C::TICKET_BITS > 1) and_of(word, ~((Place<C>::INFO ^ info) << 1 << shift));
    return true;
}
// Puts the pair of a slot elsewhere into the bucket that its key has come to, whom nobody looks for; false if all slots there are taken: then
// the key is to go on. Others do the same beside it.
__device__ __forceinline__ bool settle_new(const Table& t, const Place<C>& to, const Key<C>& k, u64 from, u64& probes) {
    u64 bucket = to.bucket(t);
    for (;;) {
        Board x;
        x.load(tickets_at<C>(t, bucket));
        u32 free = from_first<C>(x.available(), to.first);
        if (!free) break;
        u32 s = slot_of<C>(free, to.first);
        if (!reserve(tickets_at<C>(t, bucket), s, to.info)) continue;
        u64 slot = slot_in<C>(t, bucket, s);
        put_key<C>(k, slot);
        take_value(slot, from + C::VALUE_OFFSET);
        if (probes >= STADIUM_PROBES_UNTOLD) max_of(&counters(t)->max_probes, probes + 1);
        return true;
    }
    goes_on<C>(t, bucket, to);
    probes++;
    return false;
}
