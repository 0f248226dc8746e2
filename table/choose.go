package table

import (
	"github.com/warpmap/warpmap/device"
)

// Chooser is a Map whose batches may have a bool for each position: those alone are done where it is true, such as rows that passed a
// filter, or that are for this table. See Map for what holds of all batches; the whole batch is read and goes in as it comes, in no order of
// regions.
type Chooser[K, V any] interface {
	Map[K, V]

	// InsertIf is Insert of the pairs with when[i]. *FullError names none of the others.
	InsertIf(keys []K, values []V, when []bool) error
	InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error

	// FindIf is Find of the keys with when[i]; the others are as absent keys are: their value is zero, and found is false. values or found
	// may be nil, and found may be when.
	FindIf(keys []K, when []bool, values []V, found []bool) error
	FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool]) error

	// ContainsIf is FindIf without values.
	ContainsIf(keys []K, when, found []bool) error
	ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error
}

// KeyChooser is a Set that does what a Chooser does.
type KeyChooser[K any] interface {
	Set[K]

	// InsertIf is Insert of the keys with when[i]; of the others added[i] is false. added may be nil, and must not be when.
	InsertIf(keys []K, when, added []bool) (int, error)
	InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error

	// ContainsIf tells of each key with when[i] whether it is in; of the others found[i] is false. found may be when.
	ContainsIf(keys []K, when, found []bool) error
	ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error
}
