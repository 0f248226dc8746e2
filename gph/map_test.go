package gph

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" && err != nil {
		t.Fatal(err)
	}
	tabletest.Require(t, "cuda", err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func TestFill(t *testing.T) {
	d := open(t, "cpu")
	const n = 200_000
	keys, err := workload.NewKeys("rand", 4, 1)
	must(t, err)
	k, v := make([]uint32, n), make([]uint32, n)
	workload.Pairs(keys, k, v)
	for _, load := range []float64{0.533, 0.8} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: load}})
		must(t, err)
		must(t, m.Insert(k, v))
		must(t, m.Check())
		s, err := m.IndexStats()
		must(t, err)
		t.Logf("%+v", s)
		must(t, m.Close())
	}
}
