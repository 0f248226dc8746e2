package shard

import (
	"bytes"
	"sort"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// rows are rows that owners refused, as bytes of one width: keys, or keys and values. A batch far beyond MaxBytes has
// hundreds of millions of them, so they take their own bytes and no more: they are in blocks, which are never moved.
type rowSet struct {
	width, n int
	blocks   [][]byte
	uses     []rowUse // of each row, if sorted
}

// rowUse is the part that a row plays in finding the rows of a batch.
type rowUse byte

const (
	unused  rowUse = iota
	taken          // by a row of the batch
	surplus        // as taken, and it is the first of its equals, of which the batch has more than were refused
)

// blockRows is the number of rows in a block.
const blockRows = 1 << 12

// refusedAtOnce is the number of rows that are read from a device at once.
const refusedAtOnce = 1 << 15

// Len, Less and Swap sort rows by their bytes.
func (x *rowSet) Len() int { return x.n }

func (x *rowSet) Less(i, j int) bool { return bytes.Compare(x.at(i), x.at(j)) < 0 }

func (x *rowSet) Swap(i, j int) {
	a, b := x.at(i), x.at(j)
	for k := range a {
		a[k], b[k] = b[k], a[k]
	}
}

// at returns row i, which may be written.
func (x *rowSet) at(i int) []byte {
	return x.blocks[i/blockRows][i%blockRows*x.width:][:x.width]
}

// add adds a row, which comes in one or two columns.
func (x *rowSet) add(columns ...[]byte) {
	if x.n == len(x.blocks)*blockRows {
		x.blocks = append(x.blocks, make([]byte, blockRows*x.width))
	}
	to := x.at(x.n)
	for _, c := range columns {
		to = to[copy(to, c):]
	}
	x.n++
}

// reset removes all rows, and keeps their memory.
func (x *rowSet) reset() { x.n, x.uses = 0, nil }

// sort sorts the rows, for take and find.
func (x *rowSet) sort() {
	sort.Sort(x)
	x.uses = make([]rowUse, x.n)
}

// find returns the first of the rows that are equal to a row, or -1.
func (x *rowSet) find(row []byte) int {
	i, found := sort.Find(x.n, func(i int) int { return bytes.Compare(row, x.at(i)) })
	if !found {
		return -1
	}
	return i
}

// take takes one of the rows that are equal to a row and free, and reports whether there was one. Of equal rows the
// first are taken first.
func (x *rowSet) take(row []byte) bool {
	i := sort.Search(x.n, func(i int) bool {
		c := bytes.Compare(row, x.at(i))
		return c < 0 || c == 0 && x.uses[i] == unused
	})
	if i == x.n || !bytes.Equal(row, x.at(i)) {
		return false
	}
	x.uses[i] = taken
	return true
}

// read adds the rows at ascending positions of those that an owner got: their keys and, if paired, their values.
func (x *rowSet) read(w widths, positions []int, r received, paired bool) error {
	var keys, values []byte
	first, end := 0, 0
	column := func(to *[]byte, from device.Slice[byte], width int) error {
		if *to == nil { // the largest: only the last is smaller
			*to = make([]byte, (end-first)*width)
		}
		*to = (*to)[:(end-first)*width]
		return from.Slice(first*width, end*width).Read(nil, *to)
	}
	for _, p := range positions {
		if p >= end {
			first, end = p, min(p+refusedAtOnce, r.n)
			if err := column(&keys, r.keys, w.keyBytes); err != nil {
				return err
			}
			if paired {
				if err := column(&values, r.values, w.valueBytes); err != nil {
					return err
				}
			}
		}
		if i := p - first; paired {
			x.add(w.keyAt(keys, i), w.valueAt(values, i))
		} else {
			x.add(w.keyAt(keys, i))
		}
	}
	return nil
}

// keyAt returns row i of a column of keys.
func (w widths) keyAt(keys []byte, i int) []byte { return keys[i*w.keyBytes : (i+1)*w.keyBytes] }

// valueAt returns row i of a column of values.
func (w widths) valueAt(values []byte, i int) []byte {
	return values[i*w.valueBytes : (i+1)*w.valueBytes]
}

// rest are the rows of an operation that owners refused. A later round, or another chunk, may find room for the same
// key. Then these rows are done, too, so that only rows whose keys are not in are named as refused. It is used with the
// table's lock held.
type rest struct {
	widths
	paired bool // rows have values
	owners map[int]*rowSet
}

// newRest returns an empty rest of rows with keys of type K and, if paired, values of type V.
func newRest[K, V any](paired bool) *rest {
	w := widths{keyBytes: int(unsafe.Sizeof(*new(K)))}
	if paired {
		w.valueBytes = int(unsafe.Sizeof(*new(V)))
	}
	return &rest{widths: w, paired: paired, owners: map[int]*rowSet{}}
}

// noting notes refused rows, and why the table was full.
func (x *rest) noting(why *error) func(int, *table.FullError, received) error {
	return func(owner int, e *table.FullError, r received) error {
		*why = e.Why
		if x.owners[owner] == nil {
			x.owners[owner] = &rowSet{width: x.keyBytes + x.valueBytes}
		}
		return x.owners[owner].read(x.widths, e.Positions, r, x.paired)
	}
}

// again does the rows whose keys are in by now, and returns their number.
func (x *rest) again(contains func(owner int, keys []byte, in []bool) error,
	do func(owner int, keys, values []byte) error) (n int, err error) {
	in := make([]bool, refusedAtOnce)
	var keys, values []byte
	for owner, own := range x.owners {
		if err != nil {
			break
		}
		left := 0
		for first := 0; first < own.n; first += refusedAtOnce {
			end := min(first+refusedAtOnce, own.n)
			if err == nil {
				keys = keys[:0]
				for i := first; i < end; i++ {
					keys = append(keys, own.at(i)[:x.keyBytes]...)
				}
				err = contains(owner, keys, in[:end-first])
			}
			keys, values = keys[:0], values[:0]
			for i := first; i < end; i++ {
				if err == nil && in[i-first] {
					keys, values = append(keys, own.at(i)[:x.keyBytes]...), append(values, own.at(i)[x.keyBytes:]...)
				}
			}
			if err == nil && len(keys) > 0 {
				err = do(owner, keys, values)
			}
			for i := first; i < end; i++ {
				if err == nil && in[i-first] {
					n++
				} else {
					copy(own.at(left), own.at(i))
					left++
				}
			}
		}
		own.n = left
	}
	return n, err
}

// sort sorts the rows, for take.
func (x *rest) sort() {
	for _, own := range x.owners {
		own.sort()
	}
}

// take takes one of the rows that are equal to a row, and reports whether there was one left.
func (x *rest) take(row []byte) bool {
	for _, own := range x.owners {
		if own.take(row) {
			return true
		}
	}
	return false
}
