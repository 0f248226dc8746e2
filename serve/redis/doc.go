// Package redis answers clients of Redis, in versions 2 and 3 of its protocol, from a space of strings in host memory:
// see internal/keyspace. `warpmap serve` is its command, and docs/serve.md its page.
//
//	connections        loop (one for every two cores)                              space
//	 ○ ○ ○ ○   ──▶  1. epoll tells which have sent
//	                2. some read, and look up together, so that the        ──▶  shards are shared meanwhile
//	                   processor waits for memory only once
//	                3. each: take out all requests that are whole,         ──▶  share or lock a shard, work, unlock
//	                   answer them in order into one buffer
//	                4. commit the log once, if it is always synced         ──▶  one fsync for all of the round
//	 ○ ○ ○ ○   ◀──  5. one write for each
//
// A round takes what lies ready, and waits for nothing: with little to do a request is answered at once, and with much
// to do the requests of a pipeline, and the syncs of many connections, share their costs by themselves. On systems
// without epoll, and with TLS, each connection has a goroutine, which does the same for its own requests.
//
// # What holds
//
//   - Requests of a connection are answered in order, each after it was done. So a client sees its own writes.
//   - What a request does to one key happens at one moment, and what MSET, MGET, MSETNX, DEL, EXISTS, PFCOUNT and
//     PFMERGE do to several, too: their shards are locked in one order. FLUSHALL locks all. GET and MGET only share
//     shards, and do not wait for one another.
//   - A reply to a write is sent when the write is in the log, and with fsync always on the disk.
//   - Replies and errors are those of Redis 7, byte for byte, where a command is one of Redis': tests compare them.
//     Commands that are not here are unknown. There is one database, 0, and strings are the only type.
//
// # Bounds
//
// A connection's memory is its part of a request (Options.Bulk, Options.Request) and its replies (Options.Output).
// While replies wait to be taken, nothing more is read or done for that client, and one that takes nothing for
// Options.Timeout, or leaves a request half sent for so long, is given up. Nobody else waits for it. Idle connections
// stay, unless Options.Idle says how long.
//
// # HyperLogLog
//
// PFADD, PFCOUNT and PFMERGE work on sketch.Registers of precision 14 under a seed that is fixed, since files keep
// them. A value is a head of 16 bytes and 16,384 registers. Redis' own have other hashes and another form: they are
// neither read nor written.
//
// # Arrow Flight
//
// The tables that programs ask by columns are package serve/flight, with its own listeners in the same command. Nothing
// here knows of it.
package redis
