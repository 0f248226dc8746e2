package dycuckoo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// stageAll makes a table stage every batch, in pieces; stretches of two subtables fit the CPU's shared memory.
func stageAll[K, V any](m *Map[K, V]) {
	m.core.staged.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
	m.core.regions = frame.Regions{MinBytes: 1 << 60, RegionBytes: 1 << 20, MinRows: 1 << 12, PieceRows: 1 << 13, MemoryShare: 8, PowerOfTwo: true}
}

// stagedHistory inserts, by batches with equal keys and reserved ones, deletes and grows, beside a Go map.
func stagedHistory[K uint32 | uint64, V uint32 | uint64](d *device.Device, o Options, rng *rand.Rand, rows, rounds int) error {
	return stagedHistoryOf[K, V](d, o, rng, rows, rounds, func(x uint64) K { return K(x) })
}

func wideKeyOf(x uint64) wideKey { return wideKey{x & 3, x >> 2} }

func stagedHistoryOf[K comparable, V uint32 | uint64](d *device.Device, o Options, rng *rand.Rand, rows, rounds int, keyOf func(uint64) K) error {
	m, err := New[K, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	stageAll(m)
	if rng.IntN(2) == 0 {
		m.core.mostListed = 3
	}
	if rng.IntN(3) == 0 {
		m.core.staged.mostListed = 2 << rng.IntN(8)
	}
	model := map[K]V{}
	for round := range rounds {
		keys, values := make([]K, rows+rng.IntN(100)), make([]V, rows+rng.IntN(100))
		values = append(values, make([]V, len(keys))...)[:len(keys)]
		for i := range keys {
			keys[i], values[i] = keyOf(rng.Uint64N(uint64(4*rows))), V(round<<20+i)
			if i%1000 < 3 {
				keys[i] = keyOf(^uint64(0) - uint64(i%5))
			}
		}
		err := error(nil)
		if round%2 == 0 {
			err = m.Insert(keys, values)
		} else { // no flags: those would not be staged
			err = onDevice(d, keys, values, func(k device.Slice[K], v device.Slice[V]) error {
				return m.InsertNewOn(nil, k, v, device.Slice[bool]{})
			})
		}
		full := (*table.FullError)(nil)
		if err != nil && !errors.As(err, &full) {
			return err
		}
		refused := map[int]bool{}
		if full != nil {
			for _, i := range full.Positions {
				refused[i] = true
			}
		}
		got, found := make([]V, len(keys)), make([]bool, len(keys))
		if err := m.Find(keys, got, found); err != nil {
			return err
		}
		for i, k := range keys {
			old, was := model[k]
			switch {
			case found[i] == refused[i]:
				return fmt.Errorf("round %d: key %v is found: %t, and refused: %t", round, k, found[i], refused[i])
			case refused[i]:
				continue
			case round%2 == 1 && was && got[i] != old:
				return fmt.Errorf("round %d: key %v has %#x, and had %#x before its InsertNew", round, k, got[i], old)
			case !(round%2 == 1 && was) && (int(got[i])>>20 != round || keys[got[i]&(1<<20-1)] != k):
				return fmt.Errorf("round %d: key %v has %#x, which is no value of its batch", round, k, got[i])
			}
		}
		for i, k := range keys {
			if found[i] {
				model[k] = got[i]
			}
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if n, err := m.Len(); err != nil || n != len(model) {
			return fmt.Errorf("round %d: %d pairs (want %d), %v", round, n, len(model), err)
		}
		var gone []K
		for k := range model {
			if rng.IntN(3) == 0 {
				gone = append(gone, k)
				delete(model, k)
			}
		}
		if n, err := m.Delete(gone, nil); err != nil || n != len(gone) {
			return fmt.Errorf("round %d: %d of %d deleted, %v", round, n, len(gone), err)
		}
	}
	if !m.core.staged.late.Loaded() {
		return fmt.Errorf("nothing was staged: %d buckets", m.core.step.total(m.core.d()))
	}
	return nil
}

func onDevice[K, V any](d *device.Device, keys []K, values []V, do func(k device.Slice[K], v device.Slice[V]) error) error {
	k, err := device.From(d, keys)
	if err != nil {
		return err
	}
	defer k.Free()
	v, err := device.From(d, values)
	if err != nil {
		return err
	}
	defer v.Free()
	return do(k, v)
}

func TestStagedInserts(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			base := Options{Subtables: 2, Bucket: 32}
			grows, full := base, base
			grows.Capacity = 6000
			full.MaxBytes = 80 << 10
			must(t, stagedHistory[uint32, uint32](d, grows, rand.New(rand.NewPCG(1, 1)), 10000, 6))
			must(t, stagedHistory[uint32, uint32](d, full, rand.New(rand.NewPCG(1, 2)), 10000, 4))
			wide := grows
			wide.Layout = Wide
			if name != "cpu" || testenv.Long() { // the next is as wide
				must(t, stagedHistory[uint32, uint32](d, wide, rand.New(rand.NewPCG(1, 7)), 10000, 6))
			}
			wide.Bucket, wide.Capacity = 64, 1500
			must(t, stagedHistoryOf[wideKey, uint64](d, wide, rand.New(rand.NewPCG(1, 8)), 3000, 6, wideKeyOf))
			if name != "cpu" || testenv.Long() {
				must(t, stagedHistory[uint64, uint64](d, grows, rand.New(rand.NewPCG(1, 3)), 5000, 4))
				if name != "cpu" { // as much shared memory as there is
					must(t, stagedHistory[uint32, uint32](d, Options{Options: table.Options{Capacity: 1 << 18}}, rand.New(rand.NewPCG(1, 4)), 400000, 4))
					must(t, stagedHistory[uint64, uint32](d, Options{Options: table.Options{Capacity: 1 << 18}, Subtables: 3}, rand.New(rand.NewPCG(1, 5)), 400000, 4))
				}
				grows.Balance = Theorem1
				must(t, stagedHistory[uint32, uint32](d, grows, rand.New(rand.NewPCG(1, 6)), 20000, 6))
			}
		})
	}
	t.Run("stress", func(t *testing.T) {
		for seed := range uint64(testenv.Seeds(60)) {
			if err := stagedStress(t, seed); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
}

// liftedHistory inserts two batches with many equal keys into a table of layout Wide that they fill, so that pairs are
// moved for rows, and looks for each row and each pair.
func liftedHistory(d *device.Device, seed uint64) error {
	m, err := New[wideKey, uint64](d, Options{Options: table.Options{MaxBytes: 110 << 10}, Subtables: 2, Bucket: 64, Layout: Wide})
	if err != nil {
		return err
	}
	defer m.Close()
	stageAll(m)
	m.core.regions.PieceRows = 1 << 20
	rng, in := rand.New(rand.NewPCG(seed, 9)), map[wideKey]bool{}
	distinct := 2900 + 60*(seed%8) // of some 3300 slots
	for round, n := range []uint64{distinct * 7 / 8, distinct} {
		keys, values := make([]wideKey, 9000), make([]uint64, 9000)
		for i := range keys {
			keys[i], values[i] = wideKeyOf(4096+rng.Uint64N(n)), uint64(round<<20+i)
		}
		full := &table.FullError{}
		if err := m.Insert(keys, values); err != nil && !errors.As(err, &full) {
			return err
		}
		got, found := make([]uint64, len(keys)), make([]bool, len(keys))
		if err := m.Find(keys, got, found); err != nil {
			return err
		}
		for i, k := range keys {
			if _, refused := slices.BinarySearch(full.Positions, i); refused == found[i] {
				return fmt.Errorf("round %d: key %v is found: %t, and refused: %t", round, k, found[i], refused)
			}
			if !found[i] {
				continue
			}
			if in[k] = true; int(got[i]>>20) != round || keys[got[i]&(1<<20-1)] != k {
				return fmt.Errorf("round %d: key %v has %#x, which is no value of its batch", round, k, got[i])
			}
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if n, err := m.Len(); err != nil || n != len(in) {
			return fmt.Errorf("round %d: %d pairs (want %d), %v", round, n, len(in), err)
		}
	}
	return nil
}

// In layout Wide a pair that is moved has a slot's bit first, and then its key. However long that takes, no other thread
// moves the pair on meanwhile; without the claims of free slots, some do.
func TestStagedMovesTakeTheirTime(t *testing.T) {
	testenv.ByTurns(t)
	text := stagedCU
	defer func() { stagedCU = text }()
	edit := func(old, now string) {
		if n := strings.Count(stagedCU, old); n != 1 {
			t.Fatalf("the kernels have %d times\n%s", n, old)
		}
		stagedCU = strings.Replace(stagedCU, old, now, 1)
	}
	edit("        return take(nullptr, to, load_relaxed(Slots::key_at(from, slot)), Slots::value_at(from, slot)) != GONE;\n", `
        key k = load_relaxed(Slots::key_at(from, slot));
        value v = Slots::value_at(from, slot);
        u32 room = reserve(to);
        if (room == GONE) return false;
        for (u32 i = 0; i < 200; i++) pause();
        store_relaxed(Slots::key_at(to, room), k);
        Slots::replace(to, room, k, v);
        return true;
`)
	history := func(seed uint64) error {
		d, err := device.Open("cpu", device.WithStress(seed))
		if err != nil {
			return err
		}
		return errors.Join(liftedHistory(d, seed), d.Close())
	}
	for seed := range uint64(testenv.Seeds(600)) {
		if err := history(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	edit("claims[i] |= ~Fill<C>::begin(bucket(i)) & Cells<C>::ALL;", "{}")
	for seed := range uint64(600) {
		if err := history(seed); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("no seed finds that free slots are not claimed")
}

func TestStagedInsertsFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	text := stagedCU
	defer func() { stagedCU = text }()
	defects := map[string][2]string{
		"a bucket that others are filling counts as full": {"if (!Fill<C>::was_full(fills() + home.number)) {", "if ((load_relaxed(fills() + home.number) & 0xffff) < C::SLOTS) {"},
		"equal keys both stand":                           {"if (now > was && perhaps_twice(b)) now", "if (false) now"},
		"no mark of a pair that goes away":                {"                    h.goes_away(stage.table);\n", ""},
		"no mark of a pair that is moved away":            {"        if (sub == h.other) h.goes_away(stage.table);\n", ""},
		"a key that is away stands at home, too":          {"if (!p.empty && is_away(h, v)) return true;", "if (false) return true;"},
		"pairs go away from a bucket with room":           {"        if (side && Cells<C>::look(from, h.stored, same) != Cells<C>::ALL) return false;", ""},
		"a row that is moved for twice stands twice":      {"                if (slot[i] != GONE) once(slot[i]);", ""},
	}
	if !testenv.Long() {
		delete(defects, "equal keys both stand")
		delete(defects, "pairs go away from a bucket with room")
	}
	for name, c := range defects {
		t.Run(name, func(t *testing.T) {
			if n := strings.Count(text, c[0]); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c[0])
			}
			stagedCU = strings.Replace(text, c[0], c[1], 1)
			for seed := range uint64(100) {
				if err := stagedStress(t, seed); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("no seed finds the defect")
		})
	}
}

// stagedStress inserts over stress, with many equal keys, into a table that is full or nearly so.
func stagedStress(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	o, rows, rounds := Options{Options: table.Options{Capacity: 3500}, Subtables: 2, Bucket: 32}, 4000, 4
	switch {
	case seed%3 == 1:
		o.Options, rows, rounds = table.Options{MaxBytes: 36 << 10}, 3000, 2
	case seed%6 == 2:
		o.Layout = Wide
	case seed%6 == 5:
		o.Layout, o.Bucket, o.Options = Wide, 64, table.Options{MaxBytes: 110 << 10}
		return stagedHistoryOf[wideKey, uint64](open(t, "cpu", device.WithStress(seed)), o, rng, 4000, 2, wideKeyOf)
	}
	return stagedHistory[uint32, uint32](open(t, "cpu", device.WithStress(seed)), o, rng, rows, rounds)
}

// staging is a table of n keys that stages every batch.
func staging(t *testing.T, d *device.Device, capacity, n int) (*Map[uint32, uint32], []uint32) {
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: capacity}, Subtables: 2, Bucket: 32})
	must(t, err)
	t.Cleanup(func() { m.Close() })
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = kernel.Fmix32(uint32(i))
	}
	stageAll(m)
	return m, keys
}

