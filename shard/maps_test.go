package shard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// pairs is a map of warpcore's over the devices.
func pairs(t testing.TB, devices []*device.Device, o shard.Options) *shard.Map[uint32, uint32] {
	t.Helper()
	m, err := shard.NewMap(devices, o, families[uint32, uint32]()["warpcore"])
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m
}

// on copies a Go slice to a device.
func on[T any](t testing.TB, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	return s
}

// batches are batches of distinct keys, of these sizes, and values that are the keys' own.
func batches(sizes []int, seed uint64) (keys, values [][]uint32) {
	next := uint32(seed)
	for _, n := range sizes {
		k, v := make([]uint32, n), make([]uint32, n)
		for i := range k {
			next++
			k[i] = next * 0x9e3779b1
			v[i] = k[i] ^ 0x55aa
		}
		keys, values = append(keys, k), append(values, v)
	}
	return keys, values
}

// parts brings a batch to each device; the values are empty without values.
func parts(t testing.TB, devices []*device.Device, keys, values [][]uint32) (out []shard.Part[uint32, uint32]) {
	for i, d := range devices {
		p := shard.Part[uint32, uint32]{Keys: on(t, d, keys[i]), Flags: on(t, d, make([]bool, len(keys[i])))}
		if values != nil {
			p.Values = on(t, d, values[i])
		} else {
			p.Values = on(t, d, make([]uint32, len(keys[i])))
		}
		out = append(out, p)
	}
	return out
}

// Each device brings a batch of its own, of another size, in pieces and not, by remote writes and by copies.
func TestEachDeviceBringsABatch(t *testing.T) {
	for _, o := range []shard.Options{{}, {Copies: true}, {Piece: 3000}, {Piece: 3000, Copies: true}} {
		onEach(t, 3, func(t *testing.T, devices []*device.Device) {
			m := pairs(t, devices, o)
			sizes := []int{20_001, 0, 7_777}
			keys, values := batches(sizes, 1)
			in := parts(t, devices, keys, values)
			must(t, m.InsertEach(in))
			added := parts(t, devices, keys, values)
			must(t, m.InsertNewEach(added))
			others := slices.Concat(keys...)
			slices.Reverse(others)
			asked := [][]uint32{others[:9000], others[9000:9001], append([]uint32{1, 2, 3}, others[9001:]...)}
			out := parts(t, devices, asked, nil)
			must(t, m.FindEach(out))
			for i, p := range out {
				v, err := p.Values.Host(nil)
				must(t, err)
				found, err := p.Flags.Host(nil)
				must(t, err)
				for k, key := range asked[i] {
					if there := i < 2 || k >= 3; found[k] != there || there && v[k] != key^0x55aa {
						t.Fatalf("%+v: device %d, position %d: key %#x found %t with %#x", o, i, k, key, found[k], v[k])
					}
				}
				news, err := added[i].Flags.Host(nil)
				must(t, err)
				if slices.Contains(news, true) {
					t.Fatal("a key that is there was added")
				}
			}
			must(t, m.DeleteEach(out))
			if n, err := m.Len(); n != 0 || err != nil {
				t.Errorf("%+v: %d pairs are left, %v", o, n, err)
			}
			for i, p := range out {
				deleted, err := p.Flags.Host(nil)
				must(t, err)
				if want := len(asked[i]) - 3*(i/2); frame.Count(deleted) != want {
					t.Errorf("device %d: %d deleted of %d", i, frame.Count(deleted), want)
				}
			}
			must(t, m.Check())
		})
	}
}

// All keys of all devices belong to one: its inbox is not as large as all batches, and nothing is lost.
func TestSkew(t *testing.T) {
	onEach(t, 3, func(t *testing.T, devices []*device.Device) {
		m := pairs(t, devices, shard.Options{Piece: 1 << 15})
		keys, values := batches([]int{1 << 17, 1 << 17, 1 << 17}, 5)
		for i := range keys {
			for k := range keys[i] {
				keys[i][k] = keys[0][0] // one key, and the values of many
			}
		}
		in := parts(t, devices, keys, values)
		must(t, m.InsertEach(in))
		if n, err := m.Len(); n != 1 || err != nil {
			t.Errorf("%d pairs, %v", n, err)
		}
		for i, d := range devices {
			for _, a := range d.Live() {
				if strings.Contains(a.By, "makeRoom") && a.Bytes > 1<<19 {
					t.Errorf("device %d keeps %v for pieces of 2¹⁵ pairs", i, a)
				}
			}
		}
		must(t, m.FindEach(in))
		v, err := in[2].Values.Host(nil)
		must(t, err)
		if !slices.Contains(slices.Concat(values...), v[0]) || slices.Min(v) != slices.Max(v) {
			t.Errorf("values from %#x to %#x", slices.Min(v), slices.Max(v))
		}
		must(t, m.Check())
	})
}

