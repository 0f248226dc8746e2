package join

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/go-json-experiment/json/jsontext"
)

// openJSON reads JSON lines to their end and finds the columns, what made each its type where none is given, and the
// number of rows.
func openJSON(src textSource, given Types) (*textFile, error) {
	in, err := src()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f := &textFile{}
	next, stop := jsonBlocks(in, jsonClasses)
	defer stop()
	places := map[string]int{}
	for lines := int64(0); ; {
		b, err := next()
		if err == io.EOF && len(f.columns) == 0 {
			return nil, errors.New("no object with a member: the file is empty")
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, after(err, lines)
		}
		for _, name := range b.names {
			if _, ok := places[name]; !ok {
				places[name] = len(f.columns)
				f.columns = append(f.columns, textColumn{name: name, given: given[name]})
			}
		}
		for _, s := range b.sightings {
			f.columns[places[b.names[s.column]]].see(s, lines)
		}
		lines += b.lines
		f.rows += int64(b.rows)
	}
	names, fixed := make([]string, len(f.columns)), make([]bool, len(f.columns))
	for i, c := range f.columns {
		names[i], fixed[i] = c.name, c.given != nil
	}
	f.read = func(types []arrow.DataType, schema *arrow.Schema) (next func() (arrow.RecordBatch, error), stop func(),
		err error) {
		in, err := src()
		if err != nil {
			return nil, nil, err
		}
		block, end := jsonBlocks(in, func(b []byte) (*textBatch, error) { return jsonColumns(b, names, types, fixed) })
		return records(schema, 0, block), func() { end(); in.Close() }, nil
	}
	return f, nil
}

func jsonBlocks(in io.Reader, work func(b []byte) (*textBatch, error)) (next func() (*textBatch, error), stop func()) {
	return inOrder(unread, func(send func(textPart) bool) error {
		return blocks(in, func(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }, send)
	}, func(s textPart) (*textBatch, error) {
		b := s.records
		out, err := work(b)
		if err == nil {
			out.lines = int64(bytes.Count(b, []byte{'\n'}))
		}
		return out, err
	})
}

// eachMember calls member with the members of the objects in b, one a line, and their row.
func eachMember(b []byte, member func(row int, name, value []byte, place int) error) (rows int, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(nil))
	for from := 0; from < len(b); {
		to := len(b)
		if i := bytes.IndexByte(b[from:], '\n'); i >= 0 {
			to = from + i
		}
		line := bytes.TrimPrefix(b[from:to], bom)
		if len(bytes.Trim(line, " \t\r")) > 0 {
			d.Reset(bytes.NewBuffer(line))
			if err := object(d, func(name, value []byte) error { return member(rows, name, value, from) }); err != nil {
				return rows, at(b, from, err)
			}
			rows++
		}
		from = to + 1
	}
	return rows, nil
}

// object reads a line.
func object(d *jsontext.Decoder, member func(name, value []byte) error) error {
	t, err := d.ReadToken()
	if err != nil {
		return plainly(err)
	}
	if t.Kind() == '[' {
		return errors.New("an array, where each line should be an object: jq -c '.[]' makes such lines of an array")
	}
	if t.Kind() != '{' {
		return fmt.Errorf("%s, where each line should be an object", t)
	}
	var name []byte
	for d.PeekKind() == '"' {
		v, err := d.ReadValue()
		if err != nil {
			return plainly(err)
		}
		name = append(name[:0], v...)
		if v, err = d.ReadValue(); err != nil {
			return plainly(err)
		}
		if err := member(name, v); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return plainly(err)
	}
	if _, err := d.ReadToken(); err == nil {
		return errors.New("more than one value in a line")
	} else if err != io.EOF {
		return plainly(err)
	}
	return nil
}

// plainly is what a decoder says of a line, without what it says of itself.
func plainly(err error) error {
	var s *jsontext.SyntacticError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: the line ends before the object does")
	} else if errors.As(err, &s) {
		return fmt.Errorf("not JSON: %w, behind %d bytes", s.Err, s.ByteOffset)
	}
	return err
}

