package gph

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// tunedLoad is the load factor that the number of cells is meant for, where a table is filled beyond any.
const tunedLoad = 0.8

// fixed makes a table of about that many slots (a little less) that never grows nor is rebuilt, so that what it takes and
// counts is its inserts' alone: its load factor, beyond which it wants to grow, is low, and MaxBytes forbids that.
func fixed(d *device.Device, slots int, s gph.Setting) (*gph.Map[uint32, uint32], error) {
	const low = 0.25
	s, err := s.Complete(d.Info(), 4, 4, tunedLoad)
	if err != nil {
		return nil, err
	}
	s.KeysPerCell *= low / tunedLoad // as many cells
	o := s.Options(table.Options{Capacity: max(1, int(low*float64(slots-64))), LoadFactor: low, Seed: 1})
	m, err := gph.New[uint32, uint32](d, o)
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err = errors.Join(err, m.Close()); err != nil {
		return nil, err
	}
	o.MaxBytes, o.Capacity = stats.Bytes, 2*slots // as many buckets as fit: not one is left to grow by
	return gph.New[uint32, uint32](d, o)
}

// refused are the positions that a batch left out. Any other error remains one.
func refused(err error) ([]int, error) {
	var full *table.FullError
	if errors.As(err, &full) {
		return full.Positions, nil
	}
	return nil, err
}

// per is a mean; nil of nothing.
func per(sum, n int) any {
	if n <= 0 {
		return nil
	}
	return bench.Round(float64(sum) / float64(n))
}

// insertRate measures inserts of a batch into one empty table, looks all its keys up, and counts those that are not there or
// whose value is not right. distinct is the number of pairs then.
func insertRate[K, V any](d *device.Device, load float64, keys device.Slice[K], values, results device.Slice[V], found device.Slice[bool],
	right func(i int, v V) bool) (speed float64, distinct, wrong int, err error) {
	st := d.Stream()
	m, err := gph.New[K, V](d, gph.Options{Options: table.Options{Capacity: keys.Len(), LoadFactor: load}})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t, err := bench.Timed(d, st, bench.Runs, m.Clear, func() error { return m.InsertOn(st, keys, values) })
	if err != nil {
		return 0, 0, 0, err
	}
	if err := m.FindOn(st, keys, results, found); err != nil {
		return 0, 0, 0, err
	}
	v, err := results.Host(st)
	if err != nil {
		return 0, 0, 0, err
	}
	there, err := found.Host(st)
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range v {
		if !there[i] || !right(i, v[i]) {
			wrong++
		}
	}
	distinct, err = m.Len()
	return bench.Rate(keys.Len(), t), distinct, wrong, err
}
