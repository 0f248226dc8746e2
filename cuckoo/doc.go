// Package cuckoo implements a filter from which keys can be taken out again: a table of tags, where a Bloom filter has
// bits. Filter is that table.
//
// Sources: the cuckoo filter is by B. Fan, D. Andersen, M. Kaminsky and M. Mitzenmacher (CoNEXT 2014). The marks are
// the overflow tracking array of A. Breslow's and N. Jayasena's Morton filter (VLDB 2018). Cuckoo-GPU (arXiv
// 2603.15486) is a cuckoo filter for GPUs, whose inserts look for room breadth-first. Windows, which both buckets of a
// key share, and how lanes move tags beside one another, are of our own design. No code is taken from any of them.
//
// # Memory
//
// A filter is an array of windows of up to 64 KiB, and a window is an array of buckets. With tags of 16 bits a bucket
// is one sector of a GPU's memory:
//
//	|  window 0  |  window 1  |  …  |  window n-1  |  versions: 4 B a window  |
//	      |
//	      | bucket 0 | bucket 1 | … | bucket 2047 |
//	             |
//	             | ┌ 4 tags │ 4 tags │ 4 tags │ 3 tags, 16 marks ┐    32 bytes: 15 slots
//
// With tags of 12 bits a bucket has two words of 64 bits, each of 5 tags and 4 marks, so it has 10 slots. With tags of
// 8 bits it is one word, of 7 tags and 8 marks. The tag 0 says that a slot is empty. So no key is reserved: a key's tag
// is 1 to 2^bits - 1.
//
// The high bits of a key's hash name its window. Products of the hash name the first bucket there, and the tag. The sum
// of a tag's two buckets is an odd number that the tag names, modulo the number of buckets of the window, which is
// even. So a tag and either of its buckets give the other, though the key is forgotten, and the two are never the same.
//
// # Marks
//
// A key goes into its first bucket if that has room, and else into its second. Whoever puts a tag into a second bucket,
// or moves it to its other one, sets the tag's mark in the bucket that the tag is not in: the tag's low bits say which
// of 8 or 16 it is. A look-up reads the first bucket, and the second only if the mark is set. So most absent keys cost
// one read, where a cuckoo filter without marks reads twice. At a load of 0.95, by simulation of 2^25 keys:
//
//	tags of                              8 bits     12      16
//	memory, bits a key                      9.6   13.5      18
//	keys in their second bucket             19%    14%     11%
//	absent keys that read two buckets       18%    19%     12%
//	inserts that move a tag                 8%      6%      4%
//	false positives                        3.4%  0.31%  0.026%
//	false positives if all marks are set   5.2%  0.46%  0.044%
//
// A mark is never taken back, but by Clear. After many deletions and inserts most marks may be set, and then absent
// keys read two buckets, and err as the last row says. FalsePositives of the options is held even so.
//
// # Inserts
//
// A lane that finds both buckets full looks at the other bucket of each of their tags, in turn. Where one has room, its
// tag moves there, and the new tag takes its slot. If all are full, it follows chains of up to 4 tags, each in the
// other bucket of the one before, for 1,024 buckets in all, and moves those of the first chain that ends in a bucket
// with room. Nothing is moved before a place is found, so a key that is refused has changed nothing but a mark. Filters
// are made for a load of 0.95. Those of all widths take all keys up to 0.975 and more.
//
// A key that is put in twice is there twice. One key has room as often as two buckets have slots: 14, 20 or 30 times.
// More of it is refused, and no other key is harmed.
//
// # Deletions
//
// A deletion takes one tag of the key out: of the first bucket if one is there, or else of the second. Two keys with
// one tag and the same two buckets cannot be told apart. As long as only keys that are in are taken out, this does no
// harm: each of them has a tag there. Whoever takes out a key that was never in may take the tag of another.
//
// # A larger filter
//
// A filter does not know its keys, so it cannot be rehashed. But Larger makes one with 2^s times the windows, in which
// the s high bits of a tag name the window beside the hash. Buckets in a window are the same, so Merge takes a bucket's
// tags to the buckets of the same number, and its marks with them. A tag keeps all its bits, of which s say nothing any
// more: the rate of false positives is 2^s times as high.
//
// # Cost
//
// Random sectors of device memory are the limit. An H200 looks 37 G keys a second up in 512 MiB, each in one sector,
// swaps 15 G words a second there, and 37 G in its L2 cache (measured). A filter of 512 MiB with tags of 16 bits, at a
// load of 0.95, should so do, in G keys a second, and does (bench/results/h200/fig-cuckoo-rates.json):
//
//	look-ups that hit       1.11 sectors a key                                   33   32
//	look-ups that miss      1.12 sectors a key                                   33   32
//	inserts                 window by window: 36 bytes of streams a key; the
//	                        steps of a lane, in shared memory, are the most      27   19
//	  by regions            20 bytes of streams, 1.35 sectors read and swapped
//	                        in L2                                                22   not measured
//	deletions, untold       window by window: 24 bytes of streams a key          35   32
//	deletions, told         window by window: 32 bytes of streams a key           –   29
//
// In the kernel that inserts, 16 of 32 lanes are at work on average, and a third of the time goes by at its barriers
// (ncu): the few keys that move others take the most.
//
// A large batch of inserts or deletions, of a key for 32 bytes of the filter or more, goes in window by window. The keys
// are brought in the order of windows in two passes, and a block takes each window into shared memory, goes by the steps
// of this page there, and writes it back. Keys that find their first bucket full wait until there is one for each thread
// of the block, for the other lanes of a warp would wait for each: so do those that find the second full, too. That made
// inserts 1.6 times as fast. Deletions are told by writing which keys were not in, for those are few. Smaller batches, of
// millions of keys, are brought in the order of regions of the L2 cache's size, which are stretches of windows. Either
// way a move stays where its key is.
//
// # Invariants
//
//  1. Each key that is in has a tag of its own, in one of its two buckets. If no tag like it is in its first bucket,
//     the tag's mark is set there.
//  2. The bits of a slot are 0 or a tag whose high bits name the window, as far as the filter spends bits of tags.
//  3. A tag that is in was put in, and no others are, between operations.
//  4. What Stats counts is what is there.
//
// # Concurrency
//
// The host orders operations: inserts run beside inserts, deletions beside deletions, and look-ups beside look-ups. The
// functions of cuckoo.cuh, for kernels of your own, do more: look-ups may also run beside inserts, or beside deletions.
// But inserts and deletions may not run beside one another.
//
// Each slot is in one word of 64 bits, which only compare-and-swaps of the whole word change, so no lane undoes what
// another did to the slots beside. A tag moves in this order:
//
//  1. its mark is set in the bucket that it leaves;
//  2. a copy of it goes into an empty slot of the other bucket;
//  3. the window's version counts up;
//  4. a swap takes the tag out of its slot, and puts the next one there.
//
// So a tag is in one of its buckets at any time, and for some time in both. If the last step finds that the slot has
// another tag, then another lane has moved the same tag, and there is a copy too many. The lane takes one such tag out,
// of either bucket: which one it is makes no difference. It begins again. The steps of a chain go the same way, the
// last first.
//
// A look-up beside inserts reads the version, the first bucket, its mark, and the second bucket. If the tag went from
// the first bucket to the second between the two reads, then the mark was set before the tag was gone, and the copy was
// there: it is found. If the tag went from the second to the first, it may be in neither as they are read, but then the
// version has counted up before the tag was gone. So the look-up reads the version once more, and begins again if it is
// another. A look-up that begins again for some thousand times says that the key may be in, as a filter may.
package cuckoo