// members finds the columns of names, whatever the escapes that they are written with.
type members struct {
	raw   map[string]int // by the name as it is written
	place func(name string) int
}

func (m *members) of(name []byte) (int, error) {
	if i, ok := m.raw[string(name)]; ok {
		return i, nil
	}
	text, err := jsontext.AppendUnquote(nil, name)
	if err != nil {
		return 0, err
	}
	i := m.place(string(text))
	m.raw[string(name)] = i
	return i, nil
}

// jsonClass says what a value is.
func jsonClass(value, text []byte) int {
	switch value[0] {
	case 't', 'f':
		return csvBool
	case '{', '[':
		return csvText
	case '"':
		if len(text) > 0 {
			if class := classify(text); class&(csvDate|csvStamp|csvStampZ|csvNano|csvFar) == class ||
				parsesSpecial(text) {
				return class
			}
		}
		return csvText
	}
	return classify(value)
}

func parsesSpecial(f []byte) bool {
	_, ok := parseSpecial(f)
	return ok
}

// jsonClasses finds the columns of a block, and what their values are.
func jsonClasses(b []byte) (*textBatch, error) {
	out := &textBatch{}
	var seen []int
	at := &members{map[string]int{}, nil}
	places := map[string]int{}
	at.place = func(name string) int {
		if i, ok := places[name]; ok {
			return i
		}
		places[name] = len(seen)
		out.names, seen = append(out.names, name), append(seen, 0)
		return len(seen) - 1
	}
	var text []byte
	rows, err := eachMember(b, func(_ int, name, value []byte, place int) (err error) {
		c, err := at.of(name)
		if err != nil || value[0] == 'n' || seen[c]&csvText != 0 {
			return err
		}
		if text, err = textOf(text[:0], value); err != nil {
			return err
		}
		if class := jsonClass(value, text); seen[c]|class != seen[c] {
			seen[c] |= class
			out.sightings = append(out.sightings, sighting{c, class, 1 + int64(bytes.Count(b[:place], []byte{'\n'})),
				string(text[:min(len(text), 100)])})
		}
		return nil
	})
	out.rows = rows
	return out, err
}

// textOf is a value as text: a string's own, the JSON of all others.
func textOf(to, value []byte) ([]byte, error) {
	if value[0] == '"' {
		return jsontext.AppendUnquote(to, value)
	}
	return append(to, value...), nil
}

