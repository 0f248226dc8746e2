// Package library measures what programs get that use warpmap as a library: look-ups of single keys from many goroutines, and saving and loading.
package library

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures.
var Studies = []bench.Study{
	{Name: "library/batcher", About: "look-ups of one key each, from many goroutines", Run: batcher, CUDA: 1 << 24, CPU: 1 << 20},
	{Name: "library/save", About: "saving and loading tables of every kind and family", Run: save, CUDA: 1 << 26, CPU: 1 << 20},
}
