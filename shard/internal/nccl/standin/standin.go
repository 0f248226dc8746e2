// Package standin builds, for tests, a libnccl that needs no GPU. testdata/standin.c says what it can do.
package standin

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/standin.c
var source []byte

// Build compiles the stand-in, and returns the library's path. It skips the test if there is no C compiler.
func Build(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	c, so := filepath.Join(dir, "standin.c"), filepath.Join(dir, "libnccl.so")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("cc", "-D_GNU_SOURCE", "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o", so, c).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs a C compiler to build the stand-in for NCCL: %v", err)
	} else if err != nil {
		t.Fatalf("building the stand-in for NCCL: %v\n%s", err, out)
	}
	return so
}
