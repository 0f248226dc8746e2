package shard_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
)

// Whatever allocation of a device is the last that finds memory, a mixed batch names what is not done, or none of it is.
func TestShortMemoryOfMixed(t *testing.T) {
	const rows = 40_000
	ops, keys, values := make([]table.Op, rows), make([]uint32, rows), make([]uint32, rows)
	for i := range ops {
		ops[i], keys[i], values[i] = table.OpInsert, uint32(i)*2654435761+1, 9
		if i%4 == 0 { // of what is not there
			ops[i], keys[i] = table.OpFind, uint32(i)*2654435761+2
		}
	}
	partly := 0
	for n := int64(0); n < 16; n += 2 {
		var ds []*device.Device
		for i := range 2 {
			d, err := device.Open(fmt.Sprintf("cpu:%d", i))
			must(t, err)
			defer d.Close()
			ds = append(ds, d)
		}
		m, err := shard.NewMap[uint32, uint32](ds, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			return slab.New[uint32, uint32](d, slab.Options{Options: o})
		})
		must(t, err)
		results, status := make([]uint32, rows), make([]table.Status, rows)
		for i := range results {
			results[i], status[i] = 77, 77
		}
		var at atomic.Int64
		faults.Set(ds[n/2%2], faults.OfMemory(func(int64) bool { return at.Add(1) > n }))
		err = m.Mixed(ops, keys, values, results, status)
		faults.Set(ds[n/2%2], nil)
		full, want := (*table.FullError)(nil), 0
		if err == nil || errors.As(err, &full) {
			named := map[int]bool{}
			if full != nil {
				for _, i := range full.Positions {
					named[i] = true
				}
			}
			for i, s := range status {
				switch {
				case named[i] != (s == table.NoRoom):
					t.Fatalf("%d allocations: row %d is named: %t, and its outcome is %v", n, i, named[i], s)
				case results[i] != 0:
					t.Fatalf("%d allocations: row %d has the result %d", n, i, results[i])
				case ops[i] == table.OpInsert && !named[i]:
					want++
				}
			}
		}
		in, e := m.Len()
		must(t, e)
		if in != want {
			t.Errorf("%d allocations: %d inserts are in, want %d: %v", n, in, want, err)
		}
		if full != nil && in > 0 {
			partly++
		}
		must(t, errors.Join(m.Check(), m.Close()))
	}
	if partly == 0 {
		t.Error("no batch was done in part: the test tests nothing")
	}
}
