package warpcore

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Layout is how a table lays out its pairs (paper, §IV-B1 and Figure 1).
type Layout int

const (
	// Auto means Packed if the device can swap a whole pair, else SoA. Values of 16 bytes are SoA.
	Auto Layout = iota
	// Packed holds a pair in one word of 8 or 16 bytes, which one compare-and-swap writes whole. Words of 16 bytes need
	// a device with a 128-bit compare-and-swap: the CPU, and GPUs from sm_90 on.
	Packed
	// AoS holds key and value side by side, each written on its own.
	AoS
	// SoA holds all keys in one array and all values in another.
	SoA
)

func (l Layout) String() string {
	return frame.NameOf("Layout", int(l), "auto", "packed", "aos", "soa")
}

// config is what a table's kernels are compiled for. Every layout number follows from it, here and nowhere else.
type config struct {
	keyBytes, valueBytes int // valueBytes 0: a set
	layout               Layout
	window               int // slots
	hash                 int
	bucket               int // values of a slot of a MultiBucket; 0 in other tables
	// far says that a chain leaves its neighbourhood at once: of tables whose chains may be long, because a key has a slot for
	// each of its values.
	far bool
	// around is how many windows a neighbourhood of such a table has at most: see multiNeighbourhood. 0 is for 1. Where they
	// may have that, there are so many as least neighbourhoods, a prime number.
	around, least int64
}

// set tells whether slots hold keys alone, each a word.
func (c config) set() bool { return c.valueBytes == 0 }

// sideSlots is the least number of slots of the side region: a power of two that holds every reserved key.
const sideSlots = 4

// slotBytes is the distance of slots in the array that look-ups read.
func (c config) slotBytes() int {
	switch {
	case c.bucket > 0:
		return align(c.valueOffset()+c.bucket*c.valueBytes, max(2*c.keyBytes, c.valueBytes))
	case c.layout == SoA || c.set():
		return c.keyBytes
	case c.keyBytes+c.valueBytes <= 8:
		return 8
	case c.valueBytes <= 8:
		return 16
	}
	return 32
}

// valueOffset is where the value stands in a slot of Packed or AoS, or the first of several: behind the key and the number of them (u32).
func (c config) valueOffset() int {
	if c.bucket > 0 {
		return align(c.keyBytes+4, c.valueBytes)
	}
	return c.slotBytes() / 2
}

// align is the next multiple of a width.
func align(bytes, width int) int { return (bytes + width - 1) / width * width }

// pairBytes is the memory of one slot, keys and values.
func (c config) pairBytes() int {
	if c.layout == SoA {
		return c.keyBytes + c.valueBytes
	}
	return c.slotBytes()
}

func (c config) check(cas128 bool) error {
	switch {
	case c.window < 1 || c.window > 32 || c.window&(c.window-1) != 0:
		return fmt.Errorf("warpcore: a window of %d slots (want 1, 2, 4, 8, 16 or 32)", c.window)
	case c.layout == Packed && c.valueBytes > 8:
		return fmt.Errorf("warpcore: layout packed holds values of up to 8 bytes, not %d: no device swaps more than 16 bytes at once; use aos or soa", c.valueBytes)
	case c.set() && c.layout != Packed:
		return errors.New("warpcore: a set has no layouts: its slots are keys")
	case c.set() && c.keyBytes == 16 && !cas128:
		return errors.New("warpcore: a set of 16-byte keys needs a 128-bit compare-and-swap, " +
			"which GPUs have from sm_90 (H100) on, with NVRTC 12.3 or later; or use a map of dycuckoo or stadium")
	case c.layout == Packed && c.slotBytes() == 16 && !cas128:
		return fmt.Errorf("warpcore: layout packed with pairs of %d+%d bytes needs a 128-bit compare-and-swap, "+
			"which GPUs have from sm_90 (H100) on, with NVRTC 12.3 or later; use aos or soa", c.keyBytes, c.valueBytes)
	}
	return nil
}

// near is how many windows at the beginning of a chain are in one neighbourhood.
func (c config) near() int {
	if c.far {
		return 1
	}
	return nearWindows
}

// ofMultimap is the config of a multimap whose slots have a value each.
func (c config) ofMultimap() config {
	c.far, c.around, c.least = true, multiNeighbourhood, leastNeighbourhoods
	return c
}

// longest is how many windows a chain has at most, in a region of so many: those of its neighbourhood may come twice.
func (c config) longest(windows uint64) uint64 { return windows + uint64(c.near()) - 1 }

// header is the C++ struct that a kernel names a table's type by.
func (c config) header(name string) string {
	return fmt.Sprintf(`#pragma once
#include "keys.cuh"
struct %s : Marks<%d, %d> {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, WINDOW = %d, HASH = %d;
    static constexpr u32 NEAR = %d, AROUND = %d, TURN = %d, OVERFLOW_BITS = %d, BUCKET = %d, STASH_BYTES = %d;
    static constexpr bool PACKED = %t, SOA = %t;
    typedef bits_of<%d>::type value;
};
`, name, c.keyBytes, kernel.Reserved, c.keyBytes, c.valueBytes, c.slotBytes(), c.valueOffset(), c.window, c.hash, c.near(), max(1, c.around), min(max(1, c.around), multiTurn), c.overflowBits(), c.bucket, c.stashBytes(),
		c.layout == Packed, c.layout == SoA, max(4, c.valueBytes)) // a set's is never read
}

// Neighbourhoods: the windows of a region lie in rows of so many, of which the last may be shorter. The first windows of a
// chain are in one, so that a block that has it in shared memory can put a pair into any of them.
const (
	neighbourhood = 128 // windows, a power of two
	nearWindows   = 6   // of a chain
	nearShift     = 10  // where the hash's bits stand that say how far on the next of them is
)

// Those of a multimap are longer, and there are a prime number of them, by double hashing among which a chain goes round: it
// takes multiTurn windows of its own, as many of the next, and so on, and when it has been in all of them, others of its
// own. So every window comes once, and what number a window has can be computed. A key with 64 values has them all in its
// own neighbourhood but for 1 in 100, at a load factor of 0.8. With half the windows, or turns of half as many, these are 2
// or 7.
const (
	multiNeighbourhood  = 512 // windows, at most, a power of two; so many as a stretch has
	multiTurn           = 32  // windows, a power of two
	leastNeighbourhoods = 257 // a prime: for fewer windows, neighbourhoods are smaller; so next primes are a few per cent apart
)

