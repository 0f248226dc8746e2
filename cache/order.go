package cache

import (
	_ "embed"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed order.cu
var orderCU string

const (
	// Batches of regionRows rows a region of the L2 cache's size, or more, come in the order of regions into caches of
	// regionsFrom L2 caches or more: then the rows of a bucket read and write its head in memory once.
	regionsFrom = 1.28
	regionRows  = 1 << 18
	// marksShare: a look-up of a key for so many slots, or more, marks the pairs that it finds. Then all marks are gone
	// through, and the scores are written in the order of buckets.
	marksShare = 16
	// marksCache: the marks take one in so many bytes of the L2 cache at most.
	marksCache = 4
)

// ordering is when the rows of a batch are brought in order, and how.
type ordering struct {
	regions   frame.Regions
	late      frame.Late
	partition frame.Partitioner
	marksFrom int64 // look-ups of so many keys mark
}

// beginOrder says which batches are for kernels that take them in order.
func (c *core) beginOrder() {
	info := c.frame.Device.Info()
	o := &c.order
	o.regions = frame.RegionsFor(info, regionsFrom, regionRows)
	o.marksFrom = max(c.slots()/marksShare, 1<<18)
	if !c.cfg.marks || c.cfg.marksBytes(int64(c.t.Count)) > info.L2/marksCache {
		o.marksFrom = math.MaxInt64
	}
	if c.opts.early {
		o.regions = frame.Regions{RegionBytes: max(1, int64(c.t.Count)*c.cfg.bucketBytes()/7), MinRows: 1, RegionRows: 1, PieceRows: 100, MemoryShare: 2,
			Span: frame.Threads}
		o.marksFrom = 1
	}
}

// putInOrder queues inserts in the order of the regions of the cache's memory; false where that would be slower, or
// there is too little memory: then nothing was queued. Scores and lives of rows do not go with them. A cache that is to
// take no more than so many bytes takes none for this, either.
func (c *core) putInOrder(st *device.Stream, p putParams) (done bool, err error) {
	o, bytes := &c.order, int64(c.t.Count)*c.cfg.bucketBytes()
	regions := o.regions.Count(int64(p.N), bytes)
	if regions == 0 || !c.cfg.paired() || p.Scores != 0 || p.Lives != 0 || c.opts.Bytes != 0 || !c.loadOrder() {
		return false, nil
	}
	x := frame.Placement{Regions: &o.regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes,
		Params: func(rows frame.Partition) any { return &orderParams{Table: c.t, Rows: rows} }}
	rows := frame.Rows{Keys: p.Keys, Values: p.Values, N: int64(p.N)}
	return o.partition.InOrder(&c.frame, st, x, rows, regions, func(o frame.Ordered) error {
		q := p
		q.Keys, q.Values, q.N = o.Rows.Keys, o.Rows.Values, uint64(o.Rows.N)
		return c.putRows(st, q)
	})
}

func (c *core) orderProgram() *device.Program {
	p := c.program("cache-order", orderCU)
	p.Defines = append(p.Defines, frame.PartitionDefines()...)
	p.Layouts = append(p.Layouts, orderParams{})
	return p
}

// loadOrder tells whether the kernels are there.
func (c *core) loadOrder() bool {
	return c.order.late.Load(c.frame.Device, c.orderProgram, func(m *device.Module) (err error) {
		c.order.partition, err = frame.NewPartitioner[orderParams](c.frame.Device, m)
		return err
	})
}

// touchMarked queues that the pairs that look-ups have marked get their scores, and that no mark is left.
func (c *core) touchMarked(st *device.Stream, p *findParams) error {
	if p.Marks == 0 {
		return nil
	}
	return c.kernel.touchMarked.Launch(st, c.grid(c.cfg.marksBytes(int64(c.t.Count))*8), p)
}
