package join

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// everyDevice runs a test on the CPU device and on a GPU.
func everyDevice(t *testing.T, f func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, name, err)
			defer d.Close()
			f(t, d)
		})
	}
}

// keyKind is a type that keys can have: values as Arrow reads them from text, and as SQL has them.
type keyKind struct {
	types  []arrow.DataType
	values []string
	sql    func(string) string
	binary bool // text files cannot hold all of them
}

func keyKinds() []keyKind {
	number := func(s string) string { return s }
	blob := func(s string) string { return fmt.Sprintf("x'%x'", s) }
	date := func(s string) string { return "'" + s + "'" }
	i, f := arrow.PrimitiveTypes, arrow.FixedWidthTypes
	return []keyKind{
		{[]arrow.DataType{i.Int32, i.Int64, i.Int16}, []string{"0", "-1", "7", "8", "32767", "-32768", "9", "10", "11", "12"}, number, false},
		{[]arrow.DataType{i.Int64}, []string{"9223372036854775807", "-9223372036854775808", "0", "1", "9007199254740993", "9007199254740992"}, number, false},
		{[]arrow.DataType{i.Uint8, i.Uint32, i.Int64}, []string{"0", "1", "255", "128", "100", "101", "102"}, number, false},
		{[]arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString}, []string{"", "a", "a ", "A", "äöü", "a,b", "x\"y", "two\nlines", strings.Repeat("long", 99)}, blob, false},
		{[]arrow.DataType{arrow.BinaryTypes.Binary}, []string{"", "\x00", "\x00\x00", "\xff\xfe", "a\x00b", "a\x00c"}, blob, true},
		{[]arrow.DataType{i.Float64}, []string{"0.5", "-0.5", "0", "-0", "1e300", "0.1", "3"}, number, false},
		{[]arrow.DataType{f.Date32}, []string{"1969-12-31", "1970-01-01", "2024-02-29"}, date, false},
		{[]arrow.DataType{extensions.NewUUIDType()}, []string{"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001",
			"c4ca4238-a0b9-2382-0dcc-509a6f75849b", "c4ca4238-a0b9-2382-0dcc-509a6f75849c"}, date, false},
	}
}

// TestRandomJoinsAgainstSQLite joins random inputs of all formats, some of several files, on random keys, and wants the
// pairs of rows, in order, that sqlite3 finds: all kinds, equal nulls, limits, selections, little memory.
func TestRandomJoinsAgainstSQLite(t *testing.T) {
	sqlite, err := exec.LookPath("sqlite3")
	testenv.Require(t, "sqlite3", err)
	seeds := 24
	if testing.Short() {
		seeds = 8
	} else if testenv.Long() {
		seeds = 200
	}
	everyDevice(t, func(t *testing.T, d *device.Device) {
		for seed := range seeds {
			randomJoin(t, d, sqlite, uint64(seed))
		}
	})
}

