package shard

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// What maps, sets and counters have in common: a key is there once, so which positions of a batch are not in is told by
// looking their keys up.

// noted are the keys of rows that owners refused, for the case that there is no memory to ask which of them are in.
type noted struct {
	widths
	keys    []string
	untried map[string]bool // of these, those that no owner looked at: they may be in, with the value from before
}

// notedAtOnce is how many keys are read at once, if any of them was refused.
const notedAtOnce = 1 << 20

// noting has a job note them, too.
func (x *noted) noting(j job) job {
	full := j.full
	j.full = func(owner int, e *table.FullError, r received) error {
		if err := x.note(e.Positions, r); err != nil {
			return err
		}
		return full(owner, e, r)
	}
	return j
}

func (x *noted) note(positions []int, r received) error {
	var keys []byte
	first, end := 0, 0
	for _, p := range positions { // ascending
		if p >= end {
			first, end = p, min(p+notedAtOnce, r.n)
			keys = make([]byte, (end-first)*x.keyBytes)
			if err := r.keys.Slice(first*x.keyBytes, end*x.keyBytes).Read(nil, keys); err != nil {
				return err
			}
		}
		key := x.row(keys, nil, p-first)
		x.keys = append(x.keys, key)
		if r.untried {
			if x.untried == nil {
				x.untried = map[string]bool{}
			}
			x.untried[key] = true
		}
	}
	return nil
}

// rows is how often each key was refused.
func (x *noted) rows() map[string]int {
	out := map[string]int{}
	for _, key := range x.keys {
		out[key]++
	}
	return out
}

// row is a row's key as bytes, or with values its pair.
func (w widths) row(keys, values []byte, i int) string {
	key := string(keys[i*w.keyBytes : (i+1)*w.keyBytes])
	if values == nil {
		return key
	}
	return key + string(values[i*w.valueBytes:(i+1)*w.valueBytes])
}

// unasked tells, without a device, which rows of a batch are not in. of gives the bytes of a row as undone has them, or
// of its key. A key of which all rows were refused is not in; one of which some went in is. Of rows that are counted,
// each that was refused is told, and of others all of a key that nobody looked at.
func (p putting) unasked(refused *noted, n int, chosen func(i int) bool,
	of func(i int, paired bool) string) (positions []int) {
	if p.undone != nil {
		undone := p.undone()
		for i := range n {
			if row := of(i, p.paired); undone[row] > 0 && chosen(i) {
				undone[row]--
				positions = append(positions, i)
			}
		}
		return positions
	}
	rows, brought := refused.rows(), map[string]int{}
	for i := range n {
		if key := of(i, false); rows[key] > 0 && chosen(i) {
			brought[key]++
			positions = append(positions, i)
		}
	}
	return slices.DeleteFunc(positions, func(i int) bool {
		key := of(i, false)
		return rows[key] < brought[key] && !refused.untried[key]
	})
}

func (c *cluster) put(b batch, p putting) error {
	switch {
	case b.wrong != nil:
		return b.wrong
	case b.host:
		t := &taking{cluster: c, batch: b, putting: p, refused: noted{widths: c.widths}}
		t.strict = p.adds && p.undone == nil
		return t.take()
	}
	return c.locked(func() error {
		placed, err := c.place(b)
		if err != nil {
			return err
		}
		return c.putOn(placed, p)
	})
}

// taking is a batch of Go slices that is taken in. Where there is no memory for some of it, or to ask what is in, what
// is not in is told all the same.
type taking struct {
	*cluster
	batch
	putting
	strict  bool // a row that was not tried has no effect where the key is in
	lost    refusals
	refused noted
	untried []int // positions of rows that no owner got; all others were tried
	blind   bool  // there is no memory to ask
}

func (t *taking) take() error {
	err := t.bring(t.batch, t.chunk, t.skip)
	if err != nil || t.lost.why == nil {
		return err
	}
	t.sortUntried()
	in, err := t.askAgain()
	if err != nil {
		return err
	}
	t.keep(in)
	return t.refilled(t.locked(func() error { return t.fullError(&t.lost) }))
}

