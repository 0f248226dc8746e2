package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Kind is what a table holds, and so what it can do. A family of tables has one kind or several.
type Kind int

// The kinds of tables. Each is an interface of this package, and has a suite in tabletest.
const (
	KindMap         Kind = iota // Map: one value a key
	KindSet                     // Set: keys alone
	KindMultiMap                // MultiMap, in which each value has a slot of its own
	KindBucketList              // MultiMap, in which each key stands once, with a list of its values
	KindMultiBucket             // MultiMap, in which a slot holds several values of a key
	KindCounter                 // Counter: how often a key came
	KindFilter                  // Filter: keys. It may say wrongly that one is in, but never wrongly that one is not
	_                           // warpmap.KindCache: cache.Cache, which has a fixed size, and no interface here
)

var kindNames = [...]string{"map", "set", "multimap", "bucketlist", "multibucket", "counter", "filter", "cache"}

// MultiMapKinds lists the kinds that are a MultiMap, each with a structure of its own.
func MultiMapKinds() []Kind { return []Kind{KindMultiMap, KindBucketList, KindMultiBucket} }

func (k Kind) String() string {
	if k >= 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Table is what every kind but Filter shares. What Map says of batches, streams, the order of calls, keys and errors
// holds for all kinds. All methods are safe for use by several goroutines.
type Table interface {
	// Family is the family's name, by which package warpmap makes its tables.
	Family() Family
	// Len counts what the table holds: pairs, or keys. It waits for what is queued.
	Len() (int, error)
	// Clear empties the table and keeps the capacity. It queues the work.
	Clear() error
	// Stats measures the table. Cost: all of it is read.
	Stats() (Stats, error)
	// Check downloads the table and checks its invariants: for tests, and when you suspect a defect. It is slow.
	Check() error
	// Grow makes room for at least n pairs or keys in all, and rids the table of what deletions left behind. Errors: n
	// below 0 or over 2⁴⁶; ErrMaxBytes and *device.OutOfMemoryError, after which the table is unchanged.
	Grow(n int) error
	// Close frees the table's memory. It is idempotent.
	Close() error
}

// Set is a table of keys alone.
type Set[K any] interface {
	Table

	// Insert puts the keys that are absent. added[i] tells whether position i went in; added may be nil. If a batch
	// holds a new key several times, exactly one position goes in. Insert returns how many went in.
	//
	// The set grows as it must; where MaxBytes or the device's memory forbids that, *FullError names exactly the
	// positions that are not in. The count and added say then, and after other errors, what they say of a Map's
	// InsertNew.
	Insert(keys []K, added []bool) (int, error)
	// InsertOn does what Insert does, with device slices, and returns no count. It waits for the stream where that of a
	// Map does.
	InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error

	// Contains tells of each key whether it is in.
	Contains(keys []K, found []bool) error
	// ContainsOn does what Contains does, with device slices. It queues its work.
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Delete removes keys. deleted[i] tells whether position i removed one; deleted may be nil. If a batch holds a key
	// several times, exactly one position removes it. Delete returns how many it removed, and 0 after an error, though
	// some keys may be removed.
	Delete(keys []K, deleted []bool) (int, error)
	// DeleteOn does what Delete does, with device slices, and returns no count. It queues its work.
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every key, in no order. It waits for what is queued.
	All() ([]K, error)

	// Chunks gives every key to do, in chunks: see Map and Keys.
	Chunks(ctx context.Context, do func(keys []K) error) error
}

// MultiMap is a table of pairs in which a key may have many values, equal ones too. Len, Grow and Stats count pairs.
// How many values a key may have depends on the kind:
//
//   - KindMultiMap and KindMultiBucket take as many as memory holds. If a key has 2³²-1 values or more, Count tells
//     2³²-1, and FindAll and its like return an error. Chunks, All and Delete still serve such a key.
//   - KindBucketList takes up to 4,026,531,840 (15·2²⁸), all of which Count and FindAll tell. Insert refuses what is
//     more, with *FullError.
type MultiMap[K, V any] interface {
	Table

	// Insert adds n pairs, equal ones too. The table grows as it must; where MaxBytes or the device's memory forbids
	// that, *FullError names exactly the positions whose pair is not in. Each position is a pair of its own, so some
	// pairs of a key may be in, and others not.
	Insert(keys []K, values []V) error
	// InsertOn does what Insert does, with device slices. It waits for the stream, to know that every pair found room.
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error

	// Contains tells of each key whether it has a value.
	Contains(keys []K, found []bool) error
	// ContainsOn does what Contains does, with device slices. It queues its work.
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Count writes how many values each key has, or 2³²-1 for a key that has as many or more.
	Count(keys []K, counts []uint32) error
	// CountOn does what Count does, with device slices. It queues its work. Only a MultiMap or MultiBucket of warpcore
	// with a thousand windows or more may wait for the stream, to see whether a key has very many values. The same
	// holds for DeleteOn.
	CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error

	// FindAll gives all values of each key: those of keys[i] are values[offsets[i]:offsets[i+1]], and offsets has one
	// element more than keys. A key that is twice in the batch gets its values twice. The family determines the order
	// of a key's values.
	FindAll(keys []K) (offsets []uint64, values []V, err error)
	// FindAllOn finds all values of each key on the device. It makes the device slices, and the caller frees them. It
	// waits for the stream. Errors: also *device.OutOfMemoryError.
	FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error)

	// Delete removes all values of each key. deleted[i] tells whether position i removed any; deleted may be nil. If a
	// batch holds a key several times, and it has values, at least one position removes some. Delete returns how many
	// pairs it removed, after an error those that it had removed by then.
	Delete(keys []K, deleted []bool) (int, error)
	// DeleteOn does what Delete does, with device slices, and returns no count. It queues its work: see CountOn.
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error

	// All exports every pair, in no order. It waits for what is queued.
	All() ([]K, []V, error)

	// Chunks gives every pair to do, in chunks: see Map. Pairs of one key may be in several chunks. Where a family
	// keeps all values of a key in one place (slab those of a bucket; BucketList), one chunk has them all, however many
	// these are.
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}

