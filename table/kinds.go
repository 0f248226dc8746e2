package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Kind is what a table holds, and so what it can do. A family of tables has one kind or several.
type Kind int

// The kinds of tables, each an interface of this package, with a suite in tabletest.
const (
	KindMap         Kind = iota // Map: one value a key
	KindSet                     // Set: keys alone
	KindMultiMap                // MultiMap: any number of values a key
	KindBucketList              // MultiMap, in which each key stands once, with a list of its values
	KindMultiBucket             // MultiMap, in which a slot holds several values of a key
	KindCounter                 // Counter: how often a key came
	KindFilter                  // Filter: keys, of which it may say wrongly that they are in, never that they are not
)

var kindNames = [...]string{"map", "set", "multimap", "bucketlist", "multibucket", "counter", "filter"}

// MultiMapKinds are the kinds that are a MultiMap, each with a structure of its own.
func MultiMapKinds() []Kind { return []Kind{KindMultiMap, KindBucketList, KindMultiBucket} }

func (k Kind) String() string {
	if k >= 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Table is what every kind but Filter shares. What Map says of batches, streams, the order of calls, keys and errors holds for
// all kinds. All methods are safe for use by several goroutines.
type Table interface {
	// Family is the family's name, by which package warpmap makes its tables.
	Family() Family
	// Len counts what the table holds: pairs, or keys. It waits for what is queued.
	Len() (int, error)
	// Clear empties the table and keeps the capacity. It queues.
	Clear() error
	// Stats measures the table. Cost: all of it is read.
	Stats() (Stats, error)
	// Check downloads the table and walks its invariants: for tests and for the suspicious. Slow.
	Check() error
	// Grow makes room for at least n pairs or keys in all, and rids the table of what deletions left behind. Errors:
	// n below 0 or over 2⁴⁶; ErrMaxBytes and *device.OutOfMemoryError, and the table is then unchanged.
	Grow(n int) error
	// Close frees the table's memory; idempotent.
	Close() error
}

// Set is every table of keys alone.
type Set[K any] interface {
	Table

	// Insert puts the keys that are absent. added[i] tells whether position i went in (of equal new keys in one batch,
	// exactly one does); added may be nil. The count is theirs. The set grows as it must; *FullError as Map's.
	Insert(keys []K, added []bool) (int, error)
	InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error

	// Contains tells of each key whether it is in.
	Contains(keys []K, found []bool) error
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Delete removes keys. deleted[i] tells whether position i removed one (of equal keys in one batch, exactly one
	// does); deleted may be nil. The count is theirs.
	Delete(keys []K, deleted []bool) (int, error)
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every key, in no order.
	All() ([]K, error)

	// Chunks gives every key to do, in chunks: see Map and Keys.
	Chunks(ctx context.Context, do func(keys []K) error) error
}

// MultiMap is every table of pairs in which a key may have any number of values below 2³²-1, equal ones too. Len, Grow
// and Stats count pairs. Of a key with more, where memory holds them, FindAll and its like are an error.
type MultiMap[K, V any] interface {
	Table

	// Insert adds n pairs, equal ones too. The table grows as it must; where MaxBytes or the device's memory forbids that,
	// *FullError names exactly the positions whose pair is not in. Each position is a pair of its own: of those with one key
	// some may be in and others not.
	Insert(keys []K, values []V) error
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error

	// Contains tells of each key whether it has a value.
	Contains(keys []K, found []bool) error
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Count writes how many values each key has: 2³²-1 of one that has more.
	Count(keys []K, counts []uint32) error
	CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error

	// FindAll gives all values of each key: those of keys[i] are values[offsets[i]:offsets[i+1]], and offsets has one element
	// more than keys. A key that is twice in the batch gets its values twice. The order of a key's values is the family's.
	FindAll(keys []K) (offsets []uint64, values []V, err error)
	// FindAllOn is FindAll in device slices of its own making, which the caller frees. It waits for the stream. Errors:
	// *device.OutOfMemoryError too.
	FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error)

	// Delete removes all values of each key. deleted[i] tells whether position i removed any (of equal keys in one batch, at
	// least one does, if there were any); deleted may be nil. The count is of pairs.
	Delete(keys []K, deleted []bool) (int, error)
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every pair, in no order.
	All() ([]K, []V, error)

	// Chunks gives every pair to do, in chunks: see Map. Pairs of one key may be in several. Where a family keeps all
	// values of a key in one place (slab: of a bucket; BucketList), a chunk has them all, however many these are.
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}

// OuterFinder is a MultiMap that gives a value for keys that have none, as outer joins want.
type OuterFinder[K, V any] interface {
	MultiMap[K, V]

	// FindAllOuter is FindAll, in which a key without values gets one, none. found[i] tells whether key i has values of its own; found may be nil.
	FindAllOuter(keys []K, none V, found []bool) (offsets []uint64, values []V, err error)
	FindAllOuterOn(st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool]) (offsets device.Slice[uint64], values device.Slice[V], err error)
}

// MultiMapOptions are what every MultiMap understands.
type MultiMapOptions struct {
	Options
	// Keys is how many distinct keys Capacity's pairs have, for tables in which each key stands once; the others do not ask. Zero means that
	// each pair has its own.
	Keys int
}

