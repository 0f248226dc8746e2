// The memory model of a GPU, on the CPU device: every access of a launch is checked, and a load sees an older value
// where the model lets it. host.cuh includes it in programs with WARPMAP_MODEL.
//
// The compiler calls __tsan_read4 and its like before each access that is not one of the primitives (-fsanitize=thread,
// with the functions at the end of this file in place of its library); the primitives of host.cuh call load, store and
// change. What happens before what is kept by vector clocks. A lane takes in what others know
//
//   - at block_sync and warp_sync (a ballot or a shuffle orders no memory),
//   - where it acquires what another has released: it reads the store, or a read-modify-write behind that. A fence
//     makes acquires of the relaxed loads before it, and releases of the relaxed stores behind it. A release makes one of
//     its lane's later stores to the same place, and an acquire makes one of its lane's earlier loads of it,
//   - at fence(), which knows what each fence() before it knew. (Not so fence_acq_rel.)
//
// In programs with WARPMAP_SHARED all these are for the block, as their PTX says.
//
// A race is two accesses to one byte, of which one writes, which nothing orders, and which are not both primitives of a
// scope that has both lanes. A primitive's store also comes before what comes behind a primitive that has seen it. (Who
// has seen a newer store is taken to have seen it, too.) A load_readonly races with every store of the launch before it,
// ordered or not.
//
// A relaxed load may see an older value, as long as nothing that happens before it has written a newer one or seen one.
// So what lacks a fence is seen in the wrong order here, too. Of each 16 bytes the last DEPTH stores are kept. (The
// model also lets a load see a store that its own lane makes behind it. That does not occur here.)
//
// A launch begins with nothing known: what came before is ordered before it. All lies in an arena, which Go clears.
#pragma once
#include "layout.h"
#include "types.cuh"

