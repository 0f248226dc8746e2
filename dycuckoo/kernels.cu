// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "jobs.cuh"
#include "partition.cuh"

WARPMAP_KERNEL_RESIDENT(insert, insertParams, 4) { insert_batch<true>(p); }
WARPMAP_KERNEL_RESIDENT(insert_new, insertParams, 4) { insert_batch<false>(p); }
WARPMAP_KERNEL(refine, insertParams) { refine_batch<true>(p); }
WARPMAP_KERNEL(refine_new, insertParams) { refine_batch<false>(p); }

// Brings pairs in the order of the stretches that their buckets lie in: regions are so many stretches in a row, or one.
// So they are of the high half of the hash that a key has in the table, a reserved one by its alias: Home.hi.
struct RegionOf {
    HashOf<C> hash;
    u32 mask, shift;
    __device__ __forceinline__ RegionOf(const partitionParams& p) : hash(p.table), mask((u32)p.mask), shift((u32)p.shift) {}
    __device__ __forceinline__ u32 operator()(key k) const { return ((u32)(hash(C::alias(k, C::marks(k))) >> 32) & mask) >> shift; }
};
__device__ __forceinline__ RegionOf region_of(const partitionParams& p) { return RegionOf(p); }
WARPMAP_PARTITION(partitionParams, key, value, u32, region_of)
WARPMAP_PARTITION_WITHIN(partitionParams, key, value, region_of)

WARPMAP_KERNEL(find, findParams) { look_up<false>(p.table, p.keys, p.n, Answer{p}); }

// Refuses the positions whose keys are not in the table, if the inserts before it have counted any that found no room.
WARPMAP_KERNEL(refuse_absent, insertParams) {
    if (!load_relaxed(&counters(p.table)->failed)) return;
    look_up<false>(p.table, p.rows.keys, p.rows.n, [&](u64 i, const Search<C, false>& s) {
        if (!s.found) or_of(at<u32>(p.rows.refused) + i / 32, 1u << (i & 31));
    });
}

WARPMAP_KERNEL(erase, findParams) {
    Tally<C> erased;
    u32 away = 0;
    look_up<true>(p.table, p.keys, p.n, [&](u64 i, const Search<C, true>& s) {
        bool removed = false;
        if (s.found) {
            Bucket b = s.bucket(p.table);
            removed = Cells<C>::remove(b, s.slot, s.h.stored, !s.room);
            if (removed) erased.count(s.h.reserved ? 0 : b.sub);
            away += removed && s.away;
        }
        if (p.found) at<u8>(p.found)[i] = removed;
    });
    erased.into<true>(counters(p.table)->pairs);
    u64* to[1] = {&counters(p.table)->away};
    u32 n[1] = {away};
    block_count(to, n);
}

// Operations of all kinds beside one another, each under the locks of its key's buckets. Where warps vote, all lanes of
// a warp stay to the end.
WARPMAP_KERNEL(mixed, mixedParams) {
    constexpr u64 TOGETHER = C::VOTER ? 31 : 0;
    for (u64 i = grid_thread(); (i & ~TOGETHER) < p.n; i += grid_threads()) {
        bool on = i < p.n && wanted(p.refused, p.attempt, i);
        if (!C::VOTER && !on) continue;
        if (on && p.clock && !p.attempt) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        key k = on ? input_key<C>(p.keys, i) : key{};
        value result{};
        Outcome o = FULL;
        u8 op = load_readonly(at<u8>(p.ops) + (on ? i : 0));
        bool puts = on && op == DYCUCKOO_INSERT, puts_new = on && op == DYCUCKOO_INSERT_NEW;
        if (puts | puts_new) result = input_value<C>(p.values, i);
        if constexpr (C::VOTER) {
            Outcome replaced = insert_voted<C, true>(p.table, puts, k, result), added = insert_voted<C, false>(p.table, puts_new, k, result);
            o = puts ? replaced : added;
        } else if (puts) o = insert<C>(p.table, k, result);
        else if (puts_new) o = insert_new<C>(p.table, k, result);
        if (!on) continue;
        if (puts | puts_new) result = value{};
        else if (op == DYCUCKOO_FIND) o = find<C>(p.table, k, result) ? PRESENT : ABSENT;
        else if (op == DYCUCKOO_DELETE) o = erase<C>(p.table, k) ? PRESENT : ABSENT;
        else o = ABSENT; // the host has refused it
        if (p.clock && o != FULL) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
        if (p.results && (o != FULL || p.attempt >= DYCUCKOO_LAST_ATTEMPT)) at<value>(p.results)[i] = result;
        if (p.status) at<u8>(p.status)[i] = (u8)o;
        settle(p.refused, p.attempt, i, o == FULL, &counters(p.table)->failed);
    }
}