// OuterFinder is a MultiMap that gives a value for keys that have none, as outer joins want.
type OuterFinder[K, V any] interface {
	MultiMap[K, V]

	// FindAllOuter finds all values of each key, as FindAll does, but gives a key without values one value, the
	// argument none. found[i] tells whether key i has values of its own; found may be nil.
	FindAllOuter(keys []K, none V, found []bool) (offsets []uint64, values []V, err error)
	// FindAllOuterOn does what FindAllOuter does, with device slices. It waits for the stream, as FindAllOn does.
	FindAllOuterOn(st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool]) (offsets device.Slice[uint64], values device.Slice[V], err error)
}

// MultiMapOptions are what every MultiMap understands.
type MultiMapOptions struct {
	Options
	// Keys is how many distinct keys the pairs of Capacity have. Only tables of KindBucketList and KindMultiBucket use
	// it, to make room for Capacity pairs. Zero means that each pair has its own key.
	Keys int
}

// Counter is a table that counts how often keys came. Len, Grow and Stats count distinct keys.
//
// A count that would be too large for C stays at the largest that C has. Add and AddCounts then return ErrOverflow,
// unless CounterOptions.Saturate is set; everything else in the batch is counted. If some positions of the same batch
// found no room, the error is both: errors.Is finds ErrOverflow in it, and errors.As the *FullError, whose positions
// are those that found no room. ErrOverflow names no positions.
type Counter[K any, C uint32 | uint64] interface {
	Table

	// Add counts each key of the batch once more, equal ones too. The table grows as it must; where it may not,
	// *FullError names exactly the positions that were not counted, which are all positions whose key is not in.
	Add(keys []K) error
	// AddOn does what Add does, with device slices. It waits for the stream, to know of counts that are too large.
	AddOn(st *device.Stream, keys device.Slice[K]) error

	// AddCounts adds counts[i] to the count of keys[i]: see Add. A count of 0 puts its key in.
	AddCounts(keys []K, counts []C) error
	// AddCountsOn does what AddCounts does, with device slices. It waits for the stream, as AddOn does.
	AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error

	// Find writes how often each key came, and whether it is in. An absent key has count 0. counts or found may be nil.
	Find(keys []K, counts []C, found []bool) error
	// FindOn does what Find does, with device slices. It queues its work.
	FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error

	// Top gives the n keys that came most often, or all keys if there are fewer, the most frequent first. Which keys of
	// equal counts come, and in which order, is not specified. An n of 0 gives none, and an n below 0 is an error.
	Top(n int) ([]K, []C, error)

	// All exports every key and its count, in no order.
	All() ([]K, []C, error)

	// Chunks gives every key and its count to do, in chunks: see Map.
	Chunks(ctx context.Context, do func(keys []K, counts []C) error) error
}

