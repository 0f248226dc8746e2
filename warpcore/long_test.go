package warpcore

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// hintsOf counts the hints that tell of windows.
func hintsOf(t *testing.T, c *core) (n int) {
	im := imageOf(t, c)
	for i := range c.t.HintMask + 1 + sideHints {
		if kernel.Pattern(im.mem[c.t.Hints-im.base+i*hintBytes+8:], 8) != ^uint64(0) {
			n++
		}
	}
	return n
}

// probes compares the probe lengths that Stats computes with those that Check's walks give.
func (s *multiSubject[K, V]) probes() {
	s.Helper()
	stats, err := s.m.Stats()
	must(s, err)
	im := imageOf(s, s.m.core)
	sum, n, chains := uint64(0), uint64(0), map[keyBits]chain{}
	for _, side := range []bool{false, true} {
		for slot := range im.region(side).Windows * uint64(im.cfg.window) {
			key := im.key(side, slot)
			if im.cfg.mark(key) != none {
				continue
			}
			key = im.cfg.real(key, side)
			its, ok := chains[key]
			if !ok {
				its = im.chain(key, side)
				chains[key] = its
			}
			pairs := uint64(1)
			if im.cfg.bucket > 0 {
				pairs = im.count(side, slot)
			}
			sum += pairs * its.number[slot/uint64(im.cfg.window)]
			n += pairs
		}
	}
	if want := float64(sum) / float64(n); math.Abs(stats.MeanProbes-want) > 1e-9*want {
		s.Errorf("a look-up reads %g windows, want %g", stats.MeanProbes, want)
	}
}

// longChains inserts, finds and deletes keys with so many values that their chains are most of the table's windows.
func longChains[K, V any](t *testing.T, m *MultiMap[K, V], keys, rows int, reserved bool) {
	d := m.core.frame.Device
	defer m.Close()
	rng := rand.New(rand.NewPCG(3, uint64(keys)))
	s := &multiSubject[K, V]{t, d, m, rng, map[uint64][]uint32{}}
	batch := func(n int) []uint64 {
		out := s.keys(n, keys)
		if reserved {
			for i := range out {
				out[i] = (^uint64(0) - uint64(i%3)) & keyMask[K]()
			}
		}
		return out
	}
	for range 2 {
		s.insert(batch(rows / 8)) // row by row at first, for nobody knows of long chains
		s.insert(batch(rows))
		s.insert(s.keys(rows/16, rows)) // others between
		s.verify()
	}
	if n := hintsOf(t, m.core); n == 0 {
		t.Errorf("no hints of %d keys with %d values", keys, 2*rows)
	}
	s.find(s.all())
	if long := m.core.counters.Seen.MaxProbes >= longChain; long != (m.core.long.Len() > 0) {
		t.Errorf("the longest chain has %d windows, and long ones have %d bytes of their own", m.core.counters.Seen.MaxProbes, m.core.long.Len())
	}
	s.probes()
	must(t, m.Grow(8*rows))
	s.verify()
	s.insert(batch(rows))
	s.verify()
	s.delete(batch(1))
	s.verify()
	if s.delete(s.all()); hintsOf(t, m.core) != 0 {
		t.Errorf("%d hints of no keys", hintsOf(t, m.core))
	}
	s.insert(batch(rows))
	s.verify()
	s.find(s.all())
	must(t, m.Clear())
	clear(s.model)
	s.insert(batch(rows))
	s.verify()
}