WARPMAP_KERNEL(export_pairs, slotsParams) {
    FOR_EACH_ITEM(i, p.slots) {
        if (i >= p.slots) continue;
        Slot<C> s = slot_at<C>(p.table, p.first + i);
        if (!s.live) continue;
        u64 to = add(&counters(p.table)->exported, (u64)1);
        if (to >= p.limit) continue;
        at<key>(p.keys)[to] = s.k;
        if (p.values) at<value>(p.values)[to] = s.load();
    }
}

// How many buckets a look-up reads to come to each pair.
WARPMAP_KERNEL(probe_lengths, slotsParams) {
    u64 home = 0, away = 0;
    FOR_EACH_ITEM(i, slot_count<C>(p.table)) {
        if (i >= slot_count<C>(p.table)) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        bool there = !s.side && Home<C>(p.table, s.k).home != s.b.sub;
        away += there;
        home += !there;
    }
    count_into(at<u64>(p.histogram), home);
    count_into(at<u64>(p.histogram) + 1, away);
    count_into(at<u64>(p.histogram) + DYCUCKOO_HISTOGRAM_BINS, home + 2 * away);
}

// Sets the filters anew, which begin clear.
WARPMAP_KERNEL(refresh_filters, slotsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table) - side_slots<C>()) {
        if (i >= slot_count<C>(p.table) - side_slots<C>()) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live) continue;
        Home<C> h(p.table, s.k);
        if (h.home != s.b.sub) h.goes_away(p.table);
    }
}

// After refresh_filters for another Tilt: the buckets that keys have gone away from have no slots that never were taken.
WARPMAP_KERNEL(close_buckets, slotsParams) {
    FOR_EACH_ITEM(i, slot_count<C>(p.table) - side_slots<C>()) {
        if (i >= slot_count<C>(p.table) - side_slots<C>()) continue;
        Slot<C> s = slot_at<C>(p.table, i);
        if (!s.live && load_relaxed(at<filter>(p.table.sub[s.b.sub].filter) + s.b.number)) Cells<C>::set_free(s.b, s.slot, true);
    }
}

// Upsizing (§4.4): a pair of bucket b goes to bucket b, or to b + the old number of buckets, of the new array, to the slot of the same
// number. No two buckets meet, so there are no locks. An item is a slot, or in layout Wide a bucket. The new array may begin where the old
// one does.
template <class C> __device__ __forceinline__ void split_items(const slotsParams& p) {
    typedef typename C::key key;
    u64 n = p.from.buckets;
    u32 sub = (u32)p.number;
    constexpr u64 ITEMS = C::PACKED ? C::SLOTS : 1;
    for (u64 i = grid_thread(); i < n * ITEMS; i += grid_threads()) {
        u64 words = n * DYCUCKOO_FILTER_BITS / 32;
        if (i < words) {
            u32 bits = load_readonly(at<u32>(p.from.filter) + i);
            at<u32>(p.to.filter)[i] = bits;
            at<u32>(p.to.filter)[i + words] = bits;
        }
        if constexpr (C::PACKED) {
            typedef Access<C> A;
            // Where no key has gone away, free slots are as good as never taken.
            bool freed = load_readonly(at<filter>(p.from.filter) + i / C::SLOTS);
            typename A::word w = load_relaxed(A::word_at(p.from.slots, i)), free = A::free_word(w, freed);
            key k = A::key_of(w);
            bool taken = !C::marks(k), up = taken && Home<C>(p.table, k).number(sub, 2 * n) >= n;
            typename A::word low = taken && !up ? w : free;
            if (p.to.slots != p.from.slots || low != w) store_relaxed(A::word_at(p.to.slots, i), low);
            store_relaxed(A::word_at(p.to.slots, i + n * C::SLOTS), up ? w : free);
        } else {
            Slot<C> s = slot_of<C>(p.from, sub, i * C::SLOTS);
            u32 full = load_relaxed(Cells<C>::mask(s.b)), low = 0;
            Bucket to[2] = {slot_of<C>(p.to, sub, i * C::SLOTS).b, slot_of<C>(p.to, sub, (i + n) * C::SLOTS).b};
            for (u32 j = 0; j < C::SLOTS; j++) {
                if (!(full >> j & 1)) continue;
                key k = load_relaxed(Cells<C>::key_at(s.b, j));
                bool up = Home<C>(p.table, k).number(sub, 2 * n) >= n;
                low |= (u32)!up << j;
                store_relaxed(Cells<C>::key_at(to[up], j), k);
                store_relaxed(Cells<C>::value_place(to[up], j), Cells<C>::value_at(s.b, j));
            }
            store_relaxed(Cells<C>::mask(to[0]), low);
            store_relaxed(Cells<C>::mask(to[1]), full & ~low);
        }
    }
}
WARPMAP_KERNEL(split, slotsParams) { split_items<C>(p); }

