package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// uneven is a batch whose rows are unevenly spread over devices.
type uneven struct {
	name    string
	devices int
	sizes   func(i, n int) int // rows on device i of n
	owner   int                // of all keys; -1: any
	short   int                // a device that has no memory; -1: none
	allowed int64              // allocations for which it still has some
	o       shard.Options
}

func growing(i, n int) int { return i * i * 700 }

func lastOnly(i, n int) int { return i / (n - 1) * 9001 }

func alternating(i, n int) int { return (1 - i%2) * (5000 - 700*i) }

func ones(i, n int) int { return 1 + i/(n-1)*4999 }

var unevens = []uneven{
	{"growing", 3, growing, -1, -1, 0, shard.Options{Piece: 1}},
	{"growing, boxed", 5, growing, -1, -1, 0, shard.Options{Piece: 2048, Copies: true}},
	{"growing, asked", 7, growing, -1, -1, 0, shard.Options{Piece: 5000, AskAll: 1 << 30}},
	{"on one device", 3, lastOnly, -1, -1, 0, shard.Options{Piece: 1}},
	{"on one device, in regions", 5, lastOnly, -1, -1, 0, shard.Options{Piece: 1, Regions: 3}},
	{"on each other device", 7, alternating, -1, -1, 0, shard.Options{Piece: 1, Copies: true}},
	{"a row each", 7, ones, -1, -1, 0, shard.Options{Piece: 1}},
	{"of one owner", 3, growing, 1, -1, 0, shard.Options{Piece: 1}},
	{"of one owner, boxed", 5, growing, 4, -1, 0, shard.Options{Piece: 1, Copies: true}},
	{"of one owner, in regions", 7, alternating, 0, -1, 0, shard.Options{Piece: 1, Regions: 4}},
	{"no memory at a source", 3, growing, -1, 2, 0, shard.Options{Piece: 1}},
	{"some memory at a source", 3, growing, -1, 2, 12, shard.Options{Piece: 1}},
	{"some memory at an owner", 5, growing, -1, 0, 12, shard.Options{Piece: 1, Copies: true}},
	{"no memory at the owner", 7, alternating, 3, 3, 0, shard.Options{Piece: 1}},
	{"some memory at the owner", 7, alternating, 3, 3, 12, shard.Options{Piece: 1}},
}

// batch makes the keys of a batch, which differ, and values.
func (u uneven) batch(ownerOf func(key uint64) int) (keys, values [][]uint32) {
	next := uint32(0)
	for i := range u.devices {
		var k, v []uint32
		for len(k) < u.sizes(i, u.devices) {
			next++
			if key := next * 0x9e3779b1; u.owner < 0 || ownerOf(uint64(key)) == u.owner {
				k, v = append(k, key), append(v, key^0x55aa)
			}
		}
		keys, values = append(keys, k), append(values, v)
	}
	return keys, values
}

// put calls put, first with one device short of memory if the case has one. It checks, by in, that an error names the
// rows that are not in, or that none is, and returns the number of those rows.
func (u uneven) put(t testing.TB, devices []*device.Device, rows int, put func() error,
	in func() []bool) (refused int) {
	t.Helper()
	if u.short >= 0 {
		var allocations atomic.Int64
		faults.Set(devices[u.short], faults.OfMemory(func(int64) bool { return allocations.Add(1) > u.allowed }))
		err := put()
		faults.Set(devices[u.short], nil)
		full, out := (*table.FullError)(nil), make([]bool, rows)
		switch {
		case errors.As(err, &full):
			for _, p := range full.Positions {
				out[p] = true
			}
		case device.IsOutOfMemory(err):
			for i := range out {
				out[i] = true
			}
		case err != nil:
			t.Fatal(err)
		}
		for i, there := range in() {
			if there == out[i] {
				t.Fatalf("row %d is in: %t, and should not be: %t; %v", i, there, out[i], err)
			}
		}
		refused = frame.Count(out)
	}
	must(t, put())
	if slices.Contains(in(), false) {
		t.Fatal("a row is not in")
	}
	return refused
}

