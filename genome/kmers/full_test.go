package kmers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A disk that is full is told once, by what the system said.
func TestParquetOnFullDisk(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.fa"), filepath.Join(dir, "out.wk")
	if err := os.WriteFile(in, []byte(">a\nACGTTGCAGTCAGCATTACGAGCATTCAGG\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Count(t.Context(), d, []string{in}, Options{K: 7}, out); err != nil {
		t.Fatal(err)
	}
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	full := errors.New("no space left")
	for room := range 5 {
		err := f.WriteParquet(&bounded{room * 60, full}, 0, ^uint32(0))
		if err == nil || err.Error() != full.Error() {
			t.Errorf("%v; want %v alone", err, full)
		}
	}
}

// A file may declare a part that it has, for its disk keeps no zeros, and memory has not.
func TestPartsThatNoMemoryHolds(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.wk")
	w, err := create(out, Options{K: 7})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 38
	w.parts[0] = partHeader{N: n, Width: 1}
	size, err := w.parts[0].bytes(1, 1<<62)
	if err := errors.Join(err, w.w.Flush(), w.file.Truncate(headerBytes+size)); err != nil {
		w.close(false)
		t.Skip(err)
	}
	if err := w.close(true); err != nil {
		t.Fatal(err)
	}
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Find([]Kmer{{}})
	if of := (*FileError)(nil); !errors.As(err, &of) || !strings.Contains(err.Error(), "memory") {
		t.Error(err)
	}
}

type bounded struct {
	room int
	err  error
}

func (b *bounded) Write(x []byte) (int, error) {
	if b.room -= len(x); b.room < 0 {
		return 0, b.err
	}
	return len(x), nil
}
