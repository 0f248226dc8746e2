package join

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var mem = memory.DefaultAllocator

// allTypes has every layout of Arrow at least once.
func allTypes() []arrow.DataType {
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	union := []arrow.Field{field("i", arrow.PrimitiveTypes.Int32), field("s", arrow.BinaryTypes.String)}
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}
	types := []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean,
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32,
		arrow.PrimitiveTypes.Uint64,
		arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
		arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView,
		arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView,
		&arrow.FixedSizeBinaryType{ByteWidth: 5},
		arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64,
		arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us,
		arrow.FixedWidthTypes.Time64ns,
		arrow.FixedWidthTypes.Timestamp_us, &arrow.TimestampType{Unit: arrow.Nanosecond},
		arrow.FixedWidthTypes.Duration_ms,
		arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval,
		arrow.FixedWidthTypes.MonthDayNanoInterval,
		&arrow.Decimal32Type{Precision: 7, Scale: 2}, &arrow.Decimal64Type{Precision: 15, Scale: 2},
		&arrow.Decimal128Type{Precision: 15, Scale: 2}, &arrow.Decimal256Type{Precision: 50, Scale: 3},
		words, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.PrimitiveTypes.Int64},
		arrow.ListOf(arrow.BinaryTypes.String), arrow.LargeListOf(arrow.PrimitiveTypes.Int16),
		arrow.ListViewOf(arrow.PrimitiveTypes.Int16), arrow.LargeListViewOf(arrow.BinaryTypes.String),
		arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float64),
		arrow.ListOf(arrow.ListOf(arrow.FixedWidthTypes.Boolean)),
		arrow.ListOf(words),
		arrow.StructOf(field("a", arrow.PrimitiveTypes.Int32), field("b", arrow.ListOf(arrow.BinaryTypes.String)),
			field("w", words)),
		arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64),
		arrow.SparseUnionOf(union, []arrow.UnionTypeCode{3, 7}), arrow.DenseUnionOf(union, []arrow.UnionTypeCode{3, 7}),
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String),
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32),
		extensions.NewUUIDType(),
	}
	return types
}

// randomArray makes n random values of a type, nulls among them, by its builder.
func randomArray(r *rand.Rand, t arrow.DataType, n int) arrow.Array {
	b := array.NewBuilder(mem, t)
	defer b.Release()
	for range n {
		appendRandom(r, b)
	}
	return b.NewArray()
}

func appendRandom(r *rand.Rand, b array.Builder) {
	if r.IntN(5) == 0 {
		b.AppendNull()
		return
	}
	text := strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(30))
	switch b := b.(type) {
	case *array.NullBuilder:
		b.AppendNull()
	case *array.StringBuilder:
		b.Append(text)
	case *array.LargeStringBuilder:
		b.Append(text)
	case *array.StringViewBuilder:
		b.Append(text)
	case *array.BinaryBuilder:
		b.Append([]byte(text))
	case *array.BinaryViewBuilder:
		b.Append([]byte(text))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte{byte(r.Uint32()), 0, byte(r.Uint32()), 255, byte(r.Uint32())})
	case *array.MonthIntervalBuilder:
		b.Append(arrow.MonthInterval(r.Int32()))
	case *array.DayTimeIntervalBuilder:
		b.Append(arrow.DayTimeInterval{Days: r.Int32(), Milliseconds: r.Int32()})
	case *array.MonthDayNanoIntervalBuilder:
		b.Append(arrow.MonthDayNanoInterval{Months: r.Int32(), Days: r.Int32(), Nanoseconds: r.Int64()})
	case *array.BinaryDictionaryBuilder:
		b.AppendString(text)
	case *array.Int64DictionaryBuilder:
		b.Append(int64(r.IntN(30)))
	case *extensions.UUIDBuilder:
		b.AppendBytes([16]byte{0: byte(r.Uint32()), 15: byte(r.Uint32())})
	case *array.FixedSizeListBuilder:
		b.Append(true)
		for range 3 {
			appendRandom(r, b.ValueBuilder())
		}
	case *array.MapBuilder:
		b.Append(true)
		for i := range r.IntN(4) {
			b.KeyBuilder().(*array.StringBuilder).Append(fmt.Sprint(text, i))
			appendRandom(r, b.ItemBuilder())
		}
	case array.VarLenListLikeBuilder:
		n := r.IntN(4)
		b.AppendWithSize(true, n)
		for range n {
			appendRandom(r, b.ValueBuilder())
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(r, b.FieldBuilder(i))
		}
	case *array.SparseUnionBuilder:
		c := r.IntN(2)
		b.Append([]arrow.UnionTypeCode{3, 7}[c])
		appendRandom(r, b.Child(c))
		b.Child(1 - c).AppendEmptyValue()
	case *array.DenseUnionBuilder:
		c := r.IntN(2)
		b.Append([]arrow.UnionTypeCode{3, 7}[c])
		appendRandom(r, b.Child(c))
	case *array.RunEndEncodedBuilder:
		b.Append(uint64(1 + r.IntN(3)))
		appendRandom(r, b.ValueBuilder())
	case *array.BooleanBuilder:
		b.Append(r.IntN(2) == 0)
	case *array.Float16Builder:
		b.AppendValueFromString(fmt.Sprint(r.IntN(100)))
	case *array.Date64Builder:
		b.Append(arrow.Date64(int64(r.IntN(20000)-5000) * 86_400_000))
	case *array.Date32Builder:
		b.Append(arrow.Date32(r.IntN(20000) - 5000))
	case *array.Time32Builder:
		b.Append(arrow.Time32(r.IntN(80_000)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(r.IntN(80_000_000_000)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(r.Int64N(1<<60) - 1<<59))
	case *array.DurationBuilder:
		b.Append(arrow.Duration(r.Int64()))
	case *array.Decimal32Builder, *array.Decimal64Builder, *array.Decimal128Builder, *array.Decimal256Builder:
		if err := b.AppendValueFromString(fmt.Sprintf("%d.%02d", r.IntN(20000)-10000, r.IntN(100))); err != nil {
			panic(err)
		}
	default: // numbers
		if err := b.AppendValueFromString(fmt.Sprint(r.IntN(100))); err != nil {
			panic(err)
		}
	}
}

