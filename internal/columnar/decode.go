package columnar

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/warpmap/warpmap/table/text"
)

// What comes is taken apart here and not by the Arrow library, which makes slices as long as metadata says and follows
// fields as deep as they go. What does not lie in the bytes panics in flatbuffers, and is an error.

// Slots of the tables in Arrow's Message.fbs and Schema.fbs.
const (
	messageVersion, messageKind, messageHeader, messageBody = 4, 6, 8, 10
	schemaEndianness, schemaFields                          = 4, 6

	fieldName, fieldNullable, fieldKind, fieldType, fieldDictionary, fieldChildren = 4, 6, 8, 10, 12, 14

	batchLength, batchNodes, batchBuffers, batchCompression = 4, 6, 8, 10
)

// Kinds of messages.
const (
	kindSchema, kindBatch = 1, 3
	version5              = 4
)

// message is the root of a message's metadata.
func message(header []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: header, Pos: flatbuffers.GetUOffsetT(header)}
}

// child follows a slot to another table.
func child(t flatbuffers.Table, slot flatbuffers.VOffsetT) (flatbuffers.Table, bool) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return t, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(o + t.Pos)}, true
}

// list gives the place and length of a vector of elements of so many bytes.
func list(t flatbuffers.Table, slot flatbuffers.VOffsetT, size int) (first flatbuffers.UOffsetT, n int) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return 0, 0
	}
	first, n = t.Vector(o), t.VectorLen(o)
	if n < 0 || int(first)+n*size > len(t.Bytes) {
		panic(fmt.Sprintf("a list of %d elements in %d bytes", n, len(t.Bytes)))
	}
	return first, n
}

// caught turns panics of flatbuffers into an error.
func caught(what string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is broken: %v", what, p)
		}
	}()
	return do()
}

// DecodeSchema takes a schema's message apart: the metadata alone, without the frame that streams have. Errors: bytes
// that are none; columns that are no table's.
func DecodeSchema(header []byte) (columns []Column, err error) {
	err = caught("the schema", func() error {
		m := message(header)
		s, ok := child(m, messageHeader)
		if kind := m.GetByteSlot(messageKind, 0); kind != kindSchema || !ok {
			return fmt.Errorf("a message of kind %d, where a schema was wanted", kind)
		}
		if s.GetInt16Slot(schemaEndianness, 0) != 0 {
			return errors.New("columns in big-endian order: want little-endian")
		}
		first, n := list(s, schemaFields, 4)
		if n > mostColumns {
			return fmt.Errorf("%d columns: want %d at most", n, mostColumns)
		}
		for i := range n {
			f := flatbuffers.Table{Bytes: s.Bytes, Pos: s.Indirect(first + flatbuffers.UOffsetT(4*i))}
			c, err := decodeField(f)
			if err != nil {
				return err
			}
			columns = append(columns, c)
		}
		return nil
	})
	return columns, err
}

func decodeField(f flatbuffers.Table) (c Column, err error) {
	if o := flatbuffers.UOffsetT(f.Offset(fieldName)); o != 0 {
		c.Name = string(f.ByteVector(o + f.Pos))
	}
	c.Nullable = f.GetBoolSlot(fieldNullable, false)
	if len(c.Name) > 10*mostName {
		return c, fmt.Errorf("a column with a name of %d bytes: want %d at most", len(c.Name), 10*mostName)
	}
	if _, is := child(f, fieldDictionary); is {
		return c, fmt.Errorf("column %q is a dictionary: send its values as they are", c.Name)
	}
	t, ok := child(f, fieldType)
	if !ok {
		return c, fmt.Errorf("column %q has no type", c.Name)
	}
	kind := f.GetByteSlot(fieldKind, 0)
	if c.Type = decodeType(kind, t); c.Type == nil {
		return c, fmt.Errorf("column %q is of a type that tables do not have (type %d of Arrow's Schema.fbs): they "+
			"have %s", c.Name, kind, TypeNames())
	}
	return c, nil
}

