package kmers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file of counts on a full disk is told by its name, not by that of the hidden file.
func TestCountsOnFullDisk(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.wk")
	w, err := create(out, Options{K: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close(false)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	if err := syscall.Dup3(int(full.Fd()), int(w.file.Fd()), syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	err = w.put(0, newCounted(1, 1<<18))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), out) {
		t.Errorf("%v; want %s: %v", err, out, syscall.ENOSPC)
	}
}
