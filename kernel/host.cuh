// The primitives on the CPU device: the lanes of a block are fibers of one thread.
//
// A lane runs until it waits, at a warp operation or block_sync, and then hands the thread to the next lane that can
// run. The last lane of a mask to arrive computes the results of all and runs on. A lane that never waits costs no
// switch: the next lane begins on the same stack. When no lane can run and not all are done, lanes of one mask have
// gone different ways, and the launch ends with a message that names them.
//
// Most kernels have lanes that work alone, which would cost a call for each item: there the first lane of a block does the work of all, in one loop
// (see Stretch::alone in items.cuh), and the others find nothing to do. Not so in stress mode.
//
// One thread's memory is a region that Go reserves, aligned to its size, so that a lane finds its worker from its
// stack pointer, and so does the handler that turns a bad address into an error of the launch:
//
//     0                      WORKER_BYTES                                                   REGION_BYTES
//     | worker: lanes, queue | guard | 32 stacks | guard | 32 stacks | … one such for each warp |
//
// A guard for each stack would be 512 mappings a thread, and 128 threads would be more than Linux gives a process. So the bottom of
// each stack is marked, and a lane that has run over its mark ends the launch before any other lane runs, whose stack it may have spoilt.
//
// With WARPMAP_STRESS a lane may lose the thread to any other at every atomic operation and global access. With WARPMAP_MODEL besides,
// accesses are checked, and loads may see older values (model.cuh).
#pragma once
#include "layout.h"
#include "types.cuh"
#include "wanted.cuh"

#if defined(WARPMAP_LINKED)
typedef decltype(sizeof 0) size_t;
extern "C" int printf(const char*, ...);
extern "C" void* memcpy(void*, const void*, size_t);
extern "C" void* memset(void*, int, size_t);
#else
#define pause libc_pause // POSIX has a function of that name
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#undef pause
#endif

#define WARPMAP_CAS128 1
#if defined(WARPMAP_MODEL) // launches come one at a time, in one thread; model.cuh knows shared memory by its place
#define __shared__ static
#if !defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("thread")))
#elif __clang_major__ >= 16 // older ones copy structs without a call of __tsan_memcpy
#define UNWATCHED __attribute__((disable_sanitizer_instrumentation)) // no_sanitize leaves calls of __tsan_func_entry
#else
#error "WithMemoryModel needs g++, or clang 16 or newer"
#define UNWATCHED
#endif
#else
#define __shared__ static thread_local
#define UNWATCHED
#endif

