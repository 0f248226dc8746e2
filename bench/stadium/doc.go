// Package stadium holds the studies of the paper on Stadium Hashing.
package stadium

import "github.com/warpmap/warpmap/bench"

// Studies are the paper's figures.
var Studies = []bench.Study{
	{Name: "stadium/1", About: "Table I: lanes that are active in inserts, by ncu (NVIDIA only)", Run: table1, CUDA: widthPairs},
	{Name: "stadium/13", About: "lanes alone against lanes together, the fuller the table", Run: figure13, CUDA: thresholdPairs, CPU: 1 << 15},
	{Name: "stadium/14", About: "inserts beside look-ups in device memory, beside cuckoo hashing", Run: figure14, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/15", About: "inserts beside look-ups against one after the other", Run: figure15, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/16", About: "inserts beside look-ups in host memory, beside cuckoo hashing", Run: figure16, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/17", About: "inserts, look-ups and deletions in host memory by the number of pairs", Run: figure17, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/18a", About: "what the board and lanes together are good for in host memory", Run: figure18a, CUDA: farPairs, CPU: 1 << 15},
	{Name: "stadium/18b", About: "the same in device memory", Run: figure18b, CUDA: nearPairs, CPU: 1 << 15},
	{Name: "stadium/19ac", About: "inserts, look-ups and deletions by the widths of keys and values in device memory", Run: figure19ac, CUDA: widthPairs, CPU: 1 << 13},
	{Name: "stadium/19bd", About: "the same in host memory", Run: figure19bd, CUDA: widthPairs, CPU: 1 << 13},
}