// value is one value as JSON: independent of layout, chunk and dictionary.
func value(t testing.TB, a arrow.Array, i int) string {
	t.Helper()
	b, err := json.Marshal(a.GetOneForMarshal(i))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTakeEveryType(t *testing.T) {
	for _, typ := range allTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var chunks []arrow.Array
			for range 3 {
				a := randomArray(r, typ, 60)
				n := int64(a.Len())
				chunks = append(chunks, array.NewSlice(a, 7, n), array.NewSlice(a, 0, 9), array.NewSlice(a, 5, 5))
			}
			var data []arrow.ArrayData
			for _, c := range chunks {
				data = append(data, c.Data())
			}
			tk, err := newTaker(typ, data)
			if err != nil {
				t.Fatal(err)
			}
			var at []loc
			for range 200 {
				c := r.IntN(len(chunks))
				if r.IntN(8) == 0 || chunks[c].Len() == 0 {
					at = append(at, null)
					continue
				}
				l := loc{c, r.IntN(chunks[c].Len())}
				at = append(at, l, l)
			}
			for _, at := range [][]loc{at, at[:1], nil, {null, null, null}} {
				d, err := tk.take(at)
				if err != nil {
					t.Fatal(err)
				}
				out := array.MakeFromData(d)
				if !arrow.TypeEqual(out.DataType(), typ) || out.Len() != len(at) {
					t.Fatalf("%d of %s, want %d of %s", out.Len(), out.DataType(), len(at), typ)
				}
				if err := array.ValidateFull(out); err != nil {
					t.Fatal(err)
				}
				for i, l := range at {
					want := "null"
					if l.chunk >= 0 {
						want = value(t, chunks[l.chunk], l.row)
					}
					got := value(t, out, i)
					if got != want {
						t.Fatalf("row %d (%v): %s, want %s", i, l, got, want)
					}
				}
			}
		})
	}
}

func TestTakeFromNothing(t *testing.T) {
	for _, typ := range allTypes() {
		tk, err := newTaker(typ, nil)
		if err != nil {
			t.Fatal(typ, err)
		}
		for _, at := range [][]loc{nil, {null, null}} {
			d, err := tk.take(at)
			if err != nil {
				t.Fatal(typ, err)
			}
			if a := array.MakeFromData(d); a.Len() != len(at) {
				t.Fatal(typ, a)
			}
		}
	}
}

func TestTakeTooMuch(t *testing.T) {
	typ := arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String)
	a := randomArray(rand.New(rand.NewPCG(1, 2)), typ, 10)
	tk, _ := newTaker(typ, []arrow.ArrayData{a.Data()})
	if _, err := tk.take(make([]loc, math.MaxInt16+1)); err != errTooBig {
		t.Fatal(err)
	}
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}
	var chunks []arrow.ArrayData
	for c := range 2 {
		b := array.NewDictionaryBuilder(mem, words).(*array.Int64DictionaryBuilder)
		for i := range 100 {
			b.Append(int64(c*1000 + i))
		}
		chunks = append(chunks, b.NewArray().Data())
	}
	if _, err := newTaker(words, chunks); err == nil || !strings.Contains(err.Error(), "too many for its index type") {
		t.Fatal(err)
	}
}