// Keys with very many values: a slot of a chain is found by nobody if one before it is left empty.
func TestManyValues(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		rows := 6_000
		switch {
		case d.Info().CUDA():
			rows = 60_000
		case testenv.Long():
			rows = 10_000
		}
		multimap := func(t *testing.T, o Options) *MultiMap[uint32, uint32] {
			m, err := NewMultiMap[uint32, uint32](d, o)
			must(t, err)
			return m
		}
		all := d.Info().CUDA() || testenv.Long()
		for i, keys := range []int{5, 60, 1} {
			for j, o := range []Options{{Options: table.Options{Capacity: 2 * rows}}, {Options: table.Options{Capacity: 2 * rows, LoadFactor: 0.97}, Window: 4}} {
				if i+j > 0 && !all { // reserved keys are one, and buckets have windows, below
					continue
				}
				t.Run(fmt.Sprintf("%d keys, window %d", keys, o.Window), func(t *testing.T) { longChains(t, multimap(t, o), keys, rows, false) })
			}
		}
		t.Run("reserved keys", func(t *testing.T) {
			longChains(t, multimap(t, Options{Options: table.Options{Capacity: 2 * rows}}), 1, rows, true)
		})
		t.Run("16-byte values", func(t *testing.T) {
			if !all {
				t.Skip("a long run has them") // buckets have them below
			}
			m, err := NewMultiMap[uint64, [2]uint64](d, Options{Options: table.Options{Capacity: 2 * rows}})
			must(t, err)
			longChains(t, m, 3, rows, false)
		})
		t.Run("buckets", func(t *testing.T) {
			for keys, o := range map[int]MultiBucketOptions{1: {}, 4: {Bucket: 14, Window: 4}, 2: {Bucket: 1, Options: table.Options{LoadFactor: 0.97}}} {
				if keys > 1 && !all {
					continue // 16-byte values are two in a bucket
				}
				o.Capacity = 2 * rows
				t.Run(fmt.Sprintf("%d keys, %d values", keys, o.Bucket), func(t *testing.T) {
					m, err := NewMultiBucket[uint32, uint32](d, o)
					must(t, err)
					longChains(t, &m.MultiMap, keys, rows, keys == 1)
				})
			}
			t.Run("16-byte values", func(t *testing.T) {
				m, err := NewMultiBucket[uint64, [2]uint64](d, MultiBucketOptions{Options: table.Options{Capacity: 2 * rows}, Bucket: 2, Window: 1})
				must(t, err)
				longChains(t, &m.MultiMap, 2, rows, false)
			})
		})
	})
}

// A batch in which one key has half of all rows goes in by keys, though most keys have one value.
func TestCrowdedKey(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		rows := contended
		s := newMultiSubject[uint32, uint32](t, d, Options{Options: table.Options{Capacity: 2 * rows}}, 4)
		keys := s.keys(rows, 1<<30)
		for i := range keys {
			if i%2 == 0 {
				keys[i] = 7
			}
		}
		s.insert(keys)
		if most := s.m.core.counters.Seen.MaxProbes; most < longChain {
			t.Fatalf("chains of %d windows", most)
		}
		if hintsOf(t, s.m.core) == 0 {
			t.Error("the rows were not brought together")
		}
		s.find([]uint64{7, 8})
		s.verify()
	})
}

// longStory inserts keys with many values, and others, by keys and row by row, and asks for all.
func longStory(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := NewMultiMap[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000, Seed: seed}, Window: 2})
	if err != nil {
		return err
	}
	return longStoryOf(m, seed)
}

// longBucketStory is that of a table whose slots get full, and which grows.
func longBucketStory(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer d.Close()
	window := 1 + int(seed%2)
	o := MultiBucketOptions{Options: table.Options{Capacity: 1600 * window, Seed: seed}, Window: window, Bucket: 2}
	if seed%4 == 3 { // words of 16 bytes, claimed in two steps
		m, err := NewMultiBucket[uint64, uint32](d, o)
		if err != nil {
			return err
		}
		return longStoryOf(&m.MultiMap, seed)
	}
	m, err := NewMultiBucket[uint32, uint32](d, o)
	if err != nil {
		return err
	}
	return longStoryOf(&m.MultiMap, seed)
}

