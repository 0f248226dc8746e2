package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	s := &c.stretch
	s.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
	s.leftMost, s.bytes, s.larger = 1, bytes, bytes
	c.regions = earlyRegions
	c.regions.MinBytes, c.regions.MinRows, c.regions.PieceRows = 1, 1<<40, 500
}

// Stretches are made larger only if the device has shared memory for them.
func TestLargerStretchesFit(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 2 << 20}})
	must(t, err)
	defer m.Close()
	c, most := m.core, int(d.Info().Shared)
	inStretches(c, smallStretch)
	small := c.stretch.cut(c, 1<<20)
	if n := small.fine.Large * small.fine.Within; !small.ok || n < int64(most/4) {
		t.Fatalf("%d small stretches (want %d, which cannot be counted), fit: %t", n, most/4, small.ok)
	}
	for larger, want := range map[int]int64{most - stretchBeside: int64(most-stretchBeside) / stretchBucketBytes &^ 7, most: small.buckets} {
		c.stretch.larger = larger
		if x := c.stretch.cut(c, 1<<20); !x.ok || x.buckets != want {
			t.Errorf("stretches of %d bytes, where larger ones have %d: %d buckets (want %d), fit: %t", smallStretch, larger, x.buckets, want, x.ok)
		}
	}
}

// smallStretch is the least that a stretch may be, of 8 buckets.
const smallStretch = 8 * stretchBucketBytes

func stretched[K, V any](o Options) tabletest.Maker[K, V] {
	return func(d *device.Device, to table.Options) (table.Map[K, V], error) {
		o := o
		o.Options = to
		m, err := New[K, V](d, o)
		if err == nil {
			inStretches(m.core, smallStretch)
		}
		return m, err
	}
}

// Batches that go in stretch by stretch leave what others leave.
func TestStretches(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {Capacity: 3000}, {Capacity: 3000, LoadFactor: 1, Seed: 3},
			{MaxBytes: 64 << 10, LoadFactor: 1}, {Capacity: 3000, Hash: kernel.HashIdentity}} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				seed := uint64(i)
				tabletest.Map(stretched[uint32, uint32](Options{})).Churn(t, d, o, seed, 30, 2500)
				if o.Hash != 0 && !testenv.Long() {
					return // a compilation for each
				}
				tabletest.Map(stretched[uint64, uint64](Options{Group: 8})).Churn(t, d, o, seed, 30, 2500)
				tabletest.Map(stretched[uint32, uint64](Options{unpacked: true})).Churn(t, d, o, seed, 30, 2500)
				if testenv.Long() {
					tabletest.Map(stretched[uint64, uint32](Options{Light: true})).Churn(t, d, o, seed, 30, 2500)
				}
			})
		}
	})
}

