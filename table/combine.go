package table

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

// Combine says what Update makes of the value that a key has, `old`, and the one that comes, `value`: an expression of CUDA C++, of the values'
// own type. It must give the same in whatever order the values of a key come.
//
//	table.Combine("old + value * value")
//
// The constants are faster than what one writes for them.
type Combine string

// What Combine is most often. And and Or are for integers.
const (
	Add Combine = "old + value"
	Min Combine = "value < old ? value : old"
	Max Combine = "old < value ? value : old"
	And Combine = "old & value"
	Or  Combine = "old | value"
)

// Updater is a Map that combines values: see Map for what holds of all batches.
type Updater[K, V any] interface {
	Map[K, V]

	// Update combines the value of each key that is there with the one that comes, and puts the pairs whose keys are absent as they are. Equal
	// keys in one batch are all combined, in no order. The table grows as it must; *FullError names exactly the positions whose values were
	// not combined: their keys are not in.
	//
	// Errors: values that are no integers or floats of 4 or 8 bytes; *device.CompileError with the compiler's words. Cost: compiling an operation
	// once; an atomic operation for each key, rows of one key that are near in the batch together; with code of one's own, one compare-and-swap
	// after the other where many rows have the same key.
	Update(keys []K, values []V, with Combine) error
	UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with Combine) error

	// FindOrInsert puts the pairs whose keys are absent, and writes to out what each key has then: the value that was there, or one that came
	// with it. added[i] tells whether position i went in (of equal new keys in one batch, exactly one does); added may be nil. The count is
	// theirs. out may be values. Positions that *FullError names have the zero value in a Go slice, and what there was in a device slice.
	FindOrInsert(keys []K, values, out []V, added []bool) (int, error)
	FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error
}
