package warpcore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// inSums has rows of one key combined before they go in, so many at once: in blocks with room for few keys, of parts that one pass makes, or two, as are more than so many.
func inSums(c *core, shared, onePass, pieceRows int64) {
	c.regions = tinyRegions
	c.regions.PieceRows = pieceRows
	c.repeated, c.trusted = true, 1<<40
	c.combining.shared, c.combining.onePass = shared, onePass
}

// sumsOf makes a batch in which most keys come several times. Some come very often, apart or beside one another, some are reserved, and all marks of a
// free entry are among them.
func sumsOf(rng *rand.Rand, n int) []uint32 {
	keys, hot := make([]uint32, n), rng.IntN(3)
	for i := range keys {
		keys[i] = kernel.Fmix32(uint32(rng.IntN(n / 3)))
		switch {
		case i%50 < 2:
			keys[i] = ^uint32(rng.IntN(4))
		case hot == 1 && i%3 > 0, hot == 2 && i > n/2 && i%8 > 0:
			keys[i] = 77
		case i%40 == 7:
			keys[i] = 0
		case i%40 > 30:
			keys[i] = keys[i-1]
		}
	}
	return keys
}

// widened makes keys of K of those that sumsOf gives: reserved ones of reserved ones.
func widened[K uint32 | uint64](keys []uint32) []K {
	wide := make([]K, len(keys))
	for i, k := range keys {
		if wide[i] = K(k) * (^K(0) / math.MaxUint32); k > ^uint32(8) {
			wide[i] = ^K(^k)
		}
	}
	return wide
}

