package join

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/warpmap/warpmap/internal/testenv"
)

// read gives a whole file as text.
func read(t testing.TB, path string) (*arrow.Schema, [][]string) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rows [][]string
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			var row []string
			for _, c := range rec.Columns() {
				row = append(row, value(t, c, i))
			}
			rows = append(rows, row)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Rows() >= 0 && r.Rows() != int64(len(rows)) {
		t.Errorf("%s: says %d rows, has %d", path, r.Rows(), len(rows))
	}
	return r.Schema(), rows
}

// TestEveryTypeThroughFiles joins payload columns of every type, from both sides, file to file, in the formats that
// hold the type.
func TestEveryTypeThroughFiles(t *testing.T) {
	notParquet := []arrow.Type{arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO,
		arrow.SPARSE_UNION, arrow.DENSE_UNION,
		arrow.RUN_END_ENCODED, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW, arrow.STRING_VIEW, arrow.BINARY_VIEW,
		arrow.DURATION, arrow.DECIMAL32, arrow.DECIMAL64, arrow.FIXED_SIZE_LIST}
	for _, typ := range allTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			dir := t.TempDir()
			r := rand.New(rand.NewPCG(3, 4))
			schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
				{Name: "v", Type: typ, Nullable: true}}, nil)
			// Batches of their own dictionaries.
			var recs []arrow.RecordBatch
			for range 3 {
				b := array.NewInt64Builder(mem)
				v := randomArray(r, typ, 40)
				for range v.Len() {
					b.Append(int64(r.IntN(60)))
				}
				recs = append(recs, array.NewRecordBatch(schema, []arrow.Array{b.NewArray(), v}, int64(v.Len())))
			}
			var want [][]string
			for _, p := range recs {
				for i := range int(p.NumRows()) {
					n := 0
					for _, b := range recs {
						for j := range int(b.NumRows()) {
							if p.Column(0).ValueStr(i) == b.Column(0).ValueStr(j) {
								want = append(want, []string{p.Column(0).ValueStr(i), value(t, p.Column(1), i),
									value(t, b.Column(1), j)})
								n++
							}
						}
					}
					if n == 0 {
						t.Fatal("every key is there")
					}
				}
			}
			for _, suffix := range []string{".arrow", ".parquet"} {
				in, out := filepath.Join(dir, "in"+suffix), filepath.Join(dir, "out"+suffix)
				rr, err := array.NewRecordReader(schema, recs)
				if err != nil {
					t.Fatal(err)
				}
				if suffix == ".parquet" && slices.Contains(notParquet, typ.ID()) {
					continue
				}
				write(t, in, rr)
				if _, err := runWith(context.Background(), nil,
					tuned{Options{Build: in, Probe: in, Out: out, On: []Pair{{"k", "k"}}, How: Left},
						tuning{makers: fakeMakers}}); err != nil {
					t.Fatal(suffix, err)
				}
				s, got := read(t, out)
				typ := typ
				if suffix == ".parquet" {
					switch {
					case typ.ID() == arrow.DATE64:
						typ = arrow.FixedWidthTypes.Date32
					case typ.ID() == arrow.TIME32:
						typ = arrow.FixedWidthTypes.Time32ms
					case typ.ID() == arrow.DICTIONARY && typ.(*arrow.DictionaryType).ValueType.ID() == arrow.INT64:
						typ = arrow.PrimitiveTypes.Int64
					case typ.ID() == arrow.LARGE_LIST:
						typ = s.Field(1).Type // the element's name changes
					}
				}
				if !arrow.TypeEqual(s.Field(1).Type, typ) || !arrow.TypeEqual(s.Field(2).Type, typ) {
					t.Errorf("%s: types %s and %s", suffix, s.Field(1).Type, s.Field(2).Type)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s:\n%v\nwant\n%v", suffix, got, want)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
					t.Errorf("%v left over", left)
				}
			}
		})
	}
}

