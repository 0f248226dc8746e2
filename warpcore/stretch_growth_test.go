package warpcore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// growsInStretches makes a table grow stretch by stretch, and take no batch so.
func growsInStretches(c *core, bytes int) {
	c.stretch.rule.MinRows, c.stretch.minMoved, c.stretch.bytes, c.regions.MinBytes = math.MaxInt64, 1, bytes, 1
}

// growing are tables of each kind that grow stretch by stretch, and what they should hold.
type growing[K uint32 | uint64] struct {
	m     *Map[K, K]
	s     *Set[K]
	c     *Counter[K, K]
	model map[K]K
}

func newGrowing[K uint32 | uint64](d *device.Device, o table.Options, bytes int) (g growing[K], err error) {
	var errs [3]error
	g.m, errs[0] = New[K, K](d, Options{Options: o, Layout: Packed})
	g.s, errs[1] = NewSet[K](d, Options{Options: o})
	g.c, errs[2] = NewCounter[K, K](d, CounterOptions{Options: Options{Options: o, Layout: Packed}})
	g.model = map[K]K{}
	if err := errors.Join(errs[:]...); err != nil {
		return g, err
	}
	for _, c := range g.cores() {
		growsInStretches(c, bytes)
	}
	return g, nil
}

func (g growing[K]) cores() []*core { return []*core{g.m.core, g.s.core, g.c.core} }

// batch inserts keys, of which a key's value and count are the same: so a key that is in does not come again.
func (g growing[K]) batch(keys []K) error {
	var fresh, values []K
	for _, k := range keys {
		if _, in := g.model[k]; !in {
			g.model[k] = k%5 + 1
			fresh, values = append(fresh, k), append(values, k%5+1)
		}
	}
	_, err := g.s.Insert(fresh, nil)
	return errors.Join(err, g.m.Insert(fresh, values), g.c.AddCounts(fresh, values))
}

// delete takes a third of the keys out of the map and the set. Counters have no such operation.
func (g growing[K]) delete(rng *rand.Rand) error {
	var gone []K
	for k := range g.model {
		if rng.IntN(3) == 0 {
			gone = append(gone, k)
			delete(g.model, k)
		}
	}
	_, first := g.m.Delete(gone, nil)
	_, then := g.s.Delete(gone, nil)
	return errors.Join(first, then)
}

// check compares all pairs.
func (g growing[K]) check(counts bool) error {
	keys, values, err := g.m.All()
	if err != nil {
		return err
	}
	alone, err := g.s.All()
	if err != nil {
		return err
	}
	all := map[string][]K{"map": keys, "set": alone}
	value := map[string][]K{"map": values}
	if counts {
		if all["counter"], value["counter"], err = g.c.All(); err != nil {
			return err
		}
	}
	for name, keys := range all {
		if len(keys) != len(g.model) {
			return fmt.Errorf("the %s has %d keys, not %d", name, len(keys), len(g.model))
		}
		for i, k := range keys {
			if v, in := g.model[k]; !in || value[name] != nil && value[name][i] != v {
				return fmt.Errorf("the %s has key %#x, which should be in: %t, with %d", name, k, in, v)
			}
		}
	}
	want := make([]K, 0, len(g.model))
	for k := range g.model {
		want = append(want, k)
	}
	found := make([]bool, len(want))
	for _, find := range []func([]K, []bool) error{g.m.Contains, g.s.Contains} {
		if err := find(want, found); err != nil {
			return err
		}
		for i, in := range found {
			if !in {
				return fmt.Errorf("key %#x is not found", want[i])
			}
		}
	}
	return errors.Join(g.m.Check(), g.s.Check(), g.c.Check())
}