// sumsHistory updates a map batch by batch beside a Go map. draw gives values; those of noKey are all the same one, which stands for no sum yet.
func sumsHistory[K uint32 | uint64, V uint32 | int32 | float32 | uint64 | int64 | float64](d *device.Device, o Options, op table.Combine, shared, onePass int64, seed uint64, rows, rounds int,
	draw func(rng *rand.Rand) V, none V) error {
	const noKey = 12345
	m, err := New[K, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	inSums(m.core, shared, onePass, int64(rows)/2)
	rng, model := rand.New(rand.NewPCG(seed, 3)), map[K]V{}
	for round := range rounds {
		keys := widened[K](sumsOf(rng, rows+rng.IntN(100)))
		// What is known of how many keys there are: nothing, about how many, or far too few.
		m.core.distinct, m.core.seen = int64(len(keys)/3), int64(round%3*len(keys))
		if round%3 == 2 {
			m.core.distinct = 5
		}
		values := make([]V, len(keys))
		for i := range keys {
			if values[i] = draw(rng); i%30 == 4 {
				keys[i], values[i] = noKey, none
			}
		}
		if err := m.Update(keys, values, op); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for i, k := range keys {
			old, in := model[k]
			v := values[i]
			switch {
			case !in:
				model[k] = v
			case op == table.Add:
				model[k] = old + v
			case op == table.Min && v < old, op == table.Max && v > old:
				model[k] = v
			case op == table.And:
				model[k] = V(uint64(old) & uint64(v))
			case op == table.Or:
				model[k] = V(uint64(old) | uint64(v))
			}
		}
		if err := sameSums(m, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// sameSums compares a table with a model; a value that is no number is like another.
func sameSums[K uint32 | uint64, V comparable](m interface {
	All() ([]K, []V, error)
	Check() error
}, model map[K]V) error {
	keys, values, err := m.All()
	if err = errors.Join(err, m.Check()); err != nil {
		return err
	}
	for i, k := range keys {
		want, in := model[k]
		if v := values[i]; !in || v != want && (v == v || want == want) {
			return fmt.Errorf("key %#x has %v (want %v, %t)", k, v, want, in)
		}
	}
	if len(keys) != len(model) {
		return fmt.Errorf("%d keys (want %d)", len(keys), len(model))
	}
	return nil
}

// countsHistory counts keys, once each or so many times that some counts come to the largest there is.
func countsHistory(d *device.Device, shared, onePass int64, seed uint64, rows, rounds int) error {
	c, err := NewCounter[uint32, uint32](d, CounterOptions{Options: Options{Options: table.Options{Seed: seed}}})
	if err != nil {
		return err
	}
	defer c.Close()
	inSums(c.core, shared, onePass, int64(rows)/2)
	rng, model := rand.New(rand.NewPCG(seed, 4)), map[uint32]uint32{}
	for round := range rounds {
		keys, over := sumsOf(rng, rows+rng.IntN(100)), false
		counts := make([]uint32, len(keys))
		for i := range keys {
			if counts[i] = 1; round%2 == 1 {
				counts[i] = rng.Uint32N(5)
				if rng.IntN(100) == 0 {
					counts[i] = ^uint32(0) - rng.Uint32N(3)
				}
			}
			sum := uint64(model[keys[i]]) + uint64(counts[i])
			over = over || sum > math.MaxUint32
			model[keys[i]] = uint32(min(sum, math.MaxUint32))
		}
		if round%2 == 0 {
			err = c.Add(keys)
		} else {
			err = c.AddCounts(keys, counts)
		}
		if errors.Is(err, table.ErrOverflow) != over || err != nil && !over {
			return fmt.Errorf("round %d: %v (too large: %t)", round, err, over)
		}
		if err := sameSums(c, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// What an operation needs to be tried: its values, and one that stands for no sum yet.
type sumsCase struct {
	name string
	run  func(d *device.Device, o Options, shared, onePass int64, seed uint64, rows, rounds int) error
}

func sumsCaseOf[K uint32 | uint64, V uint32 | int32 | float32 | uint64 | int64 | float64](name string, op table.Combine, draw func(rng *rand.Rand) V, none V) sumsCase {
	return sumsCase{name, func(d *device.Device, o Options, shared, onePass int64, seed uint64, rows, rounds int) error {
		return sumsHistory[K](d, o, op, shared, onePass, seed, rows, rounds, draw, none)
	}}
}

func sumsCases() []sumsCase {
	float := func(rng *rand.Rand) float32 {
		if rng.IntN(12) == 0 {
			return float32(math.Inf(rng.IntN(2)*2 - 1))
		}
		return float32(rng.IntN(4000) - 2000)
	}
	return []sumsCase{
		sumsCaseOf[uint32]("add u32", table.Add, (*rand.Rand).Uint32, 0),
		sumsCaseOf[uint64]("add u64", table.Add, (*rand.Rand).Uint64, 0),
		sumsCaseOf[uint32]("min f32", table.Min, float, math.Float32frombits(^uint32(0xabcd))),
		sumsCaseOf[uint32]("add f32", table.Add, func(rng *rand.Rand) float32 { return float32(rng.IntN(4000) - 2000) }, 0),
		sumsCaseOf[uint32]("max i32", table.Max, func(rng *rand.Rand) int32 { return int32(rng.Uint32()) }, math.MinInt32),
		sumsCaseOf[uint32]("and u32", table.And, func(rng *rand.Rand) uint32 { return rng.Uint32() | rng.Uint32() }, math.MaxUint32),
		sumsCaseOf[uint32]("min i64", table.Min, func(rng *rand.Rand) int64 { return int64(rng.Uint64()) }, math.MaxInt64),
		sumsCaseOf[uint32]("or u64", table.Or, func(rng *rand.Rand) uint64 { return rng.Uint64() & rng.Uint64() & rng.Uint64() }, 0),
		sumsCaseOf[uint32]("max f64", table.Max, func(rng *rand.Rand) float64 { return float64(float(rng)) }, math.Float64frombits(^uint64(0xabcd))),
		sumsCaseOf[uint32]("min u32", table.Min, (*rand.Rand).Uint32, math.MaxUint32),
		sumsCaseOf[uint32]("add f64", table.Add, func(rng *rand.Rand) float64 { return float64(rng.IntN(4000)) - 2000 }, 0),
	}
}

// Rows that are combined first leave what others leave, whatever the operation, and however few keys have room in a block.
func TestCombinedRows(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, x := range testenv.Some(sumsCases(), 3) {
			t.Run(x.name, func(t *testing.T) {
				for j, shared := range []int64{4 << 10, 12 << 10, 1 << 15} {
					onePass := []int64{1, 3, frame.MaxParts}[(i+j)%3]
					o := Options{Options: table.Options{Capacity: []int{0, 1800}[j%2], Seed: uint64(i)}}
					if err := x.run(d, o, shared, onePass, uint64(j), 1500, 4); err != nil {
						t.Fatalf("%d bytes, %d parts in one pass: %v", shared, onePass, err)
					}
				}
			})
		}
		t.Run("counts", func(t *testing.T) {
			for j, shared := range []int64{4 << 10, 12 << 10, 1 << 15} {
				if err := countsHistory(d, shared, []int64{1, 3, frame.MaxParts}[j], uint64(j), 1500, 4); err != nil {
					t.Fatalf("%d bytes: %v", shared, err)
				}
			}
		})
		if d.Info().CUDA() { // as much shared memory as there is, and parts that blocks share
			for i, x := range testenv.Some(sumsCases(), 2) {
				must(t, x.run(d, Options{Options: table.Options{Capacity: 1 << 18}}, d.Info().Shared, frame.MaxParts, uint64(i), 600_000, 3))
			}
			must(t, countsHistory(d, d.Info().Shared, frame.MaxParts, 9, 600_000, 4))
		}
	})
}

// Batches that may need more room than a table has go in at once, if what is left of them fits, and grow it no more than others do. If it does not, they
// go in as others.
func TestSumsThatFit(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for _, maxBytes := range []int64{0, 20 << 10} {
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 1600, MaxBytes: maxBytes, Seed: 3}})
			must(t, err)
			inSums(m.core, 8<<10, 2, 1200)
			rng, model, slots := rand.New(rand.NewPCG(1, 8)), map[uint32]uint32{}, m.core.capacity()
			update := func(n, keys int, expected int64) (full *table.FullError) {
				t.Helper()
				k, v := make([]uint32, n), make([]uint32, n)
				for i := range k {
					if k[i], v[i] = kernel.Fmix32(uint32(rng.IntN(keys))), rng.Uint32(); i%100 == 3 {
						k[i] = ^uint32(i % 3)
					}
				}
				m.core.distinct, m.core.seen, m.core.repeated, m.core.trusted = expected, int64(n), true, 1<<40
				err := m.Update(k, v, table.Add)
				if err != nil && !errors.As(err, &full) {
					t.Fatal(err)
				}
				refused := map[int]bool{}
				if full != nil {
					for _, i := range full.Positions {
						refused[i] = true
					}
				}
				for i, k := range k {
					if !refused[i] {
						model[k] += v[i]
					}
				}
				for i := range refused {
					if _, in := model[k[i]]; in {
						t.Fatalf("position %d is refused, and its key is in", i)
					}
				}
				must(t, sameSums(m, model))
				return full
			}
			took := func() bool { return m.core.trusted < 1<<40 && m.core.seen <= m.core.regions.PieceRows }
			if full := update(5000, 700, 700); full != nil || !took() || m.core.capacity() != slots {
				t.Errorf("%d bytes: 703 keys: %v, at once: %t, %d slots of %d", maxBytes, full, took(), m.core.capacity(), slots)
			}
			if full := update(5000, 1550, 800); full != nil || !took() || m.core.capacity() != slots {
				t.Errorf("%d bytes: 1553 keys in all: %v, at once: %t, %d slots of %d", maxBytes, full, took(), m.core.capacity(), slots)
			}
			if full := update(5000, 900, 5000); full != nil || took() {
				t.Errorf("%d bytes: many keys were expected: %v, at once: %t", maxBytes, full, took())
			}
			for range 8 { // a few new keys each, until the table is as full as it should be
				if full := update(400, 1700, 350); full != nil || !took() {
					t.Errorf("%d bytes: few rows: %v, at once: %t", maxBytes, full, took())
				}
			}
			if _, err := m.Len(); err != nil || len(model) <= 1610 || maxBytes == 0 && m.core.filled > m.core.limit() {
				t.Errorf("%d keys, %d slots are filled, and %d should be at most: %v", len(model), m.core.filled, m.core.limit(), err)
			}
			if full := update(9000, 4000, 100); (full != nil) != (maxBytes > 0) {
				t.Errorf("%d bytes: 4000 keys: %v", maxBytes, full)
			}
			must(t, m.Close())
		}
	})
}

