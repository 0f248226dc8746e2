package join

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	pqmeta "github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// parquetFile is a Parquet file that is open, or several of the same columns, whose row groups follow one another: row
// groups' columns can be read in any order, by several goroutines.
type parquetFile struct {
	parts  []*parquetFile // of several; what follows but for schema and rows is the first's
	path   string
	f      *os.File
	pf     *file.Reader
	raw    *file.Reader // the same, for pages
	pr     *pqarrow.FileReader
	schema *arrow.Schema
	leaves [][]int // of each field
	rows   int64

	folders []*folderColumn // where set: the fields that folders' names tell; nil ones stand in the file
}

func openParquet(f *os.File, path string) (*parquetFile, error) {
	props := parquet.NewReaderProperties(allocator)
	// what the format can say
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = math.MaxInt32, math.MaxInt32
	props.BufferedStreamEnabled = true // or each chunk is read whole first
	pf, err := file.NewParquetReader(f, file.WithReadProps(props))
	if err != nil {
		return nil, notParquet(f, err)
	}
	if err := checkChunks(pf, f); err != nil {
		return nil, err
	}
	if v := pf.MetaData().KeyValueMetadata().FindValue("ARROW:schema"); v != nil {
		if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(*v, "=")); err == nil {
			if _, err := checkArrowStream(bytes.NewReader(b), int64(len(b))); err != nil {
				return nil, fmt.Errorf("%s: its Arrow schema: %w", broken, err)
			}
		}
	}
	pr, err := arrowReader(pf, batchRows)
	if err != nil {
		return nil, err
	}
	var fields []arrow.Field
	for _, f := range pr.Manifest.Fields {
		fields = append(fields, *f.Field)
	}
	s := arrow.NewSchema(fields, nil)
	if s.NumFields() == 0 {
		return nil, errors.New("a Parquet file without columns")
	}
	props = parquet.NewReaderProperties(pageAllocator)
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = math.MaxInt32, math.MaxInt32
	props.BufferedStreamEnabled = true
	raw, err := file.NewParquetReader(f, file.WithReadProps(props), file.WithMetadata(pf.MetaData()))
	if err != nil {
		return nil, err
	}
	p := &parquetFile{path: path, f: f, pf: pf, raw: raw, pr: pr, schema: s, rows: pf.NumRows()}
	if p.rows < 0 {
		return nil, fmt.Errorf("the file is broken: %d rows", p.rows)
	}
	p.leaves = make([][]int, s.NumFields())
	for i := range pf.MetaData().Schema.NumColumns() {
		at, err := pr.Manifest.GetFieldIndices([]int{i})
		if err != nil {
			return nil, err
		}
		p.leaves[at[0]] = append(p.leaves[at[0]], i)
	}
	if c := slices.IndexFunc(p.leaves, func(l []int) bool { return len(l) == 0 }); c >= 0 {
		return nil, fmt.Errorf("column %q is a group without columns", s.Field(c).Name)
	}
	return p, nil
}

// arrowReader makes a reader of Arrow batches. The library takes JSON and ENUM for binary values: here they are text.
func arrowReader(pf *file.Reader, rows int64) (*pqarrow.FileReader, error) {
	r, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: rows}, allocator)
	if err == nil {
		for _, f := range r.Manifest.Fields {
			textual(&f, pf.MetaData().Schema)
		}
	}
	return r, err
}

// textual changes the type of a field, and of the fields within it, to text where Parquet says that the values are
// text. It reports whether it did.
func textual(f *pqarrow.SchemaField, s *schema.Schema) (changed bool) {
	if f.IsLeaf() {
		switch s.Column(f.ColIndex).LogicalType().(type) {
		case schema.JSONLogicalType, schema.EnumLogicalType:
			f.Field.Type = asText(f.Field.Type)
			return true
		}
		return false
	}
	var within []arrow.Field
	for _, c := range f.Children {
		changed = textual(&c, s) || changed
		within = append(within, *c.Field)
	}
	if !changed {
		return false
	}
	switch t := f.Field.Type.(type) {
	case *arrow.StructType:
		f.Field.Type = arrow.StructOf(within...)
	case *arrow.MapType:
		pair := within[0].Type.(*arrow.StructType)
		key := pair.Field(0)
		key.Nullable = false
		of := arrow.MapOfFields(key, pair.Field(1))
		of.KeysSorted = t.KeysSorted
		f.Field.Type = of
	case *arrow.ListType:
		f.Field.Type = arrow.ListOfField(within[0])
	case *arrow.LargeListType:
		f.Field.Type = arrow.LargeListOfField(within[0])
	case *arrow.FixedSizeListType:
		f.Field.Type = arrow.FixedSizeListOfField(t.Len(), within[0])
	}
	return true
}

