package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/table"
)

// MemberMultiMap is a multimap over the members of a job: see MemberMap. Where a member has no room, FullError names positions only with Options.MaxBytes, for which
// each row's outcome comes back, a byte; otherwise want of memory is an error of that member, and the multimap of no use from then on. In the independent mode a key's values
// are those of all members, one member's after the other's, and FullError names positions without MaxBytes, too.
type MemberMultiMap[K, V any] struct {
	*joint
	tables multiTables[K, V] // this member's alone
}

var _ table.MultiMap[uint32, uint32] = (*MemberMultiMap[uint32, uint32])(nil)

// NewMemberMultiMap makes an empty multimap over the members: see NewMemberMap.
func NewMemberMultiMap[K, V any](m *Member, o Options, newTable func(d *device.Device, o table.Options) (table.MultiMap[K, V], error)) (*MemberMultiMap[K, V], error) {
	x := &MemberMultiMap[K, V]{tables: make(multiTables[K, V], 1)}
	var err error
	x.joint, err = newJoint(m, table.WidthsOf[K, V](), o, func(d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		x.tables[0] = t
		return t, err
	})
	return table.Made(x, err)
}

// Insert adds this member's pairs.
func (m *MemberMultiMap[K, V]) Insert(keys []K, values []V) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, values: values}, family.CheckLens(len(keys), len(values)), m.insert)
}

// InsertOn is Insert on this member's device.
func (m *MemberMultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.insert(bringing[K, V]{st: st, keys: keys, values: values})
}

func (m *MemberMultiMap[K, V]) insert(b bringing[K, V]) (err error) {
	b = b.checked(m.joint, b.values)
	told := m.opts.MaxBytes > 0 && m.opts.Mode == Distributed
	if told && b.err == nil {
		b.flags, b.err = device.Make[bool](m.d, b.keys.Len())
		defer func() {
			if e := b.flags.Free(); e != nil {
				err = errors.Join(err, e)
			}
		}()
	}
	return m.locked("Insert", func() error {
		var why error
		jb := m.inserting(told, &why)
		if m.opts.Mode == Independent {
			return m.local("Insert", &jb, b.source(), b.err, nil)
		}
		if err := m.exchange("Insert", &jb, b.source(), b.err); err != nil || !told {
			return err
		}
		why, err := m.whyFull("Insert", why, nil)
		if err != nil || why == nil {
			return err
		}
		return m.fullAt(why, func() ([]int, error) { return flagged(b.flags, func(lost bool) bool { return lost }) })
	})
}

// inserting is the job of an insert: with told it gives a flag for each row that found no room.
func (m *MemberMultiMap[K, V]) inserting(told bool, why *error) job {
	return job{values: sent, flags: told,
		full: func(_ int, e *table.FullError, _ received) error {
			return fmt.Errorf("no room, and without MaxBytes it is not told for what: %w", e)
		},
		run: func(_ int, st *device.Stream, r received) error {
			err := m.tables[0].InsertOn(st, device.View[K](r.keys, 0, r.n), device.View[V](r.values, 0, r.n))
			full := (*table.FullError)(nil)
			if !told || !errors.As(err, &full) {
				return err
			}
			*why = full.Why
			flags := make([]byte, r.n)
			for _, p := range full.Positions {
				flags[p] = 1
			}
			return r.flags.Write(st, flags)
		}}
}

// Contains tells of this member's keys which have a value.
func (m *MemberMultiMap[K, V]) Contains(keys []K, found []bool) error {
	return fromHost(m.joint, hostBatch[K, V]{keys: keys, flags: found}, family.CheckLens(len(keys), len(found)), m.contains)
}

// ContainsOn is Contains on this member's device.
func (m *MemberMultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.contains(bringing[K, V]{st: st, keys: keys, flags: found})
}

func (m *MemberMultiMap[K, V]) contains(b bringing[K, V]) error {
	return asking(m.joint, "Contains", b.checked(m.joint, b.flags), m.tables.finding())
}

// Count writes how many values each of this member's keys has.
func (m *MemberMultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return fromHost(m.joint, hostBatch[K, uint32]{keys: keys, out: counts}, family.CheckLens(len(keys), len(counts)), m.count)
}

// CountOn is Count on this member's device.
func (m *MemberMultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return m.count(bringing[K, uint32]{st: st, keys: keys, out: counts})
}

