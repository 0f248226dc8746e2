package tabletest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// FilterMaker makes a filter of the family under test.
type FilterMaker[K any] = func(d *device.Device, o table.FilterOptions) (table.Filter[K], error)

// Filter is the suite of the filters that newFilter makes.
func Filter[K any](newFilter FilterMaker[K]) *Suite {
	plain := func(d *device.Device, o table.Options) (filterTable[K], error) {
		f, err := newFilter(d, table.FilterOptions{Capacity: max(1, o.Capacity), Hash: o.Hash, Seed: o.Seed})
		return filterTable[K]{f}, err
	}
	s := newSuite(func(d *device.Device, o table.Options) (table.Table, error) { return plain(d, o) }, func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		t.Helper()
		f, err := plain(d, o)
		must(t, err)
		return &filterSubject[K]{newRig[K](t, d, f, o, seed), f}
	}, pairBytes[K, uint32](), newBatch[K, uint32], func(f table.Table) []call { return filterCalls(f.(filterTable[K]).Filter) })
	s.filter = true
	s.skip = map[string]bool{"growth": true, "full": true, "full duplicates": true, "bad options": true, "refused": true, "seeds": true}
	s.own = []test{
		{"false positives", Types, func(t *testing.T, d *device.Device) { rateTest(t, d, newFilter) }},
		{"bad filter options", Whole, func(t *testing.T, d *device.Device) { filterOptions(t, d, newFilter) }},
	}
	return s
}

// filterTable is a filter as the suite's other kinds are; what filters lack does nothing.
type filterTable[K any] struct {
	table.Filter[K]
}

func (f filterTable[K]) Len() (int, error) { _, err := f.Filter.Stats(); return 0, err }
func (f filterTable[K]) Stats() (table.Stats, error) {
	s, err := f.Filter.Stats()
	return table.Stats{Bytes: s.Bytes}, err
}
func (f filterTable[K]) Grow(n int) error {
	if n < 0 || n > 1<<46 {
		return errors.New("no such capacity")
	}
	_, err := f.Filter.Stats()
	return err
}

// filterSubject is a filter beside its model, whose numbers are of no account.
type filterSubject[K any] struct {
	*rig
	f filterTable[K]
}

func (s *filterSubject[K]) share(seed uint64) subject { return &filterSubject[K]{s.other(seed), s.f} }

func (s *filterSubject[K]) put(keys []uint64) error {
	s.Helper()
	k := KeysOf[K](keys)
	if s.coin() {
		must(s, s.f.Insert(k))
	} else {
		dk, st := onDevice(s.TB, s.d, k), s.stream()
		must(s, s.f.InsertOn(st, dk))
		must(s, st.SyncOf(s.d))
		free(s.TB, dk)
	}
	for _, k := range keys {
		s.model[k] = nil
	}
	return nil
}

// drop asks: a filter forgets nothing.
func (s *filterSubject[K]) drop(keys []uint64) { s.Helper(); s.ask(keys) }

func (s *filterSubject[K]) ask(keys []uint64) {
	s.Helper()
	for i, found := range contains(s.rig, KeysOf[K](keys), s.f.Filter) {
		if _, there := s.model[keys[i]]; there && !found {
			s.Fatalf("key %#x at position %d is in, and is told not to be", keys[i], i)
		}
		// An empty filter has no bit set, so that nothing can be in it.
		if found && len(s.model) == 0 && !s.shared {
			s.Fatalf("key %#x is in an empty filter", keys[i])
		}
	}
}

func (s *filterSubject[K]) order() []uint64 { return nil }

func (s *filterSubject[K]) verify() {
	s.Helper()
	must(s, s.f.Check())
	s.ask(s.keys())
	st, err := s.f.Filter.Stats()
	must(s, err)
	if empty := len(s.model) == 0; st.Bytes < st.Bits/8 || st.BitsSet < 0 || st.BitsSet > st.Bits || !s.shared && empty != (st.BitsSet == 0) ||
		empty && st.Rate != 0 && !s.shared || !(st.Rate >= 0 && st.Rate <= 1) {
		s.Fatalf("%d keys, and stats %+v", len(s.model), st)
	}
}

