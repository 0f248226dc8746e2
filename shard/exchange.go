package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// columnUse is what becomes of a column of values: bits.
type columnUse int

const (
	none columnUse = 0
	sent columnUse = 1 << (iota - 1) // it goes to the owners, with the keys
	back                             // it comes back from them
)

// job is one operation on a batch of which each device may bring a part.
type job struct {
	sources []source // one a member
	values  columnUse
	counts  bool // values are u32, and come back
	flags   bool // come back
	mixed   bool // marks, the operations, go to the owners, too, and what comes back has room of its own there
	asks    bool // it can be asked of all devices: it changes nothing, or erases
	erases  bool
	owned   bool // its rows go to the owners of their keys in the independent mode, too
	all     bool // every device gets all rows, and what comes back is merged: the first that is found, or with sum the sum
	sum     bool
	// ordering is how an owner's table wants so many rows, if it takes them in order: run has ordered rows then.
	ordering func(owner, rows int) (table.Ordering, bool)
	order    order // members' calls: that in which they agreed to send rows
	// lists, of which run has nothing then, finds all values of keys: rows' offsets, one more than there are, and values, in memory that others can read.
	// What the source does with them is taken.
	lists func(owner int, st *device.Stream, r received) (list, error)
	taken func(m *member, p *listRows, first int)
	// run does the operation on rows that are an owner's. It is called for several owners at once.
	run func(owner int, st *device.Stream, r received) error
	// full is called, one at a time, when run found no room.
	full func(owner int, e *table.FullError, r received) error
}

func (j *job) comesBack() bool { return j.values&back != 0 || j.flags || j.lists != nil }

// source is the part of a batch that is on one device. Its columns are addresses there; those that come back may be 0, and so may when: the rows of which
// it is 0 go nowhere, and zeros come back.
type source struct {
	n                   int
	keys, values, marks uint64 // these go to the owners
	out, flags          uint64 // these come back
	when                uint64
	st                  *device.Stream
	slices              *received // the same as slices, where the caller gave such
}

// received are rows that an owner got, by columns.
type received struct {
	n                               int
	keys, values, marks, out, flags device.Slice[byte]
	when                            device.Slice[byte] // of rows that stay where they are
	ordered                         bool               // they come in the order of the table's regions
	untried                         bool               // the owner had no memory for them, and looked at none
}

// list is what an owner finds of a multimap's keys.
type list struct {
	offsets device.Slice[uint64]
	values  device.Slice[byte]
}

// defaultPiece is the rows of a piece where Options do not say and memory allows it. For each piece a table goes through the L2 cache once, by regions: of 250 M
// pairs a device on two H200s, 29.4 G inserts/s in one piece, 28.8 in two, 24.3 in eight; look-ups 37.2, 35.2, 31.1.
const defaultPiece = 1 << 28

// mostPiece is the most rows that an inbox has room for.
const mostPiece = defaultPiece + defaultPiece/8 + tileMost

// inboxShare: the two inboxes take one part in so many of a device's memory at most, together.
const inboxShare = 16

// errScattered says that a key may be on another device than its owner.
var errScattered = fmt.Errorf("%s: Update, FindOrInsert and Mixed send keys to their owners, and in the independent mode other calls have put keys elsewhere "+
	"(members' inserts, and of one process those of device slices): bring Go slices alone, or choose the distributed mode", family)

