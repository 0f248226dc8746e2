package warpmap_test

import (
	"context"
	"flag"
	"fmt"
	gomaps "maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// A release leaves a folder of files, which every later version reads. It is written once, when the version is about to be released:
//
//	go test -run TestFilesOfAllVersions . ./genome/kmers ./genome/classify -keep 0.2.0
var keep = flag.String("keep", "", "write the files of this new version into testdata")

// What the files hold: keys from 0 to ^0, some of them several times in multimaps and counters.
var keptKeys, keptValues = func() (keys, values []uint32) {
	for i := range uint32(60) {
		keys, values = append(keys, i%50*85899346+min(i%50, 1)*38), append(values, i^0xffff)
	}
	keys[49] = ^uint32(0)
	return keys, values
}()

const keptOnce = 50 // of keptKeys, the first that differ

// keptFile is a kind of file: how it is made, and what must be in it.
type keptFile struct {
	name string
	save func(d *device.Device, name string) error
	load func(d *device.Device, name string) error
}

// kept makes a keptFile of how a table is made, filled, turned into a snapshot, loaded and checked.
func kept[T interface{ Close() error }](name string, create func(d *device.Device) (T, error), fill func(T) error, as func(T) *snapshot.Table,
	load func(ctx context.Context, f *os.File, d *device.Device) (T, error), check func(T) error) keptFile {
	ctx := context.Background()
	return keptFile{name, func(d *device.Device, name string) error {
		t, err := create(d)
		if err != nil {
			return err
		}
		defer t.Close()
		if err := fill(t); err != nil {
			return err
		}
		return as(t).SaveFile(ctx, name)
	}, func(d *device.Device, name string) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		t, err := load(ctx, f, d)
		if err != nil {
			return err
		}
		defer t.Close()
		return check(t)
	}}
}

