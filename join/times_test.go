package join

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// TestEndsOfDays writes times of all units as text, also the end of a day, which is not its beginning, and reads them.
func TestEndsOfDays(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.arrow")
	var fields []arrow.Field
	var cols []arrow.Array
	for _, typ := range []arrow.DataType{arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us,
		arrow.FixedWidthTypes.Time64ns} {
		per := int64(1e9) / units[typ.(arrow.TemporalWithUnit).TimeUnit()]
		b := array.NewBuilder(mem, typ)
		for _, v := range []int64{86400 * per, 0, 37230*per + per/4, 86400*per - 1, 90000 * per, -per} {
			switch b := b.(type) {
			case *array.Time32Builder:
				b.Append(arrow.Time32(v))
			case *array.Time64Builder:
				b.Append(arrow.Time64(v))
			}
		}
		b.AppendNull()
		fields, cols = append(fields, arrow.Field{Name: typ.(arrow.TemporalWithUnit).TimeUnit().String(), Type: typ, Nullable: true}),
			append(cols, b.NewArray())
	}
	k := array.NewInt64Builder(mem)
	k.AppendValues([]int64{1, 2, 3, 4, 5, 6, 7}, nil)
	s := arrow.NewSchema(append(fields, arrow.Field{Name: "k", Type: arrow.PrimitiveTypes.Int64}), nil)
	rec := array.NewRecordBatch(s, append(cols, k.NewArray()), 7)
	r, err := array.NewRecordReader(s, []arrow.RecordBatch{rec})
	if err != nil {
		t.Fatal(err)
	}
	write(t, in, r)
	for out, want := range map[string]string{
		"out.csv": "s,ms,us,ns,k\n24:00:00,24:00:00.000,24:00:00.000000,24:00:00.000000000,1\n" +
			"00:00:00,00:00:00.000,00:00:00.000000,00:00:00.000000000,2\n" +
			"10:20:30,10:20:30.250,10:20:30.250000,10:20:30.250000000,3\n" +
			"23:59:59,23:59:59.999,23:59:59.999999,23:59:59.999999999,4\n" +
			"25:00:00,25:00:00.000,25:00:00.000000,25:00:00.000000000,5\n" +
			"-00:00:01,-00:00:01.000,-00:00:01.000000,-00:00:01.000000000,6\n,,,,7\n",
		"out.jsonl": `{"s":"24:00:00","k":1}` + "\n" + `{"s":"00:00:00","k":2}` + "\n" + `{"s":"10:20:30","k":3}` + "\n" +
			`{"s":"23:59:59","k":4}` + "\n" + `{"s":"25:00:00","k":5}` + "\n" + `{"s":"-00:00:01","k":6}` + "\n" + `{"s":null,"k":7}` + "\n",
	} {
		out = filepath.Join(dir, out)
		o := tuned{Options{Build: in, Probe: in, Out: out, How: Semi, On: []Pair{{"k", "k"}}}, tuning{makers: fakeMakers}}
		if filepath.Ext(out) == ".jsonl" {
			o.Select = []string{"s", "k"}
		}
		if _, err := runWith(context.Background(), nil, o); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(out); string(got) != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	text := put(t, filepath.Join(dir, "t.csv"), "t\n24:00:00\n24:00:00.000\n00:00:00\n")
	back, err := openAs(text, "", TextOptions{Types: Types{"t": arrow.FixedWidthTypes.Time64us}})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if !back.Next() {
		t.Fatal(back.Err())
	}
	if got := back.RecordBatch().Column(0).(*array.Time64).Values(); got[0] != 86400e6 || got[1] != 86400e6 || got[2] != 0 {
		t.Errorf("the times are read as %d", got)
	}
}

// TestDecimalsAsJSON writes decimals of each width as numbers of JSON.
func TestDecimalsAsJSON(t *testing.T) {
	for _, typ := range []arrow.DataType{&arrow.Decimal32Type{Precision: 5, Scale: 2}, &arrow.Decimal64Type{Precision: 5, Scale: 2},
		&arrow.Decimal128Type{Precision: 5, Scale: 2}, &arrow.Decimal256Type{Precision: 5, Scale: 2}} {
		b := array.NewBuilder(mem, typ)
		if err := b.AppendValueFromString("-0.25"); err != nil {
			t.Fatal(err)
		}
		if got, err := jsonCell(b.NewArray())(nil, 0); err != nil || string(got) != "-0.25" {
			t.Errorf("%s: %s %v", typ, got, err)
		}
	}
}
