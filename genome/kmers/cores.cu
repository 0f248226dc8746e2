// k-mers counted on cores: each launch is of one lane, and each core has its own launches, on its own text, bins and memory.
//
// Stretches of text, whose k-mers have one minimizer (see bins.cu), are dealt out to bins. Then the k-mers of a bin are counted in a table that fits the
// core's cache, and listed. At last the lists are brought in the order of parts, and each part in the order of its mixes.
//
// What goes to a bin lies in chunks, each of which begins with the address of the bin's chunk before, or 0. A stretch is a byte for the number of its k-mers
// and its letters, four to a byte, the first lowest. A byte of 0 ends a chunk's stretches. An entry of a list is a k-mer and its count.
#include "layout.h"
#include "kmer.cuh"

template <class T> __device__ __forceinline__ T load_bytes(u64 address) {
    T x;
    memcpy(&x, (const void*)address, sizeof x);
    return x;
}
template <class T> __device__ __forceinline__ void store_bytes(u64 address, const T& x) { memcpy((void*)address, &x, sizeof x); }

// A core's memory for chunks.
struct Slab {
    u64 at, end;
    // chunk puts a new chunk at the head of a bin's, and tells whether there was memory.
    __device__ __forceinline__ bool chunk(kmers::bin* b) {
        if (end - at < KMERS_CHUNK) return false;
        store_bytes(at, b->chunk);
        b->chunk = at;
        b->at = at + 8;
        at += KMERS_CHUNK;
        return true;
    }
};
__device__ __forceinline__ bool has_room(const kmers::bin* b, u64 bytes) { return b->chunk && b->at + bytes <= b->chunk + KMERS_CHUNK; }

// Numbers and letters side by side: a compiler does not make vectors of itself where it knows nothing of addresses. A GPU never runs this.
#if defined(WARPMAP_HOST)
typedef u32 Words16 __attribute__((vector_size(64)));
typedef u8 Letters16 __attribute__((vector_size(16)));
typedef u8 Letters64 __attribute__((vector_size(64)));
__device__ __forceinline__ Words16 words_of(Letters16 x) { return __builtin_convertvector(x, Words16); }
__device__ __forceinline__ Letters16 letters_of(Words16 x) { return __builtin_convertvector(x, Letters16); }
#else
typedef u32 Words16;
typedef u8 Letters16;
typedef u8 Letters64;
__device__ __forceinline__ Words16 words_of(Letters16 x) { return x; }
__device__ __forceinline__ Letters16 letters_of(Words16 x) { return (Letters16)x; }
#endif
template <class V, class T, class F> __device__ __forceinline__ void each(T* out, const T* a, const T* b, u32 n, F f) {
    for (u32 i = 0; i < n; i += sizeof(V) / sizeof(T)) store_bytes((u64)(out + i), f(load_bytes<V>((u64)(a + i)), load_bytes<V>((u64)(b + i))));
}

// Batch finds the stretches of some letters in a row. All letters take each step side by side: hashes of words, the least of each k-mer's, where it changes.
struct Batch {
    static constexpr u32 LETTERS = 2048, NONE = ~0u, BEHIND = 96, AHEAD = 8;
    // Some processors take a load for one of what was just stored 4 KiB, or a multiple of it, from there: two buffers are 2 KiB more apart.
    static constexpr u32 ROOM = LETTERS + 512;
    static_assert(BEHIND <= ROOM - LETTERS && ROOM * 4 % 4096 == 2048, "room for letters behind the last, and buffers that are well apart");
    u32 buffers[2][ROOM];    // by first letters
    u8 broken[2][ROOM];      // 1 where something else than a letter is in a k-mer, or else 0
    u32 starts[LETTERS + 1]; // first letters of stretches and of what lies between them, and the end
    u64 packed[(LETTERS + BEHIND) / 32];
    u32 turn, broken_turn; // which of two was written last
    const u32* keys;       // of each k-mer, by its first letter: the least hash of a word, or NONE

