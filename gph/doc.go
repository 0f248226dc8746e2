// Package gph implements GPH, a hash table in which every look-up, hit or miss, reads one bucket. Map is that table.
//
// Source: J. Cao, L. Xu, M. L. Yiu, J. Qin, B. Tang, "GPH: An Efficient and Effective Perfect Hashing Scheme for GPU
// Architectures", Proc. ACM Manag. Data 3, 3 (SIGMOD), Article 165, 2025, §4 to §6.
//
// # Memory
//
// A table has buckets of M slots, the index of cells, and locks. With 4-byte keys and values, M = 8 and R = 32:
//
//	cells     | 0 | 1 | … | c | … |           1 byte each: mapping Φ (3 bits) · offset Δ (5 bits)
//	                        │
//	                        │ c names a stretch, and Φ and c a ring of R neighbouring buckets in it
//	                        ▼
//	buckets   | stretch 0 | … [ b | b+1 | … | b+R-1 ] … | stretch n-1 |   reserve   | side bucket |
//	                          │                          the last mapping names a ring here ┘
//	                          │ the key's hash, Φ and Δ name one bucket of the ring
//	                          ▼
//	                          8 × ┌ key 4 B │ value 4 B ┐       64 bytes
//
// A pair of up to 8 bytes is one word. So is a pair of 16 bytes if the device can swap 128 bits. Key and value of wider
// pairs stand beside each other and are written one after the other. Pairs of 2-byte keys and 2-byte values take 4
// bytes.
//
// # Look-up (§5)
//
//  1. The high half of the key's hash names its cell: H_c.
//  2. The cell is read: mapping Φ and offset Δ.
//  3. The hash's low half, mixed with Φ, names a virtual bucket j of 0 … R-1: H_v. The cell and Φ name the ring: H_b.
//     The bucket is number (j + Δ) mod R of the ring.
//  4. A tile of lanes reads that bucket with loads of up to 16 bytes, and the buckets of up to four lanes' keys at once
//     (the paper's Bucket Requester).
//
// No step depends on what others do: no lane waits because another key has a longer way.
//
// # Insert (§6)
//
// Fill (the paper's Saturation Fill) puts each pair of a batch into an empty slot of its bucket, by compare-and-swap,
// without locks. No cell changes while it runs. A pair whose bucket is full goes to a list.
//
// Refine takes the list. A group locks the cell of a pair and looks at the bucket once more. If it still is full, the
// group moves the cell (Extended Move). It lists the cell's pairs, which all stand in its ring, and looks for a mapping
// and offset under which they and the new one fit. It tries the offsets of the present mapping first, then the other
// mappings, and the reserve last. To judge them, it compares how many slots each bucket has empty with how many it
// needs. Only then does it write: it claims a slot for every pair, copies the pair there, sets the cell, and empties
// the old slots. If a cell fits nowhere, the group moves another cell, a pair of which stands in its way, and does so
// up to displacements times. After that the pair is refused, and the table grows, or says so.
//
// Build puts a known set into an empty table. A table that grows is filled in the same way. The cells are planned, the
// large ones first, before any pair is written. Pairs that this leaves over are inserted as above.
//
// On a GPU, Build goes stretch by stretch (stretch.cu). The set is brought in the order of stretches in two passes. Then a
// block plans the cells of a stretch and fills its buckets, all in shared memory, and writes them back. So memory sees
// streams, but for the pairs of the reserve. Of 4+4 bytes at a load factor of 0.8, these are 62 bytes a pair: 4 to count,
// 16 in each pass, and in the stretch 8 for the pair, 8 for its key twice more, from the L2 cache mostly, and 10 for the
// buckets. A cell takes the first mapping under which it fits. Small sets and tables, and those for which shared memory is
// too small, go as a whole (build.cu), where cells compare mappings.
//
// In order, a set takes twice its size in scratch memory. Where that is too much, Build goes range by range: one pass counts
// the pairs of all stretches, and cuts the table into as few ranges as have pairs that fit; then for each range the
// first pass takes its pairs out of the whole set. If that would take more ranges than internal/frame/stretches.go allows,
// or leaves too many pairs over, the set goes as a whole, or by inserts where memory is too short for that, too.
//
// # Invariants
//
//  1. A pair stands in the bucket that its key and its cell's code name, or, if its key is reserved, in the side
//     bucket. So a look-up that does not find it there need not look elsewhere.
//  2. No key is in the table twice.
//  3. The three highest bit patterns of the key type are not keys in slots: the highest marks an empty slot, the third
//     marks a slot that is being written. Real keys of these patterns live in the side bucket, which has room for all
//     three, under a pattern lower by three; no other key does. So no key is reserved.
//  4. An empty slot of packed pairs is all ones, value and all. A swap of the whole word takes it.
//  5. A slot is being written only while the lane that took it writes the value and then the key. Between operations
//     none is, and no lock is held.
//  6. Counters: pairs = Inserted - Erased; nothing is on the lists of pairs to refine and of refused ones.
//
// # Concurrency
//
// Look-ups run beside look-ups. Inserts and deletions run alone: the host orders them, and operations cannot be mixed
// in one kernel. Device code has only find, because an insert may move pairs that others are looking for.
//
// During fill, slots only fill up. So two inserts of one key come to the same first empty slot of their bucket, or one
// sees the other's key. An insert that meets a slot that is being written looks again, because the key may be its own.
// During refine, only the holder of a cell's lock writes to a slot that holds a pair of the cell. An empty slot belongs
// to whoever swaps it. Nobody waits for a lock while holding one. When refine ends, refused positions are filled once
// more without moves, so that equal keys of a batch are in or out together.
//
// # Where we differ
//
//   - A ring is R neighbouring buckets of the stretch that the cell belongs to, where the last bucket is followed by the
//     first. A stretch is 64 KiB of buckets. The paper hashes to R buckets anywhere. A move reads 2 KB in a row instead of
//     32 separate buckets, the R buckets are different for sure, and a stretch can be built in the shared memory of a block.
//   - Stretches have as many pairs as chance gives them: at a load factor of 0.95 some are full. So the last mapping
//     names a reserve of a 64th of all buckets, the same for all cells; a table of fewer than 128·R buckets is one
//     stretch, and has no reserve, and twice the cells.
//   - A claim is a compare-and-swap of an empty slot under one lock, the cell's. The paper locks the cell and R buckets
//     for each mapping that it tries, and needs wait-die against deadlock (§6.3). Here a claim that fails is undone,
//     and the next mapping is tried.
//   - A move takes the offset that leaves the buckets most even, not the first that fits: later inserts find more room.
//   - A cell that fits nowhere displaces others, as above.
//   - Buckets have 64 bytes and R is 32; the paper has 128 and 8. An H200 reads 64 bytes as fast as 8, and 128 slower;
//     and more virtual buckets make up for smaller ones.
//   - Cells are read from device memory, not from shared memory, unless Options.Index says otherwise: a look-up then
//     need not be routed to the multiprocessor that has its cell (§7.1). Each load asks the L2 cache to keep the cell
//     (load_kept): on an H200 that is worth a tenth of the rate, and needs no window of the cache that other programs
//     would miss.
//   - Build takes as few cells as the set allows, so that they stay in that cache up to load factors of 0.95. At 0.8 a cell
//     has 18 pairs, so they outgrow the 60 MB of an H200: with 500 million pairs look-ups are still faster than
//     warpcore's, with a billion they are not (docs/speed.md).
//   - A delete empties a slot at once, because no search goes on past one. Nothing may run beside deletes. The paper
//     has no deletes.
//   - No key is reserved (invariant 3), values may be of 16 bytes, and a table grows, or takes another hash function if
//     pairs find no place. With Options.MaxBytes it tells exactly which pairs it refused.
//   - We add bulk construction.
//
// A GPH map is not a table.Updater or a table.Chooser: it is for tables that are looked up far more often than they
// change. To combine values in a batch, find them, combine them, and insert them again.
//
// # At MaxBytes
//
// A table whose next size would be larger than MaxBytes takes as many buckets as MaxBytes allows. With MaxBytes it has
// cells for a load factor of 0.95, unless Options.KeysPerCell says otherwise. From then on it does not grow, and takes
// pairs beyond LoadFactor. A key for which no move and no displacement makes room is refused: *table.FullError names
// its positions. Maps of 4+4 bytes, with MaxBytes of 1 and 16 MiB, refused single keys from 87 to 89% of their slots
// on, a few in a hundred at 92%, and were filled to 99% by the batches that came behind. Build reaches higher load
// factors before it refuses any.
//
// Look-ups, deletions, and inserts of keys that are in go on. The slot of a deleted pair is free at once. If pairs are
// refused below LoadFactor, the table is laid anew once with another seed, which takes memory for a second table and
// mostly for all pairs. Grow to more pairs than MaxBytes allows returns table.ErrMaxBytes.
//
// Cost: a look-up reads one cell and one bucket, however full the table is. An insert into a full bucket reads the
// rings that its cell could move to, and those of the cells that it tries to displace. A pair that is refused has tried
// them all, and its key is looked up once more, so that FullError names no key that is in.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table. A kernel of your own includes "gph.cuh" and takes a
// table by value: see Map.Program and Map.Use.
package gph
