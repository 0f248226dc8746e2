package shard

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// flight is a job under way. Each member has two goroutines, one as a source and one as an owner. The gates say how far
// they have queued work: a stream can wait for an event only once that is recorded.
type flight struct {
	*cluster
	job                 *job
	plan                plan
	first               int // the number of round 0 of the plan
	sent, done, fetched []*gate
	failed              atomic.Bool
	mu                  sync.Mutex             // of job.full
	lists               [][]list               // of each owner, a round's
	took                [][steps]time.Duration // of each round, with Options.Apart
}

func (f *flight) half(r int) int { return (f.first + r) % 2 }

func (f *flight) comesBack() bool { return f.job.comesBack() }

func (f *flight) fail(e error) error {
	if e != nil {
		f.failed.Store(true)
	}
	return e
}

// end opens the gates that a panic has left closed, so that nobody waits for ever.
func (f *flight) end(gates ...*gate) {
	for _, g := range gates {
		if g.next < len(g.rounds) {
			f.failed.Store(true)
		}
		g.openAll()
	}
}

// gate opens for one round after the other. Whoever opens it is one goroutine.
type gate struct {
	rounds []chan struct{}
	next   int
}

func newGates(members, rounds int) []*gate {
	gates := make([]*gate, members)
	for i := range gates {
		gates[i] = &gate{rounds: make([]chan struct{}, rounds)}
		for r := range gates[i].rounds {
			gates[i].rounds[r] = make(chan struct{})
		}
	}
	return gates
}

func (g *gate) open() { close(g.rounds[g.next]); g.next++ }

// openTo opens what comes before n.
func (g *gate) openTo(n int) {
	for g.next < n {
		g.open()
	}
}

func (g *gate) wait(r int) { <-g.rounds[r] }

func (g *gate) openAll() {
	for g.next < len(g.rounds) {
		g.open()
	}
}

// rounds queues all rounds of a plan, for which there is room, and makes the callers' streams wait for them.
func (c *cluster) rounds(j *job, p plan) error {
	n := len(c.members)
	f := &flight{cluster: c, job: j, plan: p, first: c.round, sent: newGates(n, len(p.rounds)*p.steps()),
		done: newGates(n, len(p.rounds)), fetched: newGates(n, len(p.rounds))}
	c.round = (c.round + len(p.rounds)) % 2
	f.took = make([][steps]time.Duration, len(p.rounds))
	defer func() {
		for _, round := range f.took {
			for i, t := range round {
				c.took[i] += t
			}
		}
	}()
	if j.lists != nil {
		for range n {
			f.lists = append(f.lists, make([]list, len(p.rounds)))
		}
		defer func() {
			c.settle()
			for _, l := range slices.Concat(f.lists...) {
				l.offsets.Free()
				l.values.Free()
			}
		}()
	}
	queued := false
	defer func() {
		if !queued { // after an error or a panic, nothing may write to the caller's memory or to an inbox
			c.settle()
		}
	}()
	err := together(2*n, func(i int) error {
		if i < n {
			return f.fail(f.source(i))
		}
		return f.fail(f.owner(i - n))
	})
	if err == nil {
		err = f.join()
	}
	queued = err == nil
	return err
}

// join holds back the callers' streams until the job is done.
func (f *flight) join() error {
	last := f.half(len(f.plan.rounds) - 1)
	for i, s := range f.job.sources {
		if s.n == 0 {
			continue
		}
		for _, m := range f.members {
			if err := f.members[i].following(s.st).Wait(m.done[last]); err != nil {
				return err
			}
		}
		m := f.members[i]
		if err := errors.Join(m.came.Record(m.split), m.following(s.st).Wait(m.came)); err != nil {
			return err
		}
	}
	return nil
}

