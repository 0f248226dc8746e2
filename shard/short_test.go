package shard_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// shortTable is a table on devices with little memory: insert takes a batch in, and in tells how many of its rows have
// had an effect.
type shortTable struct {
	table.Table
	insert func(keys []uint32) error
	in     func(keys []uint32, named map[int]bool) int
}

// Whatever memory there is, an error of an insert names the rows that are not in, or none is.
func TestShortMemoryIsToldExactly(t *testing.T) {
	const rows, distinct = 6000, 4000
	keys := make([]uint32, rows)
	for i := range keys {
		keys[i] = uint32(i%distinct)*2654435761 + 1
	}
	sumOf := func(c *shard.Counter[uint32, uint32]) int {
		_, counts, err := c.All()
		must(t, err)
		sum := 0
		for _, n := range counts {
			sum += int(n)
		}
		return sum
	}
	newCounter := func(ds []*device.Device, o shard.Options) *shard.Counter[uint32, uint32] {
		c, err := shard.NewCounter[uint32, uint32](ds, o, func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
			return warpcore.NewCounter[uint32, uint32](d, warpcore.CounterOptions{Options: warpcore.Options{Options: o}})
		})
		must(t, err)
		return c
	}
	newMap := func(ds []*device.Device, o shard.Options) *shard.Map[uint32, uint32] {
		m, err := shard.NewMap[uint32, uint32](ds, o, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			return warpcore.New[uint32, uint32](d, warpcore.Options{Options: o})
		})
		must(t, err)
		return m
	}
	// Of a map a row is in if its key has its value, 9; those that are named need not be.
	valued := func(m *shard.Map[uint32, uint32]) func(keys []uint32, named map[int]bool) int {
		return func(keys []uint32, named map[int]bool) (in int) {
			all, values, err := m.All()
			must(t, err)
			has := map[uint32]bool{}
			for i, k := range all {
				has[k] = values[i] == 9
			}
			for i, k := range keys {
				if has[k] && !named[i] {
					in++
				}
			}
			return in
		}
	}
	nines := make([]uint32, rows)
	for i := range nines {
		nines[i] = 9
	}
	for name, make1 := range map[string]func(ds []*device.Device, o shard.Options) shortTable{
		"counter": func(ds []*device.Device, o shard.Options) shortTable {
			c := newCounter(ds, o)
			return shortTable{c, c.Add, func([]uint32, map[int]bool) int { return sumOf(c) }}
		},
		"counter of counts": func(ds []*device.Device, o shard.Options) shortTable {
			c := newCounter(ds, o)
			return shortTable{c, func(k []uint32) error {
				ones := make([]uint32, len(k))
				for i := range ones {
					ones[i] = 1
				}
				return c.AddCounts(k, ones)
			}, func([]uint32, map[int]bool) int { return sumOf(c) }}
		},
		"counter on the device": func(ds []*device.Device, o shard.Options) shortTable {
			c := newCounter(ds, o)
			s, err := device.From(ds[0], keys)
			must(t, err)
			return shortTable{c, func(k []uint32) error { return errors.Join(c.AddOn(nil, s), s.Free()) }, func([]uint32, map[int]bool) int { return sumOf(c) }}
		},
		"map": func(ds []*device.Device, o shard.Options) shortTable {
			m := newMap(ds, o)
			return shortTable{m, func(k []uint32) error { return m.Insert(k, nines) }, valued(m)}
		},
		"map with keys": func(ds []*device.Device, o shard.Options) shortTable {
			m := newMap(ds, o)
			must(t, m.Insert(keys[:200], make([]uint32, 200))) // whose values are replaced
			return shortTable{m, func(k []uint32) error { return m.Insert(k, nines) }, valued(m)}
		},
		"multimap": func(ds []*device.Device, o shard.Options) shortTable {
			m, err := shard.NewMultiMap[uint32, uint32](ds, o, func(d *device.Device, o table.Options) (table.MultiMap[uint32, uint32], error) {
				return warpcore.NewMultiMap[uint32, uint32](d, warpcore.Options{Options: o})
			})
			must(t, err)
			return shortTable{m, func(k []uint32) error { return m.Insert(k, k) }, func([]uint32, map[int]bool) int { n, err := m.Len(); must(t, err); return n }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			partly := 0
			for _, c := range []struct{ free, most int64 }{{3000, 0}, {30_000, 6000}, {50_000, 6000}, {60_000, 0}, {70_000, 6000}, {80_000, 0}} {
				var ds []*device.Device
				for i := range 2 {
					d, err := device.Open(fmt.Sprintf("cpu:%d", i), device.WithMemory(2<<20))
					must(t, err)
					defer d.Close()
					ds = append(ds, d)
				}
				x := make1(ds, shard.Options{Options: table.Options{MaxBytes: c.most, Seed: 3}})
				var others []device.Slice[byte] // have all memory but so much
				for _, d := range ds {
					free, _, err := d.Memory()
					must(t, err)
					s, err := device.Make[byte](d, int(free-c.free))
					must(t, err)
					others = append(others, s)
				}
				err := x.insert(keys)
				for _, s := range others {
					must(t, s.Free())
				}
				full, named := (*table.FullError)(nil), map[int]bool{}
				if errors.As(err, &full) {
					for _, p := range full.Positions {
						named[p] = true
					}
					if len(named) != len(full.Positions) {
						t.Errorf("%+v: %d positions, of which %d differ", c, len(full.Positions), len(named))
					}
				}
				in, want := x.in(keys, named), rows-len(named)
				if err != nil && full == nil {
					want = 0
				}
				if in != want {
					t.Errorf("%+v: %d of %d rows are in, and %d are named: %v", c, in, rows, len(named), err)
				}
				if full != nil && in > 0 {
					partly++
				}
				must(t, errors.Join(x.Check(), x.Close()))
			}
			if partly == 0 {
				t.Error("no batch went in in part: the test tests nothing")
			}
		})
	}
}
