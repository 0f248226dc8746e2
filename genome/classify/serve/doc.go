// Package serve classifies reads for clients over HTTP, on TCP or a Unix socket, with a database that is loaded once.
//
//	POST /classify   takes FASTA or FASTQ, plain or packed with gzip or zstd; answers with Kraken's lines
//	    ?format=kraken      Kraken's lines, as without a format; metacache: MetaCache's lines; report: Kraken's
//	                        report, when all reads have come
//	    ?paired=true        mates take turns: first, second, first, second
//	    a form with one file holds reads; with two, reads and their mates (curl -F reads=@1.fq -F mates=@2.fq)
//	GET /healthz     200 while it serves, 503 when it ends
//	GET /metrics     figures for Prometheus
//
// A client gets lines while it is still sending reads. If something is wrong before the first line, the answer has a
// status: 400 for what is no FASTA or FASTQ, 403 for a host that is not this server's and for pages of other origins,
// 408 for a client that stops sending, 413 for what is too large, 429 with Retry-After if too many of the client's
// requests wait, 503 with Retry-After if too many requests of all clients wait, and 507 for a disk that is full. If
// something goes wrong after the first line, a line "# error: …" follows, and the connection breaks off, so that no
// client takes the lines for all.
//
// # The way of a request
//
// When the first bytes of its body have come, a request waits for one of Options.Requests places; Options.Queue
// requests may wait. A client is known by its address. It has no more than a share of the places, and clients with the
// fewest places are next.
//
// A goroutine reads the request in blocks, and hands each block to the batcher, which puts what waits together for the
// device. A second goroutine turns verdicts into lines, in order. A third writes them to the client. Lines that the
// client does not take go to a temporary file, because many clients send everything before they read. So neither
// reading nor the device waits for a client, until all that waits takes Options.MaxSpool, or a client's share of it.
// Memory is bounded, by about Options.Requests · (32·Options.MaxLetters + 4 MiB) at the worst.
//
// A client is given up if, in Options.Timeout, it sends less than 1 KiB of its body, or takes less than 64 KiB of lines
// that wait. If others wait for its place, it has an eighth of that time to send.
//
// Others may cut off, overwrite or replace a database's file meanwhile: see classify.Open and Options.Changed.
package serve
