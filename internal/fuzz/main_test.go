package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// What go test says of a run is read: how far it came, and the input that failed.
func TestRead(t *testing.T) {
	const began = "fuzz: elapsed: 0s, gathering baseline coverage: 0/9 completed\n" +
		"fuzz: elapsed: 3s, execs: 120 (40/sec), new interesting: 2 (total: 11)\n" +
		"fuzz: elapsed: 6s, execs: 3450 (1110/sec), new interesting: 5 (total: 14)\n"
	for name, c := range map[string]struct {
		said, input        string
		execs, interesting int64
	}{
		"nothing found": {began + "PASS\nok  \tm/p\t6.1s\n", "", 3450, 5},
		"found": {began + "--- FAIL: FuzzX (6.00s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: bad\n    \n" +
			"    Failing input written to testdata/fuzz/FuzzX/0123456789abcdef\n", "p/testdata/fuzz/FuzzX/0123456789abcdef", 3450, 5},
		"in the corpus": {"failure while testing seed corpus entry: FuzzX/old\n--- FAIL: FuzzX (0.00s)\n",
			"p/testdata/fuzz/FuzzX/old", 0, 0},
	} {
		r := result{fuzzer: fuzzer{"p", "FuzzX"}}
		r.read(bytes.NewBufferString(c.said))
		input := ""
		if r.found != nil {
			input = r.found.input
		}
		if input != c.input || r.execs != c.execs || r.interesting != c.interesting {
			t.Errorf("%s: %q after %d executions, %d new: want %+v", name, input, r.execs, r.interesting, c)
		}
	}
}

// A process that fails has found something, also where it names no input, but not where Go takes the end of its time for a
// failure.
func TestEnded(t *testing.T) {
	const end = "fuzz: elapsed: 2m0s, execs: 275518 (0/sec), new interesting: 105 (total: 119)\n--- FAIL: FuzzX (120.12s)\n"
	const late = end + "    context deadline exceeded\nFAIL\n"
	for _, c := range []struct {
		said            string
		fails, cut, has bool
	}{
		{late, true, false, false},
		{end + "    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n", true, false, true},
		{end + "    x_test.go:9: context deadline exceeded\nFAIL\n", true, false, true},
		{late + "panic: x\n", true, false, true},
		{"panic: x\n", true, false, true},
		{"panic: x\n", true, true, false},
		{"PASS\n", false, false, false},
	} {
		r := result{fuzzer: fuzzer{"p", "FuzzX"}}
		var err error
		if c.fails {
			err = errors.New("exit status 1")
		}
		r.ended(err, c.cut, bytes.NewBufferString(c.said))
		if (r.found != nil) != c.has {
			t.Errorf("%q: %v", c.said, r.found)
		}
	}
}