namespace model {

using device::hostModel;
using device::hostRace;
using host::Worker;

// What an access is. OF_BLOCK: no other block is in its scope.
enum Kind : u8 { WRITES = 1, PLAIN = 2, OF_BLOCK = 4, READONLY = 8 };
enum Order : u8 { RELAXED, ACQUIRE, RELEASE };

#if defined(WARPMAP_SHARED)
const bool SHARED = true; // primitives, but for those of memory, and fences are for the block
#else
const bool SHARED = false;
#endif
const u8 SCOPE = SHARED ? OF_BLOCK : 0;

const int DEPTH = 8;       // stores that are kept of 16 bytes
const int MOST_SEEN = 32;  // moments of lanes that are kept of 16 bytes
const int WORDS = WARPMAP_MAX_THREADS / 32;
const int STACK = 24;      // calls that are kept of a lane
const u64 BUCKETS = 1 << 14;
const u64 MOST_LANES = 1 << 22;
const u32 EVERY = ~0u; // the scope of every block

// A clock says up to which of its moments each lane of the launch is known. Its pages, of a block each, may be of several
// clocks: none is changed once it is there. No page: nothing is known of that block.
struct Clock {
    u32* pages[1];
};

struct Access {
    Access* next;
    u32 lane, moment, frames[3];
    u32 number; // of what a primitive has stored, or 0
    u8 bytes, kind;
};

// A hash table of accesses, which are found by their lane, kind and bytes.
struct Accesses {
    Access* at;
    u32 size, count;
};

// The accesses to 4 bytes. Primitives and plain loads are many, and race with few.
struct Word {
    Access* stores; // plain ones
    Accesses loads, primitives;
    bool narrow; // some primitive is OF_BLOCK
};

// The last store to 4 bytes.
struct Store {
    Clock* released; // what is known to who acquires it, or null
    Clock* own;      // what the lane's releases to this place have made known, or null
    u32 number, lane, moment;
    u32 scope; // the block for which it is released, or EVERY
};

// What 16 bytes were after a store. The first of a line is what was there before the launch.
struct Version {
    Version* older;
    u128 image;
    Store stores[4];
};

// Up to which store a lane has seen each 4 bytes, at a moment.
struct Seen {
    Seen* next;
    u32 lane, moment, numbers[4];
};

struct Line {
    Line* next;
    u64 at;
    Word words[4];
    bool of_block; // it is a block's own
    Version* newest;
    Seen* seen;
    u32 seen_count, number; // of the newest store
    u32 least[4];           // older stores are seen no more
};

struct Lane {
    Clock* known;
    Clock* released; // by its last fence
    Clock* pending;  // what its relaxed loads have read of releases
    u32 moment, depth;
    u32 stack[STACK]; // where the functions were called that it is in
};

struct State {
    bool on;
    hostModel* m;
    Worker* w;
    Lane* lanes;
    Line **global, **shared; // a block's shared memory is another for each block
    Access* spare;
    Clock* fenced; // by the last fence()
    u64 blocks, threads;
};
static State s;

extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[], __ehdr_start[];

UNWATCHED inline u64 aligned(u64 bytes) { return (bytes + 15) & ~15ull; }

// take ends the launch where the arena is full: the lane that runs is left. Where no lane runs, there is none to leave.
UNWATCHED inline void* take(u64 bytes) {
    hostModel* m = s.m;
    bytes = aligned(bytes);
    if (m->used + bytes > m->bytes) {
        m->full = 1;
        s.on = false;
        host::host_switch(&s.w->lanes[s.w->current].sp, s.w->main_sp);
    }
    void* p = (char*)m + m->used;
    m->used += bytes;
    return p;
}
template <class T> UNWATCHED inline T* make() { return (T*)take(sizeof(T)); }

UNWATCHED inline u32 this_lane() { return (u32)(s.w->block * s.threads) + s.w->current; }
UNWATCHED inline u32 block_of(u32 lane) { return lane / (u32)s.threads; }

// Clocks.

UNWATCHED inline u32 moment_of(const Clock* c, u32 lane) {
    const u32* page = c ? c->pages[block_of(lane)] : nullptr;
    return page ? page[lane % s.threads] : 0;
}
UNWATCHED inline Clock* new_clock() { return (Clock*)take(s.blocks * sizeof(u32*)); }

// joined knows what a or b knows.
UNWATCHED inline Clock* joined(Clock* a, Clock* b) {
    if (!b || a == b) return a;
    if (!a) return b;
    Clock* c = nullptr;
    for (u64 i = 0; i < s.blocks; i++) {
        u32 *x = a->pages[i], *y = b->pages[i], *z = x;
        if (!y || x == y) continue;
        if (!x) {
            z = y;
        } else {
            bool more = false, less = false;
            for (u64 j = 0; j < s.threads; j++) {
                more |= y[j] > x[j];
                less |= y[j] < x[j];
            }
            if (!more) continue;
            z = y;
            if (less) {
                z = (u32*)take(s.threads * sizeof(u32));
                for (u64 j = 0; j < s.threads; j++) z[j] = x[j] > y[j] ? x[j] : y[j];
            }
        }
        if (!c) {
            c = new_clock();
            for (u64 j = 0; j < s.blocks; j++) c->pages[j] = a->pages[j];
        }
        c->pages[i] = z;
    }
    return c ? c : a;
}

// with_lanes is the clock with the moments of the block's lanes for which a bit is set.
UNWATCHED inline Clock* with_lanes(Clock* a, u64 block, const u32* mask) {
    Clock* c = new_clock();
    if (a)
        for (u64 j = 0; j < s.blocks; j++) c->pages[j] = a->pages[j];
    u32* page = (u32*)take(s.threads * sizeof(u32));
    for (u64 j = 0; j < s.threads; j++) {
        if (c->pages[block]) page[j] = c->pages[block][j];
        if (mask[j / 32] >> (j & 31) & 1) page[j] = s.lanes[block * s.threads + j].moment;
    }
    c->pages[block] = page;
    return c;
}

// publish makes a clock of all that a lane knows, with what it did itself; what it does from now on is not in it.
UNWATCHED inline Clock* publish(Lane* me) {
    u32 mask[WORDS] = {}, lane = (u32)(me - s.lanes) % (u32)s.threads;
    mask[lane / 32] = 1u << (lane & 31);
    Clock* c = with_lanes(me->known, block_of((u32)(me - s.lanes)), mask);
    me->moment++;
    return c;
}

// meet: each of the lanes of the running block knows what all did before.
UNWATCHED inline void meet(const u32* mask) {
    if (!s.on) return;
    u64 block = s.w->block, words = (s.threads + 31) / 32;
    Clock* all = nullptr;
    for (u64 i = 0; i < words; i++)
        for (u32 m = mask[i]; m; m &= m - 1) all = joined(all, s.lanes[block * s.threads + i * 32 + (u32)__builtin_ctz(m)].known);
    all = with_lanes(all, block, mask);
    for (u64 i = 0; i < words; i++)
        for (u32 m = mask[i]; m; m &= m - 1) {
            Lane* l = &s.lanes[block * s.threads + i * 32 + (u32)__builtin_ctz(m)];
            l->known = all;
            l->moment++;
        }
}

UNWATCHED inline void meet_warp(u32 first, u32 lanes) {
    u32 mask[WORDS] = {};
    mask[first / 32] = lanes;
    meet(mask);
}

// Whether lane a knows what lane b did at that moment.
UNWATCHED inline bool knows(u32 a, u32 b, u32 moment) { return a == b || moment_of(s.lanes[a].known, b) >= moment; }

// Whether lane a knows of a load of a word that saw a store as new as that one.
UNWATCHED inline bool has_seen(const Line* l, int word, u32 a, u32 number) {
    if (number <= l->least[word]) return true;
    for (Seen* x = l->seen; x; x = x->next)
        if (number <= x->numbers[word] && knows(a, x->lane, x->moment)) return true;
    return false;
}

// Races.

UNWATCHED inline void report(u64 address, const Access* a, const Access* b) {
    hostModel* m = s.m;
    for (u32 i = 0; i < m->count; i++) {
        hostRace& r = m->races[i];
        if (r.frames[0] == a->frames[0] && r.frames[3] == b->frames[0]) return;
    }
    if (m->count == sizeof m->races / sizeof m->races[0]) return;
    hostRace& r = m->races[m->count++];
    r.address = address;
    for (int i = 0; i < 3; i++) {
        r.frames[i] = a->frames[i];
        r.frames[3 + i] = b->frames[i];
    }
    r.kinds[0] = a->kind;
    r.kinds[1] = b->kind;
    r.lanes[0] = a->lane;
    r.lanes[1] = b->lane;
}

UNWATCHED inline Line* line_of(u64 at) {
    bool of_block = at >= (u64)__bss_start && at < (u64)_end;
    Line** from = &(of_block ? s.shared : s.global)[(at >> 4) * 0x9e3779b97f4a7c15ull >> 50];
    for (Line* l = *from; l; l = l->next)
        if (l->at == at) return l;
    Line* l = make<Line>();
    l->at = at;
    l->of_block = of_block;
    l->next = *from;
    *from = l;
    return l;
}

// against reports the access if it races with one before it.
UNWATCHED inline void against(Line* l, int word, const Access* a, const Access* now, bool ordered) {
    if (!(a->bytes & now->bytes) || !((a->kind | now->kind) & WRITES)) return;
    u8 kinds = a->kind | now->kind;
    bool primitives = !(kinds & PLAIN) && (!(kinds & OF_BLOCK) || block_of(a->lane) == block_of(now->lane));
    if (now->kind & READONLY && a->kind & WRITES || !ordered && !primitives) report(l->at + word * 4, a, now);
}

// kept finds the place of an access of a lane, kind and bytes in a hash table.
UNWATCHED inline Access* kept(Access* table, u32 size, const Access& x) {
    u32 i = (x.lane * 32 + x.bytes + (x.kind & WRITES) * 16) * 0x9e3779b9u;
    for (;; i++) {
        Access* a = &table[i & size - 1];
        if (!a->moment || a->lane == x.lane && a->bytes == x.bytes && a->kind == x.kind) return a;
    }
}

UNWATCHED inline void keep(Accesses* t, const Access& x) {
    if (t->count * 4 >= t->size * 3) {
        u32 size = t->size ? t->size * 4 : 1;
        Access* table = (Access*)take(size * sizeof(Access));
        for (u32 i = 0; i < t->size; i++)
            if (t->at[i].moment) *kept(table, size, t->at[i]) = t->at[i];
        t->at = table;
        t->size = size;
    }
    Access* a = kept(t->at, t->size, x);
    t->count += !a->moment;
    *a = x;
}

// check compares an access to bytes of a word with all before it which it does not come behind, and keeps it.
UNWATCHED inline void check(Line* l, int word, u8 bytes, u8 kind, u32 caller) {
    u32 me = this_lane();
    Lane* lane = &s.lanes[me];
    Word* w = &l->words[word];
    if (l->of_block) kind &= ~OF_BLOCK;
    Access now = {};
    now.lane = me;
    now.moment = lane->moment;
    now.bytes = bytes;
    now.kind = kind;
    now.number = (kind & (WRITES | PLAIN)) == WRITES ? l->number + 1 : 0; // which it is about to get
    now.frames[0] = caller;
    for (u32 i = 1; i < 3 && lane->depth >= i && lane->depth <= STACK; i++) now.frames[i] = lane->stack[lane->depth - i];
    // An access that comes behind another, and is as wide and as strict, stands for it: what races with the other races
    // with this one.
    for (Access** from = &w->stores; *from;) {
        Access* a = *from;
        bool ordered = knows(me, a->lane, a->moment);
        against(l, word, a, &now, ordered);
        if (ordered && kind & PLAIN && kind & WRITES && !(a->bytes & ~bytes)) {
            *from = a->next;
            a->next = s.spare;
            s.spare = a;
        } else {
            from = &a->next;
        }
    }
    if (kind & WRITES) {
        bool all = (kind & PLAIN) != 0; // that have loaded come before this, and are stood for
        for (u32 i = 0; i < w->loads.size; i++)
            if (Access* a = &w->loads.at[i]; a->moment) {
                bool ordered = knows(me, a->lane, a->moment);
                against(l, word, a, &now, ordered);
                all &= ordered && !(a->bytes & ~bytes);
            }
        if (all) w->loads = Accesses{};
    }
    if (kind & PLAIN || w->narrow || kind & OF_BLOCK)
        for (u32 i = 0; i < w->primitives.size; i++)
            if (Access* a = &w->primitives.at[i]; a->moment)
                against(l, word, a, &now, knows(me, a->lane, a->moment) || a->number && has_seen(l, word, me, a->number));
    if (!(kind & PLAIN)) {
        w->narrow |= (kind & OF_BLOCK) != 0;
        return keep(&w->primitives, now);
    }
    if (!(kind & WRITES)) return keep(&w->loads, now);
    Access* a = s.spare;
    if (a) s.spare = a->next;
    else a = make<Access>();
    *a = now;
    a->next = w->stores;
    w->stores = a;
}

UNWATCHED inline u32 place(void* pc) { return (u32)((u64)pc - (u64)__ehdr_start) - 1; }

// Whether an address is of memory that others have, too: not of a lane's own stack, and not of the launch's parameters.
UNWATCHED inline bool watched(u64 at) { return s.on && (at & ~(u64)(HOST_REGION_BYTES - 1)) != (u64)s.w; }

UNWATCHED inline void access(u64 at, u64 size, u8 kind, void* pc) {
    for (u64 p = at & ~3ull; p < at + size && s.on; p += 4) {
        u8 bytes = 15;
        if (p < at) bytes &= (u8)(15 << (at - p));
        if (p + 4 > at + size) bytes &= (u8)(15 >> (p + 4 - at - size));
        Line* l = line_of(p & ~15ull);
        int word = (int)(p >> 2 & 3);
        check(l, word, bytes, kind, place(pc));
        if (kind & WRITES && kind & PLAIN && l->newest) l->least[word] = l->number + 1;
    }
}

UNWATCHED inline void plain(void* p, u64 size, bool writes, void* pc) {
    if (watched((u64)p)) access((u64)p, size, PLAIN | (writes ? WRITES : 0), pc);
}

// What loads see.

UNWATCHED inline void copy_image(Version* v, const Line* l) {
    v->image.lo = ((const u64*)l->at)[0];
    v->image.hi = ((const u64*)l->at)[1];
}

template <class T> UNWATCHED inline int first_word(const T* p) { return (int)((u64)p >> 2 & 3); }
template <class T> UNWATCHED inline int end_word(const T* p) { return (int)((((u64)p & 15) + sizeof(T) + 3) >> 2); }

// usable is what an acquire of a lane takes in of a store.
UNWATCHED inline Clock* usable(const Store& st, u32 lane) {
    if (!st.released || st.scope != EVERY && st.scope != block_of(lane)) return nullptr;
    if (SHARED && block_of(st.lane) != block_of(lane)) return nullptr;
    return st.released;
}

UNWATCHED inline void acquire(Lane* me, Clock* c, Order order) {
    if (!c) return;
    if (order == ACQUIRE) me->known = joined(me->known, c);
    else me->pending = joined(me->pending, c);
}

// acquire_seen takes in what a lane could have acquired of the store that it saw last, before this one.
UNWATCHED inline void acquire_seen(const Line* l, u32 lane, int first, int end) {
    for (int i = first; i < end; i++) {
        u32 number = 0;
        for (Seen* x = l->seen; x; x = x->next)
            if (x->lane == lane && x->numbers[i] > number) number = x->numbers[i];
        const Version* v = l->newest;
        while (v->stores[i].number > number) v = v->older;
        acquire(&s.lanes[lane], usable(v->stores[i], lane), ACQUIRE);
    }
}

// note keeps that a lane has seen stores, so that whoever knows that sees no older ones.
UNWATCHED inline void note(Line* l, u32 lane, const Version* v, int first, int end) {
    u32 moment = s.lanes[lane].moment;
    for (Seen* x = l->seen; x; x = x->next)
        if (x->lane == lane && x->moment == moment) {
            for (int i = first; i < end; i++)
                if (x->numbers[i] < v->stores[i].number) x->numbers[i] = v->stores[i].number;
            return;
        }
    if (l->seen_count == MOST_SEEN) { // then all are taken to know
        for (Seen* x = l->seen; x; x = x->next)
            for (int i = 0; i < 4; i++)
                if (l->least[i] < x->numbers[i]) l->least[i] = x->numbers[i];
        l->seen = nullptr;
        l->seen_count = 0;
    }
    Seen* x = make<Seen>();
    x->lane = lane;
    x->moment = moment;
    for (int i = first; i < end; i++) x->numbers[i] = v->stores[i].number;
    x->next = l->seen;
    l->seen = x;
    l->seen_count++;
}

// compare finds stores that the compiler did not tell of: those of what a function returns.
UNWATCHED inline void compare(Line* l, int first, int end) {
    for (int i = first; i < end; i++)
        if (__builtin_memcmp((char*)l->at + 4 * i, (char*)&l->newest->image + 4 * i, 4) && l->least[i] <= l->number)
            l->least[i] = l->number + 1;
}

// choose gives a version that a load of a lane may see: half of the time the newest, else one further back.
UNWATCHED inline Version* choose(Line* l, u32 lane, int first, int end) {
    u32 least[4];
    for (int i = first; i < end; i++) {
        least[i] = l->least[i];
        int depth = 0;
        for (Version* v = l->newest; v && depth < DEPTH; v = v->older, depth++) {
            const Store& st = v->stores[i];
            if (st.number != 0 && !knows(lane, st.lane, st.moment)) continue;
            if (least[i] < st.number) least[i] = st.number;
            break;
        }
    }
    for (Seen* x = l->seen; x; x = x->next)
        if (knows(lane, x->lane, x->moment))
            for (int i = first; i < end; i++)
                if (least[i] < x->numbers[i]) least[i] = x->numbers[i];
    Version* v = l->newest;
    for (int depth = 1; v->older && depth < DEPTH; v = v->older, depth++) {
        for (int i = first; i < end; i++)
            if (v->older->stores[i].number < least[i]) return v;
        if (host::random_below(s.w, 2)) return v;
    }
    return v;
}

template <class T> UNWATCHED inline u8 bytes_of(const T* p) { return sizeof(T) < 4 ? (u8)(((1 << sizeof(T)) - 1) << ((u64)p & 3)) : 15; }

template <class T> UNWATCHED inline void check_words(Line* l, const T* p, u8 kind, void* pc) {
    for (int i = first_word(p); i < end_word(p); i++) check(l, i, bytes_of(p), kind, place(pc));
}

// load gives what a load sees of `is`, which is there now.
template <class T> UNWATCHED inline T load(const T* p, T is, Order order, u8 kind, void* pc) {
    if (!watched((u64)p)) return is;
    Line* l = line_of((u64)p & ~15ull);
    check_words(l, p, kind, pc);
    if (!l->newest) return is;
    u32 lane = this_lane();
    int first = first_word(p), end = end_word(p);
    compare(l, first, end);
    Version* v = choose(l, lane, first, end);
    if (order == ACQUIRE) acquire_seen(l, lane, first, end);
    note(l, lane, v, first, end);
    for (int i = first; i < end; i++) acquire(&s.lanes[lane], usable(v->stores[i], lane), order);
    if (v != l->newest) __builtin_memcpy(&is, (char*)&v->image + ((u64)p & 15), sizeof(T));
    return is;
}

// before_store must come before a store, and stored behind it. A read-modify-write reads the newest and hands on what
// was released. So does a store of less than a word: what was released may be of other bytes.
UNWATCHED inline void before_store(Line* l) {
    if (l->newest) return compare(l, 0, 4);
    Version* v = make<Version>();
    copy_image(v, l);
    l->newest = v;
}

template <class T> UNWATCHED inline void stored(Line* l, const T* p, Order order, bool changes) {
    u32 lane = this_lane();
    Lane* me = &s.lanes[lane];
    Version *old = l->newest, *v = make<Version>();
    Clock *released = me->released, *now = nullptr;
    u32 moment = me->moment;
    if (order == RELEASE) released = now = joined(released, publish(me));
    int first = first_word(p), end = end_word(p);
    for (int i = 0; i < 4; i++) v->stores[i] = old->stores[i];
    l->number++;
    for (int i = first; i < end; i++) {
        Store& st = v->stores[i];
        Clock *handed = nullptr, *own = now;
        u32 scope = SHARED ? block_of(lane) : EVERY;
        if ((changes || sizeof(T) < 4) && st.released && (st.scope == EVERY || st.scope == block_of(lane))) handed = st.released;
        int depth = 0;
        for (Version* x = old; !own && x && depth < DEPTH; x = x->older, depth++)
            if (x->stores[i].number && x->stores[i].lane == lane) own = x->stores[i].own;
        st = Store{joined(joined(released, handed), own), own, l->number, lane, moment, scope};
    }
    copy_image(v, l);
    v->older = old;
    l->newest = v;
    note(l, lane, v, first, end);
}

// store does a store by put.
template <class T, class F> UNWATCHED inline void store(T* p, Order order, u8 kind, void* pc, F put) {
    if (!watched((u64)p)) return put();
    Line* l = line_of((u64)p & ~15ull);
    check_words(l, p, kind | WRITES, pc);
    before_store(l);
    put();
    stored(l, p, order, false);
}

// change does a read-modify-write by put, which gives what was there; wrote tells of that whether it has written.
struct Always {
    template <class T> UNWATCHED bool operator()(T) const { return true; }
};
template <class T, class F, class G = Always> UNWATCHED inline T change(T* p, Order order, u8 kind, void* pc, F put, G wrote = G()) {
    if (!watched((u64)p)) return put();
    Line* l = line_of((u64)p & ~15ull);
    before_store(l);
    T was = put();
    bool writes = wrote(was);
    check_words(l, p, kind | (writes ? WRITES : 0), pc);
    u32 lane = this_lane();
    int first = first_word(p), end = end_word(p);
    if (order == ACQUIRE) acquire_seen(l, lane, first, end);
    note(l, lane, l->newest, first, end);
    for (int i = first; i < end; i++) acquire(&s.lanes[lane], usable(l->newest->stores[i], lane), order);
    if (writes) stored(l, p, RELAXED, true);
    return was;
}

template <class T> UNWATCHED inline T load_readonly(const T* p, void* pc) {
    if (watched((u64)p)) access((u64)p, sizeof(T), PLAIN | READONLY, pc);
    return *p;
}

// fence_acq_rel is a fence, and fence is one that all others of its kind come before or behind.
UNWATCHED inline void fence_acq_rel() {
    if (!s.on) return;
    Lane* me = &s.lanes[this_lane()];
    me->known = joined(me->known, me->pending);
    me->released = publish(me);
}

UNWATCHED inline void fence() {
    if (!s.on) return;
    Lane* me = &s.lanes[this_lane()];
    me->known = joined(me->known, s.fenced);
    fence_acq_rel();
    s.fenced = me->released;
}

// The launch.

UNWATCHED inline void begin(Worker* w) {
    s = State{};
    if (!w->launch->model) return;
    s.w = w;
    s.m = (hostModel*)w->launch->model;
    s.blocks = w->launch->blocks;
    s.threads = w->launch->threads;
    u64 lanes = s.blocks * s.threads * sizeof(Lane), lines = BUCKETS * sizeof(Line*);
    s.m->full = s.blocks > MOST_LANES / s.threads || s.m->used + aligned(lanes) + 2 * aligned(lines) > s.m->bytes;
    if (s.m->full) return;
    s.lanes = (Lane*)take(lanes);
    s.global = (Line**)take(lines);
    s.shared = (Line**)take(lines);
    s.on = true;
    for (u64 i = 0; i < s.blocks * s.threads; i++) s.lanes[i].moment = 1;
}

UNWATCHED inline void begin_block() {
    if (!s.on) return;
    for (u64 i = 0; i < BUCKETS; i++) s.shared[i] = nullptr;
    if (SHARED) s.fenced = nullptr;
}

// Whether the launch ends, because it is too large.
UNWATCHED inline bool ends() { return s.m && s.m->full; }

} // namespace model

