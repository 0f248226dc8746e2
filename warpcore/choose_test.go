package warpcore

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func mapChoices(o Options) *tabletest.Choices {
	return tabletest.ChoicesOf(func(d *device.Device, base table.Options) (table.Map[uint32, uint32], error) {
		base.Hash = o.Hash
		o := o
		o.Options = base
		return New[uint32, uint32](d, o)
	})
}

func setChoices(o Options) *tabletest.Choices {
	return tabletest.KeyChoicesOf(func(d *device.Device, base table.Options) (table.Set[uint32], error) {
		base.Hash = o.Hash
		o := o
		o.Options = base
		return NewSet[uint32](d, o)
	})
}

func TestChoices(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for what, suite := range map[string]*tabletest.Choices{
			"map in soa, by lanes": mapChoices(Options{Layout: SoA, InsertGroup: 4, FindGroup: 8}),
			"set":                  setChoices(Options{InsertGroup: 2, FindGroup: 4}),
			"set, one chain":       setChoices(Options{Options: table.Options{Hash: kernel.HashConstant}}),
		} {
			if what == "set, one chain" && !testenv.Long() {
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				t.Cleanup(func() { must(t, d.Close()) })
				suite.Run(t, tabletest.Whole, d)
			})
		}
	}
}

// Groups of lanes under stress: keys that are not chosen go through the same loops.
func TestChoicesUnderStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.SeedsOf(8, 3)) {
		o := Options{Layout: []Layout{Packed, SoA}[seed%2], InsertGroup: []int{1, 4}[seed/2%2], FindGroup: []int{4, 1}[seed/2%2]}
		d := openCPU(t, device.WithStress(seed))
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		keys, when, want := make([]uint32, 400), make([]bool, 400), map[uint32]bool{}
		for i := range keys {
			keys[i], when[i] = uint32(i*i%151), i%3 == int(seed%3)
			want[keys[i]] = want[keys[i]] || when[i]
		}
		must(t, m.InsertIf(keys, keys, when))
		must(t, m.Check())
		values, found := make([]uint32, 400), make([]bool, 400)
		must(t, m.FindIf(keys, when, values, found))
		for i, k := range keys {
			if found[i] != when[i] || when[i] && values[i] != k || !when[i] && values[i] != 0 {
				t.Fatalf("seed %d, position %d: found %t, value %d, to be done %t", seed, i, found[i], values[i], when[i])
			}
		}
		must(t, m.Contains(keys, found))
		for i, k := range keys {
			if found[i] != want[k] {
				t.Fatalf("seed %d, key %d: in %t, want %t", seed, k, found[i], want[k])
			}
		}
		must(t, m.Close())
	}
}
