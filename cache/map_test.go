package cache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// What is refused is refused before anything is launched, with the reason.
func TestBadInput(t *testing.T) {
	d := open(t, "cpu")
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "want one of them"},
		{Options{Capacity: 10, Bytes: 1000}, "want one of them"},
		{Options{Capacity: -1}, "want 0 to"},
		{Options{Capacity: 1<<46 + 1}, "want 0 to"},
		{Options{Bytes: -1}, "no negative bytes"},
		{Options{Bytes: 255}, "no room for a bucket"},
		{Options{Capacity: 1, Policy: 4}, "Policy(4) is no policy"},
		{Options{Capacity: 1, Hash: 4}, "hash function 4"},
		{Options{Capacity: 1, TimeToLive: -1}, "a time to live of -1ns"},
		{Options{Capacity: 1, HostBytes: -1}, "no negative bytes"},
		{Options{Capacity: 1, HostValues: true}, "HostValues for values of 8 bytes"},
		{Options{Bytes: 1000, HostBytes: 1000}, "without HostValues"},
	} {
		if _, err := New[uint64, uint64](d, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	_, e1 := New[uint16, uint64](d, Options{Capacity: 1})
	_, e2 := New[uint64, [1025]uint32](d, Options{Capacity: 1})
	_, e3 := New[uint64, *int](d, Options{Capacity: 1})
	_, e4 := New[uint64, uint64](nil, Options{Capacity: 1})
	_, e5 := New[uint64, uint16](d, Options{Capacity: 1})
	for i, err := range []error{e1, e2, e3, e4, e5} {
		if err == nil {
			t.Errorf("types %d are taken", i)
		}
	}

	m, err := New[uint32, uint32](d, Options{Capacity: 1})
	must(t, err)
	keys, err := device.From(d, []uint32{1, 2})
	must(t, err)
	counts, err := device.Make[uint64](d, 1)
	must(t, err)
	defer func() { must(t, errors.Join(keys.Free(), counts.Free())) }()
	none, scores := device.Slice[uint32]{}, keys
	insert := func(out Out[uint32, uint32]) error { return m.InsertOutOn(nil, keys, keys, none, out) }
	for i, err := range []error{
		m.Insert([]uint32{1}, nil), m.InsertScored([]uint32{1}, []uint32{1}, []uint32{1, 2}),
		m.InsertScored([]uint32{1}, []uint32{1}, []uint32{1}), // it is no Scored one
		m.InsertOn(nil, keys, keys.Slice(0, 1)), m.InsertOutOn(nil, keys, keys, scores, Out[uint32, uint32]{}),
		insert(Out[uint32, uint32]{Keys: keys}), insert(Out[uint32, uint32]{Count: counts}),
		insert(Out[uint32, uint32]{Values: keys}), insert(Out[uint32, uint32]{Scores: keys}),
		insert(Out[uint32, uint32]{Keys: keys.Slice(0, 1), Count: counts}),
		insert(Out[uint32, uint32]{Keys: keys, Values: keys.Slice(0, 1), Count: counts}),
		insert(Out[uint32, uint32]{Keys: keys, Scores: keys.Slice(1, 2), Count: counts}),
		m.InsertFor([]uint32{1}, []uint32{1}, []time.Duration{1}), // it has no lives
		m.Find([]uint32{1}, make([]uint32, 2), nil), m.FindQuiet([]uint32{1}, nil, make([]bool, 2)),
	} {
		if err == nil {
			t.Errorf("call %d: no error", i)
		}
	}
	if n, err := m.Len(); n != 0 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
	must(t, errors.Join(m.Insert(nil, nil), m.Find(nil, nil, nil), m.Check(), m.Close(), m.Close()))
	_, _, _, e1 = m.Export(0)
	_, e2 = m.Stats()
	for i, err := range []error{m.Insert([]uint32{1}, []uint32{1}), m.Find([]uint32{1}, nil, nil), m.Clear(),
		m.Check(), e1, e2} {
		if !errors.Is(err, table.ErrClosed) {
			t.Errorf("call %d of a closed cache: %v", i, err)
		}
	}
}

// A cache of a size in bytes takes no more, and one of a capacity has it.
func TestSize(t *testing.T) {
	d := open(t, "cpu")
	for _, bytes := range []int64{64 + 192, 1000, 100_000} {
		m, err := New[uint64, uint64](d, Options{Bytes: bytes})
		must(t, err)
		s, err := m.Stats()
		must(t, err)
		if s.Bytes > bytes || s.Bytes < bytes-255 || s.Capacity != int(s.Bytes/256*12) {
			t.Errorf("%d bytes: %d, for %d pairs", bytes, s.Bytes, s.Capacity)
		}
		must(t, m.Close())
	}
	for _, pairs := range []int{1, 12, 13, 1000} {
		m, err := New[uint32, [16]uint32](d, Options{Capacity: pairs})
		must(t, err)
		s, err := m.Stats()
		must(t, err)
		if s.Capacity < pairs || s.Capacity >= pairs+12 {
			t.Errorf("%d pairs wanted, room for %d", pairs, s.Capacity)
		}
		must(t, m.Close())
	}
}

// Device slices, streams, All and Chunks give what Go slices give.
func TestOnDevice(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			// so large that none goes out
			m, err := New[uint64, [3]uint32](d, Options{Capacity: 40_000, Policy: LFU, Seed: 1})
			must(t, err)
			defer m.Close()
			const n = 2000
			hostKeys, hostValues := make([]uint64, n), make([][3]uint32, n)
			for i := range hostKeys {
				hostKeys[i], hostValues[i] = uint64(i)<<32, [3]uint32{uint32(i), 1, 2}
			}
			keys, e1 := device.From(d, hostKeys)
			values, e2 := device.From(d, hostValues)
			found, e3 := device.Make[bool](d, n)
			got, e4 := device.Make[[3]uint32](d, n)
			st, e5 := d.NewStream()
			must(t, errors.Join(e1, e2, e3, e4, e5))
			defer func() { must(t, errors.Join(keys.Free(), values.Free(), found.Free(), got.Free(), st.Close())) }()
			must(t, errors.Join(m.InsertOn(st, keys, values), m.FindOn(nil, keys, got, found), m.FindQuietOn(nil,
				keys, got, found), d.Stream().Sync()))
			h, err := got.Host(nil)
			must(t, err)
			f, err := found.Host(nil)
			must(t, err)
			for i := range f {
				if !f[i] || h[i] != hostValues[i] {
					t.Fatalf("key %d: %t, %v", i, f[i], h[i])
				}
			}
			k, v, err := m.All()
			must(t, err)
			if len(k) != n {
				t.Fatalf("%d pairs", len(k))
			}
			for i := range k {
				if v[i][0] != uint32(k[i]>>32) {
					t.Errorf("key %#x has %v", k[i], v[i])
				}
			}
			var chunked []uint64
			must(t, m.Chunks(context.Background(), func(keys []uint64, _ [][3]uint32) error {
				chunked = append(chunked, keys...)
				return nil
			}))
			slices.Sort(chunked)
			if !slices.Equal(chunked, hostKeys) {
				t.Errorf("%d pairs in chunks", len(chunked))
			}
			must(t, m.DeleteOn(st, keys.Slice(0, n/2), device.Slice[bool]{}))
			if left, err := m.Len(); left != n/2 || err != nil {
				t.Errorf("%d pairs are left, %v", left, err)
			}
			_, _, scores, err := m.Export(3)
			if len(scores) != 0 || err != nil {
				t.Errorf("%d pairs were used three times, %v", len(scores), err)
			}
			_, _, scores, err = m.Export(2)
			if len(scores) != n/2 || err != nil {
				t.Errorf("%d pairs were used twice, %v", len(scores), err)
			}
		})
	}
}

