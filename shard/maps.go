package shard

import (
	"cmp"
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is a map over several devices: see table.Map, whose comments are the contract of the methods.
//
// It combines values, finds or inserts, and runs mixed batches (table.Updater, table.Mixed) where its devices' tables
// do: elsewhere these methods are errors that say so, and change nothing. It does chosen rows alone (table.Chooser)
// whatever its family, but for InsertIf where rows stay where they are.
//
// # Over devices of this process
//
// A batch comes as Go slices, as device slices on one of the devices, or, to the methods with Each, as device slices on
// several. In the independent mode device slices stay on their devices; Update, FindOrInsert and Mixed, which go to the
// owners of their keys all the same, are errors once keys have stayed elsewhere, until the table is cleared. All and
// Chunks give all pairs.
//
// # Over members of a job
//
// Each member has one device. All methods but All, Chunks, Devices, Steps and Close are collective: every member calls
// the same, in the same order, each with its own batch, which may be empty, in Go slices or on its device. They return
// when this member's part is done. Counts of what was added or deleted are this member's; Len, Stats and Grow are of
// all members. Of equal new keys, whoever brings them, one is added, and of equal keys to delete one removes the pair.
//
// All and Chunks give this member's part of the map: the pairs whose keys it owns, whoever brought them. The parts of
// all members are the whole. Between them and calls that change the map members must agree by themselves who goes
// first: Len, which is collective, will do.
//
// In the independent mode inserts stay with the member that brings them, Go slices, too; look-ups and deletions ask all
// members, of which the first that has the key is heard. All, Chunks and InsertNew's absent keys are then of what this
// member has, and a key is in Len as often as members have it. See doc.go.
//
// A member that is gone, or whose memory does not suffice, ends the call for all, with an error that names it, and the
// map is of no use from then on. Bad arguments of one member, a table that one has closed, and calls that differ are an
// error of that call at all of them, and nothing changes. So a call of a closed table is collective, too. Calls of
// several goroutines take turns, one table after the other; the caller sees to it that they come in the same order
// everywhere.
//
// *table.FullError names the positions of this member's batch that are not in, and its Capacity and Len are those of
// all members; a member all of whose keys are in has none.
type Map[K, V any] struct {
	handle
	tables mapTables[K, V]
}

var (
	_ table.Map[uint32, uint32]     = (*Map[uint32, uint32])(nil)
	_ table.Updater[uint32, uint32] = (*Map[uint32, uint32])(nil)
	_ table.Chooser[uint32, uint32] = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32]   = (*Map[uint32, uint32])(nil)
)

// NewMap makes an empty map over devices, or over the members of a job, of which each device gets a table that newTable
// makes: any family's. Its options are those of its part. Over members it is collective; all bring the same options,
// but for the seed, which is rank 0's.
//
// Errors: no device, or one that is there twice; K or V of a width that no table has; options out of range; newTable's;
// what device.Compile returns; of members, what is wrong with another's.
func NewMap[K, V any, O Over](over O, o Options,
	newTable func(d *device.Device, o table.Options) (table.Map[K, V], error)) (*Map[K, V], error) {
	h, tables, err := spread(over, frame.WidthsOf[K, V](), o, newTable)
	return frame.Made(&Map[K, V]{h, tables}, err)
}

// Insert puts or replaces pairs: see table.Map.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return m.x.put(hostRows[K, V]{keys: keys, values: values}.batch("Insert", len(values)), m.tables.putting(false))
}

// InsertOn is Insert on the device of the slices: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values}.batch("Insert", values)
	return m.x.put(b, m.tables.putting(false))
}

// InsertEach is InsertOn of a batch that is on several devices. FullError counts positions from the first part on.
func (m *Map[K, V]) InsertEach(parts []Part[K, V]) error {
	return m.x.put(partsOf("Insert", parts, true, false), m.tables.putting(false))
}

// InsertNew puts the pairs whose keys are absent: see table.Map. In the independent mode it looks where it inserts.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		b := hostRows[K, V]{keys: keys, values: values, flags: added}.batch("InsertNew", len(values), lens)
		return m.x.put(b, m.tables.putting(true))
	})
}

