// Package tabletest is the conformance suite: what every table promises (package table), tested over every family, key
// and value width, and device.
package tabletest

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Part is how much of the suite a pair of types gets.
type Part int

// Each part holds those before it.
const (
	// Types is what types of other kinds can change, where a pair of the same widths gets more: their kernels are the same.
	Types Part = iota
	// Widths is what widths can change: all that kernels do.
	Widths
	// Whole is the suite with what is of the host alone: streams, goroutines, bad arguments.
	Whole
)

// Run runs a part of the suite, or on a GPU, and in long runs, the whole. other is a second device, to be told from d.
func Run[K, V any](t *testing.T, part Part, d, other *device.Device, newMap Maker[K, V]) {
	if d.Info().CUDA() || testenv.Long() {
		part = Whole
	}
	for _, c := range []struct {
		name string
		part Part
		test func(*testing.T, *device.Device, Maker[K, V])
	}{
		{"churn", Widths, churnTest[K, V]},
		{"growth", Widths, growthTest[K, V]},
		{"full", Widths, fullTest[K, V]},
		{"full duplicates", Widths, fullDuplicatesTest[K, V]},
		{"reserved patterns", Types, patternsTest[K, V]},
		{"order of streams", Whole, streamsTest[K, V]},
		{"goroutines", Whole, goroutinesTest[K, V]},
		{"close beside use", Whole, closeTest[K, V]},
		{"whole values", Types, wholeTest[K, V]},
		{"unaligned values", Types, unalignedTest[K, V]},
		{"mixed operations", Widths, mixedTest[K, V]},
		{"bad options", Whole, optionsTest[K, V]},
		{"after close", Whole, closedTest[K, V]},
		{"bad input", Whole, func(t *testing.T, d *device.Device, newMap Maker[K, V]) { inputTest(t, d, other, newMap) }},
	} {
		if c.part <= part {
			t.Run(c.name, func(t *testing.T) { c.test(t, d, newMap) })
		}
	}
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
