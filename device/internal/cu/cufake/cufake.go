// Package cufake builds, for tests, a CUDA driver and an NVRTC that need no GPU: one library that is both, written in
// C (testdata/fake.c says what it can do), whose failures are made to order.
package cufake

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/internal/dl"
)

//go:embed testdata/fake.c
var source []byte

// Fake is a fake library, loaded.
type Fake struct {
	t        testing.TB
	Path     string
	get, set uintptr
}

// build compiles the fake once, and returns the library's bytes or why there are none.
var build = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cufake-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c, so := filepath.Join(dir, "fake.c"), filepath.Join(dir, "fake.so")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-pthread", "-o", so, c).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(so)
})

// New gives the test a fake of its own: two GPUs of 1 MiB and capability 9.0, and an NVRTC 12.4. It skips the test
// where there is no C compiler.
func New(t testing.TB) *Fake {
	t.Helper()
	lib, err := build()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs a C compiler to build the fake driver: %v", err)
	} else if err != nil {
		t.Fatalf("building the fake driver: %v", err)
	}
	f := &Fake{t: t, Path: filepath.Join(t.TempDir(), "libfake.so")}
	if err := os.WriteFile(f.Path, lib, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := dl.OpenLocal(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*uintptr{"fake_get": &f.get, "fake_set": &f.set} {
		if *p, err = dl.Sym(h, name); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Set changes one of the fake's values, which fake.c names.
func (f *Fake) Set(name string, value int64) {
	f.t.Helper()
	c := append([]byte(name), 0)
	if r := dl.Call(f.set, uintptr(unsafe.Pointer(&c[0])), uintptr(value)); int32(r) != 0 {
		f.t.Fatalf("the fake driver has no %q", name)
	}
}

// Get reads one of the fake's values.
func (f *Fake) Get(name string) int64 {
	f.t.Helper()
	c := append([]byte(name), 0)
	r := dl.Call(f.get, uintptr(unsafe.Pointer(&c[0])))
	return int64(r)
}

// NoLeaks fails the test where contexts, memory, streams, events, modules or programs are left.
func (f *Fake) NoLeaks() {
	f.t.Helper()
	for _, what := range []string{"contexts", "allocs", "used", "host", "streams", "events", "modules", "pools", "programs"} {
		if n := f.Get(what); n != 0 {
			f.t.Errorf("%d %s left", n, what)
		}
	}
}