// chunk takes in rows that are on a device.
func (t *taking) chunk(at, first int, s source) error {
	var why error
	j := t.refused.noting(t.insert(&why)).of(t.from(at, s))
	err := t.exchange(&j)
	if device.IsOutOfMemory(err) {
		t.skip(first, first+s.n, err)
		return nil
	}
	if err != nil || why == nil {
		return err
	}
	var positions []int
	if !t.blind {
		positions, err = t.absent(at, s, t.absence)
	}
	if device.IsOutOfMemory(err) {
		t.blind, err = true, nil
	}
	t.lost.add(slices.DeleteFunc(positions, func(i int) bool { return !t.chosen(first + i) }), first, why)
	return err
}

// skip notes rows that there was no memory for.
func (t *taking) skip(from, to int, why error) {
	t.lost.add(nil, 0, why)
	for i := from; i < to; i++ {
		if t.chosen(i) {
			t.untried = append(t.untried, i)
		}
	}
}

// sortUntried says what is known of rows that nobody tried: where such a row has no effect if its key is in, it is to
// be asked for.
func (t *taking) sortUntried() {
	if t.flags != nil {
		for _, i := range t.untried {
			t.flags[i] = 0
		}
	}
	switch {
	case t.strict:
		t.lost.positions = append(t.lost.positions, t.untried...)
		for _, i := range t.untried {
			t.refused.keys = append(t.refused.keys, t.row(t.keys, nil, i))
		}
	case t.undone == nil && len(t.refused.untried) > 0:
		for i := range t.n {
			if t.chosen(i) && t.refused.untried[t.row(t.keys, nil, i)] {
				t.untried = append(t.untried, i)
			}
		}
	}
	slices.Sort(t.untried)
	t.untried = slices.Compact(t.untried)
	slices.Sort(t.lost.positions)
}

// askAgain tells which of the lost positions' keys are in: another chunk may have found room for the same key.
func (t *taking) askAgain() (in []byte, err error) {
	asked := make([]byte, 0, len(t.lost.positions)*t.keyBytes)
	for _, p := range t.lost.positions {
		asked = append(asked, t.keys[p*t.keyBytes:(p+1)*t.keyBytes]...)
	}
	in = make([]byte, len(t.lost.positions))
	for more := true; more && !t.blind; {
		more = false
		err = t.ask(t.batchOf(asked, in), t.absence)
		if err == nil && t.again != nil {
			err = t.locked(func() error {
				n, err := t.again()
				more = n > 0
				return err
			})
		}
		if t.blind = device.IsOutOfMemory(err); err != nil && !t.blind {
			return nil, err
		}
	}
	return in, nil
}

// keep leaves of the lost positions those whose keys are not in, and adds what was not tried.
func (t *taking) keep(in []byte) {
	kept := t.lost.positions[:0]
	for i, p := range t.lost.positions {
		if in[i] == 0 {
			kept = append(kept, p)
		}
	}
	if t.blind {
		kept = t.unasked(&t.refused, t.n, func(i int) bool {
			_, told := slices.BinarySearch(t.untried, i)
			return t.chosen(i) && (t.strict || !told)
		}, func(i int, paired bool) string {
			if paired {
				return t.row(t.keys, t.values, i)
			}
			return t.row(t.keys, nil, i)
		})
	}
	if t.lost.positions = kept; !t.strict {
		t.lost.positions = append(t.lost.positions, t.untried...)
		slices.Sort(t.lost.positions)
		t.lost.positions = slices.Compact(t.lost.positions)
	}
}

// refilled looks up the values that come back: where another row of the key got in, out has nothing yet. full is what
// the call gives but for that.
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

// notFound is the error of a FindOrInsert whose keys are in, but for those that err names, where wrong says that their
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

