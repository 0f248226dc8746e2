package shard_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// calls counts the calls of a device at each site, and makes one of them fail.
type calls struct {
	mu    sync.Mutex
	site  faults.Site
	n     int64 // of the call that fails, from 1; 0 for none
	count [faults.Sites]int64
	syncs int // that came last, one after the other
}

func (c *calls) order(site faults.Site, _ int64) faults.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[site]++
	if c.syncs++; site != faults.Sync {
		c.syncs = 0
	}
	if site == c.site && c.count[site] == c.n {
		return faults.Fails
	}
	return faults.Passes
}

// watched calls do, counts its calls of devices, and makes the n-th at a site of device at fail.
func watched(devices []*device.Device, at int, site faults.Site, n int64, do func() error) ([]*calls, error) {
	counts := make([]*calls, len(devices))
	for i, d := range devices {
		counts[i] = &calls{site: site}
		if i == at {
			counts[i].n = n
		}
		faults.Set(d, counts[i].order)
	}
	defer func() {
		for _, d := range devices {
			faults.Set(d, nil)
		}
	}()
	return counts, do()
}

// waited fails a test if a device may still be at work: each of a member's three streams is waited for at the end.
func waited(t testing.TB, what string, counts []*calls) {
	t.Helper()
	for i, c := range counts {
		if c.syncs < 3 {
			t.Errorf("%s: device %d was waited for %d times at the end, want 3 or more", what, i, c.syncs)
		}
	}
}

// A panic of a table goes on to the caller when no device is at work any more: nothing writes to the caller's memory.
func TestPanicWaits(t *testing.T) {
	devices := several(t, "cpu", 3)
	n := 0
	m := breaking(t, devices, func() error {
		if n++; n == 2 {
			panic("made to order")
		}
		return nil
	})
	keys, values := batches([]int{20_000, 20_000, 20_000}, 2)
	in := parts(t, devices, keys, values)
	counts, err := watched(devices, -1, 0, 0, func() (err error) {
		defer func() { err = fmt.Errorf("%v", recover()) }()
		return m.InsertEach(in)
	})
	if err.Error() != "made to order" {
		t.Fatal(err)
	}
	waited(t, "panic", counts)
	must(t, m.InsertEach(in))
}

// A table whose code ends its goroutine has not done its part: that is an error.
func TestGoexit(t *testing.T) {
	devices := several(t, "cpu", 2)
	n := 0
	m := breaking(t, devices, func() error {
		if n++; n == 2 {
			runtime.Goexit()
		}
		return nil
	})
	keys, values := batches([]int{30_000, 30_000}, 2)
	in := parts(t, devices, keys, values)
	if err := ends(t, func() error { return m.InsertEach(in) }); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("%v, want an error", err)
	}
	must(t, m.InsertEach(in))
}

// failing is an operation of a table of which calls of devices fail.
type failing struct {
	make  func()       // makes the table, again if it is broken
	do    func() error // is the operation
	sound func() error // puts rows in, and says what is wrong with the table then
}