// flat joins a column of all parts.
func flat[T any](t testing.TB, of []device.Slice[T]) (all []T) {
	t.Helper()
	for _, s := range of {
		all = append(all, hostCopy(t, s)...)
	}
	return all
}

func flags[K, V any](t testing.TB, parts []shard.Part[K, V]) []bool {
	t.Helper()
	var all []device.Slice[bool]
	for _, p := range parts {
		all = append(all, p.Flags)
	}
	return flat(t, all)
}

func valuesOf(t testing.TB, parts []shard.Part[uint32, uint32]) []uint32 {
	t.Helper()
	var all []device.Slice[uint32]
	for _, p := range parts {
		all = append(all, p.Values)
	}
	return flat(t, all)
}

// All operations of all kinds do what they do on one device, whatever rows each device has and whichever owns the keys.
func TestUneven(t *testing.T) {
	for _, u := range unevens {
		t.Run(fmt.Sprintf("%d/%s", u.devices, u.name), func(t *testing.T) {
			t.Parallel()
			devices := several(t, "cpu", u.devices)
			u.maps(t, devices)
			u.sets(t, devices)
			u.counters(t, devices)
			u.multiMaps(t, devices)
		})
	}
}

func (u uneven) maps(t *testing.T, devices []*device.Device) {
	family := "slab" // has mixed batches
	if u.o.Regions > 0 {
		family = "warpcore" // takes rows in order
	}
	m, err := shard.NewMap(devices, u.o, families[uint32, uint32]()[family])
	must(t, err)
	keys, values := u.batch(m.OwnerOf)
	all, n := slices.Concat(keys...), len(slices.Concat(keys...))
	in, out := parts(t, devices, keys, values), parts(t, devices, keys, nil)
	found := func() []bool { must(t, m.FindEach(out)); return flags(t, out) }
	if u.put(t, devices, n, func() error { return m.InsertEach(in) }, found) == 0 && u.short >= 0 && u.allowed == 0 {
		t.Error("no row was refused: the case tests nothing")
	}
	if !slices.Equal(valuesOf(t, out), slices.Concat(values...)) {
		t.Error("FindEach: other values than were inserted")
	}
	must(t, m.InsertNewEach(in))
	if slices.Contains(flags(t, in), true) {
		t.Error("InsertNewEach: a key that is there was added")
	}
	must(t, m.UpdateEach(in, table.Add))
	must(t, m.FindEach(out))
	for i, v := range valuesOf(t, out) {
		if v != 2*(all[i]^0x55aa) {
			t.Fatalf("UpdateEach: row %d has %#x, want %#x", i, v, 2*(all[i]^0x55aa))
		}
	}
	half := make([]bool, n)
	for i := range half {
		half[i] = i%2 == 0
	}
	if family == "slab" {
		ops, results, status := make([]table.Op, n), make([]uint32, n), make([]table.Status, n)
		for i := range ops {
			if ops[i] = table.OpDelete; half[i] {
				ops[i] = table.OpFind
			}
		}
		must(t, m.Mixed(ops, all, all, results, status))
		for i, s := range status {
			if s != table.Present || half[i] && results[i] != 2*(all[i]^0x55aa) {
				t.Fatalf("Mixed: row %d is %v with %#x", i, s, results[i])
			}
		}
	} else if gone, err := m.Delete(odd(all), nil); err != nil || gone != n/2 {
		t.Errorf("Delete: %d of %d, %v", gone, n/2, err)
	}
	if !slices.Equal(found(), half) {
		t.Error("other keys are left than were not deleted")
	}
	u.put(t, devices, n, func() error { return m.InsertNewEach(in) }, found)
	must(t, m.DeleteEach(out))
	if gone := frame.Count(flags(t, out)); gone != n {
		t.Errorf("DeleteEach: %d of %d", gone, n)
	}
	if left, err := m.Len(); left != 0 || err != nil {
		t.Errorf("%d pairs are left, %v", left, err)
	}
	u.put(t, devices, n, func() error { return m.UpdateEach(in, table.Add) }, found)
	must(t, errors.Join(m.Check(), m.Close()))
}

