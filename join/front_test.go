package join

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// A join gives the same rows with a filter in front and without, whatever share of them match, of keys of all widths.
// Where few do, most are not looked up; with auto, none is asked for twice where most do.
func TestJoinBehindAFilter(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	i32, i64 := arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64
	for _, c := range []struct {
		types []arrow.DataType
		hits  int // of 100 rows
	}{
		{[]arrow.DataType{i32}, 4}, {[]arrow.DataType{i64}, 4}, {[]arrow.DataType{i32}, 95}, {[]arrow.DataType{i64, i32}, 4}, {[]arrow.DataType{i64, i64}, 10}, {[]arrow.DataType{i32}, 0},
	} {
		const build, probe = 400, 3000
		side := func(rows int, key func(i int) any) []column {
			var cols []column
			for n, typ := range c.types {
				values := make([]any, rows)
				for i := range values {
					values[i] = key(i)
				}
				cols = append(cols, column{fmt.Sprintf("k%d", n), typ, values})
			}
			numbers := make([]any, rows)
			for i := range numbers {
				numbers[i] = int64(i)
			}
			return append(cols, column{"row", i64, numbers})
		}
		left := side(build, func(i int) any { return int64(i*i%397 + 1) })
		right := side(probe, func(i int) any {
			switch {
			case i%50 == 7:
				return nil
			case i*37%100 < c.hits:
				return int64(i%397 + 1)
			}
			return int64(-i - 5)
		})
		var on []Pair
		for _, col := range left[:len(c.types)] {
			on = append(on, Pair{col.name, col.name})
		}
		for _, how := range []How{Inner, Left, Semi, Anti} {
			var want [][]string
			for _, use := range []Filter{FilterOff, FilterOn, FilterAuto} {
				_, rows, s := cells(t, d, reader(t, left), reader(t, right),
					tuned{Options{On: on, How: how, Table: DefaultTable, Filter: use}, tuning{batch: 150}})
				if use == FilterOff {
					want = rows
				}
				few := c.hits <= 10
				if !reflect.DeepEqual(rows, want) || (s.Filtered > 0) != (use == FilterOn || use == FilterAuto &&
					few) || use == FilterOn && few && s.Filtered < probe/2 {
					t.Errorf("%v join of %v, %d%% hits, filter %v: %d rows, want %d, %d keys filtered", how, c.types,
						c.hits, use, len(rows), len(want), s.Filtered)
				}
			}
		}
	}
}

// With auto, a filter that finds no memory is done without; one that is asked for is an error.
func TestFilterWithoutMemory(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	full := &device.OutOfMemoryError{}
	mk := ownMakers
	mk.f4 = func(*device.Device, table.FilterOptions) (table.Filter[uint32], error) { return nil, full }
	keys, asked := make([]any, 50), make([]any, 500)
	for i := range keys {
		keys[i] = int64(i)
	}
	for i := range asked {
		asked[i] = int64(i * 40)
	}
	side := func(values []any) []column { return []column{{"k", arrow.PrimitiveTypes.Int32, values}} }
	o := tuned{Options{On: []Pair{{"k", "k"}}, How: Semi, Table: DefaultTable}, tuning{makers: &mk, batch: 60}}
	if _, rows, s := cells(t, d, reader(t, side(keys)), reader(t, side(asked)), o); len(rows) != 2 || s.Filtered != 0 {
		t.Errorf("%d rows, %+v", len(rows), s)
	}
	o.Filter = FilterOn
	_, err = joinWith(t.Context(), d, reader(t, side(keys)), reader(t, side(asked)), o, func(arrow.RecordBatch) error {
		return nil
	})
	if !errors.Is(err, full) {
		t.Errorf("no memory for the filter: %v", err)
	}
}

func TestFiltersAreNamed(t *testing.T) {
	for i, name := range Filters() {
		if f, err := ParseFilter(name); err != nil || f != Filter(i) || f.String() != name {
			t.Errorf("%q is %v, %v", name, f, err)
		}
	}
	if _, err := ParseFilter("never"); err == nil || Filter(9).String() != "Filter(9)" {
		t.Error("a filter named never")
	}
}
