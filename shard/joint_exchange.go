package shard

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/table"
)

// request is a member's part of an operation: its number of rows, the counts of each chunk for each owner, and the
// order by which it counted.
type request struct {
	N       int
	Sums    bool // its rows are sums of a batch's
	Counts  []uint64
	Regions int    // anyOrder without rows
	Order   uint64 // its seed
	Paired  bool   // this member's table takes pairs
}

// largestOf returns the number of rows of the member that has most.
func largestOf(said []request) (n int) {
	for _, x := range said {
		n = max(n, x.N)
	}
	return n
}

// exchange does a job of all members. s has this member's rows, and err is its error of an earlier step. exchange waits
// until this member's part is done. If memory is short, all members take smaller pieces. If all members with rows have
// sums, exchange does jb.sums instead, and jb is that job then.
func (j *joint) exchange(what string, jb *job, s source, err error) error {
	own, rows := request{N: s.n}, s
	if jb.sums != nil && jb.sums.sources[0].n > 0 {
		s = jb.sums.sources[0]
		own.N, own.Sums = s.n, true
	}
	jb.all = jb.asks && j.opts.Mode == Independent
	if err == nil && jb.owned && j.scattered {
		err = errScattered
	}
	if err == nil && jb.all && s.n > 0 {
		err = errors.Join(j.m.came.Record(s.st), j.m.split.Wait(j.m.came))
	} else if err == nil {
		o := j.wanted(jb, s)
		own.Regions, own.Order, own.Paired = o.regions, o.seed, o.paired
		if s.n > 0 {
			own.Counts, err = j.counted(s, o)
		}
	}
	said, err := agreed(j, what, own, err)
	if err != nil {
		return err
	}
	sums := func(x request) bool { return x.Sums }
	again := func(x request) bool { return x.N > 0 && x.Regions != jb.order.regions } // it counts again
	switch {
	case !slices.ContainsFunc(said, sums):
	case !slices.ContainsFunc(said, func(x request) bool { return x.N > 0 && !x.Sums }):
		*jb = *jb.sums
	default: // all members send rows
		again, s = func(x request) bool { return x.Sums || x.N > 0 && x.Regions != jb.order.regions }, rows
	}
	jb.order = j.agreedOrder(jb, said)
	if slices.ContainsFunc(said, again) {
		if again(own) {
			own.N, own.Sums = s.n, false
			own.Counts, err = j.counted(s, jb.order)
		}
		if said, err = agreed(j, what, own, err); err != nil {
			return err
		}
	}
	piece, most := j.piece, j.most
	defer func() { j.piece, j.most = piece, most }()
	for {
		p := j.planned(jb, said)
		err := j.roomFor(what, jb, p)
		if err == nil {
			return j.carryOut(jb, p, s)
		}
		if short := (shortError{}); !errors.As(err, &short) {
			return err
		} else if !j.smaller(jb, largestOf(said), piece, most) {
			return short.error
		}
		err = nil
		if !jb.all && s.n > 0 { // a chunk must fit an inbox
			own.Counts, err = j.counted(s, jb.order)
		}
		if said, err = agreed(j, what, own, err); err != nil {
			return err
		}
	}
}

// carryOut does the rounds of a plan for which all members have room. If that fails, other members may wait for this
// one, so the job ends. Nothing of the call is under way when carryOut returns, because the caller may free its memory.
func (j *joint) carryOut(jb *job, p plan, s source) error {
	rounds := j.rounds
	if jb.lists != nil {
		rounds = j.roundsOfLists
	}
	err := rounds(jb, p, s)
	if err == nil {
		return nil
	}
	off := calledOff{}
	if !errors.As(err, &off) {
		err = frame.OneLine(j.named(err))
		j.broken = err
		if j.meeting.Err() == nil {
			j.meeting.Fail(err.Error())
		}
		j.comm.Abort() // what waits for others ends
	}
	for _, st := range []*device.Stream{j.wire, j.m.split, j.m.work} {
		st.Sync()
	}
	if off.error != nil {
		return off.error
	}
	return err
}

