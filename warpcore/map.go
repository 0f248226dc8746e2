package warpcore

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is WarpCore's SingleValueHashTable (paper, §IV-B): each key has one value. K has 4 or 8 bytes, V 4, 8 or 16. Map
// implements table.Map, whose comments are the contract of the methods. All methods are safe for use by several
// goroutines.
type Map[K, V any] struct{ handle }

func _[K, V any](m *Map[K, V]) table.Map[K, V] { return m }

const family table.Family = "warpcore"

// New makes an empty map on the device. It has as many slots as Capacity takes at LoadFactor, or some more, because
// slots come in windows of Options.Window slots each, and the number of windows is the next prime. MaxBytes may make
// them fewer. Stats tells how much memory that is.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If
// kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to
// compile them with. A compiler's own words, in a *device.CompileError, come from the method that needs the kernel. Cost:
// filling the memory. The first call of a method on a machine compiles its kernels.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, table.KindMap)
	return frame.Made(&Map[K, V]{handle{core: c}}, err)
}

// Insert puts pairs in, and replaces the values of keys that are there: see table.Map. For each pair, at low load, it
// reads one window and writes one 32-byte sector.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(m.made().kernel.insert))
}

// InsertOn does what Insert does, with slices on the device: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.insertion(m.made().kernel.insert))
}

// InsertNew puts in the pairs whose keys are absent: see table.Map. Its cost is that of Insert. But the pairs go in as
// they come, to tell which are new: then a table larger than the device's L2 cache is written to at random.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.made().frame, keys, values, added, m.made().insertion(m.made().kernel.insertNew))
}

// InsertNewOn does what InsertNew does, with slices on the device: see table.Map. Without added, a large batch is first
// brought in the order of the table's regions, as in InsertOn.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, added, m.insertion(m.made().kernel.insertNew))
}

// Find looks keys up: see table.Map. For each key it reads one window at low load, and at a load factor of 0.9 it reads
// 1.3 on average if half of the keys are in.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.made().frame, keys, values, found, m.made().find)
}

// FindOn does what Find does, with slices on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.finding())
}

// Contains tells for each key whether it is in: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn does what Contains does, with slices on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys: see table.Map. Their slots become tombstones, which later inserts use again.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOn does what Delete does, with slices on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.erasing())
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporter)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporter, do)
}
