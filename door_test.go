package warpmap_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
)

// As gives each table what its family does, and names those that do what it does not.
func TestAs(t *testing.T) {
	d := open(t, "cpu")
	type ask struct {
		what string
		of   func(warpmap.Table) error
		yes  []warpmap.Family
	}
	of := func(t warpmap.Table, asks []ask) (wrong []string) {
		for _, a := range asks {
			err := a.of(t)
			able := slices.Contains(a.yes, t.Family())
			if able != (err == nil) {
				wrong = append(wrong, a.what+" of "+string(t.Family()))
			}
			for _, f := range a.yes {
				if !able && (err == nil || !strings.Contains(err.Error(), string(f)) || !strings.Contains(err.Error(), a.what)) {
					wrong = append(wrong, a.what+" of "+string(t.Family())+" is the error "+err.Error())
				}
			}
		}
		return wrong
	}
	most := []warpmap.Family{warpmap.DyCuckoo, warpmap.Slab, warpmap.Stadium, warpmap.WarpCore}
	some := []warpmap.Family{warpmap.Slab, warpmap.WarpCore}
	for _, family := range warpmap.Families(warpmap.KindMap) {
		m, err := warpmap.New[uint32, uint32](d, family, warpmap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range of(m, []ask{
			{"Updater", can[warpmap.Updater[uint32, uint32]], most},
			{"Chooser", can[warpmap.Chooser[uint32, uint32]], most},
			{"Mixed", can[warpmap.Mixed[uint32, uint32]], []warpmap.Family{warpmap.DyCuckoo, warpmap.Slab, warpmap.Stadium}},
		}) {
			t.Error(w)
		}
		if err := can[warpmap.Updater[uint64, uint32]](m); err == nil || family != warpmap.GPH && !strings.Contains(err.Error(), "types") {
			t.Errorf("a map of other keys: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, family := range warpmap.Families(warpmap.KindSet) {
		s, err := warpmap.NewSet[uint32](d, family, warpmap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range of(s, []ask{{"KeyChooser", can[warpmap.KeyChooser[uint32]], some}}) {
			t.Error(w)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, family := range warpmap.Families(warpmap.KindMultiMap) {
		m, err := warpmap.NewMultiMapOf[uint32, uint32](d, warpmap.KindMultiMap, family, warpmap.MultiMapOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range of(m, []ask{{"OuterFinder", can[warpmap.OuterFinder[uint32, uint32]], some}}) {
			t.Error(w)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := can[warpmap.Updater[uint32, uint32]](nil); err == nil {
		t.Error("no table can do something")
	}
}

func can[A any](t warpmap.Table) error {
	_, err := warpmap.As[A](t)
	return err
}

// The root package is all that a program imports: tables of all kinds, by its names alone.
func TestOneImport(t *testing.T) {
	d, err := warpmap.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := warpmap.New[uint64, uint32](d, warpmap.Auto, warpmap.Options{Work: warpmap.Work{Inserts: 1, Finds: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Insert([]uint64{1, 2, 3}, []uint32{10, 20, 30}); err != nil {
		t.Fatal(err)
	}
	u, err := warpmap.As[warpmap.Updater[uint64, uint32]](m)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Update([]uint64{1, 4}, []uint32{5, 6}, warpmap.Add); err != nil {
		t.Fatal(err)
	}
	b, err := warpmap.NewBatcher(m, warpmap.BatcherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, found, err := b.Get(context.Background(), 1); v != 15 || !found || err != nil {
		t.Errorf("key 1 has %d, %t, %v; want 15", v, found, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	sum := uint32(0)
	pairs, failed := warpmap.Pairs(context.Background(), m)
	for _, v := range pairs {
		sum += v
	}
	if err := failed(); err != nil || sum != 15+20+30+6 {
		t.Errorf("values sum up to %d, %v; want 71", sum, err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Clear(); !errors.Is(err, warpmap.ErrClosed) {
		t.Errorf("a closed map: %v", err)
	}
	text, err := warpmap.NewStrings[uint32](d, warpmap.Auto, warpmap.StringsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := text.Insert(warpmap.KeysOf("a", "b"), []uint32{1, 2}); err != nil {
		t.Fatal(err)
	}
	found := make([]bool, 2)
	if err := text.Contains(warpmap.KeysOf("b", "c"), found); err != nil || !found[0] || found[1] {
		t.Errorf("found %v, %v", found, err)
	}
}
