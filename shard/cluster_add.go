package shard

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Multimaps have a key many times, so owners say which pairs found no room.

// left are the pairs of a batch that are not in. Equal pairs can take each other's place.
type left struct {
	widths
	pairs rowSet
	why   error
}

// note adds the pairs at the positions of rows that an owner got.
func (l *left) note(_ int, e *table.FullError, r received) error {
	l.why = e.Why
	return l.pairs.read(l.widths, e.Positions, r, true)
}

// positions finds places for the pairs in n rows, the first there are, and removes them.
func (l *left) positions(n int, keys, values []byte) []int {
	if len(l.pairs.uses) != l.pairs.n {
		l.pairs.sort()
	}
	out := make([]int, 0, min(n, l.pairs.n))
	var pair []byte
	for i := range n {
		pair = append(append(pair[:0], l.keyAt(keys, i)...), l.valueAt(values, i)...)
		if l.pairs.take(pair) {
			out = append(out, i)
		}
	}
	return out
}

func (c *cluster) add(b batch, j job) error {
	l := &left{widths: c.widths, pairs: rowSet{width: c.keyBytes + c.valueBytes}}
	j.full = l.note
	switch {
	case b.wrong != nil:
		return b.wrong
	case !b.host:
		return c.locked(func() error { return c.addOn(b, j, l) })
	}
	skip := func(from, to int, why error) { // pairs that nobody took
		for i := from; i < to; i++ {
			l.pairs.add(l.keyAt(b.keys, i), l.valueAt(b.values, i))
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
	for k, i := range p.devices {
		s := p.sources[i]
		keys, err := s.slices.keys.Host(s.st)
		if err != nil {
			return err
		}
		values, err := s.slices.values.Host(s.st)
		if err != nil {
			return err
		}
		lost.add(l.positions(s.n, keys, values), p.before[k], l.why)
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