// stretchHistory inserts, by batches with equal keys and reserved ones, and deletes, beside a Go map. InsertNew is
// without flags: those would not go stretch by stretch.
func stretchHistory[K uint32 | uint64](d *device.Device, o Options, bytes int, piece int64, seed uint64,
	rows, rounds int) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	m, err := New[K, K](d, o)
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, bytes)
	m.core.regions.PieceRows = piece
	s, err := NewSet[K](d, o)
	if err != nil {
		return err
	}
	defer s.Close()
	inStretches(s.core, bytes)
	s.core.regions.PieceRows = piece
	model := map[K]K{}
	for round := range rounds {
		keys := make([]K, rows+rng.IntN(100))
		values := make([]K, len(keys))
		for i := range keys {
			keys[i], values[i] = K(rng.Uint64N(uint64(4*rows))), K(round<<20+i)
			switch {
			case i%1000 < 3:
				keys[i] = ^K(0) - K(i%5)
			case round == rounds-1 && i%3 > 0: // more than a list holds, in large pieces
				keys[i] = K(i % 2)
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
		return fmt.Errorf("nothing went in stretch by stretch: %d buckets", m.core.t.Buckets)
	}
	return nil
}

// stretchRound inserts a batch, and compares both tables with the model, which it brings up to date.
func stretchRound[K uint32 | uint64](d *device.Device, m *Map[K, K], s *Set[K], round int, keys, values []K,
	model map[K]K) error {
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
	insert := m.InsertOn
	if round%2 == 1 {
		insert = func(st *device.Stream, k, v device.Slice[K]) error {
			return m.InsertNewOn(st, k, v, device.Slice[bool]{})
		}
	}
	if err := insert(nil, k, v); err != nil {
		return err
	}
	if err := s.InsertOn(nil, k, device.Slice[bool]{}); err != nil {
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

func sized(capacity int, load float64) Options {
	return Options{Options: table.Options{Capacity: capacity, LoadFactor: load}}
}

func TestStretchHistory(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		must(t, stretchHistory[uint32](d, sized(3000, 0), smallStretch, 500, 1, 3000, 8))
	})
}

// Histories of tables of other kinds, and of large stretches.
func TestStretchHistories(t *testing.T) {
	testenv.ByTurns(t)
	onEach(t, func(t *testing.T, d *device.Device) {
		must(t, stretchHistory[uint64](d, sized(20000, 0.95), 4<<10, 500, 2, 8000, 6))
		unpacked := sized(3000, 0)
		unpacked.unpacked = true
		must(t, stretchHistory[uint64](d, unpacked, smallStretch, 500, 3, 3000, 6))
		if d.Info().CUDA() { // stretches as large as elsewhere
			must(t, stretchHistory[uint32](d, sized(1<<18, 0), stretchBytes, 1<<20, 4, 400000, 4))
			must(t, stretchHistory[uint64](d, sized(1<<18, 0), stretchLarger, 1<<20, 5, 400000, 4))
		}
	})
}

// Many rows of one key, more than a list holds: some of its rows find their base slab full of equal keys, or go on
// along a chain.
func TestStretchesOfFewKeys(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 3000}})
		must(t, err)
		inStretches(m.core, 32*stretchBucketBytes)
		m.core.regions.PieceRows = 1 << 20
		rng := rand.New(rand.NewPCG(1, 6))
		keys := make([]uint32, 20000)
		for round := range 4 {
			model := map[uint32]bool{}
			for i := range keys {
				keys[i] = uint32(rng.IntN(1 + rng.IntN(6000)))
				if i%3 == 0 {
					keys[i] = uint32(round)
				}
			}
			k, err := device.From(d, keys)
			must(t, err)
			must(t, m.InsertOn(nil, k, k))
			must(t, m.Check())
			got, found := make([]uint32, len(keys)), make([]bool, len(keys))
			must(t, m.Find(keys, got, found))
			for i, key := range keys {
				if model[key] = true; !found[i] || got[i] != key {
					t.Fatalf("key %d: %t, %d", key, found[i], got[i])
				}
			}
			must(t, k.Free())
			must(t, m.Clear())
			if n, err := m.Len(); err != nil || n != 0 {
				t.Fatal(n, err)
			}
		}
		must(t, m.Close())
	})
}

// Where memory is short, batches go in by smaller pieces, or as they are.
func TestStretchesInLittleMemory(t *testing.T) {
	for share, taken := range map[int64]bool{8: true, 1 << 20: false} {
		d := openCPU(t, device.WithMemory(256<<10))
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}})
		must(t, err)
		inStretches(m.core, smallStretch)
		m.core.regions.PieceRows, m.core.regions.MemoryShare = 1<<20, share
		keys := make([]uint32, 4000)
		for i := range keys {
			keys[i] = uint32(i)
		}
		must(t, m.Insert(keys, keys))
		must(t, m.Check())
		if n, err := m.Len(); err != nil || n != len(keys) {
			t.Error(n, err)
		}
		s, err := m.Stats()
		must(t, err)
		if inOrder := s.ScratchBytes > 8<<10; inOrder != taken || s.ScratchBytes > 32<<10 {
			t.Errorf("%d bytes of scratch memory", s.ScratchBytes)
		}
		must(t, m.Close())
	}
}

