package shard

import (
	_ "embed"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
)

//go:embed exchange.cu
var exchangeCU string

//go:embed owners.cuh
var ownersCUH string

//go:embed regions.cu
var regionsCU string

//go:embed sort.cu
var sortCU string

// MaxDevices is the largest number of devices that a table can have in one process.
const MaxDevices = 32

const (
	tileBytes = 1 << 14 // of shared memory: the widest column of a tile
	tileEach  = 8       // rows of a tile that are a thread's, at most
	tileMost  = tileEach * threads
	threads   = 256
	listLanes = 8 // take a key's values

	regionThreads  = 1024 // on a GPU
	regionMost     = 16 * regionThreads
	regionResident = 2048 // threads of a multiprocessor
	partBits       = 11   // of a part, one of frame.MaxParts or none
)

// The share of the regions that each step has, in percent. A table works on rows more slowly than they arrive. So the
// first step is short, to let the table begin early, and later steps are few. The last step of a look-up is short, too,
// because its results return after the table is done. Members have fewer steps: NCCL takes some 100 µs to begin with
// each, and carries all regions of a step in one message.
var (
	insertSteps       = []int{5, 8, 12, 18, 25, 32}
	lookUpSteps       = []int{4, 8, 14, 20, 20, 16, 10, 5, 3}
	memberInsertSteps = []int{15, 35, 50}
	memberLookUpSteps = []int{10, 25, 35, 20, 10}
)

const (
	leastCursors = 256     // that a member has memory for
	columnRows   = 1 << 24 // pairs that become columns at once, at most: see member.inPairs
	mostWords    = 1 << 20 // counts that a member sends to all others for an order, at most: 8 MiB
	// Regions are uneven if one has more than unevenRegions times the average, and unevenRows more in all.
	unevenRegions, unevenRows = 2, 1 << 22

	// A quick batch has at most quickRows rows times the number of devices, and its boxes take at most one part in
	// quickShare of a device's memory. They are larger than a batch needs by one part in quickSlack, so that few batches
	// that grow make new ones.
	quickRows, quickShare, quickSlack = 1 << 21, 256, 4

	vainBatches = 15 // batches whose rows are not combined after some were combined in vain
)

// regionShape is a tile that is split by regions, too, on a device with so much shared memory for a block: rows of a
// thread, and bytes of the widest column, at most. It has more rows than another tile, for of a part it has few, and
// what goes through NVLink in short pieces goes slower: of 63 regions on two H200s 16 rows a thread take 3.66 ms where
// 8 take 3.86, and their results come back in 2.6 ms, not 3.1.
func regionShape(shared int64) (each, bytes int) {
	if shared >= 128<<10 {
		return 16, 1 << 16
	}
	return 8, 1 << 15
}

// tileRows is the rows of a tile, for keys and values of such widths: it is Tile::ROWS of exchange.cu.
func tileRows(keyBytes, valueBytes int) int {
	return min(tileEach, tileBytes/threads/max(keyBytes, valueBytes)) * threads
}

// countRows are the parameters of shard_count.
type countRows struct {
	Keys, N uint64
	When    uint64 // bytes: rows of which it is 0 go nowhere; or 0
	Seed    uint64 // of the owner's hash
	Owners  uint64
	Chunk   uint64 // rows, a multiple of tileMost
	Counts  uint64 // u64, Owners for each chunk; they begin as 0
}

// splitRows are the parameters of shard_split.
type splitRows struct {
	Keys, Values, N uint64 // columns; Values may be 0
	Marks           uint64 // bytes that go with the keys; or 0
	When            uint64 // countRows'
	Seed            uint64
	Owners          uint64
	Places          uint64 // u16, one a row: its place in its tile, in the order of owners; 0 where nothing comes back
	// Bases are u64, Owners for each tile: where its rows of an owner begin in the segment, and in the low 16 bits how
	// many they are; or 0.
	Bases     uint64
	OutKeys   [MaxDevices]uint64 // the memory of each owner that is this source's
	OutValues [MaxDevices]uint64
	OutMarks  [MaxDevices]uint64
	// A cursor is a u64: the number of rows of an owner's memory that are taken, and the number that it began with.
	Cursors [MaxDevices]uint64
	Begins  [MaxDevices]uint64
	Sums    uint64 // u64, Owners and one more, which are 0 before and after; or 0
	Totals  uint64 // u64, one an owner: the rows that it gets from this source; without Sums 0
}

// spreadRows are the parameters of shard_spread.
type spreadRows struct {
	Keys, N, Owners uint64
	OutKeys         [MaxDevices]uint64
}

// gatherRows are the parameters of shard_gather and of shard_merge. Places and Bases are shard_split's.
type gatherRows struct {
	N, Owners           uint64
	Places, Bases       uint64             // of shard_gather
	Sum                 uint64             // of shard_merge: 1: values are added up; 0: the first is taken
	Counts              uint64             // 1: values are u32
	When                uint64             // of shard_merge: countRows'
	Values, Flags       [MaxDevices]uint64 // the results of each owner's segment
	OutValues, OutFlags uint64             // columns of the batch; may be 0
}

// listRows are the parameters of the kernels that bring back the values of multimaps: shard_sum, shard_scan,
// shard_offsets and shard_lists. Fields that the first three share with kernel/findall.cuh have its names.
type listRows struct {
	N             uint64
	Chunk, Chunks uint64
	Counts        uint64 // u32, a key's number of values
	Totals        uint64 // u64, one a chunk
	Offsets       uint64 // u64, N+1 of the batch
	Owners        uint64
	Places, Bases uint64             // shard_split's; without Bases every owner has values of each key
	Lists         [MaxDevices]uint64 // of each owner, u64: where the values of the segment's rows begin in Values
	Values        [MaxDevices]uint64
	OutValues     uint64
}

