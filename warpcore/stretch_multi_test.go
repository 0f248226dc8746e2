package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// inNeighbourhoods makes a table of a prime number of neighbourhoods, so many at least, which in a small table are small.
func inNeighbourhoods(c *core, least int64) error {
	return c.frame.Writing(nil, func(st *device.Stream) error {
		c.cfg.least = least
		err := c.rebuild(st, c.windowsForPairs(int64(c.opts.Capacity)), int64(c.t.Side.Windows))
		c.touched = false
		return err
	})
}

// multiHistory inserts batches with equal keys, beside one another and apart, more of one key than a turn of its chain has slots, and reserved ones, and
// deletes, beside a Go map. Stretches have 128 windows or, on a GPU, as many as elsewhere.
func multiHistory[K uint32 | uint64](d *device.Device, o table.Options, least int64, bytes int, rng *rand.Rand, rows, rounds int) error {
	m, err := NewMultiMap[K, K](d, Options{Options: o, Layout: Packed, FindGroup: 4})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, bytes)
	if err := inNeighbourhoods(m.core, least); err != nil {
		return err
	}
	model, pairs, hot, runs := map[K][]K{}, 0, rng.IntN(2) == 0, rng.IntN(4)
	for round := range rounds {
		keys := make([]K, rows+rng.IntN(100))
		values := make([]K, len(keys))
		for i := range keys {
			keys[i], values[i] = K(rng.Uint64N(uint64(4*rows))), K(round<<20+i)
			switch {
			case i%1000 < 2:
				keys[i] = ^K(0) - K(i%5)
			case hot && i%8 == 5:
				keys[i] = 77
			case runs == 1 && i%200 < 80 && i%40 > 0: // neighbours with one key, more than fit a window
				keys[i] = keys[i-1]
			case runs == 2: // those with one key lie apart
				keys[i] = K(rng.Uint64N(uint64(rows/8 + round)))
			case runs == 3: // the same, and many of one key
				keys[i] = K(rng.Uint64N(uint64(rows/40 + round)))
			}
		}
		if err := multiRound(d, m, keys, values, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		pairs += len(keys)
		var gone []K
		want := 0
		for k := range model {
			if rng.IntN(3) == 0 {
				gone = append(gone, k)
				want += len(model[k])
				delete(model, k)
			}
		}
		pairs -= want
		if n, err := m.Delete(gone, nil); err != nil || n != want {
			return fmt.Errorf("round %d: %d of %d deleted, %v", round, n, want, err)
		}
		if n, err := m.Len(); err != nil || n != pairs {
			return fmt.Errorf("round %d: %d pairs (want %d), %v", round, n, pairs, err)
		}
	}
	if n := m.core.cfg.neighbours(int64(m.core.t.Main.Windows)); least < 1<<20 && n < 8 {
		return fmt.Errorf("%d windows are %d for each neighbourhood", m.core.t.Main.Windows, n)
	}
	if !hot && !m.core.stretch.late.Loaded() { // a hot key may be told to be a crowd
		return fmt.Errorf("nothing went in stretch by stretch: %d windows", m.core.t.Main.Windows)
	}
	return nil
}

// multiRound inserts a batch, and compares the table with the model, which it brings up to date.
func multiRound[K uint32 | uint64](d *device.Device, m *MultiMap[K, K], keys, values []K, model map[K][]K) error {
	k, e1 := device.From(d, keys)
	v, e2 := device.From(d, values)
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	defer k.Free()
	defer v.Free()
	if err := m.InsertOn(nil, k, v); err != nil {
		return err
	}
	for i, k := range keys {
		model[k] = append(model[k], values[i])
	}
	var all []K
	for k := range model {
		all = append(all, k)
	}
	if err := m.Check(); err != nil {
		return err
	}
	offsets, got, err := m.FindAll(all)
	if err != nil {
		return err
	}
	for i, k := range all {
		if its := got[offsets[i]:offsets[i+1]]; !slices.Equal(sorted(its), sorted(model[k])) {
			return fmt.Errorf("key %#x has %d values, %v, and should have %d, %v", k, len(its), sorted(its), len(model[k]), sorted(model[k]))
		}
	}
	return nil
}

