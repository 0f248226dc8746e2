package frame

import (
	"slices"

	"github.com/warpmap/warpmap/table"
)

// Full makes a FullError from positions in any order; nil if there are none.
func Full(positions []int, capacity, n int, why error) error {
	if len(positions) == 0 {
		return nil
	}
	slices.Sort(positions)
	return &table.FullError{Positions: positions, Capacity: capacity, Len: n, Why: why}
}
