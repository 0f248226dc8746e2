package cache

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/table"
)

var errStore = errors.New("no store")

// shop is a slow store whose values only grow. It tells what may not be: a value that comes behind a newer one, and two
// calls of Store at once.
type shop struct {
	mu      sync.Mutex
	pairs   map[uint64]uint64
	fails   func() error // before each call of Store; nil: none
	calls   int
	storing int
	wrong   []string
}

func (s *shop) source() Source[uint64, uint64] {
	return Source[uint64, uint64]{
		Fetch: func(_ context.Context, keys, values []uint64, found []bool) error {
			s.mu.Lock()
			for i, k := range keys {
				values[i], found[i] = s.pairs[k], s.pairs[k] != 0
			}
			s.mu.Unlock()
			runtime.Gosched() // what was read may be old by now
			return nil
		},
		Store: func(_ context.Context, keys, values []uint64) error {
			s.mu.Lock()
			s.calls++
			if s.storing++; s.storing > 1 {
				s.wrong = append(s.wrong, "two calls of Store at once")
			}
			fails := s.fails
			s.mu.Unlock()
			var err error
			if fails != nil {
				err = fails()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.storing--
			for i, k := range keys {
				if values[i] < s.pairs[k] {
					s.wrong = append(s.wrong, "an older value comes behind a newer one")
				}
				if err == nil || i%2 == 0 { // a store that fails may have done some
					s.pairs[k] = values[i]
				}
			}
			return err
		},
	}
}

func (s *shop) has(k uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pairs[k]
}

// failing sets what becomes of each call of Store from now on.
func (s *shop) failing(fails func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

func behindOf(t *testing.T, s *shop, o Options, b Behind) *Tiered[uint64, uint64] {
	s.pairs = map[uint64]uint64{}
	m, err := New[uint64, uint64](open(t, "cpu"), o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	x, err := NewTieredBehind(m, s.source(), b)
	must(t, err)
	t.Cleanup(func() {
		s.failing(nil)
		must(t, x.Close(context.Background()))
		for _, wrong := range s.wrong {
			t.Error(wrong)
		}
	})
	return x
}

// soon waits until something holds.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: not %s", what)
		}
	}
}

// Goroutines put and get through a cache that is far too small, before a store that fails every third time: nobody sees
// an older value behind a newer one, each sees its own Puts, and in the end the store has all.
func TestBehindIsItsStore(t *testing.T) {
	const writers, each, rounds = 4, 20, 40
	for seed, keys := range []int{each, 100, 1 << 16} { // that may wait
		var s shop
		x := behindOf(t, &s, Options{Capacity: 24, Seed: 1}, Behind{Keys: keys, Wait: time.Millisecond})
		n := 0
		s.failing(func() error { // one call runs at a time
			runtime.Gosched()
			if n++; n%3 == 0 {
				return errStore
			}
			return nil
		})
		ctx := context.Background()
		var work sync.WaitGroup
		last := make([][each]uint64, writers)
		for g := range uint64(writers) {
			work.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(seed), g))
				seen := map[uint64]uint64{}
				for i := range uint64(rounds) {
					var ks, vs []uint64
					for j := rng.Uint64N(each); j < each; j += 1 + rng.Uint64N(4) {
						ks, vs = append(ks, g*each+j), append(vs, i+1)
					}
					err := x.Put(ctx, ks, vs)
					for ; errors.Is(err, errStore); err = x.Put(ctx, ks, vs) {
					}
					if err != nil {
						t.Error(err)
						return
					}
					for _, k := range ks {
						last[g][k-g*each], seen[k] = i+1, i+1
					}
					if i%8 == 0 {
						if err := x.Flush(ctx); err != nil && !errors.Is(err, errStore) {
							t.Error(err)
						}
					}
					first := rng.Uint64N(writers * each / 2) // of all writers
					asked, got, found := make([]uint64, each), make([]uint64, each), make([]bool, each)
					for j := range asked {
						asked[j] = first + 2*uint64(j)
					}
					if err := x.Get(ctx, asked, got, found); err != nil {
						t.Error(err)
						return
					}
					for j, k := range asked {
						if own := k/each == g; got[j] < seen[k] || own && got[j] != seen[k] || found[j] != (got[j] > 0) {
							t.Errorf("key %d is %d, and was %d before", k, got[j], seen[k])
						}
						seen[k] = got[j]
					}
				}
			})
		}
		work.Wait()
		s.failing(nil)
		must(t, x.Flush(ctx))
		for g := range last {
			for j, v := range last[g] {
				if k := uint64(g*each + j); s.has(k) != v {
					t.Errorf("%d keys may wait: the store has %d of key %d, and %d was put", keys, s.has(k), k, v)
				}
			}
		}
		if n := len(x.behind.waiting) + len(x.behind.flying) + len(x.flights); n > 0 {
			t.Errorf("%d keys wait or fly in the end", n)
		}
	}
}

