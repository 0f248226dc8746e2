package columnar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Column is a column of a table, or of what comes for one.
type Column struct {
	Name     string
	Type     arrow.DataType
	Nullable bool
}

// kind is how the rows of a column lie in memory.
type kind uint8

const (
	fixed   kind = iota // width bytes each
	boolean             // a byte each here, and a bit each on the wire
	short               // bytes of any number, with offsets of 4 bytes
	long                // and of 8
)

// form is the memory of a column.
type form struct {
	kind  kind
	width int // bytes of a row; of texts 0
}

func (f form) text() bool { return f.kind == short || f.kind == long }

// mostWidth bounds a row of a column of fixed width.
const mostWidth = 1 << 10

// formOf gives the form of a type, or false if tables have no columns of it.
func formOf(t arrow.DataType) (form, bool) {
	switch t.ID() {
	case arrow.BOOL:
		return form{boolean, 1}, true
	case arrow.STRING, arrow.BINARY:
		return form{short, 0}, true
	case arrow.LARGE_STRING, arrow.LARGE_BINARY:
		return form{long, 0}, true
	case arrow.INT8, arrow.UINT8, arrow.INT16, arrow.UINT16, arrow.INT32, arrow.UINT32, arrow.INT64, arrow.UINT64,
		arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.DATE64, arrow.TIME32, arrow.TIME64,
		arrow.TIMESTAMP, arrow.DURATION, arrow.DECIMAL128, arrow.FIXED_SIZE_BINARY:
		bits := t.(arrow.FixedWidthDataType).BitWidth()
		ts, is := t.(*arrow.TimestampType)
		return form{fixed, bits / 8}, bits >= 8 && bits/8 <= mostWidth && (!is || len(ts.TimeZone) <= mostName)
	}
	return form{}, false
}

// fits tells whether a column of one type goes into one of the other. Texts with offsets of either width do.
func fits(want, got arrow.DataType) bool {
	isText := func(t arrow.DataType) bool { return t.ID() == arrow.STRING || t.ID() == arrow.LARGE_STRING }
	isBytes := func(t arrow.DataType) bool { return t.ID() == arrow.BINARY || t.ID() == arrow.LARGE_BINARY }
	return arrow.TypeEqual(want, got) || isText(want) && isText(got) || isBytes(want) && isBytes(got)
}

// Describe lists columns as Parse reads them: "id:int64,price:float64?".
func Describe(columns []Column) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(c.Name + ":" + typeName(c.Type))
		if c.Nullable {
			b.WriteByte('?')
		}
	}
	return b.String()
}

// types are the names of types that have no parameters. The first of a type is the one that Describe gives.
var types = []struct {
	typ   arrow.DataType
	names []string
}{
	{arrow.FixedWidthTypes.Boolean, []string{"bool", "boolean"}},
	{arrow.PrimitiveTypes.Int8, []string{"int8"}},
	{arrow.PrimitiveTypes.Int16, []string{"int16"}},
	{arrow.PrimitiveTypes.Int32, []string{"int32"}},
	{arrow.PrimitiveTypes.Int64, []string{"int64"}},
	{arrow.PrimitiveTypes.Uint8, []string{"uint8"}},
	{arrow.PrimitiveTypes.Uint16, []string{"uint16"}},
	{arrow.PrimitiveTypes.Uint32, []string{"uint32"}},
	{arrow.PrimitiveTypes.Uint64, []string{"uint64"}},
	{arrow.FixedWidthTypes.Float16, []string{"float16", "halffloat"}},
	{arrow.PrimitiveTypes.Float32, []string{"float32", "float"}},
	{arrow.PrimitiveTypes.Float64, []string{"float64", "double"}},
	{arrow.BinaryTypes.String, []string{"utf8", "string", "text"}},
	{arrow.BinaryTypes.LargeString, []string{"large_utf8", "large_string"}},
	{arrow.BinaryTypes.Binary, []string{"binary", "bytes"}},
	{arrow.BinaryTypes.LargeBinary, []string{"large_binary"}},
	{arrow.FixedWidthTypes.Date32, []string{"date32", "date"}},
	{arrow.FixedWidthTypes.Date64, []string{"date64"}},
}

// units are those of times, in the order of arrow.TimeUnit.
var units = []string{"s", "ms", "us", "ns"}

