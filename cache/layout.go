package cache

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// config is what a cache's kernels are compiled for. Every layout number follows from it, here and nowhere else.
type config struct {
	keyBytes, valueBytes int
	policy               Policy
	hash                 int
	expires              bool // each slot has a time at which its pair is no longer there
	inHost               bool // values, which lie apart, are in host memory that the device maps
	tile                 int  // rows of which one comes for all that have its key; 0: each comes for itself
	marks                bool // there is a mark a slot
}

const (
	// ways is how many slots a bucket has. By simulation, caches of 1% and of 10% of the keys of a Zipf distribution of
	// 0.99 have hit rates 0.2 to 0.4 points below one LRU or LFU order of all pairs with 12, 0.5 to 0.9 with 8, and 0.2
	// to 0.3 with 16.
	ways = 12
	// headBytes is what a bucket begins with: a version, a tag a slot, and a score a slot. That is one read of memory.
	headBytes    = 64
	tagsOffset   = 4
	scoresOffset = tagsOffset + ways
	// bucketAlign keeps a bucket's head within one line.
	bucketAlign = 64
	// tileRows is of how many rows one comes for all that have its key: they and their counts fit 48 KB of shared
	// memory, with keys of 8 bytes.
	tileRows = 2048
	// mostCovered is how many rows are weighed at a time: enough to fill a GPU.
	mostCovered = 4 << 20
	weightBytes = 2
	// mostCount is where the number of uses ends: each lane of a GPU may add one before it sees that.
	mostCount = 1 << 31
)

const (
	// putShare: batches of a row for so many slots, or more, go in stretch by stretch: all buckets are read and written.
	// leastPut is the least rows of them.
	putShare, leastPut = 8, 1 << 19
	// stretchBytes is what the buckets of a stretch take at most, in a block's shared memory. Beside them is a tile of so
	// many rows, with stretchThreads threads.
	stretchBytes, stretchTile, stretchThreads = 32 << 10, 1024, 256
	// marksShare: a look-up of a key for so many slots, or more, marks the pairs that it finds. Then all marks are gone
	// through, and the scores are written in the order of buckets.
	marksShare, leastMarked = 16, 1 << 18
	// marksCache: the marks take one in so many bytes of the L2 cache at most.
	marksCache = 4
)

// paired tells whether a pair is one word of its bucket. Otherwise the bucket has the key, and the value lies apart.
func (c config) paired() bool { return c.valueBytes <= 8 }

// slotBytes is what a bucket has of a slot behind its head: a word of 4, 8 or 16 bytes.
func (c config) slotBytes() int {
	n := c.keyBytes
	if c.paired() {
		n += c.valueBytes
	}
	if n == 12 {
		return 16
	}
	return n
}

// expiryOffset is where a bucket has the times at which its pairs end, 4 bytes each.
func (c config) expiryOffset() int { return headBytes + ways*c.slotBytes() }

func (c config) bucketBytes() int64 {
	n := int64(c.expiryOffset())
	if c.expires {
		n += 4 * ways
	}
	return (n + bucketAlign - 1) / bucketAlign * bucketAlign
}

// apartBytes is what a bucket has of values elsewhere.
func (c config) apartBytes() int64 {
	if c.paired() {
		return 0
	}
	return int64(ways * c.valueBytes)
}

// hostBytes is the host memory of so many buckets' values.
func (c config) hostBytes(buckets int64) int64 {
	if !c.inHost {
		return 0
	}
	return buckets * c.apartBytes()
}

// bytes is the device memory of so many buckets, with their values unless those are in host memory, the weights of rows,
// and marks.
func (c config) bytes(buckets int64) int64 {
	_, marks := c.besideAt(buckets)
	return marks + c.marksBytes(buckets)
}

// besideAt is where the weights begin, behind buckets and values, and where the marks do.
func (c config) besideAt(buckets int64) (weights, marks int64) {
	weights = c.pairBytes(buckets)
	marks = weights
	if covered := c.covered(buckets); covered > 0 {
		weights = frame.Align(weights)
		marks = weights + covered*weightBytes
	}
	if c.marks {
		marks = frame.Align(marks)
	}
	return weights, marks
}

