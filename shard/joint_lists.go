package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard/internal/nccl"
)

func (j *joint) lists(b batch, l listing, take taker) error {
	var offsets device.Slice[uint64]
	var values device.Slice[byte]
	err := j.bring(b, func(s source, wrong error) (err error) {
		offsets, values, err = j.findAll(s, wrong, l)
		return err
	})
	if err != nil {
		return errors.Join(err, offsets.Free(), values.Free())
	}
	return take(offsets, values)
}

// findAll counts values first, and makes room for them; the rooms of all members are there before anything is sent.
func (j *joint) findAll(s source, wrong error, l listing) (offsets device.Slice[uint64], values device.Slice[byte],
	err error) {
	var counts device.Slice[uint32]
	defer func() {
		err = errors.Join(err, counts.Free())
		if err != nil {
			offsets.Free()
			values.Free()
			offsets, values = device.Slice[uint64]{}, device.Slice[byte]{}
		}
	}()
	if wrong == nil {
		if counts, wrong = device.Make[uint32](j.d, s.n); wrong == nil {
			offsets, wrong = device.Make[uint64](j.d, s.n+1)
		}
	}
	err = j.locked("FindAll", func() error {
		ask, count := s, l.count
		ask.out = counts.Addr()
		if err := j.exchange("FindAll", &count, ask, wrong); err != nil {
			return err
		}
		total, err := 0, offsets.Fill(j.m.split, 0)
		if s.n > 0 && err == nil {
			total, err = j.m.offsets(j.m.split, counts, offsets)
		}
		if err == nil {
			values, err = device.Make[byte](j.d, total*j.valueBytes)
		}
		jb := l.job(offsets, values)
		return j.exchange("FindAll", &jb, s, err)
	})
	return offsets, values, err
}

// roundsOfLists does the rounds of a job of lists, one after the other, because a list's length is known only once it
// is found. There is room for the plan.
func (j *joint) roundsOfLists(jb *job, p plan, s source) error {
	if err := j.m.cursors.Fill(j.m.split, 0); err != nil {
		return err
	}
	for r, rd := range p.rounds {
		half := r % 2
		if err := frame.InTurn(
			func() error { return j.send(jb, rd, r, half, s) },
			func() error { return j.carry(jb, rd, half, s, false) },
			func() error { return j.m.work.Wait(j.arrived[half]) },
			func() error { return j.roundOfLists(jb, rd, half, s) },
		); err != nil {
			return err
		}
	}
	return j.meeting.Err()
}

// roundOfLists finds the lists of the rows that this member got in a round, and carries the values of its own rows
// back. If a member lacks memory for lists, the call is off for all members, and nothing of them is sent.
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
		var offsets []uint64
		own, err = jb.lists(0, j.m.work, j.cut(j.m.inbox[half], j.columns(n, jb), 0, n))
		free = append(free, own.offsets.Free, own.values.Free)
		if err == nil {
			offsets, err = own.offsets.Host(j.m.work)
		}
		for from := 0; from < j.size && err == nil; from++ {
			bounds[from] = offsets[rd.at[from][j.rank]]
		}
		if err == nil {
			bounds[j.size] = offsets[n]
		}
	}
	all, err := agreed(j, "FindAll", bounds, err)
	if err != nil {
		return j.callOff(err)
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
			err = errors.Join(err, e1, e2)
			in = append(in, nccl.Piece{Addr: lists.Addr(), Bytes: 8 * (n + 1), Peer: peer})
			if bytes > 0 {
				in = append(in, nccl.Piece{Addr: found.Addr(), Bytes: bytes, Peer: peer})
			}
			q.Lists[peer], q.Values[peer] = lists.Addr(), found.Addr()-from*values // offsets are the owner's
		}
	}
	if err := j.together("FindAll", errors.Join(err, j.m.work.Sync())); err != nil {
		return j.callOff(err)
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
