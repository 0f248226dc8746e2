package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// What members do in TestMembersOperations with chosen rows, FindOrInsert and mixed batches. Each knows what all bring.

// hold has slices on a device for a call.
type hold struct {
	d    *device.Device
	free []func() error
	err  error
}

func lent[T any](h *hold, x []T) device.Slice[T] {
	s, err := device.From(h.d, x)
	h.err = errors.Join(h.err, err)
	h.free = append(h.free, s.Free)
	return s
}

func taken[T any](h *hold, s device.Slice[T], to []T) { h.err = errors.Join(h.err, s.Read(nil, to)) }

func (h *hold) done(err error) error {
	err = errors.Join(h.err, err)
	for _, free := range h.free {
		err = errors.Join(err, free())
	}
	return err
}

// chosenBy are the rows that a member chooses, about half of them.
func chosenBy(rank, round, n int) (when []bool) {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(1000+round)))
	for range n {
		when = append(when, rng.IntN(2) == 0)
	}
	return when
}

// mixedBy are operations of a member on keys that no other brings, each once, so that all outcomes are known.
func mixedBy(size, rank, round int, keys []uint32) (ops []table.Op, once []uint32) {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(2000+round)))
	keys = slices.Clone(keys)
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		if int(k>>7)%size == rank {
			once, ops = append(once, k), append(ops, table.Op(rng.IntN(4)))
		}
	}
	return ops, once
}

// chooser is a member's map beside a Go map.
type chooser struct {
	*shard.Map[uint32, uint32]
	m     *shard.Member
	model map[uint32]uint32
	on    bool // batches are on the device
}

func playChoices(m *shard.Member) error {
	for _, family := range someFamilies(m) {
		x, err := shard.NewMap(m, shard.Options{Piece: 1, Options: table.Options{Seed: 6}},
			families[uint32, uint32]()[family])
		if err != nil {
			return err
		}
		c := &chooser{Map: x, m: m, model: map[uint32]uint32{}}
		for round := range 8 {
			c.on = round/4%2 == 1
			if err := c.step(family, round); err != nil {
				return fmt.Errorf("%s, round %d: %w", family, round, err)
			}
		}
		if err := errors.Join(c.lacking(family), x.Close()); err != nil {
			return fmt.Errorf("%s: %w", family, err)
		}
	}
	return errors.Join(playChosenKeys(m), playFullChoices(m))
}

func (c *chooser) step(family string, round int) (err error) {
	all := brought(c.m.Size(), round, c.OwnerOf)
	switch what := round % 4; {
	case what == 1 && family != "gph":
		err = c.findOrInsert(all, round)
	case what == 2 && family != "gph" && family != "warpcore":
		err = c.mixed(all, round)
	default:
		err = c.insertIf(all, round)
	}
	if err != nil {
		return err
	}
	next := (c.m.Rank() + 1) % c.m.Size()
	err = errors.Join(c.findIf(all[next], round), lookedUp(c.Map, c.model, all[next]),
		ownPart(c.Map, c.model, c.m.Rank()), c.Check())
	if round == 3 {
		err = errors.Join(err, playDelete(c.Map, c.model, all, c.m.Rank()))
	}
	return err
}

func (c *chooser) insertIf(all [][]uint32, round int) error {
	for rank, keys := range all {
		when := chosenBy(rank, round, len(keys))
		for i, k := range keys {
			if when[i] {
				c.model[k] = valueIn(round, k)
			}
		}
	}
	own := all[c.m.Rank()]
	when := chosenBy(c.m.Rank(), round, len(own))
	if !c.on {
		return c.InsertIf(own, valuesIn(round, own), when)
	}
	h := &hold{d: c.m.Device()}
	return h.done(c.InsertIfOn(nil, lent(h, own), lent(h, valuesIn(round, own)), lent(h, when)))
}

