package shard

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Large batches for tables that want rows sorted by the regions of their memory are sorted by owner and region at the
// source. Copies carry the rows to their owners step by step. A step has the rows of a few regions. The owner's table
// works on one step while the next ones are on their way, and results return in the same way. In the inbox, a wave is
// the rows of one or several regions, source after source:
//
//	box of source 0, which is device 0, too            box of owner 1
//	┌─────────────────┬──────────────────────────┐     ┌──────────────────────────────────┬────────┐
//	│ its inbox       │ rows for owner 1         │     │ its inbox                        │ for 0  │
//	│                 │ region 0 │ region 1 │ …  │     │ wave 0          │ wave 1     │ … │        │
//	│                 │          │          │    │     │ from 0 │ from 1 │ from 0 │ …     │        │
//	└─────────────────┴──────────────────────────┘     └──────────────────────────────────┴────────┘
//	                      ╰──── wave 0 ────╯ ═══ copy ══▶  ╰──────╯
//
// The sort writes the rows of the source's own table into its inbox at once. Both parts of the box lie in one piece of
// memory, so that the kernels number all rows from its beginning.

// startCountRegions queues counting a source's rows by chunk, owner and region.
func (m *member) startCountRegions(s source, seed uint64, owners int, o order, chunk, words int) error {
	if err := m.roomToCount(words); err != nil {
		return err
	}
	counts := m.counts.Slice(0, words)
	grid := m.regionGrid(m.regional.count.Threads(), s.n)
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.came.Record(s.st) },
		func() error { return m.ahead.Wait(m.came) },
		func() error { return counts.Fill(m.ahead, 0) },
		func() error {
			return m.regional.count.Launch(m.ahead, grid, &countRegions{Keys: s.keys, N: uint64(s.n), Seed: seed, Order: o.seed,
				Owners: uint64(owners), Regions: uint64(o.regions),
				Chunk: uint64(chunk), Counts: counts.Addr()})
		},
		func() error { return counts.ReadAsync(m.ahead, m.landing, counts.Len()) },
	)))
}

// regionGrid returns as many blocks as are resident, each with many tiles. A block counts in 32 bits.
func (m *member) regionGrid(blockThreads, rows int) device.Grid {
	grid := device.GridFor(int64(rows), blockThreads)
	grid.Blocks = min(grid.Blocks, max(regionResident/int64(blockThreads)*int64(m.d.Info().Multiprocessors),
		int64(rows>>31)+1))
	return grid
}

// notesOfRegions is notesOf for rows that are split by regions into that many parts.
func (m *member) notesOfRegions(w widths, rows, parts int) notes {
	tile := w.regionTile(m.regional.split.Threads(), m.d.Info().Shared)
	skips := int(frame.Align(int64(4 * rows)))
	return notes{skips, skips + (rows+tile-1)/tile*4*parts}
}

// stepEvents are a member's events of a round whose rows are sorted, one of each for each step.
type stepEvents struct {
	arrived  []*device.Event // the end of the copies of a step's rows to their owners
	ready    []*device.Event // all rows of a step are in the inbox
	answered []*device.Event // the end of the table's work on a step
}

// room makes events for that many steps.
func (s *stepEvents) room(d *device.Device, steps int) error {
	for _, list := range []*[]*device.Event{&s.arrived, &s.ready, &s.answered} {
		for len(*list) < steps {
			ev, err := d.NewEvent()
			if err != nil {
				return err
			}
			*list = append(*list, ev)
		}
	}
	return nil
}

// events returns all of them.
func (s *stepEvents) events() []*device.Event {
	return slices.Concat(s.arrived, s.ready, s.answered)
}

// boxRows returns rows of a member's box in a round.
func (f *flight) boxRows(i, r, from, n int) received {
	return f.plan.boxRows(f.widths, f.job, f.members[i].inbox[f.half(r)], i, r, from, n)
}

// answerAll notes, after what is queued on a stream, that the table's work on all steps is done.
func (s *stepEvents) answerAll(st *device.Stream, steps int) (err error) {
	for _, answered := range s.answered[:steps] {
		err = errors.Join(err, answered.Record(st))
	}
	return err
}

// sendOrdered queues sorting a round's rows of a source, and copying them to their owners step by step.
func (f *flight) sendOrdered(i, r int) error {
	m, rd, half := f.members[i], f.plan.rounds[r], f.half(r)
	if err := m.splitting.begin(m.split); err != nil {
		return err
	}
	if rows := rd.to[i] - rd.from[i]; rows > 0 {
		if err := f.sortRows(i, r, rows); err != nil {
			return err
		}
	}
	err := errors.Join(f.clock(r, splitStep, m.split, m.splitting), m.sorted[half].Record(m.split),
		m.sends.Wait(m.sorted[half]))
	if err != nil {
		return err
	}
	for step := range f.plan.order.steps {
		for _, w := range f.plan.step(r, step) {
			for next := range len(f.members) - 1 {
				j := (i + 1 + next) % len(f.members)
				x := w.of(i, j)
				if x.n == 0 {
					continue
				}
				from, to := f.boxRows(i, r, x.out, x.n), f.boxRows(j, r, x.in, x.n)
				for _, c := range f.plan.order.going(f.job, from, to) {
					if err := c.to.CopyFrom(m.sends, c.from); err != nil {
						return err
					}
				}
			}
		}
		if err := m.steps[half].arrived[step].Record(m.sends); err != nil {
			return err
		}
		f.sent[i].openTo(r*f.plan.steps() + step + 1)
	}
	return frame.OneLine(errors.Join(f.clock(r, sendStep, m.sends, m.splitting), m.sent[half].Record(m.sends)))
}

// sortRows queues sorting rows of a source by owner and region.
func (f *flight) sortRows(i, r, rows int) error {
	m := f.members[i]
	return m.sortRows(f.widths, f.job, f.job.sources[i], sorting{from: f.plan.rounds[r].from[i], rows: rows, round: r,
		half: f.half(r), owners: len(f.members), order: f.plan.order, seed: f.seed,
		box: f.boxRows(i, r, 0, f.plan.layouts[r].rows[i])})
}

// sorting is what to sort, and how: rows of a source, from one on, into a box.
type sorting struct {
	from, rows, round, half, owners int
	order                           order
	seed                            uint64 // of the owner's hash
	box                             received
}

// sortRows queues sorting rows of a source by owner and region. If results come back, it notes where the rows went.
func (m *member) sortRows(w widths, j *job, s source, x sorting) error {
	if j.comesBack() {
		p := m.splitOrdered(w, j, s, x.from, x.rows, x.round, x.half, x.owners, x.order)
		p.Seed = x.seed
		for owner := range x.owners {
			p.OutKeys[owner], p.OutValues[owner] = x.box.keys.Addr(), x.box.values.Addr()
		}
		return m.regional.split.Launch(m.split, m.regionGrid(m.regional.split.Threads(), x.rows), &p)
	}
	parts := x.owners * x.order.regions
	p := sortRows{Seed: x.seed, Order: x.order.seed, Owners: uint64(x.owners), Regions: uint64(x.order.regions)}
	p.Rows = frame.Partition{Keys: s.keys + uint64(x.from*w.keyBytes), N: uint64(x.rows), OutKeys: x.box.keys.Addr(),
		Parts: uint64(parts), Cursors: m.cursors.Addr() + uint64(8*x.round*parts)}
	if j.values&sent != 0 {
		p.Rows.Values, p.Rows.OutValues = s.values+uint64(x.from*w.valueBytes), x.box.values.Addr()
	}
	if x.order.paired {
		p.Rows.Paired = frame.PairedOut
	}
	return m.regional.sort.Launch(m.split, m.regionGrid(m.regional.sort.Threads(), x.rows), &p)
}

