package programs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

func counterProgram(p *program) error {
	switch p.IntN(3) {
	case 0:
		return counterOf[uint32, uint32](p, identity[uint32])
	case 1:
		return counterOf[uint64, uint64](p, identity[uint64])
	}
	return counterOf[uint64, uint32](p, identity[uint64])
}

func newCounter[K comparable, C uint32 | uint64](p *program, saturate bool) (table.Counter[K, C], error) {
	shards := 0
	if !p.gpu && p.chance(4) {
		shards = 2 + p.IntN(2)
	}
	p.say("%T → %T, saturate %t, %d devices,", *new(K), *new(C), saturate, max(shards, 1))
	if err := p.openDevices(shards); err != nil {
		return nil, err
	}
	o := p.random()
	if shards > 0 {
		p.say(", %+v", o)
		x := shard.Options{Options: o, Piece: pick(p, 0, 100, 5000)}
		return made[table.Counter[K, C]](p)(shard.NewCounter(p.devices, x,
			func(d *device.Device, o table.Options) (table.Counter[K, C], error) {
				return warpmap.NewCounter[K, C](d, warpmap.WarpCore, table.CounterOptions{Options: o, Saturate: saturate})
			}))
	}
	x := warpcore.CounterOptions{Options: warpcore.Options{Options: o}, Saturate: saturate}
	if !p.plain() {
		x.Layout, x.Window = warpcore.Layout(p.IntN(4)), pick(p, 0, 1, 2, 8, 32)
	}
	p.say(", %+v", x)
	return made[table.Counter[K, C]](p)(warpcore.NewCounter[K, C](p.d(), x))
}

func counterOf[K comparable, C uint32 | uint64](p *program, key func(uint64) K) (err error) {
	saturate := p.chance(2)
	c, err := newCounter[K, C](p, saturate)
	if err != nil || c == nil {
		return err
	}
	defer func() {
		p.next("Close")
		if e := c.Close(); err == nil {
			err = e
		}
	}()
	model := map[K]C{}
	over := map[K]bool{}
	universe, most := p.sizes()
	for range 4 + p.IntN(12) {
		n := p.rows(most)
		keys, counts := make([]K, n), make([]C, n)
		for i := range keys {
			keys[i], counts[i] = key(p.number(universe)), C(p.IntN(5))
			if p.chance(200) {
				counts[i] = ^C(0) - C(p.IntN(3))
			}
		}
		switch op := p.IntN(8); {
		case op < 5:
			one := op < 2
			p.next("Add of %d, ones %t, %d in", n, one, len(model))
			var err error
			if one {
				err = c.Add(keys)
			} else {
				err = c.AddCounts(keys, counts)
			}
			overflow := errors.Is(err, table.ErrOverflow)
			var full *table.FullError
			if overflow && !errors.As(err, &full) {
				err = nil
			}
			refused, err := p.refused(err, n)
			if err != nil {
				return err
			}
			was := len(over)
			for i, k := range keys {
				if refused[i] {
					continue
				}
				by := counts[i]
				if one {
					by = 1
				}
				if model[k]+by < by {
					over[k], model[k] = true, ^C(0)
				} else {
					model[k] += by
				}
			}
			if full == nil && !saturate && len(over) > was && !overflow || saturate && overflow {
				return fmt.Errorf("%d counts are too large, ErrOverflow %t, Saturate %t", len(over)-was, overflow, saturate)
			}
			got, found := make([]C, n), make([]bool, n)
			if err := c.Find(keys, got, found); err != nil {
				return fmt.Errorf("Find: %w", err)
			}
			for i, k := range keys {
				want, in := model[k]
				if found[i] != in || got[i] != want || refused[i] && in {
					return fmt.Errorf("position %d, key %v: %d, in %t, refused %t, want %d, %t",
						i, k, got[i], found[i], refused[i], want, in)
				}
			}
		case op < 6:
			p.next("Grow")
			if err := p.grow(c, p.IntN(2*universe)); err != nil {
				return err
			}
		case op < 7:
			if !p.chance(3) {
				continue
			}
			p.next("Clear")
			clear(model)
			clear(over)
			if err := c.Clear(); err != nil {
				return err
			}
		default:
			top := p.IntN(universe + 2)
			p.next("Top %d", top)
			keys, counts, err := c.Top(top)
			if device.IsOutOfMemory(err) {
				continue
			}
			if err != nil {
				return err
			}
			want := []C{}
			for _, v := range model {
				want = append(want, v)
			}
			slices.Sort(want)
			slices.Reverse(want)
			want = want[:min(top, len(want))]
			if !slices.Equal(counts, want) {
				return fmt.Errorf("Top(%d) has %d counts, want %d, or others", top, len(counts), len(want))
			}
			for i, k := range keys {
				if model[k] != counts[i] {
					return fmt.Errorf("Top has key %v with %d, want %d", k, counts[i], model[k])
				}
			}
		}
		p.next("All, %d in", len(model))
		if err := p.whole(c, len(model)); err != nil {
			return err
		}
		all, counted, err := c.All()
		if device.IsOutOfMemory(err) {
			continue
		}
		if err != nil {
			return err
		}
		for i, k := range all {
			if want, in := model[k]; !in || counted[i] != want {
				return fmt.Errorf("All has key %v with %d, want %d, in %t", k, counted[i], want, in)
			}
		}
		if len(all) != len(model) {
			return fmt.Errorf("All has %d keys, want %d", len(all), len(model))
		}
	}
	return nil
}
