package tabletest

import (
	"errors"
	"math"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

func optionsTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for _, o := range []table.Options{
		{Capacity: -1},
		{Capacity: math.MaxInt},
		{Capacity: 1 << 46}, // more memory than there is
		{Capacity: 1, LoadFactor: 1e-300},
		{Capacity: 1 << 46, LoadFactor: 1e-5},
		{LoadFactor: -0.5},
		{LoadFactor: 1.01},
		{LoadFactor: math.NaN()},
		{LoadFactor: math.Inf(1)},
		{MaxBytes: -1},
		{MaxBytes: 1},
		{Hash: -1},
		{Hash: 1000},
	} {
		m, err := newMap(d, o)
		if err == nil {
			t.Errorf("%+v: no error", o)
			m.Close()
		}
	}
	if _, err := newMap(nil, table.Options{}); err == nil {
		t.Error("a table on no device: no error")
	}
}

// calls are all operations that take batches, on the slices given; other slices of theirs are right.
func calls[K, V any](m table.Map[K, V], keys []K, values []V, flags []bool) map[string]func() error {
	return map[string]func() error{
		"Insert":    func() error { return m.Insert(keys, values) },
		"InsertNew": func() error { _, err := m.InsertNew(keys, values, flags); return err },
		"Find":      func() error { return m.Find(keys, values, flags) },
		"Contains":  func() error { return m.Contains(keys, flags) },
		"Delete":    func() error { _, err := m.Delete(keys, flags); return err },
	}
}

func callsOn[K, V any](m table.Map[K, V], st *device.Stream, keys device.Slice[K], values device.Slice[V], flags device.Slice[bool]) map[string]func() error {
	return map[string]func() error{
		"InsertOn":    func() error { return m.InsertOn(st, keys, values) },
		"InsertNewOn": func() error { return m.InsertNewOn(st, keys, values, flags) },
		"FindOn":      func() error { return m.FindOn(st, keys, values, flags) },
		"ContainsOn":  func() error { return m.ContainsOn(st, keys, flags) },
		"DeleteOn":    func() error { return m.DeleteOn(st, keys, flags) },
	}
}

// inputTest gives bad arguments: each is an error, and the table is as it was.
func inputTest[K, V any](t *testing.T, d, other *device.Device, newMap Maker[K, V]) {
	s := newSubject(t, d, newMap, table.Options{}, 1)
	next := uint64(0)
	bits := fresh[K](&next, 40)
	must(t, s.insert(bits, s.numbers(40)))
	keys, values, flags := KeysOf[K](bits), ValuesOf[V](s.numbers(40)), make([]bool, 40)
	dk, dv, df := onDevice(t, d, keys), onDevice(t, d, values), onDevice(t, d, flags)
	ok, ov, of := onDevice(t, other, keys), onDevice(t, other, values), onDevice(t, other, flags)
	fk, fv, ff := onDevice(t, d, keys), onDevice(t, d, values), onDevice(t, d, flags)
	free(t, fk)
	free(t, fv)
	free(t, ff)
	gone, err := d.NewStream()
	must(t, err)
	must(t, gone.Close())

	both := []string{"Insert", "InsertNew", "Find"}
	flag := []string{"InsertNew", "Find", "Contains", "Delete"}
	each := append([]string{"Insert"}, flag...)
	on := func(names []string) (out []string) {
		for _, n := range names {
			out = append(out, n+"On")
		}
		return out
	}
	for _, c := range []struct {
		what  string
		names []string
		calls map[string]func() error
		is    error
	}{
		{"a value too few", both, calls(s.m, keys, values[:39], flags), nil},
		{"a key too few", each, calls(s.m, keys[:39], values, flags), nil},
		{"no keys", each, calls(s.m, nil, values, flags), nil},
		{"no values", []string{"Insert", "InsertNew"}, calls(s.m, keys, nil, flags), nil},
		{"a flag too few", flag, calls(s.m, keys, values, flags[:39]), nil},
		{"empty flags that are not nil", flag, calls(s.m, keys, values, flags[:0]), nil},
		{"a value too few", on(both), callsOn(s.m, nil, dk, dv.Slice(0, 39), df), nil},
		{"a key too few", on(each), callsOn(s.m, nil, dk.Slice(1, 40), dv, df), nil},
		{"no values", []string{"InsertOn", "InsertNewOn"}, callsOn(s.m, nil, dk, device.Slice[V]{}, df), nil},
		{"a flag too few", on(flag), callsOn(s.m, nil, dk, dv, df.Slice(0, 39)), nil},
		{"keys of another device", on(each), callsOn(s.m, nil, ok, dv, df), nil},
		{"values of another device", on(both), callsOn(s.m, nil, dk, ov, df), nil},
		{"flags of another device", on(flag), callsOn(s.m, nil, dk, dv, of), nil},
		{"a stream of another device", on(each), callsOn(s.m, other.Stream(), dk, dv, df), nil},
		{"freed keys", on(each), callsOn(s.m, nil, fk, dv, df), device.ErrFreed},
		{"freed values", on(both), callsOn(s.m, nil, dk, fv, df), device.ErrFreed},
		{"freed flags", on(flag), callsOn(s.m, nil, dk, dv, ff), device.ErrFreed},
		{"a closed stream", on(each), callsOn(s.m, gone, dk, dv, df), device.ErrClosed},
	} {
		for _, name := range c.names {
			err := c.calls[name]()
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s with %s: %v", name, c.what, err)
			}
		}
		s.verify()
	}
	for _, n := range []int{-1, math.MaxInt} {
		if err := s.m.Grow(n); err == nil {
			t.Errorf("Grow(%d): no error", n)
		}
	}
	s.verify()
}

func closedTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	m, err := newMap(d, table.Options{})
	must(t, err)
	keys, values, flags := KeysOf[K]([]uint64{1, 2}), ValuesOf[V]([]uint32{3, 4}), make([]bool, 2)
	dk, dv, df := onDevice(t, d, keys), onDevice(t, d, values), onDevice(t, d, flags)
	must(t, m.Insert(keys, values))
	must(t, m.Close())
	must(t, m.Close())
	all := []map[string]func() error{
		calls(m, keys, values, flags), callsOn(m, nil, dk, dv, df),
		calls(m, nil, nil, nil), callsOn(m, nil, device.Slice[K]{}, device.Slice[V]{}, device.Slice[bool]{}),
		{
			"Len":   func() error { _, err := m.Len(); return err },
			"Clear": m.Clear,
			"All":   func() error { _, _, err := m.All(); return err },
			"Stats": func() error { _, err := m.Stats(); return err },
			"Check": m.Check,
			"Grow":  func() error { return m.Grow(10) },
		},
	}
	for _, group := range all {
		for name, call := range group {
			if err := call(); !errors.Is(err, table.ErrClosed) {
				t.Errorf("%s of a closed table: %v", name, err)
			}
		}
	}
}
