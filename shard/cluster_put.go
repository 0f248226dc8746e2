package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Maps, sets and counters have each key once. So look-ups find the positions of a batch that are not in.

func (c *cluster) put(b batch, p putting) error {
	if b.wrong != nil {
		return b.wrong
	}
	t := &taking{cluster: c, batch: b, putting: p, strict: p.adds && p.undone == nil}
	t.refused.width, t.unseen.width = c.keyBytes, c.keyBytes
	if b.host {
		return t.take()
	}
	return c.locked(func() error {
		placed, err := c.place(b)
		if err != nil {
			return err
		}
		return t.takeOn(placed)
	})
}

// taking is a batch that is put into a table. If there is no memory for some of it, or to ask what is in, the positions
// that are not in are named all the same. Nothing is kept of a row unless rows are refused.
type taking struct {
	*cluster
	batch // of Go slices; columns that are on devices are read if they are needed
	putting
	strict  bool      // a row that was not tried has no effect if its key is in
	lost    []rowLoss // of each row, once something was refused
	why     error     // rows were refused
	blind   bool      // there is no memory to ask
	refused rowSet    // keys of rows that owners refused, and that no look-up has asked for
	unseen  rowSet    // keys that an owner had no memory to look at: they may be in, with the value from before
	summed  []source  // the sums of rows on devices that went to the owners instead of the rows
}

// rowLoss says why a row may not be in.
type rowLoss byte

const (
	rowIn rowLoss = iota
	rowAbsent
	rowUntried // no owner got the row, or none looked at its key
)

func (t *taking) losses() []rowLoss {
	if t.lost == nil {
		t.lost = make([]rowLoss, t.n)
	}
	return t.lost
}

// noting makes a job note the keys of refused rows. Jobs of a putting with again note rows anyway.
func (t *taking) noting(j job) job {
	if t.undone != nil {
		return j
	}
	full := j.full
	j.full = func(owner int, e *table.FullError, r received) error {
		err := t.refused.read(t.widths, e.Positions, r, false)
		if err == nil && r.untried && !t.strict {
			err = t.unseen.read(t.widths, e.Positions, r, false)
		}
		if err != nil {
			return err
		}
		return full(owner, e, r)
	}
	return j
}

// take puts a batch of Go slices.
func (t *taking) take() error {
	err := t.bring(t.batch, t.chunk, t.skip)
	if err != nil || t.why == nil {
		return err
	}
	for i, loss := range t.losses() {
		if loss == rowUntried && t.flags != nil {
			t.flags[i] = 0
		}
	}
	if err := t.askAgain(); err != nil {
		return err
	}
	t.decide()
	return t.refilled(t.locked(t.full))
}

// chunk puts rows of Go slices that are on a device now.
func (t *taking) chunk(at, first int, s source) error {
	var why error
	before := t.refused.n
	j := t.noting(t.insert(&why)).of(t.from(at, s))
	err := t.exchange(&j)
	if device.IsOutOfMemory(err) {
		t.refused.n = before
		t.skip(first, first+s.n, err)
		return nil
	}
	if err != nil || why == nil {
		return err
	}
	t.why = why
	if err = t.askFor(at, first, s); err == nil && !t.blind {
		t.refused.reset()
	}
	return err
}

// skip notes rows that there was no memory for.
func (t *taking) skip(from, to int, why error) {
	t.why = why
	for i := from; i < to; i++ {
		if t.chosen(i) {
			t.losses()[i] = rowUntried
		}
	}
}

// askFor marks the rows of a source whose keys are not in. They begin at position first of the batch.
func (t *taking) askFor(at, first int, s source) error {
	if t.blind {
		return nil
	}
	lost := t.losses()[first : first+s.n]
	err := t.absent(at, s, t.absence, func(i int) {
		if t.chosen(first + i) {
			lost[i] = rowAbsent
		}
	})
	if device.IsOutOfMemory(err) {
		t.blind, err = true, nil
		clear(lost)
	}
	return err
}

// askAgain asks again for keys that were not in: another chunk may have found room for the same key.
func (t *taking) askAgain() error {
	for more := true; more && !t.blind; {
		more = false
		err := t.askLost()
		if err == nil && t.again != nil {
			err = t.locked(func() error {
				n, err := t.again()
				more = n > 0
				return err
			})
		}
		if t.blind = device.IsOutOfMemory(err); err != nil && !t.blind {
			return err
		}
	}
	return nil
}

