package join

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/semaphore"

	"github.com/warpmap/warpmap/internal/crash"
)

// From Parquet to Parquet a join goes column by column. For each row group of the probe side the key columns alone are read and looked
// up, by as many goroutines as there are threads. What is found, in the order of the row groups, is cut into row groups of the output,
// and each column of each of them is read, taken and encoded as a task of its own. So a column is read where rows of it come out, and
// one goroutine has one column of one row group in memory. A row group all of whose rows come out once, in order, is copied as it
// stands.

// A row group of the output is ended when it has so many rows; so that those of a join that keeps some of each are not too small, and
// each takes its columns from few of the probe's.
const enoughRows = 1 << 17

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

// piece is a stretch of what comes out of a unit: n rows from the k-th match of a row on, or from a chosen row on.
type piece struct {
	*unit
	row, k int
	n      int
}

// columnJoin is a join from Parquet to Parquet, or of counts.
type columnJoin struct {
	*joiner
	ctx   context.Context // of the whole join
	probe *parquetFile
	plan  *output
	build []*buildColumn // of the output, nil for the probe's
	enc   *parquetEncoder
	room  *semaphore.Weighted
	stats columnTimes
	low   []int64 // of the build's keys, where known
	high  []int64
	known []bool
	bits  *bitKeys // where set, they take the place of the index

	scratch sync.Pool // of *matchScratch
}

// columnTimes are nanoseconds of stages, which many goroutines add to.
type columnTimes struct{ reading, building, probing atomic.Int64 }

func since(into *atomic.Int64, start time.Time) { into.Add(int64(time.Since(start))) }

// buildColumn is a column of the build side: a flat one of a Parquet file, or any other behind a taker.
type buildColumn struct {
	v     *vec
	taker *taker
}

// columns runs a join whose probe side is a Parquet file, into one or, without a writer, to a count.
func (j *joiner) columns(ctx context.Context, build, probe *Reader, plan *output, out *Writer) (err error) {
	c := &columnJoin{joiner: j, probe: probe.pq, plan: plan, build: make([]*buildColumn, len(plan.columns))}
	if out != nil {
		c.enc = out.columns()
	}
	if j.Memory > 0 {
		c.room = semaphore.NewWeighted(j.Memory)
	}
	if j.plan, err = planKeys(build.Schema(), probe.Schema(), j.On, j.NullsEqual); err != nil {
		return err
	}
	defer c.addTimes()
	if build.pq != nil && j.byBits {
		if low, high, ok := c.rangeOf(build.pq); ok {
			if c.bits, err = c.readBits(ctx, build.pq, low, high); err == nil {
				err = j.ready()
			}
			if err != nil {
				return err
			}
		}
	}
	if c.bits != nil {
		return c.run(ctx, out)
	}
	if build.pq != nil {
		err = c.readBuild(ctx, build.pq)
	} else {
		err = c.streamBuild(ctx, build)
	}
	if err != nil {
		return err
	}
	j.watch()
	defer func() {
		if e := j.index.close(); err == nil {
			err = e
		}
	}()
	return c.run(ctx, out)
}

func (c *columnJoin) addTimes() {
	for _, t := range []struct {
		from *atomic.Int64
		to   *float64
	}{{&c.stats.reading, &c.sum.Reading}, {&c.stats.building, &c.sum.Building}, {&c.stats.probing, &c.sum.Probing}} {
		*t.to += time.Duration(t.from.Load()).Seconds()
	}
	if c.enc != nil {
		c.sum.Writing += time.Duration(c.enc.busy.Load()).Seconds()
	}
}

