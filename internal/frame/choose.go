package frame

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// InsertIf implements InsertIf of a map: Put of the insertion gets rows with When.
func InsertIf[K, V any](f *Frame, keys []K, values []V, when []bool, x Insertion) error {
	return insertIf(f, In(keys), In(values), len(values), when, nil, x)
}

// InsertKeysIf implements InsertIf of a set.
func InsertKeysIf[K any](f *Frame, keys []K, when, added []bool, x Insertion) (int, error) {
	return insertKeysIf(f, In(keys), when, added, x)
}

func insertKeysIf(f *Frame, keys Column, when, added []bool, x Insertion) (int, error) {
	x.keeps = true
	return counted(keys.n, added, func(added []bool) error { return insertIf(f, keys, Column{}, -1, when, added, x) })
}

func insertIf(f *Frame, keys, values Column, valuesLen int, when, added []bool, x Insertion) error {
	if err := f.Family.CheckNamed("values when added", keys.n, valuesLen, len(when), OptionalLen(added)); err != nil {
		return err
	}
	err := InsertColumns(f, keys, []Column{keys, values, Out(added), In(when)}, func(st *device.Stream, n int64, addr []uint64) ([]int, error, error) {
		return x.Put(st, Rows{Keys: addr[0], Values: addr[1], Flags: addr[2], When: addr[3], N: n})
	}, x)
	full := (*table.FullError)(nil)
	if !errors.As(err, &full) {
		return err
	}
	// Of a batch that no memory brings to the device, positions are named that are not chosen.
	full.Positions = slices.DeleteFunc(full.Positions, func(i int) bool { return !when[i] })
	if len(full.Positions) == 0 {
		return nil
	}
	return err
}

// InsertIfOn implements InsertIf on the device, for a map or, without values, for a set. added may be the zero Slice.
func InsertIfOn[K any](f *Frame, st *device.Stream, keys device.Slice[K], values DeviceSlice, when, added device.Slice[bool], x Insertion) error {
	return insertIfOn(f, st, keys, sizeOf[K](), values, when, Optional(added), x)
}

func insertIfOn(f *Frame, st *device.Stream, keys DeviceSlice, keyBytes int, values, when, added DeviceSlice, x Insertion) error {
	if err := f.CheckOn("when", st, keys, when); err != nil {
		return err
	}
	put := x.Put
	x.Put = func(st *device.Stream, b Rows) ([]int, error, error) {
		b.When = when.Addr()
		return put(st, b)
	}
	return insertOn(f, st, keys, keyBytes, values, added, x)
}

// FindIf implements FindIf of a table: find gets rows with When, and looks up only the keys that it chooses.
func FindIf[K, V any](f *Frame, keys []K, when []bool, values []V, found []bool, find func(st *device.Stream, b Rows) error) error {
	return lookUpIf(f, In(keys), when, Out(values), Out(found), find)
}

func lookUpIf(f *Frame, keys Column, when []bool, values, found Column, find func(st *device.Stream, b Rows) error) error {
	if err := f.Family.CheckNamed("when values found", keys.n, len(when), values.optional(), found.optional()); err != nil {
		return err
	}
	return f.Batch(keys.n, []Column{keys, In(when), values, found}, func(st *device.Stream, _, n int, addr []uint64) error {
		return f.Reading(st, func(st *device.Stream) error {
			return find(st, Rows{Keys: addr[0], When: addr[1], Values: addr[2], Flags: addr[3], N: int64(n)})
		})
	})
}

// FindIfOn implements FindIf on the device; values and found may be zero Slices.
func FindIfOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool],
	find func(st *device.Stream, b Rows) error) error {
	return lookUpIfOn(f, st, keys, when, Optional(values), Optional(found), find)
}

func lookUpIfOn(f *Frame, st *device.Stream, keys, when, values, found DeviceSlice, find func(st *device.Stream, b Rows) error) error {
	if err := f.CheckOn("when", st, keys, when); err != nil {
		return err
	}
	return lookUpOn(f, st, keys, values, found, func(st *device.Stream, b Rows) error {
		b.When = when.Addr()
		return find(st, b)
	})
}
