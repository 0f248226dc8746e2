package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// A row group of the output is ended when it has so many rows; so that those of a join that keeps some of each are not
// too small, and each takes its columns from few of the probe's.
const enoughRows = 1 << 17

// piece is a stretch of what comes out of a unit: n rows from the k-th match of a row on, or from a chosen row on.
type piece struct {
	*unit
	row, k int
	n      int
}

// sequence takes the units in order and cuts what comes out of them into row groups.
func (c *columnJoin) sequence(ctx context.Context, units []*unit, ahead <-chan struct{}) error {
	var parts []piece
	n := 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		err := c.emit(parts, n)
		parts, n = nil, 0
		return err
	}
	for i, u := range units {
		select {
		case <-u.done:
		case <-ctx.Done():
			return &columnError{context.Cause(ctx)}
		}
		<-ahead
		units[i] = nil
		if u.err != nil {
			return &columnError{u.err}
		}
		c.sum.ProbeRows += int64(u.rows)
		left := u.out
		if c.Limit > 0 {
			left = min(left, c.Limit-c.sum.OutRows)
		}
		c.sum.OutRows += left
		if c.enc != nil {
			if u.whole && left == u.out && n >= c.groups[0]/8 {
				if err := flush(); err != nil {
					return err
				}
			}
			at := piece{unit: u}
			for left > 0 {
				at.n = int(min(left, int64(c.groups[1]-n)))
				if u.whole && n == 0 && (c.most == 0 || left <= int64(c.most)) {
					at.n = int(left)
				}
				parts = append(parts, at)
				n += at.n
				left -= int64(at.n)
				if n >= c.groups[0] {
					if err := flush(); err != nil {
						return err
					}
				}
				if left > 0 {
					c.skip(&at)
				}
			}
		}
		c.Progress(Progress{"probe", c.sum.ProbeRows, c.probe.rows})
		if c.Limit > 0 && c.sum.OutRows == c.Limit {
			break
		}
	}
	if c.sum.ProbeRows != c.probe.rows && !(c.Limit > 0 && c.sum.OutRows == c.Limit) {
		return &columnError{
			fmt.Errorf("reading the probe side: %s: the file is broken: it says that it has %d rows, and has %d",
				c.probe.path, c.probe.rows, c.sum.ProbeRows)}
	}
	limited := c.Limit > 0 && c.sum.OutRows == c.Limit // units may still be looked up, then, and tell what has a match
	if err := flush(); err != nil || !c.How.keepsBuild() || limited {
		return err
	}
	return c.rest()
}

// skip moves a piece to where it ends.
func (c *columnJoin) skip(p *piece) {
	if !c.How.pairs() { // row counts those that come out
		p.row += p.n
		return
	}
	for n := p.n; n > 0; {
		here := c.times(p.rep(p.row)) - p.k
		if here > n {
			p.k += n
			return
		}
		n -= here
		p.row, p.k = p.row+1, 0
	}
}

// rows lists a piece's rows: those of the probe's row group, nil for all, and those of the build side, where they are
// wanted.
func (c *columnJoin) rows(p piece, right bool) (probe, build []uint32) {
	all := p.whole && p.n == p.unit.rows
	switch {
	case all && !right:
		return nil, nil
	case p.chosen != nil:
		return p.chosen[p.row : p.row+p.n], nil
	case !c.How.pairs():
		for i := range p.n {
			probe = append(probe, uint32(p.row+i))
		}
		return probe, nil
	}
	if !all {
		probe = make([]uint32, 0, p.n)
	}
	if right {
		build = make([]uint32, 0, p.n)
	}
	distinct := right && c.index.distinct()
	if all && right && distinct && p.reps != nil {
		return nil, p.reps
	}
	k := p.k
	for row, n := p.row, p.n; n > 0; row++ {
		rep := p.rep(row)
		for end := min(c.times(rep), k+n); k < end; k++ {
			if !all {
				probe = append(probe, uint32(row))
			}
			if right && rep < 0 {
				build = append(build, noRow)
			} else if right {
				build = append(build, uint32(c.index.match(rep, k)))
			}
			n--
		}
		k = 0
	}
	return probe, build
}

// emit submits a row group of the output.
func (c *columnJoin) emit(parts []piece, n int) error {
	right := slices.ContainsFunc(c.build, func(b *buildColumn) bool { return b != nil })
	probe := make([][]uint32, len(parts))
	var build []uint32
	// The first column's task does it for all.
	taken := sync.OnceValue(func() error {
		return catch(brokeOff, func() error {
			builds := make([][]uint32, len(parts))
			inParallel(len(parts), func(i int) { probe[i], builds[i] = c.rows(parts[i], right) })
			if build = builds[0]; len(builds) > 1 {
				build = slices.Concat(builds...)
			}
			return nil
		})
	})
	whole := len(parts) == 1 && parts[0].whole && parts[0].n == parts[0].unit.rows
	load := func(field int) (d columnData, err error) {
		defer func() {
			if err != nil {
				err = &columnError{err}
			}
		}()
		if c.ctx.Err() != nil {
			return columnData{}, context.Cause(c.ctx)
		}
		from := c.plan.columns[field]
		if whole && !from.build {
			if d, ok := c.enc.copy(c.probe, parts[0].group, from.at, field); ok {
				return d, c.sound(parts[0].group, from.at)
			}
		}
		if err := taken(); err != nil {
			return columnData{}, err
		}
		defer since(&c.stats.probing, time.Now())
		if from.build {
			return c.takeBuild(c.build[field], build)
		}
		d, err = c.takeProbe(field, from.at, parts, probe)
		if err != nil {
			return d, fmt.Errorf("reading the probe side: %w", err)
		}
		return d, nil
	}
	cost := func(field int) int64 {
		from := c.plan.columns[field]
		size := 24 * int64(n)
		if !from.build {
			for _, p := range parts {
				size += 2 * c.probe.bytes(p.group, from.at)
			}
		}
		return size
	}
	return c.enc.submit(n, load, cost, func() {})
}

