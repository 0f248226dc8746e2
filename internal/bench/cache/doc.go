// Package cache measures package cache: how fast a full cache is, and what share of requests it answers, beside exact
// orders of all pairs by their last use and by how often they were used.
package cache

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures.
var Studies = []bench.Study{
	{Name: "cache/rates", About: "look-ups and inserts of a full cache, by policy and width", Run: rates,
		CUDA: 1 << 25, CPU: 1 << 16},
	{Name: "cache/hits", About: "hit rates of caches, beside exact LRU and LFU", Run: hits, CUDA: 1 << 20,
		CPU: 100_000},
}