func TestFormats(t *testing.T) {
	dir := t.TempDir()
	i64 := arrow.PrimitiveTypes.Int64
	cols := []column{
		{"k", i64, []any{int64(1), nil, int64(-1) << 63, int64(1)<<53 + 1}},
		{"s", arrow.BinaryTypes.String, []any{"plain", nil, "a,\"b\"\nc", " lead"}},
		{"d", arrow.FixedWidthTypes.Date32, []any{"2024-02-29", nil, "1969-12-31", "0001-01-01"}},
		{"f", arrow.PrimitiveTypes.Float64, []any{"0.1", nil, "3", "1e300"}},
		{"b", arrow.FixedWidthTypes.Boolean, []any{true, nil, false, true}},
		{"t", &arrow.TimestampType{Unit: arrow.Microsecond}, []any{"2024-02-29T01:02:03.000004", nil, "1969-12-31T23:59:59.999999", "0001-01-01T00:00:00"}},
		{"z", &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, []any{"2024-02-29T01:02:03.000000004Z", nil, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"}},
		{"u", arrow.PrimitiveTypes.Uint64, []any{uint64(1<<64 - 1), nil, uint64(0), uint64(5)}},
	}
	var first [][]string
	for _, rows := range []int{4, 0} {
		for i := range cols {
			cols[i].values = cols[i].values[:rows]
		}
		for _, suffix := range append(Suffixes(), ".PARQUET", ".csv.gz", ".tsv.zst", ".jsonl.gz") {
			if rows == 0 && strings.Contains(suffix, "json") { // no row, no columns
				continue
			}
			path := filepath.Join(dir, "t"+suffix)
			textual, _ := named(path)
			write(t, path, reader(t, cols, 3))
			s, got := read(t, path)
			if len(got) != rows {
				t.Fatalf("%s: %d rows, want %d", suffix, len(got), rows)
			}
			if rows == 0 {
				first = nil
			} else if first == nil {
				first = got
			} else if fmt.Sprint(got) != fmt.Sprint(first) {
				t.Errorf("%s:\n%v\nwant\n%v", suffix, got, first)
			}
			for i, c := range cols {
				if want := c.typ; s.Field(i).Name != c.name || (rows > 0 || !textual.text()) &&
					!arrow.TypeEqual(s.Field(i).Type, want) {
					t.Errorf("%s: column %v, want %s of %s", suffix, s.Field(i), c.name, want)
				}
			}
		}
	}
}

func TestArrowStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.arrow")
	var b bytes.Buffer
	r := reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2, nil, 4}}}, 1, 2)
	w := ipc.NewWriter(&b, ipc.WithSchema(r.Schema()))
	for r.Next() {
		w.Write(r.RecordBatch())
	}
	w.Close()
	os.WriteFile(path, b.Bytes(), 0o666)
	if _, got := read(t, path); fmt.Sprint(got) != "[[1] [2] [null] [4]]" {
		t.Fatal(got)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := filepath.Join(dir, "whole.parquet")
	write(t, whole, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2, 3}}}))
	bytes, _ := os.ReadFile(whole)
	cases := []struct{ path, want string }{
		{file("a.txt", ""), "should end in one of .parquet, .csv, .arrow, .ipc, .feather"},
		{file("noname", ""), "no known file format"},
		{filepath.Join(dir, "absent.csv"), "no such file"},
		{file("e.csv", ""), "no header line"},
		{file("e.parquet", ""), "not a Parquet file: it is empty"},
		{file("e.arrow", ""), "not a readable Arrow file"},
		{file("cut.parquet", string(bytes[:len(bytes)-9])), "not a whole Parquet file"},
		{file("cut.arrow", "ARROW1\x00\x00nonsense"), "Arrow file"},
		{file("short.csv", "a,b\n1,2\n\n3\n"), "line 4: 1 fields, where the header has 2"},
		{file("quote.csv", "a,b\n1,\"2\n"), "without its closing quote"},
		{file("after.csv", "a,b\n1,\"2\"3\n"), "line 2: column 2: text after a closing quote"},
		{file("latin.csv", "a,b\n1,M\xfcnchen\n"), `line 2, column "b": not UTF-8`},
	}
	for _, c := range cases {
		r, err := Open(c.path)
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if _, err := Create(filepath.Join(dir, "a.txt"), arrow.NewSchema(nil, nil)); err == nil ||
		!strings.Contains(err.Error(), "- for CSV") {
		t.Error(err)
	}
	if _, err := Create(filepath.Join(dir, "nowhere", "a.csv"), arrow.NewSchema(nil, nil)); !os.IsNotExist(err) {
		t.Error(err)
	}
	os.Mkdir(filepath.Join(dir, "d.csv"), 0o777)
	if _, err := Create(filepath.Join(dir, "d.csv"), arrow.NewSchema(nil, nil)); err == nil ||
		!strings.Contains(err.Error(), "a folder") {
		t.Error(err)
	}
	// What cannot be written leaves nothing.
	_, err := Create(filepath.Join(dir, "u.parquet"),
		arrow.NewSchema([]arrow.Field{{Name: "u", Type: arrow.SparseUnionOf(nil, nil)}}, nil))
	if err == nil {
		t.Error("a union in Parquet")
	}
	// And an output that fails in the middle: a probe file that breaks off.
	path := filepath.Join(dir, "broken.csv")
	os.WriteFile(path, []byte("k\n1\n"), 0o666)
	_, err = runWith(context.Background(), nil,
		tuned{Options{Build: whole, Probe: path, Out: filepath.Join(dir, "out.csv"), On: []Pair{{"k", "k"}},
			Progress: func(p Progress) {
				if p.Stage == "read" {
					os.WriteFile(path, []byte("k\nx\n"), 0o666)
				}
			}}, tuning{makers: fakeMakers}})
	if err == nil || !strings.Contains(err.Error(), "the file changed while it was read") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out.csv")); !os.IsNotExist(err) {
		t.Error("an output after an error")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("%v left over", left)
	}
}

