// Which kernels of a program are compiled: all, or in a program with WARPMAP_APART those for which WARPMAP_WANTED_name is defined, as ~, 1 (see
// device.CompileApart). Of the others the compiler reads the text alone, for a template that nothing uses makes no code.
#pragma once
#include "layout.h"

#if defined(WARPMAP_APART)
#define WARPMAP_SECOND(a, b, ...) b
#if defined(WARPMAP_HOST) && defined(WARPMAP_REST) // all but those of which it is ~, 0
#define WARPMAP_SECOND_OF(...) WARPMAP_SECOND(__VA_ARGS__, 1, 1)
#else
#define WARPMAP_SECOND_OF(...) WARPMAP_SECOND(__VA_ARGS__, 0, 0)
#endif
#define WARPMAP_JOINED(a, b) a##b
#define WARPMAP_BRANCH(wanted) WARPMAP_JOINED(WARPMAP_BRANCH_, wanted)
#define WARPMAP_BRANCH_0(name, P, ...) template <int> __device__ void name##_left_out(const P& p)
#define WARPMAP_BRANCH_1(name, P, ...) __VA_ARGS__
#define WARPMAP_KERNEL_IF(name, P, ...) WARPMAP_BRANCH(WARPMAP_SECOND_OF(WARPMAP_WANTED_##name))(name, P, __VA_ARGS__)
#else
#define WARPMAP_KERNEL_IF(name, P, ...) __VA_ARGS__
#endif
