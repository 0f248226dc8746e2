package genome

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// One stream of gzip, and zstd in frames, are read as plain files are, in parallel with four threads; errors tell the
// line, what is cut is an error, and who ends early leaves nobody reading.
func TestReadInParallel(t *testing.T) {
	dir := t.TempDir()
	a, q, want := sample(11, 9000)
	before := runtime.NumGoroutine()
	for name, text := range map[string]string{"a": a, "q": q} {
		for how, packed := range map[string]string{"gzip": gzipped(text),
			"zstd": zstded(text[:len(text)/3]) + zstded("") + zstded(text[len(text)/3:])} {
			file := put(t, filepath.Join(dir, name+how), packed)
			for _, o := range []Options{{Threads: 4}, {Threads: 5, BlockBytes: frugalBlockBytes}, {Threads: 4, BlockBytes: 5000}} {
				got, _, err := read([]string{file}, o)
				if err != nil || got != want {
					t.Errorf("%s, %s, %+v: %d bytes, %v: want %d", name, how, o, len(got), err, len(want))
				}
			}
			enough := errors.New("enough")
			if _, err := Read(t.Context(), []string{file}, Options{Threads: 4}, func(*Block) error { return enough }); err != enough {
				t.Error(err)
			}
			if err := os.Truncate(file, int64(len(packed)*2/3)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := read([]string{file}, Options{Threads: 4}); err == nil ||
				!strings.Contains(err.Error(), "the "+how+" data ends too early") {
				t.Errorf("%s, %s, cut: %v", name, how, err)
			}
		}
	}
	for how, packed := range map[string]string{"gzip": gzipped(q + "@x\nACGT\n+\nII\n"), "zstd": zstded(q) + zstded("@x\nACGT\n+\nII\n")} {
		file := put(t, filepath.Join(dir, how), packed)
		if _, _, err := read([]string{file}, Options{Threads: 4}); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf(":%d: ", strings.Count(q, "\n")+4)) {
			t.Errorf("%s, a broken record: %v", how, err)
		}
	}
	for wait := 0; runtime.NumGoroutine() > before; wait++ {
		if wait == 500 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