// askLost asks for the keys of lost rows, some at a time, and marks those that are in.
func (t *taking) askLost() error {
	asked := func(i int) bool { return t.lost[i] == rowAbsent || t.lost[i] == rowUntried && t.strict }
	keys, found := make([]byte, 0, min(t.n, refusedAtOnce)*t.keyBytes), make([]byte, min(t.n, refusedAtOnce))
	for from, to := 0, 0; from < t.n; from = to {
		keys = keys[:0]
		for ; to < t.n && len(keys) < cap(keys); to++ {
			if asked(to) {
				keys = append(keys, t.keyAt(t.keys, to)...)
			}
		}
		if err := t.ask(t.batchOf(keys, found[:len(keys)/t.keyBytes]), t.absence); err != nil {
			return err
		}
		k := 0
		for i := from; i < to; i++ {
			if asked(i) {
				if found[k] != 0 {
					t.lost[i] = rowIn
				}
				k++
			}
		}
	}
	return nil
}

// decide marks the rows that are lost without a look-up saying so.
func (t *taking) decide() {
	if t.unseen.n > 0 {
		t.unseen.sort()
		for i := range t.n {
			if t.chosen(i) && t.unseen.find(t.keyAt(t.keys, i)) >= 0 {
				t.losses()[i] = rowUntried
			}
		}
	}
	switch {
	case t.blind && t.undone != nil:
		t.matchUndone()
	case t.blind:
		t.matchRefused()
	}
}

// tried reports whether an owner decided about a row.
func (t *taking) tried(i int) bool { return t.chosen(i) && (t.strict || t.lost[i] != rowUntried) }

// matchUndone marks rows without a look-up: one for each equal row that is not done.
func (t *taking) matchUndone() {
	t.undone.sort()
	var row []byte
	for i := range t.losses() {
		if !t.tried(i) {
			continue
		}
		row = append(row[:0], t.keyAt(t.keys, i)...)
		if t.undone.paired {
			row = append(row, t.valueAt(t.values, i)...)
		}
		if t.lost[i] = rowIn; t.undone.take(row) {
			t.lost[i] = rowAbsent
		}
	}
}

// matchRefused marks rows without a look-up: those of each key of which all rows were refused. If one row went in, its
// key is in.
func (t *taking) matchRefused() {
	for i, loss := range t.losses() {
		if loss == rowAbsent || loss == rowUntried && t.strict {
			t.refused.add(t.keyAt(t.keys, i))
		}
	}
	t.refused.sort()
	for i := range t.n {
		if key := t.keyAt(t.keys, i); t.tried(i) && !t.refused.take(key) {
			if at := t.refused.find(key); at >= 0 {
				t.refused.uses[at] = surplus
			}
		}
	}
	for i := range t.n {
		if t.tried(i) {
			at := t.refused.find(t.keyAt(t.keys, i))
			if t.lost[i] = rowIn; at >= 0 && t.refused.uses[at] != surplus {
				t.lost[i] = rowAbsent
			}
		}
	}
}

// full returns the FullError of the rows that are not in, or nil. The caller holds the lock.
func (t *taking) full() error {
	positions := positionsOf(t.lost, func(l rowLoss) bool { return l != rowIn })
	return t.fullError(&refusals{positions, t.why})
}

// refilled looks up the values that come back: if another row of the key got in, out has nothing yet. It returns full,
// the error of the call, unless the look-up fails.
func (t *taking) refilled(full error) error {
	if t.absence.values&back == 0 || full != nil && !isFull(full) {
		return full
	}
	if e := (*table.FullError)(nil); errors.As(full, &e) {
		for _, p := range e.Positions {
			t.flags[p] = 0
		}
	}
	ask := t.batch
	ask.flags = nil
	ask.typed = func(from, to int) []frame.Column {
		columns := t.typed(from, to)
		columns[1] = frame.In[byte](nil) // values, which no look-up reads
		return columns
	}
	return notFound(full, t.ask(ask, t.absence))
}

// notFound returns the error of a FindOrInsert whose keys are in, except those that err names. wrong says why their
// values were not found.
func notFound(err, wrong error) error {
	if wrong == nil {
		return err
	}
	which := "all keys"
	if err != nil {
		which = "all keys but those that were refused"
	}
	return frame.OneLine(errors.Join(err, fmt.Errorf("%s: %s are in, but out and added may lack theirs: look them "+
		"up: %w", family, which, wrong)))
}

