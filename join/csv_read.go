package join

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// csvFile is a CSV file whose header is known.
type csvFile struct {
	src   textSource
	as    dialect
	names []string
	given []bool // columns whose types were given
	live  *live  // where set, it comes from there, and can be read once
	// allowed is what the fields may be of columns that are live, or were glanced at, and have a type that was not
	// given; 0 for others, and nil where all fields were seen
	allowed []int
	seen    []atomic.Int32 // what the fields of each column are, as far as they were seen
	body    int64          // where the rows begin
	lines   int64          // before them
	strips  [][]int        // columns that are read as strips, for an output with that delimiter
	between byte

	anyBytes bool // nothing need be UTF-8
}

// tokens are used again by later blocks.
var tokens = sync.Pool{New: func() any { return new(csvTokens) }}

// openCSV reads CSV to its end and finds the columns, what made each its type where none is given, and the number of
// rows. Where key is set, a glance at the first rows is enough: all other columns are text, and the number of rows is
// unknown.
func openCSV(src textSource, as dialect, types Types, key func(name string) bool, anyBytes bool) (*textFile, error) {
	f := &csvFile{src: src, as: as, anyBytes: anyBytes}
	in, err := src()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	seen, err := f.header(in)
	if err != nil {
		return nil, err
	}
	rest := rejoin(seen[f.body:], in)
	out := &textFile{columns: columnsOf(f.names, types), csv: f, read: f.read}
	f.seen, f.given = make([]atomic.Int32, len(f.names)), given(out.columns)
	for i, given := range f.given {
		if given {
			f.seen[i].Store(csvText) // nobody asks
		}
	}
	if key != nil {
		first, enough, err := f.glance(rest, out, key)
		if err != nil || enough {
			out.rows = -1
			return out, err
		}
		rest = rejoin(first, rest)
	}
	if plain, ok := in.(plainText); ok {
		if _, err := plain.Seek(f.body, io.SeekStart); err != nil {
			return nil, err
		}
		rest = plain
	}
	next, stop := f.inBlocks(rest, f.classes)
	defer stop()
	lines := f.lines
	for {
		b, err := next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, after(err, lines)
		}
		for _, s := range b.sightings {
			out.columns[s.column].see(s, lines)
			f.seen[s.column].Store(int32(out.columns[s.column].seen))
		}
		lines += b.lines
		out.rows += int64(b.rows)
	}
}

// header reads the column names and returns the bytes that it read. The rows begin at f.body. A live input gets them
// back. Without a header line the columns have numbers.
func (f *csvFile) header(in io.Reader) (seen []byte, err error) {
	var b []byte
	for whole := false; !whole; {
		part := make([]byte, max(1<<16, len(b)))
		var n int
		if f.live == nil {
			n, err = readTo(in, part)
		} else {
			n, err = in.Read(part)
		}
		seen = append(seen, part[:n]...)
		if whole = err == io.EOF; !whole && err != nil {
			return nil, err
		}
		b = bytes.TrimPrefix(seen, bom)
		if !whole {
			if whole = lastRecord(b, f.as) > 0; !whole && len(b) > maxRecord {
				return nil, fmt.Errorf("line 1: a record of more than %d MiB: is a quote missing?", maxRecord>>20)
			}
		}
	}
	if len(b) == 0 {
		if f.as.headless {
			return nil, errors.New("no rows, and so no columns: the file is empty")
		}
		return nil, errors.New("no header line: the file is empty")
	}
	t := &csvTokens{}
	end, err := t.scan(b, f.as, 0)
	if err != nil {
		return nil, err
	}
	for i := range t.n {
		name, _ := t.field(0, i)
		if is := toldBy(b); !utf8.Valid(name) && is != "" {
			return nil, fmt.Errorf("no text: it begins as %s does", is)
		} else if !f.anyBytes && !utf8.Valid(name) {
			return nil, fmt.Errorf("line 1: the name of column %d is not UTF-8: convert the file, with iconv say", i+1)
		}
		if f.as.headless {
			name = strconv.AppendInt(nil, int64(i+1), 10)
		}
		f.names = append(f.names, string(name))
	}
	if f.as.headless {
		end = 0
	}
	f.body = int64(len(seen) - len(b) + end)
	f.lines = countLines(b[:end])
	if f.live != nil {
		f.live.rest = append(seen[f.body:len(seen):len(seen)], f.live.rest...)
	}
	return seen, nil
}

var bom = []byte("\ufeff")

// inBlocks brings the blocks of what is behind a header to work, as fields.
func (f *csvFile) inBlocks(in io.Reader, work func(t *csvTokens) (*textBatch, error)) (next func() (*textBatch, error),
	stop func()) {
	return inOrder(unread, func(send func(textPart) bool) error {
		end := func(b []byte) int { return lastRecord(b, f.as) }
		if f.live != nil {
			return liveBlocks(f.live, end, send)
		}
		return blocks(in, end, send)
	}, func(s textPart) (*textBatch, error) {
		b := s.records
		defer spare(s.room)
		t := tokens.Get().(*csvTokens)
		defer tokens.Put(t)
		if _, err := t.scan(b, f.as, len(f.names)); err != nil {
			return nil, err
		}
		out, err := work(t)
		if err != nil {
			return nil, err
		}
		out.rows, out.lines = t.rows, countLines(b)
		return out, nil
	})
}

