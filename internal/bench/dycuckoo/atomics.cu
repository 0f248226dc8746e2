// Atomic operations on words that so many threads in a row share, beside reads and writes of a word for each thread.
#include "layout.h"
#include "warpmap.cuh"

using namespace dycuckoo;

// What an operation gives is looked at, so that none is left out.
template <class Operation> __device__ __forceinline__ void each(const atomicsParams& p, Operation operation) {
    u32 seen = 0;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) seen |= operation(at<u32>(p.words) + i / p.conflicts);
    if (seen == 12345) at<u32>(p.words)[0] = seen;
}
WARPMAP_KERNEL(atomic_cas, atomicsParams) { each(p, [](u32* word) { return cas(word, 0u, 1u); }); }
WARPMAP_KERNEL(atomic_exch, atomicsParams) { each(p, [](u32* word) { return exchange(word, 1u); }); }
WARPMAP_KERNEL(coalesced, atomicsParams) {
    each(p, [](u32* word) {
        u32 x = load_relaxed(word);
        store_relaxed(word, x + 2);
        return x;
    });
}
