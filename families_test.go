package warpmap_test

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
)

// point is a value of 16 bytes that is no array.
type point struct {
	X, Y float32
	ID   int64
}

func open(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" && err != nil {
		t.Fatal(err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// each runs a test for every family with one key and value type.
func each[K, V any](t *testing.T, test func(*testing.T, tabletest.Maker[K, V])) {
	var k K
	var v V
	for _, family := range warpmap.Families(table.KindMap) {
		t.Run(fmt.Sprintf("%s/%T,%T", family, k, v), func(t *testing.T) {
			t.Parallel()
			test(t, func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return warpmap.New[K, V](d, family, o)
			})
		})
	}
}

func suite[K, V any](t *testing.T, name string, part tabletest.Part) {
	each(t, func(t *testing.T, newMap tabletest.Maker[K, V]) {
		tabletest.Run(t, part, open(t, name), open(t, "cpu"), newMap)
	})
}

func degenerate[K, V any](t *testing.T, name string) {
	each(t, func(t *testing.T, newMap tabletest.Maker[K, V]) { tabletest.Degenerate(t, open(t, name), newMap) })
}

func TestFamilies(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			suite[uint32, uint32](t, name, tabletest.Whole)
			suite[uint32, uint64](t, name, tabletest.Widths)
			suite[uint64, uint32](t, name, tabletest.Widths)
			suite[uint64, uint64](t, name, tabletest.Widths)
			suite[uint32, [2]uint64](t, name, tabletest.Widths)
			suite[uint64, [2]uint64](t, name, tabletest.Whole)
			suite[float32, int32](t, name, tabletest.Types)
			suite[[2]int32, point](t, name, tabletest.Types)
		})
	}
}

func TestDegenerateHashes(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			degenerate[uint32, uint32](t, name)
		})
	}
}

// The same with lanes switched at random, at every access.
func TestFamiliesUnderStress(t *testing.T) {
	stress[uint32, uint32](t, table.Options{}, 40)
	stress[uint64, uint64](t, table.Options{LoadFactor: 1}, 40)
	stress[uint32, [2]uint64](t, table.Options{Hash: kernel.HashConstant}, 16) // seconds each: all lanes want one cell
	stress[uint64, [2]uint64](t, table.Options{LoadFactor: 1}, 40)
}

func stress[K, V any](t *testing.T, o table.Options, seeds int) {
	each(t, func(t *testing.T, newMap tabletest.Maker[K, V]) {
		tabletest.Stress(t, func(seed uint64) *device.Device { return open(t, "cpu", device.WithStress(seed)) }, newMap, o, testenv.Seeds(seeds))
	})
}

func TestNewRefusesUnknownKinds(t *testing.T) {
	if _, err := warpmap.New[uint32, uint32](open(t, "cpu"), "no such", table.Options{}); err == nil {
		t.Error("no error")
	}
}