// InsertNewOn is InsertNew on the device of the slices; added may be the zero Slice: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	added device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, flags: added}.batch("InsertNew", values,
		frame.Optional(added))
	return m.x.put(b, m.tables.putting(true))
}

// InsertNewEach is InsertNewOn of a batch that is on several devices.
func (m *Map[K, V]) InsertNewEach(parts []Part[K, V]) error {
	return m.x.put(partsOf("InsertNew", parts, true, false), m.tables.putting(true))
}

// InsertIf is Insert of the pairs with when[i]: see table.Chooser.
func (m *Map[K, V]) InsertIf(keys []K, values []V, when []bool) error {
	b := hostRows[K, V]{keys: keys, values: values, when: when}.batch("InsertIf", len(values), len(when))
	return m.x.put(b, m.tables.putting(false))
}

// InsertIfOn is InsertIf on the device of the slices: see table.Chooser.
func (m *Map[K, V]) InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	when device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, when: when}.batch("InsertIf", values, when)
	return m.x.put(b, m.tables.putting(false))
}

// Update combines the values of keys that are there with those that come, and puts the others: see table.Updater.
// Members bring the same operation. In the independent mode see Map.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return m.update(hostRows[K, V]{keys: keys, values: values}.batch("Update by "+string(with), len(values)), with)
}

// UpdateOn is Update on the device of the slices: see table.Updater.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	with table.Combine) error {
	return m.update(deviceRows[K, V]{st: st, keys: keys, values: values}.batch("Update by "+string(with), values), with)
}

// UpdateEach is UpdateOn of a batch that is on several devices. FullError counts positions from the first part on.
func (m *Map[K, V]) UpdateEach(parts []Part[K, V], with table.Combine) error {
	return m.update(partsOf("Update by "+string(with), parts, true, false), with)
}

func (m *Map[K, V]) update(b batch, with table.Combine) error {
	p, err := m.tables.updating(with)
	b.wrong = cmp.Or(b.wrong, err)
	return m.x.put(b, p)
}

// FindOrInsert gives the values that are there, and puts the others: see table.Updater. Of equal new keys one is added,
// and its value is everybody's. After a FullError, device slices, too, have the zero value where a position found no
// room. In the independent mode see Map.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		b := hostRows[K, V]{keys: keys, values: values, out: out, flags: added}.batch("FindOrInsert", len(values),
			len(out), lens)
		return m.findOrInsert(b)
	})
}

// FindOrInsertOn is FindOrInsert on the device of the slices; added may be the zero Slice: see table.Updater.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V],
	added device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, out: out, flags: added}
	return m.findOrInsert(b.batch("FindOrInsert", values, out, frame.Optional(added)))
}

func (m *Map[K, V]) findOrInsert(b batch) error {
	p, err := m.tables.findingOrInserting()
	b.wrong = cmp.Or(b.wrong, err)
	return m.x.put(b, p)
}

// Mixed runs ops[i] on keys[i], for all i of all members at the same time: see table.Mixed. In the independent mode see
// Map.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	b := hostRows[K, V]{ops: ops, keys: keys, values: values, out: results, status: status}.batch("Mixed",
		len(ops), len(values), frame.OptionalLen(results), frame.OptionalLen(status))
	b.wrong = cmp.Or(b.wrong, frame.CheckOps(ops))
	return m.mixed(b)
}

// MixedOn is Mixed on the device of the slices; results and status may be zero Slices: see table.Mixed.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values,
	results device.Slice[V],
	status device.Slice[table.Status]) error {
	b := deviceRows[K, V]{st: st, ops: ops, keys: keys, values: values, out: results, status: status}
	return m.mixed(b.batch("Mixed", ops, values, frame.Optional(results), frame.Optional(status)))
}

func (m *Map[K, V]) mixed(b batch) error {
	mix, err := m.tables.mixing()
	b.wrong = cmp.Or(b.wrong, err)
	return m.x.mix(b, mix)
}

