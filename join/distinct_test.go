package join

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// columnsOfAll are columns of so many rows of all sorts of types, with nulls, and with few and with many values.
func columnsOfAll(rows int) []column {
	rng := rand.New(rand.NewPCG(uint64(rows), 5))
	value := func(n int, as func(i int) any) []any {
		out := make([]any, rows)
		for i := range out {
			if rng.IntN(10) > 0 {
				out[i] = as(rng.IntN(n))
			}
		}
		return out
	}
	few, many := 7, 3*rows+1
	days := func(i int) any { return fmt.Sprintf("20%02d-%02d-%02d", i%90, i/90%12+1, i/1080%28+1) }
	return []column{
		{"small", arrow.PrimitiveTypes.Int8, value(few, func(i int) any { return i - 3 })},
		{"zero", arrow.PrimitiveTypes.Int64, value(1, func(i int) any { return 0 })},
		{"large", arrow.PrimitiveTypes.Int64, value(many, func(i int) any { return int64(i-1) << 33 })},
		{"unsigned", arrow.PrimitiveTypes.Uint64, value(many, func(i int) any { return math.MaxUint64 - uint64(i) })},
		{"float", arrow.PrimitiveTypes.Float64, value(many, func(i int) any { return float64(i) / 8 })},
		{"text", arrow.BinaryTypes.String, value(many, func(i int) any {
			return strings.Repeat("é,\"", i%9) + fmt.Sprint("t", i)
		})},
		{"word", arrow.BinaryTypes.String, value(few, func(i int) any { return fmt.Sprint("w", i) })},
		{"flag", arrow.FixedWidthTypes.Boolean, value(2, func(i int) any { return i == 1 })},
		{"day", arrow.FixedWidthTypes.Date32, value(many, days)},
		{"none", arrow.PrimitiveTypes.Int32, make([]any, rows)},
		{"id", extensions.NewUUIDType(), value(many, func(i int) any {
			return fmt.Sprintf("%08x-0000-4000-8000-%012x", i%5, i)
		})},
		{"price", &arrow.Decimal128Type{Precision: 30, Scale: 2}, value(many, func(i int) any {
			return fmt.Sprintf("%d.%02d", i/100, i%100)
		})},
	}
}

// modelOf is how many distinct values and nulls a column has.
func modelOf(c column) (distinct, nulls int64) {
	seen := map[string]bool{}
	for _, v := range c.values {
		if v == nil {
			nulls++
			continue
		}
		seen[text(v)] = true
	}
	return int64(len(seen)), nulls
}

// Distinct values of all types, in all formats, are as many as a Go map says; an estimate is near.
func TestDistinct(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	dir, ctx := t.TempDir(), context.Background()
	for _, rows := range []int{0, 1, 12_000} {
		columns := columnsOfAll(rows)
		for _, suffix := range []string{"parquet", "arrow", "csv", "jsonl"} {
			path := filepath.Join(dir, fmt.Sprintf("%d.%s", rows, suffix))
			write(t, path, reader(t, columns, 5000))
			for _, c := range columns {
				o := ColumnOptions{Inputs: []string{path}, Column: c.name, Threads: 3}
				told := int64(0)
				o.Progress = func(p Progress) { told = max(told, p.Done) }
				if suffix == "jsonl" && rows == 0 {
					continue // which has no columns then
				}
				s, err := Distinct(ctx, nil, o)
				distinct, nulls := modelOf(c)
				if err != nil || s.Distinct != distinct || s.Nulls != nulls || s.Rows != int64(rows) ||
					told != s.Rows || s.StandardError != 0 || s.Device != "" || s.Type == "" {
					t.Fatalf("%s of %s: %+v, %v, want %d values and %d nulls", c.name, path, s, err, distinct, nulls)
				}
				if rows > 1 && suffix != "parquet" && c.name != "text" && !testenv.Long() {
					continue
				}
				s, err = Distinct(ctx, d, o)
				// Of few values two may share a register, and seldom four.
				slack := 5*s.StandardError*float64(distinct) + 2.5
				if err != nil || s.Nulls != nulls || s.Device != "cpu" || s.StandardError == 0 ||
					math.Abs(float64(s.Distinct-distinct)) > slack {
					t.Errorf("an estimate of %s of %s: %+v, %v, want %d values", c.name, path, s, err, distinct)
				}
			}
		}
	}
}

// Texts are counted as bytes, and what other columns hold does not matter: neither need be UTF-8, nor need names.
func TestDistinctBytes(t *testing.T) {
	dir, ctx, few := t.TempDir(), context.Background(), []string{"x\xff", "x\xfe", "x\ufffd", "y", "\xff", "a\xffb\xff\xfec"}
	cutInto(t, 4<<10) // a glance does not see all
	columns := []column{{name: "t", typ: arrow.BinaryTypes.String}, {name: "n", typ: arrow.BinaryTypes.String},
		{name: "l", typ: arrow.ListOf(arrow.BinaryTypes.LargeString)},
		{name: "d", typ: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}}}
	times := map[string]int64{}
	for i := range 2000 {
		v := few[i%11%len(few)]
		times[v]++
		for c, v := range []any{v, fmt.Sprint(i % 13), "[\"\"]", few[i%3]} {
			columns[c].values = append(columns[c].values, v)
		}
	}
	for suffix, line := range map[string]string{"csv": "%s,%s,\xfe\n", "tsv": "%s\t%s\t\xfe\n", "arrow": "", "parquet": "",
		"jsonl": `{"gr\u00f6` + "\xdfe\":[\"\xfe\"],\"t\":\"%s\",\"n\":\"%s\"}\n"} {
		path := filepath.Join(dir, "in."+suffix)
		if line == "" {
			write(t, path, reader(t, columns, 500))
		} else {
			text := ""
			if suffix != "jsonl" {
				text = fmt.Sprintf(line[:len(line)-2], "t", "n") + "gr\xf6\xdfe\n"
			}
			for i, v := range columns[0].values {
				text += fmt.Sprintf(line, v, columns[1].values[i])
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := ColumnOptions{Inputs: []string{path}, Column: "n"}
		if s, err := Distinct(ctx, nil, o); err != nil || s.Distinct != 13 {
			t.Errorf("%s, a column of numbers: %+v, %v", suffix, s, err)
		}
		o.Column = "t"
		if s, err := Distinct(ctx, nil, o); err != nil || s.Distinct != int64(len(times)) {
			t.Errorf("%s: %+v, %v, want %d", suffix, s, err, len(times))
		}
		top, err := Top(ctx, TopOptions{ColumnOptions: o, N: 10})
		got := map[string]int64{}
		for _, v := range top.Values {
			got[v.Value] = v.Count
		}
		if err != nil || !maps.Equal(got, times) {
			t.Errorf("%s: %v, %v, want %v", suffix, got, err, times)
		}
		o.Column = "absent"
		if _, err := Distinct(ctx, nil, o); err == nil || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: %v", suffix, err)
		}
	}
}