    // windows puts together what f makes of so many numbers in a row, from each of n on, and gives where they are. Those behind n are of use to others.
    template <class V, class T, class F> __device__ __forceinline__ T* windows(T (*two)[ROOM], u32& turn, u32 window, u32 n, F f) {
        u32 covered = 1;
        for (; 2 * covered <= window; covered *= 2, turn ^= 1) each<V>(two[turn ^ 1], two[turn], two[turn] + covered, n + window - covered, f);
        if (covered < window) {
            each<V>(two[turn ^ 1], two[turn], two[turn] + (window - covered), n, f);
            turn ^= 1;
        }
        return two[turn];
    }
    // pack sets the codes of n letters and of some behind them, tells where there are others, and packs them. The text has so many letters in all.
    __device__ __forceinline__ void pack(const u8* letters, u32 n, u64 all) {
        u8 last[LETTERS + BEHIND];
        if (n + BEHIND > all) {
            for (u32 i = 0; i < n; i++) last[i] = letters[i];
            for (u32 i = n; i < n + BEHIND; i++) last[i] = 0;
            letters = last;
        }
        for (u32 i = 0; i < n + BEHIND - 15; i += sizeof(Letters16)) {
            Words16 x = words_of(load_bytes<Letters16>((u64)(letters + i))) & 0xdf, none = x ^ x;
            store_bytes((u64)(buffers[0] + i), (x >> 1 ^ x >> 2) & 3);
            x = (Words16)((x != 'A') & (x != 'C') & (x != 'G') & (x != 'T') & (x != 'U'));
            store_bytes((u64)(broken[0] + i), letters_of(x != none ? none + 1 : none));
        }
        for (u32 i = 0; i < n + 32; i += 32) {
            u64 word = 0;
            for (u32 j = 0; j < 32; j += 8) {
                u64 x = load_bytes<u64>((u64)(letters + i + j)); // of all letters, U too, these two bits tell which it is
                x = (x >> 1 ^ x >> 2) & 0x0303030303030303ull;
                x = (x | x >> 6) & 0x000f000f000f000full;
                x = (x | x >> 12) & 0x000000ff000000ffull;
                word |= ((x | x >> 24) & 0xffff) << 2 * j;
            }
            packed[i / 32] = word;
        }
        turn = broken_turn = 0;
    }
    // hash sets the hash of the word of m letters from each of n on, a word and its reverse complement being one.
    __device__ __forceinline__ void hash(u32 n, u32 m) {
        u32 apart = 1;
        for (; 2 * apart < m; apart *= 2, turn ^= 1)
            each<Words16>(buffers[turn ^ 1], buffers[turn], buffers[turn] + apart, n + m, [=](Words16 x, Words16 y) { return x << 2 * apart | y; });
        u32 more = 2 * (m - apart), mask = ~(~0u << more), unused = 32 - 2 * m;
        each<Words16>(buffers[turn ^ 1], buffers[turn], buffers[turn] + (m - apart), n, [=](Words16 x, Words16 y) {
            Words16 forward = x << more | (y & mask), back = ~forward;
            back = (back >> 2 & 0x33333333u) | (back & 0x33333333u) << 2;
            back = (back >> 4 & 0x0f0f0f0fu) | (back & 0x0f0f0f0fu) << 4;
            back = (back >> 8 & 0x00ff00ffu) | (back & 0x00ff00ffu) << 8;
            back = (back >> 16 | back << 16) >> unused;
            Words16 h = forward < back ? forward : back;
            h = (h ^ h >> 16) * 0x85ebca6bu;
            h = (h ^ h >> 13) * 0xc2b2ae35u;
            return (h ^ h >> 16) >> 1; // so that none is NONE
        });
        turn ^= 1;
    }
    // find takes n letters, k or more, and gives how many starts there are.
    __device__ __forceinline__ u32 find(const u8* text, u32 n, u64 all, u32 k, u32 m) {
        u32 kmers = n - k + 1;
        pack(text, n, all);
        hash(n, m);
        u32* least = windows<Words16>(buffers, turn, k - m + 1, kmers, [](Words16 x, Words16 y) { return x < y ? x : y; });
        u8* other = windows<Letters64>(broken, broken_turn, k, kmers, [](Letters64 x, Letters64 y) { return (Letters64)(x | y); });
        for (u32 i = 0; i < kmers; i += sizeof(Letters16)) { // NONE is -1
            Words16 x = words_of(load_bytes<Letters16>((u64)(other + i)));
            store_bytes((u64)(least + i), load_bytes<Words16>((u64)(least + i)) | (x ^ x) - x);
        }
        keys = least;
        u32 many = 0, before = ~keys[0];
        for (u32 i = 0; i < kmers; i++) {
            starts[many] = i;
            many += keys[i] != before;
            before = keys[i];
        }
        starts[many] = kmers;
        return many;
    }
    // put writes letters of the batch, and a 0 behind them.
    __device__ __forceinline__ void put(u64 out, u32 first, u32 letters) const {
        u32 word = first / 32, shift = 2 * (first % 32), i = 0;
        for (; i < letters; i += 32, word++) {
            u64 x = packed[word] >> shift;
            if (shift) x |= packed[word + 1] << (64 - shift);
            if (letters - i < 32) x &= ~(~0ull << 2 * (letters - i));
            store_bytes(out + i / 4, x);
        }
        *(u8*)(out + (letters + 3) / 4) = 0;
    }
};

