package tabletest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// CounterMaker makes a counter of the family under test.
type CounterMaker[K any, C uint32 | uint64] = func(d *device.Device, o table.CounterOptions) (table.Counter[K, C], error)

// Counter is the suite of the counters that newCounter makes.
func Counter[K any, C uint32 | uint64](newCounter CounterMaker[K, C]) *Suite {
	plain := func(d *device.Device, o table.Options) (table.Table, error) {
		return newCounter(d, table.CounterOptions{Options: o})
	}
	s := newSuite(plain, func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		t.Helper()
		return newCounterSubject(t, d, newCounter, table.CounterOptions{Options: o}, seed)
	}, pairBytes[K, C](), newBatch[K, C], func(c table.Table) []call { return counterCalls(c.(table.Counter[K, C])) })
	s.own = []test{
		{"overflow", Types, func(t *testing.T, d *device.Device) { overflowTest(t, d, newCounter) }},
		{"one key", Types, func(t *testing.T, d *device.Device) { oneKeyTest(t, d, newCounter) }},
	}
	return s
}

// counterSubject is a counter beside its model, whose two numbers are the words of a key's count, the low one first.
type counterSubject[K any, C uint32 | uint64] struct {
	*rig
	c        table.Counter[K, C]
	saturate bool
}

func newCounterSubject[K any, C uint32 | uint64](t testing.TB, d *device.Device, newCounter CounterMaker[K, C], o table.CounterOptions, seed uint64) *counterSubject[K, C] {
	t.Helper()
	c, err := newCounter(d, o)
	must(t, err)
	return &counterSubject[K, C]{newRig[K](t, d, c, o.Options, seed), c, o.Saturate}
}

func (s *counterSubject[K, C]) share(seed uint64) subject {
	return &counterSubject[K, C]{s.other(seed), s.c, s.saturate}
}

// times is how often a key came.
func (s *counterSubject[K, C]) times(key uint64) C {
	v := s.model[key]
	if v == nil {
		return 0
	}
	return C(uint64(v[1])<<32 | uint64(v[0]))
}

// put adds keys, some with counts.
func (s *counterSubject[K, C]) put(keys []uint64) error {
	s.Helper()
	counts := make([]C, len(keys))
	alike := s.coin()
	for i := range counts {
		counts[i] = 1
		if !alike {
			counts[i] = C(s.rng.IntN(1000))
		}
	}
	return s.add(keys, counts, alike)
}

// add adds keys; where all counts are 1, by Add.
func (s *counterSubject[K, C]) add(keys []uint64, counts []C, ones bool) error {
	s.Helper()
	k := KeysOf[K](keys)
	var err error
	switch {
	case s.coin() && ones:
		err = s.c.Add(k)
	case s.coin():
		err = s.c.AddCounts(k, counts)
	default:
		dk, dc, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, counts), s.stream()
		if ones {
			err = s.c.AddOn(st, dk)
		} else {
			err = s.c.AddCountsOn(st, dk, dc)
		}
		must(s, st.SyncOf(s.d))
		free(s.TB, dk)
		free(s.TB, dc)
	}
	told := err
	if errors.Is(err, table.ErrOverflow) && !errors.As(err, new(*table.FullError)) {
		err = nil
	}
	lost := s.lost(err, len(keys))
	s.mustBeOut(keys, lost)
	over := false
	for i, k := range keys {
		if !lost[i] {
			n := s.times(k) + counts[i]
			if n < counts[i] {
				n, over = ^C(0), true
			}
			s.model[k] = []uint32{uint32(n), uint32(uint64(n) >> 32)}
		}
	}
	if want := over && !s.saturate; errors.Is(told, table.ErrOverflow) != want {
		s.Fatalf("a count overflows %t, counts saturate %t: %v", over, s.saturate, told)
	}
	return err
}

// drop asks: a counter forgets nothing.
func (s *counterSubject[K, C]) drop(keys []uint64) { s.Helper(); s.ask(keys) }

func (s *counterSubject[K, C]) ask(keys []uint64) {
	s.Helper()
	k, counts, found := KeysOf[K](keys), make([]C, len(keys)), make([]bool, len(keys))
	for i := range counts {
		counts[i], found[i] = 12345, s.coin() // what is not written shows
	}
	switch s.rng.IntN(4) {
	case 0:
		must(s, s.c.Find(k, counts, nil))
		for i := range found {
			_, found[i] = s.model[keys[i]]
		}
	case 1:
		must(s, s.c.Find(k, nil, found))
		for i, k := range keys {
			counts[i] = s.times(k)
		}
	case 2:
		must(s, s.c.Find(k, counts, found))
	default:
		dk, dc, df, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, counts), onDevice(s.TB, s.d, found), s.stream()
		must(s, s.c.FindOn(st, dk, dc, df))
		counts, found = host(s.TB, st, dc), host(s.TB, st, df)
		free(s.TB, dk)
		free(s.TB, dc)
		free(s.TB, df)
	}
	s.contained(keys, found)
	for i, key := range keys {
		if counts[i] != s.times(key) {
			s.Fatalf("key %#x came %d times, want %d", key, counts[i], s.times(key))
		}
	}
}

