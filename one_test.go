package warpmap_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/table"
)

// One key at a time does what a batch of one does, in every family.
func TestOneKey(t *testing.T) {
	d := open(t, "cpu")
	for _, family := range warpmap.Families(table.KindMap) {
		m, err := warpmap.New[uint32, uint32](d, family, table.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, before, e0 := warpmap.Get(m, 7)
		e1 := warpmap.Put(m, 7, 70)
		v, found, e2 := warpmap.Get(m, 7)
		has, e3 := warpmap.Has(m, 7)
		deleted, e4 := warpmap.Remove(m, 7)
		again, e5 := warpmap.Remove(m, 7)
		if before || v != 70 || !found || !has || !deleted || again || errors.Join(e0, e1, e2, e3, e4, e5) != nil {
			t.Errorf("%s: found before %t; %d, found %t, has %t, deleted %t, again %t, %v", family, before, v, found, has, deleted, again, errors.Join(e0, e1, e2, e3, e4, e5))
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := warpmap.Get(m, 7); !errors.Is(err, table.ErrClosed) {
			t.Errorf("%s, closed: %v", family, err)
		}
	}
	for _, family := range warpmap.Families(table.KindSet) {
		s, err := warpmap.NewSet[uint32](d, family, table.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []bool
		for _, do := range []func() (bool, error){
			func() (bool, error) { return warpmap.Has(s, 7) },
			func() (bool, error) { return warpmap.PutKey(s, 7) },
			func() (bool, error) { return warpmap.PutKey(s, 7) },
			func() (bool, error) { return warpmap.Has(s, 7) },
			func() (bool, error) { return warpmap.Remove(s, 7) },
			func() (bool, error) { return warpmap.Remove(s, 7) },
		} {
			yes, err := do()
			if err != nil {
				t.Error(err)
			}
			got = append(got, yes)
		}
		if !slices.Equal(got, []bool{false, true, false, true, true, false}) {
			t.Errorf("%s: %t", family, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	d, err := openFor(b)
	if err != nil {
		b.Fatal(err)
	}
	m, err := warpmap.New[uint64, uint64](d, warpmap.GPH, table.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if err := warpmap.Put(m, 1, 2); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, found, err := warpmap.Get(m, 1); !found || err != nil {
			b.Fatal(found, err)
		}
	}
}
