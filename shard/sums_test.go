package shard_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// sumsMade counts the batches of which sumsOnHost returned sums, and addsOfRows the calls by which summing counters got
// keys without counts.
var sumsMade, addsOfRows atomic.Int64

// leastSummed is the number of rows from which summing tables combine rows.
const leastSummed = 3

// summing is a map that combines the rows of small batches, too, on the host.
type summing struct{ table.Updater[uint32, uint32] }

func (s summing) Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error) {
	return sumsOnHost(st, keys, values, with)
}

// summingCounter is a counter that combines the rows of small batches, too.
type summingCounter struct{ table.Counter[uint32, uint32] }

func (s summingCounter) Sums(st *device.Stream, keys, values device.Slice[byte], _ table.Combine) (frame.Sums, error) {
	return sumsOnHost(st, keys, values, table.Add)
}

func (s summingCounter) AddOn(st *device.Stream, keys device.Slice[uint32]) error {
	addsOfRows.Add(1)
	return s.Counter.AddOn(st, keys)
}

// summed makes a maker of summing maps.
func summed(newMap func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error)) func(d *device.Device,
	o table.Options) (table.Map[uint32, uint32], error) {
	return func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		m, err := newMap(d, o)
		if err != nil {
			return nil, err
		}
		return summing{m.(table.Updater[uint32, uint32])}, nil
	}
}

// summedCounting makes a maker of summing counters.
func summedCounting(saturate bool) func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
	return func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
		c, err := counting(saturate)(d, o)
		if err != nil {
			return nil, err
		}
		return summingCounter{c}, nil
	}
}

// sumsOnHost combines rows by an operation on unsigned numbers. Some keys get two sums. A sum that is too large for its
// type stays two rows, as warpcore leaves it. There are none if the rows are few, or if memory for them is short.
func sumsOnHost(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (sums frame.Sums, err error) {
	n := keys.Len() / 4
	fold, ok := map[table.Combine]func(a, b uint32) uint32{
		table.Add: func(a, b uint32) uint32 { return a + b },
		table.Min: func(a, b uint32) uint32 { return min(a, b) },
		table.Max: func(a, b uint32) uint32 { return max(a, b) },
		table.And: func(a, b uint32) uint32 { return a & b },
		table.Or:  func(a, b uint32) uint32 { return a | b },
	}[with]
	if n < leastSummed || !ok {
		return sums, nil
	}
	if st == nil {
		st = keys.Device().Stream()
	}
	k, err := device.View[uint32](keys, 0, n).Host(st)
	if err != nil {
		return sums, err
	}
	v := make([]uint32, n)
	for i := range v {
		v[i] = 1
	}
	if values.Len() > 0 {
		if v, err = device.View[uint32](values, 0, n).Host(st); err != nil {
			return sums, err
		}
	}
	var outKeys, outValues []uint32
	at := map[[2]uint32]int{}
	for i, key := range k {
		group := [2]uint32{key, uint32(i) & 1 & key}
		to, there := at[group]
		if !there || with == table.Add && outValues[to]+v[i] < v[i] {
			at[group] = len(outKeys)
			outKeys, outValues = append(outKeys, key), append(outValues, v[i])
			continue
		}
		outValues[to] = fold(outValues[to], v[i])
	}
	sums, err = frame.MakeSums(keys.Device(), len(outKeys)+5, 4, 4)
	if device.IsOutOfMemory(err) {
		return frame.Sums{}, nil
	}
	if err != nil {
		return sums, err
	}
	sums.N = len(outKeys)
	sumsMade.Add(1)
	return sums, errors.Join(device.View[uint32](sums.Keys, 0, sums.N).Write(st, outKeys),
		device.View[uint32](sums.Values, 0, sums.N).Write(st, outValues))
}

// Sums of rows do what the rows do.
func TestSums(t *testing.T) {
	for name, o := range map[string]shard.Options{"remote": {}, "copies": {Copies: true, Piece: 1}} {
		t.Run(name+" maps", func(t *testing.T) {
			all := several(t, "cpu", 3)
			tabletest.UpdatesOf(func(d *device.Device, each table.Options) (table.Map[uint32, uint32], error) {
				m, err := shard.NewMap(withOthers(d, all), with(o, each), summed(families[uint32, uint32]()["warpcore"]))
				return made[table.Map[uint32, uint32]](m, err)
			}).Run(t, tabletest.Whole, open(t, all[0].Info().Name))
		})
		onDevices(t, "cpu", name+" counters", 2, tabletest.Whole, func(all []*device.Device) *tabletest.Suite {
			return tabletest.Counter(func(d *device.Device, each table.CounterOptions) (table.Counter[uint32, uint32], error) {
				c, err := shard.NewCounter(withOthers(d, all), with(o, each.Options), summedCounting(each.Saturate))
				return made[table.Counter[uint32, uint32]](c, err)
			})
		})
	}
	if sumsMade.Load() == 0 {
		t.Error("no batch became sums")
	}
}

// AddEach ignores the values of its parts, with sums, too.
func TestSumsIgnoreValues(t *testing.T) {
	devices := several(t, "cpu", 2)
	c, err := shard.NewCounter(devices, shard.Options{}, summedCounting(false))
	must(t, err)
	var parts []shard.Part[uint32, uint32]
	for _, d := range devices {
		keys := on(t, d, []uint32{1, 2, 1, 3, 1})
		parts = append(parts, shard.Part[uint32, uint32]{Keys: keys, Values: on(t, d, []uint32{9, 9, 9, 9, 9})})
	}
	must(t, c.AddEach(parts))
	counts := make([]uint32, 3)
	must(t, c.Find([]uint32{1, 2, 3}, counts, nil))
	if !slices.Equal(counts, []uint32{6, 2, 2}) {
		t.Errorf("counts %d, want 6, 2 and 2", counts)
	}
	must(t, c.Close())
}
