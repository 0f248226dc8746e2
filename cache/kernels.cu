// Bulk operations of a cache: an item to a lane. Tiles of lanes copy values that lie apart.
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "layout.h"

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
        if (on) slot = slot_of<C>(h, load_head(h.bucket), k, w);
        bool found = slot < WAYS;
        if (found && !p.quiet) touch<C>(score_at(h.bucket, slot), (u32)p.now);
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

// A pair that goes out gets the next row of the columns for those.
WARPMAP_KERNEL(put, putParams) {
    Tile g;
    const Table& t = p.table;
    u64 added = 0, updated = 0, evicted = 0, refused = 0;
    FOR_EACH_ITEM_BY(Tile, i, p.n) {
        bool busy = i < p.n;
        key k = busy ? input_key<C>(p.keys, i) : 0;
        value v = busy ? paired_input<C>(p.values, i) : value{};
        u32 score = busy ? new_score<C>((u32)p.now, p.scores, i) : 0;
        Home<C> h(t, k);
        while (g.any_of_all(busy)) {
            u32 version = 0;
            Place<C> x{};
            bool got = busy && lock<false>(h.bucket, version);
            if (got) x = choose<C>(h, version, k, score);
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
            if (got) settle<C, false>(h, x, k, v, score, (u32)p.now);
            if (!C::PAIRED && Tile::LANES > 1) g.sync(); // what the other lanes wrote comes before the lock is given back
            if (got) {
                unlock(h.bucket, version);
                added += x.fate == ADDS;
                updated += x.fate == UPDATES;
                evicted += x.fate == EVICTS;
                refused += x.fate == IS_REFUSED;
                busy = false;
            } else if (busy) pause();
        }
    }
    count_into(&counters(t)->added, added);
    count_into(&counters(t)->updated, updated);
    count_into(&counters(t)->evicted, evicted);
    count_into(&counters(t)->refused, refused);
}

// Of several lanes that erase one key, one finds it.
WARPMAP_KERNEL(erase, findParams) {
    u64 erased = 0;
    FOR_EACH_ITEM_BY(tile<1>, i, p.n) {
        if (i >= p.n) break;
        key k = input_key<C>(p.keys, i);
        Home<C> h(p.table, k);
        for (bool busy = true; busy;) { // who waits holds no lock, and the lane that has it is not behind who waits
            u32 version;
            if (!lock<false>(h.bucket, version)) {
                pause();
                continue;
            }
            word w;
            u32 slot = slot_of<C>(h, load_head(h.bucket), k, w);
            if (slot < WAYS) store_relaxed(tag_at(h.bucket, slot), (u8)0);
            unlock(h.bucket, version);
            erased += slot < WAYS;
            if (p.found) at<u8>(p.found)[i] = slot < WAYS;
            busy = false;
        }
    }
    count_into(&counters(p.table)->erased, erased);
}

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
            paired_output<C>(p.values, to, value_of<C>(w));
        }
        if constexpr (!C::PAIRED) copy_out<C>(g, on ? value_at<C>(p.table, number, slot) : 0, on ? row_at<C>(p.values, to) : 0);
    }
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