func (s *counterSubject[K, C]) order() []uint64 {
	keys, _, err := s.c.All()
	must(s, err)
	return BitsOf(keys)
}

func (s *counterSubject[K, C]) verify() {
	s.Helper()
	keys, counts := exported(s.rig, s.c)
	s.sameCounts("All", keys, counts, len(s.model))
	n := s.rng.IntN(len(s.model) + 10)
	keys, counts, err := s.c.Top(n)
	must(s, err)
	s.sameCounts("Top", keys, counts, min(n, len(s.model)))
	var want []C
	for k := range s.model {
		want = append(want, s.times(k))
	}
	slices.Sort(want)
	slices.Reverse(want)
	if !slices.Equal(counts, want[:len(counts)]) {
		s.Fatalf("Top(%d) (-want +got):\n%s", n, cmp.Diff(want[:len(counts)], counts))
	}
	s.verifyStats(len(s.model))
}

// sameCounts checks an export of n keys.
func (s *counterSubject[K, C]) sameCounts(what string, keys []K, counts []C, n int) {
	s.Helper()
	if len(keys) != n || len(counts) != n || len(distinct(BitsOf(keys))) != n {
		s.Fatalf("%s gives %d keys, %d of them distinct, and %d counts, want %d", what, len(keys), len(distinct(BitsOf(keys))), len(counts), n)
	}
	for i, k := range BitsOf(keys) {
		if _, there := s.model[k]; !there || counts[i] != s.times(k) {
			s.Fatalf("%s: key %#x came %d times, want %d (there %t)", what, k, counts[i], s.times(k), there)
		}
	}
}

func (s *counterSubject[K, C]) queue(bits []uint64, rounds int) queue {
	keys, counts := onDevice(s.TB, s.d, KeysOf[K](bits)), onDevice(s.TB, s.d, make([]C, len(bits)))
	q := queue{found: s.foundFor(len(bits), rounds)}
	q.put = func(st *device.Stream, _ int) error { return s.c.AddOn(st, keys) }
	q.look = func(st *device.Stream, r int) error { return s.c.FindOn(st, keys, counts, q.found[r]) }
	return q
}

// overflowTest brings counts to the largest that C has, and beyond.
func overflowTest[K any, C uint32 | uint64](t testing.TB, d *device.Device, newCounter CounterMaker[K, C]) {
	for _, saturate := range []bool{false, true} {
		s := newCounterSubject(t, d, newCounter, table.CounterOptions{Saturate: saturate}, 1)
		keys := []uint64{1, 2, s.keyBits}
		s.add(keys, []C{^C(0) - 5, ^C(0), 7}, false)
		s.add([]uint64{1, 1, s.keyBits}, []C{1, 4, 1}, false)
		s.verify()
		for range 3 {
			s.add([]uint64{3, 1}, []C{1, 1}, true)
			s.add([]uint64{2, s.keyBits, 1}, []C{^C(0), 3, 1 << 31}, false)
			s.ask(keys)
			s.verify()
		}
	}
}

// oneKeyTest adds batches of which one key is most.
func oneKeyTest[K any, C uint32 | uint64](t testing.TB, d *device.Device, newCounter CounterMaker[K, C]) {
	s := newCounterSubject(t, d, newCounter, table.CounterOptions{}, 1)
	for i := range 3 {
		keys := slices.Repeat([]uint64{s.keyBits - uint64(i)}, 20_000)
		for range 100 {
			keys[s.rng.IntN(len(keys))] = uint64(s.rng.IntN(50))
		}
		must(t, s.put(keys))
		s.verify()
	}
}

func counterCalls[K any, C uint32 | uint64](c table.Counter[K, C]) []call {
	type b = *batch
	return []call{
		{"Add", keysIn, 0,
			func(b b) error { return c.Add(hostOf[K](&b.keys)) },
			func(b b) error { return c.AddOn(b.st, deviceOf[K](&b.keys)) }},
		{"AddCounts", keysIn | valuesIn, 0,
			func(b b) error { return c.AddCounts(hostOf[K](&b.keys), hostOf[C](&b.values)) },
			func(b b) error { return c.AddCountsOn(b.st, deviceOf[K](&b.keys), deviceOf[C](&b.values)) }},
		{"Find", keysIn, valuesIn | flagsOut,
			func(b b) error { return c.Find(hostOf[K](&b.keys), hostOf[C](&b.values), hostOf[bool](&b.flags)) },
			func(b b) error {
				return c.FindOn(b.st, deviceOf[K](&b.keys), deviceOf[C](&b.values), deviceOf[bool](&b.flags))
			}},
		{"All", 0, 0, func(b) error { _, _, err := c.All(); return err }, nil},
		{"Chunks", 0, 0, func(b) error { return c.Chunks(context.Background(), func([]K, []C) error { return nil }) }, nil},
		{"Top", 0, 0, func(b) error { _, _, err := c.Top(3); return err }, nil},
	}
}