// putOn takes in a batch that is on devices. The caller holds the lock.
func (c *cluster) putOn(b placed, p putting) error {
	var why error
	j := p.insert(&why).of(b.sources)
	if c.independent() && !j.owned {
		return c.insertLocal(&j, b)
	}
	refused := noted{widths: c.widths}
	j = refused.noting(j)
	err := c.exchange(&j)
	if err != nil || why == nil {
		return err
	}
	if p.again != nil {
		_, err = p.again()
	}
	var lost refusals
	for k, i := range b.devices {
		if err != nil {
			break
		}
		var positions []int
		if positions, err = c.absent(i, b.sources[i], p.absence); err == nil {
			positions, err = b.sources[i].chosen(positions)
		}
		lost.add(positions, b.before[k], why)
	}
	if device.IsOutOfMemory(err) {
		lost = refusals{why: why}
		lost.positions, err = c.unaskedOn(b, &refused, p)
	} else if err == nil && p.undone == nil && !p.adds && len(refused.untried) > 0 {
		var positions []int
		positions, err = c.unaskedOn(b, &refused, p)
		lost.positions = append(lost.positions, positions...)
		slices.Sort(lost.positions)
		lost.positions = slices.Compact(lost.positions)
	}
	if err == nil {
		err = c.fullError(&lost)
	}
	if p.absence.values&back == 0 || err != nil && !isFull(err) {
		return err
	}
	ask := make([]source, len(b.sources)) // see refilled
	for i, s := range b.sources {
		if s.slices != nil {
			ask[i] = sourceOf(s.st, received{n: s.n, keys: s.slices.keys, out: s.slices.out})
		}
	}
	again := p.absence.of(ask)
	return notFound(err, c.exchange(&again))
}

// unaskedOn is unasked for a batch on devices.
func (c *cluster) unaskedOn(b placed, refused *noted, p putting) ([]int, error) {
	rows := 0
	parts := len(b.devices)
	keys, values, when := make([][]byte, parts), make([][]byte, parts), make([][]byte, parts)
	for k, i := range b.devices {
		s, err := b.sources[i], error(nil)
		rows = b.before[k] + s.n
		if s.n == 0 {
			continue
		}
		if keys[k], err = s.slices.keys.Host(s.st); err == nil && p.paired {
			values[k], err = s.slices.values.Host(s.st)
		}
		if err == nil && s.when != 0 {
			when[k], err = s.slices.when.Host(s.st)
		}
		if err != nil {
			return nil, err
		}
	}
	at := func(i int) (part, row int) {
		part = sort.Search(parts, func(k int) bool { return b.before[k] > i }) - 1
		return part, i - b.before[part]
	}
	return p.unasked(refused, rows, func(i int) bool {
		k, row := at(i)
		return when[k] == nil || when[k][row] != 0
	}, func(i int, paired bool) string {
		k, row := at(i)
		if paired {
			return c.row(keys[k], values[k], row)
		}
		return c.row(keys[k], nil, row)
	}), nil
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

// absentAtOnce is how many keys are asked for at once which of them are absent.
const absentAtOnce = 1 << 20

// absent gives the positions of a source's rows whose keys are not in. The caller holds the lock.
func (c *cluster) absent(at int, s source, absence job) (positions []int, err error) {
	if s.n == 0 {
		return nil, nil
	}
	d := c.members[at].d
	flags, err := device.Make[byte](d, min(s.n, absentAtOnce))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, flags.Free()) }()
	for first := 0; first < s.n; first += absentAtOnce {
		part := source{n: min(s.n-first, absentAtOnce), keys: s.keys + uint64(first*c.keyBytes), flags: flags.Addr(),
			st: s.st}
		if s.slices != nil {
			part.slices = &received{n: part.n, keys: s.slices.keys.Slice(first*c.keyBytes, (first+part.n)*c.keyBytes),
				flags: flags.Slice(0, part.n)}
		}
		j := absence.of(c.from(at, part))
		if err := c.exchange(&j); err != nil {
			return nil, err
		}
		in := make([]byte, part.n)
		if err := flags.Read(c.members[at].following(s.st), in); err != nil {
			return nil, err
		}
		for i, there := range in {
			if there == 0 {
				positions = append(positions, first+i)
			}
		}
	}
	return positions, nil
}
