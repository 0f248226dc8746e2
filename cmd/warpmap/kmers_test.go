package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/testenv"
)

func TestKmers(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.fq"), filepath.Join(dir, "out.wk")
	if err := os.WriteFile(in, []byte("@a\nAACCCC\n+\n!!!!!!\n@b\nGGnGTT\n+\n!!!!!!\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s kmers.Summary
	if err := json.Unmarshal([]byte(must(t, "kmers", "count", in, "-k", "3", "-C", "--out", out, "--json")),
		&s); err != nil {
		t.Fatal(err)
	}
	// AAC ACC CCC CCC, and GTT, which is AAC's.
	if want := (kmers.Summary{Read: genome.Counts{Inputs: 1, Records: 2, Letters: 12}, Rounds: 1,
		Stats: kmers.Stats{Unique: 1, Distinct: 3, Total: 5, MaxCount: 2}}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	for _, c := range []struct{ args, want string }{
		{"stats", "Unique:    1\nDistinct:  3\nTotal:     5\nMax_count: 2\n"},
		{"histo", "1 1\n2 2\n"},
		{"histo --high 1", "1 1\n2 2\n"},
	} {
		if got := must(t, append([]string{"kmers"}, append(strings.Fields(c.args), out)...)...); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	if got := must(t, "kmers", "query", out, "GTT", "ccc", "TTT"); got != "AAC 2\nCCC 2\nAAA 0\n" {
		t.Errorf("query: %q", got)
	}
	lines := strings.Split(strings.TrimSpace(must(t, "kmers", "dump", "-c", out)), "\n")
	slices.Sort(lines)
	if want := []string{"AAC 2", "ACC 1", "CCC 2"}; !slices.Equal(lines, want) {
		t.Errorf("dump -c: %q, want %q", lines, want)
	}
	if got := must(t, "kmers", "dump", "--upper", "1", out); got != ">1\nACC\n" {
		t.Errorf("dump: %q", got)
	}
	must(t, "kmers", "dump", "--upper", "2", out, "--parquet", filepath.Join(dir, "k.parquet"))
	must(t, "join", filepath.Join(dir, "k.parquet"), filepath.Join(dir, "k.parquet"), "--on", "kmer", "--how", "semi",
		"--out", filepath.Join(dir, "k.csv"), "--quiet")
	rows, _ := os.ReadFile(filepath.Join(dir, "k.csv"))
	lines = strings.Split(strings.TrimSpace(string(rows)), "\n")
	slices.Sort(lines)
	if want := []string{"AAC,2", "ACC,1", "CCC,2", "kmer,count"}; !slices.Equal(lines, want) {
		t.Errorf("dump --parquet: %q, want %q", lines, want)
	}
	broken := filepath.Join(dir, "broken.fq")
	if err := os.WriteFile(broken, []byte("@a\nAACCCC\n+\n!!!!\n@b\nAAA\n+\n!!!\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, err := run(t, "kmers", "count", broken, "-k", "3", "-o", out, "--skip-broken"); err != nil ||
		!strings.Contains(said, "1 broken ones left out") {
		t.Errorf("%q, %v", said, err)
	}
	for _, c := range []struct {
		code int
		args string
	}{
		{exitUsage, "count in.fq"}, {exitUsage, "count in.fq -k 65"}, {exitUsage, "count -k 3"}, {exitUsage, "count " + in + " -k 3 --memory 1"}, {exitInput, "count absent.fq -k 3"}, {exitInput, "count " + broken + " -k 3"},
		{exitInput, "stats " + in}, {exitInput, "query " + filepath.Join(dir, "absent.wk") + " AAA"}, {exitUsage, "query " + out + " AAAA"},
	} {
		if _, _, err := run(t, append([]string{"kmers"}, strings.Fields(c.args)...)...); exitCode(err) != c.code {
			t.Errorf("%s: %v, exit code %d, want %d", c.args, err, exitCode(err), c.code)
		}
	}
	if left, err := os.ReadDir("."); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), ".wk")
	}) {
		t.Errorf("files of counts are left: %v", err)
	}
}

// Counting with little memory, ended by a signal at any time or by a file that may not grow, leaves nothing: no file of
// counts, and no temporary one.
func TestKmersEnd(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	dir, spills := t.TempDir(), t.TempDir()
	text := []byte(">a\n")
	size, stops, memory := 8<<20, 5, "30MB"
	if !testenv.Long() {
		size, stops, memory = 3<<20, 2, "12MB"
	}
	r := rand.New(rand.NewPCG(1, 9))
	for range size {
		text = append(text, "ACGT"[r.IntN(4)])
	}
	in, out := filepath.Join(dir, "in.fa"), filepath.Join(dir, "out.wk")
	if err := os.WriteFile(in, text, 0o600); err != nil {
		t.Fatal(err)
	}
	count := func(after time.Duration, env ...string) (took time.Duration, said string, ended error) {
		cmd := exec.Command(os.Args[0], "kmers", "count", in, "-k", "25", "--device", "cpu", "--max-memory", memory,
			"--out", out, "--quiet")
		cmd.Env = append(append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+spills, "GORACE=atexit_sleep_ms=0"),
			env...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if after > 0 {
			time.AfterFunc(after, func() { cmd.Process.Signal(syscall.SIGTERM) })
		}
		ended = cmd.Wait()
		took = time.Since(start)
		for _, folder := range []string{dir, spills} {
			entries, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if name := e.Name(); name != "in.fa" && (name != "out.wk" || ended != nil) {
					t.Errorf("ended by %v after %v: %s is left", ended, after, name)
				}
			}
		}
		os.Remove(out)
		return took, errs.String(), ended
	}
	whole, said, err := count(0)
	if err != nil {
		t.Fatal(err, said)
	}
	stopped := 0
	for k := range stops {
		if _, _, err := count(whole * time.Duration(k+1) / time.Duration(stops+1)); err != nil {
			stopped++
		}
	}
	// Where kernels were compiled or others had the processors meanwhile, all of it took much less than before.
	for after := whole / 16; stopped == 0 && after > 0; after /= 8 {
		if _, _, err := count(after); err != nil {
			stopped++
		}
	}
	if stopped == 0 {
		t.Errorf("counting, which takes %v, was never stopped", whole)
	}
	if _, said, err := count(0, "WARPMAP_TEST_SMALL_FILES=1"); err == nil ||
		!strings.Contains(said, "temporary files in "+spills+": file too large: make room there") {
		t.Errorf("%v, %q", err, said)
	}
}

func TestKmersOverDevices(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.fa")
	if err := os.WriteFile(in, []byte(">a\nACGTNACGGTTTACGT\n>b\nGGGGACGT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for i, over := range []string{"cpu", "cpu:0,cpu:1", "cpu:0,cpu:1,cpu:2"} {
		out := filepath.Join(dir, fmt.Sprint(i))
		must(t, "kmers", "count", in, "-k", "4", "-C", "--devices", over, "--out", out, "--quiet")
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Errorf("--devices %s makes another file", over)
		}
	}
	if _, _, err := run(t, "kmers", "count", in, "-k", "4", "--devices", "joined"); exitCode(err) != exitUsage {
		t.Errorf("--devices joined: %v", err)
	}
}

// TestNoKmers warns of a file of counts without k-mers, also with --quiet, and refuses bounds that leave none.
func TestNoKmers(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.fa"), filepath.Join(dir, "out.wk")
	if err := os.WriteFile(in, []byte(">x\nACGTNACGT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, warns := range map[string]bool{"-k 4": false, "-k 5": true, "-k 5 -q": true, "-k 4 --min 3": true} {
		_, errs, err := run(t, append([]string{"kmers", "count", in, "--out", out}, strings.Fields(args)...)...)
		if err != nil || strings.Contains(errs, "warning: "+out+" has no k-mers: in 1 records with 9 letters, ") != warns {
			t.Errorf("%s: %s %v, want a warning: %t", args, errs, err, warns)
		}
	}
	if _, _, err := run(t, "kmers", "dump", out, "-L", "5", "-U", "2"); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--lower 5 and --upper 2") {
		t.Errorf("bounds that leave nothing: %v", err)
	}
}

// TestHistogramOfFewCounts asks for more lines than there are counts: that takes memory for the counts only.
func TestHistogramOfFewCounts(t *testing.T) {
	dir := t.TempDir()
	reads, counts := filepath.Join(dir, "x.fa"), filepath.Join(dir, "x.wk")
	if err := os.WriteFile(reads, []byte(">x\nACGTACGTTTACG\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "kmers", "count", reads, "-k", "3", "--out", counts)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := must(t, "kmers", "histo", counts, "--high", "1073741824")
	runtime.ReadMemStats(&after)
	if want := must(t, "kmers", "histo", counts); got != want || got == "" {
		t.Errorf("%q, want %q", got, want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("%d bytes for %d lines", took, strings.Count(got, "\n"))
	}
	if got := must(t, "kmers", "histo", counts, "--high", "1"); got != "1 4\n2 3\n" {
		t.Errorf("counts above 1: %q", got)
	}
}
