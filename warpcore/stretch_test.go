package warpcore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// inStretches makes a table take every batch stretch by stretch, in pieces.
func inStretches(c *core, bytes int) {
	c.stretch.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
	c.stretch.minMoved, c.stretch.bytes = 1, bytes
	c.regions = frame.Regions{MinBytes: 1, RegionBytes: 4 << 10, MinRows: 1 << 40, PieceRows: 500, MemoryShare: 8, Span: frame.Threads}
}

func stretched[K, V any](layout Layout) tabletest.Maker[K, V] {
	return func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := New[K, V](d, Options{Options: o, Layout: layout})
		if err == nil {
			inStretches(m.core, 13<<10)
		}
		return m, err
	}
}

// Batches that go in stretch by stretch leave what others leave.
func TestStretches(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {Capacity: 3000}, {Capacity: 3000, LoadFactor: 1, Seed: 3}, {MaxBytes: 64 << 10, LoadFactor: 1},
			{Capacity: 3000, Hash: kernel.HashIdentity}} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				seed, steps := uint64(i), 30
				if !d.Info().CUDA() && !testenv.Long() {
					steps = 12
				}
				tabletest.Set(func(d *device.Device, o table.Options) (table.Set[uint32], error) {
					s, err := NewSet[uint32](d, Options{Options: o})
					if err == nil {
						inStretches(s.core, 17<<10)
					}
					return s, err
				}).Churn(t, d, o, seed, steps, 2500)
				tabletest.Map(stretched[uint32, uint32](Auto)).Churn(t, d, o, seed, steps, 2500)
				if o.Hash != 0 && !testenv.Long() {
					return // a compilation for each
				}
				tabletest.Map(stretched[uint64, uint64](Packed)).Churn(t, d, o, seed, steps, 2500)
				if !d.Info().CUDA() && !testenv.Long() {
					return // another compilation, for what both sides of it have
				}
				tabletest.Map(stretched[uint64, uint32](Packed)).Churn(t, d, o, seed, steps, 2500)
			})
		}
	})
}

// stretchHistory inserts, by batches with equal keys and reserved ones, and deletes, beside a Go map. Half of the
// rounds ask which rows were new.
func stretchHistory[K uint32 | uint64](d *device.Device, o table.Options, bytes int, rng *rand.Rand, rows, rounds int) error {
	m, err := New[K, K](d, Options{Options: o, Layout: Packed})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, bytes)
	s, err := NewSet[K](d, Options{Options: o})
	if err != nil {
		return err
	}
	defer s.Close()
	inStretches(s.core, bytes)
	model, spread := map[K]K{}, []int{1, 2, 8}[rng.IntN(3)] // many equal keys in a batch, or few
	for round := range rounds {
		keys := make([]K, rows+rng.IntN(100))
		values := make([]K, len(keys))
		for i := range keys {
			keys[i], values[i] = K(rng.Uint64N(uint64(spread*rows/2))), K(round<<20+i)
			if i%1000 < 3 {
				keys[i] = ^K(0) - K(i%5)
			}
		}
		if err := stretchRound(d, m, s, round, keys, values, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		var gone []K
		for k := range model {
			if rng.IntN(3) == 0 {
				gone = append(gone, k)
				delete(model, k)
			}
		}
		for _, del := range []func([]K, []bool) (int, error){m.Delete, s.Delete} {
			if n, err := del(gone, nil); err != nil || n != len(gone) {
				return fmt.Errorf("round %d: %d of %d deleted, %v", round, n, len(gone), err)
			}
		}
	}
	if !m.core.stretch.late.Loaded() || !s.core.stretch.late.Loaded() {
		return fmt.Errorf("nothing went in stretch by stretch: %d windows", m.core.t.Main.Windows)
	}
	return nil
}

