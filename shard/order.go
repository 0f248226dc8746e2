package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// order says how rows are sorted.
type order struct {
	regions int // of each owner; 0: rows are split by owners only
	seed    uint64
	paired  bool  // rows go as pairs
	steps   []int // regions that the owner's table works on at once
	apart   bool  // each region is a wave of its own; else a step is
}

// inSteps returns the order with its steps. Inserts take waves of many regions, because the table sorts their rows again.
// Look-ups of a cluster take waves of one region, which stays in the L2 cache while the rows of all sources are looked up.
func (o order) inSteps(insert, members bool) order {
	parts := lookUpSteps
	switch {
	case insert && members:
		parts = memberInsertSteps
	case insert:
		parts = insertSteps
	case members:
		parts = memberLookUpSteps
	}
	o.apart = !insert && !members
	done, percent := 0, 0
	for _, p := range parts {
		percent += p
		if next := o.regions * percent / 100; next > done {
			o.steps = append(o.steps, next-done)
			done = next
		}
	}
	return o
}

// regional are the kernels that sort by regions. They are compiled when they are first used.
type regional struct {
	frame.Late
	count  device.Kernel[countRegions]
	split  device.Kernel[splitRegions]
	gather device.Kernel[gatherRegions]
	sort   device.Kernel[sortRows]
	unpair device.Kernel[sortRows]
}

// orderOf returns the order in which the owners' tables want rows of a job; none if the kernels cannot be compiled.
func (c *cluster) orderOf(j *job, rows int) (o order) {
	if j.ordering == nil || j.all || c.opts.Regions < 0 || len(c.members) == 1 {
		return order{}
	}
	for i := range c.members {
		if j.sources[i].when != 0 {
			return order{}
		}
		own, ok := j.ordering(i, rows)
		if !ok || i > 0 && own.Seed != o.seed {
			return order{}
		}
		o.regions, o.seed, o.paired = max(o.regions, own.Regions), own.Seed, own.Paired && (i == 0 || o.paired)
	}
	if c.opts.Regions > 0 {
		o.regions = c.opts.Regions
	}
	if o.regions = min(o.regions, frame.MaxParts/len(c.members)); o.regions < 2 {
		return order{}
	}
	for _, m := range c.members {
		if !m.regional.load(m.d, c.widths) {
			return order{}
		}
	}
	o.paired = o.paired && j.pairs()
	return o.inSteps(!j.asks, false)
}

// load compiles the kernels, and reports whether they are there.
func (k *regional) load(d *device.Device, w widths) bool {
	return k.Load(d, func() *device.Program { return regionsProgram(w.keyBytes, w.valueBytes, d.Info().Shared) },
		func(module *device.Module) error {
			sorts, err := d.Compile(sortProgram(w.keyBytes, w.valueBytes))
			if err != nil {
				return err
			}
			return errors.Join(device.Bind(module, "shard_split_regions", &k.split),
				device.Bind(module, "shard_gather_regions", &k.gather),
				device.Bind(sorts, "shard_count_regions", &k.count), device.Bind(sorts, "shard_sort", &k.sort),
				device.Bind(sorts, "shard_unpair", &k.unpair))
		})
}

// ownersOf adds up the counts of an owner's regions.
func (o order) ownersOf(counts []uint64) (out []uint64) {
	for from := 0; from < len(counts); from += o.regions {
		n := uint64(0)
		for _, x := range counts[from : from+o.regions] {
			n += x
		}
		out = append(out, n)
	}
	return out
}

// going returns the columns of a job that go to the owners.
func (o order) going(j *job, from, to received) []carried {
	if o.paired {
		return []carried{{from.keys, to.keys}}
	}
	return j.going(from, to)
}
