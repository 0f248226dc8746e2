package join

import (
	"bytes"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// csvRows writes rows of CSV: a null is an empty field and an empty string "". In a file of one column a null is a
// blank line.
type csvRows struct {
	delimiter byte
	widths    []int // of strips, how many columns they have, and 0 for other columns; nil where there are no strips
}

func (w csvRows) head(b []byte, schema *arrow.Schema) ([]byte, error) {
	for i, f := range schema.Fields() {
		if i > 0 {
			b = append(b, w.delimiter)
		}
		if f.Name == "" && schema.NumFields() > 1 {
			continue
		}
		b = appendCSV(b, f.Name, w.delimiter)
	}
	return append(b, '\n'), nil
}

func (w csvRows) rows(b []byte, rec arrow.RecordBatch) ([]byte, error) {
	cells, size := make([]cell, rec.NumCols()), 0
	for c := range cells {
		if w.widths != nil && w.widths[c] > 0 {
			cells[c] = w.strip(rec.Column(c), w.widths[c])
		} else {
			cells[c] = w.cell(rec.Column(c))
		}
		size += len(cells[c].text) + int(rec.NumRows())
	}
	b = widen(b, size)
	for i := range int(rec.NumRows()) {
		for c := range cells {
			if c > 0 {
				b = append(b, w.delimiter)
			}
			b = cells[c].append(b, i)
		}
		b = append(b, '\n')
	}
	return b, nil
}

// cell writes the values of a column.
type cell struct {
	valid   []byte // the column's bitmap; nil without nulls
	offset  int
	offsets []int32 // of text that can be written as it is, but for empty strings
	text    []byte
	strip   []byte                       // of a strip: what a null is
	write   func(b []byte, i int) []byte // of all else
}

func (c *cell) append(b []byte, i int) []byte {
	if c.valid != nil && !bitutil.BitIsSet(c.valid, c.offset+i) {
		return append(b, c.strip...)
	}
	if c.write != nil {
		return c.write(b, i)
	}
	from, to := c.offsets[i], c.offsets[i+1]
	if from == to && c.strip == nil {
		return append(b, `""`...)
	}
	return append(b, c.text[from:to]...)
}

func (w csvRows) cell(a arrow.Array) (c cell) {
	c.nulls(a)
	if s, ok := a.(*array.String); ok && s.Len() > 0 {
		offsets, text := stringsOf(s)
		if w.plain(text, offsets) {
			c.offsets, c.text = offsets, text
			return c
		}
	}
	if c.write = csvCell(a, w.delimiter); a.DataType().ID() == arrow.NULL {
		c.write = func(b []byte, _ int) []byte { return b }
	}
	return c
}

// strip makes the cell of a strip of so many columns.
func (w csvRows) strip(a arrow.Array, width int) (c cell) {
	c.nulls(a)
	if a.Len() > 0 {
		c.offsets, c.text = stringsOf(a.(*array.String))
	}
	c.strip = bytes.Repeat([]byte{w.delimiter}, width-1)
	return c
}

func (c *cell) nulls(a arrow.Array) {
	if a.NullN() > 0 && len(a.NullBitmapBytes()) > 0 {
		c.valid, c.offset = a.NullBitmapBytes(), a.Data().Offset()
	}
}

// stringsOf is the text of a column that has rows, and where each of them begins in it.
func stringsOf(s *array.String) (offsets []int32, text []byte) {
	offsets, text = s.ValueOffsets(), s.ValueBytes()
	if first := offsets[0]; first > 0 {
		offsets = slices.Clone(offsets)
		for i := range offsets {
			offsets[i] -= first
		}
	}
	return offsets, text
}

// plain tells whether no string of a column needs quotes.
func (w csvRows) plain(text []byte, offsets []int32) bool {
	for _, c := range []byte{w.delimiter, '"', '\n', '\r'} {
		if bytes.IndexByte(text, c) >= 0 {
			return false
		}
	}
	for _, o := range offsets[:len(offsets)-1] {
		if int(o) < len(text) && (text[o] == ' ' || text[o] == 0xef) {
			return false
		}
	}
	return true
}

// appendCSV writes text, in quotes where it needs them.
func appendCSV[T string | []byte](b []byte, s T, delimiter byte) []byte {
	quote := len(s) == 0
	for i := 0; i < len(s) && !quote; i++ {
		c := s[i]
		quote = c == delimiter || c == '"' || c == '\n' || c == '\r' || i == 0 && (c == ' ' || c == 0xef)
	}
	if !quote {
		return append(b, s...)
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		if s[i] == '"' {
			b = append(append(b, s[from:i+1]...), '"')
			from = i + 1
		}
	}
	return append(append(b, s[from:]...), '"')
}

// csvCell makes a function that writes values of a column that are not null.
func csvCell(a arrow.Array, delimiter byte) func(b []byte, i int) []byte {
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
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i), delimiter) }
	case *array.LargeString:
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i), delimiter) }
	case *array.StringView:
		return func(b []byte, i int) []byte { return appendCSV(b, a.Value(i), delimiter) }
	case *array.Date32:
		return func(b []byte, i int) []byte { return appendDate(b, int64(a.Value(i))) }
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
		return func(b []byte, i int) []byte {
			v := int64(a.Value(i))
			sec, rest := v/per, v%per
			if rest < 0 {
				sec, rest = sec-1, rest+per
			}
			b = appendStamp(b, sec, rest*units[t.Unit])
			if t.TimeZone != "" {
				b = append(b, 'Z')
			}
			return b
		}
	case *array.Time32:
		return clockCell(a.Values(), a.DataType().(*arrow.Time32Type).Unit)
	case *array.Time64:
		return clockCell(a.Values(), a.DataType().(*arrow.Time64Type).Unit)
	case *array.Decimal32:
		scale := a.DataType().(*arrow.Decimal32Type).Scale
		return func(b []byte, i int) []byte { return appendDecimal(b, big.NewInt(int64(a.Value(i))), int(scale)) }
	case *array.Decimal64:
		scale := a.DataType().(*arrow.Decimal64Type).Scale
		return func(b []byte, i int) []byte { return appendDecimal(b, big.NewInt(int64(a.Value(i))), int(scale)) }
	case *array.Decimal128:
		scale := a.DataType().(*arrow.Decimal128Type).Scale
		return func(b []byte, i int) []byte {
			v := a.Value(i)
			if v.FitsInPrecision(18) && scale >= 0 && scale <= 18 {
				return appendCents(b, int64(v.LowBits()), int(scale))
			}
			return appendDecimal(b, v.BigInt(), int(scale))
		}
	case *array.Decimal256:
		scale := a.DataType().(*arrow.Decimal256Type).Scale
		return func(b []byte, i int) []byte { return appendDecimal(b, a.Value(i).BigInt(), int(scale)) }
	case *array.Dictionary:
		cell := csvCell(a.Dictionary(), delimiter)
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
		return appendCSV(b, a.ValueStr(i), delimiter)
	}
}

