// Bulk operations of a cache: an item to a lane. Tiles of lanes copy values that lie apart.
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "counts.cuh"
#include "layout.h"
#include "outcome.cuh"

using namespace cache;

typedef config C;
typedef config::key key;
typedef config::value value;
typedef config::word word;
// All lanes of a warp stay in a kernel's loops to the end, so its tiles vote together.
typedef tile<CACHE_GROUP, true> Tile;

// No pair moves or goes while this runs; only scores change. An absent key's value is all zeros.
WARPMAP_KERNEL(find, findParams) {
    Tile g;
    u64 hits = 0, misses = 0;
    FOR_EACH_ITEM_BY(Tile, i, p.n) {
        bool on = i < p.n;
        key k = on ? input_key<C>(p.keys, i) : 0;
        Home<C> h(p.table, k);
        word w{};
        u32 slot = WAYS;
        bool over = false;
        if (on) slot = slot_of<C, false>(h, load_head(h.bucket), k, w, p.time, over);
        bool found = slot < WAYS && !over;
        if (found && p.marks) mark(p.marks, h.number, slot);
        else if (found && !p.quiet) touch<C>(score_at(h.bucket, slot), (u32)p.now);
        hits += found;
        misses += on && !found;
        if (on && p.found) at<u8>(p.found)[i] = found;
        if (on) paired_output<C>(p.values, i, found ? value_of<C>(w) : value{});
        if constexpr (!C::PAIRED) {
            u64 to = on ? row_at<C>(p.values, i) : 0;
            copy_out<C>(g, found ? value_at<C>(p.table, h.number, slot) : 0, to);
            copy_zero<C>(g, found ? 0 : to);
        }
    }
    count_into(&counters(p.table)->hits, hits);
    count_into(&counters(p.table)->misses, misses);
}

// Scores that look-ups write lie anywhere in memory, and each costs as much as reading the pair. Marks fit the L2 cache.
// So the scores of an LRU cache are written in the order of buckets, when all look-ups of a large batch have marked what
// they found. Marks that another batch sets meanwhile count for this one, or for that.
WARPMAP_KERNEL(touch_marked, findParams) {
    tile<32, true> warp; // two buckets, which share a word of marks
    u64 words = (p.table.count + 1) / 2;
    for (u64 i = grid_thread(); i < words * 32; i += grid_threads()) {
        u32 *word = at<u32>(p.marks) + i / 32, marks = 0;
        if (warp.rank() == 0 && load_relaxed(word)) marks = exchange(word, 0u);
        marks = warp.shuffle(marks, 0);
        u32 lane = (u32)warp.rank();
        u64 bucket = p.table.buckets + (i / 32 * 2 + lane / 16) * C::BUCKET_BYTES;
        if (marks >> lane & 1) store_relaxed(score_at(bucket, lane % 16), (u32)p.now);
    }
}

// A pair that goes out gets the next row of the columns for those.
WARPMAP_KERNEL(put, putParams) {
    Tile g;
    const Table& t = p.table;
    Counts counts;
    FOR_EACH_ITEM_BY(Tile, i, p.n) {
        // how many rows of its key it comes for
        u32 weight = i >= p.n ? 0 : p.weights ? load_readonly(at<u16>(p.weights) + i) : 1;
        bool busy = weight > 0;
        key k = busy ? input_key<C>(p.keys, i) : 0;
        value v = busy ? paired_input<C>(p.values, i) : value{};
        u32 score = busy ? new_score<C>((u32)p.now, p.scores, i, weight) : 0;
        u32 expiry = busy ? expiry_of<C>(p.time, p.life, p.lives, i) : 0;
        Home<C> h(t, k);
        if (busy) ask_head(h.bucket); // so that who has the lock does not wait for memory
        bool again = false;
        while (any_busy(g, busy)) {
            u32 version = 0;
            Place<C> x{};
            bool got = busy && lock<false>(h.bucket, version, again);
            if (got) x = choose<C>(h, version, k, score, p.scores != 0, p.time, p.out_count != 0);
            bool out = got && p.out_count && (x.fate == EVICTS || x.fate == IS_REFUSED);
            u64 to = append(at<u64>(p.out_count), out);
            if (out) {
                bool old = x.fate == EVICTS;
                at<key>(p.out_keys)[to] = old ? key_of<C>(x.old) : k;
                if (p.out_scores) at<u32>(p.out_scores)[to] = old ? x.score : score;
                paired_output<C>(p.out_values, to, old ? value_of<C>(x.old) : v);
            }
            if constexpr (!C::PAIRED) {
                if (Tile::LANES > 1) g.sync(); // the other lanes come behind who took the lock
                u64 in = got ? row_at<C>(p.values, i) : 0, row = out ? row_at<C>(p.out_values, to) : 0;
                u64 place = got && x.fate != IS_REFUSED ? value_at<C>(t, h.number, x.slot) : 0;
                copy_out<C>(g, place, row);
                copy_over<C>(g, place ? 0 : in, row);
                copy_in<C>(g, in, place);
            }
            if (got) settle<C, false>(h, x, k, v, score, p.scores != 0, (u32)p.now, expiry, weight);
            // what the other lanes wrote comes before the lock is given back
            if (!C::PAIRED && Tile::LANES > 1) g.sync();
            if (got) {
                unlock(h.bucket, version);
                counts.count(CACHE_INSERT, x.fate);
                counts.updated += weight - 1;
                busy = false;
            } else if (busy) {
                again = true;
                pause();
            }
        }
    }
    counts.end(counters(t));
}

