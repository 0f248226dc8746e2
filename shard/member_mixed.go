package shard

import (
	"cmp"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Mixed batches of members: see mixed.go.

var _ table.Mixed[uint32, uint32] = (*MemberMap[uint32, uint32])(nil)

// mixes is a mixed batch of a member: how it goes, or why there is none.
type mixes struct {
	job func(why *error) job
	err error
}

// mixFromHost runs a mixed batch of Go slices. lens is what is wrong with their lengths.
func mixFromHost[K, V any](j *joint, h hostBatch[K, V], ops []table.Op, status []table.Status, lens error, x mixes) error {
	return fromHost(j, h, cmp.Or(lens, table.CheckOps(ops)), func(b bringing[K, V]) (err error) {
		var outcomes device.Slice[table.Status]
		if b.err == nil {
			if b.ops, b.err = device.From(j.d, ops); b.err == nil {
				outcomes, b.err = device.Make[table.Status](j.d, len(ops))
			}
		}
		defer func() {
			if e := errors.Join(b.ops.Free(), outcomes.Free()); e != nil {
				err = errors.Join(err, e)
			}
		}()
		err = mix(j, b, outcomes, x)
		if err != nil && !errors.As(err, new(*table.FullError)) || status == nil {
			return err
		}
		return cmp.Or(outcomes.Read(nil, status), err)
	})
}

// mix runs a mixed batch; outcomes may be the zero Slice.
func mix[K, V any](j *joint, b bringing[K, V], outcomes device.Slice[table.Status], x mixes) (err error) {
	b.err = cmp.Or(b.err, x.err) // all hear of it
	if b.err == nil && outcomes.Addr() == 0 {
		if outcomes, b.err = device.Make[table.Status](j.d, b.keys.Len()); b.err == nil { // they tell what found no room
			defer func() {
				if e := outcomes.Free(); e != nil {
					err = errors.Join(err, e)
				}
			}()
		}
	}
	return j.locked("Mixed", func() error {
		var why error
		var jb job
		s := b.source()
		if b.err == nil {
			jb, s.flags = x.job(&why), outcomes.Addr()
		}
		if err := j.exchange("Mixed", &jb, s, b.err); err != nil {
			return err
		}
		why, err := j.whyFull("Mixed", why, nil)
		if err != nil || why == nil {
			return err
		}
		return j.fullAt(why, func() ([]int, error) {
			return flagged(outcomes, func(s table.Status) bool { return s == table.NoRoom })
		})
	})
}

// mixes is of rows that bring values, and get some.
func (m *MemberMap[K, V]) mixes() (x mixes) {
	x.job, x.err = m.tables.mixing(true)
	return x
}

// Mixed runs ops[i] on keys[i] of all members at the same time: see table.Mixed.
func (m *MemberMap[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	lens := family.CheckLens(len(keys), len(ops), len(values), table.OptionalLen(results), table.OptionalLen(status))
	return mixFromHost(m.joint, hostBatch[K, V]{keys: keys, values: values, out: results}, ops, status, lens, m.mixes())
}

// MixedOn is Mixed on this member's device; results and status may be zero Slices.
func (m *MemberMap[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	b := bringing[K, V]{st: st, ops: ops, keys: keys, values: values, out: results}
	return mix(m.joint, b.checked(m.joint, ops, values, table.Optional(results), table.Optional(status)), status, m.mixes())
}

func (s *MemberSet[K]) mixes() (x mixes) {
	x.job, x.err = s.tables.mixing()
	return x
}

// Mixed runs ops[i] on keys[i] of all members at the same time: see table.Mixed.
func (s *MemberSet[K]) Mixed(ops []table.Op, keys []K, status []table.Status) error {
	lens := family.CheckLens(len(keys), len(ops), table.OptionalLen(status))
	return mixFromHost(s.joint, hostBatch[K, byte]{keys: keys}, ops, status, lens, s.mixes())
}

// MixedOn is Mixed on this member's device; status may be the zero Slice.
func (s *MemberSet[K]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], status device.Slice[table.Status]) error {
	b := bringing[K, byte]{st: st, ops: ops, keys: keys}
	return mix(s.joint, b.checked(s.joint, ops, table.Optional(status)), status, s.mixes())
}