// asText returns a type of binary values as the type of texts that Parquet's reader can make instead.
func asText(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.BinaryType:
		return arrow.BinaryTypes.String
	case *arrow.LargeBinaryType:
		return arrow.BinaryTypes.LargeString
	case *arrow.DictionaryType:
		return &arrow.DictionaryType{IndexType: t.IndexType, ValueType: asText(t.ValueType), Ordered: t.Ordered}
	}
	return t
}

// notParquet says of a file that the library does not open what it is instead, where its first and last bytes tell.
func notParquet(f *os.File, err error) error {
	const mark = "PAR1"
	about, e := f.Stat()
	first, last := make([]byte, len(mark)), make([]byte, len(mark))
	if e == nil {
		_, e = f.ReadAt(first, 0)
	}
	switch {
	case about != nil && about.Size() == 0:
		return errors.New("not a Parquet file: it is empty")
	case e != nil || string(first) != mark && string(first) != "PARE": // encrypted
		return errors.New("not a Parquet file: it does not begin with " + mark)
	}
	if _, e := f.ReadAt(last, about.Size()-int64(len(mark))); e == nil && string(last) != string(first) {
		return errors.New("not a whole Parquet file: its end, where the columns are listed, is missing")
	}
	return fmt.Errorf("not a readable Parquet file: %w", err)
}

func (r *Reader) parquet(f *os.File) error {
	p, err := openParquet(f, r.path)
	if err != nil {
		return err
	}
	pf, leaves := p.pf, p.leaves
	r.pq, r.schema, r.rows = p, p.schema, p.rows
	r.pick = func(columns []int) {
		var some [][]int
		for _, c := range columns {
			some = append(some, leaves[c])
		}
		leaves = some
	}
	r.within = func(bytes int64) error { return p.batches(leaves, bytes) }
	// Each column has a reader of its own, so that it is decoded on a goroutine of ours: on one of the library's
	// nobody could catch a panic.
	var columns []batchReader
	read := int64(0)
	r.next = func() (arrow.RecordBatch, error) {
		for i := len(columns); i < len(leaves); i++ {
			c, err := p.batchReader(leaves[i])
			if err != nil {
				return nil, err
			}
			columns = append(columns, c)
		}
		arrays := make([]arrow.Array, len(columns))
		rows := int64(0)
		errs := each(len(columns), func(i int) error {
			return catch(broken, func() error {
				if columns[i].Next() {
					arrays[i] = columns[i].RecordBatch().Column(0)
					arrays[i].Retain()
				}
				return columns[i].Err()
			})
		})
		for i, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("column %q: %w", r.schema.Field(i).Name, err)
			}
			if n := length(arrays[i]); i == 0 {
				rows = n
			} else if n != rows {
				return nil, fmt.Errorf("the file is broken: columns %q and %q have different numbers of rows",
					r.schema.Field(0).Name, r.schema.Field(i).Name)
			}
		}
		if read += rows; rows == 0 && read != r.rows || read > r.rows {
			return nil, fmt.Errorf("the file is broken: it says that it has %d rows, and has %d", r.rows, read)
		}
		if rows == 0 {
			return nil, io.EOF
		}
		return array.NewRecordBatch(r.schema, arrays, rows), nil
	}
	r.close = func() error {
		for _, c := range columns {
			c.Release()
		}
		return cmp.Or(pf.Close(), ignoreClosed(f.Close()))
	}
	return nil
}

