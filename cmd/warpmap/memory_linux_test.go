package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/join"
)

// anonymous is the memory of a process that no file holds, in bytes; 0 when it has ended.
func anonymous(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(kilobytes, 10, 64)
	return n << 10
}

// peakOf runs warpmap, and gives the most anonymous memory that it was seen to take, and what it said.
func peakOf(args ...string) (peak int64, says string, err error) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err = <-ended:
			return peak, text.String(), err
		case <-time.After(3 * time.Millisecond):
			peak = max(peak, anonymous(cmd.Process.Pid))
		}
	}
}

// --memory is a bound: of k-mers that take several times as much, in a file that is plain or packed, the process takes
// a third more, and 150 MB for what is not k-mers.
func TestKmersKeepToMemory(t *testing.T) {
	testenv.ByTurns(t)
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 12))
	text := []byte(">a\n")
	for range 32 << 20 {
		text = append(text, "ACGT"[r.IntN(4)])
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, 1)
	if err != nil {
		t.Fatal(err)
	}
	z.Write(append(text, '\n'))
	z.Close()
	for name, content := range map[string][]byte{"a.fa": text, "a.fa.gz": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		bound int64
	}{{"a.fa", 50e6}, {"a.fa.gz", 50e6}, {"a.fa", 200e6}} {
		peak, says, err := peakOf("kmers", "count", filepath.Join(dir, c.name), "-k", "21", "--device", "cpu",
			"--threads", "2", "--memory", fmt.Sprint(c.bound), "--out", filepath.Join(dir, "out.wk"))
		if most := c.bound*13/10 + 150e6; err != nil || peak > most || peak < c.bound/4 {
			t.Errorf("%s with %d: a peak of %d, want %d at most; %v, %s", c.name, c.bound, peak, most, err, says)
		}
		t.Logf("%s with %d: a peak of %d: %s", c.name, c.bound, peak, says)
	}
}

// What is decoded counts, not what lies in the file: text of a dictionary that would be gigabytes, lists of such, long
// keys, text that many rows match, packed text; on either side and to any format. All rows come out.
func TestJoinKeepsToMemory(t *testing.T) {
	testenv.ByTurns(t)
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	const bound, rows = 50e6, 20000
	long := func(i int) string { return strings.Repeat(string(rune('a'+i%20)), 20000) }
	key := func(i int) string { return fmt.Sprintf("%0700d", i) }
	for name, make := range map[string]func(i int) (k, v any){
		"short.parquet": func(i int) (k, v any) { return int64(i) * 1e12, int64(i) },
		"long.parquet":  func(i int) (k, v any) { return int64(i) * 1e12, long(i) },
		"lists.parquet": func(i int) (k, v any) { return int64(i) * 1e12, []string{long(i), long(i + 1)} },
		"keys.parquet":  func(i int) (k, v any) { return key(i), int64(i) },
		"keys2.parquet": func(i int) (k, v any) { return key(rows - 1 - i), int64(i) },
		"many.parquet":  func(i int) (k, v any) { return int64(i%20) * 1e12, int64(i) },
	} {
		n := rows
		if strings.HasPrefix(name, "keys") {
			n = 20 * rows
		}
		writeRows(t, in(name), n, make)
	}
	writeRows(t, in("few.parquet"), 20, func(i int) (k, v any) { return int64(i) * 1e12, long(i) + fmt.Sprint(i) })
	if _, says, err := peakOf("join", in("short.parquet"), in("long.parquet"), "--on", "k", "--device", "cpu", "--out",
		in("long.csv.gz"), "--quiet"); err != nil {
		t.Fatal(err, says)
	}
	for _, c := range []struct{ build, probe, out string }{{"long.parquet", "short.parquet", "csv"},
		{"short.parquet", "long.parquet", "csv"}, {"long.parquet", "short.parquet", "arrow"},
		{"short.parquet", "long.parquet", "parquet"}, {"few.parquet", "many.parquet", "parquet"},
		{"few.parquet", "many.parquet", "jsonl"}, {"lists.parquet", "short.parquet", "parquet"},
		{"short.parquet", "lists.parquet", "jsonl"}, {"long.csv.gz", "short.parquet", "csv"},
		{"keys.parquet", "keys2.parquet", ""}} {
		name := c.build + ", " + c.probe + " to " + c.out
		out, to := in("out."+c.out), []string{"--out", in("out." + c.out)}
		if c.out == "" {
			to = []string{"--count"}
		}
		peak, says, err := peakOf(append([]string{"join", in(c.build), in(c.probe), "--on", "k", "--device", "cpu",
			"--threads", "2", "--memory", fmt.Sprint(int64(bound)), "--quiet"}, to...)...)
		if most := int64(bound*13/10 + 150e6); err != nil || peak > most {
			t.Errorf("%s: a peak of %d, want %d at most; %v, %s", name, peak, most, err, says)
			continue
		}
		t.Logf("%s: a peak of %d", name, peak)
		if c.out == "" {
			continue
		}
		r, err := join.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for r.Next() {
			n += r.RecordBatch().NumRows()
		}
		if err := errors.Join(r.Err(), r.Close()); err != nil || n != rows {
			t.Errorf("%s: %d rows, want %d; %v", name, n, rows, err)
		}
	}
}

