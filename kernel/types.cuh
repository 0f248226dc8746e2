// The integer types of every kernel. NVRTC brings no standard headers, so none are included.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#if defined(__CUDACC_RTC__) // has no such builtin
#define __builtin_offsetof(T, member) __INTADDR__(&((T*)0)->member)
#endif

#if !defined(__CUDACC__)
#define __device__
#define __host__
#if defined(WARPMAP_QUICK) // for tests: it compiles in two thirds of the time, and runs a tenth to a fifth slower
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __restrict__ __restrict
#define WARPMAP_HOST 1
#define WARPMAP_NOINLINE
#else
#define WARPMAP_NOINLINE __noinline__
#endif

// 16 bytes that one load, store or compare-and-swap moves whole.
struct alignas(16) u128 {
    u64 lo, hi;
};
__device__ __forceinline__ bool operator==(u128 a, u128 b) { return a.lo == b.lo && a.hi == b.hi; }
__device__ __forceinline__ bool operator!=(u128 a, u128 b) { return !(a == b); }

// 32 bytes, which are moved by halves.
struct alignas(16) u256 {
    u128 lo, hi;
};
__device__ __forceinline__ bool operator==(u256 a, u256 b) { return a.lo == b.lo && a.hi == b.hi; }

// bits_of<4>::type is u32, and so on: the unsigned integer that carries a key or value of that many bytes.
template <int BYTES> struct bits_of;
template <> struct bits_of<1> { typedef u8 type; };
template <> struct bits_of<2> { typedef u16 type; };
template <> struct bits_of<4> { typedef u32 type; };
template <> struct bits_of<8> { typedef u64 type; };
template <> struct bits_of<16> { typedef u128 type; };
template <> struct bits_of<32> { typedef u256 type; };
