package gph

import (
	"fmt"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
)

// config is what a table's kernels are compiled for. Every layout number follows from it, here and nowhere else.
type config struct {
	keyBytes, valueBytes int
	bucket               int  // slots of a bucket, the paper's M
	virtual              int  // virtual buckets of a cell, the paper's R
	cellBytes            int  // of a cell: mapping and offset in one number
	packed               bool // a pair is one word
	hash                 int
}

// slotBytes is the distance of slots.
func (c config) slotBytes() int {
	switch n := c.keyBytes + c.valueBytes; {
	case n <= 4:
		return 4
	case n <= 8:
		return 8
	case c.valueBytes <= 8:
		return 16
	}
	return 32
}

func (c config) bucketBytes() int64 { return int64(c.bucket * c.slotBytes()) }

// mappings is how many values Φ a cell can have.
func (c config) mappings() int { return 1 << (8 * c.cellBytes) / c.virtual }

func (c config) check() error {
	power := func(n, from, to int) bool { return n >= from && n <= to && n&(n-1) == 0 }
	switch {
	case !power(c.bucket, 4, 32):
		return fmt.Errorf("gph: a bucket of %d slots (want 4, 8, 16 or 32)", c.bucket)
	case !power(c.virtual, 2, 32):
		return fmt.Errorf("gph: %d virtual buckets in a cell (want 2, 4, 8, 16 or 32)", c.virtual)
	case c.cellBytes != 1 && c.cellBytes != 2:
		return fmt.Errorf("gph: cells of %d bytes (want 1 or 2)", c.cellBytes)
	}
	return nil
}

// header is the C++ struct that a kernel names a table's type by.
func (c config) header(name string) string {
	return fmt.Sprintf(`#pragma once
#include "keys.cuh"
struct %s : Marks<%d, %d> {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, HASH = %d;
    static constexpr u32 BUCKET = %d, VIRTUAL = %d, LOG_VIRTUAL = %d, MAPPINGS = %d, CELL_PAIRS = %d;
    static constexpr bool PACKED = %t, SOA = false;
    typedef bits_of<VALUE_BYTES>::type value;
    typedef bits_of<%d>::type cell;
};
`, name, c.keyBytes, kernel.Reserved, c.keyBytes, c.valueBytes, c.slotBytes(), c.slotBytes()/2, c.hash,
		c.bucket, c.virtual, bits.TrailingZeros(uint(c.virtual)), c.mappings(), cellPairs, c.packed, c.cellBytes)
}

// displacements bounds the cells that are moved out of the way of one that fits nowhere.
const displacements = 32

// tried bounds the mappings that a move examines.
const tried = 256

// patience is how many pairs of a batch may find no place before cells are no longer displaced for the others.
const patience = 256

// cellPairs is how many pairs of one cell a move can handle: what a group's workspace holds. With one more they are counted in
// seven bits.
const cellPairs = 126

// Table is a table as kernels take it, by value. Addresses are in bytes. Buckets are numbered 0 … Main-1; the numbers
// of the reserve follow, then that of the side bucket.
type Table struct {
	Buckets        uint64
	Cells          uint64
	Locks          uint64 // LockMask+1 locks, each a u32; the low bits of a cell's number name its lock
	Counters       uint64
	Main           uint64
	Reserve        uint64
	Seed           uint64
	CellCount      uint64 // below 2³²
	Stretches      uint32 // Main / StretchBuckets
	StretchBuckets uint32
	StretchCells   uint32 // CellCount / Stretches
	LockMask       uint32
}

// stretchBytes is how much of the main part is a stretch, in a table that has a reserve, or a little more: so much that three blocks of
// a GPU's multiprocessor hold one each in shared memory. By simulation, at a load factor of 0.95 and with 10 pairs of 8 bytes in a cell,
// 0.9, 0.8 and 0.8% of the pairs go to the reserve with half as much, this, and twice as much.
const stretchBytes = 1 << 16

// leastRings is how many rings a stretch holds at least.
const leastRings = 4

// maxLocks bounds the number of locks of a table.
const maxLocks = 1 << 16

// reserveShare: one bucket in so many belongs to the reserve, in a table that is large enough for a reserve of two rings.
const reserveShare = 64

// The odd multipliers by which a hash is mixed with a mapping: the first from the golden ratio, the others are those of
// MurmurHash3.
const (
	mixMapping = 0x9e3779b9
	mixBits    = 0x85ebca6b
	mixRing    = 0xc2b2ae35
)

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Inserted uint64
	Erased   uint64
	Exported uint64
	Moves    uint64 // pairs that went in by an extended move
	Moved    uint64 // pairs that these moved
	Tried    uint64 // rings that were examined for these moves
	Refused  uint64 // positions that found no place; during a Build, pairs that are left over
}

func (k *Counters) live() int64 { return int64(k.Inserted - k.Erased) }

