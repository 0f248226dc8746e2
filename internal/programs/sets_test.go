package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/warpcore"
)

func setProgram(p *program) error {
	if p.chance(2) {
		return setOf(p, identity[uint32])
	}
	return setOf(p, identity[uint64])
}

func newSet[K comparable](p *program) (table.Set[K], error) {
	shards := 0
	if !p.gpu && p.chance(5) {
		shards = 2 + p.IntN(2)
	}
	family := pick(p, warpmap.Families(table.KindSet)...)
	p.say("%s, %T, %d devices,", family, *new(K), max(shards, 1))
	if err := p.openDevices(shards); err != nil {
		return nil, err
	}
	o := p.random()
	if shards > 0 {
		p.say(", %+v", o)
		x := shard.Options{Options: o, Piece: pick(p, 0, 100, 5000), AskAll: pick(p, 0, 1000)}
		return made[table.Set[K]](p)(shard.NewSet(p.devices, x,
			func(d *device.Device, o table.Options) (table.Set[K], error) { return warpmap.NewSet[K](d, family, o) }))
	}
	if family == warpmap.Slab {
		x := slab.Options{Options: o, Light: p.chance(2), NoPolicy: p.chance(2)}
		if !p.plain() {
			x.Group = pick(p, 0, 0, 1, 8)
		}
		p.say(", %+v", x)
		return made[table.Set[K]](p)(slab.NewSet[K](p.d(), x))
	}
	x := warpcore.Options{Options: o}
	if !p.plain() {
		x.Window, x.InsertGroup, x.FindGroup = pick(p, 0, 1, 2, 8, 32), pick(p, 0, 0, 1, 2), pick(p, 0, 0, 1, 4)
	}
	p.say(", %+v", x)
	return made[table.Set[K]](p)(warpcore.NewSet[K](p.d(), x))
}

func setOf[K comparable](p *program, key func(uint64) K) (err error) {
	s, err := newSet[K](p)
	if err != nil || s == nil {
		return err
	}
	defer func() {
		p.next("Close")
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	model := map[K]bool{}
	universe, most := p.sizes()
	for range 4 + p.IntN(12) {
		n := p.rows(most)
		keys, flags, when, found := make([]K, n), make([]bool, n), make([]bool, n), make([]bool, n)
		for i := range keys {
			keys[i], when[i] = key(p.number(universe)), p.chance(2)
		}
		switch op := p.IntN(10); {
		case op < 6:
			chooser, ok := s.(table.KeyChooser[K])
			choose := ok && op < 2
			p.next("Insert of %d, chosen %t, %d in", n, choose, len(model))
			var gone int
			if choose {
				gone, err = chooser.InsertIf(keys, when, flags)
			} else {
				gone, err = s.Insert(keys, flags)
			}
			refused, err := p.refused(err, n)
			if err != nil {
				return err
			}
			if err := s.Contains(keys, found); err != nil {
				return fmt.Errorf("Contains: %w", err)
			}
			let, times, news := map[K]bool{}, map[K]int{}, 0
			for i, k := range keys {
				chosen := !choose || when[i]
				if chosen && refused[i] == found[i] || !chosen && (refused[i] || flags[i]) {
					return fmt.Errorf("position %d, key %v: chosen %t, refused %t, in %t, added %t",
						i, k, chosen, refused[i], found[i], flags[i])
				}
				let[k] = let[k] || chosen && !refused[i]
				if flags[i] {
					times[k]++
				}
			}
			for i, k := range keys {
				if found[i] != (model[k] || let[k]) {
					return fmt.Errorf("key %v is in %t: it was %t, let in %t", k, found[i], model[k], let[k])
				}
			}
			for k, in := range let {
				if !in {
					continue
				}
				if !model[k] {
					news++
				}
				if (times[k] == 1) == model[k] {
					return fmt.Errorf("key %v was in %t, and is told to be added %d times", k, model[k], times[k])
				}
				model[k] = true
			}
			if gone != news {
				return fmt.Errorf("%d are told to be added, %d were", gone, news)
			}
		case op < 8:
			p.next("Delete of %d, %d in", n, len(model))
			gone, err := s.Delete(keys, flags)
			if err != nil {
				return err
			}
			want := 0
			for _, k := range keys {
				if model[k] {
					want++
					delete(model, k)
				}
			}
			told := 0
			for _, f := range flags {
				if f {
					told++
				}
			}
			if gone != want || told != want {
				return fmt.Errorf("%d and %d flags are told to be deleted, %d were", gone, told, want)
			}
		case op == 8:
			p.next("Grow")
			if err := p.grow(s, p.IntN(2*universe)); err != nil {
				return err
			}
		default:
			if p.chance(3) {
				p.next("Clear")
				clear(model)
				if err := s.Clear(); err != nil {
					return err
				}
			}
		}
		if p.chance(2) {
			continue
		}
		p.next("All, %d in", len(model))
		if err := p.whole(s, len(model)); err != nil {
			return err
		}
		all, err := s.All()
		if err == nil {
			err = sameKeys("All", all, model)
		}
		if err != nil && !device.IsOutOfMemory(err) {
			return err
		}
	}
	if len(p.devices) > 1 || p.options.Hash == 3 || p.stress {
		return nil
	}
	p.next("Save and Load")
	var file bytes.Buffer
	if err = snapshot.Set(s).Save(context.Background(), &file); err == nil {
		var other table.Set[K]
		family := pick(p, warpmap.Families(table.KindSet)...)
		if other, err = warpmap.LoadSet[K](context.Background(), &file, p.d(), family, table.Options{}); err == nil {
			defer other.Close()
			var all []K
			if all, err = other.All(); err == nil {
				err = sameKeys("what was loaded", all, model)
			}
		}
	}
	var full *table.FullError
	if device.IsOutOfMemory(err) || errors.As(err, &full) {
		return nil
	}
	return err
}

func sameKeys[K comparable](what string, keys []K, model map[K]bool) error {
	if len(keys) != len(model) {
		return fmt.Errorf("%s has %d keys, want %d", what, len(keys), len(model))
	}
	seen := map[K]bool{}
	for _, k := range keys {
		if !model[k] || seen[k] {
			return fmt.Errorf("%s has key %v: in %t, twice %t", what, k, model[k], seen[k])
		}
		seen[k] = true
	}
	return nil
}
