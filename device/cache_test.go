package device

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device/internal/nvrtc"
	"github.com/warpmap/warpmap/internal/testenv"
)

var cacheProgram = &Program{Name: "cached", Files: []File{{Name: "cached.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(one, device::HostLaunch) { add(at<u64>(p.params), (u64)1); }
`}}}

// runCached compiles the program with the cache in dir, and runs it. It returns how the device calls itself.
func runCached(t *testing.T, dir string) string {
	t.Helper()
	d, err := Open("cpu", WithCache(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := d.Compile(cacheProgram)
	if err != nil {
		t.Fatal(err)
	}
	k, err := KernelOf[HostLaunch](m, "one")
	if err != nil {
		t.Fatal(err)
	}
	out, err := From(d, []uint64{0})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Launch(nil, Grid{Blocks: 2, Threads: 64}, &HostLaunch{Params: out.Addr()}); err != nil {
		t.Fatal(err)
	}
	if got, err := out.Host(nil); err != nil || got[0] != 128 {
		t.Fatalf("%v, %v", got, err)
	}
	return d.String()
}

// wrongImage is cacheProgram, but for counting wrongly.
var wrongImage = sync.OnceValues(func() ([]byte, error) {
	wrong := *cacheProgram
	wrong.Files = []File{{"cached.cu", strings.Replace(cacheProgram.Files[0].Text, "(u64)1", "(u64)2", 1)}}
	src, err := wrong.source(false, hostSharedBytes, fast)
	if err != nil {
		return nil, err
	}
	cfg := newConfig(nil)
	comp, err := findCXX(&cfg)
	if err != nil {
		return nil, err
	}
	return comp.compile(src)
})

// place is where a cache in dir has cacheProgram. Nothing there is loaded yet: the loader would give that again for its name.
func place(t *testing.T, dir string) string {
	t.Helper()
	src, err := cacheProgram.source(false, hostSharedBytes, fast)
	if err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(nil)
	comp, err := findCXX(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cache(dir).path(src.key(comp), comp)
}

// cached is the one file of a cache.
func cached(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "lock" || filepath.Ext(file) == ".o" })
	if err != nil || len(files) != 1 || filepath.Ext(files[0]) != ".so" {
		t.Fatalf("the cache holds %v, %v", files, err)
	}
	return files[0]
}

func TestCacheIsUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when", "needed")
	runCached(t, dir)
	file := cached(t, dir)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	runCached(t, dir)
	after, err := os.Stat(cached(t, dir))
	if err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Errorf("%v became %v, %v", before, after, err)
	}
}

func TestCacheNotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	runCached(t, filepath.Join(file, "below")) // no user can make that
	runCached(t, "/dev/null")
	readOnly := t.TempDir()
	if err := os.Chmod(readOnly, 0o555); err != nil {
		t.Fatal(err)
	}
	runCached(t, readOnly)
	runCached(t, "")
}

// Who has neither WARPMAP_CACHE nor a home has no cache, and hears of it. With none wanted, there is nothing to hear.
func TestCacheWithoutAHome(t *testing.T) {
	for _, name := range []string{"WARPMAP_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	for dir, want := range map[string]bool{"": false, "the default": true} {
		var opts []Option
		if dir == "" {
			opts = append(opts, WithCache(dir))
		}
		d, err := Open("cpu", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if said := d.String(); strings.Contains(said, "WARPMAP_CACHE") != want {
			t.Errorf("%q: %s", dir, said)
		}
		d.Close()
	}
}

// A damaged file is compiled anew, and replaced.
func TestCacheDamaged(t *testing.T) {
	dir := t.TempDir()
	runCached(t, dir)
	file := cached(t, dir)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, damaged := range map[string][]byte{
		"empty":             {},
		"one byte":          {1},
		"half":              good[:len(good)/2],
		"no end":            good[:len(good)-1],
		"more":              append(bytes.Clone(good), 0),
		"a bit flipped":     flipped,
		"the trailer alone": good[len(good)-len(cacheMagic)-32:],
	} {
		os.Remove(file) // it is mapped: do not change it in place
		if err := os.WriteFile(file, damaged, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, ok := readCached(file); ok {
			t.Errorf("%s: is read as good", name)
		}
		runCached(t, dir)
		if now, err := os.ReadFile(cached(t, dir)); err != nil || !bytes.Equal(now, good) {
			t.Errorf("%s: is not replaced, %v", name, err)
		}
	}
	os.Remove(file)
	if err := os.Mkdir(file, 0o755); err != nil { // a directory cannot be replaced: compiled around
		t.Fatal(err)
	}
	runCached(t, dir)
}

// Code that another user has written, or can write, is not loaded.
func TestCacheOfOthersIsNotLoaded(t *testing.T) {
	for name, expose := range map[string]func(dir, file string) error{
		"a file that others may write":      func(_, file string) error { return os.Chmod(file, 0o766) },
		"a file that the group may write":   func(_, file string) error { return os.Chmod(file, 0o775) },
		"another's file":                    func(_, file string) error { return os.Chown(file, 12345, -1) },
		"a folder that others may write":    func(dir, _ string) error { return os.Chmod(dir, 0o777) },
		"a folder that the group may write": func(dir, _ string) error { return os.Chmod(dir, 0o770) },
		"another's folder":                  func(dir, _ string) error { return os.Chown(dir, 12345, -1) },
		"another's folder, with sticky bit": func(dir, _ string) error {
			return errors.Join(os.Chown(dir, 12345, -1), os.Chmod(dir, 0o777|os.ModeSticky))
		},
		"a folder that others may replace": func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"another's link to the folder":     func(dir, _ string) error { return moveAndLink(dir, 12345) },
		"a link to a folder others may write": func(dir, _ string) error {
			return errors.Join(moveAndLink(dir, os.Geteuid()), os.Chmod(filepath.Join(filepath.Dir(filepath.Dir(dir)), "moved"), 0o777))
		},
		"a link out of the folder":           func(_, file string) error { return moveAndLink(file, os.Geteuid()) },
		"another program, under this's name": func(_, file string) error { return os.Rename(file+".other", file) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			image, err := wrongImage()
			if err := errors.Join(err, os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			file := place(t, dir)
			written := file
			if strings.HasPrefix(name, "another program") {
				written += ".other"
			}
			if err := writeCached(written, image); err != nil {
				t.Fatal(err)
			}
			if err := expose(dir, file); errors.Is(err, os.ErrPermission) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			said := runCached(t, dir)
			if strings.Contains(name, "folder") && !strings.Contains(name, "out of") {
				if !strings.Contains(said, "WARPMAP_CACHE") || !strings.Contains(said, filepath.Dir(filepath.Dir(dir))) {
					t.Errorf("nobody is told that the cache is not used: %s", said)
				}
			} else if _, ok := readCached(cached(t, dir)); !ok {
				t.Error("the file is not replaced by a good one")
			}
		})
	}
}

// moveAndLink leaves in a file's place a link to it, that belongs to a user.
func moveAndLink(file string, uid int) error {
	moved := filepath.Join(filepath.Dir(filepath.Dir(file)), "moved")
	return errors.Join(os.Rename(file, moved), os.Symlink(moved, file), os.Lchown(file, uid, -1))
}

// Folders that root or this user owns may be reached by links, and may be sticky, as /tmp is.
func TestCacheInASharedFolder(t *testing.T) {
	top := t.TempDir()
	sticky, link := filepath.Join(top, "sticky"), filepath.Join(top, "link")
	if err := errors.Join(os.Mkdir(sticky, 0o700), os.Chmod(sticky, 0o777|os.ModeSticky), os.Symlink(sticky, link)); err != nil {
		t.Fatal(err)
	}
	if said := runCached(t, link); strings.Contains(said, "no cache") {
		t.Error(said)
	}
	if _, ok := readCached(cached(t, sticky)); !ok {
		t.Error("nothing is kept")
	}
}

// What is whole but does not load, as after a change of the machine, is compiled anew, and replaced.
func TestCacheHoldsWhatDoesNotLoad(t *testing.T) {
	dir := t.TempDir()
	if err := writeCached(place(t, dir), []byte("no shared object")); err != nil {
		t.Fatal(err)
	}
	runCached(t, dir)
	if image, ok := readCached(cached(t, dir)); !ok || !bytes.HasPrefix(image, []byte("\x7fELF")) {
		t.Errorf("the cache holds %.20q", image)
	}
}

// A pipe in a program's place has no writer: nobody waits for one.
func TestCacheHoldsAPipe(t *testing.T) {
	dir := t.TempDir()
	file := place(t, dir)
	if err := testenv.Mkfifo(file, 0o755); err != nil {
		t.Fatal(err)
	}
	read := make(chan bool)
	go func() {
		_, ok := readCached(file)
		read <- ok
	}()
	select {
	case ok := <-read:
		if ok {
			t.Error("a pipe is read as good")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the reader waits for a writer")
	}
	runCached(t, dir)
	if _, ok := readCached(cached(t, dir)); !ok {
		t.Error("the pipe is not replaced")
	}
}

// The name in the cache changes with every source, option, define and compiler.
func TestCacheKey(t *testing.T) {
	cxxOf := func(args ...string) *cxx { return &cxx{found: []command{{"/bin/c++", args}}} }
	comp := cxxOf()
	seen := map[string]string{}
	for name, p := range map[string]struct {
		Program
		mode mode
		comp compiler
	}{
		"the memory model": {*cacheProgram, modelling, comp},
		"plain":            {*cacheProgram, fast, comp},
		"stress":           {*cacheProgram, stressed, comp},
		"compiler":         {*cacheProgram, fast, cxxOf("-m64")},
		"target":           {*cacheProgram, fast, &rtc{lib: new(nvrtc.Library), arch: "sm_80"}},
		"other target":     {*cacheProgram, fast, &rtc{lib: new(nvrtc.Library), arch: "sm_90"}},
		"other text":       {Program{Name: "cached", Files: []File{{"cached.cu", cacheProgram.Files[0].Text + " "}}}, fast, comp},
		"other file":       {Program{Name: "cached", Files: append(cacheProgram.Files, File{"more.cuh", ""})}, fast, comp},
		"define":           {Program{Name: "cached", Files: cacheProgram.Files, Defines: []Define{{"A", 1}}}, fast, comp},
		"other define":     {Program{Name: "cached", Files: cacheProgram.Files, Defines: []Define{{"A", 2}}}, fast, comp},
		"a layout":         {Program{Name: "cached", Files: cacheProgram.Files, Layouts: []any{Grid{}.pair()}}, fast, comp},
		"name of the file": {Program{Name: "cached", Files: []File{{"c.cu", cacheProgram.Files[0].Text}}}, fast, comp},
	} {
		src, err := p.source(false, hostSharedBytes, p.mode)
		if err != nil {
			t.Fatal(err)
		}
		key := cache("/").path(src.key(p.comp), p.comp)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
}

type pair struct{ A, B uint64 }

func (Grid) pair() pair { return pair{} }

// Many devices and goroutines that compile one program leave one good file, and one module for each device.
func TestCompileConcurrently(t *testing.T) {
	dir := t.TempDir()
	d, err := Open("cpu", WithCache(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var wg sync.WaitGroup
	modules := make([]*Module, 8)
	for i := range modules {
		wg.Go(func() {
			m, err := d.Compile(cacheProgram)
			if err != nil {
				t.Error(err)
			}
			modules[i] = m
		})
	}
	for range 3 {
		wg.Go(func() { runCached(t, dir) })
	}
	wg.Wait()
	for _, m := range modules {
		if m != modules[0] {
			t.Error("one program is loaded twice")
		}
	}
	if _, ok := readCached(cached(t, dir)); !ok {
		t.Error("the file is damaged")
	}
}

// A process that is killed while it writes the cache leaves a whole file or none under the final name.
func TestCacheKilled(t *testing.T) {
	const env = "WARPMAP_TEST_CACHE_FILE"
	if file := os.Getenv(env); file != "" {
		image := bytes.Repeat([]byte("kernel"), 1<<20)
		for {
			os.Stdout.WriteString("next\n")
			if err := writeCached(file, image); err != nil {
				os.Stdout.WriteString(err.Error() + "\n")
				os.Exit(1)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "k.so")
	rounds := 20
	if !testenv.Long() {
		rounds = 6
	}
	for round := range rounds {
		os.Remove(file)
		child := exec.Command(os.Args[0], "-test.run=^TestCacheKilled$")
		child.Env = append(os.Environ(), env+"="+file)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + round%3 { // then it is in the midst of writing
			if !lines.Scan() || lines.Text() != "next" {
				t.Errorf("the child says %q", lines.Text())
			}
		}
		child.Process.Kill()
		child.Wait()
		if _, err := os.Stat(file); err == nil {
			if _, ok := readCached(file); !ok {
				t.Fatalf("round %d: half a file under the final name", round)
			}
		} else if round%3 == 2 {
			t.Errorf("round %d: no file, though one was written before", round)
		}
	}
}

// Of several processes that want one program at a time, one compiles it; those that want others do not wait.
func TestProcessesCompileOnce(t *testing.T) {
	const env = "WARPMAP_TEST_COMPILE_IN"
	if dir := os.Getenv(env); dir != "" {
		runCached(t, dir)
		return
	}
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	cxx := script(t, filepath.Join(t.TempDir(), "cxx"), fmt.Sprintf(`case "$*" in --version|*%s*) ;; *) echo run >> %q; sleep 1 ;; esac; exec c++ "$@"`, lanesFlag, log))
	var children [3]*exec.Cmd
	for i := range children {
		children[i] = exec.Command(os.Args[0], "-test.run=^TestProcessesCompileOnce$")
		children[i].Env = append(os.Environ(), env+"="+dir, "CXX="+cxx)
		if err := children[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if runs, err := os.ReadFile(log); string(runs) != "run\n" {
		t.Errorf("%d processes ran the compiler so: %q, %v", len(children), runs, err)
	}
	c := cache(dir)
	unlock := c.lock(t.Context(), "a")
	c.lock(t.Context(), "b")()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c.lock(ctx, "a")()
	if ctx.Err() == nil {
		t.Error("the lock of a program was had twice")
	}
	unlock()
	c.lock(t.Context(), "a")()
}
