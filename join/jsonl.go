package join

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/go-json-experiment/json/jsontext"
)

// openJSON reads JSON lines to their end and finds the columns, what made each its type where none is given, and the
// number of rows. Where alone is set, it says which columns are wanted, and a glance at the first rows is enough: all
// others are text, and the number of rows is unknown.
func openJSON(src textSource, given Types, alone func(name string) bool, anyBytes bool) (*textFile, error) {
	if alone != nil {
		if f, err := glanceJSON(src, given, alone, anyBytes); f != nil || err != nil {
			return f, err
		}
	}
	in, err := src()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f := &textFile{}
	next, stop := jsonBlocks(in, func(b []byte) (*textBatch, error) { return jsonClasses(b, anyBytes) })
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
	f.readJSON(src, nil, anyBytes)
	return f, nil
}

// readJSON has the file read its columns, which are all that it may have unless allowed tells what values of each may
// be: see csvFile.
func (f *textFile) readJSON(src textSource, allowed []int, anyBytes bool) {
	names, given := make([]string, len(f.columns)), make([]bool, len(f.columns))
	for i, c := range f.columns {
		names[i], given[i] = c.name, c.given != nil
	}
	f.read = func(types []arrow.DataType, schema *arrow.Schema) (next func() (arrow.RecordBatch, error), stop func(),
		err error) {
		in, err := src()
		if err != nil {
			return nil, nil, err
		}
		block, end := jsonBlocks(in, func(b []byte) (*textBatch, error) {
			return jsonColumns(b, names, types, given, allowed, anyBytes)
		})
		return records(schema, 0, block), func() { end(); in.Close() }, nil
	}
}

