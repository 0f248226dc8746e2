package shard

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// rest are the rows of an operation that owners refused. A later round, or another chunk, may find room for the same
// key: then these rows are done, too, so that what is named as refused are rows whose keys are not in. It is used with
// the table's lock held.
type rest[K, V any] struct {
	owners map[int]*refused[K, V]
}

// refused are rows that an owner refused; values is nil where rows have none.
type refused[K, V any] struct {
	keys   []K
	values []V
}

// noting notes refused rows, and why the table was full.
func (x *rest[K, V]) noting(why *error) func(int, *table.FullError, received) error {
	return func(owner int, e *table.FullError, r received) error {
		*why = e.Why
		keys, err := device.View[K](r.keys, 0, r.n).Host(nil)
		if err != nil {
			return err
		}
		var values []V
		if r.values.Addr() != 0 {
			if values, err = valuesOf[V](r).Host(nil); err != nil {
				return err
			}
		}
		if x.owners == nil {
			x.owners = map[int]*refused[K, V]{}
		}
		if x.owners[owner] == nil {
			x.owners[owner] = &refused[K, V]{}
		}
		own := x.owners[owner]
		for _, p := range e.Positions {
			own.keys = append(own.keys, keys[p])
			if values != nil {
				own.values = append(own.values, values[p])
			}
		}
		return nil
	}
}

// again does the rows whose keys are in by now, and tells how many they were.
func (x *rest[K, V]) again(contains func(owner int, keys []K, in []bool) error,
	do func(owner int, keys []K, values []V) error) (n int, err error) {
	for owner, own := range x.owners {
		in := make([]bool, len(own.keys))
		if err := contains(owner, own.keys, in); err != nil {
			return n, err
		}
		var now, left refused[K, V]
		for i, there := range in {
			to := &left
			if there {
				to = &now
			}
			to.keys = append(to.keys, own.keys[i])
			if own.values != nil {
				to.values = append(to.values, own.values[i])
			}
		}
		*own = left
		if len(now.keys) == 0 {
			continue
		}
		if err := do(owner, now.keys, now.values); err != nil {
			own.keys, own.values = append(own.keys, now.keys...), append(own.values, now.values...)
			return n, err
		}
		n += len(now.keys)
	}
	return n, nil
}

// rows tells which rows are not done, as bytes, and how many there are of each: rows alike can stand for one another.
func (x *rest[K, V]) rows() map[string]int {
	undone := map[string]int{}
	for _, own := range x.owners {
		for i := range own.keys {
			row := string(bytesOf(own.keys[i : i+1]))
			if own.values != nil {
				row += string(bytesOf(own.values[i : i+1]))
			}
			undone[row]++
		}
	}
	return undone
}
