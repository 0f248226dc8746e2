package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/testenv"
)

// genomes makes a taxonomy of two species, a genome of each, and reads from them; it gives the folder.
func genomes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	put := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	put("tax/nodes.dmp",
		"1\t|\t1\t|\tno rank\t|\n5\t|\t1\t|\tgenus\t|\n6\t|\t5\t|\tspecies\t|\n7\t|\t5\t|\tspecies\t|\n")
	put("tax/names.dmp", "6\t|\tPrimus primus\t|\t\t|\tscientific name\t|\n")
	var reads, mates strings.Builder
	for i, taxon := range []int{6, 7} {
		text := make([]byte, 3000)
		for j := range text {
			text[j] = "ACGT"[r.IntN(4)]
		}
		put(fmt.Sprintf("refs/%d.fa", taxon), fmt.Sprintf(">g%d taxid|%d\n%s\n", taxon, taxon, text))
		fmt.Fprintf(&reads, ">r%d taxid|%d\n%s\n", i, taxon, text[500:650])
		fmt.Fprintf(&mates, ">r%d taxid|%d\n%s\n", i, taxon, text[700:820])
	}
	put("1.fa", reads.String()+">r2 taxid|6\n"+strings.Repeat("AC", 60)+"\n")
	put("2.fa", mates.String()+">r2 taxid|6\n"+strings.Repeat("GA", 60)+"\n")
	return dir
}

func TestClassifyOverDevices(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	var db []byte
	lines := ""
	for _, over := range []string{"cpu", "cpu:0,cpu:1", "cpu:0,cpu:1,cpu:2"} {
		must(t, "classify", "build", in("over.db"), in("refs"), "--taxonomy", in("tax"), "--devices", over, "--force")
		made, err := os.ReadFile(in("over.db"))
		if err != nil {
			t.Fatal(err)
		}
		told := must(t, "classify", "query", in("over.db"), in("1.fa"), in("2.fa"), "--paired", "--devices", over)
		if db == nil {
			db, lines = made, told
		}
		if !bytes.Equal(made, db) || told != lines {
			t.Errorf("--devices %s makes another database, or says %q, not %q", over, told, lines)
		}
	}
	for _, args := range [][]string{{"build", in("x.db"), in("refs"), "--taxonomy", in("tax")},
		{"query", in("over.db"), in("1.fa")}, {"serve", in("over.db")}} {
		if _, _, err := run(t, append([]string{"classify", "--devices", "joined"},
			args...)...); exitCode(err) != exitUsage {
			t.Errorf("%s --devices joined: %v", args[0], err)
		}
	}
}

func TestClassify(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("whole.db"), in("refs"), "--taxonomy", in("tax"))
	must(t, "classify", "build", in("added.db"), in("refs/6.fa"), "--taxonomy", in("tax"))
	must(t, "classify", "build", in("added.db"), in("refs/7.fa"), "--add")
	whole, _ := os.ReadFile(in("whole.db"))
	added, _ := os.ReadFile(in("added.db"))
	if len(whole) == 0 || !bytes.Equal(whole, added) {
		t.Errorf("a database of %d bytes, and one that was added to of %d: want them equal", len(whole), len(added))
	}
	var info struct {
		Targets, Features int
		Window            int
	}
	if err := json.Unmarshal([]byte(must(t, "classify", "info", in("whole.db"), "--json")), &info); err != nil ||
		info.Targets != 2 || info.Features < 500 || info.Window != 127 {
		t.Errorf("%+v, %v", info, err)
	}

	got := must(t, "classify", "query", in("whole.db"), in("1.fa"), "--format", "metacache", "--report", in("report"),
		"--abundances", in("abundances"))
	if want := "r0\t|\t6\nr1\t|\t7\nr2\t|\t0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	report, _ := os.ReadFile(in("report"))
	if !strings.Contains(string(report), " 33.33\t1\t1\tS\t6\t    Primus primus\n") {
		t.Errorf("%s", report)
	}
	abundances, _ := os.ReadFile(in("abundances"))
	if !strings.Contains(string(abundances), "species\t6\tPrimus primus\t1\t33.3333\n") {
		t.Errorf("%s", abundances)
	}

	var s classifySummary
	text := must(t, "classify", "query", in("whole.db"), in("1.fa"), in("2.fa"), "--paired", "--lowest", "species",
		"--ground-truth", "--out", in("lines"), "--json")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if s.Reads != 3 || s.Classified != 2 || s.Ranks[0].Reads != 2 || s.Ranks[0].Precision != 1 ||
		s.Ranks[0].Sensitivity != 2.0/3 {
		t.Errorf("%+v", s)
	}
	lines, _ := os.ReadFile(in("lines"))
	if !strings.HasPrefix(string(lines), "C\tr0\t6\t150|120\t6:") || !strings.Contains(string(lines), " |:| 6:") ||
		!strings.Contains(string(lines), "U\tr2\t0\t120|120\t0:0 |:| 0:0\n") {
		t.Errorf("%s", lines)
	}
}

