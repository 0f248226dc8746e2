package slabhash

import (
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
)

const (
	slabSlots = 15  // pairs of 8 bytes in a slab
	slabBytes = 128 // of which a link takes 8
	slabBeta  = 0.7 // the paper's average slab count: a utilization of about 60%
)

// slabsFor is the average length of a chain at an average slab count of beta, if each pair goes to any bucket: pairs of a
// bucket are then distributed by Poisson's law.
func slabsFor(beta float64, slots int) float64 {
	mean := beta * float64(slots)
	sum, p, log := 0.0, 0.0, 0.0
	for x := 0; x < 40 || p > 1e-12 || float64(x) < mean; x++ {
		if x > 0 {
			log += math.Log(float64(x))
		}
		p = math.Exp(float64(x)*math.Log(mean) - mean - log)
		sum += p * float64(max(1, (x+slots-1)/slots))
	}
	return sum
}

// slabUtilization is the paper's memory utilization (§III-C) that beta gives.
func slabUtilization(beta float64) float64 {
	return beta * slabSlots * 8 / (slabBytes * slabsFor(beta, slabSlots))
}

// longestChain is how long, on average, the chains get that fixedSlab can make: a map halves its buckets while one slab in
// sixteen is a base slab.
const longestChain = 11

// betaFor is the beta that gives a utilization, or the largest that fixedSlab can make.
func betaFor(utilization float64) float64 {
	lo, hi := 0.01, longestChain-0.5
	for range 50 {
		if mid := (lo + hi) / 2; slabUtilization(mid) < utilization {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// fixedSlab makes an empty map for n pairs at any beta, which a load factor cannot say over 1, that neither grows nor shrinks.
func fixedSlab(d *device.Device, n int, beta float64) (*slab.Map[uint32, uint32], error) {
	f := fix(max(1, int(float64(n)/(beta*slabSlots)+0.5)), n, slabSlots)
	m, err := slab.New[uint32, uint32](d, f.options())
	if err != nil {
		return nil, err
	}
	if err := f.shrink(m.SlabStats, func(keys []uint32) error { return m.Insert(keys, keys) }, m.Clear); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// fixed is a table whose number of buckets stays: MaxBytes forbids that it grows, and it lets chains get longer by halving its
// buckets, until there are as few as are wanted.
type fixed struct{ buckets, slabs, slots int }

// fix has room for n pairs.
func fix(buckets, n, slots int) fixed {
	first := buckets
	beta := float64(n) / float64(buckets*slots)
	for need := 1.08*slabsFor(beta, slots) + 0.05; 1.5*float64(first) < need*float64(buckets); {
		first *= 2
	}
	return fixed{buckets, (3*first + 1) / 2, slots}
}

func (f fixed) options() slab.Options {
	return slab.Options{Options: table.Options{Capacity: f.slots * f.slabs, LoadFactor: 0.01, MaxBytes: int64(f.slabs+1) * slabBytes}}
}

// shrink fills the table until it has halved its buckets often enough, and clears it.
func (f fixed) shrink(stats func() (slab.Stats, error), insert func(keys []uint32) error, clear func() error) error {
	all := f.slots * f.slabs
	keys := make([]uint32, max(1, all/64))
	for next := 0; next < all; next += len(keys) {
		s, err := stats()
		if err != nil {
			return err
		}
		if s.Buckets <= f.buckets {
			break
		}
		for i := range keys {
			keys[i] = uint32(next + i)
		}
		if err := insert(keys); err != nil {
			var full *table.FullError
			if !errors.As(err, &full) {
				return err
			}
			break
		}
	}
	return clear()
}

// slabRow is one map's rates: build, all hits, no hits.
type slabRow struct {
	build, hits, none float64
	wrong             int
	stats             slab.Stats
}

func measureSlab(w *bench.Work[uint32, uint32], m *slab.Map[uint32, uint32]) (r slabRow, err error) {
	if err = w.Ask(1, 0); err != nil {
		return r, err
	}
	row, err := w.Measure(w.Map(m))
	if err != nil {
		return r, err
	}
	r.build, r.hits, r.wrong = row.Insert, row.Find, row.Wrong
	if err = w.Ask(0, 0); err != nil {
		return r, err
	}
	none, wrong, err := w.Find(w.Map(m))
	if err != nil {
		return r, err
	}
	r.none, r.wrong = none, r.wrong+wrong
	r.stats, err = m.SlabStats()
	return r, err
}

func newWork(d *device.Device, n int) (*bench.Work[uint32, uint32], error) {
	return bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: n, Queries: n, Hits: 1, Seed: 1})
}

func slabAt(w *bench.Work[uint32, uint32], beta float64) (r slabRow, err error) {
	var m *slab.Map[uint32, uint32]
	if beta <= 1 {
		m, err = slab.New[uint32, uint32](w.Device, slab.Options{Options: table.Options{Capacity: w.Options.N, LoadFactor: beta}})
	} else {
		m, err = fixedSlab(w.Device, w.Options.N, beta)
	}
	if err != nil {
		return r, err
	}
	r, err = measureSlab(w, m)
	return r, errors.Join(err, m.Close())
}
