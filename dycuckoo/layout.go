package dycuckoo

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Layout tells how a table lays out its pairs, and so how an insert writes them.
type Layout int

const (
	// Auto means Packed if the device can swap a whole pair, else Wide.
	Auto Layout = iota
	// Packed holds a pair in one word of 8 or 16 bytes, which one compare-and-swap writes whole, without a lock. Words
	// of 16 bytes need a device with a 128-bit compare-and-swap: the CPU, and GPUs from sm_90 on.
	Packed
	// PackedLocked is Packed, but an insert writes a pair under the locks of its key's two buckets. That is the paper's
	// way (§5.2), to compare with.
	PackedLocked
	// Wide holds keys and values of up to 32 bytes, written under the locks of their key's two buckets (§4.1).
	Wide
)

func (l Layout) String() string {
	return frame.NameOf("Layout", int(l), "auto", "packed", "packed-locked", "wide")
}

// Balance tells which of a key's two subtables an insert tries first.
type Balance int

const (
	// HomeFirst tries the key's home, which its hash names for good. So most pairs are at home, and a look-up begins
	// there. A filter of one byte for each bucket tells it when to go on.
	HomeFirst Balance = iota
	// Theorem1 tries subtable i with a probability in proportion to nᵢ / C(mᵢ, 2), where nᵢ is the number of its slots
	// and mᵢ that of its pairs (§4.3).
	Theorem1
)

func (b Balance) String() string { return frame.NameOf("Balance", int(b), "home", "theorem1") }

// Coordination tells how the lanes of a warp share the work if an insert holds locks: in layouts PackedLocked and Wide.
type Coordination int

const (
	// LaneByLane has each lane insert the pair that it brings. A lane that does not get its locks lets the others go
	// on, and tries again.
	LaneByLane Coordination = iota
	// Voter is the paper's voter coordination (§5.2, Algorithm 1). The warp votes for a leader. If the leader gets its
	// locks, all lanes insert its pair together. If not, they vote for another.
	Voter
)

func (c Coordination) String() string {
	return frame.NameOf("Coordination", int(c), "lane-by-lane", "voter")
}

const (
	maxSubtables = 8
	// leastBuckets is the least number of buckets of a subtable: a power of two, whose filter fills words.
	leastBuckets = 4
	// filterBits is the width of a bucket's filter. A key that lives away from its home sets one of the bits there.
	filterBits = 8
	// A bucket's number has, from its lowest bit on, localBits of the subtable's own hash function, stretchBits that are the key's
	// in every subtable, and again the function's. So a key's two buckets, and those that pairs are moved on to from there, lie
	// in the same stretches of all subtables, and an insert can go stretch by stretch: a stretch of every subtable fits the shared memory
	// of a block (see staged.go). Fewer local bits would make small stretches, some of which fill up long before the others.
	localBits, stretchBits = 8, 20
	// maxPath bounds the pairs that one insert may move on.
	maxPath = 64
	// shortPath is the bound once givenUp inserts of a launch have found no room: the table is full.
	shortPath, givenUp = 2, 1 << 10
	// listed is how many rows a lane of an insert has at most: its warp has room to list them all, because pairs are moved on in the end for those whose two
	// buckets are full. At a filled factor of 0.7, one new pair in fifteen finds both full; at 0.83, one in four.
	listed = 16
	// leastListed and leastList: a list for refine has room for so many rows and a share of the batch; or, where memory is short, for so few.
	leastListed, leastList = 1 << 10, 31
	refineGroup, moveGroup = 8, 4 // lanes of a GPU that look for a path together, and that displace
	// Of the inserts of staged.cu: what bounds a block's shared memory beside what its launch names, which staged.cu asserts; the bytes of a Fill; and
	// a bound for the rows of a block that are listed, which have numbers of 16 bits.
	stagedFixed, fillBytes, stagedMost = 3 << 10, 4, 1<<16 - 1
	// A Fill is what a bucket had before, from bit fillWas on, and what it has.
	fillWas = 16
	// stagedThreads is the threads of a block of staged.cu that has a multiprocessor to itself; stagedSlots the most slots of a bucket there; and
	// stagedBlocks how many blocks share a multiprocessor at most.
	stagedThreads, stagedSlots, stagedBlocks = 1024, 16, 3
	// blockReserve is the shared memory that a GPU takes for itself of each block's.
	blockReserve = 1 << 10
	// rangedFrom is from how many bytes of buckets on a subtable lies in ranges, which are of whole granules on a GPU and on the CPU; reach is how
	// many times its size is reserved, so that it is copied at each sixth doubling.
	rangedFrom              = 32 << 20
	gpuGranule, hostGranule = 2 << 20, 4 << 10
	reach                   = 64
	// stagedShare: of a batch, one pair in so many can be left to refine.
	stagedShare = 32
	// maxTries bounds how often an insert begins again because others have changed what it looked at.
	maxTries = 32
	// lastAttempt of a mixed batch is made when no more room is to be had: see frame.Part.
	lastAttempt = 2
	// maxLocks bounds the locks: buckets share them.
	maxLocks = 1 << 28
)

