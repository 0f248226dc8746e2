package join

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A key column that is a folder's name, of another type than the other side's, is an error that says which name made it
// so.
func TestFolderAsKeyOfAnotherType(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "d/k=1/a.csv", "v\n7\n")
	put(t, "d/k=abc/a.csv", "v\n8\n")
	put(t, "e/k=2020-01-01/a.csv", "k,v\nx,7\n")
	put(t, "n.csv", "k,w\n1,2\n")
	if err := os.MkdirAll("f/k=abc", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "f/k=abc/a.parquet", reader(t, []column{{"v", arrow.PrimitiveTypes.Int64, []any{1}}}))
	write(t, "n.parquet", reader(t, []column{{"k", arrow.PrimitiveTypes.Int64, []any{1}}}))
	for _, c := range []struct{ build, probe, want string }{
		{"d", "n.csv", `the name of a folder made it so, with "k=abc", in d/k=abc/a.csv`},
		{"n.csv", "d/*/*.csv", `the name of a folder made it so, with "k=abc", in d/k=abc/a.csv`},
		{"e", "n.csv", `the name of a folder made it so, with "k=2020-01-01", in e/k=2020-01-01/a.csv`},
		{"f", "n.csv", `the name of a folder made it so, with "k=abc", in f/k=abc/a.parquet`},
		{"n.parquet", "f", `the name of a folder made it so, with "k=abc", in f/k=abc/a.parquet`},
		{"n.parquet", "d", `the name of a folder made it so, with "k=abc", in d/k=abc/a.csv`},
	} {
		err := runs(c.build, c.probe, "out.csv", tuned{Options: Options{On: []Pair{{"k", "k"}}}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, new(*InputError)) {
			t.Errorf("%s and %s: %v, want %q", c.build, c.probe, err, c.want)
		}
	}
	if err := runs("d", "d", "out.csv", tuned{Options: Options{On: []Pair{{"k", "v"}}}}); err == nil ||
		!strings.Contains(err.Error(), "with the types v=text (--types) they fit") {
		t.Error(err)
	}
	if err := runs("n.parquet", "f", "out.csv", tuned{Options: Options{On: []Pair{{"k", "k"}}}}); err == nil ||
		!strings.Contains(err.Error(), "cast one of them") {
		t.Error(err)
	}
	if _, err := os.Stat("out.csv"); err == nil {
		t.Error("there is an output")
	}
}

