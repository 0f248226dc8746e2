// The primitives on a GPU, sm_70 and later. Inline PTX names the memory order and the scope; nothing is left to
// volatile. Relaxed and acquire accesses of GPU scope go to L2, so they never see a stale line of L1.
#pragma once
#include "layout.h"
#include "types.cuh"
#include "wanted.cuh"

// NVRTC 12.3 is the first that knows 16 bytes as one value.
#ifndef WARPMAP_B128
#define WARPMAP_B128 (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203)
#endif
#define WARPMAP_CAS128 (__CUDA_ARCH__ >= 900 && WARPMAP_B128)

// Beside a kernel are variables, which nothing reads, as large as its parameter, as a block has warps at most, and one more than 16 bytes of dynamic
// shared memory that a block always has: see device.KernelOf.
#define WARPMAP_BESIDE(name, P, threads, shared)                \
    extern "C" __device__ char name##_params[sizeof(P)];        \
    extern "C" __device__ char name##_warps[(threads) / 32];    \
    extern "C" __device__ char name##_shared[((shared) + 15) / 16 + 1];
#define WARPMAP_PARAMS(name, P) WARPMAP_BESIDE(name, P, WARPMAP_MAX_THREADS, 0)
#define WARPMAP_KERNEL(name, P) WARPMAP_KERNEL_IF(name, P, WARPMAP_KERNEL_1(name, P))
#define WARPMAP_KERNEL_1(name, P) \
    WARPMAP_PARAMS(name, P)       \
    extern "C" __global__ void __launch_bounds__(WARPMAP_MAX_THREADS) name(const __grid_constant__ P p)
// The same, with so few registers that the given number of blocks is resident on a multiprocessor, or as many as it has
// threads for. Of a larger number ptxas would take no notice, and give each thread all the registers that it wants.
#if __CUDA_ARCH__ == 750
#define WARPMAP_RESIDENT_THREADS 1024
#elif __CUDA_ARCH__ == 700 || __CUDA_ARCH__ == 720 || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define WARPMAP_RESIDENT_THREADS 2048
#else
#define WARPMAP_RESIDENT_THREADS 1536
#endif
#define WARPMAP_RESIDENT(blocks) ((blocks) * WARPMAP_MAX_THREADS <= WARPMAP_RESIDENT_THREADS ? (blocks) : WARPMAP_RESIDENT_THREADS / WARPMAP_MAX_THREADS)
#define WARPMAP_KERNEL_RESIDENT(name, P, blocks) WARPMAP_KERNEL_IF(name, P, WARPMAP_KERNEL_RESIDENT_1(name, P, blocks))
#define WARPMAP_KERNEL_RESIDENT_1(name, P, blocks) \
    WARPMAP_PARAMS(name, P)                        \
    extern "C" __global__ void __launch_bounds__(WARPMAP_MAX_THREADS, WARPMAP_RESIDENT(blocks)) name(const __grid_constant__ P p)
// The same, for blocks of up to so many threads, each with the type that comes last in dynamic shared memory, of which a launch need not tell.
#define WARPMAP_KERNEL_WIDE(name, P, threads, ...) WARPMAP_KERNEL_IF(name, P, WARPMAP_KERNEL_WIDE_1(name, P, threads, __VA_ARGS__))
#define WARPMAP_KERNEL_WIDE_1(name, P, threads, ...)                                                        \
    static_assert(sizeof(__VA_ARGS__) <= WARPMAP_SHARED_BYTES, "a block has less shared memory on this GPU"); \
    WARPMAP_BESIDE(name, P, threads, sizeof(__VA_ARGS__))                                                   \
    extern "C" __global__ void __launch_bounds__(threads, 1024 / (threads)) name(const __grid_constant__ P p)

__device__ __forceinline__ u32 thread_index() { return threadIdx.x; }
__device__ __forceinline__ u32 block_threads() { return blockDim.x; }
__device__ __forceinline__ u64 block_index() { return blockIdx.x; }
__device__ __forceinline__ u64 grid_blocks() { return gridDim.x; }
__device__ __forceinline__ void block_sync() { __syncthreads(); }

// dynamic_shared is the block's dynamic shared memory: so many bytes as device.Grid says, of undefined content.
extern __shared__ u128 dynamic_shared_memory[];
__device__ __forceinline__ u128* dynamic_shared() { return dynamic_shared_memory; }

