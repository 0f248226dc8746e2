package tabletest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// order queues operations on three streams without waiting: they see one another in the order of the calls.
func (s *Suite) order(t testing.TB, d *device.Device) {
	const n, rounds = 3000, 12
	x := s.open(t, d, table.Options{Capacity: 4 * n}, 1)
	r := x.base()
	q := x.queue(r.fresh(new(uint64), n), rounds)
	stream := func(i int) *device.Stream { return r.streams[i%len(r.streams)] }
	dropped := func(i int) bool { return i%3 == 1 && q.drop != nil }
	must(t, d.Stream().Sync())
	for i := range rounds {
		must(t, q.put(stream(i), i))
		if dropped(i) {
			must(t, q.drop(stream(i+1)))
		}
		if i%4 == 3 {
			must(t, r.t.Clear())
		}
		must(t, q.look(stream(i+2), i))
	}
	for i := range rounds {
		for j, got := range host(t, stream(i+2), q.found[i]) {
			there := i%4 != 3 && !(dropped(i) && j < n/2)
			if got != there {
				t.Fatalf("round %d, key %d: found %t, want %t", i, j, got, there)
			}
			if there && q.value != nil {
				q.value(i, j)
			}
		}
	}
	must(t, r.t.Check())
}

// goroutines lets several goroutines work on one table, each on keys of its own, while others look at all of it.
func (s *Suite) goroutines(t testing.TB, d *device.Device) {
	all := []table.Options{{}, {MaxBytes: 8 << 10, LoadFactor: 1}}
	if !testenv.Long() {
		all = all[1:] // which grows, too, to its bound
	}
	for _, o := range all {
		whole := s.open(t, d, o, 1)
		w := whole.base()
		var parts [4]subject
		var workers, watchers sync.WaitGroup
		var done atomic.Bool
		rounds := 6
		if !testenv.Long() {
			rounds = 3 // 1,500 keys: one with MaxBytes is full by then
		}
		for i := range parts {
			x := whole.share(uint64(i))
			parts[i] = x
			next := uint64(i) * 10_000
			workers.Go(func() {
				for range rounds {
					keys := x.base().fresh(&next, 150)
					x.put(keys)
					x.drop(keys[:50])
					x.put(keys[25:75])
					x.ask(keys)
				}
			})
		}
		for _, look := range []func() error{
			w.t.Check,
			func() error { _, err := w.t.Len(); return err },
			func() error { _, err := w.t.Stats(); return err },
		} {
			watchers.Go(func() {
				for !done.Load() {
					if err := look(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
		done.Store(true)
		watchers.Wait()
		if t.Failed() {
			return
		}
		for _, p := range parts {
			for k, v := range p.base().model {
				w.model[k] = v
			}
		}
		whole.verify()
	}
}

// closeTest closes a table in the middle of others' calls: each succeeds or says ErrClosed, and none hangs.
func closeTest(t testing.TB, d *device.Device, it table.Table, newBatch maker, calls []call, round int) {
	var wg sync.WaitGroup
	started := make(chan struct{})
	start := sync.OnceFunc(func() { close(started) })
	for g := range 4 {
		b := newBatch(t, d, nil, 2000)
		b.values.host = unalignedBytes(b.values.host, b.values.size)
		wg.Go(func() {
			defer start() // after an error, too
			for i := 0; ; i++ {
				if g == 0 && i == 1+round%3 {
					start()
				}
				err := calls[0].run(b)
				if err == nil {
					err = calls[1+(g+i)%(len(calls)-1)].run(b)
				}
				if errors.Is(err, table.ErrClosed) {
					return
				}
				// Counts that were found are added again, and others change what is given out.
				if err != nil && !errors.Is(err, table.ErrOverflow) && !errors.Is(err, table.ErrChanged) {
					t.Error(err)
					return
				}
			}
		})
	}
	<-started
	must(t, it.Close())
	must(t, it.Close())
	wg.Wait()
}

// frees closes tables that have worked, on a device of their own: all memory comes back.
func (s *Suite) frees(t testing.TB, d *device.Device) {
	if d.Info().CUDA() {
		return // the same there: what is counted is what was asked for
	}
	own, err := device.Open("cpu", device.WithMemory(256<<20))
	must(t, err)
	t.Cleanup(func() { must(t, own.Close()) })
	free := func() int64 { n, _, err := own.Memory(); must(t, err); return n }
	must(t, s.try(own, table.Options{}))
	before := free()
	tables := uint64(3)
	if !testenv.Long() {
		tables = 1
	}
	for seed := range tables {
		x := s.open(t, own, table.Options{}, seed)
		r := x.base()
		next := uint64(0)
		for range 4 {
			keys := r.fresh(&next, 3000)
			x.put(keys)
			x.drop(keys[:100])
			x.ask(keys)
		}
		x.verify()
		must(t, r.t.Close())
		if after := free(); after != before {
			t.Errorf("%s of memory were free before the table was made, and %s are after Close", device.Bytes(before), device.Bytes(after))
		}
	}
}

// wholeTest has many lanes write few keys in one batch: what stays is one of the values, whole.
func wholeTest[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V]) {
	s := newMapSubject(t, d, newMap, table.Options{Capacity: 64}, 1)
	for range 5 {
		keys := make([]uint64, 20_000)
		for i := range keys {
			keys[i] = (uint64(s.rng.IntN(8)) - 4) & s.keyBits
		}
		must(t, s.insert(keys, s.numbers(len(keys))))
		s.verify()
		must(t, s.insertNew(keys[:7], s.numbers(7)))
		s.find(keys)
	}
	if n, err := s.m.Len(); err != nil || n != 8 {
		t.Errorf("%d keys, %v", n, err)
	}
}

// unaligned copies values to memory that is aligned for Go, and not for a load of the whole value.
func unaligned[V any](values []V) []V {
	size := int(unsafe.Sizeof(*new(V)))
	out := unalignedBytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*size), size)
	return unsafe.Slice((*V)(unsafe.Pointer(unsafe.SliceData(out))), len(values))
}

func unalignedBytes(values []byte, size int) []byte {
	if size != 16 {
		return values
	}
	words := make([]uint64, len(values)/8+2)
	from := 0
	if uintptr(unsafe.Pointer(&words[0]))%16 == 0 {
		from = 1
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(&words[from])), len(values))
	copy(out, values)
	return out
}

// unalignedTest gives Go slices of 16-byte values at addresses that are multiples of 8.
func unalignedTest[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V]) {
	s := newMapSubject(t, d, newMap, table.Options{}, 1)
	next := uint64(0)
	for _, n := range []int{1, 33, 5000} {
		keys, numbers := s.fresh(&next, n), s.numbers(n)
		must(t, s.m.Insert(KeysOf[K](keys), unaligned(ValuesOf[V](numbers))))
		for i, k := range keys {
			s.model[k] = numbers[i : i+1]
		}
		out := unaligned(ValuesOf[V](make([]uint32, n)))
		must(t, s.m.Find(KeysOf[K](keys), out, nil))
		for i, x := range NumbersOf(t, out) {
			if x != numbers[i] {
				t.Fatalf("position %d: %#x, want %#x", i, x, numbers[i])
			}
		}
		s.verify()
	}
}
