package sketch

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

const (
	leastPrecision, mostPrecision = 4, 18
	defaultPrecision              = 14

	hashBits  = 64
	wordBytes = 8 // registers go in and out by words of so many
)

//go:embed hyperloglog.cu
var hyperLogLogCU string

// addParams are the parameters of the kernel hyperloglog_add.
type addParams struct {
	Keys, N   uint64
	Registers uint64 // address of 2^Precision bytes
	Seed      uint64
	Precision uint64
	Own       uint64 // 1: each block has registers of its own, and merges them at the end
}

// mergeParams are the parameters of the kernel hyperloglog_merge: the registers at From, in words, raise those of To.
type mergeParams struct {
	To, From, Words uint64
}

// hyperLogLogProgram is the kernels for keys of so many bytes.
func hyperLogLogProgram(keyBytes int) *device.Program {
	return &device.Program{
		Name:    "hyperloglog",
		Files:   []device.File{{Name: "hyperloglog.cu", Text: hyperLogLogCU}},
		Defines: []device.Define{{Name: "SKETCH_KEY_BYTES", Value: keyBytes}},
		Layouts: []any{addParams{}, mergeParams{}},
	}
}

const (
	// sumWords is how many words stand before the counters of a CountMin: how often keys came, all together.
	sumWords = 1
	// countLocks is how many locks a CountMin has whose updates are conservative.
	countLocks = 1 << 16
	// tileBytes is how much shared memory a block has for keys that it brings together: every GPU has it.
	tileBytes = 48 << 10
	// tileThreads is how many threads a block has that counts.
	tileThreads = 1024

	mostRows  = 32
	mostWidth = 1 << 31
)

// together is 1, but in a test that has equal keys of a tile meet in the sketch, as those of different blocks do.
var together = 1

//go:embed counting.cuh
var countingCUH string

//go:embed countmin.cu
var countMinCU string

// countMinParams are the parameters of the kernels count_min_own, count_min_tiles and count_min_counted.
type countMinParams struct {
	Keys, N uint64
	Counts  uint64 // address of N u64, how often each key came; 0: once
	Words   uint64 // address of the sketch: a sum, and rows of counters
	Locks   uint64 // address of locks, for conservative updates; else 0
	Own     uint64 // of the CPU device: address of counters of 32 bits for each block
	Width   uint64 // counters of a row
	Seed    uint64
}

// estimateParams are the parameters of the kernel count_min_estimate.
type estimateParams struct {
	Keys, N, Out uint64 // Out: address of N u64
	Words, Width uint64
	Seed         uint64
}

// countMinProgram is the kernels for keys of so many bytes and sketches of so many rows.
func countMinProgram(keyBytes, rows int) *device.Program {
	return &device.Program{
		Name:    "countmin",
		Files:   []device.File{{Name: "countmin.cu", Text: countMinCU}, {Name: "counting.cuh", Text: countingCUH}},
		Threads: tileThreads,
		Defines: []device.Define{{Name: "SKETCH_KEY_BYTES", Value: keyBytes}, {Name: "SKETCH_ROWS", Value: rows},
			{Name: "SKETCH_SUMS", Value: sumWords}, {Name: "SKETCH_LOCKS", Value: countLocks},
			{Name: "SKETCH_TILE_BYTES", Value: tileBytes}, {Name: "SKETCH_TOGETHER", Value: together}},
		Layouts: []any{countMinParams{}, estimateParams{}, mergeParams{}},
	}
}
