// Package warpcore implements the open-addressing tables of WarpCore: Map (SingleValueHashTable) and MultiMap
// (MultiValueHashTable); and Filter (BloomFilter).
//
// Source: D. Jünger, R. Kobus, A. Müller, C. Hundt, K. Xu, W. Liu, B. Schmidt, "WarpCore: A Library for fast Hash Tables
// on GPUs", HiPC 2020, §IV-A, B and D.
//
// # Memory
//
// A table is windows × Window slots, the number of windows a prime; then a small side region of the same make; in layout
// SoA the values of both follow. With 4-byte keys and values and windows of 64 bytes:
//
//	main region                                            side region
//	|  window 0  |  window 1  |  …  |  window p-1  |       |  window 0  |
//	     |
//	     | packed   8 × ┌ key 4 B │ value 4 B ┐   one word: one compare-and-swap writes a pair of 8 or 16 bytes
//	     | AoS      n × ┌ key │ pad │ value ┐     key and value beside each other, written one after the other
//	     | SoA     16 × ┌ key 4 B ┐               the values in an array of their own, at the same index
//
// # Probing (§IV-B2)
//
// A key's hash names its first window, by the hash's high bits, and its first slot in every window, by its low bits. The
// other slots of a window follow by their distance from that, which is the ^ of the two numbers: so first come the slots
// in the same 16 bytes, then those in the same 32-byte sector. A second hash is the distance to the next window. As the
// number of windows is prime, every window is visited once before one is visited again.
//
// A group of 2 to 32 lanes reads a window whole, with loads of up to 16 bytes, and decides by votes; a lane on its own
// reads sector after sector. Groups of any size agree about the order, so any group may use any table.
//
// Beside the slots lies an overflow filter, 4 bits for each window, small enough to stay in the L2 cache. A key that
// goes past a full window clears one of the bits, chosen by its hash. So a look-up that comes to the end of a full window
// goes on only if its bit is cleared: at load factor 0.9 a key that is not there costs 1.4 windows instead of 2.9.
//
// # Large batches
//
// A compare-and-swap that hits the L2 cache is several times as fast as one in memory. So an insert of millions of pairs
// into a table much larger than the cache first brings them in the order of the table's regions, which are stretches of
// windows that the cache holds, by the first windows of their keys: two passes over the batch, in streams
// (partition.cuh). Then blocks that begin in order go through the pairs in order. The numbers are in layout.go. Where
// positions are told, as the flags of InsertNew are, or chosen, as in InsertIf, or where the batch may not fit, it goes in as it is. The memory for
// the pairs in order, the size of the batch and no more than an eighth of what the device has free, is kept for the next
// batch, until the table grows or is closed; without it the batch goes in as it is. A table that grows is
// gone through in order, too, so both the old and the new are touched stretch by stretch.
//
// # Invariants
//
//  1. A pair stands at a slot such that, in its key's order, no slot before it is empty, and the windows before its own
//     are marked in the overflow filter at the key's bit. Slots never become empty again (erase leaves tombstones), and
//     marks stay. So a search may end at the first window with an empty slot or without the mark.
//  2. In a Map no key is twice.
//  3. The three highest bit patterns of the key type mark slots: empty, tombstone, busy. Real keys of these patterns live
//     in the side region, under a pattern lower by three; no other key does. So no key is reserved.
//  4. A slot is busy only while the lane that took it writes the value and then the key. Between operations none is.
//  5. Counters: pairs = Inserted - Erased, tombstones = Erased - Reused.
//  6. MaxProbes is no less than the windows of the longest chain, once that is over four: a look-up reads no more.
//
// # Concurrency (§IV-D), and where we differ
//
// The paper names two faults of its table: an insert of a wide pair writes the value after the key, so that a
// value can be read that is not there yet, or a later value can be overwritten by an earlier one (priority inversion);
// and an insert beside an erase can leave a key twice (a variant of ABA). Here:
//
//   - Pairs of up to 8 bytes, and of 16 where the device can swap 128 bits, are written whole. For all others a
//     slot is first marked busy, then the value is written, and the key last, with release order. An insert that meets a
//     busy slot on its way looks again until it is not, because it may be its own key; a find passes on, because that
//     insert has not happened yet.
//   - A tombstone is used again only by kernels beside which nothing is erased: the bulk inserts, which the
//     host orders against every other operation of the table. The device-side insert takes empty slots alone. In
//     both cases free slots only become fewer while inserts run, so two inserts of one key come to the same first free
//     slot, or one sees the other's key: after a lost swap the search begins again at that slot. A free slot is
//     taken only after the rest of the chain was searched for the key.
//   - So find, insert, insert_new and erase of warpcore.cuh may run in one kernel, in any mixture, on a Map.
//
// Besides: a window may be of 1 to 32 slots and is 64 bytes by default, because an H200 reads 64 bytes as fast as 32 and
// 128 slower; the overflow filter; a group has look-ups of several keys under way at once, and a lane whose key is done
// gets the next at once (Feed in memory.cuh); all groups of a warp vote together; a table grows.
//
// # Filter
//
// A Filter is blocks of 8, 16, 32 or 64 bytes. A key has k bits, in two words of one block. With blocks of 32 bytes, the default, and
// k = 5:
//
//	|  block 0  |  block 1  |  …  |  block n-1  |
//	     |
//	     | ┌ word 0, 64 bits │ word 1 │ word 2 │ word 3 ┐   one sector of a GPU's memory
//	                             ^ 3 of the key's bits   ^ 2 of them
//
// The hash's high bits name the block; a product of the hash names the two words, which differ, and the bits in them. A look-up reads
// two words of a sector, at once; an insert is an atomic or for each, whose result nobody waits for. A lane has four keys under
// way. The paper names its filter and says no more of it, so all this is ours: a filter without blocks reads k sectors; one whose bits
// are chosen freely in a block makes 3.05 atomic operations of 8 bytes with k = 5, not 2, for hardly fewer false positives. Their rates
// in per cent with 8 bits a key, by formula, in the last row by simulation:
//
//	block of             8 bytes      16      32      64
//	k = 4, two words        3.35    2.90    2.66    2.60
//	k = 5, two words        3.42    2.81    2.54    2.46
//	k = 5, any bits         3.40    2.79    2.49    2.33
//
// and the bits a key that a rate takes, with the best k:
//
//	block of             8 bytes      16      32      64
//	1 in 100                12.1    10.9    10.3    10.2
//	1 in 1,000              24.0    19.1    17.3    16.8
//	1 in 1,000,000         169.7    77.4    58.1    52.4
//
// The formula (filterConfig.rate) is exact where blocks have keys as Poisson says. Stats has the rate of a filter as it is: the mean over
// its blocks and, in each, over the pairs of words.
//
// Large batches of inserts go in by regions, as above; look-ups go as they come. Invariants:
//
//  1. All bits of a key that is in are set, where FilterProbe of filter.cuh says, and none else. No bit is ever cleared, but by Clear.
//  2. The bits that are set are no more than k for each key that went in, and some if any did; but where a kernel of the user's may have
//     put in others.
//  3. What Stats counts is what is set.
//
// insert and contains of filter.cuh may run beside one another in one kernel: each word is changed and read whole, and a key is in
// once all its words are changed. The bulk kernel of look-ups, beside which nothing is inserted, reads through the cache that is not kept
// up to date.
//
// # Batches with a condition
//
// InsertIf, FindIf and ContainsIf of Map and Set do those positions of a batch alone whose bool is true. Their kernels are those of the bulk
// operations, compiled a second time when one is first called: there each item has a bit more, which the others need not carry. A lane
// whose position is not chosen takes its next item at once, so a batch costs what its chosen rows cost, and a stream over the others.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table, for the keys of a Set, and for those of a Counter with their counts.
// A kernel of your own includes "warpcore.cuh" and takes a table by value: see Map.Program and Map.Use. For a filter
// it includes "filter.cuh": see Filter.Program and Filter.Use.
package warpcore
