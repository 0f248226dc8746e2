package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/parquet-go/bitpack"
)

// Flat columns are decoded here, page by page: the library makes text of every code of a dictionary, and hashes it
// again when it is written. It reads, decompresses and checks the pages, and decodes values of the rarer encodings.

// flat tells whether a column's chunks can be read into a vec.
func flat(c *schema.Column) bool {
	return c.MaxRepetitionLevel() == 0 && c.MaxDefinitionLevel() <= 1 && len(c.ColumnPath()) == 1 &&
		c.PhysicalType() != parquet.Types.Boolean &&
		c.PhysicalType() != parquet.Types.Int96 && (c.PhysicalType() != parquet.Types.FixedLenByteArray ||
		c.TypeLength() > 0)
}

// widthOf is the bytes of a flat column's numbers, 0 for strings.
func widthOf(c *schema.Column) int {
	switch c.PhysicalType() {
	case parquet.Types.Int32, parquet.Types.Float:
		return 4
	case parquet.Types.Int64, parquet.Types.Double:
		return 8
	case parquet.Types.FixedLenByteArray:
		return c.TypeLength()
	}
	return 0
}

// errRare says that a chunk has pages that decodeChunk leaves to the library.
var errRare = errors.New("pages of a rare encoding")

// chunkDecoder puts a column chunk together from its pages.
type chunkDecoder struct {
	rows int
	// where set, gets each page's rows, which stay no longer, and the number of the first
	each     func(v *vec, from int) error
	room     int // rows that memory is made for at first
	optional bool
	passed   int  // rows that each has got
	out      *vec // the rows since
	dict     *vec
	coded    bool // all pages so far hold codes
	levels   []int32
}

// decodeChunk decodes the pages of a flat column's chunk of so many rows. With a function for each page the result has
// no rows.
func decodeChunk(pages file.PageReader, c *schema.Column, rows int, each func(v *vec, from int) error) (*vec, error) {
	d := newChunkDecoder(c, rows, each)
	for pages.Next() {
		if err := d.take(pages.Page()); err != nil {
			return nil, err
		}
		if d.each != nil && d.out.n > 0 {
			if err := d.pass(); err != nil {
				return nil, err
			}
		}
	}
	if err := pages.Err(); err != nil {
		return nil, err
	}
	return d.end()
}

func newChunkDecoder(c *schema.Column, rows int, each func(v *vec, from int) error) *chunkDecoder {
	d := &chunkDecoder{rows: rows, each: each, optional: c.MaxDefinitionLevel() == 1, coded: true}
	if each == nil {
		d.room = min(rows, mostRoom)
	}
	d.out = &vec{width: widthOf(c)}
	if d.out.width == 0 {
		d.out.ends = make([]int, 1, 2)
	}
	return d
}

// take decodes a page.
func (d *chunkDecoder) take(p file.Page) error {
	switch p := p.(type) {
	case *file.DictionaryPage:
		return d.dictionary(p)
	case *file.DataPageV1:
		if d.optional && p.DefinitionLevelEncoding() != parquet.Encodings.RLE {
			return errRare
		}
		return d.pageV1(p.Data(), int(p.NumValues()), parquet.Encoding(p.Encoding()))
	case *file.DataPageV2:
		from := int(p.DefinitionLevelByteLen())
		if p.RepetitionLevelByteLen() != 0 || from < 0 || from > len(p.Data()) {
			return errors.New("levels that no flat column has")
		}
		return d.page(p.Data()[:from], p.Data()[from:], int(p.NumValues()), parquet.Encoding(p.Encoding()))
	}
	return nil
}

// end gives what came of all pages.
func (d *chunkDecoder) end() (*vec, error) {
	if n := d.passed + d.out.n; n != d.rows {
		return nil, fmt.Errorf("the file is broken: a row group of %d rows with a column of %d", d.rows, n)
	}
	if d.out.codes == nil {
		d.out.dict = nil
	}
	spare(d.levels)
	if d.each != nil {
		d.out.spare()
	}
	return d.out, nil
}

// pass hands the rows on, and keeps their memory for the next.
func (d *chunkDecoder) pass() error {
	page := *d.out
	if !d.coded {
		page.dict = nil
	}
	err := d.each(&page, d.passed)
	d.passed += d.out.n
	d.out.n, d.out.valid = 0, nil
	d.out.codes, d.out.fixed, d.out.text = d.out.codes[:0], d.out.fixed[:0], d.out.text[:0]
	d.out.ends = d.out.ends[:min(1, len(d.out.ends))]
	return err
}

