package cache

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// inOrder puts rows in the order of regions, and looks most of them up by marks. It says what is wrong with the values,
// the scores and the marks.
func inOrder(d *device.Device, o Options, n int) (err error) {
	o.Seed = 9
	m, err := New[uint64, uint64](d, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	c := m.core
	if d.Info().CUDA() {
		c.order.putFrom, c.order.marksFrom = 1, 1
	}
	c.order.regions.PieceRows = int64(n) * 2 / 5 // three pieces, of which the last is smaller
	keys, values := make([]uint64, n), make([]uint64, n)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range keys {
		keys[i], values[i] = rng.Uint64(), rng.Uint64()
	}
	for i := n - n/8; i < n; i++ { // rows of one key: one of them stays
		keys[i] = keys[i-n/2]
	}
	if err := m.Insert(keys, values); err != nil {
		return err
	}
	if !c.order.puts.Loaded() {
		return errors.New("no batch came in order")
	}
	asked := keys[:n-n/8]
	got, found := make([]uint64, len(asked)), make([]bool, len(asked))
	if err := m.Find(asked, got, found); err != nil {
		return err
	}
	clock := c.clock
	put := map[uint64][]uint64{}
	for i, k := range keys {
		put[k] = append(put[k], values[i])
	}
	in, hits := map[uint64]bool{}, 0
	for i, k := range asked {
		if in[k] = found[i]; found[i] {
			hits++
			if !slices.Contains(put[k], got[i]) {
				return fmt.Errorf("key %#x has the value %#x, and was put with %#x", k, got[i], put[k])
			}
		}
	}
	if s, err := m.Stats(); err != nil || s.Len != hits || s.Added != uint64(hits) || int(s.Hits) != hits {
		return errors.Join(err, fmt.Errorf("%d keys are found: %+v", hits, s))
	}
	pairs, _, scores, err := m.Export(0)
	if err != nil {
		return err
	}
	for i, k := range pairs {
		if !in[k] || scores[i] != clock {
			return fmt.Errorf("key %#x, found %t, has the score %d behind batch %d", k, in[k], scores[i], clock)
		}
	}
	if len(pairs) != hits {
		return fmt.Errorf("%d pairs of %d are exported", len(pairs), hits)
	}
	_, at := c.cfg.besideAt(int64(c.t.Count))
	marks, err := c.mem.Slice(int(at), c.mem.Len()).Host(nil)
	if err == nil && (len(marks) == 0 || slices.Max(marks) != 0) {
		err = fmt.Errorf("%d bytes of marks, and some are set", len(marks))
	}
	return errors.Join(err, m.Check())
}

// Batches in the order of regions, and look-ups that mark what they find, do what others do.
func TestOrder(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			cuda := d.Info().CUDA()
			must(t, inOrder(d, Options{Capacity: 100_000, early: !cuda}, 40_000))
			must(t, inOrder(d, Options{Capacity: 1001 * ways, early: !cuda}, 40_000)) // an odd number of buckets, all full
			if !cuda {
				must(t, covers[uint64](d, Options{Capacity: 640, early: true}, 1, 3000)) // several tiles of a stretch
				for _, p := range testenv.Some([]Policy{LRU, Scored, LFU}, 1) {
					for seed := range uint64(testenv.Seeds(16)) {
						must(t, churn[uint64, uint64](d, Options{Capacity: 40, Policy: p, early: true}, seed, 60, 200, 120))
					}
				}
			}
		})
	}
	for seed := range uint64(testenv.SeedsOf(64, 4)) {
		seed += testenv.FirstSeed()
		d := open(t, "cpu", device.WithStress(seed))
		must(t, churn[uint64, uint64](d, Options{Capacity: 36, early: true}, seed, 12, 160, 60))
		must(t, churn[uint64, uint64](d, Options{Capacity: 36, early: true}, seed, 4, 2500, 60)) // several tiles
	}
}

// A cache that is to take no more than so many bytes takes none to bring rows in order, and rows with lives of their own
// stay beside them.
func TestOrderIsLeftOut(t *testing.T) {
	d := open(t, "cpu")
	for _, o := range []Options{{Bytes: 100_000, early: true}, {Capacity: 500, Policy: Scored, early: true}} {
		m, err := New[uint64, uint64](d, o)
		must(t, err)
		defer m.Close()
		keys := make([]uint64, 500)
		for i := range keys {
			keys[i] = uint64(i)
		}
		must(t, m.InsertScored(keys, keys, scoresFor(o, len(keys))))
		if m.core.order.puts.Loaded() {
			t.Errorf("%+v: rows came in order", o)
		}
	}
}

// A cache with a bound of bytes has as many buckets as fit beside its marks, and knows that at once, whatever the bound.
// Marks that would take more than a share of the L2 cache are never set, and take no memory, as those of other policies.
func TestBytesOfMarks(t *testing.T) {
	cfg := config{keyBytes: 8, valueBytes: 8, tile: tileRows, marks: true}
	if n, err := (&Options{Bytes: cfg.bucketBytes(), Policy: LFU}).complete(&cfg, math.MaxInt64); n != 1 || err != nil {
		t.Errorf("an LFU cache of the bytes of a bucket: %d buckets, %v", n, err)
	}
	for _, most := range []int64{0, 1 << 20, math.MaxInt64} {
		for _, bytes := range []int64{1 << 12, 1<<24 + 321, 1<<37 + 1, 1 << 50, math.MaxInt64} {
			for _, valueBytes := range []int{8, 4096} {
				o, cfg := Options{Bytes: bytes}, config{keyBytes: 8, valueBytes: valueBytes, tile: tileRows, marks: true}
				if bytes < cfg.bytes(1) {
					continue
				}
				n, err := o.complete(&cfg, most)
				must(t, err)
				full := cfg.bytes(n+1) > bytes || n == mostPairs/ways
				if n < 1 || cfg.bytes(n) > bytes || !full || cfg.marksBytes(n) > most {
					t.Errorf("%d bytes, %d of marks: %d buckets, of %d bytes, %+v", bytes, most, n, cfg.bytes(n), cfg)
				}
				if cfg.marks != (most == math.MaxInt64 || bytes < 1<<20<<6 && most > 0) {
					t.Errorf("%d bytes, %d of marks: %d buckets, marks: %t", bytes, most, n, cfg.marks)
				}
			}
		}
	}
}

func scoresFor(o Options, n int) []uint32 {
	if o.Policy != Scored {
		return nil
	}
	return make([]uint32, n)
}
