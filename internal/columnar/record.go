package columnar

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// ColumnsOf gives the columns of an Arrow schema. What a table has no columns of keeps its type, which New refuses;
// extension types have that of their storage.
func ColumnsOf(s *arrow.Schema) []Column {
	out := make([]Column, s.NumFields())
	for i, f := range s.Fields() {
		for {
			e, is := f.Type.(arrow.ExtensionType)
			if !is {
				break
			}
			f.Type = e.StorageType()
		}
		out[i] = Column{f.Name, f.Type, f.Nullable}
	}
	return out
}

// FromRecord sees columns of an Arrow record as a batch: those of the given numbers, which have types of tables. It
// copies booleans, and bitmaps of records that are slices of others.
func FromRecord(rec arrow.RecordBatch, numbers []int) Batch {
	n := int(rec.NumRows())
	b := Batch{n, make([]Data, len(numbers))}
	for i, at := range numbers {
		a := rec.Column(at)
		if e, is := a.(array.ExtensionArray); is {
			a = e.Storage()
		}
		data, out := a.Data(), &b.Columns[i]
		f, _ := formOf(a.DataType())
		from := data.Offset()
		if out.Nulls = a.NullN(); out.Nulls > 0 {
			out.Valid = make([]byte, bitmapBytes(n))
			for r := range n {
				if a.IsValid(r) {
					out.Valid[r>>3] |= 1 << (r & 7)
				}
			}
		}
		if n == 0 {
			continue
		}
		first := data.Buffers()[1].Bytes()
		switch f.kind {
		case fixed:
			out.Fixed = first[from*f.width : (from+n)*f.width]
			if !aligned(out.Fixed) {
				out.Fixed = append(make([]byte, 0, n*f.width), out.Fixed...)
			}
		case boolean:
			out.Fixed = make([]byte, n)
			for r := range n {
				out.Fixed[r] = first[(from+r)>>3] >> ((from + r) & 7) & 1
			}
		case short:
			out.Text = text.Keys{Bytes: bytesIn(data, 2), Offsets32: as[int32](first)[from : from+n+1]}
		case long:
			out.Text = text.Keys{Bytes: bytesIn(data, 2), Offsets: as[int64](first)[from : from+n+1]}
		}
	}
	return b
}

func bytesIn(d arrow.ArrayData, buffer int) []byte {
	if b := d.Buffers()[buffer]; b != nil {
		return b.Bytes()
	}
	return nil
}

// Source gives records: what package join reads files with.
type Source interface {
	Schema() *arrow.Schema
	Next() bool
	RecordBatch() arrow.RecordBatch
	Err() error
}

// Fill inserts all rows of a source, whose columns may be more than the table's. Rows with a null among the keys are
// left out and counted. Equal keys: one row stays. Errors: the source's; columns that are not there, or of other types;
// those of Put; the context's.
func (t *Table) Fill(ctx context.Context, from Source) (left int64, err error) {
	columns := ColumnsOf(from.Schema())
	var picked []Column
	var numbers []int
	for _, want := range t.schema.All() {
		for i, c := range columns {
			if c.Name == want.Name {
				picked, numbers = append(picked, c), append(numbers, i)
				break
			}
		}
	}
	if _, err := t.schema.Match(t.schema.All(), picked); err != nil {
		return 0, &SchemaError{t.schema.Name, Describe(t.schema.All()), Describe(columns)}
	}
	for from.Next() {
		if err := ctx.Err(); err != nil {
			return left, context.Cause(ctx)
		}
		b := FromRecord(from.RecordBatch(), numbers)
		whole := b.Rows
		b = t.withKeys(b)
		left += int64(whole - b.Rows)
		if _, err := t.Put(Insert, b); err != nil {
			if full := (*table.FullError)(nil); errors.As(err, &full) {
				return left, fmt.Errorf("table %q: %w", t.schema.Name, err)
			}
			return left, err
		}
	}
	return left, from.Err()
}

// withKeys leaves out rows with a null among the keys.
func (t *Table) withKeys(b Batch) Batch {
	nulls := 0
	for i := range t.schema.Keys {
		nulls += b.Columns[i].Nulls
	}
	if nulls == 0 {
		return b
	}
	var keep []int
	for r := range b.Rows {
		null := false
		for i := range t.schema.Keys {
			null = null || b.Columns[i].null(r)
		}
		if !null {
			keep = append(keep, r)
		}
	}
	return b.rows(keep, t.schema.All())
}

// rows copies some rows.
func (b Batch) rows(keep []int, columns []Column) Batch {
	out := Batch{len(keep), make([]Data, len(columns))}
	for i, c := range columns {
		f, _ := formOf(c.Type)
		from, to := &b.Columns[i], &out.Columns[i]
		if from.Nulls > 0 {
			to.Valid = make([]byte, bitmapBytes(len(keep)))
		}
		if f.text() {
			to.Text.Offsets = make([]int64, 1, len(keep)+1)
		}
		for j, r := range keep {
			if from.null(r) {
				to.Nulls++
			} else if to.Valid != nil {
				to.Valid[j>>3] |= 1 << (j & 7)
			}
			if f.text() {
				to.Text.Bytes = append(to.Text.Bytes, from.textBytes(r, r+1)...)
				to.Text.Offsets = append(to.Text.Offsets, int64(len(to.Text.Bytes)))
			} else {
				to.Fixed = append(to.Fixed, from.Fixed[r*f.width:(r+1)*f.width]...)
			}
		}
	}
	return out
}
