package warpmap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	gomaps "maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// batchers runs a test with a Batcher over a map of each family.
func batchers(t *testing.T, o table.Options, b table.BatcherOptions, run func(*testing.T, *table.Batcher[uint32, uint32], table.Map[uint32, uint32])) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, family := range warpmap.Families(table.KindMap) {
			t.Run(name+"/"+string(family), func(t *testing.T) {
				d := open(t, name)
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				m, err := warpmap.New[uint32, uint32](d, family, o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				x, err := table.NewBatcher(m, b)
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				run(t, x, m)
			})
		}
	}
}

// Goroutines with keys of their own see their own changes, whatever others do meanwhile.
func TestBatcher(t *testing.T) {
	batchers(t, table.Options{}, table.BatcherOptions{Keys: 64}, func(t *testing.T, b *table.Batcher[uint32, uint32], m table.Map[uint32, uint32]) {
		const goroutines = 24
		models := make([]map[uint32]uint32, goroutines)
		var all sync.WaitGroup
		for g := range goroutines {
			models[g] = map[uint32]uint32{}
			all.Go(func() {
				if err := batcherStory(t.Context(), b, uint32(g), models[g]); err != nil {
					t.Errorf("goroutine %d: %v", g, err)
				}
			})
		}
		all.Wait()
		keys, values, err := m.All()
		if err != nil {
			t.Fatal(err)
		}
		got, want := map[uint32]uint32{}, map[uint32]uint32{}
		for i, k := range keys {
			got[k] = values[i]
		}
		for _, model := range models {
			gomaps.Copy(want, model)
		}
		if !gomaps.Equal(got, want) {
			t.Errorf("the table has %d pairs, and not the %d that were put", len(got), len(want))
		}
	})
}

