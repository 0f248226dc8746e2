package table

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

// Combine says how Update combines the value that a key has, `old`, with the one that comes, `value`. It is an
// expression of CUDA C++, of the values' own type. It must give the same result in whatever order the values of a key
// come.
//
//	table.Combine("old + value * value")
//
// The constants are faster than what one writes for them.
type Combine string

// The most common ways to combine values. And and Or are for integers.
const (
	Add Combine = "old + value"
	Min Combine = "value < old ? value : old"
	Max Combine = "old < value ? value : old"
	And Combine = "old & value"
	Or  Combine = "old | value"
)

// Updater is a Map that combines values. See Map for what holds of all batches.
type Updater[K, V any] interface {
	Map[K, V]

	// Update combines the value of each key that is in the table with the value that comes. It puts the pairs whose
	// keys are absent as they are. If a batch holds a key several times, all of its values are combined, in no order.
	// The table grows as it must; *FullError names exactly the positions whose values were not combined: their keys are
	// not in.
	//
	// Errors: values that are neither integers nor floats of 4 or 8 bytes; an empty operation; And or Or of floats;
	// *device.CompileError with the compiler's words, and the other errors of kernels that must be compiled (see New of
	// package warpmap). Cost: an operation is compiled once, which takes a few seconds the first time on a machine.
	// Each key costs an atomic operation, which rows of one key share if they are near in the batch. With code of your
	// own, where many rows have the same key, they cost one compare-and-swap after the other.
	Update(keys []K, values []V, with Combine) error
	// UpdateOn does what Update does, with device slices. It waits for the stream where InsertOn does. Tables of
	// warpcore also wait when they look how often keys come in a large batch.
	UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with Combine) error

	// FindOrInsert puts the pairs whose keys are absent, and writes to out the value that each key then has: the one
	// that was there, or one that came with it. added[i] tells whether position i went in; added may be nil. If a batch
	// holds a new key several times, exactly one position goes in. FindOrInsert returns how many went in, after an
	// error as InsertNew does. out and values may be the same slice. At the positions that *FullError names, out has
	// the zero value in a Go slice, and what there was in a device slice.
	FindOrInsert(keys []K, values, out []V, added []bool) (int, error)
	// FindOrInsertOn does what FindOrInsert does, with device slices. It waits for the stream where InsertOn does.
	FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error
}
