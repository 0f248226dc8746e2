package programs

import (
	"context"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

type number interface{ uint32 | uint64 }

func multiMapProgram(p *program) error {
	switch p.IntN(4) {
	case 0, 1:
		return multiMapOf(p, identity[uint32], identity[uint32])
	case 2:
		return multiMapOf(p, identity[uint64], identity[uint32])
	}
	return multiMapOf(p, identity[uint32], identity[uint64])
}

func newMultiMap[K, V comparable](p *program) (table.MultiMap[K, V], error) {
	shards := 0
	if !p.gpu && p.chance(5) {
		shards = 2 + p.IntN(2)
	}
	kind := pick(p, table.MultiMapKinds()...)
	family := pick(p, warpmap.Families(kind)...)
	p.say("%v of %s, %T → %T, %d devices,", kind, family, *new(K), *new(V), max(shards, 1))
	if err := p.openDevices(shards); err != nil {
		return nil, err
	}
	o := p.random()
	distinct := pick(p, 0, 1, 10)
	if shards > 0 {
		p.say(", %+v", o)
		x := shard.Options{Options: o, Piece: pick(p, 0, 100, 5000)}
		return made[table.MultiMap[K, V]](p)(shard.NewMultiMap(p.devices, x,
			func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
				return warpmap.NewMultiMapOf[K, V](d, kind, family, table.MultiMapOptions{Options: o, Keys: distinct})
			}))
	}
	plain := p.plain()
	insert, find, window := 0, 0, 0
	if !plain {
		insert, find, window = pick(p, 0, 0, 1, 2), pick(p, 0, 0, 1, 4), pick(p, 0, 0, 1, 2, 8, 32)
	}
	switch {
	case family == warpmap.Slab:
		x := slab.Options{Options: o, Light: p.chance(2), NoPolicy: p.chance(2)}
		if !plain {
			x.Group = pick(p, 0, 0, 1, 8)
		}
		p.say(", %+v", x)
		return made[table.MultiMap[K, V]](p)(slab.NewMultiMap[K, V](p.d(), x))
	case kind == table.KindMultiBucket:
		x := warpcore.MultiBucketOptions{Options: o, Keys: distinct, InsertGroup: insert, FindGroup: find, Window: window}
		if !plain {
			x.Bucket = pick(p, 0, 1, 2, 3, 7, 30, 256)
		}
		p.say(", %+v", x)
		return made[table.MultiMap[K, V]](p)(warpcore.NewMultiBucket[K, V](p.d(), x))
	case kind == table.KindBucketList:
		x := warpcore.ListOptions{Options: o, Keys: distinct, InsertGroup: insert, FindGroup: find}
		x.InitialBucket, x.Growth = pick(p, 0, 1, 2, 7, 100), pick(p, 0, 1, 1.5, 3, 1024)
		p.say(", %+v", x)
		return made[table.MultiMap[K, V]](p)(warpcore.NewBucketList[K, V](p.d(), x))
	}
	x := warpcore.Options{Options: o, InsertGroup: insert, FindGroup: find, Window: window}
	if !plain {
		x.Layout = warpcore.Layout(p.IntN(4))
	}
	p.say(", %+v", x)
	return made[table.MultiMap[K, V]](p)(warpcore.NewMultiMap[K, V](p.d(), x))
}

