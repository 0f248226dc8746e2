package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/parquet"
)

// The library refuses numbers of 32 bits whose differences take more bits, which DuckDB writes. So flat columns that
// have pages of such differences are decoded here, also where the library decodes all others.

// deltas reports whether a flat field is stored in 32 bits and has pages of differences in a row group.
func (p *parquetFile) deltas(group, field int) bool {
	p, group = p.in(group)
	if p.folder(field) != nil || p.flat(field) == nil || p.flat(field).PhysicalType() != parquet.Types.Int32 {
		return false
	}
	c, err := p.pf.MetaData().RowGroup(group).ColumnChunk(p.leaves[field][0])
	return err == nil && slices.Contains(c.Encodings(), parquet.Encodings.DeltaBinaryPacked)
}

// varints reads numbers of several bytes.
type varints struct {
	data  []byte
	short bool // the data ended too early
}

func (r *varints) unsigned() uint64 {
	x, size := binary.Uvarint(r.data)
	r.short = r.short || size <= 0
	r.data = r.data[max(0, size):]
	return x
}

// signed returns the low 32 bits of a signed number.
func (r *varints) signed() uint32 {
	x := r.unsigned()
	return uint32(x>>1) ^ -uint32(x&1)
}

// appendDeltas appends n numbers of 32 bits from a page of DELTA_BINARY_PACKED, and room for some nulls.
func (v *vec) appendDeltas(data []byte, n, nulls int) error {
	r := varints{data: data}
	block, parts, total, value := r.unsigned(), r.unsigned(), r.unsigned(), r.signed()
	if block == 0 || block > 1<<20 || parts == 0 || block%parts != 0 || block/parts%8 != 0 || total != uint64(n) {
		return fmt.Errorf("a page of %d differences for %d values, in blocks of %d and %d parts", total, n, block,
			parts)
	}
	v.n += n + nulls
	if n > 0 {
		v.fixed = binary.LittleEndian.AppendUint32(v.fixed, value)
	}
	each := int(block / parts)
	for left := n - 1; left > 0; {
		least := r.signed()
		widths := r.data[:min(uint64(len(r.data)), parts)]
		r.data = r.data[len(widths):]
		for _, width := range widths {
			size := each / 8 * int(width)
			if left == 0 { // the last block may leave out parts without values
				break
			}
			if width > 64 || size > len(r.data) {
				return fmt.Errorf("%d differences of %d bits in %d bytes", each, width, len(r.data))
			}
			for i := range min(left, each) {
				value += least + bitsAt(r.data, i*int(width), int(width))
				v.fixed = binary.LittleEndian.AppendUint32(v.fixed, value)
			}
			left, r.data = left-min(left, each), r.data[size:]
		}
		if r.short || uint64(len(widths)) < parts {
			return errors.New("a page of differences that ends too early")
		}
	}
	v.fixed = append(v.fixed, make([]byte, 4*nulls)...)
	return nil
}

// bitsAt returns the low 32 bits of a number of some bits that begins at a bit.
func bitsAt(data []byte, at, width int) (x uint32) {
	for shift, end := 0, at+min(width, 32); at < end; {
		n := min(8-at%8, end-at)
		x |= uint32(data[at/8]>>(at%8)&(1<<n-1)) << shift
		at, shift = at+n, shift+n
	}
	return x
}

// arrowOf returns numbers of 32 bits as an array of a type whose values are numbers of any width.
func arrowOf(v *vec, t arrow.DataType) arrow.Array {
	v = v.plain()
	width := t.(arrow.FixedWidthDataType).BitWidth() / 8
	out := make([]byte, v.n*width)
	var valid []byte
	nulls := 0
	if v.valid != nil {
		valid = make([]byte, bitutil.BytesForBits(int64(v.n)))
	}
	for i := range v.n {
		if v.valid != nil && !v.valid[i] {
			nulls++
			continue
		} else if valid != nil {
			bitutil.SetBit(valid, i)
		}
		to, from := out[i*width:][:width], v.fixed[4*i:][:4]
		if n := copy(to, from); int8(from[3]) < 0 {
			for j := n; j < width; j++ {
				to[j] = 0xff
			}
		}
	}
	data := array.NewData(t, v.n, buffers(valid, out), nil, nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// batchReader reads a column in batches, as the library's readers do.
type batchReader interface {
	Next() bool
	RecordBatch() arrow.RecordBatch
	Err() error
	Release()
}

// batches32 reads a field of numbers of 32 bits in batches, across row groups.
type batches32 struct {
	p     *parquetFile
	field int
	rows  int         // of a batch
	group int         // the next one
	left  arrow.Array // of the row groups so far
	cur   arrow.RecordBatch
	err   error
}

func (b *batches32) Next() bool {
	all := []arrow.Array{}
	n := 0
	if b.left != nil {
		all, n = append(all, b.left), b.left.Len()
	}
	for ; n < b.rows && b.group < b.p.groups() && b.err == nil; b.group++ {
		var v *vec
		if v, b.err = b.p.vec(b.group, b.field, nil); b.err == nil {
			all, n = append(all, arrowOf(v, b.p.schema.Field(b.field).Type)), n+v.n
			v.spare()
		}
	}
	if b.err != nil || n == 0 {
		return false
	}
	a := all[0]
	if len(all) > 1 {
		if a, b.err = array.Concatenate(all, allocator); b.err != nil {
			return false
		}
	}
	n = min(n, b.rows)
	s := arrow.NewSchema([]arrow.Field{b.p.schema.Field(b.field)}, nil)
	b.cur = array.NewRecordBatch(s, []arrow.Array{array.NewSlice(a, 0, int64(n))}, int64(n))
	if b.left = nil; n < a.Len() {
		b.left = array.NewSlice(a, int64(n), int64(a.Len()))
	}
	return true
}

func (b *batches32) RecordBatch() arrow.RecordBatch { return b.cur }
func (b *batches32) Err() error                     { return b.err }
func (b *batches32) Release()                       {}
