// Package shard makes one table out of tables on several devices, of any family (WarpCore, §IV-E): maps, sets,
// multimaps and counters. The devices belong to this process, or each belongs to one member of a job of several
// processes (Join). The types and their methods are the same for both (Over).
//
// In the distributed mode each key belongs to one device, its owner, by a hash of its own. The paper takes one step
// after the other; here the steps overlap: while one piece of a batch goes into the tables, the next is split and sent,
// and the results of the one before come back. Inserts that are split by regions are the exception: they take turns
// with the tables, because the tables want the L2 cache to themselves.
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
// In each round, a source keeps the place of each row in its tile, 2 bytes, and for each tile and owner it keeps where
// the rows went. Results need no more to find their way back. No positions travel.
//
// # Invariants
//
//   - A key is only in the table of its owner: owner_of(key) of exchange.cu, ownerOf in Go. The owner's hash is of
//     another kind than the hashes that tables use, so a device's keys are spread over all of its table.
//
//   - Equal keys of a batch go to one owner, in one round or in several, in the order of rounds. So what a table
//     promises of duplicates holds for the whole.
//
//   - Rows arrive one behind the other, without gaps, source after source. The counts say where each segment begins
//     before anything is sent.
//
//   - An owner gets no more rows in a round than its inbox holds, whatever keys come. Memory for exchanges is bounded
//     by the size of a piece, not by that of a batch: two inboxes of about a piece each. If all keys belong to one
//     owner, there are more rounds.
//
//   - An inbox is written once its owner is done with the round before the last, and all sources have fetched from it.
//
//   - Operations take effect in the order of the calls: each is queued at all tables before the next begins, and a
//     caller's stream goes on when all devices are done with its batch.
//
//   - The host waits for the counts, once a batch, and where a table waits. Device slices never pass through the host.
//
//   - If anything fails on one device, or a table's code panics, all others end their part before the call returns. If a
//     device is lost, that call and all later ones name it.
//
//   - FullError names the positions whose keys are not in. Look-ups find these. If there is no memory for look-ups, the
//     keys that owners refused say it.
//
//   - Rows that are not chosen (InsertIf, FindIf) have no owner: a tile has them behind all others, they are not sent,
//     and zeros come back for them.
//
//   - If an owner refuses rows of an Update or of a counter's Add, and their keys are in at the end, these rows are
//     done then, because a later round may have found room for the key. So FullError, which goes by look-ups, names
//     what was not done.
//
// # Regions
//
// Before a large table inserts a batch, it brings the batch in the order of its regions, which the L2 cache holds.
// Take a pair of 4+4 bytes. The split counts, reads and writes it: 20 bytes. The table does so again: 20 more. Then
// the insert reads it. Where all tables tell their order (table.Orderer), and kernels write into the owners' memory,
// inserts of pairs and look-ups are split by owner and region at once: regions.cu. Then an insert saves the second 20
// bytes, and a look-up finds its part of the table in the cache. What is sent goes in shorter streams: with 2 owners
// and 64 regions, a tile of 16,384 rows has 128 rows for each, 512 bytes. So that results find their way back, each
// row keeps 4 bytes, its part and its place in the tile, and each tile keeps where the rows of each part went.
//
// Members do the same by way of their outboxes, if all of them want it. Each counts in the order that it would have,
// tells that order with the counts, and counts again if others want another. NCCL carries what one member has for
// another in one stretch. So an owner's table gets the rows in order source by source, and goes through the cache once
// for each source.
//
// # The independent mode
//
// Each device has a table of its own. Device slices go into the table of the device where they are, and nothing is
// sent. Look-ups and deletions ask all devices: every device gets all keys, and what they find is merged. A map gives
// the first value that is found, a multimap all values, a counter the sum. In a map, a set or a counter, a key should
// be brought to one device only. If it is brought to two, it is there twice, Len counts both, and a look-up may find
// either of the two values. Go slices go to the owners of their keys, as in the distributed mode. So a table that gets
// only Go slices is like any other. InsertNew looks for a key only on the device where it inserts it.
//
// Update, FindOrInsert and Mixed need all of a key in one place, so their rows go to the owners of their keys, even
// rows of device slices. Once device slices have brought keys to other devices, these calls are errors until the table
// is cleared. Otherwise two devices with one key would each have a part of what was combined, and no look-up knows how
// to combine the parts.
//
// Small look-ups of the distributed mode (Options.AskAll) go the same way: each device looks up all keys, but nothing
// waits for counts.
//
// # Transport
//
// If two devices have access to each other's memory, mostly by NVLink, kernels write into the other's memory and read
// results there. Otherwise, or with Options.Copies, a source splits into an outbox, and segments are copied. The result
// is the same. Each pair of devices goes its own way: without NVSwitch a GPU has room for eight peers, so of ten GPUs
// some pairs copy.
//
// # Many processes and hosts
//
// Join makes a process a member of a job, with one device. NewMap, NewSet, NewCounter and NewMultiMap take a *Member to
// make tables over all members. Members meet at rank 0 over TCP, stay connected, and agree there on each call: which
// call it is, how many rows go where, and who has an error. Rows and results go by NCCL.
//
//	           rank 0                                    all
//	           split ─▶ outbox ══ NCCL, to owners ══▶ inbox ─▶ insert, find
//	batch ◀─ gather ◀── outbox ◀═ NCCL, results ═════ inbox ◀───────┘
//	           ▲ counts of all, by TCP: everybody plans the same rounds
//
// Calls are collective: every member makes the same calls in the same order, each with its own batch, which may be
// empty. If calls differ, or something is wrong with one member's batch, all members get an error. If one lacks memory
// for what it gets in a round, all take smaller pieces. They agree on that before anything is sent. If a member is gone
// or gives up, all others are told its name at once, and what waits for it is aborted. A member whose host answers, but
// which says nothing, as it is stopped or gets no processor, counts as gone after a minute. Only All, Chunks, OwnLen,
// Devices, Steps, Family and Close are not collective: they concern a member's own part. `warpmap launch` starts such
// processes on one host; torchrun, mpirun and srun do so on many.
//
// In the independent mode each member's inserts stay with it, Go slices included, and their rows are not sent. Calls
// are collective all the same, so that all members hear of errors. Look-ups and deletions send all keys to all members,
// and merge what comes back as one process does; a map gives the first rank's value. Calls that send rows to owners
// (Update, FindOrInsert, Mixed) are errors once an insert has put keys where they were brought, until the table is
// cleared.
//
// # Who is let in
//
// Rank 0 and each other rank prove to one another that they have the job's token, WARPMAP_TOKEN, before anything else
// is read. The token itself is not sent. `warpmap launch` makes a token. It should be 16 random bytes or more, because
// anyone who sees a proof can guess at it. Slurm's job id and torchrun's run id are no secrets, and mpirun gives no
// token. These will do only where rank 0 listens at a loopback address; elsewhere Join returns an error that says what
// to set. If the name of rank 0's host, other than localhost, means a loopback address there, rank 0 listens at all
// addresses.
//
// Strangers at rank 0's port take little memory. They keep a rank out only if 64 of them come, from the rank's own host
// or from many hosts, while the rank answers.
//
// Nothing else is protected. Rows go in clear, and so do counts, which tell how keys are distributed among the members.
// NCCL's own connections know no token: the id by which its members find one another goes in clear from rank 0 to the
// others. Whoever can read the network can read rows. Whoever can also change it can change what members agree on and
// what they exchange, after the proofs. Once in, a member is trusted: it can make others take memory and fail. So on a
// network that others share, use a tunnel, or keep NCCL's interfaces (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) to a network
// that only the job uses.
//
// # Limits
//
// A process has at most MaxDevices devices, and a job at most as many members. Keys have 4 or 8 bytes. All devices are
// GPUs, or all are CPU devices (cpu:0, cpu:1, …), which stand for GPUs in tests. Grow and Capacity make room on each
// device for its share of that many keys and some more, because shares differ by chance.
//
// # Where to read
//
// maps.go, sets.go, counters.go and multimaps.go make batches (batch.go) and jobs (job.go) of what their methods are
// called with. An exchanger (exchanger.go) brings a batch's rows where they belong. There are two kinds of exchanger. A
// cluster has cluster*.go for calls, exchange.go for counts, rounds and memory, and flight.go for the rounds
// themselves. A joint has joint*.go. Both plan rounds by plan.go, split and gather by exchange.cu and regions.cu, and
// keep a device's streams and memory in member.go.
package shard