func typeName(t arrow.DataType) string {
	for _, n := range types {
		if arrow.TypeEqual(n.typ, t) {
			return n.names[0]
		}
	}
	switch t := t.(type) {
	case *arrow.TimestampType:
		if t.TimeZone != "" {
			return fmt.Sprintf("timestamp[%s,%s]", units[t.Unit], t.TimeZone)
		}
		return fmt.Sprintf("timestamp[%s]", units[t.Unit])
	case *arrow.Time32Type:
		return fmt.Sprintf("time[%s]", units[t.Unit])
	case *arrow.Time64Type:
		return fmt.Sprintf("time[%s]", units[t.Unit])
	case *arrow.DurationType:
		return fmt.Sprintf("duration[%s]", units[t.Unit])
	case *arrow.Decimal128Type:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case *arrow.FixedSizeBinaryType:
		return fmt.Sprintf("binary[%d]", t.ByteWidth)
	}
	return t.String()
}

// TypeNames lists the types that Parse reads.
func TypeNames() string {
	var names []string
	for _, t := range types {
		names = append(names, t.names[0])
	}
	return strings.Join(names, ", ") + ", timestamp[us], timestamp[us,UTC], time[us], duration[us] " +
		"(and s, ms or ns), decimal(18,3), binary[16]"
}

// parseType reads a type's name. What it reads has a form.
func parseType(name string) (arrow.DataType, error) {
	name = strings.TrimSpace(name)
	for _, t := range types {
		if slices.Contains(t.names, name) {
			return t.typ, nil
		}
	}
	unknown := fmt.Errorf("a type %q: want one of %s", name, TypeNames())
	base, rest, _ := strings.Cut(name, "[")
	inner, closed := strings.CutSuffix(rest, "]")
	if !closed {
		base, rest, _ = strings.Cut(name, "(")
		if inner, closed = strings.CutSuffix(rest, ")"); !closed || base != "decimal" {
			return nil, unknown
		}
		digits, behind, _ := strings.Cut(inner, ",")
		precision, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 8)
		scale, scaleErr := strconv.ParseUint(strings.TrimSpace(behind), 10, 8)
		if err != nil || scaleErr != nil || precision < 1 || precision > 38 || scale > precision {
			return nil, unknown
		}
		return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, nil
	}
	if base == "binary" {
		n, err := strconv.ParseUint(inner, 10, 32)
		if err != nil || n < 1 || n > mostWidth {
			return nil, unknown
		}
		return &arrow.FixedSizeBinaryType{ByteWidth: int(n)}, nil
	}
	unitName, zone, _ := strings.Cut(inner, ",")
	at := slices.Index(units, strings.TrimSpace(unitName))
	if at < 0 || zone != "" && base != "timestamp" {
		return nil, unknown
	}
	unit := arrow.TimeUnit(at)
	switch {
	case base == "timestamp" && len(strings.TrimSpace(zone)) > mostName:
		return nil, fmt.Errorf("a time zone of %d bytes: want %d at most", len(strings.TrimSpace(zone)), mostName)
	case base == "timestamp":
		return &arrow.TimestampType{Unit: unit, TimeZone: strings.TrimSpace(zone)}, nil
	case base == "duration":
		return &arrow.DurationType{Unit: unit}, nil
	case base == "time" && unit <= arrow.Millisecond:
		return &arrow.Time32Type{Unit: unit}, nil
	case base == "time":
		return &arrow.Time64Type{Unit: unit}, nil
	}
	return nil, unknown
}

// Parse reads a list of columns: name:type, separated by commas, with a '?' behind a type whose column may have nulls.
// Errors say what is wanted.
func Parse(s string) (columns []Column, err error) {
	for rest := s; ; {
		name, after, is := strings.Cut(rest, ":")
		if name = strings.TrimSpace(name); !is || name == "" || strings.Contains(name, ",") {
			return nil, fmt.Errorf("columns %q: want name:type, separated by commas, such as id:int64,price:float64?",
				s)
		}
		end := typeEnd(after)
		typ, nullable := strings.CutSuffix(strings.TrimSpace(after[:end]), "?")
		t, err := parseType(typ)
		if err != nil {
			return nil, fmt.Errorf("columns %q: %w", s, err)
		}
		if slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name }) {
			return nil, fmt.Errorf("columns %q: two are named %q: want names that differ", s, name)
		}
		columns = append(columns, Column{name, t, nullable})
		if len(columns) > mostColumns {
			return nil, fmt.Errorf("more than %d columns", mostColumns)
		}
		if end == len(after) {
			return columns, nil
		}
		rest = after[end+1:]
	}
}

