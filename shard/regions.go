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

// order says how rows are sorted.
type order struct {
	regions int // of each owner; 0: rows are split by owners only
	seed    uint64
	paired  bool  // rows go as pairs
	steps   []int // regions that the owner's table works on at once
	apart   bool  // each region is a wave of its own; else a step is
}

// The parts of all regions that each step has, in percent. A table works on rows more slowly than they come: so the first
// step is short, after which the table begins, and later ones are few. The results of the last step of a look-up come
// when the table is done: so it is short, too.
// Members have fewer steps, because NCCL takes some 100 µs to begin with each, and the regions of a step of one member
// go as one message.
var (
	insertSteps       = []int{5, 8, 12, 18, 25, 32}
	lookUpSteps       = []int{4, 8, 14, 20, 20, 16, 10, 5, 3}
	memberInsertSteps = []int{15, 35, 50}
	memberLookUpSteps = []int{10, 25, 35, 20, 10}
)

// inSteps completes an order. A table that inserts sorts again what comes, and takes waves of many regions. Look-ups
// of a cluster take waves of one region, which the L2 cache holds while the rows of all sources are looked up.
func (o order) inSteps(insert, members bool) order {
	parts := lookUpSteps
	switch {
	case insert && members:
		parts = memberInsertSteps
	case insert:
		parts = insertSteps
	case members:
		parts = memberLookUpSteps
	}
	o.apart = !insert && !members
	done, percent := 0, 0
	for _, p := range parts {
		percent += p
		if next := o.regions * percent / 100; next > done {
			o.steps = append(o.steps, next-done)
			done = next
		}
	}
	return o
}

// regional are the kernels that sort by regions. They are compiled when they are first used.
type regional struct {
	frame.Late
	count  device.Kernel[countRegions]
	split  device.Kernel[splitRegions]
	gather device.Kernel[gatherRegions]
	sort   device.Kernel[sortRows]
	unpair device.Kernel[sortRows]
}

// orderOf returns the order in which the owners' tables want rows of a job; none if the kernels cannot be compiled.
func (c *cluster) orderOf(j *job, rows int) (o order) {
	if j.ordering == nil || j.all || c.opts.Regions < 0 || len(c.members) == 1 {
		return order{}
	}
	for i := range c.members {
		if j.sources[i].when != 0 {
			return order{}
		}
		own, ok := j.ordering(i, rows)
		if !ok || i > 0 && own.Seed != o.seed {
			return order{}
		}
		o.regions, o.seed, o.paired = max(o.regions, own.Regions), own.Seed, own.Paired && (i == 0 || o.paired)
	}
	if c.opts.Regions > 0 {
		o.regions = c.opts.Regions
	}
	if o.regions = min(o.regions, frame.MaxParts/len(c.members)); o.regions < 2 {
		return order{}
	}
	for _, m := range c.members {
		if !m.regional.load(m.d, c.widths) {
			return order{}
		}
	}
	o.paired = o.paired && j.pairs()
	return o.inSteps(!j.asks, false)
}

// load compiles the kernels, and reports whether they are there.
func (k *regional) load(d *device.Device, w widths) bool {
	return k.Load(d, func() *device.Program { return regionsProgram(w.keyBytes, w.valueBytes, d.Info().Shared) },
		func(module *device.Module) error {
			sorts, err := d.Compile(sortProgram(w.keyBytes, w.valueBytes))
			if err != nil {
				return err
			}
			return errors.Join(device.Bind(module, "shard_split_regions", &k.split),
				device.Bind(module, "shard_gather_regions", &k.gather),
				device.Bind(sorts, "shard_count_regions", &k.count), device.Bind(sorts, "shard_sort", &k.sort),
				device.Bind(sorts, "shard_unpair", &k.unpair))
		})
}

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

// ownersOf adds up the counts of an owner's regions.
func (o order) ownersOf(counts []uint64) (out []uint64) {
	for from := 0; from < len(counts); from += o.regions {
		n := uint64(0)
		for _, x := range counts[from : from+o.regions] {
			n += x
		}
		out = append(out, n)
	}
	return out
}

// parts returns the rows of each part that source i has in a round.
func (r round) parts(i, parts int, counts []uint64, chunk int) (rows []uint64) {
	rows = make([]uint64, parts)
	for at := r.from[i]; at < r.to[i]; at += chunk {
		for g, n := range counts[at/chunk*parts:][:parts] {
			rows[g] += n
		}
	}
	return rows
}

