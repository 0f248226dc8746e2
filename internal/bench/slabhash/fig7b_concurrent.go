package slabhash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/workload"
)

// concurrentSet is a set of keys that a mixed batch works on.
type concurrentSet interface {
	fill() error // with the keys to begin with, and no others
	mixed() error
	keys() ([]uint32, error)
	utilization() (float64, error) // the keys' part of the memory in use (paper, §III-C)
	Close() error
}

// concurrent is the data of Figure 7b: the keys to begin with, the batch, and what must be there after it.
type concurrent struct {
	*mixing
	initial device.Slice[uint32]
	want    []uint32 // in order
}

func newConcurrent(d *device.Device, n int) (c *concurrent, err error) {
	c = &concurrent{}
	if c.mixing, err = newMixing(d, n); err != nil {
		return nil, err
	}
	h := &c.host
	workload.Pairs(c.kinds, h.keys, h.values)
	if c.initial, err = device.From(d, h.keys); err != nil {
		c.mixing.free()
		return nil, err
	}
	return c, nil
}

func (c *concurrent) free() {
	c.initial.Free()
	c.mixing.free()
}

// make makes the batch of a distribution.
func (c *concurrent) make(shares [4]float64) error {
	st, h := c.d.Stream(), &c.host
	workload.Pairs(c.kinds, h.keys, h.values)
	h.present = append(h.present[:0], h.keys...)
	h.next(c.kinds, rand.New(rand.NewPCG(1, uint64(c.n))), shares, c.n)
	c.want = append(c.want[:0], h.present...)
	slices.Sort(c.want)
	return errors.Join(c.ops.Write(st, h.ops), c.keys.Write(st, h.keys))
}

// measure runs the batch, each time on a set of the keys to begin with, and tells how well that uses its memory.
func (c *concurrent) measure(s concurrentSet) (gs, utilized float64, wrong int, err error) {
	st, ran := c.d.Stream(), false
	if err := s.fill(); err != nil {
		return 0, 0, 0, err
	}
	if utilized, err = s.utilization(); err != nil {
		return 0, 0, 0, err
	}
	check := func() error {
		status, err := c.status.Host(st)
		for i, kind := range c.host.kinds {
			if status[i] != mixedStatus[kind] {
				wrong++
			}
		}
		return err
	}
	t, err := bench.Timed(c.d, st, bench.Runs, func() error {
		if ran {
			if err := check(); err != nil {
				return err
			}
		}
		ran = true
		return errors.Join(s.fill(), c.status.Fill(st, 0xff))
	}, s.mixed)
	if err != nil {
		return 0, 0, 0, err
	}
	if err := check(); err != nil {
		return 0, 0, 0, err
	}
	got, err := s.keys()
	return bench.Rate(c.n, t), utilized, wrong + unlike(got, c.want), err
}

// unlike counts the keys that are on one side only, or once too often; want is in order.
func unlike(got, want []uint32) (n int) {
	slices.Sort(got)
	for len(got) > 0 && len(want) > 0 {
		switch {
		case got[0] == want[0]:
			got, want = got[1:], want[1:]
		case got[0] < want[0]:
			got = got[1:]
			n++
		default:
			want = want[1:]
			n++
		}
	}
	return n + len(got) + len(want)
}

// slabSet is slab.Set with a fixed number of buckets.
type slabSet struct {
	*slab.Set[uint32]
	c *concurrent
}

func (c *concurrent) slab(buckets int) (concurrentSet, error) {
	f := fix(buckets, c.n+c.n/2, 31) // what a batch adds at most beside what it deletes
	s, err := slab.NewSet[uint32](c.d, f.options())
	if err != nil {
		return nil, err
	}
	var stats slab.Stats
	err = f.shrink(s.SlabStats, func(keys []uint32) error { _, err := s.Insert(keys, nil); return err }, s.Clear)
	if err == nil {
		stats, err = s.SlabStats()
	}
	if err == nil && stats.Buckets != buckets {
		err = fmt.Errorf("slab has %d buckets, and not %d", stats.Buckets, buckets)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &slabSet{s, c}, nil
}

func (s *slabSet) fill() error {
	return errors.Join(s.Clear(), s.InsertOn(s.c.d.Stream(), s.c.initial, device.Slice[bool]{}))
}

func (s *slabSet) mixed() error { return s.MixedOn(s.c.d.Stream(), s.c.ops, s.c.keys, s.c.status) }

func (s *slabSet) keys() ([]uint32, error) { return s.All() }

func (s *slabSet) utilization() (float64, error) {
	stats, err := s.SlabStats()
	return stats.Utilization, err
}

// figure7b is Figure 7b: o.N keys to begin with, and one batch of as many operations, by the number of buckets.
func figure7b(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 7b: %d mixed operations on as many keys of 4 bytes, by the number of buckets", o.N),
		Columns: []string{"Γ", "buckets", "keys a bucket", "table", "utilization", "mixed G/s", "slab is faster", "wrong", "note"},
		Notes: []string{gammaNote,
			"Misra: lists without locks as Misra and Chaudhuri have them, in order of their keys, one thread an operation, its kernel alone; slab: slab.Set, MixedOn as a program calls it, with the flush of deleted keys that the default policy makes",
			"utilization: before the batch; wrong: operations with another status than must come of them, over all runs, and keys too many or too few in the end"},
		Plots: []bench.Plot{{Title: "SlabHash, Figure 7b: mixed batches by the number of buckets", X: "buckets", Y: "mixed G/s", Series: "table", Facet: "Γ", LogX: true}},
	}
	c, err := newConcurrent(d, o.N)
	if err != nil {
		return nil, err
	}
	defer c.free()
	for _, g := range gammas {
		if err := c.make(g.shares); err != nil {
			return nil, err
		}
		var faster bench.Mean
		best := map[string]float64{}
		for half := 7; half >= 0; half-- {
			buckets := max(1, o.N>>half)
			rates := map[string]float64{}
			for _, kind := range []string{"slab", "Misra"} {
				o.Step(fmt.Sprintf("%s, %d buckets: %s", g.name, buckets, kind))
				gs, utilized, wrong, err := c.run(kind, buckets)
				if err != nil {
					note, err := bench.Refusal(err)
					if err != nil {
						return nil, err
					}
					fig.Add(g.name, buckets, nil, kind, nil, nil, nil, nil, note)
					continue
				}
				rates[kind], best[kind] = gs, max(best[kind], gs)
				var times any
				if kind == "Misra" && rates["slab"] > 0 {
					times = bench.Round(rates["slab"] / gs)
					faster.Add(rates["slab"] / gs)
				}
				fig.Add(g.name, buckets, bench.Round(float64(o.N)/float64(buckets)), kind, bench.Round(utilized), bench.Round(gs), times, wrong, "")
			}
		}
		fig.Notes = append(fig.Notes, fmt.Sprintf("%s: slab is faster %.3g times, as the geometric mean over the numbers of buckets; each at its best, %.3g times",
			g.name, faster.Of(), best["slab"]/best["Misra"]))
	}
	return fig, nil
}

func (c *concurrent) run(kind string, buckets int) (gs, utilized float64, wrong int, err error) {
	make := c.slab
	if kind == "Misra" {
		make = c.misra
	}
	s, err := make(buckets)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return c.measure(s)
}
