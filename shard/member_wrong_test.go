package shard_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// What members do in TestMembersWrong: one of them makes mistakes, of which the others must hear at once, by its rank.
// Then all go on.

// wrongs are the tables that it is done with.
type wrongs struct {
	m       *shard.Member
	last    bool // the member that is wrong
	pairs   *shard.Map[uint32, uint32]
	keys    *shard.Set[uint32]
	counts  *shard.Counter[uint32, uint32]
	many    *shard.MultiMap[uint32, uint32]
	mixed   *shard.Map[uint32, uint32] // of a family with mixed batches
	freed   device.Slice[uint32]
	foreign device.Slice[uint32] // of another device
}

func playWrong(m *shard.Member) (err error) {
	w := &wrongs{m: m, last: m.Rank() == m.Size()-1}
	var e1, e2, e3, e4, e5 error
	w.pairs, e1 = shard.NewMap(m, shard.Options{Options: table.Options{Seed: 1}},
		families[uint32, uint32]()["warpcore"])
	w.keys, e2 = shard.NewSet(m, shard.Options{}, warpcoreSet)
	w.counts, e3 = shard.NewCounter(m, shard.Options{},
		counting(false))
	w.many, e4 = shard.NewMultiMap(m, shard.Options{}, multiMaps[uint32, uint32]()["slab"])
	w.mixed, e5 = shard.NewMap(m, shard.Options{}, families[uint32, uint32]()["slab"])
	if err := errors.Join(e1, e2, e3, e4, e5); err != nil {
		return err
	}
	if w.freed, err = device.From(m.Device(), []uint32{1, 2}); err != nil {
		return err
	}
	if err := w.freed.Free(); err != nil {
		return err
	}
	other, err := device.Open("cpu:77")
	if err != nil {
		return err
	}
	if w.foreign, err = device.From(other, []uint32{1, 2}); err != nil {
		return err
	}
	err = errors.Join(w.arguments(), w.making(), w.calls(), w.goroutines(), w.closed(), w.foreign.Free(), other.Close())
	return errors.Join(err, w.pairs.Close(), w.mixed.Close(), w.counts.Close(), w.many.Close(), w.left())
}

// told sees that the member that is wrong gets its own error, and the others one that names it, and that the table goes
// on.
func (w *wrongs) told(what, own string, call func() error) error {
	began := time.Now()
	err := call()
	want := fmt.Sprintf("rank %d: ", w.m.Size()-1)
	if w.last {
		want = own
	}
	if err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 30*time.Second {
		return fmt.Errorf("rank %d, %s: after %v: %v (want %q)", w.m.Rank(), what, time.Since(began), err, want)
	}
	if n, err := w.pairs.Len(); n != 0 || err != nil {
		return fmt.Errorf("rank %d, after %s: %d pairs, %w", w.m.Rank(), what, n, err)
	}
	return nil
}

