// Package gph holds the GPH paper's study, section 7, over all kinds of tables: pairs of 4+4 bytes, 200 million look-ups. A
// file is a figure, or a question beside the paper's; tune.go looks for the paper's parameters that suit a device best.
package gph

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the paper's figures, and what belongs to them.
var Studies = []bench.Study{
	{Name: "gph/2", About: "the model of look-ups: does time grow as instructions · cycles / occupancy? Needs a GPU, and ncu", Run: table2, CUDA: random, CPU: 1 << 18},
	{Name: "gph/9", About: "look-ups by the table's size, on four data sets", Run: figure9, CUDA: random, CPU: 1 << 18},
	{Name: "gph/10", About: "look-ups by the share of hits, on four data sets", Run: figure10, CUDA: random, CPU: 1 << 18},
	{Name: "gph/12", About: "a hash join by the size of the larger side: building and probing", Run: figure12, CUDA: 1 << 24, CPU: 1 << 17},
	{Name: "gph/13", About: "look-ups by lanes and slots, with and without what gph's consist of", Run: figure13, CUDA: random, CPU: 1 << 18},
	{Name: "gph/14", About: "inserts by the table's size, on four data sets", Run: figure14, CUDA: random, CPU: 1 << 18},
	{Name: "gph/15a", About: "the load factor that a table reaches, by slots and virtual buckets", Run: figure15a, CUDA: 1 << 24, CPU: 1 << 16},
	{Name: "gph/15b", About: "inserts by the bytes of a pair", Run: figure15b, CUDA: random, CPU: 1 << 18},
	{Name: "gph/15c", About: "inserts by skew", Run: figure15c, CUDA: random, CPU: 1 << 18},
	{Name: "gph/overwrite", About: "inserts of keys that are there", Run: overwrite, CUDA: random, CPU: 1 << 18},
	{Name: "gph/theorem", About: "relocations and refused inserts by load, beside section 6.2", Run: theorem, CUDA: 1 << 24, CPU: 1 << 16},
}
