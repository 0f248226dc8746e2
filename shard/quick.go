package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Small batches go to their owners without counting first, because each call of the driver and each wait takes as long
// as the kernels' work on some hundred thousand rows. All is queued on the callers' streams:
//
//	source's stream   split ── wait of the host, totals ── [its own table's work] ── wait for other owners ── gather
//
// Each owner has a box with room for all rows of the batch. A source's kernel takes places there from the owner's
// cursor, whose atomic operations reach it from all devices, so the rows of all sources are in one piece. When the
// sources have split their rows, the host knows how many rows each owner got. A cursor is never set back, because others
// may be using it: the next batch begins with what it is then.

// quick is a member's memory and events for quick batches. Of what there are two, successive batches take one each in turn.
type quick struct {
	boxes         [2]device.Slice[byte] // rows that the member got
	notes         [2]device.Slice[byte] // places and bases of the rows that it sent
	cursor        device.Slice[uint64]  // rows that it got in all batches
	begins        uint64                // what the cursor is before a batch
	sums          device.Slice[uint64]  // splitRows.Sums
	totals        device.Host[uint64]   // splitRows.Totals
	done, fetched *device.Event         // the ends of the last batch's operation, and of fetching its results
	last          *device.Stream        // that its rows of the last batch were on; nil if it had none
}

// quickly reports whether a job goes the quick way.
func (c *cluster) quickly(j *job, rows int) bool {
	if !c.atomics || j.all || j.lists != nil || c.opts.Apart || c.opts.Piece > 0 || c.opts.Regions > 0 ||
		rows > quickRows*len(c.members) {
		return false
	}
	for _, m := range c.members {
		if mem := m.d.Info().Memory; mem > 0 && int64(2*c.columns(rows, j).bytes) > mem/quickShare {
			return false
		}
	}
	return true
}

// quick does a job of few rows, and reports whether it did. It waits until the rows are split, and where tables wait.
func (c *cluster) quick(j *job, rows int) (did bool, err error) {
	if !c.quickly(j, rows) {
		return false, nil
	}
	half := c.turn
	c.turn = 1 - half
	if err := c.roomForQuick(j, rows, half); err != nil {
		if device.IsOutOfMemory(err) {
			err = nil // in pieces
		}
		return false, err
	}
	finished := false
	defer func() {
		if !finished { // after an error or a panic, nothing may write to the caller's memory
			c.stopQuick(j)
		}
	}()
	gets, err := c.splitQuick(j, rows, half)
	if err == nil {
		err = c.workQuick(j, rows, half, gets)
	}
	if err == nil {
		err = c.fetchQuick(j, rows, half, gets)
	}
	finished = err == nil
	return true, frame.OneLine(err)
}