func multiMapOf[K, V number](p *program, key func(uint64) K, value func(uint64) V) (err error) {
	m, err := newMultiMap[K, V](p)
	if err != nil || m == nil {
		return err
	}
	defer func() {
		p.next("Close")
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	model, total, last := map[K][]V{}, 0, uint64(0)
	universe, most := p.sizes()
	skew := p.chance(2)
	some := func() K {
		if skew && p.chance(2) {
			return key(pick(p, 7, ^uint64(0)))
		}
		return key(p.number(universe))
	}
	for range 4 + p.IntN(12) {
		n := p.rows(most)
		if p.options.Hash == 3 || p.options.Hash == 2 && p.stress {
			n = min(n, 100)
		}
		keys, values := make([]K, n), make([]V, n)
		for i := range keys {
			last++
			keys[i], values[i] = some(), value(last)
		}
		switch op := p.IntN(12); {
		case op < 6:
			p.next("Insert of %d, %d in", n, total)
			refused, err := p.refused(m.Insert(keys, values), n)
			if err != nil {
				return err
			}
			for i, k := range keys {
				if !refused[i] {
					model[k] = append(model[k], values[i])
					total++
				}
			}
		case op < 8:
			keys = keys[:min(n, pick(p, 1, 5, n))]
			p.next("Delete of %d, %d in", len(keys), total)
			deleted := make([]bool, len(keys))
			gone, err := m.Delete(keys, deleted)
			if err != nil {
				return err
			}
			want, told, had := 0, map[K]bool{}, map[K]bool{}
			for i, k := range keys {
				had[k] = had[k] || len(model[k]) > 0
				told[k] = told[k] || deleted[i]
				want += len(model[k])
				delete(model, k)
			}
			for k := range had {
				if had[k] != told[k] {
					return fmt.Errorf("key %v had values %t, and is told to be deleted %t", k, had[k], told[k])
				}
			}
			if gone != want {
				return fmt.Errorf("%d pairs are told to be deleted, %d were", gone, want)
			}
			total -= want
		case op < 9:
			p.next("Grow")
			if err := p.grow(m, p.IntN(2*most)); err != nil {
				return err
			}
		case op < 10:
			p.next("Shrink")
			switch x := m.(type) {
			case interface{ Shrink() error }:
				err = x.Shrink()
			case interface{ Flush() error }:
				err = x.Flush()
			}
			if err != nil && !device.IsOutOfMemory(err) {
				return err
			}
		case op < 11:
			builder, ok := m.(interface{ Build([]K, []V) error })
			if !ok {
				continue
			}
			p.next("Clear, and Build of %d", n)
			if err := m.Clear(); err != nil {
				return err
			}
			clear(model)
			total = 0
			err := builder.Build(keys, values)
			if device.IsOutOfMemory(err) { // all pairs must lie on the device
				break
			}
			refused, err := p.refused(err, n)
			if err != nil {
				return err
			}
			for i, k := range keys {
				if !refused[i] {
					model[k] = append(model[k], values[i])
					total++
				}
			}
		default:
			if !p.chance(3) {
				continue
			}
			p.next("Clear")
			clear(model)
			total = 0
			if err := m.Clear(); err != nil {
				return err
			}
		}
		if err := sameValues(p, m, model, total, key); err != nil {
			return err
		}
	}
	return nil
}

// sameValues compares the whole multimap with the model, by FindAll, Count and All.
func sameValues[K, V number](p *program, m table.MultiMap[K, V], model map[K][]V, total int, key func(uint64) K) error {
	p.next("FindAll, %d in", total)
	if err := p.whole(m, total); err != nil {
		return err
	}
	ask := []K{key(12345678), key(^uint64(0))}
	for k := range model {
		ask = append(ask, k)
	}
	counts := make([]uint32, len(ask))
	if err := m.Count(ask, counts); err != nil && !device.IsOutOfMemory(err) {
		return fmt.Errorf("Count: %w", err)
	} else if err == nil {
		for i, k := range ask {
			if int(counts[i]) != len(model[k]) {
				return fmt.Errorf("Count of key %v is %d, want %d", k, counts[i], len(model[k]))
			}
		}
	}
	offsets, values, err := m.FindAll(ask)
	if err != nil && !device.IsOutOfMemory(err) {
		return fmt.Errorf("FindAll: %w", err)
	}
	if err == nil {
		for i, k := range ask {
			if !equalSorted(values[offsets[i]:offsets[i+1]], model[k]) {
				return fmt.Errorf("FindAll of key %v has %d values, want %d, or others", k, offsets[i+1]-offsets[i], len(model[k]))
			}
		}
	}
	found := map[K][]V{}
	keys, values, err := m.All()
	if err == nil {
		for i, k := range keys {
			found[k] = append(found[k], values[i])
		}
	} else if !device.IsOutOfMemory(err) {
		return fmt.Errorf("All: %w", err)
	} else if err := m.Chunks(context.Background(), func(keys []K, values []V) error {
		for i, k := range keys {
			found[k] = append(found[k], values[i])
		}
		return nil
	}); device.IsOutOfMemory(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("Chunks: %w", err)
	}
	for k, want := range model {
		if !equalSorted(found[k], want) {
			return fmt.Errorf("the export has %d values of key %v, want %d, or others", len(found[k]), k, len(want))
		}
		delete(found, k)
	}
	for k, values := range found {
		return fmt.Errorf("the export has key %v with %d values, which is not in", k, len(values))
	}
	return nil
}

func equalSorted[V number](a, b []V) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
