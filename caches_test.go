package warpmap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// long is a value that lies apart from its key: a number, three times over.
type long [3]uint32

func longs(numbers []uint32) []long {
	out := make([]long, len(numbers))
	for i, n := range numbers {
		out[i] = long{n, n, n}
	}
	return out
}

// numbers are those that longs were made of. A torn one gives a number that no value has.
func numbers(longs []long) []uint32 {
	out := make([]uint32, len(longs))
	for i, x := range longs {
		if out[i] = x[0]; x != (long{x[0], x[0], x[0]}) {
			out[i] = ^uint32(0)
		}
	}
	return out
}

func same(numbers []uint32) []uint32 { return numbers }

// scarceCache is a cache with so much room that no pair goes out, so that it holds what a map does. of makes values of
// numbers, and to numbers of values.
func scarceCache[V any](d *device.Device, m *cache.Cache[uint32, V], o cache.Options, of func([]uint32) []V,
	to func([]V) []uint32) (s scarce) {
	pairs := func(m *cache.Cache[uint32, V]) (held, error) {
		return pairsOf(func(do func(k, v []uint32) error) error {
			k, v, err := m.All()
			if err == nil {
				err = do(k, to(v))
			}
			return err
		})
	}
	all := func() (held, error) { return pairs(m) }
	keys, values := scarceKeys(scarceBefore/2, scarceBatch), scarceValues(scarceBatch, 7)
	replace := func(h held, onlyNew bool) func(i int) {
		return func(i int) {
			if _, there := h[keys[i]]; !there || !onlyNew {
				h[keys[i]] = []uint32{values[i]}
			}
		}
	}
	find := func(find func(keys []uint32, values []V, found []bool) error) func(h held) error {
		return func(h held) error {
			in, found := make([]V, len(keys)), make([]bool, len(keys))
			if err := find(keys, in, found); err != nil {
				return err
			}
			got := to(in)
			for i, k := range keys {
				if want, there := h[k]; found[i] != there || there && got[i] != want[0] {
					return fmt.Errorf("key %#x: found %t with %d, want %v", k, found[i], got[i], want)
				}
			}
			return nil
		}
	}
	ops := make([]table.Op, len(keys))
	for i := range ops {
		ops[i] = []table.Op{table.OpInsert, table.OpInsertNew, table.OpDelete}[i%3]
	}
	twice := append(slices.Clone(keys), keys...)
	s = scarce{check: m.Check, close: m.Close, all: all, ops: []scarceOp{
		{"All", func(h held) error { got, err := all(); return told(err, got, h, held.equal) }},
		{"Len", func(h held) error { n, err := m.Len(); return told(err, n, len(h), is) }},
		{"Stats", func(h held) error { s, err := m.Stats(); return told(err, s.Len, len(h), is) }},
		{"Sweep", func(h held) error { n, err := m.Sweep(); return told(err, n, 0, is) }},
		{"Export", func(h held) error {
			got, err := pairsOf(func(do func(k, v []uint32) error) error {
				k, v, _, err := m.Export(0)
				if err == nil {
					err = do(k, to(v))
				}
				return err
			})
			return told(err, got, h, held.equal)
		}},
		{"Chunks", func(h held) error {
			got, err := pairsOf(func(do func(k, v []uint32) error) error {
				return m.Chunks(context.Background(), func(k []uint32, v []V) error { return do(k, to(v)) })
			})
			return told(err, got, h, held.equal)
		}},
		{"Clear", func(h held) error {
			err := m.Clear()
			if err == nil {
				clear(h)
			}
			return err
		}},
		{"Insert", func(h held) error { return in(len(keys), m.Insert(keys, of(values)), replace(h, false)) }},
		{"InsertOn", func(h held) error {
			return onDevices(d, [][]uint32{keys}, func(k []device.Slice[uint32]) error {
				return onDevices(d, [][]V{of(values)}, func(v []device.Slice[V]) error {
					return in(len(keys), m.InsertOn(nil, k[0], v[0]), replace(h, false))
				})
			})
		}},
		{"InsertOut", func(h held) error {
			out, _, _, err := m.InsertOut(keys, of(values), nil)
			return told(in(len(keys), err, replace(h, false)), len(out), 0, is)
		}},
		{"FindOrInsert", func(h held) error {
			_, err := m.FindOrInsert(keys, of(values), make([]V, len(keys)), nil)
			return in(len(keys), err, replace(h, true))
		}},
		{"Find", find(m.Find)},
		{"FindQuiet", find(m.FindQuiet)},
		{"Delete", func(h held) error {
			n, err := m.Delete(keys, nil)
			was := len(h)
			if err == nil {
				for _, k := range keys {
					delete(h, k)
				}
			}
			return told(err, n, was-len(h), is)
		}},
		{"Update", func(h held) error {
			return in(len(twice), m.Update(twice, of(append(slices.Clone(values), values...)), table.Add), func(i int) {
				k, sum := twice[i], values[i%len(values)]
				if was := h[k]; was != nil {
					sum += was[0]
				}
				h[k] = []uint32{sum}
			})
		}},
		{"Mixed", func(h held) error {
			return in(len(keys), m.Mixed(ops, keys, of(values), nil, nil), func(i int) {
				if ops[i] == table.OpDelete {
					delete(h, keys[i])
				} else {
					replace(h, ops[i] == table.OpInsertNew)(i)
				}
			})
		}},
	}, more: []scarceOp{
		{"Save and Load", func(h held) error {
			make := func() (*cache.Cache[uint32, V], error) { return warpmap.NewCache[uint32, V](d, o) }
			return closing(make, func(other *cache.Cache[uint32, V]) error {
				return saving(snapshot.Cache(m), snapshot.Cache(other), other.Len, func() (held, error) { return pairs(other) })(h)
			})
		}},
	}}
	if o.HostValues { // such values are no numbers, which Update adds up
		s.ops = slices.DeleteFunc(s.ops, func(op scarceOp) bool { return op.name == "Update" })
	}
	return s
}

