// Package columnar holds tables with columns of Arrow's types: one or several key columns, and value columns. It is
// what serve/flight serves, and knows nothing of the network. Batches come and go in the memory layout of Arrow's
// record batches.
//
//	 a batch: key columns            index: a table of package warpmap, on a device
//	┌────────┬────────┐  pack   ┌───────┬─────────────┐
//	│  id    │  day   │ ──────▶ │  key  │ value or    │   inline: one column of 4 or 8 bytes without nulls, or none
//	│  8     │  4     │         │ 4, 8, │ row number  │
//	└────────┴────────┘         │ text  │             │
//	                            └───────┴──────┬──────┘
//	                                           ▼  rows: all other tables, in host memory
//	                 row  │ fixed width: segments of 4,096 rows │ texts: place and length ─▶ chunks of 4 MiB │
//	                      │ a bit for each row that is no null  │                                            │
//
// A key column of 4 or 8 bytes is the index's key as it is. Several columns that take no more than 8 bytes are put into
// a word. All else is a text: a single text column as it is, else the columns behind one another, each text behind its
// length. Keys are equal if their bytes are: 0.0 and -0.0 are two keys.
//
// Where values are inline, a look-up is one Find of the index, which reads the keys from the message that came, and
// writes the values into the one that goes. Else the index gives row numbers, and the rows are copied by all cores.
//
// # What holds
//
//   - A row that the index names is used by that key alone, and has its values: they are written before the index gets
//     the key. Rows of deleted keys are free, and are used again.
//   - Writes of a table happen one after the other. A look-up in rows sees each write wholly or not at all; one inline
//     sees it key by key, as tables promise.
//   - An export or a snapshot is of one moment: writes wait for it, look-ups do not.
//   - Absent keys are null in all value columns, and false in the column "found".
//   - Row columns take no more than Budget.Most bytes: else a batch is refused, before anything is changed.
//   - What strangers send is checked before it is used, by Decode and DecodeSchema, in memory no larger than it.
//
// # Files
//
// A file is a mark and blocks, each with a checksum (CRC-32C) of all else in it:
//
//	"warpmap columns 1\n"
//	kind (1) │ length of header (4) │ length of body (8) │ checksum (4) │ header │ body
//	 'H'       Arrow's schema message                              JSON: name, how many columns are keys, family; the
//	                                                               table's number, and that of its last change
//	 'R' …     Arrow's record batch message                        its body
//	 'E'       nothing                                             how many rows there were (8)
//
// Numbers are little-endian. Such a file goes into any family, on any device.
//
// # Logs
//
// A record of a log (internal/journal) is a change of a table:
//
//	checksums (8) │ kind (1) │ length of name (1) │ 0 (2) │ length of header (4) │ table (8) │ length of body (8) │
//	change (8) │ name │ header │ body
//
//	'C'  the table is made: the header and body of block 'H'      'X'  it has no rows any more
//	'P'  keys have these values: a record batch                   'Z'  it is dropped
//	'D'  keys are gone: a record batch of key columns
//
// What is logged is what a batch did, and not the batch: the keys that went in, with the values that they had when it
// was done. For which of equal keys stays is chance, the sum of floats depends on their order, and rows may have found
// no room. So to do it again needs no more than to insert, leads to the same, and to the same again. A record is added
// while the table is locked, with the number of the change: those of a table are in the order of what happened. A batch
// that ended with an error, but for rows without room, is in no log, though a part of it may be done.
package columnar
