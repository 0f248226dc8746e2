package shard

import (
	"errors"
	"github.com/warpmap/warpmap/internal/frame"
	"slices"
)

// Members' large batches, too, are split by owner and region at once. What NCCL carries from one member to another is
// one stretch, so an owner has each source's rows in order, one source after the other, and its table takes them as so
// many batches. What a member brings for itself stays in its outbox, and its table works on it while NCCL carries:
// while the others' rows come, and where results go back, on the second half of it while these are on their way.
//
//	outbox   ┌ for 0 ─────────────────┬ for 1 ─────────────────┐      inbox   ┌ from 0 ────────────────┬ from 1 ─┄
//	         │ region 0 │ region 1 │ … │ region 0 │ region 1 │ … │   ═══════▶   │ region 0 │ region 1 │ … │
//	         └──────────┴──────────┴───┴──────────┴──────────┴───┘              └──────────┴──────────┴───┴─────────┄

// anyOrder are the regions of a member that brings no rows: it does as the others want.
const anyOrder = -1

// wanted is the order in which this member would have its rows split: all bring as many, as far as it knows.
func (j *joint) wanted(jb *job, s source) (o order) {
	if jb.ordering == nil || jb.all || j.opts.Regions < 0 || j.size == 1 || s.when != 0 {
		return order{}
	}
	own, ok := jb.ordering(0, min(j.piece, s.n)/j.size)
	o = order{regions: own.Regions, seed: own.Seed}
	if s.n == 0 {
		if !ok {
			return order{}
		}
		o.regions = anyOrder
		return o
	}
	if j.opts.Regions > 0 {
		o.regions = j.opts.Regions
	}
	o.regions = min(o.regions, frame.MaxParts/j.size)
	if !ok || o.regions < 2 || j.words(s, o) > mostWords || !j.m.regional.load(j.d, j.widths) {
		return order{}
	}
	return o
}

// mostWords is how many counts a member tells all others, at most, where an order has them: 8 MiB.
const mostWords = 1 << 20

// words is how many counts this member's rows have.
func (j *joint) words(s source, o order) int {
	chunk := o.chunk(j.piece)
	return (s.n + chunk - 1) / chunk * j.size * max(1, o.regions)
}

// agreedOrder is the order that all want, by the largest number of regions; there is none where one wants none.
func agreedOrder(said []request) (o order) {
	for rank, x := range said {
		if x.Regions == 0 || rank > 0 && x.Order != o.seed {
			return order{}
		}
		o.regions, o.seed = max(o.regions, x.Regions), x.Order
	}
	if o.regions <= 0 {
		return order{}
	}
	return o
}

// counted counts this member's rows by chunk, owner and, where they go in an order, region.
func (j *joint) counted(s source, o order) ([]uint64, error) {
	chunk, words := o.chunk(j.piece), j.words(s, o)
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

// startsInBox says where this member's rows of each part begin in its outbox, of every round.
func (j *joint) startsInBox(p plan, counts []uint64) (starts []uint64) {
	parts := j.size * p.order.regions
	for _, rd := range p.rounds {
		at := uint64(0)
		for _, n := range rd.parts(j.rank, parts, counts, p.order.chunk(j.piece)) {
			starts = append(starts, at)
			at += n
		}
	}
	return starts
}

// sendOrdered queues splitting this member's rows of a round into its outbox, by owners and regions.
func (j *joint) sendOrdered(jb *job, rd round, r, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	p := j.m.splitOrdered(j.widths, jb, s, rd.from[j.rank], rows, r, half, j.size, jb.order)
	p.Seed = j.seed
	box := j.boxOrdered(jb, rows, half)
	for to := range j.size {
		p.OutKeys[to], p.OutValues[to] = box.keys.Addr(), box.values.Addr()
	}
	if r > 0 && !jb.asks { // the table wants the L2 cache alone: see flight.ahead
		if err := j.m.split.Wait(j.m.done[1-half]); err != nil {
			return err
		}
	}
	return errors.Join(frame.InTurn(
		func() error { return j.m.split.Wait(j.arrived[half]) },
		func() error { return j.m.split.Wait(j.m.done[half]) },
		func() error {
			return j.m.regional.split.Launch(j.m.split, j.m.regionGrid(j.m.regional.split.Threads(), rows), &p)
		},
	), j.m.sent[half].Record(j.m.split))
}

// boxOrdered is the outbox with so many rows of a round.
func (j *joint) boxOrdered(jb *job, rows, half int) received {
	return j.cut(j.m.outbox[half], j.columns(rows, jb), 0, rows)
}

// workOrdered does the operation on each source's rows of a round: this member's where they stand in the outbox.
func (j *joint) workOrdered(jb *job, rd round, half int) error {
	first, at := 0, rd.n[j.rank][j.rank] // rows of its own
	for k := range j.rank {
		first += rd.n[j.rank][k]
	}
	if jb.comesBack() {
		at /= 2
	}
	box := j.columns(rd.to[j.rank]-rd.from[j.rank], jb)
	own := func(from, to int) error {
		return j.operateOrdered(jb, j.cut(j.m.outbox[half], box, first+from, to-from))
	}
	err := errors.Join(j.m.work.Wait(j.m.sent[half]), own(0, at), j.m.work.Wait(j.arrived[half]))
	for k := 1; k < j.size && err == nil; k++ {
		err = j.operateOrdered(jb, j.incoming(jb, rd, half, (j.rank+k)%j.size))
	}
	return errors.Join(err, j.answered[half].Record(j.m.work), own(at, rd.n[j.rank][j.rank]),
		j.m.done[half].Record(j.m.work))
}

func (j *joint) operateOrdered(jb *job, got received) error {
	got.ordered = true
	return j.operate(jb, got)
}

// fetchOrdered queues putting a round's results where they belong.
func (j *joint) fetchOrdered(jb *job, rd round, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	p := j.m.gatherOrdered(j.widths, jb, s, rd.from[j.rank], rows, half, j.size, jb.order)
	box := j.boxOrdered(jb, rows, half)
	for from := range j.size {
		p.Values[from], p.Flags[from] = box.out.Addr(), box.flags.Addr()
	}
	if err := errors.Join(j.m.split.Wait(j.back[half]), j.m.split.Wait(j.m.done[half])); err != nil {
		return err
	}
	return j.m.regional.gather.Launch(j.m.split, j.m.regionGrid(j.m.regional.gather.Threads(), rows), &p)
}
