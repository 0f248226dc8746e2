package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// word is the type of keys and of values.
type word interface{ uint32 | uint64 }

// spread is a table over several devices, of any kind, and the operations that are measured.
type spread[K word] struct {
	table interface {
		Clear() error
		Len() (int, error)
		Stats() (table.Stats, error)
		Steps() shard.Steps
		Close() error
	}
	insert, find func(parts []shard.Part[K, K]) error
	remove       func(parts []shard.Part[K, K]) error // nil: not measured
	// findAll finds all values of each key; nil: a key has one value.
	findAll func(st *device.Stream, keys device.Slice[K]) (device.Slice[uint64], device.Slice[K], error)
}

// newSpread makes the table of the options.
func newSpread[K word, O shard.Over](over O, o Options) (s spread[K], err error) {
	all := o.Shard
	switch o.Kind {
	case table.KindMap:
		m, err := shard.NewMap(over, all, func(d *device.Device, each table.Options) (table.Map[K, K], error) {
			return warpmap.New[K, K](d, o.Family, each)
		})
		if err != nil {
			return s, err
		}
		s.table, s.insert, s.find, s.remove = m, m.InsertEach, m.FindEach, m.DeleteEach
		if o.Update {
			s.insert = func(parts []shard.Part[K, K]) error { return m.UpdateEach(parts, warpmap.Add) }
		}
	case table.KindSet:
		m, err := shard.NewSet(over, all, func(d *device.Device, each table.Options) (table.Set[K], error) {
			return warpmap.NewSet[K](d, o.Family, each)
		})
		if err != nil {
			return s, err
		}
		s.table = m
		s.insert = func(parts []shard.Part[K, K]) error { return m.InsertEach(keysOf(parts)) }
		s.find = func(parts []shard.Part[K, K]) error { return m.ContainsEach(keysOf(parts)) }
	case table.KindCounter:
		m, err := shard.NewCounter(over, all, func(d *device.Device, each table.Options) (table.Counter[K, K], error) {
			return warpmap.NewCounter[K, K](d, o.Family, table.CounterOptions{Options: each})
		})
		if err != nil {
			return s, err
		}
		s.table, s.insert, s.find = m, m.AddEach, m.FindEach
	case table.KindMultiMap:
		m, err := shard.NewMultiMap(over, all, func(d *device.Device, o2 table.Options) (table.MultiMap[K, K], error) {
			return warpmap.NewMultiMapOf[K, K](d, o.Kind, o.Family, table.MultiMapOptions{Options: o2})
		})
		if err != nil {
			return s, err
		}
		s.table, s.insert, s.find, s.findAll = m, m.InsertEach, m.ContainsEach, m.FindAllOn
	default:
		return s, fmt.Errorf("bench: a %v over several devices: want a map, set, counter or multimap", o.Kind)
	}
	return s, nil
}

// keysOf returns the parts of a set.
func keysOf[K word](parts []shard.Part[K, K]) (out []shard.Part[K, byte]) {
	for _, p := range parts {
		out = append(out, shard.Part[K, byte]{Stream: p.Stream, Keys: p.Keys, Flags: p.Flags})
	}
	return out
}

// list is the result of a multimap's look-up.
type list[K word] struct {
	offsets device.Slice[uint64]
	values  device.Slice[K]
}

// findLists finds all values of each key, on all devices concurrently.
func (w *work[K]) findLists(parts []shard.Part[K, K]) error {
	w.lists = make([]list[K], len(parts))
	errs := make([]error, len(parts))
	var wait crash.WaitGroup
	for i, p := range parts {
		wait.Go(func() {
			w.lists[i].offsets, w.lists[i].values, errs[i] = w.findAll(nil, p.Keys)
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// freeLists frees the results of findLists.
func (w *work[K]) freeLists() (err error) {
	for _, l := range w.lists {
		err = errors.Join(err, l.offsets.Free(), l.values.Free())
	}
	w.lists = nil
	return err
}
