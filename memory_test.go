package warpmap_test

import (
	"errors"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
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

// With no memory at all to bring a batch to the device, no table is changed, and each says exactly what is not done: of
// keys that are in, InsertNew and a set's Insert name none, for these are as they should be.
func TestNothingIsStaged(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { nothingIsStaged(t, open(t, name)) })
	}
}

func nothingIsStaged(t *testing.T, d *device.Device) {
	raw := make([]byte, 4*1000+1) // the CPU device stages what is not aligned
	odd := unsafe.Slice((*uint32)(unsafe.Pointer(&raw[1-uintptr(unsafe.Pointer(&raw[0]))&1])), 1000)
	var all, absent []int
	var before []uint32
	for i := range odd {
		odd[i] = uint32(i) * 2654435761
		if all = append(all, i); i%4 == 0 {
			before = append(before, odd[i])
		} else {
			absent = append(absent, i)
		}
	}
	ones := slices.Repeat([]uint32{1}, len(odd))
	short := func(t *testing.T, do func(added []bool) (int, error), want []int) {
		t.Helper()
		frame.ReleaseStaging(d)
		faults.Set(d, faults.OfMemory(func(int64) bool { return true }))
		defer faults.Set(d, nil)
		added := slices.Repeat([]bool{true}, len(odd))
		n, err := do(added)
		full := (*table.FullError)(nil)
		if !errors.As(err, &full) || !device.IsOutOfMemory(err) {
			t.Fatalf("%.200v", err)
		}
		if !slices.Equal(full.Positions, want) || full.Len != len(before) {
			t.Errorf("%.200v, want %d positions", err, len(want))
		}
		if n != 0 || frame.Count(added) != 0 {
			t.Errorf("%d are added, %d told", n, frame.Count(added))
		}
	}
	for _, family := range warpmap.Families(table.KindMap) {
		t.Run("map/"+string(family), func(t *testing.T) {
			m, err := warpmap.New[uint32, uint32](d, family, table.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			must(t, m.Insert(before, ones[:len(before)]))
			short(t, func(added []bool) (int, error) { return m.InsertNew(odd, odd, added) }, absent)
			short(t, func(added []bool) (int, error) { clear(added); return 0, m.Insert(odd, odd) }, all)
			if x, err := warpmap.As[table.Mixed[uint32, uint32]](m); err == nil {
				status, results := make([]table.Status, len(odd)), slices.Clone(odd)
				short(t, func(added []bool) (int, error) {
					clear(added)
					return 0, x.Mixed(make([]table.Op, len(odd)), odd, odd, results, status)
				}, all)
				for i, s := range status {
					if s != table.NoRoom || results[i] != 0 {
						t.Fatalf("position %d: %v, %d", i, s, results[i])
					}
				}
			}
			keys, values, err := m.All()
			if err != nil || len(keys) != len(before) || slices.Max(values) != 1 {
				t.Errorf("%d pairs are in, want %d, each with 1: %v", len(keys), len(before), err)
			}
			must(t, m.Check())
			must(t, m.Insert(odd, odd))
		})
	}
	for _, family := range warpmap.Families(table.KindSet) {
		t.Run("set/"+string(family), func(t *testing.T) {
			m, err := warpmap.NewSet[uint32](d, family, table.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if _, err := m.Insert(before, nil); err != nil {
				t.Fatal(err)
			}
			short(t, func(added []bool) (int, error) { return m.Insert(odd, added) }, absent)
			must(t, m.Check())
		})
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
