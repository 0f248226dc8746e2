// Package shard makes one table over several devices (WarpCore, §IV-E): a map, a set, a multimap or a counter of any
// family. The devices belong to this process, or each belongs to one member of a job of several processes (Join).
// Tables over both have the same types and methods.
//
//	devices, err := device.OpenAll("all")
//	...
//	m, err := shard.NewMap(devices, shard.Options{},
//		func(d *warpmap.Device, o warpmap.Options) (warpmap.Map[uint64, float32], error) {
//			return warpmap.New[uint64, float32](d, warpmap.WarpCore, o)
//		})
//
// In the distributed mode, a hash function of its own assigns each key to one device, its owner. Rows of a batch travel
// to their owners, the owners' tables process them, and results return. If tables want sorted rows, the source sorts
// its rows by owner and region, a part of the table that fits the L2 cache. Copies carry them in steps of several
// regions:
//
//	source                       owner
//	count, sort by owner, region
//	rows of step 0 ════ copy ═══▶ inbox ─▶ the table works on step 0 ─▶ results of step 0
//	rows of step 1 ════ copy ═══▶ inbox ─▶ the table works on step 1 ─▶ results of step 1
//	…                                                                   │
//	gather, in the order of the batch ◀═══════ copies, step by step ════╯
//
// Other rows are split by owner only: small batches, chosen rows (InsertIf, FindIf), rows for families that want no
// order and, by default, all rows on CPU devices. Kernels write them into the owners' inboxes and read the results
// there. If two devices have no access to each other's memory, or with Options.Copies, rows go to an outbox and are
// copied. A look-up of at most Options.AskAll keys is sent to all devices instead.
//
// A batch of at most 2²¹ rows times the number of devices is not counted first if atomic operations of each device work
// on the memory of all others, and if its boxes take at most 1/256 of a device's memory (quick.go): kernels of all
// sources take places in the owners' boxes as they split rows. Options.Piece, Regions, Copies and Apart turn this off.
//
// If the keys of a batch for Update or of a counter repeat, its source combines the rows first, and sends sums (sums.go).
//
// In the independent mode, each device has its own table. Device slices go into the table of their device. Look-ups ask
// all devices and merge the results. See docs/several.md for the rules of this mode.
//
// # Invariants
//
//   - In the distributed mode, a key is only in the table of its owner: owner_of(key) of exchange.cu, ownerOf in Go.
//     The owner's hash is independent of the hashes of the tables.
//   - All rows with equal keys go to one owner, in the order of rounds. So what a table guarantees for duplicates in a
//     batch holds for all devices together.
//   - The host plans rounds from the counts of all sources before anything is sent. No owner receives more rows in a
//     round than its inbox holds. So memory for exchanges depends on the size of a piece, not of a batch. A small batch
//     that is not counted has no rounds, and each owner's box has room for all of its rows.
//   - Rows lie in an inbox without gaps. Sorted rows are in the order of steps: within a step of an insert by source,
//     and within a step of a look-up by region and source. Rows that are only split are in the order of sources, and in
//     the box of a small batch in no order. No positions travel: each source keeps notes of 2 or 4 bytes per row, with
//     which gather finds the results.
//   - Rows that are not chosen (InsertIf, FindIf) have no owner and are not sent. Their results are zero.
//   - A source writes to an inbox only after its owner and all readers of results are done with the round that used it.
//   - Operations take effect in the order of calls. A caller's stream continues when all devices are done.
//   - The host waits only for the counts, once per batch, and for what the tables wait for. Device slices never pass
//     through the host.
//   - If one device fails, or a table panics, all devices end their part before the call returns. If a device is lost,
//     that call and all later calls return an error that names it.
//   - FullError names the positions of keys that are not in the table. Look-ups determine them, or the refused keys if
//     there is no memory for look-ups. In that case, if only some sums of a key are in, it names all rows of the key. Rows of Update and Add that an owner refuses are tried again at the end if their
//     keys are in the table then.
//
// # Jobs
//
// NewMap, NewSet, NewCounter and NewMultiMap take a *Member instead of devices. Members connect to rank 0 over TCP and
// agree there on each call: its name, the number of rows for each owner, errors, and room for the rows. NCCL carries
// rows and results. Calls are collective: all members make the same calls in the same order, each with its own batch,
// which may be empty. All, Chunks, OwnLen, Devices, Steps, Family and Close are not: they concern a member's own part.
//
// If one member lacks memory, all members take smaller pieces; they agree on that before anything is sent. If a member
// is gone, closed or fails during an exchange, all calls of other members return an error that names its rank, and the
// job ends. A member whose host does not answer is gone after 5 seconds, and a member that is stopped after a minute.
//
// # Security
//
// Rank 0 and each other rank prove to each other that they have the job's token (WARPMAP_TOKEN) before they read
// anything else. The token is not sent. It must be a secret of at least 16 random bytes, because a proof allows
// guesses. Without a secret, a job starts only if rank 0 listens at a loopback address. Connections without a proof
// take little memory. They delay a rank only if 64 of them come from its own host or from many hosts at the same time.
//
// Nothing else is protected. Rows, counts and the id of NCCL's communicator are not encrypted, and NCCL's connections
// do not check the token. An attacker that can change the traffic can change the results. A member is trusted after its
// proof: it can make other members take memory and fail.
//
// # Limits
//
// A process has at most MaxDevices devices, and a job at most MaxDevices members. Keys have 4 or 8 bytes. All devices
// are GPUs, or all are CPU devices (cpu:0, cpu:1, …), which replace GPUs in tests. Grow and Capacity make room on each
// device for its share of the keys and a little more, because shares differ by chance.
//
// # Where to read
//
// maps.go, sets.go, counters.go and multimaps.go turn the arguments of methods into batches (batch.go) and jobs
// (job.go). An exchanger (exchanger.go) does a job: a cluster (cluster*.go, exchange.go) over devices of this process,
// a joint (joint*.go) over members. plan.go plans rounds. flight.go carries rows that are split by owner. For
// sorted rows, order.go chooses the order, waves.go lays out the boxes, and regions.go carries the rows. exchange.cu,
// regions.cu and sort.cu have the kernels, and layout.go has their parameters and sizes. member.go has a device's
// streams and memory.
package shard
