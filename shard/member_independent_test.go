package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// What members do in TestMembersOperations in the independent mode. Each knows what all bring, and so what each table
// holds.

func playIndependent(m *shard.Member) error {
	for _, family := range []string{"warpcore", "slab"} {
		if err := playOwnPairs(m, family); err != nil {
			return fmt.Errorf("%s, independent: %w", family, err)
		}
	}
	if err := errors.Join(playNoChooser(m), playOwnLists(m), playOwnKeys(m), playOwnCounts(m),
		playOwnFull(m)); err != nil {
		return fmt.Errorf("independent: %w", err)
	}
	return nil
}

// anywhere is the first member's value of a key.
func anywhere(models []map[uint32]uint32, k uint32) (value uint32, in bool) {
	for _, model := range models {
		if value, in = model[k]; in {
			return value, in
		}
	}
	return 0, false
}

func playOwnPairs(m *shard.Member, family string) error {
	x, err := shard.NewMap(m, shard.Options{Mode: shard.Independent, Piece: 1, Options: table.Options{Seed: 3}},
		families[uint32, uint32]()[family])
	if err != nil {
		return err
	}
	models := make([]map[uint32]uint32, m.Size())
	for i := range models {
		models[i] = map[uint32]uint32{}
	}
	mine := models[m.Rank()]
	for round := range 6 {
		all := brought(m.Size(), round, x.OwnerOf)
		own, values := all[m.Rank()], valuesIn(round*8+m.Rank(), all[m.Rank()])
		when, added := chosenBy(m.Rank(), round, len(own)), make([]bool, len(own))
		before := len(mine)
		switch round % 3 {
		case 0:
			err = x.Insert(own, values)
		case 1:
			err = onOwn(m.Device(), own, values, when, func(k, v device.Slice[uint32],
				w device.Slice[bool]) error {
				return x.InsertIfOn(nil, k, v, w)
			})
		case 2:
			_, err = x.InsertNew(own, values, added)
		}
		for rank, keys := range all {
			when := chosenBy(rank, round, len(keys))
			for i, k := range keys {
				if _, in := models[rank][k]; round%3 == 0 || round%3 == 1 && when[i] || round%3 == 2 && !in {
					models[rank][k] = valueIn(round*8+rank, k)
				}
			}
		}
		if err != nil || round%3 == 2 && frame.Count(added) != len(mine)-before {
			return fmt.Errorf("round %d: %d added of %d: %w", round, frame.Count(added), len(mine)-before, err)
		}
		next := append([]uint32{1, 2, 3}, all[(m.Rank()+1)%m.Size()]...)
		if err := ownLookedUp(x, models, next, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		sum := 0
		for _, model := range models {
			sum += len(model)
		}
		n, e := x.Len()
		keys, got, e2 := x.All()
		if err := errors.Join(e, e2, x.Check()); err != nil || n != sum || len(keys) != len(mine) {
			return fmt.Errorf("round %d: %d pairs of %d, and %d of %d here: %w", round, n, sum, len(keys), len(mine),
				err)
		}
		for i, k := range keys {
			if v, in := mine[k]; !in || v != got[i] {
				return fmt.Errorf("round %d: key %#x with %#x is here", round, k, got[i])
			}
		}
		if round == 3 { // of all members, whoever has them
			gone := slices.Clone(own[:len(own)/2])
			slices.Sort(gone)
			gone = slices.Compact(gone)
			deleted := make([]bool, len(gone))
			n, err := x.Delete(gone, deleted)
			if err != nil || n != frame.Count(deleted) {
				return fmt.Errorf("%d of %d deleted: %w", n, frame.Count(deleted), err)
			}
			for i, k := range gone {
				if _, in := anywhere(models, k); deleted[i] && !in || m.Size() == 1 && deleted[i] != in {
					return fmt.Errorf("key %#x, in before: %t, was deleted: %t", k, in, deleted[i])
				}
			}
			for _, keys := range all {
				for _, k := range keys[:len(keys)/2] {
					for _, model := range models {
						delete(model, k)
					}
				}
			}
		}
	}
	return errors.Join(ownOwners(x, m, family), x.Close())
}

// ownLookedUp asks all members for keys.
func ownLookedUp(x *shard.Map[uint32, uint32], models []map[uint32]uint32, keys []uint32, round int) error {
	values, found, in := valuesIn(97, keys), make([]bool, len(keys)), make([]bool, len(keys))
	when := chosenBy(5, round, len(keys))
	chosen, some := valuesIn(96, keys), make([]bool, len(keys))
	if err := errors.Join(x.Find(keys, values, found), x.Contains(keys, in), x.FindIf(keys, when, chosen, some),
		x.Find(keys, nil, nil)); err != nil {
		return err
	}
	for i, k := range keys {
		v, there := anywhere(models, k)
		if values[i] != v || found[i] != there || in[i] != there {
			return fmt.Errorf("key %#x: found %t and %t with %#x, want %t with %#x", k, found[i], in[i], values[i],
				there, v)
		}
		if !when[i] {
			v, there = 0, false
		}
		if chosen[i] != v || some[i] != there {
			return fmt.Errorf("key %#x, chosen: %t: found %t with %#x, want %t with %#x", k, when[i], some[i],
				chosen[i], there, v)
		}
	}
	return nil
}

// ownOwners: what sends keys to their owners is refused while they are elsewhere, and does as ever in a table that is
// empty.
func ownOwners(x *shard.Map[uint32, uint32], m *shard.Member, family string) error {
	one, out := []uint32{4}, make([]uint32, 1)
	calls := []func() error{
		func() error { return x.Update(one, one, table.Add) },
		func() error { _, err := x.FindOrInsert(one, one, out, nil); return err },
	}
	if family == "slab" {
		calls = append(calls, func() error { return x.Mixed([]table.Op{table.OpFind}, one, one, out, nil) })
	}
	for i, call := range calls {
		if err := call(); (err == nil) != (m.Size() == 1) || err != nil && !strings.Contains(err.Error(),
			"choose the distributed mode") {
			return fmt.Errorf("call %d of keys that are elsewhere: %w", i, err)
		}
	}
	if err := errors.Join(x.Clear(), x.Insert(nil, nil)); err != nil { // nothing stays nowhere
		return err
	}
	for i, call := range calls {
		if err := call(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	if n, err := x.Len(); n != 1 || err != nil || out[0] != uint32(4*m.Size()) {
		return fmt.Errorf("%d pairs, and %d for 4 of each of %d members: %w", n, out[0], m.Size(), err)
	}
	return nil
}

// playNoChooser: where chosen rows stay, the member's family must have them.
func playNoChooser(m *shard.Member) error {
	x, err := shard.NewMap(m, shard.Options{Mode: shard.Independent}, families[uint32, uint32]()["gph"])
	if err != nil {
		return err
	}
	one, found := []uint32{1}, make([]bool, 1)
	if err := x.InsertIf(one, one, []bool{true}); err == nil || !strings.Contains(err.Error(), "gph have no InsertIf") {
		return fmt.Errorf("gph has an InsertIf: %w", err)
	}
	if err := errors.Join(x.Insert(one, one), x.ContainsIf(one, []bool{true}, found)); err != nil || !found[0] {
		return fmt.Errorf("a key is found: %t, %w", found[0], err)
	}
	return x.Close()
}

// playOwnLists: the values that members have of a key come one after the other.
func playOwnLists(m *shard.Member) error {
	x, err := shard.NewMultiMap(m, shard.Options{Mode: shard.Independent, Piece: 1},
		multiMaps[uint32, uint64]()["slab"])
	if err != nil {
		return err
	}
	model := map[uint32][]uint64{}
	for round := range 5 {
		all := brought(m.Size(), round, x.OwnerOf)
		if round%4 == 2 {
			for rank, keys := range all {
				all[rank] = keys[:min(len(keys), 90)] // one key
			}
		}
		var values []uint64
		for rank, keys := range all {
			for i, k := range keys {
				v := uint64(round*100_000 + rank*10_000 + i)
				model[k] = append(model[k], v)
				if rank == m.Rank() {
					values = append(values, v)
				}
			}
		}
		if err := x.Insert(all[m.Rank()], values); err != nil {
			return err
		}
		if round == 3 {
			before := 0
			for _, keys := range all {
				for _, k := range keys {
					before += len(model[k])
					delete(model, k)
				}
			}
			if n, err := x.Delete(all[m.Rank()], nil); n != before || err != nil {
				return fmt.Errorf("a multimap: %d pairs deleted of %d: %w", n, before, err)
			}
		}
		asked := append([]uint32{1, 2}, all[(m.Rank()+1)%m.Size()]...)
		if m.Rank() == 1 && round == 4 {
			asked = nil
		}
		if err := ownLists(x, model, asked); err != nil {
			return err
		}
	}
	return errors.Join(x.Check(), x.Close())
}

func ownLists(x *shard.MultiMap[uint32, uint64], model map[uint32][]uint64, asked []uint32) error {
	counts, found := make([]uint32, len(asked)), make([]bool, len(asked))
	offsets, values, err := x.FindAll(asked)
	if err := errors.Join(err, x.Count(asked, counts), x.Contains(asked, found)); err != nil {
		return err
	}
	for i, k := range asked {
		got, want := slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]])), slices.Sorted(slices.Values(model[k]))
		if !slices.Equal(got, want) || int(counts[i]) != len(want) || found[i] != (len(want) > 0) {
			return fmt.Errorf("a multimap: key %#x has %d values, %d by their count, found: %t, want %d", k, len(got),
				counts[i], found[i], len(want))
		}
	}
	return nil
}

