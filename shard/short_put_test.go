package shard_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// shortRows are the rows of a batch as Go slices and on a device.
type shortRows struct {
	keys, values     []uint32
	when             []bool
	onKeys, onValues device.Slice[uint32]
	onWhen           device.Slice[bool]
}

// shortPuts put rows into a map; those with If put chosen rows.
var shortPuts = map[string]func(m *shard.Map[uint32, uint32], r shortRows) error{
	"Insert":   func(m *shard.Map[uint32, uint32], r shortRows) error { return m.Insert(r.keys, r.values) },
	"InsertIf": func(m *shard.Map[uint32, uint32], r shortRows) error { return m.InsertIf(r.keys, r.values, r.when) },
	"InsertNew": func(m *shard.Map[uint32, uint32], r shortRows) error {
		_, err := m.InsertNew(r.keys, r.values, nil)
		return err
	},
	"FindOrInsert": func(m *shard.Map[uint32, uint32], r shortRows) error {
		_, err := m.FindOrInsert(r.keys, r.values, make([]uint32, len(r.keys)), nil)
		return err
	},
	"Update":   func(m *shard.Map[uint32, uint32], r shortRows) error { return m.Update(r.keys, r.values, table.Add) },
	"InsertOn": func(m *shard.Map[uint32, uint32], r shortRows) error { return m.InsertOn(nil, r.onKeys, r.onValues) },
	"InsertIfOn": func(m *shard.Map[uint32, uint32], r shortRows) error {
		return m.InsertIfOn(nil, r.onKeys, r.onValues, r.onWhen)
	},
	"InsertNewOn": func(m *shard.Map[uint32, uint32], r shortRows) error {
		return m.InsertNewOn(nil, r.onKeys, r.onValues, device.Slice[bool]{})
	},
	"UpdateOn": func(m *shard.Map[uint32, uint32], r shortRows) error {
		return m.UpdateOn(nil, r.onKeys, r.onValues, table.Add)
	},
	"UpdateOn by sums": func(m *shard.Map[uint32, uint32], r shortRows) error {
		return m.UpdateOn(nil, r.onKeys, r.onValues, table.Add)
	},
}

// A put names exactly the rows that are not in, whichever allocations fail.
func TestShortMemoryOfPuts(t *testing.T) {
	const n, distinct, before = 36_000, 20_000, 500
	r := shortRows{keys: make([]uint32, n), values: make([]uint32, n), when: make([]bool, n)}
	for i := range n {
		r.keys[i], r.values[i], r.when[i] = uint32(i*7%distinct)*2654435761+1, 9, i%3 != 0
	}
	for name, put := range shortPuts {
		t.Run(name, func(t *testing.T) {
			partly, blind := 0, 0
			step := int64(5)
			if testenv.Long() {
				step = 1
			}
			for fails := int64(1); fails < 48; fails += step {
				devices := several(t, "cpu", 2)
				most := []int64{0, 200 << 10}[fails%2]
				o := shard.Options{Options: table.Options{MaxBytes: most, Seed: 3}, Piece: []int{8192, 0, 8192}[fails/step%3]}
				newMap := families[uint32, uint32]()["slab"]
				if strings.HasSuffix(name, "sums") {
					newMap = summed(newMap)
				}
				m, err := shard.NewMap(devices, o, newMap)
				must(t, err)
				must(t, m.Insert(r.keys[:before], make([]uint32, before)))
				r.onKeys, r.onValues, r.onWhen = on(t, devices[0], r.keys), on(t, devices[0], r.values), on(t, devices[0], r.when)
				var at [2]atomic.Int64
				for i, d := range devices {
					first, n := fails/2+int64(i)*fails%5, []int64{1 << 30, 1, 3}[fails%3]
					faults.Set(d, faults.OfMemory(func(int64) bool {
						x := at[i].Add(1)
						return x > first && x <= first+n
					}))
				}
				err = put(m, r)
				for _, d := range devices {
					faults.Set(d, nil)
				}
				full := (*table.FullError)(nil)
				if errors.As(err, &full) {
					partly++
					if device.IsOutOfMemory(err) {
						blind++
					}
				} else if err != nil && !device.IsOutOfMemory(err) {
					t.Fatal(err)
				}
				if err == nil || full != nil {
					if err := namesWhatIsOut(t, name, m, r, full, before); err != nil {
						t.Errorf("%d: %v; %v", fails, err, full)
					}
				}
				must(t, errors.Join(m.Check(), m.Close(), r.onKeys.Free(), r.onValues.Free(), r.onWhen.Free()))
			}
			if partly < 2 || blind == 0 {
				t.Errorf("%d batches went in in part, %d of them for want of memory: the test tests nothing", partly, blind)
			}
		})
	}
}

// namesWhatIsOut compares the content of a map with the rows that an error of a put names. The map had the keys of the
// first rows before, with the value 0.
func namesWhatIsOut(t *testing.T, name string, m *shard.Map[uint32, uint32], r shortRows, full *table.FullError,
	before int) error {
	named := make([]bool, len(r.keys))
	if full != nil {
		for k, p := range full.Positions {
			if named[p] = true; k > 0 && full.Positions[k-1] >= p {
				return fmt.Errorf("position %d follows %d", p, full.Positions[k-1])
			}
		}
	}
	keys, values, err := m.All()
	must(t, err)
	has, had, sums := map[uint32]uint32{}, map[uint32]bool{}, map[uint32]uint32{}
	for i, k := range keys {
		has[k] = values[i]
	}
	for _, k := range r.keys[:before] {
		had[k] = true
	}
	chosen := func(i int) bool { return !strings.Contains(name, "If") || r.when[i] }
	replaces := strings.HasPrefix(name, "InsertOn") || strings.HasPrefix(name, "InsertIf") || name == "Insert"
	strict := strings.Contains(name, "New") || name == "FindOrInsert"
	for i, k := range r.keys {
		value, in := has[k]
		switch {
		case !chosen(i) && named[i]:
			return fmt.Errorf("position %d is named, and not chosen", i)
		case !chosen(i):
		case !named[i] && (!in || replaces && value != 9):
			return fmt.Errorf("position %d is not named, its key is in: %t, with %d", i, in, value)
		case named[i] && in && !had[k] && (strict || !device.IsOutOfMemory(full)):
			return fmt.Errorf("position %d is named, and its key is in with %d", i, value)
		case !named[i]:
			sums[k] += r.values[i]
		}
	}
	for k, value := range has {
		if strings.HasPrefix(name, "Update") && value != sums[k] {
			return fmt.Errorf("key %#x has %d, want %d of the rows that are not named", k, value, sums[k])
		}
	}
	return nil
}
