package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// TestRowsOfOutputs joins inputs of each format into files and folders of each format and compression, by each kind of
// join, at once, in batches and in parts. It reads the outputs and compares their rows with nested loops. A run tries
// some of all combinations.
func TestRowsOfOutputs(t *testing.T) {
	build := []column{{"k", arrow.PrimitiveTypes.Int64, nil}, {"b", arrow.BinaryTypes.String, nil}}
	probe := []column{{"k", arrow.PrimitiveTypes.Int64, nil}, {"p", arrow.PrimitiveTypes.Int64, nil}}
	for i := range 31 {
		build[0].values, build[1].values = append(build[0].values, int64(i%23)), append(build[1].values, fmt.Sprintf("b%d", i))
	}
	for i := range 47 {
		probe[0].values, probe[1].values = append(probe[0].values, int64(7*i%29)), append(probe[1].values, int64(i))
	}
	probe[0].values[11] = nil
	dir := t.TempDir()
	builds, probes := inputsOf(t, filepath.Join(dir, "build"), build), inputsOf(t, filepath.Join(dir, "probe"), probe)

	var outputs []Options
	for _, f := range Formats() {
		for _, packing := range append(compressionsOf(Format(f)), "") {
			file := Options{Out: filepath.Join(dir, "out"+partSuffix(Format(f), packing)), Compression: packing}
			folder := Options{Out: filepath.Join(dir, "out") + "/", OutFormat: Format(f), Compression: packing}
			several := folder
			several.RowsPerFile = 7
			outputs = append(outputs, file, folder, several)
		}
	}
	ways := []tuning{{}, {batch: 5, part: -1}, {part: 200}}
	want := make([][][]string, len(hows))
	for how := range hows {
		want[how] = nested(build, probe, 1, How(how))
	}
	all, step := len(hows)*len(builds)*len(probes)*len(outputs)*len(ways), 61 // a prime: all pairs of values are tried
	if testenv.Long() {
		step = 5
	}
	for i := int(testenv.FirstSeed()) % step; i < all; i += step {
		n := i
		next := func(of int) (at int) { at, n = n%of, n/of; return at }
		how := next(len(hows))
		o := tuned{outputs[next(len(outputs))], ways[next(len(ways))]}
		o.Build, o.Probe = builds[next(len(builds))], probes[next(len(probes))]
		o.On, o.How, o.makers = []Pair{{"k", "k"}}, How(how), fakeMakers
		if o.batch > 0 {
			o.Memory = 1
		}
		checkOutput(t, o, want[how])
	}
	testenv.Tried(t, all/step, "joins")
}

// TestLostRows has an output without the rows that a join counts: the join fails, and no output appears.
func TestLostRows(t *testing.T) {
	for _, f := range Formats() {
		r, path := numbers(t, 100)
		dir := t.TempDir()
		w, err := CreateAs(filepath.Join(dir, "out."+f), r.Schema(), WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.Next()
		if err := cmp.Or(w.enc.write(r.RecordBatch()), w.Write(r.RecordBatch())); err != nil { // one is not counted
			t.Fatal(err)
		}
		lost(t, dir, w.Close())

		o := Options{Build: path, Probe: path, Out: filepath.Join(dir, "out") + "/", OutFormat: Format(f), On: []Pair{{"k", "k"}}}
		build, probe, err := openBoth(o)
		if err != nil {
			t.Fatal(err)
		}
		defer build.Close()
		defer probe.Close()
		plan, err := planOutput(build.Schema(), probe.Schema(), o)
		if err != nil {
			t.Fatal(err)
		}
		j := newJoiner(nil, o, tuning{makers: fakeMakers})
		j.cores = true
		lost(t, dir, j.toFile(context.Background(), build, probe, plan, way{parts: 1, columns: true})) // which a folder cannot be
	}
}

// lost checks that err says that rows are missing, and that a folder is empty.
func lost(t *testing.T, dir string, err error) {
	t.Helper()
	if !errors.As(err, new(*crash.Error)) || !strings.Contains(err.Error(), "rows were written, want ") {
		t.Errorf("%v, want an error that says how many rows were written", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// inputsOf writes columns to a file of each format and to a folder of two Parquet files. It returns their names.
func inputsOf(t *testing.T, name string, columns []column) (names []string) {
	for _, f := range Formats() {
		names = append(names, name+"."+f)
		write(t, name+"."+f, reader(t, columns, 10))
	}
	os.MkdirAll(name, 0o777)
	first, second := slices.Clone(columns), slices.Clone(columns)
	for i, c := range columns {
		first[i].values, second[i].values = c.values[:20], c.values[20:]
	}
	write(t, name+"/1.parquet", reader(t, first))
	write(t, name+"/2.parquet", reader(t, second))
	return append(names, name)
}

// checkOutput runs a join, compares the rows that are in its output with want and removes the output.
func checkOutput(t *testing.T, o tuned, want [][]string) {
	t.Helper()
	what := fmt.Sprintf("%s of %s and %s to %s (%q %q, %d rows a file), %+v", o.How, filepath.Base(o.Build), filepath.Base(o.Probe),
		filepath.Base(o.Out), o.OutFormat, o.Compression, o.RowsPerFile, o.tuning)
	s, err := runWith(context.Background(), nil, o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer os.RemoveAll(o.Out)
	r, err := OpenAll("", strings.TrimSuffix(o.Out, "/"))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer r.Close()
	var got [][]string
	for r.Next() {
		got = append(got, batchCells(r.RecordBatch())...)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if s.OutRows != int64(len(got)) {
		t.Errorf("%s: the output has %d rows, and the summary says %d", what, len(got), s.OutRows)
	}
	sameRows(t, what, got, want)
}
