package tabletest

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Parts of the suites, for tests that they find something.

func Overflow[K any, C uint32 | uint64](t testing.TB, d *device.Device, newCounter CounterMaker[K, C]) {
	overflowTest(t, d, newCounter)
}

func FalsePositives[K any](t testing.TB, d *device.Device, newFilter FilterMaker[K]) {
	rateTest(t, d, newFilter)
}

// FewKeys runs a small batch.
func FewKeys[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V], seed uint64) {
	fewKeys(t, d, newMap, table.Options{Capacity: 1, LoadFactor: 1, Seed: 1 + seed}, seed, 4, 500)
}

func BadInput(t testing.TB, d, other *device.Device, s *Suite) { s.input(t, d, other) }