func TestClassifyErrors(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	if err := os.WriteFile(in("flipped.db"), flipped(t, in("x.db")), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args string
		says string
	}{
		{exitUsage, "classify build y.db refs", "--taxonomy"},
		{exitUsage, "classify query x.db 1.fa --lowest tribes", "want a rank"},
		{exitUsage, "classify query x.db 1.fa --hit-min -1", "want 1 or more"},
		{exitUsage, "classify query x.db 1.fa --memory 1", "MiB or more: the database takes"},
		{exitUsage, "classify build y.db refs --taxonomy tax --kmer 99", "want 4 to 16"},
		{exitUsage, "classify query x.db 1.fa --format xml", "want kraken or metacache"},
		{exitUsage, "classify query x.db 1.fa --paired", "even number"},
		{exitInput, "classify build y.db refs --taxonomy refs", "nodes.dmp"},
		{exitInput, "classify build y.db absent.fa --taxonomy tax", "absent.fa"},
		{exitInput, "classify query flipped.db 1.fa", "damaged"},
		{exitInput, "classify info 1.fa", "not a database"},
		{exitInput, "classify query x.db x.db", "x.db"},
	} {
		args := strings.Fields(c.args)
		for i, a := range args[2:] {
			if strings.Contains(a, ".") || a == "refs" || a == "tax" {
				args[i+2] = in(a)
			}
		}
		_, _, err := run(t, args...)
		if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: exit code %d, %v; want %d, %s", c.args, exitCode(err), err, c.code, c.says)
		}
	}
	var input *genome.InputError
	if _, _, err := run(t, "classify", "query", in("x.db"), in("nowhere.fa"), "--out", in("lines")); !errors.As(err,
		&input) {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	if _, err := os.Stat(in("lines")); err == nil || len(left) > 0 {
		t.Errorf("a query that failed left lines, or %v", left)
	}
}

func flipped(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	return data
}

