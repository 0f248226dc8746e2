package warpmap_test

import (
	"errors"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
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
				most := 60_000
				if name == "cpu" && !testenv.Long() {
					most = 20_000
				}
				for _, n := range []int{10_000, most} {
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

// So does an update: each key comes twice, some rows behind the other, and is combined twice or not there.
func TestUpdateWithNextToNoMemory(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, family := range warpmap.Families(table.KindMap) {
			t.Run(name+"/"+string(family), func(t *testing.T) {
				memory := int64(64 << 10)
				if name != "cpu" {
					memory = 4 << 20
				}
				d := open(t, name, device.WithMemory(memory))
				m, err := warpmap.New[uint32, uint32](d, family, table.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				u, ok := m.(table.Updater[uint32, uint32])
				if !ok {
					t.Skip("combines no values")
				}
				counts := map[uint32]uint32{}
				most := 60_000
				if name == "cpu" && !testenv.Long() {
					most = 30_000
				}
				for _, n := range []int{1_000, 20_000, most} {
					keys, ones := make([]uint32, n), make([]uint32, n)
					for i := range keys {
						keys[i], ones[i] = uint32(i%(n/2))*2654435761, 1
					}
					err := u.Update(keys, ones, table.Add)
					var full *table.FullError
					if err != nil && !errors.As(err, &full) {
						t.Fatalf("%d rows: %v", n, err)
					}
					refused := map[int]bool{}
					if full != nil {
						for _, p := range full.Positions {
							refused[p] = true
						}
					}
					for i, k := range keys {
						if !refused[i] {
							counts[k]++
						}
					}
					t.Logf("%d rows: %d refused: %.100v", n, len(refused), err)
					found := make([]bool, n)
					if err := m.Contains(keys, found); err != nil {
						t.Fatal(err)
					}
					for i := range keys {
						if found[i] == refused[i] {
							t.Fatalf("%d rows: position %d is in %t, and refused %t", n, i, found[i], refused[i])
						}
					}
				}
				if err := m.Check(); err != nil {
					t.Error(err)
				}
				if n, err := m.Len(); err != nil || n != len(counts) {
					t.Errorf("%d keys, %v, want %d", n, err, len(counts))
				}
				var keys []uint32
				for k := range counts {
					keys = append(keys, k)
				}
				values := make([]uint32, len(keys))
				if err := m.Find(keys, values, nil); err != nil {
					t.Fatal(err)
				}
				for i, k := range keys {
					if values[i] != counts[k] {
						t.Fatalf("key %d has %d, want %d", k, values[i], counts[k])
					}
				}
			})
		}
	}
}