// batchReader makes a reader of the field that has some leaves.
func (p *parquetFile) batchReader(leaves []int) (batchReader, error) {
	field := p.fieldOf(leaves[0])
	for g := range p.groups() {
		if p.deltas(g, field) {
			return &batches32{p: p, field: field, rows: int(p.pr.Props.BatchSize)}, nil
		}
	}
	return p.pr.GetRecordReader(context.Background(), leaves, nil)
}

// fieldOf returns the field that has a leaf.
func (p *parquetFile) fieldOf(leaf int) int {
	return slices.IndexFunc(p.leaves, func(l []int) bool { return slices.Contains(l, leaf) })
}

// checkChunks checks that all columns lie in the file. The library opens those of a struct on goroutines of its own,
// with buffers as long as their chunks are said to be.
func checkChunks(pf *file.Reader, f *os.File) error {
	s, err := f.Stat()
	if err != nil {
		return err
	}
	for g := range pf.NumRowGroups() {
		rows := pf.MetaData().RowGroup(g)
		for i := range pf.MetaData().Schema.NumColumns() {
			c, err := rows.ColumnChunk(i)
			if err != nil {
				return fmt.Errorf("%s: row group %d: %w", broken, g, err)
			}
			from, n := c.DataPageOffset(), c.TotalCompressedSize()
			if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 {
				from = min(from, c.DictionaryPageOffset())
			}
			if from < 0 || n < 0 || n > s.Size() || from > s.Size()-n {
				return fmt.Errorf("%s: row group %d: a column of %d bytes at %d, in a file of %d", broken, g, n, from,
					s.Size())
			}
		}
	}
	return nil
}

func length(a arrow.Array) int64 {
	if a == nil {
		return 0
	}
	return int64(a.Len())
}

// flat gives the column of a field that is one, and can be read into a vec; else nil.
func (p *parquetFile) flat(field int) *schema.Column {
	if k := p.folder(field); k != nil {
		return k.col
	}
	if len(p.leaves[field]) != 1 {
		return nil
	}
	if c := p.pf.MetaData().Schema.Column(p.leaves[field][0]); flat(c) {
		return c
	}
	return nil
}

// severalParquet makes one of files, or nil where their columns differ in more than their values.
func severalParquet(files []*parquetFile) *parquetFile {
	all := *files[0]
	all.parts, all.rows = files, 0
	if len(files) > 1 {
		all.path = fmt.Sprintf("%s and %d more", files[0].path, len(files)-1)
	}
	for _, p := range files {
		all.rows += p.rows
		if len(p.leaves) != len(all.leaves) {
			return nil
		}
		for i := range p.leaves {
			if p.schema.Field(i).Name != all.schema.Field(i).Name || !slices.EqualFunc(p.leaves[i], all.leaves[i],
				func(a, b int) bool {
					return sameColumn(p.pf.MetaData().Schema.Column(a), all.pf.MetaData().Schema.Column(b))
				}) {
				return nil
			}
		}
	}
	return &all
}

// sameColumn tells whether two columns' chunks mean the same.
func sameColumn(a, b *schema.Column) bool {
	return a.PhysicalType() == b.PhysicalType() && a.TypeLength() == b.TypeLength() &&
		a.MaxDefinitionLevel() == b.MaxDefinitionLevel() &&
		a.MaxRepetitionLevel() == b.MaxRepetitionLevel() && a.LogicalType().Equals(b.LogicalType()) &&
		a.ConvertedType() == b.ConvertedType()
}

// in finds the file that has a row group, and which of its own it is.
func (p *parquetFile) in(group int) (*parquetFile, int) {
	for _, part := range p.parts {
		if n := part.groups(); group >= n {
			group -= n
			continue
		}
		return part, group
	}
	return p, group
}

// groups is the number of row groups.
func (p *parquetFile) groups() (n int) {
	if p.parts == nil {
		return p.pf.NumRowGroups()
	}
	for _, part := range p.parts {
		n += part.groups()
	}
	return n
}

// groupRows is how many rows a row group has, or says that it has.
func (p *parquetFile) groupRows(group int) int64 {
	p, group = p.in(group)
	return p.pf.MetaData().RowGroup(group).NumRows()
}

