package tabletest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MultiMapMaker makes a multimap of the family under test.
type MultiMapMaker[K, V any] = func(d *device.Device, o table.Options) (table.MultiMap[K, V], error)

// MultiMap is the suite of the multimaps that newMultiMap makes.
func MultiMap[K, V any](newMultiMap MultiMapMaker[K, V]) *Suite {
	open := func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		t.Helper()
		m, err := newMultiMap(d, o)
		must(t, err)
		return &multiSubject[K, V]{newRig[K](t, d, m, o, seed), m}
	}
	s := newSuite(func(d *device.Device, o table.Options) (table.Table, error) { return newMultiMap(d, o) }, open,
		pairBytes[K, V](), newBatch[K, V], func(m table.Table) []call { return multiCalls(m.(table.MultiMap[K, V])) })
	s.unique = false
	s.own = []test{
		{"many values", Types, func(t *testing.T, d *device.Device) { manyTest(open(t, d, table.Options{}, 1)) }},
		{"many keys", Whole, func(t *testing.T, d *device.Device) { manyKeysTest(open(t, d, table.Options{}, 1)) }},
	}
	return s
}

// multiSubject is a multimap beside its model, whose numbers are a key's values.
type multiSubject[K, V any] struct {
	*rig
	m table.MultiMap[K, V]
}

func (s *multiSubject[K, V]) share(seed uint64) subject {
	return &multiSubject[K, V]{s.other(seed), s.m}
}

func (s *multiSubject[K, V]) put(keys []uint64) error {
	s.Helper()
	numbers := numbersOf[V](s.rng, len(keys))
	if len(keys) > 1 && s.coin() {
		numbers[1] = numbers[0] // with one key, equal pairs
	}
	err := insertPairs(s.rig, KeysOf[K](keys), ValuesOf[V](numbers), s.m)
	lost := s.lost(err, len(keys))
	for i, k := range keys {
		if !lost[i] {
			s.model[k] = append(s.model[k], numbers[i])
		}
	}
	return err
}

func (s *multiSubject[K, V]) drop(keys []uint64) {
	s.Helper()
	deleted, count, told := erase(s.rig, KeysOf[K](keys), s.m)
	any, pairs := map[uint64]bool{}, 0
	for i, k := range keys {
		any[k] = any[k] || deleted[i]
	}
	for k, some := range any {
		if told && some != (len(s.model[k]) > 0) {
			s.Fatalf("key %#x with %d values: deleted %t", k, len(s.model[k]), some)
		}
		pairs += len(s.model[k])
		delete(s.model, k)
	}
	s.count("pairs are deleted by Delete", count, pairs)
}

func (s *multiSubject[K, V]) ask(keys []uint64) {
	s.Helper()
	k := KeysOf[K](keys)
	s.contained(keys, contains(s.rig, k, s.m))
	counts := make([]uint32, len(keys))
	var offsets []uint64
	var values []V
	var err error
	if s.coin() {
		must(s, s.m.Count(k, counts))
		offsets, values, err = s.m.FindAll(k)
		must(s, err)
	} else {
		dk, dc, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, counts), s.stream()
		must(s, s.m.CountOn(st, dk, dc))
		o, v, err := s.m.FindAllOn(st, dk)
		must(s, err)
		counts, offsets, values = host(s.TB, st, dc), host(s.TB, st, o), host(s.TB, st, v)
		free(s.TB, dk)
		free(s.TB, dc)
		free(s.TB, o)
		free(s.TB, v)
	}
	if len(offsets) != len(keys)+1 || offsets[0] != 0 || offsets[len(keys)] != uint64(len(values)) {
		s.Fatalf("%d keys, %d offsets that end at %v, %d values", len(keys), len(offsets), offsets[len(offsets)-1:], len(values))
	}
	numbers := NumbersOf(s.TB, values)
	s.askOuter(keys)
	for i, key := range keys {
		want := sorted(s.model[key])
		if offsets[i] > offsets[i+1] || int(counts[i]) != len(want) {
			s.Fatalf("key %#x: offsets %d to %d, count %d, want %d values", key, offsets[i], offsets[i+1], counts[i], len(want))
		}
		if got := sorted(numbers[offsets[i]:offsets[i+1]]); !slices.Equal(got, want) {
			s.Fatalf("values of key %#x (-want +got):\n%s", key, cmp.Diff(want, got))
		}
	}
}