// Batches that go into a multimap stretch by stretch leave what others leave.
func TestMultiStretches(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {Capacity: 9000}, {Capacity: 9000, LoadFactor: 1, Seed: 3}, {Capacity: 3000, Hash: kernel.HashIdentity}} {
			if o.Hash != 0 && !testenv.Long() {
				continue // another compilation
			}
			for _, least := range []int64{1 << 20, 37, 89} {
				if !d.Info().CUDA() && !testenv.Long() && (least != 37 || i == 1) {
					continue // more neighbourhoods, but no other way; none, as other tests have them; and the next fills its slots
				}
				must(t, multiHistory[uint32](d, o, least, 10<<10, rand.New(rand.NewPCG(1, uint64(i))), 3000, 6))
			}
		}
		rounds := 6
		if !d.Info().CUDA() && !testenv.Long() {
			rounds = 3
		}
		must(t, multiHistory[uint64](d, table.Options{Capacity: 20000, LoadFactor: 0.95}, 13, 36<<10, rand.New(rand.NewPCG(1, 2)), 8000, rounds))
		if d.Info().CUDA() { // stretches as large as elsewhere
			must(t, multiHistory[uint32](d, table.Options{Capacity: 1 << 20}, 13, multiBytes, rand.New(rand.NewPCG(1, 4)), 400000, 4))
			must(t, multiHistory[uint64](d, table.Options{Capacity: 1 << 20}, 13, multiBytes, rand.New(rand.NewPCG(1, 5)), 400000, 4))
		}
	})
}

// At its bound, a multimap refuses the same number of positions as it would otherwise, and names them: what it has is what the others are.
func TestMultiStretchesAtMaxBytes(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		s := newMultiSubject[uint32, uint32](t, d, Options{Options: table.Options{Capacity: 5000, MaxBytes: 64 << 10, LoadFactor: 0.9}}, 1)
		inStretches(s.m.core, 10<<10)
		must(t, inNeighbourhoods(s.m.core, 13))
		refused := 0
		for range 6 {
			if full := s.insert(s.keys(2000, 4000)); full != nil {
				refused += len(full.Positions)
			}
			s.verify()
			s.find(s.keys(300, 4000))
		}
		if refused == 0 || !s.m.core.stretch.late.Loaded() {
			t.Errorf("%d refused; went in by stretches: %t", refused, s.m.core.stretch.late.Loaded())
		}
	})
}

// multiStress is a short history under stress, on devices that the test closes.
func multiStress(t *testing.T) func(seed uint64) error {
	return func(seed uint64) error {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := openFor(t, "cpu", device.WithStress(seed))
		return multiHistory[uint32](d, table.Options{Capacity: 4000, LoadFactor: 0.9, Seed: seed + 1}, 7, 9<<10, rng, 2500, 4)
	}
}

func TestMultiStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	stress := multiStress(t)
	for seed := range uint64(testenv.Seeds(40)) {
		if err := stress(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	canBePlanted(t, multiStretchDefects(nil))
}

func TestMultiStretchesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	findAll(t, 60, multiStretchDefects(multiStress(t)))
}

