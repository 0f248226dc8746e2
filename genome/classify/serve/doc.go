// Package serve classifies reads for clients: a database is loaded once, and answers over HTTP, on TCP or a Unix socket.
//
//	POST /classify   FASTA or FASTQ, plain or packed with gzip or zstd, in; Kraken's lines out
//	    ?format=metacache   MetaCache's lines; kraken: Kraken's, as without it; report: Kraken's report, when all reads have come
//	    ?paired=true        mates take turns: first, second, first, second
//	    a form of one file is reads; of two, reads and their mates (curl -F reads=@1.fq -F mates=@2.fq)
//	GET /healthz     200 while it serves, 503 when it ends
//	GET /metrics     figures for Prometheus
//
// Lines come while reads are still being sent. What is wrong before the first line has a status: 400 for what is no FASTA or FASTQ, 408 for a client that
// stops sending, 413 for what is too large, 503 with Retry-After where too many requests wait. Behind it, a line "# error: …" follows, and the
// connection breaks off, so that no client takes the lines for all.
//
// # The way of a request
//
// It waits for one of Options.Requests places; Options.Queue may wait. A goroutine reads it by blocks, and hands each to the batcher, which puts what waits
// together for the device. A second one turns verdicts into lines, in order. The third writes them to the client. Lines that the client does not take go to a
// temporary file, for many clients send all before they read: so neither reading nor the device waits for a client, and memory is bounded, by about
// Options.Requests · (32·Options.MaxLetters + 4 MiB) at the worst.
package serve
