package shard

import (
	"context"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MemberMap is a map over the members of a job, each with one device: see table.Map, whose comments are the contract of the methods for this member's batch. All but
// All, Chunks and Close are collective: every member calls the same, in the same order, each with its own batch, which may be empty, in Go slices or on its
// device. They return when this member's part is done. Counts of what was added or deleted are this member's; Len, Stats and Grow are of all members.
//
// All and Chunks give this member's part of the map: the pairs whose keys it owns, whoever brought them. The parts of all members are the whole. Between them
// and calls that change the map members must agree by themselves who goes first: Len, which is collective, will do.
//
// In the independent mode (Options.Mode) inserts stay with the member that brings them, Go slices, too; look-ups and deletions ask all members, of which the first that has the
// key is heard. All, Chunks and InsertNew's absent keys are then of what this member has, and a key is in Len as often as members have it. See doc.go.
//
// A member that is gone, or whose memory does not suffice, ends the call for all, with an error that names it, and the map is of no use from then on. Bad arguments
// of one member, a table that one has closed, and calls that differ are an error of that call at all of them, and nothing changes. So a call of a closed table is
// collective, too. Calls of several goroutines take turns, one table after the other; that they come in the same order everywhere is the caller's part.
//
// It does chosen rows alone (table.Chooser), whatever its family, but for InsertIf in the independent mode; that, Update, FindOrInsert and Mixed (table.Updater, table.Mixed) are
// for families that have them, and elsewhere an error of all members.
//
// *table.FullError names the positions of this member's batch that are not in, and its Capacity and Len are those of all members; a member all of whose keys are in
// has none.
type MemberMap[K, V any] struct {
	*joint
	tables mapTables[K, V] // this member's alone
}

var _ table.Updater[uint32, uint32] = (*MemberMap[uint32, uint32])(nil)

// NewMemberMap makes an empty map over the members: see NewMap. It is collective; all bring the same options, but for the seed, which is rank 0's.
func NewMemberMap[K, V any](m *Member, o Options, newTable func(d *device.Device, o table.Options) (table.Map[K, V], error)) (*MemberMap[K, V], error) {
	x := &MemberMap[K, V]{tables: make(mapTables[K, V], 1)}
	var err error
	x.joint, err = newJoint(m, table.WidthsOf[K, V](), o, func(d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		x.tables[0] = t
		return t, err
	})
	return table.Made(x, err)
}

func (m *MemberMap[K, V]) keyed(insert inserts) keyed[K] {
	return keyed[K]{insert: insert, absence: m.tables.absence}
}

// Insert puts or replaces this member's pairs.
func (m *MemberMap[K, V]) Insert(keys []K, values []V) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values}, family.CheckLens(len(keys), len(values)), m.insert)
}

// InsertOn is Insert on this member's device.
func (m *MemberMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.insert(bringing[K, V]{st: st, keys: keys, values: values})
}

func (m *MemberMap[K, V]) insert(b bringing[K, V]) error {
	return putting(m.joint, "Insert", b.checked(m.joint, b.values), false, m.keyed(m.tables.inserting))
}

// InsertNew puts those of this member's pairs whose keys are absent. Of equal new keys, whoever brings them, one is added.
func (m *MemberMap[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	lens := family.CheckLens(len(keys), len(values), table.OptionalLen(added))
	return counted(len(keys), added, func(added []bool) error {
		return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values, flags: added}, lens, m.insertNew)
	})
}

// InsertNewOn is InsertNew on this member's device; added may be the zero Slice.
func (m *MemberMap[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return m.insertNew(bringing[K, V]{st: st, keys: keys, values: values, flags: added})
}

func (m *MemberMap[K, V]) insertNew(b bringing[K, V]) error {
	return putting(m.joint, "InsertNew", b.checked(m.joint, b.values, table.Optional(b.flags)), true, m.keyed(m.tables.inserting))
}

// Update combines the values of this member's keys that are there with those that come, and puts the others: see table.Updater. All bring the same operation.
func (m *MemberMap[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values}, family.CheckLens(len(keys), len(values)),
		func(b bringing[K, V]) error { return m.update(b, with) })
}

