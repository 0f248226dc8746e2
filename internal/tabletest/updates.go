package tabletest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// number is what values are that Update combines.
type number interface {
	uint32 | int32 | float32 | uint64 | int64 | float64
}

// Updates is the suite of Update and FindOrInsert, for the maps of a family that have them, of keys of 4 bytes.
type Updates struct{ tests []test }

// UpdatesOf makes the suite for values of one type.
func UpdatesOf[V number](newMap Maker[uint32, V]) *Updates {
	open := func(t testing.TB, d *device.Device, o table.Options) *updateSubject[V] {
		m, err := newMap(d, o)
		must(t, err)
		u, ok := m.(table.Updater[uint32, V])
		if !ok {
			t.Fatalf("%T has no Update", m)
		}
		t.Cleanup(func() { must(t, m.Close()) })
		return &updateSubject[V]{t, d, u, map[uint32]V{}, rand.New(rand.NewPCG(o.Seed, 1))}
	}
	return &Updates{[]test{
		{"each operation", Types, func(t *testing.T, d *device.Device) { updateEach(t, d, open) }},
		{"find or insert", Types, func(t *testing.T, d *device.Device) { findOrInsertTest(t, d, open) }},
		{"full", Types, func(t *testing.T, d *device.Device) { updateFull(t, d, open) }},
		{"skew", Types, func(t *testing.T, d *device.Device) { updateSkew(t, d, open) }},
		{"goroutines", Whole, func(t *testing.T, d *device.Device) { updateBeside(t, d, open) }},
		{"bad operations", Whole, func(t *testing.T, d *device.Device) { updateBad(t, d, open) }},
	}}
}

// Run runs the suite.
func (u *Updates) Run(t *testing.T, part Part, d *device.Device) { runTests(t, u.tests, part, d) }

// runTests runs those of a part, or in long runs all.
func runTests(t *testing.T, tests []test, part Part, d *device.Device) {
	for _, c := range tests {
		if c.part <= part || testenv.Long() {
			t.Run(c.name, func(t *testing.T) { c.run(t, d) })
		}
	}
}

// Degenerate runs what a hash function that puts all keys on one probe sequence can change.
func (u *Updates) Degenerate(t *testing.T, d *device.Device) {
	for _, c := range u.tests {
		if c.name == "full" || c.name == "skew" || testenv.Long() {
			t.Run(c.name, func(t *testing.T) { c.run(t, d) })
		}
	}
}

// updateSubject is a map beside its model.
type updateSubject[V number] struct {
	testing.TB
	d     *device.Device
	m     table.Updater[uint32, V]
	model map[uint32]V
	rng   *rand.Rand
}

type opener[V number] = func(t testing.TB, d *device.Device, o table.Options) *updateSubject[V]

// operations are those for a type, with what they do in Go. Values are small whole numbers, so that sums of floats are exact.
func operations[V number]() map[table.Combine]func(old, v V) V {
	ops := map[table.Combine]func(old, v V) V{
		table.Add:                               func(old, v V) V { return old + v },
		table.Min:                               func(old, v V) V { return min(old, v) },
		table.Max:                               func(old, v V) V { return max(old, v) },
		doubles:                                 func(old, v V) V { return old + 2*v },
		"old < value ? value : old + (number)0": func(old, v V) V { return max(old, v) },
	}
	and, or := func(a, b uint64) uint64 { return a & b }, func(a, b uint64) uint64 { return a | b }
	switch any(V(0)).(type) {
	case float32, float64:
	default:
		bits := func(f func(a, b uint64) uint64) func(old, v V) V {
			return func(old, v V) V { return V(f(uint64(old), uint64(v))) }
		}
		ops[table.And], ops[table.Or] = bits(and), bits(or)
	}
	return ops
}

// few leaves, of operations that are alike, to values of 4 bytes the one and to those of 8 the other: each costs a compilation. Code of one's own
// is in updateSkew, too.
func few[V number](ops map[table.Combine]func(old, v V) V) map[table.Combine]func(old, v V) V {
	out := []table.Combine{table.Min, table.Or}
	if unsafe.Sizeof(V(0)) == 8 {
		out = []table.Combine{table.Max, table.And, doubles}
	}
	for _, with := range append(out, "old < value ? value : old + (number)0") {
		delete(ops, with)
	}
	return ops
}

