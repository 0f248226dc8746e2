package shard_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// allocated returns the bytes of Go memory that a call allocates for each of n rows, with garbage.
func allocated(n int, call func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

// A batch far beyond MaxBytes takes little more Go memory over two devices than over one, for each row that is refused.
func TestRefusedRowsTakeLittleMemory(t *testing.T) {
	const n = 1 << 18
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	devices := several(t, "cpu", 2)
	onOne := on(t, devices[0], keys)
	defer func() { must(t, onOne.Free()) }()
	o := func(devices int64) table.Options { return table.Options{MaxBytes: devices << 18} }
	type insert func(m table.Map[uint64, uint64]) error
	inserts := map[string]struct {
		insert
		most float64 // bytes a row beyond those of one device
	}{
		"Insert": {func(m table.Map[uint64, uint64]) error { return m.Insert(keys, keys) }, 20},
		"InsertNew": {func(m table.Map[uint64, uint64]) error {
			_, err := m.InsertNew(keys, keys, nil)
			return err
		}, 20},
		"InsertOn": {func(m table.Map[uint64, uint64]) error { return m.InsertOn(nil, onOne, onOne) }, 20},
		"Update": {func(m table.Map[uint64, uint64]) error { // which keeps pairs that it may have to combine later
			return m.(table.Updater[uint64, uint64]).Update(keys, keys, table.Add)
		}, 28},
	}
	for name, x := range inserts {
		one, err := families[uint64, uint64]()["slab"](devices[0], o(1))
		must(t, err)
		two, err := shard.NewMap(devices, shard.Options{Options: o(2)}, families[uint64, uint64]()["slab"])
		must(t, err)
		measure := func(m table.Map[uint64, uint64]) float64 {
			return allocated(n, func() {
				if err := x.insert(m); !errors.As(err, new(*table.FullError)) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		if a, b := measure(one), measure(two); b-a > x.most {
			t.Errorf("%s: %.0f bytes a row over two devices, %.0f over one: want at most %.0f more", name, b, a, x.most)
		} else {
			t.Logf("%s: %.1f bytes a row over two devices, %.1f over one", name, b, a)
		}
		must(t, errors.Join(one.Close(), two.Close()))
	}
	one, err := multiMaps[uint64, uint64]()["slab"](devices[0], o(1))
	must(t, err)
	two, err := shard.NewMultiMap(devices, shard.Options{Options: o(2)}, multiMaps[uint64, uint64]()["slab"])
	must(t, err)
	measure := func(m table.MultiMap[uint64, uint64]) float64 {
		return allocated(n, func() {
			if err := m.Insert(keys, keys); !errors.As(err, new(*table.FullError)) {
				t.Error(err)
			}
		})
	}
	if a, b := measure(one), measure(two); b-a > 28 {
		t.Errorf("a multimap's Insert: %.0f bytes a row over two devices, %.0f over one: want at most 28 more", b, a)
	} else {
		t.Logf("a multimap's Insert: %.1f bytes a row over two devices, %.1f over one", b, a)
	}
	must(t, errors.Join(one.Close(), two.Close()))
}