// UpdateOn is Update on this member's device.
func (m *MemberMap[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error {
	return m.update(bringing[K, V]{st: st, keys: keys, values: values}, with)
}

func (m *MemberMap[K, V]) update(b bringing[K, V], with table.Combine) error {
	b = b.checked(m.joint, b.values)
	u, err := m.tables.updating(with)
	if err != nil {
		u, b.err = &updates[K, V]{}, err // all hear of it
	}
	x := m.keyed(u.job)
	x.again = u.again
	return putting(m.joint, "Update by "+string(with), b, false, x)
}

// FindOrInsert gives the values that are there, and puts the others: see table.Updater. Of equal new keys, whoever brings them, one is added, and its value is everybody's.
// After a FullError, device slices, too, have the zero value where a position found no room.
func (m *MemberMap[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	lens := family.CheckLens(len(keys), len(values), len(out), table.OptionalLen(added))
	return counted(len(keys), added, func(added []bool) error {
		return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values, out: out, flags: added}, lens, m.findOrInsert)
	})
}

// FindOrInsertOn is FindOrInsert on this member's device; added may be the zero Slice.
func (m *MemberMap[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error {
	return m.findOrInsert(bringing[K, V]{st: st, keys: keys, values: values, out: out, flags: added})
}

func (m *MemberMap[K, V]) findOrInsert(b bringing[K, V]) error {
	b = b.checked(m.joint, b.values, b.out, table.Optional(b.flags))
	tables, err := m.tables.updaters()
	if err != nil {
		b.err = err // all hear of it
	}
	f := &finder[K, V]{tables: tables}
	x := keyed[K]{insert: f.job, absence: func() job { return m.tables.finding(true, true) }} // where another row of a key got in, out has nothing yet
	return putting(m.joint, "FindOrInsert", b, true, x)
}

// Find writes the values of this member's keys, and which were found; either may be nil.
func (m *MemberMap[K, V]) Find(keys []K, values []V, found []bool) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, out: values, flags: found}, family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)), m.find)
}

// FindOn is Find on this member's device; values and found may be zero Slices.
func (m *MemberMap[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return m.find(bringing[K, V]{st: st, keys: keys, out: values, flags: found})
}

func (m *MemberMap[K, V]) find(b bringing[K, V]) error {
	return asking(m.joint, "Find", b.checked(m.joint, table.Optional(b.out), table.Optional(b.flags)), m.tables.finding(true, true))
}

// Contains tells which of this member's keys are in.
func (m *MemberMap[K, V]) Contains(keys []K, found []bool) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, flags: found}, family.CheckLens(len(keys), len(found)), m.contains)
}

// ContainsOn is Contains on this member's device.
func (m *MemberMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.contains(bringing[K, V]{st: st, keys: keys, flags: found})
}

func (m *MemberMap[K, V]) contains(b bringing[K, V]) error {
	return asking(m.joint, "Contains", b.checked(m.joint, b.flags), m.tables.finding(false, true))
}

// Delete removes this member's keys, and tells which were there. Of equal keys, whoever brings them, one removes it.
func (m *MemberMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	lens := family.CheckLens(len(keys), table.OptionalLen(deleted))
	return counted(len(keys), deleted, func(deleted []bool) error {
		return fromHost(m.joint, hostBatch[K, V]{keys: keys, flags: deleted}, lens, m.erase)
	})
}

// DeleteOn is Delete on this member's device; deleted may be the zero Slice.
func (m *MemberMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return m.erase(bringing[K, V]{st: st, keys: keys, flags: deleted})
}

func (m *MemberMap[K, V]) erase(b bringing[K, V]) error {
	return asking(m.joint, "Delete", b.checked(m.joint, table.Optional(b.flags)), m.tables.deleting(true))
}