// config is what a table's kernels are compiled for. Every layout number follows from it, here and nowhere else.
type config struct {
	keyBytes, valueBytes int
	layout               Layout
	bucketBytes          int
	subtables            int // d
	hash                 int
	balance              Balance
	coordination         Coordination
}

func (c config) packed() bool { return c.layout != Wide }
func (c config) locked() bool { return c.layout != Packed }

// slotBytes is the distance of keys in a bucket.
func (c config) slotBytes() int {
	switch {
	case !c.packed():
		return c.keyBytes
	case c.keyBytes+c.valueBytes <= 8:
		return 8
	}
	return 16
}

// slots is how many pairs a bucket holds. In layout Wide, the place of the first key says which slots are taken.
func (c config) slots() int {
	n := c.bucketBytes / c.slotBytes()
	if !c.packed() {
		n--
	}
	return n
}

// pairBytes is the memory of a slot, keys and values.
func (c config) pairBytes() int {
	if c.packed() {
		return c.slotBytes()
	}
	return c.keyBytes + c.valueBytes
}

func (c config) check(cas128 bool) error {
	switch {
	case c.subtables < 2 || c.subtables > maxSubtables:
		return fmt.Errorf("dycuckoo: %d subtables (want 2 to %d)", c.subtables, maxSubtables)
	case c.bucketBytes != 32 && c.bucketBytes != 64 && c.bucketBytes != 128:
		return fmt.Errorf("dycuckoo: buckets of %d bytes (want 32, 64 or 128)", c.bucketBytes)
	case c.packed() && (c.keyBytes > 8 || c.valueBytes > 8):
		return fmt.Errorf("dycuckoo: layout %v holds keys and values of up to 8 bytes, not %d and %d: no device swaps more than 16 bytes at once; use wide", c.layout, c.keyBytes, c.valueBytes)
	case c.packed() && c.slotBytes() == 16 && !cas128:
		return fmt.Errorf("dycuckoo: layout %v with pairs of %d+%d bytes needs a 128-bit compare-and-swap, "+
			"which GPUs have from sm_90 (H100) on, with NVRTC 12.3 or later; use wide", c.layout, c.keyBytes, c.valueBytes)
	case c.coordination == Voter && !c.locked():
		return fmt.Errorf("dycuckoo: coordination %v shares inserts that hold locks, and layout %v has none; use packed-locked or wide", c.coordination, c.layout)
	case c.slots() < 2:
		return fmt.Errorf("dycuckoo: a bucket of %d bytes has no room for two keys of %d bytes", c.bucketBytes, c.keyBytes)
	}
	return nil
}

// stagedBytes is the shared memory of the copy of a bucket.
func (c config) stagedBytes() int { return c.bucketBytes + filterBits/8 + fillBytes }

// staged tells whether tables of these buckets have the kernels of staged.cu.
func (c config) staged() bool { return c.layout != PackedLocked && c.slots() <= stagedSlots }