// splitOrdered returns the parameters of splitting rows of a source, from one on, in round r.
func (m *member) splitOrdered(w widths, j *job, s source, from, rows, r, half, owners int, o order) splitRegions {
	parts := owners * o.regions
	p := splitRegions{Keys: s.keys + uint64(from*w.keyBytes), N: uint64(rows), Order: o.seed, Owners: uint64(owners),
		Regions: uint64(o.regions),
		Cursors: m.cursors.Addr() + uint64(8*r*parts)}
	if j.values&sent != 0 {
		p.Values = s.values + uint64(from*w.valueBytes)
	}
	if j.comesBack() {
		p.Places = m.notes[half].Addr()
		p.Skips = p.Places + uint64(m.notesOfRegions(w, rows, parts).bases)
	}
	return p
}

// gatherOrdered returns the parameters of gathering the results of what splitOrdered sent.
func (m *member) gatherOrdered(w widths, j *job, s source, from, rows, half, owners int, o order) gatherRegions {
	p := gatherRegions{N: uint64(rows), Owners: uint64(owners), Regions: uint64(o.regions),
		Places: m.notes[half].Addr()}
	p.Skips = p.Places + uint64(m.notesOfRegions(w, rows, owners*o.regions).bases)
	back := w.gathered(j, s, from, rows)
	p.OutValues, p.OutFlags = back.OutValues, back.OutFlags
	return p
}

// workOrdered does the operation on what an owner gets in a round. An insert is one operation, whose table knows when
// each step is there. Others are one operation for each step.
func (f *flight) workOrdered(m *member, j, r int) error {
	o, steps := f.plan.sortedRows(r, j), m.steps[f.half(r)]
	for step := range f.plan.order.steps {
		if ok, err := f.awaitStep(m, r, step); !ok || err != nil {
			return err
		}
		if f.job.asks {
			from, rows := f.plan.stepRows(r, step, j)
			if err := frame.InTurn(
				func() error { return m.work.Wait(steps.ready[step]) },
				func() error { return f.operate(m, j, r, from, rows, o) },
				func() error { return steps.answered[step].Record(m.work) },
			); err != nil {
				return err
			}
		}
	}
	if f.job.asks {
		return nil
	}
	o.Chunks = f.plan.chunks(r, j, steps.ready)
	return errors.Join(f.operate(m, j, r, 0, f.plan.rounds[r].gets[j], o), steps.answerAll(m.work, f.plan.steps()))
}

// awaitStep has the event ready follow the arrival of all rows of a step. It reports false if another device has
// failed, which returns the error.
func (f *flight) awaitStep(m *member, r, step int) (ok bool, err error) {
	half := f.half(r)
	for i, other := range f.members {
		f.sent[i].wait(r*f.plan.steps() + step)
		if f.failed.Load() {
			return false, nil
		}
		if other == m {
			continue
		}
		if err := m.arrivals.Wait(other.steps[half].arrived[step]); err != nil {
			return false, err
		}
	}
	return true, errors.Join(m.arrivals.Wait(m.sorted[half]), m.steps[half].ready[step].Record(m.arrivals))
}

// operate does the operation on rows of an owner's inbox.
func (f *flight) operate(m *member, j, r, from, rows int, o *frame.Sorted) error {
	if rows == 0 {
		return nil
	}
	got := f.job.wanted(f.boxRows(j, r, from, rows))
	got.sorted = o
	run := func(got received) error { return f.run(m, j, r, m.work, got) }
	if !o.Paired {
		return run(got)
	}
	none := func(got received, why error) error { return f.none(m, j, m.work, got, why) }
	return m.inPairs(f.widths, f.job, j, got, run, none)
}

// inPairs does an operation on an owner's pairs. If its table takes only columns now, or has no memory for that many
// rows, the pairs become columns, on which run does the operation. If there is no memory for these, it calls none.
func (m *member) inPairs(w widths, j *job, owner int, got received, run func(got received) error,
	none func(got received, why error) error) error {
	got.values = got.keys
	err := j.run(owner, m.work, got)
	if errors.Is(err, frame.ErrPairs) || device.IsOutOfMemory(err) {
		return m.inColumns(w, j, got, run, none)
	}
	return err
}