// exchange does a job: rows go to their owners, round by round, which do the operation, and results come back. It waits for the counts, and for what the tables wait
// for; the rest is queued, and the callers' streams come behind it. The caller holds the lock.
func (c *cluster) exchange(j *job) error {
	if j.owned && c.scattered {
		return errScattered
	}
	if !j.asks || j.erases {
		c.changes.Add(1)
	}
	if len(c.members) == 1 && j.sources[0].slices != nil && j.sources[0].when == 0 && j.lists == nil {
		return c.alone(j)
	}
	piece := c.opts.Piece
	if piece == 0 {
		piece = defaultPiece
	}
	largest := 0
	for _, s := range j.sources {
		largest = max(largest, s.n)
	}
	if largest == 0 {
		return nil
	}
	piece = min(piece, largest, c.inboxRows())
	if rows := 0; j.asks {
		for _, s := range j.sources {
			rows += s.n
		}
		j.all = c.opts.Mode == Independent || !j.erases && rows <= c.opts.AskAll
		j.flags = j.flags || j.all && j.values&back != 0 && !j.sum // to know whose value it is
	}
	sizes, total := make([]int, len(j.sources)), 0
	for i, s := range j.sources {
		sizes[i] = s.n
		total += s.n
	}
	o := c.orderOf(j, min(piece, total/len(c.members)))
	for most := piece; ; {
		p, err := c.planned(j, o, sizes, piece)
		if err == nil {
			return c.rounds(j, p)
		}
		switch {
		case !device.IsOutOfMemory(err):
			return err
		case o.regions > 0 && piece <= regionMost: // owners alone take less
			o, piece = order{}, most
		case piece <= tileMost:
			return err
		default:
			piece /= 4 // counted anew, for a chunk must fit an inbox
		}
	}
}

// planned counts a job's rows, plans its rounds, and makes room for them.
func (c *cluster) planned(j *job, o order, sizes []int, piece int) (p plan, err error) {
	chunk := o.chunk(piece)
	counts, err := c.countRows(j, o, chunk)
	if err != nil {
		c.settle() // others may be counting
		return p, err
	}
	owned := counts
	if o.regions > 0 {
		owned = make([][]uint64, len(counts))
		for i := range counts {
			owned[i] = o.ownersOf(counts[i])
		}
	}
	p = newPlan(sizes, owned, chunk, piece, max(chunk, min(piece+piece/8+tileMost, c.inboxRows())))
	if o.regions > 0 {
		p.order, p.starts = o, o.starts(p, counts, chunk)
	}
	return p, c.makeRoom(j, p)
}

// alone does a job on the only member, with the caller's own slices.
func (c *cluster) alone(j *job) error {
	s := j.sources[0]
	if s.n == 0 {
		return nil
	}
	err := j.run(0, s.st, *s.slices)
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		c.members[0].capacity = full.Capacity
		return j.full(0, full, *s.slices)
	}
	return err
}

// local does an insert of device slices where they are. The caller holds the lock.
func (c *cluster) local(j *job) error {
	c.changes.Add(1)
	c.scattered = c.scattered || len(c.members) > 1
	var mu sync.Mutex
	return c.together(func(i int) error {
		s := j.sources[i]
		if s.n == 0 {
			return nil
		}
		err := j.run(i, s.st, *s.slices)
		if device.IsOutOfMemory(err) && !errors.As(err, new(*table.FullError)) {
			err = noneIn(s.st, *s.slices, err, j.mixed)
		}
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			mu.Lock()
			defer mu.Unlock()
			c.members[i].capacity = full.Capacity
			return j.full(i, full, *s.slices)
		}
		return err
	})
}

// inboxRows is how many rows the memory of the smallest device allows an inbox.
func (c *cluster) inboxRows() int {
	rows := mostPiece
	for _, m := range c.members {
		rows = min(rows, inboxRows(c.widths, m.d))
	}
	return rows
}

func inboxRows(w widths, d *device.Device) int {
	if mem := d.Info().Memory; mem > 0 {
		return int(mem/inboxShare/2) / (w.keyBytes + w.value() + 1)
	}
	return mostPiece
}

// countRows counts for every chunk of each source how many rows each owner gets. It waits for that.
func (c *cluster) countRows(j *job, o order, chunk int) ([][]uint64, error) {
	owners := len(c.members)
	if j.all {
		return c.countAll(j, chunk)
	}
	words := func(i int) int { return (j.sources[i].n + chunk - 1) / chunk * owners * max(1, o.regions) }
	start := func(i int) error {
		if o.regions > 0 {
			return c.members[i].startCountRegions(j.sources[i], c.seed, owners, o, chunk, words(i))
		}
		return c.members[i].startCount(j.sources[i], c.seed, owners, chunk, words(i))
	}
	for i, m := range c.members {
		if j.sources[i].n == 0 {
			continue
		}
		if err := errors.Join(m.splitting.begin(m.ahead), start(i), m.splitting.end(m.ahead)); err != nil {
			return nil, table.OneLine(err)
		}
	}
	var longest time.Duration
	defer func() { c.took[countStep] += longest }()
	out := make([][]uint64, owners)
	for i, m := range c.members {
		if j.sources[i].n == 0 {
			continue
		}
		if err := m.ahead.Sync(); err != nil {
			return nil, err
		}
		out[i] = append(out[i], m.landing.Slice()[:words(i)]...)
		t, err := m.splitting.took()
		if err != nil {
			return nil, err
		}
		longest = max(longest, t)
	}
	return out, nil
}