// classes finds what the fields of a block are that was not seen in blocks before it.
func (f *csvFile) classes(t *csvTokens) (*textBatch, error) {
	out := &textBatch{}
	if !f.anyBytes && !utf8.Valid(t.b) {
		return nil, f.notText(t)
	}
	for c := range f.names {
		seen := int(f.seen[c].Load())
		for r := 0; r < t.rows && seen&csvText == 0; r++ {
			v, quoted := t.field(r, c)
			if t.null(v, quoted) {
				continue
			}
			if class := classify(v); seen|class != seen {
				seen |= class
				out.sightings = append(out.sightings, sighting{c, class, 1 + countLines(t.b[:t.place(r, c)]),
					string(v[:min(len(v), 100)])})
			}
		}
	}
	return out, nil
}

// notText says which field of a block is not UTF-8.
func (f *csvFile) notText(t *csvTokens) error {
	for r := range t.rows {
		for c, name := range f.names {
			if v, _ := t.field(r, c); !utf8.Valid(v) {
				return &lineError{line: 1 + countLines(t.b[:t.place(r, c)]), column: name, err: errNotText}
			}
		}
	}
	return errNotText
}

var errNotText = errors.New("not UTF-8: convert the file, with iconv say")

// read reads the columns that have a type, as record batches.
func (f *csvFile) read(types []arrow.DataType, schema *arrow.Schema) (next func() (arrow.RecordBatch, error),
	stop func(), err error) {
	if f.live != nil {
		block, end := f.inBlocks(f.live, func(t *csvTokens) (*textBatch, error) {
			return f.checked(t, types, f.liveColumn)
		})
		return records(schema, f.lines, block), func() { f.live.stop(); end() }, nil
	}
	in, err := f.src()
	if err != nil {
		return nil, nil, err
	}
	if s, ok := in.(io.Seeker); ok {
		_, err = s.Seek(f.body, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, in, f.body)
	}
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	block, end := f.inBlocks(in, func(t *csvTokens) (*textBatch, error) {
		if f.allowed != nil {
			return f.checked(t, types, f.glanced)
		}
		return f.columns(t, types, func(t *csvTokens, c int, typ arrow.DataType) (arrow.Array, error) {
			return csvColumn(t, c, typ, f.given[c])
		})
	})
	return records(schema, f.lines, block), func() { end(); in.Close() }, nil
}

// columns makes the columns of a block that have a type, and its strips.
func (f *csvFile) columns(t *csvTokens, types []arrow.DataType, column func(t *csvTokens, c int,
	typ arrow.DataType) (arrow.Array, error)) (*textBatch, error) {
	out := &textBatch{}
	for c, typ := range types {
		if typ == nil {
			continue
		}
		a, err := column(t, c, typ)
		if err != nil {
			return nil, ofColumn(err, f.names[c])
		}
		out.columns = append(out.columns, a)
	}
	for _, columns := range f.strips {
		a, err := t.strip(columns, f.between)
		if err != nil {
			return nil, err
		}
		out.columns = append(out.columns, a)
	}
	return out, nil
}

// csvColumn makes a column of a block. Its type was found in the fields, or given, whatever they are.
func csvColumn(t *csvTokens, c int, typ arrow.DataType, given bool) (arrow.Array, error) {
	if given {
		return givenColumn(t, c, typ)
	}
	switch typ := typ.(type) {
	case *arrow.NullType:
		for r := range t.rows {
			if v, quoted := t.field(r, c); !t.null(v, quoted) {
				return nil, changed(t, r, c, typ)
			}
		}
		return array.NewNull(t.rows), nil
	case *arrow.Int64Type:
		return csvFixed(t, c, typ, parseInt, changed)
	case *arrow.Uint64Type:
		return csvFixed(t, c, typ, func(f []byte) (uint64, bool) {
			v, err := strconv.ParseUint(string(f), 10, 64)
			return v, err == nil
		}, changed)
	case *arrow.Float64Type:
		return csvFixed(t, c, typ, parseFloat, changed)
	case *arrow.Date32Type:
		return csvFixed(t, c, typ, parseDate, changed)
	case *arrow.TimestampType:
		unit := units[typ.Unit]
		return csvFixed(t, c, typ, func(f []byte) (arrow.Timestamp, bool) {
			s, ok := parseStamp(f)
			return arrow.Timestamp(s.sec*(1e9/unit) + s.nano/unit), ok
		}, changed)
	case *arrow.BooleanType:
		return csvBools(t, c, typ, parseBool, changed)
	}
	return csvStrings(t, c)
}