// The filter of a subtable that is to be halved.
WARPMAP_KERNEL(merge_filters, slotsParams) {
    u64 words = p.to.buckets * DYCUCKOO_FILTER_BITS / 32;
    for (u64 i = grid_thread(); i < words; i += grid_threads())
        at<u32>(p.to.filter)[i] = load_readonly(at<u32>(p.from.filter) + i) | load_readonly(at<u32>(p.from.filter) + i + words);
}

// send_away puts a residual into the one of its subtables that is not sub, moving pairs on where it must, but none to sub.
__device__ __forceinline__ bool send_away(const Table& t, const Home<C>& h, u32 sub, value v, Shifts<C>& count) {
    Bucket there = h.bucket(t, h.away(sub));
    bool waited = false;
    for (u32 tries = 0; tries < DYCUCKOO_MAX_TRIES;) {
        Locks lock(t, there, there);
        if (!lock.take(waited)) {
            pause();
            waited = true;
            continue;
        }
        u32 same, room = ~Cells<C>::look(there, h.stored, same) & Cells<C>::ALL;
        if (room) {
            if (there.sub == h.other) h.goes_away(t);
            Cells<C>::put(there, lowest_bit(room), h.stored, v);
        }
        lock.release();
        if (room) {
            count.added(t, there.sub);
            return true;
        }
        if (!make_room<C>(t, tile<1>(), there, fmix32(h.lo + ++tries), DYCUCKOO_MAX_PATH, sub, count)) return false;
    }
    return false;
}

// send_another sends one of the pairs of a full bucket away instead, and puts k in its slot. Where that is one of few subtables, all pairs of
// a residual's other bucket may well have come from here, and none can be moved on.
__device__ __forceinline__ bool send_another(const Table& t, const Bucket& b, key k, value v, Shifts<C>& count) {
    for (u32 s = 0; s < C::SLOTS; s++) {
        key x;
        Cells<C>::taken(b, s, x);
        if (!send_away(t, Home<C>(t, x), b.sub, Cells<C>::value_at(b, s), count)) continue;
        Cells<C>::put(b, s, k, v);
        return true;
    }
    return false;
}

// Downsizing: the pairs of buckets b and b + the new number of buckets go to bucket b. Those that it has no room for, the residuals,
// go to their other subtables. What finds no room there is counted. The table has the new array.
WARPMAP_KERNEL(halve, slotsParams) {
    u64 n = p.to.buckets, residuals = 0, gone = 0;
    u32 sub = (u32)p.number;
    Shifts<C> count;
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        Bucket to = slot_of<C>(p.to, sub, i * C::SLOTS).b;
        u32 filled = 0;
        for (u32 half = 0; half < 2; half++) {
            Bucket from = slot_of<C>(p.from, sub, (i + half * n) * C::SLOTS).b;
            for (u32 j = 0; j < C::SLOTS; j++) {
                key k;
                if (!Cells<C>::taken(from, j, k)) continue;
                value v = Cells<C>::value_at(from, j);
                if (filled < C::SLOTS) {
                    Cells<C>::put(to, filled++, k, v);
                    continue;
                }
                residuals++;
                if (send_away(p.table, Home<C>(p.table, k), sub, v, count) || send_another(p.table, to, k, v, count)) gone++;
                else add(&counters(p.table)->left, (u64)1);
            }
        }
        if (load_relaxed(at<filter>(p.to.filter) + i))
            while (filled < C::SLOTS) Cells<C>::set_free(to, filled++, true);
    }
    count.into(counters(p.table));
    count_into(&counters(p.table)->residual, residuals);
    count_into(&counters(p.table)->pairs[sub], 0 - gone);
}

// Takes back what halve has put into other subtables: the array that was halved stays.
WARPMAP_KERNEL(unhalve, slotsParams) {
    u64 n = p.from.buckets * C::SLOTS;
    for (u64 i = grid_thread(); i < n; i += grid_threads()) {
        Slot<C> s = slot_of<C>(p.from, (u32)p.number, i);
        if (!s.live) continue;
        Home<C> h(p.table, s.k);
        Bucket there = h.bucket(p.table, h.away((u32)p.number));
        u32 same;
        Cells<C>::look(there, s.k, same);
        if (!same || !Cells<C>::remove(there, lowest_bit(same), s.k)) continue;
        add(&counters(p.table)->pairs[there.sub], ~(u64)0);
        add(&counters(p.table)->pairs[p.number], (u64)1);
    }
}