func longStoryOf[K uint32 | uint64](m *MultiMap[K, uint32], seed uint64) error {
	defer m.Close()
	rng := rand.New(rand.NewPCG(seed, 6))
	own, want := m.core.regions, map[K][]uint32{}
	for i, n := range []int{200, 1100, 900} {
		if m.core.regions = tinyRegions; i == 0 {
			m.core.regions = own // these come row by row
		}
		narrow, v := manyOf(rng, n, []int{500, 9, 1 + int(seed/2%2)}[i], 0)
		k := make([]K, n)
		for i := range k {
			k[i] = K(narrow[i])
		}
		if err := m.Insert(k, v); err != nil {
			return err
		}
		for i, k := range k {
			want[k] = append(want[k], v[i])
		}
		if err := m.Check(); err != nil {
			return err
		}
	}
	if seed%3 > 0 {
		if err := errors.Join(m.Grow(6000), m.Check()); err != nil {
			return err
		}
	}
	few := func(i uint32) K { return K(kernel.Fmix32(i)) }
	keys := append(slices.Sorted(maps.Keys(want)), few(9), few(9)) // several rows ask for one
	ask := func(what string) error {
		counts := make([]uint32, len(keys))
		offsets, values, err := m.FindAll(keys)
		if err := errors.Join(err, m.Count(keys, counts)); err != nil {
			return err
		}
		for i, k := range keys {
			got := slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]]))
			if !slices.Equal(got, slices.Sorted(slices.Values(want[k]))) || int(counts[i]) != len(got) {
				return fmt.Errorf("%s: key %#x: %d values are found and %d counted, want %d", what, k, len(got), counts[i], len(want[k]))
			}
		}
		return nil
	}
	if err := ask("at first"); err != nil {
		return err
	}
	gone := []K{keys[0], keys[len(keys)/2], few(9), few(10), few(9)}
	n := 0
	for _, k := range gone {
		n += len(want[k])
		delete(want, k)
	}
	deleted := make([]bool, len(gone))
	got, err := m.Delete(gone, deleted)
	if err != nil || got != n || !deleted[0] || !deleted[1] || !(deleted[2] || deleted[4]) || !deleted[3] {
		return fmt.Errorf("Delete takes %d pairs away, want %d, and tells of %v: %v", got, n, deleted, err)
	}
	return errors.Join(ask("after a delete"), m.Check())
}

// Long chains under stress; and defects that are planted in a copy are found.
func TestManyValuesFindsDefects(t *testing.T) {
	testenv.ByTurns(t)
	findDefects(t, 100, []defect{
		{"a window is reserved that is not filled", false, &warpcoreCUH, "u32 whole = left / C::WINDOW;", "u32 whole = (left + C::WINDOW - 1) / C::WINDOW;", longStory},
		{"reserved windows are not marked", true, &warpcoreCUH, "if (on && reserved && g.rank() == 0) p.pass_by(false);", "", longStory},
		{"a hint tells of a window too many", true, &warpcoreCUH, "u64 full = probes;", "u64 full = probes + 1;", longStory},
		{"two groups get the same values", false, &groupedCUH, "from = add(&shared.count[i], PIECE);", "from = shared.count[i], shared.count[i] += PIECE - 1;", longStory},
		{"the windows behind the hint are left out", false, &longCUH, "if (last) n += chain.tail(t, g, none);", "", longStory},
		{"two rows ask for one key", false, &longCUH, "WARPCORE_LONG_ASKED) & WARPCORE_LONG_ASKED) return number;", "WARPCORE_LONG_ASKED) == ~0ull) return number;", longStory},
		{"a bucket with room is left behind", true, &multibucketCUH, "} else if (on && k == p.stored) got[i]", "} else if (false) got[i]", longBucketStory},
		{"more windows are reserved than filled", true, &multibucketCUH, "cas(&many->credit, credit, credit - n * WHOLE)", "cas(&many->credit, credit, credit - n)", longBucketStory},
		{"filled windows are not marked", true, &multibucketCUH, "if (g.rank() == 0) {\n                p.pass_by(false);", "if (g.rank() == 0) {", longBucketStory},
		{"a value is written to two places", false, &multibucketCUH, "            from += got[i];", "            from += got[i] - (i == 0 && got[i] == C::BUCKET);", from(1, longBucketStory)},
		{"what a window did not take is left out", true, &multibucketCU, "i | (many.end - shared.count[i]) << 16;", "i;", longBucketStory},
		{"a slot with room moves among full ones", false, &multibucketCU, "bool moves = s.live && Held<S>::count(s.word) == C::BUCKET;", "bool moves = s.live;", from(1, longBucketStory)},
		{"a slot's values stay behind", true, &multibucketCUH, "for (int b = WORD; b < C::SLOT_BYTES; b += 8)", "for (int b = WORD + 8; b < C::SLOT_BYTES; b += 8)", longBucketStory},
	})
	for seed := range uint64(testenv.SeedsOf(8, 2)) {
		if err := errors.Join(longStory(seed), longBucketStory(seed)); err != nil {
			t.Fatalf("without a defect, seed %d: %v", seed, err)
		}
	}
}

