package join

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// soundFile writes a file with a key column and payload columns of many layouts.
func soundFile(t testing.TB, suffix string) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	types := []arrow.DataType{arrow.BinaryTypes.String, words, arrow.ListOf(arrow.BinaryTypes.Binary), arrow.FixedWidthTypes.Boolean,
		arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true})}
	switch suffix {
	case ".csv":
		types = []arrow.DataType{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Boolean}
	case ".arrow":
		types = append(types, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView, arrow.LargeListOf(arrow.PrimitiveTypes.Int8), arrow.Null,
			arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String), arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int16),
			arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}, []arrow.UnionTypeCode{3, 7}),
			arrow.ListViewOf(arrow.PrimitiveTypes.Int32))
	}
	n := 40
	k := array.NewInt64Builder(mem)
	for i := range n {
		k.Append(int64(i / 2))
	}
	fields, cols := []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, []arrow.Array{k.NewArray()}
	for i, typ := range types {
		a := randomArray(r, typ, 2*n)
		fields, cols = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: typ, Nullable: true}), append(cols, array.NewSlice(a, 0, int64(n)))
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
	_, err := Run(context.Background(), nil, Options{Build: in, Probe: in, Out: out, On: []Pair{{"k", "k"}}, How: Left, makers: fakeMakers})
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "in"+suffix && (err != nil || e.Name() != "out"+suffix) {
			t.Fatalf("%s is left after %v", e.Name(), err)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 2000) {
		t.Fatalf("an error that is no line: %q", err)
	}
	return err
}

func TestFlippedBits(t *testing.T) {
	for _, suffix := range []string{".arrow", ".parquet", ".csv"} {
		b := soundFile(t, suffix)
		if err := joinBroken(t, t.TempDir(), suffix, b); err != nil {
			t.Fatal(suffix, err)
		}
		dir, r := t.TempDir(), rand.New(rand.NewPCG(9, 10))
		refused := 0
		for range 400 {
			flipped := append([]byte(nil), b...)
			for range 1 + r.IntN(3) {
				flipped[r.IntN(len(b))] ^= 1 << r.IntN(8)
			}
			if joinBroken(t, dir, suffix, flipped) != nil {
				refused++
			}
		}
		for cut := 0; cut < len(b); cut += 1 + len(b)/100 {
			if joinBroken(t, dir, suffix, b[:cut]) == nil && suffix != ".csv" {
				t.Errorf("%s: %d bytes of %d are joined", suffix, cut, len(b))
			}
		}
		t.Logf("%s: %d of 400 refused", suffix, refused)
	}
}

func fuzzFile(f *testing.F, suffix string) {
	b := soundFile(f, suffix)
	f.Add(b)
	for i := range 64 {
		flipped := append([]byte(nil), b...)
		flipped[i*len(b)/64] ^= 0x80
		f.Add(flipped)
	}
	f.Fuzz(func(t *testing.T, b []byte) { joinBroken(t, t.TempDir(), suffix, b) })
}

func FuzzArrowFile(f *testing.F)   { fuzzFile(f, ".arrow") }
func FuzzParquetFile(f *testing.F) { fuzzFile(f, ".parquet") }
func FuzzCSVFile(f *testing.F)     { fuzzFile(f, ".csv") }

var _ = errors.New
