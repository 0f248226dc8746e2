package tabletest_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
)

func open(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestCountersAndFilters(t *testing.T) {
	d, other := open(t, "cpu"), open(t, "cpu")
	for name, suite := range map[string]*tabletest.Suite{
		"counter/uint32,uint32": tabletest.Counter(newCounter[uint32, uint32]("")),
		"counter/uint64,uint64": tabletest.Counter(newCounter[uint64, uint64]("")),
		"filter/uint32":         tabletest.Filter(newFilter[uint32]("")),
		"filter/[2]int32":       tabletest.Filter(newFilter[[2]int32]("")),
	} {
		t.Run(name, func(t *testing.T) { suite.Run(t, tabletest.Whole, d, other) })
	}
}

// A family is what passes the suite.
func TestSmallestFamily(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, other := open(t, name), open(t, "cpu")
			tabletest.Map(newRing[uint32, uint32]).Run(t, tabletest.Whole, d, other)
			tabletest.Map(newRing[uint64, [2]uint64]).Run(t, tabletest.Types, d, other)
			tabletest.Map(newRing[uint32, uint32]).Degenerate(t, d)
		})
	}
}

// A spy stands for a test, and notes that it failed.
type spy struct {
	*testing.T
	mu     sync.Mutex
	failed bool
	clean  []func()
}

func (s *spy) fail()                 { s.mu.Lock(); defer s.mu.Unlock(); s.failed = true }
func (s *spy) Helper()               {}
func (s *spy) Failed() bool          { s.mu.Lock(); defer s.mu.Unlock(); return s.failed }
func (s *spy) Log(...any)            {}
func (s *spy) Logf(string, ...any)   {}
func (s *spy) Error(...any)          { s.fail() }
func (s *spy) Errorf(string, ...any) { s.fail() }
func (s *spy) Fatal(...any)          { s.fail(); runtime.Goexit() }
func (s *spy) Fatalf(string, ...any) { s.fail(); runtime.Goexit() }
func (s *spy) Cleanup(f func())      { s.clean = append(s.clean, f) }

// finds tells whether a test fails.
func finds(t *testing.T, test func(t testing.TB)) bool {
	s := &spy{T: t}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			for _, f := range s.clean {
				f()
			}
		}()
		test(s)
	})
	wg.Wait()
	return s.failed
}

// dull are maps, sets and multimaps of a family with one thing wrong.
type dullMap struct {
	table.Map[uint32, uint32]
	defect string
}

func (m dullMap) Delete(keys []uint32, deleted []bool) (int, error) {
	if m.defect == "a deletion is forgotten" && len(keys) > 30 {
		keys, deleted = keys[1:], deleted[min(1, len(deleted)):]
	}
	return m.Map.Delete(keys, deleted)
}

func (m dullMap) Find(keys, values []uint32, found []bool) error {
	err := m.Map.Find(keys, values, found)
	if m.defect == "an absent key has a value" {
		for i, v := range values {
			if v == 0 {
				values[i] = 1
			}
		}
	}
	return err
}

type dullMultiMap struct {
	table.MultiMap[uint32, uint32]
	defect string
}

func (m dullMultiMap) Insert(keys, values []uint32) error {
	if m.defect == "a pair is lost" && len(keys) > 40 {
		keys, values = keys[1:], values[1:]
	}
	return m.MultiMap.Insert(keys, values)
}

func (m dullMultiMap) FindAll(keys []uint32) ([]uint64, []uint32, error) {
	offsets, values, err := m.MultiMap.FindAll(keys)
	if m.defect == "a key gets another's value" && len(values) > 2 {
		values[1], values[len(values)-1] = values[len(values)-1], values[1]
	}
	return offsets, values, err
}

