package gph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" && err != nil {
		t.Fatal(err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// variant is one set of compiled kernels.
type variant struct {
	keyBytes, valueBytes int
	bucket, virtual      int
	cellBytes            int
	insert, find         int // groups
}

func (v variant) String() string {
	return fmt.Sprintf("%d+%d M=%d R=%d cells of %d groups %d,%d", v.keyBytes, v.valueBytes, v.bucket, v.virtual, v.cellBytes, v.insert, v.find)
}

func (v variant) options(o table.Options) Options {
	return Options{Options: o, Bucket: v.bucket, VirtualBuckets: v.virtual, CellBytes: v.cellBytes, InsertGroup: v.insert, FindGroup: v.find, NoProfile: true}
}

// variants meet every M with every R, and each of them with every cell, every pair of groups and every width, in few
// compilations; in short runs they have each of these once. Inserting and looking up are by groups of different sizes.
func variants() (out []variant) {
	widths := [][2]int{{4, 4}, {8, 16}, {2, 2}, {4, 8}, {8, 4}, {4, 16}, {8, 8}}
	groups := [][2]int{{1, 32}, {16, 2}, {4, 8}, {2, 1}, {32, 4}, {8, 16}}
	buckets, virtuals := []int{4, 8, 16, 32}, []int{2, 4, 8, 16, 32}
	add := func(n, bucket, virtual, cell int) {
		w, g := widths[n%len(widths)], groups[n%len(groups)]
		out = append(out, variant{w[0], w[1], buckets[bucket], virtuals[virtual], 1 + cell%2, g[0], g[1]})
	}
	if !testenv.Long() {
		for n := range widths {
			add(n, n%len(buckets), n%len(virtuals), n)
		}
		return out
	}
	for i := range buckets {
		for j := range virtuals {
			add(5*i+j, i, j, i+j)
		}
	}
	return out
}

// byWidth calls the function that fits the widths: Go has no other way to choose type arguments at run time.
func byWidth(v variant, f22, f44, f48, f416, f84, f88, f816 func()) {
	map[[2]int]func(){{2, 2}: f22, {4, 4}: f44, {4, 8}: f48, {4, 16}: f416, {8, 4}: f84, {8, 8}: f88, {8, 16}: f816}[[2]int{v.keyBytes, v.valueBytes}]()
}

func TestVariants(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, v := range variants() {
			t.Run(name+"/"+v.String(), func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				d := open(t, name)
				byWidth(v, func() { churn[uint16, int16](t, d, v) }, func() { churn[uint32, uint32](t, d, v) },
					func() { churn[uint32, uint64](t, d, v) }, func() { churn[uint32, [2]uint64](t, d, v) },
					func() { churn[uint64, uint32](t, d, v) }, func() { churn[uint64, uint64](t, d, v) },
					func() { churn[uint64, [2]uint64](t, d, v) })
			})
		}
	}
}

func churn[K, V any](t *testing.T, d *device.Device, v variant) {
	newMap := func(d *device.Device, o table.Options) (table.Map[K, V], error) { return New[K, V](d, v.options(o)) }
	options := []table.Options{{}, {Capacity: 200, LoadFactor: 1}, {MaxBytes: 16 << 10, LoadFactor: 1}}
	if !v.cheap() {
		options = []table.Options{{Capacity: 3000, LoadFactor: 0.3}}
	}
	for i, o := range options {
		tabletest.Map(newMap).Churn(t, d, o, uint64(i), 12, 800)
	}
}

// cheap tells whether a group soon knows that a pair fits nowhere: it goes through all mappings many times, and on the CPU
// its lanes take turns.
func (v variant) cheap() bool {
	lanes := v.insert
	if lanes > 1 {
		lanes = max(lanes, 8)
	}
	return config{virtual: v.virtual, cellBytes: v.cellBytes}.mappings()*lanes <= 256
}

// A table takes as many pairs as it is made for, at the load factors of the paper's figures, and does not grow.
func TestFill(t *testing.T) {
	d := open(t, "cpu")
	const n = 100_000
	keys, err := workload.NewKeys("rand", 4, 1)
	must(t, err)
	k, v := make([]uint32, n), make([]uint32, n)
	workload.Pairs(keys, k, v)
	for _, load := range []float64{0.533, 0.8} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: load}})
		must(t, err)
		before, err := m.IndexStats()
		must(t, err)
		must(t, m.Insert(k, v))
		must(t, m.Check())
		s, err := m.IndexStats()
		must(t, err)
		if s.Capacity != before.Capacity || s.Len != n || s.MaxProbes != 1 || s.MeanProbes != 1 || s.Probes[0] != n || s.Reserve == 0 {
			t.Errorf("load factor %v: %d slots were made, now %+v", load, before.Capacity, s)
		}
		must(t, m.Close())
	}
}

