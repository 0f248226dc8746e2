package join

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	pqmeta "github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"golang.org/x/sync/semaphore"

	"github.com/warpmap/warpmap/internal/crash"
)

// groupRows is how many rows a row group has at most, and groupBytes about how many bytes.
const (
	groupRows  = 1 << 20
	groupBytes = 256 << 20
	leastGroup = 1 << 20 // bytes of one where memory is short
)

// aheadColumns is how many encoded columns may wait for others of their groups, for each thread, about.
const aheadColumns = 6

var compressions = []string{"snappy", "zstd", "lz4", "gzip", "none"}

// Compressions lists how Parquet files can be compressed.
func Compressions() []string { return slices.Clone(compressions) }

// codecs are the compressions in the order of their names.
var codecs = []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Zstd, compress.Codecs.Lz4Raw,
	compress.Codecs.Gzip, compress.Codecs.Uncompressed}

func parseCompression(name string) (compress.Compression, error) {
	if name == "" {
		return compress.Codecs.Snappy, nil
	}
	if i := slices.Index(compressions, name); i >= 0 {
		return codecs[i], nil
	}
	return 0, fmt.Errorf("a compression %q: want one of %s", name, strings.Join(compressions, ", "))
}

// parquetOptions say how a Parquet file is written.
type parquetOptions struct {
	compression compress.Compression
	chosen      bool // and copied columns must have it too
	null        bool // nothing is written
	threads     int
	memory      int64 // of the columns that are encoded at a time, about; 0 for no bound
	// where set: the fields that are written as their files have them; nil ones go by their Arrow types
	columns []*parquetNode
}

// parquetNode is a flat column of another file, under whose type it is written again.
type parquetNode struct {
	column   *schema.Column
	nullable bool
}

// parquetEncoder writes row groups in parallel: each column of each group is a task of its own, and the groups go to
// the file in their order.
type parquetEncoder struct {
	w *bufio.Writer
	// what w writes to, if it is one: then groups are written at their places, and w has what is before and behind them
	file   *os.File
	at     int64
	arrow  *arrow.Schema
	pq     *schema.Schema
	leaves [][]int // of each field
	codec  codec
	chosen bool
	null   bool // columns are read and taken, and not encoded
	meta   *pqmeta.FileMetaDataBuilder
	starts []int64 // of the row groups

	slots  chan struct{}       // as many as columns are encoded at a time
	room   *semaphore.Weighted // bytes; nil for no bound
	memory int64
	ahead  chan struct{} // as many as groups are under way
	last   chan struct{} // closed when the group before is in the file
	under  crash.WaitGroup
	busy   atomic.Int64 // nanoseconds of encoding and writing
	whole  atomic.Int64 // rows of the row groups that are in the file
	mu     sync.Mutex
	err    error

	recs   []arrow.RecordBatch // of the next group
	rows   int64
	size   int64
	enough int64 // size of a group that needs no more rows
}

func newParquetEncoder(w *bufio.Writer, s *arrow.Schema, o parquetOptions) (*parquetEncoder, error) {
	e := &parquetEncoder{w: w, arrow: s, last: make(chan struct{}), chosen: o.chosen, null: o.null,
		enough: groupBytes}
	close(e.last)
	if o.threads == 0 {
		o.threads = runtime.GOMAXPROCS(0)
	}
	e.codec = codec{o.compression, writerProperties(o.compression), writerProperties(compress.Codecs.Uncompressed)}
	e.slots = make(chan struct{}, o.threads)
	// So many that all threads have a column while one that takes long is waited for.
	e.ahead = make(chan struct{}, 1+max(1, (aheadColumns*o.threads+s.NumFields()-1)/max(1, s.NumFields())))
	if o.memory > 0 {
		e.room, e.memory = semaphore.NewWeighted(o.memory), o.memory
		// One is collected while others are encoded, and what is encoded of one takes about as much as it does.
		e.enough = min(groupBytes, max(leastGroup, o.memory/int64(2*cap(e.ahead)+1)))
	}
	if e.null {
		e.leaves = make([][]int, s.NumFields())
		return e, nil
	}
	kv, err := pqmeta.KeyValueMetadata(nil), decimals(s.Fields())
	if err == nil {
		kv, err = e.plan(o.columns)
	}
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w (an .arrow file holds every type)", err)
	}
	e.meta = pqmeta.NewFileMetadataBuilder(e.pq, e.codec.props, kv)
	n, err := w.WriteString(parquetMagic)
	e.at = int64(n)
	return e, err
}