// All exports the pairs of this member's part, in no order. It is not collective.
func (m *MemberMap[K, V]) All() (keys []K, values []V, err error) {
	err = m.part(func() (err error) { keys, values, err = m.tables[0].All(); return err })
	return keys, values, err
}

// Chunks gives the pairs of this member's part to do, in chunks: see table.Map. It is not collective, and knows of changes to this part alone.
func (m *MemberMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return m.part(func() error { return m.tables[0].Chunks(ctx, do) })
}

// Check walks the invariants of this member's table, and sees that its keys belong to it. Slow. It is collective.
func (m *MemberMap[K, V]) Check() error {
	return m.check(func() ([]uint64, error) { keys, _, err := m.tables[0].All(); return patterns(keys), err })
}

// MemberSet is a set over the members of a job: see MemberMap. It does chosen rows alone (table.KeyChooser) and Mixed as MemberMap does.
type MemberSet[K any] struct {
	*joint
	tables setTables[K] // this member's alone
}

var _ table.Set[uint32] = (*MemberSet[uint32])(nil)

// NewMemberSet makes an empty set over the members: see NewMemberMap.
func NewMemberSet[K any](m *Member, o Options, newTable func(d *device.Device, o table.Options) (table.Set[K], error)) (*MemberSet[K], error) {
	x := &MemberSet[K]{tables: make(setTables[K], 1)}
	var err error
	x.joint, err = newJoint(m, table.WidthOfKeys[K](), o, func(d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		x.tables[0] = t
		return t, err
	})
	return table.Made(x, err)
}

// Insert puts those of this member's keys that are absent, and tells which these are. Of equal new keys, whoever brings them, one is added.
func (s *MemberSet[K]) Insert(keys []K, added []bool) (int, error) {
	lens := family.CheckLens(len(keys), table.OptionalLen(added))
	return counted(len(keys), added, func(added []bool) error {
		return fromHost(s.joint, hostBatch[K, byte]{keys: keys, flags: added}, lens, s.insert)
	})
}

