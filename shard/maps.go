package shard

import (
	"context"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Map is a map over several devices: see table.Map, whose comments are the contract of the methods. A batch comes as Go slices, as device
// slices on one of the devices, or, to the methods with Each, as device slices on several.
//
// It combines values, finds or inserts, runs mixed batches and does chosen rows alone (table.Updater, table.Mixed, table.Chooser) where its devices' tables do:
// elsewhere these methods are errors that say so, and change nothing.
type Map[K, V any] struct {
	handle
	tables mapTables[K, V]
}

var _ table.Map[uint32, uint32] = (*Map[uint32, uint32])(nil)

// mapTables are the tables of a map, one a device, and the operations on them as jobs.
type mapTables[K, V any] []table.Map[K, V]

// NewMap makes an empty map over the devices, each of which gets a table that newTable makes: any family's. Its options are those of its part.
//
// Errors: no device, or one that is there twice; K or V of a width that no table has; options out of range; newTable's; what device.Compile returns.
func NewMap[K, V any](devices []*device.Device, o Options, newTable func(d *device.Device, o table.Options) (table.Map[K, V], error)) (*Map[K, V], error) {
	m := &Map[K, V]{tables: make(mapTables[K, V], len(devices))}
	var err error
	m.cluster, err = newCluster(devices, table.WidthsOf[K, V](), o, func(i int, d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		m.tables[i] = t
		return t, err
	})
	return table.Made(m, err)
}

func (t mapTables[K, V]) inserting(added bool, why *error) job {
	j := job{values: sent, flags: added, full: fullFor(why), run: func(j int, st *device.Stream, r received) error {
		keys, values := device.View[K](r.keys, 0, r.n), device.View[V](r.values, 0, r.n)
		switch {
		case r.ordered:
			return t[j].(table.Orderer[K, V]).InsertOrderedOn(st, keys, values)
		case r.when.Addr() != 0:
			return t.insertIf(j, st, keys, values, device.View[bool](r.when, 0, r.n))
		case added:
			return t[j].InsertNewOn(st, keys, values, flagsOf(r))
		}
		return t[j].InsertOn(st, keys, values)
	}}
	if !added {
		j.ordering = t.ordering
	}
	return j
}

func (t mapTables[K, V]) finding(values, found bool) job {
	j := job{asks: true, flags: found, ordering: t.ordering, run: func(j int, st *device.Stream, r received) error {
		keys := device.View[K](r.keys, 0, r.n)
		if r.ordered {
			return t[j].(table.Orderer[K, V]).FindOrderedOn(st, keys, outOf[V](r), flagsOf(r))
		}
		return t[j].FindOn(st, keys, outOf[V](r), flagsOf(r))
	}}
	if values {
		j.values = back
	}
	return j
}

func (t mapTables[K, V]) deleting(deleted bool) job {
	return job{asks: true, erases: true, flags: deleted, run: func(j int, st *device.Stream, r received) error {
		return t[j].DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

// absence is the job that tells which keys are in.
func (t mapTables[K, V]) absence() job { return t.finding(false, true) }

// valuesOf are the values of rows that came; the zero Slice where there are none.
func valuesOf[V any](r received) device.Slice[V] {
	if r.values.Addr() == 0 {
		return device.Slice[V]{}
	}
	return device.View[V](r.values, 0, r.n)
}

// outOf is where the values of rows that come back go; the zero Slice where none do.
func outOf[V any](r received) device.Slice[V] {
	if r.out.Addr() == 0 {
		return device.Slice[V]{}
	}
	return device.View[V](r.out, 0, r.n)
}

// flagsOf are the flags of rows; the zero Slice where there are none.
func flagsOf(r received) device.Slice[bool] {
	if r.flags.Addr() == 0 {
		return device.Slice[bool]{}
	}
	return device.View[bool](r.flags, 0, r.n)
}

// fullFor notes why a table is full; which keys are not in is asked later.
func fullFor(why *error) func(int, *table.FullError, received) error {
	return func(_ int, e *table.FullError, _ received) error {
		*why = e.Why
		return nil
	}
}

// keyed is how a map takes batches in.
func (m *Map[K, V]) keyed(insert inserts) keyed[K] {
	return keyed[K]{insert: insert, absence: m.tables.absence, contains: m.Contains}
}

// Insert puts or replaces pairs: see table.Map.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertKeyed(m.cluster, hostBatch[K, V]{keys: keys, values: values}, m.keyed(m.tables.inserting))
}

// InsertNew puts the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), len(values), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	return counted(len(keys), added, func(added []bool) error {
		return insertKeyed(m.cluster, hostBatch[K, V]{keys: keys, values: values, flags: added}, m.keyed(m.tables.inserting))
	})
}

