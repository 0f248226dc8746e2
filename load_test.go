package warpmap_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	gomaps "maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// openFor is a device for a benchmark: a GPU where there is one.
func openFor(b *testing.B) (*device.Device, error) {
	d, err := device.Open("auto")
	if err == nil {
		b.Cleanup(func() { d.Close() })
	}
	return d, err
}

// save is what a table's file holds.
func save(t *testing.T, x *snapshot.Table) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := x.Save(context.Background(), &file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A map of any family comes back in any other, and on another device.
func TestFilesGoIntoEveryFamily(t *testing.T) {
	ctx, d, other := context.Background(), open(t, "cpu"), open(t, "cpu")
	want := map[uint32]uint32{}
	var keys, values []uint32
	for i := range uint32(5000) {
		k, v := i*2654435761, i^0xffff
		want[k], keys, values = v, append(keys, k), append(values, v)
	}
	for _, from := range warpmap.Families(table.KindMap) {
		m, err := warpmap.New[uint32, uint32](d, from, table.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Insert(keys, values); err != nil {
			t.Fatal(err)
		}
		file := save(t, snapshot.Map(m))
		for _, to := range append(warpmap.Families(table.KindMap), "") {
			l, err := warpmap.LoadMap[uint32, uint32](ctx, bytes.NewReader(file), other, to, table.Options{Seed: 5})
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			pairs, failed := table.Pairs(ctx, l)
			if got := gomaps.Collect(pairs); failed() != nil || !gomaps.Equal(got, want) {
				t.Errorf("%s to %s: %d pairs, %v", from, to, len(got), failed())
			}
			if to == "" && l.Family() != from {
				t.Errorf("%s was loaded as %s", from, l.Family())
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The other kinds, each into all that can take it.
func TestFilesOfOtherKinds(t *testing.T) {
	ctx, d := context.Background(), open(t, "cpu")
	keys := []uint32{1, 2, 3, 0, ^uint32(0), 1, 1}
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, from := range warpmap.Families(table.KindSet) {
		s, err := warpmap.NewSet[uint32](d, from, table.Options{})
		check("set", err)
		_, err = s.Insert(keys, nil)
		check("set", err)
		file := save(t, snapshot.Set(s))
		for _, to := range append(warpmap.Families(table.KindSet), "") {
			l, err := warpmap.LoadSet[uint32](ctx, bytes.NewReader(file), d, to, table.Options{})
			check("set", err)
			n := 0
			all, failed := table.Keys(ctx, l)
			for k := range all {
				if has, err := warpmap.Has(s, k); !has || err != nil {
					t.Errorf("%s to %s: key %d, %v", from, to, k, err)
				}
				n++
			}
			if n != 5 || failed() != nil {
				t.Errorf("%s to %s: %d keys, %v", from, to, n, failed())
			}
			check("set", l.Close())
		}
		check("set", s.Close())
	}
	for _, kind := range table.MultiMapKinds() {
		for _, from := range warpmap.Families(kind) {
			m, err := warpmap.NewMultiMapOf[uint32, uint32](d, kind, from, table.MultiMapOptions{})
			check("multimap", err)
			check("multimap", m.Insert(keys, []uint32{10, 20, 30, 40, 50, 11, 12}))
			file := save(t, snapshot.MultiMap(m))
			for _, kind := range table.MultiMapKinds() {
				l, err := warpmap.LoadMultiMapOf[uint32, uint32](ctx, bytes.NewReader(file), d, kind, warpmap.WarpCore, table.MultiMapOptions{})
				check("multimap", err)
				counts := make([]uint32, 4)
				check("multimap", l.Count([]uint32{1, 2, ^uint32(0), 9}, counts))
				if fmt.Sprint(counts) != "[3 1 1 0]" {
					t.Errorf("%s to %v: counts %v", from, kind, counts)
				}
				check("multimap", l.Close())
			}
			check("multimap", m.Close())
		}
	}
	c, err := warpmap.NewCounter[uint32, uint32](d, warpmap.WarpCore, table.CounterOptions{})
	check("counter", err)
	check("counter", c.Add(keys))
	file := save(t, snapshot.Counter(c))
	l, err := warpmap.LoadCounter[uint32, uint32](ctx, bytes.NewReader(file), d, "", table.CounterOptions{})
	check("counter", err)
	top, counts, err := l.Top(1)
	if err != nil || len(top) != 1 || top[0] != 1 || counts[0] != 3 {
		t.Errorf("counter: %v, %v, %v", top, counts, err)
	}
	check("counter", c.Close())
	check("counter", l.Close())
	if _, err := warpmap.LoadFilter[uint32](ctx, bytes.NewReader(file), d, ""); err == nil || !strings.Contains(err.Error(), "not of a filter") {
		t.Errorf("a counter's file as a filter: %v", err)
	}
	if _, err := warpmap.LoadCounter[uint32, uint64](ctx, bytes.NewReader(file), d, "", table.CounterOptions{}); err == nil {
		t.Error("counts of 4 bytes were loaded as counts of 8")
	}
	f, err := warpmap.NewFilter[uint32](d, warpmap.WarpCore, table.FilterOptions{Capacity: 1000, FalsePositives: 0.001})
	check("filter", err)
	check("filter", f.Insert(keys))
	g, err := warpmap.LoadFilter[uint32](ctx, bytes.NewReader(save(t, snapshot.Filter(f))), d, "")
	check("filter", err)
	found := make([]bool, len(keys))
	if err := g.Contains(keys, found); err != nil || frame.Count(found) != len(keys) || g.Form() != f.Form() {
		t.Errorf("filter: found %t, form %v, want %v, %v", found, g.Form(), f.Form(), err)
	}
	if _, err := warpmap.LoadFilter[uint64](ctx, bytes.NewReader(save(t, snapshot.Filter(f))), d, ""); err == nil {
		t.Error("a filter of keys of 4 bytes was loaded for keys of 8")
	}
	for _, name := range []table.Family{warpmap.WarpCore, warpmap.Slab} {
		g, err := warpmap.LoadFilter[uint32](ctx, bytes.NewReader(save(t, snapshot.Filter(f))), d, name)
		if name != f.Family() {
			if err == nil || !strings.Contains(err.Error(), `a filter of warpcore is loaded as one of it, and not of "slab"`) {
				t.Errorf("as a filter of %s: %v", name, err)
			}
			continue
		}
		check("filter", err)
		check("filter", g.Close())
	}
	check("filter", f.Close())
	check("filter", g.Close())
}

// BenchmarkSnapshot tells the bytes of pairs a second that are saved and loaded.
func BenchmarkSnapshot(b *testing.B) {
	const n = 1 << 21
	ctx := context.Background()
	d, err := openFor(b)
	if err != nil {
		b.Fatal(err)
	}
	keys, values := make([]uint64, n), make([]uint64, n)
	for i := range keys {
		keys[i], values[i] = uint64(i)*0x9e3779b97f4a7c15, uint64(i)
	}
	for _, family := range warpmap.Families(table.KindMap) {
		m, err := warpmap.New[uint64, uint64](d, family, table.Options{Capacity: n})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Insert(keys, values); err != nil {
			b.Fatal(err)
		}
		path := filepath.Join(b.TempDir(), "m")
		run := func(what string, do func() error) {
			b.Run(string(family)+"/"+what, func(b *testing.B) {
				b.SetBytes(16 * n)
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("save", func() error { return snapshot.Map(m).Save(ctx, io.Discard) })
		run("save file", func() error { return snapshot.Map(m).SaveFile(ctx, path) })
		run("load file", func() error {
			if err := m.Clear(); err != nil {
				return err
			}
			return snapshot.Map(m).LoadFile(ctx, path)
		})
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
