package join

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// same are types of key columns that can be equal to one another, with a few values as text: of each, a value's number
// is its place.
var same = []struct {
	types  []arrow.DataType
	values []string
}{
	{[]arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}},
		[]string{"", "a", "b", "a\x00", "\x00", "ü", strings.Repeat("long ", 50), "a b"}},
	{[]arrow.DataType{arrow.BinaryTypes.Binary, &arrow.FixedSizeBinaryType{ByteWidth: 4}, arrow.BinaryTypes.LargeBinary}, []string{"abcd", "abce", "\x00\x00\x00\x00", "zzzz"}},
	{[]arrow.DataType{arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Float32}, []string{"0", "1.5", "NaN", "-Inf", "3"}},
	{[]arrow.DataType{arrow.FixedWidthTypes.Boolean}, []string{"true", "false"}},
	{[]arrow.DataType{&arrow.Decimal128Type{Precision: 9, Scale: 2}, &arrow.Decimal128Type{Precision: 17, Scale: 4}, &arrow.Decimal256Type{Precision: 40, Scale: 20}}, []string{"0.00", "-1.25", "99.99"}},
	{[]arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint32}, []string{"0", "1", "77"}},
	{[]arrow.DataType{arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Timestamp_ms}, []string{"2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z"}},
}

// wideArray makes a column of values by their numbers; -1 is a null.
func wideArray(t testing.TB, typ arrow.DataType, values []string, at []int) arrow.Array {
	t.Helper()
	b := array.NewBuilder(mem, typ)
	defer b.Release()
	for _, i := range at {
		var err error
		switch b := b.(type) {
		case array.Builder:
			if i < 0 {
				b.AppendNull()
				continue
			}
			switch b := b.(type) {
			case *array.StringBuilder:
				b.Append(values[i])
			case *array.LargeStringBuilder:
				b.Append(values[i])
			case *array.BinaryBuilder:
				b.Append([]byte(values[i]))
			case *array.FixedSizeBinaryBuilder:
				b.Append([]byte(values[i]))
			case *array.BinaryDictionaryBuilder:
				err = b.AppendString(values[i])
			case *array.Float64Builder:
				if values[i] == "0" && len(at)%2 == 0 {
					b.Append(math.Copysign(0, -1))
				} else {
					err = b.AppendValueFromString(values[i])
				}
			default:
				err = b.AppendValueFromString(values[i])
			}
		}
		if err != nil {
			t.Fatal(typ, err)
		}
	}
	return b.NewArray()
}

// TestWideKeys joins on random columns of all types of keys, one to four at a time, in files and formats, and compares
// with loops.
func TestWideKeys(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 77))
		dir := t.TempDir()
		nullsEqual := seed%3 == 0
		n := [2]int{r.IntN(60), r.IntN(200)}
		var ids [2][][]int // by side and row
		var fields [2][]arrow.Field
		var cols [2][]arrow.Array
		for side := range 2 {
			ids[side] = make([][]int, n[side])
		}
		var on []Pair
		for k := range 1 + r.IntN(4) {
			kind := same[r.IntN(len(same))]
			if k == 0 {
				kind = same[seed%5] // one of those that make a key wide
			}
			on = append(on, Pair{fmt.Sprint("b", k), fmt.Sprint("p", k)})
			for side := range 2 {
				typ := kind.types[r.IntN(len(kind.types))]
				at := make([]int, n[side])
				for i := range at {
					if at[i] = r.IntN(len(kind.values)); r.IntN(6) == 0 {
						at[i] = -1
					}
					ids[side][i] = append(ids[side][i], at[i])
				}
				fields[side] = append(fields[side], arrow.Field{Name: fmt.Sprint("bp"[side:side+1], k), Type: typ,
					Nullable: true})
				cols[side] = append(cols[side], wideArray(t, typ, kind.values, at))
			}
		}
		var recs [2]arrow.RecordBatch
		for side := range 2 {
			b := array.NewInt64Builder(mem)
			for i := range n[side] {
				b.Append(int64(i))
			}
			fields[side] = append(fields[side], arrow.Field{Name: []string{"brow", "prow"}[side],
				Type: arrow.PrimitiveTypes.Int64})
			recs[side] = array.NewRecordBatch(arrow.NewSchema(fields[side], nil), append(cols[side], b.NewArray()),
				int64(n[side]))
		}
		var want []string
		for p := range n[1] {
			for b := range n[0] {
				equal := true
				for k := range on {
					equal = equal && ids[0][b][k] == ids[1][p][k] && (ids[0][b][k] >= 0 || nullsEqual)
				}
				if equal {
					want = append(want, fmt.Sprintf("[%d %d]", p, b))
				}
			}
		}
		for _, suffixes := range [][2]string{{".parquet", ".parquet"}, {".arrow", ".parquet"}, {".parquet", ".arrow"}} {
			var paths [2]string
			for side := range 2 {
				paths[side] = filepath.Join(dir, "bp"[side:side+1]+suffixes[side])
				if suffixes[side] == ".parquet" {
					writeAnyhow(t, r, paths[side], recs[side], int64(1+r.IntN(80)))
					continue
				}
				half := recs[side].NumRows() / 2
				rr, err := array.NewRecordReader(recs[side].Schema(), []arrow.RecordBatch{recs[side].NewSlice(0, half),
					recs[side].NewSlice(half, recs[side].NumRows())})
				if err != nil {
					t.Fatal(err)
				}
				write(t, paths[side], rr)
			}
			o := tuned{Options{Build: paths[0], Probe: paths[1], Out: filepath.Join(dir, "o.parquet"), On: on,
				NullsEqual: nullsEqual, Select: []string{"prow", "brow"}}, tuning{batch: 30}}
			if _, err := runWith(t.Context(), d, o); err != nil {
				t.Fatalf("seed %d, %v with %v: %v", seed, recs[0].Schema(), recs[1].Schema(), err)
			}
			_, rows := read(t, o.Out)
			var got []string
			for _, row := range rows {
				got = append(got, fmt.Sprint(row))
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("seed %d, %v, %v with %v gives\n%v\nwant\n%v", seed, suffixes, recs[0].Schema(),
					recs[1].Schema(), got, want)
			}
		}
	}
}

