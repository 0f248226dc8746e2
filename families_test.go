package warpmap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// point is a value of 16 bytes that is no array.
type point struct {
	X, Y float32
	ID   int64
}

func open(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" && err != nil {
		t.Fatal(err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// maps, sets, multiMaps and filters run a test with the suite of every family of the kind, or of some, for one key and value type.
func maps[K, V any](t *testing.T, run func(*testing.T, *tabletest.Suite), some ...table.Family) {
	if len(some) == 0 {
		some = warpmap.Families(table.KindMap)
	}
	each(t, table.KindMap, some, fmt.Sprintf("%T,%T", *new(K), *new(V)), run, func(family table.Family) *tabletest.Suite {
		return tabletest.Map(func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return warpmap.New[K, V](d, family, o)
		})
	})
}

func sets[K any](t *testing.T, run func(*testing.T, *tabletest.Suite)) {
	each(t, table.KindSet, warpmap.Families(table.KindSet), fmt.Sprintf("%T", *new(K)), run, func(family table.Family) *tabletest.Suite {
		return tabletest.Set(func(d *device.Device, o table.Options) (table.Set[K], error) { return warpmap.NewSet[K](d, family, o) })
	})
}

func multiMaps[K, V any](t *testing.T, run func(*testing.T, *tabletest.Suite), some ...table.Kind) {
	if len(some) == 0 {
		some = table.MultiMapKinds()
	}
	for _, kind := range some {
		each(t, kind, warpmap.Families(kind), fmt.Sprintf("%T,%T", *new(K), *new(V)), run, func(family table.Family) *tabletest.Suite {
			return tabletest.MultiMap(func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
				return warpmap.NewMultiMapOf[K, V](d, kind, family, table.MultiMapOptions{Options: o})
			})
		})
	}
}

func counters[K any, C uint32 | uint64](t *testing.T, run func(*testing.T, *tabletest.Suite)) {
	each(t, table.KindCounter, warpmap.Families(table.KindCounter), fmt.Sprintf("%T,%T", *new(K), *new(C)), run, func(family table.Family) *tabletest.Suite {
		return tabletest.Counter(func(d *device.Device, o table.CounterOptions) (table.Counter[K, C], error) {
			return warpmap.NewCounter[K, C](d, family, o)
		})
	})
}

func filters[K any](t *testing.T, run func(*testing.T, *tabletest.Suite)) {
	each(t, table.KindFilter, warpmap.Families(table.KindFilter), fmt.Sprintf("%T", *new(K)), run, func(family table.Family) *tabletest.Suite {
		return tabletest.Filter(func(d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
			return warpmap.NewFilter[K](d, family, o)
		})
	})
}

func each(t *testing.T, kind table.Kind, families []table.Family, types string, run func(*testing.T, *tabletest.Suite), suite func(table.Family) *tabletest.Suite) {
	for _, family := range families {
		t.Run(fmt.Sprintf("%s/%s/%s", kind, family, types), func(t *testing.T) {
			testenv.Turn(t)
			t.Parallel()
			run(t, suite(family))
		})
	}
}

// shortly are the families that a short run on the CPU has, where others have another pair of types, or have it in a test of their own. Other runs have all.
func shortly(name string, some ...table.Family) []table.Family {
	if name == "cpu" && !testenv.Long() {
		return some
	}
	return nil
}

