// Package frame is what families of tables share on the host: all of a table but its algorithm. A family calls it; it
// knows nothing of the family but its name and the functions that it is handed.
//
//	a method of a family: one line
//	      │ Insert, Find, Delete, FindValues, Mix, All, Chunks, CallEach …: check lengths, devices and streams
//	      ▼
//	Stage      brings Go slices to the device and back, chunk by chunk: copy in, kernel and copy out overlap
//	      ▼
//	Frame      takes the lock and the table's turn among the streams: Reading, Writing, Alone, Locked
//	      ▼
//	Inserter   takes a batch in by parts: launches, counts the refused, has the table grow, tries those again
//	      ▼      Regions and Placing bring large batches in the order of the table's memory first
//	the family's kernel, with one parameter struct
//
// # What a family writes
//
//   - A core that holds a Frame, its options, its kernels and its memory. Frame.Open calls a function that makes the
//     memory, and keeps one that frees it.
//   - An Insertion: Put, which fills an Inserter (Try, Launch, Look, Room, Grow) and runs it; Find, which tells which
//     keys are in after all; Size, for errors. ExactInsertion makes one for kernels that never retry.
//   - Functions that queue a look-up, a deletion and an export of a range of slots (Exporter). Kernels that are seldom
//     needed are Late or Needed. Kernels count in Counters, and the host reads them.
//   - Len, Clear, Stats, Grow, Check and Close: each is one call, of Count, Writing, Measure, GrowTo, Inspect or
//     Close.
//   - For more kinds: Finder and Grouper (several values a key), Slabs (lists from an allocator), Partitioner and
//     Within (rows in order of parts), Caller (kernels of the user's), CombineHeader and Operations (Update), Mixer
//     (mixed batches).
//
// The smallest family is in internal/tabletest, in ring_test.go: all of it is 300 lines.
//
// # What it gets
//
//   - Batches from Go slices and from device slices, by one path; the order of calls on several streams; a closed
//     table's error.
//   - Growth, parts where memory is short, FullError with exactly the positions that are not in, and equal keys named
//     all or none.
//   - Memory: Make frees what is kept for later batches before it gives up; Scratch lends; Budget holds a table to
//     MaxBytes.
//
// # Invariants
//
//   - Whoever queues work that changes a table holds its lock, and is behind all that was queued on it before, on
//     whatever stream.
//   - Memory that is lent is its holder's until Lease.Done: nobody frees it, however short memory is. Memory of a table
//     is freed behind the work that uses it.
//   - Every position of a batch is tried. A position that is refused has its bit set, in a bitmap that there is always
//     memory for.
//   - Every byte of a table itself is asked of Budget before it is allocated; scratch memory and staging are counted
//     apart.
//   - Staging waits for no table, and no table waits for staging with its lock held, but for memory that batches give
//     back.
package frame
