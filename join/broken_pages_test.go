package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// TestBrokenPages damages the first page of each column of a Parquet file, and reads it in all ways. Every error is one of
// the input, and names the file.
func TestBrokenPages(t *testing.T) {
	dir := t.TempDir()
	sound, in := filepath.Join(dir, "sound.parquet"), filepath.Join(dir, "in.parquet")
	n, s, l := []any{}, []any{}, []any{}
	for i := range 200 {
		n, s, l = append(n, int64(i%50)), append(s, fmt.Sprintf("text %d", i%20)), append(l, fmt.Sprintf(`["a","b%d"]`, i%20))
	}
	columns := []column{{"n", arrow.PrimitiveTypes.Int64, n}, {"s", arrow.BinaryTypes.String, s},
		{"l", arrow.ListOf(arrow.BinaryTypes.String), l}}
	tried, refused := 0, 0
	for _, v := range []parquet.DataPageVersion{parquet.DataPageV1, parquet.DataPageV2} {
		for _, coded := range []bool{false, true} {
			writeBy(t, sound, columns, parquet.WithDataPageVersion(v), parquet.WithMaxRowGroupLength(100),
				parquet.WithDictionaryDefault(coded))
			b, err := os.ReadFile(sound)
			if err != nil {
				t.Fatal(err)
			}
			all, reads := damages(t, b), ways(in, dir)
			for _, what := range slices.Sorted(maps.Keys(all)) {
				os.WriteFile(in, all[what], 0o666)
				for _, way := range slices.Sorted(maps.Keys(reads)) {
					if tried++; !testenv.Long() && tried%29 != 0 { // one of 29, by turns of the ways
						continue
					}
					err := reads[way]()
					if err == nil {
						continue
					}
					refused++
					if errors.As(err, new(*crash.Error)) || !errors.As(err, new(*InputError)) || !strings.Contains(err.Error(), in+":") {
						t.Errorf("v%d, dictionary %t, %s, %s: %T %[5]v, want an error of the input that names it", v+1, coded, what, way, err)
					}
				}
			}
		}
	}
	if refused < tried/90 {
		t.Errorf("%d of %d refused", refused, tried)
	}
}

// damages returns copies of a Parquet file, each with a damaged page.
func damages(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := map[string][]byte{}
	for g := range r.NumRowGroups() {
		for c := range r.MetaData().Schema.NumColumns() {
			chunk, err := r.MetaData().RowGroup(g).ColumnChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			for name, at := range map[string]int64{"data": chunk.DataPageOffset(), "dictionary": chunk.DictionaryPageOffset()} {
				if at == 0 {
					continue
				}
				damage := func(what string, at int64, to ...byte) {
					d := bytes.Clone(b)
					copy(d[at:], to)
					out[fmt.Sprintf("group %d column %d %s page: %s", g, c, name, what)] = d
				}
				for kind := range byte(5) {
					damage(fmt.Sprintf("of kind %d", kind), at+1, 2*kind)
				}
				damage("without a head", at, 0, 0, 0)
				damage("with a head of ones", at, 0xff, 0xff, 0xff, 0xff)
				damage("of a negative size", at+3, 0xff, 0x01)
				damage("of a large size", at+3, 0xfe, 0x01)
				damage("with a wrong body", at+40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
			}
		}
	}
	return out
}

// ways returns functions that read a file: by columns, in batches, in parts, by keys of both kinds, and as one column.
func ways(in, dir string) map[string]func() error {
	out := map[string]func() error{}
	for _, key := range []string{"n", "s"} {
		for to, format := range map[string]Format{"out.parquet": Parquet, "out.csv": CSV, "count": ""} {
			for name, how := range map[string]tuning{"at once": {}, "in batches": {batch: 10, part: -1}, "in parts": {part: 500}} {
				o := tuned{Options{Build: in, Probe: in, On: []Pair{{key, key}}, Out: filepath.Join(dir, to), OutFormat: format,
					Count: to == "count"}, how}
				if how.batch > 0 {
					o.Memory = 1
				}
				if o.makers = fakeMakers; o.Count {
					o.Out = ""
				}
				out[fmt.Sprintf("%s by %s to %s", name, key, to)] = func() error {
					_, err := runWith(context.Background(), nil, o)
					return err
				}
			}
		}
	}
	for _, column := range []string{"n", "s"} {
		out["distinct "+column] = func() error {
			_, err := Distinct(context.Background(), nil, ColumnOptions{Inputs: []string{in}, Column: column})
			return err
		}
		out["top "+column] = func() error {
			_, err := Top(context.Background(), TopOptions{ColumnOptions: ColumnOptions{Inputs: []string{in}, Column: column}, N: 3})
			return err
		}
	}
	return out
}
