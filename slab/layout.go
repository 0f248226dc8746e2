package slab

import (
	"fmt"
	"math"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Numbers of the layout, here and nowhere else.
const (
	slabBytes = frame.SlabBytes
	// lastAttempt is the number of the attempt at refused positions that takes no new slabs; see core.take.
	lastAttempt = 16
)

// config is what a table's kernels are compiled for.
type config struct {
	keyBytes, valueBytes int // valueBytes 0: a set
	packed               bool
	light                bool
	multi                bool
	hash                 int
}

// wordBytes is the width of what a look-up reads of a slot: the pair, or where they are apart, the key.
func (c config) wordBytes() int {
	switch {
	case c.valueBytes == 0 || !c.packed:
		return c.keyBytes
	case c.keyBytes+c.valueBytes <= 8:
		return 8
	}
	return 16
}

// canPack tells whether a compare-and-swap writes a pair whole.
func (c config) canPack(cas128 bool) bool {
	return c.valueBytes == 0 || c.keyBytes+c.valueBytes <= 8 || c.valueBytes <= 8 && cas128
}

// slots is how many pairs a slab holds (the paper's M): the link takes the place of one word behind them.
func (c config) slots() int {
	if c.valueBytes == 0 || c.packed {
		return slabBytes/c.wordBytes() - 1
	}
	n := slabBytes / (c.keyBytes + c.valueBytes)
	for c.valuesAt(n)+n*c.valueBytes > slabBytes {
		n--
	}
	return n
}

// valuesAt is where the values begin in a slab of n pairs whose keys and values are apart.
func (c config) valuesAt(n int) int {
	v := max(c.valueBytes, 4)
	return ((n+1)*c.keyBytes + v - 1) / v * v
}

func (c config) linkOffset() int { return c.slots() * c.wordBytes() }

// header is the C++ struct that a kernel names a table's type by.
func (c config) header(name string) string {
	value := c.valueBytes
	if value == 0 {
		value = 4 // never loaded or stored
	}
	return fmt.Sprintf(`#pragma once
#include "keys.cuh"
struct %s : Marks<%d, %d> {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, VALUES_OFFSET = %d, LINK_OFFSET = %d, HASH = %d;
    static constexpr u32 SLOTS = %d;
    static constexpr bool PACKED = %t, SOA = true, LIGHT = %t;
    typedef bits_of<%d>::type value;
};
`, name, c.keyBytes, kernel.Reserved, c.keyBytes, c.valueBytes, c.wordBytes(), c.wordBytes()/2, c.valuesAt(c.slots()), c.linkOffset(), c.hash, c.slots(),
		c.packed || c.valueBytes == 0, c.light, value)
}

// Alloc is SlabAlloc's memory as kernels take it, by value.
type Alloc = frame.SlabMemory

// Table is a table as kernels take it, by value. It has Buckets base slabs, and one more for the reserved keys.
type Table struct {
	Base     uint64 // address
	Buckets  uint64
	Seed     uint64
	Counters uint64 // address of Counters
	// Tombstones is 1 if inserts are to look for tombstones. If it is 0, they take only empty slots.
	Tombstones uint64
	Alloc      Alloc
}

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Inserted uint64 // slots that went from empty or tombstone to a pair
	Reused   uint64 // of these, from tombstone
	Erased   uint64 // slots that went to tombstone
	Flushed  uint64 // tombstones that went back to empty
	Linked   uint64 // slabs that became part of a chain
	Freed    uint64 // slabs that left one
	Changes  uint64 // of resident blocks, beyond each lane's first
	Failed   uint64 // positions that found no room
	Exported uint64
}

func (k *Counters) live() int64       { return int64(k.Inserted - k.Erased) }
func (k *Counters) tombstones() int64 { return int64(k.Erased - k.Reused - k.Flushed) }
func (k *Counters) slabs() int64      { return int64(k.Linked - k.Freed) }

// insertParams are the parameters of insert and insert_new, and of the kernels of update.cu and choose.cu.
type insertParams struct {
	Table   Table
	Rows    frame.Placing
	When    uint64 // of insert_if: bytes
	NoSlabs uint64 // 1: no new slabs are taken
	// Left, of insert_left, is the address of two u32: how many rows at the front of Rows were left over that go on
	// behind their base slabs, and how many at the end that begin anew.
	Left uint64
}

// partitionParams are the parameters of the kernels that bring pairs in the order of the table's regions.
type partitionParams struct {
	Table Table
	Rows  frame.Partition
	// Inverse, if not 0, is 2⁶⁴ / n + 1: then parts are stretches of n buckets, exactly.
	Inverse uint64
}

// stretchParams are the parameters of insert_stretch: Rows in the order of stretches, with Starts.
type stretchParams struct {
	Table                      Table
	Rows                       frame.Partition
	Buckets                    uint64 // of a stretch
	Empty                      uint64 // no pair is in, and none ever was
	LeftKeys, LeftValues, Left uint64 // where rows go that are left over: see insertParams
}

