package columnar

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/warpmap/warpmap/table/text"
)

// Batch is rows, column by column.
type Batch struct {
	Rows    int
	Columns []Data
}

// Data is the rows of a column.
type Data struct {
	Valid []byte    // bit i is set where row i is no null; nil: there are no nulls
	Nulls int       // how many nulls there are
	Fixed []byte    // of columns of a fixed width: so many bytes a row; of booleans a byte each, 0 or 1
	Text  text.Keys // of texts
}

// Pick gives columns in another order.
func (b Batch) Pick(order []int) Batch {
	out := Batch{b.Rows, make([]Data, len(order))}
	for i, at := range order {
		out.Columns[i] = b.Columns[at]
	}
	return out
}

func (d *Data) null(i int) bool { return d.Valid != nil && d.Valid[i>>3]>>(i&7)&1 == 0 }

// textBytes are the bytes of rows from..to-1.
func (d *Data) textBytes(from, to int) []byte {
	if from == to {
		return nil
	}
	return d.Text.Bytes[d.offset(from):d.offset(to)]
}

func (d *Data) offset(i int) int64 {
	if d.Text.Offsets != nil {
		return d.Text.Offsets[i]
	}
	return int64(d.Text.Offsets32[i])
}

// as sees bytes as values of another type. Their memory is aligned for it.
func as[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}

// bytesOf sees values as bytes.
func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// aligned tells whether bytes can be seen as values of 8 bytes.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0 }

// bitmapBytes is how many bytes so many bits take.
func bitmapBytes(n int) int { return (n + 7) / 8 }

// packBits writes a bit for each flag, and counts those that are set. It writes whole bytes, with zeros at the end.
func packBits(to []byte, flags []bool) (set int) {
	raw, i := bytesOf(flags), 0
	for ; i+8 <= len(raw); i += 8 {
		// The bytes are 0 or 1. The product has the sum of them in its highest byte, each moved to its own bit.
		b := byte(binary.LittleEndian.Uint64(raw[i:]) * 0x0102040810204080 >> 56)
		to[i>>3] = b
		set += bits.OnesCount8(b)
	}
	if i < len(raw) {
		b := byte(0)
		for j, f := range raw[i:] {
			b |= f << j
		}
		to[i>>3] = b
		set += bits.OnesCount8(b)
	}
	return set
}

// unpackBits writes a byte for each bit.
func unpackBits(to []byte, from []byte) {
	for i := range to {
		to[i] = from[i>>3] >> (i & 7) & 1
	}
}

// countBits counts those of the first n bits that are set.
func countBits(b []byte, n int) (set int) {
	i := 0
	for ; i+64 <= n; i += 64 {
		set += bits.OnesCount64(binary.LittleEndian.Uint64(b[i>>3:]))
	}
	for ; i < n; i++ {
		set += int(b[i>>3] >> (i & 7) & 1)
	}
	return set
}
