package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// defaultPiece is the number of rows of a piece if Options do not say and memory allows it: as many as the kernels can
// number with 32 bits, in the box of a device that gets as many as it sends. For each piece, all of a table is read,
// and written by inserts.
const defaultPiece = 1 << 30

// mostPiece is the most rows that an inbox has room for.
const mostPiece = defaultPiece + defaultPiece/8 + tileMost

// inboxShare: one part in this many of a device's memory is for inboxes, for the only one or for both.
const inboxShare = 16

// exchange does a job: rows go to their owners, round by round, which do the operation, and results come back. It waits
// for the counts, and for what the tables wait for; the rest is queued, and the callers' streams come behind it. The
// caller holds the lock.
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
	for i, s := range j.sources {
		largest = max(largest, s.n)
		if s.n == 0 {
			continue
		}
		if captured, err := c.members[i].following(s.st).Capturing(); err != nil {
			return err
		} else if captured {
			return fmt.Errorf("%s: %w: a batch over several devices cannot be part of a graph", family, device.ErrCapturing)
		}
	}
	if largest == 0 {
		return nil
	}
	inbox := c.inboxRows()
	if piece < largest || shareOf(largest) > inbox { // in several rounds, with two inboxes
		inbox /= 2
	}
	piece = min(piece, largest, inbox)
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
	if did, err := c.quick(j, total); did || err != nil {
		return err
	}
	o := c.orderOf(j, min(piece, total/len(c.members)))
	for most := piece; ; {
		p, err := c.planned(j, o, sizes, piece, inbox)
		if err == nil {
			return c.rounds(j, p)
		}
		if !device.IsOutOfMemory(err) {
			return err
		}
		c.settle()
		for _, m := range c.members { // smaller pieces take smaller boxes
			if err := m.releaseBoxes(); err != nil {
				return err
			}
		}
		switch {
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
func (c *cluster) planned(j *job, o order, sizes []int, piece, inbox int) (p plan, err error) {
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
	p = newPlan(sizes, owned, chunk, piece, max(chunk, min(shareOf(piece), inbox)))
	if o.regions > 0 {
		p.sorted(o, counts, chunk)
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
		c.members[0].isFull(full)
		return j.full(0, full, *s.slices)
	}
	return err
}

// local does an insert of device slices where they are. The caller holds the lock.
func (c *cluster) local(j *job) error {
	c.changes.Add(1)
	rows := func(s source) bool { return s.n > 0 }
	c.scattered = c.scattered || len(c.members) > 1 && slices.ContainsFunc(j.sources, rows)
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
			c.members[i].isFull(full)
			return j.full(i, full, *s.slices)
		}
		return err
	})
}

// shareOf returns the most rows that an owner gets in a round: its share may be larger than others by chance.
func shareOf(piece int) int { return piece + piece/8 + tileMost }

// inboxRows returns how many rows the memory of the smallest device allows its inboxes.
func (c *cluster) inboxRows() int {
	rows := mostPiece
	for _, m := range c.members {
		rows = min(rows, inboxRows(c.widths, m.d))
	}
	return rows
}

func inboxRows(w widths, d *device.Device) int {
	if mem := d.Info().Memory; mem > 0 {
		return int(mem/inboxShare) / (w.keyBytes + w.value() + 1)
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
			return nil, frame.OneLine(err)
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

// roomMaker makes the memory of exchanges larger. Other devices may be using the memory that it frees, so it waits, once,
// for all that is queued.
type roomMaker struct {
	*cluster
	settled bool
}

// settle waits for all that is queued, the first time that it is called.
func (r *roomMaker) settle() {
	if !r.settled {
		r.cluster.settle()
		r.settled = true
	}
}

// fit makes memory of that many bytes and some extra, if there is less.
func (r *roomMaker) fit(m *member, s *device.Slice[byte], bytes, extra int) (err error) {
	if s.Len() >= bytes {
		return nil
	}
	r.settle()
	if err = release(s); err == nil {
		*s, err = device.Make[byte](m.d, bytes+extra) // not pooled: other devices use it
	}
	return err
}

// makeRoom makes inboxes, notes and outboxes as large as the plan needs them. Where they are too small it waits for all
// that is queued, for others write there.
func (c *cluster) makeRoom(j *job, p plan) error {
	r := roomMaker{cluster: c}
	fit := func(m *member, s *device.Slice[byte], bytes int) error { return r.fit(m, s, bytes, 0) }
	for i, m := range c.members {
		for half := range min(2, len(p.rounds)) {
			at := (c.round + half) % 2
			rows := p.rows[i]
			for _, b := range p.layouts {
				rows = max(rows, b.rows[i])
			}
			if err := fit(m, &m.inbox[at], c.columns(rows, j).bytes); err != nil {
				return err
			}
			if p.order.regions > 0 {
				if err := m.steps[at].room(m.d, len(p.order.steps)); err != nil {
					return err
				}
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
			if m.needsOutbox() && p.order.regions == 0 {
				if err := fit(m, &m.outbox[at], c.columns(boxed(j, p.sent, len(c.members)), j).bytes); err != nil {
					return err
				}
			}
		}
		if words := len(p.rounds) * len(c.members) * max(1, p.order.regions); m.cursors.Len() < words {
			r.settle()
			if err := m.roomForCursors(words); err != nil {
				return err
			}
		}
	}
	return nil
}
