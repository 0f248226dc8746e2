package join

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

type parquetEncoder struct{ w *pqarrow.FileWriter }

func newParquetEncoder(w io.Writer, schema *arrow.Schema) (encoder, error) {
	pw, err := pqarrow.NewFileWriter(schema, w, parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Snappy), parquet.WithMaxRowGroupLength(1<<20), parquet.WithVersion(parquet.V2_LATEST), parquet.WithStoreDecimalAsInteger(true)),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w (an .arrow file holds every type)", err)
	}
	return parquetEncoder{pw}, nil
}

func (e parquetEncoder) write(rec arrow.RecordBatch) error {
	if err := e.w.WriteBuffered(rec); err != nil {
		return fmt.Errorf("as Parquet: %w (an .arrow file holds every type)", err)
	}
	return nil
}

func (e parquetEncoder) finish() error { return e.w.Close() }
