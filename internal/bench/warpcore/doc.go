// Package warpcore holds the WarpCore paper's study: pairs of 4+4 bytes in warpcore's tables, beside the other
// families' and CUDPP's.
package warpcore

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the paper's figures.
var Studies = []bench.Study{
	{Name: "warpcore/5", About: "inserts and look-ups by density and lanes per key", Run: figure5, CUDA: 1 << 28, CPU: 1 << 18},
	{Name: "warpcore/7", About: "keys with several values", Run: figure7, CUDA: 1 << 28, CPU: 1 << 16},
	{Name: "warpcore/8", About: "databases of genomes, by their size", Run: figure8, CUDA: 1 << 30, CPU: 1 << 22},
	{Name: "genome/rates", About: "rates of counting k-mers, and of building and querying databases of genomes", Run: figureRates, CUDA: 1 << 30, CPU: 1 << 20},
	{Name: "warpcore/density", About: "storage density of multimaps, by how bucket lists grow", Run: figureDensity, CUDA: 100_000_000, CPU: 1 << 16},
	{Name: "warpcore/filter", About: "false positives and speed of filters", Run: figureFilter, CUDA: 100_000_000, CPU: 1 << 16},
	{Name: "warpcore/counter", About: "counting and adding up, by how unevenly keys come", Run: figureCounter, CUDA: 100_000_000, CPU: 1 << 16},
}