// Region is an array of windows × window slots. The number of windows is a prime (or 1), so that double hashing visits
// every window once; or, of a multimap, a prime number of neighbourhoods.
type Region struct {
	Slots    uint64 // address
	Values   uint64 // address of the values, in layout SoA
	Overflow uint64 // address of the overflow filter: overflowBits() for each window, in words of 32 bits
	Windows  uint64
}

// Table is a table as kernels take it, by value.
type Table struct {
	Main, Side Region
	Seed       uint64
	Counters   uint64 // address of Counters
	Hints      uint64 // address of a multimap's hints, the main region's, then the side region's; 0 if there are none
	HintMask   uint64 // the number of the main region's hints, a power of two, less one
}

// hint is what is noted of a key with a long chain: all ones, if it is free.
type hint struct {
	Key  uint64 // as it stands in slots
	Left uint64 // how many windows at the chain's beginning are full, counted down from all ones
}

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Inserted   uint64 // slots that went from empty or tombstone to a pair
	Reused     uint64 // of these, from tombstone
	Erased     uint64 // slots that went to tombstone
	Failed     uint64 // positions that found no slot
	SideFailed uint64 // of these, with a reserved key
	MaxProbes  uint64 // most windows that an insert went through, if over probesUntold
	Over       uint64 // not 0 if a count would have become larger than its type allows
	Added      uint64 // values that were put in, in a MultiBucket
	Removed    uint64 // values that were taken out
	Exported   uint64 // this field and the next are the last, because they are set to 0 on their own
	Begun      uint64 // pieces that blocks of combine_rows have begun with
}

func (k *Counters) live() int64 { return int64(k.Inserted - k.Erased) }

// filled counts the slots with a pair or a tombstone.
func (k *Counters) filled() int64 { return int64(k.Inserted - k.Reused) }

// probesUntold is the number of windows that a look-up reads before it asks how long the longest chain is: inserts
// that stay below do not tell.
const probesUntold = 4

// insertParams are the parameters of insert, insert_new and insert_multi.
type insertParams struct {
	Table Table
	Rows  frame.Placing
	Limit uint64 // windows an insert may read
	When  uint64 // of the program of batches with a condition: bytes
	// Reserved, of insert_multi: only rows with reserved keys are inserted.
	Reserved uint64
	Left     uint64 // of insert_left: the address of how many rows there are, u32
	Told     uint64 // of insert_left: see stretchParams
	Ones     uint64 // of update_sums: the values are numbers of rows, in all no more than mostCounted
}

// combineParams are the parameters of combine_rows: Rows in the order of parts, with Starts. Counters.Exported becomes how many rows are left.
type combineParams struct {
	Table   Table
	Rows    frame.Partition
	Entries uint64 // of a block's shared memory, in fours: see combinedEntries
	Most    uint64 // rows of a part that one block combines
}

// groupParams are the parameters of insert_groups: Rows in the order of small parts, with Starts.
type groupParams struct {
	Table    Table
	Rows     frame.Partition
	Reserved uint64 // only rows with reserved keys are inserted, for all of which there is a slot
	// Of a MultiBucket, where rows may find no room:
	Refused uint64 // bitmap of positions, see frame.Placing
	Limit   uint64 // windows an insert may read
	Longs   uint64 // some keys have very many values
}

const (
	togetherBytes = 40 << 10 // of shared memory, of a block that brings rows of a key together
	// togetherShare is how many rows there are of a part on average, of so many as fit, so that few parts have more.
	togetherShare = 0.75
)

// Where rows of a key are combined, a block has all the shared memory of a multiprocessor: keys and their sums.
const (
	combineThreads = 1 << 10 // of a block, on a GPU
	combineBeside  = 2 << 10 // of shared memory: what block-wide functions have
	// combineFill is how much of that keys take that are expected: at 0.7, few buckets are full.
	combineFill = 0.7
	// combineWaves is how many parts there are for each multiprocessor at least, of combineRows rows at least: the last blocks end at about one time.
	combineWaves, combineRows = 4, 1 << 13
	// combineSlack is how many entries there are for each key that is expected, if so many fit: fewer are sooner cleared.
	combineSlack = 4
	// combineMost is how many rows of a part a block takes, in times of the mean: a part that has more has keys that come very often. Fewer make more sums
	// of the other keys of such a part.
	combineMost  = 2
	sumsShare    = 2      // other devices get sums only if there is at most one for this many rows
	leastEntries = 1 << 8 // a power of two
)

// combinedEntries is how many entries fit so many bytes, and combinedBytes what so many take: one more, of the key that marks those that are free.
func (c config) combinedEntries(bytes int64) int64 {
	return max(leastEntries, (bytes-combineBeside)/int64(c.keyBytes+c.valueBytes)-2) &^ 3
}
func (c config) combinedBytes(entries int64) int { return int(entries+2) * (c.keyBytes + c.valueBytes) }

// groupedRows is how many rows fit a block's shared memory, with 2 words each for finding the first of a key, and a count.
func (c config) groupedRows() int {
	row := c.keyBytes + c.valueBytes + 3*4
	if c.bucket > 0 {
		row += 2 // where it came from
	}
	return togetherBytes / row
}

// listRows is groupedRows for lists: a row has its key's first row beside, and that its list's slot.
func (c config) listRows(l listConfig) int {
	return togetherBytes / (c.keyBytes + l.valueBytes + 3*4 + 2 + 8)
}

// movedRows is groupedRows for the addresses of slots.
func (c config) movedRows() int { return togetherBytes / (c.keyBytes + 8 + 3*4) }

// partitionParams are the parameters of the kernels that bring pairs in the order of the table's regions.
type partitionParams struct {
	Table Table
	Rows  frame.Partition
	// Inverse, if not 0, is 2^inverseBits / n, rounded up: then parts are stretches of n neighbourhoods, exactly.
	Inverse uint64
}

// inverseBits: a window's number, and a stretch's neighbourhoods, are so small that the quotient is exact.
const inverseBits = 38

