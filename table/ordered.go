package table

import "github.com/warpmap/warpmap/device"

// Ordering is how a table wants the rows of a large batch. The region of a key is that of its hash among Regions, by the high bits:
// (hash64<HASH_MURMUR>(key, Seed) >> 32) * Regions >> 32, with kernel/hash.cuh. So the order is that of the hash, whatever the number of regions.
type Ordering struct {
	Regions int    // 0: a batch goes in as it comes
	Seed    uint64 // 0: there is no such order
}

// Orderer is a Map that takes batches which somebody else has brought in the order of its regions: whoever splits rows among tables can do that
// at once, and the table need not read and write them once more.
type Orderer[K, V any] interface {
	Map[K, V]

	// Ordering is what the table would do with a batch of n rows as it is now. Its seed stays.
	Ordering(n int) Ordering
	// InsertOrderedOn is InsertOn of rows in that order, of any number of regions. Rows in another order go in, too, and are slower.
	InsertOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
	// FindOrderedOn is FindOn of rows in that order, the same way.
	FindOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
}
