package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A corpus has so many files at most, each of so many bytes, and all of them so many.
const (
	mostFiles  = 40
	mostBytes  = 16 << 10
	mostCorpus = 96 << 10
)

// hashed is the name that Go gives an input. Files of other names were named by people, because they once failed.
var hashed = regexp.MustCompile(`^[0-9a-f]{16}$`)

// input is a file of Go's cache or of testdata.
type input struct {
	name string
	text []byte
	own  bool    // of testdata
	gain float64 // how much more of the code it reaches than those before it
}

// corpus are the files in the fuzzer's testdata.
func (f fuzzer) corpus() []input { return read(f.testdata(), true) }

func read(dir string, own bool) (out []input) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, input{name: e.Name(), text: text, own: own})
		}
	}
	return out
}

// keep chooses the fuzzer's corpus anew. All inputs run in one process: files with names of people first, then the
// smallest first. An input is kept if more statements are covered behind it than before it, which testenv.Bounded
// writes down, and of too many those that add most.
func (r *result) keep(ctx context.Context, out io.Writer) {
	inputs, err := r.candidates(ctx)
	if err == nil {
		err = r.measure(ctx, inputs)
	}
	if err != nil {
		r.wrong = fmt.Errorf("its corpus is as it was: %w", err)
		return
	}
	chosen := choose(inputs)
	if err := r.write(inputs, chosen); err != nil {
		r.wrong = err
	}
	fmt.Fprintf(out, "%s keeps %d of %d inputs\n", r.fuzzer, len(chosen), len(inputs))
}

// candidates are the inputs of testdata and of the cache, in the order in which they run.
func (r *result) candidates(ctx context.Context) ([]input, error) {
	dir, err := r.cache(ctx)
	if err != nil {
		return nil, err
	}
	inputs, known := r.corpus(), map[string]bool{}
	for _, i := range inputs {
		known[string(i.text)] = true
	}
	for _, i := range read(filepath.Join(dir, r.name), false) {
		if !known[string(i.text)] && len(i.text) <= mostBytes {
			inputs = append(inputs, i)
		}
	}
	slices.SortStableFunc(inputs, func(a, b input) int {
		if h := hashed.MatchString(a.name); h != hashed.MatchString(b.name) {
			if h {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(len(a.text), len(b.text)), bytes.Compare(a.text, b.text))
	})
	return inputs, nil
}

// measure runs the inputs and fills in their gains. The process has a folder of its own, whose testdata is the
// package's, but for these inputs: go test runs a corpus in the order of its files' names, behind the seeds.
func (r *result) measure(ctx context.Context, inputs []input) error {
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "testdata", "fuzz", r.name)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	own, err := filepath.Abs(filepath.Join(filepath.FromSlash(r.dir), "testdata"))
	if err != nil {
		return err
	}
	entries, _ := os.ReadDir(own)
	for _, e := range entries {
		if e.Name() != "fuzz" {
			if err := os.Symlink(filepath.Join(own, e.Name()), filepath.Join(dir, "testdata", e.Name())); err != nil {
				return err
			}
		}
	}
	for i, in := range inputs {
		if err := os.WriteFile(filepath.Join(at, numbered(i)), in.text, 0o600); err != nil {
			return err
		}
	}
	binary, told := filepath.Join(dir, "fuzz.test"), filepath.Join(dir, "coverage")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-cover", "-coverpkg", covered(r.dir), "-o", binary, "./"+r.dir)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	test := exec.CommandContext(ctx, binary, "-test.run", "^"+r.name+"$", "-test.timeout", "0",
		"-test.coverprofile", filepath.Join(dir, "profile"))
	test.Dir, test.Env = dir, append(os.Environ(), "WARPMAP_FUZZ_COVERAGE="+told)
	if text, err := test.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, failure(string(text)))
	}
	text, err := os.ReadFile(told)
	if err != nil {
		return errors.New("it runs nothing in testenv.Bounded, which tells what an input reaches")
	}
	return gains(string(text), inputs)
}

func numbered(i int) string { return fmt.Sprintf("%06d", i) }

// covered are the packages whose statements count: the fuzzer's, and what reads files for it.
func covered(dir string) string { return "./" + dir + ",./internal/files" }

// gains reads what testenv.Bounded wrote, a line for each seed and input that was not skipped.
func gains(text string, inputs []input) error {
	before, ran := 0.0, 0
	for line := range strings.Lines(text) {
		name, share, _ := strings.Cut(strings.TrimSpace(line), "\t")
		now, err := strconv.ParseFloat(share, 64)
		if err != nil {
			return fmt.Errorf("a line %q of coverage: %w", line, err)
		}
		if _, number, _ := strings.Cut(name, "/"); !strings.HasPrefix(number, "seed#") {
			i, err := strconv.Atoi(number)
			if err != nil || i >= len(inputs) {
				return fmt.Errorf("a line %q of coverage, of %d inputs", line, len(inputs))
			}
			inputs[i].gain = now - before
			ran++
		}
		before = max(before, now)
	}
	if ran == 0 && len(inputs) > 0 {
		return fmt.Errorf("none of %d inputs has told what it reaches", len(inputs))
	}
	return nil
}

// choose gives the inputs that stay: those that people named, and of the others those that add most. Where none adds
// anything, the smallest stays, for a fuzzer has a corpus.
func choose(inputs []input) (out []input) {
	var others []input
	for _, i := range inputs {
		if !hashed.MatchString(i.name) {
			out = append(out, i)
		} else if i.gain > 0 {
			others = append(others, i)
		}
	}
	if len(out)+len(others) == 0 && len(inputs) > 0 {
		others = inputs[:1]
	}
	slices.SortStableFunc(others, func(a, b input) int { return cmp.Compare(b.gain, a.gain) })
	all := 0
	for _, i := range out {
		all += len(i.text)
	}
	for _, i := range others {
		if all += len(i.text); len(out) == mostFiles || all > mostCorpus {
			break
		}
		out = append(out, i)
	}
	return out
}

// write brings testdata from the inputs to the chosen ones.
func (r *result) write(inputs, chosen []input) (err error) {
	stays := map[string]bool{}
	for _, i := range chosen {
		stays[i.name] = true
		if !i.own {
			err = errors.Join(err, os.MkdirAll(r.testdata(), 0o755),
				os.WriteFile(filepath.Join(r.testdata(), i.name), i.text, 0o644))
		}
	}
	for _, i := range inputs {
		if i.own && !stays[i.name] {
			err = errors.Join(err, os.Remove(filepath.Join(r.testdata(), i.name)))
		}
	}
	return err
}
