// Package slab implements SlabHash: the tables Map, Set and MultiMap, whose operations of all kinds may run beside one
// another. It also has SlabAlloc, the allocator under them.
//
// Source: S. Ashkiani, M. Farach-Colton, J. D. Owens, "A Dynamic Hash Table for the GPU", IPDPS 2018, §III to V.
//
// # Memory
//
// A table is an array of buckets, each a list of slabs of 128 bytes. The first slab of each bucket stands in the base
// array. The others come from SlabAlloc's super blocks. With 4-byte keys and values:
//
//	base slabs                                          super blocks
//	|  bucket 0  |  bucket 1  | … |  reserved keys  |   | bitmaps | unit 0 | unit 1 | … |   | bitmaps | …
//	     |                                                             ↑
//	     | 15 × ┌ key 4 B │ value 4 B ┐ … ┌ next 4 B │ – ┐ ────────────┘ 8 bits super block, 14 memory block, 10 unit
//
//	pairs of 8 bytes     15 pairs in words that one compare-and-swap writes whole, and the link
//	pairs of 16 bytes     7 pairs, likewise, where the device swaps 128 bits
//	all other pairs      keys, the link, then values: 4+8 and 8+4 bytes 10 pairs, 8+8 7, 4+16 6, 8+16 5
//	keys alone           31 of 4 bytes or 15 of 8, and the link
//
// A free slab is all ones: empty slots, and a link to nothing. A memory block is 1,024 units. Its bitmap is 32 words of
// 32 bits, before the units of its super block.
//
// # Look-ups (§IV-A, C)
//
// A key's hash names its bucket. A group of lanes reads a slab whole. Each lane of a group brings a key of its own, and
// the group reads for up to four of them before it looks at the first. Lanes vote on what they hold, and each keeps the
// votes on its own key. The link is read with the slab. A group of 32 lanes is the paper's warp-cooperative work
// sharing; the default on a GPU is 8 lanes with 16-byte loads. All lanes of a warp then change their words at once,
// whatever each does. A lane that lost to another reads its slab again when the others read for their next keys. A lane
// that is done takes the next key at once.
//
// # Invariants
//
//  1. In a list, empty slots come last, all of them in its last slab, which may be empty altogether. So a look-up ends
//     at a slab without a link, and an insert at the first empty slot.
//  2. In a Map or Set no key is there twice. A key is in the bucket that its hash names.
//  3. The three highest bit patterns of the key type mark slots: empty, tombstone, busy. Real keys of these patterns
//     live in a bucket of their own, under a pattern lower by three; no other key does. So no key is reserved.
//  4. A slot is busy only while the lane that took it writes the value and then the key. Between operations none is.
//  5. A unit's bit is set if and only if the slab is in a list. A slab is in one list at most. Bits of units beyond the
//     end of a super block are set for good. Slabs whose bit is clear are all ones, but for values apart from their
//     keys.
//  6. Counters: pairs = Inserted - Erased, tombstones = Erased - Reused - Flushed, slabs in lists = Linked - Freed.
//
// Check tests these invariants.
//
// # Concurrency (§III-B, IV-C), and where we differ
//
// In the paper's pseudocode an insert takes the first empty or deleted slot that it meets, so an insert beside a delete
// can leave a key twice. A deletion is a plain store, which can hit another pair. Here:
//
//   - Empty slots are taken strictly in the order of the list, and only Flush makes empty slots again, or a large batch
//     that flushes: both have the table to themselves. If something may
//     be erased at the same time (mixed, and the device's own insert), tombstones are not used again. So two inserts of
//     one key come to the same slot, by compare-and-swap, and the loser looks again from that slab on. The insert has
//     seen that the slots before the first empty one do not hold the key, and they can no longer come to hold it.
//   - If nothing is erased at the same time (Insert and InsertNew, which the host orders against all else), an insert
//     searches all of the list and then uses the first tombstone again. Free slots then only become fewer, so the same
//     argument holds.
//   - When the last slab is full, a new one is linked by compare-and-swap of the link. It is empty then, as it came
//     from the allocator, and its slots are claimed like all others. The loser gives its slab back, and goes on in the
//     winner's.
//   - An erase is a compare-and-swap of the pair that was seen. One that finds the key gone counts as having come just
//     after.
//   - Pairs that no compare-and-swap writes whole are written in two steps behind a busy mark. An insert that meets a
//     busy slot looks again, because the slot may come to hold its own key. A find passes on, because that insert has
//     not happened yet.
//   - A look-up that ends without the key is right, though it read the slots one after the other: a key that was there
//     all the time stood in one slot all the time.
//   - In a MultiMap tombstones are not used again before a flush, and flushes and growth keep the order of a list, so
//     the first pair of a key is the least recent. The paper marks deleted pairs of such tables empty.
//
// So find, insert, insert_new and erase of slab.cuh may run in one kernel in any mixture, and each key is linearizable.
// Mixed does just that. The tests record histories under stress and judge them, and also the histories of broken
// copies.
//
// # Large batches
//
// An insert of millions of pairs into a Map or a Set much larger than the L2 cache need not touch memory at random. The
// base slabs of a stretch of buckets are consecutive memory, 32 or 48 KB, which fits the shared memory of a block. Two
// passes bring the pairs in the order of stretches. Then a block for each stretch reads its base slabs, puts the pairs
// into them, and writes them back (stretch.cu). Memory sees streams alone. Into a table that never had pairs, nothing
// is read.
//
//	batch → pairs by stretches → base slabs in shared memory → base slabs
//	                                  ↓ base slab is full
//	                             pairs that are left over → along their chains, one by one
//
// A bucket has a counter in shared memory. A pair's key is looked for among the pairs that were there before. If it is
// not among them, an addition to the counter gives the pair the next slot. So pairs of the batch with one key may stand
// side by side; when all pairs of the stretch have come, one of them stays, and those behind move up. A chain of one
// slab is flushed when it is read.
//
// A pair whose base slab is full, or whose key is reserved, is left over. A kernel that comes behind (insert_left) does
// with it what an insert does, but begins behind the base slab. At load factor 0.7 that is 1.5% of the pairs of 4+4
// bytes, and 4.7% of those of 8+8; at 1.0 it is 10% and 15%. To have blocks make slabs of the pool would save little
// for these, and they would need all that an insert knows of tombstones, lost swaps and slabs that are used up.
//
// If a pair finds no slab, the whole batch goes in once more as it is, which names the positions. That does no harm:
// what is in is replaced by itself, or by a pair of the batch with the same key.
//
// Such a batch has at least 4 million pairs and two for each bucket (frame.Stretches), and a quarter of them at most is expected to be
// left over. Values have 8 bytes at most, because pairs of one key may write its value at the same time. The pairs in
// order take twice the memory of the batch, and no more than an eighth of what the device has free; more pairs go piece
// by piece, but each piece moves all base slabs. The memory is kept for the next batch until the table grows or is
// closed. Without it, and also for a MultiMap, pairs are brought in the order of regions that the L2 cache holds, and
// inserted one by one. Batches whose positions are told, as the flags of InsertNew are, or chosen, as in InsertIf, go
// in as they are. (Of Go slices, InsertNew and a Set's Insert always have flags, which they count.) So do batches of
// which most pairs are in one part of the table, because a key comes again and again.
//
// At load factor 0.7, a pair of 4+4 bytes moves 56 bytes of memory, all in streams, and one of 8+8 bytes 114: its key
// is read to be counted, the pair is read three times and written twice, and has 12 or 26 bytes of base slabs. By
// regions that is 60 and 116, but each pair also reads 128 bytes from the L2 cache, and swaps a word there.
//
// # Updates and choices
//
// Update is an insert that changes the value of a key that is there, where it stands. It does so by an atomic operation
// on the value's own word, or for code of the user's by compare-and-swap. Its kernel erases nothing, so nobody else
// changes a pair that is in, though inserts write pairs whole. If four or more rows of a batch that are in the same 32
// rows have one key, they become one row. On the device, beside erases, update swaps a pair whole, key and value. If
// values stand apart from keys, it swaps the value; if the key is erased meanwhile, the update counts as having come
// before.
//
// If a table may grow no more, what is left of a batch is at last tried without new slabs, and so is the rest of the
// batch. So the rows of a key are all in or all refused. FindOrInsert is an insert that also returns the value.
// InsertIf, FindIf and ContainsIf of Map and Set work on those positions of a batch alone whose bool is true, by
// kernels of their own (choose.cu).
//
// # SlabAlloc (§V), and where we differ
//
// A warp's resident block is a hash of its number. In the paper, each lane of the warp holds one word of the bitmap,
// and one lane allocates for all. Here each lane allocates for itself from its word. So no lane waits for another, and
// a warp that wants 32 slabs gets them at once. When its word is used up, the lane takes another word of another block,
// by a hash. After a bounded number of these it searches some blocks through, and gives up. It never waits. (To search
// the block first costs few lanes much, but these lanes hold up the end of a batch: 4 million inserts took 416 µs on an
// H200, and now take 230.)
//
// The host makes super blocks. Before a batch, it makes as many slabs as a Poisson distribution of the chains' lengths
// says. If a batch finds no slab, it runs again for exactly the positions that were refused, after a flush, with more
// slabs or more buckets. The addresses of super blocks travel with a kernel's parameters, in constant memory; the paper
// has them in shared memory. The light variant is one array, and the name of a slab is its index.
//
// # Growth
//
// A table grows when its pairs exceed LoadFactor (the paper's β) times the slots of its base slabs. It then gets twice
// the buckets or more, by a copy. It flushes when one slot in eight holds a deleted pair.
//
// # At MaxBytes
//
// A table whose next size would be larger than MaxBytes takes all of that memory, two slabs in three as base slabs.
// From then on it no longer grows by its number of pairs. It changes only if a batch finds no slab: it flushes, if
// there are deleted pairs; else it halves its buckets, down to one slab in sixteen, so that more slabs are for long
// lists. Then it refuses: *table.FullError names exactly the positions that are not in. Maps of 4+4 bytes, with
// MaxBytes of 1 and 16 MiB, refused the first pairs at 96% of their slots. Other keys still found room, and later
// batches filled the rest.
//
// Look-ups, deletions, and inserts of keys that are in go on. Inserts use the slots of deleted pairs again, those into
// a MultiMap after a flush. A flush gives the slabs that become empty to other buckets. When so few pairs are left that
// the buckets that it first took would be filled to less than half of LoadFactor, the next insert gives it these
// buckets back. Grow to more pairs than MaxBytes allows returns table.ErrMaxBytes.
//
// Cost: lists have up to 16 slabs on average, each of which a look-up may have to read. To halve or double the
// buckets takes memory for a second table. A batch with pairs that find no slab is tried again for these alone, a few
// times.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table, or for the keys of a Set. A kernel of your own
// includes "slab.cuh" and takes a table by value: see Map.Program and Map.Use.
package slab