// Counter is every table that counts how often keys came. Len, Grow and Stats count distinct keys.
//
// A count that would be too large for C stays at the largest that C has. Then Add and AddCounts return ErrOverflow, unless
// CounterOptions.Saturate; all else of the batch is counted.
type Counter[K any, C uint32 | uint64] interface {
	Table

	// Add counts each key of the batch once more, equal ones too. The table grows as it must; where it may not, *FullError
	// names exactly the positions that were not counted, all those whose key is not in. The methods with On wait for the
	// stream, to know of overflows.
	Add(keys []K) error
	AddOn(st *device.Stream, keys device.Slice[K]) error

	// AddCounts is Add of keys that came counts[i] times each. A count of 0 puts its key in.
	AddCounts(keys []K, counts []C) error
	AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error

	// Find writes how often each key came, and whether it is in: where it is not, the count is 0. counts or found may be nil.
	Find(keys []K, counts []C, found []bool) error
	FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error

	// Top gives the n keys that came most often, or all where there are fewer, the most frequent first. Of keys with equal
	// counts it is not told which come, nor in which order.
	Top(n int) ([]K, []C, error)

	// All exports every key and its count, in no order.
	All() ([]K, []C, error)

	// Chunks gives every key and its count to do, in chunks: see Map.
	Chunks(ctx context.Context, do func(keys []K, counts []C) error) error
}

// CounterOptions are what every Counter understands.
type CounterOptions struct {
	Options
	// Saturate makes a count that is as large as its type allows no error.
	Saturate bool
}

// ErrOverflow says that a count would be larger than its type allows. It is the largest there is.
var ErrOverflow = errors.New("a count is larger than its type can hold, and stays at the largest (count in uint64, or set Saturate)")

// Filter is every table that tells whether a key is in, and may err: of a key that is in it never says that it is not, of one
// that is not in, it says at times that it is. It takes a few bits a key, all of them from the beginning: it neither grows nor
// refuses, and with more keys than it was made for it errs more often.
type Filter[K any] interface {
	// Family is as Table's.
	Family() Family

	// Insert puts keys in.
	Insert(keys []K) error
	InsertOn(st *device.Stream, keys device.Slice[K]) error

	// Contains tells of each key whether it may be in.
	Contains(keys []K, found []bool) error
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Form says which bits a key sets. Filters of one Form can take each other's words.
	Form() FilterForm
	// Words gives all words of the filter to do, in order, in chunks: see Map's Chunks.
	Words(ctx context.Context, do func(words []uint64) error) error
	// SetWords puts words of a filter of the same Form in the place of this one's, from word number first on. Errors: words that it does not have.
	SetWords(first int64, words []uint64) error

	// Clear takes all keys out. It queues.
	Clear() error
	// Stats measures the filter. Cost: all of it is read.
	Stats() (FilterStats, error)
	// Check downloads the filter and walks its invariants. Slow.
	Check() error
	// Close frees the filter's memory; idempotent.
	Close() error
}

// FilterOptions are what every Filter understands. The zero value is a filter for no keys: give Capacity, or Bytes.
type FilterOptions struct {
	// Capacity is the number of distinct keys to come.
	Capacity int
	// FalsePositives is the share wanted of the absent keys that are told to be in, once Capacity keys are: over 0 and
	// below 1. Zero means 0.01.
	FalsePositives float64
	// Bytes, where not 0, are the filter's memory, whatever rate comes of it; FalsePositives must be 0 then.
	Bytes int64
	// Hash and Seed are those of Options.
	Hash int
	Seed uint64
}

// Complete tells what is wrong with the options, and chooses the seed where none is set.
func (o *FilterOptions) Complete() error {
	switch p := o.FalsePositives; {
	case o.Bytes < 0 || o.Bytes > 1<<46:
		return fmt.Errorf("table: a filter of %d bytes (want 0 to 2⁴⁶)", o.Bytes)
	case p != 0 && !(p > 0 && p < 1):
		return fmt.Errorf("table: a rate of false positives of %v (want over 0, below 1; 0 for the default)", p)
	case p != 0 && o.Bytes != 0:
		return errors.New("table: a filter with a rate of false positives and a size: one follows from the other, so set one of them")
	case o.Capacity == 0 && o.Bytes == 0:
		return errors.New("table: a filter for no keys: set Capacity, or Bytes")
	}
	base := Options{Capacity: o.Capacity, Hash: o.Hash, Seed: o.Seed}
	err := base.Complete(1)
	o.Seed = base.Seed
	return err
}

// FilterForm is what makes a filter's words mean something.
type FilterForm struct {
	Words int64  `json:"words"` // that it has
	Make  string `json:"make"`  // the family's own words for all else: its seed is among them
}

// FilterStats is what a filter measures of itself.
type FilterStats struct {
	Bits    int64   `json:"bits"`     // that it has
	BitsSet int64   `json:"bits_set"` // by the keys that are in
	Bytes   int64   `json:"bytes"`    // device memory of the filter itself
	Rate    float64 `json:"rate"`     // the share of absent keys that are told to be in, estimated from the bits that are set

	StagingBytes int64 `json:"staging_bytes"` // see Stats
	ScratchBytes int64 `json:"scratch_bytes"`
}