// source sends a member's rows, and fetches what comes back of the round before while the owners work.
func (f *flight) source(i int) (err error) {
	defer f.end(f.sent[i], f.fetched[i])
	m, s := f.members[i], f.job.sources[i]
	if s.n > 0 && f.plan.order.regions > 0 {
		err = f.fail(m.setCursors(f.plan.starts(i)))
	} else if s.n > 0 {
		err = f.fail(m.cursors.Fill(m.split, 0))
	}
	ahead := f.ahead()
	for r := range f.plan.rounds {
		if r >= ahead {
			for k := range f.members {
				f.done[k].wait(r - ahead)
			}
		}
		if r >= 2 { // what came back from the inboxes that this round takes is fetched
			for k := range f.members {
				f.fetched[k].wait(r - 2)
			}
		}
		if err == nil && !f.failed.Load() {
			err = f.fail(f.send(i, r))
		}
		f.sent[i].openTo((r + 1) * f.plan.steps())
		if r > 0 {
			err = f.fetchBack(i, r-1, err)
		}
	}
	return f.fetchBack(i, len(f.plan.rounds)-1, err)
}

// ahead is how many rounds are split before the first of them is worked on to its end. A table whose inserts go through
// the L2 cache by regions wants it alone: on two H200s 28.8 G/s, and 24.2 beside the next round's splitting.
func (f *flight) ahead() int {
	if f.opts.Apart || f.plan.order.regions > 0 && !f.job.asks {
		return 1
	}
	return 2
}

func (f *flight) fetchBack(i, r int, err error) error {
	if f.comesBack() {
		for k := range f.members {
			f.done[k].wait(r)
		}
		if err == nil && !f.failed.Load() {
			err = f.fail(f.fetch(i, r))
		}
	}
	f.fetched[i].open()
	return err
}

// send queues the splitting of a round's rows of a source, into the owners' inboxes when these are free.
func (f *flight) send(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	if rows == 0 && f.plan.order.regions == 0 {
		return nil
	}
	for _, other := range f.members {
		if err := errors.Join(m.split.Wait(other.done[half]), m.split.Wait(other.fetched[half])); err != nil {
			return err
		}
		if r > 0 && f.ahead() == 1 {
			if err := m.split.Wait(other.done[1-half]); err != nil {
				return err
			}
		}
	}
	if f.job.all {
		return f.sendAll(i, r)
	}
	if f.plan.order.regions > 0 {
		return f.sendOrdered(i, r)
	}
	p := f.split(f.job, s, rd.from[i], rows)
	p.places(f.seed, len(f.members), m.cursors.Addr()+uint64(8*r*len(f.members)))
	if f.comesBack() {
		p.Places = m.notes[half].Addr()
		p.Bases = p.Places + uint64(f.notesOf(rows, len(f.members)).bases)
	}
	for j, to := range f.segments(i, r) {
		p.to(j, to)
	}
	err := errors.Join(frame.InTurn(
		func() error { return m.splitting.begin(m.split) },
		func() error { return m.splits.Launch(m.split, f.tiles(m, rows), &p) },
	), f.clock(r, splitStep, m.split, m.splitting))
	for j, other := range f.members {
		if m.peers[j] || rd.n[i][j] == 0 {
			continue
		}
		from, to := f.outgoing(i, j, r), f.segment(other, rd, i, j, half)
		for _, c := range f.job.going(from, to) {
			err = errors.Join(err, c.to.CopyFrom(m.split, c.from))
		}
	}
	return frame.OneLine(errors.Join(err, f.clock(r, sendStep, m.split, m.splitting), m.sent[half].Record(m.split)))
}

// sendAll sends a round's rows to all owners: what goes by way of the outbox stands there once.
func (f *flight) sendAll(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	p := spreadRows{Keys: s.keys + uint64(rd.from[i]*f.keyBytes), N: uint64(rows)}
	var box device.Slice[byte]
	for j, other := range f.members {
		if m.peers[j] {
			p.OutKeys[p.Owners] = f.segment(other, rd, i, j, half).keys.Addr()
			p.Owners++
		} else {
			box = m.outbox[half].Slice(0, rows*f.keyBytes)
		}
	}
	if box.Len() > 0 {
		p.OutKeys[p.Owners] = box.Addr()
		p.Owners++
	}
	err := m.spread.Launch(m.split, plain(m, rows), &p)
	for j, other := range f.members {
		if !m.peers[j] {
			err = errors.Join(err, f.segment(other, rd, i, j, half).keys.CopyFrom(m.split, box))
		}
	}
	return frame.OneLine(errors.Join(err, m.sent[half].Record(m.split)))
}

// plain is a grid of a thread a row, in strides.
func plain(m *member, rows int) device.Grid {
	g := device.GridFor(int64(rows), threads)
	if info := m.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, 16*int64(info.Multiprocessors))
	}
	return g
}

