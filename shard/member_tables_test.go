package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// What members do in TestMembersOperations. Each knows what all bring, and so what all tables hold.

// brought are the batches of all members in a round: keys of a few thousand, and in some rounds all of one owner, or
// one key again and again.
func brought(size, round int, owner func(key uint64) int) [][]uint32 {
	all := make([][]uint32, size)
	for rank := range all {
		rng := rand.New(rand.NewPCG(uint64(rank), uint64(round)))
		n := []int{3000, 0, 1, 2500}[(rank+round)%4]
		for len(all[rank]) < n {
			k := uint32(rng.IntN(4000)) * 0x9e3779b1
			switch round % 4 {
			case 1:
				if owner(uint64(k)) != round%size {
					continue
				}
			case 2:
				k = ^uint32(0)
			}
			all[rank] = append(all[rank], k)
		}
	}
	return all
}

func valueIn(round int, key uint32) uint32 { return key ^ uint32(round)*0x01010101 }

func valuesIn(round int, keys []uint32) []uint32 {
	out := make([]uint32, len(keys))
	for i, k := range keys {
		out[i] = valueIn(round, k)
	}
	return out
}

// onOwn does a call with slices on the member's device, and frees them.
func onOwn(d *device.Device, keys, values []uint32, flags []bool,
	call func(k, v device.Slice[uint32], f device.Slice[bool]) error) (err error) {
	k, e1 := device.From(d, keys)
	v, e2 := device.From(d, values)
	f, e3 := device.From(d, flags)
	if err := errors.Join(e1, e2, e3); err != nil {
		return err
	}
	err = call(k, v, f)
	if flags != nil {
		err = errors.Join(err, f.Read(nil, flags))
	}
	return errors.Join(err, v.Read(nil, values), k.Free(), v.Free(), f.Free())
}

// someFamilies are the families whose maps members go through: in short runs on the CPU one that has all operations and
// one that lacks some.
func someFamilies(m *shard.Member) []string {
	if testenv.Long() || m.Device().Info().CUDA() {
		return []string{"warpcore", "slab", "dycuckoo", "stadium", "gph"}
	}
	return []string{"slab", "gph"}
}

func playOperations(m *shard.Member) (err error) {
	for _, family := range someFamilies(m) {
		x, err := shard.NewMap(m, shard.Options{Piece: 1, Options: table.Options{Seed: 5}},
			families[uint32, uint32]()[family])
		if err != nil {
			return err
		}
		if err := errors.Join(playMap(m, x, family), x.Close()); err != nil {
			return fmt.Errorf("rank %d, %s: %w", m.Rank(), family, err)
		}
	}
	newMap := families[uint32, uint32]()["warpcore"]
	sums, err := shard.NewMap(m, shard.Options{Piece: 1, Options: table.Options{Seed: 5}}, summed(newMap))
	if err != nil {
		return err
	}
	if err := errors.Join(playMap(m, sums, "warpcore"), sums.Close()); err != nil {
		return fmt.Errorf("rank %d, sums: %w", m.Rank(), err)
	}
	if err := errors.Join(playFull(m, newMap), playFull(m, summed(newMap)), playParts(m), playSet(m), playCounter(m, counting(false)),
		playSummed(m), playMultiMap[uint32](m, "warpcore"),
		playMultiMap[uint64](m, "slab"), playFullMultiMap(m)); err != nil {
		return fmt.Errorf("rank %d: %w", m.Rank(), err)
	}
	return nil
}

