package cuckoo

import (
	_ "embed"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
)

var (
	//go:embed cuckoo.cuh
	cuckooCUH string
	//go:embed kernels.cu
	kernelsCU string
)

// config is what a filter's kernels are compiled for.
type config struct {
	keyBytes, tag, hash int
}

const (
	wordBytes = 8
	// load is the share of the slots that a filter is made for. Filters of all widths of tags take keys up to it, and
	// further, as a test holds: of 2 million keys with tags of 8 bits the first that finds no room comes beyond 0.978.
	load = 0.95
	// spare is how many buckets a filter has beyond that, so that one of a few buckets has room, too.
	spare = 2
	// windowBytes is the most that a window has: so little that one key in 20 of its keys more than of others is
	// unheard of, that both buckets of a key are in one page, and that a window would fit a block's shared memory; and
	// so much that the numbers of keys of windows differ by less than one in a hundred.
	windowBytes = 64 << 10
	// mostRate bounds the rate of false positives of a filter that is made larger.
	mostRate = 0.25
)

// tagWidths are the widths of tags, from the narrowest on.
var tagWidths = []int{8, 12, 16}

// words is how many words of 64 bits a bucket has: as few as give a bucket 7 slots or more, for the fewer slots are
// compared the fewer are false positives; and with the widest tags, which are for low rates anyway, a sector of a GPU's
// memory.
func (c config) words() int {
	switch c.tag {
	case 8:
		return 1
	case 12:
		return 2
	case 16:
		return 4
	}
	return 0
}

// marks is how many marks a bucket has: see Shape in cuckoo.cuh.
func (c config) marks() int {
	if c.tag == 16 {
		return 16
	}
	return 8
}

// marksIn is how many of them are in a word.
func (c config) marksIn(word int) int {
	switch {
	case c.tag == 12:
		return c.marks() / c.words()
	case word == c.words()-1:
		return c.marks()
	}
	return 0
}

// slotsIn is how many slots a word has, and slots how many a bucket has.
func (c config) slotsIn(word int) int { return (8*wordBytes - c.marksIn(word)) / c.tag }

func (c config) slots() (n int) {
	for i := range c.words() {
		n += c.slotsIn(i)
	}
	return n
}

// tags is how many tags there are: 1 to tags.
func (c config) tags() uint32 { return 1<<c.tag - 1 }

// mark gives the word and the bit of a tag's mark.
func (c config) mark(tag uint32) (word int, bit uint64) {
	m := int(tag) % c.marks()
	word = c.words() - 1
	if c.tag == 12 {
		word = m / c.marksIn(0)
	}
	return word, 1 << (8*wordBytes - c.marksIn(word) + m%c.marksIn(word))
}

// worstRate is the highest rate of false positives of a filter of that load which spends so many bits of its tags: if
// every look-up reads both buckets.
func (c config) worstRate(spent int) float64 {
	return 2 * load * float64(c.slots()) * float64(uint64(1)<<spent) / float64(c.tags())
}

// geometry is how large a filter is: so many windows, times 2^spent, of so many buckets each.
type geometry struct {
	windows int64
	buckets int64
	spent   int
}

// geometryOf gives windows of an even number of buckets each, for so many buckets in all or a few more; or a few fewer
// with atMost, but at least 2.
func (c config) geometryOf(buckets int64, atMost bool) geometry {
	most := int64(windowBytes / wordBytes / c.words())
	g := geometry{windows: max(1, (buckets+most-1)/most)}
	if atMost {
		g.buckets = buckets / g.windows &^ 1
	} else {
		g.buckets = ((buckets+g.windows-1)/g.windows + 1) &^ 1
	}
	g.buckets = max(2, g.buckets)
	return g
}

// all is how many windows there are, and words how many words their buckets have.
func (g geometry) all() int64 { return g.windows << g.spent }

func (c config) wordsOf(g geometry) int64 { return g.all() * g.buckets * int64(c.words()) }

// bytesOf is a filter's memory: its buckets, and behind them a version of 4 bytes to a window.
func (c config) bytesOf(g geometry) int64 { return wordBytes*c.wordsOf(g) + versionBytes*g.all() }

const versionBytes = 4

// header is the C++ struct that a kernel names a filter's type by.
func (c config) header() string {
	return fmt.Sprintf(`#pragma once
#include "types.cuh"
struct config {
    static constexpr int KEY_BYTES = %d, TAG = %d, WORDS = %d, HASH = %d;
    typedef bits_of<KEY_BYTES>::type key;
};
`, c.keyBytes, c.tag, c.words(), c.hash)
}

