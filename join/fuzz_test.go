package join

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/warpmap/warpmap/internal/testenv"
)

// Text that is packed comes to the reader of its format as it unpacks.
func FuzzJSONLFile(f *testing.F)   { fuzzFile(f, ".jsonl") }
func FuzzGzipCSVFile(f *testing.F) { fuzzFile(f, ".csv.gz") }
func FuzzZstdTSVFile(f *testing.F) { fuzzFile(f, ".tsv.zst") }

// FuzzArrowStream joins what a program may write to a pipe, and a file may hold: batches without a footer.
func FuzzArrowStream(f *testing.F) {
	for _, b := range [][]byte{soundFile(f, ".arrow"), smallFile(f, ".arrow")} {
		addFlipped(f, b[8:len(b)-10-int(binary.LittleEndian.Uint32(b[len(b)-10:]))]) // between its magic and its footer
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Bounded(t, len(b), func() { joinBroken(t, t.TempDir(), ".arrow", b) })
	})
}

// What ParseTypes reads can be written again, by the names that errors use, and is then read as the same.
func FuzzTypes(f *testing.F) {
	for _, s := range []string{"a=int", "a=decimal(38,38),b=varchar", `a\,b\=c\\=decimal`, "a=", "=int", "a=int,a=int",
		"a=decimal(3", "a=decimal(3,4)", "a= Timestamp WITH time zone ", "a=numeric( 5 , 2 ),b=date", `a\x=int`, ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		testenv.Bounded(t, len(s), func() {
			types, err := ParseTypes(s)
			if err != nil {
				return
			}
			var again []string
			for _, name := range slices.Sorted(maps.Keys(types)) {
				again = append(again, escaped(name)+"="+sqlName(types[name]))
			}
			other, err := ParseTypes(strings.Join(again, ","))
			if err != nil || !maps.EqualFunc(types, other, func(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b) }) {
				t.Errorf("%q: %v, written %q it is %v, %v", s, types, again, other, err)
			}
			if err := (TextOptions{Types: types}).check(); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		})
	})
}

// What ParseNames reads can be written again, and is then read as the same.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "a,b", `a\,b,c\\`, "", ",", `a\`, `\x`, "a,", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		testenv.Bounded(t, len(s), func() {
			names, err := ParseNames(s)
			if err != nil {
				return
			}
			var again []string
			for _, name := range names {
				again = append(again, strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(name))
			}
			if other, err := ParseNames(strings.Join(again, ",")); err != nil || !slices.Equal(other, names) {
				t.Errorf("%q: %q, written %q it is %q, %v", s, names, again, other, err)
			}
		})
	})
}

