// Package table defines what all of warpmap's tables share: what each kind of table can do, the types it takes, its
// errors and its statistics. Each family of tables has a folder of its own: warpcore, and those beside it.
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
// The methods without On take Go slices, stage them through pinned memory in chunks, and return when all is done.
// Slices of memory that is pinned already (device.MakeHost) are copied at the bus's full rate. The methods with On take
// device slices and a stream (nil means the device's own). They copy nothing and queue the work. Their comments say
// which of them wait for the stream. The others return at once, with the work queued. (Package shard says when tables
// over several devices wait.) On the CPU device, all work is done when a call returns. Where a Go slice may be nil, a
// device slice may be the zero Slice. An empty batch does nothing, and is no error. Operations on one table see one
// another in the order of the calls, whatever streams they are on.
//
// Every bit pattern of K can be a key. Equality is of bits: 0.0 and -0.0 are two keys, and a NaN equals itself.
//
// All methods return ErrClosed after Close; see there what comes first. If slices do not match in length, or lie on
// another device, methods return an error before anything is launched. After a *FullError, all else of the batch is
// done. After any other error, a batch of Go slices may be done in part, because it goes in chunk by chunk: the chunks
// before the error are done, those behind it are not. What the slices for results hold is then undefined. A
// *device.CallError may say that the table is broken.
type Map[K, V any] interface {
	Table

	// Insert puts or replaces n pairs. If a batch holds a key several times, one of its values stays. The table grows
	// as it must; where MaxBytes or the device's memory forbids that, *FullError names exactly the positions that are
	// not in.
	Insert(keys []K, values []V) error
	// InsertOn inserts pairs of device slices. A table of warpcore or stadium waits for the stream only if it may have
	// to grow or to refuse: it does not wait if there is room for sure, even if all keys of the batch are new. (With
	// slots in host memory, a table of stadium waits as in FindOn.) A table of dycuckoo, gph or slab always waits,
	// because only the end of a batch tells whether all pairs found room.
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error

	// InsertNew puts the pairs whose keys are absent, and leaves the values of the others alone. added[i] tells whether
	// position i went in; added may be nil. If a batch holds a new key several times, exactly one position goes in.
	// InsertNew returns how many went in.
	//
	// The table grows as it must; where it may not, *FullError names the positions that are not in, as for Insert. The
	// count and added then tell of those that went in all the same: added[i] is false for each position that is named.
	// After any other error the count is 0, though some pairs may be in.
	InsertNew(keys []K, values []V, added []bool) (int, error)
	// InsertNewOn does what InsertNew does, with device slices, and returns no count. It waits for the stream where
	// InsertOn does.
	InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error

	// Find writes each key's value, or the zero value, and whether it was found; values or found may be nil.
	Find(keys []K, values []V, found []bool) error
	// FindOn does what Find does, with device slices. It queues its work. But a table of stadium with slots in host
	// memory waits for the stream if the batch has some thousand keys or more, also in ContainsOn and DeleteOn. A table
	// of gph with Index Shared waits if it needs more scratch memory than before.
	FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error

	// Contains tells of each key whether it is in.
	Contains(keys []K, found []bool) error
	// ContainsOn does what Contains does, with device slices. It queues its work: see FindOn.
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Delete removes keys. deleted[i] tells whether position i removed one; deleted may be nil. If a batch holds a key
	// several times, exactly one position removes it. Delete returns how many it removed, and 0 after an error, though
	// some keys may be removed.
	Delete(keys []K, deleted []bool) (int, error)
	// DeleteOn does what Delete does, with device slices, and returns no count. It queues its work. But a table of
	// dycuckoo waits for the stream if it may have to shrink, and a table of stadium where FindOn does.
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every pair, in no order. It waits for what is queued.
	All() ([]K, []V, error)

	// Chunks gives every pair to do, in no order, in chunks of at most a million pairs or 32 MiB, or on the CPU device
	// of at most 16,384 pairs or 4 MiB. While do has one chunk, the next is brought from the device. No more than these
	// two are copied at a time, there and here. The slices are do's until it returns. If do returns an error, Chunks
	// ends and returns it.
	//
	// do, and other goroutines meanwhile, may call methods that read the table. A call that may change the table, even
	// one of Grow, ends Chunks with ErrChanged: what do has had until then was in the table when Chunks began. Errors:
	// also context.Cause(ctx), and *device.OutOfMemoryError. See Pairs.
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}

