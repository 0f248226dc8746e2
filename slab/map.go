package slab

import (
	"context"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is the slab hash of pairs with unique keys (paper, §III-C): each bucket is a list of slabs. K has 4 or 8 bytes, V 4, 8
// or 16. It implements table.Map and table.Mixed, whose comments are the contract of the methods; all are safe for use by
// several goroutines.
type Map[K, V any] struct{ handle }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

// New makes an empty map on the device. Its memory is a slab of 128 bytes for each bucket and a pool of further slabs; Stats
// tells.
//
// Errors: K or V of another width or with pointers or padding; options out of range; *device.OutOfMemoryError; what
// device.Compile returns. Cost: compiling the kernels once on a machine, about a second; then the memory's filling.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, false)
	return frame.Made(&Map[K, V]{handle{c}}, err)
}

const family table.Family = "slab"

// Insert puts or replaces (the paper's REPLACE): see table.Map. Cost of a pair: one slab read and one sector written, while
// chains are short.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.core.frame, keys, values, m.core.insertion(m.core.kernel.insert))
}

// InsertOn is Insert on the device: see table.Map. It waits for the stream: only the end of a batch tells whether each pair
// found its slab.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, device.Slice[bool]{}, m.core.insertion(m.core.kernel.insert))
}

// InsertNew puts the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.core.frame, keys, values, added, m.core.insertion(m.core.kernel.insertNew))
}

// InsertNewOn is InsertNew on the device: see table.Map. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, added, m.core.insertion(m.core.kernel.insertNew))
}

// Find looks keys up (the paper's SEARCH): see table.Map. Cost of a key: one slab read while chains are short.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.core.frame, keys, values, found, m.core.find)
}

// FindOn is Find on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.core.frame, st, keys, values, found, m.core.find)
}

// Contains is Find without values: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn is Contains on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys (the paper's DELETE, and DELETEALL too, for a key is there once): see table.Map. Their slots become tombstones, which Insert and InsertNew use again, and Flush clears.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.core.frame, keys, deleted, m.core.erase)
}

// DeleteOn is Delete on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.core.frame, st, keys, deleted, m.core.erase)
}

// mix runs a mixed batch; results and status may be 0.
func (c *core) mix(st *device.Stream, b frame.MixedRows) (refused []int, why, err error) {
	return c.take(st, b.N, mixedInserts, nil, func(part frame.Part) error {
		b := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes)
		p := mixedParams{Table: c.table(), Ops: b.Ops, Keys: b.Keys, Values: b.Values, Results: b.Results, Status: b.Status,
			Refused: part.Refused, N: part.N, Attempt: part.Attempt}
		err := c.kernel.mixed.Launch(st, c.frame.Grid(b.N, mixedBlocks), &p)
		if part.Attempt == 0 && !c.opts.NoPolicy { // without the host in between; see take
			err = errors.Join(err, c.queueFlush(st, flushShare))
		}
		return err
	})
}

// mixedInserts: of a mixed batch, one operation in so many is expected to add a pair. Where more do, the table grows in
// the middle of the batch.
const mixedInserts = 4

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. Cost: as Insert and Find; one sector
// written for each insert and delete.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	return frame.Mix(&m.core.frame, ops, keys, values, results, status, m.core.mix, m.core.size)
}

// MixedOn is Mixed on the device. It waits for the stream. An operation that is none of table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	return frame.MixOn(&m.core.frame, st, ops, keys, values, frame.Optional(results), status, m.core.mix, m.core.size)
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.core.frame, false, m.core.exporting)
}

// Chunks gives every pair to do, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.core.frame, m.core.exporting, do)
}
