// Package sketch answers questions about very many keys from little memory, and nearly right: how many distinct keys
// there were (HyperLogLog), how often each came (CountMin), and which came most often (Top). Each answer comes with the
// bound of its error.
//
//	h, err := sketch.NewHyperLogLog[uint64](d, sketch.HyperLogLogOptions{})
//	…
//	err = h.Add(keys)          // batch after batch, of Go slices or, by AddOn, of device slices
//	n, err := h.Estimate()     // with a standard error of 0.8%, from 16 KiB
//
// What the tables of this module promise of batches, streams, goroutines and errors holds here, too: see package table.
// A sketch neither grows nor refuses keys.
//
// # HyperLogLog
//
// The hash of a key, of 64 bits, names a register by its first p bits, p being the precision. The register keeps the
// largest rank of its keys: one more than the number of zeros that the other 64-p bits begin with.
//
//	hash       | p bits: register | 0 0 0 1 …            64-p bits: the rank is 4
//	                  │
//	                  ▼
//	registers  | r | r | r | … | r |                     2^p of one byte, which is 0 or a rank of 1 … 65-p
//
//	a block of a GPU, or a thread of the CPU             of a large batch
//	  its own registers, in shared memory  ── at the end: each the larger of the two ──▶ registers, in device memory
//
// The registers of a union are the larger of each two, so sketches of parts make exactly the sketch of the whole. Merge
// takes those of other devices too, and Save and LoadHyperLogLog take them from process to process.
//
// Estimate is O. Ertl's improved raw estimator (New cardinality estimation algorithms for HyperLogLog sketches, 2017,
// https://arxiv.org/abs/1702.01284, algorithm 6). It needs no tables of biases, as HLL++ does, for any number of keys.
// It is too high by a share of 1.08/2^p at most, which is 7% with 16 registers and 0.007% with 2^14: a quarter of a
// standard error, or less. HyperLogLog is by P. Flajolet, É. Fusy, O. Gandouet and F. Meunier (2007).
//
// The standard error is √(3·ln 2 - 1)/√2^p = 1.04/√2^p: 0.8% with the default precision of 14, and less where there are
// fewer keys than registers.
//
// The hash is that of this module's tables, under a seed, and not that of Redis or DataSketches, whose sketches hold
// registers of other hashes: theirs and these cannot be merged.
//
// Keys that are strings are hashed by the host's cores (SipHash under the sketch's seed), in a HyperLogLog and in a
// CountMin, and the hashes are the keys on the device. A Top has no strings, because those that it tells must be kept:
// TextTop keeps them in the host's memory, in tables of package internal/unique, and cuts these as Merge cuts a Top's.
//
// # Invariants
//
//   - A register is 0 or a rank of 1 to 65-p. Registers only become larger, but for Clear and SetWords.
//   - A sketch has no keys exactly where all its registers are 0.
//   - The registers say nothing of the order of keys, nor of how often each came, nor of which device they were added
//     on: two sketches of one Form that had the same keys are the same bytes.
//   - Two lanes that raise two registers of one word at once change both: a word changes by compare-and-swap alone.
//
// # CountMin
//
// Each of d rows has w counters of 64 bits, and the hash of a key names one in each. A key counts in all of its
// counters, and the least of them estimates how often it came.
//
//	words      | sum | row 0: c c c … | row 1: c c c … | … | row d-1: c c c … |        sum: all that was added
//	                         ▲                ▲                        ▲
//	hash · an odd number of the row, the higher 32 bits of it: times w, over 2^32
//
//	a block of a GPU, or a thread of the CPU
//	  counters of its own, of 32 bits, in shared memory  ── at the end ──▶ counters, in device memory
//	or, where they have no room there, where keys come with counts, and for conservative updates
//	  a tile of keys in shared memory, equal ones together ── each key of a tile once ──▶ counters
//
// No estimate is too low: each counter of a key has counted it. Let n be all that was added. Counters of a row are n
// together, so a counter has n/w of other keys on average; by Markov's inequality it has e·n/w with a probability of
// 1/e at most, and all d of a key have with e^-d: that is Epsilon = e/w, and Delta. CountMin is by G. Cormode and
// S. Muthukrishnan (An improved data stream summary, 2005). Rows have one hash function and different multipliers, in
// place of independent hash functions: tests hold the bound over 1,000 seeds.
//
// The counters of a union are the sums of each two, so sketches of parts make exactly the sketch of the whole.
//
// With Conservative (C. Estan and G. Varghese, 2002), a key that came n times more raises its counters to its estimate
// + n, and none further. Estimates then are no larger than without, whatever lanes do beside one another: what a lane
// writes is at most what it has read of that counter + n, and others have written what they count alone. They are not
// too low either, for each counter of a key only becomes larger, and two lanes with one key take turns: a lock, chosen
// by the hash, has the second see what the first has written. How large the estimates are depends on the order of
// updates, so two such sketches of the same keys are not the same bytes. Merged ones are no tighter than their parts:
// estimates add up.
//
// Invariants:
//
//   - Without conservative updates the counters of each row are the sum together, modulo 2^64; with them no more.
//   - Counters only become larger, but for Clear and SetWords. Without conservative updates they say nothing of the
//     order of keys.
//   - Locks are free between launches.
//   - A block's own counters count fewer than 2^32 keys: a launch has 2^31 at most.
//
// # Top
//
// A table in device memory has a count for each key that it holds. A block of a GPU counts the keys of its share in
// shared memory, and hands on what it has in the end. Where there is no more room, whether in a block or in the table,
// the keys are cut: let c be the count of the first key that is not to stay, by counts, the largest first. Then c is
// taken from all counts, and keys that have nothing left go.
//
//	a block of a GPU   rows: | key | key | … | new keys |     equal ones are brought together, row by row
//	                         | n   | n   | … | 1 1 1 …  |     more than half of them taken: cut to a third
//	                                    │ at the end: cut to Counters keys
//	                                    ▼
//	table              slots: | key, count, tag | … |         tag: 0 free, 1 being written, 2 taken
//	head               | added | error: the sum of all c | keys in the table | lost | what an export knows |
//
// A thread of the CPU hands keys on as they are, but for those that have just come. Blocks of a GPU hand on what they
// have of each tile of keys where a batch is small, and where they have no room for Counters keys.
//
// The bound is that of SpaceSaving (A. Metwally, D. Agrawal and A. El Abbadi, 2005) and of J. Misra and D. Gries
// (1982), whatever lanes do beside one another. A cut by c takes c from Counters + 1 keys at least: from those that
// stay, and from the first that does not. From others it takes what they have. Let E be the sum of all c, of all blocks
// and of the table. Then (Counters + 1)·E is no more than was taken, and that is no more than all n keys that were
// added. Each key has lost E at most, for every cut is in E once. So a count is too low by E ≤ n/(Counters+1) at most,
// and never too high, and a key that came more often than n/Counters has a count. It is also among the first Counters
// keys: as many others with such a count would, with what was taken, be more than n keys. The count c is found exactly,
// by its digits of 11 bits, the highest first.
//
// The same holds for a union: counts and errors add up (P. Agarwal and others, Mergeable Summaries, 2012). A file, and
// what Merge takes, is the table after a cut to Counters keys.
//
// Invariants:
//
//   - The counts of all keys and (Counters+1)·error are no more than all that was added, and equal it where the error
//     is 0.
//   - A key stands in its home slot or in one of those behind it, all of which are taken, the first following the last;
//     two slots never have one key. Between launches tags are 0 or 2.
//   - Before a launch may bring more keys than the table has room for, it is cut if it is half full. At most five slots
//     of eight are taken, and a part of a batch brings half of the keys that those hold.
//   - A block's counts are of fewer than 2^32 keys: a launch has 2^31 at most.
//   - Nothing is lost for want of a slot.
package sketch
