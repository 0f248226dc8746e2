package cuckoo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// besideCU has look-ups beside inserts, or beside deletions, in one launch.
const besideCU = `
#include "config.h"
#include "cuckoo.cuh"
WARPMAP_KERNEL(beside, cuckoo::besideParams) {
    typedef config::key key;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        key k = load_readonly(at<key>(p.keys) + i);
        u8 does = load_readonly(at<u8>(p.does) + i);
        at<u8>(p.done)[i] = does == 0 ? cuckoo::contains<config>(p.table, k) : does == 1 ? cuckoo::insert<config>(p.table, k)
                                                                                      : cuckoo::erase<config>(p.table, k);
    }
}`

type besideParams struct {
	Table            Table
	Keys, Does, Done uint64
	N                uint64
}

// What a lane of beside does.
const (
	asks = iota
	inserts
	erases
)

// beside runs a batch of such operations, and gives what came of each.
func beside(f *Filter[uint64], keys []uint64, does []byte) ([]byte, error) {
	d := f.filter.frame.Device
	p := f.Program("beside", besideCU)
	p.Layouts = append(p.Layouts, besideParams{})
	m, err := d.Compile(p)
	if err != nil {
		return nil, err
	}
	k, err := device.KernelOf[besideParams](m, "beside")
	if err != nil {
		return nil, err
	}
	a, e1 := device.From(d, keys)
	b, e2 := device.From(d, does)
	c, e3 := device.Make[byte](d, len(keys))
	if err := errors.Join(e1, e2, e3); err != nil {
		return nil, err
	}
	err = f.Use(nil, func(t Table) error {
		return k.Launch(nil, device.GridFor(int64(len(keys)), 64), &besideParams{t, a.Addr(), b.Addr(), c.Addr(), uint64(len(keys))})
	})
	done, wrong := c.Host(nil)
	return done, errors.Join(err, wrong, a.Free(), b.Free(), c.Free())
}

// story is a filter of a few buckets, which lanes fill, and empty in part, and fill again, and says what is wrong then.
// With hot, many of the keys are equal.
type story struct {
	tag      int
	capacity int
	hot      bool
	beside   bool
	stretch  bool // batches go window by window
}

func (s story) tell(d *device.Device, seed uint64) (err error) {
	o := Options{FilterOptions: table.FilterOptions{Capacity: s.capacity, Seed: seed + 1}, TagBits: s.tag}
	f, err := New[uint64](d, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if s.stretch {
		byStretches(f.filter)
	}
	rng := rand.New(rand.NewPCG(seed, 5))
	var in []uint64
	for round := range 4 {
		more := randomKeys(seed*10+uint64(round), int(f.filter.slots())-len(in))
		if s.hot {
			for i := range more {
				if i%3 == 0 {
					more[i] = more[i%7]
				}
			}
		}
		var refused []bool
		if s.beside {
			refused, err = s.insertBeside(f, rng, in, more)
		} else {
			refused, err = insertRefused(f, more)
		}
		if err != nil {
			return err
		}
		for i, k := range more {
			if !refused[i] {
				in = append(in, k)
			}
		}
		if err := f.filter.expect(in); err != nil {
			return fmt.Errorf("round %d, inserted: %w", round, err)
		}
		rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		n := rng.IntN(len(in))
		if s.beside {
			err = eraseBeside(f, rng, in[:n], in[n:])
		} else if s.stretch && round%2 == 0 {
			err = eraseOn(f, in[:n])
		} else if gone, err := f.Delete(in[:n], nil); err != nil || gone != n {
			return fmt.Errorf("round %d: %d of %d are deleted: %v", round, gone, n, err)
		}
		if in = in[n:]; err != nil {
			return err
		}
		if err := f.filter.expect(in); err != nil {
			return fmt.Errorf("round %d, deleted: %w", round, err)
		}
	}
	return nil
}

// insertRefused tells which positions found no room.
func insertRefused(f *Filter[uint64], keys []uint64) ([]bool, error) {
	refused := make([]bool, len(keys))
	err := f.Insert(keys)
	var full *table.FullError
	if errors.As(err, &full) {
		for _, p := range full.Positions {
			refused[p] = true
		}
		n, wrong := f.Len()
		if err = wrong; err == nil && full.Len != n {
			err = fmt.Errorf("the error says that %d keys are in, and Len says %d", full.Len, n)
		}
	}
	return refused, err
}

// insertBeside inserts keys in one launch with look-ups of those that are in, of which none may be missed.
func (s story) insertBeside(f *Filter[uint64], rng *rand.Rand, in, more []uint64) ([]bool, error) {
	var keys []uint64
	var does []byte
	var at []int // of more
	for _, k := range more {
		for range 2 {
			if len(in) > 0 {
				keys, does = append(keys, in[rng.IntN(len(in))]), append(does, asks)
			}
		}
		at = append(at, len(keys))
		keys, does = append(keys, k), append(does, inserts)
	}
	done, err := beside(f, keys, does)
	if err != nil {
		return nil, err
	}
	for i, d := range done {
		if does[i] == asks && d == 0 {
			return nil, fmt.Errorf("key %#x, which is in, is missed beside inserts", keys[i])
		}
	}
	refused := make([]bool, len(more))
	for i, j := range at {
		refused[i] = done[j] == 0
	}
	return refused, nil
}

// eraseOn takes keys out that are on the device, untold.
func eraseOn(f *Filter[uint64], out []uint64) error {
	keys, err := device.From(f.filter.frame.Device, out)
	if err != nil {
		return err
	}
	return errors.Join(f.DeleteOn(nil, keys, device.Slice[bool]{}), f.filter.frame.Device.Stream().Sync(), keys.Free())
}

// eraseBeside takes keys out in one launch with look-ups of those that stay.
func eraseBeside(f *Filter[uint64], rng *rand.Rand, out, stay []uint64) error {
	var keys []uint64
	var does []byte
	for _, k := range out {
		keys, does = append(keys, k, stay[rng.IntN(len(stay))]), append(does, erases, asks)
	}
	if len(keys) == 0 {
		return nil
	}
	done, err := beside(f, keys, does)
	for i, d := range done {
		if d == 0 && err == nil {
			err = fmt.Errorf("key %#x, which is in, is missed by operation %d", keys[i], does[i])
		}
	}
	return err
}

var stories = []story{
	{16, 40, false, false, false}, {12, 30, false, false, false}, {8, 30, false, false, false}, {16, 60, true, false, false},
	{8, 160, false, true, false}, {12, 40, true, true, false}, {16, 40, false, true, false},
	{16, 100, true, false, true}, {8, 60, false, false, true},
}

// Lanes that insert and delete in full filters lose nothing, and what is told is so, in whatever order they go.
func TestUnderStress(t *testing.T) {
	seeds := testenv.Seeds(48)
	testenv.Tried(t, seeds*len(stories), "histories")
	for i, s := range stories {
		for seed := range uint64(seeds) {
			seed += testenv.FirstSeed()
			t.Run(fmt.Sprintf("%d %+v seed=%d", i, s, seed), func(t *testing.T) {
				must(t, s.tell(openCPU(t, device.WithStress(seed)), seed))
			})
		}
	}
}