func TestFamilies(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			run := func(part tabletest.Part) func(*testing.T, *tabletest.Suite) {
				return func(t *testing.T, s *tabletest.Suite) { s.Run(t, part, open(t, name), open(t, "cpu")) }
			}
			maps[uint32, uint32](t, run(tabletest.Whole))
			maps[float32, int32](t, run(tabletest.Types), shortly(name, warpmap.WarpCore)...)
			maps[[2]int32, point](t, run(tabletest.Types), shortly(name, warpmap.GPH)...)
			sets[uint32](t, run(tabletest.Whole))
			multiMaps[uint32, uint32](t, run(tabletest.Whole))
			counters[uint32, uint32](t, run(tabletest.Whole))
			filters[uint32](t, run(tabletest.Whole))
			if name == "cpu" && !testenv.Long() {
				return // the families' own variants have the other widths
			}
			maps[uint64, [2]uint64](t, run(tabletest.Widths))
			sets[uint64](t, run(tabletest.Widths))
			multiMaps[uint32, [2]uint64](t, run(tabletest.Widths))
			counters[uint64, uint64](t, run(tabletest.Widths))
			filters[uint64](t, run(tabletest.Widths))
			filters[[2]uint64](t, run(tabletest.Widths))
			maps[uint64, uint64](t, run(tabletest.Widths))
			maps[uint32, uint64](t, run(tabletest.Widths))
			maps[uint64, uint32](t, run(tabletest.Widths))
			maps[uint32, [2]uint64](t, run(tabletest.Widths))
			multiMaps[uint64, uint32](t, run(tabletest.Widths))
		})
	}
}

func TestDegenerateHashes(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			run := func(t *testing.T, s *tabletest.Suite) { s.Degenerate(t, open(t, name)) }
			maps[uint32, uint32](t, run)
			sets[uint32](t, run)
			multiMaps[uint32, uint32](t, run)
			counters[uint32, uint32](t, run)
			filters[uint32](t, run)
		})
	}
}

// The same with lanes switched at random, at every access.
func TestFamiliesUnderStress(t *testing.T) {
	run := func(o table.Options, seeds int) func(*testing.T, *tabletest.Suite) {
		return func(t *testing.T, s *tabletest.Suite) {
			s.Stress(t, func(seed uint64) *device.Device { return open(t, "cpu", device.WithStress(seed)) }, o, testenv.Seeds(seeds))
		}
	}
	maps[uint32, uint32](t, run(table.Options{}, 40))
	sets[uint32](t, run(table.Options{}, 20))
	multiMaps[uint32, uint32](t, run(table.Options{}, 20))
	counters[uint32, uint32](t, run(table.Options{}, 20))
	filters[uint32](t, run(table.Options{Capacity: 100}, 20))
	if !testenv.Long() {
		return
	}
	maps[uint64, uint64](t, run(table.Options{LoadFactor: 1}, 40))
	maps[uint32, [2]uint64](t, run(table.Options{Hash: kernel.HashConstant}, 4)) // seconds each: all lanes want one cell
	maps[uint64, [2]uint64](t, run(table.Options{LoadFactor: 1}, 40))
	sets[uint64](t, run(table.Options{LoadFactor: 1}, 20))
	multiMaps[uint64, uint32](t, run(table.Options{LoadFactor: 1}, 20))
	filters[[2]uint64](t, run(table.Options{}, 20))
}

// At MaxBytes tables are full but for what their families say.
func TestFill(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for family, least := range map[table.Family]float64{warpmap.DyCuckoo: 0.96, warpmap.GPH: 0.96, warpmap.Slab: 0.98, warpmap.Stadium: 1, warpmap.WarpCore: 0.98} {
				s := tabletest.Map(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
					return warpmap.New[uint32, uint32](d, family, o)
				})
				for _, o := range []table.Options{{MaxBytes: 64 << 10}, {MaxBytes: 512 << 10, Seed: 9}, {MaxBytes: 64 << 10, LoadFactor: 0.01}} {
					t.Run(fmt.Sprintf("%s/%d,%v", family, o.MaxBytes, o.LoadFactor), func(t *testing.T) { s.Fill(t, d, o, least) })
				}
			}
		})
	}
}

