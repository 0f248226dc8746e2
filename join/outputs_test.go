package join

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/testenv"
)

func numbers(t testing.TB, n int) (r *Reader, path string) {
	t.Helper()
	values := make([]any, n)
	for i := range values {
		values[i] = i
	}
	path = filepath.Join(t.TempDir(), "n.parquet")
	write(t, path, reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, values}}, 7, 90))
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, path
}

func copyTo(t testing.TB, r *Reader, w *Writer) {
	t.Helper()
	for r.Next() {
		if err := w.Write(r.RecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A folder's files have so many rows each, and come in order.
func TestFolders(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     WriteOptions
		files int
		first string
	}{
		{"out", WriteOptions{RowsPerFile: 30}, 4, "part-00000.parquet"},
		{"out", WriteOptions{RowsPerFile: 100}, 1, "part-00000.parquet"},
		{"out/", WriteOptions{}, 1, "part-00000.parquet"},
		{"out", WriteOptions{RowsPerFile: 1, Format: CSV}, 100, "part-00000.csv"},
		{"out", WriteOptions{RowsPerFile: 64, Format: JSONL, Compression: "zstd"}, 2, "part-00000.jsonl.zst"},
		{"out.csv.gz/", WriteOptions{RowsPerFile: 50, Format: TSV, Compression: "gzip"}, 2, "part-00000.tsv.gz"},
		{"out", WriteOptions{RowsPerFile: 40, Format: Arrow, Compression: "lz4"}, 3, "part-00000.arrow"},
	} {
		for _, there := range []bool{false, true} {
			r, from := numbers(t, 100)
			dir := t.TempDir()
			path := filepath.Join(dir, strings.TrimSuffix(c.name, "/"))
			if there {
				os.Mkdir(path, 0o755)
			}
			w, err := CreateAs(dir+"/"+c.name, r.Schema(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			copyTo(t, r, w)
			names, _ := filepath.Glob(path + "/*")
			if len(names) != c.files || filepath.Base(names[0]) != c.first {
				t.Errorf("%+v: %s", c, names)
			}
			if got, want := allRows(t, "", path), allRows(t, "", from); got != want {
				t.Errorf("%+v: %s", c, got)
			}
			left, _ := filepath.Glob(dir + "/.*")
			more, _ := filepath.Glob(path + "/.*")
			if len(left)+len(more) > 0 {
				t.Errorf("left are %s %s", left, more)
			}
		}
	}
	r, _ := numbers(t, 10)
	dir := t.TempDir()
	put(t, dir+"/full/x", "")
	put(t, dir+"/file", "")
	for name, want := range map[string]string{"/full": "the folder is not empty", "/file": "not a folder",
		"/no/where": "no such file"} {
		if _, err := CreateAs(dir+name, r.Schema(), WriteOptions{RowsPerFile: 5}); err == nil ||
			!strings.Contains(err.Error(), dir+name+": "+want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	w, err := CreateAs(dir+"/gone", r.Schema(), WriteOptions{RowsPerFile: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.Next()
	if err := w.Write(r.RecordBatch()); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

// What is no file is written as it is.
func TestDevices(t *testing.T) {
	r, _ := numbers(t, 1000)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := testenv.Mkfifo(fifo, 0o666); err != nil {
		t.Skip(err)
	}
	read := make(chan string)
	go func() {
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
		}
		b, _ := io.ReadAll(f)
		read <- string(b)
	}()
	w, err := CreateAs(fifo, r.Schema(), WriteOptions{Format: CSV})
	if err != nil {
		t.Fatal(err)
	}
	copyTo(t, r, w)
	if got := <-read; !strings.HasPrefix(got, "k\n0\n1\n") || !strings.HasSuffix(got, "\n999\n") {
		t.Errorf("%.100q", got)
	}
	for _, f := range []Format{"", CSV, Parquet, Arrow, JSONL} {
		r, path := numbers(t, 1000)
		w, err := CreateAs(nowhere, r.Schema(), WriteOptions{Format: f})
		if err != nil {
			t.Fatal(err)
		}
		copyTo(t, r, w)
		s, err := runWith(context.Background(), nil, tuned{Options{Build: path, Probe: path, Out: nowhere,
			On: []Pair{{"k", "k"}}, OutFormat: f}, tuning{makers: fakeMakers}})
		if err != nil || s.OutRows != 1000 {
			t.Errorf("%+v %v", s, err)
		}
	}
	if s, err := os.Stat(nowhere); err != nil || s.Mode().IsRegular() {
		t.Errorf("%v %v", s, err)
	}
}

func TestCompressionOfFormats(t *testing.T) {
	r, from := numbers(t, 5000)
	dir, want := t.TempDir(), allRows(t, "", from)
	for _, f := range Formats() {
		sizes := map[string]int64{}
		for _, c := range append(compressionsOf(Format(f)), "") {
			r, _ = numbers(t, 5000)
			path := fmt.Sprintf("%s/%s.%s", dir, c, f)
			w, err := CreateAs(path, r.Schema(), WriteOptions{Compression: c})
			if err != nil {
				t.Fatal(err)
			}
			copyTo(t, r, w)
			if got := allRows(t, "", path); got != want {
				t.Errorf("%s as %s: %.200s", c, f, got)
			}
			s, _ := os.Stat(path)
			sizes[c] = s.Size()
		}
		for c, n := range sizes {
			if c != "none" && c != "" && n >= sizes["none"] {
				t.Errorf("%s with %s takes %d bytes, without %d", f, c, n, sizes["none"])
			}
		}
	}
	for _, c := range []struct {
		path, want string
		o          WriteOptions
	}{
		{"x.csv", "csv compressed with lz4: want one of none, gzip, zstd", WriteOptions{Compression: "lz4"}},
		{"x.parquet", "parquet compressed with best: want one of snappy, zstd", WriteOptions{Compression: "best"}},
		{"x.arrow", "arrow compressed with snappy: want one of none, zstd, lz4", WriteOptions{Compression: "snappy"}},
		{"x", "no known file format", WriteOptions{}},
		{"-", "5 rows a file", WriteOptions{RowsPerFile: 5}},
		{"x", "-1 rows a file", WriteOptions{RowsPerFile: -1, Format: CSV}},
	} {
		if _, err := CreateAs(c.path, r.Schema(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// A name says it too.
	r, _ = numbers(t, 100)
	w, err := Create(dir+"/n.csv.gz", r.Schema())
	if err != nil {
		t.Fatal(err)
	}
	copyTo(t, r, w)
	if b, _ := os.ReadFile(dir + "/n.csv.gz"); !strings.HasPrefix(string(b), "\x1f\x8b") {
		t.Errorf("%.20q", b)
	}
}

// Ordinary numbers are written as people do, and all come back.
func TestNumbersAsText(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0", 1.5: "1.5", -1.25: "-1.25", 3: "3.0", 1234567.5: "1234567.5",
		0.1: "0.1", 99999999.99: "99999999.99",
		-0.01: "-0.01", 1e15: "1e+15", 1e-7: "1e-07", 0.00012: "0.00012", 1.0 / 3: "0.3333333333333333",
		123456789012.345: "123456789012.345", 1.15: "1.15"} {
		got := string(appendFloat(nil, v, 64))
		if back, ok := parseFloat([]byte(got)); got != want || !ok || back != v {
			t.Errorf("%v is written %s, want %s, and read as %v", v, got, want, back)
		}
	}
	for _, c := range []struct {
		v      int64
		places int
		want   string
	}{{0, 0, "0"}, {-1, 0, "-1"}, {5, 2, "0.05"}, {-12345, 2, "-123.45"}, {-1 << 63, 3, "-9223372036854775.808"}, {100, 2, "1.00"}} {
		if got := string(appendCents(nil, c.v, c.places)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A long text before many short ones says nothing of how much memory these take.
func TestLongTextFirst(t *testing.T) {
	texts := make([]any, 200_000)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	long := make([]byte, 3<<20)
	for i, rng := 0, rand.New(rand.NewPCG(1, 2)); i < len(long); i++ {
		long[i] = '!' + byte(rng.IntN(90)) // which does not pack well
	}
	texts[0] = string(long)
	r := reader(t, []column{{"s", arrow.BinaryTypes.String, texts}}, 3, len(texts))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	write(t, filepath.Join(t.TempDir(), "long.parquet"), r)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 512 {
		t.Errorf("writing %d MiB of text took %d MiB", len(long)>>20, took)
	}
}

// What a Write has said, such as that the disk is full, the later calls say, too, and Close leaves nothing behind.
func TestErrorsStay(t *testing.T) {
	for _, o := range []WriteOptions{{Format: CSV, RowsPerFile: 1}, {Format: Arrow, RowsPerFile: 90}, {Format: Parquet}} {
		r, _ := numbers(t, 100)
		dir := t.TempDir()
		w, err := CreateAs(filepath.Join(dir, "out"), r.Schema(), o)
		if err != nil {
			t.Fatal(err)
		}
		under := w.out
		if w.folder != nil {
			under = w.folder.w.out
		}
		under.File.Close()
		var first error
		for r.Next() && first == nil {
			first = w.Write(r.RecordBatch())
		}
		last := w.Close()
		if first == nil {
			first = last
		}
		if first == nil || !strings.Contains(first.Error(), "already closed") || last == nil || last.Error() != first.Error() {
			t.Errorf("%+v: Write: %v; Close: %v", o, first, last)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%+v: %v is left", o, left)
		}
	}
}