func TestThroughLink(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/there.csv", []byte("old"), 0o600)
	if err := os.Symlink("there.csv", dir+"/link.csv"); err != nil {
		t.Skip(err)
	}
	write(t, dir+"/link.csv", reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1}}}))
	got, _ := os.ReadFile(dir + "/there.csv")
	s, _ := os.Lstat(dir + "/link.csv")
	f, _ := os.Stat(dir + "/there.csv")
	if string(got) != "k\n1\n" || s.Mode()&os.ModeSymlink == 0 || f.Mode().Perm() != 0o600 {
		t.Fatalf("%q %v %v", got, s.Mode(), f.Mode())
	}
}

func TestInferCSV(t *testing.T) {
	cases := []struct{ fields, want string }{
		{"1 -2 0", "int64"},
		{"9223372036854775807 -9223372036854775808", "int64"},
		{"9223372036854775808 0 18446744073709551615", "uint64"},
		{"9223372036854775808 -1", "utf8"},
		{"18446744073709551616", "utf8"},
		{"1 2 x", "utf8"},
		{"007", "utf8"},
		{"+5", "utf8"},
		{"- 1", "utf8"},
		{"1.5 2", "float64"},
		{"1.5 9007199254740993", "utf8"},
		{"1.5 9007199254740992 -9007199254740992", "float64"},
		{"9007199254740993.0", "utf8"},
		{"0.1 0.30000000000000004 1e-300 -0 NaN Inf -Inf", "float64"},
		{"0.12345678901234567890123", "utf8"},
		{"1.000000000000000055511151231257827021181583404541015625e-01", "float64"},
		{"0.10000000000000001", "float64"},
		{"1e400", "utf8"},
		{"1e-400", "utf8"},
		{"0e-400", "float64"},
		{"5e-324", "float64"},
		{"1. 2", "utf8"},
		{".5", "utf8"},
		{"1e5 1E+5", "float64"},
		{"0x10", "utf8"},
		{"1_000", "utf8"},
		{"true False TRUE", "bool"},
		{"true 1", "utf8"},
		{"t f", "utf8"},
		{"2024-02-29 1969-12-31 0000-01-01", "date32"},
		{"2023-02-29", "utf8"},
		{"2024-2-9", "utf8"},
		{"2024-02-29T10:11:12 0001-01-01T00:00:00.123456", "timestamp[us]"},
		{"2024-02-29T10:11:12Z", "timestamp[us, tz=UTC]"},
		{"2024-02-29T10:11:12Z 2024-02-29T10:11:12", "utf8"},
		{"2024-02-29T10:11:12.123456789", "timestamp[ns]"},
		{"2024-02-29T10:11:12.123456789 0001-01-01T00:00:00", "utf8"},
		{"2024-02-29T10:11:12+01:00", "utf8"},
		{"2024-02-29T24:00:00", "utf8"},
		{"2024-02-29 2024-02-29T10:11:12", "utf8"},
		{"", "null"},
	}
	for _, c := range cases {
		f, err := openCSV(bytesSource([]byte("h,x\n"+strings.ReplaceAll(c.fields, " ", ",y\n")+",y\n")), dialect{delimiter: ',', quote: '"'}, nil, nil, false)
		if err != nil {
			t.Fatal(c.fields, err)
		}
		if got := f.columns[0].typ().String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.fields, got, c.want)
		}
	}
}

