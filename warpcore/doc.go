// Package warpcore implements the tables of WarpCore: by open addressing Map (SingleValueHashTable), Set (HashSet), Counter (CountingHashTable),
// MultiMap (MultiValueHashTable) and MultiBucket (MultiBucketHashTable), whose slots hold several values of a key; BucketList
// (BucketListHashTable), in which a key stands once, with a list of its values; and Filter (BloomFilter).
//
// Source: D. Jünger, R. Kobus, A. Müller, C. Hundt, K. Xu, W. Liu, B. Schmidt, "WarpCore: A Library for fast Hash Tables
// on GPUs", HiPC 2020, §IV.
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
// Where rows of one key are best together, for updates and for multimaps with several rows a key, a batch is brought in the order of far smaller
// parts, of one or two thousand rows, in two such passes. A block takes as much of that as fits its shared memory, finds the rows of each key
// (together.cuh), and combines them into one row, or puts all their values along the key's chain, window by window. An update does so where
// there are three rows a key or more, which is looked at in one batch of 64; others go in the order of regions, as inserts do.
//
// # Sets, updates and counters
//
// A Set's slots are keys, of 4, 8 or 16 bytes, each written by one compare-and-swap: 16, 8 or 4 of them in a window.
//
// Update is an insert that does not replace the value of a key that is there, but changes it where it stands, by an atomic operation, or for code of
// the user's by compare-and-swap. As many rows of a batch may have one key, they are brought together before: rows of a key that are in one row
// of 32 become one, where there are four or more; and keys that come often in a block's rows get an entry in its shared memory, 512 at most,
// where what comes of them is added up until the block ends. (Code of the user's is not asked to combine two values that come: its rows are
// combined one after the other, those in a row of 32 by one lane.) Where the table may be full, the rows of a key are all in or all refused:
// what is left is tried until an attempt gains nothing.
//
// A Counter is a Map of counts with an Update that stays at the largest count there is. FindOrInsert is an insert that tells the value.
//
// # Invariants
//
//  1. A pair stands at a slot such that, in its key's order, no slot before it is empty, and the windows before its own
//     are marked in the overflow filter at the key's bit. Slots never become empty again (erase leaves tombstones), and
//     marks stay. So a search may end at the first window with an empty slot or without the mark.
//  2. In a Map, a Set or a Counter no key is twice.
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
// # MultiMap (§IV-B), and keys with very many values
//
// A MultiMap is the same table in which a key may be any number of times: an insert takes the first free slot of the chain. A key with v values has a
// chain of v/Window windows, so that to insert them one by one would cost the square of v, and to find them a walk of one group. So a multimap of a
// thousand windows or more has hints behind the slots: one for 16 to 32 windows, up to a million, and a few of reserved keys.
//
//	hint: 16 bytes ┌ key u64 │ left u64 ┐   at one of four places by the key's hash
//
//	left    2⁶⁴-1 less the number of windows at the beginning of the key's chain that are full
//
// A row that goes over 32 windows makes one, and moves it on; a row that comes to its ninth window, and every 16 further on, goes on where the hint tells. In large batches, and in
// smaller ones once there are long chains, rows of a key are brought together in shared memory (kernel/together.cuh). A group of lanes that has many
// values of one key reserves as many windows as its values fill for sure, by one addition to the hint, and fills every free slot of them: groups of all
// blocks fill windows of one chain beside one another, and none waits. Whether keys have many values on average is estimated before (HyperLogLog), and
// whether one key has a large share, by comparing some rows with others.
//
// Where the windows of a chain are can be computed: the n-th is first + n·step. So FindAll, Count and Delete of a key whose hint tells of 256
// windows or more leave it to kernels in which all warps deal the windows out among them (long.cuh); what is behind the hint is walked. Stats computes the
// number of a window in its chain by the inverse of step, modulo the prime number of windows. Device-side inserts and look-ups use no hints.
//
// In a MultiBucket a group reserves windows in the same way, and fills each free slot with a full bucket, and what room the key's own slot has; the last
// values, fewer than a window's, go in as one from the hint on. When it grows, full slots are moved first, so that one with room is behind the hint.
//
// Between operations, beside the invariants 1 and 3 to 6: the windows that a hint tells of have no empty slot, and are marked. A delete
// leaves tombstones there, which other keys' inserts take; the deleted key's own hint begins anew.
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
// # BucketList (§IV-C)
//
// The keys are a table as above, whose slots hold lists; the values are in buckets of a pool, which is an array of places of the size of a
// value.
//
//	slot: 16 bytes, or 32 with keys of 8     pool
//	┌ key │ left u32 │ last u64 ┐            … │ value 0 … │ … │ header │ value s₀ … │ … │ header │ values … │ …
//	                     │                     ▲               ▲   │                   ▲   │
//	                     │                     └───────────────────┘                   │   │
//	                     │                                     └───────────────────────────┘
//	                     └─────────────────────────────────────────────────────────────┘
//
//	last    the word of the last bucket: state 2 bits │ has a header 1 │ size 21 │ place 40
//	left    2³²-1 less the number of values
//	header  12 bytes, in whole places: the word of the bucket before, and how many values are in all before
//
// Sizes below 2¹⁶ are exact; larger ones are rounded up by less than a 32,768th. A bucket is λ times as large as the one before, or as large as
// one batch wants it for its key, and no smaller than a 64th of its list: so lists have few buckets whatever λ.
//
// A bulk insert is four kernels: find each row's key or put it; give each row its number in the list, with one atomic operation for the lanes
// of a warp that have one list, and write those values that the last bucket has places for; let the row whose number is the first
// without a place link one bucket for all of them, with one atomic operation a block; write the other values. No lane waits for
// another. What the pool has no room for is refused, and its numbers are taken back. Then the pool grows, or the table is full: at last it
// hands out what is left in buckets of just the batch's size. Cost: 12 bytes a row of scratch memory, 36 bytes a row read and written in
// streams, and a few words of the key's slot and its bucket, which in the order of regions are in the cache.
//
// A large batch on a GPU is brought in the order of small parts of the table, so that a block has all rows of a key, in shared memory, and one kernel does
// all of that: it puts each key, links one bucket for its values where the last has no room, and writes them, those of new buckets beside one another. A key
// for which there is no room gets none of its values: if there are such, all rows are asked once more whether they are of one. Where keys have more rows
// than a block takes, rows of a key are only brought beside one another, and the four kernels take them.
//
// FindAll reads each key's slot once; to copy, lanes in a row take values in a row, whosever they are, and lists of over 4,096 values are
// copied by many warps. Delete makes the slot a tombstone; the places of the buckets are garbage, which is counted. When the pool is used
// up and a quarter of it is garbage, all lists are copied to a new pool, each in one bucket of its size; at MaxBytes, too, where a
// 16th has no value. Shrink does that when asked. Build makes such lists at once.
//
// Between operations:
//
//  1. The invariants 1 to 3, 5 and 6 of a Map, of the keys. A free slot has no list: its bytes behind the key are ones.
//  2. A list is ready, or full: found so by a kernel of the user's, beside which no memory is got. None is blocked. A key without values has
//     no bucket, and is there only if such a kernel put it.
//  3. All buckets of a list but the last are full: a header's number is the sum of the sizes before. The last has its number of values or fewer
//     behind that.
//  4. A place belongs to one bucket at most. Places of lists and of garbage are no more than were given out.
//  5. Counters: the lists have Added - Removed values.
//
// Where we differ from the paper: the word and the count are apart (a count of 32 bits beside a pointer would leave 30 bits to it), so a
// number is taken by one addition and not by compare-and-swap; its four states guard the device-side insert alone (list::insert of bucketlist.cuh),
// which waits with growing pauses, up to a bound, while another lane links a bucket, and holds nothing meanwhile. Look-ups may not run beside
// it, as in the paper. There are no free lists of buckets: to give buckets back one by one, and take them, would serialize lanes at the heads
// of few lists, and leaves holes; copying what is left is a stream, and makes lists whole. It needs memory for both pools at once.
// A list has up to 0xf0000000 values.
//
// # MultiBucket
//
// The paper does not have this table; the library of its authors does (MultiBucketHashTable). A slot is a key, a count, and places for B values
// (MultiBucketOptions.Bucket); with keys and values of 4 bytes, and B = 6:
//
//	|       window 0        |       window 1        |  …
//	     |
//	     | 2 × ┌ key │ left u32 │ value 0 │ value 1 │ … │ value 5 ┐   32 bytes: a sector of a GPU's memory
//
//	left    2³²-1 less the number of values, so that a table is cleared by filling it with 0xff
//
// key and left begin at a multiple of their size, 8 bytes or with keys of 8 bytes 16, of which a look-up reads them at once. The values follow,
// from the next multiple of their size on. A key has slots along its chain, all full but the last that it got; a look-up goes through the chain to
// its end, as that of a MultiMap.
//
// An insert goes along the chain. At a slot of its key with room it takes a place by compare-and-swap of left, and writes its value there; where
// others were faster, it looks again. Where there is no such slot, it takes the chain's first free slot, a tombstone too, as an insert into a Map
// does (with keys of 4 bytes, key and left in one swap). It sees a full slot as nobody's, so one state machine does for both (Insert of
// warpcore.cuh); Put of multibucket.cuh takes all the places of a slot that it can use, for several values of a key.
//
// A row leaves a hint of a long chain and skips what one tells of, as in a MultiMap (see there); the slot of its key with room is behind, or in a window
// that the row read before it asked.
//
// FindAll remembers of each key its only value, or its first slot; only for keys with several slots it reads the table again. Delete makes
// tombstones of all slots of a key. All else, the regions and windows, growth, the order of large batches, is as in a MultiMap; how far the
// table grows for a batch is by how many distinct keys that has, for pairs of k keys take k + pairs/B slots at most.
//
// Between operations:
//
//  1. The invariants 1, 3, 5 and 6 of a Map. A free slot has no values: left is ones.
//  2. A slot with a key has 1 to B values, and of the slots of a key one at most has fewer than B. (Inserts that find no slot with room come to the
//     same free slot, because free slots only become fewer while they run; who loses it finds the other's.)
//  3. The windows that a hint tells of have no empty slot, and behind the first eight none of its key with room. Every insert reads those eight before it
//     asks for a hint, and may put a slot where another key was deleted.
//  4. Counters: the slots have Added - Removed values.
//
// Look-ups may not run beside inserts from the device (buckets::insert of multibucket.cuh): a value is written after its place was taken.
//
// # Batches with a condition
//
// InsertIf, FindIf and ContainsIf of Map and Set do those positions of a batch alone whose bool is true. Their kernels are those of the bulk
// operations, compiled a second time when one is first called: there each item has a bit more, which the others need not carry. A lane
// whose position is not chosen takes its next item at once, so a batch costs what its chosen rows cost, and a stream over the others.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table, for the keys of a Set, and for those of a Counter with their counts. A kernel
// of your own includes "warpcore.cuh" and takes a table by value: see Map.Program and Map.Use. For a filter it includes "filter.cuh", for a
// BucketList "bucketlist.cuh", for a MultiBucket "multibucket.cuh": see their Program and Use.
package warpcore