// takeOn puts a batch that is on devices. The caller holds the lock.
func (t *taking) takeOn(b placed) (err error) {
	j := t.insert(&t.why).of(b.sources)
	if t.independent() && !j.owned {
		return t.insertLocal(&j, b)
	}
	if t.sums != nil && len(t.members) > 1 {
		summed, free, wrong := t.combine(t.sums, b.sources, j.values&sent != 0)
		if wrong != nil {
			return wrong
		}
		if summed != nil {
			defer func() {
				if e := free(); e != nil {
					err = frame.OneLine(errors.Join(err, e))
				}
			}()
			t.putting, t.summed = t.ofSums(), summed
			j = t.insert(&t.why).of(summed)
		}
	}
	j = t.noting(j)
	err = t.exchange(&j)
	if err != nil || t.why == nil {
		return err
	}
	if t.again != nil {
		if _, err = t.again(); device.IsOutOfMemory(err) {
			t.blind, err = true, nil
		}
	}
	for _, s := range b.sources {
		t.n += s.n
	}
	if err == nil {
		err = t.column(&t.when, b, 1, func(r *received) device.Slice[byte] { return r.when })
	}
	for k, i := range b.devices {
		if err == nil {
			err = t.askFor(i, b.before[k], b.sources[i])
		}
	}
	if err == nil && (t.blind || t.unseen.n > 0) {
		err = t.columns(b)
	}
	if err != nil {
		return err
	}
	if t.blind {
		clear(t.losses()) // those of parts that were asked for
	}
	if t.blind && t.summed != nil {
		err = t.matchSums(b)
	} else {
		t.decide()
	}
	if err == nil {
		err = t.full()
	}
	if t.absence.values&back == 0 || err != nil && !isFull(err) {
		return err
	}
	ask := make([]source, len(b.sources)) // see refilled
	for i, s := range b.sources {
		if s.slices != nil {
			ask[i] = sourceOf(s.st, received{n: s.n, keys: s.slices.keys, out: s.slices.out})
		}
	}
	again := t.absence.of(ask)
	return notFound(err, t.exchange(&again))
}

// columns reads keys, and values if they are needed, from devices.
func (t *taking) columns(b placed) error {
	err := t.column(&t.keys, b, t.keyBytes, func(r *received) device.Slice[byte] { return r.keys })
	if err == nil && t.undone != nil && t.undone.paired && t.summed == nil {
		err = t.column(&t.values, b, t.valueBytes, func(r *received) device.Slice[byte] { return r.values })
	}
	return err
}

// column reads a column of a batch from its devices. It leaves out a column that a part does not have.
func (t *taking) column(to *[]byte, b placed, width int, of func(r *received) device.Slice[byte]) error {
	for k, i := range b.devices {
		s := b.sources[i]
		if s.n == 0 || of(s.slices).Addr() == 0 {
			continue
		}
		if *to == nil {
			*to = make([]byte, t.n*width)
		}
		if err := of(s.slices).Read(t.members[i].following(s.st), (*to)[b.before[k]*width:][:s.n*width]); err != nil {
			return err
		}
	}
	return nil
}

// insertLocal inserts the parts of a batch each on its own device.
func (c *cluster) insertLocal(j *job, b placed) error {
	var lost refusals
	j.full = func(i int, e *table.FullError, _ received) error {
		lost.add(e.Positions, b.before[slices.Index(b.devices, i)], e.Why)
		return nil
	}
	if err := c.local(j); err != nil {
		return err
	}
	return c.fullError(&lost)
}

// absentAtOnce is the number of keys that are looked up at once to find those that are absent.
const absentAtOnce = 1 << 20

// absent calls do with the rows of a source whose keys are not in, in order. The caller holds the lock.
func (c *cluster) absent(at int, s source, absence job, do func(row int)) (err error) {
	if s.n == 0 {
		return nil
	}
	d := c.members[at].d
	flags, err := device.Make[byte](d, min(s.n, absentAtOnce))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flags.Free()) }()
	found := make([]byte, flags.Len())
	for first := 0; first < s.n; first += absentAtOnce {
		part := source{n: min(s.n-first, absentAtOnce), keys: s.keys + uint64(first*c.keyBytes), flags: flags.Addr(),
			st: s.st}
		if s.slices != nil {
			part.slices = &received{n: part.n, keys: s.slices.keys.Slice(first*c.keyBytes, (first+part.n)*c.keyBytes),
				flags: flags.Slice(0, part.n)}
		}
		j := absence.of(c.from(at, part))
		if err := c.exchange(&j); err != nil {
			return err
		}
		if err := flags.Slice(0, part.n).Read(c.members[at].following(s.st), found[:part.n]); err != nil {
			return err
		}
		for i, there := range found[:part.n] {
			if there == 0 {
				do(first + i)
			}
		}
	}
	return nil
}
