package join

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
)

// TestTextInSeveralForms reads files of one side that hold text in different types, as several tools write them into one
// folder: as rows, as keys and payload of joins, and in distinct and top. Binary values likewise.
func TestTextInSeveralForms(t *testing.T) {
	coded := func(t arrow.DataType) arrow.DataType {
		return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: t}
	}
	b := arrow.BinaryTypes
	for want, forms := range map[string][]arrow.DataType{
		"large_utf8":   {b.String, b.LargeString, coded(b.String), b.StringView},
		"large_binary": {b.LargeBinary, b.Binary, coded(b.Binary), b.BinaryView},
	} {
		for _, suffix := range []string{".arrow", ".parquet"} {
			t.Run(want+suffix, func(t *testing.T) {
				dir := t.TempDir()
				in := filepath.Join(dir, "in")
				os.Mkdir(in, 0o777)
				rows := ""
				for i, typ := range forms {
					if suffix == ".parquet" && i == 3 {
						continue // Parquet has no views
					}
					text := fmt.Sprintf("a%d", i)
					if want == "large_binary" {
						text = base64.StdEncoding.EncodeToString([]byte(text))
					}
					write(t, fmt.Sprintf("%s/%d%s", in, i, suffix), reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{2 * i, 2*i + 1}},
						{"v", typ, []any{text, nil}}}))
					rows += fmt.Sprintf(" | %d %q | %d null", 2*i, text, 2*i+1)
				}
				if got, want := allRows(t, "", in), "k int64, v "+want+","+rows; got != want {
					t.Errorf("%s, want %s", got, want)
				}
				n := int64(strings.Count(rows, "null"))
				for _, key := range []string{"k", "v"} {
					for _, ext := range []string{".parquet", ".arrow", ".csv"} {
						out := filepath.Join(dir, "out"+ext)
						s, err := runWith(context.Background(), nil, tuned{Options{Build: in, Probe: in, Out: out, On: []Pair{{key, key}}},
							tuning{makers: fakeMakers}})
						if of := map[string]int64{"k": 2 * n, "v": n}[key]; err != nil || s.OutRows != of {
							t.Errorf("by %s to %s: %d rows, %v, want %d", key, ext, s.OutRows, err, of)
						}
						if strings.Count(allRows(t, "", out), " | ")+1 < int(n) {
							t.Errorf("by %s to %s: %s", key, ext, allRows(t, "", out))
						}
					}
				}
				o := ColumnOptions{Inputs: []string{in}, Column: "v"}
				if s, err := Distinct(context.Background(), nil, o); err != nil || s.Distinct != n || s.Nulls != n {
					t.Errorf("distinct: %+v %v", s, err)
				}
				if s, err := Top(context.Background(), TopOptions{ColumnOptions: o, N: 9}); err != nil || int64(len(s.Values)) != n {
					t.Errorf("top: %+v %v", s, err)
				}
			})
		}
	}
}
