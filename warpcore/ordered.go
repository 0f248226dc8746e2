package warpcore

import (
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Sorted returns a view of the map for one batch of device slices whose rows are sorted, for package shard. The view is
// the same table; its InsertOn, InsertNewOn, FindOn and DeleteOn take the batch.
func (m *Map[K, V]) Sorted(o *frame.Sorted) table.Map[K, V] { return &Map[K, V]{m.view(o)} }

// Sorted returns a view of the set for one batch of device slices whose rows are sorted, for package shard. The view is
// the same table; its InsertOn, ContainsOn and DeleteOn take the batch.
func (s *Set[K]) Sorted(o *frame.Sorted) table.Set[K] { return &Set[K]{s.view(o)} }

// Sorted returns a view of the multimap for one batch of device slices whose rows are sorted, for package shard. The
// view is the same table; its InsertOn takes the batch.
func (m *MultiMap[K, V]) Sorted(o *frame.Sorted) table.MultiMap[K, V] {
	return &MultiMap[K, V]{m.view(o)}
}

// Itself returns the map. A type that embeds a Map and replaces some of its methods has Itself, Sorted and Sums, too: so
// package shard, which calls these, can see that they are not the type's own.
func (m *Map[K, V]) Itself() any { return m }

// Itself returns the set: see Map.Itself.
func (s *Set[K]) Itself() any { return s }

// Itself returns the multimap: see Map.Itself.
func (m *MultiMap[K, V]) Itself() any { return m }

// Itself returns the counter: see Map.Itself.
func (c *Counter[K, C]) Itself() any { return c }

func (h *handle) view(o *frame.Sorted) handle { return handle{core: h.core, sorted: o} }

// insertion returns the insert of a batch by k. The batch of a view is sorted.
func (h *handle) insertion(k inserts) frame.Insertion { return h.made().insertion(k).Sorted(h.sorted) }

// finding returns the look-up of a batch.
func (h *handle) finding() func(st *device.Stream, b frame.Rows) error {
	return h.sorted.Of(h.made().find)
}

// erasing returns the deletion of a batch.
func (h *handle) erasing() func(st *device.Stream, b frame.Rows) error {
	return h.sorted.Of(h.made().erase)
}

// sortedKernels look up and delete keys of sorted batches with one lane a key. Rows in random order wait for memory,
// and lanes that share a window have more of it on its way. Sorted rows find their windows in the L2 cache, so
// instructions bound them: on two H200s, 250 million look-ups on each take 6.4 ms, and 6.8 ms with four lanes a key.
type sortedKernels struct {
	apart       bool // they differ from those for rows in any order
	late        frame.Late
	find, erase device.Kernel[findParams]
}

// of returns the kernel for sorted rows that does what k does, or k.
func (s *sortedKernels) of(c *core, k device.Kernel[findParams]) device.Kernel[findParams] {
	if !s.apart || !s.late.Load(c.frame.Device, func() *device.Program {
		return defining("WARPCORE_FIND_GROUP", 1, c.bulkProgram())
	}, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "find", &s.find), device.Bind(m, "erase", &s.erase))
	}) {
		return k
	}
	switch k {
	case c.kernel.find:
		return s.find
	case c.kernel.erase:
		return s.erase
	}
	return k
}

// Ordering returns the order in which the table wants a batch of n rows: to insert them, or to look them up or delete
// them. A table with another hash function than Murmur's has no order. Ordering is for package shard.
func (h *handle) Ordering(n int, insert bool) (o frame.Ordering) {
	if h.core == nil || h.core.cfg.hash != kernel.HashMurmur {
		return o
	}
	c := h.core
	c.frame.Guard(func() {
		o.Seed = c.t.Seed
		if insert {
			o.Regions = c.insertRegions(int64(n))
			o.Paired = o.Regions > 0 && c.cfg.keyBytes == c.cfg.valueBytes && !c.foreign && !c.multi() &&
				c.filled+int64(float64(n)+pairsSpread*math.Sqrt(float64(n))) <= c.limit()
		}
		if o.Regions == 0 {
			o.Regions = int(c.regions.Count(int64(n), int64(c.mem.Len())))
		}
	})
	return o
}

// insertRegions returns the number of regions for n rows that are inserted stretch by stretch; 0 if they are not.
func (c *core) insertRegions(n int64) int {
	if n < c.stretch.rule.MinRows {
		return 0
	}
	grid, _, ok := c.stretchGrid(false)
	if !ok {
		return 0
	}
	if _, ok := c.stretch.rule.Fine(c.regions, n, c.capacity(), grid.Blocks, n); !ok {
		return 0
	}
	return max(2, int(grid.Blocks/stretchesOfRegion))
}
