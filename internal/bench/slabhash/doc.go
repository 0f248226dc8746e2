// Package slabhash holds the SlabHash paper's study, section VI: pairs of 4+4 bytes in slab's tables, beside the baselines
// that the paper has: cuckoo hashing (bench/baseline), lists without locks (misra.go) and CUDA's malloc (malloc.go).
package slabhash

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the paper's figures, and what belongs to them.
var Studies = []bench.Study{
	{Name: "slab/4", About: "build and look-ups by memory utilization, beside cuckoo hashing, as slab/5 and slab/6", Run: figure4, CUDA: 1 << 22, CPU: 1 << 16},
	{Name: "slab/5", About: "build and look-ups by the number of pairs", Run: figure5, CUDA: 1 << 27, CPU: 1 << 18},
	{Name: "slab/6", About: "batch after batch, inserted or rebuilt from scratch", Run: figure6, CUDA: 1 << 21, CPU: 1 << 14},
	{Name: "slab/7a", About: "mixed batches by memory utilization", Run: figure7a, CUDA: 1 << 22, CPU: 1 << 15},
	{Name: "slab/7b", About: "mixed batches by the number of buckets, beside lists without locks", Run: figure7b, CUDA: 1_000_000, CPU: 1 << 14},
	{Name: "slab/alloc", About: "the allocator on its own, beside malloc", Run: allocators, CUDA: 1_000_000, CPU: 1 << 16},
	{Name: "slab/churn", About: "mixed batches, one after the other: does a table last?", Run: churning, CUDA: 1 << 22, CPU: 1 << 14,
		Takes: []string{"batches"}},
}
