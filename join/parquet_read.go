package join

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

func (r *Reader) parquet(f *os.File) error {
	props := parquet.NewReaderProperties(allocator)
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = math.MaxInt32, math.MaxInt32 // what the format can say
	pf, err := file.NewParquetReader(f, file.WithReadProps(props))
	if err != nil {
		return fmt.Errorf("not a readable Parquet file: %w", err)
	}
	if err := checkChunks(pf, f); err != nil {
		return err
	}
	if v := pf.MetaData().KeyValueMetadata().FindValue("ARROW:schema"); v != nil {
		if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(*v, "=")); err == nil {
			if err := checkArrowStream(bytes.NewReader(b), int64(len(b))); err != nil {
				return fmt.Errorf("%s: its Arrow schema: %w", broken, err)
			}
		}
	}
	pr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: batchRows}, allocator)
	if err != nil {
		return err
	}
	s, err := pr.Schema()
	if err != nil {
		return err
	}
	if s.NumFields() == 0 {
		return errors.New("a Parquet file without columns")
	}
	r.schema = arrow.NewSchema(s.Fields(), nil)
	if r.rows = pf.NumRows(); r.rows < 0 {
		return fmt.Errorf("the file is broken: %d rows", r.rows)
	}
	leaves := make([][]int, s.NumFields())
	for i := range pf.MetaData().Schema.NumColumns() {
		at, err := pr.Manifest.GetFieldIndices([]int{i})
		if err != nil {
			return err
		}
		leaves[at[0]] = append(leaves[at[0]], i)
	}
	if c := slices.IndexFunc(leaves, func(l []int) bool { return len(l) == 0 }); c >= 0 {
		return fmt.Errorf("column %q is a group without columns", s.Field(c).Name)
	}
	r.pick = func(columns []int) {
		var some [][]int
		for _, c := range columns {
			some = append(some, leaves[c])
		}
		leaves = some
	}
	// Each column has a reader of its own, so that it is decoded on a goroutine of ours: on one of the library's
	// nobody could catch a panic.
	var columns []pqarrow.RecordReader
	read := int64(0)
	r.next = func() (arrow.RecordBatch, error) {
		for i := len(columns); i < len(leaves); i++ {
			c, err := pr.GetRecordReader(context.Background(), leaves[i], nil)
			if err != nil {
				return nil, err
			}
			columns = append(columns, c)
		}
		arrays := make([]arrow.Array, len(columns))
		rows := int64(0)
		errs := each(len(columns), func(i int) error {
			if columns[i].Next() {
				arrays[i] = columns[i].RecordBatch().Column(0)
				arrays[i].Retain()
			}
			return columns[i].Err()
		})
		for i, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("column %q: %w", r.schema.Field(i).Name, err)
			}
			if n := length(arrays[i]); i == 0 {
				rows = n
			} else if n != rows {
				return nil, fmt.Errorf("the file is broken: columns %q and %q have different numbers of rows", r.schema.Field(0).Name, r.schema.Field(i).Name)
			}
		}
		if read += rows; rows == 0 && read != r.rows || read > r.rows {
			return nil, fmt.Errorf("the file is broken: it says that it has %d rows, and has %d", r.rows, read)
		}
		if rows == 0 {
			return nil, io.EOF
		}
		return array.NewRecordBatch(r.schema, arrays, rows), nil
	}
	r.close = func() error {
		for _, c := range columns {
			c.Release()
		}
		return cmp.Or(pf.Close(), ignoreClosed(f.Close()))
	}
	return nil
}

// checkChunks checks that all columns lie in the file. The library opens those of a struct on goroutines of its own, with
// buffers as long as their chunks are said to be.
func checkChunks(pf *file.Reader, f *os.File) error {
	s, err := f.Stat()
	if err != nil {
		return err
	}
	for g := range pf.NumRowGroups() {
		rows := pf.MetaData().RowGroup(g)
		for i := range pf.MetaData().Schema.NumColumns() {
			c, err := rows.ColumnChunk(i)
			if err != nil {
				return fmt.Errorf("%s: row group %d: %w", broken, g, err)
			}
			from, n := c.DataPageOffset(), c.TotalCompressedSize()
			if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 {
				from = min(from, c.DictionaryPageOffset())
			}
			if from < 0 || n < 0 || n > s.Size() || from > s.Size()-n {
				return fmt.Errorf("%s: row group %d: a column of %d bytes at %d, in a file of %d", broken, g, n, from, s.Size())
			}
		}
	}
	return nil
}

func length(a arrow.Array) int64 {
	if a == nil {
		return 0
	}
	return int64(a.Len())
}