// startCount queues counting a source's rows by chunk and owner, in so many words; they come to m.landing.
func (m *member) startCount(s source, seed uint64, owners, chunk, words int) error {
	if err := m.roomToCount(words); err != nil {
		return err
	}
	counts := m.counts.Slice(0, words)
	grid := device.GridFor(int64(s.n), tileMost)
	grid.Threads = threads
	grid.Blocks = min(grid.Blocks, max(8*int64(m.d.Info().Multiprocessors), int64(s.n>>31)+1))
	return table.OneLine(errors.Join(m.came.Record(s.st), m.ahead.Wait(m.came), counts.Fill(m.ahead, 0),
		m.count.Launch(m.ahead, grid, &countRows{Keys: s.keys, N: uint64(s.n), When: s.when, Seed: seed, Owners: uint64(owners), Chunk: uint64(chunk), Counts: counts.Addr()}),
		counts.ReadAsync(m.ahead, m.landing, counts.Len())))
}

// countAll gives every owner all rows. Nothing is waited for.
func (c *cluster) countAll(j *job, chunk int) ([][]uint64, error) {
	out := make([][]uint64, len(c.members))
	for i, s := range j.sources {
		out[i] = toAll(s.n, chunk, len(c.members))
		if m := c.members[i]; s.n > 0 {
			if err := errors.Join(m.came.Record(s.st), m.split.Wait(m.came)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// toAll are the counts of n rows that every owner gets.
func toAll(n, chunk, owners int) (counts []uint64) {
	for from := 0; from < n; from += chunk {
		for range owners {
			counts = append(counts, uint64(min(chunk, n-from)))
		}
	}
	return counts
}

// roomToCount makes the counters, so many words. Nothing that is queued uses them: whoever counted has waited.
func (m *member) roomToCount(words int) (err error) {
	if m.counts.Len() >= words {
		return nil
	}
	if err := errors.Join(release(&m.counts), m.landing.Free()); err != nil {
		return err
	}
	m.landing = device.Host[uint64]{}
	words = max(words, 256)
	if m.landing, err = device.MakeHost[uint64](m.d, words); err == nil {
		m.counts, err = device.Make[uint64](m.d, words)
	}
	return err
}

// makeRoom makes inboxes, notes and outboxes as large as the plan needs them. Where they are too small it waits for all that is queued, for others write there.
func (c *cluster) makeRoom(j *job, p plan) error {
	settled := false
	fit := func(m *member, s *device.Slice[byte], bytes int) (err error) {
		if s.Len() >= bytes {
			return nil
		}
		if !settled {
			c.settle()
			settled = true
		}
		if err = release(s); err == nil {
			*s, err = device.Make[byte](m.d, bytes) // not pooled: others use it
		}
		return err
	}
	for i, m := range c.members {
		for half := range min(2, len(p.rounds)) {
			at := (c.round + half) % 2
			if err := fit(m, &m.inbox[at], c.columns(p.rows[i], j).bytes); err != nil {
				return err
			}
			if j.sources[i].n == 0 {
				continue
			}
			room := c.notesOf(p.sent, len(c.members))
			if p.order.regions > 0 {
				room = m.notesOfRegions(c.widths, p.sent, len(c.members)*p.order.regions)
			}
			if err := fit(m, &m.notes[at], room.bytes); err != nil {
				return err
			}
			if m.needsOutbox() {
				if err := fit(m, &m.outbox[at], c.columns(boxed(j, p.sent, len(c.members)), j).bytes); err != nil {
					return err
				}
			}
		}
		if words := len(p.rounds) * len(c.members) * max(1, p.order.regions); m.cursors.Len() < words {
			if !settled {
				c.settle()
				settled = true
			}
			if err := release(&m.cursors); err != nil {
				return err
			}
			var err error
			if m.cursors, err = device.Make[uint64](m.d, max(256, words)); err != nil {
				return err
			}
		}
	}
	return nil
}

// boxed is how many rows of an outbox so many of a source take: of a job for all, the results of each owner.
func boxed(j *job, rows, owners int) int {
	if j.all {
		rows *= owners
	}
	return rows
}

func (m *member) needsOutbox() bool {
	for _, direct := range m.peers {
		if !direct {
			return true
		}
	}
	return false
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

func (g *gate) open()      { close(g.rounds[g.next]); g.next++ }
func (g *gate) wait(r int) { <-g.rounds[r] }
func (g *gate) openAll() {
	for g.next < len(g.rounds) {
		g.open()
	}
}

// flight is a job under way. Each member has two goroutines, one as a source and one as an owner. The gates say how far they have queued work: a stream
// can wait for an event only once that is recorded.
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

// watch measures steps on a stream by events, if steps are apart; nil does nothing.
type watch struct{ from, to *device.Event }

func newWatch(d *device.Device) (w *watch, err error) {
	w = &watch{}
	if w.from, err = d.NewEvent(); err == nil {
		w.to, err = d.NewEvent()
	}
	return w, err
}

func (w *watch) begin(st *device.Stream) error {
	if w == nil {
		return nil
	}
	return w.from.Record(st)
}

func (w *watch) end(st *device.Stream) error {
	if w == nil {
		return nil
	}
	return w.to.Record(st)
}

// took waits for the end, and gives the time since the beginning.
func (w *watch) took() (time.Duration, error) {
	if w == nil {
		return 0, nil
	}
	if err := w.to.Sync(); err != nil {
		return 0, err
	}
	return w.to.Since(w.from)
}

func (w *watch) close() error {
	if w == nil {
		return nil
	}
	var err error
	for _, ev := range []*device.Event{w.from, w.to} {
		if ev != nil {
			err = errors.Join(err, ev.Close())
		}
	}
	return err
}

// clock waits for a stream, if steps are apart, and notes how long a step of a round took. The next begins there.
func (f *flight) clock(r int, which step, st *device.Stream, w *watch) error {
	if w == nil {
		return nil
	}
	if err := w.end(st); err != nil {
		return err
	}
	t, err := w.took()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took[r][which] = max(f.took[r][which], t)
	return w.begin(st)
}

func (f *flight) half(r int) int  { return (f.first + r) % 2 }
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

// rounds queues all rounds of a plan, for which there is room, and makes the callers' streams wait for them.
func (c *cluster) rounds(j *job, p plan) error {
	n := len(c.members)
	f := &flight{cluster: c, job: j, plan: p, first: c.round, sent: newGates(n, len(p.rounds)), done: newGates(n, len(p.rounds)), fetched: newGates(n, len(p.rounds))}
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
	err := together(2*n, func(i int) error {
		if i < n {
			return f.fail(f.source(i))
		}
		return f.fail(f.owner(i - n))
	})
	if err == nil {
		err = f.join()
	}
	if err != nil {
		c.settle()
	}
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

// following is the stream that comes behind a job.
func (m *member) following(st *device.Stream) *device.Stream {
	if st == nil {
		return m.d.Stream()
	}
	return st
}

// source sends a member's rows, and fetches what comes back of the round before while the owners work.
func (f *flight) source(i int) (err error) {
	defer f.end(f.sent[i], f.fetched[i])
	m, s := f.members[i], f.job.sources[i]
	if s.n > 0 && f.plan.order.regions > 0 {
		err = f.fail(m.cursors.Slice(0, len(f.plan.starts[i])).Write(m.split, f.plan.starts[i]))
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
		f.sent[i].open()
		if r > 0 {
			err = f.fetchBack(i, r-1, err)
		}
	}
	return f.fetchBack(i, len(f.plan.rounds)-1, err)
}

// ahead is how many rounds are split before the first of them is worked on to its end. A table whose inserts go through the L2 cache by regions
// wants it alone: on two H200s 28.8 G/s, and 24.2 beside the next round's splitting.
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
	if rows == 0 {
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
	p.Seed, p.Owners, p.Cursors = f.seed, uint64(len(f.members)), m.cursors.Addr()+uint64(8*r*len(f.members))
	if f.comesBack() {
		p.Places = m.notes[half].Addr()
		p.Bases = p.Places + uint64(f.notesOf(rows, len(f.members)).bases)
	}
	for j, to := range f.segments(i, r) {
		p.to(j, to)
	}
	err := errors.Join(m.splitting.begin(m.split), m.splits.Launch(m.split, f.tiles(m, rows), &p), f.clock(r, splitStep, m.split, m.splitting))
	for j, other := range f.members {
		if m.peers[j] || rd.n[i][j] == 0 {
			continue
		}
		from, to := f.outgoing(i, j, r), f.segment(other, rd, i, j, half)
		for _, c := range f.job.going(from, to) {
			err = errors.Join(err, c.to.CopyFrom(m.split, c.from))
		}
	}
	return table.OneLine(errors.Join(err, f.clock(r, sendStep, m.split, m.splitting), m.sent[half].Record(m.split)))
}

// split are the parameters of splitting rows of a source, as far as the source tells.
func (w widths) split(j *job, s source, from, rows int) (p splitRows) {
	p.Keys, p.N = s.keys+uint64(from*w.keyBytes), uint64(rows)
	if j.values&sent != 0 {
		p.Values = s.values + uint64(from*w.valueBytes)
	}
	if j.mixed {
		p.Marks = s.marks + uint64(from)
	}
	if s.when != 0 {
		p.When = s.when + uint64(from)
	}
	return p
}

// to says where the rows of an owner go.
func (p *splitRows) to(owner int, r received) {
	p.OutKeys[owner], p.OutValues[owner], p.OutMarks[owner] = r.keys.Addr(), r.values.Addr(), r.marks.Addr()
}

// gathered are the parameters of bringing results back to rows of a source, as far as the source tells.
func (w widths) gathered(j *job, s source, from, rows int) (p gatherRows) {
	p.N = uint64(rows)
	if s.flags != 0 && j.flags {
		p.OutFlags = s.flags + uint64(from)
	}
	if s.out != 0 && j.values&back != 0 {
		width := w.valueBytes
		if j.counts {
			p.Counts, width = 1, 4
		}
		p.OutValues = s.out + uint64(from*width)
	}
	if s.when != 0 {
		p.When = s.when + uint64(from)
	}
	return p
}

// carried is a column on its way.
type carried struct{ from, to device.Slice[byte] }

// going are the columns that a job sends to the owners, and coming those that it brings back.
func (j *job) going(from, to received) []carried {
	out := []carried{{from.keys, to.keys}}
	if j.values&sent != 0 {
		out = append(out, carried{from.values, to.values})
	}
	if j.mixed {
		out = append(out, carried{from.marks, to.marks})
	}
	return out
}

func (j *job) coming(from, to received) (out []carried) {
	if j.values&back != 0 {
		out = append(out, carried{from.out, to.out})
	}
	if j.flags {
		out = append(out, carried{from.flags, to.flags})
	}
	return out
}

// wanted leaves of rows that an owner got the columns that the job has.
func (j *job) wanted(r received) received {
	if j.values == none {
		r.values = device.Slice[byte]{}
	}
	if j.values&back == 0 {
		r.out = device.Slice[byte]{}
	}
	if !j.flags {
		r.flags = device.Slice[byte]{}
	}
	return r
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
	return table.OneLine(errors.Join(err, m.sent[half].Record(m.split)))
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
	return f.cut(f.members[i].outbox[f.half(r)], f.columns(boxed(f.job, rd.to[i]-rd.from[i], len(f.members)), f.job), at, rd.n[i][j])
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

// fetchLists queues bringing back the values of a round's keys. Without peer access it waits: how many there are is known then.
func (f *flight) fetchLists(i, r int) error {
	m, rd, half := f.members[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	p := listRows{N: uint64(rows), Owners: uint64(len(f.members))}
	if !f.job.all {
		p.Places = m.notes[half].Addr()
		p.Bases = p.Places + uint64(f.notesOf(rows, len(f.members)).bases)
	}
	var brought []list
	for j := range f.members {
		if rd.n[i][j] == 0 {
			continue
		}
		l := f.lists[j][r]
		l.offsets = l.offsets.Slice(rd.at[i][j], rd.at[i][j]+rd.n[i][j]+1)
		if !m.peers[j] {
			var err error
			if l, err = m.bring(l); err != nil {
				return err
			}
			brought = append(brought, l)
		}
		p.Lists[j], p.Values[j] = l.offsets.Addr(), l.values.Addr()
	}
	f.job.taken(m, &p, rd.from[i])
	grid := device.GridFor(int64(rows)*listLanes, threads)
	if info := m.d.Info(); info.CUDA() {
		grid.Blocks = min(grid.Blocks, 16*int64(info.Multiprocessors))
	}
	err := errors.Join(m.lists[3].Launch(m.split, grid, &p), m.fetched[half].Record(m.split))
	if len(brought) > 0 {
		err = errors.Join(err, m.split.Sync())
	}
	for _, l := range brought {
		err = errors.Join(err, l.offsets.Free(), l.values.Free())
	}
	return err
}

// bring copies a list to the member. The offsets stay those of the owner.
func (m *member) bring(l list) (own list, err error) {
	if own.offsets, err = device.Make[uint64](m.d, l.offsets.Len()); err != nil {
		return own, err
	}
	if own.values, err = device.Make[byte](m.d, l.values.Len()); err != nil {
		return own, errors.Join(err, own.offsets.Free())
	}
	return own, errors.Join(own.offsets.CopyFrom(m.split, l.offsets), own.values.CopyFrom(m.split, l.values))
}

// owner does the operation on what a member gets, round by round.
func (f *flight) owner(j int) (err error) {
	defer f.end(f.done[j])
	m := f.members[j]
	for r, rd := range f.plan.rounds {
		for i := range f.members {
			f.sent[i].wait(r)
		}
		if err == nil && !f.failed.Load() {
			err = f.fail(f.work(m, j, r, rd))
		}
		f.done[j].open()
	}
	return err
}

// full tells a job that an owner found no room, one at a time.
func (f *flight) full(m *member, j int, e *table.FullError, got received) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !device.IsOutOfMemory(e.Why) {
		m.capacity = e.Capacity
	}
	return f.job.full(j, e, got)
}

// noneIn is the FullError of an owner that had no memory for its rows, and so took none in: other owners have taken
// theirs. Of a mixed batch all outcomes are NoRoom then, and there are no results.
func noneIn(st *device.Stream, r received, why error, mixed bool) error {
	outcome := byte(0)
	if mixed {
		outcome = byte(table.NoRoom)
		if r.out.Len() > 0 {
			if err := r.out.Fill(st, 0); err != nil {
				return err
			}
		}
	}
	if r.flags.Len() > 0 {
		if err := r.flags.Fill(st, outcome); err != nil {
			return err
		}
	}
	positions := make([]int, r.n)
	for i := range positions {
		positions[i] = i
	}
	return table.Full(positions, 0, 0, why)
}

func (f *flight) work(m *member, j, r int, rd round) error {
	half := f.half(r)
	for i, other := range f.members {
		if rd.n[i][j] > 0 {
			if err := m.work.Wait(other.sent[half]); err != nil {
				return err
			}
		}
	}
	if err := m.working.begin(m.work); err != nil {
		return err
	}
	if n := rd.gets[j]; n > 0 {
		got := f.job.wanted(f.cut(m.inbox[half], f.columns(n, f.job), 0, n))
		got.ordered = f.plan.order.regions > 0
		var err error
		if f.job.lists != nil {
			f.lists[j][r], err = f.job.lists(j, m.work, got)
		} else {
			err = f.job.run(j, m.work, got)
		}
		if device.IsOutOfMemory(err) && !errors.As(err, new(*table.FullError)) && f.job.full != nil {
			got.untried = true
			err = noneIn(m.work, got, err, f.job.mixed)
		}
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			err = f.full(m, j, full, got)
		}
		if err != nil {
			return err
		}
	}
	if err := f.clock(r, workStep, m.work, m.working); err != nil {
		return err
	}
	return m.done[half].Record(m.work)
}
