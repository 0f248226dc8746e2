package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// summing makes batches of any size become sums, with keys that repeat as far as is known.
func summing(c *core, pieceRows int64) {
	c.regions = tinyRegions
	c.regions.PieceRows = pieceRows
	c.sources.repeated, c.sources.trusted = true, 1<<40
	c.sources.distinct, c.sources.seen = 100, 1000
	c.sources.shared, c.sources.onePass = 16<<10, 1
}

// folded returns the sum of each key, and frees the sums.
func folded(sums frame.Sums, fold func(a, b uint32) uint32) (map[uint32]uint32, error) {
	keys, e1 := device.View[uint32](sums.Keys, 0, sums.N).Host(nil)
	values, e2 := device.View[uint32](sums.Values, 0, sums.N).Host(nil)
	model := map[uint32]uint32{}
	for i, k := range keys {
		old, in := model[k]
		if model[k] = values[i]; in {
			model[k] = fold(old, values[i])
		}
	}
	return model, errors.Join(e1, e2, sums.Free(nil))
}

// Sums have all rows of a batch, and change nothing in the table.
func TestSums(t *testing.T) {
	operations := map[table.Combine]func(a, b uint32) uint32{
		table.Add: func(a, b uint32) uint32 { return a + b },
		table.Max: func(a, b uint32) uint32 { return max(a, b) },
	}
	onDevices(t, func(t *testing.T, d *device.Device) {
		m, err := New[uint32, uint32](d, Options{})
		must(t, err)
		defer m.Close()
		must(t, m.Insert([]uint32{5, 6}, []uint32{7, 8}))
		rng := rand.New(rand.NewPCG(1, 7))
		for _, piece := range []int64{1 << 20, 2500} {
			for with, fold := range operations {
				keys := slices.Repeat(sumsOf(rng, 900), 10)
				values, want := make([]uint32, len(keys)), map[uint32]uint32{}
				for i, k := range keys {
					values[i] = rng.Uint32N(1 << 12)
					old, in := want[k]
					if want[k] = values[i]; in {
						want[k] = fold(old, values[i])
					}
				}
				summing(m.core, piece)
				own := m.core.combining
				k, e1 := device.From(d, keys)
				v, e2 := device.From(d, values)
				must(t, errors.Join(e1, e2))
				sums, err := m.Sums(nil, k.Raw(), v.Raw(), with)
				must(t, err)
				if sums.N < len(want) || sums.N > len(keys)*3/4 {
					t.Errorf("%d sums of %d rows with %d keys", sums.N, len(keys), len(want))
				}
				got, err := folded(sums, fold)
				must(t, err)
				if err := sameModel(got, want); err != nil {
					t.Errorf("pieces of %d, %s: %v", piece, with, err)
				}
				if m.core.combining != own {
					t.Error("the table takes the keys of other devices' rows for its own")
				}
				must(t, errors.Join(k.Free(), v.Free()))
			}
		}
		if err := sameSums(m, map[uint32]uint32{5: 7, 6: 8}); err != nil {
			t.Errorf("the table has changed: %v", err)
		}
	})
}

// sameModel compares what came with what was wanted.
func sameModel(got, want map[uint32]uint32) error {
	for k, v := range want {
		if have, in := got[k]; !in || have != v {
			return fmt.Errorf("key %#x has %d, %t, want %d", k, have, in, v)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d keys, want %d", len(got), len(want))
	}
	return nil
}

// There are no sums if keys hardly repeat, if there are more sums than was known, if the operation is code of the
// user's, or if memory is short.
func TestNoSums(t *testing.T) {
	d := openCPU(t)
	c, err := NewCounter[uint32, uint32](d, CounterOptions{})
	must(t, err)
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	const n = 5000
	distinct, same := make([]uint32, n), make([]uint32, n)
	for i := range distinct {
		distinct[i] = uint32(i)
	}
	dk, e1 := device.From(d, distinct)
	sk, e2 := device.From(d, same)
	must(t, errors.Join(e1, e2))
	none := func(what string, sums frame.Sums, err error) {
		t.Helper()
		if err != nil || sums.N != 0 || sums.Keys.Len() != 0 {
			t.Errorf("%s: %d sums, %v: want none", what, sums.N, err)
		}
	}
	sums, err := c.Sums(nil, sk.Raw(), device.Slice[byte]{}, table.Add)
	none("a small batch", sums, err)
	summing(c.core, 2000)
	summing(m.core, 2000)
	sums, err = m.Sums(nil, sk.Raw(), sk.Raw(), "old + value * 2")
	none("code of the user's", sums, err)
	sums, err = c.Sums(nil, dk.Raw(), device.Slice[byte]{}, table.Add)
	none("distinct keys, against what is known", sums, err)
	if c.core.sources.repeated {
		t.Error("it is not known that keys are distinct")
	}
	c.core.sources.trusted = 0
	sums, err = c.Sums(nil, dk.Raw(), device.Slice[byte]{}, table.Add)
	none("distinct keys", sums, err)
	made := 0
	for fails := range int64(8) {
		summing(c.core, 2000)
		at := int64(-1)
		faults.Set(d, faults.OfMemory(func(int64) bool { at++; return at >= fails }))
		sums, err = c.Sums(nil, sk.Raw(), device.Slice[byte]{}, table.Add)
		faults.Set(d, nil)
		if sums.N > 0 { // there was enough memory, or too little only to make theirs smaller
			made++
			must(t, sums.Free(nil))
		} else {
			none("memory is short", sums, err)
		}
	}
	if made == 0 || made == 8 {
		t.Errorf("%d of 8 batches became sums", made)
	}
	must(t, errors.Join(c.Check(), c.Close(), m.Close(), dk.Free(), sk.Free()))
	if live := d.Live(); len(live) > 0 {
		t.Errorf("%d allocations are not freed: %v", len(live), live)
	}
}
