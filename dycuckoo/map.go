package dycuckoo

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is the two-layer cuckoo hash table (paper, §5), whose subtables grow and shrink one at a time (§4.2). K has 4, 8,
// 16 or 32 bytes, V 4, 8, 16 or 32. Map implements table.Map and table.Mixed, whose comments are the contract of the
// methods. All methods are safe for use by several goroutines.
type Map[K, V any] struct{ handle }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

const family table.Family = "dycuckoo"

// New makes an empty map on the device. It has d subtables, each with a power of two of buckets. Stats and Subtables
// tell how much memory that is.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If
// kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to
// compile them with. A compiler's own words, in a *device.CompileError, come from the method that needs the kernel. Cost:
// filling the memory. The first call of a method on a machine compiles its kernels.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c := &core{opts: o}
	var wrong error
	c.cfg.keyBytes, wrong = frame.WidthOf[K]("key", 4, 8, 16, 32)
	if wrong == nil {
		c.cfg.valueBytes, wrong = frame.WidthOf[V]("value", 4, 8, 16, 32)
	}
	if wrong != nil {
		return nil, wrong
	}
	c.frame.Why = o.Why
	return frame.Made(&Map[K, V]{handle{c}}, c.frame.Open(family, d, c.begin, c.free))
}

// Insert puts pairs in, and replaces the values of keys that are there (paper, Algorithm 1): see table.Map. For each
// pair, at low filled factors, it reads one bucket and writes one sector. At 0.85 it puts about one pair in seven into
// its second bucket, and for one pair in thirty it moves others on.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(&m.made().kernel.replacing))
}

// InsertOn does what Insert does, with slices on the device: see table.Map. It waits for the stream, because only the
// end of a batch tells whether each pair has found room.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().insertion(&m.made().kernel.replacing))
}

// InsertNew puts in the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.made().frame, keys, values, added, m.made().insertion(&m.made().kernel.adding))
}

// InsertNewOn does what InsertNew does, with slices on the device: see table.Map. It waits for the stream, as InsertOn
// does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, added, m.made().insertion(&m.made().kernel.adding))
}

// Find looks keys up: see table.Map. For each key it reads one bucket, or two at most.
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

// Delete removes keys: see table.Map. Their slots are free at once. It waits for the stream if the table may have to
// shrink.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOn does what Delete does, with slices on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().erase)
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporting)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporting, do)
}

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. Each operation holds the locks of
// both buckets of its key. If pairs must make room, Mixed first finds a path for them, and then moves them from its end
// on. So a key is always in one of its buckets. (The paper's insert holds an evicted pair in hand, and so forbids
// mixing.) Mixed costs two atomic operations more than Insert.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	return frame.Mix(&m.made().frame, ops, keys, values, results, status, m.made().mix, m.made().size)
}

// MixedOn does what Mixed does, with slices on the device. It waits for the stream. An operation that is not one of
// table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	return frame.MixOn(&m.made().frame, st, ops, keys, values, frame.Optional(results), status, m.made().mix, m.made().size)
}

// mixedInserts: of a mixed batch, one operation in so many is expected to add a pair. Where more do, the table grows in the middle of
// the batch.
const mixedInserts = 4

// mix runs a mixed batch; results and status may be 0. Results may take the place of values: so those of inserts that are refused are
// written only when they are refused for good.
func (c *core) mix(st *device.Stream, b frame.MixedRows) (refused []int, why, err error) {
	return c.take(st, b.N, mixedInserts, 0, nil, func(part frame.Part) error {
		b := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes)
		c.unseen = true
		return c.kernel.mixed.Launch(st, c.lockedGrid(b.N), &mixedParams{Table: c.table(), Ops: b.Ops, Keys: b.Keys, Values: b.Values, Results: b.Results, Status: b.Status,
			Refused: part.Refused, N: part.N, Attempt: part.Attempt})
	}, nil)
}