// stretchParams are the parameters of insert_stretch: Rows in the order of stretches, with Starts; Rows.N rows have room where Left tells of. grow_stretch has Old
// and, of Rows, N, which says for how many pairs there is room where they go that are left over.
type stretchParams struct {
	Table                      Table
	Rows                       frame.Partition
	Windows                    uint64 // of a stretch
	Empty                      uint64 // the table has no pairs, and never had
	LeftKeys, LeftValues, Left uint64 // where rows go that are left over: see insertParams
	LeftPositions              uint64
	Told                       uint64 // address of a bitmap by positions: rows whose keys are new
	Flags                      uint64 // of tell_rows: a byte for each bit of Told
	Old                        Region // whose pairs go into the table, which need not be filled
}

const (
	stretchBytes   = 34 << 10 // of shared memory, of a stretch
	stretchTold    = 40 << 10 // the same, where rows are told whether their keys are new
	stretchListed  = 1 << 9   // rows that a block lists whose first windows are full: a multiple of its threads
	stretchThreads = 256      // of a block
	stretchBeside  = 4 << 10  // of shared memory: orders of slots, counters, what block-wide functions have
)

// Of a multimap, whose stretch is a neighbourhood: six blocks of 256 threads are on a multiprocessor of an H200, or five of those that sort.
const (
	multiBytes  = 36 << 10 // as stretchBytes
	multiListed = 1 << 8   // rows that a block lists for which there is no room: of keys with 64 values, 24 on average
	multiBeside = 1 << 8   // of shared memory: counters
)

// multiOrder is the shared memory of a block that sorts rows of a multimap's stretch of so many windows: their numbers, of two bytes.
func (c config) multiOrder(windows int64) int { return 2 * c.window * int(windows) }

// stretchFixed is the shared memory of a block beside its stretch: listed rows, orders of slots, and what is small.
func (c config) stretchFixed() int {
	if c.far {
		return multiListed*(c.keyBytes+c.valueBytes) + multiBeside
	}
	return stretchListed*(c.keyBytes+c.valueBytes) + stretchBeside
}

// stretchWindows is how many windows are a stretch of so many bytes at most, with what is beside them: whole
// neighbourhoods of a table that has so many windows. 0 says that the kernel is not for these windows.
func (c config) stretchWindows(all int64, most int, tells bool) int64 {
	bytes := c.window * c.slotBytes()
	if c.layout != Packed || c.bucket > 0 || c.window > 16 || bytes%16 != 0 {
		return 0
	}
	windows := int64(most / (bytes + c.stretchMarks(tells)))
	return windows / neighbourhood * neighbourhood &^ (c.neighbours(all) - 1)
}

// stretchMarks is what a block has in shared memory beside each window: its mark and, where rows are told whether their
// keys are new, the position of each slot's row.
func (c config) stretchMarks(tells bool) int {
	if tells {
		return 4 + 4*c.window
	}
	return 4
}

// When batches are sorted by regions: see frame.Regions.
const (
	regionsFrom = 1.28 // L2 caches
	regionRows  = 1 << 18

	stretchesOfRegion = 448 // of rows that package shard has sorted for an insert, on average
	// Such rows come as pairs if the table has room for them and this many standard deviations more, because the shares
	// of tables differ by chance.
	pairsSpread = 4
)

// findParams are the parameters of find and erase. Values and Found may be 0.
type findParams struct {
	Table  Table
	Keys   uint64
	Values uint64
	Found  uint64
	N      uint64
	When   uint64 // of find in the program of batches with a condition: bytes
	Span   uint64 // of find: rows in a row of each block; 0: in strides of the grid
	Longs  longParams
}

// slotsParams are the parameters of the kernels that go over all slots, or, export, over Slots of them from First on,
// or, rehash, over all from First on.
type slotsParams struct {
	Table     Table
	First     uint64
	Slots     uint64
	Target    Table  // of rehash
	Keys      uint64 // of export and distinct
	Values    uint64
	Histogram uint64 // of probe_lengths: histogramBins counters, then the sum
	Limit     uint64
	Span      uint64 // of rehash: see frame.Placing
	Room      uint64 // of rehash of a MultiBucket: only slots with room are copied
}

// countsParams are the parameters of a counter's kernels over all slots. Keys with counts of Least to Most are meant.
type countsParams struct {
	Table       Table
	Least, Most uint64
	Keys        uint64 // of export_counts: so many as Limit
	Values      uint64
	Limit       uint64
	Histogram   uint64 // of counts: u64, Bins of them
	Bins        uint64
}

// sharedBins are the bins of a histogram of counts that a block keeps in shared memory: most keys come seldom.
const sharedBins = 1024

const (
	leastTogether = 4 // rows of one key in a row of 32 that Update makes one of: fewer are no trouble to one another
	keysTogether  = 4 // keys that it looks for in such a row
)

// often is how many keys a block of Update brings together that come often.
const often = 512

// mostCounted is the most rows that are counted in one launch: no more than half of what a count of 4 bytes can be (kernel/combine.cuh).
const mostCounted = 1 << 30

// selectParams are the parameters of absent, which copies the keys that were not found, and counts them in Counters.Exported.
type selectParams struct {
	Table Table
	Keys  uint64
	Found uint64
	N     uint64
	Out   uint64
}

// findAllParams are the parameters of count_all and the other kernels of FindAll.
type findAllParams struct {
	Table Table
	Rows  frame.FindAll
	Longs longParams
}

// longParams are what look-ups through long chains are dealt out by: see long.go. Addresses; all 0: each goes through its chain alone.
type longParams struct {
	Keys    uint64 // of longKey, one a hint
	List    uint64 // of u32, the numbers of the hints that were asked for
	Rows    uint64 // of longRow
	Lengths uint64 // of u64: how many there are in List, in Rows, which has room for longRows, and in Parts
	Parts   uint64 // of u64, one for each part of a chain that is asked for: how many values of the key come before its
	Room    uint64 // of Parts
}

// longKey is what is asked of a hint's key.
type longKey struct {
	Count uint64 // of its values, and longAsked
	Row   uint64 // that asked first
	Parts uint64 // the number of its chain's first, and one; 0 if there is no room for them
}