// InsertOn is Insert on the device of the slices: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.InsertEach([]Part[K, V]{{Stream: st, Keys: keys, Values: values}})
}

// InsertEach is InsertOn of a batch that is on several devices. FullError counts positions from the first part on.
func (m *Map[K, V]) InsertEach(parts []Part[K, V]) error {
	return insertParts(m.cluster, parts, false, true, m.keyed(m.tables.inserting))
}

// InsertNewOn is InsertNew on the device of the slices: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return m.InsertNewEach([]Part[K, V]{{Stream: st, Keys: keys, Values: values, Flags: added}})
}

// InsertNewEach is InsertNewOn of a batch that is on several devices.
func (m *Map[K, V]) InsertNewEach(parts []Part[K, V]) error {
	return insertParts(m.cluster, parts, true, true, m.keyed(m.tables.inserting))
}

// Find writes each key's value, and whether it was found: see table.Map.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return look(m.cluster, hostBatch[K, V]{keys: keys, out: values, flags: found}, m.tables.finding(values != nil, found != nil))
}

// FindOn is Find on the device of the slices: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return m.FindEach([]Part[K, V]{{Stream: st, Keys: keys, Values: values, Flags: found}})
}

// FindEach is FindOn of a batch that is on several devices.
func (m *Map[K, V]) FindEach(parts []Part[K, V]) error {
	values, found := wanted(parts)
	return lookParts(m.cluster, parts, false, m.tables.finding(values, found))
}

// Contains is Find without values: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error {
	if err := family.CheckLens(len(keys), len(found)); err != nil {
		return err
	}
	return look(m.cluster, hostBatch[K, V]{keys: keys, flags: found}, m.tables.finding(false, true))
}

// ContainsOn is Contains on the device of the slices: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return lookParts(m.cluster, []Part[K, V]{{Stream: st, Keys: keys, Flags: found}}, true, m.tables.finding(false, true))
}

// Delete removes keys: see table.Map.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	return counted(len(keys), deleted, func(deleted []bool) error {
		return look(m.cluster, hostBatch[K, V]{keys: keys, flags: deleted}, m.tables.deleting(true))
	})
}

// DeleteOn is Delete on the device of the slices: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return m.DeleteEach([]Part[K, V]{{Stream: st, Keys: keys, Flags: deleted}})
}

// DeleteEach is DeleteOn of a batch that is on several devices.
func (m *Map[K, V]) DeleteEach(parts []Part[K, V]) error {
	_, deleted := wanted(parts)
	return lookParts(m.cluster, parts, false, m.tables.deleting(deleted))
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() (keys []K, values []V, err error) {
	err = m.cluster.locked(func() (err error) {
		keys, values, err = allPairs(m.cluster, func(i int) ([]K, []V, error) { return m.tables[i].All() })
		return err
	})
	return keys, values, err
}

// Chunks gives every pair to do, in chunks, one device's after the other's: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return m.cluster.chunks(func(i int, unchanged func() error) error {
		return m.tables[i].Chunks(ctx, func(keys []K, values []V) error {
			if err := unchanged(); err != nil {
				return err
			}
			return do(keys, values)
		})
	})
}

// Check walks the invariants of every device's table, and in the distributed mode sees that each key is where it belongs: for tests and for the suspicious. Slow.
func (m *Map[K, V]) Check() error {
	return m.cluster.check(func(i int) ([]uint64, error) {
		keys, _, err := m.tables[i].All()
		return patterns(keys), err
	})
}

// patterns are keys as numbers.
func patterns[K any](keys []K) []uint64 {
	out := make([]uint64, len(keys))
	for i := range keys {
		if unsafe.Sizeof(keys[i]) == 4 {
			out[i] = uint64(*(*uint32)(unsafe.Pointer(&keys[i])))
		} else {
			copy((*[8]byte)(unsafe.Pointer(&out[i]))[:], unsafe.Slice((*byte)(unsafe.Pointer(&keys[i])), 8))
		}
	}
	return out
}