// glanceJSON makes a file by its first rows. It gives none if that is not enough: if those are all, if a column that is
// wanted has no value there, or one whose type is given is not there, or if something is wrong with them.
func glanceJSON(src textSource, given Types, wanted func(name string) bool, anyBytes bool) (*textFile, error) {
	in, err := src()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b := make([]byte, textBlock)
	if _, err := readTo(in, b); err != nil {
		return nil, nil
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	some, err := jsonClasses(b, anyBytes)
	if err != nil || some.rows == 0 {
		return nil, nil
	}
	f := &textFile{rows: -1, rowBytes: float64(len(b)) / float64(some.rows)}
	for _, name := range some.names {
		f.columns = append(f.columns, textColumn{name: name, given: given[name]})
	}
	for _, s := range some.sightings {
		f.columns[s.column].see(s, 0)
	}
	allowed, enough := make([]int, len(f.columns)), false
	for name := range given {
		if !slices.Contains(some.names, name) {
			return nil, nil
		}
	}
	for i, c := range f.columns {
		switch {
		case !wanted(c.name):
			f.columns[i].seen |= csvText
			continue
		case c.given == nil && c.seen == 0:
			return nil, nil
		case c.given == nil:
			allowed[i] = alike(c.seen)
		}
		enough = true
	}
	if !enough {
		return nil, nil
	}
	f.readJSON(src, allowed, anyBytes)
	return f, nil
}

func jsonBlocks(in io.Reader, work func(b []byte) (*textBatch, error)) (next func() (*textBatch, error), stop func()) {
	return inOrder(unread, func(send func(textPart) bool) error {
		return blocks(in, func(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }, send)
	}, func(s textPart) (*textBatch, error) {
		b := s.records
		defer spare(s.room)
		return work(b)
	})
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
func jsonClasses(b []byte, anyBytes bool) (*textBatch, error) {
	out := &textBatch{}
	var seen []int
	scan := newJSONScan(func(name string) (int, error) {
		out.names, seen = append(out.names, name), append(seen, 0)
		return len(seen) - 1, nil
	}, anyBytes)
	var text []byte
	rows, err := scan.each(b, func(_, c int, value []byte, place int) (err error) {
		if value[0] == 'n' || seen[c]&csvText != 0 {
			return nil
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
	out.rows, out.lines = rows, scan.lines
	return out, err
}

// textOf is a value as text: a string's own, the JSON of all others. Bytes that are not UTF-8 stay as they are.
func textOf(to, value []byte) ([]byte, error) {
	if value[0] != '"' {
		return append(to, value...), nil
	}
	text, err := jsontext.AppendUnquote(to, value)
	if err == nil || utf8.Valid(value) {
		return text, err
	}
	piece := value[:1:1] // of UTF-8
	for i := 1; i < len(value); {
		r, n := utf8.DecodeRune(value[i:])
		wrong := r == utf8.RuneError && n == 1
		if last := i == len(value)-1; wrong || last {
			if to, err = jsontext.AppendUnquote(to, append(piece, '"')); err != nil {
				return to, err
			}
			piece = piece[:1]
		} else {
			piece = append(piece, value[i:i+n]...)
		}
		if wrong {
			to = append(to, value[i])
		}
		i += n
	}
	return to, nil
}

// jsonColumns makes columns of a block's values, as if they were the fields of CSV. given tells whose type was given.
// allowed, where it is not nil, tells what other values may be, by column; 0 is anything.
func jsonColumns(b []byte, names []string, types []arrow.DataType, given []bool, allowed []int,
	anyBytes bool) (*textBatch, error) {
	known, wanted := map[string]int{}, []int{}
	for i, name := range names {
		if known[name] = -1; types[i] != nil {
			known[name] = len(wanted)
			wanted = append(wanted, i)
		}
	}
	scan := newJSONScan(func(name string) (int, error) {
		c, ok := known[name]
		if !ok && allowed == nil {
			return 0, fmt.Errorf("a member %q that was not there: the file changed while it was read", name)
		}
		if !ok {
			c = -1
		}
		return c, nil
	}, anyBytes)
	t := tokens.Get().(*csvTokens)
	defer tokens.Put(t)
	t.b, t.dialect = grab[byte](len(b))[:0], dialect{}
	defer func() { spare(t.b) }()
	t.empty(len(wanted))
	rows, err := scan.each(b, func(row, at int, value []byte, _ int) (err error) {
		if value[0] == 'n' {
			return nil
		}
		t.upTo(row + 1)
		start := len(t.b)
		if t.b, err = textOf(t.b, value); err != nil {
			return err
		}
		if len(t.b) > math.MaxInt32 {
			return errTooBig
		}
		if c := wanted[at]; allowed != nil && allowed[c] != 0 && allowed[c]&csvText == 0 {
			if text := t.b[start:]; jsonClass(value, text)&^allowed[c] != 0 {
				return fmt.Errorf("column %q: %q is no %s, as in the first rows: name the type (--types)", names[c],
					text[:min(len(text), 100)], types[c])
			}
		}
		t.starts[row*t.n+at], t.ends[row*t.n+at] = uint32(start)|csvQuoted, uint32(len(t.b))
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &textBatch{rows: rows, lines: scan.lines}
	t.upTo(rows) // the last objects may have no members
	for at, c := range wanted {
		column, err := csvColumn(t, at, types[c], given[c])
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
	newJSONScan(func(string) (int, error) { return 0, nil }, true).each(b, func(r, _ int, _ []byte, place int) error {
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
		*array.Decimal32, *array.Decimal64, *array.Decimal128, *array.Decimal256:
		text := csvCell(a, ',')
		return func(b []byte, i int) ([]byte, error) { return text(b, i), nil }
	case *array.Float32:
		return func(b []byte, i int) ([]byte, error) { return jsonFloat(b, float64(a.Value(i)), 32), nil }
	case *array.Float64:
		return func(b []byte, i int) ([]byte, error) { return jsonFloat(b, a.Value(i), 64), nil }
	case *array.Date32, *array.Date64, *array.Time32, *array.Time64, *array.Timestamp:
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