// reference is what a text is as a value of a type, by way of the standard library; "" if it is none.
func reference(text string, typ arrow.DataType) string {
	within := func(least, most float64) string {
		n, ok := new(big.Int).SetString(text, 10)
		f, _ := new(big.Float).SetInt(orZero(n)).Float64()
		if !ok || strings.Contains(text, "_") || f < least || f > most ||
			least == 0 && text[0] == '-' || most == math.MaxUint64 && n.BitLen() > 64 || least == math.MinInt64 && !n.IsInt64() {
			return ""
		}
		return n.String()
	}
	moment := func(layouts ...string) (time.Time, bool) {
		for _, layout := range layouts {
			if at, err := time.Parse(layout, text); err == nil && !strings.Contains(text, ",") {
				return at, true
			}
		}
		return time.Time{}, false
	}
	switch typ := typ.(type) {
	case *arrow.Int8Type:
		return within(math.MinInt8, math.MaxInt8)
	case *arrow.Int32Type:
		return within(math.MinInt32, math.MaxInt32)
	case *arrow.Int64Type:
		return within(math.MinInt64, math.MaxInt64)
	case *arrow.Uint8Type:
		return within(0, math.MaxUint8)
	case *arrow.Uint64Type:
		return within(0, math.MaxUint64)
	case *arrow.Float64Type:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || strings.ContainsAny(text, "xX_") {
			return ""
		}
		return fmt.Sprint(v)
	case *arrow.Float32Type:
		v, err := strconv.ParseFloat(text, 32)
		if err != nil || strings.ContainsAny(text, "xX_") {
			return ""
		}
		return fmt.Sprint(float32(v))
	case *arrow.Decimal128Type:
		if strings.Trim(text, "0123456789.+-") != "" {
			return ""
		}
		v, ok := new(big.Rat).SetString(text)
		if !ok {
			return ""
		}
		v.Mul(v, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Scale)), nil)))
		if !v.IsInt() || len(strings.TrimPrefix(v.Num().String(), "-")) > int(typ.Precision) {
			return ""
		}
		return v.Num().String()
	case *arrow.BooleanType:
		i := slices.Index([]string{"true", "t", "1", "false", "f", "0"}, strings.ToLower(text))
		return []string{"", "true", "false"}[(i+3)/3]
	case *extensions.UUIDType:
		if m := uuidText.FindStringSubmatch(text); m != nil {
			return strings.ToLower(strings.ReplaceAll(cmp.Or(m[1], m[2]), "-", ""))
		}
	case *arrow.BinaryType:
		if blobText.MatchString(text) {
			return fmt.Sprintf("%x", unescaped.ReplaceAllStringFunc(text, func(s string) string {
				n, _ := strconv.ParseUint(s[2:], 16, 8)
				return string([]byte{byte(n)})
			}))
		}
	case *arrow.Date32Type:
		if at, ok := moment("2006-01-02"); ok {
			return fmt.Sprint(at.Unix() / 86400)
		}
	case *arrow.Time64Type:
		if rest, ends := strings.CutPrefix(text, "24"); ends && reference("00"+rest, typ) == "0" {
			return fmt.Sprint(24 * time.Hour.Microseconds())
		}
		if at, ok := moment("15:04:05"); ok && at.Nanosecond()%1000 == 0 && strictTime(text, "") {
			return fmt.Sprint(at.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())
		}
	case *arrow.TimestampType:
		layouts, date := []string{}, ""
		for _, between := range []string{" ", "T"} {
			layouts = append(layouts, "2006-01-02"+between+"15:04:05")
			if typ.TimeZone != "" {
				for _, zone := range []string{"Z", "-07", "-0700", "-07:00"} {
					layouts = append(layouts, "2006-01-02"+between+"15:04:05"+zone)
				}
			}
		}
		if len(text) > 10 {
			date = text[:11]
		}
		at, ok := moment(append(layouts, "2006-01-02")...)
		unit := units[typ.Unit]
		if !ok || int64(at.Nanosecond())%unit != 0 || date != "" && !strictTime(text, date) || unit == 1 && far(at.Unix()) {
			return ""
		}
		return fmt.Sprint(at.Unix()*(1e9/unit) + int64(at.Nanosecond())/unit)
	default:
		panic(typ.String())
	}
	return ""
}

var (
	uuidText  = regexp.MustCompile(`^(?:\{([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\}|([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}))$`)
	blobText  = regexp.MustCompile(`^(?:[\x00-\x5b\x5d-\x7f]|\\x[0-9a-fA-F]{2})*$`)
	unescaped = regexp.MustCompile(`\\x..`)
)

// orZero is a number, or 0 for none.
func orZero(n *big.Int) *big.Int {
	if n == nil {
		return new(big.Int)
	}
	return n
}

// strictTime tells that a time has two digits for the hour, and nine decimals at most, which time.Parse does not ask for.
func strictTime(text, date string) bool {
	text = text[len(date):]
	if len(text) < 3 || text[2] != ':' {
		return false
	}
	_, decimals, _ := strings.Cut(text, ".")
	return len(decimals)-len(strings.TrimLeft(decimals, "0123456789")) <= 9
}

// A field of a type that was given is what the standard library makes of it, or an error of one line.
func FuzzValues(f *testing.F) {
	types := []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Float32,
		arrow.PrimitiveTypes.Float64, &arrow.Decimal128Type{Precision: 38, Scale: 5},
		&arrow.Decimal128Type{Precision: 4, Scale: 4}, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time64us,
		&arrow.TimestampType{Unit: arrow.Second}, &arrow.TimestampType{Unit: arrow.Microsecond},
		&arrow.TimestampType{Unit: arrow.Nanosecond}, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
		arrow.FixedWidthTypes.Boolean, extensions.NewUUIDType(), arrow.BinaryTypes.Binary}
	for _, s := range []string{"0", "-1", "+1", "128", "9223372036854775808", "18446744073709551616", "1.5", "-0.0",
		".5", "5.", "1e5", "0x10", "1_0", "NaN", "-Inf", "0.1234567890123456", "-.00001", "2024-02-29", "2023-02-29",
		"0000-12-31", "23:59:59.999999", "24:00:00", "1:02:03", "2024-02-29 01:02:03", "2024-02-29T01:02:03.000000001",
		"2024-02-29 01:02:03Z", "2024-02-29 01:02:03.5+02", "2024-02-29 01:02:03-0230", "2024-02-29 01:02:03,5+02:00",
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "{6BA7B810-9DAD-11D1-80B4-00C04FD430C8}", "6ba7b8109dad11d180b400c04fd430c8",
		"urn:uuid:6ba7b810-9dad-11d1-80b4-00c0", "TRUE", `a\x00\xFF`, `\x0`, "\xff", "1677-09-21 00:12:43", "2262-04-11 23:47:17", "", "99999999999999999999999999999999999.99999"} {
		f.Add(s)
	}
	f.Add("-0")
	f.Fuzz(func(t *testing.T, text string) {
		testenv.Bounded(t, len(text), func() {
			if len(text) > 1<<10 {
				return // the reference takes time that grows with the square
			}
			for _, typ := range types {
				got := ""
				if a, err := oneValue(text, typ); err == nil {
					got = number128(t, a)
					a.Release()
				} else if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that is no line: %q", err)
				}
				if want := reference(text, typ); got != want {
					t.Errorf("%q as %s: %q, want %q", text, sqlName(typ), got, want)
				}
			}
		})
	})
}