// askOuter asks in the outer form, where there is one.
func (s *multiSubject[K, V]) askOuter(keys []uint64) {
	s.Helper()
	m, ok := s.m.(table.OuterFinder[K, V])
	if !ok {
		return
	}
	none := s.rng.Uint32()
	k, def, found := KeysOf[K](keys), ValuesOf[V]([]uint32{none})[0], make([]bool, len(keys))
	if s.coin() {
		found = nil
	}
	var offsets []uint64
	var values []V
	var err error
	if s.coin() {
		offsets, values, err = m.FindAllOuter(k, def, found)
		must(s, err)
	} else {
		dk, df, st := onDevice(s.TB, s.d, k), device.Slice[bool]{}, s.stream()
		if found != nil {
			df = onDevice(s.TB, s.d, found)
		}
		o, v, err := m.FindAllOuterOn(st, dk, def, df)
		must(s, err)
		offsets, values = host(s.TB, st, o), host(s.TB, st, v)
		if found != nil {
			found = host(s.TB, st, df)
			free(s.TB, df)
		}
		free(s.TB, dk)
		free(s.TB, o)
		free(s.TB, v)
	}
	if len(offsets) != len(keys)+1 || offsets[0] != 0 || offsets[len(keys)] != uint64(len(values)) {
		s.Fatalf("outer form: %d keys, %d offsets that end at %v, %d values", len(keys), len(offsets), offsets[len(offsets)-1:], len(values))
	}
	numbers := NumbersOf(s.TB, values)
	for i, key := range keys {
		want := sorted(s.model[key])
		if found != nil && found[i] != (len(want) > 0) {
			s.Fatalf("outer form of key %#x with %d values: found %t", key, len(want), found[i])
		}
		if len(want) == 0 {
			want = []uint32{none}
		}
		if offsets[i] > offsets[i+1] || !slices.Equal(sorted(numbers[offsets[i]:offsets[i+1]]), want) {
			s.Fatalf("outer form of key %#x: values %v, want %v", key, numbers[offsets[i]:max(offsets[i], offsets[i+1])], want)
		}
	}
}

func sorted(x []uint32) []uint32 { x = slices.Clone(x); slices.Sort(x); return x }

func (s *multiSubject[K, V]) order() []uint64 {
	keys, _, err := s.m.All()
	must(s, err)
	return BitsOf(keys)
}

func (s *multiSubject[K, V]) verify() {
	s.Helper()
	keys, values := exported(s.rig, s.m)
	if len(keys) != len(values) {
		s.Fatalf("All gives %d keys, %d values", len(keys), len(values))
	}
	got, want, pairs := map[uint64][]uint32{}, map[uint64][]uint32{}, 0
	numbers := NumbersOf(s.TB, values)
	for i, k := range BitsOf(keys) {
		got[k] = append(got[k], numbers[i])
	}
	for k := range got {
		slices.Sort(got[k])
	}
	for k, v := range s.model {
		want[k] = sorted(v)
		pairs += len(v)
	}
	if !maps.EqualFunc(want, got, slices.Equal[[]uint32]) {
		s.Fatalf("All (-want +got):\n%s", cmp.Diff(want, got))
	}
	s.verifyStats(pairs)
}