// sound reads a field that is going to be copied: what is broken in the file is an error, and does not go on into
// another.
func (c *columnJoin) sound(group, field int) error {
	defer since(&c.stats.reading, time.Now())
	if err := c.probe.sound(group, field); err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	return nil
}

// takeBuild takes rows of a build column.
func (c *columnJoin) takeBuild(b *buildColumn, rows []uint32) (columnData, error) {
	if b.v != nil {
		return columnData{v: b.v.gather(rows, c.How.keepsProbe()), own: true}, nil
	}
	at := make([]loc, len(rows))
	for i, r := range rows {
		if at[i] = null; r != noRow {
			at[i] = c.buildLoc(int64(r))
		}
	}
	return takeArrays(b.taker, at)
}

// takeProbe reads a probe column of some row groups, side by side, and takes the given rows of each.
func (c *columnJoin) takeProbe(field, at int, parts []piece, rows [][]uint32) (columnData, error) {
	if c.probe.flat(at) != nil {
		vecs, errs := make([]*vec, len(parts)), make([]error, len(parts))
		inParallel(len(parts), func(i int) {
			v, err := c.probe.vec(parts[i].group, at, c.withRows(rows[i]))
			if err == nil && rows[i] != nil {
				some := v.gather(rows[i], false)
				v.spare()
				v = some
			}
			vecs[i], errs[i] = v, err
		})
		for _, err := range errs {
			if err != nil {
				return columnData{}, err
			}
		}
		all := concat(vecs)
		for _, v := range vecs {
			if v != all {
				v.spare()
			}
		}
		return columnData{v: all, own: true}, nil
	}
	var chunks []arrow.ArrayData
	var where []loc
	for i, p := range parts {
		arrays, err := c.probe.arrays(p.group, at)
		if err != nil {
			return columnData{}, err
		}
		defer release(arrays)
		starts := []int{0}
		first := len(chunks)
		for _, a := range arrays {
			chunks = append(chunks, a.Data())
			starts = append(starts, starts[len(starts)-1]+a.Len())
		}
		chunk := 0
		for r := range p.n {
			row := r
			if rows[i] != nil {
				row = int(rows[i][r])
			}
			for row >= starts[chunk+1] {
				chunk++
			}
			where = append(where, loc{first + chunk, row - starts[chunk]})
		}
	}
	t, err := newTaker(c.plan.schema.Field(field).Type, chunks)
	if err != nil {
		return columnData{}, err
	}
	return takeArrays(t, where)
}

// withRows wants the pages that have some of these rows; nil wants all.
func (c *columnJoin) withRows(rows []uint32) *wanted {
	if rows == nil {
		return nil
	}
	return &wanted{rows: rows, skipped: &c.sum.Pages}
}

// takeArrays takes rows as Arrow arrays, in several where they do not fit into one.
func takeArrays(t *taker, at []loc) (columnData, error) {
	data, err := t.take(at)
	if errors.Is(err, errTooBig) && len(at) > 1 {
		first, err := takeArrays(t, at[:len(at)/2])
		if err != nil {
			return first, err
		}
		second, err := takeArrays(t, at[len(at)/2:])
		return columnData{arrays: append(first.arrays, second.arrays...)}, err
	}
	if err != nil {
		return columnData{}, err
	}
	defer data.Release()
	return columnData{arrays: []arrow.Array{array.MakeFromData(data)}}, nil
}

func release(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// rest submits the build rows without a match.
func (c *columnJoin) rest() error {
	var rows []uint32
	for _, row := range c.unmatched() {
		if c.Limit == 0 || c.sum.OutRows < c.Limit {
			rows = append(rows, uint32(row))
			c.sum.OutRows++
		}
	}
	if c.enc == nil {
		return nil
	}
	for group := range slices.Chunk(rows, c.groups[1]) {
		load := func(field int) (columnData, error) {
			from := c.plan.columns[field]
			if from.build {
				return c.takeBuild(c.build[field], group)
			}
			return c.nulls(field, from.at, len(group))
		}
		if err := c.enc.submit(len(group), load, func(int) int64 { return 16 * int64(len(group)) },
			func() {}); err != nil {
			return err
		}
	}
	return nil
}

// nulls is a probe column of so many nulls.
func (c *columnJoin) nulls(field, at, n int) (columnData, error) {
	if col := c.probe.flat(at); col != nil {
		v := &vec{n: n, width: widthOf(col), valid: make([]bool, n)}
		if v.width > 0 {
			v.fixed = make([]byte, n*v.width)
		} else {
			v.ends = make([]int, n+1)
		}
		return columnData{v: v}, nil
	}
	t, err := newTaker(c.plan.schema.Field(field).Type, nil)
	if err != nil {
		return columnData{}, err
	}
	return takeArrays(t, slices.Repeat([]loc{null}, n))
}