// stretchRound inserts a batch, and compares both tables with the model, which it brings up to date.
func stretchRound[K uint32 | uint64](d *device.Device, m *Map[K, K], s *Set[K], round int, keys, values []K, model map[K]K) error {
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
	var added [2]device.Slice[bool]
	for i := range added {
		if round%4 < 2 {
			break
		}
		if added[i], err = device.From(d, slices.Repeat([]bool{true}, len(keys))); err != nil {
			return err
		}
		defer added[i].Free()
	}
	insert := m.InsertOn
	if round%2 == 1 {
		insert = func(st *device.Stream, k, v device.Slice[K]) error { return m.InsertNewOn(st, k, v, added[0]) }
	}
	if err := insert(nil, k, v); err != nil {
		return err
	}
	if err := s.InsertOn(nil, k, added[1]); err != nil {
		return err
	}
	got, found, in := make([]K, len(keys)), make([]bool, len(keys)), make([]bool, len(keys))
	if err := m.Find(keys, got, found); err != nil {
		return err
	}
	if err := s.Contains(keys, in); err != nil {
		return err
	}
	for i, k := range keys {
		old, was := model[k]
		switch {
		case !found[i] || !in[i]:
			return fmt.Errorf("key %#x is in the map: %t, and in the set: %t", k, found[i], in[i])
		case round%2 == 1 && was && got[i] != old:
			return fmt.Errorf("key %#x has %#x, and had %#x before its InsertNew", k, got[i], old)
		case !(round%2 == 1 && was) && (int(got[i])>>20 != round || keys[got[i]&(1<<20-1)] != k):
			return fmt.Errorf("key %#x has %#x, which is no value of its batch", k, got[i])
		}
	}
	if round%4 == 3 {
		if err := toldOnce(added[0], keys, values, got, model); err != nil {
			return fmt.Errorf("the map: %w", err)
		}
	}
	if round%4 >= 2 {
		if err := toldOnce(added[1], keys, nil, nil, model); err != nil {
			return fmt.Errorf("the set: %w", err)
		}
	}
	for i, k := range keys {
		model[k] = got[i]
	}
	for _, c := range []interface {
		Check() error
		Len() (int, error)
	}{m, s} {
		if err := c.Check(); err != nil {
			return err
		}
		if n, err := c.Len(); err != nil || n != len(model) {
			return fmt.Errorf("%d (want %d), %v", n, len(model), err)
		}
	}
	return nil
}

// toldOnce tells whether one row of each key that is not in the model was told to be new, and its value is what got
// has.
func toldOnce[K uint32 | uint64](added device.Slice[bool], keys, values, got []K, model map[K]K) error {
	told, err := added.Host(nil)
	if err != nil {
		return err
	}
	times := map[K]int{}
	for i, k := range keys {
		times[k] += 0
		if !told[i] {
			continue
		}
		if times[k]++; got != nil && got[i] != values[i] {
			return fmt.Errorf("row %d is told that its key %#x is new, and has not its value", i, k)
		}
	}
	for k, n := range times {
		want := 1
		if _, in := model[k]; in {
			want = 0
		}
		if n != want {
			return fmt.Errorf("%d rows of key %#x are told that it is new, not %d", n, k, want)
		}
	}
	return nil
}

func TestStretchHistory(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		must(t, stretchHistory[uint32](d, table.Options{Capacity: 3000}, 17<<10, rand.New(rand.NewPCG(1, 1)), 3000, 8))
	})
}

// Histories of tables of other kinds, and of large stretches.
func TestStretchHistories(t *testing.T) {
	testenv.ByTurns(t)
	onDevices(t, func(t *testing.T, d *device.Device) {
		must(t, stretchHistory[uint64](d, table.Options{Capacity: 20000, LoadFactor: 0.95}, 17<<10, rand.New(rand.NewPCG(1, 2)), 8000, 6))
		if d.Info().CUDA() { // stretches as large as elsewhere
			must(t, stretchHistory[uint32](d, table.Options{Capacity: 1 << 18}, stretchBytes, rand.New(rand.NewPCG(1, 4)), 400000, 4))
			must(t, stretchHistory[uint64](d, table.Options{Capacity: 1 << 18}, stretchBytes, rand.New(rand.NewPCG(1, 5)), 400000, 4))
		}
	})
}

