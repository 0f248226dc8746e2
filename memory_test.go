package warpmap_test

import (
	"errors"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// On a device with next to no memory, a batch ends soon, and says exactly what is not in.
func TestNextToNoMemory(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, family := range warpmap.Families(table.KindMap) {
			t.Run(name+"/"+string(family), func(t *testing.T) {
				memory := int64(64 << 10)
				if name != "cpu" {
					memory = 4 << 20 // a GPU gives memory in pages
				}
				d := open(t, name, device.WithMemory(memory))
				m, err := warpmap.New[uint32, uint32](d, family, table.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				for _, n := range []int{10_000, 60_000} {
					keys := make([]uint32, n)
					for i := range keys {
						keys[i] = uint32(i) * 2654435761
					}
					start := time.Now()
					err := m.Insert(keys, keys)
					took := time.Since(start)
					var full *table.FullError
					if err != nil && !errors.As(err, &full) {
						t.Fatalf("%d pairs: %v", n, err)
					}
					t.Logf("%d pairs: %v, %.100v", n, took, err)
					if took > 20*time.Second {
						t.Errorf("%d pairs took %v", n, took)
					}
					found := make([]bool, n)
					if err := m.Contains(keys, found); err != nil {
						t.Fatal(err)
					}
					if full != nil {
						for _, p := range full.Positions {
							if found[p] {
								t.Fatalf("position %d is in, and named", p)
							}
							found[p] = true
						}
					}
					for p, in := range found {
						if !in {
							t.Fatalf("position %d is not in, and not named", p)
						}
					}
				}
				if err := m.Check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