const (
	stretchBytes   = 32 << 10              // of shared memory, of a stretch
	stretchLarger  = 48 << 10              // the same, if so there are few enough stretches to be counted in one pass
	stretchListed  = 1 << 10               // rows that a block lists whose base slabs are full
	stretchBeside  = 4*stretchListed + 256 // of shared memory: the list, and counters
	stretchThreads = 256                   // of a block
)

// stretchBucketBytes is the shared memory of a bucket: its base slab, and its mark.
const stretchBucketBytes = slabBytes + 4

// When batches are brought in order: see frame.Regions. The size is that of the base slabs.
const (
	regionsFrom = 3.84 // L2 caches
	regionRows  = 1 << 17
)

// mixedParams are the parameters of mixed. Values, Results and Status may be 0.
type mixedParams struct {
	Table   Table
	Ops     uint64 // bytes
	Keys    uint64
	Values  uint64
	Results uint64
	Status  uint64 // bytes
	Refused uint64 // as in frame.Placing
	N       uint64
	Attempt uint64
	// Clock, where not 0, is the address of a counter that stamps begin and end of each operation, in Calls and Returns.
	Clock, Calls, Returns uint64
}

// findParams are the parameters of find and erase, and of find_if. Values and Found may be 0.
type findParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Found  uint64
	N      uint64
	When   uint64 // of find_if: bytes
}

// findAllParams are the parameters of count_all and the other kernels of FindAll.
type findAllParams struct {
	Table Table
	Rows  frame.FindAll
}

// slabsParams are the parameters of the kernels that walk all chains.
type slabsParams struct {
	Table     Table
	Target    Table  // of rehash
	First     uint64 // of export: it goes over Buckets of them from First on
	Buckets   uint64
	Keys      uint64
	Values    uint64
	Histogram uint64 // of chain_lengths: histogramBins counters, the sum, and the longest chain
	Limit     uint64
	// Share of flush_buckets: it flushes only if more than a few slots hold deleted pairs, and either one in so many does,
	// or the pool has lent more than Most slabs; 0: always. Flushed and Freed are those of the counters, which it changes itself.
	Share, Most, Flushed, Freed uint64
}

// forEachParams are the parameters of for_each and for_all.
type forEachParams struct {
	Table Table
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64 // the bits of the arguments, by name
}

// histogramBins counts pairs found in slab 1, 2, … of their chain and, in the last, all that are further.
const histogramBins = len(table.Stats{}.Probes)

func layouts() []any {
	return []any{Alloc{}, Table{}, Counters{}, insertParams{}, partitionParams{}, stretchParams{}, mixedParams{},
		findParams{}, findAllParams{}, slabsParams{}}
}

func defines() []device.Define {
	return slices.Concat(frame.PartitionDefines(), frame.StatusDefines(), frame.SlabDefines(), []device.Define{
		{Name: "SLAB_LAST_ATTEMPT", Value: lastAttempt},
		{Name: "SLAB_HISTOGRAM_BINS", Value: histogramBins},
		{Name: "SLAB_FEW_TOMBSTONES", Value: fewTombstones},
		{Name: "SLAB_STRETCH_LISTED", Value: stretchListed},
		{Name: "SLAB_STRETCH_BESIDE", Value: stretchBeside},
	})
}

// home is where a key belongs: the Go twin of slab::Home.
func (c config) home(t *Table, key uint64) (bucket, stored uint64) {
	stored, side := kernel.MarksOf(c.keyBytes).Alias(key)
	if side {
		return t.Buckets, stored
	}
	return kernel.Reduce(kernel.Hash64(c.hash, stored, t.Seed), t.Buckets), stored
}

// overflow is how many slabs beyond the base slabs so many pairs are expected to take, if their hashes are as good as
// random: chains are as long as a Poisson distribution says.
func (c config) overflow(pairs, buckets int64) int64 {
	mean, m := float64(pairs)/float64(buckets), c.slots()
	if mean > 50*float64(m) {
		return int64(mean / float64(m) * float64(buckets))
	}
	// Slab number j is there if more than j·m pairs are in the bucket.
	logP, below, sum := -mean, 0.0, 0.0
	for x, j := 0, 1; j < 64; j++ {
		for ; x <= j*m; x++ {
			below += math.Exp(logP)
			logP += math.Log(mean) - math.Log(float64(x+1))
		}
		more := max(0, 1-below)
		sum += more
		if more < 1e-9 {
			break
		}
	}
	return int64(math.Ceil(sum * float64(buckets)))
}

// spilled is how many of so many pairs are expected to find their base slabs full, if hashes are as good as random.
func (c config) spilled(pairs, buckets int64) int64 {
	mean, m := float64(pairs)/float64(buckets), c.slots()
	if pairs == 0 || mean > 50*float64(m) {
		return max(0, pairs-buckets*int64(m))
	}
	logP, room := -mean, 0.0 // room is the mean number of free slots
	for x := range m {
		room += float64(m-x) * math.Exp(logP)
		logP += math.Log(mean) - math.Log(float64(x+1))
	}
	return int64(math.Ceil((mean - float64(m) + room) * float64(buckets)))
}
