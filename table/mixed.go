package table

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Op is what one operation of a mixed batch does.
type Op uint8

// The operations of a mixed batch. Kernels know their numbers.
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

// Status says what became of an operation of a mixed batch.
type Status uint8

// The outcomes of an operation. Kernels have them as ABSENT, PRESENT, ADDED and FULL.
const (
	// Absent means that the key to find or delete was not there.
	Absent Status = iota
	// Present means that the key was there. It was found, replaced, left alone by an insert-new, or deleted.
	Present
	// Added means that the key was not there, and is in now.
	Added
	// NoRoom means that the operation is not done: the key was not there, and found no room; or there was no memory to
	// bring the operation to the device. The error names the position.
	NoRoom
)

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

var statusNames = [...]string{"absent", "present", "added", "no room"}

// Mixed is a table whose batches may have operations of all kinds, which run beside one another. Each key is
// linearizable: the operations on it happen as if one after the other, each at some moment of the batch, in an order
// that is not specified.
type Mixed[K, V any] interface {
	// Mixed runs ops[i] on keys[i], for all i at the same time. An insert puts values[i]. results[i] becomes the value
	// that a find found, and otherwise the zero value; status[i] says what happened.
	//
	// ops and values have as many elements as keys, even if no operation is an insert. results and status have as many,
	// or are nil. If one of ops is none of the four, Mixed returns an error that names its position, and does nothing.
	//
	// *FullError names exactly the operations whose outcome is NoRoom: the inserts that found no room, and where memory
	// is short, other operations that could not be brought to a device. If none could, it names all of them. All else
	// is done.
	Mixed(ops []Op, keys []K, values, results []V, status []Status) error
	// MixedOn does what Mixed does, with device slices. An operation that is none of the four does nothing: its outcome
	// is Absent, and its result the zero value. MixedOn waits for the stream; tables of stadium wait only if the batch
	// has more operations than the table has room for pairs.
	MixedOn(st *device.Stream, ops device.Slice[Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[Status]) error
}