func keptFiles() (out []keptFile) {
	o := table.Options{Seed: 3}
	same := func(got, want any) error {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it has %v, want %v", got, want)
		}
		return nil
	}
	once, first := keptKeys[:keptOnce], keptValues[:keptOnce]
	want := map[uint32]uint32{}
	lists := map[uint32][]uint32{}
	for i, k := range keptKeys {
		if i < keptOnce {
			want[k] = keptValues[i]
		}
		lists[k] = append(lists[k], keptValues[i])
	}
	for _, family := range warpmap.Families(table.KindMap) {
		out = append(out, kept("map-"+string(family),
			func(d *device.Device) (table.Map[uint32, uint32], error) {
				return warpmap.New[uint32, uint32](d, family, o)
			},
			func(m table.Map[uint32, uint32]) error { return m.Insert(once, first) },
			snapshot.Map[uint32, uint32],
			func(ctx context.Context, f *os.File, d *device.Device) (table.Map[uint32, uint32], error) {
				return warpmap.LoadMap[uint32, uint32](ctx, f, d, family, o)
			},
			func(m table.Map[uint32, uint32]) error {
				pairs, failed := table.Pairs(context.Background(), m)
				got := gomaps.Collect(pairs)
				if failed() != nil {
					return failed()
				}
				return same(got, want)
			}))
	}
	for _, family := range warpmap.Families(table.KindSet) {
		out = append(out, kept("set-"+string(family),
			func(d *device.Device) (table.Set[uint32], error) { return warpmap.NewSet[uint32](d, family, o) },
			func(s table.Set[uint32]) error { _, err := s.Insert(keptKeys, nil); return err },
			snapshot.Set[uint32],
			func(ctx context.Context, f *os.File, d *device.Device) (table.Set[uint32], error) {
				return warpmap.LoadSet[uint32](ctx, f, d, family, o)
			},
			func(s table.Set[uint32]) error {
				all, failed := table.Keys(context.Background(), s)
				got := slices.Sorted(all)
				if failed() != nil {
					return failed()
				}
				return same(got, slices.Sorted(slices.Values(once)))
			}))
	}
	for _, kind := range table.MultiMapKinds() {
		for _, family := range warpmap.Families(kind) {
			mo := table.MultiMapOptions{Options: o}
			out = append(out, kept(strings.ReplaceAll(fmt.Sprint(kind), " ", "-")+"-"+string(family),
				func(d *device.Device) (table.MultiMap[uint32, uint32], error) {
					return warpmap.NewMultiMapOf[uint32, uint32](d, kind, family, mo)
				},
				func(m table.MultiMap[uint32, uint32]) error { return m.Insert(keptKeys, keptValues) },
				snapshot.MultiMap[uint32, uint32],
				func(ctx context.Context, f *os.File, d *device.Device) (table.MultiMap[uint32, uint32], error) {
					return warpmap.LoadMultiMapOf[uint32, uint32](ctx, f, d, kind, family, mo)
				},
				func(m table.MultiMap[uint32, uint32]) error {
					offsets, values, err := m.FindAll(once)
					if err != nil {
						return err
					}
					got := map[uint32][]uint32{}
					for i, k := range once {
						got[k] = slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]]))
						slices.Sort(lists[k])
					}
					return same(got, lists)
				}))
		}
	}
	out = append(out, kept("counter-warpcore",
		func(d *device.Device) (table.Counter[uint32, uint32], error) {
			return warpmap.NewCounter[uint32, uint32](d, warpmap.WarpCore, table.CounterOptions{Options: o})
		},
		func(c table.Counter[uint32, uint32]) error { return c.Add(keptKeys) },
		snapshot.Counter[uint32, uint32],
		func(ctx context.Context, f *os.File, d *device.Device) (table.Counter[uint32, uint32], error) {
			return warpmap.LoadCounter[uint32, uint32](ctx, f, d, "", table.CounterOptions{Options: o})
		},
		func(c table.Counter[uint32, uint32]) error {
			keys, counts, err := c.All()
			if err != nil {
				return err
			}
			got, want := map[uint32]uint32{}, map[uint32]uint32{}
			for i, k := range keys {
				got[k] += counts[i]
			}
			for _, k := range keptKeys {
				want[k]++
			}
			return same(got, want)
		}))
	for _, family := range []table.Family{warpmap.WarpCore, warpmap.Cuckoo} {
		out = append(out, kept("filter-"+string(family),
			func(d *device.Device) (table.Filter[uint32], error) {
				return warpmap.NewFilter[uint32](d, family, table.FilterOptions{Capacity: 60, FalsePositives: 0.01, Seed: 3})
			},
			func(f table.Filter[uint32]) error { return f.Insert(once) },
			snapshot.Filter[uint32],
			func(ctx context.Context, f *os.File, d *device.Device) (table.Filter[uint32], error) {
				return warpmap.LoadFilter[uint32](ctx, f, d, "")
			},
			func(f table.Filter[uint32]) error {
				// Other keys are told to be absent but for few: so the filter's words are as they were, and are read as they were written.
				asked, found := slices.Clone(once), make([]bool, 1000)
				for i := uint32(1); len(asked) < len(found); i++ {
					asked = append(asked, i)
				}
				if err := f.Contains(asked, found); err != nil {
					return err
				}
				if in, more := frame.Count(found[:keptOnce]), frame.Count(found[keptOnce:]); in != keptOnce || more > 50 {
					return fmt.Errorf("%d of %d keys are in, and %d others", in, keptOnce, more)
				}
				return nil
			}))
	}
	words, numbers := []string{"", "\x00", "one", "two", strings.Repeat("long ", 100)}, [][2]uint64{{1}, {2}, {3, 30}, {4}, {5, ^uint64(0)}}
	out = append(out, kept("strings-warpcore",
		func(d *device.Device) (*warpmap.Strings[[2]uint64], error) {
			return warpmap.NewStrings[[2]uint64](d, warpmap.WarpCore, text.Options{})
		},
		func(m *warpmap.Strings[[2]uint64]) error { return m.Insert(text.Of(words...), numbers) },
		snapshot.Strings[[2]uint64],
		func(ctx context.Context, f *os.File, d *device.Device) (*warpmap.Strings[[2]uint64], error) {
			return warpmap.LoadStrings[[2]uint64](ctx, f, d, "", text.Options{})
		},
		func(m *warpmap.Strings[[2]uint64]) error {
			got, found := make([][2]uint64, len(words)), make([]bool, len(words))
			if err := m.Find(text.Of(words...), got, found); err != nil {
				return err
			}
			if n, err := m.Len(); err != nil || n != len(words) {
				return fmt.Errorf("%d strings, %w", n, err)
			}
			return same(got, numbers)
		}))
	return out
}

// Files of each version are read, to the same content. Those of a kind or family that came later are only of later versions.
func TestFilesOfAllVersions(t *testing.T) {
	d, files := open(t, "cpu"), keptFiles()
	in := func(version, name string) string { return filepath.Join("testdata", version, name+".warpmap") }
	if *keep != "" {
		if err := os.Mkdir(filepath.Join("testdata", *keep), 0o755); err != nil {
			t.Fatalf("%v: files of a version that is out stay as they are", err)
		}
		for _, f := range files {
			if err := f.save(d, in(*keep, f.name)); err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
		}
	}
	read := map[string]bool{}
	names, err := filepath.Glob(in("*", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v: testdata has no files", err)
	}
	for _, name := range names {
		i := slices.IndexFunc(files, func(f keptFile) bool { return f.name+".warpmap" == filepath.Base(name) })
		if i < 0 {
			t.Errorf("%s: no test reads it: a kind or a family may not go while its files must be read", name)
			continue
		}
		read[files[i].name] = true
		if err := files[i].load(d, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range files {
		if !read[f.name] {
			t.Logf("%s is in no version yet", f.name)
		}
	}
}
