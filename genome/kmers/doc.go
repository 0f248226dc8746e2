// Package kmers counts the k-mers of sequences, k up to 64, on devices, and keeps the counts in a file.
//
// A k-mer is k letters in a row of one record. Letters are A, C, G and T, of either case, and U, which counts as T.
// K-mers with any other letter are left out. A packed letter has two bits: A, C, G, T = 0 … 3. The first letter is
// highest. With Options.Canonical, a k-mer and its reverse complement count as one, the smaller of the two.
//
// Raw text goes to the device, where a kernel packs letters and makes k-mers. The device holds a k-mer as the mix of
// its packed letters. The mix is a bijection. It is one word of 64 bits, or two words for more than 32 letters, and its
// 11 highest bits name the k-mer's part.
//
//	a GPU     k-mers are appended to a list, which is added to a warpcore.Counter, or, if they have two words, to
//	          values of a dycuckoo.Map. While one text is counted, all text that comes meanwhile is copied: the more
//	          k-mers come at once, the faster they are counted
//	the CPU   each core cuts its pieces of text into stretches of k-mers that have one minimizer, and deals these
//	          out to bins: a byte a k-mer. When many stretches wait, or the input ends, each core counts bin by
//	          bin, in a table that its cache holds, and lists what the bin has. At last the lists are dealt out to
//	          parts, and each part is sorted. K-mers of up to nine letters are counted in an array
//
// On the CPU, a table of all k-mers is larger than the cache, and each k-mer would wait for memory; stretches and lists
// are read and written as streams. GPU and CPU give the same file: the parts come in order, and the k-mers of a part in
// the order of their mixes. With several devices, each reads all text, and counts its share of the parts.
//
// A file of counts holds the low bits of the mixes, a bit and a half for their high bits, and counts by as many bits as
// most of them take: about 5.5 bytes a k-mer. See coded.go.
//
// If Options.MaxMemory is too little for all k-mers, packed stretches of text go to a temporary file, and are counted
// in rounds: see spill.go.
package kmers