// inColumns does an operation on pairs piece by piece, as columns. If it has no memory for a piece, it calls none.
func (m *member) inColumns(w widths, j *job, got received, run func(got received) error,
	none func(got received, why error) error) (err error) {
	if err := got.sorted.Wait(m.work); err != nil {
		return err
	}
	rows := min(got.n, columnRows)
	var mem device.Slice[byte]
	for {
		if mem, err = device.Make[byte](m.d, w.columns(rows, j).bytes); !device.IsOutOfMemory(err) || rows <= tileMost {
			break
		}
		rows /= 4
	}
	switch {
	case device.IsOutOfMemory(err):
		return none(got, err)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, mem.FreeAfter(m.work)) }()
	at, pair := w.columns(rows, j), w.keyBytes+w.valueBytes
	for from := 0; from < got.n; from += rows {
		piece := j.wanted(w.cut(mem, at, 0, min(rows, got.n-from)))
		p := sortRows{Rows: frame.Partition{Keys: got.keys.Addr() + uint64(from*pair), N: uint64(piece.n),
			OutKeys: piece.keys.Addr(), OutValues: piece.values.Addr()}}
		if err := m.regional.unpair.Launch(m.work, plain(m, piece.n), &p); err != nil {
			return err
		}
		if err := run(piece); err != nil {
			return err
		}
	}
	return nil
}

// run does the operation on rows that an owner got, on a stream, and notes those that found no room.
func (f *flight) run(m *member, j, r int, st *device.Stream, got received) (err error) {
	if f.job.lists != nil {
		f.lists[j][r], err = f.job.lists(j, st, got)
	} else {
		err = f.job.run(j, st, got)
	}
	if device.IsOutOfMemory(err) && !errors.As(err, new(*table.FullError)) && f.job.full != nil {
		return f.none(m, j, st, got, err)
	}
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = f.full(m, j, full, got)
	}
	return err
}

// none notes that an owner had no memory for its rows, and took none of them.
func (f *flight) none(m *member, j int, st *device.Stream, got received, why error) error {
	if err := got.sorted.Wait(st); err != nil {
		return err
	}
	got.untried = true
	err := noneIn(st, got, why, f.job.mixed)
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		return f.full(m, j, full, got)
	}
	return err
}

// fetchOrdered queues copying the results of a round to their source, step by step, and putting them where they belong.
func (f *flight) fetchOrdered(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	if err := m.splitting.begin(m.returns); err != nil {
		return err
	}
	for step := range f.plan.order.steps {
		for next := range len(f.members) - 1 {
			j := (i + 1 + next) % len(f.members)
			if err := m.returns.Wait(f.members[j].steps[half].answered[step]); err != nil {
				return err
			}
			for _, w := range f.plan.step(r, step) {
				x := w.of(i, j)
				if x.n == 0 {
					continue
				}
				from, to := f.boxRows(j, r, x.in, x.n), f.boxRows(i, r, x.out, x.n)
				for _, c := range f.job.coming(from, to) {
					if err := c.to.CopyFrom(m.returns, c.from); err != nil {
						return err
					}
				}
			}
		}
	}
	rows := rd.to[i] - rd.from[i]
	p := m.gatherOrdered(f.widths, f.job, s, rd.from[i], rows, half, len(f.members), f.plan.order)
	box := f.boxRows(i, r, 0, f.plan.layouts[r].rows[i])
	for j := range f.members {
		p.Values[j], p.Flags[j] = box.out.Addr(), box.flags.Addr()
	}
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.returned.Record(m.returns) },
		func() error { return m.split.Wait(m.returned) },
		func() error {
			return m.regional.gather.Launch(m.split, m.regionGrid(m.regional.gather.Threads(), rows), &p)
		},
	), f.clock(r, fetchStep, m.split, m.splitting), m.fetched[half].Record(m.split)))
}
