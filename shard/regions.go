package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Large batches for tables that want rows in the order of their regions are split by owner and region at once. Look-ups
// gain more by that than inserts: a table on one device asks for no order there, for bringing results back costs it
// what it gains, and here they must be brought back anyway.
//
//	inbox of an owner   ┌──────────────┬──────────────┬──────────────┐
//	                    │ region 0     │ region 1     │ …            │
//	                    │ from 0, 1, … │ from 0, 1, … │              │
//	                    └──────────────┴──────────────┴──────────────┘
//
// Rows arrive by remote writes alone: copies would be one for each region.

// order is the regions of each owner that rows are split by; 0: they are split by owners alone.
type order struct {
	regions int
	seed    uint64
}

// regional are the kernels that split by regions, too, where they are there.
type regional struct {
	frame.Late
	count  device.Kernel[countRegions]
	split  device.Kernel[splitRegions]
	gather device.Kernel[gatherRegions]
}

// orderOf is the order in which an owner's table wants so many rows of a job. It is none where the kernels cannot be
// compiled: rows go without.
func (c *cluster) orderOf(j *job, rows int) (o order) {
	if j.ordering == nil || j.all || c.opts.Regions < 0 || len(c.members) == 1 {
		return order{}
	}
	for i, m := range c.members {
		if j.sources[i].when != 0 || m.needsOutbox() {
			return order{}
		}
		own, ok := j.ordering(i, rows)
		if !ok || i > 0 && own.Seed != o.seed {
			return order{}
		}
		o.regions, o.seed = max(o.regions, own.Regions), own.Seed
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
	return o
}

// load makes the kernels, and tells whether they are there.
func (k *regional) load(d *device.Device, w widths) bool {
	return k.Load(d, func() *device.Program { return regionsProgram(w.keyBytes, w.valueBytes, d.Info().Shared) },
		func(module *device.Module) error {
			return errors.Join(device.Bind(module, "shard_count_regions", &k.count), device.Bind(module,
				"shard_split_regions", &k.split), device.Bind(module, "shard_gather_regions", &k.gather))
		})
}

// startCountRegions queues counting a source's rows by chunk, owner and region.
func (m *member) startCountRegions(s source, seed uint64, owners int, o order, chunk, words int) error {
	if err := m.roomToCount(words); err != nil {
		return err
	}
	counts := m.counts.Slice(0, words)
	grid := m.regionGrid(m.regional.count.Threads(), s.n)
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.came.Record(s.st) },
		func() error { return m.ahead.Wait(m.came) },
		func() error { return counts.Fill(m.ahead, 0) },
		func() error {
			return m.regional.count.Launch(m.ahead, grid, &countRegions{Keys: s.keys, N: uint64(s.n), Seed: seed, Order: o.seed,
				Owners: uint64(owners), Regions: uint64(o.regions),
				Chunk: uint64(chunk), Counts: counts.Addr()})
		},
	), counts.ReadAsync(m.ahead, m.landing, counts.Len())))
}

