// Package cuckoo measures package cuckoo: how fast filters are from which keys can be taken out, and how often they
// err, beside Bloom filters of as much memory.
package cuckoo

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures.
var Studies = []bench.Study{
	{Name: "cuckoo/rates", About: "cuckoo filters at their load, by the width of tags, beside Bloom filters",
		Run: rates, CUDA: 239_000_000, CPU: 1 << 16}, // 512 MiB with tags of 16 bits
}
