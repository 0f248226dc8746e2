package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/kmers"
)

func TestKmers(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.fq"), filepath.Join(dir, "out.wk")
	if err := os.WriteFile(in, []byte("@a\nAACCCC\n+\n!!!!!!\n@b\nGGnGTT\n+\n!!!!!!\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s kmers.Summary
	if err := json.Unmarshal([]byte(must(t, "kmers", "count", in, "-k", "3", "-C", "--out", out, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	// AAC ACC CCC CCC, and GTT, which is AAC's.
	if want := (kmers.Summary{Read: genome.Counts{Inputs: 1, Records: 2, Letters: 12}, Passes: 1, Stats: kmers.Stats{Unique: 1, Distinct: 3, Total: 5, MaxCount: 2}}); s != want {
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
	must(t, "join", filepath.Join(dir, "k.parquet"), filepath.Join(dir, "k.parquet"), "--on", "kmer", "--how", "semi", "--out", filepath.Join(dir, "k.csv"), "--quiet")
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
	if _, said, err := run(t, "kmers", "count", broken, "-k", "3", "-o", out, "--skip-broken"); err != nil || !strings.Contains(said, "1 broken ones left out") {
		t.Errorf("%q, %v", said, err)
	}
	for _, c := range []struct {
		code int
		args string
	}{
		{exitUsage, "count in.fq"}, {exitUsage, "count in.fq -k 33"}, {exitUsage, "count -k 3"}, {exitInput, "count absent.fq -k 3"}, {exitInput, "count " + broken + " -k 3"},
		{exitInput, "stats " + in}, {exitInput, "query " + filepath.Join(dir, "absent.wk") + " AAA"}, {exitOther, "query " + out + " AAAA"},
	} {
		if _, _, err := run(t, append([]string{"kmers"}, strings.Fields(c.args)...)...); exitCode(err) != c.code {
			t.Errorf("%s: %v, exit code %d, want %d", c.args, err, exitCode(err), c.code)
		}
	}
	if left, err := os.ReadDir("."); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".wk") }) {
		t.Errorf("files of counts are left: %v", err)
	}
}
