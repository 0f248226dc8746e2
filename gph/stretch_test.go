package gph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// smallStretch fits the shared memory of the CPU device's blocks.
const smallStretch = 8 << 10

// inStretches makes a table build whatever it can stretch by stretch.
func inStretches(c *core) {
	c.stretch.rule, c.constructFrom = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}, 1
}

// buildHistory builds a table of n pairs, of which some are equal, and some have reserved keys, beside a Go map; then it goes on
// as any other.
func buildHistory[K, V uint32 | uint64](d *device.Device, o Options, seed uint64, n int) error {
	rng := rand.New(rand.NewPCG(seed, 5))
	o.stretchBytes = smallStretch
	m, err := New[K, V](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core)
	ranged := seed%6 == 3 || seed%6 == 5 // fewer equal keys, of which many are left over
	if ranged {
		m.core.stretch.rangeRows = int64(n) / (3 + 30*int64(seed%4))
	}
	keys, values := make([]K, n), make([]V, n)
	may := map[K]map[V]bool{}
	equal := []int{64, 4, 1 << 30}[seed%3] // one row in so many has a key from before
	for i := range keys {
		keys[i], values[i] = K(rng.Uint64()), V(rng.Uint64())
		switch {
		case i%1000 < 5:
			keys[i] = ^K(0) - K(rng.IntN(6))
		case i%1000 < 10:
			keys[i] = K(rng.IntN(3))
		case rng.IntN(equal) == 0:
			keys[i] = keys[rng.IntN(i+1)]
		}
		if may[keys[i]] == nil {
			may[keys[i]] = map[V]bool{}
		}
		may[keys[i]][values[i]] = true
	}
	verify := func() error {
		if err := m.Check(); err != nil {
			return err
		}
		if got, err := m.Len(); err != nil || got != len(may) {
			return fmt.Errorf("%d pairs, want %d, %v", got, len(may), err)
		}
		got, found := make([]V, n), make([]bool, n)
		if err := m.Find(keys, got, found); err != nil {
			return err
		}
		for i, k := range keys {
			if found[i] != (may[k] != nil) || found[i] && !may[k][got[i]] {
				return fmt.Errorf("key %#x: %#x, %t", k, got[i], found[i])
			}
		}
		return nil
	}
	if err := m.Build(keys, values); err != nil {
		return err
	}
	if m.core.stretch.built == 0 {
		return errors.New("nothing was built stretch by stretch")
	}
	if ranges := m.core.stretch.ranges; ranged != (ranges > 1) {
		return fmt.Errorf("it was built in %d ranges", ranges)
	}
	if err := verify(); err != nil {
		return fmt.Errorf("built: %w", err)
	}
	for _, k := range keys[:n/4] {
		delete(may, k)
	}
	if _, err := m.Delete(keys[:n/4], nil); err != nil {
		return err
	}
	for i := range keys[:n/4] {
		k := keys[i] ^ K(i%2)<<7
		if keys[i] = k; may[k] == nil {
			may[k] = map[V]bool{}
		}
		may[k][values[i]] = true
	}
	if err := m.Insert(keys[:n/4], values[:n/4]); err != nil {
		return err
	}
	if err := verify(); err != nil {
		return fmt.Errorf("inserted: %w", err)
	}
	built := m.core.stretch.built
	if err := m.Grow(3 * n); err != nil {
		return err
	}
	if d.Info().Stress && m.core.stretch.built == built {
		return errors.New("it did not grow stretch by stretch")
	}
	if err := verify(); err != nil {
		return fmt.Errorf("grown: %w", err)
	}
	return nil
}

func sized(n int, load float64, hash int) Options {
	return Options{Options: table.Options{Capacity: n, LoadFactor: load, Hash: hash}}
}