// A table that may not grow refuses what finds no slab, though most of the batch went in stretch by stretch. The
// positions are exact. The keys are of few buckets, always the same or others with each batch, whose chains use up all
// slabs while most base slabs are free.
func stretchesRefuse(d *device.Device, seed uint64) error {
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 64 << 10, Capacity: 1 << 16, Seed: seed}})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, smallStretch)
	var full *table.FullError
	keys, found, few, next := make([]uint32, 400), make([]bool, 400), uint64(5), uint32(0)
	first := m.core.t
	if seed%2 == 0 {
		few = 20
	}
	for round := uint64(0); full == nil; round++ {
		from := round * few * (1 - seed%2) % (first.Buckets - few)
		for i := range keys {
			for bucket := ^uint64(0); i >= 3 && bucket-from >= few; next++ {
				keys[i] = next
				bucket, _ = m.core.cfg.home(&first, uint64(next))
			}
			if i < 3 { // reserved
				keys[i] = ^uint32(i)
			}
		}
		if err := m.Insert(keys, keys); err != nil && !errors.As(err, &full) {
			return err
		}
		if err := errors.Join(m.Check(), m.Contains(keys, found)); err != nil {
			return err
		}
		if full != nil {
			for _, p := range full.Positions {
				if found[p] {
					return fmt.Errorf("position %d is in, and told to be refused", p)
				}
				found[p] = true
			}
		}
		if p := slices.Index(found, false); p >= 0 {
			return fmt.Errorf("position %d is not in, and not told to be refused", p)
		}
	}
	if !m.core.stretch.late.Loaded() {
		return errors.New("nothing went in stretch by stretch")
	}
	return nil
}

func TestStretchesRefuse(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) { must(t, stretchesRefuse(d, 0)) })
}

func TestRefusalsFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	d := openCPU(t)
	text := kernelsCU
	defer func() { kernelsCU = text }()
	for name, c := range map[string][2]string{
		"rows that find no slab are told as in":      {"        failed += !may;\n", ""},
		"rows whose chain is full are told as in":    {"        failed += this->op.outcome == FULL;\n", ""},
		"rows that begin anew are not of the number": {"return on + at<u32>(this->p.left)[1];", "return on;"},
	} {
		if n := strings.Count(text, c[0]); n != 1 {
			t.Fatalf("the kernels have %d times\n%s", n, c[0])
		}
		kernelsCU = strings.Replace(text, c[0], c[1], 1)
		var err error
		for seed := uint64(1); seed <= 20 && err == nil; seed++ {
			err = stretchesRefuse(d, seed)
		}
		if t.Logf("%s: %v", name, err); err == nil {
			t.Errorf("the defect is not found: %s", name)
		}
	}
}

// stretchStress is a short history under stress.
func stretchStress(t *testing.T, seed uint64) error {
	d, o := openCPU(t, device.WithStress(seed)), Options{Options: table.Options{Capacity: 4000}}
	if seed%2 == 0 { // each thread of a block has several rows
		return stretchHistory[uint32](d, o, 96*stretchBucketBytes, 1<<20, seed, 4000, 3)
	}
	o.Capacity = 1000
	return stretchHistory[uint32](d, o, smallStretch, 500, seed, 1000, 4)
}

func TestStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(40)) {
		if err := stretchStress(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestSlabStretchesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	stretch := stretchCU
	defer func() { stretchCU = stretch }()
	for name, c := range map[string][2]string{
		"equal keys both stand":                  {"n = copy.keep(i, n, ~twice(i, was, n));", "n += 0;"},
		"equal keys leave holes":                 {"word_at(bucket, kept), load", "word_at(bucket, slot), load"},
		"slots stay taken behind what is kept":   {"store_relaxed(word_at(bucket, slot), A::free", "(void)(A::free"},
		"a stretch is written before all is in":  {"    block_sync();\n    job.settle();", "    job.settle();"},
		"the rows from before are not looked at": {"if (there(bucket, was, k, v)) return true;", ""},
		"the last slab is not written": {"i < buckets * Copy::PARTS; i += block_threads()) to[i] = copied",
			"i < (buckets - 1) * Copy::PARTS; i += block_threads()) to[i] = copied"},
		"rows that are left over are forgotten": {"if (l != IN) leave(", "if (false) leave("},
		"rows too many for the list are forgotten": {"if (C::marks(k) || !there(bucket_of(k), C::SLOTS, k, v)) leave(",
			"if (false) leave("},
		"longer chains are flushed, too":      {"if (dead && copy.link(bucket) == NONE) {", "if (dead) {"},
		"rows go on before slabs are settled": {"if (n < C::SLOTS) return BEGINS;", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if n := strings.Count(stretch, c[0]); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c[0])
			}
			stretchCU = strings.Replace(stretch, c[0], c[1], 1)
			for seed := range uint64(40) {
				if err := stretchStress(t, seed); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("no seed finds the defect")
		})
	}
}
