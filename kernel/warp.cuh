// A tile is N neighbouring lanes of a warp, N = 1, 2, 4, 8, 16 or 32, that work on one thing together. Every lane of
// the tile must reach each of its operations; the tiles of a warp may go different ways. Bits and ranks are the tile's own: 0 … N-1.
#pragma once
#include "types.cuh"

//
// With TOGETHER, all tiles of the warp go the same way: every lane of the warp reaches each operation. Then one vote
// serves all tiles at once, where otherwise a GPU votes for one tile after the other.
template <int N, bool TOGETHER = false> struct tile {
    static_assert(N == 1 || N == 2 || N == 4 || N == 8 || N == 16 || N == 32, "a tile has 1, 2, 4, 8, 16 or 32 lanes");
    static constexpr int LANES = N;
    static constexpr bool together = TOGETHER;
    static constexpr u32 BITS = N == 32 ? ~0u : (1u << (N & 31)) - 1;

    __device__ __forceinline__ int rank() const { return thread_index() & (N - 1); }
    __device__ __forceinline__ u32 shift() const { return thread_index() & 31 & ~(N - 1); }
    // The lanes that must meet.
    __device__ __forceinline__ u32 mask() const { return TOGETHER || N == 32 ? ~0u : BITS << shift(); }

    __device__ __forceinline__ u32 ballot(bool x) const {
        if constexpr (N == 1) return x;
        else if constexpr (N == 32) return warp_ballot(~0u, x);
        else return (warp_ballot(mask(), x) >> shift()) & BITS;
    }
    // ballot in two steps, so that only a lane that wants its tile's bits picks them out: of_tile(votes(x)) is ballot(x).
    __device__ __forceinline__ u32 votes(bool x) const {
        if constexpr (N == 1) return x;
        else return warp_ballot(mask(), x);
    }
    __device__ __forceinline__ u32 of_tile(u32 votes) const {
        if constexpr (N == 1 || N == 32) return votes;
        else return votes >> shift() & BITS;
    }
    // ballot, and whether any lane that must meet said yes: one vote for both.
    __device__ __forceinline__ u32 ballot(bool x, bool& any_of_them) const {
        u32 votes = x;
        if constexpr (N > 1) votes = warp_ballot(mask(), x);
        any_of_them = votes != 0;
        if constexpr (N == 1 || N == 32) return votes;
        else return votes >> shift() & BITS;
    }
    __device__ __forceinline__ bool any(bool x) const { return ballot(x) != 0; }
    __device__ __forceinline__ bool all(bool x) const { return !any(!x); }
    // any, over all lanes that must meet: the condition of a loop that they leave together.
    __device__ __forceinline__ bool any_of_all(bool x) const {
        if constexpr (N == 1) return x;
        else return warp_ballot(mask(), x) != 0;
    }

    // shuffle gives the x of the lane with rank from.
    template <class T> __device__ __forceinline__ T shuffle(T x, int from) const {
        if constexpr (N == 1) return x;
        else if constexpr (sizeof(T) < 4) return (T)warp_shuffle(mask(), (u32)x, shift() + from);
        else return warp_shuffle(mask(), x, shift() + from);
    }
    __device__ __forceinline__ void sync() const {
        if constexpr (N > 1) warp_sync(mask());
    }
    __device__ __forceinline__ u32 min_of(u32 x) const {
#pragma unroll
        for (int d = N / 2; d > 0; d /= 2) {
            u32 y = shuffle(x, rank() ^ d);
            x = y < x ? y : x;
        }
        return x;
    }
    __device__ __forceinline__ u64 sum(u64 x) const {
#pragma unroll
        for (int d = N / 2; d > 0; d /= 2) x += shuffle(x, rank() ^ d);
        return x;
    }
    // scan gives the sum of x over the lanes before this one, and the sum over all.
    __device__ __forceinline__ u64 scan(u64 x, u64& all) const { return scan_of(x, all); }
    __device__ __forceinline__ u32 scan(u32 x, u32& all) const { return scan_of(x, all); }

  private:
    template <class T> __device__ __forceinline__ T scan_of(T x, T& all) const {
        T before = x;
#pragma unroll
        for (int d = 1; d < N; d *= 2) {
            T y = shuffle(before, rank() >= d ? rank() - d : rank());
            if (rank() >= d) before += y;
        }
        all = shuffle(before, N - 1);
        return before - x;
    }
};