func (m *MemberMultiMap[K, V]) count(b bringing[K, uint32]) error {
	return asking(m.joint, "Count", b.checked(m.joint, b.out), m.tables.counting())
}

// Delete removes all values of this member's keys. The count is of the pairs that all members removed by this call, together.
func (m *MemberMultiMap[K, V]) Delete(keys []K, deleted []bool) (n int, err error) {
	lens := family.CheckLens(len(keys), table.OptionalLen(deleted))
	err = fromHost(m.joint, hostBatch[K, V]{keys: keys, flags: deleted}, lens, func(b bringing[K, V]) error {
		return m.locked("Delete", func() error {
			before, err := m.len()
			if err != nil {
				return err
			}
			jb := m.tables.deleting(true)
			if err := m.exchange("Delete", &jb, b.source(), b.err); err != nil {
				return err
			}
			after, err := m.len()
			n = before - after
			return err
		})
	})
	return n, err
}

// DeleteOn is Delete on this member's device; deleted may be the zero Slice.
func (m *MemberMultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return m.erase(bringing[K, V]{st: st, keys: keys, flags: deleted})
}

func (m *MemberMultiMap[K, V]) erase(b bringing[K, V]) error {
	return asking(m.joint, "Delete", b.checked(m.joint, table.Optional(b.flags)), m.tables.deleting(true))
}

// FindAll gives all values of each of this member's keys: see table.MultiMap.
func (m *MemberMultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	err = fromHost(m.joint, hostBatch[K, V]{keys: keys}, nil, func(b bringing[K, V]) error {
		o, v, err := m.findAll(b)
		if err != nil {
			return err
		}
		if offsets, err = table.Host(nil, o); err == nil {
			values, err = table.Host(nil, v)
		}
		return errors.Join(err, o.Free(), v.Free())
	})
	return offsets, values, err
}

// FindAllOn is FindAll on this member's device, in device slices of its own making, which the caller frees.
func (m *MemberMultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	b := bringing[K, V]{st: st, keys: keys}
	return m.findAll(b.checked(m.joint))
}

// findAll counts values first, and makes room for them; the rooms of all members are there before anything is sent.
func (m *MemberMultiMap[K, V]) findAll(b bringing[K, V]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	n := b.keys.Len()
	var counts device.Slice[uint32]
	defer func() {
		err = errors.Join(err, counts.Free())
		if err != nil {
			offsets.Free()
			values.Free()
			offsets, values = device.Slice[uint64]{}, device.Slice[V]{}
		}
	}()
	if b.err == nil {
		if counts, b.err = device.Make[uint32](m.d, n); b.err == nil {
			offsets, b.err = device.Make[uint64](m.d, n+1)
		}
	}
	err = m.locked("FindAll", func() error {
		ask := bringing[K, uint32]{st: b.st, keys: b.keys, out: counts, err: b.err}
		count := m.tables.counting()
		if err := m.exchange("FindAll", &count, ask.source(), b.err); err != nil {
			return err
		}
		total, err := 0, offsets.Fill(m.m.split, 0)
		if n > 0 && err == nil {
			total, err = m.m.offsets(m.m.split, counts, offsets)
		}
		if err == nil {
			values, err = device.Make[V](m.d, total)
		}
		jb := job{asks: true, lists: m.tables.listing, taken: func(_ *member, p *listRows, first int) {
			p.Offsets, p.OutValues = offsets.Addr()+8*uint64(first), values.Addr()
		}}
		return m.exchange("FindAll", &jb, b.source(), err)
	})
	return offsets, values, err
}

// roundsOfLists does the rounds of a job of lists, one after the other: how long lists are is known when they are there.
func (j *joint) roundsOfLists(jb *job, p plan, s source) error {
	if err := j.makeRoom(jb, p); err != nil {
		return err
	}
	if err := j.m.cursors.Fill(j.m.split, 0); err != nil {
		return err
	}
	for r, rd := range p.rounds {
		half := r % 2
		err := errors.Join(j.send(jb, rd, r, half, s), j.carry(jb, rd, half, s, false), j.m.work.Wait(j.arrived[half]))
		if err == nil {
			err = j.roundOfLists(jb, rd, half, s)
		}
		if err != nil {
			return err
		}
	}
	return j.meeting.Err()
}

