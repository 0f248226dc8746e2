package shard

import (
	"cmp"
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is a map over several devices. The comments of table.Map are the contract of its methods.
//
// Map combines values, finds or inserts, and runs mixed batches (table.Updater, table.Mixed) where its devices' tables
// do. With tables that do not, these methods return an error that says so, and change nothing. Map does chosen rows
// alone (table.Chooser) whatever its family. The exception is InsertIf where rows stay where they are: there the
// devices' tables must have it.
//
// # Over devices of this process
//
// A batch comes as Go slices, as device slices on one device, or, to the methods with Each, as device slices on several
// devices. In the independent mode, device slices stay on their devices. Update, FindOrInsert and Mixed still send rows
// to the owners of their keys. Once keys have stayed elsewhere, these three methods return errors until the table is
// cleared. All and Chunks give all pairs.
//
// The methods with On and Each wait until the rows of the batch are counted by owner or, in a small batch, split by
// owner, and so for the work before them on the caller's stream. Update also waits until rows of equal keys are
// combined, and all methods wait where a device's table waits. The rest is queued, and the work that follows on the
// caller's stream waits for it. Nothing is counted over a single device (unless rows are chosen), in look-ups of up to
// Options.AskAll keys, and of the independent mode in inserts, look-ups and deletions. A stream that is captured into a
// CUDA graph is an error over several devices (device.ErrCapturing).
//
// A type of your own that embeds a table of package warpcore gets all rows by its own methods, in any order.
//
// If a device's table has no room or no memory for some rows, *table.FullError names them, and all others are in. It
// also names rows of Go slices for which there is no memory to bring them to a device, or to send them from there. If
// there is no memory to send rows of device slices, the error is a *device.OutOfMemoryError, and none of them is in. In
// all these cases the map can be used as before.
//
// # Over members of a job
//
// Each member has one device. All methods but All, Chunks, OwnLen, Devices, Steps, Family and Close are collective:
// every member makes the same calls in the same order, each with its own batch. A batch may be empty, and comes in Go
// slices or on the member's device. A call returns when this member's part is done. Counts of what was added or deleted
// are this member's; Len, Stats and Grow are of all members. If a new key comes several times, from any members, it is
// added once. If a key is to be deleted several times, one of these deletions removes the pair.
//
// All and Chunks give this member's part of the map: the pairs whose keys it owns, whichever member brought them. The
// parts of all members together are the whole map. Between All or Chunks and calls that change the map, members must
// agree by themselves who goes first. A call of Len, which is collective, will do. OwnLen counts this member's part, and
// package snapshot saves it.
//
// In the independent mode, inserts stay with the member that brings them, Go slices included. Look-ups and deletions
// ask all members, and the answer comes from the first member that has the key. All, Chunks and InsertNew's absent keys
// then concern only what this member has, and Len counts a key once for each member that has it. See doc.go.
//
// If one member brings bad arguments, if one has closed the table, or if calls differ, all members get an error of that
// call, and nothing changes. So a call of a closed table is collective, too. Calls of several goroutines take turns,
// one table after the other; the caller must see to it that they come in the same order everywhere.
//
// What a lack of memory does depends on what the memory is for:
//
//   - The table of a member has no room for pairs, for want of memory or because of MaxBytes. *table.FullError names
//     the positions of this member's batch that are not in the map. Its Capacity and Len are those of all members. A
//     member gets no FullError if all of its keys are in. The map can be used as before.
//   - A member cannot copy its Go slices to its device. All members get an error of that call, and nothing changes.
//   - A member has no memory for the rows that come to it, or for the results that go back. All members try again with
//     smaller pieces. If the smallest piece is too large, all members get an error of that call that names this member,
//     nothing changes, and the map can be used as before.
//
// If a member is gone, or if its part of an exchange fails halfway, the call ends for all members with an error that
// names this member. Some rows may be in. All tables of the job are of no use from then on.
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

// NewMap makes an empty map over devices, or over the members of a job. newTable makes the table of each device, of any
// family, with the options of its part. Over members NewMap is collective. All members bring the same options, except
// for the seed: rank 0's seed counts.
//
// Errors: no device, or the same device twice; GPUs beside CPU devices; K or V of a width that no table has; options
// out of range; newTable's errors; over members, what is wrong with another member's arguments. If kernels must be
// compiled: device.ErrNoCompiler or device.ErrNoNVRTC, if there is nothing to compile them with, or
// *device.CompileError with the compiler's words. Cost: compiling the kernels that spread rows, a few seconds the first
// time on a machine, and what newTable costs on each device.
func NewMap[K, V any, O Over](over O, o Options,
	newTable func(d *device.Device, o table.Options) (table.Map[K, V], error)) (*Map[K, V], error) {
	h, tables, err := spread(over, frame.WidthsOf[K, V](), o, newTable)
	return frame.Made(&Map[K, V]{h, tables}, err)
}

// Insert puts or replaces pairs: see table.Map.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return m.over().put(hostRows[K, V]{keys: keys, values: values}.batch("Insert", len(values)), m.tables.putting(false))
}

