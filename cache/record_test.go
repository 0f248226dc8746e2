package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
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
		m.core.made = r.m.core.made.Add(r.at) // it is loaded when it was saved
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
	saved[uint64, [16]uint32](t, d, Options{Capacity: 5000, HostValues: true})
	m, err := New[uint64, uint64](d, Options{Capacity: 12})
	must(t, err)
	defer m.Close()
	must(t, m.Restore(nil, nil, m.Saved()))
	if m.Restore([]uint64{1}, nil, m.Saved()) == nil {
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
		must(t, m.Restore([]uint64{i}, []Record[uint64]{{Value: i, Score: 1<<32 - 1}}, Saved{}))
		must(t, m.Check())
	}
	if n, err := m.Len(); n != 3 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// A file keeps the policy and when pairs end: they end at that time, whenever they are loaded.
func TestSnapshotKeepsPolicyAndLives(t *testing.T) {
	d, ctx := open(t, "cpu"), context.Background()
	made := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	cacheOf := func(o Options, after time.Duration) (*Cache[uint64, uint64], *time.Duration) {
		o.Capacity = 240
		m, err := New[uint64, uint64](d, o)
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		at := new(time.Duration)
		m.core.made, m.core.since = made.Add(after), func() time.Duration { return *at }
		return m, at
	}
	file := func(m *Cache[uint64, uint64]) []byte {
		var b bytes.Buffer
		must(t, snapshot.Cache(m).Save(ctx, &b))
		return b.Bytes()
	}
	from, at := cacheOf(Options{Policy: LFU, Lives: true}, 0)
	must(t, from.InsertFor([]uint64{1, 2, 3}, []uint64{1, 2, 3}, []time.Duration{0, 2 * time.Second, time.Minute}))
	*at = time.Second
	saved := file(from)
	alive := func(m *Cache[uint64, uint64], want ...bool) {
		t.Helper()
		found := make([]bool, 3)
		must(t, m.FindQuiet([]uint64{1, 2, 3}, nil, found))
		if !slices.Equal(found, want) {
			t.Errorf("found %v, want %v", found, want)
		}
	}
	for _, p := range []Policy{LFU, Aged} {
		m, at := cacheOf(Options{Policy: p, Lives: true}, 1500*time.Millisecond) // half a second later
		must(t, snapshot.Cache(m).Load(ctx, bytes.NewReader(saved)))
		must(t, m.Check())
		alive(m, true, true, true)
		*at = 500*time.Millisecond + time.Second/8
		alive(m, true, false, true)
	}
	m, _ := cacheOf(Options{Policy: LFU, TimeToLive: time.Hour}, 30*time.Second)
	must(t, snapshot.Cache(m).Load(ctx, bytes.NewReader(saved)))
	alive(m, true, false, true)
	earlier, _ := cacheOf(Options{Policy: LFU, Lives: true}, -time.Hour) // by a clock that is wrong
	must(t, snapshot.Cache(earlier).Load(ctx, bytes.NewReader(saved)))
	alive(earlier, true, true, true)

	o, err := Options{Bytes: 5}.For(from.Saved())
	if err != nil || o.Policy != LFU || !o.Lives || o.Bytes != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := (Options{}).For(Saved{Policy: "best"}); err == nil {
		t.Error("there is a policy best")
	}
	for want, o := range map[string]Options{
		`"lfu" mean nothing to one with "lru"`:    {Lives: true},
		`"lfu" mean nothing to one with "scored"`: {Policy: Scored, Lives: true},
		"pairs that end":                          {Policy: LFU},
	} {
		m, _ := cacheOf(o, 0)
		must(t, m.Insert([]uint64{9}, []uint64{9}))
		must(t, m.Clear())
		if err := snapshot.Cache(m).Load(ctx, bytes.NewReader(saved)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
		if n, err := m.Len(); n > 0 || err != nil {
			t.Errorf("%+v: %d pairs, %v", o, n, err)
		}
	}
	must(t, m.Close())
	if err := m.Restore(nil, nil, Saved{}); !errors.Is(err, table.ErrClosed) {
		t.Errorf("Restore of a closed cache: %v", err)
	}
}

// stranger writes what it likes as the file of a cache.
type stranger struct {
	*Cache[uint64, uint64]
	saved   any
	records []Record[uint64]
}

func (s stranger) Saved() any                                    { return s.saved }
func (s stranger) Len() (int, error)                             { return len(s.records), nil }
func (s stranger) Restore([]uint64, []Record[uint64], any) error { return nil }
func (s stranger) Records(_ context.Context, _ any, do func([]uint64, []Record[uint64]) error) error {
	keys := make([]uint64, len(s.records))
	for i := range keys {
		keys[i] = uint64(i % 7)
	}
	return do(keys, s.records)
}

// A file that no cache wrote, or that is damaged, leaves no cache behind that is not as Check wants it, and no pair after
// an error; files from before caches told of themselves are read.
func TestSnapshotsOfStrangers(t *testing.T) {
	d, ctx := open(t, "cpu"), context.Background()
	extremes := []uint32{0, 1, mostCount, mostCount + 1, 1<<32 - 1}
	var records []Record[uint64]
	for _, score := range extremes {
		for _, left := range extremes {
			records = append(records, Record[uint64]{1, score, left})
		}
	}
	for _, p := range []Policy{LRU, LFU, Aged, Scored} {
		m, err := New[uint64, uint64](d, Options{Capacity: 12, Policy: p, Lives: true})
		must(t, err)
		defer m.Close()
		for _, c := range []struct {
			saved any
			good  bool
		}{
			{m.Saved(), true}, {map[string]any{"lives": true, "time": "0001-01-01T00:00:00Z"}, true}, {nil, true},
			{map[string]any{"policy": p.String(), "lives": true, "time": "9999-12-31T00:00:00Z"}, true},
			{map[string]any{"policy": p.String(), "lives": true, "time": "1970-01-01T00:00:00Z"}, true},
			{map[string]any{"policy": "best"}, false}, {map[string]any{"policy": 7}, false}, {[]int{1}, false},
			{map[string]any{"time": "yesterday"}, false},
		} {
			must(t, m.Clear())
			var b bytes.Buffer
			must(t, snapshot.Cache(stranger{m, c.saved, records}).Save(ctx, &b))
			err := snapshot.Cache(m).Load(ctx, bytes.NewReader(b.Bytes()))
			if (err == nil) != c.good {
				t.Errorf("%v, %v: %v", p, c.saved, err)
			}
			must(t, m.Check())
			must(t, m.Insert([]uint64{1, 100}, []uint64{1, 100}))
			must(t, m.Check())
		}
	}
	m, err := New[uint64, uint64](d, Options{Capacity: 240})
	must(t, err)
	defer m.Close()
	must(t, m.Insert([]uint64{1, 2, 3}, []uint64{1, 2, 3}))
	var b bytes.Buffer
	must(t, snapshot.Cache(m).Save(ctx, &b))
	other, err := New[uint64, uint64](d, Options{Capacity: 240})
	must(t, err)
	defer other.Close()
	for i := range b.Len() { // a bit in each byte
		file := bytes.Clone(b.Bytes())
		file[i] ^= 1 << (i % 8)
		err := snapshot.Cache(other).Load(ctx, bytes.NewReader(file))
		if n, e := other.Len(); err == nil || n > 0 || e != nil {
			t.Fatalf("byte %d is damaged: %v, and %d pairs are in, %v", i, err, n, e)
		}
		if err := snapshot.Cache(other).Load(ctx, bytes.NewReader(b.Bytes()[:i])); err == nil {
			t.Fatalf("cut off behind byte %d, it is taken", i)
		}
	}
}

// FuzzSnapshot loads files whose checksums are right, of caches that say anything and records of any numbers: what is
// loaded is a cache as Check wants it, and what is not leaves nothing.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"policy":"lru"}`), uint8(0), make([]byte, 16*30))
	f.Add([]byte(`{"policy":"aged","lives":true,"time":"2026-11-26T15:00:00Z"}`), uint8(1), bytes.Repeat([]byte{255}, 16*30))
	f.Add([]byte(`{"policy":"scored","lives":true,"time":"0000-01-01T00:00:00Z"} `), uint8(3), bytes.Repeat([]byte{1}, 16*3))
	f.Add([]byte(`[{"policy":null}]`), uint8(2), []byte(nil))
	d, err := device.Open("cpu")
	must(f, err)
	f.Cleanup(func() { must(f, d.Close()) })
	var all []*Cache[uint64, uint64]
	for _, p := range policies {
		m, err := New[uint64, uint64](d, Options{Capacity: 24, Policy: p, Lives: true, Seed: 1})
		must(f, err)
		f.Cleanup(func() { must(f, m.Close()) })
		all = append(all, m)
	}
	f.Fuzz(func(t *testing.T, said []byte, policy uint8, raw []byte) {
		testenv.Bounded(t, len(said)+len(raw), func() {
			m := all[int(policy)%len(all)]
			must(t, m.Clear())
			var records []Record[uint64]
			for ; len(raw) >= 16; raw = raw[16:] {
				records = append(records, Record[uint64]{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint32(raw[8:]),
					binary.LittleEndian.Uint32(raw[12:])})
			}
			var file bytes.Buffer
			from := stranger{m, json.RawMessage(said), records}
			if snapshot.Cache(from).Save(context.Background(), &file) != nil {
				return // no JSON
			}
			err := snapshot.Cache(m).Load(context.Background(), &file)
			n, wrong := m.Len()
			must(t, errors.Join(wrong, m.Check()))
			var saved Saved
			if json.Unmarshal(said, &saved) == nil {
				o, e := Options{Capacity: 24}.For(saved)
				if err == nil && (e != nil || saved.Policy != "" && o.Policy.String() != saved.Policy) {
					t.Errorf("it is loaded, and makes no cache: %+v, %v", o, e)
				}
			}
			if err != nil && n > 0 || n > len(records) || n > 7 { // keys of strangers are few
				t.Errorf("%d pairs of %d, %v", n, len(records), err)
			}
		})
	})
}

// Pairs that end while a cache is saved are not missed: the file has what was there when saving began.
func TestSaveWhilePairsEnd(t *testing.T) {
	d := open(t, "cpu")
	const n, tick = 200, time.Second / ticksPerSecond
	m, err := New[uint64, uint64](d, Options{Capacity: 4 * n, Lives: true, Seed: 1})
	must(t, err)
	defer m.Close()
	at := time.Duration(0)
	m.core.since = func() time.Duration { at += tick; return at } // each look at the clock takes a tick
	keys, lives := make([]uint64, n), make([]time.Duration, n)
	for i := range keys {
		keys[i], lives[i] = uint64(i), time.Duration(i+1)*tick
	}
	must(t, m.InsertFor(keys, keys, lives))
	for range 10 {
		var file bytes.Buffer
		must(t, snapshot.Cache(m).Save(context.Background(), &file))
		if n, err := m.Len(); n == 0 || err != nil {
			t.Fatalf("%d pairs, %v", n, err)
		}
	}
}
