// Package shard makes one table of tables on several devices, of any family (WarpCore, §IV-E): maps, sets, multimaps
// and counters. The devices are of this process, or each belongs to one member of a job of several processes (Join): the
// types and their methods are the same (Over).
//
// In the distributed mode each key belongs to one device, its owner, by a hash of its own. The paper goes step by step;
// here the steps overlap: while one piece of a batch goes into the tables, the next is split and sent, and the results
// of the one before come back. Inserts that are split by regions are the exception: they take turns with the tables,
// which want the L2 cache alone.
//
//	device 0                              device 1                  a device, as a source and as an owner
//	┌───────────────────────┐             ┌───────────────────────┐
//	│ its part of the batch │             │ its part of the batch │
//	└──────────┬────────────┘             └──────────┬────────────┘
//	           │ count: rows of each chunk for each owner; the host plans rounds from these
//	           │ split: tile by tile, in the order of owners, straight into the inboxes
//	           ├───────────────╮ ╭─────────────────┤
//	┌──────────▼───┬───────────▼─┼──┐  ┌───────────▼─┬─────────▼─────────┐
//	│ from 0       │ from 1      │  │  │ from 0      │ from 1            │  each has two inboxes: a round fills
//	└──────────────┴─────────────┼──┘  └─────────────┴───────────────────┘  one, the tables work on the other
//	           │ insert, find, … │                 │
//	        table 0              │              table 1
//	           │ values and flags, in the inbox's order
//	           ╰─────────────────┴─ gather: each source reads its segments, and writes them in the batch's order
//
// Of each round a source keeps the place of each row in its tile, 2 bytes, and for each tile and owner where the rows
// went. Results need no more to find their way back. No positions travel.
//
// # Invariants
//
//   - A key is in the table of its owner alone: owner_of(key) of exchange.cu, ownerOf in Go. Its hash is of another
//     kind than those that tables use, so a device's keys are spread over all of its table.
//
//   - Equal keys of a batch go to one owner in one round or in several, in the order of rounds, so what a table
//     promises of duplicates holds for all.
//
//   - Rows arrive behind one another, without gaps: source after source. The counts say where each segment begins
//     before anything is sent.
//
//   - An owner gets no more rows in a round than its inbox holds, whatever keys come. Memory for exchanges is bounded
//     by the size of a piece, not by that of a batch: two inboxes of about a piece each. Where all keys belong to one
//     owner, there are more rounds.
//
//   - An inbox is written when its owner is done with the round before the last, and all sources have fetched from it.
//
//   - Operations see one another in the order of the calls: each is queued at all tables before the next begins, and a
//     caller's stream goes on when all devices are done with its batch.
//
//   - The host waits for the counts, once a batch, and where a table waits. Device slices never pass through it.
//
//   - Whatever fails on one device, all others end their part before the call returns. A device that is lost is named
//     by that call and by all later ones.
//
//   - FullError names the positions whose keys are not in. Looking them up tells which these are.
//
//   - Rows that are not chosen (InsertIf, FindIf) have no owner: a tile has them behind all others, they are not sent,
//     and zeros come back for them.
//
//   - What an owner refuses of an Update or of a counter's Add is done in the end if its key is in by then, for a later
//     round may have found room for the key. So FullError, which look-ups tell, names what was not done.
//
// # Regions
//
// A large table brings a batch in the order of its regions, which the L2 cache holds, before it inserts it
// (frame.Regions). A pair of 4+4 bytes is then counted, read and written by the split, 20 bytes, and again by the
// table, 20 more, and read by the insert. Where all tables tell their order (table.Orderer), and kernels write into the
// owners' memory, inserts of pairs and look-ups are split by owner and region at once: regions.cu. Then an insert saves
// the second 20 bytes, and a look-up finds its part of the table in the cache. What is sent goes in shorter streams: of
// a tile of 16,384 rows, 2 owners and 64 regions 128 rows each, 512 bytes. For results to find their way back a row has
// 4 bytes, its part and its place in the tile, and a tile has for each part where its rows went.
//
// Members do the same by way of their outboxes, where all of them want it: each counts in the order that it would have,
// tells it with the counts, and counts again where others want another. NCCL carries what one has for another in one
// stretch, so an owner's table gets each source's rows in order, one source's after the other's, and goes through the
// cache once for each.
//
// # The independent mode
//
// Each device has a table of its own. Device slices go in where they are, and nothing is sent. Look-ups and deletions
// ask all devices: every one gets all keys, and what they find is merged: the first value that is found (maps), all
// values (multimaps), the sum (counters). A map, a set or a counter wants a key brought to one device only: on two it
// is there twice, Len counts both, and of two values any may be found. Go slices go to the owners of their keys, as in
// the distributed mode, so whoever brings Go slices alone has a table like any other. InsertNew looks on the device
// where it inserts.
//
// Update, FindOrInsert and Mixed want to know all of a key at one place, so their rows, of device slices too, go to the
// owners of their keys. Once device slices have brought keys to other devices, these calls are errors until the table
// is cleared: two devices with a key would each have a part of what was combined, and no look-up knows how to combine
// the parts.
//
// Small look-ups of the distributed mode (Options.AskAll) go the same way: each device looks up all keys, but nobody
// waits for counts.
//
// # Transport
//
// Kernels write into other devices' memory, and read results there, where both have peer access: NVLink, mostly.
// Otherwise, or with Options.Copies, a source splits into an outbox, and segments are copied. Both do the same.
//
// # Many processes and hosts
//
// Join makes a process a member of a job, with one device. NewMap, NewSet, NewCounter and NewMultiMap of a *Member make
// tables over all members. Members meet at rank 0 over TCP, stay connected, and agree there on each call: which it is,
// how many rows go where, and who has an error. Rows and results go by NCCL.
//
//	           rank 0                                    all
//	           split ─▶ outbox ══ NCCL, to owners ══▶ inbox ─▶ insert, find
//	batch ◀─ gather ◀── outbox ◀═ NCCL, results ═════ inbox ◀───────┘
//	           ▲ counts of all, by TCP: everybody plans the same rounds
//
// Calls are collective: every member makes the same calls in the same order, each with its own batch, which may be
// empty. Calls that differ, and what is wrong with one member's batch, are an error of all. When a member is gone, or
// gives up, all others hear its name at once, and what waits for it is aborted. Only All, Chunks and Close are not
// collective: they are of a member's own part. `warpmap launch` starts such processes on one host; torchrun, mpirun and
// srun do on many.
//
// In the independent mode each member's inserts stay with it, Go slices, too, and their rows are not sent. Calls are
// collective all the same, so that all hear of what is wrong. Look-ups and deletions send all keys to all members, and
// merge what comes back as one process does: of maps the first rank's value. What sends rows to owners (Update,
// FindOrInsert, Mixed) is an error once an insert has put keys where they are brought, until the table is cleared.
//
// # Who is let in
//
// Rank 0 and each other rank prove to one another that they have the job's token, WARPMAP_TOKEN, before anything else
// is read; the token itself is not sent. `warpmap launch` makes one. It should be 16 random bytes or more: who sees a
// proof can guess at it. Slurm's job id and torchrun's run id are no secrets, and mpirun gives none: these do only
// where rank 0 listens at a loopback address, else Join is an error that says what to set.
//
// Strangers at rank 0's port take little memory, and keep ranks out only if 64 of them come, from the rank's own host
// or from many, while it answers.
//
// Nothing else is protected. Rows go in clear, and so do counts, keys' distribution among them. NCCL's own connections
// know no token: the id by which its members find one another goes in clear from rank 0 to the others. Who can read the
// network can read rows; who can also change it can change what members agree on and what they exchange, behind the
// proofs. Once in, a member is trusted: it can make others take memory and fail. So a network that others share wants a
// tunnel, or NCCL's interfaces (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) kept to one that is the job's.
//
// # Limits
//
// At most MaxDevices devices in a process, and members in a job. Keys of 4 and 8 bytes. All devices are GPUs, or CPU
// devices (cpu:0, cpu:1, …), which stand for GPUs in tests. Grow and Capacity make room on each device for its share of
// that many keys and some more, for shares differ by chance.
//
// # Where to read
//
// maps.go, sets.go, counters.go and multimaps.go make batches (batch.go) and jobs (job.go) of what their methods are
// called with. An exchanger (exchanger.go) brings a batch's rows where they belong. It is a cluster: cluster*.go for
// calls, exchange.go for counts, rounds and memory, flight.go for the rounds themselves. Or it is a joint: joint*.go.
// Both plan rounds by plan.go, split and gather by exchange.cu and regions.cu, and have a device's streams and memory
// in member.go.
package shard