// calledOff is the error of a step that all members got, before anything of the step was sent. The job goes on.
type calledOff struct{ error }

func (e calledOff) Unwrap() error { return e.error }

// callOff makes the error of an agreement the end of a call, unless the agreement itself failed.
func (j *joint) callOff(err error) error {
	if err == nil || j.broken != nil {
		return err
	}
	return calledOff{err}
}

// planned is everybody's plan, from what all have said.
func (j *joint) planned(jb *job, said []request) plan {
	chunk := jb.order.chunk(j.piece)
	sizes, counts := make([]int, j.size), make([][]uint64, j.size)
	for rank, x := range said {
		sizes[rank], counts[rank] = x.N, x.Counts
		switch {
		case jb.all:
			counts[rank] = toAll(x.N, chunk, j.size)
		case jb.order.regions > 0:
			counts[rank] = jb.order.ownersOf(x.Counts)
		}
	}
	p := newPlan(sizes, counts, chunk, j.piece, max(chunk, j.most))
	if jb.order.regions > 0 {
		for rank, x := range said {
			counts[rank] = x.Counts
		}
		p.sorted(jb.order, counts, chunk)
	}
	return p
}

// rounds does all rounds of a plan for which there is room. While the table works on one, the next is split and on its
// way, unless rows are sorted.
func (j *joint) rounds(jb *job, p plan, s source) error {
	if len(p.rounds) == 0 {
		return nil
	}
	if p.order.regions > 0 {
		return j.roundsOrdered(jb, p, s)
	}
	half := func(r int) int { return r % 2 } // nothing is under way: one inbox does for one round
	const lag = 1
	if err := j.m.cursors.Fill(j.m.split, 0); err != nil {
		return err
	}
	for r := range len(p.rounds) + lag {
		if r < len(p.rounds) {
			if err := frame.InTurn(
				func() error { return j.send(jb, p.rounds[r], r, half(r), s) },
				func() error { return j.carry(jb, p.rounds[r], half(r), s, false) },
			); err != nil {
				return err
			}
		}
		done := r - lag
		if done < 0 {
			continue
		}
		if err := j.work(jb, p.rounds[done], half(done)); err != nil {
			return err
		}
		if jb.comesBack() {
			if err := frame.InTurn(
				func() error { return j.carry(jb, p.rounds[done], half(done), s, true) },
				func() error { return j.fetch(jb, p.rounds[done], half(done), s) },
			); err != nil {
				return err
			}
		}
	}
	// What others carry may still wait for this one, and for those that are gone.
	err := errors.Join(j.wire.Sync(), j.m.split.Sync(), j.m.work.Sync())
	return errors.Join(err, j.meeting.Err())
}

// box is the registration of a member's memory with NCCL.
type box struct{ undo func() }

// fit makes memory of that many bytes, if there is less. NCCL sends from it and receives into it.
func (b *box) fit(j *joint, s *device.Slice[byte], bytes int) (err error) {
	if s.Len() >= bytes {
		return nil
	}
	if err = b.release(s); err == nil {
		*s, err = device.Make[byte](j.d, bytes)
	}
	if err == nil {
		err = j.d.Current(func() error {
			undo := j.comm.Register(s.Addr(), s.Len())
			b.undo = func() {
				if j.meeting.Err() == nil { // else NCCL may wait for a member that is gone
					j.d.Current(func() error { undo(); return nil })
				}
			}
			return nil
		})
	}
	return err
}

// release frees memory that nothing uses.
func (b *box) release(s *device.Slice[byte]) error {
	if b.undo != nil {
		b.undo()
		b.undo = nil
	}
	return release(s)
}

func (j *joint) roomForNotes(half, bytes int) (err error) {
	notes := &j.m.notes[half]
	if notes.Len() < bytes {
		if err = release(notes); err == nil {
			*notes, err = device.Make[byte](j.d, bytes)
		}
	}
	return err
}

