// Package programs runs random programs on tables: random options, kinds, families, devices, bounds of memory and
// batches, each step compared with a Go map. Its own tests are all it has.
//
// A program is a function of its seed. Short runs try a few; WARPMAP_PROGRAMS says how long to go on ("30m"),
// WARPMAP_SEED with which seed to begin, and WARPMAP_ONE ("short" or "long", as a failure says) to run that seed alone.
// What fails names its seed, its options and the steps before.
//
//	WARPMAP_PROGRAMS=30m go test -timeout 0 ./internal/programs
//	WARPMAP_ONE=long WARPMAP_SEED=1234 go test -run 'TestPrograms/cpu/map' ./internal/programs
//
// # What holds of every step
//
//   - The error is nil, or what the operation promises: a FullError of puts, whose positions are exactly those that are
//     not in, ErrMaxBytes and OutOfMemoryError of Grow.
//   - Every key of the batch has afterwards what the batch and the model allow; no other key has changed, which Len, All
//     and Check tell.
//   - The table takes no more than MaxBytes. Nothing is left of it once it is closed.
package programs