// batches makes batches as small as they must be to take about so many bytes when some fields, of these leaves, are
// decoded. A value of a dictionary counts as its longest, because each row may have it.
func (p *parquetFile) batches(fields [][]int, bytes int64) error {
	widest := int64(1) // row
	for g := range p.pf.NumRowGroups() {
		row, rows := int64(0), max(1, p.pf.MetaData().RowGroup(g).NumRows())
		for _, leaves := range fields {
			for _, leaf := range leaves {
				longest, err := p.longest(g, leaf)
				if err != nil {
					return p.wrong(p.fieldOf(leaf), err)
				}
				row += max(8, longest*p.valuesOf(g, leaf)/rows, p.bytesOf(g, leaf)/rows)
			}
		}
		widest = max(widest, row)
	}
	n := min(batchRows, max(1, bytes/widest))
	pr, err := arrowReader(p.pf, n)
	if err == nil {
		p.pr = pr
	}
	return err
}

// mostDecoded is how many bytes a field's values take in a row group at most, once each row has its own.
func (p *parquetFile) mostDecoded(group, field int) (n int64, err error) {
	if p.folder(field) != nil {
		return p.groupRows(group) * 8, nil
	}
	in, at := p.in(group)
	for _, leaf := range in.leaves[field] {
		longest, err := in.longest(at, leaf)
		if err != nil {
			return 0, in.wrong(field, err)
		}
		n += max(in.bytesOf(at, leaf), max(longest, int64(in.widthOf(field)))*in.valuesOf(at, leaf))
	}
	return n, nil
}

// widthOf is how many bytes a value of a field takes, where all take as many; 0 for others.
func (p *parquetFile) widthOf(field int) int {
	if t, is := p.schema.Field(field).Type.(arrow.FixedWidthDataType); is {
		return (t.BitWidth() + 7) / 8
	}
	return 0
}

// valuesOf is how many values a leaf has in a row group: in lists, of any row several.
func (p *parquetFile) valuesOf(group, leaf int) int64 {
	c, err := p.pf.MetaData().RowGroup(group).ColumnChunk(leaf)
	if err != nil {
		return 0
	}
	return min(max(0, c.NumValues()), math.MaxInt32) // a broken file may say anything
}

// decoded is how many they take. It reads the field.
func (p *parquetFile) decoded(group, field int) (n int64, err error) {
	n, err = p.mostDecoded(group, field)
	if col := p.flat(field); err != nil || col == nil || widthOf(col) > 0 || p.folder(field) != nil {
		return n, err
	}
	if n == p.bytes(group, field) { // there is no dictionary
		return n, nil
	}
	text := int64(0)
	err = p.pages(group, field, nil, func(v *vec, from int) error {
		if from == 0 {
			text = 0
		}
		if v.dict == nil {
			text += int64(len(v.text))
			return nil
		}
		for i, c := range v.codes {
			if v.valid == nil || v.valid[i] {
				text += int64(v.dict.ends[c+1] - v.dict.ends[c])
			}
		}
		return nil
	})
	return max(p.bytes(group, field), text), err
}

// longest is the length of the longest value of a chunk's dictionary; 0 where it has none of text.
func (p *parquetFile) longest(group, leaf int) (n int64, err error) {
	c, err := p.pf.MetaData().RowGroup(group).ColumnChunk(leaf)
	if err != nil || c.Type() != parquet.Types.ByteArray || !c.HasDictionaryPage() {
		return 0, err
	}
	err = catch(broken, func() error {
		pages, err := p.raw.RowGroup(group).GetColumnPageReader(leaf)
		if err != nil {
			return err
		}
		defer pages.Close()
		if !pages.Next() {
			return pages.Err()
		}
		if d, is := pages.Page().(*file.DictionaryPage); is {
			for b := d.Data(); len(b) >= 4; {
				size := int64(binary.LittleEndian.Uint32(b))
				n = max(n, size)
				b = b[min(int64(len(b)), 4+size):]
			}
		}
		return nil
	})
	return n, err
}

// bytes is how many bytes a field's values take in a row group before they are compressed.
func (p *parquetFile) bytes(group, field int) (n int64) {
	p, group = p.in(group)
	for _, leaf := range p.leaves[field] {
		n += p.bytesOf(group, leaf)
	}
	return n
}