// makeRoom makes inboxes, outboxes and notes as large as the plan needs them. Nothing is under way.
func (j *joint) makeRoom(jb *job, p plan) error {
	own := 0 // rows of a round
	for _, rd := range p.rounds {
		own = max(own, rd.to[j.rank]-rd.from[j.rank])
	}
	noted := j.notesOf(own, j.size)
	if jb.order.regions > 0 && own > 0 { // a member without rows may be without these kernels
		noted = j.m.notesOfRegions(j.widths, own, j.size*jb.order.regions)
	}
	gets, sends := p.rows[j.rank], boxed(jb, own, j.size)
	if jb.order.regions > 0 { // one box has both
		gets, sends = gets+own, 0
	}
	for half := range min(2, len(p.rounds)) {
		err := errors.Join(j.inbox[half].fit(j, &j.m.inbox[half], j.columns(gets, jb).bytes),
			j.outbox[half].fit(j, &j.m.outbox[half], j.columns(sends, jb).bytes),
			j.roomForNotes(half, noted.bytes))
		if err != nil {
			return err
		}
	}
	if words := j.cursorsOf(jb, p); j.m.cursors.Len() < words {
		return j.m.roomForCursors(words)
	}
	return nil
}

// cursorsOf returns the number of cursors of a plan: one for each round, owner and region.
func (j *joint) cursorsOf(jb *job, p plan) int {
	return max(leastCursors, len(p.rounds)*j.size*max(1, jb.order.regions))
}

// outgoing is the part of the outbox that is for a rank, or comes back from it. Keys that go to all are the caller's
// own.
func (j *joint) outgoing(jb *job, rd round, half, to int, s source) received {
	from, rows, at := rd.from[j.rank], rd.to[j.rank]-rd.from[j.rank], 0
	for k := range to {
		at += rd.n[j.rank][k]
	}
	r := j.cut(j.m.outbox[half], j.columns(boxed(jb, rows, j.size), jb), at, rd.n[j.rank][to])
	if jb.all && rows > 0 {
		r.keys = s.slices.keys.Slice(from*j.keyBytes, (from+rows)*j.keyBytes)
	}
	return r
}

// incoming is the part of the inbox that is a rank's.
func (j *joint) incoming(jb *job, rd round, half, from int) received {
	return j.cut(j.m.inbox[half], j.columns(rd.gets[j.rank], jb), rd.at[from][j.rank], rd.n[from][j.rank])
}

// send queues splitting this member's rows of a round into its outbox. What goes to all is not split.
func (j *joint) send(jb *job, rd round, r, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	if rows == 0 {
		return nil
	}
	if jb.all {
		return j.m.sent[half].Record(j.m.split)
	}
	p := j.split(jb, s, rd.from[j.rank], rows)
	p.places(j.seed, j.size, j.m.cursors.Addr()+uint64(8*r*j.size))
	p.Places = j.m.notes[half].Addr()
	p.Bases = p.Places + uint64(j.notesOf(rows, j.size).bases)
	for to := range j.size {
		p.to(to, j.outgoing(jb, rd, half, to, s))
	}
	return errors.Join(frame.InTurn(
		func() error { return j.m.split.Wait(j.arrived[half]) },
		func() error { return j.m.splits.Launch(j.m.split, j.tiles(j.m, rows), &p) },
	), j.m.sent[half].Record(j.m.split))
}