func randomJoin(t *testing.T, d *device.Device, sqlite string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1234))
	dir, kinds := t.TempDir(), keyKinds()
	o := tuned{Options: Options{Out: filepath.Join(dir, "out.csv"), How: How(r.IntN(len(hows))),
		NullsEqual: r.IntN(3) == 0}}
	var keys []keyKind
	for range 1 + r.IntN(3)*r.IntN(2) {
		keys = append(keys, kinds[r.IntN(len(kinds))])
	}
	var sql strings.Builder
	for side, n := range []int{r.IntN(80), r.IntN(300)} {
		letter := string("bp"[side])
		ids := make([]any, n)
		for i := range ids {
			ids[i] = int64(i)
		}
		columns := []column{{letter + "id", arrow.PrimitiveTypes.Int64, ids}}
		binary, raw := false, make([][]any, len(keys))
		for k, kind := range keys {
			values := make([]any, n)
			for i := range values {
				if r.IntN(8) > 0 {
					values[i] = kind.values[r.IntN(len(kind.values))]
				}
			}
			columns = append(columns, column{fmt.Sprint(letter, "key", k), kind.types[r.IntN(len(kind.types))], values})
			if kind.binary { // Arrow reads them as base64
				encoded := make([]any, n)
				for i, v := range values {
					if v != nil {
						encoded[i] = base64.StdEncoding.EncodeToString([]byte(v.(string)))
					}
				}
				columns[k+1].values, raw[k] = encoded, values
			} else {
				raw[k] = values
			}
			binary = binary || kind.binary || kind.types[0].ID() == arrow.EXTENSION // which text looks like, but is not
		}
		formats := []string{".parquet", ".arrow"}
		// What text says of a column's type are its values, which must not look like others'.
		if plain := keys[0].types[0]; !binary && n > 20 && len(keys) == 1 && plain.ID() != arrow.INT64 &&
			plain.ID() != arrow.UINT8 {
			formats = append(formats, ".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.zst")
		}
		path := writeSide(t, r, filepath.Join(dir, letter), formats[r.IntN(len(formats))], columns)
		if side == 0 {
			o.Build = path
		} else {
			o.Probe = path
		}
		fmt.Fprintf(&sql, "CREATE TABLE %s(id INTEGER PRIMARY KEY", letter)
		for k := range keys {
			fmt.Fprintf(&sql, ", k%d", k)
		}
		sql.WriteString(");\n")
		for i := range n {
			fmt.Fprintf(&sql, "INSERT INTO %s VALUES(%d", letter, i)
			for k, kind := range keys {
				if v := raw[k][i]; v == nil {
					sql.WriteString(", NULL")
				} else {
					sql.WriteString(", " + kind.sql(v.(string)))
				}
			}
			sql.WriteString(");\n")
		}
	}
	var equal []string
	for k := range keys {
		o.On = append(o.On, Pair{fmt.Sprint("bkey", k), fmt.Sprint("pkey", k)})
		equal = append(equal, fmt.Sprintf("b.k%d %s p.k%d", k, map[bool]string{true: "IS", false: "="}[o.NullsEqual],
			k))
	}
	match := strings.Join(equal, " AND ")
	query := map[How]string{
		Inner: "SELECT p.id, b.id FROM p JOIN b ON " + match,
		Left:  "SELECT p.id, b.id FROM p LEFT JOIN b ON " + match,
		Right: "SELECT p.id, b.id FROM p RIGHT JOIN b ON " + match,
		Full:  "SELECT p.id, b.id FROM p FULL JOIN b ON " + match,
		Semi:  "SELECT p.id FROM p WHERE EXISTS (SELECT 1 FROM b WHERE " + match + ")",
		Anti:  "SELECT p.id FROM p WHERE NOT EXISTS (SELECT 1 FROM b WHERE " + match + ")",
	}[o.How]
	o.Select = []string{"pid"}
	order := "p.id"
	if o.How.pairs() {
		o.Select, order = []string{"pid", "bid"}, "p.id IS NULL, p.id, b.id"
	}
	query += " ORDER BY " + order
	if r.IntN(4) == 0 {
		o.Limit = 1 + r.Int64N(50)
		query += " LIMIT " + strconv.FormatInt(o.Limit, 10)
	}
	if r.IntN(3) == 0 {
		o.part = int64(1000 + r.IntN(20000))
	}
	what := fmt.Sprintf("seed %d: %+v", seed, o)
	cmd := exec.Command(sqlite, "-batch", "-csv", ":memory:")
	cmd.Stdin = strings.NewReader("BEGIN;\n" + sql.String() + "COMMIT;\n" + query + ";")
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(what, err)
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	s, err := runWith(t.Context(), d, o)
	if err != nil {
		t.Fatal(what, err)
	}
	got, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ = bytes.Cut(got, []byte("\n")); !bytes.Equal(got, want) {
		t.Fatalf("%s:\n%.1500s\nsqlite3 has\n%.1500s", what, got, want)
	}
	o.Count, o.Out = true, ""
	if c, err := runWith(t.Context(), d, o); err != nil || c.OutRows != s.OutRows {
		t.Fatalf("%s: a count of %d, %v; want %d", what, c.OutRows, err, s.OutRows)
	}
}

