// What measures and checks: the machine's limits, and the count of wrong answers.
#include "layout.h"
#include "warpmap.cuh"
#if defined(WARPMAP_HOST)
#include "items.cuh"
#endif

using namespace bench;

#if defined(WARPMAP_HOST)
// On the CPU device a limit is what the best loop does: a worker takes items in a row, and asks for the memory of an item when it is AHEAD items away.
// address(i) is where that memory is, ask(a) asks for it, and touch(i, a) is the access. (Parameters are copies, which what is written cannot change.)
template <class Address, class Ask, class Touch> inline void each_ahead(u64 n, Address address, Ask ask, Touch touch) {
    const Stretch s = Stretch::alone(n);
    const u64 some = AHEAD * s.stride;
    u64 asked[AHEAD];
    for (u64 j = 0, i = s.start; j < AHEAD && i < s.n; j++, i += s.stride) ask(asked[j] = address(i));
    for (u64 j = 0, i = s.start; i < s.n; j++, i += s.stride) {
        u64& slot = asked[j % AHEAD];
        const u64 a = slot;
        if (s.n - i > some) ask(slot = address(i + some));
        touch(i, a);
    }
}
// Where the bucket of an item's key is.
template <int BYTES> inline u64 bucket_of(const limitParams& p, u64 i) {
    return p.memory + reduce(fmix64(load_readonly(at<u32>(p.keys) + i)), p.buckets) * BYTES;
}
template <int BYTES> inline void lookups_alone(const limitParams p) {
    constexpr int VECTOR = BYTES < WARPMAP_VECTOR ? BYTES : WARPMAP_VECTOR;
    typedef Words<u64, VECTOR> Vector;
    each_ahead(
        p.n, [&](u64 i) { return bucket_of<BYTES>(p, i); },
        [](u64 a) {
            for (int line = 0; line < BYTES; line += 64) prefetch_line(a + line);
        },
        [&](u64 i, u64 a) {
            u32 any = 0;
            for (int j = 0; j < BYTES; j += VECTOR) any |= Vector::equal(load_words<Vector>(a + j), ~0ull, 12345);
            at<u32>(p.out)[i] = any;
        });
}
template <class T, class Pair> inline void swaps_alone(const limitParams p, Pair pair) {
    each_ahead(
        p.n, [&](u64 i) { return bucket_of<sizeof(T)>(p, i); }, prefetch_to_write,
        [&](u64 i, u64 a) { cas(at<T>(a), T{}, pair(load_readonly(at<u32>(p.keys) + i), load_readonly(at<u32>(p.out) + i))); });
}
WARPMAP_KERNEL(lookup32, limitParams) { lookups_alone<32>(p); }
WARPMAP_KERNEL(lookup64, limitParams) { lookups_alone<64>(p); }
WARPMAP_KERNEL(lookup128, limitParams) { lookups_alone<128>(p); }
WARPMAP_KERNEL(swap64, limitParams) {
    swaps_alone<u64>(p, [](u32 key, u32 value) { return (u64)key | (u64)value << 32; });
}
WARPMAP_KERNEL(swap128, limitParams) {
    swaps_alone<u128>(p, [](u32 key, u32 value) { return u128{key, value}; });
}
WARPMAP_KERNEL(read_swap, limitParams) {
    each_ahead(
        p.n, [&](u64 i) { return bucket_of<32>(p, i); }, prefetch_to_write,
        [&](u64 i, u64 a) {
            u64 x[4];
            load_vector(at<u64>(a), x);
            u32 key = load_readonly(at<u32>(p.keys) + i);
            cas(at<u64>(a) + ((x[0] ^ x[1] ^ x[2] ^ x[3] ^ key) & 3), (u64)0, (u64)key);
        });
}
// Copies lines of 64 bytes past the caches, from memory to out: what is written there need not be read before.
WARPMAP_KERNEL(copy_lines, limitParams) {
    typedef u64 v2 __attribute__((vector_size(16)));
    const Stretch s = Stretch::alone(p.n);
    for (u64 i = s.start; i < s.n; i += s.stride) {
        const v2* from = at<v2>(p.memory + i * 64);
        v2* to = at<v2>(p.out + i * 64);
#if defined(__x86_64__)
        const v2 a = from[0], b = from[1], c = from[2], d = from[3];
        asm volatile("movntdq %4, %0\n movntdq %5, %1\n movntdq %6, %2\n movntdq %7, %3"
                     : "=m"(to[0]), "=m"(to[1]), "=m"(to[2]), "=m"(to[3])
                     : "x"(a), "x"(b), "x"(c), "x"(d));
#else
        for (int j = 0; j < 4; j++) to[j] = from[j];
#endif
    }
#if defined(__x86_64__)
    asm volatile("sfence" : : : "memory");
#endif
}
#else
// A look-up's memory traffic and nothing else: a 4-byte key read in order, BYTES read at random by LANES lanes with
// 16-byte loads, a 4-byte value written in order.
template <int LANES, int BYTES> __device__ __forceinline__ void lookups(const limitParams& p) {
    constexpr int LOADS = BYTES / 16 / LANES, IN_FLIGHT = LANES < 4 ? LANES : 4;
    tile<LANES> g;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        u32 key = i < p.n ? load_readonly(at<u32>(p.keys) + i) : 0;
        u64 bucket = p.memory + reduce(fmix64(key), p.buckets) * BYTES;
        u32 mine = 0;
#pragma unroll
        for (int first = 0; first < LANES; first += IN_FLIGHT) {
            u64 v[IN_FLIGHT][LOADS][2];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                u64 b = g.shuffle(bucket, first + j);
#pragma unroll
                for (int s = 0; s < LOADS; s++) load_vector(at<u64>(b) + (s * LANES + g.rank()) * 2, v[j][s]);
            }
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                u64 x = 0;
#pragma unroll
                for (int s = 0; s < LOADS; s++) x |= v[j][s][0] & v[j][s][1];
                u32 any = g.ballot(x == 12345);
                if (g.rank() == first + j) mine = any;
            }
        }
        if (i < p.n) at<u32>(p.out)[i] = mine;
    }
}
WARPMAP_KERNEL(lookup32, limitParams) { lookups<1, 32>(p); }
WARPMAP_KERNEL(lookup64, limitParams) { lookups<4, 64>(p); }
WARPMAP_KERNEL(lookup128, limitParams) { lookups<4, 128>(p); }

