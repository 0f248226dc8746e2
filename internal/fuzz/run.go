package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fuzzer is a function FuzzX, and the folder of its package, from the root and with slashes.
type fuzzer struct{ dir, name string }

func (f fuzzer) String() string { return path.Join(f.dir, f.name) }

// testdata is where the fuzzer's corpus is.
func (f fuzzer) testdata() string {
	return filepath.Join(filepath.FromSlash(f.dir), "testdata", "fuzz", f.name)
}

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// find gives the fuzzers below root whose names are wanted, by name. It reads the tests of the packages that go list
// gives, so it compiles nothing.
func find(ctx context.Context, root string, wanted *regexp.Regexp) (out []fuzzer, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-f",
		`{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`,
		"./...")
	list.Dir, list.Stderr = root, os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(string(text)) {
		test, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		for _, m := range declared.FindAllSubmatch(test, -1) {
			if f := (fuzzer{filepath.ToSlash(dir), string(m[1])}); wanted.MatchString(f.String()) {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, func(a, b fuzzer) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}

// result is what came of a fuzzer.
type result struct {
	fuzzer
	execs       int64
	interesting int64 // inputs that were new to Go's cache
	found       *finding
	wrong       error // that kept it from running, or its corpus from being kept
}

// finding is an input that fails.
type finding struct {
	input string // its file, if there is one
	text  string // what the test says
}

var (
	progress = regexp.MustCompile(`^fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)
	written  = regexp.MustCompile(`Failing input written to (\S+)`)
	seeded   = regexp.MustCompile(`failure while testing seed corpus entry: \w+/(\S+)`)
)

// run has go test run the fuzzer for so long.
func (r *result) run(ctx context.Context, share time.Duration, parallel int, out io.Writer) {
	fmt.Fprintf(out, "%s for %v\n", r.fuzzer, share.Round(time.Second))
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+r.name+"$", "-fuzztime", share.String(),
		"-fuzzminimizetime", "1s", "-timeout", "0", "-parallel", strconv.Itoa(parallel), "./"+r.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	r.read(&said)
	if err == nil || ctx.Err() != nil {
		r.found = nil
	} else if r.found == nil { // it did not come as far as an input
		r.found = &finding{text: said.String()}
	}
}

// read takes from go test's output how far it came, and what it found.
func (r *result) read(said *bytes.Buffer) {
	lines := bufio.NewScanner(bytes.NewReader(said.Bytes()))
	lines.Buffer(nil, said.Len()+1)
	for lines.Scan() {
		line := lines.Text()
		if m := progress.FindStringSubmatch(line); m != nil {
			r.execs, _ = strconv.ParseInt(m[1], 10, 64)
			r.interesting, _ = strconv.ParseInt(m[2], 10, 64)
		}
		if m := written.FindStringSubmatch(line); m != nil {
			r.found = &finding{path.Join(r.dir, m[1]), failure(said.String())}
		}
		if m := seeded.FindStringSubmatch(line); m != nil {
			r.found = &finding{path.Join(r.dir, "testdata/fuzz", r.name, m[1]), failure(said.String())}
		}
	}
}

// failure is what a test's output says from its failure on, and not much of it.
func failure(text string) string {
	if at := strings.Index(text, "--- FAIL"); at >= 0 {
		text = text[at:]
	}
	const most = 4000
	if len(text) > most {
		text = text[:most] + "…\n"
	}
	return text
}
