package tabletest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Maker makes a table of the family under test.
type Maker[K, V any] func(d *device.Device, o table.Options) (table.Map[K, V], error)

// subject is a table beside a Go map that holds the same. Its operations choose at random among the ways to call them:
// Go slices or device slices, on this stream or that, with all outputs or without. Each compares what came back.
type subject[K, V any] struct {
	testing.TB
	d       *device.Device
	m       table.Map[K, V]
	rng     *rand.Rand
	streams []*device.Stream
	model   map[uint64][]uint32 // the values a key may have: several after duplicates in one batch, until it is read
	opts    table.Options
	shared  bool // with other goroutines: what it holds in all is not ours to compare
}

func newSubject[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64) *subject[K, V] {
	t.Helper()
	m, err := newMap(d, o)
	must(t, err)
	s := &subject[K, V]{TB: t, d: d, m: m, rng: rand.New(rand.NewPCG(seed, 1)), streams: []*device.Stream{nil}, model: map[uint64][]uint32{}, opts: o}
	for range 2 {
		st, err := d.NewStream()
		must(t, err)
		s.streams = append(s.streams, st)
	}
	t.Cleanup(func() {
		must(t, m.Close())
		for _, st := range s.streams[1:] {
			must(t, st.Close())
		}
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *subject[K, V]) stream() *device.Stream { return s.streams[s.rng.IntN(len(s.streams))] }

func (s *subject[K, V]) coin() bool { return s.rng.IntN(2) == 0 }

// onDevice copies a Go slice to the device, until the test ends.
func onDevice[T any](t testing.TB, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	return s
}

func host[T any](t testing.TB, st *device.Stream, s device.Slice[T]) []T {
	t.Helper()
	x, err := s.Host(st)
	must(t, err)
	return x
}

func free[T any](t testing.TB, slices ...device.Slice[T]) {
	t.Helper()
	for _, s := range slices {
		if s.Addr() != 0 {
			must(t, s.Free())
		}
	}
}

// lost turns the error of an insert into the set of positions that are not in.
func (s *subject[K, V]) lost(err error, n int) map[int]bool {
	s.Helper()
	var full *table.FullError
	if !errors.As(err, &full) {
		must(s, err)
		return nil
	}
	if s.opts.MaxBytes == 0 {
		s.Fatalf("a table without MaxBytes is full: %v", err)
	}
	if !errors.Is(err, table.ErrMaxBytes) || full.Why == nil {
		s.Errorf("a full table does not say that MaxBytes is why: %v", err)
	}
	out := map[int]bool{}
	for i, p := range full.Positions {
		if p < 0 || p >= n || i > 0 && p <= full.Positions[i-1] {
			s.Fatalf("positions %v of a batch of %d", full.Positions, n)
		}
		out[p] = true
	}
	if len(out) == 0 {
		s.Fatalf("full, but every position is in: %v", err)
	}
	if length, err := s.m.Len(); !s.shared && (err != nil || full.Len != length) {
		s.Errorf("the error says %d pairs, Len %d, %v", full.Len, length, err)
	}
	return out
}

func (s *subject[K, V]) insert(keys []uint64, numbers []uint32) error {
	s.Helper()
	k, v := KeysOf[K](keys), ValuesOf[V](numbers)
	var err error
	if s.coin() {
		err = s.m.Insert(k, v)
	} else {
		dk, dv, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, v), s.stream()
		err = s.m.InsertOn(st, dk, dv)
		must(s, st.SyncOf(s.d))
		free(s.TB, dk)
		free(s.TB, dv)
	}
	lost := s.lost(err, len(keys))
	batch := map[uint64][]uint32{}
	for i, k := range keys {
		if !lost[i] {
			batch[k] = append(batch[k], numbers[i])
		}
	}
	s.mustBeOut(keys, lost, batch)
	for k, v := range batch {
		s.model[k] = v
	}
	return err
}

// mustBeOut checks that of equal keys all or none are lost, and none that was there before.
func (s *subject[K, V]) mustBeOut(keys []uint64, lost map[int]bool, in map[uint64][]uint32) {
	s.Helper()
	for i := range lost {
		if _, ok := in[keys[i]]; ok {
			s.Fatalf("key %#x is both in and not in (position %d)", keys[i], i)
		}
		if _, ok := s.model[keys[i]]; ok {
			s.Fatalf("key %#x was in the table before, and position %d is told not to be in", keys[i], i)
		}
	}
}

func (s *subject[K, V]) insertNew(keys []uint64, numbers []uint32) error {
	s.Helper()
	k, v := KeysOf[K](keys), ValuesOf[V](numbers)
	added, count := make([]bool, len(keys)), -1
	told := s.rng.IntN(4) > 0
	var err error
	if s.coin() {
		flags := added
		if !told {
			flags = nil
		}
		count, err = s.m.InsertNew(k, v, flags)
	} else {
		dk, dv, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, v), s.stream()
		var flags device.Slice[bool]
		if told {
			flags = onDevice(s.TB, s.d, added)
		}
		err = s.m.InsertNewOn(st, dk, dv, flags)
		if told {
			added = host(s.TB, st, flags)
		}
		must(s, st.SyncOf(s.d))
		free(s.TB, dk)
		free(s.TB, dv)
		free(s.TB, flags)
	}
	lost := s.lost(err, len(keys))
	before := map[uint64]bool{}
	fresh := map[uint64][]uint32{} // values that went in, or may have
	for i, k := range keys {
		_, before[k] = s.model[k]
		switch {
		case added[i] && (before[k] || lost[i]):
			s.Fatalf("position %d, key %#x: added, though present before %t, not in %t", i, k, before[k], lost[i])
		case added[i] || !told && !before[k] && !lost[i]:
			fresh[k] = append(fresh[k], numbers[i])
		}
	}
	s.mustBeOut(keys, lost, fresh)
	for i, k := range keys {
		if told && !before[k] && !lost[i] && len(fresh[k]) != 1 {
			s.Fatalf("new key %#x was added %d times", k, len(fresh[k]))
		}
	}
	if count >= 0 && count != len(fresh) {
		s.Fatalf("InsertNew counts %d, and %d keys are new", count, len(fresh))
	}
	for k, v := range fresh {
		s.model[k] = v
	}
	return err
}

