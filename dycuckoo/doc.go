// Package dycuckoo implements DyCuckoo: a cuckoo hash table of several subtables, which grows and shrinks one subtable
// at a time. It is for data that come and go.
//
// Source: Y. Li, J. Zhang, Y. Liu, Z. Lyu, Z. Huang, J. Sun, "Dynamic Hash Tables on GPUs"; it extends DyCuckoo, ICDE
// 2021.
//
// # Memory
//
// A table is d subtables, each with memory of its own for its buckets, whose number is a power of two, for their
// filter, and in layout Wide for the values. No subtable has more than twice the buckets of another. With 4-byte keys
// and values, d = 4 and buckets of 64 bytes:
//
//	subtable 0   | bucket 0 | bucket 1 | … | bucket 2n-1 |   filter: a byte a bucket
//	subtable 1   | bucket 0 | bucket 1 | … | bucket n-1  |   filter
//	subtable 2   | bucket 0 | bucket 1 | … | bucket n-1  |   filter
//	subtable 3   | bucket 0 | bucket 1 | … | bucket n-1  |   filter
//	                  |
//	                  | packed   8 × ┌ key 4 B │ value 4 B ┐   one word: one compare-and-swap writes a pair of 8 or 16 bytes
//	                  | wide         ┌ taken │ key │ key │ … ┐   the slots that are taken, a bit each, in the place of a key; keys of
//	                                                             up to 32 bytes; values, of up to 32, in an array of their own
//
//	side         a bucket for each of the three reserved keys of the packed layouts
//	locks        a bit a bucket
//
// # The two layers (§5.1)
//
// A key's hash names two of the subtables, in order; there are d·(d-1) such pairs. The first of the two is the key's
// home. In each of the two, a hash function of the subtable's own names a bucket. The pair is in one of these two
// buckets, so a look-up and a deletion read two at most.
//
// If subtables differ in size, the home of some keys is turned: of the keys whose home would be a smaller subtable and
// whose other would be a larger one, a part has the two the other way round. So each subtable is the home of as many
// keys as its share of the slots. This is the table's tilt. To change it, all pairs must be looked at. So a table keeps
// the tilt of the step at which it was empty, until a large batch or new filters pass over all pairs anyway.
//
// An insert puts the pair at home. If the bucket there is full, it puts the pair away from home, in the other bucket.
// The filter of the bucket at home then gets a bit, chosen by the hash. So a look-up that misses at home goes on only
// if its bit is set. It does not even ask the filter if the bucket has a slot that never was taken, because then the
// bucket never was full. Most look-ups read one bucket.
//
// A bucket's number is made of 8 bits of the subtable's hash function, then 20 bits that are the same for the key in
// every subtable, then again bits of the function. So the two buckets of a key, and the buckets that pairs are moved to
// from there, lie in the same stretches of 256 buckets in all subtables. The number of a subtable's buckets decides how
// many of the lowest bits count: bucket b of n becomes b or b+n of 2n.
//
// # Insertion
//
// Most pairs need one compare-and-swap. A pair whose two buckets are full is listed by its warp. For each listed pair,
// four lanes of the warp move a pair of its home on, or else a pair of its other bucket, to the moved pair's other
// bucket, while other warps still insert. They write the copy before they overwrite the slot, and if the moved pair's
// value is replaced in between, the copy's is, too. A second kernel takes the pairs that find no room by one such step.
// It looks for a path of pairs that ends at a free slot, on which each pair has the place of the next as its other
// bucket. It moves the pairs from the end of the path on, each under the locks of its two buckets. So no pair is ever
// outside all buckets. The paper's evictions hold a pair that is in no bucket, and drop it, or make everybody wait,
// when their chain meets its bound.
//
// Large batches are first brought in the order of stretches. A batch that is large for the table goes in stretch by
// stretch (staged.cu). A block takes a stretch of every subtable into shared memory, inserts there, and writes it back,
// so memory is read and written in streams alone. Most pairs take the next slot of a bucket by a counter there, and
// equal keys are told apart bucket by bucket afterwards. For a pair whose two buckets are full, a lane claims the slot of
// a pair of its home by a bit, and moves that pair on. No lane waits for another. A batch that is not so large goes
// through the table as through small tables that fit the L2 cache. In layout Wide, batches go in stretch by stretch if
// a stretch of every subtable fits a block's shared memory, and a bucket has 16 slots at most; the values stay in
// memory. With four subtables and buckets of 128 bytes, an H200 has room for up to six stretches, so if three subtables
// are larger than the fourth, batches go in one by one.
//
// A pair that is moved on is one whose other subtable is filled less than the whole, if there is such a pair (§4.3).
// Theorem 1 asks for C(mᵢ,2)/nᵢ to be equal, so a subtable with twice the slots gets √2 times the pairs, and is filled
// less. (The text behind the theorem has it the other way round, that larger subtables are filled more.)
// Options.Balance offers the theorem's choice of the first subtable, with probabilities in proportion to nᵢ/C(mᵢ,2), in
// all layouts. In an empty table, the probabilities are in proportion to the slots: one batch of 20,000 pairs fills the
// three larger subtables of layout Wide to 0.73 and the smaller one to 0.84. The default, HomeFirst, fills them to 0.73
// to 0.76. It keeps nine of ten pairs at home at a filled factor of 0.85, and reads fewer buckets for each look-up:
// 1.1, where Theorem1 has 1.5. On one H100, 100 M pairs of 4+4 bytes in batches, filled to 0.85, are inserted at 8.8
// G/s and found at 23.6 with HomeFirst, and at 7.1 and 16.7 with Theorem1 (study dycuckoo/balance).
//
// Layouts PackedLocked and Wide write every pair under the locks of its key's two buckets. Options.Coordination tells
// how the lanes of a warp share that work. With LaneByLane, the default, each lane inserts its own pair; a lane that
// does not get its locks lets the others go on, and tries again. Voter is the paper's voter coordination (§5.2,
// Algorithm 1): the warp votes for a leader, which tries its locks, once. If it gets them, all lanes inspect both
// buckets, and the leader puts its pair. If not, they vote for another, and it leads again when all others have. If
// both buckets are full, the warp looks for a path, in the place of the paper's chain of evictions. A lock is a bit
// that an atomic or sets; the paper has a word for atomicCAS. An insert in a kernel of yours goes lane by lane;
// insert_voted is for warps all of whose lanes call it.
//
// LaneByLane is the faster (study dycuckoo/voter, one H100, pairs of 4+4 bytes, G/s). HOT has 64 pairs a key, most of
// them of few keys; Packed takes no locks:
//
//	100 M pairs, filled to                    LaneByLane   Voter   Packed
//	RAND, layout PackedLocked      0.85              4.4     1.2     17.5
//	RAND, layout Wide              0.79              3.3     1.0
//	HOT, layout PackedLocked       0.74              2.3     1.3     18.2
//	HOT, layout Wide               0.79              1.2     0.9
//
// # Growing and shrinking (§4.2, §4.4)
//
// When the filled factor is above its upper bound β, Options.LoadFactor, the smallest subtable doubles: one kernel,
// without locks, writes each pair to the slot of its number in one of two buckets. When the filled factor is below its
// lower bound α, Options.Low, the largest subtable halves. Pairs for which the halved bucket has no room go to their
// other subtables, in the same kernel. The other subtables are not touched. After every batch the filled factor is in
// [α, β], unless the table has the size that Options.Capacity or Grow has asked for. Then it shrinks no further, but
// Shrink makes it do so. Freed memory goes back to the device. If a pair that the halved bucket has no room for finds
// none in its other subtable, it stays, and another pair of its bucket goes in its place. If none can go, the halving
// is taken back, and tried again once there are a tenth fewer pairs.
//
// A subtable of 32 MiB or more lies in a range of addresses that gets as much memory again (device.Range): five times
// of six, it doubles in place. The sixth time, and while it is small, it is copied, and the table holds the old array
// beside the new one until the kernel is done. A subtable that halves is always copied: if its pairs were to find no
// room, the old array would stay. On an H200, mapping as much memory again takes 45 to 160 µs, from 8 to 512 MiB. A
// pool takes 290 to 360 µs for 256 MiB that it has not kept, and twice that for 512.
//
// If a batch alone is too large for the table, the table first estimates how many distinct keys the batch has
// (frame.Frame.Distinct), and makes room for them at once, because it will hold no fewer. An empty table is made anew,
// and nothing is moved.
//
// There are two more kinds of memory. One is the side and the locks, one bit a bucket. The other is scratch, which
// Stats tells apart: of large batches, the batch twice in the order of stretches, and a list of a thirty-second of its
// positions.
//
// No subtable has more than 2³¹ buckets, because their numbers have 32 bits. When all are so large, the table fills the
// slots that it has, as at MaxBytes, and the Why of a *table.FullError says so.
//
// # At MaxBytes
//
// A table stops growing when it would take more than MaxBytes with one more subtable doubled. With 4 subtables it takes
// about four fifths of MaxBytes by then, or more. From then on it fills its slots beyond LoadFactor. A key whose two
// buckets are full is refused if there is no path of up to 64 pairs to a free slot: *table.FullError names its
// positions. With MaxBytes, or with a LoadFactor of 1, a table fills so until the first stretch is full, because
// stretches have as many pairs as chance gives them. How full the table is then depends on the number of slots of a
// bucket. This is the share of slots that are taken when the first key is refused, in the emptiest of four tables:
//
//	MaxBytes                             64 KiB   1 MiB   16 MiB
//	4+4 bytes, 8 slots a bucket             98%     96%      95%
//	8+8 bytes, 4 slots                      94%     91%      90%
//	8+8 bytes, Bucket 128: 8 slots          99%     97%      96%
//	16+8 bytes, layout Wide: 7 slots        95%     94%      93%
//	32+8 bytes, layout Wide: 3 slots        88%     86%      82%
//
// At 128 MiB, the first four were measured once, at 96, 90, 96 and 93%. So if you want full tables of pairs of 16
// bytes, take buckets of 128. With paths of up to 256 pairs instead of 64, pairs of 8+8 bytes would reach 92% at 16
// MiB, and pairs of 4+4 bytes half a point more; but a GPU would have to keep 2 KiB for each lane.
//
// After the first refusal, other keys still find room: maps of 4+4 bytes with MaxBytes of 1 and 16 MiB took keys up to
// 99% of their slots, though fewer and fewer of each batch. Look-ups, deletions, and inserts of keys that are in go on.
// The slot of a deleted pair is free at once, and the table shrinks when deletions leave it below α. Grow to more pairs
// than MaxBytes allows returns table.ErrMaxBytes.
//
// Cost: a look-up reads two buckets at most, however full the table is. A pair that is refused has looked for a path
// once or twice, under locks, and its key is looked up once more, so that FullError names no key that is in. If pairs
// are refused while the table is filled to less than 0.4 times LoadFactor, as chosen keys may bring about, it is laid
// anew with another hash function, which takes memory for a second table and for all pairs.
//
// # Invariants
//
//  1. A pair is in one of the two buckets of its key, and no key is twice in the table.
//  2. A key that is away from its home has its bit set in the filter of its bucket there; in the packed layouts with
//     HomeFirst, that bucket has no slot that never was taken. A slot counts as never taken from the beginning, or from
//     a doubling or halving on if the filter is clear. A slot that a pair was taken from is free, and is marked as
//     such.
//  3. The three highest bit patterns of keys of up to 8 bytes mark slots of the packed layouts. Real keys of these
//     patterns live on the side, under a pattern lower by three. So no key is reserved.
//  4. Subtable i has 4·2^(s/d) buckets, s the table's step, and twice that if i < s mod d.
//  5. Counters.Pairs[i] is the number of pairs of subtable i. Between operations no lock is held.
//
// # Concurrency
//
// Find, Insert and Delete of a batch are kernels of one kind of operation each. Mixed runs all kinds beside one
// another, and so may insert, find and erase of dycuckoo.cuh. Each operation holds the locks of both buckets of its
// key, and pairs are only moved under the locks of both of their buckets. So every key is in sight whenever its locks
// are held. Nobody waits for a lock while holding one.
//
// # Updates and choices
//
// A value would be lost if it were combined with that of a pair while the pair is moved on. So Update is three kernels.
// The first looks all keys up, combines the values of those that are there by atomic operations, and marks the rows of
// the others. The second inserts the marked rows as InsertNew does; if several have the same key, one gets in and the
// others stay marked. Then the first kernel takes what is still marked. If all keys are there, it is the only kernel
// that runs. FindOrInsert goes the same way. If four or more rows of a batch that are in the same 32 rows have one key,
// they are combined together.
//
// What is still marked is refused: its key is absent. Once the table may grow no more and a key was refused, no new
// keys are put in for the rest of the batch, because a key that was refused might find another path. So the rows of a
// key are all in or all refused.
//
// InsertIf marks the rows that are chosen as if they had been refused, and these are tried again. FindIf and ContainsIf
// have a kernel of their own (choose.cu). On the device, update and find_or_insert hold the locks of their key's
// buckets, as all operations do.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table. A kernel of your own includes "dycuckoo.cuh" and
// takes a table by value: see Map.Program and Map.Use.
package dycuckoo