// In a full table one chain of which is very long, each row is refused in constant time.
func TestLongChainRefusesSoon(t *testing.T) {
	bytes := int64(1 << 20)
	if testenv.Long() {
		bytes = 4 << 20
	}
	m, err := NewMultiMap[uint32, uint32](openCPU(t), Options{Options: table.Options{Capacity: 1 << 20, MaxBytes: bytes}})
	must(t, err)
	defer m.Close()
	n := int(m.core.capacity())
	keys := make([]uint32, n)
	if err := m.Insert(keys[:n*4/5], keys[:n*4/5]); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var full *table.FullError
	if err := m.Insert(sequence(1, n/2), keys[:n/2]); !errors.As(err, &full) {
		t.Fatal(err)
	}
	length, err := m.Len()
	must(t, err)
	if length+len(full.Positions) != n*4/5+n/2 || float64(length) < 0.95*float64(full.Capacity) {
		t.Errorf("%d pairs are in, %d are not, of %d; %d slots", length, len(full.Positions), n*4/5+n/2, full.Capacity)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("took %v, with a chain of %d windows", took, m.core.counters.Seen.MaxProbes)
	}
}

// The same in a MultiBucket that one key fills, and others come behind.
// Values of a reserved key, more than an insert reads windows for when the main region may be too full for the batch: the side region grows by what
// they take.
func TestLongChainOfReservedKey(t *testing.T) {
	const rows, reserved = 16_000, 4_000
	m, err := NewMultiMap[uint32, uint32](openCPU(t), Options{Options: table.Options{Capacity: 2 * rows, LoadFactor: 0.97}, Window: 4})
	must(t, err)
	defer m.Close()
	for batch := range 2 {
		keys := sequence(1+batch*rows, rows)
		for i := range keys {
			if i*reserved/rows != (i+1)*reserved/rows {
				keys[i] = ^uint32(0)
			}
		}
		must(t, m.Insert(keys, sequence(batch*rows, rows)))
	}
	must(t, m.Check())
	if n, err := m.Len(); err != nil || n != 2*rows {
		t.Errorf("%d pairs (%v), want %d", n, err, 2*rows)
	}
	if slots := int(m.core.t.Side.Windows) * 4; slots > 8*reserved {
		t.Errorf("the side region has %d slots for %d values", slots, 2*reserved)
	}
}

func TestLongChainOfBucketsRefusesSoon(t *testing.T) {
	bytes := 256 << 10
	if testenv.Long() {
		bytes = 2 << 20
	}
	m, err := NewMultiBucket[uint32, uint32](openCPU(t), MultiBucketOptions{Options: table.Options{MaxBytes: int64(bytes)}})
	must(t, err)
	defer m.Close()
	rows := 2 * bytes / m.core.cfg.slotBytes() * m.core.cfg.bucket // twice what fits
	keys := make([]uint32, rows)
	start := time.Now()
	var full *table.FullError
	if err := m.Insert(keys, sequence(0, rows)); !errors.As(err, &full) {
		t.Fatal(err)
	}
	length, err := m.Len()
	must(t, err)
	if most := int(m.core.capacity()) * m.core.cfg.bucket; length+len(full.Positions) != rows || float64(length) < 0.9*float64(most) {
		t.Errorf("%d pairs are in, %d are not, of %d; room for %d", length, len(full.Positions), rows, most)
	}
	in := len(full.Positions)
	if err := m.Insert(sequence(1, 10_000), keys[:10_000]); !errors.As(err, &full) {
		t.Fatal(err)
	}
	now, err := m.Len()
	must(t, err)
	if now-length+len(full.Positions) != 10_000 {
		t.Errorf("%d pairs are in, %d are not, of 10000", now-length, len(full.Positions))
	}
	must(t, m.Check())
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v, with a chain of %d windows and %d rows refused", took, m.core.counters.Seen.MaxProbes, in)
	}
}