// roundOfLists finds the lists of the rows that this member got in a round, and brings the values of its own rows back.
func (j *joint) roundOfLists(jb *job, rd round, half int, s source) (err error) {
	var own list
	bounds := make([]uint64, j.size+1) // where each member's values begin
	var free []func() error
	defer func() {
		for _, f := range free {
			err = errors.Join(err, f())
		}
	}()
	if n := rd.gets[j.rank]; n > 0 {
		if own, err = jb.lists(0, j.m.work, j.cut(j.m.inbox[half], j.columns(n, jb), 0, n)); err != nil {
			return err
		}
		free = append(free, own.offsets.Free, own.values.Free)
		offsets, err := own.offsets.Host(j.m.work)
		if err != nil {
			return err
		}
		for from := range j.size {
			bounds[from] = offsets[rd.at[from][j.rank]]
		}
		bounds[j.size] = offsets[n]
	}
	all, err := agreed(j, "FindAll", bounds, nil)
	if err != nil {
		return err
	}
	values := uint64(j.valueBytes)
	rows := rd.to[j.rank] - rd.from[j.rank]
	q := listRows{N: uint64(rows), Owners: uint64(j.size)}
	if !jb.all {
		q.Places = j.m.notes[half].Addr()
		q.Bases = q.Places + uint64(j.notesOf(rows, j.size).bases)
	}
	var out, in []nccl.Piece
	for peer := range j.size {
		at, n := rd.at[peer][j.rank], rd.n[peer][j.rank]
		if peer == j.rank && n > 0 {
			q.Lists[peer], q.Values[peer] = own.offsets.Addr()+8*uint64(at), own.values.Addr()
		}
		if peer == j.rank {
			continue
		}
		if n > 0 {
			out = append(out, nccl.Piece{Addr: own.offsets.Addr() + 8*uint64(at), Bytes: 8 * (n + 1), Peer: peer})
			if bytes := int((bounds[peer+1] - bounds[peer]) * values); bytes > 0 {
				out = append(out, nccl.Piece{Addr: own.values.Addr() + bounds[peer]*values, Bytes: bytes, Peer: peer})
			}
		}
		if n := rd.n[j.rank][peer]; n > 0 {
			from, bytes := all[peer][j.rank], int((all[peer][j.rank+1]-all[peer][j.rank])*values)
			lists, e1 := device.Make[uint64](j.d, n+1)
			found, e2 := device.Make[byte](j.d, max(1, bytes))
			free = append(free, lists.Free, found.Free)
			if err := errors.Join(e1, e2); err != nil {
				return err
			}
			in = append(in, nccl.Piece{Addr: lists.Addr(), Bytes: 8 * (n + 1), Peer: peer})
			if bytes > 0 {
				in = append(in, nccl.Piece{Addr: found.Addr(), Bytes: bytes, Peer: peer})
			}
			q.Lists[peer], q.Values[peer] = lists.Addr(), found.Addr()-from*values // offsets are the owner's
		}
	}
	if err := j.m.work.Sync(); err != nil {
		return err
	}
	if len(out)+len(in) > 0 {
		if err := j.swap(out, in); err != nil {
			return err
		}
	}
	err = errors.Join(j.wire.Sync(), j.m.done[half].Record(j.m.work))
	if rows == 0 || err != nil {
		return err
	}
	jb.taken(j.m, &q, rd.from[j.rank])
	grid := device.GridFor(int64(rows)*listLanes, threads)
	if info := j.d.Info(); info.CUDA() {
		grid.Blocks = min(grid.Blocks, 16*int64(info.Multiprocessors))
	}
	return errors.Join(j.m.lists[3].Launch(j.m.split, grid, &q), j.m.split.Sync())
}

// All exports the pairs of this member's part, in no order. It is not collective.
func (m *MemberMultiMap[K, V]) All() (keys []K, values []V, err error) {
	err = m.part(func() (err error) { keys, values, err = m.tables[0].All(); return err })
	return keys, values, err
}

// Chunks gives the pairs of this member's part to do, in chunks: see MemberMap.
func (m *MemberMultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return m.part(func() error { return m.tables[0].Chunks(ctx, do) })
}

// Check walks the invariants of this member's table, and sees that its keys belong to it. Slow. It is collective.
func (m *MemberMultiMap[K, V]) Check() error {
	return m.check(func() ([]uint64, error) { keys, _, err := m.tables[0].All(); return patterns(keys), err })
}