func TestStretches(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			const n = 40_000
			must(t, buildHistory[uint32, uint32](d, sized(n, 0.8, 0), 0, n))
			must(t, buildHistory[uint32, uint32](d, sized(n, 0.95, 0), 1, n))
			must(t, buildHistory[uint64, uint64](d, sized(n, 0.8, 0), 2, n))
			must(t, buildHistory[uint32, uint64](d, sized(0, 0, 0), 3, n))
			must(t, buildHistory[uint64, uint64](d, sized(n, 0.8, 0), 5, n))
			if testenv.Long() {
				must(t, buildHistory[uint64, uint64](d, sized(n, 0.95, 0), 4, n))
				must(t, buildHistory[uint64, uint32](d, sized(n, 0.95, kernel.HashMueller), 5, n))
			}
		})
	}
}

// stressed builds under stress: with fewer virtual buckets, smaller tables have stretches.
func stressed(t *testing.T, seed uint64) error {
	o := sized(8000, 0.9, 0)
	o.VirtualBuckets = 8
	if seed%4 == 3 {
		o = sized(33_000, 0.95, 0)
	}
	return buildHistory[uint32, uint32](open(t, "cpu", device.WithStress(seed)), o, seed, o.Capacity)
}

func TestStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(20)) {
		if err := stressed(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Each of these defects is found by some history under stress.
func TestStretchDefects(t *testing.T) {
	testenv.ByTurns(t)
	text := stretchCU
	defer func() { stretchCU = text }()
	for _, c := range [][3]string{
		{"a bucket has more pairs than slots", "if ((i32)add(f, 0u - need) >= (i32)need) return true;", "if ((i32)add(f, 0u - need) != 99) return true;"},
		{"equal keys both stand", "if (!met) return pairs;", "return pairs;"},
		{"equal keys leave holes", "if (j < pairs) {", "if (false) {"},
		{"equal keys go into the reserve", "if (twice(pairs, own)) return NOWHERE;", ""},
		{"pairs without a place are forgotten", "leave(on && code == NOWHERE, k, v);", "leave(false, k, v);"},
		{"pairs are written before all are planned", "= (wide)code;\n        }\n        block_sync();", "= (wide)code;\n        }"},
		{"buckets are emptied while pairs are written", "u128{~0ull, ~0ull};\n        block_sync();", "u128{~0ull, ~0ull};"},
		{"equal keys are looked for while pairs are written",
			"        block_sync();\n        for (u32 b = thread_index(); b < buckets; b += block_threads()) added",
			"        for (u32 b = thread_index(); b < buckets; b += block_threads()) added"},
		{"a stretch is stored before all is written", "add(&stage.added, added);\n        block_sync();", "add(&stage.added, added);"},
		{"a warp counts two cells together", "g.sync(); // what is there is no longer read\n        fit.clear_need(g);", "g.sync();"},
		{"the first stretch of a range is left to the range before", "if (!job.n) return;", "if (!job.n || p.first && block_index() == 0) return;"},
		{"what a range leaves over is where the range before has left its own",
			"? add_in_memory(at<u32>(p.left), (u32)popcount(all)) : 0;", "? add_in_memory(at<u32>(p.left), (u32)popcount(all)) / (p.first ? 2 : 1) : 0;"},
		{"the reserve is written from where it is taken", "p.reserve_used) + r.count + b, 1u)", "p.reserve_used) + b, 1u)"},
	} {
		t.Run(c[0], func(t *testing.T) {
			if n := strings.Count(text, c[1]); n != 1 {
				t.Fatalf("the kernel has %d times\n%s", n, c[1])
			}
			stretchCU = strings.Replace(text, c[1], c[2], 1)
			for seed := range uint64(20) {
				if err := stressed(t, seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("no seed finds the defect")
		})
	}
}

// Few keys that come very often: some stretches have more pairs than slots, or the batch is not brought in order at all. In ranges, more pairs may be left
// over than there is room for: then the table is made anew as a whole.
func TestStretchesOfFewKeys(t *testing.T) {
	d := open(t, "cpu")
	for _, c := range []struct {
		often, keys int
		rangeRows   int64
		built       bool
	}{
		{2_000, 1, 0, true}, {2_000, 7, 0, true}, {10_000, 1, 0, false}, {10_000, 7, 0, true},
		{2_000, 1, 8_000, true}, {2_000, 7, 8_000, false}, {10_000, 1, 8_000, false},
	} {
		const n = 40_000
		o := sized(n, 0.8, 0)
		o.stretchBytes, o.Seed = smallStretch, 3
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		inStretches(m.core)
		m.core.stretch.rangeRows = c.rangeRows
		k, v := make([]uint32, n), make([]uint32, n)
		for i := range k {
			if k[i], v[i] = uint32(i)*2654435761, uint32(i); i < c.often*c.keys && i < n/2 {
				k[i] = uint32(i % c.keys)
			}
		}
		must(t, m.Build(k, v))
		must(t, m.Check())
		got, found := make([]uint32, n), make([]bool, n)
		must(t, m.Find(k, got, found))
		for i := range k {
			if !found[i] || k[got[i]] != k[i] {
				t.Fatalf("key %#x: %d, %t", k[i], got[i], found[i])
			}
		}
		t.Logf("%+v: %d built by stretches, in %d ranges, %d left over", c, m.core.stretch.built, m.core.stretch.ranges, m.core.stretch.left)
		if c.built != (m.core.stretch.built > 0) {
			t.Errorf("%+v: built stretch by stretch: %t", c, !c.built)
		}
		must(t, m.Close())
	}
}

// Hash functions that are no good, under which cells or stretches have far too many pairs, or all pairs would be in one range.
func TestStretchesOfPoorHashes(t *testing.T) {
	testenv.ByTurns(t)
	d := open(t, "cpu")
	for _, hash := range []int{kernel.HashIdentity, kernel.HashConstant} {
		for _, shift := range []int{0, 12, 20} {
			const n = 3000
			o := sized(40_000, 0.8, hash)
			o.stretchBytes = smallStretch
			m, err := New[uint64, uint32](d, o)
			must(t, err)
			inStretches(m.core)
			if shift > 0 {
				m.core.stretch.rangeRows = n / 3
			}
			k, v := make([]uint64, n), make([]uint32, n)
			for i := range k {
				k[i], v[i] = uint64(i)<<(shift+32), uint32(i)
			}
			must(t, m.Build(k, v))
			must(t, m.Check())
			got, found := make([]uint32, n), make([]bool, n)
			must(t, m.Find(k, got, found))
			for i := range k {
				if !found[i] || got[i] != v[i] {
					t.Fatalf("key %#x: %d, %t", k[i], got[i], found[i])
				}
			}
			must(t, m.Close())
		}
	}
}

// Where memory is short, a table is built in ranges, and where it is very short, as before, or by inserts.
func TestStretchesInLittleMemory(t *testing.T) {
	for _, c := range []struct{ bytes, ranges int64 }{{2 << 20, 1}, {1400 << 10, 2}, {1100 << 10, 8}, {1 << 20, 0}, {900 << 10, 0}} {
		d := open(t, "cpu", device.WithMemory(c.bytes))
		const n = 40_000
		o := sized(n, 0.6, 0)
		o.stretchBytes = smallStretch
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		inStretches(m.core)
		k := make([]uint32, n)
		for i := range k {
			k[i] = uint32(i)
		}
		must(t, m.Build(k, k))
		must(t, m.Check())
		if n, err := m.Len(); err != nil || n != len(k) {
			t.Error(n, err)
		}
		s, err := m.Stats()
		must(t, err)
		if m.core.stretch.ranges != c.ranges || m.core.stretch.built != min(c.ranges, 1) || s.ScratchBytes > 256<<10 {
			t.Errorf("with %d bytes: built in %d ranges, want %d; %d bytes of scratch memory", c.bytes, m.core.stretch.ranges, c.ranges, s.ScratchBytes)
		}
		if free, _, err := d.Memory(); err != nil || free < c.bytes-s.Bytes-s.ScratchBytes-64<<10 {
			t.Errorf("with %d bytes: %d are free, and the table has %d, %v", c.bytes, free, s.Bytes, err)
		}
		must(t, m.Close())
	}
}

// A set that does not fit leaves exactly the keys out that the error names.
func TestStretchesRefuse(t *testing.T) {
	d := open(t, "cpu")
	for seed := range uint64(testenv.Seeds(3)) {
		o := Options{Options: table.Options{MaxBytes: 300 << 10, LoadFactor: 1, Seed: seed}, stretchBytes: smallStretch}
		m, err := New[uint32, uint32](d, o)
		must(t, err)
		inStretches(m.core)
		m.core.stretch.rangeRows = int64(seed+1) % 2 * 8_000
		n := int(m.core.maxBuckets())*m.core.cfg.bucket - 100 - 1000*int(seed)
		k := make([]uint32, n)
		for i := range k {
			k[i] = uint32(i) * 2654435761
		}
		var full *table.FullError
		if err := m.Build(k, k); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
		must(t, m.Check())
		found, out := make([]bool, n), 0
		must(t, m.Contains(k, found))
		for i, in := range found {
			if in {
				continue
			}
			if full == nil || out >= len(full.Positions) || full.Positions[out] != i {
				t.Fatalf("position %d of %d is not in, and the error says %v", i, n, full)
			}
			out++
		}
		if full != nil && out != len(full.Positions) {
			t.Errorf("%d positions are named, %d are not in", len(full.Positions), out)
		}
		if m.core.stretch.built == 0 {
			t.Error("nothing was built stretch by stretch")
		}
		t.Logf("%d of %d refused", out, n)
		must(t, m.Close())
	}
}

// Dense tables of distinct keys leave few pairs over.
func TestStretchesLeaveFew(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			for _, load := range []float64{0.533, 0.8, 0.95} {
				const n = 200_000
				keys, err := workload.NewKeys("rand", 4, 1)
				must(t, err)
				k, v := make([]uint32, n), make([]uint32, n)
				workload.Pairs(keys, k, v)
				o := sized(n, load, 0)
				o.stretchBytes, o.Seed = 32<<10, 7
				m, err := New[uint32, uint32](d, o)
				must(t, err)
				inStretches(m.core)
				must(t, m.Build(k, v))
				must(t, m.Check())
				s, err := m.IndexStats()
				must(t, err)
				t.Logf("load %v: %d left over; %+v", load, m.core.stretch.left, s)
				if s.Len != n || s.Moves > n/1000 || m.core.stretch.built != 1 {
					t.Errorf("load factor %v: %+v", load, s)
				}
				must(t, m.Close())
			}
		})
	}
}

// 100 million pairs on a GPU, or one million on the CPU, stretch by stretch, by ranges of stretches, and as a whole; then look-ups, half of which hit.
func BenchmarkBuild(b *testing.B) {
	for _, name := range []string{"cpu", "cuda:0"} {
		d, err := device.Open(name)
		if err != nil {
			continue
		}
		n := 1_000_000
		if d.Info().CUDA() {
			n *= 100
		}
		for _, load := range []float64{0.533, 0.8, 0.95} {
			b.Run(fmt.Sprintf("%s/4+4/%v", name, load), func(b *testing.B) { benchmarkBuild[uint32](b, d, n, load) })
			b.Run(fmt.Sprintf("%s/8+8/%v", name, load), func(b *testing.B) { benchmarkBuild[uint64](b, d, n, load) })
		}
		must(b, d.Close())
	}
}

func benchmarkBuild[K uint32 | uint64](b *testing.B, d *device.Device, n int, load float64) {
	key := func(i int) K { // a bijection
		if ^K(0) == 1<<32-1 {
			return K(kernel.Fmix32(uint32(i)))
		}
		return K(kernel.Fmix64(uint64(i)))
	}
	keys := make([]K, n)
	for i := range keys {
		keys[i] = key(i)
	}
	k, err := device.From(d, keys)
	must(b, err)
	defer k.Free()
	for i := 1; i < n; i += 2 {
		keys[i] = key(n + i)
	}
	half, err := device.From(d, keys)
	must(b, err)
	defer half.Free()
	values, err := device.Make[K](d, n)
	must(b, err)
	defer values.Free()
	found, err := device.Make[bool](d, n)
	must(b, err)
	defer found.Free()
	st := d.Stream()
	for _, stretches := range []bool{true, false} {
		o := sized(n, load, 0)
		o.stretchBytes = stretchBytes
		if !d.Info().CUDA() {
			o.stretchBytes = 32 << 10
		}
		m, err := New[K, K](d, o)
		must(b, err)
		m.core.stretch.rule = frame.Stretches{MinRows: 1 << 60, SlotShare: 8, Blocks: 2}
		if stretches {
			m.core.stretch.rule.MinRows = 1
		}
		// timed runs do, which waits or not, and gives the seconds.
		timed := func(do func() error) float64 {
			must(b, st.Sync())
			start := time.Now()
			must(b, do())
			must(b, st.Sync())
			return time.Since(start).Seconds()
		}
		build := func() float64 {
			must(b, m.Clear())
			return timed(func() error { return m.BuildOn(st, k, k) })
		}
		rate := func(b *testing.B, run func() float64) {
			run()
			took := 0.0
			for range b.N {
				took += run()
			}
			b.ReportMetric(float64(n)*float64(b.N)/took/1e9, "G/s")
		}
		b.Run(fmt.Sprintf("build/stretches=%t", stretches), func(b *testing.B) {
			rate(b, build)
			b.ReportMetric(float64(m.core.stretch.left), "left")
		})
		for _, ranges := range []int64{2, 10, 64} {
			if !stretches {
				continue
			}
			b.Run(fmt.Sprintf("build/ranges=%d", ranges), func(b *testing.B) {
				m.core.stretch.rangeRows = int64(n)/ranges + 1
				rate(b, build)
				b.ReportMetric(float64(m.core.stretch.ranges), "ranges")
				b.ReportMetric(float64(m.core.stretch.left), "left")
			})
			m.core.stretch.rangeRows = 0
		}
		if stretches {
			b.Run("order", func(b *testing.B) { // alone
				c := m.core
				must(b, m.Clear())
				x, err := c.compileBuild()
				must(b, err)
				in := frame.Rows{Keys: k.Addr(), Values: k.Addr(), N: int64(n)}
				fine, _ := c.stretch.rule.Fine(frame.Regions{PieceRows: in.N, PowerOfTwo: true}, in.N, c.slots(), int64(c.t.Stretches), in.N)
				rate(b, func() float64 {
					return timed(func() error {
						_, err := c.byStretches(st, x, in, fine, func(frame.PartRange) error { return nil })
						return err
					})
				})
				must(b, c.frame.Spare())
			})
		}
		build()
		if s, err := m.IndexStats(); err != nil || s.Len != n || stretches != (m.core.stretch.built > 0) || s.LoadFactor < load-0.01 {
			b.Fatalf("%+v, %v, built %d", s, err, m.core.stretch.built)
		}
		b.Run(fmt.Sprintf("find/stretches=%t", stretches), func(b *testing.B) {
			rate(b, func() float64 { return timed(func() error { return m.FindOn(st, half, values, found) }) })
		})
		in, err := found.Host(st)
		must(b, err)
		for i, hit := range in {
			if hit != (i%2 == 0) {
				b.Fatalf("position %d: %t", i, hit)
			}
		}
		must(b, m.Close())
	}
}
