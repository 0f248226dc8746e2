// Package stadium holds the studies of the paper on Stadium Hashing (section IV): its table as published (paper.go), that of package stadium, which is
// made in another way, and cuckoo hashing as CUDPP has it (bench/baseline), in device memory and in pinned host memory.
//
// # Figures
//
//	1     Table I: the share of a warp's lanes that are active in inserts, as Nsight Compute counts them; without it there is no figure
//	13    inserts in 50 parts, lanes alone and together: from which load factor on the latter are faster
//	14    slices of inserts beside look-ups, in device memory; a: all look-ups hit, b: half of them
//	15    the time of inserts and then look-ups over that of inserts beside look-ups
//	16    as 14, in host memory
//	17    batches of one kind, in host memory; a: inserts, b: look-ups that hit, c: look-ups of which half hit; and deletions
//	18    look-ups with and without the ticket board, lanes alone and by the hybrid; a: in host memory, b: in device memory
//	19    widths of keys and values; a: inserts in device memory, b: in host memory, c and d: look-ups and deletions there
//
// # Where they differ from the paper's
//
// The paper's plots have numbers that its text has not. Figures 14 to 17 here are of 2²⁰ to 2²⁶ pairs, by factors of two. Figure 19 has the widths of
// 4 to 32 bytes that look-ups can be checked in, and two sizes of tickets of package stadium's table. Figure 13 has all sizes of tickets. The
// threshold of the hybrid is one for each size of tickets (hybridFrom), where the paper finds one for each configuration.
//
// Half of the look-ups hit where the paper says "a portion". Figure 15 is measured twice: with the inserts and look-ups by themselves in the same slices
// as beside one another, and in one batch each. The caption of Figure 16 names deletions, which slices have not; Figure 17 has them.
//
// CUDPP's table is built from all its pairs. Here, slices are added to it, and pairs that find no place are an error, where it would be built anew. What
// empties a table is not timed, of any.
//
// # The table as published
//
// It follows Figures 5 to 10 and 12 of the paper, but for these:
//
//   - Wide keys are hashed word by word; the paper has a function for integers.
//   - Up to 16 bytes of a pair are read at once, where Figure 9 reads the key, and then the value: across the bus that would take twice as long.
//   - Figure 12 subtracts where it stores what is left to do; it must add.
//   - Access bits (section III-B): whoever books a ticket is to unset both its bits at once. But that also unsets the access bit of a bucket that is
//     taken, and complete. So here an access bit that is set says that the bucket is not complete, and is unset together with the info bits.
//   - Available tickets end a look-up until the first deletion; from then on ("further iterations") they do not. Then an absent key has all tickets read.
//
// Inserts never look for their keys: of equal keys each has a bucket.
package stadium

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the paper's figures.
var Studies = []bench.Study{
	{Name: "stadium/1", About: "Table I: lanes that are active in inserts, by ncu (NVIDIA only)", Run: table1, CUDA: widthPairs},
	{Name: "stadium/13", About: "lanes alone against lanes together, the fuller the table", Run: figure13, CUDA: thresholdPairs, CPU: 1 << 15},
	{Name: "stadium/14", About: "inserts beside look-ups in device memory, beside cuckoo hashing", Run: figure14, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/15", About: "inserts beside look-ups against one after the other", Run: figure15, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/16", About: "inserts beside look-ups in host memory, beside cuckoo hashing", Run: figure16, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/17", About: "inserts, look-ups and deletions in host memory by the number of pairs", Run: figure17, CUDA: paperPairs, CPU: 1 << 14},
	{Name: "stadium/18a", About: "what the board and lanes together are good for in host memory", Run: figure18a, CUDA: farPairs, CPU: 1 << 15},
	{Name: "stadium/18b", About: "the same in device memory", Run: figure18b, CUDA: nearPairs, CPU: 1 << 15},
	{Name: "stadium/19ac", About: "inserts, look-ups and deletions by the widths of keys and values in device memory", Run: figure19ac, CUDA: widthPairs, CPU: 1 << 13},
	{Name: "stadium/19bd", About: "the same in host memory", Run: figure19bd, CUDA: widthPairs, CPU: 1 << 13},
}
