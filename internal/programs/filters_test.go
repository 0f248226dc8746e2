package programs

import (
	"bytes"
	"context"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/warpcore"
)

func filterProgram(p *program) error {
	switch p.IntN(3) {
	case 0:
		return filterOf(p, identity[uint32])
	case 1:
		return filterOf(p, identity[uint64])
	}
	return filterOf(p, wideKey)
}

func filterOf[K comparable](p *program, key func(uint64) K) (err error) {
	p.say("%T,", *new(K))
	if err := p.openDevices(0); err != nil {
		return err
	}
	universe, most := p.sizes()
	var o warpcore.FilterOptions
	o.Capacity, o.FalsePositives, o.Hash, o.Seed = universe, pick(p, 0, 0.001, 0.3), p.hash(1), p.Uint64()|1
	if p.chance(3) {
		o.FalsePositives, o.Bytes = 0, pick[int64](p, 8, 100, 5000, 100_000)
	}
	if !p.plain() {
		o.Block, o.Hashes = pick(p, 0, 8, 16, 32, 64), pick(p, 0, 1, 3, 16)
	}
	p.say(", %+v", o)
	f, err := warpcore.NewFilter[K](p.d(), o)
	if err != nil {
		p.count(fmt.Sprintf("refused: %.50s", err))
		return nil
	}
	defer func() {
		p.next("Close")
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	model := map[K]bool{}
	seen := func(t table.Filter[K], what string) error {
		keys := make([]K, 0, len(model))
		for k := range model {
			keys = append(keys, k)
		}
		found := make([]bool, len(keys))
		if err := t.Contains(keys, found); err != nil {
			return fmt.Errorf("Contains: %w", err)
		}
		for i, k := range keys {
			if !found[i] {
				return fmt.Errorf("%s: key %v is told not to be in", what, k)
			}
		}
		return nil
	}
	for range 3 + p.IntN(6) {
		keys := make([]K, p.rows(most))
		for i := range keys {
			keys[i] = key(p.number(universe))
		}
		p.next("Insert of %d, %d in", len(keys), len(model))
		if err := f.Insert(keys); err != nil {
			return err
		}
		for _, k := range keys {
			model[k] = true
		}
		if err := f.Check(); err != nil && !device.IsOutOfMemory(err) {
			return fmt.Errorf("Check: %w", err)
		}
		if err := seen(f, "the filter"); err != nil {
			return err
		}
		if p.chance(8) {
			p.next("Clear")
			clear(model)
			if err := f.Clear(); err != nil {
				return err
			}
			found := make([]bool, len(keys))
			if err := f.Contains(keys, found); err != nil {
				return err
			}
			for i := range found {
				if found[i] {
					return fmt.Errorf("key %v is told to be in a filter that was cleared", keys[i])
				}
			}
		}
	}
	p.next("Save and Load")
	var file bytes.Buffer
	if err = snapshot.Filter[K](f).Save(context.Background(), &file); err == nil {
		var other table.Filter[K]
		if other, err = warpmap.LoadFilter[K](context.Background(), &file, p.d(), ""); err == nil {
			err = seen(other, "what was loaded")
			other.Close()
		}
	}
	if device.IsOutOfMemory(err) {
		return nil
	}
	return err
}