func (s *multiSubject[K, V]) queue(bits []uint64, rounds int) queue {
	keys, values := onDevice(s.TB, s.d, KeysOf[K](bits)), onDevice(s.TB, s.d, ValuesOf[V](numbersOf[V](s.rng, len(bits))))
	q := queue{found: s.foundFor(len(bits), rounds)}
	q.put = func(st *device.Stream, _ int) error { return s.m.InsertOn(st, keys, values) }
	q.drop = func(st *device.Stream) error {
		return s.m.DeleteOn(st, keys.Slice(0, len(bits)/2), device.Slice[bool]{})
	}
	q.look = func(st *device.Stream, r int) error { return s.m.ContainsOn(st, keys, q.found[r]) }
	return q
}

// manyTest has keys with hundreds of values, such as layouts reserve among them.
func manyTest(x subject) {
	r := x.base()
	r.Helper()
	special := []uint64{7, r.keyBits, r.keyBits - 1, r.keyBits - 2, 0}
	for _, k := range special {
		must(r, x.put(slices.Repeat([]uint64{k}, 700)))
		must(r, x.put(r.batch(50)))
	}
	x.verify()
	x.ask(append([]uint64{8, 7, 9}, special...))
	x.drop([]uint64{r.keyBits, 7, 7, r.keyBits - 2})
	x.verify()
	x.ask(special)
}

// manyKeysTest asks for more keys than one block or chunk of a kernel has.
func manyKeysTest(x subject) {
	r := x.base()
	r.Helper()
	random := func(n int) []uint64 {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = uint64(r.rng.IntN(n)) & r.keyBits
		}
		return keys
	}
	must(r, x.put(random(20_000)))
	x.ask(random(50_000))
	x.verify()
}

func multiCalls[K, V any](m table.MultiMap[K, V]) []call {
	type b = *batch
	var more []call
	if m, ok := m.(table.OuterFinder[K, V]); ok {
		more = append(more, call{"FindAllOuter", keysIn, flagsOut,
			func(b b) error {
				_, _, err := m.FindAllOuter(hostOf[K](&b.keys), *new(V), hostOf[bool](&b.flags))
				return err
			},
			func(b b) error {
				o, v, err := m.FindAllOuterOn(b.st, deviceOf[K](&b.keys), *new(V), deviceOf[bool](&b.flags))
				if err == nil {
					err = errors.Join(o.Free(), v.Free())
				}
				return err
			}})
	}
	return append([]call{
		{"Insert", keysIn | valuesIn, 0,
			func(b b) error { return m.Insert(hostOf[K](&b.keys), hostOf[V](&b.values)) },
			func(b b) error { return m.InsertOn(b.st, deviceOf[K](&b.keys), deviceOf[V](&b.values)) }},
		{"Contains", keysIn, flagsOut,
			func(b b) error { return m.Contains(hostOf[K](&b.keys), hostOf[bool](&b.flags)) },
			func(b b) error { return m.ContainsOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Count", keysIn | countsOut, 0,
			func(b b) error { return m.Count(hostOf[K](&b.keys), hostOf[uint32](&b.counts)) },
			func(b b) error { return m.CountOn(b.st, deviceOf[K](&b.keys), deviceOf[uint32](&b.counts)) }},
		{"FindAll", keysIn, 0,
			func(b b) error { _, _, err := m.FindAll(hostOf[K](&b.keys)); return err },
			func(b b) error {
				o, v, err := m.FindAllOn(b.st, deviceOf[K](&b.keys))
				if err == nil {
					err = errors.Join(o.Free(), v.Free())
				}
				return err
			}},
		{"Delete", keysIn, flagsOut,
			func(b b) error { _, err := m.Delete(hostOf[K](&b.keys), hostOf[bool](&b.flags)); return err },
			func(b b) error { return m.DeleteOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"All", 0, 0, func(b) error { _, _, err := m.All(); return err }, nil},
		{"Chunks", 0, 0, func(b) error { return m.Chunks(context.Background(), func([]K, []V) error { return nil }) }, nil},
	}, more...)
}