func playMap(m *shard.Member, x *shard.Map[uint32, uint32], family string) error {
	model, d := map[uint32]uint32{}, m.Device()
	for round := range 8 {
		all := brought(m.Size(), round, x.OwnerOf)
		own := all[m.Rank()]
		values := valuesIn(round, own)
		var err error
		switch {
		case round%4 == 3:
			err = playNew(x, d, model, all, m.Rank(), round)
		case round < 2 || family == "gph":
			for _, keys := range all {
				for _, k := range keys {
					model[k] = valueIn(round, k)
				}
			}
			if round%2 == 0 {
				err = x.Insert(own, values)
			} else {
				err = onOwn(d, own, values, nil, func(k, v device.Slice[uint32],
					_ device.Slice[bool]) error {
					return x.InsertOn(nil, k, v)
				})
			}
		default:
			for _, keys := range all {
				for _, k := range keys {
					model[k] += valueIn(round, k)
				}
			}
			if round%2 == 0 {
				err = x.Update(own, values, table.Add)
			} else {
				err = onOwn(d, own, values, nil, func(k, v device.Slice[uint32],
					_ device.Slice[bool]) error {
					return x.UpdateOn(nil, k, v, table.Add)
				})
			}
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if round == 5 {
			if err := playDelete(x, model, all, m.Rank()); err != nil {
				return err
			}
		}
		if err := errors.Join(lookedUp(x, model, all[(m.Rank()+1)%m.Size()]), ownPart(x, model, m.Rank()),
			x.Check()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if err := x.Update([]uint32{1}, nil, table.Add); err == nil {
		return errors.New("a batch without values was combined")
	}
	if family == "gph" {
		if err := x.Update(nil, nil, table.Add); err == nil {
			return errors.New("gph has Update")
		}
	}
	return nil
}

// playNew is a round of InsertNew. Of a key that several bring one is added; which member hears of it is not told.
func playNew(x *shard.Map[uint32, uint32], d *device.Device, model map[uint32]uint32, all [][]uint32, rank,
	round int) error {
	added := make([]bool, len(all[rank]))
	values := valuesIn(round, all[rank])
	if round == 3 {
		if n, err := x.InsertNew(all[rank], values, added); err != nil || n != frame.Count(added) {
			return fmt.Errorf("%d of %d added, %w", n, frame.Count(added), err)
		}
	} else if err := onOwn(d, all[rank], values, added, func(k, v device.Slice[uint32],
		f device.Slice[bool]) error {
		return x.InsertNewOn(nil, k, v, f)
	}); err != nil {
		return err
	}
	return addedOnce(model, all, rank, round, added)
}

// addedOnce sees that a member was told that new keys are added as they were, and puts the keys of all members into the
// model.
func addedOnce(model map[uint32]uint32, all [][]uint32, rank, round int, added []bool) error {
	alone := map[uint32]int{} // how many of the members bring a key
	for _, keys := range all {
		seen := map[uint32]bool{}
		for _, k := range keys {
			if !seen[k] {
				alone[k]++
			}
			seen[k] = true
		}
	}
	mine, times := map[uint32]bool{}, map[uint32]int{}
	for i, k := range all[rank] {
		mine[k] = true
		if added[i] {
			times[k]++
		}
	}
	for k := range mine {
		_, in := model[k]
		if in && times[k] > 0 || times[k] > 1 || !in && alone[k] == 1 && times[k] != 1 {
			return fmt.Errorf("key %#x, in before: %t, was added %d times", k, in, times[k])
		}
	}
	for _, keys := range all {
		for _, k := range keys {
			if _, in := model[k]; !in {
				model[k] = valueIn(round, k)
			}
		}
	}
	return nil
}

func playDelete(x *shard.Map[uint32, uint32], model map[uint32]uint32, all [][]uint32, rank int) error {
	before := len(model)
	for _, keys := range all {
		for _, k := range keys {
			delete(model, k)
		}
	}
	deleted := make([]bool, len(all[rank]))
	if n, err := x.Delete(all[rank], deleted); err != nil || n != frame.Count(deleted) || n > before-len(model) {
		return fmt.Errorf("%d deleted of %d: %w", n, before-len(model), err)
	}
	if len(all) == 1 && frame.Count(deleted) != before-len(model) {
		return fmt.Errorf("%d deleted of %d", frame.Count(deleted), before-len(model))
	}
	return nil
}

func lookedUp(x *shard.Map[uint32, uint32], model map[uint32]uint32, keys []uint32) error {
	keys = append([]uint32{1, 2, 3}, keys...)
	values, found, in := make([]uint32, len(keys)), make([]bool, len(keys)), make([]bool, len(keys))
	if err := errors.Join(x.Find(keys, values, found), x.Contains(keys, in)); err != nil {
		return err
	}
	if err := x.Find(keys, nil, nil); err != nil {
		return err
	}
	for i, k := range keys {
		if v, there := model[k]; found[i] != there || in[i] != there || values[i] != v {
			return fmt.Errorf("key %#x: found %t and %t with %#x, want %t with %#x", k, found[i], in[i], values[i],
				there, v)
		}
	}
	return nil
}

// ownPart looks at the pairs that this member owns.
func ownPart(x *shard.Map[uint32, uint32], model map[uint32]uint32, rank int) error {
	want := map[uint32]uint32{}
	for k, v := range model {
		if x.OwnerOf(uint64(k)) == rank {
			want[k] = v
		}
	}
	chunked := 0
	err := x.Chunks(context.Background(), func(keys, values []uint32) error {
		for i, k := range keys {
			if v, in := want[k]; !in || v != values[i] {
				return fmt.Errorf("key %#x with %#x is in this part, want %#x, %t", k, values[i], v, in)
			}
		}
		chunked += len(keys)
		return nil
	})
	if err != nil {
		return err
	}
	keys, _, err := x.All()
	if err != nil {
		return err
	}
	n, err := x.Len()
	if len(keys) != len(want) || chunked != len(want) || n != len(model) || err != nil {
		return fmt.Errorf("a part of %d and %d pairs of %d, want %d of %d: %w", len(keys), chunked, n, len(want),
			len(model), err)
	}
	return nil
}

// playFull overfills a map by Update: what is named is what was not combined.
func playFull(m *shard.Member, newTable func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error)) error {
	x, err := shard.NewMap(m, shard.Options{Piece: 1, Options: table.Options{MaxBytes: int64(m.Size()) << 14, Seed: 9}},
		newTable)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(3, uint64(m.Rank())))
	var keys, values []uint32
	for range 12_000 {
		keys = append(keys, uint32(rng.IntN(6000))*64+uint32(m.Rank())) // this member's own
		values = append(values, uint32(rng.IntN(100)))
	}
	var full *table.FullError
	if err := x.Update(keys, values, table.Add); !errors.As(err, &full) {
		return fmt.Errorf("a map that is too small: %w", err)
	}
	sums, named := map[uint32]uint32{}, map[int]bool{}
	for _, p := range full.Positions {
		named[p] = true
	}
	for i, k := range keys {
		if !named[i] {
			sums[k] += values[i]
		}
	}
	got, found := make([]uint32, len(keys)), make([]bool, len(keys))
	if err := x.Find(keys, got, found); err != nil {
		return err
	}
	for i, k := range keys {
		if found[i] == named[i] || found[i] && got[i] != sums[k] {
			return fmt.Errorf("key %d, named: %t, is found: %t, with %d, want %d", k, named[i], found[i], got[i],
				sums[k])
		}
	}
	if m.Rank() == 0 { // brings nothing, so it has no positions to hear of
		keys, values = nil, nil
	}
	if err := x.Insert(keys, values); m.Rank() == 0 && err != nil || m.Rank() > 0 && !errors.As(err, &full) {
		return fmt.Errorf("a full map, rank 0 brings nothing: %w", err)
	}
	return x.Close()
}

// playParts brings batches as parts: a member has one, on its device, or none. Statistics come for each member.
func playParts(m *shard.Member) error {
	x, err := shard.NewMap(m, shard.Options{}, families[uint32, uint32]()["warpcore"])
	if err != nil {
		return err
	}
	own, idle := []uint32{uint32(m.Rank()), 1 << 20}, []shard.Part[uint32, uint32]{}
	h := &hold{d: m.Device()}
	k, v, f := lent(h, own), lent(h, []uint32{7, 8}), lent(h, make([]bool, 2))
	part := []shard.Part[uint32, uint32]{{Keys: k, Values: v, Flags: f}}
	if m.Rank() == 0 {
		err = x.InsertEach(part)
	} else {
		err = x.InsertEach(idle)
	}
	found := make([]bool, 2)
	err = errors.Join(err, x.FindEach(part))
	taken(h, f, found)
	n, e := x.Len()
	each, e2 := x.StatsEach()
	if err = errors.Join(err, e, e2); err != nil || n != 2 || found[0] != (m.Rank() == 0) || !found[1] {
		return fmt.Errorf("parts: %d pairs of 2, found %v: %w", n, found, err)
	}
	sum := 0
	for _, s := range each {
		sum += s.Len
	}
	if devices := x.Devices(); len(each) != m.Size() || sum != 2 || len(devices) != 1 || devices[0] != m.Device() {
		return fmt.Errorf("%d members tell of %d pairs, and this one of devices %v", len(each), sum, devices)
	}
	if err := x.DeleteEach(append(part, part...)); err == nil || !strings.Contains(err.Error(), "brings 2 parts") {
		return fmt.Errorf("two parts of a member: %w", err)
	}
	return h.done(x.Close())
}

func playSet(m *shard.Member) error {
	s, err := shard.NewSet(m, shard.Options{}, warpcoreSet)
	if err != nil {
		return err
	}
	model := map[uint32]bool{}
	for round := range 5 {
		all := brought(m.Size(), round, s.OwnerOf)
		for _, keys := range all {
			for _, k := range keys {
				model[k] = round != 3
				if round == 3 {
					delete(model, k)
				}
			}
		}
		if round == 3 {
			_, err = s.Delete(all[m.Rank()], nil)
		} else {
			_, err = s.Insert(all[m.Rank()], nil)
		}
		n, e := s.Len()
		if err = errors.Join(err, e); err != nil || n != len(model) {
			return fmt.Errorf("a set of %d keys, want %d: %w", n, len(model), err)
		}
		asked := append(slices.Clone(all[0]), 1, 2, 3)
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
	own, err := s.All()
	for _, k := range own {
		if s.OwnerOf(uint64(k)) != m.Rank() || !model[k] {
			return fmt.Errorf("a set: key %#x is not of this part", k)
		}
	}
	return errors.Join(err, s.Check(), s.Close())
}

// playSummed counts with members that send sums if all that have rows have enough.
func playSummed(m *shard.Member) error {
	c, err := shard.NewCounter(m, shard.Options{}, summedCounting(false))
	if err != nil {
		return err
	}
	before := addsOfRows.Load()
	for _, own := range [][]uint32{make([]uint32, 1000), make([]uint32, 1000*m.Rank()), make([]uint32, 1+1000*m.Rank())} {
		if ofRows := addsOfRows.Load() - before; ofRows != 0 {
			return fmt.Errorf("%d batches went as rows, want none", ofRows)
		}
		if err := c.Add(own); err != nil {
			return err
		}
	}
	if ofRows := addsOfRows.Load() - before; (ofRows == 0) != (c.OwnerOf(0) != m.Rank()) {
		return fmt.Errorf("%d batches went as rows, want the last one", ofRows)
	}
	return errors.Join(c.Close(), playCounter(m, summedCounting(false)))
}

func playCounter(m *shard.Member, newTable func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error)) error {
	c, err := shard.NewCounter(m, shard.Options{Piece: 1}, newTable)
	if err != nil {
		return err
	}
	model := map[uint32]uint32{}
	for round := range 4 {
		all := brought(m.Size(), round, c.OwnerOf)
		times := uint32(1)
		if round%2 == 1 {
			times = 7
		}
		for _, keys := range all {
			for _, k := range keys {
				model[k] += times
			}
		}
		own := all[m.Rank()]
		if times == 1 {
			err = c.Add(own)
		} else {
			err = c.AddCounts(own, slices.Repeat([]uint32{times}, len(own)))
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
	keys, often, err := c.Top(3)
	if err != nil || len(keys) != min(3, len(model)) {
		return fmt.Errorf("%d keys came most often: %w", len(keys), err)
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
	// One member's count is too large: all hear of it.
	var big []uint32
	if m.Rank() == 0 {
		big = []uint32{5}
	}
	if err := errors.Join(c.AddCounts(big, slices.Repeat([]uint32{^uint32(0)}, len(big)))); err != nil {
		return err
	}
	if err := c.Add(big); !errors.Is(err, table.ErrOverflow) {
		return fmt.Errorf("a count that is too large: %w", err)
	}
	return errors.Join(c.Check(), c.Close())
}

func playMultiMap[V uint32 | uint64](m *shard.Member, family string) error {
	x, err := shard.NewMultiMap(m, shard.Options{Piece: 1}, multiMaps[uint32, V]()[family])
	if err != nil {
		return err
	}
	model := map[uint32][]V{}
	for round := range 5 {
		all := brought(m.Size(), round, x.OwnerOf)
		if round%4 == 2 {
			for rank, keys := range all {
				all[rank] = keys[:min(len(keys), 90)] // one key
			}
		}
		own := all[m.Rank()]
		if round == 3 {
			before := 0
			for _, keys := range all {
				for _, k := range keys {
					before += len(model[k])
					delete(model, k)
				}
			}
			if n, err := x.Delete(own, nil); n != before || err != nil {
				return fmt.Errorf("a multimap: %d pairs deleted of %d: %w", n, before, err)
			}
		} else {
			values := make([]V, len(own))
			for rank, keys := range all {
				for i, k := range keys {
					v := V(round*100_000 + rank*10_000 + i)
					model[k] = append(model[k], v)
					if rank == m.Rank() {
						values[i] = v
					}
				}
			}
			if err := x.Insert(own, values); err != nil {
				return err
			}
		}
		asked := append([]uint32{1, 2}, all[(m.Rank()+1)%m.Size()]...)
		if m.Rank() == 1 && round == 4 {
			asked = nil
		}
		counts, found := make([]uint32, len(asked)), make([]bool, len(asked))
		if err := errors.Join(x.Count(asked, counts), x.Contains(asked, found)); err != nil {
			return err
		}
		offsets, values, err := x.FindAll(asked)
		if err != nil {
			return err
		}
		for i, k := range asked {
			got, want := slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]])), slices.Sorted(slices.Values(model[k]))
			if !slices.Equal(got, want) || int(counts[i]) != len(want) || found[i] != (len(want) > 0) {
				return fmt.Errorf("a multimap: key %#x has %d values, %d by their count, found: %t, want %d", k,
					len(got), counts[i], found[i], len(want))
			}
		}
	}
	return errors.Join(x.Check(), x.Close())
}

