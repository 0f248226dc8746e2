package tabletest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Choices is the suite of InsertIf, FindIf and ContainsIf, for the tables of a family that have them, of keys and values of 4 bytes.
type Choices struct{ tests []test }

// ChoicesOf makes the suite for maps.
func ChoicesOf(newMap Maker[uint32, uint32]) *Choices {
	return choicesOf(func(t testing.TB, d *device.Device, o table.Options) *choiceSubject {
		it, err := newMap(d, o)
		must(t, err)
		m, ok := it.(table.Chooser[uint32, uint32])
		if !ok {
			t.Fatalf("%T has no InsertIf", it)
		}
		s := newChoiceSubject(t, d, m, o)
		s.put = func(keys, values []uint32, when []bool) (added []bool, err error) {
			if s.coin() {
				return nil, m.InsertIf(keys, values, when)
			}
			k, v, w := onDevice(t, d, keys), onDevice(t, d, values), onDevice(t, d, when)
			err = m.InsertIfOn(nil, k, v, w)
			must(t, d.Stream().Sync())
			free(t, k, v)
			free(t, w)
			return nil, err
		}
		s.look = func(keys []uint32, when []bool) (values []uint32, found []bool) {
			values, found = slices.Repeat([]uint32{7}, len(keys)), slices.Repeat([]bool{true}, len(keys))
			switch s.rng.IntN(4) {
			case 0:
				must(t, m.FindIf(keys, when, values, found))
				return values, found
			case 1:
				must(t, m.ContainsIf(keys, when, found))
				return nil, found
			case 2:
				must(t, m.FindIf(keys, when, values, nil))
				return values, nil
			}
			k, w, v, f := onDevice(t, d, keys), onDevice(t, d, when), onDevice(t, d, values), device.Slice[bool]{}
			if s.coin() {
				f = w // in its place
			} else {
				f = onDevice(t, d, found)
				defer free(t, f)
			}
			defer free(t, k, v)
			defer free(t, w)
			if s.coin() {
				must(t, m.ContainsIfOn(nil, k, w, f))
				return nil, host(t, nil, f)
			}
			must(t, m.FindIfOn(nil, k, w, v, f))
			return host(t, nil, v), host(t, nil, f)
		}
		s.all = m.All
		s.bad = func(keys []uint32, short []bool) []error {
			return []error{m.InsertIf(keys, keys, short), m.InsertIf(keys, keys, nil), m.FindIf(keys, short, keys, nil), m.ContainsIf(keys, short, nil)}
		}
		return s
	})
}

// KeyChoicesOf makes the suite for sets.
func KeyChoicesOf(newSet SetMaker[uint32]) *Choices {
	return choicesOf(func(t testing.TB, d *device.Device, o table.Options) *choiceSubject {
		it, err := newSet(d, o)
		must(t, err)
		m, ok := it.(table.KeyChooser[uint32])
		if !ok {
			t.Fatalf("%T has no InsertIf", it)
		}
		s := newChoiceSubject(t, d, m, o)
		s.put = func(keys, _ []uint32, when []bool) (added []bool, err error) {
			added = slices.Repeat([]bool{true}, len(keys))
			switch s.rng.IntN(3) {
			case 0:
				_, err = m.InsertIf(keys, when, nil)
				return nil, err
			case 1:
				n, err := m.InsertIf(keys, when, added)
				if n != frame.Count(added) {
					t.Fatalf("%d added, told %d", frame.Count(added), n)
				}
				return added, err
			}
			k, w, a := onDevice(t, d, keys), onDevice(t, d, when), onDevice(t, d, added)
			defer free(t, k)
			defer free(t, w, a)
			err = m.InsertIfOn(nil, k, w, a)
			return host(t, nil, a), err
		}
		s.look = func(keys []uint32, when []bool) (values []uint32, found []bool) {
			found = slices.Repeat([]bool{true}, len(keys))
			if s.coin() {
				must(t, m.ContainsIf(keys, when, found))
				return nil, found
			}
			k, w := onDevice(t, d, keys), onDevice(t, d, when)
			defer free(t, k)
			defer free(t, w)
			must(t, m.ContainsIfOn(nil, k, w, w))
			return nil, host(t, nil, w)
		}
		s.all = func() (keys, values []uint32, err error) {
			keys, err = m.All()
			return keys, nil, err
		}
		s.bad = func(keys []uint32, short []bool) []error {
			return []error{second(m.InsertIf(keys, short, nil)), second(m.InsertIf(keys, nil, nil)), m.ContainsIf(keys, short, nil)}
		}
		return s
	})
}

type choiceOpener = func(t testing.TB, d *device.Device, o table.Options) *choiceSubject

func choicesOf(open choiceOpener) *Choices {
	return &Choices{[]test{
		{"chosen positions", Types, func(t *testing.T, d *device.Device) { choiceEach(t, d, open) }},
		{"full", Types, func(t *testing.T, d *device.Device) { choiceFull(t, d, open) }},
		{"bad input", Whole, func(t *testing.T, d *device.Device) { choiceBad(t, d, open) }},
	}}
}

// Run runs the suite.
func (c *Choices) Run(t *testing.T, part Part, d *device.Device) { runTests(t, c.tests, part, d) }

