// Package resp takes requests of Redis' clients out of bytes, and writes replies, in versions 2 and 3 of the protocol
// (RESP). It knows no commands: package serve/redis does.
//
//	bytes of a connection, as they come
//	┌──────────────────────────────┬──────────────────────────────┬───────────────
//	│*2\r\n$3\r\nGET\r\n$1\r\na\r\n│*3\r\n$3\r\nSET\r\n$1\r\nb\r\n│$900000\r\nxxxx…
//	└──────────────────────────────┴──────────────────────────────┴───────────────
//	 Next gives GET, a              base                           pos
//	                                a part of a request, for which Next waits: SET, b and some of a value
//
// A Parser goes over each byte once, however the bytes are cut: between two pieces it remembers the arguments that are
// whole. Arguments are parts of the caller's memory, and are copied only if their request is not whole yet.
//
// # Invariants
//
//   - base ≤ pos ≤ len(buf). Spans are offsets from base, of requests that begin there.
//   - What is held grows with the bytes that came, and not with the lengths that they announce.
//   - After an error a Parser takes nothing more: what follows cannot be told apart.
//
// Lines of words, as people type them, are requests, too ("GET a\r\n"): quotes and escapes are those of Redis.
package resp
