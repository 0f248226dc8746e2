package stadium

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is the hash table behind a ticket board (paper, §III). K has 4 to 256 bytes and V has up to 4,096, both multiples
// of 4. Map implements table.Map and table.Mixed, whose comments are the contract of the methods. All methods are safe
// for use by several goroutines.
type Map[K, V any] struct{ handle }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

const family table.Family = "stadium"

// New makes an empty map on the device. It has a slot of key and value, and a ticket, for each pair that fits, and a
// filter and an access bit for each bucket. Stats tells how much memory that is.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If
// kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to
// compile them with. A compiler's own words, in a *device.CompileError, come from the method that needs the kernel. Cost:
// filling the board. The first call of a method on a machine compiles its kernels.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	key, wrong := frame.WidthBetween[K]("key", leastKey, mostKey, widthStep)
	value, wrongValue := frame.WidthBetween[V]("value", 0, mostValue, widthStep)
	if wrong == nil {
		wrong = wrongValue
	}
	if wrong != nil {
		return nil, wrong
	}
	c := &core{opts: o, cfg: config{keyBytes: key, valueBytes: value}}
	c.frame.Why = o.Why
	return frame.Made(&Map[K, V]{handle{c}}, c.frame.Open(family, d, c.begin, c.free))
}

// Insert puts pairs in, and replaces the values of keys that are there: see table.Map. It looks for its key first; the
// paper's insert (§III-B, Figure 6) takes the first available ticket, and never looks for its key. For each pair,
// Insert reads the tickets of a bucket, and writes a ticket and a slot.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(&m.made().kernel.replacing))
}

// InsertOn does what Insert does, with slices on the device: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().insertion(&m.made().kernel.replacing))
}

// InsertNew puts in the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.made().frame, keys, values, added, m.made().insertion(&m.made().kernel.adding))
}

// InsertNewOn does what InsertNew does, with slices on the device: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, added, m.made().insertion(&m.made().kernel.adding))
}

// Find looks keys up (§III-B, Figure 9): see table.Map. For each key it reads the tickets of a bucket, and a slot if
// one of them has the key's info bits. A key that is there takes 1.05 buckets on average at a load factor of 0.8, and
// 1.2 at 0.95.
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

// Delete removes keys: see table.Map. Their tickets are available at once.
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

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. Each operation holds the access bits
// of its key's buckets (§III-B, where each slot has one). It costs two atomic operations on a small array more than the
// operation alone.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	return frame.Mix(&m.made().frame, ops, keys, values, results, status, m.made().mix, m.made().size)
}

// MixedOn does what Mixed does, with slices on the device. It waits for the stream, unless there is room for as many
// more pairs as the batch has operations. An operation that is not one of table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	return frame.MixOn(&m.made().frame, st, ops, keys, values, frame.Optional(results), status, m.made().mix, m.made().size)
}
