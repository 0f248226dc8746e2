// Package operations runs files of operations over tables, and compares what these answer with one model.
//
// A file names a kind of table, its options, the grounds it runs on, and operations, one a line:
//
//	# Found: a slab that was freed twice.
//	operations 1
//	table map key=u32 value=u64 capacity=100 maxbytes=5000 seed=77
//	ground family=slab group=2 stress=5
//	ground family=warpcore shards=2 piece=100
//	insert n=300 keys=seq:5 values=from:1
//	insert 1=7 2=9
//	delete 1 2 3
//	save family=gph
//
// A ground is where a table stands: its family with the family's own options, one device or shards or members of a job,
// a bound on memory, a seed of the stress mode. A file without grounds runs over those that its kind has. Rows stand in
// the line, or follow from a rule: see Op.
//
// Generate makes a file of a seed. Run replays it over its grounds, one after the other. Reduce makes a file that fails
// smaller, while it fails. What was once reduced is kept in testdata, and runs in every test.
//
// WARPMAP_PROGRAMS says how long its tests go on generating ("30m"), WARPMAP_FOUND names a folder for the reduced files of
// what fails, and WARPMAP_SEED a seed that is run alone: as long as the failure says, that is with WARPMAP_PROGRAMS or
// without. WARPMAP_FILE names a file, or a folder of files, to run.
//
//	WARPMAP_PROGRAMS=30m WARPMAP_FOUND=found go test -timeout 0 ./internal/operations
//	WARPMAP_PROGRAMS=1m WARPMAP_SEED=1234 go test -run TestGenerated/cpu/map ./internal/operations
//	WARPMAP_FILE=found/map-1234.ops go test -run TestFile ./internal/operations
//
// Grounds over members of a job are of package shard's tests, which start such.
//
// # What holds of every operation
//
//   - The error is nil, or what the operation promises: a FullError of puts, whose positions are exactly those that are
//     not in, and only where something bounds the table; ErrMaxBytes and OutOfMemoryError of Grow.
//   - Every key of the batch has afterwards what the batch and the model allow: of equal keys, the value of any. No
//     other key has changed, which Len and Check tell after every operation, and All at the end.
//   - Grounds that refused nothing hold the same keys as one another.
//   - A cache refuses nothing. A pair goes out of it only where more keys want to be in a bucket than that has slots; no
//     pair stays in the bucket with a smaller score than one that went. What goes out was in, or came, with that value,
//     and is not in unless it came again. Scores are what the policy makes of them. Pairs end when their time is over.
//   - The table takes no more than MaxBytes. Nothing is left of it once it is closed.
package operations
