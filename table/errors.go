package table

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is what all operations of a closed table return, in an error that also names the family. The operations of
// a closed Batcher return it, too. It is not device.ErrClosed, which is of devices, streams and events, and not
// device.ErrFreed, which is of device memory.
//
// A call with a batch looks at its arguments first: at the lengths of slices, then at a stream that is closed
// (device.ErrClosed), then at device slices that are freed (device.ErrFreed). Then it looks whether the table is
// closed, even if the batch is empty. If the table is open, but its device is closed, the error is device.ErrClosed or
// device.ErrFreed. A table over several devices (package shard) looks at the lengths of Go slices, then whether it is
// closed, then at streams and device slices. Over members of a job it looks first of all whether it is closed.
var ErrClosed = errors.New("table is closed")

// ErrMaxBytes says that a table did not grow because of MaxBytes.
var ErrMaxBytes = errors.New("MaxBytes is reached")

// FullError says that a batch did not wholly fit. Positions names what is not done. All else is done, and no older pair
// was harmed. What a position stands for depends on the operation:
//
//   - Insert and InsertNew of a Map, and Insert of a Set: its key is not in the table. If the batch holds such a key
//     several times, all of its positions are named. If a position is not named, its key is in. But if the batch holds
//     the key several times, the value may be that of another position.
//   - Update, FindOrInsert, Add and AddCounts: it had no effect, and its key is not in the table. Of the positions of
//     one key, all are named or none is.
//   - Insert of a MultiMap: its pair is not in the table. Other pairs of its key may be in.
//   - Insert of a Filter: its key did not go in. Each position stands for itself, so others of its key may be in.
//   - Mixed: its operation found no room. Each position stands for itself, so another operation of the batch may have
//     put its key in.
//
// If there is too little memory even to bring a position to the device, it is named, and nothing was done for it. Why
// is then a *device.OutOfMemoryError, and the key may be in from before, with the value that it had. InsertNew of a Map
// and Insert of a Set, to which such a key is as good as done, name it only if the table cannot be asked for it either.
type FullError struct {
	Positions []int // in the batch, ascending
	Capacity  int   // slots of the table
	Len       int   // pairs in it
	// Why says what kept the table from growing: ErrMaxBytes, *device.OutOfMemoryError, or what a family's comment
	// says. errors.Is and errors.As find it in the FullError.
	Why error
}

func (e *FullError) Error() string {
	list := make([]string, 0, 4)
	for _, p := range e.Positions[:min(3, len(e.Positions))] {
		list = append(list, fmt.Sprint(p))
	}
	if len(e.Positions) > 3 {
		list = append(list, "…")
	}
	return fmt.Sprintf("table is full: %d pairs of the batch are not in (positions %s), %d of %d slots hold a pair; it cannot grow: %v",
		len(e.Positions), strings.Join(list, ", "), e.Len, e.Capacity, e.Why)
}

func (e *FullError) Unwrap() error { return e.Why }

// RoomError says that more values were found than there was room for. None were written.
type RoomError struct {
	Values, Room int
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%d values were found, and there is room for %d", e.Values, e.Room)
}