// growthHistory lets tables grow from almost nothing, in batches with a reserved key each. They also grow on demand, and
// in the end, after deletions, are laid anew in their size.
func growthHistory[K uint32 | uint64](d *device.Device, o table.Options, bytes int, rng *rand.Rand, rows, rounds int) error {
	g, err := newGrowing[K](d, o, bytes)
	if err != nil {
		return err
	}
	defer func() { errors.Join(g.m.Close(), g.s.Close(), g.c.Close()) }()
	for round := range rounds {
		keys := make([]K, rows+rng.IntN(100))
		for i := range keys {
			if keys[i] = K(rng.Uint64()); o.Hash == kernel.HashIdentity && i%2 == 0 {
				keys[i] &= 0xfff // of one window, and from others
			}
		}
		keys[0] = ^K(0) - K(round%3)
		if err := g.batch(keys); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := g.check(true); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	n := len(g.model)
	for _, to := range []int{n + n/3, 3 * n} {
		if err := errors.Join(g.m.Grow(to), g.s.Grow(to), g.c.Grow(to)); err != nil {
			return err
		}
		if err := g.check(true); err != nil {
			return fmt.Errorf("grown to %d: %w", to, err)
		}
	}
	for range 2 {
		windows := g.m.core.t.Main.Windows
		if err := errors.Join(g.delete(rng), g.m.Grow(1), g.s.Grow(1)); err != nil {
			return err
		}
		if g.m.core.t.Main.Windows != windows || g.m.core.tombstones() != 0 {
			return fmt.Errorf("laid anew with %d windows, not %d, and %d tombstones", g.m.core.t.Main.Windows, windows,
				g.m.core.tombstones())
		}
		if err := g.check(false); err != nil {
			return fmt.Errorf("laid anew: %w", err)
		}
	}
	for _, c := range g.cores() {
		if !c.stretch.late.Loaded() {
			return fmt.Errorf("a %v did not grow stretch by stretch", c.kind)
		}
	}
	return nil
}

func TestGrowthInStretches(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {LoadFactor: 1}, {LoadFactor: 0.5}, {Hash: kernel.HashIdentity}} {
			if o.Hash != 0 && !d.Info().CUDA() && !testenv.Long() {
				continue // a compilation, and TestStretches has that hash
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				o.Capacity = 10
				rng := rand.New(rand.NewPCG(9, uint64(i)))
				must(t, growthHistory[uint32](d, o, 9<<10, rng, 1400, 8))
				if i < 2 || testenv.Long() {
					must(t, growthHistory[uint64](d, o, 9<<10, rng, 1400, 8))
				}
				if i < 2 && d.Info().CUDA() { // stretches as large as elsewhere
					must(t, growthHistory[uint32](d, o, stretchBytes, rng, 100000, 5))
					must(t, growthHistory[uint64](d, o, stretchBytes, rng, 100000, 5))
				}
			})
		}
	})
}

// Where there is no memory for the pairs that may be left over, a table grows as others do: the kernel of stretches,
// which has a defect here, is not asked.
func TestGrowthInStretchesWithoutMemory(t *testing.T) {
	text := stretchCU
	defer func() { stretchCU = text }()
	stretchCU = strings.Replace(text, "if (h.window - from >= windows) return false;", "if (h.window - from >= windows / 2) return false;", 1)
	grow := func(memory int64) error {
		d := openCPU(t, device.WithMemory(memory))
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 200_000}})
		must(t, err)
		defer m.Close()
		growsInStretches(m.core, stretchBytes)
		keys := sequence(0, 160_000)
		must(t, m.Insert(keys, keys))
		err = m.Grow(400_000)
		must(t, m.Check())
		if n, err := m.Len(); n != len(keys) || err != nil {
			t.Errorf("%d pairs, %v", n, err)
		}
		return err
	}
	if err := grow(64 << 20); err == nil || !strings.Contains(err.Error(), "are in the new table") {
		t.Fatalf("the defect is not found: %v", err)
	}
	for memory := int64(5 << 20); ; memory += 128 << 10 {
		err := grow(memory)
		if err == nil {
			return
		} else if !device.IsOutOfMemory(err) {
			t.Fatalf("%d bytes: %v", memory, err)
		}
	}
}