// An insert's: a pair read in order, a compare-and-swap at random.
WARPMAP_KERNEL(swap64, limitParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = load_readonly(at<u32>(p.keys) + i), value = load_readonly(at<u32>(p.out) + i);
        cas(at<u64>(p.memory) + reduce(fmix64(key), p.buckets), (u64)0, (u64)key | (u64)value << 32);
    }
}
#if WARPMAP_CAS128
WARPMAP_KERNEL(swap128, limitParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = load_readonly(at<u32>(p.keys) + i), value = load_readonly(at<u32>(p.out) + i);
        cas(at<u128>(p.memory) + reduce(fmix64(key), p.buckets), u128{0, 0}, u128{key, value});
    }
}
#endif
// A read of 32 bytes, then a compare-and-swap in them.
WARPMAP_KERNEL(read_swap, limitParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = load_readonly(at<u32>(p.keys) + i);
        u64* bucket = at<u64>(p.memory) + reduce(fmix64(key), p.buckets) * 4;
        u64 a[2], b[2];
        load_vector(bucket, a);
        load_vector(bucket + 2, b);
        cas(bucket + ((a[0] ^ a[1] ^ b[0] ^ b[1] ^ key) & 3), (u64)0, (u64)key);
    }
}
#endif

// The number that a key is made of, and what is made of a number: workload.Widen.
__device__ __forceinline__ u64 number(u32 x) { return x; }
__device__ __forceinline__ u64 number(u64 x) { return x; }
__device__ __forceinline__ u64 number(u128 x) { return x.lo; }
__device__ __forceinline__ u64 number(const u256& x) { return x.lo.lo; }
template <class T> struct Widened {
    static __device__ __forceinline__ T of(u64 x) { return (T)x; }
};
template <> struct Widened<u128> {
    static __device__ __forceinline__ u128 of(u64 x) { return u128{x, fmix64(x + 1)}; }
};
template <> struct Widened<u256> {
    static __device__ __forceinline__ u256 of(u64 x) {
        u128 low = Widened<u128>::of(x);
        return u256{low, Widened<u128>::of(fmix64(low.hi + 1))};
    }
};

struct Wide64 {
    u256 lo, hi;
};
template <> struct Widened<Wide64> {
    static __device__ __forceinline__ Wide64 of(u64 x) {
        u256 low = Widened<u256>::of(x);
        return Wide64{low, Widened<u256>::of(fmix64(low.hi.hi + 1))};
    }
};
__device__ __forceinline__ bool operator==(const Wide64& a, const Wide64& b) { return a.lo == b.lo && a.hi == b.hi; }
__device__ __forceinline__ Wide64 load_readonly(const Wide64* p) { return Wide64{load_readonly(&p->lo), load_readonly(&p->hi)}; }
__device__ __forceinline__ u64 number(const Wide64& x) { return x.lo.lo.lo; }
template <int BYTES> struct verified { typedef typename bits_of<BYTES>::type type; };
template <> struct verified<64> { typedef Wide64 type; };

// The first value of a key: workload.Value. Where keys were drawn, the others of a key are the next numbers.
__device__ __forceinline__ u64 first_value(u64 key) { return fmix64(key ^ 0x5bd1e995); }