func TestNewRefusesFamiliesWithoutTheKind(t *testing.T) {
	d := open(t, "cpu")
	_, err := warpmap.New[uint32, uint32](d, "no such", table.Options{})
	_, err2 := warpmap.NewSet[uint32](d, warpmap.GPH, table.Options{})
	_, err3 := warpmap.NewMultiMap[uint32, uint32](d, warpmap.GPH, table.Options{})
	_, err4 := warpmap.NewCounter[uint32, uint64](d, warpmap.GPH, table.CounterOptions{})
	_, err5 := warpmap.NewFilter[uint32](d, warpmap.GPH, table.FilterOptions{Capacity: 1})
	_, err6 := warpmap.NewMultiMapOf[uint32, uint32](d, table.KindBucketList, warpmap.Slab, table.MultiMapOptions{})
	_, err7 := warpmap.NewMultiMapOf[uint32, uint32](d, table.KindMap, warpmap.WarpCore, table.MultiMapOptions{})
	for _, err := range []error{err, err2, err3, err4, err5, err6, err7} {
		if err == nil || !strings.Contains(err.Error(), "want one of: ") {
			t.Error(err)
		}
	}
}

// Every family has maps, and each kind but those to come has a family.
func TestFamiliesOfKinds(t *testing.T) {
	for kind, want := range map[table.Kind][]table.Family{
		table.KindMap:         {warpmap.DyCuckoo, warpmap.GPH, warpmap.Slab, warpmap.Stadium, warpmap.WarpCore},
		table.KindSet:         {warpmap.Slab, warpmap.WarpCore},
		table.KindMultiMap:    {warpmap.Slab, warpmap.WarpCore},
		table.KindBucketList:  {warpmap.WarpCore},
		table.KindMultiBucket: {warpmap.WarpCore},
		table.KindCounter:     {warpmap.WarpCore},
		table.KindFilter:      {warpmap.Cuckoo, warpmap.WarpCore},
		warpmap.KindCache:     {warpmap.Caches},
		table.Kind(-1):        nil,
	} {
		if got := warpmap.Families(kind); !slices.Equal(got, want) || !slices.IsSorted(got) {
			t.Errorf("%v: %v", kind, got)
		}
	}
	if name := warpmap.KindCache.String(); name != "cache" {
		t.Errorf("the kind of caches is %q", name)
	}
}

// updatesOf runs the suite of Update and FindOrInsert with a family's maps.
func updatesOf[V uint32 | int64 | float64](t *testing.T, name string, family table.Family, part tabletest.Part) {
	suite := tabletest.UpdatesOf(func(d *device.Device, o table.Options) (table.Map[uint32, V], error) {
		return warpmap.New[uint32, V](d, family, o)
	})
	t.Run(fmt.Sprintf("%s/%T", family, *new(V)), func(t *testing.T) {
		t.Parallel()
		suite.Run(t, part, open(t, name))
	})
}

// Which families combine values and choose rows is told here, so that none is left out by mistake: GPH's keys are fixed.
func TestUpdatesAndChoices(t *testing.T) {
	able := map[table.Family]bool{warpmap.DyCuckoo: true, warpmap.Slab: true, warpmap.Stadium: true, warpmap.WarpCore: true}
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for _, family := range warpmap.Families(table.KindMap) {
				m, err := warpmap.New[uint32, uint32](d, family, table.Options{})
				if err != nil {
					t.Fatal(err)
				}
				_, updates := m.(table.Updater[uint32, uint32])
				_, chooses := m.(table.Chooser[uint32, uint32])
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if updates != able[family] || chooses != able[family] {
					t.Errorf("%s: combines values %t, chooses rows %t, want %t", family, updates, chooses, able[family])
				}
				if !able[family] {
					continue
				}
				// The families' own tests have other numbers, WarpCore's all of the suite, and all but Slab's choices.
				all := name != "cpu" || testenv.Long()
				if all || family != warpmap.WarpCore {
					updatesOf[uint32](t, name, family, tabletest.Whole)
				}
				if all {
					updatesOf[float64](t, name, family, tabletest.Types)
					updatesOf[int64](t, name, family, tabletest.Types)
				}
				if !all && family != warpmap.Slab {
					continue
				}
				choices := tabletest.ChoicesOf(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
					return warpmap.New[uint32, uint32](d, family, o)
				})
				t.Run(fmt.Sprintf("%s/choices", family), func(t *testing.T) {
					t.Parallel()
					choices.Run(t, tabletest.Whole, open(t, name))
				})
			}
			for _, family := range warpmap.Families(table.KindSet) {
				choices := tabletest.KeyChoicesOf(func(d *device.Device, o table.Options) (table.Set[uint32], error) {
					return warpmap.NewSet[uint32](d, family, o)
				})
				t.Run(fmt.Sprintf("%s/choices of keys", family), func(t *testing.T) {
					t.Parallel()
					choices.Run(t, tabletest.Whole, open(t, name))
				})
			}
		})
	}
}