namespace host {

using device::HostLaunch;

enum State : u8 { UNSTARTED, READY, WAITS, AT_BARRIER, DONE };
enum Kind : u8 { BALLOT, SHUFFLE, SYNC };

struct Lane {
    void* sp;
    u32 mask; // of the operation it waits in
    u32 from; // of a shuffle
    u128 in, out;
    u16 stack;
    State state;
    Kind kind;
};

const int MAX_LANES = WARPMAP_MAX_THREADS;

struct Worker {
    HostLaunch* launch;
    void (*body)(const void*);
    void* main_sp; // where the thread goes on when the block is done
    u64 block;
    u64 random;
    u32 threads, current, unstarted, done, at_barrier;
    u32 head, ready_count; // a ring of lanes that can run
    u32 free_count;
    u16 ready[MAX_LANES];
    u16 free_stacks[MAX_LANES];
    Lane lanes[MAX_LANES];
};
static_assert(sizeof(Worker) <= HOST_WORKER_BYTES, "the worker fits its part of the region");

UNWATCHED __attribute__((always_inline)) inline Worker* self() {
    return (Worker*)((size_t)__builtin_frame_address(0) & ~(size_t)(HOST_REGION_BYTES - 1));
}

// scramble makes a state for random_below, which is never 0, of a seed: neighbouring seeds give unlike states.
UNWATCHED inline u64 scramble(u64 x) { // splitmix64's
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return x ? x : 1;
}

UNWATCHED inline u32 random_below(Worker* w, u32 n) { // xorshift64*
    u64 x = w->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    w->random = x;
    return (u32)((x * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

// How lanes run is compiled with each program. Tests' programs, of which there are hundreds, have WARPMAP_LINKED, and
// are linked with an object of it, which has WARPMAP_LANES (see device/cxx.go).
#if defined(WARPMAP_LINKED) || defined(WARPMAP_LANES)
#define HOST_INLINE
#else
#define HOST_INLINE inline
#endif
HOST_INLINE void leave(Worker* w, Lane* from, bool begin = false);
HOST_INLINE void run(HostLaunch* l, void (*body)(const void*));
HOST_INLINE u128 meet(Kind kind, u32 mask, u128 in, u32 from);
HOST_INLINE void yield();

} // namespace host
#if !defined(WARPMAP_LINKED)
#include "lanes.cuh"
#endif
namespace host {

// contiguous tells, in stress mode, whether the lanes of this launch take items in a row.
UNWATCHED inline bool contiguous() { return scramble(self()->launch->seed) & 1; }

UNWATCHED __attribute__((always_inline)) inline void stress_point() {
#if defined(WARPMAP_STRESS)
    if (random_below(self(), 2)) yield();
#endif
}

} // namespace host

#define WARPMAP_KERNEL(name, P) WARPMAP_KERNEL_IF(name, P, WARPMAP_KERNEL_1(name, P))
#define WARPMAP_KERNEL_1(name, P)                                                                                  \
    static void name##_lane(const P& p);                                                                           \
    extern "C" UNWATCHED __attribute__((visibility("default"))) void name(host::HostLaunch* l) {                           \
        host::run(l, [](const void* p) { name##_lane(*(const P*)p); });                                            \
    }                                                                                                              \
    extern "C" __attribute__((visibility("default"))) const u64 name##_params = sizeof(P);                        \
    static void name##_lane(const P& p)

#define WARPMAP_KERNEL_RESIDENT(name, P, blocks) WARPMAP_KERNEL(name, P)

#define WARPMAP_KERNEL_WIDE(name, P, threads, ...)                                                                                     \
    static_assert((threads) <= WARPMAP_MAX_THREADS && sizeof(__VA_ARGS__) <= WARPMAP_SHARED_BYTES, "a block of the CPU device has no more"); \
    WARPMAP_KERNEL(name, P)

UNWATCHED inline u32 thread_index() { return host::self()->current; }
UNWATCHED inline u32 block_threads() { return host::self()->threads; }
UNWATCHED inline u64 block_index() { return host::self()->block; }
UNWATCHED inline u64 grid_blocks() { return host::self()->launch->blocks; }

UNWATCHED inline void block_sync() {
    host::Worker* w = host::self();
    host::Lane* me = &w->lanes[w->current];
    me->state = host::AT_BARRIER;
    w->at_barrier++;
    host::leave(w, me);
}

// The largest that a launch may ask for. Kernels that never call it cost no thread the memory.
inline u128* dynamic_shared() {
    __shared__ u128 memory[WARPMAP_SHARED_BYTES / 16];
    return memory;
}

inline u128* dynamic_shared_once() { return dynamic_shared(); }

UNWATCHED inline u32 warp_ballot(u32 mask, bool x) { return (u32)host::meet(host::BALLOT, mask, u128{x, 0}, 0).lo; }
UNWATCHED inline u32 warp_shuffle(u32 mask, u32 x, u32 from) { return (u32)host::meet(host::SHUFFLE, mask, u128{x, 0}, from).lo; }
UNWATCHED inline u16 warp_shuffle(u32 mask, u16 x, u32 from) { return (u16)host::meet(host::SHUFFLE, mask, u128{x, 0}, from).lo; }
UNWATCHED inline u64 warp_shuffle(u32 mask, u64 x, u32 from) { return host::meet(host::SHUFFLE, mask, u128{x, 0}, from).lo; }
UNWATCHED inline u128 warp_shuffle(u32 mask, u128 x, u32 from) { return host::meet(host::SHUFFLE, mask, x, from); }
UNWATCHED inline void warp_sync(u32 mask) { host::meet(host::SYNC, mask, u128{0, 0}, 0); }

inline int popcount(u32 x) { return __builtin_popcount(x); }
inline int lowest_bit(u32 x) { return __builtin_ffs((int)x) - 1; }
inline int highest_bit(u32 x) { return x ? 31 - __builtin_clz(x) : -1; } // of 0 it is -1
inline u32 leading_zeros(u64 x) { return (u32)__builtin_clzll(x); } // x is not 0
inline u32 dot4(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
inline u64 multiply_high(u64 a, u64 b) { return (u64)((unsigned __int128)a * b >> 64); }
inline u64 worked_out(u64 x) { return x; }
inline u32 worked_out(u32 x) { return x; }

#if defined(WARPMAP_MODEL)
inline void fence() { model::fence(); }
inline void fence_acq_rel() { model::fence_acq_rel(); }
#else
inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void fence_acq_rel() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
#endif
inline void fence_system() { fence(); }

// A spinning lane lets the lanes it may be waiting for run.
UNWATCHED inline void pause() { host::yield(); }

// How each primitive reaches memory: as it is, or by way of the model. There a compare-and-swap that fails has only read.
#if defined(WARPMAP_MODEL)
#define PRIMITIVE UNWATCHED __attribute__((noinline)) inline
#define ON_LOAD(p, value, order) return model::load(p, value, model::order, model::SCOPE, __builtin_return_address(0))
#define ON_STORE(p, order, ...) model::store(p, model::order, model::SCOPE, __builtin_return_address(0), [&]() UNWATCHED { __VA_ARGS__; })
#define ON_CHANGE(p, order, scope, ...) \
    return model::change(p, model::order, scope, __builtin_return_address(0), [&]() UNWATCHED { return __VA_ARGS__; })
#define ON_CAS(p, old, ...)                                                                                                   \
    const auto wanted_ = old;                                                                                                 \
    return model::change(p, model::RELAXED, model::SCOPE, __builtin_return_address(0), [&]() UNWATCHED { return __VA_ARGS__; }, \
                         [&](decltype(wanted_) was) UNWATCHED { return was == wanted_; })
#define ON_READONLY(p) return model::load_readonly(p, __builtin_return_address(0))
#else
#define PRIMITIVE inline
#define ON_LOAD(p, value, order) return value
#define ON_STORE(p, order, ...) __VA_ARGS__
#define ON_CHANGE(p, order, scope, ...) return __VA_ARGS__
#define ON_CAS(p, old, ...) return __VA_ARGS__
#define ON_READONLY(p) return *p
#endif
#define AT host::stress_point();

template <class T> UNWATCHED inline T cas_word(T* p, T old, T now) {
    __atomic_compare_exchange_n(p, &old, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return old;
}

#define WARPMAP_ACCESS(T)                                                                                                  \
    PRIMITIVE T load_relaxed(const T* p) { AT ON_LOAD(p, __atomic_load_n(p, __ATOMIC_RELAXED), RELAXED); }                 \
    PRIMITIVE T load_acquire(const T* p) { AT ON_LOAD(p, __atomic_load_n(p, __ATOMIC_ACQUIRE), ACQUIRE); }                 \
    PRIMITIVE T load_readonly(const T* p) { ON_READONLY(p); }                                                              \
    PRIMITIVE void store_relaxed(T* p, T v) { AT ON_STORE(p, RELAXED, __atomic_store_n(p, v, __ATOMIC_RELAXED)); }         \
    PRIMITIVE void store_release(T* p, T v) { AT ON_STORE(p, RELEASE, __atomic_store_n(p, v, __ATOMIC_RELEASE)); }         \
    PRIMITIVE T cas(T* p, T old, T now) { AT ON_CAS(p, old, cas_word(p, old, now)); }                                      \
    PRIMITIVE T exchange(T* p, T now) { AT ON_CHANGE(p, RELAXED, model::SCOPE, __atomic_exchange_n(p, now, __ATOMIC_ACQ_REL)); } \
    PRIMITIVE T add(T* p, T x) { AT ON_CHANGE(p, RELAXED, model::SCOPE, __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL)); }     \
    PRIMITIVE T or_of(T* p, T x) { AT ON_CHANGE(p, RELAXED, model::SCOPE, __atomic_fetch_or(p, x, __ATOMIC_ACQ_REL)); }    \
    PRIMITIVE T and_of(T* p, T x) { AT ON_CHANGE(p, RELAXED, model::SCOPE, __atomic_fetch_and(p, x, __ATOMIC_ACQ_REL)); }  \
    PRIMITIVE T add_in_memory(T* p, T x) { AT ON_CHANGE(p, RELAXED, 0, __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL)); }      \
    inline T max_of(T* p, T x) {                                                                                           \
        T old = load_relaxed(p);                                                                                           \
        while (old < x) {                                                                                                  \
            T was = cas(p, old, x);                                                                                        \
            if (was == old) break;                                                                                         \
            old = was;                                                                                                     \
        }                                                                                                                  \
        return old;                                                                                                        \
    }
WARPMAP_ACCESS(u32)
WARPMAP_ACCESS(u64)
#undef WARPMAP_ACCESS
template <class B, class F> inline F add_float(F* p, F x) {
    B old = load_relaxed((B*)p);
    for (;;) {
        F f;
        B sum, was;
        memcpy(&f, &old, sizeof f);
        f += x;
        memcpy(&sum, &f, sizeof f);
        if ((was = cas((B*)p, old, sum)) == old) return f - x;
        old = was;
    }
}
inline float add(float* p, float x) { return add_float<u32>(p, x); }
inline double add(double* p, double x) { return add_float<u64>(p, x); }
inline void add_to_memory(u64* p, u64 x) { add_in_memory(p, x); }
inline void prefetch(u64) {}
// prefetch_to_write asks for a line that is to be changed, so that the change need not ask for it again.
inline void prefetch_to_write(u64 address) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*(const char*)address));
#else
    asm volatile("prfm pstl1keep, %0" : : "Q"(*(const char*)address));
#endif
}
// By assembly: g++ takes a function of nothing but __builtin_prefetch for one without effect, and leaves calls of it out.
inline void prefetch_line(u64 address) {
#if defined(__x86_64__)
    asm volatile("prefetcht0 %0" : : "m"(*(const char*)address));
#else
    asm volatile("prfm pldl1keep, %0" : : "Q"(*(const char*)address));
#endif
}
PRIMITIVE u32 or_acquire(u32* p, u32 x) { AT ON_CHANGE(p, ACQUIRE, model::SCOPE, __atomic_fetch_or(p, x, __ATOMIC_ACQ_REL)); }
PRIMITIVE u32 or_in_memory(u32* p, u32 x) { AT ON_CHANGE(p, RELAXED, 0, __atomic_fetch_or(p, x, __ATOMIC_ACQ_REL)); }
PRIMITIVE u32 and_in_memory(u32* p, u32 x) { AT ON_CHANGE(p, RELAXED, 0, __atomic_fetch_and(p, x, __ATOMIC_ACQ_REL)); }
inline void or_of_memory(u32* p, u32 x) { or_in_memory(p, x); }
inline void and_of_memory(u32* p, u32 x) { and_in_memory(p, x); }
#if defined(WARPMAP_MODEL) // max_of is for the block in a program with WARPMAP_SHARED
UNWATCHED inline u64 max_whole(u64* p, u64 x) {
    u64 old = *p;
    if (old < x) *p = x;
    return old;
}
PRIMITIVE void max_of_memory(u64* p, u64 x) { AT model::change(p, model::RELAXED, 0, __builtin_return_address(0), [&]() UNWATCHED { return max_whole(p, x); }); }
#else
inline void max_of_memory(u64* p, u64 x) { max_of(p, x); }
#endif

#define WARPMAP_SMALL(T)                                                                                                   \
    PRIMITIVE T load_relaxed(const T* p) { AT ON_LOAD(p, __atomic_load_n(p, __ATOMIC_RELAXED), RELAXED); }                 \
    PRIMITIVE T load_readonly(const T* p) { ON_READONLY(p); }                                                              \
    PRIMITIVE void store_relaxed(T* p, T v) { AT ON_STORE(p, RELAXED, __atomic_store_n(p, v, __ATOMIC_RELAXED)); }
WARPMAP_SMALL(u8)
WARPMAP_SMALL(u16)
#undef WARPMAP_SMALL
template <class T> inline T load_kept(const T* p) { return load_relaxed(p); }
template <class T> inline T load_both(const T* p) { return load_relaxed(p); }
template <class T> inline T load_memory(const T* p) { return load_relaxed(p); }
template <class T> inline void store_memory(T* p, T v) { store_relaxed(p, v); }

#if defined(__x86_64__)
// cmpxchg16b is the one 16-byte access that every amd64 processor makes whole; those with AVX make aligned vector
// loads and stores whole too.
UNWATCHED __attribute__((noinline)) inline u128 cas_unstressed(u128* p, u128 old, u128 now) {
    asm volatile("lock cmpxchg16b %0" : "+m"(*p), "+a"(old.lo), "+d"(old.hi) : "b"(now.lo), "c"(now.hi) : "cc", "memory");
    return old;
}
UNWATCHED inline bool vector_whole() {
#if defined(__AVX__)
    return true;
#else
    static const bool yes = __builtin_cpu_supports("avx");
    return yes;
#endif
}
// Where there is AVX, the form that knows it: processors of Intel wait long where the other meets registers of which the upper part was used.
#if defined(__AVX__)
#define WARPMAP_MOVE_16 "vmovdqa"
#else
#define WARPMAP_MOVE_16 "movdqa"
#endif
UNWATCHED inline u128 load_whole(const u128* p) {
    if (!vector_whole()) return cas_unstressed((u128*)p, u128{0, 0}, u128{0, 0});
    typedef long long v2 __attribute__((vector_size(16)));
    v2 v;
    asm volatile(WARPMAP_MOVE_16 " %1, %0" : "=x"(v) : "m"(*(const v2*)p) : "memory");
    return u128{(u64)v[0], (u64)v[1]};
}
UNWATCHED inline void store_whole(u128* p, u128 v) {
    if (!vector_whole()) {
        u128 old = *p;
        for (u128 was; (was = cas_unstressed(p, old, v)) != old;) old = was;
        return;
    }
    typedef long long v2 __attribute__((vector_size(16)));
    v2 x = {(long long)v.lo, (long long)v.hi};
    asm volatile(WARPMAP_MOVE_16 " %1, %0" : "=m"(*(v2*)p) : "x"(x) : "memory");
}
#else
// One piece of assembly, so that the compiler puts no access of its own between the exclusive load and store, which
// could make them fail for ever. Where the comparison fails, storing what was there proves that both halves were read at
// one moment.
UNWATCHED inline u128 cas_unstressed(u128* p, u128 old, u128 now) {
    u64 lo, hi, put_lo, put_hi;
    u32 fail;
    asm volatile("1:  ldaxp %[lo], %[hi], %[p]\n"
                 "    cmp %[lo], %[old_lo]\n"
                 "    ccmp %[hi], %[old_hi], #0, eq\n"
                 "    csel %[put_lo], %[now_lo], %[lo], eq\n"
                 "    csel %[put_hi], %[now_hi], %[hi], eq\n"
                 "    stlxp %w[fail], %[put_lo], %[put_hi], %[p]\n"
                 "    cbnz %w[fail], 1b\n"
                 : [lo] "=&r"(lo), [hi] "=&r"(hi), [put_lo] "=&r"(put_lo), [put_hi] "=&r"(put_hi), [fail] "=&r"(fail), [p] "+Q"(*p)
                 : [old_lo] "r"(old.lo), [old_hi] "r"(old.hi), [now_lo] "r"(now.lo), [now_hi] "r"(now.hi)
                 : "cc", "memory");
    return u128{lo, hi};
}
UNWATCHED inline u128 load_whole(const u128* p) { return cas_unstressed((u128*)p, u128{0, 0}, u128{0, 0}); }
UNWATCHED inline void store_whole(u128* p, u128 v) {
    u128 old = load_whole(p);
    for (u128 was; (was = cas_unstressed(p, old, v)) != old;) old = was;
}
#endif
UNWATCHED inline u128 exchange_whole(u128* p, u128 now) {
    u128 old = load_whole(p);
    for (u128 was; (was = cas_unstressed(p, old, now)) != old;) old = was;
    return old;
}
PRIMITIVE u128 load_relaxed(const u128* p) { AT ON_LOAD(p, load_whole(p), RELAXED); }
PRIMITIVE u128 load_acquire(const u128* p) { AT ON_LOAD(p, load_whole(p), ACQUIRE); }
PRIMITIVE u128 load_readonly(const u128* p) { ON_READONLY(p); }
template <class T> inline void load_readonly_if(bool on, const T* p, T& v) {
    if (on) v = load_readonly(p);
}
PRIMITIVE void store_relaxed(u128* p, u128 v) { AT ON_STORE(p, RELAXED, store_whole(p, v)); }
PRIMITIVE void store_release(u128* p, u128 v) { AT ON_STORE(p, RELEASE, store_whole(p, v)); }
PRIMITIVE u128 cas(u128* p, u128 old, u128 now) { AT ON_CAS(p, old, cas_unstressed(p, old, now)); }
PRIMITIVE u128 exchange(u128* p, u128 now) { AT ON_CHANGE(p, RELAXED, model::SCOPE, exchange_whole(p, now)); }
#if defined(WARPMAP_MODEL)
// The model's loads and stores lie in 16 bytes: a larger type goes by pieces that do.
template <class T> struct Pieces {
    static constexpr size_t BYTES = alignof(T) < 16 ? alignof(T) : 16, N = sizeof(T) / BYTES;
    struct alignas(BYTES) Piece {
        u8 bytes[BYTES];
    };
};
template <class T> PRIMITIVE T load_racing(const T* p) {
    typedef typename Pieces<T>::Piece Piece;
    T v;
    for (size_t i = 0; i < Pieces<T>::N; i++) {
        const Piece* from = (const Piece*)p + i;
        ((Piece*)&v)[i] = model::load(from, *from, model::RELAXED, model::SCOPE, __builtin_return_address(0));
    }
    return v;
}
template <class T> PRIMITIVE void store_racing(T* p, T v) {
    typedef typename Pieces<T>::Piece Piece;
    for (size_t i = 0; i < Pieces<T>::N; i++) {
        Piece *to = (Piece*)p + i, *from = (Piece*)&v + i;
        model::store(to, model::RELAXED, model::SCOPE, __builtin_return_address(0), [&]() UNWATCHED { *to = *from; });
    }
}
#else
template <class T> inline T load_racing(const T* p) { return *p; }
template <class T> inline void store_racing(T* p, T v) { *p = v; }
#endif
template <class T> inline T load_volatile(const T* p) {
#if defined(WARPMAP_MODEL)
    return load_racing(p);
#else
    return *(const volatile T*)p;
#endif
}
#undef AT
#undef ON_LOAD
#undef ON_STORE
#undef ON_CHANGE
#undef ON_CAS
#undef ON_READONLY

// How many bytes the processor compares at once. (clang names the builtins of 64 otherwise.)
#if defined(__AVX512BW__) && !defined(__clang__)
#define WARPMAP_VECTOR 64
#elif defined(__AVX2__)
#define WARPMAP_VECTOR 32
#else
#define WARPMAP_VECTOR 16
#endif

// Words beside one another, which the processor loads and compares together: as many of u32 or u64 as fill BYTES, 16 to WARPMAP_VECTOR of them. Each
// word is loaded whole, for no processor cuts the words of a vector; the vector as such may be of two moments.
template <class W, int BYTES> struct Words {
    static_assert(BYTES >= 16 && BYTES <= WARPMAP_VECTOR, "a vector is no larger than the processor's");
    static constexpr int N = BYTES / sizeof(W);
    typedef W word;
    typedef W vector __attribute__((vector_size(BYTES)));
    typedef vector in_memory __attribute__((aligned(sizeof(W)), may_alias)); // buckets need not be lines
    // equal gives a bit for each word that is w, of what `bits` are set of it.
    static __attribute__((always_inline)) inline u32 equal(vector v, W bits, W w) {
#if WARPMAP_VECTOR == 64
        if constexpr (BYTES == 64) {
            vector x = v & bits, y = (vector){} + w;
            if constexpr (sizeof(W) == 8) {
                typedef long long other __attribute__((vector_size(64)));
                return (u8)__builtin_ia32_cmpq512_mask((other)x, (other)y, 0, (u8)-1);
            } else {
                typedef int other __attribute__((vector_size(64)));
                return (u16)__builtin_ia32_cmpd512_mask((other)x, (other)y, 0, (u16)-1);
            }
        } else
#endif
        {
            auto eq = (v & bits) == w;
#if WARPMAP_VECTOR >= 32
            if constexpr (BYTES == 32) {
                typedef double d4 __attribute__((vector_size(32)));
                typedef float f8 __attribute__((vector_size(32)));
                if constexpr (sizeof(W) == 8) return (u32)__builtin_ia32_movmskpd256((d4)eq);
                else return (u32)__builtin_ia32_movmskps256((f8)eq);
            } else
#endif
            {
#if defined(__SSE2__)
                typedef double d2 __attribute__((vector_size(16)));
                typedef float f4 __attribute__((vector_size(16)));
                if constexpr (sizeof(W) == 8) return (u32)__builtin_ia32_movmskpd((d2)eq);
                else return (u32)__builtin_ia32_movmskps((f4)eq);
#else
                u32 m = 0;
                for (int i = 0; i < N; i++) m |= (u32)(eq[i] & 1) << i;
                return m;
#endif
            }
        }
    }
};

template <class WORDS> __attribute__((always_inline)) inline typename WORDS::vector load_words(u64 address) {
#if defined(WARPMAP_MODEL)
    typename WORDS::vector v;
    for (int i = 0; i < WORDS::N; i++) v[i] = load_relaxed((const typename WORDS::word*)address + i);
    return v;
#endif
    return *(const volatile typename WORDS::in_memory*)address;
}

inline u128 load_relaxed_if(bool on, const u128* p) { return on ? load_relaxed(p) : u128{}; }

// Each element is whole, as on a GPU, and no more: in stress mode the elements are of different moments.
template <class T, int N> inline void load_vector(const T* p, T (&v)[N]) {
    for (int i = 0; i < N; i++) v[i] = load_relaxed(p + i);
}
template <class T, int N> inline void load_vector_if(bool on, const T* p, T (&v)[N]) {
    for (int i = 0; i < N; i++) v[i] = on ? load_relaxed(p + i) : T{};
}
