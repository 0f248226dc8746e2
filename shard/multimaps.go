package shard

import (
	"context"
	"errors"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is a multimap over several devices. The comments of table.MultiMap are the contract of its methods; Map says
// what is different over members of a job. In the independent mode, the values of a key come from all devices, one
// device after the other.
//
// In the distributed mode, if a member has no room, FullError names positions only with Options.MaxBytes: then the
// outcome of each row comes back, one byte a row. Without MaxBytes, all members get an error that names the member that
// lacks memory. Some pairs may be in then, and it is not known which.
type MultiMap[K, V any] struct {
	handle
	tables multiTables[K, V]
}

var _ table.MultiMap[uint32, uint32] = (*MultiMap[uint32, uint32])(nil)

// NewMultiMap makes an empty multimap over devices, or over the members of a job: see NewMap.
func NewMultiMap[K, V any, O Over](over O, o Options,
	newTable func(d *device.Device, o table.Options) (table.MultiMap[K, V], error)) (*MultiMap[K, V], error) {
	h, tables, err := spread(over, frame.WidthsOf[K, V](), o, newTable)
	return frame.Made(&MultiMap[K, V]{h, tables}, err)
}

// multiTables are the tables of a multimap that are in this process, one a device, and the operations on them as jobs.
type multiTables[K, V any] []table.MultiMap[K, V]

// inserting is the job of an insert, but for what becomes of rows that find no room.
func (t multiTables[K, V]) inserting() job {
	return job{values: sent,
		ordering: func(i, rows int) (frame.Ordering, bool) { return orderingOf(t[i], rows, true) },
		run: func(i int, st *device.Stream, r received) error {
			keys, values := device.View[K](r.keys, 0, r.n), device.View[V](r.values, 0, r.n)
			return sortedView(t[i], r.sorted).InsertOn(st, keys, values)
		}}
}

func (t multiTables[K, V]) finding() job {
	return job{asks: true, flags: true, run: func(i int, st *device.Stream, r received) error {
		return t[i].ContainsOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

func (t multiTables[K, V]) counting() job {
	return job{asks: true, values: back, counts: true, sum: true,
		run: func(i int, st *device.Stream, r received) error {
			return t[i].CountOn(st, device.View[K](r.keys, 0, r.n), outOf[uint32](r))
		}}
}

func (t multiTables[K, V]) deleting() job {
	return job{asks: true, erases: true, flags: true, run: func(i int, st *device.Stream, r received) error {
		return t[i].DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

// finder finds all values of rows that an owner got, and puts them into memory that other devices can read.
func (t multiTables[K, V]) finder(owner int, st *device.Stream, r received) (l list, err error) {
	offsets, values, err := t[owner].FindAllOn(st, device.View[K](r.keys, 0, r.n))
	if err != nil {
		return l, err
	}
	d := st.Device()
	if l.offsets, err = device.Make[uint64](d, offsets.Len()); err == nil {
		l.values, err = device.Make[byte](d, int(values.Bytes()))
	}
	if err == nil {
		err = errors.Join(l.offsets.CopyFrom(st, offsets), l.values.CopyFrom(st, values.Raw()))
	}
	return l, errors.Join(err, offsets.FreeAfter(st), values.FreeAfter(st))
}

func (t multiTables[K, V]) listing() listing { return listing{t.counting(), t.finder} }

// Insert adds pairs: see table.MultiMap.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return m.over().add(hostRows[K, V]{keys: keys, values: values}.batch("Insert", len(values)), m.tables.inserting())
}

// InsertOn does what Insert does, on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	rows := deviceRows[K, V]{st: st, keys: keys, values: values}
	return m.over().add(rows.batch("Insert", values), m.tables.inserting())
}

// InsertEach does what InsertOn does, with a batch that is on several devices. FullError counts positions from the
// first part on.
func (m *MultiMap[K, V]) InsertEach(parts []Part[K, V]) error {
	return m.over().add(partsOf("Insert", parts, true, false), m.tables.inserting())
}

// Contains tells of each key whether it has a value: see table.MultiMap.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	return m.over().ask(hostRows[K, V]{keys: keys, flags: found}.batch("Contains", len(found)), m.tables.finding())
}

// ContainsOn does what Contains does, on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.over().ask(deviceRows[K, V]{st: st, keys: keys, flags: found}.batch("Contains", found), m.tables.finding())
}

// ContainsEach does what ContainsOn does, with a batch that is on several devices.
func (m *MultiMap[K, V]) ContainsEach(parts []Part[K, V]) error {
	return m.over().ask(partsOf("Contains", parts, false, true), m.tables.finding())
}

// Count writes how many values each key has: see table.MultiMap.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return m.over().ask(hostRows[K, uint32]{keys: keys, out: counts}.batch("Count", len(counts)), m.tables.counting())
}

// CountOn does what Count does, on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return m.over().ask(deviceRows[K, uint32]{st: st, keys: keys, out: counts}.batch("Count", counts), m.tables.counting())
}

// FindAll gives all values of each key: see table.MultiMap.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	offsets = []uint64{0}
	b := hostRows[K, V]{keys: keys}.batch("FindAll")
	err = m.over().lists(b, m.tables.listing(), func(o device.Slice[uint64], v device.Slice[byte]) (err error) {
		defer func() { err = errors.Join(err, o.Free(), v.Free()) }()
		found, err := frame.Host(nil, valuesIn[V](v))
		if err != nil {
			return err
		}
		at, err := frame.Host(nil, o)
		if err != nil {
			return err
		}
		for _, x := range at[1:] {
			offsets = append(offsets, uint64(len(values))+x)
		}
		if values == nil {
			values = found
		} else {
			values = append(values, found...)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return offsets, values, nil
}

// FindAllOn does what FindAll does, on the device of the keys: see table.MultiMap. It makes the device slices that it
// returns, and the caller frees them. It waits for the stream. Cost: the keys are looked up twice, first for how many
// values they have; all values take memory on their owners and on this device.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64],
	values device.Slice[V], err error) {
	b := deviceRows[K, V]{st: st, keys: keys}.batch("FindAll")
	err = m.over().lists(b, m.tables.listing(), func(o device.Slice[uint64], v device.Slice[byte]) error {
		offsets, values = o, valuesIn[V](v)
		return nil
	})
	return offsets, values, err
}

// valuesIn are bytes as values.
func valuesIn[V any](b device.Slice[byte]) device.Slice[V] {
	return device.View[V](b, 0, b.Len()/int(unsafe.Sizeof(*new(V))))
}

// Delete removes all values of each key, and counts the pairs: see table.MultiMap. Over members, the count is of the
// pairs that all members removed with this call, together.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (n int, err error) {
	b := hostRows[K, V]{keys: keys, flags: deleted}.batch("Delete", frame.OptionalLen(deleted))
	return m.over().remove(b, m.tables.deleting())
}

// DeleteOn does what Delete does, on the device of the slices; deleted may be the zero Slice: see table.MultiMap.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, flags: deleted}.batch("DeleteOn", frame.Optional(deleted)) // has no count
	return m.over().ask(b, m.tables.deleting())
}

// All exports every pair, in no order. A member gets the pairs of its own part; the call is not collective.
func (m *MultiMap[K, V]) All() (keys []K, values []V, err error) {
	return exportPairs(m.handle, len(m.tables), func(i int) ([]K, []V, error) { return m.tables[i].All() })
}

// Chunks calls do with every pair, in chunks, one device after the other: see Map. A member gets the pairs of its own
// part.
func (m *MultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return chunkPairs(m.handle, func(i int, do func([]K, []V) error) error { return m.tables[i].Chunks(ctx, do) }, do)
}

// Check walks the invariants of every device's multimap. In the distributed mode it also checks that each key is where
// it belongs. Check is slow. Over members it is collective.
func (m *MultiMap[K, V]) Check() error {
	return checkKeys(m.handle, func(i int) ([]K, error) { keys, _, err := m.tables[i].All(); return keys, err })
}