// playFullMultiMap overfills a multimap: of each pair it is told whether it is in.
func playFullMultiMap(m *shard.Member) error {
	x, err := shard.NewMultiMap(m, shard.Options{Piece: 1, Options: table.Options{MaxBytes: int64(m.Size()) << 15}},
		multiMaps[uint32, uint32]()["slab"])
	if err != nil {
		return err
	}
	var keys, values []uint32
	for i := range uint32(12_000) {
		keys, values = append(keys, i%5000*64+uint32(m.Rank())), append(values, i)
	}
	var full *table.FullError
	if err := x.Insert(keys, values); !errors.As(err, &full) {
		return fmt.Errorf("a multimap that is too small: %w", err)
	}
	in := map[uint32]bool{}
	offsets, got, err := x.FindAll(keys[:5000])
	if err != nil {
		return err
	}
	for i := range keys[:5000] {
		for _, v := range got[offsets[i]:offsets[i+1]] {
			in[v] = true
		}
	}
	for i := range keys {
		if _, named := slices.BinarySearch(full.Positions, i); in[values[i]] == named {
			return fmt.Errorf("a multimap: pair %d is named: %t, and is in: %t", i, named, in[values[i]])
		}
	}
	if m.Rank() == 0 { // brings nothing, so it has no positions to hear of
		keys, values = nil, nil
	}
	if err := x.Insert(keys, values); m.Rank() == 0 && err != nil || m.Rank() > 0 && !errors.As(err, &full) {
		return fmt.Errorf("a full multimap, rank 0 brings nothing: %w", err)
	}
	return x.Close()
}
