package join

import (
	"bufio"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/warpmap/warpmap/internal/files"
)

// A build side that does not fit into memory is joined by parts: both sides' rows go to files on disk, by a hash of
// their keys, and each part of the build side is joined with its part of the probe side. Rows carry their number, so
// that the parts' outputs, each in order, merge to the output that there would have been. The files have no name once
// they are open: whatever ends the process, nothing is left.

const (
	mostParts   = 64      // files of one side at a time
	deepestPart = 3       // how often a part is split that is too large
	blockBytes  = 1 << 26 // rows that are split at a time, about
	leastParted = 1 << 20 // what a part of the build side may have at least
)

// partedJoin is a join by parts.
type partedJoin struct {
	*joiner
	plan  *output // of the columns that the inputs now have
	keys  *keyPlan
	most  int64         // bytes of the build side that are joined at a time
	build *arrow.Schema // with row numbers behind
	probe *arrow.Schema
	out   *arrow.Schema // with one or two
	rows  int           // of a batch of what is spilled
	files []*spill      // that were opened
	outs  *os.File      // of all parts' outputs, one behind the other
}

// parted joins into a writer, or counts, in so many parts at first.
func (j *joiner) parted(ctx context.Context, build, probe *Reader, plan *output, out *Writer,
	way way) (err error) {
	n := way.parts
	g := &partedJoin{joiner: j, plan: plan.only(build, probe, j.On), most: way.most}
	j.shares = 4 * n // one of each part is in memory when their outputs are merged
	defer func() {
		for _, s := range g.files {
			s.close()
		}
	}()
	if g.keys, err = planKeys(build.Schema(), probe.Schema(), j.On, j.NullsEqual); err != nil {
		return err
	}
	if err := j.within(len(plan.columns), build, probe); err != nil {
		return err
	}
	if err := j.ready(); err != nil {
		return err
	}
	g.build, g.probe = numbered(build.Schema()), numbered(probe.Schema())
	g.out = numbered(plan.schema)
	if j.How.keepsBuild() {
		g.out = numbered(g.out)
	}
	g.rows = g.batchOf(plan.schema.NumFields(), build, n)
	left, err := g.split(ctx, build, g.build, true, n, 0)
	if err != nil {
		return err
	}
	right, err := g.split(ctx, probe, g.probe, false, n, 0)
	if err != nil {
		return err
	}
	var outs []*spill
	if !j.Count {
		if g.outs, err = nameless(); err != nil {
			return err
		}
		defer g.outs.Close()
	}
	for p := range left {
		some, err := g.part(ctx, left[p], right[p], 1)
		if err != nil {
			return err
		}
		outs = append(outs, some...)
	}
	if j.Count {
		return nil
	}
	return g.merge(ctx, outs, out)
}

// batchOf is how many rows go into a batch on disk, of which merging has one of each part in memory.
func (g *partedJoin) batchOf(columns int, build *Reader, parts int) int {
	row := int64(16 * (columns + 1))
	if n := build.likely(); n > 0 {
		row += build.size * 4 / n
	}
	return int(min(int64(g.batch), max(64, 2*g.most/row/int64(parts))))
}

// numbered is a schema with a column for row numbers behind the others, whose name none has.
func numbered(s *arrow.Schema) *arrow.Schema {
	name := "#"
	for s.HasField(name) {
		name += "#"
	}
	return arrow.NewSchema(append(slices.Clone(s.Fields()), arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64,
		Nullable: true}), nil)
}

