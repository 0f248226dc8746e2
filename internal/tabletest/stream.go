package tabletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// How tables give out what they hold: by chunks, and as files.

// exporter is a table that holds pairs.
type exporter[K, V any] interface {
	chunker[K, V]
	All() ([]K, []V, error)
}

// exported are all pairs, by All or by chunks.
func exported[K, V any](r *rig, from exporter[K, V]) (keys []K, values []V) {
	r.Helper()
	if r.coin() {
		keys, values, err := from.All()
		must(r, err)
		return keys, values
	}
	must(r, from.Chunks(context.Background(), func(k []K, v []V) error {
		keys, values = append(keys, k...), append(values, v...)
		return nil
	}))
	return keys, values
}

// exportedKeys is exported of a set.
func exportedKeys[K any](r *rig, from table.Set[K]) (keys []K) {
	r.Helper()
	if r.coin() {
		keys, err := from.All()
		must(r, err)
		return keys
	}
	must(r, from.Chunks(context.Background(), func(k []K) error { keys = append(keys, k...); return nil }))
	return keys
}

// chunker is every kind of table that holds pairs.
type chunker[K, V any] interface {
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}

func chunksOf[K, V any](from chunker[K, V]) func(ctx context.Context, do func(n int) error) error {
	return func(ctx context.Context, do func(n int) error) error {
		return from.Chunks(ctx, func(keys []K, values []V) error {
			if len(keys) != len(values) {
				return fmt.Errorf("a chunk of %d keys and %d values", len(keys), len(values))
			}
			return do(len(keys))
		})
	}
}

func (s *mapSubject[K, V]) chunks(ctx context.Context, do func(n int) error) error {
	return chunksOf(s.m)(ctx, do)
}
func (s *multiSubject[K, V]) chunks(ctx context.Context, do func(n int) error) error {
	return chunksOf(s.m)(ctx, do)
}
func (s *counterSubject[K, C]) chunks(ctx context.Context, do func(n int) error) error {
	return chunksOf(s.c)(ctx, do)
}
func (s *setSubject[K]) chunks(ctx context.Context, do func(n int) error) error {
	return s.s.Chunks(ctx, func(keys []K) error { return do(len(keys)) })
}
func (s *filterSubject[K]) chunks(ctx context.Context, do func(n int) error) error {
	return s.f.Words(ctx, func(words []uint64) error { return do(len(words)) })
}

func (s *mapSubject[K, V]) file() *snapshot.Table     { return snapshot.Map(s.m) }
func (s *multiSubject[K, V]) file() *snapshot.Table   { return snapshot.MultiMap(s.m) }
func (s *counterSubject[K, C]) file() *snapshot.Table { return snapshot.Counter(s.c) }
func (s *setSubject[K]) file() *snapshot.Table        { return snapshot.Set(s.s) }
func (s *filterSubject[K]) file() *snapshot.Table     { return snapshot.Filter(s.f.Filter) }

// chunks stops in the midst of a table, and changes it meanwhile.
func (s *Suite) chunks(t testing.TB, d *device.Device) {
	const n = 40_000 // several chunks of the CPU device's
	x := s.open(t, d, table.Options{Capacity: n}, 1)
	r := x.base()
	next := uint64(0)
	keys := r.fresh(&next, n)
	must(t, x.put(keys))
	all, calls := 0, 0
	must(t, x.chunks(context.Background(), func(n int) error {
		all, calls = all+n, calls+1
		x.ask(keys[:10])
		_, err := r.t.Stats()
		if calls == 1 || testenv.Long() {
			err = errors.Join(err, r.t.Check())
		}
		return err
	}))
	if !s.filter && s.unique && all != n {
		t.Errorf("chunks of %d elements in all, want %d", all, n)
	}
	stop := errors.New("stop")
	calls, all = 0, calls
	if err := x.chunks(context.Background(), func(int) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("stopped at the first chunk: %v, after %d", err, calls)
	}
	func() {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("a panic became %v", p)
			}
		}()
		err := x.chunks(context.Background(), func(int) error { panic("broken") })
		t.Errorf("a panic is lost (%v)", err)
	}()
	ctx, cancel := context.WithCancelCause(context.Background())
	calls = 0
	err := x.chunks(ctx, func(int) error { calls++; cancel(stop); return nil })
	if all > 1 && (!errors.Is(err, stop) || calls != 1) || all == 1 && err != nil {
		t.Errorf("canceled at the first chunk of %d: %v, after %d", all, err, calls)
	}
	if err := x.chunks(ctx, func(int) error { return errors.New("a chunk") }); !errors.Is(err, stop) {
		t.Errorf("canceled before: %v", err)
	}
	if all < 3 {
		return // the next chunk may be there before the table changes
	}
	for what, change := range map[string]func(){
		"put":   func() { must(t, x.put(r.fresh(&next, 1))) },
		"grown": func() { r.grow(10) },
	} {
		if err := x.chunks(context.Background(), func(int) error { change(); return nil }); !errors.Is(err, table.ErrChanged) {
			t.Errorf("%s meanwhile: %v, want %v", what, err, table.ErrChanged)
		}
	}
	x.verify()
	if err := x.chunks(context.Background(), func(int) error { return r.t.Close() }); !errors.Is(err, table.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
}

