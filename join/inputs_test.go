package join

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/device"
)

// put writes a file, and the folders that it needs.
func put(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// allRows gives all rows of inputs, with their columns' names and types before them.
func allRows(t testing.TB, format Format, names ...string) string {
	t.Helper()
	r, err := OpenAll(format, names...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return rowsText(t, r)
}

func rowsText(t testing.TB, r *Reader) string {
	t.Helper()
	var b strings.Builder
	for _, f := range r.Schema().Fields() {
		fmt.Fprintf(&b, "%s %s, ", f.Name, f.Type)
	}
	rows := int64(0)
	for r.Next() {
		rec := r.RecordBatch()
		rows += rec.NumRows()
		for i := range int(rec.NumRows()) {
			b.WriteString("| ")
			for _, c := range rec.Columns() {
				b.WriteString(value(t, c, i) + " ")
			}
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Rows() >= 0 && r.Rows() != rows {
		t.Errorf("says %d rows, has %d", r.Rows(), rows)
	}
	return strings.TrimSpace(b.String())
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func zstded(text string) string {
	z, _ := zstd.NewWriter(nil)
	return string(z.EncodeAll([]byte(text), nil))
}

// Text is read whatever it is compressed with and whatever its name says of that.
func TestCompressedText(t *testing.T) {
	dir := t.TempDir()
	const text, want = "k,v\n1,a\n2,\n", `k int64, v utf8, | 1 "a" | 2 null`
	for name, content := range map[string]string{
		"a.csv": text, "b.csv": gzipped(text), "c.csv.gz": gzipped(text), "d.csv": zstded(text), "e.csv.zst": zstded(text), "f.csv.gz": text,
		"g.CSV.GZ": gzipped("k,v\n1,a\n") + gzipped("2,\n"), "h.tsv": "k\tv\n1\ta\n2\t\n", "i.tsv.gz": gzipped("k\tv\n1\t\"a\"\n2\t\n"),
	} {
		if got := allRows(t, "", put(t, filepath.Join(dir, name), content)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for name, content := range map[string]string{"cut.csv.gz": gzipped(text)[:20], "cut.csv.zst": zstded(text)[:12],
		"bad.csv.gz": "\x1f\x8b" + text, "not.csv": "\x28\xb5\x2f\xfdxxxx"} {
		path := put(t, filepath.Join(dir, name), content)
		if _, err := Open(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFormatsThatNamesDoNotTell(t *testing.T) {
	dir := t.TempDir()
	const want = `k int64, | 1 | 2`
	whole := filepath.Join(dir, "x.parquet")
	write(t, whole, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2}}}))
	arrows := filepath.Join(dir, "x.arrow")
	write(t, arrows, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1, 2}}}))
	for _, c := range []struct {
		path   string
		format Format
	}{{put(t, dir+"/a.txt", "k\n1\n2\n"), CSV}, {put(t, dir+"/b.dat", "k\n1\n2\n"), TSV}, {put(t, dir+"/c", gzipped("{\"k\":1}\n{\"k\":2}")), JSONL}, {whole, ""}, {arrows, Arrow}} {
		if got := allRows(t, c.format, c.path); got != want {
			t.Errorf("%s: %s", c.path, got)
		}
	}
	for _, from := range []string{whole, arrows} { // by the first bytes
		b, _ := os.ReadFile(from)
		if got := allRows(t, "", put(t, dir+"/nameless", string(b))); got != want {
			t.Errorf("%s: %s", from, got)
		}
	}
	if _, err := OpenAs(dir+"/a.txt", ""); err == nil || !strings.Contains(err.Error(), "no known file format") {
		t.Error(err)
	}
	for _, s := range []string{"", "xml", "CSV "} {
		if _, err := ParseFormat(s); err == nil || !strings.Contains(err.Error(), "parquet, csv, tsv, jsonl, arrow") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A pipe is read once alone, and its rows come all the same.
func TestPipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		w.WriteString("k\n1\n2\n")
		w.Close()
	}()
	defer r.Close()
	if got := allRows(t, CSV, fmt.Sprintf("/dev/fd/%d", r.Fd())); got != "k int64, | 1 | 2" {
		t.Error(got)
	}
}

func TestJSONLines(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct{ text, want string }{
		{`{"a":1,"b":"x"}` + "\n" + `{"b":null,"a":-2}`, `a int64, b utf8, | 1 "x" | -2 null`},
		{"\ufeff{\"a\":1}\r\n\r\n  {\"a\":2.5 }\r\n", `a float64, | 1 | 2.5`},
		{`{"a":1}` + "\n{}\n" + `{"b":true}` + "\n{}", `a int64, b bool, | 1 null | null null | null true | null null`},
		{`{"d":"2024-02-29","t":"2024-02-29T01:02:03Z","s":"5","f":1.5}` + "\n" + `{"f":"NaN"}`, `d date32, t timestamp[us, tz=UTC], s utf8, f float64, | "2024-02-29" "2024-02-29T01:02:03Z" "5" 1.5 | null null null "NaN"`},
		{`{"a":18446744073709551615}` + "\n" + `{"a":0}`, `a uint64, | 18446744073709551615 | 0`},
		{`{"a":1}` + "\n" + `{"a":"x"}` + "\n" + `{"a":true}`, `a utf8, | "1" | "x" | "true"`},
		{`{"a":[1, {"b":"\u00e9"}],"\u0062":""}` + "\n" + `{"b":"\n\"\ud83d\ude00","a":{}}`, `a utf8, b utf8, | "[1, {\"b\":\"\\u00e9\"}]" "" | "{}" "\n\"😀"`},
		{`{"a":123456789012345678901234567890}`, `a utf8, | "123456789012345678901234567890"`},
		{`{"a":null}`, `a null, | null`},
	} {
		for _, size := range []int{1, 16, 1 << 20} {
			cutInto(t, size)
			if got := allRows(t, "", put(t, fmt.Sprintf("%s/%d.jsonl", dir, i), c.text)); got != c.want {
				t.Errorf("%s in blocks of %d:\n%s\nwant\n%s", c.text, size, got, c.want)
			}
		}
	}
	for text, want := range map[string]string{
		"":                              "no object with a member",
		"{}\n{}":                        "no object with a member",
		"{\"a\":1}\n[1]":                "line 2: an array, where each line should be an object",
		"{\"a\":1}\n\n7":                "line 3: 7, where each line should be an object",
		"{\"a\":1}\n{\"a\":1,}":         "line 2: not JSON",
		"{\"a\":1} {\"a\":2}":           "line 1: more than one value in a line",
		"{\n\"a\":1}":                   "line 1: not JSON: the line ends",
		"{\"a\":1,\"a\":2}":             "line 1: not JSON: duplicate object member name",
		"{\"a\":\"\xff\"}":              "line 1: not JSON: invalid UTF-8",
		"{\"a\":1}\n{\"a\":\"unended\n": "line 2: not JSON",
	} {
		for _, size := range []int{1, 1 << 20} {
			cutInto(t, size)
			if _, err := Open(put(t, dir+"/bad.jsonl", text)); err == nil ||
				!strings.Contains(err.Error(), "bad.jsonl: "+want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
}

// What JSON lines hold they give back, whatever the characters.
func TestJSONLinesComeBack(t *testing.T) {
	dir := t.TempDir()
	cols := []column{
		{"a \"name\"\n", arrow.BinaryTypes.String, []any{"", nil, "\x00\x01\t\"\\/é😀\u2028", "2024-02-29x"}},
		{"f", arrow.PrimitiveTypes.Float64, []any{"NaN", "+Inf", "-Inf", "1e300"}},
		{"g", arrow.PrimitiveTypes.Float64, []any{"0.1", "123456789.25", "3", "-0"}},
		{"n", arrow.PrimitiveTypes.Int64, []any{int64(1) << 62, nil, int64(-5), int64(0)}},
	}
	path := filepath.Join(dir, "x.jsonl")
	write(t, path, reader(t, cols, 2))
	first, _ := os.ReadFile(path)
	want := allRows(t, "", path)
	if strings.Count(string(first), "\n") != 4 || !strings.Contains(want, "f float64, g float64, n int64") {
		t.Errorf("%s\n%s", first, want)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "y.jsonl")
	write(t, again, r)
	if second, _ := os.ReadFile(again); !bytes.Equal(first, second) {
		t.Errorf("%s\nis written again as\n%s", first, second)
	}
}

func TestSeveralInputs(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/t/a.csv", "k,v\n1,a\n")
	put(t, dir+"/t/b.csv", "v,k\nb,2.5\n,3\n")
	put(t, dir+"/t/c.jsonl", `{"k":4,"v":"c"}`)
	put(t, dir+"/t/below/d.tsv.gz", gzipped("k\tv\n5\td\n"))
	put(t, dir+"/t/_SUCCESS", "")
	put(t, dir+"/t/.hidden.csv", "x\n")
	put(t, dir+"/t/_tmp/e.csv", "x\n")
	put(t, dir+"/t/notes.txt", "x\n")
	put(t, dir+"/odd,name.csv", "k,v\n9,z\n")
	const types = "k float64, v utf8, "
	for _, c := range []struct {
		want  string
		names []string
	}{
		{types + `| 1 "a" | 2.5 "b" | 3 null`, []string{dir + "/t/a.csv", dir + "/t/b.csv"}},
		{types + `| 1 "a" | 2.5 "b" | 3 null`, []string{dir + "/t/*.csv"}},
		{types + `| 1 "a" | 2.5 "b" | 3 null`, []string{dir + "/t/[ab].csv"}},
		{types + `| 1 "a" | 2.5 "b" | 3 null`, []string{dir + "/t/{b,a}.csv"}},
		{`v utf8, k float64, | "b" 2.5 | null 3 | "a" 1`, []string{dir + "/t/b.csv," + dir + "/t/a.csv"}},
		{types + `| 1 "a" | 2.5 "b" | 3 null | 5 "d" | 4 "c"`, []string{dir + "/t"}},
		{`k int64, v utf8, | 9 "z"`, []string{dir + "/odd,name.csv"}},
		{`k int64, v utf8, | 5 "d"`, []string{dir + "/**/*.tsv.*"}},
		{`k int64, v utf8, | 1 "a" | 1 "a"`, []string{dir + "/t/a.csv", dir + "/t/a.csv"}},
	} {
		if got := allRows(t, "", c.names...); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.names, got, c.want)
		}
	}
	put(t, dir+"/bad/other.csv", "k,w\n1,a\n")
	put(t, dir+"/bad/more.csv", "k,v,w\n1,a,b\n")
	put(t, dir+"/bad/twice.csv", "k,v,v\n1,a,b\n")
	put(t, dir+"/bad/whole.csv", "k,v\n1,2\n")
	write(t, dir+"/bad/whole.parquet",
		reader(t, []column{{"k", arrow.PrimitiveTypes.Int32, []any{1}}, {"v", arrow.BinaryTypes.String, []any{"x"}}}))
	os.Mkdir(dir+"/empty", 0o777)
	for want, names := range map[string][]string{
		`other.csv: no column "v", which `:                 {dir + "/t/a.csv", dir + "/bad/other.csv"},
		`more.csv: a column "w", which `:                   {dir + "/t/a.csv", dir + "/bad/more.csv"},
		`twice.csv: 2 columns "v"`:                         {dir + "/t/a.csv", dir + "/bad/twice.csv"},
		`whole.parquet: column "k" is int32, and int64 in`: {dir + "/t/a.csv", dir + "/bad/whole.parquet"},
		"no file matches":                                  {dir + "/t/*.nothing"},
		"no file in this folder":                           {dir + "/empty"},
		"no such file":                                     {dir + "/t/a.csv," + dir + "/absent.csv"},
	} {
		if _, err := OpenAll("", names...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", names, err, want)
		}
	}
}

func TestHiveFolders(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/y/year=2023/city=K%C3%B6ln/a.csv", "k\n1\n")
	put(t, dir+"/y/year=2024/city=__HIVE_DEFAULT_PARTITION__/b.csv", "k\n2\n3\n")
	os.MkdirAll(dir+"/p/day=2024-02-29", 0o777)
	os.MkdirAll(dir+"/p/day=2024-03-01", 0o777)
	write(t, dir+"/p/day=2024-02-29/x.parquet", reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{4}}}))
	write(t, dir+"/p/day=2024-03-01/x.parquet", reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{5}}}))
	put(t, dir+"/own/k=7/a.csv", "k,v\n1,x\n")
	for _, null := range []string{"NULL", "null", "__HIVE_DEFAULT_PARTITION__", "3"} { // DuckDB reads the four so
		put(t, dir+"/nulls/n="+null+"/a.csv", "k\n1\n")
	}
	put(t, dir+"/nothing/n=NULL/a.csv", "k\n1\n")
	for _, c := range []struct{ name, want string }{
		{dir + "/y", `k int64, year int64, city utf8, | 1 2023 "Köln" | 2 2024 null | 3 2024 null`},
		{dir + "/y/*/*/*.csv", `k int64, year int64, city utf8, | 1 2023 "Köln" | 2 2024 null | 3 2024 null`},
		{dir + "/y/year=2023", `k int64, city utf8, | 1 "Köln"`},
		{dir + "/p", `k int64, day date32, | 4 "2024-02-29" | 5 "2024-03-01"`},
		{dir + "/own", `k int64, v utf8, | 7 "x"`},
		{dir + "/nulls", `k int64, n int64, | 1 3 | 1 null | 1 null | 1 null`},
		{dir + "/nothing", `k int64, n utf8, | 1 null`},
	} {
		if got := allRows(t, "", c.name); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	// Some columns alone, a folder's among them.
	r, err := OpenAll("", dir+"/y")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.only([]int{1})
	if got := rowsText(t, r); got != "year int64, | 2023 | 2024 | 2024" {
		t.Error(got)
	}
	put(t, dir+"/mixed/year=1/a.csv", "k\n1\n")
	put(t, dir+"/mixed/b.csv", "k\n1\n")
	if _, err := OpenAll("", dir+"/mixed"); err == nil ||
		!strings.Contains(err.Error(), "folders are not named as those of") {
		t.Error(err)
	}
	// And as keys of a join.
	put(t, dir+"/days.csv", "day,w\n2024-02-29,leap\n")
	out := dir + "/out.csv"
	if _, err := runWith(context.Background(), nil, tuned{Options{Build: dir + "/days.csv", Probe: dir + "/p", Out: out,
		On: []Pair{{"day", "day"}}}, tuning{makers: fakeMakers}}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(out); string(b) != "k,day,w\n4,2024-02-29,leap\n" {
		t.Errorf("%q", b)
	}
}

// TestFoldersByColumns joins Parquet files in folders that tell columns, to Parquet, column by column, and to Arrow, by
// batches: the same rows come out, whatever is a key. Files whose folder says that nothing matches are not read.
func TestFoldersByColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	city := []string{"K%C3%B6ln", "__HIVE_DEFAULT_PARTITION__", "Bonn"}
	for y := range 3 {
		for c := range 3 {
			path := fmt.Sprintf("%s/p/year=%d/day=2024-0%d-01/city=%s", dir, 2020+y, 1+c, city[(y+c)%3])
			if err := os.MkdirAll(path, 0o777); err != nil {
				t.Fatal(err)
			}
			n := 10 + r.IntN(90)
			var k, year []any
			var text []any
			for i := range n {
				k, year, text = append(k, r.IntN(50)), append(year, 7), append(text, fmt.Sprint("text ", i%5))
			}
			columns := []column{{"k", arrow.PrimitiveTypes.Int64, k}, {"year", arrow.PrimitiveTypes.Int64, year},
				{"text", arrow.BinaryTypes.String, text}}
			if c == 1 { // in another order
				columns[0], columns[2] = columns[2], columns[0]
			}
			write(t, path+"/a.parquet", reader(t, columns))
		}
	}
	if err := os.MkdirAll(dir+"/b/side=1", 0o777); err != nil {
		t.Fatal(err)
	}
	i64 := arrow.PrimitiveTypes.Int64
	write(t, dir+"/b/side=1/b.parquet",
		reader(t, []column{{"k", i64, []any{1, 2, 3, 3}}, {"y", i64, []any{2021, 2021, 2021, 2021}},
			{"d", arrow.FixedWidthTypes.Date32, []any{"2024-01-01", "2024-02-01", "2024-02-01", "2030-01-01"}}, {"c", arrow.BinaryTypes.String, []any{"Köln", "Bonn", "x", nil}}}))
	for _, on := range [][]Pair{{{"k", "k"}}, {{"y", "year"}}, {{"d", "day"}}, {{"c", "city"}},
		{{"k", "k"}, {"y", "year"}, {"c", "city"}}, {{"side", "k"}}, {{"side", "year"}}} {
		for how := range hows {
			o := tuned{Options{Build: dir + "/b", Probe: dir + "/p", On: on, How: How(how), Filter: FilterOff,
				NullsEqual: how%2 == 1}, tuning{makers: fakeMakers}}
			o.Open = func(string, string) ([]*device.Device, error) { return device.OpenAll("cpu") }
			join := func(name string) (Summary, [][]string) {
				o.Out = filepath.Join(dir, name)
				s, err := runWith(t.Context(), nil, o)
				if err != nil {
					t.Fatal(on, How(how), err)
				}
				_, rows := read(t, o.Out)
				return s, rows
			}
			_, want := join("o.arrow")
			s, got := join("o.parquet")
			sameRows(t, fmt.Sprint(on, How(how)), got, want)
			if on[0].Probe == "year" && on[0].Build == "y" && !o.NullsEqual && s.Skipped != 6 {
				t.Errorf("%v %v: %d row groups were skipped, want 6", on, How(how), s.Skipped)
			}
			o.Count = true
			if s, err := runWith(t.Context(), nil, o); err != nil || s.OutRows != int64(len(want)) {
				t.Errorf("%v %v: a count of %d, %v; want %d", on, How(how), s.OutRows, err, len(want))
			}
		}
	}
}

