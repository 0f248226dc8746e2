// Package warpmap is a library of hash tables that run on NVIDIA GPUs, without cgo. Where there is no GPU, the same
// kernels run on the CPU.
//
//	d, err := warpmap.Open("auto")
//	m, err := warpmap.New[uint64, float32](d, warpmap.Auto, warpmap.Options{})
//	err = m.Insert(keys, values)
//	err = m.Find(queries, results, found)
//
// Operations take whole batches, as Go slices or as device slices on a stream. The families differ in what they are
// best at:
//
//   - WarpCore: the one to begin with. Fast inserts and look-ups; it has every kind of table.
//   - GPH: one probe for a look-up. For maps that are looked up far more often than they change.
//   - Slab: inserts, look-ups and deletions mixed in one batch; memory grows and shrinks by slabs.
//   - DyCuckoo: data that comes and goes; memory follows it. Keys of up to 32 bytes.
//   - Stadium: keys of 4 to 256 bytes, values of up to 4,096, and look-ups that mostly miss.
//
// Auto chooses a family by what Options.Work says. As gives access to what only some families can do. Package shard has
// tables over several GPUs.
package warpmap
