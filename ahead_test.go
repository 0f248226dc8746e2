package warpmap_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
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

// All that a set over devices compiles is there: what its sets do, and what brings rows to them.
func TestCompileAheadShard(t *testing.T) {
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

// Whatever is called, no table hangs on a device that runs nothing, and several programs come of a family.
func TestCompileAhead(t *testing.T) {
	testenv.ByTurns(t) // seconds of NVRTC, for what TestCompileAheadShard has of one family, too
	dir := t.TempDir()
	d, err := device.OpenAhead("sm_90", device.WithCache(dir))
	testenv.Require(t, "nvrtc", err)
	defer d.Close()
	some := map[table.Kind][]table.Family{table.KindSet: {warpmap.Slab}} // seconds each
	if testenv.Long() {
		for _, kind := range []table.Kind{table.KindMap, table.KindSet, table.KindFilter} {
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
