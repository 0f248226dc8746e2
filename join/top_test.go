package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/warpmap/warpmap/device"
)

func openCPU(t *testing.T) *device.Device {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// The most frequent values of all types, in all formats, and how often each came, are what a Go map says.
func TestTop(t *testing.T) {
	dir, ctx, rows := t.TempDir(), context.Background(), 3000
	columns, d := columnsOfAll(rows), openCPU(t)
	for _, suffix := range []string{"parquet", "arrow", "csv", "jsonl"} {
		path := filepath.Join(dir, "a."+suffix)
		write(t, path, reader(t, columns, 1700))
		for _, c := range columns {
			model := map[string]int64{}
			for _, v := range c.values {
				if f, is := v.(float64); is {
					model[string(appendFloat(nil, f, 64))]++
				} else if v != nil {
					model[text(v)]++
				}
			}
			var counts []int64
			for _, n := range model {
				counts = append(counts, n)
			}
			slices.Sort(counts)
			slices.Reverse(counts)
			for _, n := range []int{1, 5, 100_000} {
				for _, how := range []TopOptions{{}, {Approx: true}, {Approx: true, Device: d}} {
					o := TopOptions{ColumnOptions{Inputs: []string{path}, Column: c.name}, n, how.Approx, how.Device}
					s, err := top(ctx, o, max(n, 1<<12))
					if err != nil || s.Rows != int64(rows) || s.Error != 0 || len(s.Values) != min(n, len(counts)) {
						t.Fatalf("%d of %s of %s: %+v, %v, want %d", n, c.name, path, s, err, min(n, len(counts)))
					}
					seen := map[string]bool{}
					for i, v := range s.Values {
						value := v.Value
						if suffix != "parquet" && suffix != "arrow" && c.name == "price" { // a float there
							f, err := strconv.ParseFloat(value, 64)
							if err != nil {
								t.Fatal(err)
							}
							value = strconv.FormatFloat(f, 'f', 2, 64)
						}
						if v.Count != counts[i] || v.Count != model[value] || seen[value] {
							t.Fatalf("number %d of %s of %s is %+v, want %d times", i, c.name, path, v, counts[i])
						}
						seen[value] = true
					}
				}
			}
		}
	}
}

// Values that come equally often are in their own order, numbers below 0 first, and unsigned ones by their size.
func TestTopOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	write(t, path, reader(t, []column{
		{"i", arrow.PrimitiveTypes.Int32, []any{5, -7, 0, 5}},
		{"u", arrow.PrimitiveTypes.Uint32, []any{uint32(1 << 31), 1, 0, 1}},
		{"f", arrow.PrimitiveTypes.Float32, []any{"0.1", "-2.5", "-0", "0"}},
		{"d", &arrow.Decimal128Type{Precision: 9, Scale: 2}, []any{"1.50", "-1.50", "0.07", "1.50"}},
		{"w", &arrow.Decimal128Type{Precision: 38, Scale: 2}, []any{"1.50", "-1.50", "0.07", "1.50"}},
		{"s", arrow.BinaryTypes.String, []any{"b", "a,\"", "", "b"}},
	}))
	for column, want := range map[string]string{"i": "5:2 -7:1 0:1", "u": "1:2 0:1 2147483648:1",
		"f": "0.0:2 -2.5:1 0.1:1", "d": "1.50:2 -1.50:1 0.07:1", "w": "1.50:2 -1.50:1 0.07:1", "s": "b:2 :1 a,\":1"} {
		o := TopOptions{ColumnOptions: ColumnOptions{Inputs: []string{path}, Column: column}, N: 10}
		s, err := Top(context.Background(), o)
		var got []string
		for _, v := range s.Values {
			got = append(got, fmt.Sprintf("%s:%d", v.Value, v.Count))
		}
		if g := strings.Join(got, " "); err != nil || g != want {
			t.Errorf("%s: %s, %v, want %s", column, g, err, want)
		}
	}
}

