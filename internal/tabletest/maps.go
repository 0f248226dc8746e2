package tabletest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Map is the suite of the maps that newMap makes.
func Map[K, V any](newMap Maker[K, V]) *Suite {
	open := func(t testing.TB, d *device.Device, o table.Options, seed uint64) *mapSubject[K, V] {
		return newMapSubject(t, d, newMap, o, seed)
	}
	s := newSuite(func(d *device.Device, o table.Options) (table.Table, error) { return newMap(d, o) },
		func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject { return open(t, d, o, seed) },
		pairBytes[K, V](), newBatch[K, V], func(m table.Table) []call { return mapCalls(m.(table.Map[K, V])) })
	s.own = []test{
		{"whole values", Types, func(t *testing.T, d *device.Device) { wholeTest(t, d, newMap) }},
		{"unaligned values", Types, func(t *testing.T, d *device.Device) { unalignedTest(t, d, newMap) }},
		{"mixed operations", Widths, func(t *testing.T, d *device.Device) { mixedTest(t, d, newMap) }},
	}
	return s
}

// Maker makes a map of the family under test.
type Maker[K, V any] = func(d *device.Device, o table.Options) (table.Map[K, V], error)

// mapSubject is a map beside its model.
type mapSubject[K, V any] struct {
	*rig
	m table.Map[K, V]
}

func newMapSubject[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64) *mapSubject[K, V] {
	t.Helper()
	m, err := newMap(d, o)
	must(t, err)
	return &mapSubject[K, V]{newRig[K](t, d, m, o, seed), m}
}

func (s *mapSubject[K, V]) share(seed uint64) subject { return &mapSubject[K, V]{s.other(seed), s.m} }

func (s *mapSubject[K, V]) numbers(n int) []uint32 { return numbersOf[V](s.rng, n) }

func (s *mapSubject[K, V]) put(keys []uint64) error {
	s.Helper()
	if s.rng.IntN(3) == 0 {
		return s.insertNew(keys, s.numbers(len(keys)))
	}
	return s.insert(keys, s.numbers(len(keys)))
}

func (s *mapSubject[K, V]) order() []uint64 {
	keys, _, err := s.m.All()
	must(s, err)
	return BitsOf(keys)
}

func (s *mapSubject[K, V]) ask(keys []uint64) { s.Helper(); s.find(keys) }

func (s *mapSubject[K, V]) queue(bits []uint64, rounds int) queue {
	n := len(bits)
	keys := onDevice(s.TB, s.d, KeysOf[K](bits))
	want, values, out := make([][]uint32, rounds), make([]device.Slice[V], rounds), make([]device.Slice[V], rounds)
	q := queue{found: s.foundFor(n, rounds)}
	for r := range rounds {
		want[r] = s.numbers(n)
		values[r] = onDevice(s.TB, s.d, ValuesOf[V](want[r]))
		out[r] = onDevice(s.TB, s.d, ValuesOf[V](s.numbers(n)))
	}
	q.put = func(st *device.Stream, r int) error { return s.m.InsertOn(st, keys, values[r]) }
	q.drop = func(st *device.Stream) error { return s.m.DeleteOn(st, keys.Slice(0, n/2), device.Slice[bool]{}) }
	q.look = func(st *device.Stream, r int) error { return s.m.FindOn(st, keys, out[r], q.found[r]) }
	got := make([][]uint32, rounds)
	q.value = func(r, i int) {
		if got[r] == nil {
			got[r] = make([]uint32, n)
			v := host(s.TB, nil, out[r])
			for j, found := range host(s.TB, nil, q.found[r]) {
				if found {
					got[r][j] = NumbersOf(s.TB, v[j:j+1])[0]
				}
			}
		}
		if got[r][i] != want[r][i] {
			s.Fatalf("round %d, key %d: not the value of the round", r, i)
		}
	}
	return q
}

func (s *mapSubject[K, V]) insert(keys []uint64, numbers []uint32) error {
	s.Helper()
	err := insertPairs(s.rig, KeysOf[K](keys), ValuesOf[V](numbers), s.m)
	lost := s.lost(err, len(keys))
	batch := map[uint64][]uint32{}
	for i, k := range keys {
		if !lost[i] {
			batch[k] = append(batch[k], numbers[i])
		}
	}
	s.mustBeOut(keys, lost)
	for k, v := range batch {
		s.model[k] = v
	}
	return err
}

func (s *mapSubject[K, V]) insertNew(keys []uint64, numbers []uint32) error {
	s.Helper()
	k, v := KeysOf[K](keys), ValuesOf[V](numbers)
	added, count, told, err := s.flags(len(keys),
		func(added []bool) (int, error) { return s.m.InsertNew(k, v, added) },
		func(st *device.Stream, added device.Slice[bool]) error {
			dk, dv := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, v)
			err := s.m.InsertNewOn(st, dk, dv, added)
			must(s, st.SyncOf(s.d))
			free(s.TB, dk)
			free(s.TB, dv)
			return err
		})
	lost := s.lost(err, len(keys))
	s.mustBeOut(keys, lost)
	in := map[uint64][]uint32{} // values that went in, or may have
	out := map[uint64]bool{}
	for i, k := range keys {
		out[k] = lost[i]
		if added[i] && lost[i] {
			s.Fatalf("position %d, key %#x: added, and not in", i, k)
		}
		if _, there := s.model[k]; !there && !lost[i] && (added[i] || !told) {
			in[k] = append(in[k], numbers[i])
		}
	}
	n := s.onceEach("added", keys, added, told, func(k uint64) bool {
		_, there := s.model[k]
		return !there && !out[k]
	})
	s.count("keys are new by InsertNew", count, n)
	for k, v := range in {
		s.model[k] = v
	}
	return err
}