func (s *subject[K, V]) delete(keys []uint64) {
	s.Helper()
	k := KeysOf[K](keys)
	deleted, count := make([]bool, len(keys)), -1
	told := s.rng.IntN(4) > 0
	var err error
	if s.coin() {
		flags := deleted
		if !told {
			flags = nil
		}
		count, err = s.m.Delete(k, flags)
	} else {
		dk, st := onDevice(s.TB, s.d, k), s.stream()
		var flags device.Slice[bool]
		if told {
			flags = onDevice(s.TB, s.d, deleted)
		}
		err = s.m.DeleteOn(st, dk, flags)
		if told {
			deleted = host(s.TB, st, flags)
		}
		must(s, st.SyncOf(s.d))
		free(s.TB, dk)
		free(s.TB, flags)
	}
	must(s, err)
	times := map[uint64]int{}
	for i, k := range keys {
		if deleted[i] {
			times[k]++
		}
	}
	want := 0
	for _, k := range distinct(keys) {
		_, there := s.model[k]
		if there {
			want++
		}
		if told && times[k] != map[bool]int{true: 1}[there] {
			s.Fatalf("key %#x, there %t, was deleted %d times", k, there, times[k])
		}
		delete(s.model, k)
	}
	if count >= 0 && count != want {
		s.Fatalf("Delete counts %d, and %d keys were there", count, want)
	}
}

func distinct(keys []uint64) []uint64 {
	out := slices.Clone(keys)
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *subject[K, V]) find(keys []uint64) {
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
	case way == 1:
		withValues = false
		must(s, s.m.Contains(k, found))
	case way == 2:
		withValues = false
		must(s, s.m.Find(k, nil, found))
	case way == 3:
		withValues = false
		dk, df, st := onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, found), s.stream()
		must(s, s.m.ContainsOn(st, dk, df))
		found = host(s.TB, st, df)
		free(s.TB, dk)
		free(s.TB, df)
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

func (s *subject[K, V]) clear() {
	s.Helper()
	must(s, s.m.Clear())
	clear(s.model)
}

func (s *subject[K, V]) grow(n int) {
	s.Helper()
	if err := s.m.Grow(n); err != nil && !(s.opts.MaxBytes > 0 && errors.Is(err, table.ErrMaxBytes)) {
		s.Fatal(err)
	}
}

// sideSlots is the most pairs that a layout may hold beside the slots that it counts.
const sideSlots = 4

// verify compares the whole table.
func (s *subject[K, V]) verify() {
	s.Helper()
	must(s, s.m.Check())
	n, err := s.m.Len()
	must(s, err)
	if n != len(s.model) {
		s.Fatalf("Len is %d, want %d", n, len(s.model))
	}
	keys, values, err := s.m.All()
	must(s, err)
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
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("All (-want +got):\n%s", diff)
	}
	s.verifyStats()
}

func (s *subject[K, V]) verifyStats() {
	s.Helper()
	st, err := s.m.Stats()
	must(s, err)
	sum := 0
	for _, n := range st.Probes {
		sum += n
	}
	n := len(s.model)
	switch {
	case st.Len != n || sum != n:
		s.Fatalf("%d pairs are in, and %d have probe lengths, of %d", st.Len, sum, n)
	case st.Capacity+sideSlots < n || st.Bytes <= 0 || st.Tombstones < 0:
		s.Fatalf("%d pairs, and stats %+v", n, st)
	case st.LoadFactor != float64(n)/float64(st.Capacity):
		s.Fatalf("%d pairs, and stats %+v", n, st)
	case n > 0 && (st.MeanProbes < 1 || st.MeanProbes > float64(st.MaxProbes)):
		s.Fatalf("look-ups take %v probes on average, %d at most", st.MeanProbes, st.MaxProbes)
	case s.opts.MaxBytes > 0 && st.Bytes > s.opts.MaxBytes:
		s.Fatalf("a table of %d bytes, MaxBytes %d", st.Bytes, s.opts.MaxBytes)
	}
}