func intCell[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](values []T) func(b []byte, i int) []byte {
	return func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(values[i]), 10) }
}

// clockCell makes a function that writes times of a day, with the decimals of the unit. The end of a day is 24:00:00.
// Values that are no times of a day have other hours.
func clockCell[T arrow.Time32 | arrow.Time64](values []T, unit arrow.TimeUnit) func(b []byte, i int) []byte {
	per := uint64(1e9 / units[unit]) // of the unit in a second
	return func(b []byte, i int) []byte {
		v := uint64(values[i])
		if values[i] < 0 {
			b, v = append(b, '-'), -v
		}
		sec := v / per
		if sec < 36000 {
			b = append(b, '0')
		}
		b = strconv.AppendUint(b, sec/3600, 10)
		b = append(b, ':', byte('0'+sec/600%6), byte('0'+sec/60%10), ':', byte('0'+sec/10%6), byte('0'+sec%10))
		if per > 1 {
			b = append(b, '.')
		}
		for digit := per / 10; digit > 0; digit /= 10 {
			b = append(b, byte('0'+v/digit%10))
		}
		return b
	}
}

// appendFloat writes a float as briefly as it comes back from, and so that no one takes it for an integer.
func appendFloat(b []byte, v float64, bits int) []byte {
	// Cents: the nearest float to a quotient of integers of up to 15 digits comes back from those digits, and from no
	// fewer.
	from, format, size := len(b), byte('g'), math.Abs(v)
	if bits == 64 && size > 0 && size < 1e13 {
		if cents := math.Round(v * 100); cents/100 == v {
			b = appendCents(b, int64(cents), 2)
			if b[len(b)-1] == '0' {
				b = b[:len(b)-1]
			}
			return b
		}
	}
	if size >= 1e-5 && size < 1e15 {
		format = 'f'
	}
	b = strconv.AppendFloat(b, v, format, -1, bits)
	if !bytes.ContainsAny(b[from:], ".eNI") {
		b = append(b, ".0"...)
	}
	return b
}