// A shell's >> may add to what is read.
func TestStandardOutputIsAnInput(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	must(t, "kmers", "count", in("1.fa"), "-k", "5", "--out", in("x.wk"))
	for to, args := range map[string][]string{
		"1.fa": {"classify", "query", in("x.db"), in("1.fa")},
		"x.db": {"classify", "query", in("x.db"), in("1.fa")},
		"x.wk": {"kmers", "dump", in("x.wk")},
	} {
		f, err := os.OpenFile(in(to), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		before := os.Stdout
		os.Stdout = f
		_, _, err = run(t, args...)
		os.Stdout = before
		f.Close()
		if exitCode(err) != exitUsage || !strings.Contains(fmt.Sprint(err), "standard output goes to "+in(to)) {
			t.Errorf("%v >> %s: %v", args, to, err)
		}
	}
}

// What would destroy what is read, mix up mates, or do other than what flags say, is told before any work.
func TestGenomeMistakes(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	must(t, "kmers", "count", in("1.fa"), "-k", "5", "--out", in("x.wk"))
	before := map[string][]byte{}
	for _, name := range []string{"x.db", "1.fa", "2.fa", "x.wk", "refs/6.fa", "tax/nodes.dmp"} {
		before[name], _ = os.ReadFile(in(name))
	}
	err := errors.Join(os.WriteFile(in("packed"), []byte("BZh91AY&SY"), 0o600), os.Symlink("y", in("link")),
		testenv.Mkfifo(in("pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, []string{"kmers", "count", "1.fa", "-k", "5", "--out", "1.fa"}, "and would be written"},
		{exitUsage, []string{"kmers", "count", "1.fa", "-k", "5", "--out", "-"}, "want the name of a file"},
		{exitUsage, []string{"kmers", "count", "1.fa", "-k", "5", "--out", ""}, "it is empty"},
		{exitUsage, []string{"kmers", "count", "1.fa", "-k", "5", "--out", "refs"}, "a folder"},
		{exitUsage, []string{"kmers", "dump", "x.wk", "--parquet", "x.wk"}, "and would be written"},
		{exitInput, []string{"kmers", "count", "packed", "-k", "5", "--skip-broken", "--out", "y"}, "bzip2 -dc"},
		{exitInput, []string{"kmers", "stats", os.DevNull}, "a pipe, a folder or a device"},
		{exitInput, []string{"kmers", "stats", "pipe"}, "a pipe, a folder or a device"},
		{exitUsage, []string{"kmers", "count", "1.fa", "-k", "5", "--out", "pipe"}, "a pipe or a device"},
		{exitInput, []string{"classify", "info", "pipe"}, "a pipe, a folder or a device"},
		{exitInput, []string{"classify", "query", "refs", "1.fa"}, "a pipe, a folder or a device"},
		{exitUsage, []string{"classify", "build", "tax/nodes.dmp", "refs", "--taxonomy", "tax"}, "and would be written"},
		{exitUsage, []string{"classify", "build", "-", "refs", "--taxonomy", "tax"}, "DB -"},
		{exitUsage, []string{"classify", "build", "pipe", "refs", "--taxonomy", "tax"}, "pipe: a pipe or a device"},
		{exitUsage, []string{"kmers", "count", "-", "-", "-k", "5", "--out", "y"}, "- is given twice"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "--out", ""}, "it is empty"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "--out", "y", "--report", "link"}, "want two names"},
		{exitUsage, []string{"classify", "build", "refs/6.fa", "refs", "--taxonomy", "tax"}, "and would be written"},
		{exitUsage, []string{"classify", "build", "x.db", "refs", "--add", "-k", "15"}, "--kmer with --add"},
		{exitInput, []string{"classify", "build", "x.db", "refs", "--add", "--taxonomy", "mistyped"}, "mistyped: no such file"},
		{exitUsage, []string{"classify", "build", "y.db", "refs", "--taxonomy", "tax", "--stride", "0"}, "--stride 0"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "--out", "x.db"}, "and would be written"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "--out", "y", "--report", "y"}, "want two names"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "--report", "none/y"}, "--report"},
		{exitUsage, []string{"classify", "query", "x.db", "1.fa", "2.fa", "--paired", "--skip-broken"}, "--skip-broken with --paired"},
		{exitInput, []string{"classify", "query", "nothing.db", "1.fa"}, "nothing.db: no such file"},
	} {
		args := c.args[:2:2]
		for _, a := range c.args[2:] {
			if _, err := os.Lstat(in(a)); a != "" && (err == nil || strings.Contains(a, "mistyped") ||
				strings.HasPrefix(a, "y") || strings.Contains(a, "none/") || strings.Contains(a, "nothing")) {
				a = in(a)
			}
			args = append(args, a)
		}
		if _, _, err := run(t, args...); err == nil || exitCode(err) != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: exit code %d, %v; want %d, %s", args, exitCode(err), err, c.code, c.says)
		}
	}
	for name, text := range before {
		if now, _ := os.ReadFile(in(name)); !bytes.Equal(now, text) {
			t.Errorf("%s is no more what it was", name)
		}
	}
	both := must(t, "classify", "query", in("x.db"), in("1.fa"), in("2.fa"), "--paired")
	if got := must(t, "classify", "query", in("x.db"), in("[12].fa"), "--paired"); got != both {
		t.Errorf("mates of a pattern: %q, want %q", got, both)
	}
}

