// Package flight serves tables with columns to clients of Arrow Flight, such as pyarrow: see internal/columnar for the
// tables. `warpmap serve` is its command, and docs/serve.md its page.
//
//	client                        server: a call of DoExchange                            client
//	         gRPC                receive ──▶ look up ──▶ send                     gRPC
//	keys ──▶ frames ──▶ 1 copy ──▶ [ keys ]    index     [ values, found ] ──▶ frames ──▶ values
//	         of 16 KiB              batch 3    batch 2     batch 1           no copy
//
// A call receives a batch, looks the one before it up, and sends the one before that, at the same time. Small look-ups
// of several clients go to the device together: while one batch is under way, what comes waits for the next.
//
// # What clients ask for
//
//	DoExchange    descriptor: a table        key columns in any order ──▶ value columns and "found", row by row
//	DoPut         descriptor: table, mode    key and value columns    ──▶ what was done, in JSON, batch by batch
//	DoGet         ticket: table, part        all rows, or one of several parts
//	ListFlights, GetFlightInfo, GetSchema, DoAction, ListActions
//
// A descriptor is a path of one name, or a command in JSON: {"table":"prices","mode":"add"}. A ticket is a name or such
// a command: {"table":"prices","part":0,"parts":4}.
//
// # What holds
//
//   - Replies of a DoExchange have the rows that came, in their order. A batch has one reply, with the app_metadata
//     that came with it, unless the reply is larger than Options.Message: then it has several.
//   - What DoPut has answered is done, and look-ups that begin later see it. Batches of a DoPut are done in order.
//   - An export is of one moment. It is brought to the host's memory first, since writes wait for it, and must not wait
//     for a client.
//   - Columns that do not fit are an error that names both those that came and those that were wanted.
//   - A snapshot is of one moment for each table, in a file that replaces the one before it when it is whole. There is
//     no log: what came after the last snapshot is lost if the process is killed.
//
// # Bounds
//
// A client's memory is that of its calls, of which a connection has Options.Streams at most: three messages received
// or decoded, and two replies, each of Options.Message at most, and half as much again where columns are widened. Who
// says neither token nor password is refused by the headers of the call, before a message is read. What a client sends
// is checked before it is used, and takes no more memory than it has bytes, or Options.Rows allows. A client that
// stalls is given up, and nobody waits for it: see Options.Timeout and Options.Idle. One that takes no replies loses
// its connection, since the end of a call would wait behind them.
package flight
