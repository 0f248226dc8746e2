package stadium

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is the hash table behind a ticket board (paper, §III). K has 4 to 256 bytes, V up to 4,096, both multiples of 4. It implements
// table.Map and table.Mixed, whose comments are the contract of the methods; all are safe for use by several goroutines.
type Map[K, V any] struct{ handle }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

const family table.Family = "stadium"

// New makes an empty map on the device. Its memory is a slot of key and value and a ticket for each pair that fits, and a filter and an access bit
// for each bucket; Stats tells.
//
// Errors: K or V of another width or with pointers or padding; options out of range; *device.OutOfMemoryError; what
// device.Compile returns. Cost: compiling the kernels once on a machine, some seconds; then the board's filling.
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

// Insert puts or replaces: see table.Map. The paper's insert (§III-B, Figure 6) takes the first available ticket, and never looks for its
// key; this one does. Cost of a pair: a bucket's tickets read, a ticket and a slot written.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.core.frame, keys, values, m.core.insertion(&m.core.kernel.replacing))
}

// InsertOn is Insert on the device: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, device.Slice[bool]{}, m.core.insertion(&m.core.kernel.replacing))
}

// InsertNew puts the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.core.frame, keys, values, added, m.core.insertion(&m.core.kernel.adding))
}

// InsertNewOn is InsertNew on the device: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, added, m.core.insertion(&m.core.kernel.adding))
}

// Find looks keys up (§III-B, Figure 9): see table.Map. Cost of a key: a bucket's tickets, and a slot if one of them has the key's info bits;
// at a load factor of 0.8, a key that is there takes 1.05 buckets on average, at 0.95 1.2.
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

// Delete removes keys: see table.Map. Their tickets are available at once.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.core.frame, keys, deleted, m.core.erase)
}

// DeleteOn is Delete on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.core.frame, st, keys, deleted, m.core.erase)
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.core.frame, false, m.core.exporting)
}

// Chunks gives every pair to do, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.core.frame, m.core.exporting, do)
}

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. Each holds the access bits of its key's buckets (§III-B,
// where each slot has one). Cost: two atomic operations on a small array more than the operations alone.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	return frame.Mix(&m.core.frame, ops, keys, values, results, status, m.core.mix, m.core.size)
}

// MixedOn is Mixed on the device. It waits for the stream, unless there is room for as many pairs more as the batch has operations. An operation that
// is none of table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	return frame.MixOn(&m.core.frame, st, ops, keys, values, frame.Optional(results), status, m.core.mix, m.core.size)
}