// TestReadsAmongGenomes builds from a folder in which files of reads lie: the summary lists the files, and a warning names
// those with reads, also with --quiet.
func TestReadsAmongGenomes(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	var reads strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&reads, ">r%d taxid|6\n%s\n", i, strings.Repeat("ACGTTGCA", 20))
	}
	for name, text := range map[string]string{"sample.fna": reads.String(), "few.fastq": "@r taxid|6\nACGTACGT\n+\nIIIIIIII\n"} {
		if err := os.WriteFile(in("refs/"+name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, errs, err := run(t, "classify", "build", in("a.db"), in("refs"), "--taxonomy", in("tax"))
	want := fmt.Sprintf("warning: these files seem to have reads, and count as references: %s (1), %s (1,200): ", in("refs/few.fastq"), in("refs/sample.fna"))
	if err != nil || !strings.Contains(errs, want) || !strings.Contains(errs, "4: "+in("refs/6.fa")+" (1), ") || !strings.Contains(errs, "1 more") {
		t.Errorf("%v %s, want %s and the files", err, errs, want)
	}
	if _, errs, err = run(t, "classify", "build", in("a.db"), in("refs"), "--taxonomy", in("tax"), "--force", "-q"); err != nil || !strings.Contains(errs, want) {
		t.Errorf("%v %s, want %s with --quiet", err, errs, want)
	}
	var got struct {
		Inputs []struct {
			Name               string
			Sequences, Letters int64
		}
	}
	out, errs, err := run(t, "classify", "build", in("b.db"), in("refs/[67].fa"), "--taxonomy", in("tax"), "--json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &got)); err != nil || len(got.Inputs) != 2 || got.Inputs[1].Sequences != 1 ||
		got.Inputs[1].Letters != 3000 || strings.Contains(errs, "warning") {
		t.Errorf("%+v %s %v", got, errs, err)
	}
}

// TestInputsNamedTwice reads a file that is named twice as often as it is named, as jellyfish and kmc do, and warns of it,
// also with --quiet: a folder and a file in it, or a link, are easily given both.
func TestInputsNamedTwice(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Link(in("1.fa"), in("link.fa")); err != nil {
		t.Skip(err)
	}
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	for _, c := range []struct{ args, want string }{
		{"kmers count 1.fa 2.fa -k 5 -o x.wk", ""},
		{"kmers count 1.fa 1.fa -k 5 -o x.wk", "1.fa is the same file as 1.fa"},
		{"kmers count 1.fa link.fa 2.fa 1.fa -k 5 -o x.wk -q", "(2 of 4): link.fa is the same file as 1.fa"},
		{"classify build y.db refs --taxonomy tax --force", ""},
		{"classify build y.db refs refs/6.fa --taxonomy tax --force", "refs/6.fa is the same file as refs/6.fa"},
		{"classify query x.db 1.fa 2.fa --out x.tsv", ""},
		{"classify query x.db 1.fa link.fa --paired --out x.tsv", "link.fa is the same file as 1.fa"},
		{"classify query x.db 1.fa link.fa --json", ""}, // stdout has the lines, and stderr JSON
		{"classify query x.db 1.fa link.fa --json --out x.tsv", "link.fa is the same file as 1.fa"},
	} {
		t.Chdir(dir)
		_, errs, err := run(t, strings.Fields(c.args)...)
		if err != nil || strings.Contains(errs, "warning: ") != (c.want != "") ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%s: %v %s, want %q", c.args, err, errs, c.want)
		}
	}
	t.Chdir(dir)
	once, twice := must(t, "kmers", "count", "1.fa", "-k", "5", "-o", "x.wk", "--json"),
		must(t, "kmers", "count", "1.fa", "link.fa", "-k", "5", "-o", "x.wk", "--json")
	var a, b kmers.Summary
	if err := errors.Join(json.Unmarshal([]byte(once), &a), json.Unmarshal([]byte(twice), &b)); err != nil ||
		b.Total != 2*a.Total || a.Total == 0 || b.Distinct != a.Distinct {
		t.Errorf("%+v, %+v, %v: want counts twice as large", a, b, err)
	}
}

// TestMatesOfOtherReads warns if files of mates do not belong together, which no count of records shows.
func TestMatesOfOtherReads(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	for _, c := range []struct {
		first, second string
		want          int
	}{{"a/1 x\tb y\tc.1", "a/2 y\tb z\tc.2", 0}, {"a\tb\tc", "b\ta\tc", 2}, {"a/1\tb\tc", "a/1\tb/2\tc", 0},
		{"a1\tb\tc", "a2\tb\tc", 1}, {"a 1\tb\t", "a 2\tbb\t", 1}} {
		for name, headers := range map[string]string{"m1.fa": c.first, "m2.fa": c.second} {
			text := ""
			for header := range strings.SplitSeq(headers, "\t") {
				text += ">" + header + "\nACGTACGT\n"
			}
			if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, errs, err := run(t, "classify", "query", in("x.db"), in("m1.fa"), in("m2.fa"), "--paired", "--json", "--out",
			in("x.tsv"))
		var s classifySummary
		if err := errors.Join(err, json.Unmarshal([]byte(out), &s)); err != nil || s.Strangers != int64(c.want) ||
			strings.Contains(errs, fmt.Sprintf("warning: %d of 3 pairs have mates with different names", c.want)) !=
				(c.want > 0) {
			t.Errorf("%q, %q: %d strangers, %v %s, want %d", c.first, c.second, s.Strangers, err, errs, c.want)
		}
	}
}
