package table

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is returned by every operation of a closed table.
var ErrClosed = errors.New("table is closed")

// ErrMaxBytes says that a table did not grow because of MaxBytes.
var ErrMaxBytes = errors.New("MaxBytes is reached")

// FullError says that a batch did not wholly fit: exactly the pairs at Positions, ascending, are not in the table. All
// others are, and no older pair was harmed.
type FullError struct {
	Positions []int // in the batch
	Capacity  int   // slots of the table
	Len       int   // pairs in it
	Why       error // what kept the table from growing
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

// RoomError says that more values were found than there was room for; none were written.
type RoomError struct {
	Values, Room int
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%d values were found, and there is room for %d", e.Values, e.Room)
}
