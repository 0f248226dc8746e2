package warpcore

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// multiSubject is a MultiMap beside a Go map that holds the same.
type multiSubject[K, V any] struct {
	testing.TB
	d     *device.Device
	m     *MultiMap[K, V]
	rng   *rand.Rand
	model map[uint64][]uint32
}

func newMultiSubject[K, V any](t testing.TB, d *device.Device, o Options, seed uint64) *multiSubject[K, V] {
	t.Helper()
	m, err := NewMultiMap[K, V](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &multiSubject[K, V]{t, d, m, rand.New(rand.NewPCG(seed, 2)), map[uint64][]uint32{}}
}

func keyMask[K any]() uint64 { return tabletest.BitsOf(tabletest.KeysOf[K]([]uint64{^uint64(0)}))[0] }

func (s *multiSubject[K, V]) keys(n, universe int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(s.rng.IntN(universe)) * 0x9e3779b97f4a7c15
		if s.rng.IntN(10) == 0 {
			out[i] = ^uint64(s.rng.IntN(6))
		}
		out[i] &= keyMask[K]()
	}
	return out
}

func (s *multiSubject[K, V]) insert(keys []uint64) *table.FullError {
	s.Helper()
	numbers := make([]uint32, len(keys))
	for i := range numbers {
		numbers[i] = s.rng.Uint32()
	}
	k, v := tabletest.KeysOf[K](keys), tabletest.ValuesOf[V](numbers)
	var err error
	if s.rng.IntN(2) == 0 {
		err = s.m.Insert(k, v)
	} else {
		dk, e1 := device.From(s.d, k)
		dv, e2 := device.From(s.d, v)
		must(s, errors.Join(e1, e2))
		err = s.m.InsertOn(nil, dk, dv)
		must(s, errors.Join(dk.Free(), dv.Free()))
	}
	var full *table.FullError
	if !errors.As(err, &full) {
		must(s, err)
		full = nil
	}
	for i, k := range keys {
		if full == nil || !slices.Contains(full.Positions, i) {
			s.model[k] = append(s.model[k], numbers[i])
		}
	}
	return full
}

func (s *multiSubject[K, V]) delete(keys []uint64) {
	s.Helper()
	deleted := make([]bool, len(keys))
	n, err := s.m.Delete(tabletest.KeysOf[K](keys), deleted)
	must(s, err)
	want, told := 0, map[uint64]bool{}
	for i, k := range keys {
		told[k] = told[k] || deleted[i]
	}
	for k, some := range told {
		if some != (len(s.model[k]) > 0) {
			s.Fatalf("key %#x with %d values: deleted %t", k, len(s.model[k]), some)
		}
		want += len(s.model[k])
		delete(s.model, k)
	}
	if n != want {
		s.Fatalf("Delete counts %d pairs, want %d", n, want)
	}
}

func sorted[T cmp.Ordered](x []T) []T { x = slices.Clone(x); slices.Sort(x); return x }

// find compares Count and FindAll of keys, which may repeat.
func (s *multiSubject[K, V]) find(keys []uint64) {
	s.Helper()
	k := tabletest.KeysOf[K](keys)
	counts := make([]uint32, len(keys))
	must(s, s.m.Count(k, counts))
	offsets, values, err := s.m.FindAll(k)
	must(s, err)
	if len(offsets) != len(keys)+1 || offsets[0] != 0 || offsets[len(keys)] != uint64(len(values)) {
		s.Fatalf("%d keys, %d offsets that end at %v, %d values", len(keys), len(offsets), offsets[len(offsets)-1:], len(values))
	}
	numbers := tabletest.NumbersOf(s.TB, values)
	for i, key := range keys {
		if offsets[i] > offsets[i+1] || int(counts[i]) != len(s.model[key]) {
			s.Fatalf("key %#x: offsets %d to %d, count %d, want %d values", key, offsets[i], offsets[i+1], counts[i], len(s.model[key]))
		}
		if want, got := sorted(s.model[key]), sorted(numbers[offsets[i]:offsets[i+1]]); !slices.Equal(want, got) {
			s.Fatalf("values of key %#x (-want +got):\n%s", key, gocmp.Diff(want, got))
		}
	}
}

func (s *multiSubject[K, V]) verify() {
	s.Helper()
	must(s, s.m.Check())
	keys, values, err := s.m.All()
	must(s, err)
	got := map[uint64][]uint32{}
	numbers := tabletest.NumbersOf(s.TB, values)
	for i, k := range tabletest.BitsOf(keys) {
		got[k] = append(got[k], numbers[i])
	}
	want, pairs := map[uint64][]uint32{}, 0
	var distinct []uint64
	for k, v := range s.model {
		want[k] = sorted(v)
		distinct = append(distinct, k)
		pairs += len(v)
	}
	for k := range got {
		slices.Sort(got[k])
	}
	if !maps.EqualFunc(want, got, slices.Equal) {
		s.Fatalf("All (-want +got):\n%s", gocmp.Diff(want, got))
	}
	only, err := s.m.Keys()
	must(s, err)
	if want, got := sorted(distinct), sorted(tabletest.BitsOf(only)); !slices.Equal(want, got) {
		s.Fatalf("Keys (-want +got):\n%s", gocmp.Diff(want, got))
	}
	n, err := s.m.Len()
	must(s, err)
	st, err := s.m.Stats()
	must(s, err)
	if n != pairs || st.Len != pairs {
		s.Fatalf("Len %d, stats %+v, want %d pairs", n, st, pairs)
	}
}

