package stadium

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// rooms returns the number of buckets with an available slot among the first most that an insert of the key searches.
func rooms(c *core, key, most uint64) (n int, err error) {
	board, err := c.board.Host(nil)
	if err != nil {
		return 0, err
	}
	m := &image{cfg: c.cfg, t: c.table(), board: board}
	p, slots := c.cfg.place(&m.t, binary.LittleEndian.AppendUint64(nil, key)), uint64(c.cfg.slots())
	for range min(most, m.t.buckets()) {
		for i := range slots {
			if m.ticket(p.bucket()*slots+i)&1 == 1 {
				n++
				break
			}
		}
		p.advance()
	}
	return n, nil
}

// fills churns a table at its bound, and returns an error if it differs from a Go map, or if a key is refused though one
// of the first most buckets of its chain, which an insert searches, has room. A table of at most that many buckets fills
// all slots.
func fills(d *device.Device, seed uint64, bytes int64, rounds int, most uint64) (err error) {
	m, err := New[uint64, uint64](d, Options{Options: table.Options{MaxBytes: bytes, Seed: seed + 1}, tight: 4, most: most})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	rng, in := rand.New(rand.NewPCG(seed, 7)), map[uint64]uint64{}
	var held []uint64
	full := false
	for round := range rounds {
		all := uint64(m.core.shape.buckets()) <= most
		keys, exactly := make([]uint64, bytes/60), full && all && round%2 == 0
		if exactly { // as many new keys as there are slots
			keys = keys[:m.core.capacity()-int64(len(in))]
		}
		for i := range keys {
			if keys[i] = rng.Uint64(); len(held) > 0 && rng.IntN(8) == 0 && !exactly {
				keys[i] = held[rng.IntN(len(held))]
			}
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		values := make([]uint64, len(keys))
		for i := range values {
			values[i] = rng.Uint64()
		}
		refused := map[int]bool{}
		if err := m.Insert(keys, values); err != nil {
			var left *table.FullError
			if full = errors.As(err, &left); !full || exactly {
				return err
			}
			for _, i := range left.Positions {
				refused[i] = true
			}
		}
		for i, k := range keys {
			if !refused[i] {
				if _, there := in[k]; !there {
					held = append(held, k)
				}
				in[k] = values[i]
			}
		}
		s, err := m.Stats()
		if err != nil {
			return err
		}
		// A table of few buckets may have one that few keys search, and that stays half empty.
		least := s.Capacity * 19 / 20
		if m.core.shape.buckets() < 100 {
			least = 0
		}
		if s.Len != len(in) || len(refused) > 0 && (all && s.Len != s.Capacity || s.Len < least) ||
			s.MaxProbes > int(max(most, 100)) { // before it is nearly full, an insert may go as far as it must
			return fmt.Errorf("round %d: %d pairs (want %d), %d refused of a table of %d, %d probes", round, s.Len, len(in),
				len(refused), s.Capacity, s.MaxProbes)
		}
		for i := range refused {
			if n, err := rooms(m.core, keys[i], most); err != nil {
				return err
			} else if n > 0 {
				return fmt.Errorf("round %d: key %#x is refused, and %d of the %d buckets that are searched for it have room",
					round, keys[i], n, most)
			}
		}
		found, got := make([]bool, len(held)), make([]uint64, len(held))
		if err := errors.Join(m.Find(held, got, found), m.Check()); err != nil {
			return err
		}
		for i, k := range held {
			if !found[i] || got[i] != in[k] {
				return fmt.Errorf("round %d: key %#x: %d, %t (want %d)", round, k, got[i], found[i], in[k])
			}
		}
		rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		gone := held[:len(held)/10]
		held = held[len(gone):]
		if n, err := m.Delete(gone, nil); err != nil || n != len(gone) {
			return fmt.Errorf("round %d: %d deleted (want %d), %w", round, n, len(gone), err)
		}
		for _, k := range gone {
			delete(in, k)
		}
	}
	return nil
}

// An insert into a table at its bound finds all slots, if the table has no more buckets than are searched. It finds nearly
// all slots of a larger table, and no look-up goes far.
func TestLastSlots(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			for seed := range uint64(3) {
				must(t, fills(d, seed, []int64{2_000, 20_000, 200_000}[seed], 8, mostProbes))
				must(t, fills(d, seed, 50_000, 8, 24))
			}
		})
	}
}

func TestLastSlotsUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(6)) {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		must(t, fills(d, seed, 4_000, 7, []uint64{8, mostProbes}[seed%2]))
		must(t, d.Close())
	}
}
