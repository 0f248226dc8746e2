package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Mixed batches: each operation goes to the owner of its key, with what it is, and its outcome comes back.

var _ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)

// mixedKeys is a set that runs mixed batches.
type mixedKeys[K any] interface {
	MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], status device.Slice[table.Status]) error
}

// noMixed is the error of a family without mixed batches.
func noMixed(x table.Table) error {
	return fmt.Errorf("%s: tables of %s have no mixed batches (want a family whose tables are a table.Mixed)", family, x.Family())
}

// mixing begins a mixed batch; results tells whether they are asked for.
func (t mapTables[K, V]) mixing(results bool) (func(why *error) job, error) {
	var all []table.Mixed[K, V]
	for _, x := range t {
		mixed, ok := x.(table.Mixed[K, V])
		if !ok {
			return nil, noMixed(x)
		}
		all = append(all, mixed)
	}
	use := sent
	if results {
		use |= back
	}
	return func(why *error) job {
		return job{values: use, flags: true, mixed: true, owned: true, full: fullFor(why), run: func(j int, st *device.Stream, r received) error {
			return all[j].MixedOn(st, device.View[table.Op](r.marks, 0, r.n), device.View[K](r.keys, 0, r.n), valuesOf[V](r), outOf[V](r), statusOf(r))
		}}
	}, nil
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
		return job{flags: true, mixed: true, owned: true, full: fullFor(why), run: func(j int, st *device.Stream, r received) error {
			return all[j].MixedOn(st, device.View[table.Op](r.marks, 0, r.n), device.View[K](r.keys, 0, r.n), statusOf(r))
		}}
	}, nil
}

// statusOf are the outcomes of rows.
func statusOf(r received) device.Slice[table.Status] {
	return device.View[table.Status](r.flags, 0, r.n)
}

// withoutRoom are the positions that found no room.
func withoutRoom(status []table.Status) (positions []int) {
	for i, s := range status {
		if s == table.NoRoom {
			positions = append(positions, i)
		}
	}
	return positions
}

// mixHost runs a mixed batch of Go slices. values and results may be nil.
func mixHost[K, V any](c *cluster, ops []table.Op, keys []K, values, results []V, status []table.Status, mix func(why *error) job) error {
	if err := table.CheckOps(ops); err != nil {
		return err
	}
	if status == nil {
		status = make([]table.Status, len(keys))
	}
	var lost refusals
	var undone [][2]int // rows that there was no memory for
	skip := func(from, to int, why error) {
		lost.add(nil, 0, why)
		undone = append(undone, [2]int{from, to})
	}
	err := c.batch(len(keys), func(from, to int) []table.Column {
		return []table.Column{table.In(ops[from:to]), table.In(keys[from:to]), table.In(within(values, from, to)), table.Out(within(results, from, to)), table.Out(status[from:to])}
	}, func(member int, st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			var why error
			j := mix(&why)
			j.sources = c.from(member, source{n: n, marks: addr[0], keys: addr[1], values: addr[2], out: addr[3], flags: addr[4], st: st})
			err := c.exchange(&j)
			if device.IsOutOfMemory(err) {
				skip(first, first+n, err)
				return nil
			}
			if why != nil {
				lost.add(nil, 0, why)
			}
			return err
		})
	}, func(from, to int, why error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		skip(from, to, why)
	})
	if err != nil || lost.why == nil {
		return err
	}
	for _, rows := range undone {
		for i := rows[0]; i < rows[1]; i++ {
			status[i] = table.NoRoom
		}
		if results != nil {
			clear(results[rows[0]:rows[1]])
		}
	}
	lost.positions = withoutRoom(status)
	return c.locked(func() error { return c.fullError(&lost) })
}

// mixOn runs a mixed batch that is on a device; s lacks the operations and the outcomes. The caller holds the lock.
func mixOn(c *cluster, member int, s source, ops device.Slice[table.Op], status device.Slice[table.Status], mix func(why *error) job) (err error) {
	if s.n == 0 {
		return nil
	}
	if status.Addr() == 0 { // they tell what found no room
		if status, err = device.MakePooled[table.Status](c.members[member].d, s.n); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, status.FreeAfter(c.members[member].following(s.st))) }()
	}
	s.marks, s.flags = ops.Addr(), status.Addr()
	s.slices.marks, s.slices.flags = ops.Raw(), status.Raw()
	var why error
	j := mix(&why)
	j.sources = c.from(member, s)
	if err := c.exchange(&j); err != nil || why == nil {
		return err
	}
	outcomes, err := status.Host(s.st)
	if err != nil {
		return err
	}
	return c.fullError(&refusals{positions: withoutRoom(outcomes), why: why})
}

// Mixed runs ops[i] on keys[i]: see table.Mixed, and Update for the independent mode.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	if err := family.CheckLens(len(keys), len(ops), len(values), table.OptionalLen(results), table.OptionalLen(status)); err != nil {
		return err
	}
	mix, err := m.tables.mixing(results != nil)
	if err != nil {
		return err
	}
	return mixHost(m.cluster, ops, keys, values, results, status, mix)
}

// MixedOn is Mixed on the device of the slices: see table.Mixed.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	mix, err := m.tables.mixing(results.Addr() != 0)
	if err != nil {
		return err
	}
	return m.cluster.locked(func() error {
		s, member, err := m.cluster.onDevice(st, keys, ops, values, table.Optional(results), table.Optional(status))
		if err != nil {
			return err
		}
		s.values, s.out = values.Addr(), results.Addr()
		s.slices.values, s.slices.out = values.Raw(), results.Raw()
		return mixOn(m.cluster, member, s, ops, status, mix)
	})
}

// Mixed runs ops[i] on keys[i], for all i at the same time: see table.Mixed, and Update of Map for the independent mode.
func (s *Set[K]) Mixed(ops []table.Op, keys []K, status []table.Status) error {
	if err := family.CheckLens(len(keys), len(ops), table.OptionalLen(status)); err != nil {
		return err
	}
	mix, err := s.tables.mixing()
	if err != nil {
		return err
	}
	return mixHost[K, byte](s.cluster, ops, keys, nil, nil, status, mix)
}

// MixedOn is Mixed on the device of the slices.
func (s *Set[K]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], status device.Slice[table.Status]) error {
	mix, err := s.tables.mixing()
	if err != nil {
		return err
	}
	return s.cluster.locked(func() error {
		own, member, err := s.cluster.onDevice(st, keys, ops, table.Optional(status))
		if err != nil {
			return err
		}
		return mixOn(s.cluster, member, own, ops, status, mix)
	})
}