// program has the kernels for keys and values of these widths. Without values theirs is 4, that of counts.
func program(keyBytes, valueBytes int) *device.Program {
	return &device.Program{
		Name:  fmt.Sprintf("shard %d+%d", keyBytes, valueBytes),
		Files: []device.File{{Name: "exchange.cu", Text: exchangeCU}, {Name: "owners.cuh", Text: ownersCUH}},
		Defines: []device.Define{
			{Name: "SHARD_KEY_BYTES", Value: keyBytes},
			{Name: "SHARD_VALUE_BYTES", Value: max(valueBytes, 4)},
			{Name: "SHARD_LIST_LANES", Value: listLanes},
			{Name: "WARPMAP_MAX_PARTS", Value: MaxDevices},
			{Name: "WARPMAP_PARTITION_TILE_BYTES", Value: tileBytes},
			{Name: "WARPMAP_PARTITION_EACH", Value: tileEach},
		},
		Layouts: []any{countRows{}, splitRows{}, gatherRows{}, spreadRows{}, listRows{}},
		Threads: threads,
	}
}

// countRegions are the parameters of shard_count_regions.
type countRegions struct {
	Keys, N uint64
	Seed    uint64 // of the owner's hash
	Order   uint64 // the seed of the order of regions
	Owners  uint64
	Regions uint64 // of each owner
	Chunk   uint64 // rows, a multiple of regionMost
	Counts  uint64 // u64, Owners·Regions for each chunk; they begin as 0
}

// splitRegions are the parameters of shard_split_regions.
type splitRegions struct {
	Keys, Values, N uint64 // columns; Values may be 0
	Seed, Order     uint64
	Owners, Regions uint64
	Cursors         uint64 // u64, one a part: where its next row goes in the owner's memory
	// Places are u32, one a row: its place in its tile, in the order of parts, and above it its part with the owner; 0
	// where nothing comes back.
	Places uint64
	// Skips are u32, a part's for each tile, of those that it has rows of: where they go in the owner's memory, less
	// where they are in the tile; or 0.
	Skips     uint64
	OutKeys   [MaxDevices]uint64 // each owner's memory
	OutValues [MaxDevices]uint64
}

// gatherRegions are the parameters of shard_gather_regions. Places and Skips are shard_split_regions'.
type gatherRegions struct {
	N, Owners, Regions  uint64
	Places, Skips       uint64
	Values, Flags       [MaxDevices]uint64 // the results of each owner
	OutValues, OutFlags uint64             // columns of the batch; may be 0
}

// sortRows are the parameters of shard_sort: Rows into Owners·Regions parts.
type sortRows struct {
	Rows            frame.Partition
	Seed, Order     uint64 // of the owner's hash, and of the order of regions
	Owners, Regions uint64
}

// sortProgram has the kernel that sorts rows by regions of which nothing comes back.
func sortProgram(keyBytes, valueBytes int) *device.Program {
	return &device.Program{
		Name:  fmt.Sprintf("shard sort %d+%d", keyBytes, valueBytes),
		Files: []device.File{{Name: "sort.cu", Text: sortCU}, {Name: "owners.cuh", Text: ownersCUH}},
		Defines: append(frame.PartitionDefines(), device.Define{Name: "SHARD_KEY_BYTES", Value: keyBytes},
			device.Define{Name: "SHARD_VALUE_BYTES", Value: max(valueBytes, 4)}),
		Layouts: []any{countRegions{}, sortRows{}},
		Threads: threads,
	}
}

// regionTile is the rows of a tile that is split by regions, too, by blocks of so many threads: Tile::ROWS of
// regions.cu.
func (w widths) regionTile(blockThreads int, shared int64) int {
	each, bytes := regionShape(shared)
	return min(each, bytes/blockThreads/max(w.keyBytes, w.value())) * blockThreads
}

// regionsProgram has the kernels that split by regions, too, for a device with so much shared memory for a block.
func regionsProgram(keyBytes, valueBytes int, shared int64) *device.Program {
	each, bytes := regionShape(shared)
	return &device.Program{
		Name:  fmt.Sprintf("shard regions %d+%d", keyBytes, valueBytes),
		Files: []device.File{{Name: "regions.cu", Text: regionsCU}, {Name: "owners.cuh", Text: ownersCUH}},
		Defines: []device.Define{
			{Name: "SHARD_KEY_BYTES", Value: keyBytes},
			{Name: "SHARD_VALUE_BYTES", Value: max(valueBytes, 4)},
			{Name: "SHARD_MAX_DEVICES", Value: MaxDevices},
			{Name: "WARPMAP_MAX_PARTS", Value: frame.MaxParts},
			{Name: "WARPMAP_PARTITION_TILE_BYTES", Value: bytes},
			{Name: "WARPMAP_PARTITION_EACH", Value: each},
			{Name: "WARPMAP_PARTITION_THREADS", Value: regionThreads},
			{Name: "SHARD_PART_BITS", Value: partBits},
		},
		Layouts: []any{splitRegions{}, gatherRegions{}},
		Threads: threads,
	}
}

// ownerOf is the member that owns a key, of which the low bits of its width count: the Go twin of owner_of.
func ownerOf(key uint64, keyBytes int, seed uint64, owners int) int {
	if keyBytes == 4 {
		return int(uint64(kernel.Fmix32(uint32(key)^uint32(seed))) * uint64(owners) >> 32)
	}
	return int(kernel.Reduce(kernel.Fmix64(key^seed), uint64(owners)))
}