// longRow is a row whose values are to be written.
type longRow struct {
	Number uint64 // of the hint
	To     uint64 // where they go among all values
}

const (
	// A chain of longChain full windows is long. Look-ups ask for that every longAsk windows.
	longChain, longAsk = 256, 32
	longPart           = 128 // windows of a warp
	longParts          = 16  // windows of the table for each part of a chain that there is room for
	longTurn           = 61  // the parts of the next chain begin with so many warps further on
	longValues         = 512 // values that a key has at least, if its chain is asked for when they are written
	longRows           = 1 << 14
	longAsked          = 1 << 63
	longMark           = 0xff000000 // above the number of a hint, in the place of a count
)

// dealAlone is how many items the lanes of a warp have each, on average, from which on those of one lane are dealt out alone.
const dealAlone = 24

// overflowBits is the width of a window's overflow filter, a power of two up to 32. A key that goes past the window
// clears one of the bits, so a look-up whose bit is set need not go on. Wider filters are asked in vain less often, and
// take more of the L2 cache, where they are meant to stay. A look-up in a multimap always goes to the end of its chain: so
// wider ones spare it more. Of keys with one value each, at a load factor of 0.8, it reads 1.20 windows instead of 1.29.
const overflowBits, multiOverflowBits = 4, 8

func (c config) overflowBits() uint64 {
	if c.around > 1 {
		return multiOverflowBits
	}
	return overflowBits
}

// overflowShift is where the hash's bits stand that choose the bit of the filter: above those of the first slot. The lowest
// at nearShift may be among them, because what stands there is made odd.
const overflowShift = 8

// sectorBytes is what a lane on its own reads at once: the least that a GPU's memory gives.
const sectorBytes = 32

// histogramBins counts probe lengths of 1, 2, … and, in the last, all that are longer.
const histogramBins = len(table.Stats{}.Probes)

// overflowBytes is the size of a region's filter.
func (c config) overflowBytes(windows int64) int64 {
	return (windows*int64(c.overflowBits()) + 31) / 32 * 4
}

// forEachParams are the parameters of for_each and for_all.
type forEachParams struct {
	Table Table
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64 // the bits of the arguments, by name
}

func layouts() []any {
	return []any{Region{}, Table{}, hint{}, Counters{}, insertParams{}, partitionParams{}, findParams{}, slotsParams{}, stretchParams{}, selectParams{}, countsParams{}, combineParams{}, groupParams{}, findAllParams{}, longParams{}, longKey{}, longRow{}}
}

func defines(set bool) []device.Define {
	return append(append(frame.PartitionDefines(), frame.StatusDefines()...), []device.Define{
		{Name: "WARPCORE_PROBES_UNTOLD", Value: probesUntold},
		{Name: "WARPCORE_NEIGHBOURHOOD", Value: neighbourhood},
		{Name: "WARPCORE_NEAR_SHIFT", Value: nearShift},
		{Name: "WARPCORE_INVERSE_BITS", Value: inverseBits},
		{Name: "WARPCORE_OVERFLOW_SHIFT", Value: overflowShift},
		{Name: "WARPCORE_SECTOR_BYTES", Value: sectorBytes},
		{Name: "WARPCORE_HISTOGRAM_BINS", Value: histogramBins},
		{Name: "WARPCORE_LEAST_TOGETHER", Value: leastTogether},
		{Name: "WARPCORE_KEYS_TOGETHER", Value: keysTogether},
		{Name: "WARPCORE_OFTEN", Value: often},
		{Name: "WARPCORE_COMBINE_THREADS", Value: combineThreads},
		{Name: "WARPCORE_LEAST_ENTRIES", Value: leastEntries},
		{Name: "WARPCORE_SHARED_BINS", Value: sharedBins},
		{Name: "WARPCORE_STRETCH_LISTED", Value: stretchListed},
		{Name: "WARPCORE_MULTI_LISTED", Value: multiListed},
		{Name: "WARPCORE_MULTI_BESIDE", Value: multiBeside},
		{Name: "WARPCORE_STRETCH_THREADS", Value: stretchThreads},
		{Name: "WARPCORE_STRETCH_BESIDE", Value: stretchBeside},
		{Name: "WARPCORE_SET", Value: set},
		{Name: "WARPCORE_MAP", Value: !set},
		{Name: "WARPCORE_MULTI", Value: false},
		{Name: "WARPCORE_COMBINES", Value: false},
		{Name: "WARPCORE_CHOOSES", Value: false},
		{Name: "WARPCORE_HINT_ASK", Value: hintAsk},
		{Name: "WARPCORE_HINT_AGAIN", Value: hintAgain},
		{Name: "WARPCORE_HINT_FROM", Value: hintFrom},
		{Name: "WARPCORE_HINT_STEP", Value: hintStep},
		{Name: "WARPCORE_HINT_PLACES", Value: hintPlaces},
		{Name: "WARPCORE_SIDE_HINTS", Value: sideHints},
		{Name: "WARPCORE_DEAL_ALONE", Value: dealAlone},
		{Name: "WARPCORE_LONG_WINDOWS", Value: longWindows},
		{Name: "WARPCORE_PIECE_WINDOWS", Value: pieceWindows},
		{Name: "WARPCORE_LONG_CHAIN", Value: longChain},
		{Name: "WARPCORE_LONG_ASK", Value: longAsk},
		{Name: "WARPCORE_LONG_PART", Value: longPart},
		{Name: "WARPCORE_LONG_TURN", Value: longTurn},
		{Name: "WARPCORE_LONG_VALUES", Value: longValues},
		{Name: "WARPCORE_LONG_ROWS", Value: longRows},
		{Name: "WARPCORE_LONG_ASKED", Value: fmt.Sprintf("%#xull", uint64(longAsked))},
		{Name: "WARPCORE_LONG_MARK", Value: fmt.Sprintf("%#xu", uint32(longMark))},
	}...)
}

// windowsFor is the number of windows that hold n slots: a prime, or 1.
func windowsFor(slots int64, window int) int64 {
	w := max(1, (slots+int64(window)-1)/int64(window))
	if w <= 1 {
		return 1
	}
	for !isPrime(w) {
		w++
	}
	return w
}

