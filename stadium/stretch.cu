// Large batches, stretch by stretch: a block takes the tickets of some buckets in a row into shared memory, and the
// slots if keys are in them. It puts those pairs there whose first bucket is among them, and writes all back. So memory
// sees streams alone. A row whose first bucket is full, or whose key may be in another bucket, is listed. What finds no
// place in the first buckets of its chain, which are in one stretch, is left over to insert_listed.
//
// A row looks for its key among the pairs that were there before the batch, takes the first available slot of its order
// with one atomic operation on the bucket's mark, and writes its pair and its ticket. So rows of one key may stand
// beside one another, until all rows have come. Then each bucket is looked at once, and one pair of a key stays. The
// tickets of the others are given back: so nothing that stands behind them moves.
//
// Then the rows of the list go on along their chains together, in rounds. In a round they pass those buckets alone that
// were full when it began: so rows of one key come to the same buckets in the same rounds, and none is put into a later
// bucket than another. No row looks for its key while others put pairs.
//
// A bucket's tickets may be seen while others write to it. They go from available to taken alone. So a row may take a
// bucket for one that sends its key on which was not full before the batch: then it is listed for nothing.
//
// Values that the rows do not carry stay in the batch until all rows have come. Till then a slot has its row's
// position, and the block has no slots in shared memory, but their keys. At the end a value goes from its row to its
// slot, once.
#include "config.h" // struct config: what this table holds
#include "stadium.cuh"

using namespace stadium;

typedef config C;
typedef Tickets<C> Board;
constexpr u32 SLOTS = C::SLOTS;
constexpr bool CARRIED = STADIUM_CARRIES;

// A bucket's mark: the slots that are taken, and whether some are TAKEN_NOW, in a round. Above them are those that were
// before the batch, and whether a key went on from here.
struct Mark {
    static constexpr u32 ALL = Board::EVERY, TAKEN_NOW = 1u << 15, WAS = 16, WENT_ON = 1u << 31, NONE = C::SLOTS;
    static_assert(C::SLOTS < 16, "twice in a word, and two bits");

    static __device__ __forceinline__ u32 begin(const Board& x) {
        u32 taken = ~x.available() & ALL;
        constexpr u32 FILTER = (1u << STADIUM_BEYOND_BITS) - 1;
        bool went_on = (u32)(x.w[Board::WORDS - 1] >> (8 * Board::BYTES / Board::WORDS - STADIUM_BEYOND_BITS) & FILTER) != FILTER;
        return taken | taken << WAS | (went_on ? WENT_ON : 0);
    }
    static __device__ __forceinline__ u32 was(u32 mark) { return mark >> WAS & ALL; }
    static __device__ __forceinline__ u32 fresh(u32 mark) { return mark & ~(mark >> WAS) & ALL; }
    // was_full tells whether a bucket was full when the round began.
    static __device__ __forceinline__ bool was_full(u32 mark) { return (mark & (ALL | TAKEN_NOW)) == ALL; }
    // take gives an available slot, which is the row's from then on; or NONE.
    static __device__ __forceinline__ u32 take(u32* mark, u32 seen, u32 first, u32 now = 0) {
        for (;;) {
            u32 free = from_first<C>(~seen & ALL, first);
            if (!free) return NONE;
            u32 slot = slot_of<C>(free, first);
            seen = or_of(mark, 1u << slot | now);
            if (!(seen >> slot & 1)) return slot;
        }
    }
};

// write_ticket takes the ticket of an available slot, beside others who take its neighbours': it is all ones, or but
// for its lowest bit 0.
__device__ __forceinline__ void write_ticket(u64 tickets, u32 slot, u32 ticket) {
    if constexpr (C::TICKET_BITS >= 8) Board::set(tickets, slot, ticket);
    else {
        u32 *word = Board::word_at(tickets, slot), shift = Board::shift_of(slot), ones = (1u << C::TICKET_BITS) - 1;
        u32 was = and_of(word, ~((ones ^ ticket) << shift)) >> shift & ones;
        if (ticket & ~was) or_of(word, ticket << shift);
    }
}

// What a block has in shared memory beside tickets, slots, marks and the list.
struct Stage {
    u32 old;  // whether there were pairs in the stretch
    u32 full; // rows that are not in their first buckets
    u32 waits; // the last round after which a row waited for another
    u32 leave, base; // rows that leave, and where they go
    u32 added;
};
static_assert(sizeof(Stage) + 1024 <= STADIUM_STRETCH_FIXED, "beside what CUDA takes");

