package join

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/google/uuid"
)

// Types are types of columns, by name. ParseTypes lists which there are.
type Types map[string]arrow.DataType

// TextOptions say how text inputs are read: CSV, TSV and JSON lines. The zero value reads what RFC 4180 says.
type TextOptions struct {
	// Types are the types of these columns, in all text inputs and in the names of folders; a value that its column's
	// type does not hold is an error. Other columns get a type that holds all of their values.
	Types Types
	// Nulls are fields of CSV and TSV that are nulls, as the empty field is. A field in quotes is none.
	Nulls []string
	// Delimiter stands between the fields of CSV; 0 is a comma. It does not change TSV.
	Delimiter byte
	// Quote stands around fields of CSV and TSV; 0 is a double quote. NoQuotes takes every quote for a letter.
	Quote    byte
	NoQuotes bool
	// NoHeader says that the first lines of CSV and TSV are rows. The columns then are named 1, 2, 3 and so on.
	NoHeader bool
	// Warn, if it is set, is called with a text if the names in a header are numbers, which a first row often has. It
	// may be called again for the same file.
	Warn func(text string)

	key   func(name string) bool // where set, the types of other columns of CSV are of no use
	alone bool                   // where key is set, no other columns are read

	anyBytes bool // texts and names need not be UTF-8
}

// dialect is how the fields of a format stand in a file.
func (o TextOptions) dialect(f Format) dialect {
	d := dialect{delimiter: ',', quote: '"', nulls: o.Nulls, headless: o.NoHeader}
	switch {
	case f == TSV:
		d.delimiter = '\t'
	case o.Delimiter != 0:
		d.delimiter = o.Delimiter
	}
	if o.Quote != 0 {
		d.quote = o.Quote
	}
	if o.NoQuotes {
		d.quote = 0
	}
	return d
}

// check tells what is wrong with the options themselves.
func (o TextOptions) check() error {
	for _, c := range []struct {
		what string
		is   byte
	}{{"delimiter", o.Delimiter}, {"quote", o.Quote}} {
		if c.is == '\n' || c.is == '\r' || c.is >= 0x80 {
			return &OptionError{fmt.Sprintf("the %s %q: want one character of ASCII that ends no line", c.what,
				string(rune(c.is)))}
		}
	}
	for _, f := range []Format{CSV, TSV} {
		if d := o.dialect(f); d.delimiter == d.quote {
			return &OptionError{fmt.Sprintf("%q as the quote and between the fields of %s: want two characters",
				string(rune(d.quote)), f)}
		}
	}
	for name, t := range o.Types {
		if t == nil || parserFor(t) == nil && t.ID() != arrow.BOOL && t.ID() != arrow.STRING {
			return &OptionError{fmt.Sprintf("column %q as %v: want one of the types of ParseTypes", name, t)}
		}
	}
	return nil
}

// OptionError is an error of Options: something that the inputs or the output do not have, or that makes no sense.
type OptionError struct{ text string }

func (e *OptionError) Error() string { return e.text }

// sqlTypes are the names of types, as SQL and DuckDB have them; the first of a type is the one that errors say.
var sqlTypes = []struct {
	typ   arrow.DataType
	names []string
}{
	{arrow.BinaryTypes.String, []string{"text", "varchar", "string", "char"}},
	{arrow.PrimitiveTypes.Int8, []string{"tinyint", "int1"}},
	{arrow.PrimitiveTypes.Int16, []string{"smallint", "int2"}},
	{arrow.PrimitiveTypes.Int32, []string{"integer", "int", "int4"}},
	{arrow.PrimitiveTypes.Int64, []string{"bigint", "int8", "long"}},
	{arrow.PrimitiveTypes.Uint8, []string{"utinyint"}},
	{arrow.PrimitiveTypes.Uint16, []string{"usmallint"}},
	{arrow.PrimitiveTypes.Uint32, []string{"uinteger"}},
	{arrow.PrimitiveTypes.Uint64, []string{"ubigint"}},
	{arrow.PrimitiveTypes.Float32, []string{"real", "float", "float4"}},
	{arrow.PrimitiveTypes.Float64, []string{"double", "float8", "double precision"}},
	{arrow.FixedWidthTypes.Boolean, []string{"boolean", "bool"}},
	{extensions.NewUUIDType(), []string{"uuid"}},
	{arrow.BinaryTypes.Binary, []string{"blob", "bytea", "binary", "varbinary"}},
	{arrow.FixedWidthTypes.Date32, []string{"date"}},
	{arrow.FixedWidthTypes.Time64us, []string{"time"}},
	{&arrow.TimestampType{Unit: arrow.Microsecond}, []string{"timestamp", "datetime", "timestamp_us"}},
	{&arrow.TimestampType{Unit: arrow.Second}, []string{"timestamp_s"}},
	{&arrow.TimestampType{Unit: arrow.Millisecond}, []string{"timestamp_ms"}},
	{&arrow.TimestampType{Unit: arrow.Nanosecond}, []string{"timestamp_ns"}},
	{&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, []string{"timestamptz",
		"timestamp with time zone"}},
}

