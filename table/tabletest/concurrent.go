package tabletest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// streamsTest queues operations on three streams without waiting: they see one another in the order of the calls.
func streamsTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	const n, rounds = 3000, 12
	s := newSubject(t, d, newMap, table.Options{Capacity: 4 * n}, 1)
	next := uint64(0)
	bits := fresh[K](&next, n)
	keys := onDevice(t, d, KeysOf[K](bits))
	half := keys.Slice(0, n/2)
	var want [rounds][]uint32
	var values, out [rounds]device.Slice[V]
	var found [rounds]device.Slice[bool]
	stream := func(i int) *device.Stream { return s.streams[i%len(s.streams)] }
	for r := range rounds {
		want[r] = s.numbers(n)
		values[r] = onDevice(t, d, ValuesOf[V](want[r]))
		out[r] = onDevice(t, d, ValuesOf[V](s.numbers(n)))
		found[r] = onDevice(t, d, make([]bool, n))
	}
	must(t, d.Stream().Sync())
	for r := range rounds {
		must(t, s.m.InsertOn(stream(r), keys, values[r]))
		if r%3 == 1 {
			must(t, s.m.DeleteOn(stream(r+1), half, device.Slice[bool]{}))
		}
		if r%4 == 3 {
			must(t, s.m.Clear())
		}
		must(t, s.m.FindOn(stream(r+2), keys, out[r], found[r]))
	}
	for r := range rounds {
		got := host(t, stream(r+2), found[r])
		v := host(t, stream(r+2), out[r])
		for i := range bits {
			there := r%4 != 3 && !(r%3 == 1 && i < n/2)
			if got[i] != there {
				t.Fatalf("round %d, key %d: found %t, want %t", r, i, got[i], there)
			}
			if there && NumbersOf(t, v[i:i+1])[0] != want[r][i] {
				t.Fatalf("round %d, key %d: not the value of the round", r, i)
			}
		}
	}
	must(t, s.m.Check())
}

// goroutinesTest lets several goroutines work on one table, each on keys of its own, while others look at all of it.
func goroutinesTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for _, o := range []table.Options{{}, {MaxBytes: 8 << 10, LoadFactor: 1}} {
		whole := newSubject(t, d, newMap, o, 1)
		var parts [4]*subject[K, V]
		var workers, watchers sync.WaitGroup
		var done atomic.Bool
		for i := range parts {
			p := newSubject(t, d, newMap, o, uint64(i)) // for its streams and its model
			p.m, p.shared, parts[i] = keepOpen[K, V]{whole.m}, true, p
			next := uint64(i) * 10_000
			workers.Go(func() {
				for range 6 {
					keys := fresh[K](&next, 150)
					p.insert(keys, p.numbers(len(keys)))
					p.delete(keys[:50])
					p.insertNew(keys[25:75], p.numbers(50))
					p.find(keys)
				}
			})
		}
		for _, look := range []func() error{
			whole.m.Check,
			func() error { _, err := whole.m.Len(); return err },
			func() error { _, err := whole.m.Stats(); return err },
			func() error { _, _, err := whole.m.All(); return err },
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
			for k, v := range p.model {
				whole.model[k] = v
			}
		}
		whole.verify()
	}
}

// keepOpen is a table that is not its user's to close.
type keepOpen[K, V any] struct{ table.Map[K, V] }

func (keepOpen[K, V]) Close() error { return nil }

// closeTest closes a table in the middle of others' calls: each succeeds or says ErrClosed, and none hangs.
func closeTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for round := range 8 {
		m, err := newMap(d, table.Options{})
		must(t, err)
		next := uint64(0)
		bits := fresh[K](&next, 2000)
		var wg sync.WaitGroup
		started := make(chan struct{})
		for g := range 4 {
			wg.Go(func() {
				keys, values := KeysOf[K](bits), unaligned(ValuesOf[V](make([]uint32, len(bits))))
				for i := 0; ; i++ {
					if g == 0 && i == 1+round%3 {
						close(started)
					}
					err := m.Insert(keys, values)
					if err == nil {
						err = m.Find(keys, values, nil)
					}
					if errors.Is(err, table.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		<-started
		must(t, m.Close())
		must(t, m.Close())
		wg.Wait()
	}
}

// wholeTest has many lanes write few keys in one batch: what stays is one of the values, whole.
func wholeTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	s := newSubject(t, d, newMap, table.Options{Capacity: 64}, 1)
	for range 5 {
		keys := keysBy(20_000, func(i int) uint64 { return (uint64(s.rng.IntN(8)) - 4) & keyMask[K]() })
		must(t, s.insert(keys, s.numbers(len(keys))))
		s.verify()
		must(t, s.insertNew(keys[:7], s.numbers(7)))
		s.find(keys)
	}
	if n, err := s.m.Len(); err != nil || n != 8 {
		t.Errorf("%d keys, %v", n, err)
	}
}

func keysBy(n int, f func(int) uint64) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// unaligned copies values to memory that is aligned for Go, and not for a load of the whole value.
func unaligned[V any](values []V) []V {
	var v V
	size := int(unsafe.Sizeof(v))
	if size != 16 || unsafe.Alignof(v) == 16 {
		return values
	}
	words := make([]uint64, 2*len(values)+2)
	from := 0
	if uintptr(unsafe.Pointer(&words[0]))%16 == 0 {
		from = 1
	}
	out := unsafe.Slice((*V)(unsafe.Pointer(&words[from])), len(values))
	copy(out, values)
	return out
}

// unalignedTest gives Go slices of 16-byte values at addresses that are multiples of 8.
func unalignedTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	s := newSubject(t, d, newMap, table.Options{}, 1)
	next := uint64(0)
	for _, n := range []int{1, 33, 5000} {
		keys, numbers := fresh[K](&next, n), s.numbers(n)
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
