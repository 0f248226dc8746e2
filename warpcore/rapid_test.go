package warpcore

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// mapProperty runs operations that rapid draws on a tiny Map whose keys share one chain of small windows, with MaxBytes
// or without, beside a Go map.
func mapProperty(d *device.Device) func(*rapid.T) {
	return func(t *rapid.T) {
		o := Options{Window: 2, Options: table.Options{
			Hash:       kernel.HashConstant,
			Seed:       rapid.Uint64().Draw(t, "seed"),
			Capacity:   rapid.IntRange(0, 20).Draw(t, "capacity"),
			LoadFactor: rapid.SampledFrom([]float64{0.5, 1}).Draw(t, "load"),
			MaxBytes:   rapid.SampledFrom([]int64{0, 1024, 1536}).Draw(t, "max bytes"),
		}}
		m, err := New[uint32, uint32](d, o)
		check(t, err)
		defer m.Close()
		model := map[uint32]uint32{}
		key := rapid.OneOf(rapid.Uint32Range(0, 60), rapid.Uint32Min(^uint32(0)-5))
		batch := func(t *rapid.T) (keys, values []uint32) { // distinct, so that the model is exact
			keys = rapid.SliceOfNDistinct(key, 0, 40, rapid.ID[uint32]).Draw(t, "keys")
			for range keys {
				values = append(values, rapid.Uint32().Draw(t, "value"))
			}
			return keys, values
		}
		out := func(t *rapid.T, err error) map[int]bool {
			var full *table.FullError
			if !errors.As(err, &full) {
				check(t, err)
				return nil
			}
			positions := map[int]bool{}
			for _, p := range full.Positions {
				positions[p] = true
			}
			return positions
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				keys, values := batch(t)
				lost := out(t, m.Insert(keys, values))
				for i, k := range keys {
					if _, old := model[k]; old && lost[i] {
						t.Fatalf("key %d was there, and is told to be out", k)
					}
					if !lost[i] {
						model[k] = values[i]
					}
				}
			},
			"insert new": func(t *rapid.T) {
				keys, values := batch(t)
				added := make([]bool, len(keys))
				_, err := m.InsertNew(keys, values, added)
				lost := out(t, err)
				for i, k := range keys {
					_, old := model[k]
					if added[i] != (!old && !lost[i]) || old && lost[i] {
						t.Fatalf("key %d: added %t, there before %t, told to be out %t", k, added[i], old, lost[i])
					}
					if added[i] {
						model[k] = values[i]
					}
				}
			},
			"delete": func(t *rapid.T) {
				keys, _ := batch(t)
				deleted := make([]bool, len(keys))
				_, err := m.Delete(keys, deleted)
				check(t, err)
				for i, k := range keys {
					if _, old := model[k]; old != deleted[i] {
						t.Fatalf("key %d: deleted %t, there before %t", k, deleted[i], old)
					}
					delete(model, k)
				}
			},
			"grow": func(t *rapid.T) {
				if err := m.Grow(rapid.IntRange(0, 100).Draw(t, "n")); err != nil && !errors.Is(err, table.ErrMaxBytes) {
					t.Fatal(err)
				}
			},
			"clear": func(t *rapid.T) {
				check(t, m.Clear())
				clear(model)
			},
			"": func(t *rapid.T) {
				check(t, m.Check())
				var keys []uint32
				for k := range uint32(61) {
					keys = append(keys, k)
				}
				for k := range uint32(6) {
					keys = append(keys, ^k)
				}
				values, found := make([]uint32, len(keys)), make([]bool, len(keys))
				check(t, m.Find(keys, values, found))
				for i, k := range keys {
					if v, there := model[k]; there != found[i] || v != values[i] {
						t.Fatalf("key %d: found %t, value %d, want %t, %d", k, found[i], values[i], there, v)
					}
				}
				if n, err := m.Len(); err != nil || n != len(model) {
					t.Fatalf("%d pairs, %v, want %d", n, err, len(model))
				}
			},
		})
	}
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMapProperties(t *testing.T) { rapid.Check(t, mapProperty(openCPU(t))) }

func FuzzMap(f *testing.F) {
	run := rapid.MakeFuzz(mapProperty(openCPU(f)))
	f.Fuzz(func(t *testing.T, choices []byte) {
		testenv.Bounded(t, len(choices), func() { run(t, choices) })
	})
}