// writeRows writes a file with columns k, a key, and v, a number, a text or a list of texts.
func writeRows(t *testing.T, name string, n int, row func(i int) (k, v any)) {
	t.Helper()
	typeOf := func(x any) arrow.DataType {
		switch x.(type) {
		case int64:
			return arrow.PrimitiveTypes.Int64
		case string:
			return arrow.BinaryTypes.String
		}
		return arrow.ListOf(arrow.BinaryTypes.String)
	}
	k, v := row(0)
	s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: typeOf(k)}, {Name: "v", Type: typeOf(v)}}, nil)
	w, err := join.Create(name, s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for from := 0; from < n; from += 500 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s)
		for i := from; i < min(n, from+500); i++ {
			k, v := row(i)
			for c, x := range []any{k, v} {
				switch x := x.(type) {
				case int64:
					b.Field(c).(*array.Int64Builder).Append(x)
				case string:
					b.Field(c).(*array.StringBuilder).Append(x)
				case []string:
					l := b.Field(c).(*array.ListBuilder)
					l.Append(true)
					for _, x := range x {
						l.ValueBuilder().(*array.StringBuilder).Append(x)
					}
				}
			}
		}
		rec := b.NewRecordBatch()
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
		b.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// --memory is a bound of a build, too, of one genome that takes several times as much, and of one that is added to it.
// The database is the same as without it.
func TestBuildKeepsToMemory(t *testing.T) {
	testenv.ByTurns(t)
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	r := rand.New(rand.NewPCG(1, 13))
	for i, name := range []string{"a.fa", "b.fa"} {
		text := fmt.Appendf(nil, ">%s taxid|2\n", name)
		for range 40_000_000 - 20_000_000*i {
			text = append(text, "ACGT"[r.IntN(4)])
		}
		if err := os.WriteFile(in(name), append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taxonomy := t.TempDir()
	if err := os.WriteFile(filepath.Join(taxonomy, "nodes.dmp"), []byte("1\t|\t1\t|\tno rank\t|\n2\t|\t1\t|\tspecies\t|\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const bound = 50_000_000
	build := func(args ...string) int64 {
		t.Helper()
		peak, says, err := peakOf(append([]string{"classify", "build", "--device", "cpu", "--threads", "2", "--quiet",
			"--taxonomy", taxonomy}, args...)...)
		if err != nil {
			t.Fatal(err, says)
		}
		return peak
	}
	free := build(in("free.db"), in("a.fa"), in("b.fa"))
	for _, args := range [][]string{{in("bound.db"), in("a.fa")}, {in("bound.db"), in("b.fa"), "--add"}} {
		peak := build(append(args, "--memory", fmt.Sprint(bound))...)
		if most := int64(bound)*13/10 + 150e6; peak > most {
			t.Errorf("%v: a peak of %d, want %d at most; %d without a bound", args, peak, most, free)
		}
		t.Logf("%v: a peak of %d; %d without a bound", args, peak, free)
	}
	a, _ := os.ReadFile(in("free.db"))
	b, _ := os.ReadFile(in("bound.db"))
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Error("bounded memory makes another database")
	}
}

// --memory is a bound of a query, too: of reads of many kinds, for which its batches would take several times as much
// beside the database. The lines are the same as without it. Less than the least is an error that names it.
func TestQueryKeepsToMemory(t *testing.T) {
	testenv.ByTurns(t)
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(in(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 14))
	letters := make([]byte, 4_000_000)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	write("a.fa", append([]byte(">a taxid|2\n"), letters...))
	write("nodes.dmp", []byte("1\t|\t1\t|\tno rank\t|\n2\t|\t1\t|\tspecies\t|\n"))
	reads := func(n, length int) (text []byte) {
		quality := bytes.Repeat([]byte{'F'}, length)
		for i := range n {
			at := r.IntN(len(letters) - length)
			text = fmt.Appendf(text, "@r%d\n%s\n+\n%s\n", i, letters[at:at+length], quality)
		}
		return text
	}
	write("short.fq", reads(1_500_000, 20))
	write("usual.fq", reads(400_000, 150))
	write("long.fq", reads(4000, 20_000))
	if _, says, err := peakOf("classify", "build", in("a.db"), in("a.fa"), "--taxonomy", dir, "--device", "cpu"); err != nil {
		t.Fatal(err, says)
	}
	query := func(out string, args ...string) (int64, string, error) {
		return peakOf(append([]string{"classify", "query", in("a.db"), "--device", "cpu", "--threads", "16", "--quiet",
			"--out", in(out)}, args...)...)
	}
	const bound = 50_000_000
	for _, args := range [][]string{{in("short.fq")}, {in("usual.fq")}, {in("long.fq")},
		{in("usual.fq"), in("usual.fq"), "--paired"}} {
		free, says, err := query("free", args...)
		if err != nil {
			t.Fatal(err, says)
		}
		peak, says, err := query("bound", append(args, "--memory", fmt.Sprint(bound))...)
		if most := int64(bound)*13/10 + 150e6; err != nil || peak > most {
			t.Errorf("%v: a peak of %d, want %d at most; %d without a bound; %v, %s", args, peak, most, free, err, says)
		}
		t.Logf("%v: a peak of %d; %d without a bound", args, peak, free)
		a, _ := os.ReadFile(in("free"))
		b, _ := os.ReadFile(in("bound"))
		if len(a) == 0 || !bytes.Equal(a, b) {
			t.Error("bounded memory makes other lines")
		}
	}
	_, says, err := query("none", in("usual.fq"), "--memory", "20MB")
	_, least, _ := strings.Cut(says, "want ")
	least, _, named := strings.Cut(least, " or more")
	if err == nil || !named {
		t.Fatalf("with 20 MB: %v, %q", err, says)
	}
	if _, says, err := query("least", in("usual.fq"), "--memory", strings.ReplaceAll(least, " ", "")); err != nil {
		t.Errorf("with %s, which is said to be the least: %v, %s", least, err, says)
	}
}