func TestScanCSV(t *testing.T) {
	cases := []struct{ in, want string }{
		{"a,b\n1,2\n", "[a b] [1 2]"},
		{"a,b\r\n1,2\r\n", "[a b] [1 2]"},
		{"\ufeffa,b\n1,2", "[a b] [1 2]"},
		{"\ufeff\"a,\"\"\",b\n1,2", `[a," b] [1 2]`},
		{"a,b\n\n1,2\n\n", "[a b] [1 2]"},
		{"a\n\n1\n", "[a] [] [1]"},
		{"a,b\n\"x\ny\",\"\"\"z\"\"\"\n", "[a b] [x\ny \"z\"]"},
		{"a,b\nx\"y\",\n", `[a b] [x"y" ]`},
		{"a,b\n\"1\",\"2\"\r\n\"3\",\"4\"", "[a b] [1 2] [3 4]"},
		{"a,b\r1,2\r\"3\",\"4\"\r", "[a b] [1 2] [3 4]"},
		{"a,b\r1,\r\"x\ry\",2", "[a b] [1 ] [x\ry 2]"},
	}
	for _, c := range cases {
		for _, size := range []int{1, 3, 7, 1 << 20} { // in blocks of any size
			for _, one := range []bool{false, true} { // a byte at a time, too
				cutInto(t, size)
				src := bytesSource([]byte(c.in))
				if one {
					src = func() (io.ReadCloser, error) { return io.NopCloser(oneByte{strings.NewReader(c.in)}), nil }
				}
				f, err := openCSV(src, dialect{delimiter: ',', quote: '"'}, nil, nil, false)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				types := make([]arrow.DataType, len(f.columns))
				for i, column := range f.columns {
					names, types[i] = append(names, column.name), arrow.BinaryTypes.String
				}
				got, rows := fmt.Sprint(names), 0
				for _, rec := range textBatches(t, f, types) {
					for i := range int(rec.NumRows()) {
						var row []string
						for _, column := range rec.Columns() {
							row = append(row, column.(*array.String).Value(i))
						}
						got += fmt.Sprintf(" %s", row)
						rows++
					}
				}
				if got != c.want || int64(rows) != f.rows {
					t.Errorf("%q in blocks of %d: %s, want %s; %d rows of %d", c.in, size, got, c.want, rows, f.rows)
				}
			}
		}
	}
}

// cutInto makes text be read in small blocks until the test ends.
func cutInto(t testing.TB, size int) {
	before := textBlock
	textBlock = size
	t.Cleanup(func() { textBlock = before })
}

