package join

import (
	"bytes"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// From CSV to CSV most values are written as they were read. Such columns of one side that stand side by side in the
// output are a strip: one column of text, which has them as they will stand there, with what stands between them. A
// row of a strip is copied at once, however many columns it has, and where nothing has quotes it is the line itself.

// inStrips gives a plan for an output of CSV, in which columns are strips wherever they can be.
func (p *output) inStrips(build, probe *Reader, delimiter byte) *output {
	out := &output{written: p.schema}
	strips := map[bool][][]int{}
	var fields []arrow.Field
	for i := 0; i < len(p.columns); {
		from := p.columns[i]
		r := probe
		if from.build {
			r = build
		}
		if !r.carries(from.at) {
			fields, out.columns = append(fields, p.schema.Field(i)), append(out.columns, from)
			out.widths = append(out.widths, 0)
			i++
			continue
		}
		var strip []int
		for ; i < len(p.columns) && p.columns[i].build == from.build && r.carries(p.columns[i].at); i++ {
			strip = append(strip, p.columns[i].at)
		}
		fields = append(fields, arrow.Field{Name: "strip", Type: arrow.BinaryTypes.String, Nullable: true})
		out.columns = append(out.columns, source{from.build, r.schema.NumFields() + len(strips[from.build])})
		out.widths = append(out.widths, len(strip))
		strips[from.build] = append(strips[from.build], strip)
	}
	out.schema = arrow.NewSchema(fields, nil)
	build.addStrips(strips[true], delimiter)
	probe.addStrips(strips[false], delimiter)
	return out
}

// carries tells that the values of a column are written to CSV as they were read, but for quotes.
func (r *Reader) carries(column int) bool {
	if r.text == nil || r.text.csv == nil || column >= len(r.columns) {
		return false
	}
	c := r.columns[column]
	switch c.typ().ID() {
	case arrow.STRING:
		return true
	case arrow.NULL, arrow.INT64, arrow.UINT64, arrow.DATE32: // what would be spelled in another way is of no such type
		return c.given == nil
	}
	return false
}

// addStrips adds strips of these columns behind the reader's, for an output with that delimiter.
func (r *Reader) addStrips(strips [][]int, delimiter byte) {
	if len(strips) == 0 {
		return
	}
	fields := r.schema.Fields()
	for range strips {
		name := "#"
		for arrow.NewSchema(fields, nil).HasField(name) {
			name += "#"
		}
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
	}
	r.schema = arrow.NewSchema(fields, nil)
	r.text.csv.strips, r.text.csv.between = strips, delimiter
}

// strip makes a column of a block's rows of these columns, as they stand in an output.
func (t *csvTokens) strip(columns []int, delimiter byte) (arrow.Array, error) {
	first, last := columns[0], columns[len(columns)-1]
	beside := delimiter == t.delimiter && t.nulls == nil
	for i, c := range columns {
		beside = beside && c == first+i
	}
	size := 0
	for r := range t.rows {
		row := r * t.n
		if beside { // and the quotes at both ends
			size += int(t.ends[row+last]&csvPlace) - int(t.starts[row+first]&csvPlace) + 2
			continue
		}
		for _, c := range columns {
			size += int(t.ends[row+c]&csvPlace) - int(t.starts[row+c]&csvPlace) + 1
		}
	}
	quotes := bytes.IndexByte(t.b, '"') >= 0
	offsets, text := make([]int32, t.rows+1), make([]byte, 0, size)
	for r := range t.rows {
		done := false
		if beside {
			var from, to uint32
			if from, to, done = t.plain(r, first, last, quotes); done {
				text = append(text, t.b[from:to]...)
			}
		}
		for i := 0; i < len(columns) && !done; i++ {
			if i > 0 {
				text = append(text, delimiter)
			}
			if f, quoted := t.field(r, columns[i]); !t.null(f, quoted) {
				text = appendCSV(text, f, delimiter)
			}
		}
		if len(text) > math.MaxInt32 {
			return nil, errTooBig
		}
		offsets[r+1] = int32(len(text))
	}
	var none validity
	return none.array(arrow.BinaryTypes.String, t.rows, arrow.GetBytes(offsets), text), nil
}

// plain tells where a row's fields of adjacent columns stand, and whether an output has them just so: none has quotes,
// or needs them. quotes says that there are some in the block.
func (t *csvTokens) plain(row, first, last int, quotes bool) (from, to uint32, ok bool) {
	starts := t.starts[row*t.n+first : row*t.n+last+1]
	from, to = starts[0]&csvPlace, t.ends[row*t.n+last]&csvPlace
	for _, s := range starts {
		if s >= csvQuoted {
			return from, to, false
		}
		if int(s) < len(t.b) && (t.b[s] == ' ' || t.b[s] == 0xef) {
			return from, to, false
		}
	}
	return from, to, !quotes || bytes.IndexByte(t.b[from:to], '"') < 0
}
