// Package library measures what programs get that use warpmap as a library: look-ups of single keys from
// many goroutines, saving and loading, sketches, tables that grow and that age, and tables beside Go's maps.
package library

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures.
var Studies = []bench.Study{
	{Name: "library/aging", About: "tables that age: 1,000 slices replace their oldest keys", Run: aging, CUDA: 1 << 24, CPU: 1 << 16,
		Takes: []string{"batches"}},
	{Name: "library/batcher", About: "look-ups of one key each, from many goroutines", Run: batcher, CUDA: 1 << 24, CPU: 1 << 20},
	{Name: "library/churn", About: "full tables at MaxBytes, whose keys are replaced for long", Run: churn, CUDA: 1 << 24, CPU: 1 << 16,
		Takes: []string{"operations"}},
	{Name: "library/cpu", About: "the CPU device beside Go maps, by the wall clock", Run: cpu, CUDA: 1, CPU: 10_000_000},
	{Name: "library/gomap", About: "beside Go maps and maps for many goroutines, by size and batch", Run: goMaps, CUDA: 100_000_000, CPU: 10_000_000},
	{Name: "library/grow", About: "maps that grow from nothing, by the size of the batches", Run: grow, CUDA: 100_000_000, CPU: 10_000_000},
	{Name: "library/hot", About: "keys that go into sketches that count: CountMin and Top", Run: hot, CUDA: 1_000_000_000, CPU: 1 << 22},
	{Name: "library/save", About: "saving and loading tables of every kind and family", Run: save, CUDA: 1 << 26, CPU: 1 << 20},
	{Name: "library/sketch", About: "keys that go into a HyperLogLog", Run: sketches, CUDA: 1 << 28, CPU: 1 << 24},
}