// typeEnd is where a type ends: at a comma that is in no brackets.
func typeEnd(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth <= 0 {
				return i
			}
		}
	}
	return len(s)
}

// mostColumns bounds the columns of a table, and of what comes for one.
const mostColumns = 1000

// Schema says what a table has.
type Schema struct {
	Name   string
	Keys   []Column // at least one; none may have nulls
	Values []Column // none: the table is a set
}

// Found is the column of replies that tells whether a key was found.
const Found = "found"

// NameError says that a table of some columns was to have one that is not among them.
type NameError struct {
	Table, Column string
	Columns       []Column
}

func (e *NameError) Error() string {
	return fmt.Sprintf("table %q: no column %q: the columns are %s", e.Table, e.Column, Describe(e.Columns))
}

// Split makes a schema of columns: the keys are those of the names, in their order, and the values those of the other
// names, or where these are nil all columns that are no keys. Errors: *NameError; a schema that no table has.
func Split(name string, columns []Column, keys, values []string) (s Schema, err error) {
	s.Name = name
	take := func(names []string) (out []Column, err error) {
		for _, n := range names {
			at := slices.IndexFunc(columns, func(c Column) bool { return c.Name == n })
			if at < 0 {
				return nil, &NameError{name, n, columns}
			}
			out = append(out, columns[at])
		}
		return out, nil
	}
	if s.Keys, err = take(keys); err != nil {
		return s, err
	}
	for i := range s.Keys {
		s.Keys[i].Nullable = false
	}
	if values == nil {
		for _, c := range columns {
			if !slices.Contains(keys, c.Name) {
				s.Values = append(s.Values, c)
			}
		}
	} else if s.Values, err = take(values); err != nil {
		return s, err
	}
	return s, s.check()
}

// mostName bounds a table's name.
const mostName = 100

// check tells of a schema that no table has.
func (s *Schema) check() error {
	if s.Name == "" || len(s.Name) > mostName || strings.Trim(s.Name, nameLetters) != "" || s.Name[0] == '.' {
		return fmt.Errorf("a table's name %q: want 1 to %d letters, digits, '_', '-' and '.', the first of which is "+
			"no '.'", s.Name, mostName)
	}
	if len(s.Keys) == 0 {
		return fmt.Errorf("table %q: no key columns: want one or several", s.Name)
	}
	if n := len(s.Keys) + len(s.Values); n > mostColumns {
		return fmt.Errorf("table %q: %d columns: want %d at most", s.Name, n, mostColumns)
	}
	seen := map[string]bool{Found: true}
	for i, c := range s.All() {
		if _, ok := formOf(c.Type); !ok {
			return fmt.Errorf("table %q: column %q is of type %s: tables have %s", s.Name, c.Name, c.Type, TypeNames())
		}
		if c.Name == "" || len(c.Name) > 10*mostName || seen[c.Name] {
			return fmt.Errorf("table %q: column %q: want names that differ from one another and from %q, of 1 to %d "+
				"bytes", s.Name, c.Name, Found, 10*mostName)
		}
		seen[c.Name] = true
		if i < len(s.Keys) && c.Nullable {
			return fmt.Errorf("table %q: key column %q may have nulls: want none in keys", s.Name, c.Name)
		}
	}
	return nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// All are the key columns and the value columns.
func (s *Schema) All() []Column { return slices.Concat(s.Keys, s.Values) }

// Reply is what Find gives: the value columns, which are null where the key is absent, and Found.
func (s *Schema) Reply() []Column {
	out := slices.Clone(s.Values)
	for i := range out {
		out[i].Nullable = true
	}
	return append(out, Column{Name: Found, Type: arrow.FixedWidthTypes.Boolean})
}

// Match says where the wanted columns are among those that came, which may be in any order. The error names both.
func (s *Schema) Match(want, got []Column) (order []int, err error) {
	for _, w := range want {
		at := slices.IndexFunc(got, func(c Column) bool { return c.Name == w.Name })
		if at < 0 || !fits(w.Type, got[at].Type) {
			break
		}
		order = append(order, at)
	}
	if len(order) != len(want) || len(got) != len(want) {
		return nil, &SchemaError{s.Name, Describe(want), Describe(got)}
	}
	return order, nil
}

// SchemaError says that columns do not fit a table.
type SchemaError struct{ Table, Want, Got string }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the columns %s do not fit table %q: want %s, in any order", e.Got, e.Table, e.Want)
}
