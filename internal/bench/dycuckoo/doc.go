// Package dycuckoo holds the study of the paper on DyCuckoo, Dynamic Hash Tables on GPUs (section 6): pairs of 4+4 bytes of its data
// sets (workload.DyCuckooSets), in static tables and in such as grow and shrink batch by batch. Beside DyCuckoo's tables, the other families, a table like MegaKV's
// (megakv.go), cuckoo hashing as CUDPP has it (bench/baseline), and on the host a map of Go's (gomap.go).
package dycuckoo

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the paper's figures, and two of choices that it describes and has no figure of.
var Studies = []bench.Study{
	{Name: "dycuckoo/5", About: "atomic operations by the number of conflicts", Run: figure5, CUDA: 1 << 26, CPU: 1 << 16},
	{Name: "dycuckoo/7", About: "insert and look-ups by the number of subtables", Run: figure7, CUDA: all, CPU: 200_000},
	{Name: "dycuckoo/8", About: "resizing one subtable beside rehashing all, with Table 4's buckets", Run: figure8, CUDA: all, CPU: 200_000},
	{Name: "dycuckoo/9", About: "insert and look-ups over the data sets", Run: figure9, CUDA: all, CPU: 200_000},
	{Name: "dycuckoo/10", About: "insert and look-ups by the filled factor", Run: figure10, CUDA: all, CPU: 200_000},
	{Name: "dycuckoo/11", About: "batches of inserts, look-ups and deletions by the share of deletions", Run: figure11, CUDA: all, CPU: 200_000,
		Takes: []string{"batches"}},
	{Name: "dycuckoo/12", About: "filled factor and memory after each batch", Run: figure12, CUDA: all, CPU: 200_000,
		Takes: []string{"batches"}},
	{Name: "dycuckoo/13", About: "the batches of dycuckoo/11 by their size", Run: figure13, CUDA: all, CPU: 200_000,
		Takes: []string{"batches"}},
	{Name: "dycuckoo/14", About: "the batches of dycuckoo/11 by α, below which a table shrinks", Run: figure14, CUDA: all, CPU: 200_000,
		Takes: []string{"batches"}},
	{Name: "dycuckoo/15", About: "the batches of dycuckoo/11 by β, above which it grows", Run: figure15, CUDA: all, CPU: 200_000,
		Takes: []string{"batches"}},
	{Name: "dycuckoo/voter", About: "inserts by voter coordination beside lanes on their own", Run: voterCoordination, CUDA: all, CPU: 200_000},
	{Name: "dycuckoo/balance", About: "Theorem 1's choice of a key's first subtable beside a home for each key", Run: balance, CUDA: all, CPU: 200_000},
}
