package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/join"
)

// The command counts exactly without a device, and estimates with one; it says with JSON what it found, and ends with
// the code of what is wrong.
func TestDistinct(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.csv")
	var text strings.Builder
	text.WriteString("user;name\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "%d;n%d\n", i%1000, i%7)
	}
	if err := os.WriteFile(path, []byte(text.String()+"NA;n0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--delimiter", ";", "--null", "NA"}
	distinct := func(args ...string) string {
		t.Helper()
		return must(t, append(append([]string{"distinct", path}, flags...), args...)...)
	}
	if out := distinct("--column", "user"); out != "1000\n" {
		t.Errorf("%q", out)
	}
	if out := distinct("-c", "name", "--threads", "1", "--quiet"); out != "7\n" {
		t.Errorf("%q", out)
	}
	for _, approx := range []bool{false, true} {
		args := []string{"-c", "user", "--json"}
		if approx {
			args = append(args, "--approx", "--device", "cpu")
		}
		var s join.DistinctSummary
		if err := json.Unmarshal([]byte(distinct(args...)), &s); err != nil {
			t.Fatal(err)
		}
		if s.Rows != 3001 || s.Nulls != 1 || s.Type != "int64" || s.Total <= 0 || (s.StandardError != 0) != approx ||
			(s.Device == "cpu") != approx || s.Distinct < 950 || s.Distinct > 1050 || s.Distinct != 1000 && !approx {
			t.Errorf("--approx %t: %+v", approx, s)
		}
	}
	for args, want := range map[string]int{
		"":                                   exitUsage,
		path:                                 exitUsage,
		path + " -c other":                   exitUsage,
		path + " -c a --format":              exitUsage,
		path + " -c a --format xml":          exitUsage,
		path + " -c user --memory -1":        exitUsage,
		path + " -c user --threads -1":       exitUsage,
		path + " -c user --threads 1025":     exitUsage, // some thousand millions of them took all memory
		path + " -c user --delimiter ;;":     exitUsage,
		path + ".csv -c user":                exitInput,
		path + " -c user;name --memory 1000": exitMemory,
		path + " -c user;name --approx --device cpu --device-memory 10kB": exitMemory,
	} {
		_, _, err := run(t, append([]string{"distinct"}, strings.Fields(args)...)...)
		if got := exitCode(err); err == nil || got != want {
			t.Errorf("distinct %s: %v ends with %d, want %d", args, err, got, want)
		}
	}
}

// The command prints CSV, or JSON with the error of an estimate.
func TestTop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("city,n\n\"a,b\",1\nc,2\n\"a,b\",3\n,4\nd,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-c city":              "city,count\n\"a,b\",2\nc,1\nd,1\n",
		"-c city -k 1 --quiet": "city,count\n\"a,b\",2\n",
		"-c n --most 2 --approx --threads 1 --types n=text": "n,count\n1,1\n2,1\n",
		"-c city --approx --memory 1MB -k 1":                "city,count\n\"a,b\",2\n",
	} {
		if out := must(t, append([]string{"top", path}, strings.Fields(args)...)...); out != want {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
	}
	// An empty text is no null, in what is read and in what is written.
	empty := filepath.Join(t.TempDir(), "empty.csv")
	if err := os.WriteFile(empty, []byte("city,n\n\"\",1\n,2\n\"\",3\nb,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	written := must(t, "top", empty, "-c", "city")
	if want := "city,count\n\"\",2\nb,1\n"; written != want {
		t.Errorf("%q, want %q", written, want)
	}
	if err := os.WriteFile(empty, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := must(t, "distinct", empty, "-c", "city"); n != "2\n" {
		t.Errorf("read again, it has %q distinct values", n)
	}
	for _, command := range []string{"top", "distinct"} { // the last --device counts: run adds cpu
		cmd := root()
		cmd.SetArgs([]string{command, path, "-c", "city", "--device", "cuda:0"})
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || exitCode(err) != exitUsage ||
			!strings.Contains(err.Error(), "without --approx") {
			t.Errorf("%s on a GPU, exactly: %v", command, err)
		}
	}
	t.Run("no compiler", func(t *testing.T) { // nor a GPU: the cores count
		t.Setenv("CXX", "/nonexistent/c++")
		cmd, out := root(), new(strings.Builder)
		cmd.SetArgs([]string{"top", path, "-c", "city", "-k", "1", "--approx"})
		cmd.SetOut(out)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err != nil || out.String() != "city,count\n\"a,b\",2\n" {
			t.Errorf("%v, %q", err, out)
		}
	})
	var s join.TopSummary
	out := must(t, "top", path, "-c", "city", "-k", "1", "--approx", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Rows != 5 || s.Nulls != 1 || s.Type != "utf8" ||
		len(s.Values) != 1 || s.Values[0] != (join.TopValue{Value: "a,b", Count: 2}) || s.Error != 0 || s.Total <= 0 {
		t.Errorf("%s: %+v, %v", out, s, err)
	}
	for args, want := range map[string]int{
		"": exitUsage, path: exitUsage, path + " -c city -k 0": exitUsage, path + " -c other": exitUsage,
		path + "x -c city": exitInput, path + " -c city --memory 10": exitMemory, path + " -c city -k 9999999": exitUsage,
	} {
		_, _, err := run(t, append([]string{"top"}, strings.Fields(args)...)...)
		if got := exitCode(err); err == nil || got != want {
			t.Errorf("top %s: %v ends with %d, want %d", args, err, got, want)
		}
	}
}

// TestTextWithoutHeader counts the values of a column of text whose first line is a row. Taken for a header, it has a
// warning, once and also with --quiet.
func TestTextWithoutHeader(t *testing.T) {
	in := filepath.Join(t.TempDir(), "r.tsv")
	if err := os.WriteFile(in, []byte("chr1\t100\t200\nchr1\t150\t250\nchr2\t5\t9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"top", in, "--no-header", "-c", "1"}, {"top", in, "-c", "chr1", "-q"}} {
		out, errs, err := run(t, args...)
		headless := args[2] == "--no-header"
		want := map[bool]string{true: "1,count\nchr1,2\nchr2,1\n", false: "chr1,count\nchr1,1\nchr2,1\n"}[headless]
		if err != nil || out != want || strings.Count(errs, "warning: ") != map[bool]int{false: 1}[headless] ||
			!headless && !strings.Contains(errs, "column 2 is the number 100") {
			t.Errorf("%s: %q %q %v, want %q", args, out, errs, err, want)
		}
	}
	if out, errs, err := run(t, "join", in, in, "--on", "1", "--no-header", "--count"); err != nil || out != "5\n" {
		t.Errorf("join: %q %q %v", out, errs, err)
	}
}
