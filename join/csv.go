package join

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// maxRecord bounds one CSV record, in bytes: what a missing quote would else make of a file.
const maxRecord = 256 << 20

// csvScanner cuts CSV (RFC 4180; lines may also end in a line feed or a carriage return alone) into records. A quote inside a field that
// does not begin with one is an ordinary character.
type csvScanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	eof      bool
	line     int      // the record's first
	lines    int      // read up to pos
	fields   [][]byte // of the record; valid until the next
	quoted   []bool
	scratch  []byte // holds quoted fields with quotes in them
}

var errMore = errors.New("more")

// next reads a record; io.EOF at the end. A blank line is a record of one empty field.
func (s *csvScanner) next() error {
	for {
		s.line = s.lines + 1
		s.fields, s.quoted, s.scratch = s.fields[:0], s.quoted[:0], s.scratch[:0]
		n, lines, err := s.record(s.buf[s.pos:s.end])
		if err == nil {
			s.pos += n
			s.lines += lines
			return nil
		}
		if err != errMore {
			return fmt.Errorf("line %d: %w", s.line, err)
		}
		if s.eof {
			return io.EOF // record asks for more at the end only if there is nothing
		}
		if err := s.fill(); err != nil {
			return err
		}
	}
}

// fill reads on, keeping the unread.
func (s *csvScanner) fill() error {
	if s.pos > 0 {
		s.end = copy(s.buf, s.buf[s.pos:s.end])
		s.pos = 0
	}
	if s.end == len(s.buf) {
		if len(s.buf) >= maxRecord {
			return fmt.Errorf("line %d: a record of more than %d MiB: is a quote missing?", s.line, maxRecord>>20)
		}
		s.buf = append(s.buf, make([]byte, max(1<<16, len(s.buf)))...)
	}
	n, err := s.r.Read(s.buf[s.end:])
	s.end += n
	if err == io.EOF {
		s.eof = true
		return nil
	}
	return err
}

// record cuts one record from the start of b, or asks for more bytes.
func (s *csvScanner) record(b []byte) (n, lines int, err error) {
	if len(b) == 0 {
		return 0, 0, errMore
	}
	for i := 0; ; {
		if i < len(b) && b[i] == '"' {
			from, start := i+1, len(s.scratch)
			plain := true
			for i++; ; {
				q := bytes.IndexByte(b[i:], '"')
				if q < 0 {
					if s.eof {
						return 0, 0, errors.New("a quoted field without its closing quote")
					}
					return 0, 0, errMore
				}
				i += q + 1
				if i == len(b) && !s.eof {
					return 0, 0, errMore
				}
				if i < len(b) && b[i] == '"' {
					s.scratch = append(s.scratch, b[from:i]...) // one of the two quotes
					plain = false
					i++
					from = i
					continue
				}
				break
			}
			field := b[from : i-1]
			if !plain {
				s.scratch = append(s.scratch, field...)
				field = s.scratch[start:]
			}
			lines += max(bytes.Count(field, []byte{'\n'}), bytes.Count(field, []byte{'\r'}))
			s.fields, s.quoted = append(s.fields, field), append(s.quoted, true)
			switch {
			case i == len(b):
				return i, lines + 1, nil
			case b[i] == ',':
				i++
				continue
			case b[i] == '\n':
				return i + 1, lines + 1, nil
			case b[i] == '\r':
				return s.carriage(b, i, lines)
			}
			return 0, 0, fmt.Errorf("column %d: text after a closing quote", len(s.fields))
		}
		from := i
		for i < len(b) && !csvEnds[b[i]] {
			i++
		}
		if i == len(b) && !s.eof {
			return 0, 0, errMore
		}
		s.fields, s.quoted = append(s.fields, b[from:i]), append(s.quoted, false)
		switch {
		case i == len(b) || b[i] == '\n':
			return min(i+1, len(b)), lines + 1, nil
		case b[i] == '\r':
			return s.carriage(b, i, lines)
		}
		i++
	}
}

