package join

import "math"

// nearest is how many numbers there may be for each key where a row number for each of them takes the place of a table.
const nearest = 16

// near is a level for keys that lie close together, as numbers given out one after the other do: the row numbers stand by key, and
// there is nothing to hash. On a CPU that is ten times as fast as a table.
type near[R uint32 | uint64] struct {
	low  uint64
	mask uint64
	rows []R // plus 1; 0 for keys that are not there
}

// openNear makes a level for the words that are ok, or nil where they lie too far apart.
func openNear[R uint32 | uint64](words []uint64, ok []bool, bytes int) level[R] {
	n := 0
	least, most := int64(math.MaxInt64), int64(math.MinInt64) // as signed numbers
	uleast, umost := uint64(math.MaxUint64), uint64(0)
	shift := uint(64 - 8*bytes)
	for i, w := range words {
		if !ok[i] {
			continue
		}
		n++
		s := int64(w<<shift) >> shift
		least, most = min(least, s), max(most, s)
		uleast, umost = min(uleast, w), max(umost, w)
	}
	l := &near[R]{mask: math.MaxUint64 >> shift}
	if n == 0 {
		return l
	}
	span := umost - uleast
	l.low = uleast
	if signed := uint64(most) - uint64(least); signed < span {
		l.low, span = uint64(least)&l.mask, signed
	}
	if span >= uint64(nearest)*uint64(n)+1024 {
		return nil
	}
	l.rows = make([]R, span+1)
	return l
}

func (l *near[R]) insertNew(words []uint64, rows []R) (added int, err error) {
	for i, w := range words {
		if at := &l.rows[(w-l.low)&l.mask]; *at == 0 {
			*at = rows[i] + 1
			added++
		}
	}
	return added, nil
}

func (l *near[R]) find(words []uint64, rows []R, found []bool) error {
	for i, w := range words {
		var row R
		if at := (w - l.low) & l.mask; at < uint64(len(l.rows)) {
			row = l.rows[at]
		}
		rows[i], found[i] = row-1, row != 0
	}
	return nil
}

func (l *near[R]) filtered() int64 { return 0 }

func (l *near[R]) close() error { return nil }
