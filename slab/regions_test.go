package slab

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/table"
)

var earlyRegions = frame.Regions{MinBytes: 2 * slabBytes, RegionBytes: 3 * slabBytes, MinRows: 40, RegionRows: 1, PieceRows: 128, MemoryShare: 8, Span: frame.Threads}

// Batches that are brought in order, by a table that does it early: it holds the same, and tells the same positions.
func TestOrderedInserts(t *testing.T) { onEach(t, testOrderedInserts) }

func testOrderedInserts(t *testing.T, d *device.Device) {
	for _, group := range []int{1, 8} {
		newMap := func(d *device.Device, to table.Options) (table.Map[uint32, uint32], error) {
			m, err := New[uint32, uint32](d, Options{Options: to, Group: group})
			if err == nil {
				m.core.regions = earlyRegions
			}
			return m, err
		}
		for i, to := range []table.Options{{}, {MaxBytes: 16 << 10, LoadFactor: 1}} {
			tabletest.Map(newMap).Churn(t, d, to, uint64(i), 25, 900)
		}
		m, err := newMap(d, table.Options{MaxBytes: 16 << 10})
		must(t, err)
		const n = 3000
		keys, values, found := make([]uint32, n), make([]uint32, n), make([]bool, n)
		for i := range keys {
			keys[i] = uint32(i) - 10
		}
		var full *table.FullError
		if err := m.Insert(keys, values); !errors.As(err, &full) {
			t.Fatal(err)
		}
		must(t, m.Contains(keys, found))
		for _, p := range full.Positions {
			if found[p] {
				t.Fatalf("position %d is in, and told to be lost", p)
			}
			found[p] = true
		}
		for p, f := range found {
			if !f {
				t.Fatalf("position %d is not in, and not told to be lost", p)
			}
		}
		// What is in can be replaced, in a table that stays as it is.
		in := keys[:full.Positions[0]]
		must(t, m.Insert(in, values[:len(in)]))
		if s, err := m.Stats(); err != nil || len(in) >= 40 && s.ScratchBytes < 5000 {
			t.Errorf("no batch was brought in order: %+v, %v", s, err)
		}
		must(t, m.Close())
	}
}