// number128 is the value of a column of one, as reference has it.
func number128(t *testing.T, a arrow.Array) string {
	switch a := a.(type) {
	case *array.Decimal128:
		return a.Value(0).BigInt().String()
	case *array.Date32:
		return fmt.Sprint(int32(a.Value(0)))
	case *array.Time64:
		return fmt.Sprint(int64(a.Value(0)))
	case *array.Timestamp:
		return fmt.Sprint(int64(a.Value(0)))
	case *extensions.UUIDArray:
		u := a.Value(0)
		return fmt.Sprintf("%x", u[:])
	case *array.Binary:
		return fmt.Sprintf("%x", a.Value(0))
	case *array.Float64:
		return fmt.Sprint(a.Value(0))
	case *array.Float32:
		return fmt.Sprint(a.Value(0))
	}
	return value(t, a, 0)
}

// rowsAsText are the fields of a text file, all of them as text, in blocks of so many bytes; "∅" stands for a null.
func rowsAsText(t *testing.T, f *textFile) (rows [][]string) {
	types := make([]arrow.DataType, len(f.columns))
	for i := range types {
		types[i] = arrow.BinaryTypes.String
	}
	for _, rec := range textBatches(t, f, types) {
		for i := range int(rec.NumRows()) {
			row := make([]string, rec.NumCols())
			for c := range row {
				if a := rec.Column(c).(*array.String); a.IsNull(i) {
					row[c] = "∅"
				} else {
					row[c] = a.Value(i)
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// allText gives the types for which all columns of these names are text.
func allText(names []string) Types {
	types := Types{}
	for _, name := range names {
		types[name] = arrow.BinaryTypes.String
	}
	return types
}

// CSV in any dialect has the same rows however it is cut into blocks, and those that encoding/csv finds, where that has
// the same dialect.
func FuzzDialect(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a;b\r\n'x;y';\"\n", "a|b|c\n|NULL|''\n", "\ufeffa\n\"x\"\"y\"\n\n", "a\tb\n\\N\t1",
		"a,b\n\"1\n2\",x\n3\n", "a\rb\r", "a,a\n\"x\"y,z\n"} {
		f.Add([]byte(s), byte(','), byte('"'), "NULL", byte(3))
		f.Add([]byte(s), byte(';'), byte('\''), `\N`, byte(64))
		f.Add([]byte(s), byte('|'), byte(0), "", byte(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, delimiter, quote byte, null string, size byte) {
		testenv.Bounded(t, len(text), func() {
			o := TextOptions{Delimiter: delimiter, Quote: quote, NoQuotes: quote == 0, Nulls: []string{null}}
			if delimiter == 0 || o.check() != nil {
				return
			}
			all := func(block int) (names []string, rows [][]string, err error) {
				defer func(was int) { textBlock = was }(textBlock)
				textBlock = block
				head, err := openCSV(bytesSource(text), o.dialect(CSV), nil, nil, false)
				if err != nil {
					return nil, nil, err
				}
				for _, c := range head.columns {
					names = append(names, c.name)
				}
				f, err := openCSV(bytesSource(text), o.dialect(CSV), allText(names), nil, false)
				if err != nil {
					return nil, nil, err
				}
				rows = rowsAsText(t, f)
				if int64(len(rows)) != f.rows || int64(len(rows)) != head.rows {
					t.Errorf("%d rows, and it tells of %d and %d", len(rows), f.rows, head.rows)
				}
				return names, rows, nil
			}
			names, rows, err := all(2 << 20)
			cutNames, cut, cutErr := all(1 + int(size))
			if fmt.Sprint(err) != fmt.Sprint(cutErr) || !slices.Equal(names, cutNames) ||
				!slices.EqualFunc(rows, cut, slices.Equal) {
				t.Fatalf("%q: %q, %v\nin blocks of %d: %q, %v", text, rows, err, 1+int(size), cut, cutErr)
			}
			if err == nil && quote == '"' && delimiter != ' ' {
				asEncodingCSV(t, text, delimiter, null, append([][]string{names}, rows...))
			}
		})
	})
}

// asEncodingCSV compares rows with those of encoding/csv, where that reads the text and is sure to mean the same: it knows no
// nulls, takes an empty line for none, wants UTF-8, and has its own mind about carriage returns.
func asEncodingCSV(t *testing.T, text []byte, delimiter byte, null string, rows [][]string) {
	if bytes.ContainsAny(text, "\r") || bytes.Contains(text, []byte("\n\n")) || bytes.HasPrefix(text, []byte("\n")) ||
		bytes.HasPrefix(text, bom) || !utf8.Valid(text) || bytes.Contains(text, []byte("∅")) {
		return
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.Comma = rune(delimiter)
	want, err := r.ReadAll()
	if err != nil {
		return
	}
	plain := func(rows [][]string) (out []string) {
		for _, row := range rows[1:] {
			for _, s := range row {
				if s == null || s == "" {
					s = "∅"
				}
				out = append(out, s)
			}
		}
		return out
	}
	if got, want := plain(rows), plain(want); !slices.Equal(got, want) {
		t.Errorf("%q: %q, want %q", text, got, want)
	}
}

// A file of JSON lines has the rows that encoding/json finds, however it is cut, and strings are the same.
func FuzzJSONL(f *testing.F) {
	for _, s := range []string{`{"a":1}`, "{\"a\":1,\"b\":\"x\"}\n{\"b\":null}\n\n{\"c\":[1,{\"d\":2}]}\n", `{"a":"\u00e9\ud83d\ude00"}`,
		"\ufeff{\"a\":\"2024-02-29\"}\r\n{\"a\":\"NaN\"}", `[{"a":1}]`, `{"a":1}{"a":2}`, `{"a":1`, `{"a":1,"a":2}`, "{}\n{}\n",
		`{"":true,"\u0000":-0.0,"x":1e400}`, `{"a":18446744073709551616}`, "\u00a0\n{\"a\":1}"} {
		f.Add([]byte(s), byte(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, size byte) {
		testenv.Bounded(t, len(text), func() {
			defer func(was int) { textBlock = was }(textBlock)
			if err := jsonAgrees(text); err != nil {
				t.Error(err)
			}
			head, err := openJSON(bytesSource(text), nil, nil, false)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that is no line: %q", err)
				}
				return
			}
			types := make([]arrow.DataType, len(head.columns))
			var names []string
			for i, c := range head.columns {
				types[i] = c.typ()
				names = append(names, c.name)
			}
			textBatches(t, head, types) // what is inferred can be read
			textBlock = 1 + int(size)
			file, err := openJSON(bytesSource(text), allText(names), nil, false)
			if err != nil {
				t.Fatalf("%q in blocks of %d: %v", text, 1+int(size), err)
			}
			rows := rowsAsText(t, file)
			if file, err = openJSON(bytesSource(text), allText(names), nil, true); err != nil ||
				!reflect.DeepEqual(rows, rowsAsText(t, file)) {
				t.Errorf("%q where nothing need be UTF-8: %v", text, err)
			}
			d, n := json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(text, bom, nil))), 0
			d.UseNumber()
			for ; ; n++ {
				var want map[string]any
				if err := d.Decode(&want); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%q: row %d is no JSON: %v", text, n, err)
				}
				for c, name := range names {
					got := "∅"
					if n < len(rows) {
						got = rows[n][c]
					}
					if s, is := want[name].(string); is && s != got && !strings.Contains(s, string(bom)) {
						t.Fatalf("%q: row %d has %q for %q, want %q", text, n, got, name, s)
					}
				}
			}
			if n != len(rows) || int64(n) != head.rows || int64(n) != file.rows {
				t.Errorf("%q: %d rows, counted as %d and %d, want %d", text, len(rows), head.rows, file.rows, n)
			}
		})
	})
}
