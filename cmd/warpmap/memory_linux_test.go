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

// What is decoded counts, not what lies in the file: text of a dictionary that would be gigabytes, and rows of many
// kilobytes, on either side and to any format. What comes out is what comes without a bound.
func TestJoinKeepsToMemory(t *testing.T) {
	testenv.ByTurns(t)
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	const bound, rows = 50e6, 30000
	// Twenty texts of 20 KB, each in many rows, and keys that do not lie close together.
	write := func(name string, text func(i int) string) {
		s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64},
			{Name: name, Type: arrow.BinaryTypes.String}}, nil)
		w, err := join.Create(in(name+".parquet"), s)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		for from := 0; from < rows; from += 1000 {
			b := array.NewRecordBuilder(memory.DefaultAllocator, s)
			for i := from; i < from+1000; i++ {
				b.Field(0).(*array.Int64Builder).Append(int64(i) * 1e12)
				b.Field(1).(*array.StringBuilder).Append(text(i))
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
	write("long", func(i int) string { return strings.Repeat(string(rune('a'+i%20)), 20000) })
	write("short", func(i int) string { return fmt.Sprint(i) })
	for _, c := range []struct{ build, probe, out string }{{"long", "short", "csv"}, {"short", "long", "csv"},
		{"long", "short", "arrow"}, {"short", "long", "parquet"}} {
		name := c.build + ", " + c.probe + " to " + c.out
		out := in("out." + c.out)
		peak, says, err := peakOf("join", in(c.build+".parquet"), in(c.probe+".parquet"), "--on", "k", "--device", "cpu",
			"--threads", "2", "--memory", fmt.Sprint(int64(bound)), "--out", out, "--quiet")
		if most := int64(bound*13/10 + 150e6); err != nil || peak > most {
			t.Errorf("%s: a peak of %d, want %d at most; %v, %s", name, peak, most, err, says)
			continue
		}
		t.Logf("%s: a peak of %d", name, peak)
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