__device__ __forceinline__ u32 warp_ballot(u32 mask, bool x) { return __ballot_sync(mask, x); }
__device__ __forceinline__ u32 warp_shuffle(u32 mask, u32 x, u32 from) { return __shfl_sync(mask, x, from); }
__device__ __forceinline__ u16 warp_shuffle(u32 mask, u16 x, u32 from) { return (u16)__shfl_sync(mask, (u32)x, from); }
__device__ __forceinline__ u64 warp_shuffle(u32 mask, u64 x, u32 from) { return __shfl_sync(mask, x, from); }
__device__ __forceinline__ u128 warp_shuffle(u32 mask, u128 x, u32 from) {
    return u128{__shfl_sync(mask, x.lo, from), __shfl_sync(mask, x.hi, from)};
}
// The sum of x over the lanes of a warp, which must all come.
__device__ __forceinline__ u32 warp_sum(u32 x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(~0u, x);
#else
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
#endif
}
// The least x of the lanes of a warp, which must all come.
__device__ __forceinline__ u32 warp_min(u32 x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(~0u, x);
#else
    for (int d = 16; d > 0; d /= 2) {
        u32 y = __shfl_xor_sync(~0u, x, d);
        x = y < x ? y : x;
    }
    return x;
#endif
}
__device__ __forceinline__ void warp_sync(u32 mask) { __syncwarp(mask); }

__device__ __forceinline__ int popcount(u32 x) { return __popc(x); }
__device__ __forceinline__ int lowest_bit(u32 x) { return __ffs(x) - 1; }
// highest_bit of 0 is -1.
__device__ __forceinline__ int highest_bit(u32 x) { return 31 - __clz(x); }
__device__ __forceinline__ u32 leading_zeros(u64 x) { return (u32)__clzll((long long)x); } // x is not 0
// dot4 adds the products of the bytes of a and b to c. NVRTC 11.8 does not know it by its name.
__device__ __forceinline__ u32 dot4(u32 a, u32 b, u32 c) {
#if WARPMAP_B128
    return __dp4a(a, b, c);
#else
    u32 d;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#endif
}
__device__ __forceinline__ u64 multiply_high(u64 a, u64 b) { return __umul64hi(a, b); }

// worked_out is x, of which the compiler does not know how it came to be: it works it out once, and not again at each use.
__device__ __forceinline__ u64 worked_out(u64 x) {
    asm volatile("" : "+l"(x));
    return x;
}
__device__ __forceinline__ u32 worked_out(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}

// dynamic_shared_once is dynamic_shared(), of which the compiler does not ask the block's place again at each use. It knows it for shared memory.
__device__ __forceinline__ u128* dynamic_shared_once() {
    return (u128*)__cvta_shared_to_generic(worked_out((u32)__cvta_generic_to_shared(dynamic_shared_memory)));
}

// A stalled spinner lets other warps run.
__device__ __forceinline__ void pause() {
    __nanosleep(40);
}

// In a program with WARPMAP_SHARED, all memory operations but load_readonly and those that are named after memory are for a block's shared memory.
#if defined(WARPMAP_SHARED)
#define WARPMAP_SPACE ".cta.shared"
#define WARPMAP_AT(p) "l"(__cvta_generic_to_shared(p))
#else
#define WARPMAP_SPACE ".gpu.global"
#define WARPMAP_AT(p) "l"(p)
#endif

#define WARPMAP_ACCESS(T, SUFFIX, REG)                                                                             \
    __device__ __forceinline__ T load_relaxed(const T* p) {                                                        \
        T v;                                                                                                       \
        asm volatile("ld.relaxed" WARPMAP_SPACE "." SUFFIX " %0, [%1];" : "=" REG(v) : WARPMAP_AT(p) : "memory");               \
        return v;                                                                                                  \
    }                                                                                                              \
    __device__ __forceinline__ T load_acquire(const T* p) {                                                        \
        T v;                                                                                                       \
        asm volatile("ld.acquire" WARPMAP_SPACE "." SUFFIX " %0, [%1];" : "=" REG(v) : WARPMAP_AT(p) : "memory");               \
        return v;                                                                                                  \
    }                                                                                                              \
    __device__ __forceinline__ T load_readonly(const T* p) {                                                       \
        T v;                                                                                                       \
        asm volatile("ld.global.nc." SUFFIX " %0, [%1];" : "=" REG(v) : "l"(p));                                   \
        return v;                                                                                                  \
    }                                                                                                              \
    __device__ __forceinline__ void store_relaxed(T* p, T v) {                                                     \
        asm volatile("st.relaxed" WARPMAP_SPACE "." SUFFIX " [%0], %1;" ::WARPMAP_AT(p), REG(v) : "memory");                    \
    }                                                                                                              \
    __device__ __forceinline__ void store_release(T* p, T v) {                                                     \
        asm volatile("st.release" WARPMAP_SPACE "." SUFFIX " [%0], %1;" ::WARPMAP_AT(p), REG(v) : "memory");                    \
    }