// csvEnds tells the bytes that end a field without quotes.
var csvEnds = [256]bool{',': true, '\n': true, '\r': true}

// carriage ends a record at the carriage return b[i], which may have a line feed behind it.
func (s *csvScanner) carriage(b []byte, i, lines int) (n, all int, err error) {
	if i+1 == len(b) && !s.eof {
		return 0, 0, errMore
	}
	if i+1 < len(b) && b[i+1] == '\n' {
		i++
	}
	return i + 1, lines + 1, nil
}

// row reads a record of n fields, passing over blank lines, which are rows only where n is 1.
func (s *csvScanner) row(n int) error {
	for {
		if err := s.next(); err != nil {
			return err
		}
		if len(s.fields) == 1 && n != 1 && len(s.fields[0]) == 0 && !s.quoted[0] {
			continue
		}
		if len(s.fields) != n {
			return fmt.Errorf("line %d: %d fields, where the header has %d", s.line, len(s.fields), n)
		}
		return nil
	}
}

// header reads the column names.
func (s *csvScanner) header() ([]string, error) {
	for s.end < 3 && !s.eof {
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	if bytes.HasPrefix(s.buf[:s.end], []byte("\ufeff")) {
		s.pos = 3
	}
	err := s.next()
	if err == io.EOF {
		return nil, errors.New("no header line: the file is empty")
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		if !utf8.Valid(f) {
			return nil, fmt.Errorf("line 1: the name of column %d is not UTF-8: convert the file, with iconv say", i+1)
		}
		names[i] = string(f)
	}
	return names, nil
}

// What a field can be, as bits: a column's type follows from all that its fields are.
const (
	csvNegative = 1 << iota // an integer below 0
	csvInt                  // an integer of 0 and up that fits int64
	csvUint                 // one over that, that fits uint64
	csvWide                 // beside the three: not exact as float64
	csvFloat
	csvBool
	csvDate
	csvStamp  // date and time
	csvStampZ // in UTC
	csvNano   // beside the two: needs nanoseconds
	csvFar    // beside the two: too far away for them
	csvText
)

// classify says what a field that is not null is. Only what can be written back with nothing but its
// spelling changed is more than text.
func classify(f []byte) int {
	if len(f) == 0 {
		return csvText // a quoted empty string
	}
	switch c := f[0]; {
	case c >= '0' && c <= '9' || c == '-':
		if len(f) >= 10 && f[4] == '-' {
			if _, ok := parseDate(f); ok {
				return csvDate
			}
			if t, ok := parseStamp(f); ok {
				return t.class
			}
		}
		return classifyNumber(f)
	case c == 't' || c == 'T' || c == 'f' || c == 'F':
		if _, ok := parseBool(f); ok {
			return csvBool
		}
	case c == 'N' || c == 'I' || c == '+':
		if _, ok := parseSpecial(f); ok {
			return csvFloat
		}
	}
	return csvText
}

func classifyNumber(f []byte) int {
	// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?
	b, digits, point := f, 0, false
	if b[0] == '-' {
		b = b[1:]
	}
	count := func() (n int) {
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n
	}
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' {
		return csvText // 007 is not 7
	}
	if digits = count(); digits == 0 {
		if _, ok := parseSpecial(f); ok {
			return csvFloat
		}
		return csvText
	}
	if len(b) == 0 && !(f[0] == '-' && digits == 1 && f[1] == '0') {
		if v, err := strconv.ParseInt(string(f), 10, 64); err == nil {
			class := csvInt
			if v < 0 {
				class = csvNegative
			}
			if v > 1<<53 || v < -1<<53 {
				class |= csvWide
			}
			return class
		}
		if _, err := strconv.ParseUint(string(f), 10, 64); err == nil {
			return csvUint | csvWide
		}
		return csvText
	}
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		n := count()
		if n == 0 {
			return csvText
		}
		digits, point = digits+n, true
	}
	mantissa := f[:len(f)-len(b)]
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '-' || b[0] == '+') {
			b = b[1:]
		}
		if count() == 0 {
			return csvText
		}
	}
	if len(b) > 0 {
		return csvText
	}
	v, err := strconv.ParseFloat(string(f), 64)
	if err != nil {
		return csvText
	}
	return exactFloat(v, mantissa, digits, point)
}

