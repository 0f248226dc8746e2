package join

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Joins by parts give the rows of joins in memory, in their order: all kinds, from and to all formats, with parts that
// are split again, counts, limits and selections.
func TestParts(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	spills := t.TempDir()
	t.Setenv("TMPDIR", spills)
	seeds := 48
	if !testenv.Long() {
		seeds = 3 * len(hows)
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 33))
		dir := t.TempDir()
		keys := 1 + r.IntN(300)
		build, probe := side(t, r, "b", r.IntN(300), keys, r.IntN(5)), side(t, r, "p", r.IntN(900), keys, r.IntN(5))
		bf, pf := filepath.Join(dir, "b"+[]string{".parquet", ".arrow"}[r.IntN(2)]), filepath.Join(dir,
			"p"+[]string{".parquet", ".arrow"}[r.IntN(2)])
		for _, side := range []struct {
			path string
			rec  arrow.RecordBatch
		}{{bf, build}, {pf, probe}} {
			if strings.HasSuffix(side.path, ".parquet") {
				writeAnyhow(t, r, side.path, side.rec, int64(1+r.IntN(200)))
				continue
			}
			rr, err := array.NewRecordReader(side.rec.Schema(), []arrow.RecordBatch{side.rec})
			if err != nil {
				t.Fatal(err)
			}
			write(t, side.path, rr)
		}
		how := How(seed % len(hows))
		o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o"+[]string{".parquet", ".arrow"}[r.IntN(2)]),
			On: []Pair{{"bk", "pk"}}, How: how}, tuning{part: int64(2000 + r.IntN(20000)), batch: 1 + r.IntN(100)}}
		what := fmt.Sprintf("seed %d, %v of %s and %s, parts of %d", seed, how, build.Schema(), probe.Schema(), o.part)
		want := expected(t, build, probe, how)
		s, err := runWith(t.Context(), d, o)
		if err != nil {
			t.Fatal(what, err)
		}
		if s.OutRows != int64(len(want)) || s.ProbeRows != probe.NumRows() || s.BuildRows != build.NumRows() {
			t.Fatalf("%s: %+v, want %d rows", what, s, len(want))
		}
		_, got := read(t, o.Out)
		sameRows(t, what, got, want)
		count := o
		count.Count, count.Out = true, ""
		if s, err := runWith(t.Context(), d, count); err != nil || s.OutRows != int64(len(want)) {
			t.Fatalf("%s: a count of %d, %v; want %d", what, s.OutRows, err, len(want))
		}
		some := o
		some.Limit = int64(1 + r.IntN(1+len(want)))
		schema, err := OutputSchema(build.Schema(), probe.Schema(), o.Options)
		if err != nil {
			t.Fatal(err)
		}
		column := r.IntN(schema.NumFields())
		some.Select = []string{schema.Field(column).Name}
		want = want[:min(len(want), int(some.Limit))]
		for i, row := range want {
			want[i] = []string{row[column]}
		}
		if s, err := runWith(t.Context(), d, some); err != nil || s.OutRows != int64(len(want)) {
			t.Fatalf("%s: %d rows, %v; want %d", what, s.OutRows, err, len(want))
		}
		_, got = read(t, some.Out)
		sameRows(t, what+", some of it", got, want)
	}
	leftBehind(t, spills)
}

// A build side larger than the memory that is given is joined by parts, of which none is larger; wide keys, equal nulls
// and all.
func TestLittleMemory(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	lines := func(name string, n int) string {
		var b strings.Builder
		b.WriteString("k,n," + name + "\n")
		for i := range n {
			key := fmt.Sprint("key ", r.IntN(40000))
			if i%50 == 0 {
				key = ""
			}
			fmt.Fprintf(&b, "%s,%d,%s %d\n", key, r.IntN(3), strings.Repeat(name, 20), i)
		}
		return put(t, filepath.Join(dir, name+".csv"), b.String())
	}
	o := Options{Build: lines("b", 60000), Probe: lines("p", 90000), Out: filepath.Join(dir, "o.csv"),
		On: []Pair{{"k", "k"}, {"n", "n"}}}
	for _, how := range []How{Inner, Full, Anti} {
		for _, nulls := range []bool{false, true} {
			if nulls != (how == Full) && !testenv.Long() {
				continue
			}
			o.How, o.NullsEqual, o.Memory = how, nulls, 0
			whole, err := Run(t.Context(), d, o)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			o.Memory = 2 << 20
			s, err := Run(t.Context(), d, o)
			if err != nil || s.OutRows != whole.OutRows || s.BuildRows != 60000 || s.ProbeRows != 90000 {
				t.Fatalf("%v: %+v, %v; want %d rows", how, s, err, whole.OutRows)
			}
			got, err := os.ReadFile(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Fatalf("%v, nulls equal %t: other bytes with little memory", how, nulls)
			}
		}
	}
}

// A join by parts that ends early, wherever that is, leaves nothing.
func TestPartsEndAnywhere(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	spills := t.TempDir()
	t.Setenv("TMPDIR", spills)
	r := rand.New(rand.NewPCG(8, 9))
	dir := t.TempDir()
	bf, pf := filepath.Join(dir, "b.parquet"), filepath.Join(dir, "p.parquet")
	writeAnyhow(t, r, bf, side(t, r, "b", 300, 99, 3), 100)
	writeAnyhow(t, r, pf, side(t, r, "p", 900, 99, 3), 100)
	o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o.arrow"), On: []Pair{{"bk", "pk"}}, How: Full},
		tuning{part: 1000, batch: 10, makers: fakeMakers}}
	stop := errors.New("stop")
	ended := 0
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		o.Progress = func(Progress) {
			if calls++; calls == n {
				cancel(stop)
			}
		}
		_, err := runWith(ctx, nil, o)
		cancel(nil)
		if err == nil {
			break
		}
		ended++
		if !errors.Is(err, stop) {
			t.Fatalf("ended at call %d: %v", n, err)
		}
		leftBehind(t, dir, "b.parquet", "p.parquet")
		leftBehind(t, spills)
	}
	if ended < 2 {
		t.Errorf("%d ends alone", ended)
	}
	o.Progress = func(p Progress) {
		if p.Stage == "probe" {
			panic("broken")
		}
	}
	os.Remove(o.Out)
	if _, err := runWith(t.Context(), nil, o); err == nil ||
		!strings.Contains(err.Error(), "the join broke off: broken") {
		t.Error(err)
	}
	leftBehind(t, dir, "b.parquet", "p.parquet")
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	o.Progress = nil
	if _, err := runWith(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	leftBehind(t, dir, "b.parquet", "p.parquet")
}
