package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
		test, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		for _, d := range test.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			if f := (fuzzer{filepath.ToSlash(dir), fn.Name.Name}); wanted.MatchString(f.String()) {
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
	// late is all that Go has to say where the time is over, and it takes its own deadline for a failure: it may see that
	// before its workers' context has ended, too (go.dev/issue/75804; Go 1.27 does not).
	late = regexp.MustCompile(`(?m)^--- FAIL: \w+ \([0-9.]+s\)\n    context deadline exceeded\nFAIL\n*\z`)
)

// runner runs fuzzers, each of the test binary of its package, which is built once.
type runner struct {
	built    string // the folder of the binaries
	parallel int
	out      io.Writer
}

// build makes a package's test binary, as go test -fuzz does, unless it is there.
func (u *runner) build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(u.built, strings.ReplaceAll(dir, "/", "-")+".test")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	text, err := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz", ".", "-o", binary, "./"+dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return binary, nil
}

// run runs a fuzzer for so long, from when it is built.
func (u *runner) run(ctx context.Context, r *result, share time.Duration) {
	binary, err := u.build(ctx, r.dir)
	if err != nil {
		r.wrong = err
		return
	}
	cache, err := r.cache(ctx)
	if err != nil {
		r.wrong = err
		return
	}
	fmt.Fprintf(u.out, "%s for %v\n", r.fuzzer, share.Round(time.Second))
	cmd := exec.CommandContext(ctx, binary, "-test.paniconexit0", "-test.run", "^$", "-test.fuzz", "^"+r.name+"$",
		"-test.fuzztime", share.String(), "-test.fuzzminimizetime", "1s", "-test.timeout", "0",
		"-test.parallel", strconv.Itoa(u.parallel), "-test.fuzzcachedir", cache)
	cmd.Dir = filepath.FromSlash(r.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	r.ended(err, ctx.Err() != nil, &said)
}

// ended takes what came of a process that ended with an error or without, or was cut off.
func (r *result) ended(err error, cut bool, said *bytes.Buffer) {
	r.read(said)
	switch {
	case err == nil || cut:
		r.found = nil
	case r.found == nil && !late.Match(said.Bytes()): // it did not come as far as an input
		r.found = &finding{text: said.String()}
	}
}

// cache is the folder in which Go keeps the inputs of the fuzzer's package.
func (f fuzzer) cache(ctx context.Context) (string, error) {
	where, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}}", "./"+f.dir).Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(cache)), "fuzz", filepath.FromSlash(strings.TrimSpace(string(where)))), nil
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
