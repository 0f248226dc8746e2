package bench_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// buildable is a table with BuildOn.
type buildable struct {
	table.Map[uint32, uint32]
	builds int
}

func (b *buildable) BuildOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	b.builds++
	return b.InsertOn(st, keys, values)
}

func TestTableBuild(t *testing.T) {
	d := benchtest.CPU(t)
	o := bench.TableOptions{Keys: "lineitem", KeyBytes: 4, ValueBytes: 4, N: 1000, Queries: 1000, Hits: 0.5, Loads: []float64{0.5}, Build: true}
	var b *buildable
	rows, err := bench.Table(d, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
		m, err := bench.NewMap(d, warpmap.WarpCore, table.Options{Capacity: o.N, LoadFactor: load})
		if err != nil {
			return bench.Subject{}, err
		}
		b = &buildable{Map: m}
		return bench.Built(w, b)
	})
	if err != nil || b.builds != bench.Runs+1 || rows[0].Build <= 0 || rows[0].Insert != 0 || rows[0].InsertShare <= 0 || rows[0].Wrong != 0 {
		t.Errorf("%d builds, %+v, %v", b.builds, rows, err)
	}
	_, err = bench.Table(d, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) { return bench.Built(w, b.Map) })
	if !errors.Is(err, bench.ErrNoBuild) {
		t.Errorf("build of a table that cannot: %v", err)
	}
}

// A table that says no leaves a note; a device that is lost ends the figure.
func TestRefusal(t *testing.T) {
	if note, err := bench.Refusal(fmt.Errorf("insert: %w", &table.FullError{Why: errors.New("no room")})); err != nil || !strings.Contains(note, "no room") {
		t.Errorf("%q, %v", note, err)
	}
	if _, err := bench.Refusal(fmt.Errorf("insert: %w", &device.FaultError{})); err == nil {
		t.Error("a lost device is passed over")
	}
}

// What is wrong is seen, in every kind of table: a key that is gone, a value too many, and one that is another.
func TestWrongAnswersAreCounted(t *testing.T) {
	d := benchtest.CPU(t)
	const n = 600
	o := bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: n, Queries: 8 * n, Hits: 0.9, Seed: 1, Each: 3}
	w, err := bench.NewWork[uint32, uint32](d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Free()
	keys, err := w.Keys.Host(d.Stream())
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(s bench.Subject) int {
		t.Helper()
		if err := s.Find(); err != nil {
			t.Fatal(err)
		}
		n, err := s.Wrong()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(name string, s bench.Subject, spoil func() error) {
		t.Helper()
		defer s.Table.Close()
		if err := s.Fill(); err != nil {
			t.Fatal(err)
		}
		if n := wrong(s); n != 0 {
			t.Errorf("%s: %d wrong answers, and nothing is wrong", name, n)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if n := wrong(s); n == 0 || n > o.Queries/2 {
			t.Errorf("%s: %d wrong answers, and one key is wrong", name, n)
		}
	}
	for _, family := range warpmap.Families(table.KindSet) {
		s, err := warpmap.NewSet[uint32](d, family, table.Options{})
		if err != nil {
			t.Fatal(err)
		}
		check(string(family)+" set, a key less", bench.Set(w, s), func() error { _, err := s.Delete(keys[:1], nil); return err })
	}
	for _, family := range warpmap.Families(table.KindMultiMap) {
		for name, spoil := range map[string]func(m table.MultiMap[uint32, uint32]) error{
			"a key less":   func(m table.MultiMap[uint32, uint32]) error { _, err := m.Delete(keys[:1], nil); return err },
			"a value more": func(m table.MultiMap[uint32, uint32]) error { return m.Insert(keys[:1], []uint32{7}) },
			"all values twice": func(m table.MultiMap[uint32, uint32]) error {
				v := uint32(workload.Value(uint64(keys[0])))
				return m.Insert([]uint32{keys[0], keys[0], keys[0]}, []uint32{v, v + 1, v + 2})
			},
			"other values": func(m table.MultiMap[uint32, uint32]) error {
				_, err := m.Delete(keys[:1], nil)
				return errors.Join(err, m.Insert([]uint32{keys[0], keys[0], keys[0]}, []uint32{1, 2, 3}))
			},
		} {
			m, err := warpmap.NewMultiMap[uint32, uint32](d, family, table.Options{})
			if err != nil {
				t.Fatal(err)
			}
			check(string(family)+" multimap, "+name, bench.MultiMap(w, m), func() error { return spoil(m) })
		}
	}
}

// A wide value counts as wrong whichever of its words is, and a wide key whose pair is gone.
func TestWrongWideAnswersAreCounted(t *testing.T) {
	d := benchtest.CPU(t)
	w, err := bench.NewWork[[2]uint64, [4]uint64](d, bench.TableOptions{Keys: "rand", KeyBytes: 16, ValueBytes: 32, N: 500, Queries: 4000, Hits: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Free()
	m, err := warpmap.New[[2]uint64, [4]uint64](d, warpmap.DyCuckoo, table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := w.Map(m)
	defer m.Close()
	wrong := func() int {
		t.Helper()
		n := 0
		err := s.Find()
		if err == nil {
			n, err = s.Wrong()
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := s.Fill(); err != nil {
		t.Fatal(err)
	}
	if n := wrong(); n != 0 {
		t.Errorf("%d wrong answers, and nothing is wrong", n)
	}
	keys, err := w.Keys.Host(d.Stream())
	if err != nil {
		t.Fatal(err)
	}
	for word := range 4 {
		right := workload.Widen[[4]uint64](workload.Value(keys[0][0]))
		other := right
		other[word] ^= 1 << 40
		if err := m.Insert(keys[:1], [][4]uint64{other}); err != nil {
			t.Fatal(err)
		}
		if n := wrong(); n == 0 || n > 100 {
			t.Errorf("word %d of a value is wrong, and %d answers", word, n)
		}
		if err := m.Insert(keys[:1], [][4]uint64{right}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Delete(keys[:1], nil); err != nil {
		t.Fatal(err)
	}
	if n := wrong(); n == 0 || n > 100 {
		t.Errorf("a key is gone, and %d answers are wrong", n)
	}
}
