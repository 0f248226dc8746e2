package cache

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A cache with its values in host memory holds what its model holds, sized by any of the options.
func TestHostValues(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			testenv.Turn(t)
			for _, p := range testenv.Some(policies, 2) {
				for seed := range uint64(testenv.Seeds(8)) {
					o := Options{Policy: p, HostValues: true}
					o.Capacity = 40
					must(t, churn[uint64, [16]uint32](d, o, seed, 60, 200, 120))
					o.Capacity, o.HostBytes = 0, 1000
					must(t, churn[uint32, [3]uint32](d, o, seed, 60, 200, 120))
					o.Bytes, o.TimeToLive = 4000, 1500*time.Millisecond
					must(t, churn[uint64, [16]uint32](d, o, seed, 40, 100, 120))
				}
			}
		})
	}
	for seed := range uint64(testenv.SeedsOf(32, 4)) {
		churned := func(d *device.Device, o Options, seed uint64, steps, batch, universe int) error {
			o.HostValues = true
			return churn[uint64, [16]uint32](d, o, seed, steps, batch, universe)
		}
		must(t, underStress(churned, policies[seed%4], 1+3*int(seed/2%2), seed))
	}
}

// Values lie in the memory that Stats tells, and nowhere else; the bounds of both memories hold.
func TestHostValuesLieInHostMemory(t *testing.T) {
	d := open(t, "cpu")
	const bucket, apart = 192, 144 // bytes, of pairs of 8 and 12 bytes
	for _, x := range []struct {
		o       Options
		buckets int64
	}{
		{Options{Capacity: 25}, 3},
		{Options{Bytes: 5*bucket + 191}, 5},
		{Options{HostBytes: 5*apart + 143}, 5},
		{Options{Bytes: 7 * bucket, HostBytes: 4 * apart}, 4},
		{Options{Bytes: 4 * bucket, HostBytes: 7 * apart}, 4},
	} {
		x.o.HostValues = true
		m, err := New[uint64, [3]uint32](d, x.o)
		must(t, err)
		keys, values := []uint64{1, 2, 3}, [][3]uint32{{7, 8, 9}, {10, 11, 12}, {13, 14, 15}}
		must(t, m.Insert(keys, values))
		for _, v := range values {
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))
			if !bytes.Contains(m.core.values.Slice(), raw) {
				t.Errorf("%+v: the value %v is not in host memory", x.o, v)
			}
		}
		s, err := m.Stats()
		must(t, err)
		if s.Capacity != int(ways*x.buckets) || s.HostBytes != x.buckets*apart || s.Bytes != x.buckets*(bucket+apart) {
			t.Errorf("%+v: %+v", x.o, s.Stats)
		}
		at := unsafe.Pointer(unsafe.SliceData(m.core.values.Slice()))
		if _, pinned := d.Pinned(at, int(s.HostBytes)); !pinned {
			t.Errorf("%+v: the values are not in pinned memory", x.o)
		}
		must(t, errors.Join(m.Check(), m.Close()))
		if _, pinned := d.Pinned(at, 1); pinned {
			t.Errorf("%+v: Close leaves the values' memory", x.o)
		}
	}
	for _, o := range []Options{{HostBytes: apart - 1}, {HostBytes: apart, Bytes: bucket - 1},
		{HostBytes: math.MaxInt64}} { // more than there is, and no number of bytes overflows
		o.HostValues = true
		if m, err := New[uint64, [3]uint32](d, o); err == nil {
			t.Errorf("%+v: there is %v", o, m)
			m.Close()
		}
	}
}

// Each allocation of host memory fails in turn when a cache is made: the error says so, and nothing is left behind.
func TestHostValuesWithoutMemory(t *testing.T) {
	d := open(t, "cpu")
	defer faults.Set(d, nil)
	failed := 0
	for n := int64(1); ; n++ {
		order := &faults.Counter{Site: faults.HostAlloc, N: n, Outcome: faults.Fails}
		faults.Set(d, order.Order)
		m, err := New[uint64, [16]uint32](d, Options{Capacity: 40, HostValues: true})
		if err == nil {
			must(t, m.Close())
			break
		}
		failed++
		if m != nil || !device.IsOutOfMemory(err) {
			t.Errorf("allocation %d fails: %v, %v", n, m, err)
		}
	}
	if failed != 2 { // where counters land, and the values
		t.Errorf("%d allocations of host memory, want 2", failed)
	}
}

// A Tiered over such a cache has the store's values, also those that went out in between.
func TestTieredWithHostValues(t *testing.T) {
	m, err := New[uint64, [3]uint32](open(t, "cpu"), Options{Capacity: 12, HostValues: true})
	must(t, err)
	defer func() { must(t, m.Close()) }()
	of := func(k uint64) [3]uint32 { return [3]uint32{uint32(k), uint32(3 * k), 5} }
	x, err := NewTiered(m, Source[uint64, [3]uint32]{Fetch: func(_ context.Context, keys []uint64, values [][3]uint32,
		found []bool) error {
		for i, k := range keys {
			values[i], found[i] = of(k), true
		}
		return nil
	}})
	must(t, err)
	for round := range uint64(40) {
		keys := []uint64{round % 3, round, round + 1, 2 * round}
		values := make([][3]uint32, len(keys))
		must(t, x.Get(context.Background(), keys, values, nil))
		for i, k := range keys {
			if values[i] != of(k) {
				t.Errorf("round %d: key %d has %v", round, k, values[i])
			}
		}
	}
	if s, err := m.Stats(); err != nil || s.Evictions == 0 || s.Hits == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
