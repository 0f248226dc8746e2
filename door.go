package warpmap

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// Device is a GPU, or the CPU that runs the same kernels: see package device for its memory, streams and events.
type Device = device.Device

// Open opens a device: "auto" is the first GPU that works, else the CPU; "cuda:1" and "cpu" name one. Device.String
// tells which it is and why. Errors: what is missing, with what to install. See device.Open and its options.
func Open(name string, opts ...device.Option) (*Device, error) { return device.Open(name, opts...) }

// The kinds of tables. Their methods, shapes, costs and errors are those of package table.
type (
	// Table is what every kind but Filter has: Len, Clear, Stats, Check, Grow, Close.
	Table = table.Table
	// Map has one value a key.
	Map[K, V any] = table.Map[K, V]
	// Set has keys alone.
	Set[K any] = table.Set[K]
	// MultiMap has any number of values a key.
	MultiMap[K, V any] = table.MultiMap[K, V]
	// Counter counts how often keys came.
	Counter[K any, C uint32 | uint64] = table.Counter[K, C]
	// Filter may say wrongly that a key is in, but never wrongly that it is not.
	Filter[K any] = table.Filter[K]
	// CuckooFilter is a Filter from which keys can be taken out again.
	CuckooFilter[K any] = cuckoo.Filter[K]
	// Cache has a fixed size, and one value a key: the pairs that are worth most stay.
	Cache[K, V any] = cache.Cache[K, V]
)

// The options that tables are made with, and what tables tell of themselves.
type (
	// Options are the options of every table. The zero value is good.
	Options = table.Options
	// Work says what a table is for. Auto chooses a family by it.
	Work = table.Work
	// MultiMapOptions are the options of a MultiMap.
	MultiMapOptions = table.MultiMapOptions
	// CounterOptions are the options of a Counter.
	CounterOptions = table.CounterOptions
	// FilterOptions are the options of a Filter.
	FilterOptions = table.FilterOptions
	// StringsOptions are the options of a Strings.
	StringsOptions = text.Options
	// Stats is what a table measures of itself.
	Stats = table.Stats
	// CacheOptions are the options of a Cache. Package cache has the policies.
	CacheOptions = cache.Options
	// Family is the name of a family of tables.
	Family = table.Family
	// Kind is what a table holds.
	Kind = table.Kind
)

// The kinds of tables, for Families and CompileAhead.
const (
	KindMap         = table.KindMap
	KindSet         = table.KindSet
	KindMultiMap    = table.KindMultiMap
	KindBucketList  = table.KindBucketList
	KindMultiBucket = table.KindMultiBucket
	KindCounter     = table.KindCounter
	KindFilter      = table.KindFilter
	KindCache       = table.KindFilter + 1 // Cache
)

// FullError names exactly the positions of a batch that are not in the table. errors.As finds it. See table.FullError
// for batches with equal keys, and for mixed batches.
type FullError = table.FullError

// The errors that a table's errors wrap: test for them with errors.Is. A device, a stream or an event that is closed is
// device.ErrClosed, which is another error than ErrClosed, and freed memory is device.ErrFreed. See table.ErrClosed for
// which of them comes first.
var (
	ErrClosed   = table.ErrClosed   // the table is closed
	ErrMaxBytes = table.ErrMaxBytes // Options.MaxBytes keeps the table from growing
	ErrChanged  = table.ErrChanged  // the table was changed while its pairs were given out
	ErrOverflow = table.ErrOverflow // a count is larger than its type holds
)

// The interfaces of what only some families can do, beside Map and Set. As gives a table as one of them.
type (
	// Updater combines the value that a key has with the one that comes: Add, Min, Max, And, Or, or a piece of CUDA C++.
	// It also finds keys or inserts them. Families: dycuckoo, slab, stadium, warpcore.
	Updater[K, V any] = table.Updater[K, V]
	// Chooser does only those positions of a batch for which a bool is true. Families: dycuckoo, slab, stadium,
	// warpcore.
	Chooser[K, V any] = table.Chooser[K, V]
	// KeyChooser is the Chooser of sets. Families: slab, warpcore.
	KeyChooser[K any] = table.KeyChooser[K]
	// Mixed runs inserts, look-ups and deletions of one batch beside one another. Families: dycuckoo, slab, stadium.
	Mixed[K, V any] = table.Mixed[K, V]
	// OuterFinder gives a key without values one value that says so, as outer joins want. Families: slab, warpcore.
	OuterFinder[K, V any] = table.OuterFinder[K, V]
)

// Combine says how an Updater combines two values: one of the constants, or an expression of CUDA C++ of old and value.
type Combine = table.Combine