// allIn tells of keys that cannot be found, and of what Check finds.
func allIn(t *testing.T, m *Map[uint32, uint32], keys []uint32) {
	t.Helper()
	found := make([]bool, len(keys))
	must(t, errors.Join(m.Check(), m.Contains(keys, found)))
	for i, ok := range found {
		if !ok {
			t.Fatalf("key %#x cannot be found", keys[i])
		}
	}
}

// A rebuild that goes in pieces keeps all of them: only the first finds an empty table.
func TestStagedRebuild(t *testing.T) {
	m, keys := staging(t, open(t, "cpu"), 12000, 10000)
	must(t, m.Insert(keys, keys))
	m.core.mostRows = 1 << 12
	must(t, m.core.frame.Writing(nil, func(st *device.Stream) error {
		if _, err := m.core.look(st); err != nil {
			return err
		}
		return m.core.rebuild(st, m.core.step, true)
	}))
	allIn(t, m, keys)
}

// A launch that fails leaves the table whole: the tilt is that of the filters, and nobody takes it for empty that has pairs.
func TestStagedAfterErrors(t *testing.T) {
	d := open(t, "cpu")
	m, keys := staging(t, d, 6000, 6000)
	m.core.staged.rule.MinRows = 1 << 40
	must(t, m.Insert(keys, keys))
	must(t, m.Grow(int(m.core.limitAt(m.core.step+1))))
	m.core.forecast = frame.Forecast{} // it does not grow for the next batch
	if m.core.tilt == m.core.tiltAt(m.core.step) {
		t.Fatal("the tilt would stay")
	}
	m.core.staged.rule.MinRows = 1
	m.core.loadStaged()
	m.core.staged.replacing, m.core.staged.adding = device.Kernel[stagedParams]{}, device.Kernel[stagedParams]{} // which cannot be launched
	if err := m.Insert(keys[:5000], keys[:5000]); err == nil {
		t.Error("a launch that cannot be is no error")
	}
	m.core.staged.late = frame.Late{}
	allIn(t, m, keys)

	m, keys = staging(t, d, 6000, 6000) // without memory for lists
	m.core.staged.rule.MinRows = 1 << 40
	must(t, m.Insert(keys, keys))
	must(t, m.Grow(int(m.core.limitAt(m.core.step+1))))
	m.core.forecast, m.core.staged.rule.MinRows = frame.Forecast{}, 1
	must(t, m.core.frame.Writing(nil, func(*device.Stream) error {
		if err := m.core.frame.Spare(); err != nil {
			return err
		}
		s, err := m.core.frame.Scratch(16) // which cannot be given back
		err = errors.Join(err, s.Mem.Free())
		s.Done()
		return err
	}))
	if err := m.Insert(keys[:5000], keys[:5000]); err == nil {
		t.Error("scratch that is freed already is no error")
	}
	allIn(t, m, keys)

	m, keys = staging(t, d, 6000, 5000)
	works := m.core.kernel.refuseAbsent
	m.core.kernel.refuseAbsent = device.Kernel[insertParams]{}
	if err := m.Insert(keys[:2500], keys[:2500]); err == nil {
		t.Error("a launch that cannot be is no error")
	}
	m.core.kernel.refuseAbsent = works
	must(t, m.Insert(keys[2500:], keys[2500:]))
	allIn(t, m, keys)
}

