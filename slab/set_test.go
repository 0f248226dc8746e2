package slab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func setChurn[K uint32 | uint64](t *testing.T, d *device.Device, o Options, seed uint64, steps int) {
	s, err := NewSet[K](d, o)
	must(t, err)
	defer s.Close()
	rng := rand.New(rand.NewPCG(seed, 3))
	model := map[K]bool{}
	for step := range steps {
		keys := make([]K, rng.IntN(300))
		for i := range keys {
			keys[i] = K(rng.IntN(900)) - 4
		}
		before := len(model)
		switch rng.IntN(6) {
		case 0, 1:
			n, err := s.Insert(keys, nil)
			must(t, err)
			for _, k := range keys {
				model[k] = true
			}
			if n != len(model)-before {
				t.Fatalf("step %d: %d keys are new, want %d", step, n, len(model)-before)
			}
		case 2:
			n, err := s.Delete(keys, nil)
			must(t, err)
			for _, k := range keys {
				delete(model, k)
			}
			if n != before-len(model) {
				t.Fatalf("step %d: %d keys are deleted, want %d", step, n, before-len(model))
			}
		case 3:
			slices.Sort(keys)
			keys = slices.Compact(keys)
			ops, status := make([]table.Op, len(keys)), make([]table.Status, len(keys))
			for i := range ops {
				ops[i] = table.Op(rng.IntN(4))
			}
			must(t, s.Mixed(ops, keys, status))
			for i, k := range keys {
				want := table.Absent
				if model[k] {
					want = table.Present
				}
				switch ops[i] {
				case table.OpInsert, table.OpInsertNew:
					if !model[k] {
						want = table.Added
					}
					model[k] = true
				case table.OpDelete:
					delete(model, k)
				}
				if status[i] != want {
					t.Fatalf("step %d: %v of %d is %v, want %v", step, ops[i], k, status[i], want)
				}
			}
		case 4:
			must(t, s.Flush())
		case 5:
			must(t, s.Grow(rng.IntN(3000)))
		}
		must(t, s.Check())
		all, err := s.All()
		must(t, err)
		if len(all) != len(model) {
			t.Fatalf("step %d: %d keys are in, want %d", step, len(all), len(model))
		}
		for _, k := range all {
			if !model[k] {
				t.Fatalf("step %d: key %d is in", step, k)
			}
		}
		found := make([]bool, len(keys))
		must(t, s.Contains(keys, found))
		for i, f := range found {
			if f != model[keys[i]] {
				t.Fatalf("step %d: key %d is found %t", step, keys[i], f)
			}
		}
	}
}

func TestSet(t *testing.T) {
	for _, group := range []int{1, 8} {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, d *device.Device) {
				setChurn[uint32](t, d, Options{Group: group}, 1, 30)
				if group > 1 || testenv.Long() {
					setChurn[uint64](t, d, Options{Group: group, Light: true}, 2, 30)
				}
			})
			for seed := range uint64(4) {
				setChurn[uint32](t, openCPU(t, device.WithStress(seed)), Options{Group: group}, seed, 6)
			}
		})
	}
	if _, err := NewSet[string](openCPU(t), Options{}); err == nil {
		t.Error("a set of strings: no error")
	}
}
