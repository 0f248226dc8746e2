package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/quick"
)

// script writes an executable, and returns its path.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// openHere opens the CPU device with an own cache, and closes it at the end.
func openHere(t *testing.T, opts ...Option) *Device {
	t.Helper()
	d, err := Open("cpu", append([]Option{WithCache(t.TempDir())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func lacks(err error, wants ...string) (missing []string) {
	for _, w := range wants {
		if err == nil || !strings.Contains(err.Error(), w) {
			missing = append(missing, w)
		}
	}
	return missing
}

// CXX is a path, or a command with arguments, as make reads it.
func TestCXXIsReadAsMakeReadsIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a b"), 0o755); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	cxx := fmt.Sprintf(`echo "$@" >> %q; exec c++ "$@"`, log)
	script(t, filepath.Join(dir, "cxx"), cxx)
	spaced := script(t, filepath.Join(dir, "a b", "my cxx"), cxx)
	t.Chdir(dir)
	for value, want := range map[string]string{
		"./cxx":                "",
		"./cxx -DONE=1 -DTWO ": "-DONE=1 -DTWO ",
		"a b/my cxx":           "",
		spaced:                 "",
	} {
		os.Remove(log)
		t.Setenv("CXX", value)
		d := openHere(t)
		if _, err := d.Compile(cacheProgram); err != nil {
			t.Errorf("CXX=%q: %v", value, err)
			continue
		}
		lines, _ := os.ReadFile(log)
		for line := range strings.Lines(string(lines)) {
			if !strings.HasPrefix(line, want+"-std=") && !strings.HasPrefix(line, want+"--version") {
				t.Errorf("CXX=%q was run with %s", value, line)
			}
		}
		if len(lines) == 0 {
			t.Errorf("CXX=%q was not run", value)
		}
	}
}

// A compiler that is named, but is none, is an error by its name, and no other is taken in its place.
func TestCXXThatIsMissing(t *testing.T) {
	t.Setenv("CXX", "")
	dir := t.TempDir()
	for _, named := range []string{"/nonexistent/g++", "no-such-compiler -O2", dir, "./gone"} {
		_, err := Open("cpu", WithCompiler(named))
		if missing := lacks(err, "WithCompiler", named, "apt install g++"); !errors.Is(err, ErrNoCompiler) || missing != nil {
			t.Errorf("%q: %v lacks %q", named, err, missing)
		}
		t.Setenv("CXX", named)
		_, err = Open("cpu")
		if missing := lacks(err, "CXX is", named, "apt install g++"); !errors.Is(err, ErrNoCompiler) || missing != nil {
			t.Errorf("%q: %v lacks %q", named, err, missing)
		}
		t.Setenv("CXX", "")
	}
	full := t.TempDir() // a cache
	runCached(t, full)
	t.Setenv("CXX", "./gone")
	_, err := Open("cpu", WithCache(full))
	missing := lacks(err, "even if the cache holds all", "do without CXX")
	if !errors.Is(err, ErrNoCompiler) || missing != nil {
		t.Errorf("with a cache: %v lacks %q", err, missing)
	}
	t.Setenv("CXX", "")
	broken := script(t, filepath.Join(dir, "broken"), "exit 3")
	_, err = openHere(t, WithCompiler(broken)).Compile(cacheProgram)
	if missing := lacks(err, broken, "exit status 3"); !errors.Is(err, ErrNoCompiler) || missing != nil {
		t.Errorf("%v lacks %q", err, missing)
	}
}

// Of the compilers with the usual names, the first that works is taken.
func TestCompilerThatDoesNotWorkIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "g++"), "echo test compiler 2")
	script(t, filepath.Join(dir, "c++"), "exit 1")
	t.Setenv("PATH", dir)
	t.Setenv("CXX", "")
	cfg := newConfig(nil)
	c, err := findCXX(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd, version, err := c.working()
	if err != nil || cmd.path != filepath.Join(dir, "g++") || version != "test compiler 2" {
		t.Errorf("%v, %q, %v", cmd, version, err)
	}
}

// What the cache holds needs no compiler: none is run for it, and there need not be one.
func TestCacheNeedsNoCompiler(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	log := filepath.Join(bin, "log")
	t.Setenv("CXX", script(t, filepath.Join(bin, "cxx"), fmt.Sprintf(`echo "$@" >> %q; exec c++ "$@"`, log)))
	runCached(t, dir)
	if runs, err := os.ReadFile(log); err != nil || len(runs) == 0 {
		t.Fatalf("the compiler was not run: %v", err)
	}
	os.Remove(log)
	cxxVersions.Clear() // as in another process
	runCached(t, dir)
	if runs, err := os.ReadFile(log); err == nil {
		t.Errorf("the compiler was run for what is in the cache:\n%s", runs)
	}

	t.Setenv("CXX", "")
	t.Setenv("PATH", "")
	runCached(t, dir)
	d, err := Open("cpu", WithCache(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	other := *cacheProgram
	other.Defines = []Define{{"OTHER", 1}}
	_, err = d.Compile(&other)
	if missing := lacks(err, "c++, g++ and clang++", "apt install g++", "CXX"); !errors.Is(err, ErrNoCompiler) || missing != nil {
		t.Errorf("%v lacks %q", err, missing)
	}
	if _, err := Open("cpu", WithCache(t.TempDir())); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("neither a compiler nor a cache: %v", err)
	}
}

// How lanes run is compiled once for all of the tests' programs, in each mode, and with each program that a user runs.
func TestLanesAreCompiledOnce(t *testing.T) {
	was := quick.Kernels
	t.Cleanup(func() { quick.Kernels = was })
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("CXX", script(t, filepath.Join(t.TempDir(), "cxx"), fmt.Sprintf(`echo "$@" >> %q; exec c++ "$@"`, log)))
	for _, quick.Kernels = range []bool{true, false} {
		os.Remove(log)
		dir := t.TempDir()
		for _, with := range [][]Option{nil, {WithStress(1)}} {
			d := openHere(t, append(with, WithCache(dir))...)
			for i := range 2 {
				p := *cacheProgram
				p.Defines = []Define{{"ANOTHER", i}}
				if _, err := d.Compile(&p); err != nil {
					t.Fatal(err)
				}
			}
		}
		text, err := os.ReadFile(log)
		objects, linked := strings.Count(string(text), lanesFlag+" "), strings.Count(string(text), linkedFlag+" ")
		if err != nil || quick.Kernels && (objects != 2 || linked != 4) || !quick.Kernels && objects+linked > 0 {
			t.Errorf("tests' kernels %t: %d objects for %d programs, %v:\n%s", quick.Kernels, objects, linked, err, text)
		}
	}
}

// A compiler that another has replaced compiles anew; one that is as it was does not.
func TestCacheKnowsTheCompilersFile(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	cxx := script(t, filepath.Join(bin, "cxx"), `exec c++ "$@"`)
	t.Setenv("CXX", cxx)
	for _, want := range []int{1, 1, 2} {
		if want == 2 {
			script(t, cxx, `exec c++  "$@"`)
		}
		runCached(t, dir)
		if files, _ := filepath.Glob(filepath.Join(dir, "*.so")); len(files) != want {
			t.Errorf("%d programs, want %d", len(files), want)
		}
	}
}

// Kernels that compile sooner are other programs to the cache, and Clang does not get what it does not know.
func TestQuickKernels(t *testing.T) {
	was := quick.Kernels
	t.Cleanup(func() { quick.Kernels = was })
	for version, gcc := range map[string]bool{"c++ 12.2.0": true, "Debian clang version 14.0.6": false} {
		dir, bin := t.TempDir(), t.TempDir()
		log := filepath.Join(bin, "log")
		t.Setenv("CXX", script(t, filepath.Join(bin, "cxx"), fmt.Sprintf(`[ "$1" = --version ] && echo %s && exit; echo "$@" >> %q; exec c++ "$@"`, version, log)))
		for i, sooner := range []bool{false, true} {
			os.Remove(log)
			quick.Kernels = sooner
			runCached(t, dir)
			args, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			defined, options := strings.Contains(string(args), "-DWARPMAP_QUICK"), strings.Contains(string(args), strings.Join(gccFlags, " "))
			if defined != sooner || options != (sooner && gcc) || !gcc && strings.Contains(string(args), "-fno-tree") {
				t.Errorf("%s, sooner %t: was run with %s", version, sooner, args)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "*.so")); len(files) != i+1 {
				t.Errorf("%s, sooner %t: %d programs, want %d", version, sooner, len(files), i+1)
			}
		}
	}
}

// clang keeps the atomic operations of a program that is checked by the memory model. g++ does so by itself, and refuses
// the options.
func TestOptionsOfTheMemoryModel(t *testing.T) {
	for version, clang := range map[string]bool{"c++ 12.2.0": false, "Debian clang version 16.0.6": true} {
		dir := t.TempDir()
		log := filepath.Join(dir, "log")
		t.Setenv("CXX", script(t, filepath.Join(dir, "cxx"), fmt.Sprintf(`[ "$1" = --version ] && echo %s && exit; echo "$@" >> %q; exit 1`, version, log)))
		if _, err := openHere(t, WithMemoryModel(1)).Compile(cacheProgram); !errors.As(err, new(*CompileError)) {
			t.Errorf("%s: %v", version, err)
		}
		args, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(args), "-mllvm -tsan-instrument-atomics=0") != clang || !strings.Contains(string(args), "-fsanitize=thread") {
			t.Errorf("%s was run with %s", version, args)
		}
	}
}

