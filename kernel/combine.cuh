// What Update does to a value that is there. combine.h, which the host writes for an operation (table/combine.go), says
//
//   number              the type of the values
//   merge(old, value)   the operation
//   WARPMAP_COMBINE     which it is: one of Combines
//
// and in a kernel of Update bits are those of a number: u32 or u64.
#pragma once
#include "warpmap.cuh"

enum Combines { BY_CODE, BY_ADD, BY_MIN, BY_MAX, BY_AND, BY_OR, BY_COUNT };

#include "combine.h"

typedef bits_of<sizeof(number)>::type number_bits;

__device__ __forceinline__ number number_of(number_bits b) {
    number x;
    memcpy(&x, &b, sizeof x);
    return x;
}
__device__ __forceinline__ number_bits bits_of_number(number x) {
    number_bits b;
    memcpy(&b, &x, sizeof b);
    return b;
}
__device__ __forceinline__ number_bits merged(number_bits old, number_bits value) {
    return bits_of_number(merge(number_of(old), number_of(value)));
}

// Values of one key may be merged with one another first, but where the operation is the user's code.
constexpr bool MERGES = WARPMAP_COMBINE != BY_CODE;
// What other lanes bring to a sum of values over lanes: for these operations a value twice is as good as once.
constexpr bool TWICE_AS_ONCE = WARPMAP_COMBINE == BY_MIN || WARPMAP_COMBINE == BY_MAX || WARPMAP_COMBINE == BY_AND || WARPMAP_COMBINE == BY_OR;

// merge_by_swaps makes of the value at p, last seen as `seen`, what now(old) says, however many lanes do the same at once. merge_into combines it
// with one that comes.
template <class Now> __device__ __forceinline__ void merge_by_swaps(number_bits* p, number_bits seen, Now now) {
    for (;;) {
        number_bits x = now(seen);
        if (x == seen && TWICE_AS_ONCE) return;
        number_bits was = cas(p, seen, x);
        if (was == seen) return;
        seen = was;
    }
}
__device__ __forceinline__ void merge_into(number_bits* p, number_bits seen, number_bits value) {
    if constexpr (WARPMAP_COMBINE == BY_ADD) add((number_atomic*)p, (number_atomic)number_of(value));
    else if constexpr (WARPMAP_COMBINE == BY_AND || WARPMAP_COMBINE == BY_OR) {
        if (merged(seen, value) == seen) return;
        if constexpr (WARPMAP_COMBINE == BY_AND) and_of(p, value);
        else or_of(p, value);
    } else merge_by_swaps(p, seen, [&](number_bits old) { return merged(old, value); });
}

// Counts stay at the largest there is. A launch counts no more than COUNT_HALF keys, so a count that was seen below COUNT_HALF in it, by whomever,
// cannot come to that by ones. count_into_place tells whether a count would have been larger.
constexpr number_bits MOST = (number_bits)~(number_bits)0, COUNT_HALF = MOST / 2;
__device__ __forceinline__ number_bits counted_with(number_bits old, number_bits more, bool& over) {
    over |= (number_bits)(old + more) < old;
    return (number_bits)(old + more) < old ? MOST : (number_bits)(old + more);
}
__device__ __forceinline__ bool count_into_place(number_bits* p, number_bits seen, number_bits more, bool ones) {
    if (ones && seen < COUNT_HALF) {
        add(p, more);
        return false;
    }
    for (;;) {
        bool over = false;
        number_bits x = counted_with(seen, more, over), was = x == seen ? seen : cas(p, seen, x);
        if (was == seen) return over;
        seen = was;
    }
}
// count_if_it_fits adds to a count, last seen as `seen`, and tells whether it did, or that would have been larger than there is.
__device__ __forceinline__ bool count_if_it_fits(number_bits* p, number_bits seen, number_bits more, bool ones) {
    if (ones) {
        add(p, more);
        return true;
    }
    for (;;) {
        bool over = false;
        number_bits x = counted_with(seen, more, over), was = over || x == seen ? seen : cas(p, seen, x);
        if (was == seen) return !over;
        seen = was;
    }
}
