package join

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// columnTypes are those that vecs hold, one of each form, and some that they do not.
func columnTypes() []arrow.DataType {
	return []arrow.DataType{
		arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint16,
		arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
		arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String,
		arrow.BinaryTypes.LargeString, arrow.BinaryTypes.Binary,
		arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Timestamp_us, arrow.FixedWidthTypes.Time32ms,
		&arrow.FixedSizeBinaryType{ByteWidth: 5},
		&arrow.Decimal128Type{Precision: 7, Scale: 2}, &arrow.Decimal128Type{Precision: 15, Scale: 2},
		&arrow.Decimal128Type{Precision: 30, Scale: 2},
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String},
		arrow.FixedWidthTypes.Boolean, arrow.ListOf(arrow.BinaryTypes.String),
		arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true}),
	}
}

// few makes n values of a type of which only some differ, in runs, with nulls if there may be any.
func few(t testing.TB, r *rand.Rand, typ arrow.DataType, n int, nulls bool) arrow.Array {
	t.Helper()
	some := 1 + r.IntN(1+n)
	pool := randomArray(r, typ, some+20)
	tk, err := newTaker(typ, []arrow.ArrayData{pool.Data()})
	if err != nil {
		t.Fatal(err)
	}
	var there []int
	for i := range pool.Len() {
		if pool.IsValid(i) {
			there = append(there, i)
		}
	}
	var at []loc
	for len(at) < n {
		l := loc{0, there[r.IntN(len(there))]}
		if nulls && r.IntN(4) == 0 {
			l = null
		}
		for range min(n-len(at), 1+r.IntN(3)*r.IntN(40)) {
			at = append(at, l)
		}
	}
	d, err := tk.take(at)
	if err != nil {
		t.Fatal(err)
	}
	return array.MakeFromData(d)
}

