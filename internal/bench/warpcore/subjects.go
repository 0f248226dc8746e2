package warpcore

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// work, made and multiMap are those of pairs of 4+4 bytes.
type (
	work     = bench.Work[uint32, uint32]
	made     = bench.Make[uint32, uint32]
	multiMap = table.MultiMap[uint32, uint32]
)

// subject is a table to measure, with room for the work's pairs.
type subject struct {
	name   string
	make   made
	single made // of a multimap: the map that is made like it; may be nil
	varied bool // one of several that differ in a number alone
}

// maps are warpcore with groups of so many lanes, all families with their defaults, and CUDPP's cuckoo hashing.
func maps(groups []int) (out []subject) {
	for _, g := range groups {
		out = append(out, subject{name: grouped(g), make: groupedMap(g, g), varied: true})
	}
	for _, f := range warpmap.Families(table.KindMap) {
		out = append(out, subject{name: string(f), make: familyMap(f)})
	}
	return append(out, subject{name: "cuckoo", make: func(w *work, load float64) (s bench.Subject, err error) {
		c, err := baseline.NewCuckoo(w.Device, w.Options.N, load)
		if err != nil {
			return s, err
		}
		return w.Map(c), nil
	}})
}

// multiMaps are warpcore's MultiMap with groups of so many lanes that insert, all kinds of multimaps of all families with their defaults, and those
// of them that can be made from all pairs at once, so made.
func multiMaps(groups []int) (out []subject) {
	for _, g := range groups {
		find := min(g, 4)
		out = append(out, subject{grouped(g), ofMultiMap(func(d *device.Device, o table.MultiMapOptions) (multiMap, error) {
			return warpcore.NewMultiMap[uint32, uint32](d, warpcore.Options{Options: o.Options, InsertGroup: g, FindGroup: find})
		}, false), groupedMap(g, find), true})
	}
	for _, kind := range table.MultiMapKinds() {
		for _, f := range warpmap.Families(kind) {
			newMultiMap := func(d *device.Device, o table.MultiMapOptions) (multiMap, error) {
				return warpmap.NewMultiMapOf[uint32, uint32](d, kind, f, o)
			}
			x := subject{name: fmt.Sprintf("%s %v", f, kind), make: ofMultiMap(newMultiMap, false)}
			if kind == table.KindMultiMap {
				x.name, x.single = string(f), familyMap(f)
			}
			out = append(out, x)
			if kind == table.KindBucketList {
				out = append(out, subject{name: x.name + ", built", make: ofMultiMap(newMultiMap, true)})
			}
		}
	}
	return out
}

func grouped(lanes int) string { return fmt.Sprintf("%s, groups of %d", warpmap.WarpCore, lanes) }

// groupedMap is warpcore's map with groups of so many lanes.
func groupedMap(insert, find int) made {
	return ofMap(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		return warpcore.New[uint32, uint32](d, warpcore.Options{Options: o, InsertGroup: insert, FindGroup: find})
	})
}

// familyMap is a family's map with its defaults.
func familyMap(f table.Family) made {
	return ofMap(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		return bench.NewMap(d, f, o)
	})
}

func ofMap(newMap func(*device.Device, table.Options) (table.Map[uint32, uint32], error)) made {
	return func(w *work, load float64) (s bench.Subject, err error) {
		m, err := newMap(w.Device, table.Options{Capacity: w.Options.N, LoadFactor: load})
		if err != nil {
			return s, err
		}
		return w.Map(m), nil
	}
}

// ofMultiMap measures a multimap; built: made from all pairs at once, or else not made so.
func ofMultiMap(newMultiMap func(*device.Device, table.MultiMapOptions) (multiMap, error), built bool) made {
	return func(w *work, load float64) (s bench.Subject, err error) {
		base := table.Options{Capacity: w.Options.N, LoadFactor: load}
		m, err := newMultiMap(w.Device, table.MultiMapOptions{Options: base, Keys: w.Different()})
		if err != nil {
			return s, err
		}
		if !built {
			return bench.InsertedMultiMap(w, m), nil
		}
		if s, err = bench.BuiltMultiMap(w, m); err != nil {
			m.Close()
		}
		return s, err
	}
}

// measured makes the table, measures it, and closes it.
func measured(w *work, make made, load float64) (row bench.Row, err error) {
	s, err := make(w, load)
	if err != nil {
		return row, err
	}
	row, err = w.Measure(s)
	return row, errors.Join(err, s.Table.Close())
}

// groupsOn are the numbers of lanes that a figure varies; on the CPU device fewer.
func groupsOn(d *device.Device, cuda, cpu []int) []int {
	if d.Info().CUDA() {
		return cuda
	}
	return cpu
}
