// Package serve classifies reads for clients: a database is loaded once, and answers over HTTP, on TCP or a Unix
// socket.
//
//	POST /classify   FASTA or FASTQ, plain or packed with gzip or zstd, in; Kraken's lines out
//	    ?format=metacache   MetaCache's lines; kraken: Kraken's, as without it; report: Kraken's report, when all
//	                        reads have come
//	    ?paired=true        mates take turns: first, second, first, second
//	    a form of one file is reads; of two, reads and their mates (curl -F reads=@1.fq -F mates=@2.fq)
//	GET /healthz     200 while it serves, 503 when it ends
//	GET /metrics     figures for Prometheus
//
// Lines come while reads are still being sent. What is wrong before the first line has a status: 400 for what is no
// FASTA or FASTQ, 408 for a client that stops sending, 413 for what is too large, 429 with Retry-After where too many
// of the client's requests wait, 503 with it where too many of all do, 507 for a disk that is full, 403 for a host that
// is not this server's and for pages of other origins. Behind it, a line "# error: …" follows, and the connection
// breaks off, so that no client takes the lines for all.
//
// # The way of a request
//
// When the first bytes of its body have come, it waits for one of Options.Requests places; Options.Queue may wait. A
// client, which is known by its address, has no more than a share of them, and those with fewest places are next. A
// goroutine reads it by blocks, and hands each to the batcher, which puts what waits together for the device. A second
// one turns verdicts into lines, in order. The third writes them to the client. Lines that the client does not take go
// to a temporary file, for many clients send all before they read: so neither reading nor the device waits for a
// client, until all that waits takes Options.MaxSpool, or a client's share of it. Memory is bounded, by about
// Options.Requests · (32·Options.MaxLetters + 4 MiB) at the worst. A client that sends less than 1 KiB of its body, or
// takes less than 64 KiB of lines that wait, in Options.Timeout is given up; where others wait for its place, it has an
// eighth of that to send.
//
// A database's file may be cut off, written over or replaced meanwhile: see classify.Open and Options.Changed.
package serve