// writeAnyhow writes a Parquet file by the library, in row groups of at most so many rows, its pages in any form that
// it knows.
func writeAnyhow(t testing.TB, r *rand.Rand, path string, rec arrow.RecordBatch, rows int64) {
	t.Helper()
	options := []parquet.WriterProperty{
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithMaxRowGroupLength(rows),
		parquet.WithStoreDecimalAsInteger(r.IntN(2) == 0),
		parquet.WithCompression([]compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy,
			compress.Codecs.Zstd, compress.Codecs.Gzip}[r.IntN(4)]),
		parquet.WithDataPageSize(int64(1 + r.IntN(2000))), parquet.WithBatchSize(int64(1 + r.IntN(64))),
		parquet.WithDictionaryDefault(r.IntN(4) > 0),
		parquet.WithDictionaryPageSizeLimit(int64(1 + r.IntN(400))), parquet.WithPageIndexEnabled(r.IntN(2) == 0),
	}
	if r.IntN(2) == 0 {
		options = append(options, parquet.WithDataPageVersion(parquet.DataPageV2))
	}
	if r.IntN(3) == 0 {
		for _, f := range rec.Schema().Fields() {
			e := parquet.Encodings.Plain
			switch f.Type.ID() {
			case arrow.INT32, arrow.INT64, arrow.UINT32, arrow.UINT64, arrow.DATE32, arrow.TIMESTAMP:
				e = parquet.Encodings.DeltaBinaryPacked
			case arrow.STRING:
				e = parquet.Encodings.DeltaByteArray
			case arrow.BINARY:
				e = parquet.Encodings.DeltaLengthByteArray
			case arrow.FLOAT32, arrow.FLOAT64:
				e = parquet.Encodings.ByteStreamSplit
			}
			if f.Type.ID() != arrow.DICTIONARY && !f.Nullable { // the library cannot read its own pages of nulls alone
				options = append(options, parquet.WithDictionaryFor(f.Name, false), parquet.WithEncodingFor(f.Name, e))
			}
		}
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(rec.Schema(), f, parquet.NewWriterProperties(options...),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from < rec.NumRows(); from += rows {
		w.NewBufferedRowGroup()
		if err := w.WriteBuffered(rec.NewSlice(from, min(from+rows, rec.NumRows()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// side makes a record batch of a key column and some others.
func side(t testing.TB, r *rand.Rand, letter string, n, keys, columns int) arrow.RecordBatch {
	t.Helper()
	nulls := r.IntN(2) == 0
	k := array.NewInt64Builder(mem)
	spread := int64(1 + 99*(keys%2)) // with 100, too far apart to be near
	sorted := r.IntN(2) == 0
	for i := range n {
		v := int64(r.IntN(keys))
		if sorted {
			v = int64(i * keys / n)
		}
		if nulls && r.IntN(9) == 0 {
			k.AppendNull()
		} else {
			k.Append(v * spread)
		}
	}
	fields, cols := []arrow.Field{{Name: letter + "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}},
		[]arrow.Array{k.NewArray()}
	types := columnTypes()
	for c := range columns {
		typ := types[r.IntN(len(types))]
		nulls := r.IntN(2) == 0
		fields = append(fields, arrow.Field{Name: fmt.Sprint(letter, c), Type: typ, Nullable: nulls || r.IntN(2) == 0})
		cols = append(cols, few(t, r, typ, n, nulls))
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(n))
}

// expected is the join of two batches by its definition, as text.
func expected(t testing.TB, build, probe arrow.RecordBatch, how How) (rows [][]string) {
	row := func(rec arrow.RecordBatch, i, from int) (out []string) {
		for _, c := range rec.Columns()[from:] {
			out = append(out, value(t, c, i))
		}
		return out
	}
	at := map[int64][]int{}
	bk, pk := build.Column(0).(*array.Int64), probe.Column(0).(*array.Int64)
	for i := range bk.Len() {
		if bk.IsValid(i) {
			at[bk.Value(i)] = append(at[bk.Value(i)], i)
		}
	}
	matched := map[int]bool{}
	defer func() {
		for b := range bk.Len() {
			if how.keepsBuild() && !matched[b] {
				out := make([]string, probe.NumCols())
				for i := range out {
					out[i] = "null"
				}
				rows = append(rows, append(out, row(build, b, 0)...))
			}
		}
	}()
	keys := 1 // of the build side, which come out where its rows do
	if how.keepsBuild() {
		keys = 0
	}
	for i := range pk.Len() {
		var found []int
		if pk.IsValid(i) {
			found = at[pk.Value(i)]
		}
		for _, b := range found {
			matched[b] = true
		}
		left := row(probe, i, 0)
		switch {
		case how == Semi && len(found) > 0, how == Anti && len(found) == 0:
			rows = append(rows, left)
		case how.keepsProbe() && len(found) == 0:
			for range int(build.NumCols()) - keys {
				left = append(left, "null")
			}
			rows = append(rows, left)
		case how.pairs():
			for _, b := range found {
				rows = append(rows, append(append([]string(nil), left...), row(build, b, keys)...))
			}
		}
	}
	return rows
}

func sameRows(t testing.TB, what string, got, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range got {
		if strings.Join(got[i], "|") != strings.Join(want[i], "|") {
			t.Fatalf("%s: row %d is\n%q, want\n%q", what, i, got[i], want[i])
		}
	}
}

// TestColumns joins Parquet files written in all the library's ways, of random columns, and compares with the
// definition: all kinds, with one thread and with many, which write the same bytes; counts, limits, selections and what
// goes nowhere.
func TestColumns(t *testing.T) { everyDevice(t, columnJoins) }

func columnJoins(t *testing.T, d *device.Device) {
	least := leastKept
	leastKept, spoiled = 8, true
	defer func() { leastKept, spoiled = least, false }()
	seeds := 2 * len(hows)
	if testenv.Long() {
		seeds = 200
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		dir := t.TempDir()
		keys := 1 + r.IntN(300)
		build, probe := side(t, r, "b", r.IntN(300), keys, r.IntN(5)), side(t, r, "p", r.IntN(900), keys, r.IntN(5))
		bf, pf := filepath.Join(dir, "b.parquet"), filepath.Join(dir, "p.parquet")
		writeAnyhow(t, r, bf, build, int64(1+r.IntN(200)))
		writeAnyhow(t, r, pf, probe, int64(1+r.IntN(400)))
		how := How(seed % len(hows))
		o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o.parquet"), On: []Pair{{"bk", "pk"}},
			How: how}, tuning{groups: [2]int{1 + r.IntN(60), 100 + r.IntN(300)}, part: -1}}
		what := fmt.Sprintf("seed %d, %v of %s and %s", seed, how, build.Schema(), probe.Schema())
		want := expected(t, build, probe, how)
		var first []byte
		for _, threads := range []int{1, 16} {
			// So little that not all threads have a column at once.
			o.Threads, o.Memory = threads, int64(threads/16)<<18
			s, err := runWith(t.Context(), d, o)
			if err != nil {
				t.Fatal(what, err)
			}
			if s.OutRows != int64(len(want)) || s.ProbeRows != probe.NumRows() || s.BuildRows != build.NumRows() {
				t.Fatalf("%s: %+v, want %d rows", what, s, len(want))
			}
			_, got := read(t, o.Out)
			sameRows(t, what, got, want)
			b, err := os.ReadFile(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = b
			} else if !bytes.Equal(first, b) {
				t.Fatalf("%s: other bytes with %d threads", what, threads)
			}
		}
		mixed := o // from a file of another format, and to one
		mixed.Build, mixed.Out = filepath.Join(dir, "b.arrow"), filepath.Join(dir,
			"mixed"+[]string{".parquet", ".arrow"}[seed/6%2])
		rr, err := array.NewRecordReader(build.Schema(), []arrow.RecordBatch{build})
		if err != nil {
			t.Fatal(err)
		}
		write(t, mixed.Build, rr)
		if _, err := runWith(t.Context(), d, mixed); err != nil {
			t.Fatal(what, err)
		}
		_, got := read(t, mixed.Out)
		sameRows(t, what+", from Arrow", got, want)
		folders := o // several files a side
		folders.Build, folders.Probe, folders.Out = filepath.Join(dir, "bs"), filepath.Join(dir, "ps"),
			filepath.Join(dir, "folders.parquet")
		for path, rec := range map[string]arrow.RecordBatch{folders.Build: build, folders.Probe: probe} {
			if err := os.Mkdir(path, 0o777); err != nil {
				t.Fatal(err)
			}
			cut := int64(r.IntN(int(rec.NumRows()) + 1))
			writeAnyhow(t, r, filepath.Join(path, "1.parquet"), rec.NewSlice(0, cut), int64(1+r.IntN(200)))
			writeAnyhow(t, r, filepath.Join(path, "2.parquet"), rec.NewSlice(cut, rec.NumRows()), int64(1+r.IntN(200)))
		}
		if s, err := runWith(t.Context(), d, folders); err != nil || s.OutRows != int64(len(want)) {
			t.Fatalf("%s: %+v, %v, of several files; want %d rows", what, s, err, len(want))
		}
		_, several := read(t, folders.Out)
		sameRows(t, what+", of several files", several, want)
		count := o
		count.Count, count.Out = true, ""
		if s, err := runWith(t.Context(), d, count); err != nil || s.OutRows != int64(len(want)) {
			t.Fatalf("%s: a count of %d, %v; want %d", what, s.OutRows, err, len(want))
		}
		nowhere := o
		nowhere.Out = os.DevNull
		if s, err := runWith(t.Context(), d, nowhere); err != nil || s.OutRows != int64(len(want)) {
			t.Fatalf("%s: %d rows to nowhere, %v; want %d", what, s.OutRows, err, len(want))
		}
		some := o
		some.Limit = int64(1 + r.IntN(1+len(want)))
		schema, err := OutputSchema(build.Schema(), probe.Schema(), o.Options)
		if err != nil {
			t.Fatal(err)
		}
		order := r.Perm(schema.NumFields())[:1+r.IntN(schema.NumFields())]
		for _, c := range order {
			some.Select = append(some.Select, schema.Field(c).Name)
		}
		want = want[:min(len(want), int(some.Limit))]
		for i, row := range want {
			want[i] = nil
			for _, c := range order {
				want[i] = append(want[i], row[c])
			}
		}
		for _, suffix := range []string{".parquet", ".arrow"} {
			some.Out = filepath.Join(dir, "some"+suffix)
			s, err := runWith(t.Context(), d, some)
			if err != nil {
				t.Fatal(what, err)
			}
			_, got := read(t, some.Out)
			sameRows(t, what+", some of it as "+suffix, got, want)
			if s.OutRows != int64(len(want)) {
				t.Fatalf("%s: %+v, want %d rows", what, s, len(want))
			}
		}
	}
}

// groupsOf lists the rows of a file's row groups, and the codecs of a column's chunks.
func groupsOf(t testing.TB, path string, column int) (rows []int64, codecs []compress.Compression, sizes []int64) {
	t.Helper()
	f, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for g := range f.NumRowGroups() {
		c, err := f.MetaData().RowGroup(g).ColumnChunk(column)
		if err != nil {
			t.Fatal(err)
		}
		rows, codecs, sizes = append(rows, f.MetaData().RowGroup(g).NumRows()), append(codecs, c.Compression()),
			append(sizes, c.TotalCompressedSize())
	}
	return rows, codecs, sizes
}

// Row groups that stay whole are copied as they stand, unless another compression is asked for; those that no key can
// match are skipped.
func TestWholeRowGroups(t *testing.T) {
	dir := t.TempDir()
	i64 := arrow.PrimitiveTypes.Int64
	number := func(from, n int) (out []any) {
		for i := range n {
			out = append(out, int64(from+i))
		}
		return out
	}
	text := func(n int) (out []any) {
		for i := range n {
			out = append(out, fmt.Sprint("text ", i%7))
		}
		return out
	}
	probe := filepath.Join(dir, "p.parquet")
	r := reader(t, []column{{"k", i64, number(0, 1000)}, {"text", arrow.BinaryTypes.String, text(1000)}})
	r.Next()
	f, err := os.Create(probe)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pqarrow.NewFileWriter(r.Schema(), f,
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Gzip), parquet.WithMaxRowGroupLength(250)),
		pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(r.RecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(dir, "b.parquet")
	write(t, build, reader(t, []column{{"k", i64, number(250, 500)}, {"v", i64, number(0, 500)}}))
	_, _, had := groupsOf(t, probe, 1)
	out := filepath.Join(dir, "o.parquet")
	s, err := runWith(t.Context(), nil, tuned{Options{Build: build, Probe: probe, Out: out, On: []Pair{{"k", "k"}}},
		tuning{makers: fakeMakers, groups: [2]int{10, 400}}})
	if err != nil || s.OutRows != 500 || s.Skipped != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	rows, codecs, sizes := groupsOf(t, out, 1)
	if fmt.Sprint(rows) != "[250 250]" || codecs[0] != compress.Codecs.Gzip || sizes[0] != had[1] ||
		sizes[1] != had[2] {
		t.Errorf("rows %v, %v, of %v bytes; the probe's have %v", rows, codecs, sizes, had)
	}
	if _, err = runWith(t.Context(), nil, tuned{Options{Build: build, Probe: probe, Out: out, On: []Pair{{"k", "k"}},
		Compression: "zstd"}, tuning{makers: fakeMakers}}); err != nil {
		t.Fatal(err)
	}
	if _, codecs, _ := groupsOf(t, out, 1); codecs[0] == compress.Codecs.Gzip {
		t.Errorf("zstd was asked for, and there is %v", codecs)
	}
	_, got := read(t, out)
	for i, row := range got {
		if fmt.Sprint(row) != fmt.Sprintf(`[%d "text %d" %d]`, 250+i, (250+i)%7, i) {
			t.Fatalf("row %d: %v", i, row)
		}
	}
	_, err = runWith(t.Context(), nil, tuned{Options{Build: build, Probe: probe, Out: filepath.Join(dir, "o.csv"),
		On: []Pair{{"k", "k"}}, Compression: "lz4"}, tuning{makers: fakeMakers}})
	if err == nil || !strings.Contains(err.Error(), "csv compressed with lz4") {
		t.Error(err)
	}
	_, err = runWith(t.Context(), nil, tuned{Options{Build: build, Probe: probe, Out: out, On: []Pair{{"k", "k"}},
		Compression: "rar"}, tuning{makers: fakeMakers}})
	if err == nil || !strings.Contains(err.Error(), "want one of snappy") {
		t.Error(err)
	}
}

// All compressions write files that the library reads.
func TestCompressions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	build, probe := side(t, r, "b", 200, 50, 4), side(t, r, "p", 500, 50, 4)
	bf, pf := filepath.Join(dir, "b.parquet"), filepath.Join(dir, "p.parquet")
	writeAnyhow(t, r, bf, build, 100)
	writeAnyhow(t, r, pf, probe, 100)
	want := expected(t, build, probe, Inner)
	for _, name := range Compressions() {
		out := filepath.Join(dir, name+".parquet")
		if _, err := runWith(t.Context(), nil, tuned{Options{Build: bf, Probe: pf, Out: out, On: []Pair{{"bk", "pk"}},
			Compression: name}, tuning{makers: fakeMakers}}); err != nil {
			t.Fatal(name, err)
		}
		_, got := read(t, out)
		sameRows(t, name, got, want)
	}
}

// leftBehind fails where a folder has more than the named files.
func leftBehind(t testing.TB, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains("|"+strings.Join(names, "|")+"|", "|"+e.Name()+"|") {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

// A join that is cancelled anywhere, or whose progress panics anywhere, ends in an error, with nothing of it left and
// no goroutine of it running.
func TestColumnsEndAnywhere(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := rand.New(rand.NewPCG(8, 9))
	dir := t.TempDir()
	bf, pf := filepath.Join(dir, "b.parquet"), filepath.Join(dir, "p.parquet")
	writeAnyhow(t, r, bf, side(t, r, "b", 2000, 500, 3), 300)
	writeAnyhow(t, r, pf, side(t, r, "p", 3000, 500, 5), 100)
	o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o.parquet"), On: []Pair{{"bk", "pk"}},
		Threads: 4}, tuning{makers: fakeMakers, groups: [2]int{50, 100}}}
	calls := 0
	o.Progress = func(Progress) { calls++ }
	if _, err := runWith(t.Context(), nil, o); err != nil {
		t.Fatal(err)
	}
	os.Remove(o.Out)
	for at := range calls {
		if at > 8 && at%3 > 0 && !testenv.Long() {
			continue
		}
		for _, panics := range []bool{false, true} {
			if panics != (at%2 > 0) && !testenv.Long() {
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			o.Progress = func(Progress) {
				if n++; n-1 == at {
					if panics {
						panic("a broken bar")
					}
					cancel()
				}
			}
			_, err := runWith(ctx, nil, o)
			cancel()
			if panics && (err == nil || !strings.Contains(err.Error(), "a broken bar")) || !panics && err != nil &&
				!errors.Is(err, context.Canceled) {
				t.Fatalf("stopped at call %d of %d: %v", at, calls, err)
			}
			if err == nil { // cancelled when all was done
				os.Remove(o.Out)
			}
			leftBehind(t, dir, "b.parquet", "p.parquet")
		}
	}
	for range testenv.SeedsOf(40, 15) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
		o.Progress = nil
		_, err := runWith(ctx, nil, o)
		cancel()
		if err == nil {
			os.Remove(o.Out)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		leftBehind(t, dir, "b.parquet", "p.parquet")
	}
}

// An output that cannot be written is an error with its name.
func TestColumnsThatCannotBeWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	dir := t.TempDir()
	bf, pf := filepath.Join(dir, "b.parquet"), filepath.Join(dir, "p.parquet")
	writeAnyhow(t, r, bf, side(t, r, "b", 200, 50, 3), 300)
	writeAnyhow(t, r, pf, side(t, r, "p", 3000, 50, 5), 100)
	o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o.parquet"), On: []Pair{{"bk", "pk"}}},
		tuning{makers: fakeMakers}}
	closed := false
	o.Progress = func(p Progress) {
		if p.Stage != "probe" || closed {
			return
		}
		closed = true
		hidden, _ := filepath.Glob(filepath.Join(dir, ".o.parquet.*.tmp"))
		for _, name := range hidden {
			if err := os.Truncate(name, 0); err != nil {
				t.Error(err)
			}
		}
	}
	j := newJoiner(nil, o.Options, o.tuning)
	b, err := Open(bf)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := Open(pf)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	plan, err := planOutput(b.Schema(), p.Schema(), o.Options)
	if err != nil {
		t.Fatal(err)
	}
	out, err := create(o.Out, plan.schema, WriteOptions{}, parquetOptions{columns: plan.nodes(b, p, Inner)})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Abort()
	out.out.File.Close() // as a disk that is gone
	err = j.files(t.Context(), b, p, plan, way{parts: 1, columns: true}, out)
	if err == nil {
		err = out.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "o.parquet: ") || strings.Contains(err.Error(), ".tmp") {
		t.Error(err)
	}
}

// A key that comes often on both sides makes many rows of little memory.
func TestManyToMany(t *testing.T) {
	dir := t.TempDir()
	i64 := arrow.PrimitiveTypes.Int64
	n := 3000
	if testing.Short() {
		n = 500
	}
	ones, rows := make([]any, n), make([]any, n)
	for i := range ones {
		ones[i], rows[i] = int64(7), int64(i)
	}
	in := filepath.Join(dir, "in.parquet")
	write(t, in, reader(t, []column{{"k", i64, ones}, {"row", i64, rows}}))
	var most atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for range 3 { // what other tests left is not this one's: pools keep theirs for a turn
		runtime.GC()
	}
	metrics.Read(live)
	before := live[0].Value.Uint64()
	go func() { // what is reachable, and not what the collector leaves to its next turn
		for ctx.Err() == nil {
			metrics.Read(live)
			most.Store(max(most.Load(), live[0].Value.Uint64()))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for _, out := range []string{os.DevNull, filepath.Join(dir, "o.parquet")} {
		s, err := runWith(t.Context(), nil, tuned{Options{Build: in, Probe: in, Out: out, On: []Pair{{"k", "k"}},
			Threads: 2}, tuning{makers: fakeMakers, groups: [2]int{1 << 15, 1 << 16}}})
		if err != nil || s.OutRows != int64(n*n) {
			t.Fatal(s, err)
		}
	}
	if most.Load() > before+(200<<20) {
		t.Errorf("%d rows took %d MiB, and %d were there before", n*n, (most.Load()-before)>>20, before>>20)
	}
	r, err := Open(filepath.Join(dir, "o.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := 0
	for r.Next() {
		p, b := r.RecordBatch().Column(1).(*array.Int64), r.RecordBatch().Column(2).(*array.Int64)
		for i := range p.Len() {
			if p.Value(i) != int64(next/n) || b.Value(i) != int64(next%n) {
				t.Fatalf("row %d is of probe row %d and build row %d", next, p.Value(i), b.Value(i))
			}
			next++
		}
	}
	if r.Err() != nil || next != n*n {
		t.Error(next, r.Err())
	}
}

// Keys that lie close together, and have values that are far apart only as unsigned numbers, get no table; others do.
func TestNear(t *testing.T) {
	for _, c := range []struct {
		bytes int
		keys  []int64
		near  bool
	}{
		{8, []int64{-3, -1, 0, 5, 1023}, true}, {8, []int64{1 << 62, 1<<62 + 900}, true}, {8, []int64{0, 1 << 40}, false}, {8, nil, true},
		{4, []int64{-3, 4}, true}, {4, []int64{1<<32 - 1, 1<<32 - 9}, true}, {4, []int64{0, 1 << 30}, false}, {1, []int64{-128, 127}, true}, {8, []int64{-1 << 63, 1<<63 - 1}, true}, {8, []int64{-1 << 63, 0, 1<<63 - 1}, false},
	} {
		words, ok, rows := []uint64{99}, []bool{false}, []uint32{}
		for i, k := range c.keys {
			words, ok, rows = append(words, uint64(k)&(1<<(8*c.bytes)-1)), append(ok, true), append(rows, uint32(i+1))
		}
		l := openNear[uint32](words, ok, c.bytes)
		if (l != nil) != c.near {
			t.Errorf("%d bytes, %v: near %v", c.bytes, c.keys, l != nil)
			continue
		}
		if l == nil {
			continue
		}
		if n, err := l.insertNew(words[1:], rows); n != len(c.keys) || err != nil {
			t.Errorf("%v: %d inserted, %v", c.keys, n, err)
		}
		if n, err := l.insertNew(words[1:], rows); n != 0 || err != nil {
			t.Errorf("%v: %d inserted again, %v", c.keys, n, err)
		}
		ask := append([]uint64{7777, 1<<(8*c.bytes) - 77}, words[1:]...)
		got, found := make([]uint32, len(ask)), make([]bool, len(ask))
		if err := l.find(ask, got, found); err != nil {
			t.Error(err)
		}
		for i := range ask {
			if want := i >= 2; found[i] != want || want && got[i] != uint32(i-1) {
				t.Errorf("%v: key %d is row %d, %v", c.keys, ask[i], got[i], found[i])
			}
		}
	}
}

// Runs and packed groups of all widths come back as they were; what is cut or says too much is an error.
func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for width := 1; width <= 32; width++ {
		for range 30 {
			codes := make([]int32, r.IntN(500))
			for i := 0; i < len(codes); {
				v := int32(r.Uint32() & uint32(1<<width-1))
				for range 1 + r.IntN(2)*r.IntN(60) {
					if i < len(codes) {
						codes[i] = v
						i++
					}
				}
			}
			b := packRuns(nil, codes, width)
			got, err := unpackRuns([]int32{5}, b, len(codes), width)
			if err != nil || fmt.Sprint(got[1:]) != fmt.Sprint(codes) || got[0] != 5 {
				t.Fatalf("%d bits: %v gives %v, %v", width, codes, got, err)
			}
			if len(codes) > 0 {
				// The bits that fill the last group up may be left out.
				got, err := unpackRuns(nil, b[:r.IntN(len(b))], len(codes), width)
				if err == nil && fmt.Sprint(got) != fmt.Sprint(codes) {
					t.Fatalf("%d bits: %v is cut to %v, and no error", width, codes, got)
				}
			}
		}
	}
	for _, b := range [][]byte{{}, {0}, {1}, {2}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{4, 3}} {
		if out, err := unpackRuns(nil, b, 8, 1); err == nil {
			t.Errorf("%v gives %v", b, out)
		}
	}
}

func TestSelectErrors(t *testing.T) {
	i64 := arrow.PrimitiveTypes.Int64
	s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: i64}, {Name: "a", Type: i64}}, nil)
	for names, want := range map[string]string{"b": `no column "b" to select; its columns: k, a, a_build`,
		"a,k,a": `column "a" is selected twice`} {
		selected, err := ParseNames(names)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OutputSchema(s, s, Options{On: []Pair{{"k", "k"}}, Select: selected}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", names, err, want)
		}
	}
	for text, want := range map[string]string{"a": "[a]", `a\,b,c\\`: `[a,b c\]`, "": "want names",
		"a,,b": "want names", `a\x`: "a backslash stands before", `a\`: "a backslash at the end"} {
		names, err := ParseNames(text)
		if got := fmt.Sprint(names); got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v; want %s", text, names, err, want)
		}
	}
}

// The footer's bounds are of their own, and keep no column in memory.
func TestBoundsAreCopies(t *testing.T) {
	v := &vec{n: 3, width: 8, fixed: raw([]uint64{7, 3, 9})}
	s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil)
	e, err := newParquetEncoder(bufio.NewWriter(io.Discard), s, parquetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bounds := v.statistics(e.pq.Column(0))
	clear(v.fixed)
	if bounds.Min[0] != 3 || bounds.Max[0] != 9 {
		t.Errorf("%v to %v", bounds.Min, bounds.Max)
	}
}