// regionGrid is so many blocks as are resident, each with many tiles; but a block counts in 32 bits.
func (m *member) regionGrid(blockThreads, rows int) device.Grid {
	grid := device.GridFor(int64(rows), blockThreads)
	grid.Blocks = min(grid.Blocks, max(regionResident/int64(blockThreads)*int64(m.d.Info().Multiprocessors),
		int64(rows>>31)+1))
	return grid
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

// starts says where the rows of each source begin in the owners' inboxes, of every round, owner and region: region
// after region, and in it source after source. counts[i] has for each chunk of source i the rows of each part.
func (o order) starts(p plan, counts [][]uint64, chunk int) (starts [][]uint64) {
	owners := len(counts)
	parts := owners * o.regions
	starts = make([][]uint64, owners)
	for _, rd := range p.rounds {
		next := make([]uint64, owners) // row of each owner's inbox
		round := make([][]uint64, owners)
		rows := make([][]uint64, owners)
		for i := range owners {
			round[i], rows[i] = make([]uint64, parts), rd.parts(i, parts, counts[i], chunk)
		}
		for g := range parts {
			for i := range owners {
				round[i][g] = next[g/o.regions]
				next[g/o.regions] += rows[i][g]
			}
		}
		for i := range owners {
			starts[i] = append(starts[i], round[i]...)
		}
	}
	return starts
}

// parts are how many rows of each part source i has in a round.
func (r round) parts(i, parts int, counts []uint64, chunk int) (rows []uint64) {
	rows = make([]uint64, parts)
	for at := r.from[i]; at < r.to[i]; at += chunk {
		for g, n := range counts[at/chunk*parts:][:parts] {
			rows[g] += n
		}
	}
	return rows
}

// notesOfRegions is notesOf for rows that are split by so many parts.
func (m *member) notesOfRegions(w widths, rows, parts int) notes {
	tile := w.regionTile(m.regional.split.Threads(), m.d.Info().Shared)
	skips := int(frame.Align(int64(4 * rows)))
	return notes{skips, skips + (rows+tile-1)/tile*4*parts}
}

// sendOrdered queues the splitting of a round's rows of a source by owners and regions.
func (f *flight) sendOrdered(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	p := m.splitOrdered(f.widths, f.job, s, rd.from[i], rows, r, half, len(f.members), f.plan.order)
	p.Seed = f.seed
	for j := range f.members {
		to := f.ordered(j, r)
		p.OutKeys[j], p.OutValues[j] = to.keys.Addr(), to.values.Addr()
	}
	grid := m.regionGrid(m.regional.split.Threads(), rows)
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.splitting.begin(m.split) },
		func() error { return m.regional.split.Launch(m.split, grid, &p) },
	), f.clock(r, splitStep, m.split, m.splitting), m.sent[half].Record(m.split)))
}

// splitOrdered are the parameters of splitting rows of a source, from one on, in round r.
func (m *member) splitOrdered(w widths, j *job, s source, from, rows, r, half, owners int, o order) splitRegions {
	parts := owners * o.regions
	p := splitRegions{Keys: s.keys + uint64(from*w.keyBytes), N: uint64(rows), Order: o.seed, Owners: uint64(owners),
		Regions: uint64(o.regions),
		Cursors: m.cursors.Addr() + uint64(8*r*parts)}
	if j.values&sent != 0 {
		p.Values = s.values + uint64(from*w.valueBytes)
	}
	if j.comesBack() {
		p.Places = m.notes[half].Addr()
		p.Skips = p.Places + uint64(m.notesOfRegions(w, rows, parts).bases)
	}
	return p
}

// gatherOrdered are the parameters of bringing back what splitOrdered sent.
func (m *member) gatherOrdered(w widths, j *job, s source, from, rows, half, owners int, o order) gatherRegions {
	p := gatherRegions{N: uint64(rows), Owners: uint64(owners), Regions: uint64(o.regions),
		Places: m.notes[half].Addr()}
	p.Skips = p.Places + uint64(m.notesOfRegions(w, rows, owners*o.regions).bases)
	back := w.gathered(j, s, from, rows)
	p.OutValues, p.OutFlags = back.OutValues, back.OutFlags
	return p
}

// ordered are the rows that an owner has in a round.
func (f *flight) ordered(j, r int) received {
	n := f.plan.rounds[r].gets[j]
	return f.cut(f.members[j].inbox[f.half(r)], f.columns(n, f.job), 0, n)
}

// fetchOrdered queues bringing back the results of a round that was split by regions.
func (f *flight) fetchOrdered(i, r int) error {
	m, s, rd, half := f.members[i], f.job.sources[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	p := m.gatherOrdered(f.widths, f.job, s, rd.from[i], rows, half, len(f.members), f.plan.order)
	for j := range f.members {
		from := f.ordered(j, r)
		p.Values[j], p.Flags[j] = from.out.Addr(), from.flags.Addr()
	}
	grid := m.regionGrid(m.regional.gather.Threads(), rows)
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.splitting.begin(m.split) },
		func() error { return m.regional.gather.Launch(m.split, grid, &p) },
	), f.clock(r, fetchStep, m.split, m.splitting), m.fetched[half].Record(m.split)))
}