// sleeper is a compiler that says its version, or does not, and starts another program that never ends.
func sleeper(t *testing.T, answers bool) (path, pid string) {
	dir := t.TempDir()
	pid = filepath.Join(dir, "pid")
	answer := ""
	if answers {
		answer = `if [ "$1" = --version ]; then echo sleeper 1; exit; fi; `
	}
	return script(t, filepath.Join(dir, "cxx"), fmt.Sprintf("%ssleep 1000 & echo $! > %q.new; mv %q.new %q; wait", answer, pid, pid, pid)), pid
}

// ended waits until the program whose number is in the file is no more, or only waits to be buried.
func ended(t *testing.T, pidFile string) {
	t.Helper()
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var stat []byte
	for range 500 {
		stat, err = os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if fields := strings.Fields(string(stat)); err != nil || slices.Contains([]string{"Z", "X"}, fields[2]) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("what the compiler started still runs: %s", stat)
}

func TestCompilerThatHangsIsKilled(t *testing.T) {
	was, wasToo := versionLimit, compileLimit
	t.Cleanup(func() { versionLimit, compileLimit = was, wasToo })
	for _, answers := range []bool{false, true} {
		limit := time.Second
		for !killed(t, answers, limit) && limit < 20*time.Second { // others had the cores
			limit *= 4
		}
	}
}

// killed compiles with a compiler that hangs, answers its version or not, and tells whether it had begun when it was killed.
func killed(t *testing.T, answers bool, limit time.Duration) (begun bool) {
	versionLimit, compileLimit = limit, limit
	if answers {
		versionLimit = time.Minute
	}
	path, pid := sleeper(t, answers)
	_, err := openHere(t, WithCompiler(path)).Compile(cacheProgram)
	late := fmt.Sprint("no answer within ", limit)
	if missing := lacks(err, path, late); !answers && (!errors.Is(err, ErrNoCompiler) || missing != nil) {
		t.Errorf("%v lacks %q", err, missing)
	}
	if missing := lacks(err, "sleeper 1", late); answers && (!errors.As(err, new(*CompileError)) || missing != nil) {
		t.Errorf("%v lacks %q", err, missing)
	}
	if _, err := os.Stat(pid); err != nil && limit < 20*time.Second {
		return false
	}
	ended(t, pid)
	return true
}

// A compiler that writes without end takes no memory for that, and the error has the beginning.
func TestCompilerThatWritesWithoutEnd(t *testing.T) {
	path := script(t, filepath.Join(t.TempDir(), "cxx"),
		`case "$*" in *--version*) echo writer 1;; *) echo begins; head -c 5000000 /dev/zero; exit 1;; esac`)
	_, err := openHere(t, WithCompiler(path)).Compile(cacheProgram)
	if e := (*CompileError)(nil); !errors.As(err, &e) || !strings.HasPrefix(e.Log, "begins\n") || len(e.Log) > mostSaid {
		t.Errorf("%.100v", err)
	}
}

// WithContext's end is the compiler's, and no temporary file is left.
func TestContextEndsCompiling(t *testing.T) {
	for _, answers := range []bool{false, true} {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		path, pid := sleeper(t, answers)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(pid); err == nil {
					cancel()
				}
				time.Sleep(time.Millisecond)
			}
		}()
		_, err := openHere(t, WithCompiler(path), WithContext(ctx)).Compile(cacheProgram)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		cancel()
		ended(t, pid)
		if left, err := filepath.Glob(filepath.Join(tmp, "warpmap-*")); len(left) > 0 || err != nil {
			t.Errorf("%v are left, %v", left, err)
		}
	}
}

// A program does not wait for another: each of these compilers waits until both are at work.
func TestProgramsCompileBesideOneAnother(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CXX", script(t, filepath.Join(dir, "cxx"), fmt.Sprintf(
		`case "$*" in *--version*) exec c++ "$@";; esac
: > %[1]q/at.$$
for i in $(seq 500); do n=$(ls %[1]q | grep -c at); [ "$n" -ge 2 ] && exec c++ "$@"; sleep 0.02; done
echo alone >&2; exit 1`, dir)))
	d := openHere(t)
	var both crash.Group
	for _, name := range []string{"one", "two"} {
		both.Go(func() error {
			p := *cacheProgram
			p.Name = name
			_, err := d.Compile(&p)
			return err
		})
	}
	if err := both.Wait(); err != nil {
		t.Error(err)
	}
}
