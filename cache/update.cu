// Update: an insert that combines values where the key is there. A program for each operation. The lane that has the
// bucket's lock reads, combines and writes.
#include "config.h" // struct config: what this cache holds
#include "cache.cuh"
#include "combine.cuh"
#include "layout.h"

using namespace cache;

typedef config C;
typedef tile<1, true> Tile;

WARPMAP_KERNEL(update, putParams) {
    Tile g;
    const Table& t = p.table;
    u64 added = 0, updated = 0, renewed = 0, evicted = 0, refused = 0;
    FOR_EACH_ITEM_BY(Tile, i, p.n) {
        bool busy = i < p.n;
        C::key k = busy ? input_key<C>(p.keys, i) : 0;
        C::value v = busy ? paired_input<C>(p.values, i) : C::value{};
        u32 score = busy ? new_score<C>((u32)p.now, 0, i, 1) : 0;
        Home<C> h(t, k);
        if (busy) ask_head(h.bucket);
        bool again = false;
        while (any_busy(g, busy)) {
            u32 version;
            if (!busy || !lock<false>(h.bucket, version, again)) {
                again = true;
                pause();
                continue;
            }
            Place<C> x = choose<C>(h, version, k, score, false, p.time, false);
            if (x.fate == UPDATES) v = (C::value)merged((number_bits)value_of<C>(x.old), (number_bits)v);
            settle<C, false>(h, x, k, v, score, false, (u32)p.now, expiry_of<C>(p.time, p.life, 0, i), 1);
            unlock(h.bucket, version);
            added += x.fate == ADDS;
            updated += x.fate == UPDATES;
            renewed += x.fate == RENEWS;
            evicted += x.fate == EVICTS;
            refused += x.fate == IS_REFUSED;
            busy = false;
        }
    }
    count_into(&counters(t)->added, added);
    count_into(&counters(t)->updated, updated);
    count_into(&counters(t)->renewed, renewed);
    count_into(&counters(t)->evicted, evicted);
    count_into(&counters(t)->refused, refused);
}