// segment is the part of a member's inbox that is for source i.
func (f *flight) segment(m *member, rd round, i, j, half int) received {
	return f.cut(m.inbox[half], f.columns(rd.gets[j], f.job), rd.at[i][j], rd.n[i][j])
}

// outgoing is the part of a source's outbox for an owner whose memory it cannot write.
func (f *flight) outgoing(i, j, r int) received {
	rd, at := f.plan.rounds[r], 0
	for k := range j {
		at += rd.n[i][k]
	}
	return f.cut(f.members[i].outbox[f.half(r)], f.columns(boxed(f.job, rd.to[i]-rd.from[i], len(f.members)), f.job),
		at, rd.n[i][j])
}

// segments is where a source's kernels write the rows of each owner, and read the results.
func (f *flight) segments(i, r int) []received {
	out := make([]received, len(f.members))
	for j, other := range f.members {
		if f.members[i].peers[j] {
			out[j] = f.segment(other, f.plan.rounds[r], i, j, f.half(r))
		} else {
			out[j] = f.outgoing(i, j, r)
		}
	}
	return out
}

// fetch queues bringing back the results of a round.
func (f *flight) fetch(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	if rows == 0 {
		return nil
	}
	for _, other := range f.members {
		if err := m.split.Wait(other.done[half]); err != nil {
			return err
		}
	}
	switch {
	case f.job.lists != nil:
		return f.fetchLists(i, r)
	case f.plan.order.regions > 0:
		return f.fetchOrdered(i, r)
	}
	p := f.gathered(f.job, s, rd.from[i], rows)
	p.Owners, p.Places = uint64(len(f.members)), m.notes[half].Addr()
	p.Bases = p.Places + uint64(f.notesOf(rows, len(f.members)).bases)
	if f.job.sum {
		p.Sum = 1
	}
	if err := m.splitting.begin(m.split); err != nil {
		return err
	}
	for j, from := range f.segments(i, r) {
		p.Values[j], p.Flags[j] = from.out.Addr(), from.flags.Addr()
		if m.peers[j] || rd.n[i][j] == 0 {
			continue
		}
		for _, c := range f.job.coming(f.segment(f.members[j], rd, i, j, half), from) {
			if err := c.to.CopyFrom(m.split, c.from); err != nil {
				return err
			}
		}
	}
	var err error
	if f.job.all {
		err = m.merge.Launch(m.split, plain(m, rows), &p)
	} else {
		err = m.gather.Launch(m.split, f.tiles(m, rows), &p)
	}
	return errors.Join(err, f.clock(r, fetchStep, m.split, m.splitting), m.fetched[half].Record(m.split))
}

// owner does the operation on what a member gets, round by round.
func (f *flight) owner(j int) (err error) {
	defer f.end(f.done[j])
	m := f.members[j]
	for r, rd := range f.plan.rounds {
		for i := range f.members {
			f.sent[i].wait(r * f.plan.steps())
		}
		if err == nil && !f.failed.Load() {
			err = f.fail(f.work(m, j, r, rd))
		}
		f.done[j].open()
	}
	return err
}

// full calls the job's full, one call at a time, for an owner that found no room.
func (f *flight) full(m *member, j int, e *table.FullError, got received) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.isFull(e)
	return f.job.full(j, e, got)
}

func (f *flight) work(m *member, j, r int, rd round) error {
	half := f.half(r)
	for i, other := range f.members {
		if rd.n[i][j] > 0 && f.plan.order.regions == 0 {
			if err := m.work.Wait(other.sent[half]); err != nil {
				return err
			}
		}
	}
	if err := m.working.begin(m.work); err != nil {
		return err
	}
	switch n := rd.gets[j]; {
	case f.plan.order.regions > 0:
		if err := f.workOrdered(m, j, r); err != nil {
			return err
		}
	case n > 0:
		if err := f.run(m, j, r, m.work, f.job.wanted(f.cut(m.inbox[half], f.columns(n, f.job), 0, n))); err != nil {
			return err
		}
	}
	if err := f.clock(r, workStep, m.work, m.working); err != nil {
		return err
	}
	return m.done[half].Record(m.work)
}