// Values are equal as SQL has it: all NaNs are one, and the zeros too; several files are one column; a value in a later
// row that the first rows' type does not hold makes the column another, and nothing counts twice.
func TestDistinctValues(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var late strings.Builder
	late.WriteString("a,b\n")
	for i := range 200_000 { // more than a glance sees
		fmt.Fprintf(&late, "%d,%d\n", i%1000, i)
	}
	late.WriteString("x,1\nx,2\n")
	for _, c := range []struct {
		inputs string
		column string
		text   TextOptions
		want   DistinctSummary
	}{
		{put("f.csv", "x\nNaN\nnan\n0\n-0.0\n1.5\n"), "x",
			TextOptions{Types: Types{"x": arrow.PrimitiveTypes.Float64}},
			DistinctSummary{Rows: 5, Distinct: 3, Type: "float64"}},
		{put("late.csv", late.String()), "a", TextOptions{},
			DistinctSummary{Rows: 200_002, Distinct: 1001, Type: "utf8"}},
		{put("n.csv", "x\nNA\n1\n2\n1\n"), "x", TextOptions{Nulls: []string{"NA"}},
			DistinctSummary{Rows: 4, Nulls: 1, Distinct: 2, Type: "int64"}},
		{put("t.csv", "x\n01\n1\n"), "x", TextOptions{Types: Types{"x": arrow.BinaryTypes.String}},
			DistinctSummary{Rows: 2, Distinct: 2, Type: "utf8"}},
		{put("1.csv", "x,y\n1,2\n2,2\n") + "," + put("2.csv", "y,x\n7,2\n8,3\n"), "x", TextOptions{},
			DistinctSummary{Rows: 4, Distinct: 3, Type: "int64"}},
	} {
		got, err := Distinct(ctx, nil, ColumnOptions{Inputs: []string{c.inputs}, Column: c.column, Text: c.text})
		if got.Total = 0; err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.inputs, got, err, c.want)
		}
	}
}

// What is wrong is said, with the right kind of error, and nothing is counted.
func TestDistinctErrors(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	path, lists := filepath.Join(dir, "a.parquet"), filepath.Join(dir, "l.arrow")
	write(t, path, reader(t, columnsOfAll(5000)))
	write(t, lists, reader(t, []column{{"l", arrow.ListOf(arrow.PrimitiveTypes.Int32), []any{"[1]"}}}))
	broken := filepath.Join(dir, "broken.csv")
	if err := os.WriteFile(broken, []byte("a,b\n1,2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	var option *OptionError
	var input *InputError
	var many *TooManyError
	for _, c := range []struct {
		ctx  context.Context
		o    ColumnOptions
		want any
		says string
	}{
		{ctx, ColumnOptions{Column: "a"}, &option, "no input"},
		{ctx, ColumnOptions{Inputs: []string{path, ""}, Column: "a"}, &option, "without a name"},
		{ctx, ColumnOptions{Inputs: []string{path}, Column: "large", Memory: -1}, &option, "memory of -1 bytes"},
		{ctx, ColumnOptions{Inputs: []string{path}, Column: "other"}, &option, `no column "other"; there are: small, `},
		{ctx, ColumnOptions{Inputs: []string{path}, Column: "large", Text: TextOptions{Delimiter: ';'}}, &option,
			"no input is CSV"},
		{ctx, ColumnOptions{Inputs: []string{filepath.Join(dir, "none.csv")}, Column: "a"}, &input, "none.csv"},
		{ctx, ColumnOptions{Inputs: []string{broken}, Column: "a"}, &input, "line 3"},
		{ctx, ColumnOptions{Inputs: []string{lists}, Column: "l"}, &input, `l.arrow: column "l" is list`},
		{ctx, ColumnOptions{Inputs: []string{path}, Column: "text", Memory: 10_000}, &many,
			"distinct values and more"},
		{canceled, ColumnOptions{Inputs: []string{path}, Column: "text"}, &canceled, "canceled"},
	} {
		s, err := Distinct(c.ctx, nil, c.o)
		is := c.want == any(&canceled) && errors.Is(err, context.Canceled)
		if !is && c.want != any(&canceled) {
			is = errors.As(err, c.want)
		}
		if !is || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") ||
			s != (DistinctSummary{}) {
			t.Errorf("%v: %T %v, %+v, want %T, %q", c.o.Inputs, err, err, s, c.want, c.says)
		}
	}
}
