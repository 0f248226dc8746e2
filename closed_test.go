package warpmap_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// A closed multimap says that it is closed also where there is no memory for the batch, and where the batch is empty.
func TestClosedBeforeMemory(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.NewMultiMap[uint32, uint32](d, warpcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys := []uint32{1, 2, 3}
	on, err := device.From(d, keys)
	if err != nil {
		t.Fatal(err)
	}
	defer func(s device.Slice[uint32]) { s.Free() }(on)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	page := func(int, device.Slice[uint64], device.Slice[uint32]) error { return nil }
	for _, short := range []bool{true, false} {
		if short {
			faults.Set(d, faults.OfMemory(func(int64) bool { return true }))
		} else {
			faults.Set(d, nil)
			keys, on = nil, device.Slice[uint32]{}
		}
		_, _, all := m.FindAll(keys)
		_, _, allOn := m.FindAllOn(nil, on)
		_, _, outer := m.FindAllOuter(keys, 7, make([]bool, len(keys)))
		for what, err := range map[string]error{"FindAll": all, "FindAllOn": allOn, "FindAllOuter": outer,
			"FindPages": m.FindPages(nil, on, 5, page)} {
			if !errors.Is(err, table.ErrClosed) {
				t.Errorf("%s, memory short %t: %v, want %v", what, short, err, table.ErrClosed)
			}
		}
	}
}

// Whatever is closed under a table or a batch, the error says it in one line.
func TestErrorsAfterCloseAreOneLine(t *testing.T) {
	for _, family := range warpmap.Families(table.KindMap) {
		t.Run(string(family), func(t *testing.T) {
			d, err := device.Open("cpu")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			m, err := warpmap.New[uint32, uint32](d, family, table.Options{Capacity: 100})
			if err != nil {
				t.Fatal(err)
			}
			ks, err := device.Make[uint32](d, 4)
			if err != nil {
				t.Fatal(err)
			}
			vs, err := device.Make[uint32](d, 4)
			if err != nil {
				t.Fatal(err)
			}
			fs, err := device.Make[bool](d, 4)
			if err != nil {
				t.Fatal(err)
			}
			line := func(what string, err error) {
				t.Helper()
				if err == nil || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %q, want a line", what, err)
				}
			}
			st := d.Stream()
			if err := ks.Free(); err != nil {
				t.Fatal(err)
			}
			line("FindOn of freed keys and few values", m.FindOn(st, ks, vs.Slice(0, 2), fs))
			all := func(want error) {
				t.Helper()
				k, v, f := []uint32{1, 2}, make([]uint32, 2), make([]bool, 2)
				_, insertNew := m.InsertNew(k, v, nil)
				_, del := m.Delete(k, nil)
				_, length := m.Len()
				_, stats := m.Stats()
				_, _, export := m.All()
				for what, err := range map[string]error{"Insert": m.Insert(k, v), "Find": m.Find(k, v, f), "InsertNew": insertNew, "Delete": del, "Len": length,
					"Stats": stats, "All": export, "Check": m.Check(), "Clear": m.Clear(), "InsertOn": m.InsertOn(st, ks, vs), "FindOn": m.FindOn(st, ks, vs, fs)} {
					line(what, err)
					if !strings.HasSuffix(what, "On") && !errors.Is(err, want) && (want != device.ErrClosed || !errors.Is(err, device.ErrFreed)) {
						t.Errorf("%s: %v, want %v", what, err, want)
					}
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			all(device.ErrClosed)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			all(table.ErrClosed)
		})
	}
}
