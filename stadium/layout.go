package stadium

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// config is what a table's kernels are compiled for. Every layout number follows from it, here and nowhere else.
type config struct {
	keyBytes, valueBytes int
	ticket               int // bits of a ticket
	hash                 int
}

const (
	leastKey, mostKey = 4, 256
	mostValue         = 4096
	widthStep         = 4 // widths are multiples of it

	// beyondBits is the width of a bucket's filter of keys that went on to other buckets: the highest bits of its tickets' words.
	beyondBits = 8
	// regionShift is the binary logarithm of the buckets of a region of a large table.
	regionShift = 11
	mostPane    = 512 << 20
	// leastPane: smaller ones are not worth an allocation of pinned memory each, on however small a device.
	leastPane = 64 << 10
	// maxPanes is the most panes of a table. They are larger where there would be more.
	maxPanes = 2048
	// inHost is the bit of a pane's address that tells that it is in host memory.
	inHost = 1

	// leastRegions is how many regions a table has at least, unless it is very small: sizes are so much apart.
	leastRegions = 32

	// Where the hash's bits stand that choose a key's bucket in its region, its first slot there, its info bits, and its bit of the filter.
	// The high bits choose the region.
	firstShift  = regionShift
	firstBits   = 8
	infoShift   = firstShift + firstBits
	beyondShift = infoShift + 15
)

// unit is the most bytes, up to 16, that move at once to and from places that are multiples of all these numbers.
func unit(places ...int) int {
	all := 16
	for _, p := range places {
		all |= p
	}
	return all & -all
}

