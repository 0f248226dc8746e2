// Cuckoo hashing as Alcantara et al. brought it to GPUs (SIGGRAPH Asia 2009) and CUDPP has it: the static table of the SlabHash
// paper's Figures 4 to 6. A thread brings a pair, and goes on with the one it puts out.
#include "layout.h"
#include "warpmap.cuh"

using namespace baseline;

// A slot is a pair, the key below; all ones while nothing is in it. Only the pair of these very bits is reserved.
constexpr u64 EMPTY = ~0ull;

// The stash's function stands behind those of the table.
constexpr int FUNCTIONS = 4, STASH = FUNCTIONS;

__device__ __forceinline__ u32 hash(const cuckooParams& p, int function, u32 key, u32 size) {
    return ((p.a[function] ^ key) + p.b[function]) % CUCKOO_PRIME % size;
}
__device__ __forceinline__ u64* slot_of(const cuckooParams& p, int function, u32 key) {
    return at<u64>(p.slots) + hash(p, function, key, (u32)p.size);
}
__device__ __forceinline__ u64* stash_of(const cuckooParams& p, u32 key) { return at<u64>(p.stash) + hash(p, STASH, key, CUCKOO_STASH); }

// A pair that is put out of a slot goes to that of the next function: the one behind the first that names the slot, so that
// it has been in the slots of all functions before.
__device__ __forceinline__ u64* next_slot(const cuckooParams& p, u64* slot, u32 key) {
    u64 *first = slot_of(p, 0, key), *next = first, *here = slot_of(p, FUNCTIONS - 1, key);
#pragma unroll
    for (int f = FUNCTIONS - 2; f >= 0; f--) {
        u64* before = f ? slot_of(p, f, key) : first;
        if (before == slot) next = here;
        here = before;
    }
    return next;
}

// Keys are distinct. counters: pairs that found no place, and pairs in the stash. With MIXED, other operations are passed over.
template <bool MIXED> __device__ __forceinline__ void build(const cuckooParams& p) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        if (MIXED && load_readonly(at<u8>(p.ops) + i) != CUCKOO_INSERT) continue;
        u64 pair = (u64)load_readonly(at<u32>(p.keys) + i) | (u64)load_readonly(at<u32>(p.values) + i) << 32;
        u64* slot = slot_of(p, 0, (u32)pair);
        for (u64 turn = 0; pair != EMPTY && turn <= p.evictions; turn++) {
            pair = exchange(slot, pair);
            if (pair != EMPTY) slot = next_slot(p, slot, (u32)pair);
        }
        if (pair == EMPTY) continue;
        bool in = cas(stash_of(p, (u32)pair), EMPTY, pair) == EMPTY;
        add(at<u32>(p.counters) + (in ? 1 : 0), 1u);
    }
}
WARPMAP_KERNEL(cuckoo_build, cuckooParams) { build<false>(p); }
WARPMAP_KERNEL(cuckoo_build_mixed, cuckooParams) { build<true>(p); }

// A slot that once held a pair holds one for ever. So at an empty slot only the stash is left: a pair of a later slot would
// have been in this one, but one in the stash went there before it had been in all.
template <bool MIXED> __device__ __forceinline__ void find(const cuckooParams& p) {
    bool stashed = MIXED ? load_relaxed(at<u32>(p.counters) + 1) > 0 : p.stashed > 0;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        if (MIXED && load_readonly(at<u8>(p.ops) + i) != CUCKOO_FIND) continue;
        u32 key = load_readonly(at<u32>(p.keys) + i);
        u64 pair = load_relaxed(slot_of(p, 0, key));
#pragma unroll
        for (int f = 1; f < FUNCTIONS; f++)
            if (pair != EMPTY && (u32)pair != key) pair = load_relaxed(slot_of(p, f, key));
        if ((pair == EMPTY || (u32)pair != key) && stashed) pair = load_relaxed(stash_of(p, key));
        bool found = pair != EMPTY && (u32)pair == key;
        at<u32>(p.values)[i] = found ? (u32)(pair >> 32) : 0;
        at<u8>(p.found)[i] = found;
    }
}
WARPMAP_KERNEL(cuckoo_find, cuckooParams) { find<false>(p); }
WARPMAP_KERNEL(cuckoo_find_mixed, cuckooParams) { find<true>(p); }