// decodeType gives the type of a field; nil: tables have none of it. The numbers are those of Arrow's Schema.fbs.
func decodeType(kind byte, t flatbuffers.Table) arrow.DataType {
	unit := func(unset int16) arrow.TimeUnit {
		if u := t.GetInt16Slot(4, unset); u >= 0 && int(u) < len(units) {
			return arrow.TimeUnit(u)
		}
		panic("a unit of time that is none")
	}
	switch kind {
	case 2:
		return intType(t.GetInt32Slot(4, 0), t.GetBoolSlot(6, false))
	case 3:
		if at := int(t.GetInt16Slot(4, 0)); at >= 0 && at < 3 {
			return []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32,
				arrow.PrimitiveTypes.Float64}[at]
		}
	case 4:
		return arrow.BinaryTypes.Binary
	case 5:
		return arrow.BinaryTypes.String
	case 6:
		return arrow.FixedWidthTypes.Boolean
	case 7:
		d := &arrow.Decimal128Type{Precision: t.GetInt32Slot(4, 0), Scale: t.GetInt32Slot(6, 0)}
		if t.GetInt32Slot(8, 128) == 128 && d.Precision >= 1 && d.Precision <= 38 && d.Scale >= -38 && d.Scale <= 38 {
			return d
		}
	case 8:
		if t.GetInt16Slot(4, 1) == 0 {
			return arrow.FixedWidthTypes.Date32
		}
		return arrow.FixedWidthTypes.Date64
	case 9:
		return timeType(unit(1), t.GetInt32Slot(6, 32))
	case 10:
		ts := &arrow.TimestampType{Unit: unit(0)}
		if o := flatbuffers.UOffsetT(t.Offset(6)); o != 0 {
			ts.TimeZone = string(t.ByteVector(o + t.Pos))
		}
		if len(ts.TimeZone) <= mostName {
			return ts
		}
	case 15:
		if n := t.GetInt32Slot(4, 0); n >= 1 && n <= mostWidth {
			return &arrow.FixedSizeBinaryType{ByteWidth: int(n)}
		}
	case 18:
		return &arrow.DurationType{Unit: unit(1)}
	case 19:
		return arrow.BinaryTypes.LargeBinary
	case 20:
		return arrow.BinaryTypes.LargeString
	}
	return nil
}

func intType(bits int32, signed bool) arrow.DataType {
	p := arrow.PrimitiveTypes
	all := map[int32][2]arrow.DataType{8: {p.Uint8, p.Int8}, 16: {p.Uint16, p.Int16}, 32: {p.Uint32, p.Int32},
		64: {p.Uint64, p.Int64}}
	if signed {
		return all[bits][1]
	}
	return all[bits][0]
}

func timeType(unit arrow.TimeUnit, bits int32) arrow.DataType {
	switch {
	case bits == 32 && unit <= arrow.Millisecond:
		return &arrow.Time32Type{Unit: unit}
	case bits == 64 && unit >= arrow.Microsecond:
		return &arrow.Time64Type{Unit: unit}
	}
	return nil
}

// IsSchema tells whether a message is a schema. What is none at all is not.
func IsSchema(header []byte) bool {
	is := false
	caught("", func() error {
		m := message(header)
		is = m.GetByteSlot(messageKind, 0) == kindSchema
		return nil
	})
	return is
}

// Decode takes a record batch's message apart. The batch shares the memory of the body, but for booleans, and for what
// does not lie at multiples of 8 bytes. Everything is checked: lengths, offsets, bitmaps. That texts are UTF-8 is not.
// Errors: bytes that are no batch of these columns, more rows than most, compressed bodies. Cost: a pass over offsets,
// bitmaps and booleans.
func Decode(header, body []byte, columns []Column, most int) (b Batch, err error) {
	err = caught("the batch", func() error {
		m := message(header)
		r, ok := child(m, messageHeader)
		if kind := m.GetByteSlot(messageKind, 0); kind != kindBatch || !ok {
			return fmt.Errorf("a message of kind %d, where a record batch was wanted", kind)
		}
		if v := m.GetInt16Slot(messageVersion, 0); v < version5-1 {
			return fmt.Errorf("metadata of version %d of Arrow: want 4 or 5", v+1)
		}
		if _, is := child(r, batchCompression); is {
			return errors.New("the batch is compressed: send it as it is")
		}
		rows := r.GetInt64Slot(batchLength, 0)
		if rows < 0 || rows > int64(most) {
			return fmt.Errorf("a batch of %d rows: want %d at most", rows, most)
		}
		if !aligned(body) {
			body = append([]byte(nil), body...)
		}
		d := decoder{r: r, body: body, rows: int(rows)}
		d.node, d.nodes = list(r, batchNodes, 16)
		d.buffer, d.buffers = list(r, batchBuffers, 16)
		b.Rows = d.rows
		for _, c := range columns {
			data, err := d.column(c)
			if err != nil {
				return fmt.Errorf("column %q: %w", c.Name, err)
			}
			b.Columns = append(b.Columns, data)
		}
		if d.nodes > 0 || d.buffers > 0 {
			return fmt.Errorf("%d columns and %d buffers more than the schema has", d.nodes, d.buffers)
		}
		return nil
	})
	return b, err
}

