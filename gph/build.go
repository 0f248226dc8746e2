package gph

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed build.cu
var buildCU string

// buildParams are the parameters of the kernels of build.cu.
type buildParams struct {
	Table                Table
	Rows                 frame.Partition
	Keys, Values         uint64 // N pairs in the order of stretches of cells
	N                    uint64
	Span                 uint64 // items that a block takes in a row
	Counts               uint64 // u32, one a cell: its pairs, with unplaced or planned
	Starts               uint64 // u32, one a cell: its first pair in Sorted
	Ranks                uint64 // u8, one a pair: its number in its cell, or noRank
	Sorted               uint64 // slots: the pairs in the order of their cells
	LeftKeys, LeftValues uint64 // the pairs that are inserted afterwards, Counters.Refused of them
	LeftLimit            uint64
	Used                 uint64 // u8, one a bucket: slots that are taken; then slots that are still to be written
	Least, Most          uint32 // pairs of the cells that plan takes
	Mappings             uint32 // that plan compares at least, so long as one fits
	Shift                uint32 // a part is so many binary places of
	Stretches            uint64 // stretches of cells
}

const (
	// noRank marks a pair that is not sorted; unplaced a cell that found no code, and planned one that lost pairs when it was
	// planned, so that it is not planned again among smaller ones.
	noRank   = 255
	unplaced = 1 << 31
	planned  = 1 << 30
	// planAttempts bounds how often a cell is planned anew because other groups took its slots.
	planAttempts = 4
	// marks is the number of bits by which plan_cells sees that a cell has no key twice.
	marks = 1 << 12
	// startEach is the number of cells that a thread of start_cells takes.
	startEach = 8
	// buildSpan is the number of pairs that a block takes in a row.
	buildSpan = 1 << 10
	// partBytes is how much of the pairs has cells in one part: with the cells' counters and the buckets they write to,
	// less than an L2 cache holds.
	partBytes = 1 << 22
	// leftShare: a build may leave one pair in so many to the insert kernels.
	leftShare = 4
)

// builder is the program of build.cu, compiled when first needed.
type builder struct {
	partition                      frame.Partitioner
	within                         frame.Ranges
	rank, start, sort, plan, write device.Kernel[buildParams]
}

func (c *core) buildProgram() *device.Program {
	p := c.program("gph_build", buildCU)
	group := 1
	if c.forGPU() {
		group = 32
	}
	p.Defines = append(append(p.Defines, frame.PartitionDefines()...), device.Define{Name: "GPH_BUILD_GROUP", Value: group},
		device.Define{Name: "GPH_NO_RANK", Value: noRank}, device.Define{Name: "GPH_UNPLACED", Value: fmt.Sprintf("%du", uint32(unplaced))},
		device.Define{Name: "GPH_PLANNED", Value: fmt.Sprintf("%du", uint32(planned))},
		device.Define{Name: "GPH_PLAN_ATTEMPTS", Value: planAttempts}, device.Define{Name: "GPH_START_EACH", Value: startEach},
		device.Define{Name: "GPH_MARKS", Value: marks})
	p.Layouts = append(p.Layouts, buildParams{})
	return p
}

func (c *core) compileBuild() (*builder, error) {
	if c.build != nil {
		return c.build, nil
	}
	m, err := c.frame.Device.CompileApart(c.buildProgram())
	if err != nil {
		return nil, err
	}
	b := &builder{}
	b.partition, err = frame.NewPartitioner[buildParams](c.frame.Device, m)
	within, missing := frame.NewRanges[buildParams](m)
	b.within = within
	err = errors.Join(err, missing, device.Bind(m, "rank_pairs", &b.rank), device.Bind(m, "start_cells", &b.start), device.Bind(m, "sort_pairs", &b.sort),
		device.Bind(m, "plan_cells", &b.plan), device.Bind(m, "write_pairs", &b.write))
	if err != nil {
		return nil, err
	}
	c.build = b
	return b, nil
}

