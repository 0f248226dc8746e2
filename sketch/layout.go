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

const (
	binBits = 11 // digits of counts
	bins    = 1 << binBits
	// keptShare: of its rows in shared memory, a block keeps the keys of one in so many.
	keptShare = 3
	// topThreads is how many threads a block has on a GPU that counts in a summary.
	topThreads = 512

	selecting, found = 1, 2 // states of a topHead

	mostCounters = 1 << 24
)

//go:embed top.cu
var topCU string

// topHead is what a Top has beside its table.
type topHead struct {
	Added uint64 // all that was added
	Less  uint64 // what has been taken from counts
	Used  uint64 // keys in the table
	Lost  uint64 // what found no slot: 0

	// Of an export:
	State  uint64 // 0: nothing is to be done
	Rank   uint64 // of the count that is searched for, among those that begin with the digits so far
	Cut    uint64 // the digits so far; then that count
	Listed uint64 // keys that count more
	Ties   uint64 // keys that count the same
}

const (
	headWords = 9
	slotTaken = 2 // see Tag in top.cu
)

// topTable is where a Top is.
type topTable struct {
	Head, Slots, Count uint64 // addresses of a topHead and of slots, and how many slots there are
	Seed               uint64
}

// topAddParams are the parameters of the kernel top_add.
type topAddParams struct {
	Table   topTable
	Keys, N uint64
	Share   uint64 // keys of a block
	Most    uint64 // keys of a block that go to the table, at most
	All     uint64 // 1: all keys go to the table
}

// topPutParams are the parameters of the kernel top_put.
type topPutParams struct {
	Table           topTable
	Keys, Counts, N uint64
	Listed          uint64 // 1: those that an export has listed
	Sum             uint64 // 1: what is counted is added
	Added, Less     uint64 // of another sketch
}

// topExportParams are the parameters of the kernels top_begin, top_count, top_pick, top_list and top_clear.
type topExportParams struct {
	Table        topTable
	Bins         uint64 // address of u64
	When         uint64 // it is done where the table has more keys
	Rank         uint64 // the first key, by counts, that is not listed, but for ties
	Shift        uint64 // of the digit
	Keys, Counts uint64 // where the list is
	Limit        uint64 // its length
	Whole, Ties  uint64
}

// slotBytes is how many bytes a slot of a Top has.
func slotBytes(keyBytes int) int64 {
	switch {
	case keyBytes <= 4:
		return 16
	case keyBytes == 8:
		return 24
	}
	return int64(keyBytes) + 16
}

// topProgram is the kernels for keys of so many bytes, for blocks with so much shared memory.
func topProgram(keyBytes int, shared int64) *device.Program {
	return &device.Program{
		Name:    "top",
		Files:   []device.File{{Name: "top.cu", Text: topCU}, {Name: "counting.cuh", Text: countingCUH}},
		Threads: topThreads,
		Defines: []device.Define{{Name: "SKETCH_KEY_BYTES", Value: keyBytes}, {Name: "SKETCH_TOP_BYTES", Value: shared},
			{Name: "SKETCH_SLOT_BYTES", Value: slotBytes(keyBytes)}, {Name: "SKETCH_BIN_BITS", Value: binBits},
			{Name: "SKETCH_BINS", Value: bins}, {Name: "SKETCH_KEEP", Value: keptShare},
			{Name: "SKETCH_SELECTING", Value: selecting}, {Name: "SKETCH_FOUND", Value: found}},
		Layouts: []any{topHead{}, topTable{}, topAddParams{}, topPutParams{}, topExportParams{}},
	}
}

// topRows is how many rows a block has in shared memory, as in top.cu.
func topRows(keyBytes int, shared int64) int64 { return (shared - 4*bins - 64) / int64(keyBytes+12) }