func (s *filterSubject[K]) queue(bits []uint64, rounds int) queue {
	keys := onDevice(s.TB, s.d, KeysOf[K](bits))
	q := queue{found: s.foundFor(len(bits), rounds)}
	q.put = func(st *device.Stream, _ int) error { return s.f.InsertOn(st, keys) }
	q.look = func(st *device.Stream, r int) error { return s.f.ContainsOn(st, keys, q.found[r]) }
	return q
}

// rateTest measures false positives: they come as often as was wanted, and as Stats estimates.
func rateTest[K any](t testing.TB, d *device.Device, newFilter FilterMaker[K]) {
	const n, asked = 5000, 50_000
	mask := keyMask[K]()
	for _, want := range []float64{0, 0.1, 0.001} {
		for seed := range uint64(2) {
			f, err := newFilter(d, table.FilterOptions{Capacity: n, FalsePositives: want, Seed: seed + 1})
			must(t, err)
			next := uint64(0)
			must(t, f.Insert(KeysOf[K](fresh(&next, n, mask))))
			found := make([]bool, asked)
			must(t, f.Contains(KeysOf[K](fresh(&next, asked, mask)), found))
			st, err := f.Stats()
			must(t, err)
			must(t, f.Close())
			rate := float64(frame.Count(found)) / asked
			most := want
			if want == 0 {
				most = 0.01
			}
			noise := 5 * math.Sqrt(most/asked)
			if rate > 1.25*most+noise || math.Abs(rate-st.Rate) > 0.25*most+noise {
				t.Errorf("false positives of %v wanted: %v measured, and Stats says %v", most, rate, st.Rate)
			}
		}
	}
}

func filterOptions[K any](t testing.TB, d *device.Device, newFilter FilterMaker[K]) {
	for _, o := range []table.FilterOptions{
		{},
		{Capacity: -1},
		{Capacity: math.MaxInt},
		{Capacity: 1 << 46}, // more memory than there is
		{Capacity: 10, FalsePositives: -0.1},
		{Capacity: 10, FalsePositives: 1},
		{Capacity: 10, FalsePositives: math.NaN()},
		{Bytes: -1},
		{Bytes: 1 << 60},
		{Bytes: 1 << 10, FalsePositives: 0.1},
		{Capacity: 10, Hash: -1},
		{Capacity: 10, Hash: 1000},
	} {
		if f, err := newFilter(d, o); err == nil {
			t.Errorf("%+v: no error", o)
			f.Close()
		}
	}
	if _, err := newFilter(nil, table.FilterOptions{Capacity: 1}); err == nil {
		t.Error("a filter on no device: no error")
	}
	f, err := newFilter(d, table.FilterOptions{Bytes: 4 << 10})
	must(t, err)
	st, err := f.Stats()
	must(t, err)
	if st.Bytes > 4<<10 || st.Bytes < 4<<9 {
		t.Errorf("4 KiB wanted: %+v", st)
	}
	if err := f.SetWords(f.Form().Words, make([]uint64, 1)); err == nil {
		t.Error("a word more than a filter has was set")
	}
	must(t, f.Close())
}

func filterCalls[K any](f table.Filter[K]) []call {
	type b = *batch
	return []call{
		{"Insert", keysIn, 0,
			func(b b) error { return f.Insert(hostOf[K](&b.keys)) },
			func(b b) error { return f.InsertOn(b.st, deviceOf[K](&b.keys)) }},
		{"Contains", keysIn, flagsOut,
			func(b b) error { return f.Contains(hostOf[K](&b.keys), hostOf[bool](&b.flags)) },
			func(b b) error { return f.ContainsOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Words", 0, 0, func(b) error { return f.Words(context.Background(), func([]uint64) error { return nil }) }, nil},
		{"SetWords", 0, 0, func(b) error { return f.SetWords(0, nil) }, nil},
	}
}