// densest is how many keys a cell may have for a known set to be placed, where a table is filled to the load factor: by
// simulation, with a margin. Larger cells make a smaller index, which stays in the L2 cache better.
func (c config) densest(load float64) float64 {
	keys := map[int][4]float64{4: {12, 8, 7, 6}, 8: {32, 18, 12.5, 9}, 16: {40, 24, 18, 14}, 32: {50, 30, 24, 16}}[c.bucket]
	if c.bucketBytes() > bucketBytes { // a stretch has fewer buckets, and stretches differ more in how many pairs they have
		keys[3] *= 0.9
	}
	for i, most := range []float64{0.6, 0.82, 0.92} {
		if load <= most {
			return min(keys[i], c.mostKeys()/2)
		}
	}
	return min(keys[3], c.mostKeys()/2)
}

// construct places pairs in the empty table. repack lets it choose the number of cells, up to those there is memory for.
// Pairs that are left over go to rest; so do all, where there is too little memory for it. It waits for the stream.
func (c *core) construct(st *device.Stream, in frame.Rows, repack bool, rest func(frame.Rows) error) error {
	if in.N > c.slots() || in.N > math.MaxUint32 {
		return rest(in)
	}
	b, err := c.compileBuild()
	if err != nil {
		return err
	}
	load := float64(in.N) / float64(c.slots())
	cells := c.cells(int64(c.t.Main + c.t.Reserve))
	if repack && in.N >= c.limit()/2 { // a table that is to be filled later keeps its cells
		cells = max(1, min(cells, int64(float64(in.N)/max(c.cfg.densest(load), c.opts.KeysPerCell))))
	}
	c.setCells(cells)
	if done, err := c.constructStretches(st, b, in, rest); done || err != nil {
		return err
	}
	cells = int64(c.t.CellCount)
	if err := device.Ahead(b.partition, b.rank, b.start, b.sort, b.plan, b.write); err != nil {
		return err
	}
	kb, vb := int64(c.cfg.keyBytes), int64(c.cfg.valueBytes)
	buckets := int64(c.t.Main + c.t.Reserve)
	left := in.N/leftShare + 1024
	parts := int(max(1, min(in.N*(kb+vb)/partBytes, frame.MaxParts)))
	size := int64(0)
	take := func(bytes int64) int64 { at := size; size += frame.Align(bytes); return at }
	orderedKeys, orderedValues := take(in.N*kb), take(in.N*vb)
	sorted := take(in.N * int64(c.cfg.slotBytes()))
	leftKeys, leftValues := take(left*kb), take(left*vb)
	ranks, counts, starts, used := take(in.N), take(4*cells), take(4*cells), take(buckets+4)
	counters := take(8 * int64(frame.PartitionWords(parts)))
	mem, err := device.MakePooled[byte](c.frame.Device, int(size))
	if device.IsOutOfMemory(err) {
		c.setCells(math.MaxInt64) // inserts place fewer pairs in a cell
		return rest(in)
	} else if err != nil {
		return err
	}
	defer c.frame.Free(mem)
	if err := c.reset(st); err != nil { // they count here
		return err
	}
	at := func(offset int64) uint64 { return mem.Addr() + uint64(offset) }

	p := buildParams{
		Table: c.t, Keys: at(orderedKeys), Values: at(orderedValues), N: uint64(in.N), Span: buildSpan,
		Counts: at(counts), Starts: at(starts), Ranks: at(ranks), Sorted: at(sorted),
		LeftKeys: at(leftKeys), LeftValues: at(leftValues), LeftLimit: uint64(left), Used: at(used),
		Rows:      frame.Partition{Keys: in.Keys, Values: in.Values, N: uint64(in.N), OutKeys: at(orderedKeys), OutValues: at(orderedValues), Parts: uint64(parts)},
		Stretches: uint64(parts),
	}
	spanned := device.Grid{Blocks: (in.N + buildSpan - 1) / buildSpan, Threads: frame.Threads}
	err = frame.InTurn(
		func() error { return mem.Slice(int(counts), int(counts+4*cells)).Fill(st, 0) },
		func() error { return mem.Slice(int(used), int(used+buckets+4)).Fill(st, 0) },
		func() error {
			return b.partition.Run(st, device.View[uint64](mem, int(counters), frame.PartitionWords(parts)), p.Rows, func(rows frame.Partition) any { p.Rows = rows; return &p })
		},
		func() error { return b.rank.Launch(st, spanned, &p) },
		func() error {
			return b.start.Launch(st, device.GridFor((cells+startEach-1)/startEach, frame.Threads), &p)
		},
		func() error { return b.sort.Launch(st, spanned, &p) },
	)
	if err != nil {
		return err
	}
	perCell := float64(in.N) / float64(cells)
	switch {
	case load <= 0.6:
		p.Mappings = 1
	case load <= 0.82:
		p.Mappings = 2
	default:
		p.Mappings = 4
	}
	cellGrid := device.GridFor(cells, frame.Threads)
	p.Most = cellPairs + 1
	for _, share := range sizes {
		if p.Least = uint32(share * perCell); share == 0 {
			p.Least = 1
		}
		if p.Least == 0 || p.Least >= p.Most {
			continue
		}
		if err := b.plan.Launch(st, cellGrid, &p); err != nil {
			return err
		}
		p.Most = p.Least
	}
	if err := b.write.Launch(st, cellGrid, &p); err != nil {
		return err
	}
	if _, err := c.look(st); err != nil {
		return err
	}
	n := int64(c.counters.Seen.Refused)
	if err := c.reset(st); err != nil {
		return err
	}
	if n > left { // duplicates of few keys, most likely: an insert makes short work of them
		if err := c.empty(st); err != nil {
			return err
		}
		return rest(in)
	}
	if n == 0 {
		return nil
	}
	return rest(frame.Rows{Keys: at(leftKeys), Values: at(leftValues), N: n})
}

