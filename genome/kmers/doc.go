// Package kmers counts the k-mers of sequences, k up to 64, on devices, and keeps the counts in a file.
//
// A k-mer is k letters in a row of one record. Letters are A, C, G and T, of either case, and U, which is T; k-mers
// over any other are left out. Packed, a letter is two bits, A, C, G, T = 0 … 3, the first letter highest. With
// Options.Canonical, a k-mer and its reverse complement count as one, the smaller.
//
// Raw text goes to the device, where a kernel packs letters and makes k-mers. A k-mer is held as the mix of its packed
// letters, a bijection, one word of 64 bits or, for more than 32 letters, two, and its 11 highest bits name its part.
//
//	a GPU     k-mers are appended to a list, which is added to a warpcore.Counter, or, of two words, to values of a
//	          dycuckoo.Map. While one text is counted, the next is copied: as much as comes meanwhile, for the more
//	          come at once, the faster they are counted
//	the CPU   k-mers of a block of text are brought in the order of their parts; when the memory for them is full, or
//	          the input ends, each part is sorted and counted in the cache of a core
//
// On the CPU a table of all k-mers is larger than the cache, and each k-mer waits for memory; parts are read and
// written as streams. Both give the same file: parts in order, and in a part the k-mers by their mixes. Several devices
// each read all text, and count a share of the parts.
//
// Where Options.MaxMemory is too little for all k-mers, stretches of text go to a temporary file, packed, and are
// counted in rounds: see spill.go.
package kmers