// Names that are nearly right, empty, or of a family without such tables.
func TestNamesOfFamilies(t *testing.T) {
	d := open(t, "cpu")
	for _, c := range []struct{ name, want string }{
		{"WarpCore", `no map "WarpCore": want "warpcore"`}, {"GPH", `want "gph"`}, {"cuckoo", "want one of: dycuckoo, gph, slab, stadium, warpcore"},
	} {
		if m, err := warpmap.New[uint32, uint32](d, table.Family(c.name), table.Options{}); err == nil || m != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := warpmap.NewSet[uint32](d, warpmap.GPH, table.Options{}); err == nil || !strings.Contains(err.Error(), "want one of: slab, warpcore") {
		t.Errorf("a set of gph: %v", err)
	}
	chosen := func(what string, x interface {
		Family() table.Family
		Close() error
	}, err error) {
		t.Helper()
		if err != nil || x.Family() != warpmap.WarpCore {
			t.Fatalf("%s without a name: %v", what, err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []table.Family{"", warpmap.Auto} {
		m, err := warpmap.New[uint32, uint32](d, name, table.Options{})
		chosen("a map", m, err)
		s, err := warpmap.NewSet[uint32](d, name, table.Options{})
		chosen("a set", s, err)
		l, err := warpmap.NewMultiMap[uint32, uint32](d, name, table.Options{})
		chosen("a multimap", l, err)
		b, err := warpmap.NewMultiMapOf[uint32, uint32](d, table.KindBucketList, name, table.MultiMapOptions{})
		chosen("a bucket list", b, err)
		c, err := warpmap.NewCounter[uint32, uint32](d, name, table.CounterOptions{})
		chosen("a counter", c, err)
		f, err := warpmap.NewFilter[uint32](d, name, table.FilterOptions{Capacity: 10})
		chosen("a filter", f, err)
		x, err := warpmap.NewStrings[[2]uint64](d, name, text.Options{})
		chosen("strings", x, err)
	}
}

// A slice of another length than keys is named, and nothing is done.
func TestSlicesOfOtherLengthsAreNamed(t *testing.T) {
	d := open(t, "cpu")
	m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := warpmap.NewCounter[uint32, uint32](d, warpmap.WarpCore, table.CounterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	keys, one, flag := []uint32{1, 2}, []uint32{1}, []bool{true}
	on, err := device.Make[uint32](d, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer on.Free()
	for _, x := range []struct {
		name string
		do   func() error
	}{
		{"values", func() error { return m.Insert(keys, one) }},
		{"values", func() error { return m.InsertOn(nil, on, on.Slice(0, 1)) }},
		{"added", func() error { _, err := m.InsertNew(keys, keys, flag); return err }},
		{"values", func() error { return m.Find(keys, one, nil) }},
		{"found", func() error { return m.Find(keys, nil, flag) }},
		{"found", func() error { return m.Contains(keys, flag) }},
		{"deleted", func() error { _, err := m.Delete(keys, flag); return err }},
		{"counts", func() error { return c.AddCounts(keys, one) }},
		{"counts", func() error { return c.Find(keys, one, nil) }},
	} {
		want := "warpcore: slice " + x.name + " has 1 elements, keys 2"
		if err := x.do(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if n, err := m.Len(); n != 0 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}
