// SlabAlloc for kernels of your own: see kernel/slaballoc.cuh, and Allocator in allocator.go.
#pragma once
#include "slaballoc.cuh"

namespace slab {

using ::Resident;
using ::SlabAlloc;
// The name of no slab.
static constexpr u32 NONE = NO_SLAB;

} // namespace slab