WARPMAP_ACCESS(u32, "u32", "r")
WARPMAP_ACCESS(u64, "u64", "l")
#undef WARPMAP_ACCESS

#if defined(WARPMAP_SHARED)
// By name: of an address that it does not know to be shared, the compiler makes much longer code.
#define WARPMAP_ATOMIC(name, T, OP, REG)                                                                                    \
    __device__ __forceinline__ T name(T* p, T x) {                                                                          \
        T was;                                                                                                              \
        asm volatile("atom.relaxed.cta.shared." OP " %0, [%1], %2;" : "=" REG(was) : WARPMAP_AT(p), REG(x) : "memory");     \
        return was;                                                                                                         \
    }
#define WARPMAP_ATOMICS(T, BITS, REG)                                                                                       \
    WARPMAP_ATOMIC(exchange, T, "exch.b" BITS, REG)                                                                         \
    WARPMAP_ATOMIC(add, T, "add.u" BITS, REG)                                                                               \
    WARPMAP_ATOMIC(max_of, T, "max.u" BITS, REG)                                                                            \
    WARPMAP_ATOMIC(and_of, T, "and.b" BITS, REG)                                                                            \
    WARPMAP_ATOMIC(or_of, T, "or.b" BITS, REG)                                                                              \
    __device__ __forceinline__ T cas(T* p, T old, T now) {                                                                  \
        T was;                                                                                                              \
        asm volatile("atom.relaxed.cta.shared.cas.b" BITS " %0, [%1], %2, %3;" : "=" REG(was) : WARPMAP_AT(p), REG(old), REG(now) : "memory"); \
        return was;                                                                                                         \
    }
WARPMAP_ATOMICS(u32, "32", "r")
WARPMAP_ATOMICS(u64, "64", "l")
#undef WARPMAP_ATOMICS
#undef WARPMAP_ATOMIC
#else
#define WARPMAP_ATOMICS(T)                                                                           \
    __device__ __forceinline__ T cas(T* p, T old, T now) { return atomicCAS(p, old, now); }          \
    __device__ __forceinline__ T exchange(T* p, T now) { return atomicExch(p, now); }                \
    __device__ __forceinline__ T add(T* p, T x) { return atomicAdd(p, x); }                          \
    __device__ __forceinline__ T max_of(T* p, T x) { return atomicMax(p, x); }                       \
    __device__ __forceinline__ T and_of(T* p, T x) { return atomicAnd(p, x); }                       \
    __device__ __forceinline__ T or_of(T* p, T x) { return atomicOr(p, x); }
WARPMAP_ATOMICS(u32)
WARPMAP_ATOMICS(u64)
#undef WARPMAP_ATOMICS
__device__ __forceinline__ float add(float* p, float x) { return atomicAdd(p, x); }
__device__ __forceinline__ double add(double* p, double x) { return atomicAdd(p, x); }
#endif

// prefetch brings what is at an address into the L2 cache.
__device__ __forceinline__ void prefetch_to_write(u64) {}
__device__ __forceinline__ void prefetch_line(u64) {} // only the CPU device looks ahead
__device__ __forceinline__ void prefetch(u64 address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// or_acquire is or_of that what follows comes behind, for less than a fence costs.
__device__ __forceinline__ u32 or_acquire(u32* p, u32 x) {
    u32 was;
#if defined(WARPMAP_SHARED)
    asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], %2;" : "=r"(was) : WARPMAP_AT(p), "r"(x) : "memory");
#else
    asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;" : "=r"(was) : "l"(p), "r"(x) : "memory");
#endif
    return was;
}