// stagedLists is how a block's lists follow from its shared memory, and from the slots of its region: for so many rows each, of 16 bits. Half the
// slots are enough for batches that replace pairs: a quarter of the buckets is full. In an empty table, fewer rows come to a bucket that is full: at a
// load of 0.85, one in 12 where buckets have 8 slots, and one in 7 where they have 4.
func (c config) stagedLists(room, slots int, empty bool) (listed int, ok bool) {
	listed = min(room/(2*2), slots) &^ 1
	if empty {
		return listed, listed >= slots/min(12, c.slots()*3/2)
	}
	return listed, listed >= slots/2
}

// header is the C++ struct that a kernel names a table's type by.
func (c config) header(name string, staged bool) string {
	base := fmt.Sprintf("Marks<%d, %d>", c.keyBytes, kernel.Reserved)
	if !c.packed() {
		base = fmt.Sprintf("NoMarks<%d>", c.keyBytes)
	}
	return fmt.Sprintf(`#pragma once
#include "keys.cuh"
struct %s : %s {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, BUCKET_BYTES = %d, SLOTS = %d, WINDOW = SLOTS, D = %d, HASH = %d;
    static constexpr bool PACKED = %t, LOCKED = %t, SOA = false, THEOREM1 = %t, VOTER = %t, STAGED = %t;
    typedef bits_of<VALUE_BYTES>::type value;
};
`, name, base, c.keyBytes, c.valueBytes, c.slotBytes(), c.slotBytes()/2, c.bucketBytes, c.slots(), c.subtables, c.hash, c.packed(), c.locked(), c.balance == Theorem1, c.coordination == Voter, staged)
}

// Tilt makes the larger subtables the home of more keys. It turns some keys whose home is a subtable numbered from
// Larger on and whose other subtable is numbered below: the share Turned/2³² of them have the two the other way round.
type Tilt struct{ Larger, Turned uint32 }

// tilt makes each of d subtables the home of as many keys as its share of the slots, where the first `larger` have twice the
// slots of the others.
func tilt(d, larger int) Tilt {
	if larger == 0 {
		return Tilt{}
	}
	all, big, small := float64(d*(d-1)), float64(larger), float64(d-larger)
	// Small subtables should be home to small of big·2+small keys, and are to those of pairs of their own, and to half of the mixed.
	mixed := 2 * big * small / all
	first := (small/(2*big+small) - small*(small-1)/all) / mixed
	return Tilt{uint32(larger), uint32((1 - 2*first) * (1 << 32))}
}

// Subtable is one of a table's d arrays of buckets.
type Subtable struct {
	Slots   uint64 // address of the buckets
	Values  uint64 // address of the values, in layout Wide
	Filter  uint64 // address of the filter: filterBits for each bucket, in words of 32 bits
	Buckets uint64 // a power of two
}

// Table is a table as kernels take it, by value.
type Table struct {
	Sub      [maxSubtables]Subtable
	Side     uint64 // address of a bucket for each reserved key
	Locks    uint64 // address of LockMask+1 bits
	LockMask uint64
	Seed     uint64
	Rehashed uint64 // 1 once a hash function that is meant to be poor has given way
	Tilt     Tilt
	// Shift is for a region that lies in shared memory: how many of the bits of a stretch's number are the region's.
	Shift uint64
	// Prefer has a bit set for each subtable that an eviction would rather move pairs to.
	Prefer   uint64
	Counters uint64 // address of Counters
	// Weight is for Theorem1: nᵢ / C(mᵢ, 2) of each subtable. An insert begins in each of its key's two subtables with
	// a probability in proportion to its weight.
	Weight [maxSubtables]float32
}

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Pairs    [maxSubtables]uint64 // of each subtable; pairs of the side count as pairs of the first
	Away     uint64               // pairs that were deleted away from their home: bits of the filter that say nothing any more
	Moved    uint64               // pairs that inserts have moved on
	Residual uint64               // pairs that the halving of a subtable sent to others
	// The counters from here on are those of one launch, and are set to 0 behind it.
	Failed   uint64 // positions that found no room
	GivenUp  uint64 // of these, positions for which no path was found
	Left     uint64 // residuals that found no room in other subtables
	Exported uint64
}