// playOwnKeys: a set has the keys that any member has.
func playOwnKeys(m *shard.Member) error {
	s, err := shard.NewSet(m, shard.Options{Mode: shard.Independent},
		warpcoreSet)
	if err != nil {
		return err
	}
	mine, model := map[uint32]bool{}, map[uint32]bool{}
	for round := range 3 {
		all := brought(m.Size(), round, s.OwnerOf)
		before := len(mine)
		for rank, keys := range all {
			for _, k := range keys {
				model[k] = true
				if rank == m.Rank() {
					mine[k] = true
				}
			}
		}
		if n, err := s.Insert(all[m.Rank()], nil); err != nil || n != len(mine)-before {
			return fmt.Errorf("a set: %d keys added of %d: %w", n, len(mine)-before, err)
		}
		asked := append([]uint32{1, 2, 3}, slices.Concat(all...)...)
		found := make([]bool, len(asked))
		if err := s.Contains(asked, found); err != nil {
			return err
		}
		for i, k := range asked {
			if found[i] != model[k] {
				return fmt.Errorf("a set: key %#x is found: %t", k, found[i])
			}
		}
	}
	return errors.Join(s.Check(), s.Close())
}

// playOwnCounts: the counts that members have of a key are added up.
func playOwnCounts(m *shard.Member) error {
	c, err := shard.NewCounter(m, shard.Options{Mode: shard.Independent, Piece: 1},
		counting(false))
	if err != nil {
		return err
	}
	model := map[uint32]uint32{}
	for round := range 4 {
		all := brought(m.Size(), round, c.OwnerOf)
		for rank, keys := range all {
			for _, k := range keys {
				model[k] += uint32(1 + round%2*rank)
			}
		}
		own := all[m.Rank()]
		if round%2 == 0 {
			err = c.Add(own)
		} else {
			err = c.AddCounts(own, slices.Repeat([]uint32{uint32(1 + m.Rank())}, len(own)))
		}
		asked := append(slices.Clone(all[m.Size()-1]), 1, 2, 3)
		counts, found := make([]uint32, len(asked)), make([]bool, len(asked))
		if err := errors.Join(err, c.Find(asked, counts, found)); err != nil {
			return err
		}
		for i, k := range asked {
			if n, in := model[k]; found[i] != in || counts[i] != n {
				return fmt.Errorf("a counter: key %#x came %d times, %t, want %d", k, counts[i], found[i], n)
			}
		}
	}
	keys, often, err := c.Top(20)
	if err != nil || len(keys) != min(20, len(model)) || !slices.IsSortedFunc(often,
		func(a, b uint32) int { return int(b) - int(a) }) {
		return fmt.Errorf("%d keys came most often, %v: %w", len(keys), often, err)
	}
	for i, k := range keys {
		if often[i] != model[k] {
			return fmt.Errorf("key %#x came %d times, want %d", k, often[i], model[k])
		}
		delete(model, k)
	}
	for k, n := range model {
		if n > often[len(often)-1] {
			return fmt.Errorf("key %#x came %d times, and is not among those that came most often", k, n)
		}
	}
	if _, _, err := c.Top(-1); err == nil {
		return errors.New("a counter gives less than no keys")
	}
	return errors.Join(c.Check(), c.Close())
}

// playOwnFull: one member's table is full. It hears of its positions, and the others of nothing.
func playOwnFull(m *shard.Member) error {
	x, err := shard.NewMap(m, shard.Options{Mode: shard.Independent,
		Options: table.Options{MaxBytes: int64(m.Size()) << 14, Seed: 9}}, families[uint32, uint32]()["slab"])
	if err != nil {
		return err
	}
	keys := make([]uint32, 10)
	if m.Rank() == m.Size()-1 {
		keys = make([]uint32, 9000)
	}
	for i := range keys {
		keys[i] = uint32(i*64 + m.Rank())
	}
	var full *table.FullError
	err = x.Insert(keys, keys)
	if big := len(keys) > 10; big != errors.As(err, &full) || !big && err != nil || big && !errors.Is(err,
		table.ErrMaxBytes) {
		return fmt.Errorf("a member with %d keys: %w", len(keys), err)
	}
	in := make([]bool, len(keys))
	if err := x.Contains(keys, in); err != nil {
		return err
	}
	for i, there := range in {
		if named := full != nil && slices.Contains(full.Positions, i); named == there {
			return fmt.Errorf("position %d is named: %t, and is in: %t", i, named, there)
		}
	}
	return x.Close()
}