func bytesSource(b []byte) textSource {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

// textBatches reads text to its end.
func textBatches(t testing.TB, f *textFile, types []arrow.DataType) (out []arrow.RecordBatch) {
	t.Helper()
	fields := make([]arrow.Field, len(types))
	for i, typ := range types {
		fields[i] = arrow.Field{Name: f.columns[i].name, Type: typ, Nullable: true}
	}
	next, stop, err := f.read(types, arrow.NewSchema(fields, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for {
		rec, err := next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

func TestCSVNulls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.csv")
	write(t, path, reader(t, []column{{"s", arrow.BinaryTypes.String, []any{"x", nil, "", "y"}}}))
	if b, _ := os.ReadFile(path); string(b) != "s\nx\n\n\"\"\ny\n" {
		t.Fatalf("%q", b)
	}
	if _, rows := read(t, path); fmt.Sprint(rows) != `[["x"] [null] [""] ["y"]]` {
		t.Fatal(rows)
	}
}

// FuzzCSV holds the CSV reader to its word: what it infers it can read, and what it read and wrote it reads again as
// the same.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\n\n\"\"\n", "a,b\n1.5,x\n-0,\"y\"\"\"\n", "d\n2024-02-29\n",
		"t\n2024-02-29T01:02:03.5Z\n", "\ufeff\"a\"\r\n1\r\n", "n\n18446744073709551615\n0\n",
		"f\n0.1\nNaN\n-Inf\n5e-324\n", "a,a\ntrue,\n"} {
		f.Add([]byte(s))
	}
	all := func(t *testing.T, in []byte) (*arrow.Schema, [][]string, []byte) {
		f, err := openCSV(bytesSource(in), dialect{delimiter: ',', quote: '"'}, nil, nil, false)
		if err != nil {
			return nil, nil, nil
		}
		types, fields := make([]arrow.DataType, len(f.columns)), make([]arrow.Field, len(f.columns))
		for i, c := range f.columns {
			types[i] = c.typ()
			fields[i] = arrow.Field{Name: c.name, Type: types[i], Nullable: true}
		}
		schema := arrow.NewSchema(fields, nil)
		var out bytes.Buffer
		enc, err := newTextEncoder(&out, schema, csvRows{delimiter: ','}, "")
		if err != nil {
			t.Fatal(err)
		}
		var rows [][]string
		for _, rec := range textBatches(t, f, types) {
			for i := range int(rec.NumRows()) {
				var row []string
				for _, c := range rec.Columns() {
					row = append(row, value(t, c, i))
				}
				rows = append(rows, row)
			}
			if err := enc.write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if f.rows != int64(len(rows)) {
			t.Fatalf("%d rows inferred, %d read", f.rows, len(rows))
		}
		if err := enc.finish(); err != nil {
			t.Fatal(err)
		}
		return schema, rows, out.Bytes()
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		testenv.Bounded(t, len(in), func() {
			s1, r1, out := all(t, in)
			if s1 == nil {
				return
			}
			s2, r2, _ := all(t, out)
			if s2 == nil || !s1.Equal(s2) || fmt.Sprint(r1) != fmt.Sprint(r2) {
				t.Fatalf("%q is\n%s\n%q\nwritten %q it is\n%s\n%q", in, s1, r1, out, s2, r2)
			}
		})
	})
}

// TestCarriageReturns reads a file as old spreadsheets wrote it: its lines end in carriage returns alone.
func TestCarriageReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.csv")
	os.WriteFile(path, []byte("k,v\r1,a\r2,\"b\"\r"), 0o666)
	if s, rows := read(t, path); s.NumFields() != 2 || fmt.Sprint(rows) != `[[1 "a"] [2 "b"]]` {
		t.Errorf("%v %v", s, rows)
	}
	os.WriteFile(path, []byte("k,v\r1,a\r2\r"), 0o666)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "line 3: 1 fields") {
		t.Error(err)
	}
}

// TestErrorsNameTheOutputAsGiven: the hidden file that the rows go to is our own affair.
func TestErrorsNameTheOutputAsGiven(t *testing.T) {
	dir := t.TempDir()
	none := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil)
	path := filepath.Join(dir, "nodir", "x.csv")
	if _, err := Create(path, none); !os.IsNotExist(err) || err.Error() != "create "+path+
		": no such file or directory" {
		t.Error(err)
	}
	rows := reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, make([]any, 1000)}})
	rows.Next()
	for _, suffix := range []string{".csv", ".arrow", ".parquet"} {
		path := filepath.Join(dir, "out"+suffix)
		w, err := Create(path, rows.Schema())
		if err != nil {
			t.Fatal(err)
		}
		hidden := w.out.Name()
		w.out.File.Close() // as good as a full disk: every write fails
		err = w.Write(rows.RecordBatch())
		if err == nil {
			err = w.Close()
		}
		w.Abort()
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || strings.Contains(err.Error(), hidden) {
			t.Error(err)
		}
		w, err = Create(path, rows.Schema())
		if err != nil {
			t.Fatal(err)
		}
		os.Mkdir(path, 0o777)
		if err := w.Close(); err == nil || !strings.HasPrefix(err.Error(), path+": ") ||
			strings.Contains(err.Error(), w.out.Name()) {
			t.Error(err)
		}
		os.Remove(path)
	}
	// The longest name that a file can have leaves no room for a longer one.
	path = filepath.Join(dir, strings.Repeat("x", 251)+".csv")
	write(t, path, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1}}}))
	os.Remove(path)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v left", left)
	}
}