// Decimals that Parquet does not have are errors, where they lie within other types too, and nothing is left. The other
// formats have them.
func TestDecimalsThatParquetLacks(t *testing.T) {
	dir := t.TempDir()
	wide := &arrow.Decimal128Type{Precision: 5, Scale: -2}
	for i, c := range []struct {
		typ  arrow.DataType
		fine bool
	}{
		{wide, false}, {&arrow.Decimal256Type{Precision: 50, Scale: -1}, false}, {&arrow.Decimal128Type{Precision: 3, Scale: 5}, false}, {&arrow.Decimal128Type{}, false}, {arrow.ListOf(wide), false},
		{arrow.StructOf(arrow.Field{Name: "x", Type: wide, Nullable: true}), false}, {arrow.MapOf(arrow.BinaryTypes.String, wide), false},
		{&arrow.Decimal128Type{Precision: 5, Scale: 5}, true}, {&arrow.Decimal256Type{Precision: 50}, true},
	} {
		r := reader(t, []column{{"id", arrow.PrimitiveTypes.Int64, []any{1, 2}}})
		schema := arrow.NewSchema(append(r.Schema().Fields(), arrow.Field{Name: "price", Type: c.typ, Nullable: true}),
			nil)
		for _, name := range []string{"o.parquet", "o/", "o.arrow", "o.csv", "o.jsonl"} {
			w, err := Create(dir+"/"+fmt.Sprint(i)+name, schema)
			switch parquet := name == "o.parquet" || name == "o/"; {
			case err == nil && (c.fine || !parquet):
				w.Abort()
			case !parquet || c.fine:
				t.Errorf("%s to %s: %v", c.typ, name, err)
			case err == nil:
				w.Abort()
				t.Errorf("%s to %s is no error", c.typ, name)
			case !strings.Contains(err.Error(), `column "price"`) ||
				!strings.Contains(err.Error(), "cast it to one of these first") || !strings.Contains(err.Error(),
				"an .arrow file holds every type") || strings.Contains(err.Error(), ".tmp"):
				t.Errorf("%s to %s: %v", c.typ, name, err)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A panic in pieces that are looked through side by side goes on to the caller, from wherever it comes.
func TestPiecesHandTheirPanicOn(t *testing.T) {
	for _, n := range []int{1, pieceRows, 5 * pieceRows} {
		var p any
		func() {
			defer func() { p = recover() }()
			inPieces(n, func(k, from, to int) {
				if to == n {
					panic("in a piece")
				}
			})
		}()
		if p == nil || crash.Of(p).Value != "in a piece" {
			t.Errorf("%d rows: %v", n, p)
		}
	}
}

// Wherever a join breaks off, be it in a goroutine of its own, it ends with an error that is a crash, and leaves
// nothing. Each run has the panic one place later, until there is none.
func TestPanicsAnywhere(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(t.TempDir())
	var text strings.Builder
	text.WriteString("id,v\n")
	for i := range 300 {
		fmt.Fprintf(&text, "%d,a%d\n", i*7, i)
	}
	put(t, "a.csv", text.String())
	for _, name := range []string{"a.parquet", "a.jsonl", "a.arrow"} {
		if err := runs("a.csv", "a.csv", name, tuned{Options: Options{How: Semi}}); err != nil {
			t.Fatal(err)
		}
	}
	before := everything(t)
	var calls, at atomic.Int64
	// the panic was in a goroutine for which nobody waits, or where a file's index is read, without which it goes on
	var alone atomic.Bool
	crash.Plant = func() {
		if calls.Add(1) == at.Load() {
			alone.Store(bytes.Contains(debug.Stack(), []byte("join.(*parquetFile).")))
			panic("made to order")
		}
	}
	crash.Handle(func(*crash.Error) { alone.Store(true) })
	defer crash.Handle(nil)
	defer func() { crash.Plant = nil }()
	for _, c := range []struct {
		in, out string
		o       tuned
	}{
		{"a.csv", "out.csv.gz", tuned{}},
		{"a.parquet", "out.parquet", tuned{Options: Options{How: Full}}},
		{"a.parquet", "out.parquet", tuned{Options: Options{How: Semi}}},
		{"a.jsonl", "out/", tuned{Options: Options{RowsPerFile: 100, OutFormat: Parquet}}},
		{"a.arrow", "out.arrow", tuned{Options{}, tuning{part: 1000}}},
	} {
		run := func(place int64) (err error) {
			calls.Store(0)
			at.Store(place)
			alone.Store(false)
			err = runs(c.in, c.in, c.out, c.o)
			os.RemoveAll(strings.TrimSuffix(c.out, "/"))
			if after := everything(t); after != before {
				t.Fatalf("%s to %s, panic %d: %v: there was\n%s, and is\n%s", c.in, c.out, place, err, before, after)
			}
			if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
				t.Fatalf("%s to %s, panic %d: left are %v", c.in, c.out, place, left)
			}
			return err
		}
		if err := run(0); err != nil {
			t.Fatal(c.in, c.out, err)
		}
		places := calls.Load()
		step, planted := max(1, places/8), 0
		if testenv.Long() {
			step = 1
		}
		for place := int64(1); place <= places; place += step {
			err := run(place)
			if calls.Load() < place || err == nil && alone.Load() { // how often there is one differs a little
				continue
			}
			planted++
			if err == nil || !errors.As(err, new(*crash.Error)) && !strings.Contains(err.Error(), broken) ||
				!strings.Contains(err.Error(), "made to order") {
				t.Errorf("%s to %s, panic %d of %d: %v", c.in, c.out, place, places, err)
			}
		}
		if planted < 5 {
			t.Errorf("%s to %s: %d panics of %d", c.in, c.out, planted, places)
		}
	}
}
