package slab

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is the slab hash of pairs with unique keys (paper, §III-C): each bucket is a list of slabs. K has 4 or 8 bytes, V
// 4, 8 or 16. Map implements table.Map and table.Mixed, whose comments are the contract of the methods. All methods are
// safe for use by several goroutines.
type Map[K, V any] struct{ handle }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

// New makes an empty map on the device. It has a slab of 128 bytes for each bucket, and a pool of further slabs. Stats
// tells how much memory that is.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If
// kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to
// compile them with. A compiler's own words, in a *device.CompileError, come from the method that needs the kernel. Cost:
// filling the memory. The first call of a method on a machine compiles its kernels.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, false)
	return frame.Made(&Map[K, V]{handle{c}}, err)
}

const family table.Family = "slab"

// Insert puts pairs in, and replaces the values of keys that are there (the paper's REPLACE): see table.Map. For each
// pair it reads one slab and writes one sector while chains are short. Large batches go in stretch by stretch: see the
// package's comment.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(m.made().kernel.insert))
}

// InsertOn does what Insert does, with slices on the device: see table.Map. It waits for the stream, because only the
// end of a batch tells whether each pair found its slab.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().insertion(m.made().kernel.insert))
}

// InsertNew puts in the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.made().frame, keys, values, added, m.made().insertion(m.made().kernel.insertNew))
}

// InsertNewOn does what InsertNew does, with slices on the device: see table.Map. It waits for the stream, as InsertOn
// does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, added, m.made().insertion(m.made().kernel.insertNew))
}

// Find looks keys up (the paper's SEARCH): see table.Map. For each key it reads one slab while chains are short.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.made().frame, keys, values, found, m.made().find)
}

// FindOn does what Find does, with slices on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().find)
}

// Contains tells for each key whether it is in: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn does what Contains does, with slices on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys: see table.Map. It is the paper's DELETE, and also DELETEALL, because a key is there once. The
// slots of the keys become tombstones, which Insert and InsertNew use again and Flush clears.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOn does what Delete does, with slices on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().erase)
}

// mix runs a mixed batch; results and status may be 0.
func (c *core) mix(st *device.Stream, b frame.MixedRows) (refused []int, why, err error) {
	return c.take(st, b.N, mixedInserts, 0, nil, func(part frame.Part) error {
		b := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes)
		p := mixedParams{Table: c.table(), Ops: b.Ops, Keys: b.Keys, Values: b.Values, Results: b.Results, Status: b.Status,
			Refused: part.Refused, N: part.N, Attempt: part.Attempt}
		err := c.kernel.mixed.Launch(st, c.frame.Grid(b.N, mixedBlocks), &p)
		if err == nil && part.Attempt == 0 && !c.opts.NoPolicy { // the host does not wait between; see take
			err = c.queueFlush(st, flushShare)
		}
		return err
	})
}

// mixedInserts: of a mixed batch, one operation in so many is expected to add a pair. Where more do, the table grows in
// the middle of the batch.
const mixedInserts = 4

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. It costs as much as Insert and Find.
// Each insert and each delete writes one sector.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	return frame.Mix(&m.made().frame, ops, keys, values, results, status, m.made().mix, m.made().size)
}

// MixedOn does what Mixed does, with slices on the device. It waits for the stream. An operation that is not one of
// table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	return frame.MixOn(&m.made().frame, st, ops, keys, values, frame.Optional(results), status, m.made().mix, m.made().size)
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporting)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporting, do)
}