// writeSide writes columns to one file or to several in a folder, and gives the name for all.
func writeSide(t *testing.T, r *rand.Rand, path, suffix string, columns []column) string {
	n := len(columns[0].values)
	if n < 100 || r.IntN(3) > 0 {
		write(t, path+suffix, reader(t, columns, 1+r.IntN(100)))
		return path + suffix
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	cut := n/2 + r.IntN(5)
	for i, at := range [][2]int{{0, cut}, {cut, n}} {
		some := append([]column(nil), columns...)
		for c := range some {
			some[c].values = some[c].values[at[0]:at[1]]
		}
		write(t, filepath.Join(path, fmt.Sprint(i, suffix)), reader(t, some, 1+r.IntN(100)))
	}
	return []string{path, path + "/*" + suffix}[r.IntN(2)]
}

// A thousand columns a side, through all formats, and by parts.
func TestThousandColumns(t *testing.T) {
	dir := t.TempDir()
	make := func(letter string) (columns []column) {
		for c := range 1000 {
			col := column{fmt.Sprint(letter, c), arrow.PrimitiveTypes.Int64, nil}
			if c%3 == 2 {
				col.typ = arrow.BinaryTypes.String
			}
			for i := range 20 {
				v := any(int64(i * (c%7 + 1)))
				if c%3 == 2 {
					v = fmt.Sprint("text ", i%5, c)
				}
				col.values = append(col.values, v)
			}
			columns = append(columns, col)
		}
		return columns
	}
	o := tuned{Options{Build: filepath.Join(dir, "b.parquet"), Probe: filepath.Join(dir, "p.parquet"),
		On: []Pair{{"b0", "p0"}}}, tuning{makers: fakeMakers}}
	write(t, o.Build, reader(t, make("b")))
	write(t, o.Probe, reader(t, make("p")))
	var first [][]string
	for i, part := range []int64{-1, 20000} {
		for j, suffix := range Suffixes() {
			if (i+j)%2 > 0 && !testenv.Long() {
				continue // each format with one of both
			}
			o.Out, o.part = filepath.Join(dir, "o"+suffix), part
			if s, err := runWith(t.Context(), nil, o); err != nil || s.OutRows != 20 {
				t.Fatal(suffix, s, err)
			}
			schema, got := read(t, o.Out)
			if schema.NumFields() != 1999 {
				t.Fatalf("%s: %d columns", suffix, schema.NumFields())
			}
			if first == nil {
				first = got
			}
			sameRows(t, suffix, got, first)
		}
	}
}

// Strings of ten megabytes, with zero bytes, beside empty ones: as keys too.
func TestLongStrings(t *testing.T) {
	dir := t.TempDir()
	size := 10 << 20
	if !testenv.Long() {
		size = 1 << 20
	}
	values := []string{strings.Repeat("x\x00", size/2), "", strings.Repeat("x\x00", size/2-1) + "xy", "\x00",
		strings.Repeat("\xff", size)}
	fields := []arrow.Field{{Name: "k", Type: arrow.BinaryTypes.Binary}, {Name: "v", Type: arrow.BinaryTypes.String}}
	k, v := array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary), array.NewStringBuilder(mem)
	for _, s := range values {
		k.Append([]byte(s))
		v.Append(strings.ReplaceAll(s, "\xff", "é"))
	}
	schema := arrow.NewSchema(fields, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{k.NewArray(), v.NewArray()}, int64(len(values)))
	for _, suffix := range []string{".parquet", ".arrow"} {
		in := filepath.Join(dir, "in"+suffix)
		rr, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec})
		if err != nil {
			t.Fatal(err)
		}
		write(t, in, rr)
		for _, part := range []int64{-1, 1 << 20} {
			o := tuned{Options{Build: in, Probe: in, Out: filepath.Join(dir, "o"+suffix), On: []Pair{{"k", "k"}}},
				tuning{makers: fakeMakers, part: part}}
			if s, err := runWith(t.Context(), nil, o); err != nil || s.OutRows != int64(len(values)) {
				t.Fatal(suffix, s, err)
			}
			r, err := Open(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			for r.Next() {
				for i := range int(r.RecordBatch().NumRows()) {
					want := rec.Column(1).(*array.String).Value(at)
					for _, c := range []int{1, 2} {
						if got := r.RecordBatch().Column(c).(*array.String).Value(i); got != want {
							t.Fatalf("%s: row %d, column %d has %d bytes, want %d", suffix, at, c, len(got), len(want))
						}
					}
					at++
				}
			}
			if err := r.Err(); err != nil || at != len(values) {
				t.Fatal(suffix, at, err)
			}
			r.Close()
		}
	}
}

// A join that makes a thousand million rows of some thousands takes little memory.
func TestBlowUp(t *testing.T) {
	n := 3000
	if testenv.Long() {
		n = 31623
	}
	dir := t.TempDir()
	ones, rows := make([]any, n), make([]any, n)
	for i := range ones {
		ones[i], rows[i] = int64(7), int64(i)
	}
	in := filepath.Join(dir, "in.parquet")
	write(t, in,
		reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, ones}, {"row", arrow.PrimitiveTypes.Int64, rows}}))
	before := resident(t)
	most, done := before, make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
				most = max(most, resident(t))
			}
		}
	}()
	start := time.Now()
	s, err := runWith(t.Context(), nil, tuned{Options{Build: in, Probe: in, Out: os.DevNull, On: []Pair{{"k", "k"}}},
		tuning{makers: fakeMakers}})
	close(done)
	<-watched
	if err != nil || s.OutRows != int64(n)*int64(n) {
		t.Fatal(s, err)
	}
	t.Logf("%d rows in %.1f s, %d MiB more at most", s.OutRows, time.Since(start).Seconds(), (most-before)>>20)
	if most-before > 1<<30 {
		t.Errorf("%d rows took %d MiB", s.OutRows, (most-before)>>20)
	}
}

// resident is how many bytes of this process are in memory.
func resident(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Error(err)
		return math.MaxInt64
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Error(err)
	}
	return pages * int64(os.Getpagesize())
}
