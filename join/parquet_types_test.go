package join

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	pqmeta "github.com/apache/arrow-go/v18/parquet/metadata"
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

// TestFarDeltas reads numbers of 32 bits that are encoded as differences of more than 32 bits, as DuckDB writes them: of
// each type that Parquet stores in 32 bits.
func TestFarDeltas(t *testing.T) {
	const far = 1<<31 - 1
	numbers := []int64{far, -80, -81, -82, -far - 1, far, 0, 1, 2}
	for i := range 300 {
		numbers = append(numbers, int64(i%97)*1_000_003-50_000_000)
	}
	for _, typ := range []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int16,
		arrow.PrimitiveTypes.Uint8, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time32ms,
		&arrow.Decimal128Type{Precision: 9, Scale: 2}} {
		for _, nulls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s nulls %t", typ, nulls), func(t *testing.T) {
				b := array.NewBuilder(mem, typ)
				var want []string
				for i, v := range numbers {
					if nulls && i%7 == 3 {
						b.AppendNull()
					} else {
						appendNumber(b, v)
					}
				}
				a := b.NewArray()
				for i := range a.Len() {
					want = append(want, fmt.Sprintf("| %d %s", i, value(t, a, i)))
				}
				path := filepath.Join(t.TempDir(), "in.parquet")
				writeDeltas(t, path, typ, numbers, nulls)
				bothWays(t, path, fmt.Sprintf("k int64, v %s, %s", typ, strings.Join(want, " ")))
			})
		}
	}
}

// appendNumber appends what 32 bits of a number are as a value of a type.
func appendNumber(b array.Builder, v int64) {
	switch b := b.(type) {
	case *array.Int32Builder:
		b.Append(int32(v))
	case *array.Uint32Builder:
		b.Append(uint32(v))
	case *array.Int16Builder:
		b.Append(int16(v))
	case *array.Uint8Builder:
		b.Append(uint8(v))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v))
	case *array.Time32Builder:
		b.Append(arrow.Time32(v))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(v))
	}
}

// writeDeltas writes a Parquet file with column k, 0 to n-1, and column v, which Parquet stores in 32 bits. The
// differences of v are numbers of 40 bits in one page, in blocks of 128 with four parts of 32.
func writeDeltas(t *testing.T, path string, typ arrow.DataType, numbers []int64, nulls bool) {
	t.Helper()
	var there []int64
	levels := binary.AppendUvarint(nil, uint64((len(numbers)+7)/8)<<1|1)
	set := make([]byte, (len(numbers)+7)/8)
	for i, v := range numbers {
		if !nulls || i%7 != 3 {
			there = append(there, v)
			set[i/8] |= 1 << (i % 8)
		}
	}
	levels = append(levels, set...)
	page := append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
	page = binary.AppendUvarint(binary.AppendUvarint(page, 128), 4)
	page = binary.AppendVarint(binary.AppendUvarint(page, uint64(len(there))), there[0])
	var deltas []int64
	for i := range there[1:] {
		deltas = append(deltas, there[i+1]-there[i])
	}
	for block := range slices.Chunk(deltas, 128) {
		least := slices.Min(block)
		page = append(binary.AppendVarint(page, least), 40, 40, 40, 40)
		for i := range 128 {
			d := uint64(0)
			if i < len(block) {
				d = uint64(block[i] - least)
			}
			page = append(page, byte(d), byte(d>>8), byte(d>>16), byte(d>>24), byte(d>>32))
		}
	}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	e, err := newParquetEncoder(w, arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "v", Type: typ, Nullable: true}}, nil), parquetOptions{compression: compress.Codecs.Uncompressed})
	if err != nil {
		t.Fatal(err)
	}
	g := &outGroup{rows: len(numbers), fields: make([]columnData, 2), chunks: make([][]*chunk, 2)}
	keys := make([]byte, 8*len(numbers))
	for i := range numbers {
		binary.LittleEndian.PutUint64(keys[8*i:], uint64(i))
	}
	for c, p := range []struct {
		data     []byte
		encoding parquet.Encoding
	}{{keys, parquet.Encodings.Plain}, {page, parquet.Encodings.DeltaBinaryPacked}} {
		meta := pqmeta.NewColumnChunkMetaDataBuilder(parquet.NewWriterProperties(parquet.WithDictionaryDefault(false),
			parquet.WithEncoding(p.encoding)), e.pq.Column(c))
		out := &tell{&bytes.Buffer{}}
		pages, err := file.NewPageWriter(out, compress.Codecs.Uncompressed, 0, meta, 0, 0, mem, false, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pages.WriteDataPage(file.NewDataPageV1(memory.NewBufferBytes(p.data), int32(len(numbers)), p.encoding,
			parquet.Encodings.RLE, parquet.Encodings.RLE, int32(len(p.data))))
		n := out.Len()
		if err := cmp.Or(err, pages.Close(false, false)); err != nil {
			t.Fatal(err)
		}
		g.chunks[c] = []*chunk{{data: out.Bytes()[:n], meta: meta}}
	}
	if err := cmp.Or(e.place(g), e.append(g), e.finish(), w.Flush(), os.WriteFile(path, b.Bytes(), 0o666)); err != nil {
		t.Fatal(err)
	}
}