// arguments are wrong at one member: lengths that differ, slices that are freed or of another device, a closed stream.
func (w *wrongs) arguments() error {
	d := w.m.Device()
	good, err := device.From(d, []uint32{5, 6})
	if err != nil {
		return err
	}
	flags, err := device.Make[bool](d, 2)
	if err != nil {
		return err
	}
	closed, err := d.NewStream()
	if err != nil {
		return err
	}
	if err := closed.Close(); err != nil {
		return err
	}
	k, longer, st := good, []uint32{5, 6}, (*device.Stream)(nil)
	gone, foreign := good, good
	if w.last {
		longer, st, gone, foreign = append(longer, 7), closed, w.freed, w.foreign
	}
	two := []uint32{5, 6}
	lens, freed := "2 keys beside a slice of 3 elements", "freed"
	return errors.Join(
		w.told("Insert", lens, func() error { return w.pairs.Insert(two, longer) }),
		w.told("InsertNew", lens, func() error { _, err := w.pairs.InsertNew(two, longer, nil); return err }),
		w.told("Update", lens, func() error { return w.pairs.Update(two, longer, table.Add) }),
		w.told("Find", lens, func() error { return w.pairs.Find(two, longer, nil) }),
		w.told("InsertOn, freed", freed, func() error { return w.pairs.InsertOn(nil, gone, gone) }),
		w.told("InsertOn, foreign", "cpu:77", func() error { return w.pairs.InsertOn(nil, foreign, k) }),
		w.told("FindOn, freed", freed, func() error { return w.pairs.FindOn(nil, k, gone, flags) }),
		w.told("FindOn, closed stream", "closed", func() error { return w.pairs.FindOn(st, k, k, flags) }),
		w.told("ContainsOn, foreign", "cpu:77", func() error { return w.pairs.ContainsOn(nil, foreign, flags) }),
		w.told("DeleteOn, freed", freed, func() error { return w.pairs.DeleteOn(nil, gone, flags) }),
		w.told("Grow", "", func() error {
			n := 100
			if w.last {
				n = -1
			}
			return w.pairs.Grow(n)
		}),
		w.told("InsertIf", lens, func() error { return w.pairs.InsertIf(two, two, make([]bool, len(longer))) }),
		w.told("FindIfOn, freed", freed, func() error { return w.pairs.FindIfOn(nil, gone, flags, k, flags) }),
		w.told("ContainsIf", lens, func() error {
			return w.pairs.ContainsIf(two, make([]bool, 2),
				make([]bool, len(longer)))
		}),
		w.told("FindOrInsert", lens, func() error {
			_,
				err := w.pairs.FindOrInsert(two, two, longer, nil)
			return err
		}),
		w.told("FindOrInsertOn, foreign", "cpu:77", func() error {
			return w.pairs.FindOrInsertOn(nil, k, foreign, k,
				flags)
		}),
		w.told("Mixed", "is Op(9)", func() error {
			ops := []table.Op{table.OpInsert, table.OpInsert}
			if w.last {
				ops[1] = 9
			}
			return w.mixed.Mixed(ops, two, two, nil, nil)
		}),
		w.told("MixedOn, freed", freed, func() error {
			ops, err := device.Make[table.Op](d, 2)
			return errors.Join(err, w.mixed.MixedOn(nil, ops, gone, k, k, device.Slice[table.Status]{}), ops.Free())
		}),
		w.told("a set's InsertIfOn", freed, func() error { return w.keys.InsertIfOn(nil, gone, flags, flags) }),
		w.told("a set's InsertOn", freed, func() error { return w.keys.InsertOn(nil, gone, flags) }),
		w.told("a set's ContainsOn", freed, func() error { return w.keys.ContainsOn(nil, gone, flags) }),
		w.told("AddOn", freed, func() error { return w.counts.AddOn(nil, gone) }),
		w.told("AddCounts", lens, func() error { return w.counts.AddCounts(two, longer) }),
		w.told("a multimap's InsertOn", freed, func() error { return w.many.InsertOn(nil, k, gone) }),
		w.told("FindAllOn", freed, func() error { _, _, err := w.many.FindAllOn(nil, gone); return err }),
		w.told("CountOn", "cpu:77", func() error { return w.many.CountOn(nil, foreign, k) }),
		w.told("a multimap's Delete", "2 keys beside a slice of 3 elements", func() error {
			_, err := w.many.Delete(two, make([]bool, len(longer)))
			return err
		}),
		good.Free(), flags.Free())
}

// making is a table that one member makes otherwise than the others.
func (w *wrongs) making() error {
	return errors.Join(
		w.told("making a table", "pieces of -1 rows", func() error {
			piece := 0
			if w.last {
				piece = -1
			}
			_, err := shard.NewMap(w.m, shard.Options{Piece: piece}, families[uint32, uint32]()["slab"])
			return err
		}),
		w.told("making a table of another mode", "want the same everywhere", func() error {
			o := shard.Options{}
			if w.last {
				o.Mode = shard.Independent
			}
			_, err := shard.NewMap(w.m, o, families[uint32, uint32]()["slab"])
			if w.m.Size() == 1 && err == nil {
				return errors.New("want the same everywhere, and it is")
			}
			return err
		}),
		w.told("making a part", "no part", func() error {
			_, err := shard.NewMap(w.m, shard.Options{}, func(d *device.Device,
				o table.Options) (table.Map[uint32, uint32], error) {
				if w.last {
					return nil, errors.New("no part")
				}
				return families[uint32, uint32]()["slab"](d, o)
			})
			return err
		}))
}

