// Look-ups of all values of keys with long chains: the windows that a key's hint tells of are dealt out to all warps, for each of them can tell where
// any window of a chain is. A look-up that has gone far, and whose key has such a hint, leaves the rest to a kernel behind: see long.go.
#pragma once
#include "items.cuh"
#include "warpcore.cuh"

namespace warpcore {

struct LongChains {
    const Table& t;
    const longParams& p;

    __device__ __forceinline__ bool on() const { return p.keys != 0; }
    __device__ __forceinline__ longKey* key_at(u64 number) const { return at<longKey>(p.keys) + number; }
    __device__ __forceinline__ u64* length() const { return at<u64>(p.lengths); }

    // number_of gives the number of a hint of a long chain; ~0 without.
    template <class C> __device__ __forceinline__ u64 number_of(const Probe<C>& q) const {
        if (!on()) return ~0ull;
        u64 h = hint_of<false>(t, q);
        return h && hinted(h) >= WARPCORE_LONG_CHAIN ? (h - t.hints) / sizeof(hint) : ~0ull;
    }
    // ask leaves a key's chain to the kernels behind, if it is long: it gives the hint's number, or ~0. The first row that asks is noted.
    template <class C> __device__ __forceinline__ u64 ask(const Probe<C>& q, u64 row) const {
        u64 number = number_of(q);
        if (number == ~0ull || or_of(&key_at(number)->count, WARPCORE_LONG_ASKED) & WARPCORE_LONG_ASKED) return number;
        key_at(number)->row = row;
        u64 full = hinted((u64)(at<hint>(t.hints) + number)), n = (full < q.windows ? full : q.windows) / WARPCORE_LONG_PART + 1;
        u64 first = add(length() + 2, n);
        if (first + n <= p.room) key_at(number)->parts = first + 1;
        at<u32>(p.list)[add(length(), (u64)1)] = (u32)number;
        return number;
    }
    // A count of this kind stands for that of a hint's key.
    static __device__ __forceinline__ u32 mark(u64 number) { return WARPCORE_LONG_MARK | (u32)number; }
    __device__ __forceinline__ bool marked(u32 count, u64& values) const {
        u64 number = count & ~WARPCORE_LONG_MARK;
        if ((count & WARPCORE_LONG_MARK) != WARPCORE_LONG_MARK || number > t.hint_mask + WARPCORE_SIDE_HINTS) return false;
        values = load_relaxed(&key_at(number)->count);
        if (!(values & WARPCORE_LONG_ASKED)) return false;
        values &= ~WARPCORE_LONG_ASKED;
        return true;
    }
    // fill leaves the values of a row to fill_long, where there is room to note that, and its key was counted by count_long.
    template <class C> __device__ __forceinline__ bool fill(const Probe<C>& q, u64 to) const {
        u64 number = number_of(q), row;
        if (number == ~0ull || !key_at(number)->parts || (row = add(length() + 1, (u64)1)) >= WARPCORE_LONG_ROWS) return false;
        at<longRow>(p.rows)[row] = longRow{number, to};
        return true;
    }
    // before is where a part of a chain has how many values of the key come before its.
    __device__ __forceinline__ u64* before(u64 number, u64 window) const { return at<u64>(p.parts) + key_at(number)->parts - 1 + window / WARPCORE_LONG_PART; }
};

// far tells from time to time that a search has gone through windows enough to ask whether its key's chain is long.
template <class S> __device__ __forceinline__ bool far(const S& s) { return s.part == 0 && s.probes % WARPCORE_LONG_ASK == 0; }

// The chain of a hint's key.
template <class C> struct LongChain {
    typename C::key k;
    Probe<C> p;
    u64 full;
    __device__ __forceinline__ LongChain(const Table& t, u64 number) {
        const hint* h = at<hint>(t.hints) + number;
        k = C::real((typename C::key)h->key, number > t.hint_mask);
        p = Probe<C>(t, k);
        full = hinted((u64)h);
        if (full > p.windows) full = p.windows;
    }
    // stretch calls visit(indexes, views, matches) for EACH windows at a time, from first on, in all lanes of a warp, each of them for some slots: index
    // is that of a window's first slot.
    static constexpr int EACH = 4;
    template <class Tile, class Visit> __device__ __forceinline__ void stretch(Tile g, u64 first, u64 end, Visit visit) const {
        constexpr u32 TILES = 32 / Tile::LANES;
        typedef View<C, Tile::LANES> V;
        tile<32, true> warp;
        u64 window = first + (u32)warp.rank() / Tile::LANES, by = p.stride(TILES / p.turn());
        Probe<C> q = p;
        q.go_to(window);
        while (warp.any(window < end)) {
            V s[EACH];
            u64 index[EACH];
            u32 match[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++, window += TILES) {
                bool on = window < end;
                index[j] = q.slot_index(0);
                match[j] = on && V::holds(g.rank());
                s[j].load(on, q.window_address(), g.rank());
                q.onward(window, TILES, TILES / p.turn(), by);
            }
#pragma unroll
            for (int j = 0; j < EACH; j++) match[j] = match[j] ? s[j].matches(p.stored) : 0;
            visit(index, s, match);
        }
    }
    // each calls visit(index, word) for the slots of this lane that match.
    template <class V, class Visit> static __device__ __forceinline__ void each(const u64 (&index)[EACH], const V (&s)[EACH], const u32 (&match)[EACH], int rank, Visit visit) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
#pragma unroll
            for (int i = 0; i < V::WORDS; i++)
                if (match[j] >> i & 1) visit(index[j] + V::slot(i, rank), s[j].w[i]);
    }
    // tail goes through the windows behind, as a look-up does, and gives lane 0 how many values they have.
    template <class Tile, class Visit> __device__ __forceinline__ u32 tail(const Table& t, Tile g, Visit& visit) const {
        Search<C, true, true> s;
        s.begin(t, k);
        s.p.go_to(full);
        s.probes = full + 1;
        s.bound = probes_bound(t, p.windows);
        bool first = (thread_index() & 31) == 0;
        for (bool active = first && s.probes <= s.bound; g.any_of_all(active);) active = s.round(t, g, active, visit);
        return first ? s.hit.count : 0;
    }
};