__device__ __forceinline__ void all_codes(u8* codes) {
    for (u32 i = 0; i < 256; i++) codes[i] = (u8)code_of((u8)i);
}

// deal_stretches deals out those of the k-mers that end in the letters state.next … to-1. Where the memory ends, state.next tells what is left.
WARPMAP_KERNEL(deal_stretches, kmers::dealParams) {
    if (grid_thread()) return;
    kmers::dealState* s = at<kmers::dealState>(p.state);
    Slab slab{s->slab, s->end};
    Batch batch;
    u32 k = (u32)p.k;
    u64 next = s->next;
    while (next < p.to) {
        u64 base = next < k - 1 ? 0 : next - (k - 1);
        u32 n = p.to - base < Batch::LETTERS ? (u32)(p.to - base) : Batch::LETTERS;
        if (n < k) break;
        u32 many = batch.find(at<u8>(p.text) + base, n, p.n - base, k, (u32)p.minimizer);
        kmers::bin* bins[Batch::AHEAD];
        auto bin_of = [&](u32 i) {
            if (i < many && batch.keys[batch.starts[i]] != Batch::NONE)
                prefetch_to_write((u64)(bins[i % Batch::AHEAD] = at<kmers::bin>(p.bins) + (fmix32(batch.keys[batch.starts[i]] ^ 0x9e3779b9u) & (u32)p.mask)));
            else bins[i % Batch::AHEAD] = nullptr;
        };
        for (u32 i = 0; i < Batch::AHEAD - 1; i++) bin_of(i);
        for (u32 i = 0; i < many; i++) {
            bin_of(i + Batch::AHEAD - 1);
            if (kmers::bin* soon = bins[(i + Batch::AHEAD / 2) % Batch::AHEAD]) prefetch_to_write(soon->at);
            kmers::bin* b = bins[i % Batch::AHEAD];
            if (!b) continue;
            u32 first = batch.starts[i];
            for (u32 end = batch.starts[i + 1], some; first < end; first += some) {
                some = end - first < KMERS_MOST ? end - first : KMERS_MOST;
                u32 letters = k - 1 + some;
                if (!has_room(b, 1 + (letters + 31) / 32 * 8 + 8) && !slab.chunk(b)) {
                    s->next = base + first + k - 1;
                    s->slab = slab.at;
                    return;
                }
                *(u8*)b->at = (u8)some;
                batch.put(b->at + 1, first, letters);
                b->at += 1 + (letters + 3) / 4;
                b->kmers += some;
            }
        }
        next = base + n;
    }
    s->next = p.to;
    s->slab = slab.at;
}

// count_letters counts short k-mers where their letters say.
WARPMAP_KERNEL(count_letters, kmers::dealParams) {
#if KMERS_WORDS == 1
    if (grid_thread()) return;
    kmers::dealState* s = at<kmers::dealState>(p.state);
    u8 codes[256];
    all_codes(codes);
    Rolling r(p.k, p.canonical);
    for (u64 i = s->next < p.k - 1 ? 0 : s->next - (p.k - 1); i < s->next; i++) r.take(codes[at<u8>(p.text)[i]]);
    for (u64 i = s->next; i < p.to; i++)
        if (r.take(codes[at<u8>(p.text)[i]])) at<u64>(p.bins)[r.least()]++;
    s->next = p.to;
#endif
}