// The module's fuzzers are found by their names, and no others, such as the planted one below.
func TestFind(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skip("the sources are not here")
	}
	all, err := find(t.Context(), root, regexp.MustCompile("^(internal|join)/.*Fuzz"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(all, fuzzer{"join", "FuzzCSV"}) || !slices.Contains(all, fuzzer{"internal/files", "FuzzText"}) ||
		slices.ContainsFunc(all, func(f fuzzer) bool { return f.dir == "internal/fuzz" || f.dir == "device" }) {
		t.Errorf("%v", all)
	}
}

// Inputs stay that reach more than those before them, the ones that add most where there are too many, and those that
// people have named.
func TestChoose(t *testing.T) {
	inputs := []input{{name: "a-name"}, {name: "0000000000000001"}, {name: "0000000000000002"}, {name: "0000000000000003"}}
	if err := gains("FuzzX/seed#0\t0.1\nFuzzX/000000\t0.1\nFuzzX/000001\t0.2\nFuzzX/000002\t0.2\nFuzzX/000003\t0.5\n",
		inputs); err != nil {
		t.Fatal(err)
	}
	names := func(inputs []input) (out []string) {
		for _, i := range inputs {
			out = append(out, i.name)
		}
		return out
	}
	if got := names(choose(inputs)); !slices.Equal(got, []string{"a-name", "0000000000000003", "0000000000000001"}) {
		t.Errorf("%q stay", got)
	}
	many := slices.Repeat([]input{{name: "0000000000000001", gain: 0.1}}, 2*mostFiles)
	many[70].gain, many[70].name = 0.2, "000000000000000b"
	if got := choose(many); len(got) != mostFiles || got[0].name != "000000000000000b" {
		t.Errorf("%d stay, the first is %s", len(got), got[0].name)
	}
	if got := names(choose([]input{{name: "0000000000000001"}, {name: "0000000000000002"}})); len(got) != 1 {
		t.Errorf("where nothing adds anything, %q stay", got)
	}
	for _, text := range []string{"FuzzX/000000\tx\n", "FuzzX/000009\t0.5\n", ""} {
		if gains(text, inputs) == nil {
			t.Errorf("%q is read as what four inputs reach", text)
		}
	}
}

// reached is code whose parts a fuzzer has to find.
const reached = `package planted

func reach(s string) (n int) {
	if len(s) > 0 && s[0] == 'a' {
		n++
		if len(s) > 1 && s[1] == 'b' {
			n++
		}
	}
	return n
}
`

// planted is a fuzzer with a defect, which its seeds do not reach, and code that an input of the corpus reaches alone.
const planted = `package planted

import (
	"fmt"
	"os"
	"testing"
)

func FuzzPlanted(f *testing.F) {
	f.Add("a")
	f.Fuzz(func(t *testing.T, s string) {
		n := reach(s)
		if file := os.Getenv("WARPMAP_FUZZ_COVERAGE"); file != "" {
			f, _ := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			fmt.Fprintf(f, "%s\t%.9f\n", t.Name(), testing.Coverage())
			f.Close()
		}
		if n == 2 && len(s) > 2 && s[2] == 'c' && os.Getenv("MENDED") == "" {
			t.Fatal("the defect")
		}
	})
}
`

// The command finds a planted defect, says so with its end, and leaves the input where go test runs it again. Once it is
// mended, the corpus keeps that input by the name that somebody gave it, and of others what reaches more.
func TestFindsADefect(t *testing.T) {
	if !testenv.Long() {
		t.Skip("building for go test -fuzz takes half a minute: WARPMAP_LONG=1 does it")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
	put := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("go.mod", "module planted\n\ngo 1.26\n")
	put("p/p.go", reached)
	put("p/p_test.go", planted)
	put("internal/files/files.go", "package files\n")
	var out strings.Builder
	err := command(t.Context(), []string{"-time", "1m", "-run", "p/FuzzPlanted"}, &out)
	found, _ := filepath.Glob("p/testdata/fuzz/FuzzPlanted/*")
	if !errors.Is(err, errFound) || len(found) != 1 || !strings.Contains(out.String(), found[0]) ||
		!strings.Contains(out.String(), "the defect") {
		t.Fatalf("%v, %q\n%s", err, found, &out)
	}
	if err := os.Rename(found[0], "p/testdata/fuzz/FuzzPlanted/the-defect"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MENDED", "1")
	put("p/testdata/fuzz/FuzzPlanted/00000000000000aa", "go test fuzz v1\nstring(\"x\")\n")
	out.Reset()
	if err := command(t.Context(), []string{"-time", "5s", "-keep"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	entries, _ := os.ReadDir("p/testdata/fuzz/FuzzPlanted")
	if len(entries) != 1 || entries[0].Name() != "the-defect" { // it reaches all that there is
		t.Errorf("%v\n%s", entries, &out)
	}
	if !regexp.MustCompile(`(?m)^ *\d+ +\d+ +1 +- +p/FuzzPlanted *$`).MatchString(out.String()) {
		t.Errorf("no table: %s", &out)
	}
}
