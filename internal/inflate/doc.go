// Package inflate unpacks gzip data (RFC 1951 and 1952) that lies in memory: in a row, or in pieces beside one another.
// It starts no goroutines; package files says who unpacks what.
//
// # Pieces
//
// A block of deflate begins at any bit, and copies what stood up to 32 KiB before it. So who begins in the middle of
// the data knows neither where a block begins nor what its text begins with. A Chunk finds both out, as rapidgzip does
// (Knespel and Brunst, Rapidgzip: Parallel Decompression and Seeking in Gzip Files Using Cache Prefetching, 2023):
//
//	data      | piece 0          | piece 1          | piece 2          |
//	blocks    |h===|=====|====|=====|====|=======|=====|====|=====|====|
//	chunks     ---------------------> ------------------> ------------->   each from the first block of its piece to
//	                                                                       the first block of the next
//
//	symbols   0 … ff        a byte of text
//	(16 bits) 8000 … ffff   the byte of that number of the 32 KiB before the chunk, which are not known yet
//
//	Chunk     symbols  | 8000 8001 … ffff | A C G T 8012 8013 8014 T …    behind: text, once no symbol in the
//	          text     | 32 KiB           | G A T T A C A …               last 32 KiB is of the unknown text
//
// A block with codes of its own is known by its header, whose codes must be complete; one that is stored, by its length
// and that length's complement; a member, by its first bytes. What else looks like a block stops making sense soon.
// Fixed blocks cannot be told from other data, so no chunk begins with one. Nor does one begin with a member's last
// block.
//
// A Sequence goes through the data in order. Where it stands at the place at which a chunk begins, it takes the chunk,
// which costs the last 32 KiB of its symbols. What no chunk has, it decodes itself. Then each chunk's Text replaces
// symbols by text, beside the others. Check adds up the sums of all.
//
// # Invariants
//
//   - A Sequence takes a chunk only where it stands between blocks, at the very bit at which the chunk begins, and if
//     no match of the chunk reaches back behind the begin of its member. So a place that is none does no harm.
//   - A chunk ends between blocks, or members. What it could not decode, the Sequence decodes, and only that tells
//     errors. So errors, and the text before them, do not depend on pieces.
//   - A symbol is decoded whole or not at all: decoding stops between two, and goes on in other memory.
//   - No more is read than the input, nor written than the text has room for: the fast loops stop while there is room
//     for the longest symbols, and what is left goes one symbol at a time. Go's bounds are checked everywhere.
//   - The tables hold any code, however hostile: the lengths of codes are checked before anything is filled in.
//   - A chunk takes 12 bytes of text for each of its piece, at most. What was tried in vain counts.
//
// Errors are those of compress/gzip and compress/flate.
package inflate
