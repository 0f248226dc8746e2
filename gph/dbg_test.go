package gph

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func TestDbg(t *testing.T) {
	d := open(t, "cpu")
	const n = 150_000
	keys, _ := workload.NewKeys("rand", 8, 1)
	k, v := make([]uint64, n), make([]uint64, n)
	workload.Pairs(keys, k, v); w := make([][2]uint64, n)
	for _, cb := range []int{1} {
		for _, kc := range []float64{4} {
			for _, load := range []float64{0.8} {
				o := Options{Options: table.Options{Capacity: n, LoadFactor: load}, KeysPerCell: kc * float64(cb), CellBytes: cb}
				m, err := New[uint64, [2]uint64](d, o)
				must(t, err)
				s, _ := m.IndexStats()
				m.Close()
				o.MaxBytes = s.Bytes
				m, err = New[uint64, [2]uint64](d, o)
				must(t, err)
				err = m.Insert(k, w)
				var f *table.FullError
				lost := 0
				if errors.As(err, &f) {
					lost = len(f.Positions)
				} else {
					must(t, err)
				}
				must(t, m.Check())
				s, _ = m.IndexStats()
				t.Logf("cb %d kc %v load %v lost %d load %.4f moves/cell %.2f rings/move %.2f", cb, o.KeysPerCell, load, lost, s.LoadFactor, float64(s.Moves)/float64(s.Cells), float64(s.Rings)/float64(s.Moves))
				m.Close()
			}
		}
	}
}