func multiChurn[K, V any](t testing.TB, d *device.Device, o Options, seed uint64, steps int) {
	s := newMultiSubject[K, V](t, d, o, seed)
	step := 0
	defer func() {
		if t.Failed() {
			t.Logf("MultiMap, seed %d, %+v: step %d", seed, o, step)
		}
	}()
	for step = range steps {
		n := []int{0, 1, 31, 33, 100, 257}[s.rng.IntN(6)]
		switch r := s.rng.IntN(10); {
		case r < 5:
			s.insert(s.keys(n, 120))
		case r < 8:
			s.delete(s.keys(n/4, 120))
		case r < 9:
			if err := s.m.Grow(s.rng.IntN(1500)); err != nil && !errors.Is(err, table.ErrMaxBytes) {
				t.Fatal(err)
			}
		default:
			if s.rng.IntN(3) == 0 {
				must(t, s.m.Clear())
				clear(s.model)
			}
		}
		s.verify()
		s.find(s.keys(n, 140))
	}
}

// Keys with thousands of values, reserved ones among them, whose side region has to grow; on one long chain of windows.
func TestMultiMapHighMultiplicity(t *testing.T) {
	t.Parallel()
	d := openCPU(t)
	for _, o := range []Options{{}, {Options: table.Options{Hash: kernel.HashConstant}}} {
		s := newMultiSubject[uint32, uint32](t, d, o, 1)
		for _, k := range []uint64{7, 0xffffffff, 0xfffffffe, 0xfffffffd, 0} {
			keys := make([]uint64, 1500)
			for i := range keys {
				keys[i] = k
			}
			if full := s.insert(keys); full != nil {
				t.Fatal(full)
			}
			s.insert(s.keys(100, 50))
		}
		s.verify()
		s.find(append([]uint64{7, 0xffffffff, 8, 0xfffffffe, 7, 0xfffffffd, 0}, s.keys(70, 50)...))
		s.delete([]uint64{0xffffffff, 7, 7, 0xfffffffd})
		s.verify()
		s.find([]uint64{7, 0xffffffff, 0xfffffffe})
	}
}

// FindAll of more keys than a chunk has, so that totals are summed over many chunks.
func TestMultiMapManyKeys(t *testing.T) {
	t.Parallel()
	d := openCPU(t)
	s := newMultiSubject[uint32, uint32](t, d, Options{}, 1)
	random := func(n, universe int) []uint64 {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = uint64(s.rng.IntN(universe))
		}
		return keys
	}
	s.insert(random(60_000, 30_000))
	s.find(random(100_000, 40_000))
	s.verify()
}

func TestMultiMapInput(t *testing.T) {
	d := openCPU(t)
	m, err := NewMultiMap[uint32, uint32](d, Options{})
	must(t, err)
	keys := []uint32{1, 2}
	freed, err := device.From(d, keys)
	must(t, err)
	must(t, freed.Free())
	here, err := device.From(d, keys)
	must(t, err)
	closed, err := d.NewStream()
	must(t, err)
	must(t, closed.Close())
	offsets, err := device.Make[uint64](d, 2)
	must(t, err)
	findInto := func() error {
		_, err := m.FindAllInto(nil, here, offsets, nil)
		return err
	}
	for name, call := range map[string]func() error{
		"Insert":              func() error { return m.Insert(keys, keys[:1]) },
		"InsertOn":            func() error { return m.InsertOn(nil, freed, here) },
		"Count":               func() error { return m.Count(keys, make([]uint32, 3)) },
		"FindAllOn":           func() error { _, _, err := m.FindAllOn(nil, freed); return err },
		"FindAllInto offsets": findInto,
		"Delete":              func() error { _, err := m.Delete(keys, make([]bool, 1)); return err },
		"DeleteOn":            func() error { return m.DeleteOn(closed, here, device.Slice[bool]{}) },
		"Grow":                func() error { return m.Grow(-1) },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	n, err := m.Len()
	if n != 0 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
	must(t, m.Close())
	must(t, m.Close())
	for name, call := range map[string]func() error{
		"Insert":  func() error { return m.Insert(keys, keys) },
		"Count":   func() error { return m.Count(keys, make([]uint32, 2)) },
		"FindAll": func() error { _, _, err := m.FindAll(keys); return err },
		"Delete":  func() error { _, err := m.Delete(keys, nil); return err },
		"Keys":    func() error { _, err := m.Keys(); return err },
		"All":     func() error { _, _, err := m.All(); return err },
		"Clear":   m.Clear,
		"Check":   m.Check,
	} {
		if err := call(); !errors.Is(err, table.ErrClosed) {
			t.Errorf("%s of a closed table: %v", name, err)
		}
	}
}

// A failing callback of FindAllInto leaves nothing behind, and the table as it was.
func TestMultiMapFindAllInto(t *testing.T) {
	d := openCPU(t)
	s := newMultiSubject[uint32, uint32](t, d, Options{}, 3)
	s.insert(s.keys(500, 20))
	keys, err := device.From(d, []uint32{0, 1})
	must(t, err)
	offsets, err := device.Make[uint64](d, 3)
	must(t, err)
	sorry := errors.New("no memory for you")
	_, err = s.m.FindAllInto(nil, keys, offsets, func(int) (device.Slice[uint32], error) { return device.Slice[uint32]{}, sorry })
	if !errors.Is(err, sorry) {
		t.Error(err)
	}
	short, err := device.Make[uint32](d, 1)
	must(t, err)
	if _, err = s.m.FindAllInto(nil, keys, offsets, func(n int) (device.Slice[uint32], error) { return short, nil }); err == nil {
		t.Error("room for one value is enough")
	}
	s.verify()
	s.find(s.keys(50, 30))
}