// Every defect is found by the part of the suite that all kinds have, whatever way the calls go.
func TestPlantedDefectsAreFound(t *testing.T) {
	d := open(t, "cpu")
	churn := func(s *tabletest.Suite, o table.Options) func(testing.TB) {
		return func(t testing.TB) { s.Churn(t, d, o, 1, 60, 300) }
	}
	for _, defect := range []string{"", "a lost key is not told", "an addition is lost", "an absent key is found", "the least frequent come first", "clear does nothing"} {
		s := tabletest.Counter(newCounter[uint32, uint32](defect))
		if found := finds(t, churn(s, table.Options{MaxBytes: 1 << 10})); found != (defect != "") {
			t.Errorf("counter, %q: found %t", defect, found)
		}
	}
	for _, defect := range []string{"", "the last key is not in", "all is in"} {
		if found := finds(t, churn(tabletest.Filter(newFilter[uint32](defect)), table.Options{Seed: 1})); found != (defect != "") {
			t.Errorf("filter, %q: found %t", defect, found)
		}
	}
	for _, defect := range []string{"", "a deletion is forgotten", "an absent key has a value"} {
		s := tabletest.Map(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			m, err := warpmap.New[uint32, uint32](d, warpmap.Slab, o)
			return dullMap{m, defect}, err
		})
		if found := finds(t, churn(s, table.Options{})); found != (defect != "") {
			t.Errorf("map, %q: found %t", defect, found)
		}
	}
	for _, defect := range []string{"", "a pair is lost", "a key gets another's value"} {
		s := tabletest.MultiMap(func(d *device.Device, o table.Options) (table.MultiMap[uint32, uint32], error) {
			m, err := warpmap.NewMultiMap[uint32, uint32](d, warpmap.Slab, o)
			return dullMultiMap{m, defect}, err
		})
		if found := finds(t, churn(s, table.Options{})); found != (defect != "") {
			t.Errorf("multimap, %q: found %t", defect, found)
		}
	}
	for what, test := range map[string]func(testing.TB){
		"a count wraps": func(t testing.TB) { tabletest.Overflow(t, d, newCounter[uint32, uint32]("a count wraps")) },
		"too few bits":  func(t testing.TB) { tabletest.FalsePositives(t, d, newFilter[uint32]("too few bits")) },
		"a length is not checked": func(t testing.TB) {
			tabletest.BadInput(t, d, open(t.(*spy).T, "cpu"), tabletest.Counter(newCounter[uint32, uint32]("a length is not checked")))
		},
	} {
		if !finds(t, test) {
			t.Errorf("%s: not found", what)
		}
	}
}

func TestForgottenTablesAreReported(t *testing.T) {
	d := open(t, "cpu")
	m, err := warpmap.New[uint32, uint32](d, warpmap.Slab, table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	look := func(t testing.TB) { tabletest.NoneForgotten(t, d) }
	if !finds(t, look) {
		t.Error("an open table is not reported")
	}
	if err := m.Close(); err != nil || finds(t, look) {
		t.Errorf("a closed table is reported (%v)", err)
	}
}

// A mixed batch on few keys has a key in twice where its inserts take the places of deleted keys meanwhile.
func TestFewKeysFindsKeysTwice(t *testing.T) {
	testenv.ByTurns(t)
	newMap := func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		return slab.New[uint32, uint32](d, slab.Options{Options: o})
	}
	twice := func(seed uint64) bool {
		d, err := device.Open("cpu", device.WithStress(seed))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return finds(t, func(t testing.TB) { tabletest.FewKeys(t, d, newMap, seed) })
	}
	const seeds = 20
	for seed := range uint64(seeds) {
		if twice(seed) {
			t.Errorf("seed %d finds something without a defect", seed)
		}
	}
	planted.Text = func(_, _, text string) string {
		return strings.Replace(text, "Op<C, ANY, false> op;", "Op<C, ANY, true> op;", 1)
	}
	defer func() { planted.Text = nil }()
	for seed := range uint64(seeds) {
		if twice(seed) {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Errorf("none of %d seeds finds it", seeds)
}