// layout says where the rows of a round are in the boxes of all members.
type layout struct {
	rows    []int      // of each member's box
	starts  [][]uint64 // of each source: the box row where its rows of each part begin
	largest []int      // rows of the region that has most, of each owner
	waves   []wave
}

// wave is the rows of a few regions. All rows of owner j are rows[j], from at[j] on. Those of source i for owner j are in
// segments[i·owners+j].
type wave struct {
	regions  int
	at, rows []int
	segments []segment
}

// segment is n rows of a source for an owner, from out on in the source's box and from in on in the owner's.
type segment struct{ n, in, out int }

// of returns the segment of source i for owner j.
func (w *wave) of(i, j int) segment { return w.segments[i*len(w.at)+j] }

// layoutOf lays out a round. counts[i] has the rows of each part for each chunk of source i.
func (o order) layoutOf(rd round, counts [][]uint64, chunk int) (b layout) {
	owners := len(counts)
	parts := owners * o.regions
	rows, outbox := make([][]uint64, owners), make([][]int, owners)
	inbox := make([]int, owners) // the next row of each
	largest := make([]uint64, parts)
	for i := range owners {
		rows[i] = rd.parts(i, parts, counts[i], chunk)
		outbox[i] = make([]int, owners)
		next := rd.gets[i]
		for j := range owners {
			outbox[i][j] = next
			if j != i {
				next += rd.n[i][j]
			}
		}
		b.rows = append(b.rows, next)
		b.starts = append(b.starts, make([]uint64, parts))
		for g, n := range rows[i] {
			largest[g] += n
		}
	}
	for j := range owners {
		b.largest = append(b.largest, int(maxOf(largest[j*o.regions:][:o.regions])))
	}
	from := 0
	waves := o.waves()
	numbers, segments := make([]int, 2*owners*len(waves)), make([]segment, owners*owners*len(waves))
	for k, regions := range waves {
		w := wave{regions: regions, at: numbers[2*k*owners:][:owners], rows: numbers[(2*k+1)*owners:][:owners],
			segments: segments[k*owners*owners:][:owners*owners]}
		for j := range owners {
			w.at[j] = inbox[j]
			for i := range owners {
				s := segment{in: inbox[j], out: outbox[i][j]}
				begin := s.out
				if i == j {
					begin = s.in
				}
				for g := j*o.regions + from; g < j*o.regions+from+regions; g++ {
					b.starts[i][g] = uint64(begin + s.n)
					s.n += int(rows[i][g])
				}
				inbox[j] += s.n
				outbox[i][j] += s.n
				w.segments[i*owners+j] = s
			}
			w.rows[j] = inbox[j] - w.at[j]
		}
		from += regions
		b.waves = append(b.waves, w)
	}
	return b
}

func maxOf(x []uint64) (most uint64) {
	for _, n := range x {
		most = max(most, n)
	}
	return most
}

// waves returns the regions of each wave.
func (o order) waves() []int {
	if o.apart {
		return slices.Repeat([]int{1}, o.regions)
	}
	return o.steps
}

// step returns the waves of a step.
func (p *plan) step(r, step int) []wave {
	if !p.order.apart {
		return p.layouts[r].waves[step : step+1]
	}
	from := 0
	for _, n := range p.order.steps[:step] {
		from += n
	}
	return p.layouts[r].waves[from : from+p.order.steps[step]]
}

// stepRows returns the first row of a step in the inbox of owner j, and the number of rows.
func (p *plan) stepRows(r, step, j int) (from, rows int) {
	list := p.step(r, step)
	last := list[len(list)-1]
	return list[0].at[j], last.at[j] + last.rows[j] - list[0].at[j]
}

// notesOfRegions is notesOf for rows that are split by regions into that many parts.
func (m *member) notesOfRegions(w widths, rows, parts int) notes {
	tile := w.regionTile(m.regional.split.Threads(), m.d.Info().Shared)
	skips := int(frame.Align(int64(4 * rows)))
	return notes{skips, skips + (rows+tile-1)/tile*4*parts}
}

// inSteps are what a member has for rounds that go in waves, one of each for each step.
type inSteps struct {
	arrived  []*device.Event // the end of the copies of a step's rows to their owners
	ready    []*device.Event // all rows of a step are in the inbox
	answered []*device.Event // the end of the table's work on a step
}