// saved saves tables, and loads others of other options, also what is damaged.
func (s *Suite) saved(t testing.TB, d *device.Device) {
	ctx := context.Background()
	save := func(x subject) []byte {
		var b bytes.Buffer
		must(t, x.file().Save(ctx, &b))
		return b.Bytes()
	}
	first := table.Options{Capacity: 700, Seed: 11}
	x := s.open(t, d, first, 1)
	r := x.base()
	empty := save(x)
	for range 3 {
		must(t, x.put(append(r.batch(900), r.keyBits, r.keyBits-1, 0)))
	}
	x.verify()
	whole := save(x)
	others := []table.Options{{}, {Capacity: 5000, LoadFactor: 0.5, Seed: 7}}
	if s.filter {
		others = []table.Options{first}
		y := s.open(t, d, table.Options{Capacity: 700, Seed: 12}, 1)
		if err := y.file().Load(ctx, bytes.NewReader(whole)); err == nil {
			t.Error("a filter of another seed was loaded")
		}
		y.verify()
	}
	for i, o := range others {
		y := s.open(t, d, o, uint64(i))
		must(t, y.file().Load(ctx, bytes.NewReader(empty)))
		y.verify()
		must(t, y.file().Load(ctx, io.MultiReader(bytes.NewReader(whole)))) // of unknown length
		y.base().model = maps.Clone(r.model)
		y.verify()
		y.ask(r.keys())
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-20] ^= 1
		for _, file := range [][]byte{whole, empty, damaged} {
			if err := y.file().Load(ctx, bytes.NewReader(file)); err == nil {
				t.Error("a table was loaded that is not empty")
			}
			y.verify() // it is as it was
			y.ask(r.keys())
		}
	}
	y := s.open(t, d, others[0], 5)
	bad := func(what string, file []byte) {
		t.Helper()
		if err := y.file().Load(ctx, bytes.NewReader(file)); err == nil {
			t.Errorf("%s was loaded", what)
		}
		y.verify() // it is empty
	}
	for range testenv.Seeds(8) {
		i, bit := r.rng.IntN(len(whole)), r.rng.IntN(8)
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << bit
		bad(fmt.Sprintf("a file with bit %d of byte %d changed", bit, i), damaged)
		bad(fmt.Sprintf("a file of %d bytes, cut after %d", len(whole), i), whole[:i])
	}
	bad("a file with a byte more", append(bytes.Clone(whole), 0))
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if err := y.file().Load(stopped, bytes.NewReader(whole)); !errors.Is(err, context.Canceled) {
		t.Errorf("loading was canceled: %v", err)
	}
	if err := x.file().Save(stopped, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("saving was canceled: %v", err)
	}
	y.verify()
	s.savedLarge(t, d)
}

// savedLarge loads a table into one that has no room for it.
func (s *Suite) savedLarge(t testing.TB, d *device.Device) {
	if s.filter {
		return
	}
	x := s.open(t, d, table.Options{}, 1)
	must(t, x.put(x.base().fresh(new(uint64), 6000)))
	var b bytes.Buffer
	must(t, x.file().Save(context.Background(), &b))
	y := s.open(t, d, table.Options{MaxBytes: 8 << 10}, 1)
	if err := y.file().Load(context.Background(), &b); !errors.As(err, new(*table.FullError)) {
		t.Errorf("a table of 8 KiB was loaded with 6000 entries: %v", err)
	}
	y.verify()
}
