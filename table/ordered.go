package table

import "github.com/warpmap/warpmap/device"

// Ordering says how a table wants the rows of a large batch ordered. The region of a key is that of its hash among
// Regions, by the high bits: (hash64<HASH_MURMUR>(key, Seed) >> 32) * Regions >> 32, with kernel/hash.cuh. So rows are
// in the order of their keys' hashes, whatever the number of regions.
type Ordering struct {
	Regions int    // 0: a batch goes in as it comes
	Seed    uint64 // 0: there is no such order
}

// Orderer is a Map that takes batches whose rows somebody else has brought in the order of its regions. Code that
// splits rows among tables can bring them in order at the same time, and the table need not read and write them once
// more. InsertOrderedOn waits for the stream where InsertOn does. FindOrderedOn queues its work.
type Orderer[K, V any] interface {
	Map[K, V]

	// Ordering tells what the table would do with a batch of n rows as it is now. Its seed stays the same.
	Ordering(n int) Ordering
	// InsertOrderedOn inserts rows that are in that order, of any number of regions. Rows in another order go in, too,
	// but more slowly.
	InsertOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
	// FindOrderedOn looks up rows that are in that order. Rows in another order are found, too, but more slowly.
	FindOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
}
