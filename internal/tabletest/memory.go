package tabletest

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// staging is what a batch of Go slices takes of a device's memory where there is little.
const staging = 4 << 10

// ShortOfMemory inserts more pairs than a table holds, on a device with only a few bytes more than the table has already, so
// that it cannot grow, nor perhaps note what a large batch leaves out: it says so, and exactly what is not in. open opens a
// device with so much memory.
func ShortOfMemory[K, V any](t *testing.T, open func(bytes int64) *device.Device, newMap Maker[K, V], more int64) {
	const n, before, plenty = 6_000, 500, 1 << 30
	var next uint64
	keys := KeysOf[K](fresh(&next, n, keyMask[K]()))
	values := func(number uint32) []V { return unaligned(ValuesOf[V](slices.Repeat([]uint32{number}, n))) }
	first, second, out := values(1), values(2), values(0)
	found, added := make([]bool, n), make([]bool, n)
	var m table.Map[K, V]
	var onKeys device.Slice[K]
	var onValues device.Slice[V]
	var onAdded device.Slice[bool]
	// start leaves a table with the last keys of the batch in it, and all the memory that calls need in passing.
	start := func(d *device.Device) {
		var err error
		m, err = newMap(d, table.Options{Capacity: 4_000})
		must(t, err)
		onKeys, onValues, onAdded = onDevice(t, d, keys), onDevice(t, d, second), onDevice(t, d, added)
		must(t, m.Find(keys, out, found))
		must(t, m.Insert(keys[n-before:], first[n-before:]))
	}
	for name, insert := range map[string]func() error{
		"Insert":    func() error { return m.Insert(keys, second) },
		"InsertOn":  func() error { return m.InsertOn(nil, onKeys, onValues) },
		"InsertNew": func() error { _, err := m.InsertNew(keys, second, added); return err },
		"InsertNewOn": func() error {
			must(t, onAdded.Write(nil, added))
			err := m.InsertNewOn(nil, onKeys, onValues, onAdded)
			must(t, onAdded.Read(nil, added))
			return err
		},
	} {
		d := open(plenty)
		start(d)
		frame.ReleaseStaging(d)
		free, _, err := d.Memory()
		must(t, err)
		others, err := device.Make[byte](d, int(free-staging-more))
		must(t, err)
		for i := range added {
			added[i] = true // what is not written shows
		}
		onlyNew := name == "InsertNew" || name == "InsertNewOn"
		err = insert()
		must(t, others.Free())
		var full *table.FullError
		if !errors.As(err, &full) || !errors.As(err, new(*device.OutOfMemoryError)) {
			t.Fatalf("%s: %v", name, err)
		}
		missing := make([]bool, n)
		for _, p := range full.Positions {
			missing[p] = true
		}
		must(t, m.Check())
		must(t, m.Find(keys, out, found))
		for i := range keys {
			got, want, wasIn := uint32(0), uint32(2), i >= n-before
			if found[i] {
				got = NumbersOf(t, out[i:i+1])[0]
			}
			switch {
			case wasIn && (onlyNew || missing[i]):
				want = 1
			case missing[i]:
				want = 0
			}
			if got != want || onlyNew && added[i] != (want == 2) {
				t.Fatalf("%s: position %d, in before %t, missing %t: found %t with %d, added %t", name, i, wasIn, missing[i], found[i], got, added[i])
			}
		}
		t.Logf("%s: %d of %d pairs are not in: %v", name, len(full.Positions), n, full.Why)
		must(t, m.Close())
	}
}