// room makes events for that many steps.
func (s *inSteps) room(d *device.Device, steps int) error {
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

func (s *inSteps) events() []*device.Event {
	return append(append(s.arrived, s.ready...), s.answered...)
}

// boxRows returns rows of a member's box in a round.
func (f *flight) boxRows(i, r, from, n int) received {
	return f.plan.boxRows(f.widths, f.job, f.members[i].inbox[f.half(r)], i, r, from, n)
}

// boxRows returns rows of member i's box. Pairs are where the keys would be, and take the values' memory, too.
func (p *plan) boxRows(w widths, j *job, box device.Slice[byte], i, r, from, n int) received {
	if p.order.paired {
		pair := w.keyBytes + w.valueBytes
		return received{n: n, keys: box.Slice(from*pair, (from+n)*pair)}
	}
	return w.cut(box, w.columns(p.layouts[r].rows[i], j), from, n)
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
	err := errors.Join(f.clock(r, splitStep, m.split, m.splitting), m.sorted[half].Record(m.split), m.sends.Wait(m.sorted[half]))
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

// going returns the columns of a job that go to the owners.
func (o order) going(j *job, from, to received) []carried {
	if o.paired {
		return []carried{{from.keys, to.keys}}
	}
	return j.going(from, to)
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
// each wave is there. Others are one operation for each step.
func (f *flight) workOrdered(m *member, j, r int) error {
	o := &frame.Sorted{Regions: int64(f.plan.order.regions), Largest: int64(f.plan.layouts[r].largest[j]),
		Paired: f.plan.order.paired}
	steps := m.steps[f.half(r)]
	for step := range f.plan.order.steps {
		if ok, err := f.awaitStep(m, r, step); !ok || err != nil {
			return err
		}
		from, rows := f.plan.stepRows(r, step, j)
		if !f.job.asks {
			o.Chunks = append(o.Chunks, frame.SortedChunk{Rows: int64(rows), Regions: int64(f.plan.order.steps[step]),
				Ready: steps.ready[step]})
			continue
		}
		if err := errors.Join(m.work.Wait(steps.ready[step]), f.operate(m, j, r, from, rows, o),
			steps.answered[step].Record(m.work)); err != nil {
			return err
		}
	}
	if f.job.asks {
		return nil
	}
	if err := f.operate(m, j, r, 0, f.plan.rounds[r].gets[j], o); err != nil {
		return err
	}
	for _, answered := range steps.answered[:len(f.plan.order.steps)] {
		if err := answered.Record(m.work); err != nil {
			return err
		}
	}
	return nil
}

// awaitStep has the event ready follow the arrival of all rows of a step. It reports false if another device has failed,
// which returns the error.
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
	if !o.Paired {
		return f.run(m, j, r, got)
	}
	got.values = got.keys
	err := f.job.run(j, m.work, got)
	if errors.Is(err, frame.ErrPairs) {
		return m.inColumns(f.widths, f.job, got, func(got received) error { return f.run(m, j, r, got) },
			func(got received, why error) error { return f.none(m, j, got, why) })
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
		p := sortRows{Rows: frame.Partition{Keys: got.keys.Addr() + uint64(from*pair), N: uint64(piece.n), OutKeys: piece.keys.Addr(),
			OutValues: piece.values.Addr()}}
		if err := m.regional.unpair.Launch(m.work, plain(m, piece.n), &p); err != nil {
			return err
		}
		if err := run(piece); err != nil {
			return err
		}
	}
	return nil
}

// columnRows is the number of pairs that become columns at once, at most.
const columnRows = 1 << 24

// run does the operation on rows that an owner got, and notes those that found no room.
func (f *flight) run(m *member, j, r int, got received) (err error) {
	if f.job.lists != nil {
		f.lists[j][r], err = f.job.lists(j, m.work, got)
	} else {
		err = f.job.run(j, m.work, got)
	}
	if device.IsOutOfMemory(err) && !errors.As(err, new(*table.FullError)) && f.job.full != nil {
		return f.none(m, j, got, err)
	}
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = f.full(m, j, full, got)
	}
	return err
}

// none notes that an owner had no memory for its rows, and took none of them.
func (f *flight) none(m *member, j int, got received, why error) error {
	if err := got.sorted.Wait(m.work); err != nil {
		return err
	}
	got.untried = true
	err := noneIn(m.work, got, why, f.job.mixed)
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