// marksBytes is what the marks of so many buckets take: 4 bytes for two buckets.
func (c config) marksBytes(buckets int64) int64 {
	if !c.marks {
		return 0
	}
	return (buckets + 1) / 2 * 4
}

// pairBytes is what bytes has of the buckets and their values alone.
func (c config) pairBytes(buckets int64) int64 {
	if c.paired() || c.inHost {
		return buckets * c.bucketBytes()
	}
	return frame.Align(buckets*c.bucketBytes()) + buckets*c.apartBytes()
}

// covered is of how many rows at a time a cache of so many buckets has the weights: a row to 8 slots, so weights take a
// hundredth of its memory at most.
func (c config) covered(buckets int64) int64 {
	if c.tile == 0 {
		return 0
	}
	return min(mostCovered, buckets*ways/8) / int64(c.tile) * int64(c.tile)
}

// stretch is how many buckets a block takes, as a power of two.
func (c config) stretch() (shift int) {
	for int64(2)<<shift*c.bucketBytes() <= stretchBytes {
		shift++
	}
	return shift
}

// stageBytes is the shared memory of the rows of a tile: their keys, twice as many places, and their counts.
func (c config) stageBytes() int { return stretchTile * (c.keyBytes + 2*4 + 4) }

// pieceBytes is how much of a value a lane copies at once: users' values have no better alignment.
func (c config) pieceBytes() int {
	for _, n := range []int{16, 8} {
		if c.valueBytes%n == 0 {
			return n
		}
	}
	return 4
}

// header is the C++ struct that a kernel names a cache's type by.
func (c config) header() string {
	value := "struct value {}"
	if c.paired() && c.valueBytes > 0 {
		value = fmt.Sprintf("typedef bits_of<%d>::type value", c.valueBytes)
	}
	return fmt.Sprintf(`#pragma once
#include "types.cuh"
struct config {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, BUCKET_BYTES = %d, HASH = %d, POLICY = %d,
    	EXPIRY = %d;
    static constexpr bool PAIRED = %t, EXPIRES = %t;
    typedef bits_of<KEY_BYTES>::type key;
    typedef bits_of<SLOT_BYTES>::type word;
    typedef bits_of<%d>::type piece;
    %s;
};
`, c.keyBytes, c.valueBytes, c.slotBytes(), c.bucketBytes(), c.hash, int(c.policy), c.expiryOffset(), c.paired(), c.expires, c.pieceBytes(), value)
}

// where is the bucket of a key, and its tag.
func (c config) where(key uint64, t *Table) (bucket uint64, tag byte) {
	h := kernel.Hash64(c.hash, key, t.Seed)
	return kernel.Reduce(h, t.Count), byte(1 + h&0xffff*255>>16)
}

// Table is a cache as kernels take it, by value. Addresses are in bytes.
type Table struct {
	Buckets  uint64
	Values   uint64 // of all buckets, where they lie apart
	Counters uint64
	Count    uint64 // of buckets
	Seed     uint64
}

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Hits     uint64 // look-ups that found their key
	Misses   uint64
	Added    uint64 // pairs that took an empty slot
	Updated  uint64 // pairs whose key was there
	Evicted  uint64 // pairs that took the slot of another
	Refused  uint64 // pairs worth less than all of their bucket
	Erased   uint64
	Renewed  uint64 // pairs that took the slot of one that had ended
	Swept    uint64 // pairs that had ended, and were removed
	Exported uint64 // of the export under way
	Youth    uint64 // the largest 2³²-1 - score of the measuring under way
}

func (k *Counters) live() int64 { return int64(k.Added - k.Erased - k.Swept) }

// findParams are the parameters of find and erase. Values and Found may be 0.
type findParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Found  uint64
	N      uint64
	Now    uint64
	Time   uint64 // in ticks: see ticksPerSecond
	Quiet  uint64 // 1: a look-up leaves the scores as they are
	Marks  uint64 // u32, a bit a slot, 16 a bucket: a look-up sets those of pairs that it finds; 0: it writes the scores
}

