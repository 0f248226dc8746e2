package join

import (
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

// Numbers of all kinds meet by their values, as in DuckDB, and dates meet timestamps without a zone at midnight.
func TestKindsOfKeysThatMeet(t *testing.T) {
	p := arrow.PrimitiveTypes
	columns := map[string]column{
		"integer": {"k", p.Int64, []any{"1", "2", "16777217", "9007199254740993", nil, "-5"}},
		"byte":    {"k", p.Int8, []any{"1", "-5", "100", nil}},
		"whole":   {"k", p.Uint64, []any{"1", "2", "18446744073709551615", nil}},
		"double":  {"k", p.Float64, []any{"1", "2.5", "16777216", "9007199254740992", "-5", "3.1", "18446744073709551616", nil}},
		"float":   {"k", p.Float32, []any{"1", "2.5", "16777216", "9007199254740992", "-5", "3.1", "18446744073709551616", nil}},
		"decimal": {"k", &arrow.Decimal128Type{Precision: 18, Scale: 2},
			[]any{"1.00", "2.50", "16777217.01", "9007199254740993.00", "-5.00", "3.10", nil}},
		"fine": {"k", &arrow.Decimal256Type{Precision: 50, Scale: 4}, []any{"1.0000", "2.5000", "18446744073709551615.0000", "3.1000", nil}},
		"date": {"k", arrow.FixedWidthTypes.Date32, []any{"2020-01-01", "1969-12-31", nil}},
		"day":  {"k", arrow.FixedWidthTypes.Date64, []any{"2020-01-01", nil}},
		"time": {"k", &arrow.TimestampType{Unit: arrow.Microsecond},
			[]any{"2020-01-01 00:00:00", "2020-01-01 00:00:01", "1969-12-31 00:00:00", nil}},
		"second": {"k", &arrow.TimestampType{Unit: arrow.Second}, []any{"2020-01-01 00:00:00", "1970-01-01 00:00:00", nil}},
	}
	for _, c := range []struct {
		build, probe string
		want         []string // the probe side's values that match
	}{
		{"integer", "byte", []string{"1", "-5"}},
		{"integer", "whole", []string{"1", "2"}},
		{"integer", "double", []string{"1", "9007199254740992", "-5"}}, // 9007199254740993 is no double
		{"integer", "float", []string{"1", "16777216", "9007199254740992", "-5"}},
		{"byte", "double", []string{"1", "-5"}},
		{"whole", "double", []string{"1", "18446744073709551616"}},
		{"integer", "decimal", []string{"1.00", "9007199254740993.00", "-5.00"}},
		{"whole", "fine", []string{"1.0000", "18446744073709551615.0000"}},
		{"byte", "decimal", []string{"1.00", "-5.00"}},
		{"decimal", "fine", []string{"1.0000", "2.5000", "3.1000"}},
		{"decimal", "double", []string{"1", "2.5", "9007199254740992", "-5", "3.1"}},
		{"decimal", "float", []string{"1", "2.5", "16777216", "9007199254740992", "-5", "3.1"}},
		{"fine", "float", []string{"1", "2.5", "3.1", "18446744073709551616"}},
		{"double", "float", []string{"1", "2.5", "16777216", "9007199254740992", "-5", "18446744073709551616"}}, // 3.1 is another double
		{"date", "time", []string{"2020-01-01 00:00:00", "1969-12-31 00:00:00"}},
		{"date", "second", []string{"2020-01-01 00:00:00"}},
		{"day", "time", []string{"2020-01-01 00:00:00"}},
	} {
		t.Run(c.build+" and "+c.probe, func(t *testing.T) {
			for _, way := range [][2]string{{c.build, c.probe}, {c.probe, c.build}} {
				o := tuned{Options{On: []Pair{{"k", "k"}}, How: Semi}, tuning{makers: fakeMakers}}
				build, probe := columns[way[0]], columns[way[1]]
				ids := column{"id", p.Int64, nil}
				for i := range probe.values {
					ids.values = append(ids.values, int64(i))
				}
				_, rows, _ := cells(t, nil, reader(t, []column{build}), reader(t, []column{probe, ids}), o)
				var got []string
				for _, row := range rows {
					i, err := strconv.Atoi(row[1])
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, probe.values[i].(string))
				}
				if way[1] == c.probe && !slices.Equal(got, c.want) {
					t.Errorf("%v: %q match, want %q", way, got, c.want)
				}
				o.How = Inner
				if _, rows, _ := cells(t, nil, reader(t, []column{build}), reader(t, []column{probe}), o); len(rows) < len(c.want) {
					t.Errorf("%v: %d pairs, want %d at least", way, len(rows), len(c.want))
				}
			}
		})
	}
}
