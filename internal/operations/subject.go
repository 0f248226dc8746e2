package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// call is an operation as a table gets it. Keys and values are numbers, whatever the table's types are.
type call struct {
	Name         string
	Keys, Values []uint64
	When         []bool
	Ops          []table.Op
	With         string // how Update combines, or what is wrong
	N            int    // of grow and top
	Device       bool   // the batch is device slices
	Stream       bool   // on a stream of their own
	Family       string // of the table that a saved one is loaded into
	Seed         uint64 // of that table
	Scores       []uint32
	Lives        []uint64 // in milliseconds; 0 for that of the table
	Other        Settings // of the cache that a saved one is loaded into
}

// answer is what came of a call.
type answer struct {
	Keys, Values []uint64 // an export; else values of the batch's positions
	Flags        []bool
	Status       []table.Status
	Offsets      []uint64
	Counts       []uint32
	N            int
	Bytes        int64
	Scores       []uint32    // of a cache's pairs
	Cache        cache.Stats // of a cache
	Lacks        bool        // the table has no such operation
	Short        bool        // nothing was done: there was no memory for the batch
	Err          error
}

// subject is a table on its ground. The names of calls are those of operations, and count, len, check, stats, export
// and chunks.
type subject interface {
	do(c *call) answer
}

// codec makes keys or values of numbers, and numbers of these. of tells whether a number can have made x.
type codec[T any] struct {
	make func(uint64) T
	of   func(x T) (n uint64, ok bool)
}

type integer interface{ uint32 | uint64 }

func plain[T integer]() codec[T] {
	return codec[T]{func(n uint64) T { return T(n) }, func(x T) (uint64, bool) { return uint64(x), true }}
}

// wideKey has the same first half in all keys.
func wideKey() codec[[2]uint64] {
	return codec[[2]uint64]{func(n uint64) [2]uint64 { return [2]uint64{7, n} },
		func(x [2]uint64) (uint64, bool) { return x[1], x[0] == 7 }}
}

// wideValue has a second half by which torn values are seen. That of an absent key is zero.
func wideValue() codec[[2]uint64] {
	return codec[[2]uint64]{func(n uint64) [2]uint64 { return [2]uint64{n, ^n} },
		func(x [2]uint64) (uint64, bool) { return x[0], x[1] == ^x[0] || x == [2]uint64{} }}
}

func (c codec[T]) all(numbers []uint64) []T {
	out := make([]T, len(numbers))
	for i, n := range numbers {
		out[i] = c.make(n)
	}
	return out
}

// numbers are those of xs. What no number made is an error, unless there is one.
func (c codec[T]) numbers(xs []T, err *error) []uint64 {
	out := make([]uint64, len(xs))
	for i, x := range xs {
		var ok bool
		if out[i], ok = c.of(x); !ok && *err == nil {
			*err = fmt.Errorf("position %d has %v, which is torn", i, x)
		}
	}
	return out
}

// slices are device slices for one call, on a stream.
type deviceSlices struct {
	d     *device.Device
	st    *device.Stream // nil: the device's own
	err   error
	frees []func() error
}

func newSlices(d *device.Device, stream bool) *deviceSlices {
	s := &deviceSlices{d: d}
	if stream {
		s.st, s.err = d.NewStream()
	}
	return s
}

func lend[T any](s *deviceSlices, xs []T) device.Slice[T] {
	if s.err != nil {
		return device.Slice[T]{}
	}
	x, err := device.From(s.d, xs)
	s.frees = append(s.frees, x.Free)
	s.err = err
	return x
}

// read brings a slice back.
func read[T any](s *deviceSlices, from device.Slice[T], to []T, err *error) {
	if e := from.Read(s.st, to); e != nil {
		*err = errors.Join(*err, e)
	}
}

// close frees the slices, and closes the stream.
func (s *deviceSlices) close(err *error) {
	if s.st != nil {
		*err = errors.Join(*err, s.st.Sync())
	}
	for _, free := range s.frees {
		*err = errors.Join(*err, free())
	}
	if s.st != nil {
		*err = errors.Join(*err, s.st.Close())
	}
}

// lacking tells whether there was no memory for the slices; any other error is the answer's.
func (s *deviceSlices) lacking(a *answer) bool {
	if s.err == nil {
		return false
	}
	if a.Short = device.IsOutOfMemory(s.err); !a.Short {
		a.Err = s.err
	}
	return true
}

func trues(flags []bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

// shared does the calls that every table has but a filter.
func shared(t table.Table, c *call) (a answer, done bool) {
	switch c.Name {
	case "len":
		a.N, a.Err = t.Len()
	case "check":
		a.Err = t.Check()
	case "stats":
		s, err := t.Stats()
		a.N, a.Bytes, a.Err = s.Len, s.Bytes, err
	case "grow":
		a.Err = t.Grow(c.N)
	case "shrink":
		switch x := t.(type) {
		case interface{ Shrink() error }:
			a.Err = x.Shrink()
		case interface{ Flush() error }:
			a.Err = x.Flush()
		default:
			a.Lacks = true
		}
	case "clear":
		a.Err = t.Clear()
	case "close":
		a.Err = t.Close()
	case "wrong":
		if c.With != "grow" {
			return a, false
		}
		a.Err = t.Grow(-1)
	default:
		return a, false
	}
	return a, true
}

// eacher has code run for pairs.
type eacher[K any] interface {
	ForEach(st *device.Stream, keys device.Slice[K], body string, args table.Args) error
}

// forEach counts, for each position, the pairs of its key, and adds their values up.
func forEach[K any](t any, d *device.Device, c *call, keys []K) (a answer) {
	x, ok := t.(eacher[K])
	if a.Lacks = !ok; a.Lacks {
		return a
	}
	s := newSlices(d, c.Stream)
	defer s.close(&a.Err)
	a.Counts, a.Values = make([]uint32, len(keys)), make([]uint64, len(keys))
	k, times, sums := lend(s, keys), lend(s, a.Counts), lend(s, a.Values)
	if s.lacking(&a) {
		return a
	}
	a.Err = x.ForEach(s.st, k, c.With, table.Args{"times": times, "sums": sums})
	read(s, times, a.Counts, &a.Err)
	read(s, sums, a.Values, &a.Err)
	return a
}

// Bodies of forEach, with values and without.
const (
	eachPair = `add(&times[index], 1u); add(&sums[index], (u64)value);`
	eachKey  = `add(&times[index], 1u);`
)

var background = context.Background()