// valuesOfOneKey puts so many values of one key into a multimap, by batches of so many, and tells what is wrong: all go in, and the table is no larger
// than they want.
func valuesOfOneKey[K, V any](m *MultiMap[K, V], key uint64, rows, batch int) error {
	keys := make([]uint64, rows)
	for i := range keys {
		keys[i] = key
	}
	k, v := tabletest.KeysOf[K](keys), tabletest.ValuesOf[V](sequence(0, rows))
	for i, end := 0, 0; i < rows; i = end {
		end = i + min(rows-i, batch)
		if err := m.Insert(k[i:end], v[i:end]); err != nil {
			return fmt.Errorf("%d to %d: %w", i, end, err)
		}
	}
	stats, err := m.Stats()
	if err != nil {
		return err
	}
	slots := float64(rows)/float64(max(1, m.core.cfg.bucket)) + 100
	if most := int64(slots*(4+6/m.core.opts.LoadFactor)) * int64(m.core.cfg.pairBytes()); stats.Bytes > most && m.core.opts.Capacity == 0 {
		return fmt.Errorf("%d values of one key take %d bytes (want %d at most)", rows, stats.Bytes, most)
	}
	_, values, err := m.FindAll(k[:1])
	if err != nil || len(values) != rows {
		return fmt.Errorf("%d values are found (%v), want %d", len(values), err, rows)
	}
	seen := make([]bool, rows)
	for i := range values {
		n := tabletest.BitsOf(values[i : i+1])[0] & math.MaxUint32
		if n >= uint64(rows) || seen[n] {
			return fmt.Errorf("value %d is found twice, or was not put in", n)
		}
		seen[n] = true
	}
	return m.Check()
}

// Any number of values of any key goes in, however many windows they fill, and the table is as large as they want.
func TestValuesOfOneKey(t *testing.T) {
	t.Parallel()
	t.Run("4+8", testValuesOfOneKey[uint32, uint64])
	if testenv.Long() {
		t.Run("4+4", testValuesOfOneKey[uint32, uint32])
		t.Run("8+8", testValuesOfOneKey[uint64, uint64])
		t.Run("8+4", testValuesOfOneKey[uint64, uint32])
		t.Run("8+16", testValuesOfOneKey[uint64, [4]uint32])
		t.Run("4+16", testValuesOfOneKey[uint32, [4]uint32])
	}
}

func testValuesOfOneKey[K, V any](t *testing.T) {
	kinds := map[string]func(d *device.Device, o table.Options) (*MultiMap[K, V], error){
		"multimap": func(d *device.Device, o table.Options) (*MultiMap[K, V], error) {
			return NewMultiMap[K, V](d, Options{Options: o})
		},
		"buckets": func(d *device.Device, o table.Options) (*MultiMap[K, V], error) {
			m, err := NewMultiBucket[K, V](d, MultiBucketOptions{Options: o})
			if err != nil {
				return nil, err
			}
			return &m.MultiMap, nil
		},
	}
	memories, sizes, batches, keys := []int64{256 << 20}, []int{1100}, []int{math.MaxInt, 300}, []uint64{0, 3} // the highest pattern is reserved, the fourth is not
	options := []table.Options{{}, {LoadFactor: 1}, {LoadFactor: 0.3, MaxBytes: 4 << 20}, {MaxBytes: 4 << 20, Capacity: 1 << 30}}
	if testenv.Long() {
		memories, sizes, batches, keys = []int64{0, 256 << 20}, []int{1, 257, 1100, 2100, 5000, 10_000, 100_000}, []int{math.MaxInt, 1100, 300, 1}, []uint64{0, 1, 2, 3, 7}
	}
	for _, memory := range memories {
		var opts []device.Option
		if memory > 0 {
			opts = append(opts, device.WithMemory(memory))
		}
		d := openCPU(t, opts...)
		for name, open := range kinds {
			for _, rows := range sizes {
				for i, o := range options {
					batch := batches[i%len(batches)]
					if memory > 0 {
						batch = batches[(i+1)%len(batches)]
					}
					if o.MaxBytes > 0 {
						o.MaxBytes = max(o.MaxBytes, int64(rows)*512)
					}
					if batch < rows/1000 || o.Capacity > 0 && rows > 10_000 {
						continue
					}
					for _, key := range keys {
						o.Seed = 7
						m, err := open(d, o)
						must(t, err)
						if err := valuesOfOneKey(m, ^key&keyMask[K](), rows, batch); err != nil {
							t.Errorf("%s: %d rows by %d, key ^%d, memory %d, %+v: %v", name, rows, batch, key, memory, o, err)
						}
						must(t, m.Close())
					}
				}
			}
		}
	}
}
