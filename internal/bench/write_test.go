package bench

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// What is no file, as a pipe or /dev/null, is written to, and not replaced.
func TestWriteToPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := testenv.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // so that nobody waits
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := Write(name, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(name); err != nil || i.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("the pipe is %v now, %v", i.Mode(), err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(pipe, got); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}