// TypeNames lists the types of ParseTypes, each by one name. A decimal also takes a precision and a scale.
func TypeNames() (names []string) {
	for _, t := range sqlTypes {
		names = append(names, t.names[0])
	}
	return append(names, "decimal")
}

// sqlName is a type's name for ParseTypes; empty for types that it does not have.
func sqlName(t arrow.DataType) string {
	if d, ok := t.(*arrow.Decimal128Type); ok {
		return fmt.Sprintf("decimal(%d,%d)", d.Precision, d.Scale)
	}
	for _, s := range sqlTypes {
		if arrow.TypeEqual(s.typ, t) {
			return s.names[0]
		}
	}
	return ""
}

// parseType reads the name of a type.
func parseType(name string) (arrow.DataType, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, s := range sqlTypes {
		if slices.Contains(s.names, name) {
			return s.typ, nil
		}
	}
	base, rest, sized := strings.Cut(name, "(")
	if base = strings.TrimSpace(base); base != "decimal" && base != "numeric" {
		return nil, fmt.Errorf("a type %q: want one of %s", name, strings.Join(TypeNames(), ", "))
	}
	precision, scale := 18, 3 // as in DuckDB
	if sized {
		inner, ended := strings.CutSuffix(rest, ")")
		digits, behind, scaled := strings.Cut(inner, ",")
		var err, e error
		precision, err = strconv.Atoi(strings.TrimSpace(digits))
		if scale = 0; scaled {
			scale, e = strconv.Atoi(strings.TrimSpace(behind))
		}
		if err != nil || e != nil || !ended || precision < 1 || precision > 38 || scale < 0 || scale > precision {
			return nil, fmt.Errorf("a type %q: want decimal(P,S), of P digits up to 38, S of them behind the point",
				name)
		}
	}
	return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, nil
}

// ParseTypes reads a list of types in the form of the command's --types: column=type, separated by commas. A backslash
// before ',', '=' or '\' makes it part of a column's name. Types have their names in SQL, or DuckDB's, in letters of
// any case: those of TypeNames, and others such as varchar and int. A decimal is decimal(P,S); decimal alone is
// decimal(18,3).
func ParseTypes(s string) (Types, error) {
	out := Types{}
	for rest := s; ; {
		name, after, err := typedName(rest)
		if err != nil {
			return nil, fmt.Errorf("types %q: %w", s, err)
		}
		end := typeEnd(after)
		t, err := parseType(after[:end])
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("types %q: column %q is there twice", s, name)
		}
		out[name] = t
		if end == len(after) {
			return out, nil
		}
		rest = after[end+1:]
	}
}

// typedName reads a column's name up to its '='.
func typedName(s string) (name, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte(`,=\`, s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		case c == '\\':
			return "", "", fmt.Errorf(`a backslash stands before ',', '=' or '\' only`)
		case c == '=' && b.Len() > 0:
			return b.String(), s[i+1:], nil
		case c == '=' || c == ',':
			return "", "", fmt.Errorf("want column=type, separated by commas")
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("want column=type, separated by commas")
}

// typeEnd is where a type ends: at a comma that is in no brackets.
func typeEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth <= 0 {
				return i
			}
		}
	}
	return len(s)
}

// columnsOf are columns of these names, with the types that are given.
func columnsOf(names []string, types Types) []textColumn {
	columns := make([]textColumn, len(names))
	for i, name := range names {
		columns[i] = textColumn{name: name, given: types[name]}
	}
	return columns
}

// given tells whose type is given.
func given(columns []textColumn) []bool {
	out := make([]bool, len(columns))
	for i, c := range columns {
		out[i] = c.given != nil
	}
	return out
}

