package join

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// folderColumn is a column of a Parquet file that its folders' names tell: the same value in all rows.
type folderColumn struct {
	col    *schema.Column // as which it is written
	value  *vec           // of one row
	null   bool
	number int64 // of those that have one
	signed bool  // they have
}

// inFolders is a file with columns of its folders' names: a schema that has them, where they stand, and what they are.
// places are those of the schema's other columns in the file. It is nil where a column is of a type that the library
// has to write.
func (p *parquetFile) inFolders(s *arrow.Schema, places, at []int, values []scalar.Scalar) (*parquetFile, error) {
	out := *p
	out.schema = s
	out.leaves = make([][]int, s.NumFields())
	for i, c := range places {
		out.leaves[i] = p.leaves[c]
	}
	out.folders = make([]*folderColumn, s.NumFields())
	for i, c := range at {
		f := s.Field(c)
		columns, err := pqarrow.ToParquet(arrow.NewSchema([]arrow.Field{f}, nil), nil, pqarrow.DefaultWriterProps())
		if err != nil {
			return nil, err
		}
		a, err := scalar.MakeArrayFromScalar(values[i], 1, allocator)
		if err != nil {
			return nil, err
		}
		col := columns.Column(0)
		k := &folderColumn{col: col, value: vecOf([]arrow.Array{a}, col), null: a.IsNull(0)}
		if k.value == nil {
			return nil, nil
		}
		k.value.valid = nil
		switch a := a.(type) {
		case *array.Int64:
			k.number, k.signed = a.Value(0), !k.null
		case *array.Date32:
			k.number, k.signed = int64(a.Value(0)), !k.null
		}
		out.leaves[c], out.folders[c] = nil, k
	}
	return &out, nil
}

// read gives so many rows of the column, or hands them on by stretches.
func (k *folderColumn) read(n int, each func(v *vec, from int) error) (*vec, error) {
	if each == nil {
		return k.rows(n), nil
	}
	v := k.rows(min(n, batchRows))
	for from := 0; from < n; from += v.n {
		if n-from < v.n {
			v = k.rows(n - from)
		}
		if err := each(v, from); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (k *folderColumn) rows(n int) *vec {
	allocator.check(4 * n)
	v := &vec{n: n, width: k.value.width, dict: k.value, codes: zeros[int32](nil, n)}
	if k.null {
		v.valid = make([]bool, n)
	}
	return v
}

// folder is a field that the folders' names tell, nil for others.
func (p *parquetFile) folder(field int) *folderColumn {
	if p.folders == nil {
		return nil
	}
	return p.folders[field]
}