func (c *chooser) findIf(keys []uint32, round int) error {
	when := chosenBy(7, round, len(keys))
	values, found, in := valuesIn(99, keys), chosenBy(8, round, len(keys)), chosenBy(9, round, len(keys))
	if c.on {
		h := &hold{d: c.m.Device()}
		k, w, v, i := lent(h, keys), lent(h, when), lent(h, values), lent(h, in)
		err := errors.Join(c.ContainsIfOn(nil, k, w, i), c.FindIfOn(nil, k, w, v, w)) // the flags in the condition's place
		taken(h, v, values)
		taken(h, w, found)
		taken(h, i, in)
		if err := h.done(err); err != nil {
			return err
		}
	} else if err := errors.Join(c.FindIf(keys, when, values, found), c.ContainsIf(keys, when, in)); err != nil {
		return err
	}
	for i, k := range keys {
		v, there := c.model[k]
		if !when[i] {
			v, there = 0, false
		}
		if found[i] != there || in[i] != there || values[i] != v {
			return fmt.Errorf("key %#x, chosen: %t: found %t and %t with %#x, want %t with %#x", k, when[i], found[i],
				in[i], values[i], there, v)
		}
	}
	return nil
}

func (c *chooser) findOrInsert(all [][]uint32, round int) error {
	own := all[c.m.Rank()]
	out, added := valuesIn(round, own), make([]bool, len(own))
	if c.on {
		h := &hold{d: c.m.Device()}
		k, v, f := lent(h, own), lent(h, out), lent(h, added)
		err := c.FindOrInsertOn(nil, k, v, v, f) // in the values' place
		taken(h, v, out)
		taken(h, f, added)
		if err := h.done(err); err != nil {
			return err
		}
	} else if n, err := c.FindOrInsert(own, slices.Clone(out), out, added); err != nil || n != frame.Count(added) {
		return fmt.Errorf("%d of %d added: %w", n, frame.Count(added), err)
	}
	if err := addedOnce(c.model, all, c.m.Rank(), round, added); err != nil {
		return err
	}
	for i, k := range own {
		if out[i] != c.model[k] {
			return fmt.Errorf("key %#x: found or inserted %#x, want %#x", k, out[i], c.model[k])
		}
	}
	return nil
}

func (c *chooser) mixed(all [][]uint32, round int) error {
	var results []uint32
	var status []table.Status
	for rank, keys := range all {
		ops, keys := mixedBy(c.m.Size(), rank, round, keys)
		for i, k := range keys {
			old, in := c.model[k]
			result, became := uint32(0), table.Absent
			if in {
				became = table.Present
			}
			switch ops[i] {
			case table.OpFind:
				result = old
			case table.OpDelete:
				delete(c.model, k)
			default:
				if !in {
					became = table.Added
				}
				if !in || ops[i] == table.OpInsert {
					c.model[k] = valueIn(round, k)
				}
			}
			if rank == c.m.Rank() {
				results, status = append(results, result), append(status, became)
			}
		}
	}
	ops, keys := mixedBy(c.m.Size(), c.m.Rank(), round, all[c.m.Rank()])
	got, became := valuesIn(98, keys), make([]table.Status, len(keys))
	if c.on {
		h := &hold{d: c.m.Device()}
		v, r, st := lent(h, valuesIn(round, keys)), lent(h, got), lent(h, became)
		err := c.MixedOn(nil, lent(h, ops), lent(h, keys), v, r, st)
		taken(h, r, got)
		taken(h, st, became)
		if err := h.done(err); err != nil {
			return err
		}
	} else if err := c.Mixed(ops, keys, valuesIn(round, keys), got, became); err != nil {
		return err
	}
	if !slices.Equal(got, results) || !slices.Equal(became, status) {
		return fmt.Errorf("a mixed batch gives %v and %v, want %v and %v", got, became, results, status)
	}
	finds := slices.Repeat([]table.Op{table.OpFind}, len(keys))
	if err := c.Mixed(finds, keys, valuesIn(round, keys), nil, nil); err != nil { // wants nothing back
		return err
	}
	return nil
}

// lacking: what a family has not is an error of all, and nothing changes.
func (c *chooser) lacking(family string) error {
	one := []uint32{1}
	_, foi := c.FindOrInsert(one, one, make([]uint32, 1), nil)
	mixed := c.Mixed([]table.Op{table.OpInsert}, one, one, nil, nil)
	if lacks := family == "gph"; lacks != (foi != nil) {
		return fmt.Errorf("FindOrInsert: %w", foi)
	}
	if lacks := family == "gph" || family == "warpcore"; lacks != (mixed != nil) {
		return fmt.Errorf("Mixed: %w", mixed)
	}
	return nil
}

// playChosenKeys is for sets.
func playChosenKeys(m *shard.Member) error {
	s, err := shard.NewSet(m, shard.Options{Piece: 1},
		slabSet)
	if err != nil {
		return err
	}
	model := map[uint32]bool{}
	for round := range 6 {
		all := brought(m.Size(), round, s.OwnerOf)
		own, on := all[m.Rank()], round >= 3
		when := chosenBy(m.Rank(), round, len(own))
		added := slices.Repeat([]bool{true}, len(own))
		h := &hold{d: m.Device()}
		if on {
			f := lent(h, added)
			err = s.InsertIfOn(nil, lent(h, own), lent(h, when), f)
			taken(h, f, added)
		} else {
			_, err = s.InsertIf(own, when, added)
		}
		for i, k := range own {
			if added[i] && (!when[i] || model[k]) {
				err = errors.Join(err, fmt.Errorf("a set: key %#x, chosen: %t, in before: %t, was added", k, when[i],
					model[k]))
			}
		}
		for rank, keys := range all {
			for i, w := range chosenBy(rank, round, len(keys)) {
				model[keys[i]] = model[keys[i]] || w
			}
		}
		found := slices.Repeat([]bool{true}, len(own))
		if on {
			w := lent(h, when)
			err = errors.Join(err, s.ContainsIfOn(nil, lent(h, own), w, w))
			taken(h, w, found)
		} else {
			err = errors.Join(err, s.ContainsIf(own, when, found))
		}
		for i, k := range own {
			if found[i] != (when[i] && model[k]) {
				err = errors.Join(err, fmt.Errorf("a set: key %#x, chosen: %t, is found: %t", k, when[i], found[i]))
			}
		}
		ops, once := mixedBy(m.Size(), m.Rank(), round, own)
		status := make([]table.Status, len(once))
		if on {
			st := lent(h, status)
			err = errors.Join(err, s.MixedOn(nil, lent(h, ops), lent(h, once), st))
			taken(h, st, status)
		} else {
			err = errors.Join(err, s.Mixed(ops, once, status))
		}
		for i, k := range once {
			if (status[i] == table.Present) != model[k] {
				err = errors.Join(err, fmt.Errorf("a set: %v of key %#x, in before: %t, is %v", ops[i], k, model[k],
					status[i]))
			}
		}
		for rank, keys := range all {
			ops, once := mixedBy(m.Size(), rank, round, keys)
			for i, k := range once {
				if ops[i] != table.OpFind {
					model[k] = ops[i] != table.OpDelete
				}
			}
		}
		in := 0
		for _, there := range model {
			if there {
				in++
			}
		}
		n, e := s.Len()
		if err := h.done(errors.Join(err, e, s.Check())); err != nil || n != in {
			return fmt.Errorf("a set, round %d: %d keys, want %d: %w", round, n, in, err)
		}
	}
	return s.Close()
}

// playFullChoices overfills maps: what is named is what was chosen and is not in, and nothing else is amiss.
func playFullChoices(m *shard.Member) error {
	rng := rand.New(rand.NewPCG(4, uint64(m.Rank())))
	o := overfilled{m: m}
	for i := range uint32(9000) { // this member's own
		o.keys, o.values = append(o.keys, uint32(rng.IntN(6000))*64+uint32(m.Rank())), append(o.values, i)
	}
	o.when, o.ops = chosenBy(m.Rank(), 5, len(o.keys)), slices.Repeat([]table.Op{table.OpInsertNew}, len(o.keys))
	options := shard.Options{Piece: 1, Options: table.Options{MaxBytes: int64(m.Size()) << 14, Seed: 9}}
	for _, o.on = range []bool{false, true} {
		for i, call := range []func() error{o.insertIf, o.findOrInsert, o.mixed} {
			var err error
			if o.Map, err = shard.NewMap(m, options, families[uint32, uint32]()["slab"]); err != nil {
				return err
			}
			if err := errors.Join(call(), o.Close()); err != nil {
				return fmt.Errorf("call %d of slab, on the device: %t: %w", i, o.on, err)
			}
		}
	}
	return nil
}

// overfilled is a map that is too small, and what it is to take in.
type overfilled struct {
	*shard.Map[uint32, uint32]
	m            *shard.Member
	keys, values []uint32
	when         []bool
	ops          []table.Op
	on           bool // batches are on the device
}

// named are the positions that an error says found no room.
func named(err error) (map[int]bool, error) {
	var full *table.FullError
	if !errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes) {
		return nil, fmt.Errorf("a map that is too small: %w", err)
	}
	lost := map[int]bool{}
	for _, p := range full.Positions {
		lost[p] = true
	}
	return lost, nil
}

func (o *overfilled) insertIf() error {
	h := &hold{d: o.m.Device()}
	var err error
	if o.on {
		err = o.InsertIfOn(nil, lent(h, o.keys), lent(h, o.values), lent(h, o.when))
	} else {
		err = o.InsertIf(o.keys, o.values, o.when)
	}
	lost, err := named(err)
	in := make([]bool, len(o.keys))
	if err := h.done(errors.Join(err, o.Contains(o.keys, in))); err != nil {
		return err
	}
	for i := range o.keys {
		if lost[i] != (o.when[i] && !in[i]) {
			return fmt.Errorf("position %d, chosen: %t, in: %t, is named: %t", i, o.when[i], in[i],
				lost[i])
		}
	}
	return nil
}

func (o *overfilled) findOrInsert() error {
	out, added := slices.Clone(o.values), slices.Repeat([]bool{true}, len(o.keys))
	h := &hold{d: o.m.Device()}
	var err error
	if o.on {
		v, f := lent(h, o.values), lent(h, added)
		err = o.FindOrInsertOn(nil, lent(h, o.keys), v, v, f)
		taken(h, v, out)
		taken(h, f, added)
	} else {
		_, err = o.FindOrInsert(o.keys, o.values, out, added)
	}
	lost, err := named(err)
	there, in, times := make([]uint32, len(o.keys)), make([]bool, len(o.keys)), map[uint32]int{}
	if err := h.done(errors.Join(err, o.Find(o.keys, there, in))); err != nil {
		return err
	}
	for i, k := range o.keys {
		if added[i] {
			times[k]++
		}
	}
	for i, k := range o.keys {
		if lost[i] == in[i] || out[i] != there[i] || in[i] != (times[k] == 1) || times[k] > 1 {
			return fmt.Errorf("position %d, in: %t, is named: %t, has %d, want %d; added %d times", i,
				in[i], lost[i], out[i], there[i], times[k])
		}
	}
	return nil
}

func (o *overfilled) mixed() error {
	status := make([]table.Status, len(o.keys))
	h := &hold{d: o.m.Device()}
	var err error
	if o.on {
		st := lent(h, status)
		err = o.MixedOn(nil, lent(h, o.ops), lent(h, o.keys), lent(h, o.values), device.Slice[uint32]{}, st)
		taken(h, st, status)
	} else {
		err = o.Mixed(o.ops, o.keys, o.values, nil, status)
	}
	lost, err := named(err)
	in, out := make([]bool, len(o.keys)), 0
	if err := h.done(errors.Join(err, o.Contains(o.keys, in))); err != nil {
		return err
	}
	for i := range o.keys {
		if lost[i] != (status[i] == table.NoRoom) || !lost[i] && !in[i] {
			return fmt.Errorf("position %d, %v, in: %t, is named: %t", i, status[i], in[i], lost[i])
		}
		if lost[i] {
			out++
		}
	}
	// Of operations that want no outcomes those without room are named, too.
	err = o.Mixed(o.ops, o.keys, o.values, nil, nil)
	if again, err := named(err); err != nil || len(again) != len(o.keys)-frame.Count(in) {
		return fmt.Errorf("%d positions are named, of %d: %w", len(again), len(o.keys)-frame.Count(in),
			err)
	}
	return nil
}