// Of several lanes that erase one key, one finds it.
WARPMAP_KERNEL(erase, findParams) {
    u64 erased = 0;
    FOR_EACH_ITEM_BY(tile<1>, i, p.n) {
        if (i >= p.n) break;
        key k = input_key<C>(p.keys, i);
        Home<C> h(p.table, k);
        // who waits holds no lock, and the lane that has it is not behind who waits
        for (bool busy = true, again = false; busy;) {
            word w;
            bool over;
            u32 version;
            // Pairs only go here, so what is not seen is not there.
            if (slot_of<C, false>(h, load_head(h.bucket), k, w, p.time, over) == WAYS) {
                if (p.found) at<u8>(p.found)[i] = 0;
                break;
            }
            if (!lock<false>(h.bucket, version, again)) {
                again = true;
                pause();
                continue;
            }
            Place<C> x = choose_to_erase<C>(h, k, p.time);
            bool there = x.fate == UPDATES;
            if (there) store_relaxed(tag_at(h.bucket, x.slot), (u8)0);
            unlock(h.bucket, version);
            erased += there;
            if (p.found) at<u8>(p.found)[i] = there;
            busy = false;
        }
    }
    count_into(&counters(p.table)->erased, erased);
}

// The operations of a batch beside one another, or one operation on all keys. A look-up takes no lock: see
// "Concurrency" in doc.go. Where p.give is 1, an insert-new gives the value that its key then has.
WARPMAP_KERNEL(mixed, mixedParams) {
    Tile g;
    const Table& t = p.table;
    Counts n;
    FOR_EACH_ITEM_BY(Tile, i, p.n) {
        bool busy = i < p.n;
        u32 op = !busy ? CACHE_FIND : p.ops ? load_readonly(at<u8>(p.ops) + i) : (u32)p.op;
        bool puts = busy && (op == CACHE_INSERT || op == CACHE_INSERT_NEW);
        key k = busy ? input_key<C>(p.keys, i) : 0;
        value v = puts ? paired_input<C>(p.values, i) : value{};
        u32 score = busy ? new_score<C>((u32)p.now, 0, i, 1) : 0;
        u64 result = busy ? row_at<C>(p.results, i) : 0;
        Home<C> h(t, k);
        if (busy && p.clock) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        bool again = false;
        while (any_busy(g, busy)) {
            u32 version = 0;
            Place<C> x{};
            x.slot = WAYS;
            // An insert-new looks before it wants the lock: of many with one key, all but one find it.
            bool reads = busy && (op == CACHE_FIND || op == CACHE_INSERT_NEW), got = false;
            if (reads) {
                u128 head = load_head(h.bucket);
                version = (u32)head.lo;
                fence_acq_rel(); // what the tags stand for is there
                got = C::PAIRED || !(version & 1);
                bool over = false;
                if (got) x.slot = slot_of<C, true>(h, head, k, x.old, p.time, over);
                if (x.slot < WAYS && !over) x.fate = UPDATES;
                if (op == CACHE_INSERT_NEW && x.fate != UPDATES) reads = false;
            }
            if (busy && !reads) got = lock<true>(h.bucket, version, again);
            if (reads || !got) {
            } else if (puts) x = choose<C>(h, version, k, score, false, p.time, p.out_keys != 0);
            else if (op == CACHE_DELETE) x = choose_to_erase<C>(h, k, p.time);
            bool there = got && x.fate == UPDATES;
            bool writes = puts && got && x.fate != IS_REFUSED && !(there && op == CACHE_INSERT_NEW);
            bool tells = got && (op == CACHE_FIND ? there : op == CACHE_INSERT_NEW && p.give);
            if constexpr (!C::PAIRED) {
                // the other lanes come behind the owner's lock, or its look at the version
                if (Tile::LANES > 1) g.sync();
                u64 in = puts ? row_at<C>(p.values, i) : 0;
                u64 place = got && x.slot < WAYS ? value_at<C>(t, h.number, x.slot) : 0;
                copy_out<C>(g, there ? place : 0, tells ? result : 0);
                copy_over<C>(g, there ? 0 : in, tells ? result : 0);
                copy_in<C>(g, in, writes ? place : 0);
                copy_zero<C>(g, got && !tells ? result : 0);
                fence_acq_rel(); // before the version is looked at again
                if (Tile::LANES > 1) g.sync();
                // else it read in the middle of a change
                if (reads && got) got = load_relaxed(version_at(h.bucket)) == version;
            }
            if (got) {
                if (tells) v = there ? value_of<C>(x.old) : v;
                if (busy && C::PAIRED) paired_output<C>(p.results, i, tells ? v : value{});
                if (writes)
                    settle<C, true>(h, x, k, v, score, false, (u32)p.now, expiry_of<C>(p.time, p.life, 0, i), 1);
                else if (there && op == CACHE_DELETE) store_relaxed(tag_at(h.bucket, x.slot), (u8)0);
                else if (there) touch<C>(score_at(h.bucket, x.slot), (u32)p.now);
                if (p.out_keys && writes && x.fate == EVICTS) {
                    at<key>(p.out_keys)[i] = key_of<C>(x.old);
                    at<u8>(p.out_flags)[i] = 1;
                }
                if (!reads) unlock(h.bucket, version);
                Outcome o = there ? PRESENT : !puts ? ABSENT : x.fate == IS_REFUSED ? FULL : ADDED;
                if (p.status) at<u8>(p.status)[i] = (u8)o;
                if (p.added) at<u8>(p.added)[i] = o == ADDED;
                n.count(op, x.fate);
                if (p.clock) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
                busy = false;
            } else if (busy) {
                again = true;
                pause();
            }
        }
    }
    n.end(counters(t));
}

