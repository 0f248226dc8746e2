// Package tabletest is the conformance suite: what every table promises (package table), tested over every family, key
// and value width, and device.
package tabletest

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Run runs the whole suite. other is a second device, to be told from d.
func Run[K, V any](t *testing.T, d, other *device.Device, newMap Maker[K, V]) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *device.Device, Maker[K, V])
	}{
		{"churn", churnTest[K, V]},
		{"growth", growthTest[K, V]},
		{"full", fullTest[K, V]},
		{"full duplicates", fullDuplicatesTest[K, V]},
		{"reserved patterns", patternsTest[K, V]},
		{"order of streams", streamsTest[K, V]},
		{"goroutines", goroutinesTest[K, V]},
		{"close beside use", closeTest[K, V]},
		{"whole values", wholeTest[K, V]},
		{"unaligned values", unalignedTest[K, V]},
		{"mixed operations", mixedTest[K, V]},
		{"bad options", optionsTest[K, V]},
		{"after close", closedTest[K, V]},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, d, newMap) })
	}
	t.Run("bad input", func(t *testing.T) { inputTest(t, d, other, newMap) })
}

// Degenerate runs a smaller suite with the hash functions that put keys on few probe sequences. Each costs a
// compilation.
func Degenerate[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	for name, hash := range map[string]int{"mueller": kernel.HashMueller, "identity": kernel.HashIdentity, "constant": kernel.HashConstant} {
		t.Run(name, func(t *testing.T) {
			for i, o := range []table.Options{{}, {LoadFactor: 1, Capacity: 64}, {MaxBytes: 4 << 10, LoadFactor: 1}} {
				o.Hash = hash
				t.Run(fmt.Sprint(i), func(t *testing.T) { churn(t, d, newMap, o, uint64(i), 25, 600) })
			}
		})
	}
}

// Stress churns a tiny table on a device in stress mode, which opens by its seed.
func Stress[K, V any](t *testing.T, open func(seed uint64) *device.Device, newMap Maker[K, V], o table.Options, seeds int) {
	for seed := range uint64(seeds) {
		d := open(seed)
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { churn(t, d, newMap, o, seed, 8, 96) })
		must(t, d.Close())
		if !ok {
			return
		}
	}
}

// Churn runs random operations on one table, of keys from a universe of that size, and checks it after each.
func Churn[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64, steps, universe int) {
	churn(t, d, newMap, o, seed, steps, universe)
}
