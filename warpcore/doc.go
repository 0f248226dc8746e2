// Package warpcore implements the hash tables of WarpCore. Map (SingleValueHashTable), Set (HashSet), Counter
// (CountingHashTable), MultiMap (MultiValueHashTable) and MultiBucket (MultiBucketHashTable) use open addressing: they
// are arrays of slots, and a key goes into the first free slot of an order of its own. A slot holds one key and its
// value, of a Set a key alone, and of a MultiBucket a key and several of its values. A window is a few slots in a row,
// 64 bytes by default, which are read at once. In a BucketList (BucketListHashTable), each key stands once, with a list
// of its values. Filter is WarpCore's BloomFilter.
//
// Source: D. Jünger, R. Kobus, A. Müller, C. Hundt, K. Xu, W. Liu, B. Schmidt, "WarpCore: A Library for fast Hash
// Tables on GPUs", HiPC 2020, §IV.
//
// # Memory
//
// A table has a main region: a prime number of windows, or in a MultiMap of neighbourhoods of windows (see there). A
// window has Options.Window slots. A small side region of the same form follows. In layout SoA, the values of both
// regions follow. With 4-byte keys and values and windows of 64 bytes:
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
// The high bits of a key's hash name its first window, and the low bits name its first slot in every window. The other
// slots of a window follow in the order of their distance from that slot; the distance is the ^ of the two numbers. So
// the slots in the same 16 bytes come first, then those in the same 32-byte sector. A second hash is the distance to
// the next window. As the number of windows is prime, a search visits every window once before it visits one again.
//
// Here we differ: the first six windows of a chain lie in one neighbourhood, 128 windows in a row, an odd distance
// apart that other bits of the hash name. Then the chain goes on by double hashing. So a block that has a neighbourhood
// in its shared memory can put a pair into any of the six, and a look-up that needs a second window reads it near the
// first. A window of the neighbourhood may come again later. At a load factor of 0.9, a key that is in costs 1.224
// windows instead of 1.220, and one that is not 1.395 instead of 1.376. Chains of multimaps, which may be long, go
// otherwise (see MultiMap).
//
// A group of 2 to 32 lanes reads a window whole, with loads of up to 16 bytes, and decides by votes; a lane on its own
// reads sector after sector. Groups of any size agree about the order, so any group may use any table.
//
// Beside the slots lies an overflow filter, 4 bits for each window, or 8 in a MultiMap, small enough to stay in the L2
// cache. A key that goes past a full window clears one of the bits, chosen by its hash. So a look-up that comes to the
// end of a full window goes on only if its bit is cleared: at load factor 0.9 a key that is not there costs 1.4 windows
// instead of 2.9.
//
// # Large batches
//
// A batch that is large for its table need not touch memory at random. An insert of millions of pairs into a packed map
// or a set, of one pair for eight slots or more, goes in stretch by stretch. A stretch is so many neighbourhoods in a
// row as fit the shared memory of a block beside others. The batch is brought in the order of stretches in two passes,
// by the first windows of its keys. Then each block takes a stretch into shared memory, puts its pairs there, and writes
// it back. So memory sees streams alone:
//
//	batch      ── 2 passes ──►  │ rows of stretch 0 │ rows of stretch 1 │ …
//	                                    │
//	stretch    │ window │ window │ … │  ◄── one block: load, put, settle, store
//	marks      │ taken, taken before │ …   32 bits a window
//	listed     │ rows whose window is full │  ──►  their next windows, in rounds
//	left over  │ rows whose six windows are full │  ──►  a kernel that inserts them one by one
//
// A row takes the first free slot of its order by one atomic operation on its window's mark, and then writes its pair.
// Rows of one key may stand beside one another, until all rows have come: then each window is settled, and one pair of
// a key stays. If one goes, those of the batch that stay in the window are laid anew, because what stands behind a slot
// that becomes empty might not be found. At a load factor of 0.8, 7% of the pairs of 8 bytes find their first window
// full, and 12% of those of 16. They are listed, and go on in rounds, a window in a round. What a row does in a round
// depends on what was settled before it alone, so rows of one key go on together, and none is put behind another. Less
// than a thousandth, or a half of a hundredth, is left over in the end. Cost: with pairs of 8 bytes, 62 bytes of streams
// a pair.
//
// A packed multimap takes batches with up to 96 rows for each key, on average, in the same way (stretch_multi.cu). It
// looks for no key and settles nothing: what a row takes is its own. A stretch is a neighbourhood of its table (see
// MultiMap below), and a row goes as far along its chain as that stays there. The marks have the stretch's overflow
// filters beside the taken slots. Neighbouring rows with one key take slots in a row, at one step. Where keys have
// several rows, which one row in eight tells, the block brings the rows of a stretch in the order of their windows
// first, so that those of a key are neighbours; eight lanes then put the rows of one key at once. Rows with reserved
// keys are only counted, and inserted behind, because the side region may refuse them. At a load factor of 0.8, by
// simulation, no rows of keys with up to 8 values are left over, 0.7% where keys have 64 values, and 2.5% with 96. Cost:
// with pairs of 8 bytes, 55 bytes of streams a pair, and 40 more from the L2 cache where rows are sorted.
//
// A bucket list takes batches in that way, too, of pairs with any number of rows a key: see BucketList below.
//
// Other large batches are brought in the order of the table's regions, one pass. A region is a stretch of windows that
// the L2 cache holds, because a compare-and-swap that hits it is several times as fast as one in memory. Blocks that
// begin in order then go through the pairs in order. The numbers are in layout.go and stretch.go.
//
// If rows are told whether their keys are new, by the flags of InsertNew and of a Set's Insert, their positions come
// with them into the stretches, as one column more. Each slot of a stretch has the position of its row beside it. When a
// window is settled, a bit is set for each of its new pairs that stays, at the row's position. One bit a row is little
// enough for the L2 cache, where random writes are cheap. In the end all bits become flags, in a stream. (Of Go slices,
// InsertNew and a Set's Insert always have flags, which they count.)
//
// A batch with such flags that is too small for stretches goes in as it is. So does one whose positions are chosen, as
// in InsertIf. The pairs in order take as much memory as the batch, or twice that for stretches, with 8 bytes a row more
// where there are flags, and no more than an eighth of what the device has free. That memory is kept
// for the next batch until the table grows or is closed. Without it the batch goes in as it is.
//
// A table that grows is gone through in order, too. Packed maps, sets and counters of millions of pairs grow stretch by
// stretch. A key's first window is of the high bits of its hash, in the old table as in the new. So the keys of a
// stretch of the new table come from neighbourhoods of the old one that lie in a row, and nothing need be partitioned:
//
//	old table  │ window │ window │ window │ window │ …
//	           ├───── of block 0 ─────┤
//	                        ├────── of block 1 ─── …     both read what is at the border, and take their own keys
//	new table  │      stretch 0       │      stretch 1       │ …
//
// A pair that stands beyond its neighbourhood in the old table may belong anywhere in the new one. So it is left over, as
// is a pair whose six new windows are full. What a neighbourhood at a border leaves over is for the block in whose part
// of the old table it begins. There is room for all pairs in the list of those that are left over, since nobody knows
// before how many there are. If there is no memory for it, all pairs are inserted into the new table in the order of the
// old. Cost: with pairs of 8 bytes and a load factor of 0.8, 30 bytes of streams a pair in a table that becomes twice as
// large. Pairs of 16 bytes grow as they did before, in the order of the old table: an H200 does that faster.
//
// Inserts into multimaps with several rows for each key work best if rows of one key are together. For them, a batch is
// brought in the order of far smaller parts, of one or two thousand rows, in two such passes. A block takes as much of
// that as fits its shared memory and finds the rows of each key (together.cuh). Then it puts all their values along the
// key's chain, window by window.
//
// An update combines the rows of a key before they meet the table, if there are three rows or more for each key; it looks
// at one batch in 64 to see that. The batch is brought in the order of parts, so many that the keys of a part fit the
// shared memory of a multiprocessor with their sums. Up to 1,024 parts are made in one pass. A block reads the rows of a
// part in a stream, however many there are, and gives out its keys and sums in the end:
//
//	batch    ── 1 pass ──►  │ rows of part 0 │ rows of part 1 │ …     part: a stretch of the hash's high bits
//	                                │
//	                        │ key │ key │ … │ sum │ sum │ …    ◄── one block, in shared memory
//	                                │
//	sums                    │ keys and sums of part 0 │ … ──►  a kernel that updates the table, one row a key
//
// The rows of a part that is much longer than others, because some keys come very often, are divided among blocks; each
// gives out sums of its own. So does a warp that has several rows of one key at once make one row of them first. A key
// that finds no room in shared memory costs a row of its own each time it comes. How many rows are left is known before
// they go in: if they have room, nobody need estimate how many keys a batch has. With 10 million keys in 100 million rows
// of 8 bytes, 30 bytes of streams a row. Other updates go in the order of regions, as inserts do.
//
// # Sets, updates and counters
//
// A slot of a Set is a key of 4, 8 or 16 bytes, which one compare-and-swap writes. A window has 16, 8 or 4 of them.
//
// Update is an insert that does not replace the value of a key that is there, but changes it where it stands. It does
// so by an atomic operation, or for code of the user's by compare-and-swap. Many rows of a batch may have the same key,
// so they are brought together before. If four or more rows of a key are in the same 32 rows, they become one row. Keys
// that come often in the rows of a block get an entry in its shared memory, 512 at most; an entry adds up what comes of
// its key until the block ends. Code of the user's is not asked to combine two values of a batch: its rows are combined
// one after the other, and one lane combines those that are in the same 32 rows. If the table may be full, the rows of
// a key are all in or all refused: what is left is tried until an attempt gains nothing.
//
// A Counter is a Map of counts, with an Update that stops at the largest count that the type holds. FindOrInsert is an
// insert that also returns the value.
//
// # At MaxBytes
//
// A table whose next size would be larger than MaxBytes takes the largest size that MaxBytes allows. From then on it
// does not grow, and fills its slots beyond LoadFactor. Up to 98% of the slots, a new key gets in. Beyond that, an
// insert reads 256 windows for a free slot, or up to 4,096 in a batch of fewer than 16 pairs, and a key that finds none
// is refused: *table.FullError names its positions. Tables of up to 256 windows are searched whole. Maps of 4+4 bytes,
// with MaxBytes of 64 KiB, 1 MiB and 16 MiB, were filled to the last slot in this way. A MultiBucket is full when its
// slots are; keys whose last slot has room still get values in.
//
// Look-ups, deletions, and inserts and updates of keys that are in go on. Inserts use the slots of deleted keys again.
// If deletions have left tombstones in more than one slot in 16, a batch that leaves the table filled beyond LoadFactor
// has it laid anew in its size, which takes memory for a second table. Grow to more pairs than MaxBytes allows returns
// table.ErrMaxBytes.
//
// Cost: a batch that might not fit waits for its stream. A pair that finds no slot reads up to 256 windows, where
// others read one or two, and its key is looked up once more, so that FullError names no key that is in. Look-ups of
// keys that are not in read more windows, the fuller the table is, but no more than Stats.MaxProbes.
//
// In a BucketList, keys and values share MaxBytes, about in proportion to what the lists take now. When its pool is
// used up, and a 16th of it holds no value, all lists are copied to another pool, each in one bucket, which takes
// memory for both pools. In the end, buckets are only as large as a batch wants them, so that the last places are
// taken, too. A Filter has no bound: it is made in its size, and refuses nothing.
//
// # Invariants
//
//  1. A pair stands at a slot such that, in its key's order, no slot before it is empty, and the windows before its own
//     are marked in the overflow filter at the key's bit. Slots never become empty again (erase leaves tombstones), and
//     marks stay. So a search may end at the first window with an empty slot or without the mark.
//  2. In a Map, a Set or a Counter no key is there twice.
//  3. The three highest bit patterns of the key type mark slots: empty, tombstone, busy. Real keys of these patterns
//     live in the side region, under a pattern lower by three; no other key does. So no key is reserved.
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
//   - Pairs of up to 8 bytes, and of 16 where the device can swap 128 bits, are written whole. For all others a slot is
//     first marked busy, then the value is written, and the key last, with release order. An insert that meets a busy
//     slot on its way looks again until it is not, because it may be its own key; a find passes on, because that insert
//     has not happened yet.
//   - A tombstone is used again only by kernels beside which nothing is erased: the bulk inserts, which the
//     host orders against every other operation of the table. The device-side insert takes empty slots alone. In
//     both cases free slots only become fewer while inserts run, so two inserts of one key come to the same first free
//     slot, or one sees the other's key: after a lost swap the search begins again at that slot. A free slot is
//     taken only after the rest of the chain was searched for the key.
//   - So find, insert, insert_new and erase of warpcore.cuh may run in one kernel, in any mixture, on a Map.
//
// There are more differences. A window has 1 to 32 slots, and 64 bytes by default, because an H200 reads 64 bytes as
// fast as 32 and 128 slower. There is the overflow filter. A group has look-ups of several keys under way at once, and
// a lane whose key is done gets the next at once (Feed in memory.cuh). All groups of a warp vote together. A table
// grows.
//
// # MultiMap (§IV-B), and keys with very many values
//
// A MultiMap is the same table, but a key may be in it any number of times: an insert takes the first free slot of the
// chain. A key with v values has a chain of v/Window windows. The chain stays near its beginning as long as that has
// room: the main region is a prime number of neighbourhoods, of 512 windows each, or fewer in a table of less than
// 131,584 windows. The first 32 windows of a chain, a turn, are in its first window's neighbourhood. The next 32 are in
// another, which double hashing names, and so on. After a turn in each neighbourhood, the chain goes on where its first
// turn ended:
//
//	│ neighbourhood 0         │ neighbourhood 1         │ …
//	     ▲       ▲       ▲          ▲       ▲       ▲
//	     first · + hop · + 2·hop    first · + hop · + 2·hop     in either: so many windows on, modulo its length, hop odd
//
// To insert the values of a key one by one would cost the square of their number, and a single group would have to walk
// the whole chain to find them. So a multimap of a thousand windows or more has hints behind the slots. It has one hint
// for each 16 to 32 windows, up to a million, and a few for reserved keys.
//
//	hint: 16 bytes ┌ key u64 │ left u64 ┐   at one of four places by the key's hash
//
//	left    2⁶⁴-1 less the number of windows at the beginning of the key's chain that are full
//
// A row that goes over 32 windows makes a hint, or moves it on. A row that comes to its ninth window asks for the hint,
// and again every 16 windows further on, and goes on where the hint tells. In large batches, and in smaller ones once
// there are long chains, rows of a key are brought together in shared memory (kernel/together.cuh). A group of lanes
// that has many values of one key reserves as many windows as its values fill for sure, by one addition to the hint,
// and fills every free slot of them. So groups of all blocks fill windows of one chain beside one another, and none
// waits. Before, an estimate (HyperLogLog) tells whether keys have many values on average, and a comparison of some
// rows with others tells whether one key has a large share.
//
// The place of each window of a chain can be computed: the n-th is number n mod 32 of turn n/32. So FindAll, Count and
// Delete of a key whose hint tells of 256 windows or more leave the key to kernels in which all warps divide the windows
// among them (long.cuh). What is behind the hint is walked. Stats computes the number of a window in its chain by the
// inverses of the hop and of the step from neighbourhood to neighbourhood, of which there are a prime number. Device-side
// inserts and look-ups use no hints.
//
// In a MultiBucket, a group reserves windows in the same way. It fills each free slot with a full bucket, and fills
// what room the key's own slot has. The last values, fewer than a window's, go in together, from the hint on. When a
// MultiBucket grows, full slots are moved first, so that the slot with room is behind the hint.
//
// Between operations, invariants 1 and 3 to 6 hold, and one more: the windows that a hint tells of have no empty slot,
// and are marked. A delete leaves tombstones there, which other keys' inserts take. The hint of the deleted key begins
// anew.
//
// # Filter
//
// A Filter is an array of blocks of 8, 16, 32 or 64 bytes. A key has k bits, in two words of one block. With blocks of
// 32 bytes, the default, and k = 5:
//
//	|  block 0  |  block 1  |  …  |  block n-1  |
//	     |
//	     | ┌ word 0, 64 bits │ word 1 │ word 2 │ word 3 ┐   one sector of a GPU's memory
//	                             ^ 3 of the key's bits   ^ 2 of them
//
// The high bits of the hash name the block. A product of the hash names the two words, which differ, and the bits in
// them. A look-up reads two words of a sector, at once. An insert is an atomic or for each word, and nobody waits for
// its result. A lane has four keys under way. The paper names its filter and says no more of it, so all this is ours. A
// filter without blocks would read k sectors. If the bits could lie anywhere in a block, an insert with k = 5 would
// make 3.05 atomic operations of 8 bytes instead of 2, for hardly fewer false positives. The rates of false positives,
// in per cent with 8 bits a key, are as follows; they are by formula, but in the last row by simulation:
//
//	block of             8 bytes      16      32      64
//	k = 4, two words        3.35    2.90    2.66    2.60
//	k = 5, two words        3.42    2.81    2.54    2.46
//	k = 5, any bits         3.40    2.79    2.49    2.33
//
// To reach a rate takes so many bits a key, with the best k:
//
//	block of             8 bytes      16      32      64
//	1 in 100                12.1    10.9    10.3    10.2
//	1 in 1,000              24.0    19.1    17.3    16.8
//	1 in 1,000,000         169.7    77.4    58.1    52.4
//
// The formula (filterConfig.rate) is exact if the numbers of keys in blocks follow a Poisson distribution. Stats gives
// the rate of a filter as it is: the mean over its blocks and, in each, over the pairs of words.
//
// The bits also tell how many different keys are in. A key sets a given bit of its block with the probability p, and one
// bit of b blocks is as good as another, so of n keys a share of (1 - p/b)^n of all bits is not set. Stats solves this for
// n: for Bloom filters without blocks, that is the estimate of S. Swamidass and P. Baldi (2007). What blocks change is
// the error, because the bits of a block are set, or not, together. Stats tells it, by the probabilities that a key sets
// neither of two bits of one word, of one block, and of two blocks (filterConfig.keysOf). Near one false positive in 100 it
// is a quarter of √n keys: 250 of a million. Over 1,000 seeds, the estimates of seven geometries with 20 to 8,000 keys lay
// within 5% of a standard error around what was so, and deviated as much as they said.
//
// Large batches of inserts, of a key for 32 bytes of the filter or more, go in stretch by stretch: keys are brought in the
// order of stretches of 32 KiB in two passes, and a block sets the bits of each in shared memory, and then in the filter.
// So the filter is read and written once, and each key costs 28 bytes of streams, in place of two atomic operations of the
// L2 cache, which does 80 G of them a second. So 100 million keys of 4 bytes go into 1 GiB at 41 G/s
// on an H200, and into 100 MB at 66; by regions they went at 22 and 36. Smaller batches go in by regions, as above. Look-ups go as they come.
//
// Invariants:
//
//  1. All bits of a key that is in are set, where FilterProbe of filter.cuh says, and no others are. Only Clear ever
//     clears a bit.
//  2. No more than k bits are set for each key that went in, and some are set if any key did; this does not hold once a
//     kernel of the user's may have put in others.
//  3. What Stats counts is what is set.
//
// The functions insert and contains of filter.cuh may run beside one another in one kernel: each word is changed and
// read whole, and a key is in once all its words are changed. Nothing is inserted beside the bulk kernel of look-ups.
// So it reads through the cache that is not kept up to date.
//
// # BucketList (§IV-C)
//
// The keys are a table as above, whose slots hold lists. The values are in buckets of a pool. The pool is an array of
// places, each of the size of a value.
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
// Sizes below 2¹⁶ are exact. Larger ones are rounded up by less than a 32,768th. A bucket is λ times as large as the
// one before, or as large as one batch wants it for its key, and no smaller than a 64th of its list. So lists have few
// buckets, whatever λ is.
//
// A bulk insert is four kernels. The first finds the key of each row, or puts it in. The second gives each row its
// number in the list, with one atomic operation for the lanes of a warp that have the same list, and writes those
// values that the last bucket has places for. In the third, the row whose number is the first without a place links one
// bucket for all such rows, with one atomic operation a block. The fourth writes the other values. No lane waits for
// another. If the pool has no room for some rows, they are refused, and their numbers are taken back. Then the pool
// grows. If it cannot, the table is full: at last it hands out what is left in buckets of just the batch's size. Cost
// for each row: 12 bytes of scratch memory; 36 bytes read and written in streams; and a few words of the key's slot and
// its bucket, which are in the cache if the rows come in the order of regions.
//
// On a GPU, a large batch goes in stretch by stretch (stretch_list.cu). Keys stand in the windows that those of a map
// stand in, so a stretch is whole neighbourhoods. A block has the keys of a stretch in shared memory, and beside each
// how many rows of the batch have it. It goes through its rows twice, so they need no room there:
//
//	rows         ──►  keys   │ key │ key │ … │     find or put the key, and count it: a row's slot and number are noted
//	                  counts │  1  │  3  │ … │
//	slots        ──►  places │  0  │  1  │ … │     one atomic operation takes the places of all; slots are written whole
//	rows, notes  ──►  pool   │ value │ value │ value │ value │ …
//
// A key whose six windows are full is left over with all its rows, and goes in as in smaller batches: at a load factor of
// 0.8, 1 in 450 with keys of 4 bytes, and 1 in 90 with keys of 8. If the pool has too few places for a block, all of its
// rows are left over, and the pool grows by what the blocks wanted. Rows that are left over do not know their positions.
// So if there may be no room for all of them, all rows of the batch are asked whether their keys were left over, and
// those are tried by their positions. Cost, of pairs of 8 bytes with a key each, in a new table at a load factor of 0.8:
// 48 bytes of streams for each pair, beside the two passes.
//
// If a batch is small for that, or the device is short of memory, or very many rows have one key, the batch is brought
// in the order of small parts of the table, so that one block has all rows of a key in its shared memory, and one kernel
// does all that four did. It puts each key, links one bucket for its values if the last has no room, and writes them,
// those of new buckets beside one another. A key for which there is no room gets none of its values: if there are such
// keys, all rows are asked once more whether they have one of them. If keys have more rows than a block takes, the rows
// of a key are only brought beside one another, and the four kernels take them.
//
// FindAll reads the slot of each key once. To copy, lanes in a row take values in a row, whatever key they belong to.
// Many warps copy each list of more than 4,096 values. Delete makes the slot a tombstone; the places of its buckets are
// garbage, which is counted. When the pool is used up and a quarter of it is garbage, all lists are copied to a new
// pool, each in one bucket of its size. At MaxBytes, this also happens if a 16th of the pool has no value. Shrink does
// it on demand. Build makes such lists at once.
//
// Between operations:
//
//  1. The invariants 1 to 3, 5 and 6 of a Map, of the keys. A free slot has no list: its bytes behind the key are ones.
//  2. A list is ready or full. It is full if a kernel of the user's, beside which no memory is got, found it so. No
//     list is blocked. A key without values has no bucket, and is there only if such a kernel put it.
//  3. All buckets of a list but the last are full: a header's number is the sum of the sizes before. The last has its
//     number of values or fewer behind that.
//  4. A place belongs to one bucket at most. Places of lists and of garbage are no more than were given out.
//  5. Counters: the lists have Added - Removed values.
//
// We differ from the paper in these points. The word and the count are apart, because a count of 32 bits beside a
// pointer would leave 30 bits to the pointer. So a row takes its number by one addition and not by compare-and-swap.
// The four states of the word guard only the device-side insert (list::insert of bucketlist.cuh). That insert waits
// with growing pauses, up to a bound, while another lane links a bucket, and holds nothing meanwhile. Look-ups may not
// run beside it, as in the paper. There are no free lists of buckets: lanes that give back and take buckets one by one
// would wait for one another at the heads of few lists, and would leave holes. Copying what is left is a stream, and
// makes lists whole, but needs memory for both pools at once. A list has up to 0xf0000000 values, 4,026,531,840; what
// is more is refused.
//
// # MultiBucket
//
// The paper does not have this table; the library of its authors does (MultiBucketHashTable). A slot is a key, a count,
// and places for B values (MultiBucketOptions.Bucket). With keys and values of 4 bytes, and B = 6:
//
//	|       window 0        |       window 1        |  …
//	     |
//	     | 2 × ┌ key │ left u32 │ value 0 │ value 1 │ … │ value 5 ┐   32 bytes: a sector of a GPU's memory
//
//	left    2³²-1 less the number of values, so that a table is cleared by filling it with 0xff
//
// The key and left together begin at a multiple of their size, which is 8 bytes, or 16 with keys of 8 bytes: so a
// look-up reads both at once. The values follow, from the next multiple of their own size on. A key has slots along its
// chain. All are full but the last that it got. A look-up goes through the chain to its end, as in a MultiMap.
//
// An insert goes along the chain. If it meets a slot of its key with room, it takes a place by compare-and-swap of
// left, and writes its value there. If others were faster, it looks again. If there is no such slot, it takes the first
// free slot of the chain, which may be a tombstone, as an insert into a Map does (with keys of 4 bytes, one swap writes
// key and left). It treats a full slot as if it were another key's, so one state machine does for both tables (Insert
// of warpcore.cuh). Put of multibucket.cuh takes all the places of a slot that it can use, for several values of a key.
//
// A row leaves a hint of a long chain, and skips the windows that a hint tells of, as in a MultiMap (see there). The
// slot of its key with room is behind these windows, or in a window that the row read before it asked for the hint.
//
// FindAll remembers for each key its only value, or its first slot. It reads the table again only for keys with several
// slots. Delete makes tombstones of all slots of a key. Regions and windows, growth, and the order of large batches are
// as in a MultiMap. How far the table grows for a batch depends on how many distinct keys the batch has, because pairs
// of k keys take k + pairs/B slots at most.
//
// Between operations:
//
//  1. The invariants 1, 3, 5 and 6 of a Map. A free slot has no values: left is ones.
//  2. A slot with a key has 1 to B values, and of the slots of a key one at most has fewer than B. (Inserts that find
//     no slot with room come to the same free slot, because free slots only become fewer while they run; who loses it
//     finds the other's.)
//  3. The windows that a hint tells of have no empty slot, and behind the first eight none of its key with room. Every
//     insert reads those eight before it asks for a hint, and may put a slot where another key was deleted.
//  4. Counters: the slots have Added - Removed values.
//
// Look-ups may not run beside inserts from the device (buckets::insert of multibucket.cuh): a value is written after
// its place was taken.
//
// # Batches with a condition
//
// For a batch with a condition, InsertIf, FindIf and ContainsIf of Map and Set work on those positions alone whose bool
// is true. Their kernels are those of the bulk operations, compiled a second time when one of them is first called: in
// these, each item has one bit more, which the others need not carry. A lane whose position is not chosen takes its
// next item at once. So a batch costs what its chosen rows cost, and one pass over the other rows.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table, for the keys of a Set, and for the keys of a Counter
// with their counts. A kernel of your own includes "warpcore.cuh" and takes a table by value: see Map.Program and
// Map.Use. For a filter it includes "filter.cuh", for a BucketList "bucketlist.cuh", and for a MultiBucket
// "multibucket.cuh": see Program and Use of these types.
package warpcore
