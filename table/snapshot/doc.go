// Package snapshot writes tables of every kind and family to files, or to any io.Writer, and reads them back, also on
// another device, or into a table of another family, seed or capacity.
//
//	err := snapshot.Map(m).SaveFile(ctx, "users.warpmap")
//	…
//	err = snapshot.Map(other).LoadFile(ctx, "users.warpmap")
//
// A file holds the pairs of a table, or the words of a filter or a sketch. It says nothing of a table's layout or its
// seed, so loading inserts the pairs. Package warpmap's LoadMap and its like make the table too.
//
// # The format
//
// All numbers are little endian. A file begins with
//
//	8 bytes  "warpmap\n"
//	u32      1, the version of the format
//	u32      n, at most 65,536
//	n bytes  Header as JSON
//	u32      checksum
//
// Then come blocks, until all entries are written, and the end:
//
//	"rows"   u64 entries, of which there are 1 to 1,048,576; u32 checksum
//	         all their keys, then all their values; u32 checksum
//	         of strings: their bytes, one after the other; u32 checksum
//	"end\n"  u64 all entries; u32 checksum
//
// Keys and values stand as in memory. The entries of a set are keys alone. The entries of a filter or a sketch are its
// words of 8 bytes, in order. The keys of strings are their lengths, of 8 bytes. The values of a cache are of type
// cache.Record, and its header has a cache.Saved. A checksum is CRC-32C (Castagnoli's polynomial) of all bytes of the
// file before it except the checksums, so that blocks cannot be missed out or change places.
//
// Save writes blocks of at most 32 MiB of keys and values, or of one entry that has more. A block of strings has at
// most 4 MiB of text, or one key. Load takes what it can hold. A key and a value of a fixed width have up to 1 MiB
// each.
package snapshot