// calls differ: all hear that they do, whichever they are.
func (w *wrongs) calls() (err error) {
	if w.m.Size() == 1 {
		return nil
	}
	other, err := shard.NewMap(w.m, shard.Options{Options: table.Options{Seed: 1}},
		families[uint32, uint32]()["warpcore"])
	if err != nil {
		return err
	}
	one := []uint32{1}
	insert := func() error { return w.pairs.Insert(one, one) }
	remove := func() error { _, err := w.many.Delete(one, nil); return err }
	for i, call := range []func() error{
		func() error { _, err := w.many.Len(); return err },
		func() error { _, err := w.many.Stats(); return err },
		func() error { return w.many.Contains(one, make([]bool, 1)) },
		func() error {
			keys, err := device.From(w.m.Device(), one)
			return errors.Join(err, w.many.DeleteOn(nil, keys, device.Slice[bool]{}), keys.Free())
		},
		func() error { _, err := w.pairs.Len(); return err },
		func() error { _, err := w.pairs.Stats(); return err },
		w.pairs.Clear,
		func() error { return w.pairs.Update(one, one, table.Add) },
		func() error { return w.pairs.Find(one, nil, nil) },
		func() error { return other.Insert(one, one) },
		func() error { return w.counts.Add(one) },
		remove,
	} {
		if !w.last && i < 4 {
			call = remove
		} else if !w.last {
			call = insert
		}
		if e := call(); e == nil || !strings.Contains(e.Error(), "all members make the same calls in the same order") {
			err = errors.Join(err, fmt.Errorf("rank %d, calls that differ: %w", w.m.Rank(), e))
		}
		n, e := w.pairs.Len()
		k, e2 := other.Len()
		if n+k != 0 || e != nil || e2 != nil {
			err = errors.Join(err, fmt.Errorf("%d and %d pairs, %w, %w", n, k, e, e2))
		}
	}
	return errors.Join(err, other.Close())
}

// goroutines of a job of one member use its tables side by side: nobody takes what another says for his own.
func (w *wrongs) goroutines() error {
	if w.m.Size() > 1 {
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for g := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range uint32(30) {
				if g%2 == 0 {
					errs[g] = errors.Join(errs[g], w.counts.Add([]uint32{i}))
				} else {
					_, err := w.keys.Insert([]uint32{i, uint32(g)}, nil)
					errs[g] = errors.Join(errs[g], err)
				}
			}
		}()
	}
	wg.Wait()
	found := make([]uint32, 1)
	err := errors.Join(append(errs, w.counts.Find([]uint32{7}, found, nil))...)
	if found[0] != 4 {
		err = errors.Join(err, fmt.Errorf("a key was counted %d times by 4 goroutines", found[0]))
	}
	return err
}

// closed: one member has closed its part. The others hear so, in each call.
func (w *wrongs) closed() error {
	if w.last {
		if err := w.keys.Close(); err != nil {
			return err
		}
		if _, err := w.keys.All(); !errors.Is(err, table.ErrClosed) { // waits for nobody
			return fmt.Errorf("a closed table's All: %w", err)
		}
	}
	closed := table.ErrClosed.Error()
	return errors.Join(
		w.told("a closed Insert", closed, func() error { _, err := w.keys.Insert([]uint32{1}, nil); return err }),
		w.told("a closed Contains", closed, func() error { return w.keys.Contains([]uint32{1}, make([]bool, 1)) }),
		w.told("a closed Len", closed, func() error { _, err := w.keys.Len(); return err }),
		w.told("a closed Check", closed, w.keys.Check),
		w.keys.Close())
}

// left: one member leaves. The others hear so when they call, and it does itself.
func (w *wrongs) left() error {
	x, err := shard.NewMap(w.m, shard.Options{}, families[uint32, uint32]()["slab"])
	if err != nil {
		return err
	}
	want := fmt.Sprintf("rank %d is gone: it has left", w.m.Size()-1)
	if w.last {
		want = "has left its job"
		if err := w.m.Close(); err != nil {
			return err
		}
	}
	began := time.Now()
	err = x.Insert([]uint32{1}, []uint32{1})
	if err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 20*time.Second {
		return fmt.Errorf("rank %d, after %v: %w (want %q)", w.m.Rank(), time.Since(began), err, want)
	}
	if _, err := x.Len(); err == nil {
		return errors.New("a table without its job has a length")
	}
	return x.Close()
}
