#pragma once
#include "warpmap.cuh"

// 0 to 3, or 4 for what is no such letter.
__device__ __forceinline__ u32 code_of(u8 letter) {
    u32 x = letter & 0xdf; // upper case
    bool is = x == 'A' || x == 'C' || x == 'G' || x == 'T' || x == 'U';
    return is ? (x >> 1 ^ x >> 2) & 3 : 4;
}
