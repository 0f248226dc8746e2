package kmers

import (
	"cmp"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// groupRows is how many rows a row group has at most.
const groupRows = 1 << 20

// WriteParquet writes the k-mers that came at least lower and at most upper times as a Parquet file, in the order of
// Each. Its columns are kmer, which holds the letters, and count. Cost in memory: a row group of 2²⁰ rows. Errors:
// *FileError; those of w.
func (f *File) WriteParquet(w io.Writer, lower, upper uint32) error {
	columns, err := f.schema()
	if err != nil {
		return err
	}
	to := &firstError{to: w}
	out := file.NewParquetWriter(to, columns, file.WithWriterProps(parquet.NewWriterProperties(
		// no k-mer comes twice
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDictionaryFor("kmer", false))))
	text := make([]byte, 0, groupRows*f.K)
	var counts []int32
	flush := func() error {
		kmers := make([]parquet.ByteArray, len(counts))
		for i := range kmers {
			kmers[i] = text[i*f.K : (i+1)*f.K]
		}
		err := writeGroup(out, kmers, counts)
		text, counts = text[:0], counts[:0]
		return cmp.Or(to.err, err)
	}
	err = f.Each(func(kmer Kmer, count uint32) error {
		if count < lower || count > upper {
			return nil
		}
		text, counts = Append(text, kmer, f.K), append(counts, int32(count))
		if len(counts) == groupRows {
			return flush()
		}
		return nil
	})
	if err == nil && len(counts) > 0 {
		err = flush()
	}
	err = errors.Join(err, out.Close())
	return cmp.Or(to.err, err) // what cannot be written is told once, and not what it leads to
}

// firstError keeps the error of a writer, to which nothing is written then. The Parquet library is not told: it panics,
// or tells others that follow.
type firstError struct {
	to  io.Writer
	err error
}

func (w *firstError) Write(b []byte) (n int, err error) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
	}
	return len(b), nil
}

func (f *File) schema() (*schema.GroupNode, error) {
	kmer, err := schema.NewPrimitiveNodeLogical("kmer", parquet.Repetitions.Required, schema.StringLogicalType{},
		parquet.Types.ByteArray, 0, -1)
	if err != nil {
		return nil, err
	}
	count, err := schema.NewPrimitiveNodeLogical("count", parquet.Repetitions.Required,
		schema.NewIntLogicalType(32, false), parquet.Types.Int32, 0, -1)
	if err != nil {
		return nil, err
	}
	return schema.NewGroupNode("kmers", parquet.Repetitions.Required, schema.FieldList{kmer, count}, -1)
}

func writeGroup(out *file.Writer, kmers []parquet.ByteArray, counts []int32) error {
	group, err := out.AppendRowGroupChecked()
	if err != nil {
		return err
	}
	column, err := group.NextColumn()
	if err != nil {
		return err
	}
	if _, err := column.(*file.ByteArrayColumnChunkWriter).WriteBatch(kmers, nil, nil); err != nil {
		return err
	}
	if err := column.Close(); err != nil {
		return err
	}
	if column, err = group.NextColumn(); err != nil {
		return err
	}
	if _, err := column.(*file.Int32ColumnChunkWriter).WriteBatch(counts, nil, nil); err != nil {
		return err
	}
	return errors.Join(column.Close(), group.Close())
}