// jsonColumns makes columns of a block's values, as if they were the fields of CSV. given tells whose type was given.
func jsonColumns(b []byte, names []string, types []arrow.DataType, given []bool) (*textBatch, error) {
	known := map[string]int{}
	for i, name := range names {
		known[name] = i
	}
	at := &members{map[string]int{}, func(name string) int {
		if i, ok := known[name]; ok {
			return i
		}
		return -1
	}}
	t := tokens.Get().(*csvTokens)
	defer tokens.Put(t)
	t.b, t.dialect = make([]byte, 0, len(b)), dialect{}
	t.empty(len(names))
	rows, err := eachMember(b, func(row int, name, value []byte, _ int) error {
		t.upTo(row + 1)
		c, err := at.of(name)
		if err != nil {
			return err
		}
		if c < 0 {
			return fmt.Errorf("a member %s that was not there: the file changed while it was read", name)
		}
		if types[c] == nil || value[0] == 'n' {
			return nil
		}
		start := len(t.b)
		if t.b, err = textOf(t.b, value); err != nil {
			return err
		}
		if len(t.b) > math.MaxInt32 {
			return errTooBig
		}
		t.starts[row*t.n+c], t.ends[row*t.n+c] = uint32(start)|csvQuoted, uint32(len(t.b))
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &textBatch{rows: rows}
	t.upTo(rows) // the last objects may have no members
	for c, typ := range types {
		if typ == nil {
			continue
		}
		column, err := csvColumn(t, c, typ, given[c])
		if err != nil {
			if e, ok := err.(*lineError); ok { // its line is not that of the file
				e.line = jsonLine(b, e.row)
			}
			return nil, ofColumn(err, names[c])
		}
		out.columns = append(out.columns, column)
	}
	return out, nil
}

// jsonLine is the line of a block that has a row.
func jsonLine(b []byte, row int) (line int64) {
	eachMember(b, func(r int, _, _ []byte, place int) error {
		if r == row {
			line = 1 + int64(bytes.Count(b[:place], []byte{'\n'}))
		}
		return nil
	})
	return line
}

// jsonRows writes rows as JSON lines: an object a line, with all columns, nulls too. Dates and times are strings as in
// CSV, and so are floats that JSON has no numbers for, and binary values, as base64.
type jsonRows struct{}

func (jsonRows) head(b []byte, schema *arrow.Schema) ([]byte, error) {
	names := map[string]bool{}
	for _, f := range schema.Fields() {
		if names[f.Name] {
			return nil, fmt.Errorf("two columns %q: a JSON object has a name once", f.Name)
		}
		names[f.Name] = true
	}
	return b, nil
}

func (jsonRows) rows(b []byte, rec arrow.RecordBatch) ([]byte, error) {
	names, cells := make([][]byte, rec.NumCols()), make([]func(b []byte, i int) ([]byte, error), rec.NumCols())
	for c := range names {
		name, err := jsontext.AppendQuote([]byte(",")[:1], rec.ColumnName(c))
		if err != nil {
			return nil, fmt.Errorf("the name of column %d is not UTF-8", c+1)
		}
		if c == 0 {
			name[0] = '{'
		}
		names[c], cells[c] = append(name, ':'), jsonCell(rec.Column(c))
	}
	for i := range int(rec.NumRows()) {
		if len(cells) == 0 {
			b = append(b, '{')
		}
		for c, cell := range cells {
			b = append(b, names[c]...)
			if rec.Column(c).IsNull(i) {
				b = append(b, "null"...)
				continue
			}
			var err error
			if b, err = cell(b, i); err != nil {
				return nil, fmt.Errorf("as JSON: column %q: %w", rec.ColumnName(c), err)
			}
		}
		b = append(b, "}\n"...)
	}
	return b, nil
}

// jsonCell makes a function that writes values of a column that are not null.
func jsonCell(a arrow.Array) func(b []byte, i int) ([]byte, error) {
	switch a := a.(type) {
	case *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Uint8, *array.Uint16, *array.Uint32,
		*array.Uint64, *array.Boolean,
		*array.Decimal128, *array.Decimal256:
		text := csvCell(a, ',')
		return func(b []byte, i int) ([]byte, error) { return text(b, i), nil }
	case *array.Float32:
		return func(b []byte, i int) ([]byte, error) { return jsonFloat(b, float64(a.Value(i)), 32), nil }
	case *array.Float64:
		return func(b []byte, i int) ([]byte, error) { return jsonFloat(b, a.Value(i), 64), nil }
	case *array.Date32, *array.Date64, *array.Timestamp:
		text := csvCell(a, ',')
		return func(b []byte, i int) ([]byte, error) { return append(text(append(b, '"'), i), '"'), nil }
	case *array.String:
		return func(b []byte, i int) ([]byte, error) { return jsonString(b, a.Value(i)) }
	case *array.LargeString:
		return func(b []byte, i int) ([]byte, error) { return jsonString(b, a.Value(i)) }
	case *array.StringView:
		return func(b []byte, i int) ([]byte, error) { return jsonString(b, a.Value(i)) }
	case *array.Dictionary:
		cell := jsonCell(a.Dictionary())
		return func(b []byte, i int) ([]byte, error) {
			if k := a.GetValueIndex(i); a.Dictionary().IsValid(k) {
				return cell(b, k)
			}
			return append(b, "null"...), nil
		}
	}
	return func(b []byte, i int) ([]byte, error) {
		text, err := json.Marshal(a.GetOneForMarshal(i))
		return append(b, text...), err
	}
}

func jsonFloat(b []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(appendFloat(append(b, '"'), v, bits), '"')
	}
	return appendFloat(b, v, bits)
}

func jsonString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%q is not UTF-8", s[:min(len(s), 100)])
	}
	return jsontext.AppendQuote(b, s)
}
