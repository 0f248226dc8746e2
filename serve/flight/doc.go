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
//   - A snapshot is of one moment for each table, in a file that replaces the one before it when it is whole.
//   - With a log, what was acknowledged is there after a crash, as far as Options.Fsync says: each batch wholly, and
//     once. What a client saw beside that may be gone.
//
// # Files
//
//	folder  prices.table   a snapshot: see internal/columnar
//	        log.3          what was done to all tables: see internal/journal, and internal/columnar for its records
//	        lock           of the process that uses the folder
//
// A table's changes are numbered, and its snapshot says the number of the last that it has. At the start each table is
// that of its snapshot, and of the log all changes behind that. A number that is left out is an error. In files a table
// has a number of its own beside its name, since others may have had its name before.
//
//   - Snapshots of all tables begin a new log. When all have their names, the logs before it are removed.
//   - A table that is created is a record of the log. One that is made of a file has a snapshot before clients see it,
//     for no record has its rows; so has one of the action load, as another table than the one that was there.
//   - A table that is dropped is dropped in the log, on the disk, before its file is removed. Its file is gone before
//     the log is that says so. So no table comes back, and none is lost whose drop was not to be.
//   - A server without a log makes snapshots of what logs of others hold when it starts, and removes these.
//   - When the log cannot be written, writes are refused, and look-ups go on. What was done before stays, is not
//     acknowledged, and is written when it can be.
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
