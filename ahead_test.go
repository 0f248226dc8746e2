package warpmap_test

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/internal/witness"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// compiled are the programs in a cache.
func compiled(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "lock" {
			names = append(names, f.Name())
		}
	}
	return names
}

// All that a Strings compiles, when it is made and when it is used, is there.
func TestCompileAheadStrings(t *testing.T) {
	testenv.ByTurns(t)
	dir := t.TempDir()
	d, err := device.OpenAhead("sm_90", device.WithCache(dir))
	testenv.Require(t, "nvrtc", err)
	defer d.Close()
	families := []table.Family{warpmap.GPH}
	if testenv.Long() {
		families = warpmap.Families(table.KindMap)
	}
	for _, family := range families {
		before := len(compiled(t, dir))
		if err := warpmap.CompileAheadStrings[uint32](d, family); err != nil {
			t.Fatalf("%s: %v", family, err)
		}
		all := compiled(t, dir)
		if n := len(all) - before; n < 2 {
			t.Errorf("%s: %d programs", family, n)
		}
		m, err := warpmap.NewStrings[uint32](d, family, text.Options{Options: table.Options{Capacity: 1 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		keys, values := text.Of("a", "b"), make([]uint32, 2) // nothing runs, so that errors mean nothing
		m.Insert(keys, values)
		m.Find(keys, values, nil)
		m.Delete(keys, nil)
		m.Stats()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if now := compiled(t, dir); !slices.Equal(now, all) {
			t.Errorf("%s: %d programs were compiled ahead, and then there are %d", family, len(all), len(now))
		}
	}
}

// All that a set over devices compiles is there: what its sets do, and what brings rows to them. In short runs NVRTC
// does nothing: other tests have the kernels themselves compiled.
func TestCompileAheadShard(t *testing.T) {
	witness.Nothing = !testenv.Long()
	t.Cleanup(func() { witness.Nothing = false })
	dir := t.TempDir()
	d, err := device.OpenAhead("sm_90", device.WithCache(dir))
	testenv.Require(t, "nvrtc", err)
	defer d.Close()
	if err := errors.Join(warpmap.CompileAhead[uint32, uint32](d, table.KindSet, warpmap.Slab), shard.CompileAhead[uint32, uint32](d, table.KindSet)); err != nil {
		t.Fatal(err)
	}
	all := compiled(t, dir)
	s, err := shard.NewSet([]*device.Device{d}, shard.Options{Options: table.Options{Capacity: 1 << 20}}, func(d *device.Device, o table.Options) (table.Set[uint32], error) {
		return warpmap.NewSet[uint32](d, warpmap.Slab, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{8, 1 << 20} { // nothing runs, so that errors mean nothing
		keys, found := make([]uint32, n), make([]bool, n)
		s.Insert(keys, found)
		s.Contains(keys, found)
		s.Delete(keys, nil)
	}
	s.Stats()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if now := compiled(t, dir); !slices.Equal(now, all) {
		t.Errorf("%d programs were compiled ahead, and then there are %d", len(all), len(now))
	}
}

// largeSources are embedded, for test binaries that run far from the sources.
//
//go:embed */stretch*.cu */staged.cu */panes.cu
var largeSources embed.FS

var entryPoint = regexp.MustCompile(`(?m)^WARPMAP_KERNEL(?:_RESIDENT|_WIDE)?\((\w+),`)

// largeKernels are the kernels of the sources for large batches, and for tables that do not lie in one piece, by the source's text, as "family/source kernel".
func largeKernels(t *testing.T) map[string][]string {
	t.Helper()
	kernels := map[string][]string{}
	for _, pattern := range []string{"*/stretch*.cu", "*/staged.cu", "*/panes.cu"} {
		paths, err := fs.Glob(largeSources, pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %q, %v", pattern, paths, err)
		}
		for _, path := range paths {
			text, err := largeSources.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range entryPoint.FindAllStringSubmatch(string(text), -1) {
				kernels[string(text)] = append(kernels[string(text)], path+" "+found[1])
			}
			if kernels[string(text)] == nil {
				t.Errorf("%s: no kernels", path)
			}
		}
	}
	return kernels
}

// Each table's kernels for large batches, and for what device memory has no room for, are compiled ahead, though nothing
// runs there that would bring it to need all of them. Which kernels the compiler is asked for is what counts: it does
// nothing, for that would take minutes.
func TestCompileAheadForLargeBatches(t *testing.T) {
	kernels := largeKernels(t)
	replaces := func(kernel string) bool { return strings.HasSuffix(kernel, "/stretch.cu insert_stretch") }
	var mu sync.Mutex
	sources := map[string][]string{} // the kernels of a program's source
	asked := map[string]bool{}
	planted.Text = func(program, _, text string) string {
		mu.Lock()
		defer mu.Unlock()
		if of := kernels[text]; of != nil {
			sources[program] = of
		}
		return text
	}
	witness.Nothing = true
	witness.Compiles = func(program, kernel string) func() {
		mu.Lock()
		defer mu.Unlock()
		asked[program] = true
		for _, k := range sources[strings.TrimSuffix(program, "."+kernel)] {
			if strings.HasSuffix(k, " "+kernel) {
				asked[k] = true
			}
		}
		return func() {}
	}
	t.Cleanup(func() { planted.Text, witness.Compiles, witness.Nothing = nil, nil, false })
	single := []string{"stretch.cu", "staged.cu", "panes.cu"}
	for kind, files := range map[table.Kind][]string{
		table.KindMap: single, table.KindSet: single, table.KindCounter: single,
		table.KindMultiMap: {"stretch_multi.cu"}, table.KindBucketList: {"stretch_list.cu"}, table.KindMultiBucket: nil, warpmap.KindCache: single,
	} {
		if !testenv.Long() && (kind == table.KindSet || kind == table.KindCounter || kind == table.KindMultiBucket) {
			continue
		}
		for _, family := range warpmap.Families(kind) {
			if !testenv.Long() && (kind == table.KindMultiMap && family != warpmap.WarpCore || family == warpmap.GPH) {
				continue // has none; has one, which large batches alone bring
			}
			clear(asked)
			d, err := device.OpenAhead("sm_90", device.WithCache(t.TempDir()))
			testenv.Require(t, "nvrtc", err)
			if err := errors.Join(warpmap.CompileAhead[uint32, uint32](d, kind, family), d.Close()); err != nil {
				t.Errorf("%v of %s: %v", kind, family, err)
			}
			for _, of := range kernels {
				for _, kernel := range of {
					from, file := path.Split(strings.Fields(kernel)[0])
					want := from == string(family)+"/" && slices.Contains(files, file) && (kind != table.KindSet || !replaces(kernel))
					if asked[kernel] != want {
						t.Errorf("%v of %s: %s is compiled: %v, want %v", kind, family, kernel, asked[kernel], want)
					}
				}
			}
			if kind == table.KindMap && family == warpmap.WarpCore && !asked["distinct.distinct"] {
				t.Error("no batch is so large that its distinct keys are counted")
			}
			if kind == warpmap.KindCache && !asked["cache-cover.cover"] {
				t.Error("no batch is so small that it does not go in by stretches, and so large that its rows are covered")
			}
		}
	}
}

// Whatever is called, no table hangs on a device that runs nothing, and several programs come of a family.
func TestCompileAhead(t *testing.T) {
	testenv.ByTurns(t) // seconds of NVRTC, for what TestCompileAheadShard has of one family, too
	dir := t.TempDir()
	d, err := device.OpenAhead("sm_90", device.WithCache(dir))
	testenv.Require(t, "nvrtc", err)
	defer d.Close()
	some := map[table.Kind][]table.Family{table.KindSet: {warpmap.Slab}} // seconds each
	if testenv.Long() {
		for _, kind := range []table.Kind{table.KindMap, table.KindSet, table.KindFilter, warpmap.KindCache} {
			some[kind] = warpmap.Families(kind)
		}
	}
	for kind, families := range some {
		for _, family := range families {
			before := len(compiled(t, dir))
			if err := warpmap.CompileAhead[uint32, uint32](d, kind, family); err != nil {
				t.Errorf("%v of %s: %v", kind, family, err)
			}
			if n := len(compiled(t, dir)) - before; n < 1 {
				t.Errorf("%v of %s: %d programs", kind, family, n)
			}
		}
	}
	if !testenv.Long() {
		return
	}
	for _, kind := range append(table.MultiMapKinds(), table.KindCounter) {
		for _, family := range warpmap.Families(kind) {
			if err := warpmap.CompileAhead[uint32, uint32](d, kind, family); err != nil {
				t.Errorf("%v of %s: %v", kind, family, err)
			}
		}
	}
	// All is there: the same again compiles nothing.
	before := compiled(t, dir)
	if err := warpmap.CompileAhead[uint32, uint32](d, table.KindMap, warpmap.WarpCore); err != nil || !slices.Equal(before, compiled(t, dir)) {
		t.Errorf("compiled again: %v", err)
	}
}
