// Package genome reads FASTA and FASTQ: sequences of letters with names, by blocks of whole records.
//
// What a file holds is told by its content, never by its name: plain, gzip (of several members, too) or zstd, FASTA
// where the first byte that is not blank is >, FASTQ where it is @. Lines end in \n or \r\n, letters stand as they are,
// of either case, and any byte may be one: what a letter means, and that k-mers do not go over an N, is up to those who
// count or sketch.
//
//	FASTA   >name, then lines of letters up to the next line that begins with >; blank lines are left out
//	FASTQ   @name, a line of letters, a line that begins with +, a line of as many qualities; blank lines may stand
//	        between records
//
// A file is one of these: FASTQ in the middle of FASTA is an error, and FASTA in the middle of FASTQ.
//
// A reader cuts the text of an input between two records about every Options.BlockBytes, without parsing it, so that
// blocks are parsed beside one another, and inputs are unpacked beside one another. A plain file is read by several
// goroutines, each at another place, half as many as Options.Threads and no more than eight: one alone is slower than
// 16 cores are with what it reads. A file of BGZF, as bgzip and sequencers write it, is gzip in members that say how
// long they are: these are unpacked beside one another, too. The letters of a block are moved together in the memory
// that they were read to: a letter is copied once, of a record longer than a block twice. What is held at a time is
// about three blocks a thread, twice the longest record, and, of BGZF, up to 10 MiB a thread. A small packed file
// cannot take more: blank lines are dropped as they come, blocks have no more than a record for 16 bytes of them, names
// no more than 64 KiB, windows of zstd no more than 128 MiB, and a record that the machine's memory does not hold is an
// error.
package genome