// InsertOn is Insert on this member's device; added may be the zero Slice.
func (s *MemberSet[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	return s.insert(bringing[K, byte]{st: st, keys: keys, flags: added})
}

func (s *MemberSet[K]) insert(b bringing[K, byte]) error {
	return putting(s.joint, "Insert", b.checked(s.joint, table.Optional(b.flags)), true, s.keyed())
}

func (s *MemberSet[K]) keyed() keyed[K] {
	return keyed[K]{insert: s.tables.inserting, absence: s.tables.finding}
}

// Contains tells which of this member's keys are in.
func (s *MemberSet[K]) Contains(keys []K, found []bool) error {
	return fromHost(s.joint, hostBatch[K, byte]{keys: keys, flags: found}, family.CheckLens(len(keys), len(found)), s.contains)
}

// ContainsOn is Contains on this member's device.
func (s *MemberSet[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return s.contains(bringing[K, byte]{st: st, keys: keys, flags: found})
}

func (s *MemberSet[K]) contains(b bringing[K, byte]) error {
	return asking(s.joint, "Contains", b.checked(s.joint, b.flags), s.tables.finding())
}

// Delete removes this member's keys, and tells which were there.
func (s *MemberSet[K]) Delete(keys []K, deleted []bool) (int, error) {
	lens := family.CheckLens(len(keys), table.OptionalLen(deleted))
	return counted(len(keys), deleted, func(deleted []bool) error {
		return fromHost(s.joint, hostBatch[K, byte]{keys: keys, flags: deleted}, lens, s.erase)
	})
}

// DeleteOn is Delete on this member's device; deleted may be the zero Slice.
func (s *MemberSet[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return s.erase(bringing[K, byte]{st: st, keys: keys, flags: deleted})
}

func (s *MemberSet[K]) erase(b bringing[K, byte]) error {
	return asking(s.joint, "Delete", b.checked(s.joint, table.Optional(b.flags)), s.tables.deleting(true))
}

// All exports the keys of this member's part, in no order. It is not collective.
func (s *MemberSet[K]) All() (keys []K, err error) {
	err = s.part(func() (err error) { keys, err = s.tables[0].All(); return err })
	return keys, err
}

// Chunks gives the keys of this member's part to do, in chunks: see MemberMap.
func (s *MemberSet[K]) Chunks(ctx context.Context, do func(keys []K) error) error {
	return s.part(func() error { return s.tables[0].Chunks(ctx, do) })
}

// Check walks the invariants of this member's table, and sees that its keys belong to it. Slow. It is collective.
func (s *MemberSet[K]) Check() error {
	return s.check(func() ([]uint64, error) { keys, err := s.tables[0].All(); return patterns(keys), err })
}

// MemberCounter is a counter over the members of a job: see MemberMap. A count that is too large is told to all members. In the independent mode counts of a key at several members
// are added up, and a sum that would be too large is the largest there is.
type MemberCounter[K any, C uint32 | uint64] struct {
	*joint
	tables counterTables[K, C] // this member's alone
}

var _ table.Counter[uint32, uint32] = (*MemberCounter[uint32, uint32])(nil)

// NewMemberCounter makes an empty counter over the members: see NewMemberMap.
func NewMemberCounter[K any, C uint32 | uint64](m *Member, o Options, newTable func(d *device.Device, o table.Options) (table.Counter[K, C], error)) (*MemberCounter[K, C], error) {
	x := &MemberCounter[K, C]{tables: make(counterTables[K, C], 1)}
	var err error
	x.joint, err = newJoint(m, table.WidthsOf[K, C](), o, func(d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		x.tables[0] = t
		return t, err
	})
	return table.Made(x, err)
}

// Add counts each of this member's keys once more.
func (c *MemberCounter[K, C]) Add(keys []K) error {
	return fromHost(c.joint, hostBatch[K, C]{keys: keys}, nil, func(b bringing[K, C]) error { return c.add(b, false) })
}

// AddOn is Add on this member's device.
func (c *MemberCounter[K, C]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	return c.add(bringing[K, C]{st: st, keys: keys}.checked(c.joint), false)
}

// AddCounts is Add of keys that came so many times.
func (c *MemberCounter[K, C]) AddCounts(keys []K, counts []C) error {
	return fromHost(c.joint, hostBatch[K, C]{keys: keys, values: counts}, family.CheckLens(len(keys), len(counts)), func(b bringing[K, C]) error { return c.add(b, true) })
}

// AddCountsOn is AddCounts on this member's device.
func (c *MemberCounter[K, C]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error {
	b := bringing[K, C]{st: st, keys: keys, values: counts}
	return c.add(b.checked(c.joint, counts), true)
}

func (c *MemberCounter[K, C]) add(b bringing[K, C], counts bool) error {
	a, what := &adds[K, C]{tables: c.tables, counts: counts}, "Add"
	if counts {
		what = "AddCounts"
	}
	settle := func(wrong error) error {
		all, err := agreed(c.joint, what, a.over.Load(), wrong)
		a.over.Store(slices.Contains(all, true))
		return err
	}
	return a.told(putting(c.joint, what, b, false, keyed[K]{insert: a.job, absence: c.absence, again: a.again, settle: settle}))
}

func (c *MemberCounter[K, C]) absence() job { return c.finding(false) }

// finding tells which keys are in, and how often they came, which in the independent mode is what all members say together.
func (c *MemberCounter[K, C]) finding(counts bool) job {
	return c.tables.finding(counts, true, c.opts.Mode == Independent)
}

// Find writes how often each of this member's keys came, and whether it is in; either may be nil.
func (c *MemberCounter[K, C]) Find(keys []K, counts []C, found []bool) error {
	return fromHost(c.joint, hostBatch[K, C]{keys: keys, out: counts, flags: found}, family.CheckLens(len(keys), table.OptionalLen(counts), table.OptionalLen(found)), c.find)
}

// FindOn is Find on this member's device; counts and found may be zero Slices.
func (c *MemberCounter[K, C]) FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error {
	return c.find(bringing[K, C]{st: st, keys: keys, out: counts, flags: found})
}

func (c *MemberCounter[K, C]) find(b bringing[K, C]) error {
	return asking(c.joint, "Find", b.checked(c.joint, table.Optional(b.out), table.Optional(b.flags)), c.finding(true))
}

// Top gives the n keys that came most often, of all members, to each of them: see table.Counter. It is collective. Cost in the independent mode: every key is looked up, for
// none alone need be frequent anywhere.
func (c *MemberCounter[K, C]) Top(n int) (keys []K, counts []C, err error) {
	type best struct{ Keys, Counts []byte }
	err = c.locked("Top", func() error {
		k, v, told, err := c.ownTop(n)
		if told {
			return err
		}
		all, err := agreed(c.joint, "Top", best{asBytes(k), asBytes(v)}, err)
		for _, b := range all {
			keys, counts = append(keys, fromBytes[K](b.Keys)...), append(counts, fromBytes[C](b.Counts)...)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if c.opts.Mode == Independent {
		keys, counts = once(keys, counts)
	}
	keys, counts = mostOf(keys, counts, n)
	return keys, counts, nil
}

// ownTop are the n of this member's keys that came most often, to all members together, for which it asks them in the independent mode; told says that they know of
// the error.
func (c *MemberCounter[K, C]) ownTop(n int) (keys []K, counts []C, told bool, err error) {
	if c.opts.Mode == Distributed {
		keys, counts, err = c.tables[0].Top(n)
		return keys, counts, false, err
	}
	if keys, _, err = c.tables[0].All(); err == nil && n < 0 {
		err = errTop(n)
	}
	counts = make([]C, len(keys))
	find := c.finding(true)
	err = fromHost(c.joint, hostBatch[K, C]{keys: keys, out: counts}, err, func(b bringing[K, C]) error {
		err := c.exchange("Top", &find, b.source(), b.err)
		told = err != nil
		return err
	})
	if err != nil {
		return nil, nil, told, err
	}
	keys, counts = mostOf(keys, counts, n)
	return keys, counts, false, nil
}

// once leaves of keys that are there several times, each with the same count, one.
func once[K any, C uint32 | uint64](keys []K, counts []C) (k []K, c []C) {
	seen := map[uint64]bool{}
	for i, p := range patterns(keys) {
		if !seen[p] {
			k, c = append(k, keys[i]), append(c, counts[i])
		}
		seen[p] = true
	}
	return k, c
}

// asBytes and fromBytes carry values between processes of one program.
func asBytes[T any](x []T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))...)
}

func fromBytes[T any](b []byte) []T {
	out := make([]T, len(b)/int(unsafe.Sizeof(*new(T))))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), len(b)), b)
	return out
}

// All exports the keys of this member's part and their counts, in no order. It is not collective.
func (c *MemberCounter[K, C]) All() (keys []K, counts []C, err error) {
	err = c.part(func() (err error) { keys, counts, err = c.tables[0].All(); return err })
	return keys, counts, err
}

// Chunks gives the keys of this member's part and their counts to do, in chunks: see MemberMap.
func (c *MemberCounter[K, C]) Chunks(ctx context.Context, do func(keys []K, counts []C) error) error {
	return c.part(func() error { return c.tables[0].Chunks(ctx, do) })
}

// Check walks the invariants of this member's table, and sees that its keys belong to it. Slow. It is collective.
func (c *MemberCounter[K, C]) Check() error {
	return c.check(func() ([]uint64, error) { keys, _, err := c.tables[0].All(); return patterns(keys), err })
}