// decimals tells which of the fields, or of those within them, is a decimal that Parquet does not have, and of which
// the library makes a panic.
func decimals(fields []arrow.Field) error {
	for _, f := range fields {
		var err error
		switch t := storage(f.Type).(type) {
		case arrow.DecimalType:
			if digits, scale := t.GetPrecision(), t.GetScale(); digits < 1 || scale < 0 || scale > digits {
				err = fmt.Errorf("%s: Parquet has decimals of one digit or more, and of a scale from 0 to their "+
					"digits: cast it to one of these first", f.Type)
			}
		case *arrow.DictionaryType:
			err = decimals([]arrow.Field{{Name: f.Name, Type: t.ValueType}})
			if err != nil {
				return err
			}
		case arrow.NestedType:
			err = decimals(t.Fields())
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	return nil
}

// storage is the type that an extension's values have.
func storage(t arrow.DataType) arrow.DataType {
	for {
		e, is := t.(arrow.ExtensionType)
		if !is {
			return t
		}
		t = e.StorageType()
	}
}

const parquetMagic = "PAR1"

func writerProperties(c compress.Compression) *parquet.WriterProperties {
	return parquet.NewWriterProperties(parquet.WithCompression(c), parquet.WithMaxRowGroupLength(1<<40),
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithStoreDecimalAsInteger(true))
}

// plan finds the file's schema: the library's for Arrow's, with the given columns in their places.
func (e *parquetEncoder) plan(columns []*parquetNode) (pqmeta.KeyValueMetadata, error) {
	var empty bytes.Buffer
	w, err := pqarrow.NewFileWriter(e.arrow, &empty, e.codec.props,
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	r, err := file.NewParquetReader(bytes.NewReader(empty.Bytes()))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	root := r.MetaData().Schema.Root()
	nodes := make(schema.FieldList, root.NumFields())
	for i := range nodes {
		nodes[i] = root.Field(i)
		if i < len(columns) && columns[i] != nil {
			if nodes[i], err = columns[i].named(e.arrow.Field(i).Name); err != nil {
				return nil, err
			}
		}
	}
	if root, err = schema.NewGroupNode(root.Name(), root.RepetitionType(), nodes, -1); err != nil {
		return nil, err
	}
	e.pq = schema.NewSchema(root)
	e.leaves = make([][]int, root.NumFields())
	for i := range e.pq.NumColumns() {
		f := slices.IndexFunc(nodes, func(n schema.Node) bool { return n == e.pq.ColumnRoot(i) })
		e.leaves[f] = append(e.leaves[f], i)
	}
	return r.MetaData().KeyValueMetadata(), nil
}

// nameless tells that Arrow has but the bytes of its values, and no type for what they are: of Parquet's intervals.
func (p *parquetNode) nameless() bool {
	return p.column.ConvertedType() == schema.ConvertedTypes.Interval
}

// named is the column's node under another name.
func (p *parquetNode) named(name string) (schema.Node, error) {
	n := p.column.SchemaNode().(*schema.PrimitiveNode)
	rep := parquet.Repetitions.Required
	if p.nullable {
		rep = parquet.Repetitions.Optional
	}
	if l := n.LogicalType(); l != nil && !l.IsNone() && l.IsValid() {
		return schema.NewPrimitiveNodeLogical(name, rep, l, n.PhysicalType(), n.TypeLength(), -1)
	}
	d := n.DecimalMetadata()
	return schema.NewPrimitiveNodeConverted(name, rep, n.PhysicalType(), n.ConvertedType(), n.TypeLength(),
		int(d.Precision), int(d.Scale), -1)
}

// columnData is one column of a row group, in one of three forms.
type columnData struct {
	v      *vec          // a flat column's values
	own    bool          // and nobody else has its memory
	arrays []arrow.Array // Arrow's, which the encoder releases
	copied *copied       // chunks of a file, as they stand
}

// copied are a field's chunks in another file.
type copied struct {
	from io.ReaderAt
	meta []*pqmeta.ColumnChunkMetaDataBuilder
	at   []int64 // where each begins
	size []int64
}

// group is a row group on its way to the file.
type outGroup struct {
	rows   int
	at     int64 // where it begins in the file
	end    int64
	fields []columnData // the copied ones
	chunks [][]*chunk   // of the others
}

// submit begins to encode a row group. load gives the columns, each from a goroutine of its own, and cost says about
// how many bytes one takes while it is encoded; done is called when no column will be asked for any more. It waits
// while enough groups are under way.
func (e *parquetEncoder) submit(rows int, load func(field int) (columnData, error), cost func(field int) int64,
	done func()) error {
	e.ahead <- struct{}{}
	if err := e.failed(); err != nil {
		<-e.ahead
		done()
		return err
	}
	g := &outGroup{rows: rows, fields: make([]columnData, len(e.leaves)), chunks: make([][]*chunk, len(e.leaves))}
	var fields sync.WaitGroup
	for f := range e.leaves {
		n := e.take(cost(f))
		e.slots <- struct{}{}
		fields.Add(1)
		e.under.Go(func() {
			defer fields.Done()
			defer func() {
				<-e.slots
				e.give(n)
			}()
			if e.failed() == nil {
				e.fail(catch("cannot be written", func() error { return e.field(g, f, load) }))
			}
		})
	}
	before, last := e.last, make(chan struct{})
	e.last = last
	e.under.Go(func() {
		defer func() { <-e.ahead }()
		fields.Wait()
		e.fail(catch("cannot be written", func() error { done(); return nil }))
		<-before
		next := sync.OnceFunc(func() { close(last) })
		defer next()
		if e.failed() != nil {
			return
		}
		defer since(&e.busy, time.Now())
		e.fail(catch("cannot be written", func() error {
			if err := e.place(g); err != nil {
				return err
			}
			if e.file != nil {
				next() // its place is known: groups are written beside one another
			}
			return e.append(g)
		}))
	})
	return nil
}

// take waits for room for so many bytes, or for all where that is less.
func (e *parquetEncoder) take(n int64) int64 {
	if e.room == nil {
		return 0
	}
	n = min(n, e.memory)
	e.room.Acquire(context.Background(), n) // what is held is given back whatever happens
	return n
}

func (e *parquetEncoder) give(n int64) {
	if e.room != nil {
		e.room.Release(n)
	}
}

func (e *parquetEncoder) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *parquetEncoder) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil && err != nil {
		e.err = err
	}
}

// field encodes one column of a group.
func (e *parquetEncoder) field(g *outGroup, f int, load func(field int) (columnData, error)) error {
	data, err := load(f)
	if err != nil {
		return err
	}
	defer func() {
		for _, a := range data.arrays {
			a.Release()
		}
	}()
	if data.copied != nil || e.null {
		g.fields[f] = columnData{copied: data.copied}
		return nil
	}
	defer since(&e.busy, time.Now())
	col := e.pq.Column(e.leaves[f][0])
	if data.v == nil && len(e.leaves[f]) == 1 && flat(col) {
		if data.v = vecOf(data.arrays, col); data.v != nil {
			data.v = data.v.coded()
		}
	}
	if data.v == nil {
		g.chunks[f], err = e.byLibrary(f, data.arrays)
	} else {
		var c *chunk
		c, err = encodeChunk(data.v, col, e.codec)
		g.chunks[f] = []*chunk{c}
	}
	if err != nil {
		return fmt.Errorf("as Parquet: column %q: %w (an .arrow file holds every type)", e.arrow.Field(f).Name, err)
	}
	if data.own {
		data.v.spare()
	}
	return nil
}

// byLibrary encodes columns of other types: as a file of one column, whose chunks are taken.
func (e *parquetEncoder) byLibrary(f int, arrays []arrow.Array) ([]*chunk, error) {
	s := arrow.NewSchema([]arrow.Field{e.arrow.Field(f)}, nil)
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(s, &out, e.codec.props, pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	for _, a := range arrays {
		rec := array.NewRecordBatch(s, []arrow.Array{a}, int64(a.Len()))
		err := w.WriteBuffered(rec)
		rec.Release()
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	r, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var chunks []*chunk
	for i, leaf := range e.leaves[f] {
		meta, at, size, err := e.adopt(r.MetaData(), 0, i, leaf)
		if err != nil {
			return nil, err
		}
		e.shift(meta, chunkBase-at)
		chunks = append(chunks, &chunk{data: out.Bytes()[at : at+size], meta: meta})
	}
	return chunks, nil
}

// adopt makes a chunk of another file one of this file's leaf. It tells where its bytes are there.
func (e *parquetEncoder) adopt(m *pqmeta.FileMetaData, group, column, leaf int) (b *pqmeta.ColumnChunkMetaDataBuilder,
	at, size int64, err error) {
	c := *m.RowGroups[group].Columns[column]
	if c.MetaData == nil || c.CryptoMetadata != nil {
		return nil, 0, 0, errors.New("its column is encrypted")
	}
	inner := *c.MetaData
	c.MetaData = &inner
	kind := inner.Codec
	b = pqmeta.NewColumnChunkMetaDataBuilderWithContents(e.codec.props, e.pq.Column(leaf), &c)
	inner.Codec = kind // which making the builder has changed
	at = inner.DataPageOffset
	if d := inner.DictionaryPageOffset; d != nil && *d > 0 {
		at = min(at, *d)
	}
	return b, at, inner.TotalCompressedSize, nil
}

// shift moves a chunk's offsets, and drops those of what stands elsewhere in its file.
func (e *parquetEncoder) shift(b *pqmeta.ColumnChunkMetaDataBuilder, by int64) {
	c := b.Contents()
	moved := func(p *int64) *int64 {
		if p == nil {
			return nil
		}
		to := *p + by
		return &to
	}
	m := c.MetaData
	m.DataPageOffset += by
	m.DictionaryPageOffset, m.IndexPageOffset = moved(m.DictionaryPageOffset), moved(m.IndexPageOffset)
	m.BloomFilterOffset, m.BloomFilterLength = nil, nil
	c.FileOffset = m.DataPageOffset
	if m.DictionaryPageOffset != nil {
		c.FileOffset = *m.DictionaryPageOffset
	}
	c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength, c.FilePath = nil, nil, nil, nil,
		nil
}

// place gives a group's chunks their places, behind those of the groups before it.
func (e *parquetEncoder) place(g *outGroup) error {
	if e.null {
		return nil
	}
	g.at = e.at
	e.starts = append(e.starts, e.at)
	rows := e.meta.AppendRowGroup()
	rows.SetNumRows(g.rows)
	add := func(b *pqmeta.ColumnChunkMetaDataBuilder, base, size int64) {
		e.shift(b, e.at-base)
		*rows.NextColumnChunk().Contents() = *b.Contents()
		e.at += size
	}
	for f := range e.leaves {
		if c := g.fields[f].copied; c != nil {
			for i, b := range c.meta {
				add(b, c.at[i], c.size[i])
			}
		}
		for _, c := range g.chunks[f] {
			add(c.meta, chunkBase, int64(len(c.data)))
		}
	}
	g.end = e.at
	return rows.Finish(0, int16(len(e.starts)-1))
}

// append writes a group's chunks one behind the other: in a file at their place, else behind what was written before.
func (e *parquetEncoder) append(g *outGroup) error {
	e.whole.Add(int64(g.rows)) // counts only if no error follows
	if e.null {
		return nil
	}
	to := io.Writer(e.w)
	if e.file != nil {
		to = io.NewOffsetWriter(e.file, g.at)
	}
	for f := range e.leaves {
		if c := g.fields[f].copied; c != nil {
			if err := c.write(to); err != nil {
				return err
			}
		}
		for _, c := range g.chunks[f] {
			if _, err := to.Write(c.data); err != nil {
				return err
			}
			if c.own {
				spare(c.data)
			}
		}
		g.chunks[f] = nil
	}
	if e.file == nil {
		return e.w.Flush()
	}
	return nil
}

// write copies the chunks.
func (c *copied) write(to io.Writer) error {
	room := grab[byte](1 << 20)
	defer spare(room)
	for i, size := range c.size {
		n, err := io.CopyBuffer(to, io.NewSectionReader(c.from, c.at[i], size), room)
		if err != nil {
			return err
		}
		if n != size {
			return fmt.Errorf("the file changed while it was read: %w", io.ErrUnexpectedEOF)
		}
	}
	return nil
}

func (e *parquetEncoder) written() int64 { return e.whole.Load() }

// write adds a batch to the next row group.
func (e *parquetEncoder) write(rec arrow.RecordBatch) error {
	if e.null {
		e.whole.Add(rec.NumRows())
		return nil
	}
	for from := int64(0); from < rec.NumRows(); {
		to := min(rec.NumRows(), from+groupRows-e.rows)
		part := rec.NewSlice(from, to)
		e.recs = append(e.recs, part)
		e.rows += to - from
		e.size += sizeOf(rec) * (to - from) / rec.NumRows()
		from = to
		if e.rows == groupRows || e.size >= e.enough {
			if err := e.group(); err != nil {
				return err
			}
		}
	}
	return e.failed()
}

// group submits the batches that were written.
func (e *parquetEncoder) group() error {
	recs, rows := e.recs, e.rows
	e.recs, e.rows, e.size = nil, 0, 0
	load := func(field int) (columnData, error) {
		var d columnData
		for _, r := range recs {
			a := r.Column(field)
			a.Retain()
			d.arrays = append(d.arrays, a)
		}
		return d, nil
	}
	return e.submit(int(rows), load, func(int) int64 { return 0 }, func() {
		for _, r := range recs {
			r.Release()
		}
	})
}

func (e *parquetEncoder) finish() error {
	if e.rows > 0 {
		if err := e.group(); err != nil {
			return err
		}
	}
	if err := e.wait(); err != nil || e.null {
		return err
	}
	if e.file != nil {
		if err := e.w.Flush(); err != nil {
			return err
		}
		if _, err := e.file.Seek(e.at, io.SeekStart); err != nil {
			return err
		}
	}
	m, err := e.meta.Finish()
	if err != nil {
		return err
	}
	for i, g := range m.RowGroups {
		g.FileOffset = &e.starts[i]
	}
	var footer bytes.Buffer
	if _, err := m.WriteTo(&footer, nil); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(footer.Bytes(), uint32(footer.Len()))
	_, err = e.w.Write(append(b, parquetMagic...))
	return err
}

// wait waits for the groups that are under way.
func (e *parquetEncoder) wait() error {
	e.under.Wait()
	return e.failed()
}

// stop ends what is under way.
func (e *parquetEncoder) stop() {
	e.fail(errors.New("given up"))
	e.under.Wait()
	for _, r := range e.recs {
		r.Release()
	}
	e.recs = nil
}

// copy gives a field of another file's row group as it stands there, if it has the type and the compression that this
// file has. The caller sees to it that the field can be read.
func (e *parquetEncoder) copy(p *parquetFile, group, from, field int) (columnData, bool) {
	if e.null {
		return columnData{}, true
	}
	p, group = p.in(group)
	leaves := p.leaves[from]
	if len(leaves) != len(e.leaves[field]) {
		return columnData{}, false
	}
	c := &copied{from: p.f}
	for i, leaf := range leaves {
		have, want := p.pf.MetaData().Schema.Column(leaf), e.pq.Column(e.leaves[field][i])
		if !sameColumn(have, want) {
			return columnData{}, false
		}
		meta, at, size, err := e.adopt(p.pf.MetaData(), group, leaf, e.leaves[field][i])
		if err != nil || e.chosen && meta.Contents().MetaData.Codec.String() != e.codec.kind.String() {
			return columnData{}, false
		}
		c.meta, c.at, c.size = append(c.meta, meta), append(c.at, at), append(c.size, size)
	}
	return columnData{copied: c}, true
}
