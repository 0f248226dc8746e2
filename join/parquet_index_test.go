package join

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// TestPageIndex joins a file of many pages, of whose keys a few stretches match, with an index of the pages and
// without: the same rows come out, and with it most pages are not read. What a wrong index says changes nothing.
func TestPageIndex(t *testing.T) {
	const n = 20_000
	dir := t.TempDir()
	var keys, nulls, texts, words []any
	for i := range n {
		keys, words = append(keys, i), append(words, fmt.Sprint("word ", i/100%7))
		nulls = append(nulls, any(i))
		if i%3 == 0 {
			nulls[i] = nil
		}
		texts = append(texts, strings.Repeat(fmt.Sprint(i), i%4))
	}
	probe := reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, keys}, {"n", arrow.PrimitiveTypes.Int32, nulls},
		{"text", arrow.BinaryTypes.String, texts},
		{"word", arrow.BinaryTypes.String, words}})
	probe.Next()
	with, without := filepath.Join(dir, "with.parquet"), filepath.Join(dir, "without.parquet")
	for path, index := range map[string]bool{with: true, without: false} {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w, err := pqarrow.NewFileWriter(probe.Schema(), f,
			parquet.NewWriterProperties(parquet.WithPageIndexEnabled(index), parquet.WithDataPageSize(2000),
				parquet.WithBatchSize(100),
				parquet.WithDictionaryFor("word", true), parquet.WithDictionaryFor("text", false),
				parquet.WithDictionaryFor("k", false), parquet.WithCompression(compress.Codecs.Snappy)),
			pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(probe.RecordBatch()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var some []any // the ends of a stretch, so that others lie between
	for i := range 300 {
		some = append(some, 4000+i, 9000+i)
	}
	for name, build := range map[string][]any{"near": some, "far": append(some, 8_000)} {
		path := filepath.Join(dir, name+".parquet")
		write(t, path,
			reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, build}, {"v", arrow.PrimitiveTypes.Int64, build}}))
		for _, how := range []How{Inner, Left, Semi, Anti, Full} {
			o := tuned{Options{Build: path, On: []Pair{{"k", "k"}}, How: how}, tuning{makers: fakeMakers}}
			join := func(probe, out string) (Summary, [][]string) {
				o.Probe, o.Out = probe, filepath.Join(dir, out)
				s, err := runWith(t.Context(), nil, o)
				if err != nil {
					t.Fatal(name, how, err)
				}
				_, rows := read(t, o.Out)
				return s, rows
			}
			_, plain := join(without, "plain.parquet")
			s, indexed := join(with, "indexed.parquet")
			sameRows(t, fmt.Sprint(name, how), indexed, plain)
			if s.Pages < 20 {
				t.Errorf("%s, %v: %d pages were not read", name, how, s.Pages)
			}
		}
	}
}

// TestWrongPageIndex reads columns by indexes that do not fit their pages: then all pages are read.
func TestWrongPageIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	var keys []any
	for i := range 1000 {
		keys = append(keys, i)
	}
	r := reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, keys}})
	r.Next()
	var file bytes.Buffer
	w, err := pqarrow.NewFileWriter(r.Schema(), &file, parquet.NewWriterProperties(parquet.WithPageIndexEnabled(true),
		parquet.WithDataPageSize(500), parquet.WithBatchSize(50),
		parquet.WithDictionaryDefault(false)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(r.RecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := file.Bytes()
	whole := open(t, path, data)
	index, err := whole.raw.GetPageIndexReader().RowGroup(0)
	if err != nil || index == nil {
		t.Fatal("no index", err)
	}
	chunk, err := whole.pf.MetaData().RowGroup(0).ColumnChunk(0)
	if err != nil {
		t.Fatal(err)
	}
	at := chunk.GetOffsetIndexLocation()
	skipped := int64(0)
	for i := range int(at.Length) {
		b := bytes.Clone(data)
		b[int(at.Offset)+i] ^= 1 << (i % 8)
		p := open(t, path, b)
		v, err := p.vec(0, 0, &wanted{rows: []uint32{500, 501}, skipped: &skipped})
		if err != nil {
			t.Fatalf("byte %d of the index changed: %v", i, err)
		}
		for _, row := range []int{500, 501} {
			if got := words[uint64](v.fixed)[row]; v.n != 1000 || v.valid != nil && !v.valid[row] ||
				got != uint64(row) {
				t.Fatalf("byte %d of the index changed: %d rows, row %d is %d", i, v.n, row, got)
			}
		}
	}
	if skipped == 0 {
		t.Error("no page was passed over")
	}
}

// open writes a Parquet file and opens it.
func open(t *testing.T, path string, data []byte) *parquetFile {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p, err := openParquet(f, path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
