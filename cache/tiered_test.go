package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/faults"
)

// store is a slow map, which counts the fetches of a key that run at once.
type store struct {
	mu      sync.Mutex
	pairs   map[uint64]uint64
	running map[uint64]int
	fetches int
	twice   bool
	fail    error
}

func (s *store) source() Source[uint64, uint64] {
	return Source[uint64, uint64]{
		Fetch: func(_ context.Context, keys, values []uint64, found []bool) error {
			s.mu.Lock()
			for i, k := range keys {
				s.fetches++
				s.running[k]++
				s.twice = s.twice || s.running[k] > 1
				values[i], found[i] = s.pairs[k], s.pairs[k] != 0
			}
			err := s.fail
			s.mu.Unlock()
			runtime.Gosched() // what was read may be old by now
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, k := range keys {
				s.running[k]--
			}
			return err
		},
		Store: func(_ context.Context, keys, values []uint64) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.fail != nil {
				return s.fail
			}
			for i, k := range keys {
				s.pairs[k] = values[i]
			}
			return nil
		},
	}
}

func tiered(t *testing.T, s *store, o Options) *Tiered[uint64, uint64] {
	s.pairs, s.running = map[uint64]uint64{}, map[uint64]int{}
	m, err := New[uint64, uint64](open(t, "cpu"), o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	x, err := NewTiered(m, s.source())
	must(t, err)
	return x
}

// Whatever many goroutines get and put, the cache has in the end what the store has, and nobody fetches a key that
// another is fetching.
func TestTieredIsItsStore(t *testing.T) {
	for seed := range uint64(4) {
		var s store
		x := tiered(t, &s, Options{Capacity: 24, Seed: 1})
		var work sync.WaitGroup
		for g := range uint64(8) {
			work.Go(func() {
				rng := rand.New(rand.NewPCG(seed, g))
				for i := range uint64(60) {
					first, n := rng.Uint64N(40), 1+rng.Uint64N(6)
					keys, values := make([]uint64, n), make([]uint64, n)
					for j := range keys {
						keys[j], values[j] = first+uint64(j), i<<8|g<<4|1
					}
					var err error
					if rng.IntN(3) == 0 {
						err = x.Put(context.Background(), keys, values)
					} else {
						err = x.Get(context.Background(), keys, values, nil)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		keys, values, err := x.Cache.All()
		must(t, err)
		for i, k := range keys {
			if values[i] != s.pairs[k] {
				t.Errorf("seed %d: key %d is %#x in the cache, and %#x in the store", seed, k, values[i], s.pairs[k])
			}
		}
		if s.twice || len(keys) == 0 || len(x.flights)+len(x.writers) > 0 {
			t.Errorf("seed %d: a key was fetched twice at once: %t; %d pairs; %d flights and %d writers are left",
				seed, s.twice,
				len(keys), len(x.flights), len(x.writers))
		}
	}
}

// A value that was fetched before its key was put does not go into the cache, and neither does one of two Puts at once.
func TestTieredKeepsNothingOld(t *testing.T) {
	var s store
	x := tiered(t, &s, Options{Capacity: 24})
	ctx := context.Background()
	must(t, x.Put(ctx, []uint64{1}, []uint64{10}))
	_, err := x.Cache.Delete([]uint64{1}, nil)
	must(t, err)
	fetch, store := x.source.Fetch, x.source.Store
	x.source.Fetch = func(ctx context.Context, keys, values []uint64, found []bool) error {
		err := fetch(ctx, keys, values, found)
		return errors.Join(err, x.Put(ctx, []uint64{1}, []uint64{11})) // another goroutine's, as far as x knows
	}
	got, found := make([]uint64, 2), make([]bool, 2)
	must(t, x.Get(ctx, []uint64{1, 2}, got, found))
	if got[0] != 10 || !found[0] || found[1] {
		t.Errorf("got %v, %v", got, found)
	}
	x.source.Fetch = fetch
	must(t, x.Get(ctx, []uint64{1, 1}, got, nil))
	if got[0] != 11 || got[1] != 11 {
		t.Errorf("then got %v", got)
	}
	once := true
	x.source.Store = func(ctx context.Context, keys, values []uint64) error {
		err := store(ctx, keys, values)
		if once {
			once = false
			err = errors.Join(err, x.Put(ctx, []uint64{1}, []uint64{13}))
		}
		return err
	}
	must(t, x.Put(ctx, []uint64{1}, []uint64{12}))
	must(t, x.Cache.Find([]uint64{1}, nil, found[:1]))
	if found[0] {
		t.Error("a key that two were putting is in the cache")
	}

	read, put := make(chan struct{}), make(chan struct{})
	x.source.Fetch = func(ctx context.Context, keys, values []uint64, found []bool) error {
		err := fetch(ctx, keys, values, found)
		close(read)
		<-put
		return err
	}
	var work sync.WaitGroup
	x.source.Store = func(ctx context.Context, keys, values []uint64) error {
		work.Go(func() {
			if err := x.Get(ctx, []uint64{1}, make([]uint64, 1), nil); err != nil {
				t.Error(err)
			}
		})
		<-read // what is old, while the key is being put
		return store(ctx, keys, values)
	}
	must(t, x.Put(ctx, []uint64{1}, []uint64{14}))
	close(put)
	work.Wait()
	must(t, x.Cache.Find([]uint64{1}, got[:1], found[:1]))
	if found[0] && got[0] != 14 {
		t.Errorf("a value that was fetched while its key was put is in the cache: %d", got[0])
	}
}

// Errors of the store come to who asked, and leave nothing behind; who waits for another's call that failed, tries
// himself.
func TestTieredErrors(t *testing.T) {
	var s store
	x := tiered(t, &s, Options{Capacity: 24})
	ctx := context.Background()
	must(t, x.Put(ctx, []uint64{1}, []uint64{10}))
	s.fail = errors.New("no store")
	if err := x.Put(ctx, []uint64{1}, []uint64{11}); !errors.Is(err, s.fail) {
		t.Errorf("Put: %v", err)
	}
	if err := x.Get(ctx, []uint64{1}, make([]uint64, 1), nil); !errors.Is(err, s.fail) {
		t.Errorf("Get: %v", err) // Put has taken the key out of the cache
	}
	s.fail = nil
	if x.Put(ctx, []uint64{1, 1}, []uint64{1, 2}) == nil || x.Put(ctx, []uint64{1}, nil) == nil || x.Get(ctx,
		[]uint64{1}, nil, nil) == nil {
		t.Error("bad input is taken")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := x.Get(ended, []uint64{1}, make([]uint64, 1), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Get of a context that has ended: %v", err)
	}

	fetch, begun, go_ := x.source.Fetch, make(chan struct{}), make(chan struct{})
	first := true
	var mu sync.Mutex
	x.source.Fetch = func(ctx context.Context, keys, values []uint64, found []bool) error {
		mu.Lock()
		fails := first
		first = false
		mu.Unlock()
		if fails {
			close(begun)
			<-go_
			return errors.New("mine alone")
		}
		return fetch(ctx, keys, values, found)
	}
	var work sync.WaitGroup
	work.Go(func() {
		if x.Get(ctx, []uint64{1}, make([]uint64, 1), nil) == nil {
			t.Error("its own call failed, and it does not say so")
		}
	})
	<-begun
	work.Go(func() {
		got := make([]uint64, 1)
		if err := x.Get(ctx, []uint64{1}, got, nil); err != nil || got[0] != 10 {
			t.Errorf("another's call failed: %v, %v", got, err)
		}
	})
	time.Sleep(time.Millisecond) // mostly it waits by then; it need not
	close(go_)
	work.Wait()

	x.source.Fetch = func(context.Context, []uint64, []uint64, []bool) error { panic("what a store") }
	func() {
		defer func() { _ = recover() }()
		_, err := x.Cache.Delete([]uint64{1}, nil)
		must(t, err)
		x.Get(ctx, []uint64{1}, make([]uint64, 1), nil)
	}()
	if len(x.flights) > 0 {
		t.Error("a flight is left by a panic")
	}
	_, e1 := NewTiered[uint64, uint64](nil, s.source())
	_, e2 := NewTiered(x.Cache, Source[uint64, uint64]{})
	x.source.Store = nil
	if e1 == nil || e2 == nil || x.Put(ctx, nil, nil) == nil {
		t.Error("half a tier is taken")
	}
}

// Who looks a key up behind a Put gets what was put, or something newer, though a look-up from before the Put is under
// way and the key has gone out meanwhile.
func TestTieredGivesNothingOlderThanAPut(t *testing.T) {
	var s store
	x := tiered(t, &s, Options{Capacity: 24})
	ctx := context.Background()
	s.pairs[1] = 10
	fetch, read, end := x.source.Fetch, make(chan struct{}), make(chan struct{})
	first := true
	x.source.Fetch = func(ctx context.Context, keys, values []uint64, found []bool) error {
		err := fetch(ctx, keys, values, found)
		if first {
			first = false
			close(read)
			<-end
		}
		return err
	}
	var work sync.WaitGroup
	work.Go(func() {
		if err := x.Get(ctx, []uint64{1}, make([]uint64, 1), nil); err != nil {
			t.Error(err)
		}
	})
	<-read
	must(t, x.Put(ctx, []uint64{1}, []uint64{11}))
	_, err := x.Cache.Delete([]uint64{1}, nil)
	must(t, err)
	got := make([]uint64, 2)
	work.Go(func() {
		if err := x.Get(ctx, []uint64{1, 1}, got, nil); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Millisecond) // mostly it waits for the other by then; it need not
	close(end)
	work.Wait()
	if got[0] != 11 || got[1] != 11 {
		t.Errorf("behind a Put of 11, a look-up gives %v", got)
	}
}

// Where the store has a pair and the cache cannot take it, the cache does not keep the value from before.
func TestTieredPutThatTheCacheFails(t *testing.T) {
	var s store
	x := tiered(t, &s, Options{Capacity: 24})
	ctx := context.Background()
	d := x.Cache.core.frame.Device
	must(t, x.Put(ctx, []uint64{1}, []uint64{10}))
	put := x.source.Store
	x.source.Store = func(ctx context.Context, keys, values []uint64) error {
		err := put(ctx, keys, values)
		faults.Set(d, (&faults.Counter{Site: faults.Load, N: 1, Outcome: faults.Fails}).Order)
		return err
	}
	failed := x.Put(ctx, []uint64{1}, []uint64{11})
	faults.Set(d, nil)
	got := make([]uint64, 1)
	must(t, x.Get(ctx, []uint64{1}, got, nil))
	if failed == nil || got[0] != 11 {
		t.Errorf("Put: %v; then Get gives %d", failed, got[0])
	}
}