// A growth whose list of what is left over is too short moves the pairs slot by slot; one with room enough does not, and none writes beyond its list.
func TestGrowthLeavesOverTooMany(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		for _, c := range []struct {
			hash     int
			least    int64
			launches uint64 // of a growth: by stretches, what is left over, the reserved keys; and the old way
		}{{0, 0, 3}, {kernel.HashIdentity, 1 << 12, 3}, {kernel.HashIdentity, 0, 4}} {
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 3000, Hash: c.hash}})
			must(t, err)
			defer m.Close()
			growsInStretches(m.core, 13<<10)
			m.core.stretch.leastLeft = c.least
			keys := make([]uint32, 2500)
			for i := range keys {
				if keys[i] = uint32(i) * 0x9e3779b1; i%2 == 0 && c.hash != 0 {
					keys[i] = uint32(i) // of one window all
				}
			}
			keys[0] = ^uint32(0)
			must(t, m.Insert(keys, keys))
			for _, to := range []int{6000, 12000} {
				before := d.Launches()
				must(t, m.Grow(to))
				if n := d.Launches() - before; n != c.launches {
					t.Errorf("hash %v, room for %d rows and a share: %d launches, want %d", c.hash, c.least, n, c.launches)
				}
				must(t, m.Check())
				values, found := make([]uint32, len(keys)), make([]bool, len(keys))
				must(t, m.Find(keys, values, found))
				for i, k := range keys {
					if !found[i] || values[i] != k {
						t.Fatalf("key %#x has %d, %v", k, values[i], found[i])
					}
				}
				if n, err := m.Len(); n != len(keys) || err != nil {
					t.Errorf("%d pairs, %v", n, err)
				}
			}
		}
	})
}

// growthStress is a short history of growth under stress, on devices that the test closes.
func growthStress(t *testing.T) func(seed uint64) error {
	return func(seed uint64) error {
		o := table.Options{Capacity: 10, Seed: seed + 1}
		if seed%4 == 3 {
			o.LoadFactor = 1
		}
		d := openFor(t, "cpu", device.WithStress(seed))
		return growthHistory[uint32](d, o, 9<<10<<(seed%2*2), rand.New(rand.NewPCG(seed, 8)), 300, 4)
	}
}

func TestGrowthInStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	stress := growthStress(t)
	for seed := range uint64(testenv.Seeds(40)) {
		if err := stress(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	canBePlanted(t, growthDefects(nil))
}

func TestGrowthInStretchesFindsDefects(t *testing.T) {
	testenv.ByTurns(t)
	findAll(t, 40, growthDefects(growthStress(t)))
}

func growthDefects(story func(seed uint64) error) []defect {
	return []defect{
		{"a window at a border is nobody's", false, &stretchCU, "begin = home(from * n / m);", "begin = home(from * n / m + WARPCORE_NEIGHBOURHOOD - 1);", story},
		{"a window at a border is both blocks'", false, &stretchCU, "if (h.window - from >= windows) return false;", "if (h.window - from >= windows) h.window = from;", story},
		{"pairs far from their first windows are lost", false, &stretchCU, "return window < own;", "return false;", story},
		{"pairs far from their first windows are put", false, &stretchCU, "if (home(reduce(h.hash, p.old.windows)) != home(window))", "if (false)", story},
		{"pairs of a full neighbourhood are lost", false, &stretchCU, "if (number == C::NEAR) return true;", "if (number == C::NEAR) return false;", story},
		{"a full window is not marked", false, &stretchCU, "mark(h);\n            h.advance(number);", "h.advance(number);", story},
		{"a long chain is not told", false, &stretchCU, "        if (longest) max_of_memory(&counters(t)->max_probes, (u64)longest);\n", "", from(11, story)},
		{"a stretch is written before all have come", false, &stretchCU, "    job.move_all();\n    if (job.added) add(&stage.added, job.added);\n    block_sync();\n    job.leave_listed();\n    job.store();\n", "    job.move_all();\n    job.store();\n    if (job.added) add(&stage.added, job.added);\n    block_sync();\n    job.leave_listed();\n", story},
		{"all blocks' lists are one", false, &stretchCU, "leave(stage.base + i, stage.k[i]", "leave(i, stage.k[i]", from(18, story)},
	}
}

// The kernels of stretches compile for GPUs, on machines that have none.
func TestStretchesCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for _, v := range testenv.Some([]variant{{4, 4, Packed, 8, 1, 4}, {4, 0, Packed, 16, 1, 4}, {8, 8, Packed, 4, 1, 2},
		{16, 0, Packed, 4, 1, 4}, {4, 8, Packed, 4, 1, 4}, {8, 0, Packed, 2, 1, 1}, {4, 4, Packed, 2, 1, 1}}, 1) {
		c := &core{opts: v.options(table.Options{})}
		c.cfg = config{keyBytes: v.keyBytes, valueBytes: v.valueBytes, layout: v.layout, window: v.window}
		t.Run(v.String(), func(t *testing.T) {
			testenv.Turn(t)
			t.Parallel()
			if c.cfg.stretchWindows(1, stretchBytes, true) == 0 {
				t.Fatal("not for stretches")
			}
			info, err := device.InfoFor("sm_90")
			if err == nil && v.keyBytes+v.valueBytes > 8 && !info.CAS128 {
				t.Skipf("%s has no 128-bit compare-and-swap", info.Compiler)
			}
			programs := []*device.Program{c.stretchProgram()}
			if !c.cfg.set() {
				multi := &core{opts: c.opts, cfg: c.cfg.ofMultimap()}
				programs = append(programs, multi.stretchMultiProgram())
			}
			for _, p := range programs {
				_, err = device.CompileFor("sm_90", p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			}
		})
	}
}

// From nothing, in batches of 10 million pairs on a GPU, or of 100,000 on the CPU; and one growth to twice the size alone:
// pairs a second, stretch by stretch and slot by slot.
func BenchmarkGrowth(b *testing.B) {
	for _, name := range []string{"cpu", "cuda:0"} {
		d, err := device.Open(name)
		if err != nil {
			continue
		}
		n := 1_000_000
		if d.Info().CUDA() {
			n *= 100
		}
		b.Run(name+"/4+4", func(b *testing.B) { benchmarkGrowth[uint32](b, d, n) })
		b.Run(name+"/8+8", func(b *testing.B) { benchmarkGrowth[uint64](b, d, n) })
		must(b, d.Close())
	}
}

func benchmarkGrowth[K uint32 | uint64](b *testing.B, d *device.Device, n int) {
	keys := make([]K, n)
	for i := range keys {
		keys[i] = K(kernel.Fmix64(uint64(i)))
	}
	k, err := device.From(d, keys)
	must(b, err)
	defer k.Free()
	run := func(stretches bool, capacity, batch, to int) (took time.Duration) {
		m, err := New[K, K](d, Options{Options: table.Options{Capacity: capacity}, Layout: Packed})
		must(b, err)
		defer m.Close()
		m.core.stretch.minMoved = math.MaxInt64
		if stretches {
			m.core.stretch.minMoved = 1 << 22
		}
		start := time.Now()
		for at := 0; at < n; at += batch {
			must(b, m.InsertOn(nil, k.Slice(at, at+batch), k.Slice(at, at+batch)))
		}
		_, err = m.Len() // waits
		must(b, err)
		if to > 0 {
			start = time.Now()
			must(b, m.Grow(to))
		}
		return time.Since(start)
	}
	for _, stretches := range []bool{true, false} {
		for _, x := range []struct{ capacity, batch, to int }{{0, n / 10, 0}, {n, n / 10, 2 * n}} {
			b.Run(fmt.Sprintf("stretches=%t/capacity=%d", stretches, x.capacity), func(b *testing.B) {
				run(stretches, x.capacity, x.batch, x.to)
				var took time.Duration
				for range b.N {
					took += run(stretches, x.capacity, x.batch, x.to)
				}
				b.ReportMetric(float64(n)*float64(b.N)/took.Seconds()/1e9, "G/s")
			})
		}
	}
}