// decoder is what is left of a batch.
type decoder struct {
	r              flatbuffers.Table
	body           []byte
	rows           int
	node, buffer   flatbuffers.UOffsetT
	nodes, buffers int
	used           int64 // bytes of buffers: those that share bytes would make much of little
}

// next is the next buffer.
func (d *decoder) next() ([]byte, error) {
	if d.buffers == 0 {
		return nil, errors.New("too few buffers")
	}
	at, n := d.r.GetInt64(d.buffer), d.r.GetInt64(d.buffer+8)
	d.buffer, d.buffers = d.buffer+16, d.buffers-1
	if at < 0 || n < 0 || at > int64(len(d.body)) || n > int64(len(d.body))-at {
		return nil, fmt.Errorf("a buffer of %d bytes at %d, in a body of %d", n, at, len(d.body))
	}
	if d.used += n; d.used > int64(len(d.body)) {
		return nil, fmt.Errorf("the buffers have %d bytes and more, in a body of %d: want each byte in one of them",
			d.used, len(d.body))
	}
	b := d.body[at : at+n : at+n]
	if n > 0 && !aligned(b) {
		b = slices.Clone(b)
	}
	return b, nil
}

func (d *decoder) column(c Column) (out Data, err error) {
	if d.nodes == 0 {
		return out, errors.New("too few columns")
	}
	rows, nulls := d.r.GetInt64(d.node), d.r.GetInt64(d.node+8)
	d.node, d.nodes = d.node+16, d.nodes-1
	if rows != int64(d.rows) || nulls < 0 || nulls > rows {
		return out, fmt.Errorf("%d rows, %d of them nulls, in a batch of %d", rows, nulls, d.rows)
	}
	valid, err := d.next()
	if err != nil {
		return out, err
	}
	if nulls > 0 {
		if len(valid) < bitmapBytes(d.rows) {
			return out, fmt.Errorf("%d bytes tell which of %d rows are nulls", len(valid), d.rows)
		}
		if out.Nulls = d.rows - countBits(valid, d.rows); out.Nulls > 0 {
			out.Valid = valid[:bitmapBytes(d.rows)]
		}
	}
	f, _ := formOf(c.Type)
	first, err := d.next()
	if err != nil {
		return out, err
	}
	switch f.kind {
	case fixed, boolean:
		bytes := d.rows * f.width
		if f.kind == boolean {
			bytes = bitmapBytes(d.rows)
		}
		if len(first) < bytes {
			return out, fmt.Errorf("%d bytes for %d rows, which take %d", len(first), d.rows, bytes)
		}
		out.Fixed = first[:bytes]
		if f.kind == boolean {
			out.Fixed = make([]byte, d.rows)
			unpackBits(out.Fixed, first)
		}
		return out, nil
	}
	content, err := d.next()
	if err != nil || d.rows == 0 {
		return out, err
	}
	width := 4
	if f.kind == long {
		width = 8
	}
	if len(first) < (d.rows+1)*width {
		return out, fmt.Errorf("%d bytes of offsets for %d rows, which take %d", len(first), d.rows, (d.rows+1)*width)
	}
	first = first[:(d.rows+1)*width]
	if f.kind == long {
		out.Text = text.Keys{Bytes: content, Offsets: as[int64](first)}
	} else {
		out.Text = text.Keys{Bytes: content, Offsets32: as[int32](first)}
	}
	return out, out.Text.Check()
}

// EncodeSchema gives the message of a schema, which DecodeSchema takes apart.
func EncodeSchema(s *arrow.Schema) ([]byte, error) {
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(s)).Close(); err != nil {
		return nil, err
	}
	return Unframed(b.Bytes())
}

// Unframed is the message within what streams begin with: a mark, its length, and the message. Errors: bytes that are
// none.
func Unframed(b []byte) ([]byte, error) {
	if len(b) >= 8 && as32(b) == math.MaxUint32 {
		b = b[4:]
	}
	if len(b) < 4 || uint64(as32(b)) > uint64(len(b)-4) {
		return nil, fmt.Errorf("%d bytes that are no message of Arrow", len(b))
	}
	return b[4 : 4+as32(b)], nil
}

func as32(b []byte) uint32 { return flatbuffers.GetUint32(b) }