// windowsFor is the number of windows of a table's main region: windowsFor, or a prime number of neighbourhoods.
func (c config) windowsFor(slots int64) int64 {
	w := max(1, (slots+int64(c.window)-1)/int64(c.window))
	for around := c.around; around > 1; around /= 2 {
		if w/around >= c.least {
			return around * windowsFor((w+around-1)/around, 1)
		}
	}
	return windowsFor(slots, c.window)
}

// windowsUpTo is the largest such number up to n.
func (c config) windowsUpTo(n int64) int64 {
	for around := c.around; around > 1; around /= 2 {
		if n/around >= c.least {
			return around * primeUpTo(n/around)
		}
	}
	return primeUpTo(n)
}

// neighbours is how many windows a neighbourhood of a far table has that has so many windows.
func (c config) neighbours(windows int64) int64 { return min(windows&-windows, max(1, c.around)) }

// isPrime is the test of Miller and Rabin with the first 12 primes as bases, which is exact below 2⁶⁴ (Sorenson and Webster, 2015). A table that grows
// asks for some primes: in 5 µs each, where math/big takes 40.
func isPrime(n int64) bool {
	bases := [...]uint64{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}
	m := uint64(n)
	for _, p := range bases {
		if n < 2 || m%p == 0 {
			return m == p
		}
	}
	times := func(a, b uint64) uint64 {
		high, low := bits.Mul64(a, b)
		_, rest := bits.Div64(high, low, m) // high is below m, as a and b are
		return rest
	}
	twos := bits.TrailingZeros64(m - 1)
	for _, base := range bases {
		x, square := uint64(1), base%m
		for e := (m - 1) >> twos; e > 0; e >>= 1 {
			if e&1 == 1 {
				x = times(x, square)
			}
			square = times(square, square)
		}
		prime := x == 1
		for i := 0; i < twos && !prime; i++ {
			prime = x == m-1
			x = times(x, x)
		}
		if !prime {
			return false
		}
	}
	return true
}

// primeUpTo is the largest prime up to n, or n if that is below 2.
func primeUpTo(n int64) int64 {
	for n > 2 && !isPrime(n) {
		n--
	}
	return n
}

// keyBits are the bits of a key: the higher word is 0 but for keys of 16 bytes.
type keyBits struct{ lo, hi uint64 }

func (k keyBits) String() string {
	if k.hi == 0 {
		return fmt.Sprintf("%#x", k.lo)
	}
	return fmt.Sprintf("%#x%016x", k.hi, k.lo)
}

// mark is what the pattern of a key says of its slot.
type mark int

const (
	none mark = iota
	empty
	tombstone
	busy
)

// marks are those of a word of a key: of 16 bytes it is the lower, where the higher is all ones.
func (c config) marks(k keyBits) (m kernel.Marks, ok bool) {
	return kernel.MarksOf(min(8, c.keyBytes)), c.keyBytes <= 8 || k.hi == ^uint64(0)
}

func (c config) mark(k keyBits) mark {
	m, ok := c.marks(k)
	if !ok {
		return none
	}
	return map[uint64]mark{m.Empty: empty, m.Tombstone: tombstone, m.Busy: busy}[k.lo]
}

// alias is how a key stands in its slot, and whether that is on the side; real is the key as users know it.
func (c config) alias(k keyBits) (stored keyBits, side bool) {
	if m, ok := c.marks(k); ok {
		k.lo, side = m.Alias(k.lo)
	}
	return k, side
}

func (c config) real(stored keyBits, side bool) keyBits {
	if m, ok := c.marks(stored); ok {
		stored.lo = m.Real(stored.lo, side)
	}
	return stored
}

// probe is the probe sequence of a key: the Go twin of warpcore::Probe.
type probe struct {
	side                  bool
	stored                keyBits
	window, step, windows uint64
	number, near, hop     uint64 // of the window, from 1 on; how many are in a neighbourhood; and how far on the next of these is
	around, turn          uint64 // of a far table: the windows of a neighbourhood, and of a turn there
	first                 uint64 // slot of a window that comes first
	overflow              uint64 // bit of a window's overflow filter
}

func (c config) probe(t *Table, key keyBits) probe {
	p := probe{windows: t.Main.Windows, number: 1, near: uint64(c.near())}
	if p.stored, p.side = c.alias(key); p.side {
		p.windows = t.Side.Windows
	}
	var h uint64
	if c.keyBytes == 16 {
		h = kernel.Hash64(c.hash, p.stored.hi, t.Seed)
	}
	h = kernel.Hash64(c.hash, h^p.stored.lo, t.Seed)
	p.window = kernel.Reduce(h, p.windows)
	p.first = h & uint64(c.window-1)
	p.overflow = h >> overflowShift & (c.overflowBits() - 1)
	p.hop = h>>nearShift&(neighbourhood-1) | 1
	if c.far {
		p.around = uint64(c.neighbours(int64(p.windows)))
		p.turn = min(p.around, multiTurn)
		p.hop = h>>nearShift&(p.around-1) | 1
		if n := p.windows / p.around; n > 1 {
			p.step = p.around * (1 + kernel.Reduce(kernel.Seeded64(h, t.Seed), n-1))
		}
	} else if p.windows > 1 {
		p.step = 1 + kernel.Reduce(kernel.Seeded64(h, t.Seed), p.windows-1)
	}
	return p
}

func (p *probe) advance() {
	p.number++
	if p.around > 1 {
		in := p.window % p.around
		p.window -= in
		switch n := p.number - 1; {
		case n%p.turn != 0:
			in += p.hop
		default:
			p.window = (p.window + p.step) % p.windows
			if in += p.hop; n%(p.windows/p.around*p.turn) != 0 {
				in -= p.turn * p.hop
			}
		}
		p.window += in % p.around
		return
	}
	if p.number <= p.near {
		begin := p.window &^ (neighbourhood - 1)
		p.window = begin + (p.window-begin+p.hop)%min(neighbourhood, p.windows-begin)
		return
	}
	p.window += p.step
	if p.window >= p.windows {
		p.window -= p.windows
	}
}

// filterConfig is what a filter's kernels are compiled for.
type filterConfig struct {
	keyBytes, block, hashes, hash int
}