// Brought is a row's value; if rows do not carry values, its position.
//
// Cells are the stretch in shared memory: its slots; if rows do not carry values, each slot's key and its row's
// position. Where values are written by parts, each bucket CLAIMS the slots whose values the batch has replaced: so a
// value is of one row.
#if STADIUM_CARRIES
struct Brought {
    Value<C> v;
    __device__ __forceinline__ void load(const stretchParams& p, u64 row) { v = Value<C>::of_row(p.rows.values + row * C::VALUE_BYTES); }
    __device__ __forceinline__ void leave(const stretchParams& p, u64 to) const { v.give(p.left_values + to * C::VALUE_BYTES); }
};
struct Cells {
    static constexpr u32 BYTES = C::SLOT_BYTES;
    static constexpr bool CLAIMS = C::VALUE_UNIT < C::VALUE_BYTES;
    u64 slots;
    __device__ __forceinline__ Cells(u64 to, u32) : slots(to) {}
    __device__ __forceinline__ u64 key_at(u32 slot) const { return slots + slot * BYTES; }
    __device__ __forceinline__ u32 position_of(u32) const { return 0; }
    __device__ __forceinline__ void put(u32 slot, const Key<C>& k, const Brought& x) const { put_pair<C, InBlock>(key_at(slot), k, x.v); }
    __device__ __forceinline__ void replace(u32 slot, const Brought& x) const { x.v.put<InBlock>(key_at(slot)); }
};
#else
struct Brought {
    u32 position;
    __device__ __forceinline__ void load(const stretchParams& p, u64 row) { position = load_readonly(at<u32>(p.rows.positions) + row); }
    __device__ __forceinline__ void leave(const stretchParams& p, u64 to) const { store_memory(at<u32>(p.left_positions) + to, position); }
};
struct Cells {
    static constexpr u32 BYTES = C::KEY_BYTES + 4;
    static constexpr bool CLAIMS = true;
    u64 keys;
    u32* positions;
    __device__ __forceinline__ Cells(u64 to, u32 slots) : keys(to), positions(at<u32>(to + slots * C::KEY_BYTES)) {}
    __device__ __forceinline__ u64 key_at(u32 slot) const { return keys + slot * C::KEY_BYTES; }
    __device__ __forceinline__ u32 position_of(u32 slot) const { return load_relaxed(positions + slot); }
    __device__ __forceinline__ void put(u32 slot, const Key<C>& k, const Brought& x) const {
        put_key<C, InBlock>(k, key_at(slot));
        store_relaxed(positions + slot, x.position);
    }
    __device__ __forceinline__ void replace(u32 slot, const Brought& x) const { store_relaxed(positions + slot, x.position); }
};
#endif

