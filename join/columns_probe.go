package join

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// unit is a row group of the probe side.
type unit struct {
	group  int
	rows   int
	reps   []uint32 // of each row, noRow for none; nil where no row has a match, or chosen tells all
	chosen []uint32 // the rows that come out, of a semi or anti join that does not keep all
	out    int64    // rows that come out
	whole  bool     // every row comes out once, in order
	err    error
	done   chan struct{}
}

// rep is a row's representative as the index has it.
func (u *unit) rep(row int) int64 {
	if u.reps == nil || u.reps[row] == noRow {
		return -1
	}
	return int64(u.reps[row])
}

// match reads a row group's keys and looks them up.
func (c *columnJoin) match(ctx context.Context, u *unit) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	rows := c.probe.groupRows(u.group)
	if rows < 0 || rows > math.MaxInt32 {
		return fmt.Errorf("reading the probe side: %s: the file is broken: a row group of %d rows", c.probe.path, rows)
	}
	u.rows = int(rows)
	if c.apart(u.group) {
		atomic.AddInt64(&c.sum.Skipped, 1)
		if c.How.keepsProbe() || c.How == Anti {
			u.out, u.whole = rows, true
		}
		return nil
	}
	if c.room != nil {
		cost := min(c.Memory, rows*int64(13+16*len(c.joiner.plan.keys)))
		if err := c.room.Acquire(ctx, cost); err != nil {
			return context.Cause(ctx)
		}
		defer c.room.Release(cost)
	}
	if c.bits != nil {
		return c.matchBits(u)
	}
	if c.tally != nil && c.plain {
		return c.matchPlain(u)
	}
	w := c.workspace()
	defer c.scratch.Put(w)
	columns, err := c.readKeys(c.probe, u.group, false)
	defer releaseKeys(columns)
	if err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	defer since(&c.stats.probing, time.Now())
	keys, err := c.packKeys(w, columns, u.rows, false)
	if err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	if c.tally != nil {
		found, pairs := c.tally.count(keys.there())
		u.out = c.comesOut(int64(u.rows), found, pairs)
		return nil
	}
	w.reps = slices.Grow(w.reps[:0], u.rows)[:u.rows]
	if err := c.index.find(keys, w.reps); err != nil {
		return err
	}
	c.notice(w.reps)
	c.count(u, w.reps)
	return nil
}

// readKeys reads the key columns of a row group, of the probe side those pages whose keys may match.
func (c *columnJoin) readKeys(p *parquetFile, group int, build bool) (columns []keyData, err error) {
	defer since(&c.stats.reading, time.Now())
	for i, k := range c.joiner.plan.keys {
		field, want := k.build, (*wanted)(nil)
		if !build {
			field, want = k.probe, c.inReach(i)
		}
		d, err := p.key(group, field, c.joiner.plan.wide, want)
		if err != nil {
			return columns, err
		}
		columns = append(columns, d)
	}
	return columns, nil
}

// releaseKeys is for keys that nothing refers to any more.
func releaseKeys(columns []keyData) {
	for _, d := range columns {
		d.release()
		if d.v != nil {
			d.v.spare()
		}
	}
}

// packKeys packs the keys of so many rows in the memory of the last ones.
func (c *columnJoin) packKeys(w *matchScratch, columns []keyData, rows int, build bool) (*packed, error) {
	keys := &w.keys
	for i := range keys.words {
		keys.words[i] = keys.words[i][:0]
	}
	keys.ok = keys.ok[:0]
	c.joiner.plan.grow(keys, rows)
	keys.wide = nil
	return keys, c.joiner.plan.packColumns(keys, columns, build)
}

// workspace is memory for one look-up, which goes to c.scratch afterwards.
func (c *columnJoin) workspace() *matchScratch {
	if w, is := c.scratch.Get().(*matchScratch); is {
		return w
	}
	return &matchScratch{}
}

// matchScratch is the memory of one look-up, for the next.
type matchScratch struct {
	keys  packed
	reps  []int64
	room  []int64
	rows  []uint32
	times []uint32
}

// count notes what comes out of a unit.
func (c *columnJoin) count(u *unit, reps []int64) {
	hits := 0
	u.whole = true
	distinct := c.index.distinct()
	for _, r := range reps {
		if r >= 0 {
			hits++
		}
	}
	switch {
	case c.How == Semi:
		u.out = int64(hits)
	case c.How == Anti:
		u.out = int64(len(reps) - hits)
	case distinct && !c.How.keepsProbe():
		u.out = int64(hits)
	case distinct:
		u.out = int64(len(reps))
	default:
		for _, r := range reps {
			n := c.times(r)
			u.out += int64(n)
			u.whole = u.whole && n == 1
		}
	}
	u.whole = u.whole && u.out == int64(len(reps))
	if c.enc == nil || u.out == 0 {
		return
	}
	if !c.How.pairs() {
		if u.whole {
			return
		}
		u.chosen = make([]uint32, 0, u.out)
		for i, r := range reps {
			if (r >= 0) == (c.How == Semi) {
				u.chosen = append(u.chosen, uint32(i))
			}
		}
		return
	}
	u.reps = make([]uint32, len(reps))
	for i, r := range reps {
		u.reps[i] = uint32(r) // noRow for -1
	}
}

// apart tells that no key of a row group can be one of the build's.
func (c *columnJoin) apart(group int) bool {
	if c.sum.BuildRows == 0 {
		return true
	}
	for i, k := range c.joiner.plan.keys {
		if c.known == nil || !c.known[i] {
			continue
		}
		if lo, hi, ok := c.probe.bounds(group, k.probe); ok && (hi < c.low[i] || lo > c.high[i]) {
			return true
		}
	}
	return false
}

// inReach wants the pages of a key column that have values between the least and the largest of the build's.
func (c *columnJoin) inReach(key int) *wanted {
	if c.known == nil || !c.known[key] {
		return nil
	}
	return &wanted{low: c.low[key], high: c.high[key], skipped: &c.sum.Pages}
}