func multiStretchDefects(story func(seed uint64) error) []defect {
	return []defect{
		{"two rows take one slot", false, &stretchMultiCU, "if (or_of(marks + window, 1u << slot) >> slot & 1) return false;", "if (load_relaxed(marks + window) >> slot & 1) return false; or_of(marks + window, 1u << slot);", story},
		{"rows that are left over are forgotten", false, &stretchMultiCU, "for (u32 i = thread_index(); i < n; i += block_threads()) leave(", "for (u32 i = thread_index() + 1; i < n; i += block_threads()) leave(", story},
		{"those beyond the list go over others", false, &stretchMultiCU, "if (n >= LISTED) return leave(add_in_memory(at<u32>(p.left), 1u), k, v);", "n %= 4;", story},
		{"full windows are not marked", false, &stretchMultiCU, "if (!(seen & row.past)) or_of(marks + row.window, row.past);", "", story},
		{"marks do not come to memory", false, &stretchMultiCU, "if (past) and_of_memory", "if (false) and_of_memory", story},
		{"a row is sorted twice", false, &stretchMultiCU, "counts + part_of(i), 1u)] = (u16)i;", "counts + part_of(i), 1u)] = (u16)(i ? i - 1 : 0);", story},
		{"rows are counted before counters are 0", false, &stretchMultiCU, "counts[i] = 0;\n        block_sync();", "counts[i] = 0;", story},
		{"the stretch is read while rows are sorted", false, &stretchMultiCU, "(u16)i;\n        block_sync();", "(u16)i;", story},
		{"windows are not marked by runs", false, &stretchMultiCU, "if (n > upto && number", "if (n > upto + 1 && number", story},
		{"runs go on with a window further", false, &stretchMultiCU, "row.window + row.hop * RUN & around - 1", "row.window + row.hop * (RUN + 1) & around - 1", story},
		{"two keys are a run", false, &stretchMultiCU, "bool member = on && k == of && row.number == number;", "bool member = on && row.number == number;", story},
		{"a run's windows are told too low", false, &stretchMultiCU, "take(its_window, number + its,", "take(its_window, number,", story},
		{"a run takes slots further on", false, &stretchMultiCU, "popcount(free) <= n) return C::WINDOW;", "popcount(free) <= n) return C::WINDOW; n = (u32)popcount(free) - 1;", story},
		{"a run goes on before its window is full", false, &stretchMultiCU, "popcount(free) <= n) return C::WINDOW;", "popcount(free) <= n + 1) return C::WINDOW;", story},
		{"tombstones are not counted", false, &stretchMultiCU, "if (!p.empty) reused +=", "if (false) reused +=", story},
		{"what stands in the table is not seen", false, &stretchMultiCU, "marks[i] = Mark::taken(w) | past", "marks[i] = past", story},
		{"reserved keys are not counted", false, &stretchMultiCU, "reserved += is;", "", story},
		{"long chains are not told", false, &stretchMultiCU, "if (stage.longest) max_of_memory", "if (false) max_of_memory", story},
		{"a chain leaves its neighbourhood", false, &stretchMultiCU, "(row.window & ~(around - 1)) | (row.window + row.hop & around - 1);", "row.window + 1;", story},
		{"a run's turn has windows less", false, &stretchMultiCU, "if (row.number >= turn) {", "if (row.number + RUN >= turn) {", story},
		{"a turn has a window more", false, &multileftCUH, "s.p.go_to(s.p.turn());", "s.p.go_to(++s.probes - 1);", story},
		{"rows that are left over begin anew", false, &multileftCUH, "        s.p.go_to(s.p.turn());\n", "", story},
		{"a lane's values go over another's", false, &warpcoreCUH, "value* at_once = at<value>(g.shuffle(to, j)) + (sum - own >> 8 * j & 15);", "value* at_once = at<value>(g.shuffle(to, j)) + (sum >> 8 * j & 15);", story},
		{"a key's first value comes to another lane", false, &warpcoreCUH, "v[j] = (up ? v[j + d] : v[j]) |", "v[j] = (up ? v[j] : v[j + d]) |", story},
		{"an empty slot does not end a look-up", false, &warpcoreCUH, "if (g.rank() >= d) sum += before;", "if (g.rank() > d) sum += before;", story},
		{"the last row that is left over is twice", false, &multileftCUH, "FOR_EACH_ITEM(i, n) {", "if (n) n++; FOR_EACH_ITEM(i, n) {", story},
	}
}

// A batch whose front went in by stretches may have had the side region grow: what is behind it goes into the table that there is then.
func TestFrontGrowsTheSideRegion(t *testing.T) {
	const piece = 12000
	d := openFor(t, "cpu")
	m, err := NewMultiMap[uint32, uint32](d, Options{Options: table.Options{Capacity: 60000, Seed: 3}, Layout: Packed})
	must(t, err)
	defer m.Close()
	inStretches(m.core, 10<<10)
	must(t, inNeighbourhoods(m.core, 37))
	m.core.regions.PieceRows, m.core.regions.MinRows = piece, 512
	var hot []uint32 // of one 64th of the table
	for k := uint32(1 << 28); len(hot) < 200; k++ {
		if kernel.Hash64(m.core.opts.Hash, uint64(k), m.core.opts.Seed)>>58 == 5 {
			hot = append(hot, k)
		}
	}
	rng, keys, values := rand.New(rand.NewPCG(1, 1)), make([]uint32, 2*piece), make([]uint32, 2*piece)
	for i := range keys {
		switch values[i] = uint32(i); {
		case i >= piece:
			keys[i] = hot[i%len(hot)]
		case i%14 < 5:
			keys[i] = ^uint32(i / 14 % 3)
		default:
			keys[i] = rng.Uint32() >> 4
		}
	}
	must(t, multiRound(d, m, keys, values, map[uint32][]uint32{}))
}