// Keys of the build side that have the same hash are hashed anew, and one of the probe's that has another's hash does
// not match it.
func TestSameHash(t *testing.T) {
	text := func(values ...string) *vec {
		v := &vec{ends: []int{0}}
		for _, s := range values {
			v.push([]byte(s))
		}
		return v
	}
	s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.BinaryTypes.String}}, nil)
	p, err := planKeys(s, s, []Pair{{"k", "k"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	build := &packed{ok: []bool{true, true, true}, wide: []*vec{text("one", "two", "one")}}
	build.words[0] = []uint64{5, 5, 5}
	x, err := newIndex(t.Context(), opener{makers: fakeMakers, filter: FilterOff}, p, build, nil)
	if err != nil {
		t.Fatal(err)
	}
	probe := &packed{ok: []bool{true, true, true}, wide: []*vec{text("two", "three", "one")}}
	probe.words[0] = []uint64{build.words[0][1], build.words[0][1], build.words[0][0]}
	reps := make([]int64, 3)
	if err := x.find(probe, reps); err != nil || reps[0] != 1 || reps[1] != -1 || reps[2] < 0 ||
		x.matches(reps[2]) != 2 || x.matches(reps[0]) != 1 {
		t.Errorf("%v, %v", reps, err)
	}
}

// Decimals of different scales are compared as numbers: those with more digits than the other side can have match
// nothing, and none is too large.
func TestDecimalScales(t *testing.T) {
	dec := func(precision, scale int32) arrow.DataType {
		if precision > 38 {
			return &arrow.Decimal256Type{Precision: precision, Scale: scale}
		}
		return &arrow.Decimal128Type{Precision: precision, Scale: scale}
	}
	long := strings.Repeat("9", 37)
	for i, c := range []struct {
		build, probe arrow.DataType
		left, right  []string
		want         [][2]int
	}{
		{dec(9, 2), dec(9, 4), []string{"1.00", "-2.50", "0", "0.01"}, []string{"1.0001", "1.0000", "-2.5000", "-2.5001", "0", "0.0099", "0.0100"}, [][2]int{{0, 1}, {1, 2}, {2, 4}, {3, 6}}},
		{dec(38, 10), dec(38, 0), []string{"7.0000000001", "7", "0.5"}, []string{"7", long, "0"}, [][2]int{{1, 0}}},
		{dec(38, 0), dec(76, 38), []string{long, "-" + long, "5"}, []string{long + ".0", "-" + long + ".0", "-" + long + ".5", "5.00000000000000000000000000000000000001"}, [][2]int{{0, 0}, {1, 1}}},
		{dec(76, 76), dec(38, 0), []string{"0", "0.5"}, []string{"0", "1"}, [][2]int{{0, 0}}},
	} {
		numbers := func(n int) (at []int) {
			for i := range n {
				at = append(at, i)
			}
			return append(at, -1)
		}
		side := func(name string, typ arrow.DataType, values []string) array.RecordReader {
			at := numbers(len(values))
			rows := array.NewInt64Builder(mem)
			for i := range at {
				rows.Append(int64(i))
			}
			s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: typ, Nullable: true},
				{Name: name, Type: arrow.PrimitiveTypes.Int64}}, nil)
			rec := array.NewRecordBatch(s, []arrow.Array{wideArray(t, typ, values, at), rows.NewArray()},
				int64(len(at)))
			r, err := array.NewRecordReader(s, []arrow.RecordBatch{rec})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for _, nullsEqual := range []bool{false, true} {
			want := c.want
			if nullsEqual {
				want = append(want[:len(want):len(want)], [2]int{len(c.left), len(c.right)})
			}
			var got [][2]int
			_, err := joinWith(t.Context(), nil, side("b", c.build, c.left), side("p", c.probe, c.right),
				tuned{Options{On: []Pair{{"k", "k"}}, NullsEqual: nullsEqual}, tuning{makers: fakeMakers}},
				func(r arrow.RecordBatch) error {
					for i := range int(r.NumRows()) {
						got = append(got, [2]int{int(r.Column(2).(*array.Int64).Value(i)),
							int(r.Column(1).(*array.Int64).Value(i))})
					}
					return nil
				})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("case %d, nulls equal %v: %v, %v; want %v", i, nullsEqual, got, err, want)
			}
		}
	}
}