func (d *chunkDecoder) dictionary(p *file.DictionaryPage) error {
	if e := parquet.Encoding(p.Encoding()); e != parquet.Encodings.Plain && e != parquet.Encodings.PlainDict {
		return errRare
	}
	d.dict = &vec{width: d.out.width}
	if d.dict.width == 0 {
		d.dict.ends = make([]int, 1)
	}
	return d.dict.appendPage(p.Data(), int(p.NumValues()), 0)
}

// pageV1 finds the levels at a page's beginning.
func (d *chunkDecoder) pageV1(data []byte, n int, e parquet.Encoding) error {
	if !d.optional {
		return d.page(nil, data, n, e)
	}
	if len(data) < 4 {
		return errors.New("a page too short for its levels")
	}
	size := int(binary.LittleEndian.Uint32(data))
	if data = data[4:]; size > len(data) {
		return errors.New("a page too short for its levels")
	}
	return d.page(data[:size], data[size:], n, e)
}

// page appends a page of n rows.
func (d *chunkDecoder) page(levels, data []byte, n int, e parquet.Encoding) error {
	if n > d.rows-d.passed-d.out.n {
		return fmt.Errorf("the file is broken: a column with more than its row group's %d rows", d.rows)
	}
	there := n
	var valid []bool
	if d.optional && !allThere(levels, n) {
		var err error
		if d.levels, err = unpackRuns(widen(d.levels[:0], roomFor(n)), levels, n, 1); err != nil {
			return fmt.Errorf("levels: %w", err)
		}
		there = 0
		for _, l := range d.levels {
			there += int(l)
		}
		if there < n {
			valid = make([]bool, n)
			for i, l := range d.levels {
				valid[i] = l != 0
			}
		}
	}
	if e == parquet.Encodings.Plain && valid == nil && d.asItIs(data, n) {
		return d.each(&vec{n: n, width: d.out.width, fixed: data[:n*d.out.width]}, d.passed-n)
	}
	d.mark(valid, n)
	from := d.out.n
	switch e {
	case parquet.Encodings.PlainDict, parquet.Encodings.RLEDict:
		d.out.n += n
		return d.codes(data, n, there, valid)
	case parquet.Encodings.Plain, parquet.Encodings.DeltaBinaryPacked:
		add := d.out.appendPage
		if e == parquet.Encodings.DeltaBinaryPacked {
			if d.out.width != 4 {
				return errRare
			}
			add = d.out.appendDeltas
		}
		d.decode()
		if d.out.fixed == nil && d.out.width > 0 {
			d.out.fixed = grab[byte](d.room * d.out.width)[:0]
		}
		if err := add(data, there, n-there); err != nil {
			return err
		}
		d.out.spread(from, valid)
		return nil
	}
	return errRare
}

// asItIs tells whether a page of n numbers can be handed on without a copy, and counts its rows as passed then.
func (d *chunkDecoder) asItIs(data []byte, n int) bool {
	is := d.each != nil && d.out.n == 0 && d.out.width > 0 && n*d.out.width <= len(data) &&
		uintptr(unsafe.Pointer(unsafe.SliceData(data)))%8 == 0
	if is {
		d.passed += n
	}
	return is
}

// allThere tells that the levels of n rows are one run, as most are: no row is null.
func allThere(levels []byte, n int) bool {
	head, size := binary.Uvarint(levels)
	return size > 0 && len(levels) > size && head&1 == 0 && head>>1 >= uint64(n) && levels[size] == 1
}

// mark appends to the rows that are there.
func (d *chunkDecoder) mark(valid []bool, n int) {
	if valid == nil && d.out.valid == nil {
		return
	}
	for len(d.out.valid) < d.out.n {
		d.out.valid = append(d.out.valid, true)
	}
	if valid != nil {
		d.out.valid = append(d.out.valid, valid...)
		return
	}
	for range n {
		d.out.valid = append(d.out.valid, true)
	}
}