// An error of a key's type names the file of several that made it so.
func TestSeveralSayWhichFileMadeAType(t *testing.T) {
	dir := t.TempDir()
	good, bad := put(t, dir+"/a.csv", "k\n1\n"), put(t, dir+"/b.csv", "k\n1\nx\n")
	_, err := runWith(context.Background(), nil, tuned{Options{Build: good, MoreBuild: []string{bad}, Probe: good,
		Out: dir + "/out.csv", On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers}})
	if err == nil || !strings.Contains(err.Error(), "line 3 of "+bad+" made it so, with \"x\"") {
		t.Error(err)
	}
}

// From CSV to CSV values stand as they stood, but for keys, which are compared as what they are; other outputs have
// types.
func TestValuesPassThrough(t *testing.T) {
	dir := t.TempDir()
	o := tuned{Options{Build: put(t, dir+"/b.csv", "k,v,none\n1.50,\"a,\"\"b\",\n2,,\n"),
		Probe: put(t, dir+"/p.tsv", "k\tx\ty\n1.5\t1e3\tTRUE\n2.0\t-0\t\"\"\n3\t1\t\n"),
		On:    []Pair{{"k", "k"}}, How: Left}, tuning{makers: fakeMakers}}
	for name, want := range map[string]string{
		"o.csv": "k,x,y,v,none\n1.5,1e3,TRUE,\"a,\"\"b\",\n2.0,-0,\"\",,\n3.0,1,,,\n",
		"o.jsonl": `{"k":1.5,"x":1000.0,"y":"TRUE","v":"a,\"b","none":null}
{"k":2.0,"x":-0.0,"y":"","v":null,"none":null}
{"k":3.0,"x":1.0,"y":null,"v":null,"none":null}
`,
	} {
		o.Out = filepath.Join(dir, name)
		if _, err := runWith(t.Context(), nil, o); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(o.Out); string(got) != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}