// deal_chains deals the chains of n keys out to all warps: number_of(i) is that of the i-th one's hint, and part(i, chain, first, end, last) is called
// by all lanes of a warp.
template <class C, class Number, class Part> __device__ __forceinline__ void deal_chains(const Table& t, u64 n, Number number_of, Part part) {
    u64 warps = grid_threads() / 32, own = grid_thread() / 32;
    auto first_part = [&](u64 i) { return (own + i * WARPCORE_LONG_TURN) % warps; }; // not the same warps begin with all
    tile<32, true> warp;
    for (u64 base = 0; base < n; base += 32) {
        u64 i = base + warp.rank();
        bool mine = i < n && first_part(i) * WARPCORE_LONG_PART <= hinted((u64)(at<hint>(t.hints) + number_of(i)));
        for (u32 those = warp.ballot(mine); those; those &= those - 1) {
            i = base + lowest_bit(those);
            LongChain<C> chain(t, number_of(i));
            for (u64 x = first_part(i); x * WARPCORE_LONG_PART <= chain.full; x += warps) {
                u64 first = x * WARPCORE_LONG_PART, end = first + WARPCORE_LONG_PART;
                bool last = end > chain.full;
                part(i, chain, first, last ? chain.full : end, last);
            }
        }
    }
}

// count_long counts the values of the keys that were asked for, and says for each part of their chains where its values begin among them.
template <class C, class Tile> __device__ __forceinline__ void count_long(const Table& t, const longParams& p) {
    typedef View<C, Tile::LANES> V;
    typedef typename V::word Word;
    typedef LongChain<C> Chain;
    LongChains longs{t, p};
    Tile g;
    tile<32, true> warp;
    auto number_of = [&](u64 i) { return (u64)at<u32>(p.list)[i]; };
    deal_chains<C>(t, *longs.length(), number_of, [&](u64 i, const LongChain<C>& chain, u64 first, u64 end, bool last) {
        u64 n = 0;
        chain.stretch(g, first, end, [&](const u64 (&index)[Chain::EACH], const V (&s)[Chain::EACH], const u32 (&match)[Chain::EACH]) {
            Chain::each(index, s, match, g.rank(), [&](u64, Word w) { n += Held<C>::count(w); });
        });
        NoVisit none;
        if (last) n += chain.tail(t, g, none);
        longKey* its = longs.key_at(number_of(i));
        n = warp.sum(n);
        if (warp.rank() != 0) return;
        u64 before = add(&its->count, n) & ~WARPCORE_LONG_ASKED;
        if (its->parts) *longs.before(number_of(i), first) = before;
    });
}
// settle_long writes these counts where they were left open, of n rows.
__device__ __forceinline__ void settle_long(const Table& t, const longParams& p, u32* counts, u64 n) {
    LongChains longs{t, p};
    if (*longs.length() == 0) return;
    FOR_EACH_ITEM(i, n) {
        u64 values;
        if (i < n && longs.marked(counts[i], values)) counts[i] = values < FINDALL_MANY ? (u32)values : FINDALL_MANY;
    }
}

