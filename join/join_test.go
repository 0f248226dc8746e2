package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// A column of integers for tests: nil is a null.
type column struct {
	name   string
	typ    arrow.DataType
	values []any
}

var intTypes = []arrow.DataType{
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
	arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
}

// text writes a test value as every tool does.
func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// reader makes a record reader of columns, cut into batches of the given sizes, over and over.
func reader(t testing.TB, cols []column, sizes ...int) array.RecordReader {
	t.Helper()
	var fields []arrow.Field
	var arrays []arrow.Array
	rows := 0
	for _, c := range cols {
		fields = append(fields, arrow.Field{Name: c.name, Type: c.typ, Nullable: true})
		b := array.NewBuilder(mem, c.typ)
		for _, v := range c.values {
			if v == nil {
				b.AppendNull()
			} else if err := b.AppendValueFromString(text(v)); err != nil {
				t.Fatal(err)
			}
		}
		arrays = append(arrays, b.NewArray())
		rows = len(c.values)
	}
	schema := arrow.NewSchema(fields, nil)
	whole := array.NewRecordBatch(schema, arrays, int64(rows))
	var recs []arrow.RecordBatch
	for i, k := 0, 0; i < rows; k++ {
		n := rows
		if len(sizes) > 0 {
			n = sizes[k%len(sizes)]
		}
		recs = append(recs, whole.NewSlice(int64(i), int64(min(rows, i+n))))
		i += n
	}
	r, err := array.NewRecordReader(schema, recs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cells joins two readers and gives the output as text, a row a line.
func cells(t testing.TB, d *device.Device, build, probe array.RecordReader, o tuned) (names []string, rows [][]string,
	s Summary) {
	t.Helper()
	schema, err := OutputSchema(build.Schema(), probe.Schema(), o.Options)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range schema.Fields() {
		names = append(names, f.Name)
	}
	s, err = joinWith(context.Background(), d, build, probe, o, func(rec arrow.RecordBatch) error {
		if !rec.Schema().Equal(schema) {
			t.Errorf("a batch of %s, want %s", rec.Schema(), schema)
		}
		if o.batch > 0 && rec.NumRows() > int64(o.batch) {
			t.Errorf("a batch of %d rows, bound %d", rec.NumRows(), o.batch)
		}
		rows = append(rows, batchCells(rec)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.OutRows != int64(len(rows)) {
		t.Fatalf("the summary counts %d rows, %d came", s.OutRows, len(rows))
	}
	return names, rows, s
}

func batchCells(rec arrow.RecordBatch) (rows [][]string) {
	for i := range int(rec.NumRows()) {
		var row []string
		for _, c := range rec.Columns() {
			if c.IsNull(i) {
				row = append(row, "")
			} else {
				row = append(row, c.ValueStr(i))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// nested is the join by its definition: two loops. Keys are the first nkeys columns of both sides; the build's
// payload follows.
func nested(build, probe []column, nkeys int, how How) (rows [][]string) {
	nb, np := len(build[0].values), len(probe[0].values)
	matched := make([]bool, nb)
	from := nkeys // the build's columns that come out
	if how.keepsBuild() {
		from = 0
	}
	for p := range np {
		var row []string
		for _, c := range probe {
			row = append(row, text(c.values[p]))
		}
		n := 0
		for b := range nb {
			equal := true
			for k := range nkeys {
				x, y := build[k].values[b], probe[k].values[p]
				equal = equal && x != nil && y != nil && text(x) == text(y)
			}
			if !equal {
				continue
			}
			n++
			matched[b] = true
			if how.pairs() {
				out := slices.Clone(row)
				for _, c := range build[from:] {
					out = append(out, text(c.values[b]))
				}
				rows = append(rows, out)
			}
		}
		switch {
		case how.keepsProbe() && n == 0:
			for range build[from:] {
				row = append(row, "")
			}
			rows = append(rows, row)
		case how == Semi && n > 0, how == Anti && n == 0:
			rows = append(rows, row)
		}
	}
	for b := range nb {
		if how.keepsBuild() && !matched[b] {
			row := make([]string, len(probe))
			for _, c := range build {
				row = append(row, text(c.values[b]))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

var extremes = []any{int64(0), int64(-1), int64(1), int64(math.MinInt32), int64(math.MaxInt32), int64(math.MinInt64),
	int64(math.MaxInt64),
	int64(math.MaxUint32), int64(127), int64(-128), int64(255), int64(65535), uint64(math.MaxUint64), uint64(1 << 63)}

// fits tells whether a test value is one of the type.
func fits(v any, t arrow.DataType) bool {
	b := array.NewBuilder(mem, t)
	defer b.Release()
	return b.AppendValueFromString(text(v)) == nil
}

// TestJoinAgainstLoops compares joins on any integer types, one to four key columns, with nested loops.
func TestJoinAgainstLoops(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nkeys := rapid.IntRange(1, 4).Draw(rt, "keys")
		how := How(rapid.IntRange(0, len(hows)-1).Draw(rt, "how"))
		nb, np := rapid.IntRange(0, 40).Draw(rt, "build"), rapid.IntRange(0, 60).Draw(rt, "probe")
		seed := rapid.Uint64().Draw(rt, "seed")
		r := rand.New(rand.NewPCG(seed, 1))
		var build, probe []column
		var on []Pair
		for k := range nkeys {
			bt := rapid.SampledFrom(intTypes).Draw(rt, "build type")
			pt := rapid.SampledFrom(intTypes).Draw(rt, "probe type")
			fill := func(n int, typ arrow.DataType) (out []any) {
				for range n {
					v := any(int64(r.IntN(4) - 1))
					switch r.IntN(6) {
					case 0:
						v = nil
					case 1:
						v = extremes[r.IntN(len(extremes))]
					}
					if v != nil && !fits(v, typ) {
						v = int64(0)
					}
					out = append(out, v)
				}
				return out
			}
			build = append(build, column{fmt.Sprint("b", k), bt, fill(nb, bt)})
			probe = append(probe, column{fmt.Sprint("p", k), pt, fill(np, pt)})
			on = append(on, Pair{fmt.Sprint("b", k), fmt.Sprint("p", k)})
		}
		number := func(n int) (out []any) {
			for i := range n {
				out = append(out, int64(i))
			}
			return out
		}
		build = append(build, column{"row", arrow.PrimitiveTypes.Int64, number(nb)},
			column{"text", arrow.BinaryTypes.String, number(nb)})
		probe = append(probe, column{"row", arrow.PrimitiveTypes.Int64, number(np)})
		o := tuned{Options{On: on, How: how},
			tuning{makers: fakeMakers, batch: rapid.IntRange(1, 50).Draw(rt, "batch")}}
		br := reader(t, build, rapid.IntRange(1, 20).Draw(rt, "build batch"))
		pr := reader(t, probe, rapid.IntRange(1, 20).Draw(rt, "probe batch"), 3)
		if _, err := planKeys(br.Schema(), pr.Schema(), on, false); err != nil {
			rt.Fatal(err)
		}
		_, rows, s := cells(t, nil, br, pr, o)
		want := nested(build, probe, nkeys, how)
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			rt.Fatalf("%v join of\n%v\n%v\ngives\n%v\nwant\n%v", how, build, probe, rows, want)
		}
		if s.BuildRows != int64(nb) || s.ProbeRows != int64(np) {
			rt.Fatalf("%+v for %d and %d rows", s, nb, np)
		}
	})
}

// tableKinds runs a test with the fake tables and with the real ones on the CPU device.
func tableKinds(t *testing.T, f func(t *testing.T, d *device.Device, mk *makers)) {
	t.Run("fake", func(t *testing.T) { f(t, nil, fakeMakers) })
	t.Run("cpu", func(t *testing.T) {
		d, err := device.Open("cpu")
		if err != nil {
			testenv.Require(t, "cpu", err)
		}
		defer d.Close()
		f(t, d, nil)
	})
}

// TestJoinAgainstSQLite joins files and compares the whole output with what sqlite3 makes of the same rows.
func TestJoinAgainstSQLite(t *testing.T) {
	sqlite, err := exec.LookPath("sqlite3")
	testenv.Require(t, "sqlite3", err)
	r := rand.New(rand.NewPCG(7, 7))
	pick := func(n int, values func() any) (out []any) {
		for range n {
			out = append(out, values())
		}
		return out
	}
	small := func() any {
		switch r.IntN(12) {
		case 0:
			return nil
		case 1:
			return []any{int64(math.MinInt32), int64(math.MaxInt32), int64(0), int64(-1)}[r.IntN(4)]
		}
		return int64(r.IntN(60) - 30)
	}
	wide := func() any {
		switch r.IntN(12) {
		case 0:
			return nil
		case 1, 2:
			return []any{int64(math.MinInt64), int64(math.MaxInt64), int64(math.MaxInt64 - 1), int64(1<<53 + 1),
				int64(-1), int64(0)}[r.IntN(6)]
		}
		return int64(r.IntN(40)-20) << 40
	}
	unique := int64(-250)
	uniq := func() any { unique++; return unique }
	payload := func() any {
		if r.IntN(9) == 0 {
			return nil
		}
		return r.Int64() - math.MaxInt64/2
	}
	i32, i64 := arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64
	cases := []struct {
		name         string
		types        [2][]arrow.DataType
		keys         []func() any
		build, probe int
	}{
		{"int32", [2][]arrow.DataType{{i32}, {i32}}, []func() any{small}, 300, 700},
		{"int32 and int64", [2][]arrow.DataType{{i32}, {i64}}, []func() any{small}, 300, 700},
		{"int64", [2][]arrow.DataType{{i64}, {i64}}, []func() any{wide}, 300, 700},
		{"unique", [2][]arrow.DataType{{i64}, {i64}}, []func() any{uniq}, 250, 400},
		{"two of 4", [2][]arrow.DataType{{i32, i32}, {i32, i32}}, []func() any{small, small}, 1500, 2000},
		{"8 and 4", [2][]arrow.DataType{{i64, i32}, {i64, i64}}, []func() any{wide, small}, 1500, 2000},
		{"two of 8", [2][]arrow.DataType{{i64, i64}, {i64, i64}}, []func() any{wide, wide}, 1500, 2000},
		{"four of 4", [2][]arrow.DataType{{i32, i32, i32, i32}, {i32, i32, i32, i32}}, []func() any{small, small, small, small}, 500, 500},
		{"empty build", [2][]arrow.DataType{{i64}, {i64}}, []func() any{wide}, 0, 100},
		{"empty probe", [2][]arrow.DataType{{i64, i64}, {i64, i64}}, []func() any{wide, wide}, 100, 0},
		{"both empty", [2][]arrow.DataType{{i32}, {i32}}, []func() any{small}, 0, 0},
	}
	suffixes := Suffixes()
	tableKinds(t, func(t *testing.T, d *device.Device, mk *makers) {
		for ci, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				var sides [2][]column
				var files [2]string
				var sql strings.Builder
				var on []Pair
				for side, n := range []int{c.build, c.probe} {
					letter := string("bp"[side])
					unique = -250 + int64(side*100)
					for k, typ := range c.types[side] {
						sides[side] = append(sides[side], column{fmt.Sprint(letter, "key", k), typ, pick(n, c.keys[k])})
					}
					sides[side] = append(sides[side], column{"value", i64, pick(n, payload)},
						column{letter + "only", i64, pick(n, payload)})
					files[side] = filepath.Join(dir, letter+suffixes[(ci+side)%len(suffixes)])
					write(t, files[side], reader(t, sides[side], 64, 1, 200))
					var names []string
					for _, c := range sides[side] {
						names = append(names, c.name+" INTEGER")
					}
					fmt.Fprintf(&sql, "CREATE TABLE %s(id INTEGER PRIMARY KEY, %s);\n", letter,
						strings.Join(names, ", "))
					for i := range n {
						row := []string{strconv.Itoa(i)}
						for _, c := range sides[side] {
							if v := text(c.values[i]); v == "" {
								row = append(row, "NULL")
							} else {
								row = append(row, v)
							}
						}
						fmt.Fprintf(&sql, "INSERT INTO %s VALUES(%s);\n", letter, strings.Join(row, ","))
					}
				}
				var equal []string
				for k := range c.keys {
					on = append(on, Pair{fmt.Sprint("bkey", k), fmt.Sprint("pkey", k)})
					equal = append(equal, fmt.Sprintf("b.bkey%d = p.pkey%d", k, k))
				}
				var pcols []string
				for _, c := range sides[1] {
					pcols = append(pcols, "p."+c.name)
				}
				var bkeys []string
				for k := range c.keys {
					bkeys = append(bkeys, fmt.Sprint("b.bkey", k))
				}
				cols, match := strings.Join(pcols, ", "), strings.Join(equal, " AND ")
				both := cols + ", " + strings.Join(bkeys, ", ")
				queries := []string{
					fmt.Sprintf("SELECT %s, b.value AS value_build, b.bonly FROM p JOIN b ON %s ORDER BY p.id, b.id;",
						cols, match),
					fmt.Sprintf(
						"SELECT %s, b.value AS value_build, b.bonly FROM p LEFT JOIN b ON %s ORDER BY p.id, b.id;", cols, match),
					fmt.Sprintf("SELECT %s FROM p WHERE EXISTS (SELECT 1 FROM b WHERE %s) ORDER BY p.id;", cols, match),
					fmt.Sprintf("SELECT %s FROM p WHERE NOT EXISTS (SELECT 1 FROM b WHERE %s) ORDER BY p.id;", cols,
						match),
					fmt.Sprintf("SELECT %s, b.value AS value_build, b.bonly FROM p RIGHT JOIN b ON %s ORDER BY p.id "+
						"IS NULL, p.id, b.id;", both, match),
					fmt.Sprintf("SELECT %s, b.value AS value_build, b.bonly FROM p FULL JOIN b ON %s ORDER BY p.id "+
						"IS NULL, p.id, b.id;", both, match),
				}
				for how, query := range queries {
					cmd := exec.Command(sqlite, "-batch", "-csv", ":memory:")
					cmd.Stdin = strings.NewReader("BEGIN;\n" + sql.String() + "COMMIT;\n" + query)
					want, err := cmd.Output()
					if err != nil {
						t.Fatal(err)
					}
					out := filepath.Join(dir, hows[how]+".csv")
					s, err := runWith(context.Background(), d,
						tuned{Options{Build: files[0], Probe: files[1], Out: out, On: on, How: How(how),
							Table: []table.Family{"", DefaultTable}[(ci+how)%2]}, tuning{makers: mk}})
					if err != nil {
						t.Fatal(err)
					}
					got, err := os.ReadFile(out)
					if err != nil {
						t.Fatal(err)
					}
					_, got, _ = bytes.Cut(got, []byte("\n")) // the header
					want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
					if !bytes.Equal(got, want) {
						t.Fatalf("%s join:\n%.2000s\nsqlite3 has\n%.2000s", hows[how], got, want)
					}
					if s.BuildRows != int64(c.build) || s.ProbeRows != int64(c.probe) ||
						s.OutRows != int64(bytes.Count(want, []byte("\n"))) {
						t.Fatalf("%+v", s)
					}
				}
			})
		}
	})
}

// write copies a reader into a file.
func write(t testing.TB, path string, r array.RecordReader) {
	t.Helper()
	w, err := Create(path, r.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for r.Next() {
		if err := w.Write(r.RecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSkew(t *testing.T) {
	// One key a thousand times on both sides: a million rows, in bounded batches.
	n := 1000
	ones := make([]any, n)
	rows := make([]any, n)
	for i := range ones {
		ones[i], rows[i] = int64(-1), int64(i)
	}
	i64 := arrow.PrimitiveTypes.Int64
	tableKinds(t, func(t *testing.T, d *device.Device, mk *makers) {
		next := 0
		s, err := joinWith(context.Background(), d, reader(t, []column{{"k", i64, ones}, {"row", i64, rows}}),
			reader(t, []column{{"k", i64, ones}, {"row", i64, rows}}), tuned{Options{On: []Pair{{"k", "k"}}},
				tuning{makers: mk}}, func(rec arrow.RecordBatch) error {
				if rec.NumRows() > batchRows {
					return fmt.Errorf("a batch of %d rows", rec.NumRows())
				}
				p, b := rec.Column(1).(*array.Int64), rec.Column(2).(*array.Int64)
				for i := range int(rec.NumRows()) {
					if p.Value(i) != int64(next/n) || b.Value(i) != int64(next%n) {
						return fmt.Errorf("row %d is of probe row %d and build row %d", next, p.Value(i), b.Value(i))
					}
					next++
				}
				return nil
			})
		if err != nil || s.OutRows != int64(n*n) {
			t.Fatal(s, err)
		}
	})
}

func TestDatesAndTimes(t *testing.T) {
	days := []any{"1970-01-01", "1969-12-31", "2024-02-29", nil}
	stamps := []any{"1970-01-01T00:00:01", "1969-12-31T23:59:59", "2024-02-29T12:00:00", nil}
	zoned := []any{"1970-01-01T00:00:01Z", "1969-12-31T23:59:59Z", "2024-02-29T12:00:00Z", nil}
	fine := []any{"1970-01-01T00:00:01", "1969-12-31T23:59:59.000001", "2024-02-29T12:00:00", nil}
	types := func(u arrow.TimeUnit, zone string) arrow.DataType {
		return &arrow.TimestampType{Unit: u, TimeZone: zone}
	}
	clock := []any{"00:00:01", "23:59:59", "12:34:56", nil}
	cases := []struct {
		build, probe arrow.DataType
		bv, pv       []any
		want         string
	}{
		{arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date32, days, days, "0 1 2"},
		{arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, days, days, "0 1 2"},
		{arrow.FixedWidthTypes.Date64, arrow.FixedWidthTypes.Date32, days, days, "0 1 2"},
		{types(arrow.Second, ""), types(arrow.Second, ""), stamps, stamps, "0 1 2"},
		{types(arrow.Second, ""), types(arrow.Microsecond, ""), stamps, fine, "0 2"},
		{types(arrow.Nanosecond, "UTC"), types(arrow.Millisecond, "Europe/Berlin"), zoned, zoned, "0 1 2"},
		{arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time64ns, clock, clock, "0 1 2"},
		{arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time32ms, clock, clock, "0 1 2"},
		{arrow.FixedWidthTypes.Duration_s, arrow.FixedWidthTypes.Duration_ns, []any{"5s", nil}, []any{"5s", "4s"}, "0"},
	}
	for _, c := range cases {
		row := []any{0, 1, 2, 3}
		build := reader(t, []column{{"k", c.build, c.bv}})
		probe := reader(t, []column{{"k", c.probe, c.pv}, {"row", arrow.PrimitiveTypes.Int64, row[:len(c.pv)]}})
		_, rows, _ := cells(t, nil, build, probe, tuned{Options{On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers}})
		var got []string
		for _, r := range rows {
			got = append(got, r[1])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s with %s: probe rows %v match, want %s", c.build, c.probe, got, c.want)
		}
	}
}

func TestNamesThatClash(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	one := []any{int64(1)}
	build := []column{{"k", i64, one}, {"x", i64, one}, {"y", i64, one}, {"x_build", i64, one}, {"id", i64, one}}
	probe := []column{{"id", i64, one}, {"x", i64, one}, {"y", i64, one}, {"y_build", i64, one}}
	names, _, _ := cells(t, nil, reader(t, build), reader(t, probe),
		tuned{Options{On: []Pair{{"k", "id"}}}, tuning{makers: fakeMakers}})
	want := "id x y y_build x_build_build y_build_build x_build id_build"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

func TestKeyErrors(t *testing.T) {
	f := func(name string, t arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: t} }
	i64 := arrow.PrimitiveTypes.Int64
	s := arrow.NewSchema([]arrow.Field{
		f("i", i64), f("j", i64), f("l", i64), f("s", arrow.BinaryTypes.String), f("f", arrow.PrimitiveTypes.Float64),
		f("w", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}),
		f("d", arrow.FixedWidthTypes.Date32), f("t", arrow.FixedWidthTypes.Timestamp_us), f("local",
			&arrow.TimestampType{Unit: arrow.Microsecond}),
		f("twice", i64), f("twice", i64), f("h", arrow.FixedWidthTypes.Float16),
		f("m", &arrow.Decimal128Type{Precision: 9, Scale: 2}),
	}, nil)
	cases := []struct{ on, want string }{
		{"i=nope", `the probe side has no column "nope"; its columns: i, j, l, s, f`},
		{"nope=i", `the build side has no column "nope"`},
		{"s=i", "hold different things, text and an integer"},
		{"i=w", "hold different things, an integer and text"},
		{"h=h", `key column "h" of the build side is float16: not a key type`},
		{"f=s", "a float and text: cast one of them"},
		{"m=d", "a decimal and a date: cast one of them"},
		{"d=i", "cast one of them"},
		{"d=t", "cast one of them"},
		{"t=local", "timestamp with time zone and a timestamp without time zone"},
		{"twice=i", "2 columns named"},
	}
	for _, c := range cases {
		on, err := ParseOn(c.on)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = planKeys(s, s, on, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.on, err, c.want)
		}
	}
	if _, err := planKeys(s, s, nil, false); err == nil {
		t.Error("no key columns, no error")
	}
}

func TestCancel(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	values := make([]any, 1000)
	for i := range values {
		values[i] = int64(i)
	}
	rows := func() array.RecordReader { return reader(t, []column{{"k", i64, values}}, 10) }
	o := tuned{Options{On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers, batch: 10}}

	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	_, err := joinWith(ctx, nil, rows(), rows(), o, func(arrow.RecordBatch) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 3 {
		t.Fatal(n, err)
	}
	_, err = joinWith(ctx, nil, rows(), rows(), o, func(arrow.RecordBatch) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	broken := errors.New("disk on fire")
	_, err = joinWith(context.Background(), nil, rows(), rows(), o, func(arrow.RecordBatch) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	bad := array.ReaderFromIter(rows().Schema(), func(yield func(arrow.RecordBatch, error) bool) {
		r := rows()
		r.Next()
		r.RecordBatch().Retain()
		if yield(r.RecordBatch(), nil) {
			yield(nil, broken)
		}
	})
	_, err = joinWith(context.Background(), nil, rows(), bad, o, func(arrow.RecordBatch) error { return nil })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "probe side") {
		t.Fatal(err)
	}
}

func TestProgress(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	dir := t.TempDir()
	values := make([]any, 300)
	for i := range values {
		values[i] = int64(i / 2)
	}
	for _, name := range []string{"b.csv", "p.parquet"} {
		write(t, filepath.Join(dir, name), reader(t, []column{{"k", i64, values}}))
	}
	last := map[string]Progress{}
	_, err := runWith(context.Background(), nil,
		tuned{Options{Build: dir + "/b.csv", Probe: dir + "/p.parquet", Out: dir + "/o.arrow", On: []Pair{{"k", "k"}},
			Progress: func(p Progress) {
				if p.Done < last[p.Stage].Done {
					t.Errorf("%v after %v", p, last[p.Stage])
				}
				last[p.Stage] = p
			}}, tuning{makers: fakeMakers}})
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"read", "build", "probe"} {
		if p := last[stage]; p.Done != 300 || p.Total != 300 {
			t.Errorf("%s ends with %+v", stage, p)
		}
	}
}

func FuzzParseOn(f *testing.F) {
	for _, s := range []string{"a=b", "a", "a=b,c=d", `a\,b=c\=d\\`, "", ",", "=", "a=b=c", `\`, `\x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		testenv.Bounded(t, len(s), func() {
			pairs, err := ParseOn(s)
			if err != nil {
				return
			}
			again, err := ParseOn(FormatOn(pairs))
			if err != nil || !slices.Equal(pairs, again) {
				t.Fatalf("%q: %q, then %q, %v", s, pairs, again, err)
			}
		})
	})
}

// TestKilled kills a process in the middle of writing, and finds nothing under the file's name, or what was
// there before.
func TestKilled(t *testing.T) {
	if path := os.Getenv("JOIN_TEST_WRITE"); path != "" {
		r := reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, make([]any, 100_000)}})
		w, err := Create(path, r.Schema())
		if err != nil {
			t.Fatal(err)
		}
		r.Next()
		for i := range 1000 {
			if err := w.Write(r.RecordBatch()); err != nil {
				t.Fatal(err)
			}
			if i == 40 {
				fmt.Println("in the middle")
			}
			if i > 40 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		t.Fatal("was not killed")
	}
	for i, suffix := range []string{".parquet", ".csv", ".arrow"} {
		path := filepath.Join(t.TempDir(), "out"+suffix)
		if i > 0 {
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$", "-test.v")
		cmd.Env = append(os.Environ(), "JOIN_TEST_WRITE="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said []byte
		for buf := make([]byte, 1000); !bytes.Contains(said, []byte("in the middle")); {
			n, err := out.Read(buf)
			said = append(said, buf[:n]...)
			if err != nil {
				t.Fatalf("%v: %s", err, said)
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		got, err := os.ReadFile(path)
		if i == 0 && !os.IsNotExist(err) || i > 0 && string(got) != "old" {
			t.Fatalf("%s: %q, %v", path, got, err)
		}
	}
}

// TestWideRows runs the index with 64-bit row numbers, which joins take from 2³² build rows on.
func TestWideRows(t *testing.T) {
	i32 := arrow.PrimitiveTypes.Int32
	schema := reader(t, []column{{"k", i32, nil}}).Schema()
	p, err := planKeys(schema, schema, []Pair{{"k", "k"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	r := reader(t, []column{{"k", i32, []any{5, nil, -1, 5, 0, 5}}})
	r.Next()
	keys := &packed{}
	p.pack(keys, r.RecordBatch(), true)
	x, err := buildIndex[uint64](context.Background(), opener{makers: fakeMakers, filter: FilterOff}, p, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	reps := make([]int64, 6)
	if err := x.find(keys, reps); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0 3 5", "", "2", "0 3 5", "4", "0 3 5"} {
		var got []string
		if reps[i] >= 0 {
			for k := range x.matches(reps[i]) {
				got = append(got, fmt.Sprint(x.match(reps[i], k)))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("row %d matches %v, want %s", i, got, want)
		}
	}
}

type fullTable struct{ fake[uint64, uint32] }

func (*fullTable) InsertNew([]uint64, []uint32, []bool) (int, error) {
	return 0, frame.Full([]int{0}, 8, 8, errors.New("no more memory"))
}

func TestBuildSideTooLarge(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	rows := func() array.RecordReader { return reader(t, []column{{"k", i64, []any{1, 2}}}) }
	none := func(arrow.RecordBatch) error { return nil }
	for _, open := range []func(*device.Device, table.Family, table.Options) (table.Map[uint64, uint32], error){
		func(*device.Device, table.Family, table.Options) (table.Map[uint64, uint32], error) {
			return &fullTable{}, nil
		},
		func(*device.Device, table.Family, table.Options) (table.Map[uint64, uint32], error) {
			return nil, &device.OutOfMemoryError{Device: "cuda:0", Asked: 100, Free: 10}
		},
	} {
		_, err := joinWith(context.Background(), nil, rows(), rows(),
			tuned{Options{On: []Pair{{"k", "k"}}}, tuning{makers: &makers{k8r4: open}}}, none)
		if err == nil || !strings.Contains(err.Error(), "make the smaller input the build side") {
			t.Error(err)
		}
	}
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	_, err = Join(context.Background(), d, rows(), rows(), Options{On: []Pair{{"k", "k"}}, Table: "nonsense"}, none)
	if err == nil || !strings.Contains(err.Error(), "warpcore") {
		t.Errorf("an unknown table: %v", err)
	}
}