// failings are operations of maps and of a multimap over the devices.
func failings(t *testing.T, devices []*device.Device, o shard.Options) map[string]failing {
	sizes := []int{17_000, 100, 4097}
	keys, values := batches(sizes, 1)
	in, out := parts(t, devices, keys, values), parts(t, devices, keys, nil)
	k, v := slices.Concat(keys...), slices.Concat(values...)
	ops, status := make([]table.Op, len(k)), make([]table.Status, len(k))
	for i := range ops {
		ops[i] = table.Op(i % 4)
	}
	all := map[string]failing{}
	for name, do := range map[string]func(m *shard.Map[uint32, uint32]) error{
		"warpcore: InsertEach": func(m *shard.Map[uint32, uint32]) error { return m.InsertEach(in) },
		"warpcore: FindEach":   func(m *shard.Map[uint32, uint32]) error { return m.FindEach(out) },
		"warpcore: DeleteEach": func(m *shard.Map[uint32, uint32]) error { return m.DeleteEach(out) },
		"slab: Find": func(m *shard.Map[uint32, uint32]) error {
			return m.Find(k, make([]uint32, len(k)), make([]bool, len(k)))
		},
		"slab: Mixed": func(m *shard.Map[uint32, uint32]) error { return m.Mixed(ops, k, v, make([]uint32, len(k)), status) },
		"slab: FindOrInsert": func(m *shard.Map[uint32, uint32]) error {
			_, err := m.FindOrInsert(k, v, make([]uint32, len(k)), nil)
			return err
		},
	} {
		var m *shard.Map[uint32, uint32]
		family, _, _ := strings.Cut(name, ":")
		all[name] = failing{do: func() error { return do(m) }, make: func() {
			var err error
			m, err = shard.NewMap(devices, o, families[uint32, uint32]()[family])
			must(t, err)
			own := m
			t.Cleanup(func() { must(t, own.Close()) })
		}, sound: func() error {
			err := errors.Join(m.InsertEach(in), m.FindEach(out))
			for i, p := range out {
				if !slices.Equal(hostCopy(t, p.Values), values[i]) || frame.Count(hostCopy(t, p.Flags)) != sizes[i] {
					err = errors.Join(err, fmt.Errorf("device %d finds other values", i))
				}
			}
			return errors.Join(err, m.Check())
		}}
	}
	var m *shard.MultiMap[uint32, uint32]
	many := on(t, devices[1], k)
	all["FindAllOn"] = failing{do: func() error {
		offsets, got, err := m.FindAllOn(nil, many)
		return errors.Join(err, offsets.Free(), got.Free())
	}, make: func() {
		var err error
		m, err = shard.NewMultiMap(devices, o, multiMaps[uint32, uint32]()["slab"])
		must(t, errors.Join(err, m.InsertEach(in)))
		own := m
		t.Cleanup(func() { must(t, own.Close()) })
	}, sound: func() error {
		offsets, got, err := m.FindAllOn(nil, many)
		if err != nil {
			return err
		}
		for i, at := range hostOf(t, offsets) {
			if at != uint64(i) {
				return fmt.Errorf("key %d begins at %d", i, at)
			}
		}
		if !slices.Equal(hostOf(t, got), v) {
			return errors.New("other values are found")
		}
		return m.Check()
	}}
	return all
}

// Any call of any device may fail. Then the operation returns an error when no device is at work any more, and the next
// operations find the table in order.
func TestEachCallFails(t *testing.T) {
	routes := map[string]shard.Options{"peers": {Piece: 2048}, "boxed": {Piece: 2048, Copies: true},
		"regions": {Piece: 2048, Regions: 5}, "asked": {Piece: 2048, AskAll: 1 << 20}}
	for name, o := range routes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			devices := several(t, "cpu", 3)
			failed, turn := 0, 0
			for what, f := range failings(t, devices, o) {
				f.make()
				must(t, f.sound())
				all, err := watched(devices, -1, 0, 0, f.do)
				must(t, err)
				for at, c := range all {
					for site, most := range c.count {
						if turn++; !testenv.Long() && turn%11 != 0 { // other sites and devices for each operation
							continue
						}
						step := max(1, most/2)
						if testenv.Long() {
							step = max(1, most/12)
						}
						for n := 1 + most/5; n <= most; n += step {
							where := fmt.Sprintf("%s: device %d, %v %d of %d", what, at, faults.Site(site), n, most)
							counts, err := watched(devices, at, faults.Site(site), n, func() error { return ends(t, f.do) })
							if err == nil {
								continue // with memory that is short, rows go in smaller pieces
							}
							if !errors.As(err, new(*faults.Error)) {
								t.Fatalf("%s: %v", where, err)
							}
							failed++
							if call := (*device.CallError)(nil); errors.As(err, &call) && call.Broken {
								f.make() // a device's table broke off in the middle
							} else {
								waited(t, where, counts)
							}
							if wrong := f.sound(); wrong != nil {
								t.Fatalf("%s: %v; then %v", where, err, wrong)
							}
						}
					}
				}
			}
			if failed < 10 {
				t.Errorf("%d calls failed: the test tests nothing", failed)
			}
		})
	}
}

func hostCopy[T any](t testing.TB, s device.Slice[T]) []T {
	t.Helper()
	x, err := s.Host(nil)
	must(t, err)
	return x
}

