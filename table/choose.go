package table

import (
	"github.com/warpmap/warpmap/device"
)

// Chooser is a Map whose batches may have a bool for each position. Only the positions whose bool is true are done:
// rows that passed a filter, for example, or rows that are for this table. See Map for what holds of all batches. The
// table reads the whole batch, and takes it in as it comes, in no order of regions. InsertIfOn waits for the stream
// where InsertOn does. FindIfOn and ContainsIfOn queue their work.
type Chooser[K, V any] interface {
	Map[K, V]

	// InsertIf inserts the pairs whose when[i] is true. *FullError names no other positions.
	InsertIf(keys []K, values []V, when []bool) error
	InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error

	// FindIf looks up the keys whose when[i] is true. For all others the value is zero and found is false, as for
	// absent keys. values or found may be nil. found and when may be the same slice.
	FindIf(keys []K, when []bool, values []V, found []bool) error
	FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool]) error

	// ContainsIf tells which of the keys whose when[i] is true are in. For all others found is false. See FindIf.
	ContainsIf(keys []K, when, found []bool) error
	ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error
}

// KeyChooser is a Set whose batches may have a bool for each position: see Chooser.
type KeyChooser[K any] interface {
	Set[K]

	// InsertIf inserts the keys whose when[i] is true. For all others added[i] is false. added may be nil, but it must
	// not be the same slice as when. InsertIf returns how many went in: see Set.Insert.
	InsertIf(keys []K, when, added []bool) (int, error)
	InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error

	// ContainsIf tells of each key whose when[i] is true whether it is in. For all others found[i] is false. found and
	// when may be the same slice.
	ContainsIf(keys []K, when, found []bool) error
	ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error
}
