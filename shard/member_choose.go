package shard

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Batches of members of which some rows are chosen: see choose.go.

var (
	_ table.Chooser[uint32, uint32] = (*MemberMap[uint32, uint32])(nil)
	_ table.KeyChooser[uint32]      = (*MemberSet[uint32])(nil)
)

// InsertIf is Insert of this member's pairs with when[i]: see table.Chooser.
func (m *MemberMap[K, V]) InsertIf(keys []K, values []V, when []bool) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values, when: when}, family.CheckLens(len(keys), len(values), len(when)), m.insertIf)
}

// InsertIfOn is InsertIf on this member's device.
func (m *MemberMap[K, V]) InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error {
	return m.insertIf(bringing[K, V]{st: st, keys: keys, values: values, when: when})
}

func (m *MemberMap[K, V]) insertIf(b bringing[K, V]) error {
	return putting(m.joint, "InsertIf", b.checked(m.joint, b.values, b.when), false, m.keyed(m.tables.inserting))
}

// FindIf is Find of this member's keys with when[i]: see table.Chooser.
func (m *MemberMap[K, V]) FindIf(keys []K, when []bool, values []V, found []bool) error {
	lens := family.CheckLens(len(keys), len(when), table.OptionalLen(values), table.OptionalLen(found))
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, when: when, out: values, flags: found}, lens, m.findIf)
}

// FindIfOn is FindIf on this member's device; values and found may be zero Slices.
func (m *MemberMap[K, V]) FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool]) error {
	return m.findIf(bringing[K, V]{st: st, keys: keys, when: when, out: values, flags: found})
}

func (m *MemberMap[K, V]) findIf(b bringing[K, V]) error {
	return asking(m.joint, "FindIf", b.checked(m.joint, b.when, table.Optional(b.out), table.Optional(b.flags)), m.tables.finding(true, true))
}

// ContainsIf is FindIf without values: see table.Chooser.
func (m *MemberMap[K, V]) ContainsIf(keys []K, when, found []bool) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, when: when, flags: found}, family.CheckLens(len(keys), len(when), len(found)), m.containsIf)
}

// ContainsIfOn is ContainsIf on this member's device.
func (m *MemberMap[K, V]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return m.containsIf(bringing[K, V]{st: st, keys: keys, when: when, flags: found})
}

func (m *MemberMap[K, V]) containsIf(b bringing[K, V]) error {
	return asking(m.joint, "ContainsIf", b.checked(m.joint, b.when, b.flags), m.tables.finding(false, true))
}

// InsertIf is Insert of this member's keys with when[i]: see table.KeyChooser.
func (s *MemberSet[K]) InsertIf(keys []K, when, added []bool) (int, error) {
	lens := family.CheckLens(len(keys), len(when), table.OptionalLen(added))
	return counted(len(keys), added, func(added []bool) error {
		return fromHost(s.joint, hostBatch[K, byte]{keys: keys, when: when, flags: added}, lens, s.insertIf)
	})
}

// InsertIfOn is InsertIf on this member's device; added may be the zero Slice.
func (s *MemberSet[K]) InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error {
	return s.insertIf(bringing[K, byte]{st: st, keys: keys, when: when, flags: added})
}

func (s *MemberSet[K]) insertIf(b bringing[K, byte]) error {
	return putting(s.joint, "InsertIf", b.checked(s.joint, b.when, table.Optional(b.flags)), true, s.keyed())
}

// ContainsIf tells of each of this member's keys with when[i] whether it is in: see table.KeyChooser.
func (s *MemberSet[K]) ContainsIf(keys []K, when, found []bool) error {
	return fromHost(s.joint, hostBatch[K, byte]{keys: keys, when: when, flags: found}, family.CheckLens(len(keys), len(when), len(found)), s.containsIf)
}

// ContainsIfOn is ContainsIf on this member's device.
func (s *MemberSet[K]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return s.containsIf(bringing[K, byte]{st: st, keys: keys, when: when, flags: found})
}

func (s *MemberSet[K]) containsIf(b bringing[K, byte]) error {
	return asking(s.joint, "ContainsIf", b.checked(s.joint, b.when, b.flags), s.tables.finding())
}