func (k *Counters) live() (n int64) {
	for _, m := range k.Pairs {
		n += int64(m)
	}
	return n
}

// insertParams are the parameters of insert, refine, and their like for InsertNew; and of the kernels of update.cu and choose.cu.
type insertParams struct {
	Table Table
	Rows  frame.Placing
	// List, where not 0, is u32, for refine: how many positions no pair was moved on for, and up to Limit of them. Without it, they are those whose bit
	// is set.
	List, Limit uint64
	// Capacity, where not 0, is how many slots there are: where more pairs are refused than are free, refine does nothing.
	Capacity uint64
	When     uint64 // of mark_chosen: bytes
}

// partitionParams are the parameters of the kernels that bring pairs in the order of the table's regions.
type partitionParams struct {
	Table Table
	Rows  frame.Partition
	// A key's region is the number that Mask leaves of its stretch, without the lowest Shift bits.
	Mask, Shift uint64
}

// stagedParams are the parameters of insert_staged, a block for each region: see staged.cu. Rows has the rows in the order of regions.
type stagedParams struct {
	Table  Table
	Rows   frame.Placing
	Starts uint64 // address of u64, one a region and one more: where its rows begin
	Shift  uint64 // there are 2^Shift regions
	// The first Larger subtables have two stretches in a region, the others one.
	Larger uint64
	// Listed is how many rows a block can list in shared memory whose home has no slot, and half of it how many others: see stagedLists.
	Listed uint64
	// List and Limit are as in insertParams: rows are listed for refine.
	List, Limit uint64
	// Empty is 1 where no pair is in. Refresh is 1 where the filters are to be set anew, for another Tilt.
	Empty, Refresh uint64
}

// When batches are brought in order: see frame.Regions.
const (
	regionsFrom = 1.28 // L2 caches
	regionRows  = 1 << 18
)

// findParams are the parameters of find and erase, and of find_if. Values and Found may be 0.
type findParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Found  uint64
	N      uint64
	When   uint64 // of find_if: bytes
}

// mixedParams are the parameters of mixed. Values, Results and Status may be 0.
type mixedParams struct {
	Table   Table
	Ops     uint64 // bytes
	Keys    uint64
	Values  uint64
	Results uint64
	Status  uint64 // bytes
	Refused uint64 // see frame.Placing
	N       uint64
	Attempt uint64
	// Clock, where not 0, is the address of a counter that stamps begin and end of each operation, in Calls and Returns.
	Clock, Calls, Returns uint64
}

// slotsParams are the parameters of the kernels that go over all slots, or over those of one subtable.
type slotsParams struct {
	Table     Table
	First     uint64 // of export_pairs: it goes over Slots of them from First on
	Slots     uint64
	Keys      uint64
	Values    uint64
	Limit     uint64
	Histogram uint64 // of probe_lengths: histogramBins counters, then the sum
	// From becomes To, which is Sub[Number] of the table: of split, merge_filters, halve and unhalve.
	From, To Subtable
	Number   uint64
}

// histogramBins counts pairs at home, those away, and no more.
const histogramBins = len(table.Stats{}.Probes)

// forEachParams are the parameters of for_each and for_all.
type forEachParams struct {
	Table Table
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64 // the bits of the arguments, by name
}

func layouts() []any {
	return []any{Subtable{}, Tilt{}, Table{}, Counters{}, insertParams{}, partitionParams{}, stagedParams{}, findParams{}, mixedParams{}, slotsParams{}}
}