// sizes are the steps by which plan goes from large cells to small, as shares of the mean.
var sizes = []float64{2, 1.6, 1.4, 1.25, 1.1, 1, 0.9, 0.8, 0.7, 0.6, 0.45, 0}

// buildInsertion is the Insertion of Map.BuildOn.
func (c *core) buildInsertion() frame.Insertion {
	x := c.insertion(&c.kernel.replace)
	x.Put = func(st *device.Stream, in frame.Rows) (refused []int, why, err error) {
		live, err := c.look(st)
		switch {
		case err != nil:
			return nil, nil, err
		case live > 0:
			return nil, nil, fmt.Errorf("gph: Build wants an empty table, and this one holds %d pairs: Clear it, or Insert", live)
		}
		if want := c.bucketsFor(in.N); in.N > c.limit() {
			if c.opts.MaxBytes > 0 {
				want = max(min(want, c.maxBuckets()), int64(c.t.Main+c.t.Reserve))
			}
			if err := c.rebuild(st, want, 0); err != nil && !device.IsOutOfMemory(err) {
				return nil, nil, err
			}
		}
		return c.constructOr(st, in, true)
	}
	return x
}

// constructOr is construct, with an insert of what is left over, which may grow the table. The positions that are not
// in come back with the reason.
func (c *core) constructOr(st *device.Stream, in frame.Rows, repack bool) (refused []int, why, err error) {
	err = c.construct(st, in, repack, func(x frame.Rows) (err error) {
		refused, why, err = c.insertParts(st, &c.kernel.replace, x)
		return err
	})
	if err != nil || len(refused) == 0 {
		return nil, nil, err
	}
	refused, err = c.frame.Absent(st, in.Keys, c.cfg.keyBytes, in.N, c.insertion(nil)) // those above are positions among the left over
	return refused, why, err
}
