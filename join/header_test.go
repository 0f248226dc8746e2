package join

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoHeader reads text whose first line is a row.
func TestNoHeader(t *testing.T) {
	dir := t.TempDir()
	const rows, want = "chr1,100,a\nchr1,150,b\nchr2,5,\n", `1 utf8, 2 int64, 3 utf8, | "chr1" 100 "a" | "chr1" 150 "b" | "chr2" 5 null`
	no := TextOptions{NoHeader: true}
	for name, text := range map[string]string{"a.csv": rows, "b.csv": "\ufeff" + rows, "c.csv.gz": gzipped(rows), "d.csv.zst": zstded(rows),
		"e.tsv": strings.ReplaceAll(rows, ",", "\t"), "f.csv": strings.TrimSuffix(rows, "\n"), "g.csv": strings.ReplaceAll(rows, "\n", "\r\n"),
		"h.csv": `"chr1",100,a` + rows[len("chr1,100,a"):]} {
		r, err := openAs(put(t, filepath.Join(dir, name), text), "", no)
		if err != nil {
			t.Fatal(err)
		}
		if got := rowsText(t, r); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		r.Close()
	}
	for text, want := range map[string]string{"": "the file is empty", "1,2\n3\n": "line 2: 1 fields", "\xff\n": "UTF-8"} {
		r, err := openAs(put(t, filepath.Join(dir, "x.csv"), text), "", no)
		if err == nil {
			for r.Next() {
			}
			err = r.Err()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	// Joins, with all columns as they are, and by types; the probe side also through a pipe.
	in, second := filepath.Join(dir, "a.csv"), put(t, filepath.Join(dir, "second.csv"), "chr2,x\nchr1,y\n")
	o := Options{Build: second, On: []Pair{{"1", "1"}}, Text: no, Out: filepath.Join(dir, "out.csv"), Device: "cpu"}
	joined := "1,2,3,2_build\nchr1,100,a,y\nchr1,150,b,y\nchr2,5,,x\n"
	for _, to := range []string{"out.csv", "out.parquet"} {
		o.Probe, o.Out = in, filepath.Join(dir, to)
		if _, err := runWith(context.Background(), nil, tuned{o, tuning{makers: fakeMakers}}); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "out.csv")); string(b) != joined {
		t.Errorf("%s, want %s", b, joined)
	}
	if got, want := allRows(t, "", o.Out), `1 utf8, 2 int64, 3 utf8, 2_build utf8, | "chr1" 100 "a" "y" | "chr1" 150 "b" "y" | "chr2" 5 null "x"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.OutFormat, o.ProbeFormat = CSV, CSV
	got, err := throughPipe(t, dir, []byte(rows), o)
	if err != nil || got != joined {
		t.Errorf("through a pipe: %s %v", got, err)
	}
	// In a file without text it means nothing.
	if _, err := Distinct(context.Background(), nil, ColumnOptions{Inputs: []string{filepath.Join(dir, "out.parquet")}, Column: "1", Text: no}); err == nil ||
		!strings.Contains(err.Error(), "no input is CSV or TSV") {
		t.Errorf("of Parquet: %v", err)
	}
}

// TestNumbersInHeaders warns of headers that look like rows, and of no others.
func TestNumbersInHeaders(t *testing.T) {
	dir := t.TempDir()
	for header, warns := range map[string]bool{"chr1,100,200": true, "1": true, "-1.5,x": true, "x,1e3": true, "a,b": false, "a1,2b": false,
		"2024-01-01,x": false, "true,x": false, ",": false} {
		in := put(t, filepath.Join(dir, "in.csv"), header+"\n"+header+"\n")
		var got []string
		o := TextOptions{Warn: func(text string) { got = append(got, text) }}
		for _, o.NoHeader = range []bool{true, false} {
			if len(got) > 0 {
				t.Errorf("%s without a header: %s", header, got)
			}
			r, err := openAs(in, "", o)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
		if len(got) > 0 != warns || warns && (len(got) != 1 || !strings.HasPrefix(got[0], in+": ") || !strings.Contains(got[0], "--no-header")) {
			t.Errorf("%s: %q", header, got)
		}
	}
}