// codes appends a page of codes, of which there are as many as rows that are no nulls.
func (d *chunkDecoder) codes(data []byte, n, there int, valid []bool) error {
	if there > 0 && (d.dict == nil || len(data) == 0) {
		return errors.New("codes without a dictionary")
	}
	if d.dict == nil {
		d.dict = &vec{width: d.out.width, ends: []int{0}}
	}
	width := 0
	if len(data) > 0 {
		width, data = int(data[0]), data[1:]
	}
	if width > 32 {
		return fmt.Errorf("codes of %d bits", width)
	}
	out := d.out.codes
	if !d.coded {
		out = nil
	} else if out == nil {
		out = grab[int32](d.room)[:0]
	}
	at := len(out)
	out, err := unpackRuns(widen(out, roomFor(n)), data, there, width)
	if err != nil {
		return err
	}
	for _, c := range out[at:] {
		if uint32(c) >= uint32(d.dict.n) {
			return fmt.Errorf("code %d in a dictionary of %d", uint32(c), d.dict.n)
		}
	}
	out = spreadOut(slices.Grow(out, n-there)[:at+n], at, there, 1, valid)
	if d.coded {
		d.out.codes, d.out.dict = out, d.dict
		return nil
	}
	page := &vec{n: n, width: d.out.width, dict: d.dict, codes: out, valid: valid}
	d.out.appendPlain(page.plain(), d.rows)
	return nil
}

// decode ends the time of codes: from here on the column has values.
func (d *chunkDecoder) decode() {
	if !d.coded {
		return
	}
	d.coded = false
	if d.out.codes == nil {
		return
	}
	before := &vec{n: len(d.out.codes), width: d.out.width, dict: d.dict, codes: d.out.codes}
	if len(d.out.valid) > 0 {
		before.valid = d.out.valid[:before.n]
	}
	d.out.codes, d.out.dict = nil, nil
	d.out.appendPlain(before.plain(), min(d.rows, 1<<20))
}

// appendPage appends n plainly encoded values, and room for some nulls.
func (v *vec) appendPage(data []byte, n, nulls int) error {
	v.n += n + nulls
	if v.width > 0 {
		size := n * v.width
		if size > len(data) {
			return fmt.Errorf("a page of %d bytes for %d values of %d", len(data), n, v.width)
		}
		v.fixed = append(widen(v.fixed, size+nulls*v.width), data[:size]...)
		v.fixed = append(v.fixed, make([]byte, nulls*v.width)...)
		return nil
	}
	if n > len(data)/4 {
		return fmt.Errorf("a page of %d bytes for %d strings", len(data), n)
	}
	v.text = widen(v.text, len(data)-4*n)
	v.ends = widen(v.ends, n+nulls)
	for range n {
		if len(data) < 4 {
			return errors.New("a page that ends in the middle of a string")
		}
		size := int(binary.LittleEndian.Uint32(data))
		if data = data[4:]; size > len(data) {
			return errors.New("a page that ends in the middle of a string")
		}
		v.text = append(v.text, data[:size]...)
		v.ends = append(v.ends, len(v.text))
		data = data[size:]
	}
	for range nulls {
		v.ends = append(v.ends, len(v.text))
	}
	return nil
}

// spread moves values that stand without gaps from a row on to the rows that are there.
func (v *vec) spread(from int, valid []bool) {
	if valid == nil {
		return
	}
	there := 0
	for _, ok := range valid {
		if ok {
			there++
		}
	}
	if v.width > 0 {
		v.fixed = spreadOut(v.fixed, from*v.width, there, v.width, valid)
		return
	}
	ends := v.ends[from+1:]
	i := there
	last := ends[len(ends)-1]
	for r := len(valid) - 1; r >= 0; r-- {
		ends[r] = last
		if valid[r] {
			if i--; i > 0 {
				last = ends[i-1]
			} else {
				last = v.ends[from]
			}
		}
	}
}

// spreadOut is spread for numbers of so many elements, of which there are some after the first at.
func spreadOut[T any](all []T, at, there, size int, valid []bool) []T {
	if valid == nil {
		return all
	}
	rows := all[at:]
	for r := len(valid) - 1; r >= 0; r-- {
		to := rows[r*size : (r+1)*size]
		if !valid[r] {
			clear(to)
			continue
		}
		there--
		copy(to, rows[there*size:(there+1)*size])
	}
	return all
}

// mostRoom is how many rows memory is made for before their values have come: a broken file may say anything.
const mostRoom = 1 << 20

// roomFor is the room for n numbers at first, which unpackRuns unpacks eight at a time.
func roomFor(n int) int { return min(n, mostRoom) + 8 }