// The most common ways to combine values. And and Or are for integers.
const (
	Add = table.Add
	Min = table.Min
	Max = table.Max
	And = table.And
	Or  = table.Or
)

// Op is an operation of a Mixed batch. Status says what became of it.
type (
	Op     = table.Op
	Status = table.Status
)

// The operations of a Mixed batch.
const (
	OpFind      = table.OpFind
	OpInsert    = table.OpInsert
	OpInsertNew = table.OpInsertNew
	OpDelete    = table.OpDelete
)

// The outcomes of a Mixed batch's operations.
const (
	Absent  = table.Absent
	Present = table.Present
	Added   = table.Added
	NoRoom  = table.NoRoom
)

// able are the families of which a table can be turned into one of the interfaces, by the interface's name.
var able = map[string][]Family{
	"Updater":     {DyCuckoo, Slab, Stadium, WarpCore},
	"Chooser":     {DyCuckoo, Slab, Stadium, WarpCore},
	"KeyChooser":  {Slab, WarpCore},
	"Mixed":       {DyCuckoo, Slab, Stadium},
	"OuterFinder": {Slab, WarpCore},
}

// As gives a table as an interface that only some families have:
//
//	u, err := warpmap.As[warpmap.Updater[uint64, uint32]](m)
//	err = u.Update(keys, values, warpmap.Add)
//
// A is Updater, Chooser, KeyChooser, Mixed or OuterFinder, with the types of the table's keys and values. As
// costs nothing. A table over several devices (package shard) is what its type says, whatever the family of the
// devices' tables; if these cannot do what a method needs, the method returns an error.
//
// Errors: a family that does not have the interface (the error names those that do); a table of another kind, or of
// other types of keys or values, than A has; an A that is none of these interfaces, unless the table is one; a nil
// table.
func As[A any](t Table) (a A, err error) {
	a, ok := any(t).(A)
	if ok {
		return a, nil
	}
	want := strings.ReplaceAll(reflect.TypeFor[A]().String(), "table.", "")
	name, _, _ := strings.Cut(want, "[")
	var families []string
	for _, f := range able[name] {
		if t != nil && f == t.Family() {
			return a, fmt.Errorf("warpmap: %T is no %s: its kind, or its keys' or values' types, are others", t, want)
		}
		families = append(families, string(f))
	}
	if t == nil {
		return a, fmt.Errorf("warpmap: no table is no %s", want)
	}
	if families == nil {
		return a, fmt.Errorf("warpmap: %T is no %s", t, want)
	}
	return a, fmt.Errorf("warpmap: a table of %s is no %s (want one of: %s)", t.Family(), want, strings.Join(families, ", "))
}

// Batcher puts the small batches of many goroutines together, such as those that a server's requests bring.
type Batcher[K, V any] = table.Batcher[K, V]

// BatcherOptions say how a Batcher forms its batches. The zero value is good.
type BatcherOptions = table.BatcherOptions

// NewBatcher makes a Batcher over a Map or a Cache. The caller closes that, after the Batcher. Errors: no table;
// options out of range.
func NewBatcher[K, V any](m interface {
	Find(keys []K, values []V, found []bool) error
	Insert(keys []K, values []V) error
	Delete(keys []K, deleted []bool) (int, error)
}, o BatcherOptions) (*Batcher[K, V], error) {
	return table.NewBatcher(m, o)
}

// Pairs iterates over the pairs of a Map, a MultiMap or a Counter, in no order, chunk by chunk. When the loop is over,
// err returns what broke it off, or nil. See table.Pairs.
func Pairs[K, V any](ctx context.Context, t interface {
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}) (pairs iter.Seq2[K, V], err func() error) {
	return table.Pairs(ctx, t)
}

// Keys iterates over the keys of a Set, in no order: see Pairs.
func Keys[K any](ctx context.Context, s Set[K]) (keys iter.Seq[K], err func() error) {
	return table.Keys(ctx, s)
}

// InParts does a batch of n rows part by part until ctx ends, so that any batch of Go slices can be stopped:
//
//	err := warpmap.InParts(ctx, len(keys), func(from, to int) error { return m.Insert(keys[from:to], values[from:to]) })
//
// If ctx ends, the error wraps context.Cause(ctx). See table.InParts for parts and the other errors.
func InParts(ctx context.Context, n int, do func(from, to int) error) error {
	return table.InParts(ctx, n, do)
}

// StringKeys are the keys of a batch of a Strings, in Arrow's form.
type StringKeys = text.Keys

// KeysOf makes the keys of a batch from strings.
func KeysOf(keys ...string) StringKeys { return text.Of(keys...) }