func odd(keys []uint32) (out []uint32) {
	for i := 1; i < len(keys); i += 2 {
		out = append(out, keys[i])
	}
	return out
}

func (u uneven) sets(t *testing.T, devices []*device.Device) {
	s, err := shard.NewSet(devices, u.o, slabSet)
	must(t, err)
	keys, _ := u.batch(s.OwnerOf)
	var in []shard.Part[uint32, byte]
	for i, p := range parts(t, devices, keys, nil) {
		in = append(in, shard.Part[uint32, byte]{Keys: p.Keys, Flags: on(t, devices[i], make([]bool, len(keys[i])))})
	}
	all := slices.Concat(keys...)
	found := make([]bool, len(all))
	u.put(t, devices, len(all), func() error { return s.InsertEach(in) }, func() []bool {
		must(t, s.Contains(all, found))
		return found
	})
	must(t, s.InsertEach(in))
	if slices.Contains(flags(t, in), true) {
		t.Error("a key that is there was added to a set")
	}
	must(t, s.ContainsEach(in))
	if slices.Contains(flags(t, in), false) {
		t.Error("ContainsEach: a key is not in")
	}
	if n, err := s.Delete(all, nil); n != len(all) || err != nil {
		t.Errorf("%d keys of %d were deleted, %v", n, len(all), err)
	}
	must(t, errors.Join(s.Check(), s.Close()))
}

func (u uneven) counters(t *testing.T, devices []*device.Device) {
	c, err := shard.NewCounter(devices, u.o, counting(false))
	must(t, err)
	keys, _ := u.batch(c.OwnerOf)
	in := parts(t, devices, keys, nil)
	all := slices.Concat(keys...)
	u.put(t, devices, len(all), func() error { return c.AddEach(in) }, func() []bool {
		must(t, c.FindEach(in))
		return flags(t, in)
	})
	counts := make([]uint32, len(all))
	must(t, c.Find(all, counts, nil))
	must(t, c.Add(all))
	again := make([]uint32, len(all))
	must(t, c.Find(all, again, nil))
	for i := range again {
		if again[i] != counts[i]+1 || counts[i] < 1 || u.short < 0 && counts[i] != 1 {
			t.Fatalf("row %d came %d times, and then %d times", i, counts[i], again[i])
		}
	}
	must(t, errors.Join(c.Check(), c.Close()))
}

func (u uneven) multiMaps(t *testing.T, devices []*device.Device) {
	m, err := shard.NewMultiMap(devices, u.o, multiMaps[uint32, uint32]()["slab"])
	must(t, err)
	keys, values := u.batch(m.OwnerOf)
	in := parts(t, devices, keys, values)
	all, n := slices.Concat(keys...), len(slices.Concat(keys...))
	found := make([]bool, n)
	u.put(t, devices, n, func() error { return m.InsertEach(in) }, func() []bool {
		must(t, m.Contains(all, found))
		return found
	})
	must(t, m.Insert(all, all)) // a second value of each key
	offsets, got, err := m.FindAll(all)
	must(t, err)
	for i, k := range all {
		own := got[offsets[i]:offsets[i+1]]
		if !slices.Contains(own, k) || !slices.Contains(own, k^0x55aa) || u.short < 0 && len(own) != 2 {
			t.Fatalf("FindAll: key %#x has %#x", k, own)
		}
	}
	if gone, err := m.Delete(all, nil); gone != len(got) || err != nil {
		t.Errorf("%d pairs of %d were deleted, %v", gone, len(got), err)
	}
	must(t, errors.Join(m.Check(), m.Close()))
}