// combinedStress is a short history under stress of the case of that name, "counts" for those, or of the seed's case, and now and then counts, where it
// is "".
func combinedStress(t *testing.T, of string) func(seed uint64) error {
	cases := sumsCases()
	return func(seed uint64) error {
		d, rows := openFor(t, "cpu", device.WithStress(seed)), 700
		if seed%4 == 3 { // more in a piece than a block takes at a time
			rows = 5000
		}
		for i, x := range cases {
			if of == "" && i != int(seed)%len(cases) || of != "" && of != x.name {
				continue
			}
			o := Options{Options: table.Options{Capacity: []int{0, 900}[seed%2], Seed: seed}, InsertGroup: []int{1, 4}[seed/2%2]}
			if err := x.run(d, o, int64(3<<10+seed%3<<10), int64(seed%4), seed, rows, 3); err != nil {
				return err
			}
		}
		if of == "" && seed%3 == 0 || of == "counts" {
			return countsHistory(d, int64(3<<10+seed%3<<10), int64(seed%4), seed, rows, 4)
		}
		return nil
	}
}

func TestCombinedRowsUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	canBePlanted(t, combinedDefects(t))
	for seed := range uint64(testenv.Seeds(30)) {
		if err := combinedStress(t, "")(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestCombinedRowsFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	findAll(t, 40, combinedDefects(t))
}

func combinedDefects(t *testing.T) []defect {
	of := func(name string) func(seed uint64) error { return combinedStress(t, name) }
	return []defect{
		{"two keys take one entry", false, &updateCU, "key there = cas(&keys[j], (key)C::EMPTY, x);", "key there = load_relaxed(&keys[j]); keys[j] = x;", of("add u32")},
		{"what others put is not seen", false, &updateCU, "if (there == C::EMPTY || there == x) return j;", "if (there == C::EMPTY) return j; if (there == x) return e;", of("add u32")},
		{"a row that finds no entry is lost", false, &updateCU, "if (e == NONE) return false;", "if (e == NONE) return true;", of("add u32")},
		{"a row that finds no entry is twice", false, &updateCU, "if (e == NONE) return false;", "if (e == NONE) return e = 0, add(&sums[0], value), false;", of("add u32")},
		{"the key of free entries is lost", false, &updateCU, "store_racing(&keys[entries], (key)(C::EMPTY - 1));", "", of("add u32")},
		{"it is given out as it stands", false, &updateCU, "e == entries ? (key)C::EMPTY : keys[e]", "keys[e]", of("add u32")},
		{"the last entry is not given out", false, &updateCU, "return e <= entries && keys[e]", "return e < entries && keys[e]", of("add u32")},
		{"entries are not cleared", false, &updateCU, "            keys[e] = C::EMPTY;\n", "            if (e % 7 || !sums[e]) keys[e] = C::EMPTY;\n", of("add u32")},
		{"sums are not cleared", false, &updateCU, "            sums[e] = NO_SUM;\n", "            if (keys[e] == C::EMPTY && !sums[e]) sums[e] = NO_SUM;\n", of("add u32")},
		{"rows gathered stay", false, &updateCU, "return on && (!mine || lane == first);", "return on;", of("add u32")},
		{"rows gathered are not one", false, &updateCU, "if (mine) value = sum;", "", of("add u32")},
		{"gathered by others", false, &updateCU, "number_bits sum = mine ? value : NO_SUM;", "number_bits sum = value;", of("add u32")},
		{"gathered counts are ones", false, &updateCU, "sum = (number_bits)popcount(same);", "sum = 1;", of("counts")},
		{"counts too large together are forgotten", false, &updateCU, "warp.any(more)) return on;", "warp.any(more)) return on && !mine;", of("counts")},
		{"counts too large are forgotten", false, &updateCU, "return count_if_it_fits(to, ones ? 0 : load_volatile(to), value, ones);", "return count_if_it_fits(to, ones ? 0 : load_volatile(to), value, ones), true;", of("counts")},
		{"the first of a minimum is 0", false, &updateCU, "WARPMAP_COMBINE == BY_MIN ? (SIGNED ? HIGHEST_BIT - 1 : ALL_BITS)", "WARPMAP_COMBINE == BY_MIN ? 0", of("min u32")},
		{"of a maximum, too", false, &updateCU, "WARPMAP_COMBINE == BY_MAX ? (SIGNED ? HIGHEST_BIT : 0)", "WARPMAP_COMBINE == BY_MAX ? 0", of("max i32")},
		{"of floats, too", false, &updateCU, "if (STANDS_IN && sum == NO_SUM) return v;", "", of("min f32")},
		{"what stands for no sum is one", false, &updateCU, "if (STANDS_IN && value == NO_SUM) return false;", "if (STANDS_IN && value == NO_SUM) return true;", of("min f32")},
		{"a part ends a row early", false, &updateCU, "u32 n = (u32)(to - from);", "u32 n = (u32)(to - from) - (to - from > 1 && to < r.n);", of("add u32")},
		{"long parts end", false, &updateCU, "if (from < row) from = row;", "to = 0; continue;", of("add u32")},
		{"long parts go on from their beginning", false, &updateCU, "from = starts[part] + p.most;", "from = starts[part];", of("add u32")},
		{"they go on beyond their end", false, &updateCU, "to = starts[part + 1];\n            if (to > row", "to = r.n;\n            if (to > row", of("add u32")},
		{"large parts are twice", false, &updateCU, "if ((to - from > p.most / 8 * 5) != large) continue;", "if (to - from <= p.most / 8 * 5 && large) continue;", of("add u32")},
		{"large parts are left out", false, &updateCU, "if ((to - from > p.most / 8 * 5) != large) continue;", "if (to - from > p.most / 8 * 5 || large) continue;", of("add u32")},
		{"warps give out in one place", false, &updateCU, "u64 all, to = block_scan(warp.rank() == 0 ? n : 0, all);", "u64 all, to = block_scan(warp.rank() == 0 ? n : 0, all); if (to) to -= 1;", of("add u32")},
		{"rows are asked for twice", false, &updateCU, "if (step < n - i) ask(first, i + step, n);", "", of("add u32")},
		{"blocks do not wait for one another", false, &updateCU, "        combined.put_all(from, n);\n        block_sync();\n", "        combined.put_all(from, n);\n", of("add u32")},
	}
}