// Find writes each key's value, and whether it was found; either may be nil: see table.Map.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	b := hostRows[K, V]{keys: keys, out: values, flags: found}.batch("Find", frame.OptionalLen(values),
		frame.OptionalLen(found))
	return m.x.ask(b, m.tables.finding(true))
}

// FindOn is Find on the device of the slices; values and found may be zero Slices: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, out: values, flags: found}.batch("Find", frame.Optional(values),
		frame.Optional(found))
	return m.x.ask(b, m.tables.finding(true))
}

// FindEach is FindOn of a batch that is on several devices.
func (m *Map[K, V]) FindEach(parts []Part[K, V]) error {
	return m.x.ask(partsOf("Find", parts, false, false), m.tables.finding(true))
}

// FindIf is Find of the keys with when[i]: see table.Chooser.
func (m *Map[K, V]) FindIf(keys []K, when []bool, values []V, found []bool) error {
	b := hostRows[K, V]{keys: keys, when: when, out: values, flags: found}.batch("FindIf",
		len(when), frame.OptionalLen(values), frame.OptionalLen(found))
	return m.x.ask(b, m.tables.finding(true))
}

// FindIfOn is FindIf on the device of the slices; values and found may be zero Slices: see table.Chooser.
func (m *Map[K, V]) FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V],
	found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, when: when, out: values, flags: found}
	return m.x.ask(b.batch("FindIf", when, frame.Optional(values), frame.Optional(found)), m.tables.finding(true))
}

// Contains is Find without values: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error {
	return m.x.ask(hostRows[K, V]{keys: keys, flags: found}.batch("Contains", len(found)), m.tables.finding(false))
}

// ContainsOn is Contains on the device of the slices: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.x.ask(deviceRows[K, V]{st: st, keys: keys, flags: found}.batch("Contains", found), m.tables.finding(false))
}

// ContainsIf is FindIf without values: see table.Chooser.
func (m *Map[K, V]) ContainsIf(keys []K, when, found []bool) error {
	b := hostRows[K, V]{keys: keys, when: when, flags: found}.batch("ContainsIf", len(when), len(found))
	return m.x.ask(b, m.tables.finding(false))
}

// ContainsIfOn is ContainsIf on the device of the slices: see table.Chooser.
func (m *Map[K, V]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, when: when, flags: found}.batch("ContainsIf", when, found)
	return m.x.ask(b, m.tables.finding(false))
}

// Delete removes keys: see table.Map.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	lens := frame.OptionalLen(deleted)
	return counted(len(keys), deleted, func(deleted []bool) error {
		return m.x.ask(hostRows[K, V]{keys: keys, flags: deleted}.batch("Delete", lens), m.tables.deleting())
	})
}

// DeleteOn is Delete on the device of the slices; deleted may be the zero Slice: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, flags: deleted}.batch("Delete", frame.Optional(deleted))
	return m.x.ask(b, m.tables.deleting())
}

// DeleteEach is DeleteOn of a batch that is on several devices.
func (m *Map[K, V]) DeleteEach(parts []Part[K, V]) error {
	return m.x.ask(partsOf("Delete", parts, false, false), m.tables.deleting())
}

// All exports every pair, of a member those of its part, in no order. It is not collective.
func (m *Map[K, V]) All() (keys []K, values []V, err error) {
	return exportPairs(m.handle, len(m.tables), func(i int) ([]K, []V, error) { return m.tables[i].All() })
}

// Chunks gives every pair, of a member those of its part, to do, in chunks, one device's after the other's: see
// table.Map. It is not collective, and a member knows of changes to its own part alone.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return chunkPairs(m.handle, func(i int, do func([]K, []V) error) error { return m.tables[i].Chunks(ctx, do) }, do)
}

// Check walks the invariants of every device's table, and in the distributed mode sees that each key is where it
// belongs: for tests and for the suspicious. Slow. Of members it is collective.
func (m *Map[K, V]) Check() error {
	return checkKeys(m.handle, func(i int) ([]K, error) { keys, _, err := m.tables[i].All(); return keys, err })
}
