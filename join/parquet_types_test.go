package join

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// writeTexts writes a Parquet file with column k of INT64, 0 to n-1, and a column of another logical type whose values
// are text, once flat and once as a list of one value.
func writeTexts(t *testing.T, path string, as schema.LogicalType, texts ...string) {
	t.Helper()
	node := func(n schema.Node, err error) schema.Node {
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	list, err := schema.ListOf(node(schema.NewPrimitiveNodeLogical("element", parquet.Repetitions.Optional, as,
		parquet.Types.ByteArray, -1, -1)), parquet.Repetitions.Optional, -1)
	root, err := schema.NewGroupNode("root", parquet.Repetitions.Required, schema.FieldList{
		node(schema.NewPrimitiveNode("k", parquet.Repetitions.Required, parquet.Types.Int64, -1, -1)),
		node(schema.NewPrimitiveNodeLogical("v", parquet.Repetitions.Optional, as, parquet.Types.ByteArray, -1, -1)),
		node(list, err)}, -1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := file.NewParquetWriter(f, root)
	group := w.AppendRowGroup()
	for c := range 3 {
		col, err := group.NextColumn()
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			v := []parquet.ByteArray{parquet.ByteArray(text)}
			switch col := col.(type) {
			case *file.Int64ColumnChunkWriter:
				_, err = col.WriteBatch([]int64{int64(i)}, nil, nil)
			case *file.ByteArrayColumnChunkWriter:
				if c == 1 {
					_, err = col.WriteBatch(v, []int16{1}, nil)
				} else {
					_, err = col.WriteBatch(v, []int16{3}, []int16{0})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := col.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTextOfLogicalTypes reads Parquet's types JSON and ENUM, whose values are text: as rows, as keys that meet text,
// and from Parquet to Parquet, where a flat column keeps its type.
func TestTextOfLogicalTypes(t *testing.T) {
	for _, as := range []schema.LogicalType{schema.JSONLogicalType{}, schema.EnumLogicalType{}} {
		dir := t.TempDir()
		in, names := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "names.csv")
		writeTexts(t, in, as, `{"a":0}`, "b")
		put(t, names, "v,n\nb,1\n"+`"{""a"":0}",0`+"\n")
		if got, want := allRows(t, "", in), `k int64, v utf8, element list<element: utf8, nullable>, | `+
			`0 "{\"a\":0}" ["{\"a\":0}"] | 1 "b" ["b"]`; got != want {
			t.Errorf("%s: %s, want %s", as, got, want)
		}
		out := filepath.Join(dir, "out.csv")
		join := func(build, probe, on string) {
			t.Helper()
			_, err := runWith(context.Background(), nil, tuned{Options{Build: build, Probe: probe, Out: out, On: []Pair{{on, on}}},
				tuning{makers: fakeMakers}})
			if err != nil {
				t.Fatalf("%s: %v", as, err)
			}
		}
		join(names, in, "v")
		if b, _ := os.ReadFile(out); string(b) != "k,v,element,n\n"+
			`0,"{""a"":0}","[""{\""a\"":0}""]",0`+"\n"+`1,b,"[""b""]",1`+"\n" {
			t.Errorf("%s: %s", as, b)
		}
		out = filepath.Join(dir, "out.parquet")
		join(in, in, "k")
		p, err := Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if c := p.pq.flat(1); !c.LogicalType().Equals(as) {
			t.Errorf("%s becomes %s", as, c.LogicalType())
		}
	}
}

// writeBy writes columns as Parquet by the library.
func writeBy(t *testing.T, path string, columns []column, options ...parquet.WriterProperty) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := reader(t, columns)
	w, err := pqarrow.NewFileWriter(r.Schema(), f, parquet.NewWriterProperties(options...), pqarrow.DefaultWriterProps())
	for err == nil && r.Next() {
		err = w.Write(r.RecordBatch())
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bothWays reads a Parquet file by batches, and by columns as a join from Parquet to Parquet does. It compares the rows.
func bothWays(t *testing.T, path, want string) {
	t.Helper()
	if got := allRows(t, "", path); got != want {
		t.Errorf("by batches: %s, want %s", got, want)
	}
	out := filepath.Join(t.TempDir(), "out.parquet")
	_, err := runWith(context.Background(), nil, tuned{Options{Build: path, Probe: path, Out: out, How: Semi, On: []Pair{{"k", "k"}}},
		tuning{makers: fakeMakers}})
	if err != nil {
		t.Error(err)
	} else if got := allRows(t, "", out); got != want {
		t.Errorf("by columns: %s, want %s", got, want)
	}
}

// TestPagesOfNulls reads pages that have no value, with each compression and in both versions.
func TestPagesOfNulls(t *testing.T) {
	rows := []any{nil, nil, nil}
	columns := []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2, 3}}, {"i", arrow.PrimitiveTypes.Int32, rows},
		{"s", arrow.BinaryTypes.String, rows}, {"l", arrow.ListOf(arrow.BinaryTypes.String), rows}}
	want := "k int64, i int32, s utf8, l list<element: utf8, nullable>, | 1 null null null | 2 null null null | 3 null null null"
	for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip,
		compress.Codecs.Brotli, compress.Codecs.Zstd, compress.Codecs.Lz4Raw} {
		for _, version := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
			for _, coded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s v%d dictionary %t", codec, version+1, coded), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "in.parquet")
					writeBy(t, path, columns, parquet.WithCompression(codec), parquet.WithDataPageVersion(version),
						parquet.WithDictionaryDefault(coded))
					bothWays(t, path, want)
				})
			}
		}
	}
}
