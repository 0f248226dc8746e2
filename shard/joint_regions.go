package shard

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard/internal/nccl"
)

// Members' large batches are sorted and worked on in steps as those of one process are: see regions.go. NCCL carries
// the rows of a step between all members at once, and the results of a step back.

// anyOrder is the number of regions that a member without rows asks for: any.
const anyOrder = -1

// wanted returns the order in which this member would have its rows sorted. It takes it that other members have as many
// rows.
func (j *joint) wanted(jb *job, s source) (o order) {
	if jb.ordering == nil || jb.all || j.opts.Regions < 0 || j.size == 1 || s.when != 0 {
		return order{}
	}
	own, ok := jb.ordering(0, min(j.piece, s.n))
	o = order{regions: own.Regions, seed: own.Seed, paired: own.Paired}
	if j.opts.Regions > 0 {
		o.regions = j.opts.Regions
	}
	o.regions = min(o.regions, frame.MaxParts/j.size)
	if s.n == 0 {
		o.regions = anyOrder
	}
	if !ok || s.n > 0 && (o.regions < 2 || j.words(s.n, j.piece, o) > mostWords) || !j.m.regional.load(j.d, j.widths) {
		return order{}
	}
	return o
}

// words returns the number of counts of a member with n rows in pieces.
func (j *joint) words(n, piece int, o order) int {
	chunk := o.chunk(piece)
	return (n + chunk - 1) / chunk * j.size * max(1, o.regions)
}

// agreedOrder returns the order that all members want, with the largest number of regions. It returns none if one
// member wants none, or if one would have to send too many counts by it.
func (j *joint) agreedOrder(jb *job, said []request) order {
	o := order{paired: jb.pairs()}
	for rank, x := range said {
		if x.Regions == 0 || rank > 0 && x.Order != o.seed {
			return order{}
		}
		o.regions, o.seed = max(o.regions, x.Regions), x.Order
		o.paired = o.paired && (x.Paired || x.N == 0)
	}
	if o.regions <= 0 || j.words(largestOf(said), j.piece, o) > mostWords {
		return order{}
	}
	return o.inSteps(!jb.asks, true)
}

// counted counts this member's rows by chunk, owner and, where they go in an order, region.
func (j *joint) counted(s source, o order) ([]uint64, error) {
	chunk, words := o.chunk(j.piece), j.words(s.n, j.piece, o)
	var err error
	if o.regions > 0 {
		err = j.m.startCountRegions(s, j.seed, j.size, o, chunk, words)
	} else {
		err = j.m.startCount(s, j.seed, j.size, chunk, words)
	}
	if err = errors.Join(err, j.m.ahead.Sync()); err != nil {
		return nil, err
	}
	return slices.Clone(j.m.landing.Slice()[:words]), nil
}

// boxRows returns rows of this member's box in a round.
func (j *joint) boxRows(jb *job, p plan, r, from, n int) received {
	return p.boxRows(j.widths, jb, j.m.inbox[r%2], j.rank, r, from, n)
}

// roundsOrdered does all rounds of a plan whose rows are sorted, one after the other: see regions.go.
func (j *joint) roundsOrdered(jb *job, p plan, s source) error {
	if err := j.m.setCursors(p.starts(j.rank)); err != nil {
		return err
	}
	for r := range p.rounds {
		if err := j.m.steps[r%2].room(j.d, len(p.order.steps)); err != nil {
			return err
		}
		if err := frame.InTurn(
			func() error { return j.sendOrdered(jb, p, r, s) },
			func() error { return j.workOrdered(jb, p, r) },
			func() error { return j.fetchOrdered(jb, p, r, s) },
		); err != nil {
			return err
		}
	}
	err := errors.Join(j.wire.Sync(), j.m.split.Sync(), j.m.work.Sync())
	return errors.Join(err, j.meeting.Err())
}

// sendOrdered queues sorting this member's rows of a round, and sending them to their owners step by step.
func (j *joint) sendOrdered(jb *job, p plan, r int, s source) error {
	half, rd := r%2, p.rounds[r]
	// The box is that of the round before the last, whose rows and results may still be on their way. Also a member
	// without rows waits, because others send rows into its box.
	for _, before := range []*device.Event{j.arrived[half], j.m.done[half], j.m.done[1-half], j.back[half]} {
		if err := errors.Join(j.m.split.Wait(before), j.m.work.Wait(before)); err != nil {
			return err
		}
	}
	if rows := rd.to[j.rank] - rd.from[j.rank]; rows > 0 {
		x := sorting{from: rd.from[j.rank], rows: rows, round: r, half: half, owners: j.size, order: p.order,
			seed: j.seed, box: j.boxRows(jb, p, r, 0, p.layouts[r].rows[j.rank])}
		if err := j.m.sortRows(j.widths, jb, s, x); err != nil {
			return err
		}
	}
	if err := errors.Join(j.m.sorted[half].Record(j.m.split), j.wire.Wait(j.m.sorted[half])); err != nil {
		return err
	}
	going := func(out, in received) []carried { return p.order.going(jb, out, in) }
	for step := range p.order.steps {
		err := j.carryStep(p, r, step, going, jb, false)
		if err = errors.Join(err, j.m.steps[half].ready[step].Record(j.wire)); err != nil {
			return err
		}
		if jb.asks { // while NCCL begins with the next step
			if err := j.answerOrdered(jb, p, r, step); err != nil {
				return err
			}
		}
	}
	return j.arrived[half].Record(j.wire)
}