// Pairs are written when they have waited, when they are many, at Flush and at Close, and not before; a look-up finds
// what waits, also when the cache has lost it.
func TestBehindWritesInTime(t *testing.T) {
	ctx := context.Background()
	var s shop
	x := behindOf(t, &s, Options{Capacity: 24}, Behind{Keys: 100, Wait: time.Hour})
	put := func(from, n uint64) {
		t.Helper()
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = from + uint64(i)
		}
		must(t, x.Put(ctx, keys, keys))
	}
	put(1, 10)
	put(1, 10)
	_, err := x.Cache.Delete([]uint64{1, 2}, nil)
	must(t, err)
	got, found := make([]uint64, 3), make([]bool, 3)
	must(t, x.Get(ctx, []uint64{1, 2, 1000}, got, found))
	if s.calls > 0 || !slices.Equal(got, []uint64{1, 2, 0}) || found[2] {
		t.Errorf("%d calls of Store; what waits is %v, %v", s.calls, got, found)
	}
	must(t, x.Flush(ctx))
	if s.calls != 1 || s.has(1) != 1 || s.has(10) != 10 {
		t.Errorf("%d calls of Store, and it has %d", s.calls, s.has(10))
	}
	must(t, x.Flush(ctx))
	put(11, 60) // more than half of what may wait
	soon(t, "written when many wait", func() bool { return s.has(70) == 70 })
	put(100, 350) // more than may wait at all
	must(t, x.Close(ctx))
	if s.has(449) != 449 || s.has(100) != 100 {
		t.Errorf("the store has %d of the last key", s.has(449))
	}
	if err := x.Put(ctx, []uint64{1}, []uint64{5}); !errors.Is(err, table.ErrClosed) {
		t.Errorf("Put behind Close: %v", err)
	}
	must(t, errors.Join(x.Get(ctx, []uint64{449, 1, 2}, got, nil), x.Close(ctx)))
	if got[0] != 449 {
		t.Errorf("behind Close a look-up gives %d", got[0])
	}

	var soonest shop
	y := behindOf(t, &soonest, Options{Capacity: 24}, Behind{Wait: time.Millisecond})
	must(t, y.Put(ctx, []uint64{7}, []uint64{70}))
	soon(t, "written in time", func() bool { return soonest.has(7) == 70 })

	through := tiered(t, &store{}, Options{Capacity: 24})
	must(t, errors.Join(through.Flush(ctx), through.Close(ctx), through.Put(ctx, []uint64{1}, []uint64{1})))
	_, e1 := NewTieredBehind(x.Cache, Source[uint64, uint64]{Fetch: s.source().Fetch}, Behind{})
	_, e2 := NewTieredBehind(x.Cache, s.source(), Behind{Keys: -1})
	_, e3 := NewTieredBehind[uint64, uint64](nil, s.source(), Behind{})
	if e1 == nil || e2 == nil || e3 == nil {
		t.Error("a Tiered is made that cannot write behind")
	}
}

// A store that fails loses nothing. Its error is told once, by the next call, and a Put that tells it puts nothing. Once
// the pairs are written, nobody tells it any more.
func TestBehindErrors(t *testing.T) {
	ctx := context.Background()
	var s shop
	x := behindOf(t, &s, Options{Capacity: 24}, Behind{Keys: 4, Wait: time.Hour})
	s.failing(func() error { return errStore })
	failed := func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.behind.failed != nil
	}
	value := func(k uint64) uint64 {
		t.Helper()
		v := make([]uint64, 1)
		_, err := x.Cache.Delete([]uint64{k}, nil)
		must(t, errors.Join(err, x.Get(ctx, []uint64{k}, v, nil)))
		return v[0]
	}
	must(t, x.Put(ctx, []uint64{1, 2}, []uint64{10, 20}))
	soon(t, "told", failed)
	if err := x.Put(ctx, []uint64{1, 3}, []uint64{11, 30}); !errors.Is(err, errStore) {
		t.Errorf("Put behind a write that failed: %v", err)
	}
	if value(1) != 10 || value(2) != 20 || value(3) != 0 {
		t.Errorf("keys 1 to 3 are %d, %d, %d", value(1), value(2), value(3))
	}
	must(t, x.Put(ctx, []uint64{1, 3}, []uint64{11, 30})) // told once: there is room for these
	if err := x.Put(ctx, []uint64{5, 6}, []uint64{50, 60}); !errors.Is(err, errStore) {
		t.Errorf("Put without room: %v", err)
	}
	if err := x.Flush(ctx); !errors.Is(err, errStore) {
		t.Errorf("Flush: %v", err)
	}
	if value(1) != 11 || value(2) != 20 || value(3) != 30 || value(5) != 0 {
		t.Errorf("keys 1 to 3 and 5 are %d, %d, %d, %d", value(1), value(2), value(3), value(5))
	}
	if err := x.Close(ctx); !errors.Is(err, errStore) {
		t.Errorf("Close: %v", err)
	}
	s.failing(nil)
	must(t, x.Close(ctx))
	if s.has(1) != 11 || s.has(2) != 20 || s.has(3) != 30 || s.has(5) != 0 {
		t.Errorf("the store has %v", s.pairs)
	}

	var again shop
	y := behindOf(t, &again, Options{Capacity: 24}, Behind{Keys: 4, Wait: time.Millisecond})
	n := 0
	again.failing(func() error {
		if n++; n < 3 {
			return errStore
		}
		return nil
	})
	must(t, y.Put(ctx, []uint64{1, 2}, []uint64{10, 20}))
	soon(t, "written at the third try", func() bool { return again.has(1) == 10 && again.has(2) == 20 })
	must(t, y.Flush(ctx))

	var panics shop
	z := behindOf(t, &panics, Options{Capacity: 24}, Behind{Keys: 2, Wait: time.Millisecond})
	panics.failing(func() error { panics.failing(nil); panics.storing--; panic("what a store") })
	must(t, z.Put(ctx, []uint64{1}, []uint64{10}))
	soon(t, "written behind a panic", func() bool { return panics.has(1) == 10 })
}

