package join

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/crash"
)

// buildColumn is a column of the build side: a flat one of a Parquet file, or any other behind a taker.
type buildColumn struct {
	v     *vec
	taker *taker
}

// streamBuild reads a build side that is no Parquet file.
func (c *columnJoin) streamBuild(ctx context.Context, build *Reader) error {
	c.out = c.plan.only(build, nil, c.On)
	err := c.within(len(c.plan.columns), build)
	if err != nil {
		return err
	}
	if c.joiner.plan, err = planKeys(build.Schema(), c.probe.schema, c.On, c.NullsEqual); err != nil {
		return err
	}
	if err := c.joiner.build(ctx, build); err != nil {
		return err
	}
	next := 0
	for i, col := range c.plan.columns {
		if col.build && !c.Count {
			c.build[i] = &buildColumn{taker: c.takers[next]}
			next++
		}
	}
	return c.small()
}

// readBuild reads the build side's columns, all row groups of all columns side by side.
func (c *columnJoin) readBuild(ctx context.Context, p *parquetFile) error {
	groups := p.groups()
	keys := make([][]keyData, p.groups()) // by row group and column
	values := make([][]*vec, len(c.plan.columns))
	others := make([][][]arrow.Array, len(c.plan.columns))
	defer func() {
		for _, k := range keys {
			for _, d := range k {
				d.release()
			}
		}
	}()
	for g := range keys {
		keys[g] = make([]keyData, len(c.joiner.plan.keys))
	}
	work, going := crash.WithContext(ctx)
	work.SetLimit(c.Threads)
	task := func(f func() error) {
		work.Go(func() error {
			if going.Err() != nil {
				return context.Cause(ctx)
			}
			defer since(&c.stats.reading, time.Now())
			return catch("reading the build side broke off", f)
		})
	}
	for k, key := range c.joiner.plan.keys {
		for g := range groups {
			task(func() (err error) {
				keys[g][k], err = p.key(g, key.build, c.joiner.plan.wide, nil)
				return err
			})
		}
	}
	for i, col := range c.plan.columns {
		if !col.build || c.Count {
			continue
		}
		values[i], others[i] = make([]*vec, groups), make([][]arrow.Array, groups)
		for g := range groups {
			task(func() (err error) {
				if p.flat(col.at) != nil {
					values[i][g], err = p.vec(g, col.at, nil)
				} else {
					others[i][g], err = p.arrays(g, col.at)
				}
				return err
			})
		}
	}
	if err := work.Wait(); err != nil {
		return readError(err, "build")
	}
	if err := c.countBuild(p, keys); err != nil {
		return err
	}
	c.Progress(Progress{"read", c.sum.BuildRows, p.rows})
	start := time.Now()
	defer since(&c.stats.building, start)
	errs := each(len(c.plan.columns), func(i int) error {
		col := c.plan.columns[i]
		if !col.build || c.Count {
			return nil
		}
		if p.flat(col.at) != nil {
			c.build[i] = &buildColumn{v: &vec{width: widthOf(p.flat(col.at)), ends: []int{0}}}
			if groups > 0 {
				c.build[i].v = concat(values[i])
			}
			values[i] = nil
			return nil
		}
		var chunks []arrow.ArrayData
		for _, arrays := range others[i] {
			for _, a := range arrays {
				chunks = append(chunks, a.Data())
			}
		}
		t, err := newTaker(p.schema.Field(col.at).Type, chunks)
		c.build[i] = &buildColumn{taker: t}
		if err != nil {
			return fmt.Errorf("build column %q: %w", p.schema.Field(col.at).Name, err)
		}
		return nil
	})
	if err := first(errs); err != nil {
		return err
	}
	c.narrow()
	packed, err := c.packBuild(keys)
	if err != nil {
		return err
	}
	return c.makeIndex(ctx, packed)
}

// eachGroup calls do for the row groups of the build side, some beside one another.
func (c *columnJoin) eachGroup(ctx context.Context, p *parquetFile, do func(group int) error) error {
	work, going := crash.WithContext(ctx)
	work.SetLimit(c.Threads)
	for g := range p.groups() {
		work.Go(func() error {
			if going.Err() != nil {
				return context.Cause(going)
			}
			return catch("reading the build side broke off", func() error { return do(g) })
		})
	}
	return work.Wait()
}