// Counts answers that are not as they must be: see workload.Queries. Where keys were drawn, any of a key's values will do.
template <class K, class V> __device__ __forceinline__ void verify(const verifyParams& p) {
    u64 wrong = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        if (i >= p.n) continue;
        u64 key = number(load_readonly(at<K>(p.keys) + i));
        V value = load_readonly(at<V>(p.values) + i);
        u8 found = at<u8>(p.found)[i], expect = at<u8>(p.expect)[i];
        u64 first = first_value(key), which = 0;
        if (found && p.came) which = sizeof(V) == 4 ? (u32)(number(value) - first) : number(value) - first;
        wrong += (expect != 2 && found != expect) || (which && which >= at<u32>(p.came)[i]) || !(value == (found ? Widened<V>::of(first + which) : V{}));
    }
    count_into(at<u64>(p.wrong), wrong);
}
// Counts look-ups that do not give the sum of all values that came with their key.
template <class K, class V> __device__ __forceinline__ void verify_sums(const verifyParams& p) {
    u64 wrong = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        if (i >= p.n) continue;
        u8 found = at<u8>(p.found)[i];
        u64 n = !found ? 0 : p.came ? at<u32>(p.came)[i] : 1;
        u64 sum = n ? first_value(load_readonly(at<K>(p.keys) + i)) * n + n * (n - 1) / 2 : 0;
        wrong += found != at<u8>(p.expect)[i] || at<V>(p.values)[i] != (V)sum;
    }
    count_into(at<u64>(p.wrong), wrong);
}
// Of a set or a filter there are no values to look at, and so no keys.
WARPMAP_KERNEL(verify_set, verifyParams) {
    u64 wrong = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        if (i >= p.n) continue;
        u8 found = at<u8>(p.found)[i], expect = p.expect ? at<u8>(p.expect)[i] : 0;
        wrong += expect != 2 && found != expect;
    }
    count_into(at<u64>(p.wrong), wrong);
}
// The values of a key follow one another, in whatever order: their number and their sum tell whether each is there. LANES work on a key.
template <class K, class V, int LANES> __device__ __forceinline__ void verify_all(const verifyParams& p) {
    u64 wrong = 0;
    tile<LANES> g;
    for (u64 i = grid_thread() / LANES; (i & ~(u64)(32 / LANES - 1)) < p.n; i += grid_threads() / LANES) {
        if (i >= p.n) continue; // lanes of one key together
        u64 key = load_readonly(at<K>(p.keys) + i), from = at<u64>(p.offsets)[i], to = at<u64>(p.offsets)[i + 1];
        u64 each = p.each, most = p.most;
        u8 expect = at<u8>(p.expect)[i];
        if (p.came) {
            most = at<u32>(p.came)[i];
            each = most ? most : 1;
        }
        u64 n = to - from, times = n / each, first = first_value(key), sum = 0;
        for (u64 j = from + g.rank(); j < to; j += LANES) sum += at<V>(p.values)[j];
        if (LANES > 1) sum = g.sum(sum);
        wrong += g.rank() == 0 && ((expect != 2 && (n > 0) != expect) || n % each != 0 || (most && n > most) ||
                                   (V)sum != (V)(times * (first * each + each * (each - 1) / 2)));
    }
    count_into(at<u64>(p.wrong), wrong);
}
#define VERIFY_VALUES(KEY, VALUE)                                                                                             \
    WARPMAP_KERNEL(verify_all##KEY##VALUE, verifyParams) { verify_all<bits_of<KEY>::type, bits_of<VALUE>::type, 1>(p); }       \
    WARPMAP_KERNEL(verify_many##KEY##VALUE, verifyParams) { verify_all<bits_of<KEY>::type, bits_of<VALUE>::type, 32>(p); }   \
    WARPMAP_KERNEL(verify_sums##KEY##VALUE, verifyParams) { verify_sums<bits_of<KEY>::type, bits_of<VALUE>::type>(p); }
VERIFY_VALUES(4, 4)
VERIFY_VALUES(4, 8)
VERIFY_VALUES(8, 4)
VERIFY_VALUES(8, 8)
// A multimap counts as many values as it finds.
WARPMAP_KERNEL(verify_count, verifyParams) {
    u64 wrong = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        if (i < p.n) wrong += at<u32>(p.values)[i] != at<u64>(p.offsets)[i + 1] - at<u64>(p.offsets)[i];
    }
    count_into(at<u64>(p.wrong), wrong);
}
// A counter tells how often each key came.
template <class C> __device__ __forceinline__ void verify_counts(const verifyParams& p) {
    u64 wrong = 0;
    for (u64 i = grid_thread(); (i & ~31ull) < p.n; i += grid_threads()) {
        if (i < p.n) wrong += at<C>(p.values)[i] != at<u32>(p.came)[i] || at<u8>(p.found)[i] != at<u8>(p.expect)[i];
    }
    count_into(at<u64>(p.wrong), wrong);
}
WARPMAP_KERNEL(verify_counts4, verifyParams) { verify_counts<u32>(p); }
WARPMAP_KERNEL(verify_counts8, verifyParams) { verify_counts<u64>(p); }
#define VERIFY(KEY, VALUE) \
    WARPMAP_KERNEL(verify##KEY##_##VALUE, verifyParams) { verify<bits_of<KEY>::type, verified<VALUE>::type>(p); }
#define VERIFY_ALL(KEY) VERIFY(KEY, 4) VERIFY(KEY, 8) VERIFY(KEY, 16) VERIFY(KEY, 32) VERIFY(KEY, 64)
VERIFY_ALL(4)
VERIFY_ALL(8)
VERIFY_ALL(16)
VERIFY_ALL(32)
