package frame

import (
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
)

// OptionalLen is the length, for CheckLens, of a slice that may be nil.
func OptionalLen[T any](s []T) int {
	if s == nil {
		return -1
	}
	return len(s)
}

// DeviceSlice is a device.Slice of any type.
type DeviceSlice = interface {
	On(*device.Device) error
	Addr() uint64
	Len() int
}

// OneLine makes an error of errors.Join, or one that wraps it without a word, read as one line, and says once what is said twice: a device that is closed or
// lost says so to each step of an operation. errors.Is and errors.As see all that was joined.
func OneLine(err error) error {
	inner := err
	for w, ok := inner.(interface{ Unwrap() error }); ok; w, ok = inner.(interface{ Unwrap() error }) {
		if e := w.Unwrap(); e == nil || e.Error() != err.Error() {
			break
		} else {
			inner = e
		}
	}
	if _, ok := inner.(interface{ Unwrap() []error }); !ok {
		return err
	}
	return &oneLine{strings.Join(parts(nil, inner), "; "), err}
}

func parts(said []string, err error) []string {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			said = parts(said, e)
		}
	} else if text := err.Error(); !slices.Contains(said, text) {
		said = append(said, text)
	}
	return said
}

type oneLine struct {
	text string
	err  error
}

func (e *oneLine) Error() string { return e.text }
func (e *oneLine) Unwrap() error { return e.err }

// Optional gives CheckOn a slice that may be the zero Slice.
func Optional[T any](s device.Slice[T]) DeviceSlice {
	if s.Addr() == 0 {
		return omitted{s}
	}
	return s
}

type omitted struct{ DeviceSlice }

func (omitted) Len() int { return -1 }

// A table's operations take keys and values of any types. Each is one call of a function that knows their columns alone, which is compiled
// once, and not for each pair of types.

// Find implements Find of a table: find looks keys up, in order. values and found may be nil.
func Find[K, V any](f *Frame, keys []K, values []V, found []bool, find func(st *device.Stream, b Rows) error) error {
	return lookUp(f, In(keys), Out(values), Out(found), find)
}

func lookUp(f *Frame, keys, values, found Column, find func(st *device.Stream, b Rows) error) error {
	if err := f.Family.CheckNamed("values found", keys.n, values.optional(), found.optional()); err != nil {
		return err
	}
	return f.Batch(keys.n, []Column{keys, values, found}, func(st *device.Stream, _, n int, addr []uint64) error {
		return f.Reading(st, func(st *device.Stream) error {
			return find(st, Rows{Keys: addr[0], Values: addr[1], Flags: addr[2], N: int64(n)})
		})
	})
}

// FindOn implements Find on the device; values and found may be zero Slices.
func FindOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool], find func(st *device.Stream, b Rows) error) error {
	return lookUpOn(f, st, keys, Optional(values), Optional(found), find)
}

func lookUpOn(f *Frame, st *device.Stream, keys, values, found DeviceSlice, find func(st *device.Stream, b Rows) error) error {
	if err := f.CheckOn("values found", st, keys, values, found); err != nil {
		return err
	}
	return f.Reading(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		return find(st, Rows{Keys: keys.Addr(), Values: values.Addr(), Flags: found.Addr(), N: int64(keys.Len())})
	})
}

// Delete implements Delete of a table: erase removes keys, in order. deleted may be nil.
func Delete[K any](f *Frame, keys []K, deleted []bool, erase func(st *device.Stream, b Rows) error) (int, error) {
	return remove(f, In(keys), deleted, erase)
}

func remove(f *Frame, keys Column, deleted []bool, erase func(st *device.Stream, b Rows) error) (int, error) {
	if err := f.Family.CheckNamed("deleted", keys.n, OptionalLen(deleted)); err != nil {
		return 0, err
	}
	return counted(keys.n, deleted, func(deleted []bool) error {
		return f.Batch(keys.n, []Column{keys, Out(deleted)}, func(st *device.Stream, _, n int, addr []uint64) error {
			return f.Writing(st, func(st *device.Stream) error { return erase(st, Rows{Keys: addr[0], Flags: addr[1], N: int64(n)}) })
		})
	})
}

// DeleteOn implements Delete on the device; deleted may be the zero Slice.
func DeleteOn[K any](f *Frame, st *device.Stream, keys device.Slice[K], deleted device.Slice[bool], erase func(st *device.Stream, b Rows) error) error {
	return removeOn(f, st, keys, Optional(deleted), erase)
}

func removeOn(f *Frame, st *device.Stream, keys, deleted DeviceSlice, erase func(st *device.Stream, b Rows) error) error {
	if err := f.CheckOn("deleted", st, keys, deleted); err != nil {
		return err
	}
	return f.Writing(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		return erase(st, Rows{Keys: keys.Addr(), Flags: deleted.Addr(), N: int64(keys.Len())})
	})
}

// InTurn makes calls one after the other until one fails, and returns its error. A kernel that is launched after a call
// failed would read memory which that call should have written: for example the addresses that it is to write to.
// errors.Join of several calls makes all of them.
func InTurn(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}
