package shard

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Batches of which some rows are chosen: the others are left out where a batch is split, and go nowhere. So tables of every family do it here, but for
// device slices in the independent mode, which stay where they are.

var (
	_ table.Chooser[uint32, uint32] = (*Map[uint32, uint32])(nil)
	_ table.KeyChooser[uint32]      = (*Set[uint32])(nil)
)

func noChooser(x table.Table) error {
	return fmt.Errorf("%s: tables of %s have no InsertIf, which device slices in the independent mode ask for (want a family whose tables are a table.Chooser)", family, x.Family())
}

// insertIf inserts chosen rows where they are.
func (t mapTables[K, V]) insertIf(j int, st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error {
	c, ok := t[j].(table.Chooser[K, V])
	if !ok {
		return noChooser(t[j])
	}
	return c.InsertIfOn(st, keys, values, when)
}

// insertIf inserts chosen rows where they are.
func (t setTables[K]) insertIf(j int, st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error {
	c, ok := t[j].(table.KeyChooser[K])
	if !ok {
		return noChooser(t[j])
	}
	return c.InsertIfOn(st, keys, when, added)
}

// InsertIf is Insert of the pairs with when[i]: see table.Chooser.
func (m *Map[K, V]) InsertIf(keys []K, values []V, when []bool) error {
	if err := family.CheckLens(len(keys), len(values), len(when)); err != nil {
		return err
	}
	return insertKeyed(m.cluster, hostBatch[K, V]{keys: keys, values: values, when: when}, m.keyed(m.tables.inserting))
}

// InsertIfOn is InsertIf on the device of the slices: see table.Chooser.
func (m *Map[K, V]) InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error {
	return m.cluster.locked(func() error {
		s, member, err := m.cluster.onDevice(st, keys, values, when)
		if err != nil {
			return err
		}
		s.values, s.slices.values = values.Addr(), values.Raw()
		s.choose(when)
		return insertSources(m.cluster, m.cluster.from(member, s), []int{member}, []int{0}, false, false, m.keyed(m.tables.inserting))
	})
}

// choose makes the rows with when the source's.
func (s *source) choose(when device.Slice[bool]) { s.when, s.slices.when = when.Addr(), when.Raw() }

// FindIf is Find of the keys with when[i]: see table.Chooser.
func (m *Map[K, V]) FindIf(keys []K, when []bool, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), len(when), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return look(m.cluster, hostBatch[K, V]{keys: keys, when: when, out: values, flags: found}, m.tables.finding(values != nil, found != nil))
}

// FindIfOn is FindIf on the device of the slices: see table.Chooser.
func (m *Map[K, V]) FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool]) error {
	return m.cluster.locked(func() error {
		s, member, err := m.cluster.onDevice(st, keys, when, table.Optional(values), table.Optional(found))
		if err != nil {
			return err
		}
		s.out, s.flags = values.Addr(), found.Addr()
		s.slices.out, s.slices.flags = values.Raw(), found.Raw()
		s.choose(when)
		j := m.tables.finding(s.out != 0, s.flags != 0)
		j.sources = m.cluster.from(member, s)
		return m.cluster.exchange(&j)
	})
}

// ContainsIf is FindIf without values: see table.Chooser.
func (m *Map[K, V]) ContainsIf(keys []K, when, found []bool) error {
	if err := family.CheckLens(len(keys), len(found)); err != nil {
		return err
	}
	return m.FindIf(keys, when, nil, found)
}

// ContainsIfOn is ContainsIf on the device of the slices: see table.Chooser.
func (m *Map[K, V]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return m.FindIfOn(st, keys, when, device.Slice[V]{}, found)
}

// InsertIf is Insert of the keys with when[i]: see table.KeyChooser.
func (s *Set[K]) InsertIf(keys []K, when, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), len(when), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	return counted(len(keys), added, func(added []bool) error {
		return insertKeyed(s.cluster, hostBatch[K, byte]{keys: keys, when: when, flags: added}, s.keyed())
	})
}

// InsertIfOn is InsertIf on the device of the slices: see table.KeyChooser.
func (s *Set[K]) InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error {
	return s.cluster.locked(func() error {
		own, member, err := s.cluster.onDevice(st, keys, when, table.Optional(added))
		if err != nil {
			return err
		}
		own.flags, own.slices.flags = added.Addr(), added.Raw()
		own.choose(when)
		return insertSources(s.cluster, s.cluster.from(member, own), []int{member}, []int{0}, true, own.flags != 0, s.keyed())
	})
}

// ContainsIf tells of each key with when[i] whether it is in: see table.KeyChooser.
func (s *Set[K]) ContainsIf(keys []K, when, found []bool) error {
	if err := family.CheckLens(len(keys), len(when), len(found)); err != nil {
		return err
	}
	return look(s.cluster, hostBatch[K, byte]{keys: keys, when: when, flags: found}, s.tables.finding())
}

// ContainsIfOn is ContainsIf on the device of the slices: see table.KeyChooser.
func (s *Set[K]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return s.cluster.locked(func() error {
		own, member, err := s.cluster.onDevice(st, keys, when, found)
		if err != nil {
			return err
		}
		own.flags, own.slices.flags = found.Addr(), found.Raw()
		own.choose(when)
		j := s.tables.finding()
		j.sources = s.cluster.from(member, own)
		return s.cluster.exchange(&j)
	})
}