template <bool REPLACE> struct StretchJob {
    const stretchParams& p;
    Stage& stage;
    u32 buckets;
    u64 from, first; // the stretch's first bucket, and its first row
    Cells cells;
    u64 tickets; // here
    u32 *marks, *replaced, *listed; // listed: rows, by their numbers in the stretch
    u32 added;
    static constexpr int ROW = C::KEY_BYTES + (CARRIED ? C::VALUE_BYTES : 4);
    static constexpr u32 IN_FLIGHT = ROW <= 16 ? 4 : ROW <= 32 ? 2 : 1;
    Key<C> k[IN_FLIGHT]; // rows of this thread
    Brought v[IN_FLIGHT];

    __device__ __forceinline__ StretchJob(const stretchParams& p, Stage& stage, u64 first)
        : p(p), stage(stage), buckets(1u << p.cut), from(block_index() << p.cut), first(first), cells((u64)dynamic_shared(), buckets * SLOTS), added(0) {
        tickets = (u64)dynamic_shared() + buckets * SLOTS * Cells::BYTES;
        marks = at<u32>(tickets + buckets * C::TICKET_BYTES);
        replaced = marks + buckets;
        listed = Cells::CLAIMS ? replaced + buckets : replaced;
    }
    __device__ __forceinline__ u64 tickets_of(u32 bucket) const { return tickets + bucket * C::TICKET_BYTES; }
    __device__ __forceinline__ u32 ticket_units() const { return buckets * C::TICKET_BYTES / 16; }
    __device__ __forceinline__ u32 slot_units() const { return buckets * SLOTS * C::SLOT_BYTES / 16; }
    __device__ __forceinline__ u64 slots_in_memory() const { return slot_in<C>(p.table, from, 0); }

    // load is for all threads. Where no slot was taken, there is nothing to read but tickets.
    __device__ __forceinline__ void load() {
        const u128* board = at<u128>(tickets_at<C>(p.table, from));
        for (u32 i = thread_index(); i < ticket_units(); i += block_threads()) at<u128>(tickets)[i] = load_readonly(board + i);
        block_sync();
        bool old = false;
        for (u32 i = thread_index(); i < buckets; i += block_threads()) {
            Board x;
            x.load(tickets_of(i));
            u32 mark = Mark::begin(x);
            marks[i] = mark;
            if (Cells::CLAIMS) replaced[i] = 0;
            old |= mark & Mark::ALL;
        }
        if (old) store_relaxed(&stage.old, 1u);
        block_sync();
        if constexpr (CARRIED) {
            const u128* slots = at<u128>(slots_in_memory());
            u128* copy = dynamic_shared();
            bool read = stage.old;
            for (u32 i = thread_index(); i < slot_units(); i += block_threads()) copy[i] = read ? load_readonly(slots + i) : u128{0, 0};
            block_sync();
        }
    }
    // store is for all threads.
    __device__ __forceinline__ void store() const {
        u128* board = at<u128>(tickets_at<C>(p.table, from));
        for (u32 i = thread_index(); i < ticket_units(); i += block_threads()) board[i] = at<u128>(tickets)[i];
        if constexpr (CARRIED) {
            u128* slots = at<u128>(slots_in_memory());
            for (u32 i = thread_index(); i < slot_units(); i += block_threads()) slots[i] = dynamic_shared()[i];
        } else
            store_slots();
    }
    // store_slots writes the slots that the batch has changed, unit by unit, as they lie in memory. A thread asks for
    // some units before it writes them.
    __device__ __forceinline__ void store_slots() const {
        constexpr u32 UNIT = C::KEY_UNIT < C::VALUE_UNIT ? C::KEY_UNIT : C::VALUE_UNIT, UNITS = C::SLOT_BYTES / UNIT, ASKED = 4;
        typedef typename bits_of<UNIT>::type unit;
        u64 slots = slots_in_memory();
        u32 all = buckets * SLOTS * UNITS;
        for (u32 i = thread_index(); i < all; i += ASKED * block_threads()) {
            unit x[ASKED];
            u32 changed = 0;
#pragma unroll
            for (u32 j = 0; j < ASKED; j++) {
                u32 n = i + j * block_threads(), slot = n / UNITS;
                x[j] = unit{};
                if (n >= all || !changes(slot, n % UNITS * UNIT)) continue;
                changed |= 1u << j;
                x[j] = unit_at<unit>(slot, n % UNITS * UNIT);
            }
#pragma unroll
            for (u32 j = 0; j < ASKED; j++)
                if (changed >> j & 1) store_memory(at<unit>(slots) + (i + j * block_threads()), x[j]);
        }
    }
    // changes tells whether a slot's unit changes: of one that was replaced, the value's do.
    __device__ __forceinline__ bool changes(u32 slot, u32 offset) const {
        u32 bucket = slot / SLOTS, s = slot % SLOTS;
        if (Mark::fresh(marks[bucket]) >> s & 1) return true;
        return REPLACE && offset >= C::VALUE_OFFSET && (replaced[bucket] >> s & 1);
    }
    template <class unit> __device__ __forceinline__ unit unit_at(u32 slot, u32 offset) const {
        if (offset < C::KEY_BYTES) return load_relaxed(at<unit>(cells.key_at(slot) + offset));
        if (offset < C::VALUE_OFFSET || offset >= C::VALUE_OFFSET + C::VALUE_BYTES) return unit{};
        return load_readonly(at<unit>(p.rows.values + (u64)cells.position_of(slot) * C::VALUE_BYTES + (offset - C::VALUE_OFFSET)));
    }

    // holds tells whether a slot has the key, which was there before the batch with OLD: where keys alone are here,
    // those are in memory.
    template <bool OLD> __device__ __forceinline__ bool holds(u32 bucket, u32 slot, const Key<C>& k) const {
        if constexpr (OLD && !CARRIED) return same<C>(k, slots_in_memory() + (bucket * SLOTS + slot) * (u64)C::SLOT_BYTES);
        else return same<C, InBlock>(k, cells.key_at(bucket * SLOTS + slot));
    }
    __device__ __forceinline__ void replace(u32 bucket, u32 slot, const Brought& v) const {
        if (Cells::CLAIMS && or_of(replaced + bucket, 1u << slot) >> slot & 1) return; // another row's value is there
        cells.replace(bucket * SLOTS + slot, v);
    }
    // look looks for a key that may have been there before the batch.
    enum Seen { ABSENT, IN, PERHAPS_BEYOND };
    __device__ __forceinline__ Seen look(u32 bucket, u32 mark, const Place<C>& to, const Key<C>& k, const Brought& v) const {
        Board x;
        x.load(tickets_of(bucket));
        bool ended;
        u32 maybe = candidates<C>(x, to, ended) & from_first<C>(Mark::was(mark), to.first);
        for (; maybe; maybe &= maybe - 1) {
            u32 slot = slot_of<C>(maybe, to.first);
            if (!holds<true>(bucket, slot, k)) continue;
            if (REPLACE) replace(bucket, slot, v);
            return IN;
        }
        return ended || !x.went_on(to.beyond) ? ABSENT : PERHAPS_BEYOND;
    }
    __device__ __forceinline__ u32 bucket_of(const Place<C>& to) const { return to.local & (buckets - 1); }
    // advance brings a key to its next bucket, if that is one of the first C::NEAR, and here. (Tests have stretches
    // that are smaller than a neighbourhood.)
    __device__ __forceinline__ bool advance(Place<C>& to) const {
        static_assert(C::NEAR <= STADIUM_PROBES_UNTOLD, "else the longest chain would have to be told");
        if (to.turn + 1 == C::NEAR) return false;
        Place<C> next = to;
        next.advance(p.table);
        if ((next.local ^ to.local) >> p.cut) return false;
        to = next;
        return true;
    }
    // put puts a row's pair into its first bucket, and tells whether it is in.
    __device__ __forceinline__ bool put(const Key<C>& k, const Brought& v) {
        Place<C> to(p.table, k);
        u32 bucket = bucket_of(to), seen = load_relaxed(marks + bucket);
        if (seen >> Mark::WAS) {
            Seen x = look(bucket, seen, to, k, v);
            if (x != ABSENT) return x == IN;
        }
        return take(bucket, seen, to, k, v) != Mark::NONE;
    }
    // take puts a pair into an available slot of a bucket, and gives it.
    __device__ __forceinline__ u32 take(u32 bucket, u32 seen, const Place<C>& to, const Key<C>& k, const Brought& v, u32 now = 0) const {
        u32 slot = Mark::take(marks + bucket, seen, to.first, now);
        if (slot == Mark::NONE) return slot;
        cells.put(bucket * SLOTS + slot, k, v);
        write_ticket(tickets_of(bucket), slot, taken_ticket<C>(to.info));
        return slot;
    }
    // put_all puts all rows, the first of which were asked for. The lanes of a warp meet behind each row of theirs:
    // lanes that go different ways, as those do that find a bucket full, would not come together again by themselves.
    __device__ __forceinline__ void ask(u32 i, u32 n) {
#pragma unroll
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            u32 row = i + j * block_threads() + thread_index();
            if (row >= n) row = 0;
            k[j] = Key<C>::of_batch(p.rows.keys, first + row);
            v[j].load(p, first + row);
        }
    }
    __device__ __forceinline__ void put_all(u32 n) {
        tile<32, true> warp;
        for (u32 i = 0; i < n; i += IN_FLIGHT * block_threads()) {
            if (i) ask(i, n);
#pragma unroll
            for (u32 j = 0; j < IN_FLIGHT; j++) {
                u32 row = i + j * block_threads() + thread_index();
                bool left = row < n && !put(k[j], v[j]);
                warp.sync();
                if (left) list(row);
                warp.sync();
            }
        }
    }

    // Rows that are not in their first buckets are listed, and go on when all rows have come. Those that are too many
    // for the list have a key of which there are many, or belong to a table that is nearly full: then all rows are gone
    // through.
    __device__ __forceinline__ void list(u32 row) {
        u32 n = add(&stage.full, 1u);
        if (n < p.listed) store_relaxed(listed + n, row);
    }
    // leave gives a row to the kernel that comes behind.
    __device__ __forceinline__ void leave(u64 to, const Key<C>& k, const Brought& v) const {
        put_key<C>(k, p.left_keys + to * C::KEY_BYTES);
        v.leave(p, to);
    }
    // A listed row is IN, or has a slot, which is its own once the round is over; or it waits for that, or leaves.
    enum Step { IS_IN, TAKES, WAITS, LEAVES };
    // go_on takes the listed rows of n on along their chains, and gives away those that are not in. It is for all
    // threads, once all buckets are settled. Where there are more rows than threads, those of one key may come in
    // turns: what is in the later ones' way is full, or has their key.
    __device__ __forceinline__ void go_on(u32 n) {
        bool all = stage.full > p.listed;
        if (!all) n = stage.full;
        u32 round = 0;
        for (u32 turn = 0; turn < n; turn += block_threads()) {
            u32 i = turn + thread_index(), slot = 0, number = 0;
            Key<C> k{};
            Brought v{};
            Place<C> to{};
            Step is = IS_IN;
            if (i < n) {
                u64 row = first + (all ? i : load_relaxed(listed + i));
                k = Key<C>::of_batch(p.rows.keys, row);
                v.load(p, row);
                to = Place<C>(p.table, k);
                is = trace(to, k, v);
            }
            block_sync();
            if (thread_index() == 0) stage.leave = 0; // which all have read of the turn before
            for (u32 end = round + STADIUM_STRETCH_ROUNDS; round < end;) {
                round++;
                if (is == WAITS) is = step(to, slot, k, v);
                if (is == WAITS) store_relaxed(&stage.waits, round);
                block_sync();
                if (is == WAITS || is == TAKES) is = settle_own(is, to, slot, k);
                bool more = stage.waits == round;
                block_sync();
                if (!more) break;
            }
            if (is != IS_IN) number = add(&stage.leave, 1u);
            block_sync();
            if (!stage.leave) continue;
            if (thread_index() == 0) stage.base = add_in_memory(at<u32>(p.left), stage.leave);
            block_sync();
            if (is != IS_IN) leave((u64)stage.base + number, k, v);
        }
    }
    // trace brings a row to the first bucket of its chain that is not full, unless its key is in.
    __device__ __forceinline__ Step trace(Place<C>& to, const Key<C>& k, const Brought& v) const {
        for (Place<C> old = to;;) {
            u32 bucket = bucket_of(old), mark = load_relaxed(marks + bucket);
            if (!(mark >> Mark::WAS)) break;
            Seen x = look(bucket, mark, old, k, v);
            if (x == IN) return IS_IN;
            if (x == ABSENT) break;
            if (!advance(old)) return LEAVES;
        }
        for (;;) {
            u32 bucket = bucket_of(to), mark = load_relaxed(marks + bucket);
            if (is_among(bucket, Mark::fresh(mark), to, k)) return IS_IN;
            if (!Mark::was_full(mark)) return WAITS;
            if (!pass(to)) return LEAVES;
        }
    }
    // pass brings a key to the next bucket.
    __device__ __forceinline__ bool pass(Place<C>& to) const {
        u32 *word = at<u32>(tickets_of(bucket_of(to)) + C::TICKET_BYTES) - 1, bit = 1u << (32 - STADIUM_BEYOND_BITS + to.beyond);
        if (!advance(to)) return false;
        if (load_relaxed(word) & bit) and_of(word, ~bit);
        return true;
    }
    // step is a row's part in a round.
    __device__ __forceinline__ Step step(Place<C>& to, u32& slot, const Key<C>& k, const Brought& v) const {
        for (;;) {
            u32 bucket = bucket_of(to), mark = load_relaxed(marks + bucket);
            if (!Mark::was_full(mark)) {
                slot = take(bucket, mark, to, k, v, Mark::TAKEN_NOW);
                return slot == Mark::NONE ? WAITS : TAKES;
            }
            if (!pass(to)) return LEAVES;
        }
    }
    // settle_own ends a row's round, while nobody takes slots. Of those that put one key into a bucket, the first
    // slot's stays.
    __device__ __forceinline__ Step settle_own(Step is, const Place<C>& to, u32 slot, const Key<C>& k) {
        u32 bucket = bucket_of(to), fresh = Mark::fresh(load_relaxed(marks + bucket));
        if (is == WAITS) return is_among(bucket, fresh, to, k) ? IS_IN : WAITS;
        u32 clear = Mark::TAKEN_NOW;
        if (is_among(bucket, fresh & (1u << slot) - 1, to, k)) {
            Board::set(tickets_of(bucket), slot, GIVEN_BACK);
            clear |= 1u << slot;
        } else
            added++;
        and_of(marks + bucket, ~clear);
        return IS_IN;
    }
    // is_among tells whether rows of the batch have put the key into one of these slots.
    __device__ __forceinline__ bool is_among(u32 bucket, u32 slots, const Place<C>& to, const Key<C>& k) const {
        Board x;
        x.load(tickets_of(bucket));
        for (u32 maybe = x.taken(to.info) & slots; maybe; maybe &= maybe - 1)
            if (holds<false>(bucket, (u32)lowest_bit(maybe), k)) return true;
        return false;
    }

    // settle leaves one pair of each key in every bucket.
    __device__ __forceinline__ void settle() {
        for (u32 i = thread_index(); i < buckets; i += block_threads()) {
            u32 mark = marks[i], fresh = Mark::fresh(mark), twice = 0;
            if (fresh & fresh - 1 && perhaps_twice(i, fresh)) {
                twice = again(i, fresh);
                for (u32 left = twice; left; left &= left - 1) Board::set(tickets_of(i), (u32)lowest_bit(left), GIVEN_BACK);
                marks[i] = mark & ~twice;
            }
            added += (u32)popcount(fresh & ~twice);
        }
    }
    // short_key is a word that equal keys have in common.
    __device__ __forceinline__ u32 short_key(u32 slot) const {
        u32 x = 0;
#pragma unroll
        for (u32 i = 0; i < C::KEY_BYTES / 4; i++) x = (x << 5 | x >> 27) ^ load_relaxed(at<u32>(cells.key_at(slot)) + i);
        return x;
    }
    // perhaps_twice tells whether a key may be in a bucket twice; most buckets are done with by that. Slots that are
    // not fresh have words of their own.
    __device__ __forceinline__ bool perhaps_twice(u32 bucket, u32 fresh) const {
        u32 x[SLOTS];
#pragma unroll
        for (u32 i = 0; i < SLOTS; i++) x[i] = fresh >> i & 1 ? short_key(bucket * SLOTS + i) : ~i * 0x9e3779b9u;
        bool twice = false;
#pragma unroll
        for (u32 j = 1; j < SLOTS; j++)
#pragma unroll
            for (u32 i = 0; i < j; i++) twice |= x[i] == x[j];
        return twice;
    }
    // again gives the fresh slots whose key is in one before them.
    __device__ __forceinline__ u32 again(u32 bucket, u32 fresh) const {
        u32 twice = 0;
        for (u32 left = fresh; left; left &= left - 1) {
            u32 j = (u32)lowest_bit(left);
            Key<C> k = key_here(bucket * SLOTS + j);
            for (u32 before = fresh & (1u << j) - 1; before; before &= before - 1)
                if (same<C, InBlock>(k, cells.key_at(bucket * SLOTS + (u32)lowest_bit(before)))) {
                    twice |= 1u << j;
                    break;
                }
        }
        return twice;
    }
    __device__ __forceinline__ Key<C> key_here(u32 slot) const {
        Key<C> k;
#pragma unroll
        for (int i = 0; i < Key<C>::UNITS; i++) k.u[i] = load_relaxed(at<typename Key<C>::unit>(cells.key_at(slot)) + i);
        return k;
    }
};

template <bool REPLACE> __device__ __forceinline__ void insert_stretch(const stretchParams& p) {
    __shared__ Stage stage;
    const u64* starts = at<u64>(p.starts) + block_index();
    u64 first = load_readonly(starts);
    u32 n = (u32)(load_readonly(starts + 1) - first);
    if (!n) return;
    if (thread_index() == 0) stage.old = stage.full = stage.waits = stage.added = 0;
    StretchJob<REPLACE> job(p, stage, first);
    job.ask(0, n);
    job.load();
    job.put_all(n);
    block_sync();
    job.settle();
    block_sync();
    job.go_on(n);
    if (job.added) add(&stage.added, job.added);
    block_sync();
    job.store();
    if (thread_index() == 0 && stage.added) add_to_memory(&counters(p.table)->pairs, (u64)stage.added);
}

WARPMAP_KERNEL_RESIDENT(insert_stretch, stretchParams, STADIUM_STRETCH_RESIDENT) { insert_stretch<true>(p); }
WARPMAP_KERNEL_RESIDENT(insert_stretch_new, stretchParams, STADIUM_STRETCH_RESIDENT) { insert_stretch<false>(p); }