// InsertOn does what Insert does, on the device of the slices: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values}.batch("Insert", values)
	return m.over().put(b, m.tables.putting(false))
}

// InsertEach does what InsertOn does, with a batch that is on several devices. FullError counts positions from the
// first part on.
func (m *Map[K, V]) InsertEach(parts []Part[K, V]) error {
	return m.over().put(partsOf("Insert", parts, true, false), m.tables.putting(false))
}

// InsertNew puts the pairs whose keys are absent: see table.Map. In the independent mode, it looks for a key only on
// the device where it inserts it.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		b := hostRows[K, V]{keys: keys, values: values, flags: added}.batch("InsertNew", len(values), lens)
		return m.over().put(b, m.tables.putting(true))
	})
}

// InsertNewOn does what InsertNew does, on the device of the slices; added may be the zero Slice: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	added device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, flags: added}.batch("InsertNew", values,
		frame.Optional(added))
	return m.over().put(b, m.tables.putting(true))
}

// InsertNewEach does what InsertNewOn does, with a batch that is on several devices.
func (m *Map[K, V]) InsertNewEach(parts []Part[K, V]) error {
	return m.over().put(partsOf("InsertNew", parts, true, false), m.tables.putting(true))
}

// InsertIf puts or replaces the pairs whose when[i] is true: see table.Chooser.
func (m *Map[K, V]) InsertIf(keys []K, values []V, when []bool) error {
	b := hostRows[K, V]{keys: keys, values: values, when: when}.batch("InsertIf", len(values), len(when))
	return m.over().put(b, m.tables.putting(false))
}

// InsertIfOn does what InsertIf does, on the device of the slices: see table.Chooser.
func (m *Map[K, V]) InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	when device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, when: when}.batch("InsertIf", values, when)
	return m.over().put(b, m.tables.putting(false))
}

// Update combines the values of keys that the map has with the values that come, and puts the other pairs: see
// table.Updater. All members bring the same operation. For the independent mode see Map.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return m.update(hostRows[K, V]{keys: keys, values: values}.batch("Update by "+string(with), len(values)), with)
}

// UpdateOn does what Update does, on the device of the slices: see table.Updater.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	with table.Combine) error {
	return m.update(deviceRows[K, V]{st: st, keys: keys, values: values}.batch("Update by "+string(with), values), with)
}

// UpdateEach does what UpdateOn does, with a batch that is on several devices. FullError counts positions from the
// first part on.
func (m *Map[K, V]) UpdateEach(parts []Part[K, V], with table.Combine) error {
	return m.update(partsOf("Update by "+string(with), parts, true, false), with)
}

func (m *Map[K, V]) update(b batch, with table.Combine) error {
	p, err := m.tables.updating(with)
	b.wrong = cmp.Or(b.wrong, err)
	return m.over().put(b, p)
}

// FindOrInsert gives the values of keys that the map has, and puts the other pairs: see table.Updater. If a new key
// comes several times, it is added once, and all of its positions get the value that was added. After a FullError, a
// position that found no room has the zero value, in device slices, too. For the independent mode see Map.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	lens := frame.OptionalLen(added)
	return counted(len(keys), added, func(added []bool) error {
		b := hostRows[K, V]{keys: keys, values: values, out: out, flags: added}.batch("FindOrInsert", len(values),
			len(out), lens)
		return m.findOrInsert(b)
	})
}

// FindOrInsertOn does what FindOrInsert does, on the device of the slices; added may be the zero Slice: see
// table.Updater.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V],
	added device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, values: values, out: out, flags: added}
	return m.findOrInsert(b.batch("FindOrInsert", values, out, frame.Optional(added)))
}

func (m *Map[K, V]) findOrInsert(b batch) error {
	p, err := m.tables.findingOrInserting()
	b.wrong = cmp.Or(b.wrong, err)
	return m.over().put(b, p)
}

// Mixed runs ops[i] on keys[i], for all i of all members at the same time: see table.Mixed. For the independent mode
// see Map.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	b := hostRows[K, V]{ops: ops, keys: keys, values: values, out: results, status: status}.batch("Mixed",
		len(ops), len(values), frame.OptionalLen(results), frame.OptionalLen(status))
	b.wrong = cmp.Or(b.wrong, frame.CheckOps(ops))
	return m.mixed(b)
}