// exactFloat tells a decimal that float64 holds from one that it does not: every decimal of 15 digits comes back, one
// of more digits if those are the float's own.
func exactFloat(v float64, mantissa []byte, digits int, point bool) int {
	if digits <= 15 && (v != 0 || !bytes.ContainsAny(mantissa, "123456789")) && (v == 0 || math.Abs(v) >= 0x1p-1022) {
		return csvFloat
	}
	ds := make([]byte, 0, digits)
	for _, c := range mantissa {
		if c >= '0' && c <= '9' && (len(ds) > 0 || c != '0') {
			ds = append(ds, c)
		}
	}
	if len(ds) == 0 {
		return csvFloat // a zero
	}
	if len(ds) > 800 {
		return csvText
	}
	own := make([]byte, 0, len(ds)+8)
	for _, c := range strconv.AppendFloat(nil, math.Abs(v), 'e', len(ds)-1, 64) {
		if c == 'e' {
			break
		}
		if c != '.' {
			own = append(own, c)
		}
	}
	if bytes.Equal(own, ds) {
		return csvFloat
	}
	return csvText
}

func parseSpecial(f []byte) (float64, bool) {
	switch string(f) {
	case "NaN":
		return math.NaN(), true
	case "Inf", "+Inf":
		return math.Inf(1), true
	case "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

func parseBool(f []byte) (bool, bool) {
	switch string(f) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// number reads decimal digits alone.
func number(f []byte) (n int, ok bool) {
	for _, c := range f {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// civil turns a date of the Gregorian calendar into days since 1970-01-01.
func civil(f []byte) (days int64, ok bool) {
	if len(f) != 10 || f[4] != '-' || f[7] != '-' {
		return 0, false
	}
	y, ok1 := number(f[:4])
	m, ok2 := number(f[5:7])
	d, ok3 := number(f[8:])
	if !ok1 || !ok2 || !ok3 || m < 1 || m > 12 || d < 1 || d > 31 {
		return 0, false
	}
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC)
	if t.Day() != d {
		return 0, false
	}
	return t.Unix() / 86400, true
}

func parseDate(f []byte) (arrow.Date32, bool) {
	days, ok := civil(f)
	return arrow.Date32(days), ok
}

type stamp struct {
	sec   int64
	nano  int64
	class int
}

// parseStamp reads 2006-01-02 15:04:05, with T for the blank, up to nine decimals, and Z, or without.
func parseStamp(f []byte) (s stamp, ok bool) {
	if len(f) < 19 || f[10] != ' ' && f[10] != 'T' || f[13] != ':' || f[16] != ':' {
		return s, false
	}
	days, ok := civil(f[:10])
	h, ok1 := number(f[11:13])
	m, ok2 := number(f[14:16])
	c, ok3 := number(f[17:19])
	if !ok || !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || c > 59 {
		return s, false
	}
	s.sec, s.class = days*86400+int64(h*3600+m*60+c), csvStamp
	f = f[19:]
	if len(f) > 0 && f[len(f)-1] == 'Z' {
		f = f[:len(f)-1]
		s.class = csvStampZ
	}
	if len(f) > 0 {
		n, ok := number(f[1:])
		if f[0] != '.' || len(f) < 2 || len(f) > 10 || !ok {
			return s, false
		}
		for range 10 - len(f) {
			n *= 10
		}
		if s.nano = int64(n); n%1000 != 0 {
			s.class |= csvNano
		}
	}
	if s.sec < math.MinInt64/1_000_000_000+1 || s.sec > math.MaxInt64/1_000_000_000-1 {
		s.class |= csvFar
	}
	return s, true
}

// csvType is the type of a column whose fields were these.
func csvType(seen int) arrow.DataType {
	within := func(set int) bool { return seen&^set == 0 }
	switch {
	case seen == 0:
		return arrow.Null
	case within(csvNegative | csvInt | csvWide):
		return arrow.PrimitiveTypes.Int64
	case within(csvInt | csvUint | csvWide):
		return arrow.PrimitiveTypes.Uint64
	case within(csvNegative | csvInt | csvFloat):
		return arrow.PrimitiveTypes.Float64
	case within(csvBool):
		return arrow.FixedWidthTypes.Boolean
	case within(csvDate):
		return arrow.FixedWidthTypes.Date32
	case within(csvStamp | csvFar):
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case within(csvStampZ | csvFar):
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case within(csvStamp | csvNano):
		return &arrow.TimestampType{Unit: arrow.Nanosecond}
	case within(csvStampZ | csvNano):
		return &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	}
	return arrow.BinaryTypes.String
}

// witness is a field that made its column's type what it is.
type witness struct {
	line  int
	value string
}

// inferCSV reads CSV to its end and finds the columns, what made each its type, and the number of rows.
func inferCSV(in io.Reader) (*arrow.Schema, []witness, int64, error) {
	s := &csvScanner{r: in}
	names, err := s.header()
	if err != nil {
		return nil, nil, 0, err
	}
	seen, made, rows := make([]int, len(names)), make([]witness, len(names)), int64(0)
	for ; ; rows++ {
		if err := s.row(len(names)); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, 0, err
		}
		for i, f := range s.fields {
			if len(f) == 0 && !s.quoted[i] {
				continue
			}
			if seen[i]&csvText == 0 {
				old := seen[i]
				if seen[i] |= classify(f); seen[i] != old && !arrow.TypeEqual(csvType(old), csvType(seen[i])) {
					made[i] = witness{s.line, string(f[:min(len(f), 100)])}
				}
			}
			if seen[i]&csvText != 0 && !utf8.Valid(f) {
				return nil, nil, 0, fmt.Errorf("line %d, column %q: not UTF-8: convert the file, with iconv say", s.line, names[i])
			}
		}
	}
	fields := make([]arrow.Field, len(names))
	for i, name := range names {
		fields[i] = arrow.Field{Name: name, Type: csvType(seen[i]), Nullable: true}
	}
	return arrow.NewSchema(fields, nil), made, rows, nil
}

func (r *Reader) csv(f *os.File) (err error) {
	if r.schema, r.made, r.rows, err = inferCSV(f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.next = readCSV(f, r.schema)
	return nil
}

// readCSV reads CSV whose columns are known.
func readCSV(in io.Reader, schema *arrow.Schema) func() (arrow.RecordBatch, error) {
	s := &csvScanner{r: in}
	appends := make([]func(f []byte, quoted bool) bool, schema.NumFields())
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i, f := range schema.Fields() {
		appends[i] = csvAppender(b.Field(i), f.Type)
	}
	started := false
	return func() (arrow.RecordBatch, error) {
		if !started {
			started = true
			if _, err := s.header(); err != nil {
				return nil, err
			}
		}
		rows := 0
		for ; rows < batchRows; rows++ {
			if err := s.row(len(appends)); err == io.EOF {
				break
			} else if err != nil {
				return nil, err
			}
			for i, f := range s.fields {
				if len(f) == 0 && !s.quoted[i] {
					b.Field(i).AppendNull()
				} else if !appends[i](f, s.quoted[i]) {
					return nil, fmt.Errorf("line %d, column %q: %q is not %s: the file changed while it was read", s.line, schema.Field(i).Name, f, schema.Field(i).Type)
				}
			}
		}
		if rows == 0 {
			return nil, io.EOF
		}
		return b.NewRecordBatch(), nil
	}
}

// csvAppender makes a function that appends a field which is not null to a builder, or returns false.
func csvAppender(b array.Builder, t arrow.DataType) func(f []byte, quoted bool) bool {
	switch b := b.(type) {
	case *array.Int64Builder:
		return func(f []byte, _ bool) bool {
			v, err := strconv.ParseInt(string(f), 10, 64)
			b.Append(v)
			return err == nil
		}
	case *array.Uint64Builder:
		return func(f []byte, _ bool) bool {
			v, err := strconv.ParseUint(string(f), 10, 64)
			b.Append(v)
			return err == nil
		}
	case *array.Float64Builder:
		return func(f []byte, _ bool) bool {
			v, err := strconv.ParseFloat(string(f), 64)
			b.Append(v)
			return err == nil
		}
	case *array.BooleanBuilder:
		return func(f []byte, _ bool) bool { v, ok := parseBool(f); b.Append(v); return ok }
	case *array.Date32Builder:
		return func(f []byte, _ bool) bool { v, ok := parseDate(f); b.Append(v); return ok }
	case *array.TimestampBuilder:
		unit := units[t.(*arrow.TimestampType).Unit]
		return func(f []byte, _ bool) bool {
			s, ok := parseStamp(f)
			b.Append(arrow.Timestamp(s.sec*(1e9/unit) + s.nano/unit))
			return ok
		}
	case *array.StringBuilder:
		return func(f []byte, _ bool) bool { b.BinaryBuilder.Append(f); return true }
	}
	return func([]byte, bool) bool { return false } // a column of the null type has no fields that are not
}

// csvEncoder writes CSV with a header; a null is an empty field and an empty string "". In a file of one
// column a null is a blank line.
type csvEncoder struct {
	w      io.Writer
	schema *arrow.Schema
	buf    []byte
	begun  bool
}

func newCSVEncoder(w io.Writer, schema *arrow.Schema) *csvEncoder {
	return &csvEncoder{w: w, schema: schema}
}

func (e *csvEncoder) header() error {
	if e.begun {
		return nil
	}
	e.begun = true
	for i, f := range e.schema.Fields() {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if f.Name == "" && e.schema.NumFields() > 1 {
			continue
		}
		e.buf = appendCSV(e.buf, []byte(f.Name))
	}
	e.buf = append(e.buf, '\n')
	return nil
}

func (e *csvEncoder) finish() error {
	e.header()
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *csvEncoder) write(rec arrow.RecordBatch) error {
	e.header()
	cells := make([]func(b []byte, i int) []byte, rec.NumCols())
	for c := range cells {
		cells[c] = csvCell(rec.Column(c))
	}
	for i := range int(rec.NumRows()) {
		for c, cell := range cells {
			if c > 0 {
				e.buf = append(e.buf, ',')
			}
			if rec.Column(c).IsValid(i) {
				e.buf = cell(e.buf, i)
			}
		}
		e.buf = append(e.buf, '\n')
		if len(e.buf) > 1<<16 {
			if _, err := e.w.Write(e.buf); err != nil {
				return err
			}
			e.buf = e.buf[:0]
		}
	}
	return nil
}

// appendCSV writes text, in quotes where it needs them.
func appendCSV[T string | []byte](b []byte, s T) []byte {
	quote := len(s) == 0
	for i := 0; i < len(s) && !quote; i++ {
		c := s[i]
		quote = c == ',' || c == '"' || c == '\n' || c == '\r' || i == 0 && (c == ' ' || c == 0xef)
	}
	if !quote {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' {
			b = append(b, '"')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// csvCell makes a function that writes values of a column that are not null.
func csvCell(a arrow.Array) func(b []byte, i int) []byte {
	switch a := a.(type) {
	case *array.Int8:
		return intCell(a.Values())
	case *array.Int16:
		return intCell(a.Values())
	case *array.Int32:
		return intCell(a.Values())
	case *array.Int64:
		return intCell(a.Values())
	case *array.Uint8:
		return intCell(a.Values())
	case *array.Uint16:
		return intCell(a.Values())
	case *array.Uint32:
		return intCell(a.Values())
	case *array.Uint64:
		return func(b []byte, i int) []byte { return strconv.AppendUint(b, a.Value(i), 10) }
	case *array.Float32:
		return func(b []byte, i int) []byte { return appendFloat(b, float64(a.Value(i)), 32) }
	case *array.Float64:
		return func(b []byte, i int) []byte { return appendFloat(b, a.Value(i), 64) }
	case *array.Boolean:
		return func(b []byte, i int) []byte { return strconv.AppendBool(b, a.Value(i)) }
	case *array.String:
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i)) }
	case *array.LargeString:
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i)) }
	case *array.StringView:
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i)) }
	case *array.Date32:
		return func(b []byte, i int) []byte {
			return time.Unix(int64(a.Value(i))*86400, 0).UTC().AppendFormat(b, time.DateOnly)
		}
	case *array.Date64:
		return func(b []byte, i int) []byte {
			if v := int64(a.Value(i)); v%86_400_000 != 0 { // not by the rules, but there
				return time.UnixMilli(v).UTC().AppendFormat(b, "2006-01-02 15:04:05.000")
			} else {
				return time.UnixMilli(v).UTC().AppendFormat(b, time.DateOnly)
			}
		}
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType)
		per := 1e9 / units[t.Unit] // of the unit in a second
		format := "2006-01-02 15:04:05.999999999"
		if t.TimeZone != "" {
			format += "Z"
		}
		return func(b []byte, i int) []byte {
			v := int64(a.Value(i))
			sec, rest := v/per, v%per
			return time.Unix(sec, rest*units[t.Unit]).UTC().AppendFormat(b, format)
		}
	case *array.Decimal128:
		scale := a.DataType().(*arrow.Decimal128Type).Scale
		return func(b []byte, i int) []byte { return appendDecimal(b, a.Value(i).BigInt(), int(scale)) }
	case *array.Decimal256:
		scale := a.DataType().(*arrow.Decimal256Type).Scale
		return func(b []byte, i int) []byte { return appendDecimal(b, a.Value(i).BigInt(), int(scale)) }
	case *array.Dictionary:
		cell := csvCell(a.Dictionary())
		return func(b []byte, i int) []byte {
			if k := a.GetValueIndex(i); a.Dictionary().IsValid(k) {
				return cell(b, k)
			}
			return b
		}
	}
	return func(b []byte, i int) []byte {
		if a.GetOneForMarshal(i) == nil { // unions and runs have no bitmap of their own
			return b
		}
		return appendCSV(b, a.ValueStr(i))
	}
}

func intCell[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](values []T) func(b []byte, i int) []byte {
	return func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(values[i]), 10) }
}

// appendFloat writes a float as briefly as it comes back from, and so that no one takes it for an integer.
func appendFloat(b []byte, v float64, bits int) []byte {
	from := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, bits)
	if !bytes.ContainsAny(b[from:], ".eNI") {
		b = append(b, ".0"...)
	}
	return b
}

func appendDecimal(b []byte, v *big.Int, scale int) []byte {
	if v.Sign() < 0 {
		b = append(b, '-')
		v = new(big.Int).Neg(v)
	}
	digits := v.Append(nil, 10)
	if scale <= 0 {
		b = append(b, digits...)
		for range -scale {
			if v.Sign() != 0 {
				b = append(b, '0')
			}
		}
		return b
	}
	for len(digits) <= scale {
		digits = append([]byte{'0'}, digits...)
	}
	b = append(b, digits[:len(digits)-scale]...)
	b = append(b, '.')
	return append(b, digits[len(digits)-scale:]...)
}
