package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// plantPanic has the command panic at the n-th place, of those where crash and the join catch one.
func plantPanic(n string) {
	at, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		panic(err)
	}
	var calls atomic.Int64
	crash.Plant = func() {
		if calls.Add(1) == at {
			panic("made\nto order")
		}
	}
}

// commandIn runs the command in a folder, with temporary files in another, and gives its code and what it said.
func commandIn(t *testing.T, dir, temporary, args string, env ...string) (code int, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], strings.Fields(args)...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+temporary, "GORACE=atexit_sleep_ms=0"),
		env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

// A panic, in whatever goroutine of whatever command, ends it with code 1 and a line that asks for a report, and leaves
// nothing.
func TestPanicsAskForAReport(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	var rows, reads strings.Builder
	rows.WriteString("k,v\n")
	for i := range 200 {
		fmt.Fprintf(&rows, "%d,x\n", i)
		fmt.Fprintf(&reads, ">r%d\nACGTTGCAACGTAGCATCGATCGAT\n", i)
	}
	for name, text := range map[string]string{"a.csv": rows.String(), "a.fa": reads.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	few := 4
	if testenv.Long() {
		few = 60
	}
	planted := 0
	for _, args := range []string{
		"version",
		"join a.csv a.csv --on k --out out.csv --device cpu",
		"join a.csv a.csv --on k --out out.parquet --device cpu --memory 1000",
		"gen tpch --sf 0.0001 --out out",
		"kmers stats a.fa",
	} {
		for n := 1; n <= few; n += 1 + n/3 {
			code, said := commandIn(t, dir, temporary, args, "WARPMAP_TEST_PANIC="+strconv.Itoa(n))
			if strings.Contains(said, "made to order") {
				planted++
				// What was done before is told first: `gen` names the files that are whole.
				if done := strings.LastIndex(said, "\nwarpmap: "); done >= 0 {
					said = said[done+1:]
				}
				if code != 1 || !strings.HasPrefix(said, "warpmap: ") || strings.Count(said, "\n") != 1 ||
					!strings.HasSuffix(said, "made to order"+report+"\n") {
					t.Errorf("%s, panic %d: code %d, %q", args, n, code, said)
				}
			}
			if strings.Contains(said, "goroutine ") {
				t.Errorf("%s, panic %d: code %d, %q", args, n, code, said)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), "out") {
					os.RemoveAll(filepath.Join(dir, e.Name()))
				} else if !strings.HasPrefix(e.Name(), "a.") {
					t.Errorf("%s, panic %d: %s is left", args, n, e.Name())
				}
			}
			if left, _ := os.ReadDir(temporary); len(left) > 0 {
				t.Errorf("%s, panic %d: %v are left", args, n, left)
			}
		}
	}
	if planted < 10 {
		t.Errorf("%d panics", planted)
	}
	code, said := commandIn(t, dir, temporary, "version", "WARPMAP_TEST_PANIC=1", "GOTRACEBACK=all")
	if code != 1 || !strings.Contains(said, report+"\ngoroutine ") || !strings.Contains(said, "plantPanic") {
		t.Errorf("code %d, %q", code, said)
	}
}

// Where temporary files find no room, that is told once, however many have none.
func TestFullDiskIsToldOnce(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	var rows strings.Builder
	rows.WriteString("k,v\n")
	for i := range 30000 {
		fmt.Fprintf(&rows, "%d,%040d\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"join a.csv a.csv --on k --device cpu -q --out o.csv --memory 1MB": temporary + " (TMPDIR names another folder): file too large",
		"join a.csv a.csv --on k --device cpu -q --out o.csv":              "o.csv: file too large",
		"join a.csv a.csv --on k --device cpu -q --out o/":                 "o/: part-00000.parquet: file too large",
	} {
		code, said := commandIn(t, dir, temporary, args, "WARPMAP_TEST_SMALL_FILES=20000")
		if code != 1 || strings.Count(said, "\n") != 1 || strings.Count(said, "file too large") != 1 ||
			!strings.HasSuffix(said, want+"\n") {
			t.Errorf("%s: code %d, %q, want %q", args, code, said, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: left are %v", args, left)
		}
		if left, _ := os.ReadDir(temporary); len(left) > 0 {
			t.Errorf("%s: left are %v", args, left)
		}
	}
}

// An input as output is wrong usage, as of the other commands; the input stays, also where a shell has it as standard
// output.
func TestJoinKeepsItsInputs(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(in, []byte("k\n1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	code, said := commandIn(t, dir, dir, "join a.csv a.csv --on k --device cpu --out ./a.csv")
	if code != exitUsage || !strings.HasPrefix(said, "warpmap: ./a.csv: is read, as a.csv") {
		t.Errorf("code %d, %q", code, said)
	}
	code, said = commandIn(t, dir, dir, "join - - --on k --device cpu")
	if code != exitUsage || !strings.Contains(said, "standard input can be read once") {
		t.Errorf("code %d, %q", code, said)
	}
	to, err := os.OpenFile(in, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	cmd := exec.Command(os.Args[0], "join", in, in, "--on", "k", "--device", "cpu")
	cmd.Env, cmd.Stdout = append(os.Environ(), "WARPMAP_TEST_COMMAND=1"), to
	if err := cmd.Run(); err == nil {
		t.Error("standard output may be an input")
	}
	if text, err := os.ReadFile(in); err != nil || string(text) != "k\n1\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A process that is killed by a closed pipe leaves nothing: an Arrow file with dictionaries goes to a temporary one
// first, which has no name.
func TestClosedPipeLeavesNothing(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte("k,v\n"+strings.Repeat("1,abcdef\n", 300)),
		0o666); err != nil {
		t.Fatal(err)
	}
	if code, said := commandIn(t, dir, temporary,
		"join a.csv a.csv --on k --device cpu -q --out o.parquet"); code != 0 {
		t.Fatal(said)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := exec.Command(os.Args[0], "join", "a.csv", "o.parquet", "--on", "k", "--device", "cpu", "-q", "--out-format",
		"arrow")
	cmd.Dir, cmd.Stdout = dir, w
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+temporary)
	err = cmd.Run()
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || !state.Signaled() &&
		state.ExitStatus() == 0 {
		t.Errorf("%v, %v", err, cmd.ProcessState)
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