// The keys of a device's table use all of it: with half of all hashes its look-ups would take more reads.
func TestOwnersHashIsApart(t *testing.T) {
	const n = 60_000
	for family, newTable := range families[uint32, uint32]() {
		one, err := newTable(open(t, "cpu"), table.Options{Capacity: n / 4, LoadFactor: 0.75})
		must(t, err)
		many, err := shard.NewMap(several(t, "cpu", 4),
			shard.Options{Options: table.Options{Capacity: n, LoadFactor: 0.75}}, newTable)
		must(t, err)
		keys, values := batches([]int{n}, 3)
		must(t, one.Insert(keys[0][:n/4], values[0][:n/4]))
		must(t, many.Insert(keys[0], values[0]))
		a, err := one.Stats()
		must(t, err)
		b, err := many.Stats()
		must(t, err)
		if b.MeanProbes > a.MeanProbes*1.1+0.05 {
			t.Errorf("%s: %.3f reads a look-up in a table over 4 devices, %.3f in one a quarter as large", family,
				b.MeanProbes, a.MeanProbes)
		}
		each, err := many.StatsEach()
		must(t, err)
		for i, s := range each {
			if s.Len < n/4-700 || s.Len > n/4+700 {
				t.Errorf("%s: device %d has %d of %d pairs", family, i, s.Len, n)
			}
		}
		must(t, errors.Join(one.Close(), many.Close()))
	}
}

func TestFullOverSeveral(t *testing.T) {
	onEach(t, 3, func(t *testing.T, devices []*device.Device) {
		m := pairs(t, devices, shard.Options{Options: table.Options{MaxBytes: 96 << 10}})
		keys, values := batches([]int{9000, 300, 9000}, 9)
		in := parts(t, devices, keys, values)
		err := m.InsertEach(in)
		var full *table.FullError
		if !errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes) {
			t.Fatal(err)
		}
		must(t, m.FindEach(in))
		var absent []int
		for i, p := range in {
			found, err := p.Flags.Host(nil)
			must(t, err)
			for k, there := range found {
				if !there {
					absent = append(absent, k+[]int{0, 9000, 9300}[i])
				}
			}
		}
		if !slices.Equal(absent, full.Positions) {
			t.Errorf("%d positions are not in, and %d are named", len(absent), len(full.Positions))
		}
		s, err := m.Stats()
		must(t, err)
		if full.Len != s.Len || full.Capacity != s.Capacity || s.Bytes > 96<<10 {
			t.Errorf("%v beside %+v", full, s)
		}
	})
}