// narrow makes row groups of the output as small as they must be for the build side's text: it may come out in each
// row.
func (c *columnJoin) narrow() {
	widest := 0
	for _, b := range c.build {
		if b != nil && b.v != nil && b.v.width == 0 && b.v.dict == nil {
			longest := 0
			for i := range b.v.n {
				longest = max(longest, b.v.ends[i+1]-b.v.ends[i])
			}
			widest += longest
		}
	}
	if c.Memory == 0 || widest == 0 {
		return
	}
	most := max(1, int(c.Memory/chunkShare)/widest)
	if most < c.groups[1] {
		c.most = most
		c.groups = [2]int{min(c.groups[0], most), most}
	}
}

// countBuild counts the rows that were read, and where each stretch of a taker's begins.
func (c *columnJoin) countBuild(p *parquetFile, keys [][]keyData) error {
	c.starts = []int64{0}
	for _, k := range keys {
		c.sum.BuildRows += int64(k[0].rows())
	}
	if err := p.sameRows(c.sum.BuildRows); err != nil {
		return err
	}
	for g := range p.groups() {
		// As arrays reads them: in batches of batchRows.
		for n := p.groupRows(g); n > 0; n -= batchRows {
			c.starts = append(c.starts, c.starts[len(c.starts)-1]+min(n, batchRows))
		}
	}
	c.note()
	return c.small()
}

// sameRows checks that a build side has as many rows as its file says.
func (p *parquetFile) sameRows(rows int64) error {
	if rows == p.rows {
		return nil
	}
	return fmt.Errorf("reading the build side: %s: the file is broken: it says that it has %d rows, and has %d",
		p.path, p.rows, rows)
}

// small checks that row numbers fit.
func (c *columnJoin) small() error {
	if c.sum.BuildRows >= noRow {
		return fmt.Errorf("a build side of %d rows: from Parquet to Parquet at most %d are possible; make the "+
			"smaller input the build side", c.sum.BuildRows, int64(noRow)-1)
	}
	return nil
}

// packBuild packs the keys, and notes the least and the largest of each column.
func (c *columnJoin) packBuild(keys [][]keyData) (*packed, error) {
	p := c.joiner.plan
	n := int(c.sum.BuildRows)
	out := &packed{ok: make([]bool, n)}
	out.words[0] = make([]uint64, n)
	if p.two() {
		out.words[1] = make([]uint64, n)
	}
	parts, from := make([]*packed, len(keys)), 0
	for g, k := range keys {
		parts[g] = out.slice(from, from+k[0].rows())
		from += k[0].rows()
	}
	errs := each(len(keys), func(g int) error {
		for i := range parts[g].ok {
			parts[g].ok[i] = true
		}
		return p.packColumns(parts[g], keys[g], true)
	})
	if err := first(errs); err != nil {
		return nil, err
	}
	if p.wide {
		out.parts = make([][]*vec, len(p.keys))
		for _, part := range parts {
			for k, v := range part.wide {
				out.parts[k] = append(out.parts[k], v)
			}
		}
	}
	out.settle()
	c.low, c.high, c.known = p.ranges(out)
	return out, nil
}

// slice is the keys of some of the rows, in the same memory.
func (p *packed) slice(from, to int) *packed {
	out := &packed{ok: p.ok[from:to]}
	for i, w := range p.words {
		if w != nil {
			out.words[i] = w[from:to]
		}
	}
	return out
}

// ranges gives the least and the largest value of each key column, where they are values of their column's type as they
// stand.
func (p *keyPlan) ranges(keys *packed) (low, high []int64, known []bool) {
	for _, k := range p.keys {
		lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
		simple := !p.wide && !k.none && !k.u64 && k.buildDiv == 1 && k.probeDiv == 1 && k.lo < 0
		if simple {
			shift := uint(64 - 8*k.bytes)
			words := keys.words[k.word]
			spans := make([]span, pieces(len(words)))
			inPieces(len(words), func(i, from, to int) {
				part := span{least: lo, most: hi}
				for r, w := range words[from:to] {
					if keys.ok[from+r] {
						v := int64(w>>k.shift<<shift) >> shift
						part.least, part.most = min(part.least, v), max(part.most, v)
					}
				}
				spans[i] = part
			})
			for _, part := range spans {
				lo, hi = min(lo, part.least), max(hi, part.most)
			}
		}
		low, high, known = append(low, lo), append(high, hi), append(known, simple)
	}
	return low, high, known
}
