// Package text holds maps whose keys are strings, or bytes of any kind and length. The maps are on the device, over a
// table of any family.
//
//	keys (Arrow's form)        index: a table.Map            arena                              bitmap
//	┌────────┬───────────┐     ┌──────────┬───────┐     ┌──────┬─────┬───────┬───────────┐     ┌──────────────┐
//	│offsets │ bytes     │  →  │hash      │place  │  →  │ next │ len │ value │ bytes, 0… │     │0 1 0 0 1 0 0 │
//	└────────┴───────────┘     └──────────┴───────┘     └──────┴─────┴───────┴───────────┘     └──────────────┘
//	                                                     record, at a multiple of 16 bytes      a bit for each 16 bytes
//
// A key is hashed on the device to 8 bytes, by SipHash-1-3 with a seed of the table's own. Whoever does not know the
// seed cannot choose keys that collide. The index gives the place in the arena where the record of that hash lies, and
// the bytes there are compared. Keys whose hashes are equal, even by chance, are chained: next is the place of the next
// record of the same hash, or 0. So what is found never rests on the hash alone.
//
// # Invariants (Check walks them)
//
//   - A bit is set exactly where a record of a key that is in begins. No two such records have the same key.
//   - The index has one entry for each hash of these, whose place is that of one of them; chains lead through all
//     others of that hash, and end.
//   - Records begin at byte 64 of the arena or behind it, and lie before used; those of keys that are gone, or that were
//     never let in, are garbage.
//
// # A batch
//
// Insert hashes the batch, asks the index, and compares. Keys that are in get their values. Keys that are not in are
// brought together with their equals in scratch memory. One of each gets a record at the arena's end, and its hash and
// place go into the index as new. If the index has the hash already, the record goes into the chain behind the first.
// Nobody sees a record before it is whole, and only the index and chains lead to records.
//
// Delete clears bits; if a batch holds a key several times, one lane finds its bit set. Then chains are made anew of
// what is left. The bytes become garbage. An insert that finds no room has the live records moved to another arena, and
// so has a Delete that leaves little else than garbage.
//
// # Where memory is short
//
// A batch goes on in smaller parts, down to one key; a few rows always have scratch memory. If the index finds no
// memory for a part, the part is undone: its records go, and the index is to forget their hashes. At times the index
// has no memory to be told that hashes are gone, or where records have moved to. The map then keeps a list of what it
// owes the index. Every later call settles that list first, or ends with *device.OutOfMemoryError before it has begun.
// So FullError names what is not in, and when there is memory again, the map is as good as any.
//
// # Memory
//
// A key takes 16 bytes, its value's bytes (on a GPU 8 at least) and its own bytes, rounded up to a multiple of 16 in
// all; an eighth of a byte for each 16 of these; and 16 bytes in the index, over that table's load factor. MaxBytes is
// divided between index and arena for keys of Options.KeyBytes, and bounds each by its part. While one of them grows, or
// the arena is cleared of garbage, the old and the new stand side by side.
//
// A batch of which a part is nearly all new is taken to be new: then both grow once for all of it, if there is memory
// for that four times over.
//
// At its bound, a 32nd of the arena stays free of live records. So a key for which the index has a slot always gets in,
// whatever the garbage. Between two times that all records are moved, records of a 32nd of the arena come in. So no
// more than 32 bytes are moved for each byte that is put, in batches of any size.
package text