func TestBadParts(t *testing.T) {
	devices := several(t, "cpu", 2)
	other := open(t, "cpu:7")
	m := pairs(t, devices, shard.Options{})
	a, b, c := on(t, devices[0], []uint32{1, 2}), on(t, devices[1], []uint32{3, 4}), on(t, other, []uint32{5, 6})
	type part = shard.Part[uint32, uint32]
	for want, in := range map[string][]part{
		"two parts of a batch are on cpu:0":      {{Keys: a, Values: a}, {Keys: a, Values: a}},
		"a slice of device cpu:1 given to":       {{Keys: a, Values: b}},
		"a batch on device cpu:7, which is none": {{Keys: c, Values: c}},
		"stream of device cpu:7 given to":        {{Keys: a, Values: a, Stream: other.Stream()}},
		"2 keys beside a slice of 1":             {{Keys: a, Values: a.Slice(0, 1)}},
	} {
		if err := m.InsertEach(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, make := range map[string]func() error{
		"no device": func() error {
			_, err := shard.NewMap([]*device.Device(nil), shard.Options{}, families[uint32, uint32]()["slab"])
			return err
		},
		"cpu:0 is there twice": func() error {
			_, err := shard.NewMap([]*device.Device{devices[0], devices[0]}, shard.Options{},
				families[uint32, uint32]()["slab"])
			return err
		},
		"pieces of -1 rows": func() error {
			_, err := shard.NewMap(devices, shard.Options{Piece: -1}, families[uint32, uint32]()["slab"])
			return err
		},
		"holds a pointer": func() error {
			_, err := shard.NewMap(devices, shard.Options{}, families[uint32, *int]()["slab"])
			return err
		},
		"33 devices (32 at most": func() error {
			_, err := shard.NewMap(slices.Repeat(devices, 17)[:33], shard.Options{}, families[uint32, uint32]()["slab"])
			return err
		},
		"table: a capacity of -3": func() error {
			_, err := shard.NewMap(devices, shard.Options{Options: table.Options{Capacity: -3}},
				families[uint32, uint32]()["slab"])
			return err
		},
	} {
		if err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n, err := m.Len(); n != 0 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// broken is a table whose inserts fail on one device.
type broken struct {
	table.Map[uint32, uint32]
	insert func() error
}

func (b *broken) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	if err := b.insert(); err != nil {
		return err
	}
	return b.Map.InsertOn(st, keys, values)
}

// breaking is a map over the devices whose inserts on the second do as they are told.
func breaking(t testing.TB, devices []*device.Device, insert func() error) *shard.Map[uint32, uint32] {
	t.Helper()
	m, err := shard.NewMap(devices, shard.Options{Piece: 2048},
		func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			inner, err := families[uint32, uint32]()["warpcore"](d, o)
			if err != nil || d != devices[1] {
				return inner, err
			}
			return &broken{inner, insert}, nil
		})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return m
}

// ends fails the test if a call does not return: nothing may hang.
func ends(t testing.TB, call func() error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.Fatal("the call hangs")
		return nil
	}
}

// A device that is lost is named, by the call and by all after it, and no call hangs.
func TestLostDevice(t *testing.T) {
	devices := several(t, "cpu", 3)
	calls := 0
	m := breaking(t, devices, func() error {
		if calls++; calls == 3 {
			return &device.FaultError{Device: "cpu:1", What: "made to order"}
		}
		return nil
	})
	keys, values := batches([]int{20_000, 20_000, 20_000}, 2)
	in := parts(t, devices, keys, values)
	for i, call := range []func() error{
		func() error { return m.InsertEach(in) },
		func() error { return m.FindEach(in) },
		func() error { return m.Insert(keys[0], values[0]) },
		func() error { _, err := m.Len(); return err },
		func() error { _, _, err := m.All(); return err },
	} {
		err := ends(t, call)
		if err == nil || !errors.As(err, new(*device.FaultError)) || !strings.Contains(err.Error(),
			"shard: cpu:1 is lost") {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// One device's error ends the batch when all have ended, and the table goes on.
func TestErrorOfOneDevice(t *testing.T) {
	devices := several(t, "cpu", 3)
	wrong := errors.New("not today")
	calls := 0
	m := breaking(t, devices, func() error {
		if calls++; calls == 4 {
			return wrong
		}
		return nil
	})
	keys, values := batches([]int{20_000, 0, 20_000}, 2)
	in := parts(t, devices, keys, values)
	if err := ends(t, func() error { return m.InsertEach(in) }); !errors.Is(err, wrong) {
		t.Fatal(err)
	}
	must(t, ends(t, func() error { return m.InsertEach(in) }))
	if n, err := m.Len(); n != 40_000 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// A panic below goes on to the caller, and the table is not locked.
func TestPanic(t *testing.T) {
	devices := several(t, "cpu", 2)
	calls := 0
	m := breaking(t, devices, func() error {
		if calls++; calls == 2 {
			panic("made to order")
		}
		return nil
	})
	keys, values := batches([]int{30_000, 30_000}, 2)
	in := parts(t, devices, keys, values)
	must(t, ends(t, func() (err error) {
		defer func() {
			if crash := recover(); crash != "made to order" {
				err = errors.New("no panic")
			}
		}()
		return m.InsertEach(in)
	}))
	must(t, ends(t, func() error { return m.InsertEach(in) }))
	if n, err := m.Len(); n != 60_000 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// Where memory is short, rows go in smaller pieces before a batch is refused.
func TestLittleMemory(t *testing.T) {
	for _, x := range []struct{ regions, free int }{{0, 2500}, {0, 1000}, {37, 1000}, {512, 1500}} { // KiB
		littleMemory(t, shard.Options{Options: table.Options{Capacity: 200_000}, Regions: x.regions}, x.free<<10)
	}
}

func littleMemory(t *testing.T, o shard.Options, left int) {
	devices := []*device.Device{open(t, "cpu:0", device.WithMemory(14<<20)),
		open(t, "cpu:1", device.WithMemory(14<<20))}
	m := pairs(t, devices, o)
	keys, values := batches([]int{200_000}, 2)
	var held []device.Slice[byte]
	for _, d := range devices {
		free, _, err := d.Memory()
		must(t, err)
		x, err := device.Make[byte](d, int(free)-left)
		must(t, err)
		held = append(held, x)
	}
	must(t, m.Insert(keys[0], values[0]))
	found := make([]bool, 200_000)
	must(t, m.Find(keys[0], nil, found))
	if n := frame.Count(found); n != 200_000 {
		t.Errorf("%d found", n)
	}
	for _, x := range held {
		must(t, x.Free())
	}
}