// misfit makes the error of a field that is not of its column's type.
type misfit func(t *csvTokens, r, c int, typ arrow.DataType) error

// csvBools makes a column of booleans.
func csvBools(t *csvTokens, c int, typ arrow.DataType, parse func(f []byte) (bool, bool), wrong misfit) (arrow.Array,
	error) {
	b := array.NewBooleanBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(t.rows)
	for r := range t.rows {
		f, quoted := t.field(r, c)
		if t.null(f, quoted) {
			b.AppendNull()
			continue
		}
		v, ok := parse(f)
		if !ok {
			return nil, wrong(t, r, c, typ)
		}
		b.Append(v)
	}
	return b.NewArray(), nil
}

// ofColumn adds a column's name to an error.
func ofColumn(err error, name string) error {
	if e, ok := err.(*lineError); ok {
		e.column = name
		return e
	}
	return fmt.Errorf("column %q: %w", name, err)
}

// changed is the error of a field that is not what it was.
func changed(t *csvTokens, r, c int, typ arrow.DataType) error {
	f, _ := t.field(r, c)
	return &lineError{line: 1 + countLines(t.b[:t.place(r, c)]), row: r,
		err: fmt.Errorf("%q is not %s: the file changed while it was read", f, typ)}
}

// validity is a column's bitmap, made when there is a null.
type validity struct {
	bits  []byte
	nulls int
}

func (v *validity) null(r, rows int) {
	if v.bits == nil {
		v.bits = make([]byte, bitutil.BytesForBits(int64(rows)))
		bitutil.SetBitsTo(v.bits, 0, int64(rows), true)
	}
	bitutil.ClearBit(v.bits, r)
	v.nulls++
}

// array makes a column of a bitmap and other buffers.
func (v *validity) array(typ arrow.DataType, rows int, buffers ...[]byte) arrow.Array {
	all := make([]*memory.Buffer, 1, 3)
	if v.bits != nil {
		all[0] = memory.NewBufferBytes(v.bits)
	}
	for _, b := range buffers {
		all = append(all, memory.NewBufferBytes(b))
	}
	data := array.NewData(typ, rows, all, nil, v.nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// csvFixed makes a column of numbers.
func csvFixed[T arrow.FixedWidthType](t *csvTokens, c int, typ arrow.DataType,
	parse func(f []byte) (T, bool), wrong misfit) (arrow.Array, error) {
	values := make([]T, t.rows)
	var nulls validity
	for r := range values {
		f, quoted := t.field(r, c)
		if t.null(f, quoted) {
			nulls.null(r, t.rows)
			continue
		}
		v, ok := parse(f)
		if !ok {
			return nil, wrong(t, r, c, typ)
		}
		values[r] = v
	}
	return nulls.array(typ, t.rows, arrow.GetBytes(values)), nil
}

// csvStrings makes a column of strings.
func csvStrings(t *csvTokens, c int) (arrow.Array, error) {
	size := 0
	for i := c; i < t.rows*t.n; i += t.n {
		size += int(t.ends[i]&csvPlace) - int(t.starts[i]&csvPlace)
	}
	if size > math.MaxInt32 {
		return nil, errTooBig
	}
	offsets, text := make([]int32, t.rows+1), make([]byte, 0, size)
	var nulls validity
	for r := range t.rows {
		f, quoted := t.field(r, c)
		if t.null(f, quoted) {
			nulls.null(r, t.rows)
		} else {
			text = append(text, f...)
		}
		offsets[r+1] = int32(len(text))
	}
	return nulls.array(arrow.BinaryTypes.String, t.rows, arrow.GetBytes(offsets), text), nil
}

// parseInt reads an integer that fits int64.
func parseInt(f []byte) (v int64, ok bool) {
	digits := f
	if len(f) > 1 && f[0] == '-' {
		digits = f[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		v, err := strconv.ParseInt(string(f), 10, 64)
		return v, err == nil
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if len(digits) < len(f) {
		v = -v
	}
	return v, true
}

// tens are the powers that float64 holds.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// parseFloat reads a number. Up to 15 digits and a power of ten are held exactly, so that one division rounds once, as
// it should.
func parseFloat(f []byte) (float64, bool) {
	if len(f) > 16 {
		v, err := strconv.ParseFloat(string(f), 64)
		return v, err == nil
	}
	digits, point := int64(0), -1
	for i, c := range f {
		if c-'0' <= 9 {
			digits = digits*10 + int64(c-'0')
		} else if c == '.' && point < 0 {
			point = i
		} else {
			v, err := strconv.ParseFloat(string(f), 64)
			return v, err == nil
		}
	}
	switch {
	case len(f) == 16 && point < 0:
		v, err := strconv.ParseFloat(string(f), 64)
		return v, err == nil
	case point < 0:
		return float64(digits), len(f) > 0
	}
	return float64(digits) / tens[len(f)-1-point], len(f) > 1
}
