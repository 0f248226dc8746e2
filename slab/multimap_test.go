package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// multiModel is what a MultiMap should hold: values in the order of batches; those of one batch in any.
type multiModel map[uint64][]uint32

// Each batch brings a key once at most, so that the order of its values is known.
func multiChurn(t *testing.T, d *device.Device, o Options, seed uint64, steps int) {
	m, err := NewMultiMap[uint64, uint32](d, o)
	must(t, err)
	defer m.Close()
	rng := rand.New(rand.NewPCG(seed, 4))
	model := multiModel{}
	for step := range steps {
		keys := make([]uint64, rng.IntN(120))
		values := make([]uint32, len(keys))
		for i := range keys {
			keys[i], values[i] = uint64(rng.IntN(130))-4, rng.Uint32()
		}
		switch op := rng.IntN(7); op {
		case 0, 1, 2:
			slices.Sort(keys)
			keys = slices.Compact(keys)
			must(t, m.Insert(keys, values[:len(keys)]))
			for i, k := range keys {
				model[k] = append(model[k], values[i])
			}
		case 3:
			deleted := make([]bool, len(keys))
			n, err := m.DeleteOldest(keys, deleted)
			must(t, err)
			want := 0
			for _, k := range keys {
				if len(model[k]) > 0 {
					model[k] = model[k][1:]
					want++
				}
			}
			if n != want {
				t.Fatalf("step %d: %d pairs deleted, want %d", step, n, want)
			}
		case 4:
			keys = keys[:len(keys)/4]
			n, err := m.Delete(keys, nil)
			must(t, err)
			want := 0
			for _, k := range keys {
				want += len(model[k])
				delete(model, k)
			}
			if n != want {
				t.Fatalf("step %d: %d pairs deleted, want %d", step, n, want)
			}
		case 5:
			must(t, m.Flush())
		case 6:
			must(t, m.Grow(rng.IntN(2000)))
		}
		must(t, m.Check())
		model.check(t, m, step)
	}
}

func (model multiModel) check(t *testing.T, m *MultiMap[uint64, uint32], step int) {
	t.Helper()
	total := 0
	for _, v := range model {
		total += len(v)
	}
	if n, err := m.Len(); err != nil || n != total {
		t.Fatalf("step %d: Len is %d, %v, want %d", step, n, err, total)
	}
	var keys []uint64
	for i := range 130 {
		keys = append(keys, uint64(i)-4)
	}
	counts, values, found := make([]uint32, len(keys)), make([]uint32, len(keys)), make([]bool, len(keys))
	must(t, m.Count(keys, counts))
	must(t, m.Find(keys, values, found))
	offsets, every, err := m.FindAll(keys)
	must(t, err)
	for i, k := range keys {
		want := model[k]
		if int(counts[i]) != len(want) || found[i] != (len(want) > 0) || len(want) > 0 && values[i] != want[0] {
			t.Fatalf("step %d, key %d: %d pairs, the least recent %d; want %v", step, k, counts[i], values[i], want)
		}
		if got := every[offsets[i]:offsets[i+1]]; !slices.Equal(got, want) {
			t.Fatalf("step %d, key %d: values %v, want %v", step, k, got, want)
		}
	}
	st, err := m.Stats()
	must(t, err)
	if k, v, err := m.All(); err != nil || len(k) != total || len(v) != total || st.Len != total {
		t.Fatalf("step %d: All gives %d pairs, Stats %d, want %d (%v)", step, len(k), st.Len, total, err)
	}
}

func TestMultiMap(t *testing.T) {
	for i, group := range []int{1, 8, 4} {
		if group == 4 && !testenv.Long() {
			break
		}
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, d *device.Device) {
				for seed := range uint64(3) {
					multiChurn(t, d, Options{Group: group, Light: i == 1, unpacked: i == 2}, seed, 25)
				}
			})
			for seed := range uint64(4) {
				multiChurn(t, openCPU(t, device.WithStress(seed)), Options{Group: group, Light: i == 1, unpacked: i == 2}, seed, 6)
			}
		})
	}
}

// Many pairs of few keys in one batch, and deletions that meet: each takes a pair of its own.
func TestMultiMapDuplicates(t *testing.T) { onEach(t, testMultiMapDuplicates) }

func testMultiMapDuplicates(t *testing.T, d *device.Device) {
	for _, group := range []int{1, 8} {
		m, err := NewMultiMap[uint64, uint32](d, Options{Group: group, Light: group == 8}) // as in TestMultiMap
		must(t, err)
		const n = 3000
		keys, values := make([]uint64, n), make([]uint32, n)
		for i := range keys {
			keys[i], values[i] = uint64(i%7)-3, uint32(i)
		}
		must(t, m.Insert(keys, values))
		must(t, m.Check())
		deleted, err := m.DeleteOldest(keys[:n/2], nil)
		must(t, err)
		if deleted != n/2 {
			t.Errorf("%d pairs deleted, want %d", deleted, n/2)
		}
		must(t, m.Check())
		if _, all, err := m.FindAll([]uint64{0, 1, 2, 3, ^uint64(0), ^uint64(1), ^uint64(2)}); err != nil || len(all) != n/2 {
			t.Errorf("%d values are left, %v", len(all), err)
		}
		var none []uint64
		if o, all, err := m.FindAll(none); err != nil || len(o) != 1 || len(all) != 0 {
			t.Errorf("FindAll of no keys: %v, %v, %v", o, all, err)
		}
		must(t, m.Close())
	}
	m, err := NewMultiMap[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 8 << 10}})
	must(t, err)
	var full *table.FullError
	if err := m.Insert(make([]uint32, 2000), make([]uint32, 2000)); !errors.As(err, &full) {
		t.Fatal(err)
	}
	if n, err := m.Len(); err != nil || n != 2000-len(full.Positions) {
		t.Errorf("%d pairs are in, %v, and %d are told not to be", n, err, len(full.Positions))
	}
	must(t, m.Check())
}