// Long before the clock's numbers end, it goes back with all scores, which stay in order.
func TestClockGoesBack(t *testing.T) {
	m, err := New[uint64, uint64](open(t, "cpu"), Options{Capacity: 12})
	must(t, err)
	defer m.Close()
	must(t, m.Insert([]uint64{1}, []uint64{1}))
	m.core.clock = mostClock - 2
	must(t, m.Insert([]uint64{2}, []uint64{2}))
	must(t, m.Insert([]uint64{3}, []uint64{3}))
	must(t, m.Insert([]uint64{4}, []uint64{4})) // behind the way back
	must(t, m.Check())
	keys, _, scores, err := m.Export(0)
	must(t, err)
	const half = mostClock / 2
	want := map[uint64]uint32{1: 0, 2: mostClock - 1 - half, 3: mostClock - half, 4: mostClock - half + 1}
	for i, k := range keys {
		if scores[i] != want[k] {
			t.Errorf("key %d has the score %d, want %d", k, scores[i], want[k])
		}
	}
	if len(keys) != 4 {
		t.Errorf("%d pairs", len(keys))
	}
}

// Several goroutines use a cache at once. All memory comes back when it is closed.
func TestGoroutines(t *testing.T) {
	d, err := device.Open("cpu", device.WithMemory(256<<20))
	must(t, err)
	defer d.Close()
	free := func() int64 { n, _, err := d.Memory(); must(t, err); return n }
	before := int64(0)
	for round := range 2 {
		m, err := New[uint64, uint64](d, Options{Capacity: 600, Policy: Aged})
		must(t, err)
		var work sync.WaitGroup
		for g := range uint64(4) {
			work.Go(func() {
				keys, found := make([]uint64, 300), make([]bool, 300)
				for i := range keys {
					keys[i] = g<<32 + uint64(i)
				}
				for range 10 {
					values := make([]uint64, len(keys))
					if err := errors.Join(m.Insert(keys, keys), m.Find(keys, values, found), m.Check()); err != nil {
						t.Error(err)
					}
					for i, in := range found {
						if in && values[i] != keys[i] {
							t.Errorf("key %#x has %#x", keys[i], values[i])
						}
					}
				}
			})
		}
		work.Wait()
		must(t, m.Close())
		if round == 0 {
			before = free()
		} else if now := free(); now != before {
			t.Errorf("%d bytes are free, and were %d", now, before)
		}
	}
}

