package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

func TestParseTypes(t *testing.T) {
	got, err := ParseTypes(`k=Text,a\,b=decimal(9, 2),c\=d=DOUBLE PRECISION,\\=numeric,t=timestamp with time zone`)
	want := Types{"k": arrow.BinaryTypes.String, "a,b": &arrow.Decimal128Type{Precision: 9, Scale: 2},
		"c=d": arrow.PrimitiveTypes.Float64, `\`: &arrow.Decimal128Type{Precision: 18, Scale: 3},
		"t": &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for name, typ := range want {
		if got[name] == nil || !arrow.TypeEqual(got[name], typ) {
			t.Errorf("%s: %v, want %v", name, got[name], typ)
		}
	}
	for s, want := range map[string]string{
		"": "want column=type", "k": "want column=type", "=text": "want column=type", "k=text,": "want column=type",
		"k=": `a type "": want one of text, tinyint`, "k=number": "want one of text, tinyint", "k=text,k=date": "twice",
		`k\x=text`: "a backslash stands before", "k=decimal(39,2)": "up to 38", "k=decimal(4,5)": "up to 38",
		"k=decimal(4": "up to 38", "k=decimal()": "up to 38", "k=text(3)": "want one of text",
	} {
		if _, err := ParseTypes(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
	for _, name := range TypeNames() {
		typ, err := parseType(name)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseType(sqlName(typ)); err != nil || !arrow.TypeEqual(back, typ) {
			t.Errorf("%s comes back as %v, %v", name, back, err)
		}
		if err := (TextOptions{Types: Types{"k": typ}}).check(); err != nil {
			t.Error(err)
		}
	}
}

// Each type reads what it holds, and nothing else.
func TestGivenTypes(t *testing.T) {
	for typ, c := range map[string]struct{ good, bad string }{
		"text":          {`x=x 007=007`, ``},
		"tinyint":       {`127=127 -128=-128 007=7 +5=5 -0=0`, `128 -129 1.0 x 1e1 --1`},
		"smallint":      {`32767=32767`, `32768`},
		"integer":       {`-2147483648=-2147483648`, `2147483648 9223372036854775808`},
		"bigint":        {`9223372036854775807=9223372036854775807`, `9223372036854775808`},
		"utinyint":      {`255=255 +1=1`, `256 -1`},
		"usmallint":     {`65535=65535`, `65536`},
		"uinteger":      {`4294967295=4294967295`, `4294967296`},
		"ubigint":       {`18446744073709551615=18446744073709551615`, `18446744073709551616 -1`},
		"real":          {`1.5=1.5 0.1=0.1 1e3=1000 nan=NaN`, `1e39 x`},
		"double":        {`1.5=1.5 7=7 -1e300=-1e+300 inf=+Inf`, `1e309 1,5`},
		"boolean":       {`true=true F=false 1=true 0=false`, `2 yes`},
		"decimal(5,2)":  {`1=1 -1.5=-1.5 +999.99=999.99 0.100=0.1 .5=0.5 007=7 0=0 1.=1`, `1000 0.001 . 1e1 1.2.3 -`},
		"decimal(38,0)": {`99999999999999999999999999999999999999=99999999999999999999999999999999999999`, `999999999999999999999999999999999999999`},
		"uuid":          {`00000000-0000-0000-0000-0000000000ff=00000000-0000-0000-0000-0000000000ff`, `X6ba7b810-9dad-11d1-80b4-00c04fd430c8Y 00000000-0000-0000-0000-0000000000fg`},
		"blob":          {`ab=YWI= a\x00\xfF=YQD/`, `\x0 \y00 \ ä \xg0`},
		"date":          {`2024-02-29=2024-02-29`, `2023-02-29 2024-2-3`},
		"time":          {`01:02:03.5=01:02:03.500000`, `24:00:01 24:00:00.000001 25:00:00 01:02 01:02:03.1234567`},
		"timestamp":     {`2024-02-29=2024-02-29T00:00:00 2024-02-29T01:02:03.000001=2024-02-29T01:02:03.000001`, `2024-02-29T01:02:03.0000001 2024-02-29T01:02:03Z x`},
		"timestamp_s":   {`2024-02-29T01:02:03=2024-02-29T01:02:03`, `2024-02-29T01:02:03.5`},
		"timestamp_ns":  {`2024-02-29T01:02:03.000000001=2024-02-29T01:02:03.000000001`, `9999-01-01 1600-01-01T00:00:00`},
		"timestamptz":   {`2024-02-29T01:02:03+01=2024-02-29T00:02:03Z 2024-02-29T01:02:03-0130=2024-02-29T02:32:03Z 2024-02-29T01:02:03.5Z=2024-02-29T01:02:03.5Z 2024-02-29T01:02:03=2024-02-29T01:02:03Z`, `2024-02-29T01:02:03+25:00 x`},
	} {
		of, err := parseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		for pair := range strings.FieldsSeq(c.good) {
			text, want, _ := strings.Cut(pair, "=")
			a, err := oneValue(text, of)
			if err != nil {
				t.Errorf("%s of %q: %v", typ, text, err)
			} else if got := a.ValueStr(0); got != want {
				t.Errorf("%s of %q is %s, want %s", typ, text, got, want)
			}
		}
		for text := range strings.FieldsSeq(c.bad) {
			if a, err := oneValue(text, of); err == nil {
				t.Errorf("%s of %q is %s, want an error", typ, text, a.ValueStr(0))
			}
		}
	}
}

// Text is read as its options say, in every text format, and from folders' names.
func TestTextOptions(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "b.csv", "k,n,v\n007,1,x\n08,2,y\n")
	put(t, "p.csv", "k,w\n7,a\n007,b\n08,c\n")
	put(t, "p.jsonl", `{"k":"007","w":1}`+"\n\n"+`{"w":2,"k":8}`+"\n"+`{"k":null}`+"\n")
	put(t, "semi.csv", "k;w\n7;'a;b'\nNA;\"c\n8;'it''s\nhere'\n")
	put(t, "quoted.csv", "k\n1\n\"NA\"\n")
	put(t, "plain.tsv", "k\tw\n7\t\"a\n\"8\tb\n")
	put(t, "d/k=07/a.csv", "w\n1\n")
	put(t, "d/k=8/a.csv", "w\n2\n")
	put(t, "u.csv", "k,w\n00000000-0000-0000-0000-000000000001,a\nABCDEF00-0000-0000-0000-000000000002,b\n,c\n")
	write(t, "u.parquet", reader(t, []column{{"k", extensions.NewUUIDType(), []any{
		"00000000-0000-0000-0000-000000000001", "abcdef00-0000-0000-0000-000000000002"}}}))
	write(t, "i.parquet", reader(t, []column{{"k", arrow.PrimitiveTypes.Int32, []any{7, 8}}}))
	put(t, "text.csv", "k\n007\n8\nx\n")
	types := func(s string) TextOptions {
		types, err := ParseTypes(s)
		if err != nil {
			t.Fatal(err)
		}
		return TextOptions{Types: types}
	}
	for _, c := range []struct {
		build, probe string
		text         TextOptions
		want         string
	}{
		{"b.csv", "p.csv", types("k=text"), "k,w,n,v\n007,b,1,x\n08,c,2,y\n"},
		{"b.csv", "p.csv", types("k=smallint,n=decimal(3,1)"), "k,w,n,v\n7,a,1.0,x\n7,b,1.0,x\n8,c,2.0,y\n"},
		{"b.csv", "p.jsonl", types("k=bigint,w=text"), "k,w,n,v\n7,1,1,x\n8,2,2,y\n"},
		{"i.parquet", "d", types("k=bigint"), "w,k\n1,7\n2,8\n"},
		{"i.parquet", "semi.csv", TextOptions{Delimiter: ';', Quote: '\'', Nulls: []string{"x", "NA"},
			Types: types("k=double").Types}, "k,w\n7.0,a;b\n8.0,\"it's\nhere\"\n"},
		{"i.parquet", "plain.tsv", TextOptions{NoQuotes: true, Nulls: []string{`"8`}}, "k,w\n7,\"\"\"a\"\n"},
		{"u.parquet", "u.csv", types("k=uuid"),
			"k,w\n00000000-0000-0000-0000-000000000001,a\nabcdef00-0000-0000-0000-000000000002,b\n"},
	} {
		o := Options{On: []Pair{{"k", "k"}}, Text: c.text}
		if err := runs(c.build, c.probe, "out.csv", tuned{Options: o}); err != nil {
			t.Errorf("%s and %s: %v", c.build, c.probe, err)
			continue
		}
		if got, _ := os.ReadFile("out.csv"); string(got) != c.want {
			t.Errorf("%s and %s: %q, want %q", c.build, c.probe, got, c.want)
		}
		os.Remove("out.csv")
	}
	for _, c := range []struct {
		build, probe string
		text         TextOptions
		want         string
		usage        bool
	}{
		{"b.csv", "p.csv", types("x=text"), `a type for column "x", which no input has; their columns: k, n, v; k, w`, true},
		{"i.parquet", "p.csv", types("k=text"), "an integer and text: cast one of them", false},
		{"i.parquet", "quoted.csv", TextOptions{Nulls: []string{"NA"}, Types: types("k=bigint").Types},
			`quoted.csv: line 3, column "k": "NA" is no bigint`, false},
		{"i.parquet", "i.parquet", types("k=text"), `a type for column "k", which has one in its file, int32`, true},
		{"i.parquet", "p.jsonl", TextOptions{Delimiter: ';'}, "a delimiter, and no input is CSV", true},
		{"i.parquet", "p.jsonl", TextOptions{Nulls: []string{"x"}}, "and no input is CSV or TSV", true},
		{"b.csv", "p.csv", TextOptions{Delimiter: '"'}, "want two characters", true},
		{"b.csv", "p.csv", TextOptions{Quote: '\t'}, "want two characters", true},
		{"b.csv", "p.csv", TextOptions{Quote: '\n'}, "that ends no line", true},
		{"b.csv", "p.csv", TextOptions{Types: Types{"k": arrow.Null}}, "want one of the types of ParseTypes", true},
		{"i.parquet", "text.csv", types("k=integer"), `text.csv: line 4, column "k": "x" is no integer`, false},
		{"i.parquet", "p.jsonl", types("k=integer,w=date"), `p.jsonl: line 1, column "w": "1" is no date`, false},
		{"i.parquet", "d", types("k=date"), `d/k=07/a.csv: the folder k=07: "07" is no date`, false},
		// What makes keys fit is told.
		{"i.parquet", "text.csv", TextOptions{}, "with the types k=integer (--types) they fit; line 2", false},
		{"b.csv", "i.parquet", TextOptions{}, "with the types k=integer (--types) they fit", false},
		{"b.csv", "p.csv", TextOptions{Types: types("k=text").Types, Nulls: []string{"08"}}, "", false},
		{"u.parquet", "u.csv", TextOptions{}, "with the types k=uuid (--types) they fit", false},
	} {
		err := runs(c.build, c.probe, "out.csv", tuned{Options: Options{On: []Pair{{"k", "k"}}, Text: c.text}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			errors.As(err, new(*OptionError)) != c.usage || err != nil && errors.As(err, new(*InputError)) == c.usage {
			t.Errorf("%s and %s: %v, want %q", c.build, c.probe, err, c.want)
		}
	}
}

// What the error about keys that do not fit advises makes them fit.
func TestAdviceAboutTypesHelps(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "int.csv", "k\n7\n")
	put(t, "text.csv", "k\n007\n7\n")
	put(t, "date.csv", "k\n2024-01-01\n")
	put(t, "bool.jsonl", `{"k":true}`+"\n")
	put(t, "in/k=7/a.csv", "w\n1\n")
	write(t, "int.parquet", reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{7}}}))
	write(t, "text.parquet", reader(t, []column{{"k", arrow.BinaryTypes.String, []any{"7"}}}))
	names := []string{"int.csv", "text.csv", "date.csv", "bool.jsonl", "in", "int.parquet", "text.parquet"}
	advised := 0
	for _, build := range names {
		for _, probe := range names {
			o := Options{Build: build, Probe: probe, Count: true, On: []Pair{{"k", "k"}}}
			_, err := runWith(context.Background(), nil, tuned{o, tuning{makers: fakeMakers}})
			if err == nil {
				continue
			}
			_, types, told := strings.Cut(err.Error(), "with the types ")
			if !told {
				if slices.Contains([]string{build, probe}, "int.parquet") {
					continue
				}
				t.Errorf("%s and %s: %v", build, probe, err)
				continue
			}
			types, _, _ = strings.Cut(types, " ")
			if o.Text.Types, err = ParseTypes(types); err != nil {
				t.Fatal(err)
			}
			if _, err := runWith(context.Background(), nil, tuned{o, tuning{makers: fakeMakers}}); err != nil {
				t.Errorf("%s and %s with %s: %v", build, probe, types, err)
			}
			advised++
		}
	}
	if advised < 10 {
		t.Error(fmt.Sprint(advised, " pairs had advice"))
	}
}