// A table of a bin's k-mers: open addressing. A place of count 0 is free.
struct Place {
    kmer key;
    u64 count;
};
static_assert(sizeof(Place) == KMERS_PLACE, "what the host takes memory for");
struct Table {
    Place* places;
    u64 mask, seed, used, most;
    u32 shift;
    __device__ __forceinline__ Table(const kmers::tableParams& p)
        : places(at<Place>(p.table)), mask((1ull << p.bits) - 1), seed(p.seed), used(at<kmers::tableState>(p.state)->used),
          most((1ull << p.bits) / 8 * 5), shift(64 - (u32)p.bits) {}
    // first is the place where a k-mer is looked for first.
    __device__ __forceinline__ u64 first(const kmer& x) const {
#if KMERS_WORDS == 1
        return (x ^ x >> 32) * seed >> shift;
#else
        u64 hash = (x.lo ^ x.lo >> 32) * seed ^ x.hi;
        return (hash ^ hash >> 32) * seed >> shift;
#endif
    }
    __device__ __forceinline__ void add(const kmer& x, u64 count) { add(x, count, first(x)); }
    __device__ __forceinline__ void add(const kmer& x, u64 count, u64 i) {
        for (;; i = (i + 1) & mask) {
            Place& place = places[i];
            if (place.count && place.key == x) {
                place.count += count;
                return;
            }
            if (!place.count) {
                place = Place{x, count};
                used++;
                return;
            }
        }
    }
    // has_room tells whether so many more k-mers leave places free.
    __device__ __forceinline__ bool has_room(u64 n) const { return used + n <= most; }
};

// letters_in_order is a word of letters whose first is lowest, with the first highest.
__device__ __forceinline__ u64 letters_in_order(u64 x) { return ~complement(x); }

// first_kmer sets what rolls to the first k letters at an address.
__device__ __forceinline__ void first_kmer(Rolling& r, u64 address) {
    u64 x = load_bytes<u64>(address);
#if KMERS_WORDS == 1
    r.forward = letters_in_order(x) >> (64 - 2 * r.k);
    r.reverse = ~x & r.mask;
#else
    u64 y = load_bytes<u64>(address + 8), a = letters_in_order(x), b = letters_in_order(y);
    u32 unused = 128 - 2 * r.k;
    r.forward = unused ? kmer{a >> unused, b >> unused | a << (64 - unused)} : kmer{a, b};
    r.reverse = kmer{~y & r.mask, ~x};
#endif
}

// for_each_stretch calls f with the addresses of a bin's stretches, of all cores that dealt them, from where state tells. Where f gives false it ends, and
// that stretch is the next.
template <class F> __device__ __forceinline__ void for_each_stretch(const kmers::tableParams& p, F f) {
    kmers::tableState* s = at<kmers::tableState>(p.state);
    u32 k = (u32)p.k;
    u64 core = s->core, chunk = s->chunk, from = s->at;
    for (; core < p.cores; core++, chunk = from = 0) {
        if (!chunk && (chunk = at<kmers::bin>(at<u64>(p.bins)[core])[p.bin].chunk)) from = chunk + 8;
        while (chunk) {
            u64 before = load_bytes<u64>(chunk);
            for (u32 i = 0; before && i < KMERS_CHUNK; i += 64) prefetch_line(before + i);
            for (u32 n; (n = *(const u8*)from); from += 1 + (k - 1 + n + 3) / 4)
                if (!f(from)) {
                    s->core = core, s->chunk = chunk, s->at = from;
                    return;
                }
            chunk = before, from = chunk + 8;
        }
    }
    s->core = core, s->chunk = 0;
}

