package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// What members do in TestMembersOperations with rows that are split by regions, too.

// playRegions goes through batches with which each member's table sees that rows come in order, where a member brings
// none, too.
func playRegions(m *shard.Member) error {
	for i, o := range []shard.Options{{Regions: 37}, {Regions: frame.MaxParts / m.Size(), Piece: 9000},
		{Regions: 2, Piece: 20_000}} {
		if i == 2 && !testenv.Long() && !m.Device().Info().CUDA() {
			continue // the other two have some regions, and as many as there can be
		}
		o.Seed = uint64(i)
		var rows, asked atomic.Int64
		x, err := shard.NewMap(m, o, func(d *device.Device, each table.Options) (table.Map[uint32, uint32], error) {
			inner, err := warpcore.New[uint32, uint32](d, warpcore.Options{Options: each})
			return orderly[uint32, uint32]{inner, nil, &rows, &asked, nil, m.Size()}, err
		})
		if err != nil {
			return err
		}
		if err := errors.Join(playOrdered(m, x, &rows, &asked), x.Close()); err != nil {
			return fmt.Errorf("rank %d, %d regions, pieces of %d: %w", m.Rank(), o.Regions, o.Piece, err)
		}
	}
	if _, err := shard.NewMap(m, shard.Options{Regions: frame.MaxParts},
		families[uint32, uint32]()["warpcore"]); (err == nil) != (m.Size() == 1) {
		return fmt.Errorf("%d regions with each of %d members: %w", frame.MaxParts, m.Size(), err)
	}
	return errors.Join(playFullRegions(m, -1), playFullRegions(m, 0))
}

func playOrdered(m *shard.Member, x *shard.Map[uint32, uint32], rows, asked *atomic.Int64) error {
	model := map[uint32]uint32{}
	put, looked := int64(0), int64(0) // what this member's table is to get in order
	for round, sizes := range [][4]int{{20_011, 9000, 33_000, 4096}, {1, 16_384, 16_385, 2}, {9000, 0, 100, 1},
		{7000, 7000, 7000, 7000}} {
		all := make([][]uint32, m.Size())
		for rank := range all {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(rank)))
			for len(all[rank]) < sizes[rank] {
				k := uint32(rng.IntN(30_000)) * 0x9e3779b1
				if round == 3 {
					k = ^uint32(0) - k%3
				}
				all[rank] = append(all[rank], k)
				model[k] = valueIn(0, k) // always the same, for members' equal keys go in in no order
			}
		}
		ordered := m.Size() > 1
		for _, keys := range all {
			for _, k := range keys {
				if ordered && x.OwnerOf(uint64(k)) == m.Rank() {
					put++
				}
			}
		}
		own, others := all[m.Rank()], all[(m.Rank()+1)%m.Size()]
		if err := errors.Join(x.Insert(own, valuesIn(0, own)), lookedUp(x, model, others), x.Check()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for _, keys := range all {
			for _, k := range append([]uint32{1, 2, 3}, keys...) { // as lookedUp has them
				if m.Size() > 1 && x.OwnerOf(uint64(k)) == m.Rank() {
					looked += 3 // Find, Contains, and Find without results
				}
			}
		}
		if rows.Load() != put || asked.Load() != looked {
			return fmt.Errorf("round %d: %d rows came in order, and %d were asked for, want %d and %d", round,
				rows.Load(), asked.Load(), put, looked)
		}
		if n, err := x.Len(); n != len(model) || err != nil {
			return fmt.Errorf("round %d: %d pairs of %d, %w", round, n, len(model), err)
		}
	}
	return nil
}

// playFullRegions overfills a map by rows in order: each member hears which of its own are not in. One member may be
// idle, and bring none.
func playFullRegions(m *shard.Member, idle int) error {
	x, err := shard.NewMap(m, shard.Options{Regions: 20, Options: table.Options{MaxBytes: int64(m.Size()) << 14}},
		families[uint32, uint32]()["warpcore"])
	if err != nil {
		return err
	}
	keys := make([]uint32, 9000)
	if m.Rank() == idle {
		keys = nil
	}
	for i := range keys {
		keys[i] = uint32(i*m.Size() + m.Rank())
	}
	full := &table.FullError{}
	if err := x.Insert(keys, keys); !errors.As(err, &full) && (err != nil || len(keys) > 0) {
		return fmt.Errorf("rank %d: a map that is too small: %w", m.Rank(), err)
	}
	found := make([]bool, len(keys))
	if err := x.Contains(keys, found); err != nil {
		return err
	}
	if len(full.Positions) != len(keys)-frame.Count(found) {
		return fmt.Errorf("rank %d: %d positions are named, and %d are not in", m.Rank(), len(full.Positions),
			len(keys)-frame.Count(found))
	}
	for _, p := range full.Positions {
		if found[p] {
			return fmt.Errorf("rank %d: position %d is named, and in", m.Rank(), p)
		}
	}
	return x.Close()
}
