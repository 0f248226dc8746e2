package device_test

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/warpmap/warpmap/device"
)

// A device takes its kernels from the files of another machine, in whatever folder of them, and needs no compiler for
// these: not even one of an older level. What is not among them, or is damaged, does.
func TestWithKernels(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ahead, err := device.OpenAhead(runtime.GOARCH, device.WithCache(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ahead.Compile(cpuProgram); err != nil {
		t.Fatal(err)
	}
	if err := ahead.Close(); err != nil {
		t.Fatal(err)
	}
	given, damaged := fstest.MapFS{}, fstest.MapFS{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(dir + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		given["some/kernels/"+e.Name()] = &fstest.MapFile{Data: data}
		if len(data) > 0 {
			data = append([]byte(nil), data...)
			data[len(data)/2] ^= 1
		}
		damaged[e.Name()] = &fstest.MapFile{Data: data}
	}

	t.Setenv("PATH", t.TempDir())
	t.Setenv("CXX", "")
	d, err := device.Open("cpu", device.WithKernels(given), device.WithCache(""))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	add := kernelOf(t, d, cpuProgram, "add")
	words, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	must(t, add.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &addParams{words.Addr(), 3, 10}))
	if got, err := words.Host(nil); err != nil || !slices.Equal(got, []uint32{11, 12, 13}) {
		t.Errorf("%v, %v", got, err)
	}
	must(t, words.Free())
	other := *cpuProgram
	other.Name = "another"
	if _, err := d.Compile(&other); !errors.Is(err, device.ErrNoCompiler) {
		t.Errorf("a program that is not there: %v", err)
	}
	d2, err := device.Open("cpu", device.WithKernels(damaged), device.WithCache(""))
	if err != nil {
		t.Fatal(err)
	}
	defer d2.Close()
	if _, err := d2.Compile(cpuProgram); !errors.Is(err, device.ErrNoCompiler) {
		t.Errorf("damaged files: %v", err)
	}
	for what, files := range map[string]fs.FS{"no kernel": fstest.MapFS{"a.txt": {}}, "no such": os.DirFS(dir + "/none"), "no file system": nil} {
		if _, err := device.Open("cpu", device.WithKernels(files)); err == nil || !strings.Contains(err.Error(), "WithKernels") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := device.OpenAhead("x86-64-v9", device.WithCache(dir)); err == nil {
		t.Error("no such level, and no error")
	}
}