// eachCache runs a test with caches that are half filled, on each device that has caches.
func eachCache(t *testing.T, run func(t *testing.T, name string, make makesScarce)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for _, o := range testenv.Some([]cache.Options{{}, {Policy: cache.LFU, HostValues: true},
				{Policy: cache.Aged, TimeToLive: time.Hour}}, 2) {
				o.Seed, o.Capacity = 3, 60*scarceBatch
				m, err := warpmap.NewCache[uint32, long](d, o)
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip(err)
				}
				must(t, errors.Join(err, m.Close()))
				t.Run(o.Policy.String(), func(t *testing.T) {
					run(t, name, func(d *device.Device) (s scarce, h held, err error) {
						if o.HostValues {
							return filledCache(d, o, longs, numbers)
						}
						return filledCache(d, o, same, same)
					})
				})
			}
		})
	}
}

// filledCache makes a cache, and fills half of it.
func filledCache[V any](d *device.Device, o cache.Options, of func([]uint32) []V, to func([]V) []uint32) (s scarce,
	h held, err error) {
	m, err := warpmap.NewCache[uint32, V](d, o)
	if err != nil {
		return s, nil, err
	}
	s = scarceCache(d, m, o, of, to)
	h, err = fill(s, func(keys, values []uint32) error { return m.Insert(keys, of(values)) },
		func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
	return s, h, err
}

// Each allocation of a cache's operations fails in turn: see TestEachAllocationFails.
func TestEachAllocationOfCachesFails(t *testing.T) {
	eachCache(t, func(t *testing.T, name string, make makesScarce) { eachAllocation(t, open(t, name), make) })
}

// Each call of a cache's operations fails in turn: see TestEachCallFails.
func TestEachCallOfCachesFails(t *testing.T) {
	eachCache(t, func(t *testing.T, name string, make makesScarce) {
		with := withMore(make)
		eachCall(t, []string{name}, faulty, func(ds []*device.Device) (scarce, held, error) { return with(ds[0]) })
	})
}

// Calls of random operations on a cache fail at a rate: see TestCallsFailAtRandom.
func TestCallsOfCachesFailAtRandom(t *testing.T) {
	eachCache(t, func(t *testing.T, name string, make makesScarce) {
		d, ordered := open(t, name), 0
		for seed := range testenv.Seeds(16) {
			ordered += atRandom(t, d, withMore(make), uint64(seed))
		}
		testenv.Tried(t, ordered, "faults")
	})
}

// LoadCache makes a cache with the file's policy and lives, and refuses files of other kinds.
func TestLoadCache(t *testing.T) {
	d, ctx := open(t, "cpu"), context.Background()
	m, err := warpmap.NewCache[uint32, uint32](d, cache.Options{Capacity: 24, Policy: cache.Aged, Lives: true})
	must(t, err)
	defer m.Close()
	must(t, m.InsertFor([]uint32{1, 2}, []uint32{10, 20}, []time.Duration{0, time.Hour}))
	file := save(t, snapshot.Cache(m))
	got, err := warpmap.LoadCache[uint32, uint32](ctx, bytes.NewReader(file), d, warpmap.CacheOptions{Capacity: 24})
	must(t, err)
	defer got.Close()
	values, found := make([]uint32, 2), make([]bool, 2)
	must(t, got.Find([]uint32{1, 2}, values, found))
	if x := got.Saved(); x.Policy != "aged" || !x.Lives || !slices.Equal(values, []uint32{10, 20}) {
		t.Errorf("%+v, %v, %v", x, values, found)
	}
	set, err := warpmap.NewSet[uint32](d, warpmap.WarpCore, table.Options{})
	must(t, err)
	defer set.Close()
	for what, err := range map[string]error{
		"no size": second(warpmap.LoadCache[uint32, uint32](ctx, bytes.NewReader(file), d, warpmap.CacheOptions{})),
		"other values": second(warpmap.LoadCache[uint32, uint64](ctx, bytes.NewReader(file), d,
			warpmap.CacheOptions{Capacity: 24})),
		"a set": second(warpmap.LoadCache[uint32, uint32](ctx, bytes.NewReader(save(t, snapshot.Set(set))), d,
			warpmap.CacheOptions{Capacity: 24})),
	} {
		if err == nil {
			t.Errorf("%s: it is loaded", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }
