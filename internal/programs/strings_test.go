package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// stringsProgram has maps of strings over every family.
func stringsProgram(p *program) (err error) {
	family := pick(p, warpmap.Families(table.KindMap)...)
	p.say("%s,", family)
	if err := p.openDevices(0); err != nil {
		return err
	}
	o := text.Options{Options: p.random(), KeyBytes: pick(p, 0, 1, 8, 100)}
	p.say(", %+v", o)
	m, err := warpmap.NewStrings[uint32](p.d(), family, o)
	if err != nil {
		p.count(fmt.Sprintf("refused: %.50s", err))
		return nil
	}
	defer func() {
		p.next("Close")
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	model, last := map[string]uint32{}, uint32(0)
	universe, most := p.sizes()
	universe, most = min(universe, 3000), min(most, 3000)
	long := pick(p, 1, 10, 100, 2000)
	name := func() string {
		x := p.number(universe)
		s := fmt.Sprint(x)
		return s + strings.Repeat("\x00", int(x%3)) + strings.Repeat("x", int(x*0x9e3779b97f4a7c15>>40)%long)
	}
	for range 4 + p.IntN(10) {
		n := p.rows(most)
		keys, values, flags := make([]string, n), make([]uint32, n), make([]bool, n)
		for i := range keys {
			last++
			keys[i], values[i] = name(), last
		}
		batch := text.Of(keys...)
		got, found := make([]uint32, n), make([]bool, n)
		switch op := p.IntN(10); {
		case op < 6:
			fresh := op < 2
			p.next("Insert of %d, new %t, %d in", n, fresh, len(model))
			var gone int
			var err error
			if fresh {
				gone, err = m.InsertNew(batch, values, flags)
			} else {
				err = m.Insert(batch, values)
			}
			refused, err := p.refused(err, n)
			if err != nil {
				return err
			}
			if err := m.Find(batch, got, found); err != nil {
				return fmt.Errorf("Find: %w", err)
			}
			may, let := map[string]map[uint32]bool{}, map[string]bool{}
			for i, k := range keys {
				if may[k] == nil {
					may[k] = map[uint32]bool{}
				}
				may[k][values[i]] = true
				let[k] = let[k] || !refused[i]
			}
			times, news, after := map[string]int{}, 0, map[string]uint32{}
			for i, k := range keys {
				old, was := model[k]
				if found[i] == refused[i] || found[i] != (was || let[k]) {
					return fmt.Errorf("key %.40q: refused %t, in %t, was in %t", k, refused[i], found[i], was)
				}
				if flags[i] {
					times[k]++
				}
				if !found[i] {
					continue
				}
				if fresh && was && got[i] != old || !(fresh && was) && !may[k][got[i]] {
					return fmt.Errorf("key %.40q has %d, had %d", k, got[i], old)
				}
				after[k] = got[i]
			}
			for k, v := range after {
				_, was := model[k]
				if !was {
					news++
				}
				if fresh && (times[k] == 1) == was {
					return fmt.Errorf("key %.40q was in %t, and is told to be added %d times", k, was, times[k])
				}
				model[k] = v
			}
			if fresh && gone != news {
				return fmt.Errorf("%d are told to be added, %d were", gone, news)
			}
		case op < 8:
			p.next("Delete of %d, %d in", n, len(model))
			gone, err := m.Delete(batch, flags)
			if err != nil {
				return err
			}
			want := 0
			for _, k := range keys {
				if _, in := model[k]; in {
					want++
					delete(model, k)
				}
			}
			if gone != want {
				return fmt.Errorf("%d are told to be deleted, %d were", gone, want)
			}
		case op < 9:
			p.next("Grow")
			err := m.Grow(p.IntN(2 * universe))
			if err != nil && !errors.Is(err, table.ErrMaxBytes) && !device.IsOutOfMemory(err) {
				return err
			}
		default:
			if p.chance(3) {
				p.next("Clear")
				clear(model)
				if err := m.Clear(); err != nil {
					return err
				}
			}
		}
		if p.chance(2) {
			continue
		}
		p.next("All, %d in", len(model))
		if err := m.Check(); err != nil && !device.IsOutOfMemory(err) {
			return fmt.Errorf("Check: %w", err)
		}
		count, err := m.Len()
		if err != nil || count != len(model) {
			return fmt.Errorf("Len is %d, want %d: %w", count, len(model), err)
		}
		all, vals, err := m.All()
		if err == nil {
			err = sameStrings("All", all, vals, model)
		}
		if err != nil && !device.IsOutOfMemory(err) {
			return err
		}
	}
	if p.stress || p.options.Hash == 3 {
		return nil
	}
	p.next("Save and Load")
	var file bytes.Buffer
	if err = snapshot.Strings(m).Save(context.Background(), &file); err == nil {
		var other *warpmap.Strings[uint32]
		family := pick(p, warpmap.Families(table.KindMap)...)
		if other, err = warpmap.LoadStrings[uint32](context.Background(), &file, p.d(), family, text.Options{}); err == nil {
			defer other.Close()
			var all text.Keys
			var vals []uint32
			if all, vals, err = other.All(); err == nil {
				err = sameStrings("what was loaded", all, vals, model)
			}
		}
	}
	var full *table.FullError
	if device.IsOutOfMemory(err) || errors.As(err, &full) {
		return nil
	}
	return err
}

func sameStrings(what string, keys text.Keys, values []uint32, model map[string]uint32) error {
	if keys.Len() != len(model) || len(values) != len(model) {
		return fmt.Errorf("%s has %d keys and %d values, want %d", what, keys.Len(), len(values), len(model))
	}
	seen := map[string]bool{}
	for i := range values {
		k := string(keys.At(i))
		if v, in := model[k]; !in || v != values[i] || seen[k] {
			return fmt.Errorf("%s has key %.40q with %d, want %d, in %t, twice %t", what, k, values[i], v, in, seen[k])
		}
		seen[k] = true
	}
	return nil
}