// add_to_memory adds to global memory, in every program; add_in_memory does, and gives what was there.
__device__ __forceinline__ void add_to_memory(u64* p, u64 x) { asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
__device__ __forceinline__ u32 add_in_memory(u32* p, u32 x) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(x) : "memory");
    return old;
}
__device__ __forceinline__ u64 add_in_memory(u64* p, u64 x) {
    u64 old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(x) : "memory");
    return old;
}

// or_of_memory, and_of_memory and max_of_memory change global memory, in every program.
__device__ __forceinline__ void or_of_memory(u32* p, u32 x) { asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
__device__ __forceinline__ void and_of_memory(u32* p, u32 x) { asm volatile("red.relaxed.gpu.global.and.b32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
__device__ __forceinline__ void max_of_memory(u64* p, u64 x) { asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }

// Bytes and half words are loaded and stored only.
#define WARPMAP_SMALL(T, SUFFIX)                                                                                    \
    __device__ __forceinline__ T load_relaxed(const T* p) {                                                        \
        u32 v;                                                                                                     \
        asm volatile("ld.relaxed" WARPMAP_SPACE "." SUFFIX " %0, [%1];" : "=r"(v) : WARPMAP_AT(p) : "memory");                  \
        return (T)v;                                                                                               \
    }                                                                                                              \
    __device__ __forceinline__ T load_readonly(const T* p) {                                                       \
        u32 v;                                                                                                     \
        asm volatile("ld.global.nc." SUFFIX " %0, [%1];" : "=r"(v) : "l"(p));                                      \
        return (T)v;                                                                                               \
    }                                                                                                              \
    __device__ __forceinline__ void store_relaxed(T* p, T v) {                                                     \
        asm volatile("st.relaxed" WARPMAP_SPACE "." SUFFIX " [%0], %1;" ::WARPMAP_AT(p), "r"((u32)v) : "memory");               \
    }
WARPMAP_SMALL(u8, "u8")
WARPMAP_SMALL(u16, "u16")
#undef WARPMAP_SMALL

// An older NVRTC is told of two values of 8 bytes. It makes the same instructions of that, as a test holds for the GPUs that
// such an NVRTC compiles for.
#if WARPMAP_B128
#define WARPMAP_LOAD16(ORDER) "{ .reg .b128 t; ld." ORDER WARPMAP_SPACE ".b128 t, [%2]; mov.b128 {%0, %1}, t; }"
#define WARPMAP_STORE16(ORDER) "{ .reg .b128 t; mov.b128 t, {%1, %2}; st." ORDER WARPMAP_SPACE ".b128 [%0], t; }"
#else
#define WARPMAP_LOAD16(ORDER) "ld." ORDER WARPMAP_SPACE ".v2.u64 {%0, %1}, [%2];"
#define WARPMAP_STORE16(ORDER) "st." ORDER WARPMAP_SPACE ".v2.u64 [%0], {%1, %2};"
#endif
#define WARPMAP_READ16(ORDER)                                                                                     \
    __device__ __forceinline__ u128 load_##ORDER(const u128* p) {                                                  \
        u128 v;                                                                                                    \
        asm volatile(WARPMAP_LOAD16(#ORDER) : "=l"(v.lo), "=l"(v.hi) : WARPMAP_AT(p) : "memory");                         \
        return v;                                                                                                  \
    }
#define WARPMAP_WRITE16(ORDER)                                                                                      \
    __device__ __forceinline__ void store_##ORDER(u128* p, u128 v) {                                               \
        asm volatile(WARPMAP_STORE16(#ORDER) ::WARPMAP_AT(p), "l"(v.lo), "l"(v.hi) : "memory");                           \
    }
WARPMAP_READ16(relaxed)
WARPMAP_READ16(acquire)
WARPMAP_WRITE16(relaxed)
WARPMAP_WRITE16(release)
#undef WARPMAP_READ16
#undef WARPMAP_WRITE16

// load_memory and store_memory are load_relaxed and store_relaxed of global memory, in every program: in one with WARPMAP_SHARED, for the block.
#if defined(WARPMAP_SHARED)
#define WARPMAP_MEMORY(T, SUFFIX, REG)                                                                             \
    __device__ __forceinline__ T load_memory(const T* p) {                                                         \
        T v;                                                                                                       \
        asm volatile("ld.relaxed.cta.global." SUFFIX " %0, [%1];" : "=" REG(v) : "l"(p) : "memory");               \
        return v;                                                                                                  \
    }                                                                                                              \
    __device__ __forceinline__ void store_memory(T* p, T v) {                                                      \
        asm volatile("st.relaxed.cta.global." SUFFIX " [%0], %1;" ::"l"(p), REG(v) : "memory");                    \
    }
WARPMAP_MEMORY(u32, "u32", "r")
WARPMAP_MEMORY(u64, "u64", "l")
#undef WARPMAP_MEMORY
__device__ __forceinline__ u128 load_memory(const u128* p) {
    u128 v;
    asm volatile("ld.relaxed.cta.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_memory(u128* p, u128 v) {
    asm volatile("st.relaxed.cta.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
}
#else
template <class T> __device__ __forceinline__ T load_memory(const T* p) { return load_relaxed(p); }
template <class T> __device__ __forceinline__ void store_memory(T* p, T v) { store_relaxed(p, v); }
#endif

// load_relaxed if `on`; else it is whatever it is.
#if WARPMAP_B128
#define WARPMAP_LOAD16_IF "{ .reg .pred q; .reg .b128 t; setp.ne.u32 q, %3, 0; @q ld.relaxed" WARPMAP_SPACE ".b128 t, [%2]; mov.b128 {%0, %1}, t; }"
#else
#define WARPMAP_LOAD16_IF "{ .reg .pred q; setp.ne.u32 q, %3, 0; @q ld.relaxed" WARPMAP_SPACE ".v2.u64 {%0, %1}, [%2]; }"
#endif
__device__ __forceinline__ u128 load_relaxed_if(bool on, const u128* p) {
    u128 v;
    asm volatile(WARPMAP_LOAD16_IF
                 : "=l"(v.lo), "=l"(v.hi)
                 : WARPMAP_AT(p), "r"((u32)on)
                 : "memory");
    return v;
}

__device__ __forceinline__ u128 load_readonly(const u128* p) {
    u128 v;
    asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p));
    return v;
}
// load_readonly_if loads where `on` says so, and leaves v as it is elsewhere: without a branch, behind which the loads of a
// lane would wait for one another.
__device__ __forceinline__ void load_readonly_if(bool on, const u128* p, u128& v) {
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %3, 0; @q ld.global.nc.v2.u64 {%0, %1}, [%2]; }"
                 : "+l"(v.lo), "+l"(v.hi)
                 : "l"(p), "r"((u32)on));
}
__device__ __forceinline__ void load_readonly_if(bool on, const u64* p, u64& v) {
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %2, 0; @q ld.global.nc.u64 %0, [%1]; }" : "+l"(v) : "l"(p), "r"((u32)on));
}
#if WARPMAP_CAS128
__device__ __forceinline__ u128 cas(u128* p, u128 old, u128 now) {
    u128 was;
    asm volatile(
        "{ .reg .b128 o, n, w; mov.b128 o, {%3, %4}; mov.b128 n, {%5, %6};"
        "  atom.relaxed" WARPMAP_SPACE ".cas.b128 w, [%2], o, n; mov.b128 {%0, %1}, w; }"
        : "=l"(was.lo), "=l"(was.hi)
        : WARPMAP_AT(p), "l"(old.lo), "l"(old.hi), "l"(now.lo), "l"(now.hi)
        : "memory");
    return was;
}
__device__ __forceinline__ u128 exchange(u128* p, u128 now) {
    u128 was;
    asm volatile("{ .reg .b128 n, w; mov.b128 n, {%3, %4}; atom.relaxed" WARPMAP_SPACE ".exch.b128 w, [%2], n; mov.b128 {%0, %1}, w; }"
                 : "=l"(was.lo), "=l"(was.hi)
                 : WARPMAP_AT(p), "l"(now.lo), "l"(now.hi)
                 : "memory");
    return was;
}
#endif

// fence orders this lane's accesses before it ahead of those behind it, for every lane of the GPU. fence_acq_rel does, but for a
// store before it and a load behind it: that is what locks and messages need, and it costs less. fence_system is fence, for the host, too.
__device__ __forceinline__ void fence_system() { __threadfence_system(); }
#if defined(WARPMAP_SHARED)
__device__ __forceinline__ void fence() { __threadfence_block(); } // of the block: it has its memory to itself
__device__ __forceinline__ void fence_acq_rel() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
#else
__device__ __forceinline__ void fence() { __threadfence(); }
__device__ __forceinline__ void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
#endif

// Plain accesses beside primitives of other threads, by which each caller argues that no harm is done: an old value costs a try,
// or all write the same. load_volatile is load_racing that reads memory each time.
template <class T> __device__ __forceinline__ T load_racing(const T* p) { return *p; }
template <class T> __device__ __forceinline__ T load_volatile(const T* p) { return *(const volatile T*)p; }
template <class T> __device__ __forceinline__ void store_racing(T* p, T v) { *p = v; }

// load_both is load_relaxed of one half of 64 bytes whose other half is wanted next: memory gives both at once.
__device__ __forceinline__ u128 load_both(const u128* p) {
#if __CUDA_ARCH__ >= 750 && !defined(WARPMAP_SHARED)
    u128 v;
    asm volatile("ld.relaxed.gpu.global.L2::64B.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
    return v;
#else
    return load_relaxed(p);
#endif
}

// load_kept is load_relaxed of memory that is read again and again among much that is read once: its lines are the
// last that the L2 cache gives up.
__device__ __forceinline__ u64 keep_policy() {
    u64 policy = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}
#if __CUDA_ARCH__ >= 800 && !defined(WARPMAP_SHARED)
#define WARPMAP_KEPT(T, SUFFIX)                                                                                     \
    __device__ __forceinline__ T load_kept(const T* p) {                                                           \
        u32 v;                                                                                                     \
        asm volatile("ld.relaxed.gpu.global.L2::cache_hint." SUFFIX " %0, [%1], %2;"                               \
                     : "=r"(v)                                                                                     \
                     : "l"(p), "l"(keep_policy())                                                                  \
                     : "memory");                                                                                  \
        return (T)v;                                                                                               \
    }
#else
#define WARPMAP_KEPT(T, SUFFIX) \
    __device__ __forceinline__ T load_kept(const T* p) { return load_relaxed(p); }
#endif
WARPMAP_KEPT(u8, "u8")
WARPMAP_KEPT(u16, "u16")
WARPMAP_KEPT(u32, "u32")
#undef WARPMAP_KEPT

// 16 bytes as two u64 or four u32. Each element is whole; the vector as such may be of two moments.
__device__ __forceinline__ void load_vector(const u64* p, u64 (&v)[2]) {
    asm volatile("ld.relaxed" WARPMAP_SPACE ".v2.u64 {%0, %1}, [%2];" : "=l"(v[0]), "=l"(v[1]) : WARPMAP_AT(p) : "memory");
}
__device__ __forceinline__ void load_vector(const u32* p, u32 (&v)[4]) {
    asm volatile("ld.relaxed" WARPMAP_SPACE ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : WARPMAP_AT(p)
                 : "memory");
}
__device__ __forceinline__ void load_vector(const u32* p, u32 (&v)[2]) {
    asm volatile("ld.relaxed" WARPMAP_SPACE ".v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : WARPMAP_AT(p) : "memory");
}

// The same if `on`; else the elements are whatever they are. A branch around load_vector would cost a move for every register.
__device__ __forceinline__ void load_vector_if(bool on, const u64* p, u64 (&v)[2]) {
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %3, 0; @q ld.relaxed" WARPMAP_SPACE ".v2.u64 {%0, %1}, [%2]; }"
                 : "=l"(v[0]), "=l"(v[1])
                 : WARPMAP_AT(p), "r"((u32)on)
                 : "memory");
}
__device__ __forceinline__ void load_vector_if(bool on, const u32* p, u32 (&v)[4]) {
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %5, 0; @q ld.relaxed" WARPMAP_SPACE ".v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : WARPMAP_AT(p), "r"((u32)on)
                 : "memory");
}
__device__ __forceinline__ void load_vector_if(bool on, const u32* p, u32 (&v)[2]) {
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %3, 0; @q ld.relaxed" WARPMAP_SPACE ".v2.u32 {%0, %1}, [%2]; }"
                 : "=r"(v[0]), "=r"(v[1])
                 : WARPMAP_AT(p), "r"((u32)on)
                 : "memory");
}