// A part without rows needs no device, and there may be several.
func TestEmptyParts(t *testing.T) {
	devices := several(t, "cpu", 2)
	type part = shard.Part[uint32, uint32]
	k := on(t, devices[0], []uint32{3, 4, 5})
	m := pairs(t, devices, shard.Options{Mode: shard.Independent})
	must(t, m.InsertEach([]part{{}, {}}))
	must(t, m.InsertOn(nil, k.Slice(0, 0), k.Slice(0, 0)))
	must(t, m.Update([]uint32{9}, []uint32{1}, table.Add)) // no key is where it does not belong
	must(t, m.InsertEach([]part{{}, {Keys: k, Values: k}, {}}))
	if n, err := m.Len(); n != 4 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
	if err := m.InsertEach([]part{{}, {Values: k}}); err == nil || !strings.Contains(err.Error(), "0 keys") {
		t.Errorf("values without keys: %v", err)
	}
	multi, err := shard.NewMultiMap(devices, shard.Options{Options: table.Options{MaxBytes: 16 << 10}},
		multiMaps[uint32, uint32]()["slab"])
	must(t, err)
	many := on(t, devices[1], make([]uint32, 9000))
	full := (*table.FullError)(nil)
	if err := multi.InsertEach([]part{{}, {Keys: many, Values: many}, {Keys: k, Values: k}}); !errors.As(err, &full) {
		t.Fatal(err)
	}
	if n, err := multi.Len(); n+len(full.Positions) != 9003 || err != nil {
		t.Errorf("%d pairs are in, %d are named, of 9003; %v", n, len(full.Positions), err)
	}
	must(t, multi.Close())
}

// FindAll of Go slices takes fewer keys at once if the first device has no memory for all their values.
func TestFindAllWithLittleMemory(t *testing.T) {
	devices := []*device.Device{open(t, "cpu:0", device.WithMemory(16<<20)), open(t, "cpu:1"), open(t, "cpu:2")}
	m, err := shard.NewMultiMap(devices, shard.Options{}, multiMaps[uint32, uint32]()["slab"])
	must(t, err)
	defer func() { must(t, m.Close()) }()
	keys, _ := batches([]int{30_000}, 3)
	for i := range uint32(4) {
		must(t, m.Insert(keys[0], slices.Repeat([]uint32{i}, len(keys[0]))))
	}
	for _, left := range []int{1 << 20, 500 << 10} {
		free, _, err := devices[0].Memory()
		must(t, err)
		held, err := device.Make[byte](devices[0], int(free)-left)
		must(t, err)
		offsets, values, err := m.FindAll(keys[0])
		must(t, errors.Join(err, held.Free()))
		for i := range keys[0] {
			own := slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]]))
			if !slices.Equal(own, []uint32{0, 1, 2, 3}) {
				t.Fatalf("%d KiB: key %d has %d", left>>10, i, own)
			}
		}
	}
}

// A table that could not grow for want of memory has grown since: FullError of another device counts its slots now.
func TestCapacityNow(t *testing.T) {
	devices := several(t, "cpu", 2)
	m, err := shard.NewMap(devices, shard.Options{Mode: shard.Independent}, families[uint32, uint32]()["slab"])
	must(t, err)
	defer func() { must(t, m.Close()) }()
	keys, values := batches([]int{20_000, 20_000}, 7)
	insert := func(at int, short bool) (full *table.FullError) {
		in := parts(t, devices[at:at+1], keys[at:at+1], values[at:at+1])
		if short {
			faults.Set(devices[at], faults.OfMemory(func(int64) bool { return true }))
			defer faults.Set(devices[at], nil)
		}
		err := m.InsertEach(in)
		if errors.As(err, &full) != short {
			t.Fatal(err)
		}
		return full
	}
	insert(0, true)
	insert(0, false)
	full := insert(1, true)
	s, err := m.Stats()
	must(t, err)
	if full.Capacity != s.Capacity || full.Len != s.Len {
		t.Errorf("%d of %d slots, want %d of %d", full.Len, full.Capacity, s.Len, s.Capacity)
	}
}

// If making the table of one device panics, those of the others are closed.
func TestPanicOfNewTable(t *testing.T) {
	devices := several(t, "cpu", 3) // see NoneForgotten
	defer func() {
		if crash := recover(); crash != "made to order" {
			t.Errorf("%v, want the panic", crash)
		}
	}()
	shard.NewMap(devices, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		if d == devices[1] {
			panic("made to order")
		}
		return families[uint32, uint32]()["slab"](d, o)
	})
}