// A Put waits for room as long as its context lasts, and Close for the store; nothing is lost by that.
func TestBehindWaits(t *testing.T) {
	var s shop
	x := behindOf(t, &s, Options{Capacity: 24}, Behind{Keys: 2, Wait: time.Hour})
	begun, end := make(chan struct{}, 9), make(chan struct{})
	s.failing(func() error { begun <- struct{}{}; <-end; return nil })
	ctx := context.Background()
	must(t, x.Put(ctx, []uint64{1, 2}, []uint64{10, 20}))
	<-begun
	short, stop := context.WithCancel(ctx)
	stop()
	if err := x.Put(short, []uint64{3}, []uint64{30}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put without room, whose context has ended: %v", err)
	}
	if err := x.Close(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	close(end)
	must(t, x.Close(ctx))
	if s.has(1) != 10 || s.has(2) != 20 || s.has(3) != 0 {
		t.Errorf("the store has %v", s.pairs)
	}
}

// Where as many pairs may wait as an int counts, one is not half of them, and waits.
func TestBehindOfAnyKeys(t *testing.T) {
	for _, keys := range []int{3, math.MaxInt - 1, math.MaxInt} {
		var s shop
		x := behindOf(t, &s, Options{Capacity: 24, Seed: 1}, Behind{Keys: keys, Wait: time.Hour})
		must(t, x.Put(context.Background(), []uint64{1}, []uint64{1}))
		now, _ := x.due()
		s.mu.Lock()
		if now || s.calls > 0 {
			t.Errorf("where %d pairs may wait, one is written at once", keys)
		}
		s.mu.Unlock()
	}
}

// Where the cache cannot take a pair, it is as if it had not been put.
func TestBehindPutThatTheCacheFails(t *testing.T) {
	var s shop
	x := behindOf(t, &s, Options{Capacity: 24}, Behind{Wait: time.Hour})
	ctx, d := context.Background(), x.Cache.core.frame.Device
	fail := func(site faults.Site) error {
		faults.Set(d, (&faults.Counter{Site: site, N: 1, Outcome: faults.Fails}).Order)
		defer faults.Set(d, nil)
		return x.Put(ctx, []uint64{1}, []uint64{11})
	}
	failed := fail(faults.Load) // of the first kernel, which leaves the cache whole
	got, found := make([]uint64, 1), make([]bool, 1)
	must(t, x.Get(ctx, []uint64{1}, got, found))
	if failed == nil || found[0] {
		t.Errorf("Put: %v; then Get gives %d", failed, got[0])
	}
	must(t, x.Put(ctx, []uint64{1}, []uint64{10}))
	if fail(faults.Launch) == nil { // which breaks the cache
		t.Error("Put to a cache that breaks: no error")
	}
	must(t, x.Flush(ctx))
	if s.has(1) != 10 {
		t.Errorf("the store has %d", s.has(1))
	}
}

// Who missed a key in the cache before another's fetch put it there, and asks behind that, finds it without a call of
// Fetch, also where landings were forgotten meanwhile.
func TestTieredFetchesOnce(t *testing.T) {
	var s store
	x := tiered(t, &s, Options{Capacity: 24})
	s.pairs[1] = 10
	ctx, got, found := context.Background(), make([]uint64, 2), make([]bool, 2)
	before := x.landed.n
	must(t, x.Get(ctx, []uint64{1}, got[:1], nil))
	for _, forget := range []bool{false, true} {
		if forget {
			for k := range uint64(mostLandings) {
				x.landed.add(k << 32)
			}
		}
		clear(got)
		left, err := x.known([]uint64{1, 2}, []int{0, 1}, got, found, before)
		must(t, err)
		if !slices.Equal(left, []int{1}) || got[0] != 10 || !found[0] || s.fetches != 1 {
			t.Errorf("%v are left, %v, %v, %d were fetched", left, got, found, s.fetches)
		}
	}
	if left, err := x.known([]uint64{1}, []int{0}, got, found, x.landed.n); err != nil || len(left) != 1 {
		t.Errorf("a key that nobody fetched since is taken for one: %v, %v", left, err)
	}
}