// CounterOptions are what every Counter understands.
type CounterOptions struct {
	Options
	// Saturate makes it no error that a count is as large as its type allows.
	Saturate bool
}

// ErrOverflow says that a count would be larger than its type allows. The count stays at the largest there is.
var ErrOverflow = errors.New("a count is larger than its type can hold, and stays at the largest (count in uint64, or set Saturate)")

// Filter is a table that tells whether a key is in, and may err. It never says that a key is not in when it is, but at
// times it says that a key is in when it is not. It takes a few bits a key, all of them from the beginning, and does not
// grow. With more keys than it was made for, one of warpcore errs more often, and one of cuckoo refuses. One of cuckoo
// also deletes keys and counts them: see cuckoo.Filter.
type Filter[K any] interface {
	// Family is the family's name: see Table.
	Family() Family

	// Insert puts keys in. If one of cuckoo has no room for some, *FullError names exactly the positions that are not in.
	Insert(keys []K) error
	// InsertOn does what Insert does, with device slices. It queues its work; one of cuckoo waits for the
	// stream.
	InsertOn(st *device.Stream, keys device.Slice[K]) error

	// Contains tells of each key whether it may be in.
	Contains(keys []K, found []bool) error
	// ContainsOn does what Contains does, with device slices. It queues its work.
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error

	// Form says which bits a key sets. Filters of one Form can take each other's words.
	Form() FilterForm
	// Words gives all words of the filter to do, in order, in chunks: see Map's Chunks.
	Words(ctx context.Context, do func(words []uint64) error) error
	// SetWords replaces words of this filter, from word number first on, by words of a filter of the same Form. Errors:
	// words that this filter does not have.
	SetWords(first int64, words []uint64) error

	// Clear takes all keys out. It queues the work.
	Clear() error
	// Stats measures the filter. Cost: all of it is read.
	Stats() (FilterStats, error)
	// Check downloads the filter and checks its invariants. It is slow.
	Check() error
	// Close frees the filter's memory. It is idempotent.
	Close() error
}

// FilterOptions are what every Filter understands. The zero value is an error: set Capacity or Bytes.
type FilterOptions struct {
	// Capacity is the number of distinct keys to come.
	Capacity int
	// FalsePositives is the share of absent keys that the filter may say are in, once it holds Capacity keys: over 0
	// and below 1. Zero means 0.01.
	FalsePositives float64
	// Bytes, if not 0, is the filter's memory, whatever rate comes of it; FalsePositives must then be 0.
	Bytes int64
	// Hash and Seed are as in Options.
	Hash int
	Seed uint64
}

// Complete returns an error if an option is out of range, and chooses the seed if none is set.
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

// FilterForm says what a filter's words mean.
type FilterForm struct {
	Words int64  `json:"words"` // how many words it has
	Make  string `json:"make"`  // the family's own words for all else: its seed is among them
}

// FilterStats is what a filter measures of itself.
type FilterStats struct {
	Bits    int64   `json:"bits"`     // how many bits it has, or those of the tags that it has room for
	BitsSet int64   `json:"bits_set"` // how many of them its keys have set, or those of the tags that are in
	Bytes   int64   `json:"bytes"`    // device memory of the filter itself
	Rate    float64 `json:"rate"`     // share of absent keys that it says are in, estimated from the bits that are set
	// Keys is how many keys are in: of one of cuckoo exactly, each as often as it was put in, and of one of warpcore an
	// estimate of how many different ones, from the bits that are set. KeysError is its standard error, in keys.
	Keys      float64 `json:"keys"`
	KeysError float64 `json:"keys_error"`

	StagingBytes int64 `json:"staging_bytes"` // see Stats
	ScratchBytes int64 `json:"scratch_bytes"`
}