// kmers_of sets the wanted k-mers of a stretch, and gives how many there are. It reads up to 15 bytes behind the stretch.
__device__ __forceinline__ u32 kmers_of(const kmers::tableParams& p, u64 stretch, kmer* some) {
    u32 k = (u32)p.k, n = *(const u8*)stretch, many = 0;
    bool every = p.end - p.first == KMERS_PARTS;
    Rolling r(p.k, p.canonical);
    first_kmer(r, stretch + 1);
    auto add = [&] {
        some[many] = r.least();
        u64 part = every ? p.first : part_of(mixed(some[many]));
        many += part >= p.first && part < p.end;
    };
    add();
    for (u32 letter = k, end = k - 1 + n; letter < end;) {
        u64 letters = load_bytes<u64>(stretch + 1 + letter / 4) >> 2 * (letter % 4);
        for (u32 stop = letter + 28 < end ? letter + 28 : end; letter < stop; letter++, letters >>= 2) {
            r.take((u32)letters & 3);
            add();
        }
    }
    return many;
}

// Equal stretches that come near one another, as those of many reads of one genome do, are counted once, with how many they were. A stretch waits where
// its hash says, until another takes the place.
struct Waiting {
    u32 times, bytes;
    u8 stretch[KMERS_WAITING - 8];
};
struct Together {
    static constexpr u32 BYTES = KMERS_WAITING - 8 - 16; // and what is read behind a stretch
    const kmers::tableParams& p;
    Table& table;
    Waiting* waiting;
    kmer some[KMERS_MOST];
    u64 firsts[KMERS_MOST];

    __device__ __forceinline__ bool count(u64 stretch, u64 times) {
        if (!table.has_room(*(const u8*)stretch)) return false;
        u32 n = kmers_of(p, stretch, some);
        for (u32 i = 0; i < n; i++) prefetch_to_write((u64)(table.places + (firsts[i] = table.first(some[i]))));
        for (u32 i = 0; i < n; i++) table.add(some[i], times, firsts[i]);
        return true;
    }
    __device__ __forceinline__ bool count(Waiting& w) {
        if (w.times && !count((u64)w.stretch, w.times)) return false;
        w.times = 0;
        return true;
    }
    // count_all tells whether none waits any more.
    __device__ __forceinline__ bool count_all() {
        for (u32 i = 0; i < KMERS_TOGETHER; i++)
            if (!count(waiting[i])) return false;
        return true;
    }
    // add takes a stretch, and tells whether there was room for k-mers in the table.
    __device__ __forceinline__ bool add(u64 stretch) {
        u32 bytes = 1 + ((u32)p.k - 1 + *(const u8*)stretch + 3) / 4, many = (bytes + 7) / 8;
        if (bytes > BYTES) return count(stretch, 1);
        u64 hash = 0, words[BYTES / 8], last = ~0ull >> (7 - (bytes - 1) % 8) * 8;
        for (u32 i = 0; i < many; i++) {
            words[i] = load_bytes<u64>(stretch + 8 * i) & (i + 1 < many ? ~0ull : last);
            hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
            hash ^= hash >> 32;
        }
        Waiting& w = waiting[hash % KMERS_TOGETHER];
        u64 other = w.times == 0 || w.bytes != bytes;
        for (u32 i = 0; i < many; i++) other |= words[i] ^ load_bytes<u64>((u64)(w.stretch + 8 * i));
        if (!other) {
            w.times += w.times < ~0u; // so often no count can tell
            return true;
        }
        if (!count(w)) return false;
        w.times = 1, w.bytes = bytes;
        memcpy(w.stretch, words, sizeof words);
        return true;
    }
};
static_assert(KMERS_WAITING == sizeof(Waiting) && Together::BYTES % 8 == 0, "a stretch is compared in words");

// add_stretches counts the k-mers of a bin's stretches in a table. It ends where the table has to grow.
WARPMAP_KERNEL(add_stretches, kmers::tableParams) {
    if (grid_thread()) return;
    kmers::tableState* s = at<kmers::tableState>(p.state);
    Table table(p);
    Together together{p, table, at<Waiting>(p.waiting)};
    for_each_stretch(p, [&](u64 stretch) { return together.add(stretch); });
    s->waits = s->core < p.cores || !together.count_all();
    s->used = table.used;
}