// MixedOn does what Mixed does, on the device of the slices; results and status may be zero Slices: see table.Mixed.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values,
	results device.Slice[V],
	status device.Slice[table.Status]) error {
	b := deviceRows[K, V]{st: st, ops: ops, keys: keys, values: values, out: results, status: status}
	return m.mixed(b.batch("Mixed", ops, values, frame.Optional(results), frame.Optional(status)))
}

func (m *Map[K, V]) mixed(b batch) error {
	mix, err := m.tables.mixing()
	b.wrong = cmp.Or(b.wrong, err)
	return m.over().mix(b, mix)
}

// Find writes each key's value, and whether it was found. Either of values and found may be nil: see table.Map.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	b := hostRows[K, V]{keys: keys, out: values, flags: found}.batch("Find", frame.OptionalLen(values),
		frame.OptionalLen(found))
	return m.over().ask(b, m.tables.finding(true))
}

// FindOn does what Find does, on the device of the slices. Either of values and found may be the zero Slice: see
// table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, out: values, flags: found}.batch("Find", frame.Optional(values),
		frame.Optional(found))
	return m.over().ask(b, m.tables.finding(true))
}

// FindEach does what FindOn does, with a batch that is on several devices.
func (m *Map[K, V]) FindEach(parts []Part[K, V]) error {
	return m.over().ask(partsOf("Find", parts, false, false), m.tables.finding(true))
}

// FindIf finds the keys whose when[i] is true: see table.Chooser.
func (m *Map[K, V]) FindIf(keys []K, when []bool, values []V, found []bool) error {
	b := hostRows[K, V]{keys: keys, when: when, out: values, flags: found}.batch("FindIf",
		len(when), frame.OptionalLen(values), frame.OptionalLen(found))
	return m.over().ask(b, m.tables.finding(true))
}

// FindIfOn does what FindIf does, on the device of the slices; values and found may be zero Slices: see table.Chooser.
func (m *Map[K, V]) FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V],
	found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, when: when, out: values, flags: found}
	return m.over().ask(b.batch("FindIf", when, frame.Optional(values), frame.Optional(found)), m.tables.finding(true))
}

// Contains tells of each key whether the map has it: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error {
	return m.over().ask(hostRows[K, V]{keys: keys, flags: found}.batch("Contains", len(found)), m.tables.finding(false))
}

// ContainsOn does what Contains does, on the device of the slices: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.over().ask(deviceRows[K, V]{st: st, keys: keys, flags: found}.batch("Contains", found), m.tables.finding(false))
}

// ContainsIf tells whether the map has each key whose when[i] is true: see table.Chooser.
func (m *Map[K, V]) ContainsIf(keys []K, when, found []bool) error {
	b := hostRows[K, V]{keys: keys, when: when, flags: found}.batch("ContainsIf", len(when), len(found))
	return m.over().ask(b, m.tables.finding(false))
}

// ContainsIfOn does what ContainsIf does, on the device of the slices: see table.Chooser.
func (m *Map[K, V]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, when: when, flags: found}.batch("ContainsIf", when, found)
	return m.over().ask(b, m.tables.finding(false))
}

// Delete removes keys: see table.Map.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	lens := frame.OptionalLen(deleted)
	return counted(len(keys), deleted, func(deleted []bool) error {
		return m.over().ask(hostRows[K, V]{keys: keys, flags: deleted}.batch("Delete", lens), m.tables.deleting())
	})
}

// DeleteOn does what Delete does, on the device of the slices; deleted may be the zero Slice: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	b := deviceRows[K, V]{st: st, keys: keys, flags: deleted}.batch("Delete", frame.Optional(deleted))
	return m.over().ask(b, m.tables.deleting())
}

// DeleteEach does what DeleteOn does, with a batch that is on several devices.
func (m *Map[K, V]) DeleteEach(parts []Part[K, V]) error {
	return m.over().ask(partsOf("Delete", parts, false, false), m.tables.deleting())
}

// All exports every pair, in no order. A member gets the pairs of its own part; the call is not collective.
func (m *Map[K, V]) All() (keys []K, values []V, err error) {
	return exportPairs(m.handle, len(m.tables), func(i int) ([]K, []V, error) { return m.tables[i].All() })
}

// Chunks calls do with every pair, in chunks, one device after the other: see table.Map. A member gets the pairs of its
// own part. The call is not collective, and a member knows only of changes to its own part.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return chunkPairs(m.handle, func(i int, do func([]K, []V) error) error { return m.tables[i].Chunks(ctx, do) }, do)
}

// Check walks the invariants of every device's table. In the distributed mode it also checks that each key is where it
// belongs. Check is for tests and for users who suspect a fault. It is slow. Over members it is collective.
func (m *Map[K, V]) Check() error {
	return checkKeys(m.handle, func(i int) ([]K, error) { keys, _, err := m.tables[i].All(); return keys, err })
}