// batch makes keys below n, some of them often, and values.
func (s *updateSubject[V]) batch(rows, n int) (keys []uint32, values []V) {
	for range rows {
		k := uint32(s.rng.IntN(n))
		if s.rng.IntN(3) == 0 {
			k = uint32(s.rng.IntN(3))
		}
		v := V(s.rng.IntN(200))
		if minus := V(0) - 1; minus < 0 && s.rng.IntN(2) == 0 {
			v = 0 - v
		}
		keys, values = append(keys, k-2), append(values, v)
	}
	return keys, values
}

// update runs a batch both ways, and gives the positions that did not go in.
func (s *updateSubject[V]) update(keys []uint32, values []V, with table.Combine, now func(old, v V) V) (full *table.FullError) {
	s.Helper()
	var err error
	if s.rng.IntN(2) == 0 {
		err = s.m.Update(keys, values, with)
	} else {
		k, v := onDevice(s.TB, s.d, keys), onDevice(s.TB, s.d, values)
		err = s.m.UpdateOn(nil, k, v, with)
		must(s, s.d.Stream().Sync())
		free(s.TB, k)
		free(s.TB, v)
	}
	if err != nil && !errors.As(err, &full) {
		s.Fatal(err)
	}
	next := 0
	for i, k := range keys {
		if full != nil && next < len(full.Positions) && full.Positions[next] == i {
			next++
			continue
		}
		if old, there := s.model[k]; there {
			s.model[k] = now(old, values[i])
		} else {
			s.model[k] = values[i]
		}
	}
	if full != nil {
		for _, i := range full.Positions {
			if _, there := s.model[keys[i]]; there {
				s.Fatalf("position %d is refused, and its key %d is in", i, keys[i])
			}
		}
	}
	return full
}

func (s *updateSubject[V]) verify(what string) {
	s.Helper()
	must(s, s.m.Check())
	keys, values, err := s.m.All()
	must(s, err)
	if len(keys) != len(s.model) {
		s.Fatalf("%s: %d keys, want %d", what, len(keys), len(s.model))
	}
	for i, k := range keys {
		if want, there := s.model[k]; !there || want != values[i] {
			s.Fatalf("%s: key %d has %v, want %v (there %t)", what, k, values[i], want, there)
		}
	}
}

// doubles is an operation that shows which value was put as it is, so that its keys must be there before.
const doubles table.Combine = "old + 2 * value"

func updateEach[V number](t testing.TB, d *device.Device, open opener[V]) {
	ops := operations[V]()
	if !testenv.Long() {
		ops = few(ops)
	}
	for with, now := range ops {
		s := open(t, d, table.Options{Seed: 3})
		for _, rows := range []int{1, 31, 700, 3000} {
			keys, values := s.batch(rows, 900)
			if with == doubles {
				first := slices.Clone(keys)
				slices.Sort(first)
				first = slices.Compact(first)
				s.update(first, make([]V, len(first)), table.Max, func(old, v V) V { return max(old, v) })
			}
			s.update(keys, values, with, now)
			s.verify(string(with))
		}
		if _, err := s.m.Delete([]uint32{0, 1, 2, ^uint32(0)}, nil); err != nil {
			t.Fatal(err)
		}
		for _, k := range []uint32{0, 1, 2, ^uint32(0)} {
			delete(s.model, k)
		}
		s.update([]uint32{1, ^uint32(0)}, []V{7, 8}, with, now)
		s.verify(string(with))
	}
}

func findOrInsertTest[V number](t testing.TB, d *device.Device, open opener[V]) {
	s := open(t, d, table.Options{Seed: 4})
	for round, rows := range []int{1, 40, 1000, 5000, 100} {
		keys, values := s.batch(rows, 3000)
		out, added := make([]V, rows), make([]bool, rows)
		n := 0
		var err error
		if round%2 == 0 {
			n, err = s.m.FindOrInsert(keys, values, out, added)
			must(t, err)
		} else {
			k, v, a := onDevice(t, d, keys), onDevice(t, d, values), onDevice(t, d, added)
			must(t, s.m.FindOrInsertOn(nil, k, v, v, a))
			out, added = host(t, nil, v), host(t, nil, a)
			n = frame.Count(added)
			free(t, k)
			free(t, v)
			free(t, a)
		}
		was := len(s.model)
		for i, k := range keys {
			if !added[i] {
				continue
			}
			if _, there := s.model[k]; there || out[i] != values[i] {
				t.Fatalf("position %d, key %d: added, though it was there (%t), or with another value: %v, want %v", i, k, there, out[i], values[i])
			}
			s.model[k] = values[i]
		}
		for i, k := range keys {
			if want, there := s.model[k]; !there || out[i] != want {
				t.Fatalf("position %d, key %d: %v, want %v (there %t)", i, k, out[i], want, there)
			}
		}
		if len(s.model)-was != n {
			t.Fatalf("%d added, told %d", len(s.model)-was, n)
		}
		s.verify("find or insert")
	}
}