// A record is a value, its score and the ticks that it has left: 0 for ever.
#define CACHE_RECORD (C::VALUE_BYTES + 8)

// A slot to a lane. Pairs beyond the limit are counted, and not written.
WARPMAP_KERNEL(export_pairs, slotsParams) {
    Tile g;
    u64 slots = p.n * WAYS;
    FOR_EACH_ITEM_BY(Tile, i, slots) {
        u64 number = p.first + i / WAYS, bucket = p.table.buckets + number * C::BUCKET_BYTES;
        u32 slot = (u32)(i % WAYS);
        u32 score = 0;
        bool on = i < slots && load_relaxed(tag_at(bucket, slot)) != 0;
        if (on) score = load_relaxed(score_at(bucket, slot));
        on = on && score >= p.least;
        u64 to = append(&counters(p.table)->exported, on);
        on = on && to < p.limit;
        if (on) {
            word w = load_relaxed(word_at<C>(bucket, slot));
            if (p.keys) at<key>(p.keys)[to] = key_of<C>(w);
            if (p.scores) at<u32>(p.scores)[to] = score;
            if (p.records) {
                u32 end = C::EXPIRES ? load_relaxed(expiry_at<C>(bucket, slot)) : ~0u;
                u32* more = at<u32>(p.records + to * CACHE_RECORD + C::VALUE_BYTES);
                more[0] = score;
                more[1] = end == ~0u ? 0 : end > p.time ? end - (u32)p.time : 1;
                if (C::PAIRED && C::VALUE_BYTES > 0) *at<value>(p.records + to * CACHE_RECORD) = value_of<C>(w);
            }
            paired_output<C>(p.values, to, value_of<C>(w));
        }
        if constexpr (!C::PAIRED) {
            u64 from = on ? value_at<C>(p.table, number, slot) : 0;
            copy_out<C>(g, from, on ? row_at<C>(p.values, to) : 0);
            copy_to_record<C>(g, from, on && p.records ? p.records + to * CACHE_RECORD : 0);
        }
    }
}

// Pairs that have ended leave their slots. It is alone with the cache.
WARPMAP_KERNEL(sweep, slotsParams) {
    u64 swept = 0;
    FOR_EACH_ITEM_BY(tile<1>, i, p.n * WAYS) {
        if (i >= p.n * WAYS) break;
        u64 bucket = p.table.buckets + i / WAYS * C::BUCKET_BYTES;
        u32 slot = (u32)(i % WAYS);
        if (!load_relaxed(tag_at(bucket, slot)) || !ended<C>(bucket, slot, p.time)) continue;
        store_relaxed(tag_at(bucket, slot), (u8)0);
        swept++;
    }
    count_into(&counters(p.table)->swept, swept);
}

// The least score of all pairs.
WARPMAP_KERNEL(measure, slotsParams) {
    u64 youth = 0;
    FOR_EACH_ITEM_BY(tile<1>, i, p.n * WAYS) {
        if (i >= p.n * WAYS) break;
        u64 bucket = p.table.buckets + i / WAYS * C::BUCKET_BYTES;
        if (!load_relaxed(tag_at(bucket, (u32)(i % WAYS)))) continue;
        u64 x = ~load_relaxed(score_at(bucket, (u32)(i % WAYS)));
        if (x > youth) youth = x;
    }
    if (youth) max_of(&counters(p.table)->youth, youth);
}

// All scores become smaller, in their order.
WARPMAP_KERNEL(lower, slotsParams) {
    FOR_EACH_ITEM_BY(tile<1>, i, p.n * WAYS) {
        if (i >= p.n * WAYS) break;
        u32* score = score_at(p.table.buckets + i / WAYS * C::BUCKET_BYTES, (u32)(i % WAYS));
        u32 s = load_relaxed(score) >> p.shift;
        store_relaxed(score, s > p.less ? s - (u32)p.less : 0);
    }
}