// answerOrdered looks up or deletes the rows of a step.
func (j *joint) answerOrdered(jb *job, p plan, r, step int) error {
	steps := j.m.steps[r%2]
	from, rows := p.stepRows(r, step, j.rank)
	return frame.InTurn(
		func() error { return j.m.work.Wait(steps.ready[step]) },
		func() error { return j.operateOrdered(jb, p, r, from, rows, p.sortedRows(r, j.rank)) },
		func() error { return steps.answered[step].Record(j.m.work) },
	)
}

// carryStep has NCCL carry the rows of a step between this member and others, or the results of the step back.
func (j *joint) carryStep(p plan, r, step int, columns func(out, in received) []carried, jb *job, back bool) error {
	var send, receive []nccl.Piece
	add := func(to *[]nccl.Piece, mem device.Slice[byte], peer int) {
		if mem.Len() > 0 {
			*to = append(*to, nccl.Piece{Addr: mem.Addr(), Bytes: mem.Len(), Peer: peer})
		}
	}
	for _, w := range p.step(r, step) {
		for next := range j.size - 1 {
			peer := (j.rank + 1 + next) % j.size
			own, other := w.of(j.rank, peer), w.of(peer, j.rank)
			out, in := j.boxRows(jb, p, r, own.out, own.n), j.boxRows(jb, p, r, other.in, other.n)
			if back {
				out, in = in, out
			}
			for _, c := range columns(out, out) {
				add(&send, c.from, peer)
			}
			for _, c := range columns(in, in) {
				add(&receive, c.to, peer)
			}
		}
	}
	if len(send)+len(receive) == 0 {
		return nil
	}
	return j.swap(send, receive)
}

// workOrdered inserts what this member gets in a round. Its table knows when each step is there.
func (j *joint) workOrdered(jb *job, p plan, r int) error {
	if !jb.asks {
		o, steps := p.sortedRows(r, j.rank), j.m.steps[r%2]
		o.Chunks = p.chunks(r, j.rank, steps.ready)
		if err := errors.Join(j.operateOrdered(jb, p, r, 0, p.rounds[r].gets[j.rank], o),
			steps.answerAll(j.m.work, p.steps())); err != nil {
			return err
		}
	}
	return j.m.done[r%2].Record(j.m.work)
}

// operateOrdered does the operation on rows of this member's inbox.
func (j *joint) operateOrdered(jb *job, p plan, r, from, rows int, o *frame.Sorted) error {
	if rows == 0 {
		return nil
	}
	got := j.boxRows(jb, p, r, from, rows)
	got.sorted = o
	run := func(got received) error { return j.operate(jb, got) }
	if !o.Paired {
		return run(got)
	}
	return j.m.inPairs(j.widths, jb, 0, got, run, func(got received, why error) error { return j.none(jb, got, why) })
}

// fetchOrdered queues carrying the results of a round back, and putting them where they belong.
func (j *joint) fetchOrdered(jb *job, p plan, r int, s source) error {
	if !jb.comesBack() {
		return nil
	}
	half, rd := r%2, p.rounds[r]
	for step := range p.order.steps {
		if err := frame.InTurn(
			func() error { return j.wire.Wait(j.m.steps[half].answered[step]) },
			func() error { return j.carryStep(p, r, step, jb.coming, jb, true) },
		); err != nil {
			return err
		}
	}
	if err := j.back[half].Record(j.wire); err != nil {
		return err
	}
	rows := rd.to[j.rank] - rd.from[j.rank]
	if rows == 0 {
		return nil
	}
	g := j.m.gatherOrdered(j.widths, jb, s, rd.from[j.rank], rows, half, j.size, p.order)
	box := j.boxRows(jb, p, r, 0, p.layouts[r].rows[j.rank])
	for from := range j.size {
		g.Values[from], g.Flags[from] = box.out.Addr(), box.flags.Addr()
	}
	return frame.InTurn(
		func() error { return j.m.split.Wait(j.back[half]) },
		func() error { return j.m.split.Wait(j.m.done[half]) },
		func() error {
			return j.m.regional.gather.Launch(j.m.split, j.m.regionGrid(j.m.regional.gather.Threads(), rows), &g)
		},
	)
}