func updateFull[V number](t testing.TB, d *device.Device, open opener[V]) {
	seeds, batches, rows := 2, 6, 500
	universe := 8 * rows / 3
	if testenv.Long() {
		seeds, batches, rows = 4, 12, 1500
		universe = 6 * rows // four devices have four times the room
	}
	for seed := range uint64(seeds) {
		s := open(t, d, table.Options{Seed: seed + 1, MaxBytes: int64(rows) << 13 / 1000, LoadFactor: []float64{0, 1}[seed%2]})
		was := false
		for range batches {
			keys, values := s.batch(rows, universe)
			full := s.update(keys, values, table.Add, func(old, v V) V { return old + v })
			was = was || full != nil
			s.verify("full")
		}
		keys, values := s.batch(2*rows, universe)
		out, added := make([]V, len(keys)), make([]bool, len(keys))
		_, err := s.m.FindOrInsert(keys, values, out, added)
		var full *table.FullError
		if !errors.As(err, &full) || !was {
			t.Fatalf("a table with MaxBytes never is full: %v", err)
		}
		for i, k := range keys {
			if added[i] {
				s.model[k] = values[i]
			}
		}
		for i, k := range keys {
			want, there := s.model[k]
			if _, refused := slices.BinarySearch(full.Positions, i); refused == there || out[i] != want {
				t.Fatalf("position %d, key %d: refused %t, there %t, value %v, want %v", i, k, refused, there, out[i], want)
			}
		}
		s.verify("full")
	}
}

// updateSkew adds batches of one key, of few keys, and of keys that come in runs.
func updateSkew[V number](t testing.TB, d *device.Device, open opener[V]) {
	s := open(t, d, table.Options{Seed: 5})
	for _, distinct := range []int{1, 2, 25, 1000} {
		keys, values := make([]uint32, 20_000), make([]V, 20_000)
		for i := range keys {
			keys[i], values[i] = uint32(i/7%distinct), V(1+i%2)
		}
		s.update(keys, values, table.Add, func(old, v V) V { return old + v })
		s.update(keys[:3000], values[:3000], "old + value", func(old, v V) V { return old + v })
		s.update(keys[:3000], values[:3000], "value + old", func(old, v V) V { return old + v })
		s.verify("skew")
	}
}

func updateBeside[V number](t testing.TB, d *device.Device, open opener[V]) {
	s := open(t, d, table.Options{Seed: 6})
	keys, values := s.batch(500, 200)
	const each, rounds = 4, 5
	var g sync.WaitGroup
	for range each {
		g.Go(func() {
			for range rounds {
				if err := s.m.Update(keys, values, table.Add); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	for i, k := range keys {
		s.model[k] += each * rounds * values[i]
	}
	s.verify("goroutines")
}

func updateBad[V number](t testing.TB, d *device.Device, open opener[V]) {
	s := open(t, d, table.Options{Seed: 7})
	one, v := []uint32{1}, []V{1}
	s.update(one, v, table.Add, nil)
	var compile *device.CompileError
	if err := s.m.Update(one, v, "old +* value;"); !errors.As(err, &compile) {
		t.Errorf("code that does not compile: %v", err)
	}
	if err := s.m.Update(one, v, ""); err == nil {
		t.Error("no operation: no error")
	}
	if _, float := operations[V]()[table.And]; !float {
		if err := s.m.Update(one, v, table.And); err == nil {
			t.Error("the bits of floats: no error")
		}
	}
	for _, err := range []error{s.m.Update(one, nil, table.Add), second(s.m.FindOrInsert(one, v, nil, nil)), second(s.m.FindOrInsert(one, v, v, make([]bool, 2)))} {
		if err == nil {
			t.Error("slices of other lengths: no error")
		}
	}
	must(t, s.m.Update(nil, nil, table.Add))
	s.verify("bad operations")
}

func second(_ int, err error) error { return err }