func (p *parquetFile) bytesOf(group, leaf int) int64 {
	c, err := p.pf.MetaData().RowGroup(group).ColumnChunk(leaf)
	if err != nil {
		return 0
	}
	return c.TotalUncompressedSize()
}

// wrong returns an error of reading a field as one of the input, with the file and the field.
func (p *parquetFile) wrong(field int, err error) error {
	if err == nil {
		return nil
	}
	return &InputError{fmt.Errorf("%s: %w", p.path,
		oneLine(fmt.Errorf("column %q: %w", p.schema.Field(field).Name, err)))}
}

// vec reads a flat field of a row group, or those pages of it that are wanted; the rows of others are nulls then.
func (p *parquetFile) vec(group, field int, want *wanted) (*vec, error) {
	return p.decode(group, field, want, nil)
}

// pages reads a flat field of a row group by stretches, whose memory the next one has; from is the number of a
// stretch's first row. A chunk of a rare encoding, or with a wrong index, begins anew with row 0, when some of it has
// come.
func (p *parquetFile) pages(group, field int, want *wanted, each func(v *vec, from int) error) error {
	_, err := p.decode(group, field, want, each)
	return err
}

// sound reads a field of a row group for the sake of its errors.
func (p *parquetFile) sound(group, field int) error {
	if p.flat(field) != nil {
		return p.pages(group, field, nil, func(*vec, int) error { return nil })
	}
	arrays, err := p.arrays(group, field)
	release(arrays)
	return err
}

func (p *parquetFile) decode(group, field int, want *wanted, each func(v *vec, from int) error) (v *vec, err error) {
	p, group = p.in(group)
	err = catch(broken, func() error {
		col := p.flat(field)
		rg := p.pf.RowGroup(group)
		rows := rg.NumRows()
		if rows < 0 || rows > math.MaxInt32 {
			return fmt.Errorf("%s: a row group of %d rows", broken, rows)
		}
		if k := p.folder(field); k != nil {
			v, err = k.read(int(rows), each)
			return err
		}
		if v = p.some(group, field, want, each); v != nil {
			return nil
		}
		pages, err := p.raw.RowGroup(group).GetColumnPageReader(p.leaves[field][0])
		if err != nil {
			return err
		}
		defer pages.Close()
		if v, err = decodeChunk(pages, col, int(rows), each); !errors.Is(err, errRare) {
			return err
		}
		r, err := rg.Column(p.leaves[field][0])
		if err != nil {
			return err
		}
		if v, err = decodeByLibrary(r, col, int(rows)); err == nil && each != nil {
			err = each(v, 0)
		}
		return err
	})
	return v, p.wrong(field, err)
}

// arrays reads any field of a row group as Arrow arrays, which the caller releases.
func (p *parquetFile) arrays(group, field int) (arrays []arrow.Array, err error) {
	if p.deltas(group, field) {
		v, err := p.vec(group, field, nil)
		if err != nil {
			return nil, err
		}
		defer v.spare()
		return []arrow.Array{arrowOf(v, p.schema.Field(field).Type)}, nil
	}
	p, group = p.in(group)
	err = catch(broken, func() error {
		r, err := p.pr.GetRecordReader(context.Background(), p.leaves[field], []int{group})
		if err != nil {
			return err
		}
		defer r.Release()
		rows := int64(0)
		for r.Next() {
			a := r.RecordBatch().Column(0)
			a.Retain()
			arrays = append(arrays, a)
			rows += int64(a.Len())
		}
		if err := r.Err(); err != nil && err != io.EOF {
			return err
		}
		if want := p.groupRows(group); rows != want {
			return fmt.Errorf("%s: a row group of %d rows with a column of %d", broken, want, rows)
		}
		return nil
	})
	if err != nil {
		for _, a := range arrays {
			a.Release()
		}
		return nil, p.wrong(field, err)
	}
	return arrays, nil
}

