package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// throughPipe joins what a pipe has, and gives the output, which is in dir.
func throughPipe(t *testing.T, dir string, b []byte, o Options) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Write(b)
		w.Close()
	}()
	o.Probe, o.Out = fmt.Sprintf("/dev/fd/%d", r.Fd()), dir+"/out."+string(o.OutFormat)
	os.Remove(o.Out)
	_, err = runWith(context.Background(), nil, tuned{o, tuning{makers: fakeMakers}})
	r.Close() // what nobody reads
	<-done
	out, _ := os.ReadFile(o.Out)
	return string(out), err
}

// arrowStreamOf is a file's rows as an Arrow stream.
func arrowStreamOf(t *testing.T, path string) []byte {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(r.Schema()))
	for r.Next() {
		if err := w.Write(r.RecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Broken Arrow streams are errors that say so, as broken files are, or joins of what they say.
func TestBrokenStreams(t *testing.T) {
	dir := t.TempDir()
	build := put(t, dir+"/b.csv", "k,v\n1,a\n2,b\n")
	if err := os.WriteFile(dir+"/sound.arrow", soundFile(t, ".arrow"), 0o666); err != nil {
		t.Fatal(err)
	}
	b := arrowStreamOf(t, dir+"/sound.arrow")
	o := Options{Build: build, On: []Pair{{"k", "k"}}, How: Left, OutFormat: Arrow}
	if _, err := throughPipe(t, dir, b, o); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(&checkedStream{from: bytes.NewReader(b)})
	if err != nil || !bytes.Equal(all, b) {
		t.Fatalf("%d bytes of %d, %v", len(all), len(b), err)
	}
	n, r, refused := 150, rand.New(rand.NewPCG(3, 9)), 0
	if testenv.Long() {
		n = 5000
	}
	for i := range n {
		flipped := bytes.Clone(b)
		for range 1 + r.IntN(3) {
			flipped[r.IntN(min(len(b), 4000))] ^= 1 << r.IntN(8)
		}
		if i%3 == 0 {
			flipped = b[:r.IntN(len(b))]
		}
		_, err := throughPipe(t, dir, flipped, o)
		if err != nil {
			refused++
		}
		if errors.As(err, new(*crash.Error)) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("%v", err)
		}
	}
	if refused < n/2 {
		t.Errorf("%d of %d refused", refused, n)
	}
	lie := bytes.Clone(b) // of more than there is
	for _, size := range []uint32{1 << 31, 1 << 27} {
		copy(lie[4:], []byte{byte(size), byte(size >> 8), byte(size >> 16), byte(size >> 24)})
		if _, err := throughPipe(t, dir, lie, o); !errors.As(err, new(*InputError)) {
			t.Error(err)
		}
	}
}

// A context ends a join that waits for a pipe, whatever it does with the rows.
func TestPipesEndWithTheContext(t *testing.T) {
	dir := t.TempDir()
	build := put(t, dir+"/b.csv", "k,v\n1,a\n2,b\n")
	for _, part := range []int64{-1, 1} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w.WriteString("k\n1\n2\n")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		o := Options{Build: build, Probe: fmt.Sprintf("/dev/fd/%d", r.Fd()), ProbeFormat: CSV, Out: dir + "/out.csv",
			On: []Pair{{"k", "k"}}}
		_, err = runWith(ctx, nil, tuned{o, tuning{makers: fakeMakers, part: part}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d: %v", part, err)
		}
		if _, err := os.Stat(o.Out); err == nil {
			t.Error("half an output is there")
		}
		cancel()
		w.Close()
		r.Close()
	}
}

// What comes through a pipe has the rows of the file: where types have to be known to its end, it goes to a file first.
func TestPipesAsFiles(t *testing.T) {
	dir := t.TempDir()
	csv := "k,d,w\n1,2024-01-01,1.5\n2,,x\n,2024-02-29,\n7,2024-03-01,3\n"
	probe := put(t, dir+"/p.csv", csv)
	put(t, dir+"/b.csv", "n,v\n1,a\n2,b\n7,c\n")
	put(t, dir+"/d.csv", "n,v\n2024-01-01,a\n2024-03-01,b\n")
	write(t, dir+"/t.parquet", reader(t, []column{{"n", arrow.FixedWidthTypes.Timestamp_us, []any{"2024-01-01T00:00:00Z"}}}))
	write(t, dir+"/f.parquet", reader(t, []column{{"n", arrow.PrimitiveTypes.Float64, []any{1, 2.5}}}))
	write(t, dir+"/u.parquet", reader(t, []column{{"n", arrow.PrimitiveTypes.Uint64, []any{1, 2}}}))
	types, err := ParseTypes("k=bigint,d=date,w=text")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		build, key string
		o          Options
		live       bool
	}{
		{"b.csv", "k", Options{OutFormat: CSV}, true},
		{"b.csv", "k", Options{OutFormat: CSV, How: Full}, true},
		{"u.parquet", "k", Options{OutFormat: TSV, How: Anti}, true},
		{"d.csv", "d", Options{OutFormat: CSV, How: Left}, true},
		{"b.csv", "k", Options{OutFormat: JSONL}, false},
		{"b.csv", "k", Options{OutFormat: JSONL, Text: TextOptions{Types: types}}, true},
		{"b.csv", "k", Options{OutFormat: Parquet, Text: TextOptions{Types: Types{"d": types["d"]}}}, false},
		{"b.csv", "k", Options{OutFormat: JSONL, Select: []string{"v", "k"}}, true},
		{"b.csv", "k", Options{OutFormat: JSONL, Select: []string{"w"}}, false},
	} {
		o := c.o
		o.Build, o.On, o.ProbeFormat = dir+"/"+c.build, []Pair{{"n", c.key}}, CSV
		file := o
		file.Probe, file.Out = probe, dir+"/want."+string(o.OutFormat)
		if _, err := runWith(context.Background(), nil, tuned{file, tuning{makers: fakeMakers}}); err != nil {
			t.Fatal(err)
		}
		want, _ := os.ReadFile(file.Out)
		got, err := throughPipe(t, dir, []byte(csv), o)
		if err != nil || got != string(want) {
			t.Errorf("%+v: %q, %v, want %q", c, got, err, want)
		}
		t.Run("", func(t *testing.T) {
			t.Setenv("TMPDIR", dir+"/absent")
			_, err := throughPipe(t, dir, []byte(csv), o)
			if (err == nil) != c.live {
				t.Errorf("%+v without room for files: %v", c, err)
			}
		})
	}
	for build, want := range map[string]string{
		"t.parquet": `line 2, column "d": "2024-01-01" is no timestamptz, as the build side's keys are`,
		"f.parquet": `line 3, column "w": "x" is no double`,
	} {
		o := Options{Build: dir + "/" + build, On: []Pair{{"n", map[byte]string{'t': "d", 'f': "w"}[build[0]]}},
			ProbeFormat: CSV, OutFormat: CSV}
		if _, err := throughPipe(t, dir, []byte(csv), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSpoolThatCannotBeMade has no folder for temporary files: that is no error of the input.
func TestSpoolThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	_, path := numbers(t, 10)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir+"/none")
	_, err = throughPipe(t, dir, b, Options{Build: path, On: []Pair{{"k", "k"}}, OutFormat: CSV})
	if err == nil || !strings.Contains(err.Error(), "TMPDIR") || errors.As(err, new(*InputError)) {
		t.Errorf("%T %[1]v, want an error of the temporary file", err)
	}
}
