package cache

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table/snapshot"
)

// saved brings a cache through a file into others, as large and smaller.
func saved[K any, V comparable](t *testing.T, d *device.Device, o Options) {
	t.Helper()
	r, err := newRig[K, V](d, o, 7)
	must(t, err)
	defer r.m.Close()
	for range 6 {
		r.at += 300 * time.Millisecond
		r.model.time = uint64(r.at / (time.Second / ticksPerSecond))
		must(t, r.insert(r.keys(60, 200), false))
		must(t, r.find(r.keys(60, 200), false))
	}
	var file bytes.Buffer
	must(t, snapshot.Cache(r.m).Save(context.Background(), &file))
	want, err := r.in(0)
	must(t, err)

	o.Seed = 99
	for _, capacity := range []int{5000, 24} {
		o.Capacity = capacity
		m, err := New[K, V](d, o)
		must(t, err)
		defer m.Close()
		at := time.Duration(0)
		m.core.since = func() time.Duration { return at }
		must(t, snapshot.Cache(m).Load(context.Background(), bytes.NewReader(file.Bytes())))
		must(t, m.Check())
		keys, values, scores, err := m.Export(0)
		must(t, err)
		got, err := r.rows(keys, values, scores)
		must(t, err)
		if capacity == 5000 && !slices.Equal(got, want) {
			t.Errorf("%v: %d pairs became %d:\n%+v\n%+v", m, len(want), len(got), want, got)
		}
		least := map[uint64]uint32{} // what stays in each bucket
		for _, x := range got {
			b, _ := m.core.cfg.where(x.key, &m.core.t)
			if l, ok := least[b]; !ok || x.score < l {
				least[b] = x.score
			}
		}
		for _, x := range want {
			b, _ := m.core.cfg.where(x.key, &m.core.t)
			if !slices.Contains(got, x) && x.score > least[b] {
				t.Errorf("%v: pair %+v is not in, and one with the score %d is", m, x, least[b])
			}
		}
		if s, err := m.Stats(); err != nil || o.Policy == LRU && s.Clock < slices.Max(append(scores, 0)) {
			t.Errorf("%v: clock %d, %v", m, s.Clock, err)
		}
		if o.TimeToLive > 0 { // what they had left, they have
			at = 900 * time.Millisecond
			r.model.time += uint64(at / (time.Second / ticksPerSecond))
			_, _, scores, err := m.Export(0)
			must(t, err)
			if rows := r.model.rows(0); capacity == 5000 && len(scores) != len(rows) || len(rows) == len(want) {
				t.Errorf("%d pairs are left of %d, want %d", len(scores), len(want), len(rows))
			}
			r.model.time -= uint64(at / (time.Second / ticksPerSecond))
		}
	}
}

// A cache comes back from a file with its scores and times; into one that is too small, what is worth most.
func TestSnapshot(t *testing.T) {
	d := open(t, "cpu")
	saved[uint64, uint64](t, d, Options{Capacity: 5000})
	saved[uint32, [3]uint32](t, d, Options{Capacity: 5000, Policy: LFU, TimeToLive: 1600 * time.Millisecond})
	saved[uint64, [16]uint32](t, d, Options{Capacity: 5000, Policy: Scored})
	saved[uint32, struct{}](t, d, Options{Capacity: 5000, Policy: LRU})
	m, err := New[uint64, uint64](d, Options{Capacity: 12})
	must(t, err)
	defer m.Close()
	must(t, m.Restore(nil, nil))
	if m.Restore([]uint64{1}, nil) == nil {
		t.Error("a key without a record is taken")
	}
}

// Scores of any size, such as those of a Scored cache, are restored to an LRU cache part by part, and are not larger
// than its clock.
func TestRestoreLargeScores(t *testing.T) {
	m, err := New[uint64, uint64](open(t, "cpu"), Options{Capacity: 24})
	must(t, err)
	defer m.Close()
	for i := range uint64(3) {
		must(t, m.Restore([]uint64{i}, []Record[uint64]{{Value: i, Score: 1<<32 - 1}}))
		must(t, m.Check())
	}
	if n, err := m.Len(); n != 3 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}
