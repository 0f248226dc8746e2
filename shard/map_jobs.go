package shard

import (
	"fmt"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// mapTables are the tables of a map that are in this process, one a device, and the operations on them as jobs.
type mapTables[K, V any] []table.Map[K, V]

func (t mapTables[K, V]) putting(adds bool) putting {
	return putting{adds: adds, absence: t.finding(false), insert: func(why *error) job {
		return job{values: sent, flags: adds, full: noting(why), ordering: t.ordering(true), run: t.inserting(adds)}
	}}
}

func (t mapTables[K, V]) inserting(adds bool) operation {
	return func(i int, st *device.Stream, r received) error {
		keys, values := device.View[K](r.keys, 0, r.n), device.View[V](r.values, 0, r.n)
		x := sortedView(t[i], r.sorted)
		switch {
		case r.when.Addr() != 0: // rows that stay where they are
			c, ok := t[i].(table.Chooser[K, V])
			if !ok {
				return noChooser(t[i])
			}
			return c.InsertIfOn(st, keys, values, device.View[bool](r.when, 0, r.n))
		case adds:
			return x.InsertNewOn(st, keys, values, flagsOf(r))
		}
		return x.InsertOn(st, keys, values)
	}
}

func noChooser(x table.Table) error {
	return fmt.Errorf("%s: tables of %s have no InsertIf, which device slices in the independent mode ask for "+
		"(want a family whose tables are a table.Chooser)", family, x.Family())
}

// ordering returns how the tables want rows sorted.
func (t mapTables[K, V]) ordering(insert bool) func(i, rows int) (frame.Ordering, bool) {
	return func(i, rows int) (frame.Ordering, bool) { return orderingOf(t[i], rows, insert) }
}

// orderingOf returns how a table wants rows sorted; false if it takes them only as they come.
func orderingOf(x table.Table, rows int, insert bool) (frame.Ordering, bool) {
	orders, ok := x.(interface {
		Ordering(n int, insert bool) frame.Ordering
	})
	if !ok || !itself(x) {
		return frame.Ordering{}, false
	}
	o := orders.Ordering(rows, insert)
	return o, o.Seed != 0
}

// itself reports whether the methods of a table that package shard asks for are its own, and not those of a table that
// it embeds.
func itself(x any) bool {
	of, ok := x.(interface{ Itself() any })
	return !ok || reflect.TypeOf(of.Itself()) == reflect.TypeOf(x)
}

// sortedView returns the table as one of a sorted batch; without o it is the table.
func sortedView[T any](x T, o *frame.Sorted) T {
	if o == nil {
		return x
	}
	return any(x).(interface{ Sorted(o *frame.Sorted) T }).Sorted(o)
}

func (t mapTables[K, V]) finding(values bool) job {
	find := func(i int, st *device.Stream, r received) error {
		return sortedView(t[i], r.sorted).FindOn(st, device.View[K](r.keys, 0, r.n), outOf[V](r), flagsOf(r))
	}
	j := job{asks: true, flags: true, ordering: t.ordering(false), run: find}
	if values {
		j.values = back
	}
	return j
}

func (t mapTables[K, V]) deleting() job {
	erase := func(i int, st *device.Stream, r received) error {
		return sortedView(t[i], r.sorted).DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}
	return job{asks: true, erases: true, flags: true, ordering: t.ordering(false), run: erase}
}

// updaters are the tables of a map that combines values.
func (t mapTables[K, V]) updaters() (all []table.Updater[K, V], err error) {
	for _, x := range t {
		u, ok := x.(table.Updater[K, V])
		if !ok {
			return nil, fmt.Errorf("%s: maps of %s have no Update and no FindOrInsert (want a family whose maps are "+
				"a table.Updater)",
				family, x.Family())
		}
		all = append(all, u)
	}
	return all, nil
}

// updating begins an Update. Where tables have none, or cannot combine so, it is an error, and the putting is for
// members to hear of that.
func (t mapTables[K, V]) updating(with table.Combine) (putting, error) {
	all, err := t.updaters()
	if err == nil {
		_, err = frame.CombineHeader(with, reflect.TypeFor[V]())
	}
	refused := newRest[K, V](true)
	p := putting{absence: t.finding(false), undone: refused}
	p.insert = func(why *error) job {
		return job{values: sent, owned: true, full: refused.noting(why),
			run: func(i int, st *device.Stream, r received) error {
				return all[i].UpdateOn(st, device.View[K](r.keys, 0, r.n), valuesOf[V](r), with)
			}}
	}
	p.sums = func(i int, s source) (frame.Sums, error) { return sumsOf(t[i], s, true, with) }
	p.ofSums = func() putting { return p }
	p.again = func() (int, error) {
		return refused.again(
			func(i int, keys []byte, in []bool) error { return t[i].Contains(fromBytes[K](keys), in) },
			func(i int, keys, values []byte) error {
				return all[i].Update(fromBytes[K](keys), fromBytes[V](values), with)
			})
	}
	return p, err
}

// findingOrInserting begins a FindOrInsert: see updating.
func (t mapTables[K, V]) findingOrInserting() (putting, error) {
	all, err := t.updaters()
	find := func(i int, st *device.Stream, r received) error {
		keys := device.View[K](r.keys, 0, r.n)
		return all[i].FindOrInsertOn(st, keys, valuesOf[V](r), outOf[V](r), flagsOf(r))
	}
	return putting{adds: true, absence: t.finding(true), insert: func(why *error) job {
		return job{values: sent | back, flags: true, owned: true, full: noting(why), run: find}
	}}, err
}

// noMixed is the error of a family without mixed batches.
func noMixed(x table.Table) error {
	return fmt.Errorf("%s: tables of %s have no mixed batches (want a family whose tables are a table.Mixed)", family,
		x.Family())
}

// mixing begins a mixed batch.
func (t mapTables[K, V]) mixing() (func(why *error) job, error) {
	var all []table.Mixed[K, V]
	for _, x := range t {
		mixed, ok := x.(table.Mixed[K, V])
		if !ok {
			return nil, noMixed(x)
		}
		all = append(all, mixed)
	}
	return func(why *error) job {
		return job{values: sent | back, flags: true, mixed: true, owned: true, full: noting(why),
			run: func(i int, st *device.Stream, r received) error {
				return all[i].MixedOn(st, device.View[table.Op](r.marks, 0, r.n), device.View[K](r.keys, 0, r.n),
					valuesOf[V](r), outOf[V](r), statusOf(r))
			}}
	}, nil
}