// Options are what every family understands. The zero value is good.
type Options struct {
	// Capacity is the number of pairs to make room for at once, as far as MaxBytes allows. The table grows from there.
	Capacity int
	// LoadFactor is the share of the slots that may be filled before the table grows, 0.001 to 1. Zero means the
	// family's default.
	LoadFactor float64
	// MaxBytes bounds the memory of the table itself, which Stats.Bytes tells, whatever is done to the table; Check
	// asserts that. To grow, to shrink, or to rid itself of what deletions left, a table is laid anew. Meanwhile the
	// old one and the new one stand side by side, each within the bound, and families that sort the pairs in between
	// (dycuckoo, gph) hold all pairs once more. What batches need in passing (Stats.ScratchBytes, StagingBytes) comes
	// on top. Zero means the device's own bound. At the bound a table fills the slots it has, as far as its family can,
	// and then refuses with FullError: see "At MaxBytes" in the family's package comment.
	MaxBytes int64
	// Hash is one of kernel.HashMurmur (the default), HashMueller, or the degenerate ones meant for tests.
	Hash int
	// Seed chooses the hash function. Zero means a random one, so that nobody can choose keys that collide.
	Seed uint64
	// Work says what the table is for, so that package warpmap can choose a family by it. The families ignore it.
	Work Work
	// Why says why the table is of its family; Stats tells it. Leave it empty to let package warpmap choose.
	Why string
}

// Work says what a table is for. The zero value says nothing.
type Work struct {
	// Inserts, Finds and Deletes are how many keys are inserted, looked up and deleted, in any unit: an Inserts of 1
	// and a Finds of 100 mean a hundred look-ups for each insert.
	Inserts, Finds, Deletes float64
	// Misses is the share of look-ups whose keys are not in, 0 to 1.
	Misses float64
	// Once says that all inserts are one batch, which comes first.
	Once bool
	// Values is how many values a key of a multimap has, on average. Zero means that nobody knows.
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

// Complete returns an error if an option is out of range, and sets what is not set: the load factor to the family's
// default, and the seed at random.
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
	Why        string  `json:"why,omitempty"`        // why the table is of its family: see Options
	Len        int     `json:"len"`                  // pairs
	Capacity   int     `json:"capacity"`             // slots; a few more, for single keys, do not count
	Tombstones int     `json:"tombstones"`           // slots of deleted pairs that are not yet used again
	LoadFactor float64 `json:"load_factor"`          // Len / Capacity
	Bytes      int64   `json:"bytes"`                // memory of the table itself: what MaxBytes bounds
	HostBytes  int64   `json:"host_bytes,omitempty"` // of these, what is pinned host memory; all else is the device's
	// StagingBytes is the pinned host memory and the device memory, together, through which batches of Go slices pass.
	// ScratchBytes is the device memory that batches need in passing. Both are kept for the next batch. If tables of
	// one device share a stage, each counts all of it.
	StagingBytes int64 `json:"staging_bytes"`
	ScratchBytes int64 `json:"scratch_bytes"`
	// Probes[i] counts the pairs that a look-up finds with its (i+1)th read of a window, bucket or slab; the last
	// element counts all that need more.
	Probes     [16]int `json:"probes"`
	MeanProbes float64 `json:"mean_probes"` // of a look-up that hits
	MaxProbes  int     `json:"max_probes"`  // bound on any look-up
}
