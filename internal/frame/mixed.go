package frame

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// StatusDefines are the constants that kernel/outcome.cuh needs among a program's Defines.
func StatusDefines() []device.Define {
	return []device.Define{
		{Name: "WARPMAP_ABSENT", Value: uint8(table.Absent)},
		{Name: "WARPMAP_PRESENT", Value: uint8(table.Present)},
		{Name: "WARPMAP_ADDED", Value: uint8(table.Added)},
		{Name: "WARPMAP_NO_ROOM", Value: uint8(table.NoRoom)},
	}
}

// CheckOps refuses operations that do not exist.
func CheckOps(ops []table.Op) error {
	for i, o := range ops {
		if o > table.OpDelete {
			return fmt.Errorf("table: operation %d is %v (want find, insert, insert-new or delete)", i, o)
		}
	}
	return nil
}

// MixedRows are the rows of a mixed batch, by columns at device addresses. Results and Status may be 0. For a set,
// Values is 0, too.
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

// Mixer runs a mixed batch. The positions whose inserts found no room come back with the reason. It is called with the
// lock held, in order.
type Mixer func(st *device.Stream, b MixedRows) (refused []int, why, err error)

// Mix implements Mixed of a map. size gives the slots and the pairs in them, for an error, as Size of an Insertion
// does.
func Mix[K, V any](f *Frame, ops []table.Op, keys []K, values, results []V, status []table.Status, mix Mixer, size func() (capacity, live int64)) error {
	return mixColumns(f, ops, In(keys), In(values), len(values), Out(results), status, mix, size)
}

// MixKeys implements Mixed of a set.
func MixKeys[K any](f *Frame, ops []table.Op, keys []K, status []table.Status, mix Mixer, size func() (capacity, live int64)) error {
	return mixColumns(f, ops, In(keys), Column{}, -1, Column{}, status, mix, size)
}

func mixColumns(f *Frame, ops []table.Op, keys, values Column, valuesLen int, results Column, status []table.Status, mix Mixer, size func() (capacity, live int64)) error {
	if err := f.Family.CheckNamed("ops values results status", keys.n, len(ops), valuesLen, results.optional(), OptionalLen(status)); err != nil {
		return err
	}
	if err := CheckOps(ops); err != nil {
		return err
	}
	untried := func() {
		for i := range status {
			status[i] = table.NoRoom
		}
	}
	return InsertColumns(f, keys, []Column{In(ops), keys, values, results, Out(status)}, func(st *device.Stream, n int64, addr []uint64) ([]int, error, error) {
		return mix(st, MixedRows{addr[0], addr[1], addr[2], addr[3], addr[4], n})
	}, Insertion{Size: size, untried: untried})
}

// MixOn implements Mixed on the device, for a map or, with NoValues, for a set.
func MixOn[K any](f *Frame, st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results DeviceSlice, status device.Slice[table.Status],
	mix Mixer, size func() (capacity, live int64)) error {
	return mixOn(f, st, ops, keys, values, results, Optional(status), mix, size)
}

func mixOn(f *Frame, st *device.Stream, ops, keys, values, results, status DeviceSlice, mix Mixer, size func() (capacity, live int64)) error {
	if err := f.CheckOn("ops values results status", st, keys, ops, values, results, status); err != nil {
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