// checkUse tells which options no input has a use for, and which columns with a type none has.
func (o TextOptions) checkUse(readers ...*Reader) error {
	has := func(f Format) bool {
		return slices.ContainsFunc(readers, func(r *Reader) bool { return slices.Contains(r.formats, f) })
	}
	switch {
	case o.Delimiter != 0 && !has(CSV):
		return &OptionError{"a delimiter, and no input is CSV"}
	case (o.Quote != 0 || o.NoQuotes || o.Nulls != nil || o.NoHeader) && !has(CSV) && !has(TSV):
		return &OptionError{"a quote, words that are nulls or text without a header, and no input is CSV or TSV"}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		found, fixed := false, (*Reader)(nil)
		var all []string
		for _, r := range readers {
			all = append(all, columnNames(r.schema))
			if i := r.schema.FieldIndices(name); len(i) > 0 {
				if found = found || r.takes(i[0]); !r.takes(i[0]) {
					fixed = r
				}
			}
		}
		switch {
		case found:
		case fixed != nil:
			return &OptionError{fmt.Sprintf("a type for column %q, which has one in its file, %s: want a column of "+
				"text", name, fixed.schema.Field(fixed.schema.FieldIndices(name)[0]).Type)}
		default:
			return &OptionError{fmt.Sprintf("a type for column %q, which no input has; their columns: %s", name,
				strings.Join(all, "; "))}
		}
	}
	return nil
}

// warn calls Warn if names in the header of a file are numbers.
func (o TextOptions) warn(path string, f *csvFile) {
	const number = csvNegative | csvInt | csvUint | csvWide | csvFloat
	i := slices.IndexFunc(f.names, func(name string) bool {
		class := classify([]byte(name))
		return class != 0 && class&^number == 0
	})
	if i >= 0 && o.Warn != nil && !o.NoHeader {
		o.Warn(fmt.Sprintf("%s: the name of column %d is the number %s: if the first line is no header, say so "+
			"(--no-header)", path, i+1, f.names[i]))
	}
}

// otherDelimiter adds to the error of a column that is not there that a header of one column has what may stand between
// columns.
func (o TextOptions) otherDelimiter(err error, readers ...*Reader) error {
	for _, r := range readers {
		if r.schema.NumFields() != 1 || !slices.Equal(r.formats, []Format{CSV}) {
			continue
		}
		if i := strings.IndexAny(r.schema.Field(0).Name, ";\t|,"); i >= 0 {
			c := strings.ReplaceAll(r.schema.Field(0).Name[i:i+1], "\t", `\t`)
			return &OptionError{fmt.Sprintf("%v; if fields have %s between them, say so (--delimiter '%[2]s')", err, c)}
		}
	}
	return err
}

// takes tells whether the type of a column can be given: in text, and of folders' names.
func (r *Reader) takes(column int) bool {
	return column < len(r.made) && r.made[column].path != ""
}

// unfit is the error of a field that is not of the type that was given for its column.
func unfit(t *csvTokens, r, c int, typ arrow.DataType) error {
	f, _ := t.field(r, c)
	err := fmt.Errorf("%q is no %s", f[:min(len(f), 100)], sqlName(typ))
	return &lineError{line: 1 + countLines(t.b[:t.place(r, c)]), err: err, row: r}
}

// givenColumn makes a column of a type that was given.
func givenColumn(t *csvTokens, c int, typ arrow.DataType) (arrow.Array, error) {
	switch typ.ID() {
	case arrow.STRING:
		return csvStrings(t, c)
	case arrow.BOOL:
		return csvBools(t, c, typ, parseTruth, unfit)
	}
	return parserFor(typ)(t, c)
}