// putParams are the parameters of put. What goes out is written to the Out addresses, which may be 0.
type putParams struct {
	Table     Table
	Keys      uint64
	Values    uint64
	Scores    uint64 // u32; may be 0
	N         uint64
	Now       uint64
	Time      uint64 // in ticks
	Life      uint64 // of each pair, in ticks
	Lives     uint64 // u32, in ticks, where not 0 in place of Life; may be 0
	Weights   uint64 // u16: see coverParams; may be 0
	OutCount  uint64
	OutKeys   uint64
	OutValues uint64
	OutScores uint64
}

// stretchParams are the parameters of the kernels that bring rows in the order of stretches, and of the one that puts them:
// what Put says of all, and Rows of the rows. A stretch is 2^Shift buckets.
type stretchParams struct {
	Put   putParams
	Rows  frame.Partition
	Shift uint64
	Each  uint64 // 1: each row comes for itself, also where others have its key
}

// coverParams are the parameters of cover. A row's weight is how many rows it comes for.
type coverParams struct {
	Keys    uint64
	Weights uint64
	N       uint64
	Seed    uint64
}

// scoreParams are the parameters of score. Values may be 0, and Scores, which the keys that are in get themselves then.
type scoreParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Scores uint64
	N      uint64
	Now    uint64
	Time   uint64 // in ticks
}

// mixedParams are the parameters of mixed: see frame.MixedRows. Ops may be 0: then Op is done to all keys. Results,
// Status and Added may be 0.
type mixedParams struct {
	Table   Table
	Ops     uint64
	Op      uint64
	Keys    uint64
	Values  uint64
	Results uint64
	Status  uint64
	Added   uint64
	N       uint64
	Now     uint64
	Time    uint64 // in ticks
	Life    uint64
	Give    uint64 // 1: an insert-new gives the value that its key then has
	// Of tests, else 0: where each operation notes when it began and ended, and what key it sent out.
	Clock    uint64
	Calls    uint64
	Returns  uint64
	OutKeys  uint64
	OutFlags uint64
}

// slotsParams are the parameters of kernels that go over slots: buckets First … First+N-1. Export writes at most Limit
// pairs with a score of Least or more.
type slotsParams struct {
	Table  Table
	First  uint64
	N      uint64
	Keys   uint64
	Values uint64
	Scores uint64
	// Records, where it is not 0, is where export writes values, each with its score and the ticks that it has left.
	Records uint64
	Limit   uint64
	Least   uint64
	Time    uint64 // in ticks
	Less    uint64 // what lower takes from each score
	Shift   uint64 // how often lower halves each
}

func defines() []device.Define {
	return append(frame.StatusDefines(), []device.Define{
		{Name: "CACHE_FIND", Value: uint8(table.OpFind)}, {Name: "CACHE_INSERT", Value: uint8(table.OpInsert)},
		{Name: "CACHE_INSERT_NEW", Value: uint8(table.OpInsertNew)}, {Name: "CACHE_DELETE",
			Value: uint8(table.OpDelete)},
		{Name: "CACHE_WAYS", Value: ways}, {Name: "CACHE_HEAD", Value: headBytes},
		{Name: "CACHE_TAGS", Value: tagsOffset}, {Name: "CACHE_SCORES", Value: scoresOffset},
		{Name: "CACHE_MOST_COUNT", Value: fmt.Sprintf("%du", uint32(mostCount))},
		{Name: "CACHE_LRU", Value: int(LRU)}, {Name: "CACHE_LFU", Value: int(LFU)},
		{Name: "CACHE_AGED", Value: int(Aged)}, {Name: "CACHE_SCORED", Value: int(Scored)},
	}...)
}

func layouts() []any {
	return []any{Table{}, Counters{}, findParams{}, putParams{}, coverParams{}, mixedParams{}, slotsParams{},
		scoreParams{}}
}

// widths tells the widths of keys and values.
func widths[K, V any]() (c config, err error) {
	if c.keyBytes, err = frame.KeyBytes[K](); err != nil {
		return c, err
	}
	var none V
	if any(none) == any(struct{}{}) {
		return c, nil
	}
	c.valueBytes, err = frame.WidthBetween[V]("value of a cache", 4, 4096, 4)
	return c, err
}
