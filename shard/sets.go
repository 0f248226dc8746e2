package shard

import (
	"cmp"
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Set is a set over several devices. The comments of table.Set are the contract of its methods; Map says what is
// different over members of a job. Set runs mixed batches where its devices' tables do, and does chosen rows alone
// (table.KeyChooser) as Map does.
type Set[K any] struct {
	handle
	tables setTables[K]
}

var (
	_ table.Set[uint32]        = (*Set[uint32])(nil)
	_ table.KeyChooser[uint32] = (*Set[uint32])(nil)
)

// NewSet makes an empty set over devices, or over the members of a job: see NewMap.
func NewSet[K any, O Over](over O, o Options, newTable func(d *device.Device, o table.Options) (table.Set[K],
	error)) (*Set[K], error) {
	h, tables, err := spread(over, frame.WidthOfKeys[K](), o, newTable)
	return frame.Made(&Set[K]{h, tables}, err)
}

// setTables are the tables of a set that are in this process, one a device, and the operations on them as jobs.
type setTables[K any] []table.Set[K]

// ordering returns how the tables want rows sorted.
func (t setTables[K]) ordering(insert bool) func(i, rows int) (frame.Ordering, bool) {
	return func(i, rows int) (frame.Ordering, bool) { return orderingOf(t[i], rows, insert) }
}

func (t setTables[K]) putting() putting {
	return putting{adds: true, absence: t.finding(), insert: func(why *error) job {
		return job{flags: true, full: noting(why), ordering: t.ordering(true), run: t.inserting}
	}}
}

func (t setTables[K]) inserting(i int, st *device.Stream, r received) error {
	keys := device.View[K](r.keys, 0, r.n)
	if r.when.Addr() == 0 {
		return sortedView(t[i], r.sorted).InsertOn(st, keys, flagsOf(r))
	}
	c, ok := t[i].(table.KeyChooser[K]) // rows that stay where they are
	if !ok {
		return noChooser(t[i])
	}
	return c.InsertIfOn(st, keys, device.View[bool](r.when, 0, r.n), flagsOf(r))
}

func (t setTables[K]) finding() job {
	find := func(i int, st *device.Stream, r received) error {
		return sortedView(t[i], r.sorted).ContainsOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}
	return job{asks: true, flags: true, ordering: t.ordering(false), run: find}
}

func (t setTables[K]) deleting() job {
	erase := func(i int, st *device.Stream, r received) error {
		return sortedView(t[i], r.sorted).DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}
	return job{asks: true, erases: true, flags: true, ordering: t.ordering(false), run: erase}
}

// mixedKeys is a set that runs mixed batches.
type mixedKeys[K any] interface {
	MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K],
		status device.Slice[table.Status]) error
}

// mixing begins a mixed batch.
func (t setTables[K]) mixing() (func(why *error) job, error) {
	var all []mixedKeys[K]
	for _, x := range t {
		mixed, ok := x.(mixedKeys[K])
		if !ok {
			return nil, noMixed(x)
		}
		all = append(all, mixed)
	}
	return func(why *error) job {
		return job{flags: true, mixed: true, owned: true, full: noting(why),
			run: func(i int, st *device.Stream, r received) error {
				return all[i].MixedOn(st, device.View[table.Op](r.marks, 0, r.n), device.View[K](r.keys, 0, r.n),
					statusOf(r))
			}}
	}, nil
}

// Insert puts the keys that are absent: see table.Set.
func (s *Set[K]) Insert(keys []K, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		return s.over().put(hostRows[K, byte]{keys: keys, flags: added}.batch("Insert", lens), s.tables.putting())
	})
}

// InsertOn does what Insert does, on the device of the slices; added may be the zero Slice: see table.Set.
func (s *Set[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	b := deviceRows[K, byte]{st: st, keys: keys, flags: added}.batch("Insert", frame.Optional(added))
	return s.over().put(b, s.tables.putting())
}

// InsertEach does what InsertOn does, with a batch that is on several devices. FullError counts positions from the
// first part on.
func (s *Set[K]) InsertEach(parts []Part[K, byte]) error {
	return s.over().put(partsOf("Insert", parts, false, false), s.tables.putting())
}

// InsertIf puts those absent keys whose when[i] is true: see table.KeyChooser.
func (s *Set[K]) InsertIf(keys []K, when, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		b := hostRows[K, byte]{keys: keys, when: when, flags: added}.batch("InsertIf", len(when), lens)
		return s.over().put(b, s.tables.putting())
	})
}

