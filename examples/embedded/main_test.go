//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// The program runs in a root of its own that has the C library and an empty /tmp: no compiler, and no cache. The kernels
// are those of the generate line, laid over the folder that is embedded.
func TestWithoutCompiler(t *testing.T) {
	testenv.ByTurns(t) // it compiles for ten seconds and more
	if runtime.GOARCH != "amd64" {
		t.Skip("the generate line is for amd64")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	made, root := filepath.Join(dir, "kernels"), filepath.Join(dir, "root")
	goRun(t, "run", "../../cmd/warpmap", "compile", "--device", "cpu", "--arch", "amd64", "--table", "warpcore",
		"--key-bytes", "8", "--value-bytes", "4", "--out", made)
	over := map[string]string{}
	programs, err := filepath.Glob(filepath.Join(made, "*.so"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("%d programs, %v", len(programs), err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		over[filepath.Join(here, "kernels", filepath.Base(p))] = p
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": over})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root, "embedded")
	goRun(t, "build", "-overlay", overlay, "-o", program, ".")
	run := exec.Command(program)
	run.Env = []string{"PATH=/nowhere", "HOME=/nowhere"}
	if syscall.Geteuid() == 0 {
		library(t, root, program)
		run = exec.Command("/embedded")
		run.Env, run.Dir = []string{"PATH=/nowhere"}, "/"
		run.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	out, err := run.CombinedOutput()
	if err != nil || string(out) != "[80 0] [true false]\n" {
		t.Fatalf("%q, %v", out, err)
	}
}

func goRun(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// library copies what the program and its kernels are linked with to the new root, and mounts nothing.
func library(t *testing.T, root, program string) {
	t.Helper()
	files := map[string]bool{}
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		t.Fatalf("ldd: %v\n%s", err, out)
	}
	for _, word := range strings.Fields(string(out)) {
		if filepath.IsAbs(word) {
			files[word] = true
		}
	}
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"} {
		for _, name := range []string{"libm.so.6", "libgcc_s.so.1"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				files[filepath.Join(dir, name)] = true
			}
		}
	}
	for file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(root+file), 0o755)
		}
		if err == nil {
			err = os.WriteFile(root+file, data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
}