// fill_long writes the values of the rows that were left to it, those of a row in the order of the parts that were counted.
template <class C, class Value> struct FillLong {
    static constexpr bool VISITS = true, PLACES = true, HIT = false, WRITES = false;
    Value* out; // where the next values go
    __device__ __forceinline__ void begin(u64) {}
    template <class Tile> __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ void operator()(u64 slots, u64 values, u64 index, W w, u32 number) {
        write(number, slots, values, index, w);
    }
    template <class W> __device__ __forceinline__ void write(u64 to, u64 slots, u64 values, u64 index, W w) const {
        Held<C>::each(slots, values, index, w, [&](Value v) { out[to++] = v; });
    }
    // each and together write the values of a stretch: each lane its own, one behind the other; or, where a slot has one value, the lanes beside one another.
    template <class Warp, class V, int N> __device__ __forceinline__ void each(const LongChain<C>& c, Warp warp, int rank, const u64 (&index)[N], const V (&s)[N], const u32 (&match)[N]) {
        u32 n = 0;
        c.each(index, s, match, rank, [&](u64, typename V::word w) { n += Held<C>::count(w); });
        u64 all, to = warp.scan((u64)n, all);
        c.each(index, s, match, rank, [&](u64 slot, typename V::word w) {
            write(to, c.p.slots, c.p.values, slot, w);
            to += Held<C>::count(w);
        });
        out += all;
    }
    template <class Warp, class V, int N> __device__ __forceinline__ void together(const LongChain<C>& c, Warp warp, int rank, const u64 (&index)[N], const V (&s)[N], const u32 (&match)[N]) {
#pragma unroll
        for (int x = 0; x < N * V::WORDS; x++) {
            int j = x / V::WORDS, i = x % V::WORDS;
            u32 holders = warp.ballot(match[j] >> i & 1);
            if (match[j] >> i & 1) write((u32)popcount(holders & (1u << warp.rank()) - 1), c.p.slots, c.p.values, index[j] + V::slot(i, rank), s[j].w[i]);
            out += (u32)popcount(holders);
        }
    }
};
template <class C, class Tile, class Value> __device__ __forceinline__ void fill_long(const Table& t, const longParams& p, Value* out) {
    typedef View<C, Tile::LANES> V;
    typedef LongChain<C> Chain;
    LongChains longs{t, p};
    Tile g;
    tile<32, true> warp;
    u64 rows = longs.length()[1];
    if (rows > WARPCORE_LONG_ROWS) rows = WARPCORE_LONG_ROWS;
    deal_chains<C>(t, rows, [&](u64 i) { return at<longRow>(p.rows)[i].number; }, [&](u64 i, const LongChain<C>& chain, u64 first, u64 end, bool last) {
        const longRow& row = at<longRow>(p.rows)[i];
        FillLong<C, Value> fill{out + row.to + *longs.before(row.number, first)};
        chain.stretch(g, first, end, [&](const u64 (&index)[Chain::EACH], const V (&s)[Chain::EACH], const u32 (&match)[Chain::EACH]) {
            if constexpr (Held<C>::SEVERAL) fill.each(chain, warp, g.rank(), index, s, match);
            else fill.together(chain, warp, g.rank(), index, s, match);
        });
        if (last) chain.tail(t, g, fill);
    });
}

// erase_long removes all pairs of the keys that were asked for, but those that are gone.
template <class C, class Tile, class Erase> __device__ __forceinline__ void erase_long(const Table& t, const longParams& p) {
    typedef View<C, Tile::LANES> V;
    typedef typename V::word Word;
    typedef LongChain<C> Chain;
    LongChains longs{t, p};
    Tile g;
    auto number_of = [&](u64 i) { return (u64)at<u32>(p.list)[i]; };
    deal_chains<C>(t, *longs.length(), number_of, [&](u64 i, const LongChain<C>& chain, u64 first, u64 end, bool last) {
        Erase e(t);
        chain.stretch(g, first, end, [&](const u64 (&index)[Chain::EACH], const V (&s)[Chain::EACH], const u32 (&match)[Chain::EACH]) {
            Chain::each(index, s, match, g.rank(), [&](u64 slot, Word w) { e(chain.p.slots, chain.p.values, slot, w, 0); });
        });
        if (last) chain.tail(t, g, e);
        count_into(&longs.key_at(number_of(i))->count, e.slots);
        e.count();
    });
}
// forget_long is for keys that have no pairs any more: their chains begin anew. found tells it to the rows that asked first.
__device__ __forceinline__ void forget_long(const Table& t, const longParams& p, u8* found) {
    LongChains longs{t, p};
    FOR_EACH_ITEM(i, *longs.length()) {
        if (i >= *longs.length()) continue;
        u64 number = at<u32>(p.list)[i];
        const longKey* k = longs.key_at(number);
        if (found && k->count & ~WARPCORE_LONG_ASKED) found[k->row] = 1;
        at<hint>(t.hints)[number].left = ~0ull;
    }
}

} // namespace warpcore