func (s *mapSubject[K, V]) drop(keys []uint64) {
	s.Helper()
	deleted, count, told := erase(s.rig, KeysOf[K](keys), s.m)
	s.dropped(keys, deleted, count, told)
}

func (s *mapSubject[K, V]) find(keys []uint64) {
	s.Helper()
	k := KeysOf[K](keys)
	values, _ := elements[V](len(keys))
	for i := range values {
		values[i] = ValuesOf[V]([]uint32{0xdeadbeef})[0] // what is not written shows
	}
	found := make([]bool, len(keys))
	withValues, withFound := true, true
	switch way := s.rng.IntN(8); {
	case way == 0:
		withFound = false
		must(s, s.m.Find(k, values, nil))
	case way == 1 || way == 3:
		withValues = false
		found = contains(s.rig, k, s.m)
	case way == 2:
		withValues = false
		must(s, s.m.Find(k, nil, found))
	case way < 6:
		dk, dv, df, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, values), onDevice(s.TB, s.d, found), s.stream()
		must(s, s.m.FindOn(st, dk, dv, df))
		values, found = host(s.TB, st, dv), host(s.TB, st, df)
		free(s.TB, dk)
		free(s.TB, dv)
		free(s.TB, df)
	default:
		must(s, s.m.Find(k, values, found))
	}
	for i, key := range keys {
		may, there := s.model[key]
		if withFound && found[i] != there {
			s.Fatalf("key %#x at position %d: found %t, want %t", key, i, found[i], there)
		}
		if !withValues {
			continue
		}
		if !there {
			if !isZero(values[i]) {
				s.Fatalf("key %#x is absent, and has value %v", key, values[i])
			}
			continue
		}
		got := NumbersOf(s.TB, values[i:i+1])[0]
		if !slices.Contains(may, got) {
			s.Fatalf("key %#x has value %#x, want one of %#x", key, got, may)
		}
		s.model[key] = []uint32{got}
	}
}

// verify compares the whole table.
func (s *mapSubject[K, V]) verify() {
	s.Helper()
	keys, values := exported(s.rig, s.m)
	if len(keys) != len(values) {
		s.Fatalf("All gives %d keys, %d values", len(keys), len(values))
	}
	got, want := map[uint64]uint32{}, map[uint64]uint32{}
	numbers := NumbersOf(s.TB, values)
	for i, k := range BitsOf(keys) {
		if _, twice := got[k]; twice {
			s.Fatalf("All gives key %#x twice", k)
		}
		got[k] = numbers[i]
	}
	for k, may := range s.model {
		want[k] = may[0]
		if v, ok := got[k]; ok && slices.Contains(may, v) {
			want[k] = v
			s.model[k] = []uint32{v}
		}
	}
	if !maps.Equal(want, got) {
		s.Fatalf("All (-want +got):\n%s", cmp.Diff(want, got))
	}
	s.verifyStats(len(s.model))
}

func mapCalls[K, V any](m table.Map[K, V]) []call {
	type b = *batch
	return []call{
		{"Insert", keysIn | valuesIn, 0,
			func(b b) error { return m.Insert(hostOf[K](&b.keys), hostOf[V](&b.values)) },
			func(b b) error { return m.InsertOn(b.st, deviceOf[K](&b.keys), deviceOf[V](&b.values)) }},
		{"InsertNew", keysIn | valuesIn, flagsOut,
			func(b b) error {
				_, err := m.InsertNew(hostOf[K](&b.keys), hostOf[V](&b.values), hostOf[bool](&b.flags))
				return err
			},
			func(b b) error {
				return m.InsertNewOn(b.st, deviceOf[K](&b.keys), deviceOf[V](&b.values), deviceOf[bool](&b.flags))
			}},
		{"Find", keysIn, valuesIn | flagsOut,
			func(b b) error { return m.Find(hostOf[K](&b.keys), hostOf[V](&b.values), hostOf[bool](&b.flags)) },
			func(b b) error {
				return m.FindOn(b.st, deviceOf[K](&b.keys), deviceOf[V](&b.values), deviceOf[bool](&b.flags))
			}},
		{"Contains", keysIn, flagsOut,
			func(b b) error { return m.Contains(hostOf[K](&b.keys), hostOf[bool](&b.flags)) },
			func(b b) error { return m.ContainsOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Delete", keysIn, flagsOut,
			func(b b) error { _, err := m.Delete(hostOf[K](&b.keys), hostOf[bool](&b.flags)); return err },
			func(b b) error { return m.DeleteOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"All", 0, 0, func(b) error { _, _, err := m.All(); return err }, nil},
		{"Chunks", 0, 0, func(b) error { return m.Chunks(context.Background(), func([]K, []V) error { return nil }) }, nil},
	}
}