// What the compiler calls.
#define WARPMAP_CALLED extern "C" UNWATCHED __attribute__((visibility("hidden"), used)) void
#define WARPMAP_CALLED_OF(size)                                                                                          \
    WARPMAP_CALLED __tsan_read##size(void* p) { model::plain(p, size, false, __builtin_return_address(0)); }             \
    WARPMAP_CALLED __tsan_write##size(void* p) { model::plain(p, size, true, __builtin_return_address(0)); }             \
    WARPMAP_CALLED __tsan_unaligned_read##size(void* p) { model::plain(p, size, false, __builtin_return_address(0)); }   \
    WARPMAP_CALLED __tsan_unaligned_write##size(void* p) { model::plain(p, size, true, __builtin_return_address(0)); }   \
    WARPMAP_CALLED __tsan_volatile_read##size(void* p) { model::plain(p, size, false, __builtin_return_address(0)); }    \
    WARPMAP_CALLED __tsan_volatile_write##size(void* p) { model::plain(p, size, true, __builtin_return_address(0)); }
WARPMAP_CALLED_OF(1)
WARPMAP_CALLED_OF(2)
WARPMAP_CALLED_OF(4)
WARPMAP_CALLED_OF(8)
WARPMAP_CALLED_OF(16)
WARPMAP_CALLED __tsan_read_range(void* p, u64 n) { model::plain(p, n, false, __builtin_return_address(0)); }
WARPMAP_CALLED __tsan_write_range(void* p, u64 n) { model::plain(p, n, true, __builtin_return_address(0)); }
WARPMAP_CALLED __tsan_init() {}
#if defined(__clang__) // which calls these for structs of more than 16 bytes
#define WARPMAP_CALLED_COPY(name)                                              \
    WARPMAP_CALLED* __tsan_##name(void* to, const void* from, size_t n) {      \
        model::plain((void*)from, n, false, __builtin_return_address(0));      \
        model::plain(to, n, true, __builtin_return_address(0));                \
        return name(to, from, n);                                              \
    }
WARPMAP_CALLED_COPY(memcpy)
WARPMAP_CALLED_COPY(memmove)
#undef WARPMAP_CALLED_COPY
WARPMAP_CALLED* __tsan_memset(void* to, int value, size_t n) {
    model::plain(to, n, true, __builtin_return_address(0));
    return memset(to, value, n);
}
#endif
WARPMAP_CALLED __tsan_func_entry(void* pc) {
    if (!model::s.on) return;
    model::Lane& l = model::s.lanes[model::this_lane()];
    if (l.depth < model::STACK) l.stack[l.depth] = model::place(pc);
    l.depth++;
}
WARPMAP_CALLED __tsan_func_exit() {
    if (model::s.on) model::s.lanes[model::this_lane()].depth--;
}
#undef WARPMAP_CALLED_OF
#undef WARPMAP_CALLED
