// Package table holds the words that all of warpmap's tables share: what each kind of table can do, the types it takes, its
// errors and its statistics. The tables themselves are one folder each: warpcore, and those beside it.
package table

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/warpmap/warpmap/device"
)

// Map is what every table of pairs can do, whatever its family. All operations take whole batches.
//
// The methods without On take Go slices, stage them through pinned memory in chunks, and return when all is done; slices of
// memory that is pinned already (device.MakeHost) are copied at the bus's full rate. The
// methods with On take device slices and a stream (nil: the device's own), copy nothing, and queue: they return at
// once, but for what their comment says. Operations on one table see one another in the order of the calls, whatever
// streams they are on.
//
// Every bit pattern of K can be a key. Equality is of bits: 0.0 and -0.0 are two keys, and a NaN equals itself.
//
// All return ErrClosed after Close, and an error before anything is launched for slices that do not match in length or
// lie on another device.
type Map[K, V any] interface {
	Table

	// Insert puts or replaces n pairs. Of equal keys in one batch, one value stays. The table grows as it must; where
	// MaxBytes or the device's memory forbids that, *FullError names exactly the positions that are not in.
	Insert(keys []K, values []V) error
	// InsertOn is Insert on the device. It waits for the stream only when the table may have to grow or to refuse.
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error

	// InsertNew puts the pairs whose keys are absent and leaves the others' values alone. added[i] tells whether
	// position i went in (of equal new keys in one batch, exactly one does); added may be nil. The count is theirs.
	InsertNew(keys []K, values []V, added []bool) (int, error)
	InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error

	// Find writes each key's value, or the zero value, and whether it was found; values or found may be nil.
	Find(keys []K, values []V, found []bool) error
	FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error

	// Contains is Find without values.
	Contains(keys []K, found []bool) error
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Delete removes keys. deleted[i] tells whether position i removed one (of equal keys in one batch, exactly one
	// does); deleted may be nil. The count is theirs.
	Delete(keys []K, deleted []bool) (int, error)
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every pair, in no order.
	All() ([]K, []V, error)

	// Chunks gives every pair to do, in no order, by chunks of a million pairs or 32 MiB at most, or of 16,384 or 4 MiB
	// on the CPU device: while do has one, the next is brought from the device, and no more is copied than these two,
	// there and here. The slices are do's until it returns. An error of do's ends it, and is returned.
	//
	// do, and others meanwhile, may call what reads the table. A call that may change it, be it by no more than Grow does, ends Chunks with
	// ErrChanged: what do has had until then was in the table when Chunks began. Errors: the context's too, and *device.OutOfMemoryError. See Pairs.
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}

// Options are what every family understands. The zero value is good.
type Options struct {
	// Capacity is the number of pairs to make room for at once, as far as MaxBytes allows. The table grows from there.
	Capacity int
	// LoadFactor is the share of the slots that may be filled before the table grows, 0.001 to 1. Zero means the family's
	// default.
	LoadFactor float64
	// MaxBytes bounds the memory of the table itself, which Stats.Bytes tells, whatever is done to it: Check asserts that. While it is laid
	// anew, to grow, to shrink or to rid it of what deletions left, the old one and the new, each within the bound, stand side by side, with
	// all pairs once more in families that sort them in between (dycuckoo, gph). What batches need in passing (Stats.ScratchBytes, StagingBytes)
	// comes on top. Zero means the device's own bound. At the bound a table fills the slots it has, as far as its family can (its doc.go says
	// how far), then refuses with FullError.
	MaxBytes int64
	// Hash is one of kernel.HashMurmur (the default), HashMueller, or the degenerate ones meant for tests.
	Hash int
	// Seed chooses the hash function. Zero means a random one, so that nobody can choose keys that collide.
	Seed uint64
	// Work is what the table is for, where package warpmap is to choose a family by it. The families do not ask.
	Work Work
	// Why is told by Stats: why the table is of its family. Who lets package warpmap choose leaves it empty.
	Why string
}

// Work is what a table is for. The zero value says nothing.
type Work struct {
	// Inserts, Finds and Deletes are how many keys are inserted, looked up and deleted, in any unit: 1 and 100 are a hundred look-ups for each insert.
	Inserts, Finds, Deletes float64
	// Misses is the share of look-ups whose keys are not in, 0 to 1.
	Misses float64
	// Once says that all inserts are one batch, which comes first.
	Once bool
	// Values is how many values a key has, on average: of multimaps. Zero means that nobody knows.
	Values float64
}

// check tells what no work is.
func (w Work) check() error {
	for _, x := range []float64{w.Inserts, w.Finds, w.Deletes, w.Misses, w.Values} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("table: work %+v (want numbers from 0 on)", w)
		}
	}
	if w.Misses > 1 {
		return fmt.Errorf("table: a share of misses of %v (want 0 to 1)", w.Misses)
	}
	return nil
}

// leastLoadFactor is the least that is a load factor, and not a mistake.
const leastLoadFactor = 0.001

// Complete tells what is wrong with the options, and sets what is not set: the load factor to the family's default, the seed at
// random.
func (o *Options) Complete(load float64) error {
	switch {
	case o.Capacity < 0 || o.Capacity > 1<<46:
		return fmt.Errorf("table: a capacity of %d pairs (want 0 to 2⁴⁶)", o.Capacity)
	case o.LoadFactor != 0 && !(o.LoadFactor >= leastLoadFactor && o.LoadFactor <= 1):
		return fmt.Errorf("table: a load factor of %v (want %v to 1; 0 for the default)", o.LoadFactor, leastLoadFactor)
	case o.MaxBytes < 0:
		return fmt.Errorf("table: MaxBytes %d is negative", o.MaxBytes)
	case o.Hash < 0 || o.Hash > 3:
		return fmt.Errorf("table: hash function %d (see package kernel)", o.Hash)
	}
	if err := o.Work.check(); err != nil {
		return err
	}
	if o.LoadFactor == 0 {
		o.LoadFactor = load
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return nil
}

// Stats is what a table measures of itself.
type Stats struct {
	Family     Family  `json:"family,omitempty"`
	Why        string  `json:"why,omitempty"`        // the table is of its family: see Options
	Len        int     `json:"len"`                  // pairs
	Capacity   int     `json:"capacity"`             // slots; a few more, for single keys, do not count
	Tombstones int     `json:"tombstones"`           // slots of deleted pairs that are not yet used again
	LoadFactor float64 `json:"load_factor"`          // Len / Capacity
	Bytes      int64   `json:"bytes"`                // memory of the table itself: what MaxBytes bounds
	HostBytes  int64   `json:"host_bytes,omitempty"` // of these, those in pinned host memory; all others are the device's
	// StagingBytes are the pinned host memory and the device memory, together, through which batches of Go slices pass, and
	// ScratchBytes the device memory that batches need in passing. Both are kept for the next batch. Tables of one device
	// that share a stage each count all of it.
	StagingBytes int64 `json:"staging_bytes"`
	ScratchBytes int64 `json:"scratch_bytes"`
	// Probes[i] counts the pairs that a look-up finds with its (i+1)th read of a window, bucket or slab; the last
	// element counts all that need more.
	Probes     [16]int `json:"probes"`
	MeanProbes float64 `json:"mean_probes"` // of a look-up that hits
	MaxProbes  int     `json:"max_probes"`  // bound on any look-up
}