func TestErrorSaysWhatMadeAKeyText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"text.csv":  "id,k\n\"1\n1\",1\n2,\n3,n/a\n4,none\n",
		"mixed.csv": "id,k\n\"1\n1\",2024-01-01\n2,2024-01-02\n3,7\n4,8\n",
		"real.csv":  "id,k\n1,1\n1,1\n2,2\n3,2.5\n4,x\n",
		"good.csv":  "k\n1\n",
	} {
		os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)
	}
	for _, c := range []struct{ build, probe, want string }{
		{"text.csv", "good.csv", `hold different things, text and an integer: with the types k=text (--types) they fit; line 5 of ` + dir +
			`/text.csv made it so, with "n/a" (--null n/a if it means no value)`},
		{"good.csv", "text.csv", `hold different things, an integer and text: with the types k=text (--types) they fit; line 5 of ` + dir +
			`/text.csv made it so, with "n/a"`},
		{"mixed.csv", "good.csv", `line 5 of ` + dir + `/mixed.csv made it so, with "7"`},
		{"real.csv", "good.csv", `line 6 of ` + dir + `/real.csv made it so, with "x"`},
	} {
		o := tuned{Options{Build: filepath.Join(dir, c.build), Probe: filepath.Join(dir, c.probe),
			Out: filepath.Join(dir, "out.csv"), On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers}}
		if _, err := runWith(context.Background(), nil, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

// TestOutputOverAnInput: the output takes the input's name when it is whole, and the input is read to its end before.
func TestOutputOverAnInput(t *testing.T) {
	for _, suffix := range []string{".csv", ".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "x"+suffix)
		write(t, path, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2, 3}},
			{"v", arrow.BinaryTypes.String, []any{"a", "b", "c"}}}))
		_, before := read(t, path)
		o := tuned{Options{Build: path, Probe: path, Out: path, On: []Pair{{"k", "k"}}, How: Semi},
			tuning{makers: fakeMakers}}
		if _, err := runWith(context.Background(), nil, o); err != nil {
			t.Fatal(err)
		}
		if _, after := read(t, path); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: %v, was %v", suffix, after, before)
		}
	}
}

// TestEmptySides joins files without rows, and columns without values, in every format and way.
func TestEmptySides(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	full := func() array.RecordReader {
		return reader(t, []column{{"k", i64, []any{1, nil}}, {"v", arrow.BinaryTypes.String, []any{nil, nil}}})
	}
	none := func() array.RecordReader {
		return reader(t, []column{{"k", i64, nil}, {"v", arrow.BinaryTypes.String, nil}})
	}
	for _, suffix := range []string{".csv", ".parquet", ".arrow"} {
		dir := t.TempDir()
		file := func(name string, r array.RecordReader) string {
			path := filepath.Join(dir, name+suffix)
			write(t, path, r)
			return path
		}
		a, b := file("full", full()), file("none", none())
		for how, want := range map[How][3]int{Inner: {0, 0, 0}, Left: {0, 2, 0}, Semi: {0, 0, 0}, Anti: {0, 2, 0}} {
			for i, in := range [][2]string{{a, b}, {b, a}, {b, b}} {
				out := filepath.Join(dir, "out"+suffix)
				o := tuned{Options{Build: in[0], Probe: in[1], Out: out, On: []Pair{{"k", "k"}}, How: how},
					tuning{makers: fakeMakers}}
				if _, err := runWith(context.Background(), nil, o); err != nil {
					t.Fatal(suffix, how, i, err)
				}
				if _, rows := read(t, out); len(rows) != want[i] {
					t.Errorf("%s %s %d: %d rows, want %d", suffix, how, i, len(rows), want[i])
				}
			}
		}
	}
}

// TestColumnsOfOneName reads and writes files in which names come twice, in every format.
func TestColumnsOfOneName(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	for _, suffix := range []string{".csv", ".parquet", ".arrow"} {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"+suffix), filepath.Join(dir, "out"+suffix)
		write(t, in, reader(t, []column{{"k", i64, []any{1, 2}}, {"v", i64, []any{3, 4}}, {"v", i64, []any{5, 6}}}))
		o := tuned{Options{Build: in, Probe: in, Out: out, On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers}}
		if _, err := runWith(context.Background(), nil, o); err != nil {
			t.Fatal(suffix, err)
		}
		s, rows := read(t, out)
		if names := columnNames(s); names != "k, v, v, v_build, v_build_build" ||
			fmt.Sprint(rows) != "[[1 3 5 3 5] [2 4 6 4 6]]" {
			t.Errorf("%s: %s %v", suffix, names, rows)
		}
		o.On = []Pair{{"v", "k"}}
		if _, err := runWith(context.Background(), nil, o); err == nil ||
			!strings.Contains(err.Error(), `2 columns named "v"`) {
			t.Errorf("%s: %v", suffix, err)
		}
	}
}