func TestRefusedTypes(t *testing.T) {
	d := open(t, "cpu")
	for _, c := range []struct {
		make func() error
		want string
	}{
		{try[string, uint32](d), "pointer"},
		{try[uint32, *int](d), "pointer"},
		{try[uint16, uint32](d), "beside keys of 2 bytes"},
		{try[uint16, uint8](d), "beside keys of 2 bytes"},
		{try[uint32, uint16](d), "2 bytes"},
		{try[uint8, uint8](d), "1 bytes"},
		{try[[2]uint64, uint32](d), "16 bytes"},
		{try[uint32, [4]uint64](d), "32 bytes"},
		{try[struct {
			A uint32
			B uint8
		}, uint32](d), "3 bytes of padding"},
		{try[[2]bool, uint16](d), "bool"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := New[uint32, uint16](d, Options{}); err == nil || !strings.Contains(err.Error(), "2 bytes") {
		t.Errorf("%v, want \"2 bytes\"", err)
	}
	for _, err := range []error{try[[2]uint8, int16](d)(), try[struct{ A, B int16 }, complex128](d)()} {
		must(t, err)
	}
}

// try makes a map by the widths of types, as New does, which would have all methods compiled for each pair.
func try[K, V any](d *device.Device) func() error {
	return func() error {
		c, err := newCore(d, widths[K, V](), Options{})
		if err == nil {
			err = (&handle{c}).Close()
		}
		return err
	}
}

func TestRefusedOptions(t *testing.T) {
	d := open(t, "cpu")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Bucket: 2}, "bucket of 2 slots"},
		{Options{Bucket: 12}, "bucket of 12 slots"},
		{Options{Bucket: 64}, "bucket of 64 slots"},
		{Options{Bucket: -4}, "bucket of -4 slots"},
		{Options{VirtualBuckets: 1}, "1 virtual buckets"},
		{Options{VirtualBuckets: 24}, "24 virtual buckets"},
		{Options{VirtualBuckets: 64}, "64 virtual buckets"},
		{Options{CellBytes: 3}, "cells of 3 bytes"},
		{Options{CellBytes: -1}, "cells of -1 bytes"},
		{Options{KeysPerCell: -1}, "keys a cell"},
		{Options{KeysPerCell: 0.1}, "keys a cell"},
		{Options{KeysPerCell: cellPairs}, "keys a cell"},
		{Options{InsertGroup: 3}, "group of 3"},
		{Options{FindGroup: 64}, "group of 64"},
		{Options{FindGroup: -2}, "group of -2"},
		{Options{Options: table.Options{MaxBytes: 1000}}, "MaxBytes of 1000 B leaves no room for 32 buckets"},
		{Options{Options: table.Options{Capacity: 1 << 45, LoadFactor: 0.1}, KeysPerCell: 0.25}, "cells"},
	} {
		m, err := New[uint32, uint32](d, c.o)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// A table whose device is gone says so, and closes.
func TestDeviceClosed(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	must(t, m.Insert([]uint32{1}, []uint32{2}))
	must(t, d.Close())
	if err := m.Insert([]uint32{1}, []uint32{2}); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
	must(t, m.Close())
	if err := m.Insert([]uint32{1}, []uint32{2}); !errors.Is(err, table.ErrClosed) {
		t.Error(err)
	}
}

// Keys that meet in one cell under one seed are laid out under another.
func TestSeedThatFails(t *testing.T) {
	d := open(t, "cpu")
	unshift := func(x uint64) uint64 { return x ^ x>>33 }
	inverse := func(a uint64) uint64 { // of an odd number, modulo 2⁶⁴
		x := a
		for range 6 {
			x *= 2 - a*x
		}
		return x
	}
	var keys []uint64
	for i := range uint64(200) {
		h := 0x12345678<<32 | i*0x9e3779b1&0xffffffff
		x := unshift(h)
		x = unshift(x * inverse(0xc4ceb9fe1a85ec53))
		x = unshift(x * inverse(0xff51afd7ed558ccd))
		keys = append(keys, x-0x9e3779b97f4a7c15)
	}
	m, err := New[uint64, uint64](d, Options{})
	must(t, err)
	must(t, m.Insert(keys, keys))
	must(t, m.Check())
	s, err := m.Stats()
	must(t, err)
	if s.Len != 200 || s.Capacity > 4096 {
		t.Errorf("%+v", s)
	}
	must(t, m.Close())
}

// A full table refuses soon, batch after batch: it is not laid anew for each.
func TestFullRefusesSoon(t *testing.T) {
	d := open(t, "cpu", device.WithMemory(64<<20))
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 256 << 10, LoadFactor: 1}})
	must(t, err)
	n := 37_500
	k := make([]uint32, n)
	for i := range k {
		k[i] = uint32(i) * 2654435761
	}
	if err := m.Insert(k, k); err == nil {
		t.Fatal("more pairs than slots went in")
	}
	more, err := device.From(d, []uint32{uint32(n) * 2654435761})
	must(t, err)
	free, _, err := d.Memory()
	must(t, err)
	others, err := device.Make[byte](d, int(free)-4<<10) // so that laying it anew fails, and says so
	must(t, err)
	for range 5 {
		if err := m.InsertOn(nil, more, more); !errors.Is(err, table.ErrMaxBytes) || device.IsOutOfMemory(err) {
			t.Fatalf("a pair more: %v", err)
		}
	}
	must(t, others.Free())
	must(t, m.Check())
	must(t, m.Close())
}

// A table that has no memory for the lists of a batch of several chunks names all that it did not come to, though an earlier
// batch may have put in an equal key.
func TestShortOfMemory(t *testing.T) {
	opens := func(bytes int64) *device.Device { return open(t, "cpu", device.WithMemory(bytes)) }
	tabletest.ShortOfMemory(t, opens, func(d *device.Device, o table.Options) (table.Map[uint32, [2]uint64], error) {
		m, err := New[uint32, [2]uint64](d, Options{Options: o, VirtualBuckets: 32})
		if err == nil {
			m.core.frame.Stage.Chunk = 20_000
		}
		return m, err
	}, 1<<10)
}
