package slab

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Every pair is seen once by ForEach of its key, and by ForAll, in chains of many slabs, and under keys of the highest patterns.
func TestForEachAndForAll(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, o := range []Options{{}, {Group: 8, Options: table.Options{LoadFactor: 1, Hash: kernel.HashConstant}}, {Group: 32, unpacked: true}} {
			if o.Group > 0 && name == "cpu" && !testenv.Long() {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, o.Group), func(t *testing.T) {
				d, err := device.Open(name)
				testenv.Require(t, "cuda", err)
				t.Cleanup(func() { must(t, d.Close()) })
				n, absent := 700, 2
				keys, values := make([]uint32, n), make([]uint64, n)
				for i := range keys {
					keys[i], values[i] = uint32(i)-4, uint64(i)
				}
				asked, err := device.From(d, append(keys, 1<<20, 1<<21))
				must(t, err)
				m, err := New[uint32, uint64](d, o)
				must(t, err)
				t.Cleanup(func() { must(t, m.Close()) })
				must(t, m.Insert(keys, values))
				mm, err := NewMultiMap[uint32, uint64](d, o)
				must(t, err)
				t.Cleanup(func() { must(t, mm.Close()) })
				for range 3 {
					must(t, mm.Insert(keys, values))
				}
				s, err := NewSet[uint32](d, o)
				must(t, err)
				t.Cleanup(func() { must(t, s.Close()) })
				_, err = s.Insert(keys, nil)
				must(t, err)
				for i, c := range []struct {
					each, all func(args Args) error
					times     uint32
				}{
					{func(a Args) error {
						return m.ForEach(nil, asked, `if (value == index && key == (u32)value - 4u) add(&seen[index], 1u);`, a)
					},
						func(a Args) error { return m.ForAll(nil, `if (key == (u32)value - 4u) add(&seen[value], 10u);`, a) }, 1},
					{func(a Args) error {
						return mm.ForEach(nil, asked, `if (value == index && key == (u32)value - 4u) add(&seen[index], 1u);`, a)
					},
						func(a Args) error { return mm.ForAll(nil, `if (key == (u32)value - 4u) add(&seen[value], 10u);`, a) }, 3},
					{func(a Args) error {
						return s.ForEach(nil, asked, `if (key == (u32)index - 4u) add(&seen[index], 1u);`, a)
					},
						func(a Args) error { return s.ForAll(nil, `add(&seen[key + 4u], 10u);`, a) }, 1},
				} {
					seen, err := device.From(d, make([]uint32, n+absent))
					must(t, err)
					must(t, c.each(Args{"seen": seen}))
					must(t, c.all(Args{"seen": seen}))
					got, err := seen.Host(nil)
					must(t, err)
					for k, x := range got {
						if want := map[bool]uint32{true: 11 * c.times}[k < n]; x != want {
							t.Fatalf("table %d: key %d of %d has %d, want %d", i, k, n, x, want)
						}
					}
					must(t, seen.Free())
				}
			})
		}
	}
}