// carry queues what goes between members in a round: rows to their owners, or results back.
func (j *joint) carry(jb *job, rd round, half int, s source, results bool) error {
	if err := j.waits(jb, half, results); err != nil {
		return err
	}
	var out, in []nccl.Piece
	for peer := range j.size {
		o, i := j.outgoing(jb, rd, half, peer, s), j.incoming(jb, rd, half, peer)
		columns := jb.going(o, i)
		if results {
			columns = jb.coming(i, o)
		}
		for _, column := range columns {
			if peer == j.rank {
				if err := column.to.CopyFrom(j.wire, column.from); err != nil {
					return err
				}
				continue
			}
			if column.from.Len() > 0 {
				out = append(out, nccl.Piece{Addr: column.from.Addr(), Bytes: column.from.Len(), Peer: peer})
			}
			if column.to.Len() > 0 {
				in = append(in, nccl.Piece{Addr: column.to.Addr(), Bytes: column.to.Len(), Peer: peer})
			}
		}
	}
	if len(out)+len(in) > 0 {
		if err := j.swap(out, in); err != nil {
			return err
		}
	}
	if results {
		return j.back[half].Record(j.wire)
	}
	return j.arrived[half].Record(j.wire)
}

// swap has NCCL carry pieces on the wire. After an error nothing of it goes on, so that their memory may be freed.
func (j *joint) swap(out, in []nccl.Piece) error {
	err := j.d.Current(func() error { return j.comm.Exchange(out, in, j.wire.Handle()) })
	if err == nil {
		err = j.comm.Wait(j.meeting.Broken())
	} else {
		j.failing(err)
	}
	if err != nil {
		j.comm.Abort()
		j.wire.Sync()
	}
	return err
}

// waits holds back the wire until what it takes is there, and what it writes to is free.
func (j *joint) waits(jb *job, half int, results bool) error {
	if results {
		return j.wire.Wait(j.m.done[half])
	}
	return errors.Join(j.wire.Wait(j.m.sent[half]), j.wire.Wait(j.m.done[half]))
}

// work does the operation on what this member got in a round.
func (j *joint) work(jb *job, rd round, half int) error {
	n := rd.gets[j.rank]
	return frame.InTurn(
		func() error { return j.m.work.Wait(j.arrived[half]) },
		func() error { return j.operate(jb, j.cut(j.m.inbox[half], j.columns(n, jb), 0, n)) },
		func() error { return j.m.done[half].Record(j.m.work) },
	)
}

// operate does the operation on rows that this member got.
func (j *joint) operate(jb *job, got received) error {
	if got.n == 0 {
		return nil
	}
	got = jb.wanted(got)
	if jb.flags && !jb.asks { // no kernel may see rows that are refused
		if err := got.flags.Fill(j.m.work, 0); err != nil {
			return err
		}
	}
	err := jb.run(0, j.m.work, got) // the job has this member's table alone
	if device.IsOutOfMemory(err) && !isFull(err) && jb.full != nil {
		return j.none(jb, got, err)
	}
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = jb.full(0, full, got)
	}
	return err
}

// none notes that the table had no memory for rows, and took none of them.
func (j *joint) none(jb *job, got received, why error) error {
	if err := got.sorted.Wait(j.m.work); err != nil {
		return err
	}
	got.untried = true
	err := noneIn(j.m.work, got, why, jb.mixed)
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = jb.full(0, full, got)
	}
	return err
}

// fetch queues putting a round's results where they belong.
func (j *joint) fetch(jb *job, rd round, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	if rows == 0 {
		return nil
	}
	p := j.gathered(jb, s, rd.from[j.rank], rows)
	p.Owners, p.Places = uint64(j.size), j.m.notes[half].Addr()
	p.Bases = p.Places + uint64(j.notesOf(rows, j.size).bases)
	for from := range j.size {
		x := j.outgoing(jb, rd, half, from, s)
		p.Values[from], p.Flags[from] = x.out.Addr(), x.flags.Addr()
	}
	if jb.sum {
		p.Sum = 1
	}
	if err := j.m.split.Wait(j.back[half]); err != nil {
		return err
	}
	if jb.all {
		return j.m.merge.Launch(j.m.split, plain(j.m, rows), &p)
	}
	return j.m.gather.Launch(j.m.split, j.tiles(j.m, rows), &p)
}
