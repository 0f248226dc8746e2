package shard

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Pairs of multimaps: a key is there many times, so that owners tell which pairs found no room.

// left are the pairs of a batch that are not in, as bytes, and how many there are of each: pairs alike can stand for
// one another.
type left struct {
	widths
	pairs map[string]int
	why   error
}

// note adds the pairs at the positions of rows that an owner got.
func (l *left) note(_ int, e *table.FullError, r received) error {
	keys, err := r.keys.Host(nil)
	if err != nil {
		return err
	}
	values, err := r.values.Host(nil)
	if err != nil {
		return err
	}
	for _, p := range e.Positions {
		l.pairs[l.row(keys, values, p)]++
	}
	l.why = e.Why
	return nil
}

// positions finds places for the pairs in n rows, the first there are, and takes them off.
func (l *left) positions(n int, keys, values []byte) (out []int) {
	for i := range n {
		pair := l.row(keys, values, i)
		if l.pairs[pair] > 0 {
			l.pairs[pair]--
			out = append(out, i)
		}
	}
	return out
}

func (c *cluster) add(b batch, insert operation) error {
	l := &left{widths: c.widths, pairs: map[string]int{}}
	j := job{values: sent, full: l.note, run: insert}
	switch {
	case b.wrong != nil:
		return b.wrong
	case !b.host:
		return c.locked(func() error { return c.addOn(b, j, l) })
	}
	skip := func(from, to int, why error) { // pairs that nobody took
		for i := from; i < to; i++ {
			l.pairs[l.row(b.keys, b.values, i)]++
		}
		l.why = why
	}
	err := c.bring(b, func(at, first int, s source) error {
		own := j.of(c.from(at, s))
		err := c.exchange(&own)
		if device.IsOutOfMemory(err) { // none of these are in, but others may be
			skip(first, first+s.n, err)
			return nil
		}
		return err
	}, skip)
	if err != nil || l.why == nil {
		return err
	}
	lost := refusals{positions: l.positions(b.n, b.keys, b.values), why: l.why}
	return c.locked(func() error { return c.fullError(&lost) })
}

// addOn is add of a batch that is on devices. The caller holds the lock.
func (c *cluster) addOn(b batch, j job, l *left) error {
	p, err := c.place(b)
	if err != nil {
		return err
	}
	j = j.of(p.sources)
	if c.independent() {
		return c.insertLocal(&j, p)
	}
	if err := c.exchange(&j); err != nil || l.why == nil {
		return err
	}
	var lost refusals
	for k, part := range b.parts {
		keys, err := part.slices.keys.Host(part.st)
		if err != nil {
			return err
		}
		values, err := part.slices.values.Host(part.st)
		if err != nil {
			return err
		}
		lost.add(l.positions(part.n, keys, values), p.before[k], l.why)
	}
	return c.fullError(&lost)
}

func (c *cluster) remove(b batch, j job) (n int, err error) {
	if b.wrong != nil {
		return 0, b.wrong
	}
	err = c.bring(b, func(at, _ int, s source) error {
		before, err := c.held()
		if err != nil {
			return err
		}
		own := j.of(c.from(at, s))
		if err := c.exchange(&own); err != nil {
			return err
		}
		after, err := c.held()
		n += before - after
		return err
	}, nil)
	return n, err
}
