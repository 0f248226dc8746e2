package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// covers puts batches in which few keys come often into a cache with room for all, and says what is wrong with the
// scores and counts, which tell how often each key came.
func covers[V comparable](d *device.Device, o Options, seed uint64, n int) (err error) {
	o.Seed, o.Policy = seed+1, LFU
	m, err := New[uint64, V](d, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	r := &rig[uint64, V]{m: m, model: newModel(m.core), rng: rand.New(rand.NewPCG(seed, 5)), known: map[V]uint32{}}
	came := map[uint64]uint32{}
	for range 3 {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = uint64(r.rng.ExpFloat64()) * 0x9e3779b97f4a7c15
			came[keys[i]]++
		}
		if err := m.Insert(keys, r.values(r.numbers(n))); err != nil {
			return err
		}
	}
	rows, err := r.in(0)
	if err != nil {
		return err
	}
	if len(rows) != len(came) {
		return fmt.Errorf("%d pairs (want %d)", len(rows), len(came))
	}
	for _, x := range rows {
		if x.score != came[x.key] {
			return fmt.Errorf("key %#x has the score %d, and came %d times", x.key, x.score, came[x.key])
		}
	}
	s, err := m.Stats()
	if err == nil && (s.Updated+s.Added != uint64(3*n) || s.Added != uint64(len(came))) {
		err = fmt.Errorf("%d updated and %d added of %d rows with %d keys", s.Updated, s.Added, 3*n, len(came))
	}
	return errors.Join(err, m.Check())
}

// Rows of one key come in as one, and count as what they are: within a tile, over tiles, and over pieces of a batch.
func TestRowsOfOneKey(t *testing.T) {
	d := open(t, "cpu")
	for seed := range uint64(4) {
		must(t, covers[uint64](d, Options{Capacity: 640, tile: 16}, seed, 300))
		must(t, covers[[16]uint32](d, Options{Capacity: 640, tile: 16}, seed, 300))
	}
	t.Run("cuda:0", func(t *testing.T) {
		d := open(t, "cuda:0")
		must(t, covers[uint64](d, Options{Capacity: 100_000}, 1, 50_000))
		must(t, covers[[16]uint32](d, Options{Capacity: 100_000}, 1, 50_000))
	})
}
