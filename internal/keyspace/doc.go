// Package keyspace holds strings under keys, both of any bytes, in host memory, with times to live, a bound of memory,
// snapshots and a log. Package serve/redis asks it.
//
//	hash of a key: │ 10 bits: shard │ b bits: home in the index │ the rest │
//	                     │
//	                     ▼
//	shard  lock │ index: 2^b slots                │ segments of records
//	            │ ┌──────┬───────┐                │ ┌────────────────────────┐ ┌──────────────────┐
//	            │ │ hash │ place │ → segment, offset│ │ record │ dead │ record… │ │ one large record │
//	            │ └──────┴───────┘                │ └────────────────────────┘ └──────────────────┘
//
//	record │ key bytes │ value bytes │ room for a value │ last use │ expires at │ key … │ value …, room │
//	           4             4               4               4           8          a multiple of 8 in all
//
// The two high bits of the first word say that a record is dead, and that its value is a filter and no string.
//
// # Why the index is not on a device
//
// On two cores without a GPU, a request alone takes 5 to 6 µs of CPU time from socket to socket, one of a pipeline of
// 256 takes 0.3 µs, and a key of a large MGET 0.17 µs (bench/results/xeon-2-cores/redis.json). To look hashes up in a
// table of warpcore on the CPU device takes 1.3 µs for one, 2.6 µs for 16 and 14 µs for 256, and to insert one takes 2
// µs; the records, which are in host memory, must be read behind that all the same. So the device would make single
// requests slower by a quarter, and pipelines no faster: what an index here costs a batch is that the processor waits
// for memory, and Warm has it wait for many keys at once.
//
// # Invariants (Check walks them)
//
//   - A key is in one shard, and has one slot there, between its home and the next empty slot. Slots have no gaps in
//     between: what is behind a slot that is emptied moves up.
//   - A shard is changed by who has locked it. Who shares it writes nothing but the time of a record's last use.
//   - Who shares a shard has its lock, shared, or says so in a line of its own while the shard's lock is biased towards
//     readers (type bias). Who locks it ends that bias, and waits for those.
//   - A slot's place is a record that is not dead, with the slot's hash. All other records are dead, and are counted in
//     their segment. No segment but the current one is more than half dead.
//   - The bytes of live records and of indexes are counted in the space; they are within Options.Most, of which a
//     quarter is left for what is dead.
//   - A scan goes along the hashes. So a key that is there from its first call to its last is given exactly once,
//     however the indexes grow meanwhile.
//
// # What is written
//
//	folder  snapshot.7   all shards, each as it was about some moment
//	        log.7        what was done since that moment began
//	        log.8        of a server that was started again, or of a snapshot that is not whole yet
//
//	record of both │ crc │ kind │ key bytes │ value bytes │ expires at │ key … │ value … │
//
// A record is logged while its shard is locked, so those of a key are in the order of what happened to it. What is done
// as a Group is one record, which holds others. A snapshot begins a new log, to which all shards turn at one moment: so
// all of the old one is before all of the new one. Then the snapshot takes one shard after the other, in pieces, and a
// key may be in it as it was behind some of its records in the new log. To do these again leads to the same, for each
// says what comes of it: the value, the time, bytes at a place; so all of them are on the disk before the snapshot has
// its name. When it has, logs and snapshots before it are removed. After a start, the newest snapshot is read, and all
// logs from its number on. A log may end within a record, as it does when a process is killed: the tail is cut, and
// told. A record that is damaged elsewhere is an error.
//
// Package journal has the log, and says what holds there. When it cannot be written, Err says so, and callers refuse to
// write.
package keyspace
