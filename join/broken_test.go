package join

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// soundFile writes a file with a key column and payload columns of many layouts.
func soundFile(t testing.TB, suffix string) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	types := []arrow.DataType{arrow.BinaryTypes.String, words, arrow.ListOf(arrow.BinaryTypes.Binary),
		arrow.FixedWidthTypes.Boolean,
		arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
			arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true})}
	switch format, _ := named("x" + suffix); {
	case format.text():
		types = []arrow.DataType{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Date32,
			arrow.FixedWidthTypes.Boolean}
	case format == Arrow:
		types = append(types, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView,
			arrow.LargeListOf(arrow.PrimitiveTypes.Int8), arrow.Null,
			arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String), arrow.FixedSizeListOf(3,
				arrow.PrimitiveTypes.Int16),
			arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
				{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}, []arrow.UnionTypeCode{3, 7}),
			arrow.ListViewOf(arrow.PrimitiveTypes.Int32))
	}
	n := 40
	k := array.NewInt64Builder(mem)
	for i := range n {
		k.Append(int64(i / 2))
	}
	fields, cols := []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}},
		[]arrow.Array{k.NewArray()}
	for i, typ := range types {
		a := randomArray(r, typ, 2*n)
		fields, cols = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: typ, Nullable: true}), append(cols,
			array.NewSlice(a, 0, int64(n)))
	}
	schema := arrow.NewSchema(fields, nil)
	rr, err := array.NewRecordReader(schema, []arrow.RecordBatch{array.NewRecordBatch(schema, cols, int64(n))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sound"+suffix)
	write(t, path, rr)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// joinBroken joins a file that may be broken with itself. A panic would end the test's process; what must hold beyond
// that is that nothing is left of an output that an error kept from being written, and that the error is a line.
func joinBroken(t testing.TB, dir, suffix string, b []byte) error {
	t.Helper()
	in, out := filepath.Join(dir, "in"+suffix), filepath.Join(dir, "out"+suffix)
	if err := os.WriteFile(in, b, 0o666); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out)
	how := Left
	if len(b) > 0 && b[len(b)/2]&1 == 0 {
		how = Semi // all rows, so that they are copied
	}
	o := tuned{Options{Build: in, Probe: in, Out: out, On: []Pair{{"k", "k"}}, How: how}, tuning{makers: fakeMakers}}
	if len(b) > 0 && b[len(b)/3]&1 == 0 { // keys that lie close together, by what the file says
		o.Device, o.Open = "cpu", func(name, _ string) ([]*device.Device, error) { return device.OpenAll(name) }
	}
	if len(b) > 0 && b[len(b)/4]&3 == 0 {
		o.part = 3000
	}
	_, err := runWith(context.Background(), nil, o)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "in"+suffix && (err != nil || e.Name() != "out"+suffix) {
			t.Fatalf("%s is left after %v", e.Name(), err)
		}
	}
	if err == nil && suffix == ".parquet" {
		// What is broken does not go on into the output.
		r, err := Open(out)
		if err != nil {
			t.Fatal(err)
		}
		for r.Next() {
		}
		if err := cmp.Or(r.Err(), r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if errors.As(err, new(*crash.Error)) {
		t.Fatalf("a broken file is taken for a defect: %v", err)
	}
	if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 2000) {
		t.Fatalf("an error that is no line: %q", err)
	}
	return err
}

// Files are flipped for a second in all, with WARPMAP_LONG for a minute.
func TestFlippedBits(t *testing.T) {
	suffixes := []string{".arrow", ".parquet", ".csv", ".tsv", ".jsonl", ".csv.gz", ".tsv.zst", ".jsonl.gz"}
	each, least := time.Second/time.Duration(len(suffixes)), 40
	if testenv.Long() {
		each, least = 60*each, 100
	}
	for _, suffix := range suffixes {
		b := soundFile(t, suffix)
		if err := joinBroken(t, t.TempDir(), suffix, b); err != nil {
			t.Fatal(suffix, err)
		}
		dir, r := t.TempDir(), rand.New(rand.NewPCG(9, 10))
		refused, all := 0, 0
		for end := time.Now().Add(each); all < least || time.Now().Before(end); all++ {
			flipped := append([]byte(nil), b...)
			for range 1 + r.IntN(3) {
				flipped[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			if joinBroken(t, dir, suffix, flipped) != nil {
				refused++
			}
		}
		for cut := 0; cut < len(b); cut += 1 + len(b)/least {
			if joinBroken(t, dir, suffix, b[:cut]) == nil && suffix != ".csv" && suffix != ".tsv" &&
				!bytes.HasSuffix(bytes.TrimSpace(b[:cut]), []byte("}")) {
				t.Errorf("%s: %d bytes of %d are joined", suffix, cut, len(b))
			}
		}
		t.Logf("%s: %d of %d refused", suffix, refused, all)
	}
}

// Bits of every byte of the metadata are flipped: what the library makes of some (slices of 60 GB, fields within
// themselves) ends a process, and no recover stops it.
func TestMetadataThatLeadsAnywhere(t *testing.T) {
	b := soundFile(t, ".arrow")
	footer := len(b) - 10 - int(binary.LittleEndian.Uint32(b[len(b)-10:]))
	stream := append([]byte(nil), b[8:footer]...) // what stands between is the stream format
	end := 8 + int(binary.LittleEndian.Uint32(stream[4:]))
	for name, c := range map[string]struct {
		b        []byte
		from, to int
	}{"file": {b, footer, len(b) - 10}, "stream": {stream, 0, end}} {
		path := filepath.Join(t.TempDir(), "in.arrow")
		refused, tried, step := 0, 0, 1
		if !testenv.Long() {
			step = 3 // of its words each byte by turns
		}
		for at := c.from; at < c.to; at += step {
			for _, bits := range []byte{0x01, 0x08} {
				wrong := append([]byte(nil), c.b...)
				wrong[at] ^= bits
				os.WriteFile(path, wrong, 0o666)
				r, err := Open(path)
				if err == nil {
					for r.Next() {
					}
					err = r.Err()
					r.Close()
				}
				if tried++; err != nil {
					refused++
				}
			}
		}
		if refused < tried/8 {
			t.Errorf("%s: %d of %d refused", name, refused, tried)
		}
	}
}

// smallFile is a file of two columns and few rows: what a fuzzer makes of it is small enough for a corpus.
func smallFile(t testing.TB, suffix string) []byte {
	path := filepath.Join(t.TempDir(), "small"+suffix)
	write(t, path, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{int64(1), nil, int64(3)}},
		{"s", arrow.BinaryTypes.String, []any{"a", "bc", nil}}}))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// addFlipped adds a file as a seed, and 64 more, in each of which a bit is another.
func addFlipped(f *testing.F, b []byte) {
	f.Add(b)
	for i := range 64 {
		flipped := append([]byte(nil), b...)
		flipped[i*len(b)/64] ^= 0x80
		f.Add(flipped)
	}
}

func fuzzFile(f *testing.F, suffix string) {
	for _, b := range [][]byte{soundFile(f, suffix), smallFile(f, suffix)} {
		addFlipped(f, b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Bounded(t, len(b), func() { joinBroken(t, t.TempDir(), suffix, b) })
	})
}

func FuzzArrowFile(f *testing.F)   { fuzzFile(f, ".arrow") }
func FuzzParquetFile(f *testing.F) { fuzzFile(f, ".parquet") }
func FuzzCSVFile(f *testing.F)     { fuzzFile(f, ".csv") }

// panics is a reader that gives a batch and then panics, as a decoder may.
type panics struct {
	array.RecordReader
	after int
}

func (p *panics) Next() bool {
	if p.after--; p.after < 0 {
		panic("a broken decoder")
	}
	return p.RecordReader.Next()
}

// Whatever goroutine a panic comes from, it is an error of the join, which ends in order.
func TestPanicsAreErrors(t *testing.T) {
	values := make([]any, 100)
	for i := range values {
		values[i] = int64(i)
	}
	rows := func() array.RecordReader { return reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, values}}, 10) }
	sink := func(arrow.RecordBatch) error { return nil }
	silent := func(Progress) {}
	for name, c := range map[string]struct {
		build, probe array.RecordReader
		sink         func(arrow.RecordBatch) error
		progress     func(Progress)
	}{
		"build": {&panics{rows(), 1}, rows(), sink, silent},
		"probe": {rows(), &panics{rows(), 3}, sink, silent},
		"sink":  {rows(), rows(), func(arrow.RecordBatch) error { panic("a broken encoder") }, silent},
		"progress": {rows(), rows(), sink, func(p Progress) {
			if p.Stage == "probe" {
				panic("a broken bar")
			}
		}},
	} {
		o := tuned{Options{On: []Pair{{"k", "k"}}, Progress: c.progress}, tuning{makers: fakeMakers, batch: 10}}
		if _, err := joinWith(context.Background(), nil, c.build, c.probe, o, c.sink); err == nil ||
			!strings.Contains(err.Error(), "a broken") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Readers of others may bring columns whose offsets point anywhere. Slices and sizes made of them are errors.
func TestOffsetsThatPointAnywhere(t *testing.T) {
	i64, str := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	bytes := func(b string) *memory.Buffer { return memory.NewBufferBytes([]byte(b)) }
	offsets := func(o ...int32) *memory.Buffer { return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(o)) }
	ints := array.NewData(arrow.PrimitiveTypes.Int8, 3, []*memory.Buffer{nil, bytes("abc")}, nil, 0, 0)
	list := arrow.ListOf(arrow.PrimitiveTypes.Int8)
	for name, d := range map[string]arrow.ArrayData{
		"beyond":    array.NewData(str, 2, []*memory.Buffer{nil, offsets(0, 7, 3), bytes("abc")}, nil, 0, 0),
		"backwards": array.NewData(str, 2, []*memory.Buffer{nil, offsets(2, 1, 3), bytes("abc")}, nil, 0, 0),
		"negative":  array.NewData(str, 2, []*memory.Buffer{nil, offsets(0, -1, 3), bytes("abc")}, nil, 0, 0),
		"long list": array.NewData(list, 2, []*memory.Buffer{nil, offsets(0, math.MaxInt32, 3)}, []arrow.ArrayData{ints}, 0, 0),
	} {
		v := array.MakeFromData(d)
		k := array.NewInt64Builder(mem)
		k.AppendValues([]int64{1, 2}, nil)
		schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: i64}, {Name: "v", Type: v.DataType()}}, nil)
		rr, err := array.NewRecordReader(schema,
			[]arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{k.NewArray(), v}, 2)})
		if err != nil {
			t.Fatal(err)
		}
		probe := reader(t, []column{{"k", i64, []any{2, 1, 2}}})
		_, err = joinWith(context.Background(), nil, rr, probe, tuned{Options{On: []Pair{{"k", "k"}}},
			tuning{makers: fakeMakers}}, func(arrow.RecordBatch) error { return nil })
		if err == nil || !strings.Contains(err.Error(), `column "v"`) ||
			!strings.Contains(err.Error(), "a value that goes from") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParquetThatCountsWrongly changes the number of rows in a file's footer: rows that are missing must not pass in
// silence.
func TestParquetThatCountsWrongly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.parquet")
	write(t, path, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, make([]any, 100)}}))
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.rows++
	for r.Next() {
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "it says that it has 101 rows, and has 100") {
		t.Error(r.Err())
	}
}
