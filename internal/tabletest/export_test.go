package tabletest

import (
	"testing"

	"github.com/warpmap/warpmap/device"
)

// Parts of the suites, for tests that they find something.

func Overflow[K any, C uint32 | uint64](t testing.TB, d *device.Device, newCounter CounterMaker[K, C]) {
	overflowTest(t, d, newCounter)
}

func FalsePositives[K any](t testing.TB, d *device.Device, newFilter FilterMaker[K]) {
	rateTest(t, d, newFilter)
}

func BadInput(t testing.TB, d, other *device.Device, s *Suite) { s.input(t, d, other) }
