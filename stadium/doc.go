// Package stadium implements Stadium hashing: a hash table behind a ticket board, for keys and values of any size.
//
// Source: F. Khorasani, M. E. Belviranli, R. Gupta, L. N. Bhuyan, "Stadium Hashing: Scalable and Flexible Hashing on
// GPUs", PACT 2015.
//
// # Memory
//
// The board has a ticket of 1, 2, 4, 8 or 16 bits for every slot, bucket by bucket. The table has the slots. With
// tickets of 8 bits:
//
//	board    | 15 tickets, filter | 15 tickets, filter | …   16 bytes a bucket, one load
//	              │            └ 8 bits: those that are 0 are of keys which went on from here to other buckets
//	              └ ┌ available │ 7 info bits ┐   of the key whose slot it is
//	slots    | 15 × ┌ key, value ┐ | …
//	access   a bit a bucket
//
// The board always is in device memory. The slots are in one piece beside it, if there is room. Else they are in panes,
// which hold whole regions. A pane has 512 MiB at most, unless a region has more or there would be more than 2,048
// panes:
//
//	addresses | pane 0 | pane 1 | pane 2, in host | …
//	              │        │        └ pinned host memory, which kernels reach across the bus
//	              └────────┴ device memory: no more than Options.DeviceBytes
//	windows   three copies of panes, in device memory, while large batches are served
//
// A bucket has 24, 12, 14, 15 or 15 slots with tickets of 1, 2, 4, 8 or 16 bits. Keys have 4 to 256 bytes and values
// have up to 4,096, both multiples of 4. A slot is padded so that keys and values move in units of 8 or 16 bytes, if
// that costs a quarter of its size at most.
//
// Buckets lie in regions of 2,048, and of fewer in small tables. The highest bits of a key's hash name the region. The
// hash also names the first bucket there and a step to the others, the slot that comes first in a bucket, the info
// bits, and the bit of the filter. The first four buckets are in one neighbourhood, a row of up to 128; the next four
// are in another, and so on, until each bucket of the region has come once.
//
// # Look-ups (§III, Figure 9)
//
// There are three levels of certitude. A look-up reads a bucket's tickets. Then it goes from the slot that comes first
// up to one that never was taken: there the search ends. Of these slots, those whose ticket has the key's info bits may
// hold the key. They are read; the others are not. If the key is in none of them, the search goes on to the next bucket
// only if the filter's bit says that a key like this one did.
//
// The paper goes from ticket to ticket by double hashing. That reads one ticket a step, and has no bound once tickets
// are given back: "retrievals require further iterations" (§III-B). Here there are two bounds: the filter, and the
// longest way that any insert went.
//
// Deletions leave both as they are: a ticket that was once taken ends no search, and no filter's bit comes back. So where
// keys are replaced for long, look-ups of keys that are not in would get longer and longer: in a table that is filled to
// 0.83, from 3 buckets to 27 once all keys were replaced 24 times. For this, an insert that waits for its stream anyway
// lays the table anew, in its size, when there have been three deletions for each slot since it was made; and so does
// Grow when there has been one. A table in panes, one that is fuller than its load factor, and one for which there is no
// memory twice stay as they are.
//
// # Inserts
//
// The paper's insert takes the first ticket that is available, and never looks for its key, so equal keys have several
// slots. Here an insert looks for its key as far as a look-up would, then takes the first slot that was available on
// the way.
//
// Whoever changes a bucket holds its access bit (§III-B, where each ticket has one). An operation holds that of its
// key's first bucket from beginning to end. So operations on one key come one after the other, and nobody else changes
// the slot of the key meanwhile. The operation reads other buckets without their access bits. If it finds there what
// seems to be its key, it looks at that again with their access bits.
//
// So neither the board nor the access bits are the paper's. The paper's stand in internal/bench/stadium alone, where
// each ticket has an access bit. An H200 decided this, too, with 160 M pairs of 8+8 bytes at 0.85 and tickets of 8
// bits. The paper's table inserts 4.9 G/s of them, finds 11.2 if all keys are in, and 7.6 if half are. This one does
// 10.1, 17.4 and 22.7 (bench/results/h200/fig-stadium-18b.json). In host memory this one is 3.4 to 5.9 times as fast
// (fig-stadium-17.json). The paper's is better for two things. With tickets of one bit, it inserts 10.0 G/s and this
// one 2.7, because it never looks for its key. And its inserts beside look-ups in one kernel, in slices of 100,000,
// are 1.1 to 1.2 times as fast as cuckoo hashing in device memory, and 2.5 to 3.6 times in host memory. MixedOn does
// 0.5 to 0.6 and 1.4 to 2.1 times as many as cuckoo hashing (fig-stadium-14.json and fig-stadium-16.json). In return,
// MixedOn has one slot a key, deletions among the other operations, and a bound on look-ups once tickets are given
// back.
//
// Large batches are first brought in the order of stretches of buckets, in two passes. A block takes the tickets and
// the slots of a stretch into shared memory, puts the pairs in whose first bucket is there, and writes the stretch back
// (stretch.cu). So memory sees streams alone. A stretch has whole neighbourhoods, so rows whose first bucket is full go
// on to the next ones there. What finds no room in these four is left over, and goes in as it comes: of a table that is
// filled at once to 0.8 or 0.95, 0.1% or 1.7% of the rows.
//
// If values have other widths than 4, 8 or 16 bytes, only keys and positions are brought in order. A block then gives
// slots to rows in shared memory, and each value goes from its place in the batch to its slot, once, in the order of
// slots.
//
// If slots are in host memory, if a batch has too few rows for all stretches, or if tickets have one bit, which does
// not tell whether a search must go on, all rows go in by regions: a block takes the tickets of a region into shared
// memory, and memory sees slots at random (staged.cu). What finds no room in its region is left to a kernel that goes
// on to other regions. Keys of other widths than 4, 8, 16 or 32 bytes go in as they come.
//
// With the paper's clStash, lanes that have put their pair take on what others of their warp have left (Figure 12). It
// stands in internal/bench/stadium alone. Kernels here only refill: a lane that is done gets the next row of the batch
// at once (kernel/drive.cuh), and lists hold what finds no room in its region. Figures of an H200 decided this. Of 2²⁵
// pairs of 4+4 bytes, with tickets of 4 bits, at load factors of 0.8 to 0.95, clStash has 73 to 78 of 100 lanes
// active, and the paper's inserts without it have 33 to 39; both take 2.9 to 3.1 ms
// (bench/results/h200/fig-stadium-1.json). If the pairs go in in 50 parts, the parts from a load factor of 0.7 on are
// 2% faster with clStash, on average (fig-stadium-13.json). It fills whole tables more slowly in 31 of 32 cases of
// widths and tickets, by 16% at most (fig-stadium-19ac.json). An insert waits for memory, not for lanes.
//
// # At MaxBytes
//
// MaxBytes bounds the board and all slots together, those in host memory, too. A table whose next size would be larger
// takes the largest size that MaxBytes allows. From then on it does not grow, and fills its slots: a key is refused when
// none of the first 512 buckets on its way has a ticket that is available, and *table.FullError names its positions. So
// a table of up to 512 buckets fills all of its slots, and of a larger one about one in a hundred stays empty. If it is HostBytes, or the memory itself,
// that is used up, the table behaves in the same way, and FullError wraps *device.OutOfMemoryError.
//
// Look-ups, deletions, and inserts of keys that are in go on. The ticket of a deleted pair is available at once. Grow
// to more pairs than MaxBytes allows returns table.ErrMaxBytes.
//
// Cost: in a table that is filled to more than 98%, an insert first reads up to 256 buckets of the board for a ticket.
// Look-ups of keys that are not in read more buckets, the fuller the table is, but no more than Stats.MaxProbes.
//
// # Host memory
//
// The paper runs one kernel over the whole table, which reads it at random across the bus. On an H200 that is 15 times
// as slow over gigabytes as over 512 MiB. Here a batch of some thousand rows or more first asks the board. Look-ups
// that miss end there, and so do those whose slots are in device memory. The other rows are listed by panes. Then pane
// after pane is served in the cheaper of two ways, by measured rates. Either its slots are read and written where they
// lie; or the pane is copied into a window, served there, and copied back if it was changed. Three windows take turns,
// so that copies in both directions run beside kernels. Such batches wait for their stream.
//
// Inserts go the same way. Meanwhile they keep to their key's region, which lies in one pane. What finds no room there
// goes in behind all others, across the bus. A pane that has been empty since the table was emptied is not copied in.
//
// A table in panes grows pane by pane, from the last to the first. Buckets lie by the highest bits of hashes, so the
// last panes of the new table take their pairs from the last panes of the old one, which then become panes further
// down. All memory is there before the first pair moves: a pane or two more than the new table has. Pairs that are not
// in their key's region move last. Afterwards, panes go from host to device memory as far as there is room.
//
// # Invariants
//
//  1. A slot is taken if its ticket's availability bit is 0. Its info bits then are those of its key. No key is twice
//     in the table.
//  2. An available ticket is all ones if it never was taken, else it has no info bit set. (A ticket of one bit cannot
//     tell.)
//  3. Between the slot that comes first for a key in its bucket, and the key's own, no ticket is all ones. Nor is any
//     of the buckets that come before; and their filters have the key's bit clear.
//  4. Counters.MaxProbes is no less than the buckets on the way to any pair, if these are more than four.
//  5. Between operations no access bit is set.
//  6. A region lies in one pane. Counters.Strays is no less than the pairs that are in other regions than their keys'.
//  7. A window is written to only after all who read it have passed. One kernel at a time changes a pane, or its
//     window.
//
// # Concurrency
//
// Find, Insert and Delete of a batch are kernels of one kind of operation each. Mixed runs all kinds beside one
// another, and so may insert, find and erase of stadium.cuh. Nobody waits for an access bit while holding one. If slots
// are in host memory, what comes before the end of an operation is fenced for the host, too.
//
// # Updates and choices
//
// Update is an insert that reads the value of a key that is there, combines it and writes it back, while it holds the
// access bit. So values of 8 bytes may lie at any multiple of 4, in host memory too. If four or more rows of a batch
// that are in the same 32 rows have one key, they go in together. Other rows of one key wait for one another, as in
// Insert. FindOrInsert is an insert that also returns the value.
//
// A position is refused once there is no room on its key's way. From then on the table does not grow for the rest of the batch. So
// the rows of a key are all in or all refused. InsertIf, FindIf and ContainsIf work on those positions of a batch alone
// whose bool is true, by kernels of their own (choose.cu). All of these operations reach slots in host memory across
// the bus, where they lie: they have no lists by panes, and do not go through shared memory.
//
// # Your own kernels
//
// ForEach and ForAll run a piece of CUDA C++ for pairs of a table. A kernel of your own includes "stadium.cuh" and
// takes a table by value: see Map.Program and Map.Use.
package stadium