// unpackRuns appends n numbers of so many bits from runs and packed groups of eight.
func unpackRuns(out []int32, data []byte, n, width int) ([]int32, error) {
	end := len(out) + n
	for len(out) < end {
		head, size := binary.Uvarint(data)
		if size <= 0 {
			return nil, errors.New("runs that end too early")
		}
		data = data[size:]
		left := end - len(out)
		if head&1 == 0 {
			count := int(min(head>>1, uint64(left)))
			var value uint32
			for b := range (width + 7) / 8 {
				if b >= len(data) {
					return nil, errors.New("a run without its value")
				}
				value |= uint32(data[b]) << (8 * b)
			}
			data = data[(width+7)/8:]
			if count == 0 || uint64(value)>>width != 0 {
				return nil, fmt.Errorf("a run of %d times %d in %d bits", count, value, width)
			}
			out = slices.Grow(out, count)
			from := len(out)
			out = out[:from+count]
			for i := range out[from:] {
				out[from+i] = int32(value)
			}
			continue
		}
		groups := int(min(head>>1, uint64(left+7)/8))
		if groups == 0 {
			return nil, errors.New("a run of nothing")
		}
		size = min(groups*width, len(data)) // the last bytes of the last run may be left out
		if size*8 < min(left, groups*8)*width {
			return nil, errors.New("runs that end too early")
		}
		from := len(out)
		out = slices.Grow(out, 8*groups)[:from+8*groups]
		unpack(out[from:], data[:size], width)
		data = data[size:]
		out = out[:min(len(out), end)]
	}
	return out, nil
}

// unpack unpacks numbers; the library's reads some bytes beyond the last.
func unpack(out []int32, data []byte, width int) {
	const beyond = bitpack.PaddingInt32
	need := len(out)/8*width + beyond
	if need > cap(data) {
		whole := make([]byte, need)
		copy(whole, data)
		data = whole
	}
	if width == 0 {
		clear(out)
		return
	}
	bitpack.Unpack(out, data[:need], uint(width))
}

// bitsFor is how many bits the codes of a dictionary of n entries take.
func bitsFor(n int) int { return max(1, bits.Len(uint(max(0, n-1)))) }

// decodeByLibrary decodes a flat column's chunk of whatever encodings, value by value.
func decodeByLibrary(r file.ColumnChunkReader, c *schema.Column, rows int) (*vec, error) {
	v := &vec{width: widthOf(c)}
	if v.width == 0 {
		v.ends = make([]int, 1)
	}
	optional := c.MaxDefinitionLevel() == 1
	var err error
	switch r := r.(type) {
	case *file.Int32ColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x int32) []byte {
			return binary.LittleEndian.AppendUint32(b, uint32(x))
		})
	case *file.Int64ColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x int64) []byte {
			return binary.LittleEndian.AppendUint64(b, uint64(x))
		})
	case *file.Float32ColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x float32) []byte {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		})
	case *file.Float64ColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x float64) []byte {
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		})
	case *file.FixedLenByteArrayColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x parquet.FixedLenByteArray) []byte {
			return append(b, x...)
		})
	case *file.ByteArrayColumnChunkReader:
		err = readValues(v, optional, rows, r.ReadBatch, func(b []byte, x parquet.ByteArray) []byte {
			return append(b, x...)
		})
	default:
		err = fmt.Errorf("a chunk of type %s", r.Type())
	}
	if err == nil && v.n != rows {
		err = fmt.Errorf("the file is broken: a row group of %d rows with a column of %d", rows, v.n)
	}
	return v, err
}

// readValues appends all values that read gives.
func readValues[T any](v *vec, optional bool, rows int, read func(int64, []T, []int16, []int16) (int64, int, error),
	put func([]byte, T) []byte) error {
	const some = 1 << 12
	values, levels := make([]T, some), []int16(nil)
	if optional {
		levels = make([]int16, some)
	}
	for {
		n, there, err := read(some, values, levels, nil)
		if err != nil || n == 0 {
			return err
		}
		if int(n) > rows-v.n {
			return fmt.Errorf("the file is broken: a column with more than its row group's %d rows", rows)
		}
		next := 0
		for i := range int(n) {
			ok := !optional || levels[i] == 1
			switch {
			case v.width > 0 && ok:
				v.fixed = put(v.fixed, values[next])
			case v.width > 0:
				v.fixed = append(v.fixed, make([]byte, v.width)...)
			default:
				if ok {
					v.text = put(v.text, values[next])
				}
				v.ends = append(v.ends, len(v.text))
			}
			if ok {
				next++
			}
			if !ok && v.valid == nil {
				for range v.n {
					v.valid = append(v.valid, true)
				}
			}
			if v.valid != nil || !ok {
				v.valid = append(v.valid, ok)
			}
			v.n++
		}
		if next != there {
			return errors.New("the file is broken: levels that do not fit the values")
		}
	}
}