// roomForQuick makes what is missing for a batch.
func (c *cluster) roomForQuick(j *job, rows, half int) error {
	r := roomMaker{cluster: c}
	fit := func(m *member, s *device.Slice[byte], bytes int) error { return r.fit(m, s, bytes, bytes/quickSlack) }
	for i, m := range c.members {
		q := &m.quick
		err := fit(m, &q.boxes[half], c.columns(rows, j).bytes)
		if n := j.sources[i].n; err == nil && j.comesBack() && n > 0 {
			err = fit(m, &q.notes[half], c.notesOf(n, len(c.members)).bytes)
		}
		if err == nil && q.cursor.Len() == 0 {
			err = m.makeCursor(len(c.members))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeCursor makes the member's cursor and sums, which are 0.
func (m *member) makeCursor(owners int) (err error) {
	q := &m.quick
	if q.totals.Len() == 0 {
		if q.totals, err = device.MakeMapped[uint64](m.d, owners); err != nil {
			return err
		}
	}
	if q.sums.Len() == 0 {
		if q.sums, err = device.Make[uint64](m.d, owners+1); err != nil {
			return err
		}
	}
	cursor, err := device.Make[uint64](m.d, 1)
	if err != nil {
		return err
	}
	if err = frame.InTurn(
		func() error { return cursor.Fill(m.work, 0) },
		func() error { return q.sums.Fill(m.work, 0) },
		func() error { return m.work.Sync() },
	); err != nil {
		return errors.Join(err, cursor.Free())
	}
	q.cursor, q.begins = cursor, 0
	return nil
}

// stopQuick waits for all that a batch has queued. What its cursors are is not known, so the next batch makes new ones.
func (c *cluster) stopQuick(j *job) {
	for i, s := range j.sources {
		if s.n > 0 {
			c.members[i].following(s.st).Sync()
		}
	}
	c.settle()
	for _, m := range c.members {
		release(&m.quick.cursor) // an error is the device's, which returns it again
		m.quick.last = nil
	}
}

// quickStream returns the stream of a member's part of a batch: that of its rows if it has any.
func (c *cluster) quickStream(j *job, i int) *device.Stream {
	if s := j.sources[i]; s.n > 0 {
		return c.members[i].following(s.st)
	}
	return c.members[i].work
}

// splitQuick splits the rows of all sources, and returns the number of rows that each owner got. It waits.
func (c *cluster) splitQuick(j *job, rows, half int) (gets []int, err error) {
	at, owners := c.columns(rows, j), len(c.members)
	// Once the rows of a batch are split, and the host has waited, nothing of earlier batches is under way: each stream
	// of a source has waited for them, or is the stream that they were on. So at most one batch is under way when the
	// next one begins, and that one has the other half of the boxes.
	alike := true
	for i, m := range c.members {
		alike = alike && j.sources[i].n > 0 && m.quick.last == m.following(j.sources[i].st)
	}
	for i, s := range j.sources {
		m, st := c.members[i], c.quickStream(j, i)
		if m.quick.last = nil; s.n == 0 {
			continue
		}
		m.quick.last = st
		for _, other := range c.members {
			if alike {
				break
			}
			if err := errors.Join(st.Wait(other.quick.done), st.Wait(other.quick.fetched)); err != nil {
				return nil, err
			}
		}
		p := c.split(j, s, 0, s.n)
		p.Seed, p.Owners = c.seed, uint64(owners)
		if j.comesBack() {
			p.Places = m.quick.notes[half].Addr()
			p.Bases = p.Places + uint64(c.notesOf(s.n, owners).bases)
		}
		for k, to := range c.members {
			p.to(k, c.cut(to.quick.boxes[half], at, 0, rows))
			p.Cursors[k], p.Begins[k] = to.quick.cursor.Addr(), to.quick.begins
		}
		p.Sums, p.Totals = m.quick.sums.Addr(), m.quick.totals.Mapped().Addr()
		if err := m.splits.Launch(st, c.tiles(m, s.n), &p); err != nil {
			return nil, err
		}
	}
	gets = make([]int, owners)
	for i, s := range j.sources {
		if s.n == 0 {
			continue
		}
		if err := c.quickStream(j, i).Sync(); err != nil {
			return nil, err
		}
		for k, n := range c.members[i].quick.totals.Slice() {
			gets[k] += int(n)
		}
	}
	for k, n := range gets {
		c.members[k].quick.begins += uint64(n)
	}
	return gets, nil
}

// workQuick does the operation on what each owner got.
func (c *cluster) workQuick(j *job, rows, half int, gets []int) error {
	f, at := &flight{cluster: c, job: j}, c.columns(rows, j)
	return c.together(func(k int) error {
		if gets[k] == 0 {
			return nil
		}
		m, st := c.members[k], c.quickStream(j, k)
		err := f.run(m, k, 0, st, j.wanted(c.cut(m.quick.boxes[half], at, 0, gets[k])))
		return errors.Join(err, m.quick.done.Record(st))
	})
}

// fetchQuick has the sources' streams wait for the owners, and puts results where they belong.
func (c *cluster) fetchQuick(j *job, rows, half int, gets []int) error {
	at, owners := c.columns(rows, j), len(c.members)
	for i, s := range j.sources {
		if s.n == 0 {
			continue
		}
		m, st := c.members[i], c.quickStream(j, i)
		for k, owner := range c.members {
			if gets[k] > 0 && k != i {
				if err := st.Wait(owner.quick.done); err != nil {
					return err
				}
			}
		}
		if !j.comesBack() {
			continue
		}
		p := c.gathered(j, s, 0, s.n)
		p.Owners, p.Places = uint64(owners), m.quick.notes[half].Addr()
		p.Bases = p.Places + uint64(c.notesOf(s.n, owners).bases)
		for k, owner := range c.members {
			from := c.cut(owner.quick.boxes[half], at, 0, rows)
			p.Values[k], p.Flags[k] = from.out.Addr(), from.flags.Addr()
		}
		if err := errors.Join(m.gather.Launch(st, c.tiles(m, s.n), &p), m.quick.fetched.Record(st)); err != nil {
			return err
		}
	}
	return nil
}