// A cache has a Batcher as a map has one. This one has so much room that it lets nothing go.
func TestBatcherOfCache(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			c, err := warpmap.NewCache[uint32, uint32](open(t, name), warpmap.CacheOptions{Capacity: 4000, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			b, err := warpmap.NewBatcher(c, warpmap.BatcherOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			var all sync.WaitGroup
			for g := range uint32(4) {
				all.Go(func() {
					if err := batcherStory(t.Context(), b, g, map[uint32]uint32{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := c.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// batcherStory does requests of one key to more than a batch's, of keys that are the goroutine's own.
func batcherStory(ctx context.Context, b *table.Batcher[uint32, uint32], own uint32, model map[uint32]uint32) error {
	rng := rand.New(rand.NewPCG(uint64(own), 1))
	for step := range 40 {
		n := []int{0, 1, 1, 2, 9, 40, 150}[rng.IntN(7)]
		keys, values, flags := make([]uint32, n), make([]uint32, n), make([]bool, n)
		for i := range keys {
			keys[i] = uint32(rng.IntN(60))<<8 | own
			if rng.IntN(20) == 0 {
				keys[i] = ^keys[i] // those that layouts reserve are among them
			}
			values[i] = rng.Uint32()
		}
		switch rng.IntN(4) {
		case 0, 1:
			if n == 1 {
				if err := b.Put(ctx, keys[0], values[0]); err != nil {
					return err
				}
				model[keys[0]] = values[0]
				continue
			}
			for i, k := range keys { // equal keys have one value
				values[i] = k * uint32(step+1)
				model[k] = values[i]
			}
			if err := b.Insert(ctx, keys, values); err != nil {
				return err
			}
		case 2:
			want := map[uint32]bool{}
			for _, k := range keys {
				if _, in := model[k]; in {
					want[k] = true
				}
				delete(model, k)
			}
			if rng.IntN(2) == 0 {
				flags = nil
			}
			got, err := b.Delete(ctx, keys, flags)
			if err != nil || got != len(want) || flags != nil && frame.Count(flags) != got {
				return fmt.Errorf("step %d: Delete of %d keys takes %d away, want %d: %v", step, n, got, len(want), err)
			}
		case 3:
			if n == 1 {
				v, found, err := b.Get(ctx, keys[0])
				if want, in := model[keys[0]]; err != nil || found != in || v != want {
					return fmt.Errorf("step %d: key %#x has %d (%t), want %d (%t): %v", step, keys[0], v, found, want, in, err)
				}
				continue
			}
			if err := b.Find(ctx, keys, values, flags); err != nil {
				return err
			}
			for i, k := range keys {
				if want, in := model[k]; flags[i] != in || in && values[i] != want {
					return fmt.Errorf("step %d: key %#x has %d (%t), want %d (%t)", step, k, values[i], flags[i], want, in)
				}
			}
		}
	}
	return nil
}

// A full table names to each request its own positions that are not in.
func TestBatcherFull(t *testing.T) {
	batchers(t, table.Options{MaxBytes: 8 << 10}, table.BatcherOptions{Keys: 500, Launches: 3}, func(t *testing.T, b *table.Batcher[uint32, uint32], m table.Map[uint32, uint32]) {
		var all sync.WaitGroup
		var refused atomic.Int64
		for g := range 20 {
			all.Go(func() {
				for step := range 2 {
					keys, found := make([]uint32, 50), make([]bool, 50)
					for i := range keys {
						keys[i] = uint32(g*1000 + step*50 + i)
					}
					err := b.Insert(t.Context(), keys, make([]uint32, 50))
					full := &table.FullError{}
					if err != nil && !errors.As(err, &full) {
						t.Error(err)
						return
					}
					refused.Add(int64(len(full.Positions)))
					if err := b.Find(t.Context(), keys, nil, found); err != nil {
						t.Error(err)
					}
					for i, in := range found {
						if in == slices.Contains(full.Positions, i) {
							t.Errorf("goroutine %d: position %d is in: %t; refused are %v", g, i, in, full.Positions)
						}
					}
				}
			})
		}
		all.Wait()
		n, err := m.Len()
		if err != nil || n+int(refused.Load()) != 20*2*50 || refused.Load() == 0 {
			t.Errorf("%d pairs are in and %d are not, of %d: %v", n, refused.Load(), 20*2*50, err)
		}
	})
}

// slowMap is a map whose look-ups wait, fail or panic.
type slowMap struct {
	table.Map[uint32, uint64]
	find func(keys []uint32) error
}

func (m slowMap) Find(keys []uint32, values []uint64, found []bool) error { return m.find(keys) }

// Whoever waits is woken when the look-up fails or panics, when his context ends, and when the Batcher is closed.
func TestBatcherWakesAll(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	broken := errors.New("broken")
	entered, leave := make(chan int, 100), make(chan func() error, 100)
	b, err := table.NewBatcher(slowMap{find: func(keys []uint32) error { entered <- len(keys); return (<-leave)() }}, table.BatcherOptions{Launches: 1, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 100)
	ask := func(ctx context.Context, n int) {
		for range n {
			go func() { _, _, err := b.Get(ctx, 7); outcome <- err }()
		}
	}
	gather := func(n int, ok func(error) bool) {
		t.Helper()
		for range n {
			select {
			case err := <-outcome:
				if !ok(err) {
					t.Errorf("got %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("somebody waits for ever")
			}
		}
	}
	ask(t.Context(), 20)
	for got := 0; got < 20; got += <-entered {
		leave <- func() error { return broken }
	}
	gather(20, func(err error) bool { return errors.Is(err, broken) })

	ask(t.Context(), 5)
	for got := 0; got < 5; got += <-entered {
		leave <- func() error { panic("torn") }
	}
	gather(5, func(err error) bool { return err != nil && err.Error() == "table: a batch broke off: torn" })

	ctx, cancel := context.WithCancelCause(t.Context())
	ask(ctx, 5)
	<-entered
	cancel(broken)
	gather(5, func(err error) bool { return errors.Is(err, broken) })
	if _, _, err := b.Get(ctx, 1); !errors.Is(err, broken) {
		t.Errorf("after its context, Get gives %v", err)
	}

	ask(t.Context(), 5) // behind the one that is under way
	time.Sleep(10 * time.Millisecond)
	go func() { outcome <- b.Close() }()
	time.Sleep(10 * time.Millisecond)
	for range 10 {
		leave <- func() error { return nil }
	}
	gather(6, func(err error) bool { return err == nil || errors.Is(err, table.ErrClosed) })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"Insert": b.Insert(t.Context(), []uint32{1}, []uint64{1}), "Find of nothing": b.Find(t.Context(), nil, nil, nil),
		"many": b.Find(t.Context(), make([]uint32, 1<<16), nil, nil),
	} {
		if !errors.Is(err, table.ErrClosed) || err.Error() != "table: the Batcher is closed" {
			t.Errorf("after Close %s gives %v", what, err)
		}
	}
	if _, err := table.NewBatcher[uint32, uint64](nil, table.BatcherOptions{Keys: -1}); err == nil {
		t.Error("a batcher of -1 keys")
	}
	if err := b.Find(t.Context(), make([]uint32, 2), make([]uint64, 1), nil); err == nil {
		t.Error("two keys, one value")
	}
}

// pieceMap is a map on the host. insert is asked before pairs go in: it names positions that find no room, or another
// error, or panics.
type pieceMap struct {
	table.Map[uint32, uint64]
	mu     sync.Mutex
	in     map[uint32]uint64
	insert func(keys []uint32) (full []int, err error)
	find   func(keys []uint32) error
}

func (m *pieceMap) Insert(keys []uint32, values []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	full, err := m.insert(keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !slices.Contains(full, i) {
			m.in[k] = values[i]
		}
	}
	return frame.Full(full, len(m.in), len(m.in), table.ErrMaxBytes)
}

func (m *pieceMap) Find(keys []uint32, values []uint64, found []bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.find(keys); err != nil {
		return err
	}
	for i, k := range keys {
		values[i], found[i] = m.in[k]
	}
	return nil
}

func (m *pieceMap) Delete(keys []uint32, deleted []bool) (n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.find(keys); err != nil {
		return 0, err
	}
	for i, k := range keys {
		if _, deleted[i] = m.in[k]; deleted[i] {
			n++
		}
		delete(m.in, k)
	}
	return n, nil
}

// Where what was gathered goes in pieces, each request has what came of its own keys: no piece hides what came of
// another, whether it is full, fails or panics.
func TestBatcherPieces(t *testing.T) {
	broken := errors.New("broken")
	inserted := 0
	m := &pieceMap{in: map[uint32]uint64{}, insert: func(keys []uint32) (full []int, err error) {
		switch inserted++; inserted {
		case 2:
			return nil, broken
		case 4:
			panic("torn")
		}
		return []int{0}, nil
	}, find: func(keys []uint32) error {
		if slices.Contains(keys, 3) {
			return broken
		}
		return nil
	}}
	o := table.BatcherOptions{Keys: 8, Wait: 100 * time.Millisecond, Launches: 1}
	b, err := table.NewBatcher[uint32, uint64](m, o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n = 64
	each := func(do func(key uint32) error) (outcomes [n]error) {
		var all sync.WaitGroup
		for k := range uint32(n) {
			all.Go(func() { outcomes[k] = do(k) })
		}
		all.Wait()
		return outcomes
	}
	put := each(func(k uint32) error { return b.Put(t.Context(), k, uint64(k)) })
	in, full, failed, torn := 0, 0, 0, 0
	for k, err := range put {
		_, is := m.in[uint32(k)]
		var e *table.FullError
		switch {
		case is != (err == nil):
			t.Errorf("key %d is in: %t, and Put says %v", k, is, err)
		case is:
			in++
		case errors.As(err, &e):
			if full++; !slices.Equal(e.Positions, []int{0}) || !errors.Is(err, table.ErrMaxBytes) {
				t.Errorf("key %d: %v", k, err)
			}
		case errors.Is(err, broken):
			failed++
		case err.Error() == "table: a batch broke off: torn":
			torn++
		default:
			t.Errorf("key %d: %v", k, err)
		}
	}
	if in < n/2 || full < n/8-2 || failed < 1 || failed > 8 || torn < 1 || torn > 8 {
		t.Errorf("%d are in, %d found no room, %d and %d failed, in pieces of 8", in, full, failed, torn)
	}

	some := false
	for k, err := range each(func(k uint32) error {
		v, found, err := b.Get(t.Context(), k)
		if err == nil && (found != (put[k] == nil) || found && v != uint64(k)) {
			t.Errorf("key %d has %d (%t), and Put gave %v", k, v, found, put[k])
		}
		return err
	}) {
		some = some || err == nil
		if k == 3 && !errors.Is(err, broken) {
			t.Errorf("Get of key 3: %v", err)
		}
	}
	if !some {
		t.Error("one piece's error is that of all look-ups")
	}
	some = false
	for k, err := range each(func(k uint32) error {
		gone, err := b.Delete(t.Context(), []uint32{k}, nil)
		if err == nil && gone == 1 != (put[k] == nil) {
			t.Errorf("Delete of key %d takes %d away, and Put gave %v", k, gone, put[k])
		}
		return err
	}) {
		_, is := m.in[uint32(k)]
		if some = some || err == nil; err == nil && is || err != nil && is != (put[k] == nil) {
			t.Errorf("key %d is in: %t, and Delete says %v", k, is, err)
		}
	}
	if !some {
		t.Error("one piece's error is that of all deletions")
	}
}

// Look-ups of one key from a thousand goroutines: how many a second, and how long the slowest hundredth takes.
func BenchmarkBatcher(b *testing.B) {
	for _, name := range []string{"cpu", "cuda:0"} {
		b.Run(name, func(b *testing.B) {
			d, err := device.Open(name)
			testenv.Require(b, "cuda", err)
			defer d.Close()
			m, err := warpmap.New[uint64, uint64](d, warpmap.WarpCore, table.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			keys := make([]uint64, 1<<20)
			for i := range keys {
				keys[i] = uint64(i)
			}
			x, err := table.NewBatcher[uint64, uint64](m, table.BatcherOptions{})
			if err := errors.Join(err, m.Insert(keys, keys)); err != nil {
				b.Fatal(err)
			}
			defer x.Close()
			const goroutines = 1000
			took := make([][]time.Duration, goroutines)
			b.ResetTimer()
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					for range b.N/goroutines + 1 {
						k, since := rand.Uint64N(2<<20), time.Now()
						v, found, err := x.Get(context.Background(), k)
						took[g] = append(took[g], time.Since(since))
						if err != nil || found != (k < 1<<20) || found && v != k {
							b.Errorf("key %d has %d (%t): %v", k, v, found, err)
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			every := slices.Concat(took...)
			slices.Sort(every)
			b.ReportMetric(float64(len(every))/b.Elapsed().Seconds(), "look-ups/s")
			b.ReportMetric(float64(every[len(every)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// A server whose requests look up a key each: those that come at the same time go to the device together.
func Example_server() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	d, err := device.Open("cpu") // "auto" takes a GPU where there is one
	check(err)
	defer d.Close()
	stock, err := warpmap.New[uint64, uint32](d, warpmap.WarpCore, table.Options{})
	check(err)
	defer stock.Close()
	check(stock.Insert([]uint64{7, 8}, []uint32{120, 5}))
	b, err := table.NewBatcher(stock, table.BatcherOptions{})
	check(err)
	defer b.Close()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, err := strconv.ParseUint(r.FormValue("item"), 10, 64)
		if err != nil {
			http.Error(w, "which item?", http.StatusBadRequest)
			return
		}
		pieces, found, err := b.Get(r.Context(), item)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !found:
			http.NotFound(w, r)
		default:
			fmt.Fprintln(w, pieces)
		}
	}))
	defer server.Close()

	answer, err := http.Get(server.URL + "?item=7")
	check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	check(err)
	fmt.Print(string(body))
	// Output: 120
}
