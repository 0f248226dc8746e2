// Package genome reads FASTA and FASTQ, which are sequences of letters with names, in blocks of whole records.
//
// The content of a file, never its name, tells what the file holds. It can be plain, gzip (also of several members) or
// zstd. It is FASTA if the first byte that is not blank is >, and FASTQ if that byte is @. Lines end in \n or \r\n.
// Letters are A to Z of either case, and stay as they are; * (a stop), - and . (gaps) pass for letters, too, and any
// other byte among them is an error. What a letter means, and that k-mers do not go over an N, is up to the packages
// that count or sketch.
//
//	FASTA   >name, then lines of letters up to the next line that begins with >; blank lines are left out
//	FASTQ   @name, a line of letters, a line that begins with +, a line of as many qualities; blank lines may stand
//	        between records
//
// A file is one of these: FASTQ in the middle of FASTA is an error, and FASTA in the middle of FASTQ is one, too. With
// Options.SkipBroken, each record of the other kind is left out and counted.
//
// A reader cuts the text of an input between two records about every Options.BlockBytes, without parsing it. So blocks
// are parsed beside one another, and inputs are unpacked beside one another. Several goroutines read a plain file, each
// at another place: half as many as Options.Threads, and at most eight. One goroutine alone reads more slowly than 16
// cores process what it reads. A file of BGZF, as bgzip and sequencers write it, is gzip in members that say how long
// they are. These members are unpacked beside one another, too. With four threads or more, so are frames of zstd of up
// to 4 MiB, as of pzstd, and pieces of other gzip data, each without the text before it (package internal/inflate says
// how), for nearly twice the CPU time. The letters of a block are moved together in the memory that they were read to.
// So a letter is copied once, and twice in a record that is longer than a block.
//
// A reader holds at a time about three blocks for each thread, twice the longest record, and, for packed files, up to
// 20 MiB for each thread, or 50 where the text is more than eight times as long as what is packed, or packed in blocks
// of hundreds of KiB. A small packed file cannot take more. With blocks of less than 2 MiB, which tell that memory is
// short, nothing but BGZF is unpacked in parallel. Blank lines are dropped as they come. A block has at most one record
// for every 16 of its bytes. Names have at most 64 KiB, and windows of zstd at most 128 MiB. A record that the
// machine's memory does not hold is an error.
package genome
