package warpmap_test

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// architectures are those of GPUs that kernels are made for. An NVRTC knows some of them.
var architectures = []string{"sm_75", "sm_70", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}

// compileAll compiles all kernels for keys and values of these types into a folder. The compiler reports a kernel whose
// blocks need more shared memory or registers than the architecture has.
func compileAll[K, V any](t *testing.T, arch, dir string, kinds ...table.Kind) {
	t.Helper()
	d, err := device.OpenAhead(arch, device.WithCache(dir))
	if errors.Is(err, device.ErrNoNVRTC) {
		known, _ := device.InfoFor("sm_90")
		if known.Compiler != "" {
			t.Skip(err) // an older one than the architecture
		}
		testenv.RequireNVRTC(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, kind := range kinds {
		for _, family := range warpmap.Families(kind) {
			if err := warpmap.CompileAhead[K, V](d, kind, family); err != nil {
				t.Errorf("%v of %s: %v", kind, family, err)
			}
		}
		if kind == table.KindMap {
			if err := shard.CompileAhead[K, V](d, kind); err != nil {
				t.Errorf("%v over devices: %v", kind, err)
			}
		}
	}
	if err := d.Ready(); err != nil {
		t.Error(err)
	}
}

// kernelSources are the sources of the families' kernels.
//
//go:embed */*.cu internal/frame/*.cu
var kernelSources embed.FS

// A block of each kernel has room on GPUs of every architecture, and no kernel of a family is left out. Short runs take
// the architecture with the least shared memory, and one kind. What options change, the packages' own tests compile.
func TestKernelsFit(t *testing.T) {
	if !testenv.Long() {
		compileAll[uint64, uint64](t, "sm_75", t.TempDir(), warpmap.KindCache)
		return
	}
	all := append([]table.Kind{table.KindMap, table.KindSet, table.KindCounter, table.KindFilter, warpmap.KindCache}, table.MultiMapKinds()...)
	for _, arch := range architectures {
		t.Run(arch+" 4+4", func(t *testing.T) {
			testenv.Turn(t)
			compileAll[uint32, uint32](t, arch, t.TempDir(), all...)
		})
		t.Run(arch+" 4+16", func(t *testing.T) {
			testenv.Turn(t)
			compileAll[uint32, [2]uint64](t, arch, t.TempDir(), table.KindMap, warpmap.KindCache)
		})
		t.Run(arch+" 8+8", func(t *testing.T) {
			testenv.Turn(t)
			dir := t.TempDir()
			compileAll[uint64, uint64](t, arch, dir, all...)
			if arch == "sm_90" {
				wantKernels(t, dir)
			}
		})
	}
}

// wantKernels fails the test if a kernel of a family is not in a folder of cubins.
func wantKernels(t *testing.T, dir string) {
	t.Helper()
	compiled := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.cubin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cubins: %v", err)
	}
	beside := regexp.MustCompile(`\x00(\w+)_params\x00`)
	for _, file := range files {
		cubin, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range beside.FindAllSubmatch(cubin, -1) {
			compiled[string(found[1])] = true
		}
	}
	paths, err := fs.Glob(kernelSources, "*/*.cu")
	if err != nil {
		t.Fatal(err)
	}
	// These need a user's code or options, or come with sketches; their packages' tests compile them.
	others := []string{"for_all", "for_each", "find_shared", "score", "outer_counts", "outer_found", "outer_values"}
	kernels := 0
	for _, path := range paths {
		text, err := kernelSources.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range entryPoint.FindAllStringSubmatch(string(text), -1) {
			kernels++
			if name := found[1]; !compiled[name] && !slices.Contains(others, name) && !strings.HasPrefix(path, "sketch/") {
				t.Errorf("%s: %s is not compiled", path, name)
			}
		}
	}
	if kernels < 150 {
		t.Errorf("%d kernels in the sources, want more", kernels)
	}
}

// Large batches work where a block has little shared memory: 64 KiB, as on GPUs of capability 7.5, and 48 KiB.
func TestLittleSharedMemory(t *testing.T) {
	testenv.ByTurns(t)
	for _, kib := range []int64{48, 64} {
		testenv.LittleShared(t, kib<<10)
		d, err := device.Open("cpu")
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Info().Shared; got != kib<<10 {
			t.Fatalf("a block has %d bytes of shared memory, want %d KiB", got, kib)
		}
		for _, family := range warpmap.Families(table.KindMap) {
			t.Run(fmt.Sprintf("%d KiB/%s", kib, family), func(t *testing.T) { largeBatches(t, d, family) })
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// largeBatches inserts, finds and deletes enough keys that they are sorted first.
func largeBatches(t *testing.T, d *device.Device, family table.Family) {
	const n = 1 << 20
	m, err := warpmap.New[uint64, uint64](d, family, table.Options{Capacity: n})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	keys, values, found := make([]uint64, n), make([]uint64, n), make([]bool, n)
	for i := range keys {
		keys[i], values[i] = uint64(i)*0x9e3779b97f4a7c15, uint64(i)
	}
	check := func(what string, err error, want func(i int) bool) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		clear(values)
		if err := m.Find(keys, values, found); err != nil {
			t.Fatalf("Find after %s: %v", what, err)
		}
		for i := range keys {
			if found[i] != want(i) || found[i] && values[i] != uint64(i) {
				t.Fatalf("after %s, key %d is found: %t, with %d", what, i, found[i], values[i])
			}
		}
	}
	if b, ok := m.(interface {
		Build([]uint64, []uint64) error
	}); ok {
		check("Build", b.Build(keys, values), func(int) bool { return true })
		if err := m.Clear(); err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = uint64(i)
		}
	}
	check("Insert", m.Insert(keys, values), func(int) bool { return true })
	_, err = m.Delete(keys[:n/2], nil)
	check("Delete", err, func(i int) bool { return i >= n/2 })
}
