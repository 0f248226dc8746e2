// Takes one slab for each thread, and gives them back.
#include "alloc.cuh"
using namespace slab;
typedef SlabAlloc<SLAB_LIGHT> Memory;

WARPMAP_KERNEL(allocate_all, slabhash::allocateParams) {
    Resident r;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.names)[i] = Memory::allocate(p.alloc, r);
}
WARPMAP_KERNEL(release_all, slabhash::allocateParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        if (at<u32>(p.names)[i] != NONE) Memory::release(p.alloc, at<u32>(p.names)[i]);
}