func defines() []device.Define {
	return append(append(frame.PartitionDefines(), frame.StatusDefines()...), []device.Define{
		{Name: "DYCUCKOO_SUBTABLES", Value: maxSubtables},
		{Name: "DYCUCKOO_FILTER_BITS", Value: filterBits},
		{Name: "DYCUCKOO_LOCAL_BITS", Value: localBits},
		{Name: "DYCUCKOO_STRETCH_BITS", Value: stretchBits},
		{Name: "DYCUCKOO_MAX_PATH", Value: maxPath},
		{Name: "DYCUCKOO_SHORT_PATH", Value: shortPath},
		{Name: "DYCUCKOO_GIVEN_UP", Value: givenUp},
		{Name: "DYCUCKOO_MAX_TRIES", Value: maxTries},
		{Name: "DYCUCKOO_HISTOGRAM_BINS", Value: histogramBins},
		{Name: "DYCUCKOO_LAST_ATTEMPT", Value: lastAttempt},
		{Name: "DYCUCKOO_LISTED", Value: listed},
		{Name: "DYCUCKOO_REFINE_GROUP", Value: refineGroup},
		{Name: "DYCUCKOO_MOVE_GROUP", Value: moveGroup},
		{Name: "DYCUCKOO_STAGED_FIXED", Value: stagedFixed},
		{Name: "DYCUCKOO_STAGED_MOST", Value: stagedMost},
		{Name: "DYCUCKOO_FILL_BYTES", Value: fillBytes},
		{Name: "DYCUCKOO_FILL_WAS", Value: fillWas},
		{Name: "DYCUCKOO_FIND", Value: int(table.OpFind)},
		{Name: "DYCUCKOO_INSERT", Value: int(table.OpInsert)},
		{Name: "DYCUCKOO_INSERT_NEW", Value: int(table.OpInsertNew)},
		{Name: "DYCUCKOO_DELETE", Value: int(table.OpDelete)},
	}...)
}

// step numbers the sizes that a table can have: subtable i has leastBuckets · 2^(step/d) buckets, and twice that if i < step mod d.
// So the smallest doubles or the largest halves from one step to the next, and none is more than twice another.
type step int64

func (s step) buckets(d, i int) int64 {
	n := int64(leastBuckets) << (int64(s) / int64(d))
	if int64(i) < int64(s)%int64(d) {
		n *= 2
	}
	return n
}

// total is the number of buckets of all subtables.
func (s step) total(d int) int64 {
	return (int64(d) + int64(s)%int64(d)) * (leastBuckets << (int64(s) / int64(d)))
}

// lastStep is the largest step: numbers of buckets fit 32 bits.
func lastStep(d int) step { return step(29 * d) }

// home is where a key belongs: the Go twin of dycuckoo::Home.
type home struct {
	stored      []byte
	side        bool
	sideNumber  uint64
	lo, hi      uint32
	home, other int
	filterBit   uint32
}

func (c config) home(t *Table, key []byte) (h home) {
	h.stored = key
	if c.packed() {
		marks := kernel.MarksOf(c.keyBytes)
		k := kernel.Pattern(key, c.keyBytes)
		if stored, side := marks.Alias(k); side {
			return home{stored: bytesOf(stored, c.keyBytes), side: true, sideNumber: marks.Empty - k}
		}
	}
	hash := c.hash
	if t.Rehashed != 0 {
		hash = kernel.HashMurmur
	}
	x := uint64(0)
	for i := (len(key) - 1) / 8 * 8; i >= 0; i -= 8 {
		x = kernel.Hash64(hash, kernel.Pattern(key[i:], min(8, len(key)))^x, t.Seed)
	}
	h.lo, h.hi = uint32(x), uint32(x>>32)
	d := uint64(c.subtables)
	dice := uint64(h.hi) * d
	h.home = int(dice >> 32)
	dice = dice & (1<<32 - 1) * (d - 1)
	h.other = int(dice >> 32)
	if h.other >= h.home {
		h.other++
	}
	if larger := int(t.Tilt.Larger); h.home >= larger && h.other < larger && uint32(dice) < t.Tilt.Turned {
		h.home, h.other = h.other, h.home
	}
	h.filterBit = h.hi >> stretchBits & (filterBits - 1)
	return h
}

// bucket is the key's bucket in a subtable of so many.
func (h home) bucket(sub int, buckets uint64) uint64 {
	f := kernel.Fmix32(h.lo ^ uint32(sub+1)*0x9e3779b9)
	x := f&(1<<localBits-1) | h.hi&(1<<stretchBits-1)<<localBits | f>>localBits<<(localBits+stretchBits)
	return uint64(x) & (buckets - 1)
}

func bytesOf(x uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
	return b
}
