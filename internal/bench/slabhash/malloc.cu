// alloc.cu with what CUDA has for the purpose: on the CPU device, the C library's.
#include "layout.h"
#if !defined(__CUDACC__)
#include <stdlib.h>
#endif
#include "warpmap.cuh"

WARPMAP_KERNEL(malloc_all, slabhash::mallocParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u64>(p.blocks)[i] = (u64)malloc(p.bytes);
}
WARPMAP_KERNEL(free_all, slabhash::mallocParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) free(at<void>(at<u64>(p.blocks)[i]));
}