// A pair lives as long as it was told to, and an eighth of a second more at most.
func TestTimeToLive(t *testing.T) {
	m, err := New[uint32, uint32](open(t, "cpu"), Options{Capacity: 12, TimeToLive: time.Second, Lives: true})
	must(t, err)
	defer m.Close()
	at := 30 * time.Millisecond
	m.core.since = func() time.Duration { return at }
	must(t, m.Insert([]uint32{1, 2}, []uint32{1, 2}))
	must(t, m.InsertFor([]uint32{3, 4, 5}, []uint32{3, 4, 5}, []time.Duration{0, 1, 100_000 * time.Hour}))
	for _, c := range []struct {
		at   time.Duration
		want []bool
	}{
		{31 * time.Millisecond, []bool{true, true, true, true, true}},
		{155 * time.Millisecond, []bool{true, true, true, false, true}},
		{1030 * time.Millisecond, []bool{true, true, true, false, true}},
		{1125 * time.Millisecond, []bool{false, false, false, false, true}},
		{90_000 * time.Hour, []bool{false, false, false, false, true}},
	} {
		at = c.at
		found := make([]bool, 5)
		must(t, m.Find([]uint32{1, 2, 3, 4, 5}, nil, found))
		if !slices.Equal(found, c.want) {
			t.Errorf("at %v: found %v, want %v", at, found, c.want)
		}
	}
	if n, err := m.Len(); n != 5 || err != nil {
		t.Errorf("%d pairs before they are swept, %v", n, err)
	}
	if n, err := m.Sweep(); n != 4 || err != nil {
		t.Errorf("%d pairs were swept, %v", n, err)
	}
	must(t, m.Check())
	if s, err := m.Stats(); s.Len != 1 || s.Expired != 4 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if err := m.InsertFor([]uint32{1}, []uint32{1}, []time.Duration{-1}); err == nil {
		t.Error("a life below 0 is taken")
	}
	if err := m.InsertFor([]uint32{1}, []uint32{1}, nil); err == nil {
		t.Error("too few lives are taken")
	}
}