// insertParams are the parameters of the fill and refine kernels.
type insertParams struct {
	Table   Table
	Keys    uint64
	Values  uint64
	Added   uint64 // bytes, one a position; may be 0
	Refused uint64 // bitmap of the positions that found no place; 0 where their count is enough
	Attempt uint64 // see frame.Part
	N       uint64 // items, up to largestBatch
	List    uint64 // u32: how many items' buckets were full; then these
	Alone   uint64 // 1: no Refinement follows, and items whose bucket is full are refused
	// Source is the table whose slots First … First+N-1 are inserted, by the kernels that do that.
	Source Table
	First  uint64
}

// findParams are the parameters of find and erase. Values and Found may be 0.
type findParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Found  uint64
	N      uint64
}

// slotsParams are the parameters of export_pairs, which goes over Slots slots from First on.
type slotsParams struct {
	Table  Table
	First  uint64
	Slots  uint64
	Keys   uint64
	Values uint64
	Limit  uint64
}

// forEachParams are the parameters of for_each and for_all.
type forEachParams struct {
	Table Table
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64 // the bits of the arguments, by name
}

// stretchParams are the parameters of build_stretch, whose blocks build the stretches from First on. Keys and Values are in the order of these
// stretches, which begin at Starts.
type stretchParams struct {
	Table                Table
	First                uint64
	Keys, Values, Starts uint64
	LeftKeys, LeftValues uint64 // pairs that found no place,
	Left                 uint64 // u32, how many they are,
	LeftLimit            uint64 // and how many are written, at most
	ReserveUsed          uint64 // u32, one a bucket of the reserve: slots that are taken; then as many again: those that are written
	CopyBytes            uint64 // of a block's shared memory, for the buckets; free and codes come behind
}

const (
	stretchThreads = 512     // of a block
	stretchBlocks  = 3       // of a multiprocessor
	mostCells      = 1 << 24 // of a stretch: the kernel lists a cell and how many pairs it has in one number
)

// stretchFixed bounds the shared memory of a block beside what stretchShared tells: what warps compare, and what block-wide functions
// have.
func (c config) stretchFixed() int { return stretchThreads/32*128 + 2<<10 }

// stretchShared is the dynamic shared memory of a block that builds a stretch: the buckets, or before them the hashes of as many pairs,
// and three numbers for each cell; then counters of the buckets, and codes of the cells.
func (c config) stretchShared(t *Table) (bytes int, copyBytes uint64) {
	slots, cells := int(t.StretchBuckets)*c.bucket, int(t.StretchCells)
	first := (max(slots*c.slotBytes(), 4*slots+12*cells) + 15) / 16 * 16
	return first + 4*int(t.StretchBuckets) + 2*c.cellBytes*cells, uint64(first)
}

func layouts() []any {
	return []any{Table{}, Counters{}, insertParams{}, findParams{}, slotsParams{}}
}

func defines() []device.Define {
	u := func(n uint32) string { return fmt.Sprintf("%du", n) }
	return append(frame.StatusDefines(), []device.Define{
		{Name: "GPH_DISPLACEMENTS", Value: displacements},
		{Name: "GPH_PATIENCE", Value: patience},
		{Name: "GPH_TRIED", Value: u(tried)},
		{Name: "GPH_MIX_MAPPING", Value: u(mixMapping)},
		{Name: "GPH_MIX_BITS", Value: u(mixBits)},
		{Name: "GPH_MIX_RING", Value: u(mixRing)},
	}...)
}

// home is where a key belongs: the Go twin of gph::Home.
type home struct {
	side          bool
	stored        uint64
	cell, stretch uint64
	bits          uint32
}

func (c config) home(t *Table, key uint64) home {
	var h home
	h.stored, h.side = kernel.MarksOf(c.keyBytes).Alias(key)
	x := kernel.Hash64(c.hash, h.stored, t.Seed)
	h.cell = (x >> 32) * t.CellCount >> 32
	h.stretch = (x >> 32) * uint64(t.Stretches) >> 32
	h.bits = uint32(x)
	return h
}

// bucketOf is the bucket of a key under its cell's code: the twin of gph::bucket_of.
func (c config) bucketOf(t *Table, h home, code uint32) uint64 {
	if h.side {
		return t.Main + t.Reserve
	}
	log := bits.TrailingZeros(uint(c.virtual))
	mapping, offset := code>>log, code&uint32(c.virtual-1)
	v := (h.bits ^ mapping*mixMapping) * mixBits >> (32 - log)
	v = (v + offset) & uint32(c.virtual-1)
	x := uint64(kernel.Fmix32(uint32(h.cell) ^ mapping*mixRing ^ uint32(t.Seed)))
	count := uint64(t.StretchBuckets)
	base := h.stretch * count
	if int(mapping) == c.mappings()-1 && t.Reserve > 0 {
		base, count = t.Main, t.Reserve
	}
	b := x*count>>32 + uint64(v)
	if b >= count {
		b -= count
	}
	return base + b
}