// Table is a filter as kernels take it, by value. The windows' buckets are at address Words, one window behind the
// other, and their versions at Versions.
type Table struct {
	Words    uint64
	Versions uint64
	Seed     uint64
	Windows  uint64 // of the hash; there are 2^Spent times as many
	Buckets  uint32 // of a window
	Spent    uint32 // so many of a tag's high bits tell the window, too
}

// batchParams are the parameters of insert, erase and contains. Rows.Added has the flags of erase and contains.
type batchParams struct {
	Table  Table
	Rows   frame.Placing
	Failed uint64 // of insert: counter of the rows that found no room
}

// partitionParams are the parameters of the kernels that bring keys in the order of the filter's regions.
type partitionParams struct {
	Table    Table
	Rows     frame.Partition
	ByWindow uint64 // 1: each window is a part, and Within of them, or in the first pass Rows.Parts, are a larger part
}

// stretchParams are the parameters of the kernels that work window by window: rows in the order of windows, which begin
// at Rows.Starts.
type stretchParams struct {
	Table   Table
	Rows    frame.Partition
	Refused uint64 // of insert_stretch: the bitmap of the positions that found no room
	Failed  uint64 // and how many they are
	Told    uint64 // of erase_stretch and tell_all: a byte for each row, whether it was in; or 0
}

// statsParams are the parameters of stats.
type statsParams struct {
	Table Table
	Sums  uint64 // address of Sums
}

// Sums are what stats adds up over all buckets.
type Sums struct {
	Tags, Marks uint64
	Pairs       uint64 // of a bucket that a key names, and a tag: those that Contains finds
}

// mergeParams are the parameters of merge.
type mergeParams struct {
	To, From Table
	Failed   uint64 // counter of the tags that found no room
}

// When batches are brought in order: see frame.Regions.
const (
	regionsFrom = 1.28 // L2 caches
	regionRows  = 1 << 18
)

const (
	// stretchKey: batches with a key for so many bytes of the filter go in window by window.
	stretchKey = 32
	// stretchThreads is how many threads a block has that works on a window.
	stretchThreads = 512
	// mostRows: the numbers of rows have 32 bits, and of those a step behind the last, too.
	mostRows = math.MaxUint32 - 8*stretchThreads
	// sharedBeside is dynamic shared memory beside a window: its version.
	sharedBeside = 16
	// waiting is how many rows of a window may wait whose first bucket is full: those that four rows of each thread can
	// add to those that are too few for all threads. Three blocks with windows of 64 KiB share a multiprocessor.
	waiting = 5 * stretchThreads
	// waitingBytes is the shared memory of those: their numbers, and how many they are in the two steps of an insert.
	waitingBytes = 4 * (waiting + 2)
)

const (
	// waves is how many times over a grid fills a GPU whose multiprocessors hold 8 blocks.
	waves = 16
	// each is how many keys a lane of contains has under way at once.
	each = 4
	// chain is how many tags move for one key at most, and looks how many buckets an insert looks at for room, along
	// chains of moves, before it gives up. Few inserts come that far. With 256 looks, one of some 20 million keys with
	// tags of 8 bits found no room at a load of 0.95, and 1 of 10,000 at 0.97.
	chain, looks = 4, 1024
	// tries is how often an insert begins again that others were in the way of.
	tries = 32
	// searches bounds how often a lane looks for a tag that others move.
	searches = 1 << 12
)

// program is the filter's kernels with the given translation unit.
func (c config) program(name, main string) *device.Program {
	return &device.Program{
		Name: name,
		Files: []device.File{{Name: name + ".cu", Text: main}, {Name: "cuckoo.cuh", Text: cuckooCUH},
			{Name: "config.h", Text: c.header()}},
		Defines: append(frame.PartitionDefines(), []device.Define{
			{Name: "CUCKOO_EACH", Value: each},
			{Name: "CUCKOO_CHAIN", Value: chain},
			{Name: "CUCKOO_LOOKS", Value: looks},
			{Name: "CUCKOO_TRIES", Value: tries},
			{Name: "CUCKOO_SEARCHES", Value: searches},
			{Name: "CUCKOO_WAITING", Value: waiting},
			{Name: "CUCKOO_BESIDE", Value: waitingBytes},
		}...),
		Layouts: []any{Table{}, batchParams{}, partitionParams{}, stretchParams{}, statsParams{}, Sums{},
			mergeParams{}},
	}
}

// other gives the second bucket of a tag that has this one: see Window.other in cuckoo.cuh.
func (g geometry) other(bucket, tag uint32) uint32 {
	n := uint32(g.buckets)
	sum := 2*uint32(uint64(kernel.Fmix32(tag))*uint64(n/2)>>32) + 1
	if sum < bucket {
		sum += n
	}
	return sum - bucket
}