// for_each_entry calls f for the entries of a list.
template <class F> __device__ __forceinline__ void for_each_entry(const kmers::bin& list, F f) {
    const u64 all = (KMERS_CHUNK - 8) / KMERS_ENTRY * KMERS_ENTRY;
    for (u64 chunk = list.chunk, end = list.at; chunk;) {
        u64 before = load_bytes<u64>(chunk);
        for (u32 i = 0; before && i < KMERS_CHUNK; i += 64) prefetch_line(before + i);
        for (u64 i = chunk + 8; i < end; i += KMERS_ENTRY) f(load_bytes<kmer>(i), load_bytes<u32>(i + sizeof(kmer)));
        chunk = before, end = chunk + 8 + all;
    }
}

// add_list adds a list to a table that has room for it.
WARPMAP_KERNEL(add_list, kmers::tableParams) {
    if (grid_thread()) return;
    Table table(p);
    for_each_entry(at<kmers::bin>(p.list)[p.bin], [&](const kmer& x, u32 count) { table.add(x, count); });
    at<kmers::tableState>(p.state)->used = table.used;
}

// grow_table brings what is in another table, of 2^old_bits places, into this one.
WARPMAP_KERNEL(grow_table, kmers::tableParams) {
    if (grid_thread()) return;
    Table table(p);
    table.used = 0;
    const Place* old = at<Place>(p.old);
    for (u64 i = 0; i < 1ull << p.old_bits; i++)
        if (old[i].count) table.add(old[i].key, old[i].count);
}

// append puts an entry into a list, and tells whether there was memory.
__device__ __forceinline__ bool append(kmers::bin* list, Slab& slab, const kmer& x, u64 count) {
    if (!has_room(list, KMERS_ENTRY) && !slab.chunk(list)) return false;
    store_bytes(list->at, x);
    store_bytes(list->at + sizeof(kmer), (u32)(count < ~0u ? count : ~0u));
    list->at += KMERS_ENTRY;
    list->kmers++;
    return true;
}

// for_each_place calls f for the places of a table that are taken, from state.place on, until f gives false. What is taken is brought together first, for
// nobody foretells which places are.
template <class F> __device__ __forceinline__ void for_each_place(const kmers::tableParams& p, u64 least, F f) {
    kmers::tableState* s = at<kmers::tableState>(p.state);
    const Place* places = at<Place>(p.table);
    const u64 together = 64;
    u32 taken[together];
    if (!least) least = 1;
    for (u64 i = s->place, end; i < 1ull << p.bits; i = end) {
        end = (i / together + 1) * together;
        u32 many = 0;
        for (u64 j = i; j < end; j++) {
            taken[many] = (u32)(j - i);
            many += places[j].count >= least;
        }
        for (u32 j = 0; j < many; j++)
            if (!f(places[i + taken[j]])) {
                s->place = i + taken[j];
                return;
            }
    }
    s->place = 1ull << p.bits;
}

// list_table appends what is in a table to a new list of the bin. It ends where the memory ends.
WARPMAP_KERNEL(list_table, kmers::tableParams) {
    if (grid_thread()) return;
    kmers::tableState* s = at<kmers::tableState>(p.state);
    Slab slab{s->slab, s->end};
    kmers::bin* list = at<kmers::bin>(p.list) + p.bin;
    for_each_place(p, 0, [&](const Place& x) { return append(list, slab, x.key, x.count); });
    s->slab = slab.at;
}

// part_table appends the mixes of what is in a table least times or more often to the lists of their parts.
WARPMAP_KERNEL(part_table, kmers::tableParams) {
    if (grid_thread()) return;
    kmers::tableState* s = at<kmers::tableState>(p.state);
    Slab slab{s->slab, s->end};
    kmers::bin* lists = at<kmers::bin>(p.list);
    for_each_place(p, p.least, [&](const Place& x) {
        kmer mix = mixed(x.key);
        return append(lists + part_of(mix), slab, mix, x.count);
    });
    s->slab = slab.at;
}

