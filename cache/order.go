package cache

import (
	_ "embed"
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

var (
	//go:embed order.cu
	orderCU string
	//go:embed stretch.cu
	stretchCU string
	//go:embed counts.cuh
	countsCUH string
)

// ordering is when and how batches are done in the order of buckets.
type ordering struct {
	marksFrom, putFrom int64 // look-ups and inserts of so many rows
	regions            frame.Regions
	partitions, puts   frame.Late
	partition          frame.Partitioner
	within             frame.Within
	put                device.Kernel[stretchParams]
}

// beginOrder says which batches those are.
func (c *core) beginOrder() {
	info := c.frame.Device.Info()
	o := &c.order
	o.regions = frame.RegionsFor(info, 1, 1)
	o.marksFrom, o.putFrom = max(c.slots()/marksShare, leastMarked), frame.LargeFrom(info, max(c.slots()/putShare, leastPut))
	if c.opts.early {
		o.marksFrom, o.putFrom = 1, 1
	}
	if !c.cfg.marks {
		o.marksFrom = math.MaxInt64
	}
}

// putStretches queues inserts stretch by stretch; false where that would be slower, or there is too little memory: then
// nothing was queued. Scores and lives of rows do not go with them. A cache that is to take no more than so many bytes
// takes none for this, either.
func (c *core) putStretches(st *device.Stream, p putParams) (done bool, err error) {
	o, shift := &c.order, c.cfg.stretch()
	stretches := int64((c.t.Count-1)>>shift + 1)
	shared := c.cfg.bucketBytes() << shift
	if int64(p.N) < o.putFrom || p.N > math.MaxUint32 || !c.cfg.paired() || p.Scores != 0 || p.Lives != 0 ||
		c.opts.Bytes != 0 || stretches > frame.MaxParts*frame.MaxParts ||
		shared+int64(c.cfg.stageBytes()) > c.frame.Device.Info().Shared || !c.loadStretches() {
		return false, nil
	}
	q := stretchParams{Put: p, Shift: uint64(shift)}
	if c.cfg.policy == Scored {
		q.Each = 1
	}
	x := frame.Placement{Regions: &o.regions, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes,
		Params: func(rows frame.Partition) any { return &stretchParams{Put: p, Rows: rows, Shift: uint64(shift)} }}
	rows := frame.Rows{Keys: p.Keys, Values: p.Values, N: int64(p.N)}
	return o.partition.InSmallParts(&c.frame, st, o.within, x, rows, 0, func(int64) int64 { return stretches },
		func(rows frame.Partition) error {
			grid := device.Grid{Blocks: stretches, Threads: stretchThreads, Shared: int(shared)}
			q.Rows = rows
			return o.put.Launch(st, grid, &q)
		})
}

// orderProgram is the kernels that bring rows in the order of stretches, and stretchProgram the one that puts them.
func (c *core) orderProgram() *device.Program {
	p := c.program("cache-order", orderCU)
	p.Defines = append(p.Defines, frame.PartitionDefines()...)
	p.Layouts = append(p.Layouts, stretchParams{})
	return p
}

func (c *core) stretchProgram() *device.Program {
	p := c.program("cache-stretch", stretchCU)
	p.Threads = stretchThreads
	p.Layouts = append(p.Layouts, stretchParams{})
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1},
		device.Define{Name: "CACHE_STRETCH_TILE", Value: stretchTile},
		device.Define{Name: "CACHE_STRETCH_BESIDE", Value: c.cfg.stageBytes()})
	return p
}

// loadStretches tells whether the kernels are there.
func (c *core) loadStretches() bool {
	o, d := &c.order, c.frame.Device
	return o.partitions.Load(d, c.orderProgram, func(m *device.Module) error {
		var e1, e2 error
		o.partition, e1 = frame.NewPartitioner[stretchParams](d, m)
		o.within, e2 = frame.NewWithin[stretchParams](m)
		return errors.Join(e1, e2)
	}) && o.puts.Load(d, c.stretchProgram, func(m *device.Module) error { return device.Bind(m, "put_stretch", &o.put) })
}

// touchMarked queues that the pairs that look-ups have marked get their scores, and that no mark is left.
func (c *core) touchMarked(st *device.Stream, p *findParams) error {
	if p.Marks == 0 {
		return nil
	}
	return c.kernel.touchMarked.Launch(st, c.grid(c.cfg.marksBytes(int64(c.t.Count))*8), p)
}