const (
	// A block is words of filterWord bytes, which one atomic operation changes, 4 or 8; a key has its bits in filterSpread of them, 1 to 3,
	// so that an insert is so many operations. Bits in fewer words make a few more false positives; words of 4 bytes
	// take a third word to have as few as two of 8 bytes, and are changed by operations that return nothing, of which GPUs have none of
	// 8 bytes.
	filterWord   = 8
	filterSpread = 2
	leastBlock   = 8
	mostBlock    = 64 // as much as a GPU reads at random in the time of a sector
	mostHashes   = 16
	filterBits   = 8 * filterWord // of a word
	// Of a key's random number the lowest bits choose the words, and the next the first filterFirst bits in them. Each number after the
	// first gives filterNext bits.
	filterBitIndex   = 4 + filterWord/4 // bits of the number of a bit in a word
	filterWordIndex  = 4                // bits that choose the first word
	filterWordChoice = 9                // bits that choose each other word among those that are left
	filterFirst      = (64 - filterWordIndex - (filterSpread-1)*filterWordChoice) / filterBitIndex
	filterNext       = 64 / filterBitIndex
)

// words is the number of words of a block, and spread in how many of them a key has bits: in the j-th chosen so many as share says.
func (c filterConfig) words() int { return c.block / filterWord }

func (c filterConfig) spread() int { return min(filterSpread, c.words(), c.hashes) }

func (c filterConfig) share(j int) int { return (c.hashes + c.spread() - 1 - j) / c.spread() }

func (c filterConfig) check() error {
	switch {
	case c.block < leastBlock || c.block > mostBlock || c.block&(c.block-1) != 0:
		return fmt.Errorf("warpcore: a block of %d bytes (want 8, 16, 32 or 64; 0 for the default)", c.block)
	case c.hashes < 0 || c.hashes > mostHashes:
		return fmt.Errorf("warpcore: %d hash functions (want 1 to %d; 0 for those with the fewest false positives)", c.hashes, mostHashes)
	}
	return nil
}

// header is the C++ struct that a kernel names a filter's type by.
func (c filterConfig) header() string {
	return fmt.Sprintf(`#pragma once
#include "types.cuh"
struct config {
    static constexpr int KEY_BYTES = %d, WORDS = %d, SPREAD = %d, HASHES = %d, HASH = %d;
    typedef bits_of<KEY_BYTES>::type key;
};
`, c.keyBytes, c.words(), c.spread(), c.hashes, c.hash)
}

// FilterTable is a filter as kernels take it, by value. It has Blocks blocks at address Words.
type FilterTable struct {
	Words  uint64
	Blocks uint64
	Seed   uint64
}

// filterParams are the parameters of filter_insert and filter_contains.
type filterParams struct {
	Filter FilterTable
	Keys   uint64
	Found  uint64 // of filter_contains: bytes
	N      uint64
	Span   uint64 // of filter_insert: see frame.Placing
}

// filterPartitionParams are the parameters of the kernels that bring keys in the order of the filter's regions.
type filterPartitionParams struct {
	Filter FilterTable
	Rows   frame.Partition
}

// filterStatsParams are the parameters of filter_stats.
type filterStatsParams struct {
	Filter FilterTable
	Sums   uint64 // address of filterSums
	Shift  uint64 // rates are summed in units of 2^-Shift, so that no sum overflows
}

// filterSums are what filter_stats adds up, over all blocks.
type filterSums struct {
	Bits uint64 // that are set
	Rate uint64 // of false positives
}

// filterUnionParams are the parameters of filter_union.
type filterUnionParams struct {
	Filter, Other FilterTable
}

// filterEach is how many keys a lane has under way at once.
const filterEach = 4

const (
	// filterStretchBytes is the most that a stretch of a filter has, so that several blocks are resident on a multiprocessor.
	filterStretchBytes = 32 << 10
	// filterStretchKey: batches with a key for so many bytes go in by stretches.
	filterStretchKey = 32
)

func filterLayouts() []any {
	return []any{FilterTable{}, filterParams{}, filterPartitionParams{}, filterStatsParams{}, filterSums{}, filterUnionParams{}}
}

func filterDefines() []device.Define {
	return append(frame.PartitionDefines(), []device.Define{
		{Name: "WARPCORE_FILTER_WORD", Value: filterWord},
		{Name: "WARPCORE_FILTER_BITS", Value: filterBits},
		{Name: "WARPCORE_FILTER_BIT_INDEX", Value: filterBitIndex},
		{Name: "WARPCORE_FILTER_WORD_INDEX", Value: filterWordIndex},
		{Name: "WARPCORE_FILTER_WORD_CHOICE", Value: filterWordChoice},
		{Name: "WARPCORE_FILTER_FIRST", Value: filterFirst},
		{Name: "WARPCORE_FILTER_NEXT", Value: filterNext},
		{Name: "WARPCORE_FILTER_EACH", Value: filterEach},
	}...)
}

// Numbers of a MultiBucket.
const (
	// bucketSlot is how large its slots are by default: a sector of a GPU's memory; and wideBucketSlot, with values of 16 bytes.
	bucketSlot, wideBucketSlot = sectorBytes, 2 * sectorBytes
	mostBucket                 = 256 // values of a slot
	leastBucketWindow          = 2   // slots, by default
)

// Hints are of keys with many values.
const (
	hintBytes = 16 // of a hint
	// A table has one for so many windows, if that makes so many of them, and no more than so many.
	hintShare, leastHints, mostHints = 16, 64, 1 << 20
	sideHints                        = sideSlots // those of the side region: more than there are reserved keys
	hintPlaces                       = 4         // where a key's may be, one behind the other
	// hintFrom is how many windows of a chain must be full before a row that is inserted leaves a hint of it, and each hintStep further ones move it.
	hintFrom, hintStep = 32, 16
	// The number of the window at which a row asks whether there is one, and after how many it asks again.
	hintAsk, hintAgain = 9, 16
	// Where rows of a key come together, those of keys with longWindows windows full of values, or a longer chain, are inserted by several tiles,
	// pieceWindows windows full at a time.
	longWindows, pieceWindows = 32, 8
)