// part_stretches appends the mixes of the k-mers of a bin's stretches to the lists of their parts, each time that they come: where few come twice, a table is
// of no use.
WARPMAP_KERNEL(part_stretches, kmers::tableParams) {
    if (grid_thread()) return;
    kmers::tableState* s = at<kmers::tableState>(p.state);
    Slab slab{s->slab, s->end};
    kmers::bin* lists = at<kmers::bin>(p.list);
    kmer some[KMERS_MOST];
    for_each_stretch(p, [&](u64 stretch) {
        if (slab.end - slab.at < *(const u8*)stretch * KMERS_CHUNK) return false;
        u32 n = kmers_of(p, stretch, some);
        for (u32 i = 0; i < n; i++) prefetch_to_write((u64)(lists + part_of(some[i] = mixed(some[i]))));
        for (u32 i = 0; i < n; i++) prefetch_to_write(lists[part_of(some[i])].at);
        for (u32 i = 0; i < n; i++) append(lists + part_of(some[i]), slab, some[i], 1);
        return true;
    });
    s->slab = slab.at;
}

struct Pair {
    kmer mix;
    u64 count;
    __device__ __forceinline__ bool operator<(const Pair& other) const { return mix < other.mix; }
};
static_assert(sizeof(Pair) == KMERS_PLACE, "what the host takes memory for");
// sift brings x down to its place in a heap of n, whose place i is free.
__device__ __forceinline__ void sift(Pair* a, u32 i, u32 n, Pair x) {
    for (u32 child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && a[child] < a[child + 1]) child++;
        if (!(x < a[child])) break;
        a[i] = a[child];
    }
    a[i] = x;
}
__device__ __forceinline__ void sort_few(Pair* a, u32 n) {
    if (n > KMERS_FEW) {
        for (u32 i = n / 2; i-- > 0;) sift(a, i, n, a[i]);
        for (u32 i = n - 1; i > 0; i--) {
            Pair x = a[i];
            a[i] = a[0];
            sift(a, 0, i, x);
        }
        return;
    }
    for (u32 i = 1; i < n; i++) {
        Pair x = a[i];
        u32 j = i;
        for (; j > 0 && x < a[j - 1]; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

// for_each_of_part calls f for the entries of a part in all cores' lists.
template <class F> __device__ __forceinline__ void for_each_of_part(const kmers::partParams& p, F f) {
    for (u64 core = 0; core < p.cores; core++) for_each_entry(at<kmers::bin>(at<u64>(p.lists)[core])[p.part], f);
}

// sort_part brings the k-mers of a part from n entries in the order of their mixes, each once. They are dealt out by the bits behind the part's, and so few
// each are sorted. What came less than least times is left out.
WARPMAP_KERNEL(sort_part, kmers::partParams) {
    if (grid_thread()) return;
    u32 ends[KMERS_BUCKETS], bits = 1;
    while (bits < KMERS_BUCKET_BITS && 2ull << bits < p.n) bits++;
    Pair* pairs = at<Pair>(p.pairs);
    auto bucket = [&](const kmer& mix) { return (u32)(high(mix) << KMERS_PART_BITS >> (64 - bits)); };
    for (u32 i = 0; i < 1u << bits; i++) ends[i] = 0;
    for_each_of_part(p, [&](const kmer& mix, u32) { ends[bucket(mix)]++; });
    u32 all = 0;
    for (u32 i = 0; i < 1u << bits; i++) {
        u32 some = ends[i];
        ends[i] = all;
        all += some;
    }
    for_each_of_part(p, [&](const kmer& mix, u32 count) { pairs[ends[bucket(mix)]++] = Pair{mix, count}; });
    u64 to = 0;
    for (u32 b = 0, from = 0; b < 1u << bits; from = ends[b++]) {
        sort_few(pairs + from, ends[b] - from);
        for (u32 i = from, next; i < ends[b]; i = next) {
            u64 count = pairs[i].count;
            for (next = i + 1; next < ends[b] && pairs[next].mix == pairs[i].mix; next++) count += pairs[next].count;
            at<kmer>(p.mixes)[to] = pairs[i].mix;
            at<u32>(p.counts)[to] = (u32)(count < ~0u ? count : ~0u);
            to += count >= p.least;
        }
    }
    *at<u64>(p.number) = to;
}
