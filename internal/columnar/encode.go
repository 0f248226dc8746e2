package columnar

import (
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/apache/arrow-go/v18/arrow"
)

// Frame is a record batch as Arrow's messages have it.
type Frame struct {
	Header, Body []byte
	Rows         int
}

// Alloc gives memory of so many bytes, at a multiple of 8. What it holds does not matter.
type Alloc func(bytes int) []byte

// Make is an Alloc of Go's memory.
func Make(bytes int) []byte { return make([]byte, bytes) }

// layout is what a batch's body will hold.
type layout struct {
	nodes, buffers [][2]int64 // rows and nulls of each column; place and length of each buffer
	size           int
}

const apart = 64 // buffers begin at multiples of it, as Arrow recommends

// buffer makes room for a buffer, and gives its place.
func (l *layout) buffer(bytes int) int {
	at := (l.size + apart - 1) / apart * apart
	l.buffers = append(l.buffers, [2]int64{int64(at), int64(bytes)})
	l.size = at + bytes
	return at
}

// column adds a column, and gives its number.
func (l *layout) column(rows, nulls int) int {
	l.nodes = append(l.nodes, [2]int64{int64(rows), int64(nulls)})
	return len(l.nodes) - 1
}

// bodySize is the size of the body, which ends at a multiple of 8.
func (l *layout) bodySize() int { return (l.size + 7) / 8 * 8 }

// header is the message.
func (l *layout) header(rows int) []byte {
	b := flatbuffers.NewBuilder(256 + 16*(len(l.nodes)+len(l.buffers)))
	pairs := func(all [][2]int64) flatbuffers.UOffsetT {
		b.StartVector(16, len(all), 8)
		for i := len(all) - 1; i >= 0; i-- {
			b.Prep(8, 16)
			b.PrependInt64(all[i][1])
			b.PrependInt64(all[i][0])
		}
		return b.EndVector(len(all))
	}
	buffers, nodes := pairs(l.buffers), pairs(l.nodes)
	b.StartObject(5)
	b.PrependInt64Slot(0, int64(rows), 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	batch := b.EndObject()
	b.StartObject(5)
	b.PrependInt64Slot(3, int64(l.bodySize()), 0)
	b.PrependUOffsetTSlot(2, batch, 0)
	b.PrependInt16Slot(0, version5, 0)
	b.PrependByteSlot(1, kindBatch, 0)
	b.Finish(b.EndObject())
	return b.FinishedBytes()
}

// Encode makes a frame of a batch. It copies all, but memory that Alloc gave is not cleared where buffers end.
func Encode(columns []Column, b Batch, alloc Alloc) Frame {
	var l layout
	for i, c := range columns {
		d := &b.Columns[i]
		f, _ := formOf(c.Type)
		l.column(b.Rows, d.Nulls)
		if d.Nulls > 0 {
			l.buffer(bitmapBytes(b.Rows))
		} else {
			l.buffer(0)
		}
		switch f.kind {
		case fixed:
			l.buffer(b.Rows * f.width)
		case boolean:
			l.buffer(bitmapBytes(b.Rows))
		case short:
			l.buffer(4 * (b.Rows + 1))
			l.buffer(len(d.textBytes(0, b.Rows)))
		case long:
			l.buffer(8 * (b.Rows + 1))
			l.buffer(len(d.textBytes(0, b.Rows)))
		}
	}
	body, at := alloc(l.bodySize()), 0
	end := 0
	next := func() []byte {
		from, n := int(l.buffers[at][0]), int(l.buffers[at][1])
		clear(body[end:from])
		at, end = at+1, from+n
		return body[from : from+n : from+n]
	}
	for i, c := range columns {
		d := &b.Columns[i]
		f, _ := formOf(c.Type)
		copy(next(), d.Valid)
		switch f.kind {
		case fixed:
			copy(next(), d.Fixed)
		case boolean:
			packBits(next(), as[bool](d.Fixed[:b.Rows]))
		case short:
			rebase(as[int32](next()), d, b.Rows)
			copy(next(), d.textBytes(0, b.Rows))
		case long:
			rebase(as[int64](next()), d, b.Rows)
			copy(next(), d.textBytes(0, b.Rows))
		}
	}
	clear(body[end:])
	return Frame{l.header(b.Rows), body, b.Rows}
}

// rebase writes offsets that begin at 0.
func rebase[T int32 | int64](to []T, d *Data, rows int) {
	if to[0] = 0; rows == 0 {
		return
	}
	first := d.offset(0)
	for i := range to {
		to[i] = T(d.offset(i) - first)
	}
}

// ArrowSchema gives columns as Arrow's schema. Its metadata names the keys, where there are such.
func ArrowSchema(columns []Column, keys []Column) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.Name, Type: c.Type, Nullable: c.Nullable}
	}
	if len(keys) == 0 {
		return arrow.NewSchema(fields, nil)
	}
	m := arrow.NewMetadata([]string{"warpmap.keys"}, []string{Describe(keys)})
	return arrow.NewSchema(fields, &m)
}
