package gph

import (
	"testing"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func TestBuild(t *testing.T) {
	d := open(t, "cpu")
	const n = 300_000
	keys, err := workload.NewKeys("rand", 4, 1)
	must(t, err)
	k, v := make([]uint32, n), make([]uint32, n)
	workload.Pairs(keys, k, v)
	for _, load := range []float64{0.533, 0.8, 0.9, 0.95} {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, LoadFactor: load}})
		must(t, err)
		must(t, m.Build(k, v))
		must(t, m.Check())
		s, err := m.IndexStats()
		must(t, err)
		t.Logf("%+v", s)
		must(t, m.Close())
	}
}
