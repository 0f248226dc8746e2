package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// loc is one row of a column that lies in several chunks; a negative chunk stands for a null.
type loc struct{ chunk, row int }

var null = loc{-1, 0}

// errTooBig says that the taken rows do not fit 32-bit offsets or 16-bit run ends, or take over 2 GiB, or over
// what a taker is limited to: take fewer rows at a time.
var errTooBig = errors.New("too many rows at once for the column's offsets")

// taker copies rows out of a column by index, whatever its type: it works on Arrow's physical layouts, so an
// extension type, a decimal or an interval is but its bytes, and nested types are takers within takers.
type taker struct {
	typ      arrow.DataType // what the result is
	physical arrow.DataType // and what it lies in memory as
	chunks   []arrow.ArrayData
	children []*taker
	dict     arrow.ArrayData // of a dictionary type: the one dictionary of all chunks
	remap    [][]int32       // and what each chunk's indices become in it; nil where they stay
	most     int             // bytes that it takes at once, of more rows than one; 0: 2 GiB
}

// limit bounds what a taker takes at once.
func (t *taker) limit(most int64) *taker {
	t.most = int(min(most, math.MaxInt32))
	return t
}

// newTaker makes a taker over chunks of one type. The chunks must live as long as it does.
func newTaker(typ arrow.DataType, chunks []arrow.ArrayData) (*taker, error) {
	t := &taker{typ: typ, physical: typ, chunks: chunks}
	for {
		e, ok := t.physical.(arrow.ExtensionType)
		if !ok {
			break
		}
		t.physical = e.StorageType()
	}
	child := func(i int, typ arrow.DataType) error {
		data := make([]arrow.ArrayData, len(chunks))
		for c := range chunks {
			data[c] = chunks[c].Children()[i]
		}
		k, err := newTaker(typ, data)
		t.children = append(t.children, k)
		return err
	}
	switch p := t.physical.(type) {
	case *arrow.DictionaryType:
		return t, t.unify(p)
	case *arrow.RunEndEncodedType:
		return t, child(1, p.Encoded())
	case arrow.NestedType:
		for i, f := range p.Fields() {
			if err := child(i, f.Type); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// unify finds one dictionary for all chunks: theirs, if it is the same, else the union of theirs.
func (t *taker) unify(p *arrow.DictionaryType) error {
	if len(t.chunks) == 0 {
		b := array.NewBuilder(memory.DefaultAllocator, p.ValueType)
		defer b.Release()
		a := b.NewArray()
		defer a.Release()
		t.dict = a.Data()
		t.dict.Retain()
		return nil
	}
	t.remap = make([][]int32, len(t.chunks))
	// Chunks often share a dictionary: look at each once.
	var distinct []arrow.Array
	which := make([]int, len(t.chunks))
	seen := map[arrow.ArrayData]int{}
	for c, d := range t.chunks {
		dict := d.Dictionary()
		at, ok := seen[dict]
		if !ok {
			a := array.MakeFromData(dict)
			for at = range distinct {
				if array.Equal(distinct[at], a) {
					ok = true
					break
				}
			}
			if !ok {
				at = len(distinct)
				distinct = append(distinct, a)
			}
			seen[dict] = at
		}
		which[c] = at
	}
	if len(distinct) == 1 {
		t.dict = t.chunks[0].Dictionary()
		return nil
	}
	maps := make([][]int32, len(distinct))
	var size int
	if u, err := array.NewDictionaryUnifier(memory.DefaultAllocator, p.ValueType); err == nil {
		defer u.Release()
		for i, a := range distinct {
			buf, err := u.UnifyAndTranspose(a)
			if err != nil {
				return err
			}
			maps[i] = arrow.Int32Traits.CastFromBytes(buf.Bytes())
		}
		// The widest index type first, so that a union too large for the column's own gets our error.
		all, err := u.GetResultWithIndexType(arrow.PrimitiveTypes.Int64)
		if err != nil {
			return err
		}
		t.dict, size = all.Data(), all.Len()
	} else {
		// Nested values cannot be unified: put the dictionaries one after the other.
		all, err := array.Concatenate(distinct, memory.DefaultAllocator)
		if err != nil {
			return err
		}
		t.dict, size = all.Data(), all.Len()
		from := 0
		for i, a := range distinct {
			for j := range a.Len() {
				maps[i] = append(maps[i], int32(from+j))
			}
			from += a.Len()
		}
	}
	if bits := p.IndexType.(arrow.FixedWidthDataType).BitWidth(); bits < 32 {
		if arrow.IsSignedInteger(p.IndexType.ID()) {
			bits--
		}
		if size > 1<<bits {
			return fmt.Errorf("a column of type %s comes with several dictionaries, of %d values together: too many "+
				"for its index type", p, size)
		}
	}
	for c := range t.chunks {
		t.remap[c] = maps[which[c]]
	}
	return nil
}

// set puts other data of the same type and dictionaries in a chunk's place.
func (t *taker) set(chunk int, d arrow.ArrayData) {
	t.chunks[chunk] = d
	children := d.Children()
	if _, ok := t.physical.(*arrow.RunEndEncodedType); ok {
		children = children[1:]
	}
	for i, c := range t.children {
		c.set(chunk, children[i])
	}
}

// take copies the rows at the given places, in their order.
func (t *taker) take(at []loc) (arrow.ArrayData, error) {
	if t.most == 0 || len(at) == 1 {
		return t.takeWithin(math.MaxInt32, at)
	}
	return t.takeWithin(t.most, at)
}

// takeWithin is take for rows of which no column takes more than so many bytes, and no list has more rows than that.
func (t *taker) takeWithin(most int, at []loc) (arrow.ArrayData, error) {
	n := len(at)
	switch p := t.physical.(type) {
	case *arrow.NullType:
		return array.NewData(t.typ, n, []*memory.Buffer{nil}, nil, n, 0), nil
	case *arrow.BooleanType:
		valid, nulls, at := t.validity(at)
		out := make([]byte, bitutil.BytesForBits(int64(n)))
		for i, l := range at {
			if l.chunk >= 0 && bitutil.BitIsSet(t.chunks[l.chunk].Buffers()[1].Bytes(), l.row) {
				bitutil.SetBit(out, i)
			}
		}
		return t.data(n, nulls, nil, valid, out), nil
	case *arrow.DictionaryType:
		valid, nulls, at := t.validity(at)
		w := p.IndexType.(arrow.FixedWidthDataType).BitWidth() / 8
		out, err := t.fixed(most, at, w)
		if err != nil {
			return nil, err
		}
		for i, l := range at {
			if l.chunk >= 0 && t.remap[l.chunk] != nil {
				b := out[i*w : (i+1)*w]
				putInt(b, int(t.remap[l.chunk][getInt(b)]))
			}
		}
		return array.NewDataWithDictionary(t.typ, n, buffers(valid, out), nulls, 0, t.dict.(*array.Data)), nil
	case *arrow.StringType, *arrow.BinaryType:
		return t.variable(most, at, 4)
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return t.variable(most, at, 8)
	case *arrow.StringViewType, *arrow.BinaryViewType:
		return t.views(most, at)
	case *arrow.ListType, *arrow.MapType:
		return t.list(most, at, 4, false)
	case *arrow.LargeListType:
		return t.list(most, at, 8, false)
	case *arrow.ListViewType:
		return t.list(most, at, 4, true)
	case *arrow.LargeListViewType:
		return t.list(most, at, 8, true)
	case *arrow.FixedSizeListType:
		valid, nulls, at := t.validity(at)
		size := int(p.Len())
		if n*size > rowsWithin(most) {
			return nil, errTooBig
		}
		rows := make([]loc, 0, n*size)
		for _, l := range at {
			for j := range size {
				if l.chunk < 0 {
					rows = append(rows, null)
				} else {
					rows = append(rows, loc{l.chunk, l.row*size + j})
				}
			}
		}
		child, err := t.children[0].takeWithin(most, rows)
		if err != nil {
			return nil, err
		}
		return t.data(n, nulls, []arrow.ArrayData{child}, valid), nil
	case *arrow.StructType:
		valid, nulls, at := t.validity(at)
		children, err := t.all(most, at)
		if err != nil {
			return nil, err
		}
		return t.data(n, nulls, children, valid), nil
	case *arrow.SparseUnionType:
		at := t.absolute(at)
		children, err := t.all(most, at)
		if err != nil {
			return nil, err
		}
		codes, err := t.codes(most, at, p.TypeCodes())
		if err != nil {
			return nil, err
		}
		return array.NewData(t.typ, n, buffers(nil, codes), children, 0, 0), nil
	case *arrow.DenseUnionType:
		return t.dense(most, t.absolute(at), p)
	case *arrow.RunEndEncodedType:
		return t.runs(most, at, p)
	case arrow.FixedWidthDataType:
		valid, nulls, at := t.validity(at)
		out, err := t.fixed(most, at, p.BitWidth()/8)
		if err != nil {
			return nil, err
		}
		return t.data(n, nulls, nil, valid, out), nil
	}
	return nil, fmt.Errorf("columns of type %s cannot be carried through a join yet", t.typ)
}

func buffers(valid []byte, rest ...[]byte) []*memory.Buffer {
	out := []*memory.Buffer{nil}
	if valid != nil {
		out[0] = memory.NewBufferBytes(valid)
	}
	for _, b := range rest {
		out = append(out, memory.NewBufferBytes(b))
	}
	return out
}

func (t *taker) data(n, nulls int, children []arrow.ArrayData, valid []byte, rest ...[]byte) arrow.ArrayData {
	return array.NewData(t.typ, n, buffers(valid, rest...), children, nulls, 0)
}

func (t *taker) all(most int, at []loc) ([]arrow.ArrayData, error) {
	out := make([]arrow.ArrayData, len(t.children))
	for i, c := range t.children {
		var err error
		if out[i], err = c.takeWithin(most, at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// absolute counts rows from the start of the chunks' buffers instead of from their offsets.
func (t *taker) absolute(at []loc) []loc {
	out := make([]loc, len(at))
	for i, l := range at {
		if out[i] = null; l.chunk >= 0 {
			out[i] = loc{l.chunk, l.row + t.chunks[l.chunk].Offset()}
		}
	}
	return out
}

// validity is the result's bitmap, nil without nulls, and the rows as absolute ones with every null made null.
func (t *taker) validity(at []loc) (bitmap []byte, nulls int, out []loc) {
	maps := make([][]byte, len(t.chunks))
	simple := true // rows are absolute as they are, and none is null
	for c, d := range t.chunks {
		if b := d.Buffers()[0]; b != nil && d.NullN() != 0 {
			maps[c], simple = b.Bytes(), false
		}
		simple = simple && d.Offset() == 0
	}
	if simple && !slices.ContainsFunc(at, func(l loc) bool { return l.chunk < 0 }) {
		return nil, 0, at
	}
	out = t.absolute(at)
	for i, l := range out {
		if l.chunk >= 0 && (len(maps[l.chunk]) == 0 || bitutil.BitIsSet(maps[l.chunk], l.row)) {
			continue
		}
		if bitmap == nil {
			bitmap = make([]byte, bitutil.BytesForBits(int64(len(at))))
			for j := range bitmap {
				bitmap[j] = 0xff
			}
		}
		bitutil.ClearBit(bitmap, i)
		out[i] = null
		nulls++
	}
	return bitmap, nulls, out
}

// values is one buffer of each chunk.
func (t *taker) values(buffer int) [][]byte {
	out := make([][]byte, len(t.chunks))
	for c, d := range t.chunks {
		if b := d.Buffers()[buffer]; b != nil {
			out[c] = b.Bytes()
		}
	}
	return out
}

// fixed copies values of w bytes; at holds absolute rows.
func (t *taker) fixed(most int, at []loc, w int) ([]byte, error) {
	if len(at)*w > most {
		return nil, errTooBig
	}
	in, out := t.values(1), make([]byte, len(at)*w)
	le := binary.LittleEndian // as wide words, not as numbers
	switch w {
	case 4:
		for i, l := range at {
			if l.chunk >= 0 {
				le.PutUint32(out[i*4:], le.Uint32(in[l.chunk][l.row*4:]))
			}
		}
	case 8:
		for i, l := range at {
			if l.chunk >= 0 {
				le.PutUint64(out[i*8:], le.Uint64(in[l.chunk][l.row*8:]))
			}
		}
	default:
		for i, l := range at {
			if l.chunk >= 0 {
				copy(out[i*w:(i+1)*w], in[l.chunk][l.row*w:])
			}
		}
	}
	return out, nil
}

// getInt and putInt read and write an offset, size or index of len(b) bytes.
func getInt(b []byte) int {
	switch len(b) {
	case 1:
		return int(b[0])
	case 2:
		return int(binary.NativeEndian.Uint16(b))
	case 4:
		return int(binary.NativeEndian.Uint32(b))
	}
	return int(binary.NativeEndian.Uint64(b))
}

func putInt(b []byte, v int) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, uint64(v))
	}
}

// nth is the i-th integer of w bytes.
func nth(b []byte, i, w int) int { return getInt(b[i*w : (i+1)*w]) }

// within checks offsets before anything is sized by them.
func within(from, to, n int) error {
	if from < 0 || from > to || to > n {
		return fmt.Errorf("%s: a value that goes from %d to %d of %d", broken, from, to, n)
	}
	return nil
}

// variable copies strings and binaries with offsets of w bytes.
func (t *taker) variable(most int, at []loc, w int) (arrow.ArrayData, error) {
	n := len(at)
	valid, nulls, at := t.validity(at)
	offsets, bytes := t.values(1), t.values(2)
	if w == 4 {
		ends, out, err := shortTexts(most, at, offsets, bytes)
		if err != nil {
			return nil, err
		}
		return t.data(n, nulls, nil, valid, ends, out), nil
	}
	ends, total := make([]byte, (n+1)*w), 0
	for i, l := range at {
		if l.chunk >= 0 {
			from, to := nth(offsets[l.chunk], l.row, w), nth(offsets[l.chunk], l.row+1, w)
			if err := within(from, to, len(bytes[l.chunk])); err != nil {
				return nil, err
			}
			total += to - from
		}
		if most < math.MaxInt32 && total > most { // 2 GiB are no bound of long offsets
			return nil, errTooBig
		}
		putInt(ends[(i+1)*w:(i+2)*w], total)
	}
	out := make([]byte, 0, total)
	for _, l := range at {
		if l.chunk >= 0 {
			out = append(out, bytes[l.chunk][nth(offsets[l.chunk], l.row, w):nth(offsets[l.chunk], l.row+1, w)]...)
		}
	}
	return t.data(n, nulls, nil, valid, ends, out), nil
}

// shortTexts is variable's work for offsets of 4 bytes, which nearly all have.
func shortTexts(most int, at []loc, offsets, bytes [][]byte) (ends, out []byte, err error) {
	chunks := make([][]uint32, len(offsets))
	for c, o := range offsets {
		chunks[c] = words[uint32](o)
	}
	to, total := make([]uint32, len(at)+1), 0
	for i, l := range at {
		if l.chunk >= 0 {
			o := chunks[l.chunk]
			from, end := int(int32(o[l.row])), int(int32(o[l.row+1]))
			if from < 0 || from > end || end > len(bytes[l.chunk]) {
				return nil, nil, within(from, end, len(bytes[l.chunk]))
			}
			total += end - from
		}
		if total > most {
			return nil, nil, errTooBig
		}
		to[i+1] = uint32(total)
	}
	out = make([]byte, 0, total)
	for _, l := range at {
		if l.chunk >= 0 {
			o := chunks[l.chunk]
			out = append(out, bytes[l.chunk][o[l.row]:o[l.row+1]]...)
		}
	}
	return raw(to), out, nil
}

// views copies string and binary views. A view is a length, then 12 bytes of text, or 4 bytes of it, the buffer's
// number and the offset there.
func (t *taker) views(most int, at []loc) (arrow.ArrayData, error) {
	n := len(at)
	valid, nulls, at := t.validity(at)
	out, err := t.fixed(most, at, 16)
	if err != nil {
		return nil, err
	}
	var long []byte
	for i, l := range at {
		v := out[i*16 : (i+1)*16]
		size := nth(v, 0, 4)
		if l.chunk < 0 || size <= 12 {
			continue
		}
		from := nth(v, 3, 4)
		if len(long)+size > most {
			return nil, errTooBig
		}
		putInt(v[8:12], 0)
		putInt(v[12:16], len(long))
		src := t.chunks[l.chunk].Buffers()[2+nth(t.chunks[l.chunk].Buffers()[1].Bytes()[l.row*16:], 2, 4)].Bytes()
		long = append(long, src[from:from+size]...)
	}
	if long == nil {
		return t.data(n, nulls, nil, valid, out), nil
	}
	return t.data(n, nulls, nil, valid, out, long), nil
}

// list copies lists and maps with offsets of w bytes, and list views, which have a size beside each offset.
func (t *taker) list(most int, at []loc, w int, view bool) (arrow.ArrayData, error) {
	n := len(at)
	valid, nulls, at := t.validity(at)
	offsets := t.values(1)
	var sizes [][]byte
	if view {
		sizes = t.values(2)
	}
	var rows []loc
	starts, counts := make([]byte, (n+1)*w), make([]byte, n*w)
	for i, l := range at {
		from := len(rows)
		if l.chunk >= 0 {
			a := nth(offsets[l.chunk], l.row, w)
			b := 0
			if view {
				b = a + nth(sizes[l.chunk], l.row, w)
			} else {
				b = nth(offsets[l.chunk], l.row+1, w)
			}
			if err := within(a, b, t.children[0].chunks[l.chunk].Len()); err != nil {
				return nil, err
			}
			for r := a; r < b; r++ {
				rows = append(rows, loc{l.chunk, r})
			}
		}
		if len(rows) > rowsWithin(most) && (w == 4 || most < math.MaxInt32) {
			return nil, errTooBig
		}
		putInt(counts[i*w:(i+1)*w], len(rows)-from)
		putInt(starts[(i+1)*w:(i+2)*w], len(rows))
	}
	child, err := t.children[0].takeWithin(most, rows)
	if err != nil {
		return nil, err
	}
	if view {
		return t.data(n, nulls, []arrow.ArrayData{child}, valid, starts[:n*w], counts), nil
	}
	return t.data(n, nulls, []arrow.ArrayData{child}, valid, starts), nil
}

// rowsWithin is how many rows within lists are taken where so many bytes are: each has its place in memory meanwhile.
func rowsWithin(most int) int {
	if most == math.MaxInt32 {
		return most
	}
	return most / int(unsafe.Sizeof(loc{}))
}

// codes copies a union's type codes. A union has no nulls of its own: one that a join makes is a null of its first
// child.
func (t *taker) codes(most int, at []loc, codes []arrow.UnionTypeCode) ([]byte, error) {
	out, err := t.fixed(most, at, 1)
	for i, l := range at {
		if err == nil && l.chunk < 0 && len(codes) > 0 {
			out[i] = byte(codes[0])
		}
	}
	return out, err
}

func (t *taker) dense(most int, at []loc, p *arrow.DenseUnionType) (arrow.ArrayData, error) {
	codes, err := t.codes(most, at, p.TypeCodes())
	if err != nil {
		return nil, err
	}
	offsets := t.values(2)
	ids := p.ChildIDs()
	rows := make([][]loc, len(t.children))
	out := make([]byte, len(at)*4)
	for i, l := range at {
		c := ids[codes[i]]
		putInt(out[i*4:(i+1)*4], len(rows[c]))
		if l.chunk < 0 {
			rows[c] = append(rows[c], null)
		} else {
			rows[c] = append(rows[c], loc{l.chunk, nth(offsets[l.chunk], l.row, 4)})
		}
	}
	children := make([]arrow.ArrayData, len(t.children))
	for i, c := range t.children {
		var err error
		if children[i], err = c.takeWithin(most, rows[i]); err != nil {
			return nil, err
		}
	}
	return array.NewData(t.typ, len(at), buffers(nil, codes, out), children, 0, 0), nil
}

// runs copies run-end encoded values: rows of one run that follow one another stay one run.
func (t *taker) runs(most int, at []loc, p *arrow.RunEndEncodedType) (arrow.ArrayData, error) {
	w := p.RunEnds().(arrow.FixedWidthDataType).BitWidth() / 8
	if w == 2 && len(at) > math.MaxInt16 || w == 4 && len(at) > math.MaxInt32 {
		return nil, errTooBig
	}
	var rows []loc
	var ends []byte
	for i, l := range t.absolute(at) {
		if l.chunk >= 0 {
			e := t.chunks[l.chunk].Children()[0]
			b := e.Buffers()[1].Bytes()[e.Offset()*w:]
			lo, hi := 0, e.Len() // the first run that ends after the row
			for lo < hi {
				if m := (lo + hi) / 2; nth(b, m, w) > l.row {
					hi = m
				} else {
					lo = m + 1
				}
			}
			l.row = lo
		}
		if len(rows) == 0 || rows[len(rows)-1] != l {
			rows = append(rows, l)
			ends = append(ends, make([]byte, w)...)
		}
		putInt(ends[len(ends)-w:], i+1)
	}
	values, err := t.children[0].takeWithin(most, rows)
	if err != nil {
		return nil, err
	}
	e := array.NewData(p.RunEnds(), len(rows), buffers(nil, ends), nil, 0, 0)
	return array.NewData(t.typ, len(at), []*memory.Buffer{nil}, []arrow.ArrayData{e, values}, 0, 0), nil
}