// packing is the unit that a slot is laid out by: the largest for which padding takes a quarter at most.
func (c config) packing() int {
	for u := 16; u > widthStep; u /= 2 {
		if padded := roundUp(roundUp(c.keyBytes, u)+c.valueBytes, u); u <= max(c.keyBytes, c.valueBytes) && 4*padded <= 5*(c.keyBytes+c.valueBytes) {
			return u
		}
	}
	return widthStep
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// valueOffset is where the value stands in a slot.
func (c config) valueOffset() int { return roundUp(c.keyBytes, c.packing()) }

// slotBytes is the distance of slots.
func (c config) slotBytes() int { return roundUp(c.valueOffset()+c.valueBytes, c.packing()) }

// ticketBytes is the size of a bucket's tickets and its filter, which are read at once.
func (c config) ticketBytes() int { return max(4, 2*c.ticket) }

// slots is the number of slots of a bucket.
func (c config) slots() int { return (8*c.ticketBytes() - beyondBits) / c.ticket }

// infoBits is how many bits of a ticket tell of the key.
func (c config) infoBits() int { return c.ticket - 1 }

func (c config) check() error {
	switch c.ticket {
	case 1, 2, 4, 8, 16:
		return nil
	}
	return fmt.Errorf("stadium: tickets of %d bits (want 1, 2, 4, 8 or 16)", c.ticket)
}

// header is the C++ struct that a kernel names a table's type by.
func (c config) header(name string) string {
	return fmt.Sprintf(`#pragma once
#include "types.cuh"
namespace stadium {
template <int BYTES> struct Words;
}
struct %s {
    typedef %s key;
    typedef %s value;
    static constexpr int KEY_BYTES = %d, VALUE_BYTES = %d, SLOT_BYTES = %d, VALUE_OFFSET = %d, TICKET_BITS = %d, HASH = %d;
    static constexpr int KEY_UNIT = %d, VALUE_UNIT = %d, SLOTS = %d, TICKET_BYTES = %d;
};
`, name, typeOf(c.keyBytes), typeOf(c.valueBytes), c.keyBytes, c.valueBytes, c.slotBytes(), c.valueOffset(), c.ticket, c.hash,
		unit(c.keyBytes, c.slotBytes()), c.valueUnit(), c.slots(), c.ticketBytes())
}

// valueUnit is what values move by.
func (c config) valueUnit() int { return unit(c.valueBytes, c.valueOffset(), c.slotBytes()) }

// typeOf is how a callback sees a key or a value of so many bytes.
func typeOf(bytes int) string {
	switch bytes {
	case 4, 8, 16, 32:
		return fmt.Sprintf("u%d", 8*bytes)
	}
	return fmt.Sprintf("const stadium::Words<%d>&", bytes)
}

// Table is a table as kernels take it, by value.
type Table struct {
	Board  uint64 // address of the tickets and filters, bucket by bucket
	Access uint64 // address of the access bits, one for each bucket
	Near   uint64 // address of the slots, where they lie in one piece of device memory; else 0
	// Panes is the address of an array of addresses: those of the panes that the slots lie in. A pane has 2^PaneShift
	// buckets. The bit inHost of a pane's address tells that the pane is in host memory.
	Panes     uint64
	PaneShift uint64
	Within    uint64 // not 0: operations stay in their key's region
	Regions   uint64
	Shift     uint64 // a region has 2^Shift buckets
	Seed      uint64
	Counters  uint64 // address of Counters
}

func (t *Table) buckets() uint64 { return t.Regions << t.Shift }

// Counters lie in device memory; kernels add to them.
type Counters struct {
	Pairs     uint64
	MaxProbes uint64 // most buckets that an insert went through, if over probesUntold
	Strays    uint64 // pairs that were put in other regions than their keys'
	Failed    uint64 // positions that found no room
	Exported  uint64
}

// probesUntold is the number of buckets that a look-up reads before it asks how long the longest chain is: inserts that stay below do
// not tell.
const probesUntold = 4

// insertParams are the parameters of insert and insert_new, and of the kernels of update.cu and choose.cu.
type insertParams struct {
	Table Table
	Rows  frame.Placing
	Limit uint64 // buckets that an insert may read
	// ByPosition, where not 0: keys are in another order than values, which stand where Rows.Positions says.
	ByPosition uint64
	// Exact, where not 0: pairs are counted at once, and none is tried where all slots are taken.
	Exact  uint64
	When   uint64 // of insert_if: bytes
	Listed uint64 // of insert_listed: address of how many rows there are, u32
}

// partitionParams are the parameters of the kernels that bring pairs in the order of stretches of the table.
type partitionParams struct {
	Table Table
	Rows  frame.Partition
	Each  uint64 // regions of a part; or, if it is 0,
	Cut   uint64 // a part has 2^Cut buckets
}

// When batches are brought in order: see frame.Regions. These are warpcore's, which have not been varied here.
const (
	regionsFrom = 1.28 // L2 caches
	regionRows  = 1 << 18
)

// sorted tells whether batches can be brought in the order of parts of the table, and carried how many bytes of values
// go with their keys: those of others stay where they are. ordered tells whether they are brought in the order of
// regions, staged whether these may go in through shared memory, and stretches whether stretches of buckets may. A
// ticket of one bit does not tell whether a look-up must go on.
func (c config) sorted() bool { return slices.Contains([]int{4, 8, 16, 32}, c.keyBytes) }

func (c config) ordered() bool { return c.sorted() && !c.together() }

func (c config) staged() bool { return c.sorted() && c.carried() > 0 }

func (c config) stretches() bool { return c.sorted() && c.valueBytes > 0 && c.ticket > 1 }

func (c config) carried() int {
	if slices.Contains([]int{4, 8, 16}, c.valueBytes) {
		return c.valueBytes
	}
	return 0
}

// together tells whether the lanes of a warp move values together. Then order brings nothing: inserts of 16+64 bytes came to 3.4 G/s on an H200 with it
// and without.
func (c config) together() bool { return c.valueBytes > 16 }

// stagedParams are the parameters of insert_staged: each block takes the tickets of a region into its shared memory.
type stagedParams struct {
	Table  Table
	First  uint64        // region of the first block
	Rows   frame.Placing // in the order of regions
	Starts uint64        // where the rows of each region begin, u64, and behind the last; or of each stretch,
	Per    uint64        // of which a region has 2^Per
	Listed uint64        // u32, how many rows of each region there are; 0: all
	Left   uint64        // bitmap of the rows that a block leaves
}

// stretchParams are the parameters of insert_stretch: each block takes a stretch of 2^Cut buckets into its shared
// memory.
type stretchParams struct {
	Table  Table
	Cut    uint64
	Rows   frame.Placing // in the order of stretches. Where they carry no values, these are in the order of Positions
	Starts uint64        // where the rows of each stretch begin: u64, one more than there are stretches
	// Rows that are left over: to columns like those of Rows. Left is the address of how many there are of each region,
	// u32, which go where the region's rows were; where rows carry no values, of all, which are in a row.
	LeftKeys, LeftValues, LeftPositions uint64
	Left                                uint64
}

const (
	// stretchBytes is the shared memory of a stretch, and stretchLarger the same if so there are few enough stretches to
	// be counted in one pass.
	stretchBytes  = 38 << 10
	stretchLarger = 84 << 10
	// stretchListed is how many rows a block lists that are left over. With 512, one block less would be resident.
	stretchListed = 448
	// stretchFixed is the shared memory beside a stretch: the list, counters, and a kilobyte that CUDA takes.
	stretchFixed = 4*stretchListed + 1<<10 + 64
	// stretchThreads are those of a block, and stretchThreadsLarger of one with a larger stretch.
	stretchThreads       = 256
	stretchThreadsLarger = 512
	// leastCut: fewer buckets need not have tickets and slots of whole units.
	leastCut = 2
)

// stretchBucket is the shared memory of a bucket, of a stretch: the slots, or for each its key and its row's position;
// the tickets; the mark; and, where values are written by parts, which of them were replaced.
func (c config) stretchBucket() int {
	slot, marks := c.slotBytes(), 4
	if c.carried() == 0 {
		slot = c.keyBytes + 4
	}
	if c.carried() == 0 || c.valueUnit() < c.valueBytes {
		marks += 4
	}
	return c.slots()*slot + c.ticketBytes() + marks
}

// cut is the binary logarithm of how many buckets are a stretch of so many bytes at most, in a table whose regions have
// 2^shift; negative if there is none.
func (c config) cut(bytes, shift int) int {
	if cut := min(bits.Len(uint(bytes/c.stretchBucket()))-1, shift); cut >= leastCut {
		return cut
	}
	return -1
}

const (
	stagedThreads = 512
	stagedUnit    = 16 // bytes of tickets that are moved at once
	// stagedFixed is the shared memory that insert_staged takes beside tickets and access bits.
	stagedFixed = 4 << 10
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

// mixedParams are the parameters of mixed: see frame.MixedRows. Where Clock is not 0, each operation notes there when it began and ended.
type mixedParams struct {
	Table   Table
	Ops     uint64
	Keys    uint64
	Values  uint64
	Results uint64
	Status  uint64
	Refused uint64
	N       uint64
	Attempt uint64
	Limit   uint64
	Clock   uint64
	Calls   uint64
	Returns uint64
}

// listParams are the parameters of the kernels that list the rows of a batch whose slots are in host memory, or of all, by panes.
type listParams struct {
	Find   findParams
	List   uint64 // u64: row, and above it, from rowBits on, the pane
	Listed uint64 // address of how many there are
	Counts uint64 // u64, one a pane: its rows; then where its next row goes
	Panes  uint64
	Rows   uint64 // u32: the rows in the order of panes
}

// rowBits are the bits of a list's entry that name the row.
const rowBits = 32

// rowsParams are the parameters of the kernels that serve rows of a batch which are listed.
type rowsParams struct {
	Find   findParams
	Insert insertParams
	Rows   uint64 // u32
	N      uint64
}

// spreadParams are the parameters of spread, which brings the pairs of some slots of a table into one pane of another.
type spreadParams struct {
	Table  Table
	Target Table
	First  uint64 // slot
	Last   uint64 // behind the last
	Pane   uint64 // of the target
	// Keys, Values: where pairs go that do not stand in their keys' region, if Strays is not 0; and those that would go on from the last bucket to
	// the first.
	Keys   uint64
	Values uint64
	Limit  uint64
	Strays uint64
}

// slotsParams are the parameters of the kernels that go over all slots.
type slotsParams struct {
	Table     Table
	Target    Table  // of rehash
	First     uint64 // of export: it goes over Slots of them from First on
	Slots     uint64
	Keys      uint64
	Values    uint64
	Histogram uint64 // of probe_lengths: histogramBins counters, then the sum
	Limit     uint64
}

// forEachParams are the parameters of for_each and for_all.
type forEachParams struct {
	Table Table
	Keys  uint64
	N     uint64
	Args  [frame.MaxArgs]uint64 // the bits of the arguments, by name
}

// histogramBins counts probe lengths of 1, 2, … and, in the last, all that are longer.
const histogramBins = len(table.Stats{}.Probes)

// lastAttempt is the attempt at which operations are refused for good: see frame.Part.
const lastAttempt = 2

func layouts() []any {
	return []any{Table{}, Counters{}, insertParams{}, partitionParams{}, stagedParams{}, stretchParams{}, findParams{}, mixedParams{}, slotsParams{}, listParams{}, rowsParams{}, spreadParams{}}
}

func (c config) defines() []device.Define {
	return append(append(frame.PartitionDefines(), frame.StatusDefines()...), []device.Define{
		{Name: "STADIUM_SORTED", Value: c.sorted()},
		{Name: "STADIUM_STRETCHES", Value: c.stretches()},
		{Name: "STADIUM_CARRIES", Value: c.carried() > 0},
		{Name: "STADIUM_VALUE_CARRIED", Value: max(widthStep, c.carried())},
		{Name: "STADIUM_BEYOND_BITS", Value: beyondBits},
		{Name: "STADIUM_FIRST_SHIFT", Value: firstShift},
		{Name: "STADIUM_FIRST_BITS", Value: firstBits},
		{Name: "STADIUM_INFO_SHIFT", Value: infoShift},
		{Name: "STADIUM_BEYOND_SHIFT", Value: beyondShift},
		{Name: "STADIUM_PROBES_UNTOLD", Value: probesUntold},
		{Name: "STADIUM_HISTOGRAM_BINS", Value: histogramBins},
		{Name: "STADIUM_LAST_ATTEMPT", Value: lastAttempt},
		{Name: "STADIUM_MAX_PANES", Value: maxPanes},
		{Name: "STADIUM_IN_HOST", Value: inHost},
		{Name: "STADIUM_ROW_BITS", Value: rowBits},
		{Name: "STADIUM_STAGED_UNIT", Value: stagedUnit},
		{Name: "STADIUM_STAGED_FIXED", Value: stagedFixed},
		{Name: "STADIUM_STRETCH_LISTED", Value: stretchListed},
		{Name: "STADIUM_STRETCH_FIXED", Value: stretchFixed},
		{Name: "STADIUM_FIND", Value: int(table.OpFind)},
		{Name: "STADIUM_INSERT", Value: int(table.OpInsert)},
		{Name: "STADIUM_INSERT_NEW", Value: int(table.OpInsertNew)},
		{Name: "STADIUM_DELETE", Value: int(table.OpDelete)},
	}...)
}

// shape is the number of regions, each of 2^shift buckets.
type shape struct {
	regions int64
	shift   int
}

func (s shape) buckets() int64 { return s.regions << s.shift }

// shapeFor has so many buckets, or a few more.
func shapeFor(buckets int64) shape {
	buckets = max(1, buckets)
	shift := min(regionShift, max(0, bits.Len64(uint64(buckets/leastRegions))-1))
	return shape{(buckets + 1<<shift - 1) >> shift, shift}
}

// shapeUpTo has so many buckets, or a few less.
func shapeUpTo(buckets int64) shape {
	s := shapeFor(buckets)
	if s.buckets() > buckets {
		s.regions--
	}
	return s
}

// hashKey is the hash of a key's bytes: the Go twin of stadium::hash_key.
func (c config) hashKey(key []byte, seed uint64) (h uint64) {
	for i := (len(key) - 1) / 8 * 8; i >= 0; i -= 8 {
		h = kernel.Hash64(c.hash, h^kernel.Pattern(key[i:], min(8, len(key)-i)), seed)
	}
	return h
}

// place is where a key belongs: the Go twin of stadium::Place.
type place struct {
	region, regions uint64
	local, step     uint64
	mask            uint64
	shift           uint64
	first           uint64 // slot of a bucket that comes first
	info            uint64
	beyond          uint64 // bit of a bucket's filter
	turn            uint64 // buckets of the region that are behind it
}

func (c config) place(t *Table, key []byte) place {
	h := c.hashKey(key, t.Seed)
	return place{
		region: kernel.Reduce(h, t.Regions), regions: t.Regions,
		mask: 1<<t.Shift - 1, shift: t.Shift, local: h & (1<<t.Shift - 1), step: uint64(kernel.Fmix32(uint32(h))) | 1,
		first: (h >> firstShift & (1<<firstBits - 1)) * uint64(c.slots()) >> firstBits, info: h >> infoShift & (1<<c.infoBits() - 1), beyond: h >> beyondShift % beyondBits,
	}
}

func (p *place) bucket() uint64 { return p.region<<p.shift | p.local }

func (p *place) advance() {
	p.local = (p.local + p.step) & p.mask
	if p.turn++; p.turn > p.mask {
		p.turn = 0
		if p.region++; p.region == p.regions {
			p.region = 0
		}
	}
}