// split spills a side's rows by their keys. The rows of the inputs get numbers, those of spills have them.
func (g *partedJoin) split(ctx context.Context, r array.RecordReader, s *arrow.Schema, build bool, n,
	depth int) ([]*spill, error) {
	parts := make([]*spill, n)
	for i := range parts {
		var err error
		if parts[i], err = g.spill(s); err != nil {
			return nil, err
		}
	}
	var recs []arrow.RecordBatch
	rows, bytes, total := int64(0), int64(0), int64(0)
	flush := func() error {
		defer func() {
			for _, r := range recs {
				r.Release()
			}
			recs, rows, bytes = nil, 0, 0
		}()
		return g.scatter(recs, parts, build, depth)
	}
	for {
		clock := time.Now()
		more := r.Next()
		g.sum.Reading += time.Since(clock).Seconds()
		if !more {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		rec := r.RecordBatch()
		if depth == 0 {
			rec = withNumbers(s, rec, total)
		} else {
			rec.Retain()
		}
		recs = append(recs, rec)
		total += rec.NumRows()
		rows += rec.NumRows()
		bytes += sizeOf(rec)
		if rows >= int64(n)*1024 || bytes >= min(blockBytes, g.most) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if depth == 0 {
			g.Progress(Progress{map[bool]string{true: "read", false: "probe"}[build], total, rowsOf(r)})
		}
	}
	if err := r.Err(); err != nil {
		return nil, readError(err, map[bool]string{true: "build", false: "probe"}[build])
	}
	if depth == 0 && build {
		g.sum.BuildRows = total
	} else if depth == 0 {
		g.sum.ProbeRows = total
	}
	if err := flush(); err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := p.end(); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// withNumbers is a batch with row numbers.
func withNumbers(s *arrow.Schema, rec arrow.RecordBatch, from int64) arrow.RecordBatch {
	b := array.NewInt64Builder(allocator)
	defer b.Release()
	b.Reserve(int(rec.NumRows()))
	for i := range rec.NumRows() {
		b.UnsafeAppend(from + i)
	}
	numbers := b.NewArray()
	defer numbers.Release()
	return array.NewRecordBatch(s, append(slices.Clone(rec.Columns()), numbers), rec.NumRows())
}

// scatter writes a block's rows to their parts. Rows that cannot match go anywhere, if they come out at all.
func (g *partedJoin) scatter(recs []arrow.RecordBatch, parts []*spill, build bool, depth int) error {
	defer func(start time.Time) { g.sum.Building += time.Since(start).Seconds() }(time.Now())
	keys := &packed{}
	for _, r := range recs {
		if err := g.keys.pack(keys, r, build); err != nil {
			return err
		}
	}
	all := g.How.keepsBuild()
	if !build {
		all = g.How.keepsProbe() || g.How == Anti
	}
	rows := make([][]loc, len(parts))
	i := 0
	for c, r := range recs {
		for row := range int(r.NumRows()) {
			word := uint64(i)
			if keys.ok[i] {
				word = keys.words[0][i]
				if keys.words[1] != nil {
					word ^= keys.words[1][i] * 0x9e3779b97f4a7c15
				}
			}
			if keys.ok[i] || all {
				p := spread(word, depth) % uint64(len(parts))
				rows[p] = append(rows[p], loc{c, row})
			}
			i++
		}
	}
	takers, err := takersOf(parts[0].schema, recs, g.atOnce())
	if err != nil {
		return err
	}
	return first(each(len(parts), func(p int) error {
		for some := range slices.Chunk(rows[p], g.rows) {
			if err := takeRows(parts[p].schema, takers, some, parts[p].write); err != nil {
				return err
			}
		}
		return nil
	}))
}

// spread mixes a word, another way at each depth.
func spread(word uint64, depth int) uint64 {
	for range depth + 1 {
		word = (word ^ word>>32) * 0xd6e8feb86659fd93
		word = (word ^ word>>29) + 0x9e3779b97f4a7c15
	}
	return word ^ word>>32
}

// takersOf makes a taker for each column of some batches, which takes so many bytes at once.
func takersOf(s *arrow.Schema, recs []arrow.RecordBatch, most int64) ([]*taker, error) {
	takers := make([]*taker, s.NumFields())
	for i := range takers {
		chunks := make([]arrow.ArrayData, len(recs))
		for c, r := range recs {
			chunks[c] = r.Column(i).Data()
		}
		var err error
		if takers[i], err = newTaker(s.Field(i).Type, chunks); err != nil {
			return nil, fmt.Errorf("column %q: %w", s.Field(i).Name, err)
		}
		takers[i].limit(most)
	}
	return takers, nil
}

// takeRows takes rows of all columns of a schema, in several batches where they do not fit into one.
func takeRows(s *arrow.Schema, takers []*taker, rows []loc, f func(arrow.RecordBatch) error) error {
	if len(rows) == 0 {
		return nil
	}
	columns := make([]arrow.Array, s.NumFields())
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range columns {
		data, err := takers[i].take(rows)
		if errors.Is(err, errTooBig) && len(rows) > 1 {
			if err := takeRows(s, takers, rows[:len(rows)/2], f); err != nil {
				return err
			}
			return takeRows(s, takers, rows[len(rows)/2:], f)
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", s.Field(i).Name, err)
		}
		columns[i] = array.MakeFromData(data)
		data.Release()
	}
	rec := array.NewRecordBatch(s, columns, int64(len(rows)))
	defer rec.Release()
	return f(rec)
}

// part joins a part of either side, and gives what comes out: splits it once more where it is too large for that.
func (g *partedJoin) part(ctx context.Context, build, probe *spill, depth int) (outs []*spill, err error) {
	defer build.close()
	defer probe.close()
	if probe.rows == 0 && !g.How.keepsBuild() || build.rows == 0 && (g.How == Inner || g.How == Semi) {
		return nil, nil
	}
	b, err := build.reader()
	if err != nil {
		return nil, err
	}
	defer b.Release()
	p, err := probe.reader()
	if err != nil {
		return nil, err
	}
	defer p.Release()
	if build.size > 2*g.most && build.rows > mostParts && depth < deepestPart && !build.lone {
		n := int(min(mostParts, build.size/g.most+1))
		left, err := g.split(ctx, b, g.build, true, n, depth)
		if err != nil {
			return nil, err
		}
		right, err := g.split(ctx, p, g.probe, false, n, depth)
		if err != nil {
			return nil, err
		}
		for i := range left {
			left[i].lone = left[i].rows == build.rows
			some, err := g.part(ctx, left[i], right[i], depth+1)
			if err != nil {
				return nil, err
			}
			outs = append(outs, some...)
		}
		return outs, nil
	}
	o, t := g.Options, g.tuning
	o.Progress, o.Select, t.batch = nil, nil, g.rows
	j := newJoiner(g.devices, o, t)
	if g.missing != nil { // the cores do a part, too
		j.missing = g.missing
		j.use(true)
	}
	j.out = &output{schema: g.out, columns: slices.Clone(g.plan.columns)}
	j.out.columns = append(j.out.columns, source{false, g.probe.NumFields() - 1})
	if g.How.keepsBuild() {
		j.out.columns = append(j.out.columns, source{true, g.build.NumFields() - 1})
	}
	if !g.Count {
		out, err := spillTo(g.outs, g.out)
		if err != nil {
			return nil, err
		}
		outs = append(outs, out)
		j.sink = out.write
	}
	err = j.run(ctx, b, p)
	g.sum.Table, g.sum.Near = j.sum.Table, j.sum.Near
	g.sum.Filtered += j.sum.Filtered
	g.sum.Building += j.sum.Building
	g.sum.Probing += j.sum.Probing
	if g.Count {
		g.sum.OutRows += j.sum.OutRows
	}
	for _, s := range outs {
		if err == nil {
			err = s.end()
		}
	}
	return slices.DeleteFunc(outs, func(s *spill) bool { return s.rows == 0 }), err
}

// spill is rows on disk, in a file without a name.
type spill struct {
	f      *os.File
	buf    *bufio.Writer
	w      *ipc.Writer
	schema *arrow.Schema
	rows   int64
	from   int64 // where it begins in the file
	size   int64 // bytes
	lone   bool  // all rows of what was split went here
}

func (g *partedJoin) spill(s *arrow.Schema) (*spill, error) {
	f, err := nameless()
	if err != nil {
		return nil, err
	}
	p, err := spillTo(f, s)
	g.files = append(g.files, p)
	return p, err
}

// nameless opens a temporary file.
func nameless() (*os.File, error) {
	f, err := files.Temporary("")
	return f, spilling(err)
}

// spillTo spills to a file from where it is.
func spillTo(f *os.File, s *arrow.Schema) (p *spill, err error) {
	p = &spill{f: f, buf: bufio.NewWriterSize(f, 1<<14), schema: s}
	p.w = ipc.NewWriter(p.buf, ipc.WithSchema(s))
	p.from, err = f.Seek(0, io.SeekCurrent)
	return p, err
}

func (s *spill) write(rec arrow.RecordBatch) error {
	s.rows += rec.NumRows()
	return spilling(s.w.Write(rec))
}

// spilling says where a file could not be written.
func spilling(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("a build side larger than memory goes to temporary files in %s (TMPDIR names another folder): %w",
		os.TempDir(), files.Cause(err))
}

// end is for a spill that is whole.
func (s *spill) end() error {
	if err := s.w.Close(); err != nil {
		return spilling(err)
	}
	if err := s.buf.Flush(); err != nil {
		return spilling(err)
	}
	at, err := s.f.Seek(0, io.SeekCurrent)
	s.size, s.w, s.buf = at-s.from, nil, nil
	return err
}

func (s *spill) reader() (*ipc.Reader, error) {
	whole := io.NewSectionReader(s.f, s.from, s.size)
	return ipc.NewReader(bufio.NewReaderSize(whole, 1<<15), ipc.WithMetadataSizeLimit(0), ipc.WithBodySizeLimit(0))
}

func (s *spill) close() {
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
}

// stream is a part's output while it is merged.
type stream struct {
	r       *ipc.Reader
	rec     arrow.RecordBatch
	numbers []int64
	at      int // the next row
	chunk   int // where the batch stands among the merged ones
}

// streams is a heap by the next row's number.
type streams []*stream

func (s streams) Len() int           { return len(s) }
func (s streams) Less(i, j int) bool { return s[i].numbers[s[i].at] < s[j].numbers[s[j].at] }
func (s streams) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *streams) Push(x any)        { *s = append(*s, x.(*stream)) }
func (s *streams) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// next reads a stream's next batch; false at the end.
func (g *partedJoin) next(s *stream) (bool, error) {
	for s.r.Next() {
		rec := s.r.RecordBatch()
		if rec.NumRows() == 0 {
			continue
		}
		rec.Retain()
		s.rec, s.at = rec, 0
		probe := rec.Column(g.plan.schema.NumFields()).(*array.Int64)
		s.numbers = probe.Int64Values()
		if g.How.keepsBuild() {
			build := rec.Column(g.plan.schema.NumFields() + 1).(*array.Int64)
			s.numbers = slices.Clone(s.numbers)
			for i := range s.numbers {
				if probe.IsNull(i) { // a build row without a match comes behind all others
					s.numbers[i] = g.sum.ProbeRows + build.Value(i)
				}
			}
		}
		return true, nil
	}
	return false, s.r.Err()
}

// merge writes the parts' outputs in the order of their row numbers.
func (g *partedJoin) merge(ctx context.Context, outs []*spill, to *Writer) error {
	var all streams
	var recs []arrow.RecordBatch
	defer func() {
		for _, r := range recs {
			r.Release()
		}
		for _, s := range all {
			s.r.Release()
		}
	}()
	for _, o := range outs {
		r, err := o.reader()
		if err != nil {
			return err
		}
		s := &stream{r: r, chunk: len(recs)}
		more, err := g.next(s)
		if err != nil || !more {
			r.Release()
			if err != nil {
				return err
			}
			continue
		}
		all, recs = append(all, s), append(recs, s.rec)
	}
	heap.Init(&all)
	var rows []loc
	flush := func() error {
		takers, err := takersOf(g.plan.schema, recs, g.atOnce())
		if err != nil {
			return err
		}
		defer func(start time.Time) { g.sum.Writing += time.Since(start).Seconds() }(time.Now())
		err = takeRows(g.plan.schema, takers, rows, to.Write)
		// Batches that are at their end go.
		g.sum.OutRows += int64(len(rows))
		rows = rows[:0]
		live := map[arrow.RecordBatch]bool{}
		for _, s := range all {
			live[s.rec] = true
		}
		for _, r := range recs {
			if !live[r] {
				r.Release()
			}
		}
		recs = recs[:0]
		for _, s := range all {
			s.chunk = len(recs)
			recs = append(recs, s.rec)
		}
		return err
	}
	for len(all) > 0 {
		s := all[0]
		if g.Limit > 0 && g.sum.OutRows+int64(len(rows)) == g.Limit {
			break
		}
		rows = append(rows, loc{s.chunk, s.at})
		if s.at++; s.at < len(s.numbers) {
			heap.Fix(&all, 0)
		} else if more, err := g.next(s); err != nil {
			return err
		} else if more {
			s.chunk = len(recs)
			recs = append(recs, s.rec)
			heap.Fix(&all, 0)
		} else {
			s.r.Release()
			heap.Pop(&all)
		}
		if len(rows) == g.batch || len(recs) > 2*len(all)+8 {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
