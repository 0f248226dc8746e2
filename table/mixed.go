package table

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Op is what one operation of a mixed batch does.
type Op uint8

// The operations of a mixed batch. Their numbers are known to kernels.
const (
	OpFind      Op = iota
	OpInsert       // puts or replaces
	OpInsertNew    // puts if the key is absent
	OpDelete
)

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

var opNames = [...]string{"find", "insert", "insert-new", "delete"}

// Status is what became of an operation of a mixed batch.
type Status uint8

// The outcomes of an operation. Kernels have them as ABSENT, PRESENT, ADDED and FULL.
const (
	// Absent: the key was not there, to be found or deleted.
	Absent Status = iota
	// Present: the key was there, and was found, replaced, left alone by an insert-new, or deleted.
	Present
	// Added: the key was not there, and is in now.
	Added
	// NoRoom: the key was not there, and found no room; the error names the position.
	NoRoom
)

// StatusDefines are the constants that kernel/outcome.cuh needs among a program's Defines.
func StatusDefines() []device.Define {
	return []device.Define{
		{Name: "WARPMAP_ABSENT", Value: uint8(Absent)},
		{Name: "WARPMAP_PRESENT", Value: uint8(Present)},
		{Name: "WARPMAP_ADDED", Value: uint8(Added)},
		{Name: "WARPMAP_NO_ROOM", Value: uint8(NoRoom)},
	}
}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

var statusNames = [...]string{"absent", "present", "added", "no room"}

// Mixed is what a table can do whose operations of all kinds may run beside one another. Each key is linearizable: the
// operations on it happen as if one after the other, each at some moment of the batch, in an order that is not told.
type Mixed[K, V any] interface {
	// Mixed runs ops[i] on keys[i], for all i at the same time. values[i] is what an insert puts. results[i] becomes the
	// value that a find found, and otherwise the zero value; status[i] says what happened. results and status may be nil.
	// *FullError names exactly the inserts that found no room; all else is done. Where memory is short, a table over
	// several devices names operations of all kinds that it could not do, with NoRoom as their outcome.
	Mixed(ops []Op, keys []K, values, results []V, status []Status) error
	// MixedOn is Mixed on the device.
	MixedOn(st *device.Stream, ops device.Slice[Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[Status]) error
}

// CheckOps refuses operations that are none.
func CheckOps(ops []Op) error {
	for i, o := range ops {
		if o > OpDelete {
			return fmt.Errorf("table: operation %d is %v (want find, insert, insert-new or delete)", i, o)
		}
	}
	return nil
}

// MixedRows are the rows of a mixed batch, by columns at device addresses. Results and Status may be 0; of a set, so is Values.
type MixedRows struct {
	Ops, Keys, Values, Results, Status uint64
	N                                  int64
}

// Part gives the rows of a part.
func (b MixedRows) Part(p Part, keyBytes, valueBytes int) MixedRows {
	x := Rows{Keys: b.Keys, Values: b.Values, Flags: b.Status, N: b.N}.Part(p, keyBytes, valueBytes)
	y := Rows{Keys: b.Ops, Values: b.Results, N: b.N}.Part(p, 1, valueBytes)
	return MixedRows{y.Keys, x.Keys, x.Values, y.Values, x.Flags, x.N}
}

// Mixer runs a mixed batch: the positions whose inserts found no room come back with the reason. It is called with the lock held,
// in order.
type Mixer func(st *device.Stream, b MixedRows) (refused []int, why, err error)

// Mix is Mixed of a map; size is that of an Insertion.
func Mix[K, V any](f *Frame, ops []Op, keys []K, values, results []V, status []Status, mix Mixer, size func() (capacity, live int64)) error {
	return mixColumns(f, ops, In(keys), In(values), len(values), Out(results), status, mix, size)
}

// MixKeys is Mixed of a set.
func MixKeys[K any](f *Frame, ops []Op, keys []K, status []Status, mix Mixer, size func() (capacity, live int64)) error {
	return mixColumns(f, ops, In(keys), Column{}, -1, Column{}, status, mix, size)
}

func mixColumns(f *Frame, ops []Op, keys, values Column, valuesLen int, results Column, status []Status, mix Mixer, size func() (capacity, live int64)) error {
	if err := f.Family.CheckNamed("ops values results status", keys.n, len(ops), valuesLen, results.optional(), OptionalLen(status)); err != nil {
		return err
	}
	if err := CheckOps(ops); err != nil {
		return err
	}
	return InsertColumns(f, keys, []Column{In(ops), keys, values, results, Out(status)}, func(st *device.Stream, n int64, addr []uint64) ([]int, error, error) {
		return mix(st, MixedRows{addr[0], addr[1], addr[2], addr[3], addr[4], n})
	}, Insertion{Size: size})
}

// MixOn is Mixed on the device: of a map, or with NoValues of a set.
func MixOn[K any](f *Frame, st *device.Stream, ops device.Slice[Op], keys device.Slice[K], values, results DeviceSlice, status device.Slice[Status],
	mix Mixer, size func() (capacity, live int64)) error {
	return mixOn(f, st, ops, keys, values, results, Optional(status), mix, size)
}

func mixOn(f *Frame, st *device.Stream, ops, keys, values, results, status DeviceSlice, mix Mixer, size func() (capacity, live int64)) error {
	if err := f.Family.CheckNamedOn("ops values results status", f.Device, st, keys, ops, values, results, status); err != nil {
		return err
	}
	return f.Writing(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		refused, why, err := mix(st, MixedRows{ops.Addr(), keys.Addr(), values.Addr(), results.Addr(), status.Addr(), int64(keys.Len())})
		if err != nil {
			return err
		}
		return Insertion{Size: size}.full(refused, why)
	})
}