// hints is how many hints a multimap has of keys of its main region, a power of two, or 0.
func hints(windows int64) int64 {
	n := min(mostHints, windows/hintShare)
	if n < leastHints {
		return 0
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

// bucketConfig is the table under a MultiBucket: slots of a key, how many values the slot can still get (u32, right behind the key, counting
// down from all ones), and so many values. 0 is the default.
func bucketConfig(keyBytes, valueBytes, bucket int) config {
	c := config{keyBytes: keyBytes, valueBytes: valueBytes, layout: AoS, bucket: max(1, bucket), far: true}
	if bucket == 0 {
		slot := bucketSlot
		if valueBytes == 16 {
			slot = wideBucketSlot
		}
		c.bucket = (slot - c.valueOffset()) / valueBytes
	}
	return c
}

// stashBytes is what FindAll puts aside for each key: its first value, or of a MultiBucket the address of its first slot.
func (c config) stashBytes() int {
	if c.bucket > 0 {
		return max(8, c.valueBytes)
	}
	return c.valueBytes
}

// Numbers of a BucketList: see bucketlist.cuh.
const (
	// A bucket's word: the state in the low bits, whether the bucket has a header, its size, and its place in the pool. A size is
	// listMantissa bits, shifted by the number above them: exact below 2¹⁶.
	listMoreBit    = 2
	listSizeShift  = 3
	listMantissa   = 16
	listPlaceShift = 24
	// headerBytes begin every bucket but a list's first: the word of the bucket before, and how many values are in all before.
	headerBytes = 12
	// listMost is the most values of a key: so much less than 2³² that the rows of a piece cannot make a count overflow.
	listMost = 0xf0000000
	listRows = 1 << 27 // of a piece
	// largestBucket bounds, in values, how large buckets get by λ; one that takes more values at once is larger.
	largestBucket = 1 << 20
	// leastShare: a bucket has one place for so many values of its list, at least, so that lists have few buckets whatever λ.
	leastShare = 64
	// growthOne is a λ of 1.
	growthOne = 1 << 16
	// longList: lists of more values are copied by many warps, so many values each at a time.
	longList = 1 << 12
	// packLong is the same for lists that are laid anew.
	packLong = 1 << 16
	// linkRows are the rows of a thread that looks for lists that want a bucket.
	linkRows = 4
	// aloneRounds: lanes of a warp that have one list are sought until so many lanes were found to be alone with theirs.
	aloneRounds = 2
	// listWaits bounds the rounds that an insert waits for another lane to link a bucket; each is twice as long as the one before, up to
	// longestWait pauses.
	listWaits   = 1 << 16
	longestWait = 64
	// linksBit marks, beside the address of a list's slot, the row that links the next bucket.
	linksBit = 63
)

// Numbers of inserts stretch by stretch: see stretch_list.cu.
const (
	listStretchBytes = 37 << 10 // of shared memory, of a stretch: six blocks of 256 threads are on a multiprocessor of an H200
	listSlotBits     = 12       // that number the slots of a stretch; so many fewer than 32 number the rows of one of its keys
	listBeside       = 320      // of shared memory, beside a stretch
	listWaves        = 8        // a stretch is smaller where a GPU would not have so many for each block that is resident
	listResident     = 6        // blocks of a multiprocessor
	listCrowd        = 1 << 18  // rows of one key with which one block would be busy for longer than all others
)

// listStretchShared is how many bytes a stretch has in shared memory, of so many windows: of each slot the key, how many rows that has, and where their
// values go; and the filters.
func (c config) listStretchShared(windows int64) int64 {
	return windows*int64(c.window*(c.keyBytes+4+4)) + c.overflowBytes(windows)
}

// listStretchWindows is how many windows are a stretch of so many bytes at most: whole neighbourhoods.
func (c config) listStretchWindows(most int) int64 {
	windows := int64(most) * neighbourhood / c.listStretchShared(neighbourhood)
	return min(windows, 1<<listSlotBits/int64(c.window)) / neighbourhood * neighbourhood
}

// How the bulk insert sizes buckets.
const (
	bucketsGrow  = iota // by s₀ and λ
	bucketsExact        // what the batch brings, and no more
	bucketsFit          // the same, and the last one what the pool has left: before a batch is refused
)

// listConfig is what a BucketList's kernels are compiled for, beside the config of its keys.
type listConfig struct{ valueBytes int }

// header is how many places of a pool a bucket's header takes.
func (c listConfig) header() int { return (headerBytes + c.valueBytes - 1) / c.valueBytes }

// keyConfig is the table of keys under a BucketList: slots of 16 bytes, or 32 with keys of 8, of which the key, how many values the
// list can still get (u32, right behind the key), and the word of its last bucket (u64, at valueOffset).
func keyConfig(keyBytes, hash int) config {
	c := config{keyBytes: keyBytes, valueBytes: 2 * keyBytes, layout: AoS, hash: hash}
	c.window = windowBytes / c.slotBytes()
	return c
}

// listHeader is the C++ struct that a kernel names a BucketList's type by. A slot's value, as the kernels see it, is the user's.
func (c config) listHeader(name string, l listConfig) string {
	return fmt.Sprintf(`#pragma once
#include "keys.cuh"
struct %s : Marks<%d, %d> {
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, WINDOW = %d, HASH = %d;
    static constexpr u32 NEAR = %d, AROUND = 1, TURN = 1, OVERFLOW_BITS = %d, HEADER = %d;
    static constexpr bool PACKED = false, SOA = false;
    typedef bits_of<VALUE_BYTES>::type value;
};
`, name, c.keyBytes, kernel.Reserved, c.keyBytes, l.valueBytes, c.slotBytes(), c.valueOffset(), c.window, c.hash, c.near(), c.overflowBits(), l.header())
}

// bucket is a bucket's word.
type bucket uint64

func (b bucket) state() uint64 { return uint64(b) & 3 }
func (b bucket) some() bool    { return b|3 != ^bucket(0) }
func (b bucket) more() bool    { return b>>listMoreBit&1 == 1 }
func (b bucket) place() uint64 { return uint64(b) >> listPlaceShift }
func (b bucket) size() uint64 {
	code := uint64(b) >> listSizeShift & (1<<(listPlaceShift-listSizeShift) - 1)
	return code & (1<<listMantissa - 1) << (code >> listMantissa)
}

// The states of a list, of Figure 3.
const (
	listReady = iota
	listBlocked
	listFull
	listNone // no bucket yet: all other bits are ones, too
)

// Lists is a BucketList as kernels take it, by value.
type Lists struct {
	Keys     Table  // from key to list
	Pool     uint64 // address of the places that buckets are made of, each as large as a value
	Room     uint64 // places
	Counters uint64 // address of ListCounters
	First    uint64 // s₀
	Growth   uint64 // λ, in units of 1/growthOne
}

// ListCounters lie in device memory; kernels add to them.
type ListCounters struct {
	Added   uint64 // values that were put in
	Removed uint64 // values that were removed with their keys
	Used    uint64 // places given out; if it is more than Room, Unused of them were not given out
	Unused  uint64 // places from the first bucket on that did not fit
	Garbage uint64 // of the places given out, those of lists that were removed

	Failed     uint64 // positions that found no room
	KeysFailed uint64 // of these, for want of a slot
	Short      uint64 // places of the buckets that did not fit
	Overfull   uint64 // lists that have as many values as can be
	Exported   uint64
	Absent     uint64 // rows whose key is not there
	Long       uint64 // not 0: a key of the batch has a long list
	Packed     uint64 // places given out in a new pool
	Left       uint64 // rows that insert_groups or insert_stretch_list left
}

func (k *ListCounters) live() int64 { return int64(k.Added - k.Removed) }

// used is how many places of the pool are given out.
func (k *ListCounters) used(room int64) int64 {
	if int64(k.Used) > room {
		return room - int64(k.Unused)
	}
	return int64(k.Used)
}

// listInsertParams are the parameters of the kernels of a bulk insert.
type listInsertParams struct {
	Lists    Lists
	Rows     frame.Placing
	Limit    uint64 // windows a search may read
	Where    uint64 // u64 a row: the address of its list's slot, until its value is written
	Ordinals uint64 // u32 a row: the number of its value in the list
	Span     uint64 // rows of a block, of the kernels that go through them in order
	Mode     uint64
	First    uint64 // number of the first row: positions begin there
	Starts   uint64 // not 0: only the rows that insert_groups left of these parts are inserted,
	Parts    uint64 // of which there are so many
	Most     uint64 // not 0: places of a new bucket, at most, for each row that it takes, beside its header
}

// listGroupParams are the parameters of insert_groups.
type listGroupParams struct {
	Lists Lists
	Rows  frame.Partition
	Limit uint64
	Mode  uint64
}

// listStretchParams are the parameters of insert_stretch_list and gather_left: Rows in the order of stretches, with Starts.
type listStretchParams struct {
	Lists                Lists
	Rows                 frame.Partition
	Windows              uint64 // of a stretch
	Mode                 uint64
	Where                uint64 // u32 a row: its key's slot in the stretch, and above it the row's number among the rows of that key
	LeftRows             uint64 // u32: the numbers of rows that are left over, as many as ListCounters.Left
	Left                 uint64 // of gather_left: how many these are,
	LeftKeys, LeftValues uint64 // and where they go; LeftValues may be 0
}

// listFindParams are the parameters of find, erase, block_lists and count_absent. Found may be 0.
type listFindParams struct {
	Lists Lists
	Keys  uint64
	Found uint64
	N     uint64
}

// listAllParams are the parameters of count_all and the other kernels of FindAll.
type listAllParams struct {
	Lists Lists
	Rows  frame.FindAll
}

// listSlotsParams are the parameters of the kernels that go over all slots.
type listSlotsParams struct {
	Lists     Lists
	Pool      uint64 // of pack: the new one, of Limit places; 0 to count what lists take alone
	Long      uint64 // address of longEntry, those whose values are still to be copied
	LongCount uint64 // address of their number
	Keys      uint64 // of export_keys and export_pairs
	Values    uint64 // of export_pairs, which goes over Slots slots from First on
	First     uint64
	Slots     uint64
	Limit     uint64
	Histogram uint64 // of probe_lengths
}

// longEntry is a list that many warps copy.
type longEntry struct {
	Last  uint64
	Place uint64 // in the new pool
	Count uint64
}

// listCallbackParams are the parameters of for_each and for_all of a BucketList.
type listCallbackParams struct {
	Lists Lists
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64
}

func listLayouts() []any {
	return append(layouts(), Lists{}, ListCounters{}, listInsertParams{}, listGroupParams{}, listStretchParams{}, listFindParams{}, listAllParams{}, listSlotsParams{}, longEntry{})
}

func listDefines() []device.Define {
	return append(defines(false), []device.Define{
		{Name: "LIST_MORE_BIT", Value: listMoreBit},
		{Name: "LIST_SIZE_SHIFT", Value: listSizeShift},
		{Name: "LIST_MANTISSA", Value: listMantissa},
		{Name: "LIST_PLACE_SHIFT", Value: listPlaceShift},
		{Name: "LIST_MOST", Value: fmt.Sprintf("%du", uint32(listMost))},
		{Name: "LIST_LARGEST", Value: largestBucket},
		{Name: "LIST_LEAST_SHARE", Value: leastShare},
		{Name: "LIST_GROWTH_ONE", Value: growthOne},
		{Name: "LIST_LONG", Value: longList},
		{Name: "LIST_PACK_LONG", Value: packLong},
		{Name: "LIST_LINK_ROWS", Value: linkRows},
		{Name: "LIST_ALONE", Value: aloneRounds},
		{Name: "LIST_WAITS", Value: listWaits},
		{Name: "LIST_LONGEST_WAIT", Value: longestWait},
		{Name: "LIST_LINKS_BIT", Value: linksBit},
		{Name: "LIST_SLOT_BITS", Value: listSlotBits},
		{Name: "LIST_BESIDE", Value: listBeside},
		{Name: "LIST_READY", Value: listReady},
		{Name: "LIST_BLOCKED", Value: listBlocked},
		{Name: "LIST_FULL", Value: listFull},
		{Name: "LIST_NONE", Value: listNone},
		{Name: "LIST_GROW", Value: bucketsGrow},
		{Name: "LIST_EXACT", Value: bucketsExact},
		{Name: "LIST_FIT", Value: bucketsFit},
	}...)
}