// key reads a key column of a row group, or the pages of it that are wanted. Numbers are taken as they stand in the
// file where Arrow has them alike, and the text of wide keys.
func (p *parquetFile) key(group, field int, wide bool, want *wanted) (keyData, error) {
	col, t := p.flat(field), p.schema.Field(field).Type
	if d, ok := wideDomain(t); wide && ok && col != nil && (d.kind == "string" || d.kind == "binary") &&
		(col.PhysicalType() == parquet.Types.ByteArray || col.PhysicalType() == parquet.Types.FixedLenByteArray) {
		v, err := p.vec(group, field, nil)
		return keyData{v: v}, err
	}
	if col == nil || !sameBytes(col, t) {
		arrays, err := p.arrays(group, field)
		return keyData{arrays: arrays}, err
	}
	v, err := p.vec(group, field, want)
	if err != nil {
		return keyData{}, err
	}
	if plain := v.plain(); plain != v {
		valid := v.valid
		v.valid = nil
		v.spare()
		plain.valid = valid
		v = plain
	}
	var bitmap []byte
	nulls := 0
	if v.valid != nil {
		bitmap = make([]byte, bitutil.BytesForBits(int64(v.n)))
		for i, ok := range v.valid {
			if ok {
				bitutil.SetBit(bitmap, i)
			} else {
				nulls++
			}
		}
	}
	data := array.NewData(t, v.n, buffers(bitmap, v.aligned()), nil, nulls, 0)
	defer data.Release()
	return keyData{arrays: []arrow.Array{array.MakeFromData(data)}, under: v}, nil
}

// sameBytes tells whether Arrow's values of a key type are the file's numbers.
func sameBytes(col *schema.Column, t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.Int32Type, *arrow.Uint32Type, *arrow.Date32Type:
		return col.PhysicalType() == parquet.Types.Int32
	case *arrow.Int64Type, *arrow.Uint64Type:
		return col.PhysicalType() == parquet.Types.Int64
	case *arrow.TimestampType:
		l, ok := col.LogicalType().(schema.TimestampLogicalType)
		units := map[arrow.TimeUnit]schema.TimeUnitType{arrow.Millisecond: schema.TimeUnitMillis,
			arrow.Microsecond: schema.TimeUnitMicros, arrow.Nanosecond: schema.TimeUnitNanos}
		unit, known := units[t.Unit]
		return ok && known && l.TimeUnit() == unit && col.PhysicalType() == parquet.Types.Int64
	}
	return false
}

// bounds are the least and the largest value of a key column in a row group, where the file tells and they are signed
// numbers.
func (p *parquetFile) bounds(group, field int) (lo, hi int64, ok bool) {
	p, group = p.in(group)
	col := p.flat(field)
	if k := p.folder(field); k != nil {
		return k.number, k.number, k.signed
	}
	if col == nil || !sameBytes(col, p.schema.Field(field).Type) || col.SortOrder() != schema.SortSIGNED {
		return 0, 0, false
	}
	c, err := p.pf.MetaData().RowGroup(group).ColumnChunk(p.leaves[field][0])
	if err != nil {
		return 0, 0, false
	}
	if set, err := c.StatsSet(); err != nil || !set {
		return 0, 0, false
	}
	s, err := c.Statistics()
	if err != nil || !s.HasMinMax() {
		return 0, 0, false
	}
	switch s := s.(type) {
	case *pqmeta.Int32Statistics:
		return int64(s.Min()), int64(s.Max()), s.Min() <= s.Max()
	case *pqmeta.Int64Statistics:
		return s.Min(), s.Max(), s.Min() <= s.Max()
	}
	return 0, 0, false
}

// brotliCodec is the library's codec, which does not decode a page of no bytes, as one of nulls has.
type brotliCodec struct{ streamingCodec }

type streamingCodec interface {
	compress.ErrorCodec
	compress.StreamingCodec
}

func init() {
	codec, err := compress.GetCodec(compress.Codecs.Brotli)
	if c, ok := codec.(streamingCodec); err == nil && ok {
		compress.RegisterCodec(compress.Codecs.Brotli, brotliCodec{c})
	}
}

// DecodeWithError decodes a page. One of no bytes gets memory for one, which a broken page fills.
func (c brotliCodec) DecodeWithError(dst, src []byte) ([]byte, error) {
	if len(dst) == 0 {
		dst = make([]byte, 1)
	}
	return c.streamingCodec.DecodeWithError(dst, src)
}