// InsertIfOn does what InsertIf does, on the device of the slices; added may be the zero Slice: see table.KeyChooser.
func (s *Set[K]) InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error {
	b := deviceRows[K, byte]{st: st, keys: keys, when: when, flags: added}.batch("InsertIf", when,
		frame.Optional(added))
	return s.over().put(b, s.tables.putting())
}

// Mixed runs ops[i] on keys[i], for all i of all members at the same time: see table.Mixed. For the independent mode
// see Map.
func (s *Set[K]) Mixed(ops []table.Op, keys []K, status []table.Status) error {
	b := hostRows[K, byte]{ops: ops, keys: keys, status: status}.batch("Mixed", len(ops), frame.OptionalLen(status))
	b.wrong = cmp.Or(b.wrong, frame.CheckOps(ops))
	return s.mixed(b)
}

// MixedOn does what Mixed does, on the device of the slices; status may be the zero Slice.
func (s *Set[K]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K],
	status device.Slice[table.Status]) error {
	b := deviceRows[K, byte]{st: st, ops: ops, keys: keys, status: status}
	return s.mixed(b.batch("Mixed", ops, frame.Optional(status)))
}

func (s *Set[K]) mixed(b batch) error {
	mix, err := s.tables.mixing()
	b.wrong = cmp.Or(b.wrong, err)
	return s.over().mix(b, mix)
}

// Contains tells of each key whether the set has it: see table.Set.
func (s *Set[K]) Contains(keys []K, found []bool) error {
	return s.over().ask(hostRows[K, byte]{keys: keys, flags: found}.batch("Contains", len(found)), s.tables.finding())
}

// ContainsOn does what Contains does, on the device of the slices: see table.Set.
func (s *Set[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return s.over().ask(deviceRows[K, byte]{st: st, keys: keys, flags: found}.batch("Contains", found), s.tables.finding())
}

// ContainsEach does what ContainsOn does, with a batch that is on several devices.
func (s *Set[K]) ContainsEach(parts []Part[K, byte]) error {
	return s.over().ask(partsOf("Contains", parts, false, true), s.tables.finding())
}

// ContainsIf tells whether the set has each key whose when[i] is true: see table.KeyChooser.
func (s *Set[K]) ContainsIf(keys []K, when, found []bool) error {
	b := hostRows[K, byte]{keys: keys, when: when, flags: found}.batch("ContainsIf", len(when), len(found))
	return s.over().ask(b, s.tables.finding())
}

// ContainsIfOn does what ContainsIf does, on the device of the slices: see table.KeyChooser.
func (s *Set[K]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	b := deviceRows[K, byte]{st: st, keys: keys, when: when, flags: found}.batch("ContainsIf", when, found)
	return s.over().ask(b, s.tables.finding())
}

// Delete removes keys: see table.Set.
func (s *Set[K]) Delete(keys []K, deleted []bool) (int, error) {
	lens := frame.OptionalLen(deleted)
	return counted(len(keys), deleted, func(deleted []bool) error {
		return s.over().ask(hostRows[K, byte]{keys: keys, flags: deleted}.batch("Delete", lens), s.tables.deleting())
	})
}

// DeleteOn does what Delete does, on the device of the slices; deleted may be the zero Slice: see table.Set.
func (s *Set[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	b := deviceRows[K, byte]{st: st, keys: keys, flags: deleted}.batch("Delete", frame.Optional(deleted))
	return s.over().ask(b, s.tables.deleting())
}

// All exports every key, in no order. A member gets the keys of its own part; the call is not collective.
func (s *Set[K]) All() (keys []K, err error) {
	keys, _, err = exportPairs(s.handle, len(s.tables),
		func(i int) ([]K, []byte, error) { k, err := s.tables[i].All(); return k, nil, err })
	return keys, err
}

// Chunks calls do with every key, in chunks, one device after the other: see Map. A member gets the keys of its own
// part. In the independent mode, a key may come once for each device.
func (s *Set[K]) Chunks(ctx context.Context, do func(keys []K) error) error {
	chunks := func(i int, do func([]K, []byte) error) error {
		return s.tables[i].Chunks(ctx, func(keys []K) error { return do(keys, nil) })
	}
	return chunkPairs(s.handle, chunks, func(keys []K, _ []byte) error { return do(keys) })
}

// Check walks the invariants of every device's set. In the distributed mode it also checks that each key is where it
// belongs. Check is slow. Over members it is collective.
func (s *Set[K]) Check() error {
	return checkKeys(s.handle, func(i int) ([]K, error) { return s.tables[i].All() })
}
