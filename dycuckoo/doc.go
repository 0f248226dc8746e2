// Package dycuckoo implements DyCuckoo: a cuckoo hash table of several subtables that grows and shrinks one subtable at a time, for data
// that come and go.
//
// Source: Y. Li, J. Zhang, Y. Liu, Z. Lyu, Z. Huang, J. Sun, "Dynamic Hash Tables on GPUs"; it extends DyCuckoo, ICDE 2021.
//
// # Memory
//
// A table is d subtables, each with memory of its own: a power of two of buckets, their filter, and in layout Wide the values.
// No subtable has more than twice the buckets of another. With 4-byte keys and values, d = 4 and buckets of 64 bytes:
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
// A key's hash names two of the subtables: d·(d-1) ordered pairs. The first is its home. In each of the two, a hash function of the
// subtable's own names a bucket. The pair is in one of these two buckets, so a look-up and a deletion read two at most.
//
// Where subtables differ in size, some of the keys that have a smaller one as home and a larger one as the other have them the other way
// round, so that each subtable is the home of as many keys as its share of the slots: the table's tilt. To change it, all
// pairs must be looked at. So a table keeps the tilt of the step at which it was empty, until a large batch or new filters
// pass over all pairs anyway.
//
// An insert puts the pair at home; if that is full, away, in the other bucket. The filter of the bucket at home then gets a bit, chosen by
// the hash. So a look-up that misses at home goes on only if its bit is set; and it does not even ask where the bucket has a slot
// that never was taken, because then it never was full. Most look-ups read one bucket.
//
// A bucket's number is made of 8 bits of the subtable's hash function, then 20 that are the key's in every subtable, then again the
// function's. So the two buckets of a key, and those that pairs are moved to from there, lie in the same stretches, of 256 buckets, of all
// subtables. A subtable's number of buckets takes the lowest bits: bucket b of n becomes b or b+n of 2n.
//
// # Insertion
//
// Most pairs need one compare-and-swap. A pair whose two buckets are full is listed. For those a second kernel moves one pair of their
// home on, or else one of their other bucket, to that pair's other bucket: its copy is written before the slot is overwritten. What finds
// no room by one such step is left to a third kernel, which looks for a path of pairs, each with the next one's place as its other
// bucket, that ends at a free slot, and moves them from its end on, each under the locks of its two buckets. So no pair is ever in hand
// alone: the paper's evictions hold a pair that is in no bucket, and drop it, or make everybody wait, when their chain meets its bound.
//
// Large batches are brought in the order of stretches first. One that is large for the table goes in stretch by stretch (staged.cu): a block
// takes a stretch of every subtable into shared memory, inserts there, and writes it back; so memory is read and written in streams
// alone. Most pairs take the next slot of a bucket by a counter there, and equal keys are told apart bucket by bucket afterwards. One that
// is not goes through the table as through small ones that fit the L2 cache.
//
// Which pair is moved on: one whose other subtable is filled less than the whole, if there is such (§4.3). Theorem 1 asks for
// C(mᵢ,2)/nᵢ to be equal, so a subtable of twice the slots gets √2 times the pairs, and is filled less. (The text
// behind the theorem has it the other way round, that larger subtables are filled more.) Options.Balance has the
// theorem's choice of the first subtable, with probabilities in proportion to nᵢ/C(mᵢ,2), in all layouts. An empty
// table's are in proportion to its slots: one batch of 20,000 pairs fills the three larger subtables of layout Wide to
// 0.73 and the smaller one to 0.84. The default, HomeFirst, fills them to 0.73 to 0.76, keeps nine of ten pairs at home
// at a filled factor of 0.85, and reads fewer buckets a look-up: 1.1, where Theorem1 has 1.5. On one
// H100, 100 M pairs of 4+4 bytes in batches, filled to 0.85, are inserted at 8.8 G/s and found at 23.6 with HomeFirst, and
// at 7.1 and 16.7 with Theorem1 (study dycuckoo/balance).
//
// Layouts PackedLocked and Wide write every pair under the locks of its key's two buckets. Options.Coordination says
// how the lanes of a warp share that. LaneByLane, the default, has each insert its own pair; one that does not get its
// locks lets the others go on, and tries again. Voter is the paper's voter coordination (§5.2, Algorithm 1): the warp
// votes for a leader, who tries its locks, once. If it gets them, all lanes inspect both buckets, and the leader puts
// its pair; if not, they vote for another, and it leads again when all others have. Where both buckets are full the
// warp looks for a path, in the place of the paper's chain of evictions. A lock is a bit that an atomic or sets, where
// the paper has a word for atomicCAS. An insert in a kernel of yours goes lane by lane; insert_voted is for warps whose
// lanes all come.
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
// Above the upper bound β of the filled factor, Options.LoadFactor, the smallest subtable doubles: one kernel, without locks, writes each
// pair to the slot of its number in one of two buckets. Below the lower bound α, Options.Low, the largest halves; pairs for which
// the halved bucket has no room go to their other subtables, in the same kernel. The other subtables are not touched. After every batch the
// filled factor is in [α, β], but for a table of the size that Options.Capacity or Grow has asked for, which shrinks no further.
// Shrink lets it. Freed memory goes back to the device. A residual that finds no room stays, and another pair of its bucket goes in its place;
// were there none that can, the halving is taken back, and tried again once there are a tenth fewer pairs.
//
// A subtable of 32 MiB or more lies in a range of addresses that gets as much memory again (device.Range): it doubles in place, five times
// of six. The sixth time, and while it is small, it is copied, and the table holds the old array beside the new one until the kernel is done. One
// that halves is copied always: were its residuals to find no room, the old array would stay. On an H200, mapping
// as much again takes 45 to 160 µs, from 8 to 512 MiB; a pool takes 290 to 360 µs for 256 MiB that it has not kept, and twice that for 512.
//
// A batch that alone is too large for the table is first asked about how many distinct keys it has (frame.Frame.Distinct), for which the
// table makes room at once: it will hold no fewer. An empty one is made anew, and nothing is moved.
//
// There are two more kinds of memory: the side and locks, one bit a bucket; and scratch, two lists of half the positions of the largest batch, of
// an eighth if that is more than 16 million, or the batch twice in the order of stretches, which Stats tells apart.
//
// At MaxBytes, or with a LoadFactor of 1, a table fills until the first stretch is full, for stretches have as many
// pairs as chance gives them. How far that is depends on the slots of a bucket. Of the slots, these are taken when the
// first key is refused, in the emptiest of four tables:
//
//	MaxBytes                             64 KiB   1 MiB   16 MiB
//	4+4 bytes, 8 slots a bucket             98%     96%      95%
//	8+8 bytes, 4 slots                      94%     91%      90%
//	8+8 bytes, Bucket 128: 8 slots          99%     97%      96%
//	16+8 bytes, layout Wide: 7 slots        95%     94%      93%
//	32+8 bytes, layout Wide: 3 slots        88%     86%      82%
//
// Of 128 MiB, the first four were measured once, at 96, 90, 96 and 93%. So whoever wants full tables of pairs of 16
// bytes takes buckets of 128. Paths of up to 256 pairs instead of 64 would give 8+8 bytes 92% of 16 MiB, and 4+4 half a
// point; but a GPU would have to keep 2 KiB a lane for them.
//
// # Invariants
//
//  1. A pair is in one of the two buckets of its key, and no key is twice in the table.
//  2. A key that is away from its home has its bit set in the filter of its bucket there; in the packed layouts with HomeFirst, that bucket has no
//     slot that never was taken. Slots are such from the beginning, or from a doubling or halving on where the filter is clear; one that a
//     pair was taken from is free, and says so.
//  3. The three highest bit patterns of keys of up to 8 bytes mark slots of the packed layouts. Real keys of these patterns live on the
//     side, under a pattern lower by three. So no key is reserved.
//  4. Subtable i has 4·2^(s/d) buckets, s the table's step, and twice that if i < s mod d.
//  5. Counters.Pairs[i] is the number of pairs of subtable i. Between operations no lock is held.
//
// # Concurrency
//
// Find, Insert and Delete of a batch are kernels of one kind of operation each. Mixed runs all kinds beside one another, as do insert,
// find and erase of dycuckoo.cuh: each holds the locks of both buckets of its key, and pairs are only moved under the locks of
// both of theirs, so every key is in sight whenever its locks are held. Nobody waits for a lock while it holds one.
//
// # Updates and choices
//
// What is combined with a value while its pair is being moved on would be lost. So Update is three kernels: one looks all keys up, combines the values of
// those that are there by atomic operations, and marks the rows of the others; these are inserted as by InsertNew, and of equal keys one gets in, the
// others stay marked; then the first kernel does what is marked once more. Where all keys are there, the first is the only one. FindOrInsert goes the
// same way. Rows of a batch that are in one row of 32 and have one key are combined together, where there are four or more.
//
// What is still marked is refused: its key is absent. Once the table may grow no more and a key was refused, no new keys are put for the rest of the
// batch, because a key that was refused might find another path: so the rows of a key are all in or all refused.
//
// InsertIf marks the rows that are chosen as if they had been refused, and has these tried again. FindIf and ContainsIf have a kernel of their own
// (choose.cu). On the device, update and find_or_insert hold the locks of their key's buckets, as all do.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table. A kernel of your own includes "dycuckoo.cuh" and takes a
// table by value: see Map.Program and Map.Use.
package dycuckoo