// parserFor makes the function that makes columns of a type; nil where there is none.
func parserFor(typ arrow.DataType) func(t *csvTokens, c int) (arrow.Array, error) {
	switch typ := typ.(type) {
	case *arrow.Int8Type:
		return fixedParser(typ, signed[int8](8))
	case *arrow.Int16Type:
		return fixedParser(typ, signed[int16](16))
	case *arrow.Int32Type:
		return fixedParser(typ, signed[int32](32))
	case *arrow.Int64Type:
		return fixedParser(typ, signed[int64](64))
	case *arrow.Uint8Type:
		return fixedParser(typ, unsigned[uint8](8))
	case *arrow.Uint16Type:
		return fixedParser(typ, unsigned[uint16](16))
	case *arrow.Uint32Type:
		return fixedParser(typ, unsigned[uint32](32))
	case *arrow.Uint64Type:
		return fixedParser(typ, unsigned[uint64](64))
	case *arrow.Float32Type:
		return fixedParser(typ, func(f []byte) (float32, bool) {
			v, err := strconv.ParseFloat(string(f), 32)
			return float32(v), err == nil && !goNumber(f)
		})
	case *arrow.Float64Type:
		return fixedParser(typ, func(f []byte) (float64, bool) {
			v, ok := parseFloat(f)
			return v, ok && !goNumber(f)
		})
	case *arrow.Decimal128Type:
		return fixedParser(typ, func(f []byte) (decimal128.Num, bool) { return parseDecimal(f, typ) })
	case *arrow.Date32Type:
		return fixedParser(typ, parseDate)
	case *arrow.Time64Type:
		return fixedParser(typ, parseTime)
	case *arrow.TimestampType:
		return fixedParser(typ, func(f []byte) (arrow.Timestamp, bool) { return parseInstant(f, typ) })
	case *extensions.UUIDType:
		return func(t *csvTokens, c int) (arrow.Array, error) { return uuids(t, c, typ) }
	case *arrow.BinaryType:
		return func(t *csvTokens, c int) (arrow.Array, error) { return blobs(t, c, typ) }
	}
	return nil
}

// goNumber tells that a number is one of Go's that SQL does not have: hexadecimal, or with underscores between digits.
func goNumber(f []byte) bool { return bytes.ContainsAny(f, "xX_") }

func fixedParser[T arrow.FixedWidthType](typ arrow.DataType, parse func(f []byte) (T, bool)) func(t *csvTokens,
	c int) (arrow.Array, error) {
	return func(t *csvTokens, c int) (arrow.Array, error) { return csvFixed(t, c, typ, parse, unfit) }
}

func signed[T int8 | int16 | int32 | int64](bits int) func(f []byte) (T, bool) {
	return func(f []byte) (T, bool) {
		v, ok := parseInt(f)
		if !ok {
			var err error
			if v, err = strconv.ParseInt(string(f), 10, bits); err != nil {
				return 0, false
			}
		}
		return T(v), int64(T(v)) == v
	}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](bits int) func(f []byte) (T, bool) {
	return func(f []byte) (T, bool) {
		v, err := strconv.ParseUint(strings.TrimPrefix(string(f), "+"), 10, bits)
		return T(v), err == nil
	}
}

// parseTruth reads a boolean as SQL's casts do.
func parseTruth(f []byte) (v, ok bool) {
	switch strings.ToLower(string(f)) {
	case "true", "t", "1":
		return true, true
	case "false", "f", "0":
		return false, true
	}
	return false, false
}

// parseDecimal reads a decimal whose digits the type has all.
func parseDecimal(f []byte, typ *arrow.Decimal128Type) (n decimal128.Num, ok bool) {
	negative := len(f) > 0 && f[0] == '-'
	if negative || len(f) > 0 && f[0] == '+' {
		f = f[1:]
	}
	whole, behind, _ := bytes.Cut(f, []byte{'.'})
	if len(whole)+len(behind) == 0 {
		return n, false
	}
	behind = bytes.TrimRight(behind, "0")
	whole = bytes.TrimLeft(whole, "0")
	if len(behind) > int(typ.Scale) || len(whole) > int(typ.Precision-typ.Scale) {
		return n, false
	}
	digits := make([]byte, 0, 40)
	digits = append(append(digits, whole...), behind...)
	digits = append(digits, "00000000000000000000000000000000000000"[:int(typ.Scale)-len(behind)]...)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return n, false
		}
	}
	if len(digits) <= 18 {
		v, _ := parseInt(append([]byte{'0'}[:1-min(1, len(digits))], digits...))
		n = decimal128.FromI64(v)
	} else {
		v, ok := new(big.Int).SetString(string(digits), 10)
		if !ok {
			return n, false
		}
		n = decimal128.FromBigInt(v)
	}
	if negative {
		n = n.Negate()
	}
	return n, true
}

// parseTime reads 15:04:05, with up to six decimals, and 24:00:00, the end of a day.
func parseTime(f []byte) (arrow.Time64, bool) {
	if bytes.HasPrefix(f, []byte("24:")) {
		t, ok := parseTime(append([]byte("00"), f[2:]...))
		return 86400e6, ok && t == 0
	}
	s, ok := parseStamp(append([]byte("1970-01-01 "), f...))
	return arrow.Time64(s.sec*1e6 + s.nano/1e3), ok && s.class == csvStamp
}

