package tabletest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// FilterMaker makes a filter of the family under test.
type FilterMaker[K any] = func(d *device.Device, o table.FilterOptions) (table.Filter[K], error)

// Filter is the suite of the filters that newFilter makes.
func Filter[K any](newFilter FilterMaker[K]) *Suite {
	plain := func(d *device.Device, o table.Options) (filterTable[K], error) {
		f, err := newFilter(d, table.FilterOptions{Capacity: max(1, o.Capacity), Hash: o.Hash, Seed: o.Seed})
		if del, is := f.(deletingFilter[K]); is && o.Capacity < roomy { // it refuses more keys than it was made for
			closed := del.Close()
			f, err = newFilter(d, table.FilterOptions{Capacity: roomy, Hash: o.Hash, Seed: o.Seed})
			err = errors.Join(err, closed)
		}
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

// deletingFilter is a filter from which keys can be taken out, such as those of cuckoo. A key that was put in twice is in
// twice.
type deletingFilter[K any] interface {
	table.Filter[K]
	eraser[K]
	Len() (int, error)
}

const (
	// roomy is more keys than the suite puts into a filter, and mostOf how often it has one key in.
	roomy, mostOf = 1 << 16, 4
)

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

// filterSubject is a filter beside its model. A key has as many numbers there as a deleting filter has it, and is of no
// account otherwise.
type filterSubject[K any] struct {
	*rig
	f filterTable[K]
}

func (s *filterSubject[K]) share(seed uint64) subject { return &filterSubject[K]{s.other(seed), s.f} }

func (s *filterSubject[K]) put(keys []uint64) error {
	s.Helper()
	f, is := s.f.Filter.(deletingFilter[K])
	if !is {
		must(s, s.insert(keys))
		for _, k := range keys {
			s.model[k] = nil
		}
		return nil
	}
	var some []uint64 // of a key, no more than there is always room for
	more := map[uint64]int{}
	for _, k := range keys {
		if more[k]++; len(s.model[k])+more[k] <= mostOf {
			some = append(some, k)
		}
	}
	lost, err := map[int]bool{}, s.insert(some)
	if full := (*table.FullError)(nil); errors.As(err, &full) && s.opts.Hash >= kernel.HashIdentity {
		if n, err := f.Len(); err != nil || !s.shared && n != full.Len {
			s.Errorf("the error says %d keys, Len %d, %v", full.Len, n, err)
		}
		for _, p := range full.Positions {
			lost[p] = true
		}
	} else {
		must(s, err)
	}
	for i, k := range some {
		if !lost[i] {
			s.model[k] = append(s.model[k], 0)
		}
	}
	return nil
}

func (s *filterSubject[K]) insert(keys []uint64) error {
	s.Helper()
	k := KeysOf[K](keys)
	if s.coin() {
		return s.f.Insert(k)
	}
	dk, st := onDevice(s.TB, s.d, k), s.stream()
	err := s.f.InsertOn(st, dk)
	must(s, st.SyncOf(s.d))
	free(s.TB, dk)
	return err
}

// drop asks where a filter forgets nothing. Of a deleting filter it takes out only what is in: what is not may be as another
// key is.
func (s *filterSubject[K]) drop(keys []uint64) {
	s.Helper()
	f, is := s.f.Filter.(deletingFilter[K])
	if !is {
		s.ask(keys)
		return
	}
	var some []uint64
	for _, k := range keys {
		if numbers, there := s.model[k]; there {
			some = append(some, k)
			if s.model[k] = numbers[1:]; len(numbers) == 1 {
				delete(s.model, k)
			}
		}
	}
	deleted, count, told := erase(s.rig, KeysOf[K](some), f)
	for i, k := range some {
		if told && !deleted[i] {
			s.Fatalf("key %#x at position %d is in, and is not deleted", k, i)
		}
	}
	if count >= 0 && count != len(some) {
		s.Fatalf("%d of %d keys are deleted", count, len(some))
	}
}

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
	f, is := s.f.Filter.(deletingFilter[K])
	if !is || s.shared {
		return
	}
	want := 0
	for _, numbers := range s.model {
		want += len(numbers)
	}
	if n, err := f.Len(); err != nil || n != want || st.Keys != float64(want) || st.KeysError != 0 {
		s.Fatalf("%d keys are in, and Len says %d, %v, and stats %+v", want, n, err, st)
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
	del, deletes := f.(deletingFilter[K])
	put := func(err error) error { // one of a fixed size may be full
		if deletes && errors.As(err, new(*table.FullError)) {
			return nil
		}
		return err
	}
	calls := []call{
		{"Insert", keysIn, 0,
			func(b b) error { return put(f.Insert(hostOf[K](&b.keys))) },
			func(b b) error { return put(f.InsertOn(b.st, deviceOf[K](&b.keys))) }},
		{"Contains", keysIn, flagsOut,
			func(b b) error { return f.Contains(hostOf[K](&b.keys), hostOf[bool](&b.flags)) },
			func(b b) error { return f.ContainsOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Words", 0, 0, func(b) error { return f.Words(context.Background(), func([]uint64) error { return nil }) }, nil},
		{"SetWords", 0, 0, func(b) error { return f.SetWords(0, nil) }, nil},
	}
	if !deletes {
		return calls
	}
	return append(calls, call{"Delete", keysIn, flagsOut,
		func(b b) error { _, err := del.Delete(hostOf[K](&b.keys), hostOf[bool](&b.flags)); return err },
		func(b b) error { return del.DeleteOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		call{"Len", 0, 0, func(b) error { _, err := del.Len(); return err }, nil})
}