// Decimals that stand in Parquet as 4 or 8 bytes, the highest first, as most writers have them, are told as they are.
func TestTopHighFirst(t *testing.T) {
	for _, precision := range []int32{5, 9, 15, 18} {
		for _, dictionary := range []bool{false, true} {
			r := reader(t, []column{{"d", &arrow.Decimal128Type{Precision: precision, Scale: 2},
				[]any{"1.50", "-1.50", nil, "0.07", "1.50"}}})
			path := filepath.Join(t.TempDir(), "a.parquet")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			w, err := pqarrow.NewFileWriter(r.Schema(), f,
				parquet.NewWriterProperties(parquet.WithDictionaryDefault(dictionary)), pqarrow.DefaultWriterProps())
			for err == nil && r.Next() {
				err = w.Write(r.RecordBatch())
			}
			if err = cmp.Or(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			s, err := Top(context.Background(), TopOptions{ColumnOptions: ColumnOptions{Inputs: []string{path},
				Column: "d"}, N: 10})
			if want := []TopValue{{"1.50", 2}, {"-1.50", 1}, {"0.07", 1}}; err != nil || !slices.Equal(s.Values, want) {
				t.Errorf("%d digits, dictionary %t: %v, %v, want %v", precision, dictionary, s.Values, err, want)
			}
		}
	}
}

// A decimal of a huge scale, which a damaged file may say, is written in time that is linear in it.
func TestAppendDecimalScale(t *testing.T) {
	const scale = 4 << 20 // some minutes, if each digit moved those before
	got := appendDecimal(nil, big.NewInt(-5), scale)
	if want := "-0." + strings.Repeat("0", scale-1) + "5"; string(got) != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// An estimate of a stream by Zipf's law errs by no more than it says, which is no more than Misra and Gries allow, and
// SpaceSaving; every value that comes more often than that is there.
func TestTopEstimates(t *testing.T) {
	const rows, kept = 120_000, 200
	path := filepath.Join(t.TempDir(), "a.csv")
	rng := rand.New(rand.NewPCG(4, 5))
	zipf := rand.NewZipf(rng, 1.1, 1, 1<<20)
	model, text := map[string]int64{}, strings.Builder{}
	text.WriteString("n,s\n")
	for range rows {
		x := zipf.Uint64()
		model[fmt.Sprint(x)]++
		fmt.Fprintf(&text, "%d,t%d\n", x, x)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for column, d := range map[string]*device.Device{"n": nil, "s": nil, "n ": openCPU(t)} {
		column = strings.TrimSpace(column)
		o := TopOptions{ColumnOptions{Inputs: []string{path}, Column: column, Threads: 2}, kept, true, d}
		s, err := top(context.Background(), o, kept)
		if err != nil || s.Error <= 0 && d == nil || s.Error > rows/(kept+1) || len(s.Values) > kept {
			t.Fatalf("%s: an error of %d of %d rows, %d values, %v", column, s.Error, s.Rows, len(s.Values), err)
		}
		told := map[string]int64{}
		for _, v := range s.Values {
			told[strings.TrimPrefix(v.Value, "t")] = v.Count
		}
		least := int64(0) // others have no larger count
		if len(s.Values) == kept {
			least = s.Values[kept-1].Count
		}
		for value, n := range model {
			got, there := told[value]
			if there && (got > n || n-got > s.Error) || !there && n > least+s.Error {
				t.Errorf("%s: %s came %d times, and is told to have come %d times, within %d", column, value, n, got,
					s.Error)
			}
		}
	}
}

// An estimate keeps as many values as memory has room for: the counts are then within the error that it tells.
func TestTopKeepsToMemory(t *testing.T) {
	const rows, often = 60_000, 20
	path := filepath.Join(t.TempDir(), "a.csv")
	var text strings.Builder
	text.WriteString("n,s\n")
	for i := range rows {
		x := i
		if i%2 == 0 { // half of the rows are of few values
			x = rows + i%(2*often)
		}
		fmt.Fprintf(&text, "%d,t%d\n", x, x)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"n", "s"} {
		o := TopOptions{ColumnOptions{Inputs: []string{path}, Column: column, Threads: 2, Memory: 700_000}, often, true, nil}
		s, err := Top(context.Background(), o)
		if err != nil || s.Error <= 0 || s.Error > rows/10 || len(s.Values) != often {
			t.Fatalf("%s: an error of %d of %d rows, %d values, %v", column, s.Error, s.Rows, len(s.Values), err)
		}
		for _, v := range s.Values {
			const came = rows / 2 / often
			n, err := strconv.Atoi(strings.TrimPrefix(v.Value, "t"))
			if err != nil || n < rows || v.Count > came || came-v.Count > s.Error {
				t.Errorf("%s: %s came %d times, and is told to have come %d times, within %d", column, v.Value, came, v.Count,
					s.Error)
			}
		}
		o.Memory = 10_000 // not even those that are asked for
		var many *TooManyError
		if _, err := Top(context.Background(), o); !errors.As(err, &many) || !strings.Contains(err.Error(), "fewer") {
			t.Errorf("%s: %v", column, err)
		}
	}
}

func TestTopErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	write(t, path, reader(t, columnsOfAll(5000)))
	o := TopOptions{ColumnOptions: ColumnOptions{Inputs: []string{path}, Column: "large"}}
	var option *OptionError
	for _, o.N = range []int{0, -1, keptValues + 1} {
		if _, err := Top(context.Background(), o); !errors.As(err, &option) {
			t.Errorf("%d values: %v", o.N, err)
		}
	}
	var many *TooManyError
	o.N, o.Memory = 1, 1000
	if s, err := Top(context.Background(), o); !errors.As(err, &many) || s.Values != nil {
		t.Error(s, err)
	}
}

// A scale that no digits fill is refused: its zeros would take all memory.
func TestScalesFit(t *testing.T) {
	huge := &arrow.Decimal128Type{Precision: 18, Scale: -400_000_000}
	for _, c := range []struct {
		typ arrow.DataType
		fit bool
	}{
		{&arrow.Decimal128Type{Precision: 38, Scale: 38}, true}, {&arrow.Decimal256Type{Precision: 76, Scale: -76}, true},
		{arrow.PrimitiveTypes.Int64, true}, {huge, false}, {arrow.ListOf(huge), false},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: huge}, false},
		{&arrow.Decimal256Type{Precision: 76, Scale: 77}, false},
	} {
		if err := scalesFit(c.typ); (err == nil) != c.fit {
			t.Errorf("%v: %v", c.typ, err)
		}
	}
}