// choiceSubject is a table beside its model. A set's values are 0.
type choiceSubject struct {
	testing.TB
	t     table.Table
	rng   *rand.Rand
	model map[uint32]uint32
	round uint32

	put  func(keys, values []uint32, when []bool) (added []bool, err error) // added may be nil, as values and found of look
	look func(keys []uint32, when []bool) (values []uint32, found []bool)
	all  func() (keys, values []uint32, err error)
	bad  func(keys []uint32, short []bool) []error
}

func newChoiceSubject(t testing.TB, d *device.Device, it table.Table, o table.Options) *choiceSubject {
	t.Cleanup(func() { must(t, it.Close()) })
	return &choiceSubject{TB: t, t: it, rng: rand.New(rand.NewPCG(o.Seed, 2)), model: map[uint32]uint32{}}
}

func (s *choiceSubject) coin() bool { return s.rng.IntN(2) == 0 }

// batch makes keys below n and the three highest, of which one in `share` is chosen.
func (s *choiceSubject) batch(rows, n, share int) (keys []uint32, when []bool) {
	for range rows {
		keys = append(keys, uint32(s.rng.IntN(n)-3))
		when = append(when, s.rng.IntN(share) == 0)
	}
	return keys, when
}

// insert puts a batch in. Equal keys have one value, but in positions that are not chosen.
func (s *choiceSubject) insert(keys []uint32, when []bool) (full *table.FullError) {
	s.Helper()
	s.round++
	values := make([]uint32, len(keys))
	for i, k := range keys {
		if values[i] = ^uint32(0); when[i] {
			values[i] = k ^ s.round<<16
		}
	}
	added, err := s.put(keys, values, when)
	if err != nil && !errors.As(err, &full) {
		s.Fatal(err)
	}
	refused, news := map[int]bool{}, map[uint32]int{}
	if full != nil {
		for _, i := range full.Positions {
			if refused[i] = true; !when[i] {
				s.Fatalf("position %d is refused, and was not to be done", i)
			}
		}
	}
	for i, k := range keys {
		if _, there := s.model[k]; added != nil && added[i] {
			if news[k]++; !when[i] || refused[i] || there || news[k] > 1 {
				s.Fatalf("position %d, key %d: added; to be done %t, refused %t, there before %t, %d times", i, k, when[i], refused[i], there, news[k])
			}
		}
	}
	was := len(s.model)
	for i, k := range keys {
		if when[i] && !refused[i] {
			s.model[k] = values[i]
		}
	}
	for i := range refused {
		if _, in := s.model[keys[i]]; in {
			s.Fatalf("position %d is refused, and its key %d is in", i, keys[i])
		}
	}
	if added != nil && frame.Count(added) != len(s.model)-was {
		s.Fatalf("%d keys are new, told of %d", len(s.model)-was, frame.Count(added))
	}
	return full
}

func (s *choiceSubject) verify() {
	s.Helper()
	must(s, s.t.Check())
	keys, values, err := s.all()
	must(s, err)
	if len(keys) != len(s.model) {
		s.Fatalf("%d keys, want %d", len(keys), len(s.model))
	}
	for i, k := range keys {
		if want, there := s.model[k]; !there || values != nil && values[i] != want {
			s.Fatalf("key %d is not to be there (%t), or with value %#x", k, there, want)
		}
	}
}

func (s *choiceSubject) ask(keys []uint32, when []bool) {
	s.Helper()
	values, found := s.look(keys, slices.Clone(when))
	for i, k := range keys {
		want, there := s.model[k]
		if !when[i] {
			want, there = 0, false
		}
		if found != nil && found[i] != there || values != nil && values[i] != want {
			s.Fatalf("position %d, key %d, to be done %t: not found %t, with %#x", i, k, when[i], there, want)
		}
	}
}

func choiceEach(t testing.TB, d *device.Device, open choiceOpener) {
	s := open(t, d, table.Options{Seed: 8})
	for _, rows := range []int{1, 31, 33, 700, 3000} {
		for _, share := range []int{1, 2, 9, 1 << 30} {
			keys, when := s.batch(rows, 2*rows+3, share)
			s.insert(keys, when)
			s.verify()
			for range 4 {
				s.ask(s.batch(rows, 3*rows+3, share))
			}
		}
	}
}

func choiceFull(t testing.TB, d *device.Device, open choiceOpener) {
	for seed := range uint64(2) {
		s := open(t, d, table.Options{Seed: seed + 1, MaxBytes: 4 << 10, LoadFactor: []float64{0, 1}[seed%2]})
		times := 0
		for range 6 {
			if s.insert(s.batch(500, 2000, 2)) != nil {
				times++
			}
			s.verify()
			s.ask(s.batch(300, 2000, 3))
		}
		if keys, when := s.batch(500, 2000, 1<<30); s.insert(keys, when) != nil {
			t.Fatal("a batch of which nothing is to be done is refused")
		}
		if times == 0 {
			t.Fatal("a table with MaxBytes never is full")
		}
	}
}

func choiceBad(t testing.TB, d *device.Device, open choiceOpener) {
	s := open(t, d, table.Options{Seed: 10})
	for _, err := range s.bad([]uint32{1, 2}, []bool{true}) {
		if err == nil {
			t.Error("slices of other lengths: no error")
		}
	}
	s.insert(nil, nil)
	s.verify()
}