// streamBuild reads a build side that is no Parquet file.
func (c *columnJoin) streamBuild(ctx context.Context, build *Reader) error {
	c.out = c.plan.only(build, nil, c.On)
	var err error
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

// small checks that row numbers fit.
func (c *columnJoin) small() error {
	if c.sum.BuildRows >= noRow {
		return fmt.Errorf("a build side of %d rows: from Parquet to Parquet at most %d are possible; make the smaller input the build side", c.sum.BuildRows, int64(noRow)-1)
	}
	return nil
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
	packed, err := c.packBuild(keys)
	if err != nil {
		return err
	}
	return c.makeIndex(ctx, packed)
}

func release(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// readError names the side that could not be read, unless the join was cancelled.
func readError(err error, side string) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("reading the %s side: %w", side, err)
}

// countBuild counts the rows that were read, and where each stretch of a taker's begins.
func (c *columnJoin) countBuild(p *parquetFile, keys [][]keyData) error {
	c.starts = []int64{0}
	for _, k := range keys {
		c.sum.BuildRows += int64(k[0].rows())
	}
	if c.sum.BuildRows != p.rows {
		return fmt.Errorf("reading the build side: %s: the file is broken: it says that it has %d rows, and has %d", p.path, p.rows, c.sum.BuildRows)
	}
	for g := range p.groups() {
		// As arrays reads them: in batches of batchRows.
		for n := p.groupRows(g); n > 0; n -= batchRows {
			c.starts = append(c.starts, c.starts[len(c.starts)-1]+min(n, batchRows))
		}
	}
	return c.small()
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

// ranges gives the least and the largest value of each key column, where they are values of their column's type as they stand.
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

// run looks the row groups up, and submits what comes out.
func (c *columnJoin) run(ctx context.Context, out *Writer) error {
	c.ctx = ctx
	ctx, cancel := context.WithCancelCause(ctx)
	groups := c.probe.groups()
	units := make([]*unit, groups)
	for g := range units {
		units[g] = &unit{group: g, done: make(chan struct{})}
	}
	ahead := make(chan struct{}, 2*c.Threads) // units that were looked up, and have not come out
	var next atomic.Int64
	var workers crash.WaitGroup
	defer workers.Wait()
	defer cancel(nil)
	for range min(c.Threads, groups) {
		workers.Go(func() {
			for {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				g := int(next.Add(1)) - 1
				if g >= groups {
					return
				}
				u := units[g]
				u.err = catch("looking up broke off", func() error { return c.match(ctx, u) })
				close(u.done)
				if u.err != nil {
					return
				}
			}
		})
	}
	err := c.sequence(ctx, units, ahead)
	if err == nil && c.enc != nil {
		err = c.enc.wait()
	}
	var ours *columnError
	if errors.As(err, &ours) {
		return ours.error
	}
	if err != nil {
		return out.fail(err)
	}
	return nil
}

// columnError is an error of a column that was to be written, not of the writing.
type columnError struct{ error }

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
				if u.whole && n == 0 {
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
		return &columnError{fmt.Errorf("reading the probe side: %s: the file is broken: it says that it has %d rows, and has %d", c.probe.path, c.probe.rows, c.sum.ProbeRows)}
	}
	if c.bits == nil {
		c.sum.Filtered = c.index.filtered()
	}
	if err := flush(); err != nil || !c.How.keepsBuild() {
		return err
	}
	return c.rest()
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
		if err := c.enc.submit(len(group), load, func(int) int64 { return 16 * int64(len(group)) }, func() {}); err != nil {
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
	start := time.Now()
	var columns []keyData
	defer func() {
		for _, d := range columns {
			d.release()
		}
	}()
	for i, k := range c.joiner.plan.keys {
		d, err := c.probe.key(u.group, k.probe, c.joiner.plan.wide, c.inReach(i))
		if err != nil {
			return fmt.Errorf("reading the probe side: %w", err)
		}
		columns = append(columns, d)
	}
	since(&c.stats.reading, start)
	start = time.Now()
	defer since(&c.stats.probing, start)
	w, _ := c.scratch.Get().(*matchScratch)
	if w == nil {
		w = &matchScratch{}
	}
	defer c.scratch.Put(w)
	keys := &w.keys
	for i := range keys.words {
		keys.words[i] = keys.words[i][:0]
	}
	keys.ok = keys.ok[:0]
	c.joiner.plan.grow(keys, u.rows)
	keys.wide = nil
	if err := c.joiner.plan.packColumns(keys, columns, false); err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	w.reps = slices.Grow(w.reps[:0], u.rows)[:u.rows]
	if err := c.index.find(keys, w.reps); err != nil {
		return err
	}
	c.notice(w.reps)
	c.count(u, w.reps)
	return nil
}

// matchScratch is the memory of one look-up, for the next.
type matchScratch struct {
	keys packed
	reps []int64
	room []int64
	rows []uint32
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

// withRows wants the pages that have some of these rows; nil wants all.
func (c *columnJoin) withRows(rows []uint32) *wanted {
	if rows == nil {
		return nil
	}
	return &wanted{rows: rows, skipped: &c.sum.Pages}
}

// rep is a row's representative as the index has it.
func (u *unit) rep(row int) int64 {
	if u.reps == nil || u.reps[row] == noRow {
		return -1
	}
	return int64(u.reps[row])
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

// rows lists a piece's rows: those of the probe's row group, nil for all, and those of the build side, where they are wanted.
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
			for i, p := range parts {
				var b []uint32
				probe[i], b = c.rows(p, right)
				if len(parts) == 1 {
					build = b
				} else {
					build = append(build, b...)
				}
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

// sound reads a field that is going to be copied: what is broken in the file is an error, and does not go on into another.
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

// takeProbe reads a probe column of some row groups and takes the given rows of each.
func (c *columnJoin) takeProbe(field, at int, parts []piece, rows [][]uint32) (columnData, error) {
	if c.probe.flat(at) != nil {
		var vecs []*vec
		for i, p := range parts {
			v, err := c.probe.vec(p.group, at, c.withRows(rows[i]))
			if err != nil {
				return columnData{}, err
			}
			if rows[i] != nil {
				some := v.gather(rows[i], false)
				v.spare()
				v = some
			}
			vecs = append(vecs, v)
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