// Sets of keys of 16 bytes go in by stretches, too; also keys that come again, and those that mark slots.
func TestStretchesOfWideKeys(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		s, err := NewSet[[2]uint64](d, Options{Options: table.Options{Capacity: 3000}})
		must(t, err)
		defer s.Close()
		inStretches(s.core, 13<<10)
		rng, model := rand.New(rand.NewPCG(1, 9)), map[[2]uint64]bool{}
		for round := range 6 {
			keys := make([][2]uint64, 2500)
			for i := range keys {
				keys[i] = [2]uint64{rng.Uint64N(100), rng.Uint64N(100)}
				if i%500 < 5 {
					keys[i] = [2]uint64{^uint64(i % 7), ^uint64(0)}
				}
				model[keys[i]] = true
			}
			k, err := device.From(d, keys)
			must(t, err)
			must(t, s.InsertOn(nil, k, device.Slice[bool]{}))
			must(t, k.Free())
			must(t, s.Check())
			found := make([]bool, len(keys))
			must(t, s.Contains(keys, found))
			n, err := s.Len()
			must(t, err)
			if slices.Contains(found, false) || n != len(model) {
				t.Fatalf("round %d: %d keys, want %d; all of the batch are found: %t", round, n, len(model), !slices.Contains(found, false))
			}
		}
		if !s.core.stretch.late.Loaded() {
			t.Error("nothing went in by stretches")
		}
	})
}

// stretchStress is a short history under stress, on devices that the test closes.
func stretchStress(t *testing.T) func(seed uint64) error {
	return func(seed uint64) error {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := openFor(t, "cpu", device.WithStress(seed))
		return stretchHistory[uint32](d, table.Options{Capacity: 2000}, 17<<10, rng, 2000, 4)
	}
}

func TestStretchesUnderStress(t *testing.T) {
	t.Parallel()
	stress := stretchStress(t)
	for seed := range uint64(testenv.Seeds(40)) {
		if err := stress(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	canBePlanted(t, stretchDefects(nil))
}

func TestStretchesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	findAll(t, 150, stretchDefects(stretchStress(t)))
}

func stretchDefects(story func(seed uint64) error) []defect {
	return []defect{
		{"equal keys both stand", false, &stretchCU, "twice = fresh & again(w, fresh);", "twice = 0;", story},
		{"a window is written before it is settled", false, &stretchCU, "    job.settle();\n", "", story},
		{"a slot becomes empty before others", false, &stretchCU, "u32 slot = Mark::nearest(~taken & Mark::ALL, Probe<C>(p.table, A::key_of(pair)).first_slot());", "u32 slot = 31 - (u32)leading_zeros(~taken & Mark::ALL);", story},
		{"rows that are left over are forgotten", false, &stretchCU, "if (is[j] != IN) leave(", "if (false) leave(", story},
		{"tombstones are taken in full windows", false, &stretchCU, "if (!empty) keys = ALL;", "", story},
		{"all rows of a new key are told", false, &stretchCU, "tell(window, fresh & ~twice);", "tell(window, fresh);", story},
		{"a key's only row is not told", false, &stretchCU, "        else tell(i, fresh);\n", "", story},
		{"rows that are left over are others'", false, &stretchCU, "_positions)[to] = position;", "_positions)[to] = position ^ 1;", story},
		{"a listed row is told as another", false, &stretchCU, "position[i] = from;", "position[i] = from ^ 1;", story},
		{"rows go on before others are settled", false, &stretchCU, "if (load_relaxed(marks + at) >> Mark::WAS == Mark::ALL) {", "if ((load_relaxed(marks + at) & Mark::ALL) == Mark::ALL) {", from(13, story)},
		{"a full window is not marked", false, &stretchCU, "mark(h);\n            h.advance(number++);", "h.advance(number++);", story},
		{"a key is not looked for farther on", false, &stretchCU, "if (!p.empty && there(at, k, v)) return IN;", "", story},
		{"a listed key is not looked for", false, &stretchCU, "if (there(w, at, k, v)) return IN;", "", story},
		{"a long chain is not told", false, &stretchCU, "        if (longest) max_of_memory(&counters(t)->max_probes, (u64)longest);\n", "", story},
		{"rounds are not settled", false, &stretchCU, "settle_of(at[j] &", "if (false) settle_of(at[j] &", story},
	}
}