// Where memory is for a few rows at a time only, batches are not staged.
func TestStagedWithLittleMemory(t *testing.T) {
	d := open(t, "cpu", device.WithMemory(4<<20))
	m, keys := staging(t, d, 6000, 3000)
	in, err := device.From(d, keys)
	must(t, err)
	defer in.Free()
	must(t, m.InsertOn(nil, in, in))
	must(t, m.Clear())
	must(t, m.core.frame.Writing(nil, func(*device.Stream) error { return m.core.frame.Spare() }))
	free, _, err := d.Memory()
	must(t, err)
	shift := m.core.stretchesOf()
	words := frame.Align(8*int64(frame.PartitionWords(1<<((shift+1)/2)))) + frame.Align(8*int64(frame.PartitionWords(1<<shift)))
	for _, rows := range []int64{0, 1, 20, 31, 32, 100} {
		filler, err := device.Make[byte](d, int(free-8*(words+4*256+16*rows)-8))
		must(t, err)
		must(t, m.InsertOn(nil, in, in))
		allIn(t, m, keys)
		must(t, filler.Free())
		must(t, m.core.frame.Writing(nil, func(*device.Stream) error { return m.core.frame.Spare() }))
	}
}

// An empty table that cannot grow any more says so, and is not made anew.
func TestEmptyAtMaxBytes(t *testing.T) {
	m, err := New[uint32, uint32](open(t, "cpu"), Options{Options: table.Options{MaxBytes: 64 << 10}})
	must(t, err)
	defer m.Close()
	m.Use(nil, 1<<20, func(Table) error { return nil }) // grows to the bound
	was := m.core.subs[0].Slots
	if err := m.Use(nil, 1<<20, func(Table) error { return nil }); !errors.Is(err, table.ErrMaxBytes) || m.core.subs[0].Slots != was {
		t.Errorf("%v; the memory was at %#x and is at %#x", err, was, m.core.subs[0].Slots)
	}
}