// appendCents writes v by so many decimal places.
func appendCents(b []byte, v int64, places int) []byte {
	u := uint64(v)
	if v < 0 {
		b, u = append(b, '-'), -u
	}
	var digits [20]byte
	i := len(digits)
	for ; u > 0 || len(digits)-i <= places; u /= 10 {
		i--
		digits[i] = byte('0' + u%10)
	}
	whole := len(digits) - places
	b = append(b, digits[i:whole]...)
	if places > 0 {
		b = append(append(b, '.'), digits[whole:]...)
	}
	return b
}

// appendDate writes days since 1970 as 2006-01-02.
func appendDate(b []byte, days int64) []byte {
	if days < -719162 || days > 2932896 { // the years 1 to 9999
		return time.Unix(days*86400, 0).UTC().AppendFormat(b, time.DateOnly)
	}
	// Years begin in March here, so that a leap day is a year's last.
	d := days + 719468
	century := (d*4 + 3) / marchOf400
	d -= century * marchOf400 / 4
	y := (d*4 + 3) / 1461
	d -= y * 1461 / 4
	m := (5*d + 2) / 153
	d -= (153*m + 2) / 5
	if y, m = y+century*100, m+3; m > 12 {
		y, m = y+1, m-12
	}
	return append(b, byte('0'+y/1000), byte('0'+y/100%10), byte('0'+y/10%10), byte('0'+y%10), '-', byte('0'+m/10),
		byte('0'+m%10), '-',
		byte('0'+(d+1)/10), byte('0'+(d+1)%10))
}

// appendStamp writes seconds since 1970 and nanoseconds as 2006-01-02 15:04:05.999999999.
func appendStamp(b []byte, sec, nano int64) []byte {
	days := sec / 86400
	if sec -= days * 86400; sec < 0 {
		days, sec = days-1, sec+86400
	}
	b = append(appendDate(b, days), ' ')
	for i, v := range []int64{sec / 3600, sec / 60 % 60, sec % 60} {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, byte('0'+v/10), byte('0'+v%10))
	}
	if nano == 0 {
		return b
	}
	b = append(b, '.')
	for unit := int64(1e8); nano > 0; unit /= 10 {
		b = append(b, byte('0'+nano/unit))
		nano %= unit
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
	if missing := scale + 1 - len(digits); missing > 0 { // at once: a damaged file may say any scale
		digits = append(bytes.Repeat([]byte{'0'}, missing), digits...)
	}
	b = append(b, digits[:len(digits)-scale]...)
	b = append(b, '.')
	return append(b, digits[len(digits)-scale:]...)
}
