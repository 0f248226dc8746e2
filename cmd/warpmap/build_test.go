package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A database in which no sequence has a taxon would tell nothing: that is an error, which says where taxa are looked
// for. Where some have none, a line tells which.
func TestBuildWithoutTaxa(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) string {
		os.MkdirAll(filepath.Dir(in(name)), 0o700)
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return in(name)
	}
	var none, some strings.Builder
	for i := range 9 {
		fmt.Fprintf(&none, ">NC_%d.1 some words\n%s\n", i, strings.Repeat("ACGTTGCA", 40))
	}
	fmt.Fprintf(&some, "%s>known taxid|6\n%s\n>foreign taxid|77\nACGT\n", none.String(), strings.Repeat("AC", 100))
	put("none.fa", none.String())
	put("some.fa", some.String())
	put("short.fa", ">a taxid|6\nACGT\n>b taxid|6\n"+strings.Repeat("N", 500)+"\n")
	put("foreign.fa", ">a taxid|77\nACGT\n>b taxid|78\nACGT\n")
	must(t, "classify", "build", in("old.db"), in("refs"), "--taxonomy", in("tax"))
	before, _ := os.ReadFile(in("old.db"))
	for _, c := range []struct {
		args string
		says []string
	}{
		{"new.db none.fa --taxonomy tax", []string{"none of 9 sequences has a taxon", "would tell nothing", "taxid|N", "no assembly_summary*.txt", "no *.accession2taxid", in("tax")}},
		{"new.db foreign.fa --taxonomy tax", []string{"none of 2 sequences has a taxon", "2 have a taxid that the taxonomy lacks, such as 77"}},
		{"new.db short.fa --taxonomy tax", []string{"2 sequences with 504 letters have no 16 letters", "would tell nothing"}},
		{"old.db none.fa --add", []string{"none of 9 sequences has a taxon", "--taxonomy"}},
		{"old.db none.fa --add --taxonomy tax", []string{"none of 9 sequences has a taxon", "no *.accession2taxid"}},
		{"old.db none.fa --force --taxonomy tax", []string{"none of 9 sequences has a taxon"}},
	} {
		args := []string{"classify", "build"}
		for _, a := range strings.Fields(c.args) {
			if !strings.HasPrefix(a, "--") {
				a = in(a)
			}
			args = append(args, a)
		}
		_, _, err := run(t, args...)
		if exitCode(err) != exitInput {
			t.Errorf("%s: exit code %d, %v", c.args, exitCode(err), err)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want %s", c.args, err, says)
			}
		}
	}
	if _, err := os.Stat(in("new.db")); err == nil {
		t.Error("a database that tells nothing is there")
	}
	if now, _ := os.ReadFile(in("old.db")); !bytes.Equal(now, before) {
		t.Error("a database was replaced by one that tells nothing")
	}
	_, told, err := run(t, "classify", "build", in("some.db"), in("some.fa"), "--taxonomy", in("tax"))
	if want :=
		`10 of 11 sequences hang on the root, for nothing tells a taxon of theirs that the taxonomy has: "NC_0.1", "NC_1.1", "NC_2.1" and others`; err != nil || !strings.Contains(told, want) {
		t.Errorf("%v, %s; want %s", err, told, want)
	}
	put("tax/x.accession2taxid", "NC_1\tNC_1.1\t7\t0\n")
	if _, told, err := run(t, "classify", "build", in("listed.db"), in("none.fa"), "--taxonomy",
		in("tax")); err != nil || !strings.Contains(told, "8 of 9 sequences") {
		t.Errorf("%v, %s", err, told)
	}
	put("beside/assembly_summary.txt", "# accession\ttaxid\nGCF_5.1\t6\n")
	put("beside/GCF_5.1_x.fa", none.String())
	if _, told, err := run(t, "classify", "build", in("beside.db"), in("beside"), "--taxonomy",
		in("tax")); err != nil || strings.Contains(told, "hang on the root") {
		t.Errorf("%v, %s", err, told)
	}
}

// A database that is there is added to, or replaced, only if the command says so.
func TestBuildOverDatabase(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	before, err := os.ReadFile(in("x.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x.db", in("link.db")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.db", "link.db", "1.fa"} {
		_, _, err := run(t, "classify", "build", in(name), in("refs/6.fa"), "--taxonomy", in("tax"))
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "is there") ||
			!strings.Contains(err.Error(), "--add") || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: exit code %d, %v", name, exitCode(err), err)
		}
	}
	if _, _, err := run(t, "classify", "build", in("x.db"), in("refs/6.fa"), "--add",
		"--force"); exitCode(err) != exitUsage {
		t.Errorf("--add --force: %v", err)
	}
	if _, _, err := run(t, "classify", "build", in("new.db"), in("refs/6.fa"), "--add"); exitCode(err) != exitInput {
		t.Errorf("--add to nothing: %v", err)
	}
	if now, _ := os.ReadFile(in("x.db")); !bytes.Equal(now, before) {
		t.Error("the database is no more what it was")
	}
	must(t, "classify", "build", in("x.db"), in("refs/6.fa"), "--taxonomy", in("tax"), "--force")
	if now, _ := os.ReadFile(in("x.db")); len(now) == 0 || bytes.Equal(now, before) {
		t.Error("--force left the database as it was")
	}
	must(t, "classify", "build", in("x.db"), in("refs/7.fa"), "--add")
	if now, _ := os.ReadFile(in("x.db")); !bytes.Equal(now, before) {
		t.Error("--add made another database than both at once")
	}
}

// What info cannot write is an error.
func TestInfoOnFullDisk(t *testing.T) {
	dir := genomes(t)
	db := filepath.Join(dir, "x.db")
	must(t, "classify", "build", db, filepath.Join(dir, "refs"), "--taxonomy", filepath.Join(dir, "tax"))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"classify", "info", db}, {"classify", "info", db, "--json"}} {
		cmd := root()
		cmd.SetOut(full)
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