// parseInstant reads a date, or a date and a time that the type's unit holds. With a time zone, it reads an offset,
// too: Z, +02, +0200, or +02:00; without one, the time is in UTC.
func parseInstant(f []byte, typ *arrow.TimestampType) (arrow.Timestamp, bool) {
	s, ok := parseStamp(f)
	if !ok && len(f) == 10 {
		var days int64
		days, ok = civil(f)
		s = stamp{sec: days * 86400, class: csvStamp}
	}
	if !ok && typ.TimeZone != "" {
		s, ok = parseOffset(f)
	}
	unit := units[typ.Unit]
	if !ok || s.nano%unit != 0 || typ.TimeZone == "" && s.class&csvStampZ != 0 || unit == 1 && far(s.sec) {
		return 0, false
	}
	return arrow.Timestamp(s.sec*(1e9/unit) + s.nano/unit), true
}

// parseOffset reads a date and a time with an offset behind it. time.Parse reads the offset alone: of a time, it takes
// commas for points, hours of one digit, and any number of decimals, and forgets those behind the ninth.
func parseOffset(f []byte) (s stamp, ok bool) {
	for _, layout := range []string{"-07", "-0700", "-07:00"} {
		n := len(f) - len(layout)
		if n < 0 {
			continue
		}
		offset, err := time.Parse(layout, string(f[n:]))
		if s, ok = parseStamp(f[:n]); ok && err == nil && s.class&csvStampZ == 0 {
			_, east := offset.Zone()
			s.sec -= int64(east)
			return s, true
		}
	}
	return stamp{}, false
}

// uuids makes a column of UUIDs.
func uuids(t *csvTokens, c int, typ *extensions.UUIDType) (arrow.Array, error) {
	values := make([]byte, 16*t.rows)
	var nulls validity
	for r := range t.rows {
		f, quoted := t.field(r, c)
		if t.null(f, quoted) {
			nulls.null(r, t.rows)
			continue
		}
		if n := len(f); n == 38 && f[0] == '{' && f[n-1] == '}' {
			f = f[1 : n-1]
		}
		v, err := uuid.ParseBytes(f)
		if err != nil || len(f) > 36 { // the library takes more, and does not look at all of it
			return nil, unfit(t, r, c, typ)
		}
		copy(values[16*r:], v[:])
	}
	storage := nulls.array(typ.StorageType(), t.rows, values)
	defer storage.Release()
	return array.NewExtensionArrayWithStorage(typ, storage), nil
}

// blobs makes a column of binary values, as DuckDB writes them: ASCII stands for itself, and \x41 for a byte.
func blobs(t *csvTokens, c int, typ *arrow.BinaryType) (arrow.Array, error) {
	offsets, bytes := make([]int32, t.rows+1), []byte{}
	var nulls validity
	for r := range t.rows {
		f, quoted := t.field(r, c)
		if t.null(f, quoted) {
			nulls.null(r, t.rows)
			f = nil
		}
		for len(f) > 0 {
			b, size := f[0], 1
			if b == '\\' {
				if len(f) < 4 || f[1] != 'x' {
					return nil, unfit(t, r, c, typ)
				}
				v, err := strconv.ParseUint(string(f[2:4]), 16, 8)
				if err != nil {
					return nil, unfit(t, r, c, typ)
				}
				b, size = byte(v), 4
			} else if b >= 0x80 {
				return nil, unfit(t, r, c, typ)
			}
			bytes, f = append(bytes, b), f[size:]
		}
		if len(bytes) > math.MaxInt32 {
			return nil, errTooBig
		}
		offsets[r+1] = int32(len(bytes))
	}
	return nulls.array(typ, t.rows, arrow.GetBytes(offsets), bytes), nil
}

// oneValue is a column of one value of a type that can be given.
func oneValue(value string, typ arrow.DataType) (arrow.Array, error) {
	t := &csvTokens{b: []byte(value), n: 1, rows: 1, starts: []uint32{csvQuoted}, ends: []uint32{uint32(len(value))}}
	a, err := givenColumn(t, 0, typ)
	if e, ok := err.(*lineError); ok {
		return nil, e.err
	}
	return a, err
}

// readsAs tells whether a value is of a type that can be given.
func readsAs(value string, typ arrow.DataType) bool {
	a, err := oneValue(value, typ)
	if err != nil {
		return false
	}
	a.Release()
	return true
}
