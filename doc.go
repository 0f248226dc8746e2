// Package warpmap is GPU hash tables for Go: published designs, one interface, no cgo.
//
// A table is made on a device, which is a GPU or, where there is none, the CPU running the same kernels:
//
//	d, err := device.Open("auto")
//	m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{})
//	err = m.Insert(keys, values)
//	err = m.Find(queries, results, found)
//
// All operations take whole batches; table.Map is what every table can do. Which table when:
//
//   - warpcore: open addressing with cooperative probing (package warpcore). The one to begin with: fast inserts and
//     look-ups up to high load factors, any mixture of 4- and 8-byte keys with 4-, 8- and 16-byte values. Its
//     package has a Set, a Counter, a MultiMap, a MultiBucket whose slots hold a few values, a BucketList for keys with many, and a Filter, which
//     is a blocked Bloom filter; your own kernels may use its tables from the device.
//   - gph: perfect hashing (package gph). Every look-up, hit or miss, reads one bucket; an insert may have to move other
//     pairs. For tables that are looked up far more often than they change.
//   - slab: lists of slabs from an allocator on the device (package slab). Look-ups, inserts and deletions may be mixed in one
//     batch; the table shrinks and grows by slabs.
//   - dycuckoo: cuckoo hashing in subtables that double and halve one at a time (package dycuckoo). For data that comes and goes:
//     memory follows it. A look-up reads two buckets at most; keys may have 16 or 32 bytes.
//   - stadium: a board of tickets before the table (package stadium). For keys of 4 to 256 bytes and values of up to 4,096, and for look-ups
//     that mostly miss.
//
// All maps but gph's also combine values with those that come (table.Updater), find or insert, and do chosen positions of a batch alone
// (table.Chooser): ask by a type assertion, as in m.(table.Updater[uint32, uint32]).
//
// Package join, and the command warpmap join, do with tables what databases do.
package warpmap
