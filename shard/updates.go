package shard

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// What adds to what is there: Update and FindOrInsert, and what counters have of them.

var _ table.Updater[uint32, uint32] = (*Map[uint32, uint32])(nil)

// rest are the rows of an operation that owners refused. A later round, or another chunk, may find room for the same key: then these rows are done, too, so that
// what is named as refused are rows whose keys are not in. It is used with the table's lock held.
type rest[K, V any] struct {
	owners map[int]*refused[K, V]
	any    bool // a row was refused at some time
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
		x.any = true
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
func (x *rest[K, V]) again(contains func(owner int, keys []K, in []bool) error, do func(owner int, keys []K, values []V) error) (n int, err error) {
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
			if own.values == nil {
				undone[string(bytesOf(own.keys[i:i+1]))]++
			} else {
				undone[pairBytes(&own.keys[i], &own.values[i])]++
			}
		}
	}
	return undone
}

// updates is how an Update of a map goes.
type updates[K, V any] struct {
	tables []table.Updater[K, V]
	with   table.Combine
	rest   rest[K, V]
}

// updaters are the tables of a map that combines values.
func (t mapTables[K, V]) updaters() (all []table.Updater[K, V], err error) {
	for _, x := range t {
		u, ok := x.(table.Updater[K, V])
		if !ok {
			return nil, fmt.Errorf("%s: maps of %s have no Update and no FindOrInsert (want a family whose maps are a table.Updater)", family, x.Family())
		}
		all = append(all, u)
	}
	return all, nil
}

// updating begins an Update.
func (t mapTables[K, V]) updating(with table.Combine) (*updates[K, V], error) {
	all, err := t.updaters()
	if err != nil {
		return nil, err
	}
	if _, err := table.CombineHeader(with, reflect.TypeFor[V]()); err != nil {
		return nil, err
	}
	return &updates[K, V]{tables: all, with: with}, nil
}

func (u *updates[K, V]) job(_ bool, why *error) job {
	return job{values: sent, owned: true, full: u.rest.noting(why), run: func(j int, st *device.Stream, r received) error {
		return u.tables[j].UpdateOn(st, device.View[K](r.keys, 0, r.n), valuesOf[V](r), u.with)
	}}
}

// again combines rows that were refused, of keys that are in after all.
func (u *updates[K, V]) again() (int, error) {
	return u.rest.again(func(owner int, keys []K, in []bool) error { return u.tables[owner].Contains(keys, in) },
		func(owner int, keys []K, values []V) error { return u.tables[owner].Update(keys, values, u.with) })
}

// keyedUpdate is how a map takes an Update in.
func (m *Map[K, V]) keyedUpdate(with table.Combine) (keyed[K], error) {
	u, err := m.tables.updating(with)
	if err != nil {
		return keyed[K]{}, err
	}
	x := m.keyed(u.job)
	x.again, x.undone, x.paired = u.again, u.rest.rows, true
	return x, nil
}

// Update combines the values of keys that are there with those that come, and puts the others: see table.Updater. In the independent mode, too, rows go to the
// owners of their keys; it is an error once keys are where device slices brought them, for then another device may have the key.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	x, err := m.keyedUpdate(with)
	if err != nil {
		return err
	}
	return insertKeyed(m.cluster, hostBatch[K, V]{keys: keys, values: values}, x)
}

// UpdateOn is Update on the device of the slices: see table.Updater.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error {
	return m.UpdateEach([]Part[K, V]{{Stream: st, Keys: keys, Values: values}}, with)
}

// UpdateEach is UpdateOn of a batch that is on several devices. FullError counts positions from the first part on.
func (m *Map[K, V]) UpdateEach(parts []Part[K, V], with table.Combine) error {
	x, err := m.keyedUpdate(with)
	if err != nil {
		return err
	}
	return insertParts(m.cluster, parts, false, true, x)
}

// finder is how a FindOrInsert of a map goes.
type finder[K, V any] struct {
	tables  []table.Updater[K, V]
	refused bool
}

func (f *finder[K, V]) job(added bool, why *error) job {
	return job{values: sent | back, flags: added, owned: true,
		full: func(_ int, e *table.FullError, _ received) error {
			*why, f.refused = e.Why, true
			return nil
		},
		run: func(j int, st *device.Stream, r received) error {
			return f.tables[j].FindOrInsertOn(st, device.View[K](r.keys, 0, r.n), valuesOf[V](r), outOf[V](r), flagsOf(r))
		}}
}

// FindOrInsert gives the values that are there, and puts the others: see table.Updater, and Update for the independent mode. After a FullError, device
// slices, too, have the zero value where a position found no room.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), len(values), len(out), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	tables, err := m.tables.updaters()
	if err != nil {
		return 0, err
	}
	f := &finder[K, V]{tables: tables}
	return counted(len(keys), added, func(added []bool) error {
		x := m.keyed(f.job)
		x.untried = func() { f.refused = true }
		err := insertKeyed(m.cluster, hostBatch[K, V]{keys: keys, values: values, out: out, flags: added}, x)
		if !f.refused {
			return err
		}
		full := (*table.FullError)(nil)
		if err != nil && !errors.As(err, &full) {
			return err
		}
		if full != nil {
			for _, p := range full.Positions {
				added[p] = false
			}
		}
		if wrong := m.Find(keys, out, nil); wrong != nil { // where another row of the key got in, out has nothing yet
			return notFound(err, wrong)
		}
		return err
	})
}

// notFound is the error of a FindOrInsert whose keys are in, but for those that err names, and whose values were not found.
func notFound(err, wrong error) error {
	which := "all keys"
	if err != nil {
		which = "all keys but those that were refused"
	}
	return table.OneLine(errors.Join(err, fmt.Errorf("%s: %s are in, but out and added may lack theirs: look them up: %w", family, which, wrong)))
}

// FindOrInsertOn is FindOrInsert on the device of the slices: see table.Updater.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error {
	tables, err := m.tables.updaters()
	if err != nil {
		return err
	}
	return m.cluster.locked(func() error {
		s, member, err := m.cluster.onDevice(st, keys, values, out, table.Optional(added))
		if err != nil {
			return err
		}
		s.values, s.out, s.flags = values.Addr(), out.Addr(), added.Addr()
		s.slices.values, s.slices.out, s.slices.flags = values.Raw(), out.Raw(), added.Raw()
		f := &finder[K, V]{tables: tables}
		err = insertSources(m.cluster, m.cluster.from(member, s), []int{member}, []int{0}, true, s.flags != 0, m.keyed(f.job))
		if !f.refused || err != nil && !errors.As(err, new(*table.FullError)) {
			return err
		}
		j := m.tables.finding(true, false)
		j.sources = m.cluster.from(member, source{n: s.n, keys: s.keys, out: s.out, st: st, slices: &received{n: s.n, keys: s.slices.keys, out: s.slices.out}})
		if wrong := m.cluster.exchange(&j); wrong != nil {
			return notFound(err, wrong)
		}
		return err
	})
}
